// SPDX-License-Identifier: MIT
//
// Completion queues, their channels and events.
#include "world.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>

namespace fake::model {

// ---- completion channels ----------------------------------------------------------------------------------------
comp_channel* make_comp_channel(context& on)
{
    auto made = std::make_unique<comp_channel>();
    if (!made->events.bell.open()) return nullptr;
    made->ibv_comp_channel::context = on.raw();
    made->fd = made->events.bell.fd();
    ++on.children;
    ibv_comp_channel const* const raw = made.get();
    return the().comp_channels.add(raw, made.release());
}

int drop_comp_channel(entry const& in, comp_channel* old)
{
    if (old->refcnt != 0 && cut_off(old->ibv_comp_channel::context)) { // CQs that were not destroyed keep it
        lose(*old, old->ibv_comp_channel::context);
        return EBUSY;
    }
    if (old->refcnt != 0) {
        in.misuse("EBUSY: " + std::to_string(old->refcnt) + " CQ(s) use the completion channel");
        return EBUSY;
    }
    --context_of(old->ibv_comp_channel::context).children;
    the().comp_channels.forget(static_cast<ibv_comp_channel*>(old));
    delete old;
    return 0;
}

// ---- completion queues ------------------------------------------------------------------------------------------
cq* make_cq(context& on, int entries, void* user_context, comp_channel* bell)
{
    if (entries < 1 || entries > limits(*on.of).max_cqe) return null(EINVAL);
    cq* const made = new cq;
    ibv_cq& raw = *made->raw();
    raw.context = on.raw();
    raw.channel = bell;
    raw.cq_context = user_context;
    raw.handle = the().next_handle++;
    raw.cqe = entries;
    pthread_mutex_init(&raw.mutex, nullptr);
    pthread_cond_init(&raw.cond, nullptr);
    made->bell = bell;
    if (bell != nullptr) ++bell->refcnt;
    ++on.children;
    return the().cqs.add(&raw, made);
}

void free_cq(cq* old)
{
    ibv_cq& raw = *old->raw();
    if (old->bell != nullptr) {
        old->bell->events.remove([old](cq const* of) { return of == old; });
        --old->bell->refcnt;
    }
    if (old->parent != nullptr) --old->parent->users;
    context& on = context_of(raw.context);
    on.async.remove([old](async_item const& item) { return item.object == old->raw(); });
    --on.children;
    pthread_cond_destroy(&raw.cond);
    pthread_mutex_destroy(&raw.mutex);
    the().cqs.forget(&raw);
    delete old;
}

int drop_cq(entry& in, cq* old)
{
    if (cut_off(old->raw()->context)) return lose(*old, old->raw()->context);
    if (old->poll != cq::polling::idle) in.misuse("between ibv_start_poll and ibv_end_poll");
    if (old->users != 0) {
        in.misuse("EBUSY: " + std::to_string(old->users) + " use(s) of the CQ by QPs, SRQs and WQs");
        return EBUSY;
    }
    auto const settled = [old] { return old->comp_acked == old->comp_reported && old->async_acked == old->async_reported; };
    std::string const owed = "CQ has " + std::to_string(old->comp_reported) + " completion and " + std::to_string(old->async_reported)
        + " async event(s) delivered, " + std::to_string(old->comp_acked) + " and " + std::to_string(old->async_acked) + " acked";
    if (!in.settles(settled, owed)) return EDEADLK;
    free_cq(old);
    return 0;
}

namespace {

/// With an error, only wr_id, status, qp_num and vendor_err mean something; the rest is rubbish on purpose.
ibv_wc as_delivered(ibv_wc const& wc)
{
    if (wc.status == IBV_WC_SUCCESS) return wc;
    ibv_wc bad;
    std::memset(&bad, 0xa5, sizeof bad);
    bad.wr_id = wc.wr_id;
    bad.status = wc.status;
    bad.vendor_err = wc.vendor_err;
    bad.qp_num = wc.qp_num;
    bad.opcode = static_cast<ibv_wc_opcode>(0x7f);
    bad.byte_len = 0xffffffffU;
    return bad;
}

template <class Clock>
std::uint64_t nanoseconds()
{
    return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch()).count());
}

