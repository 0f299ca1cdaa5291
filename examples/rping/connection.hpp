// SPDX-License-Identifier: MIT
// What the two ends of a connection have in common.
#pragma once

#include <rdmacpp/rdmacpp.hpp>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <future>
#include <optional>
#include <span>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <endian.h>

namespace rping {

/// What goes over the wire, big endian: where the server may read or write. The server's "go ahead" is all zeros.
struct message {
    std::uint64_t address = 0;
    std::uint32_t rkey = 0;
    std::uint32_t size = 0;

    message() = default;
    explicit message(rdma::mr const& region)
        : address(htobe64(region.remote().address)), rkey(htobe32(region.rkey())),
          size(htobe32(static_cast<std::uint32_t>(region.length()))) {}

    rdma::remote_memory memory() const { return {be64toh(address), be32toh(rkey)}; }
    std::size_t length() const { return be32toh(size); }
};
static_assert(sizeof(message) == 16);

/// Memory that the device may use. Moving it leaves the bytes where they are.
struct buffer {
    std::vector<std::byte> bytes;
    rdma::mr region;

    buffer(rdma::pd_ref pd, std::size_t size, rdma::access allowed) : bytes(size), region(pd, bytes, allowed) {}

    /// A message to send. It never changes, so it can be sent again before the last time has completed.
    buffer(rdma::pd_ref pd, message const& text) : buffer(pd, sizeof text, rdma::access::none) {
        std::memcpy(bytes.data(), &text, sizeof text);
    }
};

/// A connection that data can move over: an id with its QP, and the CQ to wait on.
///
/// All waits end early, with nothing, when the connection is over: when stop is requested, which is how the thread that
/// gets the events tells of a DISCONNECTED, or when the device has flushed what was posted.
class connection {
public:
    /// @param self_managed makes a QP that librdmacm does not know of
    explicit connection(rdma::cm_id id, bool self_managed = false)
        : inbox_(id.pd(), sizeof(message), rdma::access::local_write), channel_(id.verbs()),
          cq_(id.verbs(), 32, channel_), id_(std::move(id)) {
        rdma::qp_init_attr const attr{.send_cq = cq_, .recv_cq = cq_, .cap = {.max_recv_wr = 2}, .signal_all = true};
        if (self_managed) {
            own_qp_ = rdma::qp(id_.pd(), rdma::qp_type::rc, attr);
            bring_to(IBV_QPS_INIT);
        } else {
            id_.create_qp(attr);
        }
        make_room(); // before connecting or accepting: the peer may send at once
    }

    void connect() { id_.connect(param()); }

    void accept() {
        if (own_qp_)
            make_ready();
        id_.accept(param());
    }

    /// What CONNECT_RESPONSE asks for. It comes in place of ESTABLISHED when the QP is our own, but not on iWARP, where
    /// the device makes the QP ready.
    void establish() {
        make_ready();
        id_.establish();
    }

    /// Ends the connection, if it has not ended already.
    void disconnect() noexcept {
        std::error_code ignored;
        id_.disconnect(ignored);
    }

    /// Sends a message; nobody waits for its completion, since the peer will answer.
    void send(buffer const& text) { qp().post_send(rdma::send_wr::send(text.region.sge())); }

    /// Waits for a message of the peer.
    std::optional<message> receive(std::stop_token const& stop) {
        std::optional const done = wait_for(rdma::wc_opcode::recv, stop);
        if (!done)
            return std::nullopt;
        if (done->success().byte_len() != sizeof(message))
            throw std::runtime_error("the peer sent a message of " + std::to_string(done->success().byte_len()) +
                                     " bytes");
        message received;
        std::memcpy(&received, inbox_.bytes.data(), sizeof received);
        make_room();
        return received;
    }

    /// Fetches the peer's memory. @return false: the connection is over
    bool read(ibv_sge const& into, rdma::remote_memory from, std::stop_token const& stop) {
        qp().post_send(rdma::send_wr::read(into, from));
        return wait_for(rdma::wc_opcode::rdma_read, stop).has_value();
    }

    /// Stores into the peer's memory. @return false: the connection is over
    bool write(ibv_sge const& from, rdma::remote_memory to, std::stop_token const& stop) {
        qp().post_send(rdma::send_wr::write(from, to));
        return wait_for(rdma::wc_opcode::rdma_write, stop).has_value();
    }

private:
    rdma::qp_ref qp() const { return own_qp_ ? rdma::qp_ref(own_qp_) : id_.qp(); }
    rdma::conn_param param() const {
        return {.responder_resources = 1, .initiator_depth = 1, .qp_num = own_qp_.qp_num()};
    }

    void bring_to(ibv_qp_state state) { own_qp_.modify(id_.init_qp_attr(state)); }
    void make_ready() {
        bring_to(IBV_QPS_INIT); // once more: before, it was not known what the peer may do with our memory
        bring_to(IBV_QPS_RTR);
        bring_to(IBV_QPS_RTS);
    }

    void make_room() { qp().post_recv(rdma::recv_wr(inbox_.region.sge())); }

    /// Waits for a completion of this kind, past those of our sends.
    std::optional<rdma::work_completion> wait_for(rdma::wc_opcode wanted, std::stop_token const& stop) {
        rdma::work_completion wc;
        while (!cq_.wait({&wc, 1}, stop).empty()) {
            if (wc.status() == rdma::wc_status::wr_flush_err)
                return std::nullopt;
            if (!wc)
                throw std::runtime_error("a request failed: " + to_string(wc.status()));
            if (wc.success().opcode() == wanted)
                return wc;
            if (wc.success().opcode() != rdma::wc_opcode::send)
                throw std::runtime_error("the peer sent a message out of turn");
        }
        return std::nullopt;
    }

    buffer inbox_;
    rdma::comp_channel channel_;
    rdma::cq cq_;
    rdma::cm_id id_;
    rdma::qp own_qp_; // the last two: the QP goes first, before the memory that the peer's messages arrive in
};

/// Moves the data of a connection on a thread of its own, while another one gets the events.
class worker {
public:
    /// @param job called with a stop_token; if it fails, the connection is ended
    template <class Job>
    void start(connection& peer, Job job) {
        std::packaged_task<void(std::stop_token)> task([&peer, job](std::stop_token const& stop) {
            try {
                job(stop);
            } catch (...) {
                peer.disconnect();
                throw;
            }
        });
        result_ = task.get_future();
        thread_ = std::jthread(std::move(task));
    }

    /// Ends the job, now that the connection is over, and throws what it has thrown.
    void finish() {
        thread_.request_stop();
        thread_.join();
        result_.get();
    }

private:
    std::future<void> result_;
    std::jthread thread_;
};

/// What a ping needs and did not get.
template <class T>
T needed(T got) {
    if (!got)
        throw std::runtime_error("the peer disconnected in the middle of a ping");
    return got;
}

inline void print(char const* label, std::span<std::byte const> text) {
    std::printf("%s: %.*s\n", label, static_cast<int>(text.size()), reinterpret_cast<char const*>(text.data()));
}

} // namespace rping
