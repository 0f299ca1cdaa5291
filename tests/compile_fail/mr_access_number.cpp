// SPDX-License-Identifier: MIT
// Access flags are not a number.
// expect-error(gcc): no matching function for call|conversion from .* requested|cannot convert
// expect-error(clang): no matching (constructor|conversion|function)|no viable conversion|cannot initialize
#include <rdmacpp/rdmacpp.hpp>

void make(rdma::pd_ref pd, std::span<std::byte> memory) {
#ifdef EXPECT_OK
    rdma::mr region{pd, memory, rdma::access::local_write | rdma::access::remote_read};
#else
    rdma::mr region{pd, memory, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ};
#endif
}
