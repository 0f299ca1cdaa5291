// SPDX-License-Identifier: MIT
/// @file
/// Accepting connections, each with its outcome.
#pragma once

#include "config.hpp"
#if __cplusplus >= 202002L && !defined(RDMACPP_TWO_VERSIONS) // otherwise config.hpp says what to do

#include "connect.hpp"
#include "detail/contract.hpp"
#include "event_source.hpp"

#include <optional>
#include <string>
#include <system_error>
#include <type_traits>
#include <utility>

namespace rdma::inline RDMACPP_ABI {

/// How to accept a connection.
struct accept_options {
    timeout limit = std::chrono::seconds(10); ///< Until ESTABLISHED.
    any_stop_token stop = {};                 ///< A std::stop_token, where there is one: ends the wait at once.
    qp_init_attr qp = {};                     ///< Of the QP; its CQs, if none are given, are the id's own.
    pd_ref pd = {};                           ///< Of the QP; none: the id's default one.
    conn_param param = {};                    ///< With the private data.
    connect_report* report = nullptr;         ///< Filled, if given.
};

/// A connection that was accepted and is not ESTABLISHED yet. It has a channel of its own, so that many of them can be
/// in flight, on one thread or several: each gets its own outcome and nobody else's. Dropped, the connection is over.
class [[nodiscard]] accepting {
public:
    /// Empty.
    accepting() noexcept = default;

    explicit operator bool() const noexcept { return static_cast<bool>(id_); }

    /// The id, to be looked at; its QP may be used already.
    cm_id& id() noexcept { return id_; }

    /// Readable when there may be an outcome: for an event loop, which then calls try_get. -1 when empty.
    int fd() const noexcept { return channel_.fd(); }

#if RDMACPP_EXCEPTIONS
    /// Waits until the connection is ESTABLISHED, and moves it to the channel where it shall live. Empty afterwards.
    /// @param to empty: as for connect()
    /// @throws connect_error std::errc::timed_out (the time began with the accept), std::errc::operation_canceled, or
    /// why it failed; errc::empty_handle
    [[nodiscard]] cm_id get(event_channel_ref to) {
        std::error_code ec;
        cm_id id = get(to, ec);
        if (ec)
            throw connect_error(ec, report_.step, {}, by_event_);
        return id;
    }
    /// The same without waiting: an empty id means not yet, and this goes on.
    /// @throws connect_error as get
    [[nodiscard]] cm_id try_get(event_channel_ref to) {
        std::error_code ec;
        cm_id id = try_get(to, ec);
        if (ec)
            throw connect_error(ec, report_.step, {}, by_event_);
        return id;
    }
#endif
    /// The twin of get().
    [[nodiscard]] cm_id get(event_channel_ref to, std::error_code& ec) noexcept {
        ec = id_ ? std::error_code() : std::error_code(errc::empty_handle);
        if (!ec && connected_)
            note(detail::await(channel_, cm_event_type::established, within_, ec), ec);
        return finish(to, ec);
    }
    /// The twin of try_get(): an empty id without `ec` means not yet.
    [[nodiscard]] cm_id try_get(event_channel_ref to, std::error_code& ec) noexcept {
        ec = id_ ? std::error_code() : std::error_code(errc::empty_handle);
        if (!ec && connected_) {
            detail::limits const now{detail::deadline::after(std::chrono::seconds(0)), {}};
            cm_event const event = detail::await(channel_, cm_event_type::established, now, ec);
            note(event, ec);
            if (!event && ec == std::errc::timed_out && !(ec = within_.reached()))
                return {};
        }
        return finish(to, ec);
    }

    /// How far it came, and what the peer said.
    connect_report const& report() const noexcept { return report_; }

private:
    friend class request;

    accepting(accept_options const& options) noexcept : within_{detail::deadline::after(options.limit), options.stop} {}

    void note(cm_event const& event, std::error_code ec) noexcept {
        report_.note(event);
        by_event_ = ec && event;
    }

