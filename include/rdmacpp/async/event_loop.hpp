// SPDX-License-Identifier: MIT
/// @file
/// What the awaitables need of an event loop, and any loop that has it.
#pragma once

#include "../config.hpp"
#if __cplusplus >= 202002L && !defined(RDMACPP_TWO_VERSIONS) // otherwise config.hpp says what to do

#include "../detail/check.hpp"
#include "../detail/pin.hpp"
#include "../timeout.hpp"

#include <concepts>
#include <system_error>
#include <utility>

namespace rdma::inline RDMACPP_ABI::async {

/// What a loop calls: a function and its argument. What it throws is the program's, from its own coroutines and
/// handlers, and comes out of the loop.
struct callback {
    using function = void(void* object); ///< May throw what the program does.
    function* call;                      ///< What is called.
    void* object;                        ///< Its argument.
    /// Calls it.
    void operator()() const { call(object); }
};

/// What a loop was asked for, until it is dropped: then the callback is not called any more. It may be dropped in any
/// callback of the loop, also its own; on the loop's thread, and before the loop.
class [[nodiscard]] registration {
public:
    /// Nothing.
    registration() noexcept = default;
    /// Calls `drop(object)` at its end. @param sleeper called by rest(), if the loop has such a thing
    registration(void* object, void (*drop)(void* object) noexcept,
                 void (*sleeper)(void* object, bool on) noexcept = nullptr) noexcept
        : object_(object), drop_(drop), rest_(sleeper) {}
    registration(registration&& other) noexcept
        : object_(detail::take(other.object_)), drop_(other.drop_), rest_(other.rest_) {}
    /// Drops what it stood for before.
    registration& operator=(registration&& other) noexcept {
        registration moved(std::move(other));
        detail::swap_values(object_, moved.object_);
        detail::swap_values(drop_, moved.drop_);
        detail::swap_values(rest_, moved.rest_);
        return *this;
    }
    ~registration() {
        if (object_)
            drop_(object_);
    }

    explicit operator bool() const noexcept { return object_ != nullptr; }

    /// While it rests, it does not keep the loop from ending, and calls back all the same: what waits now and then need
    /// not be dropped and asked for again each time. @return false if the loop cannot
    bool rest(bool on) noexcept {
        if (object_ && rest_)
            rest_(object_, on);
        return object_ && rest_;
    }

private:
    void* object_ = nullptr;
    using dropper = void(void* object) noexcept;
    dropper* drop_ = nullptr;
    using rester = void(void* object, bool on) noexcept;
    rester* rest_ = nullptr;
};

/// A loop that can say "this descriptor is readable" and "this time has passed": epoll_loop, asio::loop, uv_loop, or
/// yours.
///
/// - `readable` calls back each time the descriptor is readable, until the registration is dropped: level- or
///   edge-triggered.
/// - `after` calls back once, after so long, or not at all if the registration is dropped before. With no time at all
///   it calls back soon, and not within the call.
///
/// Both call back on the loop's own thread, one at a time, and give an empty registration when they fail, with `ec`.
template <class Loop>
concept event_loop = requires(Loop& loop, int fd, timeout span, callback call, std::error_code& ec) {
    { loop.readable(fd, call, ec) } -> std::same_as<registration>;
    { loop.after(span, call, ec) } -> std::same_as<registration>;
};

/// A loop that never sleeps, and has neither descriptors nor timers: poll_loop, or yours. `each_turn` calls back in
/// each of its turns.
template <class Loop>
concept polling_loop = requires(Loop& loop, callback call, std::error_code& ec) {
    { loop.each_turn(call, ec) } -> std::same_as<registration>;
};

/// A view of any loop, which must outlive what is made with it.
class any_loop {
public:
    /// A view of this loop.
    template <event_loop Loop>
        requires(!std::same_as<Loop, any_loop>)
    any_loop(Loop& loop)
    noexcept : loop_(&loop), operations_(&operations_of<Loop>) {} // NOLINT: a loop is one
    template <polling_loop Loop>
        requires(!event_loop<Loop>)
    any_loop(Loop& loop)
    noexcept : loop_(&loop), operations_(&turns_of<Loop>) {} // NOLINT

    /// Whether the loop never sleeps: then it has turns, but no descriptors and no timers.
    bool polls() const noexcept { return operations_->each_turn != nullptr; }

    /// Calls back each time a descriptor is readable. Precondition: the loop does not poll.
    registration readable(int fd, callback call, std::error_code& ec) const noexcept {
        return operations_->readable(loop_, fd, call, ec);
    }
    /// Calls back once, after so long. Precondition: the loop does not poll.
    registration after(timeout span, callback call, std::error_code& ec) const noexcept {
        return operations_->after(loop_, span, call, ec);
    }
    /// Calls back in each turn. Precondition: the loop polls.
    registration each_turn(callback call, std::error_code& ec) const noexcept {
        return operations_->each_turn(loop_, call, ec);
    }

private:
    struct operations {
        registration (*readable)(void* loop, int fd, callback call, std::error_code& ec) noexcept = nullptr;
        registration (*after)(void* loop, timeout span, callback call, std::error_code& ec) noexcept = nullptr;
        registration (*each_turn)(void* loop, callback call, std::error_code& ec) noexcept = nullptr;
    };

    template <class Loop>
    static constexpr operations operations_of{
        [](void* loop, int fd, callback call, std::error_code& ec) noexcept {
            return static_cast<Loop*>(loop)->readable(fd, call, ec);
        },
        [](void* loop, timeout span, callback call, std::error_code& ec) noexcept {
            return static_cast<Loop*>(loop)->after(span, call, ec);
        },
        nullptr};
    template <class Loop>
    static constexpr operations turns_of{nullptr, nullptr, [](void* loop, callback call, std::error_code& ec) noexcept {
                                             return static_cast<Loop*>(loop)->each_turn(call, ec);
                                         }};

    void* loop_;
    operations const* operations_;
};

} // namespace rdma::inline RDMACPP_ABI::async

#endif
