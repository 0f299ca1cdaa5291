// SPDX-License-Identifier: MIT
// As events().
// expect-error: use of deleted function|call to (implicitly-)?deleted (copy constructor|member function)
#include <rdmacpp/rdmacpp.hpp>

void loop() {
#ifdef EXPECT_OK
    rdma::event_channel channel;
    for (rdma::cm_event event : channel.pending())
        event.ack();
#else
    for (rdma::cm_event event : rdma::event_channel{}.pending())
        event.ack();
#endif
}
