// SPDX-License-Identifier: MIT
// What newer versions of libibverbs have more: flushes, and ibv_reg_mr_ex. Built against stand-ins for their headers
// where the installed one is older.
#include "../error_table.hpp"
#include "../loopback.hpp"

#include <array>
#include <cstdint>

#include <sys/mman.h>
#include <unistd.h>

using namespace unit;

static_assert(static_cast<int>(rdma::wc_opcode::flush) == IBV_WC_FLUSH);
static_assert(static_cast<unsigned>(rdma::access::flush_global) == IBV_ACCESS_FLUSH_GLOBAL);
static_assert(static_cast<unsigned>(rdma::access::flush_persistent) == IBV_ACCESS_FLUSH_PERSISTENT);

namespace {

constexpr rdma::access flushable = every_access | rdma::access::flush_global | rdma::access::flush_persistent;

ibv_mr_init_attr plain(std::span<std::byte> memory, rdma::access allowed) {
    ibv_mr_init_attr attr{};
    attr.comp_mask = IBV_REG_MR_MASK_ADDR;
    attr.addr = memory.data();
    attr.length = memory.size();
    attr.access = static_cast<int>(allowed);
    return attr;
}

/// Two connected QPs whose requests may also be flushes.
struct flushing : loopback {
    rdma::mr flushed{pd, there, flushable};

    flushing() {
        left = make_flushing_qp();
        right = make_flushing_qp();
        connect();
        ibv_qp_attr attr{};
        attr.qp_access_flags = static_cast<unsigned>(flushable & ~rdma::access::mw_bind);
        right.modify(attr, IBV_QP_ACCESS_FLAGS);
    }
    rdma::qp make_flushing_qp() const {
        return rdma::qp(pd, rdma::qp_type::rc,
                        rdma::qp_init_attr_ex{.attr = {.send_cq = sends, .recv_cq = receives, .cap = cap},
                                              .send_ops_flags = every_request | IBV_QP_EX_WITH_FLUSH});
    }
    rdma::work_completion flush(rdma::remote_memory at, std::size_t length, ibv_placement_type type,
                                ibv_selectivity_level level) {
        left.ex().post([&](rdma::wr_batch& batch) {
            batch.request(3, IBV_SEND_SIGNALED)
                .flush(at, length, static_cast<std::uint8_t>(type), static_cast<std::uint8_t>(level));
        });
        return only(sends);
    }
};

struct everything {
    rdma::event_channel channel;
    rdma::cm_id id = make_bound(channel);
    std::array<std::byte, 8> memory{};
};

using ec_ref = std::error_code&;

wrapped<everything> const newer[]{
    {"rdma_write_cm_event", [](everything& e) { e.id.write_cm_event(0, 1); },
     [](everything& e, ec_ref ec) { e.id.write_cm_event(0, 1, ec); }},
    {"rdma_resolve_addrinfo", [](everything& e) { e.id.resolve_addrinfo(rxe_host, "7471"); },
     [](everything& e, ec_ref ec) { e.id.resolve_addrinfo(rxe_host, "7471", {}, ec); }},
    {"rdma_query_addrinfo", [](everything& e) { (void)e.id.query_addrinfo(); },
     [](everything& e, ec_ref ec) { CHECK_FALSE(e.id.query_addrinfo(ec)); }},
    {"ibv_reg_mr_ex", [](everything& e) { (void)rdma::mr::reg_mr_ex(e.id.pd(), plain(e.memory, rdma::access::none)); },
     [](everything& e, ec_ref ec) {
         CHECK_FALSE(rdma::mr::reg_mr_ex(e.id.pd(), plain(e.memory, rdma::access::none), ec));
     }},
};

} // namespace

TEST_CASE("A14 every newer call's error is read where its convention puts it", "[field][errors][v60]") {
    featured w;
    everything all;
    int code = ELNRNG;
    for (auto const& each : newer) {
        CAPTURE(each.function, ++code);
        check_failure(each, all, code);
    }
}

