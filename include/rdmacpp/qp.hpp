// SPDX-License-Identifier: MIT
/// @file
/// Queue pairs: that of an id, and those that a program connects itself.
#pragma once

#include "config.hpp"
#if __cplusplus >= 202002L && !defined(RDMACPP_TWO_VERSIONS) // otherwise config.hpp says what to do

#include "cq.hpp"
#include "detail/newer.hpp"
#include "event_type.hpp"
#include "pd.hpp"
#include "qp_ex.hpp"
#include "receive_queue.hpp"
#include "rwq_ind_table.hpp"
#include "srq.hpp"
#include "timeout.hpp"
#include "work_request.hpp"
#include "xrcd.hpp"

#include <cstdint>
#include <new>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

namespace rdma::inline RDMACPP_ABI {

/// What a QP can hold (ibv_qp_cap): asked for, or granted, which may be more.
struct qp_cap {
    std::uint32_t max_send_wr = 16;    ///< sends that may be outstanding
    std::uint32_t max_recv_wr = 16;    ///< receives that may be outstanding
    std::uint32_t max_send_sge = 1;    ///< pieces of memory for each send
    std::uint32_t max_recv_sge = 1;    ///< pieces of memory for each receive
    std::uint32_t max_inline_data = 0; ///< bytes
};

/// What cm_id::create_qp is asked for. It is only read.
struct qp_init_attr {
    cq_ref send_cq = {};          ///< None: librdmacm makes one, with a channel (cm_id::send_cq).
    cq_ref recv_cq = {};          ///< None: librdmacm makes one, with a channel (cm_id::recv_cq).
    srq_ref srq = {};             ///< Where its receives come from; none: that of the id, or its own queue.
    qp_cap cap = {};              ///< What it shall hold.
    bool signal_all = false;      ///< Every send completes visibly, as if signaled().
    void* user_context = nullptr; ///< Found again in `qp->qp_context`.
};

/// What a QP is asked for beyond that (ibv_qp_init_attr_ex). Each member that is set is used, and so is what
/// `comp_mask` names.
struct qp_init_attr_ex {
    qp_init_attr attr = {};             ///< What any QP is asked for.
    xrcd_ref xrcd = {};                 ///< Of an XRC_RECV one; none: librdmacm's for the device.
    std::uint32_t comp_mask = 0;        ///< Of ibv_qp_init_attr_mask, for what follows.
    std::uint32_t create_flags = 0;     ///< Of ibv_qp_create_flags.
    std::uint16_t max_tso_header = 0;   ///< bytes
    rwq_ind_table_ref rwq_ind_tbl = {}; ///< Kept alive by the QP.
    ibv_rx_hash_conf rx_hash_conf = {}; ///< How packets are spread over rwq_ind_tbl.
    std::uint32_t source_qpn = 0;       ///< With IBV_QP_CREATE_SOURCE_QPN.
    std::uint64_t send_ops_flags = 0;   ///< Of ibv_qp_create_send_ops_flags.
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
    if (attr.create_flags)
        c.comp_mask |= IBV_QP_INIT_ATTR_CREATE_FLAGS;
    if (attr.max_tso_header)
        c.comp_mask |= IBV_QP_INIT_ATTR_MAX_TSO_HEADER;
    if (attr.rx_hash_conf.rx_hash_fields_mask || attr.rx_hash_conf.rx_hash_key_len)
        c.comp_mask |= IBV_QP_INIT_ATTR_RX_HASH;
    c.max_tso_header = attr.max_tso_header;
    c.rwq_ind_tbl = attr.rwq_ind_tbl.native_handle();
    if (attr.rwq_ind_tbl)
        c.comp_mask |= IBV_QP_INIT_ATTR_IND_TABLE;
    if (attr.send_ops_flags)
        c.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
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
    ibv_qp_attr attr{}; ///< C's attributes.
    int mask = 0;       ///< Of ibv_qp_attr_mask: which of them count.
};

/// The wr_id of the requests that qp::drain posts to find the end of a queue; that of the receive is one more.
inline constexpr std::uint64_t drain_mark = 0x7264'6d61'6370'7000;

/// What qp::drain saw.
struct drained {
    bool sends = false;          ///< The send queue came back to its end.
    bool receives = false;       ///< The receive queue, too; or it has none.
    std::size_t completions = 0; ///< So many were handed on.

