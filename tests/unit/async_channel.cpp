// SPDX-License-Identifier: MIT
// The asynchronous events of a device: got as those of any channel, typed by what they are about, which they keep.
#include "loopback.hpp"

#include <atomic>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <type_traits>

using namespace unit;

namespace {

using what = rdma::async_event_type;
using about = rdma::async_event_kind;

static_assert(std::is_nothrow_move_constructible_v<rdma::async_event>);
static_assert(kind(what::device_fatal) == about::device && kind(static_cast<what>(77)) == about::unknown);

struct one_device : featured {
    rdma::context device = open_device();
    rdma::async_channel channel = device.async_channel();

    void push(ibv_event_type type = IBV_EVENT_PORT_ACTIVE, int port = 1) {
        fake::push_async(device.native_handle(), type, port);
    }
    std::size_t acked() const { return fake::count("ibv_ack_async_event"); }
};

/// One of each thing that events are about.
struct one_of_each : one_device {
    rdma::pd pd{device};
    rdma::cq cq{device, 8};
    rdma::srq srq{pd};
    rdma::qp qp{pd, rdma::qp_type::rc, {.send_cq = cq, .recv_cq = cq}};
    rdma::wq wq{pd, cq, {}};
};

} // namespace

// ---- What an event tells --------------------------------------------------------------------------------------------

TEST_CASE_METHOD(one_of_each, "async: every type is of a kind, and names what it is about and nothing else",
                 "[verbs]") {
    std::size_t kinds[8] = {};
    for (int type = IBV_EVENT_CQ_ERR; type <= IBV_EVENT_WQ_FATAL; ++type) {
        CAPTURE(type);
        auto const c_type = static_cast<ibv_event_type>(type);
        about const wanted = kind(static_cast<what>(type));
        ++kinds[static_cast<int>(wanted)];
        switch (wanted) {
        case about::qp: fake::push_async(qp.native_handle(), c_type); break;
        case about::cq: fake::push_async(cq.native_handle(), c_type); break;
        case about::srq: fake::push_async(srq.native_handle(), c_type); break;
        case about::wq: fake::push_async(wq.native_handle(), c_type); break;
        default: push(c_type, 3);
        }
        rdma::async_event const event = channel.get();
        CHECK(static_cast<int>(event.type()) == type);
        CHECK(event.kind() == wanted);
        CHECK(std::string(to_string(event)) == ::ibv_event_type_str(c_type));
        CHECK(std::string(to_string(event.type())) == ::ibv_event_type_str(c_type));
        CHECK(event.qp() == (wanted == about::qp ? rdma::qp_ref(qp) : rdma::qp_ref()));
        CHECK(event.cq() == (wanted == about::cq ? rdma::cq_ref(cq) : rdma::cq_ref()));
        CHECK(event.srq() == (wanted == about::srq ? rdma::srq_ref(srq) : rdma::srq_ref()));
        CHECK(event.wq() == (wanted == about::wq ? rdma::wq_ref(wq) : rdma::wq_ref()));
        CHECK(event.port_num() == (wanted == about::port ? 3 : 0));
        CHECK(event.native_handle().event_type == c_type);
    }
    // As ibv_get_async_event(3) sorts them.
    CHECK(kinds[static_cast<int>(about::qp)] == 8);
    CHECK(kinds[static_cast<int>(about::cq)] == 1);
    CHECK(kinds[static_cast<int>(about::srq)] == 2);
    CHECK(kinds[static_cast<int>(about::wq)] == 1);
    CHECK(kinds[static_cast<int>(about::port)] == 7);
    CHECK(kinds[static_cast<int>(about::device)] == 1);
    CHECK(kinds[static_cast<int>(about::unknown)] == 0);
    CHECK(acked() == IBV_EVENT_WQ_FATAL + 1);
    CHECK(rdma::async_event().kind() == about::none);
    CHECK(std::string(to_string(rdma::async_event())) == "no event");
}

TEST_CASE_METHOD(one_of_each, "async: a type of the future passes through, and keeps nothing", "[verbs]") {
    fake::push_async(qp.native_handle(), static_cast<ibv_event_type>(31));
    rdma::async_event event = channel.get();
    CHECK(event);
    CHECK(event.kind() == about::unknown);
    CHECK(static_cast<int>(event.type()) == 31);
    CHECK_FALSE(event.qp());
    CHECK(event.port_num() == 0);
    qp.destroy();
    event.ack();
    CHECK(acked() == 1);
}

