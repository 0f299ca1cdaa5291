// SPDX-License-Identifier: MIT
// Taking over is written out: adopt.
// expect-error(gcc): no matching function for call|conversion from .* requested|cannot convert
// expect-error(clang): no matching (constructor|conversion|function)|no viable conversion|cannot initialize
#include <rdmacpp/rdmacpp.hpp>

void take(rdma_addrinfo* raw) {
#ifdef EXPECT_OK
    rdma::addrinfo owner{rdma::adopt, raw};
#else
    rdma::addrinfo owner{raw};
#endif
}
