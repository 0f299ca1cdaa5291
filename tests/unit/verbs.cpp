// SPDX-License-Identifier: MIT
// Protection domains, memory regions, completion channels and queues, QPs and work requests: made, used, dropped in any
// order, waited for, and handed over from and to C.
#include "support.hpp"

#include <algorithm>
#include <atomic>
#include <numeric>
#include <optional>
#include <span>
#include <stop_token>
#include <thread>
#include <vector>

#include <fcntl.h>

using namespace unit;

namespace {

ibv_wc completion(std::uint64_t wr_id) {
    ibv_wc wc{};
    wc.wr_id = wr_id;
    wc.status = IBV_WC_SUCCESS;
    wc.opcode = IBV_WC_RECV;
    return wc;
}

struct one_device : world {
    rdma::event_channel channel;
    rdma::cm_id id = make_bound(channel);
    std::array<std::byte, 256> memory{};
};

struct one_cq : one_device {
    rdma::comp_channel bell{id.verbs()};
    rdma::cq cq{id.verbs(), 64, bell};
    std::array<rdma::work_completion, 16> into;
};

bool is_nonblocking(int fd) { return (::fcntl(fd, F_GETFL) & O_NONBLOCK) != 0; }

} // namespace

// ---- Dropped in any order -------------------------------------------------------------------------------------------

TEST_CASE("A12 five handles that need each other, dropped in every order", "[field][verbs]") {
    std::array<int, 5> order;
    std::iota(order.begin(), order.end(), 0);
    do {
        CAPTURE(order);
        world w;
        rdma::event_channel channel;
        std::array<std::byte, 16> memory{};
        std::optional<rdma::cm_id> qp(make_bound(channel)); // whose QP it is
        std::optional<rdma::pd> pd(qp->verbs());
        std::optional<rdma::comp_channel> bell(qp->verbs());
        std::optional<rdma::cq> cq(std::in_place, qp->verbs(), 8, *bell);
        std::optional<rdma::mr> mr(std::in_place, *pd, memory, rdma::access::local_write);
        qp->create_qp(*pd, {.send_cq = *cq, .recv_cq = *cq});
        for (int const each : order)
            switch (each) {
            case 0: qp.reset(); break;
            case 1: pd.reset(); break;
            case 2: bell.reset(); break;
            case 3: cq.reset(); break;
            case 4: mr.reset(); break;
            }
        CHECK(fake::live().qps == 0);
        CHECK(fake::live().cqs == 0);
        CHECK(fake::live().ids == 0);
        for (char const* const once : {"ibv_destroy_qp", "ibv_dealloc_pd", "ibv_destroy_cq", "ibv_destroy_comp_channel",
                                       "ibv_dereg_mr", "rdma_destroy_id"})
            CHECK(fake::count(once) == 1);
        CHECK(fake::count("rdma_destroy_qp") == 0); // it hides errors
    } while (std::next_permutation(order.begin(), order.end()));
}

TEST_CASE("A12 a destroy that fails is told once, and nothing throws", "[field][verbs]") {
    char const* const failing =
        GENERATE(values<char const*>({"ibv_destroy_qp", "ibv_dealloc_pd", "ibv_destroy_cq", "ibv_destroy_comp_channel",
                                      "ibv_dereg_mr", "rdma_destroy_id"}));
    CAPTURE(failing);
    world w;
    w.messy();
    {
        rdma::event_channel channel;
        rdma::cm_id id = make_bound(channel);
        std::array<std::byte, 16> memory{};
        rdma::pd pd(id.verbs());
        rdma::comp_channel bell(id.verbs());
        rdma::cq cq(id.verbs(), 8, bell);
        rdma::mr mr(pd, memory, rdma::access::local_write);
        id.create_qp(pd, {.send_cq = cq, .recv_cq = cq});
        fake::fail(failing, 1, EBUSY);
    }
    auto told = w.told();
    // What the object that is left needs is let go all the same, and C may then say EBUSY in earnest; that is told as
    // well.
    std::erase_if(told, [&](rdma::diagnostic const& d) { return std::string(d.function) != failing; });
    REQUIRE(told.size() == 1);
    CHECK(told[0].kind == rdma::diagnostic_kind::destroy_failed);
    CHECK(told[0].error == std::errc::device_or_resource_busy);
    CHECK(told[0].object != nullptr);
    CHECK(fake::count(failing) == 1); // and it is never tried again
}

TEST_CASE_METHOD(one_cq, "A12 an explicit destroy shows its error, and can be tried again", "[field][verbs]") {
    rdma::pd pd(id.verbs());
    rdma::mr mr(pd, memory, rdma::access::none);
    auto const fails_once = [](char const* function, auto& handle) {
        fake::fail(function, 1, EIO);
        CHECK(thrown([&] { handle.destroy(); }, function) == std::errc::io_error);
        CHECK(handle);
        fake::fail(function, 1, EIO);
        std::error_code ec;
        handle.destroy(ec);
        CHECK(ec == std::errc::io_error);
        CHECK(handle);
        handle.destroy(ec);
        CHECK_FALSE(ec);
        CHECK_FALSE(handle);
        CHECK(fake::count(function) == 3);
    };
    fails_once("ibv_dereg_mr", mr);
    fails_once("ibv_dealloc_pd", pd);
    fails_once("ibv_destroy_cq", cq);
    fails_once("ibv_destroy_comp_channel", bell);
    fails_once("rdma_destroy_id", id);
    CHECK(told().empty());
}

