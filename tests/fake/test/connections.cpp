// SPDX-License-Identifier: MIT
//
// Connections: both transports, both ends, every way to begin and to end one.
#include "support.hpp"

#include <atomic>
#include <csignal>
#include <thread>

#include <pthread.h>

using namespace selftest;

TEST_CASE("a connection is made, used by neither, and ended by the client")
{
    for (auto const& on : devices) {
        INFO(on.name);
        clean_world world;
        connection c{on};
        CHECK(c.client->qp->state == IBV_QPS_RTS);
        CHECK(c.server->qp->state == IBV_QPS_RTS);
        CHECK(rdma_disconnect(c.client) == 0);
        expect(c.client_channel, RDMA_CM_EVENT_DISCONNECTED);
        expect(c.server_channel, RDMA_CM_EVENT_DISCONNECTED);
        CHECK(c.client->qp->state == IBV_QPS_ERR);
        if (!on.iwarp) {
            expect(c.client_channel, RDMA_CM_EVENT_TIMEWAIT_EXIT);
            expect(c.server_channel, RDMA_CM_EVENT_TIMEWAIT_EXIT);
        }
        CHECK(rdma_disconnect(c.server) == 0); // the second says nothing more
        CHECK(is_empty(c.client_channel));
        CHECK(is_empty(c.server_channel));
    }
}

TEST_CASE("dropping an id tells its peer, even with an event of the id held")
{
    for (auto const& on : devices) {
        INFO(on.name);
        clean_world world;
        fake::set_timewait(false);
        connection c{on};
        drop(c.server);
        c.server = nullptr;
        expect(c.client_channel, RDMA_CM_EVENT_DISCONNECTED);
        CHECK(is_empty(c.client_channel));
        CHECK(is_empty(c.server_channel));
    }
}

TEST_CASE("on RoCE the passive side is established when the active side has got its answer")
{
    clean_world world;
    auto* const server_channel = rdma_create_event_channel();
    auto* const client_channel = rdma_create_event_channel();
    auto* const listener = make_listener(server_channel, v6("::", 7471));
    auto* const client = make_client(client_channel, v4("10.77.1.2", 7471));
    give_qp(client);
    auto param = usual_param();
    REQUIRE(rdma_connect(client, &param) == 0);
    auto* const server = take_request(server_channel);
    REQUIRE(rdma_accept(server, nullptr) == 0);
    CHECK(is_empty(server_channel));
    CHECK(client->qp->state == IBV_QPS_INIT);
    expect(client_channel, RDMA_CM_EVENT_ESTABLISHED);
    CHECK(client->qp->state == IBV_QPS_RTS);
    expect(server_channel, RDMA_CM_EVENT_ESTABLISHED);
    drop(client);
    drop(server);
    drop(listener);
    rdma_destroy_event_channel(server_channel);
    rdma_destroy_event_channel(client_channel);
}

TEST_CASE("data that comes first establishes the passive side through rdma_notify")
{
    clean_world world;
    auto* const channel = rdma_create_event_channel();
    auto* const listener = make_listener(channel, v4("10.77.1.1", 7471));
    auto* const client_channel = rdma_create_event_channel();
    auto* const client = make_client(client_channel, v4("10.77.1.1", 7471));
    give_qp(client);
    REQUIRE(rdma_connect(client, nullptr) == 0);
    auto* const server = take_request(channel);
    REQUIRE(rdma_accept(server, nullptr) == 0);
    CHECK(rdma_notify(server, IBV_EVENT_COMM_EST) == 0);
    expect(channel, RDMA_CM_EVENT_ESTABLISHED);
    CHECK((rdma_notify(server, IBV_EVENT_COMM_EST) == -1 && errno == EISCONN));
    expect(client_channel, RDMA_CM_EVENT_ESTABLISHED);
    CHECK(is_empty(channel)); // once
    for (auto* id : {client, server, listener}) drop(id);
    rdma_destroy_event_channel(client_channel);
    rdma_destroy_event_channel(channel);
}

