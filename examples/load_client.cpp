// SPDX-License-Identifier: MIT
// A client of the echo servers that is as many clients as one likes: it holds all connections at once, on one event
// channel and one completion queue. The connections are made by coroutines; the messages go through one, which takes
// the completions by the batch.
#include "echo.hpp"

#include <rdmacpp/epoll.hpp>

#include <array>
#include <chrono>
#include <cstring>
#include <string>
#include <vector>

namespace async = rdma::async;
using namespace std::chrono_literals;

constexpr char const* usage = R"(load_client [-p PORT] [-n CLIENTS] [-j ATTEMPTS] [-C MESSAGES] [-S SIZE] [-w] SERVER

  SERVER       its address
  -p PORT      its port (7471)
  -n CLIENTS   how many connections to hold at once (1000)
  -j ATTEMPTS  how many to make at a time (64)
  -C MESSAGES  how many to send over each, one after the other's echo (10)
  -S SIZE      of each, in bytes (64)
  -w           when all are echoed, wait until the server ends the connections
  --help       print this

The exit code is 0 when every message came back as it was, 1 when something failed, 2 for wrong options.
)";

struct options {
    std::string host;
    int port = 7471;
    std::uint32_t clients = 1000, attempts = 64, messages = 10, size = 64;
    bool wait = false;
    rdma::address server;

    void set(char letter, char const* value) {
        using command_line::number;
        switch (letter) {
        case 'p': port = number(value, 1, 65535); break;
        case 'n': clients = number(value, 1U, 100'000U); break;
        case 'j': attempts = number<std::uint32_t>(value); break;
        case 'C': messages = number<std::uint32_t>(value); break;
        case 'S': size = number(value, 1U, 1U << 20); break;
        case 'w': wait = true; break;
        default:
            if (!host.empty())
                throw command_line::wrong(std::string("unexpected argument ") + value);
            host = value;
        }
    }
    void check() {
        if (host.empty())
            throw command_line::wrong("the server's address is needed");
        std::error_code ec;
        server = rdma::address(host, port, ec);
        if (ec)
            throw command_line::wrong(host + ": " + ec.message());
    }
};

class load {
public:
    load(rdma::epoll_loop& loop, options const& wanted)
        : loop_(loop), wanted_(wanted), channel_(loop), clients_(wanted.clients) {}

    /// Makes the connections, several at a time.
    void connect() {
        for (std::uint32_t i = 0; i != std::min(wanted_.attempts, wanted_.clients); ++i)
            running_.spawn(guarded(connect_some()));
        finish();
    }

    /// Sends all messages, over all connections at once.
    void exchange() {
        running_.spawn(guarded(exchange_all()));
        finish();
    }

    /// Ends them all, or waits until the server does.
    void close() {
        for (client& each : clients_)
            running_.spawn(guarded(close(each)));
        finish();
    }

private:
    struct client {
        async::cm_id id;
        std::uint32_t sent = 0;
    };

    /// What goes wrong anywhere is the end of it all.
    async::task<> guarded(async::task<> work) {
        try {
            co_await work;
        } catch (...) {
            failure_ = std::current_exception();
            loop_.stop();
        }
    }
    void finish() {
        loop_.run(); // until nothing is waited for
        if (failure_)
            std::rethrow_exception(failure_);
    }

    async::task<> connect_some() {
        while (next_ != clients_.size()) {
            client& mine = clients_[next_++];
            async::cm_id id(channel_, rdma::port_space::tcp);
            co_await id.resolve_addr(wanted_.server, patience);
            co_await id.resolve_route(patience);
            share(*id);
            id->create_qp({.send_cq = cq_, .recv_cq = cq_, .cap = {.max_send_wr = 2, .max_recv_wr = 1}});
            co_await id.connect({}, patience);
            mine.id = std::move(id);
        }
    }

    /// Makes what all connections share, once it is known by which device the server is reached.
    void share(rdma::cm_id const& id) {
        if (cq_)
            return;
        cq_ = async::cq(loop_, id.verbs(), echo::completions(std::size_t{3} * wanted_.clients));
        memory_ = rdma::registered_buffer(id.pd(), std::size_t{2} * wanted_.size * wanted_.clients, rdma::for_recv());
    }

