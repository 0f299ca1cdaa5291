// SPDX-License-Identifier: MIT
// Queue pairs of the program's own: made without an id, brought up by hand, and connected by their number; and the
// options of enhanced connection establishment that such programs exchange.
#include "support.hpp"

#include <algorithm>
#include <numeric>
#include <optional>

using namespace unit;

namespace {

/// What a QP of one's own needs.
struct own_qp {
    rdma::cq cq;
    rdma::qp qp;

    own_qp() = default;
    explicit own_qp(rdma::cm_id const& id)
        : cq(id.verbs(), 16), qp(id.pd(), rdma::qp_type::rc, {.send_cq = cq, .recv_cq = cq}) {}

    void bring_up(rdma::cm_id const& id) const {
        for (ibv_qp_state const state : {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS})
            qp.modify(id.init_qp_attr(state));
    }
    std::optional<rdma::work_completion> poll() const {
        rdma::work_completion wc;
        if (cq.poll({&wc, 1}).empty())
            return std::nullopt;
        return wc;
    }
};

/// A client and a listener, before there is any QP.
struct two_ends : world {
    rdma::event_channel server_channel, client_channel;
    rdma::cm_id listener = make_listener(server_channel), client = make_client(client_channel), server;

    void ask(std::uint32_t qp_num = 17) {
        client.connect({.qp_num = qp_num});
        server = next(server_channel, type::connect_request).take_id();
    }
};

/// The whole way of rping -q.
struct connected_by_hand : two_ends {
    own_qp ours{client}, theirs;

