// SPDX-License-Identifier: MIT
// The events of a context that is gone at the end of the line.
// expect-error: deleted (member )?function
#include <rdmacpp/rdmacpp.hpp>

void watch(rdma::device_ref device) {
#ifdef EXPECT_OK
    auto context = rdma::context{device};
    auto channel = context.async_channel();
#else
    auto channel = rdma::context{device}.async_channel();
#endif
    static_cast<void>(channel);
}
