// SPDX-License-Identifier: MIT
/// @file
/// The shorthands of <rdma/rdma_verbs.h>: registering memory and posting requests through an id.
#pragma once

#include "config.hpp"
#if __cplusplus >= 202002L && !defined(RDMACPP_TWO_VERSIONS) // otherwise config.hpp says what to do

#include "ah.hpp"
#include "mr.hpp"

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <new>
#include <span>

namespace rdma::inline RDMACPP_ABI {

/// What a cm_id offers of <rdma/rdma_verbs.h>. Each function is the C one of the same name.
///
/// The posting ones are the data path: their twins take a trailing std::nothrow_t and return the errno; an id with a QP
/// is a precondition there (RDMACPP_ASSERT). `context` is found again as the completion's wr_id; `flags` are those of
/// ibv_send_flags. The memory must stay until the request has completed, except of sends with IBV_SEND_INLINE, which
/// need no region either: an empty mr then. A receive goes to the id's SRQ if it has one.
template <class Id>
class rdma_verbs {
public:
#if RDMACPP_EXCEPTIONS
    /// Registers memory for messages, on the id's PD (rdma_reg_msgs).
    /// @throws rdma::error errc::not_bound before a device is bound; the errno of ibv_reg_mr
    mr reg_msgs(std::span<std::byte> memory) const { return mr(pd(), memory, access::local_write); }
    /// Registers memory that the peer may read (rdma_reg_read). @throws rdma::error as reg_msgs
    mr reg_read(std::span<std::byte> memory) const {
        return mr(pd(), memory, access::local_write | access::remote_read);
    }
    /// Registers memory that the peer may write (rdma_reg_write). @throws rdma::error as reg_msgs
    mr reg_write(std::span<std::byte> memory) const {
        return mr(pd(), memory, access::local_write | access::remote_write);
    }

    /// Posts a receive into several pieces of memory (rdma_post_recvv). @throws rdma::error the errno of ibv_post_recv
    void post_recvv(void* context, std::span<ibv_sge const> pieces) const {
        posted(post_recvv(context, pieces, std::nothrow), "rdma_post_recvv");
    }
    /// Posts a send of several pieces of memory (rdma_post_sendv). @throws rdma::error the errno of ibv_post_send
    void post_sendv(void* context, std::span<ibv_sge const> pieces, int flags = 0) const {
        posted(post_sendv(context, pieces, flags, std::nothrow), "rdma_post_sendv");
    }
    /// Posts an RDMA read into several pieces of memory (rdma_post_readv).
    /// @throws rdma::error as post_sendv
    void post_readv(void* context, std::span<ibv_sge const> pieces, int flags, remote_memory from) const {
        posted(post_readv(context, pieces, flags, from, std::nothrow), "rdma_post_readv");
    }
    /// Posts an RDMA write of several pieces of memory (rdma_post_writev).
    /// @throws rdma::error as post_sendv
    void post_writev(void* context, std::span<ibv_sge const> pieces, int flags, remote_memory to) const {
        posted(post_writev(context, pieces, flags, to, std::nothrow), "rdma_post_writev");
    }

    /// Posts a receive (rdma_post_recv). @throws rdma::error the errno of ibv_post_recv
    void post_recv(void* context, std::span<std::byte> into, mr const& region) const {
        posted(post_recv(context, into, region, std::nothrow), "rdma_post_recv");
    }
    /// Posts a send (rdma_post_send). @throws rdma::error the errno of ibv_post_send
    void post_send(void* context, std::span<std::byte const> from, mr const& region, int flags = 0) const {
        posted(post_send(context, from, region, flags, std::nothrow), "rdma_post_send");
    }
    /// Posts an RDMA read (rdma_post_read). @throws rdma::error as post_send
    void post_read(void* context, std::span<std::byte> into, mr const& region, int flags, remote_memory from) const {
        posted(post_read(context, into, region, flags, from, std::nothrow), "rdma_post_read");
    }
    /// Posts an RDMA write (rdma_post_write). @throws rdma::error as post_send
    void post_write(void* context, std::span<std::byte const> from, mr const& region, int flags,
                    remote_memory to) const {
        posted(post_write(context, from, region, flags, to, std::nothrow), "rdma_post_write");
    }
    /// Posts a datagram, with RDMA_UDP_QKEY (rdma_post_ud_send). @throws rdma::error as post_send
    void post_ud_send(void* context, std::span<std::byte const> from, mr const& region, int flags, ah const& peer,
                      std::uint32_t qp_num) const {
        posted(post_ud_send(context, from, region, flags, peer, qp_num, std::nothrow), "rdma_post_ud_send");
    }
#endif

