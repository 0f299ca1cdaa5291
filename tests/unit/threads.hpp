// SPDX-License-Identifier: MIT
/// @file
/// Threads that do something at the same moment, over and over.
#pragma once

#include <barrier>
#include <functional>
#include <thread>

namespace unit {

/// Each round: `before` here, then all of `work` at once, each on a thread of its own, then `after` here.
template <class... Work>
void at_once(int rounds, std::function<void()> const& before, std::function<void()> const& after, Work const&... work) {
    std::barrier<> start(sizeof...(Work) + 1), end(sizeof...(Work) + 1);
    auto const repeat = [&](auto const& one) {
        for (int i = 0; i != rounds; ++i) {
            start.arrive_and_wait();
            one();
            end.arrive_and_wait();
        }
    };
    std::thread threads[] = {std::thread([&repeat, &work] { repeat(work); })...};
    for (int i = 0; i != rounds; ++i) {
        before();
        start.arrive_and_wait();
        end.arrive_and_wait();
        after();
    }
    for (std::thread& each : threads)
        each.join();
}

} // namespace unit
