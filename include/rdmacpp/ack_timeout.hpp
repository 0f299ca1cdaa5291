// SPDX-License-Identifier: MIT
/// @file
/// The ACK timeout of a QP, in the unit that devices have for it.
#pragma once

#include "config.hpp"
#if __cplusplus >= 202002L && !defined(RDMACPP_TWO_VERSIONS) // otherwise config.hpp says what to do

#include <chrono>
#include <cstdint>

namespace rdma::inline RDMACPP_ABI {

/// How long a QP waits for the peer's acknowledgement before it sends again: 4.096 us * 2^n, with n from 1 to 31; n = 0
/// is for ever. Made from any duration, rounded up.
class ack_timeout {
public:
    /// The shortest that is not below the span; 2.4 hours for all that is longer, and for ever for a negative one.
    template <class Rep, class Period>
    constexpr ack_timeout(std::chrono::duration<Rep, Period> span) noexcept // NOLINT: a span is one
        : exponent_(exponent_of(static_cast<double>(span.count()) * 1e9 * static_cast<double>(Period::num) /
                                static_cast<double>(Period::den))) {}

    /// By its exponent, as devices count: 0 to 31, of which the low five bits count.
    static constexpr ack_timeout of_exponent(unsigned exponent) noexcept {
        ack_timeout result{std::chrono::nanoseconds(0)};
        result.exponent_ = static_cast<std::uint8_t>(exponent & 31);
        return result;
    }

    /// The n of 4.096 us * 2^n.
    constexpr std::uint8_t exponent() const noexcept { return exponent_; }

    /// The span; 0 is for ever.
    constexpr std::chrono::nanoseconds span() const noexcept {
        return std::chrono::nanoseconds(exponent_ == 0 ? 0 : unit << exponent_);
    }

private:
    static constexpr std::int64_t unit = 4096; // nanoseconds

    static constexpr std::uint8_t exponent_of(double nanoseconds) noexcept {
        if (nanoseconds < 0)
            return 0;
        std::uint8_t n = 1;
        while (n < 31 && static_cast<double>(unit << n) < nanoseconds)
            ++n;
        return n;
    }

    std::uint8_t exponent_;
};

static_assert(ack_timeout(std::chrono::milliseconds(67)).exponent() == 14 &&
              ack_timeout(std::chrono::milliseconds(68)).exponent() == 15);

} // namespace rdma::inline RDMACPP_ABI

#endif
