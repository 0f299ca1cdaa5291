// SPDX-License-Identifier: MIT
// Faults that programs in the field had, on the real devices; the numbers are those of the list they come from.
#include "guest/support.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

#include <ifaddrs.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

using namespace guest;

/// An address on which nobody listens, any more.
rdma::address closed_port(device const& on) {
    rdma::event_channel const channel;
    return listen_on(channel, on.at(0)).local_addr();
}

// ---- A1: the error branch forgets the ack -----------------------------------------------------------------------

void exception_unwinds(device const& on) {
    rdma::address const server = closed_port(on);
    struct refused : std::runtime_error {
        using std::runtime_error::runtime_error;
    };
    bool thrown = false;
    try {
        rdma::event_channel channel;
        cm_id id(channel, rdma::port_space::tcp);
        id.resolve_addr(server);
        for (cm_event event : channel) // unwinds through the event, the range, the id and the channel
            switch (event.type()) {
            case cm_event_type::addr_resolved: id.resolve_route(); break;
            case cm_event_type::route_resolved:
                id.create_qp({});
                id.connect(); // on iWARP this throws already
                break;
            default: throw refused(to_string(event));
            }
    } catch (refused const& e) {
        thrown = true;
        CHECK_FALSE(on.iwarp);
        CHECK(std::strstr(e.what(), "REJECTED"));
    } catch (rdma::error const& e) {
        thrown = true;
        CHECK(on.iwarp);
        CHECK(e.code() == rdma::condition::refused);
        CHECK(e.function() == std::string("rdma_connect"));
    }
    CHECK(thrown);
}
GUEST_CASE("A1 an exception unwinds through a failure event", exception_unwinds)

// ---- A2: a connection is dropped by the handler of its own event ------------------------------------------------

void erased_in_its_handler(device const& on) {
    for (bool const released_early : {true, false}) {
        rdma::event_channel server_channel, client_channel;
        cm_id listener = listen_on(server_channel, on.at(0));
        cm_id client = prepare(client_channel, listener.local_addr());
        client.connect();
        std::unordered_map<rdma::cm_id_ref, cm_id> connections;
        for (cm_event event : server_channel) {
            if (event.type() == cm_event_type::connect_request) {
                cm_id id = event.take_id();
                rdma::cm_id_ref const key = id;
                id.create_qp({});
                id.accept();
                connections.emplace(key, std::move(id));
                expect(client_channel, cm_event_type::established).ack(); // on RoCE this get tells the server
            } else if (event.type() == cm_event_type::established)
                client = cm_id(); // a real peer that closes
            else if (event.type() == cm_event_type::disconnected) {
                rdma::cm_id_ref const key = event.id();
                if (released_early)
                    event.ack();
                CHECK(connections.erase(key) == 1);
                break;
            }
        }
        CHECK(connections.empty());
        listener = cm_id();
        check_balance(server_channel);
    }
}
GUEST_CASE("A2 a connection erased by the handler of its DISCONNECTED", erased_in_its_handler)

// ---- A5: the private data that arrives is longer than what was sent ---------------------------------------------

void private_data_sizes(device const& on) {
    rdma::event_channel server_channel, client_channel;
    cm_id listener = listen_on(server_channel, on.at(0));
    for (bool const with_data : {true, false}) {
        std::string_view const sent = with_data ? std::string_view("ab\0c\0", 5) : std::string_view();
        cm_id client = prepare(client_channel, listener.local_addr());
        client.connect(carrying(sent));
        cm_event request = expect(server_channel, cm_event_type::connect_request);
        cm_id child = request.take_id();
        child.create_qp({});
        child.accept(carrying(sent));
        cm_event const answer = expect(client_channel, cm_event_type::established);
        expect(server_channel, cm_event_type::established).ack();
        for (cm_event const* const event : {&std::as_const(request), &answer}) {
            rdma::private_data const copy = event->copy_private_data();
            CHECK(copy.size() == event->private_data().size());
            if (on.iwarp)
                CHECK(copy.size() == sent.size());
            else
                CHECK(copy.size() > 5);
            CHECK(std::memcmp(copy.data(), sent.data(), sent.size()) == 0);
            for (std::size_t i = sent.size(); i < copy.size(); ++i)
                CHECK(copy.data()[i] == std::byte{0}); // padding
            CHECK(event->read_private_data<std::array<char, 5>>().has_value() == (with_data || !on.iwarp));
            CHECK_FALSE(event->read_private_data<std::array<char, 300>>());
        }
        client = cm_id();
        expect(server_channel, cm_event_type::disconnected).ack();
    }
}
GUEST_CASE("A5 private data of five bytes, and of none", private_data_sizes)

