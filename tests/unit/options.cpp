// SPDX-License-Identifier: MIT
// Options of an id, typed by name, and what an id tells of itself: ports, GIDs, paths.
#include "support.hpp"

#include <infiniband/sa.h>

using namespace unit;

namespace {

struct one_id : world {
    rdma::event_channel channel;
    rdma::cm_id id = make_id(channel);
};

/// A path as librdmacm wants it to use it.
ibv_path_data usable_path() {
    ibv_path_data path{};
    path.flags = IBV_PATH_FLAG_GMP | IBV_PATH_FLAG_PRIMARY | IBV_PATH_FLAG_BIDIRECTIONAL;
    return path;
}

/// The timeout that the kernel would give the QP of a connected id.
std::uint8_t timeout_of(rdma::cm_id const& id) { return id.init_qp_attr(IBV_QPS_RTS).attr.timeout; }

template <class T>
std::span<std::byte const> bytes_of(T const& value) {
    return std::as_bytes(std::span(&value, 1));
}

} // namespace

TEST_CASE_METHOD(one_id, "options: the type of service, which C takes as one byte", "[options]") {
    id.set_tos(0x20);
    std::error_code ec;
    id.set_tos(8, ec);
    CHECK_FALSE(ec);
    CHECK(fake::count("rdma_set_option", id.native_handle()) == 2);
    int const too_long = 1;
    id.set_option(RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, bytes_of(too_long), ec);
    CHECK(ec == std::errc::invalid_argument);
    std::uint8_t const right = 1;
    id.set_option(RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, bytes_of(right));
}

TEST_CASE_METHOD(one_id, "options: an address is bound again only by who may reuse it", "[options]") {
    rdma::address const at(rxe_host, 7471);
    rdma::cm_id second = make_id(channel), third = make_id(channel);
    id.set_reuse_addr(true);
    second.set_reuse_addr(true);
    id.bind(at);
    second.bind(at);
    CHECK(thrown([&] { third.bind(at); }) == std::errc::address_in_use);
    third.set_reuse_addr(true);
    third.set_reuse_addr(false);
    CHECK(thrown([&] { third.bind(at); }) == std::errc::address_in_use);
    id.listen();
    CHECK(thrown([&] { id.set_reuse_addr(true); }, "reuse_addr") == std::errc::invalid_argument);
}

TEST_CASE_METHOD(one_id, "options: an IPv6 wildcard listener leaves IPv4 alone when it is told to", "[options]") {
    bool const only = GENERATE(true, false);
    id.set_af_only(only);
    id.bind(rdma::address::any_v6(7471));
    id.listen();
    rdma::event_channel clients;
    rdma::cm_id client = make_client(clients);
    client.create_qp({});
    client.connect();
    if (only)
        CHECK(next(clients, type::rejected).error() == rdma::condition::refused);
    else
        next(channel, type::connect_request).ack();
    CHECK(thrown([&] { id.set_af_only(true); }, "af_only") == std::errc::invalid_argument); // too late
}

TEST_CASE_METHOD(one_id, "options: the ACK timeout, by span or exponent, is what the QP gets", "[options]") {
    rdma::cm_id listener = make_listener(channel);
    id = make_client(channel);
    id.set_ack_timeout(rdma::ack_timeout::of_exponent(21));
    id.connect({.qp_num = 7});
    rdma::cm_id server = next(channel, type::connect_request).take_id();
    CHECK(timeout_of(server) == 19);
    server.set_ack_timeout(67ms);
    CHECK(timeout_of(server) == 14);
    std::error_code ec;
    server.set_ack_timeout(-1s, ec); // for ever
    CHECK_FALSE(ec);
    CHECK(timeout_of(server) == 0);
    server.accept({.qp_num = 8});
    expect(channel, type::connect_response);
    CHECK(timeout_of(id) == 21);
    CHECK(id.init_qp_attr(IBV_QPS_RTS).mask & IBV_QP_TIMEOUT);

    rdma::cm_id datagrams = make_id(channel, rdma::port_space::udp);
    CHECK(thrown([&] { datagrams.set_ack_timeout(1ms); }, "ack_timeout") == std::errc::invalid_argument);
    fake::set_timewait(false);
}

TEST_CASE_METHOD(one_id, "options: a path of the program's own takes the place of resolve_route", "[options]") {
    auto const path = usable_path();
    id.bind(rdma::address(rxe_host, 0));
    CHECK(thrown([&] { id.set_ib_path({&path, 1}); }, "ib_path") == std::errc::invalid_argument); // not resolved yet
    id.resolve_addr(rdma::address(rxe_host, 7471));
    expect(channel, type::addr_resolved);
    ibv_path_data unusable[2]{};
    std::error_code ec;
    id.set_ib_path(unusable, ec);
    CHECK(ec == std::errc::invalid_argument);
    id.set_ib_path({}, ec);
    CHECK(ec == std::errc::invalid_argument);
    unusable[1] = path;
    id.set_ib_path(unusable, ec);
    CHECK_FALSE(ec);
    expect(channel, type::route_resolved); // made up by the kernel
    CHECK(id.path_rec() != nullptr);
    rdma::cm_id const listener = make_listener(channel);
    id.create_qp({});
    id.connect();
    next(channel, type::connect_request).ack();
}

