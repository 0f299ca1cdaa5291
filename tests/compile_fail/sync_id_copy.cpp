// SPDX-License-Identifier: MIT
// expect-error: use of deleted function|call to (implicitly-)?deleted (copy constructor|member function)
#include <rdmacpp/rdmacpp.hpp>

void take(rdma::sync_id owner) {
#ifdef EXPECT_OK
    rdma::sync_id other = std::move(owner);
#else
    rdma::sync_id other = owner;
#endif
}
