// SPDX-License-Identifier: MIT
//
// Queue pairs and shared receive queues: their making, their states, their end.
#include "world.hpp"

#include <algorithm>
#include <cstring>

namespace fake::model {

context& qp::home() noexcept { return context_of(qp_base.context); }

namespace {

template <class T>
void adjust_users(registry<T> const& among, void const* raw, bool more)
{
    if (T* const object = among.find(raw)) more ? ++object->users : --object->users;
}

/// A QP counts as a user of its PD, its CQs (twice, if both are one) and its SRQ; with XRC, of what its half needs.
void use_parts(qp const& whole, bool more)
{
    ibv_qp const& of = whole.qp_base;
    if (whole.domain != nullptr) return adjust_users(the().xrcds, static_cast<ibv_xrcd const*>(whole.domain), more);
    adjust_users(the().pds, of.pd, more);
    adjust_users(the().cqs, of.send_cq, more);
    if (of.qp_type == IBV_QPT_XRC_SEND) return;
    adjust_users(the().cqs, of.recv_cq, more);
    adjust_users(the().srqs, of.srq, more);
    if (whole.spread != nullptr) more ? ++whole.spread->users : --whole.spread->users;
}

int check_type(ibv_qp_type type, device const& at)
{
    bool const all = the().all_features && !at.iwarp;
    switch (type) {
    case IBV_QPT_RC: return 0;
    case IBV_QPT_UD: case IBV_QPT_UC: return at.iwarp ? EOPNOTSUPP : 0;
    case IBV_QPT_XRC_SEND: case IBV_QPT_XRC_RECV: return the().knows_xrc && !at.iwarp ? 0 : EINVAL;
    case IBV_QPT_RAW_PACKET: return all ? 0 : EINVAL;
    default: return EINVAL;
    }
}

bool is_cq(ibv_cq const* raw, context const& on)
{
    return raw != nullptr && the().cqs.find(raw) != nullptr && raw->context == &on.verbs_context::context;
}

int check(context const& on, pd const* domain, xrcd const* extended, ibv_qp_init_attr const& attr, bool spread)
{
    device const& at = *on.of;
    ibv_device_attr const most = limits(at);
    if (int const code = check_type(attr.qp_type, at)) return code;
    if (attr.qp_type == IBV_QPT_XRC_RECV) return extended != nullptr ? 0 : EINVAL; // neither CQs nor a queue of its own
    bool const sends = !spread || attr.cap.max_send_wr != 0; // with an indirection table it may do without a send queue
    if (domain == nullptr || (sends && !is_cq(attr.send_cq, on))) return EINVAL;
    if (spread && (attr.recv_cq != nullptr || attr.srq != nullptr || attr.cap.max_recv_wr != 0 || attr.cap.max_recv_sge != 0)) return EINVAL;
    bool const receives = attr.qp_type != IBV_QPT_XRC_SEND;
    if (receives && attr.recv_cq != nullptr && !is_cq(attr.recv_cq, on)) return EINVAL;
    if (receives && attr.srq != nullptr && the().srqs.find(attr.srq) == nullptr) return EINVAL;
    auto const wr = static_cast<std::uint32_t>(most.max_qp_wr), sge = static_cast<std::uint32_t>(most.max_sge);
    bool const fits = attr.cap.max_send_wr <= wr && attr.cap.max_recv_wr <= wr && attr.cap.max_send_sge <= sge && attr.cap.max_recv_sge <= sge
        && attr.cap.max_inline_data <= 512;
    return fits ? 0 : EINVAL;
}

} // namespace

qp* make_qp(context& on, pd* domain, xrcd* extended, ibv_qp_init_attr& attr, int& code, table* spread)
{
    code = check(on, domain, extended, attr, spread != nullptr);
    if (code != 0) return nullptr;
    qp* const made = new qp;
    ibv_qp& raw = *made->raw();
    raw.context = on.raw();
    raw.qp_context = attr.qp_context;
    raw.pd = domain;
    raw.send_cq = attr.send_cq;
    raw.recv_cq = attr.recv_cq;
    raw.srq = attr.srq;
    raw.handle = the().next_handle++;
    raw.qp_num = the().next_qpn++;
    raw.state = IBV_QPS_RESET;
    raw.qp_type = attr.qp_type;
    pthread_mutex_init(&raw.mutex, nullptr);
    pthread_cond_init(&raw.cond, nullptr);
    made->init = attr;
    made->attr.cap = attr.cap;
    if (raw.qp_type == IBV_QPT_XRC_RECV) made->domain = extended;
    made->spread = spread;
    use_parts(*made, true);
    ++made->home().children;
    the().qp_numbers[raw.qp_num] = made;
    return the().qps.add(&raw, made);
}

qp& real(qp& handle)
{
    auto const found = the().qp_numbers.find(handle.qp_base.qp_num);
    return found == the().qp_numbers.end() ? handle : *found->second;
}

namespace {

/// Its number goes to another handle of the same QP, if there is one, with all that was set.
void hand_over(qp const& old)
{
    if (the().qp_numbers[old.qp_base.qp_num] != &old) return;
    the().qp_numbers.erase(old.qp_base.qp_num);
    for (auto const& [raw, each] : the().qps) {
        if (each->qp_base.qp_num != old.qp_base.qp_num) continue;
        each->attr = old.attr;
        each->qp_base.state = old.qp_base.state;
        the().qp_numbers[old.qp_base.qp_num] = each;
        return;
    }
}

} // namespace

void free_qp(qp* old)
{
    ibv_qp& raw = *old->raw();
    the().busy_senders.erase(old);
    the().qps.forget(&raw);
    hand_over(*old);
    use_parts(*old, false);
    context& on = old->home();
    --on.children;
    on.async.remove([&raw](async_item const& item) { return item.object == &raw; });
    pthread_cond_destroy(&raw.cond);
    pthread_mutex_destroy(&raw.mutex);
    delete old;
}

int drop_qp(entry& in, qp* old)
{
    if (cut_off(old->raw()->context)) return lose(*old, old->raw()->context);
    if (old->open_scope) in.misuse("between ibv_wr_start and ibv_wr_complete or ibv_wr_abort");
    if (old->flows != 0) {
        in.misuse("EBUSY: " + std::to_string(old->flows) + " flow(s) lead to the QP");
        return EBUSY;
    }
    if (!old->groups.empty()) {
        in.misuse("EBUSY: the QP is attached to " + std::to_string(old->groups.size()) + " multicast group(s)");
        return EBUSY;
    }
    std::string const owed = "QP has " + std::to_string(old->async_reported) + " async event(s) delivered, " + std::to_string(old->async_acked) + " acked";
    if (!in.settles([old] { return old->async_acked == old->async_reported; }, owed)) return EDEADLK;
    free_qp(old);
    pump(); // whoever sent to it finds out
    return 0;
}

// ---- states -----------------------------------------------------------------------------------------------------
namespace {

void flush(qp& of)
{
    ibv_qp const& raw = *of.raw();
    ibv_wc wc{};
    wc.status = IBV_WC_WR_FLUSH_ERR;
    wc.qp_num = raw.qp_num;
    for (; !of.sends.empty(); of.sends.pop_front()) {
        wc.wr_id = of.sends.front().wr.wr_id;
        complete(the().cqs.find(raw.send_cq), wc, false);
    }
    the().busy_senders.erase(&of);
    for (; !of.receives.empty(); of.receives.pop_front()) {
        wc.wr_id = of.receives.front().wr_id;
        complete(the().cqs.find(raw.recv_cq), wc, false);
    }
}

void empty(qp& of)
{
    of.sends.clear();
    of.receives.clear();
    the().busy_senders.erase(&of);
}

bool may(qp const& of, ibv_qp_state from, ibv_qp_state to)
{
    if (to == IBV_QPS_RESET || to == IBV_QPS_ERR) return true;
    if (context_of(of.qp_base.context).of->iwarp) // siw's QPs know fewer states, and the CM moves them
        return to == IBV_QPS_INIT || to == IBV_QPS_RTR || to == IBV_QPS_RTS || (to == IBV_QPS_SQD && from == IBV_QPS_RTS);
    switch (to) {
    case IBV_QPS_INIT: return from == IBV_QPS_RESET || from == IBV_QPS_INIT;
    case IBV_QPS_RTR: return from == IBV_QPS_INIT;
    case IBV_QPS_RTS: return from == IBV_QPS_RTR || from == IBV_QPS_RTS || from == IBV_QPS_SQD || from == IBV_QPS_SQE;
    case IBV_QPS_SQD: return from == IBV_QPS_RTS || from == IBV_QPS_SQD;
    default: return false;
    }
}

bool has_all(qp const& of, ibv_qp_state to, int mask)
{
    ibv_qp_type const type = of.qp_base.qp_type;
    bool const sends = type == IBV_QPT_RC || type == IBV_QPT_XRC_SEND, receives = type == IBV_QPT_RC || type == IBV_QPT_XRC_RECV;
    if ((!sends && !receives) || context_of(of.qp_base.context).of->iwarp) return true;
    int needed = 0;
    if (to == IBV_QPS_INIT && of.attr.qp_state == IBV_QPS_RESET) needed = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
    if (to == IBV_QPS_RTR)
        needed = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | (receives ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : 0);
    if (to == IBV_QPS_RTS && of.attr.qp_state == IBV_QPS_RTR)
        needed = IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | (sends ? IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC : 0);
    return (mask & needed) == needed;
}

void copy_attr(ibv_qp_attr& to, ibv_qp_attr const& from, int mask)
{
    auto const has = [mask](int bit) { return (mask & bit) != 0; };
    if (has(IBV_QP_ACCESS_FLAGS)) to.qp_access_flags = from.qp_access_flags;
    if (has(IBV_QP_PKEY_INDEX)) to.pkey_index = from.pkey_index;
    if (has(IBV_QP_PORT)) to.port_num = from.port_num;
    if (has(IBV_QP_QKEY)) to.qkey = from.qkey;
    if (has(IBV_QP_AV)) to.ah_attr = from.ah_attr;
    if (has(IBV_QP_PATH_MTU)) to.path_mtu = from.path_mtu;
    if (has(IBV_QP_TIMEOUT)) to.timeout = from.timeout;
    if (has(IBV_QP_RETRY_CNT)) to.retry_cnt = from.retry_cnt;
    if (has(IBV_QP_RNR_RETRY)) to.rnr_retry = from.rnr_retry;
    if (has(IBV_QP_RQ_PSN)) to.rq_psn = from.rq_psn;
    if (has(IBV_QP_MAX_QP_RD_ATOMIC)) to.max_rd_atomic = from.max_rd_atomic;
    if (has(IBV_QP_MIN_RNR_TIMER)) to.min_rnr_timer = from.min_rnr_timer;
    if (has(IBV_QP_SQ_PSN)) to.sq_psn = from.sq_psn;
    if (has(IBV_QP_MAX_DEST_RD_ATOMIC)) to.max_dest_rd_atomic = from.max_dest_rd_atomic;
    if (has(IBV_QP_DEST_QPN)) to.dest_qp_num = from.dest_qp_num;
    if (has(IBV_QP_RATE_LIMIT)) to.rate_limit = from.rate_limit;
}

} // namespace

int modify(qp& of, ibv_qp_attr const& attr, int mask)
{
    bool const moves = (mask & IBV_QP_STATE) != 0;
    ibv_qp_state const from = of.attr.qp_state, to = moves ? attr.qp_state : from;
    if (moves && (!may(of, from, to) || !has_all(of, to, mask))) return EINVAL;
    if (to == IBV_QPS_ERR) {
        enter_error(of);
        return 0;
    }
    copy_attr(of.attr, attr, mask);
    of.attr.qp_state = of.attr.cur_qp_state = of.raw()->state = to;
    if (to == IBV_QPS_RESET) empty(of);
    pump();
    return 0;
}

void enter_error(qp& of)
{
    of.attr.qp_state = of.attr.cur_qp_state = of.raw()->state = IBV_QPS_ERR;
    flush(of);
    pump();
}

// ---- enhanced connection establishment --------------------------------------------------------------------------
namespace {

bool knows_ece(qp const& of) { return the().knows_ece && !context_of(of.qp_base.context).of->iwarp; }

} // namespace

int query_ece(qp const& of, ibv_ece& ece)
{
    if (!knows_ece(of)) return EOPNOTSUPP;
    ece = {ece_vendor, of.ece_options, 0};
    return 0;
}

int set_ece(qp& of, ibv_ece& ece)
{
    if (ece.vendor_id == 0 || !knows_ece(of)) return EOPNOTSUPP;
    if (ece.comp_mask != 0 || ece.vendor_id != ece_vendor) return EINVAL;
    of.ece_options = ece.options &= fake::ece_options;
    return 0;
}

// ---- multicast groups of a QP -----------------------------------------------------------------------------------
namespace {

auto find_attachment(qp& of, ibv_gid const& gid, std::uint16_t lid)
{
    return std::find_if(of.groups.begin(), of.groups.end(), [&](attachment const& each) {
        return each.lid == lid && std::memcmp(each.gid.raw, gid.raw, sizeof gid.raw) == 0;
    });
}

} // namespace

int attach(qp& to, ibv_gid const& gid, std::uint16_t lid)
{
    static constexpr std::uint8_t v4_mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    bool const multicast = gid.raw[0] == 0xff || (std::memcmp(gid.raw, v4_mapped, sizeof v4_mapped) == 0 && gid.raw[12] >> 4 == 0xe);
    if (to.qp_base.qp_type != IBV_QPT_UD || !multicast) return EINVAL;
    if (find_attachment(to, gid, lid) == to.groups.end()) to.groups.push_back({gid, lid});
    return 0;
}

int detach(qp& from, ibv_gid const& gid, std::uint16_t lid)
{
    auto const found = find_attachment(from, gid, lid);
    if (found == from.groups.end()) return EINVAL;
    from.groups.erase(found);
    return 0;
}

// ---- shared receive queues --------------------------------------------------------------------------------------
srq* make_srq(pd& domain, ibv_srq_init_attr& attr, int& code)
{
    ibv_device_attr const most = limits(*context_of(domain.ibv_pd::context).of);
    bool const fits = attr.attr.max_wr >= 1 && attr.attr.max_wr <= static_cast<std::uint32_t>(most.max_srq_wr)
        && attr.attr.max_sge <= static_cast<std::uint32_t>(most.max_srq_sge);
    if (!fits) {
        code = EINVAL;
        return nullptr;
    }
    srq* const made = new srq;
    made->ibv_srq::context = domain.ibv_pd::context;
    made->srq_context = attr.srq_context;
    made->ibv_srq::pd = &domain;
    made->handle = the().next_handle++;
    pthread_mutex_init(&made->mutex, nullptr);
    pthread_cond_init(&made->cond, nullptr);
    made->attr = attr.attr;
    made->attr.srq_limit = 0;
    ++domain.users;
    ++context_of(domain.ibv_pd::context).children;
    return the().srqs.add(static_cast<ibv_srq*>(made), made);
}

srq* make_tag_srq(pd& domain, cq& queue, ibv_tm_cap const& matching, ibv_srq_init_attr& attr, int& code)
{
    srq* const made = make_srq(domain, attr, code);
    if (made == nullptr) return nullptr;
    made->queue = &queue;
    made->matching = matching;
    ++queue.users;
    return made;
}

srq* make_xrc_srq(pd& domain, xrcd& extended, cq& queue, ibv_srq_init_attr& attr, int& code)
{
    srq* const made = make_srq(domain, attr, code);
    if (made == nullptr) return nullptr;
    made->domain = &extended;
    made->queue = &queue;
    ++extended.users;
    ++queue.users;
    return made;
}

int drop_srq(entry& in, srq* old)
{
    if (cut_off(old->ibv_srq::context)) return lose(*old, old->ibv_srq::context);
    if (old->users != 0) {
        in.misuse("EBUSY: " + std::to_string(old->users) + " QP(s) use the SRQ");
        return EBUSY;
    }
    std::string const owed = "SRQ has " + std::to_string(old->async_reported) + " async event(s) delivered, " + std::to_string(old->async_acked) + " acked";
    if (!in.settles([old] { return old->async_acked == old->async_reported; }, owed)) return EDEADLK;
    context& on = context_of(old->ibv_srq::context);
    ibv_srq const* const raw = old;
    on.async.remove([raw](async_item const& item) { return item.object == raw; });
    --on.children;
    adjust_users(the().pds, old->ibv_srq::pd, false);
    if (old->domain != nullptr) --old->domain->users;
    if (old->queue != nullptr) --old->queue->users;
    pthread_cond_destroy(&old->cond);
    pthread_mutex_destroy(&old->mutex);
    the().srqs.forget(raw);
    delete old;
    return 0;
}

namespace {

/// What a QP of this type may be asked to do by calls.
std::uint64_t possible_ops(ibv_qp_type type, bool all_features)
{
    constexpr std::uint64_t flush = 1U << 11; // IBV_QP_EX_WITH_FLUSH of rdma-core 50
    constexpr std::uint64_t messages = std::uint64_t{IBV_QP_EX_WITH_SEND} | IBV_QP_EX_WITH_SEND_WITH_IMM;
    std::uint64_t const segmented = all_features ? std::uint64_t{IBV_QP_EX_WITH_TSO} : 0;
    if (type == IBV_QPT_RAW_PACKET) return IBV_QP_EX_WITH_SEND | segmented;
    if (type == IBV_QPT_UD) return messages | segmented;
    std::uint64_t const more = all_features ? IBV_QP_EX_WITH_ATOMIC_WRITE | flush : 0;
    return messages | IBV_QP_EX_WITH_SEND_WITH_INV | IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_RDMA_READ
        | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_BIND_MW | more;
}

bool has(ibv_qp_init_attr_ex const& attr, std::uint32_t bit) { return (attr.comp_mask & bit) != 0; }

/// Refuses what is asked for beside the plain attributes.
int check(ibv_qp_init_attr_ex const& attr, bool all_features)
{
    bool const extended = attr.qp_type == IBV_QPT_XRC_RECV && the().knows_xrc;
    std::uint32_t known = unsigned{IBV_QP_INIT_ATTR_PD} | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS | IBV_QP_INIT_ATTR_CREATE_FLAGS;
    if (extended) known |= IBV_QP_INIT_ATTR_XRCD;
    if (all_features) known |= unsigned{IBV_QP_INIT_ATTR_MAX_TSO_HEADER} | IBV_QP_INIT_ATTR_IND_TABLE | IBV_QP_INIT_ATTR_RX_HASH;
    if ((attr.comp_mask & ~known) != 0) return EOPNOTSUPP;
    if (!has(attr, extended ? IBV_QP_INIT_ATTR_XRCD : IBV_QP_INIT_ATTR_PD)) return EINVAL;
    constexpr std::uint32_t more_flags = unsigned{IBV_QP_CREATE_SCATTER_FCS} | IBV_QP_CREATE_CVLAN_STRIPPING | IBV_QP_CREATE_SOURCE_QPN
        | IBV_QP_CREATE_PCI_WRITE_END_PADDING;
    std::uint32_t const flags = IBV_QP_CREATE_BLOCK_SELF_MCAST_LB | (all_features ? more_flags : 0U);
    if (has(attr, IBV_QP_INIT_ATTR_CREATE_FLAGS) && (attr.create_flags & ~flags) != 0) return EOPNOTSUPP;
    bool const calls = has(attr, IBV_QP_INIT_ATTR_SEND_OPS_FLAGS);
    if (calls && (attr.send_ops_flags & ~possible_ops(attr.qp_type, all_features)) != 0) return EOPNOTSUPP;
    bool const spread = has(attr, IBV_QP_INIT_ATTR_IND_TABLE), hashed = has(attr, IBV_QP_INIT_ATTR_RX_HASH);
    if (spread != hashed || (spread && attr.qp_type != IBV_QPT_RAW_PACKET)) return EINVAL;
    if (!hashed) return 0;
    ibv_rx_hash_conf const& hash = attr.rx_hash_conf;
    bool const key = hash.rx_hash_function == IBV_RX_HASH_FUNC_TOEPLITZ && hash.rx_hash_key_len == 40 && hash.rx_hash_key != nullptr;
    return key ? 0 : EINVAL;
}

} // namespace

qp* make_extended_qp(entry const& in, context& on, ibv_qp_init_attr_ex& attr, int& code)
{
    bool const plain = attr.comp_mask == IBV_QP_INIT_ATTR_PD; // the header goes to ibv_create_qp then
    code = plain ? 0 : on.of->iwarp ? EOPNOTSUPP : check(attr, has_all_features(on.raw())); // siw has none
    if (code != 0) return nullptr;
    bool const extended = attr.qp_type == IBV_QPT_XRC_RECV && the().knows_xrc, by_table = has(attr, IBV_QP_INIT_ATTR_IND_TABLE);
    pd* const domain = has(attr, IBV_QP_INIT_ATTR_PD) ? in.need(the().pds, attr.pd, "PD") : nullptr;
    xrcd* const shared = extended && !plain ? in.need(the().xrcds, attr.xrcd, "XRC domain") : nullptr;
    table* const spread = by_table ? in.need(the().tables, attr.rwq_ind_tbl, "indirection table") : nullptr;
    code = EFAULT;
    if ((extended && !plain ? shared == nullptr : domain == nullptr) || (by_table && spread == nullptr)) return nullptr;
    ibv_qp_init_attr basic{};
    std::memcpy(static_cast<void*>(&basic), &attr, sizeof basic);
    qp* const made = make_qp(domain != nullptr ? context_of(domain->ibv_pd::context) : on, domain, shared, basic, code, spread);
    if (made == nullptr) return nullptr;
    attr.cap = basic.cap;
    if (!has(attr, IBV_QP_INIT_ATTR_SEND_OPS_FLAGS)) return made;
    made->send_ops = attr.send_ops_flags;
    fill_extended_operations(*made);
    return made;
}

namespace {

ibv_qp* op_create_qp_ex(ibv_context* raw, ibv_qp_init_attr_ex* attr)
{
    static constinit site here{"ibv_create_qp_ex", ENOMEM};
    entry in{here, raw};
    if (int const code = in.fault()) return null(code);
    context* const on = in.need(the().contexts, raw, "context");
    if (on == nullptr) return null(EFAULT);
    int code = 0;
    qp* const made = make_extended_qp(in, *on, *attr, code);
    return made == nullptr ? null(code) : made->raw();
}

/// For those who send packets, whose pace the device can keep.
int op_modify_qp_rate_limit(ibv_qp* raw, ibv_qp_rate_limit_attr* attr)
{
    static constinit site here{"ibv_modify_qp_rate_limit", EIO};
    entry in{here, raw};
    if (int const code = in.fault()) return returned(code);
    qp* const of = in.need(the().qps, raw, "QP");
    if (of == nullptr) return returned(EFAULT);
    if (!has_all_features(raw->context)) return returned(EOPNOTSUPP);
    if (cut_off(raw->context)) return returned(EIO);
    bool const paced = raw->qp_type == IBV_QPT_RAW_PACKET || raw->qp_type == IBV_QPT_UD;
    bool const bursts = attr->max_burst_sz != 0 || attr->typical_pkt_sz != 0;
    if (!paced || attr->comp_mask != 0 || raw->state != IBV_QPS_RTS || (bursts && attr->rate_limit == 0)) return returned(EINVAL);
    of->attr.rate_limit = attr->rate_limit;
    return 0;
}

int op_get_srq_num(ibv_srq* raw, std::uint32_t* number)
{
    static constinit site here{"ibv_get_srq_num", EIO};
    entry in{here, raw};
    if (int const code = in.fault()) return returned(code);
    if (in.need(the().srqs, raw, "SRQ") == nullptr) return returned(EFAULT);
    *number = raw->handle;
    return 0;
}

} // namespace

void fill_qp_operations(context& of)
{
    of.create_qp_ex = op_create_qp_ex;
    of.modify_qp_rate_limit = op_modify_qp_rate_limit;
    of.get_srq_num = op_get_srq_num;
}

} // namespace fake::model

