// SPDX-License-Identifier: MIT
//
// Protection domains, memory regions and windows, address handles.
#include "world.hpp"

#include <cstring>
#include <limits>

#include <sys/mman.h>

namespace fake::model {

// ---- protection domains -----------------------------------------------------------------------------------------
pd* make_pd(context& on, bool library)
{
    pd* const made = new pd;
    made->ibv_pd::context = on.raw();
    made->handle = the().next_handle++;
    made->library = library;
    ++on.children;
    return the().pds.add(static_cast<ibv_pd*>(made), made);
}

int drop_pd(pd* old)
{
    if (cut_off(old->ibv_pd::context)) return lose(*old, old->ibv_pd::context);
    if (old->users != 0) return EBUSY;
    the().pds.forget(static_cast<ibv_pd*>(old));
    --context_of(old->ibv_pd::context).children;
    if (old->inner != nullptr) --old->inner->users;
    if (old->thread != nullptr) --old->thread->users;
    delete old;
    return 0;
}

/// What librdmacm does when an id meets its device: one reference, and the PD that all ids of the device share.
void bind_device(cm& id, device& to)
{
    ++to.references;
    if (to.default_pd == nullptr) to.default_pd = make_pd(*to.shared, true);
    id.bound = &to;
    id.verbs = to.shared->raw();
    id.pd = to.default_pd;
    id.port_num = 1;
}

void release_device(device& from, entry const* in)
{
    if (--from.references != 0) return;
    drop_defaults(from, in);
    close_removed(from, in);
}

namespace {

template <class T>
void drop_default(T*& which, int (*drop)(T*), entry const* in, char const* busy)
{
    T* const old = which;
    which = nullptr;
    int const code = old == nullptr ? 0 : drop(old);
    if (code == 0) return;
    old->library = false; // leaked, and nobody's any more
    if (code == EBUSY && in != nullptr) in->misuse(busy);
}

} // namespace

void drop_defaults(device& of, entry const* in)
{
    drop_default(of.default_pd, drop_pd, in, "EBUSY for the default PD: something was registered on it and is still alive");
    drop_default(of.default_xrcd, drop_xrcd, in, "EBUSY for the default XRC domain: a QP or SRQ of it is still alive");
}

// ---- memory -----------------------------------------------------------------------------------------------------
namespace {

constexpr unsigned known_access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC
    | IBV_ACCESS_MW_BIND | IBV_ACCESS_ZERO_BASED;
constexpr unsigned flushes = 1U << 8 | 1U << 9; // IBV_ACCESS_FLUSH_GLOBAL and _PERSISTENT of rdma-core 50
constexpr unsigned more_access = IBV_ACCESS_ON_DEMAND | IBV_ACCESS_HUGETLB | flushes;

} // namespace

bool allowed(unsigned access, bool all_features)
{
    access &= ~static_cast<unsigned>(IBV_ACCESS_OPTIONAL_RANGE);
    if ((access & ~(known_access | (all_features ? more_access : 0U))) != 0) return false;
    bool const written_from_afar = (access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) != 0;
    return !written_from_afar || (access & IBV_ACCESS_LOCAL_WRITE) != 0;
}

namespace {

void give_keys(mr& to)
{
    the().next_key += 3;
    to.lkey = the().next_key << 8 | 0x01;
    to.rkey = the().next_key << 8 | 0x81; // never equal: a mix-up must not work by accident
    the().local_keys[to.lkey] = &to;
    the().remote_keys[to.rkey] = &to;
}

/// All of the address space: only on demand.
bool is_implicit(void const* at, std::size_t length) { return at == nullptr && length == std::numeric_limits<std::size_t>::max(); }

bool wraps(void const* at, std::size_t length)
{
    return length > std::numeric_limits<std::uintptr_t>::max() - reinterpret_cast<std::uintptr_t>(at);
}

bool within(std::uint64_t at, std::uint64_t length, std::uint64_t start, std::uint64_t room)
{
    return at >= start && length <= room && at - start <= room - length;
}

} // namespace

mr* add_mr(pd& domain, void* at, std::size_t length, std::uint64_t iova, unsigned access)
{
    mr* const made = new mr;
    made->ibv_mr::context = domain.ibv_pd::context;
    made->ibv_mr::pd = &domain;
    made->addr = at;
    made->length = length;
    made->handle = the().next_handle++;
    made->access = access;
    made->iova = (access & IBV_ACCESS_ZERO_BASED) != 0 ? 0 : iova;
    made->memory = reinterpret_cast<std::uintptr_t>(at);
    give_keys(*made);
    ++domain.users;
    return the().mrs.add(static_cast<ibv_mr*>(made), made);
}

mr* register_memory(pd& domain, void* at, std::size_t length, std::uint64_t iova, unsigned access, int& code)
{
    bool const all = has_all_features(domain.ibv_pd::context);
    bool const fits = is_implicit(at, length) ? (access & IBV_ACCESS_ON_DEMAND) != 0 : !wraps(at, length);
    code = length != 0 && allowed(access, all) && fits ? 0 : EINVAL;
    return code != 0 ? nullptr : add_mr(domain, at, length, iova, access);
}

namespace {

ibv_mr* register_memory(entry const& in, ibv_pd* raw, void* at, std::size_t length, std::uint64_t iova, unsigned access)
{
    if (int const code = in.fault()) return null(code);
    pd* const domain = in.need(the().pds, raw, "PD");
    if (domain == nullptr) return null(EFAULT);
    int code = 0;
    mr* const made = model::register_memory(*domain, at, length, iova, access, code);
    if (made == nullptr) errno = code;
    return made;
}

} // namespace

/// Where an address of the region is in this process; by number, since an implicit region begins at null.
std::uint8_t* memory_of(mr const& region, std::uint64_t at) { return reinterpret_cast<std::uint8_t*>(region.memory + (at - region.iova)); }

bool protects(pd const* domain, ibv_pd const* of)
{
    return domain != nullptr && of != nullptr && &domain->protection() == &static_cast<pd const*>(of)->protection();
}

/// Unmaps a dmabuf.
void free_mr(mr* old)
{
    if (old->mapped != nullptr) ::munmap(old->mapped, old->mapped_size);
    delete old;
}

/// The region that a scatter/gather element lies in, if it may be used for `access`.
mr* local_region(pd const* domain, ibv_sge const& piece, unsigned access)
{
    auto const found = the().local_keys.find(piece.lkey);
    if (found == the().local_keys.end()) return nullptr;
    mr* const region = found->second;
    if (!protects(domain, region->ibv_mr::pd) || (region->access & access) != access) return nullptr;
    return region->nothing || within(piece.addr, piece.length, region->iova, region->length) ? region : nullptr;
}

/// Memory of a peer, by its remote key; null if the key, the range or the access is wrong.
std::uint8_t* remote_memory(pd const* domain, std::uint32_t rkey, std::uint64_t at, std::uint64_t length, unsigned access)
{
    if (auto const found = the().remote_keys.find(rkey); found != the().remote_keys.end()) {
        mr const& region = *found->second;
        bool const may = protects(domain, region.ibv_mr::pd) && (region.access & access) == access;
        return may && within(at, length, region.iova, region.length) ? memory_of(region, at) : nullptr;
    }
    if (auto const found = the().window_keys.find(rkey); found != the().window_keys.end()) {
        mw const& window = *found->second;
        bool const may = protects(domain, window.ibv_mw::pd) && window.region != nullptr && (window.access & access) == access;
        return may && within(at, length, window.address, window.length) ? memory_of(*window.region, at) : nullptr;
    }
    return nullptr;
}

/// Whether a key leads to a region, wherever in it.
bool has_remote_key(pd const* domain, std::uint32_t rkey, unsigned access)
{
    auto const found = the().remote_keys.find(rkey);
    return found != the().remote_keys.end() && protects(domain, found->second->ibv_mr::pd) && (found->second->access & access) == access;
}

namespace {

void unbind(mw& window)
{
    the().window_keys.erase(window.rkey);
    if (window.region != nullptr) --window.region->windows;
    window.region = nullptr;
}

} // namespace

int bind_window(mw& window, std::uint32_t rkey, ibv_mw_bind_info const& info)
{
    mr* region = nullptr;
    if (info.mr != nullptr && info.length != 0) {
        region = the().mrs.find(info.mr);
        if (region == nullptr || (region->access & IBV_ACCESS_MW_BIND) == 0) return EINVAL;
        if (!within(info.addr, info.length, region->iova, region->length)) return EINVAL;
    }
    unbind(window);
    window.rkey = rkey;
    window.address = info.addr;
    window.length = info.length;
    window.access = info.mw_access_flags;
    if (region == nullptr) return 0;
    window.region = region;
    ++region->windows;
    the().window_keys[rkey] = &window;
    return 0;
}

namespace {

ibv_mw* op_alloc_mw(ibv_pd* raw, ibv_mw_type type)
{
    static constinit site here{"ibv_alloc_mw", ENOMEM};
    entry in{here, raw};
    if (int const code = in.fault()) return null(code);
    pd* const domain = in.need(the().pds, raw, "PD");
    if (domain == nullptr) return null(EFAULT);
    mw* const made = new mw;
    made->ibv_mw::context = raw->context;
    made->ibv_mw::pd = raw;
    made->handle = the().next_handle++;
    the().next_key += 3;
    made->rkey = the().next_key << 8 | 0xc1;
    made->type = type;
    ++domain->users;
    return the().mws.add(static_cast<ibv_mw*>(made), made);
}

int op_dealloc_mw(ibv_mw* raw)
{
    static constinit site here{"ibv_dealloc_mw", EIO};
    entry in{here, raw};
    if (int const code = in.fault()) return returned(code);
    mw* const old = in.need(the().mws, raw, "MW");
    if (old == nullptr) return returned(EFAULT);
    if (cut_off(raw->context)) return returned(lose(*old, raw->context));
    unbind(*old);
    --the().pds.find(raw->pd)->users;
    the().mws.forget(raw);
    delete old;
    return cleaned();
}

int op_bind_mw(ibv_qp* raw, ibv_mw* window, ibv_mw_bind* how)
{
    static constinit site here{"ibv_bind_mw", EIO};
    entry in{here, raw};
    if (int const code = in.fault()) return returned(code);
    qp* const by = in.need(the().qps, raw, "QP");
    mw* const what = in.need(the().mws, window, "MW");
    if (by == nullptr || what == nullptr) return returned(EFAULT);
    std::uint32_t const rkey = ibv_inc_rkey(what->rkey);
    if (int const code = bind_window(*what, rkey, how->bind_info)) return returned(code);
    if ((how->send_flags & IBV_SEND_SIGNALED) != 0) {
        ibv_wc wc{};
        wc.wr_id = how->wr_id;
        wc.opcode = IBV_WC_BIND_MW;
        wc.qp_num = raw->qp_num;
        complete(the().cqs.find(raw->send_cq), wc, false);
    }
    return 0;
}

} // namespace

void fill_window_operations(context& of)
{
    of.raw()->ops.alloc_mw = op_alloc_mw;
    of.raw()->ops.dealloc_mw = op_dealloc_mw;
    of.raw()->ops.bind_mw = op_bind_mw;
}

} // namespace fake::model

