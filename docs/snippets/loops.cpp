// SPDX-License-Identifier: MIT
// The snippets of docs/loops.md.
#include "snippets.hpp"

#include <rdmacpp/dispatcher.hpp>
#include <rdmacpp/epoll.hpp>

#include <algorithm>
#include <list>
#include <new>

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

namespace {
namespace loops_page {

namespace async = rdma::async;

// ---- callbacks: a dispatcher

//! [handlers]
class session;
using sessions = std::unordered_map<rdma::cm_id_ref, session>;

// One connection, and what is done with its events.
class session final : public rdma::id_handler {
public:
    session(rdma::dispatcher& by, rdma::cm_id taken, sessions& all) : id_handler(by, std::move(taken)), all_(all) {
        id().create_qp({});
        id().accept();
    }

private:
    void on_event(rdma::cm_event& event) override {
        if (event.type() == rdma::cm_event_type::disconnected)
            all_.erase(event.id()); // this session, in its own handler
    }

    sessions& all_;
};

// The listening id: its events are requests.
class listener final : public rdma::id_handler {
public:
    listener(rdma::dispatcher& by, rdma::cm_id id, sessions& all) : id_handler(by, std::move(id)), by_(by), all_(all) {}

private:
    void on_event(rdma::cm_event& event) override {
        if (event.type() != rdma::cm_event_type::connect_request)
            return;
        rdma::cm_id id = event.take_id(); // not taken: rejected with the event
        rdma::cm_id_ref const key = id;
        all_.try_emplace(key, by_, std::move(id), all_);
    }

    rdma::dispatcher& by_;
    sessions& all_;
};
//! [handlers]

void with_handlers() {
    rdma::dispatcher dispatcher;
    sessions all;
    rdma::cm_id listening(dispatcher.channel(), rdma::port_space::tcp);
    listening.bind(an_address);
    listening.listen();
    listener const server(dispatcher, std::move(listening), all);
    rdma::event_channel channel;
    auto connecting = std::async(std::launch::async, [&] { return rdma::connect(channel, an_address); });
    rdma::cm_id client;
    bool was_there = false;
    auto const done = [&] {
        if (connecting.valid() && connecting.wait_for(0s) == std::future_status::ready)
            client = connecting.get();
        if (client && !std::exchange(was_there, true))
            client.disconnect();
        return was_there && all.empty();
    };
    //! [dispatch]
    pollfd watched{dispatcher.fd(), POLLIN, 0};
    while (!done())
        if (poll(&watched, 1, 100) > 0)
            dispatcher.dispatch(); // calls on_event for each event that is there; never waits
    //! [dispatch]
    SNIPPET_CHECK(dispatcher.stats().handled >= 3 && dispatcher.stats().unowned == 0);
}

// ---- an adapter

//! [adapter]
// An event loop on poll(2), with what rdma::async needs of one.
class my_loop {
public:
    // Calls back each time the descriptor is readable.
    async::registration readable(int fd, async::callback call, std::error_code& ec) noexcept {
        return ask({fd, never, call}, ec);
    }
    // Calls back once, after so long.
    async::registration after(rdma::timeout span, async::callback call, std::error_code& ec) noexcept {
        bool const at_all = span.milliseconds() < rdma::timeout::forever;
        return ask({-1, at_all ? clock::now() + std::chrono::milliseconds(span.milliseconds()) : never, call}, ec);
    }

    // Runs until nothing is asked for any more.
    void run() {
        while (run_once())
            ;
    }

private:
    using clock = std::chrono::steady_clock;
    static constexpr clock::time_point never = clock::time_point::max();

    struct entry {
        int fd;               // or -1, and a time
        clock::time_point at; // never, when it has come
        async::callback call;
        bool dropped = false; // the next turn takes it out
    };

    async::registration ask(entry what, std::error_code& ec) noexcept {
        ec.clear();
        try {
            entries_.push_back(what);
            return {&entries_.back(), [](void* object) noexcept { static_cast<entry*>(object)->dropped = true; }};
        } catch (std::bad_alloc const&) {
            ec = std::make_error_code(std::errc::not_enough_memory);
            return {};
        }
    }

