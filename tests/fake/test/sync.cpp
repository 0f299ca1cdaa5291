// SPDX-License-Identifier: MIT
//
// Synchronous ids and endpoints: private channels, parked events, requests that cannot be served.
#include "support.hpp"

#include <thread>

#include <sys/resource.h>

using namespace selftest;

namespace {

bool fails_with(int result, int code) { return result == -1 && errno == code; }

rdma_addrinfo* look_up(char const* port, int flags, int type)
{
    rdma_addrinfo hints{};
    hints.ai_flags = RAI_NUMERICHOST | flags;
    hints.ai_qp_type = type;
    rdma_addrinfo* found = nullptr;
    REQUIRE(rdma_getaddrinfo("10.77.1.1", port, &hints, &found) == 0);
    return found;
}

/// A synchronous listener; with attributes it gives each request its QP.
rdma_cm_id* listen_sync(ibv_qp_init_attr* attr, int type = IBV_QPT_RC)
{
    auto* const info = look_up("7471", RAI_PASSIVE, type);
    rdma_cm_id* id = nullptr;
    REQUIRE(rdma_create_ep(&id, info, nullptr, attr) == 0);
    rdma_freeaddrinfo(info);
    REQUIRE(rdma_listen(id, 4) == 0);
    return id;
}

/// Who asks, asynchronously.
struct asker {
    explicit asker(rdma_port_space ps = RDMA_PS_TCP) : id{make_client(channel, v4("10.77.1.1", 7471), ps)}
    {
        give_qp(id, ps == RDMA_PS_UDP ? IBV_QPT_UD : IBV_QPT_RC);
        REQUIRE(rdma_connect(id, nullptr) == 0);
    }
    asker(asker const&) = delete;
    asker& operator=(asker const&) = delete;
    ~asker()
    {
        drop(id);
        rdma_destroy_event_channel(channel);
    }
    rdma_event_channel* channel = rdma_create_event_channel();
    rdma_cm_id* id;
};

} // namespace

TEST_CASE("each synchronous id has a channel of its own, children too")
{
    clean_world world;
    auto attr = small_qp();
    auto* const listener = listen_sync(&attr);
    CHECK(fake::live().channels == 1);
    asker client;
    rdma_cm_id* server = nullptr;
    REQUIRE(rdma_get_request(listener, &server) == 0);
    CHECK(fake::live().channels == 3);
    CHECK((server->channel != listener->channel && server->qp != nullptr));
    CHECK((server->event != nullptr && server->event->id == server && server->event->listen_id == listener));
    CHECK(listener->event == nullptr);
    CHECK(fails_with(rdma_migrate_id(server, nullptr), EINVAL));
    rdma_destroy_ep(server);
    CHECK(fake::live().channels == 2);
    rdma_destroy_ep(listener);
}

TEST_CASE("the listener of a request that is not settled cannot be destroyed")
{
    clean_world world;
    auto* const listener = listen_sync(nullptr);
    asker client;
    rdma_cm_id* server = nullptr;
    REQUIRE(rdma_get_request(listener, &server) == 0);
    rdma_destroy_ep(listener);
    CHECK(mentions(fake::would_hang(), "rdma_destroy_ep"));
    CHECK(fake::live().ids == 3);
    rdma_destroy_ep(server); // acks the request
    rdma_destroy_ep(listener);
    CHECK(fake::live().ids == 1);
    world.messy();
}

TEST_CASE("a request whose QP cannot be made is parked at the listener, and its id is nobody's")
{
    for (bool const cared_for : {false, true}) {
        INFO(cared_for);
        clean_world world;
        auto attr = small_qp();
        attr.cap.max_send_wr = 1U << 30;
        auto* const listener = listen_sync(&attr);
        {
            asker client;
            rdma_cm_id* server = nullptr;
            CHECK(fails_with(rdma_get_request(listener, &server), EINVAL));
            CHECK(server == nullptr);
            REQUIRE(listener->event != nullptr);
            CHECK(listener->event->event == RDMA_CM_EVENT_CONNECT_REQUEST);
            if (cared_for) rdma_destroy_ep(listener->event->id);
            CHECK(is_empty(client.channel) == !cared_for); // rejected, or left waiting
        }
        rdma_destroy_ep(listener); // acks it
        CHECK(fake::leaks() == (cared_for ? "" : "1 event channel(s), 1 id(s), 1 default PD(s)"));
        if (!cared_for) world.messy();
    }
}

