// SPDX-License-Identifier: MIT
// What rdma-core 60 has more: user events, and looking up names by an event. Built against a stand-in for its header
// where the installed one is older.
#include "../datagrams.hpp"

#include <atomic>
#include <optional>
#include <stop_token>
#include <thread>

#include <netdb.h>

using namespace unit;

#if !defined(RAI_SA) || !defined(RAI_DNS)
#error "neither the header of rdma-core 60 nor its stand-in was found"
#endif
static_assert(static_cast<int>(type::addrinfo_resolved) == RDMA_CM_EVENT_ADDRINFO_RESOLVED);
static_assert(static_cast<int>(type::addrinfo_error) == RDMA_CM_EVENT_ADDRINFO_ERROR);
static_assert(static_cast<int>(type::user) == RDMA_CM_EVENT_USER);

namespace {

struct one_id : world {
    rdma::event_channel channel;
    rdma::cm_id id = make_id(channel);
};

constexpr rdma::addrinfo_hints numeric{.numeric_host = true, .flags = RAI_DNS};

/// Both forms refuse, and C is not called.
template <class Throwing, class Twin>
void refused(std::error_code wanted, Throwing&& throwing, Twin&& twin) {
    std::size_t const calls = calls_made();
    CHECK(thrown(throwing) == wanted);
    std::error_code ec;
    twin(ec);
    CHECK(ec == wanted);
    CHECK(calls_made() == calls);
}

} // namespace

// ---- User events ----------------------------------------------------------------------------------------------------

TEST_CASE_METHOD(one_id, "user events carry a status and a number, and hold their id", "[v60]") {
    id.write_cm_event(-3, 0x1122334455667788);
    rdma::cm_event event = next(channel, type::user);
    CHECK(event.id() == id);
    CHECK(event.status() == -3);
    CHECK(event.user_arg() == 0x1122334455667788);
    CHECK(event.native_handle()->param.arg == 0x1122334455667788);
    CHECK_FALSE(event.error());
    CHECK_THAT(to_string(event), rdmacpp_test::contains("USER, status -3"));
    id = {};
    CHECK(fake::count("rdma_destroy_id") == 0);
    event.ack();
    CHECK(fake::count("rdma_destroy_id") == 1);
}

TEST_CASE_METHOD(one_id, "only a user event has a number of its writer's", "[v60]") {
    fake::push(id.native_handle(), {RDMA_CM_EVENT_ADDR_CHANGE, 0, nullptr, 0, 99});
    CHECK(next(channel, type::addr_change).user_arg() == 0);
}

TEST_CASE_METHOD(one_id, "user events fail as any call does", "[v60]") {
    rdma::cm_id empty;
    refused(
        rdma::errc::empty_handle, [&] { empty.write_cm_event(0, 0); },
        [&](std::error_code& ec) { empty.write_cm_event(0, 0, ec); });
    fake::fail("rdma_write_cm_event", 1, EINVAL); // as a kernel that does not know them
    CHECK(thrown([&] { id.write_cm_event(0, 0); }, "rdma_write_cm_event") == std::errc::invalid_argument);
    std::error_code ec(EIO, std::system_category());
    id.write_cm_event(0, 1, ec);
    CHECK_FALSE(ec);
    id = {}; // and with it what nobody has got
    CHECK(is_idle(channel));
}

TEST_CASE_METHOD(one_id, "A18 a user event wakes who waits on the channel", "[v60][field][threads]") {
    std::optional<rdma::cm_event> got;
    std::thread waiting([&] { got = channel.get_for(60s); });
    std::thread waking([&] { id.write_cm_event(0, 5); });
    waking.join();
    waiting.join();
    REQUIRE(got);
    CHECK(got->user_arg() == 5);
}

TEST_CASE_METHOD(one_id, "user events of several threads arrive once each", "[v60][threads]") {
    constexpr int writers = 3, each = 200;
    std::vector<std::atomic<int>> seen(writers * each);
    std::thread iterating([&] {
        int left = writers * each;
        for (rdma::cm_event event : channel) {
            ++seen[event.user_arg()];
            if (--left == 0)
                break;
        }
    });
    std::vector<std::thread> threads;
    for (int w = 0; w != writers; ++w)
        threads.emplace_back([&, w] {
            std::error_code ec;
            for (int i = 0; i != each; ++i) // any thread may, while its owner lets the id be
                id.write_cm_event(0, static_cast<std::uint64_t>(w * each + i), ec);
        });
    for (std::thread& one : threads)
        one.join();
    iterating.join();
    for (std::atomic<int> const& times : seen)
        CHECK(times == 1);
}

