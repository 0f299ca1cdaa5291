// SPDX-License-Identifier: MIT
// Ids that move to another channel: with their events, never while one is held, and whatever other threads do.
#include "support.hpp"
#include "threads.hpp"

#include <algorithm>
#include <atomic>
#include <numeric>
#include <optional>
#include <stop_token>
#include <thread>

using namespace unit;

namespace {

/// What ADDR_CHANGEs there are on a channel, by their status.
std::vector<int> statuses(rdma::event_channel const& channel) {
    std::vector<int> all;
    for (rdma::cm_event event : channel.pending())
        all.push_back(event.status());
    return all;
}

void push(rdma::cm_id const& id, int status = 0) {
    fake::push(id.native_handle(), {RDMA_CM_EVENT_ADDR_CHANGE, status});
}

std::error_code const deadlock(EDEADLK, std::system_category());

/// Both forms refuse, C is not called, and the id stays where it is.
void refused(std::error_code wanted, rdma::cm_id& id, rdma::event_channel_ref to, std::string const& text = "") {
    rdma_event_channel const* const before = id ? id.native_handle()->channel : nullptr;
    std::size_t const calls = calls_made();
    CHECK(thrown([&] { id.migrate(to); }, text) == wanted);
    std::error_code ec;
    id.migrate(to, ec);
    CHECK(ec == wanted);
    CHECK(calls_made() == calls);
    if (id)
        CHECK(id.native_handle()->channel == before);
}

struct two_channels : world {
    rdma::event_channel from, to;
    rdma::cm_id id = make_id(from);
};

} // namespace

// ---- What moves -----------------------------------------------------------------------------------------------------

TEST_CASE_METHOD(two_channels, "migrate: an id moves with the events queued for it, and nothing else does",
                 "[migrate]") {
    rdma::cm_id const other = make_id(from);
    push(id, 1);
    push(other, 2);
    push(id, 3);
    push(other, 4);
    id.migrate(to);
    CHECK(id.channel() == rdma::event_channel_ref(to));
    CHECK(id.native_handle()->channel == to.native_handle());
    CHECK(fake::count("rdma_migrate_id", id.native_handle()) == 1);
    CHECK(statuses(from) == std::vector{2, 4});
    push(id, 5);
    CHECK(statuses(to) == std::vector{1, 3, 5});
    CHECK(is_idle(from));
}

TEST_CASE_METHOD(two_channels, "migrate: the records of both channels tell at once where the id is", "[migrate]") {
    push(id);
    id.migrate(to);
    CHECK(from.stats() == rdma::channel_stats());
    CHECK(to.stats().ids_live == 1);
    CHECK(to.stats().events_got == 0);
    rdma::cm_event held = next(to, type::addr_change);
    CHECK(held.id() == id);
    rdma_cm_id* const raw = id.native_handle();
    id = {};
    CHECK(to.stats().ids_awaiting_ack == 1);
    CHECK(to.stats().events_held == 1);
    CHECK(from.stats() == rdma::channel_stats());
    CHECK_THAT(to_string(to), rdmacpp_test::contains("1 x ADDR_CHANGE"));
    held.ack();
    CHECK(fake::count("rdma_destroy_id", raw) == 1);
    CHECK(to.stats().ids_awaiting_ack == 0);
}

TEST_CASE_METHOD(two_channels, "migrate: back and forth, and on to itself", "[migrate]") {
    push(id, 7);
    for (int i = 0; i != 5; ++i) {
        id.migrate(to);
        id.migrate(from);
    }
    std::size_t const calls = calls_made();
    id.migrate(from); // it is there
    CHECK(calls_made() == calls);
    CHECK(statuses(from) == std::vector{7});
    CHECK(is_idle(to));
    CHECK(fake::count("rdma_migrate_id") == 10);
}

TEST_CASE_METHOD(two_channels, "migrate: a step of connecting goes on where the id is", "[migrate]") {
    rdma::cm_id const listener = make_listener(from);
    id.resolve_addr(rdma::address(rxe_host, 7471));
    id.migrate(to);
    expect(to, type::addr_resolved);
    id.migrate(from);
    id.resolve_route();
    id.migrate(to);
    expect(to, type::route_resolved);
    id.create_qp({});
    id.connect();
    id.migrate(from);
    rdma::cm_id server = next(from, type::connect_request).take_id();
    server.create_qp({});
    server.accept();
    id.migrate(to);
    server.migrate(to);
    expect(to, type::established); // of the client: then the server's comes
    CHECK(next(to, type::established).id() == server);
    id.disconnect();
    expect(to, type::disconnected);
}

