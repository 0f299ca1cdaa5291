// SPDX-License-Identifier: MIT
// expect-error: use of deleted function|call to (implicitly-)?deleted (copy constructor|member function)
#include <rdmacpp/rdmacpp.hpp>

void take(rdma::endpoint owner) {
#ifdef EXPECT_OK
    rdma::endpoint other = std::move(owner);
#else
    rdma::endpoint other = owner;
#endif
}
