// SPDX-License-Identifier: MIT
// What a benchmark in C and its twin with the library share: options, time, pinning, a second thread. No RDMA: that is
// written twice.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <sched.h>

namespace bench {

/// What to measure. Both ends are in this process, on the two addresses of one device.
struct options {
    std::string test;                     ///< see the usage in main.cpp
    std::string server = "10.77.1.1";     ///< Where to listen.
    std::string client = "10.77.1.2";     ///< Where to connect from.
    std::uint32_t size = 64;              ///< bytes of a message
    bool event = false;                   ///< Completions are waited for by event; else polled for.
    bool blocking = false;                ///< C alone: by a blocking get, as it is used without deadlines.
    static constexpr unsigned depth = 64; ///< of the queues
};

/// In the rate tests so many messages are posted with one call, and twice as many are in flight.
constexpr unsigned chain_length = 16;
static_assert(2 * chain_length <= options::depth);

using clock = std::chrono::steady_clock;

/// Nanoseconds of each phase of a run.
class phases {
public:
    void begin() { last_ = clock::now(); }
    void end(char const* phase) {
        auto const now = clock::now();
        spans_.emplace_back(phase, std::chrono::duration_cast<std::chrono::nanoseconds>(now - last_).count());
        last_ = now;
    }
    auto const& spans() const { return spans_; }

private:
    clock::time_point last_{};
    std::vector<std::pair<char const*, long long>> spans_;
};

/// One benchmark of one side; connected when it is made.
class benchmark {
public:
    benchmark() = default;
    benchmark(benchmark const&) = delete;
    benchmark& operator=(benchmark const&) = delete;
    virtual ~benchmark() = default;

    /// Does it `times` times: so many round trips, messages or connections.
    virtual void run(unsigned times, phases& into) = 0;
};

/// Made by each side, in C or with the library.
std::unique_ptr<benchmark> make_latency(options const&);
std::unique_ptr<benchmark> make_rate(options const&);
std::unique_ptr<benchmark> make_connections(options const&);
std::unique_ptr<benchmark> make_loop(options const&);

/// Nothing here is expected to fail, so nothing is cleaned up after it.
[[noreturn]] inline void fail(char const* what) {
    std::perror(what);
    std::exit(1);
}

/// A byte that the device writes.
inline unsigned char volatile_byte(unsigned char const* memory) {
    return *static_cast<unsigned char const volatile*>(memory);
}

/// Between two looks that found nothing: siw sends from threads of the kernel's, which need a processor, too.
inline void relax() { ::sched_yield(); }

/// The other end's thread: runs a function once for each start().
class other_end {
public:
    explicit other_end(std::function<void(unsigned)> work) : work_(std::move(work)), thread_([this] { loop(); }) {}
    ~other_end() {
        start(0);
        thread_.join();
    }
    other_end(other_end const&) = delete;
    other_end& operator=(other_end const&) = delete;

    void start(unsigned times) {
        std::unique_lock lock(mutex_);
        times_ = times;
        busy_ = true;
        changed_.notify_all();
    }
    void finish() {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [this] { return !busy_; });
    }

private:
    void loop() try {
        for (;;) {
            unsigned times;
            {
                std::unique_lock lock(mutex_);
                changed_.wait(lock, [this] { return busy_; });
                times = times_;
            }
            if (times == 0)
                return;
            work_(times);
            std::unique_lock lock(mutex_);
            busy_ = false;
            changed_.notify_all();
        }
    } catch (std::exception const& e) {
        std::fprintf(stderr, "the other end: %s\n", e.what());
        std::exit(1);
    }

    std::function<void(unsigned)> work_;
    std::mutex mutex_;
    std::condition_variable changed_;
    bool busy_ = false;
    unsigned times_ = 0;
    std::thread thread_;
};

} // namespace bench
