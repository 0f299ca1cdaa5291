// SPDX-License-Identifier: MIT
//
// Extended reliable connections: domains, SRQs with a number and a CQ, ids of the types XRC_SEND and XRC_RECV.
#include "support.hpp"

#include <cstdio>
#include <thread>

using namespace selftest;

namespace {

ibv_xrcd* open_domain(ibv_context* on, int fd = -1, int flags = O_CREAT)
{
    ibv_xrcd_init_attr attr{};
    attr.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
    attr.fd = fd;
    attr.oflags = flags;
    return ibv_open_xrcd(on, &attr);
}

ibv_srq_init_attr_ex xrc_srq(ibv_xrcd* domain = nullptr, ibv_cq* cq = nullptr)
{
    ibv_srq_init_attr_ex attr{};
    attr.attr.max_wr = 4;
    attr.attr.max_sge = 1;
    attr.comp_mask = IBV_SRQ_INIT_ATTR_TYPE;
    attr.srq_type = IBV_SRQT_XRC;
    if (domain != nullptr) attr.comp_mask |= IBV_SRQ_INIT_ATTR_XRCD;
    if (cq != nullptr) attr.comp_mask |= IBV_SRQ_INIT_ATTR_CQ;
    attr.xrcd = domain;
    attr.cq = cq;
    return attr;
}

ibv_qp_init_attr half_qp(ibv_qp_type type)
{
    auto attr = small_qp(type);
    if (type == IBV_QPT_XRC_SEND) attr.cap.max_recv_wr = attr.cap.max_recv_sge = 0;
    else attr.cap.max_send_wr = attr.cap.max_send_sge = attr.cap.max_inline_data = 0;
    return attr;
}

rdma_addrinfo* look_up(int flags, int type, char const* port = "7471")
{
    rdma_addrinfo hints{};
    hints.ai_flags = flags | RAI_NUMERICHOST;
    hints.ai_qp_type = type;
    hints.ai_port_space = RDMA_PS_IB;
    rdma_addrinfo* found = nullptr;
    REQUIRE(rdma_getaddrinfo("10.77.1.1", port, &hints, &found) == 0);
    return found;
}

/// Two connected halves, made the synchronous way; the listener keeps a request's QP for it.
struct halves {
    halves()
    {
        auto* const passive = look_up(RAI_PASSIVE, IBV_QPT_XRC_RECV);
        auto attr = half_qp(IBV_QPT_XRC_RECV);
        attr.cap.max_recv_wr = 0; // what it needs is the SRQ's
        REQUIRE(rdma_create_ep(&listener, passive, nullptr, &attr) == 0);
        rdma_freeaddrinfo(passive);
        REQUIRE(rdma_listen(listener, 1) == 0);
        std::thread asks{[this] {
            auto* const active = look_up(0, IBV_QPT_XRC_SEND);
            auto wanted = half_qp(IBV_QPT_XRC_SEND);
            if (rdma_create_ep(&client, active, nullptr, &wanted) == 0) connected = rdma_connect(client, nullptr) == 0;
            rdma_freeaddrinfo(active);
        }};
        REQUIRE(rdma_get_request(listener, &server) == 0);
        ibv_srq_init_attr shared{};
        shared.attr.max_wr = 4;
        shared.attr.max_sge = 1;
        REQUIRE(rdma_create_srq(server, nullptr, &shared) == 0);
        REQUIRE(ibv_get_srq_num(server->srq, &number) == 0);
        rdma_conn_param param = usual_param();
        std::uint32_t const in_order = htonl(number);
        param.private_data = &in_order;
        param.private_data_len = sizeof in_order;
        REQUIRE(rdma_accept(server, &param) == 0);
        asks.join();
        REQUIRE(connected);
    }
    halves(halves const&) = delete;
    halves& operator=(halves const&) = delete;
    ~halves()
    {
        auto* const left = client->send_cq;
        auto* const bell = client->send_cq_channel;
        rdma_destroy_ep(client);
        CHECK(ibv_destroy_cq(left) == 0); // librdmacm forgets it: there is no receive CQ
        CHECK(ibv_destroy_comp_channel(bell) == 0);
        rdma_destroy_ep(server);
        rdma_destroy_ep(listener);
    }
    int send(void* from, std::uint32_t length, ibv_mr const* mr, std::uint32_t to)
    {
        ibv_sge piece{reinterpret_cast<std::uintptr_t>(from), length, mr->lkey};
        ibv_send_wr wr{};
        wr.wr_id = 5;
        wr.sg_list = &piece;
        wr.num_sge = 1;
        wr.opcode = IBV_WR_SEND;
        wr.send_flags = IBV_SEND_SIGNALED;
        wr.qp_type.xrc.remote_srqn = to;
        ibv_send_wr* bad = nullptr;
        return ibv_post_send(client->qp, &wr, &bad);
    }

