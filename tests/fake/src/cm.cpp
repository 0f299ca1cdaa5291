// SPDX-License-Identifier: MIT
//
// The life of an id: made, migrated, destroyed, with its options and its QP.
#include "world.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace fake::model {

namespace {

/// The kernel goes by the port space alone, but for the one that leaves it open.
ibv_qp_type kernel_type(rdma_port_space ps, ibv_qp_type wanted)
{
    if (ps == RDMA_PS_IB) return wanted;
    return ps == RDMA_PS_TCP ? IBV_QPT_RC : IBV_QPT_UD;
}

bool is_port_space(rdma_port_space ps) { return ps == RDMA_PS_TCP || ps == RDMA_PS_UDP || ps == RDMA_PS_IPOIB || ps == RDMA_PS_IB; }

} // namespace

cm* make_id(channel& on, void* user_context, rdma_port_space ps, ibv_qp_type type, std::unique_ptr<endpoint> kernel)
{
    cm* const made = new cm;
    made->serial = the().next_serial++;
    made->channel = &on;
    made->rdma_cm_id::context = user_context;
    made->ps = ps;
    made->qp_type = type;
    if (kernel == nullptr) { // made by the program: the kernel knows whom its events go to
        kernel = std::make_unique<endpoint>();
        kernel->file = &on;
        kernel->ps = ps;
        kernel->qp_type = kernel_type(ps, type);
        kernel->user = made;
    }
    kernel->owner = made;
    made->kernel = std::move(kernel);
    return the().ids.add(static_cast<rdma_cm_id*>(made), made);
}

/// The kernel's part of rdma_destroy_id: no event of the id comes any more, its peer learns of it, its requests are refused.
void kernel_destroy(cm& id)
{
    id.torn_down = true;
    endpoint& kernel = *id.kernel;
    purge(id);
    hang_up(kernel);
    kernel.user = nullptr;
    forget_groups(id);
}

void free_id(entry const* in, cm* old)
{
    release_port(*old->kernel);
    for (group* each : old->groups) each->id = nullptr; // never left: leaked
    if (old->bound != nullptr) release_device(*old->bound, in);
    std::free(old->route.path_rec);
    free_names(old->names);
    if (old->sync) {
        old->kernel->file = nullptr;
        if (channel* const own = the().channels.find(old->channel)) drop_channel(own);
    }
    the().ids.forget(static_cast<rdma_cm_id*>(old));
    delete old;
}

namespace {

int create_id(rdma_event_channel* raw, rdma_cm_id** out, void* user_context, rdma_port_space ps, ibv_qp_type type)
{
    int code = 0;
    if (!is_port_space(ps)) return minus_one(EINVAL);
    channel* const on = raw == nullptr ? make_channel(code) : the().channels.find(raw);
    if (on == nullptr) return raw == nullptr ? minus_one(ENOMEM) : minus_one(EBADF);
    cm* const made = make_id(*on, user_context, ps, type, nullptr);
    made->sync = raw == nullptr;
    *out = made;
    return 0;
}

std::string owed(cm const& id)
{
    return std::to_string(id.reported - id.completed) + " event(s) charged to the id are not acked";
}

int destroy_id(entry& in, cm* old)
{
    if (old->inside_connect) {
        in.misuse("another thread is inside rdma_connect with the id");
        if (!in.settles([old] { return !old->inside_connect; }, "the kernel waits for rdma_connect to return")) return minus_one(EDEADLK);
    }
    if (!old->torn_down) kernel_destroy(*old);
    if (old->event != nullptr) acknowledge(in, old->event);
    old->event = nullptr;
    if (!in.settles([old] { return old->completed >= old->reported; }, owed(*old))) return minus_one(EDEADLK);
    free_id(&in, old);
    return cleaned();
}

} // namespace

} // namespace fake::model

using namespace fake::model;

