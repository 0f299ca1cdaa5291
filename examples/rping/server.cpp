// SPDX-License-Identifier: MIT
#include "connection.hpp"
#include "rping.hpp"

#include <stop_token>
#include <unordered_map>

namespace rping {
namespace {

/// One client.
struct session {
    options const& wanted;
    buffer data;
    buffer go_ahead;
    connection client;
    worker serving;

    session(rdma::cm_id id, options const& chosen)
        : wanted(chosen),
          // An RDMA READ stores here, for which iWARP wants remote_write.
          data(id.pd(), wanted.size, rdma::access::local_write | rdma::access::remote_write),
          go_ahead(id.pd(), message()), client(std::move(id), wanted.self_managed) {
        client.accept();
        serving.start(client, [this](std::stop_token const& stop) { serve(stop); });
    }
    session(session&&) = delete; // the worker knows where it lives

    void serve(std::stop_token const& stop) {
        while (std::optional const source = client.receive(stop)) { // between two pings the client may leave
            if (source->length() > wanted.size)
                throw std::runtime_error("the client's pings have " + std::to_string(source->length()) +
                                         " bytes, more than " + std::to_string(wanted.size));
            ibv_sge const ping = data.region.sge(0, source->length());
            needed(client.read(ping, source->memory(), stop));
            if (wanted.verbose)
                print("server ping data", std::span(data.bytes).first(source->length()));
            client.send(go_ahead);

            std::optional const sink = needed(client.receive(stop));
            needed(client.write(ping, sink->memory(), stop));
            client.send(go_ahead);
        }
    }
};

} // namespace

server::server(options const& wanted) : options_(wanted) {
    listener_.bind(wanted.address);
    listener_.listen();
}

void server::run(std::stop_token stop) {
    std::unordered_map<rdma::cm_id_ref, session> sessions;
    for (rdma::cm_event event : channel_.events(std::move(stop))) {
        if (options_.debug)
            std::fprintf(stderr, "server: %s\n", to_string(event).c_str());
        try {
            using enum rdma::cm_event_type;
            switch (event.type()) {
            case connect_request:
                if (options_.persistent || sessions.empty()) { // who comes later is rejected with its event
                    rdma::cm_id id = event.take_id();
                    rdma::cm_id_ref const key = id;
                    sessions.try_emplace(key, std::move(id), options_);
                }
                break;
            case disconnected:
                if (auto ended = sessions.extract(event.id()))
                    ended.mapped().serving.finish();
                if (!options_.persistent)
                    return;
                break;
            case unreachable:
            case connect_error:
            case rejected:
            case device_removal: sessions.erase(event.id()); throw std::runtime_error(to_string(event));
            default: break;
            }
        } catch (std::exception const& e) {
            if (!options_.persistent)
                throw;
            std::fprintf(stderr, "rping: %s: %s\n", to_string(event.id().peer_addr()).c_str(), e.what());
        }
    }
    throw stopped();
}

} // namespace rping
