// SPDX-License-Identifier: MIT
/// @file
/// XRC domains: what connects the shared receive queues and the receiving QPs of extended reliable connections.
#pragma once

#include "config.hpp"
#if __cplusplus >= 202002L && !defined(RDMACPP_TWO_VERSIONS) // otherwise config.hpp says what to do

#include "context.hpp"
#include "detail/contract.hpp"
#include "verbs_owner.hpp"

#include <type_traits>

#include <fcntl.h>

namespace rdma::inline RDMACPP_ABI {

namespace detail {
struct xrcd_node : node_of<xrcd_node, ibv_xrcd> {
    static constexpr char const* made_by = "ibv_open_xrcd";
    static constexpr char const* ended_by = "ibv_close_xrcd";
    static int end(ibv_xrcd* xrcd) noexcept { return ::ibv_close_xrcd(xrcd); }
};
} // namespace detail

/// A borrowed XRC domain. It closes nothing and cannot turn into an owner; what is made with it keeps the xrcd alive.
class xrcd_ref : public verbs_ref<xrcd_ref, ibv_xrcd> {
public:
    using verbs_ref::verbs_ref;
};

/// An owned XRC domain of this process (ibv_open_xrcd).
class [[nodiscard]] xrcd : public verbs_owner<detail::xrcd_node, xrcd_ref> {
public:
    using verbs_owner::verbs_owner;
    /// Empty.
    xrcd() noexcept = default;

#if RDMACPP_EXCEPTIONS
    /// Opens a domain that no other process shares.
    /// @throws rdma::error errc::not_bound for an empty context; EOPNOTSUPP where the device has no XRC
    explicit xrcd(context_ref context) {
        std::error_code ec;
        *this = xrcd(context, ec);
        if (ec)
            detail::throw_error(ec, "ibv_open_xrcd", {context.device_name()});
    }
#endif
    /// The twin of the opening constructor: empty on failure.
    xrcd(context_ref context, std::error_code& ec) noexcept {
        ibv_xrcd_init_attr attr{};
        attr.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
        attr.fd = -1;
        attr.oflags = O_CREAT;
        if (auto* const node = fresh_node(static_cast<bool>(context), ec))
            own(::ibv_open_xrcd(context.native_handle(), &attr), node, {detail::keeper(context)}, ec);
    }
};

static_assert(std::is_trivially_copyable_v<xrcd_ref>);
static_assert(detail::move_only<xrcd>);
static_assert(!detail::makes<xrcd, xrcd_ref> && !detail::makes<xrcd, ibv_xrcd*>);

} // namespace rdma::inline RDMACPP_ABI

template <>
struct std::hash<::rdma::xrcd_ref> : ::rdma::RDMACPP_ABI::detail::ref_hash<::rdma::xrcd_ref> {};

#endif
