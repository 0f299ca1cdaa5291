// SPDX-License-Identifier: MIT
// Faults that programs in the field had with events, ids and what depends on them; each by its number. More of them,
// about errors and parameters, are in field_bugs_errors.cpp, and A12 is in verbs.cpp.
#include "support.hpp"

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

using namespace unit;

namespace {

void push(rdma::cm_id const& id, int kind, int status = 0) { fake::push(id.native_handle(), {kind, status}); }

template <std::size_t N>
std::span<std::byte const> bytes_of(char const (&text)[N]) {
    return std::as_bytes(std::span(text, N)); // with the terminating zero
}

bool starts_with(std::span<std::byte const> bytes, std::span<std::byte const> start) {
    return bytes.size() >= start.size() && std::memcmp(bytes.data(), start.data(), start.size()) == 0;
}

} // namespace

// ---- A1 -------------------------------------------------------------------------------------------------------------

TEST_CASE("A1 an error event is acked although its handler throws", "[field]") {
    auto const kind = GENERATE(RDMA_CM_EVENT_ADDR_ERROR, RDMA_CM_EVENT_ROUTE_ERROR, RDMA_CM_EVENT_CONNECT_ERROR,
                               RDMA_CM_EVENT_UNREACHABLE, RDMA_CM_EVENT_REJECTED);
    bool const owned_by_handler = GENERATE(false, true);
    CAPTURE(kind, owned_by_handler);
    world w;
    rdma::event_channel channel;
    rdma::cm_id id = make_bound(channel);
    push(id, kind, -ETIMEDOUT);
    auto const handle = [&] {
        for (rdma::cm_event event : channel) {
            rdma::cm_id mine = owned_by_handler ? std::move(id) : rdma::cm_id();
            if (event.error())
                throw std::system_error(event.error());
        }
    };
    CHECK_THROWS_AS(handle(), std::system_error);
    CHECK(fake::count("rdma_ack_cm_event") == 1);
    CHECK(fake::count("rdma_destroy_id") == (owned_by_handler ? 1 : 0));
    if (id)
        id.destroy(); // refused if anything were held
    CHECK(fake::count("rdma_destroy_id") == 1);
    CHECK(fake::count("rdma_ack_cm_event") == 1);
}

TEST_CASE("A1 a function that returns early from its loop has acked", "[field]") {
    world w;
    rdma::event_channel channel;
    rdma::cm_id id = make_bound(channel);
    push(id, RDMA_CM_EVENT_ADDR_ERROR, -ENODEV);
    auto const first_error = [&] {
        for (rdma::cm_event event : channel)
            if (event.error())
                return event.error();
        return std::error_code{};
    };
    CHECK(first_error() == std::errc::no_such_device);
    CHECK(fake::unacked(id.native_handle()) == 0);
    id.destroy();
}

// ---- A2 -------------------------------------------------------------------------------------------------------------

TEST_CASE("A2 an id erased in the handler of its own event", "[field]") {
    char const* const host = GENERATE(rxe_host, siw_host);
    bool const acked_first = GENERATE(false, true);
    bool const by_reference = GENERATE(false, true);
    CAPTURE(host, acked_first, by_reference);
    world w;
    auto [client, server, listener, client_channel, server_channel] = connect_pair(host);
    std::unordered_map<rdma::cm_id_ref, rdma::cm_id> sessions;
    rdma::cm_id_ref const key = server;
    rdma_cm_id* const raw = server.native_handle();
    sessions.try_emplace(key, std::move(server));
    client.disconnect();
    fake::clear_calls();

    auto const handle = [&](rdma::cm_event& event) {
        REQUIRE(event.type() == type::disconnected);
        if (acked_first) {
            rdma::cm_id_ref const ended = event.id();
            event.ack();
            sessions.erase(ended);
        } else {
            sessions.erase(event.id()); // in C this line hangs for ever
        }
        CHECK(fake::count("ibv_destroy_qp") == 1); // the QP is gone at once, whoever holds events
        CHECK(fake::count("rdma_destroy_id", raw) == (acked_first ? 1 : 0));
    };
    if (by_reference) {
        for (auto&& event : server_channel) {
            handle(event);
            break;
        }
    } else {
        for (rdma::cm_event event : server_channel) {
            handle(event);
            break;
        }
    }
    CHECK(sessions.empty());
    CHECK(fake::count("rdma_destroy_id", raw) == 1);
    auto const acks = places_of("rdma_ack_cm_event"), destroys = places_of("rdma_destroy_id");
    REQUIRE((acks.size() == 1 && destroys.size() == 1));
    CHECK(acks[0] < destroys[0]);
    CHECK_FALSE(server_channel.try_get()); // and nothing more comes of it
}

