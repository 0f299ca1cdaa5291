// SPDX-License-Identifier: MIT
// Faults that programs in the field had with events, each by its number, again where the program awaits.
#include "async.hpp"

using namespace unit;

namespace {

ibv_wc completion(std::uint64_t id) {
    ibv_wc wc{};
    wc.wr_id = id;
    return wc;
}

struct queue {
    any_kind loop;
    rdma::event_channel plain;
    rdma::cm_id id = make_bound(plain);
    async::cq cq{loop, id.verbs(), 100};
    std::vector<std::uint64_t> got;

    explicit queue(loop_kind on) : loop(on) {}
    ibv_cq* raw() const {
        rdma::cq_ref const view = cq;
        return view.native_handle();
    }
};

task<> take(queue& q, std::size_t count) {
    while (q.got.size() < count) {
        rdma::work_completion const one = co_await q.cq.next();
        q.got.push_back(one.wr_id());
    }
}
task<> take_many(queue& q, std::size_t count) {
    std::array<rdma::work_completion, 16> some;
    while (q.got.size() < count) {
        auto const all = co_await q.cq.next(some);
        for (rdma::work_completion const& one : all)
            q.got.push_back(one.wr_id());
    }
}

/// Whatever there is of a channel, until it ends with an error.
template <class Events>
task<> take_events(Events const& events, int& count, std::error_code& ec) {
    for (;;) {
        auto const event = co_await events.next(ec);
        if (ec)
            co_return;
        ++count;
    }
}

} // namespace

TEST_CASE("A9 a completion that comes while it is being armed raises no event, and is not missed", "[field][async]") {
    for (loop_kind const on : {loop_kind::epoll, loop_kind::edge}) {
        world w;
        INFO(name_of(on));
        queue q(on);
        fake::complete_while_arming(q.raw(), completion(1));
        task<> first = take(q, 1);
        first.start();
        CHECK(q.got.size() == 1); // and no turn of the loop was needed
        task<> second = take(q, 3);
        second.start();
        fake::complete_while_arming(q.raw(), completion(3)); // at the arming after the event of this one:
        fake::push_completion(q.raw(), completion(2));
        q.loop.until([&] { return second.done(); }, 20);
        CHECK(q.got == std::vector<std::uint64_t>{1, 2, 3});
    }
}

TEST_CASE("A9 one event for more completions than are polled at once", "[field][async]") {
    for (loop_kind const on : every_kind)
        for (bool many : {false, true}) {
            world w;
            INFO(name_of(on) << (many ? ", many at once" : ", one by one"));
            queue q(on);
            task<> all = many ? take_many(q, 40) : take(q, 40);
            all.start();
            for (std::uint64_t i = 0; i != 40; ++i)
                fake::push_completion(q.raw(), completion(i));
            q.loop.until([&] { return all.done(); }, 50);
            for (std::size_t i = 0; i != 40; ++i)
                CHECK(q.got[i] == i);
            if (!q.loop.polls())
                CHECK(fake::count("ibv_get_cq_event") == 1);
        }
}

TEST_CASE("A10 A17 several events for one wake-up, a signal in between, nothing, and broken", "[field][async]") {
    for (loop_kind const on : every_kind) {
        world w;
        INFO(name_of(on));
        any_kind loop(on);
        rdma::event_channel plain;
        rdma::cm_id const id = make_bound(plain);
        rdma::async_channel const device = id.verbs().async_channel();
        async::events<rdma::async_channel> events(loop, device);
        int count = 0;
        std::error_code ec;
        task<> all = take_events(events, count, ec);
        all.start();
        for (int i = 0; i != 4; ++i)
            fake::push_async(id.verbs().native_handle(), IBV_EVENT_PORT_ERR);
        fake::fail("ibv_get_async_event", 4, EINTR);
        loop.turns(6);
        CHECK(count == 4);
        CHECK(fake::count("ibv_ack_async_event") == 4);
        fake::push_async(id.verbs().native_handle(), IBV_EVENT_PORT_ERR);
        if (on != loop_kind::edge) // where it would be a lie of the fake's: the event is there
            fake::fail("ibv_get_async_event", 1, EAGAIN);
        loop.turns(4);
        CHECK_FALSE(all.done());
        for (int i = 0; i != 2; ++i)
            fake::push_async(id.verbs().native_handle(), IBV_EVENT_PORT_ERR);
        loop.turns(6);
        CHECK(count == 7);
        for (int i = 0; i != 3; ++i)
            fake::push_async(id.verbs().native_handle(), IBV_EVENT_PORT_ERR);
        fake::fail("ibv_get_async_event", 3, EBADF);
        loop.until([&] { return all.done(); }, 20);
        CHECK(ec == std::errc::bad_file_descriptor);
        CHECK(count == 9);
    }
}

