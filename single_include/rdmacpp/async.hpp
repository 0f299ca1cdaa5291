// SPDX-License-Identifier: MIT
//
// rdmacpp 0.1.0
//
// Awaitables: connecting, accepting, completions and events for coroutines and callbacks, on any event loop. No thread
// is started, and nothing here waits.
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

#ifndef RDMACPP_SINGLE_ASYNC_HPP // a copy at another place is no harm
#define RDMACPP_SINGLE_ASYNC_HPP

#include "dispatcher.hpp"
#include "rdmacpp.hpp"

#if __cplusplus >= 202002L && !defined(RDMACPP_TWO_VERSIONS) // otherwise rdmacpp.hpp says what to do

#include <cerrno>
#include <chrono>
#include <concepts>
#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <type_traits>
#include <utility>

#include <sys/eventfd.h>
#include <unistd.h>

// ---- async/event_loop.hpp -------------------------------------------------------------------------------------------
// What the awaitables need of an event loop, and any loop that has it.

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

// ---- async/detail/list.hpp ------------------------------------------------------------------------------------------
// Lists whose members take themselves out: nothing is allocated, and nothing that is gone is ever found in one.

namespace rdma::inline RDMACPP_ABI::detail {

/// A place in a circular list.
class place {
public:
    place() noexcept = default;
    place(place&&) noexcept {} // the place is not moved
    place& operator=(place&&) = delete;
    ~place() { unlink(); }

    bool linked() const noexcept { return next_ != nullptr; }
    place* next() const noexcept { return next_; }
    place* previous() const noexcept { return previous_; }

    void unlink() noexcept {
        if (!linked()) // as most are, when they go
            return;
        previous_->next_ = next_;
        next_->previous_ = previous_;
        next_ = previous_ = nullptr;
    }
    /// Takes it out of where it was, and puts it before another.
    void put_before(place& other) noexcept {
        unlink();
        next_ = &other;
        previous_ = other.previous_;
        previous_->next_ = this;
        other.previous_ = this;
    }

    /// The ends of a list: linked to themselves when it is empty.
    void be_ends() noexcept { next_ = previous_ = this; }

private:
    place* next_ = nullptr;
    place* previous_ = nullptr;
};

/// The place of a T in the lists of one kind.
template <class Kind>
class hook : public place {};

/// A list of T, each derived from hook<Kind>.
template <class T, class Kind>
class list {
public:
    list() noexcept { ends_.be_ends(); }
    bool empty() const noexcept { return ends_.next() == &ends_; }
    T* front() const noexcept { return empty() ? nullptr : of(ends_.next()); }
    T* back() const noexcept { return empty() ? nullptr : of(ends_.previous()); }
    void push_back(T& item) noexcept { static_cast<hook<Kind>&>(item).put_before(ends_); }
    T* pop_front() noexcept {
        T* const first = front();
        if (first)
            static_cast<hook<Kind>&>(*first).unlink();
        return first;
    }
    /// The one before, or after, another; null at the end.
    T* before(T const& item) const noexcept { return at(static_cast<hook<Kind> const&>(item).previous()); }
    T* after(T const& item) const noexcept { return at(static_cast<hook<Kind> const&>(item).next()); }
    void put_after(T& item, T* other) noexcept {
        static_cast<hook<Kind>&>(item).put_before(other ? *static_cast<hook<Kind>&>(*other).next() : *ends_.next());
    }

private:
    static T* of(place* node) noexcept { return static_cast<T*>(static_cast<hook<Kind>*>(node)); }
    T* at(place* node) const noexcept { return node == &ends_ ? nullptr : of(node); }

    place ends_;
};

} // namespace rdma::inline RDMACPP_ABI::detail

// ---- async/detail/operation.hpp -------------------------------------------------------------------------------------
// What waits without a thread, and where its news comes from. All on the thread of one loop.

namespace rdma::inline RDMACPP_ABI::detail {

class async_source;

struct in_queue;     // of what is ready
struct in_line;      // of what waits for the same
struct in_deadlines; // of what has a deadline, the next one first
struct in_stops;     // of what has a stop token

class operation;

/// What an operation has that waits and has a deadline, or a stop token.
struct limited : hook<in_deadlines>, hook<in_stops> {
    explicit limited(operation& whose) noexcept : op(whose) {}
    operation& op;
    std::optional<stop_watch> watch; // its end waits for a callback of it that runs on another thread
};

/// What waits: in a coroutine's frame, or in the memory of a callback. It may be destroyed at any time; then nothing
/// knows of it any more.
class operation : public hook<in_queue>, public hook<in_line> {
public:
    [[gnu::always_inline]] explicit operation(limits const& within) noexcept : within_(within) {}
    /// Before it has begun.
    operation(operation&& other) noexcept : within_(std::move(other.within_)) {}
    operation& operator=(operation&&) = delete;
    [[gnu::always_inline]] virtual ~operation() {
        if (waits_)
            forget();
    }

    /// Begins, and tries. @return whether it is over already
    [[gnu::always_inline]] bool start() {
        if (within_.stop.stop_requested() && !insists())
            over_ = fail(system_error_code(ECANCELED));
        else if (begin())
            over_ = true;
        else if (within_.stop || !within_.until.is_never()) {
            if (std::error_code const why = within_.reached()) {
                abandon();
                over_ = fail(why);
            }
        }
        return over_;
    }

    /// It is not over, and waits from here on. @param done called on the loop's thread when it is over; it may destroy
    /// this
    /// @return false if it is over after all: then nothing is called
    bool wait(async::callback done);

    /// Ends it soon, on the loop's thread, unless it is over.
    void cancel() noexcept;

    bool waits() const noexcept { return waits_; }
    /// Whether it has begun and is over.
    bool has_ended() const noexcept { return over_ || result_; }
    /// Why it failed; nothing if it did not.
    std::error_code result() const noexcept { return result_; }

protected:
    /// Begins, and tries. @return whether it is over; failed, if there is a result
    virtual bool begin() = 0;
    /// Whether it is to begin although it was stopped before.
    virtual bool insists() const noexcept { return false; }
    /// There may be news: goes on. @return whether it is over
    virtual bool advance() = 0;
    /// It was late, stopped, or what it waited for is gone: called before it ends, in its own turn.
    virtual void abandon() noexcept {}
    /// Waits, or goes on to: where it is told of news. @return whether there is news by now
    virtual bool enlist() noexcept = 0;

    bool fail(std::error_code why) noexcept {
        result_ = why;
        return true;
    }

    limits within_;
    std::error_code result_;
    async_source* source_ = nullptr; // set by begin; kept while this waits
    bool over_ = false;              // neither late nor stopped any more, and its result stays

private:
    friend class async_source;

    void forget() noexcept;
    void end();

    async::callback done_{};
    bool waits_ = false;
    bool given_up_ = false;
    std::optional<limited> limited_;
};

/// Where news comes from, and to whom it is of interest: a channel, a completion queue. On the heap, and kept by its
/// owner, by what waits for it, and while it runs.
class async_source {
public:
    explicit async_source(async::any_loop loop) noexcept : loop_(loop) {}
    async_source(async_source const&) = delete;
    async_source& operator=(async_source const&) = delete;

    void ref() noexcept { ++refs_; }
    void unref() noexcept {
        if (--refs_ != 0)
            return;
        unwatch(); // while there is a descriptor
        delete this;
    }

    async::any_loop loop() const noexcept { return loop_; }

    /// There is news for it: it is its turn soon.
    void make_ready(operation& op) noexcept {
        mark_ready(op);
        soon();
    }
    /// The same, when serve_all_but follows.
    void mark_ready(operation& op) noexcept {
        if (!static_cast<hook<in_queue>&>(op).linked())
            ready_.push_back(op);
    }
    /// It is the turn of what was marked soon, but for one that sees for itself.
    void serve_all_but(operation const* op) noexcept {
        operation const* const first = ready_.front();
        if (first && (first != op || ready_.after(*first)))
            soon();
    }

    /// It ends in its turn, with this reason. Nothing is dropped before: whoever calls this may be in the midst of it.
    void give_up(operation& op, std::error_code why) noexcept {
        if (op.given_up_ || op.over_)
            return;
        op.given_up_ = true;
        op.result_ = why;
        make_ready(op);
    }

    /// What the loop calls: takes what there is, and tells whom it concerns.
    void run() {
        if (running_) {
            again_ = true;
            return;
        }
        running now(*this);
        if (soon_)
            soon_ = {};
        gather();
        now.gathered = true;
        if (!deadlines_.empty())
            expire();
        if (rung_.load(order::relaxed))
            stop();
        serve();
    }

protected:
    virtual ~async_source() {
        if (bell_ >= 0)
            ::close(bell_);
    }

    /// The descriptor to watch while something waits.
    virtual int fd() const noexcept = 0;
    /// Takes what there is from C, and makes ready whom it concerns.
    virtual void gather() = 0;
    /// Whether to watch although nothing waits.
    virtual bool wanted() const noexcept { return false; }
    /// Something has ceased to wait, having been served or not: the next one may have its news.
    virtual void left(operation const&) noexcept {}

    /// Watches, or ceases to, as it should: what is watched keeps some loops from ending. Where it need not, it rests.
    void settle() noexcept {
        std::error_code ec;
        if (waiting_ != 0 || wanted())
            watch(ec);
        else {
            resting_ = true;
            for (async::registration* const each : {&watched_, &bell_watched_, &timer_})
                if (!each->rest(true))
                    *each = {};
        }
    }

    /// The descriptor goes before those that wait have had their turn.
    void go_deaf() noexcept {
        deaf_ = true;
        if (!loop_.polls())
            watched_ = {};
    }

    /// While it runs: it does so once more, soon.
    void run_again() noexcept { again_ = true; }
    /// Runs soon, if it does not now.
    void soon() noexcept {
        if (running_ || soon_ || loop_.polls())
            return;
        std::error_code ec;
        soon_ = loop_.after(std::chrono::seconds(0), {&run_now, this}, ec);
        if (!soon_ && watch_bell(ec)) // else the next event must do
            strike();
    }

    std::size_t waiting() const noexcept { return waiting_; }
    bool runs() const noexcept { return running_; }

private:
    friend class operation;

    /// While it runs it is kept, and does not run within itself.
    struct running {
        async_source& self;
        bool const idle;
        bool gathered = false;
        explicit running(async_source& source) noexcept : self(source), idle(source.waiting_ == 0 && !source.wanted()) {
            self.ref();
            self.running_ = true;
            self.again_ = false;
        }
        running(running const&) = delete;
        running& operator=(running const&) = delete;
        [[gnu::always_inline]] ~running() { // also when something of the program's throws
            self.running_ = false;
            if (self.again_ || !gathered || !self.ready_.empty())
                self.soon();
            if (idle && self.waiting_ == 0 && !self.wanted())
                self.unwatch(); // it was called for nobody
            else if (self.waiting_ == 0 || !self.watches())
                self.settle();
            self.unref();
        }
    };

    void unwatch() noexcept {
        for (async::registration* const each : {&watched_, &bell_watched_, &timer_})
            *each = {};
    }

