// SPDX-License-Identifier: MIT
/// @file
/// What may be done with registered memory: the flags of C, and what they have to be for a purpose.
#pragma once

#include "config.hpp"
#if __cplusplus >= 202002L && !defined(RDMACPP_TWO_VERSIONS) // otherwise config.hpp says what to do

#include "device.hpp"

namespace rdma::inline RDMACPP_ABI {

/// What may be done with memory (ibv_access_flags); combine with `|`. Reading it locally is always allowed.
///
/// Flags that this header does not know are passed through: `access(1U << 9)`.
enum class access : unsigned {
    none = 0,                             ///< Only read, locally: enough for what is sent.
    local_write = IBV_ACCESS_LOCAL_WRITE, ///< The device may write: receives and the sink of reads.
    remote_write =
        IBV_ACCESS_REMOTE_WRITE,          ///< Needs local_write. On iWARP also the sink of our own RDMA reads needs it.
    remote_read = IBV_ACCESS_REMOTE_READ, ///< Peers that have the key may read.
    remote_atomic = IBV_ACCESS_REMOTE_ATOMIC, ///< Needs local_write.
    mw_bind = IBV_ACCESS_MW_BIND,             ///< Memory windows may be bound to it.
    zero_based = IBV_ACCESS_ZERO_BASED,       ///< Addressed from 0, by peers and in scatter/gather elements.
    on_demand = IBV_ACCESS_ON_DEMAND,         ///< Pages are not pinned, but fetched when they are used.
    huge_tlb = IBV_ACCESS_HUGETLB,            ///< The memory is of huge pages.
    flush_global = 1U << 8,     ///< wr_batch::flush may make it visible (IBV_ACCESS_FLUSH_GLOBAL, of rdma-core 50).
    flush_persistent = 1U << 9, ///< wr_batch::flush may make it durable (IBV_ACCESS_FLUSH_PERSISTENT, of rdma-core 50).
    relaxed_ordering = IBV_ACCESS_RELAXED_ORDERING, ///< A hint, dropped where it is not known.
};
/// The flags of both, of one and the other, and of all but these.
constexpr access operator|(access a, access b) noexcept {
    return static_cast<access>(static_cast<unsigned>(a) | static_cast<unsigned>(b));
}
constexpr access operator&(access a, access b) noexcept {
    return static_cast<access>(static_cast<unsigned>(a) & static_cast<unsigned>(b));
}
constexpr access operator~(access a) noexcept { return static_cast<access>(~static_cast<unsigned>(a)); }
constexpr access& operator|=(access& a, access b) noexcept { return a = a | b; }
constexpr access& operator&=(access& a, access b) noexcept { return a = a & b; }

/// @name What memory needs for a purpose; combine with `|` for several.
/// @{
constexpr access for_send() noexcept { return access::none; }               ///< We send from it, or write.
constexpr access for_recv() noexcept { return access::local_write; }        ///< We receive into it.
constexpr access for_remote_read() noexcept { return access::remote_read; } ///< The peer reads it.
/// The peer writes it.
constexpr access for_remote_write() noexcept { return access::remote_write | access::local_write; }
/// The peer's atomics change it.
constexpr access for_remote_atomic() noexcept { return access::remote_atomic | access::local_write; }
/// We read the peer's memory into it: on iWARP that takes remote write access, which elsewhere would only be a risk.
constexpr access for_read_sink(transport_type transport) noexcept {
    return transport == transport_type::iwarp ? for_remote_write() : access::local_write;
}
/// Our atomics leave the value before in it.
constexpr access for_atomic_result() noexcept { return access::local_write; }
/// @}

} // namespace rdma::inline RDMACPP_ABI

#endif
