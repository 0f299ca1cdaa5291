// SPDX-License-Identifier: MIT
//
// Regions of another kind: device memory, dmabufs, the null region, advice; and objects imported from another context.
#include "world.hpp"

#include <cstring>

#include <sys/mman.h>
#include <unistd.h>

namespace fake::model {

namespace {

bool inside(std::uint64_t offset, std::uint64_t length, std::size_t room) { return offset <= room && length <= room - offset; }

// ---- device memory ----------------------------------------------------------------------------------------------
int op_memcpy_to_dm(ibv_dm* raw, std::uint64_t offset, void const* from, std::size_t length)
{
    static constinit site here{"ibv_memcpy_to_dm", EIO};
    entry in{here, raw};
    if (int const code = in.fault()) return returned(code);
    dm* const to = in.need(the().dms, raw, "device memory");
    if (to == nullptr || !inside(offset, length, to->memory->size())) return returned(EFAULT);
    if (length != 0) std::memcpy(to->memory->data() + offset, from, length);
    return 0;
}

int op_memcpy_from_dm(void* to, ibv_dm* raw, std::uint64_t offset, std::size_t length)
{
    static constinit site here{"ibv_memcpy_from_dm", EIO};
    entry in{here, raw};
    if (int const code = in.fault()) return returned(code);
    dm const* const from = in.need(the().dms, raw, "device memory");
    if (from == nullptr || !inside(offset, length, from->memory->size())) return returned(EFAULT);
    if (length != 0) std::memcpy(to, from->memory->data() + offset, length);
    return 0;
}

void set_handle(dm& of, std::uint32_t handle)
{
    of.handle = handle;
    auto const tell = [handle](auto& raw) {
        if constexpr (requires { raw.handle; }) {
            raw.comp_mask = IBV_DM_MASK_HANDLE;
            raw.handle = handle;
        }
    };
    tell(static_cast<ibv_dm&>(of));
}

dm* make_dm(context& on, std::shared_ptr<bytes> memory)
{
    dm* const made = new dm;
    made->ibv_dm::context = on.raw();
    made->memcpy_to_dm = op_memcpy_to_dm;
    made->memcpy_from_dm = op_memcpy_from_dm;
    set_handle(*made, the().next_handle++);
    made->memory = std::move(memory);
    ++on.children;
    return the().dms.add(static_cast<ibv_dm*>(made), made);
}

void forget_dm(dm* old)
{
    --context_of(old->ibv_dm::context).children;
    the().dms.forget(static_cast<ibv_dm*>(old));
    delete old;
}

ibv_dm* op_alloc_dm(ibv_context* raw, ibv_alloc_dm_attr* attr)
{
    static constinit site here{"ibv_alloc_dm", ENOMEM};
    entry in{here, raw};
    if (int const code = barred(in, raw)) return null(code);
    if (attr->comp_mask != 0 || attr->log_align_req > 12) return null(EINVAL);
    if (attr->length == 0 || attr->length > 0x20000) return null(ENOMEM); // max_dm_size
    return make_dm(context_of(raw), std::make_shared<bytes>(attr->length));
}

int op_free_dm(ibv_dm* raw)
{
    static constinit site here{"ibv_free_dm", EIO};
    entry in{here, raw};
    if (int const code = in.fault()) return returned(code);
    dm* const old = in.need(the().dms, raw, "device memory");
    if (old == nullptr) return returned(EFAULT);
    if (cut_off(raw->context)) return returned(lose(*old, raw->context));
    if (old->imported) in.misuse("the device memory was imported: ibv_unimport_dm");
    if (old->users != 0) {
        in.misuse("EBUSY: " + std::to_string(old->users) + " MR(s) of the device memory");
        return returned(EBUSY);
    }
    forget_dm(old);
    return cleaned();
}

/// By offset: the region begins at 0, and says so.
ibv_mr* op_reg_dm_mr(ibv_pd* raw, ibv_dm* memory, std::uint64_t offset, std::size_t length, unsigned access)
{
    static constinit site here{"ibv_reg_dm_mr", ENOMEM};
    entry in{here, raw};
    if (int const code = in.fault()) return null(code);
    pd* const domain = in.need(the().pds, raw, "PD");
    dm* const on = in.need(the().dms, memory, "device memory");
    if (domain == nullptr || on == nullptr) return null(EFAULT);
    bool const known = (access & IBV_ACCESS_ZERO_BASED) != 0 && allowed(access, false);
    if (!known || length == 0 || !inside(offset, length, on->memory->size())) return null(EINVAL);
    mr* const made = add_mr(*domain, nullptr, length, 0, access);
    made->memory = reinterpret_cast<std::uintptr_t>(on->memory->data() + offset);
    made->on = on;
    ++on->users;
    return made;
}

// ---- the null region, and advice --------------------------------------------------------------------------------
ibv_mr* op_alloc_null_mr(ibv_pd* raw)
{
    static constinit site here{"ibv_alloc_null_mr", ENOMEM};
    entry in{here, raw};
    if (int const code = in.fault()) return null(code);
    pd* const domain = in.need(the().pds, raw, "PD");
    if (domain == nullptr) return null(EFAULT);
    if (!has_all_features(raw->context)) return null(EOPNOTSUPP);
    mr* const made = add_mr(*domain, nullptr, 0, 0, IBV_ACCESS_LOCAL_WRITE);
    the().remote_keys.erase(made->rkey);
    made->rkey = 0;
    made->nothing = true;
    return made;
}

int check_advice(pd const& domain, ibv_sge const& piece, ibv_advise_mr_advice advice)
{
    auto const found = the().local_keys.find(piece.lkey);
    if (found == the().local_keys.end()) return ENOENT;
    mr const& region = *found->second;
    bool const writes = advice == IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE;
    if (!protects(&domain, region.ibv_mr::pd) || (writes && (region.access & IBV_ACCESS_LOCAL_WRITE) == 0)) return EPERM;
    if ((region.access & IBV_ACCESS_ON_DEMAND) == 0) return EINVAL;
    return local_region(&domain, piece, 0) == nullptr ? EFAULT : 0;
}

int op_advise_mr(ibv_pd* raw, ibv_advise_mr_advice advice, std::uint32_t flags, ibv_sge* list, std::uint32_t many)
{
    static constinit site here{"ibv_advise_mr", EIO};
    entry in{here, raw};
    if (int const code = in.fault()) return returned(code);
    pd const* const domain = in.need(the().pds, raw, "PD");
    if (domain == nullptr) return returned(EFAULT);
    if (!has_all_features(raw->context)) return returned(EOPNOTSUPP);
    if (advice > IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT) return returned(EOPNOTSUPP);
    if (many == 0 || (flags & ~std::uint32_t{IBV_ADVISE_MR_FLAG_FLUSH}) != 0) return returned(EINVAL);
    for (std::uint32_t i = 0; i < many; ++i)
        if (int const code = check_advice(*domain, list[i], advice)) return returned(code);
    return 0;
}

} // namespace

void fill_region_operations(context& of)
{
    of.alloc_dm = op_alloc_dm;
    of.free_dm = op_free_dm;
    of.reg_dm_mr = op_reg_dm_mr;
    of.alloc_null_mr = op_alloc_null_mr;
    of.advise_mr = op_advise_mr;
}

namespace {

/// The object of the device that has this handle, whichever context it was made on.
template <class T>
T* by_handle(registry<T> const& among, ibv_context* on, std::uint32_t handle)
{
    for (auto const& [raw, each] : among)
        if (each->handle == handle && !each->imported && context_of(on).of == context_of(each->context).of) return each;
    return nullptr;
}

/// A file of memory stands for a dmabuf: it is mapped, up to the region's end.
bool map(mr& region, int fd, std::uint64_t offset)
{
    region.mapped_size = offset + region.length;
    void* const at = ::mmap(nullptr, region.mapped_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED) return false;
    region.mapped = at;
    region.memory = reinterpret_cast<std::uintptr_t>(at) + offset;
    return true;
}

} // namespace

mr* add_dmabuf_mr(entry const& in, pd& domain, std::uint64_t offset, std::size_t length, std::uint64_t iova, int fd, unsigned access, int& code)
{
    auto const page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE)) - 1;
    code = EINVAL;
    if (length == 0 || (offset & page) != (iova & page) || !allowed(access, true)) return nullptr;
    off_t const size = ::lseek(fd, 0, SEEK_END);
    if (size < 0) code = EBADF;
    if (size < 0 || !inside(offset, length, static_cast<std::size_t>(size))) return nullptr;
    mr* const made = add_mr(domain, reinterpret_cast<void*>(offset), length, iova, access);
    if (!map(*made, fd, offset)) in.misuse("the dmabuf, which a memfd should stand for, cannot be mapped");
    return made;
}

} // namespace fake::model

