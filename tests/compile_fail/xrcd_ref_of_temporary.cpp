// SPDX-License-Identifier: MIT
// The view would outlive its owner at once.
// expect-error: deleted function
#include <rdmacpp/rdmacpp.hpp>

void take() {
#ifdef EXPECT_OK
    rdma::xrcd owner;
    [[maybe_unused]] rdma::xrcd_ref ref = owner;
#else
    [[maybe_unused]] rdma::xrcd_ref ref = rdma::xrcd();
#endif
}
