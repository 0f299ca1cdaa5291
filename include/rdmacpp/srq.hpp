// SPDX-License-Identifier: MIT
/// @file
/// Shared receive queues.
#pragma once

#include "config.hpp"
#if __cplusplus >= 202002L // below, config.hpp says what to do

#include "cq.hpp"
#include "work_request.hpp"
#include "xrcd.hpp"

#include <cstdint>
#include <new>
#include <type_traits>

namespace rdma::inline RDMACPP_ABI {

/// What cm_id::create_srq is asked for, and what was granted. It is only read.
struct srq_init_attr {
    std::uint32_t max_wr = 16;    ///< receives that may wait in it
    std::uint32_t max_sge = 1;    ///< pieces of memory for each
    std::uint32_t srq_limit = 0;  ///< raises an event when fewer wait; 0: never
    void* user_context = nullptr; ///< Found again in `srq->srq_context`.
};

/// The type of a shared receive queue (ibv_srq_type).
enum class srq_type {
    basic = IBV_SRQT_BASIC,
    xrc = IBV_SRQT_XRC, ///< for QPs of type XRC_RECV; has a number that peers name, and a CQ
    tm = IBV_SRQT_TM,   ///< tag matching
};

/// What cm_id::create_srq_ex is asked for.
struct srq_init_attr_ex {
    srq_init_attr attr = {};
    rdma::srq_type type = srq_type::basic;
    xrcd_ref xrcd = {};     ///< Of an XRC one; none: librdmacm's for the device.
    cq_ref cq = {};         ///< Of an XRC one; none: librdmacm makes one, with a channel (cm_id::srq_cq).
    ibv_tm_cap tm_cap = {}; ///< For tag matching.
};

namespace detail {

inline ibv_srq_init_attr_ex to_c(srq_init_attr_ex const& attr) noexcept {
    ibv_srq_init_attr_ex c{};
    c.srq_context = attr.attr.user_context;
    c.attr = {attr.attr.max_wr, attr.attr.max_sge, attr.attr.srq_limit};
    c.comp_mask = IBV_SRQ_INIT_ATTR_TYPE;
    c.srq_type = static_cast<ibv_srq_type>(attr.type);
    c.xrcd = attr.xrcd.native_handle();
    c.cq = attr.cq.native_handle();
    c.tm_cap = attr.tm_cap;
    if (attr.xrcd)
        c.comp_mask |= IBV_SRQ_INIT_ATTR_XRCD;
    if (attr.cq)
        c.comp_mask |= IBV_SRQ_INIT_ATTR_CQ;
    if (attr.type == srq_type::tm)
        c.comp_mask |= IBV_SRQ_INIT_ATTR_TM;
    return c;
}

} // namespace detail

/// A borrowed shared receive queue: that of an id, which owns it. It cannot turn into an owner.
///
/// The memory of a receive is the caller's to keep until it has completed, or the SRQ is gone.
class srq_ref {
public:
    srq_ref() noexcept = default;
    /// Borrows an SRQ of C's, which must outlive the QPs that are made with it.
    srq_ref(ibv_srq* raw) noexcept : raw_(raw) {} // NOLINT: a reference to it is no more than the pointer

    /// The C shared receive queue; null when empty.
    ibv_srq* native_handle() const noexcept { return raw_; }
    explicit operator bool() const noexcept { return raw_ != nullptr; }