TEST_CASE_METHOD(one_cq, "an explicit destroy is refused while something needs the object", "[verbs]") {
    rdma::pd pd(id.verbs());
    id.create_qp(pd, {.send_cq = cq, .recv_cq = cq});
    fake::clear_calls();
    auto const in_use = [](auto& handle) {
        CHECK(thrown([&] { handle.destroy(); }) == std::errc::device_or_resource_busy);
        std::error_code ec;
        handle.destroy(ec);
        CHECK(ec == std::errc::device_or_resource_busy);
        CHECK(handle);
    };
    in_use(pd);
    in_use(cq);
    in_use(bell);
    CHECK(calls_made() == 0);
    id.destroy_qp();
    in_use(bell); // the CQ reports to it
    cq.destroy();
    bell.destroy();
    pd.destroy();
}

TEST_CASE("what is made from an id's device keeps the id's C object", "[verbs]") {
    world w;
    std::array<std::byte, 16> memory{};
    std::optional<rdma::pd> pd;
    std::optional<rdma::mr> on_default, on_pd;
    std::optional<rdma::cq> cq;
    {
        rdma::event_channel channel;
        rdma::cm_id id = make_bound(channel);
        SECTION("a PD") { pd.emplace(id.verbs()); }
        SECTION("a region on the default PD") { on_default.emplace(id.pd(), memory, rdma::access::local_write); }
        SECTION("a region on a PD, which is dropped") {
            pd.emplace(id.verbs());
            on_pd.emplace(*pd, memory, rdma::access::local_write);
            pd.reset();
        }
        SECTION("a CQ") { cq.emplace(id.verbs(), 4); }
        CHECK(channel.stats().ids_awaiting_ack == 0);
        id = rdma::cm_id();
        CHECK(channel.stats().ids_awaiting_ack == 1);
        CHECK_THAT(to_string(channel), rdmacpp_test::contains("is held by what was made from it"));
    }
    CHECK(fake::count("rdma_destroy_id") == 0);
    CHECK(fake::live().channels == 1);
    CHECK(fake::live().default_pds == 1);
    pd.reset();
    on_default.reset();
    on_pd.reset();
    cq.reset();
    CHECK(fake::count("rdma_destroy_id") == 1);
    CHECK(fake::live().channels == 0);
}

TEST_CASE_METHOD(one_device, "a QP on a PD of the user's gives the id its default PD back", "[verbs]") {
    ibv_pd* const usual = id.native_handle()->pd;
    rdma::pd pd(id.verbs());
    CHECK(id.pd().native_handle() == usual);
    id.create_qp(pd, {});
    CHECK(id.pd() == rdma::pd_ref(pd));
    std::optional<rdma::mr> region(std::in_place, id.pd(), memory, rdma::access::local_write);
    CHECK(region->native_handle()->pd == pd.native_handle());
    pd = rdma::pd(); // kept by the QP and by the region
    CHECK(fake::count("ibv_dealloc_pd") == 0);
    id.destroy_qp();
    CHECK(id.pd().native_handle() == usual);
    CHECK(id.native_handle()->pd == usual);
    CHECK(fake::count("ibv_dealloc_pd") == 0);
    region.reset();
    CHECK(fake::count("ibv_dealloc_pd") == 1);
    id.create_qp({}); // and the default PD is good again
    CHECK(id.pd().native_handle() == usual);
}

TEST_CASE_METHOD(one_device, "move-assignment drops what was held before, at once", "[verbs]") {
    rdma::pd pd(id.verbs()), other(id.verbs());
    rdma::mr mr(pd, memory, rdma::access::none), other_mr(other, memory, rdma::access::none);
    rdma::cq cq(id.verbs(), 4), other_cq(id.verbs(), 4);
    rdma::comp_channel bell(id.verbs()), other_bell(id.verbs());
    auto const replaces = [](char const* function, auto& one, auto& two) {
        auto* const kept = two.native_handle();
        std::size_t const before = fake::count(function);
        one = std::move(two);
        CHECK(fake::count(function) == before + 1);
        CHECK(one.native_handle() == kept);
        CHECK_FALSE(two);
        auto& same = one;
        one = std::move(same);
        CHECK(one.native_handle() == kept);
        swap(one, two);
        CHECK(two.native_handle() == kept);
        one.swap(two);
        CHECK(one.native_handle() == kept);
        CHECK(fake::count(function) == before + 1);
    };
    replaces("ibv_dereg_mr", mr, other_mr);
    replaces("ibv_dealloc_pd", pd, other);
    replaces("ibv_destroy_cq", cq, other_cq);
    replaces("ibv_destroy_comp_channel", bell, other_bell);
}

// ---- Completions ----------------------------------------------------------------------------------------------------

TEST_CASE_METHOD(one_cq, "poll fills what there is, and never waits", "[verbs]") {
    CHECK(cq.poll(into).empty());
    CHECK(cq.poll(into, std::nothrow) == 0);
    for (std::uint64_t i = 0; i != 3; ++i)
        fake::push_completion(cq.native_handle(), completion(i));
    auto const two = cq.poll(std::span(into).first(2));
    REQUIRE(two.size() == 2);
    CHECK(two.data() == into.data());
    CHECK(two[1].wr_id() == 1);
    CHECK(rdma::cq_ref(cq).poll(into).size() == 1);
    CHECK(cq.cqe() >= 64);
}

