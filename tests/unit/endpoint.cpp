// SPDX-License-Identifier: MIT
// Synchronous use: endpoints, whose calls return when they are done, at their deadline, or with what went wrong; and
// which may be dropped in any order.
#include "allocations.hpp"
#include "both/support.hpp"
#include "support.hpp"

#include <algorithm>
#include <functional>
#include <future>
#include <optional>
#include <thread>

using namespace unit;
using both::bytes;

namespace {

std::error_code system_code(int code) { return {code, std::system_category()}; }

rdma::addrinfo listening(char const* host = rxe_host, rdma::port_space ps = rdma::port_space::tcp,
                         char const* port = "7471") {
    bool const datagrams = ps == rdma::port_space::udp;
    return {host, port,
            rdma::addrinfo_hints{.passive = true,
                                 .numeric_host = true,
                                 .port_space = ps,
                                 .qp_type = datagrams ? rdma::qp_type::ud : rdma::qp_type::rc}};
}

rdma::addrinfo leading_to(char const* host = rxe_host, rdma::port_space ps = rdma::port_space::tcp,
                          char const* port = "7471") {
    bool const datagrams = ps == rdma::port_space::udp;
    return {host, port,
            rdma::addrinfo_hints{
                .numeric_host = true, .port_space = ps, .qp_type = datagrams ? rdma::qp_type::ud : rdma::qp_type::rc}};
}

/// The first result, also of a list that lives no longer than this expression.
rdma::addrinfo_ref first(rdma::addrinfo const& list) { return list.front(); }

rdma::endpoint make_server(char const* host = rxe_host, rdma::port_space ps = rdma::port_space::tcp) {
    rdma::endpoint server(first(listening(host, ps)), rdma::qp_init_attr{});
    server.listen();
    return server;
}

rdma::endpoint make_peer(char const* host = rxe_host, rdma::port_space ps = rdma::port_space::tcp) {
    return rdma::endpoint(first(leading_to(host, ps)), rdma::qp_init_attr{});
}

std::string text_of(std::span<std::byte const> data, std::size_t size) {
    return {reinterpret_cast<char const*>(data.data()), std::min(size, data.size())};
}

/// Two connected endpoints, and the listener.
struct pair {
    rdma::endpoint listener, server, client;
};

pair make_pair(char const* host = rxe_host) {
    pair made;
    made.listener = make_server(host);
    made.client = make_peer(host);
    auto serving = std::async(std::launch::async, [&made] {
        rdma::endpoint child = made.listener.get_request(20s);
        child.accept({}, 20s);
        return child;
    });
    made.client.connect({}, 20s);
    made.server = serving.get();
    return made;
}

/// A request of a peer that agrees to everything, so that one thread is enough.
rdma::endpoint pushed_child(rdma::endpoint& listener) {
    fake::push_request(listener.id().native_handle(), "pushed", 6);
    return listener.get_request(20s);
}

} // namespace

TEST_CASE("endpoint: made of what a lookup found") {
    world w;
    SECTION("for a listener") {
        rdma::endpoint const server(first(listening()));
        CHECK(server.id().local_addr() == rdma::address(rxe_host, 7471));
        CHECK_FALSE(server.id().qp());
        CHECK_FALSE(server.event());
    }
    SECTION("for a listener on every address") {
        rdma::endpoint server(first(listening(nullptr)), {}, {}, 0ms);
        CHECK(server.id().local_addr().is_any());
        server.listen(1);
        CHECK(fake::count("rdma_listen") == 1);
    }
    SECTION("for a client") {
        rdma::endpoint const client(first(leading_to()), 20s);
        CHECK(client.id().peer_addr() == rdma::address(rxe_host, 7471));
        CHECK(client.id().path_rec() != nullptr);
        CHECK_FALSE(client.id().qp());
        CHECK_FALSE(client.event());
    }
    SECTION("for a client with a QP") {
        rdma::endpoint const client(first(leading_to()), {.cap = {.max_send_wr = 3}});
        CHECK(client.id().qp());
        CHECK(client.id().send_cq());
    }
    SECTION("for a client with its own PD, CQs and source address") {
        rdma::event_channel channel;
        rdma::cm_id const bound = make_bound(channel);
        rdma::pd pd(bound.verbs());
        rdma::cq cq(bound.verbs(), 8);
        rdma::addrinfo const found(rxe_host, "7471", {.src_addr = rdma::address(rxe_client_host, 0)});
        rdma::endpoint const client(found.front(), {.send_cq = cq, .recv_cq = cq}, pd);
        pd = {}; // it is kept
        cq = {};
        CHECK(client.id().local_addr().host() == rxe_client_host);
        CHECK(client.id().qp().native_handle()->pd == client.id().pd().native_handle());
    }
    SECTION("for IPv6") {
        rdma::endpoint server(first(listening("fd77:1::1")));
        server.listen();
        rdma::endpoint const client(first(leading_to("fd77:1::1")));
        CHECK(client.id().peer_addr() == rdma::address("fd77:1::1", 7471));
    }
    SECTION("with a route that the lookup found already") {
        fake::set_ibacm(true);
        rdma::addrinfo const found = leading_to();
        auto const second = ++found.begin();
        REQUIRE((*second).family() == AF_INET);
        rdma::endpoint const client(*second);
        CHECK(client.id().path_rec() != nullptr);
    }
}

