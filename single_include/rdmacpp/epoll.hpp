// SPDX-License-Identifier: MIT
//
// rdmacpp 0.1.0
//
// An event loop on epoll, for programs that have none.
//
// Made by tools/amalgamate from the headers in include/rdmacpp, where changes belong.
//
// MIT License
//
// Copyright (c) 2026 The rdmacpp authors
//
// Permission is hereby granted, free of charge, to any person obtaining a copy
// of this software and associated documentation files (the "Software"), to deal
// in the Software without restriction, including without limitation the rights
// to use, copy, modify, merge, publish, distribute, sublicense, and/or sell
// copies of the Software, and to permit persons to whom the Software is
// furnished to do so, subject to the following conditions:
//
// The above copyright notice and this permission notice shall be included in all
// copies or substantial portions of the Software.
//
// THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR
// IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY,
// FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE
// AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER
// LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM,
// OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE
// SOFTWARE.
#pragma once

#ifndef RDMACPP_SINGLE_EPOLL_HPP // a copy at another place is no harm
#define RDMACPP_SINGLE_EPOLL_HPP

#include "async.hpp"
#include "rdmacpp.hpp"

#if __cplusplus >= 202002L && !defined(RDMACPP_TWO_VERSIONS) // otherwise rdmacpp.hpp says what to do

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <new>
#include <system_error>

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

namespace rdma::inline RDMACPP_ABI {

/// An event loop on epoll. It runs as long as it is waited for something:
///
///     rdma::epoll_loop loop;
///     rdma::async::event_channel channel(loop);
///     rdma::async::tasks running;
///     running.spawn(serve(channel));
///     loop.run();
///
/// Its descriptors are level-triggered, and so is what the program watches with readable(), a signalfd for instance.
/// One thread, but for stop().
class epoll_loop {
public:
#if RDMACPP_EXCEPTIONS
    /// Opens it (epoll_create1, eventfd). @throws rdma::error EMFILE, ENOMEM
    epoll_loop() {
        std::error_code ec;
        open(ec);
        if (ec)
            detail::throw_error(ec, "epoll_create1");
    }
#endif
    /// The twin: on failure nothing can be watched.
    explicit epoll_loop(std::error_code& ec) noexcept { open(ec); }
    epoll_loop(epoll_loop const&) = delete;
    epoll_loop& operator=(epoll_loop const&) = delete;
    /// What it was asked for must have been dropped before.
    ~epoll_loop() {
        for (int const fd : {epoll_, bell_})
            if (fd >= 0)
                ::close(fd);
    }

    /// Calls back each time a descriptor is readable, or broken (epoll_ctl), until the registration is dropped, which
    /// must be before the descriptor is closed. The descriptor stays the program's.
    /// @param ec EEXIST for one that is watched already, EPERM for one that cannot be, such as a plain file; ENOMEM
    async::registration readable(int fd, async::callback call, std::error_code& ec) noexcept {
        ec.clear();
        auto* const made = new (std::nothrow) watch(*this, fd, call);
        if (!made || !control(EPOLL_CTL_ADD, fd, made)) {
            ec = detail::system_error_code(made ? errno : ENOMEM);
            delete made;
            return {};
        }
        ++asked_;
        return {static_cast<wish*>(made), &watch::drop, &wish::rest};
    }

    /// Calls back once, after so long; with no time at all soon, and not within this call. @param ec ENOMEM
    async::registration after(timeout span, async::callback call, std::error_code& ec) noexcept {
        ec.clear();
        auto* const made = new (std::nothrow) timer(*this, detail::deadline::after(span), call);
        if (!made) {
            ec = detail::system_error_code(ENOMEM);
            return {};
        }
        timer const* const first = timers_.front();
        timer* before = timers_.back(); // most are later than those before them, or the next to come
        if (first && first->at.nanoseconds() > made->at.nanoseconds())
            before = nullptr;
        while (before && before->at.nanoseconds() > made->at.nanoseconds())
            before = timers_.before(*before);
        timers_.put_after(*made, before);
        ++asked_;
        return {static_cast<wish*>(made), &timer::drop, &wish::rest};
    }

    /// Runs until nothing is asked for any more, or stop. What a coroutine or a handler throws comes out of it; run it
    /// again then.
    void run() {
        while (!stopped_.exchange(false, detail::order::acq_rel) && run_once())
            ;
    }

    /// One turn: waits at most this long for something to do, and does it. @return whether anything is still asked for
    bool run_once(timeout at_most = no_limit) {
        if (asked_ != 0)
            serve(::epoll_wait(epoll_, ready_, batch, milliseconds(at_most)));
        if (!timers_.empty())
            expire();
        return asked_ != 0;
    }

