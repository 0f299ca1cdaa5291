// SPDX-License-Identifier: MIT
/// @file
/// Asynchronous device events, which ack themselves.
#pragma once

#include "config.hpp"
#if __cplusplus >= 202002L // below, config.hpp says what to do

#include "context.hpp"
#include "detail/contract.hpp"
#include "detail/verbs_node.hpp"
#include "qp.hpp"

#include <string>
#include <utility>

#include <fcntl.h>

namespace rdma::inline RDMACPP_ABI {

/// An asynchronous event of a device: owned, move-only, acked exactly once (ibv_ack_async_event).
///
/// While it is held it keeps the QP, CQ or SRQ that it names alive, whose destroy would wait for the ack for ever.
class [[nodiscard]] async_event {
public:
    /// No event.
    async_event() noexcept = default;
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

    explicit operator bool() const noexcept { return held_; }

    /// What happened; the kernel may send types that are newer than this header.
    ibv_event_type type() const noexcept { return raw_.event_type; }

    /// The QP it is about; empty if it is about something else.
    qp_ref qp() const noexcept { return held_ && about_qp(raw_.event_type) ? qp_ref(raw_.element.qp) : qp_ref(); }

    /// The CQ it is about; empty if it is about something else.
    cq_ref cq() const noexcept {
        return held_ && raw_.event_type == IBV_EVENT_CQ_ERR ? cq_ref(raw_.element.cq) : cq_ref();
    }

    /// The SRQ it is about; empty if it is about something else.
    srq_ref srq() const noexcept { return held_ && about_srq(raw_.event_type) ? srq_ref(raw_.element.srq) : srq_ref(); }

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
    friend class context_ref;

    static bool about_qp(ibv_event_type type) noexcept {
        switch (type) {
        case IBV_EVENT_QP_FATAL:
        case IBV_EVENT_QP_REQ_ERR:
        case IBV_EVENT_QP_ACCESS_ERR:
        case IBV_EVENT_COMM_EST:
        case IBV_EVENT_SQ_DRAINED:
        case IBV_EVENT_PATH_MIG:
        case IBV_EVENT_PATH_MIG_ERR:
        case IBV_EVENT_QP_LAST_WQE_REACHED: return true;
        default: return false;
        }
    }

    static bool about_srq(ibv_event_type type) noexcept {
        return type == IBV_EVENT_SRQ_ERR || type == IBV_EVENT_SRQ_LIMIT_REACHED;
    }

    /// The C object whose destroy waits for the ack; null for events of ports and devices.
    static void const* element(ibv_async_event const& event) noexcept {
        if (about_qp(event.event_type))
            return event.element.qp;
        if (about_srq(event.event_type))
            return event.element.srq;
        return event.event_type == IBV_EVENT_CQ_ERR ? event.element.cq : nullptr;
    }

    ibv_async_event raw_{};
    detail::verbs_node* node_ = nullptr;
    unsigned born_in_ = detail::process::current();
    bool held_ = false;
};

static_assert(detail::move_only<async_event>);

/// The type, as libibverbs names it.
inline std::string to_string(async_event const& event) {
    return event ? ::ibv_event_type_str(event.type()) : "no event";
}

inline async_event context_ref::try_get_async_event(std::error_code& ec) const noexcept {
    ec.clear();
    if (!raw_) {
        ec = errc::empty_handle;
        return {};
    }
    ::fcntl(raw_->async_fd, F_SETFL, ::fcntl(raw_->async_fd, F_GETFL) | O_NONBLOCK);
    for (;;) {
        async_event event;
        if (::ibv_get_async_event(raw_, &event.raw_) != 0) {
            int const reason = errno;
            if (reason == EINTR)
                continue;
            if (reason != EAGAIN && reason != EWOULDBLOCK)
                ec = detail::system_error_code(reason);
            return {};
        }
        using found = detail::verbs_table::found;
        void const* const about = async_event::element(event.raw_);
        event.held_ = true;
        if (!about || detail::verbs_table::get().find_and_pin(about, event.node_) != found::dying)
            return event;
        event.node_ = nullptr; // its owner is gone: acked and swallowed
    }
}

#if RDMACPP_EXCEPTIONS
inline async_event context_ref::try_get_async_event() const {
    std::error_code ec;
    async_event event = try_get_async_event(ec);
    if (ec)
        detail::throw_error(ec, "ibv_get_async_event", {device_name()});
    return event;
}
#endif

} // namespace rdma::inline RDMACPP_ABI

#endif
