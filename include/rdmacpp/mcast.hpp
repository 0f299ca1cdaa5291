// SPDX-License-Identifier: MIT
/// @file
/// Multicast groups that a program attaches a QP to by itself; librdmacm does it for those that an id joins.
#pragma once

#include "config.hpp"
#if __cplusplus >= 202002L && !defined(RDMACPP_TWO_VERSIONS) // otherwise config.hpp says what to do

#include "qp.hpp"

#include <cstdint>
#include <utility>

namespace rdma::inline RDMACPP_ABI {

/// A QP's place in a multicast group (ibv_attach_mcast): move-only; dropped, the QP is detached (ibv_detach_mcast). It
/// keeps the QP alive, which could not be destroyed else.
class [[nodiscard]] mcast {
public:
    /// Of no group.
    mcast() noexcept = default;
    mcast(mcast&& other) noexcept
        : qp_(detail::take(other.qp_)), gid_(other.gid_), lid_(other.lid_), keep_(std::move(other.keep_)),
          born_in_(other.born_in_) {}
    /// Detaches the QP held before, at once.
    mcast& operator=(mcast&& other) noexcept {
        mcast(std::move(other)).swap(*this);
        return *this;
    }
    /// Detaches the QP. A failure is told to the diagnostic handler.
    ~mcast() {
        if (!qp_ || born_in_ != detail::process::current())
            return;
        std::error_code ec;
        ibv_qp* const qp = qp_;
        detach(ec);
        if (ec)
            detail::report({diagnostic_kind::destroy_failed, "ibv_detach_mcast", qp, ec});
    }

#if RDMACPP_EXCEPTIONS
    /// Attaches a datagram QP to a group. @param lid its LID in host byte order; 0 on RoCE
    /// @throws rdma::error errc::empty_handle; the errno of ibv_attach_mcast
    mcast(qp_ref qp, ibv_gid const& group, std::uint16_t lid) {
        std::error_code ec;
        *this = mcast(qp, group, lid, ec);
        if (ec)
            detail::throw_error(ec, "ibv_attach_mcast");
    }
    /// Detaches the QP now; on failure it stays attached. @throws rdma::error the errno of ibv_detach_mcast
    void detach() {
        std::error_code ec;
        detach(ec);
        if (ec)
            detail::throw_error(ec, "ibv_detach_mcast");
    }
#endif
    /// The twin of the attaching constructor: of no group on failure.
    mcast(qp_ref qp, ibv_gid const& group, std::uint16_t lid, std::error_code& ec) noexcept : gid_(group), lid_(lid) {
        ec = qp ? detail::check_returned(::ibv_attach_mcast(qp.native_handle(), &group, lid))
                : std::error_code(errc::empty_handle);
        if (ec)
            return;
        qp_ = qp.native_handle();
        keep_ = detail::keep(detail::keeper(qp));
    }
    /// The twin of detach().
    void detach(std::error_code& ec) noexcept {
        ec = qp_ ? detail::check_returned(::ibv_detach_mcast(qp_, &gid_, lid_)) : std::error_code();
        if (ec)
            return;
        qp_ = nullptr;
        keep_ = detail::keep();
    }

    explicit operator bool() const noexcept { return qp_ != nullptr; }
    void swap(mcast& other) noexcept {
        detail::swap_values(qp_, other.qp_);
        detail::swap_values(gid_, other.gid_);
        detail::swap_values(lid_, other.lid_);
        detail::swap_values(born_in_, other.born_in_);
        std::swap(keep_, other.keep_);
    }
    friend void swap(mcast& a, mcast& b) noexcept { a.swap(b); }

private:
    ibv_qp* qp_ = nullptr;
    ibv_gid gid_{};
    std::uint16_t lid_ = 0;
    detail::keep keep_;
    unsigned born_in_ = detail::process::current();
};

static_assert(detail::move_only<mcast>);

} // namespace rdma::inline RDMACPP_ABI

#endif
