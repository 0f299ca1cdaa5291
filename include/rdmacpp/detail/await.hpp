// SPDX-License-Identifier: MIT
// Waiting for what one id is to be told, on a channel that it has for itself: so nobody else's event is ever eaten.
#pragma once

#include "../config.hpp"
#if __cplusplus >= 202002L && !defined(RDMACPP_TWO_VERSIONS) // otherwise config.hpp says what to do

#include "../any_stop_token.hpp"
#include "../cm_event.hpp"
#include "../event_channel.hpp"
#include "../timeout.hpp"

#include <cerrno>
#include <system_error>

namespace rdma::inline RDMACPP_ABI::detail {

/// What limits a wait.
struct limits {
    deadline until;
    any_stop_token stop;

    /// Why to give up now, if there is a reason.
    std::error_code reached() const noexcept {
        if (stop.stop_requested())
            return system_error_code(ECANCELED);
        return until.passed() ? system_error_code(ETIMEDOUT) : std::error_code();
    }
    /// What is left, for C functions that take a timeout of their own.
    timeout left() const noexcept { return until.left(); }
};

/// The next event of a channel; empty, with the reason, if none comes within the limits.
struct event_access {
    static channel_state* state(event_channel const& channel) noexcept { return channel.channel(); }

    static cm_event get(event_channel const& channel, limits const& within, std::error_code& ec) noexcept {
        cm_event event;
        switch (cm_event::receive(*channel.channel(), event, within.until, within.stop, {}, ec)) {
        case woken::expired: ec = system_error_code(ETIMEDOUT); break;
        case woken::stopped: ec = system_error_code(ECANCELED); break;
        case woken::closed: ec = errc::empty_handle; break;
        case woken::ready:
        case woken::failed: break;
        }
        return event;
    }
};

/// Why an event other than the one that was waited for ends the wait; nothing if it does not.
inline std::error_code ends_wait(cm_event const& event) noexcept {
    switch (event.type()) {
    case cm_event_type::addr_error:
    case cm_event_type::route_error:
    case cm_event_type::connect_error:
    case cm_event_type::unreachable:
    case cm_event_type::rejected: {
        std::error_code const why = event.error();
        return why ? why : std::error_code(errc::unspecified);
    }
    case cm_event_type::device_removal: return system_error_code(ENODEV);
    case cm_event_type::disconnected: return system_error_code(ECONNRESET);
    default: return {};
    }
}

/// Waits for an event of this type; with `ec`, the event is the one that says why not, or empty.
inline cm_event await(event_channel const& channel, cm_event_type wanted, limits const& within,
                      std::error_code& ec) noexcept {
    for (;;) {
        cm_event event = event_access::get(channel, within, ec);
        if (ec || event.type() == wanted)
            return event;
        if ((ec = ends_wait(event)))
            return event;
    }
}

} // namespace rdma::inline RDMACPP_ABI::detail

#endif
