// SPDX-License-Identifier: MIT
// Whatever is dropped, in whatever order and on whichever thread: nothing hangs, leaks, or is destroyed twice.
#include "sanitizer.hpp"
#include "support.hpp"

#include <algorithm>
#include <atomic>
#include <functional>
#include <numeric>
#include <optional>
#include <random>
#include <thread>

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace unit;

namespace {

using drop_list = std::vector<std::function<void()>>;

/// A connection on one channel, with what may be dropped of it, and whatever events a case holds.
struct scene {
    std::optional<rdma::event_channel> channel{std::in_place};
    rdma::cm_id listener = make_listener(*channel);
    rdma::cm_id client = make_client(*channel);
    rdma::cm_id server;
    std::vector<rdma::cm_event> events;
    std::optional<rdma::cq_event> completion;
    std::optional<rdma::async_event> trouble;
    drop_list drops; ///< one for each thing that is held

    scene(scene const&) = delete;
    scene& operator=(scene const&) = delete;

    explicit scene(std::vector<type> const& kept) : keep_(kept) {
        drops = {[this] { channel.reset(); }, [this] { listener = {}; }, [this] { client = {}; },
                 [this] { server = {}; }};
        client.create_qp({});
        client.connect();
        server = next(*channel, type::connect_request).take_id();
    }

    /// Holds the events of these types from now on.
    void hold_events() {
        for (rdma::cm_event event : channel->pending())
            if (std::find(keep_.begin(), keep_.end(), event.type()) != keep_.end())
                hold(std::move(event));
    }

    void hold(rdma::cm_event event) {
        if (events.capacity() == 0)
            events.reserve(16); // the drops name places in it
        events.push_back(std::move(event));
        drops.push_back([this, i = events.size() - 1] { events[i] = {}; });
    }

private:
    std::vector<type> keep_;
};

/// What may be held of a connection, by the event that it starts with.
struct kind {
    char const* name;
    std::function<void(scene&)> hold;
};

void connect(scene& s) {
    s.server.create_qp({});
    s.server.accept();
}

void hold_completion(scene& s) {
    fake::push_cq_event(s.server.recv_cq().native_handle());
    s.completion = s.server.recv_cq_channel().try_get();
    REQUIRE(s.completion);
    s.drops.push_back([&s] { s.completion.reset(); });
}

void hold_trouble(scene& s) {
    fake::push_async(s.client.qp().native_handle(), IBV_EVENT_QP_FATAL);
    s.trouble = async_event_of(s.client.verbs());
    REQUIRE(*s.trouble);
    s.drops.push_back([&s] { s.trouble.reset(); });
}

/// An event of the SRQ that the client has got after its QP: it keeps the id as one of the QP does.
void hold_srq_event(scene& s) {
    s.client.create_srq();
    fake::push_async(s.client.srq().native_handle(), IBV_EVENT_SRQ_LIMIT_REACHED);
    s.trouble = async_event_of(s.client.verbs());
    REQUIRE(*s.trouble);
    s.drops.push_back([&s] { s.trouble.reset(); });
}

/// The server has moved to a channel of its own, where an event of it is held.
void hold_on_another_channel(scene& s) {
    auto own = std::make_shared<rdma::event_channel>();
    expect(*s.channel, type::established);
    expect(*s.channel, type::established);
    s.server.migrate(*own);
    fake::push(s.server.native_handle(), {RDMA_CM_EVENT_ADDR_CHANGE});
    s.hold(next(*own, type::addr_change));
    s.drops.push_back([own] { *own = rdma::event_channel(rdma::no_init); });
}

/// A second request, not taken: the event owns its id.
void hold_request(scene& s) {
    fake::push_request(s.listener.native_handle());
    for (rdma::cm_event event : s.channel->pending())
        if (event.type() == type::connect_request)
            s.hold(std::move(event));
}

/// A second request whose id was taken: the fifth and sixth thing to drop.
void hold_request_taken(scene& s) {
    hold_request(s);
    auto child = std::make_shared<rdma::cm_id>(s.events.back().take_id());
    s.drops.push_back([child] { *child = {}; });
}

std::vector<kind> kinds() {
    auto const event_of = [](type wanted, bool of_server) {
        return [=](scene& s) {
            connect(s);
            for (rdma::cm_event event : s.channel->pending())
                if (event.type() == wanted && (event.id() == s.server) == of_server)
                    s.hold(std::move(event));
        };
    };
    auto const pushed = [](type wanted) {
        return [=](scene& s) {
            fake::push(s.client.native_handle(), {static_cast<rdma_cm_event_type>(wanted), -ETIMEDOUT});
            s.hold(next(*s.channel, wanted));
        };
    };
    auto const ended = [](type wanted) {
        return [=](scene& s) {
            connect(s);
            expect(*s.channel, type::established);
            expect(*s.channel, type::established);
            s.client.disconnect();
            for (rdma::cm_event event : s.channel->pending())
                if (event.type() == wanted && event.id() == s.server)
                    s.hold(std::move(event));
        };
    };
    return {
        {"nothing", connect},
        {"a completion event", [](scene& s) { connect(s), hold_completion(s); }},
        {"an async event", [](scene& s) { connect(s), hold_trouble(s); }},
        {"an event of an SRQ", [](scene& s) { connect(s), hold_srq_event(s); }},
        {"an event on another channel", [](scene& s) { connect(s), hold_on_another_channel(s); }},
        {"CONNECT_REQUEST", [](scene& s) { connect(s), hold_request(s); }},
        {"CONNECT_REQUEST and its id", [](scene& s) { connect(s), hold_request_taken(s); }},
        {"ESTABLISHED of the client", event_of(type::established, false)},
        {"ESTABLISHED of the server", event_of(type::established, true)},
        {"DISCONNECTED", ended(type::disconnected)},
        {"TIMEWAIT_EXIT", ended(type::timewait_exit)},
        {"ADDR_RESOLVED", pushed(type::addr_resolved)},
        {"ADDR_ERROR", pushed(type::addr_error)},
        {"ROUTE_RESOLVED", pushed(type::route_resolved)},
        {"ROUTE_ERROR", pushed(type::route_error)},
        {"CONNECT_RESPONSE", [=](scene& s) { s.client.destroy_qp(), pushed(type::connect_response)(s); }},
        {"CONNECT_ERROR", pushed(type::connect_error)},
        {"UNREACHABLE", pushed(type::unreachable)},
        {"REJECTED", pushed(type::rejected)},
        {"ADDR_CHANGE", pushed(type::addr_change)},
        {"DEVICE_REMOVAL", pushed(type::device_removal)},
        {"ADDRINFO_RESOLVED", pushed(type::addrinfo_resolved)},
        {"ADDRINFO_ERROR", pushed(type::addrinfo_error)},
        {"USER", pushed(type::user)},
        {"an event of the future", pushed(static_cast<type>(77))},
    };
}

/// Looks on from outside: what is wrong once all is dropped.
class witness {
public:
    explicit witness(scene& s) : ids_(fake::live().ids), qps_(fake::live().qps) {
        std::error_code ec;
        state_ = rdma::detail::channel_state::borrow(s.channel->native_handle(), ec);
        fake::clear_calls();
    }
    witness(witness const&) = delete;
    witness& operator=(witness const&) = delete;
    ~witness() {
        if (state_)
            state_->unref();
    }

