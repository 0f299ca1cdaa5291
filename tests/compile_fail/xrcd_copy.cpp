// SPDX-License-Identifier: MIT
// expect-error: use of deleted function|call to (implicitly-)?deleted (copy constructor|member function)
#include <rdmacpp/rdmacpp.hpp>

void take(rdma::xrcd owner) {
#ifdef EXPECT_OK
    rdma::xrcd other = std::move(owner);
#else
    rdma::xrcd other = owner;
#endif
}
