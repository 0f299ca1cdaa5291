// SPDX-License-Identifier: MIT
// Two connected ends, with the library. Its twin is pair_c.hpp.
#pragma once

#include "bench.hpp"

#include <algorithm>
#include <array>
#include <span>
#include <stdexcept>

#include <rdmacpp/rdmacpp.hpp>

/// One end: a QP, one CQ for both of its queues, and memory: what it sends (or reads into), then what it receives.
struct end {
    std::uint32_t size;
    bool event;
    std::vector<std::byte> memory;
    rdma::comp_channel channel;
    rdma::cq cq;
    rdma::mr region;
    rdma::event_channel events;
    rdma::cm_id id;

    explicit end(bench::options const& wanted)
        : size(wanted.size), event(wanted.event), memory(std::size_t{2} * wanted.size) {}

    /// What it needs once its id has a device.
    void equip() {
        channel = rdma::comp_channel(id.verbs());
        cq = rdma::cq(id.verbs(), 2 * bench::options::depth, channel);
        id.create_qp({.send_cq = cq,
                      .recv_cq = cq,
                      .cap = {.max_send_wr = bench::options::depth, .max_recv_wr = bench::options::depth}});
        // On iWARP that serves a read of ours, too.
        region = rdma::mr(id.pd(), memory, rdma::for_remote_read() | rdma::for_remote_write());
    }

    /// The new id, if it is a request's.
    rdma::cm_id expect(rdma::cm_event_type type) {
        rdma::cm_event got = events.get();
        if (got.type() != type)
            throw std::runtime_error(to_string(got));
        return type == rdma::cm_event_type::connect_request ? got.take_id() : rdma::cm_id();
    }

    ibv_sge outgoing() const { return region.sge(0, size); }
    ibv_sge incoming() const { return region.sge(size, size); }
    unsigned char const* bytes() const { return reinterpret_cast<unsigned char const*>(memory.data()); }

    /// Where the peer may write, and what it may read.
    rdma::remote_memory target() const {
        rdma::remote_memory const all = region.remote();
        return {all.address + size, all.rkey};
    }

    void post_receive() { id.qp().post_recv(rdma::recv_wr(incoming())); }

    /// Some completions.
    std::span<rdma::work_completion> wait_for(std::span<rdma::work_completion> into) {
        if (event)
            return cq.wait(into);
        for (;; bench::relax())
            if (auto const done = cq.poll(into); !done.empty())
                return done;
    }

    /// So many completions, all of them successes.
    void complete(std::size_t count) {
        std::array<rdma::work_completion, 4> memory_of_some;
        while (count != 0) {
            auto const some = wait_for(std::span(memory_of_some).first(std::min(count, memory_of_some.size())));
            for (rdma::work_completion const& done : some)
                if (!done)
                    throw std::runtime_error(to_string(done.status()));
            count -= some.size();
        }
    }
};

struct pair {
    end client, server;

    explicit pair(bench::options const& wanted) : client(wanted), server(wanted) {
        rdma::cm_id listener(server.events, rdma::port_space::tcp);
        listener.bind(rdma::address(wanted.server, 0));
        listener.listen(1);

        using enum rdma::cm_event_type;
        client.id = rdma::cm_id(client.events, rdma::port_space::tcp);
        client.id.resolve_addr(rdma::address(wanted.client, 0), listener.local_addr());
        (void)client.expect(addr_resolved);
        client.id.resolve_route();
        (void)client.expect(route_resolved);
        client.equip();
        client.id.connect();

        server.id = server.expect(connect_request);
        server.equip();
        server.id.accept();
        (void)client.expect(established);
        (void)server.expect(established);
    }
};
