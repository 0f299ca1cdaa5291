// SPDX-License-Identifier: MIT
// Waits for one client, receives 16 bytes from it, sends 16, disconnects: every call returns when it is done, or throws
// when it is late. Its client is blocking_client, or the rdma_client of rdma-core.
//
//     blocking_server [ADDRESS [PORT]]
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
    if (argc > 3)
        throw std::invalid_argument("usage: blocking_server [ADDRESS [PORT]]");
    rdma::addrinfo const found(argc > 1 ? argv[1] : "0.0.0.0", argc > 2 ? argv[2] : "7471", {.passive = true});

    rdma::endpoint listener(found.front(), {.cap = {.max_send_wr = 1, .max_recv_wr = 1}, .signal_all = true});
    listener.listen();
    std::printf("server: listening on %s\n", to_string(listener.id().local_addr()).c_str());

    char question[16] = {}, answer[16] = "hello, client";
    rdma::endpoint client = listener.get_request(); // for ever: a server has time
    rdma::cm_id& id = client.id();
    auto const in = std::as_writable_bytes(std::span(question)), out = std::as_writable_bytes(std::span(answer));
    rdma::mr const in_region = id.reg_msgs(in), out_region = id.reg_msgs(out);
    id.post_recv(nullptr, in, in_region); // before accepting: the client may send at once
    client.accept({}, 10s);

    rdma::work_completion const received = succeeded(client.get_recv_comp(10s));
    std::printf("server: %u bytes from %s: \"%.16s\"\n", received.success().byte_len(),
                to_string(id.peer_addr()).c_str(), question);
    id.post_send(nullptr, out, out_region);
    succeeded(client.get_send_comp(10s));
    client.disconnect(10s);
} catch (std::exception const& e) {
    std::fprintf(stderr, "server: %s\n", e.what());
    return 1;
}
