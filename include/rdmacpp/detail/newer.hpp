// SPDX-License-Identifier: MIT
// What newer versions of rdma-core have, found out by asking: there is no version macro.
#pragma once

#include "../config.hpp"
#if __cplusplus >= 202002L // below, config.hpp says what to do

#include "c_api.hpp"

#include <cstdint>

namespace rdma::inline RDMACPP_ABI::detail {

/// rdma-core 60: rdma_resolve_addrinfo and rdma_query_addrinfo.
template <class Id>
concept has_resolve_addrinfo = requires(Id* id, rdma_addrinfo** result) {
    rdma_resolve_addrinfo(id, nullptr, nullptr, nullptr);
    rdma_query_addrinfo(id, result);
};

/// rdma-core 60: rdma_write_cm_event, and the event of type USER that it makes.
template <class Id>
concept has_write_cm_event = requires(Id* id, rdma_cm_event_type type, std::uint64_t arg) {
    rdma_write_cm_event(id, type, 0, arg);
};

} // namespace rdma::inline RDMACPP_ABI::detail

#endif
