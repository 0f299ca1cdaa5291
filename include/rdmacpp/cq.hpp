// SPDX-License-Identifier: MIT
/// @file
/// Completion queues, and waiting for completions without losing a wake-up.
#pragma once

#include "config.hpp"
#if __cplusplus >= 202002L && !defined(RDMACPP_TWO_VERSIONS) // otherwise config.hpp says what to do

#include "comp_channel.hpp"
#include "context.hpp"
#include "work_completion.hpp"

#include <cstdint>
#include <new>
#include <optional>
#include <span>
#include <type_traits>

namespace rdma::inline RDMACPP_ABI {

class cq_ref;

namespace detail {

/// Waiting for completions without losing a wake-up: drains, arms, drains again, and only then waits. Used by
/// everything that waits for completions.
struct completion_wait {
    deadline until = deadline::never();
    any_stop_token stop = {};
    wait_options options = {};
    char const* function = "ibv_get_cq_event"; // the last C function that was called
    std::size_t first = 0;                     // where to begin; then, whose completions were found

    /// @param cqs `count` of them, all of one channel
    /// @return how many completions there are; none when it took too long, or was stopped
    std::size_t run(cq_ref const* cqs, std::size_t count, std::span<work_completion> into,
                    std::error_code& ec) noexcept;

    /// Takes the event of a CQ off its channel, if there is one, and acks it; never waits.
    static bool take_event(cq_ref const& cq, std::error_code& ec) noexcept;

private:
    std::size_t drain(cq_ref const* cqs, std::size_t count, std::span<work_completion> into,
                      std::error_code& ec) noexcept;
    void arm(cq_ref const* cqs, std::size_t count, std::error_code& ec) noexcept;
    woken wait(comp_channel_node& channel, cq_ref const* cqs, std::size_t count, std::error_code& ec) noexcept;
    static void ack(cq_ref const* cqs, std::size_t count, ibv_cq* cq) noexcept;
    static void leave_armed(cq_ref const* cqs, std::size_t count) noexcept;
};

} // namespace detail

/// What an owned CQ and a view of one have in common.
///
/// poll and req_notify are the data path: their twins take a trailing std::nothrow_t and return what C returns; an
/// empty handle is a precondition there (RDMACPP_ASSERT).
template <class Handle>
class completion_source {
public:
    /// How many completions the CQ holds. 0 when empty.
    int cqe() const noexcept { return raw() ? raw()->cqe : 0; }

    /// Takes completions off the queue (ibv_poll_cq), never waiting. @return how many; negative is an error without a
    /// reason
    int poll(std::span<work_completion> into, std::nothrow_t) const noexcept {
        RDMACPP_ASSERT(raw());
        return ::ibv_poll_cq(raw(), static_cast<int>(into.size()), reinterpret_cast<ibv_wc*>(into.data()));
    }

    /// Arms the CQ (ibv_req_notify_cq): its next completion, or only the next solicited or failed one, raises one
    /// event.
    /// @return the errno of C, std::errc{} for success
    std::errc req_notify(bool solicited_only, std::nothrow_t) const noexcept {
        RDMACPP_ASSERT(raw());
        return static_cast<std::errc>(::ibv_req_notify_cq(raw(), solicited_only));
    }

#if RDMACPP_EXCEPTIONS
    /// Takes completions off the queue, never waiting. @return the part of `into` that was filled
    /// @throws rdma::error errc::poll_failed
    std::span<work_completion> poll(std::span<work_completion> into) const {
        int const n = poll(into, std::nothrow);
        if (n < 0) [[unlikely]]
            detail::throw_poll_failed();
        return into.first(static_cast<std::size_t>(n));
    }

    /// Arms the CQ. @throws rdma::error the errno of ibv_req_notify_cq
    void req_notify(bool solicited_only = false) const {
        if (std::errc const e = req_notify(solicited_only, std::nothrow); e != std::errc{}) [[unlikely]]
            detail::throw_returned(e, "ibv_req_notify_cq");
    }

    /// Waits until there are completions: drains, arms, drains again, and only then waits on the CQ's channel, so that
    /// nothing that came in between is missed. One thread at a time may wait on a channel, and what it waits for takes
    /// off the events of other CQs of that channel, too: several are waited for with a cq_set.
    /// @return the part of `into` that was filled; empty if the channel object is gone
    /// @throws rdma::error errc::poll_failed; std::errc::invalid_argument if the CQ has no channel; errno of the calls
    std::span<work_completion> wait(std::span<work_completion> into, wait_options options = {}) const {
        return waited(into, detail::deadline::never(), {}, options);
    }

