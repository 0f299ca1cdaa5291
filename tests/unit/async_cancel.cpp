// SPDX-License-Identifier: MIT
// Everything that can be awaited is destroyed, stopped, late, or loses its object at every point where it waits, each
// point by its number; afterwards all that was begun goes on, and finds nobody. Nothing may be left, or touched.
#include "async.hpp"

#include <algorithm>

using namespace unit;

namespace {

/// What a case of this file needs, and what it is asked to end by.
struct scene {
    any_kind loop;
    std::stop_source stop;
    rdma::timeout span = rdma::no_limit;
    async::event_channel channel{loop};
    async::acceptor acceptor;
    async::cm_id id;
    std::optional<two_ends> pair;
    rdma::event_channel plain;
    rdma::cm_id peer, listener, undecided;
    rdma::comp_channel bell;
    rdma::srq shared;
    rdma::cq queue;
    async::cq cq;
    async::events<rdma::event_channel> events;
    async::events<rdma::comp_channel> bells;
    async::events<rdma::async_channel> alarms;
    std::array<rdma::work_completion, 4> some;
    std::error_code ec;
    bool resumed = false;

    explicit scene(loop_kind which) : loop(which) {}

    async::limits within() const { return {span, stop.get_token()}; }
    rdma::connect_options connecting() const { return {.limit = span, .stop = stop.get_token()}; }
    rdma::accept_options accepting() const { return {.limit = span, .stop = stop.get_token()}; }