    std::string problems() {
        rdma::channel_stats const end = state_->stats();
        std::exchange(state_, nullptr)->unref();
        std::string text = fake::leaks();
        for (std::string const& line : fake::misuse())
            text += "\nmisuse: " + line;
        for (std::string const& line : fake::would_hang())
            text += "\nwould hang: " + line;
        expect_equal(text, "events got and acked", end.events_got, end.events_acked);
        expect_equal(text, "events held", end.events_held, 0);
        expect_equal(text, "ids live", end.ids_live, 0);
        expect_equal(text, "ids awaiting an ack", end.ids_awaiting_ack, 0);
        expect_equal(text, "ids destroyed", fake::count("rdma_destroy_id"), ids_);
        expect_equal(text, "QPs destroyed", fake::count("ibv_destroy_qp"), qps_);
        return text;
    }

private:
    static void expect_equal(std::string& text, char const* what, std::uint64_t is, std::uint64_t wanted) {
        if (is != wanted)
            text += std::string("\n") + what + ": " + std::to_string(is) + ", expected " + std::to_string(wanted);
    }

    rdma::detail::channel_state* state_ = nullptr;
    std::size_t ids_, qps_;
};

std::string text_of(std::vector<std::size_t> const& order) {
    std::string text;
    for (std::size_t i : order)
        text += std::to_string(i) + ' ';
    return text;
}

std::vector<std::size_t> first_order(std::size_t n) {
    std::vector<std::size_t> order(n);
    for (std::size_t i = 0; i != n; ++i)
        order[i] = i;
    return order;
}

template <class Build, class Drop>
void check_all_orders(Build&& build, Drop&& drop) {
    std::vector<std::size_t> order;
    do {
        auto const s = build();
        if (order.empty())
            order = first_order(s->drops.size());
        witness w(*s);
        drop(s->drops, order);
        if (std::string const wrong = w.problems(); !wrong.empty())
            FAIL("dropped in the order " << text_of(order) << "(channel, listener, client, server, events): " << wrong);
    } while (std::next_permutation(order.begin(), order.end()));
}

void drop_on_one_thread(drop_list const& drops, std::vector<std::size_t> const& order) {
    for (std::size_t i : order)
        drops[i]();
}

/// In turns on two threads, as they come.
void drop_on_two_threads(drop_list const& drops, std::vector<std::size_t> const& order) {
    std::atomic<int> ready{0};
    auto const half = [&](std::size_t first) {
        ++ready;
        while (ready != 2)
            std::this_thread::yield();
        for (std::size_t i = first; i < order.size(); i += 2)
            drops[order[i]]();
    };
    std::thread other(half, 1);
    half(0);
    other.join();
}

auto scene_with(kind const& held) {
    return [&held] {
        auto s = std::make_unique<scene>(std::vector<type>{});
        held.hold(*s);
        return s;
    };
}

} // namespace

TEST_CASE("drop order: every order of the channel, its ids and one held event of each kind") {
    world w;
    for (kind const& held : kinds()) {
        INFO("held: " << held.name);
        check_all_orders(scene_with(held), drop_on_one_thread);
    }
}

TEST_CASE("drop order: every order, on two threads") {
    world w;
    for (kind const& held : kinds()) {
        INFO("held: " << held.name);
        check_all_orders(scene_with(held), drop_on_two_threads);
    }
}

TEST_CASE("drop order: every order of the channel, its ids and three held events") {
    world w;
    fake::set_reuse_addresses(true); // an address of a dead id is that of the next scene's
    SECTION("of the ids") {
        check_all_orders(
            [] {
                auto s = std::make_unique<scene>(std::vector<type>{type::established});
                connect(*s);
                s->hold_events();
                hold_request(*s);
                REQUIRE(s->drops.size() == 7);
                return s;
            },
            drop_on_one_thread);
    }
    SECTION("of ids, QPs and CQs") {
        check_all_orders(
            [] {
                auto s = std::make_unique<scene>(std::vector<type>{});
                connect(*s);
                hold_completion(*s);
                hold_trouble(*s);
                hold_request(*s);
                REQUIRE(s->drops.size() == 7);
                return s;
            },
            drop_on_one_thread);
    }
}

TEST_CASE("drop order: events in a vector, dropped with it, after all else") {
    world w;
    std::vector<rdma::cm_event> kept;
    {
        rdma::event_channel channel;
        rdma::cm_id listener = make_listener(channel);
        rdma::cm_id id = make_id(channel);
        for (int i = 0; i != 5; ++i) {
            kept.push_back(make_request(channel, listener));
            fake::push(id.native_handle(), {RDMA_CM_EVENT_ADDR_CHANGE});
            kept.push_back(next(channel, type::addr_change));
        }
        CHECK(channel.stats().events_held == 10);
        CHECK(channel.stats().ids_live == 7); // those of the requests are the events'
    }
    CHECK(fake::count("rdma_destroy_id") == 0);
    CHECK(fake::live().channels == 1);
    std::rotate(kept.begin(), kept.begin() + 3, kept.end());
    kept.clear();
    CHECK(fake::count("rdma_destroy_id") == 7);
}

