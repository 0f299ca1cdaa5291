// SPDX-License-Identifier: MIT
// Connections from nothing to nothing, with the library, with the phases of rdma-core's cmtime: each is begun for all
// connections, and then waited for. Its twin is connections_c.cpp.
#include "bench.hpp"

#include <stdexcept>
#include <unordered_map>

#include <rdmacpp/rdmacpp.hpp>

namespace {

constexpr rdma::qp_init_attr small = {.cap = {.max_send_wr = 1, .max_recv_wr = 1}}; // with CQs of librdmacm's

class connections : public bench::benchmark {
public:
    explicit connections(bench::options const& wanted)
        : listener_(server_events_, rdma::port_space::tcp), from_(wanted.client, 0) {
        listener_.bind(rdma::address(wanted.server, 0));
        listener_.listen();
        to_ = listener_.local_addr();
        server_ = std::make_unique<bench::other_end>([this](unsigned times) { serve(times); });
    }

    void run(unsigned times, bench::phases& into) override {
        using enum rdma::cm_event_type;
        server_->start(times);
        into.begin();
        std::vector<rdma::cm_id> ids;
        ids.reserve(times);
        for (unsigned i = 0; i != times; ++i)
            ids.emplace_back(client_events_, rdma::port_space::tcp);
        into.end("create_id");
        for (rdma::cm_id& id : ids)
            id.resolve_addr(from_, to_);
        await(times, addr_resolved);
        into.end("resolve_addr");
        for (rdma::cm_id& id : ids)
            id.resolve_route();
        await(times, route_resolved);
        into.end("resolve_route");
        for (rdma::cm_id& id : ids)
            id.create_qp(small);
        into.end("create_qp");
        for (rdma::cm_id& id : ids)
            id.connect();
        await(times, established);
        into.end("connect");
        for (rdma::cm_id& id : ids)
            id.disconnect();
        await(times, disconnected);
        into.end("disconnect");
        ids.clear();
        server_->finish();
        into.end("destroy");
    }

private:
    void await(unsigned count, rdma::cm_event_type type) {
        for (rdma::cm_event event : client_events_) {
            if (event.type() == type) {
                if (--count == 0)
                    return;
            } else if (event.type() != rdma::cm_event_type::timewait_exit) {
                throw std::runtime_error(to_string(event));
            }
        }
    }

    /// Accepts so many, and drops each when it is disconnected.
    void serve(unsigned count) {
        for (rdma::cm_event event : server_events_) {
            if (event.type() == rdma::cm_event_type::connect_request) {
                rdma::cm_id id = event.take_id();
                id.create_qp(small);
                id.accept();
                rdma::cm_id_ref const key = id;
                sessions_.emplace(key, std::move(id));
            } else if (event.type() == rdma::cm_event_type::disconnected) {
                sessions_.erase(event.id());
                if (--count == 0)
                    return;
            }
        }
    }

    rdma::event_channel server_events_, client_events_;
    rdma::cm_id listener_;
    rdma::address from_, to_;
    std::unordered_map<rdma::cm_id_ref, rdma::cm_id> sessions_;
    std::unique_ptr<bench::other_end> server_; // the last: its thread uses the others
};

} // namespace

std::unique_ptr<bench::benchmark> bench::make_connections(options const& wanted) {
    return std::make_unique<connections>(wanted);
}