TEST_CASE("anything but a request makes rdma_get_request fail, and stays parked until the next")
{
    clean_world world;
    auto* const listener = listen_sync(nullptr);
    rdma_cm_id* server = nullptr;
    fake::push(listener, {RDMA_CM_EVENT_ADDR_CHANGE});
    CHECK(fails_with(rdma_get_request(listener, &server), EINVAL));
    CHECK(listener->event->event == RDMA_CM_EVENT_ADDR_CHANGE);
    fake::push(listener, {RDMA_CM_EVENT_REJECTED, 28});
    CHECK(fails_with(rdma_get_request(listener, &server), ECONNREFUSED));
    fake::push(listener, {RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT});
    CHECK(fails_with(rdma_get_request(listener, &server), ETIMEDOUT));
    CHECK(fake::unacked(listener) == 1);
    auto* const asynchronous = make_id(rdma_create_event_channel());
    CHECK(fails_with(rdma_get_request(asynchronous, &server), EINVAL));
    auto* const channel = asynchronous->channel;
    drop(asynchronous);
    rdma_destroy_event_channel(channel);
    rdma_destroy_ep(listener);
}

TEST_CASE("a synchronous listener that has no descriptor left for the new id swallows the request")
{
    clean_world world;
    auto* const listener = listen_sync(nullptr);
    asker client;
    REQUIRE(fcntl(listener->channel->fd, F_SETFL, O_NONBLOCK) == 0);
    rlimit old{};
    REQUIRE(getrlimit(RLIMIT_NOFILE, &old) == 0);
    rlimit none = old;
    none.rlim_cur = 0;
    REQUIRE(setrlimit(RLIMIT_NOFILE, &none) == 0);
    rdma_cm_id* server = nullptr;
    int const result = rdma_get_request(listener, &server);
    int const code = errno;
    setrlimit(RLIMIT_NOFILE, &old);
    CHECK((result == -1 && code == EAGAIN)); // readable, and yet nothing
    CHECK(listener->event == nullptr);
    expect(client.channel, RDMA_CM_EVENT_REJECTED, 28);
    rdma_destroy_ep(listener);
}

TEST_CASE("accepting datagrams leaves the request parked before rdma-core 52, and acks it from then on")
{
    for (unsigned const release : {44U, 52U}) {
        INFO(release);
        clean_world world;
        fake::set_rdma_core(release);
        auto attr = small_qp(IBV_QPT_UD);
        auto* const listener = listen_sync(&attr, IBV_QPT_UD);
        asker client{RDMA_PS_UDP};
        rdma_cm_id* server = nullptr;
        REQUIRE(rdma_get_request(listener, &server) == 0);
        REQUIRE(rdma_accept(server, nullptr) == 0);
        expect(client.channel, RDMA_CM_EVENT_ESTABLISHED);
        bool const parked = release < 52;
        CHECK((server->event != nullptr) == parked);
        CHECK(fake::unacked(listener) == (parked ? 1 : 0));
        rdma_destroy_ep(server); // the child first, then
        rdma_destroy_ep(listener);
    }
}

TEST_CASE("a synchronous id becomes asynchronous: its private channel goes, and what is parked is acked")
{
    clean_world world;
    auto* const info = look_up("7471", 0, IBV_QPT_RC);
    rdma_cm_id* id = nullptr;
    REQUIRE(rdma_create_ep(&id, info, nullptr, nullptr) == 0);
    rdma_freeaddrinfo(info);
    REQUIRE(id->event != nullptr);
    CHECK(fake::unacked(id) == 1);
    auto* const channel = rdma_create_event_channel();
    CHECK(fake::live().channels == 2);
    REQUIRE(rdma_migrate_id(id, channel) == 0);
    CHECK((fake::live().channels == 1 && id->event == nullptr && id->channel == channel && fake::unacked(id) == 0));
    give_qp(id);
    auto* const listener = make_listener(channel, v4("10.77.1.1", 7471));
    REQUIRE(rdma_connect(id, nullptr) == 0); // does not wait any more
    auto* const server = take_request(channel);

    REQUIRE(rdma_migrate_id(id, nullptr) == 0); // and back again
    CHECK((id->channel != channel && fake::live().channels == 2));
    REQUIRE(rdma_accept(server, nullptr) == 0);
    CHECK(fake::queued(id->channel) == 1); // for the next call that waits
    for (auto* each : {id, server, listener}) drop(each);
    rdma_destroy_event_channel(channel);
}

