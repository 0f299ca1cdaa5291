// SPDX-License-Identifier: MIT
// Completions: what they tell, extended CQs walked through, several CQs waited for together, and acks in batches.
#include "loopback.hpp"

#include <algorithm>
#include <atomic>
#include <csignal>
#include <set>
#include <stop_token>
#include <string>
#include <thread>

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace unit;

namespace {

ibv_wc completion(std::uint64_t wr_id, ibv_wc_status status = IBV_WC_SUCCESS) {
    ibv_wc wc{};
    wc.wr_id = wr_id;
    wc.status = status;
    wc.opcode = IBV_WC_RECV;
    return wc;
}

struct one_cq : featured {
    rdma::context device = open_device();
    rdma::comp_channel bell{device};
    rdma::cq cq{device, 64, bell};
    std::array<rdma::work_completion, 16> into;

    void push(rdma::cq_ref to, std::uint64_t wr_id) { fake::push_completion(to.native_handle(), completion(wr_id)); }
    std::size_t unread() {
        std::size_t n = 0;
        for (rdma::cq_event event : bell.pending())
            n += static_cast<bool>(event);
        return n;
    }
};

} // namespace

// ---- What a completion tells ----------------------------------------------------------------------------------------

TEST_CASE("completions: every status has a name of its own", "[verbs]") {
    std::set<std::string> names;
    for (int i = IBV_WC_SUCCESS; i <= IBV_WC_GENERAL_ERR; ++i) {
        std::string const name = to_string(static_cast<rdma::wc_status>(i));
        CHECK(name == ::ibv_wc_status_str(static_cast<ibv_wc_status>(i)));
        names.insert(name);
    }
    CHECK(names.size() == static_cast<std::size_t>(IBV_WC_GENERAL_ERR) + 1);
    CHECK(names.count("") == 0);
    CHECK_FALSE(to_string(static_cast<rdma::wc_status>(99)).empty());
    CHECK(static_cast<int>(rdma::wc_status::general_err) == IBV_WC_GENERAL_ERR);
    CHECK(to_string(rdma::wc_status::wr_flush_err) == ::ibv_wc_status_str(IBV_WC_WR_FLUSH_ERR));
}

TEST_CASE("completions: every field of a success can be read", "[verbs]") {
    ibv_wc wc = completion(7);
    wc.byte_len = 8;
    wc.src_qp = 9;
    wc.wc_flags = IBV_WC_GRH;
    wc.pkey_index = 10;
    wc.slid = 11;
    wc.sl = 12;
    wc.dlid_path_bits = 13;
    rdma::work_completion const whole(wc);
    rdma::completed const c = whole.success();
    CHECK(c.byte_len() == 8);
    CHECK(c.src_qp() == 9);
    CHECK(c.has_grh());
    CHECK(c.wc_flags() == static_cast<unsigned>(IBV_WC_GRH));
    CHECK(c.pkey_index() == 10);
    CHECK(c.slid() == 11);
    CHECK(c.sl() == 12);
    CHECK(c.dlid_path_bits() == 13);
    CHECK_FALSE(c.imm_data());
    CHECK_FALSE(c.invalidated_rkey());
}

// ---- Extended CQs ---------------------------------------------------------------------------------------------------

namespace {

struct extended : one_cq {
    rdma::cq_ex ex{device, {.cqe = 64, .channel = bell, .wc_flags = IBV_CREATE_CQ_SUP_WC_FLAGS}};

    void fill(std::uint64_t many = 3) {
        for (std::uint64_t i = 0; i != many; ++i)
            push(ex, i);
    }
    /// So many were begun, and all that were are ended.
    void check_ended(std::size_t wanted) {
        CHECK(fake::count("ibv_end_poll") == wanted);
        fill(1);
        CHECK(ex.poll(into).size() != 0); // misuse() tells if it is being polled still
    }
};

} // namespace

TEST_CASE_METHOD(extended, "extended CQ: all that is there is walked through once", "[verbs]") {
    fill();
    std::vector<std::uint64_t> seen;
    for (auto& each : ex.start_poll()) {
        CHECK(each.status() == rdma::wc_status::success);
        seen.push_back(each.wr_id());
    }
    CHECK(seen == std::vector<std::uint64_t>{0, 1, 2});
    for ([[maybe_unused]] auto& each : ex.start_poll())
        FAIL("there is nothing more");
    CHECK(fake::count("ibv_start_poll") == 2);
    check_ended(1); // what found nothing has not begun
}

