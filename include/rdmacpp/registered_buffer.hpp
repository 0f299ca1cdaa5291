// SPDX-License-Identifier: MIT
/// @file
/// Memory with its region, for the common case that a program needs both.
#pragma once

#include "config.hpp"
#if __cplusplus >= 202002L && !defined(RDMACPP_TWO_VERSIONS) // otherwise config.hpp says what to do

#include "mr.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include <sys/mman.h>

namespace rdma::inline RDMACPP_ABI {

/// Where the memory of a registered_buffer comes from.
enum class pages {
    normal, ///< Of the system's size.
    huge,   ///< Of 2 MiB, from the system's pool (/proc/sys/vm/nr_hugepages): ENOMEM when that is empty.
};

/// An owned piece of memory and its region: zeroed, aligned to whole pages that it shares with nobody, so that a fork
/// takes nothing else with it.
///
/// It must stay until every work request that names it has completed, and every memory window that is bound to it is
/// gone.
class [[nodiscard]] registered_buffer : public region<registered_buffer> {
public:
    /// Empty.
    registered_buffer() noexcept = default;
    registered_buffer(registered_buffer&& other) noexcept
        : data_(detail::take(other.data_)), size_(detail::take(other.size_)), mapped_(detail::take(other.mapped_)),
          mr_(std::move(other.mr_)) {}
    /// Frees what was held before, at once.
    registered_buffer& operator=(registered_buffer&& other) noexcept {
        registered_buffer(std::move(other)).swap(*this);
        return *this;
    }
    /// Deregisters and frees the memory.
    ~registered_buffer() {
        mr_ = mr();
        if (mapped_ != 0)
            ::munmap(data_, mapped_);
    }

#if RDMACPP_EXCEPTIONS
    /// Allocates and registers memory. @param size at least one byte @param allowed see mr
    /// @throws rdma::error errc::not_bound for an empty pd; std::errc::invalid_argument for no bytes; the errno of mmap
    /// or ibv_reg_mr, which says what is short when it is ENOMEM
    registered_buffer(pd_ref pd, std::size_t size, access allowed, pages kind = pages::normal) {
        std::error_code ec;
        char const* const function = make(pd, size, allowed, kind, ec);
        if (ec)
            detail::throw_error(ec, function, {std::to_string(size), " bytes"});
    }
#endif
    /// The twins of the constructor: empty on failure.
    registered_buffer(pd_ref pd, std::size_t size, access allowed, std::error_code& ec) noexcept {
        make(pd, size, allowed, pages::normal, ec);
    }
    registered_buffer(pd_ref pd, std::size_t size, access allowed, pages kind, std::error_code& ec) noexcept {
        make(pd, size, allowed, kind, ec);
    }

    /// The memory. (A template, so that who does not ask does not pay for it in compile time.)
    template <class Byte = std::byte>
    std::span<Byte> bytes() const noexcept {
        return {data_, size_};
    }
    std::byte* data() const noexcept { return data_; }
    /// Its size in bytes.
    std::size_t size() const noexcept { return size_; }

    /// Its region.
    mr_ref region() const& noexcept { return mr_; }
    mr_ref region() const&& = delete;
    ibv_mr* native_handle() const noexcept { return mr_.native_handle(); }
    explicit operator bool() const noexcept { return static_cast<bool>(mr_); }

    void swap(registered_buffer& other) noexcept {
        detail::swap_values(data_, other.data_);
        detail::swap_values(size_, other.size_);
        detail::swap_values(mapped_, other.mapped_);
        mr_.swap(other.mr_);
    }
    friend void swap(registered_buffer& a, registered_buffer& b) noexcept { a.swap(b); }

private:
    /// @return the function that failed, if `ec` is set
    char const* make(pd_ref pd, std::size_t size, access allowed, pages kind, std::error_code& ec) noexcept {
        ec.clear();
        if (!pd)
            ec = errc::not_bound;
        else if (size == 0)
            ec = detail::system_error_code(EINVAL);
        if (ec)
            return "ibv_reg_mr";
        constexpr std::size_t huge_page = std::size_t{1} << 21;
        constexpr int huge = MAP_HUGETLB | (21 << 26); // the size as a power of two: MAP_HUGE_2MB
        std::size_t const whole = kind == pages::huge ? (size + huge_page - 1) & ~(huge_page - 1) : size;
        void* const memory = ::mmap(nullptr, whole, PROT_READ | PROT_WRITE,
                                    MAP_PRIVATE | MAP_ANONYMOUS | (kind == pages::huge ? huge : 0), -1, 0);
        if (memory == MAP_FAILED) {
            ec = detail::system_error_code(errno);
            return "mmap";
        }
        data_ = static_cast<std::byte*>(memory);
        size_ = size;
        mapped_ = whole;
        mr_ = mr(pd, memory, size, allowed, ec);
        if (ec)
            *this = registered_buffer();
        return "ibv_reg_mr";
    }

    std::byte* data_ = nullptr;
    std::size_t size_ = 0;
    std::size_t mapped_ = 0;
    mr mr_;
};

static_assert(detail::move_only<registered_buffer>);

} // namespace rdma::inline RDMACPP_ABI

#endif
