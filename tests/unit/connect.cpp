// SPDX-License-Identifier: MIT
// Connecting and disconnecting as one call each: every step and how it can end, one deadline and a stop token over all
// of them, and nothing left over. The server answers inside the client's rdma_connect, so that one thread is enough.
#include "both/support.hpp"
#include "support.hpp"

#include <algorithm>
#include <condition_variable>
#include <csignal>
#include <functional>
#include <map>
#include <optional>
#include <stdexcept>
#include <stop_token>
#include <thread>

using namespace unit;
using both::bytes;
using rdma::connect_step;

namespace {

rdma::address at(char const* host, int port = 7471) { return rdma::address(host, port); }

/// What answers, each time that somebody has asked for a connection.
class server {
public:
    using answer = std::function<void(rdma::request)>;

    explicit server(char const* host, answer what, rdma::acceptor_options const& options = {})
        : acceptor_(at(host), options), answer_(std::move(what)) {
        wait();
    }
    server(server const&) = delete;
    server& operator=(server const&) = delete;
    ~server() { fake::clear_on_return(); }

    std::size_t asked() const { return asked_; }

private:
    void wait() {
        fake::on_return("rdma_connect", [this] {
            wait();
            if (auto request = acceptor_.try_get()) {
                ++asked_;
                answer_(std::move(*request));
            }
        });
    }

    rdma::acceptor acceptor_;
    answer answer_;
    std::size_t asked_ = 0;
};

/// How an attempt ended.
struct outcome {
    std::error_code ec;
    std::string step;
    std::string function; ///< Of the exception.
    rdma::connect_report report;
};

/// Connects in one of the two forms; what was connected is kept in `into`, if that is given.
outcome attempt(bool throws, rdma::event_channel_ref channel, rdma::address const& peer, rdma::connect_options options,
                rdma::cm_id* into = nullptr) {
    outcome end;
    options.report = &end.report;
    rdma::cm_id id;
    if (throws) {
        try {
            id = rdma::connect(channel, peer, options);
        } catch (rdma::connect_error const& e) {
            end.ec = e.code();
            end.function = e.function();
            CHECK(to_string(e.step()) == to_string(end.report.step));
        }
    } else
        id = rdma::connect(channel, peer, options, end.ec);
    CHECK(static_cast<bool>(id) == !end.ec);
    end.step = to_string(end.report.step);
    if (into)
        *into = std::move(id);
    return end;
}

/// Whether the text comes first; RoCE pads with zeros.
bool begins_with(rdma::private_data const& data, std::string_view text) {
    return data.size() >= text.size() && std::memcmp(data.data(), text.data(), text.size()) == 0;
}

std::error_code system_code(int code) { return {code, std::system_category()}; }

std::string function_of(connect_step step) { return "rdma_" + to_string(step); }

/// What the outside knows of an id that is being connected: C's log.
rdma_cm_id* connecting_id() {
    auto const all = fake::calls();
    for (auto call = all.rbegin(); call != all.rend(); ++call)
        if (call->function == "rdma_resolve_addr")
            return const_cast<rdma_cm_id*>(static_cast<rdma_cm_id const*>(call->object));
    return nullptr;
}

constexpr connect_step waiting_steps[] = {connect_step::resolve_addr, connect_step::resolve_route,
                                          connect_step::connect};

/// Nothing follows by itself, but what leads to this step; once it has begun, `then` is called.
void hold_at(connect_step step, std::function<void()> then) {
    fake::set_manual(true);
    for (connect_step const each : waiting_steps) {
        if (each == step)
            return fake::on_return(function_of(each), std::move(then));
        fake::on_return(function_of(each), [] { fake::step(); });
    }
}

void let_go() {
    fake::clear_on_return();
    fake::set_manual(false);
}

/// Attempts with longer and longer limits until the step is reached: the machine may be busy.
template <class Attempt>
outcome late_at(connect_step step, Attempt&& try_within) {
    for (std::chrono::milliseconds limit = 20ms;; limit *= 2) {
        hold_at(step, [] {});
        outcome end = try_within(limit);
        let_go();
        if (end.step == to_string(step) || limit > 10s)
            return end;
    }
}

/// A message from one QP to the other, received into a posted buffer.
void check_message(rdma::cm_id& from, rdma::cm_id& to, std::byte const& received) {
    std::array<std::byte, 8> memory{};
    memory.fill(std::byte{0x5a});
    rdma::mr const region = from.reg_msgs(memory);
    from.post_send(nullptr, memory, region, IBV_SEND_SIGNALED);
    rdma::work_completion done;
    REQUIRE(from.send_cq().wait_for({&done, 1}, 10s).size() == 1);
    CHECK(done);
    REQUIRE(to.recv_cq().wait_for({&done, 1}, 10s).size() == 1);
    CHECK(done);
    CHECK(received == std::byte{0x5a});
}

} // namespace

// ---- connect ------------------------------------------------------------------------------------------------------

