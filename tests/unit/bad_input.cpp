// SPDX-License-Identifier: MIT
// What a program can get wrong: refused before C is called, with a code and a message that names the argument.
#include "support.hpp"

#include <new>
#include <optional>
#include <stop_token>
#include <string_view>
#include <vector>

using namespace unit;

namespace {

/// Both forms give the code, the message names `text`, and C was not called.
template <class Throwing, class Twin>
void refused(rdma::errc code, std::string const& text, Throwing&& throwing, Twin&& twin) {
    CAPTURE(text);
    std::size_t const before = calls_made();
    CHECK(thrown(throwing, text) == code);
    std::error_code ec;
    twin(ec);
    CHECK(ec == code);
    CHECK(calls_made() == before);
    ec = std::make_error_code(std::errc::io_error); // a code that was set before changes nothing
    twin(ec);
    CHECK(ec == code);
}

std::vector<std::byte> bytes(std::size_t size) { return std::vector<std::byte>(size, std::byte{7}); }

struct with_channel : world {
    rdma::event_channel channel;
};

} // namespace

// ---- Addresses ------------------------------------------------------------------------------------------------------

TEST_CASE("a port that is none", "[bad_input]") {
    for (int const port : {-1, 65536, 70000, INT_MAX, INT_MIN}) {
        std::string const text = "port " + std::to_string(port);
        refused(
            rdma::errc::port_out_of_range, text, [&] { (void)rdma::address("10.0.0.1", port); },
            [&](std::error_code& ec) { CHECK(rdma::address("10.0.0.1", port, ec) == rdma::address()); });
        refused(
            rdma::errc::port_out_of_range, "0 to 65535", [&] { (void)rdma::address("::1", port); },
            [&](std::error_code& ec) { CHECK(rdma::address("::1", port, ec) == rdma::address()); });
        refused(
            rdma::errc::port_out_of_range, text, [&] { (void)rdma::address::any_v4(port); },
            [&](std::error_code& ec) { CHECK(rdma::address::any_v4(port, ec) == rdma::address()); });
        refused(
            rdma::errc::port_out_of_range, text, [&] { (void)rdma::address::any_v6(port); },
            [&](std::error_code& ec) { CHECK(rdma::address::any_v6(port, ec) == rdma::address()); });
    }
    CHECK(std::error_code(rdma::errc::port_out_of_range) == std::errc::invalid_argument);
}

TEST_CASE("a host that is no numeric address", "[bad_input]") {
    std::string const endless(300, '1');
    using namespace std::string_view_literals;
    for (std::string_view const host : {""sv,
                                        "localhost"sv,
                                        "10.0.0"sv,
                                        "10.0.0.256"sv,
                                        "10.0.0.1 "sv,
                                        " 10.0.0.1"sv,
                                        "10.0.0.1:7471"sv,
                                        "[::1]"sv,
                                        ":"sv,
                                        ":::"sv,
                                        "fe80::g"sv,
                                        "%eth0"sv,
                                        "fe80::1%"sv,
                                        "fe80::1%no-such-interface"sv,
                                        "fe80::1%0"sv,
                                        "fe80::1%12x"sv,
                                        "fe80::1%99999999999"sv,
                                        "10.0.0.1%lo"sv,
                                        "10.0.0.1\0.evil"sv,
                                        "::1\0x"sv,
                                        "fe80::1%lo\0x"sv,
                                        std::string_view(endless)}) {
        refused(
            rdma::errc::bad_address, std::string(host.substr(0, host.find('\0'))),
            [&] { (void)rdma::address(host, 1); },
            [&](std::error_code& ec) {
                rdma::address const none(host, 1, ec);
                CHECK(none == rdma::address());
                CHECK(none.family() == AF_UNSPEC);
            });
    }
}