// ---- making and destroying --------------------------------------------------------------------------------------
int rdma_create_id(rdma_event_channel* raw, rdma_cm_id** out, void* user_context, rdma_port_space ps)
{
    static constinit site here{"rdma_create_id", ENOMEM};
    entry in{here, raw};
    if (int const code = in.fault()) return minus_one(code);
    if (!the().devices_present) return minus_one(ENODEV);
    if (raw != nullptr && in.need(the().channels, raw, "event channel") == nullptr) return minus_one(EBADF);
    if (the().credentials_changed) return minus_one(EACCES);
    bool const datagram = ps == RDMA_PS_IPOIB || ps == RDMA_PS_UDP;
    return create_id(raw, out, user_context, ps, datagram ? IBV_QPT_UD : IBV_QPT_RC);
}

int rdma_destroy_id(rdma_cm_id* raw)
{
    static constinit site here{"rdma_destroy_id", EIO};
    entry in{here, raw};
    if (int const code = in.fault()) return minus_one(code);
    cm* const old = in.ending(raw);
    if (old == nullptr) return -1;
    bool const forgets = old->ep_attr != nullptr;
    int const result = destroy_id(in, old);
    if (result == 0 && forgets) in.misuse("what rdma_create_ep has kept for QPs of requests is leaked: rdma_destroy_ep frees it");
    return result;
}

int rdma_migrate_id(rdma_cm_id* raw, rdma_event_channel* to)
{
    static constinit site here{"rdma_migrate_id", EIO};
    entry in{here, raw};
    if (int const code = in.fault()) return minus_one(code);
    cm* const id = in.command(raw);
    if (id == nullptr) return -1;
    if (id->sync && to == nullptr) return minus_one(EINVAL);
    channel* target = nullptr;
    if (to != nullptr && (target = in.need(the().channels, to, "event channel")) == nullptr) return minus_one(EBADF);

    std::uint32_t const parked = id->sync && id->event != nullptr ? 1 : 0; // acked by the call itself
    if (!in.settles([=] { return id->completed + parked >= id->reported; }, owed(*id))) return minus_one(EDEADLK);
    if (int code = 0; target == nullptr && (target = make_channel(code)) == nullptr) return minus_one(code);

    auto* const from = id->kernel->file;
    auto moved = from->events.remove([id](pending const& item) { return item.target == id; });
    id->kernel->file = target;
    for (pending& item : moved) target->events.push(std::move(item));
    if (id->sync) {
        if (id->event != nullptr) acknowledge(in, id->event);
        id->event = nullptr;
        drop_channel(from);
    }
    id->sync = to == nullptr;
    id->channel = target;
    return 0;
}

