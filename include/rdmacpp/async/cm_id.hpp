// SPDX-License-Identifier: MIT
/// @file
/// Ids whose events are awaited.
#pragma once

#include "../config.hpp"
#if __cplusplus >= 202002L && !defined(RDMACPP_TWO_VERSIONS) // otherwise config.hpp says what to do

#include "detail/id_operations.hpp"
#include "event_channel.hpp"
#include "operation.hpp"

#include <chrono>
#include <system_error>
#include <utility>

namespace rdma::inline RDMACPP_ABI::async {

/// An owned id on a channel that a loop watches. What takes time is awaited; all else is done with the id itself:
///
///     co_await id.resolve_addr(peer);
///     co_await id.resolve_route();
///     id->create_qp(attr);
///     id->post_recv(...);
///     co_await id.connect(param, limits);
///
/// It may be dropped at any time, also while something waits for it, which ends with errc::empty_handle then. Whatever
/// waits is a coroutine's own: destroyed, it is forgotten. All of it belongs to the loop's thread.
class [[nodiscard]] cm_id {
public:
    /// Empty.
    cm_id() noexcept = default;
#if RDMACPP_EXCEPTIONS
    /// Makes an id (rdma_create_id). @throws rdma::error as ::rdma::cm_id
    cm_id(event_channel const& channel, ::rdma::port_space ps) {
        std::error_code ec;
        *this = cm_id(channel, ps, ec);
        if (ec)
            detail::throw_error(ec, "rdma_create_id");
    }
    /// Takes over an id, and moves it to this channel if it is on another (rdma_migrate_id): one that another thread
    /// made, for example. @throws rdma::error errc::empty_handle; as ::rdma::cm_id::migrate
    cm_id(event_channel const& channel, ::rdma::cm_id id) {
        std::error_code ec;
        *this = cm_id(channel, std::move(id), ec);
        if (ec)
            detail::throw_error(ec, "rdma_migrate_id");
    }
#endif
    /// The twins: empty on failure; an id that was given is dropped then.
    cm_id(event_channel const& channel, ::rdma::port_space ps, std::error_code& ec) noexcept {
        ::rdma::cm_id id(channel, ps, ec);
        if (!ec)
            *this = cm_id(channel, std::move(id), ec);
    }
    cm_id(event_channel const& channel, ::rdma::cm_id id, std::error_code& ec) noexcept {
        ec = errc::empty_handle;
        if (channel)
            state_ = detail::awaited_id::make(*detail::async_access::state(channel), std::move(id), ec);
    }
    cm_id(cm_id&& other) noexcept : state_(detail::take(other.state_)) {}
    /// Drops the id held before, at once.
    cm_id& operator=(cm_id&& other) noexcept {
        cm_id(std::move(other)).swap(*this);
        return *this;
    }
    /// Drops the id, as ::rdma::cm_id does; what waits for it ends.
    ~cm_id() { delete state_; }

    explicit operator bool() const noexcept { return state_ != nullptr; }
    void swap(cm_id& other) noexcept { detail::swap_values(state_, other.state_); }
    friend void swap(cm_id& a, cm_id& b) noexcept { a.swap(b); }

    /// The id itself. It must not be moved to another channel: take it for that. Precondition, asserted: not empty.
    ::rdma::cm_id& operator*() const noexcept {
        RDMACPP_ASSERT(state_);
        return state_->id();
    }
    ::rdma::cm_id* operator->() const noexcept { return &**this; }
    operator cm_id_ref() const& noexcept { return state_ ? cm_id_ref(state_->id()) : cm_id_ref(); }
    operator cm_id_ref() const&& = delete;

    /// Gives the id back; what waits for it ends, and events that were not awaited are acked. Empty afterwards.
    [[nodiscard]] ::rdma::cm_id take() noexcept {
        ::rdma::cm_id id = state_ ? state_->leave() : ::rdma::cm_id();
        delete detail::take(state_);
        return id;
    }