    /// Ends run() soon, or the next one at once; from any thread, or a handler of signals.
    void stop() noexcept {
        stopped_.store(true, detail::order::release);
        std::uint64_t const one = 1;
        [[maybe_unused]] auto const written = ::write(bell_, &one, sizeof one); // fails only when it has rung already
    }

private:
    static constexpr int batch = 64;

    /// How long to sleep: until the first timer, and no longer than `at_most`.
    int milliseconds(timeout at_most) const noexcept {
        timer const* const first = timers_.front();
        if (!first && at_most.milliseconds() == timeout::forever)
            return -1;
        detail::deadline const end = detail::deadline::after(at_most);
        return (first && first->at.nanoseconds() < end.nanoseconds() ? first->at : end).for_poll();
    }

    /// What the loop was asked for.
    struct wish {
        epoll_loop& loop;
        async::callback call;
        bool rests = false;

        wish(epoll_loop& of, async::callback what) noexcept : loop(of), call(what) {}
        static void rest(void* object, bool on) noexcept {
            auto& self = *static_cast<wish*>(object);
            if (self.rests != on)
                self.loop.asked_ += on ? std::size_t(-1) : 1;
            self.rests = on;
        }
    };
    struct watch : wish {
        watch(epoll_loop& of, int which, async::callback what) noexcept : wish(of, what), fd(which) {}
        int fd;

        static void drop(void* object) noexcept {
            rest(object, true);
            auto* const self = static_cast<watch*>(static_cast<wish*>(object));
            self->loop.forget(*self);
            delete self;
        }
    };
    struct timer : wish, detail::hook<timer> {
        timer(epoll_loop& of, detail::deadline when, async::callback what) noexcept : wish(of, what), at(when) {}
        detail::deadline at;

        static void drop(void* object) noexcept {
            rest(object, true);
            delete static_cast<timer*>(static_cast<wish*>(object));
        }
    };

    void open(std::error_code& ec) noexcept {
        ec.clear();
        epoll_ = ::epoll_create1(EPOLL_CLOEXEC);
        bell_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        if (epoll_ < 0 || bell_ < 0 || !control(EPOLL_CTL_ADD, bell_, nullptr))
            ec = detail::system_error_code(errno);
    }

    bool control(int what, int fd, watch* whose) const noexcept {
        epoll_event event{};
        event.events = EPOLLIN;
        event.data.ptr = whose;
        return ::epoll_ctl(epoll_, what, fd, &event) == 0;
    }

    /// What was found readable in this turn may be dropped before it is served.
    void forget(watch const& gone) noexcept {
        control(EPOLL_CTL_DEL, gone.fd, nullptr); // fails when the descriptor was closed before, which has done it
        for (int i = 0; i < count_; ++i)
            if (ready_[i].data.ptr == &gone)
                ready_[i].data.ptr = &served_;
    }

    void serve(int count) {
        struct turn {
            epoll_loop& self;
            turn(epoll_loop& loop, int of) noexcept : self(loop) { self.count_ = of; }
            turn(turn const&) = delete;
            turn& operator=(turn const&) = delete;
            ~turn() { self.count_ = 0; }
        } const now(*this, count);
        for (int i = 0; i < count_; ++i) {
            void* const whose = ready_[i].data.ptr;
            if (!whose)
                settle();
            else if (whose != &served_)
                static_cast<watch*>(whose)->call();
        }
    }

    void settle() const noexcept {
        std::uint64_t rung = 0;
        [[maybe_unused]] auto const got = ::read(bell_, &rung, sizeof rung);
    }

    /// Those that are due now; what they begin has its time in the next turn.
    void expire() {
        if (timers_.empty())
            return;
        std::int64_t const now = detail::deadline::after(timeout(std::chrono::seconds(0))).nanoseconds();
        while (timer* const first = timers_.front()) {
            if (first->at.nanoseconds() > now)
                return;
            static_cast<detail::hook<timer>*>(first)->unlink();
            timer::rest(static_cast<wish*>(first), true);
            async::callback const call = first->call;
            call();
        }
    }

    int epoll_ = -1;
    int bell_ = -1;
    std::size_t asked_ = 0; // what does not rest
    detail::list<timer, timer> timers_;
    epoll_event ready_[batch];
    int count_ = 0;   // of those, in this turn
    char served_ = 0; // stands for what was dropped
    detail::atomic<bool> stopped_{false};
};

static_assert(async::event_loop<epoll_loop>);

} // namespace rdma::inline RDMACPP_ABI

#endif
#endif
