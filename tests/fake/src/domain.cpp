// SPDX-License-Identifier: MIT
//
// Thread domains and parent domains.
#include "world.hpp"

namespace fake::model {

namespace {

ibv_td* op_alloc_td(ibv_context* raw, ibv_td_init_attr* attr)
{
    static constinit site here{"ibv_alloc_td", ENOMEM};
    entry in{here, raw};
    if (int const code = barred(in, raw)) return null(code);
    if (attr->comp_mask != 0) return null(EINVAL);
    td* const made = new td;
    made->ibv_td::context = raw;
    ++context_of(raw).children;
    return the().tds.add(static_cast<ibv_td*>(made), made);
}

int op_dealloc_td(ibv_td* raw)
{
    static constinit site here{"ibv_dealloc_td", EIO};
    entry in{here, raw};
    if (int const code = in.fault()) return returned(code);
    td* const old = in.need(the().tds, raw, "thread domain");
    if (old == nullptr) return returned(EFAULT);
    if (old->users != 0) {
        in.misuse("EBUSY: " + std::to_string(old->users) + " parent domain(s) use the thread domain");
        return returned(EBUSY);
    }
    --context_of(raw->context).children; // it is in user space alone: a removed device has no say
    the().tds.forget(raw);
    delete old;
    return cleaned();
}

int check(ibv_parent_domain_init_attr const& attr)
{
    constexpr std::uint32_t known = unsigned{IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS} | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT;
    if (attr.pd == nullptr || (attr.comp_mask & ~known) != 0) return EINVAL;
    bool const allocates = (attr.comp_mask & IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS) != 0;
    return allocates && (attr.alloc == nullptr || attr.free == nullptr) ? EINVAL : 0;
}

ibv_pd* op_alloc_parent_domain(ibv_context* raw, ibv_parent_domain_init_attr* attr)
{
    static constinit site here{"ibv_alloc_parent_domain", ENOMEM};
    entry in{here, raw};
    if (int const code = barred(in, raw)) return null(code);
    if (int const code = check(*attr)) return null(code);
    pd* const inner = in.need(the().pds, attr->pd, "PD");
    td* const thread = attr->td == nullptr ? nullptr : in.need(the().tds, attr->td, "thread domain");
    if (inner == nullptr || (attr->td != nullptr && thread == nullptr)) return null(EFAULT);
    if (inner->ibv_pd::context != raw) return null(EINVAL);
    pd* const made = make_pd(context_of(raw), false);
    made->handle = inner->handle; // to the kernel it is the same
    made->inner = inner;
    made->thread = thread;
    ++inner->users;
    if (thread != nullptr) ++thread->users;
    return made;
}

} // namespace

void fill_domain_operations(context& of)
{
    of.alloc_td = op_alloc_td;
    of.dealloc_td = op_dealloc_td;
    of.alloc_parent_domain = op_alloc_parent_domain;
}

} // namespace fake::model
