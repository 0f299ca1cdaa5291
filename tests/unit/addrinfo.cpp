// SPDX-License-Identifier: MIT
// Looking up names: hints, results as a range, and whose code an error is.
#include "support.hpp"

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <string>
#include <vector>

#include <netdb.h>

using namespace unit;

namespace {

/// What C was asked for: with neither name nor service, it gives the hints back.
rdma::addrinfo echo(rdma::addrinfo_hints const& hints) { return {nullptr, nullptr, hints}; }

std::error_code gai_code(int value) { return {value, rdma::gai_category()}; }

} // namespace

TEST_CASE("addrinfo: where to connect to, and where to listen") {
    world w;
    rdma::addrinfo const there(rxe_host, "7471");
    REQUIRE(there);
    CHECK_FALSE(there.empty());
    rdma::addrinfo_ref const to = there.front();
    CHECK(to.flags() == 0);
    CHECK(to.family() == AF_INET);
    CHECK(to.qp_type() == rdma::qp_type::rc);
    CHECK(to.port_space() == rdma::port_space::tcp);
    CHECK(to.dst_addr() == rdma::address(rxe_host, 7471));
    CHECK(to.src_addr() == rdma::address());
    CHECK(to.route().empty());
    CHECK(to.connect().empty());
    CHECK(to.native_handle() == there.native_handle());

    rdma::addrinfo const here("fd77:1::1", "7471", {.passive = true});
    CHECK(here.front().flags() == RAI_PASSIVE);
    CHECK(here.front().family() == AF_INET6);
    CHECK(here.front().src_addr() == rdma::address("fd77:1::1", 7471));
    CHECK(here.front().dst_addr() == rdma::address());

    rdma::addrinfo const anywhere(nullptr, "7471", {.passive = true, .family = AF_INET});
    CHECK(anywhere.front().src_addr() == rdma::address::any_v4(7471));
}

TEST_CASE("addrinfo: hints become what C is asked for") {
    world w;
    struct flag {
        rdma::addrinfo_hints hints;
        int c;
    };
    for (flag const& each :
         {flag{{}, 0}, flag{{.passive = true}, RAI_PASSIVE}, flag{{.numeric_host = true}, RAI_NUMERICHOST},
          flag{{.no_route = true}, RAI_NOROUTE}, flag{{.family = AF_INET6}, RAI_FAMILY}, flag{{.flags = 0x40}, 0x40},
          flag{{.passive = true, .no_route = true, .family = AF_INET, .flags = 0x40},
               RAI_PASSIVE | RAI_NOROUTE | RAI_FAMILY | 0x40}}) {
        rdma::addrinfo const asked = echo(each.hints);
        CHECK(asked.front().flags() == each.c);
        CHECK(asked.front().family() == each.hints.family);
    }
    rdma::addrinfo const datagrams = echo({.port_space = rdma::port_space::udp, .qp_type = rdma::qp_type::ud});
    CHECK(datagrams.front().port_space() == rdma::port_space::udp);
    CHECK(datagrams.front().qp_type() == rdma::qp_type::ud);
    rdma::addrinfo const addresses =
        echo({.src_addr = rdma::address(rxe_client_host, 0), .dst_addr = rdma::address("fd77:1::1", 7471)});
    CHECK(addresses.front().src_addr() == rdma::address(rxe_client_host, 0));
    CHECK(addresses.front().dst_addr() == rdma::address("fd77:1::1", 7471));
    rdma::addrinfo const usual = echo({});
    CHECK(usual.front().port_space() == rdma::port_space::tcp);
    CHECK(usual.front().qp_type() == rdma::qp_type::rc);
}

TEST_CASE("addrinfo: the hints act") {
    world w;
    rdma::addrinfo const datagrams(rxe_host, "7471",
                                   {.port_space = rdma::port_space::udp, .qp_type = rdma::qp_type::ud});
    CHECK(datagrams.front().port_space() == rdma::port_space::udp);
    rdma::addrinfo const from(rxe_host, "7471", {.src_addr = rdma::address(rxe_client_host, 0)});
    CHECK(from.front().src_addr() == rdma::address(rxe_client_host, 0));
    std::error_code ec;
    rdma::addrinfo const wrong_family(rxe_host, "7471", {.family = AF_INET6}, ec);
    CHECK(ec.category() == rdma::gai_category());
    CHECK_FALSE(wrong_family);
    rdma::addrinfo const no_number("localhost", "7471", {.numeric_host = true}, ec);
    CHECK(ec == gai_code(EAI_NONAME));
}

