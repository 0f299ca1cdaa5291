// SPDX-License-Identifier: MIT
// Waiting for a descriptor of C's, and being woken from it: by a deadline, a stop token, or the end of the channel
// object.
#pragma once

#include "../config.hpp"
#if __cplusplus >= 202002L && !defined(RDMACPP_TWO_VERSIONS) // otherwise config.hpp says what to do

#include "../any_stop_token.hpp"
#include "../timeout.hpp"
#include "atomic.hpp"
#include "check.hpp"
#include "mutex.hpp"

#include <cerrno>
#include <cstdint>
#include <new>
#include <system_error>

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

namespace rdma::inline RDMACPP_ABI::detail {

/// What ended a wait.
enum class woken { ready, expired, stopped, closed, failed };

/// The threads that wait on one channel, each with an eventfd of its own: with a shared one, the first thread to read
/// it takes the wake-up of all others. The eventfds are made on the first wait and kept for the next.
class wait_room {
public:
    wait_room() noexcept = default;
    wait_room(wait_room const&) = delete;
    wait_room& operator=(wait_room const&) = delete;
    ~wait_room() {
        while (seat* const s = idle_) {
            idle_ = s->next;
            delete s;
        }
    }

    bool closed() const noexcept { return closed_.load(order::acquire); }

    /// Ends every wait, now and from now on.
    void close() noexcept {
        lock_guard const lock(mutex_);
        closed_.store(true, order::release);
        for (seat* s = taken_; s; s = s->next)
            s->wake();
    }

    /// Waits until `fd` is readable, or for one of the other reasons; `failed` comes with `ec`.
    woken wait(int fd, deadline const& until, any_stop_token const& stop, wait_options options,
               std::error_code& ec) noexcept {
        seat* const mine = take(ec);
        if (!mine)
            return woken::failed;
        woken const why = wait_at(*mine, fd, until, stop, options, ec);
        give_back(mine);
        return why;
    }

private:
    struct seat {
        int const fd = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        seat* next = nullptr;
        detail::atomic<bool> rung{false}; // only then there is something to settle: a system call less on each wait

        seat() noexcept = default;
        seat(seat const&) = delete;
        seat& operator=(seat const&) = delete;
        ~seat() {
            if (fd >= 0)
                ::close(fd);
        }
        void wake() noexcept {
            rung.store(true, order::relaxed);
            std::uint64_t const one = 1;
            [[maybe_unused]] auto const written = ::write(fd, &one, sizeof one); // fails only when it is awake already
        }
        /// Whoever might wake is done, or shut out.
        void settle() noexcept {
            if (!rung.exchange(false, order::relaxed))
                return;
            std::uint64_t count;
            [[maybe_unused]] auto const got = ::read(fd, &count, sizeof count);
        }
    };

    seat* take(std::error_code& ec) noexcept {
        lock_guard const lock(mutex_);
        if (!idle_) {
            idle_ = new (std::nothrow) seat;
            if (!idle_ || idle_->fd < 0) {
                ec = system_error_code(idle_ ? errno : ENOMEM);
                delete idle_;
                idle_ = nullptr;
                return nullptr;
            }
        }
        seat* const s = idle_;
        idle_ = s->next;
        s->next = taken_;
        taken_ = s;
        return s;
    }

    void give_back(seat* mine) noexcept {
        lock_guard const lock(mutex_);
        seat** link = &taken_;
        while (*link != mine)
            link = &(*link)->next;
        *link = mine->next;
        mine->settle(); // under the lock: close() wakes only seats that are taken
        mine->next = idle_;
        idle_ = mine;
    }

    woken wait_at(seat& mine, int fd, deadline const& until, any_stop_token const& stop, wait_options options,
                  std::error_code& ec) noexcept {
        stop_watch const on_stop(stop,
                                 stop_action{[](void* seated) noexcept { static_cast<seat*>(seated)->wake(); }, &mine});
        for (;;) {
            if (stop.stop_requested())
                return woken::stopped;
            if (closed())
                return woken::closed;
            pollfd watched[] = {{fd, POLLIN, 0}, {mine.fd, POLLIN, 0}};
            int const ready = ::poll(watched, 2, until.for_poll());
            if (ready < 0 && errno == EINTR) {
                if (!options.interruptible)
                    continue;
                ec = system_error_code(EINTR);
                return woken::failed;
            }
            if (ready < 0) {
                ec = system_error_code(errno);
                return woken::failed;
            }
            if (watched[0].revents != 0)
                return woken::ready; // POLLNVAL, POLLERR and POLLHUP too: C says what is wrong
            if (ready == 0 && until.passed())
                return woken::expired;
        }
    }

    detail::mutex mutex_;
    seat* idle_ = nullptr;
    seat* taken_ = nullptr;
    detail::atomic<bool> closed_{false};
};

/// One get of C's, from a descriptor that does not block. @return whether it gave something, or failed with `ec`;
/// false: there is nothing now
template <class Get>
bool gave(Get get, wait_options options, std::error_code& ec) noexcept {
    while (get() != 0) {
        int const reason = errno;
        if (reason == EINTR && !options.interruptible)
            continue;
        if (reason == EAGAIN || reason == EWOULDBLOCK)
            return false;
        ec = system_error_code(reason);
        return true;
    }
    return true;
}

/// The one loop behind every get: try, then wait, then try again. `attempt` returns true when it got something or
/// failed.
template <class Attempt>
woken get_or_wait(wait_room& room, int fd, deadline const& until, any_stop_token const& stop, wait_options options,
                  std::error_code& ec, Attempt&& attempt) noexcept {
    for (;;) {
        if (stop.stop_requested())
            return woken::stopped;
        if (room.closed())
            return woken::closed;
        if (attempt())
            return ec ? woken::failed : woken::ready;
        // A readable descriptor promises nothing (C swallows some events, another thread may be faster): hence the
        // loop.
        if (woken const why = room.wait(fd, until, stop, options, ec); why != woken::ready)
            return why;
    }
}

} // namespace rdma::inline RDMACPP_ABI::detail

#endif
