// SPDX-License-Identifier: MIT
/// @file
/// Many ids on one channel, each with a handler of its own.
#pragma once

#include "config.hpp"
#if __cplusplus >= 202002L && !defined(RDMACPP_TWO_VERSIONS) // otherwise config.hpp says what to do

#include "cm_id.hpp"
#include "detail/address_map.hpp"

#include <cstddef>
#include <cstdint>
#include <system_error>
#include <utility>

namespace rdma::inline RDMACPP_ABI {

class dispatcher;

/// The owner of an id whose events a dispatcher hands out: derive a session from it.
///
/// It may be destroyed at any time, also in its own on_event: the id goes with it, and what still arrives for it is
/// acked and forgotten. It stays where it is, since the dispatcher knows its address. One thread at a time, the one
/// that dispatches.
class id_handler {
public:
    /// Takes an id, whose events come to on_event from now on. The id is moved to the dispatcher's channel, if it is on
    /// another. On failure it is empty, and the id is dropped.
    id_handler(dispatcher& by, cm_id id, std::error_code& ec) noexcept;
#if RDMACPP_EXCEPTIONS
    /// The throwing form. @throws rdma::error errc::empty_handle; as cm_id::migrate
    id_handler(dispatcher& by, cm_id id);
#endif
    id_handler(id_handler const&) = delete;
    id_handler& operator=(id_handler const&) = delete;
    /// Drops the id, as cm_id does; never waits.
    virtual ~id_handler();

    /// The id; empty after take_id. It must not be moved to another channel: take it for that.
    cm_id& id() noexcept { return id_; }
    cm_id const& id() const noexcept { return id_; }

    /// Gives the id back. Its events are nobody's then, until another handler has it.
    [[nodiscard]] cm_id take_id() noexcept;

protected:
    /// Called with each event of the id; a listener's are its requests, whose new id is the event's until it is taken.
    /// The event is acked when this returns or throws, unless it was acked or moved out before. What it throws comes
    /// out of dispatch.
    virtual void on_event(cm_event& event) = 0;

private:
    friend class dispatcher;
    friend class detail::address_map<id_handler>;
    void const* key() const noexcept { return key_; }
    void attach(dispatcher& by, cm_id& id, std::error_code& ec) noexcept;

    cm_id id_;
    void const* key_ = nullptr; // the id's, also when it was moved out of its place
    dispatcher* by_ = nullptr;
    id_handler* next = nullptr; // in the dispatcher's table
};

/// What a dispatcher has done.
struct dispatch_stats {
    std::uint64_t handled = 0; ///< Events that a handler was called with.
    std::uint64_t unowned = 0; ///< Events of ids without a handler: acked, and a new id in them rejected.
};

/// An event channel whose events go to the handlers of their ids.
///
///     loop.when_readable(dispatcher.fd(), [&] { dispatcher.dispatch(); });
///
/// Nothing is lost with edge-triggered descriptors: dispatch ends when there is nothing more. The table from id to
/// handler fails softly: an event whose id has no handler, any more or yet, is acked. One thread at a time, for the
/// dispatcher and its handlers; the ids themselves may be dropped on others.
class dispatcher {
public:
#if RDMACPP_EXCEPTIONS
    /// On a channel of its own. @throws rdma::error as event_channel
    dispatcher() : dispatcher(event_channel()) {}
#endif
    /// On a channel of its own: the twin.
    explicit dispatcher(std::error_code& ec) noexcept : dispatcher(event_channel(ec)) {}
    /// On this channel, which it takes over. Ids that are on it already may get handlers as all others.
    explicit dispatcher(event_channel channel) noexcept : channel_(std::move(channel)) {}
    dispatcher(dispatcher const&) = delete;
    dispatcher& operator=(dispatcher const&) = delete;
    /// The handlers stay, and are told of nothing any more. Also right in a handler.
    virtual ~dispatcher() {
        handlers_.for_each([](id_handler* each) { each->by_ = nullptr; });
        if (gone_)
            *gone_ = true;
    }

    /// Where the events come from.
    event_channel const& channel() const noexcept { return channel_; }
    /// Readable when there may be an event; then call dispatch. -1 when empty.
    int fd() const noexcept { return channel_.fd(); }

    /// How many ids have a handler.
    std::size_t size() const noexcept { return handlers_.size(); }
    /// What it has done.
    dispatch_stats stats() const noexcept { return stats_; }

    /// Hands out the events that are there (rdma_get_cm_event until there is none), and never waits. After an error, or
    /// what a handler throws, the rest is still there: call it again. A handler may call it, too.
    /// @param ec as event_channel::try_get
    /// @return how many events there were
    std::size_t dispatch(std::error_code& ec) {
        std::size_t count = 0;
        bool gone = false;
        watch_gone const watch(*this, gone);
        for (; !gone; ++count) {
            auto event = channel_.try_get(ec);
            if (!event)
                break;
            hand_out(*event);
        }
        return count;
    }
#if RDMACPP_EXCEPTIONS
    /// The throwing form. @throws rdma::error as event_channel::try_get; what a handler throws
    std::size_t dispatch() {
        std::error_code ec;
        std::size_t const count = dispatch(ec);
        if (ec)
            detail::throw_error(ec, "rdma_get_cm_event");
        return count;
    }
#endif

protected:
    /// Called when an id gets a handler, or loses it.
    virtual void on_change() noexcept {}

private:
    friend class id_handler;

    /// Tells the innermost dispatch that the dispatcher is gone, and that one those outside it.
    struct watch_gone {
        dispatcher& self;
        bool& gone;
        bool* const outer;
        watch_gone(dispatcher& by, bool& flag) noexcept : self(by), gone(flag), outer(by.gone_) { by.gone_ = &flag; }
        watch_gone(watch_gone const&) = delete;
        watch_gone& operator=(watch_gone const&) = delete;
        ~watch_gone() {
            if (!gone)
                self.gone_ = outer;
            else if (outer)
                *outer = true;
        }
    };

    void hand_out(cm_event& event) {
        id_handler* const handler = handlers_.find(detail::charged_id(*event.native_handle()));
        ++(handler ? stats_.handled : stats_.unowned);
        if (handler)
            handler->on_event(event);
    }

    event_channel channel_;
    detail::address_map<id_handler> handlers_;
    dispatch_stats stats_;
    bool* gone_ = nullptr; // of the dispatch that goes on
};

inline id_handler::id_handler(dispatcher& by, cm_id id, std::error_code& ec) noexcept { attach(by, id, ec); }

#if RDMACPP_EXCEPTIONS
inline id_handler::id_handler(dispatcher& by, cm_id id) {
    std::error_code ec;
    attach(by, id, ec);
    if (ec)
        detail::throw_error(ec, "rdma_migrate_id");
}
#endif

inline void id_handler::attach(dispatcher& by, cm_id& id, std::error_code& ec) noexcept {
    ec.clear();
    if (!id)
        ec = errc::empty_handle;
    else if (!(id.channel() == by.channel()))
        id.migrate(by.channel(), ec);
    if (ec)
        return;
    id_ = std::move(id);
    key_ = id_.native_handle();
    by_ = &by;
    by.handlers_.insert(this);
    by.on_change();
}

inline cm_id id_handler::take_id() noexcept {
    if (dispatcher* const by = detail::take(by_)) {
        by->handlers_.erase(this);
        by->on_change();
    }
    return std::move(id_);
}

inline id_handler::~id_handler() { cm_id const dropped = take_id(); }

} // namespace rdma::inline RDMACPP_ABI

#endif