using namespace fake::model;

// ---- the C functions --------------------------------------------------------------------------------------------
ibv_qp* ibv_create_qp(ibv_pd* raw, ibv_qp_init_attr* attr)
{
    static constinit site here{"ibv_create_qp", ENOMEM};
    entry in{here, raw};
    if (int const code = in.fault()) return null(code);
    pd* const domain = in.need(the().pds, raw, "PD");
    if (domain == nullptr) return null(EFAULT);
    int code = 0;
    qp* const made = make_qp(context_of(raw->context), domain, nullptr, *attr, code);
    return made == nullptr ? null(code) : made->raw();
}

int ibv_modify_qp(ibv_qp* raw, ibv_qp_attr* attr, int mask)
{
    static constinit site here{"ibv_modify_qp", EIO};
    entry in{here, raw};
    if (int const code = in.fault()) return returned(code);
    qp* const of = in.need(the().qps, raw, "QP");
    if (of != nullptr && cut_off(raw->context)) return returned(EIO);
    if (of == nullptr) return returned(EFAULT);
    int const code = modify(real(*of), *attr, mask);
    raw->state = real(*of).qp_base.state;
    return returned(code);
}

int ibv_query_qp(ibv_qp* raw, ibv_qp_attr* attr, int, ibv_qp_init_attr* init)
{
    static constinit site here{"ibv_query_qp", EIO};
    entry in{here, raw};
    if (int const code = in.fault()) return returned(code);
    qp* const of = in.need(the().qps, raw, "QP");
    if (of == nullptr) return returned(EFAULT);
    *attr = real(*of).attr;
    *init = of->init;
    return 0;
}

