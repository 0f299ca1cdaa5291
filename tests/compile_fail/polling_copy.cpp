// SPDX-License-Identifier: MIT
// A scope of polling ends once, where it was begun.
// expect-error: use of deleted function|call to (implicitly-)?deleted ((copy )?constructor|member function)
#include <rdmacpp/rdmacpp.hpp>

void poll(rdma::cq_ex const& cq) {
    rdma::polling polling = cq.start_poll();
#ifdef EXPECT_OK
    polling.next();
#else
    rdma::polling other = polling;
#endif
}
