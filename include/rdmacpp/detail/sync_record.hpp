// SPDX-License-Identifier: MIT
// What the library knows of one id of C's synchronous mode.
#pragma once

#include "../config.hpp"
#if __cplusplus >= 202002L && !defined(RDMACPP_TWO_VERSIONS) // otherwise config.hpp says what to do

#include "../diagnostics.hpp"
#include "../event_type.hpp"
#include "address_map.hpp"
#include "c_api.hpp"
#include "channel_state.hpp"
#include "check.hpp"
#include "mutex.hpp"
#include "pin.hpp"

#include <cerrno>
#include <new>

namespace rdma::inline RDMACPP_ABI::detail {

/// Pinned by its owner, by what was made from its device, and by each id that has parked a CONNECT_REQUEST of it: C's
/// destroy of a listener waits for these, which C acks with the other id's next call, or in its destroy.
struct sync_record : pinnable {
    sync_record() noexcept : pinnable(&last_unpin) {}

    void const* key() const noexcept { return raw; }

    static sync_record* adopt(rdma_cm_id* id, std::error_code& ec) noexcept;
    sync_record* get_request(std::error_code& ec) noexcept;
    void surrender() noexcept;
    void drop() noexcept;
    void let_listener_go() noexcept;

    rdma_cm_id* raw = nullptr;
    sync_record* next = nullptr;
    sync_record* listener = nullptr;        // pinned, while its event is parked here; under the table's mutex, like:
    rdma_cm_id const* charged_to = nullptr; // that listener, also if nobody has adopted it
    bool disconnected = false;
    verbs_node* qp = nullptr; // what it came with: pinned here, and by their held events
    verbs_node* srq = nullptr;
    verbs_node* send_cq = nullptr;
    verbs_node* recv_cq = nullptr;

private:
    bool allocate(rdma_cm_id const& id) noexcept;
    void open(rdma_cm_id* id) noexcept;
    static void last_unpin(pinnable& self) noexcept;
    static void destroy(rdma_cm_id* id) noexcept;
};

/// Every one of them, by its C id. One per process, never destroyed.
struct RDMACPP_EXPORT sync_table {
    detail::mutex mutex;
    address_map<sync_record> records;

