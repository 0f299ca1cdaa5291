// SPDX-License-Identifier: MIT
/// @file
/// Where the asynchronous events of a device are got.
#pragma once

#include "config.hpp"
#if __cplusplus >= 202002L && !defined(RDMACPP_TWO_VERSIONS) // otherwise config.hpp says what to do

#include "async_event.hpp"
#include "context.hpp"
#include "event_source.hpp"

#include <new>
#include <type_traits>

#include <fcntl.h>

namespace rdma::inline RDMACPP_ABI {

/// The asynchronous events of a device: a view of the part of its context that gives them, got as those of an
/// event_channel are (see event_source). `for (async_event event : id.verbs().async_channel().pending())`
///
/// The descriptor becomes non-blocking, for C too. The context must stay open while it is used; waits on that of a
/// rdma::context end when it goes. Several threads may get; each event goes to one of them.
class async_channel : public event_source<async_channel, async_event, true> {
public:
    /// Empty.
    async_channel() noexcept = default;

    /// The context whose events these are.
    context_ref context() const noexcept { return node_ ? context_ref(node_->object()) : context_ref(); }
    explicit operator bool() const noexcept { return node_ != nullptr; }

    /// The descriptor, for an event loop: readable when there may be an event. -1 when empty.
    int fd() const noexcept { return node_ ? node_->object()->async_fd : -1; }

    friend bool operator==(async_channel a, async_channel b) noexcept { return a.node_ == b.node_; }

private:
    friend class context_ref;
    friend class ::rdma::context;
    friend class event_source<async_channel, async_event, true>;

    explicit async_channel(detail::context_node* node) noexcept : node_(node) {
        if (!node_)
            return;
        int const flags = ::fcntl(node_->object()->async_fd, F_GETFL);
        if (!(flags & O_NONBLOCK))
            ::fcntl(node_->object()->async_fd, F_SETFL, flags | O_NONBLOCK);
    }
    detail::context_node* channel() const noexcept { return node_; }

    /// The node of a context that is not ours: made on first use, and never destroyed, since nobody tells of its end.
    static detail::context_node* node_of(ibv_context* context) noexcept {
        detail::verbs_table& table = detail::verbs_table::get();
        if (detail::verbs_node* const known = table.find_a(context, detail::context_node::ended_by))
            return static_cast<detail::context_node*>(known);
        auto* const fresh = context ? new (std::nothrow) detail::context_node : nullptr;
        if (!fresh)
            return nullptr;
        fresh->raw = context;
        fresh->pins.store(1, detail::order::relaxed);
        fresh->surrendered.store(true, detail::order::relaxed); // it closes nothing
        detail::verbs_node* const there = table.insert_unless_there(fresh);
        if (there != fresh)
            delete fresh;
        return static_cast<detail::context_node*>(there);
    }

    detail::context_node* node_ = nullptr;
};

static_assert(std::is_trivially_copyable_v<async_channel> && sizeof(async_channel) == sizeof(void*));

inline async_channel context_ref::async_channel() const noexcept {
    return ::rdma::async_channel(::rdma::async_channel::node_of(raw_));
}
inline async_channel context::async_channel() const& noexcept { return ::rdma::async_channel(node_); }

} // namespace rdma::inline RDMACPP_ABI

#endif
