// SPDX-License-Identifier: MIT
/// @file
/// Connecting, as one call with one deadline.
#pragma once

#include "config.hpp"
#if __cplusplus >= 202002L && !defined(RDMACPP_TWO_VERSIONS) // otherwise config.hpp says what to do

#include "cm_id.hpp"
#include "detail/await.hpp"
#include "detail/interrupter.hpp"

#include <string>
#include <system_error>
#include <type_traits>
#include <utility>

namespace rdma::inline RDMACPP_ABI {

/// The steps of connecting and accepting, in their order.
enum class connect_step {
    create_id,     ///< opening a channel, making the id
    resolve_addr,  ///< rdma_resolve_addr, to ADDR_RESOLVED
    resolve_route, ///< rdma_resolve_route, to ROUTE_RESOLVED
    create_qp,     ///< rdma_create_qp, and the program's preparations
    connect,       ///< rdma_connect, to ESTABLISHED
    accept,        ///< rdma_accept, to ESTABLISHED
    migrate,       ///< rdma_migrate_id, to the program's channel
};

namespace detail {
inline char const* function_of(connect_step step) noexcept {
    switch (step) {
    case connect_step::create_id: return "rdma_create_id";
    case connect_step::resolve_addr: return "rdma_resolve_addr";
    case connect_step::resolve_route: return "rdma_resolve_route";
    case connect_step::create_qp: return "rdma_create_qp";
    case connect_step::connect: return "rdma_connect";
    case connect_step::accept: return "rdma_accept";
    case connect_step::migrate: break;
    }
    return "rdma_migrate_id";
}
} // namespace detail

/// The step's name: "resolve_addr".
inline std::string to_string(connect_step step) {
    return step == connect_step::migrate ? "migrate" : detail::function_of(step) + 5; // without "rdma_"
}

/// How far connecting or accepting came, and what the peer said: filled on success and on failure.
struct connect_report {
    connect_step step = connect_step::create_id; ///< The last one that was begun.
    private_data reply;       ///< What came with the peer's accept, or its rejection; see private_data for its size.
    rdma_conn_param param{};  ///< Of ESTABLISHED, for a connected id; its private_data is null.
    rdma_ud_param ud_param{}; ///< Of ESTABLISHED, for a datagram id: the peer's address, QP number and key.

    /// Notes what an event says.
    void note(cm_event const& event) noexcept {
        if (!event)
            return;
        reply = event.copy_private_data();
        if (rdma_conn_param const* const p = event.param()) {
            param = *p;
            param.private_data = nullptr;
        }
        if (rdma_ud_param const* const p = event.ud_param()) {
            ud_param = *p;
            ud_param.private_data = nullptr;
        }
    }
};

/// What connect and accept throw: an error that also names the step.
class RDMACPP_EXPORT connect_error : public error {
public:
    /// @param code what went wrong
    /// @param step where it failed, which gives the C function
    /// @param arguments of the C function, as text
    /// @param by_event whether an event brought the code, and not the call
    connect_error(std::error_code code, connect_step step, std::string const& arguments, bool by_event)
        : error(code, detail::function_of(step), arguments, !by_event), step_(step) {}

    /// Where it failed.
    connect_step step() const noexcept { return step_; }

private:
    connect_step step_;
};

/// How to connect.
struct connect_options {
    timeout limit = std::chrono::seconds(10); ///< For all steps together.
    any_stop_token stop = {};                 ///< A std::stop_token, where there is one: ends the call at once.
    address local = {};                       ///< The local address to use; none: the system chooses.
    ::rdma::port_space port_space = ::rdma::port_space::tcp; ///< Of the id.
    qp_init_attr qp = {};  ///< Of the QP; its CQs, if none are given, are the id's own.
    pd_ref pd = {};        ///< Of the QP; none: the id's default one.
    conn_param param = {}; ///< With the private data.
    /// On iWARP rdma_connect to a host that does not answer blocks inside the call, which only a signal ends: this one
    /// is sent to the calling thread then, by a timer. The program has a handler for it, which may be empty, installed
    /// without SA_RESTART; where there is none, connect fails with errc::signal_unhandled before it begins. 0: none is
    /// sent, and the call may take much longer than the limit there.
    int interrupt_signal = 0;
    connect_report* report = nullptr; ///< Filled, if given.
};

namespace detail {

/// One attempt. The id has a channel of its own meanwhile.
class connecting {
public:
    connecting(address const& peer, connect_options const& options) noexcept
        : peer_(peer), options_(options), within_{deadline::after(options.limit), options.stop} {}
    connecting(connecting const&) = delete;
    connecting& operator=(connecting const&) = delete;
    ~connecting() { // also when the program's preparations throw
        if (options_.report)
            *options_.report = report_;
    }

    connect_step step() const noexcept { return report_.step; }
    bool failed_by_event() const noexcept { return by_event_; }