TEST_CASE_METHOD(two_channels, "migrate: who waits on the new channel gets what moves there", "[migrate]") {
    push(id, 3);
    std::optional<rdma::cm_event> got;
    std::thread waiting([&] { got = to.get_for(60s); });
    id.migrate(to);
    waiting.join();
    REQUIRE(got);
    CHECK(got->status() == 3);
}

TEST_CASE_METHOD(two_channels, "migrate: to a channel of C's, and away from it", "[migrate]") {
    rdma_event_channel* const raw = ::rdma_create_event_channel();
    push(id, 1);
    id.migrate(rdma::event_channel_ref(raw));
    CHECK(fake::queued(raw) == 1);
    rdma_cm_event* event = nullptr;
    REQUIRE(::rdma_get_cm_event(raw, &event) == 0);
    rdma::cm_event held(rdma::adopt, event);
    refused(deadlock, id, to, "1 events held");
    held.ack();
    id.migrate(to);
    ::rdma_destroy_event_channel(raw);
    push(id, 2);
    CHECK(statuses(to) == std::vector{2});
}

// ---- What is refused ------------------------------------------------------------------------------------------------

TEST_CASE_METHOD(two_channels, "migrate: refused while events are held, with their number, and nothing has changed",
                 "[migrate]") {
    push(id, 1);
    push(id, 2);
    push(id, 3);
    rdma::cm_event first = next(from, type::addr_change), second = next(from, type::addr_change);
    refused(deadlock, id, to, "rdma_migrate_id");
    refused(deadlock, id, to, "2 events held");
    CHECK(from.stats().ids_live == 1);
    CHECK(to.stats() == rdma::channel_stats());
    CHECK(fake::queued(from.native_handle()) == 1);
    first.ack();
    refused(deadlock, id, to, "1 events held");
    rdma_cm_event* const raw = second.release(); // C has it: it is as good as held
    refused(deadlock, id, to, "1 events held");
    rdma::cm_event(rdma::adopt, raw).ack();
    id.migrate(to);
    CHECK(statuses(to) == std::vector{3});
}

TEST_CASE_METHOD(two_channels, "migrate: refused without a channel, and on an empty id", "[migrate]") {
    refused(rdma::errc::empty_handle, id, rdma::event_channel_ref());
    rdma::event_channel const none(rdma::no_init);
    refused(rdma::errc::empty_handle, id, none);
    rdma::cm_id empty;
    refused(rdma::errc::empty_handle, empty, to);
    CHECK_FALSE(empty.channel());
}

TEST_CASE_METHOD(two_channels, "T5 a listener with requests queued is not migrated, and none of them is lost",
                 "[migrate]") {
    CHECK(std::error_code(rdma::errc::listener_migrates) == std::errc::operation_not_permitted);
    rdma::cm_id client = make_client(to);
    client.create_qp({});
    id.bind(rdma::address(rxe_host, 7471));
    id.migrate(to); // it does not listen yet
    id.migrate(from);
    id.listen();
    refused(rdma::errc::listener_migrates, id, to);
    client.connect();
    refused(rdma::errc::listener_migrates, id, to, "listening");
    rdma::cm_event request = next(from, type::connect_request);
    refused(rdma::errc::listener_migrates, id, to); // not the number of events: it will never be possible
    rdma::cm_id server = request.take_id();
    server.create_qp({});
    server.accept();
    expect(to, type::established);
    expect(from, type::established);
}

TEST_CASE_METHOD(two_channels, "migrate: when C fails, the id stays where it was", "[migrate]") {
    push(id, 1);
    fake::fail("rdma_migrate_id", 1, EMFILE);
    CHECK(thrown([&] { id.migrate(to); }, "rdma_migrate_id") == std::errc::too_many_files_open);
    CHECK(id.channel() == rdma::event_channel_ref(from));
    CHECK(from.stats().ids_live == 1);
    CHECK(to.stats().ids_live == 0);
    CHECK(statuses(from) == std::vector{1});
    to = rdma::event_channel(rdma::no_init);
    CHECK(fake::live().channels == 1); // nothing keeps it
    rdma::event_channel fresh;
    id.migrate(fresh);
    push(id, 2);
    CHECK(statuses(fresh) == std::vector{2});
}

// ---- The child of a request -----------------------------------------------------------------------------------------

