// SPDX-License-Identifier: MIT
// How a QP is drained: to its error state, and then until the ends of its queues have come back.
#pragma once

#include "../config.hpp"
#if __cplusplus >= 202002L && !defined(RDMACPP_TWO_VERSIONS) // otherwise config.hpp says what to do

#include "../qp.hpp"

#include <span>
#include <utility>

#include <time.h>

namespace rdma::inline RDMACPP_ABI {

namespace detail {

/// The queues of a QP on their way to their ends.
class draining {
public:
    explicit draining(qp_ref qp) noexcept
        : qp_(qp), iwarp_(qp.native_handle()->context->device->transport_type == IBV_TRANSPORT_IWARP) {
        ibv_qp const& c = *qp.native_handle();
        std::error_code unknown;
        ibv_qp_cap const cap = qp.query(IBV_QP_CAP, unknown).cap;
        bool const sends = c.qp_type == IBV_QPT_RC || c.qp_type == IBV_QPT_UC || c.qp_type == IBV_QPT_XRC_SEND;
        send_marked_ = !sends || iwarp_; // a datagram would need an address
        seen.sends = c.qp_type == IBV_QPT_XRC_RECV;
        seen.receives = c.srq || c.qp_type == IBV_QPT_XRC_SEND || (!unknown && cap.max_recv_wr == 0);
        recv_marked_ = seen.receives;
        mark_receives(); // iWARP never flushes one that is posted later
    }

    void to_error(std::error_code& ec) const noexcept {
        ibv_qp_attr attr{};
        attr.qp_state = IBV_QPS_ERR;
        qp_.modify(attr, IBV_QP_STATE, ec);
    }

    /// A full queue takes the mark only after something came back.
    void mark() noexcept {
        bool const late = !recv_marked_;
        mark_receives();
        if (!send_marked_)
            send_marked_ = qp_.post_send(send_wr::send(nothing).id(drain_mark).signaled(), std::nothrow) == std::errc{};
        std::error_code again; // soft-RoCE looks at a late receive when it is told once more
        if (late && recv_marked_)
            to_error(again);
    }

    /// Takes what there is off both CQs.
    template <class OnCompletion>
    void collect(OnCompletion& on_completion, std::error_code& ec) {
        ibv_qp const& c = *qp_.native_handle();
        std::size_t const before = seen.completions;
        bool const polled =
            poll(c.send_cq, on_completion) && (c.recv_cq == c.send_cq || poll(c.recv_cq, on_completion));
        if (!polled)
            ec = errc::poll_failed;
        quiet_ = before == seen.completions ? quiet_ + 1 : 0;
        if (iwarp_ && quiet_ >= 2)
            seen.sends = seen.receives = true;
    }

    drained seen;

private:
    void mark_receives() noexcept {
        if (!recv_marked_) // no piece at all is refused on soft-iWARP
            recv_marked_ = qp_.post_recv(recv_wr(ibv_sge{}).id(drain_mark + 1), std::nothrow) == std::errc{};
    }

    template <class OnCompletion>
    bool poll(ibv_cq* cq, OnCompletion& on_completion) {
        work_completion batch[16];
        int n = 0;
        while (cq && (n = ::ibv_poll_cq(cq, 16, reinterpret_cast<ibv_wc*>(batch))) > 0)
            for (int i = 0; i != n; ++i)
                take(batch[i], on_completion);
        return n == 0;
    }
    template <class OnCompletion>
    void take(work_completion const& completion, OnCompletion& on_completion) {
        bool const ours = completion.qp_num() == qp_.qp_num();
        if (ours && completion.wr_id() == drain_mark) {
            seen.sends = true;
        } else if (ours && completion.wr_id() == drain_mark + 1) {
            seen.receives = true;
        } else {
            ++seen.completions;
            on_completion(completion);
        }
    }

    static constexpr std::span<ibv_sge const> nothing{};

    qp_ref const qp_;
    bool const iwarp_;
    bool send_marked_ = false;
    bool recv_marked_ = false;
    int quiet_ = 0; // looks in a row that found nothing
};

} // namespace detail

template <class Handle>
template <class OnCompletion>
drained qp_operations<Handle>::drain(timeout limit, OnCompletion&& on_completion, std::error_code& ec) const
    noexcept(noexcept(on_completion(std::declval<work_completion const&>()))) {
    ec = raw() ? std::error_code() : std::error_code(errc::empty_handle);
    if (ec)
        return {};
    detail::deadline const until = detail::deadline::after(limit);
    detail::draining queues(as_handle());
    queues.to_error(ec);
    timespec nap{0, 10'000}; // nanoseconds; then longer ones
    while (!ec) {
        queues.mark();
        queues.collect(on_completion, ec);
        if (queues.seen || until.passed())
            break;
        ::nanosleep(&nap, nullptr);
        nap.tv_nsec = nap.tv_nsec < 500'000 ? nap.tv_nsec * 2 : nap.tv_nsec;
    }
    return queues.seen;
}

} // namespace rdma::inline RDMACPP_ABI

#endif
