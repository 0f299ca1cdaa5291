// SPDX-License-Identifier: MIT
// The devices that librdmacm has open, and what becomes of everything when one of them is removed.
#include "support.hpp"
#include "threads.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>

using namespace unit;

namespace {

std::size_t looks() { return fake::count("rdma_get_devices"); }

} // namespace

// ---- The list -------------------------------------------------------------------------------------------------------

TEST_CASE("devices: a range of the contexts that ids have, too", "[devices]") {
    world w;
    rdma::event_channel channel;
    rdma::cm_id const id = make_bound(channel);
    std::vector<std::string> names;
    {
        rdma::devices const all = rdma::devices::get();
        for (rdma::context_ref device : all)
            names.emplace_back(device.device_name());
        CHECK(all.size() == 2);
        CHECK_FALSE(all.empty());
        CHECK(all[0] == rdma::context_ref(fake::rxe_context()));
        CHECK(all[1].transport() == rdma::transport_type::iwarp);
        CHECK(all.native_handle()[2] == nullptr);
        CHECK(std::find(all.begin(), all.end(), id.verbs()) == all.begin());
        CHECK(*all.begin()++ == all[0]);
        CHECK(fake::live().lists == 1);
    }
    CHECK(names == std::vector<std::string>{"rxe0", "siw0"});
    CHECK(looks() == 1);
    CHECK(fake::count("rdma_free_devices") == 1);
}

TEST_CASE("devices: objects are made on a device of the list, and no id is needed", "[devices]") {
    world w;
    rdma::devices const all = rdma::devices::get();
    rdma::pd pd(all[0]);
    rdma::cq const cq(all[0], 8);
    rdma::qp const qp(pd, rdma::qp_type::rc, {.send_cq = cq, .recv_cq = cq});
    pd = {};
    CHECK(qp.qp_num() != 0);
}

TEST_CASE("devices: moved, swapped, given to C, and freed once", "[devices]") {
    world w;
    rdma::devices none;
    CHECK(none.empty());
    CHECK((none.begin() == none.end() && none.native_handle() == nullptr && none.release() == nullptr));
    rdma::devices one = rdma::devices::get(), two = std::move(one);
    CHECK(one.empty()); // NOLINT(bugprone-use-after-move): that is the point
    CHECK(two.size() == 2);
    swap(none, two);
    CHECK(none.size() == 2);
    none = rdma::devices::get();
    CHECK(fake::count("rdma_free_devices") == 1);
    ibv_context** const raw = none.release();
    CHECK(none.empty());
    CHECK(fake::live().lists == 1);
    ::rdma_free_devices(raw);
}

TEST_CASE("devices: none, and the advice that goes with it", "[devices]") {
    world w;
    fake::set_devices_present(false);
    CHECK(thrown([] { (void)rdma::devices::get(); }, "rdma link") == std::errc::no_such_device);
    std::error_code ec;
    rdma::devices const all = rdma::devices::get(ec);
    CHECK(ec == std::errc::no_such_device);
    CHECK(all.empty());
    fake::set_devices_present(true);
    fake::fail("rdma_get_devices", 1, ENOMEM);
    CHECK(thrown([] { (void)rdma::devices::get(); }, "rdma_get_devices") == std::errc::not_enough_memory);
    CHECK(rdma::devices::get(ec).size() == 2);
    CHECK_FALSE(ec);
}

// ---- A device is removed --------------------------------------------------------------------------------------------

namespace {

/// A connection and its listener on a device that is removed.
struct removed_connection : world {
    connection c;

    explicit removed_connection(char const* host = rxe_host, char const* device = "rxe0") : c(connect_pair(host)) {
        REQUIRE(fake::remove_device(device));
    }
    void drop_all() {
        c.server = {};
        c.listener = {};
        c.client = {};
    }
};

} // namespace

TEST_CASE("T10 a device is removed: each id on it is told, and with the last one librdmacm lets the device go",
          "[devices]") {
    auto const [host, device] = GENERATE(std::pair{rxe_host, "rxe0"}, std::pair{siw_host, "siw0"});
    removed_connection r(host, device);
    CHECK(next(r.c.client_channel, type::device_removal).id() == r.c.client);
    CHECK(next(r.c.server_channel, type::device_removal).id() == r.c.listener);
    CHECK(next(r.c.server_channel, type::device_removal).id() == r.c.server);
    CHECK(looks() == 0);
    r.c.listener = {};
    r.c.client = {};
    CHECK(looks() == 0);
    CHECK_FALSE(fake::device_gone(device));
    r.c.server = {};
    CHECK(looks() == 1);
    CHECK(fake::count("rdma_free_devices") == 1);
    CHECK(fake::device_gone(device));
}

