// SPDX-License-Identifier: MIT
// The awaitables through an adapter to Asio, on the fake. Whoever includes this has named the one or the other: `asio`,
// `adapter`, `error_code`, `standard`, `asio_error`, RDMACPP_TEST_NET for the names of the cases, RDMACPP_TEST_SLOTS
// where there are cancellation slots, RDMACPP_TEST_ALL for what one of them stands for both, since it takes long to
// compile: the operations that differ in nothing that Asio sees, and the bugs of the field.

#include <algorithm>
#include <array>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include <unistd.h>

using namespace unit;
namespace async = rdma::async;

namespace {

/// What a handler was told, and how often, and whether it is gone.
struct note {
    int calls = 0;
    std::error_code ec;
    bool gave = false; // something that is not empty
    std::weak_ptr<int> handler;

    bool gone() const { return handler.expired(); }
};

template <class T>
bool is_full(T const& value) {
    if constexpr (std::same_as<T, rdma::work_completion>)
        return false; // an empty one may hold anything
    else if constexpr (requires { value.empty(); })
        return !value.empty();
    else if constexpr (requires { static_cast<bool>(value); })
        return static_cast<bool>(value);
    else
        return false;
}

/// The one type of handler for each type of result, since each costs the compiler half a second.
template <class... T>
struct handler {
    note* into = nullptr;
    std::function<void(std::error_code, T...)> then = nullptr;
    std::shared_ptr<int> alive = std::make_shared<int>();
#if RDMACPP_TEST_SLOTS
    using cancellation_slot_type = asio::cancellation_slot;
    asio::cancellation_slot slot{};
    asio::cancellation_slot get_cancellation_slot() const noexcept { return slot; }
#endif
    // None that recycles, so that AddressSanitizer sees what is used late.
    using allocator_type = std::allocator<void>;
    allocator_type get_allocator() const noexcept { return {}; }

    void operator()(error_code ec, T... value) {
        if (into) {
            ++into->calls;
            into->ec = standard(ec);
            into->gave = (is_full(value) || ...);
        }
        if (then)
            then(standard(ec), std::move(value)...);
    }
};

template <class T>
struct handler_for {
    using type = handler<T>;
};
template <>
struct handler_for<void> {
    using type = handler<>;
};
template <class What>
using handler_of = typename handler_for<decltype(std::declval<What&>().operation().take())>::type;

#if RDMACPP_TEST_SLOTS
using slot_type = asio::cancellation_slot;
#else
struct slot_type {};
#endif

/// Begins, and notes what comes of it.
template <class What>
void begin(adapter::loop& loop, What what, note& into, [[maybe_unused]] slot_type slot = {}) {
    handler_of<What> noting{.into = &into};
    into.handler = noting.alive;
#if RDMACPP_TEST_SLOTS
    noting.slot = slot;
#endif
    adapter::initiate(loop, std::move(what), std::move(noting));
}
/// Begins, and goes on with this.
template <class What, class Then>
void begin(adapter::loop& loop, What what, Then then) {
    adapter::initiate(loop, std::move(what), handler_of<What>{.then = std::move(then)});
}

/// A loop with a channel on it, in the order in which a program has them.
struct setting {
    world w;
    std::optional<asio::io_context> io{std::in_place};
    std::optional<adapter::loop> loop{std::in_place, *io};
    async::event_channel channel{*loop};

    template <class What, class Then>
    void start(What what, Then&& then) {
        begin(*loop, std::move(what), std::forward<Then>(then));
    }
    /// With one of Asio's own tokens.
    template <class What, class Token>
    auto with(What&& what, Token&& token) {
        return adapter::initiate(*loop, std::forward<What>(what), std::forward<Token>(token));
    }
    /// An id with a device.
    rdma::cm_id bound_id() {
        rdma::cm_id id(channel, rdma::port_space::tcp);
        id.bind(rdma::address(rxe_host, 0));
        return id;
    }
    /// Until nothing is outstanding: what hangs here is found by the runner.
    void run() {
        io->restart();
        io->run();
    }
    /// All that can be done without waiting.
    void turn() {
        io->restart();
        while (io->poll() != 0)
            ;
    }
};

rdma::address at(char const* host, int port = 7471) { return rdma::address(host, port); }

/// One end of a connection, with memory, and its CQs watched.
struct end {
    async::cm_id id;
    async::cq sends, receives;
    std::array<std::byte, 64> memory{};
    rdma::mr region;

    auto prepare() {
        return [this](rdma::cm_id& made, std::error_code& ec) {
            region = made.reg_msgs(memory, ec);
            if (!ec)
                ec = std::make_error_code(made.post_recv(nullptr, memory, region, std::nothrow));
        };
    }
    void connected(setting& s, async::cm_id made) {
        id = std::move(made);
        sends = async::cq(*s.loop, id->send_cq());
        receives = async::cq(*s.loop, id->recv_cq());
    }
    rdma::send_wr message(char what) {
        memory.fill(static_cast<std::byte>(what));
        return rdma::send_wr::send(region.sge());
    }
};

/// What escapes from a coroutine comes out of run.
constexpr auto loud = [](std::exception_ptr thrown) {
    if (thrown)
        std::rethrow_exception(thrown);
};

} // namespace

// ---- The ways of waiting --------------------------------------------------------------------------------------------

