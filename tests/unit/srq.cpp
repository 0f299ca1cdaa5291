// SPDX-License-Identifier: MIT
// Shared receive queues, and the connections of XRC that need them: made, used, dropped in any order, nothing left.
#include "support.hpp"

#include <algorithm>
#include <numeric>
#include <optional>

using namespace unit;

namespace {

struct one_device : world {
    rdma::event_channel channel;
    rdma::cm_id id = make_bound(channel);
    std::array<std::byte, 64> memory{};
};

struct one_srq : one_device {
    rdma::srq_init_attr granted = id.create_srq({.max_wr = 8, .max_sge = 1});
    ibv_srq* raw = id.srq().native_handle();
};

std::optional<rdma::work_completion> poll_one(rdma::cq_ref cq) {
    rdma::work_completion wc;
    if (cq.poll({&wc, 1}).empty())
        return std::nullopt;
    return wc;
}

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

std::error_code const exists(EEXIST, std::system_category());

std::size_t destroyed(ibv_srq const* srq) { return fake::count("ibv_destroy_srq", srq); }

} // namespace

// ---- An id's own ----------------------------------------------------------------------------------------------------

TEST_CASE_METHOD(one_srq, "srq: the QP made afterwards receives from it", "[srq]") {
    REQUIRE(id.srq());
    CHECK(granted.max_wr == 8);
    CHECK(id.native_handle()->srq == raw);
    id.create_qp({});
    CHECK(id.qp().native_handle()->srq == raw);
    id.destroy_qp();
    id.create_qp_ex({});
    CHECK(id.qp().native_handle()->srq == raw);
    CHECK(fake::count("rdma_create_srq", id.native_handle()) == 1);
}

TEST_CASE("srq: messages come to whoever posted to the SRQ, from several peers", "[srq]") {
    world w;
    rdma::event_channel servers, clients;
    rdma::cm_id listener = make_listener(servers);
    rdma::cm_id shared = make_bound(servers); // its SRQ serves every connection
    shared.create_srq({.max_wr = 4});
    rdma::cq cq(shared.verbs(), 16);
    std::array<std::byte, 64> memory{};
    rdma::mr region(shared.pd(), memory, rdma::access::local_write);
    shared.srq().post_recv(rdma::recv_wr(region.sge(0, 16)).id(1));
    CHECK(shared.srq().post_recv(rdma::recv_wr(region.sge(16, 16)).id(2), std::nothrow) == std::errc{});

    rdma::cm_id client[2], server[2];
    for (int i = 0; i != 2; ++i) {
        client[i] = make_client(clients);
        client[i].create_qp({});
        client[i].connect();
        server[i] = next(servers, type::connect_request).take_id();
        server[i].create_qp({.recv_cq = cq, .srq = shared.srq()});
        server[i].accept();
        expect(clients, type::established);
        expect(servers, type::established);
    }
    for (int i = 0; i != 2; ++i) {
        std::array<std::byte, 1> text{std::byte('a' + i)};
        rdma::mr const from(client[i].pd(), text, rdma::access::none);
        client[i].qp().post_send(rdma::send_wr::send(from.sge()));
    }
    for (std::uint64_t const wanted : {1u, 2u}) {
        auto const wc = poll_one(cq);
        REQUIRE(wc);
        CHECK(wc->wr_id() == wanted);
        CHECK(wc->qp_num() == server[wanted - 1].qp().qp_num());
    }
    CHECK(memory[0] == std::byte('a'));
    CHECK(memory[16] == std::byte('b'));
    shared = {}; // the QPs keep it
    CHECK(fake::live().srqs == 1);
}

TEST_CASE_METHOD(one_srq, "srq: refused requests are named, and a chain tells where it broke", "[srq]") {
    rdma::mr const region(id.pd(), memory, rdma::access::local_write);
    fake::fail("ibv_post_srq_recv", 1, ENOMEM);
    CHECK(thrown([&] { id.srq().post_recv(rdma::recv_wr(region.sge()).id(7)); }, "request 7") ==
          std::errc::not_enough_memory);
    rdma::recv_wr one = rdma::recv_wr(region.sge()).id(1), two = rdma::recv_wr(region.sge()).id(2);
    one.native_handle().next = &two.native_handle();
    two.native_handle().num_sge = 99;
    ibv_recv_wr* bad = nullptr;
    CHECK(id.srq().post_recv(one.native_handle(), bad, std::nothrow) == std::errc::invalid_argument);
    CHECK(bad == &two.native_handle());
    CHECK(thrown([&] { id.srq().post_recv(one.native_handle(), bad); }, "request 2") == std::errc::invalid_argument);
}

