// SPDX-License-Identifier: MIT
// An echo server that holds thousands of clients on one thread, with one event channel and, for each device, one
// completion queue: a dozen descriptors in all. It runs on epoll, in coroutines: one for each client's connection, and
// in it one for each message under way.
#include "echo.hpp"
#include "stop_signals.hpp"

#include <rdmacpp/epoll.hpp>

namespace async = rdma::async;

constexpr char const* usage = R"(epoll_server [-a ADDRESS] [-p PORT] [-n CLIENTS] [-S SIZE]

  -a ADDRESS  the local address (0.0.0.0)
  -p PORT     the port (7471)
  -n CLIENTS  how many at once; who comes when it is full is rejected (1024)
  -S SIZE     the longest message, in bytes (256)
  --help      print this

Sends back what it gets, until SIGINT or SIGTERM. Then it takes no more clients, disconnects those that are there, and
says how many there were. The exit code is 0 then, 1 when it cannot go on, 2 for wrong options.
)";

class server {
public:
    server(rdma::epoll_loop& loop, echo::options const& wanted, stop_signals& signals)
        : signals_(signals), channel_(loop), acceptor_(channel_, wanted.address()), devices_(loop, wanted) {
        std::printf("listening on %s\n", to_string(acceptor_.local_addr()).c_str());
    }

    /// Takes clients until it is told to stop.
    async::task<> run() {
        std::error_code ended;
        while (!ended) {
            async::request request = co_await acceptor_.next(signals_.token(), ended);
            if (request)
                sessions_.spawn(serve(request.take_id()));
        }
        acceptor_ = {};  // who comes now is refused at once
        signals_.stop(); // the clients that are there are told, also when the listener has failed
        if (ended != std::errc::operation_canceled)
            throw std::system_error(ended, "no more clients can come");
    }

    void print() const { std::printf("served %zu clients, %zu messages\n", clients_, messages_); }

private:
    /// One client, from its request to its end. What goes wrong here is the end of this client, and of nobody else.
    async::task<> serve(rdma::cm_id undecided) {
        std::string const peer = to_string(undecided.peer_addr());
        try {
            echo::device& device = devices_.of(undecided);
            echo::place const place(device); // if there is none, the client is rejected when `undecided` goes
            async::cm_id const id(channel_, std::move(undecided));
            id->create_qp({.send_cq = device.cq,
                           .recv_cq = device.cq,
                           .cap = {.max_send_wr = echo::window, .max_recv_wr = echo::window}});

            // Each begins with a receive, and the client may send as soon as it is accepted.
            std::array<async::task<>, echo::window> messages;
            for (std::size_t i = 0; i != messages.size(); ++i)
                (messages[i] = echo_messages(id, device.cq, place.message(i))).start();
            co_await id.accept({}, patience);
            ++clients_;

            std::error_code stopped;
            (void)co_await id.next(signals_.token(), stopped); // a connection's next event is its end
            if (stopped)
                co_await id.disconnect(patience);
        } catch (std::exception const& e) {
            std::fprintf(stderr, "epoll_server: %s: %s\n", peer.c_str(), e.what());
        }
    }

    /// Sends back what comes into this piece of memory, again and again. It goes with the connection.
    async::task<> echo_messages(async::cm_id const& id, async::cq const& cq, ibv_sge memory) {
        rdma::work_completion done;
        std::error_code ec;
        for (;; ++messages_) {
            done = co_await cq.post_recv(id, rdma::recv_wr(memory), ec);
            if (ec || !done)
                break;
            ibv_sge message = memory;
            message.length = done.success().byte_len();
            done = co_await cq.post_send(id, rdma::send_wr::send(message), ec);
            if (ec || !done)
                break;
        }
        if (!ec && done.status() != rdma::wc_status::wr_flush_err) // a message too long, a client that died
            std::fprintf(stderr, "epoll_server: %s: %s\n", to_string(id->peer_addr()).c_str(),
                         to_string(done.status()).c_str());
        id->disconnect(ec); // which ends the wait in serve()
    }

    static constexpr auto patience = std::chrono::seconds(30);

    stop_signals& signals_;
    async::event_channel channel_;
    async::acceptor acceptor_;
    echo::devices devices_;
    std::size_t clients_ = 0, messages_ = 0;
    async::tasks sessions_; // the last: what runs uses the rest
};

int main(int argc, char** argv) {
    return command_line::run<echo::options>(argc, argv, usage, "a:p:n:S:", [](echo::options const& wanted) {
        rdma::epoll_loop loop;
        stop_signals signals(loop);
        server server(loop, wanted, signals);
        async::task<> running = server.run();
        running.start();
        loop.run();
        running.get();
        server.print();
    });
}
