// SPDX-License-Identifier: MIT
// Two connected ends, in C. Its twin is pair_cpp.hpp.
#pragma once

#include "bench.hpp"

#include <cerrno>
#include <cstring>

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <rdma/rdma_cma.h>

/// One end: a QP, one CQ for both of its queues, and memory: what it sends (or reads into), then what it receives.
struct end {
    rdma_event_channel* events;
    rdma_cm_id* id;
    ibv_comp_channel* channel;
    ibv_cq* cq;
    unsigned char* memory;
    ibv_mr* mr;
    unsigned unacked; // events of the CQ
    std::uint32_t size;
    bool event, blocking;
};

/// C is told of so many completion events at once, since that takes a mutex.
constexpr unsigned acks_at_once = 32;

inline sockaddr_in address_of(std::string const& host, int port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    if (::inet_pton(AF_INET, host.c_str(), &address.sin_addr) != 1)
        bench::fail(host.c_str());
    return address;
}

inline rdma_cm_id* expect(rdma_event_channel* channel, rdma_cm_event_type type) {
    rdma_cm_event* event;
    if (::rdma_get_cm_event(channel, &event) != 0)
        bench::fail("rdma_get_cm_event");
    if (event->event != type || event->status != 0) {
        std::fprintf(stderr, "%s, status %d\n", ::rdma_event_str(event->event), event->status);
        std::exit(1);
    }
    rdma_cm_id* const id = event->id;
    ::rdma_ack_cm_event(event);
    return id;
}

/// For connections that carry nothing.
inline void make_small_qp(rdma_cm_id* id) {
    ibv_qp_init_attr attr{};
    attr.cap.max_send_wr = attr.cap.max_recv_wr = 1;
    attr.cap.max_send_sge = attr.cap.max_recv_sge = 1;
    attr.qp_type = IBV_QPT_RC;
    if (::rdma_create_qp(id, nullptr, &attr) != 0) // with CQs of librdmacm's
        bench::fail("rdma_create_qp");
}

/// What an end needs once its id has a device.
inline void equip(end& e, bench::options const& wanted) {
    e.size = wanted.size;
    e.event = wanted.event;
    e.blocking = wanted.blocking;
    e.unacked = 0;
    e.channel = ::ibv_create_comp_channel(e.id->verbs);
    if (!e.channel)
        bench::fail("ibv_create_comp_channel");
    if (!e.blocking)
        ::fcntl(e.channel->fd, F_SETFL, ::fcntl(e.channel->fd, F_GETFL) | O_NONBLOCK);
    e.cq = ::ibv_create_cq(e.id->verbs, 2 * bench::options::depth, nullptr, e.channel, 0);
    if (!e.cq)
        bench::fail("ibv_create_cq");
    ibv_qp_init_attr attr{};
    attr.send_cq = attr.recv_cq = e.cq;
    attr.cap.max_send_wr = attr.cap.max_recv_wr = bench::options::depth;
    attr.cap.max_send_sge = attr.cap.max_recv_sge = 1;
    attr.qp_type = IBV_QPT_RC;
    if (::rdma_create_qp(e.id, nullptr, &attr) != 0)
        bench::fail("rdma_create_qp");
    e.memory = static_cast<unsigned char*>(std::calloc(2, e.size));
    // On iWARP the sink of a read needs remote write.
    e.mr = ::ibv_reg_mr(e.id->pd, e.memory, std::size_t{2} * e.size,
                        IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE);
    if (!e.mr)
        bench::fail("ibv_reg_mr");
}

inline void release(end& e) {
    ::rdma_destroy_qp(e.id);
    ::ibv_ack_cq_events(e.cq, e.unacked);
    ::ibv_destroy_cq(e.cq);
    ::ibv_destroy_comp_channel(e.channel);
    ::ibv_dereg_mr(e.mr);
    std::free(e.memory);
    ::rdma_destroy_id(e.id);
    ::rdma_destroy_event_channel(e.events);
}

struct pair {
    end client, server;
};

