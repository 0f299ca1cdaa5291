// SPDX-License-Identifier: MIT
/// @file
/// What the unit tests share: a clean world, addresses, expected events, ids and connections made the usual way.
#pragma once

#include "catch.hpp"

#include <fake/fake.hpp>
#include <rdmacpp/rdmacpp.hpp>

#include <array>
#include <cstddef>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <sys/resource.h>

namespace unit {

using namespace std::chrono_literals;
using type = rdma::cm_event_type;

inline constexpr char const* rxe_host = "10.77.1.1";
inline constexpr char const* siw_host = "10.77.2.1";
inline constexpr char const* rxe_client_host = "10.77.1.2";

/// What the diagnostic hook was told. It allocates nothing: also cases that make every allocation fail may use it.
class diagnostics {
public:
    static diagnostics& get() {
        static diagnostics only;
        return only;
    }
    void clear() {
        std::lock_guard const lock(mutex_);
        size_ = 0;
    }
    std::vector<rdma::diagnostic> all() {
        std::lock_guard const lock(mutex_);
        return {told_.begin(), told_.begin() + static_cast<std::ptrdiff_t>(size_)};
    }
    std::size_t count(rdma::diagnostic_kind kind) {
        std::size_t n = 0;
        for (rdma::diagnostic const& each : all())
            n += each.kind == kind;
        return n;
    }
    static void hook(rdma::diagnostic const& d) noexcept {
        diagnostics& self = get();
        std::lock_guard const lock(self.mutex_);
        if (self.size_ != self.told_.size())
            self.told_[self.size_++] = d;
    }

private:
    std::mutex mutex_;
    std::array<rdma::diagnostic, 4096> told_{};
    std::size_t size_ = 0;
};

/// The first object of every case. At the end nothing may be left, nothing may have been misused, no call may have had
/// to wait for ever, and no destroy may have failed, but for what the case said it would check itself.
class world {
public:
    world() : old_(rdma::set_diagnostic_handler(&diagnostics::hook)) {
        fake::reset();
        diagnostics::get().clear();
    }
    world(world const&) = delete;
    world& operator=(world const&) = delete;
    ~world() {
        CHECK(fake::would_hang() == std::vector<std::string>{});
        if (!messy_) {
            CHECK(fake::misuse() == std::vector<std::string>{});
            CHECK(fake::leaks() == "");
            CHECK(diagnostics::get().count(rdma::diagnostic_kind::destroy_failed) == 0);
        }
        rdma::set_diagnostic_handler(old_);
        fake::reset();
    }

    /// The case makes destroys fail: what is left, and told, it checks itself.
    void messy() { messy_ = true; }

    std::vector<rdma::diagnostic> told() const { return diagnostics::get().all(); }
    std::size_t told(rdma::diagnostic_kind kind) const { return diagnostics::get().count(kind); }

private:
    rdma::diagnostic_handler old_;
    bool messy_ = false;
};

/// The soft limit of locked memory, put back at the end.
struct locked_memory_limit {
    rlimit before{};
    bool set = false;

    explicit locked_memory_limit(rlim_t bytes) {
        REQUIRE(::getrlimit(RLIMIT_MEMLOCK, &before) == 0);
        rlimit changed = before;
        changed.rlim_cur = bytes;
        set = ::setrlimit(RLIMIT_MEMLOCK, &changed) == 0;
    }
    locked_memory_limit(locked_memory_limit const&) = delete;
    locked_memory_limit& operator=(locked_memory_limit const&) = delete;
    ~locked_memory_limit() { ::setrlimit(RLIMIT_MEMLOCK, &before); }
};

/// The next asynchronous event of a device, if there is one.
inline rdma::async_event async_event_of(rdma::context_ref device) {
    auto event = device.async_channel().try_get();
    return event ? std::move(*event) : rdma::async_event();
}
inline rdma::async_event async_event_of(rdma::context_ref device, std::error_code& ec) {
    auto event = device.async_channel().try_get(ec);
    return event ? std::move(*event) : rdma::async_event();
}

/// Every call of C so far; comparing two of these numbers shows that nothing was called in between.
inline std::size_t calls_made() { return fake::calls().size(); }

/// The places in the log of a function's calls.
inline std::vector<std::size_t> places_of(std::string_view function) {
    std::vector<std::size_t> places;
    auto const all = fake::calls();
    for (std::size_t i = 0; i != all.size(); ++i)
        if (all[i].function == function)
            places.push_back(i);
    return places;
}

/// The next event, which must be there already and be of this type: the fake needs no time.
inline rdma::cm_event next(rdma::event_channel const& channel, type wanted) {
    auto event = channel.try_get();
    if (!event)
        FAIL("no event, but expected " << to_string(wanted));
    if (event->type() != wanted)
        FAIL("got " << to_string(*event) << ", but expected " << to_string(wanted));
    return std::move(*event);
}

/// The same, acked at once.
inline void expect(rdma::event_channel const& channel, type wanted) { next(channel, wanted).ack(); }

inline bool is_idle(rdma::event_channel const& channel) { return fake::queued(channel.native_handle()) == 0; }

inline rdma::cm_id make_id(rdma::event_channel const& channel, rdma::port_space ps = rdma::port_space::tcp) {
    return rdma::cm_id(channel, ps);
}

/// An id with a device, on any port.
inline rdma::cm_id make_bound(rdma::event_channel const& channel, char const* host = rxe_host) {
    rdma::cm_id id = make_id(channel);
    id.bind(rdma::address(host, 0));
    return id;
}

inline rdma::cm_id make_listener(rdma::event_channel const& channel, char const* host = rxe_host, int port = 7471) {
    rdma::cm_id id = make_id(channel);
    id.bind(rdma::address(host, port));
    id.listen();
    return id;
}

/// An id whose route is known: ready for a QP and connect.
inline rdma::cm_id make_client(rdma::event_channel const& channel, char const* host = rxe_host, int port = 7471) {
    rdma::cm_id id = make_id(channel);
    id.resolve_addr(rdma::address(host, port));
    expect(channel, type::addr_resolved);
    id.resolve_route();
    expect(channel, type::route_resolved);
    return id;
}

/// A request of a client that does not exist, on a listener: its event.
inline rdma::cm_event make_request(rdma::event_channel const& channel, rdma::cm_id const& listener) {
    fake::push_request(listener.native_handle());
    return next(channel, type::connect_request);
}

/// Two connected ids on one device, each on a channel of its own, and both idle. Any of the members may be dropped at
/// any time, and are, in the order in which no C program could: channels first.
struct connection {
    rdma::cm_id client, server, listener;
    rdma::event_channel client_channel, server_channel;
};

inline connection connect_pair(char const* host = rxe_host, rdma::qp_init_attr const& attr = {}) {
    connection c;
    c.listener = make_listener(c.server_channel, host);
    c.client = make_client(c.client_channel, host);
    c.client.create_qp(attr);
    c.client.connect();
    {
        rdma::cm_event request = next(c.server_channel, type::connect_request);
        c.server = request.take_id();
    }
    c.server.create_qp(attr);
    c.server.accept();
    expect(c.client_channel, type::established);
    expect(c.server_channel, type::established);
    return c;
}

/// The code that a throwing form throws; what() must name `text`. No code when nothing was thrown.
template <class F>
std::error_code thrown(F&& f, std::string const& text = "") {
    try {
        f();
    } catch (rdma::error const& e) {
        CHECK_THAT(std::string(e.what()), rdmacpp_test::contains(text));
        return e.code();
    }
    return {};
}

} // namespace unit
