// SPDX-License-Identifier: MIT
//
// Connections between two ids of this process: request, answer, end; by the rules of the IB CM (RoCE) and of iWARP.
#include "world.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>

namespace fake::model {

namespace {

bool is_ud(endpoint const& of) { return of.qp_type == IBV_QPT_UD; }
bool is_iwarp(endpoint const& of) { return of.at != nullptr && of.at->iwarp; }

constexpr int consumer_rejects = 28, nobody_listens = 8; // IB CM reject reasons
constexpr int sidr_unsupported = 1, sidr_rejects = 2;    // status of a UD answer

/// The private-data field of each message: what RoCE carries at most, and always delivers in full.
enum class message { request, reply, reject };
std::size_t field(endpoint const& of, message kind)
{
    if (is_iwarp(of)) return 255;
    bool const ud = is_ud(of);
    switch (kind) {
    case message::request: return ud ? 180 : 56;
    case message::reply: return ud ? 136 : 196;
    case message::reject: break;
    }
    return ud ? 136 : 148;
}

bytes padded(endpoint const& of, message kind, bytes data)
{
    if (!is_iwarp(of)) data.resize(field(of, kind));
    return data;
}

bytes copy(void const* data, std::size_t length)
{
    auto const* from = static_cast<std::uint8_t const*>(data);
    return from == nullptr ? bytes{} : bytes(from, from + length);
}

void say(endpoint& whom, pending item)
{
    if (whom.user == nullptr) return; // a request before its accept: the kernel keeps quiet
    item.target = whom.user;
    consequence(std::move(item));
}

void separate(endpoint& one)
{
    if (one.peer != nullptr) one.peer->peer = nullptr;
    one.peer = nullptr;
}

qp* qp_of(endpoint const& of)
{
    auto const found = the().qp_numbers.find(of.local_qpn);
    return found == the().qp_numbers.end() ? nullptr : found->second;
}

void kernel_qp_to_error(endpoint const& of)
{
    if (qp* const own = qp_of(of); own != nullptr && is_iwarp(of)) enter_error(*own);
}

} // namespace

void tell(endpoint& whom, rdma_cm_event_type type, int status, bytes data)
{
    pending item;
    item.type = type;
    item.status = status;
    item.data = std::move(data);
    say(whom, std::move(item));
}

endpoint* endpoint_of(qp const& of)
{
    for (auto const& [raw, id] : the().ids)
        if (id->kernel->local_qpn == of.qp_base.qp_num) return id->kernel.get();
    return nullptr;
}

/// Both ends learn that the connection is over, once; on RoCE each then waits out its time.
void part(endpoint& whose)
{
    endpoint* const peer = whose.peer;
    separate(whose);
    for (endpoint* each : {&whose, peer}) {
        if (each == nullptr) continue;
        each->state = phase::disconnected;
        tell(*each, RDMA_CM_EVENT_DISCONNECTED);
        kernel_qp_to_error(*each);
        if (!is_iwarp(*each) && the().timewait) tell(*each, RDMA_CM_EVENT_TIMEWAIT_EXIT);
    }
}

void broken(qp& by)
{
    endpoint* const of = endpoint_of(by);
    if (of != nullptr && is_iwarp(*of) && of->state == phase::established) part(*of);
}

void reject(endpoint& whose, int reason, bytes data)
{
    endpoint* const peer = whose.peer;
    separate(whose);
    whose.state = phase::closed;
    if (peer == nullptr) return;
    peer->state = phase::closed;
    if (is_ud(*peer)) {
        pending item;
        item.type = RDMA_CM_EVENT_UNREACHABLE;
        item.status = reason;
        item.data = padded(*peer, message::reject, std::move(data));
        return say(*peer, std::move(item));
    }
    tell(*peer, RDMA_CM_EVENT_REJECTED, is_iwarp(*peer) ? -ECONNRESET : reason, padded(*peer, message::reject, std::move(data)));
    kernel_qp_to_error(*peer);
}

void lose_device(endpoint& whose)
{
    if (whose.user != nullptr) {
        pending item;
        item.target = whose.user;
        item.type = RDMA_CM_EVENT_DEVICE_REMOVAL;
        deliver(std::move(item));
    }
    if (the().removal_disconnects && whose.state == phase::established && whose.peer != nullptr) {
        whose.peer->state = phase::disconnected;
        tell(*whose.peer, RDMA_CM_EVENT_DISCONNECTED);
    }
    separate(whose); // its peer is on the same device, and loses it, too
    kernel_qp_to_error(whose);
    release_port(whose);
    whose.state = phase::closed;
    whose.gone = true;
}

void hang_up(endpoint& whose)
{
    whose.user = nullptr; // nothing more for this side
    switch (whose.state) {
    case phase::request_received:
    case phase::accepted:
    case phase::response_received: reject(whose, is_ud(whose) ? sidr_rejects : consumer_rejects, {}); break;
    case phase::established: part(whose); break;
    default: separate(whose); break; // a request in flight: its other end finds out when it accepts
    }
    kernel_qp_to_error(whose);
    whose.state = phase::closed;
}

int ready_to_use(endpoint& active)
{
    if (active.state != phase::response_received) return EINVAL;
    active.state = phase::established;
    endpoint* const passive = active.peer;
    if (passive != nullptr && passive->state == phase::accepted) {
        passive->state = phase::established;
        tell(*passive, RDMA_CM_EVENT_ESTABLISHED);
    }
    return 0;
}

void qp_to_error(cm& id)
{
    if (qp* const own = the().qps.find(id.qp)) enter_error(*own);
}

std::unique_ptr<endpoint> make_request(endpoint const& listener, device& at)
{
    auto made = std::make_unique<endpoint>();
    made->file = listener.file;
    made->ps = listener.ps;
    made->qp_type = listener.qp_type;
    made->at = &at;
    made->state = phase::request_received;
    made->handled = true;
    made->local = listener.local;
    if (made->local.any() || made->local.empty()) {
        made->local = at.hosts[1];
        made->local.port(listener.local.port());
    }
    return made;
}

// ---- the attributes that a connection gives to its QP -----------------------------------------------------------
int init_attr(endpoint const& of, ibv_qp_attr& attr, int& mask)
{
    ibv_qp_state const next = attr.qp_state;
    if (of.at == nullptr || next > IBV_QPS_ERR) return EINVAL;
    bool const ud = is_ud(of);
    if (next == IBV_QPS_INIT || ud || !of.handled) { // before there is a connection, whatever is asked for
        attr.pkey_index = 0;
        attr.port_num = 1;
        mask = IBV_QP_STATE | (is_iwarp(of) ? 0 : IBV_QP_PKEY_INDEX) | IBV_QP_PORT | (ud ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS);
        attr.qp_access_flags = 0;
        if (ud) attr.qkey = RDMA_UDP_QKEY;
        else if (of.handled) attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
        if (of.handled && of.responder_resources != 0) attr.qp_access_flags |= IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
        return 0;
    }
    bool const answered = of.state == phase::request_received || of.state == phase::response_received || of.state == phase::accepted
        || of.state == phase::established;
    if (!answered || (next != IBV_QPS_RTR && next != IBV_QPS_RTS)) return EINVAL;
    if (is_iwarp(of)) { // the kernel brings the QP up itself
        mask = 0;
        return 0;
    }
    if (next == IBV_QPS_RTR) {
        attr.ah_attr = {};
        attr.ah_attr.is_global = 1;
        attr.ah_attr.port_num = 1;
        attr.ah_attr.grh.dgid = of.remote.gid();
        attr.ah_attr.grh.hop_limit = 64;
        attr.path_mtu = IBV_MTU_1024;
        attr.dest_qp_num = of.remote_qpn;
        attr.rq_psn = 1;
        mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
        if (of.qp_type == IBV_QPT_XRC_SEND) return 0;
        attr.max_dest_rd_atomic = of.responder_resources;
        attr.min_rnr_timer = 0;
        mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
        return 0;
    }
    attr.sq_psn = 1;
    attr.timeout = static_cast<std::uint8_t>(of.ack_timeout >= 0 ? of.ack_timeout : 19);
    mask = IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT;
    if (of.qp_type == IBV_QPT_XRC_RECV) return 0;
    attr.retry_cnt = of.retry_count;
    attr.rnr_retry = of.rnr_retry_count;
    attr.max_rd_atomic = of.initiator_depth;
    mask |= IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
    return 0;
}

namespace {

// ---- asking -----------------------------------------------------------------------------------------------------
bool listens_for(endpoint const& candidate, endpoint const& active, bool exactly)
{
    ibv_qp_type const other_half = active.qp_type == IBV_QPT_XRC_SEND ? IBV_QPT_XRC_RECV : active.qp_type;
    if (candidate.qp_type != other_half || active.qp_type == IBV_QPT_XRC_RECV) return false;
    if (candidate.state != phase::listening || candidate.ps != active.ps || candidate.local.port() != active.remote.port()) return false;
    if (exactly) return candidate.local.same_host(active.remote);
    if (!candidate.local.any()) return false;
    bool const both_families = candidate.local.family() == AF_INET6 && !candidate.afonly;
    return both_families || candidate.local.family() == active.remote.family();
}

endpoint* find_listener(endpoint const& active)
{
    for (bool const exactly : {true, false})
        for (endpoint* each : the().bound)
            if (listens_for(*each, active, exactly)) return each;
    return nullptr;
}

/// Requests of a listener that nobody has got yet.
std::size_t waiting(endpoint const& listener)
{
    auto const asks = [&](pending const& item) { return item.target == listener.owner && item.type == RDMA_CM_EVENT_CONNECT_REQUEST; };
    auto const& queue = listener.file->events.items;
    return static_cast<std::size_t>(std::count_if(queue.begin(), queue.end(), asks) + std::count_if(the().held.begin(), the().held.end(), asks));
}

bool has_device(entry const& in, cm const& id)
{
    if (id.bound != nullptr) return true;
    in.would_crash("the id has no device");
    return false;
}

constexpr std::uint8_t device_depth = 128;

bool depths_are_valid(rdma_conn_param const& param)
{
    auto const fits = [](std::uint8_t depth) { return depth == RDMA_MAX_RESP_RES || depth <= device_depth; };
    return fits(param.responder_resources) && fits(param.initiator_depth);
}

std::uint8_t depth(std::uint8_t wanted) { return wanted == RDMA_MAX_RESP_RES ? device_depth : wanted; }

void take_parameters(endpoint& active, cm const& id, rdma_conn_param const* param)
{
    active.responder_resources = param == nullptr ? device_depth : depth(param->responder_resources);
    active.initiator_depth = param == nullptr ? device_depth : depth(param->initiator_depth);
    active.retry_count = param == nullptr ? std::uint8_t{7} : std::min(param->retry_count, std::uint8_t{7});
    active.rnr_retry_count = param == nullptr ? std::uint8_t{7} : std::min(param->rnr_retry_count, std::uint8_t{7});
    active.local_qpn = id.qp != nullptr ? id.qp->qp_num : param == nullptr ? 0 : param->qp_num;
}

/// The event that a listener gets, and the kernel's half of the new id in it.
pending make_request_event(endpoint& active, endpoint& listener, rdma_conn_param const* param, bool srq, bytes data)
{
    pending item;
    item.target = listener.owner;
    item.type = RDMA_CM_EVENT_CONNECT_REQUEST;
    item.child = make_request(listener, *active.at);
    item.ece = active.ece;
    endpoint& passive = *item.child;
    passive.local = active.remote;
    passive.remote = active.local;
    passive.peer = &active;
    passive.remote_qpn = active.local_qpn;
    passive.retry_count = active.retry_count;
    passive.rnr_retry_count = active.rnr_retry_count;
    passive.responder_resources = active.initiator_depth; // each side's reads are the other side's answers
    passive.initiator_depth = active.responder_resources;
    active.peer = &passive;
    item.data = padded(active, message::request, std::move(data));
    if (is_ud(active)) return item;
    item.conn.responder_resources = passive.responder_resources;
    item.conn.initiator_depth = passive.initiator_depth;
    item.conn.flow_control = param == nullptr ? std::uint8_t{0} : param->flow_control;
    item.conn.retry_count = active.retry_count;
    item.conn.rnr_retry_count = active.rnr_retry_count;
    item.conn.srq = srq ? 1 : 0;
    item.conn.qp_num = active.local_qpn;
    return item;
}

/// Nobody takes the request. On iWARP the call itself says so when the port is closed.
int turn_away(endpoint& active, int reason)
{
    if (is_iwarp(active) && reason == nobody_listens) return ECONNREFUSED;
    active.handled = true;
    active.state = phase::closed;
    int const status = is_iwarp(active) ? -ECONNRESET : reason;
    if (is_ud(active)) tell(active, RDMA_CM_EVENT_UNREACHABLE, sidr_unsupported, padded(active, message::reject, {}));
    else tell(active, RDMA_CM_EVENT_REJECTED, status, padded(active, message::reject, {}));
    return 0;
}

/// Nobody answers. On iWARP the call itself waits.
int ask_in_vain(entry& in, cm& id)
{
    endpoint& active = *id.kernel;
    if (!is_iwarp(active)) {
        active.handled = true;
        active.state = phase::request_sent;
        if (the().manual) tell(active, RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT);
        return 0;
    }
    if (the().silence_is_interrupted) return EINTR;
    id.inside_connect = true; // which keeps it alive
    int const code = in.sleep();
    id.inside_connect = false;
    the().acked.notify_all();
    return code;
}

int ask(entry& in, cm& id, rdma_conn_param const* param)
{
    endpoint& active = *id.kernel;
    if (active.state != phase::route_resolved) return EINVAL;
    bytes data = id.ep_connect;
    if (param != nullptr && param->private_data != nullptr) {
        bytes const more = copy(param->private_data, param->private_data_len);
        data.insert(data.end(), more.begin(), more.end());
    }
    if (data.size() > 256) in.would_crash("more private data than librdmacm has room for");
    if (data.size() > field(active, message::request)) return EINVAL;
    take_parameters(active, id, param);
    if (is_iwarp(active) && (is_ud(active) || qp_of(active) == nullptr)) return EINVAL; // it wants a QP, whoever made it
    if (!is_iwarp(active) && !is_ud(active)) active.ece = id.local_ece;

    if (is_silent(active.remote)) return ask_in_vain(in, id);
    endpoint* const listener = find_listener(active);
    if (listener == nullptr || listener->file == nullptr) return turn_away(active, nobody_listens);
    if (waiting(*listener) >= listener->backlog) return turn_away(active, consumer_rejects);
    active.handled = true;
    if (is_iwarp(active) && data.size() > 251) { // the handshake does not survive it
        active.state = phase::closed;
        tell(active, RDMA_CM_EVENT_REJECTED, -ECONNRESET);
        return 0;
    }
    active.state = phase::request_sent;
    bool const srq = id.qp != nullptr ? id.qp->srq != nullptr : param != nullptr && param->srq != 0;
    consequence(make_request_event(active, *listener, param, srq, std::move(data)));
    return 0;
}

int connect(entry& in, cm& id, rdma_conn_param const* param)
{
    if (id.ps == RDMA_PS_TCP && id.qp == nullptr && param == nullptr) return minus_one(EINVAL);
    if ((id.ps == RDMA_PS_TCP || param == nullptr) && !has_device(in, id)) return minus_one(EINVAL);
    if (id.ps == RDMA_PS_TCP && param != nullptr && !depths_are_valid(*param)) return minus_one(EINVAL);
    if (int const code = ask(in, id, param)) return minus_one(code);
    id.ep_connect.clear();
    return finish(in, id);
}

// ---- answering --------------------------------------------------------------------------------------------------
void raise_qp(endpoint const& of)
{
    qp* const own = qp_of(of);
    if (own == nullptr) return;
    own->attr.dest_qp_num = of.remote_qpn;
    own->attr.max_rd_atomic = of.initiator_depth;
    own->attr.max_dest_rd_atomic = of.responder_resources;
    own->attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
    own->raw()->state = own->attr.qp_state = IBV_QPS_RTS;
}

void accept_iwarp(endpoint& passive, bytes data)
{
    endpoint* const active = passive.peer;
    bool const garbled = data.size() > 251;
    passive.state = phase::established;
    raise_qp(passive);
    if (active != nullptr) {
        active->remote_qpn = passive.local_qpn;
        active->state = garbled ? phase::closed : phase::established;
        if (garbled) {
            separate(passive);
            tell(*active, RDMA_CM_EVENT_REJECTED, -ECONNRESET);
        } else {
            raise_qp(*active);
            pending item;
            item.type = RDMA_CM_EVENT_ESTABLISHED;
            item.data = std::move(data);
            item.conn.responder_resources = active->responder_resources;
            item.conn.initiator_depth = active->initiator_depth;
            say(*active, std::move(item));
        }
    }
    tell(passive, RDMA_CM_EVENT_ESTABLISHED);
    pump();
}

void accept_roce(endpoint& passive, rdma_conn_param const* param, bool srq, bytes data)
{
    passive.state = phase::accepted;
    endpoint* const active = passive.peer;
    if (active == nullptr) {
        passive.state = phase::established;
        tell(passive, RDMA_CM_EVENT_ESTABLISHED);
        return;
    }
    active->remote_qpn = passive.local_qpn;
    active->state = phase::response_received;
    active->responder_resources = std::min(active->responder_resources, passive.initiator_depth);
    active->initiator_depth = std::min(active->initiator_depth, passive.responder_resources);
    pending item;
    item.type = RDMA_CM_EVENT_CONNECT_RESPONSE;
    item.conn.responder_resources = passive.initiator_depth;
    item.conn.initiator_depth = passive.responder_resources;
    item.conn.flow_control = param == nullptr ? std::uint8_t{0} : param->flow_control;
    item.conn.rnr_retry_count = param == nullptr ? std::uint8_t{7} : param->rnr_retry_count;
    item.conn.srq = srq ? 1 : 0;
    item.conn.qp_num = passive.local_qpn;
    item.ece = passive.ece;
    item.data = padded(*active, message::reply, std::move(data));
    say(*active, std::move(item));
}

void accept_datagram(endpoint& passive, bytes data)
{
    endpoint* const active = passive.peer;
    separate(passive);
    passive.state = phase::closed;
    if (active == nullptr) return;
    active->state = phase::closed;
    pending item;
    item.type = RDMA_CM_EVENT_ESTABLISHED;
    item.ud.ah_attr.is_global = 1;
    item.ud.ah_attr.port_num = 1;
    item.ud.ah_attr.grh.dgid = active->remote.gid();
    item.ud.ah_attr.grh.hop_limit = 64;
    item.ud.qp_num = passive.local_qpn;
    item.ud.qkey = RDMA_UDP_QKEY;
    item.data = padded(*active, message::reply, std::move(data));
    say(*active, std::move(item));
}

/// The user-space part: RTR and RTS of the id's QP.
int raise_own_qp(cm& id)
{
    qp* const own = the().qps.find(id.qp);
    if (own == nullptr || is_ud(*id.kernel)) return 0;
    ibv_qp_attr attr{};
    int mask = 0;
    for (ibv_qp_state const next : {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS}) {
        attr.qp_state = next;
        if (int const code = init_attr(*id.kernel, attr, mask)) return code;
        if (int const code = modify(*own, attr, mask)) return code;
    }
    return 0;
}

/// The kernel's part. A failure here rejects the request.
int answer(cm& id, rdma_conn_param const* param)
{
    endpoint& passive = *id.kernel;
    bytes data = param == nullptr ? bytes{} : copy(param->private_data, param->private_data_len);
    if (passive.state != phase::request_received) return EINVAL;
    if (passive.peer == nullptr && !passive.phantom) return is_iwarp(passive) ? ECONNRESET : EINVAL; // the asker is gone
    if (data.size() > field(passive, message::reply) || (is_iwarp(passive) && qp_of(passive) == nullptr)) {
        reject(passive, consumer_rejects, {});
        return EINVAL;
    }
    passive.user = &id;
    passive.ece = {id.remote_ece.vendor_id, id.local_ece.options, 0}; // the vendor that asked, with one's own options
    if (is_ud(passive)) accept_datagram(passive, std::move(data));
    else if (is_iwarp(passive)) accept_iwarp(passive, std::move(data));
    else accept_roce(passive, param, id.qp != nullptr ? id.qp->srq != nullptr : param->srq != 0, std::move(data));
    return 0;
}

int accept(entry& in, cm& id, rdma_conn_param const* param)
{
    if (id.qp == nullptr && param == nullptr) {
        in.would_crash("neither a QP nor parameters");
        return minus_one(EINVAL);
    }
    if (!has_device(in, id) || (param != nullptr && id.ps == RDMA_PS_TCP && !depths_are_valid(*param))) return minus_one(EINVAL);
    endpoint& passive = *id.kernel;
    bool const asked = passive.state == phase::request_received;
    if (asked && !is_ud(passive)) {
        passive.local_qpn = id.qp != nullptr ? id.qp->qp_num : param->qp_num;
        bool const own = param != nullptr && param->initiator_depth != RDMA_MAX_INIT_DEPTH;
        bool const resources = param != nullptr && param->responder_resources != RDMA_MAX_RESP_RES;
        passive.initiator_depth = own ? param->initiator_depth : std::min(id.initiator_depth, device_depth);
        passive.responder_resources = resources ? param->responder_resources : std::min(id.responder_resources, device_depth);
    } else if (asked) {
        passive.local_qpn = id.qp != nullptr ? id.qp->qp_num : param->qp_num;
    }
    if (!is_iwarp(passive))
        if (int const code = raise_own_qp(id)) return minus_one(code);
    if (int const code = answer(id, param)) {
        qp_to_error(id);
        return minus_one(code);
    }
    if (is_ud(passive)) {
        if (the().release >= 52 && id.sync && id.event != nullptr) { // parked by rdma_get_request
            acknowledge(in, id.event);
            id.event = nullptr;
        }
        return 0;
    }
    return finish(in, id);
}

int refuse(entry const& in, cm& id, void const* data, std::uint8_t length, int reason)
{
    endpoint& whose = *id.kernel;
    if (!whose.handled) return minus_one(EINVAL);
    if (data == nullptr) length = 0;
    if (length > field(whose, message::reject)) return minus_one(EINVAL);
    if (whose.state == phase::request_sent && !is_iwarp(whose)) {
        in.misuse("the id is asking, not asked: destroying it would block for minutes");
        return 0;
    }
    bool const undecided = whose.state == phase::request_received || whose.state == phase::response_received || whose.state == phase::accepted;
    if (!undecided) return minus_one(EINVAL);
    reject(whose, is_ud(whose) ? sidr_rejects : reason, copy(data, length));
    return 0;
}

// ---- ending -----------------------------------------------------------------------------------------------------
int disconnect(entry& in, cm& id)
{
    if (id.verbs == nullptr) return minus_one(EINVAL);
    endpoint& whose = *id.kernel;
    if (qp* const own = the().qps.find(id.qp)) {
        if (!is_iwarp(whose)) {
            enter_error(*own);
        } else if (own->raw()->state == IBV_QPS_RTS) {
            own->raw()->state = own->attr.qp_state = IBV_QPS_SQD;
        }
    }
    if (whose.gone) return minus_one(ENXIO);
    if (!whose.handled) return minus_one(EINVAL);
    bool const up = whose.state == phase::established || whose.state == phase::accepted || whose.state == phase::response_received;
    if (up) part(whose);
    return finish(in, id);
}

} // namespace

} // namespace fake::model

