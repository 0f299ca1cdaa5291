// SPDX-License-Identifier: MIT
// The loops, tasks, and what sources owe to those that wait: order, no wake-up lost, nothing in a turn that is gone.
#include "async.hpp"

#include <stdexcept>

using namespace unit;

namespace {

/// A callback that runs a function of the case.
struct calling {
    std::function<void()> run;
    int times = 0;

    calling() = default;
    explicit calling(std::function<void()> what) : run(std::move(what)) {}
    async::callback call() {
        return {[](void* self) {
                    auto& me = *static_cast<calling*>(self);
                    ++me.times;
                    if (me.run)
                        me.run();
                },
                this};
    }
};

/// A descriptor that is readable when it is told to.
struct signal_fd {
    int fd = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    signal_fd() = default;
    signal_fd(signal_fd const&) = delete;
    signal_fd& operator=(signal_fd const&) = delete;
    ~signal_fd() { ::close(fd); }
    void set() const { CHECK(::eventfd_write(fd, 1) == 0); }
    void clear() const {
        eventfd_t all = 0;
        ::eventfd_read(fd, &all);
    }
};

ibv_wc completion(std::uint64_t id) {
    ibv_wc wc{};
    wc.wr_id = id;
    return wc;
}

/// A completion queue of the program's own numbers, on a loop.
struct numbers {
    any_kind loop;
    rdma::event_channel plain;
    rdma::cm_id id = make_bound(plain);
    async::cq cq{loop, id.verbs(), 2000};

    explicit numbers(loop_kind on) : loop(on) {}
    ibv_cq* raw() const {
        rdma::cq_ref const queue = cq;
        return queue.native_handle();
    }
    /// Completions, and the event that the first raises if the queue is armed.
    void put(std::uint64_t first, std::uint64_t count = 1) const {
        for (std::uint64_t i = 0; i != count; ++i)
            fake::push_completion(raw(), completion(first + i));
    }
};

task<> note_next(async::cq const& cq, std::vector<std::pair<int, std::uint64_t>>& got, int who, int times) {
    for (int i = 0; i != times; ++i) {
        rdma::work_completion const one = co_await cq.next();
        got.emplace_back(who, one.wr_id());
    }
}

} // namespace

// ---- epoll_loop -----------------------------------------------------------------------------------------------------

TEST_CASE("epoll_loop: it ends when nothing is asked for, at once or after the last", "[async]") {
    rdma::epoll_loop loop;
    loop.run();
    CHECK_FALSE(loop.run_once());
    signal_fd one;
    std::error_code ec;
    async::registration watched;
    calling seen([&] { watched = {}; });
    watched = loop.readable(one.fd, seen.call(), ec);
    REQUIRE(watched);
    CHECK(loop.run_once(0s));
    one.set();
    loop.run();
    CHECK(seen.times == 1);
}

TEST_CASE("epoll_loop: timers come in their order, each once", "[async]") {
    rdma::epoll_loop loop;
    std::vector<int> order;
    calling calls[5];
    std::vector<async::registration> all;
    std::error_code ec;
    int const delays[] = {2, 0, 1, 2, 0};
    for (int i = 0; i != 5; ++i) {
        calls[i].run = [&order, i] { order.push_back(i); };
        all.push_back(loop.after(std::chrono::milliseconds(delays[i]), calls[i].call(), ec));
    }
    calling never;
    { async::registration const dropped = loop.after(0s, never.call(), ec); }
    CHECK(order.empty()); // not within the call
    loop.run();
    CHECK(order == std::vector<int>{1, 4, 2, 0, 3});
    CHECK(never.times == 0);
}

TEST_CASE("epoll_loop: dropped in a callback of the same turn, it is not called any more", "[async]") {
    for (bool timers : {false, true}) {
        rdma::epoll_loop loop;
        signal_fd fds[3];
        std::vector<async::registration> all;
        std::error_code ec;
        calling each([&] { all.clear(); }); // itself too
        for (signal_fd& fd : fds) {
            fd.set();
            all.push_back(timers ? loop.after(0s, each.call(), ec) : loop.readable(fd.fd, each.call(), ec));
        }
        loop.run();
        CHECK(each.times == 1);
    }
}

