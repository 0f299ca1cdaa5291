// SPDX-License-Identifier: MIT
// What loop_c.cpp and loop_cpp.cpp share: the counting of system calls, of calls into the C libraries, and of
// allocations. What is measured is written twice.
#pragma once

#include "../unit/allocations.hpp"
#include "pair.hpp"

#include <cstdio>

#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

void echo_next(unsigned times); // echoes messages; completions are waited for as they come
void echo_post(unsigned times); // the same; sends are waited for where they are posted

/// What valgrind looks at.
extern "C" [[gnu::noinline]] inline void measured(void (*operation)(unsigned), unsigned times) {
    operation(times);
    asm volatile(""); // it is to return here
}

inline unsigned long waits = 0, changes = 0; // of epoll

// In place of the C library's.
extern "C" inline int epoll_wait(int epoll, epoll_event* into, int most, int milliseconds) {
    ++waits;
    return static_cast<int>(::syscall(SYS_epoll_pwait, epoll, into, most, milliseconds, nullptr, 8));
}
extern "C" inline int epoll_ctl(int epoll, int what, int fd, epoll_event* event) noexcept {
    ++changes;
    return static_cast<int>(::syscall(SYS_epoll_ctl, epoll, what, fd, event));
}

/// Does one of the two so many times, after a first run that makes what is made once.
inline int run(int argc, char** argv) {
    expect(argc == 3, "usage: PROGRAM next|post TIMES");
    auto* const operation = std::strcmp(argv[1], "next") == 0 ? echo_next : echo_post;
    operation(64);
    fake::clear_calls();
    waits = changes = 0;
    std::size_t allocated;
    {
        unit::allocation_watch const watch;
        measured(operation, static_cast<unsigned>(std::atoi(argv[2])));
        allocated = watch.made();
    }
    std::printf("allocations=%zu epoll_wait=%lu epoll_ctl=%lu", allocated, waits, changes);
    for (char const* const function :
         {"ibv_get_cq_event", "ibv_req_notify_cq", "ibv_post_send", "ibv_post_recv", "ibv_poll_cq"})
        std::printf(" %s=%zu", function, fake::count(function));
    std::putchar('\n');
    return 0;
}
