// SPDX-License-Identifier: MIT
// Work requests, one by one, in chains, and through the other interface of a QP: what is asked for is what happens, and
// what is refused is named.
#include "loopback.hpp"

#include <array>
#include <span>
#include <vector>

using namespace unit;

namespace {

constexpr std::uint64_t the_id = 0x1234567890abcdef;

/// Each request through both interfaces.
struct both_ways : loopback {
    bool const by_batch = GENERATE(false, true);

    /// @param fill says the same to a wr_batch @return its completion
    template <class Fill>
    rdma::work_completion did(rdma::send_wr request, Fill fill) {
        CAPTURE(by_batch);
        if (by_batch)
            left.ex().post([&](rdma::wr_batch& batch) { fill(batch.request(the_id, IBV_SEND_SIGNALED)); });
        else
            left.post_send(request.id(the_id).signaled());
        rdma::work_completion const wc = only(sends);
        CHECK(wc.wr_id() == the_id);
        CHECK(wc.qp_num() == left.qp_num());
        CHECK(wc.status() == rdma::wc_status::success);
        return wc;
    }
    rdma::work_completion received() {
        rdma::work_completion const wc = only(receives);
        CHECK(wc.status() == rdma::wc_status::success);
        CHECK(wc.qp_num() == right.qp_num());
        return wc;
    }
};

rdma::wc_opcode opcode_of(rdma::work_completion const& wc) { return wc.success().opcode(); }

using batch = rdma::wr_batch;

} // namespace

// ---- What each of them does -----------------------------------------------------------------------------------------

TEST_CASE_METHOD(both_ways, "requests: a send, with an immediate, or taking a key back", "[verbs][data]") {
    ibv_sge const from = ours.sge(0, 16);
    right.post_recv(rdma::recv_wr(theirs.sge()).id(21));
    CHECK(opcode_of(did(rdma::send_wr::send(from), [&](batch& b) { b.send().sge(from); })) == rdma::wc_opcode::send);
    rdma::work_completion const plain = received();
    CHECK(plain.wr_id() == 21);
    CHECK(plain.success().byte_len() == 16);
    CHECK_FALSE(plain.success().imm_data());
    CHECK_FALSE(plain.success().invalidated_rkey());
    CHECK_FALSE(plain.success().has_grh());
    CHECK(std::memcmp(there.data(), here.data(), 16) == 0);

    right.post_recv(rdma::recv_wr(theirs.sge()).id(22));
    did(rdma::send_wr::send(from).imm(htonl(7)), [&](batch& b) { b.send_imm(htonl(7)).sge(from); });
    rdma::work_completion const with_imm = received();
    CHECK(opcode_of(with_imm) == rdma::wc_opcode::recv);
    CHECK(with_imm.success().imm_data() == htonl(7));
    CHECK_FALSE(with_imm.success().invalidated_rkey());

    right.post_recv(rdma::recv_wr(theirs.sge()).id(23));
    did(rdma::send_wr::send_inv(from, 0x77), [&](batch& b) { b.send_inv(0x77).sge(from); });
    rdma::work_completion const with_inv = received();
    CHECK(with_inv.success().invalidated_rkey() == 0x77u);
    CHECK_FALSE(with_inv.success().imm_data());
}

TEST_CASE_METHOD(both_ways, "requests: several pieces are gathered in order, and scattered in order", "[verbs][data]") {
    std::array const from{ours.sge(4, 2), ours.sge(0, 3), ours.sge(10, 1)};
    std::array const into{theirs.sge(8, 1), theirs.sge(0, 5)};
    auto const arrived = [&] {
        bool const same = there[8] == here[4] && there[0] == here[5] && there[1] == here[0] && there[2] == here[1] &&
                          there[3] == here[2] && there[4] == here[10];
        there.fill(std::byte{0});
        return same;
    };
    right.post_recv(rdma::recv_wr(std::span(into)));
    did(rdma::send_wr::send(from), [&](batch& b) { b.send().sge(from); });
    rdma::work_completion const sent = received();
    CHECK(sent.success().byte_len() == 6);
    CHECK(arrived());

    right.post_recv(rdma::recv_wr(std::span(into)));
    did(rdma::send_wr::send_inv(from, 0x78), [&](batch& b) { b.send_inv(0x78).sge(from); });
    rdma::work_completion const with_inv = received();
    CHECK(with_inv.success().invalidated_rkey() == 0x78u);
    CHECK(arrived());

    did(rdma::send_wr::write(from, theirs.remote(16)), [&](batch& b) { b.write(theirs.remote(16)).sge(from); });
    CHECK(there[16] == here[4]);
    CHECK(there[18] == here[0]);
    CHECK(there[21] == here[10]);
    std::array const back{ours.sge(40, 4), ours.sge(32, 2)};
    did(rdma::send_wr::read(back, theirs.remote(16)), [&](batch& b) { b.read(theirs.remote(16)).sge(back); });
    CHECK(std::memcmp(&here[40], &there[16], 4) == 0);
    CHECK(std::memcmp(&here[32], &there[20], 2) == 0);
}

