// SPDX-License-Identifier: MIT
/// @file
/// A communication event, which acks itself: one get, one ack.
#pragma once

#include "config.hpp"
#if __cplusplus >= 202002L && !defined(RDMACPP_TWO_VERSIONS) // otherwise config.hpp says what to do

#include "address.hpp"
#include "adopt.hpp"
#include "cm_id_ref.hpp"
#include "conn_param.hpp"
#include "detail/channel_state.hpp"
#include "detail/contract.hpp"
#include "detail/newer.hpp"
#include "event_type.hpp"
#include "private_data.hpp"

#include <cstring>
#include <optional>
#include <string>
#include <system_error>
#include <type_traits>
#include <utility>

namespace rdma::inline RDMACPP_ABI {

class cm_id;

namespace detail {
struct event_access;
}

/// An event of an event channel: owned, move-only, acked exactly once.
///
/// While it is held it pins every id it names: an id dropped meanwhile is disconnected at once and destroyed with the
/// ack, so no order of destruction hangs. It may outlive its id, its listener and the channel object, be moved
/// anywhere, and be acked on any thread. A CONNECT_REQUEST owns the new id until take_id(): if nobody takes it, the
/// connection is rejected and the id destroyed with the event.
///
/// Every observer needs an event that is held: not moved from, acked or released (checked by RDMACPP_ASSERT).
class [[nodiscard]] cm_event {
public:
    /// No event.
    cm_event() noexcept = default;
    cm_event(cm_event&& other) noexcept : held_(detail::take(other.held_)) {}
    /// Acks the event held before, at once.
    cm_event& operator=(cm_event&& other) noexcept {
        cm_event(std::move(other)).swap(*this);
        return *this;
    }
    /// Acks the event (rdma_ack_cm_event), if it is still held. Never throws and never waits for anybody.
    ~cm_event() { ack(); }

#if RDMACPP_EXCEPTIONS
    /// Takes over an event that C got, or that release() gave back: the ids it names are pinned from here on.
    /// @throws rdma::error errc::null_handle; std::errc::not_enough_memory (then C still has it)
    cm_event(adopt_t, rdma_cm_event* raw) {
        std::error_code ec;
        *this = cm_event(adopt, raw, ec);
        if (ec)
            detail::throw_error(ec, "rdma_get_cm_event", {"adopt"});
    }
#endif
    /// The twin of the adopting constructor: on failure this is empty and C still has the event.
    cm_event(adopt_t, rdma_cm_event* raw, std::error_code& ec) noexcept {
        ec.clear();
        if (!raw) {
            ec = errc::null_handle;
            return;
        }
        detail::channel_state* const channel = detail::channel_state::borrow(detail::charged_id(*raw)->channel, ec);
        if (!channel)
            return;
        channel->adopt_event(raw, held_, ec);
        channel->unref(); // the pins keep it
    }

    /// Acks now (rdma_ack_cm_event), rather than at the end of the scope: releases the ids, and a listener's port.
    /// Views of private data die with it. Nothing happens on an empty event.
    void ack() noexcept {
        if (held_.raw)
            detail::channel_state::of(held_).ack(detail::take(held_));
    }

    /// Gives the C event back, to be acked with rdma_ack_cm_event. Its pins stay until it is adopted again.
    [[nodiscard]] rdma_cm_event* release() noexcept {
        if (held_.raw)
            detail::channel_state::release_event(held_);
        return detail::take(held_).raw;
    }

    /// The C event, still owned by this.
    rdma_cm_event* native_handle() const noexcept { return held_.raw; }
    explicit operator bool() const noexcept { return held_.raw != nullptr; }
    void swap(cm_event& other) noexcept { detail::swap_values(held_, other.held_); }
    friend void swap(cm_event& a, cm_event& b) noexcept { a.swap(b); }

    /// What happened. May be a value that this version does not know.
    cm_event_type type() const noexcept { return detail::type_of(raw()); }