    rdma_cm_id* listener = nullptr;
    rdma_cm_id* client = nullptr;
    rdma_cm_id* server = nullptr;
    bool connected = false;
    std::uint32_t number = 0;
};

} // namespace

TEST_CASE("without being told so, neither device has XRC")
{
    clean_world world;
    for (auto* context : {fake::rxe_context(), fake::siw_context()}) CHECK((open_domain(context) == nullptr && errno == EOPNOTSUPP));
    auto* const channel = rdma_create_event_channel();
    auto* const id = make_client(channel, v4("10.77.1.1", 7));
    auto attr = xrc_srq();
    CHECK((rdma_create_srq_ex(id, &attr) == -1 && errno == EOPNOTSUPP));
    auto qp = half_qp(IBV_QPT_XRC_SEND);
    CHECK((rdma_create_qp(id, nullptr, &qp) == -1 && errno == EINVAL));
    ibv_device_attr device{};
    REQUIRE(ibv_query_device(id->verbs, &device) == 0);
    CHECK((device.device_cap_flags & IBV_DEVICE_XRC) == 0);
    fake::set_xrc(true);
    REQUIRE(ibv_query_device(id->verbs, &device) == 0);
    CHECK((device.device_cap_flags & IBV_DEVICE_XRC) != 0);
    CHECK((open_domain(fake::siw_context()) == nullptr && errno == EOPNOTSUPP));
    fake::reset(); // forgets it, and all the rest
    CHECK(open_domain(fake::rxe_context()) == nullptr);
}

TEST_CASE("an XRC domain is used by its SRQs and receiving QPs")
{
    clean_world world;
    fake::set_xrc(true);
    auto* const context = fake::rxe_context();
    auto* const pd = ibv_alloc_pd(context);
    auto* const cq = ibv_create_cq(context, 4, nullptr, nullptr, 0);
    auto* const domain = open_domain(context);
    REQUIRE(domain != nullptr);
    CHECK(fake::live().xrcds == 1);
    CHECK(fake::leaks() == "1 CQ(s), 1 PD(s), 1 XRC domain(s)");

    auto wanted = xrc_srq(domain, cq);
    wanted.comp_mask |= IBV_SRQ_INIT_ATTR_PD;
    wanted.pd = pd;
    auto* const srq = ibv_create_srq_ex(context, &wanted);
    REQUIRE(srq != nullptr);
    CHECK(ibv_close_xrcd(domain) == EBUSY);
    CHECK(ibv_destroy_cq(cq) == EBUSY);
    CHECK(ibv_dealloc_pd(pd) == EBUSY);
    CHECK(ibv_destroy_srq(srq) == 0);

    ibv_qp_init_attr_ex half{};
    half.qp_type = IBV_QPT_XRC_RECV;
    half.comp_mask = IBV_QP_INIT_ATTR_XRCD;
    half.xrcd = domain;
    auto* const qp = ibv_create_qp_ex(context, &half);
    REQUIRE(qp != nullptr);
    CHECK(ibv_close_xrcd(domain) == EBUSY);
    ibv_recv_wr receive{};
    ibv_recv_wr* bad_receive = nullptr;
    CHECK(ibv_post_recv(qp, &receive, &bad_receive) == EINVAL); // it has no queues
    ibv_send_wr send{};
    ibv_send_wr* bad_send = nullptr;
    CHECK(ibv_post_send(qp, &send, &bad_send) == EINVAL);
    CHECK(ibv_destroy_qp(qp) == 0);

    auto one_half = half_qp(IBV_QPT_XRC_SEND);
    one_half.send_cq = cq;
    auto* const sender = ibv_create_qp(pd, &one_half);
    REQUIRE(sender != nullptr);
    CHECK(ibv_post_recv(sender, &receive, &bad_receive) == EINVAL);
    CHECK(ibv_destroy_cq(cq) == EBUSY);
    CHECK(ibv_destroy_qp(sender) == 0);
    CHECK(ibv_destroy_cq(cq) == 0);
    CHECK(ibv_close_xrcd(domain) == 0);
    CHECK(errno == EUCLEAN);
    CHECK(ibv_dealloc_pd(pd) == 0);
    CHECK(fake::misuse().size() == 5);
    CHECK(fake::leaks() == "");
    world.messy();
}

