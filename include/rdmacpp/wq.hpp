// SPDX-License-Identifier: MIT
/// @file
/// Work queues: receive queues that several QPs share by way of an indirection table, for receive-side scaling.
#pragma once

#include "config.hpp"
#if __cplusplus >= 202002L && !defined(RDMACPP_TWO_VERSIONS) // otherwise config.hpp says what to do

#include "cq.hpp"
#include "pd.hpp"
#include "receive_queue.hpp"

#include <cstdint>
#include <new>

namespace rdma::inline RDMACPP_ABI {

/// What a work queue was granted.
struct wq_cap {
    std::uint32_t max_wr = 0;  ///< receives that may wait in it
    std::uint32_t max_sge = 0; ///< pieces of memory for each
};

namespace detail {
struct wq_node : node_of<wq_node, ibv_wq> {
    static constexpr char const* made_by = "ibv_create_wq";
    static constexpr char const* ended_by = "ibv_destroy_wq";
    static int end(ibv_wq* wq) noexcept { return ::ibv_destroy_wq(wq); }
    void recall() noexcept { need_again({object()->pd, object()->cq}); }

    wq_cap granted;
};
} // namespace detail

/// The state of a work queue (ibv_wq_state).
enum class wq_state {
    reset = IBV_WQS_RESET,     ///< Takes nothing yet.
    rdy = IBV_WQS_RDY,         ///< Takes receives.
    err = IBV_WQS_ERR,         ///< Flushes what it was given.
    unknown = IBV_WQS_UNKNOWN, ///< C could not say.
};

/// What a work queue is asked for (ibv_wq_init_attr). It is only read.
struct wq_init_attr {
    std::uint32_t max_wr = 16;      ///< receives that may wait in it; wq::cap tells what was granted
    std::uint32_t max_sge = 1;      ///< pieces of memory for each
    std::uint32_t create_flags = 0; ///< Of ibv_wq_flags.
    void* user_context = nullptr;   ///< Found again in `wq->wq_context`.
};

/// What an owned work queue and a view of one have in common.
template <class Handle>
class wq_operations : public receive_queue<Handle> {
public:
    /// Its number on the device; 0 when empty.
    std::uint32_t wq_num() const noexcept { return raw() ? raw()->wq_num : 0; }

    /// Changes its state (ibv_modify_wq): it is made in reset, and receives when it is rdy.
    void modify(wq_state to, std::error_code& ec) const noexcept {
        ibv_wq_attr attr{};
        attr.attr_mask = IBV_WQ_ATTR_STATE;
        attr.wq_state = static_cast<ibv_wq_state>(to);
        modify(attr, ec);
    }
    /// The same with all that C offers; the attributes are only read.
    void modify(ibv_wq_attr const& attr, std::error_code& ec) const noexcept {
        ibv_wq_attr copy = attr;
        ec = raw() ? detail::check_returned(::ibv_modify_wq(raw(), &copy)) : std::error_code(errc::empty_handle);
    }

#if RDMACPP_EXCEPTIONS
    /// The throwing forms. @throws rdma::error
    void modify(wq_state to) const {
        std::error_code ec;
        modify(to, ec);
        if (ec)
            detail::throw_error(ec, "ibv_modify_wq");
    }
    void modify(ibv_wq_attr const& attr) const {
        std::error_code ec;
        modify(attr, ec);
        if (ec)
            detail::throw_error(ec, "ibv_modify_wq");
    }
#endif

private:
    ibv_wq* raw() const noexcept { return static_cast<Handle const*>(this)->native_handle(); }
};

/// A borrowed work queue. It destroys nothing and cannot turn into an owner.
class wq_ref : public verbs_ref<wq_ref, ibv_wq>, public wq_operations<wq_ref> {
public:
    using verbs_ref::verbs_ref;
};

/// An owned work queue (ibv_create_wq). It keeps its PD and CQ alive, and an indirection table keeps it.
class [[nodiscard]] wq : public verbs_owner<detail::wq_node, wq_ref>, public wq_operations<wq> {
public:
    using verbs_owner::verbs_owner;
    /// Empty.
    wq() noexcept = default;

#if RDMACPP_EXCEPTIONS
    /// Makes a work queue for receives, in the state reset.
    /// @throws rdma::error errc::not_bound for an empty pd or cq; the errno of ibv_create_wq: EOPNOTSUPP where there
    /// are none
    wq(pd_ref pd, cq_ref cq, wq_init_attr const& attr) {
        std::error_code ec;
        *this = wq(pd, cq, attr, ec);
        if (ec)
            detail::throw_error(ec, "ibv_create_wq");
    }
#endif
    /// The twin of the creating constructor: empty on failure.
    wq(pd_ref pd, cq_ref cq, wq_init_attr const& attr, std::error_code& ec) noexcept {
        ibv_wq_init_attr c{};
        c.wq_context = attr.user_context;
        c.wq_type = IBV_WQT_RQ;
        c.max_wr = attr.max_wr;
        c.max_sge = attr.max_sge;
        c.pd = pd.native_handle();
        c.cq = cq.native_handle();
        c.create_flags = attr.create_flags;
        c.comp_mask = attr.create_flags ? std::uint32_t{IBV_WQ_INIT_ATTR_FLAGS} : 0U;
        if (auto* const node = fresh_node(pd && cq, ec))
            own(::ibv_create_wq(c.pd->context, &c), node, {detail::keeper(pd), detail::keeper(cq)}, ec);
        if (node_)
            node_->granted = {c.max_wr, c.max_sge};
    }

    /// What was granted, which may be more than was asked for; nothing of an adopted one.
    wq_cap cap() const noexcept { return node_ ? node_->granted : wq_cap(); }
};

static_assert(std::is_trivially_copyable_v<wq_ref>);
static_assert(detail::move_only<wq>);
static_assert(!detail::makes<wq, wq_ref> && !detail::makes<wq, ibv_wq*>);

} // namespace rdma::inline RDMACPP_ABI

template <>
struct std::hash<::rdma::wq_ref> : ::rdma::RDMACPP_ABI::detail::ref_hash<::rdma::wq_ref> {};

#endif