using namespace fake::model;

// ---- the C functions --------------------------------------------------------------------------------------------
int rdma_listen(rdma_cm_id* raw, int backlog)
{
    static constinit site here{"rdma_listen", EIO};
    entry in{here, raw};
    if (int const code = in.fault()) return minus_one(code);
    cm* const id = in.command(raw);
    if (id == nullptr) return -1;
    endpoint& kernel = *id->kernel;
    if (kernel.state == phase::idle) {
        address const any = address::parse("0.0.0.0");
        if (bind_address(*id, any.raw()) != 0) return -1;
    }
    if (kernel.state != phase::bound) return minus_one(EINVAL);
    kernel.state = phase::listening;
    kernel.backlog = backlog <= 0 || backlog > 1024 ? 1024U : static_cast<unsigned>(backlog);
    query_addresses(*id);
    return 0;
}

int rdma_connect(rdma_cm_id* raw, rdma_conn_param* param)
{
    static constinit site here{"rdma_connect", EIO};
    entry in{here, raw};
    if (int const code = in.fault()) return minus_one(code);
    cm* const id = in.command(raw);
    return id == nullptr ? -1 : connect(in, *id, param);
}

int rdma_establish(rdma_cm_id* raw)
{
    static constinit site here{"rdma_establish", EIO};
    entry in{here, raw};
    if (int const code = in.fault()) return minus_one(code);
    cm* const id = in.command(raw);
    if (id == nullptr) return -1;
    if (id->qp != nullptr || is_iwarp(*id->kernel)) return minus_one(EINVAL);
    if (int const code = ready_to_use(*id->kernel)) return minus_one(code);
    return 0;
}

