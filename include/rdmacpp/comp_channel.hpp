// SPDX-License-Identifier: MIT
/// @file
/// Completion channels: where CQs that were armed report.
#pragma once

#include "config.hpp"
#if __cplusplus >= 202002L && !defined(RDMACPP_TWO_VERSIONS) // otherwise config.hpp says what to do

#include "context.hpp"
#include "cq_event.hpp"
#include "event_source.hpp"

#include <type_traits>

namespace rdma::inline RDMACPP_ABI {

/// A borrowed completion channel: of a comp_channel, or one that librdmacm made for an id. It cannot turn into an
/// owner.
class comp_channel_ref : public verbs_ref<comp_channel_ref, ibv_comp_channel, detail::comp_channel_node>,
                         public event_source<comp_channel_ref, cq_event, true> {
public:
    using verbs_ref::verbs_ref;

    /// The descriptor, for an event loop: readable when there may be an event. -1 when empty.
    int fd() const noexcept { return raw_ ? raw_->fd : -1; }

private:
    friend class event_source<comp_channel_ref, cq_event, true>;
    detail::comp_channel_node* channel() const noexcept { return keeper_; }
};

/// An owned completion channel (ibv_create_comp_channel), always non-blocking. Its events are got as those of an
/// event_channel are: see event_source.
class [[nodiscard]] comp_channel : public verbs_owner<detail::comp_channel_node, comp_channel_ref>,
                                   public event_source<comp_channel, cq_event> {
public:
    /// Empty.
    comp_channel() noexcept = default;
    comp_channel(comp_channel&&) noexcept = default;
    /// Destroys the channel held before.
    comp_channel& operator=(comp_channel&& other) noexcept {
        comp_channel(std::move(other)).swap(*this);
        return *this;
    }
    /// Ends all waits; the C channel is destroyed with the last CQ that uses it.
    ~comp_channel() {
        if (node_ && !node_->inherited())
            node_->room.close();
    }

#if RDMACPP_EXCEPTIONS
    /// Makes a completion channel on a device.
    /// @throws rdma::error errc::not_bound for an empty context; the errno of ibv_create_comp_channel
    explicit comp_channel(context_ref context) {
        std::error_code ec;
        *this = comp_channel(context, ec);
        if (ec)
            detail::throw_error(ec, "ibv_create_comp_channel", {context.device_name()});
    }
    /// Takes over a channel that C made, or that release() gave back; it becomes non-blocking, for C too.
    /// @throws rdma::error errc::null_handle, errc::already_owned
    comp_channel(adopt_t, ibv_comp_channel* raw) {
        std::error_code ec;
        *this = comp_channel(adopt, raw, ec);
        if (ec)
            detail::throw_error(ec, "ibv_create_comp_channel", {"adopt"});
    }
#endif
    /// The twin of the creating constructor: empty on failure.
    comp_channel(context_ref context, std::error_code& ec) noexcept {
        if (auto* const node = fresh_node(static_cast<bool>(context), ec))
            own(::ibv_create_comp_channel(context.native_handle()), node, {detail::keeper(context)}, ec);
        if (node_)
            node_->never_block();
    }
    /// The twin of the adopting constructor: empty on failure.
    comp_channel(adopt_t, ibv_comp_channel* raw, std::error_code& ec) noexcept : verbs_owner(adopt, raw, ec) {
        if (node_)
            node_->never_block();
    }

    /// Gives the C channel back, blocking as C made it.
    [[nodiscard]] ibv_comp_channel* release() noexcept {
        // A forked child shares the description with its parent.
        if (node_ && !node_->inherited() && node_->nonblocking.exchange(false, detail::order::relaxed))
            ::fcntl(raw_->fd, F_SETFL, ::fcntl(raw_->fd, F_GETFL) & ~O_NONBLOCK);
        return verbs_owner::release();
    }

    /// The descriptor, for an event loop: readable when there may be an event. -1 when empty.
    int fd() const noexcept { return raw_ ? raw_->fd : -1; }

private:
    friend class event_source<comp_channel, cq_event>;
    detail::comp_channel_node* channel() const noexcept { return node_; }
};

static_assert(std::is_trivially_copyable_v<comp_channel_ref>);
static_assert(detail::move_only<comp_channel>);
static_assert(!detail::makes<comp_channel, comp_channel_ref> && !detail::makes<comp_channel, ibv_comp_channel*>);

} // namespace rdma::inline RDMACPP_ABI

template <>
struct std::hash<::rdma::comp_channel_ref> : ::rdma::RDMACPP_ABI::detail::ref_hash<::rdma::comp_channel_ref> {};

#endif