TEST_CASE("connect: all of it, with data both ways, on each device") {
    for (char const* host : {rxe_host, siw_host}) {
        world w;
        INFO(host);
        rdma::event_channel channel, server_channel;
        std::array<std::byte, 8> client_memory{}, server_memory{};
        rdma::mr client_region, server_region;
        std::optional<rdma::accepting> answered;
        std::string heard;
        server peer(host, [&](rdma::request request) {
            auto const data = request.event().private_data();
            heard.assign(reinterpret_cast<char const*>(data.data()), 5);
            answered =
                request.start_accept({.param = both::carrying("come in")}, [&server_memory, &server_region](auto& id) {
                    server_region = id.reg_msgs(server_memory);
                    id.post_recv(nullptr, server_memory, server_region);
                });
        });
        rdma::connect_report report;
        rdma::cm_id client = rdma::connect(
            channel, at(host), {.limit = 10s, .param = both::carrying("hello"), .report = &report}, [&](auto& id) {
                CHECK(fake::count("rdma_create_qp", id.native_handle()) == 1);
                CHECK(fake::count("rdma_connect") == 0);
                client_region = id.reg_msgs(client_memory);
                id.post_recv(nullptr, client_memory, client_region);
            });
        REQUIRE(peer.asked() == 1);
        CHECK(heard == "hello");
        CHECK(client.channel() == rdma::event_channel_ref(channel));
        CHECK(client.peer_addr() == at(host));
        CHECK(report.step == connect_step::migrate);
        CHECK(begins_with(report.reply, "come in"));
        CHECK(report.param.initiator_depth != 0);
        CHECK(report.param.private_data == nullptr);
        CHECK(is_idle(channel));
        CHECK(fake::live().channels == 4); // the two, the acceptor's, and that of the accept

        rdma::cm_id accepted = answered->get(server_channel);
        CHECK(accepted.channel() == rdma::event_channel_ref(server_channel));
        answered.reset();
        CHECK(fake::live().channels == 3);
        check_message(client, accepted, server_memory[0]);
        check_message(accepted, client, client_memory[0]);

        client = {};
        expect(server_channel, type::disconnected);
    }
}

TEST_CASE("connect: the local address, the PD and the CQ are those that were asked for") {
    world w;
    rdma::event_channel channel;
    rdma::cm_id bound = make_bound(channel, rxe_client_host);
    rdma::pd pd(bound.verbs());
    rdma::cq cq(bound.verbs(), 16);
    std::optional<rdma::accepting> answered;
    server peer(rxe_host, [&](rdma::request request) { answered = request.start_accept(); });
    rdma::cm_id client = rdma::connect(
        channel, at(rxe_host),
        {.local = at(rxe_client_host, 0), .qp = {.send_cq = cq, .recv_cq = cq, .cap = {.max_send_wr = 3}}, .pd = pd});
    CHECK(client.local_addr().host() == rxe_client_host);
    CHECK(client.pd() == rdma::pd_ref(pd));
    CHECK(client.qp().native_handle()->send_cq == cq.native_handle());
    CHECK_FALSE(client.send_cq());
}

TEST_CASE("connect: without a channel the id keeps the one of its own, and nothing moves") {
    world w;
    std::optional<rdma::accepting> answered;
    server peer(siw_host, [&](rdma::request request) { answered = request.start_accept(); });
    rdma::connect_report report;
    rdma::cm_id client = rdma::connect({}, at(siw_host), {.report = &report});
    CHECK(to_string(report.step) == "connect");
    CHECK(client.channel());
    CHECK(fake::count("rdma_migrate_id", client.native_handle()) == 0);
    rdma::event_channel later;
    client.migrate(later); // as any other id
    answered.reset();
    expect(later, type::disconnected);
}

TEST_CASE("connect: what comes after ESTABLISHED follows the id to its channel") {
    for (char const* host : {rxe_host, siw_host}) {
        world w;
        INFO(host);
        rdma::event_channel channel;
        server peer(host, [&](rdma::request request) {
            rdma::accepting answered = request.start_accept();
            fake::push(connecting_id(), {RDMA_CM_EVENT_ADDR_CHANGE, 7}); // behind the answer
        });
        // On RoCE the server drops the connection before the client has got the answer, on iWARP after it is there.
        std::error_code ec;
        rdma::cm_id client = rdma::connect(channel, at(host), {}, ec);
        if (host == rxe_host) {
            CHECK(ec);
            continue;
        }
        REQUIRE_FALSE(ec);
        CHECK(next(channel, type::addr_change).status() == 7);
        expect(channel, type::disconnected);
        CHECK(client.disconnected());
    }
}

TEST_CASE("connect: datagrams, with the peer's address, QP and key in the report") {
    world w;
    rdma::event_channel channel, server_channel;
    rdma::cm_id served;
    server peer(
        rxe_host,
        [&](rdma::request request) { served = request.accept(server_channel, {.param = both::carrying("here")}); },
        {.port_space = rdma::port_space::udp});
    rdma::connect_report report;
    rdma::cm_id client = rdma::connect(channel, at(rxe_host), {.port_space = rdma::port_space::udp, .report = &report});
    CHECK(client.qp_type() == rdma::qp_type::ud);
    CHECK(report.ud_param.qp_num == served.qp().qp_num());
    CHECK(report.ud_param.qkey == RDMA_UDP_QKEY);
    CHECK(report.ud_param.private_data == nullptr);
    CHECK(begins_with(report.reply, "here"));
    rdma::ah const handle(client.pd(), report.ud_param.ah_attr);
    CHECK(handle);
}

TEST_CASE("connect: each C function that fails is named by its step, in both forms") {
    struct fault {
        char const* function;
        connect_step step;
        char const* armed_in; ///< The C function after which it is armed, since the server calls some of them, too.
    };
    fault const faults[] = {
        {"rdma_create_event_channel", connect_step::create_id, nullptr},
        {"rdma_create_id", connect_step::create_id, nullptr},
        {"rdma_resolve_addr", connect_step::resolve_addr, nullptr},
        {"rdma_get_cm_event", connect_step::resolve_addr, "rdma_resolve_addr"},
        {"rdma_resolve_route", connect_step::resolve_route, nullptr},
        {"rdma_get_cm_event", connect_step::resolve_route, "rdma_resolve_route"},
        {"rdma_create_qp", connect_step::create_qp, nullptr},
        {"rdma_connect", connect_step::connect, nullptr},
        {"rdma_get_cm_event", connect_step::connect, "rdma_connect"},
        {"rdma_migrate_id", connect_step::migrate, "rdma_connect"},
    };
    for (char const* host : {rxe_host, siw_host})
        for (fault const& each : faults)
            for (bool throws : {false, true}) {
                world w;
                INFO(host << ": " << each.function << " in " << to_string(each.step) << (throws ? ", throws" : ""));
                rdma::event_channel channel;
                std::optional<rdma::accepting> answered;
                auto const arm = [&each] { fake::fail(each.function, 1, EMFILE); };
                {
                    server peer(host, [&](rdma::request request) {
                        answered = request.start_accept();
                        if (each.armed_in == std::string_view("rdma_connect"))
                            arm();
                    });
                    if (!each.armed_in)
                        arm();
                    else if (each.armed_in != std::string_view("rdma_connect"))
                        fake::on_return(each.armed_in, arm);
                    outcome const end = attempt(throws, channel, at(host), {});
                    CHECK(end.ec == system_code(EMFILE));
                    CHECK(end.step == to_string(each.step));
                    if (throws) {
                        bool const opens = each.step == connect_step::create_id;
                        CHECK(end.function == (opens                                ? "rdma_create_id"
                                               : each.step == connect_step::migrate ? "rdma_migrate_id"
                                                                                    : function_of(each.step)));
                    }
                    CHECK(fake::failed().function == each.function);
                    CHECK(fake::count("rdma_destroy_id") == (each.step == connect_step::create_id ? 0U : 1U));
                    CHECK(is_idle(channel));
                }
                answered.reset();
                CHECK(fake::live().ids == 0);
                CHECK(fake::live().channels == 1);
            }
}

