// SPDX-License-Identifier: MIT
/// @file
/// Membership in a multicast group.
#pragma once

#include "config.hpp"
#if __cplusplus >= 202002L && !defined(RDMACPP_TWO_VERSIONS) // otherwise config.hpp says what to do

#include "address.hpp"
#include "detail/channel_state.hpp"
#include "detail/contract.hpp"

#include <string>
#include <system_error>
#include <utility>

namespace rdma::inline RDMACPP_ABI {

/// How an id joins a multicast group (rdma_cm_mc_join_flags).
enum class join_flag {
    /// To send and receive.
    fullmember = 0,
    /// Only to send: the QP is not attached to the group.
    sendonly_fullmember = detail::mc_join_flag_sendonly_fullmember,
};

/// An id's membership in a multicast group, of cm_id::join_multicast: it leaves when it is dropped.
///
/// The outcome of the join arrives as MULTICAST_JOIN, on whose reading librdmacm attaches the id's QP, so make that
/// first; or as MULTICAST_ERROR, after which the membership is still to be dropped. It may be dropped at any time,
/// before or after its id, whatever events are held: the QP is detached at once, and rdma_leave_multicast, which waits
/// for every event of the group to be acked, runs with the last ack. When its id is dropped the group is left, too. One
/// thread at a time may use one membership.
class [[nodiscard]] membership {
public:
    /// Empty.
    membership() noexcept = default;
    membership(membership&& other) noexcept : join_(detail::take(other.join_)), born_in_(other.born_in_) {}
    /// Leaves the group of before.
    membership& operator=(membership&& other) noexcept {
        membership(std::move(other)).swap(*this);
        return *this;
    }
    /// Leaves the group (rdma_leave_multicast, now or with the last ack). Never throws, never waits for an ack.
    ~membership() {
        if (join_ && born_in_ == detail::process::current())
            detail::channel_state::drop_join(*join_);
    }

    /// True until it was left, moved from, or made empty; also when its id has gone and taken the group with it.
    explicit operator bool() const noexcept { return join_ != nullptr; }

    /// The address that was joined.
    address group() const noexcept { return join_ ? join_->group : address(); }

    /// The user's pointer of the join, as cm_event::join_context gives it; not private data.
    void* user_context() const noexcept { return join_ ? join_->user_context : nullptr; }

#if RDMACPP_EXCEPTIONS
    /// Leaves now (rdma_leave_multicast); empty afterwards, also after an error of C's, which has forgotten the group
    /// then.
    /// @throws rdma::error std::errc::resource_deadlock_would_occur while events of the group are held, saying how
    /// many: then it is still a member; errc::empty_handle
    void leave() {
        std::error_code ec;
        if (std::uint32_t const held = leave_unless_held(ec); ec)
            detail::throw_error(ec, "rdma_leave_multicast", {std::to_string(held), " events held"});
    }
#endif
    /// The twin of leave().
    void leave(std::error_code& ec) noexcept { leave_unless_held(ec); }

    void swap(membership& other) noexcept {
        detail::swap_values(join_, other.join_);
        detail::swap_values(born_in_, other.born_in_);
    }
    friend void swap(membership& a, membership& b) noexcept { a.swap(b); }

private:
    friend class cm_id;
    explicit membership(detail::join_record* join) noexcept : join_(join) {}

    std::uint32_t leave_unless_held(std::error_code& ec) noexcept {
        std::uint32_t held = 0;
        if (!join_) {
            ec = errc::empty_handle;
            return held;
        }
        ec = detail::channel_state::leave(*join_, held);
        if (held == 0)
            detail::take(join_)->unref();
        return held;
    }

    detail::join_record* join_ = nullptr;
    unsigned born_in_ = detail::process::current();
};

static_assert(detail::move_only<membership> && detail::nothrow_empty<membership>);

} // namespace rdma::inline RDMACPP_ABI

#endif
