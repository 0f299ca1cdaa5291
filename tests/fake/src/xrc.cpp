// SPDX-License-Identifier: MIT
//
// Domains of extended reliable connections, and the SRQs in them that a sender names by their numbers.
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

ibv_srq* op_create_srq_ex(ibv_context* raw, ibv_srq_init_attr_ex* attr)
{
    static constinit site here{"ibv_create_srq_ex", ENOMEM};
    entry in{here, raw};
    if (int const code = in.fault()) return null(code);
    constexpr std::uint32_t needed = static_cast<std::uint32_t>(IBV_SRQ_INIT_ATTR_TYPE) | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD
        | IBV_SRQ_INIT_ATTR_CQ;
    if (attr->comp_mask != needed || attr->srq_type != IBV_SRQT_XRC) return null(EINVAL);
    pd* const domain = in.need(the().pds, attr->pd, "PD");
    xrcd* const extended = in.need(the().xrcds, attr->xrcd, "XRC domain");
    cq* const queue = in.need(the().cqs, attr->cq, "CQ");
    if (domain == nullptr || extended == nullptr || queue == nullptr) return null(EFAULT);
    int code = 0;
    ibv_srq_init_attr plain{attr->srq_context, attr->attr};
    srq* const made = make_xrc_srq(*domain, *extended, *queue, plain, code);
    if (made == nullptr) return null(code);
    attr->attr = plain.attr;
    return made;
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
    of.create_srq_ex = known ? op_create_srq_ex : nullptr;
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
