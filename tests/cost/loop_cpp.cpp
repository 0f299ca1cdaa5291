// SPDX-License-Identifier: MIT
// Echo in one epoll loop, with the library: coroutines. Its twin is loop_c.cpp.
#include "loop.hpp"

#include <rdmacpp/epoll.hpp>

#include <array>
#include <coroutine>

namespace async = rdma::async;

namespace {

rdma::epoll_loop* loop;

/// One end, with a CQ for both of its queues.
struct side {
    async::event_channel events{*loop};
    std::array<std::byte, size_of_message> memory{};
    async::cm_id id;
    async::cq cq;
    rdma::mr region;

    void equip() {
        cq = async::cq(*loop, id->verbs(), 64);
        id->create_qp({.send_cq = cq, .recv_cq = cq, .cap = {.max_send_wr = 16, .max_recv_wr = 16}});
        region = rdma::mr(id->pd(), memory, rdma::access::local_write);
    }
    void post_receive() const { id->qp().post_recv(rdma::recv_wr(region.sge())); }
    rdma::send_wr message() const { return rdma::send_wr::send(region.sge()); }
};

struct connection {
    side client, server;
    unsigned left = 0; // messages
    std::coroutine_handle<> idle;
    async::tasks running; // the last: it uses the others

    connection() {
        async::acceptor acceptor(server.events, rdma::address("10.77.1.1", 7471));
        running.spawn(accept(acceptor));
        running.spawn(connect());
        while (running.size() != 0)
            loop->run_once();
        server.post_receive();
    }

    async::task<> connect() {
        client.id = async::cm_id(client.events, rdma::port_space::tcp);
        co_await client.id.resolve_addr(rdma::address("10.77.1.1", 7471));
        co_await client.id.resolve_route();
        client.equip();
        co_await client.id.connect();
    }
    async::task<> accept(async::acceptor& acceptor) {
        server.id = async::cm_id(server.events, (co_await acceptor.next()).take_id());
        server.equip();
        co_await server.id.accept();
    }

    auto next_run() noexcept {
        struct awaiter {
            std::coroutine_handle<>& place;
            bool await_ready() const noexcept { return false; }
            void await_suspend(std::coroutine_handle<> whom) const noexcept { place = whom; }
            void await_resume() const noexcept {}
        };
        return awaiter{idle};
    }

    async::task<> ask() {
        std::array<rdma::work_completion, 4> some;
        for (;;) {
            if (left == 0)
                co_await next_run();
            client.post_receive();
            client.id->qp().post_send(client.message().signaled());
            for (std::size_t due = 2; due != 0;)
                for (rdma::work_completion const& done : co_await client.cq.next(std::span(some).first(due))) {
                    expect(static_cast<bool>(done), "completion");
                    --due;
                }
            --left;
        }
    }
    async::task<> answer() {
        std::array<rdma::work_completion, 4> some;
        for (;;)
            for (rdma::work_completion const& done : co_await server.cq.next(some)) {
                expect(static_cast<bool>(done), "completion");
                if (done.success().opcode() != rdma::wc_opcode::recv)
                    continue;
                server.post_receive();
                server.id->qp().post_send(server.message().signaled());
            }
    }

    async::task<> ask_and_wait() {
        for (;;) {
            if (left == 0)
                co_await next_run();
            client.post_receive();
            expect(static_cast<bool>(co_await client.cq.post_send(client.id, client.message())), "completion");
            expect(static_cast<bool>(co_await client.cq.next()), "completion");
            --left;
        }
    }
    async::task<> answer_and_wait() {
        for (;;) {
            expect(static_cast<bool>(co_await server.cq.next()), "completion");
            server.post_receive();
            expect(static_cast<bool>(co_await server.cq.post_send(server.id, server.message())), "completion");
        }
    }

    void echo(unsigned times) {
        left = times;
        idle.resume();
        while (left != 0)
            loop->run_once();
    }
};

connection* only;

} // namespace

void echo_next(unsigned times) { only->echo(times); }
void echo_post(unsigned times) { only->echo(times); }

int main(int argc, char** argv) {
    int result;
    {
        rdma::epoll_loop on;
        loop = &on;
        connection made;
        only = &made;
        bool const next = argc > 1 && std::strcmp(argv[1], "next") == 0;
        made.running.spawn(next ? made.answer() : made.answer_and_wait());
        made.running.spawn(next ? made.ask() : made.ask_and_wait());
        result = run(argc, argv);
    }
    return all_is_well() ? result : 1;
}
