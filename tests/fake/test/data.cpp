// SPDX-License-Identifier: MIT
//
// The data path: what moves between two QPs, and how it fails.
#include "support.hpp"

#include <memory>

using namespace selftest;

namespace {

struct region {
    region(rdma_cm_id* id, std::size_t size, unsigned access = IBV_ACCESS_LOCAL_WRITE)
        : memory(size, 0), mr{ibv_reg_mr(id->pd, memory.data(), size, access)}
    {
        REQUIRE(mr != nullptr);
    }
    region(region const&) = delete;
    region& operator=(region const&) = delete;
    ~region() { CHECK(ibv_dereg_mr(mr) == 0); }
    std::uint64_t at() const { return reinterpret_cast<std::uintptr_t>(memory.data()); }
    ibv_sge sge() const { return {at(), static_cast<std::uint32_t>(memory.size()), mr->lkey}; }
    void put(char const* text) { std::strncpy(memory.data(), text, memory.size() - 1); }

    std::vector<char> memory;
    ibv_mr* mr;
};

constexpr unsigned remote_access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

int post_send(rdma_cm_id* id, region const& from, ibv_wr_opcode opcode = IBV_WR_SEND, unsigned flags = IBV_SEND_SIGNALED, region const* to = nullptr)
{
    ibv_sge piece = from.sge();
    ibv_send_wr wr{}, *bad = nullptr;
    wr.wr_id = 11;
    wr.sg_list = &piece;
    wr.num_sge = 1;
    wr.opcode = opcode;
    wr.send_flags = flags;
    wr.imm_data = htonl(99);
    if (to != nullptr) {
        wr.wr.rdma.remote_addr = to->at();
        wr.wr.rdma.rkey = to->mr->rkey;
    }
    return ibv_post_send(id->qp, &wr, &bad);
}

int post_recv(rdma_cm_id* id, region const& into, std::uint64_t wr_id = 22)
{
    ibv_sge piece = into.sge();
    ibv_recv_wr wr{wr_id, nullptr, &piece, 1}, *bad = nullptr;
    return ibv_post_recv(id->qp, &wr, &bad);
}

} // namespace

TEST_CASE("a message is sent, and waits for its receive")
{
    for (auto const& on : devices) {
        INFO(on.name);
        clean_world world;
        connection c{on};
        region out{c.client, 32}, in{c.server, 64};
        out.put("over there");
        ibv_wc wc{};
        CHECK(post_send(c.client, out) == 0);
        CHECK(poll_one(c.client->send_cq, wc) == 0); // no receive yet
        CHECK(post_recv(c.server, in) == 0);
        REQUIRE(poll_one(c.client->send_cq, wc) == 1);
        CHECK((wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_SEND && wc.wr_id == 11 && wc.qp_num == c.client->qp->qp_num));
        REQUIRE(poll_one(c.server->recv_cq, wc) == 1);
        CHECK((wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RECV && wc.wr_id == 22 && wc.byte_len == 32));
        CHECK(std::string{in.memory.data()} == "over there");
    }
}

TEST_CASE("a send without a signal completes silently, inline data needs no region")
{
    clean_world world;
    connection c{devices[0]};
    region in{c.server, 64};
    ibv_wc wc{};
    REQUIRE(post_recv(c.server, in) == 0);
    char text[] = "inline";
    CHECK(rdma_post_send(c.client, nullptr, text, sizeof text, nullptr, IBV_SEND_INLINE) == 0);
    CHECK(poll_one(c.client->send_cq, wc) == 0);
    CHECK(poll_one(c.server->recv_cq, wc) == 1);
    CHECK(std::string{in.memory.data()} == "inline");
    char much[65] = {};
    CHECK((rdma_post_send(c.client, nullptr, much, sizeof much, nullptr, IBV_SEND_INLINE) == -1 && errno == EINVAL));
}

