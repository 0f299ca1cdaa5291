// SPDX-License-Identifier: MIT
//
// rdma_getaddrinfo, and what endpoints make of its results.
#include "support.hpp"

#include <set>

#include <netdb.h>

#include <infiniband/ib.h>

using namespace selftest;

namespace {

rdma_addrinfo numeric(int flags = 0, int type = 0, int port_space = 0)
{
    rdma_addrinfo hints{};
    hints.ai_flags = RAI_NUMERICHOST | flags;
    hints.ai_qp_type = type;
    hints.ai_port_space = port_space;
    return hints;
}

bool fails_with(int result, int code) { return result == -1 && errno == code; }

} // namespace

TEST_CASE("the kinds of QP and port space that hints lead to")
{
    clean_world world;
    struct { int type, port_space, got_type, got_port_space; } const cases[] = {
        {0, 0, IBV_QPT_RC, RDMA_PS_TCP},
        {IBV_QPT_RC, 0, IBV_QPT_RC, RDMA_PS_TCP},
        {IBV_QPT_UC, 0, IBV_QPT_UC, RDMA_PS_TCP},
        {IBV_QPT_XRC_SEND, 0, IBV_QPT_XRC_SEND, RDMA_PS_TCP},
        {IBV_QPT_XRC_RECV, RDMA_PS_IB, IBV_QPT_XRC_RECV, RDMA_PS_IB},
        {IBV_QPT_UD, 0, IBV_QPT_UD, RDMA_PS_UDP},
        {0, RDMA_PS_TCP, IBV_QPT_RC, RDMA_PS_TCP},
        {0, RDMA_PS_UDP, IBV_QPT_UD, RDMA_PS_UDP},
        {0, RDMA_PS_IPOIB, IBV_QPT_UD, RDMA_PS_IPOIB},
        {IBV_QPT_UD, RDMA_PS_IPOIB, IBV_QPT_UD, RDMA_PS_IPOIB},
        {0, RDMA_PS_IB, IBV_QPT_RC, RDMA_PS_IB},
        {IBV_QPT_UD, RDMA_PS_IB, IBV_QPT_UD, RDMA_PS_IB},
    };
    for (auto const& each : cases) {
        INFO(each.type << ' ' << each.port_space);
        auto const hints = numeric(0, each.type, each.port_space);
        rdma_addrinfo* found = nullptr;
        REQUIRE(rdma_getaddrinfo("10.77.1.1", "7471", &hints, &found) == 0);
        CHECK((found->ai_qp_type == each.got_type && found->ai_port_space == each.got_port_space));
        CHECK((found->ai_next == nullptr && found->ai_src_addr == nullptr && found->ai_flags == 0));
        rdma_freeaddrinfo(found);
    }
    auto const contradiction = numeric(0, IBV_QPT_UD, RDMA_PS_TCP);
    rdma_addrinfo* found = nullptr;
    CHECK(rdma_getaddrinfo("10.77.1.1", "7471", &contradiction, &found) == EAI_SOCKTYPE);
    auto const good = numeric();
    CHECK(rdma_getaddrinfo("no number", "7471", &good, &found) == EAI_NONAME);
    CHECK(fails_with(rdma_getaddrinfo(nullptr, nullptr, nullptr, &found), EINVAL));
    fake::set_devices_present(false);
    CHECK(fails_with(rdma_getaddrinfo(nullptr, nullptr, nullptr, &found), EINVAL)); // before it looks for devices
    CHECK(fails_with(rdma_getaddrinfo("10.77.1.1", nullptr, &good, &found), ENODEV));
}

