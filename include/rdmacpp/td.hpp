// SPDX-License-Identifier: MIT
/// @file
/// Thread domains: a promise that one thread at a time uses what is made with them, which then needs no locks.
#pragma once

#include "config.hpp"
#if __cplusplus >= 202002L && !defined(RDMACPP_TWO_VERSIONS) // otherwise config.hpp says what to do

#include "context.hpp"

namespace rdma::inline RDMACPP_ABI {

namespace detail {
struct td_node : node_of<td_node, ibv_td> {
    static constexpr char const* made_by = "ibv_alloc_td";
    static constexpr char const* ended_by = "ibv_dealloc_td";
    static int end(ibv_td* td) noexcept { return ::ibv_dealloc_td(td); }
};
} // namespace detail

/// A borrowed thread domain. It frees nothing and cannot turn into an owner.
class td_ref : public verbs_ref<td_ref, ibv_td> {
public:
    using verbs_ref::verbs_ref;
};

/// An owned thread domain (ibv_alloc_td): give it to a parent_domain, which keeps it alive.
///
/// What is made with it must be used by one thread at a time: the driver takes no locks there.
class [[nodiscard]] td : public verbs_owner<detail::td_node, td_ref> {
public:
    using verbs_owner::verbs_owner;
    /// Empty.
    td() noexcept = default;

#if RDMACPP_EXCEPTIONS
    /// Allocates a thread domain. @throws rdma::error errc::not_bound for an empty context; EOPNOTSUPP where the device
    /// has none
    explicit td(context_ref context) {
        std::error_code ec;
        *this = td(context, ec);
        if (ec)
            detail::throw_error(ec, "ibv_alloc_td", {context.device_name()});
    }
#endif
    /// The twin of the allocating constructor: empty on failure.
    td(context_ref context, std::error_code& ec) noexcept {
        ibv_td_init_attr attr{};
        if (auto* const node = fresh_node(static_cast<bool>(context), ec))
            own(::ibv_alloc_td(context.native_handle(), &attr), node, {detail::keeper(context)}, ec);
    }
};

static_assert(std::is_trivially_copyable_v<td_ref>);
static_assert(detail::move_only<td>);
static_assert(!detail::makes<td, td_ref> && !detail::makes<td, ibv_td*>);

} // namespace rdma::inline RDMACPP_ABI

template <>
struct std::hash<::rdma::td_ref> : ::rdma::RDMACPP_ABI::detail::ref_hash<::rdma::td_ref> {};

#endif
