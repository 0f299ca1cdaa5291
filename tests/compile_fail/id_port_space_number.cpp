// SPDX-License-Identifier: MIT
// A port space is not a number.
// expect-error(gcc): no matching function for call|conversion from .* requested|cannot convert
// expect-error(clang): no matching (constructor|conversion|function)|no viable conversion|cannot initialize
#include <rdmacpp/rdmacpp.hpp>

void make(rdma::event_channel& channel) {
#ifdef EXPECT_OK
    rdma::cm_id id{channel, rdma::port_space::udp};
#else
    rdma::cm_id id{channel, RDMA_PS_UDP};
#endif
}