TEST_CASE("which addresses of hints and results are kept")
{
    clean_world world;
    auto source = v4("10.77.1.2", 1), target = v4("10.77.1.1", 2);
    auto hints = numeric(RAI_PASSIVE);
    hints.ai_src_addr = &source.raw, hints.ai_src_len = sizeof source.v4;
    hints.ai_dst_addr = &target.raw, hints.ai_dst_len = sizeof target.v4;
    rdma_addrinfo* found = nullptr;
    REQUIRE(rdma_getaddrinfo("10.77.1.1", "7471", &hints, &found) == 0);
    CHECK(found->ai_flags == RAI_PASSIVE); // alone
    CHECK(reinterpret_cast<sockaddr_in*>(found->ai_src_addr)->sin_port == htons(7471));
    CHECK(found->ai_dst_addr == nullptr);
    rdma_freeaddrinfo(found);

    hints.ai_flags = RAI_NUMERICHOST;
    REQUIRE(rdma_getaddrinfo("10.77.1.1", "7471", &hints, &found) == 0);
    CHECK(reinterpret_cast<sockaddr_in*>(found->ai_src_addr)->sin_port == htons(1));
    CHECK(reinterpret_cast<sockaddr_in*>(found->ai_dst_addr)->sin_port == htons(7471));
    rdma_freeaddrinfo(found);

    hints.ai_flags = RAI_NUMERICHOST | RAI_NOROUTE | RAI_FAMILY; // neither a node nor a service: the hints as they are
    hints.ai_family = AF_INET;
    REQUIRE(rdma_getaddrinfo(nullptr, nullptr, &hints, &found) == 0);
    CHECK((found->ai_flags == hints.ai_flags && found->ai_family == AF_INET && found->ai_qp_type == 0 && found->ai_port_space == 0));
    CHECK(reinterpret_cast<sockaddr_in*>(found->ai_dst_addr)->sin_port == htons(2));
    rdma_cm_id* id = nullptr;
    CHECK(fails_with(rdma_create_ep(&id, found, nullptr, nullptr), EINVAL)); // no port space
    rdma_freeaddrinfo(found);
}

TEST_CASE("with ibacm there are two results, and the second leads to a connection by its route")
{
    clean_world world;
    fake::set_ibacm(true);
    auto const hints = numeric();
    rdma_addrinfo* found = nullptr;
    REQUIRE(rdma_getaddrinfo("10.77.1.1", "7471", &hints, &found) == 0);
    REQUIRE(found->ai_next != nullptr);
    CHECK((found->ai_family == AF_IB && found->ai_connect_len == 36 && found->ai_route_len == sizeof(ibv_path_data)));
    auto const& second = *found->ai_next;
    CHECK((second.ai_family == AF_INET && second.ai_next == nullptr && second.ai_route_len == sizeof(ibv_path_data)));
    CHECK((second.ai_src_addr != nullptr && second.ai_connect_len == 0));
    rdma_cm_id* id = nullptr;
    rdma_addrinfo copy = second;
    copy.ai_connect = found->ai_connect; // as if the first had been one that ids know
    copy.ai_connect_len = found->ai_connect_len;
    CHECK(fails_with(rdma_create_ep(&id, found, nullptr, nullptr), EINVAL));
    auto attr = small_qp();
    REQUIRE(rdma_create_ep(&id, &copy, nullptr, &attr) == 0);
    CHECK(id->event->event == RDMA_CM_EVENT_ROUTE_RESOLVED);
    CHECK(fake::count("rdma_set_option") == 0); // not called by the program
    auto* const channel = rdma_create_event_channel();
    auto* const listener = make_listener(channel, v4("10.77.1.1", 7471));
    REQUIRE(rdma_migrate_id(id, rdma_create_event_channel()) == 0);
    auto param = usual_param();
    std::array<char, 56> const text{"abc"};
    param.private_data = text.data();
    param.private_data_len = 21; // and 36 more
    CHECK(fails_with(rdma_connect(id, &param), EINVAL));
    param.private_data_len = 20;
    REQUIRE(rdma_connect(id, &param) == 0);
    {
        event const asked{channel};
        auto const* data = static_cast<char const*>(asked->param.conn.private_data);
        CHECK(std::string{data + 36} == "abc");
        drop(asked->id);
    }
    rdma_freeaddrinfo(found);
    auto* const own = id->channel;
    rdma_destroy_ep(id);
    rdma_destroy_event_channel(own);
    drop(listener);
    rdma_destroy_event_channel(channel);

    REQUIRE(rdma_getaddrinfo("10.77.2.1", "7471", &hints, &found) == 0); // siw: nothing to ask ibacm for
    CHECK((found->ai_next == nullptr && found->ai_route_len == 0));
    rdma_freeaddrinfo(found);
    auto const passive = numeric(RAI_PASSIVE);
    REQUIRE(rdma_getaddrinfo("10.77.1.1", "7471", &passive, &found) == 0);
    CHECK(found->ai_next == nullptr);
    rdma_freeaddrinfo(found);
}

