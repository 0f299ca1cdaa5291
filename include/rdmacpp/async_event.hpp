// SPDX-License-Identifier: MIT
/// @file
/// Asynchronous device events, which ack themselves.
#pragma once

#include "config.hpp"
#if __cplusplus >= 202002L && !defined(RDMACPP_TWO_VERSIONS) // otherwise config.hpp says what to do

#include "adopt.hpp"
#include "context.hpp"
#include "qp.hpp"
#include "wq.hpp"

#include <cstdint>
#include <string>
#include <utility>

namespace rdma::inline RDMACPP_ABI {

/// What happened (ibv_event_type). The kernel may send types that are newer than this list.
enum class async_event_type {
    // of a QP
    qp_fatal = IBV_EVENT_QP_FATAL,                       ///< The QP has failed beyond repair.
    qp_req_err = IBV_EVENT_QP_REQ_ERR,                   ///< A request of the peer was invalid.
    qp_access_err = IBV_EVENT_QP_ACCESS_ERR,             ///< A peer touched memory that it may not.
    comm_est = IBV_EVENT_COMM_EST,                       ///< Data came before the connection was ready: rdma_notify.
    sq_drained = IBV_EVENT_SQ_DRAINED,                   ///< All that was sent before the SQD state is done.
    path_mig = IBV_EVENT_PATH_MIG,                       ///< The connection has moved to its alternate path.
    path_mig_err = IBV_EVENT_PATH_MIG_ERR,               ///< It could not move to its alternate path.
    qp_last_wqe_reached = IBV_EVENT_QP_LAST_WQE_REACHED, ///< A failed QP takes no more from its SRQ.
    // of a CQ, an SRQ, a WQ
    cq_err = IBV_EVENT_CQ_ERR,                       ///< The CQ has overrun, or failed.
    srq_err = IBV_EVENT_SRQ_ERR,                     ///< The SRQ has failed.
    srq_limit_reached = IBV_EVENT_SRQ_LIMIT_REACHED, ///< Fewer receives wait in the SRQ than its limit.
    wq_fatal = IBV_EVENT_WQ_FATAL,                   ///< The WQ has failed.
    // of a port
    port_active = IBV_EVENT_PORT_ACTIVE,             ///< The link is up.
    port_err = IBV_EVENT_PORT_ERR,                   ///< The link is down.
    lid_change = IBV_EVENT_LID_CHANGE,               ///< The port has another LID.
    pkey_change = IBV_EVENT_PKEY_CHANGE,             ///< The table of partition keys has changed.
    sm_change = IBV_EVENT_SM_CHANGE,                 ///< The subnet has another manager.
    client_reregister = IBV_EVENT_CLIENT_REREGISTER, ///< The subnet manager wants all subscriptions again.
    gid_change = IBV_EVENT_GID_CHANGE,               ///< The table of GIDs has changed: an address came or went.
    // of the device
    device_fatal = IBV_EVENT_DEVICE_FATAL, ///< The device has failed.
};

/// The name of a type, as libibverbs gives it.
inline std::string to_string(async_event_type type) { return ::ibv_event_type_str(static_cast<ibv_event_type>(type)); }

/// What an asynchronous event is about.
enum class async_event_kind {
    none,    ///< The event is empty.
    qp,      ///< A queue pair.
    cq,      ///< A completion queue.
    srq,     ///< A shared receive queue.
    wq,      ///< A work queue.
    port,    ///< A port of the device.
    device,  ///< The whole device.
    unknown, ///< Of a type that is newer than this header.
};

/// What events of a type are about; of types that this header does not know: unknown.
constexpr async_event_kind kind(async_event_type type) noexcept {
    using enum async_event_type;
    switch (type) {
    case qp_fatal:
    case qp_req_err:
    case qp_access_err:
    case comm_est:
    case sq_drained:
    case path_mig:
    case path_mig_err:
    case qp_last_wqe_reached: return async_event_kind::qp;
    case cq_err: return async_event_kind::cq;
    case srq_err:
    case srq_limit_reached: return async_event_kind::srq;
    case wq_fatal: return async_event_kind::wq;
    case port_active:
    case port_err:
    case lid_change:
    case pkey_change:
    case sm_change:
    case client_reregister:
    case gid_change: return async_event_kind::port;
    case device_fatal: return async_event_kind::device;
    }
    return async_event_kind::unknown;
}

/// An asynchronous event of a device: owned, move-only, acked exactly once (ibv_ack_async_event).
///
/// While it is held it keeps the QP, CQ, SRQ or WQ that it names alive, whose destroy would wait for the ack for ever.
/// An event about an object that is not rdmacpp's passes through like any other, and pins nothing.
class [[nodiscard]] async_event {
public:
    /// No event.
    async_event() noexcept = default;
    /// Takes over an event that C got: it must not ack it then.
    async_event(adopt_t, ibv_async_event const& raw) noexcept : raw_(raw), held_(true) {
        using found = detail::verbs_table::found;
        if (detail::verbs_table::get().find_and_pin(element(), node_) != found::pinned)
            node_ = nullptr;
    }
    async_event(async_event&& other) noexcept
        : raw_(other.raw_), node_(detail::take(other.node_)), born_in_(other.born_in_),
          held_(detail::take(other.held_)) {}
    /// Acks the event held before, at once.
    async_event& operator=(async_event&& other) noexcept {
        async_event(std::move(other)).swap(*this);
        return *this;
    }
    /// Acks the event, if it is still held. Never waits for anybody.
    ~async_event() { ack(); }

