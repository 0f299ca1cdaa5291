// SPDX-License-Identifier: MIT
// Faults that programs in the field had with errors, statuses, parameters and addresses; each by its number.
#include "support.hpp"

#include <csignal>
#include <cstdint>
#include <new>
#include <vector>

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace unit;

// ---- A14: see also verbs_errors.cpp ---------------------------------------------------------------------------------

TEST_CASE("A14 ibv_poll_cq's negative number is no errno", "[field]") {
    world w;
    rdma::event_channel channel;
    rdma::cm_id id = make_bound(channel);
    rdma::cq cq(id.verbs(), 4);
    fake::push_completion(cq.native_handle(), {});
    std::array<rdma::work_completion, 2> into;
    fake::fail("ibv_poll_cq", 1, 2);
    CHECK(thrown([&] { (void)cq.poll(into); }, "ibv_poll_cq") == rdma::errc::poll_failed);
    fake::fail("ibv_poll_cq", 1, 2);
    CHECK(cq.poll(into, std::nothrow) < 0);
    CHECK(std::error_code(rdma::errc::poll_failed) == std::errc::io_error);
    CHECK(cq.poll(into).size() == 1); // the completion is still there
}

// ---- A15 ------------------------------------------------------------------------------------------------------------

TEST_CASE("A15 the status of an event, raw and interpreted", "[field]") {
    struct status_case {
        int kind; // C's header may not know it
        int status;
        std::error_code wanted;
    };
    auto const errno_code = [](int value) { return std::error_code(value, std::system_category()); };
    auto const each = GENERATE_COPY(values<status_case>({
        {RDMA_CM_EVENT_ADDR_ERROR, -ENETDOWN, errno_code(ENETDOWN)},
        {RDMA_CM_EVENT_ROUTE_ERROR, -ETIMEDOUT, errno_code(ETIMEDOUT)},
        {RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT, errno_code(ETIMEDOUT)},
        {RDMA_CM_EVENT_CONNECT_ERROR, -EINVAL, errno_code(EINVAL)},
        {RDMA_CM_EVENT_CONNECT_ERROR, EINVAL, errno_code(EINVAL)}, // librdmacm's own are positive
        {RDMA_CM_EVENT_ADDR_ERROR, -1, rdma::errc::unspecified},   // librdmacm's "failed", not EPERM
        {RDMA_CM_EVENT_ROUTE_ERROR, -1, rdma::errc::unspecified},
        {RDMA_CM_EVENT_CONNECT_ERROR, -1, rdma::errc::unspecified},
        {RDMA_CM_EVENT_REJECTED, 28, rdma::reject_reason::consumer_defined},
        {RDMA_CM_EVENT_REJECTED, 8, rdma::reject_reason::invalid_service_id},
        {RDMA_CM_EVENT_REJECTED, 4, rdma::reject_reason::timeout},
        {RDMA_CM_EVENT_REJECTED, 77, static_cast<rdma::reject_reason>(77)},
        {RDMA_CM_EVENT_REJECTED, -ECONNREFUSED, errno_code(ECONNREFUSED)}, // iWARP
        {RDMA_CM_EVENT_REJECTED, -ECONNRESET, errno_code(ECONNRESET)},
        {RDMA_CM_EVENT_ESTABLISHED, 0, {}},
        {RDMA_CM_EVENT_REJECTED, 0, {}},
        {RDMA_CM_EVENT_DISCONNECTED, 0, {}},
        {static_cast<int>(type::user), -7, {}}, // its writer's number
    }));
    CAPTURE(each.kind, each.status);
    world w;
    rdma::event_channel channel;
    rdma::cm_id id = make_bound(channel);
    fake::push(id.native_handle(), {each.kind, each.status});
    rdma::cm_event event = channel.get();
    CHECK(event.status() == each.status);
    CHECK(event.error() == each.wanted);
    bool const said_no = each.kind == RDMA_CM_EVENT_REJECTED && each.status != 0 && each.status != 4;
    CHECK((event.error() == rdma::condition::refused) == said_no);
    std::string const text = to_string(event);
    CHECK_THAT(text, rdmacpp_test::contains(to_string(event.type()) + ", status " + std::to_string(each.status)));
    if (each.wanted)
        CHECK_THAT(text, rdmacpp_test::contains(each.wanted.message()));
}