TEST_CASE_METHOD(one_cq, "A14 a poll that fails gives no completions", "[field][verbs]") {
    fake::push_completion(cq.native_handle(), completion(1));
    fake::fail("ibv_poll_cq", 1, 2);
    CHECK(thrown([&] { (void)cq.wait(into); }, "ibv_poll_cq") == rdma::errc::poll_failed);
    std::error_code ec;
    fake::fail("ibv_poll_cq", 1, 2);
    CHECK(cq.wait(into, ec).empty());
    CHECK(ec == rdma::errc::poll_failed);
    fake::fail("ibv_poll_cq", 1, 2);
    CHECK(cq.poll(into, std::nothrow) == -2);
    CHECK(cq.wait(into, ec).size() == 1);
    CHECK_FALSE(ec);
}

TEST_CASE_METHOD(one_cq, "A9 what comes while a CQ is armed is not missed", "[field][verbs]") {
    fake::complete_while_arming(cq.native_handle(), completion(7)); // and raises no event
    auto const done = cq.wait(into);                                // would wait for ever
    REQUIRE(done.size() == 1);
    CHECK(done[0].wr_id() == 7);
    CHECK(fake::count("ibv_get_cq_event") == 0);
    std::error_code ec;
    fake::complete_while_arming(cq.native_handle(), completion(8));
    CHECK(cq.wait(into, ec).size() == 1);
    fake::complete_while_arming(cq.native_handle(), completion(9));
    CHECK(cq.wait_for(into, 1h).size() == 1);
    fake::complete_while_arming(cq.native_handle(), completion(10));
    CHECK(cq.wait(into, std::stop_token()).size() == 1);
}

TEST_CASE_METHOD(one_cq, "A9 one event may stand for more completions than a poll takes", "[field][verbs]") {
    CHECK(cq.wait_for(into, 0ms).empty()); // armed
    for (std::uint64_t i = 0; i != 40; ++i)
        fake::push_completion(cq.native_handle(), completion(i));
    std::size_t got = 0;
    while (got != 40)
        got += cq.wait(into).size();
    CHECK(cq.wait_for(into, 0ms).empty()); // takes the event, which is stale by now
    CHECK(fake::count("ibv_get_cq_event") >= 1);
}

TEST_CASE_METHOD(one_cq, "a wait for completions ends with one, late, or when it is stopped", "[verbs]") {
    std::error_code ec;
    std::atomic<int> round{0};
    std::jthread pusher([&] {
        for (int i = 0; i != 3; ++i) {
            round.wait(i);
            std::this_thread::yield();
            fake::push_completion(cq.native_handle(), completion(1));
        }
    });
    auto const woken = [&](auto&& wait) {
        ++round;
        round.notify_all();
        CHECK(wait().size() == 1);
    };
    woken([&] { return cq.wait(into); });
    woken([&] { return cq.wait_for(into, std::chrono::hours::max()); });
    woken([&] { return rdma::cq_ref(cq).wait(into, std::stop_token()); });
    pusher.join();

    auto const before = std::chrono::steady_clock::now();
    CHECK(cq.wait_for(into, 10ms).empty());
    CHECK(cq.wait_for(into, 1ms, ec).empty());
    CHECK_FALSE(ec);
    CHECK(std::chrono::steady_clock::now() - before >= 11ms);

    std::stop_source source;
    std::jthread stopper([&] { source.request_stop(); });
    CHECK(cq.wait(into, source.get_token()).empty());
    CHECK(cq.wait(into, source.get_token(), {}, ec).empty());
    CHECK_FALSE(ec);

    fake::push_cq_event(cq.native_handle()); // a spurious one: the queue is empty
    CHECK(cq.wait_for(into, 1ms).empty());
    for (char const* const function : {"ibv_req_notify_cq", "ibv_get_cq_event"}) {
        fake::push_cq_event(cq.native_handle()); // the channel is got from when it is readable
        fake::fail(function, 1, EIO);
        CHECK(thrown([&] { (void)cq.wait(into); }) == std::errc::io_error);
    }
}

TEST_CASE_METHOD(one_cq, "A18 dropping the channel object ends a wait for completions", "[field][verbs][threads]") {
    std::error_code ec = std::make_error_code(std::errc::io_error);
    std::jthread waiter([&] { CHECK(cq.wait(into, ec).empty()); }); // the one thread that checks, until it is joined
    std::this_thread::yield();
    bell = rdma::comp_channel();
    waiter.join();
    CHECK_FALSE(ec);
    CHECK(fake::live().comp_channels == 1); // the CQ needs it
}

// ---- Completion events ----------------------------------------------------------------------------------------------

TEST_CASE_METHOD(one_cq, "a completion channel is got from as an event channel is", "[verbs]") {
    std::error_code ec = std::make_error_code(std::errc::io_error);
    std::stop_token const stop;
    auto const push = [&](int many) {
        for (int i = 0; i != many; ++i)
            fake::push_cq_event(cq.native_handle());
    };
    CHECK(bell.fd() == bell.native_handle()->fd);
    CHECK(is_nonblocking(bell.fd()));
    CHECK_FALSE(bell.try_get());
    CHECK_FALSE(bell.try_get(ec));
    CHECK_FALSE(ec);
    CHECK_FALSE(bell.get_for(1ms));
    CHECK_FALSE(bell.get_until(std::chrono::steady_clock::now()));
    push(9);
    CHECK(bell.get().native_handle() == cq.native_handle());
    CHECK(bell.get(ec).native_handle() == cq.native_handle());
    CHECK(bell.try_get());
    CHECK(bell.get_for(0ms));
    CHECK(bell.get(stop));
    CHECK(rdma::comp_channel_ref(bell).get());
    int turns = 0;
    for (rdma::cq_event event : bell) {
        CHECK(event);
        if (++turns == 2)
            break;
    }
    for (rdma::cq_event event : bell.pending())
        ++turns;
    CHECK(turns == 3);
    fake::fail("ibv_get_cq_event", 1, EIO);
    CHECK(thrown([&] { (void)bell.get(); }, "ibv_get_cq_event") == std::errc::io_error);
    push(1);
    fake::fail("ibv_get_cq_event", 1, EINTR);
    fake::fail("ibv_get_cq_event", 2, EINTR);
    CHECK(bell.get());
}