TEST_CASE_METHOD(one_id, "options: any other, by level and name", "[options]") {
    int const on = 1;
    id.set_option(RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, bytes_of(on));
    CHECK(thrown([&] { id.set_option(RDMA_OPTION_ID, 99, bytes_of(on)); }, "level 0, option 99") ==
          std::errc::function_not_supported);
    CHECK(thrown([&] { id.set_option(7, 1, bytes_of(on)); }, "level 7, option 1") == std::errc::function_not_supported);
    fake::fail("rdma_set_option", 1, EIO);
    CHECK(thrown([&] { id.set_tos(1); }, "tos") == std::errc::io_error);
}

// ---- What an id tells -----------------------------------------------------------------------------------------------

TEST_CASE_METHOD(one_id, "an id tells its ports in host order, and its addresses' GIDs and path", "[id]") {
    CHECK((id.src_port() == 0 && id.dst_port() == 0 && id.pkey() == 0));
    CHECK(id.path_rec() == nullptr);
    rdma::cm_id const listener = make_listener(channel);
    CHECK(listener.src_port() == 7471);
    CHECK(listener.dst_port() == 0);
    id = make_client(channel);
    CHECK(id.dst_port() == 7471);
    CHECK(id.src_port() == id.local_addr().port());
    CHECK(id.src_port() != 0);
    CHECK(fake::count("rdma_get_src_port", id.native_handle()) == 2);
    CHECK(fake::count("rdma_get_dst_port", id.native_handle()) == 1);
    CHECK(id.port_num() == 1);
    CHECK(id.pkey() == ntohs(id.native_handle()->route.addr.addr.ibaddr.pkey));
    CHECK(std::memcmp(&id.native_handle()->route.addr.addr.ibaddr.sgid, id.sgid().raw, 16) == 0);
    CHECK(std::memcmp(&id.native_handle()->route.addr.addr.ibaddr.dgid, id.dgid().raw, 16) == 0);
    std::array<std::uint8_t, 16> const mapped{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 77, 1, 1};
    CHECK(std::memcmp(id.dgid().raw, mapped.data(), mapped.size()) == 0);
    REQUIRE((id.path_rec() != nullptr && id.num_paths() == 1));
    CHECK(std::memcmp(id.path_rec()[0].dgid.raw, id.dgid().raw, 16) == 0);
    CHECK(rdma::cm_id_ref(id).dst_port() == 7471);

    rdma::cm_id const iwarp = make_client(channel, siw_host);
    CHECK(iwarp.path_rec() == nullptr);
    CHECK(iwarp.dst_port() == 7471);
}

TEST_CASE_METHOD(one_id, "an id that is empty, or not bound, tells nothing, and C is not asked", "[id]") {
    rdma::cm_id const empty;
    std::size_t const calls = calls_made();
    CHECK((empty.src_port() == 0 && empty.dst_port() == 0 && empty.pkey() == 0));
    CHECK((empty.path_rec() == nullptr && empty.num_paths() == 0));
    CHECK(empty.qp_type() == rdma::qp_type::rc);
    ibv_gid const zero{};
    CHECK(std::memcmp(empty.sgid().raw, zero.raw, 16) == 0);
    CHECK(std::memcmp(empty.dgid().raw, zero.raw, 16) == 0);
    CHECK_FALSE(empty.disconnected());
    CHECK(calls_made() == calls);
    CHECK(std::memcmp(id.sgid().raw, zero.raw, 16) == 0);
    CHECK(id.qp_type() == rdma::qp_type::rc);
    CHECK(make_id(channel, rdma::port_space::udp).qp_type() == rdma::qp_type::ud);
    CHECK(make_id(channel, rdma::port_space::ipoib).qp_type() == rdma::qp_type::ud);
    CHECK(make_id(channel, rdma::port_space::ib).qp_type() == rdma::qp_type::rc);
}

TEST_CASE("an id knows that it was disconnected once the event was got", "[id]") {
    world w;
    connection c = connect_pair();
    c.client.disconnect();
    CHECK_FALSE(c.client.disconnected());
    expect(c.client_channel, type::disconnected);
    CHECK(c.client.disconnected());
    CHECK_FALSE(c.server.disconnected());
}