// ---- One of each type -----------------------------------------------------------------------------------------------

namespace {

/// One of everything that can be owned, on few devices and channels, so that much of it needs the same; and an event of
/// most of it.
struct one_of_each {
    one_of_each() {
        datagrams.bind(rdma::address(rxe_host, 0));
        datagrams.create_qp({});
        member = datagrams.join_multicast(rdma::address("239.1.1.1", 0));
        join = next(channel, type::multicast_join);
        peer = rdma::ah(datagrams.pd(), join);
        region = datagrams.reg_msgs(memory);

        shared.create_srq();
        qp = rdma::qp(pd, rdma::qp_type::rc, {.send_cq = cq, .recv_cq = cq, .srq = shared.srq()});
        fake::push_async(shared.srq().native_handle(), IBV_EVENT_SRQ_LIMIT_REACHED);
        srq_event = async_event_of(shared.verbs());
        fake::push_async(qp.native_handle(), IBV_EVENT_COMM_EST);
        qp_event = async_event_of(shared.verbs());
        shared.migrate(elsewhere);

        half.create_srq_ex({.type = rdma::srq_type::xrc, .xrcd = domain});
        half.create_qp_ex({.attr = {.cap = {.max_send_wr = 0, .max_recv_wr = 0}}, .xrcd = domain});

        for (int i = 0; i != 2; ++i)
            fake::push_request(acceptor.id().native_handle());
        request = acceptor.get();
        accepting = acceptor.get().start_accept();
        listener.listen();
        fake::push_request(listener.id().native_handle());
        child = listener.get_request(1s);
        make_sync_ids();
    }
    one_of_each(one_of_each const&) = delete;
    one_of_each& operator=(one_of_each const&) = delete;

    rdma::event_channel channel, elsewhere;
    rdma::devices devices = rdma::devices::get();
    rdma::addrinfo found{rxe_host, "7472", {.passive = true, .numeric_host = true}};
    rdma::cm_id datagrams = make_id(channel, rdma::port_space::udp);
    rdma::cm_id shared = make_bound(channel);
    rdma::cm_id half{channel, rdma::port_space::ib, rdma::qp_type::xrc_recv, rdma::address(rxe_host, 0)};
    std::array<std::byte, 16> memory{};
    rdma::membership member;
    rdma::cm_event join;
    rdma::ah peer;
    rdma::mr region;
    rdma::pd pd{devices[0]};
    rdma::cq cq{devices[0], 8};
    rdma::qp qp;
    rdma::async_event srq_event, qp_event;
    rdma::xrcd domain{half.verbs()};
    rdma::acceptor acceptor{rdma::address(rxe_host, 7471)};
    rdma::request request;
    rdma::accepting accepting;
    rdma::endpoint listener{found.front()}, child;
    rdma::sync_id c_listener, c_child;

    drop_list drops{
        [this] { channel = rdma::event_channel(rdma::no_init); },
        [this] { elsewhere = rdma::event_channel(rdma::no_init); },
        [this] { devices = {}; },
        [this] { found = {}; },
        [this] { datagrams = {}; },
        [this] { shared = {}; },
        [this] { half = {}; },
        [this] { member = {}; },
        [this] { join = {}; },
        [this] { peer = {}; },
        [this] { region = {}; },
        [this] { pd = {}; },
        [this] { cq = {}; },
        [this] { qp = {}; },
        [this] { srq_event = {}; },
        [this] { qp_event = {}; },
        [this] { domain = {}; },
        [this] { acceptor = {}; },
        [this] { request = {}; },
        [this] { accepting = {}; },
        [this] { listener = {}; },
        [this] { child = {}; },
        [this] { c_listener = {}; },
        [this] { c_child = {}; },
    };

private:
    void make_sync_ids() {
        rdma::addrinfo const passive(rxe_host, "7473", {.passive = true, .numeric_host = true});
        rdma_cm_id* raw = nullptr;
        REQUIRE(::rdma_create_ep(&raw, passive.native_handle(), nullptr, nullptr) == 0);
        c_listener = rdma::sync_id(rdma::adopt, raw);
        c_listener.listen();
        fake::push_request(raw);
        c_child = c_listener.get_request();
    }
};

/// In each order that begins elsewhere, there and back, and in as many others by chance: the same ones every time.
template <class Drop>
void check_many_orders(int by_chance, Drop&& drop) {
    std::mt19937 chance(1);
    std::vector<std::size_t> order = first_order(std::make_unique<one_of_each>()->drops.size());
    int const begins = static_cast<int>(order.size());
    for (int n = 0; n != 2 * begins + by_chance; ++n) {
        if (n == begins)
            std::reverse(order.begin(), order.end());
        if (n < 2 * begins)
            std::rotate(order.begin(), order.begin() + 1, order.end());
        else
            std::shuffle(order.begin(), order.end(), chance);
        auto const s = std::make_unique<one_of_each>();
        drop(s->drops, order);
        if (fake::leaks() ==
            "1 default PD(s)") { // outlived by the list of devices: librdmacm frees it with the next id
            rdma::event_channel const channel;
            (void)make_bound(channel);
        }
        std::string wrong = fake::leaks();
        for (std::vector<std::string> const& lines : {fake::misuse(), fake::would_hang()})
            for (std::string const& line : lines)
                wrong += '\n' + line;
        if (!wrong.empty())
            FAIL("dropped in the order " << text_of(order) << ": " << wrong);
    }
}

} // namespace

TEST_CASE("drop order: one of each type, in many orders") {
    world w;
    fake::set_xrc(true);
    check_many_orders(300, drop_on_one_thread);
}

TEST_CASE("drop order: one of each type, in many orders, on two threads") {
    world w;
    fake::set_xrc(true);
    fake::set_reuse_addresses(true);
    check_many_orders(100, drop_on_two_threads);
}

namespace {

/// What a forked child that drops everything exits with: 0 if it called no C function but one that only frees memory.
int drop_in_child(one_of_each& all) {
    std::size_t const before = calls_made();
    for (auto const& drop : all.drops)
        drop();
    return calls_made() == before + fake::count("rdma_freeaddrinfo") ? 0 : 1;
}

} // namespace