TEST_CASE_METHOD(one_cq, "A8 acks are told to C in batches, each CQ's own, and settled before it goes",
                 "[field][verbs]") {
    rdma::cq other(id.verbs(), 4, bell, &into);
    ibv_cq* const a = cq.native_handle();
    ibv_cq* const b = other.native_handle();
    auto const one_turn = [&] {
        for (ibv_cq* const each : {a, b, a, b, b})
            fake::push_cq_event(each);
        int turns = 0;
        try {
            for (rdma::cq_event event : bell) {
                CHECK(event.cq_context() == (event.native_handle() == b ? &into : nullptr));
                if (++turns == 3)
                    throw 3;
            }
        } catch (int) {
        }
        for (rdma::cq_event event : bell.pending()) {
        }
    };
    for (int i = 0; i != 100; ++i)
        one_turn();
    CHECK(fake::count("ibv_get_cq_event") >= 500);
    CHECK(fake::count("ibv_ack_cq_events") < 500 / 8); // each takes a mutex
    CHECK(fake::unacked(a) < 64);
    CHECK(fake::unacked(b) < 64);
    std::size_t const before = fake::count("ibv_ack_cq_events", a);
    CHECK(fake::unacked(a) != 0); // 200 is no multiple of the batch: something is left to settle
    cq.destroy();
    CHECK(fake::count("ibv_ack_cq_events", a) == before + 1);
    other = rdma::cq();
}

TEST_CASE_METHOD(one_cq, "a completion event keeps its CQ, and is acked once", "[verbs]") {
    fake::push_cq_event(cq.native_handle());
    fake::push_cq_event(cq.native_handle());
    fake::push_cq_event(cq.native_handle());
    rdma::cq_event one = bell.get(), two = bell.get();
    ibv_cq* const raw = cq.native_handle();
    CHECK(thrown([&] { cq.destroy(); }, "ibv_destroy_cq") == std::errc::device_or_resource_busy);
    cq = rdma::cq();
    bell = rdma::comp_channel();
    CHECK(fake::count("ibv_destroy_cq") == 0);
    one = std::move(two); // acks the first
    swap(one, two);
    CHECK(two.native_handle() == raw);
    two.ack();
    CHECK_FALSE(two);
    CHECK(fake::count("ibv_destroy_cq") == 1);
    CHECK(fake::live().comp_channels == 0);
    two.ack();
}

TEST_CASE_METHOD(one_cq, "an event of a CQ whose owner is C is acked at once", "[verbs][adopt]") {
    ibv_cq* const raw = ::ibv_create_cq(id.native_handle()->verbs, 4, nullptr, bell.native_handle(), 0);
    REQUIRE(raw != nullptr);
    fake::push_cq_event(raw);
    fake::push_cq_event(raw);
    rdma::cq_event event = bell.get();
    CHECK(event.native_handle() == raw);
    CHECK(fake::unacked(raw) == 1);
    event.ack();
    CHECK(fake::unacked(raw) == 0);
    ibv_cq* const given = bell.get().release();
    CHECK(given == raw);
    CHECK(fake::unacked(raw) == 1);
    ::ibv_ack_cq_events(given, 1);
    CHECK(::ibv_destroy_cq(raw) == 0);
}

// ---- From C and back ------------------------------------------------------------------------------------------------

TEST_CASE_METHOD(one_device, "verbs objects are given back to C, and adopted", "[verbs][adopt]") {
    std::error_code ec;
    auto const there_and_back = [&](auto owner, auto&& adopt) {
        auto* const raw = owner.native_handle();
        CHECK(thrown([&] { (void)adopt(raw, nullptr); }, "owner") == rdma::errc::already_owned);
        CHECK_FALSE(adopt(raw, &ec));
        CHECK(ec == rdma::errc::already_owned);
        std::size_t const before = calls_made();
        CHECK(owner.release() == raw);
        CHECK(calls_made() == before);
        CHECK_FALSE(owner);
        auto back = adopt(raw, nullptr);
        CHECK(back.native_handle() == raw);
        CHECK(back.release() == raw);
        back = adopt(raw, &ec);
        CHECK_FALSE(ec);
        back.destroy();
        owner = decltype(owner)();
    };
    there_and_back(rdma::pd(id.verbs()), [](ibv_pd* raw, std::error_code* e) {
        return e ? rdma::pd(rdma::adopt, raw, *e) : rdma::pd(rdma::adopt, raw);
    });
    there_and_back(rdma::cq(id.verbs(), 4), [](ibv_cq* raw, std::error_code* e) {
        return e ? rdma::cq(rdma::adopt, raw, *e) : rdma::cq(rdma::adopt, raw);
    });
    there_and_back(rdma::comp_channel(id.verbs()), [](ibv_comp_channel* raw, std::error_code* e) {
        return e ? rdma::comp_channel(rdma::adopt, raw, *e) : rdma::comp_channel(rdma::adopt, raw);
    });
    CHECK(fake::count("ibv_dealloc_pd") == 1);
    CHECK(fake::count("ibv_destroy_cq") == 1);
    CHECK(fake::count("ibv_destroy_comp_channel") == 1);

    rdma::mr mr(id.pd(), memory, rdma::access::none);
    ibv_mr* const raw = mr.release();
    rdma::mr const back(rdma::adopt, raw);
    CHECK(back.addr() == memory.data());
}