TEST_CASE("connect: each event that says no ends the step it belongs to, with what it says") {
    struct bad_news {
        connect_step step;
        int type;
        int status;
        std::error_code code;
    };
    bad_news const all[] = {
        {connect_step::resolve_addr, RDMA_CM_EVENT_ADDR_ERROR, -EHOSTUNREACH, system_code(EHOSTUNREACH)},
        {connect_step::resolve_addr, RDMA_CM_EVENT_ADDR_ERROR, 0, rdma::errc::unspecified},
        {connect_step::resolve_addr, RDMA_CM_EVENT_DEVICE_REMOVAL, 0, system_code(ENODEV)},
        {connect_step::resolve_route, RDMA_CM_EVENT_ROUTE_ERROR, -ETIMEDOUT, system_code(ETIMEDOUT)},
        {connect_step::resolve_route, RDMA_CM_EVENT_DEVICE_REMOVAL, 0, system_code(ENODEV)},
        {connect_step::connect, RDMA_CM_EVENT_CONNECT_ERROR, -1, rdma::errc::unspecified},
        {connect_step::connect, RDMA_CM_EVENT_CONNECT_ERROR, -EINVAL, system_code(EINVAL)},
        {connect_step::connect, RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT, system_code(ETIMEDOUT)},
        {connect_step::connect, RDMA_CM_EVENT_REJECTED, 28, rdma::reject_reason::consumer_defined},
        {connect_step::connect, RDMA_CM_EVENT_REJECTED, -ECONNREFUSED, system_code(ECONNREFUSED)},
        {connect_step::connect, RDMA_CM_EVENT_DISCONNECTED, 0, system_code(ECONNRESET)},
        {connect_step::connect, RDMA_CM_EVENT_DEVICE_REMOVAL, 0, system_code(ENODEV)},
    };
    for (bad_news const& each : all)
        for (bool throws : {false, true}) {
            world w;
            INFO(to_string(static_cast<type>(each.type)) << ", status " << each.status << (throws ? ", throws" : ""));
            rdma::event_channel channel;
            hold_at(each.step, [&each] {
                fake::push(connecting_id(), {RDMA_CM_EVENT_ADDR_CHANGE}); // means nothing here
                fake::push(connecting_id(), {each.type, each.status});
            });
            outcome const end = attempt(throws, channel, at(rxe_host), {.limit = 10s});
            CHECK(end.ec == each.code);
            CHECK(end.step == to_string(each.step));
            if (throws)
                CHECK(end.function == function_of(each.step));
            CHECK(fake::live().ids == 0);
            CHECK(fake::live().channels == 1);
        }
}

TEST_CASE("connect: an address that nobody has, a port that nobody listens on, a host without a device") {
    for (bool throws : {false, true}) {
        world w;
        rdma::event_channel channel;
        outcome end = attempt(throws, channel, at("10.77.1.200"), {});
        CHECK(end.ec == std::errc::timed_out);
        CHECK(end.step == "resolve_addr");
        end = attempt(throws, channel, at("192.0.2.1"), {});
        CHECK(end.ec == std::errc::no_such_device);
        CHECK(end.step == "resolve_addr");
        end = attempt(throws, channel, at("127.0.0.1"), {});
        CHECK(end.ec == std::errc::no_such_device);
        CHECK(end.step == "resolve_route");
        for (char const* host : {rxe_host, siw_host}) {
            INFO(host);
            end = attempt(throws, channel, at(host, 9), {});
            CHECK(end.ec == rdma::condition::refused);
            CHECK(end.step == "connect");
        }
        CHECK(fake::live().ids == 0);
        CHECK(fake::live().channels == 1);
    }
}

TEST_CASE("connect: a refusal, with what the peer says of it") {
    for (char const* host : {rxe_host, siw_host})
        for (bool throws : {false, true}) {
            world w;
            INFO(host << (throws ? ", throws" : ""));
            rdma::event_channel channel;
            server peer(host, [](rdma::request request) { request.reject(bytes("not today")); });
            outcome const end = attempt(throws, channel, at(host), {});
            CHECK(end.ec == rdma::condition::refused);
            CHECK(end.step == "connect");
            CHECK(begins_with(end.report.reply, "not today"));
            CHECK(end.report.reply.size() == (host == siw_host ? 9U : rdma::private_data_limit::reject));
        }
}

TEST_CASE("connect: a refusal of datagrams") {
    world w;
    rdma::event_channel channel;
    server peer(rxe_host, [](rdma::request request) { request.reject(bytes("not today")); },
                {.port_space = rdma::port_space::udp});
    outcome const end = attempt(true, channel, at(rxe_host), {.port_space = rdma::port_space::udp});
    CHECK(end.ec == rdma::condition::refused);
    CHECK(begins_with(end.report.reply, "not today"));
}

