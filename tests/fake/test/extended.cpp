// SPDX-License-Identifier: MIT
//
// Extended CQs and QPs: completions read and requests built by calls, each between a beginning and an end.
#include "bench.hpp"

#include <set>

using namespace selftest;

// ---- completion queues --------------------------------------------------------------------------------------------
TEST_CASE("an extended CQ tells what it was made to tell, and nothing else")
{
    clean_world world;
    bench on;
    auto* const cq = extended_cq(on, IBV_CREATE_CQ_SUP_WC_FLAGS);
    REQUIRE(cq != nullptr);
    ibv_wc wc{};
    wc.wr_id = 5;
    wc.opcode = IBV_WC_RECV;
    wc.byte_len = 12;
    wc.qp_num = 3;
    wc.src_qp = 4;
    wc.slid = 6;
    wc.sl = 7;
    wc.dlid_path_bits = 8;
    wc.wc_flags = IBV_WC_WITH_INV;
    wc.invalidated_rkey = 99;
    fake::push_completion(ibv_cq_ex_to_cq(cq), wc, {11, 12, 13, 14});
    fake::push_completion(ibv_cq_ex_to_cq(cq), wc);
    ibv_poll_cq_attr none{};
    REQUIRE(ibv_start_poll(cq, &none) == 0);
    CHECK((cq->wr_id == 5 && cq->status == IBV_WC_SUCCESS));
    CHECK((ibv_wc_read_opcode(cq) == IBV_WC_RECV && ibv_wc_read_byte_len(cq) == 12 && ibv_wc_read_qp_num(cq) == 3 && ibv_wc_read_src_qp(cq) == 4));
    CHECK((ibv_wc_read_slid(cq) == 6 && ibv_wc_read_sl(cq) == 7 && ibv_wc_read_dlid_path_bits(cq) == 8 && ibv_wc_read_vendor_err(cq) == 0));
    CHECK((ibv_wc_read_wc_flags(cq) == IBV_WC_WITH_INV && ibv_wc_read_invalidated_rkey(cq) == 99));
    CHECK((fake::count("ibv_wc_read_invalidated_rkey") == 1 && fake::count("ibv_wc_read_imm_data") == 0));
    CHECK((ibv_wc_read_cvlan(cq) == 11 && ibv_wc_read_flow_tag(cq) == 12));
    ibv_wc_tm_info info{};
    ibv_wc_read_tm_info(cq, &info);
    CHECK((info.tag == 13 && info.priv == 14));
    auto const stamp = ibv_wc_read_completion_ts(cq), clock = ibv_wc_read_completion_wallclock_ns(cq);
    CHECK((stamp != 0 && clock > 1'500'000'000'000'000'000));
    REQUIRE(ibv_next_poll(cq) == 0);
    CHECK((ibv_wc_read_completion_ts(cq) >= stamp && ibv_wc_read_cvlan(cq) == 0));
    CHECK(ibv_next_poll(cq) == ENOENT);
    ibv_end_poll(cq);
    CHECK(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)) == 0);
    CHECK(fake::misuse().empty());

    auto* const plain = extended_cq(on, 0);
    fake::push_completion(ibv_cq_ex_to_cq(plain), wc);
    REQUIRE(ibv_start_poll(plain, &none) == 0);
    ibv_wc_read_byte_len(plain);
    CHECK(mentions(fake::misuse(), "ibv_wc_read_byte_len: would crash"));
    ibv_end_poll(plain);
    ibv_wc_read_opcode(plain);
    CHECK(mentions(fake::misuse(), "no completion to read"));
    CHECK(ibv_destroy_cq(ibv_cq_ex_to_cq(plain)) == 0);
    world.messy();
}

TEST_CASE("what is begun on a CQ is ended, once, and nothing else is")
{
    clean_world world;
    bench on;
    auto* const cq = extended_cq(on, 0);
    auto* const raw = ibv_cq_ex_to_cq(cq);
    ibv_poll_cq_attr none{};
    misuse_watch misused;
    CHECK(ibv_start_poll(cq, &none) == ENOENT); // that was no beginning
    CHECK(fake::misuse().empty());
    ibv_end_poll(cq);
    CHECK(misused("no ibv_start_poll has succeeded"));
    CHECK(ibv_next_poll(cq) == EINVAL);
    CHECK(misused("no ibv_start_poll has succeeded"));
    ibv_wc wc{};
    fake::push_completion(raw, wc);
    fake::fail("ibv_start_poll", 1, EPERM);
    CHECK(ibv_start_poll(cq, &none) == EPERM);
    ibv_end_poll(cq);
    CHECK(misused("no ibv_start_poll has succeeded"));
    none.comp_mask = 1;
    CHECK(ibv_start_poll(cq, &none) == EINVAL);
    none.comp_mask = 0;
    REQUIRE(ibv_start_poll(cq, &none) == 0);
    ibv_wc out{};
    CHECK(ibv_poll_cq(raw, 1, &out) == 0);
    CHECK(misused("between ibv_start_poll"));
    CHECK(ibv_next_poll(cq) == ENOENT);
    CHECK(ibv_next_poll(cq) == ENOENT);
    CHECK(misused("only ibv_end_poll may follow"));
    ibv_end_poll(cq);
    fake::push_completion(raw, wc);
    fake::push_completion(raw, wc);
    REQUIRE(ibv_start_poll(cq, &none) == 0);
    REQUIRE(ibv_start_poll(cq, &none) == 0);
    CHECK(misused("has no ibv_end_poll"));
    fake::fail("ibv_next_poll", 1, EIO);
    CHECK(ibv_next_poll(cq) == EIO);
    CHECK(ibv_destroy_cq(raw) == 0);
    CHECK(misused("between ibv_start_poll"));
    world.messy();
}

