// SPDX-License-Identifier: MIT
// The snippets of docs/threads.md.
#include "snippets.hpp"

#include <atomic>

namespace {

void several_getters() {
    rdma::event_channel channel;
    std::atomic<int> handled = 0;
    auto const handle = [&](rdma::cm_event const&) { ++handled; };
    rdma::cm_id first{channel, rdma::port_space::tcp}, second{channel, rdma::port_space::tcp};
    //! [getters]
    std::stop_source stop;
    auto const work = [&] {
        for (rdma::cm_event event : channel.events(stop.get_token()))
            handle(event); // each event goes to one of the threads
    };
    std::jthread one(work), two(work);
    //! [getters]
    first.resolve_addr(an_address);
    second.resolve_addr(an_address);
    while (handled != 2)
        std::this_thread::yield();
    //! [end]
    stop.request_stop(); // every wait ends, also of those who wait already
    //! [end]
}

void drop_anywhere() {
    rdma::event_channel channel;
    std::optional<rdma::cm_id> id(std::in_place, channel, rdma::port_space::tcp);
    id->resolve_addr(an_address);
    //! [drop]
    std::jthread getting([&] {
        rdma::cm_event event = channel.get(); // held by this thread...
        std::this_thread::yield();
    });
    id.reset(); // ...while this one drops the id: neither waits for the other
    //! [drop]
    rdma::cm_id other{channel, rdma::port_space::tcp};
    other.resolve_addr(an_address); // if the id went first, its event was swallowed
    getting.join();
    while (channel.try_get())
        ;
}

void a_channel_for_each() {
    connected_pair pair;
    rdma::cm_id& id = pair.server;
    //! [migrate]
    rdma::event_channel worker;
    id.migrate(worker); // its events arrive there from now on, those that are queued already, too
    //! [migrate]
    pair.client.disconnect();
    expect(worker, rdma::cm_event_type::disconnected);
}

} // namespace

void threads() {
    several_getters();
    drop_anywhere();
    a_channel_for_each();
}
