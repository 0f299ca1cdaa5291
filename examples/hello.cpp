// SPDX-License-Identifier: MIT
// A server and its client, in one program: README's first. Run it with an address of an RDMA device: hello 10.77.1.1
#include <rdmacpp/rdmacpp.hpp>

#include <array>
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <thread>
#include <unordered_map>

using buffer = std::array<std::byte, 64>;

/// The server's end of a connection. What it holds may be dropped in any order.
struct session {
    rdma::cm_id id;
    buffer memory{};
    rdma::mr region;

    explicit session(rdma::cm_id taken) : id(std::move(taken)), region(id.pd(), memory, rdma::access::local_write) {
        id.create_qp({});
        id.qp().post_recv(rdma::recv_wr(region.sge())); // before accepting: the client may send at once
        id.accept();
    }
    ~session() {
        rdma::work_completion wc;
        if (id.recv_cq().poll({&wc, 1}, std::nothrow) == 1 && wc)
            std::printf("server: \"%s\" from %s\n", reinterpret_cast<char const*>(memory.data()),
                        to_string(id.peer_addr()).c_str());
    }
};

void serve(rdma::event_channel const& channel, std::stop_token stop) {
    std::unordered_map<rdma::cm_id_ref, session> sessions;
    for (rdma::cm_event event : channel.events(stop)) { // waits; acks at the end of each turn, on break, on throw
        using enum rdma::cm_event_type;
        switch (event.type()) {
        case connect_request: {
            rdma::cm_id id = event.take_id(); // not taken: rejected and destroyed with the event
            rdma::cm_id_ref key = id;         // before the move: arguments have no order
            try {
                sessions.try_emplace(key, std::move(id)); // makes the QP, posts a receive, accepts
            } catch (rdma::error const& e) {              // one bad client never stops the server
                std::fprintf(stderr, "server: %s\n", e.what());
            }
            break;
        }
        case disconnected: sessions.erase(event.id()); break; // in C, this line hangs for ever
        default: break;                                       // unknown types pass through
        }
    }
}

void say(char const* text, rdma::address const& server) {
    rdma::event_channel channel;
    rdma::cm_id id{channel, rdma::port_space::tcp};
    auto const expect = [&channel](rdma::cm_event_type wanted) {
        rdma::cm_event event = channel.get();
        std::printf("client: %s\n", to_string(event).c_str());
        if (event.type() != wanted)
            throw std::runtime_error(to_string(event));
    };
    using enum rdma::cm_event_type;
    id.resolve_addr(server);
    expect(addr_resolved);
    id.resolve_route();
    expect(route_resolved);

    buffer memory{};
    std::strncpy(reinterpret_cast<char*>(memory.data()), text, memory.size() - 1);
    rdma::mr region{id.pd(), memory, rdma::access::none};
    id.create_qp({});
    id.connect();
    expect(established);
    id.qp().post_send(rdma::send_wr::send(region.sge()).signaled());
    rdma::work_completion wc;
    id.send_cq().wait({&wc, 1});
    std::printf("client: sent, %s\n", to_string(wc.status()).c_str());
    id.disconnect();
    expect(disconnected);
}

int main(int argc, char** argv) try {
    rdma::address const server{argc > 1 ? argv[1] : "10.77.1.1", 7471};

    rdma::event_channel channel;
    rdma::cm_id listener{channel, rdma::port_space::tcp};
    listener.bind(server);
    listener.listen();
    std::jthread serving([&](std::stop_token stop) { serve(channel, stop); });

    say("hello, RDMA", server);
} catch (std::exception const& e) {
    std::fprintf(stderr, "hello: %s\n", e.what());
    return 1;
}