    /// The raw status, as C gave it: 0, a negative errno, a transport's reject reason, or something librdmacm made up.
    int status() const noexcept { return raw().status; }

    /// The status, interpreted by event type, sign and transport: no error, an errno, a reject_reason, or
    /// errc::unspecified.
    std::error_code error() const noexcept;

    /// The id that the event is about: for a CONNECT_REQUEST the new one. It stays valid while the event is held.
    cm_id_ref id() const noexcept { return cm_id_ref(raw().id); }

    /// For a CONNECT_REQUEST the listener, otherwise empty.
    cm_id_ref listen_id() const noexcept { return cm_id_ref(raw().listen_id); }

#if RDMACPP_EXCEPTIONS
    /// Takes the new id of a CONNECT_REQUEST: it is the caller's then, to accept, reject or drop.
    /// @throws rdma::error errc::no_id_to_take for any other event, and the second time
    [[nodiscard]] cm_id take_id();
#endif
    /// The twin of take_id(): empty on failure.
    [[nodiscard]] cm_id take_id(std::error_code& ec) noexcept;

    /// The private data of the peer, in place: valid until the event is acked. Its size is an upper bound, see
    /// private_data. Empty when the event carries none: a rejection made by the network, or by a kernel, has no bytes
    /// of an application.
    /// (A template, so that who does not ask does not pay for it in compile time.)
    template <class Byte = std::byte>
    std::span<Byte const> private_data() const& noexcept {
        return {static_cast<Byte const*>(bytes()), size()};
    }
    template <class Byte = std::byte>
    std::span<Byte const> private_data() const&& = delete;

    /// A copy of the private data, which outlives the event.
    ::rdma::private_data copy_private_data() const noexcept { return ::rdma::private_data(bytes(), size()); }

    /// The private data as a `T`, if there are at least that many bytes: senders' padding is ignored.
    template <class T>
    std::optional<T> read_private_data() const noexcept {
        static_assert(std::is_trivially_copyable_v<T> && std::is_default_constructible_v<T>);
        if (size() < sizeof(T))
            return std::nullopt;
        T value;
        std::memcpy(&value, bytes(), sizeof value);
        return value;
    }

    /// The peer's parameters, in place: for a CONNECT_REQUEST, CONNECT_RESPONSE or ESTABLISHED of a connected id, else
    /// null: never the misread datagram half of C's union. Valid until the event is acked.
    rdma_conn_param const* param() const& noexcept;
    rdma_conn_param const* param() const&& = delete;

    /// The address vector, QP number and key to send datagrams to, in place: for an ESTABLISHED of a datagram id, a
    /// CONNECT_REQUEST or a MULTICAST_JOIN, else null. Valid until the event is acked.
    rdma_ud_param const* ud_param() const& noexcept;
    rdma_ud_param const* ud_param() const&& = delete;

    /// For a MULTICAST_JOIN or MULTICAST_ERROR the user's pointer of cm_id::join_multicast, else null.
    void* join_context() const noexcept {
        RDMACPP_ASSERT(held_.raw);
        return detail::channel_state::user_context_of_join(held_);
    }

    /// For an event of type USER what its writer put there, else 0 (rdma-core 60 and newer; cm_id::write_cm_event).
    template <class Id = rdma_cm_id>
        requires detail::has_write_cm_event<Id> std::uint64_t user_arg()
    const noexcept {
        std::uint64_t arg = 0;
        if (type() == cm_event_type::user)
            std::memcpy(&arg, &raw().param, sizeof arg);
        return arg;
    }

private:
    friend class event_channel;
    friend class request;
    friend struct detail::event_access;
    template <class, bool>
    friend class event_range;
    template <class, class, bool>
    friend class event_source;

    using channel_type = detail::channel_state;
    static constexpr char const* get_function = "rdma_get_cm_event";