TEST_CASE(RDMACPP_TEST_NET "a connection in callbacks, from connect to disconnect") {
    for (char const* host : {rxe_host, siw_host}) {
        INFO(host);
        setting s;
        end client, server;
        async::acceptor acceptor(s.channel, at(host));
        std::vector<std::string> told;

        s.start(acceptor.next(), [&](std::error_code ec, async::request request) {
            REQUIRE_FALSE(ec);
            told.push_back("request");
            s.start(async::accept(s.channel, request.take_id(), {}, server.prepare()),
                    [&](std::error_code refused, async::cm_id id) {
                        REQUIRE_FALSE(refused);
                        server.connected(s, std::move(id));
                        s.start(server.receives.next(), [&](std::error_code lost, rdma::work_completion done) {
                            REQUIRE_FALSE(lost);
                            CHECK(done);
                            CHECK(server.memory[0] == std::byte{'a'});
                            s.start(server.sends.post_send(server.id, server.message('b')),
                                    [&](std::error_code unsent, rdma::work_completion sent) {
                                        REQUIRE_FALSE(unsent);
                                        CHECK(sent);
                                        told.push_back("answered");
                                    });
                            s.start(server.id.next(), [&](std::error_code broken, rdma::cm_event event) {
                                REQUIRE_FALSE(broken);
                                told.push_back(to_string(event.type()));
                            });
                        });
                    });
        });
        s.start(async::connect(s.channel, at(host), {}, client.prepare()), [&](std::error_code ec, async::cm_id id) {
            REQUIRE_FALSE(ec);
            client.connected(s, std::move(id));
            s.start(client.sends.post_send(client.id, client.message('a')),
                    [&](std::error_code unsent, rdma::work_completion sent) {
                        REQUIRE_FALSE(unsent);
                        CHECK(sent);
                        s.start(client.receives.next(), [&](std::error_code lost, rdma::work_completion done) {
                            REQUIRE_FALSE(lost);
                            CHECK(done);
                            CHECK(client.memory[0] == std::byte{'b'});
                            s.start(client.id.disconnect(), [&](std::error_code broken) {
                                CHECK_FALSE(broken);
                                told.push_back("disconnected");
                            });
                        });
                    });
        });
        CHECK(told.empty()); // nothing is told before the loop runs
        s.run();
        std::sort(told.begin(), told.end());
        CHECK(told == std::vector<std::string>{to_string(type::disconnected), "answered", "disconnected", "request"});
    }
}

TEST_CASE(RDMACPP_TEST_NET "futures, for threads that do not run the loop") {
    setting s;
    end client, server;
    async::acceptor acceptor(s.channel, at(rxe_host));
    std::thread runner([&, work = asio::make_work_guard(*s.io)] { s.io->run(); });

    auto request = s.with([&] { return acceptor.next(); }, asio::use_future);
    auto connecting =
        s.with([&] { return async::connect(s.channel, at(rxe_host), {}, client.prepare()); }, asio::use_future);
    async::request asked = request.get();
    auto accepting = s.with(
        [&, undecided = asked.take_id()]() mutable {
            return async::accept(s.channel, std::move(undecided), {}, server.prepare());
        },
        asio::use_future);
    async::cm_id id = connecting.get();
    async::cm_id accepted = accepting.get();
    std::promise<void> ready; // the ids are the loop's, and so are the queues
    asio::post(*s.io, [&] {
        client.connected(s, std::move(id));
        server.connected(s, std::move(accepted));
        ready.set_value();
    });
    ready.get_future().get();
    auto sent = s.with([&] { return client.sends.post_send(client.id, client.message('x')); }, asio::use_future);
    auto received = s.with([&] { return server.receives.next(10s); }, asio::use_future);
    CHECK(sent.get());
    CHECK(received.get());
    CHECK(server.memory[0] == std::byte{'x'});
    auto late = s.with([&] { return server.receives.next(1ms); }, asio::use_future);
    try {
        static_cast<void>(late.get());
        FAIL("it was not late");
    } catch (asio_error const& e) {
        CHECK(standard(e.code()) == std::errc::timed_out);
    }
    s.with([&] { return client.id.disconnect(); }, asio::use_future).get();
    s.io->stop();
    runner.join();
}

namespace {

asio::awaitable<void> echo(setting& s, rdma::cm_id undecided, int& served) {
    end mine;
    auto const prepare = mine.prepare();
    mine.connected(s,
                   co_await s.with(async::accept(s.channel, std::move(undecided), {}, prepare), asio::use_awaitable));
    rdma::work_completion const got = co_await s.with(mine.receives.next(), asio::use_awaitable);
    CHECK(got);
    rdma::send_wr const answer = rdma::send_wr::send(mine.region.sge());
    rdma::work_completion const sent = co_await s.with(mine.sends.post_send(mine.id, answer), asio::use_awaitable);
    CHECK(sent);
    rdma::cm_event const over = co_await s.with(mine.id.next(), asio::use_awaitable);
    CHECK(over.type() == type::disconnected);
    ++served;
}

asio::awaitable<void> serve(setting& s, int sessions, int& served) {
    async::acceptor acceptor(s.channel, rdma::address::any_v6(7471));
    for (; sessions != 0; --sessions) {
        async::request request = co_await s.with(acceptor.next(), asio::use_awaitable);
        asio::co_spawn(s.loop->get_executor(), echo(s, request.take_id(), served), loud);
    }
}

asio::awaitable<void> talk(setting& s, char const* host, char what, int& talked) {
    end mine;
    auto const prepare = mine.prepare();
    rdma::connect_options const options;
    mine.connected(s, co_await s.with(async::connect(s.channel, at(host), options, prepare), asio::use_awaitable));
    rdma::send_wr const message = mine.message(what);
    bool const sent(co_await s.with(mine.sends.post_send(mine.id, message), asio::use_awaitable));
    CHECK(sent); // co_await within CHECK would confuse Catch
    std::array<rdma::work_completion, 4> some;
    auto const got = co_await s.with(mine.receives.next(some), asio::use_awaitable);
    CHECK(got.size() == 1);
    CHECK(mine.memory[63] == static_cast<std::byte>(what));
    co_await s.with(mine.id.disconnect(), asio::use_awaitable);
    ++talked;
}

} // namespace

