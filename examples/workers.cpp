// SPDX-License-Identifier: MIT
// A worker per core: one thread listens, and hands each request to one of several others, which accepts it on an event
// channel of its own, and serves it in an event loop of its own. Nothing is shared by the workers, and nothing locked
// but the mailboxes by which the requests come. It echoes, as epoll_server does.
#include "command_line.hpp"
#include "stop_signals.hpp"

#include <rdmacpp/epoll.hpp>

#include <chrono>
#include <list>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <pthread.h>
#include <sched.h>
#include <sys/eventfd.h>

namespace async = rdma::async;

constexpr char const* usage = R"(workers [-a ADDRESS] [-p PORT] [-w WORKERS] [-S SIZE]

  -a ADDRESS  the local address (0.0.0.0)
  -p PORT     the port (7471)
  -w WORKERS  how many threads serve (as many as there are processors)
  -S SIZE     the longest message, in bytes (256)
  --help      print this

Sends back what it gets, until SIGINT or SIGTERM. Then it takes no more clients, disconnects those that are there, and
says how many there were. The exit code is 0 then, 1 when it cannot go on, 2 for wrong options.
)";

struct options {
    std::string host = "0.0.0.0";
    int port = 7471;
    std::uint32_t workers = std::max(1U, std::thread::hardware_concurrency()), size = 256;
    rdma::address address;

    void set(char letter, char const* value) {
        using command_line::number;
        switch (letter) {
        case 'a': host = value; break;
        case 'p': port = number(value, 1, 65535); break;
        case 'w': workers = number(value, 1U, 1024U); break;
        case 'S': size = number(value, 1U, 1U << 20); break;
        default: throw command_line::wrong(std::string("unexpected argument ") + value);
        }
    }
    void check() {
        std::error_code ec;
        address = rdma::address(host, port, ec);
        if (ec)
            throw command_line::wrong("-a " + host + ": " + ec.message());
    }
};

/// Requests on their way to a worker, whose loop is woken by a descriptor.
class mailbox {
public:
    mailbox() : bell_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
        if (bell_ < 0)
            throw std::system_error(errno, std::generic_category(), "eventfd");
    }
    mailbox(mailbox const&) = delete;
    mailbox& operator=(mailbox const&) = delete;
    ~mailbox() { ::close(bell_); }

    int fd() const noexcept { return bell_; }

    void put(rdma::cm_id undecided) {
        std::scoped_lock const lock(mutex_);
        waiting_.push_back(std::move(undecided));
        ring();
    }
    /// Nothing more will come.
    void close() {
        std::scoped_lock const lock(mutex_);
        closed_ = true;
        ring();
    }
    /// What has come, and whether more may.
    std::pair<std::vector<rdma::cm_id>, bool> take() {
        std::scoped_lock const lock(mutex_);
        std::uint64_t count = 0;
        [[maybe_unused]] auto const got = ::read(bell_, &count, sizeof count);
        return {std::exchange(waiting_, {}), !closed_};
    }

private:
    void ring() const noexcept {
        std::uint64_t const one = 1;
        [[maybe_unused]] auto const written = ::write(bell_, &one, sizeof one); // fails only when it has rung already
    }

    int const bell_;
    std::mutex mutex_;
    std::vector<rdma::cm_id> waiting_;
    bool closed_ = false;
};

/// A thread, and all that it serves its clients with. Other threads use its mailbox, and what is there after the end.
class worker {
public:
    worker(unsigned number, options const& wanted, std::stop_token stop)
        : size_(wanted.size), stop_(std::move(stop)), thread_([this, number] {
              stay_on(number);
              loop_.run();
          }) {}
    worker(worker const&) = delete;
    worker& operator=(worker const&) = delete;
    ~worker() {
        if (thread_.joinable())
            finish();
    }

    /// Gives it a client.
    void take(rdma::cm_id undecided) { mailbox_.put(std::move(undecided)); }
    /// Waits until all its clients are gone, which it tells at the stop request.
    void finish() {
        mailbox_.close();
        thread_.join();
    }

    std::size_t clients() const { return clients_; }
    std::size_t messages() const { return messages_; }

private:
    static void stay_on(unsigned number) {
        cpu_set_t processors;
        CPU_ZERO(&processors);
        CPU_SET(number % std::max(1U, std::thread::hardware_concurrency()), &processors);
        ::pthread_setaffinity_np(::pthread_self(), sizeof processors, &processors); // where it may not be, it is not
    }

    static void mail_came(void* object) {
        auto* const self = static_cast<worker*>(object);
        auto [requests, open] = self->mailbox_.take();
        for (rdma::cm_id& each : requests)
            self->sessions_.spawn(self->serve(std::move(each)));
        if (!open)
            self->watched_ = {}; // so that the loop ends with the last client
    }

