// SPDX-License-Identifier: MIT
// Connecting, accepting and disconnecting with a deadline and a stop token, where C would wait for minutes, or for
// ever: on a host that does not answer, on a port that nobody listens on, on a peer that does not go on.
#include "guest/support.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <fstream>
#include <future>
#include <optional>
#include <stop_token>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <unistd.h>

namespace {

using namespace guest;
using namespace std::chrono_literals;
using clock = std::chrono::steady_clock;

/// An address of the device's subnet that nobody has. The interface asks for no hardware address, so that it resolves.
rdma::address nobody(device const& on) { return {on.iwarp ? "10.77.2.99" : "10.77.1.99", 7471}; }

/// A handler that does nothing, so that the signal only ends the system call in which iWARP waits.
class empty_handler {
public:
    static constexpr int signal = SIGUSR1;
    empty_handler() {
        struct sigaction action {};
        action.sa_handler = [](int) {};
        ::sigaction(signal, &action, &before_); // without SA_RESTART
    }
    empty_handler(empty_handler const&) = delete;
    empty_handler& operator=(empty_handler const&) = delete;
    ~empty_handler() { ::sigaction(signal, &before_, nullptr); }

private:
    struct sigaction before_ {};
};

/// How an attempt to connect went. No assertion is made here: it may run on any thread.
struct outcome {
    std::error_code ec;
    std::string step;
    clock::duration took{};
    bool got_id = false;
};

template <class Prepare>
outcome attempt(rdma::address const& peer, rdma::connect_options options, Prepare&& prepare) {
    static empty_handler const handler;
    rdma::event_channel const channel;
    rdma::connect_report report;
    options.report = &report;
    options.interrupt_signal = empty_handler::signal;
    outcome result;
    clock::time_point const begin = clock::now();
    cm_id const id = rdma::connect(channel, peer, options, prepare, result.ec);
    result.took = clock::now() - begin;
    result.step = to_string(report.step);
    result.got_id = static_cast<bool>(id);
    return result;
}
outcome attempt(rdma::address const& peer, rdma::connect_options const& options) {
    return attempt(peer, options, [](cm_id&, std::error_code&) {});
}

void check_failed(outcome const& o, std::errc why, std::string const& in_step) {
    INFO(o.ec.message());
    CHECK(o.ec == why);
    CHECK(o.step == in_step);
    CHECK_FALSE(o.got_id);
}

/// A call on a thread of its own, to be stopped when it has come so far and waits in the kernel.
template <class Call>
outcome stopped_while_waiting(std::atomic<bool> const& so_far, Call&& call) {
    std::stop_source stop;
    std::promise<pid_t> thread;
    std::future<outcome> running = std::async(std::launch::async, [&] {
        thread.set_value(::gettid());
        return call(stop.get_token());
    });
    std::string const state = "/proc/self/task/" + std::to_string(thread.get_future().get()) + "/stat";
    auto const waits = [&] {
        std::string number, name, doing;
        std::ifstream(state) >> number >> name >> doing;
        return so_far && doing == "S";
    };
    while (running.wait_for(1ms) != std::future_status::ready && !waits())
        continue;
    stop.request_stop();
    return running.get();
}

// ---- A dead host -------------------------------------------------------------------------------------------------

/// Late in the step that is late. A busy machine may need more than one try to be that quick.
void dead_host(device const& on) {
    clock::duration best = clock::duration::max();
    for (int i = 0; i != 3 && best >= 1s; ++i) {
        outcome const one = attempt(nobody(on), {.limit = 500ms});
        check_failed(one, std::errc::timed_out, "connect");
        CHECK(one.took >= 500ms);
        best = std::min(best, one.took);
    }
    CHECK(best < 1s);
}
GUEST_CASE("connect to a dead host", dead_host)

/// siw cannot make so many QPs with CQs of their own. The resolving of all of them must come within the limit, for
/// which a busy machine may need a longer one.
void dead_host_many(device const& on) {
    std::chrono::milliseconds limit = 500ms;
    bool all_in_connect = false;
    for (int i = 0; i != 3 && !all_in_connect; ++i, limit *= 3) {
        std::vector<std::future<outcome>> attempts(on.iwarp ? 30 : 50);
        for (auto& one : attempts)
            one = std::async(std::launch::async, [&] { return attempt(nobody(on), {.limit = limit}); });
        all_in_connect = true;
        for (auto& running : attempts) {
            outcome const one = running.get();
            check_failed(one, std::errc::timed_out, one.step);
            CHECK(one.took < limit + 10s); // it would be 102 s
            all_in_connect = all_in_connect && one.step == "connect";
        }
    }
    CHECK(all_in_connect);
}
GUEST_CASE("many connects to a dead host at once", dead_host_many)

/// It does not even tell its hardware address.
void dead_host_unresolved(device const& on) {
    both::neighbours_asked const ask(on);
    check_failed(attempt(nobody(on), {.limit = 300ms}), std::errc::timed_out, "resolve_addr");
}
GUEST_CASE("connect to a host that does not resolve", dead_host_unresolved)

void dead_host_thrown(device const& on) {
    empty_handler const handler;
    rdma::event_channel const channel;
    try {
        cm_id const id =
            rdma::connect(channel, nobody(on), {.limit = 200ms, .interrupt_signal = empty_handler::signal});
        FAIL("connected to nobody");
    } catch (rdma::connect_error const& e) {
        CHECK(e.code() == std::errc::timed_out);
        CHECK(e.step() == rdma::connect_step::connect);
        CHECK(e.function() == std::string("rdma_connect"));
        CHECK_THAT(e.what(), rdmacpp_test::contains(to_string(nobody(on))));
    }
}
GUEST_CASE("connect to a dead host, thrown", dead_host_thrown)

/// The listener is there, and does not look. On iWARP the kernel would hold the dropped id for 10 s.
void host_that_sleeps(device const& on) {
    rdma::event_channel const server_channel;
    cm_id const listener = listen_on(server_channel, on.at(0));
    check_failed(attempt(listener.local_addr(), {.limit = 300ms}), std::errc::timed_out, "connect");
}
TEST_CASE("connect to a server that does not look, rxe", "[rxe]") { on_device("rxe", host_that_sleeps); }

// ---- A closed port -----------------------------------------------------------------------------------------------

void closed_port(device const& on) {
    rdma::address const closed = [&] {
        rdma::event_channel const channel;
        return listen_on(channel, on.at(0)).local_addr();
    }();
    outcome const one = attempt(closed, {});
    CHECK(one.ec == rdma::condition::refused);
    CHECK(one.step == "connect");
    CHECK_FALSE(one.got_id);
}
GUEST_CASE("connect to a closed port", closed_port)

// ---- Stopped -----------------------------------------------------------------------------------------------------
// rdma_resolve_route is done at once on both devices: that it can be stopped is shown on the fake.

void stopped_before(device const& on) {
    std::stop_source stop;
    stop.request_stop();
    check_failed(attempt(nobody(on), {.stop = stop.get_token()}), std::errc::operation_canceled, "resolve_addr");
}
GUEST_CASE("connect stopped before it began", stopped_before)

void stopped_in_resolve_addr(device const& on) {
    both::neighbours_asked const ask(on);
    std::atomic<bool> const from_the_start{true};
    outcome const one = stopped_while_waiting(
        from_the_start, [&](std::stop_token const& stop) { return attempt(nobody(on), {.limit = 25s, .stop = stop}); });
    check_failed(one, std::errc::operation_canceled, "resolve_addr");
}
GUEST_CASE("connect stopped while it resolves the address", stopped_in_resolve_addr)

/// By the program's own preparations: the server hears nothing.
void stopped_in_prepare(device const& on) {
    rdma::event_channel const server_channel;
    cm_id const listener = listen_on(server_channel, on.at(0));
    std::stop_source stop;
    bool had_qp = false;
    outcome const one =
        attempt(listener.local_addr(), {.stop = stop.get_token()}, [&](cm_id const& id, std::error_code&) {
            had_qp = static_cast<bool>(id.qp());
            stop.request_stop();
        });
    check_failed(one, std::errc::operation_canceled, "connect");
    CHECK(had_qp);
    CHECK_FALSE(server_channel.try_get());
}
GUEST_CASE("connect stopped when its QP was made", stopped_in_prepare)

void stopped_in_connect(device const& on) {
    std::atomic<bool> prepared{false};
    outcome const one = stopped_while_waiting(prepared, [&](std::stop_token const& stop) {
        return attempt(nobody(on), {.limit = 25s, .stop = stop},
                       [&](cm_id const&, std::error_code&) { prepared = true; });
    });
    check_failed(one, std::errc::operation_canceled, "connect");
}
GUEST_CASE("connect to a dead host stopped", stopped_in_connect)

// ---- Accepting ---------------------------------------------------------------------------------------------------

/// A client that has asked for a connection, and reads its own events only when the test says so. On RoCE the server is
/// not ESTABLISHED before.
struct asking {
    explicit asking(rdma::address const& server) : id(prepare(channel, server)) { id.connect(); }