TEST_CASE("addrinfo: several results are a range, in C's order") {
    world w;
    fake::set_ibacm(true);
    rdma::addrinfo const found(rxe_host, "7471");
    std::vector<sa_family_t> families;
    for (rdma::addrinfo_ref each : found) {
        families.push_back(each.family());
        CHECK(each.route().size() == sizeof(ibv_path_data));
    }
    CHECK(families == std::vector<sa_family_t>{AF_IB, AF_INET});
    CHECK(found.front().family() == AF_IB);
    CHECK(found.front().connect().size() == 36);
    CHECK(found.front().dst_addr().family() == AF_IB);
    CHECK(std::distance(found.begin(), found.end()) == 2);
    auto const plain =
        std::find_if(found.begin(), found.end(), [](rdma::addrinfo_ref each) { return each.family() == AF_INET; });
    REQUIRE(plain != found.end());
    CHECK((*plain).dst_addr() == rdma::address(rxe_host, 7471));
    CHECK((*plain).src_addr().host() == rxe_host);

    auto at = found.begin();
    auto const before = at++;
    CHECK(before == found.begin());
    CHECK(at == plain);
    CHECK(++at == found.end());
    rdma::addrinfo::iterator nowhere;
    CHECK(nowhere == found.end());
    rdma::addrinfo const nothing;
    CHECK(nothing.begin() == nothing.end());
}

TEST_CASE("addrinfo: names, as C gives them") {
    char source[] = "here", destination[] = "there.example";
    rdma_addrinfo raw{};
    raw.ai_src_canonname = source;
    raw.ai_dst_canonname = destination;
    CHECK(rdma::addrinfo_ref(&raw).src_canonname() == "here");
    CHECK(rdma::addrinfo_ref(&raw).dst_canonname() == "there.example");
    raw = {};
    CHECK(rdma::addrinfo_ref(&raw).src_canonname().empty());
    CHECK(rdma::addrinfo_ref(&raw).dst_canonname().empty());
    CHECK_FALSE(rdma::addrinfo_ref());
    CHECK(rdma::addrinfo_ref().native_handle() == nullptr);
}

TEST_CASE("addrinfo: a length without an address, and an address without a length, are none") {
    rdma::address const known(rxe_host, 1);
    rdma_addrinfo raw{};
    raw.ai_src_addr = const_cast<sockaddr*>(known.native_handle());
    raw.ai_dst_len = sizeof(sockaddr_in);
    CHECK(rdma::addrinfo_ref(&raw).src_addr() == rdma::address());
    CHECK(rdma::addrinfo_ref(&raw).dst_addr() == rdma::address());
}

TEST_CASE("addrinfo: errors are the resolver's, or the system's") {
    world w;
    std::error_code ec;
    for (int code : {EAI_NONAME, EAI_AGAIN, EAI_FAIL, EAI_MEMORY, EAI_SERVICE, EAI_FAMILY, EAI_SOCKTYPE, EAI_SYSTEM}) {
        fake::fail("rdma_getaddrinfo", 1, code); // returned, with something else in errno
        rdma::addrinfo const none("somewhere", "7471", ec);
        CHECK_FALSE(none);
        CHECK(ec == gai_code(code));
        CHECK(ec.message() == ::gai_strerror(code));
    }
    fake::fail("rdma_getaddrinfo", 1, ENOMEM); // -1, and errno
    rdma::addrinfo const none("somewhere", "7471", ec);
    CHECK(ec == std::error_code(ENOMEM, std::system_category()));
    fake::set_devices_present(false);
    CHECK(thrown([] { static_cast<void>(rdma::addrinfo(rxe_host, "7471")); }, "rdma_getaddrinfo(10.77.1.1, 7471)") ==
          std::errc::no_such_device);
    fake::set_devices_present(true);
    rdma::addrinfo const found(rxe_host, "7471", ec);
    CHECK_FALSE(ec);
}