TEST_CASE_METHOD(both_ways, "requests: the peer's memory is written, with an immediate or not, and read",
                 "[verbs][data]") {
    ibv_sge const from = ours.sge(0, 16);
    CHECK(opcode_of(did(rdma::send_wr::write(from, theirs.remote(8)),
                        [&](batch& b) { b.write(theirs.remote(8)).sge(from); })) == rdma::wc_opcode::rdma_write);
    CHECK(std::memcmp(&there[8], here.data(), 16) == 0);
    CHECK(there[7] == std::byte{0});
    CHECK(all_of(receives).empty());

    right.post_recv(rdma::recv_wr(theirs.sge()).id(31));
    CHECK(opcode_of(did(rdma::send_wr::write(from, theirs.remote(32)).imm(htonl(9)), [&](batch& b) {
              b.write_imm(theirs.remote(32), htonl(9)).sge(from);
          })) == rdma::wc_opcode::rdma_write);
    rdma::work_completion const told = received();
    CHECK(told.wr_id() == 31);
    CHECK(opcode_of(told) == rdma::wc_opcode::recv_rdma_with_imm);
    CHECK(told.success().imm_data() == htonl(9));
    CHECK(std::memcmp(&there[32], here.data(), 16) == 0);

    ibv_sge const into = ours.sge(48, 8);
    CHECK(opcode_of(did(rdma::send_wr::read(into, theirs.remote(33)),
                        [&](batch& b) { b.read(theirs.remote(33)).sge(into); })) == rdma::wc_opcode::rdma_read);
    CHECK(std::memcmp(&here[48], &there[33], 8) == 0);
}

TEST_CASE_METHOD(both_ways, "requests: atomics change the peer's memory, and tell what was there", "[verbs][data]") {
    ibv_sge const before = ours.sge(8, 8);
    rdma::remote_memory const at = theirs.remote(16);
    put_number(&there[16], 100);
    CHECK(opcode_of(did(rdma::send_wr::fetch_add(before, at, 11),
                        [&](batch& b) { b.fetch_add(at, 11).sge(before); })) == rdma::wc_opcode::fetch_add);
    CHECK(number_at(&here[8]) == 100);
    CHECK(number_at(&there[16]) == 111);

    CHECK(opcode_of(did(rdma::send_wr::comp_swap(before, at, 111, 5),
                        [&](batch& b) { b.comp_swap(at, 111, 5).sge(before); })) == rdma::wc_opcode::comp_swap);
    CHECK(number_at(&here[8]) == 111);
    CHECK(number_at(&there[16]) == 5);
    did(rdma::send_wr::comp_swap(before, at, 6, 7), [&](batch& b) { b.comp_swap(at, 6, 7).sge(before); });
    CHECK(number_at(&here[8]) == 5);
    CHECK(number_at(&there[16]) == 5); // not what was expected

    put_number(&here[24], 42);
    CHECK(opcode_of(did(rdma::send_wr::atomic_write(ours.sge(24, 8), at),
                        [&](batch& b) { b.atomic_write(at, &here[24]); })) == rdma::wc_opcode::atomic_write);
    CHECK(number_at(&there[16]) == 42);
}

TEST_CASE_METHOD(both_ways, "requests: a memory window is bound, used, and its key taken back", "[verbs][data]") {
    rdma::mw window(pd, rdma::mw_type::type_2);
    std::uint32_t const key = window.next_rkey();
    ibv_mw_bind_info const part{theirs.native_handle(), theirs.remote(8).address, 16,
                                static_cast<unsigned>(rdma::access::remote_write)};
    CHECK(opcode_of(did(rdma::send_wr::bind_mw(window.native_handle(), key, part),
                        [&](batch& b) { b.bind_mw(window.native_handle(), key, part); })) == rdma::wc_opcode::bind_mw);
    rdma::remote_memory const through{theirs.remote(8).address, key};
    did(rdma::send_wr::write(ours.sge(0, 16), through), [&](batch& b) { b.write(through).sge(ours.sge(0, 16)); });
    CHECK(std::memcmp(&there[8], here.data(), 16) == 0);
    CHECK(opcode_of(did(rdma::send_wr::local_inv(key), [&](batch& b) { b.local_inv(key); })) ==
          rdma::wc_opcode::local_inv);
    left.post_send(rdma::send_wr::write(ours.sge(0, 16), through));
    CHECK(only(sends).status() == rdma::wc_status::rem_access_err);
}