TEST_CASE("A2 an id may go in the handler of any of its events, with others of it still queued", "[field]") {
    world w;
    rdma::event_channel channel;
    for (int kind = RDMA_CM_EVENT_ADDR_RESOLVED; kind <= RDMA_CM_EVENT_TIMEWAIT_EXIT; ++kind) {
        if (kind == RDMA_CM_EVENT_CONNECT_REQUEST || kind == RDMA_CM_EVENT_MULTICAST_JOIN ||
            kind == RDMA_CM_EVENT_MULTICAST_ERROR)
            continue; // these have stories of their own
        std::optional<rdma::cm_id> id = make_bound(channel);
        fake::clear_calls();
        push(*id, kind);
        push(*id, RDMA_CM_EVENT_ADDR_CHANGE);
        int turns = 0;
        for (rdma::cm_event event : channel.pending()) {
            id.reset();
            ++turns;
        }
        CHECK(turns == 1);
        CHECK(fake::count("rdma_destroy_id") == 1);
    }
}

TEST_CASE("A2 the listener is dropped in the handler of a request for it", "[field]") {
    world w;
    rdma::event_channel channel, client_channel;
    rdma::cm_id listener = make_listener(channel), client = make_client(client_channel);
    client.create_qp({});
    client.connect();
    rdma_cm_id* const raw = listener.native_handle();
    rdma::cm_id server;
    for (rdma::cm_event event : channel.pending()) {
        server = event.take_id();
        listener = rdma::cm_id();
        CHECK(fake::count("rdma_destroy_id", raw) == 0); // the request is charged to the listener
        server.create_qp({});
        server.accept();
    }
    CHECK(fake::count("rdma_destroy_id", raw) == 1);
    expect(client_channel, type::established);
}

// ---- A3 -------------------------------------------------------------------------------------------------------------

static_assert(!std::is_copy_constructible_v<rdma::cm_event> && !std::is_copy_assignable_v<rdma::cm_event>);
static_assert(std::is_nothrow_move_constructible_v<rdma::cm_event> &&
              std::is_nothrow_move_assignable_v<rdma::cm_event>);
static_assert(std::is_nothrow_swappable_v<rdma::cm_event> && std::is_nothrow_destructible_v<rdma::cm_event>);
static_assert(noexcept(std::declval<rdma::cm_event&>().ack()));

TEST_CASE("A3 an event is acked once, however it is moved", "[field]") {
    world w;
    rdma::event_channel channel;
    rdma::cm_id id = make_bound(channel);
    push(id, RDMA_CM_EVENT_ADDR_CHANGE);
    push(id, RDMA_CM_EVENT_ADDR_CHANGE);
    rdma::cm_event one = channel.get(), two = channel.get();
    rdma_cm_event* const first = one.native_handle();
    rdma_cm_event* const second = two.native_handle();
    auto const acks = [] { return fake::count("rdma_ack_cm_event"); };

    SECTION("move-constructed") {
        rdma::cm_event three = std::move(one);
        CHECK(three.native_handle() == first);
        CHECK_FALSE(one); // NOLINT(bugprone-use-after-move)
        CHECK(acks() == 0);
    }
    SECTION("move-assigned over a live event, which is acked at once") {
        one = std::move(two);
        CHECK(fake::count("rdma_ack_cm_event", first) == 1);
        CHECK(acks() == 1);
        CHECK(one.native_handle() == second);
    }
    SECTION("move-assigned to itself") {
        rdma::cm_event& same = one;
        one = std::move(same);
        CHECK(one.native_handle() == first);
        CHECK(acks() == 0);
    }
    SECTION("acked early, and again, and destroyed") {
        one.ack();
        CHECK_FALSE(one);
        CHECK(acks() == 1);
        one.ack();
        CHECK(acks() == 1);
    }
    SECTION("swapped") {
        swap(one, two);
        CHECK(one.native_handle() == second);
        one.swap(two);
        CHECK(one.native_handle() == first);
        CHECK(acks() == 0);
    }
    SECTION("moved through a container that grows") {
        std::vector<rdma::cm_event> many;
        many.push_back(std::move(one));
        many.push_back(std::move(two));
        many.resize(100);
        CHECK(acks() == 0);
        many.erase(many.begin());
        CHECK(acks() == 1);
    }
    SECTION("after a failed accept of a request that was acked already") {
        rdma::cm_id listener = make_listener(channel);
        rdma::cm_event request = make_request(channel, listener);
        rdma::cm_id child = request.take_id();
        request.ack();
        fake::fail("rdma_accept", 1, EINVAL);
        CHECK(thrown([&] { child.accept(); }) == std::errc::invalid_argument);
        CHECK(acks() == 1);
    }
    one.ack();
    two.ack();
    CHECK(channel.stats().events_got == acks());
    CHECK(channel.stats().events_held == 0);
}

