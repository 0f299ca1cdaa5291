// SPDX-License-Identifier: MIT
/// @file
/// The RDMA devices of this machine, opened or not.
#pragma once

#include "config.hpp"
#if __cplusplus >= 202002L && !defined(RDMACPP_TWO_VERSIONS) // otherwise config.hpp says what to do

#include "detail/contract.hpp"
#include "verbs_list.hpp"
#include "verbs_owner.hpp"

#include <cstdint>
#include <string>
#include <string_view>

namespace rdma::inline RDMACPP_ABI {

/// The transports that differ in what a program must do (ibv_transport_type).
enum class transport_type {
    unknown = IBV_TRANSPORT_UNKNOWN,
    ib = IBV_TRANSPORT_IB, ///< InfiniBand, and RoCE.
    iwarp = IBV_TRANSPORT_IWARP,
    usnic = IBV_TRANSPORT_USNIC,
    usnic_udp = IBV_TRANSPORT_USNIC_UDP,
    unspecified = IBV_TRANSPORT_UNSPECIFIED,
};

/// What kind of device it is (ibv_node_type).
enum class node_type {
    unknown = IBV_NODE_UNKNOWN,
    ca = IBV_NODE_CA,
    switch_ = IBV_NODE_SWITCH,
    router = IBV_NODE_ROUTER,
    rnic = IBV_NODE_RNIC, ///< iWARP
    usnic = IBV_NODE_USNIC,
    usnic_udp = IBV_NODE_USNIC_UDP,
    unspecified = IBV_NODE_UNSPECIFIED,
};

/// The name of a node type, as libibverbs gives it.
inline std::string to_string(node_type type) { return ::ibv_node_type_str(static_cast<ibv_node_type>(type)); }

/// A device that is there; rdma::context opens it. Valid as long as the list that it is from, or the context.
class device_ref : public verbs_ref<device_ref, ibv_device> {
public:
    using verbs_ref::verbs_ref;

    /// Its name, such as "rxe0" (ibv_get_device_name).
    std::string_view name() const noexcept { return raw_ ? ::ibv_get_device_name(raw_) : std::string_view(); }
    /// Its number, which the kernel gives, and does not use again (ibv_get_device_index); -1 if unknown.
    int index() const noexcept { return raw_ ? ::ibv_get_device_index(raw_) : -1; }
    /// Its GUID in network byte order (ibv_get_device_guid).
    std::uint64_t guid() const noexcept { return raw_ ? ::ibv_get_device_guid(raw_) : 0; }
    /// What kind of device it is.
    ::rdma::node_type node_type() const noexcept {
        return raw_ ? static_cast<::rdma::node_type>(raw_->node_type) : ::rdma::node_type::unknown;
    }
    /// The transport: on iwarp the connecting side must send first, and the sink of an RDMA read needs remote write
    /// access.
    ::rdma::transport_type transport() const noexcept {
        return raw_ ? static_cast<::rdma::transport_type>(raw_->transport_type) : ::rdma::transport_type::unknown;
    }
};

/// An owned list of the devices of this machine (ibv_get_device_list). rdma::devices lists those that librdmacm has
/// opened.
class [[nodiscard]] device_list : public verbs_list<device_list, device_ref, ibv_device> {
public:
    /// Empty.
    device_list() noexcept = default;

#if RDMACPP_EXCEPTIONS
    /// Asks for the devices; there may be none. @throws rdma::error the errno of ibv_get_device_list: ENOSYS if the
    /// kernel has no RDMA
    static device_list get() {
        std::error_code ec;
        device_list all = get(ec);
        if (ec)
            detail::throw_error(ec, "ibv_get_device_list");
        return all;
    }
#endif
    /// The twin of get(): empty on failure.
    static device_list get(std::error_code& ec) noexcept {
        int count = 0;
        ibv_device** const all = ::ibv_get_device_list(&count);
        ec = detail::check_pointer(all);
        return device_list(all, count);
    }

    /// The device of that name; empty if there is none.
    device_ref find(std::string_view name) const noexcept {
        for (device_ref const device : *this)
            if (device.name() == name)
                return device;
        return {};
    }

    explicit operator bool() const noexcept { return native_handle() != nullptr; }

private:
    friend class verbs_list<device_list, device_ref, ibv_device>;
    using verbs_list::verbs_list;
    /// Contexts that were opened from it stay (ibv_free_device_list).
    static void free(ibv_device** all) noexcept { ::ibv_free_device_list(all); }
};

static_assert(std::is_trivially_copyable_v<device_ref>);
static_assert(detail::move_only<device_list>);

} // namespace rdma::inline RDMACPP_ABI

template <>
struct std::hash<::rdma::device_ref> : ::rdma::RDMACPP_ABI::detail::ref_hash<::rdma::device_ref> {};

#endif
