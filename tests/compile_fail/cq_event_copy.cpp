// SPDX-License-Identifier: MIT
// A completion event is acked exactly once.
// expect-error: use of deleted function|call to (implicitly-)?deleted (copy constructor|member function)
#include <rdmacpp/rdmacpp.hpp>

void take(rdma::cq_event event) {
#ifdef EXPECT_OK
    rdma::cq_event other = std::move(event);
#else
    rdma::cq_event other = event;
#endif
}
