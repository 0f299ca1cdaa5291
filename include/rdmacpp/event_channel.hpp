// SPDX-License-Identifier: MIT
/// @file
/// Event channels: where the events of ids arrive.
#pragma once

#include "config.hpp"
#if __cplusplus >= 202002L && !defined(RDMACPP_TWO_VERSIONS) // otherwise config.hpp says what to do

#include "adopt.hpp"
#include "cm_event.hpp"
#include "detail/channel_state.hpp"
#include "detail/contract.hpp"
#include "event_source.hpp"
#include "stats.hpp"

#include <string>
#include <system_error>
#include <type_traits>
#include <utility>

namespace rdma::inline RDMACPP_ABI {

/// A borrowed event channel: one that C still loops on, or an event_channel. Ids can be made on it, and adopted; its
/// events are got by whoever owns it. It cannot turn into an owner.
///
/// While C gets the events, drop ids with a QP on the thread that gets: librdmacm looks at `id->qp` without a lock
/// there.
class event_channel_ref {
public:
    event_channel_ref() noexcept = default;
    explicit event_channel_ref(rdma_event_channel* raw) noexcept : raw_(raw) {}

    /// The C channel; null when empty.
    rdma_event_channel* native_handle() const noexcept { return raw_; }
    explicit operator bool() const noexcept { return raw_ != nullptr; }

    /// The descriptor, for an event loop: readable when there may be an event. -1 when empty.
    int fd() const noexcept { return raw_ ? raw_->fd : -1; }

    friend bool operator==(event_channel_ref a, event_channel_ref b) noexcept { return a.raw_ == b.raw_; }

private:
    rdma_event_channel* raw_ = nullptr;
};

/// An owned event channel (rdma_create_event_channel), and a range over its events:
///
///     for (rdma::cm_event event : channel) { ... }   // waits; acks at the end of each turn, on break, on throw
///
/// The C channel is always non-blocking; the waiting is done here, so that it can be timed, stopped and interrupted.
/// The object may be dropped before its ids, its events and its iterators: the C channel is destroyed with the last of
/// them. Moving the object moves no C object. Any thread may get events while others make, use and drop ids.
class [[nodiscard]] event_channel : public event_source<event_channel, cm_event> {
public:
#if RDMACPP_EXCEPTIONS
    /// Opens a channel.
    /// @throws rdma::error the errno of rdma_create_event_channel: ENODEV (no RDMA device), ENOENT (module rdma_ucm
    /// missing), EACCES, EMFILE; std::errc::not_enough_memory
    event_channel() {
        std::error_code ec;
        state_ = detail::channel_state::open(ec);
        if (ec)
            detail::throw_error(ec, "rdma_create_event_channel");
    }
    /// Takes over a channel that C opened, or that release() gave back; it becomes non-blocking, for C too.
    /// @throws rdma::error errc::null_handle, errc::already_owned
    event_channel(adopt_t, rdma_event_channel* raw) {
        std::error_code ec;
        state_ = detail::channel_state::adopt(raw, ec);
        if (ec)
            detail::throw_error(ec, "rdma_create_event_channel", {"adopt"});
    }
#endif
    /// The twin of the opening constructor: empty on failure.
    explicit event_channel(std::error_code& ec) noexcept : state_(detail::channel_state::open(ec)) {}
    /// The twin of the adopting constructor: empty on failure.
    event_channel(adopt_t, rdma_event_channel* raw, std::error_code& ec) noexcept
        : state_(detail::channel_state::adopt(raw, ec)) {}
    /// Empty: nothing is opened.
    explicit event_channel(no_init_t) noexcept {}

    event_channel(event_channel&& other) noexcept : state_(detail::take(other.state_)) {}
    /// Drops the channel held before.
    event_channel& operator=(event_channel&& other) noexcept {
        event_channel(std::move(other)).swap(*this);
        return *this;
    }
    /// Drops the channel: waits on it end, and the C channel is destroyed (rdma_destroy_event_channel) when no id,
    /// event or iterator needs it any more. Never waits.
    ~event_channel() {
        if (state_)
            state_->close();
    }