    mr reg_msgs(std::span<std::byte> memory, std::error_code& ec) const noexcept {
        return mr(pd(), memory, access::local_write, ec);
    }
    mr reg_read(std::span<std::byte> memory, std::error_code& ec) const noexcept {
        return mr(pd(), memory, access::local_write | access::remote_read, ec);
    }
    mr reg_write(std::span<std::byte> memory, std::error_code& ec) const noexcept {
        return mr(pd(), memory, access::local_write | access::remote_write, ec);
    }

    std::errc post_recvv(void* context, std::span<ibv_sge const> pieces, std::nothrow_t) const noexcept {
        return result(::rdma_post_recvv(raw(), context, to_c(pieces), static_cast<int>(pieces.size())));
    }
    std::errc post_sendv(void* context, std::span<ibv_sge const> pieces, int flags, std::nothrow_t) const noexcept {
        return result(::rdma_post_sendv(raw(), context, to_c(pieces), static_cast<int>(pieces.size()), flags));
    }
    std::errc post_readv(void* context, std::span<ibv_sge const> pieces, int flags, remote_memory from,
                         std::nothrow_t) const noexcept {
        return result(::rdma_post_readv(raw(), context, to_c(pieces), static_cast<int>(pieces.size()), flags,
                                        from.address, from.rkey));
    }
    std::errc post_writev(void* context, std::span<ibv_sge const> pieces, int flags, remote_memory to,
                          std::nothrow_t) const noexcept {
        return result(::rdma_post_writev(raw(), context, to_c(pieces), static_cast<int>(pieces.size()), flags,
                                         to.address, to.rkey));
    }
    std::errc post_recv(void* context, std::span<std::byte> into, mr const& region, std::nothrow_t) const noexcept {
        RDMACPP_ASSERT(region);
        return result(::rdma_post_recv(raw(), context, into.data(), into.size(), region.native_handle()));
    }
    std::errc post_send(void* context, std::span<std::byte const> from, mr const& region, int flags,
                        std::nothrow_t) const noexcept {
        return result(::rdma_post_send(raw(), context, to_c(from), from.size(), region.native_handle(), flags));
    }
    std::errc post_read(void* context, std::span<std::byte> into, mr const& region, int flags, remote_memory from,
                        std::nothrow_t) const noexcept {
        RDMACPP_ASSERT(region);
        return result(::rdma_post_read(raw(), context, into.data(), into.size(), region.native_handle(), flags,
                                       from.address, from.rkey));
    }
    std::errc post_write(void* context, std::span<std::byte const> from, mr const& region, int flags, remote_memory to,
                         std::nothrow_t) const noexcept {
        return result(::rdma_post_write(raw(), context, to_c(from), from.size(), region.native_handle(), flags,
                                        to.address, to.rkey));
    }
    std::errc post_ud_send(void* context, std::span<std::byte const> from, mr const& region, int flags, ah const& peer,
                           std::uint32_t qp_num, std::nothrow_t) const noexcept {
        return result(::rdma_post_ud_send(raw(), context, to_c(from), from.size(), region.native_handle(), flags,
                                          peer.native_handle(), qp_num));
    }

private:
    pd_ref pd() const noexcept { return static_cast<Id const*>(this)->pd(); }
    rdma_cm_id* raw() const noexcept {
        rdma_cm_id* const id = static_cast<Id const*>(this)->native_handle();
        RDMACPP_ASSERT(id && (id->qp || id->srq));
        return id;
    }

    // C takes what it only reads by pointers to non-const.
    static void* to_c(std::span<std::byte const> bytes) noexcept { return const_cast<std::byte*>(bytes.data()); }
    static ibv_sge* to_c(std::span<ibv_sge const> pieces) noexcept { return const_cast<ibv_sge*>(pieces.data()); }

    static std::errc result(int c) noexcept { return c == 0 ? std::errc{} : static_cast<std::errc>(errno); }

#if RDMACPP_EXCEPTIONS
    static void posted(std::errc result, char const* function) {
        if (result != std::errc{}) [[unlikely]]
            detail::throw_returned(result, function);
    }
#endif
};

} // namespace rdma::inline RDMACPP_ABI

#endif
