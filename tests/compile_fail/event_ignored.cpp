// SPDX-License-Identifier: MIT
// An event that is got and dropped is acked at once; a call that does only this is a mistake.
// expect-error: ignoring return(ed)? value
#include <rdmacpp/rdmacpp.hpp>

void drop(rdma::event_channel& channel) {
#ifdef EXPECT_OK
    static_cast<void>(channel.try_get());
    rdma::cm_event event = channel.get();
#else
    channel.get();
#endif
}
