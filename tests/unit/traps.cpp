// SPDX-License-Identifier: MIT
// The traps that a design review ran into: each is something that is easily written, and that a naive wrapper hangs on,
// leaks with, or reads freed memory at. The numbers are those of the review.
#include "allocations.hpp"
#include "support.hpp"

#include <atomic>
#include <cstdlib>
#include <functional>
#include <optional>
#include <stop_token>
#include <thread>

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace unit;

namespace {

/// An event of C's own: got without the library, which therefore does not know of it. What it is charged to cannot be
/// destroyed before ack(): that is how these cases make a destroy linger.
class held_by_c {
public:
    explicit held_by_c(rdma_cm_id* id) {
        fake::push(id, {RDMA_CM_EVENT_ADDR_CHANGE});
        REQUIRE(::rdma_get_cm_event(id->channel, &raw_) == 0);
    }
    held_by_c(held_by_c const&) = delete;
    held_by_c& operator=(held_by_c const&) = delete;
    ~held_by_c() { ack(); }
    void ack() {
        if (raw_)
            ::rdma_ack_cm_event(std::exchange(raw_, nullptr));
    }

private:
    rdma_cm_event* raw_ = nullptr;
};

/// An id of C's making.
rdma_cm_id* make_id_in_c(rdma::event_channel const& channel) {
    rdma_cm_id* raw = nullptr;
    REQUIRE(::rdma_create_id(channel.native_handle(), &raw, nullptr, RDMA_PS_TCP) == 0);
    return raw;
}

rdma::async_event next_async(rdma::context_ref device) {
    rdma::async_event event = async_event_of(device);
    REQUIRE(event);
    return event;
}

/// What any thread may want of a channel while another is in the middle of a destroy.
void use_fully(rdma::event_channel const& channel, rdma::cm_id const& bystander) {
    fake::push(bystander.native_handle(), {RDMA_CM_EVENT_ADDR_CHANGE});
    CHECK(next(channel, type::addr_change).id() == bystander);
    rdma::cm_id another = make_bound(channel);
    another.create_qp({});
    CHECK(channel.stats().ids_live >= 2);
    CHECK(to_string(channel) != "");
}

/// Runs `drop` on a thread of its own, which gets stuck in the C function `where`; meanwhile the channel works as ever.
void check_lingering(std::string_view where, std::size_t calls, rdma::event_channel const& channel,
                     rdma::cm_id const& bystander, std::function<void()> const& drop,
                     std::function<void()> const& let_go) {
    std::atomic<bool> done{false};
    std::thread dropping([&] {
        drop();
        done = true;
    });
    while (fake::count(where) != calls)
        std::this_thread::yield();
    use_fully(channel, bystander);
    CHECK_FALSE(done);
    let_go();
    dropping.join();
}

} // namespace

// ---- T1: QP, CQ and SRQ destroys wait for acks, too ----------------------------------------------------------------

TEST_CASE("T1 an async event of an id's QP is held while the id is dropped") {
    world w;
    connection c = connect_pair();
    rdma::cm_id bystander = make_id(c.client_channel);
    ibv_qp* const qp = c.client.qp().native_handle();
    rdma_cm_id* const id = c.client.native_handle();
    fake::push_async(qp, IBV_EVENT_QP_FATAL);
    rdma::async_event held = next_async(c.client.verbs());
    CHECK(held.qp() == rdma::qp_ref(qp));

    c.client = {};
    CHECK(fake::count("ibv_destroy_qp", qp) == 0);
    CHECK(fake::count("rdma_destroy_id", id) == 0);
    CHECK(fake::count("rdma_destroy_qp") == 0);
    CHECK(qp->state == IBV_QPS_ERR); // quiet, though it is still there
    expect(c.server_channel, type::disconnected);
    use_fully(c.client_channel, bystander);
    CHECK(c.client_channel.stats().ids_awaiting_ack == 1);
    CHECK_THAT(to_string(c.client_channel), rdmacpp_test::contains("held by what was made from it"));

    held.ack();
    CHECK(fake::count("ibv_destroy_qp", qp) == 1);
    CHECK(fake::count("rdma_destroy_id", id) == 1);
    CHECK(c.client_channel.stats().ids_awaiting_ack == 0);
}

TEST_CASE("T1 a completion event of a CQ that librdmacm made is held while the id is dropped") {
    world w;
    connection c = connect_pair();
    rdma::cm_id bystander = make_id(c.client_channel);
    ibv_cq* const cq = c.client.send_cq().native_handle();
    ibv_qp* const qp = c.client.qp().native_handle();
    rdma_cm_id* const id = c.client.native_handle();
    fake::push_cq_event(cq);
    std::optional<rdma::cq_event> held = c.client.send_cq_channel().try_get();
    REQUIRE(held);
    CHECK(held->native_handle() == cq);

    c.client = {};
    CHECK(fake::count("ibv_destroy_qp", qp) == 1); // that one need not wait
    CHECK(fake::count("ibv_destroy_cq", cq) == 0);
    CHECK(fake::count("rdma_destroy_id", id) == 0);
    expect(c.server_channel, type::disconnected);
    use_fully(c.client_channel, bystander);

    held->ack();
    CHECK(fake::count("ibv_destroy_cq", cq) == 1);
    CHECK(fake::count("rdma_destroy_id", id) == 1);
}