// ---- A6: a failure event carries no bytes of an application -----------------------------------------------------

void port_closed(device const& on) {
    rdma::event_channel channel;
    cm_id client = prepare(channel, closed_port(on));
    std::error_code ec;
    client.connect(carrying("hello"), ec);
    if (!ec) {
        cm_event const event = expect(channel, cm_event_type::rejected);
        ec = event.error();
        CHECK(event.private_data().size() == event.copy_private_data().size());
        CHECK(std::ranges::all_of(event.private_data(), [](std::byte b) { return b == std::byte{0}; }));
        CHECK_FALSE(event.param());
        CHECK(ec == rdma::reject_reason::invalid_service_id);
        CHECK(ec == std::errc::connection_refused);
    }
    CHECK(ec == rdma::condition::refused); // on either transport
}
GUEST_CASE("A6 a closed port", port_closed)

// ---- A7: rejected requests leak one id each ---------------------------------------------------------------------

void rejects_leak_nothing(device const& on) {
    constexpr int total = 100;
    rdma::event_channel server_channel, client_channel;
    cm_id listener = listen_on(server_channel, on.at(0));
    std::size_t const before = resources::now().count();
    for (int i = 0; i != total; ++i) {
        cm_id client = prepare(client_channel, listener.local_addr());
        client.connect();
        cm_event request = expect(server_channel, cm_event_type::connect_request);
        if (i % 2 == 0)
            request.take_id().reject();
        request.ack();
        CHECK(expect(client_channel, cm_event_type::rejected).error() == rdma::condition::refused);
    }
    resources const after = resources::now();
    INFO(after.text);
    CHECK(after.count() == before);
    CHECK(server_channel.stats().requests_rejected == total / 2);
    CHECK(server_channel.stats().ids_live == 1);
}
GUEST_CASE("A7 a hundred rejects", rejects_leak_nothing)

// ---- A12: every order of destruction ----------------------------------------------------------------------------

std::atomic<int> failed_destroys{0};

void random_orders(device const& on) {
    auto const before = rdma::set_diagnostic_handler([](rdma::diagnostic const& d) noexcept {
        if (d.kind == rdma::diagnostic_kind::destroy_failed) {
            ++failed_destroys;
            std::fprintf(stderr, "%s: error %d\n", d.function, d.error.value());
        }
    });
    failed_destroys = 0;
    std::mt19937 random(12); // the same orders each time
    for (int round = 0; round != 10; ++round) {
        rdma::event_channel channel;
        cm_id listener = listen_on(channel, on.at(0));
        cm_id id = resolve(channel, listener.local_addr());
        std::array<std::byte, 4096> memory{};
        rdma::pd domain(id.verbs());
        rdma::comp_channel completions(id.verbs());
        rdma::cq queue(id.verbs(), 16, completions);
        id.create_qp(domain, {.send_cq = queue, .recv_cq = queue});
        rdma::mr region(domain, memory, rdma::access::local_write);
        id.qp().post_recv(rdma::recv_wr(region.sge()));

        std::array<int, 6> order{};
        std::iota(order.begin(), order.end(), 0);
        std::ranges::shuffle(order, random);
        for (int const which : order)
            switch (which) {
            case 0: domain = rdma::pd(); break;
            case 1: completions = rdma::comp_channel(); break;
            case 2: queue = rdma::cq(); break;
            case 3: id = cm_id(); break;
            case 4: region = rdma::mr(); break;
            default: channel = rdma::event_channel(rdma::no_init); break;
            }
        CHECK(failed_destroys == 0);
    }
    rdma::set_diagnostic_handler(before);
}
GUEST_CASE("A12 pd, channels, cq, qp and mr dropped in random orders", random_orders)