TEST_CASE_METHOD(one_id, "a user event that is queued moves with its id", "[v60][migrate]") {
    rdma::event_channel to;
    id.write_cm_event(0, 4);
    id.migrate(to);
    CHECK(next(to, type::user).user_arg() == 4);
}

// ---- Names by an event ----------------------------------------------------------------------------------------------

TEST_CASE_METHOD(one_id, "names are looked up, and what was found is taken once", "[v60]") {
    std::error_code ec;
    CHECK(thrown([&] { (void)id.query_addrinfo(); }, "rdma_query_addrinfo") == std::errc::no_such_file_or_directory);
    id.resolve_addrinfo(rxe_host, "7471", numeric);
    id.resolve_addrinfo(rxe_host, "7471", numeric, ec);
    CHECK(ec == std::errc::device_or_resource_busy); // one at a time
    CHECK_FALSE(next(channel, type::addrinfo_resolved).error());
    {
        rdma::addrinfo const found = id.query_addrinfo();
        REQUIRE(found);
        CHECK(found.front().dst_addr() == rdma::address(rxe_host, 7471));
        CHECK(fake::live().lists == 1);
        CHECK(id.query_addrinfo(ec).empty());
        CHECK(ec == std::errc::no_such_file_or_directory);
    }
    CHECK(fake::live().lists == 0);
    id.resolve_addrinfo(rxe_host, nullptr, numeric, ec); // and again; this result goes with the id
    CHECK_FALSE(ec);
}

TEST_CASE_METHOD(one_id, "a lookup that fails tells what the resolver said", "[v60]") {
    std::error_code ec;
    CHECK(thrown([&] { id.resolve_addrinfo("no number", "1", numeric); }, "rdma_resolve_addrinfo(no number, 1)") ==
          std::error_code(EAI_NONAME, rdma::gai_category()));
    id.resolve_addrinfo("no number", "1", numeric, ec);
    CHECK(ec == std::error_code(EAI_NONAME, rdma::gai_category()));
    id.resolve_addrinfo("node", "1", {.flags = RAI_SA}, ec); // it wants no name
    CHECK(ec.value() == ENOTSUP);
    id.resolve_addrinfo(nullptr, "1", {.flags = RAI_SA}, ec); // C leaves -1 in errno: no reason
    CHECK(ec == rdma::errc::unspecified);
    rdma::cm_id empty;
    refused(
        rdma::errc::empty_handle, [&] { empty.resolve_addrinfo("", ""); },
        [&](std::error_code& e) { empty.resolve_addrinfo("", "", {}, e); });
    refused(
        rdma::errc::empty_handle, [&] { (void)empty.query_addrinfo(); },
        [&](std::error_code& e) { CHECK_FALSE(empty.query_addrinfo(e)); });
    fake::push(id.native_handle(), {RDMA_CM_EVENT_ADDRINFO_ERROR, ENOENT});
    CHECK(next(channel, type::addrinfo_error).error() == std::errc::no_such_file_or_directory);
    CHECK(is_idle(channel));
}

TEST_CASE_METHOD(world, "upstream's scenario: names by an event on both sides, then datagrams", "[v60]") {
    rdma::event_channel channel;
    auto const found = [&](rdma::cm_id& id, bool passive) {
        id.resolve_addrinfo(
            rxe_host, "7174",
            {.passive = passive, .flags = RAI_DNS, .port_space = rdma::port_space::udp, .qp_type = rdma::qp_type::ud});
        rdma::cm_event const event = next(channel, type::addrinfo_resolved);
        CHECK(event.id() == id);
        return id.query_addrinfo();
    };
    rdma::cm_id listener = make_id(channel, rdma::port_space::udp), client = make_id(channel, rdma::port_space::udp);
    rdma::addrinfo const here = found(listener, true), there = found(client, false);
    listener.bind(here.front().src_addr());
    listener.listen();
    client.resolve_addr(there.front().dst_addr());
    expect(channel, type::addr_resolved);
    client.resolve_route();
    expect(channel, type::route_resolved);
    client.create_qp({});
    client.connect();
    rdma::cm_id server = next(channel, type::connect_request).take_id();
    server.create_qp({});
    server.accept();
    rdma::cm_event const answer = next(channel, type::established);
    rdma::ah const peer(client.pd(), answer);
    mailbox out(client), in(server);
    for (int i = 0; i != 10; ++i) {
        out.send("datagram", peer, answer.ud_param()->qp_num, answer.ud_param()->qkey);
        CHECK(in.received() == "datagram");
        rdma::ah const back(server.pd(), in.last, in.in.bytes, server.port_num());
        in.send("answer", back, in.last.success().src_qp(), RDMA_UDP_QKEY);
        CHECK(out.received() == "answer");
    }
}