TEST_CASE("T1 an async event of a CQ that librdmacm made is held while the id is dropped") {
    world w;
    connection c = connect_pair();
    ibv_cq* const cq = c.client.recv_cq().native_handle();
    fake::push_async(cq, IBV_EVENT_CQ_ERR);
    rdma::async_event held = next_async(c.client.verbs());
    c.client = {};
    CHECK(fake::count("ibv_destroy_cq", cq) == 0);
    held = {};
    CHECK(fake::count("ibv_destroy_cq", cq) == 1);
}

// ---- T3: the child of a request is not the id that the event is charged to -----------------------------------------

TEST_CASE("T3 the child of a held CONNECT_REQUEST is dropped, and the event printed") {
    world w;
    rdma::event_channel channel;
    rdma::cm_id listener = make_listener(channel);
    rdma::cm_event event = make_request(channel, listener);
    rdma_cm_id* const raw = event.id().native_handle();
    {
        rdma::cm_id child = event.take_id();
        CHECK(child.native_handle() == raw);
    }
    CHECK(fake::count("rdma_reject", raw) == 1); // the peer learns of it at once
    CHECK(fake::count("rdma_destroy_id", raw) == 0);
    CHECK(event.id().native_handle() == raw);
    CHECK(event.id().peer_addr().family() == AF_INET6);
    CHECK_THAT(to_string(event), rdmacpp_test::contains(to_string(event.id().peer_addr())));
    listener = {};
    CHECK_THAT(to_string(event), rdmacpp_test::contains(to_string(event.listen_id())));
    event.ack();
    CHECK(fake::count("rdma_destroy_id", raw) == 1);
    CHECK(channel.stats().requests_rejected == 0); // it was taken
}

TEST_CASE("T3 the child of a held CONNECT_REQUEST is destroyed by name: refused, since the event names it") {
    world w;
    rdma::event_channel channel;
    rdma::cm_id listener = make_listener(channel);
    rdma::cm_event event = make_request(channel, listener);
    rdma::cm_id child = event.take_id();
    CHECK(thrown([&] { child.destroy(); }, "1 events held") == std::errc::resource_deadlock_would_occur);
    CHECK(thrown([&] { listener.destroy(); }, "1 events held") == std::errc::resource_deadlock_would_occur);
    event.ack();
    child.destroy();
    listener.destroy();
    CHECK_FALSE(child);
}

// ---- T6: ids that C made are counted from their first event --------------------------------------------------------

TEST_CASE("T6 an event of an id that C made is held, the id is adopted and dropped") {
    world w;
    rdma::event_channel channel;
    rdma_cm_id* const raw = make_id_in_c(channel);
    fake::push(raw, {RDMA_CM_EVENT_ADDR_CHANGE});
    rdma::cm_event event = next(channel, type::addr_change);
    {
        rdma::cm_id id(rdma::adopt, channel, raw);
        CHECK(channel.stats().ids_live == 1);
    }
    CHECK(fake::count("rdma_destroy_id", raw) == 0);
    CHECK(channel.stats().ids_awaiting_ack == 1);
    CHECK(event.id().native_handle() == raw);
    event.ack();
    CHECK(fake::count("rdma_destroy_id", raw) == 1);
}

TEST_CASE("T6 an id is released and adopted back while an event of it is held") {
    world w;
    rdma::event_channel channel;
    rdma::cm_id id = make_id(channel);
    fake::push(id.native_handle(), {RDMA_CM_EVENT_ADDR_CHANGE});
    rdma::cm_event first = next(channel, type::addr_change);
    rdma_cm_id* const raw = id.release();
    fake::push(raw, {RDMA_CM_EVENT_ADDR_CHANGE, 1});
    rdma::cm_event second = next(channel, type::addr_change); // delivered and counted while C has the id
    CHECK(second.status() == 1);
    id = rdma::cm_id(rdma::adopt, channel, raw);
    id = {};
    first.ack();
    CHECK(fake::count("rdma_destroy_id", raw) == 0);
    second.ack();
    CHECK(fake::count("rdma_destroy_id", raw) == 1);
}

