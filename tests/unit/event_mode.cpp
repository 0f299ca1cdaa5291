// SPDX-License-Identifier: MIT
// A long ping-pong in event mode, two threads on each side: no wake-up is lost, and nothing stalls.
#include "loopback.hpp"
#include "sanitizer.hpp"

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <stop_token>
#include <thread>

using namespace unit;

namespace {

/// One side: a thread that waits for completions, and one that answers what has come.
class side {
public:
    side(rdma::context_ref device, rdma::pd_ref pd)
        : bell_(device), cq_(device, 64, bell_), region_(pd, memory_, rdma::access::local_write),
          qp_(pd, rdma::qp_type::rc, {.send_cq = cq_, .recv_cq = cq_, .cap = {.max_send_wr = 32, .max_recv_wr = 32}}) {}
    side(side const&) = delete;
    side& operator=(side const&) = delete;

    rdma::qp_ref qp() const { return qp_; }
    std::uint64_t received() const { return received_; }
    std::uint64_t sent() const { return sent_; }
    bool failed() const { return failed_; }

    void post_receive() { qp_.post_recv(rdma::recv_wr(region_.sge()).id(receive_id)); }
    /// To be answered, or as a first message.
    void owe(std::uint64_t messages) {
        std::lock_guard const lock(mutex_);
        owed_ += messages;
        changed_.notify_one();
    }
    void start(std::stop_token const& stop) {
        waiter_ = std::jthread([this, stop] { wait(stop); });
        poster_ = std::jthread([this, stop] { answer(stop); });
    }
    void join() {
        waiter_.join();
        poster_.join();
    }

private:
    static constexpr std::uint64_t receive_id = 1, send_id = 2;

    void wait(std::stop_token const& stop) {
        std::array<rdma::work_completion, 4> batch; // fewer than there may be
        while (!stop.stop_requested()) {
            std::uint64_t got = 0;
            for (rdma::work_completion const& each : cq_.wait(batch, stop)) {
                if (!each)
                    failed_ = true;
                else if (each.wr_id() == receive_id)
                    ++got;
                else
                    ++sent_;
            }
            if (got != 0) {
                for (std::uint64_t i = 0; i != got; ++i)
                    post_receive();
                received_ += got;
                owe(got);
            }
        }
    }
    void answer(std::stop_token const& stop) {
        std::stop_callback const wake(stop, [this] {
            std::lock_guard const lock(mutex_);
            changed_.notify_one();
        });
        for (;;) {
            std::uint64_t now = 0;
            {
                std::unique_lock lock(mutex_);
                changed_.wait(lock, [&] { return owed_ != 0 || stop.stop_requested(); });
                if (stop.stop_requested())
                    return;
                now = std::exchange(owed_, 0);
            }
            for (; now != 0; --now)
                qp_.post_send(rdma::send_wr::send(region_.sge(0, 8)).id(send_id).signaled());
        }
    }

    rdma::comp_channel bell_;
    rdma::cq cq_;
    std::array<std::byte, 64> memory_{};
    rdma::mr region_;
    rdma::qp qp_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::uint64_t owed_ = 0;
    std::atomic<std::uint64_t> received_{0}, sent_{0};
    std::atomic<bool> failed_{false};
    std::jthread waiter_, poster_;
};

/// @param at_once messages on their way at any time
void check_ping_pong(std::uint64_t messages, std::uint64_t at_once) {
    featured w;
    rdma::context const device = open_device();
    rdma::pd const pd(device);
    side left(device, pd), right(device, pd);
    bring_up(left.qp(), right.qp().qp_num());
    bring_up(right.qp(), left.qp().qp_num());
    for (int i = 0; i != 16; ++i) {
        left.post_receive();
        right.post_receive();
    }
    std::stop_source stop;
    left.start(stop.get_token());
    right.start(stop.get_token());
    left.owe(at_once);
    // A stall is no progress at all for so long that no load explains it.
    std::uint64_t seen = 0;
    auto alive = std::chrono::steady_clock::now();
    bool stalled = false;
    while (seen < messages && !stalled && !left.failed() && !right.failed()) {
        std::this_thread::sleep_for(1ms); // only to look now and then
        std::uint64_t const now = left.received() + right.received();
        auto const at = std::chrono::steady_clock::now();
        if (now != seen)
            alive = at;
        seen = now;
        stalled = at - alive > 30s;
    }
    stop.request_stop();
    left.join();
    right.join();
    CHECK_FALSE(stalled);
    CHECK_FALSE(left.failed());
    CHECK_FALSE(right.failed());
    CHECK(seen >= messages);
    CHECK(left.sent() <= right.received() + at_once);
    CHECK(fake::count("ibv_get_cq_event") != 0); // it did wait
}

constexpr std::uint64_t many = under_tsan ? 100'000 : 10'000; // there it tells most

} // namespace

TEST_CASE("event mode: a ping-pong with two threads on each side", "[verbs][threads]") { check_ping_pong(many, 1); }

TEST_CASE("event mode: several messages at a time, with two threads on each side", "[verbs][threads]") {
    check_ping_pong(10'000, 3);
}

TEST_CASE("event mode: a ping-pong of 100 000 messages, with two threads on each side", "[.long]") {
    check_ping_pong(100'000, 1);
}
