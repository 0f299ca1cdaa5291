// SPDX-License-Identifier: MIT
/// @file
/// What became of a work request.
#pragma once

#include "config.hpp"
#if __cplusplus >= 202002L && !defined(RDMACPP_TWO_VERSIONS) // otherwise config.hpp says what to do

#include "detail/c_api.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>

namespace rdma::inline RDMACPP_ABI {

/// Whether a work request succeeded, or why not (ibv_wc_status).
enum class wc_status {
    success = IBV_WC_SUCCESS,             ///< It is done.
    loc_len_err = IBV_WC_LOC_LEN_ERR,     ///< The message is longer than the receive, or than the device can.
    loc_qp_op_err = IBV_WC_LOC_QP_OP_ERR, ///< The request makes no sense for this QP.
    loc_eec_op_err = IBV_WC_LOC_EEC_OP_ERR,
    loc_prot_err =
        IBV_WC_LOC_PROT_ERR, ///< Local memory is not of a region that allows it: a wrong lkey, address or length.
    wr_flush_err = IBV_WC_WR_FLUSH_ERR,     ///< The QP went into its error state first: the connection is over.
    mw_bind_err = IBV_WC_MW_BIND_ERR,       ///< The window could not be bound.
    bad_resp_err = IBV_WC_BAD_RESP_ERR,     ///< The peer answered nonsense.
    loc_access_err = IBV_WC_LOC_ACCESS_ERR, ///< A peer wrote where this region does not allow it.
    rem_inv_req_err =
        IBV_WC_REM_INV_REQ_ERR, ///< The peer cannot do this: too long for its receive, or not allowed on its QP.
    rem_access_err =
        IBV_WC_REM_ACCESS_ERR,      ///< The peer's region does not allow it: a wrong rkey, address, length or access.
    rem_op_err = IBV_WC_REM_OP_ERR, ///< The peer could not do it.
    retry_exc_err = IBV_WC_RETRY_EXC_ERR,         ///< The peer does not answer: gone, or the network is.
    rnr_retry_exc_err = IBV_WC_RNR_RETRY_EXC_ERR, ///< The peer has posted no receive, for too long.
    loc_rdd_viol_err = IBV_WC_LOC_RDD_VIOL_ERR,
    rem_inv_rd_req_err = IBV_WC_REM_INV_RD_REQ_ERR,
    rem_abort_err = IBV_WC_REM_ABORT_ERR, ///< The peer has ended it.
    inv_eecn_err = IBV_WC_INV_EECN_ERR,
    inv_eec_state_err = IBV_WC_INV_EEC_STATE_ERR,
    fatal_err = IBV_WC_FATAL_ERR,               ///< The device has failed.
    resp_timeout_err = IBV_WC_RESP_TIMEOUT_ERR, ///< The answer did not come in time.
    general_err = IBV_WC_GENERAL_ERR,           ///< Something else.
    tm_err = IBV_WC_TM_ERR,
    tm_rndv_incomplete = IBV_WC_TM_RNDV_INCOMPLETE,
};

/// The name and meaning of a status, as libibverbs gives it.
inline std::string to_string(wc_status status) { return ::ibv_wc_status_str(static_cast<ibv_wc_status>(status)); }

/// Which operation completed (ibv_wc_opcode).
enum class wc_opcode {
    send = IBV_WC_SEND,
    rdma_write = IBV_WC_RDMA_WRITE,
    rdma_read = IBV_WC_RDMA_READ,
    comp_swap = IBV_WC_COMP_SWAP,
    fetch_add = IBV_WC_FETCH_ADD,
    bind_mw = IBV_WC_BIND_MW,
    local_inv = IBV_WC_LOCAL_INV,
    tso = IBV_WC_TSO,
    flush = 8,        ///< `IBV_WC_FLUSH`, of rdma-core 50.
    atomic_write = 9, ///< `IBV_WC_ATOMIC_WRITE`, of rdma-core 44.
    recv = IBV_WC_RECV,
    recv_rdma_with_imm = IBV_WC_RECV_RDMA_WITH_IMM,
    tm_add = IBV_WC_TM_ADD,
    tm_del = IBV_WC_TM_DEL,
    tm_sync = IBV_WC_TM_SYNC,
    tm_recv = IBV_WC_TM_RECV,
    tm_no_tag = IBV_WC_TM_NO_TAG,
    driver1 = IBV_WC_DRIVER1,
    driver2 = IBV_WC_DRIVER1 + 1, ///< `IBV_WC_DRIVER2`, of rdma-core 39.
    driver3 = IBV_WC_DRIVER1 + 2, ///< `IBV_WC_DRIVER3`, likewise.
};

/// What is known of a work request that succeeded; only work_completion::success gives one.
class completed {
public:
    /// Which operation it was.
    wc_opcode opcode() const noexcept { return static_cast<wc_opcode>(wc_->opcode); }
    /// How many bytes were received, or read. Meaningless for a send or a write.
    std::uint32_t byte_len() const noexcept { return wc_->byte_len; }
    /// The immediate data, in network byte order as C has it, if there is any. (A template, so that who does not ask
    /// does not pay for it in compile time.)
    template <class Data = std::uint32_t>
    std::optional<Data> imm_data() const noexcept {
        return wc_->wc_flags & IBV_WC_WITH_IMM ? std::optional<Data>(wc_->imm_data) : std::nullopt;
    }
    /// The key that the sender took back (send_wr::send_inv), if it took one.
    template <class Key = std::uint32_t>
    std::optional<Key> invalidated_rkey() const noexcept {
        return wc_->wc_flags & IBV_WC_WITH_INV ? std::optional<Key>(wc_->invalidated_rkey) : std::nullopt;
    }
    /// The QP that sent it; for datagrams.
    std::uint32_t src_qp() const noexcept { return wc_->src_qp; }
    /// Whether the buffer of a datagram begins with an ibv_grh: else those bytes mean nothing.
    bool has_grh() const noexcept { return wc_->wc_flags & IBV_WC_GRH; }
    /// @name Of the sender of a datagram, on InfiniBand.
    /// @{
    std::uint16_t slid() const noexcept { return wc_->slid; }
    std::uint8_t sl() const noexcept { return wc_->sl; }
    std::uint8_t dlid_path_bits() const noexcept { return wc_->dlid_path_bits; }
    std::uint16_t pkey_index() const noexcept { return wc_->pkey_index; }
    /// @}
    /// Flags of ibv_wc_flags.
    unsigned wc_flags() const noexcept { return wc_->wc_flags; }

private:
    friend class work_completion;
    explicit completed(ibv_wc const& wc) noexcept : wc_(&wc) {}
    ibv_wc const* wc_;
};

/// A polled completion: an ibv_wc that does not show what C leaves undefined. After a failure only the request's id,
/// the status, the QP number and the vendor's code mean anything; the rest is reached through success() alone.
class work_completion {
public:
    /// To be polled into: until then it holds nothing that means anything.
    work_completion() noexcept {} // NOLINT: zeroing an array of them would cost what C does not pay
    /// A copy of one that C polled.
    explicit work_completion(ibv_wc const& wc) noexcept : wc_(wc) {}

