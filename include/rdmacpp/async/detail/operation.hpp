// SPDX-License-Identifier: MIT
// What waits without a thread, and where its news comes from. All on the thread of one loop.
#pragma once

#include "../../config.hpp"
#if __cplusplus >= 202002L && !defined(RDMACPP_TWO_VERSIONS) // otherwise config.hpp says what to do

#include "../../any_stop_token.hpp"
#include "../../detail/atomic.hpp"
#include "../../detail/await.hpp"
#include "../event_loop.hpp"
#include "list.hpp"

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <system_error>
#include <utility>

#include <sys/eventfd.h>
#include <unistd.h>

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

#endif
