// SPDX-License-Identifier: MIT
// Taking over a channel of C's is said aloud.
// expect-error(gcc): no matching function for call|conversion from .* requested|cannot convert
// expect-error(clang): no matching (constructor|conversion|function)|no viable conversion|cannot initialize
#include <rdmacpp/rdmacpp.hpp>

void take(rdma_event_channel* raw) {
#ifdef EXPECT_OK
    rdma::event_channel channel{rdma::adopt, raw};
#else
    rdma::event_channel channel{raw};
#endif
}
