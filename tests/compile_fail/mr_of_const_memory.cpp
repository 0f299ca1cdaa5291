// SPDX-License-Identifier: MIT
// A device may write; memory that must not change is not registered by accident.
// expect-error(gcc): no matching function for call|conversion from .* requested|cannot convert
// expect-error(clang): no matching (constructor|conversion|function)|no viable conversion|cannot initialize
#include <rdmacpp/rdmacpp.hpp>

void make(rdma::pd_ref pd, std::span<std::byte> memory) {
#ifdef EXPECT_OK
    rdma::mr region{pd, memory, rdma::access::none};
#else
    rdma::mr region{pd, std::span<std::byte const>(memory), rdma::access::none};
#endif
}
