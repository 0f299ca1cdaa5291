// SPDX-License-Identifier: MIT
//
// rdmacpp 0.1.0
//
// The side of a loop, and of what is waited for, that Asio sees: for the standalone Asio and for Boost's, whose names
// Net lists.
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

#ifndef RDMACPP_SINGLE_ASIO_ADAPTER_HPP // a copy at another place is no harm
#define RDMACPP_SINGLE_ASIO_ADAPTER_HPP

#include "async.hpp"
#include "rdmacpp.hpp"

#if __cplusplus >= 202002L && !defined(RDMACPP_TWO_VERSIONS) // otherwise rdmacpp.hpp says what to do

#include <cerrno>
#include <chrono>
#include <concepts>
#include <memory>
#include <optional>
#include <system_error>
#include <type_traits>
#include <utility>

namespace rdma::inline RDMACPP_ABI::detail {

/// What Asio throws, for want of memory or of a descriptor of its own, as an error code.
template <class Net, class F>
void asio_attempt(F&& f, std::error_code& ec) noexcept {
#if RDMACPP_EXCEPTIONS
    try {
        f();
    } catch (typename Net::system_error const& failed) {
        ec = system_error_code(failed.code().value());
    } catch (...) {
        ec = system_error_code(ENOMEM);
    }
#else
    static_cast<void>(ec);
    f();
#endif
}

/// A descriptor that is watched, or a span of time. Asio's queues keep it while they know of it; once it was dropped,
/// what comes out of them finds nothing to call.
template <class Net>
class asio_watch : public hook<asio_watch<Net>> {
public:
    explicit asio_watch(async::callback call) noexcept : call_(call) {}

    /// Begins; what is made belongs to its registration from here on.
    void read(std::shared_ptr<asio_watch> self, typename Net::executor const& on, int fd, std::error_code& ec) {
        self_ = std::move(self);
        typename Net::error_code failed;
        descriptor_.emplace(on);
        descriptor_->assign(fd, failed);
        if (failed)
            ec = system_error_code(failed.value());
        else
            arm();
    }
    void wait(std::shared_ptr<asio_watch> self, typename Net::executor const& on, timeout span) {
        self_ = std::move(self);
        if (span.milliseconds() == 0)
            return Net::post(on, [kept = self_] { kept->once(); });
        timer_.emplace(on);
        timer_->expires_after(std::chrono::milliseconds(span.milliseconds()));
        timer_->async_wait([kept = self_](typename Net::error_code const&) { kept->once(); });
    }

    /// Calls nothing any more, and has nothing of the context: that may end, and the registration stay.
    void end() noexcept {
        ended_ = true;
        if (descriptor_ && descriptor_->is_open())
            descriptor_->release(); // it is not Asio's to close
        descriptor_.reset();
        timer_.reset();
    }
    static void drop(void* object) noexcept {
        auto* const self = static_cast<asio_watch*>(object);
        std::shared_ptr<asio_watch> const kept = std::move(self->self_);
        static_cast<hook<asio_watch>*>(self)->unlink();
        self->end();
    }

private:
    void arm() {
        descriptor_->async_wait(Net::wait_read,
                                [kept = self_](typename Net::error_code const& ec) { kept->came(!ec); });
    }
    void came(bool well) {
        if (ended_)
            return;
        struct again { // after the call, which has read what there was; also when it throws
            asio_watch& self;
            bool wanted;
            ~again() {
                if (wanted && !self.ended_)
                    self.arm();
            }
        } const at_end{*this, well};
        call_();
    }
    void once() {
        if (!ended_)
            call_();
    }

    async::callback call_;
    std::shared_ptr<asio_watch> self_; // while it is registered
    std::optional<typename Net::descriptor> descriptor_;
    std::optional<typename Net::timer> timer_;
    bool ended_ = false;
};

/// In the cancellation slot of a handler, for as long as the owner of the signal likes: the operation and this know of
/// each other, and whichever goes first tells the other.
class asio_canceller {
public:
    asio_canceller(operation& op, asio_canceller*& place) noexcept : op_(&op), place_(&place) { place = this; }
    asio_canceller(asio_canceller const&) = delete;
    asio_canceller& operator=(asio_canceller const&) = delete;
    ~asio_canceller() {
        if (place_)
            *place_ = nullptr;
    }
    void part() noexcept {
        op_ = nullptr;
        place_ = nullptr;
    }
    template <class Type>
    void operator()(Type type) const noexcept {
        if (op_ && (type & (Type::terminal | Type::partial | Type::total)) != Type::none)
            op_->cancel();
    }

private:
    operation* op_;
    asio_canceller** place_;
};

/// What waits, with its handler.
class asio_waiting : public hook<asio_waiting> {
public:
    asio_waiting() noexcept = default;
    asio_waiting(asio_waiting const&) = delete;
    asio_waiting& operator=(asio_waiting const&) = delete;

    /// Is destroyed, and the handler with it.
    virtual void vanish() noexcept = 0;

protected:
    ~asio_waiting() = default;
};

template <class Net>
class asio_service;

/// What goes when the loop does, or the execution context: what is watched, and what waits. Only the loop's thread
/// touches it.
template <class Net>
class asio_hub : public hook<asio_hub<Net>> {
public:
    using executor = typename Net::executor;