TEST_CASE(
    "T14 one of each type in a forked child: nothing there is destroyed, or waits for a lock that never comes back") {
    world w;
    fake::set_xrc(true);
    auto all = std::make_unique<one_of_each>();
    fake::clear_calls();
    std::error_code ec;
    auto* const state = rdma::detail::channel_state::borrow(all->channel.native_handle(), ec);
    REQUIRE(state);
    std::atomic<bool> locked{false}, forked{false};
    std::thread holder([&] {
        std::scoped_lock const locks(rdma::detail::join_mutex::get(), rdma::detail::channel_registry::get().mutex,
                                     state->mutex, rdma::detail::verbs_table::get().mutex);
        locked = true;
        while (!forked)
            std::this_thread::yield();
    });
    while (!locked)
        std::this_thread::yield();
    pid_t const child = ::fork();
    if (child == 0) {
        ::alarm(20); // it needs no time at all
        ::_exit(drop_in_child(*all));
    }
    forked = true;
    holder.join();
    state->unref();
    int status = -1;
    CHECK(::waitpid(child, &status, 0) == child);
    CHECK(status == 0);
    CHECK(all->request); // untouched here
    all.reset();
    (void)make_bound(rdma::event_channel()); // frees the default PD that the list of devices may have outlived
}

// ---- A channel, an id, and what is made on its device ---------------------------------------------------------------

namespace {

/// Nine handles, most of which need others of them.
struct nine {
    static constexpr std::size_t count = 9;

    std::optional<rdma::event_channel> channel{std::in_place};
    rdma::cm_id id = make_bound(*channel);
    rdma::comp_channel bell{id.verbs()};
    rdma::pd pd{id.verbs()};
    rdma::cq cq{id.verbs(), 4, bell};
    rdma::srq srq{pd};
    rdma::qp qp{pd, rdma::qp_type::rc, {.send_cq = cq, .recv_cq = cq, .srq = srq}};
    std::array<std::byte, 8> memory{};
    rdma::mr mr{pd, memory, rdma::access::local_write};
    rdma::ah peer;

    nine() {
        ibv_ah_attr attr{};
        attr.is_global = 1;
        attr.port_num = 1;
        peer = rdma::ah(pd, attr);
        id.create_qp(pd, {.send_cq = cq, .recv_cq = cq, .srq = srq});
    }
    nine(nine const&) = delete;
    nine& operator=(nine const&) = delete;

    void drop(std::size_t i) {
        switch (i) {
        case 0: channel.reset(); break;
        case 1: id = {}; break;
        case 2: bell = {}; break;
        case 3: cq = {}; break;
        case 4: pd = {}; break;
        case 5: qp = {}; break;
        case 6: mr = {}; break;
        case 7: srq = {}; break;
        case 8: peer = {}; break;
        }
    }
};

void check_dropped(std::vector<std::size_t> const& order) {
    {
        nine handles;
        for (std::size_t i : order)
            handles.drop(i);
        if (std::string const left = fake::leaks(); !left.empty())
            FAIL("dropped in the order " << text_of(order) << ": " << left);
    }
    if (!fake::misuse().empty() || !fake::would_hang().empty())
        FAIL("dropped in the order " << text_of(order) << ": misuse, or would hang");
}

/// Calls `visit` with each order of `n` things in which the first `m` are any, and the rest come by their number.
template <class Visit>
void for_each_beginning(std::size_t n, std::size_t m, Visit&& visit) {
    std::vector<std::size_t> order = first_order(n);
    auto const rest = order.begin() + static_cast<std::ptrdiff_t>(m);
    do {
        visit(std::as_const(order));
        std::reverse(rest, order.end()); // next_permutation then steps to the next beginning
    } while (std::next_permutation(order.begin(), order.end()));
}

} // namespace

TEST_CASE("A12 drop order: a channel, an id and what is made on its device: any five in every order, then the rest") {
    world w;
    std::size_t orders = 0;
    for_each_beginning(nine::count, 5, [&](std::vector<std::size_t> const& order) {
        if (++orders % (under_tsan ? 10 : 1) == 0) // one thread alone has nothing to tell it
            check_dropped(order);
        fake::clear_calls(); // or their log would cost more than the calls
    });
    CHECK(orders == 9 * 8 * 7 * 6 * 5);
}

TEST_CASE("A12 drop order: a channel, an id and what is made on its device: all nine in many orders") {
    world w;
    fake::set_reuse_addresses(true);
    std::mt19937 chance(2);
    std::vector<std::size_t> order = first_order(nine::count);
    for (int n = 0; n != 1000; ++n) {
        std::shuffle(order.begin(), order.end(), chance);
        check_dropped(order);
    }
}

// ---- Requests -------------------------------------------------------------------------------------------------------

TEST_CASE("drop order: a request that nobody takes is rejected and destroyed with its event, and the hook told once") {
    world w;
    rdma::event_channel channel;
    rdma::cm_id listener = make_listener(channel);
    rdma::cm_id client = make_client(channel);
    client.create_qp({});
    client.connect();
    rdma_cm_id* child = nullptr;
    {
        rdma::cm_event const request = next(channel, type::connect_request);
        child = request.id().native_handle();
        CHECK(w.told(rdma::diagnostic_kind::request_rejected) == 0);
    }
    CHECK(fake::count("rdma_destroy_id", child) == 1);
    CHECK(next(channel, type::rejected).error() == rdma::condition::refused);
    CHECK(channel.stats().requests_rejected == 1);
    REQUIRE(w.told().size() == 1);
    CHECK(w.told()[0].kind == rdma::diagnostic_kind::request_rejected);
    CHECK(w.told()[0].object == child);
}

TEST_CASE("drop order: a request is taken after its listener was dropped, and connects") {
    world w;
    rdma::event_channel channel;
    rdma::cm_id listener = make_listener(channel);
    rdma::cm_id client = make_client(channel);
    client.create_qp({});
    client.connect();
    rdma::cm_event request = next(channel, type::connect_request);
    rdma_cm_id* const raw = listener.native_handle();
    listener = {};
    rdma::cm_id server = request.take_id();
    CHECK(thrown([&] { (void)request.take_id(); }) == rdma::errc::no_id_to_take);
    server.create_qp({});
    server.accept();
    expect(channel, type::established);
    expect(channel, type::established);
    CHECK(fake::count("rdma_destroy_id") == 0);
    request.ack();
    CHECK(fake::count("rdma_destroy_id", raw) == 1);
    CHECK(channel.stats().ids_live == 2);
}

