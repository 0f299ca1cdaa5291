// SPDX-License-Identifier: MIT
//
// How names become addresses: rdma_getaddrinfo, and the calls of rdma-core 60 that do the same by an event.
#include "world.hpp"

#include <fake/v60.hpp>

#include <cstdlib>
#include <cstring>

#include <arpa/inet.h>
#include <netdb.h>

#include <infiniband/ib.h>

namespace fake::model {

namespace {

/// One block: a result, its addresses, names, path, and what it puts before a connect's private data.
struct answer : rdma_addrinfo {
    sockaddr_storage from, to;
    char from_name[NI_MAXHOST], to_name[NI_MAXHOST];
    ibv_path_data path;
    std::uint8_t connect[36];
};

answer* make_answer() { return static_cast<answer*>(std::calloc(1, sizeof(answer))); }

void give(sockaddr*& where, socklen_t& length, sockaddr_storage& room, sockaddr const* from, socklen_t size)
{
    if (from == nullptr || size == 0 || size > sizeof room) return;
    std::memcpy(&room, from, size);
    where = reinterpret_cast<sockaddr*>(&room);
    length = size;
}

void name(char*& where, char (&room)[NI_MAXHOST], char const* from)
{
    if (from == nullptr) return;
    std::strncpy(room, from, sizeof room - 1);
    where = room;
}

addrinfo plain_hints(rdma_addrinfo const& hints)
{
    addrinfo plain{};
    plain.ai_flags = ((hints.ai_flags & RAI_PASSIVE) != 0 ? AI_PASSIVE : 0) | ((hints.ai_flags & RAI_NUMERICHOST) != 0 ? AI_NUMERICHOST : 0);
    if (hints.ai_family != AF_IB) plain.ai_family = hints.ai_family;
    switch (hints.ai_qp_type) {
    case IBV_QPT_RC: case IBV_QPT_UC: case IBV_QPT_XRC_SEND: case IBV_QPT_XRC_RECV: plain.ai_socktype = SOCK_STREAM; break;
    case IBV_QPT_UD: plain.ai_socktype = SOCK_DGRAM; break;
    default: break;
    }
    switch (hints.ai_port_space) {
    case RDMA_PS_TCP: plain.ai_protocol = IPPROTO_TCP; break;
    case RDMA_PS_IPOIB: case RDMA_PS_UDP: plain.ai_protocol = IPPROTO_UDP; break;
    case RDMA_PS_IB: plain.ai_protocol = plain.ai_socktype == SOCK_DGRAM ? IPPROTO_UDP : plain.ai_socktype != 0 ? IPPROTO_TCP : 0; break;
    default: break;
    }
    return plain;
}

/// The first of what getaddrinfo finds; the others are dropped.
int ask_system(char const* node, char const* service, rdma_addrinfo const* hints, answer& made)
{
    rdma_addrinfo const none{};
    rdma_addrinfo const& wish = hints != nullptr ? *hints : none;
    addrinfo const plain = plain_hints(wish);
    addrinfo* found = nullptr;
    if (int const code = ::getaddrinfo(node, service, hints != nullptr ? &plain : nullptr, &found)) return code;
    made.ai_family = found->ai_family;
    made.ai_qp_type = wish.ai_qp_type != 0 ? wish.ai_qp_type : found->ai_socktype == SOCK_DGRAM ? IBV_QPT_UD : IBV_QPT_RC;
    made.ai_port_space = wish.ai_port_space != 0 ? wish.ai_port_space : found->ai_protocol == IPPROTO_UDP ? RDMA_PS_UDP : RDMA_PS_TCP;
    if ((plain.ai_flags & AI_PASSIVE) != 0) {
        made.ai_flags = RAI_PASSIVE;
        give(made.ai_src_addr, made.ai_src_len, made.from, found->ai_addr, found->ai_addrlen);
        name(made.ai_src_canonname, made.from_name, found->ai_canonname);
    } else {
        give(made.ai_dst_addr, made.ai_dst_len, made.to, found->ai_addr, found->ai_addrlen);
        name(made.ai_dst_canonname, made.to_name, found->ai_canonname);
    }
    ::freeaddrinfo(found);
    return 0;
}

void copy_hints(rdma_addrinfo const& hints, answer& made)
{
    made.ai_flags = hints.ai_flags;
    made.ai_family = hints.ai_family;
    made.ai_qp_type = hints.ai_qp_type;
    made.ai_port_space = hints.ai_port_space;
    give(made.ai_dst_addr, made.ai_dst_len, made.to, hints.ai_dst_addr, hints.ai_dst_len);
}

// ---- ibacm ------------------------------------------------------------------------------------------------------
/// The route to the destination, and the source address that goes with it.
bool find_route(answer& of)
{
    address const to{of.ai_dst_addr};
    device* const at = to.empty() ? nullptr : device_of(to);
    if (at == nullptr || at->iwarp) return false;
    if (of.ai_src_addr == nullptr)
        for (address const& host : at->hosts) {
            if (of.ai_src_addr != nullptr || host.family() != to.family() || host.link_local() != to.link_local()) continue;
            give(of.ai_src_addr, of.ai_src_len, of.from, host.raw(), host.size());
        }
    of.path.flags = IBV_PATH_FLAG_GMP | IBV_PATH_FLAG_PRIMARY | IBV_PATH_FLAG_BIDIRECTIONAL;
    of.path.path.sgid = address{of.ai_src_addr}.gid();
    of.path.path.dgid = to.gid();
    of.ai_route = &of.path;
    of.ai_route_len = sizeof of.path;
    return true;
}

void give_ib(sockaddr*& where, socklen_t& length, sockaddr_storage& room, address const& plain, int port_space)
{
    sockaddr_ib made{};
    made.sib_family = AF_IB;
    made.sib_pkey = htons(0xffff);
    ibv_gid const gid = plain.gid();
    std::memcpy(&made.sib_addr, gid.raw, sizeof gid.raw);
    made.sib_sid = htobe64(static_cast<std::uint64_t>(port_space) << 16 | plain.port());
    made.sib_sid_mask = htobe64(plain.port() != 0 ? RDMA_IB_IP_PS_MASK | RDMA_IB_IP_PORT_MASK : RDMA_IB_IP_PS_MASK);
    give(where, length, room, reinterpret_cast<sockaddr const*>(&made), sizeof made);
}

/// The same destination once more, by its GID; it comes first.
answer* by_gid(answer& plain)
{
    answer* const made = make_answer();
    if (made == nullptr) return nullptr;
    made->ai_flags = plain.ai_flags;
    made->ai_family = AF_IB;
    made->ai_qp_type = plain.ai_qp_type;
    made->ai_port_space = plain.ai_port_space;
    give_ib(made->ai_src_addr, made->ai_src_len, made->from, address{plain.ai_src_addr}, plain.ai_port_space);
    give_ib(made->ai_dst_addr, made->ai_dst_len, made->to, address{plain.ai_dst_addr}, plain.ai_port_space);
    made->path = plain.path;
    made->ai_route = &made->path;
    made->ai_route_len = sizeof made->path;
    made->connect[1] = plain.ai_dst_addr->sa_family == AF_INET ? 4 << 4 : 6 << 4;
    made->ai_connect = made->connect;
    made->ai_connect_len = sizeof made->connect;
    made->ai_next = &plain;
    return made;
}

/// 0, an EAI code by value, or -1 with errno set.
int look_up(char const* node, char const* service, rdma_addrinfo const* hints, rdma_addrinfo*& out)
{
    if (node == nullptr && service == nullptr && hints == nullptr) return minus_one(EINVAL);
    if (!the().devices_present) return minus_one(ENODEV);
    auto made = std::unique_ptr<answer, void (*)(void*)>{make_answer(), std::free};
    if (made == nullptr) return minus_one(ENOMEM);
    if (node == nullptr && service == nullptr) copy_hints(*hints, *made);
    else if (int const code = ask_system(node, service, hints, *made)) return code;
    if (hints != nullptr && made->ai_src_len == 0) give(made->ai_src_addr, made->ai_src_len, made->from, hints->ai_src_addr, hints->ai_src_len);
    out = made.get();
    if (the().asks_ibacm && (made->ai_flags & RAI_PASSIVE) == 0 && find_route(*made))
        if (answer* const first = by_gid(*made)) out = first;
    static_cast<void>(made.release());
    return 0;
}

} // namespace

void free_names(rdma_addrinfo* list)
{
    while (list != nullptr) {
        rdma_addrinfo* const next = list->ai_next;
        std::free(static_cast<answer*>(list));
        list = next;
    }
}

/// ADDRINFO_RESOLVED as it is got; false: it has become ADDRINFO_ERROR.
bool names_resolved(cm& id, int& status)
{
    if (!id.resolving_names || id.names != nullptr) return true;
    id.resolving_names = false; // the subnet administration was asked, and there is none
    status = ENOENT;
    return false;
}

void names_failed(cm& id) { id.resolving_names = false; }

namespace {

/// 0, ENOTSUP, an EAI code, or -1.
int resolve_names(entry& in, cm& id, char const* node, char const* service, rdma_addrinfo const* hints)
{
    int const flags = hints == nullptr ? 0 : hints->ai_flags;
    if ((flags & v60::rai_sa) != 0) {
        if ((flags & v60::rai_dns) != 0 || node != nullptr) return ENOTSUP;
        return -1; // neither device has a subnet administration
    }
    if (int const code = look_up(node, service, hints, id.names)) return code;
    pending item;
    item.target = &id;
    item.anonymous = id.kernel->user == nullptr;
    item.type = v60::addrinfo_resolved;
    deliver(std::move(item));
    return finish(in, id);
}

} // namespace

} // namespace fake::model