TEST_CASE_METHOD(both_ways, "requests: inline bytes are copied at once, from one place or several", "[verbs][data]") {
    std::array<std::byte, 4> passing{std::byte{9}, std::byte{8}, std::byte{7}, std::byte{6}};
    std::array<ibv_sge, 2> const pieces{
        {{reinterpret_cast<std::uintptr_t>(&passing[2]), 2, 0}, {reinterpret_cast<std::uintptr_t>(&passing[0]), 2, 0}}};
    std::array<ibv_data_buf, 2> const buffers{{{&passing[2], 2}, {&passing[0], 2}}};
    right.post_recv(rdma::recv_wr(theirs.sge()));
    did(rdma::send_wr::send(pieces).inlined(), [&](batch& b) {
        b.send().inline_data(buffers);
        passing.fill(std::byte{0});
    });
    received();
    CHECK(there[0] == std::byte{7});
    CHECK(there[3] == std::byte{8});
    passing[0] = std::byte{5};
    ibv_sge const piece{reinterpret_cast<std::uintptr_t>(passing.data()), 4, 0};
    did(rdma::send_wr::write(piece, theirs.remote(32)).inlined(), [&](batch& b) {
        b.write(theirs.remote(32)).inline_data(std::span<std::byte const>(passing));
        passing.fill(std::byte{0});
    });
    CHECK(there[32] == std::byte{5});
}

TEST_CASE_METHOD(loopback, "requests: a solicited one rings where only such are waited for", "[verbs][data]") {
    for (int i = 0; i != 3; ++i)
        right.post_recv(rdma::recv_wr(theirs.sge()));
    receives.req_notify(true);
    left.post_send(rdma::send_wr::send(ours.sge(0, 4)));
    CHECK_FALSE(bell.try_get());
    left.post_send(rdma::send_wr::send(ours.sge(0, 4)).solicited());
    CHECK(bell.try_get());
    receives.req_notify();
    left.post_send(rdma::send_wr::send(ours.sge(0, 4)));
    CHECK(bell.try_get());
    CHECK(all_of(receives).size() == 3);
}

TEST_CASE("requests: every flag and field of C is set, and no other", "[verbs]") {
    ibv_sge const sge{1, 2, 3};
    rdma::send_wr request = rdma::send_wr::send(sge);
    ibv_send_wr const& c = request.native_handle();
    CHECK(c.send_flags == 0u);
    CHECK(c.next == nullptr);
    unsigned flags = 0;
    auto const adds = [&](unsigned flag) {
        flags |= flag;
        CHECK(c.send_flags == flags);
    };
    request.signaled();
    adds(IBV_SEND_SIGNALED);
    request.solicited();
    adds(IBV_SEND_SOLICITED);
    request.fenced();
    adds(IBV_SEND_FENCE);
    request.inlined();
    adds(IBV_SEND_INLINE);
    request.ip_csum();
    adds(IBV_SEND_IP_CSUM);

    ibv_ah peer{};
    request.to(&peer, 5, 6);
    CHECK(c.wr.ud.ah == &peer);
    CHECK(c.wr.ud.remote_qpn == 5);
    CHECK(c.wr.ud.remote_qkey == 6);
    CHECK(rdma::send_wr::send(sge).to(&peer, 5).native_handle().wr.ud.remote_qkey == RDMA_UDP_QKEY);
    CHECK(rdma::send_wr::send(sge).to_srq(77).native_handle().qp_type.xrc.remote_srqn == 77);
    CHECK(rdma::send_wr::atomic_write(sge, {8, 9}).native_handle().opcode == 15);
    CHECK(rdma::send_wr::send(sge).imm(4).native_handle().opcode == IBV_WR_SEND_WITH_IMM);
    CHECK(rdma::send_wr::write(sge, {8, 9}).imm(4).native_handle().opcode == IBV_WR_RDMA_WRITE_WITH_IMM);
    ibv_send_wr const swap = rdma::send_wr::comp_swap(sge, {8, 9}, 10, 11).native_handle();
    CHECK(swap.wr.atomic.remote_addr == 8);
    CHECK(swap.wr.atomic.rkey == 9);
    CHECK(swap.wr.atomic.compare_add == 10);
    CHECK(swap.wr.atomic.swap == 11);
}

