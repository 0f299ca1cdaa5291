// SPDX-License-Identifier: MIT
// The id of an event is borrowed; a new one is taken.
// expect-error(gcc): no matching function for call|conversion from .* requested|cannot convert
// expect-error(clang): no matching (constructor|conversion|function)|no viable conversion|cannot initialize
#include <rdmacpp/rdmacpp.hpp>

void take(rdma::cm_event& event) {
#ifdef EXPECT_OK
    rdma::cm_id id = event.take_id();
#else
    rdma::cm_id id{event.id()};
#endif
}
