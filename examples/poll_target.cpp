// SPDX-License-Identifier: MIT
// A storage target whose thread never sleeps: its loop polls the completion queue and asks the event channel in each
// turn, and waits for no descriptor. Its disk is memory. A client sends a command with the address of its own memory;
// the target moves the block by RDMA, and then answers.
#include "command_line.hpp"

#include <rdmacpp/async.hpp>

#include <array>
#include <chrono>
#include <csignal>
#include <cstring>
#include <stop_token>
#include <string>
#include <unordered_map>
#include <vector>

#include <endian.h>

namespace async = rdma::async;
using namespace std::chrono_literals;

constexpr char const* usage = R"(poll_target [-p PORT] [-n BLOCKS] serve ADDRESS
poll_target [-p PORT] [-n BLOCKS] check SERVER

  serve      be a disk, until SIGINT or SIGTERM
  check      write all blocks of the disk, read them again, and compare
  -p PORT    the port (7473)
  -n BLOCKS  of 4096 bytes (1024)
  --help     print this

The exit code is 0 on success, 1 when something failed, 2 for wrong options.
)";

constexpr std::size_t block_size = 4096;
constexpr std::size_t depth = 8; // commands of a client that may be under way
constexpr auto patience = 10s;

enum class operation : std::uint32_t { read = 1, write = 2 };

/// What a client asks for. In network order.
struct command {
    std::uint64_t address = 0; // of its memory
    std::uint32_t rkey = 0;
    std::uint32_t what = 0;
    std::uint32_t block = 0;
    std::uint32_t reserved = 0;
};
/// The answer: nothing but whether it was done.
using status = std::uint32_t;

volatile std::sig_atomic_t stopped = 0;

// ---- the target

class target {
public:
    target(async::poll_loop& loop, rdma::address const& local, std::size_t blocks, std::stop_token stop)
        : loop_(loop), stop_(std::move(stop)), channel_(loop), acceptor_(channel_, local), disk_(blocks * block_size) {
        std::printf("listening on %s\n", to_string(acceptor_.local_addr()).c_str());
    }

    async::task<> run() {
        std::error_code ended;
        while (!ended) {
            async::request request = co_await acceptor_.next(stop_, ended);
            if (request)
                sessions_.spawn(serve(request.take_id()));
        }
        acceptor_ = {};
        if (ended != std::errc::operation_canceled) {
            std::fprintf(stderr, "poll_target: no more clients can come: %s\n", ended.message().c_str());
            stopped = 1;
        }
    }

    void print() const { std::printf("served %zu clients, %zu commands\n", clients_, commands_); }

private:
    /// What each device needs that clients come by. The disk is where its RDMA reads and writes begin and end.
    struct device {
        async::cq cq;
        rdma::mr disk;
    };

    async::task<> serve(rdma::cm_id undecided) {
        std::string const peer = to_string(undecided.peer_addr());
        try {
            device const& on = device_of(undecided);
            rdma::registered_buffer const messages(undecided.pd(), depth * sizeof(command), rdma::for_recv());
            async::cm_id const id(channel_, std::move(undecided));
            id->create_qp({.send_cq = on.cq, .recv_cq = on.cq, .cap = {.max_send_wr = depth, .max_recv_wr = depth}});

            // Each begins with a receive, and the client may send as soon as it is accepted.
            std::array<async::task<>, depth> executing;
            for (std::size_t i = 0; i != depth; ++i)
                (executing[i] = execute(id, on, messages, i * sizeof(command))).start();
            co_await id.accept({}, patience);
            ++clients_;

            std::error_code ended;
            (void)co_await id.next(stop_, ended); // a connection's next event is its end
            if (ended)
                co_await id.disconnect(patience);
        } catch (std::exception const& e) {
            std::fprintf(stderr, "poll_target: %s: %s\n", peer.c_str(), e.what());
        }
    }

    /// Executes the commands that come into this part of the memory, one after the other.
    async::task<> execute(async::cm_id const& id, device const& on, rdma::registered_buffer const& messages,
                          std::size_t at) {
        std::error_code ec;
        for (;; ++commands_) {
            rdma::work_completion done =
                co_await on.cq.post_recv(id, rdma::recv_wr(messages.sge(at, sizeof(command))), ec);
            if (ec || !done || done.success().byte_len() != sizeof(command))
                break;
            command wanted;
            std::memcpy(&wanted, messages.data() + at, sizeof wanted);
            status answer = htobe32(EINVAL);
            if (std::size_t const block = be32toh(wanted.block); block < disk_.size() / block_size) {
                ibv_sge const here = on.disk.sge(block * block_size, block_size);
                rdma::remote_memory const there{be64toh(wanted.address), be32toh(wanted.rkey)};
                bool const reads = operation{be32toh(wanted.what)} == operation::read;
                done = co_await on.cq.post_send(
                    id, reads ? rdma::send_wr::write(here, there) : rdma::send_wr::read(here, there), ec);
                if (ec || !done)
                    break;
                answer = 0;
            }
            std::memcpy(messages.data() + at, &answer, sizeof answer);
            done = co_await on.cq.post_send(id, rdma::send_wr::send(messages.sge(at, sizeof answer)), ec);
            if (ec || !done)
                break;
        }
        id->disconnect(ec); // which ends the wait in serve()
    }