// ---- Getting them ---------------------------------------------------------------------------------------------------

TEST_CASE_METHOD(one_device, "async: got in every form, and each acked once", "[verbs]") {
    std::error_code ec = std::make_error_code(std::errc::io_error);
    std::stop_token const stop;
    auto const push_many = [&](int many) {
        for (int i = 0; i != many; ++i)
            push(IBV_EVENT_PORT_ERR, i + 1);
    };
    CHECK(channel);
    CHECK(channel.fd() == device.native_handle()->async_fd);
    CHECK((channel.context() == rdma::context_ref(device)));
    CHECK_FALSE(channel.try_get());
    CHECK_FALSE(channel.try_get(ec));
    CHECK_FALSE(ec);
    CHECK_FALSE(channel.get_for(1ms));
    CHECK_FALSE(channel.get_for(1ms, ec));
    CHECK_FALSE(ec);
    CHECK_FALSE(channel.get_until(std::chrono::steady_clock::now()));
    CHECK(acked() == 0);

    push_many(8);
    CHECK(channel.get().port_num() == 1);
    CHECK(channel.get(ec).port_num() == 2);
    CHECK(channel.try_get()->port_num() == 3);
    CHECK(channel.try_get(ec)->port_num() == 4);
    CHECK(channel.get_for(1h)->port_num() == 5);
    CHECK(channel.get_for(1h, ec)->port_num() == 6);
    CHECK(channel.get(stop)->port_num() == 7);
    CHECK(channel.get(stop, ec)->port_num() == 8);
    CHECK(acked() == 8);

    push_many(8);
    int turns = 0;
    for (rdma::async_event event : channel) {
        CHECK(event.port_num() == ++turns);
        if (turns == 2)
            break;
    }
    CHECK(acked() == 10); // the one that it broke at, too
    CHECK_THROWS_AS(
        [&] {
            for (rdma::async_event event : channel.events(stop))
                if (++turns == 4)
                    throw 3;
        }(),
        int);
    CHECK(acked() == 12);
    std::optional<rdma::async_event> kept;
    for (rdma::async_event&& event : channel.pending(ec))
        if (++turns == 6)
            kept = std::move(event);
    CHECK_FALSE(ec);
    CHECK(turns == 8);
    CHECK(acked() == 15);
    kept.reset();
    CHECK(acked() == 16);
    for (rdma::async_event event : device.async_channel().pending())
        FAIL("nothing is there");
}

TEST_CASE_METHOD(one_device, "async: a wait ends with an event, when it is stopped, or late", "[verbs][threads]") {
    std::error_code ec = std::make_error_code(std::errc::io_error);
    std::stop_source source;
    {
        std::jthread stopper([&] { source.request_stop(); });
        CHECK_FALSE(channel.get(source.get_token()));
    }
    CHECK_FALSE(channel.get(source.get_token(), ec));
    CHECK_FALSE(ec);
    for (rdma::async_event event : channel.events(source.get_token()))
        FAIL("it is stopped");
    std::atomic<bool> go{false};
    std::jthread pusher([&] {
        go.wait(false);
        push();
    });
    go = true;
    go.notify_one();
    CHECK(channel.get().kind() == about::port);
}

TEST_CASE_METHOD(one_device, "async: EINTR is tried again or told, and what is broken is told", "[verbs]") {
    std::error_code ec;
    push();
    fake::fail("ibv_get_async_event", 1, EINTR);
    fake::fail("ibv_get_async_event", 2, EINTR);
    CHECK(channel.get());
    push();
    fake::fail("ibv_get_async_event", 1, EINTR);
    CHECK(thrown([&] { (void)channel.get(rdma::wait_options{.interruptible = true}); }, "ibv_get_async_event") ==
          std::errc::interrupted);
    CHECK(channel.get());
    fake::fail("ibv_get_async_event", 1, EAGAIN);
    CHECK_FALSE(channel.try_get());
    fake::fail("ibv_get_async_event", 1, EBADF);
    CHECK(thrown([&] { (void)channel.get(); }, "ibv_get_async_event") == std::errc::bad_file_descriptor);
    fake::fail("ibv_get_async_event", 1, EBADF);
    CHECK_FALSE(channel.try_get(ec));
    CHECK(ec == std::errc::bad_file_descriptor);
    fake::fail("ibv_get_async_event", 1, EBADF);
    for (rdma::async_event event : channel.events(ec))
        FAIL("there is none");
    CHECK(ec == std::errc::bad_file_descriptor);
}