inline void open(pair& p, bench::options const& wanted) {
    p.server.events = ::rdma_create_event_channel();
    p.client.events = ::rdma_create_event_channel();
    if (!p.server.events || !p.client.events)
        bench::fail("rdma_create_event_channel");
    rdma_cm_id* listener;
    if (::rdma_create_id(p.server.events, &listener, nullptr, RDMA_PS_TCP) != 0)
        bench::fail("rdma_create_id");
    sockaddr_in local = address_of(wanted.server, 0);
    if (::rdma_bind_addr(listener, reinterpret_cast<sockaddr*>(&local)) != 0 || ::rdma_listen(listener, 1) != 0)
        bench::fail("rdma_listen");

    if (::rdma_create_id(p.client.events, &p.client.id, nullptr, RDMA_PS_TCP) != 0)
        bench::fail("rdma_create_id");
    sockaddr_in from = address_of(wanted.client, 0);
    sockaddr_in to = address_of(wanted.server, ntohs(::rdma_get_src_port(listener)));
    if (::rdma_resolve_addr(p.client.id, reinterpret_cast<sockaddr*>(&from), reinterpret_cast<sockaddr*>(&to), 2000))
        bench::fail("rdma_resolve_addr");
    expect(p.client.events, RDMA_CM_EVENT_ADDR_RESOLVED);
    if (::rdma_resolve_route(p.client.id, 2000) != 0)
        bench::fail("rdma_resolve_route");
    expect(p.client.events, RDMA_CM_EVENT_ROUTE_RESOLVED);
    equip(p.client, wanted);
    rdma_conn_param param{};
    param.responder_resources = RDMA_MAX_RESP_RES;
    param.initiator_depth = RDMA_MAX_INIT_DEPTH;
    param.retry_count = 7;
    param.rnr_retry_count = 7;
    if (::rdma_connect(p.client.id, &param) != 0)
        bench::fail("rdma_connect");

    p.server.id = expect(p.server.events, RDMA_CM_EVENT_CONNECT_REQUEST);
    equip(p.server, wanted);
    if (::rdma_accept(p.server.id, &param) != 0)
        bench::fail("rdma_accept");
    expect(p.client.events, RDMA_CM_EVENT_ESTABLISHED);
    expect(p.server.events, RDMA_CM_EVENT_ESTABLISHED);
    ::rdma_destroy_id(listener);
}

inline void close(pair& p) {
    ::rdma_disconnect(p.client.id);
    release(p.client);
    release(p.server);
}

inline ibv_sge outgoing(end const& e) { return {reinterpret_cast<std::uintptr_t>(e.memory), e.size, e.mr->lkey}; }
inline ibv_sge incoming(end const& e) {
    return {reinterpret_cast<std::uintptr_t>(e.memory) + e.size, e.size, e.mr->lkey};
}

inline void post_receive(end& e) {
    ibv_sge sge = incoming(e);
    ibv_recv_wr wr{}, *bad;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    if (int const error = ::ibv_post_recv(e.id->qp, &wr, &bad); error != 0) {
        errno = error;
        bench::fail("ibv_post_recv");
    }
}

/// Posts a send, or a read or write of what the peer receives into.
inline void post(end& e, ibv_wr_opcode opcode, end const& peer) {
    ibv_sge sge = outgoing(e);
    ibv_send_wr wr{}, *bad;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = opcode;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.wr.rdma.remote_addr = reinterpret_cast<std::uintptr_t>(peer.memory) + peer.size;
    wr.wr.rdma.rkey = peer.mr->rkey;
    if (int const error = ::ibv_post_send(e.id->qp, &wr, &bad); error != 0) {
        errno = error;
        bench::fail("ibv_post_send");
    }
}

inline void get_event(end& e) {
    ibv_cq* cq;
    void* context;
    while (::ibv_get_cq_event(e.channel, &cq, &context) != 0) {
        if (errno != EAGAIN)
            bench::fail("ibv_get_cq_event");
        pollfd readable = {e.channel->fd, POLLIN, 0};
        ::poll(&readable, 1, -1);
    }
    if (++e.unacked == acks_at_once) {
        ::ibv_ack_cq_events(cq, e.unacked);
        e.unacked = 0;
    }
}

inline int poll_cq(end& e, ibv_wc* into, int most) {
    int const n = ::ibv_poll_cq(e.cq, most, into);
    if (n < 0)
        bench::fail("ibv_poll_cq");
    return n;
}

/// Some completions: drains, arms, drains again, and only then waits.
inline int wait_for(end& e, ibv_wc* into, int most) {
    if (!e.event)
        for (;; bench::relax())
            if (int const n = poll_cq(e, into, most))
                return n;
    for (;;) {
        if (int const n = poll_cq(e, into, most))
            return n;
        if (::ibv_req_notify_cq(e.cq, 0) != 0)
            bench::fail("ibv_req_notify_cq");
        if (int const n = poll_cq(e, into, most))
            return n;
        get_event(e);
    }
}

/// So many completions, all of them successes.
inline void complete(end& e, unsigned count) {
    ibv_wc done[4];
    while (count != 0) {
        int const n = wait_for(e, done, count < 4 ? static_cast<int>(count) : 4);
        for (int i = 0; i != n; ++i)
            if (done[i].status != IBV_WC_SUCCESS) {
                std::fprintf(stderr, "%s\n", ::ibv_wc_status_str(done[i].status));
                std::exit(1);
            }
        count -= static_cast<unsigned>(n);
    }
}
