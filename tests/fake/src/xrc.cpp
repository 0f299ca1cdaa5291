// SPDX-License-Identifier: MIT
//
// Domains of extended reliable connections, the QPs that they share, and SRQs of the other kinds: those that a sender names by their
// numbers, and those that match tags.
#include "world.hpp"

#include <fcntl.h>
#include <sys/stat.h>

namespace fake::model {

namespace {

xrcd* make_xrcd(context& on, std::uint64_t domain)
{
    xrcd* const made = new xrcd;
    made->ibv_xrcd::context = on.raw();
    made->domain = domain;
    ++on.children;
    return the().xrcds.add(static_cast<ibv_xrcd*>(made), made);
}

/// The domain that belongs to a file: one that is open already, or a new one if it may be made. 0, and `domain` set, or a code.
int domain_of_file(ibv_xrcd_init_attr const& attr, std::uint64_t& domain)
{
    domain = 0;
    if (attr.fd != -1) {
        struct stat about{};
        if (::fstat(attr.fd, &about) != 0) return EBADF;
        domain = std::uint64_t{1} << 63 | static_cast<std::uint64_t>(about.st_dev) << 40 | static_cast<std::uint64_t>(about.st_ino);
        bool exists = false;
        for (auto const& [raw, each] : the().xrcds) exists = exists || each->domain == domain;
        if (!exists && (attr.oflags & O_CREAT) == 0) return EAGAIN;
        return exists && (attr.oflags & O_EXCL) != 0 ? EINVAL : 0;
    }
    domain = the().next_domain++;
    return 0;
}

ibv_xrcd* op_open_xrcd(ibv_context* raw, ibv_xrcd_init_attr* attr)
{
    static constinit site here{"ibv_open_xrcd", ENOMEM};
    entry in{here, raw};
    if (int const code = in.fault()) return null(code);
    context* const on = in.need(the().contexts, raw, "context");
    if (on == nullptr) return null(EFAULT);
    constexpr std::uint32_t both = static_cast<std::uint32_t>(IBV_XRCD_INIT_ATTR_FD) | IBV_XRCD_INIT_ATTR_OFLAGS;
    if (attr->comp_mask >= IBV_XRCD_INIT_ATTR_RESERVED) return null(ENOSYS);
    if (attr->comp_mask != both) return null(EINVAL);
    std::uint64_t domain = 0;
    if (int const code = domain_of_file(*attr, domain)) return null(code);
    return make_xrcd(*on, domain);
}

int op_close_xrcd(ibv_xrcd* raw)
{
    static constinit site here{"ibv_close_xrcd", EIO};
    entry in{here, raw};
    if (int const code = in.fault()) return returned(code);
    xrcd* const old = in.need(the().xrcds, raw, "XRC domain");
    if (old == nullptr) return returned(EFAULT);
    if (old->library) in.misuse("the XRC domain belongs to librdmacm");
    std::size_t const users = old->users;
    if (int const code = drop_xrcd(old)) {
        if (code == EBUSY) in.misuse("EBUSY: " + std::to_string(users) + " QP(s) and SRQ(s) use the XRC domain");
        return returned(code);
    }
    for (device& each : the().devices)
        if (each.default_xrcd == old) each.default_xrcd = nullptr;
    return cleaned();
}

srq* make_xrc(entry const& in, ibv_srq_init_attr_ex const& attr, ibv_srq_init_attr& plain, int& code)
{
    constexpr std::uint32_t needed = static_cast<std::uint32_t>(IBV_SRQ_INIT_ATTR_TYPE) | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD
        | IBV_SRQ_INIT_ATTR_CQ;
    code = attr.comp_mask == needed ? 0 : EINVAL;
    if (code != 0) return nullptr;
    pd* const domain = in.need(the().pds, attr.pd, "PD");
    xrcd* const extended = in.need(the().xrcds, attr.xrcd, "XRC domain");
    cq* const queue = in.need(the().cqs, attr.cq, "CQ");
    code = EFAULT;
    return domain == nullptr || extended == nullptr || queue == nullptr ? nullptr : make_xrc_srq(*domain, *extended, *queue, plain, code);
}

/// Its tags are kept, and match nothing.
srq* make_matching(entry const& in, ibv_srq_init_attr_ex const& attr, ibv_srq_init_attr& plain, int& code)
{
    constexpr std::uint32_t needed = static_cast<std::uint32_t>(IBV_SRQ_INIT_ATTR_TYPE) | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_CQ
        | IBV_SRQ_INIT_ATTR_TM;
    bool const fits = attr.tm_cap.max_num_tags <= 127 && attr.tm_cap.max_ops <= 8192; // tm_caps
    code = attr.comp_mask == needed && fits ? 0 : EINVAL;
    if (code != 0) return nullptr;
    pd* const domain = in.need(the().pds, attr.pd, "PD");
    cq* const queue = in.need(the().cqs, attr.cq, "CQ");
    code = EFAULT;
    return domain == nullptr || queue == nullptr ? nullptr : make_tag_srq(*domain, *queue, attr.tm_cap, plain, code);
}

ibv_srq* op_create_srq_ex(ibv_context* raw, ibv_srq_init_attr_ex* attr)
{
    static constinit site here{"ibv_create_srq_ex", ENOMEM};
    entry in{here, raw};
    if (int const code = in.fault()) return null(code);
    context const* const on = in.need(the().contexts, raw, "context");
    if (on == nullptr) return null(EFAULT);
    if (on->of->iwarp || !(the().knows_xrc || the().all_features)) return null(EOPNOTSUPP);
    bool const matches = attr->srq_type == IBV_SRQT_TM && the().all_features;
    if (!matches && attr->srq_type != IBV_SRQT_XRC) return null(EINVAL);
    int code = 0;
    ibv_srq_init_attr plain{attr->srq_context, attr->attr};
    srq* const made = matches ? make_matching(in, *attr, plain, code) : make_xrc(in, *attr, plain, code);
    if (made == nullptr) return null(code);
    attr->attr = plain.attr;
    return made;
}

// ---- tags -------------------------------------------------------------------------------------------------------
int apply(srq& to, ibv_ops_wr& op)
{
    ibv_wc wc{};
    wc.wr_id = op.wr_id;
    switch (op.opcode) {
    case IBV_WR_TAG_ADD:
        if (to.tags.size() >= to.matching.max_num_tags) return ENOMEM;
        op.tm.handle = to.next_tag++;
        to.tags[op.tm.handle] = op.tm.add.recv_wr_id;
        wc.opcode = IBV_WC_TM_ADD;
        break;
    case IBV_WR_TAG_DEL:
        if (to.tags.erase(op.tm.handle) == 0) return EINVAL;
        wc.opcode = IBV_WC_TM_DEL;
        break;
    case IBV_WR_TAG_SYNC: wc.opcode = IBV_WC_TM_SYNC; break;
    default: return EINVAL;
    }
    if ((op.flags & IBV_OPS_SIGNALED) != 0) complete(to.queue, wc, false);
    return 0;
}

int op_post_srq_ops(ibv_srq* raw, ibv_ops_wr* first, ibv_ops_wr** bad)
{
    static constinit site here{"ibv_post_srq_ops", EIO};
    entry in{here, raw};
    srq* const to = in.need(the().srqs, raw, "SRQ");
    int code = to == nullptr ? EFAULT : in.fault();
    if (code == 0 && !has_all_features(raw->context)) code = EOPNOTSUPP;
    if (code == 0 && to->matching.max_num_tags == 0) code = EINVAL; // it matches none
    ibv_ops_wr* op = first;
    for (; op != nullptr && code == 0; op = op->next) {
        code = apply(*to, *op);
        if (code != 0) break;
    }
    if (code != 0 && bad != nullptr) *bad = op;
    return returned(code);
}

// ---- shared QPs -------------------------------------------------------------------------------------------------
/// One more handle of a QP of type XRC_RECV: both lead to one.
ibv_qp* op_open_qp(ibv_context* raw, ibv_qp_open_attr* attr)
{
    static constinit site here{"ibv_open_qp", ENOMEM};
    entry in{here, raw};
    if (int const code = in.fault()) return null(code);
    context* const on = in.need(the().contexts, raw, "context");
    if (on == nullptr) return null(EFAULT);
    if (!the().knows_xrc || on->of->iwarp) return null(EOPNOTSUPP);
    constexpr std::uint32_t needed = static_cast<std::uint32_t>(IBV_QP_OPEN_ATTR_NUM) | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;
    if ((attr->comp_mask & needed) != needed || attr->comp_mask >= IBV_QP_OPEN_ATTR_RESERVED) return null(EINVAL);
    xrcd* const domain = in.need(the().xrcds, attr->xrcd, "XRC domain");
    auto const found = the().qp_numbers.find(attr->qp_num);
    if (domain == nullptr) return null(EFAULT);
    if (found == the().qp_numbers.end() || found->second->domain == nullptr || found->second->domain->domain != domain->domain) return null(EINVAL);
    if (attr->qp_type != IBV_QPT_XRC_RECV) return null(EINVAL);
    qp& shared = *found->second;
    std::uint32_t const number = attr->qp_num;
    int code = 0;
    ibv_qp_init_attr init{};
    init.qp_type = IBV_QPT_XRC_RECV;
    if ((attr->comp_mask & IBV_QP_OPEN_ATTR_CONTEXT) != 0) init.qp_context = attr->qp_context;
    qp* const made = make_qp(*on, nullptr, domain, init, code);
    if (made == nullptr) return null(code);
    the().qp_numbers.erase(made->qp_base.qp_num);
    made->qp_base.qp_num = number;
    made->qp_base.state = shared.qp_base.state;
    return made->raw();
}

} // namespace

xrcd* default_xrcd(device& of)
{
    if (of.default_xrcd != nullptr) return of.default_xrcd;
    if (!the().knows_xrc || of.iwarp) return null(EOPNOTSUPP);
    of.default_xrcd = make_xrcd(*of.shared, the().next_domain++);
    of.default_xrcd->library = true;
    return of.default_xrcd;
}

int drop_xrcd(xrcd* old)
{
    if (cut_off(old->ibv_xrcd::context)) return lose(*old, old->ibv_xrcd::context);
    if (old->users != 0) return EBUSY;
    the().xrcds.forget(static_cast<ibv_xrcd*>(old));
    --context_of(old->ibv_xrcd::context).children;
    delete old;
    return 0;
}

void fill_xrc_operations(context& of)
{
    bool const known = the().knows_xrc && of.raw()->device->transport_type != IBV_TRANSPORT_IWARP;
    of.open_xrcd = known ? op_open_xrcd : nullptr;
    of.close_xrcd = known ? op_close_xrcd : nullptr;
    of.create_srq_ex = op_create_srq_ex;
    of.post_srq_ops = op_post_srq_ops;
    of.open_qp = op_open_qp;
}

} // namespace fake::model

using namespace fake::model;

namespace fake {

void set_xrc(bool known)
{
    visit here;
    the().knows_xrc = known;
    for (auto const& [raw, each] : the().contexts) fill_xrc_operations(*each);
}

} // namespace fake