    cm_id finish(event_channel_ref to, std::error_code& ec) noexcept {
        cm_id id = std::move(id_);
        if (!ec && to) {
            report_.step = connect_step::migrate;
            id.migrate(to, ec);
        }
        channel_ = event_channel(no_init);
        return ec ? cm_id() : std::move(id);
    }

    event_channel channel_{no_init};
    cm_id id_;
    detail::limits within_{detail::deadline::never(), {}};
    connect_report report_;
    bool connected_ = true; // a datagram id is never told
    bool by_event_ = false; // what failed it
};

/// A request for a connection: a CONNECT_REQUEST and the new id that it brings. Dropped, the peer is rejected.
class [[nodiscard]] request {
public:
    /// No request.
    request() noexcept = default;

    explicit operator bool() const noexcept { return static_cast<bool>(event_); }

    /// The CONNECT_REQUEST: its private data, parameters and addresses. While it is held, a dropped acceptor keeps its
    /// port. To do everything by hand, move it out, or take its id.
    cm_event& event() & noexcept { return event_; }
    cm_event const& event() const& noexcept { return event_; }
    cm_event const& event() const&& = delete;

    /// The address of who asks.
    address peer_addr() const noexcept { return event_ ? event_.id().peer_addr() : address(); }
    /// The address that was asked.
    address local_addr() const noexcept { return event_ ? event_.id().local_addr() : address(); }

#if RDMACPP_EXCEPTIONS
    /// Makes the QP, accepts, and waits until the connection is ESTABLISHED. Empty afterwards; on failure the peer is
    /// rejected.
    /// @param channel where the id shall live; empty: as for connect()
    /// @param prepare called with the id when its QP is there and before it is accepted: post receives here
    /// @return the connected id
    /// @throws connect_error as connect(); what `prepare` throws
    template <class Prepare = detail::prepare_nothing>
        requires(!std::is_same_v<std::remove_cvref_t<Prepare>, std::error_code>)
    [[nodiscard]] cm_id accept(event_channel_ref channel, accept_options const& options = {}, Prepare&& prepare = {}) {
        accepting started = start_accept(options, static_cast<Prepare&&>(prepare));
        std::error_code ec;
        cm_id id = started.get(channel, ec);
        if (options.report)
            *options.report = started.report_;
        if (ec)
            throw connect_error(ec, started.report_.step, {}, started.by_event_);
        return id;
    }
    /// Makes the QP and accepts, and does not wait. Empty afterwards. @throws connect_error; what `prepare` throws
    template <class Prepare = detail::prepare_nothing>
        requires(!std::is_same_v<std::remove_cvref_t<Prepare>, std::error_code>)
    [[nodiscard]] accepting start_accept(accept_options const& options = {}, Prepare&& prepare = {}) {
        std::error_code ec;
        accepting started = begin(options, ec);
        reporter const report(started, options.report);
        if (!ec)
            prepare(started.id_);
        end(started, options, ec);
        if (ec)
            throw connect_error(ec, started.report_.step, {}, started.by_event_);
        return started;
    }
    /// Rejects it (rdma_reject), with private data. Empty afterwards. @throws rdma::error as cm_id::reject
    void reject(std::span<std::byte const> private_data = {}) {
        std::error_code ec;
        reject(private_data, ec);
        if (ec)
            detail::throw_error(ec, "rdma_reject", {std::to_string(private_data.size()), " bytes"});
    }
#endif
    /// The twins of accept().
    template <class Prepare = detail::prepare_nothing>
        requires(!std::is_same_v<std::remove_cvref_t<Prepare>, std::error_code>)
    [[nodiscard]] cm_id accept(event_channel_ref channel, accept_options const& options, Prepare&& prepare,
                               std::error_code& ec) noexcept {
        accepting started = start_accept(options, static_cast<Prepare&&>(prepare), ec);
        cm_id id = ec ? cm_id() : started.get(channel, ec);
        if (options.report)
            *options.report = started.report_;
        return id;
    }
    [[nodiscard]] cm_id accept(event_channel_ref channel, accept_options const& options, std::error_code& ec) noexcept {
        accepting started = start_accept(options, ec);
        cm_id id = ec ? cm_id() : started.get(channel, ec);
        if (options.report)
            *options.report = started.report_;
        return id;
    }
    /// The twins of start_accept().
    template <class Prepare = detail::prepare_nothing>
        requires(!std::is_same_v<std::remove_cvref_t<Prepare>, std::error_code>)
    [[nodiscard]] accepting start_accept(accept_options const& options, Prepare&& prepare,
                                         std::error_code& ec) noexcept {
        accepting started = begin(options, ec);
        reporter const report(started, options.report);
        if (!ec)
            prepare(started.id_, ec);
        end(started, options, ec);
        return started;
    }
    [[nodiscard]] accepting start_accept(accept_options const& options, std::error_code& ec) noexcept {
        accepting started = begin(options, ec);
        end(started, options, ec);
        if (options.report)
            *options.report = started.report_;
        return started;
    }
    /// The twin of reject().
    void reject(std::span<std::byte const> private_data, std::error_code& ec) noexcept {
        cm_id id = take(ec);
        if (!ec)
            id.reject(private_data, ec);
    }
    void reject(std::error_code& ec) noexcept { reject({}, ec); }

private:
    friend class acceptor;
    template <class, bool>
    friend class event_range;
    template <class, class, bool>
    friend class event_source;