using namespace fake::model;

// ---- the C functions --------------------------------------------------------------------------------------------
ibv_pd* ibv_alloc_pd(ibv_context* raw)
{
    static constinit site here{"ibv_alloc_pd", ENOMEM};
    entry in{here, raw};
    if (int const code = in.fault()) return null(code);
    context* const on = in.need(the().contexts, raw, "context");
    return on == nullptr ? null(EFAULT) : static_cast<ibv_pd*>(make_pd(*on, false));
}

int ibv_dealloc_pd(ibv_pd* raw)
{
    static constinit site here{"ibv_dealloc_pd", EIO};
    entry in{here, raw};
    if (int const code = in.fault()) return returned(code);
    pd* const old = in.need(the().pds, raw, "PD");
    if (old == nullptr) return returned(EFAULT);
    if (old->library) in.misuse("the PD belongs to librdmacm");
    if (old->imported) in.misuse("the PD was imported: ibv_unimport_pd");
    if (int const code = drop_pd(old)) {
        if (code == EBUSY) in.misuse("EBUSY: " + std::to_string(old->users) + " object(s) use the PD");
        return returned(code);
    }
    for (device& each : the().devices)
        if (each.default_pd == old) each.default_pd = nullptr;
    return cleaned();
}

namespace {

// The header's macros choose between the plain functions and ibv_reg_mr_iova2 by what the optimiser knows, so the log and the
// faults go by what the program wrote.
constinit site reg_mr{"ibv_reg_mr", ENOMEM}, reg_mr_iova{"ibv_reg_mr_iova", ENOMEM};

std::uint64_t number(void const* at) { return reinterpret_cast<std::uintptr_t>(at); }

} // namespace