    explicit asio_hub(executor on)
        : executor_(std::move(on)), service_(&Net::template use_service<asio_service<Net>>(executor_)) {
        service_->add(*this);
    }
    asio_hub(asio_hub const&) = delete;
    asio_hub& operator=(asio_hub const&) = delete;
    ~asio_hub() = default;

    executor get_executor() const noexcept { return executor_; }
    bool ended() const noexcept { return ended_; }

    async::registration readable(int fd, async::callback call, std::error_code& ec) noexcept {
        return watch(call, ec, [this, fd, &ec](std::shared_ptr<asio_watch<Net>> const& made) {
            made->read(made, executor_, fd, ec);
        });
    }
    async::registration after(timeout span, async::callback call, std::error_code& ec) noexcept {
        return watch(call, ec,
                     [this, span](std::shared_ptr<asio_watch<Net>> const& made) { made->wait(made, executor_, span); });
    }
    void add(asio_waiting& waiting) noexcept { waiting_.push_back(waiting); }

    /// The context or the loop goes. The handlers that are destroyed may drop anything of ours, and begin nothing.
    void end() noexcept {
        ended_ = true;
        service_ = nullptr;
        while (asio_waiting* const first = waiting_.pop_front())
            first->vanish();
        while (asio_watch<Net>* const first = watches_.pop_front())
            first->end();
        executor_ = executor();
    }
    /// The loop goes.
    void close() noexcept {
        if (service_)
            service_->remove(*this);
        end();
    }

private:
    template <class Begin>
    async::registration watch(async::callback call, std::error_code& ec, Begin begin) noexcept {
        ec.clear();
        std::shared_ptr<asio_watch<Net>> made;
        if (ended_)
            ec = system_error_code(ECANCELED);
        else
            asio_attempt<Net>(
                [&] {
                    made = std::make_shared<asio_watch<Net>>(call);
                    begin(made);
                },
                ec);
        if (ec) {
            if (made)
                asio_watch<Net>::drop(made.get());
            return {};
        }
        watches_.push_back(*made);
        return {made.get(), &asio_watch<Net>::drop};
    }

    executor executor_;
    asio_service<Net>* service_; // until it is ended
    list<asio_watch<Net>, asio_watch<Net>> watches_;
    list<asio_waiting, asio_waiting> waiting_;
    bool ended_ = false;
};

/// How a loop learns that its execution context ends.
template <class Net>
class asio_service final : public Net::execution_context::service {
public:
    static inline typename Net::execution_context::id id; // NOLINT: the name that Asio looks for

    explicit asio_service(typename Net::execution_context& context) : Net::execution_context::service(context) {}

    void add(asio_hub<Net>& hub) noexcept {
        lock_guard const lock(mutex_);
        hubs_.push_back(hub);
    }
    void remove(asio_hub<Net>& hub) noexcept {
        lock_guard const lock(mutex_);
        static_cast<hook<asio_hub<Net>>*>(&hub)->unlink();
    }

private:
    void shutdown() noexcept override {
        for (;;) {
            asio_hub<Net>* first = nullptr;
            {
                lock_guard const lock(mutex_);
                first = hubs_.pop_front();
            }
            if (!first)
                return;
            first->end();
        }
    }

    mutex mutex_; // loops are made on any thread
    list<asio_hub<Net>, asio_hub<Net>> hubs_;
};

/// A handler with what it is called with.
template <class Handler, class Allocator, class... Arguments>
struct asio_completion;

template <class Handler, class Allocator, class Code>
struct asio_completion<Handler, Allocator, Code> {
    using allocator_type = Allocator;
    allocator_type get_allocator() const noexcept { return allocator; }
    void operator()() { std::move(handler)(code); }

    Handler handler;
    Allocator allocator;
    Code code;
};
template <class Handler, class Allocator, class Code, class Value>
struct asio_completion<Handler, Allocator, Code, Value> {
    using allocator_type = Allocator;
    allocator_type get_allocator() const noexcept { return allocator; }
    void operator()() { std::move(handler)(code, std::move(value)); }

    Handler handler;
    Allocator allocator;
    Code code;
    Value value;
};

/// What waits with a handler, in memory of the handler's allocator.
template <class Net, class Handler, class Awaitable>
class asio_operation final : public asio_waiting {
public:
    asio_operation(asio_hub<Net> const& hub, Handler&& handler, Awaitable&& what) noexcept
        : work_(Net::work_for(handler, hub.get_executor())), handler_(std::move(handler)), what_(std::move(what)),
          here_(is_same(work_.get_executor(), hub.get_executor())) {}
    ~asio_operation() { part(); }

