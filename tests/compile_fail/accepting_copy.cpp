// SPDX-License-Identifier: MIT
// expect-error: use of deleted function|call to (implicitly-)?deleted (copy constructor|member function)
#include <rdmacpp/rdmacpp.hpp>

void take(rdma::accepting owner) {
#ifdef EXPECT_OK
    rdma::accepting other = std::move(owner);
#else
    rdma::accepting other = owner;
#endif
}
