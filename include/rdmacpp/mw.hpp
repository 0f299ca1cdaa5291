// SPDX-License-Identifier: MIT
/// @file
/// Memory windows: remote access to a part of a region, given and taken back on the data path.
#pragma once

#include "config.hpp"
#if __cplusplus >= 202002L && !defined(RDMACPP_TWO_VERSIONS) // otherwise config.hpp says what to do

#include "mr.hpp"
#include "qp.hpp"
#include "work_request.hpp"

#include <cstddef>
#include <cstdint>
#include <new>

namespace rdma::inline RDMACPP_ABI {

namespace detail {
struct mw_node : node_of<mw_node, ibv_mw> {
    static constexpr char const* made_by = "ibv_alloc_mw";
    static constexpr char const* ended_by = "ibv_dealloc_mw";
    static int end(ibv_mw* mw) noexcept { return ::ibv_dealloc_mw(mw); }
    void recall() noexcept { need_again({object()->pd}); }

    /// Keeps the region that the window is about to be bound to; and the one before, since the device is still at it.
    void bind_to(mr_ref region) noexcept {
        if (!keeper(region) || needs[1] == keeper(region))
            return;
        need_instead(2, needs[1]);
        need_instead(1, keeper(region));
    }
};
} // namespace detail

/// How a window is bound (ibv_mw_type).
enum class mw_type {
    type_1 = IBV_MW_TYPE_1, ///< By a call of its own: mw::bind.
    type_2 = IBV_MW_TYPE_2, ///< By a work request, which gives its key: mw::bind_request, send_wr::local_inv.
};

/// A borrowed memory window. It frees nothing and cannot turn into an owner.
class mw_ref : public verbs_ref<mw_ref, ibv_mw> {
public:
    using verbs_ref::verbs_ref;

    /// The key that a peer uses; that of a type 1 window changes with each bind. Precondition, asserted: not empty.
    std::uint32_t rkey() const noexcept {
        RDMACPP_ASSERT(raw_);
        return raw_->rkey;
    }
};

/// An owned memory window (ibv_alloc_mw). It keeps its PD alive, and the region that it is bound to: dropped, it is
/// unbound and frees both.
class [[nodiscard]] mw : public verbs_owner<detail::mw_node, mw_ref> {
public:
    using verbs_owner::verbs_owner;
    /// Empty.
    mw() noexcept = default;

#if RDMACPP_EXCEPTIONS
    /// Allocates a window. @throws rdma::error errc::not_bound for an empty pd; EOPNOTSUPP where the device has none
    mw(pd_ref pd, mw_type type) {
        std::error_code ec;
        *this = mw(pd, type, ec);
        if (ec)
            detail::throw_error(ec, "ibv_alloc_mw");
    }
#endif
    /// The twin of the allocating constructor: empty on failure.
    mw(pd_ref pd, mw_type type, std::error_code& ec) noexcept {
        if (auto* const node = fresh_node(static_cast<bool>(pd), ec))
            own(::ibv_alloc_mw(pd.native_handle(), static_cast<ibv_mw_type>(type)), node, {detail::keeper(pd)}, ec);
    }

    /// The key that a peer uses. Precondition, asserted: not empty.
    std::uint32_t rkey() const noexcept {
        RDMACPP_ASSERT(raw_);
        return raw_->rkey;
    }

    /// Binds a type 1 window to a part of a region (ibv_bind_mw): a request on the QP's send queue, which completes
    /// there as bind_mw; no bytes: unbinds it. The region needs access::mw_bind.
    /// @return the errno of C, std::errc{} for success
    std::errc bind(qp_ref qp, mr_ref region, std::size_t offset, std::size_t length, access allowed,
                   std::uint64_t wr_id, unsigned send_flags, std::nothrow_t) noexcept {
        RDMACPP_ASSERT(raw_ && qp);
        ibv_mw_bind request{};
        request.wr_id = wr_id;
        request.send_flags = send_flags;
        request.bind_info = part(region, offset, length, allowed);
        node_->bind_to(region);
        return static_cast<std::errc>(::ibv_bind_mw(qp.native_handle(), raw_, &request));
    }

    /// The request that binds a type 2 window to a part of a region, to be posted on the QP that will use it.
    /// @param rkey its new key: of next_rkey(). The region needs access::mw_bind.
    send_wr bind_request(std::uint32_t rkey, mr_ref region, std::size_t offset, std::size_t length,
                         access allowed) noexcept {
        RDMACPP_ASSERT(raw_);
        node_->bind_to(region);
        return send_wr::bind_mw(raw_, rkey, part(region, offset, length, allowed));
    }

    /// The key after the present one (ibv_inc_rkey): only its lowest byte is the program's to choose.
    std::uint32_t next_rkey() const noexcept { return ::ibv_inc_rkey(rkey()); }

#if RDMACPP_EXCEPTIONS
    /// The throwing form of bind(..., std::nothrow_t). @throws rdma::error the errno of ibv_bind_mw
    void bind(qp_ref qp, mr_ref region, std::size_t offset, std::size_t length, access allowed, std::uint64_t wr_id = 0,
              unsigned send_flags = 0) {
        if (std::errc const e = bind(qp, region, offset, length, allowed, wr_id, send_flags, std::nothrow);
            e != std::errc{}) [[unlikely]]
            detail::throw_refused(e, "ibv_bind_mw", wr_id);
    }
#endif

private:
    static ibv_mw_bind_info part(mr_ref region, std::size_t offset, std::size_t length, access allowed) noexcept {
        return {region.native_handle(), region ? region.remote(offset).address : 0, length,
                static_cast<unsigned>(allowed)};
    }
};

static_assert(std::is_trivially_copyable_v<mw_ref>);
static_assert(detail::move_only<mw>);
static_assert(!detail::makes<mw, mw_ref> && !detail::makes<mw, ibv_mw*>);

} // namespace rdma::inline RDMACPP_ABI

template <>
struct std::hash<::rdma::mw_ref> : ::rdma::RDMACPP_ABI::detail::ref_hash<::rdma::mw_ref> {};

#endif