TEST_CASE("a synchronous call takes whatever event comes next")
{
    clean_world world;
    auto* const info = look_up("7471", 0, IBV_QPT_RC);
    auto* const channel = rdma_create_event_channel();
    auto* const listener = make_listener(channel, v4("10.77.1.1", 7471));
    auto attr = small_qp();
    rdma_cm_id* id = nullptr;
    REQUIRE(rdma_create_ep(&id, info, nullptr, &attr) == 0);
    CHECK(attr.qp_type == IBV_QPT_RC);
    fake::push(id, {RDMA_CM_EVENT_ADDR_CHANGE});
    CHECK(rdma_connect(id, nullptr) == 0); // it does not look at the type
    CHECK(id->event->event == RDMA_CM_EVENT_ADDR_CHANGE);
    {
        event const asked{channel};
        CHECK(rdma_reject(asked->id, "no", 2) == 0);
        drop(asked->id);
    }
    rdma_destroy_ep(id);

    attr = small_qp(); // it has got the CQs of the first
    REQUIRE(rdma_create_ep(&id, info, nullptr, &attr) == 0);
    std::thread server{[&] {
        rdma_cm_event* asked = nullptr;
        if (rdma_get_cm_event(channel, &asked) != 0) return;
        rdma_reject(asked->id, "no", 2);
        rdma_destroy_id(asked->id);
        rdma_ack_cm_event(asked);
    }};
    CHECK(fails_with(rdma_connect(id, nullptr), ECONNREFUSED));
    server.join();
    CHECK(id->event->event == RDMA_CM_EVENT_REJECTED); // parked, also on failure
    CHECK(std::memcmp(id->event->param.conn.private_data, "no", 2) == 0);
    rdma_destroy_ep(id);
    rdma_freeaddrinfo(info);
    drop(listener);
    rdma_destroy_event_channel(channel);
}

TEST_CASE("a failing rdma_create_ep leaves nothing")
{
    clean_world world;
    rdma_cm_id* id = nullptr;
    auto attr = small_qp();
    auto* info = look_up("7471", 0, IBV_QPT_RC);
    attr.cap.max_send_wr = 1U << 30;
    CHECK(fails_with(rdma_create_ep(&id, info, nullptr, &attr), EINVAL));
    reinterpret_cast<sockaddr_in*>(info->ai_dst_addr)->sin_addr.s_addr = htonl(0x0a4d0163); // 10.77.1.99
    CHECK(fails_with(rdma_create_ep(&id, info, nullptr, nullptr), ETIMEDOUT));
    info->ai_dst_addr->sa_family = AF_UNIX;
    CHECK(fails_with(rdma_create_ep(&id, info, nullptr, nullptr), EINVAL));
    rdma_freeaddrinfo(info);
    info = look_up("7471", RAI_PASSIVE, IBV_QPT_RC);
    auto* const channel = rdma_create_event_channel();
    auto* const taken = make_listener(channel, v4("10.77.1.1", 7471));
    CHECK(fails_with(rdma_create_ep(&id, info, nullptr, nullptr), EADDRINUSE));
    rdma_freeaddrinfo(info);
    CHECK(id == nullptr);
    drop(taken);
    rdma_destroy_event_channel(channel);
}

TEST_CASE("rdma_destroy_id of an endpoint leaks what it has kept for its requests")
{
    clean_world world;
    auto attr = small_qp();
    auto* const listener = listen_sync(&attr);
    CHECK(rdma_destroy_id(listener) == 0);
    CHECK(mentions(fake::misuse(), "rdma_destroy_ep frees it"));
    auto* const plain = listen_sync(nullptr);
    CHECK(rdma_destroy_id(plain) == 0);
    CHECK(fake::misuse().size() == 1);
    world.messy();
}

TEST_CASE("a second synchronous disconnect waits for an event that does not come")
{
    clean_world world;
    fake::set_timewait(false);
    fake::set_patience(std::chrono::milliseconds{20});
    auto attr = small_qp();
    auto* const listener = listen_sync(&attr);
    auto* const client_channel = rdma_create_event_channel();
    auto* const client = make_client(client_channel, v4("10.77.1.1", 7471));
    give_qp(client);
    REQUIRE(rdma_connect(client, nullptr) == 0);
    rdma_cm_id* server = nullptr;
    REQUIRE(rdma_get_request(listener, &server) == 0);
    std::thread answer{[&] {
        rdma_cm_event* got = nullptr;
        if (rdma_get_cm_event(client_channel, &got) == 0) rdma_ack_cm_event(got);
    }};
    fake::set_patience(std::chrono::minutes{5});
    CHECK(rdma_accept(server, nullptr) == 0);
    answer.join();
    CHECK(rdma_disconnect(server) == 0);
    CHECK(server->event->event == RDMA_CM_EVENT_DISCONNECTED);
    fake::set_patience(std::chrono::milliseconds{20});
    CHECK(fails_with(rdma_disconnect(server), EDEADLK));
    CHECK(mentions(fake::would_hang(), "rdma_disconnect"));
    rdma_destroy_ep(server);
    rdma_destroy_ep(listener);
    drop(client);
    rdma_destroy_event_channel(client_channel);
    CHECK(fake::leaks() == "");
    world.messy();
}
