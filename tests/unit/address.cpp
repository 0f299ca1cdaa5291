// SPDX-License-Identifier: MIT
// Addresses: parsed, printed, compared, and taken from C. (What is no address is in bad_input.cpp.)
#include "support.hpp"

#include <cstddef>
#include <string>
#include <string_view>

#include <net/if.h>

using namespace unit;

static_assert(std::is_nothrow_default_constructible_v<rdma::address> && std::is_trivially_copyable_v<rdma::address>);
static_assert(!std::is_convertible_v<sockaddr const*, rdma::address>);
// The C address must not outlive the object.
template <class Address>
concept gives_handle = requires(Address a) {
    std::forward<Address>(a).native_handle();
};
static_assert(gives_handle<rdma::address const&> && !gives_handle<rdma::address>);

TEST_CASE("an address is parsed and printed", "[address]") {
    struct text_case {
        char const* host;
        int port;
        sa_family_t family;
        socklen_t length;
        bool any;
        char const* printed;
    };
    auto const each = GENERATE(values<text_case>({
        {"10.77.1.1", 7471, AF_INET, sizeof(sockaddr_in), false, "10.77.1.1:7471"},
        {"255.255.255.255", 65535, AF_INET, sizeof(sockaddr_in), false, "255.255.255.255:65535"},
        {"0.0.0.0", 0, AF_INET, sizeof(sockaddr_in), true, "0.0.0.0:0"},
        {"::", 1, AF_INET6, sizeof(sockaddr_in6), true, "[::]:1"},
        {"::1", 80, AF_INET6, sizeof(sockaddr_in6), false, "[::1]:80"},
        {"fd77:1:0:0:0:0:0:2", 7471, AF_INET6, sizeof(sockaddr_in6), false, "[fd77:1::2]:7471"},
        {"::ffff:10.0.0.1", 2, AF_INET6, sizeof(sockaddr_in6), false, "[::ffff:10.0.0.1]:2"},
    }));
    CAPTURE(each.host);
    rdma::address const a(each.host, each.port);
    CHECK(a.family() == each.family);
    CHECK(a.port() == each.port);
    CHECK(a.length() == each.length);
    CHECK(a.is_any() == each.any);
    CHECK(a.scope_id() == 0);
    CHECK(to_string(a) == each.printed);
    CHECK(a.native_handle()->sa_family == each.family);
    CHECK(rdma::address(a.host(), a.port()) == a);
    CHECK(rdma::address(a.native_handle()) == a);
    std::error_code ec = std::make_error_code(std::errc::io_error);
    CHECK(rdma::address(each.host, each.port, ec) == a);
    CHECK_FALSE(ec);
}

TEST_CASE("the port is in host byte order here, and in network byte order for C", "[address]") {
    rdma::address const v4("10.0.0.1", 0x1234), v6("::1", 0x1234);
    CHECK(v4.port() == 0x1234);
    CHECK(reinterpret_cast<sockaddr_in const*>(v4.native_handle())->sin_port == htons(0x1234));
    CHECK(reinterpret_cast<sockaddr_in6 const*>(v6.native_handle())->sin6_port == htons(0x1234));
}

TEST_CASE("a link-local address carries its interface, by name or number", "[address]") {
    char name[IF_NAMESIZE] = {};
    unsigned index = 1; // there is hardly a machine without its loopback
    if (!::if_indextoname(index, name))
        RDMACPP_SKIP("no interface has the index 1");
    rdma::address const by_name("fe80::1%" + std::string(name), 7471);
    rdma::address const by_number("fe80::1%1", 7471), other("fe80::1%71", 7471), without("fe80::1", 7471);
    CHECK(by_name.scope_id() == 1);
    CHECK(by_name == by_number);
    CHECK(by_name != other);
    CHECK(by_name != without);
    CHECK(by_name.host() == "fe80::1%" + std::string(name));
    CHECK(to_string(by_name) == "[fe80::1%" + std::string(name) + "]:7471");
    CHECK(rdma::address(by_name.host(), 7471) == by_name);
    CHECK(other.scope_id() == 71);
    if (!::if_indextoname(71, name))
        CHECK(to_string(other) == "[fe80::1%71]:7471");
}

