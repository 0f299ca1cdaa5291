// SPDX-License-Identifier: MIT
// Lists whose members take themselves out: nothing is allocated, and nothing that is gone is ever found in one.
#pragma once

#include "../../config.hpp"
#if __cplusplus >= 202002L && !defined(RDMACPP_TWO_VERSIONS) // otherwise config.hpp says what to do

namespace rdma::inline RDMACPP_ABI::detail {

/// A place in a circular list.
class place {
public:
    place() noexcept = default;
    place(place&&) noexcept {} // the place is not moved
    place& operator=(place&&) = delete;
    ~place() { unlink(); }

    bool linked() const noexcept { return next_ != nullptr; }
    place* next() const noexcept { return next_; }
    place* previous() const noexcept { return previous_; }

    void unlink() noexcept {
        if (!linked()) // as most are, when they go
            return;
        previous_->next_ = next_;
        next_->previous_ = previous_;
        next_ = previous_ = nullptr;
    }
    /// Takes it out of where it was, and puts it before another.
    void put_before(place& other) noexcept {
        unlink();
        next_ = &other;
        previous_ = other.previous_;
        previous_->next_ = this;
        other.previous_ = this;
    }

    /// The ends of a list: linked to themselves when it is empty.
    void be_ends() noexcept { next_ = previous_ = this; }

private:
    place* next_ = nullptr;
    place* previous_ = nullptr;
};

/// The place of a T in the lists of one kind.
template <class Kind>
class hook : public place {};

/// A list of T, each derived from hook<Kind>.
template <class T, class Kind>
class list {
public:
    list() noexcept { ends_.be_ends(); }
    bool empty() const noexcept { return ends_.next() == &ends_; }
    T* front() const noexcept { return empty() ? nullptr : of(ends_.next()); }
    T* back() const noexcept { return empty() ? nullptr : of(ends_.previous()); }
    void push_back(T& item) noexcept { static_cast<hook<Kind>&>(item).put_before(ends_); }
    T* pop_front() noexcept {
        T* const first = front();
        if (first)
            static_cast<hook<Kind>&>(*first).unlink();
        return first;
    }
    /// The one before, or after, another; null at the end.
    T* before(T const& item) const noexcept { return at(static_cast<hook<Kind> const&>(item).previous()); }
    T* after(T const& item) const noexcept { return at(static_cast<hook<Kind> const&>(item).next()); }
    void put_after(T& item, T* other) noexcept {
        static_cast<hook<Kind>&>(item).put_before(other ? *static_cast<hook<Kind>&>(*other).next() : *ends_.next());
    }

private:
    static T* of(place* node) noexcept { return static_cast<T*>(static_cast<hook<Kind>*>(node)); }
    T* at(place* node) const noexcept { return node == &ends_ ? nullptr : of(node); }

    place ends_;
};

} // namespace rdma::inline RDMACPP_ABI::detail

#endif
