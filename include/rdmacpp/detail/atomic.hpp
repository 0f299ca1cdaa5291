// SPDX-License-Identifier: MIT
// Atomic values: as much of <atomic> as is used here, whose other contents cost every includer a tenth of the whole.
#pragma once

#include "../config.hpp"
#if __cplusplus >= 202002L && !defined(RDMACPP_TWO_VERSIONS) // otherwise config.hpp says what to do

namespace rdma::inline RDMACPP_ABI::detail {

/// The orders of <atomic>; what names none is sequentially consistent.
enum class order : int {
    relaxed = __ATOMIC_RELAXED,
    acquire = __ATOMIC_ACQUIRE,
    release = __ATOMIC_RELEASE,
    acq_rel = __ATOMIC_ACQ_REL,
    seq_cst = __ATOMIC_SEQ_CST,
};

/// A number, a flag, an enumerator or a pointer. The functions are those of std::atomic.
template <class T>
class atomic {
public:
    constexpr atomic() noexcept = default;
    constexpr atomic(T value) noexcept : value_(value) {}
    atomic(atomic const&) = delete;
    atomic& operator=(atomic const&) = delete;

    T load(order o = order::seq_cst) const noexcept {
        T value;
        __atomic_load(&value_, &value, static_cast<int>(o));
        return value;
    }
    void store(T value, order o = order::seq_cst) noexcept { __atomic_store(&value_, &value, static_cast<int>(o)); }
    T exchange(T value, order o = order::seq_cst) noexcept {
        T before;
        __atomic_exchange(&value_, &value, &before, static_cast<int>(o));
        return before;
    }
    /// Fails only if the value is another one, which is then in `expected`.
    bool compare_exchange(T& expected, T desired, order o = order::seq_cst) noexcept {
        constexpr bool may_fail_otherwise = false;
        int const on_failure = o == order::release   ? __ATOMIC_RELAXED
                               : o == order::acq_rel ? __ATOMIC_ACQUIRE
                                                     : static_cast<int>(o);
        return __atomic_compare_exchange(&value_, &expected, &desired, may_fail_otherwise, static_cast<int>(o),
                                         on_failure);
    }
    T fetch_add(T n, order o = order::seq_cst) noexcept { return __atomic_fetch_add(&value_, n, static_cast<int>(o)); }
    T fetch_sub(T n, order o = order::seq_cst) noexcept { return __atomic_fetch_sub(&value_, n, static_cast<int>(o)); }

private:
    T value_{};
};

} // namespace rdma::inline RDMACPP_ABI::detail

#endif
