// SPDX-License-Identifier: MIT
/// @file
/// The names of events, port spaces and QP types.
#pragma once

#include "config.hpp"
#if __cplusplus >= 202002L && !defined(RDMACPP_TWO_VERSIONS) // otherwise config.hpp says what to do

#include "detail/c_api.hpp"
#include "error.hpp"

#include <cstring>
#include <string>
#include <string_view>

namespace rdma::inline RDMACPP_ABI {

/// What an event reports (rdma_cm_event_type). The kernel may send newer ones: let every switch have a default.
enum class cm_event_type {
    addr_resolved =
        RDMA_CM_EVENT_ADDR_RESOLVED, ///< The address was found, and the id has a device: resolve_route() comes next.
    addr_error = RDMA_CM_EVENT_ADDR_ERROR,             ///< The address could not be resolved.
    route_resolved = RDMA_CM_EVENT_ROUTE_RESOLVED,     ///< The route was found: create_qp() and connect() come next.
    route_error = RDMA_CM_EVENT_ROUTE_ERROR,           ///< The route could not be resolved.
    connect_request = RDMA_CM_EVENT_CONNECT_REQUEST,   ///< A client wants to connect: the event carries its new id.
    connect_response = RDMA_CM_EVENT_CONNECT_RESPONSE, ///< The peer has accepted, and the id has no QP of its own: see
                                                       ///< cm_id::establish.
    connect_error = RDMA_CM_EVENT_CONNECT_ERROR,       ///< Connecting, or accepting, failed.
    unreachable = RDMA_CM_EVENT_UNREACHABLE,           ///< The peer does not answer.
    rejected = RDMA_CM_EVENT_REJECTED,                 ///< The peer, or its machine, said no: cm_event::error tells.
    established = RDMA_CM_EVENT_ESTABLISHED,           ///< Connected.
    disconnected = RDMA_CM_EVENT_DISCONNECTED,         ///< The connection is over.
    device_removal = RDMA_CM_EVENT_DEVICE_REMOVAL,     ///< The device is going away: drop what was made on it.
    multicast_join = RDMA_CM_EVENT_MULTICAST_JOIN,     ///< The group was joined.
    multicast_error = RDMA_CM_EVENT_MULTICAST_ERROR,   ///< The group could not be joined, or was lost.
    addr_change = RDMA_CM_EVENT_ADDR_CHANGE,           ///< The address has moved to another device (bonding).
    timewait_exit = RDMA_CM_EVENT_TIMEWAIT_EXIT,       ///< The QP number of an ended connection may be used again.
    addrinfo_resolved = 16,                            ///< rdma-core 60 and newer
    addrinfo_error = 17,                               ///< rdma-core 60 and newer
    user = 18,                                         ///< rdma-core 60 and newer
};

/// The port space of an id: its service, and the type of its QP.
enum class port_space {
    ipoib = RDMA_PS_IPOIB, ///< datagrams over IPoIB
    tcp = RDMA_PS_TCP,     ///< connected
    udp = RDMA_PS_UDP,     ///< datagrams
    ib = RDMA_PS_IB,       ///< InfiniBand's own; connected unless made otherwise
};

/// The type of a QP (ibv_qp_type). An id's follows from its port space.
enum class qp_type {
    rc = IBV_QPT_RC, ///< reliable and connected
    uc = IBV_QPT_UC, ///< connected
    ud = IBV_QPT_UD, ///< datagrams
    raw_packet = IBV_QPT_RAW_PACKET,
    xrc_send = IBV_QPT_XRC_SEND,
    xrc_recv = IBV_QPT_XRC_RECV,
    driver = IBV_QPT_DRIVER, ///< what a device has of its own
};

namespace detail {

/// The type of a C event. It may be newer than the C header, and then must not be read through C's enumeration.
inline cm_event_type type_of(rdma_cm_event const& event) noexcept {
    int number;
    static_assert(sizeof number == sizeof event.event);
    std::memcpy(&number, &event.event, sizeof number);
    return static_cast<cm_event_type>(number);
}

} // namespace detail

/// The name as in the manual pages, without the prefix: "CONNECT_REQUEST". Unknown types give their number.
inline std::string to_string(cm_event_type type) {
    switch (type) {
    case cm_event_type::addrinfo_resolved:
        return "ADDRINFO_RESOLVED"; // older headers and libraries have no names for them
    case cm_event_type::addrinfo_error: return "ADDRINFO_ERROR";
    case cm_event_type::user: return "USER";
    default: break;
    }
    if (type > cm_event_type::timewait_exit)
        return detail::concat({"event ", std::to_string(static_cast<int>(type))});
    constexpr std::string_view prefix = "RDMA_CM_EVENT_";
    std::string_view const name = ::rdma_event_str(static_cast<rdma_cm_event_type>(type));
    return std::string(name.starts_with(prefix) ? name.substr(prefix.size()) : name);
}

} // namespace rdma::inline RDMACPP_ABI

#endif
