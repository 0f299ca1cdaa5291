// SPDX-License-Identifier: MIT
// The snippets of docs/coroutines.md.
#include "snippets.hpp"

#include <rdmacpp/epoll.hpp>

#include <coroutine>
#include <exception>

namespace {
namespace coroutines_page {

namespace async = rdma::async;

// ---- a server and its client

//! [server]
async::task<> session(async::event_channel& channel, rdma::cm_id undecided) {
    try {
        async::cm_id const id(channel, std::move(undecided));
        id->create_qp({});
        rdma::registered_buffer const memory(id->pd(), 64, rdma::for_recv() | rdma::for_send());
        async::cq const received(channel.loop(), id->recv_cq()), sent(channel.loop(), id->send_cq());
        id->qp().post_recv(rdma::recv_wr(memory.sge())); // before accepting: the client may send at once
        co_await id.accept({}, 2s);

        rdma::work_completion const came = co_await received.next(5s);
        if (came)
            co_await sent.post_send(id, rdma::send_wr::send(memory.sge(0, came.success().byte_len())), 5s);
        while (!id.is_over())
            (void)co_await id.next();   // until DISCONNECTED
    } catch (std::exception const& e) { // one bad client never stops the server
        std::fprintf(stderr, "session: %s\n", e.what());
    }
}

async::task<> serve(async::event_channel& channel, std::stop_token stop) {
    async::tasks sessions; // those that are left go with this coroutine
    async::acceptor const acceptor(channel, rdma::address::any_v6(7471));
    for (;;) {
        std::error_code ec;
        async::request request = co_await acceptor.next(stop, ec);
        if (ec) // stopped, or the device is gone
            break;
        sessions.spawn(session(channel, request.take_id()));
    }
}
//! [server]

std::size_t answered = 0;

//! [client]
async::task<> say_hello(async::event_channel& channel, rdma::address server) {
    async::cm_id const id = co_await async::resolve(channel, server, {.limit = 2s}); // with a QP, not connected yet
    rdma::registered_buffer const out(id->pd(), 64, rdma::for_send()), in(id->pd(), 64, rdma::for_recv());
    async::cq const received(channel.loop(), id->recv_cq()), sent(channel.loop(), id->send_cq());
    id->qp().post_recv(rdma::recv_wr(in.sge()));
    co_await id.connect({}, 2s);

    std::strcpy(reinterpret_cast<char*>(out.data()), "hello");
    co_await sent.post_send(id, rdma::send_wr::send(out.sge(0, 6)), 5s);
    rdma::work_completion const answer = co_await received.next(5s);
    if (answer)
        std::printf("%s, %u bytes\n", reinterpret_cast<char const*>(in.data()), answer.success().byte_len());
    co_await id.disconnect(2s);
}
//! [client]

async::task<> ask(async::event_channel& channel) {
    async::cm_id const id = co_await async::connect(channel, an_address);
    rdma::registered_buffer const out(id->pd(), 64, rdma::for_send()), in(id->pd(), 64, rdma::for_recv());
    async::cq const received(channel.loop(), id->recv_cq()), sent(channel.loop(), id->send_cq());
    //! [begin]
    auto answer = received.post_recv(id, rdma::recv_wr(in.sge()), 5s);
    answer.begin(); // posted now, before the question is
    co_await sent.post_send(id, rdma::send_wr::send(out.sge()), 5s);
    rdma::work_completion const came = co_await answer;
    //! [begin]
    SNIPPET_CHECK(came && came.success().byte_len() == 64);
    co_await id.disconnect(2s);
    ++answered;
}

async::task<> three_times(async::event_channel& channel, std::stop_source& stop) {
    for (int i = 0; i != 3; ++i)
        co_await say_hello(channel, an_address);
    co_await ask(channel);
    stop.request_stop();
}

void both() {
    std::stop_source stop;
    //! [run]
    rdma::epoll_loop loop; // or any other: see Event loops
    async::event_channel channel(loop);
    async::tasks running;
    running.spawn(serve(channel, stop.get_token()));
    running.spawn(three_times(channel, stop)); // awaits say_hello() thrice, and requests stop
    loop.run();
    //! [run]
    SNIPPET_CHECK(answered == 1 && running.size() == 0);
}

/// Runs one coroutine with a channel, and a loop of its own, to its end.
template <class F>
void run(F&& make) {
    rdma::epoll_loop loop;
    async::event_channel channel(loop);
    async::task<> one = make(channel);
    one.start();
    loop.run();
    SNIPPET_CHECK(one.done());
    one.get();
}

// ---- limits and stop tokens

async::task<> one_limit(async::event_channel& channel, rdma::address server, std::stop_token stop) {
    async::cm_id const id(channel, rdma::port_space::tcp);
    //! [limits]
    async::limits const within(500ms, stop); // the time begins here
    co_await id.resolve_addr(server, within);
    co_await id.resolve_route(within);
    id->create_qp({});
    co_await id.connect({}, within); // all of it together: half a second
    //! [limits]
}

void limited() {
    fake::set_silent("10.77.1.99");
    rdma::epoll_loop loop;
    async::event_channel channel(loop);
    std::stop_source stop;
    async::task<> late = one_limit(channel, rdma::address("10.77.1.99", 7471), stop.get_token());
    late.start();
    stop.request_stop();
    loop.run();
    bool threw = false;
    try {
        late.get();
    } catch (rdma::connect_error const& e) {
        threw = e.code() == std::errc::operation_canceled;
    }
    SNIPPET_CHECK(threw);
}

// ---- errors

async::task<> fails(async::event_channel& channel) {
    rdma::address const nobody("10.77.1.1", 7999);
    //! [errors]
    try {
        async::cm_id const id = co_await async::connect(channel, nobody, {.limit = 500ms});
    } catch (rdma::connect_error const& e) { // names the step
        std::printf("%s: %s\n", to_string(e.step()).c_str(), e.what());
    }

    std::error_code ec; // must outlive the wait: here, in the coroutine
    async::cm_id const id = co_await async::connect(channel, nobody, {.limit = 500ms}, ec);
    if (ec)
        std::puts(ec.message().c_str()); // and id is empty
    //! [errors]
    SNIPPET_CHECK(ec && !id);
}

// ---- the end of a coroutine that waits

void cancelled() {
    rdma::epoll_loop loop;
    async::event_channel channel(loop);
    async::acceptor const acceptor(channel, an_address);
    auto const wait = [](async::acceptor const& of) -> async::task<> { (void)co_await of.next(); };
    //! [cancel]
    async::task<> waiting = wait(acceptor);
    waiting.start(); // runs until it waits
    waiting = {};    // destroyed there: its locals go, and nothing is called any more
    //! [cancel]
    loop.run(); // nobody waits
}

async::task<> posted(async::event_channel& channel) {
    async::acceptor const acceptor(channel, an_address);
    async::task<> meeting = [](async::acceptor const& at, async::event_channel& on) -> async::task<> {
        async::request request = co_await at.next();
        async::cm_id const server = co_await async::accept(on, request.take_id());
        while (!server.is_over())
            (void)co_await server.next();
    }(acceptor, channel);
    meeting.start();
    async::cm_id const id = co_await async::connect(channel, an_address);
    async::cq const received(channel.loop(), id->recv_cq());
    //! [posted]
    rdma::registered_buffer memory(id->pd(), 64, rdma::for_recv());
    std::error_code ec;
    (void)co_await received.post_recv(id, rdma::recv_wr(memory.sge()), 10ms, ec);
    if (ec == std::errc::timed_out) // nothing came; but the receive is posted still, and the memory the device's,
        memory = {};                // until its region goes, or the QP
    //! [posted]
    SNIPPET_CHECK(ec == std::errc::timed_out);
    co_await id.disconnect(2s);
}

// ---- coroutine types

//! [value]
async::task<std::size_t> receive(async::cq const& received) {
    rdma::work_completion const came = co_await received.next(5s);
    if (!came)
        throw std::runtime_error(to_string(came.status()));
    co_return came.success().byte_len();
}
//! [value]

//! [own]
// A coroutine that begins at once, and that nobody holds: for programs that have no type of their own.
struct detached {
    struct promise_type {
        detached get_return_object() noexcept { return {}; }
        std::suspend_never initial_suspend() noexcept { return {}; }
        std::suspend_never final_suspend() noexcept { return {}; }
        void return_void() noexcept {}
        void unhandled_exception() noexcept { std::terminate(); }
    };
};

detached greet(async::event_channel& channel, rdma::address server, bool& done) {
    std::error_code ec;
    async::cm_id const id = co_await async::connect(channel, server, {}, ec);
    if (!ec)
        co_await id.disconnect(ec);
    done = true;
}
//! [own]

void other_types() {
    rdma::epoll_loop loop;
    async::event_channel channel(loop);
    bool done = false;
    greet(channel, rdma::address("10.77.1.1", 7999), done);
    loop.run();
    SNIPPET_CHECK(done);
}

void one_value() {
    connected_pair pair;
    rdma::epoll_loop loop;
    async::cq const received(loop, pair.server.recv_cq());
    std::size_t length = 0;
    auto const whole = [](async::cq const& from, std::size_t& into) -> async::task<> { into = co_await receive(from); };
    async::task<> one = whole(received, length);
    one.start();
    rdma::registered_buffer const out(pair.client.pd(), 64, rdma::for_send());
    pair.client.qp().post_send(rdma::send_wr::send(out.sge(0, 17)).signaled());
    loop.run();
    one.get();
    SNIPPET_CHECK(length == 17);
}

// ---- what comes to all

async::task<> device_events(rdma::epoll_loop& loop, rdma::context_ref device) {
    //! [events]
    rdma::async_channel const channel = device.async_channel();
    async::events<rdma::async_channel> const events(loop, channel);
    rdma::async_event const event = co_await events.next(5s);
    std::puts(to_string(event).c_str());
    //! [events]
    SNIPPET_CHECK(event.kind() == rdma::async_event_kind::port);
}

void device_happens() {
    rdma::context const device(rdma::device_list::get().find("rxe0"));
    rdma::epoll_loop loop;
    async::task<> one = device_events(loop, device);
    one.start();
    fake::push_async(device.native_handle(), IBV_EVENT_PORT_ACTIVE);
    loop.run();
    SNIPPET_CHECK(one.done());
    one.get();
}

} // namespace coroutines_page
} // namespace

void coroutines() {
    coroutines_page::both();
    coroutines_page::limited();
    coroutines_page::run([](auto& channel) { return coroutines_page::fails(channel); });
    coroutines_page::cancelled();
    coroutines_page::run([](auto& channel) { return coroutines_page::posted(channel); });
    coroutines_page::other_types();
    coroutines_page::one_value();
    coroutines_page::device_happens();
}
