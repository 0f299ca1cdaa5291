// SPDX-License-Identifier: MIT
// A timeout has a unit.
// expect-error(gcc): no matching function for call|cannot convert|could not convert
// expect-error(clang): no viable conversion|no matching member function
#include <rdmacpp/rdmacpp.hpp>

void set(rdma::cm_id& id) {
#ifdef EXPECT_OK
    id.set_ack_timeout(std::chrono::milliseconds(67));
#else
    id.set_ack_timeout(14);
#endif
}
