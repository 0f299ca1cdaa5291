// SPDX-License-Identifier: MIT
// What a hang looks like in raw C: an id is destroyed while an event of it is not acked.
//
//     hang ADDRESS          an address of an RDMA device; ends only by a signal
#include <arpa/inet.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char** argv) {
    struct rdma_event_channel* channel = rdma_create_event_channel();
    struct rdma_cm_id* id;
    struct rdma_cm_event* event;
    struct sockaddr_in server;
    memset(&server, 0, sizeof server);
    server.sin_family = AF_INET;
    server.sin_port = htons(7471);
    if (argc != 2 || inet_pton(AF_INET, argv[1], &server.sin_addr) != 1 || !channel ||
        rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) != 0 ||
        rdma_resolve_addr(id, NULL, (struct sockaddr*)&server, 2000) != 0 || rdma_get_cm_event(channel, &event) != 0) {
        perror("hang ADDRESS");
        return 1;
    }
    printf("got %s\n", rdma_event_str(event->event));
    fflush(stdout);
    rdma_destroy_id(id); // waits for the ack that the next line would give, for ever
    rdma_ack_cm_event(event);
    rdma_destroy_event_channel(channel);
    return 0;
}
