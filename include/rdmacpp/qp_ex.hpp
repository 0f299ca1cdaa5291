// SPDX-License-Identifier: MIT
/// @file
/// The other interface of a QP: requests written straight into its queue, in a scope that ends by itself (ibv_wr_...).
#pragma once

#include "config.hpp"
#if __cplusplus >= 202002L && !defined(RDMACPP_TWO_VERSIONS) // otherwise config.hpp says what to do

#include "ah.hpp"
#include "detail/newer.hpp"
#include "mr.hpp"

#include <cstddef>
#include <cstdint>
#include <new>
#include <span>
#include <utility>

namespace rdma::inline RDMACPP_ABI {

/// Requests on their way into a QP's send queue: from ibv_wr_start, which this makes, to complete(), which posts them
/// all; without it, nothing is posted (ibv_wr_abort). The driver may hold a lock meanwhile: one thread at a time, and
/// no wait in between.
///
/// Each request begins with what it does and goes on with its memory and, for datagrams, its peer:
/// `batch.request(7, IBV_SEND_SIGNALED).write(peer).sge(region.sge());`
class [[nodiscard]] wr_batch {
public:
    /// Starts. Precondition, asserted: the QP is not empty.
    explicit wr_batch(ibv_qp_ex* qp) noexcept : qp_(qp) {
        RDMACPP_ASSERT(qp);
        ::ibv_wr_start(qp_);
    }
    wr_batch(wr_batch const&) = delete;
    wr_batch& operator=(wr_batch const&) = delete;
    /// Posts nothing, unless it was completed.
    ~wr_batch() {
        if (qp_)
            ::ibv_wr_abort(qp_);
    }

    /// Posts the requests (ibv_wr_complete): all of them, or none.
    /// @return the errno of C, std::errc{} for success
    std::errc complete(std::nothrow_t) noexcept {
        RDMACPP_ASSERT(qp_);
        return static_cast<std::errc>(::ibv_wr_complete(detail::take(qp_)));
    }
    /// Posts nothing (ibv_wr_abort).
    void abort() noexcept {
        RDMACPP_ASSERT(qp_);
        ::ibv_wr_abort(detail::take(qp_));
    }
#if RDMACPP_EXCEPTIONS
    /// The throwing form of complete(std::nothrow_t). @throws rdma::error the errno of ibv_wr_complete
    void complete() {
        if (std::errc const e = complete(std::nothrow); e != std::errc{}) [[unlikely]]
            detail::throw_returned(e, "ibv_wr_complete");
    }
#endif

    /// Begins a request: the number found again in its completion, and flags of ibv_send_flags.
    wr_batch& request(std::uint64_t wr_id, unsigned flags = 0) noexcept {
        qp_->wr_id = wr_id;
        qp_->wr_flags = flags;
        return *this;
    }

    /// @name What the request does; the QP must have been made with send_ops_flags for it.
    /// @{
    wr_batch& send() noexcept { return did(::ibv_wr_send, qp_); }
    wr_batch& send_imm(std::uint32_t network_order) noexcept { return did(::ibv_wr_send_imm, qp_, network_order); }
    wr_batch& send_inv(std::uint32_t rkey) noexcept { return did(::ibv_wr_send_inv, qp_, rkey); }
    wr_batch& send_tso(std::span<std::byte> header, std::uint16_t mss) noexcept {
        return did(::ibv_wr_send_tso, qp_, header.data(), static_cast<std::uint16_t>(header.size()), mss);
    }
    wr_batch& write(remote_memory to) noexcept { return did(::ibv_wr_rdma_write, qp_, to.rkey, to.address); }
    wr_batch& write_imm(remote_memory to, std::uint32_t network_order) noexcept {
        return did(::ibv_wr_rdma_write_imm, qp_, to.rkey, to.address, network_order);
    }
    wr_batch& read(remote_memory from) noexcept { return did(::ibv_wr_rdma_read, qp_, from.rkey, from.address); }
    wr_batch& comp_swap(remote_memory at, std::uint64_t expected, std::uint64_t desired) noexcept {
        return did(::ibv_wr_atomic_cmp_swp, qp_, at.rkey, at.address, expected, desired);
    }
    wr_batch& fetch_add(remote_memory at, std::uint64_t add) noexcept {
        return did(::ibv_wr_atomic_fetch_add, qp_, at.rkey, at.address, add);
    }
    wr_batch& local_inv(std::uint32_t rkey) noexcept { return did(::ibv_wr_local_inv, qp_, rkey); }
    wr_batch& bind_mw(ibv_mw* window, std::uint32_t rkey, ibv_mw_bind_info const& to) noexcept {
        return did(::ibv_wr_bind_mw, qp_, window, rkey, &to);
    }
    /// Writes 8 bytes so that no reader sees a part of them; from rdma-core 44 on.
    template <class Qp = ibv_qp_ex>
    requires detail::has_wr_atomic_write<Qp> wr_batch& atomic_write(remote_memory to,
                                                                    void const* eight_bytes) noexcept {
        ibv_wr_atomic_write(static_cast<Qp*>(qp_), to.rkey, to.address, eight_bytes);
        return *this;
    }
    /// Makes what was written visible or durable; from rdma-core 50 on. @param type of ibv_placement_type, a mask
    /// @param level of ibv_selectivity_level
    template <class Qp = ibv_qp_ex>
    requires detail::has_wr_flush<Qp> wr_batch& flush(remote_memory at, std::size_t length, std::uint8_t type,
                                                      std::uint8_t level) noexcept {
        ibv_wr_flush(static_cast<Qp*>(qp_), at.rkey, at.address, length, type, level);
        return *this;
    }
    /// @}

