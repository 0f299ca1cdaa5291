/* SPDX-License-Identifier: MIT
 *
 * What <rdma/rdma_cma.h> of rdma-core 60 and later has more than earlier ones, for programs that are built where only an earlier
 * one is installed. The folder of this file comes before the system's; the installed header is read through it, and gains
 *   - the enumerators RDMA_CM_EVENT_ADDRINFO_RESOLVED, _ADDRINFO_ERROR, _USER and _INTERNAL,
 *   - the member rdma_cm_event.param.arg,
 *   - RAI_SA and RAI_DNS,
 *   - rdma_resolve_addrinfo, rdma_query_addrinfo and rdma_write_cm_event.
 * It is not for a system whose own header has them.
 */
#ifndef FAKE_RDMA_CMA_V60_H
#define FAKE_RDMA_CMA_V60_H

#if defined(__GNUC__)
#pragma GCC system_header
#endif

/* All that the installed header includes, before two of its words are given a second meaning. */
#include <linux/types.h>
#include <netinet/in.h>
#include <stdint.h>
#include <sys/socket.h>
#include <infiniband/verbs.h>
#include <infiniband/sa.h>

/* The last enumerator of an earlier header, and the last member of the union in rdma_cm_event: each occurs there once. */
#define RDMA_CM_EVENT_TIMEWAIT_EXIT                                                                                                \
    RDMA_CM_EVENT_TIMEWAIT_EXIT, RDMA_CM_EVENT_ADDRINFO_RESOLVED, RDMA_CM_EVENT_ADDRINFO_ERROR, RDMA_CM_EVENT_USER, RDMA_CM_EVENT_INTERNAL
#define ud ud; uint64_t arg
#include_next <rdma/rdma_cma.h>
#undef ud
#undef RDMA_CM_EVENT_TIMEWAIT_EXIT

#if defined(RAI_SA)
#error "the installed <rdma/rdma_cma.h> is of rdma-core 60 or later, and needs no stand-in"
#endif
#define RAI_SA 0x00000010
#define RAI_DNS 0x00000020

#ifdef __cplusplus
extern "C" {
#endif

int rdma_resolve_addrinfo(struct rdma_cm_id* id, const char* node, const char* service, const struct rdma_addrinfo* hints);
int rdma_query_addrinfo(struct rdma_cm_id* id, struct rdma_addrinfo** info);
int rdma_write_cm_event(struct rdma_cm_id* id, enum rdma_cm_event_type event, int status, uint64_t arg);

#ifdef __cplusplus
}
#endif

#endif