TEST_CASE("A15 the status of a datagram's answer is a number of its own", "[field]") {
    world w;
    rdma::event_channel channel;
    rdma::cm_id id = make_id(channel, rdma::port_space::udp);
    id.bind(rdma::address(rxe_host, 0));
    fake::push(id.native_handle(), {RDMA_CM_EVENT_UNREACHABLE, 2});
    rdma::cm_event event = channel.get();
    CHECK(event.error());
    CHECK(event.error() == rdma::condition::refused);
    CHECK(event.error() != std::errc::no_such_file_or_directory); // errno 2
    fake::push(id.native_handle(), {RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT});
    CHECK(channel.get().error() == std::errc::timed_out);
}

// ---- A16 ------------------------------------------------------------------------------------------------------------

template <class T>
concept shows_undefined = requires(T& wc) {
    wc.opcode();
}
|| requires(T& wc) { wc.byte_len(); }
|| requires(T& wc) { wc.imm_data(); }
|| requires(T& wc) { wc.wc_flags(); }
|| requires(T& wc) { wc.src_qp(); };
static_assert(!shows_undefined<rdma::work_completion> && shows_undefined<rdma::completed>);
static_assert(!std::is_default_constructible_v<rdma::completed> && !std::is_constructible_v<rdma::completed, ibv_wc>);
template <class T>
concept gives_success = requires(T wc) {
    std::forward<T>(wc).success();
};
static_assert(gives_success<rdma::work_completion&> && !gives_success<rdma::work_completion>);

namespace {

ibv_wc flushed() {
    ibv_wc wc{};
    wc.wr_id = 77;
    wc.status = IBV_WC_WR_FLUSH_ERR;
    wc.qp_num = 5;
    wc.vendor_err = 42;
    wc.byte_len = 0xffffffff;
    wc.wc_flags = 0xff;
    return wc;
}

} // namespace

TEST_CASE("A16 of a failed completion only what is defined can be read", "[field]") {
    world w;
    rdma::event_channel channel;
    rdma::cm_id id = make_bound(channel);
    rdma::cq cq(id.verbs(), 4);
    ibv_wc good{};
    good.wr_id = 78;
    good.opcode = IBV_WC_RECV;
    good.byte_len = 12;
    good.wc_flags = IBV_WC_WITH_IMM;
    good.imm_data = 0x01020304;
    good.src_qp = 9;
    fake::push_completion(cq.native_handle(), flushed());
    fake::push_completion(cq.native_handle(), good);
    std::array<rdma::work_completion, 4> into;
    auto const done = cq.poll(into);
    REQUIRE(done.size() == 2);

    CHECK_FALSE(done[0]);
    CHECK(done[0].wr_id() == 77);
    CHECK(done[0].status() == rdma::wc_status::wr_flush_err);
    CHECK(done[0].qp_num() == 5);
    CHECK(done[0].vendor_err() == 42);
    CHECK_THAT(to_string(done[0].status()), rdmacpp_test::contains("lush"));

    REQUIRE(done[1]);
    CHECK(done[1].wr_id() == 78);
    rdma::completed const ok = done[1].success();
    CHECK(ok.opcode() == rdma::wc_opcode::recv);
    CHECK(ok.byte_len() == 12);
    CHECK(ok.imm_data() == 0x01020304);
    CHECK(ok.src_qp() == 9);
    CHECK(ok.wc_flags() == IBV_WC_WITH_IMM);
    good.wc_flags = 0;
    rdma::work_completion const plain(good);
    CHECK_FALSE(plain.success().imm_data());
}