TEST_CASE_METHOD(featured, "requests: a long packet is sent in segments, each with the header", "[verbs][data]") {
    bool const by_batch = GENERATE(false, true);
    CAPTURE(by_batch);
    constexpr std::uint32_t key = 0x1111;
    rdma::context const device = open_device();
    rdma::pd const pd(device);
    rdma::cq const sends(device, 8), receives(device, 8);
    rdma::qp_init_attr_ex const attr{.attr = {.send_cq = sends, .recv_cq = receives},
                                     .comp_mask = IBV_QP_INIT_ATTR_MAX_TSO_HEADER,
                                     .max_tso_header = 16,
                                     .send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_TSO};
    rdma::qp const from(pd, rdma::qp_type::ud, attr), to(pd, rdma::qp_type::ud, attr);
    bring_up_datagrams(from, key);
    bring_up_datagrams(to, key);
    std::array<std::byte, 20> payload;
    payload.fill(std::byte{3});
    std::array<std::byte, 4> header{std::byte{1}, std::byte{2}, std::byte{1}, std::byte{2}};
    std::array<std::array<std::byte, 64>, 3> into{};
    rdma::mr const region(pd, payload, rdma::access::none), target(pd, into, rdma::access::local_write);
    for (std::size_t i = 0; i != into.size(); ++i)
        to.post_recv(rdma::recv_wr(target.sge(i * 64, 64)).id(i));
    ibv_ah_attr where{};
    where.is_global = 1;
    where.port_num = 1;
    where.grh.dgid = device.query_gid(1, 1);
    rdma::ah const peer(pd, where);
    std::array const pieces{region.sge()};
    if (by_batch)
        from.ex().post([&](batch& b) {
            b.request(7, IBV_SEND_SIGNALED).send_tso(header, 8).sge(pieces).to(peer, to.qp_num(), key);
        });
    else
        from.post_send(rdma::send_wr::tso(header, 8, pieces).to(peer, to.qp_num(), key).id(7).signaled());
    CHECK(opcode_of(only(sends)) == rdma::wc_opcode::tso);
    auto const arrived = all_of(receives);
    REQUIRE(arrived.size() == 3);
    for (std::size_t i = 0; i != 3; ++i) {
        CHECK(arrived[i].success().has_grh());
        CHECK(arrived[i].success().src_qp() == from.qp_num());
        CHECK(arrived[i].success().byte_len() == rdma::grh_size + 4 + (i == 2 ? 4 : 8));
        CHECK(std::memcmp(&into[i][rdma::grh_size], header.data(), 4) == 0);
        CHECK(into[i][rdma::grh_size + 4] == std::byte{3});
    }
}

// ---- Copies of a request --------------------------------------------------------------------------------------------

TEST_CASE("requests: a copy has its own piece, and the pieces that were named", "[verbs]") {
    ibv_sge const one{1, 2, 3}, other{4, 5, 6};
    std::array const named{one, other};
    auto const check = [&](auto first, auto second, auto several) {
        auto const owns = [](auto& request, ibv_sge const& piece) {
            auto const& c = request.native_handle();
            auto const* const at = reinterpret_cast<char const*>(c.sg_list);
            auto const* const begin = reinterpret_cast<char const*>(&request);
            return at >= begin && at < begin + sizeof request && c.num_sge == 1 && c.sg_list->addr == piece.addr &&
                   c.sg_list->length == piece.length && c.sg_list->lkey == piece.lkey;
        };
        first.id(8);
        auto copy(first);
        CHECK(owns(copy, one));
        CHECK(copy.native_handle().wr_id == 8);
        copy = second;
        CHECK(owns(copy, other));
        CHECK(owns(second, other));
        auto& same = copy;
        copy = same;
        CHECK(owns(copy, other));
        copy = several;
        CHECK(copy.native_handle().sg_list == named.data());
        CHECK(copy.native_handle().num_sge == 2);
        auto const named_copy(several);
        CHECK(named_copy.native_handle().sg_list == named.data());
        std::vector<decltype(first)> grown; // moves them about
        for (int i = 0; i != 9; ++i)
            grown.push_back(i % 2 == 0 ? first : second);
        for (std::size_t i = 0; i != grown.size(); ++i)
            CHECK(owns(grown[i], i % 2 == 0 ? one : other));
    };
    check(rdma::send_wr::send(one), rdma::send_wr::send(other), rdma::send_wr::send(named));
    check(rdma::recv_wr(one), rdma::recv_wr(other), rdma::recv_wr(std::span(named)));
}

// ---- Chains ---------------------------------------------------------------------------------------------------------

