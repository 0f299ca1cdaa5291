// SPDX-License-Identifier: MIT
// rping's two roles in one process, against the fake librdmacm and libibverbs.
#include "rping/connection.hpp"
#include "rping/rping.hpp"

#include <catch.hpp>
#include <fake/fake.hpp>

#include <chrono>
#include <future>
#include <optional>
#include <string>
#include <thread>
#include <vector>

using namespace std::chrono_literals;
using rdmacpp_test::contains;

namespace {

/// Before and after each case: nothing is left over, and nothing was done that the C libraries do not forgive.
struct clean_world {
    clean_world() { fake::reset(); }
    clean_world(clean_world const&) = delete;
    clean_world& operator=(clean_world const&) = delete;
    ~clean_world() {
        CHECK(fake::leaks() == "");
        CHECK(fake::misuse() == std::vector<std::string>{});
        CHECK(fake::would_hang() == std::vector<std::string>{});
        fake::reset();
    }
};

/// A server at work on a thread of its own. get() gives how it ended.
struct running_server {
    explicit running_server(rping::options const& wanted) : server(wanted) {
        std::packaged_task<void(std::stop_token)> task([this](std::stop_token stop) { server.run(std::move(stop)); });
        ended = task.get_future();
        thread = std::jthread(std::move(task));
    }
    void get() {
        thread.join();
        ended.get();
    }

    rping::server server;
    std::future<void> ended;
    std::jthread thread;
};

rping::options at(rdma::address const& address) {
    rping::options wanted;
    wanted.address = address;
    return wanted;
}

rping::options client_of(running_server const& peer, std::uint32_t count, std::size_t size = 64) {
    rping::options wanted = at(peer.server.address());
    wanted.count = count;
    wanted.size = size;
    wanted.validate = true;
    return wanted;
}

/// A connected client that follows no protocol.
struct wild_client {
    rdma::event_channel channel;
    rdma::cm_id id{channel, rdma::port_space::tcp};
    std::optional<rping::connection> server;
    rdma::pd_ref pd;

    explicit wild_client(rdma::address const& to) {
        id.resolve_addr(to);
        expect(rdma::cm_event_type::addr_resolved);
        id.resolve_route();
        expect(rdma::cm_event_type::route_resolved);
        pd = id.pd();
        server.emplace(std::move(id));
        server->connect();
        expect(rdma::cm_event_type::established);
    }
    void expect(rdma::cm_event_type wanted) const {
        auto const event = channel.get_for(5s);
        REQUIRE(event.has_value());
        REQUIRE(event->type() == wanted);
    }
};

/// What the server says of a client that does this, and then leaves.
template <class Act>
std::string complaint_about(char const* host, Act act) {
    running_server server(at(rdma::address(host, 7174)));
    {
        wild_client client(server.server.address());
        act(client);
    }
    try {
        server.get();
    } catch (std::exception const& e) {
        return e.what();
    }
    return "none";
}

/// Waits until this function of C has been called so often from now on.
void wait_for_calls(char const* function, std::size_t more) {
    for (std::size_t const wanted = fake::count(function) + more; fake::count(function) < wanted;)
        std::this_thread::yield();
}

constexpr char const* device_addresses[] = {"10.77.1.1", "10.77.2.1"};

} // namespace

TEST_CASE("pings of every size cross, on every device and by every kind of address") {
    clean_world const world;
    for (char const* host : {"10.77.1.1", "10.77.2.1", "fd77:1::1", "fd77:2::1", "fe80::77:1%71", "fe80::77:2%72"})
        for (std::size_t const size : {rping::min_size, std::size_t{64}, std::size_t{4096}, rping::max_size}) {
            CAPTURE(host, size);
            rping::options wanted = at(rdma::address(host, 7174));
            wanted.size = size;
            running_server server(wanted);
            CHECK_NOTHROW(rping::run_client(client_of(server, 20, size), {}));
            CHECK_NOTHROW(server.get());
        }
}

TEST_CASE("either end may manage its QP itself") {
    clean_world const world;
    for (char const* host : device_addresses)
        for (bool const at_server : {false, true})
            for (bool const at_client : {false, true}) {
                CAPTURE(host, at_server, at_client);
                rping::options wanted = at(rdma::address(host, 7174));
                wanted.self_managed = at_server;
                running_server server(wanted);
                wanted = client_of(server, 20);
                wanted.self_managed = at_client;
                std::size_t const before = fake::count("rdma_create_qp");
                CHECK_NOTHROW(rping::run_client(wanted, {}));
                CHECK_NOTHROW(server.get());
                CHECK(fake::count("rdma_create_qp") == before + !at_server + !at_client);
            }
}

