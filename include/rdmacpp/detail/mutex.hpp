// SPDX-License-Identifier: MIT
// A mutex and its guard: those of <mutex>, whose other contents cost every includer more than they do.
#pragma once

#include "../config.hpp"
#if __cplusplus >= 202002L && !defined(RDMACPP_TWO_VERSIONS) // otherwise config.hpp says what to do

#include <pthread.h>

namespace rdma::inline RDMACPP_ABI::detail {

class mutex {
public:
    constexpr mutex() noexcept = default;
    mutex(mutex const&) = delete;
    mutex& operator=(mutex const&) = delete;

    void lock() noexcept { ::pthread_mutex_lock(&native_); }
    bool try_lock() noexcept { return ::pthread_mutex_trylock(&native_) == 0; }
    void unlock() noexcept { ::pthread_mutex_unlock(&native_); }

private:
    pthread_mutex_t native_ = PTHREAD_MUTEX_INITIALIZER; // needs no destroying
};

class [[nodiscard]] lock_guard {
public:
    explicit lock_guard(mutex& m) noexcept : mutex_(m) { mutex_.lock(); }
    lock_guard(lock_guard const&) = delete;
    lock_guard& operator=(lock_guard const&) = delete;
    ~lock_guard() { mutex_.unlock(); }

private:
    mutex& mutex_;
};

} // namespace rdma::inline RDMACPP_ABI::detail

#endif
