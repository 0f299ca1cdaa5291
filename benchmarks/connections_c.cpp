// SPDX-License-Identifier: MIT
// Connections from nothing to nothing, in C, with the phases of rdma-core's cmtime: each is begun for all connections,
// and then waited for. Its twin is connections_cpp.cpp.
#include "pair_c.hpp"

namespace {

class connections : public bench::benchmark {
public:
    explicit connections(bench::options const& wanted) : from_(address_of(wanted.client, 0)) {
        server_events_ = ::rdma_create_event_channel();
        client_events_ = ::rdma_create_event_channel();
        if (!server_events_ || !client_events_)
            bench::fail("rdma_create_event_channel");
        if (::rdma_create_id(server_events_, &listener_, nullptr, RDMA_PS_TCP) != 0)
            bench::fail("rdma_create_id");
        to_ = address_of(wanted.server, 0);
        if (::rdma_bind_addr(listener_, reinterpret_cast<sockaddr*>(&to_)) != 0 || ::rdma_listen(listener_, 0) != 0)
            bench::fail("rdma_listen");
        to_.sin_port = ::rdma_get_src_port(listener_);
        server_ = std::make_unique<bench::other_end>([this](unsigned times) { serve(times); });
    }
    ~connections() override {
        server_.reset();
        ::rdma_destroy_id(listener_);
        ::rdma_destroy_event_channel(server_events_);
        ::rdma_destroy_event_channel(client_events_);
    }

    void run(unsigned times, bench::phases& into) override {
        server_->start(times);
        into.begin();
        std::vector<rdma_cm_id*> ids(times);
        for (rdma_cm_id*& id : ids)
            if (::rdma_create_id(client_events_, &id, nullptr, RDMA_PS_TCP) != 0)
                bench::fail("rdma_create_id");
        into.end("create_id");
        for (rdma_cm_id* const id : ids)
            if (::rdma_resolve_addr(id, reinterpret_cast<sockaddr*>(&from_), reinterpret_cast<sockaddr*>(&to_), 2000))
                bench::fail("rdma_resolve_addr");
        await(times, RDMA_CM_EVENT_ADDR_RESOLVED);
        into.end("resolve_addr");
        for (rdma_cm_id* const id : ids)
            if (::rdma_resolve_route(id, 2000) != 0)
                bench::fail("rdma_resolve_route");
        await(times, RDMA_CM_EVENT_ROUTE_RESOLVED);
        into.end("resolve_route");
        for (rdma_cm_id* const id : ids)
            make_small_qp(id);
        into.end("create_qp");
        for (rdma_cm_id* const id : ids) {
            rdma_conn_param param{};
            param.responder_resources = RDMA_MAX_RESP_RES;
            param.initiator_depth = RDMA_MAX_INIT_DEPTH;
            param.retry_count = 7;
            param.rnr_retry_count = 7;
            if (::rdma_connect(id, &param) != 0)
                bench::fail("rdma_connect");
        }
        await(times, RDMA_CM_EVENT_ESTABLISHED);
        into.end("connect");
        for (rdma_cm_id* const id : ids)
            if (::rdma_disconnect(id) != 0)
                bench::fail("rdma_disconnect");
        await(times, RDMA_CM_EVENT_DISCONNECTED);
        into.end("disconnect");
        for (rdma_cm_id* const id : ids) {
            ::rdma_destroy_qp(id);
            ::rdma_destroy_id(id);
        }
        server_->finish();
        into.end("destroy");
    }

private:
    void await(unsigned count, rdma_cm_event_type type) {
        while (count != 0) {
            rdma_cm_event* event;
            if (::rdma_get_cm_event(client_events_, &event) != 0)
                bench::fail("rdma_get_cm_event");
            if (event->event == type)
                --count;
            else if (event->event != RDMA_CM_EVENT_TIMEWAIT_EXIT) {
                std::fprintf(stderr, "%s, status %d\n", ::rdma_event_str(event->event), event->status);
                std::exit(1);
            }
            ::rdma_ack_cm_event(event);
        }
    }

    /// Accepts so many, and drops each when it is disconnected.
    void serve(unsigned count) {
        while (count != 0) {
            rdma_cm_event* event;
            if (::rdma_get_cm_event(server_events_, &event) != 0)
                bench::fail("rdma_get_cm_event");
            rdma_cm_event_type const type = event->event;
            rdma_cm_id* const id = event->id;
            if (type == RDMA_CM_EVENT_CONNECT_REQUEST) {
                make_small_qp(id);
                rdma_conn_param param{};
                param.responder_resources = RDMA_MAX_RESP_RES;
                param.initiator_depth = RDMA_MAX_INIT_DEPTH;
                param.rnr_retry_count = 7;
                if (::rdma_accept(id, &param) != 0)
                    bench::fail("rdma_accept");
            }
            ::rdma_ack_cm_event(event);
            if (type == RDMA_CM_EVENT_DISCONNECTED) {
                ::rdma_disconnect(id); // answers the peer, as cmtime does
                ::rdma_destroy_qp(id);
                ::rdma_destroy_id(id);
                --count;
            }
        }
    }

    sockaddr_in from_, to_;
    rdma_event_channel *server_events_, *client_events_;
    rdma_cm_id* listener_;
    std::unique_ptr<bench::other_end> server_;
};

} // namespace

std::unique_ptr<bench::benchmark> bench::make_connections(options const& wanted) {
    return std::make_unique<connections>(wanted);
}
