// SPDX-License-Identifier: MIT
// Taking over an id of C's is said aloud, and on which channel.
// expect-error(gcc): no matching function for call|conversion from .* requested|cannot convert
// expect-error(clang): no matching (constructor|conversion|function)|no viable conversion|cannot initialize
#include <rdmacpp/rdmacpp.hpp>

void take(rdma::event_channel& channel, rdma_cm_id* raw) {
    static_cast<void>(channel);
#ifdef EXPECT_OK
    rdma::cm_id id{rdma::adopt, channel, raw};
#else
    rdma::cm_id id = raw;
#endif
}