#if !defined(NDEBUG)
TEST_CASE("A16 asking a failed completion for its success is reported", "[field]") {
    rdma::work_completion const failed(flushed());
    pid_t const child = ::fork();
    if (child == 0) {
        struct sigaction plain {};
        plain.sa_handler = SIG_DFL;
        ::sigaction(SIGABRT, &plain, nullptr); // Catch's handler is the parent's affair
        rlimit const no_core{};
        ::setrlimit(RLIMIT_CORE, &no_core);
        ::close(STDERR_FILENO);
        (void)failed.success();
        ::_exit(0);
    }
    REQUIRE(child > 0);
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    CHECK_FALSE((WIFEXITED(status) && WEXITSTATUS(status) == 0));
}
#endif

// ---- A17 ------------------------------------------------------------------------------------------------------------

TEST_CASE("A17 EINTR is tried again, and EAGAIN means nothing", "[field]") {
    world w;
    rdma::event_channel channel;
    rdma::cm_id id = make_bound(channel);
    auto const push = [&] { fake::push(id.native_handle(), {RDMA_CM_EVENT_ADDR_CHANGE}); };
    auto const interrupted_twice = [] {
        fake::fail("rdma_get_cm_event", 1, EINTR);
        fake::fail("rdma_get_cm_event", 2, EINTR);
    };
    fake::clear_calls();
    push();
    interrupted_twice();
    CHECK(channel.get().type() == type::addr_change);
    CHECK(fake::count("rdma_get_cm_event") == 3);
    push();
    interrupted_twice();
    CHECK(channel.try_get());
    fake::fail("rdma_get_cm_event", 1, EAGAIN);
    CHECK_FALSE(channel.try_get());
    push();
    fake::fail("rdma_get_cm_event", 1, EAGAIN); // also when poll has said that there is something
    CHECK(channel.get().type() == type::addr_change);
    fake::fail("rdma_get_cm_event", 1, EINTR);
    int turns = 0;
    for (rdma::cm_event event : channel.pending())
        ++turns;
    CHECK(turns == 0);
}

// ---- A22 ------------------------------------------------------------------------------------------------------------

TEST_CASE("A22 an id that has no device says so, and C is never called with a null one", "[field]") {
    world w;
    rdma::event_channel channel;
    rdma::cm_id id = make_id(channel);
    SECTION("never resolved") {}
    SECTION("resolved, but without a context") {
        fake::set_resolve_without_device(true);
        id.resolve_addr(rdma::address(rxe_host, 7471));
        expect(channel, type::addr_resolved);
    }
    SECTION("a wildcard listener") {
        id.bind(rdma::address::any_v6(7471));
        id.listen();
    }
    CHECK_FALSE(id.verbs());
    CHECK_FALSE(id.pd());
    CHECK_FALSE(id.qp());
    CHECK(id.verbs().device_name() == "");
    CHECK(id.verbs().transport() == rdma::transport_type::unknown);
    std::array<std::byte, 8> memory{};
    fake::clear_calls();
    auto const refused = [](auto&& f) {
        std::error_code const code = thrown(f);
        CHECK(code == rdma::errc::not_bound);
        CHECK(code == std::errc::no_such_device);
    };
    refused([&] { (void)rdma::pd(id.verbs()); });
    refused([&] { (void)rdma::cq(id.verbs(), 1); });
    refused([&] { (void)rdma::comp_channel(id.verbs()); });
    refused([&] { (void)rdma::mr(id.pd(), memory, rdma::access::none); });
    refused([&] { id.create_qp({}); });
    refused([&] { id.resolve_route(); });
    refused([&] { id.connect(); });
    refused([&] { id.disconnect(); });
    CHECK(calls_made() == 0);
}

TEST_CASE("A22 the child of a wildcard listener has a device", "[field]") {
    world w;
    rdma::event_channel channel;
    rdma::cm_id listener = make_listener(channel, "::");
    rdma::cm_event request = make_request(channel, listener);
    CHECK_FALSE(listener.verbs());
    rdma::cm_id child = request.take_id();
    CHECK(child.verbs().device_name() == "rxe0");
    CHECK(child.port_num() == 1);
    rdma::pd const pd(child.verbs());
    CHECK(pd);
}

