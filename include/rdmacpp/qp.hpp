// SPDX-License-Identifier: MIT
/// @file
/// The queue pair of an id.
#pragma once

#include "config.hpp"
#if __cplusplus >= 202002L // below, config.hpp says what to do

#include "cq.hpp"
#include "work_request.hpp"

#include <cstdint>
#include <new>
#include <string>
#include <type_traits>

namespace rdma::inline RDMACPP_ABI {

/// What a QP can hold (ibv_qp_cap): asked for, or granted, which may be more.
struct qp_cap {
    std::uint32_t max_send_wr = 16;
    std::uint32_t max_recv_wr = 16;
    std::uint32_t max_send_sge = 1;
    std::uint32_t max_recv_sge = 1;
    std::uint32_t max_inline_data = 0; ///< bytes
};

/// What cm_id::create_qp is asked for. It is only read.
struct qp_init_attr {
    cq_ref send_cq = {}; ///< None: librdmacm makes one, with a channel (cm_id::send_cq).
    cq_ref recv_cq = {}; ///< None: librdmacm makes one, with a channel (cm_id::recv_cq).
    qp_cap cap = {};
    bool signal_all = false;      ///< Every send completes visibly, as if signaled().
    void* user_context = nullptr; ///< Found again in `qp->qp_context`.
};

/// A borrowed queue pair: that of an id, which owns it. It cannot turn into an owner.
///
/// post_send and post_recv are the data path: their twins take a trailing std::nothrow_t and return the errno as C gave
/// it; an empty handle is a precondition there (RDMACPP_ASSERT). The memory of a request is the caller's to keep until
/// it has completed, or the QP is gone.
class qp_ref {
public:
    qp_ref() noexcept = default;
    /// Borrows a QP of C's.
    qp_ref(ibv_qp* raw) noexcept : raw_(raw) {} // NOLINT: a reference to it is no more than the pointer

    /// The C queue pair; null when empty.
    ibv_qp* native_handle() const noexcept { return raw_; }
    explicit operator bool() const noexcept { return raw_ != nullptr; }

    /// Its number on the device; 0 when empty.
    std::uint32_t qp_num() const noexcept { return raw_ ? raw_->qp_num : 0; }

    /// Posts a chain of C requests (ibv_post_send). @param bad the first request that was refused, and not queued
    std::errc post_send(ibv_send_wr& first, ibv_send_wr*& bad, std::nothrow_t) const noexcept {
        RDMACPP_ASSERT(raw_);
        return static_cast<std::errc>(::ibv_post_send(raw_, &first, &bad));
    }
    /// Posts one request (ibv_post_send).
    std::errc post_send(send_wr request, std::nothrow_t) const noexcept {
        ibv_send_wr* bad = nullptr;
        return post_send(request.native_handle(), bad, std::nothrow);
    }

    /// Posts a chain of C requests (ibv_post_recv). @param bad the first request that was refused, and not queued
    std::errc post_recv(ibv_recv_wr& first, ibv_recv_wr*& bad, std::nothrow_t) const noexcept {
        RDMACPP_ASSERT(raw_);
        return static_cast<std::errc>(::ibv_post_recv(raw_, &first, &bad));
    }
    /// Posts one request (ibv_post_recv).
    std::errc post_recv(recv_wr request, std::nothrow_t) const noexcept {
        ibv_recv_wr* bad = nullptr;
        return post_recv(request.native_handle(), bad, std::nothrow);
    }

#if RDMACPP_EXCEPTIONS
    /// Posts a chain of C requests. @throws rdma::error the errno of ibv_post_send; `bad` is the request that was
    /// refused
    void post_send(ibv_send_wr& first, ibv_send_wr*& bad) const {
        posted(post_send(first, bad, std::nothrow), "ibv_post_send", bad ? bad->wr_id : 0);
    }
    /// Posts one request. @throws rdma::error the errno of ibv_post_send
    void post_send(send_wr request) const {
        posted(post_send(request, std::nothrow), "ibv_post_send", request.native_handle().wr_id);
    }
    /// Posts a chain of C requests. @throws rdma::error the errno of ibv_post_recv; `bad` is the request that was
    /// refused
    void post_recv(ibv_recv_wr& first, ibv_recv_wr*& bad) const {
        posted(post_recv(first, bad, std::nothrow), "ibv_post_recv", bad ? bad->wr_id : 0);
    }
    /// Posts one request. @throws rdma::error the errno of ibv_post_recv
    void post_recv(recv_wr request) const {
        posted(post_recv(request, std::nothrow), "ibv_post_recv", request.native_handle().wr_id);
    }
    /// The throwing form of query(std::error_code&). @throws rdma::error
    ibv_qp_attr query(int mask) const {
        std::error_code ec;
        ibv_qp_attr const attr = query(mask, ec);
        if (ec)
            detail::throw_error(ec, "ibv_query_qp");
        return attr;
    }
    /// The throwing form of modify(std::error_code&). @throws rdma::error
    void modify(ibv_qp_attr const& attr, int mask) const {
        std::error_code ec;
        modify(attr, mask, ec);
        if (ec)
            detail::throw_error(ec, "ibv_modify_qp");
    }
#endif

    /// Asks the device for attributes (ibv_query_qp). @param mask of ibv_qp_attr_mask
    ibv_qp_attr query(int mask, std::error_code& ec) const noexcept {
        ibv_qp_attr attr{};
        ibv_qp_init_attr init{};
        ec = raw_ ? detail::check_returned(::ibv_query_qp(raw_, &attr, mask, &init))
                  : std::error_code(errc::empty_handle);
        return attr;
    }

    /// Changes attributes or state (ibv_modify_qp); librdmacm does what connecting needs by itself.
    void modify(ibv_qp_attr const& attr, int mask, std::error_code& ec) const noexcept {
        ibv_qp_attr copy = attr;
        ec = raw_ ? detail::check_returned(::ibv_modify_qp(raw_, &copy, mask)) : std::error_code(errc::empty_handle);
    }

    friend bool operator==(qp_ref a, qp_ref b) noexcept { return a.raw_ == b.raw_; }

private:
#if RDMACPP_EXCEPTIONS
    static void posted(std::errc result, char const* function, std::uint64_t wr_id) {
        if (int const e = static_cast<int>(result); e != 0) [[unlikely]]
            detail::throw_error(detail::system_error_code(e), function, {"request ", std::to_string(wr_id)});
    }
#endif

    ibv_qp* raw_ = nullptr;
};

static_assert(std::is_trivially_copyable_v<qp_ref> && sizeof(qp_ref) == sizeof(void*));

} // namespace rdma::inline RDMACPP_ABI

template <>
struct std::hash<rdma::qp_ref> {
    std::size_t operator()(rdma::qp_ref handle) const noexcept {
        return std::hash<void const*>()(handle.native_handle());
    }
};

#endif