    bool run_once() {
        entries_.remove_if([](entry const& each) { return each.dropped; });
        std::vector<pollfd> watched;
        clock::time_point first = never;
        for (entry const& each : entries_) {
            if (each.fd >= 0)
                watched.push_back({each.fd, POLLIN, 0});
            first = std::min(first, each.at);
        }
        if (watched.empty() && first == never)
            return false;
        auto const left = std::chrono::ceil<std::chrono::milliseconds>(first - clock::now()).count();
        int const wait = first == never ? -1 : static_cast<int>(std::clamp<decltype(left)>(left, 0, 1000));
        ::poll(watched.data(), watched.size(), wait);

        auto const now = clock::now();
        auto polled = watched.cbegin(); // what is asked for meanwhile stands behind these
        for (entry& each : entries_) {
            bool const due = each.at <= now;
            bool const ready = each.fd >= 0 && polled != watched.cend() && polled++->revents != 0;
            if ((!due && !ready) || each.dropped)
                continue;
            each.at = never;
            each.call(); // it may ask for more, and drop anything: also this
        }
        return true;
    }

    std::list<entry> entries_;
};

static_assert(async::event_loop<my_loop>);
//! [adapter]

// ---- a server and its client, to be run on any loop

async::task<> serve_one(async::event_channel& channel) {
    async::acceptor const acceptor(channel, an_address);
    async::request request = co_await acceptor.next(10s);
    async::cm_id const id = co_await async::accept(channel, request.take_id());
    while (!id.is_over())
        (void)co_await id.next(10s);
}

async::task<> visit(async::event_channel& channel, int& visits) {
    async::cm_id const id = co_await async::connect(channel, an_address);
    co_await id.disconnect();
    ++visits;
}

void with_an_adapter() {
    int visits = 0;
    //! [use]
    my_loop loop;
    async::event_channel channel(loop);
    async::tasks running;
    running.spawn(serve_one(channel));
    running.spawn(visit(channel, visits));
    loop.run();
    //! [use]
    SNIPPET_CHECK(visits == 1 && running.size() == 0);
}

void its_timers() {
    my_loop loop;
    async::event_channel channel(loop);
    async::cm_id const id(channel, rdma::port_space::tcp);
    auto const late = [](async::cm_id const& of, std::error_code& why) -> async::task<> {
        (void)co_await of.next(5ms, why);
    };
    std::error_code ec, cancelled;
    async::task<> waits = late(id, ec), dropped = late(id, cancelled);
    waits.start();
    dropped.start();
    dropped = {};
    loop.run();
    SNIPPET_CHECK(waits.done() && ec == std::errc::timed_out && !cancelled);
    int calls = 0;
    async::callback const count{[](void* number) { ++*static_cast<int*>(number); }, &calls};
    async::registration const once = loop.after(1ms, count, ec), never_again = loop.after(rdma::no_limit, count, ec);
    loop.run(); // ends, although both are kept
    SNIPPET_CHECK(calls == 1);
}

// ---- epoll

void on_epoll() {
    int visits = 0;
    //! [epoll]
    rdma::epoll_loop loop; // #include <rdmacpp/epoll.hpp>
    async::event_channel channel(loop);
    async::tasks running;
    running.spawn(serve_one(channel));
    running.spawn(visit(channel, visits));
    loop.run(); // until nobody waits any more
    //! [epoll]
    SNIPPET_CHECK(visits == 1 && running.size() == 0);
}

struct program {
    int fd;
    rdma::epoll_loop& loop;
    int commands = 0;

    void read_command() {
        eventfd_t got = 0;
        if (eventfd_read(fd, &got) == 0)
            ++commands;
        loop.stop();
    }
};

void what_else_the_program_watches() {
    rdma::epoll_loop loop;
    program mine{eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK), loop};
    //! [watch]
    std::error_code ec;
    async::registration watching =
        loop.readable(mine.fd, {[](void* self) { static_cast<program*>(self)->read_command(); }, &mine}, ec);
    loop.run();    // also as long as this is watched, or until loop.stop()
    watching = {}; // before the descriptor is closed
    //! [watch]
    ::close(mine.fd);
    SNIPPET_CHECK(!ec && mine.commands == 1);
}

// ---- a thread that never sleeps

void never_asleep() {
    int visits = 0, turns = 0;
    auto const do_the_rest = [&] { ++turns; };
    //! [polling]
    async::poll_loop loop; // no descriptor, no timer, no system call to wait in
    async::event_channel channel(loop);
    async::tasks running;
    running.spawn(serve_one(channel));
    running.spawn(visit(channel, visits));
    while (running.size() != 0) {
        loop.poll(); // what is ready, and returns
        do_the_rest();
    }
    //! [polling]
    SNIPPET_CHECK(visits == 1 && turns > 0);
}

} // namespace loops_page
} // namespace

void loops() {
    loops_page::with_handlers();
    loops_page::with_an_adapter();
    loops_page::its_timers();
    loops_page::on_epoll();
    loops_page::what_else_the_program_watches();
    loops_page::never_asleep();
}
