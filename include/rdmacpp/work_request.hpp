// SPDX-License-Identifier: MIT
/// @file
/// Work requests: what to send, receive, read and write.
#pragma once

#include "config.hpp"
#if __cplusplus >= 202002L && !defined(RDMACPP_TWO_VERSIONS) // otherwise config.hpp says what to do

#include "ah.hpp"
#include "mr.hpp"

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

namespace rdma::inline RDMACPP_ABI {

/// A request for the send queue, built on the stack in the order in which it reads:
/// `qp.post_send(send_wr::write(region.sge(), peer).id(7).signaled())`.
///
/// Several of them, one after the other in an array, are posted as one chain (`send_wr chain[] = {send_wr::write(...),
/// send_wr::send(...)}; chain[1].signaled(); qp.post_send(chain);` copies none of them). Each has one piece of memory
/// of its own, or names several pieces, which must then stay where they are until it is posted. What is not here is
/// reached through native_handle().
class send_wr {
public:
    send_wr(send_wr const& other) noexcept : sge_(other.sge_), wr_(other.wr_) { own_piece(other); }
    send_wr& operator=(send_wr const& other) noexcept {
        sge_ = other.sge_;
        wr_ = other.wr_;
        own_piece(other);
        return *this;
    }

    /// Sends the bytes to a receive that the peer has posted.
    static send_wr send(ibv_sge const& from) noexcept { return {IBV_WR_SEND, from}; }
    static send_wr send(std::span<ibv_sge const> from) noexcept { return {IBV_WR_SEND, from}; }
    /// The same, and takes a key back at the peer: of a memory window, or of a region.
    static send_wr send_inv(ibv_sge const& from, std::uint32_t rkey) noexcept {
        return send_wr(IBV_WR_SEND_WITH_INV, from).key(rkey);
    }
    static send_wr send_inv(std::span<ibv_sge const> from, std::uint32_t rkey) noexcept {
        return send_wr(IBV_WR_SEND_WITH_INV, from).key(rkey);
    }

    /// Writes the bytes into the peer's memory (RDMA WRITE).
    static send_wr write(ibv_sge const& from, remote_memory to) noexcept { return {IBV_WR_RDMA_WRITE, from, to}; }
    static send_wr write(std::span<ibv_sge const> from, remote_memory to) noexcept {
        return {IBV_WR_RDMA_WRITE, from, to};
    }
    /// Writes 8 bytes so that no reader sees a part of them; where the device has it.
    static send_wr atomic_write(ibv_sge const& from, remote_memory to) noexcept {
        return {static_cast<ibv_wr_opcode>(15), from, to}; // IBV_WR_ATOMIC_WRITE, which rdma-core 39 lacks
    }

    /// Reads the peer's memory (RDMA READ): into memory that was registered with for_read_sink().
    static send_wr read(ibv_sge const& into, remote_memory from) noexcept { return {IBV_WR_RDMA_READ, into, from}; }
    static send_wr read(std::span<ibv_sge const> into, remote_memory from) noexcept {
        return {IBV_WR_RDMA_READ, into, from};
    }

    /// Adds to 8 bytes of the peer's. @param before gets the value before, 8 bytes
    static send_wr fetch_add(ibv_sge const& before, remote_memory at, std::uint64_t add) noexcept {
        return send_wr(IBV_WR_ATOMIC_FETCH_AND_ADD, before).atomic(at, add, 0);
    }
    /// Replaces 8 bytes of the peer's, if they are what is expected. @param before gets the value before, 8 bytes
    static send_wr comp_swap(ibv_sge const& before, remote_memory at, std::uint64_t expected,
                             std::uint64_t desired) noexcept {
        return send_wr(IBV_WR_ATOMIC_CMP_AND_SWP, before).atomic(at, expected, desired);
    }

