// SPDX-License-Identifier: MIT
// What keeps a C object alive: its owner, its dependents, and the events that name it each hold one pin.
#pragma once

#include "../config.hpp"
#if __cplusplus >= 202002L && !defined(RDMACPP_TWO_VERSIONS) // otherwise config.hpp says what to do

#include "atomic.hpp"
#include "process.hpp"

#include <cstdint>
#include <utility>

namespace rdma::inline RDMACPP_ABI::detail {

/// Moves a plain value out, and leaves an empty one. (std::exchange and std::swap cost every includer compile time.)
template <class T>
T take(T& from) noexcept {
    T const taken = from;
    from = T();
    return taken;
}
template <class T>
void swap_values(T& a, T& b) noexcept {
    T const was = a;
    a = b;
    b = was;
}

/// A C object that is destroyed with its last pin, by whoever drops that one.
struct pinnable {
    using last_unpin = void (*)(pinnable&) noexcept;

    explicit pinnable(last_unpin gone) noexcept : on_last_unpin(gone) {}

    detail::atomic<std::uint32_t> pins{0};
    last_unpin const on_last_unpin;
    unsigned const born_in = process::current();

    /// True in a child that was forked after this object was made: there it is only ever forgotten.
    bool inherited() const noexcept { return born_in != process::current(); }
};

inline void pin(pinnable* target) noexcept {
    if (target)
        target->pins.fetch_add(1, order::relaxed);
}

/// Drops a pin; with the last one the C object goes. No lock may be held: destroys can wait inside the kernel.
inline void unpin(pinnable* target) noexcept {
    if (target && !target->inherited() && target->pins.fetch_sub(1, order::acq_rel) == 1)
        target->on_last_unpin(*target);
}

/// One pin, for as long as it lives.
class keep {
public:
    keep() noexcept = default;
    explicit keep(pinnable* target) noexcept : target_(target) { pin(target); }
    keep(keep&& other) noexcept : target_(take(other.target_)) {}
    keep& operator=(keep&& other) noexcept {
        keep moved(static_cast<keep&&>(other));
        swap_values(target_, moved.target_);
        return *this;
    }
    ~keep() { unpin(target_); }

private:
    pinnable* target_ = nullptr;
};

/// Drops a count that is not the last one, and leaves the last one be: without a lock, and without ending anything.
inline bool unref_unless_last(detail::atomic<std::uint32_t>& count) noexcept {
    std::uint32_t now = count.load(order::relaxed);
    while (now > 1)
        if (count.compare_exchange(now, now - 1, order::acq_rel))
            return true;
    return false;
}

} // namespace rdma::inline RDMACPP_ABI::detail

#endif
