// SPDX-License-Identifier: MIT
//
// What rdma-core 60 has more, with 50 and 61. Built twice: with the installed headers, and with the stand-ins before them.
#include "bench.hpp"

#include <fake/v60.hpp>

#include <netdb.h>

using namespace selftest;
namespace v60 = fake::v60;

#if defined(FAKE_RDMA_CMA_V60_H) && !defined(RAI_SA)
#error "the stand-in does not do its work"
#endif
#if defined(RAI_SA)
static_assert(RAI_SA == v60::rai_sa && RAI_DNS == v60::rai_dns);
static_assert(RDMA_CM_EVENT_TIMEWAIT_EXIT == 15 && RDMA_CM_EVENT_ADDRINFO_RESOLVED == 16 && RDMA_CM_EVENT_ADDRINFO_ERROR == 17);
static_assert(RDMA_CM_EVENT_USER == 18 && RDMA_CM_EVENT_INTERNAL == 19);
static_assert(sizeof(rdma_cm_event) == 80 && sizeof(rdma_cm_event{}.param.arg) == 8);
#endif

namespace {

bool fails_with(int result, int code) { return result == -1 && errno == code; }

using v60::number;

rdma_addrinfo numeric(int flags = 0)
{
    rdma_addrinfo hints{};
    hints.ai_flags = RAI_NUMERICHOST | flags;
    return hints;
}

} // namespace

TEST_CASE("a user event carries its status and argument, is charged to the id, and wakes its channel")
{
    clean_world world;
    auto* const channel = rdma_create_event_channel();
    auto* const id = make_id(channel);
    CHECK(rdma_write_cm_event(id, v60::type(v60::user), -7, 0x1122334455667788) == 0);
    CHECK(fake::queued(channel) == 1);
    CHECK(fails_with(rdma_write_cm_event(id, RDMA_CM_EVENT_ESTABLISHED, 0, 0), EINVAL));
    CHECK(fails_with(rdma_write_cm_event(id, v60::type(v60::internal), 0, 0), EINVAL));
    {
        event const got{channel};
        CHECK((number(*got.get()) == v60::user && got->id == id && got->status == -7));
        CHECK(v60::arg(*got.get()) == 0x1122334455667788);
#if defined(RAI_SA)
        CHECK(got->event == RDMA_CM_EVENT_USER);
        CHECK(got->param.arg == 0x1122334455667788);
#endif
        CHECK(fake::unacked(id) == 1);
        CHECK(std::string{rdma_event_str(v60::type(number(*got.get())))} == "UNKNOWN EVENT");
    }
    fake::event_spec pushed{v60::user};
    pushed.arg = 9;
    fake::push(id, pushed);
    {
        event const got{channel};
        CHECK(v60::arg(*got.get()) == 9);
    }
    CHECK(rdma_write_cm_event(id, v60::type(v60::user), 0, 0) == 0);
    drop(id); // and with it what was not got
    rdma_destroy_event_channel(channel);
}

