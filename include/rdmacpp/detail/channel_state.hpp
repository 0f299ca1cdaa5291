// SPDX-License-Identifier: MIT
// The heart: what an event channel, its ids and its events share, and where "one get, one ack" is kept.
//
// rdma_destroy_id waits, without a timeout, until every event charged to the id is acked. So an id that is dropped
// while events of it are held only becomes `dropped`; rdma_destroy_id runs with the last ack, on the thread that acks.
#pragma once

#include "../config.hpp"
#if __cplusplus >= 202002L && !defined(RDMACPP_TWO_VERSIONS) // otherwise config.hpp says what to do

#include "../stats.hpp"
#include "atomic.hpp"
#include "id_record.hpp"
#include "join_record.hpp"
#include "mutex.hpp"
#include "newer.hpp"
#include "removal.hpp"
#include "wait_room.hpp"

#include <cerrno>
#include <cstdint>
#include <new>
#include <utility>

#include <fcntl.h>

namespace rdma::inline RDMACPP_ABI::detail {

/// What a cm_event holds: the C event, and the records of the ids that it pins.
struct held_event {
    rdma_cm_event* raw = nullptr;
    id_record* charged = nullptr; // the id whose destroy waits for the ack
    id_record* child = nullptr;   // the new id of a CONNECT_REQUEST
};

/// Whose destroy waits for this event's ack: a CONNECT_REQUEST is charged to the listener.
inline rdma_cm_id* charged_id(rdma_cm_event const& event) noexcept {
    return event.listen_id ? event.listen_id : event.id;
}

/// The state of one rdma_event_channel: kept by the channel object, its iterators, and every id and held event on it.
struct channel_state {
    explicit channel_state(rdma_event_channel* channel) noexcept : raw(channel) {}
    channel_state(channel_state const&) = delete;
    channel_state& operator=(channel_state const&) = delete;

    void const* key() const noexcept { return raw; }
    bool inherited() const noexcept { return born_in != process::current(); }

    // ---- the channel itself
    static channel_state* open(std::error_code& ec) noexcept;
    static channel_state* adopt(rdma_event_channel* channel, std::error_code& ec) noexcept;
    static channel_state* borrow(rdma_event_channel* channel, std::error_code& ec) noexcept;
    void ref() noexcept { refs.fetch_add(1, order::relaxed); }
    void unref() noexcept;
    void close() noexcept;
    rdma_event_channel* release() noexcept;
    channel_stats stats() noexcept;
    bool is_forgotten() noexcept;

    // ---- ids
    id_record* create_id(rdma_port_space ps, void* context, std::error_code& ec) noexcept;
    id_record* adopt_id(rdma_cm_id* id, std::error_code& ec) noexcept;
    void release_id(id_record& id) noexcept;
    void drop(id_record& id) noexcept;
    std::error_code destroy(id_record& id, std::uint32_t& held) noexcept;
    verbs_node* unhook_qp(id_record& id) noexcept;
    verbs_node* unhook_srq(id_record& id) noexcept;
    static std::error_code migrate(id_record& id, channel_state& to, std::uint32_t& held) noexcept;

    // ---- multicast groups
    static constexpr int plain_join = -1; // rdma_join_multicast, which takes no flag
    join_record* join(id_record& id, address const& group, int flag, void* context, std::error_code& ec) noexcept;
    static std::error_code leave(join_record& join, std::uint32_t& held) noexcept;
    static void drop_join(join_record& join) noexcept;

    // ---- events
    bool try_get(held_event& event, wait_options options, std::error_code& ec) noexcept;
    woken get(held_event& event, deadline const& until, any_stop_token const& stop, wait_options options,
              std::error_code& ec) noexcept;
    bool adopt_event(rdma_cm_event* event, held_event& held, std::error_code& ec) noexcept;
    void ack(held_event const& event) noexcept;
    static channel_state& of(held_event const& event) noexcept { return *event.charged->channel; }
    static void release_event(held_event const& event) noexcept;
    static void* user_context_of_join(held_event const& event) noexcept;

    rdma_event_channel* const raw;
    channel_state* next = nullptr; // in the registry
    detail::atomic<std::uint32_t> refs{1};
    unsigned const born_in = process::current();
    detail::atomic<bool> owned{false}; // by an event_channel: then the C channel is destroyed with the last reference
    int flags_before = 0;              // of the descriptor, for release()
    wait_room room;

    detail::mutex mutex; // never held while user code runs, while waiting, or around a destroy of an id, QP or CQ
    address_map<id_record> ids;
    id_record* spares = nullptr;  // made before each C get, so that nothing can fail after it
    id_record* retired = nullptr; // released to C, and their address used again since
    channel_stats counts{};       // the part of stats() that is counted

private:
    enum class fate { delivered, swallowed };

