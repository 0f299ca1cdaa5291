// SPDX-License-Identifier: MIT
/// @file
/// The devices that librdmacm has opened.
#pragma once

#include "config.hpp"
#if __cplusplus >= 202002L // below, config.hpp says what to do

#include "context.hpp"
#include "detail/contract.hpp"

#include <cstddef>
#include <iterator>
#include <system_error>
#include <utility>

namespace rdma::inline RDMACPP_ABI {

/// The RDMA devices of this machine, as librdmacm has opened them (rdma_get_devices): a range of context_ref.
///
///     for (rdma::context_ref device : rdma::devices::get()) { ... }
///
/// The contexts belong to librdmacm, and are the same that ids have (cm_id::verbs). The list keeps them open: while it
/// is held, the default PD of a device stays, too.
class [[nodiscard]] devices {
public:
    /// Over the contexts; a view of each is made on the way.
    class iterator {
    public:
        using iterator_category = std::forward_iterator_tag;
        using value_type = context_ref;
        using difference_type = std::ptrdiff_t;
        using pointer = void;
        using reference = context_ref;

        iterator() noexcept = default;
        context_ref operator*() const noexcept { return *at_; }
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
        friend class devices;
        explicit iterator(ibv_context* const* at) noexcept : at_(at) {}
        ibv_context* const* at_ = nullptr;
    };

    /// Empty.
    devices() noexcept = default;

#if RDMACPP_EXCEPTIONS
    /// Asks for the devices. @throws rdma::error the errno of rdma_get_devices: ENODEV if there is none
    static devices get() {
        std::error_code ec;
        devices all = get(ec);
        if (ec)
            detail::throw_error(ec, "rdma_get_devices");
        return all;
    }
#endif
    /// The twin of get(): empty on failure.
    static devices get(std::error_code& ec) noexcept {
        devices all;
        int count = 0;
        all.all_ = ::rdma_get_devices(&count);
        ec = detail::check_pointer(all.all_);
        all.count_ = all.all_ ? static_cast<std::size_t>(count) : 0;
        return all;
    }
    devices(devices&& other) noexcept : all_(detail::take(other.all_)), count_(detail::take(other.count_)) {}
    /// Frees the list held before.
    devices& operator=(devices&& other) noexcept {
        devices(std::move(other)).swap(*this);
        return *this;
    }
    /// Frees the list (rdma_free_devices); the contexts stay librdmacm's. In a forked child nothing is freed.
    ~devices() {
        if (all_ && born_in_ == detail::process::current())
            ::rdma_free_devices(all_);
    }

    iterator begin() const noexcept { return iterator(all_); }
    iterator end() const noexcept { return iterator(all_ + count_); }
    std::size_t size() const noexcept { return count_; }
    bool empty() const noexcept { return count_ == 0; }
    context_ref operator[](std::size_t i) const noexcept {
        RDMACPP_ASSERT(i < count_);
        return all_[i];
    }

    /// The C array, which ends with a null pointer; still owned by this.
    ibv_context** native_handle() const noexcept { return all_; }
    /// Gives the C array back, to be freed with rdma_free_devices.
    [[nodiscard]] ibv_context** release() noexcept {
        count_ = 0;
        return detail::take(all_);
    }
    void swap(devices& other) noexcept {
        detail::swap_values(all_, other.all_);
        detail::swap_values(count_, other.count_);
        detail::swap_values(born_in_, other.born_in_);
    }
    friend void swap(devices& a, devices& b) noexcept { a.swap(b); }

private:
    ibv_context** all_ = nullptr;
    std::size_t count_ = 0;
    unsigned born_in_ = detail::process::current();
};

static_assert(detail::move_only<devices>);

} // namespace rdma::inline RDMACPP_ABI

#endif