TEST_CASE("endpoint: a conversation, from listening to the end, on each device") {
    for (char const* host : {rxe_host, siw_host}) {
        world w;
        both::watchdog const watch;
        INFO(host);
        rdma::endpoint listener = make_server(host);
        std::array<std::byte, 8> received{}, answer{};
        rdma::mr received_region, answer_region;
        rdma::endpoint client = make_peer(host);
        answer_region = client.id().reg_msgs(answer);
        client.id().post_recv(nullptr, answer, answer_region);

        auto serving = std::async(std::launch::async, [&] {
            rdma::endpoint child = listener.get_request(20s);
            received_region = child.id().reg_msgs(received);
            child.id().post_recv(nullptr, received, received_region);
            std::string const heard = text_of(child.event().private_data(), 5);
            child.accept(both::carrying("hello " + heard), 20s);
            return child;
        });
        client.connect(both::carrying("world"), 20s);
        rdma::endpoint server = serving.get();
        CHECK(client.event().type() == type::established);
        CHECK(text_of(client.event().private_data(), 11) == "hello world");
        CHECK(client.event().param() != nullptr);
        CHECK(server.event().type() == type::established);
        CHECK(server.id().qp().native_handle()->qp_num != client.id().qp().native_handle()->qp_num);

        std::array<std::byte, 8> message{};
        message.fill(std::byte{0x77});
        rdma::mr const region = client.id().reg_msgs(message);
        client.id().post_send(nullptr, message, region, IBV_SEND_SIGNALED);
        rdma::work_completion const sent = client.get_send_comp(20s), got = server.get_recv_comp(20s);
        CHECK(sent.success().opcode() == rdma::wc_opcode::send);
        CHECK(got.success().byte_len() == 8);
        CHECK(received == message);
        server.id().post_send(nullptr, received, received_region, IBV_SEND_SIGNALED);
        CHECK(server.get_send_comp());
        CHECK(client.get_recv_comp());
        CHECK(answer == message);

        client.disconnect(20s);
        CHECK_FALSE(client.event());
        CHECK(client.id().disconnected());
        server.disconnect(20s); // it has only to look
        CHECK(server.id().disconnected());
        std::size_t const before = calls_made();
        server.disconnect(0ms);
        client.disconnect(0ms);
        CHECK(calls_made() == before);
    }
}

TEST_CASE("endpoint: each C function that fails on making one is named, in both forms") {
    for (char const* function : {"rdma_create_event_channel", "rdma_create_id", "rdma_resolve_addr",
                                 "rdma_resolve_route", "rdma_create_qp", "rdma_bind_addr"})
        for (bool throws : {false, true}) {
            world w;
            INFO(function << (throws ? ", throws" : ""));
            rdma::addrinfo const found = function == std::string("rdma_bind_addr") ? listening() : leading_to();
            fake::fail(function, 1, EMFILE);
            std::error_code ec;
            if (throws)
                ec = thrown([&] { rdma::endpoint const ep(found.front(), rdma::qp_init_attr{}); },
                            std::string(function) + "(10.77.1.1:7471)");
            else {
                rdma::endpoint const ep(found.front(), rdma::qp_init_attr{}, ec);
                CHECK_FALSE(ep);
            }
            CHECK(ec == system_code(EMFILE));
            CHECK(fake::live().ids == 0);
            CHECK(fake::live().channels == 0);
        }
}

TEST_CASE("endpoint: what cannot be resolved") {
    world w;
    std::error_code ec;
    CHECK(thrown([] { rdma::endpoint const ep(first(leading_to("10.77.1.200"))); }, "rdma_resolve_addr(10.77.1.200") ==
          std::errc::timed_out);
    CHECK(thrown([] { rdma::endpoint const ep(first(leading_to("192.0.2.1"))); }, "rdma_resolve_addr") ==
          std::errc::no_such_device);
    CHECK(thrown([] { rdma::endpoint const ep(first(leading_to("127.0.0.1"))); }, "rdma_resolve_route") ==
          std::errc::no_such_device);
    CHECK(thrown([] { rdma::endpoint const ep(first(listening("10.77.1.200"))); }, "rdma_bind_addr") ==
          std::errc::address_not_available);
    CHECK(thrown([] { rdma::endpoint const ep{rdma::addrinfo_ref()}; }, "rdma_create_ep(no address)") ==
          rdma::errc::empty_handle);
    CHECK_FALSE(rdma::endpoint(rdma::addrinfo_ref(), ec));
    CHECK(ec == rdma::errc::empty_handle);
    CHECK_FALSE(rdma::endpoint(first(leading_to("10.77.1.200")), 1s, ec));
    CHECK(ec == std::errc::timed_out);
    CHECK_FALSE(rdma::endpoint(first(leading_to()), {.cap = {.max_send_wr = 1 << 30}}, {}, ec));
    CHECK(ec == std::errc::invalid_argument);
    CHECK_FALSE(rdma::endpoint(first(leading_to()), {.cap = {.max_send_wr = 1 << 30}}, {}, 20s, ec));
    CHECK(fake::leaks() == "");
}