TEST_CASE("drop order: requests that come for a dropped listener are rejected by whoever gets them") {
    world w;
    rdma::event_channel channel;
    rdma::cm_id listener = make_listener(channel);
    rdma::cm_event request = make_request(channel, listener);
    rdma::cm_id const client = make_client(channel);
    rdma_cm_id* const raw = listener.native_handle();
    listener = {};
    rdma::cm_id again = make_client(channel); // the port is still served
    again.create_qp({});
    again.connect();
    fake::push_request(raw);
    std::size_t const before = fake::count("rdma_destroy_id");
    CHECK(next(channel, type::rejected).id() == again);
    CHECK(fake::count("rdma_destroy_id") == before + 2);
    CHECK(channel.stats().requests_rejected == 2);
    CHECK(channel.stats().events_swallowed == 2);
    CHECK(w.told(rdma::diagnostic_kind::request_rejected) == 2);
    CHECK(w.told(rdma::diagnostic_kind::event_swallowed) == 0);
    request.ack();
}

TEST_CASE("drop order: a child is dropped undecided, decided, or connected, with its request held") {
    world w;
    rdma::event_channel channel;
    rdma::cm_id listener = make_listener(channel);
    rdma::cm_id client = make_client(channel);
    client.create_qp({});
    client.connect();
    rdma::cm_event request = next(channel, type::connect_request);
    rdma::cm_id child = request.take_id();
    SECTION("undecided: rejected at once, not with the ack") {
        child = {};
        expect(channel, type::rejected);
        CHECK(fake::count("rdma_reject") == 1);
    }
    SECTION("rejected: not once more") {
        child.reject();
        child = {};
        expect(channel, type::rejected);
        CHECK(fake::count("rdma_reject") == 1);
    }
    SECTION("connected: disconnected at once") {
        child.create_qp({});
        child.accept();
        expect(channel, type::established);
        expect(channel, type::established);
        child = {};
        CHECK(fake::count("rdma_reject") == 0);
        CHECK(next(channel, type::disconnected).id() == client);
    }
    CHECK(fake::count("rdma_destroy_id") == 0);
    request.ack();
    CHECK(fake::count("rdma_destroy_id") == 1);
}

// ---- What arrives for an id that is gone ----------------------------------------------------------------------------

TEST_CASE("drop order: events for a dropped id are acked and swallowed, and those of others delivered") {
    world w;
    rdma::event_channel channel;
    rdma::cm_id other = make_id(channel);
    rdma::cm_id id = make_id(channel);
    rdma_cm_id* const raw = id.native_handle();
    fake::push(raw, {RDMA_CM_EVENT_ADDR_CHANGE});
    rdma::cm_event held = next(channel, type::addr_change);
    fake::push(raw, {RDMA_CM_EVENT_ADDR_CHANGE}); // queued before the drop …
    id = {};
    fake::push(raw, {RDMA_CM_EVENT_ADDR_CHANGE}); // … and after it
    fake::push(other.native_handle(), {RDMA_CM_EVENT_ADDR_CHANGE});
    fake::push(raw, {RDMA_CM_EVENT_ADDR_CHANGE});
    CHECK(next(channel, type::addr_change).id() == other);
    CHECK_FALSE(channel.try_get());
    CHECK(channel.stats().events_swallowed == 3);
    CHECK(channel.stats().events_got == 5);
    CHECK(channel.stats().events_acked == 4);
    CHECK(w.told(rdma::diagnostic_kind::event_swallowed) == 3);
    CHECK(fake::unacked(raw) == 1);
    held.ack();
    CHECK(fake::count("rdma_destroy_id", raw) == 1);
}

TEST_CASE("drop order: an id in the middle of connecting is dropped with an event held") {
    world w;
    for (char const* host : {rxe_host, siw_host}) {
        rdma::event_channel channel;
        rdma::cm_id listener = make_listener(channel, host);
        rdma::cm_id id = make_id(channel);
        id.resolve_addr(rdma::address(host, 7471));
        rdma::cm_event resolved = next(channel, type::addr_resolved);
        id.resolve_route();
        rdma::cm_event routed = next(channel, type::route_resolved);
        id.create_qp({});
        id.connect();
        id = {};
        for (rdma::cm_event event : channel.pending())
            CHECK(event.type() == type::connect_request); // not taken
        routed.ack();
        CHECK(channel.stats().ids_awaiting_ack == 1);
        resolved.ack();
        CHECK(channel.stats().ids_awaiting_ack == 0);
    }
}

// ---- release and adopt ----------------------------------------------------------------------------------------------

TEST_CASE("round trip: an event") {
    world w;
    rdma::event_channel channel;
    rdma::cm_id id = make_id(channel);
    fake::push(id.native_handle(), {RDMA_CM_EVENT_ADDR_CHANGE});
    rdma::cm_event event = next(channel, type::addr_change);
    std::size_t const before = calls_made();
    rdma_cm_event* const raw = event.release();
    CHECK(calls_made() == before);
    CHECK_FALSE(event);
    CHECK(channel.stats().events_held == 1);
    id = {};
    CHECK(fake::count("rdma_destroy_id") == 0); // its pins stay
    CHECK(channel.stats().ids_awaiting_ack == 1);
    event = rdma::cm_event(rdma::adopt, raw);
    CHECK(event.native_handle() == raw);
    CHECK(fake::count("rdma_destroy_id") == 0);
    event.ack();
    CHECK(fake::count("rdma_destroy_id") == 1);
    CHECK(channel.stats().events_got == channel.stats().events_acked);
}

