// SPDX-License-Identifier: MIT
// expect-error: use of deleted function|call to (implicitly-)?deleted (copy constructor|member function)
#include <rdmacpp/rdmacpp.hpp>

void take(rdma::request owner) {
#ifdef EXPECT_OK
    rdma::request other = std::move(owner);
#else
    rdma::request other = owner;
#endif
}
