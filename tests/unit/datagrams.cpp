// SPDX-License-Identifier: MIT
// Datagrams: ids of the port space UDP, address handles from events and completions, and messages both ways.
#include "datagrams.hpp"

#include <algorithm>

using namespace unit;

namespace {

constexpr rdma::port_space udp = rdma::port_space::udp;

/// Two ids that know of each other: the client has an answer to its connect, which the server gave by accepting.
struct acquainted : world {
    rdma::event_channel channel;
    rdma::cm_id listener = make_id(channel, udp), client = make_id(channel, udp), server;
    rdma::cm_event answer;

    acquainted() {
        listener.bind(rdma::address(rxe_host, 7174));
        listener.listen();
        client.resolve_addr(rdma::address(rxe_host, 7174));
        expect(channel, type::addr_resolved);
        client.resolve_route();
        expect(channel, type::route_resolved);
        client.create_qp({});
        client.connect();
        server = next(channel, type::connect_request).take_id();
        server.create_qp({});
        server.accept();
        answer = next(channel, type::established);
    }

    rdma::ah server_handle() { return rdma::ah(client.pd(), answer); }
};

ibv_ah_attr some_attr() {
    ibv_ah_attr attr{};
    attr.is_global = 1;
    attr.port_num = 1;
    return attr;
}

bool is_invalid(std::error_code ec) { return ec == std::errc::invalid_argument; }

} // namespace

TEST_CASE_METHOD(acquainted, "datagrams: a message to the peer of an event, and an answer to whoever sent it",
                 "[datagrams]") {
    CHECK(answer.id() == client);
    REQUIRE(answer.ud_param());
    CHECK(answer.param() == nullptr);
    CHECK(answer.ud_param()->qp_num == server.qp().qp_num());
    CHECK(answer.ud_param()->qkey == RDMA_UDP_QKEY);
    mailbox here(client), there(server);
    rdma::ah const to = server_handle();
    here.send("ping", to, answer.ud_param()->qp_num, answer.ud_param()->qkey);
    CHECK(there.received() == "ping");
    CHECK(there.last.success().byte_len() == rdma::grh_size + 5);
    CHECK(there.last.success().src_qp() == client.qp().qp_num());

    rdma::ah const back(server.pd(), there.last, there.in.bytes, server.port_num());
    there.send("pong", back, there.last.success().src_qp(), RDMA_UDP_QKEY);
    CHECK(here.received() == "pong");
}

TEST_CASE_METHOD(acquainted,
                 "datagrams: the key is RDMA_UDP_QKEY unless another is named, and a wrong one is not heard",
                 "[datagrams]") {
    rdma::ah const to = server_handle();
    mailbox here(client), there(server);
    rdma::send_wr request = rdma::send_wr::send(here.out_region.sge(0, 1)).to(to, server.qp().qp_num());
    CHECK(request.native_handle().wr.ud.remote_qkey == RDMA_UDP_QKEY);
    CHECK(request.native_handle().wr.ud.ah == to.native_handle());
    here.send("wrong", to, server.qp().qp_num(), 7);
    CHECK_FALSE(there.received());
}

TEST_CASE_METHOD(acquainted, "datagrams: a handle may be dropped before and after everything that it needs",
                 "[datagrams]") {
    std::array<int, 4> order{0, 1, 2, 3};
    do {
        rdma::pd pd(client.verbs());
        rdma::cm_id id = make_id(channel, udp);
        id.bind(rdma::address(rxe_host, 0));
        rdma::ah of_id(id.pd(), some_attr()), of_pd(pd, some_attr());
        fake::clear_calls();
        for (int const each : order)
            switch (each) {
            case 0: of_id = {}; break;
            case 1: of_pd = {}; break;
            case 2: pd = {}; break;
            case 3: id = {}; break;
            }
        CAPTURE(order);
        CHECK(fake::count("ibv_destroy_ah") == 2);
        CHECK(fake::count("ibv_dealloc_pd") == 1);
        CHECK(fake::count("rdma_destroy_id") == 1);
    } while (std::next_permutation(order.begin(), order.end()));
    CHECK(fake::live().ahs == 0);
}

