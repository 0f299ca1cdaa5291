// SPDX-License-Identifier: MIT
#pragma once

#include "connection.hpp"
#include "progress.hpp"

#include <string>

namespace rcopy {

struct send_options {
    std::string file;
    rdma::address server;
    bool restart = false; ///< Begin anew, whatever part is there.
    /// On iWARP, connecting to a host that does not answer blocks until this signal comes (connect_options).
    int interrupt_signal = 0;
    limits within = {};
};

/// Sends a file. Both references must outlive it; reading the file keeps the loop waiting.
/// @throws refused, lost, stopped; rdma::error, std::system_error
async::task<> send_file(async::event_channel const& channel, send_options wanted, progress& shown);

} // namespace rcopy
