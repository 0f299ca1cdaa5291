// SPDX-License-Identifier: MIT
// The range would be over before it began.
// expect-error: use of deleted function|call to (implicitly-)?deleted (copy constructor|member function)
#include <rdmacpp/rdmacpp.hpp>

void loop() {
#ifdef EXPECT_OK
    rdma::event_channel channel;
    for (rdma::cm_event event : channel.events())
        event.ack();
#else
    for (rdma::cm_event event : rdma::event_channel{}.events())
        event.ack();
#endif
}