TEST_CASE("T6 an id that C made keeps to C when its events are gone") {
    world w;
    rdma::event_channel channel;
    rdma_cm_id* const raw = make_id_in_c(channel);
    for (int i = 0; i != 3; ++i) {
        fake::push(raw, {RDMA_CM_EVENT_ADDR_CHANGE});
        expect(channel, type::addr_change);
    }
    CHECK(fake::count("rdma_destroy_id") == 0);
    CHECK(channel.stats().ids_live == 0);
    REQUIRE(::rdma_destroy_id(raw) == 0);
}

TEST_CASE("T6 a request on a listener that C made") {
    world w;
    rdma::event_channel channel;
    rdma_cm_id* const listener = make_id_in_c(channel);
    rdma::address const at(rxe_host, 7471);
    REQUIRE(::rdma_bind_addr(listener, const_cast<sockaddr*>(at.native_handle())) == 0);
    REQUIRE(::rdma_listen(listener, 1) == 0);
    fake::push_request(listener);
    rdma::cm_event event = next(channel, type::connect_request);
    rdma::cm_id child = event.take_id();
    rdma::cm_id owned(rdma::adopt, channel, listener);
    owned = {};
    CHECK(fake::count("rdma_destroy_id", listener) == 0);
    event.ack();
    CHECK(fake::count("rdma_destroy_id", listener) == 1);
    CHECK(channel.stats().ids_live == 1);
}

// ---- T7: malloc hands addresses out again at once -------------------------------------------------------------------

TEST_CASE("T7 ids come and go at the same address on three threads, and no event is lost or charged to a dead one") {
    world w;
    fake::set_reuse_addresses(true);
    constexpr int makers = 2, rounds = 1500;
    rdma::event_channel channel;
    std::atomic<bool> lost{false};
    auto const make_and_drop = [&] {
        for (int i = 0; i != rounds && !lost; ++i) {
            std::atomic<bool> seen{false};
            rdma::cm_id id(channel, rdma::port_space::tcp, &seen);
            fake::push(id.native_handle(), {RDMA_CM_EVENT_ADDR_CHANGE});
            while (!seen && !lost) // an event that is swallowed is never seen
                std::this_thread::yield();
        } // dropped while its event is still held: uncounted, this would hang
    };
    std::vector<std::thread> threads;
    for (int i = 0; i != makers; ++i)
        threads.emplace_back(make_and_drop);
    int got = 0;
    while (got != makers * rounds && !lost) {
        if (auto event = channel.try_get()) {
            ++got;
            static_cast<std::atomic<bool>*>(event->id().user_context())->store(true);
        } else if (channel.stats().events_swallowed != 0) {
            lost = true;
        } else {
            std::this_thread::yield();
        }
    }
    for (std::thread& each : threads)
        each.join();
    CHECK_FALSE(lost);
    CHECK(got == makers * rounds);
    rdma::channel_stats const end = channel.stats();
    CHECK(end.events_got == end.events_acked);
    CHECK(end.ids_live == 0);
    CHECK(end.ids_awaiting_ack == 0);
}

// ---- T8: a reject on the active side blocks its destroy for 102 seconds ---------------------------------------------

TEST_CASE("T8 the active side rejects, or accepts: refused without a call of C") {
    world w;
    rdma::event_channel channel;
    rdma::cm_id listener = make_listener(channel);
    rdma::cm_id client = make_client(channel);
    client.create_qp({});
    std::error_code ec;
    auto const refused = [&](rdma::cm_id& id) {
        std::size_t const before = calls_made();
        CHECK(thrown([&] { id.reject(); }, "rdma_reject") == rdma::errc::not_a_request);
        id.reject(ec);
        CHECK(ec == rdma::errc::not_a_request);
        CHECK(ec == std::errc::operation_not_permitted);
        CHECK(calls_made() == before);
    };
    refused(client);
    client.connect();
    refused(client);
    CHECK(thrown([&] { client.accept(); }, "rdma_accept") == rdma::errc::not_a_request);
    CHECK(fake::count("rdma_accept") == 0);
    refused(listener);

    rdma::cm_id server = next(channel, type::connect_request).take_id();
    server.create_qp({});
    server.accept();
    refused(server); // decided
    CHECK(thrown([&] { server.accept(); }) == rdma::errc::not_a_request);
    expect(channel, type::established);
    expect(channel, type::established);
    refused(client);
}

// ---- T9: a destroy may take as long as the kernel likes -------------------------------------------------------------

TEST_CASE("T9 no lock is held around rdma_destroy_id") {
    world w;
    rdma::event_channel channel;
    rdma::cm_id bystander = make_id(channel);
    rdma::cm_id id = make_id(channel);
    held_by_c blocker(id.native_handle());
    check_lingering(
        "rdma_destroy_id", 1, channel, bystander, [&] { id = {}; }, [&] { blocker.ack(); });
}