// ---- A16: completions that failed -------------------------------------------------------------------------------

void receives_flushed(device const& on) {
    pair connection(on);
    std::array<std::byte, 64> memory{};
    rdma::mr const region(connection.child.pd(), memory, rdma::access::local_write);
    connection.child.qp().post_recv(rdma::recv_wr(region.sge(0, 32)).id(1001));
    connection.child.qp().post_recv(rdma::recv_wr(region.sge(32, 32)).id(1002));
    std::uint32_t const qp_num = connection.child.qp().qp_num();
    connection.client.disconnect();
    expect(connection.server_channel, cm_event_type::disconnected).ack();
    connection.child.disconnect(); // moves the QP into its error state; on iWARP it is there
    std::vector<std::uint64_t> flushed;
    while (flushed.size() < 2) {
        std::array<rdma::work_completion, 4> some;
        auto const done = connection.child.recv_cq().wait_for(some, patience);
        REQUIRE(!done.empty());
        for (rdma::work_completion const& wc : done) {
            CHECK_FALSE(wc);
            CHECK(wc.status() == rdma::wc_status::wr_flush_err);
            CHECK(wc.qp_num() == qp_num);
            flushed.push_back(wc.wr_id());
        }
    }
    CHECK(flushed == std::vector<std::uint64_t>{1001, 1002});
}
GUEST_CASE("A16 two receives flushed", receives_flushed)

// ---- A17: interrupted system calls ------------------------------------------------------------------------------

std::atomic<int> alarms{0};

/// SIGALRM every 10 ms, without SA_RESTART.
class alarm_every_10_ms {
public:
    alarm_every_10_ms() {
        alarms = 0;
        struct sigaction action {};
        action.sa_handler = [](int) { ++alarms; };
        ::sigaction(SIGALRM, &action, &before_);
        itimerval const period{{0, 10'000}, {0, 10'000}};
        ::setitimer(ITIMER_REAL, &period, nullptr);
    }
    alarm_every_10_ms(alarm_every_10_ms const&) = delete;
    alarm_every_10_ms& operator=(alarm_every_10_ms const&) = delete;
    ~alarm_every_10_ms() {
        itimerval const never{};
        ::setitimer(ITIMER_REAL, &never, nullptr);
        ::sigaction(SIGALRM, &before_, nullptr);
    }

private:
    struct sigaction before_ {};
};

void interrupted_waits(device const& on) {
    rdma::event_channel server_channel, client_channel;
    cm_id listener = listen_on(server_channel, on.at(0));
    cm_id client = prepare(client_channel, listener.local_addr());
    alarm_every_10_ms const alarm;
    CHECK_FALSE(server_channel.get_for(std::chrono::seconds(2))); // idle, and interrupted all the time
    CHECK(alarms > 10);

    // A signal may cancel a wait that allows it.
    std::error_code ec;
    CHECK_FALSE(server_channel.get({.interruptible = true}, ec));
    CHECK(ec == std::errc::interrupted);

    // Without alarms: connect on iWARP is interrupted inside the kernel, and that is C's to tell.
    sigset_t blocked, former;
    ::sigemptyset(&blocked);
    ::sigaddset(&blocked, SIGALRM);
    ::pthread_sigmask(SIG_BLOCK, &blocked, &former);
    client.connect();
    ::pthread_sigmask(SIG_SETMASK, &former, nullptr);
    cm_id child = expect(server_channel, cm_event_type::connect_request).take_id();
    child.create_qp({});
    child.accept();
    expect(client_channel, cm_event_type::established).ack();
    expect(server_channel, cm_event_type::established).ack();
}
GUEST_CASE("A17 a signal every 10 ms", interrupted_waits)

// ---- A19: events that come late, or never -----------------------------------------------------------------------

