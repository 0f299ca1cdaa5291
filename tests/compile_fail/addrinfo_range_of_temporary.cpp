// SPDX-License-Identifier: MIT
// The results live as long as the list.
// expect-error: use of deleted function|call to (implicitly-)?deleted (copy constructor|member function)
#include <rdmacpp/rdmacpp.hpp>

int count() {
    int n = 0;
#ifdef EXPECT_OK
    rdma::addrinfo const found("10.0.0.1", "7471");
    n += found.front() ? 1 : 0;
#else
    n += rdma::addrinfo("10.0.0.1", "7471").front() ? 1 : 0;
#endif
    return n;
}
