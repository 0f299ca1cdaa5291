// SPDX-License-Identifier: MIT
// The snippet of docs/first_steps.md that is not in examples/hello.cpp.
#include "snippets.hpp"

#include <stdexcept>

namespace {

/// Answers one message with another.
void answer(rdma::acceptor const& acceptor, rdma::event_channel const& channel) {
    rdma::registered_buffer memory;
    rdma::cm_id const id = acceptor.get().accept(channel, {}, [&](rdma::cm_id& fresh) {
        memory = {fresh.pd(), 64, rdma::for_recv() | rdma::for_send()};
        fresh.qp().post_recv(rdma::recv_wr(memory.sge()));
    });
    SNIPPET_CHECK(id.recv_cq().wait_one(10s));
    id.qp().post_send(rdma::send_wr::send(memory.sge()).signaled());
    SNIPPET_CHECK(id.send_cq().wait_one(10s));
    expect(channel, rdma::cm_event_type::disconnected);
}

void in_few_lines() {
    rdma::event_channel channel, served;
    rdma::acceptor acceptor(an_address);
    rdma::address const server = an_address;
    auto serving = std::async(std::launch::async, [&] { answer(acceptor, served); });
    //! [shorter]
    rdma::registered_buffer out, in; // empty: there is no device yet
    rdma::cm_id id = rdma::connect(channel, server, {.limit = 5s}, [&](rdma::cm_id& fresh) {
        out = {fresh.pd(), 64, rdma::for_send()};
        in = {fresh.pd(), 64, rdma::for_recv()};
        fresh.qp().post_recv(rdma::recv_wr(in.sge())); // before the peer can send
    });

    std::strcpy(reinterpret_cast<char*>(out.data()), "hello");
    id.qp().post_send(rdma::send_wr::send(out.sge()).signaled());
    for (auto const& cq : {id.send_cq(), id.recv_cq()}) // it was sent, and the answer is there
        if (auto const done = cq.wait_one(5s); !done || !*done)
            throw std::runtime_error(done ? to_string(done->status()) : "no answer in time");
    std::puts(reinterpret_cast<char const*>(in.data()));
    rdma::disconnect(id, 2s);
    //! [shorter]
    SNIPPET_CHECK(std::strcmp(reinterpret_cast<char const*>(in.data()), "hello") == 0);
    serving.get();
}

} // namespace

void first_steps() { in_few_lines(); }