    void read_established() const { expect(channel, cm_event_type::established).ack(); }
    bool is_peer_of(cm_id const& other) const { return other.peer_addr() == id.local_addr(); }

    rdma::event_channel channel;
    cm_id id;
};

rdma::request next(rdma::acceptor& acceptor) {
    std::optional<rdma::request> got = acceptor.get_for(patience);
    if (!got)
        throw std::runtime_error("no request came");
    return std::move(*got);
}

/// A message from the client, to show that it is the right connection and works.
void check_connected(cm_id& from, cm_id& to) {
    std::array<std::byte, 8> out{std::byte{42}}, in{};
    rdma::mr const source = from.reg_msgs(out), sink = to.reg_msgs(in);
    to.qp().post_recv(rdma::recv_wr(sink.sge()));
    from.qp().post_send(rdma::send_wr::send(source.sge()).signaled());
    rdma::work_completion wc;
    REQUIRE(to.recv_cq().wait_for({&wc, 1}, patience).size() == 1);
    CHECK(wc);
    CHECK(in == out);
    REQUIRE(from.send_cq().wait_for({&wc, 1}, patience).size() == 1);
}

/// Each of two waiting threads gets its own.
void two_waiters(device const& on) {
    rdma::acceptor acceptor(on.at(0));
    rdma::event_channel const home;
    asking one(acceptor.local_addr());
    rdma::accepting first = next(acceptor).start_accept();
    asking two(acceptor.local_addr());
    rdma::accepting second = next(acceptor).start_accept();
    CHECK(first.fd() != second.fd());
    auto const wait = [&home](rdma::accepting& of) {
        return std::async(std::launch::async, [&of, &home] { return of.get(home); });
    };
    std::future<cm_id> firsts = wait(first), seconds = wait(second);
    two.read_established(); // the other way round
    cm_id second_id = seconds.get();
    if (!on.iwarp)
        CHECK(firsts.wait_for(0s) != std::future_status::ready);
    one.read_established();
    cm_id first_id = firsts.get();
    CHECK(one.is_peer_of(first_id));
    CHECK(two.is_peer_of(second_id));
    check_connected(one.id, first_id);
    check_connected(two.id, second_id);
    CHECK_FALSE(home.try_get());
}
GUEST_CASE("two accepts in flight, each with its own waiter", two_waiters)

/// A connection that fails is no other's affair. On iWARP the server is ESTABLISHED at once.
void one_of_two_fails(device const& on) {
    rdma::acceptor acceptor(on.at(0));
    rdma::event_channel const home;
    std::optional<asking> one(acceptor.local_addr());
    rdma::accepting first = next(acceptor).start_accept();
    asking two(acceptor.local_addr());
    rdma::accepting second = next(acceptor).start_accept();
    CHECK_FALSE(first.try_get(home));
    one.reset();
    std::error_code ec;
    cm_id const first_id = first.get(home, ec);
    INFO(ec.message());
    CHECK_FALSE(first_id);
    CHECK(ec);
    CHECK(ec != std::errc::timed_out);

    CHECK_FALSE(second.try_get(home));
    two.read_established();
    cm_id second_id = second.get(home);
    CHECK(two.is_peer_of(second_id));
    check_connected(two.id, second_id);
}
TEST_CASE("one of two accepts in flight fails, rxe", "[rxe]") { on_device("rxe", one_of_two_fails); }

/// All begun before any is finished, on one thread.
void many_in_flight(device const& on) {
    rdma::acceptor acceptor(on.at(0));
    rdma::event_channel const home;
    std::vector<asking> clients;
    std::vector<rdma::accepting> begun;
    clients.reserve(8);
    for (int i = 0; i != 8; ++i) {
        clients.emplace_back(acceptor.local_addr());
        begun.push_back(next(acceptor).start_accept());
    }
    std::vector<cm_id> ids(clients.size());
    for (std::size_t i = clients.size(); i-- != 0;) { // the other way round
        clients[i].read_established();
        ids[i] = begun[i].get(home);
    }
    for (std::size_t i = 0; i != clients.size(); ++i)
        CHECK(clients[i].is_peer_of(ids[i]));
    check_connected(clients[3].id, ids[3]);
}
GUEST_CASE("eight accepts in flight on one thread", many_in_flight)

/// The client asks, and then does not go on.
void accept_of_a_sleeper(device const& on) {
    rdma::acceptor acceptor(on.at(0));
    rdma::event_channel const home;
    asking client(acceptor.local_addr());
    std::error_code ec;
    rdma::connect_report report;
    CHECK_FALSE(next(acceptor).accept(home, {.limit = 300ms, .report = &report}, ec));
    CHECK(ec == std::errc::timed_out);
    CHECK(to_string(report.step) == "accept");

    asking another(acceptor.local_addr());
    rdma::request request = next(acceptor);
    std::atomic<bool> prepared{false};
    outcome const stopped = stopped_while_waiting(prepared, [&](std::stop_token const& stop) {
        outcome result;
        rdma::connect_report said;
        result.got_id = static_cast<bool>(request.accept(
            home, {.limit = 25s, .stop = stop, .report = &said},
            [&](cm_id const&, std::error_code&) { prepared = true; }, result.ec));
        result.step = to_string(said.step);
        return result;
    });
    check_failed(stopped, std::errc::operation_canceled, "accept");
}
TEST_CASE("accept of a client that does not go on, rxe", "[rxe]") { on_device("rxe", accept_of_a_sleeper); }

// ---- Disconnecting -----------------------------------------------------------------------------------------------

/// By the two plain functions, from beginning to end, with a range over the requests.
void whole_connection(device const& on) {
    rdma::acceptor acceptor(on.at(0));
    std::future<cm_id> serving = std::async(std::launch::async, [&] {
        rdma::event_channel const home;
        for (rdma::request request : acceptor)
            return request.accept(home, {.param = carrying("welcome")});
        return cm_id();
    });
    rdma::event_channel const channel;
    rdma::connect_report report;
    cm_id client = rdma::connect(channel, acceptor.local_addr(),
                                 {.limit = patience, .param = carrying("hello"), .report = &report});
    cm_id server = serving.get();
    CHECK(std::string(reinterpret_cast<char const*>(report.reply.data()), 7) == "welcome");
    check_connected(client, server);

    std::future<void> ending = std::async(std::launch::async, [&] { rdma::disconnect(server, patience); });
    rdma::disconnect(client, patience);
    ending.get();
    CHECK(client.disconnected());
    CHECK(client.channel().native_handle() == channel.native_handle());
    rdma::disconnect(client, 0ms); // it is so already
}
GUEST_CASE("connect, accept and disconnect as plain functions", whole_connection)

/// On RoCE the end that disconnects is told when the peer answers. It may stop waiting, and is told later.
void disconnect_from_a_sleeper(device const& on) {
    pair ends(on);
    std::error_code ec;
    rdma::disconnect(ends.client, 300ms, ec);
    CHECK(ec == std::errc::timed_out);
    CHECK_FALSE(ends.client.disconnected());
    expect(ends.server_channel, cm_event_type::disconnected).ack();
    ends.child.disconnect();
    expect(ends.client_channel, cm_event_type::disconnected).ack();
    CHECK(ends.client.disconnected());
}
TEST_CASE("disconnect from a peer that does not answer, rxe", "[rxe]") { on_device("rxe", disconnect_from_a_sleeper); }

} // namespace
