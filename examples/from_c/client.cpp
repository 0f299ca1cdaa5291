// SPDX-License-Identifier: MIT
// The client of all six servers: opens so many connections, sends messages over all of them, and compares what comes
// back.
//
//     client ADDRESS PORT CONNECTIONS
#include <rdmacpp/rdmacpp.hpp>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <exception>
#include <list>
#include <stdexcept>
#include <string>

constexpr int messages = 20; // over each connection
constexpr std::size_t size = 64;

/// A connection, with room for a message each way.
class connection {
public:
    explicit connection(rdma::address const& server) {
        using enum rdma::cm_event_type;
        id_.resolve_addr(server);
        expect(addr_resolved);
        id_.resolve_route();
        expect(route_resolved);
        mr_ = rdma::mr(id_.pd(), memory_, rdma::access::local_write);
        id_.create_qp({});
        id_.connect();
        expect(established);
    }

    /// Sends a text. @return what comes back
    std::string echo(std::string const& text) {
        id_.qp().post_recv(rdma::recv_wr(mr_.sge(0, size)));
        std::memcpy(&memory_[size], text.data(), text.size());
        id_.qp().post_send(rdma::send_wr::send(mr_.sge(size, text.size())).signaled());
        complete(id_.send_cq(), text);
        rdma::work_completion const received = complete(id_.recv_cq(), text);
        return {reinterpret_cast<char const*>(memory_.data()), received.success().byte_len()};
    }

    void disconnect() {
        id_.disconnect();
        expect(rdma::cm_event_type::disconnected);
    }

private:
    void expect(rdma::cm_event_type wanted) {
        rdma::cm_event event = channel_.get();
        if (event.type() != wanted)
            throw std::runtime_error(to_string(event));
    }

    static rdma::work_completion complete(rdma::cq_ref cq, std::string const& text) {
        rdma::work_completion wc;
        if (cq.wait_for({&wc, 1}, std::chrono::seconds(10)).empty())
            throw std::runtime_error("no echo of \"" + text + '"');
        if (!wc)
            throw std::runtime_error(to_string(wc.status()));
        return wc;
    }

    std::array<std::byte, 2 * size> memory_{}; // the first half is received into
    rdma::event_channel channel_;
    rdma::cm_id id_{channel_, rdma::port_space::tcp};
    rdma::mr mr_;
};

int main(int argc, char** argv) try {
    if (argc != 4)
        throw std::invalid_argument("ADDRESS PORT CONNECTIONS");
    rdma::address const server{argv[1], std::stoi(argv[2])};
    std::list<connection> connections; // all open at once
    for (int i = std::stoi(argv[3]); i != 0; --i)
        connections.emplace_back(server);

    int echoes = 0;
    for (int message = 1; message <= messages; ++message)
        for (connection& c : connections) {
            std::string const text = "message " + std::to_string(message) + ", echo " + std::to_string(++echoes);
            if (std::string const back = c.echo(text); back != text)
                throw std::runtime_error("\"" + text + "\" came back as \"" + back + "\"");
        }
    for (connection& c : connections)
        c.disconnect();
    std::printf("%d echoes over %zu connections\n", echoes, connections.size());
} catch (std::exception const& e) {
    std::fprintf(stderr, "client: %s\n", e.what());
    return 1;
}
