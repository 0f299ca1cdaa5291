// SPDX-License-Identifier: MIT
/// @file
/// How long to wait, and what may cut a wait short.
#pragma once

#include "config.hpp"
#if __cplusplus >= 202002L // below, config.hpp says what to do

#include <chrono>
#include <climits>
#include <cstdint>
#include <version>

#if defined(__cpp_lib_jthread)
#include <stop_token>
#endif

namespace rdma::inline RDMACPP_ABI {

/// A time span in milliseconds, made from any duration: rounded up, and saturated, so that `std::chrono::hours::max()`
/// is as good as for ever. A negative span counts as none.
class timeout {
public:
    template <class Rep, class Period>
    constexpr timeout(std::chrono::duration<Rep, Period> span) noexcept
        : milliseconds_(saturate(span)) {} // NOLINT: a span is one

    constexpr std::int64_t milliseconds() const noexcept { return milliseconds_; }

    /// For C functions that take an int.
    constexpr int as_int() const noexcept {
        return milliseconds_ < INT_MAX ? static_cast<int>(milliseconds_) : INT_MAX;
    }

    static constexpr std::int64_t forever = std::int64_t{1000} * 3600 * 24 * 365 * 100; ///< A hundred years.

private:
    template <class Rep, class Period>
    static constexpr std::int64_t saturate(std::chrono::duration<Rep, Period> span) noexcept {
        // Compared as a double: every other common type overflows for some argument.
        double const estimate = std::chrono::duration<double, std::milli>(span).count();
        if (!(estimate > 0))
            return 0;
        if (estimate >= static_cast<double>(forever))
            return forever;
        return std::chrono::ceil<std::chrono::duration<std::int64_t, std::milli>>(span).count();
    }

    std::int64_t milliseconds_;
};

/// How a wait behaves beyond its deadline.
struct wait_options {
    /// False: a signal handler that runs meanwhile changes nothing (EINTR is retried). True: it ends the wait with
    /// std::errc::interrupted, so that a signal can cancel.
    bool interruptible = false;
};

namespace detail {

#if defined(__cpp_lib_jthread)
using stop_token = std::stop_token;
template <class F>
using stop_callback = std::stop_callback<F>;
#else
/// Stands for std::stop_token where the standard library has none (libc++ before 17): it never stops.
struct stop_token {
    bool stop_requested() const noexcept { return false; }
};
template <class F>
struct stop_callback {
    stop_callback(stop_token const&, F const&) noexcept {}
};
#endif

/// A point in time to wait for, or never.
class deadline {
public:
    using clock = std::chrono::steady_clock;

    static deadline never() noexcept { return deadline{clock::time_point::max()}; }
    static deadline after(timeout span) noexcept {
        if (span.milliseconds() >= timeout::forever)
            return never();
        return deadline{clock::now() + std::chrono::milliseconds(span.milliseconds())};
    }

    /// Milliseconds for poll(2), rounded up: -1 for never, 0 once passed.
    int for_poll() const noexcept {
        if (at_ == clock::time_point::max())
            return -1;
        return timeout(at_ - clock::now()).as_int();
    }

    bool passed() const noexcept { return at_ != clock::time_point::max() && clock::now() >= at_; }

private:
    explicit deadline(clock::time_point at) noexcept : at_(at) {}
    clock::time_point at_;
};

/// The span from now to a point on any clock.
template <class Clock, class Duration>
timeout until(std::chrono::time_point<Clock, Duration> at) {
    auto const now = Clock::now();
    return at > now ? timeout(at - now) : timeout(std::chrono::milliseconds(0));
}

} // namespace detail

} // namespace rdma::inline RDMACPP_ABI

#endif
