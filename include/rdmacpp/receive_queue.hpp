// SPDX-License-Identifier: MIT
/// @file
/// Posting receives: the same for QPs, shared receive queues and work queues.
#pragma once

#include "config.hpp"
#if __cplusplus >= 202002L && !defined(RDMACPP_TWO_VERSIONS) // otherwise config.hpp says what to do

#include "work_request.hpp"

#include <cstddef>
#include <new>
#include <span>

namespace rdma::inline RDMACPP_ABI {

namespace detail {

inline int post_recv(ibv_qp* to, ibv_recv_wr* first, ibv_recv_wr** bad) noexcept {
    return ::ibv_post_recv(to, first, bad);
}
inline int post_recv(ibv_srq* to, ibv_recv_wr* first, ibv_recv_wr** bad) noexcept {
    return ::ibv_post_srq_recv(to, first, bad);
}
inline int post_recv(ibv_wq* to, ibv_recv_wr* first, ibv_recv_wr** bad) noexcept {
    return ::ibv_post_wq_recv(to, first, bad);
}
constexpr char const* post_recv_name(ibv_qp const*) noexcept { return "ibv_post_recv"; }
constexpr char const* post_recv_name(ibv_srq const*) noexcept { return "ibv_post_srq_recv"; }
constexpr char const* post_recv_name(ibv_wq const*) noexcept { return "ibv_post_wq_recv"; }

} // namespace detail

/// What takes receives: a QP (ibv_post_recv), an SRQ (ibv_post_srq_recv), a WQ (ibv_post_wq_recv), and views of them.
///
/// This is the data path: the twins take a trailing std::nothrow_t and return the errno as C gave it; an empty handle
/// is a precondition (RDMACPP_ASSERT). The memory of a receive is the caller's to keep until it has completed, or the
/// queue is gone. Any thread may post.
template <class Handle>
class receive_queue {
public:
    /// Posts a chain of C requests. @param bad the first request that was refused, and not queued
    std::errc post_recv(ibv_recv_wr& first, ibv_recv_wr*& bad, std::nothrow_t) const noexcept {
        RDMACPP_ASSERT(queue());
        return static_cast<std::errc>(detail::post_recv(queue(), &first, &bad));
    }
    /// Posts an array of requests as one chain: all of them, or, if one is refused, those before it.
    /// @param refused the index of the first request that was not queued; their number if all were
    std::errc post_recv(std::span<recv_wr> requests, std::size_t& refused, std::nothrow_t) const noexcept {
        RDMACPP_ASSERT(queue());
        return detail::post_chain(requests, refused, [this](ibv_recv_wr* first, ibv_recv_wr** bad) noexcept {
            return detail::post_recv(queue(), first, bad);
        });
    }
    /// Posts one request.
    std::errc post_recv(recv_wr const& request, std::nothrow_t) const noexcept {
        ibv_recv_wr* bad;
        return post_recv(const_cast<ibv_recv_wr&>(request.native_handle()), bad, std::nothrow); // only read
    }

#if RDMACPP_EXCEPTIONS
    /// Posts a chain of C requests. @throws rdma::error the errno of the call; `bad` is the request that was refused
    void post_recv(ibv_recv_wr& first, ibv_recv_wr*& bad) const {
        if (std::errc const e = post_recv(first, bad, std::nothrow); e != std::errc{}) [[unlikely]]
            detail::throw_refused(e, detail::post_recv_name(queue()), bad ? bad->wr_id : 0);
    }
    /// Posts an array of requests as one chain. @throws rdma::error the errno of the call; the message says which
    /// request was refused: those before it are queued
    void post_recv(std::span<recv_wr> requests) const {
        std::size_t refused;
        if (std::errc const e = post_recv(requests, refused, std::nothrow); e != std::errc{}) [[unlikely]]
            detail::throw_refused_of(e, detail::post_recv_name(queue()), requests, refused);
    }
    /// Posts one request. @throws rdma::error the errno of the call
    void post_recv(recv_wr const& request) const {
        if (std::errc const e = post_recv(request, std::nothrow); e != std::errc{}) [[unlikely]]
            detail::throw_refused(e, detail::post_recv_name(queue()), request.native_handle().wr_id);
    }
#endif

private:
    auto* queue() const noexcept { return static_cast<Handle const*>(this)->native_handle(); }
};

} // namespace rdma::inline RDMACPP_ABI

#endif
