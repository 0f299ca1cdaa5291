// SPDX-License-Identifier: MIT
// The snippets of docs/threads.md.
#include "snippets.hpp"

#include <rdmacpp/epoll.hpp>

#include <atomic>
#include <mutex>

#include <sys/eventfd.h>
#include <unistd.h>

namespace {

namespace async = rdma::async;

void several_getters() {
    rdma::event_channel channel;
    std::atomic<int> handled = 0;
    auto const handle = [&](rdma::cm_event const&) { ++handled; };
    rdma::cm_id first{channel, rdma::port_space::tcp}, second{channel, rdma::port_space::tcp};
    //! [getters]
    std::stop_source stop;
    auto const work = [&] {
        for (rdma::cm_event event : channel.events(stop.get_token()))
            handle(event); // each event goes to one of the threads
    };
    std::jthread one(work), two(work);
    //! [getters]
    first.resolve_addr(an_address);
    second.resolve_addr(an_address);
    while (handled != 2)
        std::this_thread::yield();
    //! [end]
    stop.request_stop(); // every wait ends, also of those who wait already
    //! [end]
}

void drop_anywhere() {
    rdma::event_channel channel;
    std::optional<rdma::cm_id> id(std::in_place, channel, rdma::port_space::tcp);
    id->resolve_addr(an_address);
    //! [drop]
    std::jthread getting([&] {
        rdma::cm_event event = channel.get(); // held by this thread...
        std::this_thread::yield();
    });
    id.reset(); // ...while this one drops the id: neither waits for the other
    //! [drop]
    rdma::cm_id other{channel, rdma::port_space::tcp};
    other.resolve_addr(an_address); // if the id went first, its event was swallowed
    getting.join();
    while (channel.try_get())
        ;
}

void a_channel_for_each() {
    connected_pair pair;
    rdma::cm_id& id = pair.server;
    //! [migrate]
    rdma::event_channel worker;
    id.migrate(worker); // its events arrive there from now on, those that are queued already, too
    //! [migrate]
    pair.client.disconnect();
    expect(worker, rdma::cm_event_type::disconnected);
}

std::atomic<int> sessions_ended = 0;

/// One connection, on the worker that it was given to.
async::task<> serve_on_worker(async::event_channel& channel, rdma::cm_id undecided) {
    std::error_code ec;
    async::cm_id const id = co_await async::accept(channel, std::move(undecided), {.limit = 2s}, ec); // moves it here
    while (!ec && !id.is_over())
        (void)co_await id.next(ec);
    ++sessions_ended;
}

//! [worker]
// A thread with a loop and a channel of its own, to which any thread may give connections.
class worker {
public:
    worker() {
        std::error_code ec;
        watching_ = loop_.readable(bell_, {[](void* self) { static_cast<worker*>(self)->take(); }, this}, ec);
        thread_ = std::jthread([this] { loop_.run(); }); // all of the below is its from here on
    }
    worker(worker const&) = delete;
    worker& operator=(worker const&) = delete;
    ~worker() {
        loop_.stop();
        thread_.join();
        watching_ = {};
        ::close(bell_);
    }

    // On any thread.
    void give(rdma::cm_id undecided) {
        std::lock_guard const lock(mutex_);
        inbox_.push_back(std::move(undecided));
        eventfd_write(bell_, 1);
    }

private:
    void take() {
        eventfd_t count = 0;
        eventfd_read(bell_, &count);
        std::vector<rdma::cm_id> given;
        {
            std::lock_guard const lock(mutex_);
            given.swap(inbox_);
        }
        for (rdma::cm_id& each : given)
            sessions_.spawn(serve_on_worker(channel_, std::move(each))); // awaits async::accept(channel_, ...)
    }

    std::mutex mutex_;
    std::vector<rdma::cm_id> inbox_;
    int bell_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    rdma::epoll_loop loop_;
    async::event_channel channel_{loop_};
    async::tasks sessions_;
    async::registration watching_;
    std::jthread thread_;
};
//! [worker]

//! [accepting]
async::task<> share_out(async::event_channel& channel, std::vector<worker>& workers, std::stop_token stop) {
    async::acceptor const acceptor(channel, rdma::address::any_v6(7471));
    for (std::size_t turn = 0;; ++turn) {
        std::error_code ec;
        async::request request = co_await acceptor.next(stop, ec);
        if (ec)
            break;
        workers[turn % workers.size()].give(request.take_id()); // undecided still
    }
}
//! [accepting]

void a_worker_for_each_core() {
    std::stop_source enough;
    auto serving = std::async(std::launch::async, [stop = enough.get_token()] {
        std::vector<worker> workers(2);
        rdma::epoll_loop loop;
        async::event_channel channel(loop);
        async::task<> accepting = share_out(channel, workers, stop);
        accepting.start();
        loop.run();
        accepting.get();
    });
    while (fake::count("rdma_listen") == 0)
        std::this_thread::yield();
    rdma::event_channel channel;
    for (int i = 0; i != 4; ++i) {
        rdma::cm_id client = rdma::connect(channel, an_address);
        rdma::disconnect(client, 2s);
    }
    while (sessions_ended != 4)
        std::this_thread::yield();
    enough.request_stop();
    serving.get();
}

} // namespace

void threads() {
    several_getters();
    drop_anywhere();
    a_channel_for_each();
    fake::clear_calls();
    a_worker_for_each_core();
}