TEST_CASE("epoll_loop: what is thrown comes out, and it runs again", "[async]") {
    rdma::epoll_loop loop;
    signal_fd one, two;
    std::error_code ec;
    async::registration bad, good;
    calling throws([&] {
        one.clear();
        bad = {};
        throw std::runtime_error("mine");
    });
    calling fine([&] { good = {}; });
    bad = loop.readable(one.fd, throws.call(), ec);
    good = loop.readable(two.fd, fine.call(), ec);
    one.set();
    two.set();
    CHECK_THROWS_AS(loop.run(), std::runtime_error);
    loop.run();
    CHECK(throws.times == 1);
    CHECK(fine.times == 1);
}

TEST_CASE("epoll_loop: a turn within a callback", "[async]") {
    rdma::epoll_loop loop;
    signal_fd fds[3];
    std::vector<async::registration> all;
    std::error_code ec;
    calling inner([&] { all.clear(); });
    calling outer([&] {
        fds[0].clear();
        loop.run_once(0s); // serves the two others, of which the first drops all
    });
    all.push_back(loop.readable(fds[0].fd, outer.call(), ec));
    for (int i : {1, 2})
        all.push_back(loop.readable(fds[i].fd, inner.call(), ec));
    for (signal_fd const& each : fds)
        each.set();
    loop.run();
    CHECK(outer.times == 1);
    CHECK(inner.times == 1);
}

TEST_CASE("epoll_loop: stopped before, and in a callback", "[async]") {
    rdma::epoll_loop loop;
    signal_fd one;
    one.set();
    std::error_code ec;
    calling seen([&] { loop.stop(); });
    async::registration const watched = loop.readable(one.fd, seen.call(), ec);
    loop.stop();
    loop.run();
    CHECK(seen.times == 0);
    loop.run();
    CHECK(seen.times == 1);
    loop.run();
    CHECK(seen.times == 2);
}

TEST_CASE("epoll_loop: what rests does not keep it, and is called all the same", "[async]") {
    rdma::epoll_loop loop;
    signal_fd one;
    std::error_code ec;
    calling seen([&] { one.clear(); }), late;
    async::registration watched = loop.readable(one.fd, seen.call(), ec);
    async::registration timed = loop.after(1h, late.call(), ec);
    CHECK(watched.rest(true));
    CHECK(watched.rest(true)); // again
    CHECK(timed.rest(true));
    loop.run();
    watched.rest(false);
    one.set();
    CHECK(loop.run_once(0s));
    CHECK(seen.times == 1);
    watched.rest(true);
    CHECK_FALSE(loop.run_once(0s));
    watched = {};
    timed = {};
    loop.run();
}

TEST_CASE("epoll_loop: what cannot be opened or watched", "[async]") {
    rdma::epoll_loop loop;
    std::error_code ec;
    calling never;
    CHECK_FALSE(loop.readable(-1, never.call(), ec));
    CHECK(ec == std::errc::bad_file_descriptor);
    signal_fd one;
    async::registration const first = loop.readable(one.fd, never.call(), ec);
    CHECK_FALSE(ec);
    CHECK_FALSE(loop.readable(one.fd, never.call(), ec));
    CHECK(ec == std::errc::file_exists);
}

// ---- poll_loop ------------------------------------------------------------------------------------------------------

TEST_CASE("poll_loop: each once in a turn, also when one goes, comes, or throws", "[async]") {
    async::poll_loop loop;
    std::error_code ec;
    std::vector<async::registration> all;
    calling again, leaves, comes, throws;
    async::registration first = loop.each_turn(again.call(), ec);
    async::registration second, third, fourth;
    leaves.run = [&] { second = {}; };
    comes.run = [&] { // and again in place of itself, for ever
        third = {};
        third = loop.each_turn(comes.call(), ec);
    };
    throws.run = [&] {
        fourth = {};
        throw 7;
    };
    second = loop.each_turn(leaves.call(), ec);
    third = loop.each_turn(comes.call(), ec);
    loop.poll();
    CHECK(again.times == 1);
    CHECK(leaves.times == 1);
    CHECK(comes.times == 1);
    loop.poll();
    CHECK(leaves.times == 1);
    CHECK(comes.times == 2);
    fourth = loop.each_turn(throws.call(), ec);
    CHECK_THROWS_AS(loop.poll(), int);
    loop.poll();
    CHECK(throws.times == 1);
    CHECK(loop.waits());
    first.rest(true);
    third.rest(true);
    CHECK_FALSE(loop.waits());
    loop.poll();
    CHECK(again.times == 5);
}