TEST_CASE_METHOD(one_cq, "what comes back from C can be dropped in any order again", "[verbs][adopt]") {
    rdma::pd pd(id.verbs());
    id.create_qp(pd, {.send_cq = cq, .recv_cq = cq});
    cq = rdma::cq(rdma::adopt, cq.release());
    pd = rdma::pd(rdma::adopt, pd.release());
    bell = rdma::comp_channel(rdma::adopt, bell.release());
    SECTION("channel first") {
        bell = rdma::comp_channel();
        cq = rdma::cq();
        id.destroy_qp();
    }
    SECTION("id first") { id = rdma::cm_id(); }
    SECTION("CQ before QP") {
        cq = rdma::cq();
        pd = rdma::pd();
        id.destroy_qp();
    }
    SECTION("QP first") { id.destroy_qp(); }
}

TEST_CASE_METHOD(one_cq, "what was given to C, C destroys, and nothing is destroyed twice", "[verbs][adopt]") {
    rdma::pd pd(id.verbs());
    rdma::mr mr(pd, memory, rdma::access::none);
    for (int i = 0; i != 3; ++i)
        fake::push_cq_event(cq.native_handle());
    for (rdma::cq_event event : bell.pending()) {
    }
    CHECK(::ibv_dereg_mr(mr.release()) == 0);
    CHECK(::ibv_dealloc_pd(pd.release()) == 0);
    CHECK(::ibv_destroy_cq(cq.release()) == 0); // C was told of all acks
    ibv_comp_channel* const raw = bell.release();
    CHECK_FALSE(is_nonblocking(raw->fd));
    CHECK(::ibv_destroy_comp_channel(raw) == 0);
    rdma::pd const another(id.verbs()); // even at the same address
    rdma::cq const another_cq(id.verbs(), 4);
    id.destroy_qp();
}

TEST_CASE_METHOD(one_device, "objects that C made are adopted, and borrowed", "[verbs][adopt]") {
    ibv_context* const context = id.native_handle()->verbs;
    ibv_comp_channel* const raw_bell = ::ibv_create_comp_channel(context);
    ibv_cq* const raw_cq = ::ibv_create_cq(context, 4, nullptr, raw_bell, 0);
    ibv_pd* const raw_pd = ::ibv_alloc_pd(context);
    {
        rdma::pd_ref const pd = raw_pd;
        rdma::mr const on_it(pd, memory, rdma::access::none);
        CHECK(on_it.native_handle()->pd == raw_pd);
        id.create_qp(pd, {.send_cq = raw_cq, .recv_cq = raw_cq});
        CHECK(id.qp().native_handle()->send_cq == raw_cq);
        id.destroy_qp();
    }
    CHECK(fake::live().pds == 1);
    CHECK_FALSE(is_nonblocking(raw_bell->fd));
    rdma::pd const pd(rdma::adopt, raw_pd);
    rdma::comp_channel const bell(rdma::adopt, raw_bell); // first: what C made for what is not known
    rdma::cq const cq(rdma::adopt, raw_cq);
    CHECK(is_nonblocking(raw_bell->fd));
    std::array<rdma::work_completion, 1> into;
    fake::push_completion(raw_cq, completion(3));
    CHECK(cq.poll(into).size() == 1);
    fake::push_cq_event(raw_cq);
    CHECK(bell.get().native_handle() == raw_cq);
}

// ---- Devices and memory ---------------------------------------------------------------------------------------------

TEST_CASE("a context tells its device", "[verbs]") {
    world w;
    rdma::event_channel channel;
    rdma::cm_id rxe = make_bound(channel), siw = make_bound(channel, siw_host);
    CHECK(rxe.verbs().device_name() == "rxe0");
    CHECK(siw.verbs().device_name() == "siw0");
    CHECK(rxe.verbs().transport() == rdma::transport_type::ib);
    CHECK(siw.verbs().transport() == rdma::transport_type::iwarp);
    CHECK(rxe.verbs().query_device().max_qp > 0);
    CHECK(rdma::context_ref(fake::rxe_context()) == rxe.verbs());
    CHECK(rxe.port_num() == 1);
    rdma::pd const pd{rdma::context_ref(fake::siw_context())};
    CHECK(pd.native_handle()->context == fake::siw_context());
}

TEST_CASE_METHOD(one_device, "a memory region tells what work requests and peers need", "[verbs]") {
    rdma::pd const pd(id.verbs());
    auto const allowed = rdma::access::local_write | rdma::access::remote_read;
    rdma::mr const mr(pd, memory, allowed);
    ibv_mr const& raw = *mr.native_handle();
    CHECK((allowed & rdma::access::remote_read) == rdma::access::remote_read);
    CHECK((allowed & rdma::access::remote_write) == rdma::access::none);
    CHECK(mr.lkey() == raw.lkey);
    CHECK(mr.rkey() == raw.rkey);
    CHECK(mr.remote().rkey == raw.rkey);
    CHECK(mr.remote().address == reinterpret_cast<std::uintptr_t>(memory.data()));
    CHECK(mr.addr() == memory.data());
    CHECK(mr.length() == memory.size());
    ibv_sge const all = mr.sge(), part = mr.sge(16, 8);
    CHECK(all.addr == reinterpret_cast<std::uintptr_t>(memory.data()));
    CHECK(all.length == memory.size());
    CHECK(all.lkey == raw.lkey);
    CHECK(part.addr == all.addr + 16);
    CHECK(part.length == 8);
    CHECK(thrown([&] { (void)rdma::mr(pd, memory, rdma::access::remote_write); }, "256 bytes") ==
          std::errc::invalid_argument);
}

