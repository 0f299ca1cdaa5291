// SPDX-License-Identifier: MIT
// A reference to an id that is gone at the end of the line.
// expect-error: deleted function
#include <rdmacpp/rdmacpp.hpp>

void borrow(rdma::event_channel& channel) {
#ifdef EXPECT_OK
    rdma::cm_id id{channel, rdma::port_space::tcp};
    rdma::cm_id_ref ref = id;
#else
    rdma::cm_id_ref ref = rdma::cm_id{channel, rdma::port_space::tcp};
#endif
    static_cast<void>(ref);
}