    connected_by_hand() {
        client.connect({.qp_num = ours.qp.qp_num()});
        {
            rdma::cm_event request = next(server_channel, type::connect_request);
            CHECK(request.param()->qp_num == ours.qp.qp_num());
            server = request.take_id();
        }
        theirs = own_qp(server);
        theirs.bring_up(server);
        server.accept({.qp_num = theirs.qp.qp_num()});
        {
            rdma::cm_event const response = next(client_channel, type::connect_response);
            CHECK(response.param()->qp_num == theirs.qp.qp_num());
        }
        ours.bring_up(client);
        client.establish();
        expect(server_channel, type::established);
        CHECK(is_idle(client_channel)); // nothing comes here
    }
};

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

// ---- The owner ------------------------------------------------------------------------------------------------------

TEST_CASE("own QP: it, what it needs, and the id whose device it is on are dropped in every order", "[qp]") {
    std::array<int, 7> order{};
    std::iota(order.begin(), order.end(), 0);
    do {
        world w;
        rdma::event_channel channel;
        rdma::cm_id id = make_bound(channel);
        rdma::pd pd(id.verbs());
        rdma::cq send(id.verbs(), 4), recv(id.verbs(), 4);
        id.create_srq();
        rdma::qp qp(pd, rdma::qp_type::rc, {.send_cq = send, .recv_cq = recv, .srq = id.srq()});
        fake::push_async(qp.native_handle(), IBV_EVENT_COMM_EST);
        rdma::async_event event = async_event_of(id.verbs());
        for (int const each : order)
            switch (each) {
            case 0: id = {}; break;
            case 1: pd = {}; break;
            case 2: send = {}; break;
            case 3: recv = {}; break;
            case 4: qp = {}; break;
            case 5: event = {}; break;
            case 6: id.destroy_srq(); break;
            }
        if (fake::leaks() != "1 event channel(s)" || fake::count("ibv_destroy_qp") != 1) {
            CAPTURE(order);
            CHECK(fake::leaks() == "1 event channel(s)");
        }
    } while (std::next_permutation(order.begin(), order.end()));
}

TEST_CASE_METHOD(two_ends, "own QP: made, refused, given to C and adopted", "[qp]") {
    std::error_code ec;
    refused(
        rdma::errc::not_bound, [] { (void)rdma::qp(rdma::pd_ref(), rdma::qp_type::rc, rdma::qp_init_attr()); },
        [](std::error_code& e) { CHECK_FALSE(rdma::qp(rdma::pd_ref(), rdma::qp_type::rc, rdma::qp_init_attr(), e)); });
    CHECK(thrown([&] { (void)rdma::qp(client.pd(), rdma::qp_type::rc, rdma::qp_init_attr()); }, "ibv_create_qp") ==
          std::errc::invalid_argument); // no CQs
    rdma::cq cq(client.verbs(), 8);
    fake::fail("ibv_create_qp", 1, ENOMEM);
    CHECK_FALSE(rdma::qp(client.pd(), rdma::qp_type::rc, {.send_cq = cq, .recv_cq = cq}, ec));
    CHECK(ec == std::errc::not_enough_memory);

    int mine = 0;
    rdma::pd pd(client.verbs());
    rdma::qp qp(pd, rdma::qp_type::uc, {.send_cq = cq, .recv_cq = cq, .user_context = &mine});
    CHECK(qp.qp_type() == rdma::qp_type::uc);
    CHECK(qp.native_handle()->qp_context == &mine);
    CHECK(rdma::qp_ref(qp).qp_num() == qp.qp_num());
    CHECK(thrown([&] { cq.destroy(); }) == std::errc::device_or_resource_busy);
    CHECK(thrown([&] { pd.destroy(); }) == std::errc::device_or_resource_busy);
    ibv_qp* const raw = qp.release();
    CHECK((!qp && qp.qp_num() == 0));
    qp = rdma::qp(rdma::adopt, raw);
    CHECK(thrown([&] { (void)rdma::qp(rdma::adopt, raw); }) == rdma::errc::already_owned);
    CHECK(thrown([] { (void)rdma::qp(rdma::adopt, nullptr); }) == rdma::errc::null_handle);
    pd = {};
    cq = {};
    CHECK(fake::live().pds == 1); // needed again
    CHECK(fake::live().cqs == 1);
    rdma::qp two;
    swap(qp, two);
    two.destroy();
    CHECK(fake::live().cqs == 0);
}

// ---- The handshake --------------------------------------------------------------------------------------------------

TEST_CASE_METHOD(connected_by_hand, "own QP: brought up by hand on both ends, messages cross", "[qp]") {
    std::array<std::byte, 8> out{std::byte{5}}, in{};
    rdma::mr const from = client.reg_msgs(out), into = server.reg_msgs(in);
    theirs.qp.post_recv(rdma::recv_wr(into.sge()).id(1));
    ours.qp.post_send(rdma::send_wr::send(from.sge()).signaled());
    auto const sent = ours.poll(), received = theirs.poll();
    REQUIRE((sent && received));
    CHECK((*sent && *received));
    CHECK(in[0] == std::byte{5});
}

TEST_CASE_METHOD(connected_by_hand, "own QP: a disconnect leaves it alone, and it is flushed by its own state",
                 "[qp]") {
    std::array<std::byte, 8> in{};
    rdma::mr const into = client.reg_msgs(in);
    ours.qp.post_recv(rdma::recv_wr(into.sge()).id(9));
    client.disconnect();
    expect(client_channel, type::disconnected);
    CHECK_FALSE(ours.poll());
    CHECK(ours.qp.query(IBV_QP_STATE).qp_state == IBV_QPS_RTS);
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_ERR;
    std::error_code ec;
    ours.qp.modify({attr, IBV_QP_STATE}, ec);
    CHECK_FALSE(ec);
    auto const flushed = ours.poll();
    REQUIRE(flushed);
    CHECK(flushed->status() == rdma::wc_status::wr_flush_err);
    CHECK(flushed->wr_id() == 9);
}

TEST_CASE_METHOD(two_ends, "own QP: only one end has one", "[qp]") {
    SECTION("the asker") {
        own_qp ours(client);
        ask(ours.qp.qp_num());
        server.create_qp({});
        server.accept();
        expect(client_channel, type::connect_response);
        ours.bring_up(client);
        client.establish();
    }
    SECTION("the asked") {
        client.create_qp({});
        client.connect();
        server = next(server_channel, type::connect_request).take_id();
        own_qp theirs(server);
        theirs.bring_up(server);
        server.accept({.qp_num = theirs.qp.qp_num()});
        expect(client_channel, type::established);
    }
    expect(server_channel, type::established);
}

TEST_CASE_METHOD(two_ends, "own QP: attributes are there when the connection is so far", "[qp]") {
    std::error_code ec;
    CHECK(client.init_qp_attr(IBV_QPS_INIT).mask & IBV_QP_PORT);
    ask(33);
    CHECK(thrown([&] { (void)client.init_qp_attr(IBV_QPS_RTR); }, "state 2") == std::errc::invalid_argument);
    CHECK(client.init_qp_attr(IBV_QPS_RTS, ec).mask == 0);
    CHECK(ec == std::errc::invalid_argument);
    rdma::cm_id unbound = make_id(client_channel), empty;
    refused(
        rdma::errc::not_bound, [&] { (void)unbound.init_qp_attr(IBV_QPS_INIT); },
        [&](std::error_code& e) { (void)unbound.init_qp_attr(IBV_QPS_INIT, e); });
    refused(
        rdma::errc::empty_handle, [&] { (void)empty.init_qp_attr(IBV_QPS_INIT); },
        [&](std::error_code& e) { (void)empty.init_qp_attr(IBV_QPS_INIT, e); });
    rdma::qp_attr const rtr = server.init_qp_attr(IBV_QPS_RTR);
    CHECK(rtr.attr.qp_state == IBV_QPS_RTR);
    CHECK(rtr.attr.dest_qp_num == 33);
}

TEST_CASE_METHOD(two_ends, "own QP: establish is for ids without a QP, on RoCE, when the answer has come", "[qp]") {
    CHECK(thrown([&] { client.establish(); }, "rdma_establish") == std::errc::invalid_argument);
    client.create_qp({});
    refused(
        rdma::errc::has_qp, [&] { client.establish(); }, [&](std::error_code& ec) { client.establish(ec); });
    rdma::cm_id unbound = make_id(client_channel), empty;
    refused(
        rdma::errc::not_bound, [&] { unbound.establish(); }, [&](std::error_code& ec) { unbound.establish(ec); });
    refused(
        rdma::errc::empty_handle, [&] { empty.establish(); }, [&](std::error_code& ec) { empty.establish(ec); });
    rdma::cm_id iwarp = make_client(client_channel, siw_host);
    CHECK(thrown([&] { iwarp.establish(); }) == std::errc::invalid_argument);
}

// ---- Data that comes before ESTABLISHED -----------------------------------------------------------------------------

TEST_CASE_METHOD(two_ends, "A21 a receive posted before accept gets what comes before ESTABLISHED was read",
                 "[field][qp]") {
    client.create_qp({});
    client.connect();
    server = next(server_channel, type::connect_request).take_id();
    server.create_qp({});
    std::array<std::byte, 8> in{}, out{std::byte{3}};
    rdma::mr const into = server.reg_msgs(in), from = client.reg_msgs(out);
    server.qp().post_recv(rdma::recv_wr(into.sge()).id(4));
    server.accept();
    expect(client_channel, type::established);
    client.qp().post_send(rdma::send_wr::send(from.sge()));
    rdma::work_completion wc;
    REQUIRE(server.recv_cq().poll({&wc, 1}).size() == 1);
    CHECK((wc && wc.wr_id() == 4));
    CHECK(in[0] == std::byte{3});
    expect(server_channel, type::established);
}

TEST_CASE_METHOD(two_ends, "notify: of data before ESTABLISHED; that it is connected already is no error", "[qp]") {
    CHECK(thrown([&] { client.notify(IBV_EVENT_COMM_EST); }, "rdma_notify") == std::errc::invalid_argument);
    client.create_qp({});
    client.connect();
    server = next(server_channel, type::connect_request).take_id();
    server.create_qp({});
    server.accept();
    server.notify(IBV_EVENT_COMM_EST); // the client has not read its answer yet
    expect(server_channel, type::established);
    server.notify(IBV_EVENT_COMM_EST);
    std::error_code ec(EIO, std::system_category());
    server.notify(IBV_EVENT_COMM_EST, ec);
    CHECK_FALSE(ec);
    CHECK(fake::count("rdma_notify", server.native_handle()) == 3);
    server.notify(IBV_EVENT_QP_FATAL, ec);
    CHECK(ec == std::errc::invalid_argument);
    rdma::cm_id empty;
    CHECK(thrown([&] { empty.notify(IBV_EVENT_COMM_EST); }) == rdma::errc::empty_handle);
    empty.notify(IBV_EVENT_COMM_EST, ec);
    CHECK(ec == rdma::errc::empty_handle);
}

// ---- ECE ------------------------------------------------------------------------------------------------------------

TEST_CASE_METHOD(two_ends, "ece: what one end offers the other reads, and the answer likewise", "[qp][ece]") {
    ibv_ece const offer{1234, 0xab, 0}, answer{777, 3, 0};
    CHECK(client.remote_ece().vendor_id == 0);
    client.set_local_ece(offer);
    ask();
    ibv_ece const asked = server.remote_ece();
    CHECK((asked.vendor_id == 1234 && asked.options == 0xab));
    std::error_code ec;
    server.set_local_ece(answer, ec);
    CHECK_FALSE(ec);
    server.accept({.qp_num = 18});
    expect(client_channel, type::connect_response);
    ibv_ece const agreed = client.remote_ece(ec);
    CHECK_FALSE(ec);
    CHECK((agreed.vendor_id == 1234 && agreed.options == 3)); // the vendor that asked
    client.establish();
    expect(server_channel, type::established);
}

TEST_CASE_METHOD(two_ends, "ece: with a QP on the id librdmacm does it, and the program may not", "[qp][ece]") {
    ibv_ece const offer{1234, 1, 0};
    client.create_qp({});
    refused(
        rdma::errc::has_qp, [&] { client.set_local_ece(offer); },
        [&](std::error_code& ec) { client.set_local_ece(offer, ec); });
    refused(
        rdma::errc::has_qp, [&] { (void)client.remote_ece(); },
        [&](std::error_code& ec) { (void)client.remote_ece(ec); });
    client.destroy_qp();
    client.set_local_ece(offer);
    rdma::cm_id empty;
    refused(
        rdma::errc::empty_handle, [&] { empty.set_local_ece(offer); },
        [&](std::error_code& ec) { empty.set_local_ece(offer, ec); });
    refused(
        rdma::errc::empty_handle, [&] { (void)empty.remote_ece(); },
        [&](std::error_code& ec) { (void)empty.remote_ece(ec); });
    CHECK(thrown([&] { client.set_local_ece({0, 1, 0}); }, "rdma_set_local_ece") == std::errc::invalid_argument);
    CHECK(thrown([&] { client.set_local_ece({1, 1, 1}); }) == std::errc::invalid_argument);
    fake::fail("rdma_get_remote_ece", 1, EIO);
    CHECK(thrown([&] { (void)client.remote_ece(); }, "rdma_get_remote_ece") == std::errc::io_error);
}

TEST_CASE_METHOD(two_ends, "ece: a request whose options do not suit is rejected for that reason", "[qp][ece]") {
    ask();
    server.reject_ece(std::as_bytes(std::span("no", 2)));
    rdma::cm_event const answer = next(client_channel, type::rejected);
    CHECK(answer.error() == rdma::reject_reason::vendor_option_not_supported);
    CHECK(answer.error() == rdma::condition::refused);
    CHECK(answer.private_data()[1] == std::byte{'o'});
    CHECK(thrown([&] { server.reject_ece(); }, "rdma_reject_ece") == rdma::errc::not_a_request); // once
    CHECK(thrown([&] { server.reject(); }) == rdma::errc::not_a_request);
    CHECK(thrown([&] { server.accept(); }) == rdma::errc::not_a_request);
}

TEST_CASE_METHOD(two_ends, "ece: reject_ece is refused as reject is, and when it fails nothing is decided",
                 "[qp][ece]") {
    std::array<std::byte, 256> const long_data{};
    refused(
        rdma::errc::not_a_request, [&] { client.reject_ece(); }, [&](std::error_code& ec) { client.reject_ece(ec); });
    rdma::cm_id empty;
    refused(
        rdma::errc::empty_handle, [&] { empty.reject_ece(); }, [&](std::error_code& ec) { empty.reject_ece(ec); });
    ask();
    refused(
        rdma::errc::private_data_too_long, [&] { server.reject_ece(long_data); },
        [&](std::error_code& ec) { server.reject_ece(long_data, ec); });
    fake::fail("rdma_reject_ece", 1, EIO);
    CHECK(thrown([&] { server.reject_ece(); }, "0 bytes") == std::errc::io_error);
    server.reject_ece();
    expect(client_channel, type::rejected);
}