TEST_CASE("round trip: two events of one kind, of which C got one") {
    world w;
    rdma::event_channel channel;
    rdma::cm_id id = make_id(channel);
    fake::push(id.native_handle(), {RDMA_CM_EVENT_ADDR_CHANGE, 1});
    fake::push(id.native_handle(), {RDMA_CM_EVENT_ADDR_CHANGE, 2});
    rdma_cm_event* const ours = next(channel, type::addr_change).release();
    rdma_cm_event* cs = nullptr;
    REQUIRE(::rdma_get_cm_event(channel.native_handle(), &cs) == 0);
    rdma::cm_event second(rdma::adopt, cs); // takes the pins that the other left: which is which does not matter
    rdma::cm_event first(rdma::adopt, ours);
    CHECK(first.status() == 1);
    CHECK(second.status() == 2);
    id = {};
    second.ack();
    CHECK(fake::count("rdma_destroy_id") == 0);
    first.ack();
    CHECK(fake::count("rdma_destroy_id") == 1);
}

TEST_CASE("round trip: an id with its QP") {
    world w;
    connection c = connect_pair();
    ibv_qp* const qp = c.client.qp().native_handle();
    std::size_t const before = calls_made();
    rdma_cm_id* const raw = c.client.release();
    CHECK(calls_made() == before);
    CHECK(raw->qp == qp);
    SECTION("adopted and dropped") {
        rdma::cm_id back(rdma::adopt, c.client_channel, raw);
        CHECK(back.qp().native_handle() == qp);
        CHECK(back.send_cq().native_handle() == raw->send_cq);
        back = {};
        CHECK(fake::count("ibv_destroy_qp", qp) == 1);
        CHECK(fake::count("ibv_destroy_cq") == 2);
    }
    SECTION("adopted and dropped with an event held from before") {
        c.client = rdma::cm_id(rdma::adopt, c.client_channel, raw);
        fake::push(raw, {RDMA_CM_EVENT_ADDR_CHANGE});
        rdma::cm_event event = next(c.client_channel, type::addr_change);
        CHECK(c.client.release() == raw);
        c.client_channel = rdma::event_channel(rdma::no_init);
        rdma::cm_id back(rdma::adopt, rdma::event_channel_ref(raw->channel), raw);
        back = {};
        CHECK(fake::count("ibv_destroy_qp", qp) == 1);
        CHECK(fake::count("rdma_destroy_id", raw) == 0);
    }
    SECTION("destroyed by C") {
        ::rdma_destroy_qp(raw);
        CHECK(::rdma_destroy_id(raw) == 0);
    }
    SECTION("C destroys the QP alone") {
        ::rdma_destroy_qp(raw);
        rdma::cm_id back(rdma::adopt, c.client_channel, raw);
        CHECK_FALSE(back.qp());
        back.create_qp({});
        back = {};
        CHECK(fake::count("ibv_destroy_qp") == 1);
    }
    SECTION("C makes another QP") {
        ::rdma_destroy_qp(raw);
        ibv_qp_init_attr attr{};
        attr.cap = {8, 8, 1, 1, 0};
        attr.qp_type = IBV_QPT_RC;
        REQUIRE(::rdma_create_qp(raw, nullptr, &attr) == 0);
        rdma::cm_id back(rdma::adopt, c.client_channel, raw);
        CHECK(back.qp().native_handle() == raw->qp);
        back = {};
        CHECK(fake::count("ibv_destroy_qp") == 1);
    }
}

TEST_CASE("round trip: an id with a QP on a PD and CQ of the user's") {
    world w;
    rdma::event_channel channel;
    rdma::cm_id id = make_bound(channel);
    ibv_pd* const own = id.native_handle()->pd;
    rdma::pd pd(id.verbs());
    rdma::cq cq(id.verbs(), 16);
    id.create_qp(pd, {.send_cq = cq, .recv_cq = cq});
    id = rdma::cm_id(rdma::adopt, channel, id.release());
    id.destroy_qp();
    CHECK(fake::count("ibv_destroy_qp") == 1);
    CHECK(id.native_handle()->pd == own);
    cq.destroy();
    pd.destroy();
}

TEST_CASE("round trip: an id that C made, with a QP that C made") {
    world w;
    rdma::event_channel channel;
    rdma_cm_id* raw = nullptr;
    REQUIRE(::rdma_create_id(channel.native_handle(), &raw, nullptr, RDMA_PS_TCP) == 0);
    rdma::address const at(rxe_host, 0);
    REQUIRE(::rdma_bind_addr(raw, const_cast<sockaddr*>(at.native_handle())) == 0);
    ibv_qp_init_attr attr{};
    attr.cap = {8, 8, 1, 1, 0};
    attr.qp_type = IBV_QPT_RC;
    REQUIRE(::rdma_create_qp(raw, nullptr, &attr) == 0);
    rdma::cm_id id(rdma::adopt, channel, raw);
    CHECK(id.qp().native_handle() == raw->qp);
    id = {};
    CHECK(fake::count("ibv_destroy_qp") == 1);
    CHECK(fake::count("ibv_destroy_cq") == 2);
}

TEST_CASE("round trip: an id outlives its channel object, and goes to C") {
    world w;
    rdma::cm_id id;
    {
        rdma::event_channel channel;
        id = make_id(channel);
    }
    rdma_cm_id* const raw = id.release();
    CHECK(fake::live().channels == 1); // C's id needs it
    id = rdma::cm_id(rdma::adopt, rdma::event_channel_ref(raw->channel), raw);
    CHECK(fake::live().channels == 1);
    id = {};
    CHECK(fake::count("rdma_destroy_id") == 1);
    CHECK(fake::live().channels == 0);
}

