// SPDX-License-Identifier: MIT
//
// Event channels: the kernel's queue of events, and what librdmacm does to an event while a program gets it.
#include "world.hpp"

#include <fake/v60.hpp>

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace fake::model {

// ---- the kernel's queue -----------------------------------------------------------------------------------------
channel* make_channel(int& code)
{
    auto made = std::make_unique<channel>();
    if (!made->events.bell.open()) {
        code = errno;
        return nullptr;
    }
    made->fd = made->events.bell.fd();
    rdma_event_channel const* const raw = made.get();
    return the().channels.add(raw, made.release());
}

namespace {

/// A request that nobody will ever get.
void refuse(pending& request)
{
    if (request.child == nullptr) return;
    hang_up(*request.child);
    request.child.reset();
}

void refuse_all(std::deque<pending> requests)
{
    for (pending& each : requests) refuse(each);
}

/// Closing the file destroys what the kernel has of every id on it.
void close_file(channel* old)
{
    for (auto const& [raw, id] : the().ids) {
        if (id->kernel->file != old) continue;
        id->kernel->file = nullptr;
        hang_up(*id->kernel);
        release_port(*id->kernel);
    }
    refuse_all(old->events.remove([](pending const&) { return true; }));
    for (auto const& [raw, other] : the().channels)
        refuse_all(other->events.remove([old](pending const& item) { return item.child != nullptr && item.child->file == old; }));
}

} // namespace

void drop_channel(channel* old)
{
    close_file(old);
    the().channels.forget(static_cast<rdma_event_channel*>(old));
    delete old;
}

void deliver(pending item)
{
    channel* const to = item.target->kernel->file;
    if (to == nullptr) return refuse(item);
    endpoint& kernel = *item.target->kernel;
    if (item.type == RDMA_CM_EVENT_UNREACHABLE && kernel.state == phase::request_sent && kernel.peer == nullptr) kernel.state = phase::closed;
    to->events.push(std::move(item));
}

void consequence(pending item)
{
    if (the().manual) the().held.push_back(std::move(item));
    else deliver(std::move(item));
}

/// Drops every event of an id that was not handed out; the kernel does this when the id dies.
void purge(cm& id)
{
    auto const hers = [&id](pending const& item) { return item.target == &id; };
    std::deque<pending> dropped;
    for (auto const& [raw, each] : the().channels)
        for (pending& item : each->events.remove(hers)) dropped.push_back(std::move(item));
    auto& held = the().held;
    for (auto item = held.begin(); item != held.end();) {
        if (!hers(*item)) {
            ++item;
            continue;
        }
        dropped.push_back(std::move(*item));
        item = held.erase(item);
    }
    refuse_all(std::move(dropped));
}

// ---- an event on its way to the program -------------------------------------------------------------------------
namespace {

bool is_ud(cm const& id) { return id.qp_type == IBV_QPT_UD; }

/// Copied, since a type newer than the C header is no value of its enumeration.
void set_type(event& of, int type) { std::memcpy(&of.event::rdma_cm_event::event, &type, sizeof type); }

event* make_event(pending const& from, cm& charged)
{
    auto* const made = static_cast<event*>(std::malloc(sizeof(event)));
    if (made == nullptr) return nullptr;
    std::memset(static_cast<void*>(made), 0, sizeof(event));
    set_type(*made, from.type);
    made->status = from.status;
    made->id = &charged;
    made->charged = &charged;
    made->charged_serial = charged.serial;
    made->mc = from.mc;
    made->mc_serial = from.mc != nullptr ? from.mc->serial : 0;
    return made;
}

void copy_parameters(event& to, pending const& from, bool ud)
{
    std::size_t const length = std::min(from.data.size(), std::size_t{255});
    if (length != 0) std::memcpy(to.private_data, from.data.data(), length);
    void const* const data = length != 0 ? to.private_data : nullptr;
    if (ud) {
        to.param.ud = from.ud;
        to.param.ud.private_data = data;
        to.param.ud.private_data_len = static_cast<std::uint8_t>(length);
    } else {
        to.param.conn = from.conn;
        to.param.conn.private_data = data;
        to.param.conn.private_data_len = static_cast<std::uint8_t>(length);
    }
}

/// librdmacm makes the new id inside the get. False: that failed, and nobody will hear of the request.
bool adopt_child(event& to, cm& listener, pending& from)
{
    channel* const file = from.child->file;
    cm* const child = make_id(*file, listener.context, listener.ps, listener.qp_type, std::move(from.child));
    child->responder_resources = to.param.conn.responder_resources;
    child->initiator_depth = to.param.conn.initiator_depth;
    child->remote_ece = from.ece;
    if (child->kernel->gone) { // what librdmacm asks about the new id fails
        kernel_destroy(*child);
        free_id(nullptr, child);
        return false;
    }
    if (file != listener.kernel->file) return false; // the listener was migrated: the kernel's half stayed behind, and is lost
    if (listener.sync) {
        int code = 0;
        channel* const own = make_channel(code);
        if (own == nullptr) {
            kernel_destroy(*child);
            free_id(nullptr, child);
            return false;
        }
        child->channel = own;
        child->kernel->file = own;
        child->sync = true;
    }
    query_addresses(*child);
    to.listen_id = &listener;
    to.id = child;
    return true;
}

/// The QP is brought up, and the answer is sent: 0 or -1.
int bring_up(cm& id, qp* own)
{
    ibv_qp_attr attr{};
    int mask = 0;
    int code = own == nullptr ? EINVAL : 0;
    for (ibv_qp_state const next : {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS}) {
        attr.qp_state = next;
        if (code == 0) code = init_attr(*id.kernel, attr, mask);
        if (code == 0) code = modify(*own, attr, mask);
    }
    if (code == 0) code = ready_to_use(*id.kernel);
    if (code == 0) return 0;
    qp_to_error(id);
    return -1;
}

/// The same with the options that the peer has answered: 0, -1, or a positive code of ibv_set_ece.
int bring_up_with_ece(cm& id, ibv_ece answered)
{
    qp* const own = the().qps.find(id.qp);
    id.remote_ece.vendor_id = answered.vendor_id;
    if (answered.vendor_id == 0) {
        answered = {id.local_ece.vendor_id, 0, 0};
    } else if (answered.vendor_id != id.local_ece.vendor_id) {
        qp_to_error(id);
        return -1;
    }
    int const set = own == nullptr ? 0 : set_ece(*own, answered);
    if (set != 0 && set != EOPNOTSUPP) return set;
    if (int const code = bring_up(id, own)) return code;
    id.local_ece.options = query_ece(*own, answered) == 0 ? answered.options : 0;
    return 0;
}

/// CONNECT_RESPONSE: with a QP, librdmacm brings it up and answers; without one, the program must.
void answer_response(event& to, cm& id, ibv_ece const& answered)
{
    if (id.qp == nullptr) {
        id.remote_ece = answered;
        return;
    }
    to.status = bring_up_with_ece(id, answered);
    to.event::rdma_cm_event::event = to.status == 0 ? RDMA_CM_EVENT_ESTABLISHED : RDMA_CM_EVENT_CONNECT_ERROR;
    id.connect_error = to.status != 0;
}

void learn_addresses(event& to, cm& id)
{
    query_addresses(id);
    if (id.verbs != nullptr || the().release < 56) return;
    set_type(to, RDMA_CM_EVENT_ADDR_ERROR);
    to.status = -1;
}

void learn_route(cm& id)
{
    if (id.bound == nullptr || id.bound->iwarp) return;
    std::free(id.route.path_rec);
    id.route.path_rec = static_cast<ibv_sa_path_rec*>(std::calloc(1, sizeof(ibv_sa_path_rec)));
    if (id.route.path_rec == nullptr) return;
    id.route.num_paths = 1;
    ibv_sa_path_rec& path = *id.route.path_rec;
    path.sgid = id.route.addr.addr.ibaddr.sgid;
    path.dgid = id.route.addr.addr.ibaddr.dgid;
    path.pkey = 0xffff;
    path.hop_limit = 64;
    path.reversible = 1;
    path.numb_path = 1;
    path.mtu_selector = path.rate_selector = path.packet_life_time_selector = 2;
    path.mtu = IBV_MTU_1024;
    path.rate = IBV_RATE_10_GBPS;
    path.packet_life_time = 18;
}

/// What librdmacm does to an event of this kind. False: it keeps the event to itself.
bool process(event& to, cm& id, pending& from)
{
    bool const ud = is_ud(id);
    switch (from.type) {
    case RDMA_CM_EVENT_ADDR_RESOLVED: learn_addresses(to, id); return true;
    case RDMA_CM_EVENT_ROUTE_RESOLVED: learn_route(id); return true;
    case RDMA_CM_EVENT_CONNECT_REQUEST:
        copy_parameters(to, from, ud);
        return from.child == nullptr || adopt_child(to, id, from);
    case RDMA_CM_EVENT_CONNECT_RESPONSE:
        copy_parameters(to, from, false);
        answer_response(to, id, from.ece);
        return true;
    case RDMA_CM_EVENT_REJECTED:
        if (id.connect_error) return false;
        copy_parameters(to, from, false);
        qp_to_error(id);
        return true;
    case RDMA_CM_EVENT_DISCONNECTED:
        if (id.connect_error) return false;
        copy_parameters(to, from, false);
        return true;
    case RDMA_CM_EVENT_MULTICAST_JOIN:
    case RDMA_CM_EVENT_MULTICAST_ERROR:
        copy_parameters(to, from, true);
        if (from.mc != nullptr) {
            to.param.ud.private_data = from.mc->context;
            if (!joined(id, from)) {
                to.event::rdma_cm_event::event = RDMA_CM_EVENT_MULTICAST_ERROR;
                to.status = -1;
            }
        }
        return true;
    case v60::addrinfo_resolved:
        if (!names_resolved(id, to.status)) set_type(to, v60::addrinfo_error);
        return true;
    case v60::addrinfo_error: names_failed(id); return true;
    case v60::user: std::memcpy(&to.param, &from.arg, sizeof from.arg); return true;
    default: copy_parameters(to, from, ud); return true;
    }
}

/// The program's event; null if librdmacm swallows it.
event* hand_out(pending item)
{
    cm& id = *item.target;
    ++id.reported;
    if (item.mc != nullptr) ++item.mc->reported;
    bool const discarded = item.anonymous && item.type != RDMA_CM_EVENT_ESTABLISHED;
    event* const made = discarded ? nullptr : make_event(item, id);
    if (made != nullptr && process(*made, id, item)) {
        the().events.insert(made);
        return made;
    }
    ++id.completed;
    std::free(made);
    return nullptr;
}

} // namespace

int take(entry& in, channel& from, rdma_cm_event** out, int timeout_ms)
{
    rdma_event_channel const* const raw = &from;
    auto const alive = [raw, &from] { return the().channels.find(raw) == &from; };
    auto const filled = [&from] { return !from.events.items.empty(); };
    for (;;) {
        if (int const code = in.await(from.fd, alive, filled, timeout_ms)) return minus_one(code);
        if (event* const made = hand_out(from.events.pop())) {
            *out = made;
            return 0;
        }
    }
}

void acknowledge(entry const& in, rdma_cm_event* old)
{
    if (the().events.erase(old) == 0) return in.misuse("an event that is not, or no longer, to be acked");
    auto* const whole = static_cast<event*>(old);
    if (whole->mc != nullptr) {
        group* const mc = the().groups.find(whole->mc);
        if (mc != nullptr && mc->serial == whole->mc_serial) ++mc->completed;
        else in.would_crash("the event's multicast group is gone");
    }
    cm* const charged = the().ids.find(whole->charged);
    if (charged != nullptr && charged->serial == whole->charged_serial) ++charged->completed;
    else in.misuse("the id that the event is charged to is gone");
    std::memset(static_cast<void*>(whole), 0xdb, sizeof *whole);
    std::free(whole);
    the().acked.notify_all();
}

/// A synchronous id: the event that ends the call is got, and parked in id->event until the next.
int finish(entry& in, cm& id)
{
    if (!id.sync) return 0;
    if (id.event != nullptr) acknowledge(in, id.event);
    id.event = nullptr;
    auto const limit = static_cast<int>(the().patience.count());
    if (take(in, *id.kernel->file, &id.event, limit) != 0) {
        if (errno != ETIMEDOUT) return -1;
        the().would_hang.push_back(std::string{in.name()} + ": no event comes for the synchronous id");
        return minus_one(EDEADLK);
    }
    int const status = id.event->status;
    if (status == 0) return 0;
    return minus_one(id.event->event == RDMA_CM_EVENT_REJECTED ? ECONNREFUSED : std::abs(status));
}

} // namespace fake::model

