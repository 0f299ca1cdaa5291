// SPDX-License-Identifier: MIT
// expect-error: use of deleted function|call to (implicitly-)?deleted (copy constructor|member function)
#include <rdmacpp/rdmacpp.hpp>

void take(rdma::mcast owner) {
#ifdef EXPECT_OK
    rdma::mcast other = std::move(owner);
#else
    rdma::mcast other = owner;
#endif
}
