// SPDX-License-Identifier: MIT
// Taking changes the event.
// expect-error(gcc): discards qualifiers
// expect-error(clang): 'this' argument to member function 'take_id' has type 'const|no matching member function
#include <rdmacpp/rdmacpp.hpp>

void take(rdma::cm_event& event) {
#ifdef EXPECT_OK
    rdma::cm_id id = event.take_id();
#else
    rdma::cm_event const& same = event;
    rdma::cm_id id = same.take_id();
#endif
}