TEST_CASE_METHOD(extended, "extended CQ: step by step", "[verbs]") {
    {
        rdma::polling none = ex.start_poll();
        CHECK_FALSE(none);
        CHECK(none.error() == std::errc{});
    }
    fill(2);
    {
        rdma::polling at = ex.start_poll();
        REQUIRE(at);
        CHECK(at.wr_id() == 0);
        at.next();
        REQUIRE(at);
        CHECK(at.wr_id() == 1);
        at.next();
        CHECK_FALSE(at);
        CHECK(at.error() == std::errc{});
    }
    check_ended(1);
}

TEST_CASE_METHOD(extended, "extended CQ: it is ended on a break, a throw and a return", "[verbs]") {
    fill(4);
    SECTION("break") {
        for (auto& each : ex.start_poll())
            if (each.wr_id() == 1)
                break;
    }
    SECTION("throw") {
        CHECK_THROWS_AS(
            [&] {
                for (auto& each : ex.start_poll())
                    if (each.wr_id() == 1)
                        throw 3;
            }(),
            int);
    }
    SECTION("return") {
        CHECK([&] {
            for (auto& each : ex.start_poll())
                if (each.wr_id() == 1)
                    return each.wr_id();
            return std::uint64_t{99};
        }() == 1);
    }
    CHECK(fake::count("ibv_next_poll") == 1);
    check_ended(1);
    std::uint64_t rest = 99; // what was not walked to is there still, what was is not
    for (auto& each : ex.start_poll())
        rest = each.wr_id();
    CHECK(rest == 99); // check_ended took it
}

TEST_CASE_METHOD(extended, "extended CQ: a start that fails has not begun, and a step that fails ends it", "[verbs]") {
    fill();
    fake::fail("ibv_start_poll", 1, EIO);
    {
        rdma::polling const failed = ex.start_poll();
        CHECK_FALSE(failed);
        CHECK(failed.error() == std::errc::io_error);
    }
    CHECK(fake::count("ibv_end_poll") == 0);
    fake::fail("ibv_next_poll", 2, EIO);
    {
        rdma::polling at = ex.start_poll();
        std::size_t seen = 0;
        for ([[maybe_unused]] auto& each : at)
            ++seen;
        CHECK(seen == 2);
        CHECK(at.error() == std::errc::io_error);
    }
    check_ended(1);
}

TEST_CASE_METHOD(extended, "extended CQ: every field can be read", "[verbs]") {
    std::uint64_t const before = device.query_raw_clock();
    ibv_wc wc = completion(70);
    wc.vendor_err = 71;
    wc.byte_len = 72;
    wc.imm_data = htonl(73);
    wc.qp_num = 74;
    wc.src_qp = 75;
    wc.wc_flags = IBV_WC_GRH | IBV_WC_WITH_IMM;
    wc.slid = 76;
    wc.sl = 7;
    wc.dlid_path_bits = 78;
    fake::push_completion(ex.native_handle(), wc, {.cvlan = 79, .flow_tag = 80, .tag = 81, .priv = 82});
    wc.wc_flags = IBV_WC_WITH_INV;
    wc.invalidated_rkey = 83;
    fake::push_completion(ex.native_handle(), wc);
    wc = completion(84, IBV_WC_RETRY_EXC_ERR);
    wc.vendor_err = 85;
    wc.qp_num = 86;
    fake::push_completion(ex.native_handle(), wc);

    rdma::polling at = ex.start_poll();
    REQUIRE(at);
    CHECK(at.wr_id() == 70);
    CHECK(at.status() == rdma::wc_status::success);
    CHECK(at.vendor_err() == 71);
    CHECK(at.qp_num() == 74);
    rdma::completed_ex const c = at.success();
    CHECK(c.opcode() == rdma::wc_opcode::recv);
    CHECK(c.byte_len() == 72);
    CHECK(c.wc_flags() == (unsigned{IBV_WC_GRH} | IBV_WC_WITH_IMM));
    CHECK(c.imm_data() == htonl(73));
    CHECK(c.src_qp() == 75);
    CHECK(c.slid() == 76);
    CHECK(c.sl() == 7);
    CHECK(c.dlid_path_bits() == 78);
    CHECK(c.cvlan() == 79);
    CHECK(c.flow_tag() == 80);
    CHECK(c.tm_info().tag == 81);
    CHECK(c.tm_info().priv == 82);
    CHECK(c.completion_ts() >= before);
    CHECK(c.completion_wallclock_ns() > 1'600'000'000'000'000'000u);
    at.next();
    REQUIRE(at);
    CHECK(at.success().invalidated_rkey() == 83);
    at.next();
    REQUIRE(at);
    CHECK(at.status() == rdma::wc_status::retry_exc_err);
    CHECK(at.wr_id() == 84);
    CHECK(at.vendor_err() == 85);
    CHECK(at.qp_num() == 86);
}