    static async_source& of(void* self) noexcept { return *static_cast<async_source*>(self); }
    static void run_now(void* self) { of(self).run(); }
    static void run_late(void* self) {
        of(self).timer_ = {};
        of(self).run();
    }

    bool watches() const noexcept { return watched_ && !resting_; }
    bool watch(std::error_code& ec) noexcept { return watches() || start_watching(ec); }
    bool start_watching(std::error_code& ec) noexcept {
        resting_ = false;
        for (async::registration* const each : {&watched_, &bell_watched_, &timer_})
            each->rest(false);
        if (!watched_ && !deaf_)
            watched_ =
                loop_.polls() ? loop_.each_turn({&run_now, this}, ec) : loop_.readable(fd(), {&run_now, this}, ec);
        return static_cast<bool>(watched_);
    }

    [[gnu::always_inline]] void serve() {
        for (int turns = 256; turns != 0; --turns) { // then the others of the loop have theirs
            operation* const op = ready_.pop_front();
            if (!op)
                return;
            if (op->given_up_)
                op->abandon();
            if (op->given_up_ || op->advance())
                op->end();
            else if (op->enlist())
                ready_.push_back(*op);
        }
    }

    // ---- deadlines

    bool limit(operation& op, std::error_code& ec) noexcept {
        if (op.within_.until.is_never())
            return true;
        limited* before = deadlines_.back(); // most deadlines are later than those of earlier waits
        while (before && before->op.within_.until.nanoseconds() > op.within_.until.nanoseconds())
            before = deadlines_.before(*before);
        deadlines_.put_after(op.limited_.emplace(op), before);
        return set_timer(ec);
    }

    bool set_timer(std::error_code& ec) noexcept {
        limited const* const first = deadlines_.front();
        if (!first || loop_.polls())
            return true;
        std::int64_t const at = first->op.within_.until.nanoseconds();
        if (timer_ && timer_at_ <= at)
            return true;
        async::registration sooner = loop_.after(first->op.within_.until.left(), {&run_late, this}, ec);
        if (!sooner)
            return false;
        timer_ = std::move(sooner);
        timer_at_ = at;
        return true;
    }

    /// What is late ends; and so does what nobody will tell when it is late.
    void expire() noexcept {
        std::error_code ec;
        while (limited* const first = deadlines_.front()) {
            if (first->op.within_.until.passed())
                ec = system_error_code(ETIMEDOUT);
            else if (set_timer(ec))
                return;
            static_cast<hook<in_deadlines>*>(first)->unlink();
            give_up(first->op, ec);
        }
    }

    // ---- stop tokens: asked on any thread, answered on the loop's

    bool watch_stop(operation& op, std::error_code& ec) noexcept {
        if (!op.within_.stop)
            return true;
        if (!loop_.polls() && !watch_bell(ec))
            return false;
        if (!op.limited_)
            op.limited_.emplace(op);
        stops_.push_back(*op.limited_);
        op.limited_->watch.emplace(op.within_.stop, stop_action{&ring, this});
        return true;
    }

    bool watch_bell(std::error_code& ec) noexcept {
        if (bell_ < 0)
            bell_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        if (bell_ < 0)
            ec = system_error_code(errno);
        else if (!bell_watched_)
            bell_watched_ = loop_.readable(bell_, {&answer, this}, ec);
        return static_cast<bool>(bell_watched_);
    }

    void strike() const noexcept {
        std::uint64_t const one = 1;
        [[maybe_unused]] auto const written = ::write(bell_, &one, sizeof one); // fails only when it has rung already
    }
    static void ring(void* self) noexcept {
        of(self).rung_.store(true, order::release);
        if (!of(self).loop_.polls())
            of(self).strike();
    }
    static void answer(void* self) {
        std::uint64_t count = 0;
        [[maybe_unused]] auto const got = ::read(of(self).bell_, &count, sizeof count);
        of(self).run();
    }

    void stop() noexcept {
        if (!rung_.exchange(false, order::acq_rel))
            return;
        for (limited *each = stops_.front(), *following; each; each = following) {
            following = stops_.after(*each);
            if (each->op.within_.stop.stop_requested())
                give_up(each->op, system_error_code(ECANCELED));
        }
    }

    async::any_loop loop_;
    list<operation, in_queue> ready_;
    list<limited, in_deadlines> deadlines_;
    list<limited, in_stops> stops_;
    detail::atomic<bool> rung_{false};
    int bell_ = -1;
    async::registration watched_, bell_watched_, timer_, soon_;
    std::int64_t timer_at_ = 0;
    std::size_t waiting_ = 0;
    unsigned refs_ = 1;
    bool running_ = false;
    bool again_ = false;
    bool deaf_ = false;
    bool resting_ = false; // what is watched
};

/// Keeps a source.
template <class Source>
class keep_source {
public:
    explicit keep_source(Source* source) noexcept : source_(source) {
        if (source_)
            source_->ref();
    }
    keep_source(keep_source&& other) noexcept : source_(take(other.source_)) {}
    keep_source& operator=(keep_source&&) = delete;
    ~keep_source() {
        if (source_)
            source_->unref();
    }
    Source* get() const noexcept { return source_; }
    Source* operator->() const noexcept { return source_; }
    Source& operator*() const noexcept { return *source_; }
    explicit operator bool() const noexcept { return source_ != nullptr; }

private:
    Source* source_;
};

inline bool operation::wait(async::callback done) {
    if (result_) // it has begun some time ago, and what it was about has gone meanwhile
        return false;
    done_ = done;
    waits_ = true;
    source_->ref();
    ++source_->waiting_;
    if (source_->watch(result_) && source_->limit(*this, result_) && source_->watch_stop(*this, result_)) {
        if (!enlist() || !advance())
            return true;
    } else
        abandon();
    forget();
    return false;
}

inline void operation::cancel() noexcept {
    if (waits_)
        source_->give_up(*this, system_error_code(ECANCELED));
}

/// Nothing knows of it any more.
inline void operation::forget() noexcept {
    if (!waits_)
        return;
    waits_ = false;
    static_cast<hook<in_queue>*>(this)->unlink();
    static_cast<hook<in_line>*>(this)->unlink();
    limited_.reset();
    async_source* const source = take(source_);
    source->left(*this);
    if (--source->waiting_ == 0 && !source->running_)
        source->settle();
    source->unref();
}

inline void operation::end() {
    async::callback const done = done_;
    over_ = true;
    forget();
    done();
}

} // namespace rdma::inline RDMACPP_ABI::detail

// ---- async/operation.hpp --------------------------------------------------------------------------------------------
// Operations that wait without a thread, and what makes them awaitable.

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

// ---- async/detail/channel_source.hpp --------------------------------------------------------------------------------
// An event channel whose ids are waited for: each event goes to what waits for its id, or is kept until something does.

namespace rdma::inline RDMACPP_ABI::detail {

/// Events that wait to be asked for, the oldest first. Few ids ever have more than two.
class event_queue {
public:
    event_queue() noexcept = default;
    event_queue(event_queue const&) = delete;
    event_queue& operator=(event_queue const&) = delete;
    ~event_queue() {
        if (events_ != first_)
            delete[] events_;
    }

    bool empty() const noexcept { return size_ == 0; }

    /// @return false without memory: the event is the caller's still
    bool push(cm_event& event) noexcept {
        if (size_ == capacity_ && !grow())
            return false;
        events_[(begin_ + size_++) % capacity_] = std::move(event);
        return true;
    }
    cm_event pop() noexcept {
        cm_event& first = events_[begin_];
        begin_ = (begin_ + 1) % capacity_;
        --size_;
        return std::move(first);
    }

private:
    bool grow() noexcept {
        auto* const wider = new (std::nothrow) cm_event[2 * capacity_];
        if (!wider)
            return false;
        for (std::size_t i = 0; i != size_; ++i)
            wider[i] = std::move(events_[(begin_ + i) % capacity_]);
        if (events_ != first_)
            delete[] events_;
        events_ = wider;
        begin_ = 0;
        capacity_ *= 2;
        return true;
    }

    cm_event first_[2];
    cm_event* events_ = first_;
    std::size_t begin_ = 0, size_ = 0, capacity_ = 2;
};

class awaited_id;
class id_operation;
struct in_id;      // of the operations of one id
struct in_channel; // of the ids of one channel

/// An event channel whose ids are waited for, or have handlers.
class channel_source final : public async_source, public dispatcher {
public:
    channel_source(async::any_loop loop, event_channel channel) noexcept
        : async_source(loop), dispatcher(std::move(channel)) {}

    /// The channel object is gone: what waits ends, and nothing more is got.
    void close() noexcept {
        closed_ = true;
        give_all_up(errc::empty_handle);
        on_change();
        unref();
    }
    bool closed() const noexcept { return closed_; }

private:
    friend class awaited_id;

    int fd() const noexcept override { return dispatcher::fd(); }
    bool wanted() const noexcept override { return !closed_ && size() > awaited_count_; }
    void on_change() noexcept override {
        if (!runs())
            settle();
    }
    void gather() override {
        std::error_code ec;
        if (!closed_)
            dispatch(ec);
        if (!ec)
            return;
        give_all_up(ec);
        if (!wanted())
            return;
        report({diagnostic_kind::channel_failed, "rdma_get_cm_event", channel().native_handle(), ec});
        if (ec != std::errc::bad_file_descriptor)
            run_again(); // the rest may be there still
    }
    void give_all_up(std::error_code why) noexcept;

    list<awaited_id, in_channel> awaited_;
    std::size_t awaited_count_ = 0; // the other ids have handlers of the program's
    bool closed_ = false;
};

/// What is about one id: it waits for its events, or for what was posted to its QP.
class id_operation : public operation, public hook<in_id> {
public:
    id_operation(awaited_id* id, limits const& within) noexcept : operation(within), id_(id) {}
    id_operation(id_operation&&) noexcept = default;
    id_operation& operator=(id_operation&&) = delete;
    [[gnu::always_inline]] ~id_operation() override = default;

protected:
    friend class awaited_id;
    friend class channel_source;

    /// @return false, with a result, if there is no id, or no channel any more
    bool attach() noexcept;
    void detach() noexcept {
        static_cast<hook<in_id>*>(this)->unlink();
        id_ = nullptr;
    }
    void give_up(std::error_code why) noexcept {
        if (waits())
            source_->give_up(*this, why);
        else if (!over_)
            result_ = why;
    }
    /// The dispatcher finds it by its id; but what came since it has begun nobody has told it of.
    bool enlist() noexcept override { return !std::exchange(enlisted_, true); }

    awaited_id* id_;

private:
    bool enlisted_ = false;
};

/// An id whose events are kept until somebody waits for them.
class awaited_id final : public id_handler, public hook<in_channel> {
public:
    /// @return null, with `ec`, and the id dropped
    static awaited_id* make(channel_source& home, cm_id id, std::error_code& ec) noexcept {
        ++home.awaited_count_;
        auto* const made = new (std::nothrow) awaited_id(home, std::move(id), ec);
        if (!made) {
            --home.awaited_count_;
            ec = system_error_code(ENOMEM);
        } else if (ec)
            delete made;
        return ec ? nullptr : made;
    }
    ~awaited_id() override {
        cm_id const dropped = leave();
        home.unref();
    }