using namespace fake::model;

int rdma_getaddrinfo(char const* node, char const* service, rdma_addrinfo const* hints, rdma_addrinfo** out)
{
    static constinit site here{"rdma_getaddrinfo", EIO};
    entry in{here, node};
    if (int const code = in.fault(); code < 0) {
        errno = fake::decoy;
        return code; // an EAI code, by value
    } else if (code > 0) {
        return minus_one(code);
    }
    rdma_addrinfo* made = nullptr;
    if (int const code = look_up(node, service, hints, made)) return code;
    the().addrinfos.insert(made);
    *out = made;
    return 0;
}

void rdma_freeaddrinfo(rdma_addrinfo* old)
{
    static constinit site here{"rdma_freeaddrinfo", 0};
    entry in{here, old};
    cleaned();
    if (old == nullptr) return;
    if (the().addrinfos.erase(old) == 0) return in.misuse("a list that is not, or no longer, ours");
    free_names(old);
}

// ---- rdma-core 60 -----------------------------------------------------------------------------------------------
int rdma_resolve_addrinfo(rdma_cm_id* raw, char const* node, char const* service, rdma_addrinfo const* hints)
{
    static constinit site here{"rdma_resolve_addrinfo", EIO};
    entry in{here, raw};
    if (int const code = in.fault()) return minus_one(code);
    if (raw == nullptr) return minus_one(EINVAL);
    cm* const id = in.command(raw);
    if (id == nullptr) return -1;
    if (id->resolving_names) return minus_one(EBUSY);
    id->resolving_names = true;
    int const code = resolve_names(in, *id, node, service, hints);
    if (code == 0) return 0;
    id->resolving_names = false;
    return minus_one(code); // and so errno may be -1, or an EAI code
}