TEST_CASE_METHOD(one_device, "create_qp tells what was granted, and passes on what was asked", "[verbs]") {
    rdma::qp_init_attr attr;
    attr.cap = {.max_send_wr = 5, .max_recv_wr = 6, .max_send_sge = 2, .max_recv_sge = 3, .max_inline_data = 32};
    attr.signal_all = true;
    attr.user_context = &attr;
    rdma::qp_cap const granted = id.create_qp(attr);
    CHECK(granted.max_send_wr >= 5);
    CHECK(granted.max_recv_wr >= 6);
    CHECK(granted.max_send_sge >= 2);
    CHECK(granted.max_recv_sge >= 3);
    CHECK(granted.max_inline_data >= 32);
    CHECK(id.qp().native_handle()->qp_context == &attr);
    CHECK(id.qp().native_handle()->qp_type == IBV_QPT_RC);
    CHECK(id.qp().qp_num() == id.native_handle()->qp->qp_num);
    CHECK(id.send_cq().native_handle() == id.native_handle()->send_cq);
    CHECK(id.recv_cq().native_handle() == id.native_handle()->recv_cq);
    CHECK(id.send_cq_channel().native_handle() == id.native_handle()->send_cq_channel);
    CHECK(id.recv_cq_channel().native_handle() == id.native_handle()->recv_cq_channel);
    CHECK_FALSE(id.send_cq_channel().try_get()); // which makes it so
    CHECK(is_nonblocking(id.send_cq_channel().fd()));
    CHECK(id.qp().query(IBV_QP_STATE).qp_state == IBV_QPS_INIT);
    ibv_qp_attr to_error{};
    to_error.qp_state = IBV_QPS_ERR;
    id.qp().modify(to_error, IBV_QP_STATE);
    CHECK(id.qp().query(IBV_QP_STATE).qp_state == IBV_QPS_ERR);
    rdma::cm_id datagrams = make_id(channel, rdma::port_space::udp);
    datagrams.bind(rdma::address(rxe_host, 0));
    datagrams.create_qp({});
    CHECK(datagrams.qp().native_handle()->qp_type == IBV_QPT_UD);
}

// ---- Async events ---------------------------------------------------------------------------------------------------

TEST_CASE_METHOD(one_device, "an async event is acked once, and keeps the QP that it names", "[verbs]") {
    id.create_qp({});
    ibv_qp* const raw = id.qp().native_handle();
    rdma::context_ref const context = id.verbs();
    CHECK_FALSE(async_event_of(context));
    fake::push_async(raw, IBV_EVENT_QP_FATAL);
    fake::push_async(raw, IBV_EVENT_COMM_EST);
    fake::push_async(context.native_handle(), IBV_EVENT_PORT_ERR);
    rdma::async_event fatal = async_event_of(context);
    CHECK(fatal.type() == rdma::async_event_type::qp_fatal);
    CHECK(fatal.qp() == id.qp());
    CHECK(to_string(fatal) == ::ibv_event_type_str(IBV_EVENT_QP_FATAL));
    CHECK(thrown([&] { id.destroy(); }, "1 events held") == std::errc::resource_deadlock_would_occur);
    bool const by_id = GENERATE(false, true);
    if (by_id)
        id = rdma::cm_id();
    else
        id.destroy_qp();
    CHECK(fake::count("ibv_destroy_qp") == 0);
    if (by_id)
        CHECK(raw->state == IBV_QPS_ERR); // it stays, but has to be quiet
    rdma::async_event moved = std::move(fatal);
    CHECK_FALSE(fatal); // NOLINT(bugprone-use-after-move)
    moved.ack();
    moved.ack();
    CHECK(fake::count("ibv_ack_async_event") == 1);
    CHECK(fake::count("ibv_destroy_qp") == 1);
    id = rdma::cm_id();
    CHECK(fake::live().ids == 0);
    // What is still queued names a QP that is gone.
    rdma::event_channel other;
    rdma::cm_id another = make_bound(other);
    CHECK(another.verbs() == rdma::context_ref(fake::rxe_context()));
    for (int i = 0; i != 3; ++i)
        if (rdma::async_event event = async_event_of(another.verbs());
            event && event.type() == rdma::async_event_type::port_err)
            CHECK_FALSE(event.qp());
    CHECK_FALSE(async_event_of(another.verbs()));
}

TEST_CASE_METHOD(one_cq, "an async event keeps the CQ that it names", "[verbs]") {
    fake::push_async(cq.native_handle(), IBV_EVENT_CQ_ERR);
    rdma::async_event event = async_event_of(id.verbs());
    CHECK(event.type() == rdma::async_event_type::cq_err);
    CHECK_FALSE(event.qp());
    CHECK(thrown([&] { cq.destroy(); }) == std::errc::device_or_resource_busy);
    cq = rdma::cq();
    CHECK(fake::count("ibv_destroy_cq") == 0);
    event.ack();
    CHECK(fake::count("ibv_destroy_cq") == 1);
}

