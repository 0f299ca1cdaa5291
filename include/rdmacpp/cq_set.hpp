// SPDX-License-Identifier: MIT
/// @file
/// Several completion queues of one channel, waited for together.
#pragma once

#include "config.hpp"
#if __cplusplus >= 202002L && !defined(RDMACPP_TWO_VERSIONS) // otherwise config.hpp says what to do

#include "cq.hpp"

#include <cstddef>
#include <span>

namespace rdma::inline RDMACPP_ABI {

/// What cq_set::wait found: completions, all of one CQ.
struct polled {
    cq_ref cq = {};                              ///< Whose they are; empty when there are none.
    std::span<work_completion> completions = {}; ///< The part of the caller's memory that was filled.
};

/// How a cq_set waits. (A template, so that who does not wait does not pay for it in compile time.)
template <class Set>
class completion_set {
public:
    /// The twins of what follows. Nothing found and no `ec`: it took too long, or was stopped.
    polled wait(std::span<work_completion> into, std::error_code& ec) noexcept {
        return wait_until(into, detail::deadline::never(), {}, {}, ec);
    }
    polled wait_for(std::span<work_completion> into, timeout span, std::error_code& ec) noexcept {
        return wait_until(into, detail::deadline::after(span), {}, {}, ec);
    }
    polled wait(std::span<work_completion> into, any_stop_token const& stop, std::error_code& ec) noexcept {
        return wait_until(into, detail::deadline::never(), stop, {}, ec);
    }
    polled wait_for(std::span<work_completion> into, timeout span, any_stop_token const& stop,
                    std::error_code& ec) noexcept {
        return wait_until(into, detail::deadline::after(span), stop, {}, ec);
    }
#if RDMACPP_EXCEPTIONS
    /// Waits until any of the CQs has completions.
    /// @throws rdma::error errc::poll_failed; std::errc::invalid_argument if there is no CQ, or they are not all of one
    /// channel; the errno of ibv_req_notify_cq and ibv_get_cq_event
    polled wait(std::span<work_completion> into) {
        std::error_code ec;
        return checked(wait(into, ec), ec);
    }
    /// The same, at most this long. @throws rdma::error
    polled wait_for(std::span<work_completion> into, timeout span) {
        std::error_code ec;
        return checked(wait_for(into, span, ec), ec);
    }
    /// The same, until stop is requested. @throws rdma::error
    polled wait(std::span<work_completion> into, any_stop_token const& stop) {
        std::error_code ec;
        return checked(wait(into, stop, ec), ec);
    }
    polled wait_for(std::span<work_completion> into, timeout span, any_stop_token const& stop) {
        std::error_code ec;
        return checked(wait_for(into, span, stop, ec), ec);
    }
#endif

private:
    polled wait_until(std::span<work_completion> into, detail::deadline const& until, any_stop_token const& stop,
                      wait_options options, std::error_code& ec) noexcept {
        detail::completion_wait waiting{until, stop, options};
        waiting.first = set().next_ < set().cqs_.size() ? set().next_ : 0;
        std::size_t const n = waiting.run(set().cqs_.data(), set().cqs_.size(), into, ec);
        if (n == 0)
            return {};
        set().next_ = waiting.first + 1;
        return {set().cqs_[waiting.first], into.first(n)};
    }

#if RDMACPP_EXCEPTIONS
    static polled checked(polled found, std::error_code const& ec) {
        if (ec)
            detail::throw_error(ec, "ibv_get_cq_event");
        return found;
    }
#endif

    Set& set() noexcept { return *static_cast<Set*>(this); }
};

/// A view of several CQs that report to one channel, to wait until any of them has a completion: each is drained, armed
/// and drained again, and only then the channel is waited for, so that nothing that came in between is missed. It turns
/// from one CQ to the next, so that a busy one does not starve the others.
///
/// The CQs, their channel, and the array that names them must outlive it. One thread at a time may wait on a channel.
class cq_set : public completion_set<cq_set> {
public:
    /// @param cqs all of one completion channel
    explicit cq_set(std::span<cq_ref const> cqs) noexcept : cqs_(cqs) {}

private:
    friend class completion_set<cq_set>;

    std::span<cq_ref const> cqs_;
    std::size_t next_ = 0; // the first to be asked
};

} // namespace rdma::inline RDMACPP_ABI

#endif
