// SPDX-License-Identifier: MIT
// The end of a queue pair: all that was posted comes back, and what is not its own is handed on.
#include "loopback.hpp"

#include <algorithm>
#include <type_traits>
#include <vector>

using namespace unit;

namespace {

struct draining : loopback {
    std::vector<rdma::work_completion> seen;

    auto collect() {
        return [this](rdma::work_completion const& each) { seen.push_back(each); };
    }
    std::vector<std::uint64_t> ids_of(rdma::wc_status status) const {
        std::vector<std::uint64_t> ids;
        for (rdma::work_completion const& each : seen)
            if (each.status() == status)
                ids.push_back(each.wr_id());
        return ids;
    }
    bool saw_mark() const {
        return std::any_of(seen.begin(), seen.end(), [](rdma::work_completion const& each) {
            return each.wr_id() == rdma::drain_mark || each.wr_id() == rdma::drain_mark + 1;
        });
    }
    /// What is posted on `right`: receives 1 to 3, and sends 11 and 12, which wait for a receive of the peer's.
    void post() {
        for (std::uint64_t i = 1; i != 4; ++i)
            right.post_recv(rdma::recv_wr(theirs.sge()).id(i));
        for (std::uint64_t i = 11; i != 13; ++i)
            right.post_send(rdma::send_wr::send(theirs.sge()).id(i)); // not signaled: it is flushed all the same
    }
    /// The next so many calls of it fail.
    static void fail_often(char const* function, int code) {
        for (unsigned nth = 1; nth != 2000; ++nth)
            fake::fail(function, nth, code);
    }
};

using ids = std::vector<std::uint64_t>;

constexpr auto nothing_thrown = [](rdma::work_completion const&) noexcept {};
constexpr auto may_throw = [](rdma::work_completion const&) {};
template <class OnCompletion>
constexpr bool drains_noexcept(OnCompletion& callback) {
    return noexcept(
        std::declval<rdma::qp&>().drain(std::declval<rdma::timeout>(), callback, std::declval<std::error_code&>()));
}
static_assert(drains_noexcept(nothing_thrown));
static_assert(!drains_noexcept(may_throw));

} // namespace

TEST_CASE_METHOD(draining, "drain: all that was posted comes back, and its memory is the program's again",
                 "[verbs][data]") {
    bool const throwing = GENERATE(false, true), by_view = GENERATE(false, true);
    CAPTURE(throwing, by_view);
    post();
    std::error_code ec = std::make_error_code(std::errc::io_error);
    rdma::drained const end = by_view    ? rdma::qp_ref(right).drain(1h, collect(), ec)
                              : throwing ? right.drain(1h, collect())
                                         : right.drain(1h, collect(), ec);
    if (by_view || !throwing)
        CHECK_FALSE(ec);
    CHECK(end);
    CHECK(end.sends);
    CHECK(end.receives);
    CHECK(end.completions == 5);
    ids flushed = ids_of(rdma::wc_status::wr_flush_err);
    std::sort(flushed.begin(), flushed.end());
    CHECK(flushed == ids{1, 2, 3, 11, 12});
    CHECK_FALSE(saw_mark());
    CHECK(right.query(IBV_QP_STATE).qp_state == IBV_QPS_ERR);
    CHECK(all_of(sends).empty());
    CHECK(all_of(receives).empty());
    CHECK(right.drain(1h, collect()).completions == 0); // and once more
}

TEST_CASE_METHOD(draining, "drain: what had completed before is handed on, and what is another QP's", "[verbs][data]") {
    right.post_recv(rdma::recv_wr(theirs.sge()).id(1));
    left.post_send(rdma::send_wr::send(ours.sge()).id(21).signaled());
    right.post_recv(rdma::recv_wr(theirs.sge()).id(2));
    left.post_recv(rdma::recv_wr(ours.sge()).id(rdma::drain_mark)); // a mark only with the number of the QP
    right.post_send(rdma::send_wr::send(theirs.sge()).id(22).signaled());
    rdma::drained const end = right.drain(1h, collect());
    CHECK(end);
    CHECK(end.completions == 5);
    CHECK(ids_of(rdma::wc_status::wr_flush_err) == ids{2});
    ids done = ids_of(rdma::wc_status::success);
    std::sort(done.begin(), done.end());
    CHECK(done == ids{1, 21, 22, rdma::drain_mark});
}

TEST_CASE_METHOD(draining, "drain: more than one look takes", "[verbs][data]") {
    rdma::cq const big(device, 256);
    rdma::qp const qp(pd, rdma::qp_type::rc,
                      {.send_cq = big, .recv_cq = big, .cap = {.max_send_wr = 100, .max_recv_wr = 100}});
    left = make_qp();
    bring_up(left, qp.qp_num());
    bring_up(qp, left.qp_num());
    for (std::uint64_t i = 0; i != 100; ++i) { // both queues are full: no place for a mark yet
        qp.post_recv(rdma::recv_wr(theirs.sge()).id(i));
        qp.post_send(rdma::send_wr::send(theirs.sge()).id(1000 + i));
    }
    rdma::drained const end = qp.drain(1h, collect());
    CHECK(end);
    CHECK(end.completions == 200);
    CHECK(ids_of(rdma::wc_status::wr_flush_err).size() == 200);
    CHECK_FALSE(saw_mark());
}