TEST_CASE("private data: padded and limited on RoCE, exact on iWARP")
{
    for (auto const& on : devices) {
        INFO(on.name);
        clean_world world;
        fake::set_timewait(false);
        auto* const channel = rdma_create_event_channel();
        auto* const listener = make_listener(channel, v4(on.server, 7471));
        auto* const client = make_client(channel, v4(on.server, 7471));
        give_qp(client);
        std::array<char, 256> const text{"abc"};
        auto param = usual_param();
        param.private_data = text.data();
        if (!on.iwarp) {
            param.private_data_len = 57;
            CHECK((rdma_connect(client, &param) == -1 && errno == EINVAL));
        }
        param.private_data_len = 5;
        REQUIRE(rdma_connect(client, &param) == 0);
        rdma_cm_id* server = nullptr;
        {
            event const asked{channel};
            server = asked->id;
            CHECK(asked->param.conn.private_data_len == (on.iwarp ? 5 : 56));
            CHECK(std::strcmp(static_cast<char const*>(asked->param.conn.private_data), "abc") == 0);
        }
        give_qp(server);
        REQUIRE(rdma_accept(server, &param) == 0);
        {
            event const answered{channel};
            REQUIRE(answered->event == RDMA_CM_EVENT_ESTABLISHED);
            CHECK(answered->param.conn.private_data_len == (on.iwarp ? 5 : 196));
        }
        expect(channel, RDMA_CM_EVENT_ESTABLISHED);
        for (auto* id : {client, server, listener}) drop(id);
        rdma_destroy_event_channel(channel);
    }
}

TEST_CASE("too much private data in an accept fails, and rejects")
{
    clean_world world;
    auto* const channel = rdma_create_event_channel();
    auto* const listener = make_listener(channel, v4("10.77.1.1", 7471));
    auto* const client = make_client(channel, v4("10.77.1.1", 7471));
    give_qp(client);
    REQUIRE(rdma_connect(client, nullptr) == 0);
    auto* const server = take_request(channel);
    std::array<char, 256> const text{};
    auto param = usual_param();
    param.private_data = text.data();
    param.private_data_len = 197;
    CHECK((rdma_accept(server, &param) == -1 && errno == EINVAL));
    CHECK(server->qp->state == IBV_QPS_ERR);
    expect(channel, RDMA_CM_EVENT_REJECTED, 28);
    for (auto* id : {client, server, listener}) drop(id);
    rdma_destroy_event_channel(channel);
}

TEST_CASE("252 bytes are too many for iWARP's handshake")
{
    clean_world world;
    auto* const channel = rdma_create_event_channel();
    auto* const listener = make_listener(channel, v4("10.77.2.1", 7471));
    std::array<char, 256> const text{};
    auto param = usual_param();
    param.private_data = text.data();
    param.private_data_len = 252;

    auto* const lost = make_client(channel, v4("10.77.2.1", 7471));
    give_qp(lost);
    REQUIRE(rdma_connect(lost, &param) == 0);
    expect(channel, RDMA_CM_EVENT_REJECTED, -ECONNRESET); // and no request
    CHECK(is_empty(channel));

    auto* const client = make_client(channel, v4("10.77.2.1", 7471));
    give_qp(client);
    REQUIRE(rdma_connect(client, nullptr) == 0);
    auto* const server = take_request(channel);
    REQUIRE(rdma_accept(server, &param) == 0);
    expect(channel, RDMA_CM_EVENT_REJECTED, -ECONNRESET); // the client
    expect(channel, RDMA_CM_EVENT_ESTABLISHED);           // the server
    for (auto* id : {lost, client, server, listener}) drop(id);
    rdma_destroy_event_channel(channel);
}