TEST_CASE_METHOD(extended, "extended CQ: it is armed and waited for as any other", "[verbs]") {
    ex.req_notify();
    fill(1);
    {
        rdma::cq_event const event = bell.get();
        CHECK(event.native_handle() == ex.native_handle());
    }
    std::size_t seen = 0;
    for ([[maybe_unused]] auto& each : ex.start_poll())
        ++seen;
    CHECK(seen == 1);
    fake::complete_while_arming(ex.native_handle(), completion(5)); // and what waits for completions may poll it
    CHECK(ex.wait_for(into, 10s).size() == 1);
}

#if !defined(NDEBUG)
TEST_CASE_METHOD(extended, "A16 asking a failed completion of an extended CQ for its success is reported", "[field]") {
    fake::push_completion(ex.native_handle(), completion(1, IBV_WC_WR_FLUSH_ERR));
    pid_t const child = ::fork();
    if (child == 0) {
        ::signal(SIGABRT, SIG_DFL); // Catch's handler is the parent's affair
        rlimit const no_core{};
        ::setrlimit(RLIMIT_CORE, &no_core);
        ::close(STDERR_FILENO);
        for (auto& each : ex.start_poll())
            (void)each.success();
        ::_exit(0);
    }
    REQUIRE(child > 0);
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    CHECK_FALSE((WIFEXITED(status) && WEXITSTATUS(status) == 0));
}
#endif

// ---- Waiting --------------------------------------------------------------------------------------------------------

TEST_CASE_METHOD(one_cq, "waiting: one completion", "[verbs]") {
    std::error_code ec = std::make_error_code(std::errc::io_error);
    CHECK_FALSE(cq.wait_one(1ms));
    CHECK_FALSE(cq.wait_one(1ms, ec));
    CHECK_FALSE(ec);
    for (std::uint64_t i = 0; i != 4; ++i)
        push(cq, i);
    CHECK(cq.wait_one().wr_id() == 0);
    CHECK(cq.wait_one(1h)->wr_id() == 1);
    CHECK(cq.wait_one(1h, ec)->wr_id() == 2);
    CHECK(rdma::cq_ref(cq).wait_one().wr_id() == 3);
    fake::fail("ibv_poll_cq", 1, 2);
    CHECK_FALSE(cq.wait_one(1h, ec));
    CHECK(ec == rdma::errc::poll_failed);
}

TEST_CASE_METHOD(one_cq, "waiting: the call that failed is named", "[verbs]") {
    for (char const* const function : {"ibv_poll_cq", "ibv_req_notify_cq", "ibv_get_cq_event"}) {
        fake::push_cq_event(cq.native_handle()); // without one it would not be asked for
        fake::fail(function, 1, EIO);
        CHECK(thrown([&] { (void)cq.wait(into); }, function));
    }
    // The wait before has left it armed: the first four gets take off the three events, and find no more.
    fake::on_return("ibv_req_notify_cq", [&] { fake::push_cq_event(cq.native_handle()); });
    fake::fail("ibv_get_cq_event", 5, EINTR);
    CHECK(thrown([&] { (void)cq.wait(into, rdma::wait_options{.interruptible = true}); }, "ibv_get_cq_event") ==
          std::errc::interrupted);
    std::error_code ec;
    CHECK(rdma::cq().wait(into, ec).empty());
    CHECK(ec == rdma::errc::empty_handle);
    CHECK(rdma::cq(device, 4).wait(into, ec).empty()); // it has no channel
    CHECK(ec == std::errc::invalid_argument);
    CHECK(cq.wait(std::span(into).first(0), ec).empty()); // and there would be no end to it
    CHECK(ec == std::errc::invalid_argument);
}

