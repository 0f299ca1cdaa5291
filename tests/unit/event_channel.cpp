// SPDX-License-Identifier: MIT
// Event channels: getting events one by one and with a range-for, waiting, stopping, and handing over from and to C.
#include "support.hpp"

#include <atomic>
#include <chrono>
#include <csignal>
#include <optional>
#include <ranges>
#include <stop_token>
#include <thread>

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>

using namespace unit;

namespace {

/// The order of gets that gave an event or failed to (g) and of acks (a).
std::string trace() {
    std::string order;
    for (fake::call const& each : fake::calls())
        if (each.function == "rdma_get_cm_event")
            order += 'g';
        else if (each.function == "rdma_ack_cm_event")
            order += 'a';
    return order;
}

/// Events that belong to no story, on an id with a device.
void push(rdma::cm_id const& id, int many = 1) {
    for (int i = 0; i != many; ++i)
        fake::push(id.native_handle(), {RDMA_CM_EVENT_ADDR_CHANGE});
}

struct one_id : world {
    rdma::event_channel channel;
    rdma::cm_id id = make_bound(channel);
    one_id() { fake::clear_calls(); }
};

bool is_readable(int fd) {
    pollfd watched{fd, POLLIN, 0};
    return ::poll(&watched, 1, 0) == 1;
}

bool is_nonblocking(int fd) { return (::fcntl(fd, F_GETFL) & O_NONBLOCK) != 0; }

using range = rdma::event_range<rdma::cm_event, true>;
using iterator = range::iterator;

static_assert(std::is_same_v<decltype(*std::declval<iterator const&>()), rdma::cm_event&&>);
static_assert(std::is_same_v<decltype(std::declval<rdma::event_channel&>().begin()), iterator>);
static_assert(!std::is_copy_constructible_v<iterator> && std::is_nothrow_move_constructible_v<iterator>);
static_assert(noexcept(++std::declval<iterator&>()));
// `for (auto& event : channel)` must not compile: it would seem to name an event that the channel keeps.
template <class Range>
concept gives_lvalues = requires(Range& r) {
    [](auto&) {}(*r.begin());
};
static_assert(!gives_lvalues<rdma::event_channel> && !gives_lvalues<range>);
// A range of a temporary channel would end at once.
template <class Channel>
concept has_events = requires(Channel c) {
    std::forward<Channel>(c).events();
};
static_assert(has_events<rdma::event_channel&> && !has_events<rdma::event_channel>);
// libstdc++'s ranges compile with clang from 16 on only.
#if !defined(__clang__) || __clang_major__ >= 16
#define RDMACPP_TEST_RANGES 1
static_assert(std::input_iterator<iterator> && std::ranges::input_range<range> && std::ranges::view<range>);
static_assert(!std::ranges::forward_range<range>);
#endif

} // namespace

TEST_CASE_METHOD(one_id, "a range by value acks each event before the next get", "[event_channel]") {
    push(id, 3);
    int turns = 0;
    for (rdma::cm_event event : channel) {
        CHECK(event.type() == type::addr_change);
        CHECK(fake::unacked(id.native_handle()) == 1);
        if (++turns == 3)
            break;
    }
    CHECK(turns == 3);
    CHECK(trace() == "gagaga");
}

TEST_CASE_METHOD(one_id, "a range by auto&& acks each event before the next get", "[event_channel]") {
    push(id, 3);
    int turns = 0;
    for (auto&& event : channel.events()) {
        static_assert(std::is_same_v<decltype(event), rdma::cm_event&&>);
        CHECK(event.type() == type::addr_change);
        if (++turns == 3)
            break;
    }
    CHECK(trace() == "gagaga");
}

TEST_CASE_METHOD(one_id, "begin and ++ never get", "[event_channel]") {
    push(id, 2);
    auto it = channel.begin();
    CHECK(trace() == "");
    CHECK(*it);
    CHECK(trace() == "g");
    ++it;
    CHECK(trace() == "ga");
    ++it; // the event that was never looked at is still there
    CHECK(trace() == "ga");
    CHECK_FALSE(it == std::default_sentinel);
    CHECK(trace() == "gag");
    CHECK((*it).type() == type::addr_change);
    CHECK(trace() == "gag");
}

TEST_CASE_METHOD(one_id, "A1 an event is acked when its loop is left by break or by an exception",
                 "[field][event_channel]") {
    push(id, 4);
    for (rdma::cm_event event : channel)
        break;
    CHECK(trace() == "ga");
    for ([[maybe_unused]] auto&& event : channel)
        break;
    CHECK(trace() == "gaga");
    try {
        for (rdma::cm_event event : channel)
            throw 1;
    } catch (int) {
    }
    CHECK(trace() == "gagaga");
    try {
        for ([[maybe_unused]] auto&& event : channel)
            throw 1;
    } catch (int) {
    }
    CHECK(trace() == "gagagaga");
    CHECK(fake::unacked(id.native_handle()) == 0);
}

