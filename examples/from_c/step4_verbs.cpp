// SPDX-License-Identifier: MIT
// Step 4: all that a session is made of is owned: PD, completion channel, CQ, memory region and QP.
//
//     step4_verbs ADDRESS PORT CONNECTIONS
//
// Changed: the session has a constructor in place of begin's long condition, and the destructor only ends the thread.
// The completion channel became non-blocking with its owner, so cq.wait() stands in place of get, ack, arm and poll.
// Safe by it: a session that fails half-way undoes its first half. Each object is destroyed after all that was made
// from it, whatever order the members go in. No completion is missed, and no completion event left without its ack.
#include <array>
#include <exception>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <rdmacpp/rdmacpp.hpp>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <system_error>
#include <utility>

enum { depth = 8, size = 64 };

struct session {
    rdma::cm_id id;
    rdma::pd pd{id.verbs()};
    rdma::comp_channel channel{id.verbs()};
    rdma::cq cq{id.verbs(), depth, channel};
    std::array<std::byte, depth * size> buffers{}; // each is received into, then sent from, then received into again
    rdma::mr mr{pd, buffers, rdma::access::local_write};
    pthread_t thread{};

    explicit session(rdma::cm_id taken);
    session(session&&) = delete; // the thread knows where it lives
    ~session();
};

static void check(int error, char const* function) {
    if (error != 0)
        throw std::system_error(error, std::system_category(), function);
}

static int post_recv(struct session* s, uint64_t buffer) {
    struct ibv_sge sge = s->mr.sge(buffer * size, size);
    struct ibv_recv_wr wr, *bad;
    memset(&wr, 0, sizeof wr);
    wr.wr_id = buffer;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    return ibv_post_recv(s->id.qp().native_handle(), &wr, &bad);
}

static int post_send(struct session* s, uint64_t buffer, uint32_t length) {
    struct ibv_sge sge = s->mr.sge(buffer * size, length);
    struct ibv_send_wr wr, *bad;
    memset(&wr, 0, sizeof wr);
    wr.wr_id = buffer;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_SEND;
    wr.send_flags = IBV_SEND_SIGNALED;
    return ibv_post_send(s->id.qp().native_handle(), &wr, &bad);
}

// Echoes, until a request fails: they all do when the connection is over.
static void* serve(void* argument) {
    struct session* s = static_cast<session*>(argument);
    rdma::work_completion wc;
    std::error_code ec;
    int failed = 0;
    while (!failed && !s->cq.wait({&wc, 1}, ec).empty() && wc)
        failed = wc.success().opcode() == rdma::wc_opcode::recv ? post_send(s, wc.wr_id(), wc.success().byte_len())
                                                                : post_recv(s, wc.wr_id());
    return NULL;
}

// Accepts a connection. The receives are posted before, since the client may send at once.
session::session(rdma::cm_id taken) : id(std::move(taken)) {
    id.set_user_context(this);
    id.create_qp(pd, {.send_cq = cq, .recv_cq = cq, .cap = {.max_send_wr = depth, .max_recv_wr = depth}});
    for (uint64_t buffer = 0; buffer != depth; ++buffer)
        check(post_recv(this, buffer), "ibv_post_recv");
    id.accept();
    check(pthread_create(&thread, NULL, serve, this), "pthread_create");
}

session::~session() {
    std::error_code ignored;
    id.disconnect(ignored); // fails what is posted, which ends the thread
    pthread_join(thread, NULL);
}

static int begin(rdma::cm_id id) try {
    new session(std::move(id));
    return 1;
} catch (std::exception const& e) {
    fprintf(stderr, "session: %s\n", e.what());
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
        perror("step4_verbs ADDRESS PORT CONNECTIONS");
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
            delete static_cast<session*>(event.id().user_context());
            if (++ended == wanted)
                return 0;
            break;
        default: break;
        }
    }
} catch (std::exception const& e) {
    fprintf(stderr, "step4_verbs: %s\n", e.what());
    return 1;
}