    /// What waits for it ends, and the id is nobody's any more.
    cm_id leave() noexcept {
        home.awaited_count_ -= detail::take(counted_);
        cm_id id = take_id();
        for (list<id_operation, in_id>* const all : {&users, &posted})
            while (id_operation* const op = all->front()) {
                op->detach();
                op->give_up(errc::empty_handle);
            }
        return id;
    }

    /// The next of the events that came.
    bool pop(cm_event& event) noexcept {
        if (events_.empty())
            return false;
        event = events_.pop();
        return true;
    }

    channel_source& home;
    list<id_operation, in_id> users;  // wait for its events
    list<id_operation, in_id> posted; // wait for what was posted to its QP
    bool over = false;                // the connection; see says_over
    std::error_code lost;             // why no more comes than is there

private:
    friend class channel_source;

    awaited_id(channel_source& channel, cm_id id, std::error_code& ec) noexcept
        : id_handler(channel, std::move(id), ec), home(channel) {
        home.ref();
        home.awaited_.push_back(*this);
    }
    void on_event(cm_event& event) override {
        over = over || says_over(event);
        if (!events_.push(event))
            lost = system_error_code(ENOMEM);
        for (id_operation* op = users.front(); op; op = users.after(*op))
            if (op->waits())
                home.make_ready(*op);
    }

    event_queue events_;
    std::size_t counted_ = 1;
};

inline bool id_operation::attach() noexcept {
    if (!id_ || id_->home.closed())
        return !fail(errc::empty_handle);
    source_ = &id_->home;
    id_->users.push_back(*this);
    return true;
}

inline void channel_source::give_all_up(std::error_code why) noexcept {
    for (awaited_id* id = awaited_.front(); id; id = awaited_.after(*id))
        for (id_operation* op = id->users.front(); op; op = id->users.after(*op))
            if (closed_ || id->events_.empty())
                op->give_up(why);
            else
                id->lost = why; // first what came before
}

} // namespace rdma::inline RDMACPP_ABI::detail

// ---- async/detail/id_operations.hpp ---------------------------------------------------------------------------------
// What is awaited of one id, a step at a time.

namespace rdma::inline RDMACPP_ABI::async {
class request;
}

namespace rdma::inline RDMACPP_ABI::detail {

/// The next event of an id.
class next_event final : public id_operation {
public:
    using id_operation::id_operation;

    cm_event take() noexcept { return std::move(event_); }
    char const* function() const noexcept { return "rdma_get_cm_event"; }

private:
    bool begin() override { return !attach() || advance(); }
    bool advance() override {
        if (id_->pop(event_))
            return true;
        return id_->lost && fail(id_->lost);
    }

    cm_event event_;
};

/// The next request of a listener; of its other events only its end is worth telling.
class next_request final : public id_operation {
public:
    using id_operation::id_operation;

    async::request take() noexcept;
    char const* function() const noexcept { return "rdma_get_cm_event"; }

private:
    bool begin() override { return !attach() || advance(); }
    bool advance() override {
        while (id_->pop(event_)) {
            if (event_.type() == cm_event_type::connect_request)
                return true;
            bool const removed = event_.type() == cm_event_type::device_removal;
            event_.ack();
            if (removed)
                return fail(system_error_code(ENODEV));
        }
        return id_->lost && fail(id_->lost);
    }

    cm_event event_;
};

/// One step of connecting or accepting: a call, and the event that says it worked, or why not.
class id_step : public id_operation {
public:
    id_step(awaited_id* id, connect_step step, cm_event_type wanted, limits const& within) noexcept
        : id_operation(id, within), step_(step), wanted_(wanted) {}

    void take() noexcept {}
    connect_step step() const noexcept { return step_; }
    bool by_event() const noexcept { return by_event_; }

protected:
    /// @return whether there is an event to wait for
    virtual bool call(cm_id& id, std::error_code& ec) noexcept = 0;

    bool begin() override {
        if (!attach() || (result_ = within_.reached()))
            return true;
        bool const follows = call(id_->id(), result_);
        return result_ || !follows || advance();
    }
    bool advance() override {
        for (cm_event event; id_->pop(event);) {
            if (event.type() == wanted_)
                return true;
            if (std::error_code const why = ends_wait(event)) {
                by_event_ = true;
                return fail(why);
            }
        }
        return id_->lost && fail(id_->lost);
    }

private:
    connect_step step_;
    cm_event_type wanted_;
    bool by_event_ = false;
};

class resolve_addr final : public id_step {
public:
    resolve_addr(awaited_id* id, address const& local, address const& peer, limits const& within) noexcept
        : id_step(id, connect_step::resolve_addr, cm_event_type::addr_resolved, within), local_(local), peer_(peer) {}

private:
    bool call(cm_id& id, std::error_code& ec) noexcept override {
        id.resolve_addr(local_, peer_, within_.left(), ec);
        return true;
    }

    address local_, peer_;
};

class resolve_route final : public id_step {
public:
    resolve_route(awaited_id* id, limits const& within) noexcept
        : id_step(id, connect_step::resolve_route, cm_event_type::route_resolved, within) {}

private:
    bool call(cm_id& id, std::error_code& ec) noexcept override {
        id.resolve_route(within_.left(), ec);
        return true;
    }
};

class connect_id final : public id_step {
public:
    connect_id(awaited_id* id, conn_param const& param, limits const& within) noexcept
        : id_step(id, connect_step::connect, cm_event_type::established, within), param_(param) {}

private:
    bool call(cm_id& id, std::error_code& ec) noexcept override {
        id.connect(param_, ec);
        return true;
    }

    conn_param param_;
};

class accept_id final : public id_step {
public:
    accept_id(awaited_id* id, conn_param const& param, limits const& within) noexcept
        : id_step(id, connect_step::accept, cm_event_type::established, within), param_(param) {}

private:
    bool call(cm_id& id, std::error_code& ec) noexcept override {
        id.accept(param_, ec);
        return id.qp_type() != qp_type::ud; // a datagram id is never told
    }

    conn_param param_;
};

/// Ends a connection.
class disconnect_id final : public id_operation {
public:
    using id_operation::id_operation;

    void take() noexcept {}
    char const* function() const noexcept { return "rdma_disconnect"; }

private:
    bool begin() override {
        if (!attach() || is_over() || id_->id().qp_type() == qp_type::ud)
            return true;
        id_->id().disconnect(result_);
        return result_ || advance();
    }
    bool insists() const noexcept override { return true; }
    bool advance() override {
        if (!others_wait())
            for (cm_event dropped; id_->pop(dropped);)
                ;
        return is_over();
    }
    bool is_over() const noexcept { return id_->over || id_->id().disconnected(); }
    bool others_wait() const noexcept { return id_->users.front() != this || id_->users.back() != this; }
};

} // namespace rdma::inline RDMACPP_ABI::detail

// ---- async/event_channel.hpp ----------------------------------------------------------------------------------------
// Event channels that a loop watches.

namespace rdma::inline RDMACPP_ABI::async {

/// An event channel for any number of ids, watched by a loop: each event goes to what waits for its id, or is kept with
/// the id until something does. An id with an id_handler on dispatch() has its events handed to that.
///
/// It is watched while something waits, or has a handler: a loop that ends when there is nothing to do ends. The object
/// may be dropped before its ids; what waits on it then ends with errc::empty_handle. All of it belongs to the loop's
/// thread, and the loop outlives it.
class [[nodiscard]] event_channel {
public:
    /// Empty.
    event_channel() noexcept = default;
#if RDMACPP_EXCEPTIONS
    /// Opens a channel (rdma_create_event_channel).
    /// @throws rdma::error as rdma::event_channel
    explicit event_channel(any_loop loop) {
        std::error_code ec;
        *this = event_channel(loop, ec);
        if (ec)
            ::rdma::RDMACPP_ABI::detail::throw_error(ec, "rdma_create_event_channel");
    }
#endif
    /// The twin: empty on failure.
    event_channel(any_loop loop, std::error_code& ec) noexcept {
        ::rdma::event_channel opened(ec);
        if (!ec)
            *this = event_channel(loop, std::move(opened), ec);
    }
    /// Takes over a channel, whose ids are moved in with cm_id. @param ec std::errc::not_enough_memory
    event_channel(any_loop loop, ::rdma::event_channel channel, std::error_code& ec) noexcept
        : state_(new (std::nothrow) detail::channel_source(loop, std::move(channel))) {
        ec = state_ ? std::error_code() : detail::system_error_code(ENOMEM);
    }
    event_channel(event_channel&& other) noexcept : state_(detail::take(other.state_)) {}
    /// Drops the channel held before.
    event_channel& operator=(event_channel&& other) noexcept {
        event_channel(std::move(other)).swap(*this);
        return *this;
    }
    /// What waits on it ends; the C channel goes with the last of its ids. Never waits.
    ~event_channel() {
        if (state_)
            state_->close();
    }

    explicit operator bool() const noexcept { return state_ != nullptr; }
    void swap(event_channel& other) noexcept { detail::swap_values(state_, other.state_); }
    friend void swap(event_channel& a, event_channel& b) noexcept { a.swap(b); }

    /// The loop that watches it. Precondition, asserted: it is not empty.
    any_loop loop() const noexcept {
        RDMACPP_ASSERT(state_);
        return state_->loop();
    }
    /// For ids with a handler of their own (id_handler). Precondition, asserted: it is not empty.
    dispatcher& dispatch() const noexcept {
        RDMACPP_ASSERT(state_);
        return *state_;
    }
    /// A view of the channel, to make ids on.
    operator event_channel_ref() const& noexcept {
        return state_ ? event_channel_ref(state_->channel().native_handle()) : event_channel_ref();
    }
    operator event_channel_ref() const&& = delete;
    /// What went through it.
    channel_stats stats() const noexcept { return state_ ? state_->channel().stats() : channel_stats(); }

private:
    friend struct detail::async_access;

    detail::channel_source* state_ = nullptr;
};

static_assert(detail::move_only<event_channel> && sizeof(event_channel) == sizeof(void*));

} // namespace rdma::inline RDMACPP_ABI::async

// ---- async/cm_id.hpp ------------------------------------------------------------------------------------------------
// Ids whose events are awaited.