TEST_CASE("endpoint: an error event ends the making") {
    for (bool route : {false, true}) {
        world w;
        INFO((route ? "ROUTE_ERROR" : "ADDR_ERROR"));
        fake::set_manual(true);
        char const* const function = route ? "rdma_resolve_route" : "rdma_resolve_addr";
        if (route)
            fake::on_return("rdma_resolve_addr", [] { fake::step(); });
        fake::on_return(function, [&] {
            for (fake::call const& each : fake::calls())
                if (each.function == function)
                    fake::push(const_cast<rdma_cm_id*>(static_cast<rdma_cm_id const*>(each.object)),
                               {route ? RDMA_CM_EVENT_ROUTE_ERROR : RDMA_CM_EVENT_ADDR_ERROR, -ENETUNREACH});
        });
        CHECK(thrown([] { rdma::endpoint const ep(first(leading_to())); }, function) == std::errc::network_unreachable);
        CHECK(fake::leaks() == "");
    }
}

// ---- Deadlines ----------------------------------------------------------------------------------------------------

TEST_CASE("endpoint: a deadline on making one") {
    for (bool route : {false, true}) {
        world w;
        both::watchdog const watch;
        std::error_code ec;
        fake::set_manual(true);
        if (route)
            fake::on_return("rdma_resolve_addr", [] { fake::step(); });
        CHECK(thrown([] { rdma::endpoint const ep(first(leading_to()), 20ms); }) == std::errc::timed_out);
        rdma::endpoint const ep(first(leading_to()), rdma::qp_init_attr{}, {}, 20ms, ec);
        CHECK(ec == std::errc::timed_out);
        CHECK_FALSE(ep);
        CHECK(fake::live().ids == 0);
        CHECK(fake::live().channels == 0);
    }
}

TEST_CASE("endpoint: a deadline on connecting") {
    for (bool throws : {false, true}) {
        world w;
        both::watchdog const watch;
        fake::set_silent("10.77.1.99");
        rdma::endpoint client = make_peer("10.77.1.99");
        std::error_code ec;
        if (throws)
            ec = thrown([&] { client.connect({}, 20ms); }, "rdma_connect(10.77.1.99:7471)");
        else
            client.connect({}, 20ms, ec);
        CHECK(ec == std::errc::timed_out);
        CHECK_FALSE(client.event());
    }
}

TEST_CASE("endpoint: a deadline on getting a request, which may still come") {
    world w;
    both::watchdog const watch;
    rdma::endpoint listener = make_server();
    std::error_code ec;
    CHECK(thrown([&] { static_cast<void>(listener.get_request(20ms)); }, "rdma_get_request") == std::errc::timed_out);
    CHECK_FALSE(listener.get_request(0ms, ec));
    CHECK(ec == std::errc::timed_out);
    CHECK(pushed_child(listener));
}

TEST_CASE("endpoint: a deadline on accepting, when the client never gets its answer") {
    for (bool throws : {false, true}) {
        world w;
        both::watchdog const watch;
        rdma::endpoint listener = make_server();
        rdma::event_channel channel;
        rdma::cm_id client = make_client(channel);
        client.create_qp({});
        client.connect();
        rdma::endpoint child = listener.get_request(20s);
        std::error_code ec;
        if (throws)
            ec = thrown([&] { child.accept({}, 20ms); }, "rdma_accept");
        else
            child.accept({}, 20ms, ec);
        CHECK(ec == std::errc::timed_out);
        CHECK_FALSE(child.event());
        child = {};
        expect(channel, type::connect_error);
    }
}

TEST_CASE("endpoint: a deadline on disconnecting") {
    for (bool throws : {false, true}) {
        world w;
        both::watchdog const watch;
        pair both_ends = make_pair();
        fake::set_manual(true);
        std::error_code ec;
        if (throws)
            ec = thrown([&] { both_ends.client.disconnect(20ms); }, "rdma_disconnect");
        else
            both_ends.client.disconnect(20ms, ec);
        CHECK(ec == std::errc::timed_out);
        CHECK_FALSE(both_ends.client.id().disconnected());
        fake::set_manual(false);
        while (fake::step())
            ;
        both_ends.client.disconnect(20s); // it was under way
        CHECK(both_ends.client.id().disconnected());
    }
}

TEST_CASE("endpoint: a deadline on completions") {
    world w;
    both::watchdog const watch;
    pair both_ends = make_pair();
    std::error_code ec;
    CHECK(thrown([&] { both_ends.client.get_send_comp(20ms); }, "rdma_get_send_comp") == std::errc::timed_out);
    CHECK(thrown([&] { both_ends.client.get_recv_comp(20ms); }, "rdma_get_recv_comp") == std::errc::timed_out);
    both_ends.client.get_send_comp(0ms, ec);
    CHECK(ec == std::errc::timed_out);
    both_ends.client.get_recv_comp(0ms, ec);
    CHECK(ec == std::errc::timed_out);

    std::array<std::byte, 8> memory{};
    rdma::mr const region = both_ends.server.id().reg_msgs(memory);
    both_ends.server.id().post_recv(nullptr, memory, region);
    auto waiting = std::async(std::launch::async, [&] { return both_ends.server.get_recv_comp(20s); });
    rdma::mr const mine = both_ends.client.id().reg_msgs(memory);
    both_ends.client.id().post_send(nullptr, memory, mine, IBV_SEND_SIGNALED);
    CHECK(waiting.get());
    CHECK(both_ends.client.get_send_comp(20s, ec));
    CHECK_FALSE(ec);
}