TEST_CASE_METHOD(one_id, "an event moved out of its loop lives on, and the slot is not filled again",
                 "[event_channel]") {
    push(id, 2);
    auto it = channel.begin();
    std::optional<rdma::cm_event> kept = *it;
    CHECK(kept->type() == type::addr_change);
    rdma::cm_event&& again = *it;
    CHECK_FALSE(again);
    CHECK_FALSE(it == std::default_sentinel);
    CHECK(trace() == "g");
    ++it;
    CHECK(trace() == "g"); // nothing of it is left to ack
    CHECK(*it);
    CHECK(trace() == "gg");
    kept.reset();
    CHECK(trace() == "gga");
}

TEST_CASE_METHOD(one_id, "an iterator can be moved with its event", "[event_channel]") {
    push(id, 2);
    auto first = channel.begin();
    CHECK(*first);
    auto second = std::move(first);
    CHECK(*second);
    CHECK(trace() == "g");
    first = channel.begin();
    CHECK(*first);
    first = std::move(second); // acks what it held
    CHECK(trace() == "gga");
    CHECK(*first);
    CHECK(fake::unacked(id.native_handle()) == 1);
}

#if defined(RDMACPP_TEST_RANGES)
TEST_CASE_METHOD(one_id, "views::take(2) gets two events", "[event_channel]") {
    push(id, 3);
    int turns = 0;
    for (auto&& event : channel.events() | std::views::take(2)) {
        CHECK(event.type() == type::addr_change);
        ++turns;
    }
    CHECK(turns == 2);
    CHECK(trace() == "gaga");
    CHECK(fake::queued(channel.native_handle()) == 1);
}

TEST_CASE_METHOD(one_id, "pending() goes through the algorithms of ranges", "[event_channel]") {
    push(id, 3);
    std::ranges::for_each(channel.pending(), [](auto&& event) { CHECK(event.type() == type::addr_change); });
    CHECK(trace() == "gagagag");
}
#endif

TEST_CASE_METHOD(one_id, "A17 pending() ends when the channel is drained", "[field][event_channel]") {
    int turns = 0;
    for (rdma::cm_event event : channel.pending())
        ++turns;
    CHECK(turns == 0);
    push(id, 3);
    for (rdma::cm_event event : channel.pending())
        ++turns;
    CHECK(turns == 3);
    push(id, 1); // a range that ended stays ended, but a new one begins
    for ([[maybe_unused]] auto&& event : channel.pending())
        ++turns;
    CHECK(turns == 4);
    push(id, 1);
    std::error_code ec = std::make_error_code(std::errc::io_error);
    for ([[maybe_unused]] auto&& event : channel.pending(ec))
        ++turns;
    CHECK(turns == 5);
    CHECK_FALSE(ec);
    CHECK(is_idle(channel));
}

TEST_CASE_METHOD(one_id, "every form of get hands out the event, and nothing when there is none", "[event_channel]") {
    std::error_code ec = std::make_error_code(std::errc::io_error);
    std::stop_source source;
    std::stop_token const stop = source.get_token();
    auto const now = std::chrono::steady_clock::now();

    CHECK_FALSE(channel.try_get());
    CHECK_FALSE(channel.try_get(ec));
    CHECK_FALSE(ec);
    CHECK_FALSE(channel.get_for(0ms));
    CHECK_FALSE(channel.get_for(-1h));
    ec = std::make_error_code(std::errc::io_error);
    CHECK_FALSE(channel.get_for(1us, ec));
    CHECK_FALSE(ec);
    CHECK_FALSE(channel.get_until(now));
    CHECK_FALSE(channel.get_until(now - 1h, ec));
    CHECK_FALSE(channel.get_until(std::chrono::system_clock::now()));
    CHECK(fake::live().events == 0);

    push(id, 10);
    CHECK(channel.get().type() == type::addr_change);
    CHECK(channel.get(ec).type() == type::addr_change);
    CHECK(channel.try_get());
    CHECK(channel.try_get(ec));
    CHECK(channel.get_for(0ms)); // late, but there: given
    CHECK(channel.get_for(-1h, ec));
    CHECK(channel.get_until(now - 1h));
    CHECK(channel.get_until(now + 1h, ec));
    CHECK(channel.get(stop));
    CHECK(channel.get(stop, ec));
    CHECK_FALSE(ec);
    CHECK(is_idle(channel));

    push(id, 1);
    source.request_stop();
    fake::clear_calls();
    CHECK_FALSE(channel.get(stop));
    CHECK_FALSE(channel.get(stop, ec));
    CHECK_FALSE(ec);
    for (rdma::cm_event event : channel.events(stop))
        FAIL("stopped, but got " << to_string(event));
    for (rdma::cm_event event : channel.events(stop, ec))
        FAIL("stopped, but got " << to_string(event));
    CHECK(trace() == "");
    CHECK(channel.try_get()); // it was not lost
}

