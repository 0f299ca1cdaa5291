// SPDX-License-Identifier: MIT
// Threads that make, use and drop ids while others get and ack events. These cases say most under ThreadSanitizer.
#include "threads.hpp"
#include "support.hpp"

#include <atomic>
#include <optional>
#include <stop_token>
#include <thread>
#include <unordered_map>

using namespace unit;

namespace {

/// How far a client has come, as the thread that gets the events sees it. It outlives every event of its id.
struct progress {
    std::atomic<int> stage{0}; ///< 1 address, 2 route, 3 connected, -1 failed

    void reach(int to) {
        stage.store(to, std::memory_order_release);
        stage.notify_one();
    }
    /// False when it failed.
    bool await(int wanted) {
        for (int now; (now = stage.load(std::memory_order_acquire)) < wanted;) {
            if (now < 0)
                return false;
            stage.wait(now, std::memory_order_acquire);
        }
        return true;
    }
};

/// The thread that iterates over the channel: it serves, and tells the clients how far they are.
class server {
public:
    explicit server(rdma::event_channel& channel) : channel_(channel) {}

    void run(std::stop_token stop) {
        for (rdma::cm_event event : channel_.events(stop))
            handle(event);
        sessions_.clear();
    }

    int established = 0;

private:
    void handle(rdma::cm_event& event) {
        auto* const client = static_cast<progress*>(event.id().user_context());
        switch (event.type()) {
        case type::connect_request: return accept(event);
        case type::addr_resolved: return client->reach(1);
        case type::route_resolved: return client->reach(2);
        case type::established:
            if (client)
                ++established, client->reach(3);
            return;
        case type::disconnected:
            if (!client)
                sessions_.erase(event.id()); // its own event is held: the line that hangs in C
            return;
        case type::timewait_exit: return;
        default: // of a client that was dropped in the middle, its half-made session
            if (client)
                client->reach(-1);
            else
                sessions_.erase(event.id());
        }
    }

    void accept(rdma::cm_event& event) {
        rdma::cm_id id = event.take_id();
        rdma::cm_id_ref const key = id;
        std::error_code ec;
        id.accept(ec);
        if (!ec) // or the client is gone already
            sessions_.insert_or_assign(key, std::move(id));
    }

    rdma::event_channel& channel_;
    std::unordered_map<rdma::cm_id_ref, rdma::cm_id> sessions_;
};

constexpr int client_threads = 4;

/// Makes a client up to its connect, and then does with it what its number says.
bool one_connection(rdma::event_channel const& channel, progress& mine, int number, int port) {
    rdma::cm_id id(channel, rdma::port_space::tcp, &mine);
    id.resolve_addr(rdma::address(rxe_host, port));
    if (number % 8 == 7)
        return true; // dropped with its address being resolved
    if (!mine.await(1))
        return false;
    id.resolve_route();
    if (!mine.await(2))
        return false;
    rdma::cq cq(id.verbs(), 16);
    id.create_qp({.send_cq = cq, .recv_cq = cq});
    id.connect();
    if (number % 8 == 3)
        return true; // dropped in mid-connect: while the other thread is in a get that touches its QP
    if (!mine.await(3))
        return false;
    if (number % 2 == 0)
        id.disconnect();
    return true;
}

/// `count` connections in all. One in four attempts is dropped before it is connected, and not counted.
void check_connections(int count) {
    world w;
    fake::set_reuse_addresses(true);
    rdma::event_channel channel;
    server serving(channel);
    std::atomic<int> failed{0};
    std::vector<std::vector<progress>> attempts; // beyond the thread that gets: its events point to them
    for (int t = 0; t != client_threads; ++t)
        attempts.emplace_back(static_cast<std::size_t>(2 * count / client_threads + 8));
    rdma::cm_id listener = make_listener(channel);
    std::jthread iterating([&](std::stop_token stop) { serving.run(stop); });
    std::vector<std::thread> clients;
    for (std::vector<progress>& mine : attempts)
        clients.emplace_back([&channel, &mine, &failed, count] {
            int connected = 0;
            for (std::size_t i = 0; connected != count / client_threads; ++i) {
                if (!one_connection(channel, mine[i], static_cast<int>(i), 7471))
                    ++failed;
                connected += i % 4 != 3;
            }
        });
    for (std::thread& each : clients)
        each.join();
    iterating.request_stop();
    iterating.join();

    CHECK(failed == 0);
    CHECK(serving.established >= count);
    for (rdma::cm_event event : channel.pending())
        CHECK(event.type() != type::established); // of whoever was not waited for
    rdma::channel_stats const end = channel.stats();
    CHECK(end.events_got == end.events_acked);
    CHECK(end.events_held == 0);
    CHECK(end.ids_live == 1); // the listener
    CHECK(end.ids_awaiting_ack == 0);
}

} // namespace