TEST_CASE_METHOD(one_device, "getting an async event retries EINTR, and tells nothing from broken", "[verbs]") {
    std::error_code ec = std::make_error_code(std::errc::io_error);
    CHECK_FALSE(async_event_of(id.verbs(), ec));
    CHECK_FALSE(ec);
    fake::push_async(id.verbs().native_handle(), IBV_EVENT_PORT_ACTIVE);
    fake::fail("ibv_get_async_event", 1, EINTR);
    CHECK(async_event_of(id.verbs(), ec));
    CHECK(fake::count("ibv_ack_async_event") == 1);
    fake::fail("ibv_get_async_event", 1, EBADF);
    CHECK_FALSE(async_event_of(id.verbs(), ec));
    CHECK(ec == std::errc::bad_file_descriptor);
}

// ---- Data -----------------------------------------------------------------------------------------------------------

namespace {

struct connected : world {
    connection c;
    std::array<std::byte, 64> here{}, there{};
    rdma::mr ours, theirs;

    void on(char const* host) {
        c = connect_pair(host, {.cap = {.max_inline_data = 32}});
        auto const all = rdma::access::local_write | rdma::access::remote_write | rdma::access::remote_read;
        ours = rdma::mr(c.client.pd(), here, all);
        theirs = rdma::mr(c.server.pd(), there, all);
        std::iota(reinterpret_cast<unsigned char*>(here.data()),
                  reinterpret_cast<unsigned char*>(here.data()) + here.size(), static_cast<unsigned char>(1));
    }
    rdma::work_completion sent() { return one(c.client.send_cq()); }
    rdma::work_completion received() { return one(c.server.recv_cq()); }
    static rdma::work_completion one(rdma::cq_ref cq) {
        rdma::work_completion wc;
        REQUIRE(cq.wait_for({&wc, 1}, 5s).size() == 1);
        return wc;
    }
};

} // namespace

TEST_CASE_METHOD(connected, "send and receive", "[verbs][data]") {
    char const* const host = GENERATE(rxe_host, siw_host);
    CAPTURE(host);
    on(host);
    c.server.qp().post_recv(rdma::recv_wr(theirs.sge(8, 32)).id(21));
    c.client.qp().post_send(rdma::send_wr::send(ours.sge(0, 16)).id(42).signaled().solicited());
    rdma::work_completion const s = sent();
    REQUIRE(s);
    CHECK(s.wr_id() == 42);
    CHECK(s.success().opcode() == rdma::wc_opcode::send);
    rdma::work_completion const r = received();
    REQUIRE(r);
    CHECK(r.wr_id() == 21);
    CHECK(r.success().opcode() == rdma::wc_opcode::recv);
    CHECK(r.success().byte_len() == 16);
    CHECK(r.qp_num() == c.server.qp().qp_num());
    CHECK(std::memcmp(there.data() + 8, here.data(), 16) == 0);
    CHECK(there[7] == std::byte{0});

    // Not signaled: it completes in silence.
    c.server.qp().post_recv(rdma::recv_wr(theirs.sge()));
    c.client.qp().post_send(rdma::send_wr::send(ours.sge(0, 16)));
    CHECK(received());
    rdma::work_completion none;
    CHECK(c.client.send_cq().poll({&none, 1}).empty());
}

TEST_CASE_METHOD(connected, "write and read the peer's memory", "[verbs][data]") {
    char const* const host = GENERATE(rxe_host, siw_host);
    CAPTURE(host);
    on(host);
    c.client.qp().post_send(rdma::send_wr::write(ours.sge(0, 16), theirs.remote()).signaled());
    rdma::work_completion const written = sent();
    REQUIRE(written);
    CHECK(written.success().opcode() == rdma::wc_opcode::rdma_write);
    CHECK(std::memcmp(there.data(), here.data(), 16) == 0);
    rdma::remote_memory from = theirs.remote();
    from.address += 8;
    c.client.qp().post_send(rdma::send_wr::read(ours.sge(32, 8), from).fenced().signaled());
    rdma::work_completion const read = sent();
    REQUIRE(read);
    CHECK(read.success().opcode() == rdma::wc_opcode::rdma_read);
    CHECK(std::memcmp(here.data() + 32, there.data() + 8, 8) == 0);
}

TEST_CASE_METHOD(connected, "inline data needs no region and may change at once", "[verbs][data]") {
    on(rxe_host);
    c.server.qp().post_recv(rdma::recv_wr(theirs.sge()));
    std::array<std::byte, 4> passing{std::byte{9}, std::byte{8}, std::byte{7}, std::byte{6}};
    ibv_sge const sge{reinterpret_cast<std::uintptr_t>(passing.data()), 4, 0};
    c.client.qp().post_send(rdma::send_wr::send(sge).inlined().signaled());
    passing.fill(std::byte{0});
    CHECK(sent());
    rdma::work_completion const arrived = received();
    CHECK(arrived.success().byte_len() == 4);
    CHECK(there[0] == std::byte{9});
    CHECK(there[3] == std::byte{6});
}

TEST_CASE_METHOD(connected, "immediate data", "[verbs][data]") {
    on(rxe_host);
    c.server.qp().post_recv(rdma::recv_wr(theirs.sge()));
    c.server.qp().post_recv(rdma::recv_wr(theirs.sge()));
    c.client.qp().post_send(rdma::send_wr::send(ours.sge(0, 4)).imm(htonl(0xabcd)));
    rdma::work_completion const one = received();
    REQUIRE(one);
    CHECK(one.success().imm_data() == htonl(0xabcd));
    c.client.qp().post_send(rdma::send_wr::write(ours.sge(0, 4), theirs.remote()).imm(htonl(7)));
    rdma::work_completion const two = received();
    REQUIRE(two);
    CHECK(two.success().imm_data() == htonl(7));
    CHECK(two.success().opcode() == rdma::wc_opcode::recv_rdma_with_imm);
}