TEST_CASE(RDMACPP_TEST_NET "coroutines: a server and its clients") {
    setting s;
    int served = 0, talked = 0;
    asio::co_spawn(*s.io, serve(s, 8, served), loud);
    for (int i = 0; i != 8; ++i)
        asio::co_spawn(*s.io, talk(s, i % 2 == 0 ? rxe_host : siw_host, static_cast<char>('a' + i), talked), loud);
    s.run();
    CHECK(served == 8);
    CHECK(talked == 8);
}

TEST_CASE(RDMACPP_TEST_NET "a loop on a strand of a context that several threads run") {
    world w;
    asio::io_context io;
    auto const strand = asio::make_strand(io);
    adapter::loop loop(strand);
    async::event_channel channel(loop);
    std::vector<note> ends(32);
    std::optional<async::acceptor> acceptor;
    std::vector<async::cm_id> accepted;
    std::function<void()> accept_next;
    asio::post(strand, [&] {
        acceptor.emplace(channel, at(rxe_host));
        accept_next = [&] {
            begin(loop, acceptor->next(), [&](std::error_code ec, async::request request) {
                CHECK(strand.running_in_this_thread());
                if (ec)
                    return;
                begin(loop, async::accept(channel, request.take_id()), [&](std::error_code, async::cm_id id) {
                    accepted.push_back(std::move(id));
                    if (accepted.size() == ends.size())
                        acceptor.reset();
                });
                accept_next();
            });
        };
        accept_next();
        for (note& each : ends)
            begin(loop, async::connect(channel, at(rxe_host)), each);
    });
    {
        std::vector<std::jthread> threads;
        for (int i = 0; i != 3; ++i)
            threads.emplace_back([&] { io.run(); });
    }
    for (note const& each : ends) {
        CHECK(each.calls == 1);
        CHECK_FALSE(each.ec);
        CHECK(each.gave);
    }
}

// ---- Limits, and many at a time -------------------------------------------------------------------------------------

TEST_CASE(RDMACPP_TEST_NET "connect to a host that does not answer is late, and leaves nothing") {
    setting s;
    fake::set_silent(rxe_client_host);
    rdma::connect_report report;
    note end;
    s.start(async::connect(s.channel, at(rxe_client_host), {.limit = 30ms, .report = &report}), end);
    auto const begun = std::chrono::steady_clock::now();
    s.run();
    CHECK(std::chrono::steady_clock::now() - begun >= 30ms);
    CHECK(end.calls == 1);
    CHECK(end.ec == std::errc::timed_out);
    CHECK_FALSE(end.gave);
    CHECK(to_string(report.step) == "connect");
    CHECK(fake::live().ids == 0);
}

TEST_CASE(RDMACPP_TEST_NET "many in flight on one channel, each with its own outcome") {
    constexpr int count = 60;
    setting s;
    fake::set_silent(rxe_client_host);
    async::acceptor acceptor(s.channel, at(rxe_host));
    std::map<int, async::cm_id> accepted;
    int requests = 0;
    std::function<void()> accept_next = [&] {
        s.start(acceptor.next(), [&](std::error_code ec, async::request request) {
            if (ec)
                return;
            ++requests;
            int const which = static_cast<int>(request.event().private_data()[0]);
            if (which % 4 == 1)
                request.reject();
            else
                s.start(async::accept(s.channel, request.take_id()),
                        [&, which](std::error_code refused, async::cm_id id) {
                            CHECK_FALSE(refused);
                            accepted[which] = std::move(id);
                        });
            accept_next();
        });
    };
    accept_next();

    std::vector<note> ends(count);
    std::vector<std::stop_source> stops(count);
    std::array<std::byte, count> data; // must be there until the connection is asked for
    int open = count;
    for (int i = 0; i != count; ++i) {
        auto const place = static_cast<std::size_t>(i);
        data[place] = static_cast<std::byte>(i);
        rdma::connect_options options;
        options.param.private_data = std::span(data).subspan(place, 1);
        bool const silent = i % 4 >= 2;
        if (i % 4 == 2)
            options.limit = 40ms;
        if (i % 4 == 3)
            options.stop = stops[place].get_token();
        s.start(async::connect(s.channel, at(silent ? rxe_client_host : rxe_host), options),
                [&, &end = ends[place]](std::error_code ec, async::cm_id made) {
                    ++end.calls;
                    end.ec = ec;
                    end.gave = static_cast<bool>(made);
                    if (--open == count / 4) // those that are late came last, but for these
                        for (std::stop_source& each : stops)
                            each.request_stop();
                    if (open == 0)
                        acceptor = {};
                });
    }
    s.run();
    CHECK(requests == count / 2);
    CHECK(accepted.size() == count / 4);
    for (int i = 0; i != count; ++i) {
        note const& end = ends[static_cast<std::size_t>(i)];
        INFO(i << ": " << end.ec.message());
        CHECK(end.calls == 1);
        CHECK(end.gave == (i % 4 == 0));
        switch (i % 4) {
        case 0: CHECK_FALSE(end.ec); break;
        case 1: CHECK(end.ec == rdma::condition::refused); break;
        case 2: CHECK(end.ec == std::errc::timed_out); break;
        default: CHECK(end.ec == std::errc::operation_canceled); break;
        }
    }
    accepted.clear();
    CHECK(fake::live().ids == 0);
}