TEST_CASE("poll_loop: neither armed nor asked for events, and nothing is opened", "[async]") {
    world w;
    async::poll_loop loop;
    async::event_channel channel(loop);
    rdma::event_channel made;
    rdma::cm_id const probe = make_bound(made);
    async::cq cq(loop, probe.verbs(), 16);
    two_ends pair(channel, {.send_cq = cq, .recv_cq = cq});
    fake::clear_calls();
    bool done = false;
    task<> talk = [](async::cq const& queue, two_ends& e, bool& over) -> task<> {
        e.listen();
        rdma::work_completion one = co_await queue.post_send(e.client, rdma::send_wr::send(e.near.sge()));
        CHECK(static_cast<bool>(one));
        e.say();
        one = co_await queue.post_recv(e.client, rdma::recv_wr(e.near.sge()));
        CHECK(static_cast<bool>(one));
        over = true;
    }(cq, pair, done);
    talk.start();
    for (int i = 0; i != 100 && !done; ++i)
        loop.poll();
    CHECK(done);
    for (char const* never : {"ibv_req_notify_cq", "ibv_get_cq_event", "ibv_create_comp_channel", "ibv_ack_cq_events"})
        CHECK(fake::count(never) == 0);
    CHECK_FALSE(loop.waits());
}

TEST_CASE("awaitable: begun, and its news come before it is awaited", "[async]") {
    for (loop_kind const on : every_kind) {
        world w;
        INFO(name_of(on));
        any_kind loop(on);
        async::event_channel channel(loop);
        async::cm_id id(channel, make_bound(rdma::event_channel()));
        async::cm_id other(channel, make_bound(rdma::event_channel()));
        bool done = false;
        task<> both = [](async::cm_id const& of, async::cm_id const& first, bool& over) -> task<> {
            auto early = of.next();
            early.begin();
            static_cast<void>(co_await first.next());
            rdma::cm_event const event = co_await early;
            over = event.type() == type::addr_change;
        }(id, other, done);
        both.start();
        fake::push(id->native_handle(), {RDMA_CM_EVENT_ADDR_CHANGE});
        loop.turns(3);
        fake::push(other->native_handle(), {RDMA_CM_EVENT_ADDR_CHANGE});
        loop.turns(5);
        CHECK(done);
    }
}

// ---- Tasks ----------------------------------------------------------------------------------------------------------

namespace {

task<int> throws_or_gives(bool throws) {
    if (throws)
        throw std::runtime_error("mine");
    co_return 4;
}
task<int> twice(bool throws) {
    int const one = co_await throws_or_gives(throws);
    int const two = co_await throws_or_gives(throws);
    co_return one + two;
}
task<std::unique_ptr<int>> moved() { co_return std::make_unique<int>(3); }
task<> step() { co_return; }
task<> many(int count, int& done) {
    for (int i = 0; i != count; ++i) {
        co_await step();
        ++done;
    }
}
task<> wait_once(async::cm_id const& id, int& done) {
    rdma::cm_event const event = co_await id.next();
    done += static_cast<bool>(event);
}
/// Counts what is left when a frame goes.
struct leaving {
    int& count;
    explicit leaving(int& of) : count(of) { ++count; }
    leaving(leaving const&) = delete;
    leaving& operator=(leaving const&) = delete;
    ~leaving() { --count; }
};
task<> hold(async::cm_id const& id, int& alive) {
    leaving const here(alive);
    static_cast<void>(co_await id.next());
}

} // namespace

TEST_CASE("task: values and exceptions go up, through any depth", "[async]") {
    task<int> fine = twice(false);
    CHECK_FALSE(fine.done());
    fine.start();
    CHECK(fine.done());
    CHECK(fine.get() == 8);
    task<int> bad = twice(true);
    bad.start();
    CHECK(bad.done());
    CHECK_THROWS_AS(bad.get(), std::runtime_error);
    task<std::unique_ptr<int>> only = moved();
    only.start();
    CHECK(*only.get() == 3);
    task<> const none;
    CHECK(none.done());
}