TEST_CASE("round trip: a channel") {
    world w;
    rdma::event_channel channel;
    int const fd = channel.fd();
    auto const blocks = [fd] { return (::fcntl(fd, F_GETFL) & O_NONBLOCK) == 0; };
    CHECK_FALSE(blocks());
    SECTION("alone") {
        std::size_t const before = calls_made();
        rdma_event_channel* const raw = channel.release();
        CHECK(calls_made() == before);
        CHECK(blocks()); // as C made it
        CHECK_FALSE(channel);
        channel = rdma::event_channel(rdma::adopt, raw);
        CHECK_FALSE(blocks());
        channel = rdma::event_channel(rdma::no_init);
        CHECK(fake::live().channels == 0);
    }
    SECTION("many times") {
        for (int i = 0; i != 3; ++i)
            channel = rdma::event_channel(rdma::adopt, channel.release());
        channel = rdma::event_channel(rdma::no_init);
        CHECK(fake::count("rdma_destroy_event_channel") == 1);
    }
    SECTION("with an id and a held event") {
        rdma::cm_id id = make_id(channel);
        fake::push(id.native_handle(), {RDMA_CM_EVENT_ADDR_CHANGE});
        rdma::cm_event event = next(channel, type::addr_change);
        rdma_event_channel* const raw = channel.release();
        id = {};
        event.ack();
        CHECK(fake::count("rdma_destroy_id") == 1);
        CHECK(fake::live().channels == 1); // C's
        channel = rdma::event_channel(rdma::adopt, raw);
        CHECK(channel.stats().ids_live == 0);
    }
    SECTION("C destroys it, and the next one at its address starts from nothing") {
        for (int i = 0; i != 50; ++i) { // malloc gives the address to the next one, but for ASan's
            rdma::event_channel fresh;
            CHECK(fresh.stats() == rdma::channel_stats());
            rdma::cm_id id = make_id(fresh);
            fake::push(id.native_handle(), {RDMA_CM_EVENT_ADDR_CHANGE});
            expect(fresh, type::addr_change);
            CHECK(fresh.stats().events_got == 1);
            id = {};
            ::rdma_destroy_event_channel(fresh.release());
        }
    }
    SECTION("twice: refused") {
        auto const adopt = [&] { (void)rdma::event_channel(rdma::adopt, channel.native_handle()); };
        CHECK(thrown(adopt) == rdma::errc::already_owned);
        CHECK(thrown([] { (void)rdma::event_channel(rdma::adopt, nullptr); }) == rdma::errc::null_handle);
        CHECK_FALSE(blocks());
    }
}

TEST_CASE("round trip: everything goes to C at once, and C cleans up") {
    world w;
    rdma::event_channel channel;
    rdma::cm_id id = make_bound(channel);
    id.create_qp({});
    fake::push(id.native_handle(), {RDMA_CM_EVENT_ADDR_CHANGE});
    rdma_cm_event* const event = next(channel, type::addr_change).release();
    rdma_cm_id* const raw = id.release();
    rdma_event_channel* const raw_channel = channel.release();
    ::rdma_ack_cm_event(event);
    ::rdma_destroy_qp(raw);
    CHECK(::rdma_destroy_id(raw) == 0);
    ::rdma_destroy_event_channel(raw_channel);
}

TEST_CASE("round trip: what is owned, or lives elsewhere, is not adopted") {
    world w;
    rdma::event_channel channel, elsewhere;
    rdma::cm_id listener = make_listener(channel);
    rdma_cm_id* const raw = listener.native_handle();
    auto const refusal = [](rdma::event_channel const& at, rdma_cm_id* id) {
        std::error_code ec;
        CHECK_FALSE(rdma::cm_id(rdma::adopt, at, id, ec));
        CHECK(thrown([&] { (void)rdma::cm_id(rdma::adopt, at, id); }) == ec);
        return ec;
    };
    CHECK(refusal(channel, raw) == rdma::errc::already_owned);
    CHECK(refusal(elsewhere, raw) == rdma::errc::wrong_channel);
    CHECK(refusal(channel, nullptr) == rdma::errc::null_handle);
    rdma::cm_event request = make_request(channel, listener);
    CHECK(refusal(channel, request.id().native_handle()) == rdma::errc::already_owned); // it is the event's
    fake::push(raw, {RDMA_CM_EVENT_ADDR_CHANGE});
    rdma::cm_event const held = next(channel, type::addr_change);
    listener = {};
    CHECK(refusal(channel, raw) == rdma::errc::already_owned); // it waits for its last ack
    CHECK(fake::count("rdma_destroy_id") == 0);
}

// ---- Children of released requests ----------------------------------------------------------------------------------

TEST_CASE("round trip: a request that is not taken is released: whoever adopts the one or the other has the id") {
    world w;
    rdma::event_channel channel;
    rdma::cm_id listener = make_listener(channel);
    rdma_cm_event* const raw = make_request(channel, listener).release();
    rdma_cm_id* const raw_child = raw->id;
    CHECK(fake::count("rdma_destroy_id") + fake::count("rdma_reject") == 0);
    SECTION("the event: it owns the id again") {
        rdma::cm_event back(rdma::adopt, raw);
        back.ack();
        CHECK(fake::count("rdma_destroy_id", raw_child) == 1);
        CHECK(channel.stats().requests_rejected == 1);
    }
    SECTION("the event, and the id is taken") {
        rdma::cm_event back(rdma::adopt, raw);
        rdma::cm_id child = back.take_id();
        CHECK(child.native_handle() == raw_child);
        child.create_qp({});
        child.accept();
        back.ack();
        CHECK(fake::count("rdma_destroy_id") == 0);
    }
    SECTION("the id, then the event") {
        rdma::cm_id child(rdma::adopt, channel, raw_child);
        child.create_qp({});
        child.accept();
        rdma::cm_event back(rdma::adopt, raw);
        std::error_code ec;
        CHECK_FALSE(back.take_id(ec));
        CHECK(ec == rdma::errc::no_id_to_take);
        child = {};
        CHECK(fake::count("rdma_destroy_id", raw_child) == 0);
        CHECK(back.id().native_handle() == raw_child);
        back.ack();
        CHECK(fake::count("rdma_destroy_id", raw_child) == 1);
        CHECK(channel.stats().requests_rejected == 0);
    }
    SECTION("the id is adopted and dropped before the event comes back") {
        { rdma::cm_id const child(rdma::adopt, channel, raw_child); }
        CHECK(fake::count("rdma_destroy_id", raw_child) == 0);
        rdma::cm_event back(rdma::adopt, raw);
        back.ack();
        CHECK(fake::count("rdma_destroy_id", raw_child) == 1);
    }
    SECTION("the listener is dropped meanwhile") {
        listener = {};
        rdma::cm_event const back(rdma::adopt, raw);
        CHECK(back.listen_id());
    }
}

