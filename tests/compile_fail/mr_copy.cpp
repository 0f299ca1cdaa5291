// SPDX-License-Identifier: MIT
// expect-error: use of deleted function|call to (implicitly-)?deleted (copy constructor|member function)
#include <rdmacpp/rdmacpp.hpp>

void take(rdma::mr owner) {
#ifdef EXPECT_OK
    rdma::mr other = std::move(owner);
#else
    rdma::mr other = owner;
#endif
}
