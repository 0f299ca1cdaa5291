// SPDX-License-Identifier: MIT
//
// Addresses, and the ports that ids hold.
#include "world.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include <arpa/inet.h>

namespace fake::model {

// ---- address ----------------------------------------------------------------------------------------------------
namespace {

socklen_t length_of(sa_family_t family)
{
    if (family == AF_INET) return sizeof(sockaddr_in);
    if (family == AF_INET6) return sizeof(sockaddr_in6);
    return 0;
}

bool is_zero(in6_addr const& a) { return std::memcmp(&a, &in6addr_any, sizeof a) == 0; }

} // namespace

address::address(sockaddr const* from)
{
    if (from != nullptr) std::memcpy(&storage_, from, length_of(from->sa_family));
}

address address::parse(char const* host, std::uint16_t port, std::uint32_t scope)
{
    address made;
    if (::inet_pton(AF_INET, host, &made.v4_.sin_addr) == 1) {
        made.v4_.sin_family = AF_INET;
    } else {
        made.storage_ = {};
        made.v6_.sin6_family = AF_INET6;
        ::inet_pton(AF_INET6, host, &made.v6_.sin6_addr);
        made.v6_.sin6_scope_id = scope;
    }
    made.port(port);
    return made;
}

socklen_t address::size() const noexcept { return length_of(family()); }

std::uint16_t address::port() const noexcept
{
    if (family() == AF_INET) return ntohs(v4_.sin_port);
    return family() == AF_INET6 ? ntohs(v6_.sin6_port) : std::uint16_t{0};
}

void address::port(std::uint16_t host_order) noexcept
{
    if (family() == AF_INET) v4_.sin_port = htons(host_order);
    if (family() == AF_INET6) v6_.sin6_port = htons(host_order);
}

std::uint32_t address::scope() const noexcept { return family() == AF_INET6 ? v6_.sin6_scope_id : 0; }

bool address::any() const noexcept
{
    if (family() == AF_INET) return v4_.sin_addr.s_addr == 0;
    return family() == AF_INET6 && is_zero(v6_.sin6_addr);
}

bool address::loopback() const noexcept
{
    if (family() == AF_INET) return (ntohl(v4_.sin_addr.s_addr) >> 24) == 127;
    return family() == AF_INET6 && std::memcmp(&v6_.sin6_addr, &in6addr_loopback, sizeof in6addr_loopback) == 0;
}

bool address::link_local() const noexcept
{
    return family() == AF_INET6 && v6_.sin6_addr.s6_addr[0] == 0xfe && (v6_.sin6_addr.s6_addr[1] & 0xc0) == 0x80;
}

bool address::multicast() const noexcept
{
    if (family() == AF_INET) return (ntohl(v4_.sin_addr.s_addr) >> 28) == 0xe;
    return family() == AF_INET6 && v6_.sin6_addr.s6_addr[0] == 0xff;
}

bool address::same_host(address const& other) const noexcept
{
    if (family() != other.family()) return false;
    if (family() == AF_INET) return v4_.sin_addr.s_addr == other.v4_.sin_addr.s_addr;
    return std::memcmp(&v6_.sin6_addr, &other.v6_.sin6_addr, sizeof v6_.sin6_addr) == 0
        && (!link_local() || scope() == other.scope());
}

ibv_gid address::gid() const noexcept
{
    ibv_gid made{};
    if (family() == AF_INET6) {
        std::memcpy(made.raw, &v6_.sin6_addr, sizeof made.raw);
    } else if (family() == AF_INET) {
        made.raw[10] = made.raw[11] = 0xff;
        std::memcpy(made.raw + 12, &v4_.sin_addr, 4);
    }
    return made;
}

std::string address::text() const
{
    char host[INET6_ADDRSTRLEN] = "?";
    if (family() == AF_INET) ::inet_ntop(AF_INET, &v4_.sin_addr, host, sizeof host);
    if (family() == AF_INET6) ::inet_ntop(AF_INET6, &v6_.sin6_addr, host, sizeof host);
    return std::string{host} + " port " + std::to_string(port());
}

// ---- devices by address -----------------------------------------------------------------------------------------
bool device::has(address const& host) const
{
    return std::any_of(hosts.begin(), hosts.end(), [&](address const& mine) { return mine.same_host(host); });
}

bool device::reaches(address const& host) const
{
    if (host.link_local()) return host.scope() == scope;
    auto const prefix = host.family() == AF_INET ? 15U : 8U; // in bytes of the GID: a /24 and a /64
    ibv_gid const wanted = host.gid();
    return std::any_of(hosts.begin(), hosts.end(), [&](address const& mine) {
        return mine.family() == host.family() && std::memcmp(mine.gid().raw, wanted.raw, prefix) == 0;
    });
}

std::vector<ibv_gid> device::gids() const
{
    std::vector<ibv_gid> table;
    if (iwarp) { // siw has one: its hardware address, then zeros
        ibv_gid mac{};
        mac.raw[0] = 0x02, mac.raw[5] = 0x02;
        table.push_back(mac);
        return table;
    }
    for (address const& host : hosts) table.push_back(host.gid());
    return table;
}

device* device_of(address const& host)
{
    // Linux picks a device for the loopback address, too; only a route cannot be found then.
    for (device& each : the().devices)
        if (!each.removed && (host.loopback() || each.reaches(host))) return &each;
    return nullptr;
}

bool is_silent(address const& host)
{
    auto const& all = the().silent_hosts;
    return std::any_of(all.begin(), all.end(), [&](address const& each) { return each.same_host(host); });
}

// ---- ports ------------------------------------------------------------------------------------------------------
namespace {

/// Why `by` may not have its port while `other` has it; 0: it may.
int conflict(endpoint const& by, endpoint const& other)
{
    if (by.ps != other.ps || by.local.port() != other.local.port()) return 0;
    if (by.reuse && other.reuse && other.state != phase::listening) return 0;
    bool const families_differ = by.local.family() != other.local.family();
    if (by.afonly && other.afonly && families_differ) return 0;
    if (by.local.same_host(other.local)) return EADDRINUSE;
    return by.local.any() || other.local.any() ? EADDRNOTAVAIL : 0;
}

int first_conflict(endpoint const& by)
{
    for (endpoint const* other : the().bound)
        if (other != &by)
            if (int const code = conflict(by, *other)) return code;
    return 0;
}

} // namespace

int claim_port(endpoint& by)
{
    if (by.local.port() == 0) {
        do {
            by.local.port(the().next_port);
            the().next_port = the().next_port == 60999 ? std::uint16_t{32768} : static_cast<std::uint16_t>(the().next_port + 1);
        } while (first_conflict(by) != 0);
    } else if (int const code = first_conflict(by)) {
        return code;
    }
    the().bound.push_back(&by);
    return 0;
}

void release_port(endpoint& by)
{
    auto& bound = the().bound;
    bound.erase(std::remove(bound.begin(), bound.end(), &by), bound.end());
}

// ---- binding and resolving --------------------------------------------------------------------------------------
namespace {

/// What user space learns of an id's addresses, and its device if it has one now.
void query(cm& id)
{
    endpoint const& kernel = *id.kernel;
    kernel.local.store(id.route.addr.src_storage);
    if (!kernel.remote.empty()) kernel.remote.store(id.route.addr.dst_storage);
    if (kernel.at != nullptr && id.bound == nullptr) bind_device(id, *kernel.at);
    if (kernel.at != nullptr) {
        id.route.addr.addr.ibaddr.sgid = kernel.local.gid();
        id.route.addr.addr.ibaddr.dgid = kernel.remote.gid();
        id.route.addr.addr.ibaddr.pkey = htons(0xffff);
    }
}

int bind_endpoint(endpoint& kernel, address const& to)
{
    if (kernel.state != phase::idle) return EINVAL;
    if (to.link_local() && to.scope() == 0) return EINVAL;
    device* at = nullptr;
    if (!to.any()) {
        if (to.loopback()) at = device_of(to);
        for (device& each : the().devices)
            if (each.has(to)) at = &each;
        if (at == nullptr) return to.loopback() ? ENODEV : EADDRNOTAVAIL;
        if (at->removed) return ENODEV;
    }
    kernel.local = to;
    if (int const code = claim_port(kernel)) {
        kernel.local = {};
        return code;
    }
    kernel.at = at;
    kernel.state = phase::bound;
    return 0;
}

address wildcard_like(address const& other) { return address::parse(other.family() == AF_INET ? "0.0.0.0" : "::"); }

/// Gives a wildcard-bound id the source address that the route to its destination has.
void choose_source(endpoint& kernel, device& at)
{
    if (!kernel.local.any()) return;
    std::uint16_t const port = kernel.local.port();
    address const* chosen = nullptr;
    for (address const& host : at.hosts) {
        if (host.family() != kernel.remote.family() || host.link_local() != kernel.remote.link_local()) continue;
        if (chosen == nullptr || host.same_host(kernel.remote)) chosen = &host;
    }
    if (chosen == nullptr) return;
    kernel.local = *chosen;
    kernel.local.port(port);
}

int resolve(cm& id, address const& from, address const& to)
{
    endpoint& kernel = *id.kernel;
    if (!from.empty() && from.family() != to.family()) return EINVAL;
    if (to.link_local() && to.scope() == 0) return EINVAL;
    device* at = to.multicast() || to.any() ? kernel.at : device_of(to);
    if (at == nullptr && !from.empty()) at = device_of(from);
    if (at == nullptr || (!to.multicast() && !to.any() && device_of(to) == nullptr)) return ENODEV;
    if (kernel.state == phase::idle)
        if (int const code = bind_endpoint(kernel, from.empty() ? wildcard_like(to) : from)) return code;
    if (kernel.state != phase::bound || kernel.local.family() != to.family()) return EINVAL;

    kernel.remote = to;
    bool const reachable = kernel.at == nullptr || kernel.at == at;
    bool const known = to.multicast() || to.any() || to.loopback() || at->has(to) || is_silent(to);
    if (!reachable || !known) {
        tell(kernel, RDMA_CM_EVENT_ADDR_ERROR, reachable ? -ETIMEDOUT : -EHOSTUNREACH);
        return 0;
    }
    choose_source(kernel, *at);
    if (the().resolve_without_device) the().resolve_without_device = false;
    else kernel.at = at;
    kernel.state = phase::addr_resolved;
    tell(kernel, RDMA_CM_EVENT_ADDR_RESOLVED);
    return 0;
}

} // namespace

int resolve_address(cm& id, sockaddr const* from, sockaddr const* to)
{
    address const source{from}, target{to};
    if (target.empty() || (from != nullptr && source.empty())) return minus_one(EINVAL);
    if (int const code = resolve(id, source, target)) return minus_one(code);
    target.store(id.route.addr.dst_storage);
    return 0;
}

int bind_address(cm& id, sockaddr const* to)
{
    address const at{to};
    if (at.empty()) return minus_one(EINVAL);
    if (int const code = bind_endpoint(*id.kernel, at)) return minus_one(code);
    query(id);
    return 0;
}

void query_addresses(cm& id) { query(id); }

} // namespace fake::model

