// SPDX-License-Identifier: MIT
/// @file
/// A completion event, which acks itself.
#pragma once

#include "config.hpp"
#if __cplusplus >= 202002L && !defined(RDMACPP_TWO_VERSIONS) // otherwise config.hpp says what to do

#include "adopt.hpp"
#include "detail/contract.hpp"
#include "detail/verbs_node.hpp"
#include "event_source.hpp"

#include <utility>

namespace rdma::inline RDMACPP_ABI {

namespace detail {
struct completion_wait;
}

/// The news that a CQ which was armed has a completion: owned, move-only, acked exactly once.
///
/// While it is held it keeps its CQ alive (ibv_destroy_cq would wait for the ack for ever). C is told of acks in
/// batches, one CQ at a time, and of the rest before the CQ is destroyed.
class [[nodiscard]] cq_event {
public:
    /// No event.
    cq_event() noexcept = default;
    /// Takes over an event that C got: it must not ack it then.
    cq_event(adopt_t, ibv_cq* raw) noexcept : cq_(raw) {
        if (detail::verbs_table::get().find_and_pin(raw, node_) != detail::verbs_table::found::pinned)
            node_ = nullptr;
    }
    cq_event(cq_event&& other) noexcept
        : cq_(detail::take(other.cq_)), node_(detail::take(other.node_)), born_in_(other.born_in_) {}
    /// Acks the event held before, at once.
    cq_event& operator=(cq_event&& other) noexcept {
        cq_event(std::move(other)).swap(*this);
        return *this;
    }
    /// Acks the event, if it is still held. Never waits for anybody.
    ~cq_event() { ack(); }

    /// Acks now, rather than at the end of the scope (ibv_ack_cq_events, perhaps later, together with others).
    void ack() noexcept {
        ibv_cq* const cq = detail::take(cq_);
        detail::verbs_node* const node = detail::take(node_);
        if (!cq || born_in_ != detail::process::current())
            return;
        if (!node) {
            ::ibv_ack_cq_events(cq, 1); // a CQ of C's
            return;
        }
        node->settle_later(cq, 1);
        detail::unpin(node);
    }

    /// Gives up the event: C must ack it (ibv_ack_cq_events). Its CQ stays pinned until then is known, that is, for
    /// good.
    [[nodiscard]] ibv_cq* release() noexcept {
        node_ = nullptr;
        return detail::take(cq_);
    }

    /// The C completion queue it names; null when empty.
    ibv_cq* native_handle() const noexcept { return cq_; }
    explicit operator bool() const noexcept { return cq_ != nullptr; }
    void swap(cq_event& other) noexcept {
        detail::swap_values(cq_, other.cq_);
        detail::swap_values(node_, other.node_);
        detail::swap_values(born_in_, other.born_in_);
    }
    friend void swap(cq_event& a, cq_event& b) noexcept { a.swap(b); }

    /// The pointer given when the CQ was made.
    void* cq_context() const noexcept { return cq_ ? cq_->cq_context : nullptr; }

private:
    friend struct detail::completion_wait;
    template <class, bool>
    friend class event_range;
    template <class, class, bool>
    friend class event_source;

    using channel_type = detail::comp_channel_node;
    static constexpr char const* get_function = "ibv_get_cq_event";

    /// Gets what C has. @return false: nothing now
    static bool try_get(channel_type& channel, ibv_cq*& cq, wait_options options, std::error_code& ec) noexcept {
        channel.never_block();
        void* context = nullptr;
        return detail::gave([&]() noexcept { return ::ibv_get_cq_event(channel.object(), &cq, &context); }, options,
                            ec);
    }

    static bool try_receive(channel_type& channel, cq_event& event, wait_options options,
                            std::error_code& ec) noexcept {
        using found = detail::verbs_table::found;
        for (ibv_cq* cq = nullptr; try_get(channel, cq, options, ec);) {
            if (ec)
                return true;
            detail::verbs_node* node = nullptr;
            if (detail::verbs_table::get().find_and_pin(cq, node) == found::dying) {
                ::ibv_ack_cq_events(cq, 1); // its owner is gone: swallowed
                continue;
            }
            event = cq_event();
            event.cq_ = cq;
            event.node_ = node;
            return true;
        }
        return false;
    }

    static detail::woken receive(channel_type& channel, cq_event& event, detail::deadline const& until,
                                 any_stop_token const& stop, wait_options options, std::error_code& ec) noexcept {
        ec.clear();
        detail::keep const while_it_waits(&channel);
        return detail::get_or_wait(channel.room, static_cast<ibv_comp_channel*>(channel.raw)->fd, until, stop, options,
                                   ec, [&]() noexcept { return try_receive(channel, event, options, ec); });
    }

    ibv_cq* cq_ = nullptr;
    detail::verbs_node* node_ = nullptr;
    unsigned born_in_ = detail::process::current();
};

static_assert(detail::move_only<cq_event>);

} // namespace rdma::inline RDMACPP_ABI

#endif
