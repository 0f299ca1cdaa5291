// SPDX-License-Identifier: MIT
// What not every librdmacm and libibverbs has, found out by asking: there is no version macro.
#pragma once

#include "../config.hpp"
#if __cplusplus >= 202002L && !defined(RDMACPP_TWO_VERSIONS) // otherwise config.hpp says what to do

#include "c_api.hpp"

#include <cerrno>
#include <cstddef>
#include <cstdint>

struct rdma_cm_join_mc_attr_ex; // where there is none it stays incomplete

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

/// rdma-core 34: ibv_reg_dmabuf_mr.
template <class Pd>
concept has_reg_dmabuf_mr = requires(Pd* pd) {
    ibv_reg_dmabuf_mr(pd, std::uint64_t{0}, std::size_t{0}, std::uint64_t{0}, 0, 0);
};

/// rdma-core 35: ibv_import_dm and ibv_unimport_dm.
template <class Dm, class Context = ibv_context>
concept has_import_dm = requires(Dm* dm, Context* context) {
    ibv_import_dm(context, std::uint32_t{0});
    ibv_unimport_dm(dm);
};

/// rdma-core 35: ibv_is_fork_initialized; `None` is always empty.
template <class... None>
concept has_is_fork_initialized = requires {
    ibv_is_fork_initialized(None()...);
};

/// rdma-core 36: ibv_query_qp_data_in_order.
template <class Qp>
concept has_query_qp_data_in_order = requires(Qp* qp, ibv_wr_opcode operation) {
    ibv_query_qp_data_in_order(qp, operation, 0U);
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

/// rdma-core 61: ibv_reg_mr_ex, with attributes of a type that older headers do not have.
template <class Pd, class Attr>
concept has_reg_mr_ex = requires(Pd* pd, Attr attr) {
    ibv_reg_mr_ex(pd, &attr);
};

// ---- What the librdmacm in FreeBSD's base has not: there these fail with ENOSYS ------------------------------------

inline int not_there() noexcept {
    errno = ENOSYS;
    return -1;
}

template <class Id>
int establish(Id* id) noexcept {
    if constexpr (requires { rdma_establish(id); })
        return rdma_establish(id);
    else
        return not_there();
}

template <class Id>
int init_qp_attr(Id* id, ibv_qp_attr& attr, int& mask) noexcept {
    if constexpr (requires { rdma_init_qp_attr(id, &attr, &mask); })
        return rdma_init_qp_attr(id, &attr, &mask);
    else
        return not_there();
}

template <class Id>
int reject_ece(Id* id, void const* data, std::uint8_t size) noexcept {
    if constexpr (requires { rdma_reject_ece(id, data, size); })
        return rdma_reject_ece(id, data, size);
    else
        return not_there();
}

template <class Id, class Ece>
int set_local_ece(Id* id, Ece& ece) noexcept {
    if constexpr (requires { rdma_set_local_ece(id, &ece); })
        return rdma_set_local_ece(id, &ece);
    else
        return not_there();
}

template <class Id, class Ece>
int get_remote_ece(Id* id, Ece& ece) noexcept {
    if constexpr (requires { rdma_get_remote_ece(id, &ece); })
        return rdma_get_remote_ece(id, &ece);
    else
        return not_there();
}

// RDMA_CM_JOIN_MC_ATTR_ADDRESS, RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS, RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER and
// RDMA_OPTION_ID_ACK_TIMEOUT.
inline constexpr std::uint32_t join_mc_attr_address = 1, join_mc_attr_join_flags = 2;
inline constexpr int mc_join_flag_sendonly_fullmember = 1;
inline constexpr int option_id_ack_timeout = 3;

template <class Id, class Attr = rdma_cm_join_mc_attr_ex>
int join_multicast_ex(Id* id, sockaddr* group, std::uint32_t flag, void* context) noexcept {
    if constexpr (requires { sizeof(Attr); }) {
        Attr attr{join_mc_attr_address | join_mc_attr_join_flags, flag, group};
        return rdma_join_multicast_ex(id, &attr, context);
    } else
        return not_there();
}

} // namespace rdma::inline RDMACPP_ABI::detail

#endif
