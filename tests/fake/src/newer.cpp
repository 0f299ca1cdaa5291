// SPDX-License-Identifier: MIT
//
// Functions of libibverbs newer than the header may be. They are defined under names of our own, for the header to say what it likes
// about theirs, and with structures of our own, laid out as the newer headers have them.
#include "world.hpp"

namespace fake::model {

/// As ibv_mr_init_attr and ibv_dmah_init_attr of rdma-core 61.
struct mr_init {
    std::size_t length;
    int access;
    std::uint64_t comp_mask, iova;
    void* addr;
    int fd;
    std::uint64_t fd_offset;
    void* dmah;
};

struct dmah_init {
    std::uint32_t comp_mask, cpu_id;
    std::uint8_t ph, tph_mem_type;
};

namespace {

enum mr_mask : std::uint64_t { has_iova = 1 << 0, has_addr = 1 << 1, has_fd = 1 << 2, has_fd_offset = 1 << 3, has_dmah = 1 << 4 };

bool is_coherent(mr_init const& wish)
{
    auto const has = [&wish](mr_mask bit) { return (wish.comp_mask & bit) != 0; };
    if (has(has_addr) == has(has_fd) || has(has_fd) != has(has_fd_offset)) return false;
    return !has(has_fd) || has(has_iova);
}

mr* make(entry const& in, pd& on, mr_init const& wish, int& code)
{
    auto const access = static_cast<unsigned>(wish.access);
    bool const by_iova = (wish.comp_mask & has_iova) != 0;
    if ((wish.comp_mask & has_fd) != 0) return add_dmabuf_mr(in, on, wish.fd_offset, wish.length, wish.iova, wish.fd, access, code);
    std::uint64_t const at = reinterpret_cast<std::uintptr_t>(wish.addr);
    return register_memory(on, wish.addr, wish.length, by_iova ? wish.iova : at, access, code);
}

} // namespace

extern "C" {

ibv_mr* fake_reg_mr_ex(ibv_pd* raw, mr_init* wish) __asm__("ibv_reg_mr_ex");
void* fake_alloc_dmah(ibv_context* raw, dmah_init* wish) __asm__("ibv_alloc_dmah");
int fake_dealloc_dmah(void* raw) __asm__("ibv_dealloc_dmah");
void fake_wr_flush(ibv_qp_ex* raw, std::uint32_t rkey, std::uint64_t at, std::size_t length, std::uint8_t type, std::uint8_t level)
    __asm__("ibv_wr_flush");
void fake_wr_atomic_write(ibv_qp_ex* raw, std::uint32_t rkey, std::uint64_t at, void const* value) __asm__("ibv_wr_atomic_write");
char const* fake_wr_opcode_str(int opcode) __asm__("ibv_wr_opcode_str");

ibv_mr* fake_reg_mr_ex(ibv_pd* raw, mr_init* wish)
{
    static constinit site here{"ibv_reg_mr_ex", ENOMEM};
    entry in{here, raw};
    if (int const code = in.fault()) return null(code);
    pd* const on = in.need(the().pds, raw, "PD");
    if (on == nullptr) return null(EFAULT);
    if (!has_all_features(raw->context) || wish->comp_mask >= std::uint64_t{has_dmah} << 1) return null(EOPNOTSUPP);
    if (!is_coherent(*wish)) return null(EINVAL);
    dmah* const hints = (wish->comp_mask & has_dmah) != 0 ? in.need(the().dmahs, wish->dmah, "DMA handle") : nullptr;
    if ((wish->comp_mask & has_dmah) != 0 && hints == nullptr) return null(EFAULT);
    int code = 0;
    mr* const made = make(in, *on, *wish, code);
    if (made == nullptr) return null(code);
    made->hints = hints;
    if (hints != nullptr) ++hints->users;
    return made;
}

void* fake_alloc_dmah(ibv_context* raw, dmah_init* wish)
{
    static constinit site here{"ibv_alloc_dmah", ENOMEM};
    entry in{here, raw};
    if (int const code = barred(in, raw)) return null(code);
    if (wish->comp_mask >= 1U << 3) return null(EOPNOTSUPP);
    dmah* const made = new dmah;
    made->context = raw;
    ++context_of(raw).children;
    return the().dmahs.add(made, made);
}

int fake_dealloc_dmah(void* raw)
{
    static constinit site here{"ibv_dealloc_dmah", EIO};
    entry in{here, raw};
    if (int const code = in.fault()) return returned(code);
    dmah* const old = in.need(the().dmahs, raw, "DMA handle");
    if (old == nullptr) return returned(EFAULT);
    if (cut_off(old->context)) return returned(lose(*old, old->context));
    if (old->users != 0) {
        in.misuse("EBUSY: " + std::to_string(old->users) + " MR(s) use the DMA handle");
        return returned(EBUSY);
    }
    --context_of(old->context).children;
    the().dmahs.forget(raw);
    delete old;
    return cleaned();
}

void fake_wr_flush(ibv_qp_ex* raw, std::uint32_t rkey, std::uint64_t at, std::size_t length, std::uint8_t type, std::uint8_t level)
{
    static constinit site here{"ibv_wr_flush", 0};
    entry in{here, raw};
    post_flush(in, raw, rkey, at, length, type, level);
}

void fake_wr_atomic_write(ibv_qp_ex* raw, std::uint32_t rkey, std::uint64_t at, void const* value)
{
    static constinit site here{"ibv_wr_atomic_write", 0};
    entry in{here, raw};
    post_atomic_write(in, raw, rkey, at, value);
}

char const* fake_wr_opcode_str(int opcode)
{
    static constinit site here{"ibv_wr_opcode_str", 0};
    entry in{here, nullptr};
    switch (opcode) {
    case IBV_WR_RDMA_WRITE: return "rdma-write";
    case IBV_WR_RDMA_WRITE_WITH_IMM: return "rdma-write-with-imm";
    case IBV_WR_SEND: return "send";
    case IBV_WR_SEND_WITH_IMM: return "send-with-imm";
    case IBV_WR_RDMA_READ: return "rdma-read";
    case IBV_WR_ATOMIC_CMP_AND_SWP: return "atomic-cmp-and-swp";
    case IBV_WR_ATOMIC_FETCH_AND_ADD: return "atomic-fetch-and-add";
    case IBV_WR_LOCAL_INV: return "local-inv";
    case IBV_WR_BIND_MW: return "bind-mw";
    case IBV_WR_SEND_WITH_INV: return "send-with-inv";
    case IBV_WR_TSO: return "tso";
    case IBV_WR_DRIVER1: return "driver1";
    case 14: return "flush";
    case IBV_WR_ATOMIC_WRITE: return "atomic-write";
    default: return "unknown";
    }
}

} // extern "C"

void fill_newer_operations(qp& of)
{
    // A header that has a place for it calls it there, and no function of the library.
    auto const fill = [](auto& any) {
        if constexpr (requires { any.wr_flush; }) any.wr_flush = fake_wr_flush;
        if constexpr (requires { any.wr_atomic_write; }) any.wr_atomic_write = fake_wr_atomic_write;
    };
    fill(of);
}

} // namespace fake::model