    fate take_in(rdma_cm_event* event, held_event& held, diagnostic& story) noexcept;
    void hold(rdma_cm_event* event, held_event& held, id_record* known_child) noexcept;
    id_record* find_elsewhere(rdma_cm_id const* id) noexcept;
    bool replenish() noexcept;
    id_record& spare(rdma_cm_id* id) noexcept;
    id_record& find_or_count(rdma_cm_id* id) noexcept;
    void insert(id_record& id) noexcept;
    void pin_record(id_record& id) noexcept;
    bool unpin_record(id_record& id) noexcept;
    void finish(id_record& id) noexcept;
    void let_go(id_record& id) noexcept;
    static std::uint32_t held_of_qp(id_record const& id) noexcept;
    static bool serves_others(id_record const& id) noexcept;
    static verbs_node* unhook_qp_locked(id_record& id) noexcept;
    static verbs_node* unhook_srq_locked(id_record& id) noexcept;
    static join_record* find_join(id_record const& id, rdma_cm_event const& event) noexcept;
    static void detach(join_record& join) noexcept;
    static std::error_code leave_locked(join_record& join) noexcept;
    void leave_unheld(id_record& id) noexcept;
    static void report_failed_leave(rdma_cm_id const* id, std::error_code failure) noexcept;
    static void forget_joins(id_record& id) noexcept;
    void ack_any(held_event const& event) noexcept;
    void ack_of_join(held_event const& event) noexcept;
    void note(rdma_cm_event const* event, id_record& id) noexcept;
    void note_removal(id_record& id) noexcept;
    static void notice_removal(id_record& id) noexcept;
    std::error_code destroy_c_id(id_record& id) noexcept;
    static void sever(id_record& id) noexcept;
    static void last_unpin(pinnable& self) noexcept;
    bool is_all_of_c() noexcept;
    static void forget_stale(rdma_event_channel const* channel) noexcept;
    void end() noexcept;

    friend struct id_record;
};

/// Every channel state, by its C channel. One per process, never destroyed.
struct RDMACPP_EXPORT channel_registry {
    detail::mutex mutex;
    address_map<channel_state> channels;

