// SPDX-License-Identifier: MIT
/// @file
/// What the owners of verbs objects have in common.
#pragma once

#include "config.hpp"
#if __cplusplus >= 202002L // below, config.hpp says what to do

#include "adopt.hpp"
#include "detail/verbs_node.hpp"

#include <initializer_list>
#include <system_error>
#include <utility>

namespace rdma::inline RDMACPP_ABI {

/// The owner of a verbs object: move-only, empty when default-constructed, moved from, released or destroyed.
///
/// Dropped, the object is destroyed at once, or, while something made from it or an event of it is alive, together with
/// the last of these: so owners may be dropped in any order. A destroy that fails then is told to the diagnostic
/// handler.
template <class Raw, class Node>
class verbs_owner {
public:
    /// The C object, still owned by this.
    Raw* native_handle() const noexcept { return raw_; }
    explicit operator bool() const noexcept { return raw_ != nullptr; }

    /// Gives the C object back; takes no lock and makes no C call. What it needs is no longer kept for it.
    [[nodiscard]] Raw* release() noexcept {
        if (node_)
            detail::take(node_)->surrender();
        return detail::take(raw_);
    }

    /// Destroys the object now. Refused with std::errc::device_or_resource_busy, and nothing changed, while something
    /// made from it, or an event of it, is alive; an error of C's leaves it as it was, too. Nothing happens when empty.
    void destroy(std::error_code& ec) noexcept {
        ec.clear();
        if (!node_ || (ec = node_->destroy_now()))
            return;
        delete detail::take(node_);
        raw_ = nullptr;
    }

#if RDMACPP_EXCEPTIONS
    /// The throwing form of destroy(std::error_code&). @throws rdma::error
    void destroy() {
        std::error_code ec;
        destroy(ec);
        if (ec)
            detail::throw_error(ec, node_->destroy_name);
    }
#endif

protected:
    verbs_owner() noexcept = default;
    verbs_owner(verbs_owner&& other) noexcept : raw_(detail::take(other.raw_)), node_(detail::take(other.node_)) {}
    verbs_owner& operator=(verbs_owner&& other) noexcept {
        verbs_owner(std::move(other)).swap(*this);
        return *this;
    }
    ~verbs_owner() { detail::unpin(node_); }

    void swap(verbs_owner& other) noexcept {
        detail::swap_values(raw_, other.raw_);
        detail::swap_values(node_, other.node_);
    }

    /// The node for what C is about to make: made first, so that nothing can fail afterwards. Null, with `ec`, without
    /// memory, or without what it is to be made from.
    static Node* fresh_node(bool has_base, std::error_code& ec) noexcept {
        if (!has_base) {
            ec = errc::not_bound;
            return nullptr;
        }
        auto* const node = new (std::nothrow) Node;
        ec = node ? std::error_code() : detail::system_error_code(ENOMEM);
        errno = 0; // some providers fail without saying why: not with a reason left over from another call
        return node;
    }

    /// Takes what C made, or, if that is null, why not.
    void own(Raw* object, Node* node, std::initializer_list<detail::pinnable*> uses, std::error_code& ec) noexcept {
        ec = detail::check_pointer(object);
        if (ec) {
            delete node;
            return;
        }
        node->open(object, uses);
        raw_ = object;
        node_ = node;
    }

    void take_over(Raw* object, std::error_code& ec) noexcept {
        ec.clear();
        if (!object) {
            ec = errc::null_handle;
            return;
        }
        node_ = static_cast<Node*>(detail::verbs_table::get().take_back(object, ec));
        if (node_)
            raw_ = object;
        else if (Node* const node = ec ? nullptr : fresh_node(true, ec))
            own(object, node, {}, ec);
    }

    Raw* raw_ = nullptr;
    Node* node_ = nullptr;
};

} // namespace rdma::inline RDMACPP_ABI

#endif