TEST_CASE("A22 an address without an RDMA device is an error, now or with the event", "[field]") {
    world w;
    rdma::event_channel channel;
    rdma::cm_id foreign = make_id(channel);
    std::error_code ec;
    foreign.resolve_addr(rdma::address("192.0.2.1", 7471), ec);
    CHECK(ec == std::errc::no_such_device);
    CHECK_FALSE(foreign.verbs());
    for (char const* const loopback : {"127.0.0.1", "::1"}) { // Linux picks a device, and finds no route
        CAPTURE(loopback);
        rdma::cm_id id = make_id(channel);
        id.resolve_addr(rdma::address(loopback, 7471));
        CHECK(next(channel, type::addr_resolved).error() == std::error_code());
        id.resolve_route(ec);
        CHECK(ec == std::errc::no_such_device);
    }
}

// ---- A23 ------------------------------------------------------------------------------------------------------------

namespace {

/// What is said when this fails for lack of memory.
template <class F>
std::string out_of_memory(char const* function, F&& f) {
    fake::fail(function, 1, ENOMEM);
    try {
        f();
    } catch (rdma::error const& e) {
        CHECK(e.code() == std::errc::not_enough_memory);
        return e.what();
    }
    return {};
}

} // namespace

TEST_CASE("A23 out of memory tells the size, and the limit of locked memory", "[field]") {
    world w;
    rdma::event_channel channel;
    rdma::cm_id id = make_bound(channel);
    std::vector<std::byte> memory(1 << 20);
    locked_memory_limit const limit(64 << 10);
    REQUIRE(limit.set);
    auto const says = [](std::string const& text, std::string const& size, bool limited) {
        CAPTURE(text);
        CHECK(text.find(size) != std::string::npos);
        CHECK((text.find("RLIMIT_MEMLOCK") != std::string::npos) == limited);
        CHECK((text.find("65536 bytes") != std::string::npos) == limited);
    };
    says(out_of_memory("ibv_reg_mr", [&] { (void)rdma::mr(id.pd(), memory, rdma::access::local_write); }),
         "1048576 bytes", true);
    says(out_of_memory("ibv_create_cq", [&] { (void)rdma::cq(id.verbs(), 4096); }), "4096 entries", true);
    says(out_of_memory("ibv_alloc_pd", [&] { (void)rdma::pd(id.verbs()); }), "ibv_alloc_pd", false); // it locks none
    CHECK(fake::live().mrs == 0);
    rdma::mr const region(id.pd(), memory, rdma::access::local_write); // the failure left nothing half-done
    CHECK(region.length() == memory.size());
}

TEST_CASE("A23 where locked memory has no limit, none is named", "[field]") {
    locked_memory_limit const limit(RLIM_INFINITY);
    if (!limit.set)
        RDMACPP_SKIP("the hard limit of locked memory cannot be left");
    world w;
    rdma::event_channel channel;
    rdma::cm_id id = make_bound(channel);
    std::vector<std::byte> memory(1 << 20);
    CHECK_THAT(out_of_memory("ibv_reg_mr", [&] { (void)rdma::mr(id.pd(), memory, rdma::access::local_write); }),
               !rdmacpp_test::contains("RLIMIT_MEMLOCK"));
}

// ---- A25 ------------------------------------------------------------------------------------------------------------

static_assert(!std::is_constructible_v<rdma::pd, rdma::pd_ref> && !std::is_constructible_v<rdma::pd, ibv_pd*>);
static_assert(!std::is_constructible_v<rdma::cq, rdma::cq_ref> && !std::is_constructible_v<rdma::cq, ibv_cq*>);
static_assert(!std::is_constructible_v<rdma::cm_id, rdma::cm_id_ref>);
static_assert(!std::is_constructible_v<rdma::event_channel, rdma::event_channel_ref>);
static_assert(!std::is_constructible_v<rdma::comp_channel, rdma::comp_channel_ref>);
static_assert(!std::is_convertible_v<rdma::pd_ref, rdma::pd> && !std::is_assignable_v<rdma::pd&, rdma::pd_ref>);
static_assert(!std::is_assignable_v<rdma::cq&, rdma::cq_ref> && !std::is_assignable_v<rdma::cm_id&, rdma::cm_id_ref>);
static_assert(std::is_trivially_destructible_v<rdma::context_ref> && std::is_trivially_destructible_v<rdma::pd_ref> &&
              std::is_trivially_destructible_v<rdma::cq_ref> && std::is_trivially_destructible_v<rdma::qp_ref> &&
              std::is_trivially_destructible_v<rdma::cm_id_ref>);

