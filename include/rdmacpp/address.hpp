// SPDX-License-Identifier: MIT
/// @file
/// A socket address as a value: family, host, scope id, and the port in host byte order.
#pragma once

#include "config.hpp"
#if __cplusplus >= 202002L && !defined(RDMACPP_TWO_VERSIONS) // otherwise config.hpp says what to do

#include "error.hpp"

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include <arpa/inet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>

namespace rdma::inline RDMACPP_ABI {

/// An IPv4 or IPv6 address with its port: a value, big enough for any socket address that the kernel may return.
///
/// No name is ever looked up here: addresses are numeric. An IPv6 link-local address carries its interface:
/// `fe80::1%eth0`.
class address {
public:
    /// No address: family() is AF_UNSPEC.
    address() noexcept = default;

    /// Copies a C socket address of any family; a null pointer gives the empty address.
    explicit address(sockaddr const* raw) noexcept {
        if (raw)
            std::memcpy(&storage_, raw, length_of(raw->sa_family));
    }

#if RDMACPP_EXCEPTIONS
    /// Parses a numeric IPv4 or IPv6 address, with an interface after `%` if it is link-local.
    /// @param host such as "10.0.0.1", "fd00::1", "fe80::1%eth0"
    /// @param port 0 to 65535; 0 lets the system choose
    /// @throws rdma::error errc::bad_address, errc::port_out_of_range
    address(std::string_view host, int port) {
        std::error_code ec;
        *this = address(host, port, ec);
        if (ec)
            detail::throw_error(ec, "inet_pton", {host, ", port ", std::to_string(port)});
    }

    /// Every IPv4 address of this machine.
    /// @throws rdma::error errc::port_out_of_range
    static address any_v4(int port) { return address("0.0.0.0", port); }

    /// Every address of this machine, IPv6 and (unless set_af_only) IPv4.
    /// @throws rdma::error errc::port_out_of_range
    static address any_v6(int port) { return address("::", port); }
#endif

    /// The twin of the parsing constructor: on failure the address is empty and `ec` says why.
    address(std::string_view host, int port, std::error_code& ec) noexcept {
        ec.clear();
        if (port < 0 || port > 65535)
            ec = errc::port_out_of_range;
        else if (!parse_v4(host) && !parse_v6(host))
            ec = errc::bad_address;
        else
            (family() == AF_INET ? v4().sin_port : v6().sin6_port) = htons(static_cast<std::uint16_t>(port));
        if (ec)
            storage_ = {};
    }

    /// The twin of any_v4.
    static address any_v4(int port, std::error_code& ec) noexcept { return address("0.0.0.0", port, ec); }

    /// The twin of any_v6.
    static address any_v6(int port, std::error_code& ec) noexcept { return address("::", port, ec); }

    /// AF_INET, AF_INET6, another family that the kernel returned, or AF_UNSPEC when empty.
    sa_family_t family() const noexcept { return storage_.ss_family; }

    /// The port in host byte order; 0 means none.
    std::uint16_t port() const noexcept {
        switch (family()) {
        case AF_INET: return ntohs(v4().sin_port);
        case AF_INET6: return ntohs(v6().sin6_port);
        default: return 0;
        }
    }

    /// The interface index of an IPv6 link-local address, else 0.
    std::uint32_t scope_id() const noexcept { return family() == AF_INET6 ? v6().sin6_scope_id : 0; }

    /// True for 0.0.0.0 and ::.
    bool is_any() const noexcept {
        return (family() == AF_INET && v4().sin_addr.s_addr == htonl(INADDR_ANY)) ||
               (family() == AF_INET6 && IN6_IS_ADDR_UNSPECIFIED(&v6().sin6_addr));
    }

    /// The host part alone, such as "10.0.0.1" or "fe80::1%eth0"; empty for no address.
    std::string host() const {
        char text[INET6_ADDRSTRLEN] = {};
        if (family() == AF_INET)
            ::inet_ntop(AF_INET, &v4().sin_addr, text, sizeof text);
        else if (family() == AF_INET6)
            ::inet_ntop(AF_INET6, &v6().sin6_addr, text, sizeof text);
        std::string result = text;
        if (scope_id() != 0) {
            char name[IF_NAMESIZE] = {};
            result.append(
                detail::concat({"%", ::if_indextoname(scope_id(), name) ? name : std::to_string(scope_id())}));
        }
        return result;
    }