namespace rdma::inline RDMACPP_ABI::async {

/// An owned id on a channel that a loop watches. What takes time is awaited; all else is done with the id itself:
///
///     co_await id.resolve_addr(peer);
///     co_await id.resolve_route();
///     id->create_qp(attr);
///     id->post_recv(...);
///     co_await id.connect(param, limits);
///
/// It may be dropped at any time, also while something waits for it, which ends with errc::empty_handle then. Whatever
/// waits is a coroutine's own: destroyed, it is forgotten. All of it belongs to the loop's thread.
class [[nodiscard]] cm_id {
public:
    /// Empty.
    cm_id() noexcept = default;
#if RDMACPP_EXCEPTIONS
    /// Makes an id (rdma_create_id). @throws rdma::error as ::rdma::cm_id
    cm_id(event_channel const& channel, ::rdma::port_space ps) {
        std::error_code ec;
        *this = cm_id(channel, ps, ec);
        if (ec)
            detail::throw_error(ec, "rdma_create_id");
    }
    /// Takes over an id, and moves it to this channel if it is on another (rdma_migrate_id): one that another thread
    /// made, for example. @throws rdma::error errc::empty_handle; as ::rdma::cm_id::migrate
    cm_id(event_channel const& channel, ::rdma::cm_id id) {
        std::error_code ec;
        *this = cm_id(channel, std::move(id), ec);
        if (ec)
            detail::throw_error(ec, "rdma_migrate_id");
    }
#endif
    /// The twins: empty on failure; an id that was given is dropped then.
    cm_id(event_channel const& channel, ::rdma::port_space ps, std::error_code& ec) noexcept {
        ::rdma::cm_id id(channel, ps, ec);
        if (!ec)
            *this = cm_id(channel, std::move(id), ec);
    }
    cm_id(event_channel const& channel, ::rdma::cm_id id, std::error_code& ec) noexcept {
        ec = errc::empty_handle;
        if (channel)
            state_ = detail::awaited_id::make(*detail::async_access::state(channel), std::move(id), ec);
    }
    cm_id(cm_id&& other) noexcept : state_(detail::take(other.state_)) {}
    /// Drops the id held before, at once.
    cm_id& operator=(cm_id&& other) noexcept {
        cm_id(std::move(other)).swap(*this);
        return *this;
    }
    /// Drops the id, as ::rdma::cm_id does; what waits for it ends.
    ~cm_id() { delete state_; }

    explicit operator bool() const noexcept { return state_ != nullptr; }
    void swap(cm_id& other) noexcept { detail::swap_values(state_, other.state_); }
    friend void swap(cm_id& a, cm_id& b) noexcept { a.swap(b); }

    /// The id itself. It must not be moved to another channel: take it for that. Precondition, asserted: not empty.
    ::rdma::cm_id& operator*() const noexcept {
        RDMACPP_ASSERT(state_);
        return state_->id();
    }
    ::rdma::cm_id* operator->() const noexcept { return &**this; }
    operator cm_id_ref() const& noexcept { return state_ ? cm_id_ref(state_->id()) : cm_id_ref(); }
    operator cm_id_ref() const&& = delete;

    /// Gives the id back; what waits for it ends, and events that were not awaited are acked. Empty afterwards.
    [[nodiscard]] ::rdma::cm_id take() noexcept {
        ::rdma::cm_id id = state_ ? state_->leave() : ::rdma::cm_id();
        delete detail::take(state_);
        return id;
    }

    /// Whether its connection is over, as far as its events have told: also those that nobody has waited for yet. False
    /// when empty.
    bool is_over() const noexcept { return state_ && state_->over; }

#if RDMACPP_EXCEPTIONS
    /// Waits for its next event: the first one that came since the last, or that comes.
    /// @return the event, which is acked when it is dropped
    /// @throws rdma::error std::errc::timed_out, std::errc::operation_canceled; errc::empty_handle when the id or its
    /// channel is dropped meanwhile
    auto next(limits within = {}) const noexcept {
        return awaitable<detail::next_event, true>(nullptr, state_, detail::async_access::within(within));
    }
    /// Resolves the peer's address (rdma_resolve_addr), from a given local one, whose port may be 0, until
    /// ADDR_RESOLVED.
    /// @throws connect_error what ::rdma::cm_id::resolve_addr and the event say; std::errc::timed_out,
    /// std::errc::operation_canceled; errc::empty_handle when the id or its channel is dropped meanwhile. All of
    /// these throw the same
    auto resolve_addr(address const& local, address const& peer,
                      limits within = std::chrono::seconds(2)) const noexcept {
        return awaitable<detail::resolve_addr, true>(nullptr, state_, local, peer,
                                                     detail::async_access::within(within));
    }
    /// The same; the system chooses the local address.
    auto resolve_addr(address const& peer, limits within = std::chrono::seconds(2)) const noexcept {
        return resolve_addr(address(), peer, std::move(within));
    }
    /// Finds the route to the peer (rdma_resolve_route), until ROUTE_RESOLVED. @throws connect_error
    auto resolve_route(limits within = std::chrono::seconds(2)) const noexcept {
        return awaitable<detail::resolve_route, true>(nullptr, state_, detail::async_access::within(within));
    }
    /// Asks the peer for a connection (rdma_connect), until ESTABLISHED. When it fails, is late or stopped, what the
    /// kernel is still at is over only with the id. On iWARP the call itself may block, as ::rdma::cm_id::connect says.
    /// @throws connect_error
    auto connect(conn_param const& param = {}, limits within = std::chrono::seconds(10)) const noexcept {
        return awaitable<detail::connect_id, true>(nullptr, state_, param, detail::async_access::within(within));
    }
    /// Accepts the request that brought the id (rdma_accept), until ESTABLISHED; for datagrams there is nothing to wait
    /// for. @throws connect_error
    auto accept(conn_param const& param = {}, limits within = std::chrono::seconds(10)) const noexcept {
        return awaitable<detail::accept_id, true>(nullptr, state_, param, detail::async_access::within(within));
    }
    /// Ends the connection (rdma_disconnect), until both sides know, or at once if they do. Events that came and were
    /// not awaited are dropped, unless something else waits for them.
    /// @throws rdma::error std::errc::timed_out: the connection is being ended all the same; as disconnect()
    auto disconnect(limits within = std::chrono::seconds(10)) const noexcept {
        return awaitable<detail::disconnect_id, true>(nullptr, state_, detail::async_access::within(within));
    }
#endif
    /// The twins: what is awaited gives nothing, and sets `ec`, which must outlive the wait.
    auto next(limits within, std::error_code& ec) const noexcept {
        return awaitable<detail::next_event, false>(&ec, state_, detail::async_access::within(within));
    }
    auto next(std::error_code& ec) const noexcept { return next({}, ec); }
    auto resolve_addr(address const& local, address const& peer, limits within, std::error_code& ec) const noexcept {
        return awaitable<detail::resolve_addr, false>(&ec, state_, local, peer, detail::async_access::within(within));
    }
    auto resolve_addr(address const& peer, limits within, std::error_code& ec) const noexcept {
        return resolve_addr(address(), peer, std::move(within), ec);
    }
    auto resolve_addr(address const& peer, std::error_code& ec) const noexcept {
        return resolve_addr(address(), peer, std::chrono::seconds(2), ec);
    }
    auto resolve_route(limits within, std::error_code& ec) const noexcept {
        return awaitable<detail::resolve_route, false>(&ec, state_, detail::async_access::within(within));
    }
    auto resolve_route(std::error_code& ec) const noexcept { return resolve_route(std::chrono::seconds(2), ec); }
    auto connect(conn_param const& param, limits within, std::error_code& ec) const noexcept {
        return awaitable<detail::connect_id, false>(&ec, state_, param, detail::async_access::within(within));
    }
    auto connect(conn_param const& param, std::error_code& ec) const noexcept {
        return connect(param, std::chrono::seconds(10), ec);
    }
    auto accept(conn_param const& param, limits within, std::error_code& ec) const noexcept {
        return awaitable<detail::accept_id, false>(&ec, state_, param, detail::async_access::within(within));
    }
    auto accept(conn_param const& param, std::error_code& ec) const noexcept {
        return accept(param, std::chrono::seconds(10), ec);
    }
    auto disconnect(limits within, std::error_code& ec) const noexcept {
        return awaitable<detail::disconnect_id, false>(&ec, state_, detail::async_access::within(within));
    }
    auto disconnect(std::error_code& ec) const noexcept { return disconnect(std::chrono::seconds(10), ec); }

private:
    friend struct detail::async_access;

    detail::awaited_id* state_ = nullptr;
};

static_assert(detail::move_only<cm_id> && detail::nothrow_empty<cm_id> && sizeof(cm_id) == sizeof(void*));

} // namespace rdma::inline RDMACPP_ABI::async

// ---- async/detail/connecting.hpp ------------------------------------------------------------------------------------
// Connecting and accepting, step by step, each step begun by the event of the one before.

namespace rdma::inline RDMACPP_ABI::detail {

/// What owns the id that it brings up: dropped unfinished, the id goes with it.
class bringing_up : public id_operation {
public:
    bringing_up(channel_source* home, limits const& within, connect_report* report) noexcept
        : id_operation(nullptr, within), home_(home), into_(report) {}
    bringing_up(bringing_up&&) noexcept = default;
    bringing_up& operator=(bringing_up&&) = delete;
    ~bringing_up() override { drop(); }

    /// The id, when all went well.
    async::cm_id take() noexcept {
        static_cast<hook<in_id>*>(this)->unlink();
        return async_access::wrap<async::cm_id>(detail::take(id_));
    }
    connect_step step() const noexcept { return report_.step; }
    bool by_event() const noexcept { return by_event_; }

protected:
    /// The id is this operation's from here on.
    bool own(cm_id id) noexcept {
        if (!result_)
            id_ = awaited_id::make(*home_, std::move(id), result_);
        return !result_ && attach();
    }
    bool is_open() noexcept {
        if (!home_ || home_->closed())
            return !fail(errc::empty_handle);
        source_ = home_.get();
        return true;
    }

    /// Takes events until the wanted one. @return whether that came; a result says that it never will
    bool came(cm_event_type wanted) noexcept {
        for (cm_event event; id_->pop(event);) {
            std::error_code const why = event.type() == wanted ? std::error_code() : ends_wait(event);
            if (event.type() != wanted && !why)
                continue;
            report_.note(event);
            by_event_ = static_cast<bool>(why);
            result_ = why;
            return !why;
        }
        if (id_->lost)
            result_ = id_->lost;
        return false;
    }
    /// It goes on, or is over.
    bool over(bool done) noexcept {
        if (result_)
            drop();
        if (done || result_)
            tell();
        return done || result_;
    }
    void abandon() noexcept override {
        tell();
        drop();
    }

    void drop() noexcept {
        static_cast<hook<in_id>*>(this)->unlink();
        delete detail::take(id_);
    }

    connect_report report_;

private:
    void tell() noexcept {
        if (into_)
            *into_ = report_;
    }

    keep_source<channel_source> home_;
    connect_report* into_;
    bool by_event_ = false;
};

template <class Prepare>
class async_connecting final : public bringing_up {
public:
    /// @param last create_qp, or connect
    async_connecting(channel_source* home, address const& peer, connect_options const& options, Prepare prepare,
                     connect_step last) noexcept
        : bringing_up(home, {deadline::after(options.limit), options.stop}, options.report), peer_(peer),
          options_(options), prepare_(std::move(prepare)), last_(last) {}

private:
    bool begin() override {
        if (!is_open())
            return over(true);
        if (options_.interrupt_signal != 0 && !interrupter::is_handled(options_.interrupt_signal))
            return over(fail(errc::signal_unhandled));
        event_channel_ref const channel(static_cast<channel_source*>(source_)->channel().native_handle());
        cm_id id(channel, options_.port_space, result_);
        if (!own(std::move(id)))
            return over(true);
        if (reach(connect_step::resolve_addr))
            id_->id().resolve_addr(options_.local, peer_, within_.left(), result_);
        return over(false);
    }
    bool insists() const noexcept override { return true; } // so that the report says which step was reached