TEST_CASE("a route that the program brings along is resolved at once")
{
    clean_world world;
    auto* const channel = rdma_create_event_channel();
    auto* const id = make_id(channel);
    auto to = v4("10.77.1.1", 7471);
    ibv_path_data paths[2]{};
    auto const set = [&](void* value, std::size_t length) { return rdma_set_option(id, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, value, length); };
    paths[1].flags = IBV_PATH_FLAG_GMP | IBV_PATH_FLAG_PRIMARY | IBV_PATH_FLAG_BIDIRECTIONAL;
    CHECK(fails_with(set(paths, sizeof paths), EINVAL)); // no address yet
    REQUIRE(rdma_resolve_addr(id, nullptr, &to.raw, 1) == 0);
    expect(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
    CHECK(fails_with(set(paths, sizeof paths[0]), EINVAL)); // not a usable path
    CHECK(fails_with(set(paths, sizeof paths - 1), EINVAL));
    CHECK(fails_with(set(paths, 0), EINVAL));
    CHECK(fails_with(set(nullptr, sizeof paths), EFAULT));
    CHECK(fails_with(rdma_set_option(id, RDMA_OPTION_IB, 7, paths, sizeof paths), ENOSYS));
    REQUIRE(set(paths, sizeof paths) == 0);
    expect(channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
    CHECK(id->route.num_paths == 1);
    CHECK(fails_with(set(paths, sizeof paths), EINVAL));
    drop(id);
    rdma_destroy_event_channel(channel);
}

TEST_CASE("ports, before and after there is an address")
{
    clean_world world;
    auto* const channel = rdma_create_event_channel();
    auto* const id = make_id(channel);
    CHECK((rdma_get_src_port(id) == 0 && rdma_get_dst_port(id) == 0));
    auto to = v6("fd77:1::1", 7471);
    REQUIRE(rdma_resolve_addr(id, nullptr, &to.raw, 1) == 0);
    CHECK(rdma_get_dst_port(id) == htons(7471)); // at once
    CHECK(rdma_get_src_port(id) == 0);           // only when the event is got
    expect(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
    CHECK(rdma_get_src_port(id) != 0);
    drop(id);
    rdma_destroy_event_channel(channel);
}

TEST_CASE("events have names, which those of later releases do not have")
{
    clean_world world;
    std::set<std::string> names;
    for (int type = 0; type <= RDMA_CM_EVENT_TIMEWAIT_EXIT; ++type) names.insert(rdma_event_str(static_cast<rdma_cm_event_type>(type)));
    CHECK(names.size() == RDMA_CM_EVENT_TIMEWAIT_EXIT + 1);
    for (auto const& name : names) CHECK(name.rfind("RDMA_CM_EVENT_", 0) == 0);
    for (int const type : {16, 17, 18, 19, 99}) CHECK(std::string{rdma_event_str(static_cast<rdma_cm_event_type>(type))} == "UNKNOWN EVENT");
}

TEST_CASE("an address that comes without a device is an error from rdma-core 56 on")
{
    for (unsigned const release : {44U, 56U}) {
        INFO(release);
        clean_world world;
        fake::set_rdma_core(release);
        fake::set_resolve_without_device(true);
        auto* const channel = rdma_create_event_channel();
        auto* const id = make_id(channel);
        auto to = v4("10.77.1.1", 7471);
        REQUIRE(rdma_resolve_addr(id, nullptr, &to.raw, 1) == 0);
        bool const tells = release >= 56;
        expect(channel, tells ? RDMA_CM_EVENT_ADDR_ERROR : RDMA_CM_EVENT_ADDR_RESOLVED, tells ? -1 : 0);
        CHECK(id->verbs == nullptr);
        drop(id);
        rdma_destroy_event_channel(channel);
    }
}
