// SPDX-License-Identifier: MIT
/// @file
/// What may ask a wait to stop: a std::stop_token, or one like it.
#pragma once

#include "config.hpp"
#if __cplusplus >= 202002L && !defined(RDMACPP_TWO_VERSIONS) // otherwise config.hpp says what to do

#include <new>
#include <version>

#if defined(__GLIBCXX__)
// <stop_token> costs an eighth of what including rdmacpp does, of everybody; who has a token has included it. So it is
// only declared, as libstdc++ itself would.
namespace std _GLIBCXX_VISIBILITY(default) {
    _GLIBCXX_BEGIN_NAMESPACE_VERSION
    template <typename Callback>
    class stop_callback;
    _GLIBCXX_END_NAMESPACE_VERSION
} // namespace )
#elif defined(__cpp_lib_jthread)
#include <stop_token>
#endif

namespace rdma::inline RDMACPP_ABI {

class any_stop_token;

namespace detail {

/// What is called when stop is requested.
struct stop_action {
    void (*call)(void* object) noexcept;
    void* object;
    void operator()() const noexcept { call(object); }
};

template <class Token>
concept stop_token_like = requires(Token const& token) { // any_stop_token itself has no stop_possible
    !token.stop_possible();
    !token.stop_requested();
};

/// The type of a token's callbacks: its own, or std::stop_callback.
template <class Token, class Action = stop_action>
struct stop_callback_of {
#if defined(__GLIBCXX__) || defined(__cpp_lib_jthread)
    using type = std::stop_callback<Action>;
#endif
};
template <class Token, class Action>
    requires requires { typename Token::template callback_type<Action>; }
struct stop_callback_of<Token, Action> {
    using type = typename Token::template callback_type<Action>;
};

/// What any_stop_token does with the token inside it.
struct stop_operations {
    void (*copy)(void* to, void const* from) noexcept;
    void (*destroy)(void* token) noexcept;
    bool (*requested)(void const* token) noexcept;
    void (*watch)(void* callback, void const* token, stop_action action) noexcept;
    void (*unwatch)(void* callback) noexcept;
};

/// Room for any token's callback.
inline constexpr unsigned long stop_callback_room = 128;

template <class Token>
struct stop_operations_of {
    static Token const& of(void const* token) noexcept { return *static_cast<Token const*>(token); }
    static void copy(void* to, void const* from) noexcept { ::new (to) Token(of(from)); }
    static void destroy(void* token) noexcept { static_cast<Token*>(token)->~Token(); }
    static bool requested(void const* token) noexcept { return of(token).stop_requested(); }
    static void watch(void* callback, void const* token, stop_action action) noexcept {
        using type = typename stop_callback_of<Token>::type;
        static_assert(sizeof(type) <= stop_callback_room);
        ::new (callback) type(of(token), action);
    }
    static void unwatch(void* callback) noexcept {
        using type = typename stop_callback_of<Token>::type;
        static_cast<type*>(callback)->~type();
    }
    static constexpr stop_operations all{&copy, &destroy, &requested, &watch, &unwatch};
};

} // namespace detail

/// A std::stop_token, or any type like it, that a function takes to be told to stop: made of one without a word. Empty,
/// it never stops anything.
class any_stop_token {
public:
    /// Never stops.
    any_stop_token() noexcept = default;
    /// Stops when that token does.
    template <detail::stop_token_like Token>
    any_stop_token(Token const& token) noexcept : operations_(&detail::stop_operations_of<Token>::all) { // NOLINT
        static_assert(sizeof(Token) <= sizeof(token_) && alignof(Token) <= alignof(void*));
        ::new (static_cast<void*>(token_)) Token(token);
    }
    /// A token of the same source.
    any_stop_token(any_stop_token const& other) noexcept : operations_(other.operations_) {
        if (operations_)
            operations_->copy(token_, other.token_);
    }
    /// Of the same source from now on.
    any_stop_token& operator=(any_stop_token const& other) noexcept {
        if (this == &other)
            return *this;
        this->~any_stop_token();
        return *::new (static_cast<void*>(this)) any_stop_token(other);
    }
    ~any_stop_token() {
        if (operations_)
            operations_->destroy(token_);
    }

    /// Whether there is anything that may stop.
    explicit operator bool() const noexcept { return operations_ != nullptr; }
    /// Whether it was asked to stop.
    bool stop_requested() const noexcept { return operations_ && operations_->requested(token_); }

private:
    friend class stop_watch;

    alignas(void*) unsigned char token_[2 * sizeof(void*)];
    detail::stop_operations const* operations_ = nullptr;
};

/// Calls an action when stop is requested, as long as it lives; at once, if it was requested before.
class stop_watch {
public:
    /// Watches from now on. The action is called on the thread that requests the stop, and must not block it.
    stop_watch(any_stop_token const& stop, detail::stop_action action) noexcept : operations_(stop.operations_) {
        if (operations_)
            operations_->watch(callback_, stop.token_, action);
    }
    stop_watch(stop_watch const&) = delete;
    stop_watch& operator=(stop_watch const&) = delete;
    ~stop_watch() {
        if (operations_)
            operations_->unwatch(callback_);
    }

private:
    alignas(16) unsigned char callback_[detail::stop_callback_room];
    detail::stop_operations const* const operations_;
};

} // namespace rdma::inline RDMACPP_ABI

#endif
