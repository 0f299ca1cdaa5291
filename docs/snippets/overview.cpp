// SPDX-License-Identifier: MIT
// The snippets of docs/overview.md.
#include "snippets.hpp"

namespace {

void in_c() {
    rdma_event_channel* const channel = rdma_create_event_channel();
    rdma_cm_id* id = nullptr;
    rdma_create_id(channel, &id, nullptr, RDMA_PS_TCP);
    fake::push(id, {RDMA_CM_EVENT_DISCONNECTED});
    //! [hang]
    rdma_cm_event* event;
    rdma_get_cm_event(channel, &event);
    // DISCONNECTED, charged to its id; so this
    // waits until it is acked: for ever
    rdma_destroy_id(event->id);
    rdma_ack_cm_event(event); // never reached
    //! [hang]
    SNIPPET_CHECK(fake::would_hang().size() == 1);
    fake::reset();
}

void here() {
    connected_pair pair;
    rdma::event_channel const& channel = pair.channel;
    rdma::cm_id id = std::move(pair.server);
    pair.client = {};
    //! [held]
    rdma::cm_event event = channel.get();
    // DISCONNECTED, which pins its id; so here the
    // queue pair goes, and nobody waits
    id = {};
    // acked, and now C destroys the id
    event = {};
    //! [held]
    SNIPPET_CHECK(fake::would_hang().empty());
}

} // namespace

void overview() {
    in_c();
    here();
}
