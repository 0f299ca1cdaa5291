// SPDX-License-Identifier: MIT
/// @file
/// How long to wait, and what may cut a wait short.
#pragma once

#include "config.hpp"
#if __cplusplus >= 202002L && !defined(RDMACPP_TWO_VERSIONS) // otherwise config.hpp says what to do

#include <chrono>
#include <climits>
#include <cstdint>

namespace rdma::inline RDMACPP_ABI {

/// A time span in milliseconds, made from any duration: rounded up, and saturated, so that `std::chrono::hours::max()`
/// is as good as for ever. A negative span counts as none.
class timeout {
public:
    /// From any duration of the standard, without a word.
    template <class Rep, class Period>
    constexpr timeout(std::chrono::duration<Rep, Period> span) noexcept
        : milliseconds_(saturate(span)) {} // NOLINT: a span is one

    /// The span; never negative.
    constexpr std::int64_t milliseconds() const noexcept { return milliseconds_; }

    /// For C functions that take an int.
    constexpr int as_int() const noexcept {
        return milliseconds_ < INT_MAX ? static_cast<int>(milliseconds_) : INT_MAX;
    }

    static constexpr std::int64_t forever = std::int64_t{1000} * 3600 * 24 * 365 * 100; ///< A hundred years.

private:
    template <class Rep, class Period>
    static constexpr std::int64_t saturate(std::chrono::duration<Rep, Period> span) noexcept {
        // As a double: every other common type overflows for some argument.
        double const exact = static_cast<double>(span.count()) * 1000.0 * static_cast<double>(Period::num) /
                             static_cast<double>(Period::den);
        if (!(exact > 0))
            return 0;
        if (exact >= static_cast<double>(forever))
            return forever;
        auto const whole = static_cast<std::int64_t>(exact);
        return static_cast<double>(whole) < exact ? whole + 1 : whole;
    }

    std::int64_t milliseconds_;
};

/// As long as it takes.
inline constexpr timeout no_limit{std::chrono::milliseconds(timeout::forever)};

/// How a wait behaves beyond its deadline.
struct wait_options {
    /// False: a signal handler that runs meanwhile changes nothing (EINTR is retried). True: it ends the wait with
    /// std::errc::interrupted, so that a signal can cancel.
    bool interruptible = false;
};

namespace detail {

/// A point in time to wait for, or never.
class deadline {
public:
    static deadline never() noexcept { return deadline(INT64_MAX); }
    static deadline after(timeout span) noexcept {
        return span.milliseconds() < timeout::forever ? deadline(now() + span.milliseconds() * million) : never();
    }

    /// Milliseconds for poll(2), rounded up: -1 for never, 0 once passed.
    int for_poll() const noexcept {
        if (at_ == INT64_MAX)
            return -1;
        std::int64_t const left = at_ - now();
        if (left <= 0)
            return 0;
        return left < INT_MAX * million ? static_cast<int>((left + million - 1) / million) : INT_MAX;
    }

    bool is_never() const noexcept { return at_ == INT64_MAX; }
    std::int64_t nanoseconds() const noexcept { return at_; } ///< Of the steady clock.

    /// The span from now; for ever for never.
    timeout left() const noexcept {
        if (at_ == INT64_MAX)
            return std::chrono::milliseconds(timeout::forever);
        std::int64_t const left = at_ - now();
        return std::chrono::nanoseconds(left > 0 ? left : 0);
    }

    bool passed() const noexcept { return at_ != INT64_MAX && now() >= at_; }

private:
    static constexpr std::int64_t million = 1'000'000;

    explicit deadline(std::int64_t at) noexcept : at_(at) {}
    static std::int64_t now() noexcept { return std::chrono::steady_clock::now().time_since_epoch().count(); }

    std::int64_t at_; // nanoseconds of the steady clock
};
static_assert(std::chrono::steady_clock::period::den == 1'000'000'000);

/// The span from now to a point on any clock.
template <class Clock, class Duration>
timeout until(std::chrono::time_point<Clock, Duration> at) {
    auto const now = Clock::now();
    return at > now ? timeout(at - now) : timeout(Duration::zero());
}

} // namespace detail

} // namespace rdma::inline RDMACPP_ABI

#endif
