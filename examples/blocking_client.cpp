// SPDX-License-Identifier: MIT
// Connects, sends 16 bytes, receives 16, disconnects: every call returns when it is done, or throws when it is late.
// Its server is blocking_server, or the rdma_server of rdma-core.
//
//     blocking_client SERVER [PORT]
#include <rdmacpp/rdmacpp.hpp>

#include <chrono>
#include <cstdio>
#include <exception>
#include <span>
#include <stdexcept>

using namespace std::chrono_literals;

rdma::work_completion succeeded(rdma::work_completion const& done) {
    if (!done)
        throw std::runtime_error(to_string(done.status()));
    return done;
}

int main(int argc, char** argv) try {
    if (argc != 2 && argc != 3)
        throw std::invalid_argument("usage: blocking_client SERVER [PORT]");
    rdma::addrinfo const found(argv[1], argc == 3 ? argv[2] : "7471");

    char question[16] = "hello, server", answer[16] = {};
    rdma::endpoint server(found.front(), {.cap = {.max_send_wr = 1, .max_recv_wr = 1}, .signal_all = true}, {}, 10s);
    rdma::cm_id& id = server.id();
    auto const out = std::as_writable_bytes(std::span(question)), in = std::as_writable_bytes(std::span(answer));
    rdma::mr const out_region = id.reg_msgs(out), in_region = id.reg_msgs(in);
    id.post_recv(nullptr, in, in_region); // before connecting: the server may send at once
    server.connect({}, 10s);

    id.post_send(nullptr, out, out_region);
    succeeded(server.get_send_comp(10s));
    rdma::work_completion const received = succeeded(server.get_recv_comp(10s));
    std::printf("client: %u bytes from %s: \"%.16s\"\n", received.success().byte_len(),
                to_string(id.peer_addr()).c_str(), answer);
    server.disconnect(10s);
} catch (std::exception const& e) {
    std::fprintf(stderr, "client: %s\n", e.what());
    return 1;
}
