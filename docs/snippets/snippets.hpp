// SPDX-License-Identifier: MIT
// What the snippets of the documentation share. They are compiled and run on the fake librdmacm and libibverbs.
#pragma once

#include <rdmacpp/rdmacpp.hpp>

#include <fake/fake.hpp>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <future>
#include <optional>
#include <thread>
#include <unordered_map>
#include <vector>

using namespace std::chrono_literals;

/// Ends the program with the place where something is not as the documentation says.
#define SNIPPET_CHECK(condition) \
    ((condition) ? void() : (std::printf("%s:%d: not so: %s\n", __FILE__, __LINE__, #condition), std::exit(1)))

inline rdma::address const an_address{"10.77.1.1", 7471};

using buffer = std::array<std::byte, 64>;

inline void expect(rdma::event_channel const& channel, rdma::cm_event_type wanted) {
    auto const event = channel.get_for(10s);
    SNIPPET_CHECK(event && event->type() == wanted);
}

/// Two ends of a connection; the server's receives into `memory`.
struct connected_pair {
    rdma::event_channel channel;
    buffer memory{};
    rdma::mr region;
    rdma::cm_id client, server;

    explicit connected_pair(std::span<std::byte const> hello = {}, rdma::access allowed = rdma::for_recv()) {
        rdma::acceptor acceptor(an_address);
        auto accepting = std::async(std::launch::async, [&] {
            return acceptor.get().accept(channel, {}, [&](rdma::cm_id& fresh) {
                region = rdma::mr(fresh.pd(), memory, allowed);
                fresh.qp().post_recv(rdma::recv_wr(region.sge()));
            });
        });
        client = rdma::connect(channel, an_address, {.param = {.private_data = hello}});
        server = accepting.get();
    }
};

void overview();
void readme();
void first_steps();
void lifetimes();
void threads();
void errors();
void private_data();
void timeouts();
void loops();
void coroutines();
void with_asio(); // where that is
void testing();
void operations();
void security();