TEST_CASE_METHOD(loopback, "chains: all of an array is posted, in order, with one call", "[verbs][data]") {
    std::array receive{rdma::recv_wr(theirs.sge(0, 8)).id(1), rdma::recv_wr(theirs.sge(8, 8)).id(2),
                       rdma::recv_wr(theirs.sge(16, 8)).id(3)};
    std::array send{rdma::send_wr::send(ours.sge(0, 8)).id(11).signaled(),
                    rdma::send_wr::send(ours.sge(8, 8)).id(12).signaled(),
                    rdma::send_wr::send(ours.sge(16, 8)).id(13).signaled()};
    for (int turn = 0; turn != 2; ++turn) { // an array may be posted again
        right.post_recv(receive);
        left.post_send(send);
        auto const sent = all_of(sends), got = all_of(receives);
        REQUIRE(sent.size() == 3);
        REQUIRE(got.size() == 3);
        for (std::size_t i = 0; i != 3; ++i) {
            CHECK(sent[i].wr_id() == 11 + i);
            CHECK(got[i].wr_id() == 1 + i);
        }
        CHECK(std::memcmp(there.data(), here.data(), 24) == 0);
        there.fill(std::byte{0});
    }
    // A part of it ends where the part ends.
    right.post_recv(std::span(receive).first(1));
    left.post_send(std::span(send).first(1));
    CHECK(only(sends).wr_id() == 11);
    CHECK(only(receives).wr_id() == 1);
    CHECK(fake::count("ibv_post_send") == 3);
    CHECK(fake::count("ibv_post_recv") == 3);

    std::size_t refused = 99;
    CHECK(right.post_recv(std::span(receive), refused, std::nothrow) == std::errc{});
    CHECK(refused == 3);
    refused = 99;
    CHECK(left.post_send(std::span(send), refused, std::nothrow) == std::errc{});
    CHECK(refused == 3);
}

TEST_CASE_METHOD(loopback, "chains: a request that was in one is posted alone, and so is its copy", "[verbs][data]") {
    std::array receive{rdma::recv_wr(theirs.sge()).id(1), rdma::recv_wr(theirs.sge()).id(2)};
    std::array write{rdma::send_wr::write(ours.sge(), theirs.remote()).id(3).signaled(),
                     rdma::send_wr::write(ours.sge(), theirs.remote()).id(4).signaled()};
    right.post_recv(receive);
    left.post_send(write);
    CHECK(all_of(sends).size() == 2);
    left.post_send(write[0]);
    CHECK(only(sends).wr_id() == 3);
    left.post_send(std::span(write));
    rdma::send_wr const copy = write[0];
    write[1].native_handle().num_sge = 99; // what nobody posts is not looked at
    CHECK(all_of(sends).size() == 2);
    left.post_send(copy);
    CHECK(only(sends).wr_id() == 3);

    right.post_recv(receive[0]);
    right.post_recv(rdma::recv_wr(receive[0]));
    ibv_qp_attr to_error{};
    to_error.qp_state = IBV_QPS_ERR;
    right.modify(to_error, IBV_QP_STATE);
    CHECK(all_of(receives).size() == 4);
}

TEST_CASE_METHOD(loopback, "chains: of datagrams, each to a peer of its own", "[verbs][data]") {
    rdma::qp_init_attr const attr{.send_cq = sends, .recv_cq = receives};
    rdma::qp const from(pd, rdma::qp_type::ud, attr), one(pd, rdma::qp_type::ud, attr),
        two(pd, rdma::qp_type::ud, attr);
    bring_up_datagrams(from, 1);
    bring_up_datagrams(one, 11);
    bring_up_datagrams(two, 12);
    one.post_recv(rdma::recv_wr(theirs.sge()).id(1));
    two.post_recv(rdma::recv_wr(theirs.sge()).id(2));
    ibv_ah_attr where{};
    where.is_global = 1;
    where.port_num = 1;
    where.grh.dgid = device.query_gid(1, 1);
    rdma::ah const peer(pd, where);
    std::array chain{rdma::send_wr::send(ours.sge(0, 8)).to(peer, two.qp_num(), 12).imm(htonl(3)),
                     rdma::send_wr::send(ours.sge(0, 8)).to(peer, one.qp_num(), 12), // not its key: lost
                     rdma::send_wr::send(ours.sge(0, 8)).to(peer, one.qp_num(), 11)};
    from.post_send(chain);
    auto const got = all_of(receives);
    REQUIRE(got.size() == 2);
    CHECK(got[0].wr_id() == 2);
    CHECK(got[0].success().imm_data() == htonl(3));
    CHECK(got[1].wr_id() == 1);
    CHECK(got[1].success().has_grh());
    CHECK_FALSE(got[1].success().imm_data());
}

TEST_CASE_METHOD(loopback, "chains: nothing to post is no call, and no error", "[verbs]") {
    fake::clear_calls();
    std::size_t refused = 99;
    CHECK(left.post_send(std::span<rdma::send_wr>(), refused, std::nothrow) == std::errc{});
    CHECK(refused == 0);
    CHECK(left.post_recv(std::span<rdma::recv_wr>(), refused, std::nothrow) == std::errc{});
    left.post_send(std::span<rdma::send_wr>());
    left.post_recv(std::span<rdma::recv_wr>());
    CHECK(calls_made() == 0);
}

