// SPDX-License-Identifier: MIT
/// @file
/// Counting, and failing, the allocations of the library: those made with operator new on this thread outside the fake.
#pragma once

#include <cstddef>

// clang links its sanitizers' operator new statically: there, a second one is an error.
#if defined(__clang__)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define RDMACPP_TEST_ALLOCATIONS 0
#endif
#endif
#ifndef RDMACPP_TEST_ALLOCATIONS
#define RDMACPP_TEST_ALLOCATIONS 1
#endif

/// First in each case that needs to see allocations.
#define RDMACPP_NEED_ALLOCATIONS()                           \
    do {                                                     \
        if (!RDMACPP_TEST_ALLOCATIONS)                       \
            RDMACPP_SKIP("operator new is the sanitizer's"); \
    } while (false)

namespace unit {

/// From its construction on, counts the allocations of this thread; the `fail_at`th of them (1 = the next) fails, if it
/// is given. Checks of Catch allocate, too: keep them outside its scope, or take the number before.
class allocation_watch {
public:
    explicit allocation_watch(std::size_t fail_at = 0) noexcept;
    allocation_watch(allocation_watch const&) = delete;
    allocation_watch& operator=(allocation_watch const&) = delete;
    ~allocation_watch();

    std::size_t made() const noexcept; ///< Allocations so far, those that failed included.
    bool struck() const noexcept;      ///< Whether the one to fail was reached.
};

/// Whether the last watch of this thread, over or not, has reached the one to fail.
bool allocation_struck() noexcept;

} // namespace unit
