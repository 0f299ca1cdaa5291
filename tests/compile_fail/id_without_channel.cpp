// SPDX-License-Identifier: MIT
// librdmacm would make a hidden channel, and turn synchronous.
// expect-error(gcc): no matching function for call|conversion from .* requested|cannot convert
// expect-error(clang): no matching (constructor|conversion|function)|no viable conversion|cannot initialize
#include <rdmacpp/rdmacpp.hpp>

void make(rdma::event_channel& channel) {
    static_cast<void>(channel);
#ifdef EXPECT_OK
    rdma::cm_id id{channel, rdma::port_space::tcp};
#else
    rdma::cm_id id{nullptr, rdma::port_space::tcp};
#endif
}