    /// @name Its memory: one of these for each request that has some.
    /// @{
    wr_batch& sge(ibv_sge const& piece) noexcept {
        return did(::ibv_wr_set_sge, qp_, piece.lkey, piece.addr, piece.length);
    }
    wr_batch& sge(std::span<ibv_sge const> pieces) noexcept {
        return did(::ibv_wr_set_sge_list, qp_, pieces.size(), pieces.data());
    }
    /// Copies the bytes: they may change at once, and need no region. At most the QP's max_inline_data. Give request()
    /// IBV_SEND_INLINE, too: soft-RoCE's driver of rdma-core 44 wants it, where the manual does not.
    wr_batch& inline_data(std::span<std::byte const> bytes) noexcept {
        return did(::ibv_wr_set_inline_data, qp_, const_cast<std::byte*>(bytes.data()), bytes.size()); // only read
    }
    wr_batch& inline_data(std::span<ibv_data_buf const> pieces) noexcept {
        return did(::ibv_wr_set_inline_data_list, qp_, pieces.size(), pieces.data());
    }
    /// @}

    /// Names the peer of a datagram.
    wr_batch& to(ah_ref peer, std::uint32_t qp_num, std::uint32_t qkey = RDMA_UDP_QKEY) noexcept {
        return did(::ibv_wr_set_ud_addr, qp_, peer.native_handle(), qp_num, qkey);
    }
    /// Names the peer's shared receive queue, on an XRC_SEND QP.
    wr_batch& to_srq(std::uint32_t srq_num) noexcept { return did(::ibv_wr_set_xrc_srqn, qp_, srq_num); }

private:
    template <class Function, class... Args>
    wr_batch& did(Function* function, Args... args) noexcept {
        function(args...);
        return *this;
    }

    ibv_qp_ex* qp_; // null when it has ended
};

/// A view of a QP's other interface: of qp::ex(). Empty for a QP that was made without send_ops_flags.
class qp_ex_ref : public verbs_ref<qp_ex_ref, ibv_qp_ex> {
public:
    using verbs_ref::verbs_ref;

    /// Starts requests; see wr_batch. Precondition, asserted: not empty.
    wr_batch start() const noexcept { return wr_batch(raw_); }

#if RDMACPP_EXCEPTIONS
    /// Posts what `fill` writes into a wr_batch when it returns, and nothing if it throws.
    /// @throws rdma::error the errno of ibv_wr_complete; what `fill` throws
    template <class Fill>
    void post(Fill&& fill) const {
        wr_batch batch(raw_);
        std::forward<Fill>(fill)(batch);
        batch.complete();
    }
#endif
    /// The twin of post, for a `fill` that does not throw.
    template <class Fill>
    std::errc post(Fill&& fill, std::nothrow_t) const noexcept {
        wr_batch batch(raw_);
        std::forward<Fill>(fill)(batch);
        return batch.complete(std::nothrow);
    }
};

static_assert(std::is_trivially_copyable_v<qp_ex_ref>);

} // namespace rdma::inline RDMACPP_ABI

template <>
struct std::hash<::rdma::qp_ex_ref> : ::rdma::RDMACPP_ABI::detail::ref_hash<::rdma::qp_ex_ref> {};

#endif