    /// The C socket address, for calls to C; valid as long as this object.
    sockaddr const* native_handle() const& noexcept { return reinterpret_cast<sockaddr const*>(&storage_); }
    sockaddr const* native_handle() const&& = delete;

    /// The length in bytes of what native_handle() points to.
    socklen_t length() const noexcept { return static_cast<socklen_t>(length_of(family())); }

    /// Same family, host, port and scope.
    friend bool operator==(address const& a, address const& b) noexcept {
        if (a.family() != b.family() || a.port() != b.port())
            return false;
        switch (a.family()) {
        case AF_UNSPEC: return true;
        case AF_INET: return a.v4().sin_addr.s_addr == b.v4().sin_addr.s_addr;
        case AF_INET6:
            return std::memcmp(&a.v6().sin6_addr, &b.v6().sin6_addr, sizeof(in6_addr)) == 0 &&
                   a.scope_id() == b.scope_id();
        default: return std::memcmp(&a.storage_, &b.storage_, sizeof a.storage_) == 0;
        }
    }

private:
    static std::size_t length_of(sa_family_t family) noexcept {
        switch (family) {
        case AF_UNSPEC: return 0;
        case AF_INET: return sizeof(sockaddr_in);
        case AF_INET6: return sizeof(sockaddr_in6);
        case AF_IB: return 48; // sockaddr_ib, of <infiniband/ib.h>, whose macros are better kept out
        default: return sizeof(sockaddr);
        }
    }

    sockaddr_in& v4() noexcept { return reinterpret_cast<sockaddr_in&>(storage_); }
    sockaddr_in6& v6() noexcept { return reinterpret_cast<sockaddr_in6&>(storage_); }
    sockaddr_in const& v4() const noexcept { return reinterpret_cast<sockaddr_in const&>(storage_); }
    sockaddr_in6 const& v6() const noexcept { return reinterpret_cast<sockaddr_in6 const&>(storage_); }

    bool parse_v4(std::string_view host) noexcept { return parse(AF_INET, host, &v4().sin_addr); }

    bool parse_v6(std::string_view host) noexcept {
        auto const percent = host.find('%');
        if (!parse(AF_INET6, host.substr(0, percent), &v6().sin6_addr))
            return false;
        if (percent != std::string_view::npos)
            v6().sin6_scope_id = interface_index(host.substr(percent + 1));
        return percent == std::string_view::npos || scope_id() != 0;
    }

    bool parse(sa_family_t family, std::string_view host, void* destination) noexcept {
        char text[INET6_ADDRSTRLEN] = {}; // inet_pton wants a terminated string
        if (host.size() >= sizeof text || host.find('\0') != host.npos)
            return false;
        host.copy(text, host.size());
        storage_.ss_family = family;
        return ::inet_pton(family, text, destination) == 1;
    }

    static std::uint32_t interface_index(std::string_view name) noexcept {
        char text[IF_NAMESIZE] = {};
        if (name.empty() || name.size() >= sizeof text || name.find('\0') != name.npos)
            return 0;
        name.copy(text, name.size());
        if (unsigned const index = ::if_nametoindex(text))
            return index;
        std::uint32_t number = 0;
        for (char const digit : name) {
            if (digit < '0' || digit > '9' || number > 100'000'000)
                return 0;
            number = number * 10 + static_cast<std::uint32_t>(digit - '0');
        }
        return number;
    }

    sockaddr_storage storage_{};
};

/// "10.0.0.1:7471", "[fe80::1%eth0]:7471"; "-" for no address.
inline std::string to_string(address const& a) {
    if (a.family() == AF_UNSPEC)
        return "-";
    if (a.family() != AF_INET && a.family() != AF_INET6)
        return detail::concat({"family ", std::to_string(a.family())});
    std::string const host = a.host();
    bool const v6 = a.family() == AF_INET6;
    return detail::concat({v6 ? "[" : "", host, v6 ? "]:" : ":", std::to_string(a.port())});
}

} // namespace rdma::inline RDMACPP_ABI

#endif
