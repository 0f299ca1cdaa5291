// SPDX-License-Identifier: MIT
// A scope of requests ends once, where it was begun.
// expect-error: use of deleted function|call to (implicitly-)?deleted ((copy )?constructor|member function)
#include <rdmacpp/rdmacpp.hpp>

void post(rdma::qp_ex_ref qp) {
    rdma::wr_batch batch = qp.start();
#ifdef EXPECT_OK
    batch.abort();
#else
    rdma::wr_batch other = batch;
#endif
}