ibv_mr* ibv_reg_mr(ibv_pd* raw, void* at, std::size_t length, int access)
{
    entry in{reg_mr, raw};
    return register_memory(in, raw, at, length, number(at), static_cast<unsigned>(access));
}

ibv_mr* ibv_reg_mr_iova(ibv_pd* raw, void* at, std::size_t length, std::uint64_t iova, int access)
{
    entry in{reg_mr_iova, raw};
    return register_memory(in, raw, at, length, iova, static_cast<unsigned>(access));
}

ibv_mr* ibv_reg_mr_iova2(ibv_pd* raw, void* at, std::size_t length, std::uint64_t iova, unsigned access)
{
    entry in{iova == number(at) ? reg_mr : reg_mr_iova, raw};
    return register_memory(in, raw, at, length, iova, access);
}

int ibv_rereg_mr(ibv_mr* raw, int flags, ibv_pd* domain, void* at, std::size_t length, int access)
{
    static constinit site here{"ibv_rereg_mr", EIO};
    entry in{here, raw};
    if (int const code = in.fault()) {
        errno = code < 0 ? EIO : code;
        return code < 0 ? code : IBV_REREG_MR_ERR_CMD;
    }
    mr* const region = in.need(the().mrs, raw, "MR");
    if (region != nullptr && cut_off(raw->context)) {
        errno = EIO;
        return IBV_REREG_MR_ERR_CMD;
    }
    bool const moves = (flags & IBV_REREG_MR_CHANGE_TRANSLATION) != 0;
    bool const known = flags != 0 && (flags & ~IBV_REREG_MR_FLAGS_SUPPORTED) == 0;
    if (region == nullptr || !known || (moves && (at == nullptr || length == 0))) {
        errno = EINVAL;
        return IBV_REREG_MR_ERR_INPUT;
    }
    bool const widens = (flags & IBV_REREG_MR_CHANGE_ACCESS) != 0 && !allowed(static_cast<unsigned>(access), has_all_features(raw->context));
    if (widens || region->on != nullptr || region->nothing || region->mapped != nullptr) { // the kernel says no: the MR is not to be used any more
        errno = EINVAL;
        return IBV_REREG_MR_ERR_CMD;
    }
    if ((flags & IBV_REREG_MR_CHANGE_PD) != 0) {
        pd* const to = in.need(the().pds, domain, "PD");
        if (to == nullptr) return IBV_REREG_MR_ERR_INPUT;
        --the().pds.find(raw->pd)->users;
        ++to->users;
        raw->pd = domain;
    }
    if ((flags & IBV_REREG_MR_CHANGE_ACCESS) != 0) region->access = static_cast<unsigned>(access);
    if (moves) {
        raw->addr = at;
        raw->length = length;
        region->iova = region->memory = reinterpret_cast<std::uintptr_t>(at);
    }
    return 0;
}

