// SPDX-License-Identifier: MIT
// Many connections at once, each with a thread and an event channel of its own. Over all of them messages go both ways,
// the server's first; then the server disconnects. The other end may be the ucmatose of rdma-core, whose options it
// has; like there, the server must be told of how many connections and messages.
#include <rdmacpp/rdmacpp.hpp>

#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <functional>
#include <future>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <unistd.h>

constexpr char const* usage = R"(exchange [-b ADDRESS] [-p PORT] [-c CONNECTIONS] [-C MESSAGES] [-S BYTES] [-m]
exchange -s SERVER [-b ADDRESS] [-p PORT] [-c CONNECTIONS] [-C MESSAGES] [-S BYTES] [-m]

  -s SERVER       be the client of this server
  -b ADDRESS      the local address to use (the server's default: 0.0.0.0)
  -p PORT         the server's port (7471)
  -c CONNECTIONS  how many (1)
  -C MESSAGES     each way over each connection (10)
  -S BYTES        of each message (100)
  -m              move the connections to other event channels before they end
)";

constexpr auto patience = std::chrono::seconds(10); // for each step

struct options {
    rdma::address server; ///< To connect to, or none: then this is the server.
    rdma::address local;
    std::uint32_t connections = 1, messages = 10, size = 100;
    bool migrate = false;

    options(int argc, char** argv) {
        char const *host = nullptr, *from = nullptr;
        std::uint32_t port = 7471;
        for (int found; (found = ::getopt(argc, argv, "s:b:p:c:C:S:m")) != -1;) {
            switch (found) {
            case 's': host = optarg; break;
            case 'b': from = optarg; break;
            case 'p': port = number(optarg); break;
            case 'c': connections = number(optarg); break;
            case 'C': messages = number(optarg); break;
            case 'S': size = number(optarg); break;
            case 'm': migrate = true; break;
            default: throw std::invalid_argument(usage);
            }
        }
        if (host)
            server = rdma::address(host, static_cast<int>(port));
        if (from || !host)
            local = rdma::address(from ? from : "0.0.0.0", host ? 0 : static_cast<int>(port));
    }

    rdma::qp_init_attr qp() const { return {.cap = {.max_send_wr = messages, .max_recv_wr = messages}}; }

private:
    static std::uint32_t number(char const* text) {
        std::uint32_t value = 0;
        auto const [end, failed] = std::from_chars(text, text + std::strlen(text), value);
        if (failed != std::errc{} || *end != '\0' || value == 0)
            throw std::invalid_argument(std::string("not a positive number: ") + text);
        return value;
    }
};

/// One connection, used by one thread.
class connection {
public:
    /// The server's end: accepts.
    connection(rdma::request request, options const& wanted)
        : wanted_(wanted),
          id_(request.accept(channel_, {.qp = wanted.qp()}, [this](rdma::cm_id& id) { make_room(id); })) {}

    /// The client's end: connects.
    explicit connection(options const& wanted)
        : wanted_(wanted),
          id_(rdma::connect(channel_, wanted.server, {.limit = patience, .local = wanted.local, .qp = wanted.qp()},
                            [this](rdma::cm_id& id) { make_room(id); })) {}

    connection(connection&&) = delete; // the device knows where its memory is

    void send() {
        for (std::uint32_t i = wanted_.messages; i != 0; --i) {
            rdma::send_wr message = rdma::send_wr::send(region_.sge(0, wanted_.size));
            id_.qp().post_send(i == 1 ? message.signaled() : message); // all are done when the last one is
        }
        complete(id_.send_cq());
    }

    void receive() {
        for (std::uint32_t i = wanted_.messages; i != 0; --i)
            if (auto const got = complete(id_.recv_cq()); got.success().byte_len() != wanted_.size)
                throw std::runtime_error("a message of " + std::to_string(got.success().byte_len()) + " bytes");
    }

    /// From here on the events of the connection, and those that wait, arrive on another channel.
    void migrate() {
        rdma::event_channel other;
        id_.migrate(other);
        channel_ = std::move(other);
    }

    void disconnect() { rdma::disconnect(id_, patience); }

    void wait_for_disconnect() {
        while (!id_.disconnected())
            if (!channel_.get_for(patience))
                throw std::runtime_error("the server does not disconnect");
    }

private:
    /// Before connecting or accepting: the peer may send at once.
    void make_room(rdma::cm_id& id) {
        region_ = id.reg_msgs(memory_);
        for (std::uint32_t i = 1; i <= wanted_.messages; ++i)
            id.qp().post_recv(rdma::recv_wr(region_.sge(std::size_t{i} * wanted_.size, wanted_.size)));
    }

    static rdma::work_completion complete(rdma::cq_ref cq) {
        rdma::work_completion done;
        if (cq.wait_for({&done, 1}, patience).empty())
            throw std::runtime_error("the peer does not answer");
        if (!done)
            throw std::runtime_error(to_string(done.status()));
        return done;
    }

    options const& wanted_;
    std::vector<std::byte> memory_ = std::vector<std::byte>(std::size_t{wanted_.size} * (1 + wanted_.messages));
    rdma::mr region_;
    rdma::event_channel channel_;
    rdma::cm_id id_; // the last: its QP goes first, before the memory
};

void serve(rdma::request request, options const& wanted) {
    connection client(std::move(request), wanted);
    client.send();
    client.receive();
    if (wanted.migrate)
        client.migrate();
    client.disconnect();
}

void talk(options const& wanted) {
    connection server(wanted);
    server.receive();
    server.send();
    if (wanted.migrate)
        server.migrate();
    server.wait_for_disconnect();
}

int main(int argc, char** argv) try {
    options const wanted(argc, argv);
    std::vector<std::future<void>> threads;
    if (wanted.server.port() != 0) {
        while (threads.size() != wanted.connections)
            threads.push_back(std::async(std::launch::async, talk, std::cref(wanted)));
    } else {
        rdma::acceptor acceptor(wanted.local);
        std::printf("listening on %s\n", to_string(acceptor.local_addr()).c_str());
        for (rdma::request request : acceptor) {
            threads.push_back(std::async(std::launch::async, serve, std::move(request), std::cref(wanted)));
            if (threads.size() == wanted.connections)
                break;
        }
    }
    for (std::future<void>& thread : threads)
        thread.get();
    std::printf("%u connections, %u messages of %u bytes each way over each\n", wanted.connections, wanted.messages,
                wanted.size);
} catch (std::exception const& e) {
    std::fprintf(stderr, "exchange: %s\n", e.what());
    return 1;
}
