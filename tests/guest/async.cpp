// SPDX-License-Identifier: MIT
// The awaitables on the real libraries and a real kernel: each end a coroutine, on a loop that sleeps and on one that
// does not.
#include "guest/support.hpp"

#include <rdmacpp/epoll.hpp>

#include <algorithm>
#include <array>
#include <csignal>
#include <stop_token>

#include <sys/time.h>

namespace {

using namespace guest;
using namespace std::chrono_literals;
namespace async = rdma::async;
using clock = std::chrono::steady_clock;

void run(rdma::epoll_loop& loop, async::tasks const&) { loop.run(); }
void run(async::poll_loop& loop, async::tasks const& running) {
    while (running.size() != 0)
        loop.poll();
}

/// What one end sends from and receives into.
struct memory {
    explicit memory(rdma::cm_id const& id)
        : out(id.pd(), std::span(bytes).first(64), rdma::access::none),
          in(id.pd(), std::span(bytes).last(64), rdma::access::local_write) {}
    std::array<std::byte, 128> bytes{};
    rdma::mr out, in;
};

constexpr rdma::qp_init_attr small = {.cap = {.max_send_wr = 4, .max_recv_wr = 4}};

async::task<> echo(async::event_channel& channel, rdma::cm_id undecided, int rounds) {
    async::cm_id id(channel, std::move(undecided));
    async::cq queue(channel.loop(), id->verbs(), 16);
    rdma::qp_init_attr qp = small;
    qp.send_cq = qp.recv_cq = queue;
    id->create_qp(qp);
    memory mine(*id);
    id->qp().post_recv(rdma::recv_wr(mine.in.sge()).id(1));
    co_await id.accept({}, patience);
    for (int i = 0; i != rounds; ++i) {
        rdma::work_completion const got = co_await queue.next(patience);
        CHECK(got);
        std::ranges::copy(std::span(mine.bytes).last(64), mine.bytes.begin());
        id->qp().post_recv(rdma::recv_wr(mine.in.sge()).id(1));
        rdma::work_completion const sent = co_await queue.post_send(id, rdma::send_wr::send(mine.out.sge()), patience);
        CHECK(sent);
    }
    cm_event const last = co_await id.next(patience);
    CHECK(last.type() == cm_event_type::disconnected);
}

async::task<> serve(async::event_channel& channel, async::acceptor& acceptor, async::tasks& running, int rounds) {
    async::request request = co_await acceptor.next(patience);
    running.spawn(echo(channel, request.take_id(), rounds));
}

async::task<> ping(async::event_channel& channel, rdma::address server, int rounds, int& done) {
    rdma::connect_options const options{.limit = patience, .qp = small};
    async::cm_id id = co_await async::resolve(channel, server, options);
    async::cq sends(channel.loop(), id->send_cq()), receives(channel.loop(), id->recv_cq());
    memory mine(*id);
    id->qp().post_recv(rdma::recv_wr(mine.in.sge()));
    co_await id.connect({}, patience);
    clock::duration longest{};
    for (int i = 0; i != rounds; ++i, ++done) {
        auto const begin = clock::now();
        std::fill_n(mine.bytes.begin(), 64, std::byte(i));
        rdma::work_completion const sent = co_await sends.post_send(id, rdma::send_wr::send(mine.out.sge()), patience);
        rdma::work_completion const got = co_await receives.next(patience);
        if (!sent || !got || mine.bytes[127] != std::byte(i)) {
            FAIL_CHECK(to_string(sent.status()) << ", " << to_string(got.status()));
            co_return;
        }
        if (i + 1 != rounds)
            id->qp().post_recv(rdma::recv_wr(mine.in.sge()));
        longest = std::max(longest, clock::now() - begin);
    }
    CHECK(longest < 1s); // a wake-up that is lost would be as long as the patience
    co_await id.disconnect(patience);
}

/// A9: nothing is lost between a poll and the arming, in a thousand messages.
template <class Loop>
void ping_pong(device const& on, int rounds) {
    Loop loop;
    async::event_channel channel(loop);
    async::tasks running;
    int done = 0;
    {
        async::acceptor acceptor(channel, on.at(0));
        running.spawn(serve(channel, acceptor, running, rounds));
        running.spawn(ping(channel, acceptor.local_addr(), rounds, done));
        run(loop, running);
    }
    CHECK(done == rounds);
    CHECK(running.size() == 0);
    CHECK(channel.stats().events_got == channel.stats().events_acked);
    CHECK(channel.stats().ids_live == 0);
}
GUEST_CASE("awaited messages by event", [](device const& on) { ping_pong<rdma::epoll_loop>(on, 500); })
GUEST_CASE("awaited messages by polling", [](device const& on) { ping_pong<async::poll_loop>(on, 100); })

/// On iWARP rdma_connect blocks, and only a signal ends it.
void dead_host(device const& on) {
    struct sigaction action {};
    action.sa_handler = [](int) {};
    ::sigaction(SIGUSR1, &action, nullptr);
    rdma::epoll_loop loop;
    async::event_channel channel(loop);
    async::tasks running;
    int failed = 0;
    auto const attempt = [](async::event_channel& there, rdma::address peer, int& count) -> async::task<> {
        std::error_code ec;
        rdma::connect_report report;
        rdma::connect_options const options{
            .limit = 500ms, .qp = small, .interrupt_signal = SIGUSR1, .report = &report};
        async::cm_id const id = co_await async::connect(there, peer, options, ec);
        CHECK(ec == std::errc::timed_out);
        CHECK(to_string(report.step) == "connect");
        ++count;
    };
    auto const begin = clock::now();
    int const size = on.iwarp ? 1 : 10; // the call blocks the whole loop there
    for (int i = 0; i != size; ++i)
        running.spawn(attempt(channel, {on.iwarp ? "10.77.2.99" : "10.77.1.99", 7471}, failed));
    loop.run();
    CHECK(failed == size);
    CHECK(clock::now() - begin < 30s); // it would be 102 s, and on iWARP the kernel holds the destroy for 10 s
}
GUEST_CASE("awaited connects to a dead host", dead_host, 60s)

/// The coroutine is gone when the message arrives into its receive.
void gone_receiver(device const& on) {
    rdma::epoll_loop loop;
    async::event_channel channel(loop);
    pair connection(on);
    memory mine(connection.child), theirs(connection.client);
    async::cq receives(loop, connection.child.recv_cq());
    bool late = false;
    auto const receive = [](async::cq& queue, rdma::qp_ref qp, rdma::mr& into, bool& told) -> async::task<> {
        rdma::work_completion const got = co_await queue.post_recv(qp, rdma::recv_wr(into.sge()), patience);
        told = static_cast<bool>(got);
    };
    async::task<> gone = receive(receives, connection.child.qp(), mine.in, late);
    gone.start();
    gone = {};
    bool told = false;
    async::task<> second = receive(receives, connection.child.qp(), mine.in, told);
    second.start();
    connection.client.qp().post_send(rdma::send_wr::send(theirs.out.sge()).signaled()); // to the first receive
    connection.client.qp().post_send(rdma::send_wr::send(theirs.out.sge()).signaled()); // and to the second
    loop.run();
    CHECK(told);
    CHECK_FALSE(late);
}
GUEST_CASE("a message for a coroutine that is gone", gone_receiver)

/// A17, A18: signals without SA_RESTART change nothing, and a stop from another thread ends the wait.
void signals_and_stop(device const& on) {
    struct sigaction action {};
    action.sa_handler = [](int) {};
    ::sigaction(SIGALRM, &action, nullptr);
    itimerval const often{{0, 10'000}, {0, 10'000}}, never{};
    ::setitimer(ITIMER_REAL, &often, nullptr);
    rdma::epoll_loop loop;
    async::event_channel channel(loop);
    async::acceptor acceptor(channel, on.at(0));
    std::stop_source stop;
    std::error_code why;
    auto const wait = [](async::acceptor& at, std::stop_token token, std::error_code& ec) -> async::task<> {
        async::request const none = co_await at.next(token, ec);
        CHECK_FALSE(none);
    };
    async::task<> waiting = wait(acceptor, stop.get_token(), why);
    waiting.start();
    std::jthread const other([&] {
        std::this_thread::sleep_for(500ms); // for signals to come in
        stop.request_stop();
    });
    loop.run();
    ::setitimer(ITIMER_REAL, &never, nullptr);
    CHECK(waiting.done());
    CHECK(why == std::errc::operation_canceled);
}
GUEST_CASE("an awaited request, signals, and a stop", signals_and_stop)

} // namespace