    /// Waits for completions, at most this long. @return what was filled, empty when it took too long
    /// @throws rdma::error
    std::span<work_completion> wait_for(std::span<work_completion> into, timeout span,
                                        wait_options options = {}) const {
        return waited(into, detail::deadline::after(span), {}, options);
    }
    /// Waits for completions until stop is requested. @return what was filled, empty when stopped
    /// @throws rdma::error
    std::span<work_completion> wait(std::span<work_completion> into, any_stop_token const& stop,
                                    wait_options options = {}) const {
        return waited(into, detail::deadline::never(), stop, options);
    }
#endif
    /// Changes how many completions it can hold (ibv_resize_cq); those in it stay. The device may give more.
    void resize(int cqe, std::error_code& ec) const noexcept {
        ec = raw() ? detail::check_returned(::ibv_resize_cq(raw(), cqe)) : std::error_code(errc::empty_handle);
    }
    /// Raises an event only after so many completions, or so long after the first (ibv_modify_cq).
    /// @param period in microseconds
    void moderate(std::uint16_t count, std::uint16_t period, std::error_code& ec) const noexcept {
        ibv_modify_cq_attr attr{IBV_CQ_ATTR_MODERATE, {count, period}};
        ec = raw() ? detail::check_returned(::ibv_modify_cq(raw(), &attr)) : std::error_code(errc::empty_handle);
    }
#if RDMACPP_EXCEPTIONS
    /// The throwing forms. @throws rdma::error the errno of ibv_resize_cq, of ibv_modify_cq
    void resize(int cqe) const {
        std::error_code ec;
        resize(cqe, ec);
        if (ec)
            detail::throw_error(ec, "ibv_resize_cq", {std::to_string(cqe), " entries"});
    }
    void moderate(std::uint16_t count, std::uint16_t period) const {
        std::error_code ec;
        moderate(count, period, ec);
        if (ec)
            detail::throw_error(ec, "ibv_modify_cq");
    }
#endif

    /// Waits for one completion, as long as it takes; none only with `ec`.
    std::optional<work_completion> wait_one(std::error_code& ec) const noexcept {
        auto const one = wait_one(no_limit, ec);
        if (!one && !ec)
            ec = errc::empty_handle;
        return one;
    }
    /// The same, at most this long: none when it took too long.
    std::optional<work_completion> wait_one(timeout span, std::error_code& ec) const noexcept {
        work_completion one;
        return wait_for({&one, 1}, span, ec).empty() ? std::nullopt : std::optional(one);
    }
#if RDMACPP_EXCEPTIONS
    /// Waits for one completion, as long as it takes. @throws rdma::error as wait; errc::empty_handle if the channel
    /// object is gone
    work_completion wait_one() const {
        work_completion one;
        if (wait({&one, 1}).empty())
            detail::throw_error(errc::empty_handle, "ibv_get_cq_event");
        return one;
    }
    /// The same, at most this long: none when it took too long. @throws rdma::error
    std::optional<work_completion> wait_one(timeout span) const {
        work_completion one;
        return wait_for({&one, 1}, span).empty() ? std::nullopt : std::optional(one);
    }
#endif

    /// The twins of wait and wait_for.
    std::span<work_completion> wait(std::span<work_completion> into, std::error_code& ec) const noexcept {
        return wait(into, wait_options{}, ec);
    }
    std::span<work_completion> wait(std::span<work_completion> into, wait_options options,
                                    std::error_code& ec) const noexcept {
        return wait_until(into, detail::deadline::never(), {}, options, ec);
    }
    std::span<work_completion> wait_for(std::span<work_completion> into, timeout span,
                                        std::error_code& ec) const noexcept {
        return wait_for(into, span, {}, ec);
    }
    std::span<work_completion> wait_for(std::span<work_completion> into, timeout span, wait_options options,
                                        std::error_code& ec) const noexcept {
        return wait_until(into, detail::deadline::after(span), {}, options, ec);
    }
    std::span<work_completion> wait(std::span<work_completion> into, any_stop_token const& stop,
                                    std::error_code& ec) const noexcept {
        return wait(into, stop, {}, ec);
    }
    std::span<work_completion> wait(std::span<work_completion> into, any_stop_token const& stop, wait_options options,
                                    std::error_code& ec) const noexcept {
        return wait_until(into, detail::deadline::never(), stop, options, ec);
    }

private:
    ibv_cq* raw() const noexcept { return static_cast<Handle const*>(this)->native_handle(); }

