// SPDX-License-Identifier: MIT
// Operations that begin before they are awaited.
#include "support.hpp"

#include <rdmacpp/epoll.hpp>

#include <array>

namespace {

using namespace unit;
namespace async = rdma::async;
using async::task;

struct world_on_loop : world {
    rdma::epoll_loop loop;
    async::event_channel channel{loop};
    connection ends = connect_pair();
    std::array<std::byte, 64> bytes{};
    rdma::mr region{ends.client.pd(), bytes, rdma::access::local_write};
    async::cq receives{loop, ends.client.recv_cq()};
    async::cm_id client{channel, std::move(ends.client)};

    void send() const {
        static std::array<std::byte, 64> out{};
        rdma::mr const from(ends.server.pd(), out, rdma::access::none);
        ends.server.qp().post_send(rdma::send_wr::send(from.sge()).signaled());
    }
};

enum class when { before, between, after };

task<> receive(world_on_loop& all, when arrives, bool& got) {
    auto message = all.receives.post_recv(all.client, rdma::recv_wr(all.region.sge()).id(7));
    if (arrives != when::before)
        message.begin();
    if (arrives == when::between)
        all.send();
    rdma::work_completion const done = co_await message;
    got = done && done.wr_id() == 7;
}

TEST_CASE("a receive that begins before it is awaited", "[async]") {
    world_on_loop all;
    bool got = false;
    SECTION("and is over by then") {
        task<> work = receive(all, when::between, got);
        work.start();
        all.loop.run();
        CHECK(got);
    }
    SECTION("and is not") {
        task<> work = receive(all, when::after, got);
        work.start();
        all.send();
        all.loop.run();
        CHECK(got);
    }
    SECTION("and one that begins when it is awaited") {
        task<> work = receive(all, when::before, got);
        work.start();
        all.send();
        all.loop.run();
        CHECK(got);
    }
    SECTION("and is dropped: its completion finds nobody") {
        {
            auto dropped = all.receives.post_recv(all.client, rdma::recv_wr(all.region.sge()));
            dropped.begin();
        }
        task<> work = receive(all, when::after, got);
        work.start();
        all.send();
        CHECK_FALSE(got);
        all.send();
        all.loop.run();
        CHECK(got);
    }
}

template <class Awaitable>
task<> wait_for(Awaitable& what) {
    (void)co_await what;
}

TEST_CASE("what begins fails when its object goes before it is awaited", "[async]") {
    world_on_loop all;
    std::error_code first, second;
    auto message = all.receives.post_recv(all.client, rdma::recv_wr(all.region.sge()), first);
    auto event = all.client.next(second);
    message.begin();
    event.begin();
    all.client = async::cm_id();
    all.channel = async::event_channel();
    task<> one = wait_for(message), other = wait_for(event);
    one.start();
    other.start();
    CHECK(one.done());
    CHECK(other.done());
    CHECK(first == rdma::errc::empty_handle);
    CHECK(second == rdma::errc::empty_handle);
}

TEST_CASE("a request that is refused has C's reason, in C's category", "[async]") {
    world_on_loop all;
    std::error_code ec;
    auto const post = [](async::cq const& queue, rdma::qp_ref qp, rdma::mr const& from,
                         std::error_code& why) -> task<> {
        (void)co_await queue.post_send(qp, rdma::send_wr::send(from.sge()), why);
    };
    fake::fail("ibv_post_send", 1, ENOMEM);
    task<> refused = post(all.receives, all.client->qp(), all.region, ec);
    refused.start();
    CHECK(refused.done());
    CHECK(ec == std::error_code(ENOMEM, std::system_category()));
    task<> without = post(all.receives, rdma::qp_ref(), all.region, ec);
    without.start();
    CHECK(without.done());
    CHECK(ec == rdma::errc::empty_handle);
}

} // namespace
