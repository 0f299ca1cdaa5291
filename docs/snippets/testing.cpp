// SPDX-License-Identifier: MIT
// The snippets of docs/testing.md.
#include "snippets.hpp"

#include <cassert>

namespace {

void run_the_program() { connected_pair const pair; }

//! [test]
void a_connection_leaves_nothing_behind() {
    fake::reset();
    run_the_program(); // connects to itself: there are two devices, rxe0 and siw0, and no hardware
    assert(fake::leaks() == "");
    assert(fake::misuse().empty());     // double acks, dead objects, EBUSY, what would crash
    assert(fake::would_hang().empty()); // calls that would never have returned
}
//! [test]

//! [fault]
void the_third_id_cannot_be_made() {
    fake::reset();
    fake::fail("rdma_create_id", 3, ENOMEM);
    rdma::event_channel channel;
    rdma::cm_id const one{channel, rdma::port_space::tcp}, two{channel, rdma::port_space::tcp};
    std::error_code ec;
    rdma::cm_id const three{channel, rdma::port_space::tcp, ec};
    assert(ec == std::errc::not_enough_memory);
}
//! [fault]

//! [push]
void an_event_that_no_peer_sends_on_demand() {
    fake::reset();
    rdma::event_channel channel;
    rdma::cm_id const id{channel, rdma::port_space::tcp};
    fake::push(id.native_handle(), {RDMA_CM_EVENT_ADDR_CHANGE});
    assert(channel.get().type() == rdma::cm_event_type::addr_change);
}
//! [push]

} // namespace

void testing() {
    a_connection_leaves_nothing_behind();
    the_third_id_cannot_be_made();
    an_event_that_no_peer_sends_on_demand();
}