int rdma_accept(rdma_cm_id* raw, rdma_conn_param* param)
{
    static constinit site here{"rdma_accept", EIO};
    entry in{here, raw};
    if (int const code = in.fault()) return minus_one(code);
    cm* const id = in.command(raw);
    return id == nullptr ? -1 : accept(in, *id, param);
}

int rdma_reject(rdma_cm_id* raw, void const* data, std::uint8_t length)
{
    static constinit site here{"rdma_reject", EIO};
    entry in{here, raw};
    if (int const code = in.fault()) return minus_one(code);
    cm* const id = in.command(raw);
    return id == nullptr ? -1 : refuse(in, *id, data, length, consumer_rejects);
}

int rdma_reject_ece(rdma_cm_id* raw, void const* data, std::uint8_t length)
{
    static constinit site here{"rdma_reject_ece", EIO};
    entry in{here, raw};
    if (int const code = in.fault()) return minus_one(code);
    cm* const id = in.command(raw);
    return id == nullptr ? -1 : refuse(in, *id, data, length, 35);
}

int rdma_notify(rdma_cm_id* raw, ibv_event_type type)
{
    static constinit site here{"rdma_notify", EIO};
    entry in{here, raw};
    if (int const code = in.fault()) return minus_one(code);
    cm* const id = in.command(raw);
    if (id == nullptr) return -1;
    endpoint& whose = *id->kernel;
    if (!whose.handled) return minus_one(EINVAL);
    if (is_iwarp(whose)) return 0;
    if (type != IBV_EVENT_COMM_EST) return minus_one(EINVAL);
    if (whose.state == phase::established) return minus_one(EISCONN);
    if (whose.state != phase::accepted) return minus_one(EINVAL);
    whose.state = phase::established; // data came before the peer's ready-to-use
    tell(whose, RDMA_CM_EVENT_ESTABLISHED);
    return 0;
}

int rdma_disconnect(rdma_cm_id* raw)
{
    static constinit site here{"rdma_disconnect", EIO};
    entry in{here, raw};
    if (int const code = in.fault()) return minus_one(code);
    cm* const id = in.ending(raw); // the QP comes first, then the kernel
    return id == nullptr ? -1 : disconnect(in, *id);
}

int rdma_init_qp_attr(rdma_cm_id* raw, ibv_qp_attr* attr, int* mask)
{
    static constinit site here{"rdma_init_qp_attr", EIO};
    entry in{here, raw};
    if (int const code = in.fault()) return minus_one(code);
    cm* const id = in.command(raw);
    if (id == nullptr) return -1;
    if (int const code = init_attr(*id->kernel, *attr, *mask)) return minus_one(code);
    return 0;
}
