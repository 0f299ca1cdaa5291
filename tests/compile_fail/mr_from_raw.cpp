// SPDX-License-Identifier: MIT
// Taking over a region of C's is said aloud.
// expect-error(gcc): no matching function for call|conversion from .* requested|cannot convert
// expect-error(clang): no matching (constructor|conversion|function)|no viable conversion|cannot initialize
#include <rdmacpp/rdmacpp.hpp>

void take(ibv_mr* raw) {
#ifdef EXPECT_OK
    rdma::mr owner{rdma::adopt, raw};
#else
    rdma::mr owner{raw};
#endif
}