// ---- endpoints: the synchronous convenience ---------------------------------------------------------------------
namespace {

int passive_ep(cm& id, rdma_addrinfo const& info, ibv_pd* domain, ibv_qp_init_attr const* attr)
{
    if (bind_address(id, info.ai_src_addr) != 0) return -1;
    if (domain != nullptr) id.pd = domain;
    if (attr != nullptr) {
        id.ep_attr = std::make_unique<ibv_qp_init_attr>(*attr);
        id.ep_attr->qp_type = static_cast<ibv_qp_type>(info.ai_qp_type);
    }
    return 0;
}

int resolve_route(entry& in, cm& id)
{
    if (id.verbs == nullptr) {
        in.would_crash("the id has no device");
        return minus_one(EINVAL);
    }
    if (id.kernel->state != phase::addr_resolved) return minus_one(EINVAL);
    if (id.kernel->remote.loopback()) return minus_one(ENODEV);
    id.kernel->state = phase::route_resolved;
    tell(*id.kernel, RDMA_CM_EVENT_ROUTE_RESOLVED);
    return finish(in, id);
}

int set_ib_path(cm& id, void const* value, std::size_t length)
{
    if (length == 0 || length % sizeof(ibv_path_data) != 0) return EINVAL;
    bool usable = false;
    for (std::size_t at = 0; at < length; at += sizeof(ibv_path_data)) {
        ibv_path_data path{};
        std::memcpy(&path, static_cast<std::byte const*>(value) + at, sizeof path);
        usable = usable || path.flags == (IBV_PATH_FLAG_GMP | IBV_PATH_FLAG_PRIMARY | IBV_PATH_FLAG_BIDIRECTIONAL);
    }
    if (!usable || id.kernel->state != phase::addr_resolved) return EINVAL;
    id.kernel->state = phase::route_resolved;
    tell(*id.kernel, RDMA_CM_EVENT_ROUTE_RESOLVED); // made up by the kernel
    return 0;
}

int create_qp_of(entry& in, cm& id, ibv_pd* domain, ibv_qp_init_attr& attr)
{
    ibv_qp_init_attr_ex extended{};
    std::memcpy(static_cast<void*>(&extended), &attr, sizeof attr);
    extended.comp_mask = IBV_QP_INIT_ATTR_PD;
    extended.pd = domain != nullptr ? domain : id.pd;
    int const result = create_qp(in, id, extended);
    std::memcpy(static_cast<void*>(&attr), &extended, sizeof attr);
    return result;
}

int active_ep(entry& in, cm& id, rdma_addrinfo const& info, ibv_pd* domain, ibv_qp_init_attr* attr)
{
    if (resolve_address(id, info.ai_src_addr, info.ai_dst_addr) != 0 || finish(in, id) != 0) return -1;
    if (info.ai_route_len != 0) {
        if (int const code = set_ib_path(id, info.ai_route, info.ai_route_len)) return minus_one(code);
        if (finish(in, id) != 0) return -1;
    } else if (resolve_route(in, id) != 0) {
        return -1;
    }
    if (attr != nullptr) {
        attr->qp_type = static_cast<ibv_qp_type>(info.ai_qp_type);
        if (create_qp_of(in, id, domain, *attr) != 0) return -1;
    }
    auto const* const first = static_cast<std::uint8_t const*>(info.ai_connect);
    id.ep_connect.assign(first, first + info.ai_connect_len);
    return 0;
}

// ---- the QP of an id --------------------------------------------------------------------------------------------
/// librdmacm's own clean-up, with its gap: without a receive CQ, the send CQ and its channel stay.
void destroy_cqs(entry& in, cm& id)
{
    if (id.qp_type == IBV_QPT_XRC_RECV && id.srq != nullptr) return; // the SRQ's
    if (id.recv_cq != nullptr) {
        if (cq* const old = the().cqs.find(id.recv_cq)) drop_cq(in, old);
        if (cq* const old = the().cqs.find(id.send_cq); old != nullptr && id.send_cq != id.recv_cq) {
            drop_cq(in, old);
            id.send_cq = nullptr;
        }
        id.recv_cq = nullptr;
    }
    if (id.recv_cq_channel != nullptr) {
        if (comp_channel* const old = the().comp_channels.find(id.recv_cq_channel)) drop_comp_channel(in, old);
        if (comp_channel* const old = the().comp_channels.find(id.send_cq_channel); old != nullptr && id.send_cq_channel != id.recv_cq_channel) {
            drop_comp_channel(in, old);
            id.send_cq_channel = nullptr;
        }
        id.recv_cq_channel = nullptr;
    }
}

bool create_one_cq(cm& id, std::uint32_t entries, ibv_cq*& queue, ibv_comp_channel*& bell)
{
    if (entries == 0) return true;
    context& on = context_of(id.verbs);
    comp_channel* const made_bell = make_comp_channel(on);
    bell = made_bell;
    if (made_bell == nullptr) return false;
    cq* const made = make_cq(on, static_cast<int>(entries), &id, made_bell);
    queue = made == nullptr ? nullptr : made->raw();
    return made != nullptr;
}

/// What librdmacm does about ECE before the first state of a new QP: 0 or a code.
int negotiate_ece(cm& id, qp& made)
{
    ibv_ece own{};
    query_ece(made, own);
    id.local_ece = {own.vendor_id, own.options, 0};
    if (id.remote_ece.vendor_id == 0) return 0;
    own.options = id.remote_ece.vendor_id == own.vendor_id ? id.remote_ece.options : 0; // another vendor's mean nothing here
    int const code = set_ece(made, own);
    if (code != 0 && code != EOPNOTSUPP) return code;
    if (query_ece(made, own) == 0) id.local_ece.options = own.options;
    return 0;
}

int prepare_qp(cm& id, qp& made)
{
    ibv_qp_attr attr{};
    int mask = 0;
    attr.qp_state = IBV_QPS_INIT;
    int code = init_attr(*id.kernel, attr, mask);
    if (code == 0) code = modify(made, attr, mask);
    if (id.qp_type != IBV_QPT_UD) return code;
    for (ibv_qp_state const next : {IBV_QPS_RTR, IBV_QPS_RTS}) {
        attr.qp_state = next;
        attr.sq_psn = 0;
        if (code == 0) code = modify(made, attr, next == IBV_QPS_RTS ? IBV_QP_STATE | IBV_QP_SQ_PSN : IBV_QP_STATE);
    }
    return code;
}

bool cqs_conflict(cm const& id, ibv_qp_init_attr_ex const& attr)
{
    return (id.recv_cq != nullptr && attr.recv_cq != nullptr && id.recv_cq != attr.recv_cq)
        || (id.send_cq != nullptr && attr.send_cq != nullptr && id.send_cq != attr.send_cq);
}

} // namespace

