// SPDX-License-Identifier: MIT
/// @file
/// What the compiler gives, and the two macros a user may define before including rdmacpp.
#pragma once

#if __cplusplus < 202002L
#error "rdmacpp needs C++20: compile with -std=c++20 or newer"
#else

#include "version.hpp"
#ifndef RDMACPP_TWO_VERSIONS // otherwise version.hpp says what to do

/// @def RDMACPP_ASSERT
/// Checks the preconditions of the data path (post, poll, arm on an empty handle). Define it before
/// the first include to route it elsewhere; the default is `assert`.
#ifndef RDMACPP_ASSERT
#include <cassert>
#define RDMACPP_ASSERT(condition) assert(condition)
#endif

/// @def RDMACPP_EXCEPTIONS
/// 1 where exceptions are on. Where they are off the throwing forms are not declared and all
/// else is the same, so that both kinds of translation unit link into one program and share objects.
#if defined(__cpp_exceptions)
#define RDMACPP_EXCEPTIONS 1
#else
#define RDMACPP_EXCEPTIONS 0
#endif

/// @def RDMACPP_EXPORT
/// Default visibility, for what must be one in a process even across shared objects built with
/// -fvisibility=hidden.
#define RDMACPP_EXPORT __attribute__((visibility("default")))

#endif
#endif