/// The clocks are read only for those who may ask.
stamped stamp(cq const& in, ibv_wc const& wc, completion_extras const& extras)
{
    stamped made{};
    static_cast<ibv_wc&>(made) = wc;
    made.extras = extras;
    if ((in.readable & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP) != 0) made.stamp = nanoseconds<std::chrono::steady_clock>();
    if ((in.readable & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK) != 0) made.wallclock = nanoseconds<std::chrono::system_clock>();
    return made;
}

void notify(cq& of)
{
    of.armed = cq::arming::none;
    if (of.bell != nullptr) of.bell->events.push(&of);
}

} // namespace

void complete(cq* into, ibv_wc const& wc, bool solicited, completion_extras const& extras)
{
    if (into == nullptr) return;
    if (into->completions.size() >= static_cast<std::size_t>(into->raw()->cqe)) {
        if (into->overrun || into->ignores_overrun) return;
        into->overrun = true;
        ibv_async_event lost{};
        lost.element.cq = into->raw();
        lost.event_type = IBV_EVENT_CQ_ERR;
        raise(context_of(into->raw()->context), lost, into->raw());
        return;
    }
    into->completions.push_back(stamp(*into, as_delivered(wc), extras));
    bool const wanted = into->armed == cq::arming::any || (into->armed == cq::arming::solicited && (solicited || wc.status != IBV_WC_SUCCESS));
    if (wanted) notify(*into);
}

