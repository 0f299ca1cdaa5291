// SPDX-License-Identifier: MIT
// One thread and one epoll loop for both ends, with the library: coroutines. Its twin is loop_c.cpp.
#include "pair_cpp.hpp"

#include <coroutine>

#include <rdmacpp/epoll.hpp>

namespace {

namespace async = rdma::async;

bench::options with_events(bench::options wanted) {
    wanted.event = true;
    return wanted;
}

/// A message there and one back, each into a receive. The completions are waited for as they come, or those of sends
/// where they are posted.
class loop_send : public bench::benchmark {
public:
    explicit loop_send(bench::options const& wanted) : pair_(with_events(wanted)) {
        bool const at_each_post = wanted.test == "loop_post";
        server_.post_receive();
        running_.spawn(at_each_post ? answer_and_wait() : answer());
        running_.spawn(at_each_post ? ask_and_wait() : ask());
    }

    void run(unsigned times, bench::phases&) override {
        left_ = times;
        idle_.resume();
        while (left_ != 0)
            loop_.run_once();
    }

private:
    /// One end of the pair, on the loop.
    struct side {
        end& mine;
        async::cm_id id;
        async::cq cq;

        side(rdma::epoll_loop& loop, async::event_channel const& channel, end& from)
            : mine(from), id(channel, std::move(from.id)), cq(loop, from.cq) {}
        void post_receive() const { id->qp().post_recv(rdma::recv_wr(mine.incoming())); }
        rdma::send_wr message() const { return rdma::send_wr::send(mine.outgoing()); }
    };

    /// Between two runs the client waits here.
    auto next_run() noexcept {
        struct awaiter {
            std::coroutine_handle<>& place;
            bool await_ready() const noexcept { return false; }
            void await_suspend(std::coroutine_handle<> whom) const noexcept { place = whom; }
            void await_resume() const noexcept {}
        };
        return awaiter{idle_};
    }

    async::task<> ask() {
        std::array<rdma::work_completion, 4> some;
        for (;;) {
            if (left_ == 0)
                co_await next_run();
            client_.post_receive();
            client_.id->qp().post_send(client_.message().signaled());
            for (std::size_t due = 2; due != 0;)
                for (rdma::work_completion const& done : co_await client_.cq.next(std::span(some).first(due))) {
                    expect(done);
                    --due;
                }
            --left_;
        }
    }
    async::task<> answer() {
        std::array<rdma::work_completion, 4> some;
        for (;;)
            for (rdma::work_completion const& done : co_await server_.cq.next(some)) {
                expect(done);
                if (done.success().opcode() != rdma::wc_opcode::recv)
                    continue;
                server_.post_receive();
                server_.id->qp().post_send(server_.message().signaled());
            }
    }

    async::task<> ask_and_wait() {
        for (;;) {
            if (left_ == 0)
                co_await next_run();
            client_.post_receive();
            expect(co_await client_.cq.post_send(client_.id, client_.message()));
            expect(co_await client_.cq.next());
            --left_;
        }
    }
    async::task<> answer_and_wait() {
        for (;;) {
            expect(co_await server_.cq.next());
            server_.post_receive();
            expect(co_await server_.cq.post_send(server_.id, server_.message()));
        }
    }

    static void expect(rdma::work_completion const& done) {
        if (!done)
            throw std::runtime_error(to_string(done.status()));
    }

    rdma::epoll_loop loop_;
    async::event_channel channel_{loop_};
    pair pair_;
    side client_{loop_, channel_, pair_.client}, server_{loop_, channel_, pair_.server};
    unsigned left_ = 0; // round trips
    std::coroutine_handle<> idle_;
    async::tasks running_; // the last: it uses the others
};

/// Connections from nothing to nothing, all of them begun at once: a coroutine for each end of each.
class loop_connections : public bench::benchmark {
public:
    explicit loop_connections(bench::options const& wanted)
        : acceptor_(server_events_, rdma::address(wanted.server, 0)), to_(acceptor_.local_addr()) {
        connecting_.local = rdma::address(wanted.client, 0);
        connecting_.qp = accepting_.qp = {.cap = {.max_send_wr = 1, .max_recv_wr = 1}}; // with CQs of librdmacm's
        servers_.spawn(serve());
    }

    void run(unsigned times, bench::phases&) override {
        for (unsigned i = 0; i != times; ++i)
            clients_.spawn(connect());
        while (clients_.size() + sessions_.size() != 0)
            loop_.run_once();
    }

private:
    async::task<> connect() {
        async::cm_id const id = co_await async::connect(client_events_, to_, connecting_);
        co_await id.disconnect();
    }
    async::task<> serve() {
        for (;;)
            sessions_.spawn(session((co_await acceptor_.next()).take_id()));
    }
    async::task<> session(rdma::cm_id undecided) {
        async::cm_id const id = co_await async::accept(server_events_, std::move(undecided), accepting_);
        while ((co_await id.next()).type() != rdma::cm_event_type::disconnected) {
        }
    }

    rdma::epoll_loop loop_;
    async::event_channel server_events_{loop_}, client_events_{loop_};
    async::acceptor acceptor_;
    rdma::address to_;
    rdma::connect_options connecting_;
    rdma::accept_options accepting_;
    async::tasks clients_, sessions_, servers_; // the last: they use the others
};

} // namespace

std::unique_ptr<bench::benchmark> bench::make_loop(options const& wanted) {
    if (wanted.test == "loop_connect")
        return std::make_unique<loop_connections>(wanted);
    return std::make_unique<loop_send>(wanted);
}
