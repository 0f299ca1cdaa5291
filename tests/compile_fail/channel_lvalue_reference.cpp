// SPDX-License-Identifier: MIT
// The events of a channel are handed out, not kept in it: a reference would dangle at the next turn.
// expect-error(gcc): cannot bind non-const lvalue reference of type .*cm_event&
// expect-error(clang): non-const lvalue reference to type .*cm_event' cannot bind to a temporary
#include <rdmacpp/rdmacpp.hpp>

void loop(rdma::event_channel& channel) {
#ifdef EXPECT_OK
    for (rdma::cm_event event : channel)
        event.ack();
    for (auto&& event : channel)
        event.ack();
    for (auto const& event : channel)
        static_cast<void>(event.type());
#else
    for (auto& event : channel)
        event.ack();
#endif
}