    void make_pair() {
        pair.emplace(channel);
        if (loop.polls())
            cq = async::cq(loop, pair->client->send_cq());
    }
    /// Both queues of the client in one that is watched.
    void make_pair_with_cq() {
        rdma::event_channel made;
        rdma::cm_id const probe = make_bound(made);
        cq = async::cq(loop, probe.verbs(), 16);
        pair.emplace(channel, rdma::qp_init_attr{.send_cq = cq, .recv_cq = cq});
    }
    /// A server that accepts whatever comes, without a loop.
    void serve() {
        while (auto event = plain.try_get())
            if (event->type() == type::connect_request) {
                std::error_code refused; // who asked may be gone by now
                peer = event->take_id();
                peer.create_qp({}, refused);
                peer.accept({}, refused);
            }
    }
    /// A client that gets what comes to it.
    void follow() {
        while (plain.try_get())
            ;
    }
    void ask(int port = 7471) {
        peer = make_client(plain, rxe_host, port);
        peer.create_qp({});
        peer.connect();
    }
};

struct scenario {
    char const* name;
    void (*prepare)(scene&);
    task<> (*run)(scene&);
    void (*progress)(scene&, unsigned round); ///< What comes from outside in a round.
    bool (*drop)(scene&, unsigned which);     ///< Drops one of the objects; false if there are no more.
};

bool drop_id(scene& s, unsigned which) {
    if (which == 0)
        s.pair->client = {};
    else if (which == 1)
        s.channel = {};
    return which < 2;
}
bool drop_own_id(scene& s, unsigned which) {
    if (which == 0)
        s.id = {};
    else if (which == 1)
        s.channel = {};
    return which < 2;
}
bool drop_channel(scene& s, unsigned which) {
    if (which == 0)
        s.channel = {};
    return which < 1;
}
bool drop_cq(scene& s, unsigned which) {
    if (which == 0)
        s.cq = {};
    return which < 1;
}
bool drop_cq_or_id(scene& s, unsigned which) {
    if (which == 0)
        s.cq = {};
    else if (which == 1)
        s.pair->client = {};
    return which < 2;
}

void wait_for_nothing(scene&, unsigned) {}

ibv_wc completion(std::uint64_t id) {
    ibv_wc wc{};
    wc.wr_id = id;
    return wc;
}
/// A completion of the program's own numbering, and the event that it raises.
void put_completion(scene& s) {
    rdma::cq_ref const queue = s.cq;
    if (!queue)
        return;
    fake::push_completion(queue.native_handle(), completion(7));
}

task<int> number(scene& s) {
    static_cast<void>(co_await s.pair->client.next(s.within(), s.ec));
    co_return 5;
}
task<> middle(scene& s) {
    int const five = co_await number(s);
    s.resumed = five != 5;
}

scenario const scenarios[] = {
    {"next event", [](scene& s) { s.make_pair(); },
     [](scene& s) -> task<> {
         rdma::cm_event const event = co_await s.pair->client.next(s.within(), s.ec);
         s.resumed = true;
         CHECK((s.ec || event.type() == type::addr_change));
     },
     [](scene& s, unsigned round) {
         if (round == 2 && s.pair->client)
             fake::push(s.pair->client->native_handle(), {RDMA_CM_EVENT_ADDR_CHANGE});
     },
     &drop_id},
    {"resolve_addr", [](scene& s) { s.id = async::cm_id(s.channel, rdma::port_space::tcp); },
     [](scene& s) -> task<> {
         co_await s.id.resolve_addr(rdma::address(rxe_host, 7471), s.within(), s.ec);
         s.resumed = true;
     },
     &wait_for_nothing, &drop_own_id},
    {"resolve_route",
     [](scene& s) {
         s.id = async::cm_id(s.channel, rdma::port_space::tcp);
         rdma::event_channel aside;
         rdma::cm_id id = make_id(aside);
         id.resolve_addr(rdma::address(rxe_host, 7471));
         expect(aside, type::addr_resolved);
         s.id = async::cm_id(s.channel, std::move(id));
     },
     [](scene& s) -> task<> {
         co_await s.id.resolve_route(s.within(), s.ec);
         s.resumed = true;
     },
     &wait_for_nothing, &drop_own_id},
    {"connect, the step",
     [](scene& s) {
         s.listener = make_listener(s.plain);
         rdma::event_channel aside;
         rdma::cm_id id = make_client(aside);
         id.create_qp({});
         s.id = async::cm_id(s.channel, std::move(id));
     },
     [](scene& s) -> task<> {
         co_await s.id.connect({}, s.within(), s.ec);
         s.resumed = true;
     },
     [](scene& s, unsigned) { s.serve(); }, &drop_own_id},
    {"accept, the step",
     [](scene& s) {
         rdma::event_channel aside;
         s.listener = make_listener(aside);
         s.ask();
         rdma::cm_id asked = next(aside, type::connect_request).take_id();
         asked.create_qp({});
         s.id = async::cm_id(s.channel, std::move(asked));
     },
     [](scene& s) -> task<> {
         co_await s.id.accept({}, s.within(), s.ec);
         s.resumed = true;
     },
     [](scene& s, unsigned) { s.follow(); }, &drop_own_id},
    {"disconnect", [](scene& s) { s.make_pair(); },
     [](scene& s) -> task<> {
         co_await s.pair->client.disconnect(s.within(), s.ec);
         s.resumed = true;
     },
     &wait_for_nothing, &drop_id},
    {"connect, all of it", [](scene& s) { s.listener = make_listener(s.plain); },
     [](scene& s) -> task<> {
         s.id = co_await async::connect(s.channel, rdma::address(rxe_host, 7471), s.connecting(), s.ec);
         s.resumed = true;
         CHECK(static_cast<bool>(s.id) == !s.ec);
     },
     [](scene& s, unsigned) { s.serve(); }, &drop_channel},
    {"resolve, all of it", [](scene&) {},
     [](scene& s) -> task<> {
         s.id = co_await async::resolve(s.channel, rdma::address(rxe_host, 7471), s.connecting(), s.ec);
         s.resumed = true;
         CHECK(static_cast<bool>(s.id) == !s.ec);
     },
     &wait_for_nothing, &drop_channel},
    {"accept, all of it",
     [](scene& s) {
         rdma::event_channel aside;
         s.listener = make_listener(aside);
         s.ask();
         s.undecided = next(aside, type::connect_request).take_id();
     },
     [](scene& s) -> task<> {
         s.id = co_await async::accept(s.channel, std::move(s.undecided), s.accepting(), s.ec);
         s.resumed = true;
         CHECK(static_cast<bool>(s.id) == !s.ec);
     },
     [](scene& s, unsigned) { s.follow(); }, &drop_channel},
    {"next request", [](scene& s) { s.acceptor = async::acceptor(s.channel, rdma::address(rxe_host, 7471)); },
     [](scene& s) -> task<> {
         async::request const asked = co_await s.acceptor.next(s.within(), s.ec);
         s.resumed = true;
         CHECK(static_cast<bool>(asked) == !s.ec);
     },
     [](scene& s, unsigned round) {
         if (round == 2 && s.acceptor)
             fake::push_request(s.acceptor.id()->native_handle());
     },
     [](scene& s, unsigned which) {
         if (which == 0)
             s.acceptor = {};
         else if (which == 1)
             s.channel = {};
         return which < 2;
     }},
    {"next completion", [](scene& s) { s.make_pair_with_cq(); },
     [](scene& s) -> task<> {
         rdma::work_completion const one = co_await s.cq.next(s.within(), s.ec);
         s.resumed = true;
         CHECK((s.ec || one.wr_id() == 7));
     },
     [](scene& s, unsigned round) {
         if (round == 2 && s.pair->server)
             put_completion(s);
     },
     &drop_cq},
    {"next completions", [](scene& s) { s.make_pair_with_cq(); },
     [](scene& s) -> task<> {
         auto const all = co_await s.cq.next(s.some, s.within(), s.ec);
         s.resumed = true;
         CHECK(all.size() == (s.ec ? 0 : 1));
     },
     [](scene& s, unsigned round) {
         if (round == 2)
             put_completion(s);
     },
     &drop_cq},
    {"send, by id", [](scene& s) { s.make_pair_with_cq(); },
     [](scene& s) -> task<> {
         rdma::send_wr const what = rdma::send_wr::send(s.pair->near.sge()).id(9);
         rdma::work_completion const done = co_await s.cq.post_send(s.pair->client, what, s.within(), s.ec);
         s.resumed = true;
         CHECK((s.ec || done.wr_id() == 9));
     },
     [](scene& s, unsigned round) {
         if (round == 2)
             s.pair->listen();
     },
     &drop_cq_or_id},
    {"send, by QP", [](scene& s) { s.make_pair_with_cq(); },
     [](scene& s) -> task<> {
         rdma::send_wr const what = rdma::send_wr::send(s.pair->near.sge()).id(9);
         static_cast<void>(co_await s.cq.post_send(s.pair->client->qp(), what, s.within(), s.ec));
         s.resumed = true;
     },
     [](scene& s, unsigned round) {
         if (round == 2)
             s.pair->listen();
     },
     &drop_cq},
    {"receive, by id", [](scene& s) { s.make_pair_with_cq(); },
     [](scene& s) -> task<> {
         rdma::recv_wr const into = rdma::recv_wr(s.pair->near.sge()).id(9);
         rdma::work_completion const done = co_await s.cq.post_recv(s.pair->client, into, s.within(), s.ec);
         s.resumed = true;
         CHECK((s.ec || done.wr_id() == 9));
     },
     [](scene& s, unsigned round) {
         if (round == 2)
             s.pair->say();
     },
     &drop_cq_or_id},
    {"receive, by QP", [](scene& s) { s.make_pair_with_cq(); },
     [](scene& s) -> task<> {
         static_cast<void>(
             co_await s.cq.post_recv(s.pair->client->qp(), rdma::recv_wr(s.pair->near.sge()), s.within(), s.ec));
         s.resumed = true;
     },
     [](scene& s, unsigned round) {
         if (round == 2)
             s.pair->say();
     },
     &drop_cq},
    {"receive, shared",
     [](scene& s) {
         rdma::event_channel made;
         rdma::cm_id const probe = make_bound(made);
         s.shared = rdma::srq(probe.pd(), {.max_wr = 8});
         s.cq = async::cq(s.loop, probe.verbs(), 16);
         s.pair.emplace(s.channel, rdma::qp_init_attr{.send_cq = s.cq, .recv_cq = s.cq, .srq = s.shared});
     },
     [](scene& s) -> task<> {
         static_cast<void>(co_await s.cq.post_recv(s.shared, rdma::recv_wr(s.pair->near.sge()), s.within(), s.ec));
         s.resumed = true;
     },
     [](scene& s, unsigned round) {
         if (round == 2)
             s.pair->say();
     },
     &drop_cq},
    {"events of connections",
     [](scene& s) {
         s.peer = make_bound(s.plain);
         s.events = async::events<rdma::event_channel>(s.loop, s.plain);
     },
     [](scene& s) -> task<> {
         rdma::cm_event const event = co_await s.events.next(s.within(), s.ec);
         s.resumed = true;
         CHECK(static_cast<bool>(event) == !s.ec);
     },
     [](scene& s, unsigned round) {
         if (round == 2)
             fake::push(s.peer.native_handle(), {RDMA_CM_EVENT_ADDR_CHANGE});
     },
     [](scene& s, unsigned which) {
         if (which == 0) {
             s.events = {};
             s.plain = rdma::event_channel(); // and its descriptor goes to the next that is opened
         }
         return which < 1;
     }},
    {"events of completion queues",
     [](scene& s) {
         s.peer = make_bound(s.plain);
         s.bell = rdma::comp_channel(s.peer.verbs());
         s.queue = rdma::cq(s.peer.verbs(), 8, s.bell);
         s.bells = async::events<rdma::comp_channel>(s.loop, s.bell);
     },
     [](scene& s) -> task<> {
         rdma::cq_event const event = co_await s.bells.next(s.within(), s.ec);
         s.resumed = true;
     },
     [](scene& s, unsigned round) {
         if (round == 2 && s.queue)
             fake::push_cq_event(s.queue.native_handle());
     },
     [](scene& s, unsigned which) {
         if (which == 0)
             s.bells = {};
         return which < 1;
     }},
    {"events of devices",
     [](scene& s) {
         s.peer = make_bound(s.plain);
         s.alarms = async::events<rdma::async_channel>(s.loop, s.peer.verbs().async_channel());
     },
     [](scene& s) -> task<> {
         rdma::async_event const event = co_await s.alarms.next(s.within(), s.ec);
         s.resumed = true;
     },
     [](scene& s, unsigned round) {
         if (round == 2)
             fake::push_async(s.peer.verbs().native_handle(), IBV_EVENT_PORT_ERR);
     },
     [](scene& s, unsigned which) {
         if (which == 0)
             s.alarms = {};
         return which < 1;
     }},
    {"a task that awaits a task", [](scene& s) { s.make_pair(); },
     [](scene& s) -> task<> {
         co_await middle(s);
         s.resumed = true;
     },
     [](scene& s, unsigned round) {
         if (round == 2 && s.pair->client)
             fake::push(s.pair->client->native_handle(), {RDMA_CM_EVENT_ADDR_CHANGE});
     },
     &drop_id},
};

enum class end { none, destroyed, stopped, late, dropped };

/// Lets the end be told, and then all that was begun go on.
void settle(scenario const& what, scene& s, unsigned round) {
    s.loop.turns(4);
    for (unsigned const last = round + 8; round != last; ++round) {
        while (fake::step())
            ;
        what.progress(s, round);
        s.loop.turns(4);
    }
}

/// Runs it, and at one of the points where it waits ends it. @return at how many points it waited
unsigned run(scenario const& what, loop_kind on, end how, unsigned at, unsigned which = 0) {
    scene s(on);
    what.prepare(s);
    if (how == end::late)
        s.span = 1ms;
    fake::set_manual(true);
    task<> running = what.run(s);
    running.start();
    unsigned point = 0;
    bool ended = false;
    for (unsigned round = 0; round != 40 && !running.done(); ++round) {
        if (++point == at && how != end::none) {
            ended = true;
            if (how == end::destroyed)
                running = {};
            else if (how == end::stopped)
                s.stop.request_stop();
            else if (how == end::dropped)
                what.drop(s, which);
            else
                for (auto const begun = std::chrono::steady_clock::now();
                     std::chrono::steady_clock::now() - begun < 1ms;)
                    ;
            settle(what, s, round);
            break;
        }
        if (!fake::step())
            what.progress(s, round);
        s.loop.turn();
    }
    if (how == end::none) {
        CHECK(running.done());
        CHECK(s.resumed);
        CHECK_FALSE(s.ec);
    } else if (ended && how == end::destroyed)
        CHECK_FALSE(s.resumed);
    else if (ended) {
        CHECK(running.done());
        std::error_code const wanted = how == end::stopped ? std::make_error_code(std::errc::operation_canceled)
                                       : how == end::late  ? std::make_error_code(std::errc::timed_out)
                                                           : std::error_code(rdma::errc::empty_handle);
        CHECK(s.ec == wanted.default_error_condition());
    }
    return point;
}

void all_points(end how) {
    for (loop_kind const on : every_kind)
        for (scenario const& what : scenarios) {
            INFO(what.name << ", " << name_of(on));
            unsigned points = 0;
            {
                world w;
                points = run(what, on, end::none, 0);
                CHECK(points >= 1);
            }
            for (unsigned at = 1; at <= points; ++at)
                for (unsigned which = 0; which != 2; ++which) {
                    INFO("at point " << at << " of " << points << ", object " << which);
                    world w;
                    {
                        scene probe(on);
                        what.prepare(probe);
                        if (which != 0 && (how != end::dropped || !what.drop(probe, which)))
                            break;
                    }
                    run(what, on, how, at, which);
                }
        }
}

} // namespace