// ---- Cancellation at every suspension point -------------------------------------------------------------------------

namespace {

/// What every operation may need. What is made in another way than by the loop has a channel of its own.
struct stage : setting {
    rdma::event_channel other;
    rdma::cm_id listener, plain;
    async::cm_id id, peer;
    std::optional<async::acceptor> acceptor;
    async::cq cq;
    rdma::srq srq;
    std::array<std::byte, 64> memory{};
    rdma::mr region;
    std::array<rdma::work_completion, 4> some;
    async::events<rdma::async_channel> device;
    rdma::connect_report report;
    std::stop_source stop;

    rdma::connect_options options() { return {.limit = 1h, .stop = stop.get_token(), .report = &report}; }
    async::limits within() const { return {rdma::timeout(1h), stop.get_token()}; }
    void listen() { listener = make_listener(other); }
    rdma::cm_id undecided() {
        listen();
        return make_request(other, listener).take_id();
    }
    void bound() { id = async::cm_id(channel, make_bound(other)); }
    void with_route() {
        listen();
        id = async::cm_id(channel, make_client(other));
        id->create_qp({});
    }
    void connected() {
        connection all = connect_pair();
        id = async::cm_id(channel, std::move(all.client));
        peer = async::cm_id(channel, std::move(all.server));
        region = id->reg_msgs(memory);
        cq = async::cq(*loop, id->send_cq());
    }
};

struct point {
    std::string name;
    int steps; // of the fake, until it is reached
    std::function<void(stage&, note&, slot_type)> begin;
};

/// Every operation at every place where it waits. Each name stands here once for each; a new awaitable has its line.
std::vector<point> suspension_points() {
    std::vector<point> all;
    auto const add = [&all](std::string const& name, int waits, auto operation) {
        for (int steps = 0; steps != waits; ++steps)
            all.push_back({name, steps, [operation](stage& s, note& end, slot_type slot) {
                               ::begin(*s.loop, operation(s), end, slot);
                           }});
    };
    add("connect", 3, [](stage& s) {
        s.listen();
        fake::set_manual(true);
        return async::connect(s.channel, at(rxe_host), s.options());
    });
    add("acceptor::next", 1, [](stage& s) {
        s.acceptor.emplace(s.channel, at(rxe_host));
        return s.acceptor->next(s.within());
    });
    add("cm_id::disconnect", 1, [](stage& s) {
        s.connected();
        fake::set_manual(true);
        return s.id.disconnect(s.within());
    });
    add("cq::post_send", 1, [](stage& s) {
        s.connected(); // and the peer has no receive posted
        return s.cq.post_send(s.id, rdma::send_wr::send(s.region.sge()), s.within());
    });
#if RDMACPP_TEST_ALL
    add("resolve", 2, [](stage& s) {
        fake::set_manual(true);
        return async::resolve(s.channel, at(rxe_host), s.options());
    });
    add("accept", 1, [](stage& s) {
        rdma::cm_id undecided = s.undecided();
        fake::set_manual(true);
        return async::accept(s.channel, std::move(undecided),
                             {.limit = 1h, .stop = s.stop.get_token(), .report = &s.report});
    });
    add("cm_id::next", 1, [](stage& s) {
        s.bound();
        return s.id.next(s.within());
    });
    add("cm_id::resolve_addr", 1, [](stage& s) {
        s.id = async::cm_id(s.channel, rdma::port_space::tcp);
        fake::set_manual(true);
        return s.id.resolve_addr(at(rxe_host), s.within());
    });
    add("cm_id::resolve_route", 1, [](stage& s) {
        rdma::cm_id plain = make_id(s.other);
        plain.resolve_addr(at(rxe_host));
        expect(s.other, type::addr_resolved);
        s.id = async::cm_id(s.channel, std::move(plain));
        fake::set_manual(true);
        return s.id.resolve_route(s.within());
    });
    add("cm_id::connect", 1, [](stage& s) {
        s.with_route();
        fake::set_manual(true);
        return s.id.connect({}, s.within());
    });
    add("cm_id::accept", 1, [](stage& s) {
        s.id = async::cm_id(s.channel, s.undecided());
        s.id->create_qp({});
        fake::set_manual(true);
        return s.id.accept({}, s.within());
    });
    add("cq::next", 1, [](stage& s) {
        s.connected();
        return s.cq.next(s.within());
    });
    add("cq::next of several", 1, [](stage& s) {
        s.connected();
        return s.cq.next(s.some, s.within());
    });
    add("cq::post_send to a QP", 1, [](stage& s) {
        s.connected();
        return s.cq.post_send(s.id->qp(), rdma::send_wr::send(s.region.sge()), s.within());
    });
    add("cq::post_recv", 1, [](stage& s) {
        s.connected();
        s.cq = async::cq(*s.loop, s.id->recv_cq());
        return s.cq.post_recv(s.id, rdma::recv_wr(s.region.sge()), s.within());
    });
    add("cq::post_recv to a QP", 1, [](stage& s) {
        s.connected();
        s.cq = async::cq(*s.loop, s.id->recv_cq());
        return s.cq.post_recv(s.id->qp(), rdma::recv_wr(s.region.sge()), s.within());
    });
    add("cq::post_recv to an SRQ", 1, [](stage& s) {
        s.connected();
        s.cq = async::cq(*s.loop, s.id->recv_cq());
        s.srq = rdma::srq(s.id->pd(), rdma::srq_init_attr());
        return s.cq.post_recv(s.srq, rdma::recv_wr(s.region.sge()), s.within());
    });
    add("events::next", 1, [](stage& s) {
        s.bound();
        s.device = async::events<rdma::async_channel>(*s.loop, s.id->verbs().async_channel());
        return s.device.next(s.within());
    });
#endif
    return all;
}

enum class way { slot, token, context, loop, scope };

void cancel_at(point const& where, way how) {
    note end;
    std::optional<stage> s(std::in_place);
    slot_type slot;
#if RDMACPP_TEST_SLOTS
    std::optional<asio::cancellation_signal> signal(std::in_place);
    slot = signal->slot();
#endif
    where.begin(*s, end, slot);
    s->turn();
    for (int i = 0; i != where.steps; ++i) {
        REQUIRE(fake::step());
        s->turn();
    }
    REQUIRE(end.calls == 0);
    REQUIRE_FALSE(end.gone());
    switch (how) {
    case way::slot:
#if RDMACPP_TEST_SLOTS
        CHECK(slot.has_handler());
        signal->emit(asio::cancellation_type::terminal);
        CHECK(end.calls == 0); // not within emit
        s->run();
        CHECK_FALSE(slot.has_handler());
#endif
        break;
    case way::token:
        s->stop.request_stop();
        s->run();
        break;
    case way::context: s->io.reset(); break;
    case way::loop:
        s->loop.reset();
        CHECK(end.gone());
        s->turn();
        break;
    case way::scope:
#if RDMACPP_TEST_SLOTS
        signal.reset(); // who would emit goes first, here
#endif
        s.reset();
        break;
    }
    CHECK(end.gone());
    bool const told = how == way::slot || how == way::token;
    CHECK(end.calls == (told ? 1 : 0));
    CHECK((end.ec == std::errc::operation_canceled) == told);
    CHECK_FALSE(end.gave);
#if RDMACPP_TEST_SLOTS
    if (signal)
        signal->emit(asio::cancellation_type::all); // finds nothing
#endif
}

} // namespace