TEST_CASE("immediates: delivered on RoCE, refused on iWARP")
{
    for (auto const& on : devices) {
        INFO(on.name);
        clean_world world;
        connection c{on};
        region out{c.client, 8}, in{c.server, 8, remote_access};
        ibv_wc wc{};
        REQUIRE(post_recv(c.server, in) == 0);
        int const refused = on.iwarp ? EINVAL : 0;
        CHECK(post_send(c.client, out, IBV_WR_SEND_WITH_IMM) == refused);
        CHECK(poll_one(c.server->recv_cq, wc) == (on.iwarp ? 0 : 1));
        if (!on.iwarp) CHECK(((wc.wc_flags & IBV_WC_WITH_IMM) != 0 && wc.imm_data == htonl(99)));
        CHECK(post_send(c.client, out, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_SEND_SIGNALED, &in) == refused);
        if (on.iwarp) continue;
        CHECK(poll_one(c.server->recv_cq, wc) == 0); // it needs a receive
        REQUIRE(post_recv(c.server, in, 23) == 0);
        REQUIRE(poll_one(c.server->recv_cq, wc) == 1);
        CHECK((wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM && wc.wr_id == 23 && wc.byte_len == 8));
    }
}

TEST_CASE("RDMA WRITE and READ move memory, and take no receive")
{
    for (auto const& on : devices) {
        INFO(on.name);
        clean_world world;
        connection c{on};
        region here{c.client, 32, remote_access}, there{c.server, 32, remote_access};
        ibv_wc wc{};
        here.put("written");
        CHECK(post_send(c.client, here, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, &there) == 0);
        REQUIRE(poll_one(c.client->send_cq, wc) == 1);
        CHECK((wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RDMA_WRITE));
        CHECK(std::string{there.memory.data()} == "written");
        there.put("read");
        CHECK(post_send(c.client, here, IBV_WR_RDMA_READ, IBV_SEND_SIGNALED, &there) == 0);
        REQUIRE(poll_one(c.client->send_cq, wc) == 1);
        CHECK((wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RDMA_READ && wc.byte_len == 32));
        CHECK(std::string{here.memory.data()} == "read");
        CHECK(poll_one(c.server->recv_cq, wc) == 0);
    }
}

TEST_CASE("the sink of a READ needs REMOTE_WRITE on iWARP alone")
{
    for (auto const& on : devices) {
        INFO(on.name);
        clean_world world;
        connection c{on};
        region here{c.client, 8}, there{c.server, 8, IBV_ACCESS_REMOTE_READ};
        ibv_wc wc{};
        CHECK(post_send(c.client, here, IBV_WR_RDMA_READ, IBV_SEND_SIGNALED, &there) == 0);
        REQUIRE(poll_one(c.client->send_cq, wc) == 1);
        CHECK((wc.status == IBV_WC_SUCCESS) == !on.iwarp);
    }
}

TEST_CASE("reads need a depth that was agreed on")
{
    clean_world world;
    fake::set_timewait(false);
    auto* const channel = rdma_create_event_channel();
    auto* const listener = make_listener(channel, v4("10.77.1.1", 7471));
    auto* const client = make_client(channel, v4("10.77.1.1", 7471));
    give_qp(client);
    rdma_conn_param none{};
    REQUIRE(rdma_connect(client, &none) == 0);
    auto* const server = take_request(channel);
    REQUIRE(rdma_accept(server, nullptr) == 0);
    expect(channel, RDMA_CM_EVENT_ESTABLISHED);
    expect(channel, RDMA_CM_EVENT_ESTABLISHED);
    {
        region here{client, 8, remote_access}, there{server, 8, remote_access};
        ibv_wc wc{};
        CHECK(post_send(client, here, IBV_WR_RDMA_READ, IBV_SEND_SIGNALED, &there) == 0);
        CHECK(poll_one(client->send_cq, wc) == 0); // it never gets its turn
    }
    for (auto* id : {client, server, listener}) drop(id);
    rdma_destroy_event_channel(channel);
}

