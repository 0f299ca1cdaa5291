// SPDX-License-Identifier: MIT
// A reference to an object that is gone at the end of the line.
// expect-error: deleted function
#include <rdmacpp/rdmacpp.hpp>

void borrow(ibv_context* raw) {
#ifdef EXPECT_OK
    auto owner = rdma::context(rdma::adopt, raw);
    rdma::context_ref ref = owner;
#else
    rdma::context_ref ref = rdma::context(rdma::adopt, raw);
#endif
    static_cast<void>(ref);
}
