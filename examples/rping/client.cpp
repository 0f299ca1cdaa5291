// SPDX-License-Identifier: MIT
#include "connection.hpp"
#include "rping.hpp"

namespace rping {
namespace {

/// "rdma-ping-7: HIJK...", up to a zero in the last byte; every ping starts one letter later.
void fill(std::span<std::byte> bytes, std::uint32_t number) {
    std::string text = "rdma-ping-" + std::to_string(number) + ": ";
    for (std::uint32_t letter = number % 58; text.size() < bytes.size() - 1; letter = (letter + 1) % 58)
        text += static_cast<char>('A' + letter);
    std::memcpy(bytes.data(), text.c_str(), bytes.size());
}

struct pinger {
    options const& wanted;
    buffer source;
    buffer sink;
    buffer source_notice;
    buffer sink_notice;
    connection server;
    worker pinging;

    pinger(rdma::cm_id id, options const& chosen)
        : wanted(chosen), source(id.pd(), wanted.size, rdma::access::remote_read),
          sink(id.pd(), wanted.size, rdma::access::local_write | rdma::access::remote_write),
          source_notice(id.pd(), message(source.region)), sink_notice(id.pd(), message(sink.region)),
          server(std::move(id), wanted.self_managed) {
        server.connect();
    }
    pinger(pinger&&) = delete; // the worker knows where it lives

    void start() {
        pinging.start(server, [this](std::stop_token const& stop) { ping(stop); });
    }

    void ping(std::stop_token const& stop) {
        for (std::uint32_t number = 0; wanted.count == 0 || number != wanted.count; ++number) {
            fill(source.bytes, number);
            server.send(source_notice);
            needed(server.receive(stop)); // the server has read the source
            server.send(sink_notice);
            needed(server.receive(stop)); // the server has written the sink
            if (wanted.validate && sink.bytes != source.bytes)
                throw std::runtime_error("ping " + std::to_string(number) + " came back changed");
            if (wanted.verbose)
                print("ping data", sink.bytes);
        }
        server.disconnect();
    }
};

} // namespace

void run_client(options const& wanted, std::stop_token stop) {
    rdma::event_channel channel;
    rdma::cm_id id{channel, rdma::port_space::tcp};
    std::optional<pinger> connected;

    id.resolve_addr(wanted.address);
    for (rdma::cm_event event : channel.events(std::move(stop))) {
        if (wanted.debug)
            std::fprintf(stderr, "client: %s\n", to_string(event).c_str());
        using enum rdma::cm_event_type;
        switch (event.type()) {
        case addr_resolved: id.resolve_route(); break;
        case route_resolved: connected.emplace(std::move(id), wanted); break;
        case connect_response: connected->server.establish(); [[fallthrough]];
        case established: connected->start(); break;
        case disconnected: return connected->pinging.finish();
        default: throw std::runtime_error(to_string(event));
        }
    }
    throw stopped();
}

} // namespace rping