namespace {

int op_poll_cq(ibv_cq* raw, int many, ibv_wc* out)
{
    static constinit site here{"ibv_poll_cq", EIO};
    entry in{here, raw};
    if (int const code = in.fault()) return -std::abs(returned(code));
    cq* const from = in.need(the().cqs, raw, "CQ");
    if (from == nullptr) return -1;
    if (from->poll != cq::polling::idle) in.misuse("between ibv_start_poll and ibv_end_poll, which holds the CQ's lock");
    int taken = 0;
    for (; taken < many && !from->completions.empty(); ++taken) {
        out[taken] = from->completions.front();
        from->completions.pop_front();
    }
    return taken;
}

int op_req_notify_cq(ibv_cq* raw, int solicited_only)
{
    static constinit site here{"ibv_req_notify_cq", EIO};
    entry in{here, raw};
    if (int const code = in.fault()) return returned(code);
    cq* const of = in.need(the().cqs, raw, "CQ");
    if (of == nullptr) return returned(EFAULT);
    of->armed = cq::arming::none;
    for (ibv_wc const& wc : of->while_arming) complete(of, wc, false);
    of->while_arming.clear();
    of->armed = solicited_only != 0 ? cq::arming::solicited : cq::arming::any;
    return 0;
}

// ---- ibv_start_poll and the rest --------------------------------------------------------------------------------
cq* extended(ibv_cq_ex* raw) { return the().cqs.find(ibv_cq_ex_to_cq(raw)); }

bool step_poll(cq& of)
{
    if (of.completions.empty()) return false;
    of.current = of.completions.front();
    of.completions.pop_front();
    of.status = of.current.status;
    of.wr_id = of.current.wr_id;
    return true;
}

/// Only what succeeds has begun, and wants an end.
int op_start_poll(ibv_cq_ex* raw, ibv_poll_cq_attr* attr)
{
    static constinit site here{"ibv_start_poll", EIO};
    entry in{here, raw};
    cq* const of = in.need(the().cqs, ibv_cq_ex_to_cq(raw), "CQ");
    if (of == nullptr) return returned(EFAULT);
    if (of->poll != cq::polling::idle) in.misuse("the CQ is being polled already: the last ibv_start_poll has no ibv_end_poll");
    of->poll = cq::polling::idle;
    if (int const code = in.fault()) return returned(code);
    if (attr == nullptr) {
        in.would_crash("null attributes");
        return returned(EFAULT);
    }
    if (attr->comp_mask != 0) return returned(EINVAL);
    if (!step_poll(*of)) return ENOENT;
    of->poll = cq::polling::at_one;
    return 0;
}

int op_next_poll(ibv_cq_ex* raw)
{
    static constinit site here{"ibv_next_poll", EIO};
    entry in{here, raw};
    cq* const of = in.need(the().cqs, ibv_cq_ex_to_cq(raw), "CQ");
    if (of == nullptr) return returned(EFAULT);
    if (of->poll == cq::polling::idle) {
        in.misuse("no ibv_start_poll has succeeded before");
        return returned(EINVAL);
    }
    if (of->poll == cq::polling::at_end) in.misuse("the last ibv_next_poll has failed or found nothing: only ibv_end_poll may follow");
    of->poll = cq::polling::at_end;
    if (int const code = in.fault()) return returned(code);
    if (!step_poll(*of)) return ENOENT;
    of->poll = cq::polling::at_one;
    return 0;
}

void op_end_poll(ibv_cq_ex* raw)
{
    static constinit site here{"ibv_end_poll", 0};
    entry in{here, raw};
    cq* const of = in.need(the().cqs, ibv_cq_ex_to_cq(raw), "CQ");
    if (of == nullptr) return;
    if (of->poll == cq::polling::idle) in.misuse("no ibv_start_poll has succeeded before");
    of->poll = cq::polling::idle;
}

/// The completion that ibv_start_poll or ibv_next_poll came to, for a field that the CQ was made to have.
stamped const& current(entry const& in, ibv_cq_ex* raw, std::uint64_t flag = 0)
{
    static stamped const nothing{};
    cq const* const of = in.need(the().cqs, ibv_cq_ex_to_cq(raw), "CQ");
    if (of == nullptr) return nothing;
    if (of->poll != cq::polling::at_one) in.misuse("there is no completion to read");
    if ((of->readable & flag) != flag) in.would_crash("the CQ was not made with the flag for this field in wc_flags");
    return of->current;
}

/// One of the ibv_wc_read_… functions.
template <auto Field, site& Where, std::uint64_t Flag = 0>
auto op_read(ibv_cq_ex* raw)
{
    entry in{Where, raw};
    return current(in, raw, Flag).*Field;
}

constinit site read_opcode{"ibv_wc_read_opcode", 0}, read_vendor_err{"ibv_wc_read_vendor_err", 0}, read_byte_len{"ibv_wc_read_byte_len", 0},
    read_qp_num{"ibv_wc_read_qp_num", 0}, read_src_qp{"ibv_wc_read_src_qp", 0}, read_wc_flags{"ibv_wc_read_wc_flags", 0},
    read_sl{"ibv_wc_read_sl", 0}, read_dlid_path_bits{"ibv_wc_read_dlid_path_bits", 0}, read_stamp{"ibv_wc_read_completion_ts", 0},
    read_wallclock{"ibv_wc_read_completion_wallclock_ns", 0}, read_imm_data{"ibv_wc_read_imm_data", 0},
    read_invalidated_rkey{"ibv_wc_read_invalidated_rkey", 0};

std::uint32_t op_read_slid(ibv_cq_ex* raw)
{
    static constinit site here{"ibv_wc_read_slid", 0};
    entry in{here, raw};
    return current(in, raw, IBV_WC_EX_WITH_SLID).slid;
}

/// Of two functions in one: the header's ibv_wc_read_invalidated_rkey calls it, too.
bool is_invalidation(ibv_cq_ex* raw)
{
    visit here;
    cq const* const of = extended(raw);
    return of != nullptr && (of->current.wc_flags & IBV_WC_WITH_INV) != 0;
}

__be32 op_read_imm_data(ibv_cq_ex* raw)
{
    entry in{is_invalidation(raw) ? read_invalidated_rkey : read_imm_data, raw};
    return current(in, raw, IBV_WC_EX_WITH_IMM).imm_data;
}

std::uint16_t op_read_cvlan(ibv_cq_ex* raw)
{
    static constinit site here{"ibv_wc_read_cvlan", 0};
    entry in{here, raw};
    return current(in, raw, IBV_WC_EX_WITH_CVLAN).extras.cvlan;
}

std::uint32_t op_read_flow_tag(ibv_cq_ex* raw)
{
    static constinit site here{"ibv_wc_read_flow_tag", 0};
    entry in{here, raw};
    return current(in, raw, IBV_WC_EX_WITH_FLOW_TAG).extras.flow_tag;
}

void op_read_tm_info(ibv_cq_ex* raw, ibv_wc_tm_info* out)
{
    static constinit site here{"ibv_wc_read_tm_info", 0};
    entry in{here, raw};
    completion_extras const& extras = current(in, raw, IBV_WC_EX_WITH_TM_INFO).extras;
    out->tag = extras.tag;
    out->priv = extras.priv;
}

void fill_polling(cq& of)
{
    of.start_poll = op_start_poll;
    of.next_poll = op_next_poll;
    of.end_poll = op_end_poll;
    of.read_opcode = op_read<&ibv_wc::opcode, read_opcode>;
    of.read_vendor_err = op_read<&ibv_wc::vendor_err, read_vendor_err>;
    of.read_byte_len = op_read<&ibv_wc::byte_len, read_byte_len, IBV_WC_EX_WITH_BYTE_LEN>;
    of.read_imm_data = op_read_imm_data;
    of.read_qp_num = op_read<&ibv_wc::qp_num, read_qp_num, IBV_WC_EX_WITH_QP_NUM>;
    of.read_src_qp = op_read<&ibv_wc::src_qp, read_src_qp, IBV_WC_EX_WITH_SRC_QP>;
    of.read_wc_flags = op_read<&ibv_wc::wc_flags, read_wc_flags>;
    of.read_slid = op_read_slid;
    of.read_sl = op_read<&ibv_wc::sl, read_sl, IBV_WC_EX_WITH_SL>;
    of.read_dlid_path_bits = op_read<&ibv_wc::dlid_path_bits, read_dlid_path_bits, IBV_WC_EX_WITH_DLID_PATH_BITS>;
    of.read_completion_ts = op_read<&stamped::stamp, read_stamp, IBV_WC_EX_WITH_COMPLETION_TIMESTAMP>;
    of.read_completion_wallclock_ns = op_read<&stamped::wallclock, read_wallclock, IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK>;
    of.read_cvlan = op_read_cvlan;
    of.read_flow_tag = op_read_flow_tag;
    of.read_tm_info = op_read_tm_info;
}

/// 0, and the parent domain that the attributes name, if they do; or what refuses them.
int check(entry const& in, ibv_context* raw, ibv_cq_init_attr_ex const& attr, pd*& parent)
{
    bool const all = has_all_features(raw);
    std::uint64_t const fields = all ? std::uint64_t{IBV_CREATE_CQ_SUP_WC_FLAGS} : std::uint64_t{IBV_WC_STANDARD_FLAGS};
    std::uint32_t const known = all ? unsigned{IBV_CQ_INIT_ATTR_MASK_FLAGS} | IBV_CQ_INIT_ATTR_MASK_PD : 0U;
    if ((attr.comp_mask & ~known) != 0 || (attr.wc_flags & ~fields) != 0) return EOPNOTSUPP;
    constexpr std::uint32_t flags = unsigned{IBV_CREATE_CQ_ATTR_SINGLE_THREADED} | IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN;
    if ((attr.comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS) != 0 && (attr.flags & ~flags) != 0) return EOPNOTSUPP;
    if (attr.comp_vector >= static_cast<std::uint32_t>(raw->num_comp_vectors)) return EINVAL;
    if ((attr.comp_mask & IBV_CQ_INIT_ATTR_MASK_PD) == 0) return 0;
    parent = in.need(the().pds, attr.parent_domain, "parent domain");
    return parent != nullptr && parent->inner != nullptr && parent->ibv_pd::context == raw ? 0 : EINVAL;
}

ibv_cq_ex* op_create_cq_ex(ibv_context* raw, ibv_cq_init_attr_ex* attr)
{
    static constinit site here{"ibv_create_cq_ex", ENOMEM};
    entry in{here, raw};
    if (int const code = in.fault()) return null(code);
    context* const on = in.need(the().contexts, raw, "context");
    if (on == nullptr) return null(EFAULT);
    if (on->of->iwarp) return null(EOPNOTSUPP); // siw has none
    pd* parent = nullptr;
    if (int const code = check(in, raw, *attr, parent)) return null(code);
    comp_channel* const bell = attr->channel == nullptr ? nullptr : in.need(the().comp_channels, attr->channel, "completion channel");
    if (attr->channel != nullptr && bell == nullptr) return null(EFAULT);
    cq* const made = make_cq(*on, static_cast<int>(attr->cqe), attr->cq_context, bell);
    if (made == nullptr) return nullptr;
    made->is_extended = true;
    made->readable = attr->wc_flags;
    made->ignores_overrun = (attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS) != 0 && (attr->flags & IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN) != 0;
    made->parent = parent;
    if (parent != nullptr) ++parent->users;
    fill_polling(*made);
    return made;
}

int op_modify_cq(ibv_cq* raw, ibv_modify_cq_attr* attr)
{
    static constinit site here{"ibv_modify_cq", EIO};
    entry in{here, raw};
    if (int const code = in.fault()) return returned(code);
    cq* const of = in.need(the().cqs, raw, "CQ");
    if (of == nullptr) return returned(EFAULT);
    if (!has_all_features(raw->context)) return returned(EOPNOTSUPP);
    if (cut_off(raw->context)) return returned(EIO);
    bool const fits = attr->moderate.cq_count <= 0x7fff && attr->moderate.cq_period <= 0x0fff; // as ibv_query_device_ex says
    if (attr->attr_mask != IBV_CQ_ATTR_MODERATE || !fits) return returned(EINVAL);
    of->moderate = attr->moderate;
    return 0;
}

} // namespace

