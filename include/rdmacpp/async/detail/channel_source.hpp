// SPDX-License-Identifier: MIT
// An event channel whose ids are waited for: each event goes to what waits for its id, or is kept until something does.
#pragma once

#include "../../config.hpp"
#if __cplusplus >= 202002L && !defined(RDMACPP_TWO_VERSIONS) // otherwise config.hpp says what to do

#include "../../detail/await.hpp"
#include "../../disconnect.hpp"
#include "../../dispatcher.hpp"
#include "../operation.hpp"
#include "operation.hpp"

#include <cerrno>
#include <cstddef>
#include <new>
#include <system_error>
#include <utility>

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

#endif