using namespace fake::model;

ibv_mr* ibv_reg_dmabuf_mr(ibv_pd* raw, std::uint64_t offset, std::size_t length, std::uint64_t iova, int fd, int access)
{
    static constinit site here{"ibv_reg_dmabuf_mr", ENOMEM};
    entry in{here, raw};
    if (int const code = in.fault()) return null(code);
    pd* const domain = in.need(the().pds, raw, "PD");
    if (domain == nullptr) return null(EFAULT);
    if (!has_all_features(raw->context)) return null(EOPNOTSUPP);
    int code = 0;
    mr* const made = add_dmabuf_mr(in, *domain, offset, length, iova, fd, static_cast<unsigned>(access), code);
    if (made == nullptr) errno = code;
    return made;
}

// ---- import -----------------------------------------------------------------------------------------------------
ibv_pd* ibv_import_pd(ibv_context* raw, std::uint32_t handle)
{
    static constinit site here{"ibv_import_pd", ENOMEM};
    entry in{here, raw};
    if (int const code = barred(in, raw)) return null(code);
    pd* const original = by_handle(the().pds, raw, handle);
    if (original == nullptr) return null(ENOENT);
    pd* const made = make_pd(context_of(raw), false);
    made->handle = handle;
    made->inner = original;
    made->imported = true;
    ++original->users;
    return made;
}

