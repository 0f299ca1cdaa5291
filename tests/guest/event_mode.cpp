// SPDX-License-Identifier: MIT
// Waiting for completions by their events, with two threads, one for each end: a wake-up that is lost between a poll
// and an arming never comes back here, since each message waits for the one before it.
#include "guest/support.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <mutex>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

#include <sched.h>

namespace {

using namespace guest;
using clock = std::chrono::steady_clock;

/// One end: its QP, whose completions of either kind come to one CQ or to two of one channel, and its messages.
class end {
public:
    end(cm_id made, bool two_queues)
        : id(std::move(made)), domain_(id.verbs()), channel_(id.verbs()), sends_(id.verbs(), depth, channel_),
          receives_(two_queues ? rdma::cq(id.verbs(), depth, channel_) : rdma::cq()),
          memory_(domain_, depth * size, rdma::for_recv()) {
        queues_ = {sends_, receives_ ? rdma::cq_ref(receives_) : rdma::cq_ref(sends_)};
        rdma::qp_cap const cap{.max_send_wr = depth, .max_recv_wr = depth};
        id.create_qp(domain_, {.send_cq = queues_[0], .recv_cq = queues_[1], .cap = cap});
        for (std::uint64_t i = 1; i != depth; ++i) // the first piece is what is sent
            receive(i);
    }
    end(end const&) = delete;
    end& operator=(end const&) = delete;

    cm_id id;

    void send(std::uint64_t number) {
        std::memcpy(memory_.data(), &number, sizeof number);
        id.qp().post_send(rdma::send_wr::send(memory_.sge(0, size)).id(0).signaled());
    }

    /// Waits for the next message by the library's wait.
    std::uint64_t take() {
        rdma::cq_set set{std::span(queues_).first(receives_ ? 2 : 1)};
        for (std::array<rdma::work_completion, 4> some; came_ == taken_;) {
            auto const began = clock::now();
            auto const completions =
                receives_ ? set.wait_for(some, patience).completions : sends_.wait_for(some, patience);
            longest_ = std::max(longest_, clock::now() - began);
            if (completions.empty())
                throw std::runtime_error("a wake-up was lost");
            for (rdma::work_completion const& wc : completions)
                look_at(wc);
        }
        return next();
    }

    /// The same by a loop of the program's own: poll, arm, poll again, and only then wait for an event.
    std::uint64_t take_by_events() {
        for (bool armed = false; came_ == taken_;) {
            rdma::work_completion one;
            if (!sends_.poll({&one, 1}).empty()) {
                look_at(one);
            } else if (!armed) {
                sends_.req_notify();
                armed = true;
            } else {
                auto const began = clock::now();
                std::optional<rdma::cq_event> const event = channel_.get_for(patience);
                longest_ = std::max(longest_, clock::now() - began);
                if (!event)
                    throw std::runtime_error("a wake-up was lost");
                armed = false;
            }
        }
        return next();
    }

    clock::duration longest_wait() const { return longest_; }

private:
    static constexpr std::uint32_t depth = 16;
    static constexpr std::size_t size = 64;

    void receive(std::uint64_t i) { id.qp().post_recv(rdma::recv_wr(memory_.sge(i * size, size)).id(i)); }

    void look_at(rdma::work_completion const& wc) {
        if (!wc)
            throw std::runtime_error("a request failed: " + to_string(wc.status()));
        if (wc.success().opcode() != rdma::wc_opcode::recv)
            return;
        std::memcpy(&number_, memory_.data() + wc.wr_id() * size, sizeof number_);
        ++came_;
        receive(wc.wr_id());
    }
    std::uint64_t next() {
        ++taken_;
        return number_;
    }

