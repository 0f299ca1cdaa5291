// SPDX-License-Identifier: MIT
// Gets and acks as many events as its argument says, with the library. Its twin is get_ack_c.cpp.
#include <fake/fake.hpp>
#include <rdmacpp/rdmacpp.hpp>

#include <cstdio>
#include <cstdlib>

int main(int argc, char** argv) {
    int const events = argc > 1 ? std::atoi(argv[1]) : 1;
    int seen = 0;
    {
        rdma::event_channel const channel;
        rdma::cm_id const id(channel, rdma::port_space::tcp);
        for (int i = 0; i != events; ++i)
            fake::push(id.native_handle(), {RDMA_CM_EVENT_ADDR_CHANGE});

        for (rdma::cm_event event : channel.pending())
            seen += event.type() == rdma::cm_event_type::addr_change;
    }
    std::printf("%d\n", seen);
    return seen == events && fake::would_hang().empty() ? 0 : 1;
}
