// SPDX-License-Identifier: MIT
// A reference to an object that is gone at the end of the line.
// expect-error: deleted function
#include <rdmacpp/rdmacpp.hpp>

void borrow(rdma::context_ref context) {
#ifdef EXPECT_OK
    auto owner = rdma::cq{context, 1};
    rdma::cq_ref ref = owner;
#else
    rdma::cq_ref ref = rdma::cq{context, 1};
#endif
    static_cast<void>(ref);
}
