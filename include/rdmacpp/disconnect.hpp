// SPDX-License-Identifier: MIT
/// @file
/// Disconnecting, as one call with a deadline.
#pragma once

#include "config.hpp"
#if __cplusplus >= 202002L && !defined(RDMACPP_TWO_VERSIONS) // otherwise config.hpp says what to do

#include "cm_id.hpp"
#include "detail/await.hpp"

#include <string>
#include <system_error>

namespace rdma::inline RDMACPP_ABI {

namespace detail {

/// What says that a connection is over: on InfiniBand and RoCE a DISCONNECTED once the peer has answered, or has not
/// for long; a TIMEWAIT_EXIT may follow, and nobody waits for it. On iWARP a DISCONNECTED once both have closed the
/// stream.
inline bool says_over(cm_event const& event) noexcept {
    switch (event.type()) {
    case cm_event_type::disconnected:
    case cm_event_type::timewait_exit:
    case cm_event_type::connect_error:
    case cm_event_type::unreachable:
    case cm_event_type::rejected:
    case cm_event_type::device_removal: return true;
    default: return false;
    }
}

/// On a channel that the id has for itself.
inline void disconnect_alone(event_channel const& channel, cm_id& id, limits const& within,
                             std::error_code& ec) noexcept {
    id.disconnect(ec);
    while (!ec && !id.disconnected())
        if (cm_event const event = event_access::get(channel, within, ec); !ec && says_over(event))
            return;
}

} // namespace detail

/// Ends a connection and waits until both sides know: until DISCONNECTED, or what takes its place. The queue pair is in
/// its error state then, and what was posted has been flushed.
///
/// Meanwhile the id has a channel of its own: no event of another is got here, and other threads may get events from
/// its channel; it is moved back afterwards, with what may still come for it, such as TIMEWAIT_EXIT. For an id that is
/// disconnected already, and for datagrams, which have no connection, there is nothing to do. Dropping an id also tells
/// the peer, and waits for nobody.
/// @throws rdma::error std::errc::timed_out: the connection is being ended all the same; std::errc::operation_canceled;
/// std::errc::resource_deadlock_would_occur while events of it are held; EINVAL if it was never connected
inline void disconnect(cm_id& id, timeout limit, any_stop_token const& stop, std::error_code& ec) noexcept {
    ec.clear();
    if (!id)
        ec = errc::empty_handle;
    if (ec || id.disconnected() || id.qp_type() == qp_type::ud)
        return;
    detail::limits const within{detail::deadline::after(limit), stop};
    detail::channel_state* const home = detail::channel_state::borrow(id.channel().native_handle(), ec);
    event_channel const own(ec);
    if (!ec)
        id.migrate(own, ec);
    if (!ec) {
        detail::disconnect_alone(own, id, within, ec);
        std::error_code back;
        id.migrate(event_channel_ref(home->raw), back);
        if (!ec)
            ec = back;
    }
    if (home)
        home->unref();
}
inline void disconnect(cm_id& id, timeout limit, std::error_code& ec) noexcept { disconnect(id, limit, {}, ec); }
inline void disconnect(cm_id& id, std::error_code& ec) noexcept { disconnect(id, std::chrono::seconds(10), {}, ec); }

#if RDMACPP_EXCEPTIONS
/// The throwing form.
inline void disconnect(cm_id& id, timeout limit = std::chrono::seconds(10), any_stop_token const& stop = {}) {
    std::error_code ec;
    disconnect(id, limit, stop, ec);
    if (ec)
        detail::throw_error(ec, "rdma_disconnect");
}
#endif

} // namespace rdma::inline RDMACPP_ABI

#endif
