// SPDX-License-Identifier: MIT
/// @file
/// What the owners of verbs objects have in common, and what the views of them have.
#pragma once

#include "config.hpp"
#if __cplusplus >= 202002L && !defined(RDMACPP_TWO_VERSIONS) // otherwise config.hpp says what to do

#include "adopt.hpp"
#include "detail/contract.hpp"
#include "detail/verbs_node.hpp"

#include <initializer_list>
#include <system_error>
#include <utility>

namespace rdma::inline RDMACPP_ABI {

namespace detail {
struct refs;
}

/// A borrowed verbs object: of an owner, of an id, or of C. A trivially copyable value; it destroys nothing and cannot
/// turn into an owner.
///
/// Taken from an owner or an id, it knows what keeps the object alive, so that what is made with it does so, too.
template <class Ref, class Raw, class Keeper = detail::pinnable>
class verbs_ref {
public:
    /// Empty.
    verbs_ref() noexcept = default;
    /// Borrows an object of C's, which must outlive what is made with it.
    verbs_ref(Raw* raw) noexcept : raw_(raw) {} // NOLINT: a reference to it is no more than the pointer

    /// The C object; null when empty.
    Raw* native_handle() const noexcept { return raw_; }
    explicit operator bool() const noexcept { return raw_ != nullptr; }

    /// Whether both are the same object.
    friend bool operator==(Ref a, Ref b) noexcept { return a.raw_ == b.raw_; }

protected:
    verbs_ref(Raw* raw, Keeper* keeper) noexcept : raw_(raw), keeper_(keeper) {}

    Raw* raw_ = nullptr;
    Keeper* keeper_ = nullptr;

private:
    friend struct detail::refs;
};

namespace detail {

/// Makes views that know what keeps their object alive, and tells it of a view.
struct refs {
    template <class Ref, class Raw, class Keeper>
    static Ref make(Raw* raw, Keeper* keeper) noexcept {
        return Ref(raw, keeper);
    }
    template <class Ref>
    static auto* keeper(Ref const& ref) noexcept {
        return ref.keeper_;
    }
};

/// What to pin for an object that is made with this one.
template <class Ref>
auto* keeper(Ref const& ref) noexcept {
    return refs::keeper(ref);
}

/// Hashes a view, by its object.
template <class Ref>
struct ref_hash {
    std::size_t operator()(Ref ref) const noexcept { return std::hash<void const*>()(ref.native_handle()); }
};

} // namespace detail

/// The owner of a verbs object: move-only, empty when default-constructed, moved from, released or destroyed.
///
/// Dropped, the object is destroyed at once, or, while something made from it or an event of it is alive, together with
/// the last of these: so owners may be dropped in any order. A destroy that fails then is told to the diagnostic
/// handler.
template <class Node, class Ref>
class verbs_owner {
public:
    /// The C type.
    using raw_type = typename Node::raw_type;

#if RDMACPP_EXCEPTIONS
    /// Takes over an object that C made, or that release() gave back; what it was made from is kept alive, as far as C
    /// tells and it is ours.
    /// @throws rdma::error errc::null_handle, errc::already_owned
    verbs_owner(adopt_t, raw_type* raw) {
        std::error_code ec;
        take_over(raw, ec);
        if (ec)
            detail::throw_error(ec, Node::made_by, {"adopt"});
    }
#endif
    /// The twin of the adopting constructor: empty on failure.
    verbs_owner(adopt_t, raw_type* raw, std::error_code& ec) noexcept { take_over(raw, ec); }

    /// The C object, still owned by this.
    raw_type* native_handle() const noexcept { return raw_; }
    explicit operator bool() const noexcept { return raw_ != nullptr; }

    /// A view of it; a temporary gives none, since it would dangle.
    operator Ref() const& noexcept { return detail::refs::make<Ref>(raw_, node_); }
    operator Ref() const&& = delete;

    /// Gives the C object back; takes no lock and makes no C call. What it needs is no longer kept for it.
    [[nodiscard]] raw_type* release() noexcept {
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

    void swap(verbs_owner& other) noexcept {
        detail::swap_values(raw_, other.raw_);
        detail::swap_values(node_, other.node_);
    }
    friend void swap(verbs_owner& a, verbs_owner& b) noexcept { a.swap(b); }

protected:
    verbs_owner() noexcept = default;
    verbs_owner(verbs_owner&& other) noexcept : raw_(detail::take(other.raw_)), node_(detail::take(other.node_)) {}
    /// Destroys the object held before, at once.
    verbs_owner& operator=(verbs_owner&& other) noexcept {
        verbs_owner(std::move(other)).swap(*this);
        return *this;
    }
    ~verbs_owner() { detail::unpin(node_); }

    /// The node for what C is about to make: made first, so that nothing can fail afterwards. Null, with `ec`, without
    /// memory, or without what it is to be made from.
    template <class... Kind>
    static Node* fresh_node(bool has_base, std::error_code& ec, Kind... kind) noexcept {
        if (!has_base) {
            ec = errc::not_bound;
            return nullptr;
        }
        auto* const node = new (std::nothrow) Node(kind...);
        ec = node ? std::error_code() : detail::system_error_code(ENOMEM);
        errno = 0; // some providers fail without saying why: not with a reason left over from another call
        return node;
    }

    /// Takes what C made, or, if that is null, why not.
    void own(raw_type* object, Node* node, std::initializer_list<detail::pinnable*> uses,
             std::error_code& ec) noexcept {
        ec = detail::check_pointer(object);
        if (ec) {
            delete node;
            return;
        }
        node->open(object, uses);
        raw_ = object;
        node_ = node;
    }

    raw_type* raw_ = nullptr;
    Node* node_ = nullptr;

private:
    void take_over(raw_type* object, std::error_code& ec) noexcept {
        ec.clear();
        if (!object) {
            ec = errc::null_handle;
            return;
        }
        node_ =
            static_cast<Node*>(detail::verbs_table::get().take_back(object, ec, Node::ended_by, Node::unimported_by));
        if (node_)
            raw_ = object;
        else if (Node* const node = ec ? nullptr : fresh_node(true, ec))
            own(object, node, {}, ec);
        if (node_)
            node_->recall();
    }
};

} // namespace rdma::inline RDMACPP_ABI

#endif
