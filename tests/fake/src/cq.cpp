// SPDX-License-Identifier: MIT
//
// Completion queues, their channels and events.
#include "world.hpp"

#include <algorithm>
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
    if (old->users != 0) {
        in.misuse("EBUSY: " + std::to_string(old->users) + " use(s) of the CQ by QPs and SRQs");
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

void notify(cq& of)
{
    of.armed = cq::arming::none;
    if (of.bell != nullptr) of.bell->events.push(&of);
}

} // namespace

void complete(cq* into, ibv_wc const& wc, bool solicited)
{
    if (into == nullptr) return;
    if (into->completions.size() >= static_cast<std::size_t>(into->raw()->cqe)) {
        if (into->overrun) return;
        into->overrun = true;
        ibv_async_event lost{};
        lost.element.cq = into->raw();
        lost.event_type = IBV_EVENT_CQ_ERR;
        raise(context_of(into->raw()->context), lost, into->raw());
        return;
    }
    into->completions.push_back(as_delivered(wc));
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

int step_poll(ibv_cq_ex* raw)
{
    cq* const of = extended(raw);
    if (of == nullptr || of->completions.empty()) return ENOENT;
    of->current = of->completions.front();
    of->completions.pop_front();
    raw->status = of->current.status;
    raw->wr_id = of->current.wr_id;
    return 0;
}

int op_start_poll(ibv_cq_ex* raw, ibv_poll_cq_attr* attr)
{
    static constinit site here{"ibv_start_poll", EIO};
    entry in{here, raw};
    if (int const code = in.fault()) return returned(code);
    if (in.need(the().cqs, raw, "CQ") == nullptr) return returned(EFAULT);
    return attr->comp_mask != 0 ? returned(EINVAL) : step_poll(raw);
}

int op_next_poll(ibv_cq_ex* raw)
{
    static constinit site here{"ibv_next_poll", EIO};
    entry in{here, raw};
    if (int const code = in.fault()) return returned(code);
    return step_poll(raw);
}

void op_end_poll(ibv_cq_ex* raw)
{
    static constinit site here{"ibv_end_poll", 0};
    entry in{here, raw};
}

/// One of the ibv_wc_read_… functions: a field of the completion that ibv_start_poll or ibv_next_poll came to.
template <auto Field, site& Where>
auto op_read(ibv_cq_ex* raw)
{
    entry in{Where, raw};
    return extended(raw)->current.*Field;
}

constinit site read_opcode{"ibv_wc_read_opcode", 0}, read_vendor_err{"ibv_wc_read_vendor_err", 0}, read_byte_len{"ibv_wc_read_byte_len", 0},
    read_qp_num{"ibv_wc_read_qp_num", 0}, read_src_qp{"ibv_wc_read_src_qp", 0}, read_wc_flags{"ibv_wc_read_wc_flags", 0},
    read_sl{"ibv_wc_read_sl", 0}, read_dlid_path_bits{"ibv_wc_read_dlid_path_bits", 0};

std::uint32_t op_read_slid(ibv_cq_ex* raw)
{
    static constinit site here{"ibv_wc_read_slid", 0};
    entry in{here, raw};
    return extended(raw)->current.slid;
}

__be32 op_read_imm_data(ibv_cq_ex* raw)
{
    static constinit site here{"ibv_wc_read_imm_data", 0};
    entry in{here, raw};
    return extended(raw)->current.imm_data;
}

ibv_cq_ex* op_create_cq_ex(ibv_context* raw, ibv_cq_init_attr_ex* attr)
{
    static constinit site here{"ibv_create_cq_ex", ENOMEM};
    entry in{here, raw};
    if (int const code = in.fault()) return null(code);
    context* const on = in.need(the().contexts, raw, "context");
    if (on == nullptr) return null(EFAULT);
    if (attr->comp_mask != 0 || (attr->wc_flags & ~std::uint64_t{IBV_WC_STANDARD_FLAGS}) != 0) return null(EOPNOTSUPP);
    if (attr->comp_vector >= static_cast<std::uint32_t>(raw->num_comp_vectors)) return null(EINVAL);
    comp_channel* const bell = attr->channel == nullptr ? nullptr : in.need(the().comp_channels, attr->channel, "completion channel");
    if (attr->channel != nullptr && bell == nullptr) return null(EFAULT);
    cq* const made = make_cq(*on, static_cast<int>(attr->cqe), attr->cq_context, bell);
    if (made == nullptr) return nullptr;
    made->start_poll = op_start_poll;
    made->next_poll = op_next_poll;
    made->end_poll = op_end_poll;
    made->read_opcode = op_read<&ibv_wc::opcode, read_opcode>;
    made->read_vendor_err = op_read<&ibv_wc::vendor_err, read_vendor_err>;
    made->read_byte_len = op_read<&ibv_wc::byte_len, read_byte_len>;
    made->read_imm_data = op_read_imm_data;
    made->read_qp_num = op_read<&ibv_wc::qp_num, read_qp_num>;
    made->read_src_qp = op_read<&ibv_wc::src_qp, read_src_qp>;
    made->read_wc_flags = op_read<&ibv_wc::wc_flags, read_wc_flags>;
    made->read_slid = op_read_slid;
    made->read_sl = op_read<&ibv_wc::sl, read_sl>;
    made->read_dlid_path_bits = op_read<&ibv_wc::dlid_path_bits, read_dlid_path_bits>;
    return made;
}

} // namespace

void fill_cq_operations(context& of, bool iwarp)
{
    of.raw()->ops.poll_cq = op_poll_cq;
    of.raw()->ops.req_notify_cq = op_req_notify_cq;
    if (!iwarp) of.create_cq_ex = op_create_cq_ex; // siw has none
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

void push_completion(ibv_cq* raw, ibv_wc const& wc)
{
    visit here;
    complete(the().cqs.find(raw), wc, true);
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