TEST_CASE_METHOD(with_channel, "an address that is empty, or of the wrong family", "[bad_input]") {
    rdma::cm_id id = make_id(channel);
    rdma::address const none, v4(rxe_host, 0), peer_v4(rxe_host, 7471), v6("fd77:1::1", 0), peer_v6("fd77:1::1", 7471);
    refused(
        rdma::errc::bad_address, "rdma_bind_addr(-)", [&] { id.bind(none); },
        [&](std::error_code& ec) { id.bind(none, ec); });
    refused(
        rdma::errc::bad_address, "rdma_resolve_addr(-)", [&] { id.resolve_addr(none); },
        [&](std::error_code& ec) { id.resolve_addr(none, ec); });
    refused(
        rdma::errc::bad_address, rxe_host, [&] { id.resolve_addr(v4, none); },
        [&](std::error_code& ec) { id.resolve_addr(v4, none, 1s, ec); });
    refused(
        rdma::errc::family_mismatch, "10.77.1.1:0, [fd77:1::1]:7471", [&] { id.resolve_addr(v4, peer_v6); },
        [&](std::error_code& ec) { id.resolve_addr(v4, peer_v6, 1s, ec); });
    refused(
        rdma::errc::family_mismatch, "[fd77:1::1]:0, 10.77.1.1:7471", [&] { id.resolve_addr(v6, peer_v4); },
        [&](std::error_code& ec) { id.resolve_addr(v6, peer_v4, 1s, ec); });
    id.bind(v6); // and an id that is bound has a family, too
    refused(
        rdma::errc::family_mismatch, "10.77.1.1:7471", [&] { id.resolve_addr(peer_v4); },
        [&](std::error_code& ec) { id.resolve_addr(peer_v4, ec); });
    id.resolve_addr(peer_v6);
    expect(channel, type::addr_resolved);
}

// ---- Parameters -----------------------------------------------------------------------------------------------------

namespace {

/// One id to connect, and one request that is undecided, on one device.
struct both_ends : world {
    rdma::event_channel channel, client_channel;
    rdma::cm_id listener, client, server;

    void on(char const* host) {
        listener = make_listener(channel, host);
        client = make_client(client_channel, host);
        client.create_qp({});
        server = make_request(channel, listener).take_id();
        server.create_qp({});
        fake::clear_calls();
    }
};

} // namespace

TEST_CASE_METHOD(both_ends, "private data that no transport carries", "[bad_input]") {
    char const* const host = GENERATE(rxe_host, siw_host);
    CAPTURE(host);
    on(host);
    for (std::size_t const size : {256u, 257u, 511u, 512u, 70000u}) {
        auto const data = bytes(size);
        rdma::conn_param const param{.private_data = data};
        std::string const text = std::to_string(size) + " bytes";
        auto const wanted = rdma::errc::private_data_too_long;
        refused(
            wanted, text, [&] { client.connect(param); }, [&](std::error_code& ec) { client.connect(param, ec); });
        refused(
            wanted, text, [&] { server.accept(param); }, [&](std::error_code& ec) { server.accept(param, ec); });
        refused(
            wanted, text, [&] { server.reject(data); }, [&](std::error_code& ec) { server.reject(data, ec); });
        CHECK_THAT(std::error_code(wanted).message(), rdmacpp_test::contains("255"));
    }
    CHECK(std::error_code(rdma::errc::private_data_too_long) == std::errc::message_size);
    client.connect(); // nothing was decided by what was refused
    server.accept();
}

TEST_CASE_METHOD(both_ends, "private data that iWARP would garble", "[bad_input]") {
    on(siw_host);
    for (std::size_t const size : {252u, 253u, 254u, 255u}) {
        auto const data = bytes(size);
        rdma::conn_param const param{.private_data = data};
        std::string const text = std::to_string(size) + " bytes";
        auto const wanted = rdma::errc::private_data_iwarp;
        refused(
            wanted, text, [&] { client.connect(param); }, [&](std::error_code& ec) { client.connect(param, ec); });
        refused(
            wanted, text, [&] { server.accept(param); }, [&](std::error_code& ec) { server.accept(param, ec); });
        refused(
            wanted, text, [&] { server.reject(data); }, [&](std::error_code& ec) { server.reject(data, ec); });
    }
    auto const data = bytes(251);
    client.connect({.private_data = data});
    rdma::cm_event request = next(channel, type::connect_request);
    CHECK(request.private_data().size() == 251);
    rdma::cm_id taken = request.take_id();
    taken.create_qp({});
    taken.accept({.private_data = data});
    CHECK(next(client_channel, type::established).copy_private_data().size() == 251);
}