int ibv_dereg_mr(ibv_mr* raw)
{
    static constinit site here{"ibv_dereg_mr", EIO};
    entry in{here, raw};
    if (int const code = in.fault()) return returned(code);
    mr* const old = in.need(the().mrs, raw, "MR");
    if (old == nullptr) return returned(EFAULT);
    if (cut_off(raw->context)) return returned(lose(*old, raw->context));
    if (old->windows != 0) {
        in.misuse("EBUSY: a memory window is bound to the MR");
        return returned(EBUSY);
    }
    if (old->imported) in.misuse("the MR was imported: ibv_unimport_mr");
    the().local_keys.erase(old->lkey);
    the().remote_keys.erase(old->rkey);
    if (old->on != nullptr) --old->on->users;
    if (old->hints != nullptr) --old->hints->users;
    if (pd* const domain = the().pds.find(raw->pd)) --domain->users;
    the().mrs.forget(raw);
    free_mr(old);
    return cleaned();
}

// ---- address handles --------------------------------------------------------------------------------------------
namespace {

ibv_ah* make_ah(entry const& in, ibv_pd* raw, ibv_ah_attr const& attr)
{
    pd* const domain = in.need(the().pds, raw, "PD");
    if (domain == nullptr) return null(EFAULT);
    if (context_of(raw->context).of->iwarp) return null(EOPNOTSUPP);
    if (attr.port_num != 1 || attr.is_global == 0) return null(EINVAL); // RoCE needs a GRH
    ah* const made = new ah;
    made->ibv_ah::context = raw->context;
    made->ibv_ah::pd = raw;
    made->handle = the().next_handle++;
    made->attr = attr;
    ++domain->users;
    return the().ahs.add(static_cast<ibv_ah*>(made), made);
}

int attr_from_wc(ibv_wc const& wc, ibv_grh const* grh, std::uint8_t port, ibv_ah_attr& attr)
{
    attr = {};
    attr.dlid = wc.slid;
    attr.sl = wc.sl;
    attr.port_num = port;
    if ((wc.wc_flags & IBV_WC_GRH) == 0) return 0;
    if (grh == nullptr) return EINVAL;
    attr.is_global = 1;
    attr.grh.dgid = grh->sgid;
    attr.grh.hop_limit = 0xff;
    return 0;
}

} // namespace