TEST_CASE("a persistent server serves clients at the same time and one after the other, until it is stopped") {
    clean_world const world;
    for (char const* host : device_addresses) {
        CAPTURE(host);
        rping::options wanted = at(rdma::address(host, 7174));
        wanted.persistent = true;
        wanted.size = 4096;
        running_server server(wanted);
        for (int round = 0; round != 3; ++round) {
            std::vector<std::future<void>> clients;
            for (std::size_t size : {23U, 64U, 1000U, 4096U})
                clients.push_back(std::async(std::launch::async,
                                             [&server, size] { rping::run_client(client_of(server, 50, size), {}); }));
            for (std::future<void>& client : clients)
                CHECK_NOTHROW(client.get());
        }
        server.thread.request_stop();
        CHECK_THROWS_AS(server.get(), rping::stopped);
    }
}

TEST_CASE("a persistent server survives clients that it cannot serve") {
    clean_world const world;
    rping::options wanted = at(rdma::address("10.77.1.1", 7174));
    wanted.persistent = true;
    running_server server(wanted);
    CHECK_THROWS_WITH(rping::run_client(client_of(server, 1, 65), {}), contains("middle of a ping"));
    CHECK_NOTHROW(rping::run_client(client_of(server, 1, 64), {}));
    server.thread.request_stop();
    CHECK_THROWS_AS(server.get(), rping::stopped);
}

TEST_CASE("a server for one client says why it failed") {
    clean_world const world;
    using client = wild_client;
    for (char const* host : device_addresses) {
        CAPTURE(host);
        CHECK(complaint_about(host, [](client&) {}) == "none");

        CHECK_THAT(complaint_about(host,
                                   [](client& c) {
                                       rping::buffer const data(c.pd, 65, rdma::access::remote_read);
                                       rping::buffer const notice(c.pd, rping::message(data.region));
                                       c.server->send(notice);
                                       c.expect(rdma::cm_event_type::disconnected);
                                   }),
                   contains("have 65 bytes, more than 64"));

        CHECK_THAT(complaint_about(host,
                                   [](client& c) {
                                       rping::buffer const nonsense(c.pd, 8, rdma::access::none);
                                       c.server->send(nonsense);
                                       c.expect(rdma::cm_event_type::disconnected);
                                   }),
                   contains("a message of 8 bytes"));

        CHECK_THAT(complaint_about(host,
                                   [](client& c) {
                                       rping::buffer const locked(c.pd, 64, rdma::access::none);
                                       rping::buffer const notice(c.pd, rping::message(locked.region));
                                       c.server->send(notice);
                                       c.expect(rdma::cm_event_type::disconnected);
                                   }),
                   contains("a request failed"));

        CHECK_THAT(complaint_about(host,
                                   [](client& c) {
                                       rping::buffer const data(c.pd, 64, rdma::access::remote_read);
                                       rping::buffer const notice(c.pd, rping::message(data.region));
                                       c.server->send(notice);
                                       REQUIRE(c.server->receive({}).has_value());
                                   }),
                   contains("middle of a ping"));
    }
}

TEST_CASE("a server for one client rejects the second") {
    clean_world const world;
    for (char const* host : device_addresses) {
        CAPTURE(host);
        running_server server(at(rdma::address(host, 7174)));
        {
            wild_client const first(server.server.address());
            CHECK_THROWS_WITH(rping::run_client(client_of(server, 1), {}), contains("REJECTED"));
        }
        CHECK_NOTHROW(server.get());
    }
}

TEST_CASE("a client says why it failed") {
    clean_world const world;
    for (char const* host : device_addresses) {
        CAPTURE(host);
        CHECK_THROWS_WITH(rping::run_client(at(rdma::address(host, 7174)), {}),
                          contains("nobody listens") || contains("Connection refused")); // iWARP, from the call itself

        // A server that is stopped takes its clients along.
        rping::options wanted = at(rdma::address(host, 7174));
        wanted.persistent = true;
        running_server server(wanted);
        auto endless = std::async(std::launch::async, [&server] { rping::run_client(client_of(server, 0), {}); });
        wait_for_calls("ibv_post_send", 8); // two pings: it is connected
        server.thread.request_stop();
        CHECK_THROWS_AS(server.get(), rping::stopped);
        CHECK_THROWS_WITH(endless.get(), contains("middle of a ping") || contains("a request failed")); // as it comes
    }
    CHECK_THROWS_AS(rping::run_client(at(rdma::address("192.0.2.1", 7174)), {}), std::runtime_error);
}

TEST_CASE("a client that is stopped leaves the server in order") {
    clean_world const world;
    for (char const* host : device_addresses) {
        CAPTURE(host);
        running_server server(at(rdma::address(host, 7174)));
        std::stop_source stop;
        auto endless =
            std::async(std::launch::async, [&] { rping::run_client(client_of(server, 0), stop.get_token()); });
        wait_for_calls("ibv_post_send", 8);
        stop.request_stop();
        CHECK_THROWS_AS(endless.get(), rping::stopped);
        CHECK(server.ended.wait_for(5s) == std::future_status::ready); // either way, as the moment was
    }
}
