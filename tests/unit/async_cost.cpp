// SPDX-License-Identifier: MIT
// What waiting costs: no allocation for a message, one event, one arming and two polls at most; and each allocation on
// the way fails once, with the right error, nothing left, and nobody who waits for ever.
#include "allocations.hpp"
#include "async.hpp"

using namespace unit;

namespace {

/// Messages to and fro on one loop, with a queue for sends and one for receives on each side, as librdmacm makes them.
struct echo {
    any_kind loop;
    async::event_channel channel{loop};
    async::cm_id client, server;
    async::cq client_sends, client_receives, server_sends, server_receives;
    std::array<std::byte, 64> memory{};
    rdma::mr near, far;
    int rounds = 0;

    echo(loop_kind on, bool shared) : loop(on) {
        rdma::event_channel made;
        rdma::cm_id const probe = make_bound(made);
        async::cq ours[4];
        for (async::cq& each : ours)
            each = async::cq(loop, probe.verbs(), 16);
        rdma::qp_init_attr const attr{.send_cq = ours[0], .recv_cq = ours[shared ? 0 : 1]};
        connection pair = connect_pair(rxe_host, attr);
        client = async::cm_id(channel, std::move(pair.client));
        server = async::cm_id(channel, std::move(pair.server));
        near = rdma::mr(client->pd(), memory, rdma::access::local_write);
        far = rdma::mr(server->pd(), memory, rdma::access::local_write);
        client_sends = std::move(ours[0]);
        client_receives = std::move(ours[1]);
    }
    async::cq const& receives(bool shared) const { return shared ? client_sends : client_receives; }
};

task<> serve(echo& e, bool shared, async::limits within) {
    for (;;) {
        std::error_code ec;
        static_cast<void>(co_await e.receives(shared).post_recv(e.server, rdma::recv_wr(e.far.sge()), within, ec));
        if (ec)
            co_return;
        static_cast<void>(co_await e.client_sends.post_send(e.server, rdma::send_wr::send(e.far.sge()), within, ec));
    }
}
task<> ask(echo& e, bool shared, async::limits within, int times) {
    for (int i = 0; i != times; ++i) {
        e.client->qp().post_recv(rdma::recv_wr(e.near.sge()).id(3)); // numbered by the program
        static_cast<void>(co_await e.client_sends.post_send(e.client, rdma::send_wr::send(e.near.sge()), within));
        static_cast<void>(co_await e.receives(shared).next(within));
        ++e.rounds;
    }
}

} // namespace

TEST_CASE("cost: nothing is allocated for a message", "[async]") {
    RDMACPP_NEED_ALLOCATIONS();
    for (loop_kind const on : {loop_kind::epoll, loop_kind::polling})
        for (bool shared : {true, false})
            for (bool limited : {false, true}) {
                world w;
                INFO(name_of(on) << (shared ? ", one queue" : ", two queues") << (limited ? ", limited" : ""));
                echo e(on, shared);
                std::stop_source stop;
                async::limits const within = limited ? async::limits(1h, stop.get_token()) : async::limits();
                task<> serving = serve(e, shared, within), asking = ask(e, shared, within, 300);
                serving.start();
                asking.start();
                e.loop.until([&] { return e.rounds > 100; });
                int const before = e.rounds;
                std::size_t made = 0;
                {
                    allocation_watch const watch;
                    while (e.rounds < before + 100)
                        e.loop.turn();
                    made = watch.made();
                }
                CHECK(made == 0);
            }
}