TEST_CASE("connect: what cannot be is refused before C is called, in the step it belongs to") {
    world w;
    rdma::event_channel channel;
    std::optional<rdma::accepting> answered;
    server peer(rxe_host, [&](rdma::request request) { answered = request.start_accept(); });
    outcome end = attempt(true, channel, rdma::address(), {});
    CHECK(end.ec == rdma::errc::bad_address);
    CHECK(end.step == "resolve_addr");
    end = attempt(true, channel, at(rxe_host), {.local = rdma::address("fd77:1::1", 0)});
    CHECK(end.ec == rdma::errc::family_mismatch);
    std::string const much(256, 'x');
    end = attempt(true, channel, at(rxe_host), {.param = both::carrying(much)});
    CHECK(end.ec == rdma::errc::private_data_too_long);
    CHECK(end.step == "connect");
    end = attempt(true, channel, at(rxe_host), {.param = {.retry_count = 8}});
    CHECK(end.ec == rdma::errc::retry_count_out_of_range);
    CHECK(fake::count("rdma_connect") == 0);
    end = attempt(true, channel, at(rxe_host), {.param = both::carrying(much.substr(0, 57))});
    CHECK(end.ec == std::errc::invalid_argument); // the kernel's
    CHECK(fake::count("rdma_connect") == 1);
    end = attempt(true, channel, at(rxe_host), {.qp = {.cap = {.max_send_wr = 1 << 30}}});
    CHECK(end.ec == std::errc::invalid_argument);
    CHECK(end.step == "create_qp");
    CHECK(peer.asked() == 0);
    CHECK(fake::live().ids == 1); // the listener
}

TEST_CASE("connect: late in each step") {
    for (connect_step const step : waiting_steps)
        for (bool throws : {false, true}) {
            world w;
            both::watchdog const watch;
            INFO(to_string(step) << (throws ? ", throws" : ""));
            rdma::event_channel channel;
            rdma::cm_id listener = make_listener(channel);
            outcome const end =
                late_at(step, [&](auto limit) { return attempt(throws, channel, at(rxe_host), {.limit = limit}); });
            CHECK(end.ec == std::errc::timed_out);
            CHECK(end.step == to_string(step));
            if (throws)
                CHECK(end.function == function_of(step));
            CHECK(fake::live().ids == 1);
            CHECK(fake::live().channels == 1);
            CHECK_FALSE(channel.try_get()); // the kernel has called off the request, too
        }
}

TEST_CASE("connect: without any time at all nothing is begun") {
    world w;
    rdma::event_channel channel;
    for (auto limit : {0ms, -1ms}) {
        outcome const end = attempt(true, channel, at(rxe_host), {.limit = limit});
        CHECK(end.ec == std::errc::timed_out);
        CHECK(end.step == "resolve_addr");
        CHECK(fake::count("rdma_resolve_addr") == 0);
    }
}

TEST_CASE("connect: the limit is for all steps together") {
    world w;
    rdma::event_channel channel;
    std::optional<rdma::accepting> answered;
    server peer(rxe_host, [&](rdma::request request) { answered = request.start_accept(); });
    for (char const* function : {"rdma_resolve_addr", "rdma_resolve_route", "rdma_create_qp"})
        fake::on_return(function, [] { std::this_thread::sleep_for(100ms); }); // each step alone is in time
    outcome const end = attempt(false, channel, at(rxe_host), {.limit = 150ms});
    CHECK(end.ec == std::errc::timed_out);
    CHECK(peer.asked() == 0);
}

TEST_CASE("connect: stopped in each step, before it waits") {
    for (connect_step const step : waiting_steps)
        for (bool throws : {false, true}) {
            world w;
            both::watchdog const watch;
            INFO(to_string(step) << (throws ? ", throws" : ""));
            rdma::event_channel channel;
            std::stop_source stop;
            hold_at(step, [&stop] { stop.request_stop(); });
            outcome const end = attempt(throws, channel, at(rxe_host), {.limit = 1h, .stop = stop.get_token()});
            CHECK(end.ec == std::errc::operation_canceled);
            CHECK(end.step == to_string(step));
            CHECK(fake::live().ids == 0);
            CHECK(fake::live().channels == 1);
        }
}

TEST_CASE("connect: stopped in each step, while it waits") {
    for (connect_step const step : waiting_steps) {
        world w;
        both::watchdog const watch;
        INFO(to_string(step));
        rdma::event_channel channel;
        std::stop_source stop;
        std::atomic<bool> begun{false};
        hold_at(step, [&begun] { begun = true; });
        std::jthread const stopping([&] {
            while (!begun)
                std::this_thread::yield();
            stop.request_stop();
        });
        outcome const end = attempt(false, channel, at(rxe_host), {.limit = 1h, .stop = stop.get_token()});
        CHECK(end.ec == std::errc::operation_canceled);
        CHECK(end.step == to_string(step));
        CHECK(fake::live().ids == 0);
    }
}

TEST_CASE("connect: stopped before it begins, and while the program prepares") {
    world w;
    rdma::event_channel channel;
    std::stop_source stop;
    rdma::connect_report report;
    std::error_code ec;
    rdma::cm_id id = rdma::connect(
        channel, at(rxe_host), {.stop = stop.get_token(), .report = &report},
        [&stop](rdma::cm_id&, std::error_code&) { stop.request_stop(); }, ec);
    CHECK_FALSE(id);
    CHECK(ec == std::errc::operation_canceled);
    CHECK(to_string(report.step) == "connect");
    CHECK(fake::count("rdma_connect") == 0);

    outcome const end = attempt(true, channel, at(rxe_host), {.stop = stop.get_token()});
    CHECK(end.ec == std::errc::operation_canceled);
    CHECK(fake::count("rdma_resolve_addr") == 1);
}

