// SPDX-License-Identifier: MIT
// Compiled with -fno-exceptions -fno-rtti.
#include "mixed.hpp"

#if defined(__cpp_exceptions) || RDMACPP_EXCEPTIONS
#error "this unit must be compiled without exceptions"
#endif
#if defined(__cpp_rtti)
#error "this unit must be compiled without RTTI"
#endif

// The throwing forms are not declared here.
template <class Id>
concept can_throw = requires(Id& id) { id.listen(); };
static_assert(!can_throw<rdma::cm_id>);

rdma::cm_id make_bound_id(rdma::event_channel const& channel, std::error_code& ec) noexcept {
    rdma::cm_id id{channel, rdma::port_space::tcp, ec};
    if (!ec)
        id.bind(rdma::address{"10.77.1.1", 7471, ec}, ec);
    return id;
}

void listen_and_drop(rdma::cm_id id, std::error_code& ec) noexcept { id.listen(ec); }