TEST_CASE("cancel: destroyed at each point where it waits", "[async]") { all_points(end::destroyed); }
TEST_CASE("cancel: stopped at each point where it waits", "[async]") { all_points(end::stopped); }
TEST_CASE("cancel: late at each point where it waits", "[async]") { all_points(end::late); }
TEST_CASE("cancel: its object dropped at each point where it waits", "[async]") { all_points(end::dropped); }

// ---- The classic: the device goes on with a request whose coroutine is gone -----------------------------------------

namespace {

using sending = decltype(std::declval<async::cq const&>().post_send(
    std::declval<async::cm_id const&>(), std::declval<rdma::send_wr const&>(), std::declval<std::error_code&>()));

/// Memory for one operation, and after it for something else.
struct reused {
    alignas(sending) std::array<unsigned char, sizeof(sending)> bytes;
    sending* made = nullptr;

    template <class Make>
    sending& begin(Make const& make) {
        made = ::new (static_cast<void*>(bytes.data())) sending(make());
        return *made;
    }
    void end() {
        made->~sending();
        bytes.fill(0xa5);
    }
    bool untouched() const {
        return std::all_of(bytes.begin(), bytes.end(), [](unsigned char each) { return each == 0xa5; });
    }
};

} // namespace

TEST_CASE("cancel: a completion whose waiter is gone finds nobody: no memory, and no heir of its place", "[async]") {
    for (loop_kind const on : every_kind) {
        world w;
        INFO(name_of(on));
        scene s(on);
        s.make_pair_with_cq();
        rdma::send_wr const what = rdma::send_wr::send(s.pair->near.sge()).id(5);
        auto const make = [&] { return s.cq.post_send(s.pair->client, what, s.ec); };
        reused gone, heir;
        int called = 0;
        async::callback const count{[](void* object) { ++*static_cast<int*>(object); }, &called};
        sending& first = gone.begin(make);
        CHECK_FALSE(first.operation().start());
        CHECK(first.operation().wait(count));
        gone.end();
        sending& second = heir.begin(make); // at the place in the table that the first had
        CHECK_FALSE(second.operation().start());
        CHECK(second.operation().wait(count));
        s.pair->listen(); // the first is sent
        s.loop.turns(4);
        CHECK(called == 0);
        CHECK(second.operation().waits());
        CHECK(gone.untouched());
        s.pair->listen(); // and the second
        s.loop.turns(4);
        CHECK(called == 1);
        CHECK(second.operation().take().wr_id() == 5);
        heir.end();
        for (int i = 0; i != 100; ++i) { // and so on, with a completion owed each time
            gone.begin(make);
            CHECK_FALSE(gone.made->operation().start());
            CHECK(gone.made->operation().wait(count));
            gone.end();
            s.pair->listen();
            s.loop.turns(i % 3);
        }
        s.loop.turns(4);
        CHECK(called == 1);
        CHECK(gone.untouched());
        CHECK(heir.untouched());
    }
}