void fill_cq_operations(context& of)
{
    of.raw()->ops.poll_cq = op_poll_cq;
    of.raw()->ops.req_notify_cq = op_req_notify_cq;
    of.create_cq_ex = op_create_cq_ex;
    of.modify_cq = op_modify_cq;
}

} // namespace fake::model

using namespace fake::model;

namespace fake {

void push_cq_event(ibv_cq* raw)
{
    visit here;
    cq* const of = the().cqs.find(raw);
    if (of != nullptr && of->bell != nullptr) of->bell->events.push(of);
}

void push_completion(ibv_cq* raw, ibv_wc const& wc) { push_completion(raw, wc, {}); }

void push_completion(ibv_cq* raw, ibv_wc const& wc, completion_extras const& extras)
{
    visit here;
    complete(the().cqs.find(raw), wc, true, extras);
}

ibv_moderate_cq moderation(ibv_cq const* raw)
{
    visit here;
    cq const* const of = the().cqs.find(raw);
    return of != nullptr ? of->moderate : ibv_moderate_cq{};
}

void complete_while_arming(ibv_cq* raw, ibv_wc const& wc)
{
    visit here;
    if (cq* const of = the().cqs.find(raw)) of->while_arming.push_back(wc);
}

} // namespace fake

// ---- the C functions --------------------------------------------------------------------------------------------
ibv_comp_channel* ibv_create_comp_channel(ibv_context* raw)
{
    static constinit site here{"ibv_create_comp_channel", ENOMEM};
    entry in{here, raw};
    if (int const code = in.fault()) return null(code);
    context* const on = in.need(the().contexts, raw, "context");
    return on == nullptr ? null(EFAULT) : static_cast<ibv_comp_channel*>(make_comp_channel(*on));
}

