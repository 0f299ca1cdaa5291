// SPDX-License-Identifier: MIT
/// @file
/// The RDMA devices of this machine, opened or not.
#pragma once

#include "config.hpp"
#if __cplusplus >= 202002L // below, config.hpp says what to do

#include "detail/contract.hpp"
#include "detail/pin.hpp"
#include "verbs_owner.hpp"

#include <cstddef>
#include <cstdint>
#include <iterator>
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
    rdma::node_type node_type() const noexcept {
        return raw_ ? static_cast<rdma::node_type>(raw_->node_type) : rdma::node_type::unknown;
    }
    /// The transport: on iwarp the connecting side must send first, and the sink of an RDMA read needs remote write
    /// access.
    rdma::transport_type transport() const noexcept {
        return raw_ ? static_cast<rdma::transport_type>(raw_->transport_type) : rdma::transport_type::unknown;
    }
};

/// An owned list of the devices of this machine (ibv_get_device_list). rdma::devices lists those that librdmacm has
/// opened.
class [[nodiscard]] device_list {
public:
    /// Steps over the devices.
    class iterator {
    public:
        using iterator_concept = std::forward_iterator_tag;
        using value_type = device_ref;
        using difference_type = std::ptrdiff_t;

        iterator() noexcept = default;
        device_ref operator*() const noexcept { return *at_; }
        iterator& operator++() noexcept {
            ++at_;
            return *this;
        }
        iterator operator++(int) noexcept {
            iterator const before = *this;
            ++at_;
            return before;
        }
        friend bool operator==(iterator a, iterator b) noexcept { return a.at_ == b.at_; }

    private:
        friend class device_list;
        explicit iterator(ibv_device* const* at) noexcept : at_(at) {}
        ibv_device* const* at_ = nullptr;
    };

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
        device_list all;
        int count = 0;
        all.all_ = ::ibv_get_device_list(&count);
        ec = detail::check_pointer(all.all_);
        all.count_ = all.all_ ? static_cast<std::size_t>(count) : 0;
        return all;
    }
    device_list(device_list&& other) noexcept : all_(detail::take(other.all_)), count_(detail::take(other.count_)) {}
    /// Frees the list held before.
    device_list& operator=(device_list&& other) noexcept {
        device_list(std::move(other)).swap(*this);
        return *this;
    }
    /// Frees the list (ibv_free_device_list); contexts that were opened from it stay.
    ~device_list() {
        if (all_)
            ::ibv_free_device_list(all_);
    }

    iterator begin() const noexcept { return iterator(all_); }
    iterator end() const noexcept { return iterator(all_ + count_); }
    std::size_t size() const noexcept { return count_; }
    bool empty() const noexcept { return count_ == 0; }
    device_ref operator[](std::size_t i) const noexcept {
        RDMACPP_ASSERT(i < count_);
        return all_[i];
    }

    /// The device of that name; empty if there is none.
    device_ref find(std::string_view name) const noexcept {
        for (device_ref const device : *this)
            if (device.name() == name)
                return device;
        return {};
    }

    /// The C array, which ends with a null pointer; still owned by this.
    ibv_device** native_handle() const noexcept { return all_; }
    explicit operator bool() const noexcept { return all_ != nullptr; }
    /// Gives the C array back, to be freed with ibv_free_device_list.
    [[nodiscard]] ibv_device** release() noexcept {
        count_ = 0;
        return detail::take(all_);
    }
    void swap(device_list& other) noexcept {
        detail::swap_values(all_, other.all_);
        detail::swap_values(count_, other.count_);
    }
    friend void swap(device_list& a, device_list& b) noexcept { a.swap(b); }

private:
    ibv_device** all_ = nullptr;
    std::size_t count_ = 0;
};

static_assert(std::is_trivially_copyable_v<device_ref>);
static_assert(detail::move_only<device_list>);

} // namespace rdma::inline RDMACPP_ABI

template <>
struct std::hash<rdma::device_ref> : rdma::detail::ref_hash<rdma::device_ref> {};

#endif