namespace fake::model {

int create_qp(entry& in, cm& id, ibv_qp_init_attr_ex& attr)
{
    if (id.qp != nullptr) return minus_one(EINVAL);
    if (id.verbs == nullptr) {
        in.would_crash("the id has no device");
        return minus_one(EINVAL);
    }
    if ((attr.comp_mask & IBV_QP_INIT_ATTR_PD) == 0 || attr.pd == nullptr) {
        attr.comp_mask |= IBV_QP_INIT_ATTR_PD;
        attr.pd = id.pd;
    }
    pd* const domain = in.need(the().pds, attr.pd, "PD");
    if (domain == nullptr || id.verbs != attr.pd->context || cqs_conflict(id, attr)) return minus_one(EINVAL);

    if (id.qp_type == IBV_QPT_XRC_RECV) {
        bool const given = (attr.comp_mask & IBV_QP_INIT_ATTR_XRCD) != 0 && attr.xrcd != nullptr;
        if (!given && (attr.xrcd = default_xrcd(*id.bound)) == nullptr) return -1;
        attr.comp_mask |= IBV_QP_INIT_ATTR_XRCD;
        if (in.need(the().xrcds, attr.xrcd, "XRC domain") == nullptr) return minus_one(EINVAL);
    }

    if (the().credentials_changed) return minus_one(EACCES); // the kernel is asked for the QP's attributes
    if (id.kernel->gone) return minus_one(ENXIO);

    bool const needs_recv = attr.recv_cq == nullptr && id.recv_cq == nullptr, needs_send = attr.send_cq == nullptr && id.send_cq == nullptr;
    if (!create_one_cq(id, needs_recv ? attr.cap.max_recv_wr : 0, id.recv_cq, id.recv_cq_channel)
        || !create_one_cq(id, needs_send ? attr.cap.max_send_wr : 0, id.send_cq, id.send_cq_channel)) {
        int const code = errno;
        destroy_cqs(in, id);
        return minus_one(code);
    }
    if (attr.send_cq == nullptr) attr.send_cq = id.send_cq;
    if (attr.recv_cq == nullptr) attr.recv_cq = id.recv_cq;
    if (id.srq != nullptr && attr.srq == nullptr) attr.srq = id.srq;

    int code = 0;
    qp* const made = make_extended_qp(in, context_of(id.verbs), attr, code);
    if (made != nullptr) code = negotiate_ece(id, *made);
    if (made != nullptr && code == 0) code = prepare_qp(id, *made);
    if (code != 0) {
        if (made != nullptr) drop_qp(in, made);
        destroy_cqs(in, id);
        return minus_one(code);
    }
    id.pd = attr.pd;
    id.qp = made->raw();
    id.kernel->local_qpn = made->raw()->qp_num;
    return 0;
}

} // namespace fake::model

int rdma_create_qp(rdma_cm_id* raw, ibv_pd* domain, ibv_qp_init_attr* attr)
{
    static constinit site here{"rdma_create_qp", ENOMEM};
    entry in{here, raw};
    if (int const code = in.fault()) return minus_one(code);
    cm* const id = in.need(the().ids, raw, "id");
    return id == nullptr ? minus_one(EBADF) : create_qp_of(in, *id, domain, *attr);
}