    /// Acks now, rather than at the end of the scope.
    void ack() noexcept {
        detail::verbs_node* const node = detail::take(node_);
        if (!detail::take(held_) || born_in_ != detail::process::current())
            return;
        ::ibv_ack_async_event(&raw_);
        detail::unpin(node);
    }

    /// Gives up the event: C must ack it (ibv_ack_async_event). What it names stays pinned until then is known, that
    /// is, for good.
    [[nodiscard]] ibv_async_event release() noexcept {
        node_ = nullptr;
        held_ = false;
        return raw_;
    }

    explicit operator bool() const noexcept { return held_; }

    /// What happened.
    async_event_type type() const noexcept { return static_cast<async_event_type>(raw_.event_type); }
    /// What it is about; none if this is no event.
    async_event_kind kind() const noexcept { return held_ ? ::rdma::kind(type()) : async_event_kind::none; }

    /// The object that it is about, valid as long as the event is held; empty if it is about something else.
    qp_ref qp() const noexcept { return kind() == async_event_kind::qp ? qp_ref(raw_.element.qp) : qp_ref(); }
    cq_ref cq() const noexcept { return kind() == async_event_kind::cq ? cq_ref(raw_.element.cq) : cq_ref(); }
    srq_ref srq() const noexcept { return kind() == async_event_kind::srq ? srq_ref(raw_.element.srq) : srq_ref(); }
    wq_ref wq() const noexcept { return kind() == async_event_kind::wq ? wq_ref(raw_.element.wq) : wq_ref(); }
    /// The port that it is about, from 1; 0 if it is about something else.
    std::uint8_t port_num() const noexcept {
        return kind() == async_event_kind::port ? static_cast<std::uint8_t>(raw_.element.port_num) : std::uint8_t{0};
    }

    /// The C event, still to be acked by this.
    ibv_async_event const& native_handle() const noexcept { return raw_; }
    void swap(async_event& other) noexcept {
        detail::swap_values(raw_, other.raw_);
        detail::swap_values(held_, other.held_);
        detail::swap_values(node_, other.node_);
        detail::swap_values(born_in_, other.born_in_);
    }
    friend void swap(async_event& a, async_event& b) noexcept { a.swap(b); }

private:
    template <class, bool>
    friend class event_range;
    template <class, class, bool>
    friend class event_source;

    using channel_type = detail::context_node;
    static constexpr char const* get_function = "ibv_get_async_event";

    static bool try_receive(channel_type& channel, async_event& event, wait_options options,
                            std::error_code& ec) noexcept {
        using found = detail::verbs_table::found;
        async_event got;
        while (
            detail::gave([&]() noexcept { return ::ibv_get_async_event(channel.object(), &got.raw_); }, options, ec)) {
            if (ec)
                return true;
            got.held_ = true;
            if (detail::verbs_table::get().find_and_pin(got.element(), got.node_) != found::dying) {
                event = std::move(got);
                return true;
            }
            got.node_ = nullptr; // its owner is gone, and its destroy waits for this: acked and swallowed
            got.ack();
        }
        return false;
    }

    static detail::woken receive(channel_type& channel, async_event& event, detail::deadline const& until,
                                 any_stop_token const& stop, wait_options options, std::error_code& ec) noexcept {
        ec.clear();
        detail::keep const while_it_waits(&channel);
        return detail::get_or_wait(channel.room, channel.object()->async_fd, until, stop, options, ec,
                                   [&]() noexcept { return try_receive(channel, event, options, ec); });
    }

    /// The C object whose destroy waits for the ack; null for events of ports and devices.
    void const* element() const noexcept {
        switch (::rdma::kind(type())) {
        case async_event_kind::qp: return raw_.element.qp;
        case async_event_kind::cq: return raw_.element.cq;
        case async_event_kind::srq: return raw_.element.srq;
        case async_event_kind::wq: return raw_.element.wq;
        default: return nullptr;
        }
    }

    ibv_async_event raw_{};
    detail::verbs_node* node_ = nullptr;
    unsigned born_in_ = detail::process::current();
    bool held_ = false;
};

static_assert(detail::move_only<async_event>);

/// The type, as libibverbs names it.
inline std::string to_string(async_event const& event) {
    return event ? to_string(event.type()) : std::string("no event");
}

} // namespace rdma::inline RDMACPP_ABI

#endif
