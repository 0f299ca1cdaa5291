// SPDX-License-Identifier: MIT
/// @file
/// What a test needs that runs twice: against the fake C libraries, and in a guest on the real ones. The two devices
/// have the same addresses in both.
#pragma once

#include "catch.hpp"

#include <rdmacpp/rdmacpp.hpp>

#if RDMACPP_ON_FAKE
#include <fake/fake.hpp>
#endif

#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdlib>
#include <mutex>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>

#include <ifaddrs.h>
#include <net/if.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

namespace both {

/// One of the two devices, or nothing where it is absent.
struct device {
    std::string name;
    std::string host;
    bool iwarp = false;

    explicit operator bool() const { return !host.empty(); }
    rdma::address at(int port) const { return rdma::address(host, port); }
};

/// @param name "rxe" or "siw"
inline device find_device(std::string const& name) {
    bool const iwarp = name == "siw";
#if RDMACPP_ON_FAKE
    return {name, iwarp ? "10.77.2.1" : "10.77.1.1", iwarp};
#else
    char const* const host = std::getenv(iwarp ? "RDMACPP_SIW_ADDRESS" : "RDMACPP_RXE_ADDRESS");
    return {name, host ? host : "", iwarp};
#endif
}

/// How long to wait for an event that must come: the fake has it at once, a guest may be slow.
#if RDMACPP_ON_FAKE
inline constexpr std::chrono::milliseconds patience{200};
#else
inline constexpr std::chrono::seconds patience{20};
#endif

/// Ends the process when a case hangs: a library that waits for ever is what the tests look for, and a join would wait
/// with it.
class watchdog {
public:
    explicit watchdog(std::chrono::seconds limit = std::chrono::seconds(30))
        : name_(Catch::getResultCapture().getCurrentTestName()), thread_([this, limit] { watch(limit); }) {}
    watchdog(watchdog const&) = delete;
    watchdog& operator=(watchdog const&) = delete;
    ~watchdog() {
        {
            std::lock_guard const lock(mutex_);
            done_ = true;
        }
        changed_.notify_one();
        thread_.join();
    }

private:
    void watch(std::chrono::seconds limit) {
        std::unique_lock lock(mutex_);
        if (changed_.wait_for(lock, limit, [this] { return done_; }))
            return;
        std::string const text = "hang: " + name_ + "\n";
        [[maybe_unused]] auto const written = ::write(STDERR_FILENO, text.data(), text.size());
        ::_exit(97);
    }

    std::string name_;
    std::mutex mutex_;
    std::condition_variable changed_;
    bool done_ = false;
    std::thread thread_; // the last member: it uses the others
};

inline std::span<std::byte const> bytes(std::string_view text) { return std::as_bytes(std::span(text)); }

inline rdma::conn_param carrying(std::string_view text) { return {.private_data = bytes(text)}; }

/// Whether an event can be got, without getting it.
inline bool is_readable(rdma::event_channel const& channel, std::chrono::milliseconds within) {
    pollfd watched{channel.fd(), POLLIN, 0};
    int ready;
    do
        ready = ::poll(&watched, 1, static_cast<int>(within.count()));
    while (ready < 0 && errno == EINTR);
    return ready == 1;
}

/// While it lives, the device's interface asks for hardware addresses, as an Ethernet does. A guest's dummy interface
/// does not: there every address of the subnet resolves, and connecting to one that nobody has takes minutes.
class neighbours_asked {
#if RDMACPP_ON_FAKE
public:
    explicit neighbours_asked(device const&) {}
    ~neighbours_asked() {} // so that it counts as used
#else
public:
    explicit neighbours_asked(device const& on) {
        ifaddrs* all = nullptr;
        if (::getifaddrs(&all) != 0)
            throw std::runtime_error("getifaddrs");
        for (ifaddrs const* one = all; one; one = one->ifa_next)
            if (one->ifa_addr && rdma::address(one->ifa_addr).host() == on.host)
                interface_ = one->ifa_name;
        ::freeifaddrs(all);
        before_ = change(0, IFF_NOARP);
    }
    ~neighbours_asked() { change(before_ & IFF_NOARP, 0); }

private:
    short change(int set, int clear) const {
        ifreq request{};
        interface_.copy(request.ifr_name, sizeof request.ifr_name - 1);
        int const any = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        ::ioctl(any, SIOCGIFFLAGS, &request);
        short const before = request.ifr_flags;
        request.ifr_flags = static_cast<short>((before | set) & ~clear);
        ::ioctl(any, SIOCSIFFLAGS, &request);
        ::close(any);
        return before;
    }

    std::string interface_;
    short before_ = 0;
#endif
    neighbours_asked(neighbours_asked const&) = delete;
    neighbours_asked& operator=(neighbours_asked const&) = delete;
};

/// The symbol of an errno that connecting may lead to.
inline std::string errno_name(int value) {
    switch (value) {
    case EINVAL: return "EINVAL";
    case ENODEV: return "ENODEV";
    case EADDRINUSE: return "EADDRINUSE";
    case EADDRNOTAVAIL: return "EADDRNOTAVAIL";
    case ENETUNREACH: return "ENETUNREACH";
    case EHOSTUNREACH: return "EHOSTUNREACH";
    case ECONNREFUSED: return "ECONNREFUSED";
    case ECONNRESET: return "ECONNRESET";
    case ETIMEDOUT: return "ETIMEDOUT";
    case ENOTCONN: return "ENOTCONN";
    default: return "errno " + std::to_string(value);
    }
}

/// "ok", or the class of a failure.
inline std::string class_of(std::error_code ec) {
    if (!ec)
        return "ok";
    if (ec.category() == rdma::reject_category())
        return ec == rdma::condition::refused ? "refused" : "rejected";
    if (ec.category() == rdma::error_category())
        return ec.message();
    return errno_name(ec.value());
}

} // namespace both