namespace {

/// A request that is held, of a client on `to`, and its id.
struct requested : world {
    rdma::event_channel from, to, worker;
    rdma::cm_id listener = make_listener(from), client = make_client(to);
    rdma::cm_event request;
    rdma::cm_id child;

    requested() {
        client.create_qp({});
        client.connect();
        request = next(from, type::connect_request);
        child = request.take_id();
    }
};

} // namespace

TEST_CASE_METHOD(requested, "migrate: a held CONNECT_REQUEST does not keep the id that it brought", "[migrate]") {
    child.migrate(worker);
    CHECK(request.id() == child);
    child.create_qp({});
    child.accept(); // the private data of the request is still there to be looked at
    CHECK(request.private_data().size() == 56);
    expect(to, type::established);
    CHECK(next(worker, type::established).id() == child);
    CHECK(from.stats().ids_live == 1); // the listener
    CHECK(worker.stats().ids_live == 1);
    request.ack();
    client.disconnect();
    CHECK(next(worker, type::disconnected).id() == child);
}

TEST_CASE("migrate: a moved child, its request and the channels are dropped in every order", "[migrate]") {
    std::array<int, 6> order{};
    std::iota(order.begin(), order.end(), 0);
    do {
        requested r;
        rdma_cm_id* const raw = r.child.native_handle();
        r.child.migrate(r.worker);
        for (int const each : order)
            switch (each) {
            case 0: r.child = {}; break;
            case 1: r.request = {}; break;
            case 2: r.from = rdma::event_channel(rdma::no_init); break;
            case 3: r.worker = rdma::event_channel(rdma::no_init); break;
            case 4: r.listener = {}; break;
            case 5: r.client = {}; break;
            }
        if (fake::count("rdma_destroy_id") != 3 || fake::count("rdma_destroy_id", raw) != 1 ||
            fake::live().channels != 1) { // that of the client
            CAPTURE(order);
            CHECK(fake::leaks() == "");
            CHECK(fake::count("rdma_destroy_id", raw) == 1);
        }
    } while (std::next_permutation(order.begin(), order.end()));
}

TEST_CASE_METHOD(requested, "migrate: a moved child that is dropped undecided is rejected at once", "[migrate]") {
    child.migrate(worker);
    child = {};
    CHECK(next(to, type::rejected).error() == rdma::condition::refused);
    CHECK(fake::count("rdma_destroy_id") == 0); // the event names it
    CHECK(worker.stats().ids_awaiting_ack == 1);
    CHECK_THAT(to_string(worker), rdmacpp_test::contains("CONNECT_REQUEST that brought it"));
    request.ack();
    CHECK(fake::count("rdma_destroy_id") == 1);
    CHECK(worker.stats().ids_awaiting_ack == 0);
}

TEST_CASE_METHOD(requested, "migrate: the request of a moved child is released, and comes back", "[migrate]") {
    rdma_cm_id* const raw = child.native_handle();
    child.migrate(worker);
    request = rdma::cm_event(rdma::adopt, request.release());
    CHECK(thrown([&] { (void)request.take_id(); }) == rdma::errc::no_id_to_take);
    SECTION("the child first") {
        child = {};
        CHECK(fake::count("rdma_destroy_id", raw) == 0);
        request.ack();
    }
    SECTION("the request first") {
        request.ack();
        CHECK(fake::count("rdma_destroy_id", raw) == 0);
        child = {};
    }
    CHECK(fake::count("rdma_destroy_id", raw) == 1);
}

TEST_CASE("migrate: C gets a request, its id is adopted and moved, and the event adopted at last", "[migrate]") {
    world w;
    rdma_event_channel* const raw_channel = ::rdma_create_event_channel();
    {
        rdma::event_channel worker;
        rdma::cm_id listener(rdma::event_channel_ref(raw_channel), rdma::port_space::tcp);
        listener.bind(rdma::address(rxe_host, 7471));
        listener.listen();
        fake::push_request(listener.native_handle());
        rdma_cm_event* raw = nullptr;
        REQUIRE(::rdma_get_cm_event(raw_channel, &raw) == 0);
        rdma::cm_id child(rdma::adopt, rdma::event_channel_ref(raw_channel), raw->id);
        child.migrate(worker);
        rdma::cm_event event(rdma::adopt, raw);
        CHECK(thrown([&] { (void)event.take_id(); }) == rdma::errc::no_id_to_take); // it has an owner
        event.ack();
        CHECK(fake::count("rdma_destroy_id") == 0);
        child.create_qp({});
        child.accept();
        CHECK(next(worker, type::established).id() == child);
    }
    CHECK(fake::count("rdma_destroy_id") == 2);
    ::rdma_destroy_event_channel(raw_channel);
}