    static detail::woken receive(channel_type& channel, cm_event& event, detail::deadline const& until,
                                 any_stop_token const& stop, wait_options options, std::error_code& ec) noexcept {
        return channel.get(event.held_, until, stop, options, ec);
    }
    static bool try_receive(channel_type& channel, cm_event& event, wait_options options,
                            std::error_code& ec) noexcept {
        return channel.try_get(event.held_, options, ec);
    }

    rdma_cm_event const& raw() const noexcept {
        RDMACPP_ASSERT(held_.raw);
        return *held_.raw;
    }

    bool carries_param() const noexcept;
    void const* bytes() const noexcept;
    std::size_t size() const noexcept;
    bool is_datagram() const noexcept { return raw().id->qp_type == IBV_QPT_UD; }

    detail::held_event held_;
};

static_assert(detail::move_only<cm_event> && detail::nothrow_empty<cm_event>);
static_assert(!detail::makes<cm_event, rdma_cm_event*> && !std::is_convertible_v<rdma_cm_event*, cm_event>);
static_assert(sizeof(cm_event) <= 3 * sizeof(void*));

/// Type, raw status with its meaning, ids and addresses, on one line: for logs.
std::string to_string(cm_event const& event);

// ---- Implementation ------------------------------------------------------------------------------------------------

inline std::error_code cm_event::error() const noexcept {
    int const status = raw().status;
    switch (type()) {
    case cm_event_type::rejected:
        if (status > 0) // iWARP reports a negative errno here, InfiniBand and RoCE the reason of the REJ message
            return static_cast<reject_reason>(status);
        break;
    case cm_event_type::unreachable:
        if (status > 0 && is_datagram()) // the status of a SIDR reply: 1 unsupported service, 2 rejected, 3 no QP ...
            return reject_reason::unsupported;
        break;
    case cm_event_type::user: return {}; // whatever its writer put there
    default: break;
    }
    if (status == 0)
        return {};
    if (status == -1)
        return errc::unspecified; // made up by librdmacm; it is not EPERM
    return detail::system_error_code(status);
}

/// librdmacm fills `param` for these alone.
inline bool cm_event::carries_param() const noexcept {
    switch (type()) {
    case cm_event_type::connect_request:
    case cm_event_type::connect_response:
    case cm_event_type::established:
    case cm_event_type::rejected:
    case cm_event_type::unreachable:
    case cm_event_type::connect_error:
    case cm_event_type::disconnected: return true;
    default: return false;
    }
}

/// Where the private data is; null if there is none.
inline void const* cm_event::bytes() const noexcept {
    if (!carries_param())
        return nullptr;
    return is_datagram() ? raw().param.ud.private_data : raw().param.conn.private_data;
}

inline std::size_t cm_event::size() const noexcept {
    if (!bytes())
        return 0;
    return is_datagram() ? raw().param.ud.private_data_len : raw().param.conn.private_data_len;
}

inline rdma_conn_param const* cm_event::param() const& noexcept {
    switch (type()) {
    case cm_event_type::connect_request:
    case cm_event_type::connect_response:
    case cm_event_type::established: return is_datagram() ? nullptr : &raw().param.conn;
    default: return nullptr;
    }
}

inline rdma_ud_param const* cm_event::ud_param() const& noexcept {
    switch (type()) {
    case cm_event_type::connect_request:
    case cm_event_type::established:
    case cm_event_type::multicast_join: return is_datagram() ? &raw().param.ud : nullptr;
    default: return nullptr;
    }
}

inline std::string to_string(cm_event const& event) {
    if (!event)
        return "no event";
    std::error_code const ec = event.error();
    std::string text =
        detail::concat({to_string(event.type()), ", status ", std::to_string(event.status()), ec ? " (" : "",
                        ec ? ec.message() : "", ec ? ")" : "", ", id ", to_string(event.id())});
    if (event.listen_id())
        text.append(detail::concat({", listener ", to_string(event.listen_id())}));
    return text;
}

} // namespace rdma::inline RDMACPP_ABI

#endif