TEST_CASE_METHOD(both_ends, "private data beyond what RoCE carries is C's EINVAL, explained", "[bad_input]") {
    on(rxe_host);
    auto const connect = bytes(rdma::private_data_limit::connect + 1),
               accept = bytes(rdma::private_data_limit::accept + 1),
               reject = bytes(rdma::private_data_limit::reject + 1);
    CHECK(thrown([&] { client.connect({.private_data = connect}); }, "56 bytes for connect") ==
          std::errc::invalid_argument);
    CHECK(thrown([&] { server.reject(reject); }, "148 for reject") == std::errc::invalid_argument);
    server.reject(std::span(reject).first(rdma::private_data_limit::reject)); // it was still undecided
    server = make_request(channel, listener).take_id();
    server.create_qp({});
    CHECK(thrown([&] { server.accept({.private_data = accept}); }, "196 for accept") == std::errc::invalid_argument);
    client.connect({.private_data = std::span(connect).first(rdma::private_data_limit::connect)});
    server = next(channel, type::connect_request).take_id();
    server.create_qp({});
    server.accept({.private_data = std::span(accept).first(rdma::private_data_limit::accept)});
    expect(client_channel, type::established);
}

TEST_CASE_METHOD(both_ends, "A26 a retry count that does not fit into three bits", "[field][bad_input]") {
    on(rxe_host);
    for (int const count : {8, 10, 255}) {
        rdma::conn_param retry, rnr;
        retry.retry_count = rnr.rnr_retry_count = static_cast<std::uint8_t>(count);
        auto const wanted = rdma::errc::retry_count_out_of_range;
        std::string const number = std::to_string(count);
        refused(
            wanted, "retry_count " + number, [&] { client.connect(retry); },
            [&](std::error_code& ec) { client.connect(retry, ec); });
        refused(
            wanted, "rnr_retry_count " + number, [&] { client.connect(rnr); },
            [&](std::error_code& ec) { client.connect(rnr, ec); });
        refused(
            wanted, "rnr_retry_count " + number, [&] { server.accept(rnr); },
            [&](std::error_code& ec) { server.accept(rnr, ec); });
        refused(
            wanted, "0 to 7", [&] { server.accept(retry); }, [&](std::error_code& ec) { server.accept(retry, ec); });
    }
    server.accept();
    client.connect();
}

// ---- States ---------------------------------------------------------------------------------------------------------

TEST_CASE_METHOD(both_ends, "accept and reject of what is no undecided request", "[bad_input]") {
    char const* const host = GENERATE(rxe_host, siw_host);
    CAPTURE(host);
    on(host);
    auto const wanted = rdma::errc::not_a_request;
    auto const neither = [&](rdma::cm_id& id) {
        refused(
            wanted, "CONNECT_REQUEST", [&] { id.accept(); }, [&](std::error_code& ec) { id.accept(ec); });
        refused(
            wanted, "CONNECT_REQUEST", [&] { id.reject(); }, [&](std::error_code& ec) { id.reject(ec); });
        CHECK(std::error_code(wanted) == std::errc::operation_not_permitted);
    };
    neither(client);
    client.connect();
    neither(client); // rejecting this one would block its destroy for 102 seconds
    rdma::cm_id one = next(channel, type::connect_request).take_id();
    one.create_qp({});
    one.accept();
    neither(one);
    expect(client_channel, type::established);
    neither(client);
    expect(channel, type::established);
    neither(one);
    server.reject();
    neither(server);
    rdma::cm_id idle = make_bound(channel);
    neither(idle);
    rdma::cm_id unbound = make_id(channel);
    refused(
        wanted, "", [&] { unbound.reject(); }, [&](std::error_code& ec) { unbound.reject(ec); });
    refused(
        rdma::errc::not_bound, "", [&] { unbound.accept(); }, [&](std::error_code& ec) { unbound.accept(ec); });
    if (host == std::string(rxe_host))
        neither(listener);
}

TEST_CASE_METHOD(with_channel, "take_id of what brings no id", "[bad_input]") {
    auto const wanted = rdma::errc::no_id_to_take;
    rdma::cm_id listener = make_listener(channel), id = make_bound(channel);
    rdma::cm_event request = make_request(channel, listener), empty;
    rdma::cm_id child = request.take_id();
    fake::push(id.native_handle(), {RDMA_CM_EVENT_ESTABLISHED});
    rdma::cm_event other = next(channel, type::established);
    for (rdma::cm_event* const event : {&request, &other, &empty})
        refused(
            wanted, "no CONNECT_REQUEST", [&] { (void)event->take_id(); },
            [&](std::error_code& ec) { CHECK_FALSE(event->take_id(ec)); });
}