TEST_CASE("task: a million that are done at once need no stack", "[async]") {
    int done = 0;
    task<> all = many(1'000'000, done);
    all.start();
    CHECK(done == 1'000'000);
}

TEST_CASE("task: begun, then awaited", "[async]") {
    world w;
    any_kind loop(loop_kind::epoll);
    async::event_channel channel(loop);
    async::cm_id id(channel, make_bound(rdma::event_channel()));
    int done = 0;
    task<> both = [](async::cm_id& of, int& count) -> task<> {
        task<> first = wait_once(of, count), second = wait_once(of, count);
        first.start();
        second.start();
        CHECK(count == 0);
        co_await second;
        co_await first;
        CHECK(count == 2);
    }(id, done);
    both.start();
    for (int i = 0; i != 2; ++i)
        fake::push(id->native_handle(), {RDMA_CM_EVENT_ADDR_CHANGE});
    loop.turns(5);
    CHECK(both.done());
    both.get();
}

TEST_CASE("tasks: each goes when it is done, the others with the object or clear", "[async]") {
    world w;
    any_kind loop(loop_kind::epoll);
    async::event_channel channel(loop);
    async::cm_id id(channel, make_bound(rdma::event_channel()));
    int alive = 0;
    {
        async::tasks all;
        for (int i = 0; i != 5; ++i)
            all.spawn(hold(id, alive));
        CHECK(all.size() == 5);
        CHECK(alive == 5);
        fake::push(id->native_handle(), {RDMA_CM_EVENT_ADDR_CHANGE});
        loop.turns(3);
        CHECK(all.size() == 4);
        all.clear();
        CHECK(all.size() == 0);
        CHECK(alive == 0);
        all.spawn(hold(id, alive));
        all.spawn(step());
        CHECK(all.size() == 1);
    }
    CHECK(alive == 0);
    loop.turns(3);
}

TEST_CASE("tasks: one spawns others while it runs, and destroys another that is ready", "[async]") {
    world w;
    any_kind loop(loop_kind::epoll);
    async::event_channel channel(loop);
    async::cm_id id(channel, make_bound(rdma::event_channel()));
    int alive = 0;
    async::tasks all;
    task<> victim = hold(id, alive);
    struct names {
        async::cm_id& id;
        int& alive;
        async::tasks& all;
        task<>& victim;
    } all_of_it{id, alive, all, victim};
    all.spawn([](names n) -> task<> {
        static_cast<void>(co_await n.id.next());
        n.victim = {}; // both were told of the event
        for (int i = 0; i != 100; ++i)
            n.all.spawn(hold(n.id, n.alive));
    }(all_of_it));
    victim.start();
    for (int i = 0; i != 2; ++i)
        fake::push(id->native_handle(), {RDMA_CM_EVENT_ADDR_CHANGE});
    loop.turns(5);
    CHECK(alive == 99); // one of them had the second event
    CHECK(all.size() == 99);
}

// ---- Who waits is served, in order, and none is forgotten -----------------------------------------------------------

TEST_CASE("next completion: first come, first served, also by those who come while the first is ready", "[async]") {
    for (loop_kind const on : every_kind) {
        world w;
        INFO(name_of(on));
        numbers n(on);
        std::vector<std::pair<int, std::uint64_t>> got;
        async::tasks all;
        for (int who = 0; who != 3; ++who)
            all.spawn(note_next(n.cq, got, who, 2));
        n.put(1, 6);
        n.loop.until([&] { return got.size() == 6; }, 50);
        std::vector<std::pair<int, std::uint64_t>> const fair = {{0, 1}, {1, 2}, {2, 3}, {0, 4}, {1, 5}, {2, 6}};
        CHECK(got == fair);
    }
}

