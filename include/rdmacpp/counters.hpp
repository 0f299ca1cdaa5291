// SPDX-License-Identifier: MIT
/// @file
/// Counters of a device, such as the packets and bytes of a flow.
#pragma once

#include "config.hpp"
#if __cplusplus >= 202002L && !defined(RDMACPP_TWO_VERSIONS) // otherwise config.hpp says what to do

#include "context.hpp"

#include <cstdint>
#include <span>

namespace rdma::inline RDMACPP_ABI {

namespace detail {
struct counters_node : node_of<counters_node, ibv_counters> {
    static constexpr char const* made_by = "ibv_create_counters";
    static constexpr char const* ended_by = "ibv_destroy_counters";
    static int end(ibv_counters* counters) noexcept { return ::ibv_destroy_counters(counters); }
};
} // namespace detail

/// What owned counters and a view of them have in common.
template <class Handle>
class counters_operations {
public:
    /// Reads them (ibv_read_counters), in the order in which they were attached: flow::attach.
    /// @param flags of ibv_read_counters_flags
    void read(std::span<std::uint64_t> into, std::uint32_t flags, std::error_code& ec) const noexcept {
        ec = raw() ? detail::check_returned(
                         ::ibv_read_counters(raw(), into.data(), static_cast<std::uint32_t>(into.size()), flags))
                   : std::error_code(errc::empty_handle);
    }
#if RDMACPP_EXCEPTIONS
    /// The throwing form. @throws rdma::error
    void read(std::span<std::uint64_t> into, std::uint32_t flags = 0) const {
        std::error_code ec;
        read(into, flags, ec);
        if (ec)
            detail::throw_error(ec, "ibv_read_counters");
    }
#endif

private:
    ibv_counters* raw() const noexcept { return static_cast<Handle const*>(this)->native_handle(); }
};

/// Borrowed counters. They destroy nothing and cannot turn into an owner.
class counters_ref : public verbs_ref<counters_ref, ibv_counters>, public counters_operations<counters_ref> {
public:
    using verbs_ref::verbs_ref;
};

/// Owned counters (ibv_create_counters). A flow that counts with them keeps them alive.
class [[nodiscard]] counters : public verbs_owner<detail::counters_node, counters_ref>,
                               public counters_operations<counters> {
public:
    using verbs_owner::verbs_owner;
    /// Empty.
    counters() noexcept = default;

#if RDMACPP_EXCEPTIONS
    /// Makes counters that count nothing yet. @throws rdma::error errc::not_bound for an empty context; EOPNOTSUPP
    /// where the device has none
    explicit counters(context_ref context) {
        std::error_code ec;
        *this = counters(context, ec);
        if (ec)
            detail::throw_error(ec, "ibv_create_counters", {context.device_name()});
    }
#endif
    /// The twin of the creating constructor: empty on failure.
    counters(context_ref context, std::error_code& ec) noexcept {
        ibv_counters_init_attr attr{};
        if (auto* const node = fresh_node(static_cast<bool>(context), ec))
            own(::ibv_create_counters(context.native_handle(), &attr), node, {detail::keeper(context)}, ec);
    }
};

static_assert(std::is_trivially_copyable_v<counters_ref>);
static_assert(detail::move_only<counters>);
static_assert(!detail::makes<counters, counters_ref> && !detail::makes<counters, ibv_counters*>);

} // namespace rdma::inline RDMACPP_ABI

template <>
struct std::hash<::rdma::counters_ref> : ::rdma::RDMACPP_ABI::detail::ref_hash<::rdma::counters_ref> {};

#endif