TEST_CASE_METHOD(one_id, "every form of get gives C's error, once", "[event_channel]") {
    std::error_code const wanted(EIO, std::system_category());
    std::stop_source source;
    std::stop_token const stop = source.get_token();
    auto const soon = std::chrono::steady_clock::now() + 1h;
    auto const failing = [] { fake::fail("rdma_get_cm_event", 1, EIO); };
    auto const fails = [&](auto&& get) {
        failing();
        CHECK(thrown(get, "rdma_get_cm_event") == wanted);
        push(id);
        CHECK_NOTHROW(get());
    };
    fails([&] { (void)channel.get(); });
    fails([&] { (void)channel.try_get(); });
    fails([&] { (void)channel.get_for(1h); });
    fails([&] { (void)channel.get_until(soon); });
    fails([&] { (void)channel.get(stop); });
    fails([&] { (void)*channel.begin(); });
    fails([&] { (void)(channel.begin() == std::default_sentinel); });
    fails([&] { (void)*channel.events(stop).begin(); });
    fails([&] { (void)*channel.pending().begin(); });

    auto const leaves_code = [&](auto&& get) {
        failing();
        std::error_code ec;
        CHECK_FALSE(get(ec));
        CHECK(ec == wanted);
        push(id);
        CHECK(get(ec));
        CHECK_FALSE(ec);
    };
    leaves_code([&](std::error_code& ec) { return bool(channel.get(ec)); });
    leaves_code([&](std::error_code& ec) { return bool(channel.try_get(ec)); });
    leaves_code([&](std::error_code& ec) { return bool(channel.get_for(1h, ec)); });
    leaves_code([&](std::error_code& ec) { return bool(channel.get_until(soon, ec)); });
    leaves_code([&](std::error_code& ec) { return bool(channel.get(stop, ec)); });
    auto const first_of = [](auto&& events) {
        for (rdma::cm_event event : events)
            return true;
        return false;
    };
    leaves_code([&](std::error_code& ec) { return first_of(channel.events(ec)); });
    leaves_code([&](std::error_code& ec) { return first_of(channel.events(stop, ec)); });
    leaves_code([&](std::error_code& ec) { return first_of(channel.pending(ec)); });
}

TEST_CASE_METHOD(one_id, "try_get tells nothing from broken", "[event_channel]") {
    std::error_code ec;
    fake::fail("rdma_get_cm_event", 1, EWOULDBLOCK);
    CHECK_FALSE(channel.try_get(ec));
    CHECK_FALSE(ec);
    fake::fail("rdma_get_cm_event", 1, EBADF);
    CHECK_FALSE(channel.try_get(ec));
    CHECK(ec == std::errc::bad_file_descriptor);
    CHECK(thrown([&] {
              fake::fail("rdma_get_cm_event", 1, EBADF);
              (void)channel.try_get();
          }) == std::errc::bad_file_descriptor);
}

TEST_CASE_METHOD(one_id, "the descriptor is readable while there is an event", "[event_channel]") {
    REQUIRE(channel.fd() == channel.native_handle()->fd);
    CHECK((::fcntl(channel.fd(), F_GETFD) & FD_CLOEXEC) != 0);
    CHECK(is_nonblocking(channel.fd()));
    CHECK_FALSE(is_readable(channel.fd()));
    push(id);
    CHECK(is_readable(channel.fd()));
    (void)channel.try_get();
    CHECK_FALSE(is_readable(channel.fd()));
    CHECK(rdma::event_channel_ref(channel).fd() == channel.fd());
    CHECK(rdma::event_channel_ref().fd() == -1);
}

TEST_CASE_METHOD(world, "opening a channel fails with C's reason and an advice", "[event_channel]") {
    std::error_code ec;
    fake::set_devices_present(false);
    CHECK(thrown([] { (void)rdma::event_channel(); }, "rdma link") == std::errc::no_such_device);
    CHECK_FALSE(rdma::event_channel(ec));
    CHECK(ec == std::error_code(ENODEV, std::system_category()));
    fake::set_devices_present(true);
    fake::fail("rdma_create_event_channel", 1, ENOENT);
    CHECK(thrown([] { (void)rdma::event_channel(); }, "rdma_ucm") == std::errc::no_such_file_or_directory);
    fake::fail("rdma_create_event_channel", 1, EACCES);
    CHECK(thrown([] { (void)rdma::event_channel(); }, "permission") == std::errc::permission_denied);
    fake::fail("rdma_create_event_channel", 1, EMFILE);
    CHECK_FALSE(rdma::event_channel(ec));
    CHECK(ec == std::errc::too_many_files_open);
    CHECK(rdma::event_channel(ec));
    CHECK_FALSE(ec);
    CHECK_FALSE(rdma::event_channel(rdma::no_init));
    CHECK(fake::count("rdma_create_event_channel") == 6);
}

