// SPDX-License-Identifier: MIT
// Any channel, whose events go to whoever waits first.
#pragma once

#include "../../config.hpp"
#if __cplusplus >= 202002L && !defined(RDMACPP_TWO_VERSIONS) // otherwise config.hpp says what to do

#include "../../async_channel.hpp"
#include "../../comp_channel.hpp"
#include "../../event_channel.hpp"
#include "../operation.hpp"
#include "operation.hpp"

#include <optional>
#include <system_error>
#include <type_traits>
#include <utility>

namespace rdma::inline RDMACPP_ABI::detail {

/// The C function that gets such an event.
template <class Event>
inline constexpr char const* get_name = "ibv_get_async_event";
template <>
inline constexpr char const* get_name<cm_event> = "rdma_get_cm_event";
template <>
inline constexpr char const* get_name<cq_event> = "ibv_get_cq_event";

template <class Channel>
class events_source final : public async_source {
public:
    using event =
        typename decltype(std::declval<Channel const&>().try_get(std::declval<std::error_code&>()))::value_type;

    events_source(async::any_loop loop, Channel const& channel) noexcept : async_source(loop), channel_(channel) {}

    void close() noexcept {
        closed_ = true;
        go_deaf();
        for (operation* op = waiters_.front(); op; op = waiters_.after(*op))
            give_up(*op, errc::empty_handle);
        unref();
    }
    bool closed() const noexcept { return closed_; }

    /// Whether an event was there; the next one is for who waits next.
    bool take(event& into, std::error_code& ec) noexcept {
        std::optional<event> got = channel_.try_get(ec);
        more_ = got || ec;
        if (got)
            into = std::move(*got);
        return got.has_value();
    }
    bool has_waiters() const noexcept { return !waiters_.empty(); }
    void add_waiter(operation& op) noexcept {
        if (!static_cast<hook<in_line>&>(op).linked())
            waiters_.push_back(op);
    }

private:
    int fd() const noexcept override { return channel_.fd(); }
    /// Whoever waits first looks by himself, and the next one when that one has left, whether he had his turn or not.
    void gather() override {
        more_ = true;
        rouse();
    }
    void left(operation const&) noexcept override {
        if (more_)
            rouse();
    }
    void rouse() noexcept {
        if (operation* const first = waiters_.front())
            make_ready(*first);
    }

    std::conditional_t<std::is_copy_constructible_v<Channel>, Channel, Channel const&> channel_; // a view is copied
    list<operation, in_line> waiters_;
    bool more_ = false; // perhaps
    bool closed_ = false;
};

template <class Channel>
class next_of final : public operation {
public:
    next_of(events_source<Channel>* home, limits const& within) noexcept : operation(within), home_(home) {}

    auto take() noexcept { return std::move(event_); }
    char const* function() const noexcept { return get_name<typename events_source<Channel>::event>; }

private:
    bool begin() override {
        if (!home_ || home_->closed())
            return fail(errc::empty_handle);
        source_ = home_.get();
        return !home_->has_waiters() && advance();
    }
    bool advance() override {
        if (home_->closed())
            return fail(errc::empty_handle);
        return home_->take(event_, result_) || result_;
    }
    bool enlist() noexcept override {
        home_->add_waiter(*this);
        return false;
    }

    keep_source<events_source<Channel>> home_;
    typename events_source<Channel>::event event_;
};

} // namespace rdma::inline RDMACPP_ABI::detail

#endif