TEST_CASE("cost: for a message that is awaited one event, one arming, one poll", "[async]") {
    world w;
    any_kind loop(loop_kind::epoll);
    async::event_channel channel(loop);
    rdma::event_channel made;
    rdma::cm_id const probe = make_bound(made);
    async::cq cq(loop, probe.verbs(), 16);
    two_ends pair(channel, {.send_cq = cq, .recv_cq = cq});
    int done = 0;
    task<> receiving = [](async::cq const& queue, two_ends& e, int& count) -> task<> {
        for (;;) {
            static_cast<void>(co_await queue.post_recv(e.client, rdma::recv_wr(e.near.sge())));
            ++count;
        }
    }(cq, pair, done);
    receiving.start();
    pair.say();
    loop.turns(3);
    REQUIRE(done == 1);
    fake::clear_calls();
    for (int i = 0; i != 10; ++i) {
        pair.say();
        loop.turns(3);
    }
    CHECK(done == 11);
    CHECK(fake::count("ibv_get_cq_event") == 10);
    CHECK(fake::count("ibv_req_notify_cq") == 10);
    CHECK(fake::count("ibv_poll_cq") == 10);
    CHECK(fake::count("ibv_post_recv") == 10);
}

// ---- Without memory -------------------------------------------------------------------------------------------------

namespace {

/// The whole life of a connection on one loop, by awaitables alone. What fails ends it, with the first reason.
struct life {
    any_kind loop;
    std::error_code ec;
    std::optional<task<>> server, client;
    bool finished = false;

    explicit life(loop_kind on) : loop(on) {}
    void note(std::error_code why) {
        if (!ec)
            ec = why;
    }
};

task<> serving(life& l, async::event_channel const& channel, async::acceptor const& acceptor) {
    std::error_code ec;
    async::request asked = co_await acceptor.next(1h, ec);
    l.note(ec);
    if (ec)
        co_return;
    rdma::cm_id undecided = asked.take_id();
    rdma::accept_options const how{.limit = 1h}; // not a temporary: g++ 11 and 12 destroy some of those twice
    async::cm_id id = co_await async::accept(channel, std::move(undecided), how, ec);
    l.note(ec);
    if (ec)
        co_return;
    async::cq cq(channel.loop(), id->recv_cq(), ec);
    l.note(ec);
    if (ec)
        co_return;
    rdma::cm_event const event = co_await id.next(1h, ec);
    l.note(ec);
}

task<> asking(life& l, async::event_channel const& channel, async::limits within) {
    std::error_code ec;
    rdma::connect_options const how{.limit = 1h};
    async::cm_id id = co_await async::connect(channel, rdma::address(rxe_host, 7471), how, ec);
    l.note(ec);
    if (ec)
        co_return;
    async::cq cq(channel.loop(), id->recv_cq(), ec);
    l.note(ec);
    if (ec)
        co_return;
    std::array<std::byte, 8> memory{};
    rdma::mr const region(id->pd(), memory, rdma::access::local_write, ec);
    l.note(ec);
    if (ec)
        co_return;
    // Nothing will come into it: it ends with the id, and with the stop.
    auto never = [](async::cq const& queue, async::cm_id const& of, rdma::mr const& into, std::error_code& e,
                    async::limits lim) -> task<> {
        static_cast<void>(co_await queue.post_recv(of, rdma::recv_wr(into.sge()), lim, e));
    };
    std::error_code received;
    task<> receiving = never(cq, id, region, received, within);
    receiving.start();
    co_await id.disconnect(1h, ec);
    l.note(ec);
    co_await receiving; // flushed, which is a completion
    l.note(received);
    l.finished = true;
}

std::error_code live(loop_kind on, std::size_t fail_at, bool& struck, bool& finished) {
    std::error_code ec;
    bool stuck = false;
    {
        life l(on);
        std::stop_source stop;
        allocation_watch const watch(fail_at);
        try {
            async::event_channel channel(l.loop, l.ec);
            async::acceptor acceptor;
            if (!l.ec)
                acceptor = async::acceptor(channel, rdma::address(rxe_host, 7471), l.ec);
            if (!l.ec) {
                l.server = serving(l, channel, acceptor);
                l.client = asking(l, channel, {1h, stop.get_token()});
                l.server->start();
                l.client->start();
            }
            int most = 500;
            while (!l.ec && !(l.server->done() && l.client->done()) && --most != 0)
                l.loop.turn();
            stuck = most == 0;
            for (std::optional<task<>>* const each : {&l.server, &l.client})
                if (*each && (*each)->done())
                    (*each)->get();
            l.server.reset();
            l.client.reset();
        } catch (std::bad_alloc const&) { // of a coroutine's frame
            l.note(std::make_error_code(std::errc::not_enough_memory));
        } catch (rdma::error const& e) {
            l.note(e.code());
        }
        struck = watch.struck();
        ec = l.ec;
        finished = l.finished;
    }
    CHECK_FALSE(stuck);
    return ec;
}

} // namespace

