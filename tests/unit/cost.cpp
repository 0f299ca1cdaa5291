// SPDX-License-Identifier: MIT
// What the library costs in memory: one allocation for an id, a child's with its request, none for any other event.
// (What it costs in time is measured beside C in tests/cost and in the benchmarks.)
#include "allocations.hpp"
#include "support.hpp"

#include <optional>
#include <stop_token>

using namespace unit;

// Handles are one pointer for C's object and at most two for ours, so that they are passed and moved in registers.
static_assert(sizeof(rdma::cm_id_ref) == sizeof(void*));
static_assert(sizeof(rdma::event_channel_ref) == sizeof(void*));
static_assert(sizeof(rdma::event_channel) == sizeof(void*));
static_assert(sizeof(rdma::context_ref) <= 2 * sizeof(void*));
static_assert(sizeof(rdma::pd_ref) <= 2 * sizeof(void*));
static_assert(sizeof(rdma::qp_ref) <= 2 * sizeof(void*));
static_assert(sizeof(rdma::cq_ref) <= 2 * sizeof(void*));
static_assert(sizeof(rdma::comp_channel_ref) <= 2 * sizeof(void*));
static_assert(sizeof(rdma::cm_id) <= 2 * sizeof(void*));
static_assert(sizeof(rdma::cm_event) <= 3 * sizeof(void*));
static_assert(sizeof(rdma::pd) <= 2 * sizeof(void*));
static_assert(sizeof(rdma::cq) <= 2 * sizeof(void*));
static_assert(sizeof(rdma::comp_channel) <= 2 * sizeof(void*));
static_assert(sizeof(rdma::cq_event) <= 3 * sizeof(void*));
static_assert(sizeof(rdma::mr) <= 3 * sizeof(void*));
static_assert(sizeof(rdma::async_event) <= sizeof(ibv_async_event) + 2 * sizeof(void*));
static_assert(sizeof(rdma::work_completion) == sizeof(ibv_wc));
static_assert(sizeof(rdma::recv_wr) <= sizeof(ibv_recv_wr) + sizeof(ibv_sge));
static_assert(sizeof(rdma::send_wr) <= sizeof(ibv_send_wr) + sizeof(ibv_sge));
static_assert(sizeof(rdma::private_data) == 256);
static_assert(sizeof(rdma::detail::id_record) <= 320); // five cache lines for each connection

namespace {

/// How many allocations `work` makes.
template <class Work>
std::size_t allocations_of(Work&& work) {
    allocation_watch const watch;
    work();
    return watch.made();
}

/// A channel on which everything has happened once.
struct warm {
    rdma::event_channel channel;
    rdma::cm_id listener = make_listener(channel);
    rdma::cm_id id = make_bound(channel);

    warm() {
        push();
        channel.get().ack();
        make_request(channel, listener).ack();
        (void)channel.get_for(0s);
        (void)channel.try_get();
    }
    void push() { fake::push(id.native_handle(), {RDMA_CM_EVENT_ADDR_CHANGE}); }
};

} // namespace

TEST_CASE("cost: one allocation for an id, none for its end") {
    RDMACPP_NEED_ALLOCATIONS();
    world w;
    warm c;
    for (int i = 0; i != 20; ++i) {
        rdma::cm_id id;
        CHECK(allocations_of([&] { id = rdma::cm_id(c.channel, rdma::port_space::tcp); }) == 1);
        CHECK(allocations_of([&] {
                  rdma::cm_id moved(std::move(id));
                  swap(id, moved);
                  id.set_user_context(&c);
              }) == 0);
        CHECK(allocations_of([&] { id = {}; }) == 0);
    }
}

TEST_CASE("cost: none for an event, in whatever form it is got, held, moved or acked") {
    RDMACPP_NEED_ALLOCATIONS();
    world w;
    warm c;
    std::stop_source stop;
    std::error_code ec;
    std::size_t seen = 0;
    auto const none = [&](char const* how, auto&& get) {
        for (int i = 0; i != 5; ++i)
            c.push();
        INFO(how);
        CHECK(allocations_of(get) == 0);
        for (rdma::cm_event rest : c.channel.pending())
            rest.ack();
    };
    none("get", [&] { c.channel.get().ack(); });
    none("get with a code", [&] { seen += static_cast<bool>(c.channel.get(ec)); });
    none("try_get", [&] { seen += c.channel.try_get().has_value(); });
    none("get_for", [&] { seen += c.channel.get_for(1s).has_value(); });
    none("get with a token", [&] { seen += c.channel.get(stop.get_token()).has_value(); });
    none("pending", [&] {
        for (rdma::cm_event event : c.channel.pending())
            ++seen;
    });
    none("events", [&] {
        for (rdma::cm_event event : c.channel.events(stop.get_token()))
            if (++seen % 5 == 0)
                break;
    });
    none("held while its id is dropped", [&] {
        rdma::cm_event first = c.channel.get();
        rdma::cm_event second(std::move(first));
        first = c.channel.get();
        swap(first, second);
        c.id = {};
    });
    CHECK(seen >= 10);
}

