// SPDX-License-Identifier: MIT
/// @file
/// Forking beside registered memory.
#pragma once

#include "config.hpp"
#if __cplusplus >= 202002L && !defined(RDMACPP_TWO_VERSIONS) // otherwise config.hpp says what to do

#include "detail/c_api.hpp"
#include "detail/check.hpp"
#include "detail/newer.hpp"

#include <system_error>

namespace rdma::inline RDMACPP_ABI {

/// Whether memory that is registered stays the parent's over a fork (ibv_fork_status, of rdma-core 35).
enum class fork_status {
    disabled = 0, ///< No: after a fork the parent's writes to such pages go elsewhere than the device's.
    enabled = 1,  ///< Yes, by fork_init(); the child cannot touch those pages.
    unneeded = 2, ///< Yes, by the kernel, which copies them for the child.
};

/// Asks for the state of things (ibv_is_fork_initialized, from rdma-core 35 on).
template <class... None>
fork_status is_fork_initialized() noexcept requires detail::has_is_fork_initialized<None...> {
    return static_cast<fork_status>(ibv_is_fork_initialized(None()...));
}

/// Makes forks safe on kernels that need it (ibv_fork_init); before anything is registered. Where it is not needed it
/// changes nothing. What the child may do is another question: all rdmacpp objects of its parent are only ever
/// forgotten there.
inline void fork_init(std::error_code& ec) noexcept { ec = detail::check_returned(::ibv_fork_init()); }

#if RDMACPP_EXCEPTIONS
/// The throwing form of fork_init(std::error_code&). @throws rdma::error EINVAL if memory was registered before
inline void fork_init() {
    std::error_code ec;
    fork_init(ec);
    if (ec)
        detail::throw_error(ec, "ibv_fork_init");
}
#endif

} // namespace rdma::inline RDMACPP_ABI

#endif