TEST_CASE("A10 A17 the same for ids on one channel", "[field][async]") {
    for (loop_kind const on : every_kind) {
        world w;
        INFO(name_of(on));
        any_kind loop(on);
        async::event_channel channel(loop);
        async::cm_id id(channel, make_bound(rdma::event_channel()));
        int count = 0;
        std::error_code ec;
        task<> all = take_events(id, count, ec);
        all.start();
        for (int i = 0; i != 4; ++i)
            fake::push(id->native_handle(), {RDMA_CM_EVENT_ADDR_CHANGE});
        fake::fail("rdma_get_cm_event", 4, EINTR);
        loop.turns(4);
        CHECK(count == 4);
        for (int i = 0; i != 3; ++i)
            fake::push(id->native_handle(), {RDMA_CM_EVENT_ADDR_CHANGE});
        fake::fail("rdma_get_cm_event", 3, EBADF);
        loop.until([&] { return all.done(); }, 20);
        CHECK(ec == std::errc::bad_file_descriptor);
        CHECK(count == 6); // those before, and then the error
        CHECK(channel.stats().events_held == 0);
    }
}

TEST_CASE("A18 whoever waits is stopped, whatever for", "[field][async]") {
    for (loop_kind const on : every_kind) {
        world w;
        INFO(name_of(on));
        any_kind loop(on);
        async::event_channel channel(loop);
        async::cm_id id(channel, make_bound(rdma::event_channel()));
        queue q(on);
        std::stop_source stop;
        std::error_code of_id, of_cq;
        task<> a = [](async::cm_id const& from, std::stop_token by, std::error_code& ec) -> task<> {
            static_cast<void>(co_await from.next(by, ec));
        }(id, stop.get_token(), of_id);
        task<> b = [](async::cq const& from, std::stop_token by, std::error_code& ec) -> task<> {
            static_cast<void>(co_await from.next(by, ec));
        }(q.cq, stop.get_token(), of_cq);
        a.start();
        b.start();
        stop.request_stop();
        CHECK_FALSE(a.done()); // on the loop's turn, not within the request
        loop.turns(3);
        q.loop.turns(3);
        CHECK(of_id == std::errc::operation_canceled);
        CHECK(of_cq == std::errc::operation_canceled);
    }
}

TEST_CASE("A19 what comes after the end is delivered, or acked with the id, and touches no session", "[field][async]") {
    for (char const* host : {rxe_host, siw_host})
        for (bool kept : {true, false}) {
            world w;
            INFO(host << (kept ? ", id kept" : ", id dropped"));
            any_kind loop(loop_kind::epoll);
            async::event_channel channel(loop);
            two_ends pair(channel, {}, host);
            auto session = std::make_unique<std::array<int, 16>>();
            task<> ending = [](async::cm_id& id, std::unique_ptr<std::array<int, 16>> own) -> task<> {
                co_await id.disconnect();
                (*own)[0] = 1;
            }(pair.client, std::move(session));
            ending.start();
            loop.until([&] { return ending.done(); }, 20);
            ending.get(); // and TIMEWAIT_EXIT was not waited for
            ending = {};
            if (!kept)
                pair.client = {};
            else
                fake::push(pair.client->native_handle(), {RDMA_CM_EVENT_TIMEWAIT_EXIT});
            loop.turns(4);
            if (kept) {
                CHECK(pair.client.is_over());
                int count = 0;
                std::error_code ec;
                task<> late = take_events(pair.client, count, ec);
                late.start();
                loop.turns(4);
                CHECK(count >= 1);
                pair.client = {};
                loop.turns(4);
                CHECK(ec == rdma::errc::empty_handle);
            }
            CHECK(channel.stats().events_held == 0);
        }
}

TEST_CASE("A20 every two ends, in either order, and what the library does not know", "[field][async]") {
    int const kinds[] = {
        RDMA_CM_EVENT_ESTABLISHED, RDMA_CM_EVENT_DISCONNECTED, RDMA_CM_EVENT_UNREACHABLE,   RDMA_CM_EVENT_CONNECT_ERROR,
        RDMA_CM_EVENT_REJECTED,    RDMA_CM_EVENT_ADDR_CHANGE,  RDMA_CM_EVENT_TIMEWAIT_EXIT, 77};
    for (int const first : kinds)
        for (int const second : kinds)
            for (bool disconnects : {false, true}) {
                world w;
                INFO(first << " then " << second << (disconnects ? ", while it is disconnected" : ""));
                any_kind loop(loop_kind::epoll);
                async::event_channel channel(loop);
                two_ends pair(channel);
                fake::set_manual(true); // nothing comes by itself
                int count = 0, flips = 0;
                std::error_code ec, ended;
                task<> reading = take_events(pair.client, count, ec);
                reading.start();
                task<> ending = [](async::cm_id const& id, std::error_code& e) -> task<> {
                    co_await id.disconnect(1h, e);
                }(pair.client, ended);
                if (disconnects)
                    ending.start();
                bool before = pair.client.is_over();
                for (int const each : {first, second}) {
                    fake::push(pair.client->native_handle(), {each, each == RDMA_CM_EVENT_REJECTED ? 8 : 0});
                    loop.turns(3);
                    flips += before != pair.client.is_over();
                    before = pair.client.is_over();
                }
                CHECK(count == 2); // each, as it is
                CHECK(flips <= 1);
                if (disconnects && before)
                    CHECK(ending.done());
                CHECK_FALSE(ended);
                CHECK(channel.stats().events_held == 0);
            }
}