    async::registration watch() {
        std::error_code ec;
        async::registration watched = loop_.readable(mailbox_.fd(), {&mail_came, this}, ec);
        if (ec)
            throw std::system_error(ec, "epoll_ctl");
        return watched;
    }

    /// One client. Its id is moved to this worker's channel before it is accepted, so that all its events come here.
    async::task<> serve(rdma::cm_id undecided) {
        std::string const peer = to_string(undecided.peer_addr());
        try {
            rdma::registered_buffer const memory(undecided.pd(), window * size_, rdma::for_recv());
            auto const piece = [&](std::size_t which) { return memory.sge(which * size_, size_); };
            async::cm_id const id = co_await async::accept(
                channel_, std::move(undecided), {.limit = patience, .qp = {.cap = {.max_recv_wr = window}}},
                [&](rdma::cm_id& made, std::error_code& ec) { // the client may send as soon as it is accepted
                    for (std::size_t i = 0; i != window && !ec; ++i)
                        ec = std::make_error_code(made.qp().post_recv(rdma::recv_wr(piece(i)).id(i), std::nothrow));
                });
            ++clients_;

            async::task<> messages = echo(id, memory);
            messages.start();
            std::error_code stopped;
            (void)co_await id.next(stop_, stopped); // a connection's next event is its end
            if (stopped)
                co_await id.disconnect(patience);
        } catch (std::exception const& e) {
            std::fprintf(stderr, "workers: %s: %s\n", peer.c_str(), e.what());
        }
    }

    /// Sends back what comes, by the completion queues that the id has for itself.
    async::task<> echo(async::cm_id const& id, rdma::registered_buffer const& memory) {
        try {
            async::cq const sends(loop_, id->send_cq()), receives(loop_, id->recv_cq());
            for (;; ++messages_) {
                rdma::work_completion const got = co_await receives.next();
                check(got);
                auto const which = static_cast<std::size_t>(got.wr_id());
                ibv_sge const message = memory.sge(which * size_, got.success().byte_len());
                check(co_await sends.post_send(id, rdma::send_wr::send(message)));
                id->qp().post_recv(rdma::recv_wr(memory.sge(which * size_, size_)).id(which));
            }
        } catch (connection_ended const&) {
        } catch (std::exception const& e) {
            std::fprintf(stderr, "workers: %s: %s\n", to_string(id->peer_addr()).c_str(), e.what());
        }
        std::error_code ignored;
        id->disconnect(ignored); // which ends the wait in serve()
    }

    struct connection_ended {};
    static void check(rdma::work_completion const& done) {
        if (done.status() == rdma::wc_status::wr_flush_err)
            throw connection_ended();
        if (!done) // a message too long, a client that died
            throw std::runtime_error(to_string(done.status()));
    }

    static constexpr auto patience = std::chrono::seconds(30);
    static constexpr std::uint32_t window = 2; // messages of a client that may be under way

    std::uint32_t const size_;
    std::stop_token const stop_;
    mailbox mailbox_;
    rdma::epoll_loop loop_;
    async::event_channel channel_{loop_};
    async::registration watched_ = watch();
    std::size_t clients_ = 0, messages_ = 0;
    async::tasks sessions_;
    std::thread thread_; // the last: it uses the rest
};

/// Gives the workers their clients, one after the other.
async::task<> hand_out(async::acceptor& acceptor, std::list<worker>& workers, stop_signals& signals) {
    std::error_code ended;
    for (auto next = workers.begin(); !ended; ++next) {
        if (next == workers.end())
            next = workers.begin();
        async::request request = co_await acceptor.next(signals.token(), ended);
        if (request)
            next->take(request.take_id());
    }
    acceptor = {};  // who comes now is refused at once
    signals.stop(); // the clients that are there are told, also when the listener has failed
    if (ended != std::errc::operation_canceled)
        throw std::system_error(ended, "no more clients can come");
}

int main(int argc, char** argv) {
    return command_line::run<options>(argc, argv, usage, "a:p:w:S:", [](options const& wanted) {
        rdma::epoll_loop loop;
        stop_signals signals(loop);
        async::event_channel channel(loop);
        async::acceptor acceptor(channel, wanted.address);
        std::list<worker> workers;
        for (unsigned i = 0; i != wanted.workers; ++i)
            workers.emplace_back(i, wanted, signals.token());
        std::printf("listening on %s\n", to_string(acceptor.local_addr()).c_str());

        async::task<> running = hand_out(acceptor, workers, signals);
        running.start();
        loop.run();
        for (worker& each : workers)
            each.finish();
        running.get();
        unsigned number = 0;
        for (worker const& each : workers)
            std::printf("worker %u served %zu clients, %zu messages\n", number++, each.clients(), each.messages());
    });
}
