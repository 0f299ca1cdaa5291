// SPDX-License-Identifier: MIT
// What release() gives back is the caller's to destroy.
// expect-error: ignoring return(ed)? value
#include <rdmacpp/rdmacpp.hpp>

void let_go(rdma::cm_id& id) {
#ifdef EXPECT_OK
    ::rdma_destroy_id(id.release());
#else
    id.release();
#endif
}