TEST_CASE("keys, bounds and rights are checked; an error ends both QPs")
{
    struct fault { unsigned access; std::uint64_t shift; std::uint32_t key; };
    for (auto const& on : devices)
        for (fault const& wrong : {fault{remote_access, 0, 4}, fault{remote_access, 1, 0}, fault{IBV_ACCESS_LOCAL_WRITE, 0, 0}}) {
            INFO(on.name << " shift " << wrong.shift << " key " << wrong.key);
            clean_world world;
            connection c{on};
            region here{c.client, 8}, there{c.server, 8, wrong.access}, spare{c.server, 8};
            REQUIRE(post_recv(c.server, spare) == 0);
            ibv_sge piece = here.sge();
            ibv_send_wr wr{}, *bad = nullptr;
            wr.wr_id = 5;
            wr.sg_list = &piece;
            wr.num_sge = 1;
            wr.opcode = IBV_WR_RDMA_WRITE; // not signalled: an error completes all the same
            wr.wr.rdma.remote_addr = there.at() + wrong.shift;
            wr.wr.rdma.rkey = there.mr->rkey + wrong.key;
            REQUIRE(ibv_post_send(c.client->qp, &wr, &bad) == 0);
            ibv_wc wc{};
            REQUIRE(poll_one(c.client->send_cq, wc) == 1);
            CHECK((wc.status == IBV_WC_REM_ACCESS_ERR && wc.wr_id == 5 && wc.qp_num == c.client->qp->qp_num));
            CHECK(static_cast<int>(wc.opcode) == 0x7f); // rubbish, as it may be
            CHECK(wc.byte_len == 0xffffffffU);
            CHECK(c.client->qp->state == IBV_QPS_ERR);
            CHECK(c.server->qp->state == IBV_QPS_ERR);
            REQUIRE(poll_one(c.server->recv_cq, wc) == 1);
            CHECK(wc.status == IBV_WC_WR_FLUSH_ERR);
            if (on.iwarp) expect(c.server_channel, RDMA_CM_EVENT_DISCONNECTED);
        }
}

TEST_CASE("a local key is not a remote key, and the other way round")
{
    clean_world world;
    connection c{devices[0]};
    region here{c.client, 8, remote_access};
    CHECK(here.mr->lkey != here.mr->rkey);
    ibv_sge piece = here.sge();
    piece.lkey = here.mr->rkey;
    ibv_send_wr wr{}, *bad = nullptr;
    wr.sg_list = &piece;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_SEND;
    region in{c.server, 8};
    REQUIRE(post_recv(c.server, in) == 0);
    REQUIRE(ibv_post_send(c.client->qp, &wr, &bad) == 0);
    ibv_wc wc{};
    REQUIRE(poll_one(c.client->send_cq, wc) == 1);
    CHECK(wc.status == IBV_WC_LOC_PROT_ERR);
}

TEST_CASE("a message longer than its receive fails on both sides")
{
    clean_world world;
    connection c{devices[0]};
    region out{c.client, 32}, in{c.server, 8};
    ibv_wc wc{};
    REQUIRE(post_recv(c.server, in) == 0);
    REQUIRE(post_send(c.client, out) == 0);
    REQUIRE(poll_one(c.client->send_cq, wc) == 1);
    CHECK(wc.status == IBV_WC_REM_INV_REQ_ERR);
    REQUIRE(poll_one(c.server->recv_cq, wc) == 1);
    CHECK(wc.status == IBV_WC_LOC_LEN_ERR);
}

