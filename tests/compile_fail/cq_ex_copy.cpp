// SPDX-License-Identifier: MIT
// expect-error: use of deleted function|call to (implicitly-)?deleted (copy constructor|member function)
#include <rdmacpp/rdmacpp.hpp>

void take(rdma::cq_ex owner) {
#ifdef EXPECT_OK
    rdma::cq_ex other = std::move(owner);
#else
    rdma::cq_ex other = owner;
#endif
}
