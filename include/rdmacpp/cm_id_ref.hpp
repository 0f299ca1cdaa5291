// SPDX-License-Identifier: MIT
/// @file
/// A view of a connection manager id: who it is, and its addresses.
#pragma once

#include "config.hpp"
#if __cplusplus >= 202002L && !defined(RDMACPP_TWO_VERSIONS) // otherwise config.hpp says what to do

#include "address.hpp"
#include "detail/c_api.hpp"
#include "event_type.hpp"

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <system_error>
#include <type_traits>

namespace rdma::inline RDMACPP_ABI {

/// What an owned id and a view of one have in common: identity and addresses. Every member only reads the C struct.
class cm_id_base {
public:
    /// The C id; null when empty.
    rdma_cm_id* native_handle() const noexcept { return raw_; }
    explicit operator bool() const noexcept { return raw_ != nullptr; }

    /// The user's pointer (`id->context`). Null for an id from a CONNECT_REQUEST, until set_user_context.
    void* user_context() const noexcept { return raw_ ? raw_->context : nullptr; }
    /// Sets it; C and the library only keep it.
    void set_user_context(void* context) const noexcept {
        if (raw_)
            raw_->context = context;
    }

    /// The local address (rdma_get_local_addr); empty before bind or resolve_addr. The port is in host byte order, and
    /// the real one after listening on port 0.
    address local_addr() const noexcept { return raw_ ? address(::rdma_get_local_addr(raw_)) : address(); }

    /// The peer's address (rdma_get_peer_addr); empty before resolve_addr, and for a listener.
    address peer_addr() const noexcept { return raw_ ? address(::rdma_get_peer_addr(raw_)) : address(); }

    /// The ports of the two addresses, in host byte order (rdma_get_src_port, rdma_get_dst_port); 0 where there is
    /// none.
    std::uint16_t src_port() const noexcept { return raw_ ? ntohs(::rdma_get_src_port(raw_)) : std::uint16_t{0}; }
    std::uint16_t dst_port() const noexcept { return raw_ ? ntohs(::rdma_get_dst_port(raw_)) : std::uint16_t{0}; }

    /// The GIDs and the partition key of its path; zeros before a device is bound.
    ibv_gid sgid() const noexcept { return raw_ ? raw_->route.addr.addr.ibaddr.sgid : ibv_gid{}; }
    ibv_gid dgid() const noexcept { return raw_ ? raw_->route.addr.addr.ibaddr.dgid : ibv_gid{}; }
    std::uint16_t pkey() const noexcept { return raw_ ? ntohs(raw_->route.addr.addr.ibaddr.pkey) : std::uint16_t{0}; }

    /// The path records of its route (`id->route`), num_paths() of them; none on iWARP, and before ROUTE_RESOLVED.
    ibv_sa_path_rec const* path_rec() const noexcept { return raw_ ? raw_->route.path_rec : nullptr; }
    int num_paths() const noexcept { return raw_ ? raw_->route.num_paths : 0; }

    /// The type of its QP, which follows from the port space.
    ::rdma::qp_type qp_type() const noexcept {
        return raw_ ? static_cast<::rdma::qp_type>(raw_->qp_type) : ::rdma::qp_type::rc;
    }

    /// The port space it was made in.
    ::rdma::port_space port_space() const noexcept {
        return raw_ ? static_cast<::rdma::port_space>(raw_->ps) : ::rdma::port_space::tcp;
    }

    /// The device's port in use; 0 before a device is bound.
    std::uint8_t port_num() const noexcept { return raw_ ? raw_->port_num : std::uint8_t{0}; }

protected:
    cm_id_base() noexcept = default;
    explicit cm_id_base(rdma_cm_id* raw) noexcept : raw_(raw) {}
    ~cm_id_base() = default;
    cm_id_base(cm_id_base const&) noexcept = default;
    cm_id_base& operator=(cm_id_base const&) noexcept = default;

    rdma_cm_id* raw_ = nullptr;
};

/// A borrowed id, as an event names it: a key for maps, and good for logs. It owns nothing and cannot turn into an
/// owner. Comparing and hashing work also after the id is gone; everything else needs it alive, as it is while an event
/// that names it is held.
class cm_id_ref : public cm_id_base {
public:
    cm_id_ref() noexcept = default;
    explicit cm_id_ref(rdma_cm_id* raw) noexcept : cm_id_base(raw) {}

    friend bool operator==(cm_id_ref a, cm_id_ref b) noexcept { return a.raw_ == b.raw_; }
};

static_assert(std::is_trivially_copyable_v<cm_id_ref> && sizeof(cm_id_ref) == sizeof(void*));
static_assert(!std::is_convertible_v<rdma_cm_id*, cm_id_ref>);

/// The C address of the id and its two socket addresses: "0x55...c0 10.0.0.1:7471 -> 10.0.0.2:40000".
inline std::string to_string(cm_id_ref id) {
    if (!id)
        return "none";
    char pointer[24];
    std::snprintf(pointer, sizeof pointer, "%p", static_cast<void*>(id.native_handle()));
    return detail::concat({pointer, " ", to_string(id.local_addr()), " -> ", to_string(id.peer_addr())});
}

} // namespace rdma::inline RDMACPP_ABI

template <>
struct std::hash<::rdma::cm_id_ref> {
    std::size_t operator()(::rdma::cm_id_ref id) const noexcept { return std::hash<void*>()(id.native_handle()); }
};

#endif