// ---- A4 -------------------------------------------------------------------------------------------------------------

template <class Event>
concept gives_view = requires(Event e) {
    std::forward<Event>(e).private_data();
};
static_assert(gives_view<rdma::cm_event&> && gives_view<rdma::cm_event const&>);
static_assert(!gives_view<rdma::cm_event> && !gives_view<rdma::cm_event const>);
static_assert(std::is_same_v<decltype(std::declval<rdma::cm_event&>().private_data()), std::span<std::byte const>>);

TEST_CASE("A4 a copy of private data outlives its event", "[field]") {
    world w;
    rdma::event_channel channel;
    rdma::cm_id listener = make_listener(channel);
    char const hello[] = "hello";
    fake::push_request(listener.native_handle(), hello, sizeof hello);
    rdma::private_data copy;
    {
        rdma::cm_event request = next(channel, type::connect_request);
        CHECK(starts_with(request.private_data(), bytes_of(hello)));
        copy = request.copy_private_data();
        rdma::cm_id child = request.take_id();
        child.create_qp({});
        request.ack(); // the fake overwrites what the view showed
        CHECK(starts_with({copy.data(), copy.size()}, bytes_of(hello)));
        child.accept();
        expect(channel, type::established);
    }
    CHECK(copy.size() == sizeof hello);
    CHECK(starts_with({copy.begin(), copy.end()}, bytes_of(hello)));
}

// ---- A5 -------------------------------------------------------------------------------------------------------------

TEST_CASE("A5 received private data is at least what was sent, and is never shortened", "[field]") {
    struct device_case {
        char const* host;
        std::size_t request, reply, reject; // sizes of what arrives for five bytes
    };
    auto const on = GENERATE(device_case{rxe_host, 56, 196, 148}, device_case{siw_host, 5, 5, 5});
    CAPTURE(on.host);
    world w;
    auto const sent = bytes_of("abcd"); // five bytes, the last a zero
    using five = std::array<std::byte, 5>;
    rdma::event_channel channel, client_channel;
    rdma::cm_id listener = make_listener(channel, on.host);
    auto const ask = [&](std::span<std::byte const> data) {
        rdma::cm_id client = make_client(client_channel, on.host);
        client.create_qp({});
        client.connect({.private_data = data});
        return client;
    };
    {
        rdma::cm_id client = ask(sent);
        rdma::cm_event request = next(channel, type::connect_request);
        CHECK(request.private_data().size() == on.request);
        CHECK(starts_with(request.private_data(), sent));
        CHECK(request.copy_private_data().size() == on.request);
        std::optional<five> const typed = request.read_private_data<five>();
        REQUIRE(typed);
        CHECK(std::memcmp(typed->data(), sent.data(), 5) == 0);
        CHECK_FALSE(request.read_private_data<std::array<std::byte, 300>>());
        CHECK(request.read_private_data<std::array<std::byte, 56>>().has_value() == (on.request == 56));
        CHECK_FALSE(request.read_private_data<std::array<std::byte, 57>>());
        rdma::cm_id server = request.take_id();
        server.create_qp({});
        server.accept({.private_data = sent});
        rdma::cm_event established = next(client_channel, type::established);
        CHECK(established.private_data().size() == on.reply);
        CHECK(starts_with(established.private_data(), sent));
        expect(channel, type::established);
    }
    for (rdma::cm_event ends : channel.pending()) {
    }
    {
        rdma::cm_id client = ask(sent);
        next(channel, type::connect_request).take_id().reject(sent);
        rdma::cm_event rejected = next(client_channel, type::rejected);
        CHECK(rejected.private_data().size() == on.reject);
        CHECK(starts_with(rejected.private_data(), sent));
    }
    {
        rdma::cm_id client = ask({});
        rdma::cm_event request = next(channel, type::connect_request);
        auto const view = request.private_data();
        CHECK(view.size() == (on.request == 56 ? 56 : 0)); // zeros, or nothing
        CHECK(std::all_of(view.begin(), view.end(), [](std::byte b) { return b == std::byte{0}; }));
    }
}