TEST_CASE_METHOD(one_id, "a channel moved from is empty, and says so", "[event_channel]") {
    rdma_event_channel* const raw = channel.native_handle();
    rdma::event_channel other = std::move(channel);
    CHECK(other.native_handle() == raw);
    CHECK(calls_made() == 0); // moving moves no C object
    auto const refuses = [&](auto&& get) { CHECK(thrown(get, "empty") == rdma::errc::empty_handle); };
    std::error_code ec;
    std::stop_token const stop;
    // NOLINTBEGIN(bugprone-use-after-move): that is the point
    CHECK_FALSE(channel);
    CHECK(channel.native_handle() == nullptr);
    CHECK(channel.fd() == -1);
    CHECK(channel.stats() == rdma::channel_stats{});
    CHECK(to_string(channel) == "no event channel");
    CHECK(channel.release() == nullptr);
    refuses([&] { (void)channel.get(); });
    refuses([&] { (void)channel.try_get(); });
    refuses([&] { (void)channel.get_for(1h); });
    refuses([&] { (void)channel.get_until(std::chrono::steady_clock::now() + 1h); });
    refuses([&] { (void)channel.get(stop); });
    refuses([&] { (void)*channel.begin(); });
    refuses([&] { (void)*channel.events(stop).begin(); });
    refuses([&] { (void)*channel.pending().begin(); });
    refuses([&] { (void)rdma::cm_id(channel, rdma::port_space::tcp); });
    auto const leaves_code = [&](auto&& get) {
        ec.clear();
        get();
        CHECK(ec == rdma::errc::empty_handle);
    };
    leaves_code([&] { CHECK_FALSE(channel.get(ec)); });
    leaves_code([&] { CHECK_FALSE(channel.try_get(ec)); });
    leaves_code([&] { CHECK_FALSE(channel.get_for(1h, ec)); });
    leaves_code([&] { CHECK_FALSE(channel.get_until(std::chrono::steady_clock::now() + 1h, ec)); });
    leaves_code([&] { CHECK_FALSE(channel.get(stop, ec)); });
    leaves_code([&] { CHECK(channel.events(ec).begin() == std::default_sentinel); });
    leaves_code([&] { CHECK(channel.events(stop, ec).begin() == std::default_sentinel); });
    leaves_code([&] { CHECK(channel.pending(ec).begin() == std::default_sentinel); });
    leaves_code([&] { CHECK_FALSE(rdma::cm_id(channel, rdma::port_space::tcp, ec)); });
    // NOLINTEND(bugprone-use-after-move)
    CHECK(calls_made() == 0);
    push(id);
    expect(other, type::addr_change);
    auto& same = other;
    other = std::move(same);
    CHECK(other.native_handle() == raw);
    channel = std::move(other);
    swap(channel, other);
    CHECK(other.native_handle() == raw);
}

TEST_CASE_METHOD(one_id, "a range ends at its next step once the channel object is gone", "[event_channel]") {
    push(id, 2);
    auto waiting = channel.begin();
    auto draining = channel.pending().begin();
    auto filled = channel.begin();
    CHECK(*filled);
    channel = rdma::event_channel(rdma::no_init);
    CHECK(waiting == std::default_sentinel);
    CHECK(draining == std::default_sentinel);
    CHECK((*filled).type() == type::addr_change); // that one it has
    ++filled;
    CHECK(filled == std::default_sentinel);
    CHECK(fake::live().channels == 1); // the iterators and the id keep the C channel
    id = rdma::cm_id();
    CHECK(fake::live().channels == 1);
}

TEST_CASE_METHOD(one_id, "a wait on an idle channel takes its time, and no less", "[event_channel]") {
    using clock = std::chrono::steady_clock;
    auto before = clock::now();
    CHECK_FALSE(channel.get_for(15ms));
    CHECK(clock::now() - before >= 15ms);
    before = clock::now();
    CHECK_FALSE(channel.get_for(1500us)); // rounded up
    CHECK(clock::now() - before >= 1500us);
    auto const at = clock::now() + 15ms;
    CHECK_FALSE(channel.get_until(at));
    CHECK(clock::now() >= at);
    auto const later = std::chrono::system_clock::now() + 5ms;
    std::error_code ec;
    CHECK_FALSE(channel.get_until(later, ec));
    CHECK_FALSE(ec);
}