void ibv_unimport_pd(ibv_pd* raw)
{
    static constinit site here{"ibv_unimport_pd", 0};
    entry in{here, raw};
    cleaned();
    pd* const old = in.need(the().pds, raw, "PD");
    if (old == nullptr) return;
    if (!old->imported) return in.misuse("the PD was not imported");
    if (old->users != 0) return in.misuse(std::to_string(old->users) + " object(s) use the PD");
    drop_pd(old);
}

ibv_mr* ibv_import_mr(ibv_pd* raw, std::uint32_t handle)
{
    static constinit site here{"ibv_import_mr", ENOMEM};
    entry in{here, raw};
    if (int const code = in.fault()) return null(code);
    pd* const domain = in.need(the().pds, raw, "PD");
    if (domain == nullptr) return null(EFAULT);
    if (!has_all_features(raw->context)) return null(EOPNOTSUPP);
    mr const* const original = by_handle(the().mrs, raw->context, handle);
    if (original == nullptr) return null(ENOENT);
    mr* const made = new mr;
    static_cast<ibv_mr&>(*made) = *original; // the keys lead to the original
    made->ibv_mr::context = raw->context;
    made->ibv_mr::pd = raw;
    made->addr = nullptr;
    made->imported = true;
    ++domain->users;
    return the().mrs.add(static_cast<ibv_mr*>(made), made);
}

void ibv_unimport_mr(ibv_mr* raw)
{
    static constinit site here{"ibv_unimport_mr", 0};
    entry in{here, raw};
    cleaned();
    mr* const old = in.need(the().mrs, raw, "MR");
    if (old == nullptr) return;
    if (!old->imported) return in.misuse("the MR was not imported");
    if (pd* const domain = the().pds.find(raw->pd)) --domain->users;
    the().mrs.forget(raw);
    free_mr(old);
}

ibv_dm* ibv_import_dm(ibv_context* raw, std::uint32_t handle)
{
    static constinit site here{"ibv_import_dm", ENOMEM};
    entry in{here, raw};
    if (int const code = barred(in, raw)) return null(code);
    dm const* const original = by_handle(the().dms, raw, handle);
    if (original == nullptr) return null(ENOENT);
    dm* const made = make_dm(context_of(raw), original->memory);
    set_handle(*made, handle);
    made->imported = true;
    return made;
}

void ibv_unimport_dm(ibv_dm* raw)
{
    static constinit site here{"ibv_unimport_dm", 0};
    entry in{here, raw};
    cleaned();
    dm* const old = in.need(the().dms, raw, "device memory");
    if (old == nullptr) return;
    if (!old->imported) return in.misuse("the device memory was not imported");
    if (old->users != 0) return in.misuse(std::to_string(old->users) + " MR(s) of the device memory");
    forget_dm(old);
}

namespace fake {

std::uint32_t handle_of(ibv_dm const* memory) { return static_cast<dm const*>(memory)->handle; }

} // namespace fake
