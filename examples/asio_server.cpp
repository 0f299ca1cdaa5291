// SPDX-License-Identifier: MIT
// The echo server once more, for programs that live in Asio: the same connections, completion queues and clients as in
// epoll_server.cpp, on an asio::io_context, in its coroutines, beside whatever else runs there.
#include "echo.hpp"

#include <rdmacpp/asio.hpp>

#include <asio/awaitable.hpp>
#include <asio/co_spawn.hpp>
#include <asio/detached.hpp>
#include <asio/error.hpp>
#include <asio/io_context.hpp>
#include <asio/post.hpp>
#include <asio/redirect_error.hpp>
#include <asio/signal_set.hpp>
#include <asio/use_awaitable.hpp>

#include <csignal>
#include <memory>
#include <stop_token>

namespace async = rdma::async;
using rdma::asio::initiate;

constexpr char const* usage = R"(asio_server [-a ADDRESS] [-p PORT] [-n CLIENTS] [-S SIZE]

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
    server(asio::io_context& context, echo::options const& wanted)
        : context_(context), loop_(context), signals_(context, SIGINT, SIGTERM), channel_(loop_),
          acceptor_(channel_, wanted.address()), devices_(loop_, wanted) {
        signals_.async_wait([this](asio::error_code ec, int) {
            if (!ec)
                stop();
        });
        std::printf("listening on %s\n", to_string(acceptor_.local_addr()).c_str());
    }

    /// Takes clients until it is told to stop.
    asio::awaitable<void> run() {
        asio::error_code ended;
        while (!ended) {
            async::request request = co_await initiate(loop_, acceptor_.next(stop_.get_token()),
                                                       asio::redirect_error(asio::use_awaitable, ended));
            if (request)
                asio::co_spawn(context_, serve(request.take_id()), asio::detached);
        }
        acceptor_ = {}; // who comes now is refused at once
        if (ended != asio::error::operation_aborted)
            failed_ = ended;
        stop(); // the clients that are there are told, also when the listener has failed
    }

    /// When the context has run out of work.
    void finish() const {
        if (failed_)
            throw std::system_error(failed_, "no more clients can come");
        std::printf("served %zu clients, %zu messages\n", clients_, messages_);
    }

private:
    /// What the coroutines of one client share.
    struct session {
        session(echo::device& on, async::event_channel const& channel, rdma::cm_id undecided)
            : device(on), place(on), id(channel, std::move(undecided)) {}

        echo::device& device;
        echo::place place; // if there is none, the client is rejected
        async::cm_id id;
    };

    void stop() {
        signals_.cancel();
        signals_.clear(); // a second one ends the program
        stop_.request_stop();
    }

    /// One client, from its request to its end. What goes wrong here is the end of this client, and of nobody else.
    asio::awaitable<void> serve(rdma::cm_id undecided) {
        std::string const peer = to_string(undecided.peer_addr());
        std::shared_ptr<session> mine;
        try {
            mine = std::make_shared<session>(devices_.of(undecided), channel_, std::move(undecided));
            async::cm_id const& id = mine->id;
            id->create_qp({.send_cq = mine->device.cq,
                           .recv_cq = mine->device.cq,
                           .cap = {.max_send_wr = echo::window, .max_recv_wr = echo::window}});

            // Each begins with a receive, and the client may send as soon as it is accepted.
            for (std::size_t i = 0; i != echo::window; ++i)
                asio::co_spawn(context_, echo_messages(mine, mine->place.message(i)), asio::detached);
            co_await asio::post(context_, asio::use_awaitable); // behind them in the queue: they have begun
            co_await initiate(loop_, id.accept({}, patience), asio::use_awaitable);
            ++clients_;

            asio::error_code stopped; // a connection's next event is its end
            (void)co_await initiate(loop_, id.next(stop_.get_token()),
                                    asio::redirect_error(asio::use_awaitable, stopped));
            if (stopped)
                co_await initiate(loop_, id.disconnect(patience), asio::use_awaitable);
        } catch (std::exception const& e) {
            std::fprintf(stderr, "asio_server: %s: %s\n", peer.c_str(), e.what());
        }
        if (mine)
            mine->id = {}; // and with it the waits of the other coroutines
    }

    /// Sends back what comes into this piece of memory, again and again, until the connection is over.
    asio::awaitable<void> echo_messages(std::shared_ptr<session> mine, ibv_sge memory) {
        async::cm_id const& id = mine->id;
        async::cq const& cq = mine->device.cq;
        rdma::work_completion done;
        asio::error_code ec;
        for (;; ++messages_) {
            done = co_await initiate(loop_, cq.post_recv(id, rdma::recv_wr(memory)),
                                     asio::redirect_error(asio::use_awaitable, ec));
            if (ec || !done)
                break;
            ibv_sge message = memory;
            message.length = done.success().byte_len();
            done = co_await initiate(loop_, cq.post_send(id, rdma::send_wr::send(message)),
                                     asio::redirect_error(asio::use_awaitable, ec));
            if (ec || !done)
                break;
        }
        if (!id)
            co_return;
        if (!ec && done.status() != rdma::wc_status::wr_flush_err) // a message too long, a client that died
            std::fprintf(stderr, "asio_server: %s: %s\n", to_string(id->peer_addr()).c_str(),
                         to_string(done.status()).c_str());
        std::error_code ignored;
        id->disconnect(ignored); // which ends the wait in serve()
    }

    static constexpr auto patience = std::chrono::seconds(30);

    asio::io_context& context_;
    rdma::asio::loop loop_;
    asio::signal_set signals_;
    std::stop_source stop_;
    async::event_channel channel_;
    async::acceptor acceptor_;
    echo::devices devices_;
    std::error_code failed_;
    std::size_t clients_ = 0, messages_ = 0;
};

int main(int argc, char** argv) {
    return command_line::run<echo::options>(argc, argv, usage, "a:p:n:S:", [](echo::options const& wanted) {
        asio::io_context context(1); // one thread
        server server(context, wanted);
        asio::co_spawn(context, server.run(), asio::detached);
        context.run();
        server.finish();
    });
}
