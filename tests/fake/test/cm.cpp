// SPDX-License-Identifier: MIT
//
// Ids, events, addresses: the rules of rdma_get_cm_event and of what waits for acks.
#include "support.hpp"

#include <algorithm>
#include <vector>

using namespace selftest;

TEST_CASE("an id waits for the acks of its own events, and no longer")
{
    clean_world world;
    auto* const channel = rdma_create_event_channel();
    auto* const id = make_id(channel);
    fake::push(id, {RDMA_CM_EVENT_ADDR_CHANGE});

    event held{channel};
    CHECK(fake::unacked(id) == 1);
    errno = 0;
    CHECK(rdma_destroy_id(id) == -1);
    CHECK(errno == EDEADLK);
    CHECK(mentions(fake::would_hang(), "rdma_destroy_id: 1 event"));
    CHECK(fake::live().ids == 1);
    held.ack();
    CHECK(rdma_destroy_id(id) == 0);
    rdma_destroy_event_channel(channel);
    CHECK(fake::leaks() == "");
    world.messy();
}

TEST_CASE("a destroy takes back events that were not got")
{
    clean_world world;
    auto* const channel = rdma_create_event_channel();
    auto* const id = make_id(channel);
    auto* const other = make_id(channel);
    fake::push(id, {RDMA_CM_EVENT_ADDR_CHANGE});
    fake::push(other, {RDMA_CM_EVENT_ADDR_CHANGE});
    CHECK(fake::queued(channel) == 2);
    CHECK(rdma_destroy_id(id) == 0);
    CHECK(fake::queued(channel) == 1);
    expect(channel, RDMA_CM_EVENT_ADDR_CHANGE);
    CHECK(rdma_destroy_id(other) == 0);
    rdma_destroy_event_channel(channel);
}

TEST_CASE("a request is charged to the listener, never to the new id")
{
    clean_world world;
    auto* const channel = rdma_create_event_channel();
    int mark = 0;
    auto* const listener = make_id(channel, RDMA_PS_TCP, &mark);
    auto at = v4("10.77.1.1", 7000);
    REQUIRE(rdma_bind_addr(listener, &at.raw) == 0);
    REQUIRE(rdma_listen(listener, 4) == 0);
    fake::push_request(listener, "hello", 5);

    event asked{channel};
    auto* const child = asked->id;
    CHECK(asked->listen_id == listener);
    CHECK(fake::unacked(listener) == 1);
    CHECK(fake::unacked(child) == 0);
    CHECK(child->channel == channel);
    CHECK(child->context == &mark);
    CHECK(child->verbs == fake::rxe_context());
    CHECK(child->pd != nullptr);
    CHECK(child->port_num == 1);
    CHECK(std::memcmp(asked->param.conn.private_data, "hello", 5) == 0);

    CHECK(rdma_destroy_id(child) == 0); // while its event is held
    CHECK(rdma_destroy_id(listener) == -1);
    asked.ack();                        // after the new id has gone
    CHECK(rdma_destroy_id(listener) == 0);
    rdma_destroy_event_channel(channel);
    CHECK(fake::leaks() == "");
    world.messy();
}

TEST_CASE("an extra ack is noticed")
{
    clean_world world;
    auto* const channel = rdma_create_event_channel();
    auto* const id = make_id(channel);
    fake::push(id, {RDMA_CM_EVENT_ADDR_CHANGE});
    rdma_cm_event* got = nullptr;
    REQUIRE(rdma_get_cm_event(channel, &got) == 0);
    CHECK(rdma_ack_cm_event(got) == 0);
    CHECK(fake::misuse().empty());
    rdma_ack_cm_event(got);
    CHECK(mentions(fake::misuse(), "rdma_ack_cm_event"));
    errno = 0;
    CHECK(rdma_ack_cm_event(nullptr) == -1);
    CHECK(errno == EINVAL);
    world.messy();
}