    bool advance() override {
        if (!id_)
            return over(true);
        if (report_.step == connect_step::resolve_addr && came(cm_event_type::addr_resolved) &&
            reach(connect_step::resolve_route))
            id_->id().resolve_route(within_.left(), result_);
        if (!result_ && report_.step == connect_step::resolve_route && came(cm_event_type::route_resolved)) {
            if (reach(connect_step::create_qp))
                make_qp();
            if (!result_ && last_ == connect_step::create_qp)
                return over(true);
            if (!result_ && reach(connect_step::connect))
                connect();
        }
        return over(!result_ && report_.step == connect_step::connect && came(cm_event_type::established));
    }

    /// Goes on to a step. @return false if it is too late for that
    bool reach(connect_step step) noexcept {
        report_.step = step;
        result_ = within_.reached();
        return !result_;
    }

    void make_qp() noexcept {
        id_->id().create_qp(options_.pd, options_.qp, result_);
        if (!result_)
            prepare_(id_->id(), result_);
    }

    /// On iWARP the call may block. A signal that is not meant for it does not end it.
    void connect() noexcept {
        interrupter const in_time(options_.interrupt_signal, within_.until, within_.stop);
        do {
            id_->id().connect(options_.param, result_);
            if (result_ != std::errc::interrupted)
                return;
            result_ = within_.reached();
        } while (!result_);
    }

    address peer_;
    connect_options options_;
    Prepare prepare_;
    connect_step last_;
};

template <class Prepare>
class async_accepting final : public bringing_up {
public:
    async_accepting(channel_source* home, cm_id undecided, accept_options const& options, Prepare prepare) noexcept
        : bringing_up(home, {deadline::after(options.limit), options.stop}, options.report),
          undecided_(std::move(undecided)), options_(options), prepare_(std::move(prepare)) {}

private:
    bool begin() override {
        report_.step = connect_step::migrate;
        if (!is_open() || !own(std::move(undecided_)))
            return over(true);
        cm_id& id = id_->id();
        report_.step = connect_step::create_qp;
        id.create_qp(options_.pd, options_.qp, result_);
        if (!result_)
            prepare_(id, result_);
        if (!result_) {
            report_.step = connect_step::accept;
            id.accept(options_.param, result_);
        }
        return over(!result_ && id.qp_type() == qp_type::ud); // a datagram id is never told
    }
    bool advance() override { return over(!id_ || came(cm_event_type::established)); }

    cm_id undecided_;
    accept_options options_;
    Prepare prepare_;
};

} // namespace rdma::inline RDMACPP_ABI::detail

// ---- async/acceptor.hpp ---------------------------------------------------------------------------------------------
// Accepting connections without a thread for each.

namespace rdma::inline RDMACPP_ABI::async {

#if RDMACPP_EXCEPTIONS
/// Accepts the request that brought an id, on this channel, to which it is moved if it is on another: so an acceptor of
/// one thread can give its requests to workers. Makes the QP, accepts, and waits until the connection is ESTABLISHED.
/// On failure, and when the coroutine is destroyed, the peer is rejected.
/// @param undecided of cm_event::take_id, or request::take_id
/// @param prepare called as `prepare(id, ec)` when the QP is there, before it is accepted; it must not throw
/// @return the connected id @throws connect_error as request::accept of ::rdma::acceptor
template <std::invocable<::rdma::cm_id&, std::error_code&> Prepare = detail::prepare_nothing>
auto accept(event_channel const& channel, ::rdma::cm_id undecided, accept_options const& options = {},
            Prepare prepare = {}) noexcept {
    return awaitable<detail::async_accepting<Prepare>, true>(nullptr, detail::async_access::state(channel),
                                                             std::move(undecided), options, std::move(prepare));
}
#endif
/// The twins: what is awaited gives an empty id, and sets `ec`, which must outlive the wait.
template <std::invocable<::rdma::cm_id&, std::error_code&> Prepare>
auto accept(event_channel const& channel, ::rdma::cm_id undecided, accept_options const& options, Prepare prepare,
            std::error_code& ec) noexcept {
    return awaitable<detail::async_accepting<Prepare>, false>(&ec, detail::async_access::state(channel),
                                                              std::move(undecided), options, std::move(prepare));
}
inline auto accept(event_channel const& channel, ::rdma::cm_id undecided, accept_options const& options,
                   std::error_code& ec) noexcept {
    return accept(channel, std::move(undecided), options, detail::prepare_nothing(), ec);
}

/// A request for a connection: a CONNECT_REQUEST, and the new id that it brings. Dropped, the peer is rejected. While
/// it is held, the listener's port is in use.
class [[nodiscard]] request {
public:
    /// No request.
    request() noexcept = default;
    explicit request(cm_event event) noexcept : event_(std::move(event)) {}

    explicit operator bool() const noexcept { return static_cast<bool>(event_); }

    /// The CONNECT_REQUEST: its private data, parameters and addresses.
    cm_event& event() & noexcept { return event_; }
    cm_event const& event() const& noexcept { return event_; }
    cm_event const& event() const&& = delete;

    /// The address of who asks.
    address peer_addr() const noexcept { return event_ ? event_.id().peer_addr() : address(); }
    /// The address that was asked.
    address local_addr() const noexcept { return event_ ? event_.id().local_addr() : address(); }

    /// The new id, undecided, for accept(). The request is empty afterwards, and so is the id if it was already.
    [[nodiscard]] ::rdma::cm_id take_id() noexcept {
        std::error_code ec;
        ::rdma::cm_id id = event_ ? event_.take_id(ec) : ::rdma::cm_id();
        event_.ack();
        return id;
    }

    /// Rejects it (rdma_reject), with private data. Empty afterwards.
    void reject(std::span<std::byte const> private_data, std::error_code& ec) noexcept {
        ec = errc::empty_handle;
        if (::rdma::cm_id id = take_id())
            id.reject(private_data, ec);
    }
    /// The same, without private data.
    void reject(std::error_code& ec) noexcept { reject({}, ec); }
#if RDMACPP_EXCEPTIONS
    /// The throwing form. @throws rdma::error as ::rdma::cm_id::reject
    void reject(std::span<std::byte const> private_data = {}) {
        std::error_code ec;
        reject(private_data, ec);
        if (ec)
            detail::throw_error(ec, "rdma_reject", {std::to_string(private_data.size()), " bytes"});
    }
#endif

private:
    cm_event event_;
};

/// A listener on a channel that a loop watches:
///
///     while (rdma::async::request request = co_await acceptor.next())
///         sessions.spawn(session(channel, request.take_id()));
///
/// All of it belongs to the loop's thread.
class [[nodiscard]] acceptor {
public:
    /// Empty.
    acceptor() noexcept = default;
#if RDMACPP_EXCEPTIONS
    /// Listens on an address (rdma_bind_addr, rdma_listen); port 0 lets the system choose.
    /// @throws rdma::error as ::rdma::acceptor
    acceptor(event_channel const& channel, address const& local, acceptor_options const& options = {}) {
        std::error_code ec;
        char const* const function = open(channel, local, options, ec);
        if (ec)
            detail::throw_error(ec, function, {to_string(local)});
    }
#endif
    /// The twin: empty on failure.
    acceptor(event_channel const& channel, address const& local, acceptor_options const& options,
             std::error_code& ec) noexcept {
        open(channel, local, options, ec);
    }
    acceptor(event_channel const& channel, address const& local, std::error_code& ec) noexcept
        : acceptor(channel, local, {}, ec) {}

    explicit operator bool() const noexcept { return static_cast<bool>(listener_); }

    /// The listening id.
    cm_id& id() noexcept { return listener_; }
    /// Where it listens, with the real port.
    address local_addr() const noexcept { return listener_ ? listener_->local_addr() : address(); }

#if RDMACPP_EXCEPTIONS
    /// Waits for the next request: the first one that came since the last, or that comes.
    /// @return the request
    /// @throws rdma::error std::errc::timed_out, std::errc::operation_canceled, ENODEV when the device was removed;
    /// errc::empty_handle when the acceptor or the channel is dropped meanwhile
    auto next(limits within = {}) const noexcept {
        return awaitable<detail::next_request, true>(nullptr, detail::async_access::state(listener_),
                                                     detail::async_access::within(within));
    }
#endif
    /// The twins: what is awaited gives no request, and sets `ec`, which must outlive the wait.
    auto next(limits within, std::error_code& ec) const noexcept {
        return awaitable<detail::next_request, false>(&ec, detail::async_access::state(listener_),
                                                      detail::async_access::within(within));
    }
    auto next(std::error_code& ec) const noexcept { return next({}, ec); }

private:
    /// @return the last C function that was called
    char const* open(event_channel const& channel, address const& local, acceptor_options const& options,
                     std::error_code& ec) noexcept {
        ::rdma::cm_id id(channel, options.port_space, ec);
        if (ec)
            return "rdma_create_id";
        char const* const function = detail::listen(id, local, options, ec);
        if (!ec)
            listener_ = cm_id(channel, std::move(id), ec);
        return function;
    }

    cm_id listener_;
};

static_assert(detail::move_only<acceptor> && detail::move_only<request>);

} // namespace rdma::inline RDMACPP_ABI::async

namespace rdma::inline RDMACPP_ABI::detail {

inline async::request next_request::take() noexcept { return async::request(std::move(event_)); }

} // namespace rdma::inline RDMACPP_ABI::detail

// ---- async/connect.hpp ----------------------------------------------------------------------------------------------
// Connecting, as one thing to wait for.