TEST_CASE_METHOD(one_device, "async: an empty channel says so", "[verbs]") {
    rdma::async_channel const empty;
    std::error_code ec;
    CHECK_FALSE(empty);
    CHECK(empty.fd() == -1);
    CHECK_FALSE(empty.context());
    CHECK(thrown([&] { (void)empty.get(); }) == rdma::errc::empty_handle);
    CHECK(thrown([&] { (void)empty.try_get(); }) == rdma::errc::empty_handle);
    CHECK_FALSE(empty.get_for(1h, ec));
    CHECK(ec == rdma::errc::empty_handle);
    CHECK_FALSE(rdma::context_ref().async_channel());
    rdma::context const none;
    CHECK_FALSE(none.async_channel());
}

namespace {

/// Three events, EINTR, one event, EAGAIN; nothing; and two events before the descriptor is broken.
template <class Channel>
void check_drained(Channel const& channel, char const* get, std::function<void()> const& push,
                   std::function<std::size_t()> const& acked) {
    auto const drained = [&](std::error_code& ec) {
        std::size_t seen = 0;
        for (auto event : channel.pending(ec))
            seen += static_cast<bool>(event);
        return seen;
    };
    std::error_code ec;
    for (int i = 0; i != 4; ++i)
        push();
    fake::fail(get, 4, EINTR);
    CHECK(drained(ec) == 4);
    CHECK_FALSE(ec);
    CHECK(acked() == 4);
    CHECK(drained(ec) == 0);
    CHECK_FALSE(ec);
    push();
    push();
    fake::fail(get, 3, EBADF);
    CHECK(drained(ec) == 2);
    CHECK(ec == std::errc::bad_file_descriptor);
    CHECK(acked() == 6);
}

} // namespace

TEST_CASE_METHOD(one_device, "A10 all events are got that there are: async ones", "[field][verbs]") {
    check_drained(
        channel, "ibv_get_async_event", [&] { push(); }, [&] { return acked(); });
}

TEST_CASE_METHOD(one_device, "A10 all events are got that there are: those of CQs", "[field][verbs]") {
    rdma::comp_channel const bell(device);
    rdma::cq cq(device, 4, bell);
    cq.ack_batch(1);
    check_drained(
        bell, "ibv_get_cq_event", [&] { fake::push_cq_event(cq.native_handle()); },
        [&] { return fake::count("ibv_ack_cq_events"); });
}

TEST_CASE("A10 all events are got that there are: those of ids", "[field]") {
    world w;
    rdma::event_channel const channel;
    rdma::cm_id const id = make_id(channel);
    check_drained(
        channel, "rdma_get_cm_event", [&] { fake::push(id.native_handle(), {RDMA_CM_EVENT_ADDR_CHANGE}); },
        [&] { return fake::count("rdma_ack_cm_event"); });
}

// ---- Views ----------------------------------------------------------------------------------------------------------

TEST_CASE_METHOD(one_device, "async: all views of a context are one channel, owned or borrowed", "[verbs]") {
    CHECK((channel == device.async_channel()));
    CHECK((channel == rdma::context_ref(device).async_channel()));
    CHECK((channel == rdma::context_ref(device.native_handle()).async_channel()));
    CHECK_FALSE((channel == rdma::async_channel()));
    push(IBV_EVENT_PORT_ERR, 1);
    push(IBV_EVENT_PORT_ERR, 2);
    CHECK(rdma::context_ref(device).async_channel().get().port_num() == 1);
    CHECK(channel.get().port_num() == 2);

    rdma::event_channel ids;
    rdma::cm_id const id = make_bound(ids), other = make_bound(ids), far = make_bound(ids, siw_host);
    rdma::async_channel const of_id = id.verbs().async_channel();
    CHECK((of_id == other.verbs().async_channel()));
    CHECK((of_id == rdma::context_ref(fake::rxe_context()).async_channel()));
    CHECK_FALSE((of_id == far.verbs().async_channel()));
    CHECK_FALSE((of_id == channel)); // it is a context of its own
    fake::push_async(fake::rxe_context(), IBV_EVENT_PORT_ERR);
    CHECK_FALSE(channel.try_get());
    CHECK(of_id.try_get());

    // Of C's, then ours, then C's again.
    ibv_context* const raw = device.release();
    CHECK((rdma::context_ref(raw).async_channel().fd() == raw->async_fd));
    fake::push_async(raw, IBV_EVENT_PORT_ERR);
    CHECK(rdma::context_ref(raw).async_channel().try_get());
    device = rdma::context(rdma::adopt, raw);
    CHECK((device.async_channel() == rdma::context_ref(raw).async_channel()));
}

