// SPDX-License-Identifier: MIT
// What stands behind each verbs object: who needs it, what it needs, and how it ends.
#pragma once

#include "../config.hpp"
#if __cplusplus >= 202002L // below, config.hpp says what to do

#include "../diagnostics.hpp"
#include "address_map.hpp"
#include "c_api.hpp"
#include "check.hpp"
#include "pin.hpp"
#include "wait_room.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <mutex>
#include <new>
#include <utility>

namespace rdma::inline RDMACPP_ABI::detail {

/// One PD, completion channel, CQ or QP. Pinned by its owner, by what was made from it and by the events that name it,
/// it is destroyed with the last pin, and then lets go of what it needed: so handles may be dropped in any order, and
/// the C library, which answers EBUSY to a wrong one and waits in ibv_destroy_cq and ibv_destroy_qp for every ack,
/// never sees one.
struct verbs_node : pinnable {
    using destroy_function = int (*)(void*) noexcept;

    verbs_node(destroy_function destroy_it, char const* destroy_call) noexcept
        : verbs_node(&last<verbs_node>, destroy_it, destroy_call) {}

    /// Starts life: one pin, its owner's; what it `uses` is kept alive until this is destroyed.
    void open(void* object, std::initializer_list<pinnable*> uses) noexcept;

    void const* key() const noexcept { return raw; }

    /// The object is C's now. No lock and no C call: what it needs is let go, but for what nobody else keeps alive.
    void surrender() noexcept {
        if (inherited())
            return;
        surrendered.store(true, std::memory_order_release);
        for (pinnable*& needed : needs)
            if (needed && unref_unless_last(needed->pins))
                needed = nullptr;
    }

    /// C gave it back, or (`alive` false) destroyed it. False: its address was used again meanwhile, see disown().
    bool take_back(bool alive) noexcept;

    /// Keeps alive again what C says it uses, as far as that is ours, and the id whose it is, if any.
    void need_again(std::initializer_list<void const*> used, pinnable* id = nullptr) noexcept;

    /// destroy() asked for by name: refused while anything else pins this; on failure all stays as it was.
    std::error_code destroy_now() noexcept;

    bool uses(pinnable const& other) const noexcept {
        for (pinnable const* const needed : needs)
            if (needed == &other)
                return true;
        return false;
    }

    /// Tells C of all that is done.
    void settle_all() noexcept {
        if (unsettled.load(std::memory_order_acquire) != 0) // only ever of a CQ
            settle(static_cast<ibv_cq*>(raw));
    }

    /// Another object has its address: C destroyed this one, or it was leaked and its memory is C's.
    void disown() noexcept {
        if (leaked) {
            pins.store(1, std::memory_order_relaxed);
            surrendered.store(true, std::memory_order_release);
        }
        unpin(this);
    }

    /// Counts `events` completion events as done; C is told in batches, since its ack takes a mutex.
    void settle_later(ibv_cq* cq, std::uint32_t events) noexcept {
        if (unsettled.fetch_add(events, std::memory_order_acq_rel) + events >= settle_batch)
            settle(cq);
    }

    static constexpr std::size_t most_needs = 6; // a QP's PD, two CQs, SRQ, XRC domain and id

    destroy_function const destroy;
    char const* const destroy_name;
    void* raw = nullptr;
    verbs_node* next = nullptr; // in the table
    pinnable* needs[most_needs] = {};
    std::atomic<std::uint32_t> unsettled{
        0};                               // completion events that were got and dropped, of which C does not know yet
    std::atomic<bool> surrendered{false}; // released to C: whoever adopts it has it
    bool listed = false;                  // in the table; under its mutex
    bool leaked = false;                  // its destroy failed: it stays listed, so that late events are known

    static constexpr std::uint32_t settle_batch = 32;

protected:
    verbs_node(last_unpin on_last, destroy_function destroy_it, char const* destroy_call) noexcept
        : pinnable(on_last), destroy(destroy_it), destroy_name(destroy_call) {}

    /// The last pin is gone.
    template <class Node>
    static void last(pinnable& self) noexcept {
        if (auto& node = static_cast<Node&>(self); node.end())
            delete &node;
    }

private:
    void settle(ibv_cq* cq) noexcept {
        if (std::uint32_t const n = unsettled.exchange(0, std::memory_order_acq_rel))
            ::ibv_ack_cq_events(cq, n);
    }
    void let_go_of_needs() noexcept;
    void unlist() noexcept;
    bool end() noexcept;
};

/// A completion channel, with the threads that wait on it.
struct comp_channel_node : verbs_node {
    comp_channel_node() noexcept
        : verbs_node(
              &verbs_node::last<comp_channel_node>,
              [](void* p) noexcept { return ::ibv_destroy_comp_channel(static_cast<ibv_comp_channel*>(p)); },
              "ibv_destroy_comp_channel") {}
    /// What a range over its events keeps alive.
    void ref() noexcept { pin(this); }
    void unref() noexcept { unpin(this); }