TEST_CASE("the whole event is zero but for what it says")
{
    clean_world world;
    auto* const channel = rdma_create_event_channel();
    auto* const id = make_id(channel);
    fake::push(id, {RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT});
    {
        event const got{channel};
        CHECK(got->id == id);
        CHECK(got->listen_id == nullptr);
        CHECK(got->status == -ETIMEDOUT);
        CHECK(got->param.conn.private_data == nullptr);
        CHECK(got->param.conn.private_data_len == 0);
    }
    drop(id);
    rdma_destroy_event_channel(channel);
}

TEST_CASE("an empty channel: EAGAIN when non-blocking, EINVAL without a place for the event")
{
    clean_world world;
    auto* const channel = rdma_create_event_channel();
    REQUIRE(fcntl(channel->fd, F_SETFL, O_NONBLOCK) == 0);
    CHECK((fcntl(channel->fd, F_GETFD) & FD_CLOEXEC) != 0);
    rdma_cm_event* got = nullptr;
    errno = 0;
    CHECK(rdma_get_cm_event(channel, &got) == -1);
    CHECK(errno == EAGAIN);
    CHECK(rdma_get_cm_event(channel, nullptr) == -1);
    CHECK(errno == EINVAL);
    rdma_destroy_event_channel(channel);
}

TEST_CASE("events of a request before its accept are swallowed, though the channel was readable")
{
    clean_world world;
    auto* const channel = rdma_create_event_channel();
    auto* const listener = make_listener(channel, v4("10.77.1.1", 7000));
    fake::push_request(listener);
    rdma_cm_id* child = nullptr;
    {
        event const asked{channel};
        child = asked->id;
    }
    fake::push(child, {RDMA_CM_EVENT_DISCONNECTED});
    REQUIRE(fcntl(channel->fd, F_SETFL, O_NONBLOCK) == 0);
    CHECK(fake::queued(channel) == 1);
    rdma_cm_event* got = nullptr;
    CHECK(rdma_get_cm_event(channel, &got) == -1);
    CHECK(errno == EAGAIN);
    CHECK(fake::unacked(child) == 0);
    drop(child);
    drop(listener);
    rdma_destroy_event_channel(channel);
}

TEST_CASE("after librdmacm's own CONNECT_ERROR, REJECTED and DISCONNECTED are swallowed")
{
    clean_world world;
    auto* const channel = rdma_create_event_channel();
    auto* const listener = make_listener(channel, v4("10.77.1.1", 7000));
    auto* const client = make_client(channel, v4("10.77.1.1", 7000));
    give_qp(client);
    auto param = usual_param();
    REQUIRE(rdma_connect(client, &param) == 0);
    auto* const server = take_request(channel);
    REQUIRE(rdma_accept(server, &param) == 0);
    drop(server); // CONNECT_RESPONSE is queued already; a reject follows
    expect(channel, RDMA_CM_EVENT_CONNECT_ERROR, -1);
    CHECK(client->qp->state == IBV_QPS_ERR);
    CHECK(fake::queued(channel) == 1);
    REQUIRE(fcntl(channel->fd, F_SETFL, O_NONBLOCK) == 0);
    rdma_cm_event* got = nullptr;
    CHECK(rdma_get_cm_event(channel, &got) == -1);
    CHECK(errno == EAGAIN);
    drop(client);
    drop(listener);
    rdma_destroy_event_channel(channel);
}

TEST_CASE("migrating: waits for acks, takes the events along, loses a listener's requests")
{
    clean_world world;
    auto* const from = rdma_create_event_channel();
    auto* const to = rdma_create_event_channel();
    auto* const id = make_id(from);
    fake::push(id, {RDMA_CM_EVENT_ADDR_CHANGE});
    fake::push(id, {RDMA_CM_EVENT_ADDR_CHANGE});
    {
        event const held{from};
        CHECK(rdma_migrate_id(id, to) == -1);
        CHECK(errno == EDEADLK);
        CHECK(id->channel == from);
    }
    CHECK(rdma_migrate_id(id, to) == 0);
    CHECK(id->channel == to);
    CHECK(is_empty(from));
    expect(to, RDMA_CM_EVENT_ADDR_CHANGE);
    drop(id);

    auto* const listener = make_listener(from, v4("10.77.1.1", 7000));
    fake::push_request(listener);
    CHECK(rdma_migrate_id(listener, to) == 0);
    REQUIRE(fcntl(to->fd, F_SETFL, O_NONBLOCK) == 0);
    rdma_cm_event* got = nullptr;
    CHECK(rdma_get_cm_event(to, &got) == -1);
    CHECK(errno == EAGAIN);
    CHECK(fake::live().ids == 2); // the listener, and the lost request
    world.messy();
}

