// SPDX-License-Identifier: MIT
// What newer versions of rdma-core have, found out by asking: there is no version macro.
#pragma once

#include "../config.hpp"
#if __cplusplus >= 202002L // below, config.hpp says what to do

#include "c_api.hpp"

#include <cstddef>
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

/// rdma-core 44: ibv_wr_atomic_write.
template <class Qp>
concept has_wr_atomic_write = requires(Qp* qp, void const* bytes) {
    ibv_wr_atomic_write(qp, 0U, std::uint64_t{0}, bytes);
};

/// rdma-core 50: ibv_wr_flush.
template <class Qp>
concept has_wr_flush = requires(Qp* qp) {
    ibv_wr_flush(qp, 0U, std::uint64_t{0}, std::size_t{0}, std::uint8_t{0}, std::uint8_t{0});
};

/// rdma-core 57: ibv_reg_mr_ex, with attributes of a type that older headers do not have.
template <class Pd, class Attr>
concept has_reg_mr_ex = requires(Pd* pd, Attr attr) {
    ibv_reg_mr_ex(pd, &attr);
};

} // namespace rdma::inline RDMACPP_ABI::detail

#endif
