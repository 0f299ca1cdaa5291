// SPDX-License-Identifier: MIT
// expect-error: use of deleted function|call to (implicitly-)?deleted (copy constructor|member function)
#include <rdmacpp/rdmacpp.hpp>

void take(rdma::device_list owner) {
#ifdef EXPECT_OK
    rdma::device_list other = std::move(owner);
#else
    rdma::device_list other = owner;
#endif
}