TEST_CASE("a child may migrate while its request is held")
{
    clean_world world;
    auto* const channel = rdma_create_event_channel();
    auto* const other = rdma_create_event_channel();
    auto* const listener = make_listener(channel, v4("10.77.1.1", 7000));
    fake::push_request(listener);
    rdma_cm_id* child = nullptr;
    {
        event const asked{channel};
        child = asked->id;
        CHECK(rdma_migrate_id(child, other) == 0);
    }
    drop(child);
    drop(listener);
    rdma_destroy_event_channel(other);
    rdma_destroy_event_channel(channel);
}

TEST_CASE("a channel that dies before its ids leaves them dangling")
{
    clean_world world;
    auto* const channel = rdma_create_event_channel();
    auto* const id = make_id(channel);
    rdma_destroy_event_channel(channel);
    CHECK(mentions(fake::misuse(), "1 id(s) still on the channel"));
    errno = 0;
    CHECK(rdma_destroy_id(id) == -1);
    CHECK(errno == EBADF);
    CHECK(fake::live().ids == 1);
    world.messy();
}

TEST_CASE("changed credentials: EACCES from every command, and a destroy frees nothing")
{
    clean_world world;
    auto* const channel = rdma_create_event_channel();
    auto* const id = make_id(channel);
    fake::set_credentials_changed(true);
    rdma_cm_event* got = nullptr;
    auto at = v4("10.77.1.1");
    CHECK((rdma_get_cm_event(channel, &got) == -1 && errno == EACCES));
    CHECK((rdma_bind_addr(id, &at.raw) == -1 && errno == EACCES));
    CHECK((rdma_destroy_id(id) == -1 && errno == EACCES));
    CHECK(fake::live().ids == 1);
    fake::set_credentials_changed(false);
    CHECK(rdma_destroy_id(id) == 0);
    rdma_destroy_event_channel(channel);
}

TEST_CASE("no device: ENODEV, and ENOSYS for the device list")
{
    clean_world world;
    fake::set_devices_present(false);
    CHECK((rdma_create_event_channel() == nullptr && errno == ENODEV));
    rdma_cm_id* id = nullptr;
    CHECK((rdma_create_id(nullptr, &id, nullptr, RDMA_PS_TCP) == -1 && errno == ENODEV));
    int many = -1;
    CHECK((rdma_get_devices(&many) == nullptr && errno == ENODEV && many == 0));
    CHECK((ibv_get_device_list(nullptr) == nullptr && errno == ENOSYS));
    rdma_addrinfo* info = nullptr;
    CHECK((rdma_getaddrinfo("10.77.1.1", "7471", nullptr, &info) == -1 && errno == ENODEV));
}

