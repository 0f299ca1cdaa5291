// SPDX-License-Identifier: MIT
// Accepting: a range of requests, each with an outcome of its own, also with many in flight.
#include "allocations.hpp"
#include "both/support.hpp"
#include "support.hpp"

#include <algorithm>
#include <functional>
#include <future>
#include <optional>
#include <stdexcept>
#include <stop_token>
#include <thread>

#include <poll.h>

using namespace unit;
using both::bytes;
using rdma::connect_step;

namespace {

rdma::address at(char const* host, int port = 7471) { return rdma::address(host, port); }

std::error_code system_code(int code) { return {code, std::system_category()}; }

/// Who asks for a connection, on a channel of its own.
struct asker {
    rdma::cm_id id;
    rdma::event_channel channel;

    void expect(type wanted) { unit::expect(channel, wanted); }
};

asker ask(char const* host, std::string_view text = "", rdma::port_space ps = rdma::port_space::tcp) {
    asker one;
    one.id = make_id(one.channel, ps);
    one.id.resolve_addr(at(host));
    one.expect(type::addr_resolved);
    one.id.resolve_route();
    one.expect(type::route_resolved);
    one.id.create_qp({});
    one.id.connect(both::carrying(text));
    return one;
}

std::string text_of(std::span<std::byte const> data, std::size_t size) {
    return {reinterpret_cast<char const*>(data.data()), std::min(size, data.size())};
}

bool is_readable(int fd) {
    pollfd watched{fd, POLLIN, 0};
    return ::poll(&watched, 1, 0) == 1;
}

} // namespace

TEST_CASE("acceptor: a range of requests") {
    for (char const* host : {rxe_host, siw_host}) {
        world w;
        both::watchdog const watch;
        INFO(host);
        rdma::acceptor acceptor(at(host));
        CHECK(acceptor.local_addr() == at(host));
        CHECK_FALSE(is_readable(acceptor.fd()));
        std::vector<asker> clients;
        for (char const* name : {"one", "two", "six"})
            clients.push_back(ask(host, name));
        CHECK(is_readable(acceptor.fd()));

        std::vector<std::string> seen;
        std::vector<rdma::accepting> started;
        for (rdma::request request : acceptor) { // waits; so it is left by break
            CHECK(request);
            CHECK(request.local_addr() == at(host));
            CHECK(request.peer_addr() == clients[seen.size()].id.local_addr());
            CHECK(request.event().listen_id() == acceptor.id());
            seen.push_back(text_of(request.event().private_data(), 3));
            started.push_back(request.start_accept());
            CHECK_FALSE(request);
            if (seen.size() == 3)
                break;
        }
        CHECK(seen == std::vector<std::string>{"one", "two", "six"});
        for (asker& client : clients)
            client.expect(type::established);
        rdma::event_channel channel;
        for (rdma::accepting& each : started)
            CHECK(each.get(channel).channel() == rdma::event_channel_ref(channel));
        CHECK_FALSE(acceptor.try_get());
    }
}

TEST_CASE("acceptor: every other form of getting") {
    world w;
    rdma::acceptor acceptor(at(rxe_host));
    rdma_cm_id* const listener = acceptor.id().native_handle();
    std::error_code ec;
    CHECK_FALSE(acceptor.try_get());
    CHECK_FALSE(acceptor.get_for(1ms));
    CHECK_FALSE(acceptor.get_until(std::chrono::system_clock::now()));
    std::stop_source stopped;
    stopped.request_stop();
    CHECK_FALSE(acceptor.get(stopped.get_token()));
    for (rdma::request request : acceptor.events(stopped.get_token()))
        FAIL("a request");
    for (int i = 0; i != 7; ++i)
        fake::push_request(listener);
    CHECK(acceptor.get());
    CHECK(acceptor.get(ec));
    CHECK(acceptor.try_get(ec));
    CHECK(acceptor.get_for(1h, ec));
    CHECK(acceptor.get(std::stop_token(), ec));
    int left = 0;
    for (rdma::request request : acceptor.pending(ec))
        left += request ? 1 : 0;
    CHECK(left == 2);
    CHECK_FALSE(ec);
}

