// SPDX-License-Identifier: MIT
// An owned file descriptor, and calls of the system that throw.
#pragma once

#include <cerrno>
#include <string>
#include <system_error>
#include <utility>

#include <unistd.h>

namespace rcopy {

class descriptor {
public:
    descriptor() noexcept = default;
    explicit descriptor(int fd) noexcept : fd_(fd) {}
    descriptor(descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
    descriptor& operator=(descriptor&& other) noexcept {
        std::swap(fd_, other.fd_);
        return *this;
    }
    ~descriptor() {
        if (fd_ >= 0)
            ::close(fd_);
    }

    explicit operator bool() const noexcept { return fd_ >= 0; }
    int get() const noexcept { return fd_; }

private:
    int fd_ = -1;
};

[[noreturn]] inline void throw_errno(std::string const& what) {
    throw std::system_error(errno, std::system_category(), what);
}

/// What a call of the system returned, unless that is -1. @throws std::system_error
template <class Result>
Result checked(Result returned, std::string const& what) {
    if (returned == Result(-1))
        throw_errno(what);
    return returned;
}

} // namespace rcopy
