// SPDX-License-Identifier: MIT
// Ids of C's synchronous mode, taken over: what C parks is only looked at, and listener and children may be dropped in
// any order.
#include "allocations.hpp"
#include "both/support.hpp"
#include "support.hpp"

#include <algorithm>
#include <future>
#include <optional>
#include <thread>

using namespace unit;
using both::bytes;

namespace {

std::error_code system_code(int code) { return {code, std::system_category()}; }

rdma::addrinfo look_up(bool passive, char const* host = rxe_host, rdma::port_space ps = rdma::port_space::tcp,
                       char const* port = "7471") {
    bool const datagrams = ps == rdma::port_space::udp;
    return {host, port,
            rdma::addrinfo_hints{.passive = passive,
                                 .numeric_host = true,
                                 .port_space = ps,
                                 .qp_type = datagrams ? rdma::qp_type::ud : rdma::qp_type::rc}};
}

ibv_qp_init_attr usual_attr() {
    ibv_qp_init_attr attr{};
    attr.cap = {16, 16, 1, 1, 0};
    return attr;
}

/// As C makes an endpoint; with the attributes of a QP, if they are given.
rdma_cm_id* make_ep(rdma::addrinfo const& found, ibv_qp_init_attr const* attr = nullptr) {
    ibv_qp_init_attr copy = attr ? *attr : ibv_qp_init_attr{};
    rdma_cm_id* raw = nullptr;
    REQUIRE(::rdma_create_ep(&raw, found.native_handle(), nullptr, attr ? &copy : nullptr) == 0);
    return raw;
}

rdma::sync_id make_sync_listener(char const* host = rxe_host, rdma::port_space ps = rdma::port_space::tcp) {
    ibv_qp_init_attr const attr = usual_attr();
    rdma::sync_id listener(rdma::adopt, make_ep(look_up(true, host, ps), &attr));
    listener.listen();
    return listener;
}

/// A request of a peer that agrees to everything, so that one thread is enough.
void push_request(rdma::sync_id const& listener) { fake::push_request(listener.native_handle(), "pushed", 6); }

rdma::sync_id pushed_child(rdma::sync_id& listener) {
    push_request(listener);
    return listener.get_request();
}

/// The same as C does it.
rdma_cm_id* pushed_child_of_c(rdma_cm_id* listener) {
    fake::push_request(listener, "pushed", 6);
    rdma_cm_id* child = nullptr;
    REQUIRE(::rdma_get_request(listener, &child) == 0);
    return child;
}

std::string text_of(void const* data, std::size_t size) { return {static_cast<char const*>(data), size}; }

} // namespace

TEST_CASE("sync_id: ids that C made are taken over, and destroyed with all that C made for them") {
    world w;
    SECTION("of rdma_create_ep, for a client with a QP") {
        ibv_qp_init_attr const attr = usual_attr();
        rdma_cm_id* const raw = make_ep(look_up(false), &attr);
        rdma::sync_id id(rdma::adopt, raw);
        CHECK(id.native_handle() == raw);
        CHECK(id.peer_addr() == rdma::address(rxe_host, 7471));
        CHECK(id.qp().native_handle() == raw->qp);
        CHECK(id.pd().native_handle() == raw->pd);
        CHECK(id.verbs().native_handle() == raw->verbs);
        CHECK(id.verbs().device_name() == "rxe0");
        CHECK_FALSE(id.srq());
        id = {};
        CHECK(fake::count("rdma_destroy_ep", raw) == 1);
        CHECK(fake::count("ibv_destroy_qp") == 1);
        CHECK(fake::count("ibv_destroy_cq") == 2);
    }
    SECTION("of rdma_create_ep, for a listener") {
        rdma::sync_id const id(rdma::adopt, make_ep(look_up(true)));
        CHECK(id.local_addr() == rdma::address(rxe_host, 7471));
        CHECK_FALSE(id.qp());
    }
    SECTION("of rdma_create_id without a channel") {
        rdma_cm_id* raw = nullptr;
        REQUIRE(::rdma_create_id(nullptr, &raw, nullptr, RDMA_PS_TCP) == 0);
        rdma::sync_id const id(rdma::adopt, raw);
        CHECK_FALSE(id.verbs());
        CHECK_FALSE(id.pd());
        CHECK(id.event() == nullptr);
        rdma::cm_id_ref const view = id;
        CHECK(view.native_handle() == raw);
    }
    SECTION("of rdma_migrate_id without a channel") {
        rdma::event_channel channel;
        rdma::cm_id asynchronous = make_client(channel);
        rdma_cm_id* const raw = asynchronous.release();
        REQUIRE(::rdma_migrate_id(raw, nullptr) == 0);
        rdma::sync_id const id(rdma::adopt, raw);
        CHECK(id.verbs());
    }
    SECTION("of rdma_get_request") {
        rdma::sync_id const listener = make_sync_listener();
        rdma::sync_id const child(rdma::adopt, pushed_child_of_c(listener.native_handle()));
        CHECK(child.qp());
    }
    SECTION("with an SRQ, and with a QP that only sends") {
        rdma_cm_id* const raw = make_ep(look_up(false));
        ibv_srq_init_attr shared{};
        shared.attr = {8, 1, 0};
        REQUIRE(::rdma_create_srq(raw, nullptr, &shared) == 0);
        ibv_qp_init_attr attr = usual_attr();
        attr.cap.max_recv_wr = 0; // C leaves the send CQ of such a one behind
        attr.qp_type = IBV_QPT_RC;
        REQUIRE(::rdma_create_qp(raw, nullptr, &attr) == 0);
        rdma::sync_id const id(rdma::adopt, raw);
        CHECK(id.srq().native_handle() == raw->srq);
    }
    CHECK(fake::leaks() == "");
}