TEST_CASE_METHOD(connected, "requests that are refused when posted are named", "[verbs][data]") {
    on(rxe_host);
    fake::fail("ibv_post_send", 1, ENOMEM);
    CHECK(thrown([&] { c.client.qp().post_send(rdma::send_wr::send(ours.sge()).id(42)); }, "request 42") ==
          std::errc::not_enough_memory);
    fake::fail("ibv_post_recv", 1, ENOMEM);
    CHECK(thrown([&] { c.client.qp().post_recv(rdma::recv_wr(ours.sge()).id(43)); }, "request 43") ==
          std::errc::not_enough_memory);
    fake::fail("ibv_post_send", 1, EIO);
    CHECK(c.client.qp().post_send(rdma::send_wr::send(ours.sge()), std::nothrow) == std::errc::io_error);
    CHECK(c.client.qp().post_send(rdma::send_wr::send(ours.sge(0, 4)).inlined(), std::nothrow) == std::errc{});

    // A chain: the first is queued, the second is not.
    rdma::send_wr first = rdma::send_wr::send(ours.sge(0, 4)).id(1), second = rdma::send_wr::send(ours.sge(0, 4)).id(2);
    first.native_handle().next = &second.native_handle();
    second.native_handle().num_sge = 99;
    ibv_send_wr* bad = nullptr;
    CHECK(c.client.qp().post_send(first.native_handle(), bad, std::nothrow) == std::errc::invalid_argument);
    CHECK(bad == &second.native_handle());
    CHECK(thrown([&] { c.client.qp().post_send(first.native_handle(), bad); }, "request 2") ==
          std::errc::invalid_argument);
    rdma::recv_wr one = rdma::recv_wr(ours.sge()).id(3), two = rdma::recv_wr(ours.sge()).id(4);
    one.native_handle().next = &two.native_handle();
    two.native_handle().num_sge = 99;
    ibv_recv_wr* bad_recv = nullptr;
    CHECK(c.client.qp().post_recv(one.native_handle(), bad_recv, std::nothrow) == std::errc::invalid_argument);
    CHECK(bad_recv == &two.native_handle());
    CHECK(thrown([&] { c.client.qp().post_recv(one.native_handle(), bad_recv); }, "request 4") ==
          std::errc::invalid_argument);
}

TEST_CASE_METHOD(connected, "the end of a connection flushes what was posted", "[verbs][data]") {
    char const* const host = GENERATE(rxe_host, siw_host);
    CAPTURE(host);
    on(host);
    c.server.qp().post_recv(rdma::recv_wr(theirs.sge()).id(5));
    c.server.qp().post_recv(rdma::recv_wr(theirs.sge()).id(6));
    c.server.disconnect();
    for (std::uint64_t const wanted : {5u, 6u}) {
        rdma::work_completion const wc = received();
        CHECK_FALSE(wc);
        CHECK(wc.status() == rdma::wc_status::wr_flush_err);
        CHECK(wc.wr_id() == wanted);
        CHECK(wc.qp_num() == c.server.qp().qp_num());
    }
    expect(c.client_channel, type::disconnected);
}

TEST_CASE_METHOD(connected, "an id dropped with events held disconnects at once", "[verbs][data]") {
    char const* const host = GENERATE(rxe_host, siw_host);
    CAPTURE(host);
    on(host);
    fake::push(c.server.native_handle(), {RDMA_CM_EVENT_ADDR_CHANGE});
    rdma::cm_event held = next(c.server_channel, type::addr_change);
    theirs = rdma::mr();
    c.server = rdma::cm_id();
    CHECK(fake::count("rdma_destroy_id") == 0);
    CHECK(fake::live().qps == 1); // the client's
    expect(c.client_channel, type::disconnected);
    held.ack();
    CHECK(fake::count("rdma_destroy_id") == 1);
}

TEST_CASE("views are keys: equal views hash alike") {
    world w;
    rdma::event_channel channel;
    rdma::cm_id const id = make_bound(channel);
    rdma::pd const pd(id.verbs());
    rdma::comp_channel const bell(id.verbs());
    rdma::cq const cq(id.verbs(), 4, bell);
    auto const hashes_alike = [](auto a, auto b) {
        return a == b && std::hash<decltype(a)>()(a) == std::hash<decltype(b)>()(b);
    };
    CHECK(hashes_alike(rdma::cm_id_ref(id), rdma::cm_id_ref(id.native_handle())));
    CHECK(hashes_alike(rdma::pd_ref(pd), rdma::pd_ref(pd.native_handle())));
    CHECK(hashes_alike(rdma::cq_ref(cq), rdma::cq_ref(cq.native_handle())));
    CHECK(hashes_alike(rdma::comp_channel_ref(bell), rdma::comp_channel_ref(bell)));
    CHECK(hashes_alike(id.verbs(), rdma::context_ref(id.verbs().native_handle())));
    CHECK(hashes_alike(rdma::event_channel_ref(channel), rdma::event_channel_ref(channel.native_handle())));
    CHECK(std::hash<rdma::qp_ref>()(id.qp()) == std::hash<rdma::qp_ref>()(rdma::qp_ref()));
}