TEST_CASE("rejecting: by call, by destroying the request, by destroying the listener")
{
    enum class way { call, request, listener };
    for (auto const& on : devices)
        for (way const how : {way::call, way::request, way::listener}) {
            INFO(on.name << " way " << static_cast<int>(how));
            clean_world world;
            auto* const server_channel = rdma_create_event_channel();
            auto* const client_channel = rdma_create_event_channel();
            auto* const listener = make_listener(server_channel, v4(on.server, 7471));
            auto* const client = make_client(client_channel, v4(on.server, 7471));
            give_qp(client);
            REQUIRE(rdma_connect(client, nullptr) == 0);
            if (how != way::listener) {
                event const asked{server_channel};
                if (how == way::call) {
                    CHECK(rdma_reject(asked->id, "no", 2) == 0);
                    CHECK((rdma_reject(asked->id, "no", 2) == -1 && errno == EINVAL));
                }
                drop(asked->id);
            }
            drop(listener);
            {
                event const answer{client_channel};
                CHECK(answer->event == RDMA_CM_EVENT_REJECTED);
                CHECK(answer->status == (on.iwarp ? -ECONNRESET : 28));
                auto const length = on.iwarp ? (how == way::call ? 2 : 0) : 148;
                CHECK(answer->param.conn.private_data_len == length);
                CHECK((answer->param.conn.private_data == nullptr) == (length == 0));
                if (how == way::call) CHECK(std::memcmp(answer->param.conn.private_data, "no", 2) == 0);
            }
            CHECK(client->qp->state == IBV_QPS_ERR);
            drop(client);
            rdma_destroy_event_channel(server_channel);
            rdma_destroy_event_channel(client_channel);
        }
}

TEST_CASE("nobody listens: an event on RoCE, an error of the call on iWARP")
{
    clean_world world;
    auto* const channel = rdma_create_event_channel();
    auto* const rxe = make_client(channel, v4("10.77.1.1", 9));
    give_qp(rxe);
    CHECK(rdma_connect(rxe, nullptr) == 0);
    expect(channel, RDMA_CM_EVENT_REJECTED, 8);
    auto* const siw = make_client(channel, v4("10.77.2.1", 9));
    give_qp(siw);
    CHECK((rdma_connect(siw, nullptr) == -1 && errno == ECONNREFUSED));
    CHECK(is_empty(channel));
    drop(rxe);
    drop(siw);
    rdma_destroy_event_channel(channel);
}

TEST_CASE("an accept without a QP: RoCE takes it, iWARP does not")
{
    for (auto const& on : devices) {
        INFO(on.name);
        clean_world world;
        auto* const channel = rdma_create_event_channel();
        auto* const listener = make_listener(channel, v4(on.server, 7471));
        auto* const client = make_client(channel, v4(on.server, 7471));
        give_qp(client);
        REQUIRE(rdma_connect(client, nullptr) == 0);
        rdma_cm_id* server = nullptr;
        {
            event const asked{channel};
            server = asked->id;
        }
        auto param = usual_param();
        param.qp_num = 0xfffff0; // names none
        int const result = rdma_accept(server, &param);
        CHECK(result == (on.iwarp ? -1 : 0));
        if (on.iwarp) CHECK(errno == EINVAL);
        expect(channel, on.iwarp ? RDMA_CM_EVENT_REJECTED : RDMA_CM_EVENT_ESTABLISHED, on.iwarp ? -ECONNRESET : 0);
        for (auto* id : {client, server, listener}) drop(id);
        rdma_destroy_event_channel(channel);
    }
}

TEST_CASE("a client that has gone makes the accept fail")
{
    clean_world world;
    auto* const channel = rdma_create_event_channel();
    auto* const listener = make_listener(channel, v4("10.77.1.1", 7471));
    auto* const client = make_client(channel, v4("10.77.1.1", 7471));
    give_qp(client);
    REQUIRE(rdma_connect(client, nullptr) == 0);
    auto* const server = take_request(channel);
    drop(client);
    CHECK(rdma_accept(server, nullptr) == -1);
    CHECK(server->qp->state == IBV_QPS_ERR);
    CHECK(is_empty(channel));
    drop(server);
    drop(listener);
    rdma_destroy_event_channel(channel);
}

