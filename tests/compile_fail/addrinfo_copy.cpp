// SPDX-License-Identifier: MIT
// expect-error: use of deleted function|call to (implicitly-)?deleted (copy constructor|member function)
#include <rdmacpp/rdmacpp.hpp>

void take(rdma::addrinfo owner) {
#ifdef EXPECT_OK
    rdma::addrinfo other = std::move(owner);
#else
    rdma::addrinfo other = owner;
#endif
}
