// SPDX-License-Identifier: MIT
// expect-error: use of deleted function|call to (implicitly-)?deleted (copy constructor|member function)
#include <rdmacpp/rdmacpp.hpp>

void take(rdma::acceptor owner) {
#ifdef EXPECT_OK
    rdma::acceptor other = std::move(owner);
#else
    rdma::acceptor other = owner;
#endif
}