TEST_CASE("a full backlog turns clients away")
{
    clean_world world;
    auto* const server_channel = rdma_create_event_channel();
    auto* const channel = rdma_create_event_channel();
    auto* const listener = make_listener(server_channel, v4("10.77.1.1", 7471), RDMA_PS_TCP, 1);
    auto* const first = make_client(channel, v4("10.77.1.1", 7471));
    auto* const second = make_client(channel, v4("10.77.1.1", 7471));
    give_qp(first);
    give_qp(second);
    REQUIRE(rdma_connect(first, nullptr) == 0);
    REQUIRE(rdma_connect(second, nullptr) == 0);
    expect(channel, RDMA_CM_EVENT_REJECTED, 28);
    CHECK(fake::queued(server_channel) == 1);
    for (auto* id : {first, second, listener}) drop(id);
    rdma_destroy_event_channel(server_channel);
    rdma_destroy_event_channel(channel);
}

TEST_CASE("a connection whose QPs are the program's own")
{
    clean_world world;
    auto* const server_channel = rdma_create_event_channel();
    auto* const channel = rdma_create_event_channel();
    auto* const listener = make_listener(server_channel, v4("10.77.1.1", 7471));
    auto* const client = make_client(channel, v4("10.77.1.1", 7471));
    auto* const cq = ibv_create_cq(client->verbs, 16, nullptr, nullptr, 0);
    auto attr = small_qp();
    attr.send_cq = attr.recv_cq = cq;
    auto* const qp = ibv_create_qp(client->pd, &attr);
    auto* const peer_qp = ibv_create_qp(client->pd, &attr);
    auto const bring = [](rdma_cm_id* id, ibv_qp* which, ibv_qp_state to) {
        ibv_qp_attr wanted;
        wanted.qp_state = to;
        int mask = 0;
        REQUIRE(rdma_init_qp_attr(id, &wanted, &mask) == 0);
        REQUIRE(ibv_modify_qp(which, &wanted, mask) == 0);
    };
    bring(client, qp, IBV_QPS_INIT);
    auto param = usual_param();
    param.qp_num = qp->qp_num;
    REQUIRE(rdma_connect(client, &param) == 0);
    rdma_cm_id* server = nullptr;
    {
        event const asked{server_channel};
        server = asked->id;
        CHECK(asked->param.conn.qp_num == qp->qp_num);
    }
    for (auto state : {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS}) bring(server, peer_qp, state);
    param.qp_num = peer_qp->qp_num;
    REQUIRE(rdma_accept(server, &param) == 0);
    expect(channel, RDMA_CM_EVENT_CONNECT_RESPONSE);
    for (auto state : {IBV_QPS_RTR, IBV_QPS_RTS}) bring(client, qp, state);
    CHECK(rdma_establish(client) == 0);
    expect(server_channel, RDMA_CM_EVENT_ESTABLISHED);
    CHECK((rdma_establish(client) == -1 && errno == EINVAL));
    CHECK(rdma_disconnect(client) == 0);
    CHECK(qp->state == IBV_QPS_RTS); // not librdmacm's to touch
    CHECK(ibv_destroy_qp(qp) == 0);
    CHECK(ibv_destroy_qp(peer_qp) == 0);
    CHECK(ibv_destroy_cq(cq) == 0);
    for (auto* id : {client, server, listener}) drop(id);
    rdma_destroy_event_channel(server_channel);
    rdma_destroy_event_channel(channel);
}

