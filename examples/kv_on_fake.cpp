// SPDX-License-Identifier: MIT
// The key-value service and its clients in one process, against the fake librdmacm and libibverbs: what cannot be had
// at will on a device, such as an entry that is read while it is written.
#define main kv_main
#include "kv.cpp"
#undef main

#include <catch.hpp>
#include <fake/fake.hpp>

#include <functional>

using rdmacpp_test::contains;

namespace {

/// A server and one client on one loop. What is done with them is a coroutine.
struct service {
    service() { fake::reset(); }
    service(service const&) = delete;
    service& operator=(service const&) = delete;
    ~service() {
        CHECK(fake::leaks() == "");
        CHECK(fake::misuse() == std::vector<std::string>{});
        fake::reset();
    }

    void run(std::size_t entries, std::function<async::task<>(server&, client&)> const& use) {
        rdma::epoll_loop loop;
        stop_signals signals(loop);
        server served(loop, where, entries, signals);
        client store(loop);
        async::task<> serving = served.run();
        serving.start();
        async::task<> using_it = [](auto const& what, server& by, client& of, stop_signals& end) -> async::task<> {
            try {
                co_await of.connect(by_address());
                co_await what(by, of);
                co_await of.disconnect();
            } catch (...) {
                end.stop();
                throw;
            }
            end.stop();
        }(use, served, store, signals);
        using_it.start();
        loop.run();
        serving.get();
        using_it.get();
    }

    static rdma::address by_address() { return where; }
    static inline rdma::address const where{"10.77.1.1", 7472};
};

} // namespace

TEST_CASE("kv: what is put is got") {
    service().run(64, [](server&, client& store) -> async::task<> {
        auto const nothing = co_await store.get("a");
        CHECK_FALSE(nothing);
        for (std::uint64_t version : {1U, 2U, 3U}) {
            std::string const value(version * 100, 'x');
            std::uint64_t const put = co_await store.put("a", value);
            CHECK(put == version);
            auto const found = co_await store.get("a");
            REQUIRE(found);
            CHECK(found->value() == value);
            CHECK(found->version() == version);
        }
        CHECK(store.torn() == 0);
    });
}

TEST_CASE("kv: keys that meet in the table") {
    std::vector<std::string> keys; // all are looked for in the last entry first
    for (int i = 0; keys.size() != 5; ++i)
        if (std::string const key = std::to_string(i); place_of(key, 4) == 3)
            keys.push_back(key);
    std::string const missing = keys.back();
    keys.pop_back();
    service().run(4, [&](server&, client& store) -> async::task<> {
        for (std::string const& key : keys) {
            std::uint64_t const version = co_await store.put(key, "the value of " + key);
            CHECK(version == 1);
        }
        for (std::string const& key : keys) {
            auto const found = co_await store.get(key);
            REQUIRE(found);
            CHECK(found->value() == "the value of " + key);
        }
        auto const nothing = co_await store.get(missing); // looked for everywhere
        CHECK_FALSE(nothing);
    });
}

TEST_CASE("kv: a table that is full") {
    CHECK_THROWS_WITH(service().run(1,
                                    [](server&, client& store) -> async::task<> {
                                        co_await store.put("a", "1");
                                        co_await store.put("b", "2");
                                    }),
                      contains("full"));
}

TEST_CASE("kv: an entry that is a mixture of two is never whole") {
    entry const before("key", std::string(300, 'b'), 1), after("key", std::string(500, 'a'), 2);
    auto const* const old_bytes = reinterpret_cast<std::byte const*>(&before);
    auto const* const new_bytes = reinterpret_cast<std::byte const*>(&after);
    for (std::size_t cut = 0; cut <= sizeof(entry); ++cut)
        for (bool const front : {true, false}) {
            entry torn;
            auto* const bytes = reinterpret_cast<std::byte*>(&torn);
            std::memcpy(bytes, front ? new_bytes : old_bytes, cut);
            std::memcpy(bytes + cut, (front ? old_bytes : new_bytes) + cut, sizeof(entry) - cut);
            bool const same =
                std::memcmp(bytes, old_bytes, sizeof(entry)) == 0 || std::memcmp(bytes, new_bytes, sizeof(entry)) == 0;
            // Behind the end of the shorter one there may be bytes that belong to neither.
            if (torn.is_whole() && !same && torn.value() != before.value() && torn.value() != after.value())
                FAIL("cut at " << cut);
        }
    CHECK(before.is_whole());
    CHECK(after.is_whole());
    CHECK(entry().is_empty());
    CHECK_FALSE(entry().is_whole());
}

TEST_CASE("kv: an entry that is being written is read again") {
    service().run(64, [](server& served, client& store) -> async::task<> {
        co_await store.put("a", std::string(500, 'x'));
        co_await store.put("b", "something else");
        entry& here = served.table()[place_of("a", 64)];
        entry const next("a", std::string(700, 'y'), 2);
        std::memcpy(static_cast<void*>(&here), &next, sizeof(entry) / 2); // as far as the server has come

        rdma::epoll_loop& loop = store.loop();
        client other(loop);
        co_await other.connect(service::where);
        async::task<std::optional<entry>> getting = store.get("a");
        getting.start();
        while (store.torn() < 3) // time passes
            co_await other.get("b");
        CHECK_FALSE(getting.done());
        here = next;
        while (!getting.done())
            co_await other.get("b");
        auto const found = getting.get();
        REQUIRE(found);
        CHECK(found->value() == next.value());
        co_await other.disconnect();
    });
}

TEST_CASE("kv: an entry that stays damaged is told, and not got") {
    CHECK_THROWS_WITH(service().run(64,
                                    [](server& served, client& store) -> async::task<> {
                                        co_await store.put("a", "value");
                                        auto* const text = reinterpret_cast<char*>(&served.table()[place_of("a", 64)]);
                                        text[sizeof(entry) - entry::room] = 'b'; // its key
                                        co_await store.get("a");
                                    }),
                      contains("damaged"));
}
