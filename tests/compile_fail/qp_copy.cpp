// SPDX-License-Identifier: MIT
// expect-error: use of deleted function|call to (implicitly-)?deleted (copy constructor|member function)
#include <rdmacpp/rdmacpp.hpp>

void take(rdma::qp owner) {
#ifdef EXPECT_OK
    rdma::qp other = std::move(owner);
#else
    rdma::qp other = owner;
#endif
}