TEST_CASE_METHOD(one_cq, "waiting: events that nobody waited for do not pile up", "[verbs]") {
    bool const between = GENERATE(false, true);
    CAPTURE(between);
    for (int i = 0; i != 1000; ++i) {
        // It comes after the CQ was armed, so that it raises an event, and is found without one.
        fake::on_return("ibv_req_notify_cq", [&] { push(cq, 1); });
        if (cq.wait(into).size() != 1)
            FAIL("turn " << i);
        if (between) {
            push(cq, 2);
            if (cq.wait(into).size() != 1)
                FAIL("turn " << i);
        }
    }
    CHECK(fake::count("ibv_req_notify_cq") == 1000);
    CHECK(unread() <= 1);
}

TEST_CASE_METHOD(one_cq, "waiting: what a wait that ended early has armed does not pile up", "[verbs]") {
    for (int i = 0; i != 1000; ++i) {
        CHECK(cq.wait_for(into, 0ms).empty());
        push(cq, 1); // with its event, which neither of the next waits needs
        if (cq.wait(into).size() != 1)
            FAIL("turn " << i);
        fake::on_return("ibv_req_notify_cq", [&] { push(cq, 2); });
        if (cq.wait(into).size() != 1)
            FAIL("turn " << i);
    }
    CHECK(unread() <= 1);
}

TEST_CASE_METHOD(one_cq, "waiting: an event that was not waited for loses no other CQ's", "[verbs]") {
    rdma::cq other(device, 64, bell);
    fake::on_return("ibv_req_notify_cq", [&] { push(cq, 1); });
    CHECK(cq.wait(into).size() == 1);
    // The events of both are there; waiting for the one takes the other's off, which must then find by polling.
    other.req_notify();
    push(other, 2);
    CHECK(cq.wait_for(into, 1ms).empty());
    CHECK(other.wait(into).size() == 1);
    CHECK(fake::unacked(other.native_handle()) <= 1);
}

TEST_CASE_METHOD(one_cq, "waiting: a CQ is resized, and its events moderated", "[verbs]") {
    push(cq, 1);
    cq.resize(128);
    CHECK(cq.cqe() == 128);
    CHECK(cq.poll(into).size() == 1);
    std::error_code ec = std::make_error_code(std::errc::io_error);
    rdma::cq_ref(cq).resize(64, ec);
    CHECK_FALSE(ec);
    CHECK(cq.cqe() == 64);
    CHECK(thrown([&] { cq.resize(0); }, "0 entries") == std::errc::invalid_argument);
    cq.moderate(16, 30);
    CHECK(fake::moderation(cq.native_handle()).cq_count == 16);
    CHECK(fake::moderation(cq.native_handle()).cq_period == 30);
    rdma::cq_ref(cq).moderate(0, 0, ec);
    CHECK_FALSE(ec);
    CHECK(fake::moderation(cq.native_handle()).cq_count == 0);
    fake::set_all_features(false);
    CHECK(thrown([&] { cq.moderate(16, 30); }, "ibv_modify_cq") == std::errc::operation_not_supported);
    fake::set_all_features(true);
    rdma::cq().resize(4, ec);
    CHECK(ec == rdma::errc::empty_handle);
    rdma::cq().moderate(1, 1, ec);
    CHECK(ec == rdma::errc::empty_handle);
}

// ---- Several CQs of one channel -------------------------------------------------------------------------------------

namespace {

struct three_cqs : one_cq {
    rdma::cq second{device, 64, bell}, third{device, 64, bell};
    std::array<rdma::cq_ref, 3> all{cq, second, third};
    rdma::cq_set set{all};
};

} // namespace

TEST_CASE_METHOD(three_cqs, "cq_set: says whose the completions are", "[verbs]") {
    std::error_code ec = std::make_error_code(std::errc::io_error);
    for (rdma::cq_ref const each : all) {
        push(each, 5);
        rdma::polled const found = set.wait(into);
        CHECK(found.cq == each);
        REQUIRE(found.completions.size() == 1);
        CHECK(found.completions.data() == into.data());
        CHECK(found.completions[0].wr_id() == 5);
    }
    push(second, 6);
    CHECK(set.wait(into, ec).cq == rdma::cq_ref(second));
    CHECK_FALSE(ec);
    push(second, 6);
    CHECK(set.wait_for(into, 1h).cq == rdma::cq_ref(second));
    push(second, 6);
    CHECK(set.wait_for(into, 1h, ec).cq == rdma::cq_ref(second));
    push(second, 6);
    CHECK(set.wait(into, std::stop_token()).cq == rdma::cq_ref(second));
    push(second, 6);
    CHECK(set.wait(into, std::stop_token(), ec).cq == rdma::cq_ref(second));
    push(second, 6);
    CHECK(set.wait_for(into, 1h, std::stop_token()).cq == rdma::cq_ref(second));
    push(second, 6);
    CHECK(set.wait_for(into, 1h, std::stop_token(), ec).cq == rdma::cq_ref(second));
}

