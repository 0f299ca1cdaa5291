// SPDX-License-Identifier: MIT
// What the plain functions promise about limits, kept by what is awaited: one deadline over all steps, no time at all,
// all the time in the world, a stop on another thread, and the step that a report names.
#include "async.hpp"

#include <algorithm>
#include <thread>

using namespace unit;
using rdma::connect_step;

namespace {

task<> connect(async::event_channel const& channel, rdma::connect_options const& how, async::cm_id& id,
               std::error_code& ec) {
    id = co_await async::connect(channel, rdma::address(rxe_host, 7471), how, ec);
}
task<> next(async::cm_id const& id, async::limits within, std::error_code& ec) {
    static_cast<void>(co_await id.next(within, ec));
}

/// One attempt on a loop of this kind, until it is over.
struct attempt {
    any_kind loop;
    async::event_channel channel{loop};
    rdma::event_channel plain;
    rdma::cm_id listener = make_listener(plain);
    rdma::connect_report report;
    async::cm_id id;
    std::error_code ec;

    explicit attempt(loop_kind on) : loop(on) {}
    void run(rdma::connect_options how) {
        how.report = &report;
        task<> work = connect(channel, how, id, ec);
        work.start();
        loop.until([&] { return work.done(); }, 10'000'000);
    }
};

void take_time(std::chrono::milliseconds span) {
    for (auto const begun = std::chrono::steady_clock::now(); std::chrono::steady_clock::now() - begun < span;)
        ;
}

/// What is called before a step, whose event never comes if nothing comes by itself from there on.
struct {
    connect_step step;
    char const* before;
} const steps[] = {{connect_step::resolve_addr, "rdma_create_id"},
                   {connect_step::resolve_route, "rdma_resolve_addr"},
                   {connect_step::connect, "rdma_create_qp"}};

} // namespace

TEST_CASE("limits: late in each step, which the report names", "[async]") {
    for (loop_kind const on : every_kind)
        for (auto const& [step, before] : steps) {
            world w;
            INFO(name_of(on) << ", " << to_string(step));
            attempt a(on);
            fake::on_return(before, [] { fake::set_manual(true); });
            a.run({.limit = 5ms});
            CHECK(a.ec == std::errc::timed_out);
            CHECK(a.report.step == step);
            CHECK(fake::live().ids == 1); // the listener
        }
}

TEST_CASE("limits: without any time nothing is begun", "[async]") {
    for (loop_kind const on : every_kind)
        for (auto limit : {0ms, -1ms}) {
            world w;
            attempt a(on);
            a.run({.limit = limit});
            CHECK(a.ec == std::errc::timed_out);
            CHECK(a.report.step == connect_step::resolve_addr);
            CHECK(fake::count("rdma_resolve_addr") == 0);
            async::cm_id id(a.channel, rdma::port_space::tcp);
            std::error_code ec;
            task<> step = [](async::cm_id const& of, std::chrono::milliseconds span, std::error_code& e) -> task<> {
                co_await of.resolve_addr(rdma::address(rxe_host, 7471), span, e);
            }(id, limit, ec);
            step.start();
            CHECK(ec == std::errc::timed_out);
            CHECK(fake::count("rdma_resolve_addr") == 0);
        }
}

TEST_CASE("limits: one deadline for all steps together, also where a call takes the time", "[async]") {
    for (loop_kind const on : every_kind) {
        world w;
        INFO(name_of(on));
        attempt a(on);
        for (char const* function : {"rdma_resolve_addr", "rdma_resolve_route", "rdma_create_qp"})
            fake::on_return(function, [] { take_time(10ms); }); // each alone is in time
        a.run({.limit = 25ms});
        CHECK(a.ec == std::errc::timed_out);
        CHECK(fake::count("rdma_connect") == 0);
        CHECK(fake::live().ids == 1);
    }
}

TEST_CASE("limits: stopped in a call, the next step is not begun", "[async]") {
    for (loop_kind const on : every_kind)
        for (char const* function : {"rdma_resolve_addr", "rdma_resolve_route", "rdma_create_qp"}) {
            world w;
            INFO(name_of(on) << ", " << function);
            attempt a(on);
            std::stop_source stop;
            fake::on_return(function, [&] { stop.request_stop(); });
            a.run({.limit = 1h, .stop = stop.get_token()});
            CHECK(a.ec == std::errc::operation_canceled);
            CHECK(fake::count("rdma_connect") == 0);
            CHECK(fake::live().ids == 1);
        }
}

TEST_CASE("limits: stopped before it begins", "[async]") {
    for (loop_kind const on : every_kind) {
        world w;
        attempt a(on);
        std::stop_source stop;
        stop.request_stop();
        a.run({.stop = stop.get_token()});
        CHECK(a.ec == std::errc::operation_canceled);
        CHECK(a.report.step == connect_step::resolve_addr);
        CHECK(fake::count("rdma_resolve_addr") == 0);
    }
}

TEST_CASE("limits: waits that are given the same share its deadline", "[async]") {
    for (loop_kind const on : every_kind) {
        world w;
        INFO(name_of(on));
        any_kind loop(on);
        async::event_channel channel(loop);
        async::cm_id id(channel, make_bound(rdma::event_channel()));
        async::limits const both = 10ms;
        std::error_code first, second, third;
        task<> one = next(id, both, first);
        one.start();
        take_time(10ms);
        task<> two = next(id, both, second), three = next(id, 1h, third);
        two.start();
        CHECK(two.done()); // there is no time left for it
        three.start();
        loop.until([&] { return one.done(); }, 10'000'000);
        CHECK(first == std::errc::timed_out);
        CHECK(second == std::errc::timed_out);
        CHECK_FALSE(three.done());
    }
}