TEST_CASE_METHOD(one_srq, "srq: size, limit and number are asked for, and the limit set", "[srq]") {
    CHECK(id.srq().query().max_wr == 8);
    id.srq().set_limit(3);
    CHECK(id.srq().query().srq_limit == 3);
    CHECK(thrown([&] { id.srq().set_limit(99); }, "limit 99") == std::errc::invalid_argument);
    fake::fail("ibv_get_srq_num", 1, EOPNOTSUPP); // as of a basic one
    CHECK(thrown([&] { (void)id.srq().srq_num(); }, "ibv_get_srq_num") == std::errc::operation_not_supported);
    std::error_code ec;
    fake::fail("ibv_query_srq", 1, EIO);
    CHECK(id.srq().query(ec).max_wr == 0);
    CHECK(ec == std::errc::io_error);
    fake::fail("ibv_modify_srq", 1, EIO);
    id.srq().set_limit(1, ec);
    CHECK(ec == std::errc::io_error);
    rdma::srq_ref const none;
    CHECK_FALSE(none);
    refused(
        rdma::errc::empty_handle, [&] { (void)none.query(); }, [&](std::error_code& e) { (void)none.query(e); });
    refused(
        rdma::errc::empty_handle, [&] { none.set_limit(1); }, [&](std::error_code& e) { none.set_limit(1, e); });
    refused(
        rdma::errc::empty_handle, [&] { (void)none.srq_num(); }, [&](std::error_code& e) { (void)none.srq_num(e); });
    CHECK(rdma::srq_ref(raw) == id.srq());
    CHECK(std::hash<rdma::srq_ref>()(raw) == std::hash<rdma::srq_ref>()(id.srq()));
}

TEST_CASE("srq: the limit raises an event that keeps the SRQ", "[srq]") {
    world w;
    connection c = connect_pair();
    c.server.destroy_qp();
    c.server = {};
    rdma::event_channel channel;
    rdma::cm_id id = make_bound(channel);
    id.create_srq({.max_wr = 4});
    ibv_srq* const raw = id.srq().native_handle();
    id.srq().set_limit(2);
    fake::push_async(raw, IBV_EVENT_SRQ_LIMIT_REACHED);
    rdma::async_event event = async_event_of(id.verbs());
    REQUIRE(event);
    CHECK(event.type() == rdma::async_event_type::srq_limit_reached);
    CHECK(event.srq() == id.srq());
    CHECK_FALSE(event.qp());
    CHECK_FALSE(event.cq());
    SECTION("the id is dropped") {
        id = {};
        CHECK(destroyed(raw) == 0);
        CHECK(channel.stats().ids_awaiting_ack == 1);
    }
    SECTION("the SRQ is destroyed") {
        id.destroy_srq();
        CHECK(destroyed(raw) == 0);
        CHECK_FALSE(id.srq());
        id.create_srq(); // another
    }
    SECTION("the id is destroyed by name: refused") {
        CHECK(thrown([&] { id.destroy(); }, "1 events held") == std::errc::resource_deadlock_would_occur);
        event.ack();
        id.destroy();
    }
    event.ack();
    CHECK(destroyed(raw) == 1);
}

TEST_CASE_METHOD(one_srq, "srq: a second one is refused before C forgets the first", "[srq]") {
    refused(
        exists, [&] { id.create_srq(); }, [&](std::error_code& ec) { id.create_srq({}, ec); });
    refused(
        exists, [&] { id.create_srq_ex({}); }, [&](std::error_code& ec) { id.create_srq_ex({}, ec); });
    CHECK(id.srq().native_handle() == raw);
    id.destroy_srq();
    CHECK(destroyed(raw) == 1);
    CHECK_FALSE(id.srq());
    CHECK(id.native_handle()->srq == nullptr);
    id.create_srq_ex({});
    CHECK(id.srq());
    id.destroy_srq();
    id.destroy_srq(); // there is none
    rdma::cm_id().destroy_srq();
}