TEST_CASE(RDMACPP_TEST_NET "every operation is cancelled at every place where it waits, in every way") {
    auto const all = suspension_points();
    CHECK(all.size() == (RDMACPP_TEST_ALL ? 21 : 6));
    for (point const& where : all)
        for (way const how : {way::slot, way::token, way::context, way::loop, way::scope}) {
            if (how == way::slot && !RDMACPP_TEST_SLOTS)
                continue;
            INFO(where.name << ", after " << where.steps << " steps, way " << static_cast<int>(how));
            cancel_at(where, how);
        }
}

TEST_CASE(RDMACPP_TEST_NET "coroutines that wait go with their context, and with the loop") {
    for (bool const context_first : {false, true}) {
        INFO(context_first);
        setting s;
        fake::set_silent(rxe_client_host);
        int served = 0, talked = 0;
        note connected;
        asio::co_spawn(*s.io, serve(s, 4, served), loud); // waits for a request
        async::cm_id mute;
        begin(*s.loop, async::connect(s.channel, at(rxe_host)), [&](std::error_code ec, async::cm_id id) {
            CHECK_FALSE(ec);
            mute = std::move(id); // its echo waits for a message
        });
        asio::co_spawn(*s.io, talk(s, rxe_host, 'x', talked), loud);        // is done
        asio::co_spawn(*s.io, talk(s, rxe_client_host, 'y', talked), loud); // waits for an answer
        s.turn();
        CHECK(served == 1);
        CHECK(talked == 1);
        CHECK(mute);
        if (context_first)
            s.io.reset();
    }
}

// ---- What a handler brings along ------------------------------------------------------------------------------------

namespace {

struct arena {
    int taken = 0, held = 0;
};

template <class T>
struct from_arena {
    using value_type = T;
    arena* of;

    explicit from_arena(arena* where) noexcept : of(where) {}
    template <class U>
    from_arena(from_arena<U> const& other) noexcept : of(other.of) {}
    T* allocate(std::size_t n) {
        ++of->taken;
        ++of->held;
        return std::allocator<T>().allocate(n);
    }
    void deallocate(T* memory, std::size_t n) noexcept {
        --of->held;
        std::allocator<T>().deallocate(memory, n);
    }
    template <class U>
    bool operator==(from_arena<U> const& other) const noexcept {
        return of == other.of;
    }
};

/// A handler with an executor and an allocator, which cannot be copied.
struct placed {
    asio::io_context* where;
    arena* memory;
    std::function<void(std::error_code, rdma::cm_event)> then;
    std::unique_ptr<int> owned = std::make_unique<int>();

    using executor_type = asio::io_context::executor_type;
    executor_type get_executor() const noexcept { return where->get_executor(); }
    using allocator_type = from_arena<void>;
    allocator_type get_allocator() const noexcept { return allocator_type(memory); }

