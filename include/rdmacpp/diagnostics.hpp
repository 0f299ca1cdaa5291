// SPDX-License-Identifier: MIT
/// @file
/// The one hook through which the library tells what no caller can be told: what happens in destructors and inside
/// gets.
#pragma once

#include "config.hpp"
#if __cplusplus >= 202002L && !defined(RDMACPP_TWO_VERSIONS) // otherwise config.hpp says what to do

#include "detail/atomic.hpp"

#include <cstdio>
#include <system_error>

namespace rdma::inline RDMACPP_ABI {

/// What the hook is told of.
enum class diagnostic_kind {
    destroy_failed,   ///< A C destroy function failed; the C object is left as it is, and never touched again.
    request_rejected, ///< A CONNECT_REQUEST that nobody took was rejected and its id destroyed.
    event_swallowed,  ///< An event came for an id already dropped: it was acked and not delivered.
    channel_failed,   ///< An event channel gave an error to a loop, where some of its ids have handlers.
};

/// One message to the hook.
struct diagnostic {
    diagnostic_kind kind;  ///< What happened.
    char const* function;  ///< The C function concerned, such as "rdma_destroy_id".
    void const* object;    ///< The C object concerned: for printing only, it may be gone.
    std::error_code error; ///< Why, for what failed.
};

/// The type of the hook. It is called on the thread where things happen, never under a lock of the library.
using diagnostic_handler = void (*)(diagnostic const&) noexcept;

/// The default: prints failed destroys alone, one line each on stderr.
inline void print_failed_destroys(diagnostic const& d) noexcept {
    if (d.kind == diagnostic_kind::destroy_failed)
        std::fprintf(stderr, "rdmacpp: %s(%p) failed with error %d; the object is leaked\n", d.function, d.object,
                     d.error.value());
}

namespace detail {

/// One hook per process, also across shared objects with hidden visibility.
struct RDMACPP_EXPORT diagnostic_hook {
    static detail::atomic<diagnostic_handler>& get() noexcept {
        static detail::atomic<diagnostic_handler> handler{&print_failed_destroys};
        return handler;
    }
};

inline void report(diagnostic const& d) noexcept { diagnostic_hook::get().load(detail::order::acquire)(d); }

inline void report_failed_destroy(char const* function, void const* object, int error) noexcept {
    report({diagnostic_kind::destroy_failed, function, object, {error, std::system_category()}});
}

} // namespace detail

/// Installs the process-wide hook and returns the one before.
/// @param handler the new hook; null restores the default (print_failed_destroys).
/// @note Any thread may call it at any time; a message under way may still reach the old hook.
inline diagnostic_handler set_diagnostic_handler(diagnostic_handler handler) noexcept {
    return detail::diagnostic_hook::get().exchange(handler ? handler : &print_failed_destroys, detail::order::acq_rel);
}

} // namespace rdma::inline RDMACPP_ABI

#endif