TEST_CASE("T10 whatever is dropped last, librdmacm looks once, afterwards", "[devices]") {
    std::array<int, 5> order{};
    std::iota(order.begin(), order.end(), 0);
    do {
        CAPTURE(order);
        removed_connection r;
        rdma::pd pd(r.c.client.verbs());
        rdma::cm_event held = next(r.c.client_channel, type::device_removal);
        expect(r.c.server_channel, type::device_removal);
        expect(r.c.server_channel, type::device_removal);
        for (std::size_t i = 0; i != order.size(); ++i) {
            CHECK(looks() == 0);
            CHECK_FALSE(fake::device_gone("rxe0"));
            switch (order[i]) {
            case 0: r.c.client = {}; break;
            case 1: held = {}; break;
            case 2: pd = {}; break;
            case 3: r.c.server = {}; break;
            case 4: r.c.listener = {}; break;
            }
        }
        CHECK(looks() == 1);
        CHECK(fake::device_gone("rxe0"));
    } while (std::next_permutation(order.begin(), order.end()));
}

TEST_CASE_METHOD(removed_connection, "T10 ids that go without having read their DEVICE_REMOVAL let the device go, too",
                 "[devices]") {
    SECTION("dropped") { drop_all(); }
    SECTION("destroyed by name") {
        c.server.destroy();
        c.listener.destroy();
        c.client.destroy();
    }
    SECTION("another event of it is held meanwhile") {
        expect(c.server_channel, type::device_removal);
        fake::push(c.server.native_handle(), {RDMA_CM_EVENT_ADDR_CHANGE});
        expect(c.server_channel, type::device_removal);
        rdma::cm_event held = next(c.server_channel, type::addr_change);
        drop_all();
        CHECK_FALSE(fake::device_gone("rxe0"));
        held.ack();
    }
    SECTION("an id that was dropped before gets it") {
        fake::push(c.client.native_handle(), {RDMA_CM_EVENT_ADDR_CHANGE});
        expect(c.client_channel, type::device_removal);
        rdma::cm_event held = next(c.client_channel, type::addr_change);
        drop_all();
        held.ack();
    }
    CHECK(looks() >= 1); // once for each: who has read nothing knows of no other
    CHECK(fake::device_gone("rxe0"));
}

TEST_CASE("T10 one id alone, whose DEVICE_REMOVAL nobody reads", "[devices]") {
    world w;
    rdma::event_channel channel;
    rdma::cm_id id = make_bound(channel);
    fake::remove_device("rxe0");
    id = {};
    CHECK(looks() == 1);
    CHECK(fake::device_gone("rxe0"));
    rdma::cm_id other = make_bound(channel, siw_host); // of a device that is still there
    other = {};
    CHECK(looks() == 1);
}

TEST_CASE("T10 requests that nobody has accepted, and wildcard listeners, are not told", "[devices]") {
    world w;
    rdma::event_channel channel;
    rdma::cm_id listener = make_listener(channel, "0.0.0.0");
    rdma::cm_id client = make_client(channel);
    client.create_qp({});
    client.connect();
    rdma::cm_event request = next(channel, type::connect_request);
    rdma::cm_id child;
    if (GENERATE(true, false))
        child = request.take_id();
    fake::remove_device("rxe0");
    CHECK(next(channel, type::device_removal).id() == client);
    client = {};
    CHECK_FALSE(fake::device_gone("rxe0"));
    child = {};
    request.ack();
    CHECK(fake::device_gone("rxe0"));
    CHECK(looks() == 1);
    rdma::cm_id again = make_client(channel, siw_host); // the listener goes on
    again.create_qp({});
    again.connect();
    next(channel, type::connect_request).ack();
}

