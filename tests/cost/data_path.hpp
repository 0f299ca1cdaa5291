// SPDX-License-Identifier: MIT
// What data_path_c.cpp and data_path_cpp.cpp share: the counting of allocations. What is measured is written twice:
// functions op_..., each of which does its operation so many times.
#pragma once

#include "../unit/allocations.hpp"
#include "pair.hpp"

#include <cstdio>

extern "C" {
[[gnu::noinline]] void op_write(unsigned times);   // posts a write and polls until it is done
[[gnu::noinline]] void op_send(unsigned times);    // posts a receive, a send, and polls for both
[[gnu::noinline]] void op_chain(unsigned times);   // posts a chain of four writes, and polls until it is done
[[gnu::noinline]] void op_ex_poll(unsigned times); // posts a write, and polls an extended CQ
[[gnu::noinline]] void op_ex_post(unsigned times); // posts a write through ibv_wr_..., and polls
[[gnu::noinline]] void op_event(unsigned times);   // arms, posts a write, gets its event, acks it, polls
[[gnu::noinline]] void op_end(unsigned times);     // nothing: where the last one ends
}

extern pair* plain;
extern pair* extended;

/// Each operation twice: the slope between them is what one costs. The first run makes what is made once.
inline int run_all(unsigned few, unsigned many) {
    using operation = void (*)(unsigned);
    std::size_t allocated = 0;
    for (operation const each : {op_write, op_send, op_chain, op_ex_poll, op_ex_post, op_event, op_end}) {
        each(few);
        unit::allocation_watch const watch;
        each(many);
        allocated += watch.made();
    }
    std::printf("allocations %zu\n", allocated);
    return 0;
}