TEST_CASE("cost: each allocation of a connection's life fails once", "[async]") {
    RDMACPP_NEED_ALLOCATIONS();
    for (loop_kind const on : {loop_kind::epoll, loop_kind::polling}) {
        std::size_t at = 1, told = 0;
        for (bool struck = true; struck; ++at) {
            world w;
            INFO(name_of(on) << ", allocation " << at);
            bool finished = false;
            std::error_code const ec = live(on, at, struck, finished);
            if (ec) {
                ++told;
                CHECK(struck);
                CHECK(ec == std::errc::not_enough_memory);
            } else
                CHECK(finished);
            REQUIRE(at < 500);
        }
        CHECK(told > 10);
    }
}

TEST_CASE("cost: each C function of a connection's life fails once", "[async]") {
    for (loop_kind const on : {loop_kind::epoll, loop_kind::polling}) {
        unsigned at = 1;
        for (bool over = false; !over; ++at) {
            world w;
            w.messy(); // destroys that fail are told, and leave what they were to destroy
            INFO(name_of(on) << ", call " << at);
            fake::fail_any(at);
            bool struck = false, finished = false;
            std::error_code const ec = live(on, 0, struck, finished);
            over = fake::failed().function.empty();
            INFO(fake::failed().function);
            CHECK((ec || finished));
            if (over)
                CHECK(fake::leaks() == "");
            REQUIRE(at < 500);
        }
    }
}

TEST_CASE("cost: completions that there is no memory for are told of, or wait where they are", "[async]") {
    RDMACPP_NEED_ALLOCATIONS();
    for (loop_kind const on : {loop_kind::epoll, loop_kind::polling}) {
        world w;
        INFO(name_of(on));
        any_kind loop(on);
        rdma::event_channel made;
        rdma::cm_id const probe = make_bound(made);
        async::cq cq(loop, probe.verbs(), 200);
        rdma::cq_ref const queue = cq;
        int got = 0;
        task<> all = [](async::cq const& of, int& count) -> task<> {
            for (;;) {
                static_cast<void>(co_await of.next());
                ++count;
            }
        }(cq, got);
        all.start();
        for (int i = 0; i != 100; ++i) {
            ibv_wc wc{};
            wc.wr_id = static_cast<std::uint64_t>(i);
            fake::push_completion(queue.native_handle(), wc);
        }
        bool struck = false;
        {
            allocation_watch const watch(1);
            loop.turn();
            struck = watch.struck();
        }
        CHECK(struck);
        loop.until([&] { return got == 100; }, 200);
    }
}

TEST_CASE("cost: what is canceled without memory for a turn has one all the same", "[async]") {
    RDMACPP_NEED_ALLOCATIONS();
    world w;
    any_kind loop(loop_kind::epoll);
    async::event_channel channel(loop);
    async::cm_id const id(channel, make_bound(rdma::event_channel()));
    auto waiting = id.next();
    int called = 0;
    CHECK_FALSE(waiting.operation().start());
    CHECK(waiting.operation().wait({[](void* object) { ++*static_cast<int*>(object); }, &called}));
    bool struck = false;
    {
        allocation_watch const watch(1);
        waiting.operation().cancel();
        struck = watch.struck();
    }
    CHECK(struck);
    loop.turns(3);
    CHECK(called == 1);
    CHECK(waiting.operation().result() == std::errc::operation_canceled);
}
