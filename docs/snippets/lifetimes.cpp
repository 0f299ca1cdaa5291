// SPDX-License-Identifier: MIT
// The snippets of docs/lifetimes.md.
#include "snippets.hpp"

namespace {

void an_event_outlives_all() {
    connected_pair pair;
    //! [keep]
    std::vector<rdma::cm_event> kept;
    {
        rdma::event_channel channel;
        rdma::cm_id id{channel, rdma::port_space::tcp};
        id.resolve_addr(rdma::address("10.77.1.1", 7471));
        kept.push_back(channel.get());
    }                                                         // the id and the channel are gone, for you
    rdma::address const peer = kept.front().id().peer_addr(); // still there: the event pins them
    kept.clear();                                             // acked: now C destroys the id, and then the channel
    //! [keep]
    SNIPPET_CHECK(to_string(peer) == "10.77.1.1:7471");
}

void nobody_takes_the_request() {
    rdma::event_channel channel;
    rdma::cm_id listener{channel, rdma::port_space::tcp};
    listener.bind(an_address);
    listener.listen();
    auto client = std::async(std::launch::async, [] {
        std::error_code ec;
        rdma::cm_id const id = rdma::connect({}, an_address, {}, ec);
        return ec;
    });
    bool const busy = true;
    //! [take]
    {
        rdma::cm_event event = channel.get();
        if (event.type() == rdma::cm_event_type::connect_request && !busy) {
            rdma::cm_id id = event.take_id(); // yours from here on
            id.create_qp({});
            id.accept();
        }
    } // not taken: the client is rejected, and the new id is destroyed with the event
    //! [take]
    SNIPPET_CHECK(client.get() == rdma::condition::refused);
}

void erase_in_the_handler() {
    connected_pair pair;
    rdma::event_channel const& channel = pair.channel;
    std::unordered_map<rdma::cm_id_ref, rdma::cm_id> connections;
    rdma::cm_id_ref const key = pair.server;
    connections.try_emplace(key, std::move(pair.server));
    pair.client = {};
    //! [erase]
    for (rdma::cm_event event : channel) {
        if (event.type() == rdma::cm_event_type::disconnected) {
            connections.erase(event.id()); // the QP goes now, and the peer is told
            break;
        } // the event is acked here, and here C destroys the id
    }
    //! [erase]
}

void explicit_destroy() {
    rdma::event_channel channel;
    rdma::cm_id id{channel, rdma::port_space::tcp};
    id.resolve_addr(an_address);
    rdma::cm_event event = channel.get();
    //! [destroy]
    std::error_code ec;
    id.destroy(ec); // in C this call would wait for ever: `event` is not acked
    if (ec == std::errc::resource_deadlock_would_occur)
        event.ack(); // early, rather than at the end of the scope
    id.destroy(ec);  // now it can, and it keeps nothing back
    //! [destroy]
    SNIPPET_CHECK(!ec && !id);
}

void any_order() {
    connected_pair pair;
    rdma::cm_id const& id = pair.client;
    //! [order]
    rdma::pd pd(id.verbs());
    rdma::cq cq(id.verbs(), 16);
    rdma::qp qp(pd, rdma::qp_type::rc, {.send_cq = cq, .recv_cq = cq});
    pd = {}; // ibv_dealloc_pd would say EBUSY: it is put off until the QP is gone
    cq = {}; // the same
    qp = {}; // the QP, and with it the CQ and the PD
    //! [order]
    SNIPPET_CHECK(fake::count("ibv_dealloc_pd") == 1 && fake::misuse().empty());
}

void to_and_from_c() {
    rdma::event_channel channel;
    //! [adopt]
    rdma::cm_id id{channel, rdma::port_space::tcp};
    rdma_cm_id* const raw = id.release(); // C's from here on: no C call is made
    rdma_resolve_addr(raw, nullptr, const_cast<sockaddr*>(an_address.native_handle()), 1000);
    id = rdma::cm_id{rdma::adopt, channel, raw}; // ours again
    rdma::cm_event event = channel.get();        // counted all the time
    //! [adopt]
    SNIPPET_CHECK(event.type() == rdma::cm_event_type::addr_resolved);
}

void what_is_put_off() {
    rdma::event_channel channel;
    std::optional<rdma::cm_id> id(std::in_place, channel, rdma::port_space::tcp);
    id->resolve_addr(an_address);
    rdma::cm_event event = channel.get();
    //! [stats]
    id.reset(); // while `event` is held
    rdma::channel_stats const now = channel.stats();
    std::printf("%llu event held, %llu id waits for it\n", static_cast<unsigned long long>(now.events_held),
                static_cast<unsigned long long>(now.ids_awaiting_ack));
    std::puts(to_string(channel).c_str()); // which ids wait, and for which events
    //! [stats]
    SNIPPET_CHECK(now.events_held == 1 && now.ids_awaiting_ack == 1);
}

} // namespace

void lifetimes() {
    an_event_outlives_all();
    nobody_takes_the_request();
    erase_in_the_handler();
    explicit_destroy();
    any_order();
    to_and_from_c();
    what_is_put_off();
}
