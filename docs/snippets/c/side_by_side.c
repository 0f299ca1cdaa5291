// SPDX-License-Identifier: MIT
// Three pieces of C, for docs/from_c.md. They are written with care: what looks like too much of it is needed.
#include "side_by_side.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Two columns must fit on a page.
// clang-format off

//! [server]
enum { size = 64 };

struct session {
    struct rdma_cm_id* id;
    struct ibv_mr* mr;
    char buffer[size];
};

static void end(struct session* s) {
    struct rdma_cm_id* id = s->id;
    if (id->qp)
        rdma_destroy_qp(id); // the only order that works
    if (s->mr)
        ibv_dereg_mr(s->mr);
    rdma_destroy_id(id); // waits for every event of it
    free(s);
}

static int begin(struct rdma_cm_id* id) {
    struct session* s = calloc(1, sizeof *s);
    struct ibv_qp_init_attr attr;
    if (!s) {
        rdma_destroy_id(id); // rejects it, too
        return -1;
    }
    s->id = id;
    id->context = s; // it has the listener's until now
    memset(&attr, 0, sizeof attr);
    attr.qp_type = IBV_QPT_RC;
    attr.cap.max_send_wr = attr.cap.max_recv_wr = 1;
    attr.cap.max_send_sge = attr.cap.max_recv_sge = 1;
    s->mr = ibv_reg_mr(id->pd, s->buffer, size,
                       IBV_ACCESS_LOCAL_WRITE);
    if (!s->mr || rdma_create_qp(id, NULL, &attr) != 0)
        goto failed;
    struct ibv_sge sge = {(uintptr_t)s->buffer, size,
                          s->mr->lkey};
    struct ibv_recv_wr wr, *bad;
    memset(&wr, 0, sizeof wr);
    wr.sg_list = &sge;
    wr.num_sge = 1;
    if (ibv_post_recv(id->qp, &wr, &bad) != 0 ||
        rdma_accept(id, NULL) != 0)
        goto failed;
    return 0;
failed:
    end(s);
    return -1;
}

int c_serve(struct rdma_event_channel* channel,
            int left) {
    struct rdma_cm_event* event;
    while (left > 0) {
        if (rdma_get_cm_event(channel, &event) != 0)
            return -1; // also for a signal
        struct rdma_cm_id* id = event->id;
        enum rdma_cm_event_type type = event->event;
        // Now, since end() below waits for it, for ever.
        rdma_ack_cm_event(event);
        switch (type) {
        case RDMA_CM_EVENT_CONNECT_REQUEST:
            if (begin(id) != 0)
                perror("session");
            break;
        case RDMA_CM_EVENT_DISCONNECTED:
            puts(((struct session*)id->context)->buffer);
            end(id->context);
            --left;
            break;
        default: break;
        }
    }
    return 0;
}
//! [server]

//! [connect]
static int expect(struct rdma_event_channel* channel,
                  enum rdma_cm_event_type wanted) {
    struct rdma_cm_event* event;
    if (rdma_get_cm_event(channel, &event)) // no limit
        return -1;
    int as_wanted = event->event == wanted;
    int status = event->status; // an errno, or not
    rdma_ack_cm_event(event);
    if (as_wanted)
        return 0;
    errno = status < 0 ? -status : ECONNREFUSED;
    return -1;
}

struct rdma_cm_id*
c_connect(struct rdma_event_channel* channel,
          struct sockaddr* server) {
    struct ibv_qp_init_attr attr;
    struct rdma_conn_param param;
    struct rdma_cm_id* id;
    if (rdma_create_id(channel, &id, NULL, RDMA_PS_TCP))
        return NULL;
    memset(&attr, 0, sizeof attr);
    attr.qp_type = IBV_QPT_RC;
    attr.cap.max_send_wr = attr.cap.max_recv_wr = 16;
    attr.cap.max_send_sge = attr.cap.max_recv_sge = 1;
    memset(&param, 0, sizeof param);
    param.retry_count = 7;
    param.rnr_retry_count = 7;
    if (rdma_resolve_addr(id, NULL, server, 2000) ||
        expect(channel, RDMA_CM_EVENT_ADDR_RESOLVED) ||
        rdma_resolve_route(id, 2000) ||
        expect(channel, RDMA_CM_EVENT_ROUTE_RESOLVED) ||
        rdma_create_qp(id, NULL, &attr) ||
        rdma_connect(id, &param) ||
        expect(channel, RDMA_CM_EVENT_ESTABLISHED)) {
        int reason = errno;
        if (id->qp)
            rdma_destroy_qp(id);
        rdma_destroy_id(id);
        errno = reason;
        return NULL;
    }
    return id;
}
//! [connect]

//! [wait]
int c_wait(struct ibv_cq* cq, struct ibv_wc* wc) {
    for (;;) {
        int n = ibv_poll_cq(cq, 1, wc);
        if (n != 0)
            return n;
        if (ibv_req_notify_cq(cq, 0) != 0)
            return -1;
        // What came before the arming raises no event.
        n = ibv_poll_cq(cq, 1, wc);
        if (n != 0)
            return n; // its event may follow, some day
        struct ibv_cq* which;
        void* context;
        if (ibv_get_cq_event(cq->channel, &which,
                             &context) != 0)
            return -1;               // also for a signal
        ibv_ack_cq_events(which, 1); // or its end waits
    }
}
//! [wait]