TEST_CASE("acceptor: what does not concern its requests is passed over, and acked") {
    world w;
    both::watchdog const watch;
    rdma::acceptor acceptor(at(rxe_host));
    rdma_cm_id* const listener = acceptor.id().native_handle();
    fake::push(listener, {RDMA_CM_EVENT_ADDR_CHANGE});
    CHECK_FALSE(acceptor.try_get());
    fake::push(listener, {RDMA_CM_EVENT_ADDR_CHANGE});
    CHECK_FALSE(acceptor.get_for(1ms));
    fake::push(listener, {77});
    fake::push_request(listener, "hi", 2);
    fake::push(listener, {RDMA_CM_EVENT_ADDR_CHANGE});
    rdma::request request = acceptor.get();
    CHECK(text_of(request.event().private_data(), 2) == "hi");
    CHECK(fake::live().events == 1);
    for (rdma::request other : acceptor.pending())
        FAIL("a request");
    CHECK(fake::queued(acceptor.id().channel().native_handle()) == 0);
}

TEST_CASE("acceptor: several accepts in flight, and each ESTABLISHED reaches its own waiter") {
    for (char const* host : {rxe_host, siw_host}) {
        world w;
        both::watchdog const watch;
        INFO(host);
        rdma::acceptor acceptor(at(host));
        rdma::event_channel channel;
        std::vector<asker> clients;
        std::vector<rdma::accepting> started;
        for (int i = 0; i != 4; ++i) {
            clients.push_back(ask(host));
            started.push_back(acceptor.get().start_accept({.param = both::carrying(std::to_string(i))}));
        }
        bool const waits = host == rxe_host; // for the client, who has to get its answer first
        for (std::size_t i : {2U, 0U, 3U, 1U}) {
            CHECK(is_readable(started[i].fd()) == !waits);
            rdma::cm_event const answer = next(clients[i].channel, type::established);
            CHECK(text_of(answer.private_data(), 1) == std::to_string(i));
            CHECK(is_readable(started[i].fd()));
            rdma::cm_id const id = started[i].get(channel);
            CHECK(id.peer_addr() == clients[i].id.local_addr());
            CHECK_FALSE(started[i]);
            clients[i].id.disconnect();
            CHECK(next(channel, type::disconnected).id() == id);
        }
    }
}

TEST_CASE("acceptor: one that fails never fails another") {
    world w;
    both::watchdog const watch;
    rdma::acceptor acceptor(at(rxe_host));
    rdma::event_channel channel;
    std::vector<asker> clients;
    std::vector<rdma::accepting> started;
    for (int i = 0; i != 5; ++i) {
        clients.push_back(ask(rxe_host));
        rdma::request request = acceptor.get();
        if (i == 3) {
            fake::fail("rdma_accept", 1, ENOSPC);
            CHECK(thrown([&] { static_cast<void>(request.start_accept()); }, "rdma_accept") == system_code(ENOSPC));
            started.emplace_back();
        } else
            started.push_back(request.start_accept());
    }
    clients[1].id = {}; // it has not got its answer
    fake::push(started[2].id().native_handle(), {RDMA_CM_EVENT_CONNECT_ERROR, -ENETUNREACH});
    clients[0].expect(type::established);
    clients[3].expect(type::rejected);
    clients[4].expect(type::established);

    std::error_code ec;
    CHECK_FALSE(started[2].get(channel, ec));
    CHECK(ec == system_code(ENETUNREACH));
    CHECK(thrown([&] { static_cast<void>(started[1].get(channel)); }, "rdma_accept") == rdma::condition::refused);
    CHECK(started[4].get(channel));
    CHECK(started[0].get(channel));
    clients[0].expect(type::disconnected); // with the temporary
    clients[4].expect(type::disconnected);
}

TEST_CASE("acceptor: accepting on many threads, asked by many") {
    world w;
    both::watchdog const watch(60s);
    fake::set_reuse_addresses(true);
    constexpr int clients = 4, servers = 3, rounds = 30;
    rdma::acceptor acceptor(at(rxe_host));
    rdma::event_channel channel;
    std::atomic<int> failed{0}, mixed_up{0}, served{0};
    std::stop_source stop;
    std::vector<std::jthread> serving;
    for (int i = 0; i != servers; ++i)
        serving.emplace_back([&] {
            std::error_code ended, ec;
            for (rdma::request request : acceptor.events(stop.get_token(), ended)) {
                rdma::private_data const asked = request.event().copy_private_data();
                rdma::cm_id const id = request.accept(channel, {.param = {.private_data = asked}}, ec);
                failed += ec ? 1 : 0;
                served += 1;
            }
            failed += ended ? 1 : 0;
        });
    {
        std::vector<std::jthread> asking;
        for (int i = 0; i != clients; ++i)
            asking.emplace_back([&, i] {
                for (int round = 0; round != rounds; ++round) {
                    int const number = i * rounds + round;
                    rdma::connect_report report;
                    std::error_code ec;
                    rdma::conn_param param;
                    param.private_data = std::as_bytes(std::span(&number, 1));
                    rdma::cm_id const id =
                        rdma::connect({}, at(rxe_host), {.limit = 30s, .param = param, .report = &report}, ec);
                    failed += ec ? 1 : 0;
                    mixed_up += std::memcmp(report.reply.data(), &number, sizeof number) != 0;
                }
            });
    }
    while (served != clients * rounds)
        std::this_thread::yield();
    stop.request_stop();
    serving.clear();
    CHECK(failed == 0);
    CHECK(mixed_up == 0);
    for (rdma::cm_event event : channel.pending()) // of connections that ended first
        CHECK((event.type() == type::disconnected || event.type() == type::timewait_exit));
}