TEST_CASE("T9 no lock is held around the rdma_destroy_id that the last ack brings") {
    world w;
    rdma::event_channel channel;
    rdma::cm_id bystander = make_id(channel);
    rdma::cm_id id = make_id(channel);
    held_by_c blocker(id.native_handle());
    fake::push(id.native_handle(), {RDMA_CM_EVENT_ADDR_CHANGE});
    rdma::cm_event event = next(channel, type::addr_change);
    id = {};
    check_lingering(
        "rdma_destroy_id", 1, channel, bystander, [&] { event.ack(); }, [&] { blocker.ack(); });
}

TEST_CASE("T9 no lock is held around cm_id::destroy") {
    world w;
    rdma::event_channel channel;
    rdma::cm_id bystander = make_id(channel);
    rdma::cm_id id = make_id(channel);
    held_by_c blocker(id.native_handle());
    std::error_code ec;
    check_lingering(
        "rdma_destroy_id", 1, channel, bystander, [&] { id.destroy(ec); }, [&] { blocker.ack(); });
    CHECK_FALSE(ec);
}

TEST_CASE("T9 no lock is held around the destroy of a QP") {
    world w;
    rdma::event_channel channel;
    rdma::cm_id bystander = make_id(channel);
    rdma::cm_id id = make_bound(channel);
    id.create_qp({});
    ibv_async_event event;
    fake::push_async(id.qp().native_handle(), IBV_EVENT_COMM_EST);
    REQUIRE(::ibv_get_async_event(id.verbs().native_handle(), &event) == 0);
    auto const ack = [&event] { ::ibv_ack_async_event(&event); };
    SECTION("with its id") {
        check_lingering(
            "ibv_destroy_qp", 1, channel, bystander, [&] { id = {}; }, ack);
    }
    SECTION("alone") {
        check_lingering(
            "ibv_destroy_qp", 1, channel, bystander, [&] { id.destroy_qp(); }, ack);
    }
}

TEST_CASE("T9 no lock is held around the destroy of a CQ") {
    world w;
    rdma::event_channel channel;
    rdma::cm_id bystander = make_id(channel);
    rdma::cm_id id = make_bound(channel);
    id.create_qp({});
    ibv_cq* const cq = id.recv_cq().native_handle();
    ibv_cq* got = nullptr;
    void* context = nullptr;
    fake::push_cq_event(cq);
    REQUIRE(::ibv_get_cq_event(id.recv_cq_channel().native_handle(), &got, &context) == 0);
    std::size_t const before = fake::count("ibv_destroy_cq");
    std::size_t const stuck_in = before + 2; // the other CQ of the QP goes first
    auto const ack = [cq] { ::ibv_ack_cq_events(cq, 1); };
    check_lingering(
        "ibv_destroy_cq", stuck_in, channel, bystander, [&] { id = {}; }, ack);
}

// ---- T11: siw corrupts the handshake beyond 251 bytes ---------------------------------------------------------------

TEST_CASE("T11 252 to 255 bytes of private data on iWARP are refused before the call, and 251 go through") {
    world w;
    rdma::event_channel channel;
    rdma::cm_id listener = make_listener(channel, siw_host);
    std::array<std::byte, 256> bytes{};
    bytes.fill(std::byte{0x5a});
    auto const first = [&](std::size_t n) { return std::span<std::byte const>(bytes).first(n); };
    std::error_code ec;

    rdma::cm_id client = make_client(channel, siw_host);
    client.create_qp({});
    for (std::size_t n = 252; n != 256; ++n) {
        auto const connect = [&] { client.connect({.private_data = first(n)}); };
        CHECK(thrown(connect, std::to_string(n)) == rdma::errc::private_data_iwarp);
        client.connect({.private_data = first(n)}, ec);
        CHECK(ec == std::errc::message_size);
    }
    client.connect({.private_data = first(256)}, ec);
    CHECK(ec == rdma::errc::private_data_too_long);
    CHECK(fake::count("rdma_connect") == 0);
    client.connect({.private_data = first(251)});

    rdma::cm_event request = next(channel, type::connect_request);
    CHECK(request.private_data().size() == 251);
    rdma::cm_id server = request.take_id();
    server.create_qp({});
    for (std::size_t n = 252; n != 256; ++n) {
        server.accept({.private_data = first(n)}, ec);
        CHECK(ec == rdma::errc::private_data_iwarp);
        server.reject(first(n), ec);
        CHECK(ec == rdma::errc::private_data_iwarp);
    }
    CHECK(fake::count("rdma_accept") + fake::count("rdma_reject") == 0);
    server.accept({.private_data = first(251)}); // refused before, it is still undecided
    CHECK(next(channel, type::established).id() == client);
    CHECK(next(channel, type::established).id() == server);
}

// ---- T13: a dropped listener keeps its port while a request is held -------------------------------------------------