TEST_CASE("addrinfo: -1 is errno's, and where that is silent, the resolver's") {
    errno = ENOTTY;
    CHECK_FALSE(rdma::detail::check_getaddrinfo(0));
    CHECK(rdma::detail::check_getaddrinfo(-1) == std::error_code(ENOTTY, std::system_category()));
    errno = 0;
    CHECK(rdma::detail::check_getaddrinfo(-1) == gai_code(EAI_BADFLAGS));
    errno = EPERM;
    CHECK(rdma::detail::check_getaddrinfo(EAI_NONAME) == gai_code(EAI_NONAME));
    CHECK(rdma::detail::check_getaddrinfo(ENOMEM) == std::error_code(ENOMEM, std::system_category()));
}

TEST_CASE("addrinfo: the category") {
    CHECK(rdma::gai_category().name() == std::string("rdma addrinfo"));
    CHECK(&rdma::gai_category() == &rdma::gai_category());
    CHECK(gai_code(EAI_AGAIN) == std::errc::resource_unavailable_try_again);
    CHECK(gai_code(EAI_MEMORY) == std::errc::not_enough_memory);
    CHECK(gai_code(EAI_FAMILY) == std::errc::address_family_not_supported);
    CHECK(gai_code(EAI_BADFLAGS) == std::errc::invalid_argument);
    CHECK(gai_code(EAI_SERVICE) == std::errc::invalid_argument);
    CHECK(gai_code(EAI_SOCKTYPE) == std::errc::invalid_argument);
    CHECK(gai_code(EAI_NONAME) != std::errc::invalid_argument);
    CHECK(gai_code(EAI_NONAME).default_error_condition() == std::error_condition(EAI_NONAME, rdma::gai_category()));
    CHECK(gai_code(EAI_NONAME) != std::error_code(EAI_NONAME, std::system_category()));
}

TEST_CASE("addrinfo: the message says what was asked for") {
    world w;
    fake::fail("rdma_getaddrinfo", 1, EAI_NONAME);
    CHECK(thrown([] { static_cast<void>(rdma::addrinfo("nowhere", nullptr)); }, "rdma_getaddrinfo(nowhere, )") ==
          gai_code(EAI_NONAME));
    fake::fail("rdma_getaddrinfo", 1, EAI_SERVICE);
    CHECK(thrown([] { static_cast<void>(rdma::addrinfo(nullptr, "no service")); }, "(, no service)") ==
          gai_code(EAI_SERVICE));
}

TEST_CASE("addrinfo: moved, swapped, assigned over, and freed once") {
    world w;
    rdma::addrinfo one(rxe_host, "1"), two(siw_host, "2");
    rdma_addrinfo* const first = one.native_handle();
    rdma_addrinfo* const second = two.native_handle();
    swap(one, two);
    CHECK(one.native_handle() == second);
    CHECK(two.front().dst_addr() == rdma::address(rxe_host, 1));
    rdma::addrinfo three = std::move(one);
    CHECK_FALSE(one);
    CHECK(one.empty());
    CHECK(three.native_handle() == second);
    three = std::move(two);
    CHECK(fake::count("rdma_freeaddrinfo", second) == 1);
    CHECK(three.native_handle() == first);
    rdma::addrinfo& self = three;
    three = std::move(self);
    CHECK(three.native_handle() == first);
    three = {};
    CHECK(fake::count("rdma_freeaddrinfo", first) == 1);
    CHECK(fake::live().lists == 0);
}

TEST_CASE("addrinfo: given back to C, and taken over from it") {
    world w;
    rdma::addrinfo mine(rxe_host, "7471");
    rdma_addrinfo* raw = mine.release();
    CHECK_FALSE(mine);
    CHECK(mine.release() == nullptr);
    ::rdma_freeaddrinfo(raw);
    REQUIRE(::rdma_getaddrinfo(rxe_host, "7471", nullptr, &raw) == 0);
    mine = rdma::addrinfo(rdma::adopt, raw);
    CHECK(mine.native_handle() == raw);
    std::error_code ec;
    rdma::addrinfo again(rdma::adopt, mine.release(), ec);
    CHECK_FALSE(ec);
    CHECK(again.front().dst_addr() == rdma::address(rxe_host, 7471));
    CHECK(thrown([] { static_cast<void>(rdma::addrinfo(rdma::adopt, nullptr)); }, "rdma_getaddrinfo(adopt)") ==
          rdma::errc::null_handle);
    rdma::addrinfo const none(rdma::adopt, nullptr, ec);
    CHECK(ec == rdma::errc::null_handle);
}
