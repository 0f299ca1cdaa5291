// SPDX-License-Identifier: MIT
// SIGINT and SIGTERM as something that an epoll_loop watches.
#pragma once

#include <rdmacpp/epoll.hpp>

#include <cerrno>
#include <csignal>
#include <stop_token>
#include <system_error>

#include <sys/signalfd.h>
#include <unistd.h>

/// Turns the first signal into a stop request. A second one then ends the program as it would any other.
class stop_signals {
public:
    /// To be made before the program's other threads, which must not get the signals.
    explicit stop_signals(rdma::epoll_loop& loop) {
        ::sigemptyset(&signals_);
        ::sigaddset(&signals_, SIGINT);
        ::sigaddset(&signals_, SIGTERM);
        ::pthread_sigmask(SIG_BLOCK, &signals_, nullptr);
        fd_ = ::signalfd(-1, &signals_, SFD_CLOEXEC | SFD_NONBLOCK);
        if (fd_ < 0)
            throw std::system_error(errno, std::generic_category(), "signalfd");
        std::error_code ec;
        watched_ = loop.readable(fd_, {&came, this}, ec);
        if (ec)
            throw std::system_error(ec, "epoll_ctl");
    }
    stop_signals(stop_signals const&) = delete;
    stop_signals& operator=(stop_signals const&) = delete;
    ~stop_signals() {
        watched_ = {};
        ::close(fd_);
    }

    std::stop_token token() const noexcept { return stop_.get_token(); }

    /// What a signal does; also for who must stop for another reason.
    void stop() noexcept {
        watched_ = {}; // the loop waits for no signal any more, and so ends with the last of the program's work
        stop_.request_stop();
    }

private:
    static void came(void* object) {
        auto* const self = static_cast<stop_signals*>(object);
        signalfd_siginfo which;
        [[maybe_unused]] auto const got = ::read(self->fd_, &which, sizeof which);
        ::pthread_sigmask(SIG_UNBLOCK, &self->signals_, nullptr);
        self->stop();
    }

    sigset_t signals_{};
    int fd_ = -1;
    std::stop_source stop_;
    rdma::async::registration watched_;
};