TEST_CASE_METHOD(draining, "drain: it ends in time although nothing shows the end", "[verbs][data]") {
    post();
    auto const before = std::chrono::steady_clock::now();
    SECTION("of the sends") {
        fail_often("ibv_post_send", ENOMEM);
        rdma::drained const end = right.drain(20ms, collect());
        CHECK_FALSE(end);
        CHECK_FALSE(end.sends);
        CHECK(end.receives);
        CHECK(end.completions == 5);
    }
    SECTION("of the receives") {
        fail_often("ibv_post_recv", ENOMEM);
        std::error_code ec;
        rdma::drained const end = right.drain(20ms, collect(), ec);
        CHECK_FALSE(ec); // to be late is no error
        CHECK(end.sends);
        CHECK_FALSE(end.receives);
        CHECK(end.completions == 5);
    }
    CHECK(std::chrono::steady_clock::now() - before >= 20ms);
    fake::disarm();
    CHECK(right.drain(1h, collect())); // it may be tried again
}

TEST_CASE_METHOD(draining, "drain: with no time at all it looks once", "[verbs][data]") {
    post();
    fail_often("ibv_post_send", ENOMEM);
    CHECK(right.drain(0ms, collect()).completions == 5);
    fake::disarm();
}

TEST_CASE_METHOD(draining, "drain: receives of a shared queue stay there, but for those taken", "[verbs][data]") {
    rdma::srq const shared(pd, {.max_wr = 8});
    right = rdma::qp(pd, rdma::qp_type::rc, {.send_cq = sends, .recv_cq = receives, .srq = shared});
    left = make_qp();
    connect();
    for (std::uint64_t i = 1; i != 4; ++i)
        shared.post_recv(rdma::recv_wr(theirs.sge()).id(i));
    left.post_send(rdma::send_wr::send(ours.sge()));
    rdma::drained const end = right.drain(1h, collect());
    CHECK(end);
    CHECK(end.completions == 1);
    CHECK(seen[0].wr_id() == 1);
    CHECK(seen[0].status() == rdma::wc_status::success);
    CHECK(fake::count("ibv_post_recv") == 0); // it has no queue of its own to be marked
}

TEST_CASE_METHOD(draining, "drain: a datagram QP's sends show no end", "[verbs][data]") {
    rdma::qp const datagrams(pd, rdma::qp_type::ud, {.send_cq = sends, .recv_cq = receives});
    bring_up_datagrams(datagrams, 1);
    datagrams.post_recv(rdma::recv_wr(theirs.sge()).id(1));
    rdma::drained const end = datagrams.drain(2ms, collect());
    CHECK(end.receives);
    CHECK_FALSE(end.sends);
    CHECK(end.completions == 1);
    CHECK(fake::count("ibv_post_send") == 0);
}

TEST_CASE_METHOD(draining, "drain: halves of an XRC connection have one queue each", "[verbs][data][xrc]") {
    rdma::xrcd const domain(device);
    rdma::qp const from(pd, rdma::qp_type::xrc_send, {.send_cq = sends, .cap = {.max_recv_wr = 0, .max_recv_sge = 0}});
    rdma::qp const to(pd, rdma::qp_type::xrc_recv,
                      rdma::qp_init_attr_ex{.attr = {.cap = {.max_send_wr = 0, .max_recv_wr = 0}}, .xrcd = domain});
    bring_up(from, to.qp_num());
    CHECK(from.drain(1h, collect()));
    std::size_t const posts = fake::count("ibv_post_send") + fake::count("ibv_post_recv");
    CHECK(to.drain(1h, collect()));
    CHECK(fake::count("ibv_post_send") + fake::count("ibv_post_recv") == posts);
}

TEST_CASE_METHOD(draining, "drain: what fails is told, and nothing is taken", "[verbs][data]") {
    post();
    std::error_code ec;
    fake::fail("ibv_modify_qp", 1, EIO);
    rdma::drained end = right.drain(1h, collect(), ec);
    CHECK(ec == std::errc::io_error);
    CHECK_FALSE(end);
    fake::fail("ibv_modify_qp", 1, EIO);
    CHECK(thrown([&] { (void)right.drain(1h, collect()); }, "ibv_modify_qp") == std::errc::io_error);
    CHECK(seen.empty());
    CHECK(fake::count("ibv_poll_cq") == 0);

    fake::fail("ibv_poll_cq", 1, 2);
    end = right.drain(1h, collect(), ec);
    CHECK(ec == rdma::errc::poll_failed);
    CHECK_FALSE(end);
    fake::fail("ibv_poll_cq", 1, 2);
    CHECK(thrown([&] { (void)right.drain(1h, collect()); }) == rdma::errc::poll_failed);
    CHECK(right.drain(1h, collect()));

    CHECK_FALSE(rdma::qp().drain(1h, collect(), ec));
    CHECK(ec == rdma::errc::empty_handle);
    CHECK(thrown([&] { (void)rdma::qp_ref().drain(1h, collect()); }) == rdma::errc::empty_handle);
}

TEST_CASE_METHOD(draining, "drain: what the callback throws ends it", "[verbs][data]") {
    post();
    CHECK_THROWS_AS(right.drain(1h, [](rdma::work_completion const&) { throw 3; }), int);
    (void)right.drain(1h, collect());
    CHECK(right.query(IBV_QP_STATE).qp_state == IBV_QPS_ERR);
}

TEST_CASE("drain: the QP of an id, connected, on each transport", "[verbs][data]") {
    char const* const host = GENERATE(rxe_host, siw_host);
    CAPTURE(host);
    world w;
    connection c = connect_pair(host);
    std::array<std::byte, 16> memory{};
    rdma::mr const region(c.server.pd(), memory, rdma::access::local_write);
    for (std::uint64_t i = 1; i != 4; ++i)
        c.server.qp().post_recv(rdma::recv_wr(region.sge()).id(i));
    ids flushed;
    rdma::drained const end =
        c.server.qp().drain(1h, [&](rdma::work_completion const& each) { flushed.push_back(each.wr_id()); });
    CHECK(end);
    CHECK(flushed == ids{1, 2, 3});
}
