// SPDX-License-Identifier: MIT
// A hash table from a C object's address to our record of it. The records are its nodes, so nothing is allocated to add
// one.
#pragma once

#include "../config.hpp"
#if __cplusplus >= 202002L && !defined(RDMACPP_TWO_VERSIONS) // otherwise config.hpp says what to do

#include <cstddef>
#include <cstdint>
#include <new>

namespace rdma::inline RDMACPP_ABI::detail {

/// T has `void const* key() const` and a member `T* next` that is the map's while T is in it.
template <class T>
class address_map {
public:
    address_map() noexcept = default;
    address_map(address_map const&) = delete;
    address_map& operator=(address_map const&) = delete;
    ~address_map() {
        if (buckets_ != first_)
            delete[] buckets_;
    }

    std::size_t size() const noexcept { return size_; }

    T* find(void const* key) const noexcept {
        for (T* node = bucket(key); node; node = node->next)
            if (node->key() == key)
                return node;
        return nullptr;
    }

    /// Adds a node whose key is not in the map.
    void insert(T* node) noexcept {
        if (size_ >= 2 * count_)
            grow();
        T*& head = bucket(node->key());
        node->next = head;
        head = node;
        ++size_;
    }

    /// Takes this very node out; an equal key on another node does not count.
    bool erase(T const* node) noexcept {
        for (T** link = &bucket(node->key()); *link; link = &(*link)->next)
            if (*link == node) {
                *link = node->next;
                --size_;
                return true;
            }
        return false;
    }

    template <class F>
    void for_each(F&& visit) const {
        for (std::size_t i = 0; i != count_; ++i)
            for (T *node = buckets_[i], *next; node; node = next) {
                next = node->next; // the visitor may delete the node
                visit(node);
            }
    }

private:
    T*& bucket(void const* key) const noexcept {
        auto const bits = reinterpret_cast<std::uintptr_t>(key);
        return buckets_[((bits >> 4) ^ (bits >> 12)) & (count_ - 1)]; // malloc aligns to 16
    }

    /// Longer chains are slower, not wrong: without memory the table just stays as it is.
    void grow() noexcept {
        T** const wider = new (std::nothrow) T* [2 * count_] {};
        if (!wider)
            return;
        T** const old = buckets_;
        std::size_t const old_count = count_;
        buckets_ = wider;
        count_ *= 2;
        for (std::size_t i = 0; i != old_count; ++i)
            for (T *node = old[i], *next; node; node = next) {
                next = node->next;
                T*& head = bucket(node->key());
                node->next = head;
                head = node;
            }
        if (old != first_)
            delete[] old;
    }

    T* first_[32] = {};
    T** buckets_ = first_;
    std::size_t count_ = 32;
    std::size_t size_ = 0;
};

} // namespace rdma::inline RDMACPP_ABI::detail

#endif