TEST_CASE("T13 a listener is dropped while its request is held: the port is free after the ack") {
    world w;
    rdma::event_channel channel;
    rdma::cm_id listener = make_listener(channel);
    rdma::cm_event request = make_request(channel, listener);
    listener = {};
    rdma::cm_id next_listener = make_id(channel);
    rdma::address const at(rxe_host, 7471);
    CHECK(thrown([&] { next_listener.bind(at); }, "7471") == std::errc::address_in_use);
    request.ack();
    next_listener.bind(at);
    next_listener.listen();
    CHECK(channel.stats().requests_rejected == 1);
}

// ---- T14: a child that was forked while another thread held a lock --------------------------------------------------

namespace {

/// One of each object, with events held, as a process may be forked with.
struct everything {
    rdma::event_channel channel, lonely;
    rdma::cm_id listener = make_listener(channel);
    rdma::cm_event request = make_request(channel, listener);
    rdma::cm_event second_request = make_request(channel, listener);
    rdma::cm_id taken = second_request.take_id();
    rdma::cm_id id = make_bound(channel);
    rdma::pd pd{id.verbs()};
    rdma::comp_channel completions{id.verbs()};
    rdma::cq cq{id.verbs(), 16, completions};
    std::array<std::byte, 64> memory{};
    rdma::mr region{pd, memory, rdma::access::local_write};
    rdma::mr default_region{id.pd(), memory, rdma::access::local_write};
    rdma::cq_event cq_event;
    rdma::async_event async_event;
    rdma::async_event port_event;
    rdma::event_range<rdma::cm_event, true> range = channel.events();

    everything() {
        id.create_qp(pd, {.send_cq = cq});
        fake::push_cq_event(cq.native_handle());
        cq_event = *completions.try_get();
        fake::push_async(id.qp().native_handle(), IBV_EVENT_COMM_EST);
        async_event = next_async(id.verbs());
        fake::push_async(id.verbs().native_handle(), IBV_EVENT_PORT_ACTIVE);
        port_event = next_async(id.verbs());
    }
    everything(everything const&) = delete;
    everything& operator=(everything const&) = delete;

    void release() {
        (void)cq_event.release();
        (void)second_request.release();
        (void)request.release();
        (void)default_region.release();
        (void)region.release();
        (void)id.release();
        (void)taken.release();
        (void)listener.release();
        (void)cq.release();
        (void)completions.release();
        (void)pd.release();
        (void)lonely.release();
        (void)channel.release();
    }
};

/// Runs `work` in a forked child.
/// @return its exit status; SIGALRM's number if it was stuck
template <class Work>
int run_in_child(Work&& work, std::function<void()> const& when_forked = {}) {
    pid_t const child = ::fork();
    if (child == 0) {
        ::alarm(20); // it needs no time at all, unless it waits for a lock that nobody in this process holds
        ::_exit(work());
    }
    if (when_forked)
        when_forked();
    int status = -1;
    CHECK(::waitpid(child, &status, 0) == child);
    return status;
}

/// The same, while another thread holds every lock of the library that `all` could meet.
template <class Work>
int run_in_child_of_locked(everything& all, Work&& work) {
    std::error_code ec;
    auto* const state = rdma::detail::channel_state::borrow(all.channel.native_handle(), ec);
    REQUIRE(state);
    std::atomic<bool> locked{false}, forked{false};
    std::thread holder([&] {
        std::scoped_lock const locks(state->mutex, rdma::detail::channel_registry::get().mutex,
                                     rdma::detail::verbs_table::get().mutex);
        locked = true;
        while (!forked)
            std::this_thread::yield();
    });
    while (!locked)
        std::this_thread::yield();
    int const status = run_in_child(work, [&] { forked = true; });
    holder.join();
    state->unref();
    return status;
}

/// The exit code of a child: 0 if no C function was called there.
int calls_made_since(std::size_t before) { return calls_made() == before ? 0 : 1; }

bool is_nonblocking(int fd) { return (::fcntl(fd, F_GETFL) & O_NONBLOCK) != 0; }

} // namespace

TEST_CASE("T14 a forked child destroys everything while a lock is held that never comes back") {
    world w;
    auto all = std::make_unique<everything>();
    std::size_t const before = calls_made();
    int const status = run_in_child_of_locked(*all, [&] {
        all.reset();
        return calls_made_since(before);
    });
    CHECK(status == 0);
    CHECK(fake::count("ibv_destroy_qp") == 0);
}

TEST_CASE("T14 a forked child releases everything while a lock is held that never comes back") {
    world w;
    auto all = std::make_unique<everything>();
    std::size_t const before = calls_made();
    int const status = run_in_child_of_locked(*all, [&] {
        all->release();
        all.reset();
        return calls_made_since(before);
    });
    CHECK(status == 0);
    // The open files are the parent's, too: blocking, its gets would hang under the channel's lock.
    CHECK(is_nonblocking(all->channel.fd()));
    CHECK(is_nonblocking(all->lonely.fd()));
    CHECK(is_nonblocking(all->completions.fd()));
    use_fully(all->channel, all->id);
}