TEST_CASE("CQs are moderated, resized, and may not mind being overrun")
{
    clean_world world;
    bench on;
    ibv_modify_cq_attr attr{IBV_CQ_ATTR_MODERATE, {8, 16}};
    CHECK(ibv_modify_cq(on.cq, &attr) == 0);
    CHECK((fake::moderation(on.cq).cq_count == 8 && fake::moderation(on.cq).cq_period == 16));
    attr.moderate.cq_period = 0xffff;
    CHECK(ibv_modify_cq(on.cq, &attr) == EINVAL);
    attr.attr_mask = 0;
    CHECK(ibv_modify_cq(on.cq, &attr) == EINVAL);
    fake::fail("ibv_modify_cq", 1, ENOSYS);
    CHECK((ibv_modify_cq(on.cq, &attr) == ENOSYS && errno == fake::decoy));
    CHECK((ibv_resize_cq(on.cq, 32) == 0 && on.cq->cqe == 32));

    REQUIRE(fcntl(on.context->async_fd, F_SETFL, O_NONBLOCK) == 0);
    for (std::uint32_t const flags : {std::uint32_t{IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN}, std::uint32_t{0}}) {
        ibv_cq_init_attr_ex wish{};
        wish.cqe = 1;
        wish.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS;
        wish.flags = flags;
        auto* const cq = ibv_create_cq_ex(on.context, &wish);
        REQUIRE(cq != nullptr);
        fake::push_completion(ibv_cq_ex_to_cq(cq), {});
        fake::push_completion(ibv_cq_ex_to_cq(cq), {});
        ibv_async_event event{};
        CHECK(ibv_get_async_event(on.context, &event) == (flags != 0 ? -1 : 0));
        if (flags == 0) ibv_ack_async_event(&event);
        CHECK(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)) == 0);
    }
}