TEST_CASE("next completion: who is ready and goes does not take the news along", "[async]") {
    for (loop_kind const on : every_kind)
        for (int how = 0; how != 2; ++how) {
            world w;
            INFO(name_of(on) << (how == 0 ? ", destroyed" : ", stopped"));
            numbers n(on);
            std::vector<std::pair<int, std::uint64_t>> got;
            std::stop_source stop;
            std::error_code ec;
            bool posted = false;
            // The first is ready before the second, in one turn, and ends it there.
            task<> second = [](async::cq const& cq, std::stop_source& by, std::error_code& e) -> task<> {
                static_cast<void>(co_await cq.next(by.get_token(), e));
            }(n.cq, stop, ec);
            task<> third = note_next(n.cq, got, 3, 1);
            task<> first = [](async::cq const& cq, task<>& other, std::stop_source& by, int what,
                              bool& over) -> task<> {
                static_cast<void>(co_await cq.next());
                over = true;
                if (what == 0)
                    other = {};
                else
                    by.request_stop();
            }(n.cq, second, stop, how, posted);
            first.start();
            second.start();
            third.start();
            n.put(1, how == 0 ? 2 : 3);
            n.loop.until([&] { return posted && got.size() == 1; }, 50);
            CHECK(got[0].first == 3);
        }
}

TEST_CASE("next event of any channel: who is ready and goes does not take the news along", "[async]") {
    for (loop_kind const on : every_kind) {
        world w;
        INFO(name_of(on));
        any_kind loop(on);
        rdma::event_channel plain;
        rdma::cm_id const id = make_bound(plain);
        async::events<rdma::event_channel> events(loop, plain);
        int got = 0;
        auto const waiting = [](auto const& from, int& count) -> task<> {
            static_cast<void>(co_await from.next());
            ++count;
        };
        task<> second, third = waiting(events, got);
        task<> first = [](auto const& from, task<>& other, int& count) -> task<> {
            static_cast<void>(co_await from.next());
            ++count;
            other = {};
        }(events, second, got);
        first.start();
        second = waiting(events, got);
        second.start();
        third.start();
        for (int i = 0; i != 2; ++i)
            fake::push(id.native_handle(), {RDMA_CM_EVENT_ADDR_CHANGE});
        loop.until([&] { return got == 2; }, 50);
        CHECK(third.done());
    }
}

TEST_CASE("a turn of many: more than one source serves at once, and what throws in the midst", "[async]") {
    for (loop_kind const on : every_kind) {
        world w;
        INFO(name_of(on));
        numbers n(on);
        std::vector<std::pair<int, std::uint64_t>> got;
        async::tasks all;
        for (int who = 0; who != 1000; ++who)
            all.spawn(note_next(n.cq, got, who, 1));
        n.put(1, 1000);
        n.loop.until([&] { return got.size() == 1000; }, 200);
        CHECK(all.size() == 0);
        for (int who = 0; who != 1000; ++who)
            CHECK(got[static_cast<std::size_t>(who)].first == who);
    }
}

namespace {

/// A coroutine whose exceptions go to whoever resumes it: the loop.
struct loud {
    struct promise_type {
        loud get_return_object() { return loud(std::coroutine_handle<promise_type>::from_promise(*this)); }
        std::suspend_never initial_suspend() noexcept { return {}; }
        std::suspend_always final_suspend() noexcept { return {}; }
        void return_void() {}
        void unhandled_exception() { throw; }
    };
    explicit loud(std::coroutine_handle<promise_type> of) : frame(of) {}
    loud(loud&& other) noexcept : frame(std::exchange(other.frame, {})) {}
    loud& operator=(loud&&) = delete;
    ~loud() {
        if (frame)
            frame.destroy();
    }
    std::coroutine_handle<promise_type> frame;
};
loud shout(async::cm_id const& id, int& count) {
    static_cast<void>(co_await id.next());
    ++count;
    throw 7;
}
struct thrower : rdma::id_handler {
    using rdma::id_handler::id_handler;
    void on_event(rdma::cm_event&) override {
        if (bad)
            throw 8;
        ++count;
    }
    bool bad = false;
    int count = 0;
};

} // namespace

