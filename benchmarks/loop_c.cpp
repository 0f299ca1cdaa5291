// SPDX-License-Identifier: MIT
// One thread and one epoll loop for both ends, in C: state machines. Its twin is loop_cpp.cpp.
#include "pair_c.hpp"

#include <sys/epoll.h>

namespace {

int make_epoll() {
    int const epoll = ::epoll_create1(EPOLL_CLOEXEC);
    if (epoll < 0)
        bench::fail("epoll_create1");
    return epoll;
}

void watch(int epoll, int fd, void* whose) {
    epoll_event readable{};
    readable.events = EPOLLIN;
    readable.data.ptr = whose;
    if (::epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &readable) != 0)
        bench::fail("epoll_ctl");
}

/// A message there and one back, each into a receive.
class loop_send : public bench::benchmark {
public:
    explicit loop_send(bench::options wanted) : epoll_(make_epoll()) {
        wanted.event = true;
        ::open(pair_, wanted);
        for (end* const e : {&pair_.client, &pair_.server}) {
            watch(epoll_, e->channel->fd, e);
            arm(*e);
        }
        post_receive(pair_.server);
    }
    ~loop_send() override {
        ::close(epoll_);
        ::close(pair_);
    }

    void run(unsigned times, bench::phases&) override {
        left_ = times;
        ask();
        while (left_ != 0) {
            epoll_event ready[64];
            int const count = ::epoll_wait(epoll_, ready, 64, -1);
            for (int i = 0; i < count; ++i)
                serve(*static_cast<end*>(ready[i].data.ptr));
        }
    }

private:
    static void arm(end& e) {
        if (::ibv_req_notify_cq(e.cq, 0) != 0)
            bench::fail("ibv_req_notify_cq");
    }

    /// Takes the event, arms, and drains: what comes later raises an event, which leaves the channel readable.
    void serve(end& e) {
        get_event(e);
        arm(e);
        constexpr int most = 16;
        ibv_wc done[most];
        int n;
        do {
            n = poll_cq(e, done, most);
            for (int i = 0; i < n; ++i) {
                if (done[i].status != IBV_WC_SUCCESS) {
                    std::fprintf(stderr, "%s\n", ::ibv_wc_status_str(done[i].status));
                    std::exit(1);
                }
                if (&e == &pair_.client)
                    go_on();
                else if (done[i].opcode == IBV_WC_RECV)
                    answer();
            }
        } while (n == most);
    }

    void ask() {
        due_ = 2;
        post_receive(pair_.client);
        post(pair_.client, IBV_WR_SEND, pair_.server);
    }
    void go_on() {
        if (--due_ == 0 && --left_ != 0)
            ask();
    }
    void answer() {
        post_receive(pair_.server);
        post(pair_.server, IBV_WR_SEND, pair_.client);
    }

    int epoll_;
    pair pair_{};
    unsigned left_ = 0; // round trips
    unsigned due_ = 0;  // completions of the client's
};

/// Connections from nothing to nothing, all of them begun at once; each goes on with its own events.
class loop_connections : public bench::benchmark {
public:
    explicit loop_connections(bench::options const& wanted)
        : epoll_(make_epoll()), from_(address_of(wanted.client, 0)), to_(address_of(wanted.server, 0)) {
        for (side* const each : {&clients_, &servers_}) {
            each->channel = ::rdma_create_event_channel();
            if (!each->channel)
                bench::fail("rdma_create_event_channel");
            ::fcntl(each->channel->fd, F_SETFL, ::fcntl(each->channel->fd, F_GETFL) | O_NONBLOCK);
            watch(epoll_, each->channel->fd, each);
        }
        if (::rdma_create_id(servers_.channel, &listener_, nullptr, RDMA_PS_TCP) != 0)
            bench::fail("rdma_create_id");
        if (::rdma_bind_addr(listener_, reinterpret_cast<sockaddr*>(&to_)) != 0 || ::rdma_listen(listener_, 0) != 0)
            bench::fail("rdma_listen");
        to_.sin_port = ::rdma_get_src_port(listener_);
    }
    ~loop_connections() override {
        ::close(epoll_);
        ::rdma_destroy_id(listener_);
        ::rdma_destroy_event_channel(servers_.channel);
        ::rdma_destroy_event_channel(clients_.channel);
    }