namespace {

/// Two threads wait, in a get and in a range, when `drop` ends what they wait on.
template <class Channel>
void check_waits_end(Channel const& channel, char const* get, std::function<void()> const& drop) {
    std::error_code of_get, of_range;
    std::atomic<int> waiting{0}, got{0};
    for (int i = 0; i != 2; ++i) // who has asked once is on the way to the wait, with all that it needs
        fake::on_return(get, [&] { ++waiting; });
    auto range = channel.events(of_range);
    {
        std::jthread const one([&] { got += static_cast<bool>(channel.get(of_get)); });
        std::jthread const two([&] {
            for (auto event : range)
                got += static_cast<bool>(event);
        });
        while (waiting != 2)
            std::this_thread::yield();
        drop();
    }
    CHECK(got == 0);
    CHECK(of_get == rdma::errc::empty_handle);
    CHECK_FALSE(of_range);
}

} // namespace

TEST_CASE_METHOD(one_device, "async: a wait ends when the context goes", "[verbs][threads]") {
    bool const is_kept = GENERATE(false, true); // by what was made on it
    CAPTURE(is_kept);
    rdma::pd pd;
    if (is_kept)
        pd = rdma::pd(device);
    check_waits_end(channel, "ibv_get_async_event", [&] { device = rdma::context(); });
    CHECK(fake::live().contexts == (is_kept ? 1u : 0u));
}

TEST_CASE_METHOD(one_device, "async: a wait ends when the completion channel goes", "[verbs][threads]") {
    bool const is_kept = GENERATE(false, true);
    CAPTURE(is_kept);
    rdma::comp_channel bell(device);
    rdma::comp_channel_ref const view(bell);
    rdma::cq cq;
    if (is_kept)
        cq = rdma::cq(device, 4, bell);
    check_waits_end(view, "ibv_get_cq_event", [&] { bell = rdma::comp_channel(); });
    CHECK(fake::live().comp_channels == (is_kept ? 1u : 0u));
}

// ---- What they keep -------------------------------------------------------------------------------------------------

namespace {

/// An event of each of the four, by number, and that number's owner dropped.
struct four : one_of_each {
    static constexpr std::size_t count = 4;
    static constexpr char const* ended_by[] = {"ibv_destroy_qp", "ibv_destroy_cq", "ibv_destroy_srq", "ibv_destroy_wq"};

    four() { cq = rdma::cq(); } // kept by the QP and the WQ until it is made anew
    void push_of(std::size_t i) {
        switch (i) {
        case 0: fake::push_async(qp.native_handle(), IBV_EVENT_QP_FATAL); break;
        case 1: fake::push_async(lone.native_handle(), IBV_EVENT_CQ_ERR); break;
        case 2: fake::push_async(srq.native_handle(), IBV_EVENT_SRQ_ERR); break;
        case 3: fake::push_async(wq.native_handle(), IBV_EVENT_WQ_FATAL); break;
        }
    }
    void drop(std::size_t i) {
        switch (i) {
        case 0: qp = {}; break;
        case 1: lone = {}; break;
        case 2: srq = {}; break;
        case 3: wq = {}; break;
        }
    }
    std::error_code destroy(std::size_t i) {
        std::error_code ec;
        switch (i) {
        case 0: qp.destroy(ec); break;
        case 1: lone.destroy(ec); break;
        case 2: srq.destroy(ec); break;
        case 3: wq.destroy(ec); break;
        }
        return ec;
    }

    rdma::cq lone{device, 4};
};

} // namespace

TEST_CASE_METHOD(four, "async: what an event names lives until it is acked", "[verbs]") {
    std::size_t const i = GENERATE(range(std::size_t{0}, four::count));
    CAPTURE(ended_by[i]);
    push_of(i);
    push_of(i);
    rdma::async_event first = channel.get(), second = channel.get();
    CHECK(destroy(i) == std::errc::device_or_resource_busy);
    std::size_t const before = fake::count(ended_by[i]);
    drop(i);
    first.ack();
    CHECK(fake::count(ended_by[i]) == before);
    rdma::async_event moved = std::move(second);
    moved.ack();
    moved.ack();
    CHECK(fake::count(ended_by[i]) == before + 1);
    CHECK(acked() == 2);
}

