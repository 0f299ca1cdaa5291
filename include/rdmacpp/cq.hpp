// SPDX-License-Identifier: MIT
/// @file
/// Completion queues, and waiting for completions without losing a wake-up.
#pragma once

#include "config.hpp"
#if __cplusplus >= 202002L // below, config.hpp says what to do

#include "comp_channel.hpp"
#include "context.hpp"
#include "detail/contract.hpp"
#include "verbs_owner.hpp"
#include "work_completion.hpp"

#include <new>
#include <span>
#include <type_traits>

namespace rdma::inline RDMACPP_ABI {

namespace detail {

/// Drains, arms, drains again, and only then waits. @param function the last C function that was called
/// @return how many completions there are; none when it took too long, or was stopped
inline std::size_t wait_for_completions(ibv_cq* cq, comp_channel_node* channel, work_completion* into, std::size_t most,
                                        deadline const& until, stop_token const& stop, wait_options options,
                                        std::error_code& ec, char const*& function) noexcept {
    ec.clear();
    if (!cq)
        ec = errc::empty_handle;
    else if (most == 0 || !channel)
        ec = system_error_code(EINVAL);
    for (bool armed = false; !ec; armed = !armed) {
        function = "ibv_poll_cq";
        int const n = ::ibv_poll_cq(cq, static_cast<int>(most), reinterpret_cast<ibv_wc*>(into));
        if (n > 0)
            return static_cast<std::size_t>(n);
        if (n < 0) {
            ec = errc::poll_failed;
            return 0;
        }
        if (!armed) { // what came between this poll and the arming raises no event: hence a second one
            function = "ibv_req_notify_cq";
            ec = check_returned(::ibv_req_notify_cq(cq, 0));
            continue;
        }
        function = "ibv_get_cq_event";
        cq_event event;
        if (cq_event::receive(*channel, event, until, stop, options, ec) != woken::ready)
            return 0;
    }
    return 0;
}

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
            detail::throw_error(errc::poll_failed, "ibv_poll_cq");
        return into.first(static_cast<std::size_t>(n));
    }

    /// Arms the CQ. @throws rdma::error the errno of ibv_req_notify_cq
    void req_notify(bool solicited_only = false) const {
        if (int const e = static_cast<int>(req_notify(solicited_only, std::nothrow)); e != 0) [[unlikely]]
            detail::throw_error(detail::system_error_code(e), "ibv_req_notify_cq");
    }

    /// Waits until there are completions: drains, arms, drains again, and only then waits on the CQ's channel, so that
    /// nothing that came in between is missed. One thread at a time may wait on a channel.
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
#if defined(__cpp_lib_jthread)
    /// Waits for completions until stop is requested. @return what was filled, empty when stopped
    /// @throws rdma::error
    std::span<work_completion> wait(std::span<work_completion> into, std::stop_token const& stop,
                                    wait_options options = {}) const {
        return waited(into, detail::deadline::never(), stop, options);
    }
#endif
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
#if defined(__cpp_lib_jthread)
    std::span<work_completion> wait(std::span<work_completion> into, std::stop_token const& stop,
                                    std::error_code& ec) const noexcept {
        return wait(into, stop, {}, ec);
    }
    std::span<work_completion> wait(std::span<work_completion> into, std::stop_token const& stop, wait_options options,
                                    std::error_code& ec) const noexcept {
        return wait_until(into, detail::deadline::never(), stop, options, ec);
    }
#endif

private:
    ibv_cq* raw() const noexcept { return static_cast<Handle const*>(this)->native_handle(); }
    detail::comp_channel_node* channel() const noexcept { return static_cast<Handle const*>(this)->channel(); }