int ibv_query_qp_data_in_order(ibv_qp* raw, ibv_wr_opcode, std::uint32_t)
{
    static constinit site here{"ibv_query_qp_data_in_order", 0};
    entry in{here, raw};
    in.need(the().qps, raw, "QP");
    return 0;
}

int ibv_destroy_qp(ibv_qp* raw)
{
    static constinit site here{"ibv_destroy_qp", EIO};
    entry in{here, raw};
    if (int const code = in.fault()) return returned(code);
    qp* const old = in.need(the().qps, raw, "QP");
    if (old == nullptr) return returned(EFAULT);
    if (int const code = drop_qp(in, old)) return returned(code);
    return cleaned();
}

ibv_qp_ex* ibv_qp_to_qp_ex(ibv_qp* raw)
{
    static constinit site here{"ibv_qp_to_qp_ex", 0};
    entry in{here, raw};
    qp* const of = in.need(the().qps, raw, "QP");
    return of != nullptr && of->wr_start != nullptr ? of : nullptr;
}

int ibv_query_ece(ibv_qp* raw, ibv_ece* ece)
{
    static constinit site here{"ibv_query_ece", EIO};
    entry in{here, raw};
    if (int const code = in.fault()) return returned(code);
    qp const* const of = in.need(the().qps, raw, "QP");
    return returned(of == nullptr ? EFAULT : query_ece(*of, *ece));
}

