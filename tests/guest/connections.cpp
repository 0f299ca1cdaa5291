// SPDX-License-Identifier: MIT
// Lifetimes on the real librdmacm and a real kernel: ids dropped in every situation in which C would wait for ever.
#include "guest/support.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace {

using namespace guest;

/// A client that connects again and again, and drops its id inside the handler of its own DISCONNECTED event.
void many_connections(device const& on) {
    constexpr int total = 200, drop_every = 5;
    server peer(on, drop_every);
    rdma::event_channel channel;
    std::unordered_map<rdma::cm_id_ref, cm_id> ids;
    auto const start = [&] {
        cm_id id(channel, rdma::port_space::tcp);
        id.resolve_addr(peer.address(), std::chrono::seconds(10));
        rdma::cm_id_ref const key = id;
        ids.emplace(key, std::move(id));
    };
    int started = 0, established = 0, disconnected = 0, rejected = 0, other = 0;
    for (; started != 4; ++started) // so many at a time
        start();
    while (!ids.empty()) {
        std::optional<cm_event> event = channel.get_for(patience);
        REQUIRE(event);
        cm_id& id = ids.at(event->id());
        bool over = false;
        switch (event->type()) {
        case cm_event_type::addr_resolved: id.resolve_route(std::chrono::seconds(10)); break;
        case cm_event_type::route_resolved:
            id.create_qp({});
            id.connect();
            break;
        case cm_event_type::established:
            ++established;
            id.disconnect();
            break;
        case cm_event_type::disconnected:
            ++disconnected;
            over = true;
            break;
        case cm_event_type::rejected:
            ++rejected;
            CHECK(event->error() == rdma::condition::refused);
            over = true;
            break;
        case cm_event_type::timewait_exit: break;
        default:
            UNSCOPED_INFO(to_string(*event));
            ++other;
            over = true;
        }
        if (over) {
            ids.erase(event->id()); // while its event is held
            if (started < total) {
                start();
                ++started;
            }
        }
    }
    CHECK(established == total - total / drop_every);
    CHECK(disconnected == established);
    CHECK(rejected == total / drop_every);
    CHECK(other == 0);
    check_balance(channel);
    peer.stop();
    CHECK(peer.count().requests == total);
    CHECK(peer.count().untouched == total / drop_every);
    CHECK(peer.count().accepted == established);
    CHECK(peer.count().failed == 0);
}
GUEST_CASE("200 connections, erased by the handler of their own DISCONNECTED", many_connections)

/// The members of a user's class, in an order that C would not survive.
void channel_declared_last(device const& on) {
    struct backwards {
        cm_id client, listener, child;
        cm_event request;
        rdma::event_channel channel;
    } all;
    all.listener = listen_on(all.channel, on.at(0));
    all.client = prepare(all.channel, all.listener.local_addr());
    all.client.connect();
    all.request = expect(all.channel, cm_event_type::connect_request);
    all.child = all.request.take_id();
    all.child.create_qp({});
    all.child.accept();
    // One channel for both ends: their two events come in either order.
    expect(all.channel, cm_event_type::established).ack();
    expect(all.channel, cm_event_type::established).ack();
}
GUEST_CASE("a channel declared after its ids and events", channel_declared_last)

/// Every event of a whole connection is kept, and acked only when all ids and channels are long gone.
void events_kept(device const& on) {
    // It must be told no before it is dropped: on iWARP the kernel holds whoever destroys an id in mid-connect for 10
    // s.
    rdma::event_channel third_channel;
    cm_id second;
    std::vector<cm_event> kept;
    {
        rdma::event_channel server_channel, client_channel;
        cm_id listener = listen_on(server_channel, on.at(0));
        cm_id client(client_channel, rdma::port_space::tcp);
        client.resolve_addr(listener.local_addr());
        kept.push_back(expect(client_channel, cm_event_type::addr_resolved));
        client.resolve_route();
        kept.push_back(expect(client_channel, cm_event_type::route_resolved));
        client.create_qp({});
        client.connect(carrying("hello"));
        kept.push_back(expect(server_channel, cm_event_type::connect_request));
        cm_id child = kept.back().take_id();
        child.create_qp({});
        child.accept(carrying("welcome"));
        kept.push_back(expect(client_channel, cm_event_type::established));
        kept.push_back(expect(server_channel, cm_event_type::established));
        client.disconnect();
        kept.push_back(expect(server_channel, cm_event_type::disconnected));
        // A request that nobody took, and that outlives the listener too.
        second = prepare(third_channel, listener.local_addr());
        second.connect();
        kept.push_back(expect(server_channel, cm_event_type::connect_request));
    }
    // What the events name is still there.
    cm_event const& request = kept[2];
    CHECK(request.listen_id().local_addr().host() == on.host);
    CHECK(request.id().peer_addr().host() == on.host);
    CHECK(std::string_view(reinterpret_cast<char const*>(request.private_data().data()), 5) == "hello");
    for (cm_event const& event : kept)
        CHECK(!to_string(event).empty());
    while (!kept.empty()) // in the order in which they came, which is not the vector's
        kept.erase(kept.begin());
    CHECK(expect(third_channel, cm_event_type::rejected).error() == rdma::condition::refused);
}
GUEST_CASE("events kept beyond ids and channels", events_kept)

