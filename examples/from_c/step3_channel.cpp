// SPDX-License-Identifier: MIT
// Step 3: the event channel is owned, and C's loop is a range-for. (A channel that C made is adopted like an id.)
//
//     step3_channel ADDRESS PORT CONNECTIONS
//
// Changed: main alone. What happened is said in the words of C++, and failures are exceptions.
// Safe by it: main may return from where it likes. Channel, listener, ids and events go by themselves, in any order:
// the C channel is destroyed with the last that needs it. And the wait could be stopped now, or timed:
// channel.events(stop_token), channel.get_for(500ms).
#include <exception>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <rdmacpp/rdmacpp.hpp>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utility>

enum { depth = 8, size = 64 };

struct session {
    rdma::cm_id id;
    struct ibv_pd* pd;
    struct ibv_comp_channel* channel;
    struct ibv_cq* cq;
    struct ibv_mr* mr;
    struct ibv_qp* qp;
    char buffers[depth][size]; // each is received into, then sent from, then received into again
    pthread_t thread;
    int running;
};

static int post_recv(struct session* s, uint64_t buffer) {
    struct ibv_sge sge = {(uintptr_t)s->buffers[buffer], size, s->mr->lkey};
    struct ibv_recv_wr wr, *bad;
    memset(&wr, 0, sizeof wr);
    wr.wr_id = buffer;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    return ibv_post_recv(s->qp, &wr, &bad);
}

static int post_send(struct session* s, uint64_t buffer, uint32_t length) {
    struct ibv_sge sge = {(uintptr_t)s->buffers[buffer], length, s->mr->lkey};
    struct ibv_send_wr wr, *bad;
    memset(&wr, 0, sizeof wr);
    wr.wr_id = buffer;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_SEND;
    wr.send_flags = IBV_SEND_SIGNALED;
    return ibv_post_send(s->qp, &wr, &bad);
}

// The queue is armed before it is polled: else what comes in between would raise no event.
static int wait_for_completion(struct session* s, struct ibv_wc* wc) {
    struct ibv_cq* cq;
    void* context;
    int n;
    while ((n = ibv_poll_cq(s->cq, 1, wc)) == 0) {
        if (ibv_get_cq_event(s->channel, &cq, &context) != 0)
            return 0;
        ibv_ack_cq_events(cq, 1);
        if (ibv_req_notify_cq(cq, 0) != 0)
            return 0;
    }
    return n == 1;
}

// Echoes, until a request fails: they all do when the connection is over.
static void* serve(void* argument) {
    struct session* s = (struct session*)argument;
    struct ibv_wc wc;
    int failed = 0;
    while (!failed && wait_for_completion(s, &wc) && wc.status == IBV_WC_SUCCESS)
        failed = wc.opcode == IBV_WC_RECV ? post_send(s, wc.wr_id, wc.byte_len) : post_recv(s, wc.wr_id);
    return NULL;
}

// Frees what there is of a session, in the only order that works.
static void end(struct session* s) {
    struct rdma_cm_id* id = s->id.native_handle();
    if (s->running) {
        rdma_disconnect(id); // fails what is posted, which ends the thread
        pthread_join(s->thread, NULL);
    }
    if (s->qp)
        rdma_destroy_qp(id);
    if (s->mr)
        ibv_dereg_mr(s->mr);
    if (s->cq)
        ibv_destroy_cq(s->cq);
    if (s->channel)
        ibv_destroy_comp_channel(s->channel);
    if (s->pd)
        ibv_dealloc_pd(s->pd);
    delete s; // and its id, now or with the last event of it
}

static int create_qp(struct session* s, struct rdma_cm_id* id) {
    struct ibv_qp_init_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.send_cq = s->cq;
    attr.recv_cq = s->cq;
    attr.cap.max_send_wr = depth;
    attr.cap.max_recv_wr = depth;
    attr.cap.max_send_sge = 1;
    attr.cap.max_recv_sge = 1;
    attr.qp_type = IBV_QPT_RC;
    if (rdma_create_qp(id, s->pd, &attr) != 0)
        return -1;
    s->qp = id->qp;
    return 0;
}

static int post_all(struct session* s) {
    uint64_t buffer;
    for (buffer = 0; buffer != depth; ++buffer)
        if (post_recv(s, buffer) != 0)
            return -1;
    return 0;
}

// Accepts a connection. The receives are posted before, since the client may send at once.
static int begin(rdma::cm_id taken) {
    struct rdma_cm_id* id = taken.native_handle();
    struct session* s = new session();
    s->id = std::move(taken);
    id->context = s;
    if ((s->pd = ibv_alloc_pd(id->verbs)) && (s->channel = ibv_create_comp_channel(id->verbs)) &&
        (s->cq = ibv_create_cq(id->verbs, depth, NULL, s->channel, 0)) && ibv_req_notify_cq(s->cq, 0) == 0 &&
        (s->mr = ibv_reg_mr(s->pd, s->buffers, sizeof s->buffers, IBV_ACCESS_LOCAL_WRITE)) && create_qp(s, id) == 0 &&
        post_all(s) == 0 && rdma_accept(id, NULL) == 0 && pthread_create(&s->thread, NULL, serve, s) == 0) {
        s->running = 1;
        return 1;
    }
    perror("session");
    end(s);
    return 0;
}

static struct rdma_cm_id* listen_at(struct rdma_event_channel* channel, char const* host, char const* port) {
    struct rdma_addrinfo hints, *found;
    struct rdma_cm_id* id = NULL;
    memset(&hints, 0, sizeof hints);
    hints.ai_flags = RAI_PASSIVE;
    hints.ai_port_space = RDMA_PS_TCP;
    if (rdma_getaddrinfo(host, port, &hints, &found) != 0)
        return NULL;
    if (rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) == 0 &&
        (rdma_bind_addr(id, found->ai_src_addr) != 0 || rdma_listen(id, 0) != 0)) {
        rdma_destroy_id(id);
        id = NULL;
    }
    rdma_freeaddrinfo(found);
    return id;
}

int main(int argc, char** argv) try {
    rdma::event_channel channel;
    struct rdma_cm_id* raw = argc == 4 ? listen_at(channel.native_handle(), argv[1], argv[2]) : NULL;
    int wanted, begun = 0, ended = 0;
    if (!raw) {
        perror("step3_channel ADDRESS PORT CONNECTIONS");
        return 1;
    }
    rdma::cm_id listener{rdma::adopt, channel, raw};
    puts("listening");
    wanted = atoi(argv[3]);
    for (rdma::cm_event event : channel) { // waits; acks at the end of each turn, on break, on throw
        using enum rdma::cm_event_type;
        switch (event.type()) {
        case connect_request:
            if (begun != wanted) // else the event rejects the request, and destroys its id
                begun += begin(event.take_id());
            break;
        case disconnected:
        case connect_error:
        case unreachable:
        case rejected:
            end((struct session*)event.id().user_context());
            if (++ended == wanted)
                return 0;
            break;
        default: break;
        }
    }
} catch (std::exception const& e) {
    fprintf(stderr, "step3_channel: %s\n", e.what());
    return 1;
}