    void operator()(error_code ec, rdma::cm_event event) { then(standard(ec), std::move(event)); }
};

struct one_id : setting {
    async::cm_id id{channel, rdma::port_space::tcp};

    void push(int kind = RDMA_CM_EVENT_ADDR_CHANGE, int status = 0) { fake::push(id->native_handle(), {kind, status}); }
};

} // namespace

TEST_CASE(RDMACPP_TEST_NET "the handler's executor, with work that is outstanding there, and its memory") {
    one_id s;
    asio::io_context other;
    arena memory;
    int told = 0;
    s.with(s.id.next(), placed{&other, &memory, [&](std::error_code ec, rdma::cm_event const& event) {
                                   CHECK_FALSE(ec);
                                   CHECK(event.type() == type::addr_change);
                                   CHECK(memory.held == 0); // given back before the call
                                   ++told;
                               }});
    CHECK(memory.held == 1);
    s.turn();
    CHECK(other.poll() == 0);
    CHECK_FALSE(other.stopped()); // there is work to come
    s.push();
    s.turn();
    CHECK(told == 0);
    CHECK(other.run() != 0); // ends: none is left
    CHECK(told == 1);
    CHECK(memory.taken >= 2);

    s.with(s.id.next(), placed{&other, &memory, nullptr});
    CHECK(memory.held == 1);
    s.loop.reset();
    CHECK(memory.held == 0);
    other.restart();
    CHECK(other.run() == 0);
}

TEST_CASE(RDMACPP_TEST_NET "what is over at once is told later") {
    one_id s;
    note end, other;
    std::error_code unused = std::make_error_code(std::errc::bad_message);
    s.push();
    s.turn();
    begin(*s.loop, async::cm_id().next(), end);
    begin(*s.loop, async::cm_id().next(unused), other);
    CHECK(end.calls == 0);
    s.run();
    CHECK(end.calls == 1);
    CHECK(end.ec == rdma::errc::empty_handle);
    CHECK(other.ec == rdma::errc::empty_handle);
    CHECK(unused == std::errc::bad_message); // Asio's handler has it
}

TEST_CASE(RDMACPP_TEST_NET "what a handler throws comes out of run, which goes on afterwards") {
    one_id s;
    int told = 0;
    for (int i = 0; i != 3; ++i)
        s.start(s.id.next(), [&](std::error_code, rdma::cm_event const&) {
            ++told;
            throw told;
        });
    s.push();
    s.push();
    CHECK_THROWS_AS(s.run(), int);
    CHECK(told == 1);
    CHECK_THROWS_AS(s.run(), int);
    CHECK(told == 2);
    s.push();
    CHECK_THROWS_AS(s.run(), int);
    s.run();
    CHECK(told == 3);
}

#if RDMACPP_TEST_SLOTS
TEST_CASE(RDMACPP_TEST_NET "a signal reaches the operation that it is for, in time, and no other") {
    one_id s;
    asio::cancellation_signal signal;
    note over, waiting, partly, totally;
    begin(*s.loop, async::cm_id().next(), over, signal.slot()); // over at once, and not yet told
    signal.emit(asio::cancellation_type::all);
    s.run();
    CHECK(over.ec == rdma::errc::empty_handle);

    begin(*s.loop, s.id.next(), over, signal.slot());
    s.push();
    s.turn();
    CHECK(over.calls == 2);
    CHECK_FALSE(over.ec);
    begin(*s.loop, s.id.next(), waiting); // likely in the same memory
    signal.emit(asio::cancellation_type::all);
    s.turn();
    CHECK(waiting.calls == 0);

    begin(*s.loop, s.id.next(), partly, signal.slot());
    signal.emit(asio::cancellation_type::none);
    s.turn();
    CHECK(partly.calls == 0);
    signal.emit(asio::cancellation_type::partial);
    s.turn();
    CHECK(partly.ec == std::errc::operation_canceled);
    begin(*s.loop, s.id.next(), totally, signal.slot());
    signal.emit(asio::cancellation_type::total);
    s.turn();
    CHECK(totally.ec == std::errc::operation_canceled);
    s.push();
    s.run();
    CHECK(waiting.calls == 1);
    CHECK_FALSE(waiting.ec);
}

TEST_CASE(RDMACPP_TEST_NET "a coroutine is cancelled as Asio does it") {
    one_id s;
    asio::cancellation_signal signal;
    std::error_code ended;
    asio::co_spawn(
        *s.io, [&]() -> asio::awaitable<void> { co_await s.with(s.id.next(), asio::use_awaitable); },
        asio::bind_cancellation_slot(signal.slot(), [&](std::exception_ptr thrown) {
            try {
                std::rethrow_exception(thrown);
            } catch (asio_error const& e) {
                ended = standard(e.code());
            }
        }));
    s.turn();
    CHECK_FALSE(ended);
    signal.emit(asio::cancellation_type::terminal);
    s.run();
    CHECK(ended == std::errc::operation_canceled);
}
#endif

// ---- The loop by itself ---------------------------------------------------------------------------------------------

namespace {

struct pipe_ends {
    int ends[2] = {-1, -1};

