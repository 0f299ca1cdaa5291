// SPDX-License-Identifier: MIT
// expect-error: use of deleted function|call to (implicitly-)?deleted (copy constructor|member function)
#include <rdmacpp/rdmacpp.hpp>

void take(rdma::cm_id id) {
#ifdef EXPECT_OK
    rdma::cm_id other = std::move(id);
#else
    rdma::cm_id other = id;
#endif
}