ibv_ah* ibv_create_ah(ibv_pd* raw, ibv_ah_attr* attr)
{
    static constinit site here{"ibv_create_ah", ENOMEM};
    entry in{here, raw};
    if (int const code = in.fault()) return null(code);
    return make_ah(in, raw, *attr);
}

int ibv_init_ah_from_wc(ibv_context* raw, std::uint8_t port, ibv_wc* wc, ibv_grh* grh, ibv_ah_attr* attr)
{
    static constinit site here{"ibv_init_ah_from_wc", EIO};
    entry in{here, raw};
    if (int const code = in.fault()) return minus_one(code);
    if (int const code = attr_from_wc(*wc, grh, port, *attr)) return minus_one(code);
    return 0;
}

ibv_ah* ibv_create_ah_from_wc(ibv_pd* raw, ibv_wc* wc, ibv_grh* grh, std::uint8_t port)
{
    static constinit site here{"ibv_create_ah_from_wc", ENOMEM};
    entry in{here, raw};
    if (int const code = in.fault()) return null(code);
    ibv_ah_attr attr;
    if (int const code = attr_from_wc(*wc, grh, port, attr)) return null(code);
    return make_ah(in, raw, attr);
}

int ibv_destroy_ah(ibv_ah* raw)
{
    static constinit site here{"ibv_destroy_ah", EIO};
    entry in{here, raw};
    if (int const code = in.fault()) return returned(code);
    ah* const old = in.need(the().ahs, raw, "AH");
    if (old == nullptr) return returned(EFAULT);
    if (cut_off(raw->context)) return returned(lose(*old, raw->context));
    if (pd* const domain = the().pds.find(raw->pd)) --domain->users;
    the().ahs.forget(raw);
    delete old;
    return cleaned();
}
