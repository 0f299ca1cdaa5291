// SPDX-License-Identifier: MIT
/// @file
/// Completions that are awaited, and requests that are.
#pragma once

#include "../config.hpp"
#if __cplusplus >= 202002L && !defined(RDMACPP_TWO_VERSIONS) // otherwise config.hpp says what to do

#include "../comp_channel.hpp"
#include "../cq.hpp"
#include "cm_id.hpp"
#include "detail/cq_source.hpp"
#include "event_loop.hpp"
#include "operation.hpp"

#include <cerrno>
#include <new>
#include <span>
#include <string>
#include <system_error>
#include <utility>

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

#endif
