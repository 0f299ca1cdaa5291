// SPDX-License-Identifier: MIT
// Ten thousand connections asked for and accepted on one channel and one thread, while calls fail, peers refuse,
// clients are stopped or dropped, and servers' ids vanish, all at random: each has one outcome, and nothing is left.
// RDMACPP_TEST_SEED=N in the environment runs it with another seed; the seed is printed.
#include "async.hpp"

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <random>

using namespace unit;

namespace {

enum outcome : unsigned { none, connected, rejected, canceled, destroyed, lost, failed, count_of_outcomes };

struct crowd {
    any_kind loop;
    async::event_channel channel{loop};
    std::mt19937 random;
    std::vector<outcome> outcomes;
    std::size_t told_twice = 0;
    std::size_t refused = 0, accepted = 0, not_accepted = 0, dropped = 0, asked = 0; ///< what became of requests
    std::size_t in_flight = 0;

    crowd(loop_kind on, std::size_t clients, unsigned seed) : loop(on), random(seed), outcomes(clients, none) {}

    bool one_in(unsigned n) { return random() % n == 0; }
    void end(std::size_t client, outcome how) {
        told_twice += outcomes[client] != none;
        outcomes[client] = how;
        --in_flight;
    }
    std::size_t ended(outcome how) const {
        return static_cast<std::size_t>(std::count(outcomes.begin(), outcomes.end(), how));
    }
};

outcome meaning_of(std::error_code ec) {
    if (!ec)
        return connected;
    if (ec == std::errc::operation_canceled)
        return canceled;
    if (ec.category() == rdma::reject_category())
        return rejected;
    return ec == std::errc::connection_reset || ec == std::errc::connection_refused ? lost : failed;
}

/// What tells how it ended also when it is destroyed.
struct teller {
    crowd& all;
    std::size_t client;
    outcome how = destroyed;
    teller(crowd& of, std::size_t number) : all(of), client(number) { ++all.in_flight; }
    teller(teller const&) = delete;
    teller& operator=(teller const&) = delete;
    ~teller() { all.end(client, how); }
};

task<> client(crowd& all, std::size_t number, std::stop_token stop) {
    teller end(all, number);
    std::error_code ec;
    rdma::connect_options const how{.limit = 1h, .stop = stop};
    async::cm_id id = co_await async::connect(all.channel, rdma::address(rxe_host, 7471), how, ec);
    end.how = meaning_of(ec);
    if (!ec && number % 2 == 0) {
        end.how = destroyed; // if it is now
        co_await id.disconnect(1h, ec);
        end.how = connected;
    }
}

task<> serve(crowd& all, rdma::cm_id undecided) {
    std::error_code ec;
    rdma::accept_options const how{.limit = 1h};
    async::cm_id id = co_await async::accept(all.channel, std::move(undecided), how, ec);
    ++(ec ? all.not_accepted : all.accepted);
    while (!ec && !id.is_over())
        static_cast<void>(co_await id.next(ec));
}

task<> listen(crowd& all, async::acceptor const& acceptor, std::vector<task<>>& sessions) {
    for (;;) {
        std::error_code ec;
        async::request asked = co_await acceptor.next(ec);
        if (ec == rdma::errc::empty_handle)
            co_return;
        if (ec)
            continue; // the channel could not be read: it is asked again
        ++all.asked;
        rdma::cm_id undecided = asked.take_id();
        if (all.one_in(10)) {
            ++all.refused;
            undecided.reject({}, ec);
            continue;
        }
        sessions.push_back(serve(all, std::move(undecided)));
        sessions.back().start();
    }
}

/// One of those, at random, is destroyed.
void drop_one(crowd& all, std::vector<task<>>& of) {
    if (of.empty())
        return;
    std::swap(of[all.random() % of.size()], of.back());
    of.pop_back();
}
void drop_done(std::vector<task<>>& of) {
    std::erase_if(of, [](task<> const& each) { return each.done(); });
}

void fail_something(crowd& all) {
    static constexpr struct {
        char const* function;
        int code;
    } faults[] = {{"rdma_create_id", ENOMEM},     {"rdma_resolve_addr", EADDRNOTAVAIL},
                  {"rdma_resolve_route", ENOMEM}, {"rdma_create_qp", ENOMEM},
                  {"rdma_connect", ENOMEM},       {"rdma_accept", EINVAL},
                  {"rdma_reject", EINVAL},        {"rdma_disconnect", EINVAL},
                  {"rdma_get_cm_event", EINTR},   {"ibv_create_comp_channel", EMFILE},
                  {"ibv_create_cq", ENOMEM}};
    auto const& chosen = faults[all.random() % std::size(faults)];
    fake::fail(chosen.function, 1 + static_cast<unsigned>(all.random() % 20), chosen.code);
}

void run(loop_kind on, std::size_t clients, unsigned seed) {
    world w;
    INFO(name_of(on) << ", seed " << seed);
    {
        crowd all(on, clients, seed);
        async::acceptor acceptor(all.channel, rdma::address(rxe_host, 7471), {.backlog = 1024});
        std::vector<task<>> sessions, asking;
        std::vector<std::stop_source> stops;
        task<> listening = listen(all, acceptor, sessions);
        listening.start();
        fake::set_manual(true); // what follows from a call comes some turns later
        std::size_t begun = 0, quiet = 0;
        while (begun != clients || all.in_flight != 0) {
            for (int wave = 0; wave != 20 && begun != clients && all.in_flight < 500; ++wave, ++begun) {
                std::stop_source stop;
                asking.push_back(client(all, begun, stop.get_token()));
                asking.back().start();
                if (begun % 10 == 7) // these are stopped at some time, and others, below, destroyed
                    stops.push_back(std::move(stop));
            }
            for (auto steps = begun == clients ? 1'000 : all.random() % 160; steps != 0 && fake::step(); --steps)
                ;
            if (all.one_in(2))
                all.loop.turn();
            while (stops.size() > 20) {
                std::swap(stops[all.random() % stops.size()], stops.back());
                stops.back().request_stop();
                stops.pop_back();
            }
            drop_one(all, asking);
            drop_one(all, sessions);
            if (all.one_in(2))
                drop_one(all, sessions);
            if (begun != clients && all.one_in(4))
                fail_something(all);
            if (begun == clients)
                fake::disarm();
            all.loop.turn();
            drop_done(asking);
            drop_done(sessions);
            quiet = begun == clients ? quiet + 1 : 0;
            REQUIRE(quiet < 5'000); // somebody waits for what never comes
        }
        std::size_t sum = 0;
        std::cout << "# async_scale: " << name_of(on) << ", seed " << seed << ":";
        for (unsigned how = connected; how != count_of_outcomes; ++how) {
            sum += all.ended(static_cast<outcome>(how));
            std::cout << ' ' << all.ended(static_cast<outcome>(how));
        }
        std::cout << " connected, rejected, canceled, destroyed, lost, failed; " << all.asked << " requests\n";
        CHECK(sum == clients);
        CHECK(all.told_twice == 0);
        for (outcome each : {connected, rejected, canceled, destroyed, failed})
            CHECK(all.ended(each) > 0);
        CHECK(all.ended(canceled) > clients / 50);
        CHECK(all.refused > all.asked / 20);
        asking.clear();
        listening = {};
        sessions.clear();
        acceptor = {};
        all.loop.turns(10);
        auto const stats = all.channel.stats();
        CHECK(stats.events_got == stats.events_acked);
        CHECK(stats.events_held == 0);
        CHECK(fake::live().ids == 0);
    }
}

unsigned seed_of_this_run() {
    char const* const given = std::getenv("RDMACPP_TEST_SEED"); // NOLINT: no thread is running
    return given ? static_cast<unsigned>(std::strtoul(given, nullptr, 10)) : 20'061u;
}

} // namespace

// All of them under ThreadSanitizer, too, which has one thread to look at.
TEST_CASE("scale: each of 10 000 connects and accepts on one channel has one outcome", "[async]") {
    run(loop_kind::epoll, 10'000, seed_of_this_run());
}
TEST_CASE("scale: the same, polled, and edge-triggered", "[async]") {
    run(loop_kind::polling, 1'000, seed_of_this_run());
    run(loop_kind::edge, 1'000, seed_of_this_run());
}
TEST_CASE("scale: 10 000 on each loop, with ten seeds", "[.long]") {
    for (loop_kind const on : every_kind)
        for (unsigned seed = 0; seed != 10; ++seed)
            run(on, 10'000, seed_of_this_run() + seed);
}
