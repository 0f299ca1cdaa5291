// SPDX-License-Identifier: MIT
// The event lives as long as the endpoint.
// expect-error: use of deleted function|call to (implicitly-)?deleted (copy constructor|member function)
#include <rdmacpp/rdmacpp.hpp>

bool has(rdma::endpoint& endpoint) {
#ifdef EXPECT_OK
    return static_cast<bool>(endpoint.event());
#else
    return static_cast<bool>(std::move(endpoint).event());
#endif
}