    /// The C channel, still owned by this; null when empty.
    rdma_event_channel* native_handle() const noexcept { return state_ ? state_->raw : nullptr; }
    explicit operator bool() const noexcept { return state_ != nullptr; }

    /// The descriptor, for anybody's event loop (poll, epoll, io_uring): readable when there may be an event, to be got
    /// with try_get() or pending(). Close-on-exec. -1 when empty.
    int fd() const noexcept { return state_ ? state_->raw->fd : -1; }

    /// Gives the C channel back, blocking as it was; takes no lock and makes no C call. Ids and events made on it go on
    /// working, as long as C does not destroy it.
    [[nodiscard]] rdma_event_channel* release() noexcept { return state_ ? detail::take(state_)->release() : nullptr; }

    void swap(event_channel& other) noexcept { detail::swap_values(state_, other.state_); }
    friend void swap(event_channel& a, event_channel& b) noexcept { a.swap(b); }

    operator event_channel_ref() const& noexcept { return event_channel_ref(native_handle()); }
    operator event_channel_ref() const&& = delete;

    /// What went through the channel, and what is put off. All zero when empty.
    channel_stats stats() const noexcept { return state_ ? state_->stats() : channel_stats(); }

    friend std::string to_string(event_channel const& channel);

private:
    friend class event_source<event_channel, cm_event>;
    friend struct detail::event_access;
    detail::channel_state* channel() const noexcept { return state_; }

    detail::channel_state* state_ = nullptr;
};

static_assert(detail::move_only<event_channel>);
static_assert(std::is_trivially_copyable_v<event_channel_ref> && sizeof(event_channel_ref) == sizeof(void*));
static_assert(!detail::makes<event_channel, event_channel_ref> && !detail::makes<event_channel, rdma_event_channel*>);
static_assert(sizeof(event_channel) == sizeof(void*));

/// For a stuck process: the counters, then each id that was dropped and waits for its last ack, with the events held of
/// it.
inline std::string to_string(event_channel const& channel) {
    if (!channel)
        return "no event channel";
    channel_stats const now = channel.stats();
    std::string text =
        detail::concat({"event channel, fd ", std::to_string(channel.fd()), ": ", std::to_string(now.events_got),
                        " events got, ", std::to_string(now.events_acked), " acked, ", std::to_string(now.events_held),
                        " held; ", std::to_string(now.ids_live), " ids live, ", std::to_string(now.ids_awaiting_ack),
                        " awaiting their last ack"});
    detail::lock_guard const lock(channel.state_->mutex);
    channel.state_->ids.for_each([&text](detail::id_record const* id) {
        if (!id->has(detail::id_status::dropped) || id->pins.load(detail::order::relaxed) == 0)
            return;
        text.append(detail::concat({"\n  id ", to_string(cm_id_ref(id->raw)), " is held by"}));
        std::uint32_t const named = id->named.load(detail::order::relaxed);
        if (id->events == 0 && named == 0)
            text.append(std::string_view(" what was made from it"));
        for (std::size_t i = 0; i != detail::id_record::tallies; ++i)
            if (std::uint32_t const held = id->held_events[i].held; held != 0)
                text.append(
                    detail::concat({" ", std::to_string(held), " x ", to_string(static_cast<cm_event_type>(i))}));
        if (named != 0)
            text.append(detail::concat({" ", std::to_string(named), " x CONNECT_REQUEST that brought it"}));
    });
    return text;
}

} // namespace rdma::inline RDMACPP_ABI

template <>
struct std::hash<::rdma::event_channel_ref> {
    std::size_t operator()(::rdma::event_channel_ref handle) const noexcept {
        return std::hash<void const*>()(handle.native_handle());
    }
};

#endif
