// SPDX-License-Identifier: MIT
/// @file
/// A coroutine type for programs that have none, and a place for running ones.
#pragma once

#include "../config.hpp"
#if __cplusplus >= 202002L && !defined(RDMACPP_TWO_VERSIONS) // otherwise config.hpp says what to do

#include "../detail/pin.hpp"
#include "detail/list.hpp"

#include <coroutine>
#include <cstddef>
#include <exception>
#include <optional>
#include <utility>

namespace rdma::inline RDMACPP_ABI::async {

template <class T>
class task;
class tasks;

} // namespace rdma::inline RDMACPP_ABI::async

namespace rdma::inline RDMACPP_ABI::detail {

struct in_tasks;

/// What every task's promise has.
class task_promise : public hook<in_tasks> {
public:
    std::suspend_always initial_suspend() const noexcept { return {}; }
    auto final_suspend() const noexcept {
        struct to_whoever_awaits {
            bool await_ready() const noexcept { return false; }
            std::coroutine_handle<> await_suspend(std::coroutine_handle<>) const noexcept { return next; }
            void await_resume() const noexcept {}
            std::coroutine_handle<> next;
        };
        return to_whoever_awaits{awaiting ? awaiting : std::noop_coroutine()};
    }
    void unhandled_exception() noexcept { failure = std::current_exception(); }
    void rethrow() const {
        if (failure)
            std::rethrow_exception(failure);
    }

    std::coroutine_handle<> awaiting;
    std::exception_ptr failure;
    bool begun = false;
};

template <class T>
class task_promise_of : public task_promise {
public:
    async::task<T> get_return_object() noexcept;
    template <class Value>
    void return_value(Value&& value) {
        result_.emplace(static_cast<Value&&>(value));
    }
    T take() {
        rethrow();
        return std::move(*result_);
    }

private:
    std::optional<T> result_;
};

template <>
class task_promise_of<void> : public task_promise {
public:
    async::task<void> get_return_object() noexcept;
    void return_void() const noexcept {}
    void take() const { rethrow(); }
};

} // namespace rdma::inline RDMACPP_ABI::detail

namespace rdma::inline RDMACPP_ABI::async {

/// A coroutine that begins when it is awaited, started, or given to tasks, and is destroyed with this object, wherever
/// it waits: so dropping a task cancels it, and all that it awaits. Any other coroutine type does, too: the awaitables
/// need nothing of it.
template <class T = void>
class [[nodiscard]] task {
public:
    using promise_type = detail::task_promise_of<T>; ///< For the compiler.

    /// Empty.
    task() noexcept = default;
    task(task&& other) noexcept : frame_(std::exchange(other.frame_, {})) {}
    /// Destroys the coroutine held before.
    task& operator=(task&& other) noexcept {
        task(std::move(other)).swap(*this);
        return *this;
    }
    /// Destroys the coroutine, wherever it waits.
    ~task() {
        if (frame_)
            frame_.destroy();
    }

    explicit operator bool() const noexcept { return static_cast<bool>(frame_); }
    void swap(task& other) noexcept { std::swap(frame_, other.frame_); }
    friend void swap(task& a, task& b) noexcept { a.swap(b); }

    /// Begins, and returns when the coroutine waits, or is done. Precondition: it has not begun.
    void start() {
        frame_.promise().begun = true;
        frame_.resume();
    }
    /// Whether it is done, or empty.
    bool done() const noexcept { return !frame_ || frame_.done(); }
    /// What it returned, or throws what it threw. Precondition: it is done.
    T get() { return frame_.promise().take(); }

    /// Awaited by another coroutine, which goes on when this is done, and gets what it returned, or threw. It may have
    /// been started before.
    auto operator co_await() const noexcept {
        struct awaiter {
            bool await_ready() const noexcept { return frame.done(); }
            bool await_suspend(std::coroutine_handle<> whom) const noexcept { // no deeper for each that is done at once
                if (!std::exchange(frame.promise().begun, true))
                    frame.resume();
                if (frame.done())
                    return false;
                frame.promise().awaiting = whom;
                return true;
            }
            T await_resume() const { return frame.promise().take(); }
            std::coroutine_handle<promise_type> frame;
        };
        return awaiter{frame_};
    }

private:
    template <class>
    friend class detail::task_promise_of;
    friend class tasks;

    explicit task(std::coroutine_handle<promise_type> frame) noexcept : frame_(frame) {}

    std::coroutine_handle<promise_type> frame_;
};

} // namespace rdma::inline RDMACPP_ABI::async

namespace rdma::inline RDMACPP_ABI::detail {

template <class T>
async::task<T> task_promise_of<T>::get_return_object() noexcept {
    return async::task<T>(std::coroutine_handle<task_promise_of>::from_promise(*this));
}
inline async::task<void> task_promise_of<void>::get_return_object() noexcept {
    return async::task<void>(std::coroutine_handle<task_promise_of>::from_promise(*this));
}

/// A coroutine that nobody awaits: it runs a task, and goes by itself.
class detached_task {
public:
    struct promise_type : hook<in_tasks> {
        detached_task get_return_object() noexcept {
            return detached_task(std::coroutine_handle<promise_type>::from_promise(*this));
        }
        std::suspend_always initial_suspend() const noexcept { return {}; }
        std::suspend_never final_suspend() const noexcept { return {}; }
        void return_void() const noexcept {}
        [[noreturn]] void unhandled_exception() const noexcept { std::terminate(); } // as of a std::thread
    };

    explicit detached_task(std::coroutine_handle<promise_type> made) noexcept : frame(made) {}
    std::coroutine_handle<promise_type> frame;
};

} // namespace rdma::inline RDMACPP_ABI::detail

namespace rdma::inline RDMACPP_ABI::async {

/// Running coroutines, each of which goes when it is done; those that are left are destroyed with this object. What
/// escapes from one ends the program, as with a std::thread: catch what a bad client can cause. One thread.
class [[nodiscard]] tasks {
public:
    tasks() noexcept = default;
    tasks(tasks const&) = delete;
    tasks& operator=(tasks const&) = delete;
    /// Destroys those that are not done, wherever they wait.
    ~tasks() { clear(); }

    /// Runs a coroutine: it begins at once, and this returns when it waits, or is done.
    void spawn(task<void> work) {
        detail::detached_task const run = runner(*this, std::move(work));
        running_.push_back(run.frame.promise());
        ++size_;
        run.frame.resume();
    }
    /// How many are not done.
    std::size_t size() const noexcept { return size_; }
    /// Destroys those that are not done. Not to be called by one of them.
    void clear() noexcept {
        while (detail::detached_task::promise_type* const first = running_.pop_front())
            std::coroutine_handle<detail::detached_task::promise_type>::from_promise(*first).destroy();
    }

private:
    struct leaving {
        tasks& all;
        explicit leaving(tasks& from) noexcept : all(from) {}
        leaving(leaving const&) = delete;
        leaving& operator=(leaving const&) = delete;
        ~leaving() { --all.size_; }
    };

    static detail::detached_task runner(tasks& all, task<void> work) {
        leaving const at_end(all);
        co_await work;
    }

    detail::list<detail::detached_task::promise_type, detail::in_tasks> running_;
    std::size_t size_ = 0;
};

} // namespace rdma::inline RDMACPP_ABI::async

#endif
