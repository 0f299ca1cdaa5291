// SPDX-License-Identifier: MIT
/// @file
/// Ids for datagrams, and the messages between them.
#pragma once

#include "support.hpp"

#include <numeric>
#include <optional>
#include <span>

namespace unit {

/// Memory that datagrams are received into: the sender's address, then the message.
struct datagram_buffer {
    std::array<std::byte, rdma::grh_size + 32> bytes{};

    std::string_view text() const { return reinterpret_cast<char const*>(bytes.data()) + rdma::grh_size; }
};

/// An id for datagrams, bound to a device, with a QP.
inline rdma::cm_id make_datagram_id(rdma::event_channel const& channel, char const* host = rxe_host) {
    rdma::cm_id id = make_id(channel, rdma::port_space::udp);
    id.bind(rdma::address(host, 0));
    id.create_qp({});
    return id;
}

/// The next completion, if there is one: the fake needs no time.
inline std::optional<rdma::work_completion> poll_one(rdma::cq_ref cq) {
    rdma::work_completion wc;
    if (cq.poll({&wc, 1}).empty())
        return std::nullopt;
    return wc;
}

/// One end of an exchange of datagrams: an id, and memory to receive into and to send from.
struct mailbox {
    rdma::cm_id& id;
    datagram_buffer in{}, out{};
    rdma::mr in_region{id.pd(), in.bytes, rdma::access::local_write},
        out_region{id.pd(), out.bytes, rdma::access::none};

    explicit mailbox(rdma::cm_id& of) : id(of) { post(); }
    mailbox(mailbox const&) = delete;
    mailbox& operator=(mailbox const&) = delete;

    void post() { id.qp().post_recv(rdma::recv_wr(in_region.sge())); }

    void send(std::string_view text, rdma::ah const& peer, std::uint32_t qp_num, std::uint32_t qkey) {
        std::memcpy(out.bytes.data(), text.data(), text.size());
        ibv_sge const piece = out_region.sge(0, text.size() + 1);
        id.qp().post_send(rdma::send_wr::send(piece).to(peer, qp_num, qkey).signaled());
        auto const sent = poll_one(id.send_cq());
        REQUIRE(sent);
        CHECK(*sent);
    }

    /// What has come, and the next receive posted.
    std::optional<std::string> received() {
        auto const wc = poll_one(id.recv_cq());
        if (!wc)
            return std::nullopt;
        CHECK(*wc);
        last = *wc;
        std::string const text(in.text());
        post();
        return text;
    }

    rdma::work_completion last;
};

} // namespace unit
