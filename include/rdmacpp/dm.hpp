// SPDX-License-Identifier: MIT
/// @file
/// Device memory: memory on the RDMA device itself.
#pragma once

#include "config.hpp"
#if __cplusplus >= 202002L && !defined(RDMACPP_TWO_VERSIONS) // otherwise config.hpp says what to do

#include "detail/newer.hpp"
#include "mr.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

namespace rdma::inline RDMACPP_ABI {

namespace detail {
struct dm_node : node_of<dm_node, ibv_dm> {
    using node_of::node_of;
    static constexpr char const* made_by = "ibv_alloc_dm";
    static constexpr char const* ended_by = "ibv_free_dm";
    static constexpr char const* unimported_by = "ibv_unimport_dm";
    static int end(ibv_dm* dm) noexcept { return ::ibv_free_dm(dm); }
    template <class Dm>
    static void unimport([[maybe_unused]] Dm* dm) noexcept {
        if constexpr (has_import_dm<Dm>)
            ibv_unimport_dm(dm);
    }
};
} // namespace detail

/// What owned device memory and a view of it have in common. Offsets and sizes are in bytes; some devices want
/// multiples of 4.
template <class Handle>
class dm_operations {
public:
    /// Copies into it (ibv_memcpy_to_dm).
    void copy_to(std::uint64_t offset, std::span<std::byte const> from, std::error_code& ec) const noexcept {
        ec = raw() ? detail::check_returned(::ibv_memcpy_to_dm(raw(), offset, from.data(), from.size()))
                   : std::error_code(errc::empty_handle);
    }
    /// Copies out of it (ibv_memcpy_from_dm).
    void copy_from(std::uint64_t offset, std::span<std::byte> into, std::error_code& ec) const noexcept {
        ec = raw() ? detail::check_returned(::ibv_memcpy_from_dm(into.data(), raw(), offset, into.size()))
                   : std::error_code(errc::empty_handle);
    }

#if RDMACPP_EXCEPTIONS
    /// The throwing forms. @throws rdma::error
    void copy_to(std::uint64_t offset, std::span<std::byte const> from) const {
        std::error_code ec;
        copy_to(offset, from, ec);
        if (ec)
            detail::throw_error(ec, "ibv_memcpy_to_dm", {std::to_string(from.size()), " bytes"});
    }
    void copy_from(std::uint64_t offset, std::span<std::byte> into) const {
        std::error_code ec;
        copy_from(offset, into, ec);
        if (ec)
            detail::throw_error(ec, "ibv_memcpy_from_dm", {std::to_string(into.size()), " bytes"});
    }
#endif

private:
    ibv_dm* raw() const noexcept { return static_cast<Handle const*>(this)->native_handle(); }
};

/// Borrowed device memory. It frees nothing and cannot turn into an owner.
class dm_ref : public verbs_ref<dm_ref, ibv_dm>, public dm_operations<dm_ref> {
public:
    using verbs_ref::verbs_ref;
};

/// Owned device memory (ibv_alloc_dm); a region of it keeps it: reg_dm_mr.
class [[nodiscard]] dm : public verbs_owner<detail::dm_node, dm_ref>, public dm_operations<dm> {
public:
    using verbs_owner::verbs_owner;
    /// Empty.
    dm() noexcept = default;

#if RDMACPP_EXCEPTIONS
    /// Allocates device memory. @param length in bytes @param log_align its alignment is 2 to the power of this
    /// @throws rdma::error errc::not_bound for an empty context; EOPNOTSUPP where the device has none
    dm(context_ref context, std::size_t length, std::uint32_t log_align = 0) {
        std::error_code ec;
        *this = dm(context, length, log_align, ec);
        if (ec)
            detail::throw_error(ec, "ibv_alloc_dm", {std::to_string(length), " bytes"});
    }
#endif
    /// The twin of the allocating constructor: empty on failure.
    dm(context_ref context, std::size_t length, std::uint32_t log_align, std::error_code& ec) noexcept {
        ibv_alloc_dm_attr attr{};
        attr.length = length;
        attr.log_align_req = log_align;
        if (auto* const node = fresh_node(static_cast<bool>(context), ec))
            own(::ibv_alloc_dm(context.native_handle(), &attr), node, {detail::keeper(context)}, ec);
    }
    /// The device memory of another process, by its handle on a context that was imported, too (ibv_import_dm, from
    /// rdma-core 35 on). Dropped, it is only forgotten (ibv_unimport_dm).
    template <class Dm = ibv_dm, class Context = ibv_context>
        requires detail::has_import_dm<Dm, Context>
    static dm import_dm(context_ref context, std::uint32_t handle, std::error_code& ec) noexcept {
        dm imported;
        if (auto* const node = fresh_node(static_cast<bool>(context), ec, detail::imported_t()))
            imported.own(ibv_import_dm(static_cast<Context*>(context.native_handle()), handle), node,
                         {detail::keeper(context)}, ec);
        return imported;
    }
#if RDMACPP_EXCEPTIONS
    /// The throwing form of import_dm. @throws rdma::error
    template <class Dm = ibv_dm, class Context = ibv_context>
        requires detail::has_import_dm<Dm, Context>
    static dm import_dm(context_ref context, std::uint32_t handle) {
        std::error_code ec;
        dm imported = import_dm<Dm, Context>(context, handle, ec);
        if (ec)
            detail::throw_error(ec, "ibv_import_dm");
        return imported;
    }
#endif
};

/// Registers a part of device memory (ibv_reg_dm_mr), which the region keeps alive. @param allowed with
/// access::zero_based: its addresses begin at 0
inline mr reg_dm_mr(pd_ref pd, dm_ref memory, std::uint64_t offset, std::size_t length, access allowed,
                    std::error_code& ec) noexcept {
    return mr::made_of(memory ? pd : pd_ref(), detail::keeper(memory), ec, [&](ibv_pd* p) noexcept {
        return ::ibv_reg_dm_mr(p, memory.native_handle(), offset, length, static_cast<unsigned>(allowed));
    });
}
#if RDMACPP_EXCEPTIONS
/// The throwing form of reg_dm_mr(..., std::error_code&). @throws rdma::error
inline mr reg_dm_mr(pd_ref pd, dm_ref memory, std::uint64_t offset, std::size_t length, access allowed) {
    std::error_code ec;
    mr made = reg_dm_mr(pd, memory, offset, length, allowed, ec);
    if (ec)
        detail::throw_error(ec, "ibv_reg_dm_mr", {std::to_string(length), " bytes"});
    return made;
}
#endif

static_assert(std::is_trivially_copyable_v<dm_ref>);
static_assert(detail::move_only<dm>);
static_assert(!detail::makes<dm, dm_ref> && !detail::makes<dm, ibv_dm*>);

} // namespace rdma::inline RDMACPP_ABI

template <>
struct std::hash<::rdma::dm_ref> : ::rdma::RDMACPP_ABI::detail::ref_hash<::rdma::dm_ref> {};

#endif