TEST_CASE("endpoint: completions that failed are completions") {
    world w;
    pair both_ends = make_pair();
    std::array<std::byte, 8> memory{};
    rdma::mr const region = both_ends.server.id().reg_msgs(memory);
    both_ends.server.id().post_recv(memory.data(), memory, region);
    both_ends.server.disconnect(20s);
    rdma::work_completion const flushed = both_ends.server.get_recv_comp(20s);
    CHECK(flushed.status() == rdma::wc_status::wr_flush_err);
    CHECK(flushed.wr_id() == reinterpret_cast<std::uintptr_t>(memory.data()));
    fake::fail("ibv_poll_cq", 1, EIO);
    CHECK(thrown([&] { both_ends.server.get_recv_comp(0ms); }) == rdma::errc::poll_failed);
    fake::fail("ibv_req_notify_cq", 1, ENOMEM);
    CHECK(thrown([&] { both_ends.server.get_send_comp(0ms); }) == std::errc::not_enough_memory);
}

TEST_CASE("endpoint: completions of CQs of the program's own, and of none, are not for it to wait on") {
    world w;
    rdma::endpoint without(first(leading_to()));
    rdma::cq cq(without.id().verbs(), 8);
    rdma::endpoint client(first(leading_to()), {.send_cq = cq});
    CHECK(thrown([&] { client.get_send_comp(); }) == rdma::errc::empty_handle);
    CHECK(thrown([&] { client.get_recv_comp(0ms); }) == std::errc::timed_out); // librdmacm made that one
    CHECK(thrown([&] { without.get_send_comp(); }) == rdma::errc::empty_handle);
    std::error_code ec;
    rdma::endpoint().get_recv_comp(ec);
    CHECK(ec == rdma::errc::empty_handle);
}

// ---- Requests -----------------------------------------------------------------------------------------------------

TEST_CASE("endpoint: a request, before anything is decided") {
    world w;
    rdma::endpoint listener = make_server();
    rdma::endpoint child = pushed_child(listener);
    CHECK(child.event().type() == type::connect_request);
    CHECK(child.event().listen_id() == listener.id());
    CHECK(child.event().id() == child.id());
    CHECK(text_of(child.event().private_data(), 6) == "pushed");
    CHECK(child.id().qp());
    CHECK(child.id().recv_cq_channel());
    CHECK(child.id().channel() != listener.id().channel());
    CHECK_FALSE(listener.event());
    child.accept({}, 20s);
    CHECK(child.event().type() == type::established);
    CHECK(fake::unacked(listener.id().native_handle()) == 0);
    CHECK(thrown([&] { child.accept(); }, "rdma_accept") == rdma::errc::not_a_request);
    CHECK(thrown([&] { child.reject(); }) == rdma::errc::not_a_request);
}

TEST_CASE("endpoint: the QPs of requests are as the listener was told, with what it was given kept alive") {
    world w;
    rdma::event_channel channel;
    rdma::cm_id bound = make_bound(channel);
    rdma::pd pd(bound.verbs());
    rdma::comp_channel completions(bound.verbs());
    rdma::cq cq(bound.verbs(), 64, completions);
    bound.create_srq(pd, {});
    ibv_pd* const raw_pd = pd.native_handle();
    ibv_cq* const raw_cq = cq.native_handle();
    ibv_srq* const raw_srq = bound.srq().native_handle();
    rdma::endpoint listener(first(listening()), {.send_cq = cq, .recv_cq = cq, .srq = bound.srq()}, pd);
    listener.listen();
    cq = {};
    completions = {};
    pd = {};
    bound = {};
    rdma::endpoint moved = std::move(listener); // and it takes along what it was told
    CHECK(fake::count("ibv_dealloc_pd") == 0);
    for (int i = 0; i != 2; ++i) {
        rdma::endpoint child = pushed_child(moved);
        CHECK(child.id().qp().native_handle()->pd == raw_pd);
        CHECK(child.id().qp().native_handle()->send_cq == raw_cq);
        CHECK(child.id().qp().native_handle()->srq == raw_srq);
        CHECK_FALSE(child.id().send_cq());
    }
    rdma::endpoint last = pushed_child(moved);
    moved = {};
    CHECK(fake::count("ibv_dealloc_pd") == 0);
    last = {};
    CHECK(fake::count("ibv_dealloc_pd", raw_pd) == 1);
}

TEST_CASE("endpoint: requests of a listener without QPs get theirs from the program") {
    world w;
    rdma::endpoint listener(first(listening()));
    listener.listen();
    rdma::endpoint child = pushed_child(listener);
    CHECK_FALSE(child.id().qp());
    child.id().create_qp({});
    child.accept({}, 20s);
    CHECK(child.event().type() == type::established);
}

