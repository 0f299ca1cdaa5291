// SPDX-License-Identifier: MIT
// What the data path costs in memory: no allocation, whatever is posted, polled, armed or waited for.
#include "allocations.hpp"
#include "loopback.hpp"

#include <array>
#include <span>
#include <stop_token>

using namespace unit;

namespace {

/// How many allocations `work` makes, and whether it did something at all.
template <class Work>
void check_none(char const* what, Work&& work) {
    std::size_t made = 0;
    bool done = false;
    {
        allocation_watch const watch;
        done = work();
        made = watch.made();
    }
    INFO(what);
    CHECK(done);
    CHECK(made == 0);
}

struct path : loopback {
    std::array<rdma::work_completion, 16> into;

    void push(rdma::cq_ref cq) {
        ibv_wc wc{};
        fake::push_completion(cq.native_handle(), wc);
    }
    bool polled(std::size_t many) { return sends.poll(into).size() == many; }
};

} // namespace

TEST_CASE_METHOD(path, "cost: none for a post, of one request or a chain", "[cost]") {
    RDMACPP_NEED_ALLOCATIONS();
    rdma::srq const shared(pd, {.max_wr = 8});
    std::size_t refused = 0;
    check_none("one", [&] {
        left.post_send(rdma::send_wr::write(ours.sge(), theirs.remote()).id(1).signaled());
        return polled(1);
    });
    check_none("one, the twin", [&] {
        return left.post_send(rdma::send_wr::write(ours.sge(), theirs.remote()), std::nothrow) == std::errc{};
    });
    check_none("a chain", [&] {
        std::array chain{rdma::send_wr::write(ours.sge(), theirs.remote()).signaled(),
                         rdma::send_wr::write(ours.sge(), theirs.remote()).signaled()};
        left.post_send(chain);
        return polled(2) && left.post_send(std::span(chain), refused, std::nothrow) == std::errc{} && polled(2);
    });
    check_none("receives", [&] {
        std::array chain{rdma::recv_wr(ours.sge()), rdma::recv_wr(ours.sge())};
        right.post_recv(rdma::recv_wr(theirs.sge()));
        right.post_recv(chain);
        shared.post_recv(rdma::recv_wr(theirs.sge()));
        shared.post_recv(chain);
        return right.post_recv(std::span(chain), refused, std::nothrow) == std::errc{};
    });
    check_none("a refused one, the twin", [&] {
        rdma::send_wr wrong = rdma::send_wr::send(ours.sge());
        wrong.native_handle().num_sge = 99;
        std::array chain{rdma::send_wr::write(ours.sge(), theirs.remote()), wrong};
        return left.post_send(wrong, std::nothrow) != std::errc{} &&
               left.post_send(std::span(chain), refused, std::nothrow) != std::errc{} && refused == 1;
    });
    check_none("a batch", [&] {
        left.ex().post([&](rdma::wr_batch& batch) {
            batch.request(1, IBV_SEND_SIGNALED).write(theirs.remote()).sge(ours.sge());
            batch.request(2, IBV_SEND_SIGNALED).write(theirs.remote()).sge(ours.sge());
        });
        { auto const aborted = left.ex().start(); }
        return polled(2);
    });
}

TEST_CASE_METHOD(path, "cost: none to poll, to arm, or to wait", "[cost]") {
    RDMACPP_NEED_ALLOCATIONS();
    rdma::cq_ex const ex(device, {.cqe = 64, .channel = bell});
    std::array const both{rdma::cq_ref(sends), rdma::cq_ref(receives)};
    rdma::cq_set set(both);
    std::stop_source source;
    std::error_code ec;
    (void)sends.wait_for(into, 0ms); // the first wait of a channel makes what the others use
    for (int i = 0; i != 3; ++i)
        push(sends);
    check_none("poll", [&] { return polled(3) && sends.poll(into, std::nothrow) == 0; });
    check_none("arm", [&] {
        sends.req_notify();
        return sends.req_notify(true, std::nothrow) == std::errc{};
    });
    push(sends);
    check_none("wait, and find one", [&] { return sends.wait(into).size() == 1; });
    check_none("wait in vain", [&] {
        return sends.wait_for(into, 1ms).empty() && sends.wait_for(into, 1ms, ec).empty() &&
               set.wait_for(into, 1ms).completions.empty();
    });
    push(sends); // rings: it was armed
    check_none("wait, and find an event as well",
               [&] { return sends.wait(into, source.get_token()).size() == 1 && sends.wait_for(into, 1ms).empty(); });
    push(receives);
    check_none("wait for several", [&] { return set.wait(into).cq == rdma::cq_ref(receives); });
    push(sends);
    check_none("wait for one", [&] { return sends.wait_one(1s).has_value(); });
    for (int i = 0; i != 3; ++i)
        push(ex);
    check_none("poll an extended one", [&] {
        std::size_t n = 0;
        for (auto& each : ex.start_poll())
            n += each.success().byte_len() == 0;
        return n == 3;
    });
}

TEST_CASE_METHOD(path, "cost: none for an event, got and acked", "[cost]") {
    RDMACPP_NEED_ALLOCATIONS();
    rdma::async_channel const trouble = device.async_channel();
    (void)bell.get_for(0ms);
    (void)trouble.get_for(0ms);
    for (int i = 0; i != 100; ++i) { // more than a batch of acks
        fake::push_cq_event(sends.native_handle());
        fake::push_async(sends.native_handle(), IBV_EVENT_CQ_ERR);
    }
    check_none("of a CQ", [&] {
        std::size_t n = 0;
        bell.get().ack();
        n += bell.try_get().has_value();
        n += bell.get_for(1s).has_value();
        for (rdma::cq_event event : bell.pending())
            ++n;
        return n == 99;
    });
    check_none("of a device", [&] {
        std::size_t n = 0;
        trouble.get().ack();
        n += trouble.try_get().has_value();
        n += trouble.get_for(1s).has_value();
        for (rdma::async_event event : trouble.pending())
            ++n;
        return n == 99;
    });
    check_none("a wait in vain", [&] { return !bell.get_for(1ms) && !trouble.get_for(1ms); });
}
