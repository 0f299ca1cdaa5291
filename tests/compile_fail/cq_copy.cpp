// SPDX-License-Identifier: MIT
// expect-error: use of deleted function|call to (implicitly-)?deleted (copy constructor|member function)
#include <rdmacpp/rdmacpp.hpp>

void take(rdma::cq owner) {
#ifdef EXPECT_OK
    rdma::cq other = std::move(owner);
#else
    rdma::cq other = owner;
#endif
}