namespace rdma::inline RDMACPP_ABI::async {

#if RDMACPP_EXCEPTIONS
/// Connects to an address: resolves it, finds the route, makes the QP, asks for the connection and waits until it is
/// ESTABLISHED, all within one deadline, which begins with this call; connect_options::stop ends it, too.
///
/// When it fails, is late or stopped, or the coroutine is destroyed, the id is, and so whatever the kernel was still at
/// is over. (On iWARP the kernel holds the destroy of an id in mid-connect, and rdma_connect to a host that does not
/// answer may block: see connect_options::interrupt_signal.)
/// @param prepare called as `prepare(id, ec)` when the QP is there and before the connection is asked for, on the
/// loop's thread: post receives here. It must not throw. For more than that, await resolve, and then cm_id::connect.
/// @param options name them before: g++ 12 destroys what is written in braces within `co_await` twice, and with it a
/// stop token
/// @return the connected id
/// @throws connect_error with the step, as ::rdma::connect
template <std::invocable<::rdma::cm_id&, std::error_code&> Prepare = detail::prepare_nothing>
auto connect(event_channel const& channel, address const& peer, connect_options const& options = {},
             Prepare prepare = {}) noexcept {
    return awaitable<detail::async_connecting<Prepare>, true>(nullptr, detail::async_access::state(channel), peer,
                                                              options, std::move(prepare), connect_step::connect);
}
/// The first half of it, up to the point where the QP is there: the rest is cm_id::connect.
/// @return the id, with a QP @throws connect_error
inline auto resolve(event_channel const& channel, address const& peer, connect_options const& options = {}) noexcept {
    return awaitable<detail::async_connecting<detail::prepare_nothing>, true>(
        nullptr, detail::async_access::state(channel), peer, options, detail::prepare_nothing(),
        connect_step::create_qp);
}
#endif

/// The twins: what is awaited gives an empty id, and sets `ec`, which must outlive the wait.
template <std::invocable<::rdma::cm_id&, std::error_code&> Prepare>
auto connect(event_channel const& channel, address const& peer, connect_options const& options, Prepare prepare,
             std::error_code& ec) noexcept {
    return awaitable<detail::async_connecting<Prepare>, false>(&ec, detail::async_access::state(channel), peer, options,
                                                               std::move(prepare), connect_step::connect);
}
inline auto connect(event_channel const& channel, address const& peer, connect_options const& options,
                    std::error_code& ec) noexcept {
    return connect(channel, peer, options, detail::prepare_nothing(), ec);
}
inline auto resolve(event_channel const& channel, address const& peer, connect_options const& options,
                    std::error_code& ec) noexcept {
    return awaitable<detail::async_connecting<detail::prepare_nothing>, false>(
        &ec, detail::async_access::state(channel), peer, options, detail::prepare_nothing(), connect_step::create_qp);
}

} // namespace rdma::inline RDMACPP_ABI::async

// ---- async/detail/cq_source.hpp -------------------------------------------------------------------------------------
// A completion queue that is waited for: each completion goes to the request that is awaited, or to who waits for any.

namespace rdma::inline RDMACPP_ABI::detail {

class posted_operation;

/// Which request is whose. A completion carries a place in this table and the number of its tenant, never an address:
/// so it may come at any time after who waited for it is gone, and finds nobody.
class posted_table {
public:
    posted_table() noexcept = default;
    posted_table(posted_table const&) = delete;
    posted_table& operator=(posted_table const&) = delete;
    ~posted_table() { delete[] places_; }

    static bool is_ours(std::uint64_t wr_id) noexcept { return (wr_id & mark) != 0; }

    /// @return the number for a request; 0 without memory
    std::uint64_t enter(posted_operation& op) noexcept {
        if (free_ == none && !grow())
            return 0;
        std::uint32_t const at = free_;
        place& here = places_[at];
        free_ = here.next_free;
        here.op = &op;
        ++used_;
        return mark | std::uint64_t{here.tenant} << 32 | at;
    }
    /// What waits for it; null if it is gone.
    posted_operation* find(std::uint64_t wr_id) const noexcept {
        auto const at = static_cast<std::uint32_t>(wr_id);
        auto const tenant = static_cast<std::uint32_t>(wr_id >> 32) & ~(std::uint32_t{1} << 31);
        return at < size_ && places_[at].tenant == tenant ? places_[at].op : nullptr;
    }
    template <class Work>
    void for_each(Work work) const noexcept {
        for (std::uint32_t at = 0; at != size_; ++at)
            if (places_[at].op)
                work(*places_[at].op);
    }
    /// The same; it has left then.
    posted_operation* take(std::uint64_t wr_id) noexcept {
        posted_operation* const op = find(wr_id);
        if (op)
            leave(wr_id);
        return op;
    }
    void leave(std::uint64_t wr_id) noexcept {
        auto const at = static_cast<std::uint32_t>(wr_id);
        place& here = places_[at];
        here.op = nullptr;
        here.tenant = (here.tenant + 1) & ~(std::uint32_t{1} << 31);
        here.next_free = free_;
        free_ = at;
        --used_;
    }
    std::size_t used() const noexcept { return used_; }

private:
    static constexpr std::uint64_t mark = std::uint64_t{1} << 63; // no address that a program uses as a number has it
    static constexpr std::uint32_t none = UINT32_MAX;

    struct place {
        posted_operation* op = nullptr;
        std::uint32_t tenant = 0;
        std::uint32_t next_free = none;
    };

    bool grow() noexcept {
        std::uint32_t const wider = size_ == 0 ? 16 : 2 * size_;
        auto* const places = new (std::nothrow) place[wider];
        if (!places)
            return false;
        for (std::uint32_t i = 0; i != size_; ++i)
            places[i] = places_[i];
        for (std::uint32_t i = wider; i != size_; --i) {
            places[i - 1].next_free = free_;
            free_ = i - 1;
        }
        delete[] places_;
        places_ = places;
        size_ = wider;
        return true;
    }

    place* places_ = nullptr;
    std::uint32_t size_ = 0;
    std::uint32_t free_ = none;
    std::size_t used_ = 0;
};

inline constexpr std::size_t completion_batch = 16; // that are polled at once

/// Completions that nobody has asked for yet, the oldest first.
class completion_queue {
public:
    completion_queue() noexcept = default;
    completion_queue(completion_queue const&) = delete;
    completion_queue& operator=(completion_queue const&) = delete;
    ~completion_queue() {
        if (all_ != first_)
            delete[] all_;
    }

    bool empty() const noexcept { return begin_ == end_; }
    /// Room for a batch behind the last, to be polled into.
    bool make_room() noexcept { return end_ + completion_batch <= capacity_ || move_up() || grow(); }
    std::span<work_completion> room() noexcept { return {all_ + end_, completion_batch}; }
    /// Adds one that is in the room, at its beginning or behind those that were passed over.
    void keep(work_completion const& one) noexcept {
        if (all_ + end_ != &one)
            all_[end_] = one;
        ++end_;
    }
    std::size_t pop(std::span<work_completion> into) noexcept {
        std::size_t const n = into.size() < end_ - begin_ ? into.size() : end_ - begin_;
        for (std::size_t i = 0; i != n; ++i)
            into[i] = all_[begin_ + i];
        begin_ += n;
        if (begin_ == end_)
            begin_ = end_ = 0;
        return n;
    }

private:
    /// To the front, if that is worth it: each is moved once for one that has gone.
    bool move_up() noexcept {
        std::size_t const size = end_ - begin_;
        if (begin_ < size || size + completion_batch > capacity_)
            return false;
        move_to(all_);
        return true;
    }
    bool grow() noexcept {
        auto* const all = new (std::nothrow) work_completion[2 * capacity_];
        if (!all)
            return false;
        move_to(all);
        if (all_ != first_)
            delete[] all_;
        all_ = all;
        capacity_ *= 2;
        return true;
    }
    void move_to(work_completion* all) noexcept {
        for (std::size_t i = begin_; i != end_; ++i)
            all[i - begin_] = all_[i];
        end_ -= begin_;
        begin_ = 0;
    }

    work_completion first_[completion_batch]; // so that there is always room for one batch
    work_completion* all_ = first_;
    std::size_t begin_ = 0, end_ = 0, capacity_ = completion_batch;
};

/// Armed before it is drained, so that nothing that comes in between is missed; and armed no more often than events
/// come.
class cq_source final : public async_source {
public:
    /// @param own what `queue` is a view of, if it is this source's
    cq_source(async::any_loop loop, comp_channel channel, cq own, cq_ref queue) noexcept
        : async_source(loop), channel_(std::move(channel)), own_(std::move(own)), queue_(queue), kept_(keeper(queue)) {}

    cq_ref queue() const noexcept { return queue_; }
    bool closed() const noexcept { return closed_; }

    /// The owner is gone: what waits ends.
    void close() noexcept {
        closed_ = true;
        give_all_up(errc::empty_handle);
        unref();
    }

    /// Completions for who waits for any. @param now it does not wait for the event @return how many there are by now
    [[gnu::always_inline]] std::size_t take(std::span<work_completion> into, bool now, std::error_code& ec) noexcept {
        if (backlog_.empty()) {
            if (armed_ && !undrained_ && !now)
                return 0; // what comes raises an event
            drain(ec);
        }
        std::size_t const n = backlog_.pop(into);
        if (n != 0 && ec)
            ec.clear(); // it is there the next time, too
        if (undrained_)
            soon(); // there is room again
        serve_all_but(nullptr);
        return n;
    }

    /// Waits for any; behind those that do already.
    bool has_waiters() const noexcept { return !waiters_.empty(); }
    bool wait_for_any(operation& op, std::error_code& ec) noexcept {
        if (closed_)
            ec = errc::empty_handle;
        else {
            if (!static_cast<hook<in_line>&>(op).linked())
                waiters_.push_back(op);
            prime(op, ec);
        }
        return ec || (waiters_.front() == &op && !backlog_.empty());
    }

    /// Before something waits: if the queue is not armed, it is, and then drained.
    [[gnu::always_inline]] void prime(operation const& op, std::error_code& ec) noexcept {
        if (loop().polls() || armed_)
            return;
        arm(ec);
        if (!ec)
            drain(ec);
        rouse(&op);
    }

    posted_table posted;

private:
    ~cq_source() override {
        if (armed_) // what is armed raises an event that nobody waits for any more
            keeper(queue_)->event_due.store(true, order::relaxed);
    }

    int fd() const noexcept override { return keeper(queue_)->channel->object()->fd; }

    void gather() override {
        std::error_code ec;
        if (armed_ && completion_wait::take_event(queue_, ec))
            armed_ = false;
        if (!ec && (has_waiters() || posted.used() != 0) && (!armed_ || undrained_)) {
            if (!armed_ && !loop().polls())
                arm(ec);
            if (!ec)
                drain(ec);
            if (undrained_ && !has_waiters()) // who would make room
                ec = system_error_code(ENOMEM);
        }
        if (ec)
            give_all_up(ec);
        rouse(nullptr);
    }
    void left(operation const&) noexcept override { rouse(nullptr); }

    [[gnu::always_inline]] void arm(std::error_code& ec) noexcept {
        if (keeper(queue_)->event_due.exchange(false, order::relaxed)) // of an earlier wait
            while (completion_wait::take_event(queue_, ec))
                ;
        if (ec)
            return;
        int const refused = ::ibv_req_notify_cq(queue_.native_handle(), 0);
        armed_ = refused == 0;
        if (!armed_)
            ec = check_returned(refused);
    }

    /// Until the queue is empty: what comes after that raises an event, since it was armed before.
    void drain(std::error_code& ec) noexcept;
    void sort(work_completion const& one) noexcept;
    /// Tells who waits, but for one that sees for itself.
    void rouse(operation const* but) noexcept {
        operation* const first = waiters_.front();
        if (first && first != but && !backlog_.empty())
            mark_ready(*first);
        serve_all_but(but);
    }

    void give_all_up(std::error_code why) noexcept;

    comp_channel channel_;
    cq own_;
    cq_ref queue_;
    keep kept_;
    list<operation, in_line> waiters_;
    completion_queue backlog_;
    bool armed_ = false; // and drained since
    bool undrained_ = false;
    bool closed_ = false;
};

/// A request that was posted, and its completion.
class posted_operation : public id_operation {
public:
    posted_operation(cq_source* home, awaited_id* id, limits const& within) noexcept
        : id_operation(id, within), home_(home) {}
    posted_operation(posted_operation&&) noexcept = default;
    posted_operation& operator=(posted_operation&&) = delete;
    [[gnu::always_inline]] ~posted_operation() override { leave(); }

