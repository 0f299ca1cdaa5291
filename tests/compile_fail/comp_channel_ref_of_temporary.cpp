// SPDX-License-Identifier: MIT
// A reference to an object that is gone at the end of the line.
// expect-error: deleted function
#include <rdmacpp/rdmacpp.hpp>

void borrow(rdma::context_ref context) {
#ifdef EXPECT_OK
    auto owner = rdma::comp_channel{context};
    rdma::comp_channel_ref ref = owner;
#else
    rdma::comp_channel_ref ref = rdma::comp_channel{context};
#endif
    static_cast<void>(ref);
}
