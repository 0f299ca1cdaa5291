// SPDX-License-Identifier: MIT
// The file that is sent, and checksums.
#pragma once

#include "descriptor.hpp"
#include "protocol.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace rcopy {

inline constexpr std::size_t piece = 1024 * 1024; // bytes read at a time, to compare

/// A CRC-32, of zlib, over what was added so far.
class checksum {
public:
    void add(std::span<std::byte const> bytes);
    std::uint32_t value() const noexcept { return value_; }

private:
    std::uint32_t value_ = 0;
};

class source_file {
public:
    /// @throws std::system_error; std::runtime_error if it is not a regular file
    explicit source_file(std::string path);

    /// The last part of the path.
    std::string name() const;
    identity const& state() const noexcept { return state_; }
    std::uint64_t size() const noexcept { return state_.size; }

    /// Fills all of it, from the file's offset on. @throws refused if the file has become shorter; std::system_error
    void read(std::uint64_t offset, std::span<std::byte> into) const;
    /// Sees to it that the file is what it was when it was opened. @throws refused
    void check_unchanged() const;

private:
    identity look() const;

    std::string path_;
    descriptor file_;
    identity state_;
};

} // namespace rcopy