void dropped_with_event_held(device const& on) {
    for (bool const client_goes : {true, false}) {
        pair connection(on);
        rdma::event_channel const& mine = client_goes ? connection.client_channel : connection.server_channel;
        rdma::event_channel const& theirs = client_goes ? connection.server_channel : connection.client_channel;
        cm_id& going = client_goes ? connection.client : connection.child;
        cm_id& staying = client_goes ? connection.child : connection.client;

        staying.disconnect();
        cm_event held = expect(mine, cm_event_type::disconnected);
        going = cm_id();
        expect(theirs, cm_event_type::disconnected).ack(); // before the event is released
        REQUIRE(held);
        CHECK(mine.stats().ids_awaiting_ack == 1);
        CHECK(to_string(mine).find("1 x DISCONNECTED") != std::string::npos);
        held.ack();
        CHECK(mine.stats().ids_awaiting_ack == 0);
        connection.drop_ids();
        check_balance(connection.client_channel);
        check_balance(connection.server_channel);
    }
}
GUEST_CASE("an id dropped with its DISCONNECTED held", dropped_with_event_held)

/// The same while the connection stands: it is the drop that ends it.
void connected_and_dropped(device const& on) {
    rdma::event_channel server_channel, client_channel;
    cm_id listener = listen_on(server_channel, on.at(0));
    cm_id client = prepare(client_channel, listener.local_addr());
    client.connect();
    cm_id child = expect(server_channel, cm_event_type::connect_request).take_id();
    child.create_qp({});
    child.accept();
    cm_event const clients = expect(client_channel, cm_event_type::established);
    cm_event const childs = expect(server_channel, cm_event_type::established);
    child = cm_id();
    expect(client_channel, cm_event_type::disconnected).ack();
    client = cm_id();
    CHECK(clients.id());
    CHECK(server_channel.stats().ids_awaiting_ack == 1);
    CHECK(client_channel.stats().ids_awaiting_ack == 1);
}
GUEST_CASE("both ends dropped with their ESTABLISHED held", connected_and_dropped)

/// What is destroyed by name never waits: it says what it would wait for.
void destroyed_by_name(device const& on) {
    pair connection(on);
    connection.child.disconnect();
    cm_event held = expect(connection.client_channel, cm_event_type::disconnected);
    std::error_code ec;
    connection.client.destroy(ec);
    CHECK(ec == std::errc::resource_deadlock_would_occur);
    CHECK(connection.client);
    held.ack();
    connection.client.destroy(ec);
    CHECK(ec == std::error_code());
    CHECK_FALSE(connection.client);
    connection.drop_ids();
    check_balance(connection.client_channel);
}
GUEST_CASE("destroy() with an event held", destroyed_by_name)

/// The message crosses, so that all of this was about real connections.
void message(device const& on) {
    pair connection(on);
    std::array<std::byte, 64> out{}, in{};
    std::string_view const text = "through the device";
    std::ranges::copy(both::bytes(text), out.begin());
    rdma::mr const from(connection.client.pd(), out, rdma::access::none);
    rdma::mr const into(connection.child.pd(), in, rdma::access::local_write);
    connection.child.qp().post_recv(rdma::recv_wr(into.sge()).id(7));
    connection.client.qp().post_send(rdma::send_wr::send(from.sge(0, text.size())).id(8).signaled());
    rdma::work_completion wc;
    REQUIRE(connection.child.recv_cq().wait_for({&wc, 1}, patience).size() == 1);
    REQUIRE(wc);
    CHECK(wc.wr_id() == 7);
    CHECK(wc.success().byte_len() == text.size());
    CHECK(in == out);
    REQUIRE(connection.client.send_cq().wait_for({&wc, 1}, patience).size() == 1);
    CHECK(wc);
    CHECK(wc.wr_id() == 8);
    // And the check at the end of each case does see what is there.
    CHECK(resources::now().count() >= 8);
}
GUEST_CASE("a message crosses", message)

} // namespace