void late_events(device const& on) {
    rdma::event_channel server_channel, client_channel;
    cm_id listener = listen_on(server_channel, on.at(0));
    cm_id client = prepare(client_channel, listener.local_addr());
    client.connect();
    cm_id child = expect(server_channel, cm_event_type::connect_request).take_id();
    // The user's own object, which is gone at DISCONNECTED while the id is kept.
    auto session = std::make_unique<int>(42);
    std::unordered_map<rdma::cm_id_ref, int*> sessions{{child, session.get()}};
    child.create_qp({});
    child.accept();
    expect(client_channel, cm_event_type::established).ack();
    expect(server_channel, cm_event_type::established).ack();
    client.disconnect();
    {
        cm_event const event = expect(server_channel, cm_event_type::disconnected);
        CHECK(sessions.erase(event.id()) == 1);
        session.reset();
    }
    child.disconnect();
    expect(client_channel, cm_event_type::disconnected).ack();
    if (!on.iwarp) {
        cm_event const late = expect(server_channel, cm_event_type::timewait_exit);
        CHECK(sessions.find(late.id()) == sessions.end()); // a soft failure
    }
    // On iWARP it never comes, and nothing waits for it.
    client = cm_id();
    child = cm_id();
    listener = cm_id();
    check_balance(server_channel);
    check_balance(client_channel);
}
GUEST_CASE("A19 what comes after DISCONNECTED", late_events)

// ---- A22: an address that resolves to nothing -------------------------------------------------------------------

void addresses_of_no_device(device const& on) {
    rdma::event_channel channel;
    for (char const* const host : {"127.0.0.1", "10.78.0.1", "::1"}) {
        INFO(host);
        cm_id id(channel, rdma::port_space::tcp);
        std::error_code ec;
        id.resolve_addr(rdma::address(host, 7471), ec);
        if (ec) {
            CHECK((ec == std::errc::no_such_device || ec == std::errc::network_unreachable));
            // Where librdmacm would crash, it is refused before the call.
            id.resolve_route(ec);
            CHECK(ec == rdma::errc::not_bound);
            id.create_qp({}, ec);
            CHECK(ec == rdma::errc::not_bound);
            id.connect(ec);
            CHECK(ec == rdma::errc::not_bound);
            id.disconnect(ec);
            CHECK(ec == rdma::errc::not_bound);
            CHECK_FALSE(rdma::pd(id.verbs(), ec));
            CHECK(ec == rdma::errc::not_bound);
            CHECK(ec == std::errc::no_such_device);
            continue;
        }
        std::optional<cm_event> const event = channel.get_for(patience);
        REQUIRE(event);
        INFO(to_string(*event));
        if (event->type() == cm_event_type::addr_resolved) {
            id.resolve_route(ec); // an error, or a route: but no crash
            CHECK((!ec || ec == std::errc::no_such_device || ec == rdma::errc::not_bound));
            if (!ec)
                CHECK(channel.get_for(patience));
        } else
            CHECK(event->error());
    }

    cm_id everywhere(channel, rdma::port_space::tcp);
    everywhere.bind(rdma::address::any_v4(0));
    everywhere.listen();
    CHECK_FALSE(everywhere.verbs());
    CHECK_FALSE(everywhere.pd());
    rdma::event_channel client_channel;
    cm_id client = prepare(client_channel, on.at(everywhere.local_addr().port()));
    client.connect();
    cm_id child = expect(channel, cm_event_type::connect_request).take_id();
    CHECK(child.verbs());
    CHECK(child.verbs() == client.verbs());
    child = cm_id();
    expect(client_channel, cm_event_type::rejected).ack();
}
GUEST_CASE("A22 addresses of no device, and the wildcard", addresses_of_no_device)

// ---- A23: the limit of locked memory ----------------------------------------------------------------------------

/// In a process of its own, started by the case below: capabilities and limits must be there before the device is
/// opened.
void register_within_limit(device const& on) {
    rdma::event_channel channel;
    cm_id listener = listen_on(channel, on.at(0));
    rdma::pd const domain(listener.verbs());
    std::vector<std::byte> memory(1024 * 1024);
    std::string message;
    try {
        rdma::mr const region(domain, memory, rdma::access::local_write);
        FAIL("it was registered");
    } catch (rdma::error const& e) {
        CHECK(e.code() == std::errc::not_enough_memory);
        message = e.what();
    }
    CHECK(message.find("1048576") != std::string::npos);
    CHECK(message.find("RLIMIT_MEMLOCK") != std::string::npos);
    CHECK(message.find("65536") != std::string::npos);
    rdma::mr const small(domain, std::span(memory).first(16 * 1024), rdma::access::local_write);
    CHECK(small.length() == 16 * 1024);
}
TEST_CASE("A23 in the limited process, rxe", "[.helper]") { on_device("rxe", register_within_limit); }
TEST_CASE("A23 in the limited process, siw", "[.helper]") { on_device("siw", register_within_limit); }

