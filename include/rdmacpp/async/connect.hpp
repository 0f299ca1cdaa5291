// SPDX-License-Identifier: MIT
/// @file
/// Connecting, as one thing to wait for.
#pragma once

#include "../config.hpp"
#if __cplusplus >= 202002L && !defined(RDMACPP_TWO_VERSIONS) // otherwise config.hpp says what to do

#include "cm_id.hpp"
#include "detail/connecting.hpp"
#include "event_channel.hpp"
#include "operation.hpp"

#include <concepts>
#include <system_error>
#include <type_traits>

namespace rdma::inline RDMACPP_ABI::async {

#if RDMACPP_EXCEPTIONS
/// Connects to an address: resolves it, finds the route, makes the QP, asks for the connection and waits until it is
/// ESTABLISHED, all within one deadline, which begins with this call; connect_options::stop ends it, too.
///
/// When it fails, is late or stopped, or the coroutine is destroyed, the id is, and so whatever the kernel was still at
/// is over. (On iWARP the kernel holds the destroy of an id in mid-connect, and rdma_connect to a host that does not
/// answer may block: see connect_options::interrupt_signal.)
/// @param prepare called as `prepare(id, ec)` when the QP is there and before the connection is asked for, on the
/// loop's thread: post receives here. It must not throw. For more than that, await resolve, and then cm_id::connect.
/// @param options name them before: g++ 12 destroys what is written in braces within `co_await` twice, and with it a
/// stop token
/// @return the connected id
/// @throws connect_error with the step, as ::rdma::connect
template <std::invocable<::rdma::cm_id&, std::error_code&> Prepare = detail::prepare_nothing>
auto connect(event_channel const& channel, address const& peer, connect_options const& options = {},
             Prepare prepare = {}) noexcept {
    return awaitable<detail::async_connecting<Prepare>, true>(nullptr, detail::async_access::state(channel), peer,
                                                              options, std::move(prepare), connect_step::connect);
}
/// The first half of it, up to the point where the QP is there: the rest is cm_id::connect.
/// @return the id, with a QP @throws connect_error
inline auto resolve(event_channel const& channel, address const& peer, connect_options const& options = {}) noexcept {
    return awaitable<detail::async_connecting<detail::prepare_nothing>, true>(
        nullptr, detail::async_access::state(channel), peer, options, detail::prepare_nothing(),
        connect_step::create_qp);
}
#endif

/// The twins: what is awaited gives an empty id, and sets `ec`, which must outlive the wait.
template <std::invocable<::rdma::cm_id&, std::error_code&> Prepare>
auto connect(event_channel const& channel, address const& peer, connect_options const& options, Prepare prepare,
             std::error_code& ec) noexcept {
    return awaitable<detail::async_connecting<Prepare>, false>(&ec, detail::async_access::state(channel), peer, options,
                                                               std::move(prepare), connect_step::connect);
}
inline auto connect(event_channel const& channel, address const& peer, connect_options const& options,
                    std::error_code& ec) noexcept {
    return connect(channel, peer, options, detail::prepare_nothing(), ec);
}
inline auto resolve(event_channel const& channel, address const& peer, connect_options const& options,
                    std::error_code& ec) noexcept {
    return awaitable<detail::async_connecting<detail::prepare_nothing>, false>(
        &ec, detail::async_access::state(channel), peer, options, detail::prepare_nothing(), connect_step::create_qp);
}

} // namespace rdma::inline RDMACPP_ABI::async

#endif