    static channel_registry& get() noexcept {
        alignas(channel_registry) static unsigned char memory[sizeof(channel_registry)];
        static channel_registry* const registry = new (memory) channel_registry;
        return *registry;
    }
};

inline id_record::id_record(channel_state& home) noexcept : pinnable(&channel_state::last_unpin), channel(&home) {}

// ---- The channel ---------------------------------------------------------------------------------------------------

/// The C channel is always non-blocking: a get is a try, then a poll, so that a wait can be stopped and no lock is
/// held.
inline bool set_nonblocking(int fd, int& flags_before) noexcept {
    flags_before = ::fcntl(fd, F_GETFL);
    return flags_before >= 0 && ::fcntl(fd, F_SETFL, flags_before | O_NONBLOCK) == 0;
}

inline channel_state* channel_state::open(std::error_code& ec) noexcept {
    rdma_event_channel* const channel = ::rdma_create_event_channel();
    if ((ec = check_pointer(channel)))
        return nullptr;
    forget_stale(channel);
    channel_state* const state = adopt(channel, ec);
    if (!state)
        ::rdma_destroy_event_channel(channel);
    return state;
}

/// A channel that was just opened is new, whatever is known of its address: C destroyed one that was released to it.
inline void channel_state::forget_stale(rdma_event_channel const* channel) noexcept {
    channel_state* stale;
    {
        channel_registry& registry = channel_registry::get();
        lock_guard const lock(registry.mutex);
        stale = registry.channels.find(channel);
        if (!stale)
            return;
        registry.channels.erase(stale);
        stale->owned.store(false, order::release);
        if (stale->refs.load(order::acquire) != 0 && !stale->is_all_of_c())
            return; // ids or events of ours were left on it
    }
    stale->end();
}

/// It was released to C, with all that is on it: C may have destroyed it since, and its address be another's.
inline bool channel_state::is_forgotten() noexcept { return !owned.load(order::acquire) && is_all_of_c(); }

/// Nothing but ids and events that were released to C, and never came back.
inline bool channel_state::is_all_of_c() noexcept {
    lock_guard const lock(mutex);
    bool all = true;
    ids.for_each([&all](id_record const* id) {
        bool const c_has_it = id->has(id_status::foreign) || id->has(id_status::released) || id->has(id_status::lent);
        all = all && (c_has_it || id->leaked);
        for (event_tally const& events : id->held_events)
            all = all && events.held == events.released.load(order::relaxed);
    });
    return all;
}

inline channel_state* channel_state::adopt(rdma_event_channel* channel, std::error_code& ec) noexcept {
    channel_state* const state = borrow(channel, ec);
    if (!state)
        return nullptr;
    if (state->owned.exchange(true, order::acq_rel)) {
        ec = errc::already_owned;
        state->unref();
        return nullptr;
    }
    if (!set_nonblocking(channel->fd, state->flags_before)) {
        ec = system_error_code(errno);
        state->owned.store(false, order::release);
        state->unref();
        return nullptr;
    }
    return state;
}

inline channel_state* channel_state::borrow(rdma_event_channel* channel, std::error_code& ec) noexcept {
    ec.clear();
    if (!channel) {
        ec = errc::null_handle;
        return nullptr;
    }
    channel_registry& registry = channel_registry::get();
    lock_guard const lock(registry.mutex);
    if (channel_state* const known = registry.channels.find(channel)) {
        known->ref();
        return known;
    }
    channel_state* const state = new (std::nothrow) channel_state(channel);
    if (state)
        registry.channels.insert(state);
    else
        ec = system_error_code(ENOMEM);
    return state;
}

inline void channel_state::unref() noexcept {
    std::uint32_t count = refs.load(order::relaxed);
    while (count > 1)
        if (refs.compare_exchange(count, count - 1, order::acq_rel))
            return;
    { // the last one goes under the registry's mutex, or a borrow could find a
        // state that is about to end
        channel_registry& registry = channel_registry::get();
        lock_guard const lock(registry.mutex);
        if (refs.fetch_sub(1, order::acq_rel) != 1)
            return;
        registry.channels.erase(this);
    }
    end();
}

inline void channel_state::end() noexcept {
    if (owned.load(order::acquire))
        ::rdma_destroy_event_channel(raw);
    auto const forget = [](id_record* left) { // leaked or released: the C id is not ours to touch
        unpin(take(left->qp));
        unpin(take(left->srq));
        forget_joins(*left);
        delete left;
    };
    ids.for_each(forget);
    for (id_record* const list : {spares, retired})
        for (id_record *r = list, *following; r; r = following) {
            following = r->next;
            forget(r);
        }
    delete this;
}

/// The channel object is gone: ranges end at their next step. The C channel stays for the ids and events that need it.
inline void channel_state::close() noexcept {
    if (inherited())
        return;
    room.close();
    unref();
}

/// No lock, no C call of librdmacm's: also right in a forked child, where another thread may have held the mutex.
inline rdma_event_channel* channel_state::release() noexcept {
    if (inherited())
        return raw; // whether the descriptor blocks is the parent's affair, too
    owned.store(false, order::release);
    ::fcntl(raw->fd, F_SETFL, flags_before);
    refs.fetch_sub(1, order::acq_rel); // at zero it stays in the registry, for the next adopt or borrow
    return raw;
}

inline channel_stats channel_state::stats() noexcept {
    lock_guard const lock(mutex);
    channel_stats now = counts;
    ids.for_each([&now](id_record const* id) {
        if (id->has(id_status::owned) || id->has(id_status::in_event))
            ++now.ids_live;
        else if (id->has(id_status::dropped) && id->pins.load(order::relaxed) != 0)
            ++now.ids_awaiting_ack;
    });
    return now;
}

// ---- Records -------------------------------------------------------------------------------------------------------

/// With its first pin a record keeps its channel, with its last it lets go.
inline void channel_state::pin_record(id_record& id) noexcept {
    if (id.pins.fetch_add(1, order::relaxed) == 0)
        ref();
}

/// True if that was the last pin: the caller then calls on_last_unpin, with no lock held.
inline bool channel_state::unpin_record(id_record& id) noexcept { return id.pins.fetch_sub(1, order::acq_rel) == 1; }

/// A record at a used address replaces what stood there: malloc hands the address of a dead id out again at once,
/// before the thread that destroyed it comes to erase its entry.
inline void channel_state::insert(id_record& id) noexcept {
    if (id_record* const old = ids.find(id.raw)) {
        ids.erase(old);
        old->listed = false;
        if (!old->has(id_status::dropped) || old->leaked) {
            old->next = retired; // nobody else will free it
            retired = old;
        }
    }
    ids.insert(&id);
    id.listed = true;
}

/// One spare for a new id, and one for the listener of it if that is C's and unknown.
inline bool channel_state::replenish() noexcept {
    for (int missing = !spares ? 2 : !spares->next ? 1 : 0; missing != 0; --missing) {
        id_record* const fresh = new (std::nothrow) id_record(*this);
        if (!fresh)
            return false;
        fresh->next = spares;
        spares = fresh;
    }
    return true;
}

inline id_record& channel_state::spare(rdma_cm_id* id) noexcept {
    id_record& record = *spares;
    spares = record.next;
    record.raw = id;
    insert(record);
    return record;
}

/// The record of an id; one that C made is counted from here on, while events of it are held.
inline id_record& channel_state::find_or_count(rdma_cm_id* id) noexcept {
    id_record* const known = ids.find(id);
    return known ? *known : spare(id);
}

// ---- Ids -----------------------------------------------------------------------------------------------------------

inline id_record* channel_state::create_id(rdma_port_space ps, void* context, std::error_code& ec) noexcept {
    ec.clear();
    id_record* const record = new (std::nothrow) id_record(*this);
    if (!record) {
        ec = system_error_code(ENOMEM);
        return nullptr;
    }
    if ((ec = check_errno(::rdma_create_id(raw, &record->raw, context, ps)))) {
        delete record;
        return nullptr;
    }
    record->status.store(id_status::owned);
    pin_record(*record);
    lock_guard const lock(mutex);
    insert(*record);
    return record;
}

inline id_record* channel_state::adopt_id(rdma_cm_id* id, std::error_code& ec) noexcept {
    ec.clear();
    if (!id)
        ec = errc::null_handle;
    else if (id->channel != raw)
        ec = errc::wrong_channel;
    if (ec)
        return nullptr;
    lock_guard const lock(mutex);
    id_record* const known = ids.find(id);
    if (known && (known->has(id_status::owned) || known->has(id_status::in_event) || known->has(id_status::dropped))) {
        ec = errc::already_owned;
        return nullptr;
    }
    if (!known && !replenish()) {
        ec = system_error_code(ENOMEM);
        return nullptr;
    }
    id_record& record = known ? *known : spare(id);
    if (!record.has(id_status::lent)) { // that one has its owner's pin still
        pin_record(record);
        record.request.store(request_state::unknown);
    }
    record.active.store(true, order::relaxed); // perhaps: a needless disconnect fails without harm
    record.status.store(id_status::owned);
    return &record;
}

/// No lock and no C call: C has the id, and its QP, from here on.
inline void channel_state::release_id(id_record& id) noexcept {
    if (inherited())
        return;
    id.surrender_qp();
    if (id.removed.exchange(false)) // then it is for C to make librdmacm notice
        removal_watch::get().forget_id();
    id.status.store(id_status::released);
    if (unpin_record(id))
        refs.fetch_sub(1, order::acq_rel); // not unref(): C's id needs the channel, even if nobody else does
}

/// librdmacm looks at id->qp inside a get without any lock: so it is taken away under the mutex that each get holds.
inline verbs_node* channel_state::unhook_qp_locked(id_record& id) noexcept {
    verbs_node* const qp = id.qp;
    if (!qp)
        return nullptr;
    for (join_record* join = id.joins; join; join = join->next)
        detach(*join); // or its destroy is EBUSY, for ever
    id.qp = nullptr;
    id.send_cq = id.recv_cq = nullptr;
    id.raw->qp = nullptr;
    id.raw->send_cq = nullptr;
    id.raw->send_cq_channel = nullptr;
    if (!id.srq_cq) {
        id.raw->recv_cq = nullptr;
        id.raw->recv_cq_channel = nullptr;
    }
    id.raw->pd = id.default_pd; // librdmacm would leave the user's PD there, which may be gone soon
    return qp;
}

inline verbs_node* channel_state::unhook_srq_locked(id_record& id) noexcept {
    if (!id.srq)
        return nullptr;
    id.raw->srq = nullptr;
    if (take(id.srq_cq)) {
        id.raw->recv_cq = nullptr;
        id.raw->recv_cq_channel = nullptr;
    }
    return take(id.srq);
}

inline verbs_node* channel_state::unhook_srq(id_record& id) noexcept {
    lock_guard const lock(mutex);
    return unhook_srq_locked(id);
}

inline verbs_node* channel_state::unhook_qp(id_record& id) noexcept {
    lock_guard const lock(mutex);
    return unhook_qp_locked(id);
}

/// Tells the peer now, when rdma_destroy_id, which would, has to wait for an ack.
inline void channel_state::sever(id_record& id) noexcept {
    bool const undecided = id.request.load() == request_state::undecided;
    if (undecided && ::rdma_reject(id.raw, nullptr, 0) == 0)
        return;
    bool const maybe_connected = undecided || id.active.load(order::relaxed); // C may have accepted it
    if (maybe_connected && id.raw->verbs)
        ::rdma_disconnect(id.raw);
}

/// The owner lets go. On iWARP the kernel may hold the destroy of an id in mid-connect until its timeout: no lock here.
inline void channel_state::drop(id_record& id) noexcept {
    if (inherited())
        return;
    verbs_node *qp, *srq;
    {
        lock_guard const lock(mutex);
        id.status.store(id_status::dropped);
        qp = unhook_qp_locked(id);
        srq = unhook_srq_locked(id);
    }
    leave_unheld(id);
    if (qp && qp->pins.load(order::relaxed) > 1) { // an event of it is held: it stays, but must go quiet
        ibv_qp_attr attr{};
        attr.qp_state = IBV_QPS_ERR;
        ::ibv_modify_qp(static_cast<ibv_qp*>(qp->raw), &attr, IBV_QP_STATE);
    }
    unpin(qp);
    unpin(srq);
    let_go(id);
}

/// Drops the owner's pin.
inline void channel_state::let_go(id_record& id) noexcept {
    if (id.pins.load(order::acquire) > 1)
        sever(id);
    if (unpin_record(id))
        last_unpin(id);
}

inline void channel_state::last_unpin(pinnable& self) noexcept {
    auto& id = static_cast<id_record&>(self);
    channel_state& home = *id.channel;
    if (id.has(id_status::dropped))
        home.finish(id);
    home.unref();
}

/// The DEVICE_REMOVAL of an id may wait unread, and goes with it: then the kernel knows the id no longer, and says so
/// to any call, here to one that does nothing.
inline void channel_state::notice_removal(id_record& id) noexcept {
    constexpr int no_such_level = 0x7fff;
    unsigned char nothing = 0;
    if (!id.raw->verbs || id.removed.load() || ::rdma_set_option(id.raw, no_such_level, 0, &nothing, 1) == 0)
        return;
    if ((errno == ENXIO || errno == EIO) && !id.removed.exchange(true))
        removal_watch::get().add_id();
}

inline std::error_code channel_state::destroy_c_id(id_record& id) noexcept {
    { // whoever looks at the C id under the mutex has seen a pin, and is done with it now
        lock_guard const lock(mutex);
        notice_removal(id);
    }
    removal_watch& watch = removal_watch::get();
    watch.begin_destroy();
    std::error_code const failure = check_errno(::rdma_destroy_id(id.raw));
    watch.end_destroy(id.removed.exchange(false));
    return failure;
}

/// The C object goes, with nothing held. If C refuses, the record stays, so that late events are known and swallowed.
inline void channel_state::finish(id_record& id) noexcept {
    rdma_cm_id* const object = id.raw;
    std::error_code const failure = destroy_c_id(id);
    bool stays = false;
    {
        lock_guard const lock(mutex);
        if (id.listed && failure)
            stays = id.leaked = true;
        else if (id.listed)
            ids.erase(&id); // unless its address has a new tenant already
    }
    if (!stays)
        delete &id;
    if (failure)
        report({diagnostic_kind::destroy_failed, "rdma_destroy_id", object, failure});
}

/// How many events of its QP and SRQ, and of the CQs that librdmacm made for them, are held.
inline std::uint32_t channel_state::held_of_qp(id_record const& id) noexcept {
    std::uint32_t held = 0;
    for (verbs_node const* const node :
         {id.qp, static_cast<verbs_node*>(id.send_cq), static_cast<verbs_node*>(id.recv_cq), id.srq,
          static_cast<verbs_node*>(id.srq_cq)}) {
        if (!node)
            continue;
        std::uint32_t const by_owner = node == id.send_cq || node == id.recv_cq || node == id.srq_cq ? 0 : 1;
        held += node->pins.load(order::relaxed) - by_owner - verbs_table::get().users_of(*node);
    }
    return held;
}

/// Whether a QP that is not its own uses what librdmacm made for the id.
inline bool channel_state::serves_others(id_record const& id) noexcept {
    for (verbs_node const* const node : {static_cast<verbs_node*>(id.send_cq), static_cast<verbs_node*>(id.recv_cq),
                                         id.srq, static_cast<verbs_node*>(id.srq_cq)})
        if (node &&
            verbs_table::get().users_of(*node) >
                (id.qp && id.qp->uses(*node) ? 1U : 0U) + (node != id.srq && id.srq && id.srq->uses(*node) ? 1U : 0U))
            return true;
    return false;
}

/// destroy() asked for by name: it never waits, and on failure the id stays as it was, but for its QP.
inline std::error_code channel_state::destroy(id_record& id, std::uint32_t& held) noexcept {
    verbs_node *qp, *srq;
    {
        lock_guard const lock(mutex);
        held = id.events + id.named.load(order::relaxed) + held_of_qp(id);
        if (held != 0)
            return system_error_code(EDEADLK);
        std::uint32_t own = 1; // the owner's pin, and those of what goes with the id
        for (verbs_node const* const part :
             {id.qp, static_cast<verbs_node*>(id.send_cq), static_cast<verbs_node*>(id.recv_cq), id.srq,
              static_cast<verbs_node*>(id.srq_cq)})
            own += part ? 1 : 0;
        if (id.pins.load(order::acquire) > own || serves_others(id))
            return system_error_code(EBUSY);
        id.status.store(id_status::dropped);
        qp = unhook_qp_locked(id);
        srq = unhook_srq_locked(id);
    }
    leave_unheld(id);
    unpin(qp);
    unpin(srq);
    if (id.pins.load(order::acquire) > 1) { // a completion or async event was got meanwhile: put off, then
        let_go(id);
        return {};
    }
    if (std::error_code const failure = destroy_c_id(id)) {
        id.status.store(id_status::owned);
        return failure;
    }
    {
        lock_guard const lock(mutex);
        if (id.listed)
            ids.erase(&id);
    }
    delete &id;
    unref();
    return {};
}

// ---- Multicast groups ----------------------------------------------------------------------------------------------

/// Whether an event is one of a group, which its private data then names.
inline bool is_of_join(rdma_cm_event const& event) noexcept {
    return type_of(event) == cm_event_type::multicast_join || type_of(event) == cm_event_type::multicast_error;
}

/// The join that an event is about; null if C joined.
inline join_record* channel_state::find_join(id_record const& id, rdma_cm_event const& event) noexcept {
    if (!is_of_join(event))
        return nullptr;
    join_record* join = id.joins;
    while (join && join != event.param.ud.private_data)
        join = join->next;
    return join;
}

/// One group at most once: librdmacm finds it by its address alone.
inline join_record* channel_state::join(id_record& id, address const& group, int flag, void* context,
                                        std::error_code& ec) noexcept {
    bool const send_only = flag == mc_join_flag_sendonly_fullmember;
    auto* const join = new (std::nothrow) join_record(id, group, context, send_only);
    if (!join) {
        ec = system_error_code(ENOMEM);
        return nullptr;
    }
    {
        lock_guard const lock(mutex);
        for (join_record const* other = id.joins; other && !ec; other = other->next)
            if (other->group == group)
                ec = errc::already_joined;
        auto* const to = const_cast<sockaddr*>(join->group.native_handle()); // C only reads it
        auto const role = static_cast<std::uint32_t>(flag);
        if (!ec)
            ec = check_errno(flag == plain_join ? ::rdma_join_multicast(id.raw, to, join)
                                                : join_multicast_ex(id.raw, to, role, join));
        if (!ec) {
            join->next = id.joins;
            id.joins = join;
            id.multicasts.store(true, order::relaxed);
            return join;
        }
    }
    delete join;
    return nullptr;
}

inline void channel_state::detach(join_record& join) noexcept {
    if (join.attached && join.id->raw->qp)
        ::ibv_detach_mcast(join.id->raw->qp, &join.gid, join.lid);
    join.attached = false;
}

/// Under join_mutex and the channel's mutex, with no event of the group held: C has nothing to wait for. Whatever it
/// answers, it has forgotten the group.
inline std::error_code channel_state::leave_locked(join_record& join) noexcept {
    id_record& id = *join.id;
    join_record** link = &id.joins;
    while (*link != &join)
        link = &(*link)->next;
    *link = join.next;
    auto* const group = const_cast<sockaddr*>(join.group.native_handle()); // C only reads it
    std::error_code ec = check_errno(::rdma_leave_multicast(id.raw, group));
    if (ec)
        notice_removal(id);
    if (id.removed.load()) // then the group went with the device
        ec.clear();
    join.id = nullptr;
    join.unref();
    return ec;
}

inline std::error_code channel_state::leave(join_record& join, std::uint32_t& held) noexcept {
    lock_guard const leaving(join_mutex::get());
    if (!join.id)
        return {}; // its id is gone, and left it
    lock_guard const lock(join.id->channel->mutex);
    held = join.events;
    return held == 0 ? leave_locked(join) : system_error_code(EDEADLK);
}

/// The membership lets go.
inline void channel_state::drop_join(join_record& join) noexcept {
    std::error_code failure;
    rdma_cm_id const* of = nullptr;
    {
        lock_guard const leaving(join_mutex::get());
        if (id_record* const id = join.id; id && id->has(id_status::owned)) { // or it is C's, like the group
            lock_guard const lock(id->channel->mutex);
            join.dropped = true;
            of = id->raw;
            detach(join);
            if (join.events == 0)
                failure = leave_locked(join);
        }
    }
    join.unref();
    report_failed_leave(of, failure);
}

inline void channel_state::report_failed_leave(rdma_cm_id const* id, std::error_code failure) noexcept {
    if (failure && failure.value() != EADDRNOTAVAIL) // C may have left it while it had the id
        report({diagnostic_kind::destroy_failed, "rdma_leave_multicast", id, failure});
}

/// The id is dropped: it leaves every group, now or with the last event of it. librdmacm would keep their memory.
inline void channel_state::leave_unheld(id_record& id) noexcept {
    if (!id.multicasts.load(order::relaxed))
        return;
    std::error_code failure; // the last of them
    {
        lock_guard const leaving(join_mutex::get());
        lock_guard const lock(mutex);
        for (join_record *join = id.joins, *following; join; join = following) {
            following = join->next;
            join->dropped = true;
            std::error_code const ec = join->events == 0 ? leave_locked(*join) : std::error_code();
            failure = ec ? ec : failure;
        }
    }
    report_failed_leave(id.raw, failure);
}

/// Of an id that C has, or that could not be destroyed.
inline void channel_state::forget_joins(id_record& id) noexcept {
    if (!id.joins)
        return;
    lock_guard const leaving(join_mutex::get());
    while (join_record* const join = id.joins) {
        id.joins = join->next;
        join->id = nullptr;
        join->unref();
    }
}

/// The pointer that the program gave to the join; C's own, if C joined.
inline void* channel_state::user_context_of_join(held_event const& event) noexcept {
    if (!is_of_join(*event.raw))
        return nullptr;
    lock_guard const lock(event.charged->channel->mutex);
    join_record const* const join = find_join(*event.charged, *event.raw);
    return join ? join->user_context : const_cast<void*>(event.raw->param.ud.private_data);
}

// ---- Migration -----------------------------------------------------------------------------------------------------

/// Under both mutexes no thread of ours is inside a get, and no event is held: C has nothing to wait for.
inline std::error_code channel_state::migrate(id_record& id, channel_state& to, std::uint32_t& held) noexcept {
    channel_state& from = *id.channel;
    if (&from == &to)
        return {};
    {
        join_lock const leaving(id.multicasts.load(order::relaxed)); // a membership finds the channel by the id
        bool const in_order = reinterpret_cast<std::uintptr_t>(&from) < reinterpret_cast<std::uintptr_t>(&to);
        lock_guard const first(in_order ? from.mutex : to.mutex);
        lock_guard const second(in_order ? to.mutex : from.mutex);
        held = id.events;
        if (held != 0)
            return system_error_code(EDEADLK);
        if (std::error_code const failure = check_errno(::rdma_migrate_id(id.raw, to.raw)))
            return failure;
        if (id.listed)
            from.ids.erase(&id);
        id.channel = &to;
        to.insert(id);
    }
    to.ref();
    from.unref();
    return {};
}

/// Drops a record's pin at the end of a scope.
struct keep_record {
    id_record* const id;
    explicit keep_record(id_record* pinned) noexcept : id(pinned) {}
    keep_record(keep_record const&) = delete;
    keep_record& operator=(keep_record const&) = delete;
    ~keep_record() { unpin(id); }
};

// ---- Events --------------------------------------------------------------------------------------------------------

/// Pins every id that the event names; the new id of a CONNECT_REQUEST is the event's, unless it has an owner.
inline void channel_state::hold(rdma_cm_event* event, held_event& held, id_record* known_child) noexcept {
    id_record& charged = find_or_count(charged_id(*event));
    pin_record(charged);
    ++charged.events;
    ++charged.tally(type_of(*event)).held;
    ++counts.events_held;
    held = {event, &charged, known_child};
    if (is_of_join(*event)) [[unlikely]]
        if (join_record* const join = find_join(charged, *event))
            ++join->events;
    if (type_of(*event) != cm_event_type::connect_request)
        return;
    if (!held.child) {
        held.child = &spare(event->id); // replaces whatever stood at its address
        held.child->status.store(id_status::in_event);
        held.child->request.store(request_state::undecided);
        pin_record(*held.child); // as its owner
    }
    pin_record(*held.child); // as one that names it
    held.child->named.fetch_add(1, order::relaxed);
}

/// Remembers what later calls ask for.
inline void channel_state::note(rdma_cm_event const* event, id_record& id) noexcept {
    switch (type_of(*event)) {
    case cm_event_type::disconnected: id.ended.store(true, order::release); break;
    case cm_event_type::device_removal: note_removal(id); break;
    case cm_event_type::multicast_join:
        if (join_record* const join = find_join(id, *event)) {
            join->attached = id.raw->qp && !join->send_only;
            join->gid = event->param.ud.ah_attr.grh.dgid;
            join->lid = event->param.ud.ah_attr.dlid;
        }
        break;
    default: break;
    }
}

/// The kernel tells an id of it, but not the new ids of the device that nobody accepted yet.
inline void channel_state::note_removal(id_record& id) noexcept {
    ibv_context const* const device = id.raw->verbs;
    ids.for_each([&](id_record* each) {
        bool const new_one = each->request.load() == request_state::undecided &&
                             (each->has(id_status::owned) || each->has(id_status::in_event)) &&
                             each->raw->verbs == device;
        if ((each == &id ? id.has(id_status::owned) : new_one) && !each->removed.exchange(true))
            removal_watch::get().add_id();
    });
}

/// Decides what becomes of an event that C has just given. Nothing here can fail.
inline channel_state::fate channel_state::take_in(rdma_cm_event* event, held_event& held, diagnostic& story) noexcept {
    ++counts.events_got;
    id_record const* const charged = ids.find(charged_id(*event));
    if (!charged || !charged->has(id_status::dropped)) {
        hold(event, held, nullptr);
        if (cm_event_type const type = type_of(*event);
            type >= cm_event_type::disconnected && type <= cm_event_type::multicast_join) [[unlikely]]
            note(event, *held.charged);
        if (held.child)
            event->id->context = nullptr; // librdmacm hands down the listener's
        return fate::delivered;
    }
    if (type_of(*event) == cm_event_type::connect_request) {
        story = {diagnostic_kind::request_rejected, "rdma_destroy_id", event->id, {}};
        ++counts.requests_rejected;
    } else
        story = {diagnostic_kind::event_swallowed, "rdma_get_cm_event", charged->raw, {}};
    ::rdma_ack_cm_event(event);
    ++counts.events_acked;
    ++counts.events_swallowed;
    return fate::swallowed;
}

/// One try. True: `event` is filled, or `ec` set; false: there is nothing now.
inline bool channel_state::try_get(held_event& event, wait_options options, std::error_code& ec) noexcept {
    for (;;) {
        diagnostic story{};
        {
            lock_guard const lock(mutex);
            if (!replenish()) {
                ec = system_error_code(ENOMEM);
                return true;
            }
            rdma_cm_event* raw_event = nullptr;
            if (!gave([&]() noexcept { return ::rdma_get_cm_event(raw, &raw_event); }, options, ec))
                return false;
            if (ec)
                return true;
            if (take_in(raw_event, event, story) == fate::delivered)
                return true;
        }
        if (story.kind == diagnostic_kind::request_rejected) {
            auto* const child = static_cast<rdma_cm_id*>(const_cast<void*>(story.object));
            removal_watch::get().begin_destroy();
            std::error_code const failure = check_errno(::rdma_destroy_id(child)); // rejects it, too
            removal_watch::get().end_destroy(false);
            if (failure)
                report({diagnostic_kind::destroy_failed, "rdma_destroy_id", child, failure});
        }
        report(story);
    }
}

inline woken channel_state::get(held_event& event, deadline const& until, any_stop_token const& stop,
                                wait_options options, std::error_code& ec) noexcept {
    ec.clear();
    return get_or_wait(room, raw->fd, until, stop, options, ec, [&]() noexcept { return try_get(event, options, ec); });
}

/// The record of an id that has an owner on another channel, pinned.
inline id_record* channel_state::find_elsewhere(rdma_cm_id const* id) noexcept {
    channel_registry& registry = channel_registry::get();
    lock_guard const lock(registry.mutex);
    id_record* found = nullptr;
    registry.channels.for_each([&](channel_state* channel) {
        if (channel == this || found)
            return;
        lock_guard const inside(channel->mutex);
        id_record* const record = channel->ids.find(id);
        if (!record || record->pins.load(order::relaxed) == 0)
            return;
        if (record->has(id_status::owned) || record->named.load(order::relaxed) != 0) {
            channel->pin_record(*record);
            found = record;
        }
    });
    return found;
}

/// An event that C got, or one of ours that was released: that one has its pins still.
inline bool channel_state::adopt_event(rdma_cm_event* event, held_event& held, std::error_code& ec) noexcept {
    bool const brings_id = type_of(*event) == cm_event_type::connect_request;
    keep_record const elsewhere(brings_id ? find_elsewhere(event->id) : nullptr); // a new id may have migrated
    lock_guard const lock(mutex);
    id_record* const charged = ids.find(charged_id(*event));
    id_record* const here = brings_id ? ids.find(event->id) : nullptr;
    id_record* const child = here ? here : elsewhere.id;
    if (charged && charged->tally(type_of(*event)).released.load(order::relaxed) != 0) {
        charged->tally(type_of(*event)).released.fetch_sub(1, order::relaxed);
        held = {event, charged, child};
        if (child && child->has(id_status::lent))
            child->status.store(id_status::in_event);
        return true;
    }
    if (!replenish()) {
        ec = system_error_code(ENOMEM);
        return false;
    }
    ++counts.events_got;
    hold(event, held, child && child->has(id_status::owned) ? child : nullptr);
    return true;
}

/// No lock and no C call. The pins stay: only their number is kept, since which released event is which never matters.
inline void channel_state::release_event(held_event const& event) noexcept {
    event.charged->tally(type_of(*event.raw)).released.fetch_add(1, order::relaxed);
    if (event.child)
        event.child->status.replace(id_status::in_event, id_status::lent);
}

/// C first, then the pins; and a new id that nobody took is rejected and destroyed.
inline void channel_state::ack(held_event const& event) noexcept {
    if (inherited())
        return;
    if (is_of_join(*event.raw)) [[unlikely]]
        ack_of_join(event);
    else
        ack_any(event);
}

/// With the last one of a group whose membership, or id, was dropped, it is left.
inline void channel_state::ack_of_join(held_event const& event) noexcept {
    id_record& id = *event.charged;
    join_record* join;
    {
        lock_guard const lock(mutex);
        join = find_join(id, *event.raw);
        if (join)
            pin_record(id); // it is needed beyond the ack
    }
    ack_any(event);
    if (!join)
        return;
    std::error_code failure;
    rdma_cm_id const* const raw_id = id.raw;
    {
        lock_guard const leaving(join_mutex::get());
        lock_guard const lock(id.channel->mutex);
        if (--join->events == 0 && join->dropped)
            failure = leave_locked(*join);
    }
    report_failed_leave(raw_id, failure);
    unpin(&id);
}

inline void channel_state::ack_any(held_event const& event) noexcept {
    id_record& charged = *event.charged;
    id_record* const child = event.child;
    bool const abandoned = child && child->has(id_status::in_event);
    rdma_cm_id const* const child_raw = child ? child->raw : nullptr;
    bool last = false, last_of_foreign = false, last_of_child = false;
    {
        lock_guard const lock(mutex);
        --charged.tally(type_of(*event.raw)).held;
        ::rdma_ack_cm_event(event.raw);
        ++counts.events_acked;
        --counts.events_held;
        --charged.events;
        last = unpin_record(charged);
        last_of_foreign = last && charged.has(id_status::foreign);
        if (last_of_foreign && charged.listed) { // C's id: known only while events of it are held
            ids.erase(&charged);
            charged.listed = false;
            charged.next = spares;
            spares = &charged;
        }
        if (child) {
            child->named.fetch_sub(1, order::relaxed);
            last_of_child = unpin_record(*child);
            if (abandoned)
                ++counts.requests_rejected;
        }
    }
    if (abandoned) {
        child->channel->drop(*child);
        report({diagnostic_kind::request_rejected, "rdma_destroy_id", child_raw, {}});
    } else if (last_of_child)
        last_unpin(*child);
    if (last_of_foreign)
        unref();
    else if (last)
        last_unpin(charged);
}

} // namespace rdma::inline RDMACPP_ABI::detail

#endif