TEST_CASE("connect: a host that says nothing, fifty times at once") {
    world w;
    both::watchdog const watch;
    fake::set_silent("10.77.1.99");
    rdma::event_channel channel;
    constexpr std::size_t many = 50;
    std::vector<rdma::connect_report> reports(many);
    std::vector<std::error_code> codes(many);
    {
        std::vector<std::jthread> threads;
        for (std::size_t i = 0; i != many; ++i)
            threads.emplace_back([&, i] {
                rdma::cm_id const id =
                    rdma::connect(channel, at("10.77.1.99"), {.limit = 500ms, .report = &reports[i]}, codes[i]);
            });
    }
    for (std::size_t i = 0; i != many; ++i) {
        CHECK(codes[i] == std::errc::timed_out);
        CHECK(to_string(reports[i].step) == "connect");
    }
    CHECK(fake::count("rdma_connect") == many);
    CHECK(fake::live().ids == 0);
    CHECK(fake::live().channels == 1);
}

TEST_CASE("connect: what the program prepares may fail") {
    world w;
    rdma::event_channel channel;
    std::optional<rdma::accepting> answered;
    server peer(rxe_host, [&](rdma::request request) { answered = request.start_accept(); });
    rdma::connect_report report;

    SECTION("with a code") {
        std::error_code ec;
        rdma::cm_id id = rdma::connect(
            channel, at(rxe_host), {.report = &report},
            [](rdma::cm_id& mine, std::error_code& why) {
                CHECK(mine.qp());
                why = std::make_error_code(std::errc::no_buffer_space);
            },
            ec);
        CHECK_FALSE(id);
        CHECK(ec == std::errc::no_buffer_space);
    }
    SECTION("with an exception of its own") {
        auto const fails = [](rdma::cm_id& mine) {
            CHECK(mine.qp());
            throw std::domain_error("no room");
        };
        CHECK_THROWS_AS(rdma::connect(channel, at(rxe_host), {.report = &report}, fails), std::domain_error);
    }
    SECTION("by taking the id away") {
        rdma::cm_id taken;
        std::error_code ec;
        rdma::cm_id id = rdma::connect(
            channel, at(rxe_host), {}, [&](rdma::cm_id& mine, std::error_code&) { taken = std::move(mine); }, ec);
        CHECK_FALSE(id);
        CHECK(ec == rdma::errc::empty_handle);
        CHECK(taken.qp());
        taken = {};
        report.step = connect_step::create_qp;
    }
    CHECK(to_string(report.step) == "create_qp");
    CHECK(peer.asked() == 0);
    CHECK(fake::live().ids == 1);
    CHECK(fake::live().qps == 0);
}

TEST_CASE("connect: the message of the exception names function, address and reason") {
    world w;
    CHECK_THROWS_WITH(rdma::connect({}, at("192.0.2.1")), rdmacpp_test::contains("rdma_resolve_addr(192.0.2.1:7471)"));
    CHECK(thrown([] { static_cast<void>(rdma::connect({}, at(rxe_host, 9))); },
                 "rdma_connect(10.77.1.1:9): rejected") == rdma::reject_reason::invalid_service_id);
}

TEST_CASE("connect: without devices nothing can be opened") {
    world w;
    fake::set_devices_present(false);
    outcome const end = attempt(true, {}, at(rxe_host), {});
    CHECK(end.ec == std::errc::no_such_device);
    CHECK(end.step == "create_id");
}

TEST_CASE("connect: threads connect on one channel that another iterates, and no event goes astray") {
    world w;
    both::watchdog const watch(60s);
    fake::set_reuse_addresses(true);
    constexpr int threads = 4, rounds = 40, foreign = 2000;
    rdma::event_channel channel;
    rdma::cm_id const bystander = make_id(channel);
    rdma::acceptor acceptor(at(rxe_host));
    std::vector<rdma::cm_id> accepted;
    std::atomic<int> failed{0};
    std::jthread serving([&](std::stop_token stop) {
        std::error_code ended, ec;
        for (rdma::request request : acceptor.events(stop, ended)) {
            accepted.push_back(request.accept({}, {}, ec));
            failed += ec ? 1 : 0;
        }
        failed += ended ? 1 : 0;
    });

    std::mutex mutex;
    std::condition_variable changed;
    std::vector<int> seen(foreign);
    std::map<void const*, int> ended;
    int others = 0;
    std::jthread iterating([&](std::stop_token stop) {
        std::error_code ec;
        for (rdma::cm_event event : channel.events(stop, ec)) {
            std::lock_guard const lock(mutex);
            if (event.type() == type::addr_change)
                ++seen[static_cast<std::size_t>(event.status())];
            else if (event.type() == type::disconnected)
                ++ended[event.id().native_handle()];
            else
                others += event.type() != type::timewait_exit;
            changed.notify_one();
        }
    });
    std::vector<std::vector<rdma::cm_id>> connected(threads);
    {
        std::vector<std::jthread> clients;
        for (std::vector<rdma::cm_id>& mine : connected)
            clients.emplace_back([&] {
                std::error_code ec;
                for (int i = 0; i != rounds; ++i) {
                    rdma::cm_id id = rdma::connect(channel, at(rxe_host), {.limit = 30s}, ec);
                    failed += ec ? 1 : 0;
                    if (i % 2 == 0)
                        continue; // dropped at once
                    id.disconnect(ec);
                    failed += ec ? 1 : 0;
                    mine.push_back(std::move(id));
                }
            });
        for (int i = 0; i != foreign; ++i)
            fake::push(bystander.native_handle(), {RDMA_CM_EVENT_ADDR_CHANGE, i});
    }
    constexpr std::size_t kept = threads * rounds / 2;
    {
        std::unique_lock lock(mutex);
        changed.wait_for(lock, 20s,
                         [&] { return ended.size() == kept && std::find(seen.begin(), seen.end(), 0) == seen.end(); });
    }
    iterating.request_stop();
    iterating.join();
    serving.request_stop();
    serving.join();
    CHECK(failed == 0);
    CHECK(accepted.size() == threads * rounds);
    CHECK(others == 0);
    CHECK(std::count(seen.begin(), seen.end(), 1) == foreign);
    CHECK(ended.size() == kept);
    for (auto const& mine : connected)
        for (rdma::cm_id const& id : mine)
            CHECK(ended[id.native_handle()] == 1);
    rdma::channel_stats const now = channel.stats();
    CHECK(now.events_got == now.events_acked);
    CHECK(now.ids_live == kept + 1);
}

