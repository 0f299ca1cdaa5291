// SPDX-License-Identifier: MIT
// Which process this is, as cheaply as a load: a forked child must make no C call for objects that its parent opened.
#pragma once

#include "../config.hpp"
#if __cplusplus >= 202002L && !defined(RDMACPP_TWO_VERSIONS) // otherwise config.hpp says what to do

#include "atomic.hpp"

#include <pthread.h>

namespace rdma::inline RDMACPP_ABI::detail {

/// Counts the forks between the first process and this one. After fork() the child shares the parent's open files:
/// rdma_cm commands fail with EACCES there, but ibv_destroy_qp would really kill the parent's QP.
struct RDMACPP_EXPORT process {
    static detail::atomic<unsigned>& generation() noexcept {
        static detail::atomic<unsigned> count{0};
        [[maybe_unused]] static int const registered =
            ::pthread_atfork(nullptr, nullptr, [] { count.fetch_add(1, order::relaxed); });
        return count;
    }
    static unsigned current() noexcept { return generation().load(order::relaxed); }
};

} // namespace rdma::inline RDMACPP_ABI::detail

#endif
