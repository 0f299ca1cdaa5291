// SPDX-License-Identifier: MIT
// What follows from the removal of a device.
#pragma once

#include "../config.hpp"
#if __cplusplus >= 202002L && !defined(RDMACPP_TWO_VERSIONS) // otherwise config.hpp says what to do

#include "atomic.hpp"
#include "c_api.hpp"
#include "mutex.hpp"

#include <cstdint>
#include <new>

namespace rdma::inline RDMACPP_ABI::detail {

/// Makes librdmacm look at its devices again once the last id of a removed device is gone: only then does it close the
/// device's context, for which the kernel's removal waits.
///
/// It looks (rdma_get_devices and rdma_free_devices) while no id is being destroyed: a default PD whose last id goes
/// meanwhile would stay, since the list holds the device. One per process, never destroyed.
class RDMACPP_EXPORT removal_watch {
public:
    static removal_watch& get() noexcept {
        alignas(removal_watch) static unsigned char memory[sizeof(removal_watch)];
        static removal_watch* const watch = new (memory) removal_watch;
        return *watch;
    }

    /// An id was found to have lost its device.
    void add_id() noexcept { ids_.fetch_add(1); }
    /// It is for somebody else to make librdmacm look.
    void forget_id() noexcept { ids_.fetch_sub(1); }

    /// Around each rdma_destroy_id. No lock is held in between.
    void begin_destroy() noexcept {
        for (;;) {
            destroys_.fetch_add(1);
            if (!looking_.load())
                return;
            destroys_.fetch_sub(1);
            lock_guard const until_it_has_looked(mutex_);
        }
    }
    void end_destroy(bool of_removed_id) noexcept {
        if (of_removed_id && ids_.fetch_sub(1) == 1)
            wanted_.store(true);
        if (destroys_.fetch_sub(1) == 1 && wanted_.load())
            look();
    }

private:
    /// If a destroy has begun meanwhile, it is the one to look at its end.
    void look() noexcept {
        lock_guard const lock(mutex_);
        looking_.store(true);
        if (destroys_.load() == 0 && wanted_.exchange(false)) {
            int count = 0;
            if (ibv_context** const devices = ::rdma_get_devices(&count))
                ::rdma_free_devices(devices);
        }
        looking_.store(false);
    }

    detail::mutex mutex_;
    detail::atomic<std::uint32_t> ids_{0}; // those that have lost their device
    detail::atomic<std::uint32_t> destroys_{0};
    detail::atomic<bool> looking_{false};
    detail::atomic<bool> wanted_{false};
};

} // namespace rdma::inline RDMACPP_ABI::detail

#endif
