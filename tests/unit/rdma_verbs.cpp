// SPDX-License-Identifier: MIT
// The shorthands of <rdma/rdma_verbs.h>: registering memory and posting requests through an id.
#include "datagrams.hpp"

using namespace unit;

namespace {

/// Two ends of a connection, with memory that is registered through the ids.
struct exchange : world {
    connection c;
    std::array<std::byte, 64> here{}, there{};
    rdma::mr ours, theirs;
    int tag = 0, other_tag = 0;

    void on(char const* host) {
        c = connect_pair(host, {.cap = {.max_send_sge = 2, .max_recv_sge = 2, .max_inline_data = 32}});
        ours = c.client.reg_msgs(here);
        theirs = c.server.reg_write(there);
        for (std::size_t i = 0; i != here.size(); ++i)
            here[i] = std::byte(i + 1);
    }
    std::span<std::byte> mine(std::size_t from, std::size_t size) { return std::span(here).subspan(from, size); }
    std::span<std::byte> yours(std::size_t from, std::size_t size) { return std::span(there).subspan(from, size); }

    /// The wr_id of a completion is the pointer that was given.
    void completed(rdma::cq_ref cq, void const* context, rdma::wc_opcode opcode) {
        auto const wc = poll_one(cq);
        REQUIRE(wc);
        REQUIRE(*wc);
        CHECK(wc->wr_id() == reinterpret_cast<std::uintptr_t>(context));
        CHECK(wc->success().opcode() == opcode);
    }
    void sent(rdma::wc_opcode opcode) { completed(c.client.send_cq(), &tag, opcode); }
    void received() { completed(c.server.recv_cq(), &other_tag, rdma::wc_opcode::recv); }
    bool same(std::size_t from, std::size_t to, std::size_t size) {
        return std::memcmp(there.data() + to, here.data() + from, size) == 0;
    }
};

constexpr int signaled = IBV_SEND_SIGNALED;

} // namespace

TEST_CASE_METHOD(exchange, "rdma_verbs: memory is registered on the id's PD, for what its name says", "[rdma_verbs]") {
    on(rxe_host);
    rdma::mr const msgs = c.server.reg_msgs(there), read = c.server.reg_read(there), write = c.server.reg_write(there);
    CHECK(msgs.native_handle()->pd == c.server.pd().native_handle());
    CHECK(fake::count("ibv_reg_mr", c.server.pd().native_handle()) >= 3);
    auto const reads = [&](rdma::mr const& from) {
        c.client.post_read(&tag, mine(0, 8), ours, signaled, from.remote());
        return poll_one(c.client.send_cq())->status();
    };
    CHECK(reads(read) == rdma::wc_status::success);
    CHECK(reads(msgs) == rdma::wc_status::rem_access_err);
}

TEST_CASE_METHOD(exchange, "rdma_verbs: only memory that was registered for it is written by the peer",
                 "[rdma_verbs]") {
    on(rxe_host);
    rdma::mr const read = c.server.reg_read(there);
    c.client.post_write(&tag, mine(0, 8), ours, signaled, theirs.remote());
    sent(rdma::wc_opcode::rdma_write);
    c.client.post_write(&tag, mine(0, 8), ours, signaled, read.remote());
    CHECK(poll_one(c.client.send_cq())->status() == rdma::wc_status::rem_access_err);
}

TEST_CASE_METHOD(exchange, "rdma_verbs: a message, and the contexts of both ends", "[rdma_verbs]") {
    on(GENERATE(rxe_host, siw_host));
    c.server.post_recv(&other_tag, yours(8, 16), theirs);
    c.client.post_send(&tag, mine(0, 16), ours, signaled);
    sent(rdma::wc_opcode::send);
    received();
    CHECK(same(0, 8, 16));
    c.server.post_recv(&other_tag, yours(0, 4), theirs);
    c.client.post_send(&tag, mine(4, 4), ours); // in silence
    received();
    CHECK(same(4, 0, 4));
    CHECK_FALSE(poll_one(c.client.send_cq()));
}

