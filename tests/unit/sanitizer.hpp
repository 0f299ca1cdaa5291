// SPDX-License-Identifier: MIT
/// @file
/// What the tests are compiled with, for those that take long without need under one sanitizer or another.
#pragma once

namespace unit {

#if defined(__SANITIZE_THREAD__)
inline constexpr bool under_tsan = true;
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
inline constexpr bool under_tsan = true;
#else
inline constexpr bool under_tsan = false;
#endif
#else
inline constexpr bool under_tsan = false;
#endif

} // namespace unit
