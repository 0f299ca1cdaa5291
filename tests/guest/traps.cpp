// SPDX-License-Identifier: MIT
// Traps of C that hang, or crash, a program that walks into them; the numbers are those of the list they were found in.
#include "guest/support.hpp"

#include <array>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <new>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <poll.h>

namespace {

using namespace guest;
using clock = std::chrono::steady_clock;

// ---- T1: ibv_destroy_qp and ibv_destroy_cq wait for every ack of the QP's and the CQ's own events ---------------

/// A completion event of the CQ that librdmacm made for an id.
void completion_event_held(device const& on) {
    pair connection(on);
    std::array<std::byte, 8> memory{};
    rdma::mr const region(connection.client.pd(), memory, rdma::access::none);
    std::array<std::byte, 8> sink{};
    rdma::mr const into(connection.child.pd(), sink, rdma::access::local_write);
    connection.child.qp().post_recv(rdma::recv_wr(into.sge()));
    connection.client.send_cq().req_notify();
    connection.client.qp().post_send(rdma::send_wr::send(region.sge()).signaled());
    std::optional<rdma::cq_event> event = connection.client.send_cq_channel().get_for(patience);
    REQUIRE(event);
    CHECK(event->native_handle() == connection.client.send_cq().native_handle());

    connection.client = cm_id(); // its CQ stays, and with it the id's C object
    expect(connection.server_channel, cm_event_type::disconnected).ack();
    CHECK(connection.client_channel.stats().ids_awaiting_ack == 1);
    CHECK(event->cq_context() != nullptr); // librdmacm's: the id

    // A thread of the same channel is not held up either.
    cm_id another(connection.client_channel, rdma::port_space::tcp);
    another.resolve_addr(on.at(7471));
    expect(connection.client_channel, cm_event_type::addr_resolved).ack();
    event->ack();
}
GUEST_CASE("T1 an id dropped with a completion event of its CQ held", completion_event_held)

/// The next async event of a device that names a QP or a CQ; those of ports are others' business.
rdma::async_event next_async_event(rdma::context_ref context) {
    auto const until = clock::now() + patience;
    while (clock::now() < until) {
        pollfd watched{context.native_handle()->async_fd, POLLIN, 0};
        ::poll(&watched, 1, 500);
        for (rdma::async_event event : context.async_channel().pending())
            if (event.qp() || event.type() == rdma::async_event_type::cq_err)
                return event;
    }
    return {};
}

/// rxe tells when a send queue has come to rest; siw makes hardly any event of a QP.
void async_event_of_qp_held(device const& on) {
    pair connection(on);
    rdma::context_ref const context = connection.client.verbs();
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_SQD;
    connection.client.qp().modify(attr, IBV_QP_STATE);
    rdma::async_event event = next_async_event(context);
    REQUIRE(event);
    INFO(to_string(event));
    CHECK(event.type() == rdma::async_event_type::sq_drained);
    REQUIRE(event.qp() == connection.client.qp());

    connection.client = cm_id();
    CHECK(event.qp().qp_num() != 0); // still there
    CHECK(connection.client_channel.stats().ids_awaiting_ack == 1);
    expect(connection.server_channel, cm_event_type::disconnected).ack(); // the peer was told, nevertheless
    event.ack();
    CHECK(connection.client_channel.stats().ids_awaiting_ack == 0);
}
TEST_CASE("T1 an id dropped with an async event of its QP held, rxe", "[rxe]") {
    on_device("rxe", async_event_of_qp_held);
}

/// A CQ that runs over.
void async_event_of_cq_held(device const& on) {
    rdma::event_channel server_channel, client_channel;
    cm_id listener = listen_on(server_channel, on.at(0));
    cm_id client = resolve(client_channel, listener.local_addr());
    rdma::context_ref const context = client.verbs();
    rdma::cq queue(context, 1);
    client.create_qp({.send_cq = queue});
    client.connect();
    cm_id child = expect(server_channel, cm_event_type::connect_request).take_id();
    child.create_qp({});
    std::array<std::byte, 8> memory{}, sink{};
    rdma::mr const from(client.pd(), memory, rdma::access::none);
    rdma::mr const into(child.pd(), sink, rdma::access::local_write);
    int const sends = queue.cqe() + 4;
    REQUIRE(sends <= 16);
    for (int i = 0; i != sends; ++i)
        child.qp().post_recv(rdma::recv_wr(into.sge()));
    child.accept();
    expect(client_channel, cm_event_type::established).ack();
    for (int i = 0; i != sends; ++i) {
        ibv_send_wr* bad = nullptr;
        rdma::send_wr request = rdma::send_wr::send(from.sge()).signaled();
        if (client.qp().post_send(request.native_handle(), bad, std::nothrow) != std::errc())
            break; // the QP is in its error state by now
    }
    rdma::async_event event = next_async_event(context);
    REQUIRE(event);
    INFO(to_string(event));
    CHECK(event.type() == rdma::async_event_type::cq_err);
    queue = rdma::cq();
    client = cm_id();
    CHECK(client_channel.stats().ids_awaiting_ack == 1); // what is made from an id's device keeps its C object
    expect(server_channel, cm_event_type::established).ack();
    expect(server_channel, cm_event_type::disconnected).ack();
    event.ack();
}
GUEST_CASE("T1 a CQ and its id dropped with an async event held", async_event_of_cq_held)

// ---- T3: the new id of a CONNECT_REQUEST is not the one whose destroy waits for the ack -------------------------

void child_dropped_and_printed(device const& on) {
    rdma::event_channel server_channel, client_channel;
    cm_id listener = listen_on(server_channel, on.at(0));
    cm_id client = prepare(client_channel, listener.local_addr());
    client.connect();
    cm_event event = expect(server_channel, cm_event_type::connect_request);
    cm_id child = event.take_id();
    rdma_cm_id const* const raw = child.native_handle();
    child = cm_id();
    CHECK(expect(client_channel, cm_event_type::rejected).error() == rdma::condition::refused); // told at once
    CHECK(event.id().native_handle() == raw);
    CHECK(to_string(event).find(on.host) != std::string::npos);
    CHECK(event.id().peer_addr().host() == on.host);
    CHECK(server_channel.stats().ids_awaiting_ack == 1);
    std::error_code ec;
    CHECK_FALSE(event.take_id(ec));
    CHECK(ec == rdma::errc::no_id_to_take);
    event.ack();
    CHECK(server_channel.stats().ids_awaiting_ack == 0);
}
GUEST_CASE("T3 a child dropped before its CONNECT_REQUEST", child_dropped_and_printed)

// ---- T6: events of ids that C made are counted, too ------------------------------------------------------------

void foreign_id_adopted(device const& on) {
    rdma::event_channel channel;
    rdma_cm_id* raw = nullptr;
    REQUIRE(::rdma_create_id(channel.native_handle(), &raw, nullptr, RDMA_PS_TCP) == 0);
    rdma::address server = on.at(7471);
    REQUIRE(::rdma_resolve_addr(raw, nullptr, const_cast<sockaddr*>(std::as_const(server).native_handle()), 2000) == 0);
    cm_event event = expect(channel, cm_event_type::addr_resolved);
    {
        cm_id const id(rdma::adopt, channel, raw); // dropped with its event held
        CHECK(id.native_handle() == event.id().native_handle());
    }
    CHECK(channel.stats().ids_awaiting_ack == 1);
    event.ack();
    check_balance(channel);
}
GUEST_CASE("T6 an id of C's adopted with an event held", foreign_id_adopted)

void released_and_adopted(device const& on) {
    pair connection(on);
    rdma::event_channel& channel = connection.client_channel;
    connection.child.disconnect();
    cm_event event = expect(channel, cm_event_type::disconnected);
    rdma_cm_id* const raw = connection.client.release();
    CHECK(raw->qp != nullptr);
    rdma_cm_event* const raw_event = event.release();
    {
        cm_id const back(rdma::adopt, channel, raw);
        CHECK(back.qp().native_handle() == raw->qp);
    }
    CHECK(channel.stats().ids_awaiting_ack == 1);
    event = cm_event(rdma::adopt, raw_event);
    event.ack();
    connection.drop_ids();
    check_balance(channel);
    check_balance(connection.server_channel);
}
GUEST_CASE("T6 an id and its event released and adopted back", released_and_adopted)

/// C gets the event, and we adopt both.
void event_of_c_adopted(device const& on) {
    rdma::event_channel server_channel, client_channel;
    cm_id listener = listen_on(server_channel, on.at(0));
    cm_id client = prepare(client_channel, listener.local_addr());
    client.connect();
    REQUIRE(both::is_readable(server_channel, patience));
    rdma_cm_event* raw = nullptr;
    REQUIRE(::rdma_get_cm_event(server_channel.native_handle(), &raw) == 0);
    cm_event event(rdma::adopt, raw);
    CHECK(event.type() == cm_event_type::connect_request);
    listener = cm_id(); // would hang in C, with the event held
    CHECK(server_channel.stats().ids_awaiting_ack == 1);
    event.ack();
    CHECK(expect(client_channel, cm_event_type::rejected).error() == rdma::condition::refused);
    check_balance(server_channel);
}
GUEST_CASE("T6 an event of C's adopted, its listener dropped", event_of_c_adopted)

// ---- T7: malloc hands the address of a destroyed id out again at once ------------------------------------------

void addresses_used_again(device const& on) {
    rdma::event_channel channel;
    std::atomic<int> failures{0};
    std::vector<std::jthread> makers;
    for (int t = 0; t != 2; ++t)
        makers.emplace_back([&] {
            for (int i = 0; i != 400; ++i) {
                std::error_code ec;
                cm_id id(channel, rdma::port_space::tcp, ec);
                if (!ec)
                    id.bind(on.at(0), ec); // fails on an id that is "dropped" already
                if (ec)
                    ++failures;
            }
        });
    makers.clear();
    CHECK(failures == 0);
    check_balance(channel);
}
GUEST_CASE("T7 ids made and dropped fast on two threads", addresses_used_again)

// ---- T8: rdma_reject on an active id blocks its destroy for 102 s ----------------------------------------------

void reject_on_the_active_side(device const& on) {
    rdma::event_channel server_channel, client_channel;
    cm_id listener = listen_on(server_channel, on.at(0));
    cm_id client = prepare(client_channel, listener.local_addr());
    client.connect();
    std::error_code ec;
    client.reject(ec);
    CHECK(ec == rdma::errc::not_a_request);
    client.accept(ec);
    CHECK(ec == rdma::errc::not_a_request);
    listener.reject(ec);
    CHECK(ec == rdma::errc::not_a_request);
    if (on.iwarp) { // there a drop in mid-connect takes 10 s, which is T9's matter
        expect(server_channel, cm_event_type::connect_request).ack();
        expect(client_channel, cm_event_type::rejected).ack();
    }
    client = cm_id(); // the watchdog sees to it that this is quick
}
GUEST_CASE("T8 reject is refused on the active side", reject_on_the_active_side)

/// A request is decided once.
void decided_twice(device const& on) {
    rdma::event_channel server_channel, client_channel;
    cm_id listener = listen_on(server_channel, on.at(0));
    cm_id client = prepare(client_channel, listener.local_addr());
    client.connect();
    cm_id child = expect(server_channel, cm_event_type::connect_request).take_id();
    child.create_qp({});
    child.reject();
    std::error_code ec;
    child.reject(ec);
    CHECK(ec == rdma::errc::not_a_request);
    child.accept(ec);
    CHECK(ec == rdma::errc::not_a_request);
    expect(client_channel, cm_event_type::rejected).ack();
}
GUEST_CASE("T8 a request is decided once", decided_twice)

// ---- T9: on iWARP the kernel holds the destroy of an id in mid-connect for 10 s --------------------------------

void dropped_in_mid_connect(device const& on) {
    rdma::event_channel server_channel, client_channel;
    cm_id listener = listen_on(server_channel, on.at(0));
    cm_id client = prepare(client_channel, listener.local_addr());
    client.connect();
    cm_event const request = expect(server_channel, cm_event_type::connect_request); // not answered meanwhile

    std::atomic<bool> dropped{false};
    std::jthread dropping([&] {
        client = cm_id();
        dropped = true;
    });
    // The getter of the same channel goes on, one event after the other, while the other thread is inside its destroy.
    int got = 0, got_meanwhile = 0;
    do {
        cm_id other(client_channel, rdma::port_space::tcp);
        other.resolve_addr(on.at(7471));
        bool const still = !dropped;
        expect(client_channel, cm_event_type::addr_resolved).ack();
        ++got;
        got_meanwhile += still && !dropped;
    } while (!dropped && got < 50);
    CHECK(got >= 1);
    if (on.iwarp)
        CHECK(got_meanwhile >= 40); // a lock held would let one through, after 10 s
    dropping.join();
    check_balance(client_channel);
}
GUEST_CASE("T9 an id dropped in mid-connect while another thread gets", dropped_in_mid_connect)

// ---- T11: private data at iWARP's limit ------------------------------------------------------------------------

void private_data_limits(device const& on) {
    std::size_t const limit = on.iwarp ? rdma::private_data_limit::iwarp : rdma::private_data_limit::connect;
    std::size_t const accept_limit = on.iwarp ? rdma::private_data_limit::iwarp : rdma::private_data_limit::accept;
    std::vector<std::byte> all(256);
    for (std::size_t i = 0; i != all.size(); ++i)
        all[i] = static_cast<std::byte>(i + 1);
    std::span<std::byte const> const data(all);

    rdma::event_channel server_channel, client_channel;
    cm_id listener = listen_on(server_channel, on.at(0));
    cm_id client = prepare(client_channel, listener.local_addr());
    std::error_code ec;
    client.connect({.private_data = data.first(256)}, ec);
    CHECK(ec == rdma::errc::private_data_too_long);
    client.connect({.private_data = data.first(limit + 1)}, ec);
    if (on.iwarp)
        CHECK(ec == rdma::errc::private_data_iwarp); // before the call: the peer hears nothing
    else
        CHECK(ec == std::errc::invalid_argument); // from the kernel, explained by the message
    CHECK_FALSE(server_channel.try_get());
    // A refused call leaves the id as it was.
    client.connect({.private_data = data.first(limit)});
    cm_event request = expect(server_channel, cm_event_type::connect_request);
    REQUIRE(request.private_data().size() == limit);
    CHECK(std::memcmp(request.private_data().data(), all.data(), limit) == 0);

    cm_id child = request.take_id();
    child.create_qp({});
    if (on.iwarp) {
        child.accept({.private_data = data.first(accept_limit + 1)}, ec);
        CHECK(ec == rdma::errc::private_data_iwarp);
        child.reject(data.first(accept_limit + 1), ec);
        CHECK(ec == rdma::errc::private_data_iwarp);
    }
    child.accept({.private_data = data.first(accept_limit)});
    cm_event const established = expect(client_channel, cm_event_type::established);
    REQUIRE(established.private_data().size() == accept_limit);
    CHECK(std::memcmp(established.private_data().data(), all.data(), accept_limit) == 0);
    expect(server_channel, cm_event_type::established).ack();
}
GUEST_CASE("T11 private data at the limits", private_data_limits)

// ---- T13: a dropped listener keeps its port while a request of it is held --------------------------------------

void port_of_a_dropped_listener(device const& on) {
    rdma::event_channel server_channel, client_channel;
    cm_id listener = listen_on(server_channel, on.at(0));
    rdma::address const local = listener.local_addr();
    cm_id client = prepare(client_channel, local);
    client.connect();
    cm_event request = expect(server_channel, cm_event_type::connect_request);
    listener = cm_id();

    cm_id next(server_channel, rdma::port_space::tcp);
    std::error_code ec;
    next.bind(local, ec);
    CHECK(ec == std::errc::address_in_use);
    CHECK(server_channel.stats().ids_awaiting_ack == 1);
    request.ack();
    CHECK(expect(client_channel, cm_event_type::rejected).error() == rdma::condition::refused);
    next.bind(local);
    next.listen();
    client = prepare(client_channel, local);
    client.connect();
    expect(server_channel, cm_event_type::connect_request).ack();
    expect(client_channel, cm_event_type::rejected).ack();
}
GUEST_CASE("T13 the port of a listener dropped with a request held", port_of_a_dropped_listener)

/// What such a listener still receives is rejected by whoever gets it.
void request_for_a_dropped_listener(device const& on) {
    rdma::event_channel server_channel, first_channel, second_channel;
    cm_id listener = listen_on(server_channel, on.at(0));
    cm_id first = prepare(first_channel, listener.local_addr());
    cm_id second = prepare(second_channel, listener.local_addr());
    first.connect();
    cm_event request = expect(server_channel, cm_event_type::connect_request);
    listener = cm_id();
    second.connect();
    REQUIRE(both::is_readable(server_channel, patience));
    CHECK_FALSE(server_channel.try_get()); // swallowed
    CHECK(server_channel.stats().requests_rejected == 1);
    CHECK(expect(second_channel, cm_event_type::rejected).error() == rdma::condition::refused);
    request.ack();
    CHECK(expect(first_channel, cm_event_type::rejected).error() == rdma::condition::refused);
    check_balance(server_channel);
}
GUEST_CASE("T13 a request for a dropped listener", request_for_a_dropped_listener)

} // namespace