TEST_CASE_METHOD(one_device, "srq: what it needs, and what C says", "[srq]") {
    rdma::cm_id unbound = make_id(channel), empty;
    refused(
        rdma::errc::not_bound, [&] { unbound.create_srq(); }, [&](std::error_code& ec) { unbound.create_srq({}, ec); });
    refused(
        rdma::errc::empty_handle, [&] { empty.create_srq_ex({}); },
        [&](std::error_code& ec) { empty.create_srq_ex({}, ec); });
    CHECK_FALSE(empty.srq());
    CHECK_FALSE(empty.srq_cq());
    CHECK_FALSE(empty.srq_cq_channel());
    fake::fail("rdma_create_srq", 1, ENOMEM);
    CHECK(thrown([&] { id.create_srq(); }, "rdma_create_srq") == std::errc::not_enough_memory);
    fake::fail("rdma_create_srq_ex", 1, ENOMEM);
    CHECK(thrown([&] { id.create_srq_ex({}); }, "rdma_create_srq_ex") == std::errc::not_enough_memory);
    CHECK(thrown([&] { id.create_srq({.max_wr = 0}); }) == std::errc::invalid_argument);
    CHECK(thrown([&] { id.create_srq_ex({.type = rdma::srq_type::tm}); }) == std::errc::operation_not_supported);
    CHECK(thrown([&] { id.create_srq_ex({.type = rdma::srq_type::xrc}); }) == std::errc::operation_not_supported);
    CHECK(fake::live().srqs == 0);
    CHECK(fake::live().cqs == 0);
    int mine = 0;
    id.create_srq({.user_context = &mine});
    CHECK(id.srq().native_handle()->srq_context == &mine);
}

TEST_CASE_METHOD(one_device, "srq: on a PD of the user's, which it keeps", "[srq]") {
    rdma::pd pd(id.verbs());
    ibv_pd* const users = pd.native_handle();
    if (GENERATE(true, false))
        id.create_srq(pd, {});
    else
        id.create_srq_ex(pd, {});
    CHECK(id.srq().native_handle()->pd == users);
    CHECK(thrown([&] { pd.destroy(); }) == std::errc::device_or_resource_busy);
    pd = {};
    CHECK(fake::live().pds == 1);
    id.destroy_srq();
    CHECK(fake::live().pds == 0);
}

TEST_CASE("srq: the id, its QP, SRQ and events, and another id's QP are dropped in every order", "[srq]") {
    std::array<int, 7> order{};
    std::iota(order.begin(), order.end(), 0);
    do {
        one_srq s;
        rdma::pd pd(s.id.verbs());
        rdma::cm_id user = make_bound(s.channel);
        s.id.create_qp({});
        user.create_qp(pd, {.srq = s.id.srq()});
        fake::push_async(s.raw, IBV_EVENT_SRQ_LIMIT_REACHED);
        rdma::async_event event = async_event_of(s.id.verbs());
        for (int const each : order)
            switch (each) {
            case 0: s.id = {}; break;
            case 1: s.id.destroy_qp(); break;
            case 2: s.id.destroy_srq(); break;
            case 3: user = {}; break;
            case 4: event = {}; break;
            case 5: s.channel = rdma::event_channel(rdma::no_init); break;
            case 6: pd = {}; break;
            }
        if (destroyed(s.raw) != 1 || fake::count("ibv_destroy_qp") != 2 || fake::count("rdma_destroy_id") != 2 ||
            fake::leaks() != "") {
            CAPTURE(order);
            CHECK(fake::leaks() == "");
            CHECK(destroyed(s.raw) == 1);
        }
    } while (std::next_permutation(order.begin(), order.end()));
}

TEST_CASE_METHOD(one_srq, "srq: an id whose SRQ another's QP uses is busy", "[srq]") {
    rdma::cm_id user = make_bound(channel);
    user.create_qp({.srq = id.srq()});
    CHECK(thrown([&] { id.destroy(); }) == std::errc::device_or_resource_busy);
    CHECK(id.srq());
    user = {};
    id.create_qp({});
    id.destroy();
    CHECK(destroyed(raw) == 1);
}

TEST_CASE_METHOD(one_srq, "srq: a failed destroy is told once", "[srq]") {
    messy();
    fake::fail("ibv_destroy_srq", 1, EIO);
    id.destroy_srq();
    CHECK(told(rdma::diagnostic_kind::destroy_failed) == 1);
    fake::push_async(raw, IBV_EVENT_SRQ_ERR); // comes late
    CHECK_FALSE(async_event_of(id.verbs()));
    id = {};
    CHECK(destroyed(raw) == 1);
}