    using channel_type = detail::channel_state;
    static constexpr char const* get_function = "rdma_get_cm_event";

    /// Only a listener's end is worth telling of beside its requests.
    bool settles(detail::woken& why, std::error_code& ec) noexcept {
        if (why != detail::woken::ready || event_.type() == cm_event_type::connect_request)
            return true;
        if (event_.type() == cm_event_type::device_removal) {
            ec = detail::system_error_code(ENODEV);
            why = detail::woken::failed;
        }
        event_.ack();
        return static_cast<bool>(ec);
    }

    static detail::woken receive(channel_type& channel, request& into, detail::deadline const& until,
                                 any_stop_token const& stop, wait_options options, std::error_code& ec) noexcept {
        for (;;) {
            detail::woken why = cm_event::receive(channel, into.event_, until, stop, options, ec);
            if (into.settles(why, ec))
                return why;
        }
    }
    static bool try_receive(channel_type& channel, request& into, wait_options options, std::error_code& ec) noexcept {
        for (;;) {
            if (!cm_event::try_receive(channel, into.event_, options, ec))
                return false;
            detail::woken why = ec ? detail::woken::failed : detail::woken::ready;
            if (into.settles(why, ec))
                return true;
        }
    }

    cm_id take(std::error_code& ec) noexcept {
        ec = errc::empty_handle;
        cm_id id = event_ ? event_.take_id(ec) : cm_id();
        event_.ack(); // the listener's port is free to go
        return id;
    }

    /// Fills the report of start_accept on every path, also when the program's preparations throw.
    class reporter {
    public:
        reporter(accepting const& started, connect_report* into) noexcept : started_(started), into_(into) {}
        reporter(reporter const&) = delete;
        reporter& operator=(reporter const&) = delete;
        ~reporter() {
            if (into_)
                *into_ = started_.report_;
        }

    private:
        accepting const& started_;
        connect_report* into_;
    };

    accepting begin(accept_options const& options, std::error_code& ec) noexcept {
        accepting started(options);
        started.id_ = take(ec);
        if (!ec)
            started.channel_ = event_channel(ec);
        if (!ec) {
            started.report_.step = connect_step::migrate;
            started.id_.migrate(started.channel_, ec);
        }
        if (!ec) {
            started.report_.step = connect_step::create_qp;
            started.id_.create_qp(options.pd, options.qp, ec);
        }
        return started;
    }
    static void end(accepting& started, accept_options const& options, std::error_code& ec) noexcept {
        if (!ec)
            started.report_.step = connect_step::accept;
        if (!ec)
            started.id_.accept(options.param, ec);
        started.connected_ = started.id_.qp_type() != qp_type::ud;
        if (ec)
            started.id_ = cm_id();
    }

