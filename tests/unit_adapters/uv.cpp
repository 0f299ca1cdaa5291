// SPDX-License-Identifier: MIT
// The awaitables on libuv, on the fake.
#include "support.hpp"

#include <rdmacpp/uv.hpp>

#include <array>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>

#include <unistd.h>

using namespace unit;
namespace async = rdma::async;

namespace {

/// A loop with a channel on it. At its end libuv must know of nothing any more.
struct setting {
    struct native_loop : ::uv_loop_t {
        native_loop() { REQUIRE(::uv_loop_init(this) == 0); }
        native_loop(native_loop const&) = delete;
        native_loop& operator=(native_loop const&) = delete;
        ~native_loop() {
            CHECK(::uv_run(this, UV_RUN_DEFAULT) == 0); // closes what was dropped
            CHECK(::uv_loop_close(this) == 0);
        }
    };

    world w;
    native_loop native;
    rdma::uv_loop loop{native};
    async::event_channel channel{loop};

    /// Until nothing is active: what hangs here is found by the runner.
    void run() { CHECK(::uv_run(&native, UV_RUN_DEFAULT) == 0); }
    void turn() { ::uv_run(&native, UV_RUN_NOWAIT); }
};

rdma::address at(char const* host) { return rdma::address(host, 7471); }

/// One end of a connection, with memory, and its CQs watched.
struct end {
    async::cm_id id;
    async::cq sends, receives;
    std::array<std::byte, 64> memory{};
    rdma::mr region;

    auto prepare() {
        return [this](rdma::cm_id& made, std::error_code& ec) {
            region = made.reg_msgs(memory, ec);
            if (!ec)
                ec = std::make_error_code(made.post_recv(nullptr, memory, region, std::nothrow));
        };
    }
    void connected(setting& s, async::cm_id made) {
        id = std::move(made);
        sends = async::cq(s.loop, id->send_cq());
        receives = async::cq(s.loop, id->recv_cq());
    }
};

async::task<> echo(setting& s, rdma::cm_id undecided, int& served) {
    end mine;
    auto const prepare = mine.prepare();
    mine.connected(s, co_await async::accept(s.channel, std::move(undecided), {}, prepare));
    rdma::work_completion const got = co_await mine.receives.next();
    CHECK(got);
    rdma::send_wr const answer = rdma::send_wr::send(mine.region.sge());
    rdma::work_completion const sent = co_await mine.sends.post_send(mine.id, answer);
    CHECK(sent);
    rdma::cm_event const over = co_await mine.id.next();
    CHECK(over.type() == type::disconnected);
    ++served;
}

async::task<> serve(setting& s, async::tasks& running, int sessions, int& served) {
    async::acceptor acceptor(s.channel, rdma::address::any_v6(7471));
    for (; sessions != 0; --sessions) {
        async::request request = co_await acceptor.next();
        running.spawn(echo(s, request.take_id(), served));
    }
}

async::task<> talk(setting& s, char const* host, std::byte what) {
    end mine;
    auto const prepare = mine.prepare();
    rdma::connect_options const options;
    mine.connected(s, co_await async::connect(s.channel, at(host), options, prepare));
    mine.memory.fill(what);
    rdma::send_wr const message = rdma::send_wr::send(mine.region.sge());
    rdma::work_completion const sent = co_await mine.sends.post_send(mine.id, message);
    CHECK(sent);
    rdma::work_completion const got = co_await mine.receives.next();
    CHECK(got);
    CHECK(mine.memory[63] == what);
    co_await mine.id.disconnect();
}

async::task<> connect(setting& s, char const* host, rdma::connect_options options, std::error_code& ec) {
    async::cm_id const id = co_await async::connect(s.channel, at(host), options, ec);
    CHECK(static_cast<bool>(id) == !ec);
}

struct ringing {
    int times = 0;
    std::function<void()> act = nullptr;

    async::callback call() {
        return {[](void* self) {
                    auto& mine = *static_cast<ringing*>(self);
                    ++mine.times;
                    if (mine.act)
                        mine.act();
                },
                this};
    }
};

struct pipe_ends {
    int ends[2] = {-1, -1};

    pipe_ends() { REQUIRE(::pipe(ends) == 0); }
    pipe_ends(pipe_ends const&) = delete;
    pipe_ends& operator=(pipe_ends const&) = delete;
    ~pipe_ends() {
        for (int const fd : ends)
            if (fd >= 0)
                CHECK(::close(fd) == 0); // nobody else has closed it
    }
};

} // namespace

TEST_CASE("uv: a server and its clients") {
    setting s;
    int served = 0;
    async::tasks running;
    running.spawn(serve(s, running, 6, served));
    for (int i = 0; i != 6; ++i)
        running.spawn(talk(s, i % 2 == 0 ? rxe_host : siw_host, std::byte{'a'}));
    s.run();
    CHECK(served == 6);
    CHECK(running.size() == 0);
}