TEST_CASE("T10 the younger end of a connection hears of its end first", "[devices]") {
    world w;
    fake::set_removal_disconnects(true);
    connection c = connect_pair();
    fake::remove_device("rxe0");
    for (rdma::cm_event event : c.server_channel.pending())
        if (event.type() == type::disconnected)
            c.server = {}; // and never gets to its DEVICE_REMOVAL
    expect(c.client_channel, type::device_removal);
    c.client = {};
    c.listener = {};
    CHECK(fake::device_gone("rxe0"));
}

TEST_CASE_METHOD(removed_connection, "T10 calls on an id of a removed device fail, and its verbs objects go on",
                 "[devices]") {
    expect(c.client_channel, type::device_removal);
    CHECK(thrown([&] { c.client.disconnect(); }) == std::errc::no_such_device_or_address);
    rdma::event_channel elsewhere;
    CHECK(thrown([&] { c.client.migrate(elsewhere); }) == std::errc::no_such_device_or_address);
    std::array<std::byte, 8> memory{};
    rdma::mr region = c.client.reg_msgs(memory);
    c.client.destroy_qp();
    drop_all();
    CHECK_FALSE(fake::device_gone("rxe0")); // the region keeps the id
    region.destroy();
    CHECK(fake::device_gone("rxe0"));
}

TEST_CASE("T10 the last device of all is removed: nobody notices, and nothing breaks", "[devices]") {
    world w;
    rdma::event_channel channel;
    rdma::cm_id id = make_bound(channel);
    fake::remove_device("siw0");
    fake::remove_device("rxe0");
    expect(channel, type::device_removal);
    id = {};
    CHECK(looks() == 1); // it fails
    CHECK(fake::count("rdma_free_devices") == 0);
}

TEST_CASE_METHOD(removed_connection, "T10 an id that was given to C is C's affair", "[devices]") {
    for (int i = 0; i != 2; ++i)
        expect(c.server_channel, type::device_removal);
    expect(c.client_channel, type::device_removal);
    rdma_cm_id* const raw = c.client.release();
    c.server = {};
    c.listener = {};
    CHECK(looks() == 1); // the last of ours
    CHECK_FALSE(fake::device_gone("rxe0"));
    ::rdma_destroy_ep(raw);
    CHECK(fake::device_gone("rxe0"));
}

TEST_CASE("T10 ids of a removed device are dropped on three threads: librdmacm looks after the last",
          "[devices][threads]") {
    for (int round = 0; round != 30; ++round) {
        removed_connection r;
        for (rdma::event_channel const* channel : {&r.c.client_channel, &r.c.server_channel})
            for (rdma::cm_event event : channel->pending())
                CHECK(event.type() == type::device_removal);
        at_once(
            1, [] {}, [] {}, [&] { r.c.client = {}; }, [&] { r.c.server = {}; }, [&] { r.c.listener = {}; });
        CHECK(looks() == 1);
        CHECK(fake::device_gone("rxe0"));
    }
}

TEST_CASE_METHOD(world, "T10 a member of a multicast group on a removed device", "[devices][multicast]") {
    rdma::event_channel channel;
    rdma::cm_id id = make_id(channel, rdma::port_space::udp);
    id.bind(rdma::address(rxe_host, 0));
    id.create_qp({});
    rdma::membership member = id.join_multicast(rdma::address("239.1.1.1", 0));
    rdma::cm_event join = next(channel, type::multicast_join);
    messy(); // the kernel knows no such id any more: leaving fails, and the hook is told
    fake::remove_device("rxe0");
    member = {};
    expect(channel, type::device_removal);
    id = {};
    join.ack();
    CHECK(fake::device_gone("rxe0"));
    CHECK(told(rdma::diagnostic_kind::destroy_failed) <= 1);
    channel = rdma::event_channel(rdma::no_init);
    CHECK(fake::leaks() == "");
    CHECK(fake::misuse() == std::vector<std::string>{});
}

// ---- A device that cuts its users off -------------------------------------------------------------------------------

namespace {

/// How often the hook was told of each object.
std::map<void const*, int> told_of_each() {
    std::map<void const*, int> all;
    for (rdma::diagnostic const& d : diagnostics::get().all())
        if (d.kind == rdma::diagnostic_kind::destroy_failed)
            ++all[d.object];
    return all;
}

/// One of everything that can be made on a device, the ids' own included.
struct everything : world {
    rdma::event_channel channel;
    rdma::cm_id id, xrc;
    rdma::pd pd;
    rdma::comp_channel bell;
    rdma::cq cq;
    rdma::qp qp;
    std::array<std::byte, 64> memory{};
    rdma::mr region, of_id;
    rdma::ah peer;
    rdma::xrcd domain;

