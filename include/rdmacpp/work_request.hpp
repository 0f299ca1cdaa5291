// SPDX-License-Identifier: MIT
/// @file
/// Work requests: what to send, receive, read and write.
#pragma once

#include "config.hpp"
#if __cplusplus >= 202002L // below, config.hpp says what to do

#include "mr.hpp"

#include <cstdint>
#include <type_traits>

namespace rdma::inline RDMACPP_ABI {

class ah;

/// A request for the send queue, with one piece of memory: built on the stack, in the order in which it reads:
/// `qp.post_send(send_wr::write(region.sge(), peer).id(7).signaled())`.
class send_wr {
public:
    /// Sends the bytes to a receive that the peer has posted.
    static send_wr send(ibv_sge const& from) noexcept { return {IBV_WR_SEND, from}; }

    /// Writes the bytes into the peer's memory (RDMA WRITE).
    static send_wr write(ibv_sge const& from, remote_memory to) noexcept { return {IBV_WR_RDMA_WRITE, from, to}; }

    /// Reads the peer's memory (RDMA READ); on iWARP the sink needs access::remote_write.
    static send_wr read(ibv_sge const& into, remote_memory from) noexcept { return {IBV_WR_RDMA_READ, into, from}; }

    /// The number found again in the completion.
    send_wr& id(std::uint64_t wr_id) noexcept {
        wr_.wr_id = wr_id;
        return *this;
    }
    /// Completes visibly also on success. Without it, only a failure does (unless the QP signals all).
    send_wr& signaled() noexcept { return flag(IBV_SEND_SIGNALED); }
    /// Raises an event at a peer that armed its CQ for solicited completions.
    send_wr& solicited() noexcept { return flag(IBV_SEND_SOLICITED); }
    /// Waits for earlier RDMA reads and atomics of the queue.
    send_wr& fenced() noexcept { return flag(IBV_SEND_FENCE); }
    /// Copies the bytes into the request: they may change at once, and need no region. At most the QP's
    /// max_inline_data.
    send_wr& inlined() noexcept { return flag(IBV_SEND_INLINE); }
    /// Carries four bytes beside the data, in network byte order; not on iWARP. Of a read it makes no sense.
    send_wr& imm(std::uint32_t network_order) noexcept {
        wr_.opcode = wr_.opcode == IBV_WR_RDMA_WRITE ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_SEND_WITH_IMM;
        wr_.imm_data = network_order;
        return *this;
    }

    /// Names the peer of a datagram: its address handle, which must stay until completion, its QP, and its key.
    send_wr& to(ah const& peer, std::uint32_t qp_num, std::uint32_t qkey = RDMA_UDP_QKEY) noexcept;
    /// Names the peer's shared receive queue, on an XRC_SEND QP.
    send_wr& to_srq(std::uint32_t srq_num) noexcept {
        wr_.qp_type.xrc.remote_srqn = srq_num;
        return *this;
    }

    /// The C request, valid as long as this object stays where it is.
    ibv_send_wr& native_handle() noexcept {
        wr_.sg_list = &sge_;
        return wr_;
    }

private:
    send_wr(ibv_wr_opcode opcode, ibv_sge const& sge, remote_memory peer = {}) noexcept : sge_(sge) {
        wr_.opcode = opcode;
        wr_.num_sge = 1;
        wr_.wr.rdma.remote_addr = peer.address;
        wr_.wr.rdma.rkey = peer.rkey;
    }
    send_wr& flag(ibv_send_flags bit) noexcept {
        wr_.send_flags |= static_cast<unsigned>(bit);
        return *this;
    }

    ibv_send_wr wr_{};
    ibv_sge sge_;
};

/// A request for the receive queue, with one piece of memory, which the device fills later.
class recv_wr {
public:
    explicit recv_wr(ibv_sge const& into) noexcept : sge_(into) { wr_.num_sge = 1; }

    /// The number found again in the completion.
    recv_wr& id(std::uint64_t wr_id) noexcept {
        wr_.wr_id = wr_id;
        return *this;
    }

    /// The C request, valid as long as this object stays where it is.
    ibv_recv_wr& native_handle() noexcept {
        wr_.sg_list = &sge_;
        return wr_;
    }

private:
    ibv_recv_wr wr_{};
    ibv_sge sge_;
};

static_assert(std::is_trivially_copyable_v<send_wr> && std::is_trivially_copyable_v<recv_wr>);

} // namespace rdma::inline RDMACPP_ABI

#endif
