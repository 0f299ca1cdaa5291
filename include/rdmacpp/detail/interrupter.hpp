// SPDX-License-Identifier: MIT
// Ending a C call that blocks: with a signal to the thread that is in it.
#pragma once

#include "../config.hpp"
#if __cplusplus >= 202002L && !defined(RDMACPP_TWO_VERSIONS) // otherwise config.hpp says what to do

#include "../any_stop_token.hpp"
#include "../timeout.hpp"

#include <cstddef>
#include <cstdint>
#include <ctime>
#include <system_error>

#include <aio.h> // POSIX has sigevent here, too; <signal.h> costs every includer ten times as much
#include <sys/syscall.h>
#include <unistd.h>

namespace rdma::inline RDMACPP_ABI::detail {

/// While it lives, the thread that made it gets a signal at the deadline, or when stop is requested, and again every 10
/// ms: the first one may come before the call has begun. The program has a handler for it, without SA_RESTART.
class interrupter {
public:
    /// @param signal 0: nothing is done
    interrupter(int signal, deadline const& until, any_stop_token const& stop) noexcept
        : armed_(signal != 0 && create(signal)), on_stop_(stop, stop_action{&fire_now, this}) {
        if (armed_ && !until.is_never())
            fire_at(until.nanoseconds());
    }
    interrupter(interrupter const&) = delete;
    interrupter& operator=(interrupter const&) = delete;
    ~interrupter() = default;

    /// Whether the program has a handler for it: without one most signals end the process. Asked of the kernel, whose
    /// answer begins with the handler; 0 and 1 are SIG_DFL and SIG_IGN.
    static bool is_handled(int signal) noexcept {
#if defined(SYS_rt_sigaction) && !defined(__mips__)
        std::uintptr_t action[8] = {};
        constexpr std::size_t bytes_of_mask = 8;
        return ::syscall(SYS_rt_sigaction, signal, nullptr, action, bytes_of_mask) == 0 && action[0] > 1;
#else
        return signal > 0;
#endif
    }

private:
    /// Deleted last, when no stop callback can run any more.
    struct timer {
        timer_t id{};
        bool created = false;
        timer() noexcept = default;
        timer(timer const&) = delete;
        timer& operator=(timer const&) = delete;
        ~timer() {
            if (created)
                ::timer_delete(id);
        }
    };

    bool create(int signal) noexcept {
        sigevent event{};
        event.sigev_notify = SIGEV_THREAD_ID;
        event.sigev_signo = signal;
        auto const self = static_cast<pid_t>(::syscall(SYS_gettid));
#if defined(sigev_notify_thread_id)
        event.sigev_notify_thread_id = self;
#else
        event._sigev_un._tid = self; // older C libraries have no other name for it
#endif
        return timer_.created = ::timer_create(CLOCK_MONOTONIC, &event, &timer_.id) == 0;
    }

    /// @param at nanoseconds of the monotonic clock
    void fire_at(std::int64_t at) const noexcept {
        if (!armed_)
            return;
        constexpr std::int64_t billion = 1'000'000'000;
        itimerspec when{};
        when.it_value.tv_sec = static_cast<time_t>(at / billion);
        when.it_value.tv_nsec = static_cast<long>(at % billion);
        when.it_interval.tv_nsec = billion / 100;
        ::timer_settime(timer_.id, TIMER_ABSTIME, &when, nullptr);
    }

    static void fire_now(void* self) noexcept { static_cast<interrupter*>(self)->fire_at(1); }

    timer timer_;
    bool const armed_;
    stop_watch on_stop_;
};

} // namespace rdma::inline RDMACPP_ABI::detail

#endif