    /// Up to the point where the QP is there.
    cm_id prepare(std::error_code& ec) noexcept {
        if (options_.interrupt_signal != 0 && !interrupter::is_handled(options_.interrupt_signal))
            ec = errc::signal_unhandled;
        else
            channel_ = event_channel(ec);
        cm_id id = ec ? cm_id() : cm_id(channel_, options_.port_space, ec);
        if (!ec)
            reach(connect_step::resolve_addr, ec);
        if (!ec)
            id.resolve_addr(options_.local, peer_, within_.left(), ec);
        if (!ec)
            await_event(cm_event_type::addr_resolved, ec);
        if (!ec)
            reach(connect_step::resolve_route, ec);
        if (!ec)
            id.resolve_route(within_.left(), ec);
        if (!ec)
            await_event(cm_event_type::route_resolved, ec);
        if (!ec)
            reach(connect_step::create_qp, ec);
        if (!ec)
            id.create_qp(options_.pd, options_.qp, ec);
        return ec ? cm_id() : std::move(id);
    }

    /// From there to ESTABLISHED, and to the channel where it shall live.
    void finish(cm_id& id, event_channel_ref to, std::error_code& ec) noexcept {
        if (!ec)
            reach(connect_step::connect, ec);
        if (!ec)
            connect(id, ec);
        if (!ec)
            await_event(cm_event_type::established, ec);
        if (!ec && to) {
            report_.step = connect_step::migrate;
            id.migrate(to, ec);
        }
        if (ec)
            id = cm_id(); // ends whatever the kernel is still at
    }

private:
    void reach(connect_step step, std::error_code& ec) noexcept {
        report_.step = step;
        ec = within_.reached();
    }

    void await_event(cm_event_type type, std::error_code& ec) noexcept {
        cm_event const event = await(channel_, type, within_, ec);
        report_.note(event);
        by_event_ = ec && event;
    }

    /// A signal that is not meant for it does not end it.
    void connect(cm_id& id, std::error_code& ec) noexcept {
        interrupter const in_time(options_.interrupt_signal, within_.until, within_.stop);
        do {
            id.connect(options_.param, ec);
            if (ec != std::errc::interrupted)
                return;
            ec = within_.reached();
        } while (!ec);
    }

    address const peer_;
    connect_options const& options_;
    limits const within_;
    event_channel channel_{no_init};
    connect_report report_;
    bool by_event_ = false;
};

struct prepare_nothing {
    void operator()(cm_id&) const noexcept {}
    void operator()(cm_id&, std::error_code&) const noexcept {}
};

} // namespace detail

/// Connects to an address: resolves it, finds the route, makes the QP, asks for the connection and waits until it is
/// ESTABLISHED, all within one deadline.
///
/// When it fails, is late or stopped, the id is destroyed, and so whatever the kernel was still at is over. While it
/// connects, the id has a channel of its own: no event of another is got here, and other threads may get events from
/// `channel` meanwhile. Afterwards it is moved there (rdma_migrate_id).
/// @param channel where the id shall live; empty: it stays on one of its own, whose events nobody gets, to be migrated
/// @param prepare called with the id when its QP is there and before the connection is asked for: post receives here
/// @return the connected id
/// @throws connect_error with the step: std::errc::timed_out, std::errc::operation_canceled (stopped),
/// condition::refused, what the event of the failure or the C function of the step gives; what `prepare` throws
template <class Prepare = detail::prepare_nothing>
    requires(!std::is_same_v<std::remove_cvref_t<Prepare>, std::error_code>)
[[nodiscard]] cm_id connect(event_channel_ref channel, address const& peer, connect_options const& options,
                            Prepare&& prepare, std::error_code& ec) noexcept {
    detail::connecting attempt(peer, options);
    cm_id id = attempt.prepare(ec);
    if (!ec)
        prepare(id, ec);
    attempt.finish(id, channel, ec);
    return id;
}
/// The same, with nothing to prepare.
[[nodiscard]] inline cm_id connect(event_channel_ref channel, address const& peer, connect_options const& options,
                                   std::error_code& ec) noexcept {
    detail::connecting attempt(peer, options);
    cm_id id = attempt.prepare(ec);
    attempt.finish(id, channel, ec);
    return id;
}

#if RDMACPP_EXCEPTIONS
/// The throwing forms.
template <class Prepare = detail::prepare_nothing>
    requires(!std::is_same_v<std::remove_cvref_t<Prepare>, std::error_code>)
[[nodiscard]] cm_id connect(event_channel_ref channel, address const& peer, connect_options const& options = {},
                            Prepare&& prepare = {}) {
    std::error_code ec;
    detail::connecting attempt(peer, options);
    cm_id id = attempt.prepare(ec);
    if (!ec)
        prepare(id);
    attempt.finish(id, channel, ec);
    if (ec)
        throw connect_error(ec, attempt.step(), to_string(peer), attempt.failed_by_event());
    return id;
}
#endif

} // namespace rdma::inline RDMACPP_ABI

#endif