int rdma_create_qp_ex(rdma_cm_id* raw, ibv_qp_init_attr_ex* attr)
{
    static constinit site here{"rdma_create_qp_ex", ENOMEM};
    entry in{here, raw};
    if (int const code = in.fault()) return minus_one(code);
    cm* const id = in.need(the().ids, raw, "id");
    return id == nullptr ? minus_one(EBADF) : create_qp(in, *id, *attr);
}

namespace {

/// False: it would have waited for ever.
bool destroy_qp(entry& in, cm& id)
{
    qp* const old = in.need(the().qps, id.qp, "QP");
    if (old != nullptr && drop_qp(in, old) == EDEADLK) return false; // any other failure is lost here, as in librdmacm
    id.qp = nullptr;
    destroy_cqs(in, id);
    return true;
}

void destroy_srq(entry& in, cm& id)
{
    if (srq* const old = in.need(the().srqs, id.srq, "SRQ")) drop_srq(in, old);
    id.srq = nullptr;
    destroy_cqs(in, id);
}

} // namespace

void rdma_destroy_qp(rdma_cm_id* raw)
{
    static constinit site here{"rdma_destroy_qp", 0};
    entry in{here, raw};
    if (cm* const id = in.need(the().ids, raw, "id")) destroy_qp(in, *id);
    cleaned();
}

namespace {

/// Without a CQ of the program's, librdmacm makes one, and forgets the one that the id may have had.
cq* cq_for_srq(entry const& in, cm& id, ibv_srq_init_attr_ex& attr)
{
    if ((attr.comp_mask & IBV_SRQ_INIT_ATTR_CQ) != 0 && attr.cq != nullptr) return in.need(the().cqs, attr.cq, "CQ");
    if (!create_one_cq(id, attr.attr.max_wr, id.recv_cq, id.recv_cq_channel)) return nullptr;
    attr.cq = id.recv_cq;
    return the().cqs.find(id.recv_cq);
}

srq* make_xrc_srq_of(entry const& in, cm& id, pd& domain, ibv_srq_init_attr_ex& attr, ibv_srq_init_attr& plain)
{
    if ((attr.comp_mask & IBV_SRQ_INIT_ATTR_XRCD) == 0 || attr.xrcd == nullptr) {
        if (id.bound == nullptr) {
            in.would_crash("the id has no device");
            return null(EINVAL);
        }
        if ((attr.xrcd = default_xrcd(*id.bound)) == nullptr) return nullptr;
    }
    xrcd* const extended = in.need(the().xrcds, attr.xrcd, "XRC domain");
    if (extended == nullptr) return null(EINVAL);
    cq* const queue = cq_for_srq(in, id, attr);
    if (queue == nullptr) return nullptr;
    attr.comp_mask |= IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
    int code = 0;
    srq* const made = make_xrc_srq(domain, *extended, *queue, plain, code);
    if (made == nullptr) errno = code;
    return made;
}

int create_srq(entry& in, cm& id, ibv_srq_init_attr_ex& attr)
{
    if ((attr.comp_mask & IBV_SRQ_INIT_ATTR_TYPE) == 0) return minus_one(EINVAL);
    if ((attr.comp_mask & IBV_SRQ_INIT_ATTR_PD) == 0 || attr.pd == nullptr) attr.pd = id.pd;
    attr.comp_mask |= IBV_SRQ_INIT_ATTR_PD;
    pd* const domain = in.need(the().pds, attr.pd, "PD");
    if (domain == nullptr) return minus_one(EINVAL);
    ibv_srq_init_attr plain{attr.srq_context, attr.attr};
    srq* made = nullptr;
    int code = EOPNOTSUPP;
    if (attr.srq_type == IBV_SRQT_BASIC) {
        made = make_srq(*domain, plain, code);
    } else if (attr.srq_type == IBV_SRQT_XRC) {
        made = make_xrc_srq_of(in, id, *domain, attr, plain);
        code = errno;
    }
    if (made == nullptr) {
        destroy_cqs(in, id);
        return minus_one(code);
    }
    attr.attr = plain.attr;
    if (id.pd == nullptr) id.pd = attr.pd;
    id.srq = made; // whatever was there is leaked, as in librdmacm
    return 0;
}

} // namespace