TEST_CASE("A25 what is only borrowed is never closed", "[field]") {
    world w;
    rdma::event_channel channel;
    rdma::cm_id id = make_bound(channel);
    id.create_qp({});
    for (int i = 0; i != 10; ++i) {
        rdma::context_ref const context = id.verbs();
        rdma::pd_ref const pd = id.pd();
        rdma::qp_ref const qp = id.qp();
        rdma::cq_ref const cq = id.send_cq();
        rdma::comp_channel_ref const bell = id.send_cq_channel();
        CHECK((context && pd && qp && cq && bell));
        CHECK(context.native_handle() == id.native_handle()->verbs);
        CHECK(context == id.verbs());
        CHECK(pd == id.pd());
        CHECK(qp.qp_num() == id.native_handle()->qp->qp_num);
    }
    id.destroy();
    CHECK(fake::count("ibv_close_device") == 0);
    CHECK(fake::count("ibv_dealloc_pd") == 0);
    CHECK(fake::count("ibv_destroy_qp") == 1);
}

// ---- A26 ------------------------------------------------------------------------------------------------------------

TEST_CASE("A26 the default parameters are librdmacm's, and what is given is passed on", "[field]") {
    struct parameters {
        rdma::conn_param given;
        std::uint8_t retry, rnr, depth;
    };
    constexpr std::uint8_t maximum = 128; // the fake's devices'
    rdma::conn_param none, some;
    none.retry_count = none.rnr_retry_count = none.responder_resources = none.initiator_depth = 0;
    some.retry_count = 3;
    some.rnr_retry_count = 5;
    some.responder_resources = some.initiator_depth = 9;
    auto const each =
        GENERATE_COPY(parameters{{}, 7, 7, maximum}, parameters{none, 0, 0, 0}, parameters{some, 3, 5, 9});
    static_assert(rdma::conn_param{}.retry_count == 7 &&
                  rdma::conn_param{}.rnr_retry_count == rdma::infinite_rnr_retry);
    world w;
    rdma::event_channel channel, client_channel;
    rdma::cm_id listener = make_listener(channel), client = make_client(client_channel);
    client.create_qp({});
    client.connect(each.given);
    rdma::cm_event request = next(channel, type::connect_request);
    auto const param = request.param();
    REQUIRE(param);
    CHECK(param->retry_count == each.retry);
    CHECK(param->rnr_retry_count == each.rnr);
    CHECK(param->responder_resources == each.depth);
    CHECK(param->initiator_depth == each.depth);
    CHECK(param->qp_num == client.qp().qp_num());
    CHECK_FALSE(param->srq);
    CHECK_FALSE(request.ud_param());
}

TEST_CASE("A26 a backlog is passed on, and 0 is as many as the system allows", "[field]") {
    int const backlog = GENERATE(0, 2);
    world w;
    rdma::event_channel channel, client_channel;
    rdma::cm_id listener = make_bound(channel);
    listener.listen(backlog);
    int const port = listener.local_addr().port();
    std::vector<rdma::cm_id> clients;
    for (int i = 0; i != 5; ++i) {
        clients.push_back(make_client(client_channel, rxe_host, port));
        clients.back().create_qp({});
        clients.back().connect();
        if (backlog == 2 && i >= 2)
            expect(client_channel, type::rejected);
    }
    CHECK(fake::queued(channel.native_handle()) == (backlog == 0 ? 5 : 2));
}

// ---- A27 ------------------------------------------------------------------------------------------------------------

