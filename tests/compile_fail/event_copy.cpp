// SPDX-License-Identifier: MIT
// An event is acked exactly once: two of it would ack twice.
// expect-error: use of deleted function|call to (implicitly-)?deleted (copy constructor|member function)
#include <rdmacpp/rdmacpp.hpp>

void take(rdma::cm_event event) {
#ifdef EXPECT_OK
    rdma::cm_event other = std::move(event);
#else
    rdma::cm_event other = event;
#endif
}