    device const& device_of(rdma::cm_id const& id) {
        auto found = devices_.find(id.verbs());
        if (found == devices_.end()) {
            device made{async::cq(loop_, id.verbs(), max_completions),
                        rdma::mr(id.pd(), disk_, rdma::for_read_sink(id.verbs().device().transport()))};
            found = devices_.emplace(id.verbs(), std::move(made)).first;
        }
        return found->second;
    }

    static constexpr int max_completions = 16'385; // of all clients; no less: see completions() in echo.hpp

    async::poll_loop& loop_;
    std::stop_token stop_;
    async::event_channel channel_;
    async::acceptor acceptor_;
    std::vector<std::byte> disk_;
    std::unordered_map<rdma::context_ref, device> devices_;
    std::size_t clients_ = 0, commands_ = 0;
    async::tasks sessions_;
};

// ---- the client

class client {
public:
    explicit client(async::poll_loop& loop) : loop_(loop), channel_(loop) {}

    async::task<> check(rdma::address const& server, std::uint32_t blocks) {
        co_await connect(server);
        for (std::uint32_t block = 0; block != blocks; ++block) {
            fill(memory_.bytes().first(block_size), block);
            co_await ask(operation::write, block);
        }
        std::array<std::byte, block_size> expected;
        for (std::uint32_t block = 0; block != blocks; ++block) {
            std::memset(memory_.data(), 0, block_size);
            co_await ask(operation::read, block);
            fill(expected, block);
            if (std::memcmp(memory_.data(), expected.data(), block_size) != 0)
                throw std::runtime_error("block " + std::to_string(block) + " is not what was written");
        }
        std::printf("%u blocks written, read and compared\n", blocks);
        co_await id_.disconnect(patience);
    }

private:
    async::task<> connect(rdma::address const& server) {
        id_ = async::cm_id(channel_, rdma::port_space::tcp);
        co_await id_.resolve_addr(server, patience);
        co_await id_.resolve_route(patience);
        cq_ = async::cq(loop_, id_->verbs(), 16);
        memory_ = rdma::registered_buffer(id_->pd(), block_size + sizeof(command) + sizeof(status),
                                          rdma::for_remote_read() | rdma::for_remote_write());
        id_->create_qp({.send_cq = cq_, .recv_cq = cq_});
        co_await id_.connect({}, patience);
    }

    /// Has the first block of the memory written to the disk, or read from there.
    async::task<> ask(operation what, std::uint32_t block) {
        rdma::remote_memory const here = memory_.remote();
        command const wanted{htobe64(here.address), htobe32(here.rkey), htobe32(static_cast<std::uint32_t>(what)),
                             htobe32(block)};
        std::memcpy(memory_.data() + block_size, &wanted, sizeof wanted);
        id_->qp().post_recv(rdma::recv_wr(memory_.sge(block_size + sizeof(command), sizeof(status))));
        good(co_await cq_.post_send(id_, rdma::send_wr::send(memory_.sge(block_size, sizeof(command))), patience));
        good(co_await cq_.next(patience)); // the answer
        status answer = 0;
        std::memcpy(&answer, memory_.data() + block_size + sizeof(command), sizeof answer);
        if (answer != 0)
            throw std::system_error(static_cast<int>(be32toh(answer)), std::generic_category(),
                                    "block " + std::to_string(block));
    }

    static void good(rdma::work_completion const& done) {
        if (!done)
            throw std::runtime_error(to_string(done.status()));
    }

    static void fill(std::span<std::byte> bytes, std::uint32_t block) {
        std::uint32_t state = block + 1;
        for (std::byte& each : bytes) {
            state = state * 1664525 + 1013904223;
            each = static_cast<std::byte>(state >> 24);
        }
    }

    async::poll_loop& loop_;
    async::event_channel channel_;
    rdma::registered_buffer memory_;
    async::cm_id id_;
    async::cq cq_;
};

// ---- the program

struct options {
    int port = 7473;
    std::uint32_t blocks = 1024;
    std::vector<std::string> words;
    rdma::address address;

    void set(char letter, char const* value) {
        switch (letter) {
        case 'p': port = command_line::number(value, 1, 65535); break;
        case 'n': blocks = command_line::number(value, 1U, 1U << 20); break;
        default: words.emplace_back(value);
        }
    }
    void check() {
        if (words.size() != 2 || (words[0] != "serve" && words[0] != "check"))
            throw command_line::wrong("serve ADDRESS or check SERVER is needed");
        std::error_code ec;
        address = rdma::address(words[1], port, ec);
        if (ec)
            throw command_line::wrong(words[1] + ": " + ec.message());
    }
};

int main(int argc, char** argv) {
    return command_line::run<options>(argc, argv, usage, "p:n:", [](options const& wanted) {
        for (int const signal : {SIGINT, SIGTERM})
            std::signal(signal, [](int) { stopped = 1; });
        async::poll_loop loop;
        if (wanted.words[0] == "check") {
            client client(loop);
            async::task<> running = client.check(wanted.address, wanted.blocks);
            running.start();
            while (!running.done() && !stopped)
                loop.poll();
            if (!running.done())
                throw std::runtime_error("stopped by a signal");
            running.get();
            return;
        }
        std::stop_source stop;
        target target(loop, wanted.address, wanted.blocks, stop.get_token());
        async::task<> running = target.run();
        running.start();
        while (!stopped)
            loop.poll(); // and whatever else the thread has to do
        stop.request_stop();
        while (loop.waits())
            loop.poll(); // until all clients are gone
        target.print();
    });
}