TEST_CASE("endpoint: a request that fails is rejected, and leaks nothing") {
    for (char const* function : {"rdma_create_event_channel", "rdma_migrate_id", "rdma_create_qp", "rdma_get_cm_event"})
        for (bool throws : {false, true}) {
            world w;
            INFO(function << (throws ? ", throws" : ""));
            rdma::endpoint listener = make_server();
            rdma::event_channel channel;
            rdma::cm_id client = make_client(channel);
            client.create_qp({});
            client.connect();
            fake::fail(function, 1, EMFILE);
            std::error_code ec;
            if (throws)
                ec = thrown([&] { static_cast<void>(listener.get_request(20s)); }, "rdma_get_request");
            else
                CHECK_FALSE(listener.get_request(20s, ec));
            CHECK(ec == system_code(EMFILE));
            CHECK(fake::live().ids == 2);
            CHECK(fake::live().channels == 2);
            CHECK(fake::live().events == 0);
            if (function != std::string("rdma_get_cm_event"))
                expect(channel, type::rejected);
            else
                CHECK(listener.get_request(20s)); // it is still there
            CHECK(pushed_child(listener));        // the next one is none the worse
        }
}

TEST_CASE("endpoint: attributes that no device can have make every request fail, and the peers are rejected") {
    world w;
    rdma::endpoint listener(first(listening()), {.cap = {.max_recv_wr = 1 << 30}});
    listener.listen();
    for (int i = 0; i != 3; ++i) {
        rdma::event_channel channel;
        rdma::cm_id client = make_client(channel);
        client.create_qp({});
        client.connect();
        CHECK(thrown([&] { static_cast<void>(listener.get_request(20s)); }) == std::errc::invalid_argument);
        expect(channel, type::rejected);
        CHECK(fake::live().qps == 1);
        CHECK(fake::live().cqs == 2);
    }
}

TEST_CASE("endpoint: a refusal, with its private data") {
    for (char const* host : {rxe_host, siw_host})
        for (bool throws : {false, true}) {
            world w;
            both::watchdog const watch;
            INFO(host << (throws ? ", throws" : ""));
            rdma::endpoint listener = make_server(host);
            rdma::endpoint client = make_peer(host);
            auto serving =
                std::async(std::launch::async, [&] { listener.get_request(20s).reject(bytes("not today")); });
            std::error_code ec;
            if (throws)
                ec = thrown([&] { client.connect({}, 20s); }, std::string("rdma_connect(") + host + ":7471)");
            else
                client.connect({}, 20s, ec);
            serving.get();
            CHECK(ec == rdma::condition::refused);
            CHECK(client.event().type() == type::rejected);
            CHECK(text_of(client.event().private_data(), 9) == "not today");
        }
}

TEST_CASE("endpoint: a closed port, a connection that ends at once, a device that goes") {
    world w;
    for (char const* host : {rxe_host, siw_host}) {
        rdma::endpoint client = make_peer(host);
        CHECK(thrown([&] { client.connect({}, 20s); }) == rdma::condition::refused);
    }
    struct bad_news {
        int type;
        int status;
        std::error_code code;
    };
    for (bad_news const& each : {bad_news{RDMA_CM_EVENT_DISCONNECTED, 0, system_code(ECONNRESET)},
                                 bad_news{RDMA_CM_EVENT_CONNECT_ERROR, -1, rdma::errc::unspecified},
                                 bad_news{RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT, system_code(ETIMEDOUT)},
                                 bad_news{RDMA_CM_EVENT_DEVICE_REMOVAL, 0, system_code(ENODEV)}}) {
        INFO(to_string(static_cast<type>(each.type)));
        fake::set_silent("10.77.1.99");
        rdma::endpoint client = make_peer("10.77.1.99");
        rdma_cm_id* const raw = client.id().native_handle();
        fake::on_return("rdma_connect", [raw, &each] {
            fake::push(raw, {RDMA_CM_EVENT_ADDR_CHANGE});
            fake::push(raw, {each.type, each.status});
        });
        std::error_code ec;
        client.connect({}, 20s, ec);
        CHECK(ec == each.code);
        CHECK(client.event().type() == static_cast<type>(each.type));
    }
}

TEST_CASE("endpoint: when the listener's device goes") {
    world w;
    rdma::endpoint listener = make_server(), child = pushed_child(listener);
    fake::push_request(listener.id().native_handle());
    fake::remove_device("rxe0");
    std::error_code ec;
    CHECK_FALSE(listener.get_request(20s, ec));
    CHECK(ec == std::errc::no_such_device);
    child.accept({}, 20s, ec);
    CHECK(ec);
    listener = {};
    child = {};
}

TEST_CASE("endpoint: what cannot be is refused before C is called") {
    world w;
    rdma::endpoint listener = make_server(), child = pushed_child(listener), client = make_peer();
    std::string const much(256, 'x');
    CHECK(thrown([&] { client.connect(both::carrying(much)); }) == rdma::errc::private_data_too_long);
    CHECK(thrown([&] { child.accept(both::carrying(much)); }) == rdma::errc::private_data_too_long);
    CHECK(thrown([&] { child.reject(bytes(much)); }) == rdma::errc::private_data_too_long);
    CHECK(thrown([&] { client.accept(); }) == rdma::errc::not_a_request);
    CHECK(thrown([&] { client.reject(); }) == rdma::errc::not_a_request);
    rdma::endpoint empty;
    std::error_code ec;
    CHECK(thrown([&] { empty.listen(); }) == rdma::errc::empty_handle);
    CHECK(thrown([&] { static_cast<void>(empty.get_request()); }) == rdma::errc::empty_handle);
    CHECK(thrown([&] { empty.connect(); }, "rdma_connect(-)") == rdma::errc::empty_handle);
    CHECK(thrown([&] { empty.accept(); }) == rdma::errc::empty_handle);
    CHECK(thrown([&] { empty.reject(); }) == rdma::errc::empty_handle);
    CHECK(thrown([&] { empty.disconnect(); }) == rdma::errc::empty_handle);
    CHECK(thrown([&] { empty.get_send_comp(); }) == rdma::errc::empty_handle);
    CHECK_FALSE(empty.take_id());
    CHECK_FALSE(empty.event());
    CHECK(fake::count("rdma_connect") + fake::count("rdma_accept") + fake::count("rdma_reject") == 0);
    empty.listen(ec);
    CHECK(ec == rdma::errc::empty_handle);
}

