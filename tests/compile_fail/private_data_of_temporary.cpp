// SPDX-License-Identifier: MIT
// The bytes live as long as the event.
// expect-error: use of deleted function|call to (implicitly-)?deleted (copy constructor|member function)
#include <rdmacpp/rdmacpp.hpp>

std::size_t size(rdma::event_channel& channel) {
#ifdef EXPECT_OK
    rdma::cm_event event = channel.get();
    return event.private_data().size();
#else
    return channel.get().private_data().size();
#endif
}
