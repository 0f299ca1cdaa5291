// SPDX-License-Identifier: MIT
// What stands behind each verbs object: who needs it, what it needs, and how it ends.
#pragma once

#include "../config.hpp"
#if __cplusplus >= 202002L && !defined(RDMACPP_TWO_VERSIONS) // otherwise config.hpp says what to do

#include "../diagnostics.hpp"
#include "address_map.hpp"
#include "atomic.hpp"
#include "c_api.hpp"
#include "check.hpp"
#include "mutex.hpp"
#include "pin.hpp"
#include "wait_room.hpp"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <new>
#include <utility>

#include <fcntl.h>

namespace rdma::inline RDMACPP_ABI::detail {

/// One PD, completion channel, CQ or QP. Pinned by its owner, by what was made from it and by the events that name it,
/// it is destroyed with the last pin, and then lets go of what it needed: so handles may be dropped in any order, and
/// the C library, which answers EBUSY to a wrong one and waits in ibv_destroy_cq and ibv_destroy_qp for every ack,
/// never sees one.
struct verbs_node : pinnable {
    using destroy_function = int (*)(void*) noexcept;

    /// Starts life: one pin, its owner's; what it `uses` is kept alive until this is destroyed.
    void open(void* object, std::initializer_list<pinnable*> uses) noexcept;

    void const* key() const noexcept { return raw; }

    /// Whether it is an object that this C function destroys; by name, since each shared object has functions of its
    /// own.
    bool is_a(char const* destroyed_by) const noexcept { return std::strcmp(destroy_name, destroyed_by) == 0; }

    /// The object is C's now. No lock and no C call: what it needs is let go, but for what nobody else keeps alive.
    void surrender() noexcept {
        if (inherited())
            return;
        surrendered.store(true, order::release);
        for (pinnable*& needed : needs)
            let_go_unless_last(needed);
        for (std::size_t i = 0; i != more_count; ++i)
            let_go_unless_last(more_needs[i]);
    }

    /// C gave it back, or (`alive` false) destroyed it. False: its address was used again meanwhile, see disown().
    bool take_back(bool alive) noexcept;

    /// Keeps alive again what C says it uses, as far as that is ours, and the id whose it is, if any.
    void need_again(std::initializer_list<void const*> used, pinnable* id = nullptr) noexcept;

    /// Keeps something else alive in place of what it needed there.
    void need_instead(std::size_t place, pinnable* needed) noexcept;

    /// destroy() asked for by name: refused while anything else pins this; on failure all stays as it was.
    std::error_code destroy_now() noexcept;

    bool uses(pinnable const& other) const noexcept {
        for (pinnable const* const needed : needs)
            if (needed == &other)
                return true;
        for (std::size_t i = 0; i != more_count; ++i)
            if (more_needs[i] == &other)
                return true;
        return false;
    }

    /// Tells C of all that is done.
    void settle_all() noexcept {
        if (unsettled.load(order::acquire) != 0) // only ever of a CQ
            settle(static_cast<ibv_cq*>(raw));
    }

    /// Another object has its address: C destroyed this one, or it was leaked and its memory is C's.
    void disown() noexcept {
        if (leaked) {
            pins.store(1, order::relaxed);
            surrendered.store(true, order::release);
        }
        unpin(this);
    }

    /// Counts `events` completion events as done; C is told in batches, since its ack takes a mutex.
    void settle_later(ibv_cq* cq, std::uint32_t events) noexcept {
        if (unsettled.fetch_add(events, order::acq_rel) + events >= batch.load(order::relaxed))
            settle(cq);
    }

    static constexpr std::size_t most_needs = 7; // a QP's PD, two CQs, SRQ, XRC domain, indirection table and id

    destroy_function const destroy;
    char const* const destroy_name;
    void* raw = nullptr;
    verbs_node* next = nullptr; // in the table
    pinnable* needs[most_needs] = {};
    pinnable** more_needs = nullptr; // of an indirection table, which needs as many queues as the program likes
    std::size_t more_count = 0;
    detail::atomic<std::uint32_t> unsettled{0}; // completion events, got and done with, of which C does not know yet
    detail::atomic<std::uint32_t> batch{32};    // so many at once
    detail::atomic<bool> surrendered{false};    // released to C: whoever adopts it has it
    bool listed = false;                        // in the table; under its mutex
    bool leaked = false;                        // its destroy failed: it stays listed, so that late events are known

protected:
    verbs_node(last_unpin on_last, destroy_function destroy_it, char const* destroy_call) noexcept
        : pinnable(on_last), destroy(destroy_it), destroy_name(destroy_call) {}