// ---- What goes with it ----------------------------------------------------------------------------------------------

TEST_CASE_METHOD(two_channels, "migrate: the channel that was left is closed with its object, and the new one is kept",
                 "[migrate]") {
    id.migrate(to);
    from = rdma::event_channel(rdma::no_init);
    CHECK(fake::live().channels == 1);
    rdma_event_channel const* const raw = to.native_handle();
    to = rdma::event_channel(rdma::no_init);
    CHECK(fake::count("rdma_destroy_event_channel", raw) == 0);
    push(id);
    id.set_reuse_addr(true); // it works
    id = {};
    CHECK(fake::count("rdma_destroy_event_channel", raw) == 1);
}

TEST_CASE_METHOD(two_channels, "migrate: what was made from the id keeps it, on the new channel", "[migrate]") {
    id.bind(rdma::address(rxe_host, 0));
    id.create_qp({});
    rdma::pd pd(id.verbs());
    fake::push_async(id.qp().native_handle(), IBV_EVENT_COMM_EST);
    rdma::async_event trouble = async_event_of(id.verbs());
    fake::push_cq_event(id.send_cq().native_handle());
    std::optional<rdma::cq_event> completion = id.send_cq_channel().try_get();
    id.migrate(to); // C waits for none of these
    from = rdma::event_channel(rdma::no_init);
    CHECK(fake::live().channels == 1);
    id = {};
    CHECK(fake::count("rdma_destroy_id") == 0);
    CHECK(to.stats().ids_awaiting_ack == 1);
    trouble.ack();
    completion.reset();
    CHECK(fake::count("rdma_destroy_id") == 0);
    pd = {};
    CHECK(fake::count("rdma_destroy_id") == 1);
    CHECK(to.stats().ids_awaiting_ack == 0);
}

TEST_CASE_METHOD(two_channels, "migrate: a moved id is released, and adopted on its new channel", "[migrate]") {
    id.migrate(to);
    rdma_cm_id* const raw = id.release();
    std::error_code ec;
    CHECK_FALSE(rdma::cm_id(rdma::adopt, from, raw, ec));
    CHECK(ec == rdma::errc::wrong_channel);
    id = rdma::cm_id(rdma::adopt, to, raw);
    id.migrate(from);
    push(id, 1);
    CHECK(statuses(from) == std::vector{1});
}

TEST_CASE_METHOD(two_channels, "migrate: to where a dead id of C's had the same address", "[migrate]") {
    fake::set_reuse_addresses(true);
    id = {};
    rdma_cm_id* const dead = make_id(to).release();
    CHECK(::rdma_destroy_id(dead) == 0); // its record stays: it might have come back
    id = make_id(from);
    REQUIRE(id.native_handle() == dead);
    push(id, 1);
    id.migrate(to);
    push(id, 2);
    CHECK(statuses(to) == std::vector{1, 2});
    id = {};
    CHECK(fake::count("rdma_destroy_id", dead) == 3); // of the first id in this case, C's, and this one
}

TEST_CASE_METHOD(two_channels, "migrate: destroyed by name after it moved", "[migrate]") {
    push(id);
    id.migrate(to);
    rdma::cm_event held = next(to, type::addr_change);
    CHECK(thrown([&] { id.destroy(); }, "1 events held") == std::errc::resource_deadlock_would_occur);
    held.ack();
    id.destroy();
    CHECK(to.stats().ids_live == 0);
    CHECK(from.stats().ids_live == 0);
}

// ---- Threads --------------------------------------------------------------------------------------------------------

TEST_CASE("T4 ids migrate to and fro while threads iterate both channels, and each event arrives once",
          "[migrate][threads]") {
    world w;
    constexpr int movers = 3, rounds = 400;
    rdma::event_channel channels[2];
    std::vector<std::atomic<int>> seen(movers * rounds);
    std::atomic<int> total{0}, unexpected{0};
    std::stop_source stop;
    auto const iterate = [&](rdma::event_channel const& channel) {
        for (rdma::cm_event event : channel.events(stop.get_token())) {
            ++seen[static_cast<std::size_t>(event.status())];
            if (++total == movers * rounds)
                stop.request_stop();
        }
    };
    auto const move_about = [&](int number) {
        rdma::cm_id id = make_id(channels[number % 2]);
        for (int i = 0; i != rounds; ++i) {
            push(id, number * rounds + i);
            std::error_code ec;
            do { // a getter may just hold an event of it
                id.migrate(channels[(number + i + 1) % 2], ec);
            } while (ec == std::errc::resource_deadlock_would_occur);
            unexpected += ec ? 1 : 0;
        }
        while (!stop.stop_requested())
            std::this_thread::yield();
    };
    std::vector<std::thread> threads;
    for (rdma::event_channel const& channel : channels)
        threads.emplace_back([&] { iterate(channel); });
    for (int i = 0; i != movers; ++i)
        threads.emplace_back([&move_about, i] { move_about(i); });
    for (std::thread& each : threads)
        each.join();
    CHECK(unexpected == 0);
    CHECK(std::count(seen.begin(), seen.end(), 1) == movers * rounds);
    CHECK(channels[0].stats().events_got + channels[1].stats().events_got == movers * rounds);
}