using namespace fake::model;

int rdma_bind_addr(rdma_cm_id* raw, sockaddr* to)
{
    static constinit site here{"rdma_bind_addr", EIO};
    entry in{here, raw};
    if (int const code = in.fault()) return minus_one(code);
    if (cm* const id = in.command(raw)) return bind_address(*id, to);
    return -1;
}

int rdma_resolve_addr(rdma_cm_id* raw, sockaddr* from, sockaddr* to, int)
{
    static constinit site here{"rdma_resolve_addr", EIO};
    entry in{here, raw};
    if (int const code = in.fault()) return minus_one(code);
    cm* const id = in.command(raw);
    if (id == nullptr || resolve_address(*id, from, to) != 0) return -1;
    return finish(in, *id);
}

__be16 rdma_get_src_port(rdma_cm_id* raw)
{
    static constinit site here{"rdma_get_src_port", 0};
    entry in{here, raw};
    cm const* const id = in.need(the().ids, raw, "id");
    return id == nullptr ? __be16{0} : htons(address{&id->route.addr.src_addr}.port());
}

__be16 rdma_get_dst_port(rdma_cm_id* raw)
{
    static constinit site here{"rdma_get_dst_port", 0};
    entry in{here, raw};
    cm const* const id = in.need(the().ids, raw, "id");
    return id == nullptr ? __be16{0} : htons(address{&id->route.addr.dst_addr}.port());
}