    /// Takes a local key back: of a type 2 memory window.
    static send_wr local_inv(std::uint32_t rkey) noexcept { return send_wr(IBV_WR_LOCAL_INV).key(rkey); }
    /// Binds a type 2 memory window: rather of mw::bind_request, which keeps the region alive.
    static send_wr bind_mw(ibv_mw* window, std::uint32_t rkey, ibv_mw_bind_info const& to) noexcept {
        send_wr request(IBV_WR_BIND_MW);
        request.wr_.bind_mw = {window, rkey, to};
        return request;
    }
    /// Sends a long packet in segments (raw packets). @param header the headers of each, which must stay until posted
    /// @param mss the bytes of a segment
    static send_wr tso(std::span<std::byte> header, std::uint16_t mss, std::span<ibv_sge const> payload) noexcept {
        send_wr request(IBV_WR_TSO, payload);
        request.wr_.tso = {header.data(), static_cast<std::uint16_t>(header.size()), mss};
        return request;
    }

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
    /// Has the device fill in the checksums of a raw packet.
    send_wr& ip_csum() noexcept { return flag(IBV_SEND_IP_CSUM); }
    /// Carries four bytes beside the data, in network byte order; not on iWARP. Of a read it makes no sense.
    send_wr& imm(std::uint32_t network_order) noexcept {
        wr_.opcode = wr_.opcode == IBV_WR_RDMA_WRITE ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_SEND_WITH_IMM;
        wr_.imm_data = network_order;
        return *this;
    }

    /// Names the peer of a datagram: its address handle, which must stay until completion, its QP, and its key.
    send_wr& to(ah_ref peer, std::uint32_t qp_num, std::uint32_t qkey = RDMA_UDP_QKEY) noexcept {
        wr_.wr.ud = {peer.native_handle(), qp_num, qkey};
        return *this;
    }
    /// Names the peer's shared receive queue, on an XRC_SEND QP.
    send_wr& to_srq(std::uint32_t srq_num) noexcept {
        wr_.qp_type.xrc.remote_srqn = srq_num;
        return *this;
    }

    /// The C request, valid as long as this object stays where it is.
    ibv_send_wr& native_handle() noexcept { return wr_; }
    ibv_send_wr const& native_handle() const noexcept { return wr_; }

private:
    // The order of the members and the ways in which they are filled are those that compile to what C would write.
    explicit send_wr(ibv_wr_opcode opcode) noexcept : sge_{}, wr_() { wr_.opcode = opcode; }
    send_wr(ibv_wr_opcode opcode, ibv_sge const& sge, remote_memory peer = {}) noexcept : sge_(sge), wr_() {
        wr_.sg_list = &sge_;
        wr_.opcode = opcode;
        wr_.num_sge = 1;
        wr_.wr.rdma.remote_addr = peer.address;
        wr_.wr.rdma.rkey = peer.rkey;
    }
    send_wr(ibv_wr_opcode opcode, std::span<ibv_sge const> pieces, remote_memory peer = {}) noexcept : sge_{}, wr_() {
        wr_.sg_list = const_cast<ibv_sge*>(pieces.data()); // C takes what it only reads by a pointer to non-const
        wr_.opcode = opcode;
        wr_.num_sge = static_cast<int>(pieces.size());
        wr_.wr.rdma.remote_addr = peer.address;
        wr_.wr.rdma.rkey = peer.rkey;
    }
    void own_piece(send_wr const& other) noexcept {
        if (other.wr_.sg_list == &other.sge_)
            wr_.sg_list = &sge_;
    }
    send_wr& flag(ibv_send_flags bit) noexcept {
        wr_.send_flags |= static_cast<unsigned>(bit);
        return *this;
    }
    send_wr& key(std::uint32_t rkey) noexcept {
        wr_.invalidate_rkey = rkey;
        wr_.wr.rdma.rkey = rkey; // where soft-iWARP's driver looks for it
        return *this;
    }
    send_wr& atomic(remote_memory at, std::uint64_t compare_add, std::uint64_t swap) noexcept {
        wr_.wr.atomic = {at.address, compare_add, swap, at.rkey};
        return *this;
    }