int ibv_set_ece(ibv_qp* raw, ibv_ece* ece)
{
    static constinit site here{"ibv_set_ece", EIO};
    entry in{here, raw};
    if (int const code = in.fault()) return returned(code);
    qp* const of = in.need(the().qps, raw, "QP");
    return returned(of == nullptr ? EFAULT : fake::model::set_ece(*of, *ece));
}

int ibv_attach_mcast(ibv_qp* raw, ibv_gid const* gid, std::uint16_t lid)
{
    static constinit site here{"ibv_attach_mcast", EIO};
    entry in{here, raw};
    if (int const code = in.fault()) return returned(code);
    qp* const to = in.need(the().qps, raw, "QP");
    if (to != nullptr && cut_off(raw->context)) return returned(EIO);
    return returned(to == nullptr ? EFAULT : attach(*to, *gid, lid));
}

int ibv_detach_mcast(ibv_qp* raw, ibv_gid const* gid, std::uint16_t lid)
{
    static constinit site here{"ibv_detach_mcast", EIO};
    entry in{here, raw};
    if (int const code = in.fault()) return returned(code);
    qp* const from = in.need(the().qps, raw, "QP");
    if (from == nullptr) return returned(EFAULT);
    if (cut_off(raw->context)) return returned(EIO);
    if (int const code = detach(*from, *gid, lid)) return returned(code);
    return cleaned();
}