TEST_CASE("acceptor: accept in one call waits for the client") {
    for (char const* host : {rxe_host, siw_host}) {
        world w;
        both::watchdog const watch;
        INFO(host);
        rdma::acceptor acceptor(at(host));
        asker client = ask(host);
        auto answered = std::async(std::launch::async, [&] { return client.channel.get_for(20s); });
        rdma::event_channel channel;
        std::array<std::byte, 4> memory{};
        rdma::mr region;
        rdma::connect_report report;
        rdma::cm_id id =
            acceptor.get().accept(channel, {.qp = {.cap = {.max_recv_wr = 5}}, .report = &report}, [&](auto& mine) {
                CHECK(fake::count("rdma_accept") == 0);
                region = mine.reg_msgs(memory);
                mine.post_recv(nullptr, memory, region);
            });
        auto const event = answered.get();
        REQUIRE(event);
        CHECK(event->type() == type::established);
        CHECK(id.channel() == rdma::event_channel_ref(channel));
        CHECK(report.step == connect_step::migrate);
        CHECK(fake::live().channels == 3);
    }
}

TEST_CASE("acceptor: without a channel the accepted id keeps its own") {
    world w;
    both::watchdog const watch;
    rdma::acceptor acceptor(at(siw_host));
    asker client = ask(siw_host);
    rdma::connect_report report;
    rdma::cm_id id = acceptor.get().accept({}, {.report = &report});
    CHECK(report.step == connect_step::accept);
    client.expect(type::established);
    rdma::disconnect(id, 10s);
    client.expect(type::disconnected);
}

TEST_CASE("acceptor: the outcome without waiting") {
    world w;
    both::watchdog const watch;
    rdma::acceptor acceptor(at(rxe_host));
    asker client = ask(rxe_host);
    rdma::event_channel channel;
    rdma::accepting started = acceptor.get().start_accept({.limit = 1h});
    CHECK_FALSE(started.try_get(channel)); // not yet
    CHECK(started);
    client.expect(type::established);
    rdma::cm_id const id = started.try_get(channel);
    CHECK(id);
    CHECK_FALSE(started);
    CHECK(started.fd() == -1);
    CHECK(started.report().step == connect_step::migrate);
    CHECK(thrown([&] { static_cast<void>(started.try_get(channel)); }) == rdma::errc::empty_handle);
    CHECK(thrown([&] { static_cast<void>(started.get(channel)); }) == rdma::errc::empty_handle);
}

TEST_CASE("acceptor: the outcome without waiting may be that there will be none") {
    struct bad_news {
        int type;
        int status;
        std::error_code code;
    };
    bad_news const all[] = {
        {RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT, system_code(ETIMEDOUT)}, // the client never answered
        {RDMA_CM_EVENT_CONNECT_ERROR, -1, rdma::errc::unspecified},
        {RDMA_CM_EVENT_REJECTED, 28, rdma::reject_reason::consumer_defined},
        {RDMA_CM_EVENT_DISCONNECTED, 0, system_code(ECONNRESET)},
        {RDMA_CM_EVENT_DEVICE_REMOVAL, 0, system_code(ENODEV)},
    };
    for (bad_news const& each : all)
        for (bool throws : {false, true}) {
            world w;
            INFO(to_string(static_cast<type>(each.type)) << (throws ? ", throws" : ""));
            rdma::acceptor acceptor(at(rxe_host));
            asker client = ask(rxe_host);
            rdma::accepting started = acceptor.get().start_accept({.limit = 1h});
            fake::push(started.id().native_handle(), {RDMA_CM_EVENT_ADDR_CHANGE});
            fake::push(started.id().native_handle(), {each.type, each.status});
            std::error_code ec;
            rdma::cm_id id;
            if (throws)
                ec = thrown([&] { id = started.try_get({}); }, "rdma_accept");
            else
                id = started.try_get({}, ec);
            CHECK(ec == each.code);
            CHECK_FALSE(id);
            CHECK_FALSE(started);
        }
}