int rdma_create_srq_ex(rdma_cm_id* raw, ibv_srq_init_attr_ex* attr)
{
    static constinit site here{"rdma_create_srq_ex", ENOMEM};
    entry in{here, raw};
    if (int const code = in.fault()) return minus_one(code);
    cm* const id = in.need(the().ids, raw, "id");
    return id == nullptr ? minus_one(EBADF) : create_srq(in, *id, *attr);
}

int rdma_create_srq(rdma_cm_id* raw, ibv_pd* domain, ibv_srq_init_attr* attr)
{
    static constinit site here{"rdma_create_srq", ENOMEM};
    entry in{here, raw};
    if (int const code = in.fault()) return minus_one(code);
    cm* const id = in.need(the().ids, raw, "id");
    if (id == nullptr) return minus_one(EBADF);
    ibv_srq_init_attr_ex extended{};
    extended.srq_context = attr->srq_context;
    extended.attr = attr->attr;
    extended.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD;
    extended.srq_type = id->qp_type == IBV_QPT_XRC_RECV ? IBV_SRQT_XRC : IBV_SRQT_BASIC;
    extended.pd = domain;
    int const result = create_srq(in, *id, extended);
    attr->attr = extended.attr;
    return result;
}

void rdma_destroy_srq(rdma_cm_id* raw)
{
    static constinit site here{"rdma_destroy_srq", 0};
    entry in{here, raw};
    if (cm* const id = in.need(the().ids, raw, "id")) destroy_srq(in, *id);
    cleaned();
}

int rdma_create_ep(rdma_cm_id** out, rdma_addrinfo* info, ibv_pd* domain, ibv_qp_init_attr* attr)
{
    static constinit site here{"rdma_create_ep", ENOMEM};
    entry in{here, info};
    if (int const code = in.fault()) return minus_one(code);
    if (!the().devices_present) return minus_one(ENODEV);
    if (the().credentials_changed) return minus_one(EACCES);
    rdma_cm_id* raw = nullptr;
    auto const ps = static_cast<rdma_port_space>(info->ai_port_space);
    if (create_id(nullptr, &raw, nullptr, ps, static_cast<ibv_qp_type>(info->ai_qp_type)) != 0) return -1;
    cm* const made = the().ids.find(raw);
    bool const passive = (info->ai_flags & RAI_PASSIVE) != 0;
    int const result = passive ? passive_ep(*made, *info, domain, attr) : active_ep(in, *made, *info, domain, attr);
    if (result != 0) {
        int const code = errno;
        if (made->qp != nullptr) destroy_qp(in, *made);
        destroy_id(in, made);
        return minus_one(code);
    }
    *out = raw;
    return 0;
}

void rdma_destroy_ep(rdma_cm_id* raw)
{
    static constinit site here{"rdma_destroy_ep", 0};
    entry in{here, raw};
    cleaned();
    cm* const old = in.ending(raw);
    if (old == nullptr) return;
    if (old->qp != nullptr && !destroy_qp(in, *old)) return;
    if (old->srq != nullptr) destroy_srq(in, *old);
    destroy_id(in, old);
    cleaned();
}

int rdma_resolve_route(rdma_cm_id* raw, int)
{
    static constinit site here{"rdma_resolve_route", EIO};
    entry in{here, raw};
    if (int const code = in.fault()) return minus_one(code);
    cm* const id = in.command(raw);
    return id == nullptr ? -1 : resolve_route(in, *id);
}

