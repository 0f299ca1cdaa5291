// SPDX-License-Identifier: MIT
/// @file
/// Memory regions: what a device may read and write.
#pragma once

#include "config.hpp"
#if __cplusplus >= 202002L && !defined(RDMACPP_TWO_VERSIONS) // otherwise config.hpp says what to do

#include "access.hpp"
#include "detail/newer.hpp"
#include "pd.hpp"

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <type_traits>

namespace rdma::inline RDMACPP_ABI {

namespace detail {

struct mr_node : node_of<mr_node, ibv_mr> {
    using node_of::node_of;
    static constexpr char const* made_by = "ibv_reg_mr";
    static constexpr char const* ended_by = "ibv_dereg_mr";
    static constexpr char const* unimported_by = "ibv_unimport_mr";
    static int end(ibv_mr* mr) noexcept { return ::ibv_dereg_mr(mr); }
    static void unimport(ibv_mr* mr) noexcept { ::ibv_unimport_mr(mr); }
    void recall() noexcept { need_again({object()->pd}); }
};

/// A vector, an array, a span...: elements one after the other, that can be overwritten, and outlive the call.
template <class Range>
concept writable_memory = requires(Range& range) {
    *std::data(range) = *std::data(range);
    static_cast<void*>(std::data(range));
    std::size(range);
}
&&(std::is_lvalue_reference_v<Range> || requires { typename Range::element_type; });

} // namespace detail

/// Memory of a peer, as it told us: an address in its space, and the key of its region.
struct remote_memory {
    std::uint64_t address; ///< Where it begins, in the peer's address space.
    std::uint32_t rkey;    ///< Of its region (ibv_mr::rkey).
};

/// What an owned region and a view of one have in common. On an empty one, addr and length are nothing, and the others
/// a breach of their precondition (RDMACPP_ASSERT).
template <class Handle>
class region {
public:
    /// Where the registered memory begins; null when the handle is empty.
    void* addr() const noexcept { return raw() ? raw()->addr : nullptr; }
    /// Its length in bytes; 0 when the handle is empty.
    std::size_t length() const noexcept { return raw() ? raw()->length : 0; }
    /// The key that scatter/gather elements name it by.
    std::uint32_t lkey() const noexcept { return valid().lkey; }
    /// The key that a peer names it by: see remote().
    std::uint32_t rkey() const noexcept { return valid().rkey; }