TEST_CASE("T14 what a forked child makes by itself is its own") {
    world w;
    auto all = std::make_unique<everything>();
    int const status = run_in_child([&] {
        all.reset();
        {
            rdma::event_channel channel;
            rdma::cm_id id = make_bound(channel);
            id.create_qp({});
            fake::push(id.native_handle(), {RDMA_CM_EVENT_ADDR_CHANGE});
            expect(channel, type::addr_change);
        }
        return fake::count("ibv_destroy_qp") == 1 && fake::count("rdma_destroy_id") == 1 ? 0 : 1;
    });
    CHECK(status == 0);
}

// ---- T15: create_qp with a PD of the user's overwrites id->pd -------------------------------------------------------

TEST_CASE("T15 the QP and its PD are gone: the id's default PD is back") {
    world w;
    rdma::event_channel channel;
    rdma::cm_id id = make_bound(channel);
    ibv_pd* const own = id.pd().native_handle();
    std::array<std::byte, 64> memory{};
    for (int i = 0; i != 2; ++i) {
        rdma::pd pd(id.verbs());
        ibv_pd* const users = pd.native_handle();
        id.create_qp(pd, {});
        CHECK(id.pd().native_handle() == users);
        {
            rdma::mr const region(id.pd(), memory, rdma::access::local_write);
            pd = {};
            CHECK(fake::count("ibv_dealloc_pd", users) == 0); // the QP and the region keep it
            id.destroy_qp();
            CHECK(fake::count("ibv_dealloc_pd", users) == 0);
        }
        CHECK(fake::count("ibv_dealloc_pd", users) == 1);
        CHECK(id.native_handle()->pd == own);
        rdma::mr const region(id.pd(), memory, rdma::access::local_write);
        CHECK(region.native_handle()->pd == own);
        fake::clear_calls();
    }
}

// ---- T16: events in static objects ----------------------------------------------------------------------------------

namespace {

/// Constructed before, and so destroyed after, the static events below: where any were kept, it looks at the end.
struct last_witness {
    bool expects_events = false;
    ~last_witness() {
        if (!expects_events)
            return;
        bool const fine = fake::leaks().empty() && fake::misuse().empty() && fake::would_hang().empty() &&
                          fake::count("rdma_destroy_id") == 3 && fake::count("ibv_destroy_qp") == 1;
        if (!fine)
            std::fprintf(stderr, "at the end: %s\n", fake::leaks().c_str());
        ::_exit(fine ? 0 : 3);
    }
};
last_witness witness;
rdma::cm_event kept_event, kept_request;
rdma::cq_event kept_cq_event;
rdma::async_event kept_async_event, kept_port_event;

} // namespace

// Hidden: what it keeps lives until its process ends. The case below runs it in one of its own.
TEST_CASE("T16 keeps events in static objects", "[.][static]") {
    if (!std::getenv("RDMACPP_TEST_STATIC"))
        RDMACPP_SKIP("it is run by the next case, in a process of its own");
    fake::reset();
    rdma::event_channel channel;
    rdma::cm_id listener = make_listener(channel);
    rdma::cm_id id = make_bound(channel);
    id.create_qp({});
    fake::push(id.native_handle(), {RDMA_CM_EVENT_ADDR_CHANGE});
    kept_event = next(channel, type::addr_change);
    kept_request = make_request(channel, listener);
    fake::push_cq_event(id.send_cq().native_handle());
    kept_cq_event = *id.send_cq_channel().try_get();
    fake::push_async(id.qp().native_handle(), IBV_EVENT_COMM_EST);
    kept_async_event = next_async(id.verbs());
    fake::push_async(id.verbs().native_handle(), IBV_EVENT_PORT_ACTIVE);
    kept_port_event = next_async(id.verbs());
    fake::clear_calls();
    witness.expects_events = true;
}

TEST_CASE("T16 events are kept in static objects, beyond everything else") {
    pid_t const child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        ::setenv("RDMACPP_TEST_STATIC", "1", 1);
        ::execl("/proc/self/exe", "unit", "T16 keeps events in static objects", static_cast<char*>(nullptr));
        ::_exit(127);
    }
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    CHECK(status == 0);
}

// ---- T17: iterators -------------------------------------------------------------------------------------------------

