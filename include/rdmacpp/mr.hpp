// SPDX-License-Identifier: MIT
/// @file
/// Memory regions: what a device may read and write.
#pragma once

#include "config.hpp"
#if __cplusplus >= 202002L // below, config.hpp says what to do

#include "detail/contract.hpp"
#include "pd.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

namespace rdma::inline RDMACPP_ABI {

/// What may be done with a memory region (ibv_access_flags); combine with `|`. Reading it locally is always allowed.
enum class access : unsigned {
    none = 0,
    local_write = IBV_ACCESS_LOCAL_WRITE,
    remote_write =
        IBV_ACCESS_REMOTE_WRITE, ///< Needs local_write. On iWARP also the sink of our own RDMA reads needs it.
    remote_read = IBV_ACCESS_REMOTE_READ,
    remote_atomic = IBV_ACCESS_REMOTE_ATOMIC, ///< Needs local_write.
    mw_bind = IBV_ACCESS_MW_BIND,
    zero_based = IBV_ACCESS_ZERO_BASED,
    on_demand = IBV_ACCESS_ON_DEMAND,
    huge_tlb = IBV_ACCESS_HUGETLB,
    relaxed_ordering = IBV_ACCESS_RELAXED_ORDERING,
};
constexpr access operator|(access a, access b) noexcept {
    return static_cast<access>(static_cast<unsigned>(a) | static_cast<unsigned>(b));
}
constexpr access operator&(access a, access b) noexcept {
    return static_cast<access>(static_cast<unsigned>(a) & static_cast<unsigned>(b));
}

/// Memory of a peer, as it told us: an address in its space, and the key of its region.
struct remote_memory {
    std::uint64_t address;
    std::uint32_t rkey;
};

/// An owned memory region (ibv_reg_mr). The memory is the caller's: it must stay until the region is gone, and until
/// every work request that names it has completed.
class [[nodiscard]] mr {
public:
    /// Empty.
    mr() noexcept = default;
    mr(mr&& other) noexcept : raw_(detail::take(other.raw_)), pd_(detail::take(other.pd_)), born_in_(other.born_in_) {}
    /// Deregisters the region held before, at once.
    mr& operator=(mr&& other) noexcept {
        mr(std::move(other)).swap(*this);
        return *this;
    }
    /// Deregisters the region (ibv_dereg_mr). A failure is told to the diagnostic handler.
    ~mr() {
        if (!raw_ || born_elsewhere())
            return;
        if (std::error_code const ec = detail::check_returned(::ibv_dereg_mr(raw_)))
            detail::report({diagnostic_kind::destroy_failed, "ibv_dereg_mr", raw_, ec});
        detail::unpin(pd_);
    }

#if RDMACPP_EXCEPTIONS
    /// Registers memory with a protection domain, which is kept alive. Pins its pages, which takes time.
    /// @param pd a pd, or cm_id::pd()
    /// @param memory at least one byte
    /// @throws rdma::error errc::not_bound for an empty pd; the errno of ibv_reg_mr. ENOMEM names the size and, if
    /// there is one, the limit of locked memory.
    mr(pd_ref pd, std::span<std::byte> memory, access allowed) {
        std::error_code ec;
        *this = mr(pd, memory, allowed, ec);
        if (ec)
            detail::throw_error(ec, "ibv_reg_mr", {std::to_string(memory.size()), " bytes"});
    }
    /// Takes over a region that C made, or that release() gave back; its PD must outlive it.
    /// @throws rdma::error errc::null_handle
    mr(adopt_t, ibv_mr* raw) {
        std::error_code ec;
        *this = mr(adopt, raw, ec);
        if (ec)
            detail::throw_error(ec, "ibv_reg_mr", {"adopt"});
    }
    /// Deregisters the region now (ibv_dereg_mr, and so rdma_dereg_mr); on failure it stays as it was.
    /// @throws rdma::error the errno of ibv_dereg_mr
    void destroy() {
        std::error_code ec;
        destroy(ec);
        if (ec)
            detail::throw_error(ec, "ibv_dereg_mr");
    }
#endif
    /// The twin of the registering constructor: empty on failure.
    mr(pd_ref pd, std::span<std::byte> memory, access allowed, std::error_code& ec) noexcept {
        ec.clear();
        if (!pd) {
            ec = errc::not_bound;
            return;
        }
        errno = 0;
        // The macro of this name would pick another function for constant flags; the plain one takes them all.
        raw_ = (::ibv_reg_mr)(pd.native_handle(), memory.data(), memory.size(), static_cast<int>(allowed));
        if ((ec = detail::check_pointer(raw_)))
            return;
        detail::pin(pd_ = pd.keeper_);
    }
    /// The twin of the adopting constructor: empty on failure.
    mr(adopt_t, ibv_mr* raw, std::error_code& ec) noexcept : raw_(raw) {
        ec = raw ? std::error_code{} : std::error_code(errc::null_handle);
    }
    /// The twin of destroy().
    void destroy(std::error_code& ec) noexcept {
        ec.clear();
        if (!raw_ || (ec = detail::check_returned(::ibv_dereg_mr(raw_))))
            return;
        raw_ = nullptr;
        detail::unpin(detail::take(pd_));
    }