TEST_CASE_METHOD(with_channel, "a second QP", "[bad_input]") {
    rdma::cm_id id = make_bound(channel);
    id.create_qp({});
    refused(
        rdma::errc::qp_exists, "rdma_create_qp", [&] { id.create_qp({}); },
        [&](std::error_code& ec) { id.create_qp({}, ec); });
    rdma::pd const pd(id.verbs());
    refused(
        rdma::errc::qp_exists, "already", [&] { id.create_qp(pd, {}); },
        [&](std::error_code& ec) { id.create_qp(pd, {}, ec); });
    CHECK(std::error_code(rdma::errc::qp_exists) == std::errc::file_exists);
}

TEST_CASE_METHOD(with_channel, "what needs a device, before there is one", "[bad_input]") {
    rdma::cm_id id = make_id(channel);
    std::array<std::byte, 8> memory{};
    auto const wanted = rdma::errc::not_bound;
    refused(
        wanted, "rdma_resolve_route", [&] { id.resolve_route(); }, [&](std::error_code& ec) { id.resolve_route(ec); });
    refused(
        wanted, "rdma_create_qp", [&] { id.create_qp({}); }, [&](std::error_code& ec) { id.create_qp({}, ec); });
    refused(
        wanted, "rdma_connect", [&] { id.connect(); }, [&](std::error_code& ec) { id.connect(ec); });
    refused(
        wanted, "rdma_accept", [&] { id.accept(); }, [&](std::error_code& ec) { id.accept(ec); });
    refused(
        wanted, "rdma_disconnect", [&] { id.disconnect(); }, [&](std::error_code& ec) { id.disconnect(ec); });
    refused(
        wanted, "ibv_alloc_pd", [&] { (void)rdma::pd(id.verbs()); },
        [&](std::error_code& ec) { CHECK_FALSE(rdma::pd(id.verbs(), ec)); });
    refused(
        wanted, "ibv_create_cq", [&] { (void)rdma::cq(id.verbs(), 8); },
        [&](std::error_code& ec) { CHECK_FALSE(rdma::cq(id.verbs(), 8, ec)); });
    refused(
        wanted, "ibv_create_comp_channel", [&] { (void)rdma::comp_channel(id.verbs()); },
        [&](std::error_code& ec) { CHECK_FALSE(rdma::comp_channel(id.verbs(), ec)); });
    refused(
        wanted, "ibv_reg_mr", [&] { (void)rdma::mr(id.pd(), memory, rdma::access::none); },
        [&](std::error_code& ec) { CHECK_FALSE(rdma::mr(id.pd(), memory, rdma::access::none, ec)); });
    CHECK_THAT(std::error_code(wanted).message(), rdmacpp_test::contains("ADDR_RESOLVED"));
}

TEST_CASE_METHOD(with_channel, "destroy of what is still in use never waits", "[bad_input]") {
    rdma::cm_id id = make_bound(channel), listener = make_listener(channel);
    std::error_code ec;
    std::array<rdma::cm_event, 2> const held{make_request(channel, listener), make_request(channel, listener)};
    fake::clear_calls();
    CHECK(thrown([&] { listener.destroy(); }, "2 events held") == std::errc::resource_deadlock_would_occur);
    listener.destroy(ec);
    CHECK(ec == std::errc::resource_deadlock_would_occur);
    CHECK(listener);
    CHECK(calls_made() == 0);
    rdma::pd pd(id.verbs());
    std::array<std::byte, 8> memory{};
    rdma::mr region(pd, memory, rdma::access::none);
    fake::clear_calls();
    CHECK(thrown([&] { id.destroy(); }, "rdma_destroy_id") == std::errc::device_or_resource_busy);
    CHECK(thrown([&] { pd.destroy(); }, "ibv_dealloc_pd") == std::errc::device_or_resource_busy);
    CHECK(calls_made() == 0);
    CHECK(id);
    CHECK(pd);
    region.destroy();
    pd.destroy();
    id.destroy();
    CHECK_FALSE(id);
    CHECK_FALSE(pd);
}

// ---- Handles that are empty -----------------------------------------------------------------------------------------

