// SPDX-License-Identifier: MIT
// Taking over an event of C's is said aloud.
// expect-error(gcc): no matching function for call|conversion from .* requested|cannot convert
// expect-error(clang): no matching (constructor|conversion|function)|no viable conversion|cannot initialize
#include <rdmacpp/rdmacpp.hpp>

void take(rdma_cm_event* raw) {
#ifdef EXPECT_OK
    rdma::cm_event event{rdma::adopt, raw};
#else
    rdma::cm_event event{raw};
#endif
}
