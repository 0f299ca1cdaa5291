// SPDX-License-Identifier: MIT
// Gets and acks as many events as its argument says, as a C program does. Its twin is get_ack_cpp.cpp.
#include <fake/fake.hpp>

#include <cstdio>
#include <cstdlib>

#include <fcntl.h>

int main(int argc, char** argv) {
    int const events = argc > 1 ? std::atoi(argv[1]) : 1;
    rdma_event_channel* const channel = ::rdma_create_event_channel();
    rdma_cm_id* id = nullptr;
    if (!channel || ::rdma_create_id(channel, &id, nullptr, RDMA_PS_TCP) != 0)
        return 1;
    ::fcntl(channel->fd, F_SETFL, ::fcntl(channel->fd, F_GETFL) | O_NONBLOCK);
    for (int i = 0; i != events; ++i)
        fake::push(id, {RDMA_CM_EVENT_ADDR_CHANGE});

    int seen = 0;
    rdma_cm_event* event = nullptr;
    while (::rdma_get_cm_event(channel, &event) == 0) {
        seen += event->event == RDMA_CM_EVENT_ADDR_CHANGE;
        ::rdma_ack_cm_event(event);
    }

    ::rdma_destroy_id(id);
    ::rdma_destroy_event_channel(channel);
    std::printf("%d\n", seen);
    return seen == events && fake::would_hang().empty() ? 0 : 1;
}