TEST_CASE("names are resolved by an event, and what was found is taken once")
{
    clean_world world;
    auto* const channel = rdma_create_event_channel();
    auto* const id = make_id(channel);
    auto const hints = numeric(v60::rai_dns);
    rdma_addrinfo* found = nullptr;
    CHECK(fails_with(rdma_query_addrinfo(id, &found), ENOENT));
    REQUIRE(rdma_resolve_addrinfo(id, "10.77.1.1", "7471", &hints) == 0);
    CHECK(fails_with(rdma_resolve_addrinfo(id, "10.77.1.1", "7471", &hints), EBUSY));
    {
        event const got{channel};
        CHECK((number(*got.get()) == v60::addrinfo_resolved && got->status == 0 && got->id == id));
        fake::set_rdma_core(60);
        CHECK(std::string{rdma_event_str(v60::type(number(*got.get())))} == "RDMA_CM_EVENT_ADDRINFO_RESOLVED");
        CHECK(std::string{rdma_event_str(v60::type(v60::addrinfo_error))} == "RDMA_CM_EVENT_ADDRINFO_ERROR");
        fake::set_rdma_core(44);
        CHECK(std::string{rdma_event_str(v60::type(number(*got.get())))} == "UNKNOWN EVENT");
    }
    CHECK(fake::live().lists == 0); // the id's
    REQUIRE(rdma_query_addrinfo(id, &found) == 0);
    CHECK(fake::live().lists == 1);
    CHECK(fails_with(rdma_query_addrinfo(id, &found), ENOENT));
    REQUIRE(rdma_resolve_addr(id, nullptr, found->ai_dst_addr, 1) == 0);
    expect(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
    rdma_freeaddrinfo(found);

    REQUIRE(rdma_resolve_addrinfo(id, "10.77.1.2", nullptr, nullptr) == 0);
    drop(id); // frees what nobody asked for
    rdma_destroy_event_channel(channel);
}

TEST_CASE("a failing rdma_resolve_addrinfo leaves odd things in errno")
{
    clean_world world;
    auto* const channel = rdma_create_event_channel();
    auto* const id = make_id(channel);
    auto const service = numeric(v60::rai_sa), both = numeric(v60::rai_sa | v60::rai_dns), plain = numeric();
    rdma_addrinfo* found = nullptr;
    CHECK(fails_with(rdma_resolve_addrinfo(id, "no number", "1", &plain), EAI_NONAME));
    CHECK(fails_with(rdma_resolve_addrinfo(id, nullptr, nullptr, nullptr), -1)); // and not EINVAL
    CHECK(fails_with(rdma_resolve_addrinfo(id, nullptr, "1", &both), ENOTSUP));
    CHECK(fails_with(rdma_resolve_addrinfo(id, "node", "1", &service), ENOTSUP));
    CHECK(fails_with(rdma_resolve_addrinfo(id, nullptr, "1", &service), -1));
    CHECK(fails_with(rdma_resolve_addrinfo(nullptr, "10.77.1.1", "1", &plain), EINVAL));
    CHECK(fails_with(rdma_query_addrinfo(nullptr, &found), EINVAL));
    CHECK(fails_with(rdma_query_addrinfo(id, nullptr), EINVAL));
    CHECK(is_empty(channel));
    REQUIRE(rdma_resolve_addrinfo(id, "10.77.1.1", "1", &plain) == 0); // not busy
    fake::push(id, {v60::addrinfo_error, ENOENT});
    event{channel};
    {
        event const failed{channel};
        CHECK((number(*failed.get()) == v60::addrinfo_error && failed->status == ENOENT));
    }
    CHECK(fails_with(rdma_query_addrinfo(id, &found), ENOENT));
    drop(id);
    rdma_destroy_event_channel(channel);
}

TEST_CASE("a synchronous id waits for its names")
{
    clean_world world;
    rdma_cm_id* id = nullptr;
    REQUIRE(rdma_create_id(nullptr, &id, nullptr, RDMA_PS_TCP) == 0);
    auto const hints = numeric();
    REQUIRE(rdma_resolve_addrinfo(id, "10.77.1.1", "7471", &hints) == 0);
    CHECK(number(*id->event) == v60::addrinfo_resolved);
    rdma_addrinfo* found = nullptr;
    REQUIRE(rdma_query_addrinfo(id, &found) == 0);
    CHECK(found->ai_dst_addr->sa_family == AF_INET);
    rdma_freeaddrinfo(found);
    rdma_destroy_ep(id);
}

#if defined(FAKE_VERBS_V50_H)
static_assert(IBV_WR_FLUSH == 14 && IBV_WR_DRIVER1 == 11 && IBV_WR_ATOMIC_WRITE == 15);
static_assert(IBV_WC_FLUSH == 8 && IBV_WC_TSO == 7 && IBV_WC_ATOMIC_WRITE == 9);
static_assert(IBV_ACCESS_HUGETLB == 1 << 7 && IBV_QP_EX_WITH_TSO == 1 << 10 && IBV_QP_EX_WITH_ATOMIC_WRITE == 1 << 12);

TEST_CASE("a flush wants the right to it, at either end")
{
    clean_world world;
    bench on;
    auto attr = on.qp_attr(IBV_QPT_RC, IBV_QP_EX_WITH_FLUSH | IBV_QP_EX_WITH_RDMA_WRITE);
    auto* const a = ibv_create_qp_ex(on.context, &attr);
    auto* const b = ibv_create_qp_ex(on.context, &attr);
    REQUIRE((a != nullptr && b != nullptr));
    constexpr unsigned access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_FLUSH_GLOBAL;
    bring_up(a, b, access);
    bring_up(b, a, access);
    std::uint64_t there = 0;
    auto* const mr = ibv_reg_mr(on.pd, &there, sizeof there, access);
    REQUIRE(mr != nullptr);
    auto const at = reinterpret_cast<std::uintptr_t>(&there);
    auto* const builder = ibv_qp_to_qp_ex(a);
    auto const flush = [&](std::size_t length, std::uint8_t type, std::uint8_t level) {
        ibv_wr_start(builder);
        builder->wr_id = 6;
        builder->wr_flags = IBV_SEND_SIGNALED;
        ibv_wr_flush(builder, mr->rkey, at, length, type, level);
        CHECK(ibv_wr_complete(builder) == 0);
        ibv_wc wc{};
        REQUIRE(poll_one(on.cq, wc) == 1);
        return wc;
    };
    auto wc = flush(8, IBV_FLUSH_GLOBAL, IBV_FLUSH_RANGE);
    CHECK((wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_FLUSH && wc.wr_id == 6));
    wc = flush(0, IBV_FLUSH_GLOBAL, IBV_FLUSH_MR);
    CHECK((wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_FLUSH));
    wc = flush(8, IBV_FLUSH_PERSISTENT, IBV_FLUSH_RANGE);
    CHECK(wc.status == IBV_WC_REM_ACCESS_ERR);
    CHECK(fake::count("ibv_wr_flush") == 3);
    CHECK(std::string{ibv_wr_opcode_str(IBV_WR_FLUSH)} == "flush");
    CHECK(ibv_dereg_mr(mr) == 0);
    CHECK(ibv_destroy_qp(a) == 0);
    CHECK(ibv_destroy_qp(b) == 0);
}
#endif

#if defined(FAKE_VERBS_V61_H)
TEST_CASE("ibv_reg_mr_ex registers what it is told of, and holds the DMA handle")
{
    clean_world world;
    bench on;
    std::uint64_t memory[4]{};
    ibv_mr_init_attr attr{};
    attr.length = sizeof memory;
    attr.access = IBV_ACCESS_LOCAL_WRITE;
    attr.addr = memory;
    CHECK((ibv_reg_mr_ex(on.pd, &attr) == nullptr && errno == EINVAL)); // nothing counts
    attr.comp_mask = IBV_REG_MR_MASK_ADDR;
    auto* const plain = ibv_reg_mr_ex(on.pd, &attr);
    REQUIRE((plain != nullptr && plain->addr == memory && plain->length == sizeof memory));
    ibv_dmah_init_attr wish{};
    wish.comp_mask = IBV_DMAH_INIT_ATTR_MASK_CPU_ID;
    auto* const dmah = ibv_alloc_dmah(on.context, &wish);
    REQUIRE((dmah != nullptr && dmah->context == on.context));
    attr.comp_mask |= IBV_REG_MR_MASK_DMAH;
    attr.dmah = dmah;
    auto* const hinted = ibv_reg_mr_ex(on.pd, &attr);
    REQUIRE(hinted != nullptr);
    CHECK((ibv_dealloc_dmah(dmah) == EBUSY && errno == fake::decoy));
    CHECK(fake::leaks().find("1 DMA handle(s)") != std::string::npos);
    CHECK(ibv_dereg_mr(hinted) == 0);
    CHECK(ibv_dereg_mr(plain) == 0);
    CHECK(ibv_dealloc_dmah(dmah) == 0);
    attr.comp_mask |= std::uint64_t{1} << 40;
    CHECK((ibv_reg_mr_ex(on.pd, &attr) == nullptr && errno == EOPNOTSUPP));
    fake::fail("ibv_reg_mr_ex", 1, ENOMEM);
    CHECK((ibv_reg_mr_ex(on.pd, &attr) == nullptr && errno == ENOMEM));
    CHECK(fake::misuse().size() == 1);
    world.messy();
}
#endif