// ---- A6 -------------------------------------------------------------------------------------------------------------

TEST_CASE("A6 a failure event without private data shows none", "[field]") {
    auto const kind = GENERATE(RDMA_CM_EVENT_UNREACHABLE, RDMA_CM_EVENT_REJECTED, RDMA_CM_EVENT_DISCONNECTED);
    bool const has_pointer = GENERATE(false, true);
    auto const length = GENERATE(std::uint8_t{0}, std::uint8_t{8});
    CAPTURE(kind, has_pointer, int{length});
    world w;
    rdma::event_channel channel;
    rdma::cm_id id = make_bound(channel);
    push(id, kind, -ETIMEDOUT);
    rdma::cm_event event = channel.get();
    char const bytes[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    event.native_handle()->param.conn.private_data = has_pointer ? bytes : nullptr; // as a C library might leave it
    event.native_handle()->param.conn.private_data_len = length;
    bool const some = has_pointer && length != 0;
    auto const view = event.private_data();
    CHECK(view.empty() == !some);
    CHECK(view.size() == (some ? 8 : 0));
    CHECK(event.copy_private_data().empty() == !some);
    CHECK(event.read_private_data<std::uint64_t>().has_value() == some);
    CHECK_FALSE(event.read_private_data<std::array<std::byte, 9>>());
    CHECK_FALSE(event.param()); // librdmacm fills none of it for these
    CHECK_FALSE(event.ud_param());
}

TEST_CASE("A6 an event whose type carries no parameters shows none, whatever is in its union", "[field]") {
    world w;
    rdma::event_channel channel;
    rdma::cm_id id = make_bound(channel);
    for (auto const kind : {RDMA_CM_EVENT_ADDR_RESOLVED, RDMA_CM_EVENT_ROUTE_RESOLVED, RDMA_CM_EVENT_ADDR_CHANGE,
                            RDMA_CM_EVENT_DEVICE_REMOVAL, RDMA_CM_EVENT_TIMEWAIT_EXIT}) {
        push(id, kind);
        rdma::cm_event event = channel.get();
        event.native_handle()->param.conn.private_data = &w;
        event.native_handle()->param.conn.private_data_len = 255;
        CHECK(event.private_data().empty());
        CHECK_FALSE(event.param());
        CHECK_FALSE(event.ud_param());
    }
    // In a MULTICAST_JOIN the pointer is the one that the program gave to the join.
    rdma::cm_id datagrams = make_id(channel, rdma::port_space::udp);
    datagrams.bind(rdma::address(rxe_host, 0));
    push(datagrams, RDMA_CM_EVENT_MULTICAST_JOIN);
    rdma::cm_event join = channel.get();
    join.native_handle()->param.ud.private_data = &w;
    join.native_handle()->param.ud.private_data_len = 255;
    CHECK(join.private_data().empty());
    CHECK(join.ud_param());
    CHECK_FALSE(join.param());
}

TEST_CASE("A6 the parameters are read by the type of the QP", "[field]") {
    world w;
    rdma::event_channel channel;
    rdma::cm_id listener = make_id(channel, rdma::port_space::udp);
    listener.bind(rdma::address(rxe_host, 7471));
    listener.listen();
    rdma::cm_id client = make_client(channel);
    SECTION("a datagram request has no connection's parameters") {
        fake::push_request(listener.native_handle(), "x", 1);
        rdma::cm_event request = next(channel, type::connect_request);
        CHECK_FALSE(request.param());
        CHECK(request.ud_param());
        CHECK(request.private_data().size() == 1);
    }
    SECTION("an ESTABLISHED of a connected id has no address vector") {
        push(client, RDMA_CM_EVENT_ESTABLISHED);
        rdma::cm_event established = next(channel, type::established);
        CHECK(established.param());
        CHECK_FALSE(established.ud_param());
    }
}

TEST_CASE("A6 nobody listens: refused, without a look at the payload", "[field]") {
    world w;
    rdma::event_channel channel;
    rdma::cm_id client = make_client(channel);
    client.create_qp({});
    client.connect();
    rdma::cm_event rejected = next(channel, type::rejected);
    CHECK(rejected.error() == rdma::reject_reason::invalid_service_id);
    CHECK(rejected.error() == rdma::condition::refused);
    rdma::cm_id other = make_client(channel, siw_host);
    other.create_qp({});
    CHECK(thrown([&] { other.connect(); }) == rdma::condition::refused); // iWARP says so in the call
}

// ---- A7 -------------------------------------------------------------------------------------------------------------

TEST_CASE("A7 a request that is rejected, or dropped untouched, leaks no id", "[field]") {
    world w;
    rdma::event_channel channel;
    rdma::cm_id listener = make_listener(channel);
    for (int i = 0; i != 100; ++i)
        fake::push_request(listener.native_handle());
    fake::clear_calls();
    for (int i = 0; i != 100; ++i) {
        rdma::cm_event request = next(channel, type::connect_request);
        if (i % 2 != 0)
            request.take_id().reject();
    }
    CHECK(fake::count("rdma_destroy_id") == 100);
    CHECK(fake::count("rdma_destroy_id", listener.native_handle()) == 0);
    CHECK(fake::count("rdma_reject") == 50); // a destroy rejects by itself
    CHECK(fake::live().ids == 1);
    CHECK(channel.stats().requests_rejected == 50);
    CHECK(w.told(rdma::diagnostic_kind::request_rejected) == 50);
    expect(channel, [&] {
        fake::push_request(listener.native_handle());
        return type::connect_request;
    }());
}

TEST_CASE("A7 a client learns at once of a request that nobody took", "[field]") {
    char const* const host = GENERATE(rxe_host, siw_host);
    bool const held_elsewhere = GENERATE(false, true);
    CAPTURE(host, held_elsewhere);
    world w;
    rdma::event_channel channel, client_channel;
    rdma::cm_id listener = make_listener(channel, host), client = make_client(client_channel, host);
    client.create_qp({});
    client.connect();
    rdma::cm_event request = next(channel, type::connect_request);
    if (held_elsewhere)
        (void)request.take_id(); // dropped while its event is held: the peer is told now, not with the ack
    else
        request.ack();
    CHECK(next(client_channel, type::rejected).error() == rdma::condition::refused);
}

TEST_CASE("A7 a new id is taken once, and has none of the listener's context", "[field]") {
    world w;
    rdma::event_channel channel;
    rdma::cm_id listener = make_listener(channel);
    listener.set_user_context(&w);
    rdma::cm_event request = make_request(channel, listener);
    CHECK(request.listen_id() == rdma::cm_id_ref(listener));
    CHECK(request.id().user_context() == nullptr);
    rdma::cm_id child = request.take_id();
    CHECK(child.native_handle() == request.id().native_handle());
    CHECK(child.user_context() == nullptr);
    CHECK(listener.user_context() == &w);
    CHECK(thrown([&] { (void)request.take_id(); }, "taken before") == rdma::errc::no_id_to_take);
    std::error_code ec;
    CHECK_FALSE(request.take_id(ec));
    CHECK(ec == std::errc::operation_not_permitted);
    child = rdma::cm_id();
    CHECK_FALSE(request.take_id(ec)); // nor when it is gone
}

// ---- A11 ------------------------------------------------------------------------------------------------------------

TEST_CASE("A11 a channel object that goes first takes no C channel from its ids", "[field]") {
    world w;
    struct careless { // members die from the last to the first
        rdma::cm_id id;
        std::vector<rdma::cm_event> held;
        rdma::event_channel channel;
    };
    {
        careless all;
        all.id = make_bound(all.channel);
        push(all.id, RDMA_CM_EVENT_ADDR_CHANGE);
        push(all.id, RDMA_CM_EVENT_ADDR_CHANGE);
        if (GENERATE(false, true)) {
            all.held.push_back(all.channel.get());
            all.held.push_back(all.channel.get());
        }
    }
    auto const channels = places_of("rdma_destroy_event_channel"), ids = places_of("rdma_destroy_id");
    REQUIRE((channels.size() == 1 && ids.size() == 1));
    CHECK(ids[0] < channels[0]);
    for (std::size_t const ack : places_of("rdma_ack_cm_event"))
        CHECK(ack < ids[0]);
}

TEST_CASE("A11 an event may be the last of all", "[field]") {
    world w;
    rdma::cm_event event;
    {
        rdma::event_channel channel;
        rdma::cm_id listener = make_listener(channel);
        event = make_request(channel, listener);
    }
    CHECK(fake::live().channels == 1);
    CHECK(fake::live().ids == 2);
    CHECK_THAT(to_string(event), rdmacpp_test::contains("CONNECT_REQUEST"));
    SECTION("untouched") {}
    SECTION("taken from, and the new id outlives it") {
        rdma::cm_id child = event.take_id();
        child.create_qp({});
        event.ack();
        CHECK(fake::live().ids == 1);
        child.reject();
    }
    event.ack();
    CHECK(fake::live().channels == 0);
    CHECK(fake::live().ids == 0);
}

TEST_CASE("A11 a channel may be dropped in the body of its own range", "[field]") {
    world w;
    std::optional<rdma::event_channel> channel(std::in_place);
    rdma::cm_id id = make_bound(*channel);
    push(id, RDMA_CM_EVENT_DISCONNECTED);
    push(id, RDMA_CM_EVENT_TIMEWAIT_EXIT);
    int turns = 0;
    for (rdma::cm_event event : *channel) {
        CHECK(event.type() == type::disconnected);
        id = rdma::cm_id();
        channel.reset();
        ++turns;
    }
    CHECK(turns == 1);
}

// ---- A13 ------------------------------------------------------------------------------------------------------------

namespace {

/// What a server makes for one connection, step by step: request, PD, CQ, QP, accept.
struct session {
    rdma::cm_id id;
    rdma::pd pd;
    rdma::cq cq;

    explicit session(rdma::cm_event& request) : id(request.take_id()), pd(id.verbs()), cq(id.verbs(), 8) {
        id.create_qp(pd, {.send_cq = cq, .recv_cq = cq});
        id.accept();
    }
};

} // namespace

TEST_CASE("A13 a session that fails half-way undoes what it has done, and no more", "[field]") {
    struct step {
        char const* function;
        int code;
        std::vector<std::string> undone; // in this order
    };
    auto const failing = GENERATE(values<step>({
        {"ibv_alloc_pd", ENOMEM, {"rdma_destroy_id"}},
        {"ibv_create_cq", EMFILE, {"ibv_dealloc_pd", "rdma_destroy_id"}},
        {"rdma_create_qp", ENOSPC, {"ibv_destroy_cq", "ibv_dealloc_pd", "rdma_destroy_id"}},
        {"rdma_accept", EPROTO, {"ibv_destroy_qp", "ibv_destroy_cq", "ibv_dealloc_pd", "rdma_destroy_id"}},
        {"", 0, {"ibv_destroy_qp", "ibv_destroy_cq", "ibv_dealloc_pd", "rdma_destroy_id"}},
    }));
    CAPTURE(failing.function);
    world w;
    rdma::event_channel channel;
    rdma::cm_id listener = make_listener(channel);
    rdma::cm_event request = make_request(channel, listener);
    fake::clear_calls();
    if (failing.code != 0)
        fake::fail(failing.function, 1, failing.code);
    CHECK(thrown([&] { session s(request); }, failing.function) ==
          std::error_code(failing.code, std::system_category()));
    request.ack();
    std::vector<std::string> undone;
    for (fake::call const& each : fake::calls())
        if (each.function.find("destroy") != std::string::npos || each.function.find("dealloc") != std::string::npos)
            undone.push_back(each.function);
    // The CQ and the PD go with the QP, and neither needs the other.
    if (undone.size() == 4 && undone[1] == "ibv_dealloc_pd")
        std::swap(undone[1], undone[2]);
    CHECK(undone == failing.undone);
}

TEST_CASE("A13 a QP that does not exist can be destroyed, and one that does, twice", "[field]") {
    world w;
    rdma::event_channel channel;
    rdma::cm_id id = make_bound(channel), unbound = make_id(channel);
    fake::clear_calls();
    id.destroy_qp();
    unbound.destroy_qp();
    rdma::cm_id().destroy_qp();
    CHECK(calls_made() == 0);
    id.create_qp({});
    CHECK(id.qp());
    id.destroy_qp();
    CHECK_FALSE(id.qp());
    CHECK_FALSE(id.send_cq());
    CHECK_FALSE(id.recv_cq_channel());
    id.destroy_qp();
    CHECK(fake::count("ibv_destroy_qp") == 1);
    CHECK(fake::live().cqs == 0);
    CHECK(fake::live().comp_channels == 0);
    id.create_qp({}); // and made again
    CHECK(fake::live().qps == 1);
}

TEST_CASE("A13 a send-only QP leaves neither its CQ nor its channel behind", "[field]") {
    world w;
    rdma::event_channel channel;
    rdma::cm_id id = make_bound(channel);
    id.create_qp({.cap = {.max_recv_wr = 0}});
    CHECK(id.send_cq());
    CHECK_FALSE(id.recv_cq());
    id.destroy_qp();
    CHECK(fake::live().cqs == 0);
    CHECK(fake::live().comp_channels == 0);
}

// ---- A19, A20 -------------------------------------------------------------------------------------------------------

TEST_CASE("A19 events that come after a session was closed are delivered, and find nothing", "[field]") {
    world w;
    auto [client, server, listener, client_channel, server_channel] = connect_pair();
    struct user_session {
        int events = 0;
    };
    std::unordered_map<rdma::cm_id_ref, std::unique_ptr<user_session>> sessions;
    sessions[server] = std::make_unique<user_session>();
    client.disconnect();
    std::vector<type> seen;
    for (rdma::cm_event event : server_channel.pending()) {
        seen.push_back(event.type());
        if (auto const found = sessions.find(event.id()); found != sessions.end()) {
            ++found->second->events;
            sessions.erase(found); // the id itself is kept
        }
    }
    CHECK(seen == std::vector{type::disconnected, type::timewait_exit});
    CHECK(server_channel.stats().events_held == 0);
    server.destroy();
}

TEST_CASE("A19 a teardown does not wait for TIMEWAIT_EXIT", "[field]") {
    bool const timewait = GENERATE(false, true);
    char const* const host = GENERATE(rxe_host, siw_host);
    CAPTURE(timewait, host);
    world w;
    fake::set_timewait(timewait);
    auto [client, server, listener, client_channel, server_channel] = connect_pair(host);
    client.disconnect();
    expect(client_channel, type::disconnected);
    expect(server_channel, type::disconnected);
    client.destroy(); // whatever is still queued for them goes with them
    server.destroy();
    CHECK(is_idle(client_channel));
    CHECK(is_idle(server_channel));
}

TEST_CASE("A20 events of an id may come in any order, and of types that are not known yet", "[field]") {
    int const unknown = 99; // no enumerator has it
    std::array const kinds{int{RDMA_CM_EVENT_ESTABLISHED},   int{RDMA_CM_EVENT_DISCONNECTED},
                           int{RDMA_CM_EVENT_UNREACHABLE},   int{RDMA_CM_EVENT_CONNECT_ERROR},
                           int{RDMA_CM_EVENT_REJECTED},      int{RDMA_CM_EVENT_ADDR_CHANGE},
                           int{RDMA_CM_EVENT_TIMEWAIT_EXIT}, unknown};
    world w;
    rdma::event_channel channel;
    for (int const first : kinds)
        for (int const second : kinds) {
            rdma::cm_id id = make_bound(channel);
            push(id, first, -ETIMEDOUT);
            push(id, second);
            std::vector<rdma::cm_event> held;
            held.push_back(channel.get());
            held.push_back(channel.get());
            CHECK(static_cast<int>(held[0].type()) == first);
            CHECK(static_cast<int>(held[1].type()) == second);
            for (rdma::cm_event const& event : held) {
                CHECK(event.error() == (event.status() == 0 ? std::error_condition() : std::errc::timed_out));
                CHECK_THAT(to_string(event), rdmacpp_test::contains(to_string(event.type())));
                CHECK(event.id() == rdma::cm_id_ref(id));
                CHECK_FALSE(event.listen_id());
            }
            id = rdma::cm_id();
            CHECK(channel.stats().ids_awaiting_ack == 1);
            CHECK_THAT(to_string(channel), rdmacpp_test::contains(" x "));
        }
    CHECK(channel.stats().events_acked == 2 * kinds.size() * kinds.size());
    CHECK(channel.stats().ids_awaiting_ack == 0);

    rdma::cm_id id = make_bound(channel);
    push(id, unknown);
    rdma::cm_event event = channel.get();
    CHECK(to_string(event.type()) == "event 99");
    CHECK(event.private_data().empty());
    CHECK_FALSE(event.param());
    std::error_code ec;
    CHECK_FALSE(event.take_id(ec));
    CHECK(ec == rdma::errc::no_id_to_take);
}
