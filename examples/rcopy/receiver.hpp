// SPDX-License-Identifier: MIT
#pragma once

#include "connection.hpp"
#include "partial_file.hpp"
#include "source_file.hpp"

#include <cstdint>
#include <functional>
#include <set>
#include <string>

namespace rcopy {

struct serve_options {
    std::string directory;
    rdma::address local;
    std::uint64_t largest = UINT64_MAX; ///< Bytes of a file.
    std::uint32_t clients = 16;         ///< At a time; each has a ring.
    std::uint32_t slots = 16;           ///< Of a ring.
    std::uint32_t slot_size = 1024 * 1024;
    limits within = {};
    std::function<void(std::string const&)> tell = [](std::string const&) {}; ///< What became of each client.
};

/// Receives files, from many senders at a time. It must outlive its tasks. Writing to the disk, and comparing what is
/// there, keeps the loop waiting for one chunk each time, and then others have their turn.
class receiver {
public:
    /// Listens. @throws rdma::error, std::system_error; std::runtime_error if another program has the directory
    receiver(async::event_channel const& channel, serve_options wanted);

    /// Where it listens.
    rdma::address local_addr() const { return listener_.local_addr(); }

    /// Serves until stop is requested. @param sessions where each client's task goes
    async::task<> run(async::tasks& sessions);

private:
    async::task<> session(rdma::cm_id undecided);
    async::task<> take_file(connection& sender, std::string& name);
    async::task<> compare(connection& sender, partial_file& part, checksum& sum) const;
    async::task<> fill(connection& sender, partial_file& part, checksum& sum, offer const& wanted) const;
    async::task<> reserve(std::string const& name);
    void check(offer const& wanted) const;

    async::event_channel const& channel_;
    serve_options options_;
    directory directory_;
    async::acceptor listener_;
    std::set<std::string> names_; // that are being received
    std::uint32_t clients_ = 0;
};

} // namespace rcopy