TEST_CASE("threads: four make, connect and drop ids while a fifth iterates: 10 000 connections") {
    check_connections(10'000);
}

TEST_CASE("threads: the same, 100 000 connections", "[.long]") { check_connections(100'000); }

TEST_CASE("threads: several get from one channel, and each event goes to one of them") {
    world w;
    constexpr int getters = 4, events = 4000;
    rdma::event_channel channel;
    rdma::cm_id ids[] = {make_id(channel), make_id(channel), make_id(channel)};
    std::vector<std::atomic<int>> seen(events);
    std::atomic<int> total{0};
    std::stop_source stop;
    auto const count = [&](rdma::cm_event const& event) {
        ++seen[static_cast<std::size_t>(event.status())];
        if (++total == events)
            stop.request_stop();
    };
    std::vector<std::thread> threads;
    for (int i = 0; i != getters; ++i) // each in another form
        threads.emplace_back([&, i] {
            std::error_code ec;
            switch (i) {
            case 0:
                for (rdma::cm_event event : channel.events(stop.get_token()))
                    count(event);
                break;
            case 1:
                while (auto event = channel.get(stop.get_token(), ec))
                    count(*event);
                break;
            default:
                while (!stop.stop_requested()) {
                    for (rdma::cm_event event : channel.pending())
                        count(event);
                    std::this_thread::yield();
                }
            }
        });
    for (int i = 0; i != events; ++i)
        fake::push(ids[i % 3].native_handle(), {RDMA_CM_EVENT_ADDR_CHANGE, i});
    for (std::thread& each : threads)
        each.join();
    int wrong = 0;
    for (std::atomic<int> const& times : seen)
        wrong += times != 1;
    CHECK(wrong == 0);
    CHECK(channel.stats().events_got == events);
    CHECK(channel.stats().events_acked == events);
}

TEST_CASE("threads: an id is dropped on one while its events are acked on two others") {
    world w;
    fake::set_reuse_addresses(true);
    rdma::event_channel channel;
    rdma::cm_id id;
    rdma::cm_event first, second;
    int rounds = 0;
    at_once(
        1500,
        [&] {
            id = make_id(channel);
            fake::push(id.native_handle(), {RDMA_CM_EVENT_ADDR_CHANGE});
            fake::push(id.native_handle(), {RDMA_CM_EVENT_ADDR_CHANGE});
            first = channel.get();
            second = channel.get();
        },
        [&] { rounds += fake::count("rdma_destroy_id") == static_cast<std::size_t>(rounds) + 1; }, [&] { id = {}; },
        [&] { first.ack(); }, [&] { second = {}; });
    CHECK(rounds == 1500); // destroyed once, in each round
}

TEST_CASE("threads: a listener, its request and the child are dropped on three") {
    world w;
    fake::set_reuse_addresses(true);
    rdma::event_channel channel;
    rdma::cm_id listener, child;
    rdma::cm_event request, untaken;
    at_once(
        800,
        [&] {
            listener = make_listener(channel, rxe_host, 0);
            request = make_request(channel, listener);
            untaken = make_request(channel, listener);
            child = request.take_id();
        },
        [&] { untaken.ack(); }, [&] { listener = {}; }, [&] { request.ack(); }, [&] { child = {}; });
    CHECK(fake::count("rdma_destroy_id") == 3 * 800);
    CHECK(channel.stats().requests_rejected == 800);
}

TEST_CASE("threads: an id is dropped on one while events of its QP and CQs are acked on two others") {
    world w;
    fake::set_reuse_addresses(true);
    rdma::event_channel channel;
    rdma::cm_id id;
    rdma::async_event trouble;
    std::optional<rdma::cq_event> completion;
    at_once(
        800,
        [&] {
            id = make_bound(channel);
            id.create_qp({});
            fake::push_async(id.qp().native_handle(), IBV_EVENT_COMM_EST);
            trouble = async_event_of(id.verbs());
            fake::push_cq_event(id.recv_cq().native_handle());
            completion = id.recv_cq_channel().try_get();
        },
        [] {}, [&] { id = {}; }, [&] { trouble.ack(); }, [&] { completion.reset(); });
    CHECK(fake::count("rdma_destroy_id") == 800);
    CHECK(fake::count("ibv_destroy_qp") == 800);
    CHECK(fake::count("ibv_destroy_cq") == 1600);
}

TEST_CASE("threads: an id is destroyed by name while another thread gets and acks its events") {
    world w;
    rdma::event_channel channel;
    rdma::cm_id id;
    std::atomic<int> refused{0}, other{0};
    at_once(
        800,
        [&] {
            id = make_id(channel);
            for (int i = 0; i != 3; ++i)
                fake::push(id.native_handle(), {RDMA_CM_EVENT_ADDR_CHANGE});
        },
        [&] { id = {}; },
        [&] {
            std::error_code ec;
            id.destroy(ec); // it never waits: either it is done, or an event is held
            refused += ec == std::errc::resource_deadlock_would_occur;
            other += ec && ec != std::errc::resource_deadlock_would_occur;
        },
        [&] {
            for (rdma::cm_event event : channel.pending())
                event.ack();
        });
    CHECK(other == 0);
    CHECK(fake::count("rdma_destroy_id") == 800);
}

TEST_CASE("threads: a channel object is dropped while others wait on it, hold its events and drop its ids") {
    world w;
    std::optional<rdma::event_channel> channel;
    rdma::cm_id id;
    rdma::cm_event held;
    std::optional<rdma::event_range<rdma::cm_event, true>> range;
    std::atomic<int> turns{0};
    at_once(
        500,
        [&] {
            channel.emplace();
            id = make_id(*channel);
            fake::push(id.native_handle(), {RDMA_CM_EVENT_ADDR_CHANGE});
            held = channel->get();
            fake::push(id.native_handle(), {RDMA_CM_EVENT_ADDR_CHANGE});
            range.emplace(channel->events());
        },
        [&] { range.reset(); },
        [&] {
            for (rdma::cm_event event : *range)
                ++turns;
        },
        [&] { channel.reset(); }, [&] { id = {}; }, [&] { held.ack(); });
    CHECK(turns <= 500); // what the drop of the id left to get
    CHECK(fake::count("rdma_destroy_event_channel") == 500);
}

TEST_CASE("threads: channels come and go on three at once") {
    world w;
    fake::set_reuse_addresses(true);
    auto const live = [] {
        rdma::event_channel channel;
        rdma::cm_id id = make_id(channel);
        fake::push(id.native_handle(), {RDMA_CM_EVENT_ADDR_CHANGE});
        rdma::cm_event event = channel.get();
        channel = rdma::event_channel(rdma::adopt, channel.release());
        id = rdma::cm_id(rdma::adopt, channel, id.release());
        channel = rdma::event_channel(rdma::no_init);
    };
    at_once(
        500, [] {}, [] {}, live, live, live);
    CHECK(fake::count("rdma_destroy_event_channel") == 1500);
}

TEST_CASE("threads: stats and to_string may be read at any time") {
    world w;
    rdma::event_channel channel;
    rdma::cm_id id;
    rdma::cm_event held;
    std::size_t read = 0;
    at_once(
        500,
        [&] {
            id = make_bound(channel);
            id.create_qp({});
            fake::push(id.native_handle(), {RDMA_CM_EVENT_ADDR_CHANGE});
            held = channel.get();
        },
        [] {}, [&] { id = {}; }, [&] { held.ack(); },
        [&] { read += to_string(channel).size() + channel.stats().events_held; });
    CHECK(read != 0);
}
