// SPDX-License-Identifier: MIT
// expect-error: use of deleted function|call to (implicitly-)?deleted (copy constructor|member function)
#include <rdmacpp/rdmacpp.hpp>

void take(rdma::pd owner) {
#ifdef EXPECT_OK
    rdma::pd other = std::move(owner);
#else
    rdma::pd other = owner;
#endif
}
