// SPDX-License-Identifier: MIT
// What a program and two shared objects that use rdmacpp ask of each other: nothing of rdmacpp's crosses but C
// pointers, error codes and exceptions.
#pragma once

#include <system_error>

namespace shared {

struct interface {
    char const* version;
    std::error_category const* categories[4];
    bool (*is_refused)(std::error_code code) noexcept;
    bool (*is_empty_handle)(std::error_code code) noexcept;
    std::error_code (*refused)() noexcept;
    std::error_code (*empty_handle)() noexcept;

    void (*throw_error)();
    void (*throw_connect_error)();
    /// What it is, for who catches it there: "error", "connect_error", "system_error", "another".
    char const* (*caught)(void (*thrower)());

    /// Installs a hook that counts.
    void (*install_hook)() noexcept;
    int (*hook_calls)() noexcept;

    /// A channel, an id on it and a PD of it, which the library keeps until the last call here; null if they are.
    char const* (*open)() noexcept;
    void* (*channel)() noexcept;
    void* (*id)() noexcept;
    void* (*pd)() noexcept;
    void (*close)() noexcept;
    /// Whether each of these C objects, which another library keeps, is refused as somebody's.
    bool (*channel_is_owned)(void* channel) noexcept;
    bool (*id_is_owned)(void* channel, void* id) noexcept;
    bool (*pd_is_owned)(void* pd) noexcept;

    /// Gives a channel away to C, and takes one over from there with what happens on it; null if that works.
    void* (*release_channel)() noexcept;
    char const* (*use_channel)(void* channel) noexcept;
};

} // namespace shared
