// SPDX-License-Identifier: MIT
/// @file
/// The devices that librdmacm has opened.
#pragma once

#include "config.hpp"
#if __cplusplus >= 202002L && !defined(RDMACPP_TWO_VERSIONS) // otherwise config.hpp says what to do

#include "context.hpp"
#include "detail/contract.hpp"
#include "verbs_list.hpp"

#include <system_error>

namespace rdma::inline RDMACPP_ABI {

/// The RDMA devices of this machine, as librdmacm has opened them (rdma_get_devices): a range of context_ref.
///
///     for (rdma::context_ref device : rdma::devices::get()) { ... }
///
/// The contexts belong to librdmacm, and are the same that ids have (cm_id::verbs). The list keeps them open: while it
/// is held, the default PD of a device stays, too.
class [[nodiscard]] devices : public verbs_list<devices, context_ref, ibv_context> {
public:
    /// Empty.
    devices() noexcept = default;

#if RDMACPP_EXCEPTIONS
    /// Asks for the devices. @throws rdma::error the errno of rdma_get_devices: ENODEV if there is none
    static devices get() {
        std::error_code ec;
        devices all = get(ec);
        if (ec)
            detail::throw_error(ec, "rdma_get_devices");
        return all;
    }
#endif
    /// The twin of get(): empty on failure.
    static devices get(std::error_code& ec) noexcept {
        int count = 0;
        ibv_context** const all = ::rdma_get_devices(&count);
        ec = detail::check_pointer(all);
        return devices(all, count);
    }

private:
    friend class verbs_list<devices, context_ref, ibv_context>;
    using verbs_list::verbs_list;
    /// The contexts stay librdmacm's (rdma_free_devices).
    static void free(ibv_context** all) noexcept { ::rdma_free_devices(all); }
};

static_assert(detail::move_only<devices>);

} // namespace rdma::inline RDMACPP_ABI

#endif
