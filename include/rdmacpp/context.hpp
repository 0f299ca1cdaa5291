// SPDX-License-Identifier: MIT
/// @file
/// A view of an opened device: the context of an id belongs to librdmacm, and is only ever borrowed.
#pragma once

#include "config.hpp"
#if __cplusplus >= 202002L // below, config.hpp says what to do

#include "detail/c_api.hpp"
#include "detail/check.hpp"
#include "detail/pin.hpp"

#include <string_view>
#include <system_error>
#include <type_traits>

namespace rdma::inline RDMACPP_ABI {

class async_event;

/// The transports that differ in what a program must do (ibv_transport_type).
enum class transport_type {
    unknown = IBV_TRANSPORT_UNKNOWN,
    ib = IBV_TRANSPORT_IB, ///< InfiniBand, and RoCE.
    iwarp = IBV_TRANSPORT_IWARP,
    usnic = IBV_TRANSPORT_USNIC,
    usnic_udp = IBV_TRANSPORT_USNIC_UDP,
    unspecified = IBV_TRANSPORT_UNSPECIFIED,
};

/// A borrowed ibv_context. It closes nothing, and cannot turn into an owner.
///
/// Taken from an id (cm_id::verbs), it remembers the id: what is made from it keeps the id's C object alive, which must
/// outlast its device's objects. It is empty for an id without a device: a wildcard listener, or an address not
/// resolved yet.
class context_ref {
public:
    context_ref() noexcept = default;
    /// Borrows a context that C opened; it must outlive what is made from it.
    context_ref(ibv_context* raw) noexcept : raw_(raw) {} // NOLINT: a reference to it is no more than the pointer

    /// The C context; null when empty.
    ibv_context* native_handle() const noexcept { return raw_; }
    explicit operator bool() const noexcept { return raw_ != nullptr; }

    /// The device's name, such as "rxe0"; empty when there is none.
    std::string_view device_name() const noexcept {
        return raw_ ? std::string_view(::ibv_get_device_name(raw_->device)) : std::string_view();
    }

    /// The transport: on iwarp the connecting side must send first, and the sink of an RDMA read needs remote write
    /// access.
    transport_type transport() const noexcept {
        return raw_ ? static_cast<transport_type>(raw_->device->transport_type) : transport_type::unknown;
    }

#if RDMACPP_EXCEPTIONS
    /// The device's attributes (ibv_query_device). @throws rdma::error with the errno of the call
    ibv_device_attr query_device() const {
        std::error_code ec;
        ibv_device_attr const attr = query_device(ec);
        if (ec)
            detail::throw_error(ec, "ibv_query_device", {device_name()});
        return attr;
    }
    /// Gets one async event if there is one; see the twin. @throws rdma::error with the errno of the call
    async_event try_get_async_event() const;
#endif
    /// The twin of query_device().
    ibv_device_attr query_device(std::error_code& ec) const noexcept {
        ibv_device_attr attr{};
        ec = raw_ ? detail::check_returned(::ibv_query_device(raw_, &attr)) : std::error_code(errc::empty_handle);
        return attr;
    }
    /// Gets one async event of the device if there is one (ibv_get_async_event), never waiting; the descriptor becomes
    /// non-blocking, for C too. An empty event and no `ec` means that there is none.
    async_event try_get_async_event(std::error_code& ec) const noexcept;

    friend bool operator==(context_ref a, context_ref b) noexcept { return a.raw_ == b.raw_; }

private:
    friend class cm_id;
    friend class pd;
    friend class cq;
    friend class comp_channel;
    friend class sync_id;
    friend class xrcd;

    context_ref(ibv_context* raw, detail::pinnable* id) noexcept : raw_(raw), id_(id) {}

    ibv_context* raw_ = nullptr;
    detail::pinnable* id_ = nullptr; // what objects made from it must keep alive
};

static_assert(std::is_trivially_copyable_v<context_ref>);
static_assert(sizeof(context_ref) <= 2 * sizeof(void*));

} // namespace rdma::inline RDMACPP_ABI

template <>
struct std::hash<rdma::context_ref> {
    std::size_t operator()(rdma::context_ref handle) const noexcept {
        return std::hash<void const*>()(handle.native_handle());
    }
};

#endif