TEST_CASE("acceptor: late, in each form") {
    world w;
    both::watchdog const watch;
    rdma::acceptor acceptor(at(rxe_host));
    asker clients[] = {ask(rxe_host), ask(rxe_host), ask(rxe_host)};
    rdma::event_channel channel;
    rdma::accepting started = acceptor.get().start_accept({.limit = 1ms});
    std::error_code ec;
    while (!ec)
        CHECK_FALSE(started.try_get(channel, ec));
    CHECK(ec == std::errc::timed_out);
    CHECK_FALSE(started);
    rdma::connect_report report;
    CHECK(thrown([&] { static_cast<void>(acceptor.get().accept(channel, {.limit = 1ms, .report = &report})); },
                 "rdma_accept") == std::errc::timed_out);
    CHECK(report.step == connect_step::accept);
    CHECK_FALSE(acceptor.get().accept(channel, {.limit = 0ms}, ec));
    CHECK(ec == std::errc::timed_out);
    for (asker& each : clients) // the server is gone: there is no connection
        each.expect(type::connect_error);
    CHECK(fake::live().ids == 4);
    CHECK(fake::live().channels == 5);
}

TEST_CASE("acceptor: stopped, in each form") {
    world w;
    both::watchdog const watch;
    rdma::acceptor acceptor(at(rxe_host));
    asker clients[] = {ask(rxe_host), ask(rxe_host), ask(rxe_host)};
    std::stop_source stop;
    rdma::accepting started = acceptor.get().start_accept({.limit = 1h, .stop = stop.get_token()});
    CHECK_FALSE(started.try_get({}));
    std::jthread const stopping([&] {
        while (fake::count("rdma_accept") != 2)
            std::this_thread::yield();
        stop.request_stop();
    });
    std::error_code ec;
    CHECK_FALSE(acceptor.get().accept({}, {.limit = 1h, .stop = stop.get_token()}, ec));
    CHECK(ec == std::errc::operation_canceled);
    CHECK(thrown([&] { static_cast<void>(started.try_get({})); }) == std::errc::operation_canceled);
    CHECK_FALSE(started);
    CHECK(thrown([&] { static_cast<void>(acceptor.get().accept({}, {.stop = stop.get_token()})); }) ==
          std::errc::operation_canceled);
    CHECK(fake::live().ids == 4);
}

TEST_CASE("acceptor: a request that is dropped is rejected") {
    for (char const* host : {rxe_host, siw_host}) {
        world w;
        INFO(host);
        rdma::acceptor acceptor(at(host));
        asker clients[] = {ask(host), ask(host)};
        for (rdma::request request : acceptor.pending())
            CHECK(request);
        for (asker& each : clients)
            CHECK(next(each.channel, type::rejected).error() == rdma::condition::refused);
        CHECK(w.told(rdma::diagnostic_kind::request_rejected) == 2);
    }
}

TEST_CASE("acceptor: a request is rejected with private data") {
    for (char const* host : {rxe_host, siw_host}) {
        world w;
        INFO(host);
        rdma::acceptor acceptor(at(host));
        asker clients[] = {ask(host), ask(host), ask(host)};
        rdma::request request = acceptor.get();
        request.reject(bytes("full"));
        CHECK_FALSE(request);
        CHECK(thrown([&] { request.reject(); }, "rdma_reject(0 bytes)") == rdma::errc::empty_handle);
        rdma::cm_event const event = next(clients[0].channel, type::rejected);
        CHECK(text_of(event.private_data(), 4) == "full");
        CHECK(event.error() == rdma::condition::refused);

        std::string const much(256, 'x');
        CHECK(thrown([&] { acceptor.get().reject(bytes(much)); }) == rdma::errc::private_data_too_long);
        clients[1].expect(type::rejected); // all the same
        std::error_code ec;
        acceptor.get().reject(ec);
        CHECK_FALSE(ec);
        clients[2].expect(type::rejected);
    }
}

TEST_CASE("acceptor: an accept that is dropped ends the connection") {
    for (char const* host : {rxe_host, siw_host}) {
        world w;
        INFO(host);
        rdma::acceptor acceptor(at(host));
        asker client = ask(host);
        {
            rdma::accepting const started = acceptor.get().start_accept();
            CHECK(started.fd() >= 0);
        }
        if (host == siw_host)
            client.expect(type::established); // there the server needs no answer
        client.expect(host == siw_host ? type::disconnected : type::connect_error);
        CHECK(fake::live().ids == 2);
    }
}