TEST_CASE("sync_id: what cannot be taken over") {
    world w;
    rdma::event_channel channel;
    rdma::cm_id asynchronous = make_id(channel);
    rdma_cm_id* const raw = make_ep(look_up(true));
    std::error_code ec;
    CHECK(thrown([] { rdma::sync_id const id(rdma::adopt, nullptr); }, "rdma_create_ep(adopt)") ==
          rdma::errc::null_handle);
    CHECK(thrown([&] { rdma::sync_id const id(rdma::adopt, asynchronous.native_handle()); }) ==
          rdma::errc::wrong_channel);
    rdma::sync_id first(rdma::adopt, raw);
    CHECK(thrown([&] { rdma::sync_id const id(rdma::adopt, raw); }) == rdma::errc::already_owned);
    rdma::sync_id const second(rdma::adopt, raw, ec);
    CHECK(ec == rdma::errc::already_owned);
    CHECK_FALSE(second);

    first.listen();
    rdma::sync_id child = pushed_child(first);
    CHECK(thrown([&] { rdma::sync_id const id(rdma::adopt, child.native_handle()); }) == rdma::errc::already_owned);
}

TEST_CASE("sync_id: its channel has the address of one that C destroyed after it was released") {
    world w;
    fake::set_reuse_addresses(true);
    rdma::event_channel channel;
    rdma::cm_id asynchronous = make_id(channel);
    rdma_cm_id* const released = asynchronous.release();
    rdma_event_channel* const place = channel.release();
    CHECK(::rdma_destroy_id(released) == 0);
    ::rdma_destroy_event_channel(place);
    rdma_cm_id* const raw = make_ep(look_up(false));
    REQUIRE(raw->channel == place);
    CHECK(rdma::sync_id(rdma::adopt, raw));
}

TEST_CASE("sync_id: released to C, and taken over again") {
    world w;
    rdma::sync_id id(rdma::adopt, make_ep(look_up(false)));
    std::size_t const before = calls_made();
    rdma_cm_id* const raw = id.release();
    CHECK(raw);
    CHECK_FALSE(id);
    CHECK(id.release() == nullptr);
    id = rdma::sync_id(rdma::adopt, raw);
    CHECK(id.release() == raw);
    CHECK(calls_made() == before);
    ::rdma_destroy_ep(raw);
    CHECK(fake::leaks() == "");

    fake::set_reuse_addresses(true); // C destroyed it: another at its address is another
    rdma::sync_id again(rdma::adopt, make_ep(look_up(false)));
    rdma_cm_id* const given = again.release();
    ::rdma_destroy_ep(given);
    again = rdma::sync_id(rdma::adopt, make_ep(look_up(false)));
    CHECK(again.native_handle() == given);
}