TEST_CASE("a disconnect flushes what was posted")
{
    for (auto const& on : devices) {
        INFO(on.name);
        clean_world world;
        fake::set_timewait(false);
        connection c{on};
        region in{c.client, 8}, out{c.client, 8};
        REQUIRE(post_recv(c.client, in, 1) == 0);
        REQUIRE(post_recv(c.client, in, 2) == 0);
        REQUIRE(post_send(c.client, out) == 0);
        REQUIRE(rdma_disconnect(c.client) == 0);
        ibv_wc wc[4];
        REQUIRE(ibv_poll_cq(c.client->recv_cq, 4, wc) == 2);
        CHECK((wc[0].status == IBV_WC_WR_FLUSH_ERR && wc[0].wr_id == 1));
        CHECK((wc[1].status == IBV_WC_WR_FLUSH_ERR && wc[1].wr_id == 2));
        REQUIRE(ibv_poll_cq(c.client->send_cq, 4, wc) == 1);
        CHECK((wc[0].status == IBV_WC_WR_FLUSH_ERR && wc[0].wr_id == 11));
        CHECK(post_recv(c.client, in, 3) == 0); // taken, and flushed at once
        REQUIRE(ibv_poll_cq(c.client->recv_cq, 4, wc) == 1);
        CHECK(wc[0].wr_id == 3);
    }
}

TEST_CASE("sending to a QP that has gone: retries are exceeded")
{
    clean_world world;
    connection c{devices[0]};
    region out{c.client, 8};
    REQUIRE(post_send(c.client, out) == 0);
    rdma_destroy_qp(c.server);
    ibv_wc wc{};
    REQUIRE(poll_one(c.client->send_cq, wc) == 1);
    CHECK(wc.status == IBV_WC_RETRY_EXC_ERR);
    CHECK(c.client->qp->state == IBV_QPS_ERR);
}

TEST_CASE("posting: states and limits")
{
    clean_world world;
    auto* const channel = rdma_create_event_channel();
    auto* const id = make_client(channel, v4("10.77.1.1", 7));
    give_qp(id);
    {
        region memory{id, 8};
        CHECK(post_send(id, memory) == EINVAL); // INIT
        for (int i = 0; i < 8; ++i) CHECK(post_recv(id, memory) == 0);
        errno = 0;
        CHECK(post_recv(id, memory) == ENOMEM);
        CHECK(errno == fake::decoy);
        ibv_sge pieces[3] = {memory.sge(), memory.sge(), memory.sge()};
        ibv_recv_wr second{2, nullptr, pieces, 3}, *bad = nullptr;
        CHECK(ibv_post_recv(id->qp, &second, &bad) == EINVAL);
        CHECK(bad == &second);
    }
    drop(id);
    rdma_destroy_event_channel(channel);
}

TEST_CASE("atomics")
{
    clean_world world;
    connection c{devices[0]};
    region result{c.client, 8}, word{c.server, 8, remote_access};
    if (word.at() % 8 != 0) return;
    std::uint64_t value = 40;
    std::memcpy(word.memory.data(), &value, sizeof value);
    ibv_sge piece = result.sge();
    ibv_send_wr wr{}, *bad = nullptr;
    wr.sg_list = &piece;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.wr.atomic.remote_addr = word.at();
    wr.wr.atomic.rkey = word.mr->rkey;
    wr.wr.atomic.compare_add = 2;
    REQUIRE(ibv_post_send(c.client->qp, &wr, &bad) == 0);
    ibv_wc wc{};
    REQUIRE(poll_one(c.client->send_cq, wc) == 1);
    CHECK(wc.opcode == IBV_WC_FETCH_ADD);
    std::memcpy(&value, word.memory.data(), sizeof value);
    CHECK(value == 42);
    std::memcpy(&value, result.memory.data(), sizeof value);
    CHECK(value == 40);
}

