// SPDX-License-Identifier: MIT
// One translator for each of C's error conventions. Each reads errno at once, before any cleanup can change it.
#pragma once

#include "../config.hpp"
#if __cplusplus >= 202002L && !defined(RDMACPP_TWO_VERSIONS) // otherwise config.hpp says what to do

#include "../error.hpp"

#include <cerrno>
#include <cstdint>
#include <system_error>

namespace rdma::inline RDMACPP_ABI::detail {

inline std::error_code system_error_code(int value) noexcept {
    if (value == 0)
        return errc::unspecified;                                // failed, and errno says nothing
    return {value < 0 ? -value : value, std::system_category()}; // some providers set or return a negative errno
}

/// librdmacm: -1, and the reason in errno.
inline std::error_code check_errno(int result) noexcept {
    return result == 0 ? std::error_code{} : system_error_code(errno);
}

/// libibverbs' destroy, modify, query and post functions: the errno is returned.
inline std::error_code check_returned(int result) noexcept {
    return result == 0 ? std::error_code{} : system_error_code(result);
}

/// Creators: null, and the reason in errno.
inline std::error_code check_pointer(void const* result) noexcept {
    return result ? std::error_code{} : system_error_code(errno);
}

#if RDMACPP_EXCEPTIONS
// Where the throwing forms of the data path end: out of line, so that a test and a jump are all that is on the path.

/// What a function of the data path returned; soft-iWARP's posts may give -1, and the reason in errno (which
/// rdma_post_send and its like overwrite with that -1).
inline std::error_code posted_error_code(std::errc e) noexcept {
    int const reason = static_cast<int>(e) == -1 ? errno : static_cast<int>(e);
    return system_error_code(reason != -1 ? reason : 0);
}

[[noreturn, gnu::cold, gnu::noinline]] inline void throw_returned(std::errc e, char const* function) {
    throw_error(posted_error_code(e), function);
}
/// @param wr_id of the request that was refused
[[noreturn, gnu::cold, gnu::noinline]] inline void throw_refused(std::errc e, char const* function,
                                                                 std::uint64_t wr_id) {
    throw_error(posted_error_code(e), function, {"request ", std::to_string(wr_id)});
}
[[noreturn, gnu::cold, gnu::noinline]] inline void throw_poll_failed() {
    throw_error(errc::poll_failed, "ibv_poll_cq");
}
#endif

} // namespace rdma::inline RDMACPP_ABI::detail

#endif