TEST_CASE("round trip: the child of a held request goes to C") {
    world w;
    rdma::event_channel channel;
    rdma::cm_id listener = make_listener(channel);
    rdma::cm_event request = make_request(channel, listener);
    rdma_cm_id* const raw = request.take_id().release();
    SECTION("which destroys it") {
        CHECK(::rdma_destroy_id(raw) == 0);
        request.ack();
        CHECK(fake::count("rdma_destroy_id", raw) == 1);
    }
    SECTION("and comes back") {
        rdma::cm_id child(rdma::adopt, channel, raw);
        child.reject(); // it may be a request, and is one
        child = {};
        request.ack();
        CHECK(fake::count("rdma_destroy_id", raw) == 1);
    }
    SECTION("and stays there") {
        request.ack();
        CHECK(fake::count("rdma_destroy_id", raw) == 0);
        CHECK(::rdma_destroy_id(raw) == 0);
    }
}

// ---- Moving a C program over, one call at a time --------------------------------------------------------------------

namespace {

/// C's own loop: a blocking channel, and rdma_get_cm_event.
class c_program {
public:
    c_program() = default;
    c_program(c_program const&) = delete;
    c_program& operator=(c_program const&) = delete;
    ~c_program() { ::rdma_destroy_event_channel(channel_); }

    rdma::event_channel_ref channel() const { return rdma::event_channel_ref(channel_); }
    std::size_t queued() const { return fake::queued(channel_); }

    rdma_cm_event* get(rdma_cm_event_type wanted) {
        REQUIRE(queued() != 0); // or the get would block
        rdma_cm_event* event = nullptr;
        REQUIRE(::rdma_get_cm_event(channel_, &event) == 0);
        REQUIRE(event->event == wanted);
        return event;
    }

private:
    rdma_event_channel* channel_ = ::rdma_create_event_channel();
};

} // namespace

TEST_CASE("migration: C gets the events, and the events and ids are ours") {
    world w;
    c_program c;
    rdma::cm_id listener(c.channel(), rdma::port_space::tcp);
    rdma::cm_id client(c.channel(), rdma::port_space::tcp);
    listener.bind(rdma::address(rxe_host, 7471));
    listener.listen();
    client.resolve_addr(rdma::address(rxe_host, 7471));
    rdma::cm_event(rdma::adopt, c.get(RDMA_CM_EVENT_ADDR_RESOLVED)).ack();
    client.resolve_route();
    ::rdma_ack_cm_event(c.get(RDMA_CM_EVENT_ROUTE_RESOLVED)); // not every call is moved over yet
    client.create_qp({});
    client.connect();
    rdma::cm_event request(rdma::adopt, c.get(RDMA_CM_EVENT_CONNECT_REQUEST));
    CHECK(request.listen_id() == listener);
    rdma::cm_id server = request.take_id();
    server.create_qp({});
    server.accept();
    rdma::cm_event established(rdma::adopt, c.get(RDMA_CM_EVENT_ESTABLISHED));
    CHECK((::fcntl(c.channel().fd(), F_GETFL) & O_NONBLOCK) == 0); // it is C's, and blocks
    SECTION("the ids first") {
        client = {};
        server = {};
        listener = {};
        CHECK(fake::count("rdma_destroy_id") == 0); // each is named by an event that is held
        CHECK(fake::live().ids == 3);
    }
    SECTION("the events first") {
        established.ack();
        request.ack();
    }
}

TEST_CASE("migration: an event of C's is wrapped, and a request that nobody takes is rejected") {
    world w;
    c_program c;
    rdma_cm_id* listener = nullptr;
    REQUIRE(::rdma_create_id(c.channel().native_handle(), &listener, nullptr, RDMA_PS_TCP) == 0);
    rdma::address const at(rxe_host, 7471);
    REQUIRE(::rdma_bind_addr(listener, const_cast<sockaddr*>(at.native_handle())) == 0);
    REQUIRE(::rdma_listen(listener, 8) == 0);
    fake::push_request(listener);
    { rdma::cm_event const event(rdma::adopt, c.get(RDMA_CM_EVENT_CONNECT_REQUEST)); }
    CHECK(fake::count("rdma_destroy_id") == 1); // the new id
    CHECK(w.told(rdma::diagnostic_kind::request_rejected) == 1);
    fake::push_request(listener);
    rdma_cm_id* child = nullptr;
    {
        rdma::cm_event event(rdma::adopt, c.get(RDMA_CM_EVENT_CONNECT_REQUEST));
        child = event.take_id().release();
    }
    CHECK(fake::count("rdma_destroy_id") == 1);
    CHECK(::rdma_destroy_id(child) == 0);
    CHECK(::rdma_destroy_id(listener) == 0);
}

TEST_CASE("migration: C wraps the event of an id that it has adopted before") {
    world w;
    c_program c;
    rdma::cm_id listener(c.channel(), rdma::port_space::tcp);
    listener.bind(rdma::address(rxe_host, 7471));
    listener.listen();
    fake::push_request(listener.native_handle());
    rdma_cm_event* const raw = c.get(RDMA_CM_EVENT_CONNECT_REQUEST);
    rdma::cm_id child(rdma::adopt, c.channel(), raw->id);
    rdma::cm_event event(rdma::adopt, raw);
    std::error_code ec;
    CHECK_FALSE(event.take_id(ec));
    child = {};
    CHECK(fake::count("rdma_destroy_id", raw->id) == 0);
    event.ack();
    CHECK(fake::count("rdma_destroy_id") == 1);
}

TEST_CASE("migration: the channel itself, at last") {
    world w;
    rdma_event_channel* const raw = ::rdma_create_event_channel();
    rdma::cm_id id(rdma::event_channel_ref(raw), rdma::port_space::tcp);
    fake::push(id.native_handle(), {RDMA_CM_EVENT_ADDR_CHANGE});
    rdma_cm_event* got = nullptr;
    REQUIRE(::rdma_get_cm_event(raw, &got) == 0);
    rdma::cm_event event(rdma::adopt, got);
    rdma::event_channel channel(rdma::adopt, raw);
    CHECK_FALSE(channel.try_get()); // it does not block any more
    CHECK(channel.stats().events_held == 1);
    CHECK(channel.stats().ids_live == 1);
    id = {};
    event.ack();
    channel = rdma::event_channel(rdma::no_init);
    CHECK(fake::live().channels == 0);
}