TEST_CASE("limits: deadlines in any order end in theirs", "[async]") {
    for (loop_kind const on : every_kind) {
        world w;
        INFO(name_of(on));
        any_kind loop(on);
        async::event_channel channel(loop);
        async::cm_id id(channel, make_bound(rdma::event_channel()));
        std::vector<int> order;
        async::tasks all;
        for (int const ms : {3, 1, 4, 2, 5})
            all.spawn([](async::cm_id const& of, int span, std::vector<int>& ended) -> task<> {
                std::error_code ec;
                static_cast<void>(co_await of.next(std::chrono::milliseconds(span), ec));
                ended.push_back(span);
                CHECK(ec == std::errc::timed_out);
            }(id, ms, order));
        loop.until([&] { return order.size() == 5; }, 10'000'000);
        CHECK(std::is_sorted(order.begin(), order.end()));
    }
}

TEST_CASE("limits: all the time there is", "[async]") {
    for (loop_kind const on : every_kind) {
        world w;
        any_kind loop(on);
        async::event_channel channel(loop);
        async::cm_id id(channel, make_bound(rdma::event_channel()));
        std::error_code ec;
        task<> waiting = next(id, std::chrono::hours::max(), ec);
        waiting.start();
        loop.turns(3);
        CHECK_FALSE(waiting.done());
        fake::push(id->native_handle(), {RDMA_CM_EVENT_ADDR_CHANGE});
        loop.until([&] { return waiting.done(); }, 20);
        CHECK_FALSE(ec);
    }
}

TEST_CASE("limits: a disconnect that is late or stopped is one all the same", "[async]") {
    for (loop_kind const on : every_kind)
        for (bool stopped : {false, true}) {
            world w;
            INFO(name_of(on) << (stopped ? ", stopped" : ", late"));
            any_kind loop(on);
            async::event_channel channel(loop);
            two_ends pair(channel);
            fake::set_manual(true);
            std::stop_source stop;
            if (stopped)
                stop.request_stop();
            std::error_code ec;
            task<> ending = [](async::cm_id const& id, async::limits within, std::error_code& e) -> task<> {
                co_await id.disconnect(within, e);
            }(pair.client, stopped ? async::limits(stop.get_token()) : async::limits(0ms), ec);
            ending.start();
            CHECK(ending.done());
            CHECK(ec == (stopped ? std::errc::operation_canceled : std::errc::timed_out));
            CHECK(fake::count("rdma_disconnect") == 1);
            while (fake::step())
                ;
            expect(pair.plain, type::disconnected);
        }
}

TEST_CASE("limits: an accept without time has accepted, and ended it", "[async]") {
    for (loop_kind const on : every_kind) {
        world w;
        any_kind loop(on);
        async::event_channel channel(loop);
        rdma::event_channel servers, clients;
        rdma::cm_id const listener = make_listener(servers);
        rdma::cm_id client = make_client(clients);
        client.create_qp({});
        client.connect();
        rdma::cm_id asked = unit::next(servers, type::connect_request).take_id();
        rdma::connect_report report;
        std::error_code ec;
        task<> accepting = [](async::event_channel const& on_this, rdma::cm_id undecided, rdma::connect_report& r,
                              std::error_code& e) -> task<> {
            rdma::accept_options const how{.limit = 0ms, .report = &r};
            async::cm_id const id = co_await async::accept(on_this, std::move(undecided), how, e);
            CHECK_FALSE(id);
        }(channel, std::move(asked), report, ec);
        accepting.start();
        CHECK(accepting.done());
        CHECK(ec == std::errc::timed_out);
        CHECK(report.step == connect_step::accept);
        expect(clients, type::connect_error);
    }
}

TEST_CASE("limits: stopped on another thread, at any moment", "[async]") {
    for (loop_kind const on : {loop_kind::epoll, loop_kind::polling})
        for (int round = 0; round != 50; ++round) {
            world w;
            any_kind loop(on);
            async::event_channel channel(loop);
            async::cm_id id(channel, make_bound(rdma::event_channel()));
            std::stop_source stop;
            std::error_code ec[4];
            async::tasks all;
            std::thread stopping([&] {
                for (int i = 0; i != round; ++i)
                    std::this_thread::yield();
                stop.request_stop();
            });
            for (std::error_code& each : ec)
                all.spawn(next(id, {1h, stop.get_token()}, each));
            loop.until([&] { return all.size() == 0; }, 100'000'000);
            stopping.join();
            for (std::error_code const& each : ec)
                CHECK(each == std::errc::operation_canceled);
        }
}

TEST_CASE("limits: destroyed while another thread stops it", "[async]") {
    for (loop_kind const on : {loop_kind::epoll, loop_kind::polling})
        for (int round = 0; round != 50; ++round) {
            world w;
            any_kind loop(on);
            async::event_channel channel(loop);
            async::cm_id id(channel, make_bound(rdma::event_channel()));
            std::stop_source stop;
            std::error_code ec;
            task<> waiting = next(id, stop.get_token(), ec);
            waiting.start();
            std::thread stopping([&] { stop.request_stop(); });
            for (int i = 0; i != round; ++i)
                std::this_thread::yield();
            waiting = {};
            id = {};
            channel = {};
            stopping.join();
            loop.turns(2);
        }
}

TEST_CASE("limits: a loop is stopped on another thread", "[async]") {
    for (int round = 0; round != 50; ++round) {
        world w;
        rdma::epoll_loop loop;
        async::event_channel channel(loop);
        async::cm_id id(channel, make_bound(rdma::event_channel()));
        std::error_code ec;
        task<> waiting = next(id, {}, ec);
        waiting.start();
        std::thread stopping([&] { loop.stop(); });
        loop.run();
        stopping.join();
        CHECK_FALSE(waiting.done());
    }
}