TEST_CASE("sync_id: moved, swapped, assigned over") {
    world w;
    rdma_cm_id* const one = make_ep(look_up(true));
    rdma_cm_id* const two = make_ep(look_up(false));
    rdma::sync_id a(rdma::adopt, one), b(rdma::adopt, two);
    swap(a, b);
    CHECK(a.native_handle() == two);
    a = std::move(b);
    CHECK(fake::count("rdma_destroy_ep", two) == 1);
    CHECK(a.native_handle() == one);
    CHECK_FALSE(b);
    rdma::sync_id const c = std::move(a);
    CHECK_FALSE(a);
    CHECK(c.native_handle() == one);
    CHECK(fake::count("rdma_destroy_ep") == 1);
}

TEST_CASE("sync_id: C's parked event is only looked at") {
    world w;
    rdma::sync_id listener = make_sync_listener();
    CHECK(listener.event() == nullptr);
    rdma::sync_id child = pushed_child(listener);
    REQUIRE(child.event() == child.native_handle()->event);
    CHECK(child.event()->event == RDMA_CM_EVENT_CONNECT_REQUEST);
    CHECK(text_of(child.event()->param.conn.private_data, 6) == "pushed");
    CHECK(fake::unacked(listener.native_handle()) == 1);
    child.accept();
    CHECK(child.event()->event == RDMA_CM_EVENT_ESTABLISHED);
    CHECK(fake::unacked(listener.native_handle()) == 0);
    CHECK(fake::count("rdma_ack_cm_event") == 0); // that is C's
    CHECK(rdma::sync_id().event() == nullptr);
}

TEST_CASE("sync_id: a conversation between two of them, on each device") {
    for (char const* host : {rxe_host, siw_host}) {
        world w;
        both::watchdog const watch;
        INFO(host);
        rdma::sync_id listener = make_sync_listener(host);
        ibv_qp_init_attr const attr = usual_attr();
        rdma::sync_id client(rdma::adopt, make_ep(look_up(false, host), &attr));
        std::array<std::byte, 8> received{};
        rdma::mr region;
        auto serving = std::async(std::launch::async, [&] {
            rdma::sync_id child = listener.get_request();
            region = child.reg_msgs(received);
            child.post_recv(nullptr, received, region);
            child.accept(both::carrying("come in"));
            return child;
        });
        client.connect(both::carrying("hello"));
        rdma::sync_id server = serving.get();
        CHECK(client.event()->event == RDMA_CM_EVENT_ESTABLISHED);
        CHECK(text_of(client.event()->param.conn.private_data, 7) == "come in");
        std::array<std::byte, 8> message{};
        message.fill(std::byte{0x42});
        rdma::mr const mine = client.reg_msgs(message);
        client.post_send(nullptr, message, mine, IBV_SEND_SIGNALED);
        ibv_wc done{};
        CHECK(::rdma_get_send_comp(client.native_handle(), &done) == 1);
        CHECK(::rdma_get_recv_comp(server.native_handle(), &done) == 1);
        CHECK(received == message);

        client.disconnect();
        CHECK(client.event()->event == RDMA_CM_EVENT_DISCONNECTED);
        server.disconnect();
        std::size_t const before = calls_made();
        client.disconnect(); // C would wait for ever
        server.disconnect();
        CHECK(calls_made() == before);
    }
}

TEST_CASE("sync_id: a refusal") {
    world w;
    both::watchdog const watch;
    rdma::sync_id listener = make_sync_listener();
    ibv_qp_init_attr const attr = usual_attr();
    rdma::sync_id client(rdma::adopt, make_ep(look_up(false), &attr));
    auto serving = std::async(std::launch::async, [&] { listener.get_request().reject(bytes("no")); });
    CHECK(thrown([&] { client.connect(); }, "rdma_connect(10.77.1.1:7471)") == std::errc::connection_refused);
    serving.get();
    CHECK(client.event()->event == RDMA_CM_EVENT_REJECTED);
    CHECK(text_of(client.event()->param.conn.private_data, 2) == "no");
}

