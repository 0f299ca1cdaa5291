// SPDX-License-Identifier: MIT
/// @file
/// Address handles: where datagrams go.
#pragma once

#include "config.hpp"
#if __cplusplus >= 202002L // below, config.hpp says what to do

#include "cm_event.hpp"
#include "detail/contract.hpp"
#include "pd.hpp"
#include "verbs_owner.hpp"
#include "work_completion.hpp"
#include "work_request.hpp"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace rdma::inline RDMACPP_ABI {

namespace detail {
struct ah_node : verbs_node {
    ah_node() noexcept
        : verbs_node(
              &verbs_node::last<ah_node>, [](void* p) noexcept { return ::ibv_destroy_ah(static_cast<ibv_ah*>(p)); },
              "ibv_destroy_ah") {}
};
} // namespace detail

/// How many bytes of a datagram's receive buffer the device fills with the sender's address (ibv_grh) before the data.
/// Post receives with room for them.
inline constexpr std::size_t grh_size = sizeof(ibv_grh);

/// An owned address handle (ibv_create_ah): a peer that datagrams are sent to. It keeps its PD alive, and must stay
/// until the sends that name it have completed.
class [[nodiscard]] ah : public verbs_owner<ibv_ah, detail::ah_node> {
public:
    /// Empty.
    ah() noexcept = default;

#if RDMACPP_EXCEPTIONS
    /// Makes an address handle. @throws rdma::error errc::not_bound for an empty pd; the errno of ibv_create_ah
    ah(pd_ref pd, ibv_ah_attr const& attr) {
        std::error_code ec;
        *this = ah(pd, attr, ec);
        if (ec)
            detail::throw_error(ec, "ibv_create_ah");
    }
    /// Makes the handle of the peer, or group, that an event tells of: an ESTABLISHED of a datagram id, or a
    /// MULTICAST_JOIN (its ud_param also has the QP number and the key).
    /// @throws rdma::error std::errc::invalid_argument for any other event; as above
    ah(pd_ref pd, cm_event const& event) {
        std::error_code ec;
        *this = ah(pd, event, ec);
        if (ec)
            detail::throw_error(ec, "ibv_create_ah", {event ? to_string(event.type()) : "no event"});
    }
    /// Makes the handle of whoever sent a datagram that was received (ibv_create_ah_from_wc).
    /// @param buffer what the datagram was received into: it begins with the ibv_grh
    /// @param port_num the device's port, cm_id::port_num()
    /// @throws rdma::error std::errc::invalid_argument for a failed completion or a buffer below 40 bytes; as above
    ah(pd_ref pd, work_completion const& received, std::span<std::byte const> buffer, std::uint8_t port_num) {
        std::error_code ec;
        *this = ah(pd, received, buffer, port_num, ec);
        if (ec)
            detail::throw_error(ec, "ibv_create_ah_from_wc");
    }
    /// Takes over a handle that C made, or that release() gave back. @throws rdma::error errc::null_handle,
    /// errc::already_owned
    ah(adopt_t, ibv_ah* raw) {
        std::error_code ec;
        *this = ah(adopt, raw, ec);
        if (ec)
            detail::throw_error(ec, "ibv_create_ah", {"adopt"});
    }
#endif
    /// The twins of the constructors: empty on failure.
    ah(pd_ref pd, ibv_ah_attr const& attr, std::error_code& ec) noexcept {
        ibv_ah_attr copy = attr; // C takes it by a pointer to non-const
        if (auto* const node = fresh_node(static_cast<bool>(pd), ec))
            own(::ibv_create_ah(pd.native_handle(), &copy), node, {pd.keeper_}, ec);
    }
    ah(pd_ref pd, cm_event const& event, std::error_code& ec) noexcept {
        rdma_ud_param const* const peer = event ? event.ud_param() : nullptr;
        if (!peer)
            ec = detail::system_error_code(EINVAL);
        else
            *this = ah(pd, peer->ah_attr, ec);
    }
    ah(pd_ref pd, work_completion const& received, std::span<std::byte const> buffer, std::uint8_t port_num,
       std::error_code& ec) noexcept {
        if (!received || buffer.size() < grh_size) {
            ec = detail::system_error_code(EINVAL);
            return;
        }
        ibv_wc wc = received.native_handle();
        ibv_grh grh;
        std::memcpy(&grh, buffer.data(), sizeof grh);
        if (auto* const node = fresh_node(static_cast<bool>(pd), ec))
            own(::ibv_create_ah_from_wc(pd.native_handle(), &wc, &grh, port_num), node, {pd.keeper_}, ec);
    }
    ah(adopt_t, ibv_ah* raw, std::error_code& ec) noexcept {
        take_over(raw, ec);
        if (node_)
            node_->need_again({raw->pd});
    }

    void swap(ah& other) noexcept { verbs_owner::swap(other); }
    friend void swap(ah& a, ah& b) noexcept { a.swap(b); }
};

inline send_wr& send_wr::to(ah const& peer, std::uint32_t qp_num, std::uint32_t qkey) noexcept {
    wr_.wr.ud = {peer.native_handle(), qp_num, qkey};
    return *this;
}

static_assert(detail::move_only<ah>);
static_assert(!detail::makes<ah, ibv_ah*>);

} // namespace rdma::inline RDMACPP_ABI

#endif
