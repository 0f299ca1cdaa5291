// SPDX-License-Identifier: MIT
/// @file
/// The tags of constructors.
#pragma once

#include "config.hpp"
#if __cplusplus >= 202002L && !defined(RDMACPP_TWO_VERSIONS) // otherwise config.hpp says what to do

namespace rdma::inline RDMACPP_ABI {

/// Tags the constructors that take over a C handle, which is theirs to destroy from then on: `cm_event{adopt, raw}`.
struct adopt_t {
    explicit adopt_t() = default;
};
/// The tag itself.
inline constexpr adopt_t adopt{};

/// Tags the constructor that opens nothing: `event_channel{no_init}`.
struct no_init_t {
    explicit no_init_t() = default;
};
/// The tag itself.
inline constexpr no_init_t no_init{};

} // namespace rdma::inline RDMACPP_ABI

#endif
