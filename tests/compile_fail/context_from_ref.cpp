// SPDX-License-Identifier: MIT
// What is borrowed cannot turn into an owner.
// expect-error(gcc): no matching function for call|conversion from .* requested|cannot convert
// expect-error(clang): no matching (constructor|conversion|function)|no viable conversion|cannot initialize
#include <rdmacpp/rdmacpp.hpp>

void take(rdma::context_ref ref) {
#ifdef EXPECT_OK
    [[maybe_unused]] rdma::context_ref other{ref};
#else
    rdma::context owner{ref};
#endif
}
