// SPDX-License-Identifier: MIT
/// @file
/// Event channels that a loop watches.
#pragma once

#include "../config.hpp"
#if __cplusplus >= 202002L && !defined(RDMACPP_TWO_VERSIONS) // otherwise config.hpp says what to do

#include "detail/channel_source.hpp"
#include "event_loop.hpp"

#include <cerrno>
#include <new>
#include <system_error>
#include <utility>

namespace rdma::inline RDMACPP_ABI::async {

/// An event channel for any number of ids, watched by a loop: each event goes to what waits for its id, or is kept with
/// the id until something does. An id with an id_handler on dispatch() has its events handed to that.
///
/// It is watched while something waits, or has a handler: a loop that ends when there is nothing to do ends. The object
/// may be dropped before its ids; what waits on it then ends with errc::empty_handle. All of it belongs to the loop's
/// thread, and the loop outlives it.
class [[nodiscard]] event_channel {
public:
    /// Empty.
    event_channel() noexcept = default;
#if RDMACPP_EXCEPTIONS
    /// Opens a channel (rdma_create_event_channel).
    /// @throws rdma::error as rdma::event_channel
    explicit event_channel(any_loop loop) {
        std::error_code ec;
        *this = event_channel(loop, ec);
        if (ec)
            ::rdma::RDMACPP_ABI::detail::throw_error(ec, "rdma_create_event_channel");
    }
#endif
    /// The twin: empty on failure.
    event_channel(any_loop loop, std::error_code& ec) noexcept {
        ::rdma::event_channel opened(ec);
        if (!ec)
            *this = event_channel(loop, std::move(opened), ec);
    }
    /// Takes over a channel, whose ids are moved in with cm_id. @param ec std::errc::not_enough_memory
    event_channel(any_loop loop, ::rdma::event_channel channel, std::error_code& ec) noexcept
        : state_(new (std::nothrow) detail::channel_source(loop, std::move(channel))) {
        ec = state_ ? std::error_code() : detail::system_error_code(ENOMEM);
    }
    event_channel(event_channel&& other) noexcept : state_(detail::take(other.state_)) {}
    /// Drops the channel held before.
    event_channel& operator=(event_channel&& other) noexcept {
        event_channel(std::move(other)).swap(*this);
        return *this;
    }
    /// What waits on it ends; the C channel goes with the last of its ids. Never waits.
    ~event_channel() {
        if (state_)
            state_->close();
    }

    explicit operator bool() const noexcept { return state_ != nullptr; }
    void swap(event_channel& other) noexcept { detail::swap_values(state_, other.state_); }
    friend void swap(event_channel& a, event_channel& b) noexcept { a.swap(b); }

    /// The loop that watches it. Precondition, asserted: it is not empty.
    any_loop loop() const noexcept {
        RDMACPP_ASSERT(state_);
        return state_->loop();
    }
    /// For ids with a handler of their own (id_handler). Precondition, asserted: it is not empty.
    dispatcher& dispatch() const noexcept {
        RDMACPP_ASSERT(state_);
        return *state_;
    }
    /// A view of the channel, to make ids on.
    operator event_channel_ref() const& noexcept {
        return state_ ? event_channel_ref(state_->channel().native_handle()) : event_channel_ref();
    }
    operator event_channel_ref() const&& = delete;
    /// What went through it.
    channel_stats stats() const noexcept { return state_ ? state_->channel().stats() : channel_stats(); }

private:
    friend struct detail::async_access;

    detail::channel_source* state_ = nullptr;
};

static_assert(detail::move_only<event_channel> && sizeof(event_channel) == sizeof(void*));

} // namespace rdma::inline RDMACPP_ABI::async

#endif