TEST_CASE("cancel: ended by hand, on a later turn, once", "[async]") {
    for (loop_kind const on : every_kind) {
        world w;
        INFO(name_of(on));
        scene s(on);
        s.make_pair();
        std::optional next(s.pair->client.next(s.ec));
        int called = 0;
        async::callback const count{[](void* object) { ++*static_cast<int*>(object); }, &called};
        CHECK_FALSE(next->operation().start());
        CHECK(next->operation().wait(count));
        next->operation().cancel();
        next->operation().cancel();
        CHECK(called == 0);
        fake::push(s.pair->client->native_handle(), {RDMA_CM_EVENT_ADDR_CHANGE});
        s.loop.turns(4);
        CHECK(called == 1);
        CHECK(next->operation().result() == std::errc::operation_canceled);
        next->operation().cancel();
        s.loop.turns(2);
        CHECK(called == 1);
        next.reset();
        std::optional after(s.pair->client.next(s.ec)); // what came is the next one's
        if (!after->operation().start() && after->operation().wait(count))
            s.loop.turns(4);
        CHECK_FALSE(after->operation().result());
    }
}

TEST_CASE("cancel: begun, and what it is about goes before it is waited for", "[async]") {
    world w;
    scene s(loop_kind::epoll);
    s.make_pair_with_cq();
    rdma::send_wr const what = rdma::send_wr::send(s.pair->near.sge());
    auto sent = s.cq.post_send(s.pair->client, what, s.ec);
    CHECK_FALSE(sent.operation().start());
    s.pair->client = {};
    CHECK_FALSE(sent.operation().wait({[](void*) {}, nullptr}));
    CHECK(sent.operation().result() == rdma::errc::empty_handle);
}
