// SPDX-License-Identifier: MIT
/// @file
/// The queue pair of an id.
#pragma once

#include "config.hpp"
#if __cplusplus >= 202002L // below, config.hpp says what to do

#include "cq.hpp"
#include "detail/contract.hpp"
#include "event_type.hpp"
#include "pd.hpp"
#include "srq.hpp"
#include "verbs_owner.hpp"
#include "work_request.hpp"
#include "xrcd.hpp"

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
    srq_ref srq = {};    ///< Where its receives come from; none: that of the id, or its own queue.
    qp_cap cap = {};
    bool signal_all = false;      ///< Every send completes visibly, as if signaled().
    void* user_context = nullptr; ///< Found again in `qp->qp_context`.
};

/// What cm_id::create_qp_ex is asked for beyond that (ibv_qp_init_attr_ex). What `comp_mask` names is used.
struct qp_init_attr_ex {
    qp_init_attr attr = {};
    xrcd_ref xrcd = {};                       ///< Of an XRC_RECV one; none: librdmacm's for the device.
    std::uint32_t comp_mask = 0;              ///< Of ibv_qp_init_attr_mask, for what follows.
    std::uint32_t create_flags = 0;           ///< Of ibv_qp_create_flags.
    std::uint16_t max_tso_header = 0;         ///< bytes
    ibv_rwq_ind_table* rwq_ind_tbl = nullptr; ///< It must outlive the QP.
    ibv_rx_hash_conf rx_hash_conf = {};
    std::uint32_t source_qpn = 0;     ///< With IBV_QP_CREATE_SOURCE_QPN.
    std::uint64_t send_ops_flags = 0; ///< Of ibv_qp_create_send_ops_flags.
};

namespace detail {

inline ibv_qp_init_attr to_c(qp_init_attr const& attr, ibv_qp_type type) noexcept {
    ibv_qp_init_attr c{};
    c.qp_context = attr.user_context;
    c.send_cq = attr.send_cq.native_handle();
    c.recv_cq = attr.recv_cq.native_handle();
    c.srq = attr.srq.native_handle();
    c.cap = {attr.cap.max_send_wr, attr.cap.max_recv_wr, attr.cap.max_send_sge, attr.cap.max_recv_sge,
             attr.cap.max_inline_data};
    c.qp_type = type;
    c.sq_sig_all = attr.signal_all;
    return c;
}

inline ibv_qp_init_attr_ex to_c(qp_init_attr_ex const& attr, ibv_qp_type type) noexcept {
    ibv_qp_init_attr const basic = to_c(attr.attr, type);
    ibv_qp_init_attr_ex c{};
    c.qp_context = basic.qp_context;
    c.send_cq = basic.send_cq;
    c.recv_cq = basic.recv_cq;
    c.srq = basic.srq;
    c.cap = basic.cap;
    c.qp_type = type;
    c.sq_sig_all = basic.sq_sig_all;
    c.comp_mask = attr.comp_mask;
    c.xrcd = attr.xrcd.native_handle();
    if (attr.xrcd)
        c.comp_mask |= IBV_QP_INIT_ATTR_XRCD;
    c.create_flags = attr.create_flags;
    c.max_tso_header = attr.max_tso_header;
    c.rwq_ind_tbl = attr.rwq_ind_tbl;
    c.rx_hash_conf = attr.rx_hash_conf;
    c.source_qpn = attr.source_qpn;
    c.send_ops_flags = attr.send_ops_flags;
    return c;
}

inline qp_cap from_c(ibv_qp_cap const& cap) noexcept {
    return {cap.max_send_wr, cap.max_recv_wr, cap.max_send_sge, cap.max_recv_sge, cap.max_inline_data};
}

} // namespace detail

/// What to modify a QP with, of cm_id::init_qp_attr.
struct qp_attr {
    ibv_qp_attr attr{};
    int mask = 0; ///< Of ibv_qp_attr_mask: which of them count.
};

/// What an owned QP and a view of one have in common.
///
/// post_send and post_recv are the data path: their twins take a trailing std::nothrow_t and return the errno as C gave
/// it; an empty handle is a precondition there (RDMACPP_ASSERT). The memory of a request is the caller's to keep until
/// it has completed, or the QP is gone.
template <class Handle>
class qp_operations {
public:
    /// Its number on the device; 0 when empty.
    std::uint32_t qp_num() const noexcept { return raw() ? raw()->qp_num : 0; }

    /// What kind it is; rc when empty.
    rdma::qp_type qp_type() const noexcept {
        return raw() ? static_cast<rdma::qp_type>(raw()->qp_type) : rdma::qp_type::rc;
    }

    /// Posts a chain of C requests (ibv_post_send). @param bad the first request that was refused, and not queued
    std::errc post_send(ibv_send_wr& first, ibv_send_wr*& bad, std::nothrow_t) const noexcept {
        RDMACPP_ASSERT(raw());
        return static_cast<std::errc>(::ibv_post_send(raw(), &first, &bad));
    }
    /// Posts one request (ibv_post_send).
    std::errc post_send(send_wr request, std::nothrow_t) const noexcept {
        ibv_send_wr* bad = nullptr;
        return post_send(request.native_handle(), bad, std::nothrow);
    }