TEST_CASE("an armed CQ raises one event; solicited-only waits for the mark")
{
    clean_world world;
    connection c{devices[0]};
    region out{c.client, 8}, in{c.server, 8};
    REQUIRE(fcntl(c.server->recv_cq_channel->fd, F_SETFL, O_NONBLOCK) == 0);
    ibv_cq* which = nullptr;
    void* context = nullptr;
    auto const event_comes = [&] {
        if (ibv_get_cq_event(c.server->recv_cq_channel, &which, &context) != 0) return errno == EAGAIN ? false : throw errno;
        CHECK(which == c.server->recv_cq);
        CHECK(context == c.server);
        return true;
    };
    for (int i = 0; i < 8; ++i) REQUIRE(post_recv(c.server, in) == 0);
    REQUIRE(post_send(c.client, out) == 0);
    CHECK_FALSE(event_comes()); // not armed
    REQUIRE(ibv_req_notify_cq(c.server->recv_cq, 0) == 0);
    CHECK_FALSE(event_comes()); // what is there already does not count
    REQUIRE(post_send(c.client, out) == 0);
    REQUIRE(post_send(c.client, out) == 0);
    CHECK(event_comes());
    CHECK_FALSE(event_comes()); // once
    REQUIRE(ibv_req_notify_cq(c.server->recv_cq, 1) == 0);
    REQUIRE(post_send(c.client, out) == 0);
    CHECK_FALSE(event_comes());
    REQUIRE(post_send(c.client, out, IBV_WR_SEND, IBV_SEND_SIGNALED | IBV_SEND_SOLICITED) == 0);
    CHECK(event_comes());
    CHECK(fake::unacked(which) == 2);
    ibv_ack_cq_events(which, 2);
    CHECK(fake::unacked(which) == 0);
}

TEST_CASE("a completion can come in while the CQ is being armed, without an event")
{
    clean_world world;
    connection c{devices[0]};
    ibv_wc put{};
    put.wr_id = 77;
    fake::complete_while_arming(c.client->send_cq, put);
    ibv_wc wc{};
    CHECK(poll_one(c.client->send_cq, wc) == 0);
    REQUIRE(ibv_req_notify_cq(c.client->send_cq, 0) == 0);
    REQUIRE(fcntl(c.client->send_cq_channel->fd, F_SETFL, O_NONBLOCK) == 0);
    ibv_cq* which = nullptr;
    void* context = nullptr;
    CHECK((ibv_get_cq_event(c.client->send_cq_channel, &which, &context) == -1 && errno == EAGAIN));
    REQUIRE(poll_one(c.client->send_cq, wc) == 1);
    CHECK(wc.wr_id == 77);
}

TEST_CASE("a full CQ loses completions, and says so once")
{
    clean_world world;
    auto* const cq = ibv_create_cq(fake::rxe_context(), 2, nullptr, nullptr, 0);
    for (int i = 0; i < 4; ++i) fake::push_completion(cq, ibv_wc{});
    ibv_wc wc[4];
    CHECK(ibv_poll_cq(cq, 4, wc) == 2);
    ibv_async_event event{};
    REQUIRE(ibv_get_async_event(fake::rxe_context(), &event) == 0);
    CHECK((event.event_type == IBV_EVENT_CQ_ERR && event.element.cq == cq));
    ibv_ack_async_event(&event);
    CHECK(ibv_destroy_cq(cq) == 0);
}

TEST_CASE("a shared receive queue, and its limit")
{
    clean_world world;
    auto* const channel = rdma_create_event_channel();
    auto* const listener = make_listener(channel, v4("10.77.1.1", 7471));
    auto* const client = make_client(channel, v4("10.77.1.1", 7471));
    give_qp(client);
    REQUIRE(rdma_connect(client, nullptr) == 0);
    rdma_cm_id* server = nullptr;
    {
        event const asked{channel};
        server = asked->id;
    }
    ibv_srq_init_attr attr{};
    attr.attr.max_wr = 4;
    attr.attr.max_sge = 1;
    REQUIRE(rdma_create_srq(server, nullptr, &attr) == 0);
    give_qp(server);
    CHECK(server->qp->srq == server->srq);
    CHECK(ibv_destroy_srq(server->srq) == EBUSY);
    REQUIRE(rdma_accept(server, nullptr) == 0);
    expect(channel, RDMA_CM_EVENT_ESTABLISHED);
    expect(channel, RDMA_CM_EVENT_ESTABLISHED);
    {
        region out{client, 8}, in{server, 8};
        ibv_srq_attr limit{};
        REQUIRE(rdma_post_recv(server, nullptr, in.memory.data(), in.memory.size(), in.mr) == 0);
        REQUIRE(rdma_post_recv(server, nullptr, in.memory.data(), in.memory.size(), in.mr) == 0);
        limit.srq_limit = 2;
        REQUIRE(ibv_modify_srq(server->srq, &limit, IBV_SRQ_LIMIT) == 0);
        REQUIRE(post_send(client, out) == 0);
        ibv_async_event event{};
        REQUIRE(ibv_get_async_event(server->verbs, &event) == 0);
        CHECK((event.event_type == IBV_EVENT_SRQ_LIMIT_REACHED && event.element.srq == server->srq));
        ibv_ack_async_event(&event);
        ibv_wc wc{};
        CHECK(poll_one(server->recv_cq, wc) == 1);
    }
    rdma_destroy_qp(server);
    rdma_destroy_srq(server);
    drop(server);
    drop(client);
    drop(listener);
    rdma_destroy_event_channel(channel);
    world.messy(); // the EBUSY above
    CHECK(fake::leaks() == "");
}