    std::span<work_completion> wait_until(std::span<work_completion> into, detail::deadline const& until,
                                          any_stop_token const& stop, wait_options options,
                                          std::error_code& ec) const noexcept {
        detail::completion_wait waiting{until, stop, options};
        auto const self = detail::refs::make<cq_ref>(raw(), static_cast<Handle const*>(this)->node());
        return into.first(waiting.run(&self, 1, into, ec));
    }

#if RDMACPP_EXCEPTIONS
    std::span<work_completion> waited(std::span<work_completion> into, detail::deadline const& until,
                                      any_stop_token const& stop, wait_options options) const {
        std::error_code ec;
        detail::completion_wait waiting{until, stop, options};
        auto const self = detail::refs::make<cq_ref>(raw(), static_cast<Handle const*>(this)->node());
        std::size_t const n = waiting.run(&self, 1, into, ec);
        if (ec)
            detail::throw_error(ec, waiting.function);
        return into.first(n);
    }
#endif
};

/// A borrowed completion queue: of a cq, or one that librdmacm made for an id. It cannot turn into an owner.
class cq_ref : public verbs_ref<cq_ref, ibv_cq, detail::cq_node>, public completion_source<cq_ref> {
public:
    using verbs_ref::verbs_ref;

private:
    friend class completion_source<cq_ref>;
    detail::cq_node* node() const noexcept { return keeper_; }
};

namespace detail {

inline std::size_t completion_wait::run(cq_ref const* cqs, std::size_t count, std::span<work_completion> into,
                                        std::error_code& ec) noexcept {
    ec.clear();
    comp_channel_node* const channel = count != 0 && keeper(cqs[0]) ? keeper(cqs[0])->channel : nullptr;
    if (count != 0 && !cqs[0])
        ec = errc::empty_handle;
    else if (into.empty() || !channel)
        ec = system_error_code(EINVAL);
    for (std::size_t i = 1; i < count && !ec; ++i)
        if (!keeper(cqs[i]) || keeper(cqs[i])->channel != channel)
            ec = system_error_code(EINVAL);
    for (bool armed = false; !ec; armed = !armed) {
        if (std::size_t const n = drain(cqs, count, into, ec)) {
            if (armed)
                leave_armed(cqs, count);
            return n;
        }
        if (ec)
            break;
        if (!armed) { // what came between the poll and the arming raises no event: hence a second poll
            arm(cqs, count, ec);
            continue;
        }
        function = cq_event::get_function;
        if (wait(*channel, cqs, count, ec) != woken::ready) {
            leave_armed(cqs, count);
            break;
        }
    }
    return 0;
}

/// Waits for an event and acks it. It waits first, and gets then: who has just armed and found nothing will hardly find
/// an event yet.
inline woken completion_wait::wait(comp_channel_node& channel, cq_ref const* cqs, std::size_t count,
                                   std::error_code& ec) noexcept {
    channel.never_block();
    keep const while_it_waits(&channel);
    for (;;) {
        woken const why = channel.room.wait(channel.object()->fd, until, stop, options, ec);
        ibv_cq* cq = nullptr;
        if (why != woken::ready)
            return why;
        if (!cq_event::try_get(channel, cq, options, ec))
            continue;
        if (ec)
            return woken::failed;
        ack(cqs, count, cq);
        return woken::ready;
    }
}

/// Acks without a look at the table: the caller's CQs live, and to C any other is acked at once.
inline void completion_wait::ack(cq_ref const* cqs, std::size_t count, ibv_cq* cq) noexcept {
    for (std::size_t i = 0; i != count; ++i)
        if (cqs[i].native_handle() == cq)
            return keeper(cqs[i])->settle_later(cq, 1);
    ::ibv_ack_cq_events(cq, 1);
}

[[gnu::always_inline]] inline bool completion_wait::take_event(cq_ref const& cq, std::error_code& ec) noexcept {
    for (ibv_cq* raw = nullptr; cq_event::try_get(*keeper(cq)->channel, raw, {}, ec) && !ec;) {
        ack(&cq, 1, raw);
        if (raw == cq.native_handle())
            return true;
    }
    return false;
}

/// What is armed raises an event that nobody waits for any more: to be taken off before it is armed again.
inline void completion_wait::leave_armed(cq_ref const* cqs, std::size_t count) noexcept {
    for (std::size_t i = 0; i != count; ++i)
        keeper(cqs[i])->event_due.store(true, order::relaxed);
}

inline std::size_t completion_wait::drain(cq_ref const* cqs, std::size_t count, std::span<work_completion> into,
                                          std::error_code& ec) noexcept {
    function = "ibv_poll_cq";
    for (std::size_t i = 0; i != count; ++i) {
        std::size_t const at = first + i < count ? first + i : first + i - count;
        int const n = cqs[at].poll(into, std::nothrow);
        if (n == 0)
            continue;
        first = at;
        if (n < 0)
            ec = errc::poll_failed;
        return n > 0 ? static_cast<std::size_t>(n) : 0;
    }
    return 0;
}

inline void completion_wait::arm(cq_ref const* cqs, std::size_t count, std::error_code& ec) noexcept {
    for (std::size_t i = 0; i != count && !ec; ++i) {
        cq_node& node = *keeper(cqs[i]);
        if (node.event_due.exchange(false, order::relaxed)) {
            function = cq_event::get_function;
            ibv_cq* cq = nullptr;
            while (cq_event::try_get(*node.channel, cq, {}, ec) && !ec)
                ack(cqs, count, cq);
        }
        function = "ibv_req_notify_cq";
        if (!ec)
            ec = check_returned(::ibv_req_notify_cq(cqs[i].native_handle(), 0));
    }
}

} // namespace detail

/// An owned completion queue (ibv_create_cq). It keeps its completion channel alive, and QPs keep it alive.
class [[nodiscard]] cq : public verbs_owner<detail::cq_node, cq_ref>, public completion_source<cq> {
public:
    using verbs_owner::verbs_owner;
    /// Empty.
    cq() noexcept = default;

#if RDMACPP_EXCEPTIONS
    /// Makes a completion queue on a device.
    /// @param context the device: cm_id::verbs
    /// @param cqe how many completions it must hold, 1 or more; the device may give more
    /// @param channel where it reports when it was armed; none: it can only be polled
    /// @param user_context found again in its events
    /// @param comp_vector which interrupt of the device to use, from 0
    /// @throws rdma::error errc::not_bound for an empty context; the errno of ibv_create_cq (ENOMEM may be
    /// RLIMIT_MEMLOCK)
    cq(context_ref context, int cqe, comp_channel_ref channel = {}, void* user_context = nullptr, int comp_vector = 0) {
        std::error_code ec;
        *this = cq(context, cqe, channel, user_context, comp_vector, ec);
        if (ec)
            detail::throw_error(ec, "ibv_create_cq", {std::to_string(cqe), " entries"});
    }
#endif
    /// The twins of the creating constructor: empty on failure.
    cq(context_ref context, int cqe, std::error_code& ec) noexcept : cq(context, cqe, {}, nullptr, 0, ec) {}
    cq(context_ref context, int cqe, comp_channel_ref channel, std::error_code& ec) noexcept
        : cq(context, cqe, channel, nullptr, 0, ec) {}
    cq(context_ref context, int cqe, comp_channel_ref channel, void* user_context, int comp_vector,
       std::error_code& ec) noexcept {
        if (auto* const node = fresh_node(static_cast<bool>(context), ec))
            own(::ibv_create_cq(context.native_handle(), cqe, user_context, channel.native_handle(), comp_vector), node,
                {detail::keeper(channel), detail::keeper(context)}, ec);
        if (node_)
            node_->channel = detail::keeper(channel);
    }

    /// Tells C of that many acks of its events at once, 32 by default: each time costs a mutex. 1: of each at once.
    void ack_batch(std::uint32_t events) noexcept {
        if (node_)
            node_->batch.store(events, detail::order::relaxed);
    }

    /// Gives the C CQ back. C is told of the acks it was not told of yet (ibv_ack_cq_events): it could not destroy it
    /// else.
    [[nodiscard]] ibv_cq* release() noexcept {
        if (node_ && !node_->inherited())
            node_->settle_all();
        return verbs_owner::release();
    }

private:
    friend class completion_source<cq>;
    detail::cq_node* node() const noexcept { return node_; }
};

static_assert(std::is_trivially_copyable_v<cq_ref>);
static_assert(detail::move_only<cq>);
static_assert(!detail::makes<cq, cq_ref> && !detail::makes<cq, ibv_cq*>);

} // namespace rdma::inline RDMACPP_ABI

template <>
struct std::hash<::rdma::cq_ref> : ::rdma::RDMACPP_ABI::detail::ref_hash<::rdma::cq_ref> {};

#endif