ibv_srq* ibv_create_srq(ibv_pd* raw, ibv_srq_init_attr* attr)
{
    static constinit site here{"ibv_create_srq", ENOMEM};
    entry in{here, raw};
    if (int const code = in.fault()) return null(code);
    pd* const domain = in.need(the().pds, raw, "PD");
    if (domain == nullptr) return null(EFAULT);
    int code = 0;
    srq* const made = make_srq(*domain, *attr, code);
    if (made == nullptr) errno = code;
    return made;
}

int ibv_modify_srq(ibv_srq* raw, ibv_srq_attr* attr, int mask)
{
    static constinit site here{"ibv_modify_srq", EIO};
    entry in{here, raw};
    if (int const code = in.fault()) return returned(code);
    srq* const of = in.need(the().srqs, raw, "SRQ");
    if (of == nullptr) return returned(EFAULT);
    if (cut_off(raw->context)) return returned(EIO);
    if ((mask & IBV_SRQ_MAX_WR) != 0) {
        if (attr->max_wr < of->receives.size() || attr->max_wr == 0) return returned(EINVAL);
        of->attr.max_wr = attr->max_wr;
    }
    if ((mask & IBV_SRQ_LIMIT) != 0) {
        if (attr->srq_limit > of->attr.max_wr) return returned(EINVAL);
        of->attr.srq_limit = attr->srq_limit;
    }
    return 0;
}

int ibv_query_srq(ibv_srq* raw, ibv_srq_attr* attr)
{
    static constinit site here{"ibv_query_srq", EIO};
    entry in{here, raw};
    if (int const code = in.fault()) return returned(code);
    srq const* const of = in.need(the().srqs, raw, "SRQ");
    if (of == nullptr) return returned(EFAULT);
    *attr = of->attr;
    return 0;
}

int ibv_destroy_srq(ibv_srq* raw)
{
    static constinit site here{"ibv_destroy_srq", EIO};
    entry in{here, raw};
    if (int const code = in.fault()) return returned(code);
    srq* const old = in.need(the().srqs, raw, "SRQ");
    if (old == nullptr) return returned(EFAULT);
    if (int const code = drop_srq(in, old)) return returned(code);
    return cleaned();
}