    /// Posts a chain of C requests (ibv_post_srq_recv). @param bad the first request that was refused, and not queued
    std::errc post_recv(ibv_recv_wr& first, ibv_recv_wr*& bad, std::nothrow_t) const noexcept {
        RDMACPP_ASSERT(raw_);
        return static_cast<std::errc>(::ibv_post_srq_recv(raw_, &first, &bad));
    }
    /// Posts one request (ibv_post_srq_recv).
    std::errc post_recv(recv_wr request, std::nothrow_t) const noexcept {
        ibv_recv_wr* bad = nullptr;
        return post_recv(request.native_handle(), bad, std::nothrow);
    }

#if RDMACPP_EXCEPTIONS
    /// Posts a chain of C requests. @throws rdma::error the errno of ibv_post_srq_recv; `bad` is the request that was
    /// refused
    void post_recv(ibv_recv_wr& first, ibv_recv_wr*& bad) const {
        posted(post_recv(first, bad, std::nothrow), bad ? bad->wr_id : 0);
    }
    /// Posts one request. @throws rdma::error the errno of ibv_post_srq_recv
    void post_recv(recv_wr request) const { posted(post_recv(request, std::nothrow), request.native_handle().wr_id); }
    /// The throwing form of query(std::error_code&). @throws rdma::error
    ibv_srq_attr query() const {
        std::error_code ec;
        ibv_srq_attr const attr = query(ec);
        if (ec)
            detail::throw_error(ec, "ibv_query_srq");
        return attr;
    }
    /// The throwing form of set_limit(std::uint32_t, std::error_code&). @throws rdma::error
    void set_limit(std::uint32_t limit) const {
        std::error_code ec;
        set_limit(limit, ec);
        if (ec)
            detail::throw_error(ec, "ibv_modify_srq", {"limit ", std::to_string(limit)});
    }
    /// The throwing form of srq_num(std::error_code&). @throws rdma::error
    std::uint32_t srq_num() const {
        std::error_code ec;
        std::uint32_t const number = srq_num(ec);
        if (ec)
            detail::throw_error(ec, "ibv_get_srq_num");
        return number;
    }
#endif

    /// Asks the device for its size and limit (ibv_query_srq).
    ibv_srq_attr query(std::error_code& ec) const noexcept {
        ibv_srq_attr attr{};
        ec = raw_ ? detail::check_returned(::ibv_query_srq(raw_, &attr)) : std::error_code(errc::empty_handle);
        return attr;
    }

    /// Asks for one SRQ_LIMIT event when fewer receives than `limit` wait (ibv_modify_srq).
    void set_limit(std::uint32_t limit, std::error_code& ec) const noexcept {
        ibv_srq_attr attr{};
        attr.srq_limit = limit;
        ec = raw_ ? detail::check_returned(::ibv_modify_srq(raw_, &attr, IBV_SRQ_LIMIT))
                  : std::error_code(errc::empty_handle);
    }

    /// The number by which peers name an XRC one in their sends (ibv_get_srq_num).
    std::uint32_t srq_num(std::error_code& ec) const noexcept {
        std::uint32_t number = 0;
        ec = raw_ ? detail::check_returned(::ibv_get_srq_num(raw_, &number)) : std::error_code(errc::empty_handle);
        return number;
    }

    friend bool operator==(srq_ref a, srq_ref b) noexcept { return a.raw_ == b.raw_; }

private:
    friend class cm_id;
    friend class endpoint;
    friend class qp;

    srq_ref(ibv_srq* raw, detail::verbs_node* node) noexcept : raw_(raw), node_(node) {}

#if RDMACPP_EXCEPTIONS
    static void posted(std::errc result, std::uint64_t wr_id) {
        if (int const e = static_cast<int>(result); e != 0) [[unlikely]]
            detail::throw_error(detail::system_error_code(e), "ibv_post_srq_recv", {"request ", std::to_string(wr_id)});
    }
#endif

    ibv_srq* raw_ = nullptr;
    detail::verbs_node* node_ = nullptr;
};

static_assert(std::is_trivially_copyable_v<srq_ref> && sizeof(srq_ref) == 2 * sizeof(void*));

} // namespace rdma::inline RDMACPP_ABI

template <>
struct std::hash<rdma::srq_ref> {
    std::size_t operator()(rdma::srq_ref handle) const noexcept {
        return std::hash<void const*>()(handle.native_handle());
    }
};

#endif