TEST_CASE("datagrams and multicast")
{
    clean_world world;
    auto* const channel = rdma_create_event_channel();
    auto* const a = make_id(channel, RDMA_PS_UDP);
    auto* const b = make_id(channel, RDMA_PS_UDP);
    for (auto* id : {a, b}) {
        auto at = v4("10.77.1.1");
        REQUIRE(rdma_bind_addr(id, &at.raw) == 0);
        give_qp(id, IBV_QPT_UD);
    }
    auto group = v4("239.1.1.1");
    int mark = 0;
    ibv_ah_attr where{};
    REQUIRE(rdma_join_multicast(b, &group.raw, &mark) == 0);
    {
        event joined{channel};
        CHECK(joined->event == RDMA_CM_EVENT_MULTICAST_JOIN);
        CHECK(joined->param.ud.private_data == &mark);
        CHECK(joined->param.ud.qp_num == 0xffffff);
        where = joined->param.ud.ah_attr;
        CHECK((rdma_leave_multicast(b, &group.raw) == -1 && errno == EDEADLK)); // its event is held
    }
    CHECK(ibv_destroy_qp(b->qp) == EBUSY); // attached by the get
    {
        region out{a, 8}, in{b, 8 + 40};
        out.put("to all");
        REQUIRE(post_recv(b, in) == 0);
        auto* const ah = ibv_create_ah(a->pd, &where);
        REQUIRE(ah != nullptr);
        REQUIRE(rdma_post_ud_send(a, nullptr, out.memory.data(), out.memory.size(), out.mr, IBV_SEND_SIGNALED, ah, 0xffffff) == 0);
        ibv_wc wc{};
        REQUIRE(poll_one(b->recv_cq, wc) == 1);
        CHECK((wc.byte_len == 48 && (wc.wc_flags & IBV_WC_GRH) != 0 && wc.src_qp == a->qp->qp_num));
        CHECK(std::string{in.memory.data() + 40} == "to all");
        ibv_grh grh{};
        std::memcpy(&grh, in.memory.data(), sizeof grh);
        auto* const back = ibv_create_ah_from_wc(b->pd, &wc, &grh, 1);
        REQUIRE(back != nullptr);
        REQUIRE(post_recv(a, out) == 0); // too small for the 40 bytes in front
        REQUIRE(rdma_post_ud_send(b, nullptr, in.memory.data(), 8, in.mr, 0, back, a->qp->qp_num) == 0);
        REQUIRE(poll_one(a->recv_cq, wc) == 1);
        CHECK(wc.status == IBV_WC_LOC_LEN_ERR);
        CHECK(ibv_destroy_ah(back) == 0);
        CHECK(ibv_destroy_ah(ah) == 0);
    }
    CHECK(rdma_leave_multicast(b, &group.raw) == 0);
    CHECK((rdma_leave_multicast(b, &group.raw) == -1 && errno == EADDRNOTAVAIL));
    drop(a);
    drop(b);
    rdma_destroy_event_channel(channel);
    CHECK(fake::leaks() == "");
    world.messy();
}