// ---- on iWARP, where rdma_connect itself blocks -------------------------------------------------------------------

namespace {

/// A handler that does nothing, without SA_RESTART.
class signal_handled {
public:
    explicit signal_handled(int signal) : signal_(signal) {
        struct sigaction action {};
        action.sa_handler = [](int) { ++received(); };
        ::sigaction(signal, &action, &before_);
        received() = 0;
    }
    signal_handled(signal_handled const&) = delete;
    signal_handled& operator=(signal_handled const&) = delete;
    ~signal_handled() { ::sigaction(signal_, &before_, nullptr); }
    static std::atomic<int>& received() {
        static std::atomic<int> count{0};
        return count;
    }

private:
    int signal_;
    struct sigaction before_ {};
};

constexpr char const* silent_siw = "10.77.2.99";

} // namespace

TEST_CASE("connect: a call that blocks is ended by the signal that the program allows, at the deadline") {
    world w;
    both::watchdog const watch;
    signal_handled const handled(SIGUSR1);
    fake::set_silent(silent_siw);
    fake::set_patience(1h); // without the signal
    rdma::event_channel channel;
    rdma::cm_id bystander = make_id(channel);
    for (bool throws : {false, true}) {
        outcome const end = attempt(throws, channel, at(silent_siw), {.limit = 100ms, .interrupt_signal = SIGUSR1});
        CHECK(end.ec == std::errc::timed_out);
        CHECK(end.step == "connect");
        CHECK(signal_handled::received() > 0);
        CHECK(fake::live().ids == 1);
    }
}

TEST_CASE("connect: a signal that would end the process is refused before any call") {
    world w;
    both::watchdog const watch;
    for (int const signal : {int{SIGUSR2}, int{SIGKILL}, 1000, -1}) {
        CAPTURE(signal);
        outcome const end = attempt(false, {}, at(silent_siw), {.interrupt_signal = signal});
        CHECK(end.ec == rdma::errc::signal_unhandled);
        CHECK(fake::count("rdma_create_event_channel") == 0);
    }
    struct sigaction before {
    }, ignored{};
    ignored.sa_handler = SIG_IGN;
    REQUIRE(::sigaction(SIGUSR2, &ignored, &before) == 0);
    outcome const end = attempt(true, {}, at(silent_siw), {.interrupt_signal = SIGUSR2});
    REQUIRE(::sigaction(SIGUSR2, &before, nullptr) == 0);
    CHECK(end.ec == rdma::errc::signal_unhandled);
}

TEST_CASE("connect: a call that blocks is ended by a stop") {
    world w;
    both::watchdog const watch;
    signal_handled const handled(SIGUSR1);
    fake::set_silent(silent_siw);
    fake::set_patience(1h);
    std::stop_source stop;
    std::jthread const stopping([&] {
        while (fake::count("rdma_connect") == 0)
            std::this_thread::yield();
        stop.request_stop();
    });
    outcome const end = attempt(false, {}, at(silent_siw), {.stop = stop.get_token(), .interrupt_signal = SIGUSR1});
    CHECK(end.ec == std::errc::operation_canceled);
    CHECK(end.step == "connect");
    CHECK(signal_handled::received() > 0);
}

TEST_CASE("connect: a signal that was not meant for it makes it call again") {
    world w;
    fake::set_silent(silent_siw);
    fake::set_silent_interrupted(true);
    outcome const end = attempt(false, {}, at(silent_siw), {.limit = 50ms});
    CHECK(end.ec == std::errc::timed_out);
    CHECK(end.step == "connect");
    CHECK(fake::count("rdma_connect") > 1);
}

TEST_CASE("connect: without a signal the call on iWARP takes as long as it takes") {
    world w;
    fake::set_silent(silent_siw);
    fake::set_patience(50ms);
    outcome const end = attempt(true, {}, at(silent_siw), {.limit = 1ms});
    CHECK(end.ec == std::errc::timed_out);
    CHECK(fake::live().ids == 0);
}

TEST_CASE("connect: a signal that could be sent is not, when the peer answers in time") {
    world w;
    signal_handled const handled(SIGUSR1);
    std::optional<rdma::accepting> answered;
    server peer(siw_host, [&](rdma::request request) { answered = request.start_accept(); });
    rdma::cm_id id = rdma::connect({}, at(siw_host), {.interrupt_signal = SIGUSR1});
    CHECK(id);
    CHECK(signal_handled::received() == 0);
}

// ---- the ACK timeout ----------------------------------------------------------------------------------------------

TEST_CASE("ack timeout: rounded up to what devices count in") {
    using namespace std::chrono;
    CHECK(rdma::ack_timeout(0s).exponent() == 1);
    CHECK(rdma::ack_timeout(1ns).exponent() == 1);
    CHECK(rdma::ack_timeout(8192ns).exponent() == 1);
    CHECK(rdma::ack_timeout(8193ns).exponent() == 2);
    CHECK(rdma::ack_timeout(16384ns).exponent() == 2);
    CHECK(rdma::ack_timeout(67ms).exponent() == 14);
    CHECK(rdma::ack_timeout(68ms).exponent() == 15);
    CHECK(rdma::ack_timeout(1s).exponent() == 18);
    CHECK(rdma::ack_timeout(duration<double>(0.5)).exponent() == 17);
    CHECK(rdma::ack_timeout(2h).exponent() == 31);
    CHECK(rdma::ack_timeout(hours::max()).exponent() == 31);
    CHECK(rdma::ack_timeout(-1s).exponent() == 0); // for ever
    CHECK(rdma::ack_timeout(hours::min()).exponent() == 0);
}