    /// What to tell a peer so that it can read or write the region, from `offset` on.
    remote_memory remote(std::size_t offset = 0) const noexcept {
        RDMACPP_ASSERT(offset <= valid().length);
        return {reinterpret_cast<std::uintptr_t>(valid().addr) + offset, valid().rkey};
    }
    /// A scatter/gather element of the region: `length` bytes from `offset`.
    ibv_sge sge(std::size_t offset, std::size_t length) const noexcept {
        RDMACPP_ASSERT(offset <= valid().length && length <= valid().length - offset);
        return {reinterpret_cast<std::uintptr_t>(valid().addr) + offset, static_cast<std::uint32_t>(length),
                valid().lkey};
    }
    /// The whole region as one element. Precondition, asserted: its length fits into one, that is 32 bits.
    ibv_sge sge() const noexcept {
        RDMACPP_ASSERT(valid().length <= UINT32_MAX);
        return sge(0, valid().length);
    }

private:
    ibv_mr* raw() const noexcept { return static_cast<Handle const*>(this)->native_handle(); }
    ibv_mr const& valid() const noexcept {
        RDMACPP_ASSERT(raw());
        return *raw();
    }
};

/// A borrowed memory region. It deregisters nothing and cannot turn into an owner.
class mr_ref : public verbs_ref<mr_ref, ibv_mr>, public region<mr_ref> {
public:
    using verbs_ref::verbs_ref;
};

class mr;

/// The other ways to make a region, each named as its C function. The twins return an empty one on failure.
template <class Mr>
class mr_kinds {
public:
    /// Registers memory that peers and scatter/gather elements address from `iova` on (ibv_reg_mr_iova).
    static Mr reg_mr_iova(pd_ref pd, std::span<std::byte> memory, std::uint64_t iova, access allowed,
                          std::error_code& ec) noexcept {
        Mr made;
        made.make(pd, ec, [&](ibv_pd* p) noexcept {
            return ::ibv_reg_mr_iova2(p, memory.data(), memory.size(), iova, static_cast<unsigned>(allowed));
        });
        return made;
    }
    /// Registers the whole address space, to be fetched when it is used (ibv_reg_mr from 0 to SIZE_MAX, on demand):
    /// for devices whose query_device_ex tells of IBV_ODP_SUPPORT_IMPLICIT.
    static Mr reg_implicit(pd_ref pd, access allowed, std::error_code& ec) noexcept {
        Mr made;
        made.make(pd, ec, [&](ibv_pd* p) noexcept {
            return (::ibv_reg_mr)(p, nullptr, SIZE_MAX, static_cast<int>(allowed | access::on_demand));
        });
        return made;
    }
    /// Registers memory of another device, such as a GPU, by its dma-buf (ibv_reg_dmabuf_mr, from rdma-core 34 on).
    /// @param fd the caller's
    template <class Pd = ibv_pd>
        requires detail::has_reg_dmabuf_mr<Pd>
    static Mr reg_dmabuf_mr(pd_ref pd, std::uint64_t offset, std::size_t length, std::uint64_t iova, int fd,
                            access allowed, std::error_code& ec) noexcept {
        Mr made;
        made.make(pd, ec, [&](Pd* p) noexcept {
            return ibv_reg_dmabuf_mr(p, offset, length, iova, fd, static_cast<int>(allowed));
        });
        return made;
    }
    /// A region that swallows what is written to it, and reads as zeros (ibv_alloc_null_mr).
    static Mr alloc_null_mr(pd_ref pd, std::error_code& ec) noexcept {
        Mr made;
        made.make(pd, ec, [](ibv_pd* p) noexcept { return ::ibv_alloc_null_mr(p); });
        return made;
    }
    /// The region of another process, by its handle on a PD that was imported, too (ibv_import_mr). Dropped, it is only
    /// forgotten (ibv_unimport_mr).
    static Mr import_mr(pd_ref pd, std::uint32_t handle, std::error_code& ec) noexcept {
        Mr made;
        made.make(
            pd, ec, [&](ibv_pd* p) noexcept { return ::ibv_import_mr(p, handle); }, nullptr, detail::imported_t());
        return made;
    }