TEST_CASE_METHOD(four, "async: a later event of what was dropped keeps it no longer", "[verbs]") {
    std::size_t const i = GENERATE(range(std::size_t{0}, four::count));
    CAPTURE(ended_by[i]);
    push_of(i);
    rdma::async_event held = channel.get();
    push_of(i);
    drop(i);
    held.ack();
    CHECK_FALSE(channel.try_get()); // went with the object
}

TEST_CASE_METHOD(four, "async: an event is given to C, and one of C's is taken over", "[verbs][adopt]") {
    std::size_t const i = GENERATE(range(std::size_t{0}, four::count));
    CAPTURE(ended_by[i]);
    push_of(i);
    ibv_async_event raw{};
    REQUIRE(::ibv_get_async_event(device.native_handle(), &raw) == 0);
    {
        rdma::async_event event(rdma::adopt, raw);
        CHECK(event.native_handle().event_type == raw.event_type);
        CHECK(destroy(i) == std::errc::device_or_resource_busy);
        std::size_t const before = fake::count(ended_by[i]);
        drop(i);
        CHECK(fake::count(ended_by[i]) == before);
    }
    CHECK(acked() == 1);
    CHECK(fake::count(ended_by[i]) >= 1);
}

TEST_CASE_METHOD(one_device, "async: an event given to C is C's to ack", "[verbs][adopt]") {
    push(IBV_EVENT_PORT_ERR, 2);
    rdma::async_event event = channel.get();
    ibv_async_event raw = event.release();
    CHECK_FALSE(event);
    CHECK(raw.element.port_num == 2);
    event.ack();
    CHECK(acked() == 0);
    ::ibv_ack_async_event(&raw);
    rdma::async_event one = rdma::async_event(rdma::adopt, raw), two;
    swap(one, two);
    CHECK_FALSE(one);
    CHECK(two.port_num() == 2);
    one = std::move(two);
    CHECK(one.port_num() == 2);
    CHECK(acked() == 1);
}

TEST_CASE_METHOD(one_of_each, "async: events of what is C's pass through, acked at once", "[verbs][adopt]") {
    ibv_cq* const raw_cq = ::ibv_create_cq(device.native_handle(), 4, nullptr, nullptr, 0);
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = raw_cq;
    init.qp_type = IBV_QPT_RC;
    init.cap = {4, 4, 1, 1, 0};
    ibv_qp* const raw_qp = ::ibv_create_qp(pd.native_handle(), &init);
    ibv_srq_init_attr srq_init{nullptr, {4, 1, 0}};
    ibv_srq* const raw_srq = ::ibv_create_srq(pd.native_handle(), &srq_init);
    ibv_wq_init_attr wq_init{};
    wq_init.wq_type = IBV_WQT_RQ;
    wq_init.max_wr = 4;
    wq_init.max_sge = 1;
    wq_init.pd = pd.native_handle();
    wq_init.cq = raw_cq;
    ibv_wq* const raw_wq = ::ibv_create_wq(device.native_handle(), &wq_init);
    REQUIRE((raw_cq && raw_qp && raw_srq && raw_wq));
    fake::push_async(raw_cq, IBV_EVENT_CQ_ERR);
    fake::push_async(raw_qp, IBV_EVENT_QP_FATAL);
    fake::push_async(raw_srq, IBV_EVENT_SRQ_ERR);
    fake::push_async(raw_wq, IBV_EVENT_WQ_FATAL);
    CHECK(channel.get().cq() == rdma::cq_ref(raw_cq));
    CHECK(channel.get().qp() == rdma::qp_ref(raw_qp));
    CHECK(channel.get().srq() == rdma::srq_ref(raw_srq));
    CHECK(channel.get().wq() == rdma::wq_ref(raw_wq));
    CHECK(acked() == 4);
    CHECK(::ibv_destroy_wq(raw_wq) == 0);
    CHECK(::ibv_destroy_srq(raw_srq) == 0);
    CHECK(::ibv_destroy_qp(raw_qp) == 0);
    CHECK(::ibv_destroy_cq(raw_cq) == 0);
}
