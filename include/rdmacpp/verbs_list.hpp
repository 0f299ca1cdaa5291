// SPDX-License-Identifier: MIT
/// @file
/// What the lists that C hands out have in common: of devices, and of those that librdmacm has opened.
#pragma once

#include "config.hpp"
#if __cplusplus >= 202002L && !defined(RDMACPP_TWO_VERSIONS) // otherwise config.hpp says what to do

#include "detail/pin.hpp"
#include "detail/process.hpp"

#include <cstddef>
#include <iterator>

namespace rdma::inline RDMACPP_ABI {

/// An owned array of C's as a range of views: move-only, empty when default-constructed, moved from or released.
/// @tparam List says how C frees it: `static void free(Raw**) noexcept`
template <class List, class Ref, class Raw>
class verbs_list {
public:
    /// Over the objects; a view of each is made on the way.
    class iterator {
    public:
        using iterator_category = std::forward_iterator_tag;
        using value_type = Ref;
        using difference_type = std::ptrdiff_t;
        using pointer = void;
        using reference = Ref;

        iterator() noexcept = default;
        Ref operator*() const noexcept { return *at_; }
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
        friend class verbs_list;
        explicit iterator(Raw* const* at) noexcept : at_(at) {}
        Raw* const* at_ = nullptr;
    };

    iterator begin() const noexcept { return iterator(all_); }
    iterator end() const noexcept { return iterator(all_ + count_); }
    std::size_t size() const noexcept { return count_; }
    bool empty() const noexcept { return count_ == 0; }
    Ref operator[](std::size_t i) const noexcept {
        RDMACPP_ASSERT(i < count_);
        return all_[i];
    }

    /// The C array, which ends with a null pointer; still owned by this.
    Raw** native_handle() const noexcept { return all_; }
    /// Gives the C array back, to be freed as C says.
    [[nodiscard]] Raw** release() noexcept {
        count_ = 0;
        return detail::take(all_);
    }
    void swap(verbs_list& other) noexcept {
        detail::swap_values(all_, other.all_);
        detail::swap_values(count_, other.count_);
        detail::swap_values(born_in_, other.born_in_);
    }
    friend void swap(verbs_list& a, verbs_list& b) noexcept { a.swap(b); }

protected:
    verbs_list() noexcept = default;
    /// Takes what C gave: nothing if that is null.
    verbs_list(Raw** all, int count) noexcept : all_(all), count_(all ? static_cast<std::size_t>(count) : 0) {}
    verbs_list(verbs_list&& other) noexcept
        : all_(detail::take(other.all_)), count_(detail::take(other.count_)), born_in_(other.born_in_) {}
    /// Frees the list held before.
    verbs_list& operator=(verbs_list&& other) noexcept {
        verbs_list(static_cast<verbs_list&&>(other)).swap(*this);
        return *this;
    }
    /// Frees the list. In a forked child nothing is freed.
    ~verbs_list() {
        if (all_ && born_in_ == detail::process::current())
            List::free(all_);
    }

private:
    Raw** all_ = nullptr;
    std::size_t count_ = 0;
    unsigned born_in_ = detail::process::current();
};

} // namespace rdma::inline RDMACPP_ABI

#endif