int rdma_get_request(rdma_cm_id* raw, rdma_cm_id** out)
{
    static constinit site here{"rdma_get_request", EIO};
    entry in{here, raw};
    if (int const code = in.fault()) return minus_one(code);
    cm* const listener = in.command(raw);
    if (listener == nullptr) return -1;
    if (!listener->sync) return minus_one(EINVAL);
    if (listener->event != nullptr) acknowledge(in, listener->event);
    listener->event = nullptr;
    rdma_cm_event* got = nullptr;
    if (take(in, *listener->kernel->file, &got) != 0) return -1;

    int code = 0;
    if (got->event == RDMA_CM_EVENT_REJECTED) code = ECONNREFUSED;
    else if (got->status != 0) code = std::abs(got->status);
    else if (got->event != RDMA_CM_EVENT_CONNECT_REQUEST) code = EINVAL;
    if (code == 0 && listener->ep_attr != nullptr) {
        ibv_qp_init_attr attr = *listener->ep_attr;
        if (create_qp_of(in, *the().ids.find(got->id), listener->pd, attr) != 0) code = errno;
    }
    if (code != 0) {
        listener->event = got; // and a new id in it is leaked, as in librdmacm
        return minus_one(code);
    }
    *out = got->id;
    (*out)->event = got;
    return 0;
}

// ---- options ----------------------------------------------------------------------------------------------------
namespace {

template <class T>
bool read_option(void const* from, std::size_t length, T& to)
{
    if (length != sizeof(T)) return false;
    std::memcpy(&to, from, sizeof(T));
    return true;
}

int set_id_option(cm& id, int name, void const* value, std::size_t length)
{
    endpoint& kernel = *id.kernel;
    int number = 0;
    std::uint8_t small = 0;
    switch (name) {
    case RDMA_OPTION_ID_TOS: return read_option(value, length, small) ? 0 : EINVAL;
    case RDMA_OPTION_ID_REUSEADDR:
        if (!read_option(value, length, number)) return EINVAL;
        if (kernel.state != phase::idle && (number == 0 || kernel.state == phase::listening)) return EINVAL;
        kernel.reuse = number != 0;
        return 0;
    case RDMA_OPTION_ID_AFONLY:
        if (!read_option(value, length, number) || (kernel.state != phase::idle && kernel.state != phase::bound)) return EINVAL;
        kernel.afonly = number != 0;
        return 0;
    case RDMA_OPTION_ID_ACK_TIMEOUT:
        if (!read_option(value, length, small) || (kernel.qp_type != IBV_QPT_RC && kernel.qp_type != IBV_QPT_XRC_SEND)) return EINVAL;
        kernel.ack_timeout = small;
        return 0;
    default: return ENOSYS;
    }
}

} // namespace

int rdma_set_option(rdma_cm_id* raw, int level, int name, void* value, std::size_t length)
{
    static constinit site here{"rdma_set_option", EIO};
    entry in{here, raw};
    if (int const code = in.fault()) return minus_one(code);
    cm* const id = in.command(raw);
    if (id == nullptr) return -1;
    int code = ENOSYS;
    if (value == nullptr && length != 0) code = EFAULT;
    else if (level == RDMA_OPTION_ID) code = set_id_option(*id, name, value, length);
    else if (level == RDMA_OPTION_IB && name == RDMA_OPTION_IB_PATH) code = set_ib_path(*id, value, length);
    return code == 0 ? 0 : minus_one(code);
}

// ---- enhanced connection establishment --------------------------------------------------------------------------
int rdma_set_local_ece(rdma_cm_id* raw, ibv_ece* ece)
{
    static constinit site here{"rdma_set_local_ece", EIO};
    entry in{here, raw};
    if (int const code = in.fault()) return minus_one(code);
    if (raw == nullptr) return minus_one(EINVAL);
    cm* const id = in.need(the().ids, raw, "id");
    if (id == nullptr) return minus_one(EBADF);
    if (id->qp != nullptr || ece == nullptr || ece->vendor_id == 0 || ece->comp_mask != 0) return minus_one(EINVAL);
    id->local_ece = *ece;
    return 0;
}

int rdma_get_remote_ece(rdma_cm_id* raw, ibv_ece* ece)
{
    static constinit site here{"rdma_get_remote_ece", EIO};
    entry in{here, raw};
    if (int const code = in.fault()) return minus_one(code);
    if (raw == nullptr) return minus_one(EINVAL);
    cm const* const id = in.need(the().ids, raw, "id");
    if (id == nullptr) return minus_one(EBADF);
    if (id->qp != nullptr || ece == nullptr) return minus_one(EINVAL);
    *ece = {id->remote_ece.vendor_id, id->remote_ece.options, 0};
    return 0;
}