TEST_CASE_METHOD(with_channel, "a null pointer cannot be adopted", "[bad_input]") {
    auto const wanted = rdma::errc::null_handle;
    refused(
        wanted, "adopt", [] { (void)rdma::event_channel(rdma::adopt, nullptr); },
        [](std::error_code& ec) { CHECK_FALSE(rdma::event_channel(rdma::adopt, nullptr, ec)); });
    refused(
        wanted, "adopt", [] { (void)rdma::cm_event(rdma::adopt, nullptr); },
        [](std::error_code& ec) { CHECK_FALSE(rdma::cm_event(rdma::adopt, nullptr, ec)); });
    refused(
        wanted, "adopt", [&] { (void)rdma::cm_id(rdma::adopt, channel, nullptr); },
        [&](std::error_code& ec) { CHECK_FALSE(rdma::cm_id(rdma::adopt, channel, nullptr, ec)); });
    refused(
        wanted, "adopt", [] { (void)rdma::pd(rdma::adopt, nullptr); },
        [](std::error_code& ec) { CHECK_FALSE(rdma::pd(rdma::adopt, nullptr, ec)); });
    refused(
        wanted, "adopt", [] { (void)rdma::mr(rdma::adopt, nullptr); },
        [](std::error_code& ec) { CHECK_FALSE(rdma::mr(rdma::adopt, nullptr, ec)); });
    refused(
        wanted, "adopt", [] { (void)rdma::cq(rdma::adopt, nullptr); },
        [](std::error_code& ec) { CHECK_FALSE(rdma::cq(rdma::adopt, nullptr, ec)); });
    refused(
        wanted, "adopt", [] { (void)rdma::comp_channel(rdma::adopt, nullptr); },
        [](std::error_code& ec) { CHECK_FALSE(rdma::comp_channel(rdma::adopt, nullptr, ec)); });
    rdma::cm_id const id = make_id(channel);
    refused(
        rdma::errc::empty_handle, "adopt",
        [&] { (void)rdma::cm_id(rdma::adopt, rdma::event_channel_ref(), id.native_handle()); },
        [&](std::error_code& ec) {
            CHECK_FALSE(rdma::cm_id(rdma::adopt, rdma::event_channel_ref(), id.native_handle(), ec));
        });
}

namespace {

/// Every member of an id that is empty, for whatever reason.
void check_empty(rdma::cm_id& id) {
    rdma::address const here(rxe_host, 0), peer(rxe_host, 7471);
    std::size_t const before = calls_made();
    auto const empty = [](std::string const& function, auto&& throwing, auto&& twin) {
        refused(rdma::errc::empty_handle, function, throwing, twin);
    };
    empty(
        "rdma_bind_addr", [&] { id.bind(here); }, [&](std::error_code& ec) { id.bind(here, ec); });
    empty(
        "rdma_listen", [&] { id.listen(); }, [&](std::error_code& ec) { id.listen(ec); });
    empty(
        "rdma_resolve_addr", [&] { id.resolve_addr(peer); }, [&](std::error_code& ec) { id.resolve_addr(peer, ec); });
    empty(
        "rdma_resolve_addr", [&] { id.resolve_addr(here, peer); },
        [&](std::error_code& ec) { id.resolve_addr(here, peer, 1s, ec); });
    empty(
        "rdma_resolve_route", [&] { id.resolve_route(); }, [&](std::error_code& ec) { id.resolve_route(ec); });
    empty(
        "rdma_create_qp", [&] { id.create_qp({}); }, [&](std::error_code& ec) { id.create_qp({}, ec); });
    empty(
        "rdma_connect", [&] { id.connect(); }, [&](std::error_code& ec) { id.connect(ec); });
    empty(
        "rdma_accept", [&] { id.accept(); }, [&](std::error_code& ec) { id.accept(ec); });
    empty(
        "rdma_reject", [&] { id.reject(); }, [&](std::error_code& ec) { id.reject(ec); });
    empty(
        "rdma_disconnect", [&] { id.disconnect(); }, [&](std::error_code& ec) { id.disconnect(ec); });
    empty(
        "rdma_destroy_id", [&] { id.destroy(); }, [&](std::error_code& ec) { id.destroy(ec); });
    empty(
        "rdma_set_option", [&] { id.set_tos(1); }, [&](std::error_code& ec) { id.set_tos(1, ec); });
    empty(
        "rdma_set_option", [&] { id.set_reuse_addr(true); }, [&](std::error_code& ec) { id.set_reuse_addr(true, ec); });
    empty(
        "rdma_set_option", [&] { id.set_af_only(true); }, [&](std::error_code& ec) { id.set_af_only(true, ec); });
    empty(
        "rdma_set_option", [&] { id.set_ack_timeout(1ms); }, [&](std::error_code& ec) { id.set_ack_timeout(1ms, ec); });
    empty(
        "rdma_set_option", [&] { id.set_option(0, 0, {}); }, [&](std::error_code& ec) { id.set_option(0, 0, {}, ec); });
    id.destroy_qp();
    id.set_user_context(&id);
    CHECK_FALSE(id);
    CHECK(id.native_handle() == nullptr);
    CHECK(id.user_context() == nullptr);
    CHECK(id.local_addr() == rdma::address());
    CHECK(id.peer_addr() == rdma::address());
    CHECK(id.port_num() == 0);
    CHECK(id.port_space() == rdma::port_space::tcp);
    CHECK_FALSE(id.verbs());
    CHECK_FALSE(id.pd());
    CHECK_FALSE(id.qp());
    CHECK_FALSE(id.send_cq());
    CHECK_FALSE(id.recv_cq());
    CHECK_FALSE(id.send_cq_channel());
    CHECK_FALSE(id.recv_cq_channel());
    CHECK(id.release() == nullptr);
    CHECK(to_string(rdma::cm_id_ref(id)) == "none");
    CHECK(calls_made() == before);
}

} // namespace

