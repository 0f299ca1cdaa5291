// SPDX-License-Identifier: MIT
// The C programs of docs/from_c.md, as functions: side_by_side.c has them, main.cpp runs each against its like in C++.
#pragma once

#include <rdma/rdma_cma.h>

#ifdef __cplusplus
extern "C" {
#endif

// Serves so many connections: 0, or -1. The message that a client sends is printed.
int c_serve(struct rdma_event_channel* channel, int connections);

// A connected id with its QP, or NULL.
struct rdma_cm_id* c_connect(struct rdma_event_channel* channel, struct sockaddr* server);

// One completion: 1, or -1.
int c_wait(struct ibv_cq* cq, struct ibv_wc* wc);

#ifdef __cplusplus
}
#endif
