// SPDX-License-Identifier: MIT
// expect-error: use of deleted function|call to (implicitly-)?deleted (copy constructor|member function)
#include <rdmacpp/rdmacpp.hpp>

void take(rdma::membership owner) {
#ifdef EXPECT_OK
    rdma::membership other = std::move(owner);
#else
    rdma::membership other = owner;
#endif
}