namespace {

/// Three requests of which the one at `wrong` has more pieces than the queue takes.
template <class Request>
std::array<Request, 3> three(Request one, std::size_t wrong) {
    std::array<Request, 3> requests{one, one, one};
    for (std::size_t i = 0; i != 3; ++i)
        requests[i].id(40 + i);
    requests[wrong].native_handle().num_sge = 99;
    return requests;
}

} // namespace

TEST_CASE_METHOD(loopback, "chains: the refused request is named, and those before it are queued", "[verbs][data]") {
    std::size_t const wrong = GENERATE(std::size_t{0}, 1, 2);
    CAPTURE(wrong);
    std::string const named = "request " + std::to_string(40 + wrong) + ", number " + std::to_string(wrong);
    auto const check = [&](auto& queue, auto requests, auto&& post_throwing, auto&& post) {
        std::size_t refused = 99;
        CHECK(post(queue, requests, refused) == std::errc::invalid_argument);
        CHECK(refused == wrong);
        CHECK(thrown([&] { post_throwing(queue, requests); }, named) == std::errc::invalid_argument);
    };
    auto const recv = three(rdma::recv_wr(theirs.sge(0, 8)), wrong);
    auto const send = three(rdma::send_wr::write(ours.sge(0, 8), theirs.remote()).signaled(), wrong);
    auto const throwing = [](auto& q, auto& r) { q.post_recv(r); };
    auto const twin = [](auto& q, auto& r, std::size_t& refused) {
        return q.post_recv(std::span(r), refused, std::nothrow);
    };
    check(right, recv, throwing, twin);
    check(
        left, send, [](auto& q, auto& r) { q.post_send(r); },
        [](auto& q, auto& r, std::size_t& refused) { return q.post_send(std::span(r), refused, std::nothrow); });
    CHECK(all_of(sends).size() == 2 * wrong);
    rdma::srq shared(pd, {.max_wr = 8});
    check(shared, recv, throwing, twin);
    rdma::srq_ref view(shared);
    check(view, recv, throwing, twin);

    // What is queued of the receives: as many as came before the refused one, each time.
    ibv_qp_attr to_error{};
    to_error.qp_state = IBV_QPS_ERR;
    right.modify(to_error, IBV_QP_STATE);
    auto const flushed = all_of(receives);
    CHECK(flushed.size() == 2 * wrong);
    if (wrong != 0)
        CHECK(flushed.back().wr_id() == 40 + wrong - 1);
}

TEST_CASE_METHOD(loopback, "chains: a full queue takes as many as fit", "[verbs][data]") {
    std::vector<rdma::recv_wr> many(11, rdma::recv_wr(theirs.sge()));
    std::size_t refused = 0;
    CHECK(right.post_recv(std::span(many), refused, std::nothrow) == std::errc::not_enough_memory);
    CHECK(refused == loopback::cap.max_recv_wr);
    CHECK(thrown([&] { right.post_recv(many); }, "number 0 of the chain") == std::errc::not_enough_memory);
    // A call that fails as a whole names the first.
    fake::fail("ibv_post_recv", 1, EIO);
    CHECK(left.post_recv(std::span(many), refused, std::nothrow) == std::errc::io_error);
    CHECK(refused == 0);
    fake::fail("ibv_post_send", 1, EIO);
    std::array send{rdma::send_wr::send(ours.sge()), rdma::send_wr::send(ours.sge())};
    CHECK(left.post_send(std::span(send), refused, std::nothrow) == std::errc::io_error);
    CHECK(refused == 0);
}

TEST_CASE_METHOD(loopback, "chains: of C's own the refused request is named, whatever `bad` was before", "[verbs]") {
    auto send = three(rdma::send_wr::write(ours.sge(0, 8), theirs.remote()), 1);
    auto recv = three(rdma::recv_wr(theirs.sge(0, 8)), 1);
    for (std::size_t i = 0; i != 2; ++i) {
        send[i].native_handle().next = &send[i + 1].native_handle();
        recv[i].native_handle().next = &recv[i + 1].native_handle();
    }
    rdma::send_wr other_send = rdma::send_wr::send(ours.sge()).id(99);
    rdma::recv_wr other_recv = rdma::recv_wr(theirs.sge()).id(99);
    ibv_send_wr* bad_send = &other_send.native_handle();
    ibv_recv_wr* bad_recv = &other_recv.native_handle();
    CHECK(thrown([&] { left.post_send(send[0].native_handle(), bad_send); }, "request 41") ==
          std::errc::invalid_argument);
    CHECK(bad_send == &send[1].native_handle());
    CHECK(thrown([&] { right.post_recv(recv[0].native_handle(), bad_recv); }, "request 41") ==
          std::errc::invalid_argument);
    CHECK(bad_recv == &recv[1].native_handle());
    rdma::srq const shared(pd, {.max_wr = 8});
    bad_recv = &other_recv.native_handle();
    CHECK(thrown([&] { shared.post_recv(recv[0].native_handle(), bad_recv); }, "request 41") ==
          std::errc::invalid_argument);
    CHECK(bad_recv == &recv[1].native_handle());
}

