// SPDX-License-Identifier: MIT
// A worker for each core: one thread accepts, and hands undecided ids to workers with loops and channels of their own.
// These cases say most under ThreadSanitizer.
#include "async.hpp"
#include "both/support.hpp"
#include "sanitizer.hpp"

#include <array>
#include <atomic>
#include <mutex>
#include <thread>

using namespace unit;

namespace {

/// A thread with a loop and a channel, that accepts what it is given.
class worker {
public:
    explicit worker(std::stop_token stop) : stop_(std::move(stop)), thread_([this] { run(); }) {}
    worker(worker const&) = delete;
    worker& operator=(worker const&) = delete;
    ~worker() {
        thread_.join();
        ::close(bell_);
    }

    /// On any thread.
    void give(rdma::cm_id undecided) {
        {
            std::lock_guard const lock(mutex_);
            given_.push_back(std::move(undecided));
        }
        ring();
    }
    void ring() const { static_cast<void>(::eventfd_write(bell_, 1)); }
    std::atomic<int> accepted{0}, ended{0};

private:
    void run() {
        rdma::epoll_loop loop;
        async::event_channel channel(loop);
        async::tasks sessions;
        std::error_code ec;
        struct all {
            worker& self;
            async::event_channel& channel;
            async::tasks& sessions;
            rdma::epoll_loop& loop;
        } mine{*this, channel, sessions, loop};
        async::registration const watched =
            loop.readable(bell_,
                          {[](void* object) {
                               auto& a = *static_cast<all*>(object);
                               a.self.take(a.channel, a.sessions);
                               if (a.self.stop_.stop_requested() && a.sessions.size() == 0)
                                   a.loop.stop();
                           },
                           &mine},
                          ec);
        loop.run();
        sessions.clear();
    }
    void take(async::event_channel& channel, async::tasks& sessions) {
        eventfd_t rung = 0;
        ::eventfd_read(bell_, &rung);
        std::vector<rdma::cm_id> mine;
        {
            std::lock_guard const lock(mutex_);
            mine.swap(given_);
        }
        for (rdma::cm_id& each : mine)
            sessions.spawn(session(channel, std::move(each)));
    }
    task<> session(async::event_channel& channel, rdma::cm_id undecided) {
        std::error_code ec;
        rdma::accept_options const how{.limit = 30s, .stop = stop_};
        async::cm_id id = co_await async::accept(channel, std::move(undecided), how, ec);
        if (!ec)
            ++accepted;
        while (!ec && !id.is_over())
            static_cast<void>(co_await id.next(stop_, ec));
        ++ended;
        ring(); // it may be the last
    }

    std::stop_token stop_;
    int bell_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    std::mutex mutex_;
    std::vector<rdma::cm_id> given_;
    std::thread thread_;
};

task<> listen(async::acceptor const& acceptor, std::vector<std::unique_ptr<worker>>& workers, async::limits within) {
    for (std::size_t i = 0;; ++i) {
        std::error_code ec;
        async::request asked = co_await acceptor.next(within, ec);
        if (ec)
            co_return;
        workers[i % workers.size()]->give(asked.take_id());
    }
}

task<> client(async::event_channel const& channel, int& connected, int& ended) {
    std::error_code ec;
    rdma::connect_options const how{.limit = 30s};
    async::cm_id id = co_await async::connect(channel, rdma::address(rxe_host, 7471), how, ec);
    connected += !ec;
    if (!ec)
        co_await id.disconnect(30s, ec);
    ++ended;
}

task<> stay(async::event_channel const& channel, async::cm_id& id) {
    rdma::connect_options const how{.limit = 30s};
    id = co_await async::connect(channel, rdma::address(rxe_host, 7471), how);
}

} // namespace

TEST_CASE("threads: an acceptor gives its requests to workers on threads of their own", "[async]") {
    world w;
    both::watchdog const watch(60s);
    int const count = under_tsan ? 100 : 200;
    std::stop_source stop;
    int connected = 0, ended = 0;
    {
        std::vector<std::unique_ptr<worker>> workers;
        for (int i = 0; i != 3; ++i)
            workers.push_back(std::make_unique<worker>(stop.get_token()));
        std::atomic<bool> listens{false}, heard{false};
        std::thread accepting([&] {
            rdma::epoll_loop loop;
            async::event_channel channel(loop);
            async::acceptor const acceptor(channel, rdma::address(rxe_host, 7471), {.backlog = 1024});
            task<> listening = listen(acceptor, workers, stop.get_token());
            listening.start();
            listens = true;
            loop.run(); // until it is stopped, and nothing waits
            heard = listening.done();
        });
        while (!listens)
            std::this_thread::yield();
        auto const sum = [&](std::atomic<int> worker::*of) {
            int all = 0;
            for (auto const& each : workers)
                all += (*each).*of;
            return all;
        };
        {
            rdma::epoll_loop loop;
            async::event_channel channel(loop);
            async::tasks all;
            for (int i = 0; i != count; ++i)
                all.spawn(client(channel, connected, ended));
            std::array<async::cm_id, 3> kept;
            for (async::cm_id& each : kept)
                all.spawn(stay(channel, each));
            loop.run();
            while (sum(&worker::ended) != count || sum(&worker::accepted) != count + 3)
                std::this_thread::yield();
            stop.request_stop();
            accepting.join();
            CHECK(heard);
            for (auto const& each : workers)
                each->ring();
            while (sum(&worker::ended) != count + 3) // those that stayed were stopped
                std::this_thread::yield();
        }
    }
    CHECK(ended == count);
    CHECK(connected == count);
}
