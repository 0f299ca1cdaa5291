// SPDX-License-Identifier: MIT
/// @file
/// Operations that wait without a thread, and what makes them awaitable.
#pragma once

#include "../config.hpp"
#if __cplusplus >= 202002L && !defined(RDMACPP_TWO_VERSIONS) // otherwise config.hpp says what to do

#include "../any_stop_token.hpp"
#include "../connect.hpp"
#include "../detail/await.hpp"
#include "../timeout.hpp"
#include "detail/operation.hpp"
#include "event_loop.hpp"

#include <chrono>
#include <coroutine>
#include <system_error>
#include <utility>

namespace rdma::inline RDMACPP_ABI::detail {

struct async_access;

// Declared everywhere, so that templates can name it; where exceptions are off, nothing calls it.
[[noreturn, gnu::cold]] inline void throw_connect_error(std::error_code code, connect_step step, bool by_event);
#if RDMACPP_EXCEPTIONS
inline void throw_connect_error(std::error_code code, connect_step step, bool by_event) {
    throw connect_error(code, step, {}, by_event);
}
#endif

/// Throws what an operation failed with.
template <class Operation>
[[noreturn]] void raise(Operation const& failed) {
    if constexpr (requires { failed.step(); })
        throw_connect_error(failed.result(), failed.step(), failed.by_event());
    else
        throw_error(failed.result(), failed.function());
}

} // namespace rdma::inline RDMACPP_ABI::detail

namespace rdma::inline RDMACPP_ABI::async {

/// How long to wait, and what may stop it. The time begins when this is made: waits that are given the same one share
/// its deadline.
class limits {
public:
    /// As long as it takes.
    limits() noexcept = default;
    /// At most this long; with a token, or until stop is requested, on any thread. What waits is told on its loop's
    /// thread.
    template <class Rep, class Period>
    limits(std::chrono::duration<Rep, Period> span, any_stop_token stop = {}) noexcept // NOLINT: a span is a limit
        : limits(timeout(span), std::move(stop)) {}
    limits(timeout span, any_stop_token stop = {}) noexcept // NOLINT
        : within_{detail::deadline::after(span), std::move(stop)} {}
    limits(any_stop_token stop) noexcept // NOLINT
        : within_{detail::deadline::never(), std::move(stop)} {}
    /// The same, of a std::stop_token.
    template <detail::stop_token_like Token>
    limits(Token const& stop) noexcept : limits(any_stop_token(stop)) {} // NOLINT

private:
    friend struct detail::async_access;

    detail::limits within_{detail::deadline::never(), {}};
};

/// What `co_await` waits for, in any coroutine: an operation that has not begun. It begins when it is awaited, or
/// before, with begin(), and goes on on its loop's thread.
///
/// A coroutine that is destroyed while it waits takes the operation with it: nothing is called any more, and what the
/// operation had made is dropped as its owner would drop it.
/// @tparam Operation what is waited for
/// @tparam Throws false for the twin with an error code, which must outlive the wait
template <class Operation, bool Throws>
class [[nodiscard]] awaitable {
public:
    /// Of an operation, and where its error goes.
    template <class... Arguments>
    explicit awaitable(std::error_code* ec, Arguments&&... arguments) noexcept
        : operation_(static_cast<Arguments&&>(arguments)...), ec_(ec) {}
    /// Before it has begun.
    awaitable(awaitable&& other) noexcept = default;
    awaitable& operator=(awaitable&&) = delete;
    ~awaitable() = default;

    /// Begins now, and not when it is awaited: a receive before the request that it has the answer of, for instance. It
    /// stays where it is from then on, and is awaited, or dropped.
    void begin() {
        begun_ = true;
        operation_.start();
    }

    /// Begins, unless it has. @return whether it is over already
    bool await_ready() { return begun_ ? operation_.has_ended() : operation_.start(); }
    /// Waits. @return false if it is over after all
    bool await_suspend(std::coroutine_handle<> whom) {
        return operation_.wait(
            {[](void* frame) { std::coroutine_handle<>::from_address(frame).resume(); }, whom.address()});
    }
    /// What it gave. @throws rdma::error why it failed
    auto await_resume() noexcept(!Throws) {
        if constexpr (Throws) {
            if (operation_.result())
                detail::raise(operation_);
        } else
            *ec_ = operation_.result();
        return operation_.take();
    }

    /// What is waited for; for adapters to other ways of waiting.
    Operation& operation() noexcept { return operation_; }

private:
    Operation operation_;
    std::error_code* ec_;
    bool begun_ = false;
};

} // namespace rdma::inline RDMACPP_ABI::async

namespace rdma::inline RDMACPP_ABI::detail {

/// What the awaitables share and do not show.
struct async_access {
    template <class Owner>
    static auto* state(Owner const& owner) noexcept {
        return owner.state_;
    }
    template <class Owner, class State>
    static Owner wrap(State* state) noexcept {
        Owner owner;
        owner.state_ = state;
        return owner;
    }
    static limits const& within(async::limits const& from) noexcept { return from.within_; }
};

} // namespace rdma::inline RDMACPP_ABI::detail

#endif
