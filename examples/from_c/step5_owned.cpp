// SPDX-License-Identifier: MIT
// Step 5: no call of C is left; this is how one would have written it.
//
//     step5_owned ADDRESS PORT CONNECTIONS
//
// Changed: the posts, the listener and its address. The sessions are in a map, by id; each has a std::jthread, which a
// stop request ends, so the session needs no destructor.
// Safe by it: no cast and no number of bytes is left to get wrong, no result to forget, no pointer to a session that is
// gone. A session dies by erase(), or with the map: what is connected then is disconnected, and its thread ends.
#include <rdmacpp/rdmacpp.hpp>

#include <array>
#include <cstdio>
#include <exception>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>

constexpr int depth = 8;
constexpr std::size_t size = 64;

/// One connection.
struct session {
    rdma::cm_id id;
    rdma::pd pd{id.verbs()};
    rdma::comp_channel channel{id.verbs()};
    rdma::cq cq{id.verbs(), depth, channel};
    std::array<std::byte, depth * size> buffers{}; // each is received into, then sent from, then received into again
    rdma::mr mr{pd, buffers, rdma::access::local_write};
    std::jthread thread; // the last: it ends before what it uses

    /// Accepts a connection. The receives are posted before, since the client may send at once.
    explicit session(rdma::cm_id taken) : id(std::move(taken)) {
        id.create_qp(pd, {.send_cq = cq, .recv_cq = cq, .cap = {.max_send_wr = depth, .max_recv_wr = depth}});
        for (std::uint64_t buffer = 0; buffer != depth; ++buffer)
            receive(buffer);
        id.accept();
        thread = std::jthread([this](std::stop_token const& stop) { serve(stop); });
    }

    void receive(std::uint64_t buffer) { id.qp().post_recv(rdma::recv_wr(mr.sge(buffer * size, size)).id(buffer)); }

    void send(std::uint64_t buffer, std::size_t length) {
        id.qp().post_send(rdma::send_wr::send(mr.sge(buffer * size, length)).id(buffer).signaled());
    }

    /// Echoes, until a request fails or the session ends.
    void serve(std::stop_token const& stop) try {
        rdma::work_completion wc;
        while (!cq.wait({&wc, 1}, stop).empty() && wc) {
            if (wc.success().opcode() == rdma::wc_opcode::recv)
                send(wc.wr_id(), wc.success().byte_len());
            else
                receive(wc.wr_id());
        }
    } catch (rdma::error const& e) {
        std::fprintf(stderr, "session: %s\n", e.what());
    }
};

int main(int argc, char** argv) try {
    if (argc != 4) {
        std::fputs("step5_owned ADDRESS PORT CONNECTIONS\n", stderr);
        return 1;
    }
    rdma::event_channel channel;
    rdma::cm_id listener{channel, rdma::port_space::tcp};
    listener.bind({argv[1], std::stoi(argv[2])});
    listener.listen();
    std::puts("listening");

    std::unordered_map<rdma::cm_id_ref, session> sessions;
    std::size_t const wanted = std::stoul(argv[3]);
    std::size_t begun = 0, ended = 0;
    for (rdma::cm_event event : channel) { // waits; acks at the end of each turn, on break, on throw
        using enum rdma::cm_event_type;
        switch (event.type()) {
        case connect_request:
            if (begun == wanted) // then the event rejects the request, and destroys its id
                break;
            try {
                rdma::cm_id id = event.take_id();
                rdma::cm_id_ref const key = id;
                sessions.try_emplace(key, std::move(id));
                ++begun;
            } catch (std::exception const& e) { // one bad client never stops the server
                std::fprintf(stderr, "session: %s\n", e.what());
            }
            break;
        case disconnected:
        case connect_error:
        case unreachable:
        case rejected:
            ended += sessions.erase(event.id());
            if (ended == wanted)
                return 0;
            break;
        default: break;
        }
    }
} catch (std::exception const& e) {
    std::fprintf(stderr, "step5_owned: %s\n", e.what());
    return 1;
}