int ibv_destroy_comp_channel(ibv_comp_channel* raw)
{
    static constinit site here{"ibv_destroy_comp_channel", EIO};
    entry in{here, raw};
    if (int const code = in.fault()) return returned(code);
    comp_channel* const old = in.need(the().comp_channels, raw, "completion channel");
    if (old == nullptr) return returned(EFAULT);
    if (int const code = drop_comp_channel(in, old)) return returned(code);
    return cleaned();
}

ibv_cq* ibv_create_cq(ibv_context* raw, int entries, void* user_context, ibv_comp_channel* channel, int vector)
{
    static constinit site here{"ibv_create_cq", ENOMEM};
    entry in{here, raw};
    if (int const code = in.fault()) return null(code);
    context* const on = in.need(the().contexts, raw, "context");
    if (on == nullptr) return null(EFAULT);
    comp_channel* const bell = channel == nullptr ? nullptr : in.need(the().comp_channels, channel, "completion channel");
    if (channel != nullptr && bell == nullptr) return null(EFAULT);
    if (vector < 0 || vector >= raw->num_comp_vectors) return null(EINVAL);
    cq* const made = make_cq(*on, entries, user_context, bell);
    return made == nullptr ? nullptr : made->raw();
}

int ibv_resize_cq(ibv_cq* raw, int entries)
{
    static constinit site here{"ibv_resize_cq", EIO};
    entry in{here, raw};
    if (int const code = in.fault()) return returned(code);
    cq const* const of = in.need(the().cqs, raw, "CQ");
    if (of == nullptr) return returned(EFAULT);
    device const& at = *context_of(raw->context).of;
    if (at.iwarp) return returned(EOPNOTSUPP);
    if (entries < 1 || entries > limits(at).max_cqe || static_cast<std::size_t>(entries) < of->completions.size()) return returned(EINVAL);
    raw->cqe = entries;
    return 0;
}