    everything() {
        fake::set_xrc(true);
        fake::set_disassociated_destroys_fail(true);
        messy();
        id = make_bound(channel);
        xrc = rdma::cm_id(channel, rdma::port_space::ib, rdma::qp_type::xrc_recv, rdma::address(rxe_host, 0));
        pd = rdma::pd(id.verbs());
        bell = rdma::comp_channel(id.verbs());
        cq = rdma::cq(id.verbs(), 8, bell);
        id.create_srq();
        id.create_qp(pd, {});
        qp = rdma::qp(pd, rdma::qp_type::rc, {.send_cq = cq, .recv_cq = cq, .srq = id.srq()});
        region = rdma::mr(pd, memory, rdma::access::local_write);
        of_id = id.reg_read(memory);
        ibv_ah_attr towards{};
        towards.port_num = towards.is_global = 1;
        peer = rdma::ah(pd, towards);
        domain = rdma::xrcd(xrc.verbs());
        xrc.create_srq_ex({.type = rdma::srq_type::xrc, .xrcd = domain});
    }

    /// Drops all, beginning with the nth.
    void drop_from(int nth) {
        for (int i = 0; i != 10; ++i)
            switch ((nth + i) % 10) {
            case 0: id = {}; break;
            case 1: xrc = {}; break;
            case 2: pd = {}; break;
            case 3: bell = {}; break;
            case 4: cq = {}; break;
            case 5: qp = {}; break;
            case 6: region = {}; break;
            case 7: of_id = {}; break;
            case 8: peer = {}; break;
            case 9: domain = {}; break;
            }
    }
};

} // namespace

TEST_CASE("T10 destroys that fail with EIO are told once for each object, and the ids go all the same", "[devices]") {
    for (int first = 0; first != 10; ++first) {
        CAPTURE(first);
        everything e;
        fake::remove_device("rxe0");
        for (rdma::cm_event event : e.channel.pending())
            CHECK(event.type() == type::device_removal);
        e.drop_from(first);
        auto const told = told_of_each();
        for (auto const& [object, times] : told)
            CHECK(times == 1);
        CHECK(told.size() >= 10); // of everything
        CHECK(fake::live().ids == 0);
        CHECK(fake::device_gone("rxe0"));
        CHECK(fake::misuse() == std::vector<std::string>{});
    }
}

TEST_CASE_METHOD(everything,
                 "T10 destroys by name that fail with EIO tell the caller, and the owner's drop the hook, once",
                 "[devices]") {
    fake::remove_device("rxe0");
    auto const cut_off = [](auto& owner) {
        CHECK(thrown([&] { owner.destroy(); }) == std::errc::io_error);
        CHECK(owner);
    };
    cut_off(qp);
    cut_off(region);
    cut_off(of_id);
    cut_off(peer);
    CHECK(told(rdma::diagnostic_kind::destroy_failed) == 0);
    drop_from(0);
    for (auto const& [object, times] : told_of_each())
        CHECK(times == 1);
    CHECK(fake::live().ids == 0);
}

TEST_CASE_METHOD(everything, "T10 events held of a device that is cut off are acked, and what they keep goes with them",
                 "[devices]") {
    fake::push_async(qp.native_handle(), IBV_EVENT_QP_FATAL);
    rdma::async_event trouble = async_event_of(id.verbs());
    REQUIRE(trouble);
    fake::push_cq_event(cq.native_handle());
    auto completion = bell.try_get();
    REQUIRE(completion);
    fake::remove_device("rxe0");
    rdma::cm_event removal = next(channel, type::device_removal);
    rdma::async_event const fatal = async_event_of(id.verbs());
    CHECK(fatal.type() == rdma::async_event_type::device_fatal);
    CHECK((!fatal.qp() && !fatal.cq() && !fatal.srq()));
    drop_from(3);
    CHECK(fake::live().ids == 2 - 1); // the one without events is gone
    trouble.ack();
    completion.reset();
    removal.ack();
    for (auto const& [object, times] : told_of_each())
        CHECK(times == 1);
    CHECK(fake::live().ids == 0);
}