static_assert(rdma::timeout(1us).milliseconds() == 1 && rdma::timeout(1001us).milliseconds() == 2);
static_assert(rdma::timeout(0s).milliseconds() == 0 && rdma::timeout(-5s).milliseconds() == 0);
static_assert(rdma::timeout(std::chrono::hours::min()).milliseconds() == 0);
static_assert(rdma::timeout(std::chrono::hours::max()).milliseconds() == rdma::timeout::forever);
static_assert(rdma::timeout(std::chrono::nanoseconds::max()).milliseconds() == rdma::timeout::forever);
static_assert(rdma::timeout(std::chrono::hours::max()).as_int() == INT_MAX && rdma::timeout(2s).as_int() == 2000);
static_assert(rdma::timeout(std::chrono::duration<double>(0.0001)).milliseconds() == 1);

TEST_CASE_METHOD(one_id, "hours::max() is as good as for ever", "[event_channel]") {
    // Each wait has to begin before its event comes: had the time overflown, it would end with nothing.
    std::atomic<int> round{0};
    std::jthread pusher([&] {
        for (int i = 1; i <= 3; ++i) {
            round.wait(i - 1);
            std::this_thread::yield();
            push(id);
        }
    });
    auto const wait = [&](auto&& get) {
        ++round;
        round.notify_all();
        CHECK(get());
    };
    wait([&] { return channel.get_for(std::chrono::hours::max()); });
    wait([&] { return channel.get_until(std::chrono::steady_clock::time_point::max()); });
    wait([&] { return channel.get_until(std::chrono::system_clock::time_point::max()); });
}

namespace {

std::atomic<int> signals_handled{0};

/// SIGUSR1, counted, and without SA_RESTART: system calls that wait end with EINTR.
struct counted_signal {
    struct sigaction before {};
    counted_signal() {
        signals_handled = 0;
        struct sigaction action {};
        action.sa_handler = [](int) { ++signals_handled; };
        ::sigemptyset(&action.sa_mask);
        ::sigaction(SIGUSR1, &action, &before);
    }
    counted_signal(counted_signal const&) = delete;
    counted_signal& operator=(counted_signal const&) = delete;
    ~counted_signal() { ::sigaction(SIGUSR1, &before, nullptr); }
};

} // namespace

TEST_CASE_METHOD(one_id, "A17 a storm of signals loses no event and ends no wait", "[field][event_channel]") {
    counted_signal const with_signal;
    constexpr int rounds = 100;
    std::atomic<int> got{0};
    pthread_t const waiter = ::pthread_self();
    std::jthread stormer([&, waiter] {
        for (int i = 0; i != rounds; ++i) {
            // A few signals in every wait, then its event.
            for (int const enough = signals_handled + 3; signals_handled < enough;) {
                ::pthread_kill(waiter, SIGUSR1);
                std::this_thread::yield();
            }
            push(id);
            got.wait(i);
        }
    });
    for (int i = 0; i != rounds; ++i) {
        std::error_code ec;
        switch (i % 3) {
        case 0: CHECK(channel.get(ec)); break;
        case 1: CHECK(channel.get_for(1h, ec)); break;
        case 2: CHECK_FALSE(channel.events(ec).begin() == std::default_sentinel); break;
        }
        CHECK_FALSE(ec);
        ++got;
        got.notify_all();
    }
    stormer.join();
    CHECK(signals_handled >= 3 * rounds);
    CHECK(channel.stats().events_got == rounds);
}

TEST_CASE_METHOD(one_id, "A17 with wait_options a signal ends the wait", "[field][event_channel]") {
    counted_signal const with_signal;
    std::error_code ec;
    rdma::wait_options const cancels{.interruptible = true};
    auto const interrupted = [&](auto&& get) {
        std::atomic<bool> ended{false};
        pthread_t const waiter = ::pthread_self();
        std::jthread signaller([&, waiter] {
            while (!ended) { // once is not enough: it may come just before the wait
                ::pthread_kill(waiter, SIGUSR1);
                std::this_thread::yield();
            }
        });
        get();
        ended = true;
    };
    auto const wanted = std::errc::interrupted;
    interrupted([&] { CHECK_FALSE(channel.get(cancels, ec)); });
    CHECK(ec == wanted);
    interrupted([&] { CHECK_FALSE(channel.get_for(1h, cancels, ec)); });
    CHECK(ec == wanted);
    interrupted([&] { CHECK_FALSE(channel.get(std::stop_token(), cancels, ec)); });
    CHECK(ec == wanted);
    interrupted([&] { CHECK(thrown([&] { (void)channel.get(cancels); }) == wanted); });
    interrupted([&] { CHECK(thrown([&] { (void)channel.get_for(1h, cancels); }) == wanted); });
    fake::fail("rdma_get_cm_event", 1, EINTR); // and so does one that C reports
    CHECK_FALSE(channel.get(cancels, ec));
    CHECK(ec == wanted);
    push(id);
    CHECK(channel.get(cancels, ec));
}

