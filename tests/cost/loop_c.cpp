// SPDX-License-Identifier: MIT
// Echo in one epoll loop as a C program has it: a state machine. Its twin is loop_cpp.cpp.
#include "loop.hpp"

/// What is kept of a connection, and of each end of it.
struct connection {
    struct side {
        end& mine;
        connection& of;
        unsigned unacked = 0;
    };
    pair both{false};
    side client{both.client, *this}, server{both.server, *this};
    unsigned left = 0, due = 0; // messages to send, and completions that the client waits for
};

static int epoll;
static connection* only;

static void post_receive(end& e) {
    ibv_sge sge = {reinterpret_cast<std::uintptr_t>(e.memory), size_of_message, e.mr->lkey};
    ibv_recv_wr wr{}, *bad;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    if (int const error = ::ibv_post_recv(e.qp, &wr, &bad); error != 0) {
        errno = error;
        fail("ibv_post_recv");
    }
}

static void post_send(end& e) {
    ibv_sge sge = {reinterpret_cast<std::uintptr_t>(e.memory), size_of_message, e.mr->lkey};
    ibv_send_wr wr{}, *bad;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_SEND;
    wr.send_flags = IBV_SEND_SIGNALED;
    if (int const error = ::ibv_post_send(e.qp, &wr, &bad); error != 0) {
        errno = error;
        fail("ibv_post_send");
    }
}

static void ask(connection& on) {
    on.due = 2;
    post_receive(on.both.client);
    post_send(on.both.client);
}

static void handle(connection::side& at, ibv_wc const& done) {
    if (done.status != IBV_WC_SUCCESS)
        fail("completion");
    connection& on = at.of;
    if (&at == &on.client) {
        if (--on.due == 0 && --on.left != 0)
            ask(on);
    } else if (done.opcode == IBV_WC_RECV) {
        post_receive(at.mine);
        post_send(at.mine);
    }
}

static void arm(end& e) {
    if (int const error = ::ibv_req_notify_cq(e.cq, 0); error != 0) {
        errno = error;
        fail("ibv_req_notify_cq");
    }
}

static void serve(connection::side& at) {
    ibv_cq* cq;
    void* context;
    if (::ibv_get_cq_event(at.mine.channel, &cq, &context) != 0)
        fail("ibv_get_cq_event");
    if (++at.unacked == 32) {
        ::ibv_ack_cq_events(cq, at.unacked);
        at.unacked = 0;
    }
    arm(at.mine);
    constexpr int most = 16;
    ibv_wc done[most];
    int n;
    do {
        n = ::ibv_poll_cq(cq, most, done);
        if (n < 0)
            fail("ibv_poll_cq");
        for (int i = 0; i < n; ++i)
            handle(at, done[i]);
    } while (n == most);
}

static void echo(connection& on, unsigned times) {
    on.left = times;
    ask(on);
    while (on.left != 0) {
        epoll_event ready[64];
        int const count = ::epoll_wait(epoll, ready, 64, -1);
        for (int i = 0; i < count; ++i)
            serve(*static_cast<connection::side*>(ready[i].data.ptr));
    }
}

void echo_next(unsigned times) { echo(*only, times); }
void echo_post(unsigned times) { echo(*only, times); }

static void begin(connection& on) {
    for (connection::side* const each : {&on.client, &on.server}) {
        epoll_event readable{};
        readable.events = EPOLLIN;
        readable.data.ptr = each;
        expect(::epoll_ctl(epoll, EPOLL_CTL_ADD, each->mine.channel->fd, &readable) == 0, "epoll_ctl");
        arm(each->mine);
    }
    post_receive(on.both.server);
}

static void finish(connection& on) {
    for (connection::side const* const each : {&on.client, &on.server})
        ::ibv_ack_cq_events(each->mine.cq, each->unacked);
}

int main(int argc, char** argv) {
    int result;
    {
        connection made;
        only = &made;
        epoll = ::epoll_create1(EPOLL_CLOEXEC);
        begin(made);
        result = run(argc, argv);
        finish(made);
        ::close(epoll);
    }
    return all_is_well() ? result : 1;
}
