// SPDX-License-Identifier: MIT
/// @file
/// Synchronous use: an id whose calls return when they are done, or at their deadline.
#pragma once

#include "config.hpp"
#if __cplusplus >= 202002L && !defined(RDMACPP_TWO_VERSIONS) // otherwise config.hpp says what to do

#include "addrinfo.hpp"
#include "cm_id.hpp"
#include "detail/await.hpp"
#include "detail/contract.hpp"
#include "disconnect.hpp"
#include "work_completion.hpp"

#include <string>
#include <system_error>
#include <utility>

namespace rdma::inline RDMACPP_ABI {

/// A communication endpoint, as rdma_create_ep makes them: every call that starts something waits for its outcome, by
/// default as long as it takes.
///
///     rdma::addrinfo const found("10.0.0.1", "7471");
///     rdma::endpoint client(found.front(), {.cap = {.max_inline_data = 16}});
///     client.connect();
///
/// It is an asynchronous id on a channel of its own, so that everything has a deadline, nothing waits for ever in a
/// destructor, and listeners and the endpoints of their requests may be dropped in any order. Ids that C made in its
/// own synchronous mode are adopted as sync_id. One thread at a time may use one endpoint.
///
/// A call that is late fails with std::errc::timed_out; after a connect or accept that failed, drop the endpoint.
class [[nodiscard]] endpoint {
public:
    /// Empty.
    endpoint() noexcept = default;
    endpoint(endpoint&& other) noexcept
        : channel_(std::move(other.channel_)), id_(std::move(other.id_)), event_(std::move(other.event_)),
          for_requests_(std::move(other.for_requests_)) {}
    /// Drops the endpoint held before.
    endpoint& operator=(endpoint&& other) noexcept {
        event_ = std::move(other.event_);
        id_ = std::move(other.id_);
        channel_ = std::move(other.channel_);
        for_requests_ = std::move(other.for_requests_);
        return *this;
    }

#if RDMACPP_EXCEPTIONS
    /// Makes an endpoint of what a lookup found: for a listener (addrinfo_hints::passive) binds it, otherwise resolves
    /// the peer's address and the route.
    /// @param limit for all of it
    /// @throws rdma::error as the functions of cm_id that it calls; std::errc::timed_out
    explicit endpoint(addrinfo_ref info, timeout limit = no_limit) {
        std::error_code ec;
        if (char const* const function = open(info, limit, ec); ec)
            detail::throw_error(ec, function, {describe(info)});
    }
    /// The same with a QP: for a listener, of each request that get_request brings; else made at once. What it uses is
    /// kept alive.
    endpoint(addrinfo_ref info, qp_init_attr const& qp, pd_ref pd = {}, timeout limit = no_limit) {
        std::error_code ec;
        if (char const* const function = open(info, qp, pd, limit, ec); ec)
            detail::throw_error(ec, function, {describe(info)});
    }
#endif
    /// The twins of the constructors: empty on failure.
    endpoint(addrinfo_ref info, timeout limit, std::error_code& ec) noexcept { open(info, limit, ec); }
    endpoint(addrinfo_ref info, std::error_code& ec) noexcept { open(info, no_limit, ec); }
    endpoint(addrinfo_ref info, qp_init_attr const& qp, pd_ref pd, timeout limit, std::error_code& ec) noexcept {
        open(info, qp, pd, limit, ec);
    }
    endpoint(addrinfo_ref info, qp_init_attr const& qp, pd_ref pd, std::error_code& ec) noexcept {
        open(info, qp, pd, no_limit, ec);
    }
    endpoint(addrinfo_ref info, qp_init_attr const& qp, std::error_code& ec) noexcept {
        open(info, qp, {}, no_limit, ec);
    }

    explicit operator bool() const noexcept { return static_cast<bool>(id_); }

    /// The id, for everything that does not wait: addresses, memory, posting, options, the QP.
    cm_id& id() noexcept { return id_; }
    cm_id const& id() const noexcept { return id_; }

    /// The last event, as C keeps it in `id->event`: of connect, accept and get_request, also if they failed; with its
    /// private data and parameters. Empty after those that brought none. While a listener's request keeps its event,
    /// the dropped listener keeps its port.
    cm_event const& event() const& noexcept { return event_; }
    cm_event const& event() const&& = delete;

    /// Gives up the synchronous mode: the id, which is still on a channel of its own (cm_id::migrate). Empty
    /// afterwards.
    [[nodiscard]] cm_id take_id() noexcept {
        event_.ack();
        return std::move(id_);
    }

#if RDMACPP_EXCEPTIONS
    /// Listens for requests (rdma_listen). @throws rdma::error as cm_id::listen
    void listen(int backlog = 0) { id_.listen(backlog); }

    /// Waits for a request (rdma_get_request): an endpoint to accept, reject or drop, with its QP if this was given
    /// one. A request that fails here is rejected. @throws rdma::error std::errc::timed_out; as cm_id::create_qp
    [[nodiscard]] endpoint get_request(timeout limit = no_limit) {
        std::error_code ec;
        endpoint child = get_request(limit, ec);
        if (ec)
            detail::throw_error(ec, "rdma_get_request");
        return child;
    }

