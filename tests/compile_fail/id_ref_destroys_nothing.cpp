// SPDX-License-Identifier: MIT
// A borrowed id offers identity and addresses, no more.
// expect-error(gcc): has no member named 'destroy'
// expect-error(clang): no member named 'destroy'
#include <rdmacpp/rdmacpp.hpp>

void use(rdma::cm_id_ref ref) {
#ifdef EXPECT_OK
    static_cast<void>(ref.peer_addr());
#else
    ref.destroy();
#endif
}