TEST_CASE("uv: connect to a host that does not answer is late, or stopped, and leaves nothing") {
    setting s;
    fake::set_silent(rxe_client_host);
    std::error_code late, stopped;
    std::stop_source stop;
    async::task<> first = connect(s, rxe_client_host, {.limit = 30ms}, late);
    async::task<> second = connect(s, rxe_client_host, {.limit = 1h, .stop = stop.get_token()}, stopped);
    first.start();
    second.start();
    ringing stopper{.act = [&] { stop.request_stop(); }};
    std::error_code ec;
    async::registration const soon = s.loop.after(1ms, stopper.call(), ec);
    auto const begun = std::chrono::steady_clock::now();
    s.run();
    CHECK(std::chrono::steady_clock::now() - begun >= 30ms);
    CHECK(late == std::errc::timed_out);
    CHECK(stopped == std::errc::operation_canceled);
    CHECK(fake::live().ids == 0);
}

TEST_CASE("uv: coroutines that wait are dropped, and uv_run ends") {
    setting s;
    fake::set_silent(rxe_client_host);
    int served = 0;
    std::error_code unseen = std::make_error_code(std::errc::bad_message);
    {
        async::tasks running;
        running.spawn(serve(s, running, 2, served));                       // waits for a request
        running.spawn(talk(s, rxe_host, std::byte{'x'}));                  // is done
        running.spawn(connect(s, rxe_client_host, {.limit = 1h}, unseen)); // waits for an answer
        for (int i = 0; i != 100 && served == 0; ++i)
            s.turn();
        CHECK(served == 1);
        CHECK(running.size() == 2);
    }
    s.run();
    CHECK(unseen == std::errc::bad_message);
}

TEST_CASE("uv: the loop calls back as long as a descriptor is readable, until that is dropped") {
    pipe_ends bell;
    setting s;
    std::error_code ec = std::make_error_code(std::errc::bad_message);
    ringing rung;
    async::registration watched = s.loop.readable(bell.ends[0], rung.call(), ec);
    REQUIRE(watched);
    CHECK_FALSE(ec);
    s.turn();
    CHECK(rung.times == 0);
    CHECK_FALSE(s.loop.readable(bell.ends[0], rung.call(), ec));
    CHECK(ec == std::errc::file_exists);
    CHECK_FALSE(s.loop.readable(-1, rung.call(), ec));
    CHECK(ec == std::errc::bad_file_descriptor);
    CHECK(::write(bell.ends[1], "!", 1) == 1);
    for (int i = 1; i != 4; ++i) {
        s.turn(); // not read: again
        CHECK(rung.times == i);
    }
    CHECK(watched.rest(true));
    s.run(); // ends
    CHECK(rung.times == 3);
    CHECK(watched.rest(false));
    CHECK(::uv_run(&s.native, UV_RUN_NOWAIT) != 0);
    CHECK(rung.times == 4);
    rung.act = [&] { watched = {}; };
    s.run();
    CHECK(rung.times == 5);

    // The write end of a pipe that nobody reads is broken: libuv ceases to look then, and is asked to go on.
    CHECK(::close(std::exchange(bell.ends[0], -1)) == 0);
    rung.act = nullptr;
    watched = s.loop.readable(bell.ends[1], rung.call(), ec);
    REQUIRE(watched);
    for (int i = 6; i != 9; ++i) {
        s.turn();
        CHECK(rung.times == i);
    }
    rung.act = [&] { watched = {}; };
    s.run();
    CHECK(rung.times == 9);
}

TEST_CASE("uv: the loop calls back after a time, or soon, unless that is dropped") {
    setting s;
    std::error_code ec;
    std::string order;
    ringing soon{.act = [&] { order += '0'; }}, late{.act = [&] { order += '2'; }}, never{.act = [&] { order += 'n'; }};
    async::registration second;
    ringing first{.act = [&] {
        order += '1';
        second = {}; // in its own turn
    }};
    auto const begun = std::chrono::steady_clock::now();
    async::registration const later = s.loop.after(20ms, late.call(), ec);
    second = s.loop.after(1ms, first.call(), ec);
    async::registration const now = s.loop.after(0ms, soon.call(), ec);
    async::registration dropped = s.loop.after(0ms, never.call(), ec),
                        dropped_too = s.loop.after(1ms, never.call(), ec),
                        for_ever = s.loop.after(rdma::no_limit, never.call(), ec);
    REQUIRE(for_ever);
    dropped = {};
    dropped_too = {};
    for_ever = {};
    CHECK(order.empty()); // not within the call
    s.run();
    CHECK(order == "012");
    CHECK(std::chrono::steady_clock::now() - begun >= 20ms);
}

TEST_CASE("uv: what is asked for soon, again and again, leaves descriptors their turn") {
    pipe_ends bell;
    setting s;
    std::error_code ec;
    ringing rung, again;
    async::registration watched = s.loop.readable(bell.ends[0], rung.call(), ec), next;
    rung.act = [&] { watched = {}; };
    again.act = [&] {
        if (rung.times == 0 && again.times < 1000)
            next = s.loop.after(0ms, again.call(), ec);
    };
    next = s.loop.after(0ms, again.call(), ec);
    CHECK(::write(bell.ends[1], "!", 1) == 1);
    s.run();
    CHECK(rung.times == 1);
    CHECK(again.times < 10);
}
