// SPDX-License-Identifier: MIT
/// @file
/// Accepting connections without a thread for each.
#pragma once

#include "../config.hpp"
#if __cplusplus >= 202002L && !defined(RDMACPP_TWO_VERSIONS) // otherwise config.hpp says what to do

#include "../acceptor.hpp"
#include "cm_id.hpp"
#include "detail/connecting.hpp"
#include "event_channel.hpp"
#include "operation.hpp"

#include <concepts>
#include <span>
#include <string>
#include <system_error>
#include <utility>

namespace rdma::inline RDMACPP_ABI::async {

#if RDMACPP_EXCEPTIONS
/// Accepts the request that brought an id, on this channel, to which it is moved if it is on another: so an acceptor of
/// one thread can give its requests to workers. Makes the QP, accepts, and waits until the connection is ESTABLISHED.
/// On failure, and when the coroutine is destroyed, the peer is rejected.
/// @param undecided of cm_event::take_id, or request::take_id
/// @param prepare called as `prepare(id, ec)` when the QP is there, before it is accepted; it must not throw
/// @return the connected id @throws connect_error as request::accept of ::rdma::acceptor
template <std::invocable<::rdma::cm_id&, std::error_code&> Prepare = detail::prepare_nothing>
auto accept(event_channel const& channel, ::rdma::cm_id undecided, accept_options const& options = {},
            Prepare prepare = {}) noexcept {
    return awaitable<detail::async_accepting<Prepare>, true>(nullptr, detail::async_access::state(channel),
                                                             std::move(undecided), options, std::move(prepare));
}
#endif
/// The twins: what is awaited gives an empty id, and sets `ec`, which must outlive the wait.
template <std::invocable<::rdma::cm_id&, std::error_code&> Prepare>
auto accept(event_channel const& channel, ::rdma::cm_id undecided, accept_options const& options, Prepare prepare,
            std::error_code& ec) noexcept {
    return awaitable<detail::async_accepting<Prepare>, false>(&ec, detail::async_access::state(channel),
                                                              std::move(undecided), options, std::move(prepare));
}
inline auto accept(event_channel const& channel, ::rdma::cm_id undecided, accept_options const& options,
                   std::error_code& ec) noexcept {
    return accept(channel, std::move(undecided), options, detail::prepare_nothing(), ec);
}

/// A request for a connection: a CONNECT_REQUEST, and the new id that it brings. Dropped, the peer is rejected. While
/// it is held, the listener's port is in use.
class [[nodiscard]] request {
public:
    /// No request.
    request() noexcept = default;
    explicit request(cm_event event) noexcept : event_(std::move(event)) {}

    explicit operator bool() const noexcept { return static_cast<bool>(event_); }

    /// The CONNECT_REQUEST: its private data, parameters and addresses.
    cm_event& event() & noexcept { return event_; }
    cm_event const& event() const& noexcept { return event_; }
    cm_event const& event() const&& = delete;

    /// The address of who asks.
    address peer_addr() const noexcept { return event_ ? event_.id().peer_addr() : address(); }
    /// The address that was asked.
    address local_addr() const noexcept { return event_ ? event_.id().local_addr() : address(); }

    /// The new id, undecided, for accept(). The request is empty afterwards, and so is the id if it was already.
    [[nodiscard]] ::rdma::cm_id take_id() noexcept {
        std::error_code ec;
        ::rdma::cm_id id = event_ ? event_.take_id(ec) : ::rdma::cm_id();
        event_.ack();
        return id;
    }

    /// Rejects it (rdma_reject), with private data. Empty afterwards.
    void reject(std::span<std::byte const> private_data, std::error_code& ec) noexcept {
        ec = errc::empty_handle;
        if (::rdma::cm_id id = take_id())
            id.reject(private_data, ec);
    }
    /// The same, without private data.
    void reject(std::error_code& ec) noexcept { reject({}, ec); }
#if RDMACPP_EXCEPTIONS
    /// The throwing form. @throws rdma::error as ::rdma::cm_id::reject
    void reject(std::span<std::byte const> private_data = {}) {
        std::error_code ec;
        reject(private_data, ec);
        if (ec)
            detail::throw_error(ec, "rdma_reject", {std::to_string(private_data.size()), " bytes"});
    }
#endif

private:
    cm_event event_;
};

/// A listener on a channel that a loop watches:
///
///     while (rdma::async::request request = co_await acceptor.next())
///         sessions.spawn(session(channel, request.take_id()));
///
/// All of it belongs to the loop's thread.
class [[nodiscard]] acceptor {
public:
    /// Empty.
    acceptor() noexcept = default;
#if RDMACPP_EXCEPTIONS
    /// Listens on an address (rdma_bind_addr, rdma_listen); port 0 lets the system choose.
    /// @throws rdma::error as ::rdma::acceptor
    acceptor(event_channel const& channel, address const& local, acceptor_options const& options = {}) {
        std::error_code ec;
        char const* const function = open(channel, local, options, ec);
        if (ec)
            detail::throw_error(ec, function, {to_string(local)});
    }
#endif
    /// The twin: empty on failure.
    acceptor(event_channel const& channel, address const& local, acceptor_options const& options,
             std::error_code& ec) noexcept {
        open(channel, local, options, ec);
    }
    acceptor(event_channel const& channel, address const& local, std::error_code& ec) noexcept
        : acceptor(channel, local, {}, ec) {}

    explicit operator bool() const noexcept { return static_cast<bool>(listener_); }

    /// The listening id.
    cm_id& id() noexcept { return listener_; }
    /// Where it listens, with the real port.
    address local_addr() const noexcept { return listener_ ? listener_->local_addr() : address(); }

#if RDMACPP_EXCEPTIONS
    /// Waits for the next request: the first one that came since the last, or that comes.
    /// @return the request
    /// @throws rdma::error std::errc::timed_out, std::errc::operation_canceled, ENODEV when the device was removed;
    /// errc::empty_handle when the acceptor or the channel is dropped meanwhile
    auto next(limits within = {}) const noexcept {
        return awaitable<detail::next_request, true>(nullptr, detail::async_access::state(listener_),
                                                     detail::async_access::within(within));
    }
#endif
    /// The twins: what is awaited gives no request, and sets `ec`, which must outlive the wait.
    auto next(limits within, std::error_code& ec) const noexcept {
        return awaitable<detail::next_request, false>(&ec, detail::async_access::state(listener_),
                                                      detail::async_access::within(within));
    }
    auto next(std::error_code& ec) const noexcept { return next({}, ec); }

private:
    /// @return the last C function that was called
    char const* open(event_channel const& channel, address const& local, acceptor_options const& options,
                     std::error_code& ec) noexcept {
        ::rdma::cm_id id(channel, options.port_space, ec);
        if (ec)
            return "rdma_create_id";
        char const* const function = detail::listen(id, local, options, ec);
        if (!ec)
            listener_ = cm_id(channel, std::move(id), ec);
        return function;
    }

    cm_id listener_;
};

static_assert(detail::move_only<acceptor> && detail::move_only<request>);

} // namespace rdma::inline RDMACPP_ABI::async

namespace rdma::inline RDMACPP_ABI::detail {

inline async::request next_request::take() noexcept { return async::request(std::move(event_)); }

} // namespace rdma::inline RDMACPP_ABI::detail

#endif
