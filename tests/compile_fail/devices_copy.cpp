// SPDX-License-Identifier: MIT
// expect-error: use of deleted function|call to (implicitly-)?deleted (copy constructor|member function)
#include <rdmacpp/rdmacpp.hpp>

void take(rdma::devices owner) {
#ifdef EXPECT_OK
    rdma::devices other = std::move(owner);
#else
    rdma::devices other = owner;
#endif
}