TEST_CASE("on iWARP, QPs of the program's own are known by their numbers, and brought up by the device")
{
    clean_world world;
    auto* const channel = rdma_create_event_channel();
    auto* const listener = make_listener(channel, v4("10.77.2.1", 7471));
    auto* const client = make_client(channel, v4("10.77.2.1", 7471));
    auto* const cq = ibv_create_cq(client->verbs, 16, nullptr, nullptr, 0);
    auto attr = small_qp();
    attr.send_cq = attr.recv_cq = cq;
    auto* const qp = ibv_create_qp(client->pd, &attr);
    auto* const peer_qp = ibv_create_qp(client->pd, &attr);
    auto param = usual_param();
    param.qp_num = 0xfffff0;
    CHECK((rdma_connect(client, &param) == -1 && errno == EINVAL));
    param.qp_num = qp->qp_num;
    REQUIRE(rdma_connect(client, &param) == 0);
    rdma_cm_id* server = nullptr;
    {
        event const asked{channel};
        server = asked->id;
    }
    for (auto const state : {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS}) { // does no harm
        ibv_qp_attr wanted{};
        wanted.qp_state = state;
        int mask = 0;
        REQUIRE(rdma_init_qp_attr(server, &wanted, &mask) == 0);
        REQUIRE(ibv_modify_qp(peer_qp, &wanted, mask) == 0);
    }
    param.qp_num = peer_qp->qp_num;
    REQUIRE(rdma_accept(server, &param) == 0);
    expect(channel, RDMA_CM_EVENT_ESTABLISHED);
    expect(channel, RDMA_CM_EVENT_ESTABLISHED);
    CHECK((qp->state == IBV_QPS_RTS && peer_qp->state == IBV_QPS_RTS));
    CHECK((rdma_establish(client) == -1 && errno == EINVAL));
    CHECK(rdma_disconnect(client) == 0);
    CHECK(qp->state == IBV_QPS_ERR);
    CHECK(ibv_destroy_qp(qp) == 0);
    CHECK(ibv_destroy_qp(peer_qp) == 0);
    CHECK(ibv_destroy_cq(cq) == 0);
    for (auto* id : {client, server, listener}) drop(id);
    rdma_destroy_event_channel(channel);
}

TEST_CASE("a request pushed by the test is accepted by an agreeable peer")
{
    clean_world world;
    fake::set_timewait(false);
    auto* const channel = rdma_create_event_channel();
    auto* const listener = make_listener(channel, v4("0.0.0.0", 7471));
    fake::push_request(listener);
    auto* const server = take_request(channel);
    CHECK(rdma_accept(server, nullptr) == 0);
    expect(channel, RDMA_CM_EVENT_ESTABLISHED);
    CHECK(rdma_disconnect(server) == 0);
    expect(channel, RDMA_CM_EVENT_DISCONNECTED);
    drop(server);
    drop(listener);
    rdma_destroy_event_channel(channel);
}

TEST_CASE("datagrams resolve a QP by a connect")
{
    clean_world world;
    auto* const server_channel = rdma_create_event_channel();
    auto* const channel = rdma_create_event_channel();
    auto* const listener = make_listener(server_channel, v4("10.77.1.1", 7174), RDMA_PS_UDP);
    auto* const client = make_client(channel, v4("10.77.1.1", 7174), RDMA_PS_UDP);
    give_qp(client, IBV_QPT_UD);
    CHECK(client->qp->state == IBV_QPS_RTS);
    REQUIRE(rdma_connect(client, nullptr) == 0);
    rdma_cm_id* server = nullptr;
    {
        event const asked{server_channel};
        server = asked->id;
        CHECK(asked->param.ud.private_data_len == 180);
    }
    give_qp(server, IBV_QPT_UD);
    auto param = usual_param();
    param.qp_num = server->qp->qp_num;
    REQUIRE(rdma_accept(server, &param) == 0);
    CHECK(is_empty(server_channel)); // the passive side hears nothing
    {
        event const answer{channel};
        CHECK(answer->event == RDMA_CM_EVENT_ESTABLISHED);
        CHECK(answer->param.ud.qp_num == server->qp->qp_num);
        CHECK(answer->param.ud.qkey == RDMA_UDP_QKEY);
        CHECK(answer->param.ud.private_data_len == 136);
        CHECK(answer->param.ud.ah_attr.is_global == 1);
    }
    for (auto* id : {client, server, listener}) drop(id);
    rdma_destroy_event_channel(server_channel);
    rdma_destroy_event_channel(channel);
}