TEST_CASE("binding: own addresses, ports, families")
{
    clean_world world;
    auto* const channel = rdma_create_event_channel();
    auto const bind = [&](rdma_cm_id* id, any_address at) { return rdma_bind_addr(id, &at.raw) == 0 ? 0 : errno; };

    auto* const a = make_id(channel);
    CHECK(bind(a, v4("192.0.2.1")) == EADDRNOTAVAIL);
    auto* const looped = make_id(channel);
    CHECK(bind(looped, v4("127.0.0.1")) == 0); // a device is picked; only a route cannot be found
    CHECK(looped->verbs != nullptr);
    rdma_destroy_id(looped);
    CHECK(bind(a, v6("fe80::77:1")) == EINVAL);
    any_address unknown{};
    CHECK(bind(a, unknown) == EINVAL);
    CHECK(bind(a, v6("fe80::77:1", 0, fake::rxe_scope)) == 0);
    CHECK(a->verbs == fake::rxe_context());
    CHECK(rdma_get_src_port(a) != 0);
    CHECK(bind(a, v4("10.77.1.1")) == EINVAL); // bound already

    auto* const b = make_id(channel);
    CHECK(bind(b, v4("10.77.2.1", 7000)) == 0);
    CHECK(b->verbs == fake::siw_context());
    auto* const c = make_id(channel);
    CHECK(bind(c, v4("10.77.2.1", 7000)) == EADDRINUSE);
    CHECK(bind(c, v4("0.0.0.0", 7000)) == EADDRNOTAVAIL);
    CHECK(bind(c, v4("0.0.0.0")) == 0);
    CHECK(c->verbs == nullptr);
    CHECK(c->pd == nullptr);
    CHECK(rdma_get_src_port(c) != 0);

    int const yes = 1;
    auto* const d = make_id(channel);
    auto* const e = make_id(channel);
    for (auto* each : {d, e}) CHECK(rdma_set_option(each, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, const_cast<int*>(&yes), sizeof yes) == 0);
    CHECK(bind(d, v4("10.77.1.1", 7001)) == 0);
    CHECK(bind(e, v4("10.77.1.1", 7001)) == 0);
    for (auto* each : {a, b, c, d, e}) drop(each);
    rdma_destroy_event_channel(channel);
}

TEST_CASE("a listener that could not be destroyed keeps its port")
{
    clean_world world;
    auto* const channel = rdma_create_event_channel();
    auto* const listener = make_listener(channel, v4("10.77.1.1", 7000));
    fake::push_request(listener);
    event asked{channel};
    drop(asked->id);
    CHECK(rdma_destroy_id(listener) == -1);
    auto* const next = make_id(channel);
    auto at = v4("10.77.1.1", 7000);
    CHECK((rdma_bind_addr(next, &at.raw) == -1 && errno == EADDRINUSE));
    asked.ack();
    CHECK(rdma_destroy_id(listener) == 0);
    CHECK(rdma_bind_addr(next, &at.raw) == 0);
    drop(next);
    rdma_destroy_event_channel(channel);
    world.messy();
}

