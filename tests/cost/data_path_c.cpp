// SPDX-License-Identifier: MIT
// The data path as a C program has it. Its twin is data_path_cpp.cpp.
#include "data_path.hpp"

pair* plain;
pair* extended;
static unsigned unacked;

static void post_write(end const& from, end const& to, std::uint64_t number) {
    ibv_sge sge = {reinterpret_cast<std::uintptr_t>(from.mr->addr), size_of_message, from.mr->lkey};
    ibv_send_wr wr{}, *bad;
    wr.wr_id = number;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_RDMA_WRITE;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.wr.rdma.remote_addr = reinterpret_cast<std::uintptr_t>(to.mr->addr);
    wr.wr.rdma.rkey = to.mr->rkey;
    if (int const error = ::ibv_post_send(from.qp, &wr, &bad); error != 0) {
        errno = error;
        fail("ibv_post_send");
    }
}

static void poll_one(ibv_cq* cq) {
    ibv_wc done;
    int n;
    while ((n = ::ibv_poll_cq(cq, 1, &done)) == 0) {
    }
    if (n < 0 || done.status != IBV_WC_SUCCESS)
        fail("ibv_poll_cq");
}

void op_write(unsigned times) {
    end& client = plain->client;
    end& server = plain->server;
    for (unsigned i = 0; i != times; ++i) {
        post_write(client, server, i);
        poll_one(client.cq);
    }
}

void op_send(unsigned times) {
    end& client = plain->client;
    end& server = plain->server;
    for (unsigned i = 0; i != times; ++i) {
        ibv_sge into = {reinterpret_cast<std::uintptr_t>(server.mr->addr), size_of_message, server.mr->lkey};
        ibv_recv_wr receive{}, *bad_receive;
        receive.wr_id = i;
        receive.sg_list = &into;
        receive.num_sge = 1;
        if (int const error = ::ibv_post_recv(server.qp, &receive, &bad_receive); error != 0) {
            errno = error;
            fail("ibv_post_recv");
        }
        ibv_sge from = {reinterpret_cast<std::uintptr_t>(client.mr->addr), size_of_message, client.mr->lkey};
        ibv_send_wr send{}, *bad_send;
        send.wr_id = i;
        send.sg_list = &from;
        send.num_sge = 1;
        send.opcode = IBV_WR_SEND;
        send.send_flags = IBV_SEND_SIGNALED;
        if (int const error = ::ibv_post_send(client.qp, &send, &bad_send); error != 0) {
            errno = error;
            fail("ibv_post_send");
        }
        poll_one(client.cq);
        poll_one(server.cq);
    }
}

void op_chain(unsigned times) {
    end& client = plain->client;
    end& server = plain->server;
    for (unsigned i = 0; i != times; ++i) {
        ibv_sge sge[4];
        ibv_send_wr wr[4]{}, *bad;
        for (unsigned part = 0; part != 4; ++part) {
            sge[part] = {reinterpret_cast<std::uintptr_t>(client.mr->addr) + part * size_of_message / 4,
                         size_of_message / 4, client.mr->lkey};
            wr[part].wr_id = part;
            wr[part].next = part == 3 ? nullptr : &wr[part + 1];
            wr[part].sg_list = &sge[part];
            wr[part].num_sge = 1;
            wr[part].opcode = IBV_WR_RDMA_WRITE;
            wr[part].send_flags = part == 3 ? IBV_SEND_SIGNALED : 0;
            wr[part].wr.rdma.remote_addr =
                reinterpret_cast<std::uintptr_t>(server.mr->addr) + part * size_of_message / 4;
            wr[part].wr.rdma.rkey = server.mr->rkey;
        }
        if (int const error = ::ibv_post_send(client.qp, wr, &bad); error != 0) {
            errno = error;
            fail("ibv_post_send");
        }
        poll_one(client.cq);
    }
}

void op_event(unsigned times) {
    end& client = plain->client;
    end& server = plain->server;
    for (unsigned i = 0; i != times; ++i) {
        if (int const error = ::ibv_req_notify_cq(client.cq, 0); error != 0) {
            errno = error;
            fail("ibv_req_notify_cq");
        }
        post_write(client, server, i);
        ibv_cq* cq;
        void* context;
        if (::ibv_get_cq_event(client.channel, &cq, &context) != 0)
            fail("ibv_get_cq_event");
        if (++unacked == 32) {
            ::ibv_ack_cq_events(cq, unacked);
            unacked = 0;
        }
        poll_one(client.cq);
    }
}

static void poll_extended(ibv_cq_ex* cq) {
    ibv_poll_cq_attr attr{};
    int why;
    while ((why = ::ibv_start_poll(cq, &attr)) == ENOENT) {
    }
    if (why != 0)
        fail("ibv_start_poll");
    do {
        if (cq->status != IBV_WC_SUCCESS || ::ibv_wc_read_opcode(cq) != IBV_WC_RDMA_WRITE)
            fail("completion");
    } while ((why = ::ibv_next_poll(cq)) == 0);
    ::ibv_end_poll(cq);
    if (why != ENOENT)
        fail("ibv_next_poll");
}

void op_ex_poll(unsigned times) {
    end& client = extended->client;
    end& server = extended->server;
    for (unsigned i = 0; i != times; ++i) {
        post_write(client, server, i);
        poll_extended(client.cq_ex);
    }
}

void op_ex_post(unsigned times) {
    end& client = plain->client;
    end& server = plain->server;
    ibv_qp_ex* const qp = ::ibv_qp_to_qp_ex(client.qp);
    for (unsigned i = 0; i != times; ++i) {
        ::ibv_wr_start(qp);
        qp->wr_id = i;
        qp->wr_flags = IBV_SEND_SIGNALED;
        ::ibv_wr_rdma_write(qp, server.mr->rkey, reinterpret_cast<std::uintptr_t>(server.mr->addr));
        ::ibv_wr_set_sge(qp, client.mr->lkey, reinterpret_cast<std::uintptr_t>(client.mr->addr), size_of_message);
        if (int const error = ::ibv_wr_complete(qp); error != 0) {
            errno = error;
            fail("ibv_wr_complete");
        }
        poll_one(client.cq);
    }
}

void op_end(unsigned) { asm volatile(""); } // not to be left out

int main(int argc, char** argv) {
    expect(argc == 3, "usage: data_path_c FEW MANY");
    int result;
    {
        pair a(false), b(true);
        plain = &a;
        extended = &b;
        result = run_all(static_cast<unsigned>(std::atoi(argv[1])), static_cast<unsigned>(std::atoi(argv[2])));
        ::ibv_ack_cq_events(a.client.cq, unacked);
    }
    return all_is_well() ? result : 1;
}
