// SPDX-License-Identifier: MIT
/// @file
/// Shared receive queues.
#pragma once

#include "config.hpp"
#if __cplusplus >= 202002L && !defined(RDMACPP_TWO_VERSIONS) // otherwise config.hpp says what to do

#include "cq.hpp"
#include "pd.hpp"
#include "receive_queue.hpp"
#include "xrcd.hpp"

#include <cstdint>
#include <new>
#include <span>
#include <type_traits>

namespace rdma::inline RDMACPP_ABI {

/// What an SRQ is asked for, and what was granted. It is only read.
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

/// What an SRQ of another type is asked for.
struct srq_init_attr_ex {
    srq_init_attr attr = {};                 ///< What any SRQ is asked for.
    ::rdma::srq_type type = srq_type::basic; ///< Its type.
    xrcd_ref xrcd = {};                      ///< Of an XRC one; none: librdmacm's for the device.
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

/// What an owned SRQ and a view of one have in common.
template <class Handle>
class srq_operations : public receive_queue<Handle> {
public:
    /// Posts operations on tags (ibv_post_srq_ops), of an SRQ of type tm. @param bad the first that was refused
    std::errc post_ops(ibv_ops_wr& first, ibv_ops_wr*& bad, std::nothrow_t) const noexcept {
        RDMACPP_ASSERT(raw());
        return static_cast<std::errc>(::ibv_post_srq_ops(raw(), &first, &bad));
    }

    /// Asks the device for its size and limit (ibv_query_srq).
    ibv_srq_attr query(std::error_code& ec) const noexcept {
        ibv_srq_attr attr{};
        ec = raw() ? detail::check_returned(::ibv_query_srq(raw(), &attr)) : std::error_code(errc::empty_handle);
        return attr;
    }
    /// Asks for one SRQ_LIMIT event when fewer receives than `limit` wait (ibv_modify_srq).
    void set_limit(std::uint32_t limit, std::error_code& ec) const noexcept {
        ibv_srq_attr attr{};
        attr.srq_limit = limit;
        modify(attr, IBV_SRQ_LIMIT, ec);
    }
    /// Changes its size (ibv_modify_srq), where the device can.
    void resize(std::uint32_t max_wr, std::error_code& ec) const noexcept {
        ibv_srq_attr attr{};
        attr.max_wr = max_wr;
        modify(attr, IBV_SRQ_MAX_WR, ec);
    }
    /// The number by which peers name an XRC one in their sends (ibv_get_srq_num).
    std::uint32_t srq_num(std::error_code& ec) const noexcept {
        std::uint32_t number = 0;
        ec = raw() ? detail::check_returned(::ibv_get_srq_num(raw(), &number)) : std::error_code(errc::empty_handle);
        return number;
    }

#if RDMACPP_EXCEPTIONS
    /// Posts operations on tags. @throws rdma::error the errno of ibv_post_srq_ops
    void post_ops(ibv_ops_wr& first, ibv_ops_wr*& bad) const {
        if (std::errc const e = post_ops(first, bad, std::nothrow); e != std::errc{}) [[unlikely]]
            detail::throw_refused(e, "ibv_post_srq_ops", bad ? bad->wr_id : 0);
    }
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
    /// The throwing form of resize(std::uint32_t, std::error_code&). @throws rdma::error
    void resize(std::uint32_t max_wr) const {
        std::error_code ec;
        resize(max_wr, ec);
        if (ec)
            detail::throw_error(ec, "ibv_modify_srq", {std::to_string(max_wr), " receives"});
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

private:
    ibv_srq* raw() const noexcept { return static_cast<Handle const*>(this)->native_handle(); }

    void modify(ibv_srq_attr attr, int mask, std::error_code& ec) const noexcept {
        ec = raw() ? detail::check_returned(::ibv_modify_srq(raw(), &attr, mask)) : std::error_code(errc::empty_handle);
    }
};

/// A borrowed shared receive queue: of an srq, or of an id, which owns it. It cannot turn into an owner.
class srq_ref : public verbs_ref<srq_ref, ibv_srq>, public srq_operations<srq_ref> {
public:
    using verbs_ref::verbs_ref;
};

/// An owned shared receive queue (ibv_create_srq): several QPs take their receives from it. They keep it alive, and it
/// keeps its PD.
class [[nodiscard]] srq : public verbs_owner<detail::srq_node, srq_ref>, public srq_operations<srq> {
public:
    using verbs_owner::verbs_owner;
    /// Empty.
    srq() noexcept = default;

#if RDMACPP_EXCEPTIONS
    /// Makes an SRQ; cap() then tells what was granted.
    /// @throws rdma::error errc::not_bound for an empty pd; the errno of ibv_create_srq
    explicit srq(pd_ref pd, srq_init_attr const& attr = {}) {
        std::error_code ec;
        *this = srq(pd, attr, ec);
        if (ec)
            detail::throw_error(ec, "ibv_create_srq", {std::to_string(attr.max_wr), " receives"});
    }
    /// The same of another type: with an XRC domain and a CQ, or for tag matching (ibv_create_srq_ex).
    /// @throws rdma::error as above
    srq(pd_ref pd, srq_init_attr_ex const& attr) {
        std::error_code ec;
        *this = srq(pd, attr, ec);
        if (ec)
            detail::throw_error(ec, "ibv_create_srq_ex", {std::to_string(attr.attr.max_wr), " receives"});
    }
#endif
    /// The twins of the constructors: empty on failure.
    srq(pd_ref pd, std::error_code& ec) noexcept : srq(pd, srq_init_attr(), ec) {}
    srq(pd_ref pd, srq_init_attr const& attr, std::error_code& ec) noexcept {
        ibv_srq_init_attr c{attr.user_context, {attr.max_wr, attr.max_sge, attr.srq_limit}};
        if (auto* const node = fresh_node(static_cast<bool>(pd), ec))
            own(::ibv_create_srq(pd.native_handle(), &c), node, {detail::keeper(pd)}, ec);
        if (node_)
            node_->granted = c.attr;
    }
    srq(pd_ref pd, srq_init_attr_ex const& attr, std::error_code& ec) noexcept {
        ibv_srq_init_attr_ex c = detail::to_c(attr);
        c.pd = pd.native_handle();
        c.comp_mask |= IBV_SRQ_INIT_ATTR_PD;
        if (auto* const node = fresh_node(static_cast<bool>(pd), ec))
            own(::ibv_create_srq_ex(c.pd->context, &c), node,
                {detail::keeper(pd), detail::keeper(attr.cq), detail::keeper(attr.xrcd)}, ec);
        if (node_)
            node_->granted = c.attr;
    }

    /// What was granted, which may be more than was asked for; nothing of an adopted one, whose query() tells.
    srq_init_attr cap() const noexcept {
        return node_ ? srq_init_attr{node_->granted.max_wr, node_->granted.max_sge, node_->granted.srq_limit,
                                     raw_->srq_context}
                     : srq_init_attr{0, 0, 0, nullptr};
    }
};

static_assert(detail::move_only<srq>);
static_assert(!detail::makes<srq, srq_ref> && !detail::makes<srq, ibv_srq*>);
static_assert(std::is_trivially_copyable_v<srq_ref> && sizeof(srq_ref) == 2 * sizeof(void*));

} // namespace rdma::inline RDMACPP_ABI

template <>
struct std::hash<::rdma::srq_ref> : ::rdma::RDMACPP_ABI::detail::ref_hash<::rdma::srq_ref> {};

#endif
