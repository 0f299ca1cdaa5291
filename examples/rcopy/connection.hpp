// SPDX-License-Identifier: MIT
// What the two ends of a connection have in common: messages, and waiting for them.
#pragma once

#include "errors.hpp"
#include "protocol.hpp"

#include <rdmacpp/async.hpp>

#include <chrono>
#include <coroutine>
#include <cstdint>
#include <optional>
#include <stop_token>
#include <system_error>

namespace rcopy {

namespace async = rdma::async;

/// Lets a loop do something else for a while; with no time at all, whatever there is to do.
class pause {
public:
    explicit pause(async::any_loop loop, rdma::timeout span = std::chrono::seconds(0)) : loop_(loop), span_(span) {}

    bool await_ready() const noexcept { return false; }
    bool await_suspend(std::coroutine_handle<> whom) {
        std::error_code ec;
        timer_ = loop_.after(
            span_, {[](void* frame) { std::coroutine_handle<>::from_address(frame).resume(); }, whom.address()}, ec);
        return !ec;
    }
    void await_resume() const noexcept {}

private:
    async::any_loop loop_;
    rdma::timeout span_;
    async::registration timer_; // dropped with the coroutine, if that is
};

/// The memory that messages arrive in, and leave from.
class mailbox {
public:
    /// A slot that was announced has not been given back: so many messages may be on their way to either end, and a few
    /// that are not about a slot.
    static constexpr std::uint32_t places = max_slots + 4;
    /// What a QP must hold: with each message that leaves may go a write.
    static constexpr rdma::qp_init_attr qp{.cap = {.max_send_wr = 2 * places, .max_recv_wr = places}};

    /// Makes ready for all that may arrive: before connecting or accepting, since the peer may send at once.
    void open(rdma::cm_id const& id, std::error_code& ec) noexcept;

    /// What has arrived in a place, which is empty again then. @return nothing if it is no message
    std::optional<message> take(async::cm_id const& id, std::uint64_t place, std::size_t size);

    /// Posts a message, after a write if there is one. The message that left from the place before must have completed.
    void post(async::cm_id const& id, std::uint64_t place, letter const& text, rdma::send_wr const* write);

private:
    ibv_sge out(std::uint64_t place, std::size_t size) const;
    ibv_sge in(std::uint64_t place) const;

    rdma::registered_buffer memory_; // places to arrive in, then places to leave from
};

/// How long a peer may say nothing, and what stops all waits.
struct limits {
    std::chrono::seconds patience{60};
    std::stop_token stop = {};
};

/// A connection that messages move over. It stays where it is.
class connection {
public:
    connection(async::any_loop loop, async::cm_id id, mailbox letters, limits within);
    connection(connection const&) = delete;
    connection& operator=(connection const&) = delete;
    ~connection() = default;

    rdma::cm_id& id() const { return *id_; }

    /// The next message. @throws lost, stopped; refused, if that is what the peer says
    async::task<message> receive();

    /// The next message, which must be of this kind.
    template <class Kind>
    async::task<Kind> receive() {
        message const said = co_await receive();
        co_return expect<Kind>(said);
    }

    /// Sends a message. @return its number
    async::task<std::uint64_t> send(message said);
    /// Writes into the peer's memory, and then sends the message that tells of it. @return its number
    async::task<std::uint64_t> write(ibv_sge from, rdma::remote_memory to, message said);

    /// Waits until the device is done with a message that was sent, and with the write before it.
    async::task<> until_sent(std::uint64_t number);

    /// Ends the connection, and waits a while for the peer to know.
    async::task<> close();
    /// Waits a while for the peer to end it: what was sent to it has arrived then.
    async::task<> until_closed();

    template <class Kind>
    static Kind expect(message const& said) {
        if (Kind const* const wanted = std::get_if<Kind>(&said))
            return *wanted;
        throw refused(reason::nonsense, "the peer sent a message out of turn");
    }

private:
    /// Without this, nobody is told on RoCE that the peer has gone: the event alone ends nothing that was posted.
    static async::task<> end_with_peer(async::cm_id const& id);

    async::task<std::uint64_t> post(letter text, std::optional<rdma::send_wr> write);
    void check(std::error_code ec) const;

    mailbox letters_;
    limits within_;
    async::cm_id id_; // goes before the memory that its device uses
    async::cq arrived_;
    async::cq left_;
    std::uint64_t posted_ = 0; // messages, so far
    std::uint64_t sent_ = 0;   // of those, completed: they complete in order
    async::task<> ending_;
};

} // namespace rcopy