    std::span<work_completion> wait_until(std::span<work_completion> into, detail::deadline const& until,
                                          detail::stop_token const& stop, wait_options options,
                                          std::error_code& ec) const noexcept {
        char const* function = nullptr;
        return into.first(detail::wait_for_completions(raw(), channel(), into.data(), into.size(), until, stop, options,
                                                       ec, function));
    }

#if RDMACPP_EXCEPTIONS
    std::span<work_completion> waited(std::span<work_completion> into, detail::deadline const& until,
                                      detail::stop_token const& stop, wait_options options) const {
        std::error_code ec;
        char const* function = "ibv_get_cq_event";
        std::size_t const n = detail::wait_for_completions(raw(), channel(), into.data(), into.size(), until, stop,
                                                           options, ec, function);
        if (ec)
            detail::throw_error(ec, function);
        return into.first(n);
    }
#endif
};

/// A borrowed completion queue: of a cq, or one that librdmacm made for an id. It cannot turn into an owner.
class cq_ref : public completion_source<cq_ref> {
public:
    cq_ref() noexcept = default;
    /// Borrows a CQ of C's, which must outlive the QPs that are made with it.
    cq_ref(ibv_cq* raw) noexcept : raw_(raw) {} // NOLINT: a reference to it is no more than the pointer

    /// The C completion queue; null when empty.
    ibv_cq* native_handle() const noexcept { return raw_; }
    explicit operator bool() const noexcept { return raw_ != nullptr; }

    friend bool operator==(cq_ref a, cq_ref b) noexcept { return a.raw_ == b.raw_; }

private:
    friend class cq;
    friend class cm_id;
    friend class endpoint;
    friend class qp;
    friend class completion_source<cq_ref>;

    cq_ref(ibv_cq* raw, detail::cq_node* node) noexcept : raw_(raw), node_(node) {}
    detail::comp_channel_node* channel() const noexcept { return node_ ? node_->channel : nullptr; }

    ibv_cq* raw_ = nullptr;
    detail::cq_node* node_ = nullptr;
};

/// An owned completion queue (ibv_create_cq). It keeps its completion channel alive, and QPs keep it alive.
class [[nodiscard]] cq : public verbs_owner<ibv_cq, detail::cq_node>, public completion_source<cq> {
public:
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
    /// Takes over a CQ that C made, or that release() gave back. It can be polled, and waited for if its channel is
    /// ours.
    /// @throws rdma::error errc::null_handle, errc::already_owned
    cq(adopt_t, ibv_cq* raw) {
        std::error_code ec;
        *this = cq(adopt, raw, ec);
        if (ec)
            detail::throw_error(ec, "ibv_create_cq", {"adopt"});
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
                {channel.node_, context.id_}, ec);
        if (node_)
            node_->channel = channel.node_;
    }
    /// The twin of the adopting constructor: empty on failure.
    cq(adopt_t, ibv_cq* raw, std::error_code& ec) noexcept {
        take_over(raw, ec);
        if (!node_)
            return;
        node_->need_again({raw->channel});
        node_->channel = static_cast<detail::comp_channel_node*>(node_->needs[0]);
    }

    /// Gives the C CQ back. C is told of the acks it was not told of yet (ibv_ack_cq_events): it could not destroy it
    /// else.
    [[nodiscard]] ibv_cq* release() noexcept {
        if (node_ && !node_->inherited())
            node_->settle_all();
        return verbs_owner::release();
    }

    operator cq_ref() const& noexcept { return {raw_, node_}; }
    operator cq_ref() const&& = delete;
    void swap(cq& other) noexcept { verbs_owner::swap(other); }
    friend void swap(cq& a, cq& b) noexcept { a.swap(b); }

private:
    friend class completion_source<cq>;
    detail::comp_channel_node* channel() const noexcept { return node_ ? node_->channel : nullptr; }
};

static_assert(std::is_trivially_copyable_v<cq_ref>);
static_assert(detail::move_only<cq>);
static_assert(!detail::makes<cq, cq_ref> && !detail::makes<cq, ibv_cq*>);

} // namespace rdma::inline RDMACPP_ABI

template <>
struct std::hash<rdma::cq_ref> {
    std::size_t operator()(rdma::cq_ref handle) const noexcept {
        return std::hash<void const*>()(handle.native_handle());
    }
};

#endif