    /// Begins, within the initiating function: so what is over already is told later.
    static void begin(asio_hub<Net>& hub, Handler&& handler, Awaitable&& what) {
        memory at(Net::allocator_of(handler));
        auto* const made =
            ::new (static_cast<void*>(at.place)) asio_operation(hub, std::move(handler), std::move(what));
        at.place = nullptr;
        hub.add(*made);
        operation& op = made->what_.operation();
        Net::connect_slot(made->handler_, op, made->canceller_);
        if (op.start() || !op.wait({&asio_operation::done, made}))
            made->template complete<false>();
    }

private:
    using allocator = typename std::allocator_traits<decltype(Net::allocator_of(
        std::declval<Handler const&>()))>::template rebind_alloc<asio_operation>;
    using traits = std::allocator_traits<allocator>;

    struct memory {
        allocator from;
        asio_operation* place;

        template <class Allocator>
        explicit memory(Allocator const& other) : from(other), place(traits::allocate(from, 1)) {}
        memory(allocator const& own, asio_operation* whole) noexcept : from(own), place(whole) {}
        memory(memory const&) = delete;
        memory& operator=(memory const&) = delete;
        ~memory() {
            if (place)
                traits::deallocate(from, place, 1);
        }
    };

    void vanish() noexcept override {
        Handler const last = std::move(handler_); // what it owns may be what the memory is of
        destroy(last);
    }
    void destroy(Handler const& handler) noexcept {
        memory const at(allocator(Net::allocator_of(handler)), this);
        this->~asio_operation();
    }
    /// A signal that is emitted from here on is too late.
    void part() noexcept {
        if (asio_canceller* const theirs = std::exchange(canceller_, nullptr))
            theirs->part();
    }

    template <class Executor>
    static bool is_same(Executor const& its, [[maybe_unused]] typename Net::executor const& loops) noexcept {
        if constexpr (std::same_as<Executor, typename Net::executor>)
            return its == loops;
        else
            return false;
    }

    static void done(void* self) { static_cast<asio_operation*>(self)->template complete<true>(); }

    template <bool Dispatch>
    void complete() {
        if (canceller_)
            Net::clear_slot(handler_);
        auto& op = what_.operation();
        auto const code = Net::code(op.result());
        if constexpr (std::is_void_v<decltype(op.take())>) {
            op.take();
            tell<Dispatch>(code);
        } else
            tell<Dispatch>(code, op.take());
    }
    /// The memory goes before the handler is called: what that begins may have it.
    template <bool Dispatch, class... Arguments>
    void tell(Arguments... arguments) {
        auto const work = std::move(work_);
        [[maybe_unused]] bool const here = here_;
        auto const memory_of = Net::allocator_of(handler_);
        asio_completion<Handler, std::remove_const_t<decltype(memory_of)>, Arguments...> last{
            std::move(handler_), memory_of, std::move(arguments)...};
        destroy(last.handler);
        if constexpr (Dispatch) {
            if (here) // what dispatch would do, but that it would keep what is thrown until others were called, too
                last();
            else
                Net::dispatch(work.get_executor(), std::move(last));
        } else
            Net::post(work.get_executor(), std::move(last));
    }

    decltype(Net::work_for(std::declval<Handler const&>(), std::declval<typename Net::executor>())) work_;
    Handler handler_;
    Awaitable what_;
    bool here_;                           // the handler is called where the loop calls back
    asio_canceller* canceller_ = nullptr; // until the slot has something else
};

/// What is called with, for an operation that gives this.
template <class Net, class Value>
struct asio_signature {
    using type = void(typename Net::error_code, Value);
};
template <class Net>
struct asio_signature<Net, void> {
    using type = void(typename Net::error_code);
};
template <class Net, class Awaitable>
using asio_signature_of = typename asio_signature<Net, decltype(std::declval<Awaitable&>().operation().take())>::type;

template <class T>
inline constexpr bool is_awaitable = false;
template <class Operation, bool Throws>
inline constexpr bool is_awaitable<async::awaitable<Operation, Throws>> = true;

template <class F>
concept makes_awaitable = std::invocable<F&> && is_awaitable<std::invoke_result_t<F&>>;

/// What async_initiate calls.
template <class Net>
struct asio_initiation {
    using executor_type = typename Net::executor;
    executor_type get_executor() const noexcept { return hub->get_executor(); }

    /// On the loop's thread.
    template <class Handler, class Operation, bool Throws>
    void operator()(Handler&& handler, async::awaitable<Operation, Throws> what) const {
        using own_handler = std::decay_t<Handler>;
        own_handler own(static_cast<Handler&&>(handler));
        asio_operation<Net, own_handler, async::awaitable<Operation, Throws>>::begin(*hub, std::move(own),
                                                                                     std::move(what));
    }
    /// On any thread.
    template <class Handler, makes_awaitable Make>
    void operator()(Handler&& handler, Make make) const {
        auto work = Net::work_for(handler, hub->get_executor());
        Net::dispatch(hub->get_executor(), [self = *this, work = std::move(work), make = std::move(make),
                                            own = std::decay_t<Handler>(static_cast<Handler&&>(handler))]() mutable {
            if (!self.hub->ended())
                self(std::move(own), make());
        });
    }

    std::shared_ptr<asio_hub<Net>> hub;
};

} // namespace rdma::inline RDMACPP_ABI::detail

#endif
#endif