// ---- requests by calls --------------------------------------------------------------------------------------------
TEST_CASE("every kind of request can be built by calls")
{
    clean_world world;
    pair_of_qps on;
    auto const far = pair_of_qps::at(on.far), near = pair_of_qps::at(on.near);
    on.receive(50);
    on.receive(51);
    on.receive(52, false);
    auto* const mw = ibv_alloc_mw(on.pd, IBV_MW_TYPE_2);
    std::uint32_t const window = ibv_inc_rkey(mw->rkey);
    std::uint64_t const fresh = 1234;
    char word[] = "by value";
    ibv_data_buf const halves[] = {{word, 4}, {word + 4, 4}};

    on.start(1);
    ibv_wr_send(on.builder);
    ibv_wr_set_inline_data(on.builder, word, 8);
    on.builder->wr_id = 2;
    ibv_wr_send_imm(on.builder, htonl(7));
    ibv_wr_set_inline_data_list(on.builder, 2, halves);
    on.builder->wr_id = 3;
    ibv_wr_rdma_write_imm(on.builder, on.there->rkey, far + 8, htonl(8));
    ibv_wr_set_sge(on.builder, on.here->lkey, near, 8);
    on.builder->wr_id = 4;
    ibv_wr_rdma_read(on.builder, on.there->rkey, far);
    ibv_wr_set_sge(on.builder, on.here->lkey, near, 8);
    REQUIRE(ibv_wr_complete(on.builder) == 0);
    std::memset(word, 0, sizeof word); // it was copied
    std::multiset<std::uint64_t> ids;
    for (int i = 0; i < 7; ++i) {
        auto const wc = on.next();
        CHECK(wc.status == IBV_WC_SUCCESS);
        ids.insert(wc.wr_id);
    }
    CHECK(ids == std::multiset<std::uint64_t>{1, 2, 3, 4, 50, 51, 52});
    CHECK((std::memcmp(on.near.data(), "by value", 8) == 0 && on.far[1] == 1));

    on.far = {10, 0, 0, 0, 0, 0, 0, 0};
    on.start(1);
    ibv_wr_atomic_cmp_swp(on.builder, on.there->rkey, far, 10, 20);
    ibv_wr_set_sge(on.builder, on.here->lkey, near, 8);
    on.builder->wr_id = 2;
    ibv_wr_atomic_fetch_add(on.builder, on.there->rkey, far, 5);
    ibv_wr_set_sge(on.builder, on.here->lkey, near + 8, 8);
    on.builder->wr_id = 3;
    ibv_wr_atomic_write(on.builder, on.there->rkey, far + 8, &fresh);
    on.builder->wr_id = 4;
    ibv_mw_bind_info const info{on.here, near, 16, IBV_ACCESS_REMOTE_WRITE};
    ibv_wr_bind_mw(on.builder, mw, window, &info);
    on.builder->wr_id = 5;
    ibv_wr_local_inv(on.builder, window);
    REQUIRE(ibv_wr_complete(on.builder) == 0);
    for (auto const opcode : {IBV_WC_COMP_SWAP, IBV_WC_FETCH_ADD, IBV_WC_ATOMIC_WRITE, IBV_WC_BIND_MW, IBV_WC_LOCAL_INV}) {
        auto const wc = on.next();
        CHECK((wc.status == IBV_WC_SUCCESS && wc.opcode == opcode));
    }
    CHECK((on.near[0] == 10 && on.near[1] == 20 && on.far[0] == 25 && on.far[1] == 1234));
    on.receive(53);
    on.start(6);
    ibv_wr_send_inv(on.builder, 12);
    REQUIRE(ibv_wr_complete(on.builder) == 0);
    auto wc = on.next();
    if (wc.wr_id != 53) wc = on.next();
    else on.next();
    CHECK((wc.wr_id == 53 && wc.wc_flags == IBV_WC_WITH_INV && wc.invalidated_rkey == 12));
    CHECK(ibv_dealloc_mw(mw) == 0);
    for (char const* name : {"ibv_wr_start", "ibv_wr_complete", "ibv_wr_send", "ibv_wr_set_inline_data_list", "ibv_wr_atomic_write"})
        CHECK(fake::count(name) != 0);
}

TEST_CASE("a scope is all or nothing: completed, refused, failed or aborted")
{
    clean_world world;
    pair_of_qps on;
    auto const far = pair_of_qps::at(on.far);
    auto const write = [&](std::uint64_t at) {
        ibv_wr_rdma_write(on.builder, on.there->rkey, at);
        ibv_wr_set_sge(on.builder, on.here->lkey, pair_of_qps::at(on.near), 8);
    };
    auto const untouched = [&] {
        ibv_wc wc{};
        return on.far[0] == 0 && poll_one(on.cq, wc) == 0;
    };
    on.start(1);
    write(far);
    ibv_wr_abort(on.builder);
    CHECK(untouched());
    on.start(1);
    write(far);
    fake::fail("ibv_wr_complete", 1, ENOMEM);
    CHECK((ibv_wr_complete(on.builder) == ENOMEM && errno == fake::decoy));
    CHECK(untouched());
    on.start(1);
    for (int i = 0; i < 9; ++i) write(far); // 8 fit
    CHECK(ibv_wr_complete(on.builder) == ENOMEM);
    CHECK(untouched());
    on.start(1);
    write(far);
    char const long_one[65]{};
    ibv_wr_rdma_write(on.builder, on.there->rkey, far);
    ibv_wr_set_inline_data(on.builder, const_cast<char*>(long_one), sizeof long_one);
    CHECK(ibv_wr_complete(on.builder) == EINVAL);
    CHECK(untouched());
    on.start(1);
    CHECK(ibv_wr_complete(on.builder) == 0); // an empty one
    on.start(1);
    write(far);
    CHECK(ibv_wr_complete(on.builder) == 0);
    CHECK((on.next().wr_id == 1 && on.far[0] == 1));
}