    // The number of a request tells whose it is, and what: its completion, if it failed, tells nothing else.
    static std::uint64_t number(std::size_t whose, bool receive) { return 2 * whose + receive; }

    async::task<> exchange_all() {
        for (std::size_t i = 0; i != clients_.size(); ++i)
            send_next(i);
        std::array<rdma::work_completion, 64> some;
        for (std::size_t echoes = clients_.size() * wanted_.messages; echoes != 0;)
            for (rdma::work_completion const& done : co_await cq_.next(some, 20s)) {
                auto const whose = static_cast<std::size_t>(done.wr_id() / 2);
                if (!done)
                    throw std::runtime_error("client " + std::to_string(whose) + ": " + to_string(done.status()));
                if (done.wr_id() == number(whose, false))
                    continue; // the message has left
                check(whose, done.success().byte_len());
                --echoes;
                if (clients_[whose].sent != wanted_.messages)
                    send_next(whose);
            }
    }

    void send_next(std::size_t whose) {
        client& mine = clients_[whose];
        fill(outgoing(whose), whose, mine.sent++);
        rdma::qp_ref const qp = mine.id->qp();
        qp.post_recv(rdma::recv_wr(piece(incoming(whose))).id(number(whose, true))); // before the message is sent
        qp.post_send(rdma::send_wr::send(piece(outgoing(whose))).id(number(whose, false)).signaled());
    }

    void check(std::size_t whose, std::uint32_t length) const {
        auto const got = incoming(whose), sent = outgoing(whose);
        if (length != sent.size() || std::memcmp(got.data(), sent.data(), length) != 0)
            throw std::runtime_error("client " + std::to_string(whose) + " got something else than it sent");
    }

    async::task<> close(client& mine) {
        if (wanted_.wait)
            (void)co_await mine.id.next(); // the end of the connection is the next event that there can be
        co_await mine.id.disconnect(patience);
        mine.id = {};
    }

    std::span<std::byte> outgoing(std::size_t whose) const {
        return memory_.bytes().subspan(2 * whose * wanted_.size, wanted_.size);
    }
    std::span<std::byte> incoming(std::size_t whose) const {
        return memory_.bytes().subspan((2 * whose + 1) * wanted_.size, wanted_.size);
    }
    ibv_sge piece(std::span<std::byte> part) const {
        return memory_.sge(static_cast<std::size_t>(part.data() - memory_.data()), part.size());
    }
    /// No two messages are the same.
    static void fill(std::span<std::byte> message, std::size_t whose, std::uint32_t which) {
        std::uint64_t state = (std::uint64_t{which} << 32) + whose + 1;
        for (std::byte& each : message) {
            state = state * 6364136223846793005U + 1442695040888963407U;
            each = static_cast<std::byte>(state >> 56);
        }
    }

    static constexpr auto patience = 60s;

    rdma::epoll_loop& loop_;
    options const& wanted_;
    async::event_channel channel_;
    async::cq cq_;
    rdma::registered_buffer memory_;
    std::vector<client> clients_;
    std::size_t next_ = 0;
    std::exception_ptr failure_;
    async::tasks running_;
};

/// Says how long a step took.
template <class Step>
void timed(char const* what, Step step) {
    auto const began = std::chrono::steady_clock::now();
    step();
    std::chrono::duration<double> const took = std::chrono::steady_clock::now() - began;
    std::printf("%s in %.2f s\n", what, took.count());
}

int main(int argc, char** argv) {
    return command_line::run<options>(argc, argv, usage, "p:n:j:C:S:w", [](options const& wanted) {
        rdma::epoll_loop loop;
        load load(loop, wanted);
        std::string const count = std::to_string(wanted.clients);
        timed((count + " connected").c_str(), [&] { load.connect(); });
        timed((std::to_string(std::uint64_t{wanted.clients} * wanted.messages) + " messages echoed").c_str(),
              [&] { load.exchange(); });
        timed((count + " closed").c_str(), [&] { load.close(); });
    });
}