TEST_CASE_METHOD(one_id, "A18 threads that iterate one channel stop when they are asked to, every time",
                 "[field][threads]") {
    constexpr int rounds = 1000;
    std::atomic<std::uint64_t> got{0};
    std::uint64_t pushed = 0;
    for (int i = 0; i != rounds; ++i) {
        auto const iterate = [&](std::stop_token stop) {
            for (rdma::cm_event event : channel.events(stop))
                ++got;
        };
        std::jthread one(iterate), two(iterate);
        if (i % 2 != 0) {
            push(id);
            ++pushed;
        }
        (i % 4 < 2 ? one : two).request_stop(); // the one that stops must not take the other's wake-up with it
        (i % 4 < 2 ? one : two).join();
        (i % 4 < 2 ? two : one).request_stop();
    }
    for (rdma::cm_event event : channel.pending())
        ++got;
    CHECK(got == pushed);
    CHECK(channel.stats().events_acked == pushed);
}

TEST_CASE_METHOD(world, "A18 dropping the channel object ends every wait on it", "[field][threads]") {
    for (int i = 0; i != 100; ++i) {
        rdma::event_channel channel;
        std::array<std::error_code, 2> codes;
        auto range = channel.events(codes[0]);
        auto other = channel.events(codes[1]);
        std::jthread one([&] { (void)(range.begin() == std::default_sentinel); });
        std::jthread two([&] {
            for (rdma::cm_event event : other) {
            }
        });
        if (i % 2 != 0)
            std::this_thread::yield();
        channel = rdma::event_channel(rdma::no_init);
        one.join();
        two.join();
        if (codes[0] || codes[1])
            FAIL("a wait ended with " << codes[0].message() << ", " << codes[1].message());
    }
}

// ---- From C and back ------------------------------------------------------------------------------------------------

TEST_CASE_METHOD(world, "a channel of C's is adopted, made non-blocking, and given back as it was",
                 "[event_channel][adopt]") {
    rdma_event_channel* const raw = ::rdma_create_event_channel();
    std::error_code ec;
    CHECK_FALSE(is_nonblocking(raw->fd));
    {
        rdma::event_channel channel(rdma::adopt, raw);
        CHECK(channel.native_handle() == raw);
        CHECK(is_nonblocking(raw->fd));
        CHECK(thrown([&] { (void)rdma::event_channel(rdma::adopt, raw); }, "owner") == rdma::errc::already_owned);
        CHECK_FALSE(rdma::event_channel(rdma::adopt, raw, ec));
        CHECK(ec == rdma::errc::already_owned);
        std::size_t const before = calls_made();
        CHECK(channel.release() == raw);
        CHECK(calls_made() == before);
        CHECK_FALSE(channel);
    }
    CHECK(fake::live().channels == 1);
    CHECK_FALSE(is_nonblocking(raw->fd));
    ::fcntl(raw->fd, F_SETFL, ::fcntl(raw->fd, F_GETFL) | O_NONBLOCK);
    {
        rdma::event_channel channel(rdma::adopt, raw, ec); // back again, as often as you like
        CHECK_FALSE(ec);
        CHECK(channel.release() == raw);
        CHECK(is_nonblocking(raw->fd));
    }
    rdma::event_channel last(rdma::adopt, raw);
    CHECK(fake::count("rdma_destroy_event_channel") == 0);
}

TEST_CASE_METHOD(world, "a channel that was released and destroyed by C leaves nothing behind",
                 "[event_channel][adopt]") {
    {
        rdma::event_channel channel;
        {
            rdma::cm_id id = make_bound(channel);
            push(id);
            expect(channel, type::addr_change);
        }
        ::rdma_destroy_event_channel(channel.release());
    }
    for (int i = 0; i != 4; ++i) { // malloc is likely to hand out its address again
        rdma::event_channel channel;
        CHECK(channel.stats() == rdma::channel_stats{});
        rdma::cm_id id = make_bound(channel);
        push(id);
        expect(channel, type::addr_change);
        CHECK(channel.stats().events_got == 1);
    }
}

TEST_CASE_METHOD(world, "ids live on a channel that C loops on, and events that C got can be wrapped",
                 "[event_channel][adopt]") {
    rdma_event_channel* const raw = ::rdma_create_event_channel();
    {
        rdma::event_channel_ref const channel(raw);
        CHECK_FALSE(is_nonblocking(raw->fd));
        rdma::cm_id id(channel, rdma::port_space::tcp);
        CHECK_FALSE(is_nonblocking(raw->fd));
        id.bind(rdma::address(rxe_host, 0));
        push(id, 2);
        rdma_cm_event* got = nullptr;
        REQUIRE(::rdma_get_cm_event(raw, &got) == 0);
        rdma::cm_event event(rdma::adopt, got);
        CHECK(event.id() == rdma::cm_id_ref(id));
        REQUIRE(::rdma_get_cm_event(raw, &got) == 0);
        rdma::cm_event second(rdma::adopt, got);
        id = rdma::cm_id(); // pinned by both
        CHECK(fake::count("rdma_destroy_id") == 0);
        second.ack();
        CHECK(fake::count("rdma_destroy_id") == 0);
        event.ack();
        CHECK(fake::count("rdma_destroy_id") == 1);
    }
    CHECK(fake::live().channels == 1);
    ::rdma_destroy_event_channel(raw);
}

