// SPDX-License-Identifier: MIT
//
// Faults on demand, the log, and threads.
#include "support.hpp"

#include <atomic>
#include <csignal>
#include <thread>

#include <pthread.h>

using namespace selftest;

TEST_CASE("a fault puts its code where the convention wants it, and a decoy in the other place")
{
    clean_world world;
    auto* const channel = rdma_create_event_channel();
    auto* const id = make_client(channel, v4("10.77.1.1", 7));
    give_qp(id);
    ibv_wc wc{};

    fake::fail("rdma_listen", 1, EPERM); // -1 and errno
    CHECK((rdma_listen(id, 1) == -1 && errno == EPERM));
    fake::fail("ibv_alloc_pd", 1, EPERM); // null and errno
    CHECK((ibv_alloc_pd(id->verbs) == nullptr && errno == EPERM));
    fake::fail("ibv_req_notify_cq", 1, EPERM); // returned
    CHECK((ibv_req_notify_cq(id->send_cq, 0) == EPERM && errno == fake::decoy));
    fake::fail("ibv_poll_cq", 1, -2); // negative, and no errno
    CHECK((ibv_poll_cq(id->send_cq, 1, &wc) == -2 && errno == fake::decoy));
    fake::fail("rdma_getaddrinfo", 1, -2); // an EAI code
    rdma_addrinfo* info = nullptr;
    CHECK(rdma_getaddrinfo("10.77.1.1", "1", nullptr, &info) == -2);
    CHECK(fake::failed().function == "rdma_getaddrinfo");

    fake::fail("ibv_destroy_qp", 1, EIO); // a failing destroy frees nothing
    CHECK(ibv_destroy_qp(id->qp) == EIO);
    CHECK(fake::live().qps == 1);
    fake::fail("rdma_destroy_id", 1, EIO);
    CHECK((rdma_destroy_id(id) == -1 && errno == EIO));
    CHECK(fake::live().ids == 1);
    drop(id);
    rdma_destroy_event_channel(channel);
}

TEST_CASE("the nth call, of one function or of any")
{
    clean_world world;
    fake::fail("rdma_create_event_channel", 2, EMFILE);
    auto* const channel = rdma_create_event_channel();
    CHECK(channel != nullptr);
    CHECK(fake::failed().function.empty());
    CHECK((rdma_create_event_channel() == nullptr && errno == EMFILE));
    CHECK(fake::failed().function == "rdma_create_event_channel");
    CHECK(fake::failed().code == EMFILE);

    fake::fail_any(3);
    auto* const id = make_id(channel);                // 1
    CHECK(rdma_get_src_port(id) == 0);                // cannot fail
    auto at = v4("10.77.1.1");
    CHECK(rdma_bind_addr(id, &at.raw) == 0);          // 2
    CHECK(ibv_alloc_pd(id->verbs) == nullptr);        // 3
    CHECK(fake::failed().function == "ibv_alloc_pd");
    CHECK(fake::failed().code == ENOMEM);
    drop(id);
    rdma_destroy_event_channel(channel);
    fake::fail("rdma_create_event_channel", 1, EMFILE);
    fake::disarm();
    rdma_destroy_event_channel(rdma_create_event_channel());
}

