// SPDX-License-Identifier: MIT
//
// Multicast groups.
#include "world.hpp"

#include <algorithm>
#include <cstring>

namespace fake::model {

namespace {

constexpr int kernel_enotsupp = 524; // ENOTSUPP of the kernel, which errno.h does not know

/// The QP is attached while the event is read, unless the group was joined for sending alone.
bool attach_own_qp(cm const& id, group const& to)
{
    qp* const own = the().qps.find(id.qp);
    if (own == nullptr || to.flags == RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER) return true;
    return attach(*own, to.mgid, to.mlid) == 0;
}

/// Why the kernel does not even begin; 0: it does.
int refusal(endpoint const& by, address const& at)
{
    if (by.at == nullptr || by.qp_type != IBV_QPT_UD) return EINVAL;
    if (by.state != phase::bound && by.state != phase::addr_resolved) return EINVAL;
    if (by.at->iwarp) return ENOSYS;
    if (at.any()) return EINVAL;
    return at.family() == AF_INET6 ? kernel_enotsupp : 0; // RoCE v2 has no such groups
}

std::uint8_t gid_index(endpoint const& of)
{
    auto const& hosts = of.at->hosts;
    auto const mine = std::find_if(hosts.begin(), hosts.end(), [&](address const& host) { return host.same_host(of.local); });
    return static_cast<std::uint8_t>(mine == hosts.end() ? 0 : mine - hosts.begin());
}

group* make_group(cm& id, address const& at, unsigned flags, void* user_context)
{
    group* const made = new group;
    made->id = &id;
    made->at = at;
    made->context = user_context;
    made->flags = flags;
    made->serial = the().next_serial++;
    made->mgid = at.gid();
    id.groups.push_back(made);
    return the().groups.add(made, made);
}

/// How the join ends: well, unless the test wants it otherwise.
pending outcome(cm& id, group& joined)
{
    pending item;
    item.target = &id;
    item.mc = &joined;
    if (auto& failures = the().join_failures; !failures.empty()) {
        item.type = RDMA_CM_EVENT_MULTICAST_ERROR;
        item.status = failures.front();
        failures.pop_front();
        return item;
    }
    item.type = RDMA_CM_EVENT_MULTICAST_JOIN;
    item.ud.ah_attr.is_global = 1;
    item.ud.ah_attr.port_num = 1;
    item.ud.ah_attr.grh.dgid = joined.mgid;
    item.ud.ah_attr.grh.sgid_index = gid_index(*id.kernel);
    item.ud.ah_attr.grh.hop_limit = 64;
    item.ud.qp_num = 0xffffff;
    item.ud.qkey = RDMA_UDP_QKEY;
    return item;
}

int join(entry& in, cm& id, sockaddr const* raw, unsigned flags, void* user_context)
{
    address const at{raw};
    if (at.empty()) return minus_one(EINVAL);
    if (int const code = refusal(*id.kernel, at)) return minus_one(code);
    consequence(outcome(id, *make_group(id, at, flags, user_context)));
    return finish(in, id);
}

void drop_events(group const& of)
{
    auto const hers = [&of](pending const& item) { return item.mc == &of; };
    for (auto const& [raw, each] : the().channels) each->events.remove(hers);
    auto& held = the().held;
    held.erase(std::remove_if(held.begin(), held.end(), hers), held.end());
}

void forget(cm& id, group* old)
{
    if (qp* const own = the().qps.find(id.qp); own != nullptr && old->flags != RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER)
        detach(*own, old->mgid, old->mlid);
    drop_events(*old);
    id.groups.erase(std::remove(id.groups.begin(), id.groups.end(), old), id.groups.end());
    the().groups.forget(old);
    delete old;
}

/// When the kernel fails, librdmacm has forgotten the group all the same: it is not to be left again.
int leave(entry& in, cm& id, address const& at, int failure)
{
    if (at.empty()) return minus_one(EINVAL);
    group* const old = find_group(id, at);
    if (old == nullptr) return minus_one(EADDRNOTAVAIL);
    std::string const owed = std::to_string(old->reported - old->completed) + " event(s) of the group are not acked";
    if (failure == 0 && !in.settles([old] { return old->completed >= old->reported; }, owed)) return minus_one(EDEADLK);
    forget(id, old);
    return failure == 0 ? 0 : minus_one(failure);
}

/// Why the kernel will not take a command about this id; 0: it will.
int kernel_refuses(cm const& id)
{
    if (the().credentials_changed) return EACCES;
    if (id.kernel->file == nullptr) return EBADF;
    return id.kernel->gone ? ENXIO : 0;
}

} // namespace

/// librdmacm compares the bytes of the address, port and padding included, from the newest group to the oldest.
group* find_group(cm const& id, address const& at)
{
    for (auto each = id.groups.rbegin(); each != id.groups.rend(); ++each)
        if (std::memcmp((*each)->at.raw(), at.raw(), at.size()) == 0) return *each;
    return nullptr;
}

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
    cm* const id = in.need(the().ids, raw, "id");
    if (id == nullptr) return minus_one(EBADF);
    return leave(in, *id, address{at}, in.fault() != 0 ? in.fault() : kernel_refuses(*id));
}

// ---- fake.hpp ---------------------------------------------------------------------------------------------------
namespace fake {

void fail_join(int status) { visit here; the().join_failures.push_back(status); }

} // namespace fake