TEST_CASE_METHOD(one_srq, "srq: goes to C with its id, and comes back", "[srq]") {
    id.create_qp({});
    rdma::async_event event;
    rdma_cm_id* const c = id.release();
    CHECK(c->srq == raw);
    SECTION("as it was") {
        id = rdma::cm_id(rdma::adopt, channel, c);
        CHECK(id.srq().native_handle() == raw);
        fake::push_async(raw, IBV_EVENT_SRQ_LIMIT_REACHED);
        event = async_event_of(id.verbs());
        id = {};
        CHECK(destroyed(raw) == 0);
        event.ack();
        CHECK(destroyed(raw) == 1);
    }
    SECTION("and C destroys it") {
        ::rdma_destroy_qp(c);
        ::rdma_destroy_srq(c);
        id = rdma::cm_id(rdma::adopt, channel, c);
        CHECK_FALSE(id.srq());
        CHECK_FALSE(id.qp());
        id.create_srq();
        id.create_qp({});
    }
    SECTION("and C destroys all") { ::rdma_destroy_ep(c); }
}

TEST_CASE_METHOD(one_device, "srq: one that C made goes with the id that is adopted", "[srq]") {
    rdma_cm_id* const c = id.release();
    ibv_srq_init_attr attr{nullptr, {4, 1, 0}};
    REQUIRE(::rdma_create_srq(c, nullptr, &attr) == 0);
    id = rdma::cm_id(rdma::adopt, channel, c);
    CHECK(id.srq().native_handle() == c->srq);
    id.create_qp({});
}

// ---- XRC ------------------------------------------------------------------------------------------------------------

namespace {

constexpr rdma::qp_cap only_sends{.max_recv_wr = 0, .max_recv_sge = 0};
constexpr rdma::qp_cap only_receives{.max_send_wr = 0, .max_recv_wr = 0, .max_send_sge = 0, .max_recv_sge = 0};

struct with_xrc : world {
    rdma::event_channel channel;

    with_xrc() {
        fake::set_xrc(true);
        fake::set_timewait(false);
    }

    rdma::cm_id half(rdma::qp_type type, int port = 0) {
        return rdma::cm_id(channel, rdma::port_space::ib, type, rdma::address(rxe_host, port));
    }
};

/// A sending half and a receiving one, which has told the number of its SRQ.
struct xrc_pair : with_xrc {
    rdma::cm_id listener = half(rdma::qp_type::xrc_recv, 7471), sender = half(rdma::qp_type::xrc_send), receiver;
    std::uint32_t number = 0;

    void connect() {
        listener.listen();
        sender.resolve_addr(rdma::address(rxe_host, 7471));
        expect(channel, type::addr_resolved);
        sender.resolve_route();
        expect(channel, type::route_resolved);
        sender.create_qp({.cap = only_sends});
        sender.connect();
        receiver = next(channel, type::connect_request).take_id();
        receiver.create_srq();
        receiver.create_qp({.cap = only_receives});
        number = receiver.srq().srq_num();
        receiver.accept({.private_data = std::as_bytes(std::span(&number, 1))});
        rdma::cm_event const answer = next(channel, type::established);
        CHECK(answer.read_private_data<std::uint32_t>() == number);
        expect(channel, type::established);
    }
};

} // namespace

TEST_CASE_METHOD(xrc_pair, "xrc: a message to the SRQ that is named", "[srq][xrc]") {
    connect();
    CHECK(sender.qp_type() == rdma::qp_type::xrc_send);
    CHECK(sender.qp().qp_type() == rdma::qp_type::xrc_send);
    CHECK(receiver.qp_type() == rdma::qp_type::xrc_recv);
    CHECK_FALSE(sender.recv_cq());
    REQUIRE(receiver.srq_cq());
    std::array<std::byte, 8> out{std::byte{42}}, in{};
    rdma::mr const from(sender.pd(), out, rdma::access::none), into(receiver.pd(), in, rdma::access::local_write);
    receiver.srq().post_recv(rdma::recv_wr(into.sge()).id(5));
    sender.qp().post_send(rdma::send_wr::send(from.sge()).to_srq(number).signaled());
    auto const received = poll_one(receiver.srq_cq()), sent = poll_one(sender.send_cq());
    REQUIRE((received && sent));
    CHECK(*sent);
    REQUIRE(*received);
    CHECK(received->wr_id() == 5);
    CHECK(in[0] == std::byte{42});
    sender.qp().post_send(rdma::send_wr::send(from.sge()).to_srq(number + 1).signaled());
    auto const lost = poll_one(sender.send_cq());
    REQUIRE(lost);
    CHECK(lost->status() == rdma::wc_status::rem_inv_req_err);
}