TEST_CASE("ack timeout: its span is what its exponent says, and is made the same again from it") {
    for (std::uint8_t n = 1; n != 32; ++n) {
        auto const timeout = rdma::ack_timeout::of_exponent(n);
        CHECK(timeout.exponent() == n);
        CHECK(timeout.span() == std::chrono::nanoseconds(std::int64_t{4096} << n));
        CHECK(rdma::ack_timeout(timeout.span()).exponent() == n);
    }
    CHECK(rdma::ack_timeout::of_exponent(0).span() == 0s);
    CHECK(rdma::ack_timeout::of_exponent(32).exponent() == 0); // five bits
    constexpr rdma::ack_timeout known_early = 1ms;
    static_assert(known_early.exponent() == 8);
}

TEST_CASE("ack timeout: what the program prepares is what the QP gets") {
    world w;
    std::optional<rdma::accepting> answered;
    server peer(rxe_host, [&](rdma::request request) {
        answered = request.start_accept({}, [](rdma::cm_id& id) { id.set_ack_timeout(1s); });
    });
    rdma::cm_id client = rdma::connect({}, at(rxe_host), {}, [](rdma::cm_id& id) { id.set_ack_timeout(10ms); });
    CHECK(client.qp().query(IBV_QP_TIMEOUT).timeout == rdma::ack_timeout(10ms).exponent());
    rdma::cm_id const accepted = answered->get({});
    CHECK(accepted.qp().query(IBV_QP_TIMEOUT).timeout == rdma::ack_timeout(1s).exponent());
}

// ---- disconnect ---------------------------------------------------------------------------------------------------

TEST_CASE("disconnect: waits until both sides know, and gives the id back to its channel") {
    for (char const* host : {rxe_host, siw_host}) {
        world w;
        INFO(host);
        connection c = connect_pair(host);
        std::array<std::byte, 8> memory{};
        rdma::mr const region = c.client.reg_msgs(memory);
        c.client.post_recv(nullptr, memory, region);
        rdma::disconnect(c.client);
        CHECK(c.client.disconnected());
        CHECK(c.client.channel() == rdma::event_channel_ref(c.client_channel));
        rdma::work_completion flushed;
        REQUIRE(c.client.recv_cq().poll({&flushed, 1}).size() == 1);
        CHECK(flushed.status() == rdma::wc_status::wr_flush_err);
        expect(c.server_channel, type::disconnected);
        if (host == rxe_host)
            expect(c.client_channel, type::timewait_exit); // what may still come comes where it belongs
        CHECK(is_idle(c.client_channel));
        CHECK(fake::live().channels == 2);
        std::size_t const before = calls_made();
        rdma::disconnect(c.client); // again: nothing to do
        CHECK(calls_made() == before);
    }
}

TEST_CASE("disconnect: the peer was faster") {
    for (char const* host : {rxe_host, siw_host})
        for (bool got : {true, false}) {
            world w;
            INFO(host << (got ? ", DISCONNECTED got" : ", DISCONNECTED queued"));
            connection c = connect_pair(host);
            c.server = {};
            if (got)
                expect(c.client_channel, type::disconnected);
            std::size_t const before = calls_made();
            std::error_code ec;
            rdma::disconnect(c.client, 10s, ec);
            CHECK_FALSE(ec);
            CHECK((calls_made() == before) == got);
            CHECK(c.client.disconnected());
            CHECK(c.client.channel() == rdma::event_channel_ref(c.client_channel));
        }
}

TEST_CASE("disconnect: late, or stopped, it ends all the same, and says so on its channel") {
    for (bool stopped : {false, true}) {
        world w;
        INFO((stopped ? "stopped" : "late"));
        connection c = connect_pair();
        fake::set_manual(true);
        std::stop_source stop;
        if (stopped)
            fake::on_return("rdma_disconnect", [&stop] { stop.request_stop(); });
        std::error_code const ec =
            thrown([&] { rdma::disconnect(c.client, stopped ? 3600s : 0s, stop.get_token()); }, "rdma_disconnect");
        CHECK(ec == (stopped ? std::errc::operation_canceled : std::errc::timed_out));
        CHECK_FALSE(c.client.disconnected());
        CHECK(c.client.channel() == rdma::event_channel_ref(c.client_channel));
        while (fake::step())
            ;
        expect(c.server_channel, type::disconnected);
        expect(c.client_channel, type::disconnected);
        CHECK(c.client.disconnected());
    }
}

TEST_CASE("disconnect: stopped while it waits") {
    world w;
    both::watchdog const watch;
    connection c = connect_pair();
    fake::set_manual(true);
    std::stop_source stop;
    std::jthread const stopping([&] {
        while (fake::count("rdma_disconnect") == 0)
            std::this_thread::yield();
        stop.request_stop();
    });
    std::error_code ec;
    rdma::disconnect(c.client, rdma::no_limit, stop.get_token(), ec);
    CHECK(ec == std::errc::operation_canceled);
}

TEST_CASE("disconnect: other events that say that it is over do as well") {
    for (rdma_cm_event_type each : {RDMA_CM_EVENT_TIMEWAIT_EXIT, RDMA_CM_EVENT_UNREACHABLE, RDMA_CM_EVENT_CONNECT_ERROR,
                                    RDMA_CM_EVENT_REJECTED}) {
        world w;
        INFO(to_string(static_cast<type>(each)));
        connection c = connect_pair();
        fake::set_manual(true);
        rdma_cm_id* const raw = c.client.native_handle();
        fake::on_return("rdma_disconnect", [raw, each] {
            fake::push(raw, {RDMA_CM_EVENT_ADDR_CHANGE});
            fake::push(raw, {each, -ETIMEDOUT});
        });
        std::error_code ec;
        rdma::disconnect(c.client, 10s, ec);
        CHECK_FALSE(ec);
        CHECK(is_idle(c.client_channel));
    }
}