    /// The C region, still owned by this.
    ibv_mr* native_handle() const noexcept { return raw_; }
    explicit operator bool() const noexcept { return raw_ != nullptr; }

    /// Gives the C region back; takes no lock and makes no C call. Its PD is no longer kept for it, unless nobody else
    /// does.
    [[nodiscard]] ibv_mr* release() noexcept {
        if (pd_ && !pd_->inherited())
            detail::unref_unless_last(pd_->pins);
        pd_ = nullptr;
        return detail::take(raw_);
    }
    void swap(mr& other) noexcept {
        detail::swap_values(raw_, other.raw_);
        detail::swap_values(pd_, other.pd_);
        detail::swap_values(born_in_, other.born_in_);
    }
    friend void swap(mr& a, mr& b) noexcept { a.swap(b); }

    /// Where the registered memory begins; null when the handle is empty.
    void* addr() const noexcept { return raw_ ? raw_->addr : nullptr; }
    /// Its length in bytes; 0 when the handle is empty.
    std::size_t length() const noexcept { return raw_ ? raw_->length : 0; }
    std::uint32_t lkey() const noexcept {
        RDMACPP_ASSERT(raw_);
        return raw_->lkey;
    }
    std::uint32_t rkey() const noexcept {
        RDMACPP_ASSERT(raw_);
        return raw_->rkey;
    }

    /// What to tell a peer so that it can read or write the region.
    remote_memory remote() const noexcept {
        RDMACPP_ASSERT(raw_);
        return {reinterpret_cast<std::uintptr_t>(raw_->addr), raw_->rkey};
    }

    /// A scatter/gather element of the region: `length` bytes from `offset`.
    ibv_sge sge(std::size_t offset, std::size_t length) const noexcept {
        RDMACPP_ASSERT(raw_ && offset <= raw_->length && length <= raw_->length - offset);
        return {reinterpret_cast<std::uintptr_t>(raw_->addr) + offset, static_cast<std::uint32_t>(length), raw_->lkey};
    }
    /// The whole region as one element.
    ibv_sge sge() const noexcept {
        RDMACPP_ASSERT(raw_);
        return sge(0, raw_->length);
    }

private:
    bool born_elsewhere() const noexcept { return pd_ ? pd_->inherited() : born_in_ != detail::process::current(); }

    ibv_mr* raw_ = nullptr;
    detail::pinnable* pd_ = nullptr;
    unsigned born_in_ = detail::process::current();
};

static_assert(detail::move_only<mr>);
static_assert(!detail::makes<mr, ibv_mr*>);

} // namespace rdma::inline RDMACPP_ABI

#endif