    /// The last pin is gone.
    template <class Node>
    static void last(pinnable& self) noexcept {
        if (auto& node = static_cast<Node&>(self); node.ended())
            delete &node;
    }

private:
    void settle(ibv_cq* cq) noexcept {
        if (std::uint32_t const n = unsettled.exchange(0, order::acq_rel))
            ::ibv_ack_cq_events(cq, n);
    }
    static void let_go_unless_last(pinnable*& needed) noexcept {
        if (needed && unref_unless_last(needed->pins))
            needed = nullptr;
    }
    /// Leaves the table, if it was destroyed, and lets go of what it needed.
    void leave(bool destroyed) noexcept;
    bool ended() noexcept;
};

struct imported_t {};

/// The node of one type of object. `Node` says how C makes it and how it ends: `made_by`, `ended_by`, `end`; and, if
/// there is more to it than ending, what C remembers of its making: `recall`.
template <class Node, class Raw>
struct node_of : verbs_node {
    using raw_type = Raw;
    static constexpr char const* unimported_by = ""; // of those that can be imported, what ends that

    node_of() noexcept
        : verbs_node(
              &verbs_node::last<Node>, [](void* object) noexcept { return Node::end(static_cast<Raw*>(object)); },
              Node::ended_by) {}
    /// Of an object of another process: it is not destroyed, but forgotten.
    explicit node_of(imported_t) noexcept
        : verbs_node(
              &verbs_node::last<Node>,
              [](void* object) noexcept {
                  Node::unimport(static_cast<Raw*>(object));
                  return 0;
              },
              Node::unimported_by) {}

    /// Keeps alive again what an object that C gave back was made from.
    void recall() noexcept {}

    Raw* object() const noexcept { return static_cast<Raw*>(raw); }
};

/// A completion channel, with the threads that wait on it.
struct comp_channel_node : node_of<comp_channel_node, ibv_comp_channel> {
    static constexpr char const* made_by = "ibv_create_comp_channel";
    static constexpr char const* ended_by = "ibv_destroy_comp_channel";
    static int end(ibv_comp_channel* channel) noexcept { return ::ibv_destroy_comp_channel(channel); }

    /// What a range over its events keeps alive.
    void ref() noexcept { pin(this); }
    void unref() noexcept { unpin(this); }

    /// Makes its descriptor non-blocking, once, before the first get: most channels that librdmacm makes see none.
    void never_block() noexcept {
        if (!nonblocking.exchange(true, order::relaxed))
            ::fcntl(object()->fd, F_SETFL, ::fcntl(object()->fd, F_GETFL) | O_NONBLOCK);
    }

    wait_room room;
    detail::atomic<bool> nonblocking{false};
};

/// A completion queue, with the channel it notifies.
struct cq_node : node_of<cq_node, ibv_cq> {
    static constexpr char const* made_by = "ibv_create_cq";
    static constexpr char const* ended_by = "ibv_destroy_cq";
    static int end(ibv_cq* cq) noexcept { return ::ibv_destroy_cq(cq); }
    void recall() noexcept {
        need_again({object()->channel});
        channel = static_cast<comp_channel_node*>(needs[0]);
    }

    comp_channel_node* channel = nullptr;  // one of its needs, or null
    detail::atomic<bool> event_due{false}; // armed by a wait that then did not need the event
};

struct qp_node : node_of<qp_node, ibv_qp> {
    static constexpr char const* made_by = "ibv_create_qp";
    static constexpr char const* ended_by = "ibv_destroy_qp";
    static int end(ibv_qp* qp) noexcept { return ::ibv_destroy_qp(qp); }
    void recall() noexcept { need_again({object()->pd, object()->send_cq, object()->recv_cq, object()->srq}); }

    ibv_qp_cap granted{};
    bool maybe_ex = true; // made with send_ops_flags, or not by us: of others some drivers answer with rubbish
};

struct srq_node : node_of<srq_node, ibv_srq> {
    static constexpr char const* made_by = "ibv_create_srq";
    static constexpr char const* ended_by = "ibv_destroy_srq";
    static int end(ibv_srq* srq) noexcept { return ::ibv_destroy_srq(srq); }
    void recall() noexcept { need_again({object()->pd}); }

    ibv_srq_attr granted{};
};

/// Every verbs object that rdmacpp knows, by address: an event names its object by nothing else. One per process, and
/// never destroyed, since events may be kept in static objects.
struct RDMACPP_EXPORT verbs_table {
    detail::mutex mutex;
    address_map<verbs_node> nodes;

    static verbs_table& get() noexcept {
        alignas(verbs_table) static unsigned char memory[sizeof(verbs_table)];
        static verbs_table* const table = new (memory) verbs_table;
        return *table;
    }

    /// A node at a used address replaces what stood there: C hands the addresses of dead objects out again at once.
    void insert(verbs_node* node) noexcept {
        verbs_node* nobodys;
        {
            lock_guard const lock(mutex);
            nobodys = replace(node);
        }
        if (nobodys)
            nobodys->disown();
    }

    /// The node of an object that this C function destroys, if it is alive; not pinned.
    verbs_node* find_a(void const* object, char const* destroyed_by) noexcept {
        lock_guard const lock(mutex);
        return alive(object, destroyed_by);
    }