void locked_memory(device const& on) {
    std::string const name = "A23 in the limited process\\, " + on.name; // a comma would be two names
    ::pid_t const child = ::fork();
    if (child == 0) {
        rlimit const limit{64 * 1024, 64 * 1024};
        constexpr unsigned long ipc_lock = 14; // CAP_IPC_LOCK: <linux/capability.h> is one header more
        // Out of the bounding set: so it is not given back to root at exec.
        if (::setrlimit(RLIMIT_MEMLOCK, &limit) == 0 && ::prctl(PR_CAPBSET_DROP, ipc_lock, 0, 0, 0) == 0)
            ::execl("/proc/self/exe", "guest", name.c_str(), static_cast<char*>(nullptr));
        ::_exit(101);
    }
    REQUIRE(child > 0);
    int status = 0;
    while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 0); // the number of failed checks there
}
GUEST_CASE("A23 a registration beyond RLIMIT_MEMLOCK", locked_memory)

// ---- A26: the backlog -------------------------------------------------------------------------------------------

void sixty_four_at_once(device const& on) {
    constexpr std::size_t total = 64;
    rdma::event_channel server_channel, client_channel;
    cm_id listener = listen_on(server_channel, on.at(0), static_cast<int>(total));
    // One big CQ for all, made first: the siw provider takes the mapping of one page, the 144th of a process, for
    // invalid, so that with a CQ for each QP it fails at the 37th. This one lies across that page.
    rdma::cq const queue(listener.verbs(), 32767);
    rdma::qp_init_attr const attr{.send_cq = queue, .recv_cq = queue};
    std::vector<cm_id> clients, children;
    while (clients.size() != total) {
        clients.push_back(resolve(client_channel, listener.local_addr()));
        clients.back().create_qp(attr);
    }
    for (cm_id& client : clients)
        client.connect();        // nobody reads a request until all have asked
    std::size_t established = 0; // at the server: on iWARP at once, on RoCE when the client has read its event
    while (children.size() != total) {
        std::optional<cm_event> event = server_channel.get_for(patience);
        REQUIRE(event);
        if (event->type() == cm_event_type::established) {
            ++established;
            continue;
        }
        REQUIRE(event->type() == cm_event_type::connect_request);
        children.push_back(event->take_id());
        children.back().create_qp(attr);
        children.back().accept();
    }
    for (std::size_t i = 0; i != total; ++i)
        expect(client_channel, cm_event_type::established).ack();
    for (; established != total; ++established)
        expect(server_channel, cm_event_type::established).ack();
}
GUEST_CASE("A26 64 clients at once against a backlog of 64", sixty_four_at_once)

// ---- A21: receives posted too late ------------------------------------------------------------------------------

/// What the client sends at once finds a receive, and may be there before the server has read its ESTABLISHED.
void data_before_established(device const& on) {
    rdma::event_channel client_channel, server_channel;
    cm_id const listener = listen_on(server_channel, on.at(0));
    cm_id client = prepare(client_channel, listener.local_addr());
    client.connect();
    cm_id child = expect(server_channel, cm_event_type::connect_request).take_id();
    std::array<std::byte, 16> question{}, received{};
    std::memcpy(question.data(), "the first words", 16);
    rdma::mr const into = child.reg_msgs(received);
    child.create_qp({});
    child.qp().post_recv(rdma::recv_wr(into.sge()));
    child.accept();
    expect(client_channel, cm_event_type::established).ack();
    rdma::mr const from = client.reg_msgs(question);
    client.qp().post_send(rdma::send_wr::send(from.sge()).signaled());

    rdma::work_completion got;
    REQUIRE(child.recv_cq().wait_for({&got, 1}, patience).size() == 1);
    CHECK(got);
    CHECK(received == question);
    expect(server_channel, cm_event_type::established).ack();
}
GUEST_CASE("A21 the client's first message comes before ESTABLISHED is read", data_before_established)

