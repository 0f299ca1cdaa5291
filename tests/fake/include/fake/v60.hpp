// SPDX-License-Identifier: MIT
//
// What rdma-core 60 and later has more than earlier ones. The fake defines these functions always; they are declared here where the
// installed header does not, so include this only where a program is meant to see them. A program that is to be built as on rdma-core
// 60 takes the folder include_v60 before the system's instead, whose <rdma/rdma_cma.h> has it all under the real names.
#pragma once

#include <fake/c_headers.hpp>

#include <cstdint>
#include <cstring>

#if !defined(RAI_SA)
extern "C" {
int rdma_resolve_addrinfo(rdma_cm_id* id, char const* node, char const* service, rdma_addrinfo const* hints);
int rdma_query_addrinfo(rdma_cm_id* id, rdma_addrinfo** info);
int rdma_write_cm_event(rdma_cm_id* id, rdma_cm_event_type event, int status, std::uint64_t arg);
}
#endif

namespace fake::v60 {

// Event types and flags, as numbers.
inline constexpr int addrinfo_resolved = 16, addrinfo_error = 17, user = 18, internal = 19;
inline constexpr int rai_sa = 0x10, rai_dns = 0x20;

/// A number as an event type, also where the header's enumeration does not go so far: not for constant expressions, and what is
/// stored so is read back as a number (number(), below), which UBSan has nothing against.
inline rdma_cm_event_type type(int number) { return static_cast<rdma_cm_event_type>(number); }

/// The type of an event as a number.
inline int number(rdma_cm_event const& event)
{
    int value = 0;
    static_assert(sizeof value == sizeof event.event);
    std::memcpy(&value, &event.event, sizeof value);
    return value;
}

/// event.param.arg, also where the header has no such member.
inline std::uint64_t arg(rdma_cm_event const& event)
{
    std::uint64_t value = 0;
    std::memcpy(&value, &event.param, sizeof value);
    return value;
}

} // namespace fake::v60