TEST_CASE("the empty address", "[address]") {
    rdma::address const none, from_null(static_cast<sockaddr const*>(nullptr));
    CHECK(none == from_null);
    CHECK(none.family() == AF_UNSPEC);
    CHECK(none.port() == 0);
    CHECK(none.length() == 0);
    CHECK(none.scope_id() == 0);
    CHECK_FALSE(none.is_any());
    CHECK(none.host() == "");
    CHECK(to_string(none) == "-");
    CHECK(none != rdma::address("0.0.0.0", 0));
}

TEST_CASE("addresses are equal when family, host, port and scope are", "[address]") {
    rdma::address const a("10.0.0.1", 1);
    CHECK(a == rdma::address("10.0.0.1", 1));
    CHECK(a != rdma::address("10.0.0.2", 1));
    CHECK(a != rdma::address("10.0.0.1", 2));
    CHECK(a != rdma::address("::ffff:10.0.0.1", 1));
    CHECK(rdma::address("fd00::1", 1) != rdma::address("fd00::2", 1));
    sockaddr_in raw{};
    raw.sin_family = AF_INET;
    raw.sin_port = htons(1);
    ::inet_pton(AF_INET, "10.0.0.1", &raw.sin_addr);
    std::memset(raw.sin_zero, 0x5a, sizeof raw.sin_zero); // no part of the address
    CHECK(a == rdma::address(reinterpret_cast<sockaddr const*>(&raw)));
    CHECK(rdma::address::any_v4(5) == rdma::address("0.0.0.0", 5));
    CHECK(rdma::address::any_v6(5) == rdma::address("::", 5));
    std::error_code ec;
    CHECK(rdma::address::any_v4(5, ec) == rdma::address("0.0.0.0", 5));
    CHECK(rdma::address::any_v6(5, ec) == rdma::address("::", 5));
    CHECK_FALSE(ec);
}

TEST_CASE("an address of a family that is not known here is kept whole", "[address]") {
    alignas(sockaddr_storage) std::array<std::byte, sizeof(sockaddr_storage)> memory{}; // 48 bytes are a sockaddr_ib
    constexpr sa_family_t family = AF_IB;
    std::memset(memory.data(), 0x5a, 48);
    std::memcpy(memory.data() + offsetof(sockaddr, sa_family), &family, sizeof family);
    rdma::address const a(reinterpret_cast<sockaddr const*>(memory.data()));
    CHECK(a.family() == AF_IB);
    CHECK(a.length() == 48);
    CHECK(std::memcmp(a.native_handle(), memory.data(), 48) == 0);
    CHECK(a.port() == 0);
    CHECK(to_string(a) == "family " + std::to_string(AF_IB));
    rdma::address copy = a;
    CHECK(copy == a);
    memory[47] = std::byte{1};
    CHECK(a != rdma::address(reinterpret_cast<sockaddr const*>(memory.data())));
}

TEST_CASE("only as many bytes are read as a family has", "[address]") {
    // Each in memory of its own size: a sanitizer sees one byte too many.
    auto const v4 = std::make_unique<sockaddr_in>();
    v4->sin_family = AF_INET;
    CHECK(rdma::address(reinterpret_cast<sockaddr const*>(v4.get())).is_any());
    auto const v6 = std::make_unique<sockaddr_in6>();
    v6->sin6_family = AF_INET6;
    CHECK(rdma::address(reinterpret_cast<sockaddr const*>(v6.get())).is_any());
    auto const other = std::make_unique<sockaddr>();
    other->sa_family = AF_UNIX;
    CHECK(rdma::address(other.get()).family() == AF_UNIX);
}

TEST_CASE("ids and events print their addresses", "[address]") {
    world w;
    rdma::event_channel channel;
    rdma::cm_id listener = make_listener(channel, "fd77:1::1");
    CHECK_THAT(to_string(rdma::cm_id_ref(listener)), rdmacpp_test::contains("[fd77:1::1]:7471 -> -"));
    CHECK(to_string(rdma::cm_id_ref()) == "none");
    rdma::cm_event request = make_request(channel, listener);
    CHECK_THAT(to_string(request), rdmacpp_test::contains("[fd77:1::1]:7471 -> [fd77:1::2]:"));
    CHECK_THAT(to_string(request), rdmacpp_test::contains("listener"));
    CHECK(std::hash<rdma::cm_id_ref>()(listener) == std::hash<rdma::cm_id_ref>()(request.listen_id()));
    CHECK(request.id() != request.listen_id());
}
