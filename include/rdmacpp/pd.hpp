// SPDX-License-Identifier: MIT
/// @file
/// Protection domains.
#pragma once

#include "config.hpp"
#if __cplusplus >= 202002L && !defined(RDMACPP_TWO_VERSIONS) // otherwise config.hpp says what to do

#include "context.hpp"

#include <cstdint>

namespace rdma::inline RDMACPP_ABI {

namespace detail {
struct pd_node : node_of<pd_node, ibv_pd> {
    using node_of::node_of;
    static constexpr char const* made_by = "ibv_alloc_pd";
    static constexpr char const* ended_by = "ibv_dealloc_pd";
    static constexpr char const* unimported_by = "ibv_unimport_pd";
    static int end(ibv_pd* pd) noexcept { return ::ibv_dealloc_pd(pd); }
    static void unimport(ibv_pd* pd) noexcept { ::ibv_unimport_pd(pd); }
};
} // namespace detail

/// A borrowed protection domain: of a pd, or an id's own (cm_id::pd), which belongs to librdmacm. It frees nothing and
/// cannot turn into an owner; what is made from it keeps the pd, or the id's C object, alive.
class pd_ref : public verbs_ref<pd_ref, ibv_pd> {
public:
    using verbs_ref::verbs_ref;
};

/// An owned protection domain (ibv_alloc_pd). To use it with an id, make it from that id's context: cm_id::verbs.
class [[nodiscard]] pd : public verbs_owner<detail::pd_node, pd_ref> {
public:
    using verbs_owner::verbs_owner;
    /// Empty.
    pd() noexcept = default;

#if RDMACPP_EXCEPTIONS
    /// Allocates a protection domain on a device.
    /// @throws rdma::error errc::not_bound for an empty context; the errno of ibv_alloc_pd
    explicit pd(context_ref context) {
        std::error_code ec;
        *this = pd(context, ec);
        if (ec)
            detail::throw_error(ec, "ibv_alloc_pd", {context.device_name()});
    }
#endif
    /// The twin of the allocating constructor: empty on failure.
    pd(context_ref context, std::error_code& ec) noexcept {
        if (auto* const node = fresh_node(static_cast<bool>(context), ec))
            own(::ibv_alloc_pd(context.native_handle()), node, {detail::keeper(context)}, ec);
    }

    /// The PD of another process, by its handle on a context that was imported, too (ibv_import_pd). Dropped, it is
    /// only forgotten (ibv_unimport_pd).
    static pd import_pd(context_ref context, std::uint32_t handle, std::error_code& ec) noexcept {
        pd imported;
        if (auto* const node = fresh_node(static_cast<bool>(context), ec, detail::imported_t()))
            imported.own(::ibv_import_pd(context.native_handle(), handle), node, {detail::keeper(context)}, ec);
        return imported;
    }
#if RDMACPP_EXCEPTIONS
    /// The throwing form of import_pd. @throws rdma::error
    static pd import_pd(context_ref context, std::uint32_t handle) {
        std::error_code ec;
        pd imported = import_pd(context, handle, ec);
        if (ec)
            detail::throw_error(ec, "ibv_import_pd");
        return imported;
    }
#endif
};

static_assert(std::is_trivially_copyable_v<pd_ref>);
static_assert(detail::move_only<pd>);
static_assert(!detail::makes<pd, pd_ref> && !detail::makes<pd, ibv_pd*>);

} // namespace rdma::inline RDMACPP_ABI

template <>
struct std::hash<::rdma::pd_ref> : ::rdma::RDMACPP_ABI::detail::ref_hash<::rdma::pd_ref> {};

#endif