TEST_CASE("an id destroyed without leaving its group leaks the membership; its attached QP cannot be destroyed")
{
    clean_world world;
    auto* const channel = rdma_create_event_channel();
    auto* const id = make_id(channel, RDMA_PS_UDP);
    auto at = v4("10.77.1.1");
    REQUIRE(rdma_bind_addr(id, &at.raw) == 0);
    give_qp(id, IBV_QPT_UD);
    auto group = v4("239.1.1.1");
    REQUIRE(rdma_join_multicast(id, &group.raw, nullptr) == 0);
    expect(channel, RDMA_CM_EVENT_MULTICAST_JOIN);
    rdma_destroy_qp(id);
    CHECK(id->qp == nullptr); // hidden, and alive
    CHECK(fake::live().qps == 1);
    CHECK(rdma_destroy_id(id) == 0);
    CHECK(fake::live().groups == 1);
    CHECK(mentions(fake::misuse(), "EBUSY"));
    world.messy();
}

TEST_CASE("the extended interfaces: requests by calls, completions by calls")
{
    clean_world world;
    auto* const context = fake::rxe_context();
    auto* const pd = ibv_alloc_pd(context);
    ibv_cq_init_attr_ex cq_attr{};
    cq_attr.cqe = 16;
    cq_attr.wc_flags = IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_IMM;
    auto* const cq = ibv_create_cq_ex(context, &cq_attr);
    REQUIRE(cq != nullptr);
    ibv_qp_init_attr_ex attr{};
    attr.send_cq = attr.recv_cq = ibv_cq_ex_to_cq(cq);
    attr.cap = small_qp().cap;
    attr.qp_type = IBV_QPT_RC;
    attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    attr.pd = pd;
    attr.send_ops_flags = IBV_QP_EX_WITH_SEND_WITH_IMM;
    auto* const a = ibv_create_qp_ex(context, &attr);
    auto* const b = ibv_create_qp_ex(context, &attr);
    REQUIRE((a != nullptr && b != nullptr));
    for (auto const& [qp, peer] : {std::pair{a, b}, std::pair{b, a}}) {
        ibv_qp_attr to{};
        to.port_num = 1;
        to.qp_state = IBV_QPS_INIT;
        REQUIRE(ibv_modify_qp(qp, &to, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0);
        to.qp_state = IBV_QPS_RTR;
        to.dest_qp_num = peer->qp_num;
        CHECK(ibv_modify_qp(qp, &to, IBV_QP_STATE | IBV_QP_DEST_QPN) == EINVAL); // more is needed
        REQUIRE(ibv_modify_qp(qp, &to, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0);
        to.qp_state = IBV_QPS_RTS;
        REQUIRE(ibv_modify_qp(qp, &to, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC) == 0);
    }
    ibv_recv_wr receive{9, nullptr, nullptr, 0}, *bad = nullptr;
    REQUIRE(ibv_post_recv(b, &receive, &bad) == 0);
    auto* const builder = ibv_qp_to_qp_ex(a);
    ibv_wr_start(builder);
    builder->wr_id = 4;
    builder->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_send_imm(builder, htonl(7));
    CHECK(ibv_wr_complete(builder) == 0);

    ibv_poll_cq_attr none{};
    REQUIRE(ibv_start_poll(cq, &none) == 0);
    CHECK((cq->wr_id == 9 && ibv_wc_read_imm_data(cq) == htonl(7)));
    REQUIRE(ibv_next_poll(cq) == 0);
    CHECK((cq->wr_id == 4 && ibv_wc_read_opcode(cq) == IBV_WC_SEND));
    CHECK(ibv_next_poll(cq) == ENOENT);
    ibv_end_poll(cq);
    CHECK(ibv_destroy_qp(a) == 0);
    CHECK(ibv_destroy_qp(b) == 0);
    CHECK(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)) == 0);
    CHECK(ibv_dealloc_pd(pd) == 0);
    CHECK((ibv_create_cq_ex(fake::siw_context(), &cq_attr) == nullptr && errno == EOPNOTSUPP));
}