TEST_CASE("what a coroutine or a handler throws comes out of the loop, and nobody is forgotten", "[async]") {
    for (loop_kind const on : every_kind) {
        world w;
        INFO(name_of(on));
        any_kind loop(on);
        async::event_channel channel(loop);
        async::cm_id id(channel, make_bound(rdma::event_channel()));
        int shouted = 0, done = 0;
        loud const shouting = shout(id, shouted);
        task<> quiet = wait_once(id, done);
        quiet.start();
        thrower bad(channel.dispatch(), make_bound(rdma::event_channel())),
            good(channel.dispatch(), make_bound(rdma::event_channel()));
        bad.bad = true;
        fake::push(bad.id().native_handle(), {RDMA_CM_EVENT_ADDR_CHANGE});
        fake::push(good.id().native_handle(), {RDMA_CM_EVENT_ADDR_CHANGE});
        fake::push(id->native_handle(), {RDMA_CM_EVENT_ADDR_CHANGE});
        fake::push(id->native_handle(), {RDMA_CM_EVENT_ADDR_CHANGE});
        int thrown = 0;
        for (int i = 0; i != 20; ++i) {
            try {
                loop.turn();
            } catch (int which) {
                thrown += which;
            }
        }
        CHECK(thrown == 7 + 8);
        CHECK(shouted == 1);
        CHECK(done == 1);
        CHECK(good.count == 1);
    }
}

TEST_CASE("an id with a handler is watched, whatever comes and goes beside it", "[async]") {
    for (loop_kind const on : every_kind) {
        world w;
        INFO(name_of(on));
        any_kind loop(on);
        async::event_channel channel(loop);
        thrower handler(channel.dispatch(), make_bound(rdma::event_channel()));
        async::cm_id id(channel, make_bound(rdma::event_channel()));
        int expected = 0;
        for (int how = 0; how != 3; ++how) {
            if (how == 1)
                id = {};
            else if (how == 2) {
                async::cm_id const brief(channel, make_bound(rdma::event_channel()));
                std::error_code ec;
                async::cm_id const none(channel, rdma::cm_id(), ec);
                CHECK(ec == rdma::errc::empty_handle);
            }
            fake::push(handler.id().native_handle(), {RDMA_CM_EVENT_ADDR_CHANGE});
            loop.turns(3);
            CHECK(handler.count == ++expected);
        }
    }
}

TEST_CASE("a channel that is broken tells who waits, and the hook of the handlers", "[async]") {
    for (loop_kind const on : every_kind) {
        world w;
        INFO(name_of(on));
        any_kind loop(on);
        async::event_channel channel(loop);
        async::cm_id id(channel, make_bound(rdma::event_channel()));
        std::error_code ec;
        task<> waiting = [](async::cm_id const& of, std::error_code& e) -> task<> {
            static_cast<void>(co_await of.next(e));
        }(id, ec);
        waiting.start();
        fake::push(id->native_handle(), {RDMA_CM_EVENT_ADDR_CHANGE});
        fake::fail("rdma_get_cm_event", 1, EBADF);
        loop.until([&] { return waiting.done(); }, 20);
        CHECK(ec == std::errc::bad_file_descriptor);
        thrower handler(channel.dispatch(), make_bound(rdma::event_channel()));
        fake::push(handler.id().native_handle(), {RDMA_CM_EVENT_ADDR_CHANGE});
        fake::fail("rdma_get_cm_event", 1, EIO);
        loop.turns(20);
        CHECK(w.told(rdma::diagnostic_kind::channel_failed) == 1);
        CHECK(handler.count == 1);
    }
}

TEST_CASE("what comes while nobody waits is there for the next, also for one that has no time", "[async]") {
    for (loop_kind const on : every_kind)
        for (bool hurried : {false, true}) {
            world w;
            INFO(name_of(on) << (hurried ? ", without time" : ""));
            numbers n(on);
            std::vector<std::pair<int, std::uint64_t>> got;
            task<> one = note_next(n.cq, got, 1, 1);
            one.start();
            one = {};
            n.put(4, 3);
            if (hurried) {
                task<> now = [](async::cq const& cq, std::vector<std::pair<int, std::uint64_t>>& into) -> task<> {
                    std::error_code ec;
                    rdma::work_completion const first = co_await cq.next(0s, ec);
                    CHECK_FALSE(ec);
                    into.emplace_back(0, first.wr_id());
                }(n.cq, got);
                now.start();
                CHECK(got.size() == 1);
            }
            task<> two = note_next(n.cq, got, 2, hurried ? 3 : 4);
            two.start();
            n.loop.until([&] { return got.size() == 3; }, 20);
            n.put(9);
            n.loop.until([&] { return got.size() == 4; }, 20);
        }
}