TEST_CASE_METHOD(one_id, "a released event keeps its pins until it is adopted back", "[event_channel][adopt]") {
    push(id, 1);
    rdma::cm_event event = channel.get();
    rdma_cm_event* const raw = event.native_handle();
    std::size_t const before = calls_made();
    CHECK(event.release() == raw);
    CHECK(calls_made() == before);
    CHECK_FALSE(event);
    CHECK(event.release() == nullptr);
    CHECK(channel.stats().events_held == 1);
    id = rdma::cm_id();
    CHECK(channel.stats().ids_awaiting_ack == 1);
    CHECK(fake::count("rdma_destroy_id") == 0);
    rdma::cm_event back(rdma::adopt, raw);
    CHECK(channel.stats().events_held == 1);
    back.ack();
    CHECK(fake::count("rdma_destroy_id") == 1);
    CHECK(channel.stats().events_held == 0);
    CHECK(channel.stats().ids_awaiting_ack == 0);
    CHECK(channel.stats().events_acked == 1);
}

TEST_CASE_METHOD(one_id, "a released CONNECT_REQUEST keeps its new id for whoever adopts the one or the other",
                 "[event_channel][adopt]") {
    rdma::cm_id listener = make_listener(channel);
    SECTION("the event") {
        rdma_cm_event* const raw = make_request(channel, listener).release();
        CHECK(fake::live().ids == 3);
        rdma::cm_event back(rdma::adopt, raw);
        rdma::cm_id child = back.take_id();
        CHECK(child.native_handle() == raw->id);
    }
    SECTION("the event, which is then dropped") {
        { rdma::cm_event back(rdma::adopt, make_request(channel, listener).release()); }
        CHECK(channel.stats().requests_rejected == 1);
    }
    SECTION("the new id") {
        rdma_cm_event* const raw = make_request(channel, listener).release();
        rdma::cm_id child(rdma::adopt, channel, raw->id);
        child.reject();
        rdma::cm_event back(rdma::adopt, raw);
        std::error_code ec;
        CHECK_FALSE(back.take_id(ec)); // it has an owner
        CHECK(ec == rdma::errc::no_id_to_take);
    }
    CHECK(channel.stats().events_held == 0);
}

TEST_CASE_METHOD(world, "an id of C's is adopted, and one of ours given back", "[event_channel][adopt]") {
    rdma::event_channel channel, other;
    std::error_code ec;
    rdma_cm_id* raw = nullptr;
    REQUIRE(::rdma_create_id(channel.native_handle(), &raw, &ec, RDMA_PS_TCP) == 0);
    CHECK(thrown([&] { (void)rdma::cm_id(rdma::adopt, other, raw); }, "channel") == rdma::errc::wrong_channel);
    CHECK_FALSE(rdma::cm_id(rdma::adopt, other, raw, ec));
    CHECK(ec == rdma::errc::wrong_channel);
    rdma::cm_id id(rdma::adopt, channel, raw);
    CHECK(id.native_handle() == raw);
    CHECK(id.user_context() == &ec); // C's pointer stays
    CHECK(thrown([&] { (void)rdma::cm_id(rdma::adopt, channel, raw); }, "owner") == rdma::errc::already_owned);
    id.bind(rdma::address(rxe_host, 0));

    std::size_t const before = calls_made();
    CHECK(id.release() == raw);
    CHECK(calls_made() == before);
    CHECK_FALSE(id);
    fake::push(raw, {RDMA_CM_EVENT_ADDR_CHANGE}); // events of it are still delivered, and counted
    rdma::cm_event event = next(channel, type::addr_change);
    CHECK(event.id().native_handle() == raw);
    CHECK(channel.stats().events_held == 1);
    id = rdma::cm_id(rdma::adopt, channel, raw, ec);
    CHECK_FALSE(ec);
    CHECK(thrown([&] { id.destroy(); }, "1 events held") == std::errc::resource_deadlock_would_occur);
    event.ack();
    REQUIRE(id.release() == raw);
    CHECK(::rdma_destroy_id(raw) == 0);
}

