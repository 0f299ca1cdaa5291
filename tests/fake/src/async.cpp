// SPDX-License-Identifier: MIT
//
// Asynchronous events of devices, QPs, CQs, SRQs and WQs.
#include "world.hpp"

namespace fake::model {

void raise(context& on, ibv_async_event const& what, void const* object) { on.async.push({what, object}); }

namespace {

/// The counters of the object that an event is charged to; null for the device's own events, and for objects that are gone.
struct account { std::uint32_t* reported = nullptr; std::uint32_t* acked = nullptr; std::uint32_t* in_public = nullptr; };

account charged(ibv_async_event const& event)
{
    switch (event.event_type) {
    case IBV_EVENT_CQ_ERR:
        if (cq* const of = the().cqs.find(event.element.cq)) return {&of->async_reported, &of->async_acked, &of->raw()->async_events_completed};
        break;
    case IBV_EVENT_QP_FATAL: case IBV_EVENT_QP_REQ_ERR: case IBV_EVENT_QP_ACCESS_ERR: case IBV_EVENT_COMM_EST:
    case IBV_EVENT_SQ_DRAINED: case IBV_EVENT_PATH_MIG: case IBV_EVENT_PATH_MIG_ERR: case IBV_EVENT_QP_LAST_WQE_REACHED:
        if (qp* const of = the().qps.find(event.element.qp)) return {&of->async_reported, &of->async_acked, &of->raw()->events_completed};
        break;
    case IBV_EVENT_SRQ_ERR: case IBV_EVENT_SRQ_LIMIT_REACHED:
        if (srq* const of = the().srqs.find(event.element.srq)) return {&of->async_reported, &of->async_acked, &of->events_completed};
        break;
    case IBV_EVENT_WQ_FATAL:
        if (wq* const of = the().wqs.find(event.element.wq)) return {&of->async_reported, &of->async_acked, &of->events_completed};
        break;
    default: break;
    }
    return {};
}

} // namespace

} // namespace fake::model

using namespace fake::model;

namespace fake {

void push_async(ibv_qp* raw, ibv_event_type type)
{
    visit here;
    if (the().qps.find(raw) == nullptr) return;
    ibv_async_event event{};
    event.element.qp = raw;
    event.event_type = type;
    raise(context_of(raw->context), event, raw);
}

void push_async(ibv_cq* raw, ibv_event_type type)
{
    visit here;
    if (the().cqs.find(raw) == nullptr) return;
    ibv_async_event event{};
    event.element.cq = raw;
    event.event_type = type;
    raise(context_of(raw->context), event, raw);
}

void push_async(ibv_srq* raw, ibv_event_type type)
{
    visit here;
    if (the().srqs.find(raw) == nullptr) return;
    ibv_async_event event{};
    event.element.srq = raw;
    event.event_type = type;
    raise(context_of(raw->context), event, raw);
}

void push_async(ibv_wq* raw, ibv_event_type type)
{
    visit here;
    if (the().wqs.find(raw) == nullptr) return;
    ibv_async_event event{};
    event.element.wq = raw;
    event.event_type = type;
    raise(context_of(raw->context), event, raw);
}

void push_async(ibv_context* raw, ibv_event_type type, int port)
{
    visit here;
    context* const on = the().contexts.find(raw);
    if (on == nullptr) return;
    ibv_async_event event{};
    event.element.port_num = port;
    event.event_type = type;
    raise(*on, event, nullptr);
}

} // namespace fake

int ibv_get_async_event(ibv_context* raw, ibv_async_event* out)
{
    static constinit site here{"ibv_get_async_event", EIO};
    entry in{here, raw};
    if (int const code = in.fault()) return minus_one(code);
    context* const from = in.need(the().contexts, raw, "context");
    if (from == nullptr) return minus_one(EBADF);
    auto const alive = [=] { return the().contexts.find(raw) == from; };
    if (int const code = in.await(raw->async_fd, alive, [=] { return !from->async.items.empty(); })) return minus_one(code);
    *out = from->async.pop().event;
    if (account const of = charged(*out); of.reported != nullptr) ++*of.reported;
    return 0;
}

void ibv_ack_async_event(ibv_async_event* event)
{
    static constinit site here{"ibv_ack_async_event", 0};
    entry in{here, event};
    cleaned();
    if (event == nullptr) return in.would_crash("null event");
    account const of = charged(*event);
    if (of.acked == nullptr) return;
    ++*of.acked;
    ++*of.in_public;
    if (*of.acked > *of.reported) in.misuse("more async events acked than were delivered");
    the().acked.notify_all();
}
