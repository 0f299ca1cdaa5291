// SPDX-License-Identifier: MIT
// A reference to an object that is gone at the end of the line.
// expect-error: deleted function
#include <rdmacpp/rdmacpp.hpp>

void borrow(rdma::context_ref context) {
#ifdef EXPECT_OK
    auto owner = rdma::pd{context};
    rdma::pd_ref ref = owner;
#else
    rdma::pd_ref ref = rdma::pd{context};
#endif
    static_cast<void>(ref);
}
