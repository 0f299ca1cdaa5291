// SPDX-License-Identifier: MIT
// As for an event channel.
// expect-error(gcc): cannot bind non-const lvalue reference of type .*cq_event&
// expect-error(clang): non-const lvalue reference to type .*cq_event' cannot bind to a temporary
#include <rdmacpp/rdmacpp.hpp>

void loop(rdma::comp_channel& channel) {
#ifdef EXPECT_OK
    for (rdma::cq_event event : channel)
        event.ack();
#else
    for (auto& event : channel)
        event.ack();
#endif
}
