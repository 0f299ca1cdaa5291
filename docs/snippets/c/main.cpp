// SPDX-License-Identifier: MIT
// Runs the programs of docs/from_c.md and docs/debugging.md on the fake: those in C and in C++ against each other.
// (One translation unit with side_by_side.cpp: the library's headers are what takes the time.)
#include "side_by_side.cpp" // NOLINT
#include "side_by_side.h"

#include <fake/fake.hpp>

#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

namespace {

void expect(bool condition, char const* what) {
    if (condition)
        return;
    std::fprintf(stderr, "failed: %s\n", what);
    std::exit(1);
}

rdma::cm_id listen_at(rdma::event_channel const& channel, int port) {
    rdma::cm_id listener(channel, rdma::port_space::tcp);
    listener.bind(rdma::address("10.77.1.1", port));
    listener.listen();
    return listener;
}

/// Sends a message and ends the connection. Waits for what becomes of each request, in both languages.
void talk(rdma::cm_id& id) {
    std::array<std::byte, 6> hello{};
    std::memcpy(hello.data(), "hello", hello.size());
    rdma::mr const region(id.pd(), hello, rdma::access::local_write);
    id.qp().post_recv(rdma::recv_wr(region.sge()));
    id.qp().post_send(rdma::send_wr::send(region.sge()).signaled());
    expect(static_cast<bool>(wait(id.send_cq())), "the first send completes");
    id.qp().post_send(rdma::send_wr::send(region.sge()).signaled()); // for which the server has no receive
    id.disconnect();
    ibv_wc wc;
    expect(c_wait(id.send_cq().native_handle(), &wc) == 1 && wc.status == IBV_WC_WR_FLUSH_ERR,
           "the second send comes back");
    auto const receive = wait_a_second(id.recv_cq());
    expect(receive && receive->status() == rdma::wc_status::wr_flush_err, "the receive comes back");
}

void cpp_client(rdma::address const& server) {
    rdma::event_channel const channel;
    rdma::cm_id id = connect(channel, server);
    talk(id);
}

void c_client(rdma::address const& server) {
    rdma_event_channel* const channel = rdma_create_event_channel();
    rdma_cm_id* const raw = c_connect(channel, const_cast<sockaddr*>(server.native_handle()));
    expect(raw != nullptr, "a connection, in C");
    rdma::cm_id id(rdma::adopt, rdma::event_channel_ref(channel), raw);
    talk(id);
    id = rdma::cm_id();
    rdma_destroy_event_channel(channel);
}

/// hang.c, where it would hang.
std::string report_of_a_hang() {
    rdma_event_channel* const channel = rdma_create_event_channel();
    rdma_cm_id* id = nullptr;
    rdma::address const server("10.77.1.1", 7471);
    rdma_create_id(channel, &id, nullptr, RDMA_PS_TCP);
    rdma_resolve_addr(id, nullptr, const_cast<sockaddr*>(server.native_handle()), 2000);
    rdma_cm_event* event = nullptr;
    rdma_get_cm_event(channel, &event);
    //! [would_hang]
    rdma_destroy_id(id); // in C: for ever; on the fake: -1, EDEADLK, and a report
    for (std::string const& line : fake::would_hang())
        std::puts(line.c_str());
    //! [would_hang]
    std::string const report = fake::would_hang().at(0);
    rdma_ack_cm_event(event);
    rdma_destroy_id(id);
    rdma_destroy_event_channel(channel);
    return report;
}

} // namespace

int main() {
    for (bool const c_serves : {false, true}) {
        fake::reset();
        rdma::event_channel channel;
        rdma::cm_id const listener = listen_at(channel, 7471);
        rdma::address const server("10.77.1.1", 7471);
        std::jthread const clients([&] {
            cpp_client(server);
            c_client(server);
        });
        if (c_serves) {
            rdma_event_channel* const raw = channel.release();
            expect(c_serve(raw, 2) == 0, "a server, in C");
            channel = rdma::event_channel(rdma::adopt, raw);
        } else {
            serve(channel, 2);
        }
    }
    expect(fake::would_hang().empty() && fake::misuse().empty(), "no call that would hang or crash");
    fake::reset();
    std::string const report = report_of_a_hang();
    expect(report.find("rdma_destroy_id") != report.npos, "the report of a hang");
}
