// SPDX-License-Identifier: MIT
// The data path with the library. Its twin is data_path_c.cpp.
#include "data_path.hpp"

#include <rdmacpp/rdmacpp.hpp>

pair* plain;
pair* extended;

namespace {

/// The same end, seen with the library's types.
struct view {
    rdma::mr_ref region;
    rdma::qp_ref qp;
    rdma::cq_ref cq;

    explicit view(end const& e) : region(e.mr), qp(e.qp), cq(e.cq) {}
    ibv_sge sge() const { return region.sge(0, size_of_message); }
    rdma::remote_memory target() const { return region.remote(); }
};

void poll_one(rdma::cq_ref cq) {
    rdma::work_completion done;
    while (cq.poll({&done, 1}).empty()) {
    }
    if (!done)
        fail("completion");
}

rdma::comp_channel channel; // of the plain client
rdma::cq armed;             // its CQ
rdma::cq_ex cq_ex;          // of the extended client

} // namespace

void op_write(unsigned times) {
    view const client(plain->client), server(plain->server);
    for (unsigned i = 0; i != times; ++i) {
        client.qp.post_send(rdma::send_wr::write(client.sge(), server.target()).id(i).signaled());
        poll_one(client.cq);
    }
}

void op_send(unsigned times) {
    view const client(plain->client), server(plain->server);
    for (unsigned i = 0; i != times; ++i) {
        server.qp.post_recv(rdma::recv_wr(server.sge()).id(i));
        client.qp.post_send(rdma::send_wr::send(client.sge()).id(i).signaled());
        poll_one(client.cq);
        poll_one(server.cq);
    }
}

void op_chain(unsigned times) {
    view const client(plain->client), server(plain->server);
    for (unsigned i = 0; i != times; ++i) {
        rdma::remote_memory const target = server.target();
        auto const part = [&](unsigned number) {
            std::uint32_t const offset = number * size_of_message / 4;
            return rdma::send_wr::write(client.region.sge(offset, size_of_message / 4),
                                        {target.address + offset, target.rkey});
        };
        rdma::send_wr chain[] = {part(0), part(1), part(2), part(3)};
        for (unsigned number = 0; number != 4; ++number)
            chain[number].id(number);
        chain[3].signaled();
        client.qp.post_send(chain);
        poll_one(client.cq);
    }
}

void op_event(unsigned times) {
    view const client(plain->client), server(plain->server);
    for (unsigned i = 0; i != times; ++i) {
        armed.req_notify();
        client.qp.post_send(rdma::send_wr::write(client.sge(), server.target()).id(i).signaled());
        channel.get().ack();
        poll_one(armed);
    }
}

void op_ex_poll(unsigned times) {
    view const client(extended->client), server(extended->server);
    for (unsigned i = 0; i != times; ++i) {
        client.qp.post_send(rdma::send_wr::write(client.sge(), server.target()).id(i).signaled());
        for (bool found = false; !found;) {
            rdma::polling poll = cq_ex.start_poll();
            for (rdma::polling& done : poll) {
                if (done.status() != rdma::wc_status::success || done.success().opcode() != rdma::wc_opcode::rdma_write)
                    fail("completion");
                found = true;
            }
            if (poll.error() != std::errc{})
                fail("ibv_start_poll");
        }
    }
}

void op_ex_post(unsigned times) {
    view const client(plain->client), server(plain->server);
    rdma::qp_ex_ref const qp = client.qp.ex();
    for (unsigned i = 0; i != times; ++i) {
        rdma::wr_batch batch = qp.start();
        batch.request(i, IBV_SEND_SIGNALED).write(server.target()).sge(client.sge());
        batch.complete();
        poll_one(client.cq);
    }
}

void op_end(unsigned) { asm volatile(""); } // not to be left out

int main(int argc, char** argv) {
    expect(argc == 3, "usage: data_path_cpp FEW MANY");
    int result;
    {
        pair a(false), b(true);
        plain = &a;
        extended = &b;
        channel = rdma::comp_channel(rdma::adopt, a.client.channel);
        armed = rdma::cq(rdma::adopt, a.client.cq);
        cq_ex = rdma::cq_ex(rdma::adopt, b.client.cq_ex);
        result = run_all(static_cast<unsigned>(std::atoi(argv[1])), static_cast<unsigned>(std::atoi(argv[2])));
        expect(armed.release() && channel.release() && cq_ex.release(), "release");
    }
    return all_is_well() ? result : 1;
}