    /// It has left the table.
    void complete(work_completion const& one) noexcept {
        number_ = 0;
        static_cast<hook<in_id>*>(this)->unlink();
        completion_ = one.native_handle();
        completion_.wr_id = wr_id_;
        over_ = true;
        if (waits())
            source_->mark_ready(*this);
    }

    /// It will not complete, or nobody will know.
    void end(std::error_code why) noexcept {
        leave();
        give_up(why);
    }

    work_completion take() const noexcept { return work_completion(completion_); }

protected:
    /// Posts the request under this number. @param wr_id set to what the program had numbered it
    virtual std::errc post(std::uint64_t number, std::uint64_t& wr_id) noexcept = 0;
    virtual bool has_queue() const noexcept = 0;

    bool begin() override {
        if (!home_ || home_->closed())
            return fail(errc::empty_handle);
        source_ = home_.get();
        number_ = home_->posted.enter(*this);
        if (number_ == 0)
            return fail(system_error_code(ENOMEM));
        if (std::errc const refused = post(number_, wr_id_); refused != std::errc{}) [[unlikely]] {
            leave();
            return fail(has_queue() ? check_returned(static_cast<int>(refused)) : std::error_code(errc::empty_handle));
        }
        if (id_)
            id_->posted.push_back(*this);
        return false;
    }
    bool advance() override { return over_ || result_; }
    bool enlist() noexcept override {
        home_->prime(*this, result_);
        return over_ || result_;
    }
    void abandon() noexcept override { leave(); }

private:
    void leave() noexcept {
        if (number_ == 0)
            return;
        home_->posted.leave(detail::take(number_));
        static_cast<hook<in_id>*>(this)->unlink();
    }

    keep_source<cq_source> home_;
    std::uint64_t number_ = 0;
    std::uint64_t wr_id_ = 0;
    ibv_wc completion_{};
};

/// The next completions of those that nobody in particular waits for.
class next_completions final : public operation {
public:
    next_completions(cq_source* home, std::span<work_completion> into, limits const& within) noexcept
        : operation(within), home_(home), into_(into) {}

    std::span<work_completion> take() const noexcept { return into_.first(taken_); }
    char const* function() const noexcept { return "ibv_poll_cq"; }

private:
    bool begin() override {
        if (!home_ || home_->closed())
            return fail(errc::empty_handle);
        if (into_.empty())
            return fail(system_error_code(EINVAL));
        source_ = home_.get();
        return !home_->has_waiters() && advance();
    }
    bool advance() override {
        if (!result_)
            taken_ = home_->take(into_, within_.until.passed(), result_);
        return taken_ != 0 || result_;
    }
    bool enlist() noexcept override { return home_->wait_for_any(*this, result_); }

    keep_source<cq_source> home_;
    std::span<work_completion> into_;
    std::size_t taken_ = 0;
};

/// The next one of them.
class next_completion final : public operation {
public:
    next_completion(cq_source* home, limits const& within) noexcept : operation(within), home_(home) {}

    work_completion take() const noexcept { return one_; }
    char const* function() const noexcept { return "ibv_poll_cq"; }

private:
    bool begin() override {
        if (!home_ || home_->closed())
            return fail(errc::empty_handle);
        source_ = home_.get();
        return !home_->has_waiters() && advance();
    }
    bool advance() override {
        return result_ || home_->take({&one_, 1}, within_.until.passed(), result_) != 0 || result_;
    }
    bool enlist() noexcept override { return home_->wait_for_any(*this, result_); }

    keep_source<cq_source> home_;
    work_completion one_;
};

/// A request on a send queue.
class posted_send final : public posted_operation {
public:
    posted_send(cq_source* home, awaited_id* id, qp_ref qp, send_wr const& request, limits const& within) noexcept
        : posted_operation(home, id, within), qp_(qp), request_(request) {}

    char const* function() const noexcept { return "ibv_post_send"; }

private:
    std::errc post(std::uint64_t number, std::uint64_t& wr_id) noexcept override {
        if (!qp_)
            return std::errc::invalid_argument;
        wr_id = request_.native_handle().wr_id;
        request_.id(number).signaled();
        return qp_.post_send(request_, std::nothrow);
    }
    bool has_queue() const noexcept override { return static_cast<bool>(qp_); }

    qp_ref qp_;
    send_wr request_;
};

/// A request on a receive queue, of a QP or shared.
template <class Queue>
class posted_recv final : public posted_operation {
public:
    posted_recv(cq_source* home, awaited_id* id, Queue queue, recv_wr const& request, limits const& within) noexcept
        : posted_operation(home, id, within), queue_(queue), request_(request) {}

    char const* function() const noexcept { return "ibv_post_recv"; }

private:
    std::errc post(std::uint64_t number, std::uint64_t& wr_id) noexcept override {
        if (!queue_)
            return std::errc::invalid_argument;
        wr_id = request_.native_handle().wr_id;
        request_.id(number);
        return queue_.post_recv(request_, std::nothrow);
    }
    bool has_queue() const noexcept override { return static_cast<bool>(queue_); }

    Queue queue_;
    recv_wr request_;
};

inline void cq_source::drain(std::error_code& ec) noexcept {
    for (;;) {
        undrained_ = !backlog_.make_room();
        if (undrained_)
            return; // who waits for any takes first
        std::span<work_completion> const some = backlog_.room();
        int const n = queue_.poll(some, std::nothrow);
        if (n < 0)
            ec = errc::poll_failed;
        for (int i = 0; i < n; ++i)
            sort(some[static_cast<std::size_t>(i)]);
        if (n < static_cast<int>(completion_batch))
            return;
    }
}

inline void cq_source::sort(work_completion const& one) noexcept {
    if (!posted_table::is_ours(one.wr_id()))
        backlog_.keep(one);
    else if (posted_operation* const op = posted.take(one.wr_id()))
        op->complete(one);
}

inline void cq_source::give_all_up(std::error_code why) noexcept {
    for (operation* op = waiters_.front(); op; op = waiters_.after(*op))
        async_source::give_up(*op, why);
    posted.for_each([why](posted_operation& op) { op.end(why); });
}

} // namespace rdma::inline RDMACPP_ABI::detail

// ---- async/cq.hpp ---------------------------------------------------------------------------------------------------
// Completions that are awaited, and requests that are.

namespace rdma::inline RDMACPP_ABI::async {

/// A completion queue that a loop watches. A request is posted and awaited in one:
///
///     rdma::work_completion done = co_await cq.post_send(id, rdma::send_wr::send(region.sge()));
///     if (!done) ...
///
/// and what the program posts and numbers by itself comes to who awaits next. (Numbers with the highest bit are the
/// queue's own, which no address has.)
///
/// A request outlives who awaits it: the device may still be at it when the coroutine is gone. Its completion then
/// finds nobody and is forgotten. Its memory must stay registered until then, or go with its mr, which ends the
/// device's use of it, and the connection with that.
///
/// Nothing that comes while it is being armed is missed. With a loop that never sleeps it is polled in each turn, and
/// never armed. Nothing is allocated for a message. All of it belongs to the loop's thread; QPs may be posted to on
/// others. What waits ends with errc::empty_handle when the object is dropped.
class [[nodiscard]] cq {
public:
    /// Empty.
    cq() noexcept = default;
#if RDMACPP_EXCEPTIONS
    /// Makes a completion queue, and a channel for it, unless the loop never sleeps.
    /// @param device cm_id::verbs, or one of rdma::devices
    /// @param cqe how many completions it must hold
    /// @throws rdma::error as ::rdma::cq and comp_channel
    cq(any_loop loop, context_ref device, int cqe) {
        std::error_code ec;
        *this = cq(loop, device, cqe, ec);
        if (ec)
            detail::throw_error(ec, "ibv_create_cq", {std::to_string(cqe), " entries"});
    }
    /// Watches a queue that there is, such as one that librdmacm made for an id: its channel must be for it alone. It
    /// is kept alive.
    /// @throws rdma::error errc::empty_handle; std::errc::invalid_argument if it has no channel, and the loop sleeps
    cq(any_loop loop, cq_ref queue) {
        std::error_code ec;
        *this = cq(loop, queue, ec);
        if (ec)
            detail::throw_error(ec, "ibv_req_notify_cq");
    }
#endif
    /// The twins: empty on failure.
    cq(any_loop loop, context_ref device, int cqe, std::error_code& ec) noexcept {
        ec.clear();
        comp_channel channel;
        if (!loop.polls())
            channel = comp_channel(device, ec);
        if (ec)
            return;
        ::rdma::cq own(device, cqe, channel, ec);
        if (!ec)
            open(loop, std::move(channel), std::move(own), {}, ec);
    }
    cq(any_loop loop, cq_ref queue, std::error_code& ec) noexcept {
        ec.clear();
        if (!queue)
            ec = errc::empty_handle;
        else if (!loop.polls() && (!detail::keeper(queue) || !detail::keeper(queue)->channel))
            ec = detail::system_error_code(EINVAL);
        if (!ec)
            open(loop, {}, {}, queue, ec);
    }
    cq(cq&& other) noexcept : state_(detail::take(other.state_)) {}
    /// Drops the queue held before.
    cq& operator=(cq&& other) noexcept {
        cq(std::move(other)).swap(*this);
        return *this;
    }
    /// What waits on it ends; the C queue goes with the last QP that uses it.
    ~cq() {
        if (state_)
            state_->close();
    }

    explicit operator bool() const noexcept { return state_ != nullptr; }
    void swap(cq& other) noexcept { detail::swap_values(state_, other.state_); }
    friend void swap(cq& a, cq& b) noexcept { a.swap(b); }

    /// The queue, to make QPs with. Whoever polls it by hand takes completions away from those that wait.
    operator cq_ref() const& noexcept { return state_ ? state_->queue() : cq_ref(); }
    operator cq_ref() const&& = delete;

#if RDMACPP_EXCEPTIONS
    /// Waits for the next completion of what the program has numbered by itself. Several may wait: each completion goes
    /// to one, the first to wait first.
    /// @return the completion, which may say that it failed
    /// @throws rdma::error errc::poll_failed; std::errc::timed_out, std::errc::operation_canceled; errc::empty_handle
    /// when the object is dropped meanwhile
    auto next(limits within = {}) const noexcept {
        return awaitable<detail::next_completion, true>(nullptr, state_, detail::async_access::within(within));
    }
    /// Waits for the next completions, one at least. @param into where they go: it must outlive the wait
    /// @return the part of it that was filled @throws rdma::error as the other, and std::errc::invalid_argument for
    /// nothing to fill
    auto next(std::span<work_completion> into, limits within = {}) const noexcept {
        return awaitable<detail::next_completions, true>(nullptr, state_, into, detail::async_access::within(within));
    }