TEST_CASE("T4 an id migrates while another thread gets and acks its events: done, or refused", "[migrate][threads]") {
    world w;
    fake::set_reuse_addresses(true);
    rdma::event_channel from, to;
    rdma::cm_id id;
    std::atomic<int> other{0};
    at_once(
        800,
        [&] {
            id = make_id(from);
            for (int i = 0; i != 3; ++i)
                push(id);
        },
        [&] { id = {}; },
        [&] {
            std::error_code ec;
            id.migrate(to, ec);
            other += ec && ec != std::errc::resource_deadlock_would_occur;
        },
        [&] {
            for (rdma::cm_event event : from.pending())
                event.ack();
        },
        [&] {
            for (rdma::cm_event event : to.pending())
                event.ack();
        });
    CHECK(other == 0);
    CHECK(fake::count("rdma_destroy_id") == 800);
}

TEST_CASE("migrate: two ids cross between two channels at the same moment", "[migrate][threads]") {
    world w;
    rdma::event_channel left, right;
    rdma::cm_id one = make_id(left), two = make_id(right);
    at_once(
        500, [] {}, [&] { std::swap(one, two); }, [&] { one.migrate(right); }, [&] { two.migrate(left); });
    CHECK(left.stats().ids_live + right.stats().ids_live == 2);
}

TEST_CASE("migrate: the channel left, and its request, go on other threads", "[migrate][threads]") {
    world w;
    fake::set_reuse_addresses(true);
    std::optional<rdma::event_channel> from;
    rdma::event_channel worker;
    rdma::cm_id listener, child;
    rdma::cm_event request;
    at_once(
        400,
        [&] {
            from.emplace();
            listener = make_listener(*from, rxe_host, 0);
            request = make_request(*from, listener);
            child = request.take_id();
        },
        [&] { child = {}; }, [&] { child.migrate(worker); }, [&] { from.reset(); }, [&] { request.ack(); },
        [&] { listener = {}; });
    CHECK(fake::count("rdma_destroy_id") == 800);
    CHECK(fake::count("rdma_destroy_event_channel") == 400);
}

namespace {

/// A server that gives each connection a channel and a thread of its own, as ucmatose does with -m.
class workers {
public:
    explicit workers(rdma::event_channel const& channel) : channel_(channel) {}

    void serve(int connections) {
        for (int i = 0; i != connections; ++i) {
            rdma::cm_event request = channel_.get();
            threads_.emplace_back(&workers::work, this, request.take_id());
        }
        for (std::thread& each : threads_)
            each.join();
    }

    std::atomic<int> ended{0};

private:
    void work(rdma::cm_id id) {
        rdma::event_channel own;
        id.migrate(own);
        id.create_qp({});
        id.accept();
        for (rdma::cm_event event : own) {
            if (event.type() == type::disconnected) {
                ++ended;
                return;
            }
        }
    }

    rdma::event_channel const& channel_;
    std::vector<std::thread> threads_;
};

} // namespace

TEST_CASE("migrate: a worker for each connection", "[migrate][threads]") {
    world w;
    fake::set_timewait(false);
    constexpr int connections = 40;
    rdma::event_channel channel;
    rdma::cm_id const listener = make_listener(channel);
    workers serving(channel);
    std::thread server([&] { serving.serve(connections); });
    for (int i = 0; i != connections; ++i) {
        rdma::event_channel own;
        rdma::cm_id client = make_client(own);
        client.create_qp({});
        client.connect();
        if (auto event = own.get_for(60s); !event || event->type() != type::established)
            FAIL("no connection " << i);
        client.disconnect();
    }
    server.join();
    CHECK(serving.ended == connections);
    CHECK(channel.stats().ids_live == 1);
}
