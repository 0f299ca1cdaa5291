// SPDX-License-Identifier: MIT
// The same three in C++.
#include "side_by_side.hpp"

#include <cstdio>
#include <unordered_map>

using namespace std::chrono_literals;

// Two columns must fit on a page.
// clang-format off

//! [server]
struct session {
    rdma::cm_id id;
    std::array<std::byte, 64> buffer{};
    rdma::mr mr{id.pd(), buffer, rdma::for_recv()};

    explicit session(rdma::cm_id taken)
        : id(std::move(taken)) {
        id.create_qp({});
        id.qp().post_recv(rdma::recv_wr(mr.sge()));
        id.accept();
    }
};

void serve(rdma::event_channel const& channel,
           int left) {
    std::unordered_map<rdma::cm_id_ref, session> all;
    for (rdma::cm_event event : channel) {
        using enum rdma::cm_event_type;
        switch (event.type()) {
        case connect_request:
            try {
                rdma::cm_id id = event.take_id();
                rdma::cm_id_ref key = id;
                all.try_emplace(key, std::move(id));
            } catch (rdma::error const& e) {
                std::fputs(e.what(), stderr);
            }
            break;
        case disconnected:
            std::puts(reinterpret_cast<char const*>(
                all.at(event.id()).buffer.data()));
            all.erase(event.id()); // its event is held
            --left;
            break;
        default: break;
        }
        if (left == 0)
            return; // the event is acked on the way out
    }
}
//! [server]

//! [connect]
rdma::cm_id connect(rdma::event_channel const& channel,
                    rdma::address const& server) {
    return rdma::connect(channel, server, {.limit = 2s});
}
//! [connect]

//! [wait]
rdma::work_completion wait(rdma::cq_ref cq) {
    return cq.wait_one();
}

std::optional<rdma::work_completion>
wait_a_second(rdma::cq_ref cq) {
    return cq.wait_one(1s); // which C has no call for
}
//! [wait]
