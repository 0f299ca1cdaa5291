// SPDX-License-Identifier: MIT
/// @file
/// The ACK timeout of a QP, in the unit that devices have for it.
#pragma once

#include "config.hpp"
#if __cplusplus >= 202002L // below, config.hpp says what to do

#include <chrono>
#include <cstdint>

namespace rdma::inline RDMACPP_ABI {

/// How long a QP waits for the peer's acknowledgement before it sends again: 4.096 us * 2^n, with n from 1 to 31; n = 0
/// is for ever. Made from any duration, rounded up.
class ack_timeout {
public:
    /// The shortest that is not below the span; 4.4 hours for all that is longer, and for ever for a negative one.
    template <class Rep, class Period>
    constexpr ack_timeout(std::chrono::duration<Rep, Period> span) noexcept // NOLINT: a span is one
        : exponent_(exponent_of(std::chrono::duration<double, std::micro>(span).count())) {}

    /// By its exponent, 0 to 31, as devices count.
    static constexpr ack_timeout of_exponent(std::uint8_t exponent) noexcept {
        ack_timeout result{std::chrono::seconds(1)};
        result.exponent_ = static_cast<std::uint8_t>(exponent & 31);
        return result;
    }

    /// The n of 4.096 us * 2^n.
    constexpr std::uint8_t exponent() const noexcept { return exponent_; }

    /// The span in microseconds; 0 is for ever.
    constexpr std::chrono::duration<double, std::micro> span() const noexcept {
        return std::chrono::duration<double, std::micro>(exponent_ == 0 ? 0 : unit * (1U << exponent_));
    }

private:
    static constexpr double unit = 4.096; // microseconds

    static constexpr std::uint8_t exponent_of(double microseconds) noexcept {
        if (microseconds < 0)
            return 0;
        std::uint8_t n = 1;
        while (n < 31 && unit * static_cast<double>(1U << n) < microseconds)
            ++n;
        return n;
    }

    std::uint8_t exponent_;
};

static_assert(ack_timeout(std::chrono::milliseconds(67)).exponent() == 14 &&
              ack_timeout(std::chrono::milliseconds(68)).exponent() == 15);

} // namespace rdma::inline RDMACPP_ABI

#endif