TEST_CASE("T17 the loop body drops the channel object") {
    world w;
    std::optional<rdma::event_channel> channel(std::in_place);
    rdma::cm_id id = make_id(*channel);
    for (int i = 0; i != 3; ++i)
        fake::push(id.native_handle(), {RDMA_CM_EVENT_ADDR_CHANGE, i});
    int turns = 0;
    auto const body = [&](rdma::cm_event const& event) {
        CHECK(event.status() == 0); // the range ends at its next step, though there is more
        ++turns;
        channel.reset();
    };
    SECTION("of the channel itself") {
        for (rdma::cm_event event : *channel)
            body(event);
    }
    SECTION("of pending") {
        for (rdma::cm_event event : channel->pending())
            body(event);
    }
    SECTION("of events, into an error code") {
        std::error_code ec;
        for (rdma::cm_event event : channel->events(ec))
            body(event);
        CHECK_FALSE(ec);
    }
    CHECK(turns == 1);
    CHECK(fake::live().channels == 1); // the id needs it
    id = {};
    CHECK(fake::live().channels == 0);
}

TEST_CASE("T17 the loop body drops the channel object and the last id with it") {
    world w;
    std::optional<rdma::event_channel> channel(std::in_place);
    rdma::cm_id id = make_id(*channel);
    fake::push(id.native_handle(), {RDMA_CM_EVENT_ADDR_CHANGE});
    for (rdma::cm_event event : *channel) {
        channel.reset();
        id = {};
        CHECK(fake::count("rdma_destroy_id") == 0);
        CHECK(event.type() == type::addr_change);
    }
    CHECK(fake::count("rdma_destroy_id") == 1);
    CHECK(fake::count("rdma_destroy_event_channel") == 1);
}

TEST_CASE("T17 two threads wait on one channel with a stop token each") {
    world w;
    rdma::event_channel channel;
    for (int round = 0; round != 200; ++round) {
        std::stop_source stop_first, stop_second;
        std::atomic<int> waiting{0};
        std::atomic<bool> first_done{false}, second_done{false};
        bool first_got = true, second_got = true;
        auto const wait = [&](std::stop_token token, std::atomic<bool>& done, bool& got) {
            ++waiting;
            got = channel.get(token).has_value();
            done = true;
        };
        std::thread first([&] { wait(stop_first.get_token(), first_done, first_got); });
        std::thread second([&] { wait(stop_second.get_token(), second_done, second_got); });
        while (waiting != 2)
            std::this_thread::yield();
        if (round % 2 == 0) { // one after the other: the first wake-up is not the second's
            stop_first.request_stop();
            first.join();
            CHECK_FALSE(second_done);
            stop_second.request_stop();
        } else { // both at once: neither eats the other's
            stop_second.request_stop();
            stop_first.request_stop();
            first.join();
        }
        second.join();
        CHECK_FALSE(first_got);
        CHECK_FALSE(second_got);
    }
}

TEST_CASE("T17 two threads wait on one channel, and its end wakes both") {
    world w;
    for (int round = 0; round != 100; ++round) {
        std::optional<rdma::event_channel> channel(std::in_place);
        std::atomic<int> waiting{0};
        int turns[2] = {};
        // begin() before the end of the channel object, in this thread; the waiting in the others
        auto const iterate = [&waiting](rdma::event_range<rdma::cm_event, true> range, int& counted) {
            ++waiting;
            for (rdma::cm_event event : range)
                ++counted;
        };
        std::thread first(iterate, channel->events(), std::ref(turns[0]));
        std::thread second(iterate, channel->events(), std::ref(turns[1]));
        while (waiting != 2)
            std::this_thread::yield();
        channel.reset();
        first.join();
        second.join();
        CHECK(turns[0] + turns[1] == 0);
    }
}

TEST_CASE("T17 a second * after the event was moved out does not get") {
    world w;
    rdma::event_channel channel;
    rdma::cm_id id = make_id(channel);
    fake::push(id.native_handle(), {RDMA_CM_EVENT_ADDR_CHANGE, 0});
    fake::push(id.native_handle(), {RDMA_CM_EVENT_ADDR_CHANGE, 1});
    auto range = channel.pending();
    auto it = range.begin();
    CHECK(fake::count("rdma_get_cm_event") == 0); // lazy
    rdma::cm_event const kept = *it;
    CHECK(kept.status() == 0);
    rdma::cm_event const nothing = *it;
    CHECK_FALSE(nothing);
    CHECK_FALSE(it == std::default_sentinel);
    CHECK(fake::count("rdma_get_cm_event") == 1);
    ++it;
    CHECK(fake::count("rdma_get_cm_event") == 1);
    CHECK((*it).status() == 1);
    CHECK(fake::unacked(id.native_handle()) == 2);
    ++it;
    CHECK(fake::unacked(id.native_handle()) == 1); // the first is still kept
    CHECK(it == std::default_sentinel);
    CHECK(it == std::default_sentinel);
    CHECK(fake::count("rdma_get_cm_event") == 3); // once ended, ended
}

// ---- T18: memory runs out between the C get and the wrap ------------------------------------------------------------

