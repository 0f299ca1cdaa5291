// SPDX-License-Identifier: MIT
// What the library knows of one join of an id to a multicast group.
#pragma once

#include "../config.hpp"
#if __cplusplus >= 202002L && !defined(RDMACPP_TWO_VERSIONS) // otherwise config.hpp says what to do

#include "../address.hpp"
#include "atomic.hpp"
#include "c_api.hpp"
#include "mutex.hpp"

#include <cstdint>
#include <new>

namespace rdma::inline RDMACPP_ABI::detail {

struct id_record;

/// It is the C context of the join, and keeps the user's. Kept by the membership, and by the id until the group is
/// left.
struct join_record {
    join_record(id_record& joined, address const& to, void* context, bool sends_only) noexcept
        : id(&joined), group(to), user_context(context), send_only(sends_only) {}

    void unref() noexcept {
        if (refs.fetch_sub(1, order::acq_rel) == 1)
            delete this;
    }

    id_record* id;               // null once it was left, or the id is gone; under join_mutex
    join_record* next = nullptr; // of the same id; under its channel's mutex, like all that follows
    address const group;         // leave finds the group by these bytes
    void* const user_context;
    bool const send_only;  // librdmacm attaches no QP then
    bool dropped = false;  // its membership is gone: it is left with the last ack
    bool attached = false; // librdmacm attached the id's QP, to:
    ibv_gid gid{};
    std::uint16_t lid = 0;
    std::uint32_t events = 0; // held events of this group
    detail::atomic<std::uint32_t> refs{2};
};

/// Taken before a channel's mutex by whoever leaves a group: a membership finds its id through it. Joins are rare, so
/// there is one for all. Never destroyed.
struct RDMACPP_EXPORT join_mutex {
    static detail::mutex& get() noexcept {
        alignas(detail::mutex) static unsigned char memory[sizeof(detail::mutex)];
        static detail::mutex* const mutex = new (memory) detail::mutex;
        return *mutex;
    }
};

/// Holds that mutex, where a group may have to be left.
class join_lock {
public:
    explicit join_lock(bool needed) noexcept : mutex_(needed ? &join_mutex::get() : nullptr) {
        if (mutex_)
            mutex_->lock();
    }
    join_lock(join_lock const&) = delete;
    join_lock& operator=(join_lock const&) = delete;
    ~join_lock() {
        if (mutex_)
            mutex_->unlock();
    }

private:
    detail::mutex* mutex_;
};

} // namespace rdma::inline RDMACPP_ABI::detail

#endif