TEST_CASE_METHOD(acquainted, "datagrams: a handle needs a PD, an event that names a peer, and a whole header",
                 "[datagrams]") {
    std::error_code ec;
    rdma::work_completion ok{ibv_wc{}}, failed;
    ibv_wc broken{};
    broken.status = IBV_WC_WR_FLUSH_ERR;
    failed = rdma::work_completion(broken);
    std::array<std::byte, rdma::grh_size> header{};
    std::size_t const calls = calls_made();

    CHECK(thrown([] { (void)rdma::ah(rdma::pd_ref(), some_attr()); }, "ibv_create_ah") == rdma::errc::not_bound);
    CHECK_FALSE(rdma::ah(rdma::pd_ref(), some_attr(), ec));
    CHECK(ec == rdma::errc::not_bound);
    CHECK(thrown([&] { (void)rdma::ah(rdma::pd_ref(), answer); }) == rdma::errc::not_bound);
    CHECK_FALSE(rdma::ah(rdma::pd_ref(), ok, header, 1, ec));
    CHECK(ec == rdma::errc::not_bound);

    CHECK(is_invalid(thrown([&] { (void)rdma::ah(client.pd(), failed, header, 1); }, "ibv_create_ah_from_wc")));
    CHECK(is_invalid(thrown([&] { (void)rdma::ah(client.pd(), ok, std::span(header).first(39), 1); })));
    CHECK_FALSE(rdma::ah(client.pd(), ok, std::span(header).first(39), 1, ec));
    CHECK(is_invalid(ec));
    rdma::cm_event const none;
    CHECK(is_invalid(thrown([&] { (void)rdma::ah(client.pd(), none); }, "no event")));
    CHECK(calls_made() == calls + 1); // for the name of an event

    fake::push(client.native_handle(), {RDMA_CM_EVENT_ADDR_CHANGE});
    rdma::cm_event const other = next(channel, type::addr_change);
    CHECK(is_invalid(thrown([&] { (void)rdma::ah(client.pd(), other); }, "ADDR_CHANGE")));
    CHECK_FALSE(rdma::ah(client.pd(), other, ec));
    CHECK(is_invalid(ec));
}

TEST_CASE_METHOD(acquainted, "datagrams: what C says when it makes no handle", "[datagrams]") {
    std::error_code ec;
    fake::fail("ibv_create_ah", 1, ENOMEM);
    CHECK(thrown([&] { (void)server_handle(); }, "ESTABLISHED") == std::errc::not_enough_memory);
    fake::fail("ibv_create_ah", 1, EIO);
    CHECK_FALSE(rdma::ah(client.pd(), some_attr(), ec));
    CHECK(ec == std::errc::io_error);
    fake::fail("ibv_create_ah_from_wc", 1, ENOMEM);
    std::array<std::byte, rdma::grh_size> const header{};
    CHECK_FALSE(rdma::ah(client.pd(), rdma::work_completion(ibv_wc{}), header, 1, ec));
    CHECK(ec == std::errc::not_enough_memory);
}

TEST_CASE_METHOD(acquainted, "datagrams: a handle is given to C, and adopted", "[datagrams]") {
    rdma::pd pd(client.verbs());
    rdma::ah handle(pd, some_attr());
    ibv_ah* const raw = handle.release();
    CHECK_FALSE(handle);
    handle = rdma::ah(rdma::adopt, raw);
    CHECK(thrown([&] { (void)rdma::ah(rdma::adopt, raw); }) == rdma::errc::already_owned);
    CHECK(thrown([] { (void)rdma::ah(rdma::adopt, nullptr); }) == rdma::errc::null_handle);
    pd = {};
    CHECK(fake::live().pds == 1); // it is needed again
    handle = {};
    CHECK(fake::live().pds == 0);

    ibv_ah_attr attr = some_attr();
    handle = rdma::ah(rdma::adopt, ::ibv_create_ah(client.pd().native_handle(), &attr));
    handle.destroy();
    CHECK_FALSE(handle);
    rdma::ah one(client.pd(), some_attr()), two;
    swap(one, two);
    CHECK((!one && two));
    fake::fail("ibv_destroy_ah", 1, EIO);
    CHECK(thrown([&] { two.destroy(); }, "ibv_destroy_ah") == std::errc::io_error);
    CHECK(two); // and goes with its owner
}

TEST_CASE_METHOD(acquainted, "datagrams: who is asked may refuse, and its reason is the status of its answer",
                 "[datagrams]") {
    rdma::cm_id other = make_id(channel, udp);
    other.resolve_addr(rdma::address(rxe_host, 7174));
    expect(channel, type::addr_resolved);
    other.resolve_route();
    expect(channel, type::route_resolved);
    other.create_qp({});
    other.connect();
    { rdma::cm_event const untouched = next(channel, type::connect_request); }
    rdma::cm_event const refusal = next(channel, type::unreachable);
    CHECK(refusal.id() == other);
    CHECK(refusal.error() == rdma::reject_reason::unsupported);
    CHECK(refusal.ud_param() == nullptr);
}

TEST_CASE("datagrams: siw has none, and says so", "[datagrams]") {
    world w;
    rdma::event_channel channel;
    rdma::cm_id id = make_id(channel, udp);
    CHECK(id.qp_type() == rdma::qp_type::ud);
    id.bind(rdma::address(siw_host, 0));
    CHECK(thrown([&] { id.create_qp({}); }, "rdma_create_qp") == std::errc::operation_not_supported);
}
