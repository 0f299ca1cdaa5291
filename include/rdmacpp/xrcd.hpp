// SPDX-License-Identifier: MIT
/// @file
/// XRC domains: what connects the shared receive queues and the receiving QPs of extended reliable connections.
#pragma once

#include "config.hpp"
#if __cplusplus >= 202002L // below, config.hpp says what to do

#include "context.hpp"
#include "detail/contract.hpp"
#include "verbs_owner.hpp"

#include <type_traits>

#include <fcntl.h>

namespace rdma::inline RDMACPP_ABI {

namespace detail {
struct xrcd_node : verbs_node {
    xrcd_node() noexcept
        : verbs_node(
              &verbs_node::last<xrcd_node>,
              [](void* p) noexcept { return ::ibv_close_xrcd(static_cast<ibv_xrcd*>(p)); }, "ibv_close_xrcd") {}
};
} // namespace detail

/// A borrowed XRC domain. It closes nothing and cannot turn into an owner; what is made with it keeps the xrcd alive.
class xrcd_ref {
public:
    xrcd_ref() noexcept = default;
    /// Borrows an XRC domain of C's; it must outlive what is made with it.
    xrcd_ref(ibv_xrcd* raw) noexcept : raw_(raw) {} // NOLINT: a reference to it is no more than the pointer

    /// The C domain; null when empty.
    ibv_xrcd* native_handle() const noexcept { return raw_; }
    explicit operator bool() const noexcept { return raw_ != nullptr; }

    friend bool operator==(xrcd_ref a, xrcd_ref b) noexcept { return a.raw_ == b.raw_; }

private:
    friend class xrcd;
    friend class cm_id;

    xrcd_ref(ibv_xrcd* raw, detail::verbs_node* node) noexcept : raw_(raw), node_(node) {}

    ibv_xrcd* raw_ = nullptr;
    detail::verbs_node* node_ = nullptr;
};

/// An owned XRC domain of this process (ibv_open_xrcd).
class [[nodiscard]] xrcd : public verbs_owner<ibv_xrcd, detail::xrcd_node> {
public:
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
    /// Takes over a domain that C opened, or that release() gave back. @throws rdma::error errc::null_handle,
    /// errc::already_owned
    xrcd(adopt_t, ibv_xrcd* raw) {
        std::error_code ec;
        *this = xrcd(adopt, raw, ec);
        if (ec)
            detail::throw_error(ec, "ibv_open_xrcd", {"adopt"});
    }
#endif
    /// The twin of the opening constructor: empty on failure.
    xrcd(context_ref context, std::error_code& ec) noexcept {
        ibv_xrcd_init_attr attr{};
        attr.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
        attr.fd = -1;
        attr.oflags = O_CREAT;
        if (auto* const node = fresh_node(static_cast<bool>(context), ec))
            own(::ibv_open_xrcd(context.native_handle(), &attr), node, {context.id_}, ec);
    }
    /// The twin of the adopting constructor: empty on failure.
    xrcd(adopt_t, ibv_xrcd* raw, std::error_code& ec) noexcept { take_over(raw, ec); }

    operator xrcd_ref() const& noexcept { return {raw_, node_}; }
    operator xrcd_ref() const&& = delete;
    void swap(xrcd& other) noexcept { verbs_owner::swap(other); }
    friend void swap(xrcd& a, xrcd& b) noexcept { a.swap(b); }
};

static_assert(std::is_trivially_copyable_v<xrcd_ref>);
static_assert(detail::move_only<xrcd>);
static_assert(!detail::makes<xrcd, xrcd_ref> && !detail::makes<xrcd, ibv_xrcd*>);

} // namespace rdma::inline RDMACPP_ABI

template <>
struct std::hash<rdma::xrcd_ref> {
    std::size_t operator()(rdma::xrcd_ref handle) const noexcept {
        return std::hash<void const*>()(handle.native_handle());
    }
};

#endif