TEST_CASE_METHOD(three_cqs, "cq_set: a busy CQ does not starve the others", "[verbs]") {
    push(second, 2);
    push(third, 3);
    std::vector<rdma::cq_ref> order;
    for (int i = 0; i != 6; ++i) {
        push(cq, 1);
        order.push_back(set.wait(into).cq);
    }
    CHECK(order[0] == rdma::cq_ref(cq));
    CHECK(order[1] == rdma::cq_ref(second));
    CHECK(order[2] == rdma::cq_ref(third));
    CHECK(order[3] == rdma::cq_ref(cq));
    CHECK(order[5] == rdma::cq_ref(cq));
}

TEST_CASE_METHOD(three_cqs, "A9 cq_set: what comes while any of the CQs is armed is not missed", "[field][verbs]") {
    for (rdma::cq_ref const each : all) {
        fake::complete_while_arming(each.native_handle(), completion(7)); // and raises no event
        rdma::polled const found = set.wait_for(into, 10s);               // would wait for ever
        CHECK(found.cq == each);
        CHECK(found.completions.size() == 1);
    }
    // All were armed before, and each may come after: that raises an event of its own.
    for (rdma::cq_ref const each : all) {
        CHECK(set.wait_for(into, 0ms).completions.empty());
        push(each, 8);
        CHECK(set.wait_for(into, 10s).cq == each);
    }
}

TEST_CASE_METHOD(three_cqs, "A9 cq_set: one event may stand for more completions than a poll takes", "[field][verbs]") {
    CHECK(set.wait_for(into, 0ms).completions.empty()); // armed
    for (std::uint64_t i = 0; i != 40; ++i) {
        push(cq, i);
        push(third, i);
    }
    std::size_t of_first = 0, of_third = 0;
    while (of_first + of_third != 80) {
        rdma::polled const found = set.wait_for(into, 10s);
        REQUIRE_FALSE(found.completions.empty());
        CHECK(found.completions[0].wr_id() == (found.cq == all[0] ? of_first : of_third));
        (found.cq == all[0] ? of_first : of_third) += found.completions.size();
    }
    CHECK(of_first == 40);
    CHECK(set.wait_for(into, 0ms).completions.empty());
}

TEST_CASE_METHOD(three_cqs, "cq_set: events that nobody waited for do not pile up", "[verbs]") {
    for (int i = 0; i != 1000; ++i) {
        rdma::cq_ref const one = all[static_cast<std::size_t>(i) % 3], next = all[static_cast<std::size_t>(i + 1) % 3];
        fake::on_return("ibv_req_notify_cq", one.native_handle(), [&] { push(one, 1); });
        if (set.wait(into).completions.size() != 1)
            FAIL("turn " << i);
        push(next, 2);
        if (set.wait(into).completions.size() != 1)
            FAIL("turn " << i);
    }
    CHECK(unread() <= 3); // one for each at most
}

TEST_CASE_METHOD(three_cqs, "cq_set: a wait ends when it is late, or stopped", "[verbs]") {
    std::error_code ec = std::make_error_code(std::errc::io_error);
    CHECK(set.wait_for(into, 1ms).completions.empty());
    rdma::polled const late = set.wait_for(into, 1ms, ec);
    CHECK(late.completions.empty());
    CHECK_FALSE(late.cq);
    CHECK_FALSE(ec);
    std::stop_source source;
    std::jthread stopper([&] { source.request_stop(); });
    CHECK(set.wait(into, source.get_token()).completions.empty());
    CHECK(set.wait(into, source.get_token(), ec).completions.empty());
    CHECK_FALSE(ec);
    stopper.join();

    std::atomic<bool> go{false};
    std::jthread pusher([&] {
        go.wait(false);
        push(third, 1);
    });
    go = true;
    go.notify_one();
    CHECK(set.wait(into).cq == rdma::cq_ref(third));
}