// ---- Datagrams ----------------------------------------------------------------------------------------------------

TEST_CASE("endpoint: datagrams") {
    world w;
    both::watchdog const watch;
    constexpr auto udp = rdma::port_space::udp;
    rdma::endpoint listener = make_server(rxe_host, udp);
    std::array<std::byte, 64> received{};
    rdma::mr region;
    auto serving = std::async(std::launch::async, [&] {
        rdma::endpoint child = listener.get_request(20s);
        region = child.id().reg_msgs(received);
        child.id().post_recv(nullptr, received, region);
        child.accept(both::carrying("here")); // waits for nobody
        return child;
    });
    rdma::endpoint client = make_peer(rxe_host, udp);
    client.connect({}, 20s);
    rdma::endpoint server = serving.get();
    CHECK_FALSE(server.event());
    CHECK(client.event().type() == type::established);
    CHECK(text_of(client.event().private_data(), 4) == "here");
    rdma_ud_param const* const peer = client.event().ud_param();
    REQUIRE(peer);
    CHECK(peer->qp_num == server.id().qp().qp_num());
    rdma::ah const handle(client.id().pd(), client.event());
    std::array<std::byte, 8> message{};
    message.fill(std::byte{0x33});
    rdma::mr const mine = client.id().reg_msgs(message);
    client.id().post_ud_send(nullptr, message, mine, IBV_SEND_SIGNALED, handle, peer->qp_num);
    CHECK(client.get_send_comp(20s));
    rdma::work_completion const got = server.get_recv_comp(20s);
    CHECK(got.success().byte_len() == 8 + rdma::grh_size);
    CHECK(received[rdma::grh_size] == std::byte{0x33});

    std::size_t const before = fake::count("rdma_disconnect");
    client.disconnect(); // there is no connection
    server.disconnect();
    CHECK(fake::count("rdma_disconnect") == before);
}

TEST_CASE("endpoint: a refusal of datagrams") {
    world w;
    both::watchdog const watch;
    constexpr auto udp = rdma::port_space::udp;
    rdma::endpoint listener = make_server(rxe_host, udp), client = make_peer(rxe_host, udp);
    auto serving = std::async(std::launch::async, [&] { listener.get_request(20s).reject(bytes("no")); });
    CHECK(thrown([&] { client.connect({}, 20s); }) == rdma::condition::refused);
    serving.get();
    CHECK(client.event().type() == type::unreachable);
    CHECK(text_of(client.event().private_data(), 2) == "no");
}

// ---- Ending -------------------------------------------------------------------------------------------------------

TEST_CASE("endpoint: a listener and the endpoints of its requests are dropped in any order") {
    for (rdma::port_space ps : {rdma::port_space::tcp, rdma::port_space::udp})
        for (unsigned accepted = 0; accepted != 4; ++accepted) {
            std::array<int, 3> order{0, 1, 2};
            do {
                world w;
                INFO((ps == rdma::port_space::udp ? "UD" : "RC")
                     << ", accepted " << accepted << ", order " << order[0] << order[1] << order[2]);
                rdma::endpoint all[3];
                all[0] = make_server(rxe_host, ps);
                for (unsigned i = 0; i != 2; ++i) {
                    all[i + 1] = pushed_child(all[0]);
                    if ((accepted >> i & 1U) != 0)
                        all[i + 1].accept({}, 20s);
                }
                for (int which : order)
                    all[which] = {};
                CHECK(fake::leaks() == "");
                CHECK(fake::count("rdma_destroy_id") == 3);
            } while (std::next_permutation(order.begin(), order.end()));
        }
}

TEST_CASE("endpoint: a request that is held keeps the dropped listener's port, and its answer lets it go") {
    for (int how = 0; how != 3; ++how) {
        world w;
        INFO("way " << how);
        rdma::endpoint listener = make_server();
        rdma::endpoint child = pushed_child(listener);
        listener = {};
        std::error_code ec;
        CHECK_FALSE(rdma::endpoint(first(listening()), ec));
        CHECK(ec == std::errc::address_in_use);
        if (how == 0)
            child.accept({}, 20s);
        else if (how == 1)
            child = {};
        else
            child.id() = {};
        if (how != 2) {
            CHECK(rdma::endpoint(first(listening()), ec));
            CHECK_FALSE(ec);
        }
    }
}

TEST_CASE("endpoint: dropped, it tells the peer") {
    for (char const* host : {rxe_host, siw_host}) {
        world w;
        INFO(host);
        pair both_ends = make_pair(host);
        both_ends.server = {};
        both_ends.client.disconnect(20s);
        CHECK(both_ends.client.id().disconnected());
    }
}