    /// Whether its connection is over, as far as its events have told: also those that nobody has waited for yet. False
    /// when empty.
    bool is_over() const noexcept { return state_ && state_->over; }

#if RDMACPP_EXCEPTIONS
    /// Waits for its next event: the first one that came since the last, or that comes.
    /// @return the event, which is acked when it is dropped
    /// @throws rdma::error std::errc::timed_out, std::errc::operation_canceled; errc::empty_handle when the id or its
    /// channel is dropped meanwhile
    auto next(limits within = {}) const noexcept {
        return awaitable<detail::next_event, true>(nullptr, state_, detail::async_access::within(within));
    }
    /// Resolves the peer's address (rdma_resolve_addr), from a given local one, whose port may be 0, until
    /// ADDR_RESOLVED.
    /// @throws connect_error what ::rdma::cm_id::resolve_addr and the event say; std::errc::timed_out,
    /// std::errc::operation_canceled; errc::empty_handle when the id or its channel is dropped meanwhile. All of
    /// these throw the same
    auto resolve_addr(address const& local, address const& peer,
                      limits within = std::chrono::seconds(2)) const noexcept {
        return awaitable<detail::resolve_addr, true>(nullptr, state_, local, peer,
                                                     detail::async_access::within(within));
    }
    /// The same; the system chooses the local address.
    auto resolve_addr(address const& peer, limits within = std::chrono::seconds(2)) const noexcept {
        return resolve_addr(address(), peer, std::move(within));
    }
    /// Finds the route to the peer (rdma_resolve_route), until ROUTE_RESOLVED. @throws connect_error
    auto resolve_route(limits within = std::chrono::seconds(2)) const noexcept {
        return awaitable<detail::resolve_route, true>(nullptr, state_, detail::async_access::within(within));
    }
    /// Asks the peer for a connection (rdma_connect), until ESTABLISHED. When it fails, is late or stopped, what the
    /// kernel is still at is over only with the id. On iWARP the call itself may block, as ::rdma::cm_id::connect says.
    /// @throws connect_error
    auto connect(conn_param const& param = {}, limits within = std::chrono::seconds(10)) const noexcept {
        return awaitable<detail::connect_id, true>(nullptr, state_, param, detail::async_access::within(within));
    }
    /// Accepts the request that brought the id (rdma_accept), until ESTABLISHED; for datagrams there is nothing to wait
    /// for. @throws connect_error
    auto accept(conn_param const& param = {}, limits within = std::chrono::seconds(10)) const noexcept {
        return awaitable<detail::accept_id, true>(nullptr, state_, param, detail::async_access::within(within));
    }
    /// Ends the connection (rdma_disconnect), until both sides know, or at once if they do. Events that came and were
    /// not awaited are dropped, unless something else waits for them.
    /// @throws rdma::error std::errc::timed_out: the connection is being ended all the same; as disconnect()
    auto disconnect(limits within = std::chrono::seconds(10)) const noexcept {
        return awaitable<detail::disconnect_id, true>(nullptr, state_, detail::async_access::within(within));
    }
#endif
    /// The twins: what is awaited gives nothing, and sets `ec`, which must outlive the wait.
    auto next(limits within, std::error_code& ec) const noexcept {
        return awaitable<detail::next_event, false>(&ec, state_, detail::async_access::within(within));
    }
    auto next(std::error_code& ec) const noexcept { return next({}, ec); }
    auto resolve_addr(address const& local, address const& peer, limits within, std::error_code& ec) const noexcept {
        return awaitable<detail::resolve_addr, false>(&ec, state_, local, peer, detail::async_access::within(within));
    }
    auto resolve_addr(address const& peer, limits within, std::error_code& ec) const noexcept {
        return resolve_addr(address(), peer, std::move(within), ec);
    }
    auto resolve_addr(address const& peer, std::error_code& ec) const noexcept {
        return resolve_addr(address(), peer, std::chrono::seconds(2), ec);
    }
    auto resolve_route(limits within, std::error_code& ec) const noexcept {
        return awaitable<detail::resolve_route, false>(&ec, state_, detail::async_access::within(within));
    }
    auto resolve_route(std::error_code& ec) const noexcept { return resolve_route(std::chrono::seconds(2), ec); }
    auto connect(conn_param const& param, limits within, std::error_code& ec) const noexcept {
        return awaitable<detail::connect_id, false>(&ec, state_, param, detail::async_access::within(within));
    }
    auto connect(conn_param const& param, std::error_code& ec) const noexcept {
        return connect(param, std::chrono::seconds(10), ec);
    }
    auto accept(conn_param const& param, limits within, std::error_code& ec) const noexcept {
        return awaitable<detail::accept_id, false>(&ec, state_, param, detail::async_access::within(within));
    }
    auto accept(conn_param const& param, std::error_code& ec) const noexcept {
        return accept(param, std::chrono::seconds(10), ec);
    }
    auto disconnect(limits within, std::error_code& ec) const noexcept {
        return awaitable<detail::disconnect_id, false>(&ec, state_, detail::async_access::within(within));
    }
    auto disconnect(std::error_code& ec) const noexcept { return disconnect(std::chrono::seconds(10), ec); }

private:
    friend struct detail::async_access;

    detail::awaited_id* state_ = nullptr;
};

static_assert(detail::move_only<cm_id> && detail::nothrow_empty<cm_id> && sizeof(cm_id) == sizeof(void*));

} // namespace rdma::inline RDMACPP_ABI::async

#endif