namespace {

/// Fails each allocation of a get in turn, on a new channel each time, until none is left to fail.
template <class Prepare, class Get>
int fail_each_allocation(Prepare&& prepare, Get&& get) {
    for (std::size_t nth = 1;; ++nth) {
        rdma::event_channel channel;
        auto const objects = prepare(channel);
        std::error_code ec;
        rdma::cm_event event;
        bool struck = false;
        {
            unit::allocation_watch const watch(nth);
            event = get(channel, ec);
            struck = watch.struck();
        }
        if (!struck) {
            CHECK(event);
            return static_cast<int>(nth) - 1;
        }
        CHECK(ec == std::errc::not_enough_memory);
        CHECK_FALSE(event);
        CHECK(fake::queued(channel.native_handle()) == 1); // not lost, and not got
        CHECK(fake::live().events == 0);
        CHECK(channel.stats().events_got == 0);
        event = channel.get(); // with memory again, all is well
        CHECK(event);
    }
}

rdma::cm_event try_to_get(rdma::event_channel& channel, std::error_code& ec) {
    auto event = channel.try_get(ec);
    return event ? std::move(*event) : rdma::cm_event();
}

} // namespace

TEST_CASE("T18 memory runs out in a get") {
    RDMACPP_NEED_ALLOCATIONS();
    world w;
    SECTION("of an event of an id") {
        int const failed = fail_each_allocation(
            [](rdma::event_channel& channel) {
                rdma::cm_id id = make_id(channel);
                fake::push(id.native_handle(), {RDMA_CM_EVENT_ADDR_CHANGE});
                return id;
            },
            try_to_get);
        CHECK(failed >= 1);
    }
    SECTION("of a request") {
        int const failed = fail_each_allocation(
            [](rdma::event_channel& channel) {
                rdma::cm_id listener = make_listener(channel, rxe_host, 0);
                fake::push_request(listener.native_handle());
                return listener;
            },
            try_to_get);
        CHECK(failed >= 1);
    }
    SECTION("of a request on a listener that C made: two records at once") {
        int const failed = fail_each_allocation(
            [](rdma::event_channel& channel) {
                rdma::cm_id listener = make_listener(channel, rxe_host, 0);
                rdma_cm_id* const raw = listener.release();
                fake::push_request(raw);
                return std::unique_ptr<rdma_cm_id, int (*)(rdma_cm_id*)>(raw, &::rdma_destroy_id);
            },
            try_to_get);
        CHECK(failed >= 1);
    }
    SECTION("of a get that may wait, and of its throwing form") {
        fail_each_allocation(
            [](rdma::event_channel& channel) {
                rdma::cm_id id = make_id(channel);
                fake::push(id.native_handle(), {RDMA_CM_EVENT_ADDR_CHANGE});
                return id;
            },
            [](rdma::event_channel& channel, std::error_code& ec) {
                try {
                    return channel.get();
                } catch (rdma::error const& e) {
                    ec = e.code();
                } catch (std::bad_alloc const&) { // of a string in the message
                    ec = std::make_error_code(std::errc::not_enough_memory);
                }
                return rdma::cm_event();
            });
    }
}

TEST_CASE("T18 memory runs out while an event that C got is adopted: C has it still") {
    RDMACPP_NEED_ALLOCATIONS();
    world w;
    rdma::event_channel channel;
    rdma_cm_id* const raw_id = make_id_in_c(channel);
    for (std::size_t nth = 1;; ++nth) {
        fake::push(raw_id, {RDMA_CM_EVENT_ADDR_CHANGE});
        rdma_cm_event* raw = nullptr;
        REQUIRE(::rdma_get_cm_event(channel.native_handle(), &raw) == 0);
        std::error_code ec;
        rdma::cm_event event;
        bool struck = false;
        {
            unit::allocation_watch const watch(nth);
            event = rdma::cm_event(rdma::adopt, raw, ec);
            struck = watch.struck();
        }
        if (!struck) {
            CHECK(event);
            break;
        }
        CHECK(ec == std::errc::not_enough_memory);
        CHECK_FALSE(event);
        CHECK(::rdma_ack_cm_event(raw) == 0);
    }
    REQUIRE(::rdma_destroy_id(raw_id) == 0);
}

TEST_CASE("T18 without memory the tables do not grow, and all goes on") {
    RDMACPP_NEED_ALLOCATIONS();
    world w;
    rdma::event_channel channel;
    std::vector<rdma::cm_id> ids(300);
    for (rdma::cm_id& id : ids) {
        std::error_code ec;
        {
            unit::allocation_watch const watch(2); // the record is the first; the second is only made to grow a table
            id = rdma::cm_id(channel, rdma::port_space::tcp, ec);
        }
        REQUIRE_FALSE(ec);
    }
    for (rdma::cm_id const& id : ids)
        fake::push(id.native_handle(), {RDMA_CM_EVENT_ADDR_CHANGE});
    for (rdma::cm_id const& id : ids)
        CHECK(next(channel, type::addr_change).id() == id);
}