TEST_CASE("endpoint: disconnected without ever having been connected") {
    world w;
    rdma::endpoint client = make_peer();
    CHECK(thrown([&] { client.disconnect(20s); }, "rdma_disconnect") == std::errc::invalid_argument);
    rdma::endpoint listener = make_server();
    rdma::endpoint child = pushed_child(listener);
    CHECK(child.event());
    std::error_code ec;
    child.disconnect(0ms, ec);
    CHECK(ec);
}

TEST_CASE("endpoint: its id goes on without it") {
    for (char const* host : {rxe_host, siw_host}) {
        world w;
        INFO(host);
        pair both_ends = make_pair(host);
        rdma::event_channel channel;
        rdma::cm_id id = both_ends.client.take_id();
        CHECK_FALSE(both_ends.client);
        CHECK_FALSE(both_ends.client.event());
        both_ends.client = {};
        id.migrate(channel);
        both_ends.server = {};
        expect(channel, type::disconnected);

        rdma::endpoint child = pushed_child(both_ends.listener);
        rdma::cm_id asked = child.take_id();
        asked.migrate(channel);
        asked.accept();
        while (next(channel, host == rxe_host ? type::timewait_exit : type::established).type() != type::established)
            host = "";
        host = asked.local_addr().host() == rxe_host ? rxe_host : siw_host;
        both_ends.listener = {};
    }
}

TEST_CASE("endpoint: moved, swapped, assigned over") {
    world w;
    rdma::endpoint listener = make_server();
    rdma::endpoint one = pushed_child(listener), two = pushed_child(listener);
    rdma_cm_id* const first = one.id().native_handle();
    rdma_cm_id* const second = two.id().native_handle();
    swap(one, two);
    CHECK(one.id().native_handle() == second);
    CHECK(two.id().native_handle() == first);
    CHECK(one.event().id() == one.id());
    one.accept({}, 20s);
    CHECK(one.event().type() == type::established);
    one = std::move(two);
    CHECK(fake::count("rdma_destroy_id", second) == 1);
    CHECK(one.id().native_handle() == first);
    CHECK_FALSE(two);
    rdma::endpoint& self = one;
    one = std::move(self);
    swap(one, self);
    CHECK(one.id().native_handle() == first);
    CHECK(one.event().type() == type::connect_request);
}

TEST_CASE("endpoint: extended reliable connections") {
    world w;
    both::watchdog const watch;
    fake::set_xrc(true);
    auto const hints = [](bool passive, rdma::address const& source) {
        return rdma::addrinfo_hints{.passive = passive,
                                    .port_space = rdma::port_space::ib,
                                    .qp_type = passive ? rdma::qp_type::xrc_recv : rdma::qp_type::xrc_send,
                                    .src_addr = source};
    };
    struct way {
        char const* host;
        rdma::address source; ///< None: the system chooses.
    };
    for (auto const& [host, source] : {way{rxe_host, {}}, way{"fd77:1::1", {}}, way{"fd77:1::1", {"fd77:1::2", 0}}}) {
        INFO(host);
        rdma::endpoint listener(first(rdma::addrinfo(host, "7471", hints(true, {}))), rdma::qp_init_attr{});
        listener.listen();
        rdma::endpoint client(first(rdma::addrinfo(host, "7471", hints(false, source))), rdma::qp_init_attr{});
        CHECK(client.id().qp_type() == rdma::qp_type::xrc_send);
        auto serving = std::async(std::launch::async, [&] {
            rdma::endpoint child = listener.get_request(20s);
            child.id().create_srq_ex({.type = rdma::srq_type::xrc});
            child.accept({}, 20s);
            return child;
        });
        client.connect({}, 20s);
        rdma::endpoint server = serving.get();
        CHECK(server.id().qp_type() == rdma::qp_type::xrc_recv);
        client.disconnect(20s);
        server.disconnect(20s);
    }
}

// ---- Each C function fails once, and each allocation --------------------------------------------------------------

namespace {

/// A client endpoint with a server that answers inside its rdma_connect, and a server endpoint with a client that
/// agrees to everything: on one thread. A server that fails is gone, and says so by `failure`.
class scenario {
public:
    explicit scenario(char const* host, bool throws) : host_(host), throws_(throws) {}
    scenario(scenario const&) = delete;
    scenario& operator=(scenario const&) = delete;
    ~scenario() { fake::clear_on_return(); }

    std::error_code run() {
        std::error_code ec;
        if (!throws_) {
            run_with_codes(ec);
        } else
            try {
                run_with_exceptions();
            } catch (rdma::error const& e) {
                ec = e.code();
            }
        return failure_ ? failure_ : ec;
    }

private:
    static constexpr auto nothing = [](rdma::cm_id&, std::error_code&) {};

    void serve() {
        fake::on_return("rdma_connect", [this] {
            std::error_code ec;
            std::optional<rdma::request> request = acceptor_.get_for(0ms, ec);
            if (request)
                answered_ = request->start_accept({.limit = 20s}, nothing, ec);
            if (!ec)
                return;
            failure_ = ec;
            request.reset();
            acceptor_ = {};
        });
    }