using namespace fake::model;

rdma_event_channel* rdma_create_event_channel()
{
    static constinit site here{"rdma_create_event_channel", ENOMEM};
    entry in{here, nullptr};
    if (int const code = in.fault()) return null(code);
    if (!the().devices_present) return null(ENODEV);
    int code = 0;
    channel* const made = make_channel(code);
    if (made == nullptr) errno = code;
    return made;
}

void rdma_destroy_event_channel(rdma_event_channel* raw)
{
    static constinit site here{"rdma_destroy_event_channel", 0};
    entry in{here, raw};
    cleaned();
    channel* const old = in.need(the().channels, raw, "event channel");
    if (old == nullptr) return;
    std::size_t ids = 0;
    for (auto const& [key, id] : the().ids)
        if (id->channel == raw) ++ids;
    if (ids != 0) in.misuse(std::to_string(ids) + " id(s) still on the channel");
    drop_channel(old);
    cleaned();
}

int rdma_get_cm_event(rdma_event_channel* raw, rdma_cm_event** out)
{
    static constinit site here{"rdma_get_cm_event", EIO};
    entry in{here, raw};
    if (int const code = in.fault()) return minus_one(code);
    if (!the().devices_present) return minus_one(ENODEV);
    if (out == nullptr) return minus_one(EINVAL);
    channel* const from = in.need(the().channels, raw, "event channel");
    if (from == nullptr) return minus_one(EBADF);
    if (the().credentials_changed) return minus_one(EACCES);
    return take(in, *from, out);
}

