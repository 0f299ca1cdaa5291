// SPDX-License-Identifier: MIT
// Private data: the owning copy, and what each operation carries. (Views of events are A4 to A6 in field_bugs.cpp.)
#include "support.hpp"

#include <algorithm>
#include <ranges>
#include <span>
#include <vector>

using namespace unit;

static_assert(rdma::private_data_limit::connect == 56 && rdma::private_data_limit::accept == 196 &&
              rdma::private_data_limit::reject == 148);
static_assert(rdma::private_data_limit::ud_connect == 180 && rdma::private_data_limit::ud_accept == 136 &&
              rdma::private_data_limit::ud_reject == 136);
static_assert(rdma::private_data_limit::iwarp == 251 && rdma::private_data_limit::any == 255);
static_assert(std::is_trivially_copyable_v<rdma::private_data> && sizeof(rdma::private_data) == 256);
static_assert(!std::is_convertible_v<std::span<std::byte const>, rdma::private_data>);
static_assert(std::ranges::contiguous_range<rdma::private_data> && std::ranges::sized_range<rdma::private_data>);

namespace {

std::vector<std::byte> counting(std::size_t size) {
    std::vector<std::byte> bytes(size);
    for (std::size_t i = 0; i != size; ++i)
        bytes[i] = static_cast<std::byte>(i + 1);
    return bytes;
}

} // namespace

TEST_CASE("a copy of private data has the bytes, and no more", "[private_data]") {
    CHECK(rdma::private_data().empty());
    CHECK(rdma::private_data(std::span<std::byte const>()).size() == 0);
    for (std::size_t const size : {1u, 56u, 148u, 254u, 255u}) {
        auto const bytes = counting(size);
        rdma::private_data const data(bytes);
        CHECK(data.size() == size);
        CHECK_FALSE(data.empty());
        CHECK(std::equal(data.begin(), data.end(), bytes.begin(), bytes.end()));
        CHECK(data.data() == data.begin());
        rdma::private_data const copy = data;
        CHECK(std::equal(copy.begin(), copy.end(), bytes.begin(), bytes.end()));
        CHECK(copy.data() != data.data());
    }
    rdma::private_data const most(counting(300)); // C has one byte for a length: there is never more
    CHECK(most.size() == 255);
    CHECK(most.data()[254] == std::byte{255});
}

TEST_CASE("zeros at the end are kept", "[private_data]") {
    std::array<std::byte, 4> const bytes{std::byte{1}, {}, {}, {}};
    CHECK(rdma::private_data(bytes).size() == 4);
    world w;
    rdma::event_channel channel;
    rdma::cm_id listener = make_listener(channel, siw_host);
    fake::push_request(listener.native_handle(), bytes.data(), 4);
    CHECK(next(channel, type::connect_request).copy_private_data().size() == 4);
}

TEST_CASE("every operation carries what its limit says, whole", "[private_data]") {
    struct device_case {
        char const* host;
        std::size_t connect, accept, reject;
    };
    namespace limit = rdma::private_data_limit;
    auto const on = GENERATE(device_case{rxe_host, limit::connect, limit::accept, limit::reject},
                             device_case{siw_host, limit::iwarp, limit::iwarp, limit::iwarp});
    CAPTURE(on.host);
    world w;
    rdma::event_channel channel, client_channel;
    rdma::cm_id listener = make_listener(channel, on.host);
    auto const is = [](rdma::private_data const& got, std::vector<std::byte> const& sent) {
        CHECK(got.size() == sent.size());
        CHECK(std::equal(got.begin(), got.end(), sent.begin(), sent.end()));
    };
    auto const asking = counting(on.connect), accepting = counting(on.accept), rejecting = counting(on.reject);
    for (bool const accepts : {true, false}) {
        rdma::cm_id client = make_client(client_channel, on.host);
        client.create_qp({});
        client.connect({.private_data = asking});
        rdma::cm_event request = next(channel, type::connect_request);
        is(request.copy_private_data(), asking);
        rdma::cm_id server = request.take_id();
        if (accepts) {
            server.create_qp({});
            server.accept({.private_data = accepting});
            is(next(client_channel, type::established).copy_private_data(), accepting);
        } else {
            server.reject(rejecting);
            is(next(client_channel, type::rejected).copy_private_data(), rejecting);
        }
    }
}

TEST_CASE("datagrams have limits of their own", "[private_data]") {
    namespace limit = rdma::private_data_limit;
    world w;
    rdma::event_channel channel, client_channel;
    rdma::cm_id listener = make_id(channel, rdma::port_space::udp);
    listener.bind(rdma::address(rxe_host, 7471));
    listener.listen();
    auto const asks = counting(limit::ud_connect + 1), answers = counting(limit::ud_accept + 1);
    for (bool const accepts : {true, false}) {
        rdma::cm_id client = make_id(client_channel, rdma::port_space::udp);
        client.resolve_addr(rdma::address(rxe_host, 7471));
        expect(client_channel, type::addr_resolved);
        client.resolve_route();
        expect(client_channel, type::route_resolved);
        client.create_qp({});
        CHECK(thrown([&] { client.connect({.private_data = asks}); }, "180, 136, 136") == std::errc::invalid_argument);
        client.connect({.private_data = std::span(asks).first(limit::ud_connect)});
        rdma::cm_event request = next(channel, type::connect_request);
        CHECK(request.copy_private_data().size() == limit::ud_connect);
        rdma::cm_id server = request.take_id();
        server.create_qp({});
        auto const answer = std::span(answers).first(limit::ud_accept);
        if (accepts) {
            server.accept({.private_data = answer});
            rdma::cm_event established = next(client_channel, type::established);
            CHECK(established.copy_private_data().size() == limit::ud_accept);
            CHECK_FALSE(established.param());
            REQUIRE(established.ud_param());
            CHECK(established.ud_param()->qp_num == server.qp().qp_num());
        } else {
            CHECK(thrown([&] { server.reject(answers); }) == std::errc::invalid_argument);
            server.reject(answer);
            rdma::cm_event unreachable = next(client_channel, type::unreachable);
            CHECK(unreachable.error() == rdma::condition::refused);
            CHECK(unreachable.copy_private_data().size() == limit::ud_reject);
        }
    }
}