    void run(unsigned times, bench::phases&) override {
        clients_.left = servers_.left = times;
        for (unsigned i = 0; i != times; ++i)
            begin();
        while (clients_.left != 0 || servers_.left != 0) {
            epoll_event ready[64];
            int const count = ::epoll_wait(epoll_, ready, 64, -1);
            for (int i = 0; i < count; ++i)
                serve(*static_cast<side*>(ready[i].data.ptr));
        }
    }

private:
    struct side {
        rdma_event_channel* channel;
        unsigned left; // connections
    };
    /// What a program keeps of each.
    struct connection {
        rdma_cm_id* id;
        bool established;
    };

    void begin() {
        auto* const made = static_cast<connection*>(std::calloc(1, sizeof(connection)));
        if (::rdma_create_id(clients_.channel, &made->id, made, RDMA_PS_TCP) != 0)
            bench::fail("rdma_create_id");
        if (::rdma_resolve_addr(made->id, reinterpret_cast<sockaddr*>(&from_), reinterpret_cast<sockaddr*>(&to_), 2000))
            bench::fail("rdma_resolve_addr");
    }

    /// All events that are there.
    void serve(side& on) {
        rdma_cm_event* event;
        while (::rdma_get_cm_event(on.channel, &event) == 0) {
            auto* const about = static_cast<connection*>(event->id->context);
            rdma_cm_event_type const type = event->event;
            if (type == RDMA_CM_EVENT_CONNECT_REQUEST)
                accept(event->id);
            else if (&on == &clients_)
                go_on(*about, type, event->status);
            else if (type == RDMA_CM_EVENT_ESTABLISHED)
                about->established = true;
            ::rdma_ack_cm_event(event);
            if (type == RDMA_CM_EVENT_DISCONNECTED)
                end_of(about, on);
        }
        if (errno != EAGAIN)
            bench::fail("rdma_get_cm_event");
    }

    static void go_on(connection& which, rdma_cm_event_type type, int status) {
        switch (type) {
        case RDMA_CM_EVENT_ADDR_RESOLVED:
            if (::rdma_resolve_route(which.id, 2000) != 0)
                bench::fail("rdma_resolve_route");
            break;
        case RDMA_CM_EVENT_ROUTE_RESOLVED: {
            make_small_qp(which.id);
            rdma_conn_param param = usual();
            if (::rdma_connect(which.id, &param) != 0)
                bench::fail("rdma_connect");
            break;
        }
        case RDMA_CM_EVENT_ESTABLISHED:
            which.established = true;
            if (::rdma_disconnect(which.id) != 0)
                bench::fail("rdma_disconnect");
            break;
        case RDMA_CM_EVENT_DISCONNECTED:
        case RDMA_CM_EVENT_TIMEWAIT_EXIT: break;
        default: std::fprintf(stderr, "%s, status %d\n", ::rdma_event_str(type), status); std::exit(1);
        }
    }

    static void accept(rdma_cm_id* id) {
        auto* const made = static_cast<connection*>(std::calloc(1, sizeof(connection)));
        made->id = id;
        id->context = made;
        make_small_qp(id);
        rdma_conn_param param = usual();
        if (::rdma_accept(id, &param) != 0)
            bench::fail("rdma_accept");
    }

    void end_of(connection* which, side& on) const {
        if (&on == &servers_)
            ::rdma_disconnect(which->id); // answers the peer
        ::rdma_destroy_qp(which->id);
        ::rdma_destroy_id(which->id);
        std::free(which);
        --on.left;
    }

    static rdma_conn_param usual() {
        rdma_conn_param param{};
        param.responder_resources = RDMA_MAX_RESP_RES;
        param.initiator_depth = RDMA_MAX_INIT_DEPTH;
        param.retry_count = 7;
        param.rnr_retry_count = 7;
        return param;
    }

    int epoll_;
    sockaddr_in from_, to_;
    side clients_{}, servers_{};
    rdma_cm_id* listener_ = nullptr;
};

} // namespace

std::unique_ptr<bench::benchmark> bench::make_loop(options const& wanted) {
    if (wanted.test == "loop_connect")
        return std::make_unique<loop_connections>(wanted);
    return std::make_unique<loop_send>(wanted);
}