TEST_CASE("scopes that are not ended, calls outside of them, and requests that the QP was not made for")
{
    clean_world world;
    {
        pair_of_qps on;
        misuse_watch misused;
        CHECK(ibv_wr_complete(on.builder) == EINVAL);
        CHECK(misused("ibv_wr_complete: no ibv_wr_start"));
        ibv_wr_send(on.builder);
        CHECK(misused("ibv_wr_send: no ibv_wr_start"));
        ibv_wr_abort(on.builder);
        CHECK(misused("ibv_wr_abort: no ibv_wr_start"));
        ibv_wr_start(on.builder);
        ibv_wr_set_sge(on.builder, 0, 0, 0);
        CHECK(misused("no request before"));
        ibv_wr_start(on.builder);
        CHECK(misused("neither ibv_wr_complete nor ibv_wr_abort"));
        ibv_wr_send_tso(on.builder, nullptr, 0, 1);
        CHECK(misused("ibv_wr_send_tso: would crash"));
        ibv_send_wr* bad = nullptr;
        CHECK(ibv_post_send(on.a, nullptr, &bad) == 0);
        CHECK(misused("ibv_post_send: between"));
    }
    CHECK(mentions(fake::misuse(), "ibv_destroy_qp: between ibv_wr_start"));
    bench on;
    auto attr = on.qp_attr(IBV_QPT_UD, IBV_QP_EX_WITH_RDMA_READ);
    CHECK((ibv_create_qp_ex(on.context, &attr) == nullptr && errno == EOPNOTSUPP));
    attr = on.qp_attr(IBV_QPT_RC, 0);
    attr.comp_mask |= IBV_QP_INIT_ATTR_CREATE_FLAGS;
    auto* const plain = ibv_create_qp_ex(on.context, &attr);
    CHECK(ibv_qp_to_qp_ex(plain) == nullptr);
    CHECK(ibv_destroy_qp(plain) == 0);
    world.messy();
}

TEST_CASE("segmentation: one request, as many datagrams as it takes, the header before each")
{
    clean_world world;
    bench on;
    auto attr = on.qp_attr(IBV_QPT_UD, IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_TSO);
    auto* const from = ibv_create_qp_ex(on.context, &attr);
    auto* const to = ibv_create_qp_ex(on.context, &attr);
    bring_up(from, nullptr, 0);
    bring_up(to, nullptr, 0);
    ibv_ah_attr where{};
    where.is_global = 1;
    where.port_num = 1;
    REQUIRE(ibv_query_gid(on.context, 1, 1, &where.grh.dgid) == 0);
    auto* const ah = ibv_create_ah(on.pd, &where);
    char memory[3][64]{};
    auto* const mr = ibv_reg_mr(on.pd, memory, sizeof memory, unsigned{IBV_ACCESS_LOCAL_WRITE});
    for (std::uint64_t i = 0; i < 3; ++i) {
        ibv_sge piece{reinterpret_cast<std::uintptr_t>(memory[i]), 64, mr->lkey};
        ibv_recv_wr wr{i, nullptr, &piece, 1}, *bad = nullptr;
        REQUIRE(ibv_post_recv(to, &wr, &bad) == 0);
    }
    auto* const builder = ibv_qp_to_qp_ex(from);
    char header[] = "H:", payload[] = "aaaabbbbcc";
    ibv_wr_start(builder);
    builder->wr_id = 9;
    builder->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_send_tso(builder, header, 2, 4);
    ibv_wr_set_ud_addr(builder, ah, to->qp_num, 5);
    ibv_wr_set_inline_data(builder, payload, 10);
    header[0] = 'X';
    REQUIRE(ibv_wr_complete(builder) == 0);
    ibv_wc wc[4]{};
    REQUIRE(ibv_poll_cq(on.cq, 4, wc) == 4);
    CHECK((wc[0].byte_len == 46 && wc[1].byte_len == 46 && wc[2].byte_len == 44));
    CHECK((wc[3].opcode == IBV_WC_TSO && wc[3].wr_id == 9));
    CHECK((std::string{memory[0] + 40} == "H:aaaa" && std::string{memory[1] + 40} == "H:bbbb" && std::string{memory[2] + 40} == "H:cc"));
    CHECK(ibv_destroy_ah(ah) == 0);
    CHECK(ibv_dereg_mr(mr) == 0);
    CHECK(ibv_destroy_qp(from) == 0);
    CHECK(ibv_destroy_qp(to) == 0);
}

TEST_CASE("librdmacm makes extended QPs where the device has them")
{
    clean_world world;
    for (auto const& on : devices) {
        INFO(on.name);
        auto* const channel = rdma_create_event_channel();
        auto* const id = make_client(channel, v4(on.server, 7));
        ibv_qp_init_attr_ex attr{};
        attr.cap = small_qp().cap;
        attr.qp_type = IBV_QPT_RC;
        attr.comp_mask = IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
        attr.send_ops_flags = IBV_QP_EX_WITH_SEND;
        int const made = rdma_create_qp_ex(id, &attr);
        if (on.iwarp) {
            CHECK((made == -1 && errno == EOPNOTSUPP));
        } else {
            REQUIRE(made == 0);
            auto* const builder = ibv_qp_to_qp_ex(id->qp);
            REQUIRE(builder != nullptr);
            ibv_wr_start(builder);
            ibv_wr_send(builder);
            CHECK(ibv_wr_complete(builder) == EINVAL); // not connected
            CHECK(fake::misuse().empty());
        }
        drop(id);
        rdma_destroy_event_channel(channel);
    }
}