TEST_CASE("sync_id: a disconnect that failed can be tried again") {
    world w;
    rdma::sync_id listener = make_sync_listener();
    rdma::sync_id child = pushed_child(listener);
    child.accept();
    fake::fail("rdma_disconnect", 1, EIO);
    CHECK(thrown([&] { child.disconnect(); }, "rdma_disconnect") == system_code(EIO));
    child.disconnect();
    CHECK(child.event()->event == RDMA_CM_EVENT_DISCONNECTED);
    CHECK(fake::count("rdma_disconnect") == 2);
    child.disconnect();
    CHECK(fake::count("rdma_disconnect") == 2);
}

TEST_CASE("sync_id: each call that fails says so, in both forms") {
    world w;
    rdma::sync_id listener = make_sync_listener();
    rdma::sync_id child = pushed_child(listener);
    ibv_qp_init_attr const attr = usual_attr();
    rdma::sync_id client(rdma::adopt, make_ep(look_up(false), &attr));
    rdma::sync_id fresh(rdma::adopt, make_ep(look_up(true, siw_host)));
    struct call {
        char const* function;
        std::function<void()> throwing;
        std::function<void(std::error_code&)> twin;
    };
    call const all[] = {
        {"rdma_listen", [&] { fresh.listen(3); }, [&](std::error_code& ec) { fresh.listen(ec); }},
        {"rdma_get_request", [&] { static_cast<void>(listener.get_request()); },
         [&](std::error_code& ec) { CHECK_FALSE(listener.get_request(ec)); }},
        {"rdma_accept", [&] { child.accept(); }, [&](std::error_code& ec) { child.accept(ec); }},
        {"rdma_reject", [&] { child.reject(); }, [&](std::error_code& ec) { child.reject(ec); }},
        {"rdma_connect", [&] { client.connect(); }, [&](std::error_code& ec) { client.connect(ec); }},
        {"rdma_disconnect", [&] { client.disconnect(); }, [&](std::error_code& ec) { client.disconnect(ec); }},
    };
    for (call const& each : all) {
        INFO(each.function);
        fake::fail(each.function, 1, EMFILE);
        CHECK(thrown(each.throwing, each.function) == system_code(EMFILE));
        fake::fail(each.function, 1, ENFILE);
        std::error_code ec;
        each.twin(ec);
        CHECK(ec == system_code(ENFILE));
    }
    child.reject(); // none of them has decided it
    fresh.listen();
    CHECK(fake::live().ids == 4);
}

TEST_CASE("sync_id: what cannot be is refused before C is called") {
    world w;
    std::string const much(256, 'x');
    rdma::sync_id listener = make_sync_listener(siw_host);
    rdma::sync_id child = pushed_child(listener);
    rdma_cm_id* raw = nullptr;
    REQUIRE(::rdma_create_id(nullptr, &raw, nullptr, RDMA_PS_TCP) == 0);
    rdma::sync_id bare(rdma::adopt, raw), empty;
    std::size_t const before = calls_made();
    CHECK(thrown([&] { child.accept(both::carrying(much)); }) == rdma::errc::private_data_too_long);
    CHECK(thrown([&] { child.accept(both::carrying(much.substr(4))); }) == rdma::errc::private_data_iwarp);
    CHECK(thrown([&] { child.reject(bytes(much)); }, "256 bytes") == rdma::errc::private_data_too_long);
    CHECK(thrown([&] { child.connect({.retry_count = 8}); }) == rdma::errc::retry_count_out_of_range);
    CHECK(thrown([&] { bare.connect(); }) == rdma::errc::not_bound);
    CHECK(thrown([&] { bare.accept(); }) == rdma::errc::not_bound);
    CHECK(thrown([&] { bare.disconnect(); }) == rdma::errc::not_bound);
    std::array<std::byte, 4> memory{};
    CHECK(thrown([&] { static_cast<void>(bare.reg_msgs(memory)); }) == rdma::errc::not_bound);
    for (auto const& call : std::initializer_list<std::function<void()>>{
             [&] { empty.listen(); }, [&] { static_cast<void>(empty.get_request()); }, [&] { empty.accept(); },
             [&] { empty.reject(); }, [&] { empty.connect(); }, [&] { empty.disconnect(); }})
        CHECK(thrown(call) == rdma::errc::empty_handle);
    CHECK_FALSE(empty.verbs());
    CHECK_FALSE(empty.pd());
    CHECK_FALSE(empty.qp());
    CHECK_FALSE(empty.srq());
    CHECK(calls_made() == before);
}

// ---- A failed request ---------------------------------------------------------------------------------------------

