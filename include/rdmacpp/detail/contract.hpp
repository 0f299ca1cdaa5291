// SPDX-License-Identifier: MIT
// What the static_asserts under the types say. Asked of the compiler itself: the traits of the standard library cost
// every includer more.
#pragma once

#include "../config.hpp"
#if __cplusplus >= 202002L && !defined(RDMACPP_TWO_VERSIONS) // otherwise config.hpp says what to do

namespace rdma::inline RDMACPP_ABI::detail {

/// Whether a T can be made from one A.
template <class T, class A>
concept makes = requires(A&& a) {
    T(static_cast<A&&>(a));
};

/// What every owner is: empty by default or not, moved without a throw, never copied.
template <class T>
concept move_only = requires(T& to, T&& from) {
    { T(static_cast<T&&>(from)) }
    noexcept;
    { to = static_cast<T&&>(from) }
    noexcept;
}
&&!makes<T, T const&> && !requires(T & to, T const& from) { to = from; };

/// Whether an empty T can be made, without a throw.
template <class T>
concept nothrow_empty = requires {
    { T() }
    noexcept;
};

} // namespace rdma::inline RDMACPP_ABI::detail

#endif