// ---- A24: iWARP's differences -----------------------------------------------------------------------------------

/// iWARP has no immediate data: an error, and no wait; what was made goes all the same.
void immediate_data(device const& on) {
    pair ends(on);
    std::array<std::byte, 16> memory{}, received{};
    rdma::mr const into = ends.child.reg_msgs(received), from = ends.client.reg_msgs(memory);
    ends.child.qp().post_recv(rdma::recv_wr(into.sge()));
    std::errc const refused =
        ends.client.qp().post_send(rdma::send_wr::send(from.sge()).imm(0x01020304).signaled(), std::nothrow);
    rdma::work_completion done;
    bool const told = refused != std::errc{} || ends.client.send_cq().wait_for({&done, 1}, patience).size() == 1;
    REQUIRE(told);
    CHECK((refused == std::errc{} && done) == !on.iwarp);
    if (on.iwarp)
        return;
    REQUIRE(ends.child.recv_cq().wait_for({&done, 1}, patience).size() == 1);
    REQUIRE(done);
    CHECK(done.success().imm_data() == 0x01020304U);
}
GUEST_CASE("A24 immediate data arrives, or is an error where there is none", immediate_data)

// ---- A27: addresses ---------------------------------------------------------------------------------------------

void port_zero(device const& on) {
    pair const connection(on); // listens on port 0
    int const port = connection.listener.local_addr().port();
    CHECK(port != 0);
    CHECK(connection.client.peer_addr() == connection.listener.local_addr());
    CHECK(connection.child.local_addr().port() == port);
    CHECK(connection.child.peer_addr() == connection.client.local_addr());

    cm_id second(connection.server_channel, rdma::port_space::tcp);
    std::error_code ec;
    second.bind(on.at(port), ec);
    CHECK((ec == std::errc::address_in_use || ec == std::errc::address_not_available));
}
GUEST_CASE("A27 port 0, and a second listener on the same port", port_zero)

/// The link-local address of the device's interface, with its scope id.
rdma::address link_local(device const& on) {
    ifaddrs* all = nullptr;
    REQUIRE(::getifaddrs(&all) == 0);
    std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> const owner(all, &::freeifaddrs);
    std::string interface;
    for (ifaddrs const* one = all; one; one = one->ifa_next)
        if (one->ifa_addr && rdma::address(one->ifa_addr).host() == on.host)
            interface = one->ifa_name;
    for (ifaddrs const* one = all; one; one = one->ifa_next) {
        rdma::address const address(one->ifa_addr);
        if (interface == one->ifa_name && address.family() == AF_INET6 && address.host().starts_with("fe80:"))
            return address;
    }
    return {};
}

void link_local_addresses(device const& on) {
    rdma::address const local = link_local(on);
    if (local.family() == AF_UNSPEC)
        RDMACPP_SKIP("the device's interface has no link-local address");
    CHECK(local.scope_id() != 0);
    {
        pair const connection(local);
        CHECK(connection.client.peer_addr().scope_id() == local.scope_id());
        CHECK(connection.client.peer_addr().host() == local.host());
    }
    // Without the scope id a listener has nothing to bind to; the connecting side is told by the call or by an event,
    // or else it gets through (of an address of its own machine the kernel knows the interface): a crash or a wait is
    // wrong.
    std::string const host = local.host().substr(0, local.host().find('%'));
    rdma::event_channel channel;
    cm_id id(channel, rdma::port_space::tcp);
    std::error_code ec;
    id.bind(rdma::address(host, 0), ec);
    CHECK(ec == std::errc::invalid_argument);
    cm_id active(channel, rdma::port_space::tcp);
    active.resolve_addr(rdma::address(host, 7471), ec);
    if (!ec) {
        std::optional<cm_event> const event = channel.get_for(patience);
        REQUIRE(event);
        INFO(to_string(*event));
        CHECK((event->type() == cm_event_type::addr_resolved || event->error()));
    }
}
GUEST_CASE("A27 link-local addresses", link_local_addresses)

} // namespace
