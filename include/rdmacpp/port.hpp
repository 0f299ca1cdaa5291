// SPDX-License-Identifier: MIT
/// @file
/// The words in which ports and paths are described: states, packet sizes and rates.
#pragma once

#include "config.hpp"
#if __cplusplus >= 202002L && !defined(RDMACPP_TWO_VERSIONS) // otherwise config.hpp says what to do

#include "detail/c_api.hpp"

#include <string>

namespace rdma::inline RDMACPP_ABI {

/// The state of a port (ibv_port_state): `port_state(context.query_port(1).state)`.
enum class port_state {
    nop = IBV_PORT_NOP,                   ///< No state.
    down = IBV_PORT_DOWN,                 ///< No link.
    init = IBV_PORT_INIT,                 ///< The link is there, the subnet manager has not been.
    armed = IBV_PORT_ARMED,               ///< Configured, and about to be active.
    active = IBV_PORT_ACTIVE,             ///< Ready for traffic.
    active_defer = IBV_PORT_ACTIVE_DEFER, ///< Active, with a link that is being repaired.
};

/// The name of a state, as libibverbs gives it.
inline std::string to_string(port_state state) { return ::ibv_port_state_str(static_cast<ibv_port_state>(state)); }

/// How long packets are at most (ibv_mtu).
enum class mtu {
    mtu_256 = IBV_MTU_256,
    mtu_512 = IBV_MTU_512,
    mtu_1024 = IBV_MTU_1024,
    mtu_2048 = IBV_MTU_2048,
    mtu_4096 = IBV_MTU_4096,
};

/// In bytes.
constexpr int bytes(mtu size) noexcept { return 128 << static_cast<int>(size); }

/// How fast a path is (ibv_rate).
enum class rate {
    max = IBV_RATE_MAX,
    rate_2_5_gbps = IBV_RATE_2_5_GBPS,
    rate_5_gbps = IBV_RATE_5_GBPS,
    rate_10_gbps = IBV_RATE_10_GBPS,
    rate_14_gbps = IBV_RATE_14_GBPS,
    rate_20_gbps = IBV_RATE_20_GBPS,
    rate_25_gbps = IBV_RATE_25_GBPS,
    rate_28_gbps = IBV_RATE_28_GBPS,
    rate_30_gbps = IBV_RATE_30_GBPS,
    rate_40_gbps = IBV_RATE_40_GBPS,
    rate_50_gbps = IBV_RATE_50_GBPS,
    rate_56_gbps = IBV_RATE_56_GBPS,
    rate_60_gbps = IBV_RATE_60_GBPS,
    rate_80_gbps = IBV_RATE_80_GBPS,
    rate_100_gbps = IBV_RATE_100_GBPS,
    rate_112_gbps = IBV_RATE_112_GBPS,
    rate_120_gbps = IBV_RATE_120_GBPS,
    rate_168_gbps = IBV_RATE_168_GBPS,
    rate_200_gbps = IBV_RATE_200_GBPS,
    rate_300_gbps = IBV_RATE_300_GBPS,
    rate_400_gbps = IBV_RATE_400_GBPS,
    rate_600_gbps = IBV_RATE_600_GBPS,
    rate_800_gbps = 23,  ///< `IBV_RATE_800_GBPS`, which rdma-core 33 lacks.
    rate_1200_gbps = 24, ///< `IBV_RATE_1200_GBPS`, likewise.
};

/// In megabits per second; 0 or less: unknown (ibv_rate_to_mbps).
inline int to_mbps(rate r) noexcept { return ::ibv_rate_to_mbps(static_cast<ibv_rate>(r)); }
/// The rate of so many megabits per second; max if there is none (mbps_to_ibv_rate).
inline rate from_mbps(int mbps) noexcept { return static_cast<rate>(::mbps_to_ibv_rate(mbps)); }
/// In multiples of 2.5 gigabits per second; -1: none (ibv_rate_to_mult).
inline int to_mult(rate r) noexcept { return ::ibv_rate_to_mult(static_cast<ibv_rate>(r)); }
/// The rate of that multiple; max if there is none (mult_to_ibv_rate).
inline rate from_mult(int mult) noexcept { return static_cast<rate>(::mult_to_ibv_rate(mult)); }

static_assert(bytes(mtu::mtu_256) == 256 && bytes(mtu::mtu_4096) == 4096);

} // namespace rdma::inline RDMACPP_ABI

#endif