    explicit operator bool() const noexcept { return sends && receives; }
};

/// What an owned QP and a view of one have in common.
///
/// post_send is the data path, as post_recv is: its twins take a trailing std::nothrow_t and return the errno as C gave
/// it; an empty handle is a precondition there (RDMACPP_ASSERT). The memory of a request is the caller's to keep until
/// it has completed, or the QP is gone.
template <class Handle>
class qp_operations : public receive_queue<Handle> {
public:
    /// Its number on the device; 0 when empty.
    std::uint32_t qp_num() const noexcept { return raw() ? raw()->qp_num : 0; }

    /// What kind it is; rc when empty.
    ::rdma::qp_type qp_type() const noexcept {
        return raw() ? static_cast<::rdma::qp_type>(raw()->qp_type) : ::rdma::qp_type::rc;
    }

    /// Posts a chain of C requests (ibv_post_send). @param bad the first request that was refused, and not queued
    std::errc post_send(ibv_send_wr& first, ibv_send_wr*& bad, std::nothrow_t) const noexcept {
        RDMACPP_ASSERT(raw());
        return static_cast<std::errc>(::ibv_post_send(raw(), &first, &bad));
    }
    /// Posts a chain (ibv_post_send): all of them, or, if one is refused, those before it.
    /// @param refused the index of the first request that was not queued; their number if all were
    std::errc post_send(std::span<send_wr> requests, std::size_t& refused, std::nothrow_t) const noexcept {
        RDMACPP_ASSERT(raw());
        return detail::post_chain(requests, refused, [this](ibv_send_wr* first, ibv_send_wr** bad) noexcept {
            return ::ibv_post_send(raw(), first, bad);
        });
    }
    /// Posts one request (ibv_post_send).
    std::errc post_send(send_wr const& request, std::nothrow_t) const noexcept {
        ibv_send_wr* bad;
        return post_send(const_cast<ibv_send_wr&>(request.native_handle()), bad, std::nothrow); // only read
    }

#if RDMACPP_EXCEPTIONS
    /// Posts a chain of C requests. @throws rdma::error the errno of ibv_post_send; `bad` is the request that was
    /// refused
    void post_send(ibv_send_wr& first, ibv_send_wr*& bad) const {
        if (std::errc const e = post_send(first, bad, std::nothrow); e != std::errc{}) [[unlikely]]
            detail::throw_refused(e, "ibv_post_send", bad ? bad->wr_id : 0);
    }
    /// Posts one request. @throws rdma::error the errno of ibv_post_send
    void post_send(send_wr const& request) const {
        if (std::errc const e = post_send(request, std::nothrow); e != std::errc{}) [[unlikely]]
            detail::throw_refused(e, "ibv_post_send", request.native_handle().wr_id);
    }
    /// Posts a chain. @throws rdma::error the errno of ibv_post_send; the message says which request was refused: those
    /// before it are queued
    void post_send(std::span<send_wr> requests) const {
        std::size_t refused = 0;
        if (std::errc const e = post_send(requests, refused, std::nothrow); e != std::errc{}) [[unlikely]]
            detail::throw_refused_of(e, "ibv_post_send", requests, refused);
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
    /// The throwing form of modify_rate_limit(..., std::error_code&). @throws rdma::error
    void modify_rate_limit(ibv_qp_rate_limit_attr const& attr) const {
        std::error_code ec;
        modify_rate_limit(attr, ec);
        if (ec)
            detail::throw_error(ec, "ibv_modify_qp_rate_limit");
    }
    /// The throwing form of query_ece(std::error_code&). @throws rdma::error
    ibv_ece query_ece() const {
        std::error_code ec;
        ibv_ece const ece = query_ece(ec);
        if (ec)
            detail::throw_error(ec, "ibv_query_ece");
        return ece;
    }
    /// The throwing form of set_ece(..., std::error_code&). @throws rdma::error
    void set_ece(ibv_ece const& ece) const {
        std::error_code ec;
        set_ece(ece, ec);
        if (ec)
            detail::throw_error(ec, "ibv_set_ece");
    }
    /// The throwing form of drain(..., std::error_code&). @throws rdma::error
    template <class OnCompletion>
    drained drain(timeout limit, OnCompletion&& on_completion) const {
        std::error_code ec;
        drained const result = drain(limit, on_completion, ec);
        if (ec)
            detail::throw_error(ec, "ibv_modify_qp");
        return result;
    }
#endif

    /// Its other interface, if it was made with send_ops_flags (ibv_qp_to_qp_ex); else empty.
    qp_ex_ref ex() const noexcept;

    /// Takes the QP to its error state and collects what then comes back (ibv_modify_qp, ibv_poll_cq): every request
    /// that was posted, as wr_flush_err, and what had completed before. Afterwards their memory is the program's again.
    ///
    /// It ends early when the end of both queues was seen, by an empty request of its own behind all others that comes
    /// back as the last (on iWARP, where a send that is posted so late never does, when two looks in a row find
    /// nothing; a datagram QP's send queue shows no end). But nothing relies on that: devices differ in what they
    /// flush, and after `limit` it ends anyhow; such a request may then come back later, with the wr_id drain_mark. Who
    /// polls the CQs meanwhile takes completions away.
    /// @param on_completion called with every work_completion that is polled, also those of other QPs of the same CQs
    /// @return what was seen. Of a QP with an SRQ, receives that were not taken from it stay there.
    template <class OnCompletion>
    drained drain(timeout limit, OnCompletion&& on_completion, std::error_code& ec) const
        noexcept(noexcept(on_completion(std::declval<work_completion const&>())));

    /// Limits how fast it sends (ibv_modify_qp_rate_limit).
    void modify_rate_limit(ibv_qp_rate_limit_attr const& attr, std::error_code& ec) const noexcept {
        ibv_qp_rate_limit_attr copy = attr;
        ec = raw() ? detail::check_returned(::ibv_modify_qp_rate_limit(raw(), &copy))
                   : std::error_code(errc::empty_handle);
    }

    /// Whether the bytes of an operation arrive in order (ibv_query_qp_data_in_order, from rdma-core 36 on), so that
    /// their last one can be waited for by looking at memory.
    template <class Qp = ibv_qp>
        requires detail::has_query_qp_data_in_order<Qp>
    bool data_in_order(ibv_wr_opcode operation) const noexcept {
        return raw() && ibv_query_qp_data_in_order(static_cast<Qp*>(raw()), operation, 0) != 0;
    }

    /// What enhanced connection establishment it has agreed on (ibv_query_ece); librdmacm does this for the QP of an
    /// id.
    ibv_ece query_ece(std::error_code& ec) const noexcept {
        ibv_ece ece{};
        ec = raw() ? detail::check_returned(::ibv_query_ece(raw(), &ece)) : std::error_code(errc::empty_handle);
        return ece;
    }
    /// Tells it what the peer offers (ibv_set_ece).
    void set_ece(ibv_ece const& ece, std::error_code& ec) const noexcept {
        ibv_ece copy = ece;
        ec = raw() ? detail::check_returned(::ibv_set_ece(raw(), &copy)) : std::error_code(errc::empty_handle);
    }

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
    Handle const& as_handle() const noexcept { return *static_cast<Handle const*>(this); }
    ibv_qp* raw() const noexcept { return as_handle().native_handle(); }
};

/// A borrowed queue pair: of a qp, or that of an id, which owns it. It cannot turn into an owner.
class qp_ref : public verbs_ref<qp_ref, ibv_qp, detail::qp_node>, public qp_operations<qp_ref> {
public:
    using verbs_ref::verbs_ref;
};

/// An owned queue pair that no id knows of (ibv_create_qp): for programs that move it through its states themselves,
/// with cm_id::init_qp_attr, and give its number to connect and accept. It keeps its PD, CQs and SRQ alive.
///
/// cm_id::disconnect does not touch it: modify it to IBV_QPS_ERR to flush what is posted.
class [[nodiscard]] qp : public verbs_owner<detail::qp_node, qp_ref>, public qp_operations<qp> {
public:
    using verbs_owner::verbs_owner;
    /// Empty.
    qp() noexcept = default;

#if RDMACPP_EXCEPTIONS
    /// Makes a queue pair; cap() then tells what was granted.
    /// @param pd a pd, or cm_id::pd()
    /// @param attr its CQs must be given
    /// @throws rdma::error errc::not_bound for an empty pd; the errno of ibv_create_qp
    qp(pd_ref pd, ::rdma::qp_type type, qp_init_attr const& attr) {
        std::error_code ec;
        *this = qp(pd, type, attr, ec);
        if (ec)
            detail::throw_error(ec, "ibv_create_qp");
    }
    /// The same with all that devices offer (ibv_create_qp_ex). @throws rdma::error as above
    qp(pd_ref pd, ::rdma::qp_type type, qp_init_attr_ex const& attr) {
        std::error_code ec;
        *this = qp(pd, type, attr, ec);
        if (ec)
            detail::throw_error(ec, "ibv_create_qp_ex");
    }
    /// Opens a receiving QP of an XRC domain that another process made (ibv_open_qp).
    /// @throws rdma::error errc::not_bound for an empty context; the errno of ibv_open_qp
    qp(context_ref context, xrcd_ref xrcd, std::uint32_t qp_num, void* user_context = nullptr) {
        std::error_code ec;
        *this = qp(context, xrcd, qp_num, user_context, ec);
        if (ec)
            detail::throw_error(ec, "ibv_open_qp", {"number ", std::to_string(qp_num)});
    }
#endif
    /// The twins of the constructors: empty on failure.
    qp(pd_ref pd, ::rdma::qp_type type, qp_init_attr const& attr, std::error_code& ec) noexcept {
        ibv_qp_init_attr c = detail::to_c(attr, static_cast<ibv_qp_type>(type));
        if (auto* const node = fresh_node(static_cast<bool>(pd), ec))
            own(::ibv_create_qp(pd.native_handle(), &c), node,
                {detail::keeper(pd), detail::keeper(attr.send_cq), detail::keeper(attr.recv_cq),
                 detail::keeper(attr.srq)},
                ec);
        if (node_) {
            node_->granted = c.cap;
            node_->maybe_ex = false;
        }
    }
    qp(pd_ref pd, ::rdma::qp_type type, qp_init_attr_ex const& attr, std::error_code& ec) noexcept {
        ibv_qp_init_attr_ex c = detail::to_c(attr, static_cast<ibv_qp_type>(type));
        c.pd = pd.native_handle();
        c.comp_mask |= IBV_QP_INIT_ATTR_PD;
        if (auto* const node = fresh_node(static_cast<bool>(pd), ec))
            own(::ibv_create_qp_ex(c.pd->context, &c), node,
                {detail::keeper(pd), detail::keeper(attr.attr.send_cq), detail::keeper(attr.attr.recv_cq),
                 detail::keeper(attr.attr.srq), detail::keeper(attr.xrcd), detail::keeper(attr.rwq_ind_tbl)},
                ec);
        if (node_) {
            node_->granted = c.cap;
            node_->maybe_ex = attr.send_ops_flags != 0;
        }
    }
    qp(context_ref context, xrcd_ref xrcd, std::uint32_t qp_num, void* user_context, std::error_code& ec) noexcept {
        ibv_qp_open_attr attr{};
        attr.comp_mask =
            IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_CONTEXT | IBV_QP_OPEN_ATTR_TYPE;
        attr.qp_num = qp_num;
        attr.xrcd = xrcd.native_handle();
        attr.qp_context = user_context;
        attr.qp_type = IBV_QPT_XRC_RECV;
        if (auto* const node = fresh_node(context && xrcd, ec))
            own(::ibv_open_qp(context.native_handle(), &attr), node, {detail::keeper(context), detail::keeper(xrcd)},
                ec);
    }

    /// What was granted, which may be more than was asked for; nothing of an adopted or opened one, whose
    /// query(IBV_QP_CAP) tells.
    qp_cap cap() const noexcept { return node_ ? detail::from_c(node_->granted) : qp_cap{0, 0, 0, 0, 0}; }
};

template <class Handle>
qp_ex_ref qp_operations<Handle>::ex() const noexcept {
    qp_ref const self = as_handle();
    detail::qp_node* const node = detail::keeper(self);
    if (!self || (node && !node->maybe_ex))
        return {};
    return detail::refs::make<qp_ex_ref>(::ibv_qp_to_qp_ex(raw()), node);
}

static_assert(std::is_trivially_copyable_v<qp_ref>);
static_assert(detail::move_only<qp>);
static_assert(!detail::makes<qp, qp_ref> && !detail::makes<qp, ibv_qp*>);

} // namespace rdma::inline RDMACPP_ABI

template <>
struct std::hash<::rdma::qp_ref> : ::rdma::RDMACPP_ABI::detail::ref_hash<::rdma::qp_ref> {};

#include "detail/draining.hpp"

#endif
