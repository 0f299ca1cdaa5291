/* SPDX-License-Identifier: MIT
 *
 * What <infiniband/verbs.h> of rdma-core 50 and later has more than earlier ones, for programs that are built where only an earlier
 * one is installed. The folder of this file comes before the system's; the installed header is read through it, and gains
 *   - the enumerators IBV_WR_FLUSH, IBV_WC_FLUSH, IBV_ACCESS_FLUSH_GLOBAL and _PERSISTENT, and IBV_QP_EX_WITH_FLUSH,
 *   - the enumerations ibv_placement_type and ibv_selectivity_level,
 *   - ibv_wr_flush, here a function of the library since the installed ibv_qp_ex has no place for it, and ibv_wr_opcode_str.
 * It is not for a system whose own header has them, nor does it widen any structure.
 */
#ifndef FAKE_VERBS_V50_H
#define FAKE_VERBS_V50_H

#if defined(__GNUC__)
#pragma GCC system_header
#endif

/* Each of these occurs once in an earlier header, and in an enumeration. */
#define IBV_WC_TSO IBV_WC_TSO, IBV_WC_FLUSH
#define IBV_WR_DRIVER1 IBV_WR_DRIVER1, IBV_WR_FLUSH = 14
#define IBV_ACCESS_HUGETLB IBV_ACCESS_FLUSH_GLOBAL = 1 << 8, IBV_ACCESS_FLUSH_PERSISTENT = 1 << 9, IBV_ACCESS_HUGETLB
#define IBV_QP_EX_WITH_TSO IBV_QP_EX_WITH_FLUSH = 1 << 11, IBV_QP_EX_WITH_TSO
#include_next <infiniband/verbs.h>
#undef IBV_WC_TSO
#undef IBV_WR_DRIVER1
#undef IBV_ACCESS_HUGETLB
#undef IBV_QP_EX_WITH_TSO

#ifdef __cplusplus
extern "C" {
#endif

/* How far what was written is to get: to be seen by all, or to outlive a loss of power. */
enum ibv_placement_type { IBV_FLUSH_GLOBAL = 1U << 0, IBV_FLUSH_PERSISTENT = 1U << 1 };

/* Of what: the range given, or all of the region. */
enum ibv_selectivity_level { IBV_FLUSH_RANGE = 0, IBV_FLUSH_MR };

void ibv_wr_flush(struct ibv_qp_ex* qp, uint32_t rkey, uint64_t remote_addr, size_t len, uint8_t type, uint8_t level);
const char* ibv_wr_opcode_str(enum ibv_wr_opcode opcode);

#ifdef __cplusplus
}
#endif

#endif
