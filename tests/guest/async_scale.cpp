// SPDX-License-Identifier: MIT
// A thousand connections at once on one channel and one thread, with awaitables, while a tenth of them is rejected, a
// tenth cancelled, and a tenth dropped by the server at some moment.
#include "guest/support.hpp"

#include <rdmacpp/epoll.hpp>

#include <cstdio>
#include <cstdlib>
#include <random>
#include <stop_token>
#include <vector>

namespace {

using namespace guest;
using namespace std::chrono_literals;
namespace async = rdma::async;

/// What became of each attempt: exactly one of these.
struct outcomes {
    int connected = 0, refused = 0, canceled = 0, reset = 0, other = 0;
    int sum() const { return connected + refused + canceled + reset + other; }
};

class crowd {
public:
    crowd(device const& on, int size, unsigned seed)
        : size_(size), random_(seed), acceptor_(channel_, on.at(0)), queue_(acceptor_.id()->verbs(), 64),
          stops_(std::size_t(size)) {}

    void run() {
        running_.spawn(serve());
        for (int i = 0; i != size_; ++i)
            running_.spawn(connect(i));
        loop_.run();
    }

    outcomes clients;
    int requests = 0, rejected = 0, accepted = 0, dropped = 0, not_accepted = 0;
    rdma::channel_stats stats() const { return channel_.stats(); }
    std::size_t unfinished() const { return running_.size(); }

private:
    bool one_in_ten() { return std::uniform_int_distribution(0, 9)(random_) == 0; }

    rdma::qp_init_attr qp() const {
        return {.send_cq = queue_, .recv_cq = queue_, .cap = {.max_send_wr = 1, .max_recv_wr = 1}};
    }

    async::task<> connect(int number) {
        std::size_t const me = std::size_t(number);
        if (one_in_ten()) // when so many have their outcome
            cancel_at_.emplace_back(std::uniform_int_distribution(0, size_ / 2)(random_), me);
        std::error_code ec;
        rdma::connect_options options{.limit = 300s, .stop = stops_[me].get_token(), .qp = qp()};
        async::cm_id const id = co_await async::connect(channel_, acceptor_.local_addr(), options, ec);
        note(ec);
        if (ec)
            co_return;
        (void)co_await id.next(end_.get_token(), ec); // what the server, or the end, makes of it
    }

    /// Everyone comes here once.
    void note(std::error_code ec) {
        if (!ec)
            ++clients.connected;
        else if (ec == std::errc::operation_canceled)
            ++clients.canceled;
        else if (ec == std::errc::connection_reset || ec == rdma::errc::unspecified)
            ++clients.reset; // dropped by the server between its accept and our ESTABLISHED
        else if (ec == rdma::condition::refused)
            ++clients.refused;
        else {
            std::fprintf(stderr, "# %s\n", ec.message().c_str());
            ++clients.other;
        }
        for (auto& [when, who] : cancel_at_)
            if (when == clients.sum())
                stops_[who].request_stop();
        if (clients.sum() == size_)
            end_.request_stop();
    }

    async::task<> serve() {
        std::error_code ec;
        for (;;) {
            async::request request = co_await acceptor_.next(end_.get_token(), ec);
            if (ec)
                co_return;
            ++requests;
            if (one_in_ten()) {
                ++rejected;
                request.reject(ec); // may have been called off meanwhile
            } else
                running_.spawn(session(request.take_id()));
        }
    }

    async::task<> session(rdma::cm_id undecided) {
        bool const drops = one_in_ten();
        auto const moment = std::chrono::microseconds(std::uniform_int_distribution(0, 20'000)(random_));
        std::error_code ec;
        rdma::accept_options options{.limit = 300s, .qp = qp()};
        if (drops)
            options.limit = moment; // also before ESTABLISHED
        async::cm_id const id = co_await async::accept(channel_, std::move(undecided), options, ec);
        ++(ec ? not_accepted : accepted);
        if (!ec && drops)
            (void)co_await id.next(moment, ec);
        else if (!ec)
            (void)co_await id.next(end_.get_token(), ec);
        dropped += drops ? 1 : 0;
    }

    int size_;
    std::mt19937 random_;
    rdma::epoll_loop loop_;
    async::event_channel channel_{loop_};
    async::acceptor acceptor_;
    rdma::cq queue_; // of all QPs
    std::vector<std::stop_source> stops_;
    std::stop_source end_;
    std::vector<std::pair<int, std::size_t>> cancel_at_;
    async::tasks running_;
};

void thousand(device const& on) {
    if (on.iwarp)
        return; // one channel, and so one device, is enough: siw's limits are another matter
    char const* const given = std::getenv("RDMACPP_SEED");
    unsigned const seed = given ? unsigned(std::strtoul(given, nullptr, 10)) : 20261130;
    INFO("RDMACPP_SEED=" << seed);
    crowd all(on, 1000, seed);
    all.run();
    CHECK(all.unfinished() == 0);
    CHECK(all.clients.sum() == 1000);
    CHECK(all.clients.other == 0);
    CHECK(all.clients.connected > 500);
    CHECK(all.clients.refused > 20);
    CHECK(all.clients.canceled > 10);
    CHECK(all.requests == all.rejected + all.accepted + all.not_accepted);
    CHECK(all.stats().events_got == all.stats().events_acked);
    CHECK(all.stats().events_held == 0);
    CHECK(all.stats().ids_live == 1); // the listener
    CHECK(all.stats().ids_awaiting_ack == 0);
    std::printf(
        "# seed %u: %d connected, %d refused, %d canceled, %d reset; %d requests, %d rejected, %d accepted, %d not, "
        "%d dropped\n",
        seed, all.clients.connected, all.clients.refused, all.clients.canceled, all.clients.reset, all.requests,
        all.rejected, all.accepted, all.not_accepted, all.dropped);
}
GUEST_CASE("a thousand awaited connections on one channel", thousand, std::chrono::seconds(300))

} // namespace