TEST_CASE_METHOD(world, "an id that C made and keeps is only counted while events of it are held",
                 "[event_channel][adopt]") {
    rdma::event_channel channel;
    rdma_cm_id* raw = nullptr;
    REQUIRE(::rdma_create_id(channel.native_handle(), &raw, nullptr, RDMA_PS_TCP) == 0);
    rdma::address const here(rxe_host, 7471);
    REQUIRE(::rdma_bind_addr(raw, const_cast<sockaddr*>(here.native_handle())) == 0);
    REQUIRE(::rdma_listen(raw, 4) == 0);
    for (int i = 0; i != 3; ++i) {
        fake::push_request(raw);
        rdma::cm_event request = next(channel, type::connect_request);
        CHECK(request.listen_id().native_handle() == raw);
        if (i == 1)
            request.take_id().reject();
    }
    CHECK(channel.stats().ids_live == 0);
    CHECK(channel.stats().requests_rejected == 2);
    CHECK(::rdma_destroy_id(raw) == 0);
    CHECK(fake::live().ids == 0);
}

// ---- What is put off can be seen ------------------------------------------------------------------------------------

TEST_CASE_METHOD(world, "stats() and to_string() show what waits for its last ack", "[event_channel][stats]") {
    rdma::event_channel channel;
    rdma::cm_id listener = make_listener(channel);
    CHECK(channel.stats() == rdma::channel_stats{.ids_live = 1});
    rdma::cm_event request = make_request(channel, listener);
    CHECK(channel.stats() == rdma::channel_stats{.events_got = 1, .events_held = 1, .ids_live = 2});
    CHECK_THAT(to_string(channel), rdmacpp_test::contains("1 events got"));
    CHECK_THAT(to_string(channel), !rdmacpp_test::contains("is held by"));

    std::string const name = to_string(rdma::cm_id_ref(listener));
    listener = rdma::cm_id();
    CHECK(channel.stats() ==
          rdma::channel_stats{.events_got = 1, .events_held = 1, .ids_live = 1, .ids_awaiting_ack = 1});
    CHECK_THAT(to_string(channel), rdmacpp_test::contains("1 awaiting their last ack"));
    CHECK_THAT(to_string(channel), rdmacpp_test::contains("id " + name + " is held by 1 x CONNECT_REQUEST"));

    rdma::cm_id child = request.take_id();
    CHECK(channel.stats().ids_live == 1);
    std::string const child_name = to_string(rdma::cm_id_ref(child));
    child = rdma::cm_id();
    CHECK(channel.stats().ids_awaiting_ack == 2);
    CHECK_THAT(to_string(channel),
               rdmacpp_test::contains("id " + child_name + " is held by 1 x CONNECT_REQUEST that brought it"));
    request.ack();
    CHECK(channel.stats() == rdma::channel_stats{.events_got = 1, .events_acked = 1});
    CHECK_THAT(to_string(channel), !rdmacpp_test::contains("is held by"));
}

TEST_CASE_METHOD(one_id, "to_string() counts the events that hold an id by type", "[event_channel][stats]") {
    push(id, 2);
    fake::push(id.native_handle(), {RDMA_CM_EVENT_DEVICE_REMOVAL});
    std::array<rdma::cm_event, 3> held{channel.get(), channel.get(), channel.get()};
    id = rdma::cm_id();
    CHECK_THAT(to_string(channel), rdmacpp_test::contains("2 x ADDR_CHANGE"));
    CHECK_THAT(to_string(channel), rdmacpp_test::contains("1 x DEVICE_REMOVAL"));
    held[0].ack();
    CHECK_THAT(to_string(channel), rdmacpp_test::contains("1 x ADDR_CHANGE"));
}

TEST_CASE_METHOD(one_id, "events for an id already dropped are acked and swallowed by the get",
                 "[event_channel][stats]") {
    push(id, 1);
    rdma::cm_event held = channel.get();
    push(id, 2);
    rdma_cm_id* const raw = id.native_handle();
    id = rdma::cm_id();
    rdma::cm_id another = make_bound(channel);
    push(another);
    rdma::cm_event event = channel.get(); // goes past both
    CHECK(event.id() == rdma::cm_id_ref(another));
    CHECK(channel.stats().events_swallowed == 2);
    CHECK(channel.stats().events_acked == 2);
    CHECK(channel.stats().events_got == 4);
    CHECK(fake::unacked(raw) == 1);
    REQUIRE(told(rdma::diagnostic_kind::event_swallowed) == 2);
    CHECK(told()[0].object == raw);
}

TEST_CASE_METHOD(world, "a request for a listener already dropped is rejected by the get", "[event_channel][stats]") {
    rdma::event_channel channel, client_channel;
    rdma::cm_id listener = make_listener(channel);
    rdma::cm_event held = make_request(channel, listener);
    rdma::cm_id client = make_client(client_channel);
    client.create_qp({});
    client.connect();
    listener = rdma::cm_id();
    CHECK_FALSE(channel.try_get());
    CHECK(channel.stats().requests_rejected == 1);
    CHECK(channel.stats().events_swallowed == 1);
    CHECK(told(rdma::diagnostic_kind::request_rejected) == 1);
    CHECK(next(client_channel, type::rejected).error() == rdma::condition::refused);
}
