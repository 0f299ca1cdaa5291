// SPDX-License-Identifier: MIT
// One translator for each of C's error conventions. Each reads errno at once, before any cleanup can change it.
#pragma once

#include "../config.hpp"
#if __cplusplus >= 202002L // below, config.hpp says what to do

#include "../error.hpp"

#include <cerrno>
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

} // namespace rdma::inline RDMACPP_ABI::detail

#endif