TEST_CASE_METHOD(loopback, "chains: of a shared queue, and of a work queue", "[verbs][data]") {
    std::array receive{rdma::recv_wr(theirs.sge(0, 8)).id(1), rdma::recv_wr(theirs.sge(8, 8)).id(2)};
    rdma::srq const shared(pd, {.max_wr = 8});
    right = rdma::qp(pd, rdma::qp_type::rc, {.send_cq = sends, .recv_cq = receives, .srq = shared});
    left = make_qp();
    connect();
    shared.post_recv(receive);
    std::array send{rdma::send_wr::send(ours.sge(0, 8)), rdma::send_wr::send(ours.sge(8, 8))};
    left.post_send(send);
    auto const got = all_of(receives);
    REQUIRE(got.size() == 2);
    CHECK(got[0].wr_id() == 1);
    CHECK(got[1].wr_id() == 2);

    rdma::wq const queue(pd, receives, {.max_wr = 4});
    queue.modify(rdma::wq_state::rdy);
    queue.post_recv(receive);
    std::size_t refused = 99;
    CHECK(rdma::wq_ref(queue).post_recv(std::span(receive), refused, std::nothrow) == std::errc{});
    CHECK(refused == 2);
    auto wrong = three(rdma::recv_wr(theirs.sge(0, 8)), 0);
    CHECK(thrown([&] { queue.post_recv(wrong); }, "request 40, number 0") == std::errc::invalid_argument);
    wrong[0].native_handle().next = &wrong[1].native_handle();
    ibv_recv_wr* bad = &wrong[2].native_handle();
    CHECK(thrown([&] { queue.post_recv(wrong[0].native_handle(), bad); }, "request 40") == std::errc::invalid_argument);
    CHECK(bad == &wrong[0].native_handle());
    receive[0].id(50).native_handle().num_sge = 99;
    CHECK(thrown([&] { queue.post_recv(receive[0]); }, "request 50") == std::errc::invalid_argument);
    CHECK(queue.post_recv(receive[0], std::nothrow) == std::errc::invalid_argument);
    queue.modify(rdma::wq_state::err);
    auto const flushed = all_of(receives);
    REQUIRE(flushed.size() == 4);
    CHECK(flushed[1].wr_id() == 2);
    CHECK(flushed[1].status() == rdma::wc_status::wr_flush_err);
}

// ---- The other interface --------------------------------------------------------------------------------------------

TEST_CASE_METHOD(loopback, "wr_batch: nothing is posted before it is completed, and then all", "[verbs][data]") {
    auto const fill = [&](batch& b) {
        b.request(1, IBV_SEND_SIGNALED).write(theirs.remote()).sge(ours.sge(0, 8));
        b.request(2).write(theirs.remote(8)).sge(ours.sge(8, 8)); // completes in silence
        b.request(3, IBV_SEND_SIGNALED).write(theirs.remote(16)).sge(ours.sge(16, 8));
    };
    auto const is_posted = [&] { return there[0] != std::byte{0} || !all_of(sends).empty(); };
    REQUIRE(left.ex());
    {
        batch b = left.ex().start();
        fill(b);
        CHECK_FALSE(is_posted());
    } // aborted
    CHECK_FALSE(is_posted());
    CHECK(fake::count("ibv_wr_abort") == 1);
    {
        batch b = left.ex().start();
        fill(b);
        b.abort();
        CHECK(fake::count("ibv_wr_abort") == 2); // at once
    }
    CHECK(fake::count("ibv_wr_abort") == 2);
    CHECK_FALSE(is_posted());
    CHECK_THROWS_AS(left.ex().post([&](batch& b) {
        fill(b);
        throw 3;
    }),
                    int);
    CHECK(fake::count("ibv_wr_abort") == 3);
    CHECK_FALSE(is_posted());
    CHECK(fake::count("ibv_wr_complete") == 0);

    batch b = left.ex().start();
    fill(b);
    b.complete();
    auto const done = all_of(sends);
    REQUIRE(done.size() == 2);
    CHECK(done[0].wr_id() == 1);
    CHECK(done[1].wr_id() == 3);
    CHECK(std::memcmp(there.data(), here.data(), 24) == 0);
    CHECK(left.ex().post(fill, std::nothrow) == std::errc{});
    CHECK(all_of(sends).size() == 2);
    CHECK(fake::count("ibv_wr_start") == 5);
    CHECK(fake::count("ibv_wr_complete") == 2);
    CHECK(fake::count("ibv_wr_abort") == 3);
}