TEST_CASE("synchronous ids park their last event")
{
    clean_world world;
    rdma_addrinfo hints{};
    hints.ai_flags = RAI_PASSIVE | RAI_NUMERICHOST;
    rdma_addrinfo* info = nullptr;
    REQUIRE(rdma_getaddrinfo("10.77.1.1", "7471", &hints, &info) == 0);
    auto attr = small_qp();
    rdma_cm_id* listener = nullptr;
    REQUIRE(rdma_create_ep(&listener, info, nullptr, &attr) == 0);
    rdma_freeaddrinfo(info);
    REQUIRE(rdma_listen(listener, 1) == 0);

    std::thread client{[] {
        rdma_addrinfo wanted{};
        wanted.ai_flags = RAI_NUMERICHOST;
        rdma_addrinfo* to = nullptr;
        rdma_getaddrinfo("10.77.1.1", "7471", &wanted, &to);
        auto qp_attr = small_qp();
        rdma_cm_id* id = nullptr;
        if (rdma_create_ep(&id, to, nullptr, &qp_attr) == 0) {
            rdma_connect(id, nullptr);
            rdma_disconnect(id);
            rdma_destroy_ep(id);
        }
        rdma_freeaddrinfo(to);
    }};
    rdma_cm_id* server = nullptr;
    REQUIRE(rdma_get_request(listener, &server) == 0);
    CHECK(server->event->event == RDMA_CM_EVENT_CONNECT_REQUEST);
    CHECK(server->qp != nullptr);
    CHECK(fake::unacked(listener) == 1);
    CHECK(rdma_accept(server, nullptr) == 0);
    CHECK(server->event->event == RDMA_CM_EVENT_ESTABLISHED);
    CHECK(fake::unacked(listener) == 0);
    client.join();
    rdma_destroy_ep(server);
    rdma_destroy_ep(listener);
}

TEST_CASE("a synchronous call that nothing answers is a hang")
{
    clean_world world;
    fake::set_patience(std::chrono::milliseconds{20});
    auto* const channel = rdma_create_event_channel();
    auto* const listener = make_listener(channel, v4("10.77.1.1", 7471));
    rdma_cm_id* client = nullptr;
    REQUIRE(rdma_create_id(nullptr, &client, nullptr, RDMA_PS_TCP) == 0);
    auto to = v4("10.77.1.1", 7471);
    REQUIRE(rdma_resolve_addr(client, nullptr, &to.raw, 1) == 0);
    REQUIRE(rdma_resolve_route(client, 1) == 0);
    give_qp(client);
    CHECK((rdma_connect(client, nullptr) == -1 && errno == EDEADLK));
    CHECK(mentions(fake::would_hang(), "rdma_connect"));
    rdma_destroy_ep(client);
    drop(listener);
    rdma_destroy_event_channel(channel);
    CHECK(fake::leaks() == "");
    world.messy();
}

TEST_CASE("rejecting on the asking side is what blocks for minutes")
{
    clean_world world;
    auto* const channel = rdma_create_event_channel();
    auto* const listener = make_listener(channel, v4("10.77.1.1", 7471));
    auto* const client = make_client(channel, v4("10.77.1.1", 7471));
    give_qp(client);
    REQUIRE(rdma_connect(client, nullptr) == 0);
    CHECK(rdma_reject(client, nullptr, 0) == 0);
    CHECK(mentions(fake::misuse(), "rdma_reject"));
    drop(client);
    drop(listener);
    rdma_destroy_event_channel(channel);
    world.messy();
}

TEST_CASE("a silent host on RoCE: no event comes, the id can be dropped at once, and in the end it is unreachable")
{
    clean_world world;
    fake::set_silent("10.77.1.99");
    auto* const channel = rdma_create_event_channel();
    for (auto const ps : {RDMA_PS_TCP, RDMA_PS_UDP}) {
        auto const type = ps == RDMA_PS_UDP ? IBV_QPT_UD : IBV_QPT_RC;
        auto* const dropped = make_client(channel, v4("10.77.1.99", 7471), ps);
        give_qp(dropped, type);
        CHECK(rdma_connect(dropped, nullptr) == 0);
        CHECK((rdma_connect(dropped, nullptr) == -1 && errno == EINVAL)); // under way already
        CHECK(is_empty(channel));
        drop(dropped);

        auto* const pushed = make_client(channel, v4("10.77.1.99", 7471), ps);
        give_qp(pushed, type);
        CHECK(rdma_connect(pushed, nullptr) == 0);
        fake::push(pushed, {RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT});
        expect(channel, RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT);
        CHECK((rdma_reject(pushed, nullptr, 0) == -1 && errno == EINVAL)); // over
        drop(pushed);

        auto* const waited = make_client(channel, v4("10.77.1.99", 7471), ps);
        give_qp(waited, type);
        fake::set_manual(true);
        CHECK(rdma_connect(waited, nullptr) == 0);
        CHECK(is_empty(channel));
        CHECK(fake::step());
        expect(channel, RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT);
        CHECK(!fake::step());
        fake::set_manual(false);
        drop(waited);
    }
    auto* const other = make_id(channel);
    auto to = v4("10.77.1.98", 7471);
    CHECK(rdma_resolve_addr(other, nullptr, &to.raw, 1) == 0);
    expect(channel, RDMA_CM_EVENT_ADDR_ERROR, -ETIMEDOUT); // not silent, but unknown
    drop(other);
    rdma_destroy_event_channel(channel);
}

