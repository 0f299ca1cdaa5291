// SPDX-License-Identifier: MIT
// expect-error: use of deleted function|call to (implicitly-)?deleted (copy constructor|member function)
#include <rdmacpp/rdmacpp.hpp>

void take(rdma::comp_channel owner) {
#ifdef EXPECT_OK
    rdma::comp_channel other = std::move(owner);
#else
    rdma::comp_channel other = owner;
#endif
}
