// SPDX-License-Identifier: MIT
// The PD would be gone, were it not kept; a named one says what is meant.
// expect-error: deleted function
#include <rdmacpp/rdmacpp.hpp>

void make(rdma::context_ref context, std::span<std::byte> memory) {
#ifdef EXPECT_OK
    rdma::pd pd{context};
    rdma::mr region{pd, memory, rdma::access::none};
#else
    rdma::mr region{rdma::pd{context}, memory, rdma::access::none};
#endif
}