TEST_CASE("A27 listening on port 0 tells the real port, in host order", "[field]") {
    char const* const host = GENERATE(values<char const*>({rxe_host, siw_host, "fd77:1::1", "0.0.0.0", "::"}));
    CAPTURE(host);
    world w;
    rdma::event_channel channel;
    rdma::cm_id listener = make_id(channel);
    CHECK(listener.local_addr() == rdma::address());
    listener.bind(rdma::address(host, 0));
    listener.listen();
    int const port = listener.local_addr().port();
    CHECK(port >= 1024);
    CHECK(listener.local_addr() == rdma::address(host, port));
    std::string const target = host == std::string("0.0.0.0") || host == std::string("::") ? rxe_host : host;
    rdma::cm_id client = make_id(channel);
    client.resolve_addr(rdma::address(target, port));
    expect(channel, type::addr_resolved);
    client.resolve_route();
    expect(channel, type::route_resolved);
    CHECK(client.peer_addr() == rdma::address(target, port));
    client.create_qp({});
    client.connect();
    rdma::cm_event request = next(channel, type::connect_request); // it was the right port
    CHECK(request.id().local_addr() == rdma::address(target, port));
    CHECK(request.id().peer_addr() == client.local_addr());
    rdma::cm_id second = make_id(channel);
    std::error_code ec;
    second.bind(rdma::address(host, port), ec);
    CHECK((ec == std::errc::address_in_use || ec == std::errc::address_not_available));
}

TEST_CASE("A27 an IPv6 address goes through C whole", "[field]") {
    world w;
    sockaddr_in6 raw{};
    raw.sin6_family = AF_INET6;
    raw.sin6_port = htons(7471);
    raw.sin6_flowinfo = htonl(0x12345);
    raw.sin6_scope_id = fake::rxe_scope;
    REQUIRE(::inet_pton(AF_INET6, "fe80::77:1", &raw.sin6_addr) == 1);
    rdma::address const given(reinterpret_cast<sockaddr const*>(&raw));
    CHECK(given.length() == sizeof raw);
    CHECK(std::memcmp(given.native_handle(), &raw, sizeof raw) == 0);
    CHECK(given.port() == 7471);
    CHECK(given.scope_id() == fake::rxe_scope);

    rdma::event_channel channel;
    rdma::cm_id listener = make_id(channel);
    listener.bind(given);
    listener.listen();
    CHECK(listener.local_addr() == given);
    CHECK(std::memcmp(::rdma_get_local_addr(listener.native_handle()), &raw, sizeof raw) == 0);
    CHECK(listener.verbs().device_name() == "rxe0");

    rdma::cm_id client = make_id(channel);
    client.resolve_addr(given);
    expect(channel, type::addr_resolved);
    CHECK(client.peer_addr() == given);
    CHECK(client.verbs().device_name() == "rxe0");
}

TEST_CASE("A27 a link-local address needs its interface", "[field]") {
    world w;
    rdma::event_channel channel;
    rdma::cm_id id = make_id(channel);
    std::string const scoped = "fe80::77:2%" + std::to_string(fake::siw_scope);
    std::error_code ec;
    id.resolve_addr(rdma::address("fe80::77:2", 7471), ec);
    if (!ec)
        ec = next(channel, type::addr_error).error();
    CHECK(ec);
    id = make_id(channel);
    id.resolve_addr(rdma::address(scoped, 7471));
    expect(channel, type::addr_resolved);
    CHECK(id.verbs().device_name() == "siw0");
    CHECK(id.peer_addr().scope_id() == fake::siw_scope);
}

TEST_CASE("A27 a fixed source port that is taken is told as it is", "[field]") {
    world w;
    rdma::event_channel channel;
    rdma::cm_id first = make_id(channel), second = make_id(channel);
    first.resolve_addr(rdma::address(rxe_client_host, 5555), rdma::address(rxe_host, 7471));
    expect(channel, type::addr_resolved);
    CHECK(first.local_addr() == rdma::address(rxe_client_host, 5555));
    std::error_code const code =
        thrown([&] { second.resolve_addr(rdma::address(rxe_client_host, 5555), rdma::address(rxe_host, 7471)); },
               "10.77.1.2:5555");
    CHECK((code == std::errc::address_in_use || code == std::errc::address_not_available));
    second.resolve_addr(rdma::address(rxe_client_host, 0), rdma::address(rxe_host, 7471)); // any port will do
    expect(channel, type::addr_resolved);
    CHECK(second.local_addr().port() != 0);
}
