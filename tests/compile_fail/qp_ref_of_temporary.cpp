// SPDX-License-Identifier: MIT
// The view would outlive its owner at once.
// expect-error: deleted function
#include <rdmacpp/rdmacpp.hpp>

void take() {
#ifdef EXPECT_OK
    rdma::qp owner;
    [[maybe_unused]] rdma::qp_ref ref = owner;
#else
    [[maybe_unused]] rdma::qp_ref ref = rdma::qp();
#endif
}
