// SPDX-License-Identifier: MIT
/// @file
/// The parameters of connect and accept.
#pragma once

#include "config.hpp"
#if __cplusplus >= 202002L && !defined(RDMACPP_TWO_VERSIONS) // otherwise config.hpp says what to do

#include "detail/c_api.hpp"
#include "error.hpp"
#include "private_data.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <system_error>

namespace rdma::inline RDMACPP_ABI {

/// For rnr_retry_count: wait for the peer's receive for ever. As a retry_count, 7 is just seven.
inline constexpr std::uint8_t infinite_rnr_retry = 7;

/// "As many as the device can", for responder_resources and initiator_depth (RDMA_MAX_RESP_RES, RDMA_MAX_INIT_DEPTH).
inline constexpr std::uint8_t device_maximum = 0xFF;

/// The parameters of a connection (rdma_conn_param). The defaults are those that librdmacm uses when it is given none.
///
/// The bytes of private_data are only read during the call; more than the transport carries is an error, never
/// truncated.
struct conn_param {
    std::span<std::byte const> private_data = {}; ///< At most 255 bytes; see private_data_limit for each operation.
    std::uint8_t responder_resources =
        device_maximum; ///< RDMA reads the peer may have in flight towards us; 0 forbids them.
    std::uint8_t initiator_depth = device_maximum;     ///< RDMA reads we may have in flight; 0 forbids them.
    std::uint8_t flow_control = 0;                     ///< Whether hardware flow control is available.
    std::uint8_t retry_count = 7;                      ///< Transport retries, 0 to 7 (ignored by accept).
    std::uint8_t rnr_retry_count = infinite_rnr_retry; ///< Retries when the peer has no receive posted, 0 to 7.
    bool srq = false;                                  ///< Only with a QP number: that QP has a shared receive queue.
    std::uint32_t qp_num = 0;                          ///< Only for an id without a QP of its own.
};

namespace detail {

/// Whether this many bytes can travel at all; on iWARP, siw corrupts the handshake beyond its limit.
inline std::error_code check_private_data(std::span<std::byte const> bytes, ibv_context const* device) noexcept {
    if (bytes.size() > private_data_limit::any)
        return errc::private_data_too_long;
    if (bytes.size() > private_data_limit::iwarp && device && device->device->transport_type == IBV_TRANSPORT_IWARP)
        return errc::private_data_iwarp;
    return {};
}

inline std::error_code check(conn_param const& param, ibv_context const* device) noexcept {
    if (param.retry_count > 7 || param.rnr_retry_count > 7) // three bits each: 8 would be sent as 0
        return errc::retry_count_out_of_range;
    return check_private_data(param.private_data, device);
}

inline rdma_conn_param to_c(conn_param const& param) noexcept {
    rdma_conn_param c{};
    c.private_data = param.private_data.data();
    c.private_data_len = static_cast<std::uint8_t>(param.private_data.size());
    c.responder_resources = param.responder_resources;
    c.initiator_depth = param.initiator_depth;
    c.flow_control = param.flow_control;
    c.retry_count = param.retry_count;
    c.rnr_retry_count = param.rnr_retry_count;
    c.srq = param.srq;
    c.qp_num = param.qp_num;
    return c;
}

} // namespace detail

} // namespace rdma::inline RDMACPP_ABI

#endif