TEST_CASE("acceptor: an accept that is moved, and assigned over") {
    world w;
    both::watchdog const watch;
    rdma::acceptor acceptor(at(siw_host));
    asker clients[] = {ask(siw_host), ask(siw_host)};
    rdma::accepting one = acceptor.get().start_accept({.limit = 1h});
    rdma::accepting other = acceptor.get().start_accept({.limit = 1h});
    for (asker& each : clients)
        each.expect(type::established);
    rdma::accepting moved = std::move(one);
    CHECK_FALSE(one);
    CHECK(one.fd() == -1);
    moved = std::move(other); // the first connection is over
    clients[0].expect(type::disconnected);
    CHECK(moved.get({}).peer_addr() == clients[1].id.local_addr());
    rdma::accepting const empty;
    CHECK(empty.fd() == -1);
}

TEST_CASE("acceptor: datagrams are accepted at once, since nobody tells more of them") {
    world w;
    rdma::acceptor acceptor(at(rxe_host), {.port_space = rdma::port_space::udp});
    rdma::event_channel channel;
    asker clients[] = {ask(rxe_host, "", rdma::port_space::udp), ask(rxe_host, "", rdma::port_space::udp),
                       ask(rxe_host, "", rdma::port_space::udp)};
    rdma::cm_id const one = acceptor.get().accept(channel, {.limit = 0ms});
    rdma::accepting started = acceptor.get().start_accept();
    rdma::cm_id const two = started.try_get(channel);
    acceptor.get().reject(bytes("no"));
    CHECK(two.channel() == rdma::event_channel_ref(channel));
    rdma::cm_event const event = next(clients[0].channel, type::established);
    CHECK(event.ud_param()->qp_num == one.qp().qp_num());
    clients[1].expect(type::established);
    clients[2].expect(type::unreachable);
}

TEST_CASE("acceptor: dropped while its requests are held, which go on") {
    for (char const* host : {rxe_host, siw_host}) {
        world w;
        both::watchdog const watch;
        INFO(host);
        rdma::acceptor acceptor(at(host));
        asker clients[] = {ask(host), ask(host), ask(host)};
        rdma::request first = acceptor.get(), second = acceptor.get();
        acceptor = {};
        CHECK(acceptor.fd() == -1);
        std::error_code ec;
        CHECK_FALSE(rdma::acceptor(at(host), ec));
        CHECK(ec == std::errc::address_in_use); // the requests keep the port

        rdma::accepting started = first.start_accept();
        clients[0].expect(type::established);
        CHECK(started.get({}));
        CHECK_FALSE(rdma::acceptor(at(host), ec));
        second = {};
        clients[1].expect(type::rejected);
        clients[2].expect(type::rejected); // nobody had got it, and now nobody can
        CHECK(rdma::acceptor(at(host), ec));
        CHECK_FALSE(ec);
    }
}

TEST_CASE("acceptor: dropped while accepts are in flight, which go on") {
    world w;
    both::watchdog const watch;
    rdma::event_channel channel;
    asker client;
    rdma::accepting started;
    {
        rdma::acceptor acceptor(at(rxe_host));
        client = ask(rxe_host);
        started = acceptor.get().start_accept();
    }
    CHECK(rdma::acceptor(at(rxe_host)).fd() >= 0); // the port is free
    client.expect(type::established);
    CHECK(started.get(channel));
}

TEST_CASE("acceptor: a waiting range ends with the object") {
    world w;
    both::watchdog const watch;
    std::optional<rdma::acceptor> acceptor(std::in_place, at(rxe_host));
    std::atomic<int> requests{0};
    std::atomic<bool> waiting{false};
    auto range = acceptor->events();
    std::jthread const iterating([&] {
        waiting = true;
        for (rdma::request request : range)
            ++requests;
    });
    while (!waiting)
        std::this_thread::yield();
    acceptor.reset();
    CHECK(requests == 0);
}

TEST_CASE("acceptor: it can be moved, also under a range") {
    world w;
    rdma::acceptor acceptor(at(rxe_host));
    rdma_cm_id* const listener = acceptor.id().native_handle();
    rdma::acceptor other(at(siw_host));
    swap(acceptor, other);
    CHECK(other.id().native_handle() == listener);
    CHECK(acceptor.local_addr() == at(siw_host));
    fake::push_request(listener);
    auto range = other.events();
    auto turn = range.begin();
    rdma::acceptor last = std::move(other);
    CHECK_FALSE(static_cast<bool>(other));
    CHECK_FALSE(turn == std::default_sentinel);
    rdma::request const request = *turn;
    CHECK(request.event().listen_id() == last.id());
    acceptor = std::move(last); // stops listening where it did
    CHECK(acceptor.local_addr() == at(rxe_host));
    std::error_code ec;
    CHECK(rdma::acceptor(at(siw_host), ec));
    CHECK_FALSE(ec);
}