TEST_CASE_METHOD(three_cqs, "cq_set: what it cannot wait for is refused, and what fails is told", "[verbs]") {
    rdma::comp_channel const other_bell(device);
    rdma::cq const elsewhere(device, 4, other_bell), nowhere(device, 4);
    std::error_code ec;
    auto const refused = [&](std::vector<rdma::cq_ref> const& some, std::error_code wanted) {
        rdma::cq_set bad(some);
        std::size_t const before = calls_made();
        CHECK(bad.wait(into, ec).completions.empty());
        CHECK(ec == wanted);
        CHECK(thrown([&] { (void)bad.wait(into); }) == wanted);
        CHECK(calls_made() == before);
    };
    auto const invalid = std::error_code(EINVAL, std::system_category());
    refused({}, invalid);
    refused({cq, elsewhere}, invalid);
    refused({cq, nowhere}, invalid);
    refused({nowhere, cq}, invalid);
    refused({cq, rdma::cq_ref(second.native_handle())}, invalid); // C's, of which nothing is known
    refused({cq, rdma::cq_ref()}, invalid);
    refused({rdma::cq_ref(), cq}, rdma::errc::empty_handle);
    CHECK(set.wait(std::span(into).first(0), ec).completions.empty());
    CHECK(ec == std::errc::invalid_argument);

    push(second, 1);
    fake::fail("ibv_poll_cq", 2, 2);
    CHECK(set.wait(into, ec).completions.empty());
    CHECK(ec == rdma::errc::poll_failed);
    CHECK(set.wait(into).cq == rdma::cq_ref(second));
    fake::fail("ibv_req_notify_cq", 3, EIO);
    CHECK(thrown([&] { (void)set.wait(into); }) == std::errc::io_error);
    fake::push_cq_event(second.native_handle()); // without one it would not be asked for
    fake::fail("ibv_get_cq_event", 1, EIO);
    CHECK(thrown([&] { (void)set.wait(into); }) == std::errc::io_error);
}

// ---- Acks -----------------------------------------------------------------------------------------------------------

TEST_CASE_METHOD(one_cq, "A8 acks go to the CQ that the event named, in batches of any size", "[field][verbs]") {
    std::uint32_t const batch = GENERATE(1u, 3u, 1000u);
    CAPTURE(batch);
    rdma::cq other(device, 64, bell);
    cq.ack_batch(batch);
    other.ack_batch(batch);
    ibv_cq* const a = cq.native_handle();
    ibv_cq* const b = other.native_handle();
    for (ibv_cq* const each : {a, b, a, b, b})
        fake::push_cq_event(each);
    int turns = 0;
    CHECK_THROWS_AS(
        [&] {
            for (rdma::cq_event event : bell)
                if (++turns == 3)
                    throw 3;
        }(),
        int);
    CHECK(fake::unacked(a) == (batch == 1 ? 0u : 2u));
    CHECK(fake::unacked(b) == (batch == 1 ? 0u : 1u));
    CHECK(unread() == 2);
    CHECK(fake::unacked(a) == (batch == 1 ? 0u : 2u));
    CHECK(fake::unacked(b) == (batch == 1000 ? 3u : 0u)); // at the third of a batch of three, all three
    CHECK(fake::count("ibv_ack_cq_events", b) == (batch == 1 ? 3u : batch == 3 ? 1u : 0u));
    fake::clear_calls();
    cq.destroy();
    other = rdma::cq();
    CHECK(fake::count("ibv_ack_cq_events", a) == (batch == 1 ? 0u : 1u));
    CHECK(fake::count("ibv_ack_cq_events", b) == (batch == 1000 ? 1u : 0u));
    CHECK(fake::count("ibv_destroy_cq") == 2);
}

TEST_CASE_METHOD(one_cq, "A8 acks of a wait are counted with those of the program", "[field][verbs]") {
    cq.ack_batch(1000);
    fake::push_cq_event(cq.native_handle());
    bell.get().ack();
    CHECK(cq.wait_for(into, 0ms).empty());
    push(cq, 1);
    CHECK(cq.wait(into).size() == 1);
    CHECK(cq.wait_for(into, 0ms).empty());
    push(cq, 1);
    std::jthread pusher([&] { push(cq, 2); });
    CHECK(cq.wait(into).size() >= 1);
    pusher.join();
    CHECK(fake::count("ibv_ack_cq_events") == 0);
    ibv_cq* const raw = cq.release();
    CHECK(fake::unacked(raw) == 0); // C could not destroy it else
    CHECK(fake::count("ibv_ack_cq_events") <= 1);
    CHECK(::ibv_destroy_cq(raw) == 0);
    rdma::cq().ack_batch(3); // nothing to do
}