    /// Registers with all that newer versions offer (ibv_reg_mr_ex, from rdma-core 61 on). @param attr an
    /// ibv_mr_init_attr, which is only read
    template <class Attr>
        requires detail::has_reg_mr_ex<ibv_pd, Attr>
    static Mr reg_mr_ex(pd_ref pd, Attr const& attr, std::error_code& ec) noexcept {
        Attr copy = attr;
        Mr made;
        made.make(pd, ec, [&](ibv_pd* p) noexcept { return ibv_reg_mr_ex(p, &copy); });
        return made;
    }

#if RDMACPP_EXCEPTIONS
    /// The throwing forms. @throws rdma::error errc::not_bound for an empty pd; the errno of the call
    template <class Attr>
        requires detail::has_reg_mr_ex<ibv_pd, Attr>
    static Mr reg_mr_ex(pd_ref pd, Attr const& attr) {
        std::error_code ec;
        return checked(reg_mr_ex(pd, attr, ec), ec, "ibv_reg_mr_ex");
    }
    static Mr reg_mr_iova(pd_ref pd, std::span<std::byte> memory, std::uint64_t iova, access allowed) {
        std::error_code ec;
        return checked(reg_mr_iova(pd, memory, iova, allowed, ec), ec, "ibv_reg_mr_iova");
    }
    static Mr reg_implicit(pd_ref pd, access allowed) {
        std::error_code ec;
        return checked(reg_implicit(pd, allowed, ec), ec, "ibv_reg_mr");
    }
    template <class Pd = ibv_pd>
        requires detail::has_reg_dmabuf_mr<Pd>
    static Mr reg_dmabuf_mr(pd_ref pd, std::uint64_t offset, std::size_t length, std::uint64_t iova, int fd,
                            access allowed) {
        std::error_code ec;
        return checked(reg_dmabuf_mr<Pd>(pd, offset, length, iova, fd, allowed, ec), ec, "ibv_reg_dmabuf_mr");
    }
    static Mr alloc_null_mr(pd_ref pd) {
        std::error_code ec;
        return checked(alloc_null_mr(pd, ec), ec, "ibv_alloc_null_mr");
    }
    static Mr import_mr(pd_ref pd, std::uint32_t handle) {
        std::error_code ec;
        return checked(import_mr(pd, handle, ec), ec, "ibv_import_mr");
    }

private:
    static Mr checked(Mr made, std::error_code const& ec, char const* function) {
        if (ec)
            detail::throw_error(ec, function);
        return made;
    }
#endif
};

/// Advice about pieces of regions that are paged on demand (ibv_advise_mr): to fetch them before they are used.
/// @param advice such as IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE @param flags of ibv_advise_mr_flags: with
/// IBV_ADVISE_MR_FLAG_FLUSH it blocks until they are there
template <class Pieces = std::span<ibv_sge const>>
void advise_mr(pd_ref pd, ibv_advise_mr_advice advice, std::uint32_t flags, Pieces pieces,
               std::error_code& ec) noexcept {
    ec = pd ? detail::check_returned(::ibv_advise_mr(pd.native_handle(), advice, flags,
                                                     const_cast<ibv_sge*>(pieces.data()), // C only reads them
                                                     static_cast<std::uint32_t>(pieces.size())))
            : std::error_code(errc::not_bound);
}
#if RDMACPP_EXCEPTIONS
/// The throwing form of advise_mr(..., std::error_code&). @throws rdma::error
template <class Pieces = std::span<ibv_sge const>>
void advise_mr(pd_ref pd, ibv_advise_mr_advice advice, std::uint32_t flags, Pieces pieces) {
    std::error_code ec;
    advise_mr(pd, advice, flags, pieces, ec);
    if (ec)
        detail::throw_error(ec, "ibv_advise_mr");
}
#endif

/// An owned memory region (ibv_reg_mr). It keeps its PD alive, and memory windows that are bound to it keep it.
/// Dropped, it is deregistered (ibv_dereg_mr, and so rdma_dereg_mr).
///
/// The memory is the caller's: it must stay until the region is gone, and until every work request that names it has
/// completed.
class [[nodiscard]] mr : public verbs_owner<detail::mr_node, mr_ref>, public region<mr>, public mr_kinds<mr> {
public:
    using verbs_owner::verbs_owner;
    /// Empty.
    mr() noexcept = default;

#if RDMACPP_EXCEPTIONS
    /// Registers memory with a protection domain, which is kept alive. Pins its pages, which takes time, unless
    /// access::on_demand is given.
    /// @param pd a pd, or cm_id::pd()
    /// @param memory at least one byte
    /// @param allowed what may be done with it; for_remote_read() and its like say what a purpose needs
    /// @throws rdma::error errc::not_bound for an empty pd; the errno of ibv_reg_mr. ENOMEM names the size and, if
    /// there is one, the limit of locked memory.
    mr(pd_ref pd, std::span<std::byte> memory, access allowed) { reg(pd, memory.data(), memory.size(), allowed); }
    mr(pd_ref pd, void* memory, std::size_t size, access allowed) { reg(pd, memory, size, allowed); }
    /// The same of anything whose elements lie one after the other: a vector, an array, a span.
    template <detail::writable_memory Range>
    mr(pd_ref pd, Range&& memory, access allowed) {
        reg(pd, std::data(memory), std::size(memory) * sizeof *std::data(memory), allowed);
    }
#endif
    /// The twins of the registering constructors: empty on failure.
    mr(pd_ref pd, std::span<std::byte> memory, access allowed, std::error_code& ec) noexcept {
        reg(pd, memory.data(), memory.size(), allowed, ec);
    }
    mr(pd_ref pd, void* memory, std::size_t size, access allowed, std::error_code& ec) noexcept {
        reg(pd, memory, size, allowed, ec);
    }
    template <detail::writable_memory Range>
    mr(pd_ref pd, Range&& memory, access allowed, std::error_code& ec) noexcept {
        reg(pd, std::data(memory), std::size(memory) * sizeof *std::data(memory), allowed, ec);
    }