TEST_CASE("a silent host on iWARP: rdma_connect blocks until a signal, and may be called again")
{
    clean_world world;
    fake::set_silent("10.77.2.99");
    auto* const channel = rdma_create_event_channel();
    auto* const id = make_client(channel, v4("10.77.2.99", 7471));
    give_qp(id);

    fake::set_patience(std::chrono::minutes{5});
    struct sigaction handler{}, old{};
    handler.sa_handler = [](int) {};
    REQUIRE(sigaction(SIGUSR1, &handler, &old) == 0);
    std::atomic<bool> returned{false};
    int result = 0, code = 0;
    std::thread blocked{[&] {
        result = rdma_connect(id, nullptr);
        code = errno;
        returned = true;
    }};
    while (fake::count("rdma_connect", id) == 0) std::this_thread::yield();
    auto* const other = make_id(channel); // the fake is free meanwhile
    drop(other);
    fake::set_patience(std::chrono::milliseconds{1});
    CHECK((rdma_destroy_id(id) == -1 && errno == EDEADLK)); // would wait for the call
    CHECK(mentions(fake::would_hang(), "rdma_destroy_id"));
    CHECK(fake::misuse().size() == 1);
    world.messy();
    while (!returned) {
        pthread_kill(blocked.native_handle(), SIGUSR1);
        std::this_thread::yield();
    }
    blocked.join();
    sigaction(SIGUSR1, &old, nullptr);
    CHECK((result == -1 && code == EINTR));

    fake::set_silent_interrupted(true);
    CHECK((rdma_connect(id, nullptr) == -1 && errno == EINTR));
    fake::set_silent_interrupted(false);
    fake::set_patience(std::chrono::milliseconds{1});
    CHECK((rdma_connect(id, nullptr) == -1 && errno == ETIMEDOUT));
    CHECK(is_empty(channel));
    drop(id);
    rdma_destroy_event_channel(channel);
    CHECK(fake::leaks() == "");
}

TEST_CASE("before there is a connection, rdma_init_qp_attr gives what INIT needs, and no access")
{
    for (auto const& on : devices) {
        INFO(on.name);
        clean_world world;
        auto* const channel = rdma_create_event_channel();
        auto* const id = make_id(channel);
        ibv_qp_attr attr{};
        int mask = 0;
        CHECK((rdma_init_qp_attr(id, &attr, &mask) == -1 && errno == EINVAL)); // no device
        auto to = v4(on.server, 7471);
        REQUIRE(rdma_resolve_addr(id, nullptr, &to.raw, 1) == 0);
        expect(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
        for (auto const state : {IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS}) {
            attr = {};
            attr.qp_state = state;
            attr.qp_access_flags = 0xff;
            REQUIRE(rdma_init_qp_attr(id, &attr, &mask) == 0);
            int const pkey = on.iwarp ? 0 : IBV_QP_PKEY_INDEX;
            CHECK(mask == (IBV_QP_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_PORT | pkey));
            CHECK((attr.qp_access_flags == 0 && attr.port_num == 1 && attr.qp_state == state));
        }
        drop(id);
        rdma_destroy_event_channel(channel);
    }
}
