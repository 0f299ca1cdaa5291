// SPDX-License-Identifier: MIT
//
// Work queues outside of QPs, and the tables that spread what arrives over them.
#include "world.hpp"

namespace fake::model {

namespace {

/// Resets it, or gives back what was posted.
void empty(wq& of, bool flushes)
{
    for (; !of.receives.empty(); of.receives.pop_front()) {
        if (!flushes) continue;
        ibv_wc wc{};
        wc.wr_id = of.receives.front().wr_id;
        wc.status = IBV_WC_WR_FLUSH_ERR;
        wc.qp_num = of.wq_num;
        complete(the().cqs.find(of.ibv_wq::cq), wc, false);
    }
}

int post(wq& on, ibv_recv_wr const& wr)
{
    if (wr.num_sge < 0 || static_cast<std::uint32_t>(wr.num_sge) > on.max_sge) return EINVAL;
    if (on.receives.size() >= on.max_wr) return ENOMEM;
    receive made{wr.wr_id, {}};
    if (wr.num_sge > 0) made.buffers.assign(wr.sg_list, wr.sg_list + wr.num_sge);
    on.receives.push_back(std::move(made));
    if (on.state == IBV_WQS_ERR) empty(on, true);
    return 0;
}

int op_post_recv(ibv_wq* raw, ibv_recv_wr* first, ibv_recv_wr** bad)
{
    static constinit site here{"ibv_post_wq_recv", EIO};
    entry in{here, raw};
    wq* const on = in.need(the().wqs, raw, "WQ");
    int code = on == nullptr ? EFAULT : in.fault();
    ibv_recv_wr* wr = first;
    for (; wr != nullptr && code == 0; wr = wr->next) {
        code = post(*on, *wr);
        if (code != 0) break;
    }
    if (code != 0 && bad != nullptr) *bad = wr;
    return returned(code);
}

ibv_wq* op_create_wq(ibv_context* raw, ibv_wq_init_attr* attr)
{
    static constinit site here{"ibv_create_wq", ENOMEM};
    entry in{here, raw};
    if (int const code = barred(in, raw)) return null(code);
    constexpr std::uint32_t flags = IBV_WQ_FLAGS_RESERVED - 1;
    if (attr->wq_type != IBV_WQT_RQ || attr->comp_mask >= IBV_WQ_INIT_ATTR_RESERVED) return null(EINVAL);
    if ((attr->comp_mask & IBV_WQ_INIT_ATTR_FLAGS) != 0 && (attr->create_flags & ~flags) != 0) return null(EOPNOTSUPP);
    pd* const domain = in.need(the().pds, attr->pd, "PD");
    cq* const queue = in.need(the().cqs, attr->cq, "CQ");
    if (domain == nullptr || queue == nullptr) return null(EFAULT);
    ibv_device_attr const most = limits(*context_of(raw).of);
    bool const fits = attr->max_wr >= 1 && attr->max_wr <= static_cast<std::uint32_t>(most.max_qp_wr)
        && attr->max_sge <= static_cast<std::uint32_t>(most.max_sge);
    if (!fits) return null(EINVAL);
    wq* const made = new wq;
    made->ibv_wq::context = raw;
    made->ibv_wq::pd = attr->pd;
    made->ibv_wq::cq = attr->cq;
    made->wq_num = the().next_qpn++;
    made->handle = the().next_handle++;
    made->state = IBV_WQS_RESET;
    made->wq_type = attr->wq_type;
    made->post_recv = op_post_recv;
    made->max_wr = attr->max_wr;
    made->max_sge = attr->max_sge;
    made->flags = (attr->comp_mask & IBV_WQ_INIT_ATTR_FLAGS) != 0 ? attr->create_flags : 0;
    ++domain->users;
    ++queue->users;
    ++context_of(raw).children;
    return the().wqs.add(static_cast<ibv_wq*>(made), made);
}

int op_modify_wq(ibv_wq* raw, ibv_wq_attr* attr)
{
    static constinit site here{"ibv_modify_wq", EIO};
    entry in{here, raw};
    if (int const code = in.fault()) return returned(code);
    wq* const of = in.need(the().wqs, raw, "WQ");
    if (of == nullptr) return returned(EFAULT);
    if (cut_off(raw->context)) return returned(EIO);
    auto const has = [attr](std::uint32_t bit) { return (attr->attr_mask & bit) != 0; };
    if (attr->attr_mask == 0 || attr->attr_mask >= IBV_WQ_ATTR_RESERVED) return returned(EINVAL);
    if (has(IBV_WQ_ATTR_CURR_STATE) && attr->curr_wq_state != raw->state) return returned(EINVAL);
    if (has(IBV_WQ_ATTR_FLAGS)) of->flags = (of->flags & ~attr->flags_mask) | (attr->flags & attr->flags_mask);
    if (!has(IBV_WQ_ATTR_STATE)) return 0;
    bool const may = attr->wq_state == IBV_WQS_RESET || attr->wq_state == raw->state || (attr->wq_state == IBV_WQS_RDY && raw->state == IBV_WQS_RESET)
        || (attr->wq_state == IBV_WQS_ERR && raw->state == IBV_WQS_RDY);
    if (!may) return returned(EINVAL);
    raw->state = attr->wq_state;
    if (raw->state != IBV_WQS_RDY) empty(*of, raw->state == IBV_WQS_ERR);
    return 0;
}

/// As with QPs, events that were got are waited for, and the others are dropped.
int op_destroy_wq(ibv_wq* raw)
{
    static constinit site here{"ibv_destroy_wq", EIO};
    entry in{here, raw};
    if (int const code = in.fault()) return returned(code);
    wq* const old = in.need(the().wqs, raw, "WQ");
    if (old == nullptr) return returned(EFAULT);
    if (cut_off(raw->context)) return returned(lose(*old, raw->context));
    if (old->users != 0) {
        in.misuse("EBUSY: " + std::to_string(old->users) + " use(s) of the WQ in indirection tables");
        return returned(EBUSY);
    }
    std::string const owed = "WQ has " + std::to_string(old->async_reported) + " async event(s) delivered, " + std::to_string(old->async_acked) + " acked";
    if (!in.settles([old] { return old->async_acked == old->async_reported; }, owed)) return returned(EDEADLK);
    context& on = context_of(raw->context);
    on.async.remove([raw](async_item const& item) { return item.object == raw; });
    --on.children;
    if (pd* const domain = the().pds.find(raw->pd)) --domain->users;
    if (cq* const queue = the().cqs.find(raw->cq)) --queue->users;
    pthread_cond_destroy(&raw->cond);
    pthread_mutex_destroy(&raw->mutex);
    the().wqs.forget(raw);
    delete old;
    return cleaned();
}

// ---- tables -----------------------------------------------------------------------------------------------------
ibv_rwq_ind_table* op_create_table(ibv_context* raw, ibv_rwq_ind_table_init_attr* attr)
{
    static constinit site here{"ibv_create_rwq_ind_table", ENOMEM};
    entry in{here, raw};
    if (int const code = barred(in, raw)) return null(code);
    if (attr->comp_mask != 0 || attr->log_ind_tbl_size > 7) return null(EINVAL); // max_rwq_indirection_table_size
    std::vector<wq*> queues;
    for (std::size_t i = 0; i < std::size_t{1} << attr->log_ind_tbl_size; ++i) {
        wq* const each = in.need(the().wqs, attr->ind_tbl[i], "WQ");
        if (each == nullptr) return null(EFAULT);
        queues.push_back(each);
    }
    table* const made = new table;
    made->ibv_rwq_ind_table::context = raw;
    made->ind_tbl_handle = static_cast<int>(the().next_handle++);
    made->ind_tbl_num = made->ind_tbl_handle;
    for (wq* each : queues) ++each->users;
    made->queues = std::move(queues);
    ++context_of(raw).children;
    return the().tables.add(static_cast<ibv_rwq_ind_table*>(made), made);
}

int op_destroy_table(ibv_rwq_ind_table* raw)
{
    static constinit site here{"ibv_destroy_rwq_ind_table", EIO};
    entry in{here, raw};
    if (int const code = in.fault()) return returned(code);
    table* const old = in.need(the().tables, raw, "indirection table");
    if (old == nullptr) return returned(EFAULT);
    if (cut_off(raw->context)) return returned(lose(*old, raw->context));
    if (old->users != 0) {
        in.misuse("EBUSY: " + std::to_string(old->users) + " QP(s) use the indirection table");
        return returned(EBUSY);
    }
    for (wq* each : old->queues) --each->users;
    --context_of(raw->context).children;
    the().tables.forget(raw);
    delete old;
    return cleaned();
}

} // namespace

void fill_wq_operations(context& of)
{
    of.create_wq = op_create_wq;
    of.modify_wq = op_modify_wq;
    of.destroy_wq = op_destroy_wq;
    of.create_rwq_ind_table = op_create_table;
    of.destroy_rwq_ind_table = op_destroy_table;
}

} // namespace fake::model