TEST_CASE("acceptor: an empty one") {
    world w;
    rdma::acceptor acceptor;
    std::error_code ec;
    CHECK_FALSE(static_cast<bool>(acceptor));
    CHECK(acceptor.fd() == -1);
    CHECK(acceptor.local_addr() == rdma::address());
    CHECK(thrown([&] { static_cast<void>(acceptor.get()); }) == rdma::errc::empty_handle);
    CHECK_FALSE(acceptor.try_get(ec));
    CHECK(ec == rdma::errc::empty_handle);
    rdma::request request;
    CHECK(request.peer_addr() == rdma::address());
    CHECK(request.local_addr() == rdma::address());
    CHECK(thrown([&] { static_cast<void>(request.accept({})); }) == rdma::errc::empty_handle);
    CHECK_FALSE(request.start_accept({}, ec));
    CHECK(ec == rdma::errc::empty_handle);
    CHECK(calls_made() == 0);
}

TEST_CASE("acceptor: where it listens, and how") {
    world w;
    rdma::acceptor any(rdma::address("10.77.1.1", 0), {.backlog = 1});
    int const port = any.local_addr().port();
    CHECK(port != 0);
    auto const connect_there = [&] {
        asker one;
        one.id = make_client(one.channel, rxe_host, port);
        one.id.create_qp({});
        one.id.connect();
        return one;
    };
    asker first = connect_there(), second = connect_there();
    second.expect(type::rejected); // the backlog is one
    CHECK(any.get());
    first.expect(type::rejected);

    std::error_code ec;
    CHECK_FALSE(rdma::acceptor(rdma::address::any_v4(port), ec));
    CHECK(ec == std::errc::address_not_available);
    rdma::acceptor const v6(rdma::address::any_v6(9000), {.af_only = true});
    rdma::acceptor const v4(rdma::address::any_v4(9000), {.af_only = true}); // beside the other
    CHECK(v4.fd() >= 0);
    rdma::acceptor shared(at(rxe_host, 9001), {.reuse_addr = true});
    CHECK(fake::count("rdma_set_option", shared.id().native_handle()) == 1);
    CHECK(thrown([&] { static_cast<void>(rdma::acceptor(at(rxe_host, 9001))); }, "rdma_bind_addr(10.77.1.1:9001)") ==
          std::errc::address_in_use);
}

TEST_CASE("acceptor: each C function that fails on opening, in both forms") {
    for (char const* function :
         {"rdma_create_event_channel", "rdma_create_id", "rdma_set_option", "rdma_bind_addr", "rdma_listen"})
        for (bool throws : {false, true}) {
            world w;
            INFO(function << (throws ? ", throws" : ""));
            fake::fail(function, 1, EMFILE);
            std::error_code ec;
            if (throws)
                ec = thrown([] { static_cast<void>(rdma::acceptor(at(rxe_host), {.af_only = true})); }, function);
            else {
                rdma::acceptor const acceptor(at(rxe_host), {.reuse_addr = true}, ec);
                CHECK(acceptor.fd() == -1);
                CHECK_FALSE(static_cast<bool>(acceptor));
            }
            CHECK(ec == system_code(EMFILE));
            CHECK(fake::leaks() == "");
        }
}

TEST_CASE("acceptor: each C function that fails on accepting is named by its step, in both forms") {
    struct fault {
        char const* function;
        unsigned nth;
        connect_step step;
        char const* named;
    };
    for (fault const& each : {fault{"rdma_create_event_channel", 1, connect_step::create_id, "rdma_create_id"},
                              fault{"rdma_migrate_id", 1, connect_step::migrate, "rdma_migrate_id"},
                              fault{"rdma_create_qp", 1, connect_step::create_qp, "rdma_create_qp"},
                              fault{"rdma_accept", 1, connect_step::accept, "rdma_accept"},
                              fault{"rdma_get_cm_event", 1, connect_step::accept, "rdma_accept"},
                              fault{"rdma_migrate_id", 2, connect_step::migrate, "rdma_migrate_id"}})
        for (bool throws : {false, true}) {
            world w;
            both::watchdog const watch;
            INFO(each.function << ' ' << each.nth << (throws ? ", throws" : ""));
            rdma::event_channel channel;
            rdma::acceptor acceptor(at(siw_host));
            asker client = ask(siw_host);
            rdma::request request = acceptor.get();
            fake::fail(each.function, each.nth, EMFILE);
            rdma::connect_report report;
            std::error_code ec;
            if (throws) {
                try {
                    static_cast<void>(request.accept(channel, {.report = &report}));
                } catch (rdma::connect_error const& e) {
                    ec = e.code();
                    CHECK(e.step() == each.step);
                    CHECK(e.function() == std::string(each.named));
                }
            } else
                CHECK_FALSE(request.accept(channel, {.report = &report}, ec));
            CHECK(ec == system_code(EMFILE));
            CHECK(to_string(report.step) == to_string(each.step));
            CHECK_FALSE(request);
            CHECK(fake::live().ids == 2);
            CHECK(fake::live().channels == 3);
            CHECK(fake::live().qps == 1);
            bool const was_connected = each.nth == 2 || each.function == std::string("rdma_get_cm_event");
            if (was_connected)
                client.expect(type::established);
            client.expect(was_connected ? type::disconnected : type::rejected);
        }
}