    /// Posts a chain of C requests (ibv_post_recv). @param bad the first request that was refused, and not queued
    std::errc post_recv(ibv_recv_wr& first, ibv_recv_wr*& bad, std::nothrow_t) const noexcept {
        RDMACPP_ASSERT(raw());
        return static_cast<std::errc>(::ibv_post_recv(raw(), &first, &bad));
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
    void modify(qp_attr const& to) const { modify(to.attr, to.mask); }
#endif

    /// Asks the device for attributes (ibv_query_qp). @param mask of ibv_qp_attr_mask
    ibv_qp_attr query(int mask, std::error_code& ec) const noexcept {
        ibv_qp_attr attr{};
        ibv_qp_init_attr init{};
        ec = raw() ? detail::check_returned(::ibv_query_qp(raw(), &attr, mask, &init))
                   : std::error_code(errc::empty_handle);
        return attr;
    }

    /// The same, with what cm_id::init_qp_attr gave.
    void modify(qp_attr const& to, std::error_code& ec) const noexcept { modify(to.attr, to.mask, ec); }

    /// Changes attributes or state (ibv_modify_qp); librdmacm does what connecting needs by itself.
    void modify(ibv_qp_attr const& attr, int mask, std::error_code& ec) const noexcept {
        ibv_qp_attr copy = attr;
        ec = raw() ? detail::check_returned(::ibv_modify_qp(raw(), &copy, mask)) : std::error_code(errc::empty_handle);
    }

private:
    ibv_qp* raw() const noexcept { return static_cast<Handle const*>(this)->native_handle(); }

#if RDMACPP_EXCEPTIONS
    static void posted(std::errc result, char const* function, std::uint64_t wr_id) {
        if (int const e = static_cast<int>(result); e != 0) [[unlikely]]
            detail::throw_error(detail::system_error_code(e), function, {"request ", std::to_string(wr_id)});
    }
#endif
};

/// A borrowed queue pair: of a qp, or that of an id, which owns it. It cannot turn into an owner.
class qp_ref : public qp_operations<qp_ref> {
public:
    qp_ref() noexcept = default;
    /// Borrows a QP of C's.
    qp_ref(ibv_qp* raw) noexcept : raw_(raw) {} // NOLINT: a reference to it is no more than the pointer

    /// The C queue pair; null when empty.
    ibv_qp* native_handle() const noexcept { return raw_; }
    explicit operator bool() const noexcept { return raw_ != nullptr; }

    friend bool operator==(qp_ref a, qp_ref b) noexcept { return a.raw_ == b.raw_; }

private:
    ibv_qp* raw_ = nullptr;
};

/// An owned queue pair that no id knows of (ibv_create_qp): for programs that move it through its states themselves,
/// with cm_id::init_qp_attr, and give its number to connect and accept. It keeps its PD, CQs and SRQ alive.
///
/// cm_id::disconnect does not touch it: modify it to IBV_QPS_ERR to flush what is posted.
class [[nodiscard]] qp : public verbs_owner<ibv_qp, detail::qp_node>, public qp_operations<qp> {
public:
    /// Empty.
    qp() noexcept = default;

#if RDMACPP_EXCEPTIONS
    /// Makes a queue pair.
    /// @param pd a pd, or cm_id::pd()
    /// @param attr its CQs must be given
    /// @throws rdma::error errc::not_bound for an empty pd; the errno of ibv_create_qp
    qp(pd_ref pd, rdma::qp_type type, qp_init_attr const& attr) {
        std::error_code ec;
        *this = qp(pd, type, attr, ec);
        if (ec)
            detail::throw_error(ec, "ibv_create_qp");
    }
    /// Takes over a QP that C made, or that release() gave back; what it uses is kept, as far as it is ours.
    /// @throws rdma::error errc::null_handle, errc::already_owned
    qp(adopt_t, ibv_qp* raw) {
        std::error_code ec;
        *this = qp(adopt, raw, ec);
        if (ec)
            detail::throw_error(ec, "ibv_create_qp", {"adopt"});
    }
#endif
    /// The twin of the creating constructor: empty on failure.
    qp(pd_ref pd, rdma::qp_type type, qp_init_attr const& attr, std::error_code& ec) noexcept {
        ibv_qp_init_attr c = detail::to_c(attr, static_cast<ibv_qp_type>(type));
        if (auto* const node = fresh_node(static_cast<bool>(pd), ec))
            own(::ibv_create_qp(pd.native_handle(), &c), node,
                {pd.keeper_, attr.send_cq.node_, attr.recv_cq.node_, attr.srq.node_}, ec);
    }
    /// The twin of the adopting constructor: empty on failure.
    qp(adopt_t, ibv_qp* raw, std::error_code& ec) noexcept {
        take_over(raw, ec);
        if (node_)
            node_->need_again({raw->pd, raw->send_cq, raw->recv_cq, raw->srq});
    }

    operator qp_ref() const& noexcept { return raw_; }
    operator qp_ref() const&& = delete;
    void swap(qp& other) noexcept { verbs_owner::swap(other); }
    friend void swap(qp& a, qp& b) noexcept { a.swap(b); }
};

static_assert(std::is_trivially_copyable_v<qp_ref> && sizeof(qp_ref) == sizeof(void*));
static_assert(detail::move_only<qp>);
static_assert(!detail::makes<qp, qp_ref> && !detail::makes<qp, ibv_qp*>);

} // namespace rdma::inline RDMACPP_ABI

template <>
struct std::hash<rdma::qp_ref> {
    std::size_t operator()(rdma::qp_ref handle) const noexcept {
        return std::hash<void const*>()(handle.native_handle());
    }
};

#endif
