// SPDX-License-Identifier: MIT
/// @file
/// The counters of an event channel: what went through it, and what is put off.
#pragma once

#include "config.hpp"
#if __cplusplus >= 202002L && !defined(RDMACPP_TWO_VERSIONS) // otherwise config.hpp says what to do

#include <cstdint>

namespace rdma::inline RDMACPP_ABI {

/// What event_channel::stats() returns. All events that were got are acked once nothing is held.
struct channel_stats {
    std::uint64_t events_got = 0;        ///< Events that C gave, delivered or swallowed.
    std::uint64_t events_acked = 0;      ///< Events acked.
    std::uint64_t events_swallowed = 0;  ///< Of these: for an id already dropped, never delivered.
    std::uint64_t requests_rejected = 0; ///< CONNECT_REQUESTs rejected because nobody took them.
    std::uint64_t events_held = 0;       ///< Events now held: by the program, or released to C.
    std::uint64_t ids_live = 0;          ///< Ids now owned: by a cm_id, or by a CONNECT_REQUEST that is held.
    std::uint64_t ids_awaiting_ack = 0;  ///< Ids dropped, whose rdma_destroy_id waits for the last ack.

    friend bool operator==(channel_stats const&, channel_stats const&) = default;
};

} // namespace rdma::inline RDMACPP_ABI

#endif
