// SPDX-License-Identifier: MIT
// expect-error: use of deleted function|call to (implicitly-)?deleted (copy constructor|member function)
#include <rdmacpp/rdmacpp.hpp>

void take(rdma::registered_buffer owner) {
#ifdef EXPECT_OK
    rdma::registered_buffer other = std::move(owner);
#else
    rdma::registered_buffer other = owner;
#endif
}
