/* SPDX-License-Identifier: MIT
 *
 * What <infiniband/verbs.h> of rdma-core 61 and later has more than earlier ones, for programs that are built where only an earlier
 * one is installed: ibv_reg_mr_ex, and the DMA handles that it may be given. The folder of this file comes before the system's, and
 * the installed header is read through it. It is not for a system whose own header has them.
 */
#ifndef FAKE_VERBS_V61_H
#define FAKE_VERBS_V61_H

#if defined(__GNUC__)
#pragma GCC system_header
#endif

#include_next <infiniband/verbs.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The kind of memory that a DMA handle is about. */
enum ibv_tph_mem_type { IBV_TPH_MEM_TYPE_VM, IBV_TPH_MEM_TYPE_PM };

enum ibv_dmah_init_attr_mask {
    IBV_DMAH_INIT_ATTR_MASK_CPU_ID = 1 << 0,
    IBV_DMAH_INIT_ATTR_MASK_PH = 1 << 1,
    IBV_DMAH_INIT_ATTR_MASK_TPH_MEM_TYPE = 1 << 2
};

struct ibv_dmah_init_attr {
    uint32_t comp_mask; /* of ibv_dmah_init_attr_mask */
    uint32_t cpu_id;
    uint8_t ph;
    uint8_t tph_mem_type; /* of ibv_tph_mem_type */
};

struct ibv_dmah {
    struct ibv_context* context;
};

enum ibv_mr_init_attr_mask {
    IBV_REG_MR_MASK_IOVA = 1 << 0,
    IBV_REG_MR_MASK_ADDR = 1 << 1,
    IBV_REG_MR_MASK_FD = 1 << 2,
    IBV_REG_MR_MASK_FD_OFFSET = 1 << 3,
    IBV_REG_MR_MASK_DMAH = 1 << 4
};

struct ibv_mr_init_attr {
    size_t length;
    int access;
    uint64_t comp_mask; /* of ibv_mr_init_attr_mask: which of the following count */
    uint64_t iova;
    void* addr;
    int fd;
    uint64_t fd_offset;
    struct ibv_dmah* dmah;
};

struct ibv_dmah* ibv_alloc_dmah(struct ibv_context* context, struct ibv_dmah_init_attr* attr);
int ibv_dealloc_dmah(struct ibv_dmah* dmah);
struct ibv_mr* ibv_reg_mr_ex(struct ibv_pd* pd, struct ibv_mr_init_attr* attr);

#ifdef __cplusplus
}
#endif

#endif