TEST_CASE("sync_id: a request that fails leaks nothing, and the peer is rejected") {
    world w;
    ibv_qp_init_attr attr = usual_attr();
    attr.cap.max_send_wr = 1 << 30; // no device has that many
    rdma::sync_id listener(rdma::adopt, make_ep(look_up(true), &attr));
    listener.listen();
    for (int i = 0; i != 3; ++i) {
        rdma::event_channel channel;
        rdma::cm_id client = make_client(channel);
        client.create_qp({});
        client.connect();
        std::error_code ec;
        if (i == 0)
            ec = thrown([&] { static_cast<void>(listener.get_request()); }, "rdma_get_request");
        else
            CHECK_FALSE(listener.get_request(ec));
        CHECK(ec == std::errc::invalid_argument);
        expect(channel, type::rejected);
        CHECK(fake::live().ids == 2); // in C there would be one more each time
    }
}

TEST_CASE("sync_id: a request that fails for another reason than the one before it") {
    world w;
    ibv_qp_init_attr attr = usual_attr();
    attr.cap.max_send_wr = 1 << 30;
    rdma::sync_id listener(rdma::adopt, make_ep(look_up(true), &attr));
    listener.listen();
    push_request(listener);
    std::error_code ec;
    CHECK_FALSE(listener.get_request(ec));
    CHECK(ec == std::errc::invalid_argument);
    fake::fail("rdma_get_request", 1, EMFILE); // before C has acked what it parked
    CHECK_FALSE(listener.get_request(ec));
    CHECK(ec == system_code(EMFILE));
    fake::push(listener.native_handle(), {RDMA_CM_EVENT_ADDR_CHANGE, 0});
    CHECK_FALSE(listener.get_request(ec)); // no request at all
    CHECK(ec == std::errc::invalid_argument);
    CHECK(fake::live().ids == 1);
    CHECK(fake::count("rdma_destroy_ep") == 1);
}

TEST_CASE("sync_id: a listener is dropped after a request has failed, as its children may be") {
    for (bool child_first : {true, false}) {
        world w;
        rdma::sync_id listener = make_sync_listener();
        rdma::sync_id child = pushed_child(listener);
        fake::push(listener.native_handle(), {RDMA_CM_EVENT_DEVICE_REMOVAL});
        std::error_code ec;
        CHECK_FALSE(listener.get_request(ec));
        CHECK(ec);
        CHECK(listener.event()->event == RDMA_CM_EVENT_DEVICE_REMOVAL);
        (child_first ? child : listener) = {};
        (child_first ? listener : child) = {};
        CHECK(fake::leaks() == "");
    }
}

// ---- Any order ----------------------------------------------------------------------------------------------------

TEST_CASE("sync_id: a listener and the ids of its requests are dropped in any order") {
    for (unsigned release : {44U, 52U}) // before 52 C keeps the event of an accepted datagram id parked
        for (rdma::port_space ps : {rdma::port_space::tcp, rdma::port_space::udp})
            for (unsigned accepted = 0; accepted != 4; ++accepted) {
                std::array<int, 3> order{0, 1, 2};
                do {
                    world w;
                    fake::set_rdma_core(release);
                    INFO("rdma-core " << release << (ps == rdma::port_space::udp ? ", UD" : ", RC") << ", accepted "
                                      << accepted << ", order " << order[0] << order[1] << order[2]);
                    rdma::sync_id all[3];
                    all[0] = make_sync_listener(rxe_host, ps);
                    for (unsigned i = 0; i != 2; ++i) {
                        all[i + 1] = pushed_child(all[0]);
                        if ((accepted >> i & 1U) != 0)
                            all[i + 1].accept();
                    }
                    for (int which : order)
                        all[which] = {};
                    CHECK(fake::leaks() == "");
                    CHECK(fake::count("rdma_destroy_ep") == 3);
                } while (std::next_permutation(order.begin(), order.end()));
            }
}