TEST_CASE_METHOD(loopback, "memory: registered with all that newer versions offer", "[memory][v60]") {
    ibv_mr_init_attr attr = plain(there, every_access);
    {
        rdma::mr const plain_one = rdma::mr::reg_mr_ex(pd, attr);
        CHECK((plain_one.addr() == there.data() && plain_one.length() == there.size()));
        attr.comp_mask |= IBV_REG_MR_MASK_IOVA;
        attr.iova = 0x5000;
        std::error_code ec;
        ibv_mr_init_attr const only_read = attr;
        rdma::mr const elsewhere = rdma::mr::reg_mr_ex(pd, only_read, ec);
        CHECK_FALSE(ec);
        left.post_send(rdma::send_wr::write(ours.sge(0, 8), {0x5008, elsewhere.rkey()}).signaled());
        CHECK(only(sends));
        CHECK(there[8] == here[0]);
    }
    CHECK(fake::count("ibv_dereg_mr") == 2);

    int const file = ::memfd_create("dmabuf", MFD_CLOEXEC);
    REQUIRE(::ftruncate(file, 4096) == 0);
    attr = {};
    attr.length = 4096;
    attr.access = static_cast<int>(every_access);
    attr.comp_mask = IBV_REG_MR_MASK_FD | IBV_REG_MR_MASK_FD_OFFSET | IBV_REG_MR_MASK_IOVA;
    attr.fd = file;
    CHECK(rdma::mr::reg_mr_ex(pd, attr).length() == 4096);
    ::close(file);

    ibv_dmah_init_attr hint{};
    ibv_dmah* const handle = ::ibv_alloc_dmah(device.native_handle(), &hint);
    REQUIRE(handle);
    attr = plain(there, every_access);
    attr.comp_mask |= IBV_REG_MR_MASK_DMAH;
    attr.dmah = handle;
    rdma::mr hinted = rdma::mr::reg_mr_ex(pd, attr);
    CHECK(hinted);
    hinted = rdma::mr();
    CHECK(::ibv_dealloc_dmah(handle) == 0);
}

TEST_CASE_METHOD(loopback, "memory: what a newer registration refuses, and what it keeps", "[memory][v60]") {
    ibv_mr_init_attr const attr = plain(there, every_access);
    std::size_t const calls = calls_made();
    CHECK(thrown([&] { (void)rdma::mr::reg_mr_ex({}, attr); }) == rdma::errc::not_bound);
    std::error_code ec;
    CHECK_FALSE(rdma::mr::reg_mr_ex({}, attr, ec));
    CHECK(ec == rdma::errc::not_bound);
    CHECK(calls_made() == calls);
    CHECK(thrown([&] { (void)rdma::mr::reg_mr_ex(pd, ibv_mr_init_attr{}); }, "ibv_reg_mr_ex") ==
          std::errc::invalid_argument);
    rdma::context siw = open_device("siw0");
    rdma::pd other(siw);
    CHECK(thrown([&] { (void)rdma::mr::reg_mr_ex(other, attr); }) ==
          std::error_code(EOPNOTSUPP, std::system_category()));
    rdma::pd lonely(device);
    ibv_pd* const raw = lonely.native_handle();
    rdma::mr region = rdma::mr::reg_mr_ex(lonely, attr);
    lonely = rdma::pd();
    CHECK(fake::count("ibv_dealloc_pd", raw) == 0);
    region = rdma::mr();
    CHECK(fake::count("ibv_dealloc_pd", raw) == 1);
}

TEST_CASE_METHOD(flushing, "requests: flushes, of a range and of a region", "[verbs][data][v60]") {
    auto const range = flush(flushed.remote(8), 16, IBV_FLUSH_GLOBAL, IBV_FLUSH_RANGE);
    REQUIRE(range);
    CHECK((range.wr_id() == 3 && range.success().opcode() == rdma::wc_opcode::flush));
    CHECK(flush(flushed.remote(), 0, IBV_FLUSH_PERSISTENT, IBV_FLUSH_MR));
    CHECK(flush(theirs.remote(), 8, IBV_FLUSH_GLOBAL, IBV_FLUSH_RANGE).status() ==
          rdma::wc_status::rem_access_err); // without the right to
    CHECK(fake::count("ibv_wr_flush") == 3);
}

TEST_CASE_METHOD(loopback, "requests: a QP that was not made for flushes is not flushed", "[verbs][data][v60]") {
    messy();
    rdma::wr_batch batch = left.ex().start();
    batch.request(3, IBV_SEND_SIGNALED).flush(theirs.remote(), 8, IBV_FLUSH_GLOBAL, IBV_FLUSH_RANGE);
    (void)batch.complete(std::nothrow);
    CHECK(fake::misuse().size() == 1); // "would crash"
}