TEST_CASE_METHOD(xrc_pair, "xrc: nothing is left of a QP that only sends", "[srq][xrc]") {
    SECTION("when it is destroyed") {
        connect();
        sender.destroy_qp();
        CHECK(sender.native_handle()->send_cq == nullptr);
        CHECK(sender.native_handle()->send_cq_channel == nullptr);
        receiver = {};
        CHECK(fake::live().cqs == 0);
        CHECK(fake::live().comp_channels == 0);
    }
    SECTION("when it could not be made") {
        sender.resolve_addr(rdma::address(rxe_host, 7471));
        expect(channel, type::addr_resolved);
        CHECK(thrown([&] { sender.create_qp({.cap = {.max_recv_wr = 0, .max_inline_data = 1 << 20}}); }) ==
              std::errc::invalid_argument);
        CHECK(fake::live().cqs == 0);
        CHECK(fake::live().comp_channels == 0);
        CHECK(sender.native_handle()->send_cq == nullptr);
        sender.create_qp({.cap = only_sends});
    }
    SECTION("when it could not be made the other way") {
        CHECK(thrown([&] { sender.create_qp_ex({.attr = {.cap = {.max_recv_wr = 0, .max_inline_data = 1 << 20}}}); }) ==
              std::errc::invalid_argument);
        CHECK(fake::live().cqs == 0);
    }
}

TEST_CASE("xrc: both halves, their CQs' events and the listener are dropped in every order", "[srq][xrc]") {
    std::array<int, 6> order{};
    std::iota(order.begin(), order.end(), 0);
    do {
        xrc_pair p;
        p.connect();
        fake::push_cq_event(p.receiver.srq_cq().native_handle());
        std::optional<rdma::cq_event> received = p.receiver.srq_cq_channel().try_get();
        fake::push_cq_event(p.sender.send_cq().native_handle());
        std::optional<rdma::cq_event> sent = p.sender.send_cq_channel().try_get();
        REQUIRE((received && sent));
        for (int const each : order)
            switch (each) {
            case 0: p.sender = {}; break;
            case 1: p.receiver = {}; break;
            case 2: p.listener = {}; break;
            case 3: received.reset(); break;
            case 4: sent.reset(); break;
            case 5: p.channel = rdma::event_channel(rdma::no_init); break;
            }
        if (fake::leaks() != "") { // with the default XRC domain
            CAPTURE(order);
            CHECK(fake::leaks() == "");
        }
    } while (std::next_permutation(order.begin(), order.end()));
}

TEST_CASE("xrc: a domain, its SRQ and QP, their CQ, PD and id are dropped in every order", "[srq][xrc]") {
    std::array<int, 6> order{};
    std::iota(order.begin(), order.end(), 0);
    do {
        with_xrc s;
        rdma::cm_id id = s.half(rdma::qp_type::xrc_recv);
        rdma::xrcd domain(id.verbs());
        rdma::cq cq(id.verbs(), 8);
        rdma::pd pd(id.verbs());
        id.create_srq_ex(pd, {.type = rdma::srq_type::xrc, .xrcd = domain, .cq = cq});
        id.create_qp_ex(pd, {.attr = {.cap = only_receives}, .xrcd = domain});
        CHECK_FALSE(id.srq_cq());
        for (int const each : order)
            switch (each) {
            case 0: id = {}; break;
            case 1: domain = {}; break;
            case 2: cq = {}; break;
            case 3: pd = {}; break;
            case 4: id.destroy_qp(); break;
            case 5: id.destroy_srq(); break;
            }
        if (fake::leaks() != "1 event channel(s)" || fake::count("ibv_close_xrcd") != 1 ||
            fake::count("ibv_destroy_srq") != 1) {
            CAPTURE(order);
            CHECK(fake::leaks() == "1 event channel(s)");
            CHECK(fake::count("ibv_close_xrcd") == 1);
        }
    } while (std::next_permutation(order.begin(), order.end()));
}

