// SPDX-License-Identifier: MIT
// Cases that go wrong in every way there is: tests/tap_selftest.py checks what the runner makes of them.
#include "catch.hpp"

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <thread>

TEST_CASE("passes", "[mixed]") {
    std::puts("</MatchingName> this is not XML");
    CHECK(1 + 1 == 2);
}

TEST_CASE("fails # with a directive", "[mixed]") {
    SECTION("inside") {
        INFO("the info");
        CHECK(1 + 1 == 3);
    }
}

TEST_CASE("skips", "[mixed]") { RDMACPP_SKIP("no device here"); }

TEST_CASE("fails, then skips", "[mixed]") {
    CHECK(false);
    RDMACPP_SKIP("too late");
}

TEST_CASE("throws", "[mixed]") { throw std::runtime_error("thrown"); }

TEST_CASE("comes after", "[mixed]") { SUCCEED(); }

TEST_CASE("long one", "[.long]") { SUCCEED(); }

TEST_CASE("1 before", "[.segv][.exit][.hang][.kill]") { SUCCEED(); }

TEST_CASE("2 segv", "[.segv]") { std::raise(SIGSEGV); }

TEST_CASE("2 exit", "[.exit]") { std::_Exit(0); }

TEST_CASE("2 kill", "[.kill]") { std::raise(SIGKILL); }

TEST_CASE("2 hang", "[.hang]") {
    for (;;) {
        std::this_thread::sleep_for(std::chrono::seconds(1));
    }
}

TEST_CASE("3 after", "[.segv][.exit][.hang][.kill]") { SUCCEED(); }
