// SPDX-License-Identifier: MIT
/// @file
/// Protection domains.
#pragma once

#include "config.hpp"
#if __cplusplus >= 202002L // below, config.hpp says what to do

#include "context.hpp"
#include "detail/contract.hpp"
#include "verbs_owner.hpp"

#include <type_traits>

namespace rdma::inline RDMACPP_ABI {

namespace detail {
struct pd_node : verbs_node {
    pd_node() noexcept
        : verbs_node(
              &verbs_node::last<pd_node>, [](void* p) noexcept { return ::ibv_dealloc_pd(static_cast<ibv_pd*>(p)); },
              "ibv_dealloc_pd") {}
};
} // namespace detail

/// A borrowed protection domain: of a pd, or an id's own (cm_id::pd), which belongs to librdmacm. It frees nothing and
/// cannot turn into an owner; what is made from it keeps the pd, or the id's C object, alive.
class pd_ref {
public:
    pd_ref() noexcept = default;
    /// Borrows a PD of C's; it must outlive what is made from it.
    pd_ref(ibv_pd* raw) noexcept : raw_(raw) {} // NOLINT: a reference to it is no more than the pointer

    /// The C PD; null when empty.
    ibv_pd* native_handle() const noexcept { return raw_; }
    explicit operator bool() const noexcept { return raw_ != nullptr; }

    friend bool operator==(pd_ref a, pd_ref b) noexcept { return a.raw_ == b.raw_; }

private:
    friend class pd;
    friend class ah;
    friend class cm_id;
    friend class mr;
    friend class endpoint;
    friend class qp;
    friend class sync_id;

    pd_ref(ibv_pd* raw, detail::pinnable* keeper) noexcept : raw_(raw), keeper_(keeper) {}

    ibv_pd* raw_ = nullptr;
    detail::pinnable* keeper_ = nullptr;
};

/// An owned protection domain (ibv_alloc_pd). To use it with an id, make it from that id's context: cm_id::verbs.
class [[nodiscard]] pd : public verbs_owner<ibv_pd, detail::pd_node> {
public:
    /// Empty.
    pd() noexcept = default;

#if RDMACPP_EXCEPTIONS
    /// Allocates a protection domain on a device.
    /// @throws rdma::error errc::not_bound for an empty context; the errno of ibv_alloc_pd
    explicit pd(context_ref context) {
        std::error_code ec;
        *this = pd(context, ec);
        if (ec)
            detail::throw_error(ec, "ibv_alloc_pd", {context.device_name()});
    }
    /// Takes over a PD that C made, or that release() gave back. @throws rdma::error errc::null_handle,
    /// errc::already_owned
    pd(adopt_t, ibv_pd* raw) {
        std::error_code ec;
        *this = pd(adopt, raw, ec);
        if (ec)
            detail::throw_error(ec, "ibv_alloc_pd", {"adopt"});
    }
#endif
    /// The twin of the allocating constructor: empty on failure.
    pd(context_ref context, std::error_code& ec) noexcept {
        if (auto* const node = fresh_node(static_cast<bool>(context), ec))
            own(::ibv_alloc_pd(context.native_handle()), node, {context.id_}, ec);
    }
    /// The twin of the adopting constructor: empty on failure.
    pd(adopt_t, ibv_pd* raw, std::error_code& ec) noexcept { take_over(raw, ec); }

    operator pd_ref() const& noexcept { return {raw_, node_}; }
    operator pd_ref() const&& = delete;
    void swap(pd& other) noexcept { verbs_owner::swap(other); }
    friend void swap(pd& a, pd& b) noexcept { a.swap(b); }
};

static_assert(std::is_trivially_copyable_v<pd_ref>);
static_assert(detail::move_only<pd>);
static_assert(!detail::makes<pd, pd_ref> && !detail::makes<pd, ibv_pd*>);

} // namespace rdma::inline RDMACPP_ABI

template <>
struct std::hash<rdma::pd_ref> {
    std::size_t operator()(rdma::pd_ref handle) const noexcept {
        return std::hash<void const*>()(handle.native_handle());
    }
};

#endif