TEST_CASE("cost: none for a wait, once each thread that waits at a time has had its first") {
    RDMACPP_NEED_ALLOCATIONS();
    world w;
    warm c;
    CHECK(allocations_of([&] {
              for (int i = 0; i != 10; ++i)
                  (void)c.channel.get_for(0s);
          }) == 0);
}

TEST_CASE("cost: the record of a child comes with its request") {
    RDMACPP_NEED_ALLOCATIONS();
    world w;
    warm c;
    make_request(c.channel, c.listener).ack(); // uses the record that is kept ready: from here on each get makes one
    for (int i = 0; i != 20; ++i) {
        fake::push_request(c.listener.native_handle());
        std::optional<rdma::cm_event> event;
        CHECK(allocations_of([&] { event = c.channel.try_get(); }) == 1);
        rdma::cm_id child;
        CHECK(allocations_of([&] { child = event->take_id(); }) == 0);
        CHECK(allocations_of([&] {
                  event->ack();
                  child = {};
              }) == 0);
    }
}

TEST_CASE("cost: none for an event of an id that C made, or of a dropped one") {
    RDMACPP_NEED_ALLOCATIONS();
    world w;
    warm c;
    rdma_cm_id* raw = nullptr;
    REQUIRE(::rdma_create_id(c.channel.native_handle(), &raw, nullptr, RDMA_PS_TCP) == 0);
    auto const get = [&] {
        fake::push(raw, {RDMA_CM_EVENT_ADDR_CHANGE});
        return allocations_of([&] { (void)c.channel.try_get(); });
    };
    get(); // the record goes from hand to hand: back to the spares with the last ack
    for (int i = 0; i != 10; ++i)
        CHECK(get() == 0);
    REQUIRE(::rdma_destroy_id(raw) == 0);

    c.push();
    rdma::cm_event const held = c.channel.get();
    rdma_cm_id* const dropped = c.id.native_handle();
    c.id = {};
    fake::push(dropped, {RDMA_CM_EVENT_ADDR_CHANGE});
    CHECK(allocations_of([&] { (void)c.channel.try_get(); }) == 0);
    CHECK(c.channel.stats().events_swallowed == 1);
}

TEST_CASE("cost: one for each object of the user's, none for an event of a CQ or a device") {
    RDMACPP_NEED_ALLOCATIONS();
    world w;
    warm c;
    rdma::pd pd;
    rdma::comp_channel completions;
    rdma::cq cq;
    rdma::mr region;
    std::array<std::byte, 8> memory{};
    CHECK(allocations_of([&] { pd = rdma::pd(c.id.verbs()); }) == 1);
    CHECK(allocations_of([&] { completions = rdma::comp_channel(c.id.verbs()); }) == 1);
    CHECK(allocations_of([&] { cq = rdma::cq(c.id.verbs(), 16, completions); }) == 1);
    CHECK(allocations_of([&] { region = rdma::mr(pd, memory, rdma::access::none); }) == 1);
    CHECK(allocations_of([&] { c.id.create_qp(pd, {.send_cq = cq, .recv_cq = cq}); }) == 1);
    fake::push_cq_event(cq.native_handle());
    fake::push_async(c.id.qp().native_handle(), IBV_EVENT_COMM_EST);
    bool got = false, troubled = false;
    auto const events = c.id.verbs().async_channel(); // one for each device
    CHECK(allocations_of([&] {
              got = completions.try_get().has_value();
              troubled = events.try_get().has_value();
          }) == 0);
    CHECK(got);
    CHECK(troubled);
    CHECK(allocations_of([&] {
              region = {};
              c.id.destroy_qp();
              cq = {};
              completions = {};
              pd = {};
          }) == 0);
}
