// SPDX-License-Identifier: MIT
// Everything that a connected program owns, dropped in any order: nothing waits, nothing fails, nothing is left.
#include "guest/support.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace guest;

std::atomic<int> failed_destroys{0};

/// Counts the destroys that fail while it lives.
class counting_failures {
public:
    counting_failures()
        : before_(rdma::set_diagnostic_handler([](rdma::diagnostic const& d) noexcept {
              if (d.kind == rdma::diagnostic_kind::destroy_failed) {
                  ++failed_destroys;
                  std::fprintf(stderr, "%s: error %d\n", d.function, d.error.value());
              }
          })) {
        failed_destroys = 0;
    }
    counting_failures(counting_failures const&) = delete;
    counting_failures& operator=(counting_failures const&) = delete;
    ~counting_failures() { rdma::set_diagnostic_handler(before_); }

private:
    decltype(rdma::set_diagnostic_handler(nullptr)) before_;
};

/// A connected client with one of everything, which all hangs together: the id's QP and one that no id knows of share
/// PD, CQ and SRQ, there is a receive in the SRQ, a message in the CQ, and an event of the CQ that nobody has acked.
struct client {
    client(device const& on, rdma::address const& server, rdma::event_channel const& server_channel)
        : id(resolve(channel, server)), domain(id.verbs()), completions(id.verbs()), queue(id.verbs(), 16, completions),
          shared(domain), region(domain, memory, rdma::for_recv()) {
        id.create_qp(domain, {.send_cq = queue, .recv_cq = queue, .srq = shared});
        own =
            rdma::qp(domain, rdma::qp_type::rc, rdma::qp_init_attr{.send_cq = queue, .recv_cq = queue, .srq = shared});
        shared.post_recv(rdma::recv_wr(region.sge()));
        if (!on.iwarp) // which has none
            peer = rdma::ah(domain, itself(id));
        id.connect();
        cm_id child = expect(server_channel, cm_event_type::connect_request).take_id();
        child.create_qp({});
        rdma::mr const into = child.reg_msgs(received);
        child.qp().post_recv(rdma::recv_wr(into.sge()));
        child.accept();
        expect(channel, cm_event_type::established).ack();
        queue.req_notify();
        id.qp().post_send(rdma::send_wr::send(region.sge()).signaled());
        event = completions.get_for(patience);
        REQUIRE(event);
        expect(server_channel, cm_event_type::established).ack();
        // Here the server's end goes, which disconnects.
    }
    client(client const&) = delete;
    client& operator=(client const&) = delete;

    std::array<std::byte, 64> memory{}, received{};
    rdma::event_channel channel;
    cm_id id;
    rdma::pd domain;
    rdma::comp_channel completions;
    rdma::cq queue;
    rdma::srq shared;
    rdma::mr region;
    rdma::qp own;
    rdma::ah peer;
    std::optional<rdma::cq_event> event;

    static constexpr std::size_t parts = 10;

    void drop(std::size_t part) {
        switch (part) {
        case 0: channel = rdma::event_channel(rdma::no_init); break;
        case 1: id = {}; break;
        case 2: domain = {}; break;
        case 3: completions = {}; break;
        case 4: queue = {}; break;
        case 5: shared = {}; break;
        case 6: region = {}; break;
        case 7: own = {}; break;
        case 8: peer = {}; break;
        default: event.reset(); break;
        }
    }

private:
    /// How to reach the device itself by datagrams.
    static ibv_ah_attr itself(cm_id const& id) {
        ibv_gid const& own = id.native_handle()->route.addr.addr.ibaddr.sgid;
        std::array<ibv_gid_entry, 64> table{};
        ibv_ah_attr attr{};
        for (ibv_gid_entry const& entry : id.verbs().query_gid_table(table))
            if (entry.gid_type == IBV_GID_TYPE_ROCE_V2 && std::memcmp(entry.gid.raw, own.raw, sizeof own.raw) == 0)
                attr.grh.sgid_index = static_cast<std::uint8_t>(entry.gid_index);
        attr.grh.dgid = own;
        attr.grh.hop_limit = 1;
        attr.is_global = 1;
        attr.port_num = id.port_num();
        return attr;
    }
};

char const* const names[client::parts] = {"channel", "id", "pd", "comp_channel", "cq",
                                          "srq",     "mr", "qp", "ah",           "cq_event"};

void any_order(device const& on) {
    unsigned const seed = std::random_device()();
    std::mt19937 random(seed);
    counting_failures const watch;
    rdma::event_channel server_channel;
    cm_id const listener = listen_on(server_channel, on.at(0));
    std::size_t const before = resources::now().count(); // the listener, and what librdmacm made for it
    for (int round = 0; round != 20; ++round) {
        std::array<std::size_t, client::parts> order{};
        std::iota(order.begin(), order.end(), std::size_t{0});
        std::shuffle(order.begin(), order.end(), random);
        std::string text = "seed " + std::to_string(seed) + ", round " + std::to_string(round) + ":";
        for (std::size_t const part : order)
            text.append(" ").append(names[part]);
        INFO(text);
        auto const one = std::make_unique<client>(on, listener.local_addr(), server_channel);
        for (std::size_t const part : order)
            one->drop(part);
        REQUIRE(failed_destroys == 0);
        if (round % 10 == 9) { // all of it is gone by now
            resources const left = resources::now();
            INFO(left.text);
            REQUIRE(left.count() == before);
        }
    }
}
GUEST_CASE("A12 all that a connection needs, dropped in 20 random orders", any_order)

} // namespace