TEST_CASE("the log knows what the program called, and nothing of what the fake called itself")
{
    clean_world world;
    auto* const channel = rdma_create_event_channel();
    auto* const id = make_client(channel, v4("10.77.1.1", 7));
    fake::clear_calls();
    give_qp(id);
    CHECK(fake::count("rdma_create_qp") == 1);
    CHECK(fake::count("rdma_create_qp", id) == 1);
    CHECK(fake::count("rdma_create_qp", channel) == 0);
    CHECK(fake::count("ibv_create_cq") == 0);
    ibv_wc wc{};
    CHECK(poll_one(id->send_cq, wc) == 0);
    auto const calls = fake::calls();
    REQUIRE(calls.size() == 2);
    CHECK((calls[0].function == "rdma_create_qp" && calls[0].object == id));
    CHECK((calls[1].function == "ibv_poll_cq" && calls[1].object == id->send_cq));
    for (int i = 0; i < 100'100; ++i) poll_one(id->send_cq, wc);
    CHECK(fake::count("ibv_poll_cq") == 100'101);
    CHECK(fake::calls().size() == 100'000);
    drop(id);
    rdma_destroy_event_channel(channel);
}

TEST_CASE("no one is inside between two calls")
{
    clean_world world;
    CHECK_FALSE(fake::inside());
    rdma_destroy_event_channel(rdma_create_event_channel());
    CHECK_FALSE(fake::inside());
}

TEST_CASE("an ack of another thread lets a waiting destroy go on")
{
    clean_world world;
    auto* const channel = rdma_create_event_channel();
    auto* const id = make_id(channel);
    fake::push(id, {RDMA_CM_EVENT_ADDR_CHANGE});
    rdma_cm_event* held = nullptr;
    std::atomic<bool> got{false};
    std::thread acker{[&] {
        rdma_get_cm_event(channel, &held);
        got = true;
        std::this_thread::sleep_for(std::chrono::milliseconds{30});
        rdma_ack_cm_event(held);
    }};
    while (!got) std::this_thread::yield();
    CHECK(rdma_destroy_id(id) == 0);
    acker.join();
    rdma_destroy_event_channel(channel);
}

TEST_CASE("several threads get from one channel, each event goes to one of them")
{
    clean_world world;
    auto* const channel = rdma_create_event_channel();
    auto* const id = make_id(channel);
    std::atomic<int> seen{0};
    auto const work = [&] {
        for (;;) {
            rdma_cm_event* got = nullptr;
            if (rdma_get_cm_event(channel, &got) != 0) continue;
            bool const last = got->status == 1;
            rdma_ack_cm_event(got);
            if (last) return;
            ++seen;
        }
    };
    std::thread a{work}, b{work};
    for (int i = 0; i < 200; ++i) fake::push(id, {RDMA_CM_EVENT_ADDR_CHANGE});
    for (int i = 0; i < 2; ++i) fake::push(id, {RDMA_CM_EVENT_ADDR_CHANGE, 1});
    a.join();
    b.join();
    CHECK(seen == 200);
    drop(id);
    rdma_destroy_event_channel(channel);
}

TEST_CASE("a signal interrupts a waiting get")
{
    clean_world world;
    struct sigaction quiet{}, before{};
    quiet.sa_handler = [](int) {};
    sigaction(SIGUSR1, &quiet, &before);
    auto* const channel = rdma_create_event_channel();
    std::atomic<bool> done{false};
    int code = 0;
    std::thread waiter{[&] {
        rdma_cm_event* got = nullptr;
        if (rdma_get_cm_event(channel, &got) == -1) code = errno;
        done = true;
    }};
    while (!done) {
        pthread_kill(waiter.native_handle(), SIGUSR1);
        std::this_thread::sleep_for(std::chrono::milliseconds{1});
    }
    waiter.join();
    CHECK(code == EINTR);
    sigaction(SIGUSR1, &before, nullptr);
    rdma_destroy_event_channel(channel);
}

TEST_CASE("ten thousand connections")
{
    clean_world world;
    fake::set_timewait(false);
    auto* const channel = rdma_create_event_channel();
    auto* const listener = make_listener(channel, v4("10.77.1.1", 7471));
    for (int i = 0; i < 10'000; ++i) {
        rdma_cm_id* client = nullptr;
        rdma_cm_id* server = nullptr;
        auto to = v4("10.77.1.1", 7471);
        bool ok = rdma_create_id(channel, &client, nullptr, RDMA_PS_TCP) == 0 && rdma_resolve_addr(client, nullptr, &to.raw, 1) == 0;
        for (int turn = 0; ok && turn < 5; ++turn) {
            rdma_cm_event* got = nullptr;
            ok = rdma_get_cm_event(channel, &got) == 0;
            auto param = usual_param();
            switch (got->event) {
            case RDMA_CM_EVENT_ADDR_RESOLVED: ok = rdma_resolve_route(client, 1) == 0; break;
            case RDMA_CM_EVENT_ROUTE_RESOLVED: ok = rdma_connect(client, &param) == 0; break;
            case RDMA_CM_EVENT_CONNECT_REQUEST: server = got->id; ok = rdma_accept(server, &param) == 0; break;
            case RDMA_CM_EVENT_CONNECT_RESPONSE: ok = rdma_establish(client) == 0; break;
            default: break;
            }
            rdma_ack_cm_event(got);
        }
        ok = ok && rdma_destroy_id(client) == 0 && rdma_destroy_id(server) == 0;
        if (!ok) {
            FAIL("connection " << i);
        }
    }
    CHECK(fake::count("rdma_accept") == 10'000);
    drop(listener);
    rdma_destroy_event_channel(channel);
}

TEST_CASE("a hook lets a call linger: done, and not yet returned")
{
    clean_world world;
    fake::set_reuse_addresses(true);
    auto* const channel = rdma_create_event_channel();
    auto* const old = make_id(channel);
    auto* const bystander = make_id(channel);
    rdma_cm_id* fresh = nullptr;
    int hooked = 0;
    fake::on_return("rdma_destroy_id", [&] {
        ++hooked;
        CHECK(!fake::inside());
        CHECK(fake::live().ids == 1);
        fresh = make_id(channel); // the fake is free, and the memory is handed out again
        errno = EPERM;
    });
    errno = 0;
    CHECK(rdma_destroy_id(old) == 0);
    CHECK(errno == EUCLEAN); // of the call, not of the hook
    CHECK(hooked == 1);
    CHECK(fresh == old);
    drop(fresh);
    drop(bystander);
    CHECK(hooked == 1); // once
    rdma_destroy_event_channel(channel);
}

TEST_CASE("hooks serve one call each, in order, and may ask for one object")
{
    clean_world world;
    auto* const channel = rdma_create_event_channel();
    auto* const first = make_id(channel);
    auto* const second = make_id(channel);
    std::string said;
    fake::on_return("rdma_listen", second, [&] { said += "second "; });
    fake::on_return("rdma_listen", [&] { said += "any "; });
    fake::on_return("rdma_listen", [&] {
        said += "again ";
        fake::on_return("rdma_listen", [&] { said += "set by a hook "; });
    });
    fake::fail("rdma_listen", 1, EPERM);
    CHECK((rdma_listen(first, 1) == -1 && errno == EPERM)); // failing calls linger, too
    CHECK(said == "any ");
    CHECK(rdma_listen(second, 1) == 0);
    CHECK(said == "any second ");
    CHECK(rdma_listen(first, 1) == 0);
    CHECK(rdma_listen(first, 1) == -1);
    CHECK(said == "any second again set by a hook ");

    fake::on_return("rdma_get_src_port", [&] { said = "too late"; });
    fake::clear_on_return();
    rdma_get_src_port(first);
    CHECK(said == "any second again set by a hook ");
    for (auto* id : {first, second}) drop(id);
    rdma_destroy_event_channel(channel);
    fake::on_return("rdma_create_event_channel", [&] { said = "too late"; });
    fake::reset();
    rdma_destroy_event_channel(rdma_create_event_channel());
    CHECK(said == "any second again set by a hook ");
}

TEST_CASE("while one thread's call lingers, another's is served")
{
    clean_world world;
    auto* const channel = rdma_create_event_channel();
    auto* const first = make_id(channel);
    auto* const second = make_id(channel);
    std::atomic<bool> lingering{false}, served{false};
    fake::on_return("rdma_destroy_id", first, [&] {
        lingering = true;
        while (!served) std::this_thread::yield();
    });
    std::thread slow{[&] { rdma_destroy_id(first); }};
    while (!lingering) std::this_thread::yield();
    CHECK(rdma_destroy_id(second) == 0);
    served = true;
    slow.join();
    rdma_destroy_event_channel(channel);
}