TEST_CASE("sync_id: the same, taken over one by one, in any order of that, too") {
    for (rdma::port_space ps : {rdma::port_space::tcp, rdma::port_space::udp}) {
        std::array<int, 3> taking{0, 1, 2};
        do {
            std::array<int, 3> order{0, 1, 2};
            do {
                world w;
                INFO((ps == rdma::port_space::udp ? "UD" : "RC")
                     << ", taken over " << taking[0] << taking[1] << taking[2] << ", dropped " << order[0] << order[1]
                     << order[2]);
                ibv_qp_init_attr const attr = usual_attr();
                rdma_cm_id* raw[3] = {make_ep(look_up(true, rxe_host, ps), &attr)};
                REQUIRE(::rdma_listen(raw[0], 0) == 0);
                raw[1] = pushed_child_of_c(raw[0]);
                raw[2] = pushed_child_of_c(raw[0]);
                rdma::sync_id all[3];
                for (int which : taking)
                    all[which] = rdma::sync_id(rdma::adopt, raw[which]);
                all[1].accept();
                for (int which : order)
                    all[which] = {};
                CHECK(fake::leaks() == "");
            } while (std::next_permutation(order.begin(), order.end()));
        } while (std::next_permutation(taking.begin(), taking.end()));
    }
}

TEST_CASE("sync_id: a dropped listener keeps its port while a request of it is undecided") {
    for (bool accepts : {true, false}) {
        world w;
        rdma::sync_id listener = make_sync_listener();
        rdma::sync_id child = pushed_child(listener);
        rdma_cm_id* const raw = listener.native_handle();
        listener = {};
        CHECK(fake::count("rdma_destroy_ep") == 0);
        if (accepts)
            child.accept();
        else
            child = {};
        CHECK(fake::count("rdma_destroy_ep", raw) == 1);
        CHECK(rdma::acceptor(rdma::address(rxe_host, 7471)).fd() >= 0);
    }
}

TEST_CASE("sync_id: a child whose listener is C's") {
    world w;
    rdma_cm_id* const listener = make_ep(look_up(true));
    REQUIRE(::rdma_listen(listener, 0) == 0);
    rdma::sync_id child(rdma::adopt, pushed_child_of_c(listener));
    child = {};
    ::rdma_destroy_ep(listener);
    CHECK(fake::leaks() == "");
}

TEST_CASE("sync_id: a listener whose children are C's") {
    world w;
    rdma::sync_id listener = make_sync_listener();
    rdma_cm_id* const child = pushed_child_of_c(listener.native_handle());
    ::rdma_destroy_ep(child); // first, as in C
    listener = {};
    CHECK(fake::leaks() == "");
}

TEST_CASE("sync_id: a listener that is released while ids of its requests wait is C's to destroy, after them") {
    world w;
    rdma::sync_id listener = make_sync_listener();
    rdma::sync_id one = pushed_child(listener), two = pushed_child(listener);
    rdma_cm_id* const raw = listener.release();
    one = {};
    CHECK(fake::count("rdma_destroy_ep", raw) == 0);
    listener = rdma::sync_id(rdma::adopt, raw); // and back again: what is left of its requests needs it
    listener = {};
    CHECK(fake::count("rdma_destroy_ep", raw) == 0);
    two = {};
    CHECK(fake::count("rdma_destroy_ep", raw) == 1);
    CHECK(fake::leaks() == "");
}

TEST_CASE("sync_id: a dropped listener that waits, and a child that is released") {
    world w;
    rdma::sync_id listener = make_sync_listener();
    rdma::sync_id child = pushed_child(listener);
    rdma_cm_id* const raw = child.release(); // with the event that is charged to the listener
    ::rdma_destroy_ep(raw);                  // the listener must outlive that
    listener = {};
    CHECK(fake::leaks() == "");
}

// ---- What is made from it -----------------------------------------------------------------------------------------

TEST_CASE("sync_id: what is made from its device keeps it alive") {
    world w;
    std::array<std::byte, 64> memory{};
    rdma::sync_id listener = make_sync_listener();
    rdma::sync_id child = pushed_child(listener);
    rdma_cm_id* const raw = child.native_handle();
    std::optional<rdma::pd> pd(child.verbs());
    std::optional<rdma::mr> region(child.reg_msgs(memory));
    rdma::comp_channel completions(child.verbs());
    rdma::cq cq(child.verbs(), 8, completions);
    child = {};
    listener = {};
    completions = {};
    cq = {};
    region.reset();
    CHECK(fake::count("rdma_destroy_ep", raw) == 0);
    pd.reset();
    CHECK(fake::count("rdma_destroy_ep", raw) == 1);
    CHECK(fake::count("rdma_destroy_ep") == 2);
    CHECK(fake::leaks() == "");
}

