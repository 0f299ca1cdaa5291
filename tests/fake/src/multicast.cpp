// SPDX-License-Identifier: MIT
//
// Multicast groups.
#include "world.hpp"

#include <algorithm>
#include <cstring>

namespace fake::model {

namespace {

constexpr std::uint16_t group_lid = 0xc000;

/// The QP is attached while the event is read, unless the group was joined for sending alone.
bool attach_own_qp(cm const& id, group const& to)
{
    qp* const own = the().qps.find(id.qp);
    if (own == nullptr || to.flags == RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER) return true;
    return attach(*own, to.mgid, to.mlid) == 0;
}

int join(entry& in, cm& id, sockaddr const* raw, unsigned flags, void* user_context)
{
    address const at{raw};
    if (at.empty()) return minus_one(EINVAL);
    endpoint const& kernel = *id.kernel;
    if (kernel.at == nullptr || id.qp_type != IBV_QPT_UD) return minus_one(EINVAL);
    if (kernel.at->iwarp) return minus_one(ENOSYS);
    if (kernel.state != phase::bound && kernel.state != phase::addr_resolved) return minus_one(EINVAL);

    group* const made = new group;
    the().groups.add(made, made);
    made->id = &id;
    made->at = at;
    made->context = user_context;
    made->flags = flags;
    made->mgid = at.gid();
    made->mlid = group_lid;
    id.groups.push_back(made);

    pending item;
    item.target = &id;
    item.mc = made;
    item.type = at.multicast() ? RDMA_CM_EVENT_MULTICAST_JOIN : RDMA_CM_EVENT_MULTICAST_ERROR;
    item.status = at.multicast() ? 0 : -EINVAL;
    item.ud.ah_attr.is_global = 1;
    item.ud.ah_attr.port_num = 1;
    item.ud.ah_attr.dlid = group_lid;
    item.ud.ah_attr.grh.dgid = made->mgid;
    item.ud.ah_attr.grh.hop_limit = 1;
    item.ud.qp_num = 0xffffff;
    item.ud.qkey = RDMA_UDP_QKEY;
    consequence(std::move(item));
    return finish(in, id);
}

/// librdmacm compares the bytes of the address, port and padding included.
group* find_group(cm const& id, address const& at)
{
    for (auto each = id.groups.rbegin(); each != id.groups.rend(); ++each)
        if (std::memcmp((*each)->at.raw(), at.raw(), at.size()) == 0) return *each;
    return nullptr;
}

void drop_events(group const& of)
{
    auto const hers = [&of](pending const& item) { return item.mc == &of; };
    for (auto const& [raw, each] : the().channels) each->events.remove(hers);
    auto& held = the().held;
    held.erase(std::remove_if(held.begin(), held.end(), hers), held.end());
}

int leave(entry& in, cm& id, address const& at)
{
    group* const old = find_group(id, at);
    if (old == nullptr) return minus_one(EADDRNOTAVAIL);
    std::string const owed = std::to_string(old->reported - old->completed) + " event(s) of the group are not acked";
    if (!in.settles([old] { return old->completed >= old->reported; }, owed)) return minus_one(EDEADLK);
    if (qp* const own = the().qps.find(id.qp); own != nullptr && old->flags != RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER)
        detach(*own, old->mgid, old->mlid);
    drop_events(*old);
    id.groups.erase(std::remove(id.groups.begin(), id.groups.end(), old), id.groups.end());
    the().groups.forget(old);
    delete old;
    return 0;
}

} // namespace

/// False: the QP could not be attached, and MULTICAST_ERROR is what the program gets.
bool joined(cm& id, pending& item)
{
    return item.type != RDMA_CM_EVENT_MULTICAST_JOIN || attach_own_qp(id, *item.mc);
}

void forget_groups(cm& id)
{
    for (group* each : id.groups) drop_events(*each);
}

} // namespace fake::model

using namespace fake::model;

int rdma_join_multicast(rdma_cm_id* raw, sockaddr* at, void* user_context)
{
    static constinit site here{"rdma_join_multicast", EIO};
    entry in{here, raw};
    if (int const code = in.fault()) return minus_one(code);
    cm* const id = in.command(raw);
    return id == nullptr ? -1 : join(in, *id, at, RDMA_MC_JOIN_FLAG_FULLMEMBER, user_context);
}

int rdma_join_multicast_ex(rdma_cm_id* raw, rdma_cm_join_mc_attr_ex* attr, void* user_context)
{
    static constinit site here{"rdma_join_multicast_ex", EIO};
    entry in{here, raw};
    if (int const code = in.fault()) return minus_one(code);
    cm* const id = in.command(raw);
    if (id == nullptr) return -1;
    if (attr->comp_mask >= RDMA_CM_JOIN_MC_ATTR_RESERVED) return minus_one(ENOTSUP);
    constexpr unsigned both = static_cast<unsigned>(RDMA_CM_JOIN_MC_ATTR_ADDRESS) | static_cast<unsigned>(RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS);
    if (attr->comp_mask != both || attr->join_flags >= RDMA_MC_JOIN_FLAG_RESERVED) return minus_one(EINVAL);
    return join(in, *id, attr->addr, attr->join_flags, user_context);
}

int rdma_leave_multicast(rdma_cm_id* raw, sockaddr* at)
{
    static constinit site here{"rdma_leave_multicast", EIO};
    entry in{here, raw};
    if (int const code = in.fault()) return minus_one(code);
    cm* const id = in.command(raw);
    if (id == nullptr) return -1;
    address const which{at};
    return which.empty() ? minus_one(EINVAL) : leave(in, *id, which);
}