    wait_room room;
};

/// A completion queue, with the channel it notifies.
struct cq_node : verbs_node {
    cq_node() noexcept
        : verbs_node(
              &verbs_node::last<cq_node>, [](void* p) noexcept { return ::ibv_destroy_cq(static_cast<ibv_cq*>(p)); },
              "ibv_destroy_cq") {}
    comp_channel_node* channel = nullptr; // one of its needs, or null
};

struct qp_node : verbs_node {
    qp_node() noexcept
        : verbs_node(
              &verbs_node::last<qp_node>, [](void* p) noexcept { return ::ibv_destroy_qp(static_cast<ibv_qp*>(p)); },
              "ibv_destroy_qp") {}
};

struct srq_node : verbs_node {
    srq_node() noexcept
        : verbs_node(
              &verbs_node::last<srq_node>, [](void* p) noexcept { return ::ibv_destroy_srq(static_cast<ibv_srq*>(p)); },
              "ibv_destroy_srq") {}
};

/// Every verbs object that rdmacpp knows, by address: an event names its object by nothing else. One per process, and
/// never destroyed, since events may be kept in static objects.
struct RDMACPP_EXPORT verbs_table {
    std::mutex mutex;
    address_map<verbs_node> nodes;

    static verbs_table& get() noexcept {
        alignas(verbs_table) static unsigned char memory[sizeof(verbs_table)];
        static verbs_table* const table = new (memory) verbs_table;
        return *table;
    }

    /// A node at a used address replaces what stood there: C hands the addresses of dead objects out again at once.
    void insert(verbs_node* node) noexcept {
        verbs_node* nobodys = nullptr;
        {
            std::lock_guard const lock(mutex);
            if (verbs_node* const old = nodes.find(node->raw)) {
                nodes.erase(old);
                old->listed = false; // from here on its destroyer, if there is one, may delete it
                if (old->leaked || old->surrendered.load(std::memory_order_acquire))
                    nobodys = old;
            }
            nodes.insert(node);
            node->listed = true;
        }
        if (nobodys)
            nobodys->disown();
    }

    /// What was released to C, with the owner's pin that it still has.
    verbs_node* take_back(void const* object, std::error_code& ec) noexcept {
        std::lock_guard const lock(mutex);
        verbs_node* const node = nodes.find(object);
        if (!node || node->pins.load(std::memory_order_relaxed) == 0)
            return nullptr;
        if (!node->surrendered.exchange(false, std::memory_order_acq_rel)) {
            ec = errc::already_owned;
            return nullptr;
        }
        return node;
    }

    /// How many others are made with it.
    std::uint32_t users_of(verbs_node const& node) noexcept {
        std::lock_guard const lock(mutex);
        std::uint32_t count = 0;
        nodes.for_each([&](verbs_node const* each) { count += each->uses(node) ? 1U : 0U; });
        return count;
    }

    enum class found { pinned, dying, unknown };

    /// Finds what an event names and pins it. `dying`: its destroy is under way, and waits for this very event's ack.
    found find_and_pin(void const* object, verbs_node*& node) noexcept {
        std::lock_guard const lock(mutex);
        node = nodes.find(object);
        if (!node)
            return found::unknown;
        std::uint32_t pins = node->pins.load(std::memory_order_relaxed);
        while (pins != 0 && !node->pins.compare_exchange_weak(pins, pins + 1, std::memory_order_relaxed)) {
        }
        return pins != 0 ? found::pinned : found::dying;
    }
};

inline void verbs_node::open(void* object, std::initializer_list<pinnable*> uses) noexcept {
    raw = object;
    pinnable** place = needs;
    for (pinnable* const used : uses)
        pin(*place++ = used);
    pins.store(1, std::memory_order_relaxed);
    verbs_table::get().insert(this);
}

inline bool verbs_node::take_back(bool alive) noexcept {
    std::lock_guard const lock(verbs_table::get().mutex);
    if (listed && alive)
        surrendered.store(false, std::memory_order_release);
    return listed;
}

inline void verbs_node::need_again(std::initializer_list<void const*> used, pinnable* id) noexcept {
    pinnable** place = needs;
    for (void const* const object : used) {
        verbs_node* known = nullptr;
        if (!*place && verbs_table::get().find_and_pin(object, known) == verbs_table::found::pinned)
            *place = known;
        ++place;
    }
    for (pinnable const* const needed : needs)
        if (needed == id)
            return;
    pin(needs[most_needs - 1] = id); // of an id's own objects alone, which leave that place free for it
}

inline void verbs_node::let_go_of_needs() noexcept {
    pinnable* was[most_needs];
    {
        std::lock_guard const lock(verbs_table::get().mutex);
        for (std::size_t i = 0; i != most_needs; ++i)
            was[i] = take(needs[i]);
    }
    for (pinnable* const needed : was)
        unpin(needed);
}

inline void verbs_node::unlist() noexcept {
    verbs_table& table = verbs_table::get();
    std::lock_guard const lock(table.mutex);
    if (listed)
        table.nodes.erase(this); // unless its address has a new tenant already
}

/// The last pin is gone. False: the object is leaked, and this must stay, so that late events are known.
inline bool verbs_node::end() noexcept {
    if (surrendered.load(std::memory_order_acquire)) {
        unlist();
        let_go_of_needs();
        return true;
    }
    settle_all();
    std::error_code const failure = check_returned(destroy(raw));
    if (!failure) {
        unlist();
        let_go_of_needs();
        return true;
    }
    report({diagnostic_kind::destroy_failed, destroy_name, raw, failure});
    let_go_of_needs();
    std::lock_guard const lock(verbs_table::get().mutex);
    leaked = listed;
    return !leaked;
}

inline std::error_code verbs_node::destroy_now() noexcept {
    std::uint32_t only = 1;
    if (!pins.compare_exchange_strong(only, 0, std::memory_order_acq_rel))
        return system_error_code(EBUSY);
    settle_all();
    if (std::error_code const failure = check_returned(destroy(raw))) {
        pins.store(1, std::memory_order_release);
        return failure;
    }
    unlist();
    let_go_of_needs();
    return {};
}

} // namespace rdma::inline RDMACPP_ABI::detail

#endif
