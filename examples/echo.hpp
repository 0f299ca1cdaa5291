// SPDX-License-Identifier: MIT
// What the echo servers have in common, whatever their event loop, and to a part with their client: the options, and
// what connections share.
#pragma once

#include "command_line.hpp"

#include <rdmacpp/async.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace echo {

/// How many messages of a client may be under way: as many receives wait for them.
constexpr std::uint32_t window = 2;

struct options {
    std::string host = "0.0.0.0";
    int port = 7471;
    std::uint32_t clients = 1024, size = 256;

    rdma::address address() const { return {host, port}; }

    void set(char letter, char const* value) {
        using command_line::number;
        switch (letter) {
        case 'a': host = value; break;
        case 'p': port = number(value, 1, 65535); break;
        case 'n': clients = number(value, 1U, 100'000U); break;
        case 'S': size = number(value, 1U, 1U << 20); break;
        default: throw command_line::wrong(std::string("unexpected argument ") + value);
        }
    }
    void check() const {
        std::error_code ec;
        (void)rdma::address(host, port, ec);
        if (ec)
            throw command_line::wrong("-a " + host + ": " + ec.message());
    }
};

/// How long to make a completion queue that many queue pairs share. No less than this, since libsiw (rdma-core 44)
/// cannot make a queue pair whose memory is mapped at offset 0x90000 of the device's file: so no more than 50 or so,
/// unless what was made first is long enough to lie there.
inline int completions(std::size_t needed) { return static_cast<int>(std::max<std::size_t>(needed, 16'385)); }

/// What all connections of one device share, however many they are: a completion queue, which takes one descriptor, and
/// a piece of registered memory, of which each has a place.
class device {
public:
    device(rdma::async::any_loop loop, rdma::cm_id const& id, options const& wanted)
        : cq(loop, id.verbs(), completions(std::size_t{2} * window * wanted.clients)),
          memory_(id.pd(), std::size_t{window} * wanted.size * wanted.clients, rdma::for_recv()), size_(wanted.size) {
        for (std::uint32_t place = wanted.clients; place != 0; --place)
            free_.push_back(place - 1);
    }

    rdma::async::cq const cq;

private:
    friend class place;

    rdma::registered_buffer memory_;
    std::uint32_t size_;
    std::vector<std::uint32_t> free_;
};

/// A connection's part of the memory, as long as it needs it.
class place {
public:
    explicit place(device& on) : on_(on) {
        if (on.free_.empty())
            throw std::runtime_error("no place for one more client");
        number_ = on.free_.back();
        on.free_.pop_back();
    }
    place(place const&) = delete;
    place& operator=(place const&) = delete;
    ~place() { on_.free_.push_back(number_); }

    /// For one of the messages of the window.
    ibv_sge message(std::size_t which) const {
        return on_.memory_.sge((window * std::size_t{number_} + which) * on_.size_, on_.size_);
    }

private:
    device& on_;
    std::uint32_t number_ = 0;
};

/// The devices that clients have come by.
class devices {
public:
    devices(rdma::async::any_loop loop, options const& wanted) : loop_(loop), wanted_(wanted) {}

    device& of(rdma::cm_id const& id) {
        return all_.try_emplace(id.verbs(), loop_, id, wanted_).first->second; // not made again if it is there
    }

private:
    rdma::async::any_loop loop_;
    options const& wanted_;
    std::unordered_map<rdma::context_ref, device> all_;
};

} // namespace echo