TEST_CASE("a file makes one XRC domain of many")
{
    clean_world world;
    fake::set_xrc(true);
    std::FILE* const file = std::tmpfile();
    REQUIRE(file != nullptr);
    int const fd = fileno(file);
    CHECK((open_domain(fake::rxe_context(), fd, 0) == nullptr && errno == EAGAIN));
    CHECK((open_domain(fake::rxe_context(), 12345) == nullptr && errno == EBADF));
    auto* const first = open_domain(fake::rxe_context(), fd);
    auto* const second = open_domain(fake::rxe_context(), fd, 0);
    CHECK((first != nullptr && second != nullptr && first != second));
    CHECK((open_domain(fake::rxe_context(), fd, O_CREAT | O_EXCL) == nullptr && errno == EINVAL));
    ibv_xrcd_init_attr incomplete{};
    incomplete.comp_mask = IBV_XRCD_INIT_ATTR_FD;
    CHECK((ibv_open_xrcd(fake::rxe_context(), &incomplete) == nullptr && errno == EINVAL));
    CHECK(ibv_close_xrcd(first) == 0);
    CHECK(ibv_close_xrcd(second) == 0);
    std::fclose(file);
}

TEST_CASE("two halves of an XRC connection, and a message into the SRQ that is named")
{
    clean_world world;
    fake::set_xrc(true);
    fake::set_timewait(false);
    {
        halves h;
        CHECK(fake::live().default_xrcds == 1);
        std::uint32_t told = 0;
        std::memcpy(&told, h.client->event->param.conn.private_data, sizeof told);
        CHECK(ntohl(told) == h.number);
        CHECK(h.client->qp->state == IBV_QPS_RTS);
        CHECK(h.server->qp->state == IBV_QPS_RTS);
        CHECK((h.client->recv_cq == nullptr && h.client->send_cq != nullptr));
        CHECK(h.server->recv_cq != nullptr); // of the SRQ

        char out[8] = "message", in[8]{};
        auto* const from = rdma_reg_msgs(h.client, out, sizeof out);
        auto* const into = rdma_reg_msgs(h.server, in, sizeof in);
        int context = 0;
        CHECK(rdma_post_recv(h.server, &context, in, sizeof in, into) == 0);
        CHECK(h.send(out, sizeof out, from, h.number) == 0);
        ibv_wc wc{};
        CHECK(rdma_get_recv_comp(h.server, &wc) == 1);
        CHECK((wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RECV && wc.byte_len == sizeof out));
        CHECK(wc.wr_id == reinterpret_cast<std::uintptr_t>(&context));
        CHECK(wc.qp_num == h.server->qp->qp_num);
        CHECK(std::string{in} == "message");
        CHECK(rdma_get_send_comp(h.client, &wc) == 1);
        CHECK((wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_SEND && wc.wr_id == 5));

        auto* const other = open_domain(h.client->verbs);
        auto* const cq = ibv_create_cq(h.client->verbs, 4, nullptr, nullptr, 0);
        auto wanted = xrc_srq(other, cq);
        wanted.comp_mask |= IBV_SRQ_INIT_ATTR_PD;
        wanted.pd = h.client->pd;
        auto* const foreign = ibv_create_srq_ex(h.client->verbs, &wanted);
        std::uint32_t number = 0;
        REQUIRE(ibv_get_srq_num(foreign, &number) == 0);
        CHECK(number != h.number);
        CHECK(h.send(out, sizeof out, from, number) == 0); // no SRQ of the receiving QP's domain
        REQUIRE(ibv_poll_cq(h.client->send_cq, 1, &wc) == 1);
        CHECK(wc.status == IBV_WC_REM_INV_REQ_ERR);
        CHECK(h.client->qp->state == IBV_QPS_ERR);
        CHECK(ibv_destroy_srq(foreign) == 0);
        CHECK(ibv_destroy_cq(cq) == 0);
        CHECK(ibv_close_xrcd(other) == 0);
        CHECK(rdma_dereg_mr(from) == 0);
        CHECK(rdma_dereg_mr(into) == 0);
    }
    CHECK(fake::live().default_xrcds == 0);
}

TEST_CASE("the CQs of an XRC_RECV id stay with its SRQ; a second one is made over the first")
{
    clean_world world;
    fake::set_xrc(true);
    auto* const info = look_up(RAI_PASSIVE, IBV_QPT_XRC_RECV);
    rdma_cm_id* id = nullptr;
    REQUIRE(rdma_create_ep(&id, info, nullptr, nullptr) == 0);
    rdma_freeaddrinfo(info);
    auto attr = half_qp(IBV_QPT_XRC_RECV); // with room for receives: a CQ is made for it
    REQUIRE(rdma_create_qp(id, nullptr, &attr) == 0);
    auto* const first = id->recv_cq;
    auto* const first_bell = id->recv_cq_channel;
    REQUIRE(first != nullptr);
    ibv_srq_init_attr shared{};
    shared.attr.max_wr = shared.attr.max_sge = 1;
    REQUIRE(rdma_create_srq(id, nullptr, &shared) == 0);
    CHECK(id->recv_cq != first); // which librdmacm has now lost
    rdma_destroy_qp(id);
    CHECK(id->recv_cq != nullptr);
    rdma_destroy_srq(id);
    CHECK((id->recv_cq == nullptr && id->srq == nullptr));
    CHECK(fake::live().cqs == 1);
    CHECK(ibv_destroy_cq(first) == 0);
    CHECK(ibv_destroy_comp_channel(first_bell) == 0);
    rdma_destroy_ep(id);
}