TEST_CASE_METHOD(exchange, "rdma_verbs: inline sends and writes need no region, and the bytes may change at once",
                 "[rdma_verbs]") {
    on(rxe_host);
    std::array<std::byte, 4> passing{std::byte{9}, std::byte{8}};
    c.server.post_recv(&other_tag, yours(0, 8), theirs);
    c.client.post_send(&tag, passing, rdma::mr(), signaled | IBV_SEND_INLINE);
    passing.fill(std::byte{0});
    sent(rdma::wc_opcode::send);
    received();
    CHECK(there[1] == std::byte{8});
    passing.fill(std::byte{7});
    c.client.post_write(&tag, passing, rdma::mr(), signaled | IBV_SEND_INLINE, theirs.remote());
    sent(rdma::wc_opcode::rdma_write);
    CHECK(there[3] == std::byte{7});
}

TEST_CASE_METHOD(exchange, "rdma_verbs: reads and writes of the peer's memory", "[rdma_verbs]") {
    on(GENERATE(rxe_host, siw_host));
    c.client.post_write(&tag, mine(0, 16), ours, signaled, theirs.remote());
    sent(rdma::wc_opcode::rdma_write);
    CHECK(same(0, 0, 16));
    rdma::mr const readable = c.server.reg_read(there), sink = c.client.reg_write(here); // as iWARP needs it
    rdma::remote_memory from = readable.remote();
    from.address += 8;
    c.client.post_read(&tag, mine(32, 8), sink, signaled, from);
    sent(rdma::wc_opcode::rdma_read);
    CHECK(same(32, 8, 8));
}

TEST_CASE_METHOD(exchange, "rdma_verbs: vectors of pieces", "[rdma_verbs]") {
    on(rxe_host);
    std::array<ibv_sge, 2> const from{ours.sge(0, 4), ours.sge(16, 4)}, into{theirs.sge(0, 4), theirs.sge(32, 4)};
    c.server.post_recvv(&other_tag, into);
    c.client.post_sendv(&tag, from, signaled);
    sent(rdma::wc_opcode::send);
    received();
    CHECK((same(0, 0, 4) && same(16, 32, 4)));
    c.client.post_writev(&tag, from, signaled, theirs.remote());
    sent(rdma::wc_opcode::rdma_write);
    CHECK((same(0, 0, 4) && same(16, 4, 4)));
    rdma::mr const readable = c.server.reg_read(there);
    std::array<ibv_sge, 2> const sink{ours.sge(40, 2), ours.sge(50, 2)};
    c.client.post_readv(&tag, sink, signaled, readable.remote());
    sent(rdma::wc_opcode::rdma_read);
    CHECK((same(40, 0, 2) && same(50, 2, 2)));
    c.server.post_recvv(&other_tag, {});
    c.client.post_sendv(&tag, {}); // nothing at all
    received();
}

TEST_CASE_METHOD(exchange, "rdma_verbs: each form gives the errno of a request that is refused", "[rdma_verbs]") {
    on(rxe_host);
    std::array<ibv_sge, 1> const piece{ours.sge()};
    rdma::remote_memory const peer = theirs.remote();
    rdma::cm_id& id = c.client;
    ibv_ah_attr attr{};
    attr.is_global = attr.port_num = 1;
    rdma::ah const handle(id.pd(), attr);
    auto const refused = [](char const* c_function, char const* name, auto&& throwing, auto&& twin) {
        fake::fail(c_function, 1, ENOMEM);
        CHECK(thrown(throwing, name) == std::errc::not_enough_memory);
        fake::fail(c_function, 1, EIO);
        CHECK(twin() == std::errc::io_error);
    };
    auto const no = std::nothrow;
    refused(
        "ibv_post_recv", "rdma_post_recv", [&] { id.post_recv(&tag, here, ours); },
        [&] { return id.post_recv(&tag, here, ours, no); });
    refused(
        "ibv_post_recv", "rdma_post_recvv", [&] { id.post_recvv(&tag, piece); },
        [&] { return id.post_recvv(&tag, piece, no); });
    refused(
        "ibv_post_send", "rdma_post_send", [&] { id.post_send(&tag, here, ours); },
        [&] { return id.post_send(&tag, here, ours, 0, no); });
    refused(
        "ibv_post_send", "rdma_post_sendv", [&] { id.post_sendv(&tag, piece); },
        [&] { return id.post_sendv(&tag, piece, 0, no); });
    refused(
        "ibv_post_send", "rdma_post_read", [&] { id.post_read(&tag, here, ours, 0, peer); },
        [&] { return id.post_read(&tag, here, ours, 0, peer, no); });
    refused(
        "ibv_post_send", "rdma_post_readv", [&] { id.post_readv(&tag, piece, 0, peer); },
        [&] { return id.post_readv(&tag, piece, 0, peer, no); });
    refused(
        "ibv_post_send", "rdma_post_write", [&] { id.post_write(&tag, here, ours, 0, peer); },
        [&] { return id.post_write(&tag, here, ours, 0, peer, no); });
    refused(
        "ibv_post_send", "rdma_post_writev", [&] { id.post_writev(&tag, piece, 0, peer); },
        [&] { return id.post_writev(&tag, piece, 0, peer, no); });
    refused(
        "ibv_post_send", "rdma_post_ud_send", [&] { id.post_ud_send(&tag, here, ours, 0, handle, 1); },
        [&] { return id.post_ud_send(&tag, here, ours, 0, handle, 1, no); });
    CHECK(id.post_send(&tag, here, ours, signaled, no) == std::errc{});
}