TEST_CASE("sync_id: an async event of its QP or SRQ is held while it is dropped") {
    for (bool of_srq : {false, true}) {
        world w;
        INFO((of_srq ? "SRQ" : "QP"));
        rdma_cm_id* const raw = make_ep(look_up(false));
        ibv_srq_init_attr shared{};
        shared.attr = {8, 1, 0};
        if (of_srq)
            REQUIRE(::rdma_create_srq(raw, nullptr, &shared) == 0);
        ibv_qp_init_attr attr = usual_attr();
        attr.qp_type = IBV_QPT_RC;
        REQUIRE(::rdma_create_qp(raw, nullptr, &attr) == 0);
        rdma::sync_id client(rdma::adopt, raw);
        if (of_srq)
            fake::push_async(raw->srq, IBV_EVENT_SRQ_LIMIT_REACHED);
        else
            fake::push_async(raw->qp, IBV_EVENT_COMM_EST);
        rdma::async_event held = async_event_of(client.verbs());
        REQUIRE(held);
        client = {};
        CHECK(fake::count("rdma_destroy_ep") == 0);
        CHECK(fake::live().qps == (of_srq ? 0U : 1U));
        held.ack();
        CHECK(fake::count("rdma_destroy_ep", raw) == 1);
        CHECK(fake::leaks() == "");
    }
}

TEST_CASE("sync_id: a destroy that fails is told to the handler") {
    for (char const* function : {"ibv_destroy_qp", "ibv_destroy_cq", "ibv_destroy_comp_channel"}) {
        world w;
        w.messy();
        INFO(function);
        ibv_qp_init_attr const attr = usual_attr();
        rdma::sync_id client(rdma::adopt, make_ep(look_up(false), &attr));
        fake::fail(function, 1, EIO);
        client = {};
        auto const told = w.told();
        REQUIRE_FALSE(told.empty());
        CHECK(told[0].kind == rdma::diagnostic_kind::destroy_failed);
        CHECK(told[0].function == std::string(function));
        CHECK(told[0].error == system_code(EIO));
        CHECK(fake::live().ids == 0);
        CHECK(fake::would_hang() == std::vector<std::string>{});
    }
    world w;
    w.messy();
    rdma::sync_id client(rdma::adopt, make_ep(look_up(false)));
    fake::set_credentials_changed(true);
    client = {};
    REQUIRE(w.told().size() == 1);
    CHECK(w.told()[0].function == std::string("rdma_destroy_ep"));
    CHECK(w.told()[0].error == system_code(EACCES));
}

TEST_CASE("sync_id: on threads of their own") {
    world w;
    both::watchdog const watch;
    fake::set_reuse_addresses(true);
    constexpr int rounds = 100;
    auto const live = [](char const* port) {
        ibv_qp_init_attr attr = usual_attr();
        for (int i = 0; i != rounds; ++i) {
            rdma_cm_id* raw = nullptr;
            if (::rdma_create_ep(&raw, look_up(true, rxe_host, rdma::port_space::tcp, port).native_handle(), nullptr,
                                 &attr) != 0)
                return false;
            rdma::sync_id listener(rdma::adopt, raw);
            listener.listen();
            rdma::sync_id one = pushed_child(listener), two = pushed_child(listener);
            listener = {};
            one.accept();
            two = {};
        }
        return true;
    };
    auto first = std::async(std::launch::async, live, "7472");
    auto second = std::async(std::launch::async, live, "7473");
    CHECK(first.get());
    CHECK(second.get());
    CHECK(fake::count("rdma_destroy_ep") == 2 * 3 * rounds);
}

// ---- Each C function fails once, and each allocation --------------------------------------------------------------