    /// Connects, and waits until the connection is ESTABLISHED, or, without a QP of the id's own, for CONNECT_RESPONSE:
    /// then cm_id::init_qp_attr and establish follow (rdma_connect).
    /// @throws rdma::error std::errc::timed_out; condition::refused (its event has the private data of the rejection);
    /// as cm_id::connect
    void connect(conn_param const& param = {}, timeout limit = no_limit) {
        std::error_code ec;
        connect(param, limit, ec);
        if (ec)
            throw error(ec, "rdma_connect", to_string(id_.peer_addr()), !event_);
    }

    /// Accepts, and waits until the connection is ESTABLISHED; for datagrams there is nothing to wait for
    /// (rdma_accept).
    /// @throws rdma::error std::errc::timed_out; as cm_id::accept
    void accept(conn_param const& param = {}, timeout limit = no_limit) {
        std::error_code ec;
        accept(param, limit, ec);
        if (ec)
            throw error(ec, "rdma_accept", {}, !event_);
    }

    /// Rejects the request (rdma_reject); then drop it. @throws rdma::error as cm_id::reject
    void reject(std::span<std::byte const> private_data = {}) { id_.reject(private_data); }

    /// Disconnects, and waits until both sides know (rdma_disconnect). Nothing happens if that is so already.
    /// @throws rdma::error std::errc::timed_out; EINVAL if it was never connected
    void disconnect(timeout limit = no_limit) {
        std::error_code ec;
        disconnect(limit, ec);
        if (ec)
            detail::throw_error(ec, "rdma_disconnect");
    }

    /// Waits for a completion of the send queue (rdma_get_send_comp), on the CQ that librdmacm made.
    /// @throws rdma::error std::errc::timed_out; errc::empty_handle if the program gave the CQ: wait on that one
    work_completion get_send_comp(timeout limit = no_limit) {
        std::error_code ec;
        work_completion const done = get_send_comp(limit, ec);
        if (ec)
            detail::throw_error(ec, "rdma_get_send_comp");
        return done;
    }
    /// Waits for a completion of the receive queue (rdma_get_recv_comp). @throws rdma::error as get_send_comp
    work_completion get_recv_comp(timeout limit = no_limit) {
        std::error_code ec;
        work_completion const done = get_recv_comp(limit, ec);
        if (ec)
            detail::throw_error(ec, "rdma_get_recv_comp");
        return done;
    }
#endif
    void listen(int backlog, std::error_code& ec) noexcept { id_.listen(backlog, ec); }
    void listen(std::error_code& ec) noexcept { id_.listen(0, ec); }
    [[nodiscard]] endpoint get_request(timeout limit, std::error_code& ec) noexcept;
    [[nodiscard]] endpoint get_request(std::error_code& ec) noexcept { return get_request(no_limit, ec); }
    void connect(conn_param const& param, timeout limit, std::error_code& ec) noexcept {
        event_.ack();
        id_.connect(param, ec);
        bool const alone =
            !id_.qp() && id_.verbs().transport() != transport_type::iwarp && id_.qp_type() != qp_type::ud;
        if (!ec) // an id without a QP of its own is told of the answer, and establishes by itself
            event_ = detail::await(channel_, alone ? cm_event_type::connect_response : cm_event_type::established,
                                   within(limit), ec);
    }
    void connect(conn_param const& param, std::error_code& ec) noexcept { connect(param, no_limit, ec); }
    void connect(std::error_code& ec) noexcept { connect({}, no_limit, ec); }
    void accept(conn_param const& param, timeout limit, std::error_code& ec) noexcept {
        id_.accept(param, ec);
        event_.ack(); // the request: the listener may go
        if (!ec && id_.qp_type() != qp_type::ud)
            event_ = detail::await(channel_, cm_event_type::established, within(limit), ec);
    }
    void accept(conn_param const& param, std::error_code& ec) noexcept { accept(param, no_limit, ec); }
    void accept(std::error_code& ec) noexcept { accept({}, no_limit, ec); }
    void reject(std::span<std::byte const> private_data, std::error_code& ec) noexcept { id_.reject(private_data, ec); }
    void reject(std::error_code& ec) noexcept { id_.reject({}, ec); }
    void disconnect(timeout limit, std::error_code& ec) noexcept {
        ec = id_ ? std::error_code() : std::error_code(errc::empty_handle);
        event_.ack();
        if (!ec && !id_.disconnected() && id_.qp_type() != qp_type::ud)
            detail::disconnect_alone(channel_, id_, within(limit), ec);
    }
    void disconnect(std::error_code& ec) noexcept { disconnect(no_limit, ec); }
    work_completion get_send_comp(timeout limit, std::error_code& ec) noexcept {
        return get_comp(id_.send_cq(), limit, ec);
    }
    work_completion get_send_comp(std::error_code& ec) noexcept { return get_send_comp(no_limit, ec); }
    work_completion get_recv_comp(timeout limit, std::error_code& ec) noexcept {
        return get_comp(id_.recv_cq(), limit, ec);
    }
    work_completion get_recv_comp(std::error_code& ec) noexcept { return get_recv_comp(no_limit, ec); }

