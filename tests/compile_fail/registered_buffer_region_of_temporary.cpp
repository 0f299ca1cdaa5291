// SPDX-License-Identifier: MIT
// The region of a buffer that is gone at the end of the line.
// expect-error: deleted (member )?function
#include <rdmacpp/rdmacpp.hpp>

void borrow(rdma::pd_ref pd) {
#ifdef EXPECT_OK
    auto buffer = rdma::registered_buffer{pd, 8, rdma::access::none};
    rdma::mr_ref region = buffer.region();
#else
    rdma::mr_ref region = rdma::registered_buffer{pd, 8, rdma::access::none}.region();
#endif
    static_cast<void>(region);
}