int ibv_destroy_cq(ibv_cq* raw)
{
    static constinit site here{"ibv_destroy_cq", EIO};
    entry in{here, raw};
    if (int const code = in.fault()) return returned(code);
    cq* const old = in.need(the().cqs, raw, "CQ");
    if (old == nullptr) return returned(EFAULT);
    if (int const code = drop_cq(in, old)) return returned(code);
    return cleaned();
}

int ibv_get_cq_event(ibv_comp_channel* raw, ibv_cq** out, void** user_context)
{
    static constinit site here{"ibv_get_cq_event", EIO};
    entry in{here, raw};
    if (int const code = in.fault()) return minus_one(code);
    comp_channel* const from = in.need(the().comp_channels, raw, "completion channel");
    if (from == nullptr) return minus_one(EBADF);
    auto const alive = [=] { return the().comp_channels.find(raw) == from; };
    if (int const code = in.await(raw->fd, alive, [=] { return !from->events.items.empty(); })) return minus_one(code);
    cq* const of = from->events.pop();
    ++of->comp_reported;
    *out = of->raw();
    *user_context = of->raw()->cq_context;
    return 0;
}

void ibv_ack_cq_events(ibv_cq* raw, unsigned many)
{
    static constinit site here{"ibv_ack_cq_events", 0};
    entry in{here, raw};
    cleaned();
    cq* const of = in.need(the().cqs, raw, "CQ");
    if (of == nullptr) return;
    of->comp_acked += many;
    of->raw()->comp_events_completed += many;
    if (of->comp_acked > of->comp_reported) in.misuse("more CQ events acked than were delivered");
    the().acked.notify_all();
}