TEST_CASE_METHOD(exchange, "rdma_verbs: registering fails with C's reason, and before there is a device",
                 "[rdma_verbs]") {
    on(rxe_host);
    std::error_code ec;
    auto const each = [&](rdma::cm_id const& id, auto const& check) {
        check([&] { (void)id.reg_msgs(here); }, [&] { (void)id.reg_msgs(here, ec); });
        check([&] { (void)id.reg_read(here); }, [&] { (void)id.reg_read(here, ec); });
        check([&] { (void)id.reg_write(here); }, [&] { (void)id.reg_write(here, ec); });
    };
    each(c.client, [&](auto throwing, auto twin) {
        fake::fail("ibv_reg_mr", 1, EFAULT);
        CHECK(thrown(throwing, "64 bytes") == std::errc::bad_address);
        fake::fail("ibv_reg_mr", 1, EIO);
        twin();
        CHECK(ec == std::errc::io_error);
    });
    rdma::cm_id const unbound = make_id(c.client_channel);
    each(unbound, [&](auto throwing, auto twin) {
        std::size_t const calls = calls_made();
        CHECK(thrown(throwing) == rdma::errc::not_bound);
        twin();
        CHECK(ec == rdma::errc::not_bound);
        CHECK(calls_made() == calls);
    });
}

TEST_CASE("rdma_verbs: a receive goes to the id's SRQ when it has one, also before there is a QP",
          "[rdma_verbs][srq]") {
    world w;
    rdma::event_channel channel;
    rdma::cm_id id = make_bound(channel);
    std::array<std::byte, 8> memory{};
    rdma::mr const region = id.reg_msgs(memory);
    id.create_srq();
    id.post_recv(&id, memory, region);
    std::array<ibv_sge, 1> const piece{region.sge()};
    id.post_recvv(&id, piece);
    CHECK(fake::count("ibv_post_srq_recv", id.srq().native_handle()) == 2);
    CHECK(fake::count("ibv_post_recv") == 0);
}

TEST_CASE("rdma_verbs: a datagram with the usual key", "[rdma_verbs][datagrams]") {
    world w;
    rdma::event_channel channel;
    rdma::cm_id from = make_datagram_id(channel), to = make_datagram_id(channel);
    mailbox sender(from), receiver(to);
    ibv_ah_attr attr{};
    attr.is_global = 1;
    attr.port_num = to.port_num();
    attr.grh.dgid = to.sgid();
    rdma::ah const peer(from.pd(), attr);
    std::memcpy(sender.out.bytes.data(), "hello", 6);
    int tag = 0;
    from.post_ud_send(&tag, std::span(sender.out.bytes).first(6), sender.out_region, signaled, peer, to.qp().qp_num());
    auto const wc = poll_one(from.send_cq());
    REQUIRE(wc);
    CHECK((*wc && wc->wr_id() == reinterpret_cast<std::uintptr_t>(&tag)));
    CHECK(receiver.received() == "hello");
}

