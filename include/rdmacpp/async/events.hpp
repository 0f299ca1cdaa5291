// SPDX-License-Identifier: MIT
/// @file
/// The events of any channel, awaited one by one.
#pragma once

#include "../config.hpp"
#if __cplusplus >= 202002L && !defined(RDMACPP_TWO_VERSIONS) // otherwise config.hpp says what to do

#include "detail/events_source.hpp"
#include "event_loop.hpp"
#include "operation.hpp"

#include <cerrno>
#include <new>
#include <system_error>

namespace rdma::inline RDMACPP_ABI::async {

/// The events of one channel, of any kind, whoever they are for: device events, completion events, or connection events
/// where the program looks at the ids by itself.
///
///     rdma::async::events device(loop, context.async_channel());
///     rdma::async_event event = co_await device.next();
///
/// Several coroutines may wait; each event goes to one. What is there is got until there is nothing more, as
/// edge-triggered loops need. The channel must outlive this. One thread, the loop's.
template <class Channel>
class [[nodiscard]] events {
public:
    /// Empty.
    events() noexcept = default;
#if RDMACPP_EXCEPTIONS
    /// Of this channel. @throws rdma::error std::errc::not_enough_memory
    events(any_loop loop, Channel const& channel) {
        std::error_code ec;
        *this = events(loop, channel, ec);
        if (ec)
            detail::throw_error(ec, detail::get_name<typename detail::events_source<Channel>::event>);
    }
#endif
    /// The twin: empty on failure.
    events(any_loop loop, Channel const& channel, std::error_code& ec) noexcept
        : state_(new (std::nothrow) detail::events_source<Channel>(loop, channel)) {
        ec = state_ ? std::error_code() : detail::system_error_code(ENOMEM);
    }
    events(events&& other) noexcept : state_(detail::take(other.state_)) {}
    /// Drops what was held before.
    events& operator=(events&& other) noexcept {
        detail::events_source<Channel>* const mine = state_;
        state_ = detail::take(other.state_);
        if (mine)
            mine->close();
        return *this;
    }
    /// What waits ends with errc::empty_handle.
    ~events() {
        if (state_)
            state_->close();
    }

    explicit operator bool() const noexcept { return state_ != nullptr; }

#if RDMACPP_EXCEPTIONS
    /// Waits for the next event. @return the event, which is acked when it is dropped
    /// @throws rdma::error as Channel::try_get; std::errc::timed_out, std::errc::operation_canceled;
    /// errc::empty_handle when the object is dropped meanwhile
    auto next(limits within = {}) const noexcept {
        return awaitable<detail::next_of<Channel>, true>(nullptr, state_, detail::async_access::within(within));
    }
#endif
    /// The twins: what is awaited gives an empty event, and sets `ec`, which must outlive the wait.
    auto next(limits within, std::error_code& ec) const noexcept {
        return awaitable<detail::next_of<Channel>, false>(&ec, state_, detail::async_access::within(within));
    }
    auto next(std::error_code& ec) const noexcept { return next({}, ec); }

private:
    detail::events_source<Channel>* state_ = nullptr;
};

} // namespace rdma::inline RDMACPP_ABI::async

#endif