int rdma_query_addrinfo(rdma_cm_id* raw, rdma_addrinfo** out)
{
    static constinit site here{"rdma_query_addrinfo", ENOENT};
    entry in{here, raw};
    if (int const code = in.fault()) return minus_one(code);
    if (raw == nullptr || out == nullptr) return minus_one(EINVAL);
    cm* const id = in.need(the().ids, raw, "id");
    if (id == nullptr) return minus_one(EBADF);
    if (!id->resolving_names || id->names == nullptr) return minus_one(ENOENT);
    the().addrinfos.insert(id->names);
    *out = id->names;
    id->names = nullptr;
    id->resolving_names = false;
    return 0;
}

int rdma_write_cm_event(rdma_cm_id* raw, rdma_cm_event_type type, int status, std::uint64_t arg)
{
    static constinit site here{"rdma_write_cm_event", EIO};
    entry in{here, raw};
    if (int const code = in.fault()) return minus_one(code);
    int number = 0;
    std::memcpy(&number, &type, sizeof type); // which may be no value of the enumeration in an older header
    if (number != fake::v60::user) return minus_one(EINVAL);
    cm* const id = in.command(raw);
    if (id == nullptr) return -1;
    pending item;
    item.target = id;
    item.anonymous = id->kernel->user == nullptr;
    item.type = number;
    item.status = status;
    item.arg = arg;
    deliver(std::move(item));
    return 0;
}