    ibv_sge sge_; // its one piece of memory, unless it names others
    ibv_send_wr wr_;
};

/// A request for the receive queue: memory, which the device fills later. Several of them, one after the other in an
/// array, are posted as one chain.
class recv_wr {
public:
    /// Receives into one piece of memory.
    explicit recv_wr(ibv_sge const& into) noexcept : sge_(into), wr_{} {
        wr_.sg_list = &sge_;
        wr_.num_sge = 1;
    }
    /// Receives into several pieces, one after the other; they must stay where they are until it is posted.
    explicit recv_wr(std::span<ibv_sge const> into) noexcept : sge_{}, wr_{} {
        wr_.sg_list = const_cast<ibv_sge*>(into.data()); // C takes what it only reads by a pointer to non-const
        wr_.num_sge = static_cast<int>(into.size());
    }
    recv_wr(recv_wr const& other) noexcept : sge_(other.sge_), wr_(other.wr_) { own_piece(other); }
    recv_wr& operator=(recv_wr const& other) noexcept {
        sge_ = other.sge_;
        wr_ = other.wr_;
        own_piece(other);
        return *this;
    }

    /// The number found again in the completion.
    recv_wr& id(std::uint64_t wr_id) noexcept {
        wr_.wr_id = wr_id;
        return *this;
    }

    /// The C request, valid as long as this object stays where it is.
    ibv_recv_wr& native_handle() noexcept { return wr_; }
    ibv_recv_wr const& native_handle() const noexcept { return wr_; }

private:
    void own_piece(recv_wr const& other) noexcept {
        if (other.wr_.sg_list == &other.sge_)
            wr_.sg_list = &sge_;
    }

    ibv_sge sge_; // its one piece of memory, unless it names others
    ibv_recv_wr wr_;
};

namespace detail {

/// Links requests to a chain. @return the first one, as C takes it; null if there is none
template <class Request>
auto* link(std::span<Request> requests) noexcept {
    decltype(&requests[0].native_handle()) next = nullptr;
    for (std::size_t i = requests.size(); i-- != 0;) {
        auto& request = requests[i].native_handle();
        request.next = next;
        next = &request;
    }
    return next;
}

/// Which request of a chain C pointed at: they lie one after the other.
template <class Request, class C>
std::size_t index_of(std::span<Request> requests, C const* bad) noexcept {
    auto const* const first = reinterpret_cast<char const*>(&requests[0].native_handle());
    return static_cast<std::size_t>(reinterpret_cast<char const*>(bad) - first) / sizeof(Request);
}

/// Posts a chain. @param post the C function @param refused the index of the first request that was not queued
/// It is `bad` that tells of a refusal: soft-iWARP's driver then returns 0 if requests before it were queued.
template <class Request, class Post>
std::errc post_chain(std::span<Request> requests, std::size_t& refused, Post post) noexcept {
    auto* const first = link(requests);
    decltype(link(requests)) bad = nullptr;
    refused = requests.size();
    if (!first)
        return {};
    int e = post(first, &bad);
    if (bad) [[unlikely]] {
        refused = index_of(requests, bad);
        e = e != 0 ? e : EINVAL;
    }
    for (Request& request : requests) // each is for itself again
        request.native_handle().next = nullptr;
    return static_cast<std::errc>(e);
}

#if RDMACPP_EXCEPTIONS
/// The throwing form's end for a chain.
template <class Request>
[[noreturn, gnu::cold, gnu::noinline]] void throw_refused_of(std::errc e, char const* function,
                                                             std::span<Request> requests, std::size_t refused) {
    std::uint64_t const wr_id = refused < requests.size() ? requests[refused].native_handle().wr_id : 0;
    throw_error(posted_error_code(e), function,
                {"request ", std::to_string(wr_id), ", number ", std::to_string(refused), " of the chain"});
}
#endif

} // namespace detail

// A chain is linked, and found again, by the addresses of its C requests.
static_assert(std::is_standard_layout_v<send_wr> && std::is_standard_layout_v<recv_wr>);
static_assert(std::is_nothrow_copy_constructible_v<send_wr> && std::is_nothrow_copy_constructible_v<recv_wr>);

} // namespace rdma::inline RDMACPP_ABI

#endif