namespace {

std::error_code last_error() { return {errno, std::system_category()}; }

/// A listener with two requests, one accepted and ended, one left alone, and a client that has gone as far as it can
/// alone; and what is made from them. All are dropped in the order in which no C program could.
std::error_code play(char const* host) {
    std::error_code ec;
    rdma::addrinfo const here(host, "7471", {.passive = true, .numeric_host = true}, ec);
    if (ec)
        return ec;
    rdma::addrinfo const there(host, "7471", {.numeric_host = true}, ec);
    if (ec)
        return ec;
    ibv_qp_init_attr attr = usual_attr();
    rdma_cm_id* raw = nullptr;
    std::array<std::byte, 8> memory{};
    rdma::mr region;
    rdma::sync_id listener, one, two, client;
    if (::rdma_create_ep(&raw, here.native_handle(), nullptr, &attr) != 0)
        return last_error();
    listener = rdma::sync_id(rdma::adopt, raw, ec);
    if (ec) {
        ::rdma_destroy_ep(raw); // it is C's still
        return ec;
    }
    listener.listen(ec);
    for (rdma::sync_id* const each : {&one, &two}) {
        if (ec)
            return ec;
        push_request(listener);
        *each = listener.get_request(ec);
    }
    if (!ec)
        one.accept(ec);
    if (!ec)
        region = one.reg_msgs(memory, ec);
    if (!ec)
        one.post_recv(nullptr, memory, region, std::nothrow);
    if (!ec)
        one.disconnect(ec);
    if (ec)
        return ec;
    if (::rdma_create_ep(&raw, there.native_handle(), nullptr, &attr) != 0)
        return last_error();
    client = rdma::sync_id(rdma::adopt, raw, ec);
    if (ec)
        ::rdma_destroy_ep(raw);
    listener = {};
    return ec;
}

} // namespace

TEST_CASE("sync_id: each C function of its life fails once") {
    world w;
    w.messy();
    both::watchdog const watch;
    for (char const* host : {rxe_host, siw_host})
        for (unsigned nth = 1;; ++nth) {
            fake::reset();
            diagnostics::get().clear();
            fake::fail_any(nth);
            std::error_code const ec = play(host);
            fake::failure const fault = fake::failed();
            fake::disarm();
            INFO(host << ", fault " << nth << " in " << fault.function);
            CHECK(fake::would_hang() == std::vector<std::string>{});
            CHECK(fake::live().events == 0);
            bool const destroys =
                fault.function.find("_destroy_") != std::string::npos || fault.function == "ibv_dereg_mr";
            if (diagnostics::get().count(rdma::diagnostic_kind::destroy_failed) != 0) {
                CHECK(destroys);
            } else {
                CHECK(fake::leaks() == "");
                CHECK(fake::misuse() == std::vector<std::string>{});
            }
            if (fault.function.empty()) {
                CHECK_FALSE(ec);
                CHECK(nth > 15);
                break;
            }
            if (ec)
                CHECK(ec == system_code(fault.code));
            else
                CHECK((destroys || fault.function == "ibv_post_recv"));
        }
}

TEST_CASE("sync_id: an event of its CQ is held beyond it") {
    world w;
    rdma::addrinfo const found(rxe_host, "7471");
    ibv_qp_init_attr attr{};
    attr.cap = {16, 16, 1, 1, 0};
    rdma_cm_id* raw = nullptr;
    REQUIRE(::rdma_create_ep(&raw, found.native_handle(), nullptr, &attr) == 0);
    rdma::sync_id id(rdma::adopt, raw);
    fake::push_async(raw->send_cq, IBV_EVENT_CQ_ERR);
    rdma::async_event held = async_event_of(id.verbs());
    REQUIRE(held);
    id = {};
    CHECK(fake::count("ibv_destroy_cq") == 1); // that of receives
    held.ack();
    CHECK(fake::count("ibv_destroy_cq") == 2);
}

TEST_CASE("sync_id: each allocation of its life fails once") {
    RDMACPP_NEED_ALLOCATIONS();
    world w;
    both::watchdog const watch;
    for (char const* host : {rxe_host, siw_host})
        for (std::size_t nth = 1;; ++nth) {
            fake::reset();
            diagnostics::get().clear();
            std::error_code ec;
            {
                allocation_watch const failing(nth);
                ec = play(host);
            }
            INFO(host << ", allocation " << nth);
            CHECK(fake::leaks() == "");
            CHECK(fake::misuse() == std::vector<std::string>{});
            CHECK(fake::would_hang() == std::vector<std::string>{});
            if (!allocation_struck()) {
                CHECK_FALSE(ec);
                CHECK(nth > 4);
                break;
            }
            CHECK(ec == std::errc::not_enough_memory);
        }
}