    /// Puts a node where there is none of its kind yet. @return the one that is there now
    verbs_node* insert_unless_there(verbs_node* node) noexcept {
        verbs_node* nobodys;
        {
            lock_guard const lock(mutex);
            if (verbs_node* const there = alive(node->raw, node->destroy_name))
                return there;
            nobodys = replace(node);
        }
        if (nobodys)
            nobodys->disown();
        return node;
    }

    /// What was released to C, with the owner's pin that it still has.
    verbs_node* take_back(void const* object, std::error_code& ec, char const* ended_by,
                          char const* unimported_by) noexcept {
        lock_guard const lock(mutex);
        verbs_node* const node = nodes.find(object);
        // One of another kind was released to C and destroyed there.
        if (!node || !(node->is_a(ended_by) || node->is_a(unimported_by)) || node->pins.load(order::relaxed) == 0)
            return nullptr;
        if (!node->surrendered.exchange(false, order::acq_rel)) {
            ec = errc::already_owned;
            return nullptr;
        }
        return node;
    }

    /// How many others are made with it.
    std::uint32_t users_of(verbs_node const& node) noexcept {
        lock_guard const lock(mutex);
        std::uint32_t count = 0;
        nodes.for_each([&](verbs_node const* each) { count += each->uses(node) ? 1U : 0U; });
        return count;
    }

    /// Under the mutex.
    verbs_node* alive(void const* object, char const* destroyed_by) noexcept {
        verbs_node* const node = nodes.find(object);
        return node && node->is_a(destroyed_by) && node->pins.load(order::relaxed) != 0 ? node : nullptr;
    }

    /// Under the mutex. @return what stood there and is nobody's, to be disowned afterwards
    verbs_node* replace(verbs_node* node) noexcept {
        verbs_node* nobodys = nullptr;
        if (verbs_node* const old = nodes.find(node->raw)) {
            nodes.erase(old);
            old->listed = false; // from here on its destroyer, if there is one, may delete it
            if (old->leaked || old->surrendered.load(order::acquire))
                nobodys = old;
        }
        nodes.insert(node);
        node->listed = true;
        return nobodys;
    }

    enum class found { pinned, dying, unknown };

    /// Finds what an event names and pins it. `dying`: its destroy is under way, and waits for this very event's ack.
    found find_and_pin(void const* object, verbs_node*& node) noexcept {
        lock_guard const lock(mutex);
        node = nodes.find(object);
        if (!node)
            return found::unknown;
        std::uint32_t pins = node->pins.load(order::relaxed);
        while (pins != 0 && !node->pins.compare_exchange(pins, pins + 1, order::relaxed)) {
        }
        return pins != 0 ? found::pinned : found::dying;
    }
};

inline void verbs_node::open(void* object, std::initializer_list<pinnable*> uses) noexcept {
    raw = object;
    pinnable** place = needs;
    for (pinnable* const used : uses)
        pin(*place++ = used);
    pins.store(1, order::relaxed);
    verbs_table::get().insert(this);
}

inline bool verbs_node::take_back(bool alive) noexcept {
    lock_guard const lock(verbs_table::get().mutex);
    if (listed && alive)
        surrendered.store(false, order::release);
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

inline void verbs_node::need_instead(std::size_t place, pinnable* needed) noexcept {
    pin(needed);
    {
        lock_guard const lock(verbs_table::get().mutex);
        swap_values(needs[place], needed);
    }
    unpin(needed);
}

inline void verbs_node::leave(bool destroyed) noexcept {
    pinnable* was[most_needs];
    std::size_t more;
    {
        verbs_table& table = verbs_table::get();
        lock_guard const lock(table.mutex);
        if (destroyed && listed)
            table.nodes.erase(this); // unless its address has a new tenant already
        for (std::size_t i = 0; i != most_needs; ++i)
            was[i] = take(needs[i]);
        more = take(more_count);
    }
    for (pinnable* const needed : was)
        unpin(needed);
    for (std::size_t i = 0; i != more; ++i)
        unpin(more_needs[i]);
}

/// The last pin is gone. False: the object is leaked, and this must stay, so that late events are known.
inline bool verbs_node::ended() noexcept {
    bool const ours = !surrendered.load(order::acquire);
    if (ours)
        settle_all();
    std::error_code const failure = ours ? check_returned(destroy(raw)) : std::error_code();
    if (failure)
        report({diagnostic_kind::destroy_failed, destroy_name, raw, failure});
    leave(!failure);
    if (!failure)
        return true;
    lock_guard const lock(verbs_table::get().mutex);
    leaked = listed;
    return !leaked;
}

inline std::error_code verbs_node::destroy_now() noexcept {
    std::uint32_t only = 1;
    if (!pins.compare_exchange(only, 0, order::acq_rel))
        return system_error_code(EBUSY);
    settle_all();
    if (std::error_code const failure = check_returned(destroy(raw))) {
        pins.store(1, order::release);
        return failure;
    }
    leave(true);
    return {};
}

} // namespace rdma::inline RDMACPP_ABI::detail

#endif
