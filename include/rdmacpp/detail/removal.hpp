// SPDX-License-Identifier: MIT
// What follows from the removal of a device.
#pragma once

#include "../config.hpp"
#if __cplusplus >= 202002L // below, config.hpp says what to do

#include "c_api.hpp"

#include <atomic>
#include <cstdint>

namespace rdma::inline RDMACPP_ABI::detail {

/// How many ids there are whose device was removed. librdmacm closes the device's context, for which the kernel's
/// removal waits, only when it looks at its devices again after the last of them is gone.
struct RDMACPP_EXPORT removed_ids {
    static std::atomic<std::uint32_t>& get() noexcept {
        static std::atomic<std::uint32_t> count{0};
        return count;
    }
};

/// One of them is gone. With the last one librdmacm is made to look.
inline void removed_id_gone() noexcept {
    if (removed_ids::get().fetch_sub(1, std::memory_order_acq_rel) != 1)
        return;
    int count = 0;
    if (ibv_context** const devices = ::rdma_get_devices(&count))
        ::rdma_free_devices(devices);
}

} // namespace rdma::inline RDMACPP_ABI::detail

#endif
