// SPDX-License-Identifier: MIT
/// @file
/// Parent domains: protection domains with a thread domain, or with an allocator of the program's.
#pragma once

#include "config.hpp"
#if __cplusplus >= 202002L && !defined(RDMACPP_TWO_VERSIONS) // otherwise config.hpp says what to do

#include "pd.hpp"
#include "td.hpp"

namespace rdma::inline RDMACPP_ABI {

namespace detail {
struct parent_domain_node : node_of<parent_domain_node, ibv_pd> {
    static constexpr char const* made_by = "ibv_alloc_parent_domain";
    static constexpr char const* ended_by = "ibv_dealloc_pd";
    static int end(ibv_pd* pd) noexcept { return ::ibv_dealloc_pd(pd); }
};
} // namespace detail

/// An owned parent domain (ibv_alloc_parent_domain). It serves wherever a pd does, and keeps the pd and td that it was
/// made with alive.
class [[nodiscard]] parent_domain : public verbs_owner<detail::parent_domain_node, pd_ref> {
public:
    using verbs_owner::verbs_owner;
    /// Empty.
    parent_domain() noexcept = default;

#if RDMACPP_EXCEPTIONS
    /// Makes a parent domain. @param thread none: it is shared by all threads
    /// @throws rdma::error errc::not_bound for an empty pd; EOPNOTSUPP where the device has none
    explicit parent_domain(pd_ref pd, td_ref thread = {}) {
        std::error_code ec;
        *this = parent_domain(pd, thread, ec);
        if (ec)
            detail::throw_error(ec, "ibv_alloc_parent_domain");
    }
    /// The same with all that C offers, such as an allocator; its pd and td are not looked at, and it is only read.
    /// @throws rdma::error as above
    parent_domain(pd_ref pd, td_ref thread, ibv_parent_domain_init_attr const& more) {
        std::error_code ec;
        *this = parent_domain(pd, thread, more, ec);
        if (ec)
            detail::throw_error(ec, "ibv_alloc_parent_domain");
    }
#endif
    /// The twins of the constructors: empty on failure.
    parent_domain(pd_ref pd, td_ref thread, std::error_code& ec) noexcept
        : parent_domain(pd, thread, ibv_parent_domain_init_attr{}, ec) {}
    parent_domain(pd_ref pd, td_ref thread, ibv_parent_domain_init_attr const& more, std::error_code& ec) noexcept {
        ibv_parent_domain_init_attr attr = more;
        attr.pd = pd.native_handle();
        attr.td = thread.native_handle();
        if (auto* const node = fresh_node(static_cast<bool>(pd), ec))
            own(::ibv_alloc_parent_domain(attr.pd->context, &attr), node, {detail::keeper(pd), detail::keeper(thread)},
                ec);
    }
};

static_assert(detail::move_only<parent_domain>);

} // namespace rdma::inline RDMACPP_ABI

#endif