TEST_CASE_METHOD(loopback, "wr_batch: one that cannot be completed has posted nothing, and is over", "[verbs]") {
    auto const fill = [&](batch& b) { b.request(1, IBV_SEND_SIGNALED).write(theirs.remote()).sge(ours.sge(0, 8)); };
    fake::fail("ibv_wr_complete", 1, ENOMEM);
    CHECK(thrown([&] { left.ex().post(fill); }, "ibv_wr_complete") == std::errc::not_enough_memory);
    fake::fail("ibv_wr_complete", 1, ENOMEM);
    CHECK(left.ex().post(fill, std::nothrow) == std::errc::not_enough_memory);
    {
        batch b = left.ex().start();
        for (int i = 0; i != 9; ++i) // more than the queue holds
            fill(b);
        CHECK(b.complete(std::nothrow) == std::errc::not_enough_memory);
    }
    CHECK(all_of(sends).empty());
    CHECK(fake::count("ibv_wr_abort") == 0); // a failed ibv_wr_complete has ended it
    left.ex().post(fill);
    CHECK(all_of(sends).size() == 1);
}

TEST_CASE_METHOD(featured, "wr_batch: only a QP that was made for it has it", "[verbs]") {
    rdma::context const device = open_device();
    rdma::pd const pd(device);
    rdma::cq const cq(device, 8);
    rdma::qp const plain(pd, rdma::qp_type::rc, {.send_cq = cq, .recv_cq = cq});
    CHECK_FALSE(plain.ex());
    CHECK_FALSE(rdma::qp_ref(plain).ex());
    CHECK_FALSE(rdma::qp().ex());
    CHECK_FALSE(rdma::qp_ref().ex());
    CHECK(fake::count("ibv_qp_to_qp_ex") == 0); // of such a QP soft-iWARP's driver tells rubbish
    rdma::qp const extended(
        pd, rdma::qp_type::rc,
        rdma::qp_init_attr_ex{.attr = {.send_cq = cq, .recv_cq = cq}, .send_ops_flags = IBV_QP_EX_WITH_SEND});
    CHECK(extended.ex().native_handle() == ::ibv_qp_to_qp_ex(extended.native_handle()));
    CHECK(rdma::qp_ref(extended).ex() == extended.ex());
}

TEST_CASE_METHOD(featured, "wr_batch: a request to a shared queue of the peer's, by its number", "[verbs][xrc]") {
    bool const by_batch = GENERATE(false, true);
    CAPTURE(by_batch);
    rdma::context const device = open_device();
    rdma::pd const pd(device);
    rdma::cq const cq(device, 8), received(device, 8);
    rdma::xrcd const domain(device);
    rdma::srq const shared(pd, rdma::srq_init_attr_ex{.type = rdma::srq_type::xrc, .xrcd = domain, .cq = received});
    rdma::qp const from(pd, rdma::qp_type::xrc_send,
                        rdma::qp_init_attr_ex{.attr = {.send_cq = cq, .cap = {.max_recv_wr = 0, .max_recv_sge = 0}},
                                              .send_ops_flags = IBV_QP_EX_WITH_SEND});
    rdma::qp const to(pd, rdma::qp_type::xrc_recv,
                      rdma::qp_init_attr_ex{.attr = {.cap = {.max_send_wr = 0, .max_recv_wr = 0}}, .xrcd = domain});
    bring_up(from, to.qp_num());
    bring_up(to, from.qp_num());
    std::array<std::byte, 8> out{std::byte{7}}, in{};
    rdma::mr const source(pd, out, rdma::access::none), sink(pd, in, rdma::access::local_write);
    shared.post_recv(rdma::recv_wr(sink.sge()).id(5));
    if (by_batch)
        from.ex().post(
            [&](batch& b) { b.request(6, IBV_SEND_SIGNALED).send().sge(source.sge()).to_srq(shared.srq_num()); });
    else
        from.post_send(rdma::send_wr::send(source.sge()).to_srq(shared.srq_num()).id(6).signaled());
    CHECK(only(cq).wr_id() == 6);
    CHECK(only(received).wr_id() == 5);
    CHECK(in[0] == std::byte{7});
}
