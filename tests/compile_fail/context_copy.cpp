// SPDX-License-Identifier: MIT
// expect-error: use of deleted function|call to (implicitly-)?deleted (copy constructor|member function)
#include <rdmacpp/rdmacpp.hpp>

void take(rdma::context owner) {
#ifdef EXPECT_OK
    rdma::context other = std::move(owner);
#else
    rdma::context other = owner;
#endif
}