    /// Changes the region (ibv_rereg_mr). @param what of ibv_rereg_mr_flags: which of the rest count
    /// @param pd its new protection domain; the old one is no longer kept alive
    /// On failure it stays as it was, unless the device itself refused (IBV_REREG_MR_ERR_CMD): then it is of no use any
    /// more, and can only be dropped.
    void rereg(int what, pd_ref pd, void* memory, std::size_t size, access allowed, std::error_code& ec) noexcept {
        ec.clear();
        if (!raw_)
            ec = errc::empty_handle;
        else if ((what & IBV_REREG_MR_CHANGE_PD) && !pd)
            ec = errc::not_bound;
        if (ec)
            return;
        if (::ibv_rereg_mr(raw_, what, pd.native_handle(), memory, size, static_cast<int>(allowed)))
            ec = detail::system_error_code(errno);
        else if (what & IBV_REREG_MR_CHANGE_PD)
            node_->need_instead(0, detail::keeper(pd));
    }
    void rereg(int what, pd_ref pd, std::span<std::byte> memory, access allowed, std::error_code& ec) noexcept {
        rereg(what, pd, memory.data(), memory.size(), allowed, ec);
    }
    template <detail::writable_memory Range>
    void rereg(int what, pd_ref pd, Range&& memory, access allowed, std::error_code& ec) noexcept {
        rereg(what, pd, std::data(memory), std::size(memory) * sizeof *std::data(memory), allowed, ec);
    }

#if RDMACPP_EXCEPTIONS
    /// The throwing forms of rereg(..., std::error_code&). @throws rdma::error
    void rereg(int what, pd_ref pd, void* memory, std::size_t size, access allowed) {
        std::error_code ec;
        rereg(what, pd, memory, size, allowed, ec);
        if (ec)
            detail::throw_error(ec, "ibv_rereg_mr", {std::to_string(size), " bytes"});
    }
    void rereg(int what, pd_ref pd, std::span<std::byte> memory, access allowed) {
        rereg(what, pd, memory.data(), memory.size(), allowed);
    }
    template <detail::writable_memory Range>
    void rereg(int what, pd_ref pd, Range&& memory, access allowed) {
        rereg(what, pd, std::data(memory), std::size(memory) * sizeof *std::data(memory), allowed);
    }
#endif

    /// A region by a function that makes it on the PD; `of` is kept alive, too. For the library's own headers.
    template <class Make>
    static mr made_of(pd_ref pd, detail::pinnable* of, std::error_code& ec, Make reg) noexcept {
        mr made;
        made.make(pd, ec, reg, of);
        return made;
    }

private:
    friend class mr_kinds<mr>;

    void reg(pd_ref pd, void* memory, std::size_t size, access allowed, std::error_code& ec) noexcept {
        auto const flags = static_cast<unsigned>(allowed);
        auto* const node = fresh_node(static_cast<bool>(pd), ec);
        if (!node)
            return;
        // ibv_reg_mr_iova2 knows the optional flags, and drops those that the kernel does not know. The macro called
        // ibv_reg_mr makes the same choice, but only for constant flags.
        ibv_pd* const p = pd.native_handle();
        own(flags & IBV_ACCESS_OPTIONAL_RANGE
                ? ::ibv_reg_mr_iova2(p, memory, size, reinterpret_cast<std::uintptr_t>(memory), flags)
                : (::ibv_reg_mr)(p, memory, size, static_cast<int>(flags)),
            node, {detail::keeper(pd)}, ec);
    }
#if RDMACPP_EXCEPTIONS
    void reg(pd_ref pd, void* memory, std::size_t size, access allowed) {
        std::error_code ec;
        reg(pd, memory, size, allowed, ec);
        if (ec)
            detail::throw_error(ec, "ibv_reg_mr", {std::to_string(size), " bytes"});
    }
#endif

    template <class Make, class... Kind>
    void make(pd_ref pd, std::error_code& ec, Make reg, detail::pinnable* also = nullptr, Kind... kind) noexcept {
        if (auto* const node = fresh_node(static_cast<bool>(pd), ec, kind...))
            own(reg(pd.native_handle()), node, {detail::keeper(pd), also}, ec);
    }
};

static_assert(std::is_trivially_copyable_v<mr_ref>);
static_assert(detail::move_only<mr>);
static_assert(!detail::makes<mr, mr_ref> && !detail::makes<mr, ibv_mr*>);

} // namespace rdma::inline RDMACPP_ABI

template <>
struct std::hash<::rdma::mr_ref> : ::rdma::RDMACPP_ABI::detail::ref_hash<::rdma::mr_ref> {};

#endif