TEST_CASE("an SRQ of the program's own domain and CQ; the default domain is closed with the last id")
{
    clean_world world;
    fake::set_xrc(true);
    auto* const channel = rdma_create_event_channel();
    auto* const id = make_client(channel, v4("10.77.1.1", 7), RDMA_PS_IB);
    auto* const domain = open_domain(id->verbs);
    auto* const cq = ibv_create_cq(id->verbs, 4, nullptr, nullptr, 0);
    auto attr = xrc_srq(domain, cq);
    REQUIRE(rdma_create_srq_ex(id, &attr) == 0);
    CHECK(id->recv_cq == nullptr);
    CHECK(fake::live().default_xrcds == 0);
    rdma_destroy_srq(id);
    attr = xrc_srq(nullptr, cq);
    REQUIRE(rdma_create_srq_ex(id, &attr) == 0);
    CHECK(attr.xrcd != nullptr);
    CHECK(fake::live().default_xrcds == 1);
    auto* const srq = id->srq;
    drop(id);
    CHECK(mentions(fake::misuse(), "EBUSY for the default XRC domain"));
    CHECK(ibv_destroy_srq(srq) == 0);
    CHECK(ibv_destroy_cq(cq) == 0);
    CHECK(ibv_close_xrcd(domain) == 0);
    rdma_destroy_event_channel(channel);
    world.messy();
}

TEST_CASE("in RDMA_PS_IB the halves of a connection must fit")
{
    clean_world world;
    fake::set_xrc(true);
    fake::set_timewait(false);
    auto* const channel = rdma_create_event_channel();
    auto* const listener = make_listener(channel, v4("10.77.1.1", 7471), RDMA_PS_IB); // RC
    auto* const info = look_up(0, IBV_QPT_XRC_SEND);
    rdma_cm_id* sender = nullptr;
    REQUIRE(rdma_create_ep(&sender, info, nullptr, nullptr) == 0);
    rdma_freeaddrinfo(info);
    auto param = usual_param();
    CHECK((rdma_connect(sender, &param) == -1 && errno == ECONNREFUSED));
    rdma_destroy_ep(sender);
    auto* const client = make_client(channel, v4("10.77.1.1", 7471), RDMA_PS_IB);
    give_qp(client);
    REQUIRE(rdma_connect(client, nullptr) == 0);
    auto* const server = take_request(channel);
    REQUIRE(rdma_accept(server, nullptr) == 0);
    expect(channel, RDMA_CM_EVENT_ESTABLISHED);
    expect(channel, RDMA_CM_EVENT_ESTABLISHED);
    for (auto* id : {client, server, listener}) drop(id);
    rdma_destroy_event_channel(channel);
}

TEST_CASE("faults in making an XRC SRQ leave nothing")
{
    clean_world world;
    fake::set_xrc(true);
    auto* const channel = rdma_create_event_channel();
    auto* const id = make_client(channel, v4("10.77.1.1", 7), RDMA_PS_IB);
    fake::fail("ibv_open_xrcd", 1, EMFILE);
    CHECK((open_domain(id->verbs) == nullptr && errno == EMFILE));
    fake::fail("rdma_create_srq_ex", 1, ENOMEM);
    auto attr = xrc_srq();
    CHECK((rdma_create_srq_ex(id, &attr) == -1 && errno == ENOMEM));
    attr.attr.max_wr = 0;
    CHECK(rdma_create_srq_ex(id, &attr) == -1);
    CHECK((id->recv_cq == nullptr && fake::live().cqs == 0));
    attr = xrc_srq();
    attr.comp_mask = 0;
    CHECK((rdma_create_srq_ex(id, &attr) == -1 && errno == EINVAL));
    attr.comp_mask = IBV_SRQ_INIT_ATTR_TYPE;
    attr.srq_type = IBV_SRQT_TM;
    CHECK((rdma_create_srq_ex(id, &attr) == -1 && errno == EOPNOTSUPP));
    drop(id);
    rdma_destroy_event_channel(channel);
}
