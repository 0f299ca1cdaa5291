// SPDX-License-Identifier: MIT
/// @file
/// The bytes that travel with connect, accept and reject.
#pragma once

#include "config.hpp"
#if __cplusplus >= 202002L && !defined(RDMACPP_TWO_VERSIONS) // otherwise config.hpp says what to do

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace rdma::inline RDMACPP_ABI {

/// How many bytes of private data an operation carries on InfiniBand and RoCE. On iWARP all carry up to 251.
namespace private_data_limit {
inline constexpr std::size_t connect = 56;     ///< rdma_connect on a connected (TCP) port space.
inline constexpr std::size_t accept = 196;     ///< rdma_accept on a connected port space.
inline constexpr std::size_t reject = 148;     ///< rdma_reject on a connected port space.
inline constexpr std::size_t ud_connect = 180; ///< rdma_connect on a datagram port space.
inline constexpr std::size_t ud_accept = 136;  ///< rdma_accept on a datagram port space.
inline constexpr std::size_t ud_reject = 136;  ///< rdma_reject on a datagram port space.
inline constexpr std::size_t iwarp = 251;      ///< Beyond, siw corrupts the handshake: refused before the call.
inline constexpr std::size_t any = 255;        ///< The C API has one byte for the length.
} // namespace private_data_limit

/// An owning copy of private data, which outlives its event. It allocates nothing.
///
/// The size is an upper bound: InfiniBand and RoCE pad with zeros up to the size of the message field and carry no
/// length, iWARP is exact. Zeros are never stripped, since they may be the sender's: let your protocol carry its own
/// length.
class private_data {
public:
    /// No bytes.
    private_data() noexcept = default;

    /// Copies up to 255 bytes.
    explicit private_data(std::span<std::byte const> bytes) noexcept : private_data(bytes.data(), bytes.size()) {}
    private_data(void const* bytes, std::size_t size) noexcept
        : size_(static_cast<std::uint8_t>(size < sizeof bytes_ ? size : sizeof bytes_)) {
        if (size_ != 0)
            std::memcpy(bytes_, bytes, size_);
    }

    /// The bytes, size() of them; valid as long as this object.
    std::byte const* data() const noexcept { return bytes_; }
    std::size_t size() const noexcept { return size_; }
    bool empty() const noexcept { return size_ == 0; }
    std::byte const* begin() const noexcept { return bytes_; }
    std::byte const* end() const noexcept { return bytes_ + size_; }

private:
    std::byte bytes_[private_data_limit::any]{};
    std::uint8_t size_ = 0;
};

} // namespace rdma::inline RDMACPP_ABI

#endif