    pipe_ends() { REQUIRE(::pipe(ends) == 0); }
    pipe_ends(pipe_ends const&) = delete;
    pipe_ends& operator=(pipe_ends const&) = delete;
    ~pipe_ends() {
        CHECK(::close(ends[0]) == 0); // nobody else has closed it
        CHECK(::close(ends[1]) == 0);
    }
    void ring() const { REQUIRE(::write(ends[1], "!", 1) == 1); }
    void read() const {
        char c = 0;
        REQUIRE(::read(ends[0], &c, 1) == 1);
    }
};

struct ringing {
    int times = 0;
    std::function<void()> act = nullptr;

    async::callback call() {
        return {[](void* self) {
                    auto& mine = *static_cast<ringing*>(self);
                    ++mine.times;
                    if (mine.act)
                        mine.act();
                },
                this};
    }
};

} // namespace

TEST_CASE(RDMACPP_TEST_NET "the loop calls back as long as a descriptor is readable, until that is dropped") {
    pipe_ends bell;
    asio::io_context io;
    adapter::loop loop(io.get_executor());
    std::error_code ec = std::make_error_code(std::errc::bad_message);
    ringing rung;
    async::registration watched = loop.readable(bell.ends[0], rung.call(), ec);
    REQUIRE(watched);
    CHECK_FALSE(ec);
    CHECK(io.poll() == 0);
    bell.ring();
    for (int i = 1; i != 4; ++i) {
        CHECK(io.poll_one() == 1); // not read: again
        CHECK(rung.times == i);
    }
    rung.act = [&] { bell.read(); };
    CHECK(io.poll() == 1);
    CHECK(io.poll() == 0);

    rung.act = [&] {
        bell.read();
        throw 1;
    };
    bell.ring();
    CHECK_THROWS_AS(io.poll(), int);
    rung.act = [&] { watched = {}; };
    bell.ring();
    CHECK(io.run() != 0); // and ends
    CHECK(rung.times == 6);
    watched = loop.readable(bell.ends[0], rung.call(), ec); // not read, and so at once
    REQUIRE(watched);
    watched = {};
    io.restart();
    io.run();
    CHECK(rung.times == 6);

    watched = loop.readable(bell.ends[0], rung.call(), ec);
    CHECK_FALSE(loop.readable(bell.ends[0], rung.call(), ec));
    CHECK(ec == std::errc::file_exists);
    CHECK_FALSE(loop.readable(-1, rung.call(), ec));
    CHECK(ec == std::errc::bad_file_descriptor);
}

TEST_CASE(RDMACPP_TEST_NET "the loop calls back after a time, or soon, unless that is dropped") {
    asio::io_context io;
    std::optional<adapter::loop> loop(io);
    std::error_code ec;
    std::string order;
    ringing soon{.act = [&] { order += '0'; }}, late{.act = [&] { order += '2'; }}, never{.act = [&] { order += 'n'; }};
    async::registration second, later;
    ringing first{.act = [&] {
        order += '1';
        second = {}; // in its own turn
    }};
    later = loop->after(20ms, late.call(), ec);
    second = loop->after(1ms, first.call(), ec);
    async::registration const now = loop->after(0ms, soon.call(), ec);
    async::registration dropped = loop->after(0ms, never.call(), ec), dropped_too = loop->after(1ms, never.call(), ec);
    dropped = {};
    dropped_too = {};
    CHECK(order.empty()); // not within the call
    io.run();
    CHECK(order == "012");

    later = loop->after(rdma::no_limit, never.call(), ec);
    REQUIRE(later);
    async::registration posted = loop->after(0ms, never.call(), ec);
    loop.reset(); // and the registrations after it
    io.restart();
    io.run();
    CHECK(order == "012");
}

TEST_CASE(RDMACPP_TEST_NET "a loop outlives its context, and has nothing to offer then") {
    pipe_ends bell;
    std::optional<asio::io_context> io(std::in_place);
    std::optional<adapter::loop> loop(*io);
    std::error_code ec;
    ringing never;
    async::registration watched = loop->readable(bell.ends[0], never.call(), ec),
                        timed = loop->after(1h, never.call(), ec), soon = loop->after(0ms, never.call(), ec);
    REQUIRE(watched);
    io.reset();
    CHECK_FALSE(loop->after(0ms, never.call(), ec));
    CHECK(ec == std::errc::operation_canceled);
    CHECK_FALSE(loop->readable(bell.ends[1], never.call(), ec));
    loop.reset();
    CHECK(never.times == 0);
}

// ---- Bugs of the field ----------------------------------------------------------------------------------------------

#if RDMACPP_TEST_ALL
namespace {

ibv_wc completion(std::uint64_t wr_id) {
    ibv_wc wc{};
    wc.wr_id = wr_id;
    wc.status = IBV_WC_SUCCESS;
    return wc;
}

struct one_cq : setting {
    rdma::cm_id bound = bound_id();
    async::cq cq{*loop, bound.verbs(), 64};
    std::size_t got = 0;

    /// Takes completions until there are so many.
    void take(std::size_t all) {
        start(cq.next(some), [this, all](std::error_code ec, std::span<rdma::work_completion> done) {
            REQUIRE_FALSE(ec);
            got += done.size();
            if (got < all)
                take(all);
        });
    }
    ibv_cq* native() const { return rdma::cq_ref(cq).native_handle(); }
    std::array<rdma::work_completion, 16> some;
};

} // namespace

TEST_CASE(RDMACPP_TEST_NET "A9 what comes while a queue is armed is not missed", "[field]") {
    one_cq s;
    fake::complete_while_arming(s.native(), completion(7)); // and raises no event
    s.take(1);
    s.run();
    CHECK(s.got == 1);
    CHECK(fake::count("ibv_get_cq_event") == 0);
}

