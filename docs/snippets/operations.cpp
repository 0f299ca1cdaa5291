// SPDX-License-Identifier: MIT
// The snippets of docs/operations.md and docs/debugging.md.
#include "snippets.hpp"

#include <string>

namespace {

//! [metrics]
/// Once a second, to wherever your metrics go.
void report(rdma::event_channel const& channel, void (*gauge)(char const* name, std::uint64_t value)) {
    rdma::channel_stats const now = channel.stats();
    gauge("rdma_ids", now.ids_live);
    gauge("rdma_events_held", now.events_held);           // grows: somebody keeps events
    gauge("rdma_ids_awaiting_ack", now.ids_awaiting_ack); // grows: and drops their ids
    gauge("rdma_events_swallowed", now.events_swallowed);
    gauge("rdma_requests_rejected", now.requests_rejected); // nobody took them
}
//! [metrics]

std::string last_line;
void say(std::string const& line) { last_line = line; }

void stuck() {
    connected_pair pair;
    rdma::event_channel const& channel = pair.channel;
    fake::push(pair.client.native_handle(), {RDMA_CM_EVENT_ADDR_CHANGE});
    std::vector<rdma::cm_event> kept;
    kept.push_back(channel.get());
    pair.client = rdma::cm_id();

    //! [stuck]
    if (channel.stats().ids_awaiting_ack > 0)
        say(to_string(channel)); // each id that waits, and what it waits for
    //! [stuck]
    SNIPPET_CHECK(last_line.find("is held by 1 x ADDR_CHANGE") != last_line.npos);
    std::printf("%s\n", last_line.c_str());
    report(channel, [](char const*, std::uint64_t) {});
}

} // namespace

void operations() { stuck(); }
