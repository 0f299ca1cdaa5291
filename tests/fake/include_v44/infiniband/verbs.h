/* SPDX-License-Identifier: MIT
 *
 * What <infiniband/verbs.h> of rdma-core 44 has more than 33, the oldest that the headers are for: with it the fake and its users are
 * built where that one is installed. The folder of this file comes before the system's; the installed header is read through it, and
 * gains
 *   - the enumerations ibv_fork_status and ibv_dm_mask,
 *   - the enumerators IBV_WR_ATOMIC_WRITE, IBV_WC_ATOMIC_WRITE, _DRIVER2 and _DRIVER3, IBV_QP_EX_WITH_ATOMIC_WRITE, IBV_RATE_800_GBPS
 *     and _1200_GBPS, IBV_PORT_LINK_SPEED_NDR_SUP,
 *   - ibv_is_fork_initialized, ibv_reg_dmabuf_mr, ibv_import_dm, ibv_unimport_dm, ibv_query_qp_data_in_order, and ibv_wr_atomic_write,
 *     here a function of the library since the installed ibv_qp_ex has no place for it.
 * It is not for a system whose own header has them, nor does it widen any structure.
 */
#ifndef FAKE_VERBS_V44_H
#define FAKE_VERBS_V44_H

#if defined(__GNUC__)
#pragma GCC system_header
#endif

enum ibv_fork_status { IBV_FORK_DISABLED, IBV_FORK_ENABLED, IBV_FORK_UNNEEDED };
enum ibv_dm_mask { IBV_DM_MASK_HANDLE = 1 << 0 };

/* Each of these occurs once in the installed header, and in an enumeration; include_v50 has others. */
#define IBV_WC_DRIVER1 IBV_WC_DRIVER1, IBV_WC_DRIVER2, IBV_WC_DRIVER3, IBV_WC_ATOMIC_WRITE = 9
#define IBV_WR_TSO IBV_WR_ATOMIC_WRITE = 15, IBV_WR_TSO = 10
#define IBV_QP_EX_WITH_BIND_MW IBV_QP_EX_WITH_ATOMIC_WRITE = 1 << 12, IBV_QP_EX_WITH_BIND_MW
#define IBV_RATE_600_GBPS IBV_RATE_800_GBPS = 23, IBV_RATE_1200_GBPS = 24, IBV_RATE_600_GBPS
#define IBV_PORT_LINK_SPEED_HDR_SUP IBV_PORT_LINK_SPEED_NDR_SUP = 1 << 10, IBV_PORT_LINK_SPEED_HDR_SUP
#include_next <infiniband/verbs.h>
#undef IBV_WC_DRIVER1
#undef IBV_WR_TSO
#undef IBV_QP_EX_WITH_BIND_MW
#undef IBV_RATE_600_GBPS
#undef IBV_PORT_LINK_SPEED_HDR_SUP

#ifdef __cplusplus
extern "C" {
#endif

enum ibv_fork_status ibv_is_fork_initialized(void);
struct ibv_mr* ibv_reg_dmabuf_mr(struct ibv_pd* pd, uint64_t offset, size_t length, uint64_t iova, int fd, int access);
struct ibv_dm* ibv_import_dm(struct ibv_context* context, uint32_t dm_handle);
void ibv_unimport_dm(struct ibv_dm* dm);
int ibv_query_qp_data_in_order(struct ibv_qp* qp, enum ibv_wr_opcode op, uint32_t flags);
void ibv_wr_atomic_write(struct ibv_qp_ex* qp, uint32_t rkey, uint64_t remote_addr, const void* atomic_wr);

#ifdef __cplusplus
}
#endif

#endif