TEST_CASE("disconnect: for datagrams, and for nothing") {
    world w;
    rdma::event_channel channel;
    rdma::cm_id id = make_id(channel, rdma::port_space::udp);
    std::size_t const before = calls_made();
    rdma::disconnect(id);
    id = {};
    std::size_t const after = calls_made();
    CHECK(thrown([&] { rdma::disconnect(id); }, "rdma_disconnect") == rdma::errc::empty_handle);
    CHECK(calls_made() == after);
    CHECK(after - before == 1); // the destroy
}

TEST_CASE("disconnect: what was never connected, and what listens") {
    world w;
    rdma::event_channel channel;
    rdma::cm_id client = make_client(channel);
    CHECK(thrown([&] { rdma::disconnect(client, 10s); }) == std::errc::invalid_argument);
    CHECK(client.channel() == rdma::event_channel_ref(channel));
    client.create_qp({}); // it is still good for connecting
    rdma::cm_id bare = make_id(channel);
    CHECK(thrown([&] { rdma::disconnect(bare, 10s); }) == rdma::errc::not_bound);
    CHECK(bare.channel() == rdma::event_channel_ref(channel));
    rdma::cm_id listener = make_listener(channel);
    CHECK(thrown([&] { rdma::disconnect(listener, 10s); }) == std::errc::operation_not_permitted);
    CHECK(listener.channel() == rdma::event_channel_ref(channel));
    CHECK(fake::live().channels == 1);
}

TEST_CASE("disconnect: refused while events of the id are held, and none is lost") {
    world w;
    connection c = connect_pair();
    fake::push(c.client.native_handle(), {RDMA_CM_EVENT_ADDR_CHANGE, 1});
    fake::push(c.client.native_handle(), {RDMA_CM_EVENT_ADDR_CHANGE, 2});
    rdma::cm_event held = next(c.client_channel, type::addr_change);
    CHECK(thrown([&] { rdma::disconnect(c.client, 10s); }) == std::errc::resource_deadlock_would_occur);
    CHECK(fake::count("rdma_disconnect") == 0);
    CHECK(c.client.channel() == rdma::event_channel_ref(c.client_channel));
    CHECK(is_idle(c.server_channel));
    CHECK(next(c.client_channel, type::addr_change).status() == 2);
    held.ack();
    rdma::disconnect(c.client, 10s);
    CHECK(c.client.disconnected());
}

TEST_CASE("disconnect: the channel object may be gone") {
    world w;
    connection c = connect_pair();
    c.client_channel = rdma::event_channel(rdma::no_init);
    rdma::disconnect(c.client, 10s);
    CHECK(c.client.disconnected());
    expect(c.server_channel, type::disconnected);
}

TEST_CASE("disconnect: each C function fails once") {
    struct fault {
        char const* function;
        unsigned nth;
        bool away; ///< The id stays on a channel of its own.
    };
    for (fault const& each :
         {fault{"rdma_create_event_channel", 1, false}, fault{"rdma_migrate_id", 1, false},
          fault{"rdma_migrate_id", 2, true}, fault{"rdma_disconnect", 1, false}, fault{"rdma_get_cm_event", 1, false}})
        for (bool throws : {false, true}) {
            world w;
            INFO(each.function << ' ' << each.nth << (throws ? ", throws" : ""));
            connection c = connect_pair();
            fake::fail(each.function, each.nth, EMFILE);
            std::error_code ec;
            if (throws)
                ec = thrown([&] { rdma::disconnect(c.client, 10s); }, "rdma_disconnect");
            else
                rdma::disconnect(c.client, 10s, ec);
            CHECK(ec == system_code(EMFILE));
            CHECK(c.client);
            CHECK((c.client.channel() != rdma::event_channel_ref(c.client_channel)) == each.away);
            CHECK(fake::live().channels == (each.away ? 3U : 2U));
            rdma::disconnect(c.client, 10s, ec); // what is left of it
            CHECK_FALSE(ec);
            CHECK(c.client.disconnected());
        }
}

TEST_CASE("disconnect: the device goes meanwhile") {
    world w;
    rdma::event_channel channel;
    std::optional<rdma::accepting> answered;
    rdma::cm_id client;
    {
        server peer(rxe_host, [&](rdma::request request) { answered = request.start_accept(); });
        client = rdma::connect(channel, at(rxe_host));
    }
    fake::set_manual(true);
    fake::on_return("rdma_disconnect", [] { fake::remove_device("rxe0"); });
    std::error_code ec;
    rdma::disconnect(client, 10s, ec);
    CHECK(ec != std::errc::timed_out); // it is over; the kernel may not know the id any more
}

TEST_CASE("disconnect: on one thread, while another iterates the channel") {
    world w;
    both::watchdog const watch;
    connection c = connect_pair(siw_host);
    rdma::cm_id const bystander = make_id(c.client_channel);
    std::atomic<int> changes{0}, others{0};
    std::jthread const iterating([&](std::stop_token stop) {
        std::error_code ec;
        for (rdma::cm_event event : c.client_channel.events(stop, ec))
            ++(event.type() == type::addr_change ? changes : others);
    });
    for (int i = 0; i != 100; ++i)
        fake::push(bystander.native_handle(), {RDMA_CM_EVENT_ADDR_CHANGE});
    rdma::disconnect(c.client, 10s);
    for (int i = 0; i != 100; ++i)
        fake::push(bystander.native_handle(), {RDMA_CM_EVENT_ADDR_CHANGE});
    while (changes != 200)
        std::this_thread::yield();
    CHECK(others == 0); // the DISCONNECTED was not for it
}
