// SPDX-License-Identifier: MIT
// expect-error: use of deleted function|call to (implicitly-)?deleted (copy constructor|member function)
#include <rdmacpp/rdmacpp.hpp>

void take(rdma::event_channel channel) {
#ifdef EXPECT_OK
    rdma::event_channel other = std::move(channel);
#else
    rdma::event_channel other = channel;
#endif
}