int rdma_ack_cm_event(rdma_cm_event* old)
{
    static constinit site here{"rdma_ack_cm_event", 0};
    entry in{here, old};
    if (int const code = in.fault()) return minus_one(code);
    if (old == nullptr) return minus_one(EINVAL);
    acknowledge(in, old);
    return cleaned();
}

// ---- fake.hpp ---------------------------------------------------------------------------------------------------
namespace fake {

void push(rdma_cm_id* raw, event_spec const& spec) { push(raw, nullptr, spec); }

void push(rdma_cm_id* raw, sockaddr const* of, event_spec const& spec)
{
    if (spec.type == RDMA_CM_EVENT_CONNECT_REQUEST) return push_request(raw, spec.private_data, spec.private_data_len);
    visit here;
    cm* const id = the().ids.find(raw);
    if (id == nullptr) return;
    pending item;
    item.target = id;
    item.anonymous = id->kernel->user == nullptr;
    item.type = spec.type;
    item.status = spec.status;
    item.arg = spec.arg;
    if (auto const* data = static_cast<std::uint8_t const*>(spec.private_data)) item.data.assign(data, data + spec.private_data_len);
    bool const multicast = spec.type == RDMA_CM_EVENT_MULTICAST_JOIN || spec.type == RDMA_CM_EVENT_MULTICAST_ERROR;
    if (multicast && of != nullptr) item.mc = find_group(*id, address{of});
    else if (multicast && !id->groups.empty()) item.mc = id->groups.back();
    if (spec.type == RDMA_CM_EVENT_CONNECT_RESPONSE) {
        id->kernel->state = phase::response_received;
        id->kernel->phantom = id->kernel->peer == nullptr;
    }
    if (spec.type == RDMA_CM_EVENT_DISCONNECTED && id->kernel->state == phase::established) id->kernel->state = phase::disconnected;
    deliver(std::move(item));
}

void push_request(rdma_cm_id* raw, void const* private_data, std::uint8_t len)
{
    visit here;
    cm* const listener = the().ids.find(raw);
    if (listener == nullptr || listener->kernel->file == nullptr) return;
    endpoint const& kernel = *listener->kernel;
    if (kernel.gone) return;
    device& at = kernel.at != nullptr ? *kernel.at : the().devices[0];
    pending item;
    item.target = listener;
    item.type = RDMA_CM_EVENT_CONNECT_REQUEST;
    item.child = make_request(kernel, at);
    item.child->phantom = true;
    item.child->remote = at.hosts.back();
    item.child->remote.port(the().next_port);
    item.conn.responder_resources = item.conn.initiator_depth = 16;
    item.conn.retry_count = item.conn.rnr_retry_count = 7;
    item.conn.qp_num = item.child->remote_qpn = 0xabcd;
    if (auto const* data = static_cast<std::uint8_t const*>(private_data)) item.data.assign(data, data + len);
    deliver(std::move(item));
}

} // namespace fake