    cm_event event_;
};

/// How to listen.
struct acceptor_options {
    ::rdma::port_space port_space = ::rdma::port_space::tcp; ///< Of the listener.
    int backlog = 0;         ///< How many requests may queue; 0: as many as the system allows.
    bool reuse_addr = false; ///< See cm_id::set_reuse_addr.
    bool af_only = false;    ///< See cm_id::set_af_only.
};

namespace detail {
/// Binds an id and listens. @return the last C function that was called
inline char const* listen(cm_id& id, address const& local, acceptor_options const& options,
                          std::error_code& ec) noexcept {
    if (options.reuse_addr)
        id.set_reuse_addr(true, ec);
    if (!ec && options.af_only)
        id.set_af_only(true, ec);
    if (ec)
        return "rdma_set_option";
    id.bind(local, ec);
    if (ec)
        return "rdma_bind_addr";
    id.listen(options.backlog, ec);
    return "rdma_listen";
}
} // namespace detail

/// A listener, and a range over its requests:
///
///     rdma::acceptor acceptor(rdma::address::any_v6(7471));
///     for (rdma::request request : acceptor)
///         serve(request.accept(channel));
///
/// It has a channel of its own. Its requests are got as events are: see event_source; any thread may. Each connection
/// that is accepted gets its ESTABLISHED or its failure, also with many in flight (request::start_accept).
class [[nodiscard]] acceptor : public event_source<acceptor, request> {
public:
    /// Empty.
    acceptor() noexcept = default;
    acceptor(acceptor&& other) noexcept : channel_(std::move(other.channel_)), listener_(std::move(other.listener_)) {}
    /// Stops listening where it did before.
    acceptor& operator=(acceptor&& other) noexcept {
        channel_ = std::move(other.channel_);
        listener_ = std::move(other.listener_);
        return *this;
    }

#if RDMACPP_EXCEPTIONS
    /// Listens on an address (rdma_bind_addr, rdma_listen); port 0 lets the system choose.
    /// @throws rdma::error as event_channel, cm_id::bind and cm_id::listen
    explicit acceptor(address const& local, acceptor_options const& options = {}) {
        std::error_code ec;
        char const* const function = open(local, options, ec);
        if (ec)
            detail::throw_error(ec, function, {to_string(local)});
    }
#endif
    /// The twins of the constructor: empty on failure.
    acceptor(address const& local, acceptor_options const& options, std::error_code& ec) noexcept {
        open(local, options, ec);
        if (ec)
            *this = acceptor();
    }
    acceptor(address const& local, std::error_code& ec) noexcept : acceptor(local, {}, ec) {}

    explicit operator bool() const noexcept { return static_cast<bool>(listener_); }

    /// The listening id.
    cm_id& id() noexcept { return listener_; }
    /// Where it listens, with the real port.
    address local_addr() const noexcept { return listener_.local_addr(); }
    /// Readable when there may be a request: for an event loop, with try_get() or pending(). -1 when empty.
    int fd() const noexcept { return channel_.fd(); }

    void swap(acceptor& other) noexcept {
        channel_.swap(other.channel_);
        listener_.swap(other.listener_);
    }
    friend void swap(acceptor& a, acceptor& b) noexcept { a.swap(b); }

private:
    friend class event_source<acceptor, request>;
    detail::channel_state* channel() const noexcept { return detail::event_access::state(channel_); }

    /// @return the last C function that was called
    char const* open(address const& local, acceptor_options const& options, std::error_code& ec) noexcept {
        channel_ = event_channel(ec);
        if (ec)
            return "rdma_create_event_channel";
        listener_ = cm_id(channel_, options.port_space, ec);
        if (ec)
            return "rdma_create_id";
        return detail::listen(listener_, local, options, ec);
    }

    event_channel channel_{no_init};
    cm_id listener_;
};

static_assert(detail::move_only<acceptor>);
static_assert(detail::move_only<request>);
static_assert(detail::move_only<accepting>);

} // namespace rdma::inline RDMACPP_ABI

#endif