TEST_CASE("acceptor: what the program prepares may fail, and the peer is rejected") {
    world w;
    rdma::acceptor acceptor(at(rxe_host));
    asker client = ask(rxe_host);
    rdma::request request = acceptor.get();
    rdma::connect_report report;
    SECTION("with a code") {
        std::error_code ec;
        auto const fails = [](rdma::cm_id& id, std::error_code& why) {
            CHECK(id.qp());
            why = std::make_error_code(std::errc::no_buffer_space);
        };
        CHECK_FALSE(request.accept({}, {.report = &report}, fails, ec));
        CHECK(ec == std::errc::no_buffer_space);
    }
    SECTION("with an exception of its own") {
        auto const fails = [](rdma::cm_id&) { throw std::domain_error("no room"); };
        CHECK_THROWS_AS(request.accept({}, {.report = &report}, fails), std::domain_error);
    }
    SECTION("with an exception of its own, on its way") {
        auto const fails = [](rdma::cm_id&) { throw std::domain_error("no room"); };
        CHECK_THROWS_AS(request.start_accept({.report = &report}, fails), std::domain_error);
    }
    CHECK(report.step == connect_step::create_qp);
    client.expect(type::rejected);
    CHECK(fake::count("rdma_accept") == 0);
    CHECK(fake::live().ids == 2);
}

TEST_CASE("acceptor: what cannot be is refused before C is called, and the peer is rejected") {
    world w;
    rdma::acceptor acceptor(at(siw_host));
    std::string const much(252, 'x');
    asker clients[] = {ask(siw_host), ask(siw_host), ask(siw_host)};
    CHECK(thrown([&] { static_cast<void>(acceptor.get().accept({}, {.param = both::carrying(much)})); },
                 "rdma_accept") == rdma::errc::private_data_iwarp);
    CHECK(thrown([&] { static_cast<void>(acceptor.get().accept({}, {.param = {.rnr_retry_count = 8}})); }) ==
          rdma::errc::retry_count_out_of_range);
    CHECK(thrown([&] { static_cast<void>(acceptor.get().accept({}, {.qp = {.cap = {.max_recv_sge = 1 << 20}}})); }) ==
          std::errc::invalid_argument);
    CHECK(fake::count("rdma_accept") == 0);
    for (asker& each : clients)
        each.expect(type::rejected);
}

TEST_CASE("acceptor: a request by hand") {
    world w;
    rdma::acceptor acceptor(at(siw_host));
    asker clients[] = {ask(siw_host), ask(siw_host)};
    rdma::request request = acceptor.get();
    rdma::cm_id id = request.event().take_id(); // on the acceptor's channel
    CHECK(id.channel() == acceptor.id().channel());
    CHECK(thrown([&] { static_cast<void>(request.accept({})); }) == rdma::errc::no_id_to_take);
    CHECK(is_idle(clients[0].channel));
    request = acceptor.get();
    rdma::cm_event event = std::move(request.event());
    CHECK_FALSE(request);
    id = event.take_id();
    clients[0].expect(type::rejected);
    id.reject();
    clients[1].expect(type::rejected);
}

TEST_CASE("acceptor: when its device goes, the range ends with an error") {
    for (bool throws : {false, true}) {
        world w;
        both::watchdog const watch;
        INFO((throws ? "throws" : "with a code"));
        rdma::acceptor acceptor(at(rxe_host));
        asker client = ask(rxe_host);
        fake::push_request(acceptor.id().native_handle());
        rdma::request held = acceptor.get();
        fake::remove_device("rxe0"); // the second request was not got: nobody will
        int requests = 0;
        std::error_code ec;
        if (throws)
            ec = thrown(
                [&] {
                    for (rdma::request request : acceptor)
                        ++requests;
                },
                "rdma_get_cm_event");
        else
            for (rdma::request request : acceptor.events(ec))
                ++requests;
        CHECK(ec == std::errc::no_such_device);
        CHECK(requests == 0);
        CHECK(fake::live().events == 1);
        CHECK_FALSE(held.accept({}, {}, ec));
        CHECK(ec);
        acceptor = {};
        held = {};
    }
}