TEST_CASE_METHOD(with_channel, "an id that is empty", "[bad_input]") {
    rdma::cm_id id;
    check_empty(id);
    id = make_bound(channel);
    id.create_qp({});
    rdma::cm_id moved = std::move(id);
    check_empty(id); // NOLINT(bugprone-use-after-move)
    moved.destroy();
    check_empty(moved);
    rdma::cm_id released = make_id(channel);
    rdma::cm_id again(rdma::adopt, channel, released.release());
    check_empty(released);
    id = std::move(again); // and all of them can be used again
    id.bind(rdma::address(rxe_host, 0));
}

TEST_CASE_METHOD(with_channel, "verbs handles that are empty", "[bad_input]") {
    rdma::cm_id id = make_bound(channel);
    std::array<std::byte, 8> memory{};
    rdma::pd pd(id.verbs());
    rdma::mr mr(pd, memory, rdma::access::none);
    rdma::comp_channel bell(id.verbs());
    rdma::cq cq(id.verbs(), 4, bell);
    rdma::pd const pd2 = std::move(pd);
    rdma::mr const mr2 = std::move(mr);
    rdma::comp_channel const bell2 = std::move(bell);
    rdma::cq const cq2 = std::move(cq);
    std::array<rdma::work_completion, 2> into;
    std::error_code ec;
    std::stop_token const stop;
    auto const wanted = rdma::errc::empty_handle;
    // NOLINTBEGIN(bugprone-use-after-move): that is the point
    std::size_t const before = calls_made();
    CHECK_FALSE(pd);
    CHECK_FALSE(mr);
    CHECK_FALSE(bell);
    CHECK_FALSE(cq);
    CHECK((pd.native_handle() == nullptr && mr.native_handle() == nullptr));
    CHECK((bell.native_handle() == nullptr && cq.native_handle() == nullptr));
    CHECK((pd.release() == nullptr && mr.release() == nullptr));
    CHECK((bell.release() == nullptr && cq.release() == nullptr));
    CHECK(mr.length() == 0);
    CHECK(cq.cqe() == 0);
    CHECK(bell.fd() == -1);
    auto const does_nothing = [&](auto& handle) {
        CHECK_NOTHROW(handle.destroy());
        ec = std::make_error_code(std::errc::io_error);
        handle.destroy(ec);
        CHECK_FALSE(ec);
    };
    does_nothing(pd);
    does_nothing(mr);
    does_nothing(bell);
    does_nothing(cq);
    refused(
        rdma::errc::not_bound, "ibv_reg_mr", [&] { (void)rdma::mr(pd, memory, rdma::access::none); },
        [&](std::error_code& e) { CHECK_FALSE(rdma::mr(pd, memory, rdma::access::none, e)); });
    refused(
        wanted, "empty", [&] { (void)cq.wait(into); }, [&](std::error_code& e) { CHECK(cq.wait(into, e).empty()); });
    refused(
        wanted, "empty", [&] { (void)cq.wait_for(into, 1h); },
        [&](std::error_code& e) { CHECK(cq.wait_for(into, 1h, e).empty()); });
    refused(
        wanted, "empty", [&] { (void)cq.wait(into, stop); },
        [&](std::error_code& e) { CHECK(cq.wait(into, stop, {}, e).empty()); });
    refused(
        wanted, "empty", [&] { (void)bell.get(); }, [&](std::error_code& e) { CHECK_FALSE(bell.get(e)); });
    refused(
        wanted, "empty", [&] { (void)bell.try_get(); }, [&](std::error_code& e) { CHECK_FALSE(bell.try_get(e)); });
    refused(
        wanted, "empty", [&] { (void)bell.get_for(1h); },
        [&](std::error_code& e) { CHECK_FALSE(bell.get_for(1h, e)); });
    refused(
        wanted, "empty", [&] { (void)bell.get(stop); }, [&](std::error_code& e) { CHECK_FALSE(bell.get(stop, e)); });
    refused(
        wanted, "empty", [&] { (void)*bell.begin(); },
        [&](std::error_code& e) { CHECK(bell.events(e).begin() == std::default_sentinel); });
    refused(
        wanted, "empty", [&] { (void)*bell.pending().begin(); },
        [&](std::error_code& e) { CHECK(bell.pending(e).begin() == std::default_sentinel); });
    // NOLINTEND(bugprone-use-after-move)

    refused(
        wanted, "ibv_query_qp", [] { (void)rdma::qp_ref().query(IBV_QP_STATE); },
        [](std::error_code& e) { (void)rdma::qp_ref().query(IBV_QP_STATE, e); });
    refused(
        wanted, "ibv_modify_qp", [] { rdma::qp_ref().modify({}, IBV_QP_STATE); },
        [](std::error_code& e) { rdma::qp_ref().modify({}, IBV_QP_STATE, e); });
    CHECK(rdma::qp_ref().qp_num() == 0);
    refused(
        wanted, "ibv_query_device", [] { (void)rdma::context_ref().query_device(); },
        [](std::error_code& e) { (void)rdma::context_ref().query_device(e); });
    refused(
        wanted, "ibv_get_async_event", [] { (void)async_event_of(rdma::context_ref()); },
        [](std::error_code& e) { CHECK_FALSE(async_event_of(rdma::context_ref(), e)); });
    rdma::comp_channel_ref none;
    refused(
        wanted, "empty", [&] { (void)none.get(); }, [&](std::error_code& e) { CHECK_FALSE(none.get(e)); });
    CHECK(none.fd() == -1);
    refused(
        wanted, "empty", [&] { (void)rdma::cq_ref().wait(into); },
        [&](std::error_code& e) { CHECK(rdma::cq_ref().wait(into, e).empty()); });
    rdma::cq_event no_cq_event;
    rdma::async_event no_async_event;
    rdma::cm_event no_event;
    no_cq_event.ack();
    no_async_event.ack();
    no_event.ack();
    CHECK(no_cq_event.release() == nullptr);
    CHECK(no_cq_event.cq_context() == nullptr);
    CHECK(no_event.release() == nullptr);
    CHECK_FALSE(no_async_event.qp());
    CHECK(to_string(no_event) == "no event");
    CHECK(to_string(no_async_event) == "no event");
    CHECK(calls_made() == before);
    CHECK((pd2 && mr2 && bell2 && cq2));
}

TEST_CASE_METHOD(with_channel, "a wait for completions that could not end", "[bad_input]") {
    rdma::cm_id id = make_bound(channel);
    rdma::comp_channel const bell(id.verbs());
    rdma::cq const without(id.verbs(), 4), with(id.verbs(), 4, bell);
    std::array<rdma::work_completion, 2> into;
    fake::clear_calls();
    auto const invalid = [](auto&& throwing, auto&& twin) {
        CHECK(thrown(throwing) == std::errc::invalid_argument);
        std::error_code ec;
        twin(ec);
        CHECK(ec == std::errc::invalid_argument);
    };
    invalid([&] { (void)without.wait(into); }, [&](std::error_code& ec) { CHECK(without.wait(into, ec).empty()); });
    invalid([&] { (void)without.wait_for(into, 1h); },
            [&](std::error_code& ec) { CHECK(without.wait_for(into, 1h, ec).empty()); });
    invalid([&] { (void)with.wait({}); }, [&](std::error_code& ec) { CHECK(with.wait({}, ec).empty()); });
    CHECK(calls_made() == 0);
}
