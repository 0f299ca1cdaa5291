// SPDX-License-Identifier: MIT
// expect-error: use of deleted function|call to (implicitly-)?deleted (copy constructor|member function)
#include <rdmacpp/rdmacpp.hpp>

void take(rdma::ah owner) {
#ifdef EXPECT_OK
    rdma::ah other = std::move(owner);
#else
    rdma::ah other = owner;
#endif
}