TEST_CASE("T15 the QP and its PD are gone, and memory is registered through the id", "[rdma_verbs]") {
    world w;
    rdma::event_channel channel;
    rdma::cm_id id = make_bound(channel);
    ibv_pd* const own = id.pd().native_handle();
    std::array<std::byte, 16> memory{};
    rdma::pd pd(id.verbs());
    id.create_qp(pd, {});
    ibv_pd* const users = pd.native_handle();
    {
        rdma::mr const region = id.reg_msgs(memory);
        CHECK(region.native_handle()->pd == users);
        pd = {};
        id.destroy_qp();
        CHECK(fake::count("ibv_dealloc_pd", users) == 0); // the region keeps it
    }
    CHECK(fake::count("ibv_dealloc_pd", users) == 1);
    rdma::mr const region = id.reg_write(memory);
    CHECK(region.native_handle()->pd == own);
}

TEST_CASE_METHOD(exchange,
                 "A24 the sink of a read needs remote write access on iWARP alone, and immediates are not there",
                 "[field][rdma_verbs]") {
    char const* const host = GENERATE(rxe_host, siw_host);
    on(host);
    bool const iwarp = c.client.verbs().transport() == rdma::transport_type::iwarp;
    CHECK(iwarp == (host == std::string(siw_host)));
    rdma::mr const readable = c.server.reg_read(there);
    SECTION("a sink that is only locally writable") {
        c.client.post_read(&tag, mine(0, 8), ours, signaled, readable.remote()); // flags are passed on untouched
        auto const wc = poll_one(c.client.send_cq());
        REQUIRE(wc);
        CHECK(static_cast<bool>(*wc) == !iwarp);
    }
    SECTION("an immediate") {
        c.server.post_recv(&other_tag, yours(0, 8), theirs);
        rdma::send_wr const request = rdma::send_wr::send(ours.sge(0, 4)).imm(htonl(7)).id(77);
        if (iwarp)
            CHECK(thrown([&] { c.client.qp().post_send(request); }, "request 77") != std::error_code());
        else
            c.client.qp().post_send(request);
    }
}

// ---- QPs with all that devices offer --------------------------------------------------------------------------------

TEST_CASE("create_qp_ex: as create_qp, on the default PD or one of the user's", "[qp]") {
    world w;
    rdma::event_channel channel;
    rdma::cm_id id = make_bound(channel);
    rdma::pd pd(id.verbs());
    ibv_pd *const own = id.pd().native_handle(), *const users = pd.native_handle();
    int mine = 0;
    rdma::qp_cap const granted = id.create_qp_ex({.attr = {.cap = {.max_send_wr = 3}, .user_context = &mine}});
    CHECK(granted.max_send_wr >= 3);
    CHECK(id.qp().native_handle()->qp_context == &mine);
    CHECK(id.qp().native_handle()->pd == own);
    CHECK(id.send_cq());
    CHECK(thrown([&] { id.create_qp_ex({}); }, "rdma_create_qp_ex") == rdma::errc::qp_exists);
    id.destroy_qp();
    id.create_qp_ex(pd, {});
    CHECK(id.qp().native_handle()->pd == users);
    pd = {};
    CHECK(fake::count("ibv_dealloc_pd", users) == 0);
    id.destroy_qp();
    CHECK(fake::count("ibv_dealloc_pd", users) == 1);
    CHECK(id.native_handle()->pd == own);
    CHECK(fake::count("rdma_create_qp_ex") == 2);
    CHECK(fake::live().cqs == 0);
    std::error_code ec;
    fake::fail("rdma_create_qp_ex", 1, ENOMEM);
    id.create_qp_ex({}, ec);
    CHECK(ec == std::errc::not_enough_memory);
    rdma::cm_id unbound = make_id(channel);
    unbound.create_qp_ex({}, ec);
    CHECK(ec == rdma::errc::not_bound);
}

TEST_CASE("create_qp_ex: a QP for the extended posting calls", "[qp]") {
    world w;
    rdma::event_channel channel;
    rdma::cm_id id = make_bound(channel);
    id.create_qp_ex({.comp_mask = IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, .send_ops_flags = IBV_QP_EX_WITH_SEND});
    ibv_qp_ex* const extended = ::ibv_qp_to_qp_ex(id.qp().native_handle());
    REQUIRE(extended);
    CHECK(extended->wr_start != nullptr);
}