TEST_CASE(RDMACPP_TEST_NET "A9 one event may stand for more completions than are asked for", "[field]") {
    one_cq s;
    s.take(40);
    s.turn();
    for (std::uint64_t i = 0; i != 40; ++i)
        fake::push_completion(s.native(), completion(i));
    s.run();
    CHECK(s.got == 40);
}

TEST_CASE(RDMACPP_TEST_NET "A10 all events are got that there are", "[field]") {
    one_id s;
    int seen = 0;
    std::error_code end;
    std::function<void()> next = [&] {
        s.start(s.id.next(), [&](std::error_code ec, rdma::cm_event const&) {
            end = ec;
            if (ec)
                return;
            ++seen;
            next();
        });
    };
    next();
    s.turn();
    for (int i = 0; i != 4; ++i)
        s.push();
    fake::fail("rdma_get_cm_event", 4, EINTR);
    s.turn();
    CHECK(seen == 4);
    CHECK(fake::count("rdma_ack_cm_event") == 4);
    s.turn();
    CHECK(seen == 4);
    s.push();
    s.push();
    fake::fail("rdma_get_cm_event", 3, EBADF);
    s.run();
    CHECK(seen == 6);
    CHECK(end == std::errc::bad_file_descriptor);
    CHECK(fake::count("rdma_ack_cm_event") == 6);
}

TEST_CASE(RDMACPP_TEST_NET "A17 EINTR is tried again, and EAGAIN means nothing", "[field]") {
    one_id s;
    for (int const code : {EINTR, EAGAIN}) {
        INFO(code);
        note end;
        begin(*s.loop, s.id.next(), end);
        s.turn();
        fake::fail("rdma_get_cm_event", 1, code); // also when the descriptor was readable
        if (code == EINTR)
            fake::fail("rdma_get_cm_event", 2, code);
        s.push();
        s.run();
        CHECK(end.calls == 1);
        CHECK_FALSE(end.ec);
        CHECK(end.gave);
    }
}

TEST_CASE(RDMACPP_TEST_NET "A18 a loop ends when it is asked to on another thread, every time", "[field]") {
    for (int i = 0; i != 100; ++i) {
        one_id s;
        std::stop_source stop;
        note end;
        begin(*s.loop, s.id.next(stop.get_token()), end);
        std::jthread const asks([&] { stop.request_stop(); });
        s.run();
        CHECK(end.ec == std::errc::operation_canceled);
    }
}

TEST_CASE(RDMACPP_TEST_NET "A19 events that come after a session was closed find nothing", "[field]") {
    setting s;
    connection all = connect_pair();
    async::cm_id id(s.channel, std::move(all.server));
    auto session = std::make_unique<int>(0);
    std::vector<type> seen;
    std::function<void()> next = [&] {
        s.start(id.next(), [&](std::error_code ec, rdma::cm_event const& event) {
            if (ec)
                return;
            seen.push_back(event.type());
            if (session)
                ++*session;
            session.reset(); // the id itself is kept
            if (event.type() == type::timewait_exit)
                id = {}; // in a handler of its own
            else
                next();
        });
    };
    next();
    all.client.disconnect();
    s.run();
    CHECK(seen == std::vector{type::disconnected, type::timewait_exit});
}

TEST_CASE(RDMACPP_TEST_NET "A19 an end does not wait for TIMEWAIT_EXIT, and what still comes is swallowed", "[field]") {
    setting s;
    connection all = connect_pair();
    async::cm_id id(s.channel, std::move(all.server));
    note end, other;
    begin(*s.loop, id.disconnect(), end);
    begin(*s.loop, id.next(), other);
    s.start(id.next(), [&](std::error_code, rdma::cm_event const&) { id = {}; });
    s.run();
    CHECK(end.calls == 1);
    CHECK(other.calls == 1);
    CHECK_FALSE(id);
}

TEST_CASE(RDMACPP_TEST_NET "A20 events come in any order, each once", "[field]") {
    int const unknown = 99; // no enumerator has it
    std::array const kinds{int{RDMA_CM_EVENT_ESTABLISHED},   int{RDMA_CM_EVENT_DISCONNECTED},
                           int{RDMA_CM_EVENT_UNREACHABLE},   int{RDMA_CM_EVENT_CONNECT_ERROR},
                           int{RDMA_CM_EVENT_REJECTED},      int{RDMA_CM_EVENT_ADDR_CHANGE},
                           int{RDMA_CM_EVENT_TIMEWAIT_EXIT}, unknown};
    setting s;
    for (int const first : kinds)
        for (int const second : kinds) {
            INFO(first << ", " << second);
            async::cm_id id(s.channel, s.bound_id());
            std::vector<int> seen;
            note third;
            for (int i = 0; i != 2; ++i)
                s.start(id.next(), [&](std::error_code ec, rdma::cm_event const& event) {
                    CHECK_FALSE(ec);
                    seen.push_back(static_cast<int>(event.type()));
                });
            fake::push(id->native_handle(), {first, -ETIMEDOUT});
            s.turn();
            bool const over = id.is_over();
            fake::push(id->native_handle(), {second, 0});
            s.run();
            CHECK(seen == std::vector{first, second});
            CHECK((!over || id.is_over())); // once it is, it stays
            begin(*s.loop, id.next(0ms), third);
            s.run();
            CHECK(third.ec == std::errc::timed_out);
        }
}
#endif