TEST_CASE_METHOD(with_xrc, "xrc: a domain that is in use is busy, and one of C's is adopted", "[srq][xrc]") {
    rdma::cm_id id = half(rdma::qp_type::xrc_recv);
    rdma::xrcd domain(id.verbs());
    CHECK(fake::live().xrcds == 1);
    id.create_srq_ex({.type = rdma::srq_type::xrc, .xrcd = domain});
    CHECK(id.srq_cq()); // librdmacm made it
    CHECK(thrown([&] { domain.destroy(); }) == std::errc::device_or_resource_busy);
    CHECK(fake::count("ibv_close_xrcd") == 0);
    id.destroy_srq();
    CHECK_FALSE(id.srq_cq());
    CHECK(fake::live().cqs == 0);
    ibv_xrcd* const raw = domain.release();
    CHECK_FALSE(domain);
    domain = rdma::xrcd(rdma::adopt, raw);
    CHECK(thrown([&] { (void)rdma::xrcd(rdma::adopt, raw); }) == rdma::errc::already_owned);
    CHECK(thrown([&] { (void)rdma::xrcd(rdma::adopt, nullptr); }) == rdma::errc::null_handle);
    CHECK(rdma::xrcd_ref(domain) == rdma::xrcd_ref(raw));
    CHECK(std::hash<rdma::xrcd_ref>()(domain) == std::hash<rdma::xrcd_ref>()(raw));
    rdma::xrcd one = std::move(domain), two;
    swap(one, two);
    CHECK((two && !one));
    two.destroy();
    CHECK(fake::live().xrcds == 0);
}

TEST_CASE("xrc: a device without it says so", "[srq][xrc]") {
    world w;
    rdma::event_channel channel;
    rdma::cm_id id = make_bound(channel);
    CHECK(thrown([&] { (void)rdma::xrcd(id.verbs()); }, "rxe0") == std::errc::operation_not_supported);
    std::error_code ec;
    CHECK_FALSE(rdma::xrcd(id.verbs(), ec));
    CHECK(ec == std::errc::operation_not_supported);
    refused(
        rdma::errc::not_bound, [] { (void)rdma::xrcd(rdma::context_ref()); },
        [](std::error_code& e) { CHECK_FALSE(rdma::xrcd(rdma::context_ref(), e)); });
}

TEST_CASE_METHOD(with_xrc, "xrc: an SRQ with a CQ of its own beside the one of a QP: each goes with its own",
                 "[srq][xrc]") {
    rdma::cm_id id = half(rdma::qp_type::xrc_recv);
    id.create_qp({.cap = {.max_send_wr = 0}}); // with room for receives, librdmacm makes a CQ for it
    rdma::cq_ref const first = id.recv_cq();
    REQUIRE(first);
    SECTION("the QP goes first") {
        id.create_srq();
        REQUIRE(id.srq_cq());
        CHECK(id.srq_cq() != first);
        CHECK(id.recv_cq() == first);
        id.destroy_qp();
        CHECK(fake::live().cqs == 1);
        id.destroy_srq();
    }
    SECTION("the SRQ goes first") {
        id.create_srq_ex({.type = rdma::srq_type::xrc});
        id.destroy_srq();
        CHECK(fake::live().cqs == 1);
        id.destroy_qp();
    }
    CHECK(fake::live().cqs == 0);
}

TEST_CASE_METHOD(with_xrc, "xrc: an id of a given type is bound, is no request, and fails without a trace",
                 "[srq][xrc]") {
    rdma::cm_id id(channel, rdma::port_space::ib, rdma::qp_type::xrc_recv);
    CHECK(id.local_addr().is_any());
    CHECK(id.local_addr().port() != 0);
    CHECK(id.channel() == rdma::event_channel_ref(channel));
    CHECK(id.port_space() == rdma::port_space::ib);
    std::error_code ec;
    id.reject(ec);
    CHECK(ec == rdma::errc::not_a_request);
    refused(
        rdma::errc::empty_handle,
        [&] { (void)rdma::cm_id(rdma::event_channel_ref(), rdma::port_space::ib, rdma::qp_type::xrc_send); },
        [&](std::error_code& e) {
            CHECK_FALSE(rdma::cm_id(rdma::event_channel_ref(), rdma::port_space::ib, rdma::qp_type::xrc_send, {}, e));
        });
    CHECK(thrown([&] { (void)half(rdma::qp_type::xrc_recv, id.local_addr().port()); }) != std::error_code());
    for (char const* const function : {"rdma_create_ep", "rdma_migrate_id"}) {
        fake::fail(function, 1, EMFILE);
        CHECK(thrown([&] { (void)half(rdma::qp_type::xrc_send); }, function) == std::errc::too_many_files_open);
        CHECK(fake::live().ids == 1);
        CHECK(fake::live().channels == 1);
    }
    fake::push(id.native_handle(), {RDMA_CM_EVENT_ADDR_CHANGE});
    rdma::cm_event held = next(channel, type::addr_change);
    id = {};
    CHECK(fake::count("rdma_destroy_id") == 0);
}
