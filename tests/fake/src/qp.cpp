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
}

int check_type(ibv_qp_type type, device const& at)
{
    switch (type) {
    case IBV_QPT_RC: return 0;
    case IBV_QPT_UD: case IBV_QPT_UC: return at.iwarp ? EOPNOTSUPP : 0;
    case IBV_QPT_XRC_SEND: case IBV_QPT_XRC_RECV: return the().knows_xrc && !at.iwarp ? 0 : EINVAL;
    default: return EINVAL;
    }
}

bool is_cq(ibv_cq const* raw, context const& on)
{
    return raw != nullptr && the().cqs.find(raw) != nullptr && raw->context == &on.verbs_context::context;
}

int check(context const& on, pd const* domain, xrcd const* extended, ibv_qp_init_attr const& attr)
{
    device const& at = *on.of;
    ibv_device_attr const most = limits(at);
    if (int const code = check_type(attr.qp_type, at)) return code;
    if (attr.qp_type == IBV_QPT_XRC_RECV) return extended != nullptr ? 0 : EINVAL; // neither CQs nor a queue of its own
    if (domain == nullptr || !is_cq(attr.send_cq, on)) return EINVAL;
    bool const receives = attr.qp_type != IBV_QPT_XRC_SEND;
    if (receives && attr.recv_cq != nullptr && !is_cq(attr.recv_cq, on)) return EINVAL;
    if (receives && attr.srq != nullptr && the().srqs.find(attr.srq) == nullptr) return EINVAL;
    auto const wr = static_cast<std::uint32_t>(most.max_qp_wr), sge = static_cast<std::uint32_t>(most.max_sge);
    bool const fits = attr.cap.max_send_wr <= wr && attr.cap.max_recv_wr <= wr && attr.cap.max_send_sge <= sge && attr.cap.max_recv_sge <= sge
        && attr.cap.max_inline_data <= 512;
    return fits ? 0 : EINVAL;
}

} // namespace

qp* make_qp(context& on, pd* domain, xrcd* extended, ibv_qp_init_attr& attr, int& code)
{
    code = check(on, domain, extended, attr);
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
    use_parts(*made, true);
    ++made->home().children;
    the().qp_numbers[raw.qp_num] = made;
    return the().qps.add(&raw, made);
}

void free_qp(qp* old)
{
    ibv_qp& raw = *old->raw();
    the().busy_senders.erase(old);
    the().qp_numbers.erase(raw.qp_num);
    the().qps.forget(&raw);
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
    if (old->domain != nullptr) {
        --old->domain->users;
        --old->queue->users;
    }
    pthread_cond_destroy(&old->cond);
    pthread_mutex_destroy(&old->mutex);
    the().srqs.forget(raw);
    delete old;
    return 0;
}

namespace {

ibv_qp* op_create_qp_ex(ibv_context* raw, ibv_qp_init_attr_ex* attr)
{
    static constinit site here{"ibv_create_qp_ex", ENOMEM};
    entry in{here, raw};
    if (int const code = in.fault()) return null(code);
    constexpr unsigned known = static_cast<unsigned>(IBV_QP_INIT_ATTR_PD) | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS | IBV_QP_INIT_ATTR_CREATE_FLAGS
        | IBV_QP_INIT_ATTR_XRCD;
    bool const extended = attr->qp_type == IBV_QPT_XRC_RECV && the().knows_xrc;
    if ((attr->comp_mask & ~known) != 0 || (!extended && (attr->comp_mask & IBV_QP_INIT_ATTR_XRCD) != 0)) return null(EOPNOTSUPP);
    if ((attr->comp_mask & (extended ? IBV_QP_INIT_ATTR_XRCD : IBV_QP_INIT_ATTR_PD)) == 0) return null(EINVAL);
    context* const on = in.need(the().contexts, raw, "context");
    pd* const domain = (attr->comp_mask & IBV_QP_INIT_ATTR_PD) != 0 ? in.need(the().pds, attr->pd, "PD") : nullptr;
    xrcd* const shared = extended ? in.need(the().xrcds, attr->xrcd, "XRC domain") : nullptr;
    if (on == nullptr || (extended ? shared == nullptr : domain == nullptr)) return null(EFAULT);
    int code = 0;
    ibv_qp_init_attr plain{};
    std::memcpy(static_cast<void*>(&plain), attr, sizeof plain);
    qp* const made = make_qp(domain != nullptr ? context_of(domain->ibv_pd::context) : *on, domain, shared, plain, code);
    if (made == nullptr) return null(code);
    attr->cap = plain.cap;
    if ((attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) != 0) fill_extended_operations(*made);
    return made->raw();
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

void fill_qp_operations(context& of, bool iwarp)
{
    if (!iwarp) of.create_qp_ex = op_create_qp_ex; // siw has none
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
    return returned(of == nullptr ? EFAULT : modify(*of, *attr, mask));
}

int ibv_query_qp(ibv_qp* raw, ibv_qp_attr* attr, int, ibv_qp_init_attr* init)
{
    static constinit site here{"ibv_query_qp", EIO};
    entry in{here, raw};
    if (int const code = in.fault()) return returned(code);
    qp const* const of = in.need(the().qps, raw, "QP");
    if (of == nullptr) return returned(EFAULT);
    *attr = of->attr;
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
