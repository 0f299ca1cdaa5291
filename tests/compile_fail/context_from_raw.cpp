// SPDX-License-Identifier: MIT
// Taking over an object of C's is said aloud.
// expect-error(gcc): no matching function for call|conversion from .* requested|cannot convert
// expect-error(clang): no matching (constructor|conversion|function)|no viable conversion|cannot initialize
#include <rdmacpp/rdmacpp.hpp>

void take(ibv_context* raw) {
#ifdef EXPECT_OK
    rdma::context owner{rdma::adopt, raw};
#else
    rdma::context owner{raw};
#endif
}