    rdma::pd domain_;
    rdma::comp_channel channel_;
    rdma::cq sends_, receives_;
    std::array<rdma::cq_ref, 2> queues_;
    rdma::registered_buffer memory_;
    std::uint64_t came_ = 0, taken_ = 0, number_ = 0;
    clock::duration longest_{};
};

/// Keeps this thread, and those that it starts, on one processor while it lives: a wake-up on another one takes an
/// emulated machine twenty times as long.
class one_processor {
public:
    one_processor() {
        ::sched_getaffinity(0, sizeof before_, &before_);
        cpu_set_t one;
        CPU_ZERO(&one);
        for (std::size_t cpu = 0; CPU_COUNT(&one) == 0 && cpu != std::size_t{CPU_SETSIZE}; ++cpu)
            if (CPU_ISSET(cpu, &before_))
                CPU_SET(cpu, &one);
        ::sched_setaffinity(0, sizeof one, &one);
    }
    one_processor(one_processor const&) = delete;
    one_processor& operator=(one_processor const&) = delete;
    ~one_processor() { ::sched_setaffinity(0, sizeof before_, &before_); }

private:
    cpu_set_t before_;
};

enum class how { wait, wait_for_two, own_loop };

/// @param messages how many there and back, together
void ping_pong(device const& on, how waiting, std::uint64_t messages) {
    bool const two_queues = waiting == how::wait_for_two;
    rdma::event_channel server_channel, client_channel;
    cm_id const listener = listen_on(server_channel, on.at(0));
    end client(resolve(client_channel, listener.local_addr()), two_queues);
    client.id.connect();
    end server(expect(server_channel, cm_event_type::connect_request).take_id(), two_queues);
    server.id.accept();
    expect(client_channel, cm_event_type::established).ack();
    expect(server_channel, cm_event_type::established).ack();

    auto const take = [&](end& from) { return waiting == how::own_loop ? from.take_by_events() : from.take(); };
    std::exception_ptr failure; // the first one: the other end only waits in vain
    std::mutex mutex;
    auto const guarded = [&](auto run) {
        try {
            run();
        } catch (...) {
            std::lock_guard const lock(mutex);
            if (!failure)
                failure = std::current_exception();
        }
    };
    auto const began = clock::now();
    std::uint64_t wrong = 0;
    std::thread answering([&] {
        guarded([&] {
            for (std::uint64_t i = 0; i != messages / 2; ++i)
                server.send(take(server) + 1);
        });
    });
    guarded([&] {
        for (std::uint64_t i = 0; i != messages / 2; ++i) {
            client.send(2 * i);
            wrong += take(client) != 2 * i + 1;
        }
    });
    answering.join();
    if (failure)
        std::rethrow_exception(failure);
    CHECK(wrong == 0);
    using ms = std::chrono::duration<double, std::milli>;
    std::fprintf(stderr, "%s: %llu messages in %.0f ms, longest wait %.0f ms\n", on.name.c_str(),
                 static_cast<unsigned long long>(messages), ms(clock::now() - began).count(),
                 ms(std::max(client.longest_wait(), server.longest_wait())).count());
}

/// Few on all processors, since that is slow, and many on one.
template <how waiting>
void few_and_many(device const& on) {
    ping_pong(on, waiting, 100);
    one_processor const here;
    ping_pong(on, waiting, on.iwarp ? 1000 : 2000);
}
GUEST_CASE("A9 event mode: ping-pong, one CQ", few_and_many<how::wait>)
GUEST_CASE("A9 event mode: ping-pong, two CQs of a channel", few_and_many<how::wait_for_two>)
GUEST_CASE("A9 event mode: ping-pong, a loop of the program's own", few_and_many<how::own_loop>)

void very_many(device const& on) {
    one_processor const here;
    ping_pong(on, how::wait, 100'000);
}
TEST_CASE("A9 event mode: ping-pong of 100 000 messages, rxe", "[.long][rxe]") {
    on_device("rxe", very_many, std::chrono::minutes(10));
}
TEST_CASE("A9 event mode: ping-pong of 100 000 messages, siw", "[.long][siw]") {
    on_device("siw", very_many, std::chrono::minutes(10));
}

// ---- Only what is solicited -----------------------------------------------------------------------------------------

/// Armed for it, a CQ tells of a message that was sent so, and not of the others, which are there all the same.
void solicited_only(device const& on) {
    pair ends(on);
    std::array<std::byte, 64> from{}, into{};
    rdma::mr const source = ends.client.reg_msgs(from), sink = ends.child.reg_msgs(into);
    for (std::uint64_t const i : {1U, 2U})
        ends.child.qp().post_recv(rdma::recv_wr(sink.sge()).id(i));
    rdma::cq_ref const receives = ends.child.recv_cq();
    rdma::comp_channel_ref const channel = ends.child.recv_cq_channel();
    receives.req_notify(true);

    rdma::work_completion got;
    auto const message_comes = [&](rdma::send_wr const& request) {
        ends.client.qp().post_send(request);
        for (auto const until = clock::now() + patience; receives.poll({&got, 1}).empty() && clock::now() < until;)
            std::this_thread::yield();
        return got.wr_id();
    };
    rdma::send_wr message = rdma::send_wr::send(source.sge()).signaled();
    CHECK(message_comes(message) == 1);
    CHECK_FALSE(channel.try_get());
    CHECK(message_comes(message.solicited()) == 2);
    std::optional<rdma::cq_event> const event = channel.get_for(on.iwarp ? std::chrono::milliseconds(20) : patience);
    if (on.iwarp && !event)
        RDMACPP_SKIP("soft-iWARP raises no event where only solicited messages are waited for");
    REQUIRE(event);
    CHECK(event->native_handle() == receives.native_handle());
}
GUEST_CASE("event mode: a message that is solicited", solicited_only)

} // namespace