TEST_CASE("resolving: known, unknown and foreign hosts")
{
    clean_world world;
    auto* const channel = rdma_create_event_channel();
    auto const resolve = [&](rdma_cm_id* id, any_address to) { return rdma_resolve_addr(id, nullptr, &to.raw, 10) == 0 ? 0 : errno; };
    auto* const id = make_id(channel);
    CHECK(resolve(id, v4("192.0.2.1", 1)) == ENODEV);
    CHECK(resolve(id, v4("192.0.2.7", 1)) == ENODEV);
    CHECK(resolve(id, v6("fe80::77:1", 1)) == EINVAL);
    CHECK(is_empty(channel));
    CHECK(resolve(id, v4("10.77.1.99", 1)) == 0);
    expect(channel, RDMA_CM_EVENT_ADDR_ERROR, -ETIMEDOUT);
    CHECK(id->verbs == nullptr);
    CHECK(resolve(id, v6("fd77:1::2", 1)) == EINVAL); // the id has an IPv4 source by now
    drop(id);

    auto* const other = make_id(channel);
    CHECK(resolve(other, v6("fd77:2::2", 7)) == 0);
    CHECK(other->verbs == nullptr); // until the event is got
    expect(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
    CHECK(other->verbs == fake::siw_context());
    CHECK(rdma_get_dst_port(other) == htons(7));
    CHECK(rdma_get_src_port(other) != 0);
    CHECK(resolve(other, v6("fd77:2::2", 7)) == EINVAL);
    drop(other);

    fake::set_resolve_without_device(true);
    auto* const third = make_id(channel);
    CHECK(resolve(third, v4("10.77.1.2", 7)) == 0);
    expect(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
    CHECK(third->verbs == nullptr);
    drop(third);
    rdma_destroy_event_channel(channel);
}

TEST_CASE("routes have a path record on RoCE and none on iWARP")
{
    clean_world world;
    auto* const channel = rdma_create_event_channel();
    auto* const rxe = make_client(channel, v4("10.77.1.1", 7));
    auto* const siw = make_client(channel, v4("10.77.2.1", 7));
    CHECK(rxe->route.num_paths == 1);
    CHECK(rxe->route.path_rec != nullptr);
    CHECK(siw->route.num_paths == 0);
    drop(rxe);
    drop(siw);
    rdma_destroy_event_channel(channel);
}

TEST_CASE("what crashes in C is noted, and fails")
{
    clean_world world;
    auto* const channel = rdma_create_event_channel();
    auto* const id = make_id(channel);
    auto attr = small_qp();
    auto param = usual_param();
    char buffer[8];
    CHECK(rdma_resolve_route(id, 1) == -1);
    CHECK(rdma_create_qp(id, nullptr, &attr) == -1);
    CHECK(rdma_connect(id, &param) == -1);
    CHECK(rdma_accept(id, nullptr) == -1);
    CHECK(rdma_reg_msgs(id, buffer, sizeof buffer) == nullptr);
    rdma_destroy_qp(id);
    for (auto const* function : {"rdma_resolve_route", "rdma_create_qp", "rdma_connect", "rdma_accept", "ibv_reg_mr", "rdma_destroy_qp"})
        CHECK(mentions(fake::misuse(), std::string{function} + ": would crash"));
    CHECK((rdma_connect(id, nullptr) == -1 && errno == EINVAL)); // this one is checked in C
    CHECK((rdma_disconnect(id) == -1 && errno == EINVAL));
    drop(id);
    rdma_destroy_event_channel(channel);
    world.messy();
}

TEST_CASE("the default PD is shared by a device's ids and goes with the last")
{
    clean_world world;
    auto* const channel = rdma_create_event_channel();
    auto* const a = make_client(channel, v4("10.77.1.1", 7));
    auto* const b = make_client(channel, v4("10.77.1.1", 7));
    CHECK(a->pd == b->pd);
    CHECK(fake::live().default_pds == 1);
    drop(a);
    CHECK(fake::live().default_pds == 1);
    drop(b);
    CHECK(fake::live().default_pds == 0);

    int many = 0;
    auto** const list = rdma_get_devices(&many); // holds the device: the PD outlives the last id, and the list too
    CHECK(many == 2);
    drop(make_client(channel, v4("10.77.1.1", 7)));
    CHECK(fake::live().default_pds == 1);
    rdma_free_devices(list);
    CHECK(fake::live().default_pds == 1);
    drop(make_client(channel, v4("10.77.1.1", 7)));
    CHECK(fake::live().default_pds == 0);

    auto* const c = make_client(channel, v4("10.77.1.1", 7));
    char buffer[8];
    auto* const mr = rdma_reg_msgs(c, buffer, sizeof buffer);
    drop(c);
    CHECK(fake::live().default_pds == 0);
    CHECK(fake::live().pds == 1); // leaked
    CHECK(mentions(fake::misuse(), "default PD"));
    CHECK(ibv_dereg_mr(mr) == 0);
    rdma_destroy_event_channel(channel);
    world.messy();
}

TEST_CASE("options")
{
    clean_world world;
    auto* const channel = rdma_create_event_channel();
    auto* const id = make_id(channel);
    std::uint8_t small = 20;
    int number = 1;
    auto const set = [&](int level, int name, void* value, std::size_t length) { return rdma_set_option(id, level, name, value, length) == 0 ? 0 : errno; };
    CHECK(set(RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &small, sizeof small) == 0);
    CHECK(set(RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &number, sizeof number) == EINVAL);
    CHECK(set(RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &small, sizeof small) == 0);
    CHECK(set(RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &number, sizeof number) == 0);
    CHECK(set(RDMA_OPTION_ID, 99, &number, sizeof number) == ENOSYS);
    CHECK(set(99, 0, &number, sizeof number) == ENOSYS);
    drop(id);
    rdma_destroy_event_channel(channel);
}

TEST_CASE("names become addresses")
{
    clean_world world;
    rdma_addrinfo* found = nullptr;
    rdma_addrinfo hints{};
    hints.ai_flags = RAI_NUMERICHOST;
    REQUIRE(rdma_getaddrinfo("10.77.1.1", "7471", &hints, &found) == 0);
    CHECK(found->ai_port_space == RDMA_PS_TCP);
    CHECK(found->ai_qp_type == IBV_QPT_RC);
    CHECK(found->ai_dst_len == sizeof(sockaddr_in));
    CHECK(found->ai_src_addr == nullptr);
    rdma_freeaddrinfo(found);

    hints.ai_flags = RAI_PASSIVE | RAI_NUMERICHOST;
    hints.ai_port_space = RDMA_PS_UDP;
    REQUIRE(rdma_getaddrinfo("fd77:1::1", "7471", &hints, &found) == 0);
    CHECK(found->ai_qp_type == IBV_QPT_UD);
    CHECK(found->ai_src_len == sizeof(sockaddr_in6));
    CHECK(found->ai_flags == RAI_PASSIVE);
    rdma_freeaddrinfo(found);
    rdma_freeaddrinfo(nullptr);

    hints = {};
    hints.ai_flags = RAI_NUMERICHOST;
    CHECK(rdma_getaddrinfo("no such name", "1", &hints, &found) < 0);
    CHECK((rdma_getaddrinfo(nullptr, nullptr, nullptr, &found) == -1 && errno == EINVAL));
}

TEST_CASE("kept back, consequences come one by one")
{
    clean_world world;
    fake::set_manual(true);
    auto* const channel = rdma_create_event_channel();
    auto* const id = make_id(channel);
    auto to = v4("10.77.1.1", 7);
    REQUIRE(rdma_resolve_addr(id, nullptr, &to.raw, 1) == 0);
    CHECK(is_empty(channel));
    CHECK(fake::step());
    CHECK(fake::queued(channel) == 1);
    expect(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
    CHECK_FALSE(fake::step());
    REQUIRE(rdma_resolve_route(id, 1) == 0);
    drop(id);
    CHECK_FALSE(fake::step()); // died with its id
    rdma_destroy_event_channel(channel);
}

TEST_CASE("addresses of dead ids are handed out again at once, if wished")
{
    clean_world world;
    fake::set_reuse_addresses(true);
    auto* const channel = rdma_create_event_channel();
    auto* const first = make_id(channel);
    void const* const place = first;
    drop(first);
    auto* const second = make_id(channel);
    CHECK(second == place);
    CHECK(second->verbs == nullptr);
    drop(second);
    rdma_destroy_event_channel(channel);
    auto* const again = rdma_create_event_channel();
    CHECK(again == channel);
    rdma_destroy_event_channel(again);
}

TEST_CASE("the address of a channel that was left behind is never handed out again")
{
    fake::reset();
    std::vector<rdma_event_channel const*> left;
    for (int i = 0; i != 100; ++i) left.push_back(rdma_create_event_channel());
    fake::reset();
    std::vector<rdma_event_channel*> fresh;
    for (int i = 0; i != 100; ++i) {
        fresh.push_back(rdma_create_event_channel());
        CHECK(std::find(left.begin(), left.end(), fresh.back()) == left.end());
    }
    for (auto* const channel : fresh) rdma_destroy_event_channel(channel);
}

TEST_CASE("a dead id is recognised")
{
    clean_world world;
    auto* const channel = rdma_create_event_channel();
    auto* const id = make_id(channel);
    drop(id);
    CHECK(rdma_destroy_id(id) == -1);
    CHECK(mentions(fake::misuse(), "rdma_destroy_id: a dead or unknown id"));
    rdma_destroy_event_channel(channel);
    world.messy();
}