TEST_CASE("acceptor: when its device goes, each form of getting says so") {
    for (int form = 0; form != 4; ++form) {
        world w;
        both::watchdog const watch;
        INFO("form " << form);
        rdma::acceptor acceptor(at(rxe_host));
        fake::remove_device("rxe0");
        std::error_code ec;
        switch (form) {
        case 0: CHECK_FALSE(acceptor.try_get(ec)); break;
        case 1: CHECK_FALSE(acceptor.get_for(1h, ec)); break;
        case 2: CHECK_FALSE(acceptor.get(ec)); break;
        default:
            for (rdma::request request : acceptor.pending(ec))
                FAIL("a request");
        }
        CHECK(ec == std::errc::no_such_device);
        CHECK(fake::live().events == 0);
        CHECK_FALSE(acceptor.try_get(ec)); // told once
        CHECK_FALSE(ec);
    }
}

TEST_CASE("acceptor: when another device goes, nothing happens to it, nor to a wildcard") {
    world w;
    rdma::acceptor one(at(siw_host)), any(rdma::address::any_v6(7472));
    fake::remove_device("rxe0");
    CHECK_FALSE(one.try_get());
    CHECK_FALSE(any.try_get());
    asker client = ask(siw_host);
    CHECK(one.try_get());
    client.expect(type::rejected);
}

// ---- Each C function fails once, and each allocation --------------------------------------------------------------

namespace {

/// A connection by connect() and by an acceptor, its end by disconnect(): on one thread, as the server answers inside
/// the client's rdma_connect. A server that fails is gone, and says so by `failure`.
class scenario {
public:
    explicit scenario(char const* host, bool throws) : at_(host, 7471), throws_(throws) {}
    scenario(scenario const&) = delete;
    scenario& operator=(scenario const&) = delete;
    ~scenario() { fake::clear_on_return(); }

    std::error_code run() {
        if (!throws_)
            return run_with_codes();
        try {
            run_with_exceptions();
        } catch (rdma::error const& e) {
            return failure ? failure : e.code();
        }
        return failure;
    }

private:
    static constexpr auto nothing = [](rdma::cm_id&, std::error_code&) {};

    void serve() {
        fake::on_return("rdma_connect", [this] {
            std::error_code ec;
            std::optional<rdma::request> request = acceptor_.get_for(0ms, ec);
            if (request)
                started_ = request->start_accept({.limit = 20s}, nothing, ec);
            if (!ec)
                return;
            failure = ec;
            request.reset();
            acceptor_ = {};
        });
    }

    std::error_code run_with_codes() {
        std::error_code ec;
        acceptor_ = rdma::acceptor(at_, {.reuse_addr = true}, ec);
        if (!ec)
            channel_ = rdma::event_channel(ec);
        serve();
        if (!ec)
            client_ = rdma::connect(channel_, at_, {.limit = 20s}, nothing, ec);
        if (!ec)
            server_ = started_.get(channel_, ec);
        if (!ec)
            rdma::disconnect(server_, 20s, ec);
        return failure ? failure : ec;
    }

    void run_with_exceptions() {
        acceptor_ = rdma::acceptor(at_, {.reuse_addr = true});
        channel_ = rdma::event_channel();
        serve();
        client_ = rdma::connect(channel_, at_, {.limit = 20s}, [](rdma::cm_id&) {});
        server_ = started_.get(channel_);
        rdma::disconnect(server_, 20s);
    }

    rdma::address const at_;
    bool const throws_;
    std::error_code failure;
    rdma::accepting started_;
    rdma::cm_id server_, client_;
    rdma::event_channel channel_{rdma::no_init};
    rdma::acceptor acceptor_;
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

TEST_CASE("acceptor: each C function of a connection fails once, from end to end") {
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
                    CHECK(nth > 30); // it was really played
                    break;
                }
                if (ec)
                    CHECK(ec == system_code(fault.code));
                else
                    CHECK(is_silent(fault.function));
            }
}

TEST_CASE("acceptor: each allocation of a connection fails once, from end to end") {
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
                CHECK(nth > 10);
                break;
            }
            if (ec)
                CHECK(ec == std::errc::not_enough_memory);
        }
}
