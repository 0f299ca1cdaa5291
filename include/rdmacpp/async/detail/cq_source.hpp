// SPDX-License-Identifier: MIT
// A completion queue that is waited for: each completion goes to the request that is awaited, or to who waits for any.
#pragma once

#include "../../config.hpp"
#if __cplusplus >= 202002L && !defined(RDMACPP_TWO_VERSIONS) // otherwise config.hpp says what to do

#include "../../cq.hpp"
#include "../../qp.hpp"
#include "../../srq.hpp"
#include "../operation.hpp"
#include "channel_source.hpp"
#include "operation.hpp"

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <new>
#include <span>
#include <system_error>
#include <utility>

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

#endif