    static sync_table& get() noexcept {
        alignas(sync_table) static unsigned char memory[sizeof(sync_table)];
        static sync_table* const table = new (memory) sync_table;
        return *table;
    }
};

/// The listener whose CONNECT_REQUEST an id has parked.
inline rdma_cm_id const* listener_of(rdma_cm_id const& id) noexcept {
    return id.event && type_of(*id.event) == cm_event_type::connect_request ? id.event->listen_id : nullptr;
}

inline sync_record* sync_record::adopt(rdma_cm_id* id, std::error_code& ec) noexcept {
    ec.clear();
    if (!id) {
        ec = errc::null_handle;
        return nullptr;
    }
    {
        channel_registry& registry = channel_registry::get();
        lock_guard const lock(registry.mutex);
        channel_state* const known = registry.channels.find(id->channel);
        if (known && !known->is_forgotten())
            ec = errc::wrong_channel; // an asynchronous one
    }
    auto* const record = ec ? nullptr : new (std::nothrow) sync_record;
    if (!record) {
        ec = ec ? ec : system_error_code(ENOMEM);
        return nullptr;
    }
    sync_table& table = sync_table::get();
    lock_guard const lock(table.mutex);
    if (table.records.find(id))
        ec = errc::already_owned;
    else if (!record->allocate(*id))
        ec = system_error_code(ENOMEM);
    if (ec) {
        delete record;
        return nullptr;
    }
    record->open(id);
    return record;
}

/// The nodes for what an id has, so that an async event of it can be held: before the id is known, since it may fail.
inline bool sync_record::allocate(rdma_cm_id const& id) noexcept {
    qp = id.qp ? new (std::nothrow) qp_node : nullptr;
    srq = id.srq ? new (std::nothrow) srq_node : nullptr;
    send_cq = id.send_cq ? new (std::nothrow) cq_node : nullptr;
    recv_cq = id.recv_cq ? new (std::nothrow) cq_node : nullptr;
    if ((qp || !id.qp) && (srq || !id.srq) && (send_cq || !id.send_cq) && (recv_cq || !id.recv_cq))
        return true;
    delete static_cast<qp_node*>(take(qp));
    delete static_cast<srq_node*>(take(srq));
    delete static_cast<cq_node*>(take(send_cq));
    delete static_cast<cq_node*>(take(recv_cq));
    return false;
}

/// Under the table's mutex.
inline void sync_record::open(rdma_cm_id* id) noexcept {
    sync_table& table = sync_table::get();
    raw = id;
    pins.store(1, order::relaxed);
    if (send_cq)
        send_cq->open(id->send_cq, {this});
    if (recv_cq)
        recv_cq->open(id->recv_cq, {this});
    if (srq)
        srq->open(id->srq, {recv_cq, this});
    if (qp)
        qp->open(id->qp, {send_cq, recv_cq, srq, this});
    charged_to = listener_of(*id);
    if (charged_to && (listener = table.records.find(charged_to)))
        pin(listener);
    table.records.for_each([this](sync_record* child) {
        if (child->charged_to == raw && !child->listener)
            pin(child->listener = this);
    });
    table.records.insert(this);
}

/// C parks the event of a request that fails, and forgets the new id in it.
inline sync_record* sync_record::get_request(std::error_code& ec) noexcept {
    auto* const child = new (std::nothrow) sync_record;
    if (!child) {
        ec = system_error_code(ENOMEM);
        return nullptr;
    }
    rdma_cm_id* id = nullptr;
    ec = check_errno(::rdma_get_request(raw, &id));
    if (ec && listener_of(*raw) == raw) {
        destroy(raw->event->id);
        ::rdma_ack_cm_event(take(raw->event)); // or it would name a dead id
    }
    if (!ec && !child->allocate(*id)) {
        ec = system_error_code(ENOMEM);
        destroy(id);
    }
    if (ec) {
        delete child;
        return nullptr;
    }
    lock_guard const lock(sync_table::get().mutex);
    child->open(id);
    return child;
}

/// A call of C's may have acked the parked event.
inline void sync_record::let_listener_go() noexcept {
    sync_record* free_one = nullptr;
    {
        lock_guard const lock(sync_table::get().mutex);
        if (charged_to && listener_of(*raw) != charged_to) {
            charged_to = nullptr;
            free_one = take(listener);
        }
    }
    unpin(free_one);
}

/// C's again. What its listener needs is C's affair, too.
inline void sync_record::surrender() noexcept {
    if (inherited())
        return;
    sync_record* free_one;
    {
        sync_table& table = sync_table::get();
        lock_guard const lock(table.mutex);
        table.records.erase(this);
        table.records.for_each([this](sync_record* child) {
            if (child->listener == this && unref_unless_last(pins))
                child->listener = nullptr;
        });
        free_one = take(listener);
        raw = nullptr;
    }
    for (verbs_node* const node : {take(qp), take(srq), take(send_cq), take(recv_cq)})
        if (node) {
            node->surrender();
            unpin(node);
        }
    unpin(free_one);
    unpin(this);
}

/// The owner lets go: of the QP at once, unless an event of it is held; then it must go quiet.
inline void sync_record::drop() noexcept {
    if (inherited())
        return;
    if (qp) {
        raw->qp = nullptr;
        if (qp->pins.load(order::relaxed) > 1) {
            ibv_qp_attr attr{};
            attr.qp_state = IBV_QPS_ERR;
            ::ibv_modify_qp(static_cast<ibv_qp*>(qp->raw), &attr, IBV_QP_STATE);
        }
    }
    if (srq)
        raw->srq = nullptr;
    if (send_cq)
        raw->send_cq = nullptr;
    if (recv_cq)
        raw->recv_cq = nullptr;
    for (verbs_node* const node : {take(qp), take(srq), take(send_cq), take(recv_cq)})
        unpin(node);
    unpin(this);
}

inline void sync_record::last_unpin(pinnable& self) noexcept {
    auto* const record = &static_cast<sync_record&>(self);
    if (record->raw) {
        {
            sync_table& table = sync_table::get();
            lock_guard const lock(table.mutex);
            table.records.erase(record);
        }
        destroy(record->raw);
    }
    unpin(record->listener);
    delete record;
}

/// As rdma_destroy_ep does, which also frees what only it can; but it tells of no failure, and leaves behind the CQ of
/// a QP that only sends.
inline void sync_record::destroy(rdma_cm_id* id) noexcept {
    auto const told = [](char const* function, void const* object, int result) {
        if (std::error_code const failure = check_returned(result))
            report({diagnostic_kind::destroy_failed, function, object, failure});
    };
    if (ibv_qp* const qp = take(id->qp))
        told("ibv_destroy_qp", qp, ::ibv_destroy_qp(qp));
    if (ibv_srq* const srq = take(id->srq))
        told("ibv_destroy_srq", srq, ::ibv_destroy_srq(srq));
    for (ibv_cq* const cq : {take(id->send_cq), take(id->recv_cq)})
        if (cq)
            told("ibv_destroy_cq", cq, ::ibv_destroy_cq(cq));
    for (ibv_comp_channel* const channel : {take(id->send_cq_channel), take(id->recv_cq_channel)})
        if (channel)
            told("ibv_destroy_comp_channel", channel, ::ibv_destroy_comp_channel(channel));
    errno = 0;
    ::rdma_destroy_ep(id);
    switch (int const reason = errno; reason) { // what a refused rdma_destroy_id leaves there
    case EBADF:
    case EINVAL:
    case ENOENT:
    case EACCES:
    case EFAULT:
        report({diagnostic_kind::destroy_failed, "rdma_destroy_ep", id, {reason, std::system_category()}});
        break;
    default: break;
    }
}

} // namespace rdma::inline RDMACPP_ABI::detail

#endif