    void swap(endpoint& other) noexcept {
        endpoint was(std::move(other));
        other = std::move(*this);
        *this = std::move(was);
    }
    friend void swap(endpoint& a, endpoint& b) noexcept { a.swap(b); }

private:
    /// What a listener makes the QPs of its requests with.
    struct qp_of_requests {
        bool wanted = false;
        qp_init_attr attr = {};
        pd_ref pd = {};
        detail::keep uses[4];
    };

    static detail::limits within(timeout limit) noexcept { return {detail::deadline::after(limit), {}}; }

    /// @return the last C function that was called
    char const* open(addrinfo_ref info, timeout limit, std::error_code& ec) noexcept {
        char const* const function = begin(info, within(limit), ec);
        if (ec)
            *this = endpoint();
        return function;
    }
    char const* open(addrinfo_ref info, qp_init_attr const& qp, pd_ref pd, timeout limit, std::error_code& ec) noexcept;
    char const* begin(addrinfo_ref info, detail::limits const& within, std::error_code& ec) noexcept;

    static work_completion get_comp(cq_ref cq, timeout limit, std::error_code& ec) noexcept {
        work_completion done[] = {work_completion(ibv_wc{})};
        detail::completion_wait waiting{detail::deadline::after(limit)};
        if (waiting.run(&cq, 1, done, ec) == 0 && !ec)
            ec = detail::system_error_code(ETIMEDOUT);
        return done[0];
    }

#if RDMACPP_EXCEPTIONS
    static std::string describe(addrinfo_ref info) {
        return info ? to_string(info.flags() & RAI_PASSIVE ? info.src_addr() : info.dst_addr()) : "no address";
    }
#endif

    event_channel channel_{no_init};
    cm_id id_;
    cm_event event_;
    qp_of_requests for_requests_;
};

static_assert(detail::move_only<endpoint> && detail::nothrow_empty<endpoint>);

// ---- Implementation ------------------------------------------------------------------------------------------------

inline char const* endpoint::begin(addrinfo_ref info, detail::limits const& within, std::error_code& ec) noexcept {
    if (!info) {
        ec = errc::empty_handle;
        return "rdma_create_ep";
    }
    channel_ = event_channel(ec);
    if (ec)
        return "rdma_create_event_channel";
    bool const by_port_space = info.qp_type() == qp_type::rc || info.qp_type() == qp_type::ud;
    bool const any_v6 = info.src_addr().family() == AF_UNSPEC && info.dst_addr().family() == AF_INET6;
    address const local = any_v6 ? address::any_v6(0, ec) : info.src_addr();
    id_ = by_port_space ? cm_id(channel_, info.port_space(), ec)
                        : cm_id(channel_, info.port_space(), info.qp_type(), local, ec);
    if (ec)
        return "rdma_create_id";
    if (info.flags() & RAI_PASSIVE) {
        if (by_port_space)
            id_.bind(info.src_addr(), ec);
        return "rdma_bind_addr";
    }
    id_.resolve_addr(by_port_space ? info.src_addr() : address(), info.dst_addr(), within.left(), ec);
    if (!ec)
        event_ = detail::await(channel_, cm_event_type::addr_resolved, within, ec);
    if (ec)
        return "rdma_resolve_addr";
    id_.resolve_route(within.left(), ec);
    if (!ec)
        event_ = detail::await(channel_, cm_event_type::route_resolved, within, ec);
    event_.ack();
    return "rdma_resolve_route";
}

inline char const* endpoint::open(addrinfo_ref info, qp_init_attr const& qp, pd_ref pd, timeout limit,
                                  std::error_code& ec) noexcept {
    char const* const function = open(info, limit, ec);
    if (ec)
        return function;
    if (info.flags() & RAI_PASSIVE) {
        for_requests_ = {true,
                         qp,
                         pd,
                         {detail::keep(detail::keeper(pd)), detail::keep(detail::keeper(qp.send_cq)),
                          detail::keep(detail::keeper(qp.recv_cq)), detail::keep(detail::keeper(qp.srq))}};
        return function;
    }
    id_.create_qp(pd, qp, ec);
    if (ec)
        *this = endpoint();
    return "rdma_create_qp";
}

inline endpoint endpoint::get_request(timeout limit, std::error_code& ec) noexcept {
    endpoint child;
    if (!id_) {
        ec = errc::empty_handle;
        return child;
    }
    event_.ack();
    cm_event request = detail::await(channel_, cm_event_type::connect_request, within(limit), ec);
    if (!ec)
        child.id_ = request.take_id(ec);
    if (!ec)
        child.channel_ = event_channel(ec);
    if (!ec)
        child.id_.migrate(child.channel_, ec);
    if (!ec && for_requests_.wanted)
        child.id_.create_qp(for_requests_.pd, for_requests_.attr, ec);
    if (ec)
        return {};
    child.event_ = std::move(request);
    return child;
}

} // namespace rdma::inline RDMACPP_ABI

#endif
