// SPDX-License-Identifier: MIT
// Two connected ends on the fake, made in C: below what is measured, on either side.
#pragma once

#include <fake/fake.hpp>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <arpa/inet.h>
#include <fcntl.h>

[[noreturn]] inline void fail(char const* what) {
    std::perror(what);
    std::abort();
}

inline void expect(bool fine, char const* what) {
    if (!fine)
        fail(what);
}

constexpr std::uint32_t size_of_message = 64; // bytes

/// One end, with a CQ for both of its queues.
struct end {
    rdma_event_channel* events = ::rdma_create_event_channel();
    rdma_cm_id* id = nullptr;
    ibv_comp_channel* channel = nullptr;
    ibv_cq_ex* cq_ex = nullptr; // null: the CQ is a plain one
    ibv_cq* cq = nullptr;
    ibv_qp* qp = nullptr;
    ibv_mr* mr = nullptr;
    unsigned char memory[size_of_message]{};

    void equip(bool extended) {
        channel = ::ibv_create_comp_channel(id->verbs);
        expect(channel && ::fcntl(channel->fd, F_SETFL, ::fcntl(channel->fd, F_GETFL) | O_NONBLOCK) == 0, "channel");
        if (extended) {
            ibv_cq_init_attr_ex attr{};
            attr.cqe = 64;
            attr.channel = channel;
            attr.wc_flags = IBV_WC_STANDARD_FLAGS;
            cq_ex = ::ibv_create_cq_ex(id->verbs, &attr);
            expect(cq_ex, "ibv_create_cq_ex");
            cq = ::ibv_cq_ex_to_cq(cq_ex);
        } else {
            cq = ::ibv_create_cq(id->verbs, 64, nullptr, channel, 0);
        }
        expect(cq, "ibv_create_cq");
        ibv_qp_init_attr_ex attr{};
        attr.send_cq = attr.recv_cq = cq;
        attr.cap = {16, 16, 1, 1, 0};
        attr.qp_type = IBV_QPT_RC;
        attr.pd = id->pd;
        attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
        attr.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE;
        expect(::rdma_create_qp_ex(id, &attr) == 0, "rdma_create_qp_ex");
        qp = id->qp;
        mr = ::ibv_reg_mr(id->pd, memory, size_of_message, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
        expect(mr, "ibv_reg_mr");
    }

    rdma_cm_id* await(rdma_cm_event_type type) const {
        rdma_cm_event* event;
        expect(::rdma_get_cm_event(events, &event) == 0 && event->event == type, "rdma_get_cm_event");
        rdma_cm_id* const about = event->id;
        ::rdma_ack_cm_event(event);
        return about;
    }

    void close() {
        ::rdma_destroy_qp(id);
        expect(::ibv_dereg_mr(mr) == 0 && ::ibv_destroy_cq(cq) == 0 && ::ibv_destroy_comp_channel(channel) == 0,
               "close");
        ::rdma_destroy_id(id);
        ::rdma_destroy_event_channel(events);
    }
};

/// Two connected ends.
struct pair {
    end client, server;

    explicit pair(bool extended) {
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_port = htons(7471);
        ::inet_pton(AF_INET, "10.77.1.1", &address.sin_addr);
        auto* const to = reinterpret_cast<sockaddr*>(&address);
        rdma_cm_id* listener;
        expect(::rdma_create_id(server.events, &listener, nullptr, RDMA_PS_TCP) == 0, "rdma_create_id");
        expect(::rdma_bind_addr(listener, to) == 0 && ::rdma_listen(listener, 1) == 0, "rdma_listen");
        expect(::rdma_create_id(client.events, &client.id, nullptr, RDMA_PS_TCP) == 0, "rdma_create_id");
        expect(::rdma_resolve_addr(client.id, nullptr, to, 1000) == 0, "rdma_resolve_addr");
        client.await(RDMA_CM_EVENT_ADDR_RESOLVED);
        expect(::rdma_resolve_route(client.id, 1000) == 0, "rdma_resolve_route");
        client.await(RDMA_CM_EVENT_ROUTE_RESOLVED);
        client.equip(extended);
        rdma_conn_param param{};
        expect(::rdma_connect(client.id, &param) == 0, "rdma_connect");
        server.id = server.await(RDMA_CM_EVENT_CONNECT_REQUEST);
        server.equip(extended);
        expect(::rdma_accept(server.id, &param) == 0, "rdma_accept");
        client.await(RDMA_CM_EVENT_ESTABLISHED);
        server.await(RDMA_CM_EVENT_ESTABLISHED);
        ::rdma_destroy_id(listener);
    }
    ~pair() {
        client.close();
        server.close();
    }
    pair(pair const&) = delete;
    pair& operator=(pair const&) = delete;
};

inline bool all_is_well() {
    for (auto const& complaints : {fake::would_hang(), fake::misuse()})
        for (std::string const& complaint : complaints)
            std::fprintf(stderr, "%s\n", complaint.c_str());
    return fake::would_hang().empty() && fake::misuse().empty();
}
