// SPDX-License-Identifier: MIT
/// @file
/// Address handles: where datagrams go.
#pragma once

#include "config.hpp"
#if __cplusplus >= 202002L && !defined(RDMACPP_TWO_VERSIONS) // otherwise config.hpp says what to do

#include "cm_event.hpp"
#include "pd.hpp"
#include "work_completion.hpp"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace rdma::inline RDMACPP_ABI {

namespace detail {
struct ah_node : node_of<ah_node, ibv_ah> {
    static constexpr char const* made_by = "ibv_create_ah";
    static constexpr char const* ended_by = "ibv_destroy_ah";
    static int end(ibv_ah* ah) noexcept { return ::ibv_destroy_ah(ah); }
    void recall() noexcept { need_again({object()->pd}); }
};
} // namespace detail

/// How many bytes of a datagram's receive buffer the device fills with the sender's address (ibv_grh) before the data.
/// Post receives with room for them.
inline constexpr std::size_t grh_size = sizeof(ibv_grh);

/// A borrowed address handle. It destroys nothing and cannot turn into an owner.
class ah_ref : public verbs_ref<ah_ref, ibv_ah> {
public:
    using verbs_ref::verbs_ref;
};

/// An owned address handle (ibv_create_ah): a peer that datagrams are sent to. It keeps its PD alive, and must stay
/// until the sends that name it have completed.
class [[nodiscard]] ah : public verbs_owner<detail::ah_node, ah_ref> {
public:
    using verbs_owner::verbs_owner;
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
#endif
    /// The twins of the constructors: empty on failure.
    ah(pd_ref pd, ibv_ah_attr const& attr, std::error_code& ec) noexcept {
        ibv_ah_attr copy = attr; // C takes it by a pointer to non-const
        if (auto* const node = fresh_node(static_cast<bool>(pd), ec))
            own(::ibv_create_ah(pd.native_handle(), &copy), node, {detail::keeper(pd)}, ec);
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
            own(::ibv_create_ah_from_wc(pd.native_handle(), &wc, &grh, port_num), node, {detail::keeper(pd)}, ec);
    }
};

static_assert(std::is_trivially_copyable_v<ah_ref>);
static_assert(detail::move_only<ah>);
static_assert(!detail::makes<ah, ah_ref> && !detail::makes<ah, ibv_ah*>);

} // namespace rdma::inline RDMACPP_ABI

template <>
struct std::hash<::rdma::ah_ref> : ::rdma::RDMACPP_ABI::detail::ref_hash<::rdma::ah_ref> {};

#endif
