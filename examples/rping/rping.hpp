// SPDX-License-Identifier: MIT
// Both roles of rping, the ping-pong of rdma-core: each end of it understands rdma-core's own program at the other end.
//
// A ping: the client fills a buffer and tells the server where it is; the server fetches the data (RDMA READ) and says
// "go ahead"; the client tells where it wants the data back; the server stores it there (RDMA WRITE) and says "go
// ahead" again. In the end the client disconnects.
#pragma once

#include <rdmacpp/rdmacpp.hpp>

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <stop_token>

namespace rping {

struct options {
    rdma::address address;     ///< The server's.
    std::size_t size = 64;     ///< Bytes of a ping; for the server, the most that a client may use.
    std::uint32_t count = 0;   ///< How many pings the client makes; 0: for ever.
    bool verbose = false;      ///< Print the data.
    bool validate = false;     ///< The client compares what came back with what it sent.
    bool persistent = false;   ///< The server takes many clients, at the same time and one after the other.
    bool self_managed = false; ///< Make the queue pair and move it through its states without librdmacm.
    bool debug = false;        ///< Print the events.
};

inline constexpr std::size_t min_size = 23; // room for "rdma-ping-4294967295: " and a zero
inline constexpr std::size_t max_size = 65535;

/// Thrown by both roles when they were asked to stop.
struct stopped : std::runtime_error {
    stopped() : std::runtime_error("stopped by a signal") {}
};

class server {
public:
    /// Listens: from here on clients can connect.
    explicit server(options const& wanted);

    rdma::address address() const { return listener_.local_addr(); }

    /// Serves one client until it disconnects, or, if persistent, all that come, until stop is requested.
    /// @throws std::exception if a client fails; a persistent server prints that on stderr and goes on
    void run(std::stop_token stop);

private:
    options options_;
    rdma::event_channel channel_;
    rdma::cm_id listener_{channel_, rdma::port_space::tcp};
};

/// Connects, pings as often as wanted, and disconnects. @throws std::exception if anything fails
void run_client(options const& wanted, std::stop_token stop);

} // namespace rping
