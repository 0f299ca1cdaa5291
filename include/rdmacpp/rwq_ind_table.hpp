// SPDX-License-Identifier: MIT
/// @file
/// Indirection tables: which work queue a packet goes to, by its hash.
#pragma once

#include "config.hpp"
#if __cplusplus >= 202002L && !defined(RDMACPP_TWO_VERSIONS) // otherwise config.hpp says what to do

#include "wq.hpp"

#include <cstddef>
#include <cstdint>
#include <new>
#include <span>

namespace rdma::inline RDMACPP_ABI {

namespace detail {
struct rwq_ind_table_node : node_of<rwq_ind_table_node, ibv_rwq_ind_table> {
    static constexpr char const* made_by = "ibv_create_rwq_ind_table";
    static constexpr char const* ended_by = "ibv_destroy_rwq_ind_table";
    static int end(ibv_rwq_ind_table* table) noexcept { return ::ibv_destroy_rwq_ind_table(table); }

    rwq_ind_table_node() noexcept = default;
    rwq_ind_table_node(rwq_ind_table_node const&) = delete;
    rwq_ind_table_node& operator=(rwq_ind_table_node const&) = delete;
    ~rwq_ind_table_node() {
        delete[] more_needs;
        delete[] raw_queues;
    }

    ibv_wq** raw_queues = nullptr;
};
} // namespace detail

/// A borrowed indirection table. It destroys nothing and cannot turn into an owner.
class rwq_ind_table_ref : public verbs_ref<rwq_ind_table_ref, ibv_rwq_ind_table> {
public:
    using verbs_ref::verbs_ref;
};

/// An owned indirection table (ibv_create_rwq_ind_table): give it to a QP with qp_init_attr_ex. It keeps its work
/// queues alive, and the QP keeps it.
class [[nodiscard]] rwq_ind_table : public verbs_owner<detail::rwq_ind_table_node, rwq_ind_table_ref> {
public:
    using verbs_owner::verbs_owner;
    /// Empty.
    rwq_ind_table() noexcept = default;

#if RDMACPP_EXCEPTIONS
    /// Makes a table. @param queues a power of two of them; one may stand in several places
    /// @throws rdma::error std::errc::invalid_argument for another number; errc::not_bound if one is empty;
    /// the errno of ibv_create_rwq_ind_table
    rwq_ind_table(context_ref context, std::span<wq_ref const> queues) {
        std::error_code ec;
        *this = rwq_ind_table(context, queues, ec);
        if (ec)
            detail::throw_error(ec, "ibv_create_rwq_ind_table", {std::to_string(queues.size()), " work queues"});
    }
#endif
    /// The twin of the creating constructor: empty on failure.
    rwq_ind_table(context_ref context, std::span<wq_ref const> queues, std::error_code& ec) noexcept {
        std::size_t const n = queues.size();
        if (n == 0 || (n & (n - 1)) != 0) {
            ec = detail::system_error_code(EINVAL);
            return;
        }
        bool complete = static_cast<bool>(context);
        for (std::size_t i = 0; i != n; ++i)
            complete = complete && queues[i];
        auto* const node = fresh_node(complete, ec);
        if (!node)
            return;
        node->more_needs = new (std::nothrow) detail::pinnable*[n];
        node->raw_queues = new (std::nothrow) ibv_wq*[n];
        if (!node->more_needs || !node->raw_queues) {
            delete node;
            ec = detail::system_error_code(ENOMEM);
            return;
        }
        for (std::size_t i = 0; i != n; ++i) {
            node->more_needs[i] = detail::keeper(queues[i]);
            node->raw_queues[i] = queues[i].native_handle();
        }
        ibv_rwq_ind_table_init_attr attr{};
        while ((std::size_t{1} << attr.log_ind_tbl_size) != n)
            ++attr.log_ind_tbl_size;
        attr.ind_tbl = node->raw_queues;
        own(::ibv_create_rwq_ind_table(context.native_handle(), &attr), node, {detail::keeper(context)}, ec);
        if (!node_)
            return;
        for (std::size_t i = 0; i != n; ++i)
            detail::pin(node_->more_needs[i]);
        node_->more_count = n;
    }
};

static_assert(std::is_trivially_copyable_v<rwq_ind_table_ref>);
static_assert(detail::move_only<rwq_ind_table>);
static_assert(!detail::makes<rwq_ind_table, rwq_ind_table_ref>);

} // namespace rdma::inline RDMACPP_ABI

template <>
struct std::hash<::rdma::rwq_ind_table_ref> : ::rdma::RDMACPP_ABI::detail::ref_hash<::rdma::rwq_ind_table_ref> {};

#endif