    void run_with_codes(std::error_code& ec) {
        rdma::addrinfo const to(host_, "7471", {.numeric_host = true}, ec);
        rdma::addrinfo const here =
            ec ? rdma::addrinfo() : rdma::addrinfo(host_, "7472", {.passive = true, .numeric_host = true}, ec);
        if (!ec)
            acceptor_ = rdma::acceptor(rdma::address(host_, 7471, ec), ec);
        serve();
        if (!ec)
            client_ = rdma::endpoint(to.front(), rdma::qp_init_attr{}, ec);
        if (!ec)
            client_.connect({}, 20s, ec);
        if (!ec)
            client_.get_send_comp(0ms, ec);
        if (ec == std::errc::timed_out)
            ec.clear();
        if (!ec)
            client_.disconnect(20s, ec);
        if (!ec)
            listener_ = rdma::endpoint(here.front(), rdma::qp_init_attr{}, {}, ec);
        if (!ec)
            listener_.listen(ec);
        for (rdma::endpoint* const each : {&child_, &other_}) {
            if (ec)
                return;
            fake::push_request(listener_.id().native_handle());
            *each = listener_.get_request(0ms, ec);
        }
        if (!ec)
            child_.accept({}, 0ms, ec);
        if (!ec)
            other_.reject(ec);
    }

    void run_with_exceptions() {
        rdma::addrinfo const to(host_, "7471", {.numeric_host = true});
        rdma::addrinfo const here(host_, "7472", {.passive = true, .numeric_host = true});
        acceptor_ = rdma::acceptor(rdma::address(host_, 7471));
        serve();
        client_ = rdma::endpoint(to.front(), rdma::qp_init_attr{});
        client_.connect({}, 20s);
        try {
            client_.get_send_comp(0ms);
        } catch (rdma::error const& e) {
            if (e.code() != std::errc::timed_out)
                throw;
        }
        client_.disconnect(20s);
        listener_ = rdma::endpoint(here.front(), rdma::qp_init_attr{}, {});
        listener_.listen();
        for (rdma::endpoint* const each : {&child_, &other_}) {
            fake::push_request(listener_.id().native_handle());
            *each = listener_.get_request(0ms);
        }
        child_.accept({}, 0ms);
        other_.reject();
    }

    char const* const host_;
    bool const throws_;
    std::error_code failure_;
    rdma::endpoint listener_, child_, other_;
    rdma::acceptor acceptor_;
    rdma::accepting answered_;
    rdma::endpoint client_;
};

/// Destroys, whose failure only the hook is told of, and calls that nobody asked for: the run may go through.
bool is_silent(std::string const& function) {
    for (char const* each : {"rdma_destroy_id", "ibv_destroy_qp", "ibv_destroy_cq", "ibv_destroy_comp_channel",
                             "rdma_disconnect", "rdma_reject", "ibv_modify_qp", "rdma_set_option", "rdma_get_devices"})
        if (function == each)
            return true;
    return false;
}

} // namespace

TEST_CASE("endpoint: each C function of its life fails once, from end to end") {
    world w;
    w.messy();
    both::watchdog const watch(120s);
    for (char const* host : {rxe_host, siw_host})
        for (bool throws : {false, true})
            for (unsigned nth = 1;; ++nth) {
                fake::reset();
                diagnostics::get().clear();
                fake::fail_any(nth);
                std::error_code const ec = scenario(host, throws).run();
                fake::failure const fault = fake::failed();
                fake::disarm();
                INFO(host << (throws ? ", throws" : "") << ", fault " << nth << " in " << fault.function);
                CHECK(fake::would_hang() == std::vector<std::string>{});
                CHECK(fake::live().events == 0);
                if (diagnostics::get().count(rdma::diagnostic_kind::destroy_failed) != 0) {
                    CHECK(fault.function.find("_destroy_") != std::string::npos);
                } else {
                    CHECK(fake::leaks() == "");
                    CHECK(fake::misuse() == std::vector<std::string>{});
                }
                if (fault.function.empty()) {
                    CHECK_FALSE(ec);
                    CHECK(nth > 50); // it was really played
                    break;
                }
                if (!ec)
                    CHECK(is_silent(fault.function));
                else if (fault.function == "ibv_poll_cq")
                    CHECK(ec == rdma::errc::poll_failed);
                else
                    CHECK(ec == system_code(fault.code));
            }
}

TEST_CASE("endpoint: each allocation of its life fails once, from end to end") {
    RDMACPP_NEED_ALLOCATIONS();
    world w;
    both::watchdog const watch(120s);
    for (char const* host : {rxe_host, siw_host})
        for (std::size_t nth = 1;; ++nth) {
            fake::reset();
            diagnostics::get().clear();
            std::error_code ec;
            {
                scenario whole(host, false);
                allocation_watch const failing(nth);
                ec = whole.run();
            }
            INFO(host << ", allocation " << nth);
            CHECK(fake::leaks() == "");
            CHECK(fake::misuse() == std::vector<std::string>{});
            CHECK(fake::would_hang() == std::vector<std::string>{});
            if (!allocation_struck()) {
                CHECK_FALSE(ec);
                CHECK(nth > 20);
                break;
            }
            if (ec)
                CHECK(ec == std::errc::not_enough_memory);
        }
}
