// SPDX-License-Identifier: MIT
/// @file
/// What the tests of the awaitables share: a loop of any kind, turned by hand, and two ends of a connection on it.
#pragma once

#include "support.hpp"

#include <rdmacpp/epoll.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <stop_token>
#include <vector>

namespace unit {

namespace async = rdma::async;
using async::task;

enum class loop_kind { epoll, polling, edge };

inline char const* name_of(loop_kind which) {
    return which == loop_kind::epoll ? "epoll" : which == loop_kind::polling ? "polling" : "edge-triggered";
}

/// A loop as mean as it may be: edge-triggered, and one callback in each turn.
class edge_loop {
public:
    edge_loop() : epoll_(::epoll_create1(EPOLL_CLOEXEC)) {}
    edge_loop(edge_loop const&) = delete;
    edge_loop& operator=(edge_loop const&) = delete;
    ~edge_loop() { ::close(epoll_); }

    async::registration readable(int fd, async::callback call, std::error_code& ec) noexcept {
        ec.clear();
        auto* const made = new (std::nothrow) wish{this, fd, call, {}};
        epoll_event event{};
        event.events = EPOLLIN | EPOLLET;
        event.data.ptr = made;
        if (!made || ::epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event) != 0) {
            ec = {made ? errno : ENOMEM, std::system_category()};
            delete made;
            return {};
        }
        ++asked_;
        return {made, [](void* object) noexcept {
                    auto* const self = static_cast<wish*>(object);
                    ::epoll_ctl(self->loop->epoll_, EPOLL_CTL_DEL, self->fd, nullptr);
                    --self->loop->asked_;
                    delete self;
                }};
    }
    async::registration after(rdma::timeout span, async::callback call, std::error_code& ec) noexcept {
        ec.clear();
        auto* const made = new (std::nothrow) wish{this, -1, call, rdma::detail::deadline::after(span)};
        if (!made) {
            ec = {ENOMEM, std::system_category()};
            return {};
        }
        timers_.push_back(made);
        return {made, [](void* object) noexcept {
                    auto* const self = static_cast<wish*>(object);
                    std::erase(self->loop->timers_, self);
                    delete self;
                }};
    }
    void turn() {
        epoll_event one{};
        if (::epoll_wait(epoll_, &one, 1, 0) == 1) // one at a time, so that none is found that has gone
            static_cast<wish*>(one.data.ptr)->call();
        for (wish* each : timers_)
            if (each->at->passed()) {
                std::erase(timers_, each);
                async::callback const call = each->call;
                return call();
            }
    }

private:
    struct wish {
        edge_loop* loop;
        int fd;
        async::callback call;
        std::optional<rdma::detail::deadline> at;
    };

    int epoll_;
    int asked_ = 0;
    std::vector<wish*> timers_;
};

/// One of the loops.
class any_kind {
public:
    explicit any_kind(loop_kind which) : kind_(which) {}

    operator async::any_loop() {
        switch (kind_) {
        case loop_kind::polling: return polling_;
        case loop_kind::edge: return edge_;
        default: return epoll_;
        }
    }
    bool polls() const { return kind_ == loop_kind::polling; }
    void turn() {
        switch (kind_) {
        case loop_kind::polling: return polling_.poll();
        case loop_kind::edge: return edge_.turn();
        default: epoll_.run_once(0s);
        }
    }
    void turns(int count) {
        while (count-- != 0)
            turn();
    }
    /// Until this is so, or never: then the case fails.
    template <class Condition>
    void until(Condition const& so, int most = 100'000) {
        while (!so() && most-- != 0)
            turn();
        CHECK(so());
    }

private:
    loop_kind kind_;
    rdma::epoll_loop epoll_;
    async::poll_loop polling_;
    edge_loop edge_;
};

inline constexpr loop_kind every_kind[] = {loop_kind::epoll, loop_kind::polling, loop_kind::edge};

/// Two ends of a connection, the client's with what is awaited of it; both have memory, registered.
struct two_ends {
    async::cm_id client;
    rdma::cm_id server, listener;
    rdma::event_channel plain;
    std::array<std::byte, 64> memory{};
    rdma::mr near, far;

    explicit two_ends(async::event_channel const& channel, rdma::qp_init_attr const& attr = {},
                      char const* host = rxe_host) {
        connection made = connect_pair(host, attr);
        client = async::cm_id(channel, std::move(made.client));
        server = std::move(made.server);
        listener = std::move(made.listener);
        plain = std::move(made.server_channel);
        near = rdma::mr(client->pd(), memory, rdma::access::local_write);
        far = rdma::mr(server.pd(), memory, rdma::access::local_write);
    }
    /// The other end sends, or is ready for, one message.
    void say() { server.qp().post_send(rdma::send_wr::send(far.sge())); }
    void listen() { server.qp().post_recv(rdma::recv_wr(far.sge())); }
};

} // namespace unit
