// SPDX-License-Identifier: MIT
/// @file
/// Catch2, version 2 or 3: the one header that tests include.
///
/// - `RDMACPP_SKIP("reason")` ends a test case (a function that returns void) that cannot run here. The runner prints it
///   as skipped, with the reason.
/// - `contains("text")` is the matcher for a part of a string.
/// - A case tagged `[.long]` is hidden: it runs in the suite `long` alone.
#pragma once

#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
#define RDMACPP_TEST_CATCH 3
#else
#include <new> // Catch2 2 uses it and does not include it, which newer libraries no longer forgive
#include <catch2/catch.hpp>
#define RDMACPP_TEST_CATCH 2
#if defined(__clang__) && __clang_major__ >= 22
#pragma clang diagnostic ignored "-Wc2y-extensions" // TEST_CASE uses __COUNTER__
#endif
#endif

#include <cstdio>
#include <string>
#include <type_traits>

#if __has_include(<rdmacpp/fwd.hpp>)
#include <rdmacpp/fwd.hpp>

// Catch prints what a failed CHECK compares, and takes whatever has begin() and end() for a container to print: an
// event channel would be waited on for ever. Any other class of ours that is a range of events belongs here too.
namespace Catch {
template <>
struct is_range<rdma::acceptor> : std::false_type {};
template <>
struct is_range<rdma::addrinfo> : std::false_type {};
template <>
struct is_range<rdma::event_channel> : std::false_type {};
template <>
struct is_range<rdma::event_channel_ref> : std::false_type {};
template <>
struct is_range<rdma::comp_channel> : std::false_type {};
template <>
struct is_range<rdma::comp_channel_ref> : std::false_type {};
template <>
struct is_range<rdma::async_channel> : std::false_type {};
template <>
struct is_range<rdma::polling> : std::false_type {};
} // namespace Catch
#endif

namespace rdmacpp_test {

/// The line that tells the reader of a log, or a runner that knows no more, which case was skipped.
inline void note_skip(std::string const& reason) {
    std::string const name = Catch::getResultCapture().getCurrentTestName();
    std::fprintf(stderr, "SKIPPED: %s: %s\n", name.c_str(), reason.c_str());
    std::fflush(stderr);
}

inline auto contains(std::string const& part) {
#if RDMACPP_TEST_CATCH >= 3
    return Catch::Matchers::ContainsSubstring(part);
#else
    return Catch::Matchers::Contains(part);
#endif
}

} // namespace rdmacpp_test

#if RDMACPP_TEST_CATCH >= 3
#define RDMACPP_SKIP(reason)                                                                                           \
    do {                                                                                                               \
        ::rdmacpp_test::note_skip(reason);                                                                             \
        SKIP(reason);                                                                                                  \
    } while (false)
#else
// Catch2 2 has no SKIP: the warning is how the runner learns of it.
#define RDMACPP_SKIP(reason)                                                                                           \
    do {                                                                                                               \
        ::rdmacpp_test::note_skip(reason);                                                                             \
        WARN("SKIPPED: " << (reason));                                                                                 \
        return;                                                                                                        \
    } while (false)
#endif