    /// Posts a request to the QP of an id (ibv_post_send), signalled, and waits for its completion, which this queue
    /// must get. When the id is dropped meanwhile, the wait ends with errc::empty_handle.
    /// @return the completion, which may say that it failed
    /// @throws rdma::error the errno of ibv_post_send, when it was not posted; as next
    auto post_send(cm_id const& id, send_wr const& request, limits within = {}) const noexcept {
        return awaitable<detail::posted_send, true>(nullptr, state_, detail::async_access::state(id), qp_of(id),
                                                    request, detail::async_access::within(within));
    }
    /// The same, for any QP: when it goes, nobody tells, and only the limits end the wait.
    auto post_send(qp_ref qp, send_wr const& request, limits within = {}) const noexcept {
        return awaitable<detail::posted_send, true>(nullptr, state_, nullptr, qp, request,
                                                    detail::async_access::within(within));
    }
    /// Posts a receive to the QP of an id (ibv_post_recv), and waits until a message has come into it.
    /// @return the completion, which may say that it failed @throws rdma::error the errno of ibv_post_recv; as
    /// post_send
    auto post_recv(cm_id const& id, recv_wr const& request, limits within = {}) const noexcept {
        return awaitable<detail::posted_recv<qp_ref>, true>(nullptr, state_, detail::async_access::state(id), qp_of(id),
                                                            request, detail::async_access::within(within));
    }
    /// The same, for any QP, or for a shared receive queue.
    auto post_recv(qp_ref qp, recv_wr const& request, limits within = {}) const noexcept {
        return awaitable<detail::posted_recv<qp_ref>, true>(nullptr, state_, nullptr, qp, request,
                                                            detail::async_access::within(within));
    }
    auto post_recv(srq_ref srq, recv_wr const& request, limits within = {}) const noexcept {
        return awaitable<detail::posted_recv<srq_ref>, true>(nullptr, state_, nullptr, srq, request,
                                                             detail::async_access::within(within));
    }
#endif
    /// The twins: what is awaited gives what there is, and sets `ec`, which must outlive the wait.
    auto next(limits within, std::error_code& ec) const noexcept {
        return awaitable<detail::next_completion, false>(&ec, state_, detail::async_access::within(within));
    }
    auto next(std::error_code& ec) const noexcept { return next(limits(), ec); }
    auto next(std::span<work_completion> into, limits within, std::error_code& ec) const noexcept {
        return awaitable<detail::next_completions, false>(&ec, state_, into, detail::async_access::within(within));
    }
    auto next(std::span<work_completion> into, std::error_code& ec) const noexcept { return next(into, {}, ec); }
    auto post_send(cm_id const& id, send_wr const& request, limits within, std::error_code& ec) const noexcept {
        return awaitable<detail::posted_send, false>(&ec, state_, detail::async_access::state(id), qp_of(id), request,
                                                     detail::async_access::within(within));
    }
    auto post_send(cm_id const& id, send_wr const& request, std::error_code& ec) const noexcept {
        return post_send(id, request, {}, ec);
    }
    auto post_send(qp_ref qp, send_wr const& request, limits within, std::error_code& ec) const noexcept {
        return awaitable<detail::posted_send, false>(&ec, state_, nullptr, qp, request,
                                                     detail::async_access::within(within));
    }
    auto post_send(qp_ref qp, send_wr const& request, std::error_code& ec) const noexcept {
        return post_send(qp, request, {}, ec);
    }
    auto post_recv(cm_id const& id, recv_wr const& request, limits within, std::error_code& ec) const noexcept {
        return awaitable<detail::posted_recv<qp_ref>, false>(&ec, state_, detail::async_access::state(id), qp_of(id),
                                                             request, detail::async_access::within(within));
    }
    auto post_recv(cm_id const& id, recv_wr const& request, std::error_code& ec) const noexcept {
        return post_recv(id, request, {}, ec);
    }
    auto post_recv(qp_ref qp, recv_wr const& request, limits within, std::error_code& ec) const noexcept {
        return awaitable<detail::posted_recv<qp_ref>, false>(&ec, state_, nullptr, qp, request,
                                                             detail::async_access::within(within));
    }
    auto post_recv(qp_ref qp, recv_wr const& request, std::error_code& ec) const noexcept {
        return post_recv(qp, request, {}, ec);
    }
    auto post_recv(srq_ref srq, recv_wr const& request, limits within, std::error_code& ec) const noexcept {
        return awaitable<detail::posted_recv<srq_ref>, false>(&ec, state_, nullptr, srq, request,
                                                              detail::async_access::within(within));
    }
    auto post_recv(srq_ref srq, recv_wr const& request, std::error_code& ec) const noexcept {
        return post_recv(srq, request, {}, ec);
    }

private:
    static qp_ref qp_of(cm_id const& id) noexcept { return id ? id->qp() : qp_ref(); }

    void open(any_loop loop, comp_channel channel, ::rdma::cq own, cq_ref other, std::error_code& ec) noexcept {
        cq_ref const queue = own ? cq_ref(own) : other;
        state_ = new (std::nothrow) detail::cq_source(loop, std::move(channel), std::move(own), queue);
        if (!state_)
            ec = detail::system_error_code(ENOMEM);
    }

    detail::cq_source* state_ = nullptr;
};

static_assert(detail::move_only<cq> && detail::nothrow_empty<cq> && sizeof(cq) == sizeof(void*));

} // namespace rdma::inline RDMACPP_ABI::async

// ---- async/detail/events_source.hpp ---------------------------------------------------------------------------------
// Any channel, whose events go to whoever waits first.

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

// ---- async/events.hpp -----------------------------------------------------------------------------------------------
// The events of any channel, awaited one by one.

namespace rdma::inline RDMACPP_ABI::async {

/// The events of one channel, of any kind, whoever they are for: device events, completion events, or connection events
/// where the program looks at the ids by itself.
///
///     rdma::async::events device(loop, context.async_channel());
///     rdma::async_event event = co_await device.next();
///
/// Several coroutines may wait; each event goes to one. What is there is got until there is nothing more, as
/// edge-triggered loops need. The channel must outlive this. One thread, the loop's.
template <class Channel>
class [[nodiscard]] events {
public:
    /// Empty.
    events() noexcept = default;
#if RDMACPP_EXCEPTIONS
    /// Of this channel. @throws rdma::error std::errc::not_enough_memory
    events(any_loop loop, Channel const& channel) {
        std::error_code ec;
        *this = events(loop, channel, ec);
        if (ec)
            detail::throw_error(ec, detail::get_name<typename detail::events_source<Channel>::event>);
    }
#endif
    /// The twin: empty on failure.
    events(any_loop loop, Channel const& channel, std::error_code& ec) noexcept
        : state_(new (std::nothrow) detail::events_source<Channel>(loop, channel)) {
        ec = state_ ? std::error_code() : detail::system_error_code(ENOMEM);
    }
    events(events&& other) noexcept : state_(detail::take(other.state_)) {}
    /// Drops what was held before.
    events& operator=(events&& other) noexcept {
        detail::events_source<Channel>* const mine = state_;
        state_ = detail::take(other.state_);
        if (mine)
            mine->close();
        return *this;
    }
    /// What waits ends with errc::empty_handle.
    ~events() {
        if (state_)
            state_->close();
    }

    explicit operator bool() const noexcept { return state_ != nullptr; }

#if RDMACPP_EXCEPTIONS
    /// Waits for the next event. @return the event, which is acked when it is dropped
    /// @throws rdma::error as Channel::try_get; std::errc::timed_out, std::errc::operation_canceled;
    /// errc::empty_handle when the object is dropped meanwhile
    auto next(limits within = {}) const noexcept {
        return awaitable<detail::next_of<Channel>, true>(nullptr, state_, detail::async_access::within(within));
    }
#endif
    /// The twins: what is awaited gives an empty event, and sets `ec`, which must outlive the wait.
    auto next(limits within, std::error_code& ec) const noexcept {
        return awaitable<detail::next_of<Channel>, false>(&ec, state_, detail::async_access::within(within));
    }
    auto next(std::error_code& ec) const noexcept { return next({}, ec); }

private:
    detail::events_source<Channel>* state_ = nullptr;
};

} // namespace rdma::inline RDMACPP_ABI::async

// ---- async/poll_loop.hpp --------------------------------------------------------------------------------------------
// A loop that never sleeps.

namespace rdma::inline RDMACPP_ABI::async {

/// A loop for programs that poll, such as storage targets: `poll()` runs what is ready, and returns. There is no
/// descriptor and no timer in it, and it never sleeps: completion queues are polled, channels are asked, deadlines are
/// compared with the clock.
///
///     while (!done) {
///         loop.poll();
///         ...; // whatever else the thread does
///     }
///
/// One thread.
class poll_loop {
public:
    poll_loop() noexcept = default;
    poll_loop(poll_loop const&) = delete;
    poll_loop& operator=(poll_loop const&) = delete;
    ~poll_loop() = default;

    /// One turn: everything that waits is looked at once. What a coroutine or a handler throws comes out of it, and the
    /// rest has its turn in the next one.
    void poll() {
        std::uint64_t const now = ++count_;
        turn here; // a place among them: whoever goes meanwhile takes himself out, and it stays
        for (turn* each = turns_.front(); each && each->since < now; each = turns_.after(here)) {
            turns_.put_after(here, each);
            if (each->call.call)
                each->call();
        }
    }

    /// Whether something waits.
    bool waits() const noexcept { return waiting_ != 0; }

    /// Calls back in each turn, until the registration is dropped: for what waits, and for the program's own.
    /// @param ec ENOMEM
    registration each_turn(callback call, std::error_code& ec) noexcept {
        auto* const made = new (std::nothrow) turn;
        if (!made) {
            ec = detail::system_error_code(ENOMEM);
            return {};
        }
        made->call = call;
        made->loop = this;
        made->since = count_;
        ++waiting_;
        turns_.push_back(*made);
        return {made, &drop, &rest};
    }

private:
    struct turn : detail::hook<turn> {
        callback call{};
        poll_loop* loop = nullptr;
        std::uint64_t since = 0; // the turn in which it came, which is not its own
        bool rests = false;
    };

    static void rest(void* object, bool on) noexcept {
        auto& self = *static_cast<turn*>(object);
        if (self.rests != on)
            self.loop->waiting_ += on ? std::size_t(-1) : 1;
        self.rests = on;
    }
    static void drop(void* object) noexcept {
        rest(object, true);
        delete static_cast<turn*>(object);
    }

    detail::list<turn, turn> turns_;
    std::size_t waiting_ = 0;
    std::uint64_t count_ = 0; // of turns
};

static_assert(polling_loop<poll_loop>);

} // namespace rdma::inline RDMACPP_ABI::async

// ---- async/task.hpp -------------------------------------------------------------------------------------------------
// A coroutine type for programs that have none, and a place for running ones.

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

// ---- async.hpp ------------------------------------------------------------------------------------------------------
// Awaitables: connecting, accepting, completions and events for coroutines and callbacks, on any event loop. No thread
// is started, and nothing here waits.

/// @namespace rdma::async
/// What is awaited, and what a loop must be able to do for it. Nothing here blocks: a call begins something, and the
/// loop's turns go on with it. All of it belongs to the thread of the loop that it was made with, which outlives it.

#endif
#endif