    /// What the request was numbered.
    std::uint64_t wr_id() const noexcept { return wc_.wr_id; }
    /// Whether it succeeded, or why not.
    wc_status status() const noexcept { return static_cast<wc_status>(wc_.status); }
    /// The number of the QP that it was posted to.
    std::uint32_t qp_num() const noexcept { return wc_.qp_num; }
    /// The device's own code for a failure.
    std::uint32_t vendor_err() const noexcept { return wc_.vendor_err; }

    /// True if the request succeeded.
    explicit operator bool() const noexcept { return wc_.status == IBV_WC_SUCCESS; }

    /// The rest of a successful completion, valid as long as this object. Precondition, asserted: it succeeded.
    completed success() const& noexcept {
        RDMACPP_ASSERT(wc_.status == IBV_WC_SUCCESS);
        return completed(wc_);
    }
    completed success() const&& = delete;

    /// The C completion, with all its undefined fields.
    ibv_wc const& native_handle() const noexcept { return wc_; }

private:
    ibv_wc wc_;
};

// ibv_poll_cq writes into an array of these.
static_assert(std::is_standard_layout_v<work_completion> && std::is_trivially_copyable_v<work_completion>);
static_assert(sizeof(work_completion) == sizeof(ibv_wc) && alignof(work_completion) == alignof(ibv_wc));

} // namespace rdma::inline RDMACPP_ABI

#endif
