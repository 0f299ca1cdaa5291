// SPDX-License-Identifier: MIT
//
// rdmacpp 0.1.0
//
// All of rdmacpp: a C++20 RAII library over rdma-core. One get, one ack, by construction.
//
// Each section is named after the header that it was.
//
// Made by tools/amalgamate from the headers in include/rdmacpp, where changes belong.
//
// MIT License
//
// Copyright (c) 2026 The rdmacpp authors
//
// Permission is hereby granted, free of charge, to any person obtaining a copy
// of this software and associated documentation files (the "Software"), to deal
// in the Software without restriction, including without limitation the rights
// to use, copy, modify, merge, publish, distribute, sublicense, and/or sell
// copies of the Software, and to permit persons to whom the Software is
// furnished to do so, subject to the following conditions:
//
// The above copyright notice and this permission notice shall be included in all
// copies or substantial portions of the Software.
//
// THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR
// IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY,
// FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE
// AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER
// LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM,
// OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE
// SOFTWARE.
#pragma once

#if __cplusplus < 202002L
#error "rdmacpp needs C++20: compile with -std=c++20 or newer"
#elif defined(RDMACPP_VERSION) && (!defined(RDMACPP_SINGLE_HEADER) || RDMACPP_VERSION != 100)
#error "rdmacpp: two versions or copies in one translation unit; use one, or keep them in separate shared objects"
#define RDMACPP_TWO_VERSIONS
#elif !defined(RDMACPP_EXCEPTIONS) // otherwise a copy of this file was here before

#include <cerrno>
#include <chrono>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <initializer_list>
#include <iterator>
#include <new>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>
#include <version>

#include <aio.h>
#include <arpa/inet.h>
#include <fcntl.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

// ---- version.hpp ----------------------------------------------------------------------------------------------------
// The version of rdmacpp: this is the only place where it stands, the build reads it from here.

/// @def RDMACPP_SINGLE_HEADER Defined where rdmacpp came as one file.
#ifndef RDMACPP_SINGLE_HEADER // otherwise all this was here before
#define RDMACPP_SINGLE_HEADER 1

/// The parts of the version; all three are plain numbers.
#define RDMACPP_VERSION_MAJOR 0
/// See RDMACPP_VERSION_MAJOR.
#define RDMACPP_VERSION_MINOR 1
/// See RDMACPP_VERSION_MAJOR.
#define RDMACPP_VERSION_PATCH 0

/// The version as one number: major * 10000 + minor * 100 + patch.
#define RDMACPP_VERSION (RDMACPP_VERSION_MAJOR * 10000 + RDMACPP_VERSION_MINOR * 100 + RDMACPP_VERSION_PATCH)

/// The inline namespace. While the version is 0.y it changes with y, since layouts may; from 1.0 on with the major
/// alone.
#define RDMACPP_ABI v0_1

#endif

// ---- config.hpp -----------------------------------------------------------------------------------------------------
// What the compiler gives, and the two macros a user may define before including rdmacpp.

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

// ---- ack_timeout.hpp ------------------------------------------------------------------------------------------------
// The ACK timeout of a QP, in the unit that devices have for it.

namespace rdma::inline RDMACPP_ABI {

/// How long a QP waits for the peer's acknowledgement before it sends again: 4.096 us * 2^n, with n from 1 to 31; n = 0
/// is for ever. Made from any duration, rounded up.
class ack_timeout {
public:
    /// The shortest that is not below the span; 2.4 hours for all that is longer, and for ever for a negative one.
    template <class Rep, class Period>
    constexpr ack_timeout(std::chrono::duration<Rep, Period> span) noexcept // NOLINT: a span is one
        : exponent_(exponent_of(static_cast<double>(span.count()) * 1e9 * static_cast<double>(Period::num) /
                                static_cast<double>(Period::den))) {}

    /// By its exponent, as devices count: 0 to 31, of which the low five bits count.
    static constexpr ack_timeout of_exponent(unsigned exponent) noexcept {
        ack_timeout result{std::chrono::nanoseconds(0)};
        result.exponent_ = static_cast<std::uint8_t>(exponent & 31);
        return result;
    }

    /// The n of 4.096 us * 2^n.
    constexpr std::uint8_t exponent() const noexcept { return exponent_; }

    /// The span; 0 is for ever.
    constexpr std::chrono::nanoseconds span() const noexcept {
        return std::chrono::nanoseconds(exponent_ == 0 ? 0 : unit << exponent_);
    }

private:
    static constexpr std::int64_t unit = 4096; // nanoseconds

    static constexpr std::uint8_t exponent_of(double nanoseconds) noexcept {
        if (nanoseconds < 0)
            return 0;
        std::uint8_t n = 1;
        while (n < 31 && static_cast<double>(unit << n) < nanoseconds)
            ++n;
        return n;
    }

    std::uint8_t exponent_;
};

static_assert(ack_timeout(std::chrono::milliseconds(67)).exponent() == 14 &&
              ack_timeout(std::chrono::milliseconds(68)).exponent() == 15);

} // namespace rdma::inline RDMACPP_ABI

// ---- error.hpp ------------------------------------------------------------------------------------------------------
// Errors. Every function that calls C has two forms, as in std::filesystem: one throws rdma::error, its `noexcept`
// twin takes a trailing std::error_code&. Codes from errno are in std::system_category(); what rdmacpp refuses by
// itself, before any C call, is an rdma::errc; what a peer answers is an rdma::reject_reason.

namespace rdma::inline RDMACPP_ABI {

/// What rdmacpp itself refuses or reports. Each compares equal to the std::errc that its comment names.
enum class errc {
    empty_handle =
        1,         ///< The handle is empty: default-constructed, moved from, released or destroyed (invalid_argument).
    null_handle,   ///< A null pointer was given to adopt (invalid_argument).
    already_owned, ///< The C object to adopt has an owner (device_or_resource_busy).
    wrong_channel, ///< The id to adopt lives on another channel (invalid_argument).
    port_out_of_range, ///< A port is 0 to 65535 (invalid_argument).
    bad_address,       ///< Not a numeric IPv4 or IPv6 address, or an unknown interface after the % (invalid_argument).
    family_mismatch,   ///< Source and destination are of different address families (invalid_argument).
    private_data_too_long,    ///< Private data is at most 255 bytes (message_size).
    private_data_iwarp,       ///< Private data on iWARP is at most 251 bytes: siw corrupts the handshake beyond
                              ///< (message_size).
    retry_count_out_of_range, ///< Retry counts are 0 to 7 (invalid_argument).
    not_bound,     ///< The id has no device yet: bind it to an address or read ADDR_RESOLVED first (no_such_device).
    not_a_request, ///< Not an id from a CONNECT_REQUEST that is still to be decided (operation_not_permitted).
    no_id_to_take, ///< The event is no CONNECT_REQUEST, or its id was taken before (operation_not_permitted).
    qp_exists,     ///< The id has a QP already (file_exists).
    unspecified,   ///< librdmacm reports a failure without a reason (status -1).
    poll_failed,   ///< ibv_poll_cq failed; it gives no reason (io_error).
    listener_migrates, ///< A listening id cannot move: the kernel loses its queued requests (operation_not_permitted).
    already_joined,    ///< The id is in that multicast group, or leaves it with an ack (already_connected).
    has_qp, ///< Only for an id without a QP of its own: librdmacm does it by itself (operation_not_permitted).
    signal_unhandled, ///< The program has no handler for connect_options::interrupt_signal, which may end it
                      ///< (invalid_argument).
};

/// Why a connection request was refused, as InfiniBand and RoCE report it (iWARP reports an errno).
/// @see refused
enum class reject_reason {
    no_qp = 1,                        ///< No QP is left.
    no_eec = 2,                       ///< No end-to-end context is left.
    no_resources = 3,                 ///< The peer has no resources left.
    timeout = 4,                      ///< The peer's connection manager gave up waiting.
    unsupported = 5,                  ///< The request is not supported.
    invalid_comm_id = 6,              ///< An unknown communication id.
    invalid_comm_instance = 7,        ///< An unknown instance of the communication id.
    invalid_service_id = 8,           ///< Nobody listens on that port.
    invalid_transport_type = 9,       ///< The transport type does not fit.
    stale_connection = 10,            ///< The peer holds a connection of that QP that is over here.
    rdc_not_exist = 11,               ///< No reliable datagram channel.
    invalid_gid = 12,                 ///< The GID is not of that port.
    invalid_lid = 13,                 ///< The LID is not of that port.
    invalid_sl = 14,                  ///< The service level does not do.
    invalid_traffic_class = 15,       ///< The traffic class does not do.
    invalid_hop_limit = 16,           ///< The hop limit does not do.
    invalid_packet_rate = 17,         ///< The packet rate does not do.
    invalid_alt_gid = 18,             ///< invalid_gid, of the alternate path.
    invalid_alt_lid = 19,             ///< invalid_lid, of the alternate path.
    invalid_alt_sl = 20,              ///< invalid_sl, of the alternate path.
    invalid_alt_traffic_class = 21,   ///< invalid_traffic_class, of the alternate path.
    invalid_alt_hop_limit = 22,       ///< invalid_hop_limit, of the alternate path.
    invalid_alt_packet_rate = 23,     ///< invalid_packet_rate, of the alternate path.
    port_cm_redirect = 24,            ///< Ask another port, for the connection manager.
    port_redirect = 25,               ///< Ask another port.
    invalid_mtu = 26,                 ///< The MTU is not supported.
    insufficient_resp_resources = 27, ///< Too many RDMA reads at a time for the peer.
    consumer_defined = 28,            ///< The application rejected, or dropped the request.
    invalid_rnr_retry = 29,           ///< The RNR retry count does not do.
    duplicate_local_comm_id = 30,     ///< The communication id is in use.
    invalid_class_version = 31,       ///< Another version of the protocol.
    invalid_flow_label = 32,          ///< The flow label does not do.
    invalid_alt_flow_label = 33,      ///< invalid_flow_label, of the alternate path.
    vendor_option_not_supported = 35, ///< A vendor's option is not supported.
};

/// Portable questions to an error code from an event.
enum class condition {
    refused =
        1, ///< The peer, or its machine, said no: rejected by the application, or nobody listens; on every transport.
};

namespace detail {

/// The parts, one after the other.
inline std::string concat(std::initializer_list<std::string_view> parts) {
    std::string whole;
    for (std::string_view const part : parts)
        whole.append(part);
    return whole;
}

struct RDMACPP_EXPORT rdma_error_category final : std::error_category {
    char const* name() const noexcept override { return "rdma"; }

    std::string message(int value) const override {
        switch (static_cast<errc>(value)) {
        case errc::empty_handle: return "the handle is empty (default-constructed, moved from, released or destroyed)";
        case errc::null_handle: return "a null pointer cannot be adopted";
        case errc::already_owned: return "the object to adopt has an owner already";
        case errc::wrong_channel: return "the id to adopt lives on another event channel";
        case errc::port_out_of_range: return "port out of range (0 to 65535)";
        case errc::bad_address: return "not a numeric IPv4 or IPv6 address (an IPv6 address may end in %interface)";
        case errc::family_mismatch: return "source and destination address are of different families";
        case errc::private_data_too_long: return "private data too long (at most 255 bytes)";
        case errc::private_data_iwarp: return "private data too long for iWARP (at most 251 bytes)";
        case errc::retry_count_out_of_range: return "retry_count or rnr_retry_count out of range (0 to 7)";
        case errc::not_bound:
            return "the id is not bound to a device yet: bind it to a specific address, or wait for ADDR_RESOLVED";
        case errc::not_a_request:
            return "accept and reject need an id from a CONNECT_REQUEST that was neither accepted nor rejected";
        case errc::no_id_to_take:
            return "the event carries no new id: it is no CONNECT_REQUEST, or the id was taken before";
        case errc::qp_exists: return "the id has a queue pair already";
        case errc::unspecified: return "librdmacm reports a failure without a reason";
        case errc::poll_failed: return "ibv_poll_cq failed (it gives no reason)";
        case errc::listener_migrates: return "a listening id cannot migrate: the requests queued on it would be lost";
        case errc::already_joined: return "the id is a member of that multicast group already, or until the last ack";
        case errc::has_qp: return "only for an id without a queue pair of its own: librdmacm does this by itself";
        case errc::signal_unhandled:
            return "the program has no handler for connect_options::interrupt_signal (sigaction, without SA_RESTART)";
        }
        return "unknown rdma error";
    }

    std::error_condition default_error_condition(int value) const noexcept override {
        auto const is = [](std::errc e) { return std::make_error_condition(e); };
        switch (static_cast<errc>(value)) {
        case errc::empty_handle:
        case errc::null_handle:
        case errc::wrong_channel:
        case errc::port_out_of_range:
        case errc::bad_address:
        case errc::family_mismatch:
        case errc::signal_unhandled:
        case errc::retry_count_out_of_range: return is(std::errc::invalid_argument);
        case errc::already_owned: return is(std::errc::device_or_resource_busy);
        case errc::private_data_too_long:
        case errc::private_data_iwarp: return is(std::errc::message_size);
        case errc::not_bound: return is(std::errc::no_such_device);
        case errc::already_joined: return is(std::errc::already_connected);
        case errc::has_qp:
        case errc::listener_migrates:
        case errc::not_a_request:
        case errc::no_id_to_take: return is(std::errc::operation_not_permitted);
        case errc::qp_exists: return is(std::errc::file_exists);
        case errc::poll_failed: return is(std::errc::io_error);
        case errc::unspecified: break;
        }
        return {value, *this};
    }
};

struct RDMACPP_EXPORT reject_category final : std::error_category {
    char const* name() const noexcept override { return "rdma reject"; }

    std::string message(int value) const override {
        switch (static_cast<reject_reason>(value)) {
        case reject_reason::no_resources: return "rejected: the peer is out of resources";
        case reject_reason::timeout: return "rejected: the peer's connection manager timed out";
        case reject_reason::invalid_service_id: return "rejected: nobody listens on that port";
        case reject_reason::stale_connection: return "rejected: stale connection";
        case reject_reason::consumer_defined: return "rejected by the peer's application";
        case reject_reason::vendor_option_not_supported: return "rejected: a vendor option is not supported";
        default: return concat({"rejected (reason ", std::to_string(value), " of the InfiniBand specification)"});
        }
    }

    std::error_condition default_error_condition(int value) const noexcept override {
        return std::make_error_condition(static_cast<reject_reason>(value) == reject_reason::timeout
                                             ? std::errc::timed_out
                                             : std::errc::connection_refused);
    }
};

struct RDMACPP_EXPORT condition_category final : std::error_category {
    char const* name() const noexcept override { return "rdma condition"; }
    std::string message(int) const override { return "refused by the peer"; }
    bool equivalent(std::error_code const& code, int) const noexcept override {
        // siw reports a peer that closed the connection unanswered as ECONNRESET: the same "no".
        return code == std::errc::connection_refused || code == std::errc::connection_reset;
    }
};

/// Categories are compared by address, so each must be one object in the process.
struct RDMACPP_EXPORT categories {
    static std::error_category const& rdma() noexcept {
        static rdma_error_category const category;
        return category;
    }
    static std::error_category const& reject() noexcept {
        static reject_category const category;
        return category;
    }
    static std::error_category const& conditions() noexcept {
        static condition_category const category;
        return category;
    }
};

} // namespace detail

/// The category of rdma::errc.
inline std::error_category const& error_category() noexcept { return detail::categories::rdma(); }

/// The category of rdma::reject_reason.
inline std::error_category const& reject_category() noexcept { return detail::categories::reject(); }

/// Makes an error code of an rdma::errc.
inline std::error_code make_error_code(errc e) noexcept { return {static_cast<int>(e), error_category()}; }

/// Makes an error code of a reject reason.
inline std::error_code make_error_code(reject_reason r) noexcept { return {static_cast<int>(r), reject_category()}; }

/// Makes an error condition, to compare codes with: `event.error() == rdma::condition::refused`.
inline std::error_condition make_error_condition(condition c) noexcept {
    return {static_cast<int>(c), detail::categories::conditions()};
}

} // namespace rdma::inline RDMACPP_ABI

template <>
struct std::is_error_code_enum<::rdma::errc> : std::true_type {};
template <>
struct std::is_error_code_enum<::rdma::reject_reason> : std::true_type {};
template <>
struct std::is_error_condition_enum<::rdma::condition> : std::true_type {};

namespace rdma::inline RDMACPP_ABI {

/// What every throwing function throws: a std::system_error that also names the C function and the arguments that
/// matter, and where a beginner is likely to meet it, says what to do.
class RDMACPP_EXPORT error : public std::system_error {
public:
    /// @param code what went wrong
    /// @param function the C function concerned; a string literal, it is kept
    /// @param arguments its arguments, as text
    /// @param hinted whether to say what to do about an errno of that function; not if an event brought the code
    error(std::error_code code, char const* function, std::string const& arguments = {}, bool hinted = true)
        : std::system_error(code), function_(function), text_(compose(code, function, arguments, hinted)) {}

    /// The C function that failed, or that was not called because its arguments were refused.
    char const* function() const noexcept { return function_; }

    /// The whole message: function, arguments, reason, and a hint where there is one.
    char const* what() const noexcept override { return text_.what(); }

private:
    static std::string compose(std::error_code code, std::string const& function, std::string const& arguments,
                               bool hinted) {
        std::string text = detail::concat({function, "(", arguments, "): ", code.message()});
        if (char const* const advice = hinted ? hint(code, function) : nullptr)
            text.append(detail::concat({"; ", advice}));
        if (code == std::errc::not_enough_memory && pins_memory(function))
            text += locked_memory_hint();
        return text;
    }

    static char const* hint(std::error_code code, std::string const& function) noexcept {
        if (code.category() != std::system_category())
            return nullptr;
        switch (code.value()) {
        case ENODEV:
            return "no RDMA device serves this: `rdma link` lists the devices and their interfaces (the loopback "
                   "address belongs to none), and tools/softrdma runs a program on soft RDMA where there is no "
                   "hardware";
        case ENOENT:
            return begins_with(function, {"rdma_create_event_channel", "rdma_create_id"})
                       ? "the kernel module rdma_ucm is missing: modprobe rdma_ucm"
                       : nullptr;
        case EACCES:
        case EPERM:
            if (!begins_with(function, {"rdma_"}))
                return nullptr;
            return "no permission on /dev/infiniband/rdma_cm, or the process changed its user or capabilities after it "
                   "opened the event channel: open the channel afterwards";
        case EADDRNOTAVAIL: return "no RDMA device has this address, or the port is taken";
        case EINVAL:
            if (begins_with(function, {"rdma_connect", "rdma_accept", "rdma_reject"}))
                return "on InfiniBand and RoCE, private data is at most 56 bytes for connect, 196 for accept, 148 for "
                       "reject (datagrams: 180, 136, 136), and iWARP needs a queue pair first";
            return nullptr;
        default: return nullptr;
        }
    }

    /// Whether a C function pins pages, of the program or of the driver's queues.
    static bool pins_memory(std::string const& function) noexcept {
        return begins_with(function, {"ibv_reg_", "ibv_rereg_", "ibv_create_", "ibv_resize_", "rdma_create_qp",
                                      "rdma_create_srq", "rdma_reg_"});
    }

    static bool begins_with(std::string const& function, std::initializer_list<char const*> prefixes) noexcept {
        for (char const* const prefix : prefixes)
            if (function.compare(0, std::char_traits<char>::length(prefix), prefix) == 0)
                return true;
        return false;
    }

    static std::string locked_memory_hint() {
        rlimit limit{};
        if (::getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
            return {};
        return detail::concat(
            {"; the limit of locked memory (RLIMIT_MEMLOCK, ulimit -l) is ", std::to_string(limit.rlim_cur), " bytes"});
    }

    char const* function_;
    std::runtime_error text_; // a string whose copies do not throw
};

namespace detail {

// Declared everywhere, so that templates can name it; where exceptions are off, nothing calls it.
[[noreturn, gnu::cold]] inline void throw_error(std::error_code code, char const* function,
                                                std::initializer_list<std::string_view> arguments = {});
#if RDMACPP_EXCEPTIONS
inline void throw_error(std::error_code code, char const* function, std::initializer_list<std::string_view> arguments) {
    throw error(code, function, concat(arguments));
}
#endif

} // namespace detail

} // namespace rdma::inline RDMACPP_ABI

// ---- address.hpp ----------------------------------------------------------------------------------------------------
// A socket address as a value: family, host, scope id, and the port in host byte order.

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

// ---- adopt.hpp ------------------------------------------------------------------------------------------------------
// The tags of constructors.

namespace rdma::inline RDMACPP_ABI {

/// Tags the constructors that take over a C handle, which is theirs to destroy from then on: `cm_event{adopt, raw}`.
struct adopt_t {
    explicit adopt_t() = default;
};
/// The tag itself.
inline constexpr adopt_t adopt{};

/// Tags the constructor that opens nothing: `event_channel{no_init}`.
struct no_init_t {
    explicit no_init_t() = default;
};
/// The tag itself.
inline constexpr no_init_t no_init{};

} // namespace rdma::inline RDMACPP_ABI

// ---- detail/c_api.hpp -----------------------------------------------------------------------------------------------
// The one place that includes the C headers: they are not clean under the warnings that users turn on.

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpedantic"
#pragma GCC diagnostic ignored "-Wold-style-cast"
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wsign-conversion"
#pragma GCC diagnostic ignored "-Wshadow"
#pragma GCC diagnostic ignored "-Wdeprecated-enum-enum-conversion"
#if defined(__clang__)
#pragma GCC diagnostic ignored "-Wzero-length-array"
#pragma GCC diagnostic ignored "-Wgnu-anonymous-struct"
#pragma GCC diagnostic ignored "-Wnested-anon-types"
#pragma GCC diagnostic ignored "-Wc99-extensions"
#endif
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#pragma GCC diagnostic pop

// ---- detail/check.hpp -----------------------------------------------------------------------------------------------
// One translator for each of C's error conventions. Each reads errno at once, before any cleanup can change it.

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

// ---- detail/contract.hpp --------------------------------------------------------------------------------------------
// What the static_asserts under the types say. Asked of the compiler itself: the traits of the standard library cost
// every includer more.

namespace rdma::inline RDMACPP_ABI::detail {

/// Whether a T can be made from one A.
template <class T, class A>
concept makes = requires(A&& a) {
    T(static_cast<A&&>(a));
};

/// What every owner is: empty by default or not, moved without a throw, never copied.
template <class T>
concept move_only = requires(T& to, T&& from) {
    { T(static_cast<T&&>(from)) }
    noexcept;
    { to = static_cast<T&&>(from) }
    noexcept;
}
&&!makes<T, T const&> && !requires(T & to, T const& from) { to = from; };

/// Whether an empty T can be made, without a throw.
template <class T>
concept nothrow_empty = requires {
    { T() }
    noexcept;
};

} // namespace rdma::inline RDMACPP_ABI::detail

// ---- detail/atomic.hpp ----------------------------------------------------------------------------------------------
// Atomic values: as much of <atomic> as is used here, whose other contents cost every includer a tenth of the whole.

namespace rdma::inline RDMACPP_ABI::detail {

/// The orders of <atomic>; what names none is sequentially consistent.
enum class order : int {
    relaxed = __ATOMIC_RELAXED,
    acquire = __ATOMIC_ACQUIRE,
    release = __ATOMIC_RELEASE,
    acq_rel = __ATOMIC_ACQ_REL,
    seq_cst = __ATOMIC_SEQ_CST,
};

/// A number, a flag, an enumerator or a pointer. The functions are those of std::atomic.
template <class T>
class atomic {
public:
    constexpr atomic() noexcept = default;
    constexpr atomic(T value) noexcept : value_(value) {}
    atomic(atomic const&) = delete;
    atomic& operator=(atomic const&) = delete;

    T load(order o = order::seq_cst) const noexcept {
        T value;
        __atomic_load(&value_, &value, static_cast<int>(o));
        return value;
    }
    void store(T value, order o = order::seq_cst) noexcept { __atomic_store(&value_, &value, static_cast<int>(o)); }
    T exchange(T value, order o = order::seq_cst) noexcept {
        T before;
        __atomic_exchange(&value_, &value, &before, static_cast<int>(o));
        return before;
    }
    /// Fails only if the value is another one, which is then in `expected`.
    bool compare_exchange(T& expected, T desired, order o = order::seq_cst) noexcept {
        constexpr bool may_fail_otherwise = false;
        int const on_failure = o == order::release   ? __ATOMIC_RELAXED
                               : o == order::acq_rel ? __ATOMIC_ACQUIRE
                                                     : static_cast<int>(o);
        return __atomic_compare_exchange(&value_, &expected, &desired, may_fail_otherwise, static_cast<int>(o),
                                         on_failure);
    }
    T fetch_add(T n, order o = order::seq_cst) noexcept { return __atomic_fetch_add(&value_, n, static_cast<int>(o)); }
    T fetch_sub(T n, order o = order::seq_cst) noexcept { return __atomic_fetch_sub(&value_, n, static_cast<int>(o)); }

private:
    T value_{};
};

} // namespace rdma::inline RDMACPP_ABI::detail

// ---- detail/process.hpp ---------------------------------------------------------------------------------------------
// Which process this is, as cheaply as a load: a forked child must make no C call for objects that its parent opened.

namespace rdma::inline RDMACPP_ABI::detail {

/// Counts the forks between the first process and this one. After fork() the child shares the parent's open files:
/// rdma_cm commands fail with EACCES there, but ibv_destroy_qp would really kill the parent's QP.
struct RDMACPP_EXPORT process {
    static detail::atomic<unsigned>& generation() noexcept {
        static detail::atomic<unsigned> count{0};
        [[maybe_unused]] static int const registered =
            ::pthread_atfork(nullptr, nullptr, [] { count.fetch_add(1, order::relaxed); });
        return count;
    }
    static unsigned current() noexcept { return generation().load(order::relaxed); }
};

} // namespace rdma::inline RDMACPP_ABI::detail

// ---- detail/pin.hpp -------------------------------------------------------------------------------------------------
// What keeps a C object alive: its owner, its dependents, and the events that name it each hold one pin.

namespace rdma::inline RDMACPP_ABI::detail {

/// Moves a plain value out, and leaves an empty one. (std::exchange and std::swap cost every includer compile time.)
template <class T>
T take(T& from) noexcept {
    T const taken = from;
    from = T();
    return taken;
}
template <class T>
void swap_values(T& a, T& b) noexcept {
    T const was = a;
    a = b;
    b = was;
}

/// A C object that is destroyed with its last pin, by whoever drops that one.
struct pinnable {
    using last_unpin = void (*)(pinnable&) noexcept;

    explicit pinnable(last_unpin gone) noexcept : on_last_unpin(gone) {}

    detail::atomic<std::uint32_t> pins{0};
    last_unpin const on_last_unpin;
    unsigned const born_in = process::current();

    /// True in a child that was forked after this object was made: there it is only ever forgotten.
    bool inherited() const noexcept { return born_in != process::current(); }
};

inline void pin(pinnable* target) noexcept {
    if (target)
        target->pins.fetch_add(1, order::relaxed);
}

/// Drops a pin; with the last one the C object goes. No lock may be held: destroys can wait inside the kernel.
inline void unpin(pinnable* target) noexcept {
    if (target && !target->inherited() && target->pins.fetch_sub(1, order::acq_rel) == 1)
        target->on_last_unpin(*target);
}

/// One pin, for as long as it lives.
class keep {
public:
    keep() noexcept = default;
    explicit keep(pinnable* target) noexcept : target_(target) { pin(target); }
    keep(keep&& other) noexcept : target_(take(other.target_)) {}
    keep& operator=(keep&& other) noexcept {
        keep moved(static_cast<keep&&>(other));
        swap_values(target_, moved.target_);
        return *this;
    }
    ~keep() { unpin(target_); }

private:
    pinnable* target_ = nullptr;
};

/// Drops a count that is not the last one, and leaves the last one be: without a lock, and without ending anything.
inline bool unref_unless_last(detail::atomic<std::uint32_t>& count) noexcept {
    std::uint32_t now = count.load(order::relaxed);
    while (now > 1)
        if (count.compare_exchange(now, now - 1, order::acq_rel))
            return true;
    return false;
}

} // namespace rdma::inline RDMACPP_ABI::detail

// ---- event_type.hpp -------------------------------------------------------------------------------------------------
// The names of events, port spaces and QP types.

namespace rdma::inline RDMACPP_ABI {

/// What an event reports (rdma_cm_event_type). The kernel may send newer ones: let every switch have a default.
enum class cm_event_type {
    addr_resolved =
        RDMA_CM_EVENT_ADDR_RESOLVED, ///< The address was found, and the id has a device: resolve_route() comes next.
    addr_error = RDMA_CM_EVENT_ADDR_ERROR,             ///< The address could not be resolved.
    route_resolved = RDMA_CM_EVENT_ROUTE_RESOLVED,     ///< The route was found: create_qp() and connect() come next.
    route_error = RDMA_CM_EVENT_ROUTE_ERROR,           ///< The route could not be resolved.
    connect_request = RDMA_CM_EVENT_CONNECT_REQUEST,   ///< A client wants to connect: the event carries its new id.
    connect_response = RDMA_CM_EVENT_CONNECT_RESPONSE, ///< The peer has accepted, and the id has no QP of its own: see
                                                       ///< cm_id::establish.
    connect_error = RDMA_CM_EVENT_CONNECT_ERROR,       ///< Connecting, or accepting, failed.
    unreachable = RDMA_CM_EVENT_UNREACHABLE,           ///< The peer does not answer.
    rejected = RDMA_CM_EVENT_REJECTED,                 ///< The peer, or its machine, said no: cm_event::error tells.
    established = RDMA_CM_EVENT_ESTABLISHED,           ///< Connected.
    disconnected = RDMA_CM_EVENT_DISCONNECTED,         ///< The connection is over.
    device_removal = RDMA_CM_EVENT_DEVICE_REMOVAL,     ///< The device is going away: drop what was made on it.
    multicast_join = RDMA_CM_EVENT_MULTICAST_JOIN,     ///< The group was joined.
    multicast_error = RDMA_CM_EVENT_MULTICAST_ERROR,   ///< The group could not be joined, or was lost.
    addr_change = RDMA_CM_EVENT_ADDR_CHANGE,           ///< The address has moved to another device (bonding).
    timewait_exit = RDMA_CM_EVENT_TIMEWAIT_EXIT,       ///< The QP number of an ended connection may be used again.
    addrinfo_resolved = 16,                            ///< rdma-core 60 and newer
    addrinfo_error = 17,                               ///< rdma-core 60 and newer
    user = 18,                                         ///< rdma-core 60 and newer
};

/// The port space of an id: its service, and the type of its QP.
enum class port_space {
    ipoib = RDMA_PS_IPOIB, ///< datagrams over IPoIB
    tcp = RDMA_PS_TCP,     ///< connected
    udp = RDMA_PS_UDP,     ///< datagrams
    ib = RDMA_PS_IB,       ///< InfiniBand's own; connected unless made otherwise
};

/// The type of a QP (ibv_qp_type). An id's follows from its port space.
enum class qp_type {
    rc = IBV_QPT_RC, ///< reliable and connected
    uc = IBV_QPT_UC, ///< connected
    ud = IBV_QPT_UD, ///< datagrams
    raw_packet = IBV_QPT_RAW_PACKET,
    xrc_send = IBV_QPT_XRC_SEND,
    xrc_recv = IBV_QPT_XRC_RECV,
    driver = IBV_QPT_DRIVER, ///< what a device has of its own
};

namespace detail {

/// The type of a C event. It may be newer than the C header, and then must not be read through C's enumeration.
inline cm_event_type type_of(rdma_cm_event const& event) noexcept {
    int number;
    static_assert(sizeof number == sizeof event.event);
    std::memcpy(&number, &event.event, sizeof number);
    return static_cast<cm_event_type>(number);
}

} // namespace detail

/// The name as in the manual pages, without the prefix: "CONNECT_REQUEST". Unknown types give their number.
inline std::string to_string(cm_event_type type) {
    switch (type) {
    case cm_event_type::addrinfo_resolved:
        return "ADDRINFO_RESOLVED"; // older headers and libraries have no names for them
    case cm_event_type::addrinfo_error: return "ADDRINFO_ERROR";
    case cm_event_type::user: return "USER";
    default: break;
    }
    if (type > cm_event_type::timewait_exit)
        return detail::concat({"event ", std::to_string(static_cast<int>(type))});
    constexpr std::string_view prefix = "RDMA_CM_EVENT_";
    std::string_view const name = ::rdma_event_str(static_cast<rdma_cm_event_type>(type));
    return std::string(name.starts_with(prefix) ? name.substr(prefix.size()) : name);
}

} // namespace rdma::inline RDMACPP_ABI

// ---- addrinfo.hpp ---------------------------------------------------------------------------------------------------
// Looking up names: rdma_getaddrinfo and what it finds.

namespace rdma::inline RDMACPP_ABI {

namespace detail {

struct RDMACPP_EXPORT gai_error_category final : std::error_category {
    char const* name() const noexcept override { return "rdma addrinfo"; }
    std::string message(int value) const override { return ::gai_strerror(value); }
    std::error_condition default_error_condition(int value) const noexcept override {
        switch (value) {
        case EAI_AGAIN: return std::make_error_condition(std::errc::resource_unavailable_try_again);
        case EAI_MEMORY: return std::make_error_condition(std::errc::not_enough_memory);
        case EAI_FAMILY: return std::make_error_condition(std::errc::address_family_not_supported);
        case EAI_BADFLAGS:
        case EAI_SERVICE:
        case EAI_SOCKTYPE: return std::make_error_condition(std::errc::invalid_argument);
        default: return {value, *this};
        }
    }
    static std::error_category const& get() noexcept {
        static gai_error_category const category;
        return category;
    }
};

/// rdma_getaddrinfo: 0, or -1 with the reason in errno, or one of the resolver's codes. -1 is one of these, too.
inline std::error_code check_getaddrinfo(int result) noexcept {
    if (result == 0)
        return {};
    if (result == -1 && errno != 0)
        return system_error_code(errno);
    return result < 0 ? std::error_code(result, gai_error_category::get()) : system_error_code(result);
}

} // namespace detail

/// The category of the resolver's codes (EAI_NONAME ...).
inline std::error_category const& gai_category() noexcept { return detail::gai_error_category::get(); }

/// What to look for (the hints of rdma_getaddrinfo).
struct addrinfo_hints {
    bool passive = false;           ///< For a listener: the result has a source address (RAI_PASSIVE).
    bool numeric_host = false;      ///< The node is a numeric address: no name is looked up (RAI_NUMERICHOST).
    bool no_route = false;          ///< No route is asked for, only addresses (RAI_NOROUTE).
    sa_family_t family = AF_UNSPEC; ///< Only this family: AF_INET, AF_INET6, AF_IB (RAI_FAMILY).
    int flags = 0;                  ///< Other flags of RAI_*, such as RAI_DNS and RAI_SA of rdma-core 60.
    ::rdma::port_space port_space = ::rdma::port_space::tcp; ///< Only this service.
    ::rdma::qp_type qp_type = ::rdma::qp_type::rc;           ///< Only this type of QP.
    address src_addr = {};                                   ///< The local address to use, or none.
    address dst_addr = {};                                   ///< The peer's address, when no node is given.
};

/// A view of one result; it belongs to the addrinfo, and must not outlive it.
class addrinfo_ref {
public:
    addrinfo_ref() noexcept = default;
    explicit addrinfo_ref(rdma_addrinfo const* raw) noexcept : raw_(raw) {}

    /// The C struct; null when empty. Everything else needs one.
    rdma_addrinfo const* native_handle() const noexcept { return raw_; }
    explicit operator bool() const noexcept { return raw_ != nullptr; }

    /// The flags of RAI_*, the address family, the type of QP and the port space that it is for.
    int flags() const noexcept { return raw().ai_flags; }
    sa_family_t family() const noexcept { return static_cast<sa_family_t>(raw().ai_family); }
    ::rdma::qp_type qp_type() const noexcept { return static_cast<::rdma::qp_type>(raw().ai_qp_type); }
    ::rdma::port_space port_space() const noexcept { return static_cast<::rdma::port_space>(raw().ai_port_space); }
    /// Where to bind; empty if the system may choose.
    address src_addr() const noexcept { return raw().ai_src_len ? address(raw().ai_src_addr) : address(); }
    /// Where to connect to; empty for a listener.
    address dst_addr() const noexcept { return raw().ai_dst_len ? address(raw().ai_dst_addr) : address(); }
    /// The names that the two addresses belong to, if they were asked for.
    std::string_view src_canonname() const noexcept { return text(raw().ai_src_canonname); }
    std::string_view dst_canonname() const noexcept { return text(raw().ai_dst_canonname); }
    /// The route, if one was found: an ibv_path_data for each path.
    template <class Byte = std::byte>
    std::span<Byte const> route() const noexcept {
        return {static_cast<Byte const*>(raw().ai_route), raw().ai_route_len};
    }
    /// Private data that librdmacm puts before the program's when it connects.
    template <class Byte = std::byte>
    std::span<Byte const> connect() const noexcept {
        return {static_cast<Byte const*>(raw().ai_connect), raw().ai_connect_len};
    }

private:
    rdma_addrinfo const& raw() const noexcept {
        RDMACPP_ASSERT(raw_);
        return *raw_;
    }
    static std::string_view text(char const* c) noexcept { return c ? std::string_view(c) : std::string_view(); }

    rdma_addrinfo const* raw_ = nullptr;
};

/// The results of a lookup (rdma_getaddrinfo), in the order in which to try them: a range of addrinfo_ref.
class [[nodiscard]] addrinfo {
public:
    /// Over the results.
    class iterator {
    public:
        using iterator_category = std::forward_iterator_tag;
        using value_type = addrinfo_ref;
        using difference_type = std::ptrdiff_t;
        using pointer = void;
        using reference = addrinfo_ref;

        iterator() noexcept = default;
        addrinfo_ref operator*() const noexcept { return addrinfo_ref(at_); }
        iterator& operator++() noexcept {
            at_ = at_->ai_next;
            return *this;
        }
        iterator operator++(int) noexcept {
            iterator const before = *this;
            ++*this;
            return before;
        }
        friend bool operator==(iterator a, iterator b) noexcept { return a.at_ == b.at_; }

    private:
        friend class addrinfo;
        explicit iterator(rdma_addrinfo const* at) noexcept : at_(at) {}
        rdma_addrinfo const* at_ = nullptr;
    };

    /// Empty.
    addrinfo() noexcept = default;

#if RDMACPP_EXCEPTIONS
    /// Looks up a host and a service; asks the name servers, and ibacm where it runs, and waits for them.
    /// @param node a name or an address; null: hints.dst_addr, or for a listener every local address
    /// @param service a name or a port number; null: none
    /// @throws rdma::error a code of gai_category(): EAI_NONAME ...; an errno: ENODEV (no RDMA device), EINVAL
    addrinfo(char const* node, char const* service, addrinfo_hints const& hints = {}) {
        std::error_code ec;
        *this = addrinfo(node, service, hints, ec);
        if (ec)
            detail::throw_error(ec, "rdma_getaddrinfo", {node ? node : "", ", ", service ? service : ""});
    }
    /// Takes over a list of C's. @throws rdma::error errc::null_handle
    addrinfo(adopt_t, rdma_addrinfo* raw) {
        std::error_code ec;
        *this = addrinfo(adopt, raw, ec);
        if (ec)
            detail::throw_error(ec, "rdma_getaddrinfo", {"adopt"});
    }
#endif
    /// The twins of the constructors: empty on failure.
    addrinfo(char const* node, char const* service, std::error_code& ec) noexcept : addrinfo(node, service, {}, ec) {}
    addrinfo(char const* node, char const* service, addrinfo_hints const& hints, std::error_code& ec) noexcept {
        rdma_addrinfo const c = to_c(hints);
        errno = 0;
        ec = detail::check_getaddrinfo(::rdma_getaddrinfo(node, service, &c, &raw_));
        if (ec)
            raw_ = nullptr;
    }
    addrinfo(adopt_t, rdma_addrinfo* raw, std::error_code& ec) noexcept : raw_(raw) {
        ec = raw ? std::error_code{} : std::error_code(errc::null_handle);
    }

    addrinfo(addrinfo&& other) noexcept : raw_(detail::take(other.raw_)) {}
    /// Frees the list held before.
    addrinfo& operator=(addrinfo&& other) noexcept {
        addrinfo(std::move(other)).swap(*this);
        return *this;
    }
    /// Frees the list (rdma_freeaddrinfo).
    ~addrinfo() {
        if (raw_)
            ::rdma_freeaddrinfo(raw_);
    }

    iterator begin() const& noexcept { return iterator(raw_); }
    iterator end() const& noexcept { return iterator(); }
    iterator begin() const&& = delete;
    bool empty() const noexcept { return raw_ == nullptr; }
    /// The first result, the one to try first; there is one unless this is empty.
    addrinfo_ref front() const& noexcept { return addrinfo_ref(raw_); }
    addrinfo_ref front() const&& = delete;
    explicit operator bool() const noexcept { return raw_ != nullptr; }

    /// The C list, still owned by this.
    rdma_addrinfo* native_handle() const noexcept { return raw_; }
    /// Gives the C list back, to be freed with rdma_freeaddrinfo.
    [[nodiscard]] rdma_addrinfo* release() noexcept { return detail::take(raw_); }
    void swap(addrinfo& other) noexcept { detail::swap_values(raw_, other.raw_); }
    friend void swap(addrinfo& a, addrinfo& b) noexcept { a.swap(b); }

private:
    friend class cm_id;

    /// Points into the hints.
    static rdma_addrinfo to_c(addrinfo_hints const& hints) noexcept {
        rdma_addrinfo c{};
        c.ai_flags = hints.flags | (hints.passive ? RAI_PASSIVE : 0) | (hints.numeric_host ? RAI_NUMERICHOST : 0) |
                     (hints.no_route ? RAI_NOROUTE : 0) | (hints.family != AF_UNSPEC ? RAI_FAMILY : 0);
        c.ai_family = hints.family;
        c.ai_qp_type = static_cast<int>(hints.qp_type);
        c.ai_port_space = static_cast<int>(hints.port_space);
        if ((c.ai_src_len = hints.src_addr.length()) != 0)
            c.ai_src_addr = const_cast<sockaddr*>(hints.src_addr.native_handle()); // C only reads it
        if ((c.ai_dst_len = hints.dst_addr.length()) != 0)
            c.ai_dst_addr = const_cast<sockaddr*>(hints.dst_addr.native_handle());
        return c;
    }

    rdma_addrinfo* raw_ = nullptr;
};

static_assert(detail::move_only<addrinfo>);
static_assert(std::is_trivially_copyable_v<addrinfo_ref>);
static_assert(!detail::makes<addrinfo, rdma_addrinfo*>);

} // namespace rdma::inline RDMACPP_ABI

// ---- cm_id_ref.hpp --------------------------------------------------------------------------------------------------
// A view of a connection manager id: who it is, and its addresses.

namespace rdma::inline RDMACPP_ABI {

/// What an owned id and a view of one have in common: identity and addresses. Every member only reads the C struct.
class cm_id_base {
public:
    /// The C id; null when empty.
    rdma_cm_id* native_handle() const noexcept { return raw_; }
    explicit operator bool() const noexcept { return raw_ != nullptr; }

    /// The user's pointer (`id->context`). Null for an id from a CONNECT_REQUEST, until set_user_context.
    void* user_context() const noexcept { return raw_ ? raw_->context : nullptr; }
    /// Sets it; C and the library only keep it.
    void set_user_context(void* context) const noexcept {
        if (raw_)
            raw_->context = context;
    }

    /// The local address (rdma_get_local_addr); empty before bind or resolve_addr. The port is in host byte order, and
    /// the real one after listening on port 0.
    address local_addr() const noexcept { return raw_ ? address(::rdma_get_local_addr(raw_)) : address(); }

    /// The peer's address (rdma_get_peer_addr); empty before resolve_addr, and for a listener.
    address peer_addr() const noexcept { return raw_ ? address(::rdma_get_peer_addr(raw_)) : address(); }

    /// The ports of the two addresses, in host byte order (rdma_get_src_port, rdma_get_dst_port); 0 where there is
    /// none.
    std::uint16_t src_port() const noexcept { return raw_ ? ntohs(::rdma_get_src_port(raw_)) : std::uint16_t{0}; }
    std::uint16_t dst_port() const noexcept { return raw_ ? ntohs(::rdma_get_dst_port(raw_)) : std::uint16_t{0}; }

    /// The GIDs and the partition key of its path; zeros before a device is bound.
    ibv_gid sgid() const noexcept { return raw_ ? raw_->route.addr.addr.ibaddr.sgid : ibv_gid{}; }
    ibv_gid dgid() const noexcept { return raw_ ? raw_->route.addr.addr.ibaddr.dgid : ibv_gid{}; }
    std::uint16_t pkey() const noexcept { return raw_ ? ntohs(raw_->route.addr.addr.ibaddr.pkey) : std::uint16_t{0}; }

    /// The path records of its route (`id->route`), num_paths() of them; none on iWARP, and before ROUTE_RESOLVED.
    ibv_sa_path_rec const* path_rec() const noexcept { return raw_ ? raw_->route.path_rec : nullptr; }
    int num_paths() const noexcept { return raw_ ? raw_->route.num_paths : 0; }

    /// The type of its QP, which follows from the port space.
    ::rdma::qp_type qp_type() const noexcept {
        return raw_ ? static_cast<::rdma::qp_type>(raw_->qp_type) : ::rdma::qp_type::rc;
    }

    /// The port space it was made in.
    ::rdma::port_space port_space() const noexcept {
        return raw_ ? static_cast<::rdma::port_space>(raw_->ps) : ::rdma::port_space::tcp;
    }

    /// The device's port in use; 0 before a device is bound.
    std::uint8_t port_num() const noexcept { return raw_ ? raw_->port_num : std::uint8_t{0}; }

protected:
    cm_id_base() noexcept = default;
    explicit cm_id_base(rdma_cm_id* raw) noexcept : raw_(raw) {}
    ~cm_id_base() = default;
    cm_id_base(cm_id_base const&) noexcept = default;
    cm_id_base& operator=(cm_id_base const&) noexcept = default;

    rdma_cm_id* raw_ = nullptr;
};

/// A borrowed id, as an event names it: a key for maps, and good for logs. It owns nothing and cannot turn into an
/// owner. Comparing and hashing work also after the id is gone; everything else needs it alive, as it is while an event
/// that names it is held.
class cm_id_ref : public cm_id_base {
public:
    cm_id_ref() noexcept = default;
    explicit cm_id_ref(rdma_cm_id* raw) noexcept : cm_id_base(raw) {}

    friend bool operator==(cm_id_ref a, cm_id_ref b) noexcept { return a.raw_ == b.raw_; }
};

static_assert(std::is_trivially_copyable_v<cm_id_ref> && sizeof(cm_id_ref) == sizeof(void*));
static_assert(!std::is_convertible_v<rdma_cm_id*, cm_id_ref>);

/// The C address of the id and its two socket addresses: "0x55...c0 10.0.0.1:7471 -> 10.0.0.2:40000".
inline std::string to_string(cm_id_ref id) {
    if (!id)
        return "none";
    char pointer[24];
    std::snprintf(pointer, sizeof pointer, "%p", static_cast<void*>(id.native_handle()));
    return detail::concat({pointer, " ", to_string(id.local_addr()), " -> ", to_string(id.peer_addr())});
}

} // namespace rdma::inline RDMACPP_ABI

template <>
struct std::hash<::rdma::cm_id_ref> {
    std::size_t operator()(::rdma::cm_id_ref id) const noexcept { return std::hash<void*>()(id.native_handle()); }
};

// ---- private_data.hpp -----------------------------------------------------------------------------------------------
// The bytes that travel with connect, accept and reject.

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

// ---- conn_param.hpp -------------------------------------------------------------------------------------------------
// The parameters of connect and accept.

namespace rdma::inline RDMACPP_ABI {

/// For rnr_retry_count: wait for the peer's receive for ever. As a retry_count, 7 is just seven.
inline constexpr std::uint8_t infinite_rnr_retry = 7;

/// "As many as the device can", for responder_resources and initiator_depth (RDMA_MAX_RESP_RES, RDMA_MAX_INIT_DEPTH).
inline constexpr std::uint8_t device_maximum = 0xFF;

/// The parameters of a connection (rdma_conn_param). The defaults are those that librdmacm uses when it is given none.
///
/// The bytes of private_data are only read during the call; more than the transport carries is an error, never
/// truncated.
struct conn_param {
    std::span<std::byte const> private_data = {}; ///< At most 255 bytes; see private_data_limit for each operation.
    std::uint8_t responder_resources =
        device_maximum; ///< RDMA reads the peer may have in flight towards us; 0 forbids them.
    std::uint8_t initiator_depth = device_maximum;     ///< RDMA reads we may have in flight; 0 forbids them.
    std::uint8_t flow_control = 0;                     ///< Whether hardware flow control is available.
    std::uint8_t retry_count = 7;                      ///< Transport retries, 0 to 7 (ignored by accept).
    std::uint8_t rnr_retry_count = infinite_rnr_retry; ///< Retries when the peer has no receive posted, 0 to 7.
    bool srq = false;                                  ///< Only with a QP number: that QP has a shared receive queue.
    std::uint32_t qp_num = 0;                          ///< Only for an id without a QP of its own.
};

namespace detail {

/// Whether this many bytes can travel at all; on iWARP, siw corrupts the handshake beyond its limit.
inline std::error_code check_private_data(std::span<std::byte const> bytes, ibv_context const* device) noexcept {
    if (bytes.size() > private_data_limit::any)
        return errc::private_data_too_long;
    if (bytes.size() > private_data_limit::iwarp && device && device->device->transport_type == IBV_TRANSPORT_IWARP)
        return errc::private_data_iwarp;
    return {};
}

inline std::error_code check(conn_param const& param, ibv_context const* device) noexcept {
    if (param.retry_count > 7 || param.rnr_retry_count > 7) // three bits each: 8 would be sent as 0
        return errc::retry_count_out_of_range;
    return check_private_data(param.private_data, device);
}

inline rdma_conn_param to_c(conn_param const& param) noexcept {
    rdma_conn_param c{};
    c.private_data = param.private_data.data();
    c.private_data_len = static_cast<std::uint8_t>(param.private_data.size());
    c.responder_resources = param.responder_resources;
    c.initiator_depth = param.initiator_depth;
    c.flow_control = param.flow_control;
    c.retry_count = param.retry_count;
    c.rnr_retry_count = param.rnr_retry_count;
    c.srq = param.srq;
    c.qp_num = param.qp_num;
    return c;
}

} // namespace detail

} // namespace rdma::inline RDMACPP_ABI

// ---- verbs_list.hpp -------------------------------------------------------------------------------------------------
// What the lists that C hands out have in common: of devices, and of those that librdmacm has opened.

namespace rdma::inline RDMACPP_ABI {

/// An owned array of C's as a range of views: move-only, empty when default-constructed, moved from or released.
/// @tparam List says how C frees it: `static void free(Raw**) noexcept`
template <class List, class Ref, class Raw>
class verbs_list {
public:
    /// Over the objects; a view of each is made on the way.
    class iterator {
    public:
        using iterator_category = std::forward_iterator_tag;
        using value_type = Ref;
        using difference_type = std::ptrdiff_t;
        using pointer = void;
        using reference = Ref;

        iterator() noexcept = default;
        Ref operator*() const noexcept { return *at_; }
        iterator& operator++() noexcept {
            ++at_;
            return *this;
        }
        iterator operator++(int) noexcept {
            iterator const before = *this;
            ++at_;
            return before;
        }
        friend bool operator==(iterator a, iterator b) noexcept { return a.at_ == b.at_; }

    private:
        friend class verbs_list;
        explicit iterator(Raw* const* at) noexcept : at_(at) {}
        Raw* const* at_ = nullptr;
    };

    iterator begin() const noexcept { return iterator(all_); }
    iterator end() const noexcept { return iterator(all_ + count_); }
    std::size_t size() const noexcept { return count_; }
    bool empty() const noexcept { return count_ == 0; }
    Ref operator[](std::size_t i) const noexcept {
        RDMACPP_ASSERT(i < count_);
        return all_[i];
    }

    /// The C array, which ends with a null pointer; still owned by this.
    Raw** native_handle() const noexcept { return all_; }
    /// Gives the C array back, to be freed as C says.
    [[nodiscard]] Raw** release() noexcept {
        count_ = 0;
        return detail::take(all_);
    }
    void swap(verbs_list& other) noexcept {
        detail::swap_values(all_, other.all_);
        detail::swap_values(count_, other.count_);
        detail::swap_values(born_in_, other.born_in_);
    }
    friend void swap(verbs_list& a, verbs_list& b) noexcept { a.swap(b); }

protected:
    verbs_list() noexcept = default;
    /// Takes what C gave: nothing if that is null.
    verbs_list(Raw** all, int count) noexcept : all_(all), count_(all ? static_cast<std::size_t>(count) : 0) {}
    verbs_list(verbs_list&& other) noexcept
        : all_(detail::take(other.all_)), count_(detail::take(other.count_)), born_in_(other.born_in_) {}
    /// Frees the list held before.
    verbs_list& operator=(verbs_list&& other) noexcept {
        verbs_list(static_cast<verbs_list&&>(other)).swap(*this);
        return *this;
    }
    /// Frees the list. In a forked child nothing is freed.
    ~verbs_list() {
        if (all_ && born_in_ == detail::process::current())
            List::free(all_);
    }

private:
    Raw** all_ = nullptr;
    std::size_t count_ = 0;
    unsigned born_in_ = detail::process::current();
};

} // namespace rdma::inline RDMACPP_ABI

// ---- diagnostics.hpp ------------------------------------------------------------------------------------------------
// The one hook through which the library tells what no caller can be told: what happens in destructors and inside
// gets.

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

// ---- detail/address_map.hpp -----------------------------------------------------------------------------------------
// A hash table from a C object's address to our record of it. The records are its nodes, so nothing is allocated to add
// one.

namespace rdma::inline RDMACPP_ABI::detail {

/// T has `void const* key() const` and a member `T* next` that is the map's while T is in it.
template <class T>
class address_map {
public:
    address_map() noexcept = default;
    address_map(address_map const&) = delete;
    address_map& operator=(address_map const&) = delete;
    ~address_map() {
        if (buckets_ != first_)
            delete[] buckets_;
    }

    std::size_t size() const noexcept { return size_; }

    T* find(void const* key) const noexcept {
        for (T* node = bucket(key); node; node = node->next)
            if (node->key() == key)
                return node;
        return nullptr;
    }

    /// Adds a node whose key is not in the map.
    void insert(T* node) noexcept {
        if (size_ >= 2 * count_)
            grow();
        T*& head = bucket(node->key());
        node->next = head;
        head = node;
        ++size_;
    }

    /// Takes this very node out; an equal key on another node does not count.
    bool erase(T const* node) noexcept {
        for (T** link = &bucket(node->key()); *link; link = &(*link)->next)
            if (*link == node) {
                *link = node->next;
                --size_;
                return true;
            }
        return false;
    }

    template <class F>
    void for_each(F&& visit) const {
        for (std::size_t i = 0; i != count_; ++i)
            for (T *node = buckets_[i], *next; node; node = next) {
                next = node->next; // the visitor may delete the node
                visit(node);
            }
    }

private:
    T*& bucket(void const* key) const noexcept {
        auto const bits = reinterpret_cast<std::uintptr_t>(key);
        return buckets_[((bits >> 4) ^ (bits >> 12)) & (count_ - 1)]; // malloc aligns to 16
    }

    /// Longer chains are slower, not wrong: without memory the table just stays as it is.
    void grow() noexcept {
        T** const wider = new (std::nothrow) T* [2 * count_] {};
        if (!wider)
            return;
        T** const old = buckets_;
        std::size_t const old_count = count_;
        buckets_ = wider;
        count_ *= 2;
        for (std::size_t i = 0; i != old_count; ++i)
            for (T *node = old[i], *next; node; node = next) {
                next = node->next;
                T*& head = bucket(node->key());
                node->next = head;
                head = node;
            }
        if (old != first_)
            delete[] old;
    }

    T* first_[32] = {};
    T** buckets_ = first_;
    std::size_t count_ = 32;
    std::size_t size_ = 0;
};

} // namespace rdma::inline RDMACPP_ABI::detail

// ---- detail/mutex.hpp -----------------------------------------------------------------------------------------------
// A mutex and its guard: those of <mutex>, whose other contents cost every includer more than they do.

namespace rdma::inline RDMACPP_ABI::detail {

class mutex {
public:
    constexpr mutex() noexcept = default;
    mutex(mutex const&) = delete;
    mutex& operator=(mutex const&) = delete;

    void lock() noexcept { ::pthread_mutex_lock(&native_); }
    bool try_lock() noexcept { return ::pthread_mutex_trylock(&native_) == 0; }
    void unlock() noexcept { ::pthread_mutex_unlock(&native_); }

private:
    pthread_mutex_t native_ = PTHREAD_MUTEX_INITIALIZER; // needs no destroying
};

class [[nodiscard]] lock_guard {
public:
    explicit lock_guard(mutex& m) noexcept : mutex_(m) { mutex_.lock(); }
    lock_guard(lock_guard const&) = delete;
    lock_guard& operator=(lock_guard const&) = delete;
    ~lock_guard() { mutex_.unlock(); }

private:
    mutex& mutex_;
};

} // namespace rdma::inline RDMACPP_ABI::detail

// ---- any_stop_token.hpp ---------------------------------------------------------------------------------------------
// What may ask a wait to stop: a std::stop_token, or one like it.

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

// ---- timeout.hpp ----------------------------------------------------------------------------------------------------
// How long to wait, and what may cut a wait short.

namespace rdma::inline RDMACPP_ABI {

/// A time span in milliseconds, made from any duration: rounded up, and saturated, so that `std::chrono::hours::max()`
/// is as good as for ever. A negative span counts as none.
class timeout {
public:
    /// From any duration of the standard, without a word.
    template <class Rep, class Period>
    constexpr timeout(std::chrono::duration<Rep, Period> span) noexcept
        : milliseconds_(saturate(span)) {} // NOLINT: a span is one

    /// The span; never negative.
    constexpr std::int64_t milliseconds() const noexcept { return milliseconds_; }

    /// For C functions that take an int.
    constexpr int as_int() const noexcept {
        return milliseconds_ < INT_MAX ? static_cast<int>(milliseconds_) : INT_MAX;
    }

    static constexpr std::int64_t forever = std::int64_t{1000} * 3600 * 24 * 365 * 100; ///< A hundred years.

private:
    template <class Rep, class Period>
    static constexpr std::int64_t saturate(std::chrono::duration<Rep, Period> span) noexcept {
        // As a double: every other common type overflows for some argument.
        double const exact = static_cast<double>(span.count()) * 1000.0 * static_cast<double>(Period::num) /
                             static_cast<double>(Period::den);
        if (!(exact > 0))
            return 0;
        if (exact >= static_cast<double>(forever))
            return forever;
        auto const whole = static_cast<std::int64_t>(exact);
        return static_cast<double>(whole) < exact ? whole + 1 : whole;
    }

    std::int64_t milliseconds_;
};

/// As long as it takes.
inline constexpr timeout no_limit{std::chrono::milliseconds(timeout::forever)};

/// How a wait behaves beyond its deadline.
struct wait_options {
    /// False: a signal handler that runs meanwhile changes nothing (EINTR is retried). True: it ends the wait with
    /// std::errc::interrupted, so that a signal can cancel.
    bool interruptible = false;
};

namespace detail {

/// A point in time to wait for, or never.
class deadline {
public:
    static deadline never() noexcept { return deadline(INT64_MAX); }
    static deadline after(timeout span) noexcept {
        return span.milliseconds() < timeout::forever ? deadline(now() + span.milliseconds() * million) : never();
    }

    /// Milliseconds for poll(2), rounded up: -1 for never, 0 once passed.
    int for_poll() const noexcept {
        if (at_ == INT64_MAX)
            return -1;
        std::int64_t const left = at_ - now();
        if (left <= 0)
            return 0;
        return left < INT_MAX * million ? static_cast<int>((left + million - 1) / million) : INT_MAX;
    }

    bool is_never() const noexcept { return at_ == INT64_MAX; }
    std::int64_t nanoseconds() const noexcept { return at_; } ///< Of the steady clock.

    /// The span from now; for ever for never.
    timeout left() const noexcept {
        if (at_ == INT64_MAX)
            return std::chrono::milliseconds(timeout::forever);
        std::int64_t const left = at_ - now();
        return std::chrono::nanoseconds(left > 0 ? left : 0);
    }

    bool passed() const noexcept { return at_ != INT64_MAX && now() >= at_; }

private:
    static constexpr std::int64_t million = 1'000'000;

    explicit deadline(std::int64_t at) noexcept : at_(at) {}
    static std::int64_t now() noexcept { return std::chrono::steady_clock::now().time_since_epoch().count(); }

    std::int64_t at_; // nanoseconds of the steady clock
};
static_assert(std::chrono::steady_clock::period::den == 1'000'000'000);

/// The span from now to a point on any clock.
template <class Clock, class Duration>
timeout until(std::chrono::time_point<Clock, Duration> at) {
    auto const now = Clock::now();
    return at > now ? timeout(at - now) : timeout(Duration::zero());
}

} // namespace detail

} // namespace rdma::inline RDMACPP_ABI

// ---- detail/wait_room.hpp -------------------------------------------------------------------------------------------
// Waiting for a descriptor of C's, and being woken from it: by a deadline, a stop token, or the end of the channel
// object.

namespace rdma::inline RDMACPP_ABI::detail {

/// What ended a wait.
enum class woken { ready, expired, stopped, closed, failed };

/// The threads that wait on one channel, each with an eventfd of its own: with a shared one, the first thread to read
/// it takes the wake-up of all others. The eventfds are made on the first wait and kept for the next.
class wait_room {
public:
    wait_room() noexcept = default;
    wait_room(wait_room const&) = delete;
    wait_room& operator=(wait_room const&) = delete;
    ~wait_room() {
        while (seat* const s = idle_) {
            idle_ = s->next;
            delete s;
        }
    }

    bool closed() const noexcept { return closed_.load(order::acquire); }

    /// Ends every wait, now and from now on.
    void close() noexcept {
        lock_guard const lock(mutex_);
        closed_.store(true, order::release);
        for (seat* s = taken_; s; s = s->next)
            s->wake();
    }

    /// Waits until `fd` is readable, or for one of the other reasons; `failed` comes with `ec`.
    woken wait(int fd, deadline const& until, any_stop_token const& stop, wait_options options,
               std::error_code& ec) noexcept {
        seat* const mine = take(ec);
        if (!mine)
            return woken::failed;
        woken const why = wait_at(*mine, fd, until, stop, options, ec);
        give_back(mine);
        return why;
    }

private:
    struct seat {
        int const fd = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        seat* next = nullptr;
        detail::atomic<bool> rung{false}; // only then there is something to settle: a system call less on each wait

        seat() noexcept = default;
        seat(seat const&) = delete;
        seat& operator=(seat const&) = delete;
        ~seat() {
            if (fd >= 0)
                ::close(fd);
        }
        void wake() noexcept {
            rung.store(true, order::relaxed);
            std::uint64_t const one = 1;
            [[maybe_unused]] auto const written = ::write(fd, &one, sizeof one); // fails only when it is awake already
        }
        /// Whoever might wake is done, or shut out.
        void settle() noexcept {
            if (!rung.exchange(false, order::relaxed))
                return;
            std::uint64_t count;
            [[maybe_unused]] auto const got = ::read(fd, &count, sizeof count);
        }
    };

    seat* take(std::error_code& ec) noexcept {
        lock_guard const lock(mutex_);
        if (!idle_) {
            idle_ = new (std::nothrow) seat;
            if (!idle_ || idle_->fd < 0) {
                ec = system_error_code(idle_ ? errno : ENOMEM);
                delete idle_;
                idle_ = nullptr;
                return nullptr;
            }
        }
        seat* const s = idle_;
        idle_ = s->next;
        s->next = taken_;
        taken_ = s;
        return s;
    }

    void give_back(seat* mine) noexcept {
        lock_guard const lock(mutex_);
        seat** link = &taken_;
        while (*link != mine)
            link = &(*link)->next;
        *link = mine->next;
        mine->settle(); // under the lock: close() wakes only seats that are taken
        mine->next = idle_;
        idle_ = mine;
    }

    woken wait_at(seat& mine, int fd, deadline const& until, any_stop_token const& stop, wait_options options,
                  std::error_code& ec) noexcept {
        stop_watch const on_stop(stop,
                                 stop_action{[](void* seated) noexcept { static_cast<seat*>(seated)->wake(); }, &mine});
        for (;;) {
            if (stop.stop_requested())
                return woken::stopped;
            if (closed())
                return woken::closed;
            pollfd watched[] = {{fd, POLLIN, 0}, {mine.fd, POLLIN, 0}};
            int const ready = ::poll(watched, 2, until.for_poll());
            if (ready < 0 && errno == EINTR) {
                if (!options.interruptible)
                    continue;
                ec = system_error_code(EINTR);
                return woken::failed;
            }
            if (ready < 0) {
                ec = system_error_code(errno);
                return woken::failed;
            }
            if (watched[0].revents != 0)
                return woken::ready; // POLLNVAL, POLLERR and POLLHUP too: C says what is wrong
            if (ready == 0 && until.passed())
                return woken::expired;
        }
    }

    detail::mutex mutex_;
    seat* idle_ = nullptr;
    seat* taken_ = nullptr;
    detail::atomic<bool> closed_{false};
};

/// One get of C's, from a descriptor that does not block. @return whether it gave something, or failed with `ec`;
/// false: there is nothing now
template <class Get>
bool gave(Get get, wait_options options, std::error_code& ec) noexcept {
    while (get() != 0) {
        int const reason = errno;
        if (reason == EINTR && !options.interruptible)
            continue;
        if (reason == EAGAIN || reason == EWOULDBLOCK)
            return false;
        ec = system_error_code(reason);
        return true;
    }
    return true;
}

/// The one loop behind every get: try, then wait, then try again. `attempt` returns true when it got something or
/// failed.
template <class Attempt>
woken get_or_wait(wait_room& room, int fd, deadline const& until, any_stop_token const& stop, wait_options options,
                  std::error_code& ec, Attempt&& attempt) noexcept {
    for (;;) {
        if (stop.stop_requested())
            return woken::stopped;
        if (room.closed())
            return woken::closed;
        if (attempt())
            return ec ? woken::failed : woken::ready;
        // A readable descriptor promises nothing (C swallows some events, another thread may be faster): hence the
        // loop.
        if (woken const why = room.wait(fd, until, stop, options, ec); why != woken::ready)
            return why;
    }
}

} // namespace rdma::inline RDMACPP_ABI::detail

// ---- detail/verbs_node.hpp ------------------------------------------------------------------------------------------
// What stands behind each verbs object: who needs it, what it needs, and how it ends.

namespace rdma::inline RDMACPP_ABI::detail {

/// One PD, completion channel, CQ or QP. Pinned by its owner, by what was made from it and by the events that name it,
/// it is destroyed with the last pin, and then lets go of what it needed: so handles may be dropped in any order, and
/// the C library, which answers EBUSY to a wrong one and waits in ibv_destroy_cq and ibv_destroy_qp for every ack,
/// never sees one.
struct verbs_node : pinnable {
    using destroy_function = int (*)(void*) noexcept;

    /// Starts life: one pin, its owner's; what it `uses` is kept alive until this is destroyed.
    void open(void* object, std::initializer_list<pinnable*> uses) noexcept;

    void const* key() const noexcept { return raw; }

    /// Whether it is an object that this C function destroys; by name, since each shared object has functions of its
    /// own.
    bool is_a(char const* destroyed_by) const noexcept { return std::strcmp(destroy_name, destroyed_by) == 0; }

    /// The object is C's now. No lock and no C call: what it needs is let go, but for what nobody else keeps alive.
    void surrender() noexcept {
        if (inherited())
            return;
        surrendered.store(true, order::release);
        for (pinnable*& needed : needs)
            let_go_unless_last(needed);
        for (std::size_t i = 0; i != more_count; ++i)
            let_go_unless_last(more_needs[i]);
    }

    /// C gave it back, or (`alive` false) destroyed it. False: its address was used again meanwhile, see disown().
    bool take_back(bool alive) noexcept;

    /// Keeps alive again what C says it uses, as far as that is ours, and the id whose it is, if any.
    void need_again(std::initializer_list<void const*> used, pinnable* id = nullptr) noexcept;

    /// Keeps something else alive in place of what it needed there.
    void need_instead(std::size_t place, pinnable* needed) noexcept;

    /// destroy() asked for by name: refused while anything else pins this; on failure all stays as it was.
    std::error_code destroy_now() noexcept;

    bool uses(pinnable const& other) const noexcept {
        for (pinnable const* const needed : needs)
            if (needed == &other)
                return true;
        for (std::size_t i = 0; i != more_count; ++i)
            if (more_needs[i] == &other)
                return true;
        return false;
    }

    /// Tells C of all that is done.
    void settle_all() noexcept {
        if (unsettled.load(order::acquire) != 0) // only ever of a CQ
            settle(static_cast<ibv_cq*>(raw));
    }

    /// Another object has its address: C destroyed this one, or it was leaked and its memory is C's.
    void disown() noexcept {
        if (leaked) {
            pins.store(1, order::relaxed);
            surrendered.store(true, order::release);
        }
        unpin(this);
    }

    /// Counts `events` completion events as done; C is told in batches, since its ack takes a mutex.
    void settle_later(ibv_cq* cq, std::uint32_t events) noexcept {
        if (unsettled.fetch_add(events, order::acq_rel) + events >= batch.load(order::relaxed))
            settle(cq);
    }

    static constexpr std::size_t most_needs = 7; // a QP's PD, two CQs, SRQ, XRC domain, indirection table and id

    destroy_function const destroy;
    char const* const destroy_name;
    void* raw = nullptr;
    verbs_node* next = nullptr; // in the table
    pinnable* needs[most_needs] = {};
    pinnable** more_needs = nullptr; // of an indirection table, which needs as many queues as the program likes
    std::size_t more_count = 0;
    detail::atomic<std::uint32_t> unsettled{0}; // completion events, got and done with, of which C does not know yet
    detail::atomic<std::uint32_t> batch{32};    // so many at once
    detail::atomic<bool> surrendered{false};    // released to C: whoever adopts it has it
    bool listed = false;                        // in the table; under its mutex
    bool leaked = false;                        // its destroy failed: it stays listed, so that late events are known

protected:
    verbs_node(last_unpin on_last, destroy_function destroy_it, char const* destroy_call) noexcept
        : pinnable(on_last), destroy(destroy_it), destroy_name(destroy_call) {}

    /// The last pin is gone.
    template <class Node>
    static void last(pinnable& self) noexcept {
        if (auto& node = static_cast<Node&>(self); node.ended())
            delete &node;
    }

private:
    void settle(ibv_cq* cq) noexcept {
        if (std::uint32_t const n = unsettled.exchange(0, order::acq_rel))
            ::ibv_ack_cq_events(cq, n);
    }
    static void let_go_unless_last(pinnable*& needed) noexcept {
        if (needed && unref_unless_last(needed->pins))
            needed = nullptr;
    }
    /// Leaves the table, if it was destroyed, and lets go of what it needed.
    void leave(bool destroyed) noexcept;
    bool ended() noexcept;
};

struct imported_t {};

/// The node of one type of object. `Node` says how C makes it and how it ends: `made_by`, `ended_by`, `end`; and, if
/// there is more to it than ending, what C remembers of its making: `recall`.
template <class Node, class Raw>
struct node_of : verbs_node {
    using raw_type = Raw;
    static constexpr char const* unimported_by = ""; // of those that can be imported, what ends that

    node_of() noexcept
        : verbs_node(
              &verbs_node::last<Node>, [](void* object) noexcept { return Node::end(static_cast<Raw*>(object)); },
              Node::ended_by) {}
    /// Of an object of another process: it is not destroyed, but forgotten.
    explicit node_of(imported_t) noexcept
        : verbs_node(
              &verbs_node::last<Node>,
              [](void* object) noexcept {
                  Node::unimport(static_cast<Raw*>(object));
                  return 0;
              },
              Node::unimported_by) {}

    /// Keeps alive again what an object that C gave back was made from.
    void recall() noexcept {}

    Raw* object() const noexcept { return static_cast<Raw*>(raw); }
};

/// A completion channel, with the threads that wait on it.
struct comp_channel_node : node_of<comp_channel_node, ibv_comp_channel> {
    static constexpr char const* made_by = "ibv_create_comp_channel";
    static constexpr char const* ended_by = "ibv_destroy_comp_channel";
    static int end(ibv_comp_channel* channel) noexcept { return ::ibv_destroy_comp_channel(channel); }

    /// What a range over its events keeps alive.
    void ref() noexcept { pin(this); }
    void unref() noexcept { unpin(this); }

    /// Makes its descriptor non-blocking, once, before the first get: most channels that librdmacm makes see none.
    void never_block() noexcept {
        if (!nonblocking.exchange(true, order::relaxed))
            ::fcntl(object()->fd, F_SETFL, ::fcntl(object()->fd, F_GETFL) | O_NONBLOCK);
    }

    wait_room room;
    detail::atomic<bool> nonblocking{false};
};

/// A completion queue, with the channel it notifies.
struct cq_node : node_of<cq_node, ibv_cq> {
    static constexpr char const* made_by = "ibv_create_cq";
    static constexpr char const* ended_by = "ibv_destroy_cq";
    static int end(ibv_cq* cq) noexcept { return ::ibv_destroy_cq(cq); }
    void recall() noexcept {
        need_again({object()->channel});
        channel = static_cast<comp_channel_node*>(needs[0]);
    }

    comp_channel_node* channel = nullptr;  // one of its needs, or null
    detail::atomic<bool> event_due{false}; // armed by a wait that then did not need the event
};

struct qp_node : node_of<qp_node, ibv_qp> {
    static constexpr char const* made_by = "ibv_create_qp";
    static constexpr char const* ended_by = "ibv_destroy_qp";
    static int end(ibv_qp* qp) noexcept { return ::ibv_destroy_qp(qp); }
    void recall() noexcept { need_again({object()->pd, object()->send_cq, object()->recv_cq, object()->srq}); }

    ibv_qp_cap granted{};
    bool maybe_ex = true; // made with send_ops_flags, or not by us: of others some drivers answer with rubbish
};

struct srq_node : node_of<srq_node, ibv_srq> {
    static constexpr char const* made_by = "ibv_create_srq";
    static constexpr char const* ended_by = "ibv_destroy_srq";
    static int end(ibv_srq* srq) noexcept { return ::ibv_destroy_srq(srq); }
    void recall() noexcept { need_again({object()->pd}); }

    ibv_srq_attr granted{};
};

/// Every verbs object that rdmacpp knows, by address: an event names its object by nothing else. One per process, and
/// never destroyed, since events may be kept in static objects.
struct RDMACPP_EXPORT verbs_table {
    detail::mutex mutex;
    address_map<verbs_node> nodes;

    static verbs_table& get() noexcept {
        alignas(verbs_table) static unsigned char memory[sizeof(verbs_table)];
        static verbs_table* const table = new (memory) verbs_table;
        return *table;
    }

    /// A node at a used address replaces what stood there: C hands the addresses of dead objects out again at once.
    void insert(verbs_node* node) noexcept {
        verbs_node* nobodys;
        {
            lock_guard const lock(mutex);
            nobodys = replace(node);
        }
        if (nobodys)
            nobodys->disown();
    }

    /// The node of an object that this C function destroys, if it is alive; not pinned.
    verbs_node* find_a(void const* object, char const* destroyed_by) noexcept {
        lock_guard const lock(mutex);
        return alive(object, destroyed_by);
    }

    /// Puts a node where there is none of its kind yet. @return the one that is there now
    verbs_node* insert_unless_there(verbs_node* node) noexcept {
        verbs_node* nobodys;
        {
            lock_guard const lock(mutex);
            if (verbs_node* const there = alive(node->raw, node->destroy_name))
                return there;
            nobodys = replace(node);
        }
        if (nobodys)
            nobodys->disown();
        return node;
    }

    /// What was released to C, with the owner's pin that it still has.
    verbs_node* take_back(void const* object, std::error_code& ec, char const* ended_by,
                          char const* unimported_by) noexcept {
        lock_guard const lock(mutex);
        verbs_node* const node = nodes.find(object);
        // One of another kind was released to C and destroyed there.
        if (!node || !(node->is_a(ended_by) || node->is_a(unimported_by)) || node->pins.load(order::relaxed) == 0)
            return nullptr;
        if (!node->surrendered.exchange(false, order::acq_rel)) {
            ec = errc::already_owned;
            return nullptr;
        }
        return node;
    }

    /// How many others are made with it.
    std::uint32_t users_of(verbs_node const& node) noexcept {
        lock_guard const lock(mutex);
        std::uint32_t count = 0;
        nodes.for_each([&](verbs_node const* each) { count += each->uses(node) ? 1U : 0U; });
        return count;
    }

    /// Under the mutex.
    verbs_node* alive(void const* object, char const* destroyed_by) noexcept {
        verbs_node* const node = nodes.find(object);
        return node && node->is_a(destroyed_by) && node->pins.load(order::relaxed) != 0 ? node : nullptr;
    }

    /// Under the mutex. @return what stood there and is nobody's, to be disowned afterwards
    verbs_node* replace(verbs_node* node) noexcept {
        verbs_node* nobodys = nullptr;
        if (verbs_node* const old = nodes.find(node->raw)) {
            nodes.erase(old);
            old->listed = false; // from here on its destroyer, if there is one, may delete it
            if (old->leaked || old->surrendered.load(order::acquire))
                nobodys = old;
        }
        nodes.insert(node);
        node->listed = true;
        return nobodys;
    }

    enum class found { pinned, dying, unknown };

    /// Finds what an event names and pins it. `dying`: its destroy is under way, and waits for this very event's ack.
    found find_and_pin(void const* object, verbs_node*& node) noexcept {
        lock_guard const lock(mutex);
        node = nodes.find(object);
        if (!node)
            return found::unknown;
        std::uint32_t pins = node->pins.load(order::relaxed);
        while (pins != 0 && !node->pins.compare_exchange(pins, pins + 1, order::relaxed)) {
        }
        return pins != 0 ? found::pinned : found::dying;
    }
};

inline void verbs_node::open(void* object, std::initializer_list<pinnable*> uses) noexcept {
    raw = object;
    pinnable** place = needs;
    for (pinnable* const used : uses)
        pin(*place++ = used);
    pins.store(1, order::relaxed);
    verbs_table::get().insert(this);
}

inline bool verbs_node::take_back(bool alive) noexcept {
    lock_guard const lock(verbs_table::get().mutex);
    if (listed && alive)
        surrendered.store(false, order::release);
    return listed;
}

inline void verbs_node::need_again(std::initializer_list<void const*> used, pinnable* id) noexcept {
    pinnable** place = needs;
    for (void const* const object : used) {
        verbs_node* known = nullptr;
        if (!*place && verbs_table::get().find_and_pin(object, known) == verbs_table::found::pinned)
            *place = known;
        ++place;
    }
    for (pinnable const* const needed : needs)
        if (needed == id)
            return;
    pin(needs[most_needs - 1] = id); // of an id's own objects alone, which leave that place free for it
}

inline void verbs_node::need_instead(std::size_t place, pinnable* needed) noexcept {
    pin(needed);
    {
        lock_guard const lock(verbs_table::get().mutex);
        swap_values(needs[place], needed);
    }
    unpin(needed);
}

inline void verbs_node::leave(bool destroyed) noexcept {
    pinnable* was[most_needs];
    std::size_t more;
    {
        verbs_table& table = verbs_table::get();
        lock_guard const lock(table.mutex);
        if (destroyed && listed)
            table.nodes.erase(this); // unless its address has a new tenant already
        for (std::size_t i = 0; i != most_needs; ++i)
            was[i] = take(needs[i]);
        more = take(more_count);
    }
    for (pinnable* const needed : was)
        unpin(needed);
    for (std::size_t i = 0; i != more; ++i)
        unpin(more_needs[i]);
}

/// The last pin is gone. False: the object is leaked, and this must stay, so that late events are known.
inline bool verbs_node::ended() noexcept {
    bool const ours = !surrendered.load(order::acquire);
    if (ours)
        settle_all();
    std::error_code const failure = ours ? check_returned(destroy(raw)) : std::error_code();
    if (failure)
        report({diagnostic_kind::destroy_failed, destroy_name, raw, failure});
    leave(!failure);
    if (!failure)
        return true;
    lock_guard const lock(verbs_table::get().mutex);
    leaked = listed;
    return !leaked;
}

inline std::error_code verbs_node::destroy_now() noexcept {
    std::uint32_t only = 1;
    if (!pins.compare_exchange(only, 0, order::acq_rel))
        return system_error_code(EBUSY);
    settle_all();
    if (std::error_code const failure = check_returned(destroy(raw))) {
        pins.store(1, order::release);
        return failure;
    }
    leave(true);
    return {};
}

} // namespace rdma::inline RDMACPP_ABI::detail

// ---- verbs_owner.hpp ------------------------------------------------------------------------------------------------
// What the owners of verbs objects have in common, and what the views of them have.

namespace rdma::inline RDMACPP_ABI {

namespace detail {
struct refs;
}

/// A borrowed verbs object: of an owner, of an id, or of C. A trivially copyable value; it destroys nothing and cannot
/// turn into an owner.
///
/// Taken from an owner or an id, it knows what keeps the object alive, so that what is made with it does so, too.
template <class Ref, class Raw, class Keeper = detail::pinnable>
class verbs_ref {
public:
    /// Empty.
    verbs_ref() noexcept = default;
    /// Borrows an object of C's, which must outlive what is made with it.
    verbs_ref(Raw* raw) noexcept : raw_(raw) {} // NOLINT: a reference to it is no more than the pointer

    /// The C object; null when empty.
    Raw* native_handle() const noexcept { return raw_; }
    explicit operator bool() const noexcept { return raw_ != nullptr; }

    /// Whether both are the same object.
    friend bool operator==(Ref a, Ref b) noexcept { return a.raw_ == b.raw_; }

protected:
    verbs_ref(Raw* raw, Keeper* keeper) noexcept : raw_(raw), keeper_(keeper) {}

    Raw* raw_ = nullptr;
    Keeper* keeper_ = nullptr;

private:
    friend struct detail::refs;
};

namespace detail {

/// Makes views that know what keeps their object alive, and tells it of a view.
struct refs {
    template <class Ref, class Raw, class Keeper>
    static Ref make(Raw* raw, Keeper* keeper) noexcept {
        return Ref(raw, keeper);
    }
    template <class Ref>
    static auto* keeper(Ref const& ref) noexcept {
        return ref.keeper_;
    }
};

/// What to pin for an object that is made with this one.
template <class Ref>
auto* keeper(Ref const& ref) noexcept {
    return refs::keeper(ref);
}

/// Hashes a view, by its object.
template <class Ref>
struct ref_hash {
    std::size_t operator()(Ref ref) const noexcept { return std::hash<void const*>()(ref.native_handle()); }
};

} // namespace detail

/// The owner of a verbs object: move-only, empty when default-constructed, moved from, released or destroyed.
///
/// Dropped, the object is destroyed at once, or, while something made from it or an event of it is alive, together with
/// the last of these: so owners may be dropped in any order. A destroy that fails then is told to the diagnostic
/// handler.
template <class Node, class Ref>
class verbs_owner {
public:
    /// The C type.
    using raw_type = typename Node::raw_type;

#if RDMACPP_EXCEPTIONS
    /// Takes over an object that C made, or that release() gave back; what it was made from is kept alive, as far as C
    /// tells and it is ours.
    /// @throws rdma::error errc::null_handle, errc::already_owned
    verbs_owner(adopt_t, raw_type* raw) {
        std::error_code ec;
        take_over(raw, ec);
        if (ec)
            detail::throw_error(ec, Node::made_by, {"adopt"});
    }
#endif
    /// The twin of the adopting constructor: empty on failure.
    verbs_owner(adopt_t, raw_type* raw, std::error_code& ec) noexcept { take_over(raw, ec); }

    /// The C object, still owned by this.
    raw_type* native_handle() const noexcept { return raw_; }
    explicit operator bool() const noexcept { return raw_ != nullptr; }

    /// A view of it; a temporary gives none, since it would dangle.
    operator Ref() const& noexcept { return detail::refs::make<Ref>(raw_, node_); }
    operator Ref() const&& = delete;

    /// Gives the C object back; takes no lock and makes no C call. What it needs is no longer kept for it.
    [[nodiscard]] raw_type* release() noexcept {
        if (node_)
            detail::take(node_)->surrender();
        return detail::take(raw_);
    }

    /// Destroys the object now. Refused with std::errc::device_or_resource_busy, and nothing changed, while something
    /// made from it, or an event of it, is alive; an error of C's leaves it as it was, too. Nothing happens when empty.
    void destroy(std::error_code& ec) noexcept {
        ec.clear();
        if (!node_ || (ec = node_->destroy_now()))
            return;
        delete detail::take(node_);
        raw_ = nullptr;
    }

#if RDMACPP_EXCEPTIONS
    /// The throwing form of destroy(std::error_code&). @throws rdma::error
    void destroy() {
        std::error_code ec;
        destroy(ec);
        if (ec)
            detail::throw_error(ec, node_->destroy_name);
    }
#endif

    void swap(verbs_owner& other) noexcept {
        detail::swap_values(raw_, other.raw_);
        detail::swap_values(node_, other.node_);
    }
    friend void swap(verbs_owner& a, verbs_owner& b) noexcept { a.swap(b); }

protected:
    verbs_owner() noexcept = default;
    verbs_owner(verbs_owner&& other) noexcept : raw_(detail::take(other.raw_)), node_(detail::take(other.node_)) {}
    /// Destroys the object held before, at once.
    verbs_owner& operator=(verbs_owner&& other) noexcept {
        verbs_owner(std::move(other)).swap(*this);
        return *this;
    }
    ~verbs_owner() { detail::unpin(node_); }

    /// The node for what C is about to make: made first, so that nothing can fail afterwards. Null, with `ec`, without
    /// memory, or without what it is to be made from.
    template <class... Kind>
    static Node* fresh_node(bool has_base, std::error_code& ec, Kind... kind) noexcept {
        if (!has_base) {
            ec = errc::not_bound;
            return nullptr;
        }
        auto* const node = new (std::nothrow) Node(kind...);
        ec = node ? std::error_code() : detail::system_error_code(ENOMEM);
        errno = 0; // some providers fail without saying why: not with a reason left over from another call
        return node;
    }

    /// Takes what C made, or, if that is null, why not.
    void own(raw_type* object, Node* node, std::initializer_list<detail::pinnable*> uses,
             std::error_code& ec) noexcept {
        ec = detail::check_pointer(object);
        if (ec) {
            delete node;
            return;
        }
        node->open(object, uses);
        raw_ = object;
        node_ = node;
    }

    raw_type* raw_ = nullptr;
    Node* node_ = nullptr;

private:
    void take_over(raw_type* object, std::error_code& ec) noexcept {
        ec.clear();
        if (!object) {
            ec = errc::null_handle;
            return;
        }
        node_ =
            static_cast<Node*>(detail::verbs_table::get().take_back(object, ec, Node::ended_by, Node::unimported_by));
        if (node_)
            raw_ = object;
        else if (Node* const node = ec ? nullptr : fresh_node(true, ec))
            own(object, node, {}, ec);
        if (node_)
            node_->recall();
    }
};

} // namespace rdma::inline RDMACPP_ABI

// ---- device.hpp -----------------------------------------------------------------------------------------------------
// The RDMA devices of this machine, opened or not.

namespace rdma::inline RDMACPP_ABI {

/// The transports that differ in what a program must do (ibv_transport_type).
enum class transport_type {
    unknown = IBV_TRANSPORT_UNKNOWN,
    ib = IBV_TRANSPORT_IB, ///< InfiniBand, and RoCE.
    iwarp = IBV_TRANSPORT_IWARP,
    usnic = IBV_TRANSPORT_USNIC,
    usnic_udp = IBV_TRANSPORT_USNIC_UDP,
    unspecified = IBV_TRANSPORT_UNSPECIFIED,
};

/// What kind of device it is (ibv_node_type).
enum class node_type {
    unknown = IBV_NODE_UNKNOWN,
    ca = IBV_NODE_CA,
    switch_ = IBV_NODE_SWITCH,
    router = IBV_NODE_ROUTER,
    rnic = IBV_NODE_RNIC, ///< iWARP
    usnic = IBV_NODE_USNIC,
    usnic_udp = IBV_NODE_USNIC_UDP,
    unspecified = IBV_NODE_UNSPECIFIED,
};

/// The name of a node type, as libibverbs gives it.
inline std::string to_string(node_type type) { return ::ibv_node_type_str(static_cast<ibv_node_type>(type)); }

/// A device that is there; rdma::context opens it. Valid as long as the list that it is from, or the context.
class device_ref : public verbs_ref<device_ref, ibv_device> {
public:
    using verbs_ref::verbs_ref;

    /// Its name, such as "rxe0" (ibv_get_device_name).
    std::string_view name() const noexcept { return raw_ ? ::ibv_get_device_name(raw_) : std::string_view(); }
    /// Its number, which the kernel gives, and does not use again (ibv_get_device_index); -1 if unknown.
    int index() const noexcept { return raw_ ? ::ibv_get_device_index(raw_) : -1; }
    /// Its GUID in network byte order (ibv_get_device_guid).
    std::uint64_t guid() const noexcept { return raw_ ? ::ibv_get_device_guid(raw_) : 0; }
    /// What kind of device it is.
    ::rdma::node_type node_type() const noexcept {
        return raw_ ? static_cast<::rdma::node_type>(raw_->node_type) : ::rdma::node_type::unknown;
    }
    /// The transport: on iwarp the connecting side must send first, and the sink of an RDMA read needs remote write
    /// access.
    ::rdma::transport_type transport() const noexcept {
        return raw_ ? static_cast<::rdma::transport_type>(raw_->transport_type) : ::rdma::transport_type::unknown;
    }
};

/// An owned list of the devices of this machine (ibv_get_device_list). rdma::devices lists those that librdmacm has
/// opened.
class [[nodiscard]] device_list : public verbs_list<device_list, device_ref, ibv_device> {
public:
    /// Empty.
    device_list() noexcept = default;

#if RDMACPP_EXCEPTIONS
    /// Asks for the devices; there may be none. @throws rdma::error the errno of ibv_get_device_list: ENOSYS if the
    /// kernel has no RDMA
    static device_list get() {
        std::error_code ec;
        device_list all = get(ec);
        if (ec)
            detail::throw_error(ec, "ibv_get_device_list");
        return all;
    }
#endif
    /// The twin of get(): empty on failure.
    static device_list get(std::error_code& ec) noexcept {
        int count = 0;
        ibv_device** const all = ::ibv_get_device_list(&count);
        ec = detail::check_pointer(all);
        return device_list(all, count);
    }

    /// The device of that name; empty if there is none.
    device_ref find(std::string_view name) const noexcept {
        for (device_ref const device : *this)
            if (device.name() == name)
                return device;
        return {};
    }

    explicit operator bool() const noexcept { return native_handle() != nullptr; }

private:
    friend class verbs_list<device_list, device_ref, ibv_device>;
    using verbs_list::verbs_list;
    /// Contexts that were opened from it stay (ibv_free_device_list).
    static void free(ibv_device** all) noexcept { ::ibv_free_device_list(all); }
};

static_assert(std::is_trivially_copyable_v<device_ref>);
static_assert(detail::move_only<device_list>);

} // namespace rdma::inline RDMACPP_ABI

template <>
struct std::hash<::rdma::device_ref> : ::rdma::RDMACPP_ABI::detail::ref_hash<::rdma::device_ref> {};

// ---- context.hpp ----------------------------------------------------------------------------------------------------
// Opened devices. That of an id belongs to librdmacm and is only ever borrowed; a program can also open one itself.

namespace rdma::inline RDMACPP_ABI {

class async_channel;

namespace detail {

/// An opened device, with the threads that wait for its asynchronous events.
struct context_node : node_of<context_node, ibv_context> {
    static constexpr char const* made_by = "ibv_open_device";
    static constexpr char const* ended_by = "ibv_close_device";
    static int end(ibv_context* context) noexcept { return ::ibv_close_device(context) == 0 ? 0 : errno; }

    /// What a range over its events keeps alive.
    void ref() noexcept { pin(this); }
    void unref() noexcept { unpin(this); }

    wait_room room;
};

} // namespace detail

/// What an owned context and a view of one have in common: the questions to a device. The answers are values, as C has
/// them; each is asked of the device or its driver, and may take a system call.
template <class Handle>
class device_queries {
public:
    /// The device.
    device_ref device() const noexcept { return raw() ? device_ref(raw()->device) : device_ref(); }
    /// The device's name, such as "rxe0"; empty when there is none.
    std::string_view device_name() const noexcept { return device().name(); }
    /// The transport: on iwarp the connecting side must send first, and the sink of an RDMA read needs remote write
    /// access.
    transport_type transport() const noexcept { return device().transport(); }

    /// What the device has and can do (ibv_query_device).
    ibv_device_attr query_device(std::error_code& ec) const noexcept {
        ibv_device_attr attr{};
        ask(ec, [&](ibv_context* c) noexcept { return ::ibv_query_device(c, &attr); });
        return attr;
    }
    /// The same and what came later: on-demand paging, timestamps, packet pacing... (ibv_query_device_ex).
    ibv_device_attr_ex query_device_ex(std::error_code& ec) const noexcept {
        ibv_device_attr_ex attr{};
        ask(ec, [&](ibv_context* c) noexcept { return ::ibv_query_device_ex(c, nullptr, &attr); });
        return attr;
    }
    /// The state of a port, from 1 (ibv_query_port).
    ibv_port_attr query_port(std::uint8_t port, std::error_code& ec) const noexcept {
        ibv_port_attr attr{};
        ask(ec, [&](ibv_context* c) noexcept { return ::ibv_query_port(c, port, &attr); });
        return attr;
    }
    /// An address of a port (ibv_query_gid).
    ibv_gid query_gid(std::uint8_t port, int index, std::error_code& ec) const noexcept {
        ibv_gid gid{};
        ask(ec, [&](ibv_context* c) noexcept { return ::ibv_query_gid(c, port, index, &gid) == 0 ? 0 : errno; });
        return gid;
    }
    /// An address of a port, its type and its network interface (ibv_query_gid_ex). ENODATA: that index is not in use.
    ibv_gid_entry query_gid_ex(std::uint32_t port, std::uint32_t index, std::error_code& ec) const noexcept {
        ibv_gid_entry entry{};
        ask(ec, [&](ibv_context* c) noexcept { return ::ibv_query_gid_ex(c, port, index, &entry, 0); });
        return entry;
    }
    /// All addresses of the device that are in use (ibv_query_gid_table). @return the part of `into` that was filled
    std::span<ibv_gid_entry> query_gid_table(std::span<ibv_gid_entry> into, std::error_code& ec) const noexcept {
        std::size_t filled = 0;
        ask(ec, [&](ibv_context* c) noexcept {
            auto const n = ::ibv_query_gid_table(c, into.data(), into.size(), 0);
            filled = n > 0 ? static_cast<std::size_t>(n) : 0;
            return n < 0 ? static_cast<int>(-n) : 0;
        });
        return into.first(filled);
    }
    /// A partition key of a port, in network byte order (ibv_query_pkey).
    std::uint16_t query_pkey(std::uint8_t port, int index, std::error_code& ec) const noexcept {
        std::uint16_t pkey = 0;
        ask(ec, [&](ibv_context* c) noexcept { return ::ibv_query_pkey(c, port, index, &pkey) == 0 ? 0 : errno; });
        return pkey;
    }
    /// Where a partition key, in network byte order, stands in a port's table (ibv_get_pkey_index).
    int get_pkey_index(std::uint8_t port, std::uint16_t pkey, std::error_code& ec) const noexcept {
        int index = -1;
        ask(ec, [&](ibv_context* c) noexcept {
            index = ::ibv_get_pkey_index(c, port, pkey);
            return index < 0 ? errno : 0;
        });
        return index;
    }
    /// The device's clock, in its own units (ibv_query_rt_values_ex): device_attr_ex::hca_core_clock kHz.
    std::uint64_t query_raw_clock(std::error_code& ec) const noexcept {
        ibv_values_ex values{};
        values.comp_mask = IBV_VALUES_MASK_RAW_CLOCK;
        ask(ec, [&](ibv_context* c) noexcept { return ::ibv_query_rt_values_ex(c, &values); });
        return static_cast<std::uint64_t>(values.raw_clock.tv_sec) * 1'000'000'000 +
               static_cast<std::uint64_t>(values.raw_clock.tv_nsec);
    }

#if RDMACPP_EXCEPTIONS
    /// The throwing forms. @throws rdma::error the errno of the call; errc::empty_handle
    ibv_device_attr query_device() const {
        std::error_code ec;
        ibv_device_attr const attr = query_device(ec);
        checked(ec, "ibv_query_device");
        return attr;
    }
    ibv_device_attr_ex query_device_ex() const {
        std::error_code ec;
        ibv_device_attr_ex const attr = query_device_ex(ec);
        checked(ec, "ibv_query_device_ex");
        return attr;
    }
    ibv_port_attr query_port(std::uint8_t port) const {
        std::error_code ec;
        ibv_port_attr const attr = query_port(port, ec);
        checked(ec, "ibv_query_port");
        return attr;
    }
    ibv_gid query_gid(std::uint8_t port, int index) const {
        std::error_code ec;
        ibv_gid const gid = query_gid(port, index, ec);
        checked(ec, "ibv_query_gid");
        return gid;
    }
    ibv_gid_entry query_gid_ex(std::uint32_t port, std::uint32_t index) const {
        std::error_code ec;
        ibv_gid_entry const entry = query_gid_ex(port, index, ec);
        checked(ec, "ibv_query_gid_ex");
        return entry;
    }
    std::span<ibv_gid_entry> query_gid_table(std::span<ibv_gid_entry> into) const {
        std::error_code ec;
        auto const filled = query_gid_table(into, ec);
        checked(ec, "ibv_query_gid_table");
        return filled;
    }
    std::uint16_t query_pkey(std::uint8_t port, int index) const {
        std::error_code ec;
        std::uint16_t const pkey = query_pkey(port, index, ec);
        checked(ec, "ibv_query_pkey");
        return pkey;
    }
    int get_pkey_index(std::uint8_t port, std::uint16_t pkey) const {
        std::error_code ec;
        int const index = get_pkey_index(port, pkey, ec);
        checked(ec, "ibv_get_pkey_index");
        return index;
    }
    std::uint64_t query_raw_clock() const {
        std::error_code ec;
        std::uint64_t const now = query_raw_clock(ec);
        checked(ec, "ibv_query_rt_values_ex");
        return now;
    }
#endif

private:
    ibv_context* raw() const noexcept { return static_cast<Handle const*>(this)->native_handle(); }

    /// Asks, and keeps the errno that C gave for an answer.
    template <class Question>
    void ask(std::error_code& ec, Question question) const noexcept {
        ec = raw() ? detail::check_returned(question(raw())) : std::error_code(errc::empty_handle);
    }

#if RDMACPP_EXCEPTIONS
    void checked(std::error_code ec, char const* function) const {
        if (ec)
            detail::throw_error(ec, function, {device_name()});
    }
#endif
};

/// A borrowed ibv_context: of a context, or of an id, whose librdmacm's is. It closes nothing, and cannot turn into an
/// owner.
///
/// Taken from an id (cm_id::verbs), it remembers the id: what is made from it keeps the id's C object alive, which must
/// outlast its device's objects. It is empty for an id without a device: a wildcard listener, or an address not
/// resolved yet.
class context_ref : public verbs_ref<context_ref, ibv_context>, public device_queries<context_ref> {
public:
    using verbs_ref::verbs_ref;

    /// The asynchronous events of the device (in async_channel.hpp).
    ::rdma::async_channel async_channel() const noexcept;
};

/// An owned context: a device that this program opened (ibv_open_device). What is made on it keeps it open.
class [[nodiscard]] context : public verbs_owner<detail::context_node, context_ref>, public device_queries<context> {
public:
    using verbs_owner::verbs_owner;
    /// Empty.
    context() noexcept = default;
    context(context&&) noexcept = default;
    /// Closes the device held before, or leaves it to what was made on it.
    context& operator=(context&& other) noexcept {
        context(std::move(other)).swap(*this);
        return *this;
    }
    /// Ends all waits for its events; the device is closed with the last thing made on it.
    ~context() {
        if (node_ && !node_->inherited())
            node_->room.close();
    }

#if RDMACPP_EXCEPTIONS
    /// Opens a device; its list may go afterwards. @throws rdma::error errc::not_bound for an empty one; the errno of
    /// ibv_open_device
    explicit context(device_ref device) {
        std::error_code ec;
        *this = context(device, ec);
        if (ec)
            detail::throw_error(ec, "ibv_open_device", {device.name()});
    }
    /// Opens the device that another process shares by a descriptor of its context (ibv_import_device): `cmd_fd`, which
    /// is the caller's to keep open and close. @throws rdma::error the errno of ibv_import_device
    static context import_device(int cmd_fd) {
        std::error_code ec;
        context imported = import_device(cmd_fd, ec);
        if (ec)
            detail::throw_error(ec, "ibv_import_device");
        return imported;
    }
#endif
    /// The twin of the opening constructor: empty on failure.
    context(device_ref device, std::error_code& ec) noexcept {
        if (auto* const node = fresh_node(static_cast<bool>(device), ec))
            own(::ibv_open_device(device.native_handle()), node, {}, ec);
    }
    /// The twin of import_device: empty on failure.
    static context import_device(int cmd_fd, std::error_code& ec) noexcept {
        context imported;
        if (auto* const node = fresh_node(true, ec))
            imported.own(::ibv_import_device(cmd_fd), node, {}, ec);
        return imported;
    }

    /// The asynchronous events of the device (in async_channel.hpp).
    ::rdma::async_channel async_channel() const& noexcept;
    ::rdma::async_channel async_channel() const&& = delete;
};

static_assert(std::is_trivially_copyable_v<context_ref> && sizeof(context_ref) == 2 * sizeof(void*));
static_assert(detail::move_only<context>);
static_assert(!detail::makes<context, context_ref> && !detail::makes<context, ibv_context*>);

} // namespace rdma::inline RDMACPP_ABI

template <>
struct std::hash<::rdma::context_ref> : ::rdma::RDMACPP_ABI::detail::ref_hash<::rdma::context_ref> {};

// ---- stats.hpp ------------------------------------------------------------------------------------------------------
// The counters of an event channel: what went through it, and what is put off.

namespace rdma::inline RDMACPP_ABI {

/// What event_channel::stats() returns. All events that were got are acked once nothing is held.
struct channel_stats {
    std::uint64_t events_got = 0;        ///< Events that C gave, delivered or swallowed.
    std::uint64_t events_acked = 0;      ///< Events acked.
    std::uint64_t events_swallowed = 0;  ///< Of these: for an id already dropped, never delivered.
    std::uint64_t requests_rejected = 0; ///< CONNECT_REQUESTs rejected because nobody took them.
    std::uint64_t events_held = 0;       ///< Events now held: by the program, or released to C.
    std::uint64_t ids_live = 0;          ///< Ids now owned: by a cm_id, or by a CONNECT_REQUEST that is held.
    std::uint64_t ids_awaiting_ack = 0;  ///< Ids dropped, whose rdma_destroy_id waits for the last ack.

    friend bool operator==(channel_stats const&, channel_stats const&) = default;
};

} // namespace rdma::inline RDMACPP_ABI

// ---- detail/join_record.hpp -----------------------------------------------------------------------------------------
// What the library knows of one join of an id to a multicast group.

namespace rdma::inline RDMACPP_ABI::detail {

struct id_record;

/// It is the C context of the join, and keeps the user's. Kept by the membership, and by the id until the group is
/// left.
struct join_record {
    join_record(id_record& joined, address const& to, void* context, bool sends_only) noexcept
        : id(&joined), group(to), user_context(context), send_only(sends_only) {}

    void unref() noexcept {
        if (refs.fetch_sub(1, order::acq_rel) == 1)
            delete this;
    }

    id_record* id;               // null once it was left, or the id is gone; under join_mutex
    join_record* next = nullptr; // of the same id; under its channel's mutex, like all that follows
    address const group;         // leave finds the group by these bytes
    void* const user_context;
    bool const send_only;  // librdmacm attaches no QP then
    bool dropped = false;  // its membership is gone: it is left with the last ack
    bool attached = false; // librdmacm attached the id's QP, to:
    ibv_gid gid{};
    std::uint16_t lid = 0;
    std::uint32_t events = 0; // held events of this group
    detail::atomic<std::uint32_t> refs{2};
};

/// Taken before a channel's mutex by whoever leaves a group: a membership finds its id through it. Joins are rare, so
/// there is one for all. Never destroyed.
struct RDMACPP_EXPORT join_mutex {
    static detail::mutex& get() noexcept {
        alignas(detail::mutex) static unsigned char memory[sizeof(detail::mutex)];
        static detail::mutex* const mutex = new (memory) detail::mutex;
        return *mutex;
    }
};

/// Holds that mutex, where a group may have to be left.
class join_lock {
public:
    explicit join_lock(bool needed) noexcept : mutex_(needed ? &join_mutex::get() : nullptr) {
        if (mutex_)
            mutex_->lock();
    }
    join_lock(join_lock const&) = delete;
    join_lock& operator=(join_lock const&) = delete;
    ~join_lock() {
        if (mutex_)
            mutex_->unlock();
    }

private:
    detail::mutex* mutex_;
};

} // namespace rdma::inline RDMACPP_ABI::detail

// ---- detail/id_record.hpp -------------------------------------------------------------------------------------------
// What the library knows of one rdma_cm_id.

namespace rdma::inline RDMACPP_ABI::detail {

struct channel_state;

/// Whose an id is.
enum class id_status : std::uint8_t {
    foreign,  ///< C's: it is only counted while an event of it is held.
    in_event, ///< A new id that its CONNECT_REQUEST event owns.
    lent,     ///< As in_event, and the event is released to C: whoever adopts the one or the other has it.
    owned,    ///< A cm_id's.
    released, ///< A cm_id's once, C's now, until it is adopted back.
    dropped,  ///< Its cm_id is gone: it dies with the last pin, and what still arrives for it is swallowed.
};

/// What accept and reject may do: a reject on an active id would block its destroy for 102 seconds.
enum class request_state : std::uint8_t {
    none,      ///< Not from a CONNECT_REQUEST.
    undecided, ///< From a CONNECT_REQUEST, neither accepted nor rejected.
    decided,   ///< Accepted or rejected.
    unknown,   ///< Adopted from C: it may be a request.
};

/// A state that is looked at without a lock, too. Of bytes: std::atomic of an enumeration costs every includer more.
template <class State>
class atomic_state {
public:
    explicit atomic_state(State initial) noexcept : value_(static_cast<unsigned char>(initial)) {}

    State load() const noexcept { return static_cast<State>(value_.load(order::acquire)); }
    void store(State next) noexcept { value_.store(static_cast<unsigned char>(next), order::release); }
    State exchange(State next) noexcept {
        return static_cast<State>(value_.exchange(static_cast<unsigned char>(next), order::acq_rel));
    }
    /// Goes from one state to another; false if it was not in the first.
    bool replace(State from, State to) noexcept {
        auto expected = static_cast<unsigned char>(from);
        return value_.compare_exchange(expected, static_cast<unsigned char>(to), order::acq_rel);
    }

private:
    detail::atomic<unsigned char> value_;
};

/// The held events of one type, and how many of them are released to C.
struct event_tally {
    std::uint32_t held = 0;                    // under the channel's mutex
    detail::atomic<std::uint32_t> released{0}; // release() takes no lock
};

/// Pinned by its owner, by each event that names it, and by each verbs object that depends on it.
struct id_record : pinnable {
    static constexpr std::size_t known_types = RDMA_CM_EVENT_TIMEWAIT_EXIT + 1;
    static constexpr std::size_t tallies = known_types + 1; // the last is for every newer type

    explicit id_record(channel_state& home) noexcept;

    void const* key() const noexcept { return raw; }

    event_tally& tally(cm_event_type type) noexcept {
        auto const index = static_cast<std::size_t>(type);
        return held_events[index < known_types ? index : known_types];
    }

    bool has(id_status s) const noexcept { return status.load() == s; }

    /// The QP and SRQ go to C with the id, and what librdmacm made for them. No lock and no C call.
    void surrender_qp() noexcept {
        for (verbs_node* const own :
             {qp, static_cast<verbs_node*>(send_cq), static_cast<verbs_node*>(recv_cq), channel_of(send_cq),
              channel_of(recv_cq), srq, static_cast<verbs_node*>(srq_cq), channel_of(srq_cq)})
            if (own) {
                pin(own); // dropped when it comes back, or its address is found used again
                own->surrender();
            }
    }

    /// The id came back from C: with its SRQ and QP, unless C destroyed them.
    void take_qp_back() noexcept {
        if (srq && take_back(srq, raw->srq == srq->raw, {srq_cq, channel_of(srq_cq)}))
            srq->need_again({raw->srq->pd}, this);
        if (!srq)
            srq_cq = nullptr;
        if (qp && take_back(qp, raw->qp == qp->raw, {send_cq, recv_cq, channel_of(send_cq), channel_of(recv_cq)}))
            qp->need_again({raw->qp->pd, raw->qp->send_cq, raw->qp->recv_cq, raw->qp->srq}, this);
        if (!qp)
            send_cq = recv_cq = nullptr;
        for (cq_node* const cq : {send_cq, recv_cq, srq_cq})
            if (cq)
                cq->channel->need_again({}, this);
    }

    rdma_cm_id* raw = nullptr;
    id_record* next = nullptr;  // in the channel's table, or among its spares
    channel_state* channel;     // kept alive while this has pins; another one after migrate
    verbs_node* qp = nullptr;   // of create_qp; pinned
    cq_node* send_cq = nullptr; // the CQs that librdmacm made for it: pinned by the QP; their channels pin the id
    cq_node* recv_cq = nullptr;
    verbs_node* srq = nullptr;    // of create_srq; pinned
    cq_node* srq_cq = nullptr;    // the CQ that librdmacm made for it, if it is an XRC one: pinned by it
    join_record* joins = nullptr; // its multicast groups; under the channel's mutex
    ibv_pd* default_pd = nullptr; // what id->pd was before create_qp put the user's there
    atomic_state<id_status> status{id_status::foreign};
    atomic_state<request_state> request{request_state::none};
    detail::atomic<bool> active{false};     // connect or accept went through: there may be somebody to tell
    detail::atomic<bool> ended{false};      // a DISCONNECTED was got
    detail::atomic<bool> removed{false};    // a DEVICE_REMOVAL was got
    detail::atomic<bool> multicasts{false}; // it joined a group once
    bool listening = false;                 // the owner's to look at
    detail::atomic<std::uint32_t> named{0}; // held CONNECT_REQUESTs that brought it: under the mutex of their channel
    bool listed = false;                    // in the channel's table; under its mutex, like all that follows
    bool leaked = false;                    // its destroy failed
    std::uint32_t events = 0;               // held events that its destroy waits for
    event_tally held_events[tallies];

private:
    static verbs_node* channel_of(cq_node const* cq) noexcept { return cq ? cq->channel : nullptr; }

    /// Takes back what C had, and what goes with it; false, and it is forgotten, if C destroyed it meanwhile.
    static bool take_back(verbs_node*& main, bool there, std::initializer_list<verbs_node*> parts) noexcept {
        for (verbs_node* const part : parts)
            if (part && part->take_back(there))
                unpin(part);
        if (main->take_back(there))
            unpin(main);
        if (!there)
            unpin(take(main)); // surrendered: nothing is destroyed
        return there;
    }
};

} // namespace rdma::inline RDMACPP_ABI::detail

// ---- detail/newer.hpp -----------------------------------------------------------------------------------------------
// What not every librdmacm and libibverbs has, found out by asking: there is no version macro.

struct rdma_cm_join_mc_attr_ex; // where there is none it stays incomplete

namespace rdma::inline RDMACPP_ABI::detail {

/// rdma-core 60: rdma_resolve_addrinfo and rdma_query_addrinfo.
template <class Id>
concept has_resolve_addrinfo = requires(Id* id, rdma_addrinfo** result) {
    rdma_resolve_addrinfo(id, nullptr, nullptr, nullptr);
    rdma_query_addrinfo(id, result);
};

/// rdma-core 60: rdma_write_cm_event, and the event of type USER that it makes.
template <class Id>
concept has_write_cm_event = requires(Id* id, rdma_cm_event_type type, std::uint64_t arg) {
    rdma_write_cm_event(id, type, 0, arg);
};

/// rdma-core 34: ibv_reg_dmabuf_mr.
template <class Pd>
concept has_reg_dmabuf_mr = requires(Pd* pd) {
    ibv_reg_dmabuf_mr(pd, std::uint64_t{0}, std::size_t{0}, std::uint64_t{0}, 0, 0);
};

/// rdma-core 35: ibv_import_dm and ibv_unimport_dm.
template <class Dm, class Context = ibv_context>
concept has_import_dm = requires(Dm* dm, Context* context) {
    ibv_import_dm(context, std::uint32_t{0});
    ibv_unimport_dm(dm);
};

/// rdma-core 35: ibv_is_fork_initialized; `None` is always empty.
template <class... None>
concept has_is_fork_initialized = requires {
    ibv_is_fork_initialized(None()...);
};

/// rdma-core 36: ibv_query_qp_data_in_order.
template <class Qp>
concept has_query_qp_data_in_order = requires(Qp* qp, ibv_wr_opcode operation) {
    ibv_query_qp_data_in_order(qp, operation, 0U);
};

/// rdma-core 44: ibv_wr_atomic_write.
template <class Qp>
concept has_wr_atomic_write = requires(Qp* qp, void const* bytes) {
    ibv_wr_atomic_write(qp, 0U, std::uint64_t{0}, bytes);
};

/// rdma-core 50: ibv_wr_flush.
template <class Qp>
concept has_wr_flush = requires(Qp* qp) {
    ibv_wr_flush(qp, 0U, std::uint64_t{0}, std::size_t{0}, std::uint8_t{0}, std::uint8_t{0});
};

/// rdma-core 61: ibv_reg_mr_ex, with attributes of a type that older headers do not have.
template <class Pd, class Attr>
concept has_reg_mr_ex = requires(Pd* pd, Attr attr) {
    ibv_reg_mr_ex(pd, &attr);
};

// ---- What the librdmacm in FreeBSD's base has not: there these fail with ENOSYS ------------------------------------

inline int not_there() noexcept {
    errno = ENOSYS;
    return -1;
}

template <class Id>
int establish(Id* id) noexcept {
    if constexpr (requires { rdma_establish(id); })
        return rdma_establish(id);
    else
        return not_there();
}

template <class Id>
int init_qp_attr(Id* id, ibv_qp_attr& attr, int& mask) noexcept {
    if constexpr (requires { rdma_init_qp_attr(id, &attr, &mask); })
        return rdma_init_qp_attr(id, &attr, &mask);
    else
        return not_there();
}

template <class Id>
int reject_ece(Id* id, void const* data, std::uint8_t size) noexcept {
    if constexpr (requires { rdma_reject_ece(id, data, size); })
        return rdma_reject_ece(id, data, size);
    else
        return not_there();
}

template <class Id, class Ece>
int set_local_ece(Id* id, Ece& ece) noexcept {
    if constexpr (requires { rdma_set_local_ece(id, &ece); })
        return rdma_set_local_ece(id, &ece);
    else
        return not_there();
}

template <class Id, class Ece>
int get_remote_ece(Id* id, Ece& ece) noexcept {
    if constexpr (requires { rdma_get_remote_ece(id, &ece); })
        return rdma_get_remote_ece(id, &ece);
    else
        return not_there();
}

// RDMA_CM_JOIN_MC_ATTR_ADDRESS, RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS, RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER and
// RDMA_OPTION_ID_ACK_TIMEOUT.
inline constexpr std::uint32_t join_mc_attr_address = 1, join_mc_attr_join_flags = 2;
inline constexpr int mc_join_flag_sendonly_fullmember = 1;
inline constexpr int option_id_ack_timeout = 3;

template <class Id, class Attr = rdma_cm_join_mc_attr_ex>
int join_multicast_ex(Id* id, sockaddr* group, std::uint32_t flag, void* context) noexcept {
    if constexpr (requires { sizeof(Attr); }) {
        Attr attr{join_mc_attr_address | join_mc_attr_join_flags, flag, group};
        return rdma_join_multicast_ex(id, &attr, context);
    } else
        return not_there();
}

} // namespace rdma::inline RDMACPP_ABI::detail

// ---- detail/removal.hpp ---------------------------------------------------------------------------------------------
// What follows from the removal of a device.

namespace rdma::inline RDMACPP_ABI::detail {

/// Makes librdmacm look at its devices again once the last id of a removed device is gone: only then does it close the
/// device's context, for which the kernel's removal waits.
///
/// It looks (rdma_get_devices and rdma_free_devices) while no id is being destroyed: a default PD whose last id goes
/// meanwhile would stay, since the list holds the device. One per process, never destroyed.
class RDMACPP_EXPORT removal_watch {
public:
    static removal_watch& get() noexcept {
        alignas(removal_watch) static unsigned char memory[sizeof(removal_watch)];
        static removal_watch* const watch = new (memory) removal_watch;
        return *watch;
    }

    /// An id was found to have lost its device.
    void add_id() noexcept { ids_.fetch_add(1); }
    /// It is for somebody else to make librdmacm look.
    void forget_id() noexcept { ids_.fetch_sub(1); }

    /// Around each rdma_destroy_id. No lock is held in between.
    void begin_destroy() noexcept {
        for (;;) {
            destroys_.fetch_add(1);
            if (!looking_.load())
                return;
            destroys_.fetch_sub(1);
            lock_guard const until_it_has_looked(mutex_);
        }
    }
    void end_destroy(bool of_removed_id) noexcept {
        if (of_removed_id && ids_.fetch_sub(1) == 1)
            wanted_.store(true);
        if (destroys_.fetch_sub(1) == 1 && wanted_.load())
            look();
    }

private:
    /// If a destroy has begun meanwhile, it is the one to look at its end.
    void look() noexcept {
        lock_guard const lock(mutex_);
        looking_.store(true);
        if (destroys_.load() == 0 && wanted_.exchange(false)) {
            int count = 0;
            if (ibv_context** const devices = ::rdma_get_devices(&count))
                ::rdma_free_devices(devices);
        }
        looking_.store(false);
    }

    detail::mutex mutex_;
    detail::atomic<std::uint32_t> ids_{0}; // those that have lost their device
    detail::atomic<std::uint32_t> destroys_{0};
    detail::atomic<bool> looking_{false};
    detail::atomic<bool> wanted_{false};
};

} // namespace rdma::inline RDMACPP_ABI::detail

// ---- detail/channel_state.hpp ---------------------------------------------------------------------------------------
// The heart: what an event channel, its ids and its events share, and where "one get, one ack" is kept.
//
// rdma_destroy_id waits, without a timeout, until every event charged to the id is acked. So an id that is dropped
// while events of it are held only becomes `dropped`; rdma_destroy_id runs with the last ack, on the thread that acks.

namespace rdma::inline RDMACPP_ABI::detail {

/// What a cm_event holds: the C event, and the records of the ids that it pins.
struct held_event {
    rdma_cm_event* raw = nullptr;
    id_record* charged = nullptr; // the id whose destroy waits for the ack
    id_record* child = nullptr;   // the new id of a CONNECT_REQUEST
};

/// Whose destroy waits for this event's ack: a CONNECT_REQUEST is charged to the listener.
inline rdma_cm_id* charged_id(rdma_cm_event const& event) noexcept {
    return event.listen_id ? event.listen_id : event.id;
}

/// The state of one rdma_event_channel: kept by the channel object, its iterators, and every id and held event on it.
struct channel_state {
    explicit channel_state(rdma_event_channel* channel) noexcept : raw(channel) {}
    channel_state(channel_state const&) = delete;
    channel_state& operator=(channel_state const&) = delete;

    void const* key() const noexcept { return raw; }
    bool inherited() const noexcept { return born_in != process::current(); }

    // ---- the channel itself
    static channel_state* open(std::error_code& ec) noexcept;
    static channel_state* adopt(rdma_event_channel* channel, std::error_code& ec) noexcept;
    static channel_state* borrow(rdma_event_channel* channel, std::error_code& ec) noexcept;
    void ref() noexcept { refs.fetch_add(1, order::relaxed); }
    void unref() noexcept;
    void close() noexcept;
    rdma_event_channel* release() noexcept;
    channel_stats stats() noexcept;
    bool is_forgotten() noexcept;

    // ---- ids
    id_record* create_id(rdma_port_space ps, void* context, std::error_code& ec) noexcept;
    id_record* adopt_id(rdma_cm_id* id, std::error_code& ec) noexcept;
    void release_id(id_record& id) noexcept;
    void drop(id_record& id) noexcept;
    std::error_code destroy(id_record& id, std::uint32_t& held) noexcept;
    verbs_node* unhook_qp(id_record& id) noexcept;
    verbs_node* unhook_srq(id_record& id) noexcept;
    static std::error_code migrate(id_record& id, channel_state& to, std::uint32_t& held) noexcept;

    // ---- multicast groups
    static constexpr int plain_join = -1; // rdma_join_multicast, which takes no flag
    join_record* join(id_record& id, address const& group, int flag, void* context, std::error_code& ec) noexcept;
    static std::error_code leave(join_record& join, std::uint32_t& held) noexcept;
    static void drop_join(join_record& join) noexcept;

    // ---- events
    bool try_get(held_event& event, wait_options options, std::error_code& ec) noexcept;
    woken get(held_event& event, deadline const& until, any_stop_token const& stop, wait_options options,
              std::error_code& ec) noexcept;
    bool adopt_event(rdma_cm_event* event, held_event& held, std::error_code& ec) noexcept;
    void ack(held_event const& event) noexcept;
    static channel_state& of(held_event const& event) noexcept { return *event.charged->channel; }
    static void release_event(held_event const& event) noexcept;
    static void* user_context_of_join(held_event const& event) noexcept;

    rdma_event_channel* const raw;
    channel_state* next = nullptr; // in the registry
    detail::atomic<std::uint32_t> refs{1};
    unsigned const born_in = process::current();
    detail::atomic<bool> owned{false}; // by an event_channel: then the C channel is destroyed with the last reference
    int flags_before = 0;              // of the descriptor, for release()
    wait_room room;

    detail::mutex mutex; // never held while user code runs, while waiting, or around a destroy of an id, QP or CQ
    address_map<id_record> ids;
    id_record* spares = nullptr;  // made before each C get, so that nothing can fail after it
    id_record* retired = nullptr; // released to C, and their address used again since
    channel_stats counts{};       // the part of stats() that is counted

private:
    enum class fate { delivered, swallowed };

    fate take_in(rdma_cm_event* event, held_event& held, diagnostic& story) noexcept;
    void hold(rdma_cm_event* event, held_event& held, id_record* known_child) noexcept;
    id_record* find_elsewhere(rdma_cm_id const* id) noexcept;
    bool replenish() noexcept;
    id_record& spare(rdma_cm_id* id) noexcept;
    id_record& find_or_count(rdma_cm_id* id) noexcept;
    void insert(id_record& id) noexcept;
    void pin_record(id_record& id) noexcept;
    bool unpin_record(id_record& id) noexcept;
    void finish(id_record& id) noexcept;
    void let_go(id_record& id) noexcept;
    static std::uint32_t held_of_qp(id_record const& id) noexcept;
    static bool serves_others(id_record const& id) noexcept;
    static verbs_node* unhook_qp_locked(id_record& id) noexcept;
    static verbs_node* unhook_srq_locked(id_record& id) noexcept;
    static join_record* find_join(id_record const& id, rdma_cm_event const& event) noexcept;
    static void detach(join_record& join) noexcept;
    static std::error_code leave_locked(join_record& join) noexcept;
    void leave_unheld(id_record& id) noexcept;
    static void report_failed_leave(rdma_cm_id const* id, std::error_code failure) noexcept;
    static void forget_joins(id_record& id) noexcept;
    void ack_any(held_event const& event) noexcept;
    void ack_of_join(held_event const& event) noexcept;
    void note(rdma_cm_event const* event, id_record& id) noexcept;
    void note_removal(id_record& id) noexcept;
    static void notice_removal(id_record& id) noexcept;
    std::error_code destroy_c_id(id_record& id) noexcept;
    static void sever(id_record& id) noexcept;
    static void last_unpin(pinnable& self) noexcept;
    bool is_all_of_c() noexcept;
    static void forget_stale(rdma_event_channel const* channel) noexcept;
    void end() noexcept;

    friend struct id_record;
};

/// Every channel state, by its C channel. One per process, never destroyed.
struct RDMACPP_EXPORT channel_registry {
    detail::mutex mutex;
    address_map<channel_state> channels;

    static channel_registry& get() noexcept {
        alignas(channel_registry) static unsigned char memory[sizeof(channel_registry)];
        static channel_registry* const registry = new (memory) channel_registry;
        return *registry;
    }
};

inline id_record::id_record(channel_state& home) noexcept : pinnable(&channel_state::last_unpin), channel(&home) {}

// ---- The channel ---------------------------------------------------------------------------------------------------

/// The C channel is always non-blocking: a get is a try, then a poll, so that a wait can be stopped and no lock is
/// held.
inline bool set_nonblocking(int fd, int& flags_before) noexcept {
    flags_before = ::fcntl(fd, F_GETFL);
    return flags_before >= 0 && ::fcntl(fd, F_SETFL, flags_before | O_NONBLOCK) == 0;
}

inline channel_state* channel_state::open(std::error_code& ec) noexcept {
    rdma_event_channel* const channel = ::rdma_create_event_channel();
    if ((ec = check_pointer(channel)))
        return nullptr;
    forget_stale(channel);
    channel_state* const state = adopt(channel, ec);
    if (!state)
        ::rdma_destroy_event_channel(channel);
    return state;
}

/// A channel that was just opened is new, whatever is known of its address: C destroyed one that was released to it.
inline void channel_state::forget_stale(rdma_event_channel const* channel) noexcept {
    channel_state* stale;
    {
        channel_registry& registry = channel_registry::get();
        lock_guard const lock(registry.mutex);
        stale = registry.channels.find(channel);
        if (!stale)
            return;
        registry.channels.erase(stale);
        stale->owned.store(false, order::release);
        if (stale->refs.load(order::acquire) != 0 && !stale->is_all_of_c())
            return; // ids or events of ours were left on it
    }
    stale->end();
}

/// It was released to C, with all that is on it: C may have destroyed it since, and its address be another's.
inline bool channel_state::is_forgotten() noexcept { return !owned.load(order::acquire) && is_all_of_c(); }

/// Nothing but ids and events that were released to C, and never came back.
inline bool channel_state::is_all_of_c() noexcept {
    lock_guard const lock(mutex);
    bool all = true;
    ids.for_each([&all](id_record const* id) {
        bool const c_has_it = id->has(id_status::foreign) || id->has(id_status::released) || id->has(id_status::lent);
        all = all && (c_has_it || id->leaked);
        for (event_tally const& events : id->held_events)
            all = all && events.held == events.released.load(order::relaxed);
    });
    return all;
}

inline channel_state* channel_state::adopt(rdma_event_channel* channel, std::error_code& ec) noexcept {
    channel_state* const state = borrow(channel, ec);
    if (!state)
        return nullptr;
    if (state->owned.exchange(true, order::acq_rel)) {
        ec = errc::already_owned;
        state->unref();
        return nullptr;
    }
    if (!set_nonblocking(channel->fd, state->flags_before)) {
        ec = system_error_code(errno);
        state->owned.store(false, order::release);
        state->unref();
        return nullptr;
    }
    return state;
}

inline channel_state* channel_state::borrow(rdma_event_channel* channel, std::error_code& ec) noexcept {
    ec.clear();
    if (!channel) {
        ec = errc::null_handle;
        return nullptr;
    }
    channel_registry& registry = channel_registry::get();
    lock_guard const lock(registry.mutex);
    if (channel_state* const known = registry.channels.find(channel)) {
        known->ref();
        return known;
    }
    channel_state* const state = new (std::nothrow) channel_state(channel);
    if (state)
        registry.channels.insert(state);
    else
        ec = system_error_code(ENOMEM);
    return state;
}

inline void channel_state::unref() noexcept {
    std::uint32_t count = refs.load(order::relaxed);
    while (count > 1)
        if (refs.compare_exchange(count, count - 1, order::acq_rel))
            return;
    { // the last one goes under the registry's mutex, or a borrow could find a
        // state that is about to end
        channel_registry& registry = channel_registry::get();
        lock_guard const lock(registry.mutex);
        if (refs.fetch_sub(1, order::acq_rel) != 1)
            return;
        registry.channels.erase(this);
    }
    end();
}

inline void channel_state::end() noexcept {
    if (owned.load(order::acquire))
        ::rdma_destroy_event_channel(raw);
    auto const forget = [](id_record* left) { // leaked or released: the C id is not ours to touch
        unpin(take(left->qp));
        unpin(take(left->srq));
        forget_joins(*left);
        delete left;
    };
    ids.for_each(forget);
    for (id_record* const list : {spares, retired})
        for (id_record *r = list, *following; r; r = following) {
            following = r->next;
            forget(r);
        }
    delete this;
}

/// The channel object is gone: ranges end at their next step. The C channel stays for the ids and events that need it.
inline void channel_state::close() noexcept {
    if (inherited())
        return;
    room.close();
    unref();
}

/// No lock, no C call of librdmacm's: also right in a forked child, where another thread may have held the mutex.
inline rdma_event_channel* channel_state::release() noexcept {
    if (inherited())
        return raw; // whether the descriptor blocks is the parent's affair, too
    owned.store(false, order::release);
    ::fcntl(raw->fd, F_SETFL, flags_before);
    refs.fetch_sub(1, order::acq_rel); // at zero it stays in the registry, for the next adopt or borrow
    return raw;
}

inline channel_stats channel_state::stats() noexcept {
    lock_guard const lock(mutex);
    channel_stats now = counts;
    ids.for_each([&now](id_record const* id) {
        if (id->has(id_status::owned) || id->has(id_status::in_event))
            ++now.ids_live;
        else if (id->has(id_status::dropped) && id->pins.load(order::relaxed) != 0)
            ++now.ids_awaiting_ack;
    });
    return now;
}

// ---- Records -------------------------------------------------------------------------------------------------------

/// With its first pin a record keeps its channel, with its last it lets go.
inline void channel_state::pin_record(id_record& id) noexcept {
    if (id.pins.fetch_add(1, order::relaxed) == 0)
        ref();
}

/// True if that was the last pin: the caller then calls on_last_unpin, with no lock held.
inline bool channel_state::unpin_record(id_record& id) noexcept { return id.pins.fetch_sub(1, order::acq_rel) == 1; }

/// A record at a used address replaces what stood there: malloc hands the address of a dead id out again at once,
/// before the thread that destroyed it comes to erase its entry.
inline void channel_state::insert(id_record& id) noexcept {
    if (id_record* const old = ids.find(id.raw)) {
        ids.erase(old);
        old->listed = false;
        if (!old->has(id_status::dropped) || old->leaked) {
            old->next = retired; // nobody else will free it
            retired = old;
        }
    }
    ids.insert(&id);
    id.listed = true;
}

/// One spare for a new id, and one for the listener of it if that is C's and unknown.
inline bool channel_state::replenish() noexcept {
    for (int missing = !spares ? 2 : !spares->next ? 1 : 0; missing != 0; --missing) {
        id_record* const fresh = new (std::nothrow) id_record(*this);
        if (!fresh)
            return false;
        fresh->next = spares;
        spares = fresh;
    }
    return true;
}

inline id_record& channel_state::spare(rdma_cm_id* id) noexcept {
    id_record& record = *spares;
    spares = record.next;
    record.raw = id;
    insert(record);
    return record;
}

/// The record of an id; one that C made is counted from here on, while events of it are held.
inline id_record& channel_state::find_or_count(rdma_cm_id* id) noexcept {
    id_record* const known = ids.find(id);
    return known ? *known : spare(id);
}

// ---- Ids -----------------------------------------------------------------------------------------------------------

inline id_record* channel_state::create_id(rdma_port_space ps, void* context, std::error_code& ec) noexcept {
    ec.clear();
    id_record* const record = new (std::nothrow) id_record(*this);
    if (!record) {
        ec = system_error_code(ENOMEM);
        return nullptr;
    }
    if ((ec = check_errno(::rdma_create_id(raw, &record->raw, context, ps)))) {
        delete record;
        return nullptr;
    }
    record->status.store(id_status::owned);
    pin_record(*record);
    lock_guard const lock(mutex);
    insert(*record);
    return record;
}

inline id_record* channel_state::adopt_id(rdma_cm_id* id, std::error_code& ec) noexcept {
    ec.clear();
    if (!id)
        ec = errc::null_handle;
    else if (id->channel != raw)
        ec = errc::wrong_channel;
    if (ec)
        return nullptr;
    lock_guard const lock(mutex);
    id_record* const known = ids.find(id);
    if (known && (known->has(id_status::owned) || known->has(id_status::in_event) || known->has(id_status::dropped))) {
        ec = errc::already_owned;
        return nullptr;
    }
    if (!known && !replenish()) {
        ec = system_error_code(ENOMEM);
        return nullptr;
    }
    id_record& record = known ? *known : spare(id);
    if (!record.has(id_status::lent)) { // that one has its owner's pin still
        pin_record(record);
        record.request.store(request_state::unknown);
    }
    record.active.store(true, order::relaxed); // perhaps: a needless disconnect fails without harm
    record.status.store(id_status::owned);
    return &record;
}

/// No lock and no C call: C has the id, and its QP, from here on.
inline void channel_state::release_id(id_record& id) noexcept {
    if (inherited())
        return;
    id.surrender_qp();
    if (id.removed.exchange(false)) // then it is for C to make librdmacm notice
        removal_watch::get().forget_id();
    id.status.store(id_status::released);
    if (unpin_record(id))
        refs.fetch_sub(1, order::acq_rel); // not unref(): C's id needs the channel, even if nobody else does
}

/// librdmacm looks at id->qp inside a get without any lock: so it is taken away under the mutex that each get holds.
inline verbs_node* channel_state::unhook_qp_locked(id_record& id) noexcept {
    verbs_node* const qp = id.qp;
    if (!qp)
        return nullptr;
    for (join_record* join = id.joins; join; join = join->next)
        detach(*join); // or its destroy is EBUSY, for ever
    id.qp = nullptr;
    id.send_cq = id.recv_cq = nullptr;
    id.raw->qp = nullptr;
    id.raw->send_cq = nullptr;
    id.raw->send_cq_channel = nullptr;
    if (!id.srq_cq) {
        id.raw->recv_cq = nullptr;
        id.raw->recv_cq_channel = nullptr;
    }
    id.raw->pd = id.default_pd; // librdmacm would leave the user's PD there, which may be gone soon
    return qp;
}

inline verbs_node* channel_state::unhook_srq_locked(id_record& id) noexcept {
    if (!id.srq)
        return nullptr;
    id.raw->srq = nullptr;
    if (take(id.srq_cq)) {
        id.raw->recv_cq = nullptr;
        id.raw->recv_cq_channel = nullptr;
    }
    return take(id.srq);
}

inline verbs_node* channel_state::unhook_srq(id_record& id) noexcept {
    lock_guard const lock(mutex);
    return unhook_srq_locked(id);
}

inline verbs_node* channel_state::unhook_qp(id_record& id) noexcept {
    lock_guard const lock(mutex);
    return unhook_qp_locked(id);
}

/// Tells the peer now, when rdma_destroy_id, which would, has to wait for an ack.
inline void channel_state::sever(id_record& id) noexcept {
    bool const undecided = id.request.load() == request_state::undecided;
    if (undecided && ::rdma_reject(id.raw, nullptr, 0) == 0)
        return;
    bool const maybe_connected = undecided || id.active.load(order::relaxed); // C may have accepted it
    if (maybe_connected && id.raw->verbs)
        ::rdma_disconnect(id.raw);
}

/// The owner lets go. On iWARP the kernel may hold the destroy of an id in mid-connect until its timeout: no lock here.
inline void channel_state::drop(id_record& id) noexcept {
    if (inherited())
        return;
    verbs_node *qp, *srq;
    {
        lock_guard const lock(mutex);
        id.status.store(id_status::dropped);
        qp = unhook_qp_locked(id);
        srq = unhook_srq_locked(id);
    }
    leave_unheld(id);
    if (qp && qp->pins.load(order::relaxed) > 1) { // an event of it is held: it stays, but must go quiet
        ibv_qp_attr attr{};
        attr.qp_state = IBV_QPS_ERR;
        ::ibv_modify_qp(static_cast<ibv_qp*>(qp->raw), &attr, IBV_QP_STATE);
    }
    unpin(qp);
    unpin(srq);
    let_go(id);
}

/// Drops the owner's pin.
inline void channel_state::let_go(id_record& id) noexcept {
    if (id.pins.load(order::acquire) > 1)
        sever(id);
    if (unpin_record(id))
        last_unpin(id);
}

inline void channel_state::last_unpin(pinnable& self) noexcept {
    auto& id = static_cast<id_record&>(self);
    channel_state& home = *id.channel;
    if (id.has(id_status::dropped))
        home.finish(id);
    home.unref();
}

/// The DEVICE_REMOVAL of an id may wait unread, and goes with it: then the kernel knows the id no longer, and says so
/// to any call, here to one that does nothing.
inline void channel_state::notice_removal(id_record& id) noexcept {
    constexpr int no_such_level = 0x7fff;
    unsigned char nothing = 0;
    if (!id.raw->verbs || id.removed.load() || ::rdma_set_option(id.raw, no_such_level, 0, &nothing, 1) == 0)
        return;
    if ((errno == ENXIO || errno == EIO) && !id.removed.exchange(true))
        removal_watch::get().add_id();
}

inline std::error_code channel_state::destroy_c_id(id_record& id) noexcept {
    { // whoever looks at the C id under the mutex has seen a pin, and is done with it now
        lock_guard const lock(mutex);
        notice_removal(id);
    }
    removal_watch& watch = removal_watch::get();
    watch.begin_destroy();
    std::error_code const failure = check_errno(::rdma_destroy_id(id.raw));
    watch.end_destroy(id.removed.exchange(false));
    return failure;
}

/// The C object goes, with nothing held. If C refuses, the record stays, so that late events are known and swallowed.
inline void channel_state::finish(id_record& id) noexcept {
    rdma_cm_id* const object = id.raw;
    std::error_code const failure = destroy_c_id(id);
    bool stays = false;
    {
        lock_guard const lock(mutex);
        if (id.listed && failure)
            stays = id.leaked = true;
        else if (id.listed)
            ids.erase(&id); // unless its address has a new tenant already
    }
    if (!stays)
        delete &id;
    if (failure)
        report({diagnostic_kind::destroy_failed, "rdma_destroy_id", object, failure});
}

/// How many events of its QP and SRQ, and of the CQs that librdmacm made for them, are held.
inline std::uint32_t channel_state::held_of_qp(id_record const& id) noexcept {
    std::uint32_t held = 0;
    for (verbs_node const* const node :
         {id.qp, static_cast<verbs_node*>(id.send_cq), static_cast<verbs_node*>(id.recv_cq), id.srq,
          static_cast<verbs_node*>(id.srq_cq)}) {
        if (!node)
            continue;
        std::uint32_t const by_owner = node == id.send_cq || node == id.recv_cq || node == id.srq_cq ? 0 : 1;
        held += node->pins.load(order::relaxed) - by_owner - verbs_table::get().users_of(*node);
    }
    return held;
}

/// Whether a QP that is not its own uses what librdmacm made for the id.
inline bool channel_state::serves_others(id_record const& id) noexcept {
    for (verbs_node const* const node : {static_cast<verbs_node*>(id.send_cq), static_cast<verbs_node*>(id.recv_cq),
                                         id.srq, static_cast<verbs_node*>(id.srq_cq)})
        if (node &&
            verbs_table::get().users_of(*node) >
                (id.qp && id.qp->uses(*node) ? 1U : 0U) + (node != id.srq && id.srq && id.srq->uses(*node) ? 1U : 0U))
            return true;
    return false;
}

/// destroy() asked for by name: it never waits, and on failure the id stays as it was, but for its QP.
inline std::error_code channel_state::destroy(id_record& id, std::uint32_t& held) noexcept {
    verbs_node *qp, *srq;
    {
        lock_guard const lock(mutex);
        held = id.events + id.named.load(order::relaxed) + held_of_qp(id);
        if (held != 0)
            return system_error_code(EDEADLK);
        std::uint32_t own = 1; // the owner's pin, and those of what goes with the id
        for (verbs_node const* const part :
             {id.qp, static_cast<verbs_node*>(id.send_cq), static_cast<verbs_node*>(id.recv_cq), id.srq,
              static_cast<verbs_node*>(id.srq_cq)})
            own += part ? 1 : 0;
        if (id.pins.load(order::acquire) > own || serves_others(id))
            return system_error_code(EBUSY);
        id.status.store(id_status::dropped);
        qp = unhook_qp_locked(id);
        srq = unhook_srq_locked(id);
    }
    leave_unheld(id);
    unpin(qp);
    unpin(srq);
    if (id.pins.load(order::acquire) > 1) { // a completion or async event was got meanwhile: put off, then
        let_go(id);
        return {};
    }
    if (std::error_code const failure = destroy_c_id(id)) {
        id.status.store(id_status::owned);
        return failure;
    }
    {
        lock_guard const lock(mutex);
        if (id.listed)
            ids.erase(&id);
    }
    delete &id;
    unref();
    return {};
}

// ---- Multicast groups ----------------------------------------------------------------------------------------------

/// Whether an event is one of a group, which its private data then names.
inline bool is_of_join(rdma_cm_event const& event) noexcept {
    return type_of(event) == cm_event_type::multicast_join || type_of(event) == cm_event_type::multicast_error;
}

/// The join that an event is about; null if C joined.
inline join_record* channel_state::find_join(id_record const& id, rdma_cm_event const& event) noexcept {
    if (!is_of_join(event))
        return nullptr;
    join_record* join = id.joins;
    while (join && join != event.param.ud.private_data)
        join = join->next;
    return join;
}

/// One group at most once: librdmacm finds it by its address alone.
inline join_record* channel_state::join(id_record& id, address const& group, int flag, void* context,
                                        std::error_code& ec) noexcept {
    bool const send_only = flag == mc_join_flag_sendonly_fullmember;
    auto* const join = new (std::nothrow) join_record(id, group, context, send_only);
    if (!join) {
        ec = system_error_code(ENOMEM);
        return nullptr;
    }
    {
        lock_guard const lock(mutex);
        for (join_record const* other = id.joins; other && !ec; other = other->next)
            if (other->group == group)
                ec = errc::already_joined;
        auto* const to = const_cast<sockaddr*>(join->group.native_handle()); // C only reads it
        auto const role = static_cast<std::uint32_t>(flag);
        if (!ec)
            ec = check_errno(flag == plain_join ? ::rdma_join_multicast(id.raw, to, join)
                                                : join_multicast_ex(id.raw, to, role, join));
        if (!ec) {
            join->next = id.joins;
            id.joins = join;
            id.multicasts.store(true, order::relaxed);
            return join;
        }
    }
    delete join;
    return nullptr;
}

inline void channel_state::detach(join_record& join) noexcept {
    if (join.attached && join.id->raw->qp)
        ::ibv_detach_mcast(join.id->raw->qp, &join.gid, join.lid);
    join.attached = false;
}

/// Under join_mutex and the channel's mutex, with no event of the group held: C has nothing to wait for. Whatever it
/// answers, it has forgotten the group.
inline std::error_code channel_state::leave_locked(join_record& join) noexcept {
    id_record& id = *join.id;
    join_record** link = &id.joins;
    while (*link != &join)
        link = &(*link)->next;
    *link = join.next;
    auto* const group = const_cast<sockaddr*>(join.group.native_handle()); // C only reads it
    std::error_code ec = check_errno(::rdma_leave_multicast(id.raw, group));
    if (ec)
        notice_removal(id);
    if (id.removed.load()) // then the group went with the device
        ec.clear();
    join.id = nullptr;
    join.unref();
    return ec;
}

inline std::error_code channel_state::leave(join_record& join, std::uint32_t& held) noexcept {
    lock_guard const leaving(join_mutex::get());
    if (!join.id)
        return {}; // its id is gone, and left it
    lock_guard const lock(join.id->channel->mutex);
    held = join.events;
    return held == 0 ? leave_locked(join) : system_error_code(EDEADLK);
}

/// The membership lets go.
inline void channel_state::drop_join(join_record& join) noexcept {
    std::error_code failure;
    rdma_cm_id const* of = nullptr;
    {
        lock_guard const leaving(join_mutex::get());
        if (id_record* const id = join.id; id && id->has(id_status::owned)) { // or it is C's, like the group
            lock_guard const lock(id->channel->mutex);
            join.dropped = true;
            of = id->raw;
            detach(join);
            if (join.events == 0)
                failure = leave_locked(join);
        }
    }
    join.unref();
    report_failed_leave(of, failure);
}

inline void channel_state::report_failed_leave(rdma_cm_id const* id, std::error_code failure) noexcept {
    if (failure && failure.value() != EADDRNOTAVAIL) // C may have left it while it had the id
        report({diagnostic_kind::destroy_failed, "rdma_leave_multicast", id, failure});
}

/// The id is dropped: it leaves every group, now or with the last event of it. librdmacm would keep their memory.
inline void channel_state::leave_unheld(id_record& id) noexcept {
    if (!id.multicasts.load(order::relaxed))
        return;
    std::error_code failure; // the last of them
    {
        lock_guard const leaving(join_mutex::get());
        lock_guard const lock(mutex);
        for (join_record *join = id.joins, *following; join; join = following) {
            following = join->next;
            join->dropped = true;
            std::error_code const ec = join->events == 0 ? leave_locked(*join) : std::error_code();
            failure = ec ? ec : failure;
        }
    }
    report_failed_leave(id.raw, failure);
}

/// Of an id that C has, or that could not be destroyed.
inline void channel_state::forget_joins(id_record& id) noexcept {
    if (!id.joins)
        return;
    lock_guard const leaving(join_mutex::get());
    while (join_record* const join = id.joins) {
        id.joins = join->next;
        join->id = nullptr;
        join->unref();
    }
}

/// The pointer that the program gave to the join; C's own, if C joined.
inline void* channel_state::user_context_of_join(held_event const& event) noexcept {
    if (!is_of_join(*event.raw))
        return nullptr;
    lock_guard const lock(event.charged->channel->mutex);
    join_record const* const join = find_join(*event.charged, *event.raw);
    return join ? join->user_context : const_cast<void*>(event.raw->param.ud.private_data);
}

// ---- Migration -----------------------------------------------------------------------------------------------------

/// Under both mutexes no thread of ours is inside a get, and no event is held: C has nothing to wait for.
inline std::error_code channel_state::migrate(id_record& id, channel_state& to, std::uint32_t& held) noexcept {
    channel_state& from = *id.channel;
    if (&from == &to)
        return {};
    {
        join_lock const leaving(id.multicasts.load(order::relaxed)); // a membership finds the channel by the id
        bool const in_order = reinterpret_cast<std::uintptr_t>(&from) < reinterpret_cast<std::uintptr_t>(&to);
        lock_guard const first(in_order ? from.mutex : to.mutex);
        lock_guard const second(in_order ? to.mutex : from.mutex);
        held = id.events;
        if (held != 0)
            return system_error_code(EDEADLK);
        if (std::error_code const failure = check_errno(::rdma_migrate_id(id.raw, to.raw)))
            return failure;
        if (id.listed)
            from.ids.erase(&id);
        id.channel = &to;
        to.insert(id);
    }
    to.ref();
    from.unref();
    return {};
}

/// Drops a record's pin at the end of a scope.
struct keep_record {
    id_record* const id;
    explicit keep_record(id_record* pinned) noexcept : id(pinned) {}
    keep_record(keep_record const&) = delete;
    keep_record& operator=(keep_record const&) = delete;
    ~keep_record() { unpin(id); }
};

// ---- Events --------------------------------------------------------------------------------------------------------

/// Pins every id that the event names; the new id of a CONNECT_REQUEST is the event's, unless it has an owner.
inline void channel_state::hold(rdma_cm_event* event, held_event& held, id_record* known_child) noexcept {
    id_record& charged = find_or_count(charged_id(*event));
    pin_record(charged);
    ++charged.events;
    ++charged.tally(type_of(*event)).held;
    ++counts.events_held;
    held = {event, &charged, known_child};
    if (is_of_join(*event)) [[unlikely]]
        if (join_record* const join = find_join(charged, *event))
            ++join->events;
    if (type_of(*event) != cm_event_type::connect_request)
        return;
    if (!held.child) {
        held.child = &spare(event->id); // replaces whatever stood at its address
        held.child->status.store(id_status::in_event);
        held.child->request.store(request_state::undecided);
        pin_record(*held.child); // as its owner
    }
    pin_record(*held.child); // as one that names it
    held.child->named.fetch_add(1, order::relaxed);
}

/// Remembers what later calls ask for.
inline void channel_state::note(rdma_cm_event const* event, id_record& id) noexcept {
    switch (type_of(*event)) {
    case cm_event_type::disconnected: id.ended.store(true, order::release); break;
    case cm_event_type::device_removal: note_removal(id); break;
    case cm_event_type::multicast_join:
        if (join_record* const join = find_join(id, *event)) {
            join->attached = id.raw->qp && !join->send_only;
            join->gid = event->param.ud.ah_attr.grh.dgid;
            join->lid = event->param.ud.ah_attr.dlid;
        }
        break;
    default: break;
    }
}

/// The kernel tells an id of it, but not the new ids of the device that nobody accepted yet.
inline void channel_state::note_removal(id_record& id) noexcept {
    ibv_context const* const device = id.raw->verbs;
    ids.for_each([&](id_record* each) {
        bool const new_one = each->request.load() == request_state::undecided &&
                             (each->has(id_status::owned) || each->has(id_status::in_event)) &&
                             each->raw->verbs == device;
        if ((each == &id ? id.has(id_status::owned) : new_one) && !each->removed.exchange(true))
            removal_watch::get().add_id();
    });
}

/// Decides what becomes of an event that C has just given. Nothing here can fail.
inline channel_state::fate channel_state::take_in(rdma_cm_event* event, held_event& held, diagnostic& story) noexcept {
    ++counts.events_got;
    id_record const* const charged = ids.find(charged_id(*event));
    if (!charged || !charged->has(id_status::dropped)) {
        hold(event, held, nullptr);
        if (cm_event_type const type = type_of(*event);
            type >= cm_event_type::disconnected && type <= cm_event_type::multicast_join) [[unlikely]]
            note(event, *held.charged);
        if (held.child)
            event->id->context = nullptr; // librdmacm hands down the listener's
        return fate::delivered;
    }
    if (type_of(*event) == cm_event_type::connect_request) {
        story = {diagnostic_kind::request_rejected, "rdma_destroy_id", event->id, {}};
        ++counts.requests_rejected;
    } else
        story = {diagnostic_kind::event_swallowed, "rdma_get_cm_event", charged->raw, {}};
    ::rdma_ack_cm_event(event);
    ++counts.events_acked;
    ++counts.events_swallowed;
    return fate::swallowed;
}

/// One try. True: `event` is filled, or `ec` set; false: there is nothing now.
inline bool channel_state::try_get(held_event& event, wait_options options, std::error_code& ec) noexcept {
    for (;;) {
        diagnostic story{};
        {
            lock_guard const lock(mutex);
            if (!replenish()) {
                ec = system_error_code(ENOMEM);
                return true;
            }
            rdma_cm_event* raw_event = nullptr;
            if (!gave([&]() noexcept { return ::rdma_get_cm_event(raw, &raw_event); }, options, ec))
                return false;
            if (ec)
                return true;
            if (take_in(raw_event, event, story) == fate::delivered)
                return true;
        }
        if (story.kind == diagnostic_kind::request_rejected) {
            auto* const child = static_cast<rdma_cm_id*>(const_cast<void*>(story.object));
            removal_watch::get().begin_destroy();
            std::error_code const failure = check_errno(::rdma_destroy_id(child)); // rejects it, too
            removal_watch::get().end_destroy(false);
            if (failure)
                report({diagnostic_kind::destroy_failed, "rdma_destroy_id", child, failure});
        }
        report(story);
    }
}

inline woken channel_state::get(held_event& event, deadline const& until, any_stop_token const& stop,
                                wait_options options, std::error_code& ec) noexcept {
    ec.clear();
    return get_or_wait(room, raw->fd, until, stop, options, ec, [&]() noexcept { return try_get(event, options, ec); });
}

/// The record of an id that has an owner on another channel, pinned.
inline id_record* channel_state::find_elsewhere(rdma_cm_id const* id) noexcept {
    channel_registry& registry = channel_registry::get();
    lock_guard const lock(registry.mutex);
    id_record* found = nullptr;
    registry.channels.for_each([&](channel_state* channel) {
        if (channel == this || found)
            return;
        lock_guard const inside(channel->mutex);
        id_record* const record = channel->ids.find(id);
        if (!record || record->pins.load(order::relaxed) == 0)
            return;
        if (record->has(id_status::owned) || record->named.load(order::relaxed) != 0) {
            channel->pin_record(*record);
            found = record;
        }
    });
    return found;
}

/// An event that C got, or one of ours that was released: that one has its pins still.
inline bool channel_state::adopt_event(rdma_cm_event* event, held_event& held, std::error_code& ec) noexcept {
    bool const brings_id = type_of(*event) == cm_event_type::connect_request;
    keep_record const elsewhere(brings_id ? find_elsewhere(event->id) : nullptr); // a new id may have migrated
    lock_guard const lock(mutex);
    id_record* const charged = ids.find(charged_id(*event));
    id_record* const here = brings_id ? ids.find(event->id) : nullptr;
    id_record* const child = here ? here : elsewhere.id;
    if (charged && charged->tally(type_of(*event)).released.load(order::relaxed) != 0) {
        charged->tally(type_of(*event)).released.fetch_sub(1, order::relaxed);
        held = {event, charged, child};
        if (child && child->has(id_status::lent))
            child->status.store(id_status::in_event);
        return true;
    }
    if (!replenish()) {
        ec = system_error_code(ENOMEM);
        return false;
    }
    ++counts.events_got;
    hold(event, held, child && child->has(id_status::owned) ? child : nullptr);
    return true;
}

/// No lock and no C call. The pins stay: only their number is kept, since which released event is which never matters.
inline void channel_state::release_event(held_event const& event) noexcept {
    event.charged->tally(type_of(*event.raw)).released.fetch_add(1, order::relaxed);
    if (event.child)
        event.child->status.replace(id_status::in_event, id_status::lent);
}

/// C first, then the pins; and a new id that nobody took is rejected and destroyed.
inline void channel_state::ack(held_event const& event) noexcept {
    if (inherited())
        return;
    if (is_of_join(*event.raw)) [[unlikely]]
        ack_of_join(event);
    else
        ack_any(event);
}

/// With the last one of a group whose membership, or id, was dropped, it is left.
inline void channel_state::ack_of_join(held_event const& event) noexcept {
    id_record& id = *event.charged;
    join_record* join;
    {
        lock_guard const lock(mutex);
        join = find_join(id, *event.raw);
        if (join)
            pin_record(id); // it is needed beyond the ack
    }
    ack_any(event);
    if (!join)
        return;
    std::error_code failure;
    rdma_cm_id const* const raw_id = id.raw;
    {
        lock_guard const leaving(join_mutex::get());
        lock_guard const lock(id.channel->mutex);
        if (--join->events == 0 && join->dropped)
            failure = leave_locked(*join);
    }
    report_failed_leave(raw_id, failure);
    unpin(&id);
}

inline void channel_state::ack_any(held_event const& event) noexcept {
    id_record& charged = *event.charged;
    id_record* const child = event.child;
    bool const abandoned = child && child->has(id_status::in_event);
    rdma_cm_id const* const child_raw = child ? child->raw : nullptr;
    bool last = false, last_of_foreign = false, last_of_child = false;
    {
        lock_guard const lock(mutex);
        --charged.tally(type_of(*event.raw)).held;
        ::rdma_ack_cm_event(event.raw);
        ++counts.events_acked;
        --counts.events_held;
        --charged.events;
        last = unpin_record(charged);
        last_of_foreign = last && charged.has(id_status::foreign);
        if (last_of_foreign && charged.listed) { // C's id: known only while events of it are held
            ids.erase(&charged);
            charged.listed = false;
            charged.next = spares;
            spares = &charged;
        }
        if (child) {
            child->named.fetch_sub(1, order::relaxed);
            last_of_child = unpin_record(*child);
            if (abandoned)
                ++counts.requests_rejected;
        }
    }
    if (abandoned) {
        child->channel->drop(*child);
        report({diagnostic_kind::request_rejected, "rdma_destroy_id", child_raw, {}});
    } else if (last_of_child)
        last_unpin(*child);
    if (last_of_foreign)
        unref();
    else if (last)
        last_unpin(charged);
}

} // namespace rdma::inline RDMACPP_ABI::detail

// ---- detail/id_qp_nodes.hpp -----------------------------------------------------------------------------------------
// The QP and SRQ of an id, and the CQs and channels that librdmacm makes for them: in a get's reach only while they are
// hooked to the id.

namespace rdma::inline RDMACPP_ABI::detail {

/// What the program gave for a QP or SRQ, to be kept alive by it.
struct qp_uses {
    pinnable* pd = nullptr;
    cq_node* send_cq = nullptr;
    cq_node* recv_cq = nullptr;
    pinnable* srq = nullptr;
    pinnable* xrcd = nullptr;
    pinnable* rwq_ind_tbl = nullptr;
    bool maybe_ex = true; // see qp_node
};

/// The node of a CQ that librdmacm makes, and of its channel.
struct own_cq_nodes {
    own_cq_nodes() noexcept = default;
    own_cq_nodes(own_cq_nodes const&) = delete;
    own_cq_nodes& operator=(own_cq_nodes const&) = delete;
    ~own_cq_nodes() {
        delete cq;
        delete channel;
    }

    bool allocate() noexcept {
        channel = new (std::nothrow) comp_channel_node;
        cq = new (std::nothrow) cq_node;
        return channel && cq;
    }

    /// Null if librdmacm made none after all. The caller gets the first pin.
    cq_node* open(ibv_cq* c, ibv_comp_channel* c_channel, id_record& id) noexcept {
        if (!cq || !c)
            return nullptr;
        channel->open(c_channel, {&id});
        cq->channel = channel;
        cq->open(c, {channel});
        unpin(take(channel));
        return take(cq);
    }

    comp_channel_node* channel = nullptr;
    cq_node* cq = nullptr;
};

/// The nodes for a QP, made before the C call, since nothing may fail after it; what is not used goes again.
struct id_qp_nodes {
    id_qp_nodes(bool own_send_cq, bool own_recv_cq) noexcept
        : complete(qp && (!own_send_cq || send.allocate()) && (!own_recv_cq || recv.allocate())) {}
    id_qp_nodes(id_qp_nodes const&) = delete;
    id_qp_nodes& operator=(id_qp_nodes const&) = delete;
    ~id_qp_nodes() { delete qp; }

    /// Gives the QP that C has just made for an id its pins: on what the program gave, and on what is the id's own.
    void hook(id_record& id, ibv_pd* default_pd, qp_uses const& given) noexcept {
        rdma_cm_id const& c = *id.raw;
        id.default_pd = default_pd;
        id.send_cq = send.open(c.send_cq, c.send_cq_channel, id);
        id.recv_cq = recv.open(c.recv_cq, c.recv_cq_channel, id);
        qp->maybe_ex = given.maybe_ex;
        id.qp = take(qp);
        pinnable* const recv_cq = given.recv_cq ? given.recv_cq : id.recv_cq ? id.recv_cq : id.srq_cq;
        id.qp->open(c.qp, {given.pd, given.send_cq ? given.send_cq : id.send_cq, recv_cq,
                           given.srq ? given.srq : id.srq, given.xrcd, given.rwq_ind_tbl, &id});
        unpin(id.send_cq); // kept by the QP, its events, and what the program makes with it
        unpin(id.recv_cq);
    }

    /// The same for a QP that C made: what it uses is kept, as far as it is ours.
    void adopt(id_record& id) noexcept {
        ibv_qp const& c = *id.raw->qp;
        verbs_node* known[4] = {};
        void const* const used[4] = {c.pd, id.raw->send_cq ? nullptr : c.send_cq, id.raw->recv_cq ? nullptr : c.recv_cq,
                                     id.raw->srq ? nullptr : c.srq};
        for (int i = 0; i != 4; ++i)
            if (verbs_table::get().find_and_pin(used[i], known[i]) != verbs_table::found::pinned)
                known[i] = nullptr;
        hook(id, id.raw->pd,
             {known[0], static_cast<cq_node*>(known[1]), static_cast<cq_node*>(known[2]), known[3], nullptr});
        for (verbs_node* const node : known)
            unpin(node);
    }

    qp_node* qp = new (std::nothrow) qp_node;
    own_cq_nodes send, recv;
    bool complete;
};

/// The same for an SRQ. librdmacm makes a CQ for an XRC one that is given none.
struct id_srq_nodes {
    explicit id_srq_nodes(bool own_cq) noexcept : complete(srq && (!own_cq || cq.allocate())) {}
    id_srq_nodes(id_srq_nodes const&) = delete;
    id_srq_nodes& operator=(id_srq_nodes const&) = delete;
    ~id_srq_nodes() { delete srq; }

    void hook(id_record& id, qp_uses const& given) noexcept {
        rdma_cm_id const& c = *id.raw;
        id.srq_cq = cq.open(c.recv_cq, c.recv_cq_channel, id);
        id.srq = take(srq);
        id.srq->open(c.srq, {given.pd, given.recv_cq ? given.recv_cq : id.srq_cq, given.xrcd, &id});
        unpin(id.srq_cq);
    }

    /// The same for an SRQ that C made.
    void adopt(id_record& id) noexcept {
        verbs_node* pd = nullptr;
        if (verbs_table::get().find_and_pin(id.raw->srq->pd, pd) != verbs_table::found::pinned)
            pd = nullptr;
        hook(id, {pd, nullptr, nullptr, nullptr, nullptr});
        unpin(pd);
    }

    srq_node* srq = new (std::nothrow) srq_node;
    own_cq_nodes cq;
    bool complete;
};

} // namespace rdma::inline RDMACPP_ABI::detail

// ---- cm_event.hpp ---------------------------------------------------------------------------------------------------
// A communication event, which acks itself: one get, one ack.

namespace rdma::inline RDMACPP_ABI {

class cm_id;

namespace detail {
struct event_access;
}

/// An event of an event channel: owned, move-only, acked exactly once.
///
/// While it is held it pins every id it names: an id dropped meanwhile is disconnected at once and destroyed with the
/// ack, so no order of destruction hangs. It may outlive its id, its listener and the channel object, be moved
/// anywhere, and be acked on any thread. A CONNECT_REQUEST owns the new id until take_id(): if nobody takes it, the
/// connection is rejected and the id destroyed with the event.
///
/// Every observer needs an event that is held: not moved from, acked or released (checked by RDMACPP_ASSERT).
class [[nodiscard]] cm_event {
public:
    /// No event.
    cm_event() noexcept = default;
    cm_event(cm_event&& other) noexcept : held_(detail::take(other.held_)) {}
    /// Acks the event held before, at once.
    cm_event& operator=(cm_event&& other) noexcept {
        cm_event(std::move(other)).swap(*this);
        return *this;
    }
    /// Acks the event (rdma_ack_cm_event), if it is still held. Never throws and never waits for anybody.
    ~cm_event() { ack(); }

#if RDMACPP_EXCEPTIONS
    /// Takes over an event that C got, or that release() gave back: the ids it names are pinned from here on.
    /// @throws rdma::error errc::null_handle; std::errc::not_enough_memory (then C still has it)
    cm_event(adopt_t, rdma_cm_event* raw) {
        std::error_code ec;
        *this = cm_event(adopt, raw, ec);
        if (ec)
            detail::throw_error(ec, "rdma_get_cm_event", {"adopt"});
    }
#endif
    /// The twin of the adopting constructor: on failure this is empty and C still has the event.
    cm_event(adopt_t, rdma_cm_event* raw, std::error_code& ec) noexcept {
        ec.clear();
        if (!raw) {
            ec = errc::null_handle;
            return;
        }
        detail::channel_state* const channel = detail::channel_state::borrow(detail::charged_id(*raw)->channel, ec);
        if (!channel)
            return;
        channel->adopt_event(raw, held_, ec);
        channel->unref(); // the pins keep it
    }

    /// Acks now (rdma_ack_cm_event), rather than at the end of the scope: releases the ids, and a listener's port.
    /// Views of private data die with it. Nothing happens on an empty event.
    void ack() noexcept {
        if (held_.raw)
            detail::channel_state::of(held_).ack(detail::take(held_));
    }

    /// Gives the C event back, to be acked with rdma_ack_cm_event. Its pins stay until it is adopted again.
    [[nodiscard]] rdma_cm_event* release() noexcept {
        if (held_.raw)
            detail::channel_state::release_event(held_);
        return detail::take(held_).raw;
    }

    /// The C event, still owned by this.
    rdma_cm_event* native_handle() const noexcept { return held_.raw; }
    explicit operator bool() const noexcept { return held_.raw != nullptr; }
    void swap(cm_event& other) noexcept { detail::swap_values(held_, other.held_); }
    friend void swap(cm_event& a, cm_event& b) noexcept { a.swap(b); }

    /// What happened. May be a value that this version does not know.
    cm_event_type type() const noexcept { return detail::type_of(raw()); }

    /// The raw status, as C gave it: 0, a negative errno, a transport's reject reason, or something librdmacm made up.
    int status() const noexcept { return raw().status; }

    /// The status, interpreted by event type, sign and transport: no error, an errno, a reject_reason, or
    /// errc::unspecified.
    std::error_code error() const noexcept;

    /// The id that the event is about: for a CONNECT_REQUEST the new one. It stays valid while the event is held.
    cm_id_ref id() const noexcept { return cm_id_ref(raw().id); }

    /// For a CONNECT_REQUEST the listener, otherwise empty.
    cm_id_ref listen_id() const noexcept { return cm_id_ref(raw().listen_id); }

#if RDMACPP_EXCEPTIONS
    /// Takes the new id of a CONNECT_REQUEST: it is the caller's then, to accept, reject or drop.
    /// @throws rdma::error errc::no_id_to_take for any other event, and the second time
    [[nodiscard]] cm_id take_id();
#endif
    /// The twin of take_id(): empty on failure.
    [[nodiscard]] cm_id take_id(std::error_code& ec) noexcept;

    /// The private data of the peer, in place: valid until the event is acked. Its size is an upper bound, see
    /// private_data. Empty when the event carries none: a rejection made by the network, or by a kernel, has no bytes
    /// of an application.
    /// (A template, so that who does not ask does not pay for it in compile time.)
    template <class Byte = std::byte>
    std::span<Byte const> private_data() const& noexcept {
        return {static_cast<Byte const*>(bytes()), size()};
    }
    template <class Byte = std::byte>
    std::span<Byte const> private_data() const&& = delete;

    /// A copy of the private data, which outlives the event.
    ::rdma::private_data copy_private_data() const noexcept { return ::rdma::private_data(bytes(), size()); }

    /// The private data as a `T`, if there are at least that many bytes: senders' padding is ignored.
    template <class T>
    std::optional<T> read_private_data() const noexcept {
        static_assert(std::is_trivially_copyable_v<T> && std::is_default_constructible_v<T>);
        if (size() < sizeof(T))
            return std::nullopt;
        T value;
        std::memcpy(&value, bytes(), sizeof value);
        return value;
    }

    /// The peer's parameters, in place: for a CONNECT_REQUEST, CONNECT_RESPONSE or ESTABLISHED of a connected id, else
    /// null: never the misread datagram half of C's union. Valid until the event is acked.
    rdma_conn_param const* param() const& noexcept;
    rdma_conn_param const* param() const&& = delete;

    /// The address vector, QP number and key to send datagrams to, in place: for an ESTABLISHED of a datagram id, a
    /// CONNECT_REQUEST or a MULTICAST_JOIN, else null. Valid until the event is acked.
    rdma_ud_param const* ud_param() const& noexcept;
    rdma_ud_param const* ud_param() const&& = delete;

    /// For a MULTICAST_JOIN or MULTICAST_ERROR the user's pointer of cm_id::join_multicast, else null.
    void* join_context() const noexcept {
        RDMACPP_ASSERT(held_.raw);
        return detail::channel_state::user_context_of_join(held_);
    }

    /// For an event of type USER what its writer put there, else 0 (rdma-core 60 and newer; cm_id::write_cm_event).
    template <class Id = rdma_cm_id>
        requires detail::has_write_cm_event<Id> std::uint64_t user_arg()
    const noexcept {
        std::uint64_t arg = 0;
        if (type() == cm_event_type::user)
            std::memcpy(&arg, &raw().param, sizeof arg);
        return arg;
    }

private:
    friend class event_channel;
    friend class request;
    friend struct detail::event_access;
    template <class, bool>
    friend class event_range;
    template <class, class, bool>
    friend class event_source;

    using channel_type = detail::channel_state;
    static constexpr char const* get_function = "rdma_get_cm_event";

    static detail::woken receive(channel_type& channel, cm_event& event, detail::deadline const& until,
                                 any_stop_token const& stop, wait_options options, std::error_code& ec) noexcept {
        return channel.get(event.held_, until, stop, options, ec);
    }
    static bool try_receive(channel_type& channel, cm_event& event, wait_options options,
                            std::error_code& ec) noexcept {
        return channel.try_get(event.held_, options, ec);
    }

    rdma_cm_event const& raw() const noexcept {
        RDMACPP_ASSERT(held_.raw);
        return *held_.raw;
    }

    bool carries_param() const noexcept;
    void const* bytes() const noexcept;
    std::size_t size() const noexcept;
    bool is_datagram() const noexcept { return raw().id->qp_type == IBV_QPT_UD; }

    detail::held_event held_;
};

static_assert(detail::move_only<cm_event> && detail::nothrow_empty<cm_event>);
static_assert(!detail::makes<cm_event, rdma_cm_event*> && !std::is_convertible_v<rdma_cm_event*, cm_event>);
static_assert(sizeof(cm_event) <= 3 * sizeof(void*));

/// Type, raw status with its meaning, ids and addresses, on one line: for logs.
std::string to_string(cm_event const& event);

// ---- Implementation ------------------------------------------------------------------------------------------------

inline std::error_code cm_event::error() const noexcept {
    int const status = raw().status;
    switch (type()) {
    case cm_event_type::rejected:
        if (status > 0) // iWARP reports a negative errno here, InfiniBand and RoCE the reason of the REJ message
            return static_cast<reject_reason>(status);
        break;
    case cm_event_type::unreachable:
        if (status > 0 && is_datagram()) // the status of a SIDR reply: 1 unsupported service, 2 rejected, 3 no QP ...
            return reject_reason::unsupported;
        break;
    case cm_event_type::user: return {}; // whatever its writer put there
    default: break;
    }
    if (status == 0)
        return {};
    if (status == -1)
        return errc::unspecified; // made up by librdmacm; it is not EPERM
    return detail::system_error_code(status);
}

/// librdmacm fills `param` for these alone.
inline bool cm_event::carries_param() const noexcept {
    switch (type()) {
    case cm_event_type::connect_request:
    case cm_event_type::connect_response:
    case cm_event_type::established:
    case cm_event_type::rejected:
    case cm_event_type::unreachable:
    case cm_event_type::connect_error:
    case cm_event_type::disconnected: return true;
    default: return false;
    }
}

/// Where the private data is; null if there is none.
inline void const* cm_event::bytes() const noexcept {
    if (!carries_param())
        return nullptr;
    return is_datagram() ? raw().param.ud.private_data : raw().param.conn.private_data;
}

inline std::size_t cm_event::size() const noexcept {
    if (!bytes())
        return 0;
    return is_datagram() ? raw().param.ud.private_data_len : raw().param.conn.private_data_len;
}

inline rdma_conn_param const* cm_event::param() const& noexcept {
    switch (type()) {
    case cm_event_type::connect_request:
    case cm_event_type::connect_response:
    case cm_event_type::established: return is_datagram() ? nullptr : &raw().param.conn;
    default: return nullptr;
    }
}

inline rdma_ud_param const* cm_event::ud_param() const& noexcept {
    switch (type()) {
    case cm_event_type::connect_request:
    case cm_event_type::established:
    case cm_event_type::multicast_join: return is_datagram() ? &raw().param.ud : nullptr;
    default: return nullptr;
    }
}

inline std::string to_string(cm_event const& event) {
    if (!event)
        return "no event";
    std::error_code const ec = event.error();
    std::string text =
        detail::concat({to_string(event.type()), ", status ", std::to_string(event.status()), ec ? " (" : "",
                        ec ? ec.message() : "", ec ? ")" : "", ", id ", to_string(event.id())});
    if (event.listen_id())
        text.append(detail::concat({", listener ", to_string(event.listen_id())}));
    return text;
}

} // namespace rdma::inline RDMACPP_ABI

// ---- event_source.hpp -----------------------------------------------------------------------------------------------
// Getting events, one by one or with a range-for: the same for every kind of event channel.

namespace rdma::inline RDMACPP_ABI {

/// The events of a channel as a lazy, single-pass range of `Event&&`, as std::generator would give it.
///
/// `begin()` and `++` never wait: `++` acks what was not moved away, `*` and the comparison with the sentinel wait for
/// the next event. So an event is always acked before the next get, also on `break` and when the body throws, and
/// `views::take(2)` gets two events, not three. The range keeps what it needs of the channel alive; it ends once the
/// channel object is gone, stop is requested, or (`pending()`) there is nothing more now.
/// @tparam Throws false for the twins with an error code: an error ends the range and is left in the code.
template <class Event, bool Throws>
class event_range {
    using state = typename Event::channel_type;

public:
    class iterator {
    public:
        using iterator_concept = std::input_iterator_tag;
        using value_type = Event;
        using difference_type = std::ptrdiff_t;

        iterator() noexcept = default;
        iterator(iterator&& other) noexcept
            : range_(other.range_), event_(std::move(other.event_)), slot_(other.slot_) {}
        iterator& operator=(iterator&& other) noexcept {
            range_ = other.range_;
            event_ = std::move(other.event_);
            slot_ = other.slot_;
            return *this;
        }

        /// The event; waits for it on the first call after `++`. Move it out to keep it: a second `*` never gets again.
        Event&& operator*() const noexcept(!Throws) {
            fill();
            return std::move(event_);
        }

        /// Acks the event, unless it was moved out. Never waits.
        iterator& operator++() noexcept {
            event_ = Event();
            if (slot_ == slot::filled)
                slot_ = slot::empty;
            return *this;
        }
        void operator++(int) noexcept { ++*this; }

        /// Waits for the next event; true when there will be none.
        friend bool operator==(iterator const& self, std::default_sentinel_t) noexcept(!Throws) {
            self.fill();
            return self.slot_ == slot::ended;
        }

    private:
        friend class event_range;
        enum class slot : unsigned char { empty, filled, ended };

        explicit iterator(event_range const& range) noexcept : range_(range) {}

        void fill() const noexcept(!Throws) {
            if (slot_ != slot::empty)
                return; // filled stays filled when the event is moved out
            std::error_code ec;
            bool const got = range_.next(event_, ec);
            slot_ = got ? slot::filled : slot::ended;
            if (!ec)
                return;
            if constexpr (Throws)
                detail::throw_error(ec, Event::get_function);
            else
                *range_.ec_ = ec;
        }

        event_range range_;
        mutable Event event_;
        mutable slot slot_ = slot::empty;
    };

    event_range() noexcept = default;
    event_range(event_range const& other) noexcept
        : state_(other.state_), stop_(other.stop_), ec_(other.ec_), drains_(other.drains_) {
        if (state_)
            state_->ref();
    }
    event_range& operator=(event_range const& other) noexcept {
        event_range copy(other);
        std::swap(state_, copy.state_);
        std::swap(stop_, copy.stop_);
        ec_ = copy.ec_;
        drains_ = copy.drains_;
        return *this;
    }
    ~event_range() {
        if (state_ && !state_->inherited())
            state_->unref();
    }

    iterator begin() noexcept { return iterator(*this); }
    std::default_sentinel_t end() noexcept { return {}; }

private:
    template <class, class, bool>
    friend class event_source;

    event_range(state* channel, any_stop_token stop, std::error_code* ec, bool drains) noexcept
        : state_(channel), stop_(std::move(stop)), ec_(ec), drains_(drains) {
        if (state_)
            state_->ref();
        if (ec_)
            ec_->clear();
    }

    bool next(Event& event, std::error_code& ec) const noexcept {
        if (!state_) {
            ec = errc::empty_handle;
            return false;
        }
        if (drains_)
            return !state_->room.closed() && Event::try_receive(*state_, event, {}, ec) && !ec;
        return Event::receive(*state_, event, detail::deadline::never(), stop_, {}, ec) == detail::woken::ready;
    }

    state* state_ = nullptr;
    any_stop_token stop_;
    std::error_code* ec_ = nullptr;
    bool drains_ = false;
};

/// What every event channel offers: one get in several forms, and ranges over it.
///
/// Each form waits for an event of this channel and hands it out as its owner: dropped, it is acked. All of them may be
/// used from several threads at once; each event goes to one of them. An empty optional means: none now (`try_get`),
/// none in time (`get_for`, `get_until`), stopped (`get` with a token). Signals do not end a wait, unless
/// `wait_options` say so.
///
/// Errors are those of the C function that gets the event; the forms with a trailing std::error_code& return an empty
/// event and set the code, the others throw rdma::error.
/// @tparam View whether Channel is a view, whose ranges may be taken of a temporary: what they need lives elsewhere.
template <class Channel, class Event, bool View = false>
class event_source {
public:
#if RDMACPP_EXCEPTIONS
    /// Waits for the next event, for ever. @throws rdma::error
    Event get(wait_options options = {}) const {
        std::error_code ec;
        Event event = get(options, ec);
        checked(ec);
        return event;
    }

    /// Gets an event if there is one; never waits. @throws rdma::error
    std::optional<Event> try_get() const {
        std::error_code ec;
        auto event = try_get(ec);
        checked(ec);
        return event;
    }

    /// Waits for the next event, at most this long (rounded up to milliseconds). @throws rdma::error
    std::optional<Event> get_for(timeout span, wait_options options = {}) const {
        std::error_code ec;
        auto event = get_for(span, options, ec);
        checked(ec);
        return event;
    }

    /// Waits for the next event, until this point in time of any clock. @throws rdma::error
    template <class Clock, class Duration>
    std::optional<Event> get_until(std::chrono::time_point<Clock, Duration> at, wait_options options = {}) const {
        return get_for(detail::until(at), options);
    }

    /// All events from now on: a range that waits, and ends with the channel object. @see event_range
    event_range<Event, true> events() const& noexcept { return {state(), {}, nullptr, false}; }
    event_range<Event, true> events() const&& requires(!View) = delete;

    /// The events that are there now: a range that never waits. @see event_range
    event_range<Event, true> pending() const& noexcept { return {state(), {}, nullptr, true}; }
    event_range<Event, true> pending() const&& requires(!View) = delete;

    /// The channel itself is the range events().
    auto begin() const& noexcept { return events().begin(); }
    auto begin() const&& requires(!View) = delete;
    std::default_sentinel_t end() const noexcept { return {}; }

    /// Waits for the next event until stop is requested. @throws rdma::error
    std::optional<Event> get(any_stop_token const& stop, wait_options options = {}) const {
        std::error_code ec;
        auto event = get(stop, options, ec);
        checked(ec);
        return event;
    }

    /// All events until stop is requested. @see event_range
    event_range<Event, true> events(any_stop_token stop) const& noexcept {
        return {state(), std::move(stop), nullptr, false};
    }
    event_range<Event, true> events(any_stop_token stop) const&& requires(!View) = delete;
#endif

    /// The twin of get().
    Event get(std::error_code& ec) const noexcept { return get(wait_options{}, ec); }
    Event get(wait_options options, std::error_code& ec) const noexcept {
        Event event;
        if (receive(event, detail::deadline::never(), {}, options, ec) == detail::woken::closed)
            ec = errc::empty_handle;
        return event;
    }

    /// The twin of try_get(): empty with no `ec` means nothing, empty with `ec` means broken.
    std::optional<Event> try_get(std::error_code& ec) const noexcept {
        ec.clear();
        Event event;
        if (!state())
            ec = errc::empty_handle;
        else if (Event::try_receive(*state(), event, {}, ec) && !ec)
            return event;
        return std::nullopt;
    }

    /// The twin of get_for().
    std::optional<Event> get_for(timeout span, std::error_code& ec) const noexcept { return get_for(span, {}, ec); }
    std::optional<Event> get_for(timeout span, wait_options options, std::error_code& ec) const noexcept {
        return maybe(detail::deadline::after(span), {}, options, ec);
    }

    /// The twin of get_until().
    template <class Clock, class Duration>
    std::optional<Event> get_until(std::chrono::time_point<Clock, Duration> at, std::error_code& ec) const noexcept {
        return get_for(detail::until(at), {}, ec);
    }
    template <class Clock, class Duration>
    std::optional<Event> get_until(std::chrono::time_point<Clock, Duration> at, wait_options options,
                                   std::error_code& ec) const noexcept {
        return get_for(detail::until(at), options, ec);
    }

    /// The twins of events() and pending(): an error ends the range and is left in `ec`, which must outlive it.
    event_range<Event, false> events(std::error_code& ec) const& noexcept { return {state(), {}, &ec, false}; }
    event_range<Event, false> events(std::error_code& ec) const&& requires(!View) = delete;
    event_range<Event, false> pending(std::error_code& ec) const& noexcept { return {state(), {}, &ec, true}; }
    event_range<Event, false> pending(std::error_code& ec) const&& requires(!View) = delete;

    /// The twin of get(stop_token).
    std::optional<Event> get(any_stop_token const& stop, std::error_code& ec) const noexcept {
        return get(stop, {}, ec);
    }
    std::optional<Event> get(any_stop_token const& stop, wait_options options, std::error_code& ec) const noexcept {
        return maybe(detail::deadline::never(), stop, options, ec);
    }

    /// The twin of events(stop_token).
    event_range<Event, false> events(any_stop_token stop, std::error_code& ec) const& noexcept {
        return {state(), std::move(stop), &ec, false};
    }
    event_range<Event, false> events(any_stop_token stop, std::error_code& ec) const&& requires(!View) = delete;

private:
    auto* state() const noexcept { return static_cast<Channel const*>(this)->channel(); }

    detail::woken receive(Event& event, detail::deadline const& until, any_stop_token const& stop, wait_options options,
                          std::error_code& ec) const noexcept {
        if (state())
            return Event::receive(*state(), event, until, stop, options, ec);
        ec = errc::empty_handle;
        return detail::woken::failed;
    }

    std::optional<Event> maybe(detail::deadline const& until, any_stop_token const& stop, wait_options options,
                               std::error_code& ec) const noexcept {
        Event event;
        if (receive(event, until, stop, options, ec) == detail::woken::ready)
            return event;
        return std::nullopt;
    }

#if RDMACPP_EXCEPTIONS
    static void checked(std::error_code ec) {
        if (ec)
            detail::throw_error(ec, Event::get_function);
    }
#endif
};

} // namespace rdma::inline RDMACPP_ABI

template <class Event, bool Throws>
inline constexpr bool std::ranges::enable_view<::rdma::event_range<Event, Throws>> = true;

// ---- event_channel.hpp ----------------------------------------------------------------------------------------------
// Event channels: where the events of ids arrive.

namespace rdma::inline RDMACPP_ABI {

/// A borrowed event channel: one that C still loops on, or an event_channel. Ids can be made on it, and adopted; its
/// events are got by whoever owns it. It cannot turn into an owner.
///
/// While C gets the events, drop ids with a QP on the thread that gets: librdmacm looks at `id->qp` without a lock
/// there.
class event_channel_ref {
public:
    event_channel_ref() noexcept = default;
    explicit event_channel_ref(rdma_event_channel* raw) noexcept : raw_(raw) {}

    /// The C channel; null when empty.
    rdma_event_channel* native_handle() const noexcept { return raw_; }
    explicit operator bool() const noexcept { return raw_ != nullptr; }

    /// The descriptor, for an event loop: readable when there may be an event. -1 when empty.
    int fd() const noexcept { return raw_ ? raw_->fd : -1; }

    friend bool operator==(event_channel_ref a, event_channel_ref b) noexcept { return a.raw_ == b.raw_; }

private:
    rdma_event_channel* raw_ = nullptr;
};

/// An owned event channel (rdma_create_event_channel), and a range over its events:
///
///     for (rdma::cm_event event : channel) { ... }   // waits; acks at the end of each turn, on break, on throw
///
/// The C channel is always non-blocking; the waiting is done here, so that it can be timed, stopped and interrupted.
/// The object may be dropped before its ids, its events and its iterators: the C channel is destroyed with the last of
/// them. Moving the object moves no C object. Any thread may get events while others make, use and drop ids.
class [[nodiscard]] event_channel : public event_source<event_channel, cm_event> {
public:
#if RDMACPP_EXCEPTIONS
    /// Opens a channel.
    /// @throws rdma::error the errno of rdma_create_event_channel: ENODEV (no RDMA device), ENOENT (module rdma_ucm
    /// missing), EACCES, EMFILE; std::errc::not_enough_memory
    event_channel() {
        std::error_code ec;
        state_ = detail::channel_state::open(ec);
        if (ec)
            detail::throw_error(ec, "rdma_create_event_channel");
    }
    /// Takes over a channel that C opened, or that release() gave back; it becomes non-blocking, for C too.
    /// @throws rdma::error errc::null_handle, errc::already_owned
    event_channel(adopt_t, rdma_event_channel* raw) {
        std::error_code ec;
        state_ = detail::channel_state::adopt(raw, ec);
        if (ec)
            detail::throw_error(ec, "rdma_create_event_channel", {"adopt"});
    }
#endif
    /// The twin of the opening constructor: empty on failure.
    explicit event_channel(std::error_code& ec) noexcept : state_(detail::channel_state::open(ec)) {}
    /// The twin of the adopting constructor: empty on failure.
    event_channel(adopt_t, rdma_event_channel* raw, std::error_code& ec) noexcept
        : state_(detail::channel_state::adopt(raw, ec)) {}
    /// Empty: nothing is opened.
    explicit event_channel(no_init_t) noexcept {}

    event_channel(event_channel&& other) noexcept : state_(detail::take(other.state_)) {}
    /// Drops the channel held before.
    event_channel& operator=(event_channel&& other) noexcept {
        event_channel(std::move(other)).swap(*this);
        return *this;
    }
    /// Drops the channel: waits on it end, and the C channel is destroyed (rdma_destroy_event_channel) when no id,
    /// event or iterator needs it any more. Never waits.
    ~event_channel() {
        if (state_)
            state_->close();
    }

    /// The C channel, still owned by this; null when empty.
    rdma_event_channel* native_handle() const noexcept { return state_ ? state_->raw : nullptr; }
    explicit operator bool() const noexcept { return state_ != nullptr; }

    /// The descriptor, for anybody's event loop (poll, epoll, io_uring): readable when there may be an event, to be got
    /// with try_get() or pending(). Close-on-exec. -1 when empty.
    int fd() const noexcept { return state_ ? state_->raw->fd : -1; }

    /// Gives the C channel back, blocking as it was; takes no lock and makes no C call. Ids and events made on it go on
    /// working, as long as C does not destroy it.
    [[nodiscard]] rdma_event_channel* release() noexcept { return state_ ? detail::take(state_)->release() : nullptr; }

    void swap(event_channel& other) noexcept { detail::swap_values(state_, other.state_); }
    friend void swap(event_channel& a, event_channel& b) noexcept { a.swap(b); }

    operator event_channel_ref() const& noexcept { return event_channel_ref(native_handle()); }
    operator event_channel_ref() const&& = delete;

    /// What went through the channel, and what is put off. All zero when empty.
    channel_stats stats() const noexcept { return state_ ? state_->stats() : channel_stats(); }

    friend std::string to_string(event_channel const& channel);

private:
    friend class event_source<event_channel, cm_event>;
    friend struct detail::event_access;
    detail::channel_state* channel() const noexcept { return state_; }

    detail::channel_state* state_ = nullptr;
};

static_assert(detail::move_only<event_channel>);
static_assert(std::is_trivially_copyable_v<event_channel_ref> && sizeof(event_channel_ref) == sizeof(void*));
static_assert(!detail::makes<event_channel, event_channel_ref> && !detail::makes<event_channel, rdma_event_channel*>);
static_assert(sizeof(event_channel) == sizeof(void*));

/// For a stuck process: the counters, then each id that was dropped and waits for its last ack, with the events held of
/// it.
inline std::string to_string(event_channel const& channel) {
    if (!channel)
        return "no event channel";
    channel_stats const now = channel.stats();
    std::string text =
        detail::concat({"event channel, fd ", std::to_string(channel.fd()), ": ", std::to_string(now.events_got),
                        " events got, ", std::to_string(now.events_acked), " acked, ", std::to_string(now.events_held),
                        " held; ", std::to_string(now.ids_live), " ids live, ", std::to_string(now.ids_awaiting_ack),
                        " awaiting their last ack"});
    detail::lock_guard const lock(channel.state_->mutex);
    channel.state_->ids.for_each([&text](detail::id_record const* id) {
        if (!id->has(detail::id_status::dropped) || id->pins.load(detail::order::relaxed) == 0)
            return;
        text.append(detail::concat({"\n  id ", to_string(cm_id_ref(id->raw)), " is held by"}));
        std::uint32_t const named = id->named.load(detail::order::relaxed);
        if (id->events == 0 && named == 0)
            text.append(std::string_view(" what was made from it"));
        for (std::size_t i = 0; i != detail::id_record::tallies; ++i)
            if (std::uint32_t const held = id->held_events[i].held; held != 0)
                text.append(
                    detail::concat({" ", std::to_string(held), " x ", to_string(static_cast<cm_event_type>(i))}));
        if (named != 0)
            text.append(detail::concat({" ", std::to_string(named), " x CONNECT_REQUEST that brought it"}));
    });
    return text;
}

} // namespace rdma::inline RDMACPP_ABI

template <>
struct std::hash<::rdma::event_channel_ref> {
    std::size_t operator()(::rdma::event_channel_ref handle) const noexcept {
        return std::hash<void const*>()(handle.native_handle());
    }
};

// ---- membership.hpp -------------------------------------------------------------------------------------------------
// Membership in a multicast group.

namespace rdma::inline RDMACPP_ABI {

/// How an id joins a multicast group (rdma_cm_mc_join_flags).
enum class join_flag {
    /// To send and receive.
    fullmember = 0,
    /// Only to send: the QP is not attached to the group.
    sendonly_fullmember = detail::mc_join_flag_sendonly_fullmember,
};

/// An id's membership in a multicast group, of cm_id::join_multicast: it leaves when it is dropped.
///
/// The outcome of the join arrives as MULTICAST_JOIN, on whose reading librdmacm attaches the id's QP, so make that
/// first; or as MULTICAST_ERROR, after which the membership is still to be dropped. It may be dropped at any time,
/// before or after its id, whatever events are held: the QP is detached at once, and rdma_leave_multicast, which waits
/// for every event of the group to be acked, runs with the last ack. When its id is dropped the group is left, too. One
/// thread at a time may use one membership.
class [[nodiscard]] membership {
public:
    /// Empty.
    membership() noexcept = default;
    membership(membership&& other) noexcept : join_(detail::take(other.join_)), born_in_(other.born_in_) {}
    /// Leaves the group of before.
    membership& operator=(membership&& other) noexcept {
        membership(std::move(other)).swap(*this);
        return *this;
    }
    /// Leaves the group (rdma_leave_multicast, now or with the last ack). Never throws, never waits for an ack.
    ~membership() {
        if (join_ && born_in_ == detail::process::current())
            detail::channel_state::drop_join(*join_);
    }

    /// True until it was left, moved from, or made empty; also when its id has gone and taken the group with it.
    explicit operator bool() const noexcept { return join_ != nullptr; }

    /// The address that was joined.
    address group() const noexcept { return join_ ? join_->group : address(); }

    /// The user's pointer of the join, as cm_event::join_context gives it; not private data.
    void* user_context() const noexcept { return join_ ? join_->user_context : nullptr; }

#if RDMACPP_EXCEPTIONS
    /// Leaves now (rdma_leave_multicast); empty afterwards, also after an error of C's, which has forgotten the group
    /// then.
    /// @throws rdma::error std::errc::resource_deadlock_would_occur while events of the group are held, saying how
    /// many: then it is still a member; errc::empty_handle
    void leave() {
        std::error_code ec;
        if (std::uint32_t const held = leave_unless_held(ec); ec)
            detail::throw_error(ec, "rdma_leave_multicast", {std::to_string(held), " events held"});
    }
#endif
    /// The twin of leave().
    void leave(std::error_code& ec) noexcept { leave_unless_held(ec); }

    void swap(membership& other) noexcept {
        detail::swap_values(join_, other.join_);
        detail::swap_values(born_in_, other.born_in_);
    }
    friend void swap(membership& a, membership& b) noexcept { a.swap(b); }

private:
    friend class cm_id;
    explicit membership(detail::join_record* join) noexcept : join_(join) {}

    std::uint32_t leave_unless_held(std::error_code& ec) noexcept {
        std::uint32_t held = 0;
        if (!join_) {
            ec = errc::empty_handle;
            return held;
        }
        ec = detail::channel_state::leave(*join_, held);
        if (held == 0)
            detail::take(join_)->unref();
        return held;
    }

    detail::join_record* join_ = nullptr;
    unsigned born_in_ = detail::process::current();
};

static_assert(detail::move_only<membership> && detail::nothrow_empty<membership>);

} // namespace rdma::inline RDMACPP_ABI

// ---- pd.hpp ---------------------------------------------------------------------------------------------------------
// Protection domains.

namespace rdma::inline RDMACPP_ABI {

namespace detail {
struct pd_node : node_of<pd_node, ibv_pd> {
    using node_of::node_of;
    static constexpr char const* made_by = "ibv_alloc_pd";
    static constexpr char const* ended_by = "ibv_dealloc_pd";
    static constexpr char const* unimported_by = "ibv_unimport_pd";
    static int end(ibv_pd* pd) noexcept { return ::ibv_dealloc_pd(pd); }
    static void unimport(ibv_pd* pd) noexcept { ::ibv_unimport_pd(pd); }
};
} // namespace detail

/// A borrowed protection domain: of a pd, or an id's own (cm_id::pd), which belongs to librdmacm. It frees nothing and
/// cannot turn into an owner; what is made from it keeps the pd, or the id's C object, alive.
class pd_ref : public verbs_ref<pd_ref, ibv_pd> {
public:
    using verbs_ref::verbs_ref;
};

/// An owned protection domain (ibv_alloc_pd). To use it with an id, make it from that id's context: cm_id::verbs.
class [[nodiscard]] pd : public verbs_owner<detail::pd_node, pd_ref> {
public:
    using verbs_owner::verbs_owner;
    /// Empty.
    pd() noexcept = default;

#if RDMACPP_EXCEPTIONS
    /// Allocates a protection domain on a device.
    /// @throws rdma::error errc::not_bound for an empty context; the errno of ibv_alloc_pd
    explicit pd(context_ref context) {
        std::error_code ec;
        *this = pd(context, ec);
        if (ec)
            detail::throw_error(ec, "ibv_alloc_pd", {context.device_name()});
    }
#endif
    /// The twin of the allocating constructor: empty on failure.
    pd(context_ref context, std::error_code& ec) noexcept {
        if (auto* const node = fresh_node(static_cast<bool>(context), ec))
            own(::ibv_alloc_pd(context.native_handle()), node, {detail::keeper(context)}, ec);
    }

    /// The PD of another process, by its handle on a context that was imported, too (ibv_import_pd). Dropped, it is
    /// only forgotten (ibv_unimport_pd).
    static pd import_pd(context_ref context, std::uint32_t handle, std::error_code& ec) noexcept {
        pd imported;
        if (auto* const node = fresh_node(static_cast<bool>(context), ec, detail::imported_t()))
            imported.own(::ibv_import_pd(context.native_handle(), handle), node, {detail::keeper(context)}, ec);
        return imported;
    }
#if RDMACPP_EXCEPTIONS
    /// The throwing form of import_pd. @throws rdma::error
    static pd import_pd(context_ref context, std::uint32_t handle) {
        std::error_code ec;
        pd imported = import_pd(context, handle, ec);
        if (ec)
            detail::throw_error(ec, "ibv_import_pd");
        return imported;
    }
#endif
};

static_assert(std::is_trivially_copyable_v<pd_ref>);
static_assert(detail::move_only<pd>);
static_assert(!detail::makes<pd, pd_ref> && !detail::makes<pd, ibv_pd*>);

} // namespace rdma::inline RDMACPP_ABI

template <>
struct std::hash<::rdma::pd_ref> : ::rdma::RDMACPP_ABI::detail::ref_hash<::rdma::pd_ref> {};

// ---- cq_event.hpp ---------------------------------------------------------------------------------------------------
// A completion event, which acks itself.

namespace rdma::inline RDMACPP_ABI {

namespace detail {
struct completion_wait;
}

/// The news that a CQ which was armed has a completion: owned, move-only, acked exactly once.
///
/// While it is held it keeps its CQ alive (ibv_destroy_cq would wait for the ack for ever). C is told of acks in
/// batches, one CQ at a time, and of the rest before the CQ is destroyed.
class [[nodiscard]] cq_event {
public:
    /// No event.
    cq_event() noexcept = default;
    /// Takes over an event that C got: it must not ack it then.
    cq_event(adopt_t, ibv_cq* raw) noexcept : cq_(raw) {
        if (detail::verbs_table::get().find_and_pin(raw, node_) != detail::verbs_table::found::pinned)
            node_ = nullptr;
    }
    cq_event(cq_event&& other) noexcept
        : cq_(detail::take(other.cq_)), node_(detail::take(other.node_)), born_in_(other.born_in_) {}
    /// Acks the event held before, at once.
    cq_event& operator=(cq_event&& other) noexcept {
        cq_event(std::move(other)).swap(*this);
        return *this;
    }
    /// Acks the event, if it is still held. Never waits for anybody.
    ~cq_event() { ack(); }

    /// Acks now, rather than at the end of the scope (ibv_ack_cq_events, perhaps later, together with others).
    void ack() noexcept {
        ibv_cq* const cq = detail::take(cq_);
        detail::verbs_node* const node = detail::take(node_);
        if (!cq || born_in_ != detail::process::current())
            return;
        if (!node) {
            ::ibv_ack_cq_events(cq, 1); // a CQ of C's
            return;
        }
        node->settle_later(cq, 1);
        detail::unpin(node);
    }

    /// Gives up the event: C must ack it (ibv_ack_cq_events). Its CQ stays pinned until then is known, that is, for
    /// good.
    [[nodiscard]] ibv_cq* release() noexcept {
        node_ = nullptr;
        return detail::take(cq_);
    }

    /// The C completion queue it names; null when empty.
    ibv_cq* native_handle() const noexcept { return cq_; }
    explicit operator bool() const noexcept { return cq_ != nullptr; }
    void swap(cq_event& other) noexcept {
        detail::swap_values(cq_, other.cq_);
        detail::swap_values(node_, other.node_);
        detail::swap_values(born_in_, other.born_in_);
    }
    friend void swap(cq_event& a, cq_event& b) noexcept { a.swap(b); }

    /// The pointer given when the CQ was made.
    void* cq_context() const noexcept { return cq_ ? cq_->cq_context : nullptr; }

private:
    friend struct detail::completion_wait;
    template <class, bool>
    friend class event_range;
    template <class, class, bool>
    friend class event_source;

    using channel_type = detail::comp_channel_node;
    static constexpr char const* get_function = "ibv_get_cq_event";

    /// Gets what C has. @return false: nothing now
    static bool try_get(channel_type& channel, ibv_cq*& cq, wait_options options, std::error_code& ec) noexcept {
        channel.never_block();
        void* context = nullptr;
        return detail::gave([&]() noexcept { return ::ibv_get_cq_event(channel.object(), &cq, &context); }, options,
                            ec);
    }

    static bool try_receive(channel_type& channel, cq_event& event, wait_options options,
                            std::error_code& ec) noexcept {
        using found = detail::verbs_table::found;
        for (ibv_cq* cq = nullptr; try_get(channel, cq, options, ec);) {
            if (ec)
                return true;
            detail::verbs_node* node = nullptr;
            if (detail::verbs_table::get().find_and_pin(cq, node) == found::dying) {
                ::ibv_ack_cq_events(cq, 1); // its owner is gone: swallowed
                continue;
            }
            event = cq_event();
            event.cq_ = cq;
            event.node_ = node;
            return true;
        }
        return false;
    }

    static detail::woken receive(channel_type& channel, cq_event& event, detail::deadline const& until,
                                 any_stop_token const& stop, wait_options options, std::error_code& ec) noexcept {
        ec.clear();
        detail::keep const while_it_waits(&channel);
        return detail::get_or_wait(channel.room, static_cast<ibv_comp_channel*>(channel.raw)->fd, until, stop, options,
                                   ec, [&]() noexcept { return try_receive(channel, event, options, ec); });
    }

    ibv_cq* cq_ = nullptr;
    detail::verbs_node* node_ = nullptr;
    unsigned born_in_ = detail::process::current();
};

static_assert(detail::move_only<cq_event>);

} // namespace rdma::inline RDMACPP_ABI

// ---- comp_channel.hpp -----------------------------------------------------------------------------------------------
// Completion channels: where CQs that were armed report.

namespace rdma::inline RDMACPP_ABI {

/// A borrowed completion channel: of a comp_channel, or one that librdmacm made for an id. It cannot turn into an
/// owner.
class comp_channel_ref : public verbs_ref<comp_channel_ref, ibv_comp_channel, detail::comp_channel_node>,
                         public event_source<comp_channel_ref, cq_event, true> {
public:
    using verbs_ref::verbs_ref;

    /// The descriptor, for an event loop: readable when there may be an event. -1 when empty.
    int fd() const noexcept { return raw_ ? raw_->fd : -1; }

private:
    friend class event_source<comp_channel_ref, cq_event, true>;
    detail::comp_channel_node* channel() const noexcept { return keeper_; }
};

/// An owned completion channel (ibv_create_comp_channel), always non-blocking. Its events are got as those of an
/// event_channel are: see event_source.
class [[nodiscard]] comp_channel : public verbs_owner<detail::comp_channel_node, comp_channel_ref>,
                                   public event_source<comp_channel, cq_event> {
public:
    /// Empty.
    comp_channel() noexcept = default;
    comp_channel(comp_channel&&) noexcept = default;
    /// Destroys the channel held before.
    comp_channel& operator=(comp_channel&& other) noexcept {
        comp_channel(std::move(other)).swap(*this);
        return *this;
    }
    /// Ends all waits; the C channel is destroyed with the last CQ that uses it.
    ~comp_channel() {
        if (node_ && !node_->inherited())
            node_->room.close();
    }

#if RDMACPP_EXCEPTIONS
    /// Makes a completion channel on a device.
    /// @throws rdma::error errc::not_bound for an empty context; the errno of ibv_create_comp_channel
    explicit comp_channel(context_ref context) {
        std::error_code ec;
        *this = comp_channel(context, ec);
        if (ec)
            detail::throw_error(ec, "ibv_create_comp_channel", {context.device_name()});
    }
    /// Takes over a channel that C made, or that release() gave back; it becomes non-blocking, for C too.
    /// @throws rdma::error errc::null_handle, errc::already_owned
    comp_channel(adopt_t, ibv_comp_channel* raw) {
        std::error_code ec;
        *this = comp_channel(adopt, raw, ec);
        if (ec)
            detail::throw_error(ec, "ibv_create_comp_channel", {"adopt"});
    }
#endif
    /// The twin of the creating constructor: empty on failure.
    comp_channel(context_ref context, std::error_code& ec) noexcept {
        if (auto* const node = fresh_node(static_cast<bool>(context), ec))
            own(::ibv_create_comp_channel(context.native_handle()), node, {detail::keeper(context)}, ec);
        if (node_)
            node_->never_block();
    }
    /// The twin of the adopting constructor: empty on failure.
    comp_channel(adopt_t, ibv_comp_channel* raw, std::error_code& ec) noexcept : verbs_owner(adopt, raw, ec) {
        if (node_)
            node_->never_block();
    }

    /// Gives the C channel back, blocking as C made it.
    [[nodiscard]] ibv_comp_channel* release() noexcept {
        // A forked child shares the description with its parent.
        if (node_ && !node_->inherited() && node_->nonblocking.exchange(false, detail::order::relaxed))
            ::fcntl(raw_->fd, F_SETFL, ::fcntl(raw_->fd, F_GETFL) & ~O_NONBLOCK);
        return verbs_owner::release();
    }

    /// The descriptor, for an event loop: readable when there may be an event. -1 when empty.
    int fd() const noexcept { return raw_ ? raw_->fd : -1; }

private:
    friend class event_source<comp_channel, cq_event>;
    detail::comp_channel_node* channel() const noexcept { return node_; }
};

static_assert(std::is_trivially_copyable_v<comp_channel_ref>);
static_assert(detail::move_only<comp_channel>);
static_assert(!detail::makes<comp_channel, comp_channel_ref> && !detail::makes<comp_channel, ibv_comp_channel*>);

} // namespace rdma::inline RDMACPP_ABI

template <>
struct std::hash<::rdma::comp_channel_ref> : ::rdma::RDMACPP_ABI::detail::ref_hash<::rdma::comp_channel_ref> {};

// ---- work_completion.hpp --------------------------------------------------------------------------------------------
// What became of a work request.

namespace rdma::inline RDMACPP_ABI {

/// Whether a work request succeeded, or why not (ibv_wc_status).
enum class wc_status {
    success = IBV_WC_SUCCESS,             ///< It is done.
    loc_len_err = IBV_WC_LOC_LEN_ERR,     ///< The message is longer than the receive, or than the device can.
    loc_qp_op_err = IBV_WC_LOC_QP_OP_ERR, ///< The request makes no sense for this QP.
    loc_eec_op_err = IBV_WC_LOC_EEC_OP_ERR,
    loc_prot_err =
        IBV_WC_LOC_PROT_ERR, ///< Local memory is not of a region that allows it: a wrong lkey, address or length.
    wr_flush_err = IBV_WC_WR_FLUSH_ERR,     ///< The QP went into its error state first: the connection is over.
    mw_bind_err = IBV_WC_MW_BIND_ERR,       ///< The window could not be bound.
    bad_resp_err = IBV_WC_BAD_RESP_ERR,     ///< The peer answered nonsense.
    loc_access_err = IBV_WC_LOC_ACCESS_ERR, ///< A peer wrote where this region does not allow it.
    rem_inv_req_err =
        IBV_WC_REM_INV_REQ_ERR, ///< The peer cannot do this: too long for its receive, or not allowed on its QP.
    rem_access_err =
        IBV_WC_REM_ACCESS_ERR,      ///< The peer's region does not allow it: a wrong rkey, address, length or access.
    rem_op_err = IBV_WC_REM_OP_ERR, ///< The peer could not do it.
    retry_exc_err = IBV_WC_RETRY_EXC_ERR,         ///< The peer does not answer: gone, or the network is.
    rnr_retry_exc_err = IBV_WC_RNR_RETRY_EXC_ERR, ///< The peer has posted no receive, for too long.
    loc_rdd_viol_err = IBV_WC_LOC_RDD_VIOL_ERR,
    rem_inv_rd_req_err = IBV_WC_REM_INV_RD_REQ_ERR,
    rem_abort_err = IBV_WC_REM_ABORT_ERR, ///< The peer has ended it.
    inv_eecn_err = IBV_WC_INV_EECN_ERR,
    inv_eec_state_err = IBV_WC_INV_EEC_STATE_ERR,
    fatal_err = IBV_WC_FATAL_ERR,               ///< The device has failed.
    resp_timeout_err = IBV_WC_RESP_TIMEOUT_ERR, ///< The answer did not come in time.
    general_err = IBV_WC_GENERAL_ERR,           ///< Something else.
    tm_err = IBV_WC_TM_ERR,
    tm_rndv_incomplete = IBV_WC_TM_RNDV_INCOMPLETE,
};

/// The name and meaning of a status, as libibverbs gives it.
inline std::string to_string(wc_status status) { return ::ibv_wc_status_str(static_cast<ibv_wc_status>(status)); }

/// Which operation completed (ibv_wc_opcode).
enum class wc_opcode {
    send = IBV_WC_SEND,
    rdma_write = IBV_WC_RDMA_WRITE,
    rdma_read = IBV_WC_RDMA_READ,
    comp_swap = IBV_WC_COMP_SWAP,
    fetch_add = IBV_WC_FETCH_ADD,
    bind_mw = IBV_WC_BIND_MW,
    local_inv = IBV_WC_LOCAL_INV,
    tso = IBV_WC_TSO,
    flush = 8,        ///< `IBV_WC_FLUSH`, of rdma-core 50.
    atomic_write = 9, ///< `IBV_WC_ATOMIC_WRITE`, of rdma-core 44.
    recv = IBV_WC_RECV,
    recv_rdma_with_imm = IBV_WC_RECV_RDMA_WITH_IMM,
    tm_add = IBV_WC_TM_ADD,
    tm_del = IBV_WC_TM_DEL,
    tm_sync = IBV_WC_TM_SYNC,
    tm_recv = IBV_WC_TM_RECV,
    tm_no_tag = IBV_WC_TM_NO_TAG,
    driver1 = IBV_WC_DRIVER1,
    driver2 = IBV_WC_DRIVER1 + 1, ///< `IBV_WC_DRIVER2`, of rdma-core 39.
    driver3 = IBV_WC_DRIVER1 + 2, ///< `IBV_WC_DRIVER3`, likewise.
};

/// What is known of a work request that succeeded; only work_completion::success gives one.
class completed {
public:
    /// Which operation it was.
    wc_opcode opcode() const noexcept { return static_cast<wc_opcode>(wc_->opcode); }
    /// How many bytes were received, or read. Meaningless for a send or a write.
    std::uint32_t byte_len() const noexcept { return wc_->byte_len; }
    /// The immediate data, in network byte order as C has it, if there is any. (A template, so that who does not ask
    /// does not pay for it in compile time.)
    template <class Data = std::uint32_t>
    std::optional<Data> imm_data() const noexcept {
        return wc_->wc_flags & IBV_WC_WITH_IMM ? std::optional<Data>(wc_->imm_data) : std::nullopt;
    }
    /// The key that the sender took back (send_wr::send_inv), if it took one.
    template <class Key = std::uint32_t>
    std::optional<Key> invalidated_rkey() const noexcept {
        return wc_->wc_flags & IBV_WC_WITH_INV ? std::optional<Key>(wc_->invalidated_rkey) : std::nullopt;
    }
    /// The QP that sent it; for datagrams.
    std::uint32_t src_qp() const noexcept { return wc_->src_qp; }
    /// Whether the buffer of a datagram begins with an ibv_grh: else those bytes mean nothing.
    bool has_grh() const noexcept { return wc_->wc_flags & IBV_WC_GRH; }
    /// @name Of the sender of a datagram, on InfiniBand.
    /// @{
    std::uint16_t slid() const noexcept { return wc_->slid; }
    std::uint8_t sl() const noexcept { return wc_->sl; }
    std::uint8_t dlid_path_bits() const noexcept { return wc_->dlid_path_bits; }
    std::uint16_t pkey_index() const noexcept { return wc_->pkey_index; }
    /// @}
    /// Flags of ibv_wc_flags.
    unsigned wc_flags() const noexcept { return wc_->wc_flags; }

private:
    friend class work_completion;
    explicit completed(ibv_wc const& wc) noexcept : wc_(&wc) {}
    ibv_wc const* wc_;
};

/// A polled completion: an ibv_wc that does not show what C leaves undefined. After a failure only the request's id,
/// the status, the QP number and the vendor's code mean anything; the rest is reached through success() alone.
class work_completion {
public:
    /// To be polled into: until then it holds nothing that means anything.
    work_completion() noexcept {} // NOLINT: zeroing an array of them would cost what C does not pay
    /// A copy of one that C polled.
    explicit work_completion(ibv_wc const& wc) noexcept : wc_(wc) {}

    /// What the request was numbered.
    std::uint64_t wr_id() const noexcept { return wc_.wr_id; }
    /// Whether it succeeded, or why not.
    wc_status status() const noexcept { return static_cast<wc_status>(wc_.status); }
    /// The number of the QP that it was posted to.
    std::uint32_t qp_num() const noexcept { return wc_.qp_num; }
    /// The device's own code for a failure.
    std::uint32_t vendor_err() const noexcept { return wc_.vendor_err; }

    /// True if the request succeeded.
    explicit operator bool() const noexcept { return wc_.status == IBV_WC_SUCCESS; }

    /// The rest of a successful completion, valid as long as this object. Precondition, asserted: it succeeded.
    completed success() const& noexcept {
        RDMACPP_ASSERT(wc_.status == IBV_WC_SUCCESS);
        return completed(wc_);
    }
    completed success() const&& = delete;

    /// The C completion, with all its undefined fields.
    ibv_wc const& native_handle() const noexcept { return wc_; }

private:
    ibv_wc wc_;
};

// ibv_poll_cq writes into an array of these.
static_assert(std::is_standard_layout_v<work_completion> && std::is_trivially_copyable_v<work_completion>);
static_assert(sizeof(work_completion) == sizeof(ibv_wc) && alignof(work_completion) == alignof(ibv_wc));

} // namespace rdma::inline RDMACPP_ABI

// ---- cq.hpp ---------------------------------------------------------------------------------------------------------
// Completion queues, and waiting for completions without losing a wake-up.

namespace rdma::inline RDMACPP_ABI {

class cq_ref;

namespace detail {

/// Waiting for completions without losing a wake-up: drains, arms, drains again, and only then waits. Used by
/// everything that waits for completions.
struct completion_wait {
    deadline until = deadline::never();
    any_stop_token stop = {};
    wait_options options = {};
    char const* function = "ibv_get_cq_event"; // the last C function that was called
    std::size_t first = 0;                     // where to begin; then, whose completions were found

    /// @param cqs `count` of them, all of one channel
    /// @return how many completions there are; none when it took too long, or was stopped
    std::size_t run(cq_ref const* cqs, std::size_t count, std::span<work_completion> into,
                    std::error_code& ec) noexcept;

    /// Takes the event of a CQ off its channel, if there is one, and acks it; never waits.
    static bool take_event(cq_ref const& cq, std::error_code& ec) noexcept;

private:
    std::size_t drain(cq_ref const* cqs, std::size_t count, std::span<work_completion> into,
                      std::error_code& ec) noexcept;
    void arm(cq_ref const* cqs, std::size_t count, std::error_code& ec) noexcept;
    woken wait(comp_channel_node& channel, cq_ref const* cqs, std::size_t count, std::error_code& ec) noexcept;
    static void ack(cq_ref const* cqs, std::size_t count, ibv_cq* cq) noexcept;
    static void leave_armed(cq_ref const* cqs, std::size_t count) noexcept;
};

} // namespace detail

/// What an owned CQ and a view of one have in common.
///
/// poll and req_notify are the data path: their twins take a trailing std::nothrow_t and return what C returns; an
/// empty handle is a precondition there (RDMACPP_ASSERT).
template <class Handle>
class completion_source {
public:
    /// How many completions the CQ holds. 0 when empty.
    int cqe() const noexcept { return raw() ? raw()->cqe : 0; }

    /// Takes completions off the queue (ibv_poll_cq), never waiting. @return how many; negative is an error without a
    /// reason
    int poll(std::span<work_completion> into, std::nothrow_t) const noexcept {
        RDMACPP_ASSERT(raw());
        return ::ibv_poll_cq(raw(), static_cast<int>(into.size()), reinterpret_cast<ibv_wc*>(into.data()));
    }

    /// Arms the CQ (ibv_req_notify_cq): its next completion, or only the next solicited or failed one, raises one
    /// event.
    /// @return the errno of C, std::errc{} for success
    std::errc req_notify(bool solicited_only, std::nothrow_t) const noexcept {
        RDMACPP_ASSERT(raw());
        return static_cast<std::errc>(::ibv_req_notify_cq(raw(), solicited_only));
    }

#if RDMACPP_EXCEPTIONS
    /// Takes completions off the queue, never waiting. @return the part of `into` that was filled
    /// @throws rdma::error errc::poll_failed
    std::span<work_completion> poll(std::span<work_completion> into) const {
        int const n = poll(into, std::nothrow);
        if (n < 0) [[unlikely]]
            detail::throw_poll_failed();
        return into.first(static_cast<std::size_t>(n));
    }

    /// Arms the CQ. @throws rdma::error the errno of ibv_req_notify_cq
    void req_notify(bool solicited_only = false) const {
        if (std::errc const e = req_notify(solicited_only, std::nothrow); e != std::errc{}) [[unlikely]]
            detail::throw_returned(e, "ibv_req_notify_cq");
    }

    /// Waits until there are completions: drains, arms, drains again, and only then waits on the CQ's channel, so that
    /// nothing that came in between is missed. One thread at a time may wait on a channel, and what it waits for takes
    /// off the events of other CQs of that channel, too: several are waited for with a cq_set.
    /// @return the part of `into` that was filled; empty if the channel object is gone
    /// @throws rdma::error errc::poll_failed; std::errc::invalid_argument if the CQ has no channel; errno of the calls
    std::span<work_completion> wait(std::span<work_completion> into, wait_options options = {}) const {
        return waited(into, detail::deadline::never(), {}, options);
    }

    /// Waits for completions, at most this long. @return what was filled, empty when it took too long
    /// @throws rdma::error
    std::span<work_completion> wait_for(std::span<work_completion> into, timeout span,
                                        wait_options options = {}) const {
        return waited(into, detail::deadline::after(span), {}, options);
    }
    /// Waits for completions until stop is requested. @return what was filled, empty when stopped
    /// @throws rdma::error
    std::span<work_completion> wait(std::span<work_completion> into, any_stop_token const& stop,
                                    wait_options options = {}) const {
        return waited(into, detail::deadline::never(), stop, options);
    }
#endif
    /// Changes how many completions it can hold (ibv_resize_cq); those in it stay. The device may give more.
    void resize(int cqe, std::error_code& ec) const noexcept {
        ec = raw() ? detail::check_returned(::ibv_resize_cq(raw(), cqe)) : std::error_code(errc::empty_handle);
    }
    /// Raises an event only after so many completions, or so long after the first (ibv_modify_cq).
    /// @param period in microseconds
    void moderate(std::uint16_t count, std::uint16_t period, std::error_code& ec) const noexcept {
        ibv_modify_cq_attr attr{IBV_CQ_ATTR_MODERATE, {count, period}};
        ec = raw() ? detail::check_returned(::ibv_modify_cq(raw(), &attr)) : std::error_code(errc::empty_handle);
    }
#if RDMACPP_EXCEPTIONS
    /// The throwing forms. @throws rdma::error the errno of ibv_resize_cq, of ibv_modify_cq
    void resize(int cqe) const {
        std::error_code ec;
        resize(cqe, ec);
        if (ec)
            detail::throw_error(ec, "ibv_resize_cq", {std::to_string(cqe), " entries"});
    }
    void moderate(std::uint16_t count, std::uint16_t period) const {
        std::error_code ec;
        moderate(count, period, ec);
        if (ec)
            detail::throw_error(ec, "ibv_modify_cq");
    }
#endif

    /// Waits for one completion, as long as it takes; none only with `ec`.
    std::optional<work_completion> wait_one(std::error_code& ec) const noexcept {
        auto const one = wait_one(no_limit, ec);
        if (!one && !ec)
            ec = errc::empty_handle;
        return one;
    }
    /// The same, at most this long: none when it took too long.
    std::optional<work_completion> wait_one(timeout span, std::error_code& ec) const noexcept {
        work_completion one;
        return wait_for({&one, 1}, span, ec).empty() ? std::nullopt : std::optional(one);
    }
#if RDMACPP_EXCEPTIONS
    /// Waits for one completion, as long as it takes. @throws rdma::error as wait; errc::empty_handle if the channel
    /// object is gone
    work_completion wait_one() const {
        work_completion one;
        if (wait({&one, 1}).empty())
            detail::throw_error(errc::empty_handle, "ibv_get_cq_event");
        return one;
    }
    /// The same, at most this long: none when it took too long. @throws rdma::error
    std::optional<work_completion> wait_one(timeout span) const {
        work_completion one;
        return wait_for({&one, 1}, span).empty() ? std::nullopt : std::optional(one);
    }
#endif

    /// The twins of wait and wait_for.
    std::span<work_completion> wait(std::span<work_completion> into, std::error_code& ec) const noexcept {
        return wait(into, wait_options{}, ec);
    }
    std::span<work_completion> wait(std::span<work_completion> into, wait_options options,
                                    std::error_code& ec) const noexcept {
        return wait_until(into, detail::deadline::never(), {}, options, ec);
    }
    std::span<work_completion> wait_for(std::span<work_completion> into, timeout span,
                                        std::error_code& ec) const noexcept {
        return wait_for(into, span, {}, ec);
    }
    std::span<work_completion> wait_for(std::span<work_completion> into, timeout span, wait_options options,
                                        std::error_code& ec) const noexcept {
        return wait_until(into, detail::deadline::after(span), {}, options, ec);
    }
    std::span<work_completion> wait(std::span<work_completion> into, any_stop_token const& stop,
                                    std::error_code& ec) const noexcept {
        return wait(into, stop, {}, ec);
    }
    std::span<work_completion> wait(std::span<work_completion> into, any_stop_token const& stop, wait_options options,
                                    std::error_code& ec) const noexcept {
        return wait_until(into, detail::deadline::never(), stop, options, ec);
    }

private:
    ibv_cq* raw() const noexcept { return static_cast<Handle const*>(this)->native_handle(); }

    std::span<work_completion> wait_until(std::span<work_completion> into, detail::deadline const& until,
                                          any_stop_token const& stop, wait_options options,
                                          std::error_code& ec) const noexcept {
        detail::completion_wait waiting{until, stop, options};
        auto const self = detail::refs::make<cq_ref>(raw(), static_cast<Handle const*>(this)->node());
        return into.first(waiting.run(&self, 1, into, ec));
    }

#if RDMACPP_EXCEPTIONS
    std::span<work_completion> waited(std::span<work_completion> into, detail::deadline const& until,
                                      any_stop_token const& stop, wait_options options) const {
        std::error_code ec;
        detail::completion_wait waiting{until, stop, options};
        auto const self = detail::refs::make<cq_ref>(raw(), static_cast<Handle const*>(this)->node());
        std::size_t const n = waiting.run(&self, 1, into, ec);
        if (ec)
            detail::throw_error(ec, waiting.function);
        return into.first(n);
    }
#endif
};

/// A borrowed completion queue: of a cq, or one that librdmacm made for an id. It cannot turn into an owner.
class cq_ref : public verbs_ref<cq_ref, ibv_cq, detail::cq_node>, public completion_source<cq_ref> {
public:
    using verbs_ref::verbs_ref;

private:
    friend class completion_source<cq_ref>;
    detail::cq_node* node() const noexcept { return keeper_; }
};

namespace detail {

inline std::size_t completion_wait::run(cq_ref const* cqs, std::size_t count, std::span<work_completion> into,
                                        std::error_code& ec) noexcept {
    ec.clear();
    comp_channel_node* const channel = count != 0 && keeper(cqs[0]) ? keeper(cqs[0])->channel : nullptr;
    if (count != 0 && !cqs[0])
        ec = errc::empty_handle;
    else if (into.empty() || !channel)
        ec = system_error_code(EINVAL);
    for (std::size_t i = 1; i < count && !ec; ++i)
        if (!keeper(cqs[i]) || keeper(cqs[i])->channel != channel)
            ec = system_error_code(EINVAL);
    for (bool armed = false; !ec; armed = !armed) {
        if (std::size_t const n = drain(cqs, count, into, ec)) {
            if (armed)
                leave_armed(cqs, count);
            return n;
        }
        if (ec)
            break;
        if (!armed) { // what came between the poll and the arming raises no event: hence a second poll
            arm(cqs, count, ec);
            continue;
        }
        function = cq_event::get_function;
        if (wait(*channel, cqs, count, ec) != woken::ready) {
            leave_armed(cqs, count);
            break;
        }
    }
    return 0;
}

/// Waits for an event and acks it. It waits first, and gets then: who has just armed and found nothing will hardly find
/// an event yet.
inline woken completion_wait::wait(comp_channel_node& channel, cq_ref const* cqs, std::size_t count,
                                   std::error_code& ec) noexcept {
    channel.never_block();
    keep const while_it_waits(&channel);
    for (;;) {
        woken const why = channel.room.wait(channel.object()->fd, until, stop, options, ec);
        ibv_cq* cq = nullptr;
        if (why != woken::ready)
            return why;
        if (!cq_event::try_get(channel, cq, options, ec))
            continue;
        if (ec)
            return woken::failed;
        ack(cqs, count, cq);
        return woken::ready;
    }
}

/// Acks without a look at the table: the caller's CQs live, and to C any other is acked at once.
inline void completion_wait::ack(cq_ref const* cqs, std::size_t count, ibv_cq* cq) noexcept {
    for (std::size_t i = 0; i != count; ++i)
        if (cqs[i].native_handle() == cq)
            return keeper(cqs[i])->settle_later(cq, 1);
    ::ibv_ack_cq_events(cq, 1);
}

[[gnu::always_inline]] inline bool completion_wait::take_event(cq_ref const& cq, std::error_code& ec) noexcept {
    for (ibv_cq* raw = nullptr; cq_event::try_get(*keeper(cq)->channel, raw, {}, ec) && !ec;) {
        ack(&cq, 1, raw);
        if (raw == cq.native_handle())
            return true;
    }
    return false;
}

/// What is armed raises an event that nobody waits for any more: to be taken off before it is armed again.
inline void completion_wait::leave_armed(cq_ref const* cqs, std::size_t count) noexcept {
    for (std::size_t i = 0; i != count; ++i)
        keeper(cqs[i])->event_due.store(true, order::relaxed);
}

inline std::size_t completion_wait::drain(cq_ref const* cqs, std::size_t count, std::span<work_completion> into,
                                          std::error_code& ec) noexcept {
    function = "ibv_poll_cq";
    for (std::size_t i = 0; i != count; ++i) {
        std::size_t const at = first + i < count ? first + i : first + i - count;
        int const n = cqs[at].poll(into, std::nothrow);
        if (n == 0)
            continue;
        first = at;
        if (n < 0)
            ec = errc::poll_failed;
        return n > 0 ? static_cast<std::size_t>(n) : 0;
    }
    return 0;
}

inline void completion_wait::arm(cq_ref const* cqs, std::size_t count, std::error_code& ec) noexcept {
    for (std::size_t i = 0; i != count && !ec; ++i) {
        cq_node& node = *keeper(cqs[i]);
        if (node.event_due.exchange(false, order::relaxed)) {
            function = cq_event::get_function;
            ibv_cq* cq = nullptr;
            while (cq_event::try_get(*node.channel, cq, {}, ec) && !ec)
                ack(cqs, count, cq);
        }
        function = "ibv_req_notify_cq";
        if (!ec)
            ec = check_returned(::ibv_req_notify_cq(cqs[i].native_handle(), 0));
    }
}

} // namespace detail

/// An owned completion queue (ibv_create_cq). It keeps its completion channel alive, and QPs keep it alive.
class [[nodiscard]] cq : public verbs_owner<detail::cq_node, cq_ref>, public completion_source<cq> {
public:
    using verbs_owner::verbs_owner;
    /// Empty.
    cq() noexcept = default;

#if RDMACPP_EXCEPTIONS
    /// Makes a completion queue on a device.
    /// @param context the device: cm_id::verbs
    /// @param cqe how many completions it must hold, 1 or more; the device may give more
    /// @param channel where it reports when it was armed; none: it can only be polled
    /// @param user_context found again in its events
    /// @param comp_vector which interrupt of the device to use, from 0
    /// @throws rdma::error errc::not_bound for an empty context; the errno of ibv_create_cq (ENOMEM may be
    /// RLIMIT_MEMLOCK)
    cq(context_ref context, int cqe, comp_channel_ref channel = {}, void* user_context = nullptr, int comp_vector = 0) {
        std::error_code ec;
        *this = cq(context, cqe, channel, user_context, comp_vector, ec);
        if (ec)
            detail::throw_error(ec, "ibv_create_cq", {std::to_string(cqe), " entries"});
    }
#endif
    /// The twins of the creating constructor: empty on failure.
    cq(context_ref context, int cqe, std::error_code& ec) noexcept : cq(context, cqe, {}, nullptr, 0, ec) {}
    cq(context_ref context, int cqe, comp_channel_ref channel, std::error_code& ec) noexcept
        : cq(context, cqe, channel, nullptr, 0, ec) {}
    cq(context_ref context, int cqe, comp_channel_ref channel, void* user_context, int comp_vector,
       std::error_code& ec) noexcept {
        if (auto* const node = fresh_node(static_cast<bool>(context), ec))
            own(::ibv_create_cq(context.native_handle(), cqe, user_context, channel.native_handle(), comp_vector), node,
                {detail::keeper(channel), detail::keeper(context)}, ec);
        if (node_)
            node_->channel = detail::keeper(channel);
    }

    /// Tells C of that many acks of its events at once, 32 by default: each time costs a mutex. 1: of each at once.
    void ack_batch(std::uint32_t events) noexcept {
        if (node_)
            node_->batch.store(events, detail::order::relaxed);
    }

    /// Gives the C CQ back. C is told of the acks it was not told of yet (ibv_ack_cq_events): it could not destroy it
    /// else.
    [[nodiscard]] ibv_cq* release() noexcept {
        if (node_ && !node_->inherited())
            node_->settle_all();
        return verbs_owner::release();
    }

private:
    friend class completion_source<cq>;
    detail::cq_node* node() const noexcept { return node_; }
};

static_assert(std::is_trivially_copyable_v<cq_ref>);
static_assert(detail::move_only<cq>);
static_assert(!detail::makes<cq, cq_ref> && !detail::makes<cq, ibv_cq*>);

} // namespace rdma::inline RDMACPP_ABI

template <>
struct std::hash<::rdma::cq_ref> : ::rdma::RDMACPP_ABI::detail::ref_hash<::rdma::cq_ref> {};

// ---- ah.hpp ---------------------------------------------------------------------------------------------------------
// Address handles: where datagrams go.

namespace rdma::inline RDMACPP_ABI {

namespace detail {
struct ah_node : node_of<ah_node, ibv_ah> {
    static constexpr char const* made_by = "ibv_create_ah";
    static constexpr char const* ended_by = "ibv_destroy_ah";
    static int end(ibv_ah* ah) noexcept { return ::ibv_destroy_ah(ah); }
    void recall() noexcept { need_again({object()->pd}); }
};
} // namespace detail

/// How many bytes of a datagram's receive buffer the device fills with the sender's address (ibv_grh) before the data.
/// Post receives with room for them.
inline constexpr std::size_t grh_size = sizeof(ibv_grh);

/// A borrowed address handle. It destroys nothing and cannot turn into an owner.
class ah_ref : public verbs_ref<ah_ref, ibv_ah> {
public:
    using verbs_ref::verbs_ref;
};

/// An owned address handle (ibv_create_ah): a peer that datagrams are sent to. It keeps its PD alive, and must stay
/// until the sends that name it have completed.
class [[nodiscard]] ah : public verbs_owner<detail::ah_node, ah_ref> {
public:
    using verbs_owner::verbs_owner;
    /// Empty.
    ah() noexcept = default;

#if RDMACPP_EXCEPTIONS
    /// Makes an address handle. @throws rdma::error errc::not_bound for an empty pd; the errno of ibv_create_ah
    ah(pd_ref pd, ibv_ah_attr const& attr) {
        std::error_code ec;
        *this = ah(pd, attr, ec);
        if (ec)
            detail::throw_error(ec, "ibv_create_ah");
    }
    /// Makes the handle of the peer, or group, that an event tells of: an ESTABLISHED of a datagram id, or a
    /// MULTICAST_JOIN (its ud_param also has the QP number and the key).
    /// @throws rdma::error std::errc::invalid_argument for any other event; as above
    ah(pd_ref pd, cm_event const& event) {
        std::error_code ec;
        *this = ah(pd, event, ec);
        if (ec)
            detail::throw_error(ec, "ibv_create_ah", {event ? to_string(event.type()) : "no event"});
    }
    /// Makes the handle of whoever sent a datagram that was received (ibv_create_ah_from_wc).
    /// @param buffer what the datagram was received into: it begins with the ibv_grh
    /// @param port_num the device's port, cm_id::port_num()
    /// @throws rdma::error std::errc::invalid_argument for a failed completion or a buffer below 40 bytes; as above
    ah(pd_ref pd, work_completion const& received, std::span<std::byte const> buffer, std::uint8_t port_num) {
        std::error_code ec;
        *this = ah(pd, received, buffer, port_num, ec);
        if (ec)
            detail::throw_error(ec, "ibv_create_ah_from_wc");
    }
#endif
    /// The twins of the constructors: empty on failure.
    ah(pd_ref pd, ibv_ah_attr const& attr, std::error_code& ec) noexcept {
        ibv_ah_attr copy = attr; // C takes it by a pointer to non-const
        if (auto* const node = fresh_node(static_cast<bool>(pd), ec))
            own(::ibv_create_ah(pd.native_handle(), &copy), node, {detail::keeper(pd)}, ec);
    }
    ah(pd_ref pd, cm_event const& event, std::error_code& ec) noexcept {
        rdma_ud_param const* const peer = event ? event.ud_param() : nullptr;
        if (!peer)
            ec = detail::system_error_code(EINVAL);
        else
            *this = ah(pd, peer->ah_attr, ec);
    }
    ah(pd_ref pd, work_completion const& received, std::span<std::byte const> buffer, std::uint8_t port_num,
       std::error_code& ec) noexcept {
        if (!received || buffer.size() < grh_size) {
            ec = detail::system_error_code(EINVAL);
            return;
        }
        ibv_wc wc = received.native_handle();
        ibv_grh grh;
        std::memcpy(&grh, buffer.data(), sizeof grh);
        if (auto* const node = fresh_node(static_cast<bool>(pd), ec))
            own(::ibv_create_ah_from_wc(pd.native_handle(), &wc, &grh, port_num), node, {detail::keeper(pd)}, ec);
    }
};

static_assert(std::is_trivially_copyable_v<ah_ref>);
static_assert(detail::move_only<ah>);
static_assert(!detail::makes<ah, ah_ref> && !detail::makes<ah, ibv_ah*>);

} // namespace rdma::inline RDMACPP_ABI

template <>
struct std::hash<::rdma::ah_ref> : ::rdma::RDMACPP_ABI::detail::ref_hash<::rdma::ah_ref> {};

// ---- access.hpp -----------------------------------------------------------------------------------------------------
// What may be done with registered memory: the flags of C, and what they have to be for a purpose.

namespace rdma::inline RDMACPP_ABI {

/// What may be done with memory (ibv_access_flags); combine with `|`. Reading it locally is always allowed.
///
/// Flags that this header does not know are passed through: `access(1U << 9)`.
enum class access : unsigned {
    none = 0,                             ///< Only read, locally: enough for what is sent.
    local_write = IBV_ACCESS_LOCAL_WRITE, ///< The device may write: receives and the sink of reads.
    remote_write =
        IBV_ACCESS_REMOTE_WRITE,          ///< Needs local_write. On iWARP also the sink of our own RDMA reads needs it.
    remote_read = IBV_ACCESS_REMOTE_READ, ///< Peers that have the key may read.
    remote_atomic = IBV_ACCESS_REMOTE_ATOMIC, ///< Needs local_write.
    mw_bind = IBV_ACCESS_MW_BIND,             ///< Memory windows may be bound to it.
    zero_based = IBV_ACCESS_ZERO_BASED,       ///< Addressed from 0, by peers and in scatter/gather elements.
    on_demand = IBV_ACCESS_ON_DEMAND,         ///< Pages are not pinned, but fetched when they are used.
    huge_tlb = IBV_ACCESS_HUGETLB,            ///< The memory is of huge pages.
    flush_global = 1U << 8,     ///< wr_batch::flush may make it visible (IBV_ACCESS_FLUSH_GLOBAL, of rdma-core 50).
    flush_persistent = 1U << 9, ///< wr_batch::flush may make it durable (IBV_ACCESS_FLUSH_PERSISTENT, of rdma-core 50).
    relaxed_ordering = IBV_ACCESS_RELAXED_ORDERING, ///< A hint, dropped where it is not known.
};
/// The flags of both, of one and the other, and of all but these.
constexpr access operator|(access a, access b) noexcept {
    return static_cast<access>(static_cast<unsigned>(a) | static_cast<unsigned>(b));
}
constexpr access operator&(access a, access b) noexcept {
    return static_cast<access>(static_cast<unsigned>(a) & static_cast<unsigned>(b));
}
constexpr access operator~(access a) noexcept { return static_cast<access>(~static_cast<unsigned>(a)); }
constexpr access& operator|=(access& a, access b) noexcept { return a = a | b; }
constexpr access& operator&=(access& a, access b) noexcept { return a = a & b; }

/// @name What memory needs for a purpose; combine with `|` for several.
/// @{
constexpr access for_send() noexcept { return access::none; }               ///< We send from it, or write.
constexpr access for_recv() noexcept { return access::local_write; }        ///< We receive into it.
constexpr access for_remote_read() noexcept { return access::remote_read; } ///< The peer reads it.
/// The peer writes it.
constexpr access for_remote_write() noexcept { return access::remote_write | access::local_write; }
/// The peer's atomics change it.
constexpr access for_remote_atomic() noexcept { return access::remote_atomic | access::local_write; }
/// We read the peer's memory into it: on iWARP that takes remote write access, which elsewhere would only be a risk.
constexpr access for_read_sink(transport_type transport) noexcept {
    return transport == transport_type::iwarp ? for_remote_write() : access::local_write;
}
/// Our atomics leave the value before in it.
constexpr access for_atomic_result() noexcept { return access::local_write; }
/// @}

} // namespace rdma::inline RDMACPP_ABI

// ---- mr.hpp ---------------------------------------------------------------------------------------------------------
// Memory regions: what a device may read and write.

namespace rdma::inline RDMACPP_ABI {

namespace detail {

struct mr_node : node_of<mr_node, ibv_mr> {
    using node_of::node_of;
    static constexpr char const* made_by = "ibv_reg_mr";
    static constexpr char const* ended_by = "ibv_dereg_mr";
    static constexpr char const* unimported_by = "ibv_unimport_mr";
    static int end(ibv_mr* mr) noexcept { return ::ibv_dereg_mr(mr); }
    static void unimport(ibv_mr* mr) noexcept { ::ibv_unimport_mr(mr); }
    void recall() noexcept { need_again({object()->pd}); }
};

/// A vector, an array, a span...: elements one after the other, that can be overwritten, and outlive the call.
template <class Range>
concept writable_memory = requires(Range& range) {
    *std::data(range) = *std::data(range);
    static_cast<void*>(std::data(range));
    std::size(range);
}
&&(std::is_lvalue_reference_v<Range> || requires { typename Range::element_type; });

} // namespace detail

/// Memory of a peer, as it told us: an address in its space, and the key of its region.
struct remote_memory {
    std::uint64_t address; ///< Where it begins, in the peer's address space.
    std::uint32_t rkey;    ///< Of its region (ibv_mr::rkey).
};

/// What an owned region and a view of one have in common. On an empty one, addr and length are nothing, and the others
/// a breach of their precondition (RDMACPP_ASSERT).
template <class Handle>
class region {
public:
    /// Where the registered memory begins; null when the handle is empty.
    void* addr() const noexcept { return raw() ? raw()->addr : nullptr; }
    /// Its length in bytes; 0 when the handle is empty.
    std::size_t length() const noexcept { return raw() ? raw()->length : 0; }
    /// The key that scatter/gather elements name it by.
    std::uint32_t lkey() const noexcept { return valid().lkey; }
    /// The key that a peer names it by: see remote().
    std::uint32_t rkey() const noexcept { return valid().rkey; }

    /// What to tell a peer so that it can read or write the region, from `offset` on.
    remote_memory remote(std::size_t offset = 0) const noexcept {
        RDMACPP_ASSERT(offset <= valid().length);
        return {reinterpret_cast<std::uintptr_t>(valid().addr) + offset, valid().rkey};
    }
    /// A scatter/gather element of the region: `length` bytes from `offset`.
    ibv_sge sge(std::size_t offset, std::size_t length) const noexcept {
        RDMACPP_ASSERT(offset <= valid().length && length <= valid().length - offset);
        return {reinterpret_cast<std::uintptr_t>(valid().addr) + offset, static_cast<std::uint32_t>(length),
                valid().lkey};
    }
    /// The whole region as one element. Precondition, asserted: its length fits into one, that is 32 bits.
    ibv_sge sge() const noexcept {
        RDMACPP_ASSERT(valid().length <= UINT32_MAX);
        return sge(0, valid().length);
    }

private:
    ibv_mr* raw() const noexcept { return static_cast<Handle const*>(this)->native_handle(); }
    ibv_mr const& valid() const noexcept {
        RDMACPP_ASSERT(raw());
        return *raw();
    }
};

/// A borrowed memory region. It deregisters nothing and cannot turn into an owner.
class mr_ref : public verbs_ref<mr_ref, ibv_mr>, public region<mr_ref> {
public:
    using verbs_ref::verbs_ref;
};

class mr;

/// The other ways to make a region, each named as its C function. The twins return an empty one on failure.
template <class Mr>
class mr_kinds {
public:
    /// Registers memory that peers and scatter/gather elements address from `iova` on (ibv_reg_mr_iova).
    static Mr reg_mr_iova(pd_ref pd, std::span<std::byte> memory, std::uint64_t iova, access allowed,
                          std::error_code& ec) noexcept {
        Mr made;
        made.make(pd, ec, [&](ibv_pd* p) noexcept {
            return ::ibv_reg_mr_iova2(p, memory.data(), memory.size(), iova, static_cast<unsigned>(allowed));
        });
        return made;
    }
    /// Registers the whole address space, to be fetched when it is used (ibv_reg_mr from 0 to SIZE_MAX, on demand):
    /// for devices whose query_device_ex tells of IBV_ODP_SUPPORT_IMPLICIT.
    static Mr reg_implicit(pd_ref pd, access allowed, std::error_code& ec) noexcept {
        Mr made;
        made.make(pd, ec, [&](ibv_pd* p) noexcept {
            return (::ibv_reg_mr)(p, nullptr, SIZE_MAX, static_cast<int>(allowed | access::on_demand));
        });
        return made;
    }
    /// Registers memory of another device, such as a GPU, by its dma-buf (ibv_reg_dmabuf_mr, from rdma-core 34 on).
    /// @param fd the caller's
    template <class Pd = ibv_pd>
        requires detail::has_reg_dmabuf_mr<Pd>
    static Mr reg_dmabuf_mr(pd_ref pd, std::uint64_t offset, std::size_t length, std::uint64_t iova, int fd,
                            access allowed, std::error_code& ec) noexcept {
        Mr made;
        made.make(pd, ec, [&](Pd* p) noexcept {
            return ibv_reg_dmabuf_mr(p, offset, length, iova, fd, static_cast<int>(allowed));
        });
        return made;
    }
    /// A region that swallows what is written to it, and reads as zeros (ibv_alloc_null_mr).
    static Mr alloc_null_mr(pd_ref pd, std::error_code& ec) noexcept {
        Mr made;
        made.make(pd, ec, [](ibv_pd* p) noexcept { return ::ibv_alloc_null_mr(p); });
        return made;
    }
    /// The region of another process, by its handle on a PD that was imported, too (ibv_import_mr). Dropped, it is only
    /// forgotten (ibv_unimport_mr).
    static Mr import_mr(pd_ref pd, std::uint32_t handle, std::error_code& ec) noexcept {
        Mr made;
        made.make(
            pd, ec, [&](ibv_pd* p) noexcept { return ::ibv_import_mr(p, handle); }, nullptr, detail::imported_t());
        return made;
    }

    /// Registers with all that newer versions offer (ibv_reg_mr_ex, from rdma-core 61 on). @param attr an
    /// ibv_mr_init_attr, which is only read
    template <class Attr>
        requires detail::has_reg_mr_ex<ibv_pd, Attr>
    static Mr reg_mr_ex(pd_ref pd, Attr const& attr, std::error_code& ec) noexcept {
        Attr copy = attr;
        Mr made;
        made.make(pd, ec, [&](ibv_pd* p) noexcept { return ibv_reg_mr_ex(p, &copy); });
        return made;
    }

#if RDMACPP_EXCEPTIONS
    /// The throwing forms. @throws rdma::error errc::not_bound for an empty pd; the errno of the call
    template <class Attr>
        requires detail::has_reg_mr_ex<ibv_pd, Attr>
    static Mr reg_mr_ex(pd_ref pd, Attr const& attr) {
        std::error_code ec;
        return checked(reg_mr_ex(pd, attr, ec), ec, "ibv_reg_mr_ex");
    }
    static Mr reg_mr_iova(pd_ref pd, std::span<std::byte> memory, std::uint64_t iova, access allowed) {
        std::error_code ec;
        return checked(reg_mr_iova(pd, memory, iova, allowed, ec), ec, "ibv_reg_mr_iova");
    }
    static Mr reg_implicit(pd_ref pd, access allowed) {
        std::error_code ec;
        return checked(reg_implicit(pd, allowed, ec), ec, "ibv_reg_mr");
    }
    template <class Pd = ibv_pd>
        requires detail::has_reg_dmabuf_mr<Pd>
    static Mr reg_dmabuf_mr(pd_ref pd, std::uint64_t offset, std::size_t length, std::uint64_t iova, int fd,
                            access allowed) {
        std::error_code ec;
        return checked(reg_dmabuf_mr<Pd>(pd, offset, length, iova, fd, allowed, ec), ec, "ibv_reg_dmabuf_mr");
    }
    static Mr alloc_null_mr(pd_ref pd) {
        std::error_code ec;
        return checked(alloc_null_mr(pd, ec), ec, "ibv_alloc_null_mr");
    }
    static Mr import_mr(pd_ref pd, std::uint32_t handle) {
        std::error_code ec;
        return checked(import_mr(pd, handle, ec), ec, "ibv_import_mr");
    }

private:
    static Mr checked(Mr made, std::error_code const& ec, char const* function) {
        if (ec)
            detail::throw_error(ec, function);
        return made;
    }
#endif
};

/// Advice about pieces of regions that are paged on demand (ibv_advise_mr): to fetch them before they are used.
/// @param advice such as IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE @param flags of ibv_advise_mr_flags: with
/// IBV_ADVISE_MR_FLAG_FLUSH it blocks until they are there
template <class Pieces = std::span<ibv_sge const>>
void advise_mr(pd_ref pd, ibv_advise_mr_advice advice, std::uint32_t flags, Pieces pieces,
               std::error_code& ec) noexcept {
    ec = pd ? detail::check_returned(::ibv_advise_mr(pd.native_handle(), advice, flags,
                                                     const_cast<ibv_sge*>(pieces.data()), // C only reads them
                                                     static_cast<std::uint32_t>(pieces.size())))
            : std::error_code(errc::not_bound);
}
#if RDMACPP_EXCEPTIONS
/// The throwing form of advise_mr(..., std::error_code&). @throws rdma::error
template <class Pieces = std::span<ibv_sge const>>
void advise_mr(pd_ref pd, ibv_advise_mr_advice advice, std::uint32_t flags, Pieces pieces) {
    std::error_code ec;
    advise_mr(pd, advice, flags, pieces, ec);
    if (ec)
        detail::throw_error(ec, "ibv_advise_mr");
}
#endif

/// An owned memory region (ibv_reg_mr). It keeps its PD alive, and memory windows that are bound to it keep it.
/// Dropped, it is deregistered (ibv_dereg_mr, and so rdma_dereg_mr).
///
/// The memory is the caller's: it must stay until the region is gone, and until every work request that names it has
/// completed.
class [[nodiscard]] mr : public verbs_owner<detail::mr_node, mr_ref>, public region<mr>, public mr_kinds<mr> {
public:
    using verbs_owner::verbs_owner;
    /// Empty.
    mr() noexcept = default;

#if RDMACPP_EXCEPTIONS
    /// Registers memory with a protection domain, which is kept alive. Pins its pages, which takes time, unless
    /// access::on_demand is given.
    /// @param pd a pd, or cm_id::pd()
    /// @param memory at least one byte
    /// @param allowed what may be done with it; for_remote_read() and its like say what a purpose needs
    /// @throws rdma::error errc::not_bound for an empty pd; the errno of ibv_reg_mr. ENOMEM names the size and, if
    /// there is one, the limit of locked memory.
    mr(pd_ref pd, std::span<std::byte> memory, access allowed) { reg(pd, memory.data(), memory.size(), allowed); }
    mr(pd_ref pd, void* memory, std::size_t size, access allowed) { reg(pd, memory, size, allowed); }
    /// The same of anything whose elements lie one after the other: a vector, an array, a span.
    template <detail::writable_memory Range>
    mr(pd_ref pd, Range&& memory, access allowed) {
        reg(pd, std::data(memory), std::size(memory) * sizeof *std::data(memory), allowed);
    }
#endif
    /// The twins of the registering constructors: empty on failure.
    mr(pd_ref pd, std::span<std::byte> memory, access allowed, std::error_code& ec) noexcept {
        reg(pd, memory.data(), memory.size(), allowed, ec);
    }
    mr(pd_ref pd, void* memory, std::size_t size, access allowed, std::error_code& ec) noexcept {
        reg(pd, memory, size, allowed, ec);
    }
    template <detail::writable_memory Range>
    mr(pd_ref pd, Range&& memory, access allowed, std::error_code& ec) noexcept {
        reg(pd, std::data(memory), std::size(memory) * sizeof *std::data(memory), allowed, ec);
    }

    /// Changes the region (ibv_rereg_mr). @param what of ibv_rereg_mr_flags: which of the rest count
    /// @param pd its new protection domain; the old one is no longer kept alive
    /// On failure it stays as it was, unless the device itself refused (IBV_REREG_MR_ERR_CMD): then it is of no use any
    /// more, and can only be dropped.
    void rereg(int what, pd_ref pd, void* memory, std::size_t size, access allowed, std::error_code& ec) noexcept {
        ec.clear();
        if (!raw_)
            ec = errc::empty_handle;
        else if ((what & IBV_REREG_MR_CHANGE_PD) && !pd)
            ec = errc::not_bound;
        if (ec)
            return;
        if (::ibv_rereg_mr(raw_, what, pd.native_handle(), memory, size, static_cast<int>(allowed)))
            ec = detail::system_error_code(errno);
        else if (what & IBV_REREG_MR_CHANGE_PD)
            node_->need_instead(0, detail::keeper(pd));
    }
    void rereg(int what, pd_ref pd, std::span<std::byte> memory, access allowed, std::error_code& ec) noexcept {
        rereg(what, pd, memory.data(), memory.size(), allowed, ec);
    }
    template <detail::writable_memory Range>
    void rereg(int what, pd_ref pd, Range&& memory, access allowed, std::error_code& ec) noexcept {
        rereg(what, pd, std::data(memory), std::size(memory) * sizeof *std::data(memory), allowed, ec);
    }

#if RDMACPP_EXCEPTIONS
    /// The throwing forms of rereg(..., std::error_code&). @throws rdma::error
    void rereg(int what, pd_ref pd, void* memory, std::size_t size, access allowed) {
        std::error_code ec;
        rereg(what, pd, memory, size, allowed, ec);
        if (ec)
            detail::throw_error(ec, "ibv_rereg_mr", {std::to_string(size), " bytes"});
    }
    void rereg(int what, pd_ref pd, std::span<std::byte> memory, access allowed) {
        rereg(what, pd, memory.data(), memory.size(), allowed);
    }
    template <detail::writable_memory Range>
    void rereg(int what, pd_ref pd, Range&& memory, access allowed) {
        rereg(what, pd, std::data(memory), std::size(memory) * sizeof *std::data(memory), allowed);
    }
#endif

    /// A region by a function that makes it on the PD; `of` is kept alive, too. For the library's own headers.
    template <class Make>
    static mr made_of(pd_ref pd, detail::pinnable* of, std::error_code& ec, Make reg) noexcept {
        mr made;
        made.make(pd, ec, reg, of);
        return made;
    }

private:
    friend class mr_kinds<mr>;

    void reg(pd_ref pd, void* memory, std::size_t size, access allowed, std::error_code& ec) noexcept {
        auto const flags = static_cast<unsigned>(allowed);
        auto* const node = fresh_node(static_cast<bool>(pd), ec);
        if (!node)
            return;
        // ibv_reg_mr_iova2 knows the optional flags, and drops those that the kernel does not know. The macro called
        // ibv_reg_mr makes the same choice, but only for constant flags.
        ibv_pd* const p = pd.native_handle();
        own(flags & IBV_ACCESS_OPTIONAL_RANGE
                ? ::ibv_reg_mr_iova2(p, memory, size, reinterpret_cast<std::uintptr_t>(memory), flags)
                : (::ibv_reg_mr)(p, memory, size, static_cast<int>(flags)),
            node, {detail::keeper(pd)}, ec);
    }
#if RDMACPP_EXCEPTIONS
    void reg(pd_ref pd, void* memory, std::size_t size, access allowed) {
        std::error_code ec;
        reg(pd, memory, size, allowed, ec);
        if (ec)
            detail::throw_error(ec, "ibv_reg_mr", {std::to_string(size), " bytes"});
    }
#endif

    template <class Make, class... Kind>
    void make(pd_ref pd, std::error_code& ec, Make reg, detail::pinnable* also = nullptr, Kind... kind) noexcept {
        if (auto* const node = fresh_node(static_cast<bool>(pd), ec, kind...))
            own(reg(pd.native_handle()), node, {detail::keeper(pd), also}, ec);
    }
};

static_assert(std::is_trivially_copyable_v<mr_ref>);
static_assert(detail::move_only<mr>);
static_assert(!detail::makes<mr, mr_ref> && !detail::makes<mr, ibv_mr*>);

} // namespace rdma::inline RDMACPP_ABI

template <>
struct std::hash<::rdma::mr_ref> : ::rdma::RDMACPP_ABI::detail::ref_hash<::rdma::mr_ref> {};

// ---- qp_ex.hpp ------------------------------------------------------------------------------------------------------
// The other interface of a QP: requests written straight into its queue, in a scope that ends by itself (ibv_wr_...).

namespace rdma::inline RDMACPP_ABI {

/// Requests on their way into a QP's send queue: from ibv_wr_start, which this makes, to complete(), which posts them
/// all; without it, nothing is posted (ibv_wr_abort). The driver may hold a lock meanwhile: one thread at a time, and
/// no wait in between.
///
/// Each request begins with what it does and goes on with its memory and, for datagrams, its peer:
/// `batch.request(7, IBV_SEND_SIGNALED).write(peer).sge(region.sge());`
class [[nodiscard]] wr_batch {
public:
    /// Starts. Precondition, asserted: the QP is not empty.
    explicit wr_batch(ibv_qp_ex* qp) noexcept : qp_(qp) {
        RDMACPP_ASSERT(qp);
        ::ibv_wr_start(qp_);
    }
    wr_batch(wr_batch const&) = delete;
    wr_batch& operator=(wr_batch const&) = delete;
    /// Posts nothing, unless it was completed.
    ~wr_batch() {
        if (qp_)
            ::ibv_wr_abort(qp_);
    }

    /// Posts the requests (ibv_wr_complete): all of them, or none.
    /// @return the errno of C, std::errc{} for success
    std::errc complete(std::nothrow_t) noexcept {
        RDMACPP_ASSERT(qp_);
        return static_cast<std::errc>(::ibv_wr_complete(detail::take(qp_)));
    }
    /// Posts nothing (ibv_wr_abort).
    void abort() noexcept {
        RDMACPP_ASSERT(qp_);
        ::ibv_wr_abort(detail::take(qp_));
    }
#if RDMACPP_EXCEPTIONS
    /// The throwing form of complete(std::nothrow_t). @throws rdma::error the errno of ibv_wr_complete
    void complete() {
        if (std::errc const e = complete(std::nothrow); e != std::errc{}) [[unlikely]]
            detail::throw_returned(e, "ibv_wr_complete");
    }
#endif

    /// Begins a request: the number found again in its completion, and flags of ibv_send_flags.
    wr_batch& request(std::uint64_t wr_id, unsigned flags = 0) noexcept {
        qp_->wr_id = wr_id;
        qp_->wr_flags = flags;
        return *this;
    }

    /// @name What the request does; the QP must have been made with send_ops_flags for it.
    /// @{
    wr_batch& send() noexcept { return did(::ibv_wr_send, qp_); }
    wr_batch& send_imm(std::uint32_t network_order) noexcept { return did(::ibv_wr_send_imm, qp_, network_order); }
    wr_batch& send_inv(std::uint32_t rkey) noexcept { return did(::ibv_wr_send_inv, qp_, rkey); }
    wr_batch& send_tso(std::span<std::byte> header, std::uint16_t mss) noexcept {
        return did(::ibv_wr_send_tso, qp_, header.data(), static_cast<std::uint16_t>(header.size()), mss);
    }
    wr_batch& write(remote_memory to) noexcept { return did(::ibv_wr_rdma_write, qp_, to.rkey, to.address); }
    wr_batch& write_imm(remote_memory to, std::uint32_t network_order) noexcept {
        return did(::ibv_wr_rdma_write_imm, qp_, to.rkey, to.address, network_order);
    }
    wr_batch& read(remote_memory from) noexcept { return did(::ibv_wr_rdma_read, qp_, from.rkey, from.address); }
    wr_batch& comp_swap(remote_memory at, std::uint64_t expected, std::uint64_t desired) noexcept {
        return did(::ibv_wr_atomic_cmp_swp, qp_, at.rkey, at.address, expected, desired);
    }
    wr_batch& fetch_add(remote_memory at, std::uint64_t add) noexcept {
        return did(::ibv_wr_atomic_fetch_add, qp_, at.rkey, at.address, add);
    }
    wr_batch& local_inv(std::uint32_t rkey) noexcept { return did(::ibv_wr_local_inv, qp_, rkey); }
    wr_batch& bind_mw(ibv_mw* window, std::uint32_t rkey, ibv_mw_bind_info const& to) noexcept {
        return did(::ibv_wr_bind_mw, qp_, window, rkey, &to);
    }
    /// Writes 8 bytes so that no reader sees a part of them; from rdma-core 44 on.
    template <class Qp = ibv_qp_ex>
    requires detail::has_wr_atomic_write<Qp> wr_batch& atomic_write(remote_memory to,
                                                                    void const* eight_bytes) noexcept {
        ibv_wr_atomic_write(static_cast<Qp*>(qp_), to.rkey, to.address, eight_bytes);
        return *this;
    }
    /// Makes what was written visible or durable; from rdma-core 50 on. @param type of ibv_placement_type, a mask
    /// @param level of ibv_selectivity_level
    template <class Qp = ibv_qp_ex>
    requires detail::has_wr_flush<Qp> wr_batch& flush(remote_memory at, std::size_t length, std::uint8_t type,
                                                      std::uint8_t level) noexcept {
        ibv_wr_flush(static_cast<Qp*>(qp_), at.rkey, at.address, length, type, level);
        return *this;
    }
    /// @}

    /// @name Its memory: one of these for each request that has some.
    /// @{
    wr_batch& sge(ibv_sge const& piece) noexcept {
        return did(::ibv_wr_set_sge, qp_, piece.lkey, piece.addr, piece.length);
    }
    wr_batch& sge(std::span<ibv_sge const> pieces) noexcept {
        return did(::ibv_wr_set_sge_list, qp_, pieces.size(), pieces.data());
    }
    /// Copies the bytes: they may change at once, and need no region. At most the QP's max_inline_data. Give request()
    /// IBV_SEND_INLINE, too: soft-RoCE's driver of rdma-core 44 wants it, where the manual does not.
    wr_batch& inline_data(std::span<std::byte const> bytes) noexcept {
        return did(::ibv_wr_set_inline_data, qp_, const_cast<std::byte*>(bytes.data()), bytes.size()); // only read
    }
    wr_batch& inline_data(std::span<ibv_data_buf const> pieces) noexcept {
        return did(::ibv_wr_set_inline_data_list, qp_, pieces.size(), pieces.data());
    }
    /// @}

    /// Names the peer of a datagram.
    wr_batch& to(ah_ref peer, std::uint32_t qp_num, std::uint32_t qkey = RDMA_UDP_QKEY) noexcept {
        return did(::ibv_wr_set_ud_addr, qp_, peer.native_handle(), qp_num, qkey);
    }
    /// Names the peer's shared receive queue, on an XRC_SEND QP.
    wr_batch& to_srq(std::uint32_t srq_num) noexcept { return did(::ibv_wr_set_xrc_srqn, qp_, srq_num); }

private:
    template <class Function, class... Args>
    wr_batch& did(Function* function, Args... args) noexcept {
        function(args...);
        return *this;
    }

    ibv_qp_ex* qp_; // null when it has ended
};

/// A view of a QP's other interface: of qp::ex(). Empty for a QP that was made without send_ops_flags.
class qp_ex_ref : public verbs_ref<qp_ex_ref, ibv_qp_ex> {
public:
    using verbs_ref::verbs_ref;

    /// Starts requests; see wr_batch. Precondition, asserted: not empty.
    wr_batch start() const noexcept { return wr_batch(raw_); }

#if RDMACPP_EXCEPTIONS
    /// Posts what `fill` writes into a wr_batch when it returns, and nothing if it throws.
    /// @throws rdma::error the errno of ibv_wr_complete; what `fill` throws
    template <class Fill>
    void post(Fill&& fill) const {
        wr_batch batch(raw_);
        std::forward<Fill>(fill)(batch);
        batch.complete();
    }
#endif
    /// The twin of post, for a `fill` that does not throw.
    template <class Fill>
    std::errc post(Fill&& fill, std::nothrow_t) const noexcept {
        wr_batch batch(raw_);
        std::forward<Fill>(fill)(batch);
        return batch.complete(std::nothrow);
    }
};

static_assert(std::is_trivially_copyable_v<qp_ex_ref>);

} // namespace rdma::inline RDMACPP_ABI

template <>
struct std::hash<::rdma::qp_ex_ref> : ::rdma::RDMACPP_ABI::detail::ref_hash<::rdma::qp_ex_ref> {};

// ---- work_request.hpp -----------------------------------------------------------------------------------------------
// Work requests: what to send, receive, read and write.

namespace rdma::inline RDMACPP_ABI {

/// A request for the send queue, built on the stack in the order in which it reads:
/// `qp.post_send(send_wr::write(region.sge(), peer).id(7).signaled())`.
///
/// Several of them, one after the other in an array, are posted as one chain (`send_wr chain[] = {send_wr::write(...),
/// send_wr::send(...)}; chain[1].signaled(); qp.post_send(chain);` copies none of them). Each has one piece of memory
/// of its own, or names several pieces, which must then stay where they are until it is posted. What is not here is
/// reached through native_handle().
class send_wr {
public:
    send_wr(send_wr const& other) noexcept : sge_(other.sge_), wr_(other.wr_) { own_piece(other); }
    send_wr& operator=(send_wr const& other) noexcept {
        sge_ = other.sge_;
        wr_ = other.wr_;
        own_piece(other);
        return *this;
    }

    /// Sends the bytes to a receive that the peer has posted.
    static send_wr send(ibv_sge const& from) noexcept { return {IBV_WR_SEND, from}; }
    static send_wr send(std::span<ibv_sge const> from) noexcept { return {IBV_WR_SEND, from}; }
    /// The same, and takes a key back at the peer: of a memory window, or of a region.
    static send_wr send_inv(ibv_sge const& from, std::uint32_t rkey) noexcept {
        return send_wr(IBV_WR_SEND_WITH_INV, from).key(rkey);
    }
    static send_wr send_inv(std::span<ibv_sge const> from, std::uint32_t rkey) noexcept {
        return send_wr(IBV_WR_SEND_WITH_INV, from).key(rkey);
    }

    /// Writes the bytes into the peer's memory (RDMA WRITE).
    static send_wr write(ibv_sge const& from, remote_memory to) noexcept { return {IBV_WR_RDMA_WRITE, from, to}; }
    static send_wr write(std::span<ibv_sge const> from, remote_memory to) noexcept {
        return {IBV_WR_RDMA_WRITE, from, to};
    }
    /// Writes 8 bytes so that no reader sees a part of them; where the device has it.
    static send_wr atomic_write(ibv_sge const& from, remote_memory to) noexcept {
        return {static_cast<ibv_wr_opcode>(15), from, to}; // IBV_WR_ATOMIC_WRITE, which rdma-core 39 lacks
    }

    /// Reads the peer's memory (RDMA READ): into memory that was registered with for_read_sink().
    static send_wr read(ibv_sge const& into, remote_memory from) noexcept { return {IBV_WR_RDMA_READ, into, from}; }
    static send_wr read(std::span<ibv_sge const> into, remote_memory from) noexcept {
        return {IBV_WR_RDMA_READ, into, from};
    }

    /// Adds to 8 bytes of the peer's. @param before gets the value before, 8 bytes
    static send_wr fetch_add(ibv_sge const& before, remote_memory at, std::uint64_t add) noexcept {
        return send_wr(IBV_WR_ATOMIC_FETCH_AND_ADD, before).atomic(at, add, 0);
    }
    /// Replaces 8 bytes of the peer's, if they are what is expected. @param before gets the value before, 8 bytes
    static send_wr comp_swap(ibv_sge const& before, remote_memory at, std::uint64_t expected,
                             std::uint64_t desired) noexcept {
        return send_wr(IBV_WR_ATOMIC_CMP_AND_SWP, before).atomic(at, expected, desired);
    }

    /// Takes a local key back: of a type 2 memory window.
    static send_wr local_inv(std::uint32_t rkey) noexcept { return send_wr(IBV_WR_LOCAL_INV).key(rkey); }
    /// Binds a type 2 memory window: rather of mw::bind_request, which keeps the region alive.
    static send_wr bind_mw(ibv_mw* window, std::uint32_t rkey, ibv_mw_bind_info const& to) noexcept {
        send_wr request(IBV_WR_BIND_MW);
        request.wr_.bind_mw = {window, rkey, to};
        return request;
    }
    /// Sends a long packet in segments (raw packets). @param header the headers of each, which must stay until posted
    /// @param mss the bytes of a segment
    static send_wr tso(std::span<std::byte> header, std::uint16_t mss, std::span<ibv_sge const> payload) noexcept {
        send_wr request(IBV_WR_TSO, payload);
        request.wr_.tso = {header.data(), static_cast<std::uint16_t>(header.size()), mss};
        return request;
    }

    /// The number found again in the completion.
    send_wr& id(std::uint64_t wr_id) noexcept {
        wr_.wr_id = wr_id;
        return *this;
    }
    /// Completes visibly also on success. Without it, only a failure does (unless the QP signals all).
    send_wr& signaled() noexcept { return flag(IBV_SEND_SIGNALED); }
    /// Raises an event at a peer that armed its CQ for solicited completions.
    send_wr& solicited() noexcept { return flag(IBV_SEND_SOLICITED); }
    /// Waits for earlier RDMA reads and atomics of the queue.
    send_wr& fenced() noexcept { return flag(IBV_SEND_FENCE); }
    /// Copies the bytes into the request: they may change at once, and need no region. At most the QP's
    /// max_inline_data.
    send_wr& inlined() noexcept { return flag(IBV_SEND_INLINE); }
    /// Has the device fill in the checksums of a raw packet.
    send_wr& ip_csum() noexcept { return flag(IBV_SEND_IP_CSUM); }
    /// Carries four bytes beside the data, in network byte order; not on iWARP. Of a read it makes no sense.
    send_wr& imm(std::uint32_t network_order) noexcept {
        wr_.opcode = wr_.opcode == IBV_WR_RDMA_WRITE ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_SEND_WITH_IMM;
        wr_.imm_data = network_order;
        return *this;
    }

    /// Names the peer of a datagram: its address handle, which must stay until completion, its QP, and its key.
    send_wr& to(ah_ref peer, std::uint32_t qp_num, std::uint32_t qkey = RDMA_UDP_QKEY) noexcept {
        wr_.wr.ud = {peer.native_handle(), qp_num, qkey};
        return *this;
    }
    /// Names the peer's shared receive queue, on an XRC_SEND QP.
    send_wr& to_srq(std::uint32_t srq_num) noexcept {
        wr_.qp_type.xrc.remote_srqn = srq_num;
        return *this;
    }

    /// The C request, valid as long as this object stays where it is.
    ibv_send_wr& native_handle() noexcept { return wr_; }
    ibv_send_wr const& native_handle() const noexcept { return wr_; }

private:
    // The order of the members and the ways in which they are filled are those that compile to what C would write.
    explicit send_wr(ibv_wr_opcode opcode) noexcept : sge_{}, wr_() { wr_.opcode = opcode; }
    send_wr(ibv_wr_opcode opcode, ibv_sge const& sge, remote_memory peer = {}) noexcept : sge_(sge), wr_() {
        wr_.sg_list = &sge_;
        wr_.opcode = opcode;
        wr_.num_sge = 1;
        wr_.wr.rdma.remote_addr = peer.address;
        wr_.wr.rdma.rkey = peer.rkey;
    }
    send_wr(ibv_wr_opcode opcode, std::span<ibv_sge const> pieces, remote_memory peer = {}) noexcept : sge_{}, wr_() {
        wr_.sg_list = const_cast<ibv_sge*>(pieces.data()); // C takes what it only reads by a pointer to non-const
        wr_.opcode = opcode;
        wr_.num_sge = static_cast<int>(pieces.size());
        wr_.wr.rdma.remote_addr = peer.address;
        wr_.wr.rdma.rkey = peer.rkey;
    }
    void own_piece(send_wr const& other) noexcept {
        if (other.wr_.sg_list == &other.sge_)
            wr_.sg_list = &sge_;
    }
    send_wr& flag(ibv_send_flags bit) noexcept {
        wr_.send_flags |= static_cast<unsigned>(bit);
        return *this;
    }
    send_wr& key(std::uint32_t rkey) noexcept {
        wr_.invalidate_rkey = rkey;
        wr_.wr.rdma.rkey = rkey; // where soft-iWARP's driver looks for it
        return *this;
    }
    send_wr& atomic(remote_memory at, std::uint64_t compare_add, std::uint64_t swap) noexcept {
        wr_.wr.atomic = {at.address, compare_add, swap, at.rkey};
        return *this;
    }

    ibv_sge sge_; // its one piece of memory, unless it names others
    ibv_send_wr wr_;
};

/// A request for the receive queue: memory, which the device fills later. Several of them, one after the other in an
/// array, are posted as one chain.
class recv_wr {
public:
    /// Receives into one piece of memory.
    explicit recv_wr(ibv_sge const& into) noexcept : sge_(into), wr_{} {
        wr_.sg_list = &sge_;
        wr_.num_sge = 1;
    }
    /// Receives into several pieces, one after the other; they must stay where they are until it is posted.
    explicit recv_wr(std::span<ibv_sge const> into) noexcept : sge_{}, wr_{} {
        wr_.sg_list = const_cast<ibv_sge*>(into.data()); // C takes what it only reads by a pointer to non-const
        wr_.num_sge = static_cast<int>(into.size());
    }
    recv_wr(recv_wr const& other) noexcept : sge_(other.sge_), wr_(other.wr_) { own_piece(other); }
    recv_wr& operator=(recv_wr const& other) noexcept {
        sge_ = other.sge_;
        wr_ = other.wr_;
        own_piece(other);
        return *this;
    }

    /// The number found again in the completion.
    recv_wr& id(std::uint64_t wr_id) noexcept {
        wr_.wr_id = wr_id;
        return *this;
    }

    /// The C request, valid as long as this object stays where it is.
    ibv_recv_wr& native_handle() noexcept { return wr_; }
    ibv_recv_wr const& native_handle() const noexcept { return wr_; }

private:
    void own_piece(recv_wr const& other) noexcept {
        if (other.wr_.sg_list == &other.sge_)
            wr_.sg_list = &sge_;
    }

    ibv_sge sge_; // its one piece of memory, unless it names others
    ibv_recv_wr wr_;
};

namespace detail {

/// Links requests to a chain. @return the first one, as C takes it; null if there is none
template <class Request>
auto* link(std::span<Request> requests) noexcept {
    decltype(&requests[0].native_handle()) next = nullptr;
    for (std::size_t i = requests.size(); i-- != 0;) {
        auto& request = requests[i].native_handle();
        request.next = next;
        next = &request;
    }
    return next;
}

/// Which request of a chain C pointed at: they lie one after the other.
template <class Request, class C>
std::size_t index_of(std::span<Request> requests, C const* bad) noexcept {
    auto const* const first = reinterpret_cast<char const*>(&requests[0].native_handle());
    return static_cast<std::size_t>(reinterpret_cast<char const*>(bad) - first) / sizeof(Request);
}

/// Posts a chain. @param post the C function @param refused the index of the first request that was not queued
/// It is `bad` that tells of a refusal: soft-iWARP's driver then returns 0 if requests before it were queued.
template <class Request, class Post>
std::errc post_chain(std::span<Request> requests, std::size_t& refused, Post post) noexcept {
    auto* const first = link(requests);
    decltype(link(requests)) bad = nullptr;
    refused = requests.size();
    if (!first)
        return {};
    int e = post(first, &bad);
    if (bad) [[unlikely]] {
        refused = index_of(requests, bad);
        e = e != 0 ? e : EINVAL;
    }
    for (Request& request : requests) // each is for itself again
        request.native_handle().next = nullptr;
    return static_cast<std::errc>(e);
}

#if RDMACPP_EXCEPTIONS
/// The throwing form's end for a chain.
template <class Request>
[[noreturn, gnu::cold, gnu::noinline]] void throw_refused_of(std::errc e, char const* function,
                                                             std::span<Request> requests, std::size_t refused) {
    std::uint64_t const wr_id = refused < requests.size() ? requests[refused].native_handle().wr_id : 0;
    throw_error(posted_error_code(e), function,
                {"request ", std::to_string(wr_id), ", number ", std::to_string(refused), " of the chain"});
}
#endif

} // namespace detail

// A chain is linked, and found again, by the addresses of its C requests.
static_assert(std::is_standard_layout_v<send_wr> && std::is_standard_layout_v<recv_wr>);
static_assert(std::is_nothrow_copy_constructible_v<send_wr> && std::is_nothrow_copy_constructible_v<recv_wr>);

} // namespace rdma::inline RDMACPP_ABI

// ---- receive_queue.hpp ----------------------------------------------------------------------------------------------
// Posting receives: the same for QPs, shared receive queues and work queues.

namespace rdma::inline RDMACPP_ABI {

namespace detail {

inline int post_recv(ibv_qp* to, ibv_recv_wr* first, ibv_recv_wr** bad) noexcept {
    return ::ibv_post_recv(to, first, bad);
}
inline int post_recv(ibv_srq* to, ibv_recv_wr* first, ibv_recv_wr** bad) noexcept {
    return ::ibv_post_srq_recv(to, first, bad);
}
inline int post_recv(ibv_wq* to, ibv_recv_wr* first, ibv_recv_wr** bad) noexcept {
    return ::ibv_post_wq_recv(to, first, bad);
}
constexpr char const* post_recv_name(ibv_qp const*) noexcept { return "ibv_post_recv"; }
constexpr char const* post_recv_name(ibv_srq const*) noexcept { return "ibv_post_srq_recv"; }
constexpr char const* post_recv_name(ibv_wq const*) noexcept { return "ibv_post_wq_recv"; }

} // namespace detail

/// What takes receives: a QP (ibv_post_recv), an SRQ (ibv_post_srq_recv), a WQ (ibv_post_wq_recv), and views of them.
///
/// This is the data path: the twins take a trailing std::nothrow_t and return the errno as C gave it; an empty handle
/// is a precondition (RDMACPP_ASSERT). The memory of a receive is the caller's to keep until it has completed, or the
/// queue is gone. Any thread may post.
template <class Handle>
class receive_queue {
public:
    /// Posts a chain of C requests. @param bad the first request that was refused, and not queued
    std::errc post_recv(ibv_recv_wr& first, ibv_recv_wr*& bad, std::nothrow_t) const noexcept {
        RDMACPP_ASSERT(queue());
        return static_cast<std::errc>(detail::post_recv(queue(), &first, &bad));
    }
    /// Posts an array of requests as one chain: all of them, or, if one is refused, those before it.
    /// @param refused the index of the first request that was not queued; their number if all were
    std::errc post_recv(std::span<recv_wr> requests, std::size_t& refused, std::nothrow_t) const noexcept {
        RDMACPP_ASSERT(queue());
        return detail::post_chain(requests, refused, [this](ibv_recv_wr* first, ibv_recv_wr** bad) noexcept {
            return detail::post_recv(queue(), first, bad);
        });
    }
    /// Posts one request.
    std::errc post_recv(recv_wr const& request, std::nothrow_t) const noexcept {
        ibv_recv_wr* bad;
        return post_recv(const_cast<ibv_recv_wr&>(request.native_handle()), bad, std::nothrow); // only read
    }

#if RDMACPP_EXCEPTIONS
    /// Posts a chain of C requests. @throws rdma::error the errno of the call; `bad` is the request that was refused
    void post_recv(ibv_recv_wr& first, ibv_recv_wr*& bad) const {
        if (std::errc const e = post_recv(first, bad, std::nothrow); e != std::errc{}) [[unlikely]]
            detail::throw_refused(e, detail::post_recv_name(queue()), bad ? bad->wr_id : 0);
    }
    /// Posts an array of requests as one chain. @throws rdma::error the errno of the call; the message says which
    /// request was refused: those before it are queued
    void post_recv(std::span<recv_wr> requests) const {
        std::size_t refused;
        if (std::errc const e = post_recv(requests, refused, std::nothrow); e != std::errc{}) [[unlikely]]
            detail::throw_refused_of(e, detail::post_recv_name(queue()), requests, refused);
    }
    /// Posts one request. @throws rdma::error the errno of the call
    void post_recv(recv_wr const& request) const {
        if (std::errc const e = post_recv(request, std::nothrow); e != std::errc{}) [[unlikely]]
            detail::throw_refused(e, detail::post_recv_name(queue()), request.native_handle().wr_id);
    }
#endif

private:
    auto* queue() const noexcept { return static_cast<Handle const*>(this)->native_handle(); }
};

} // namespace rdma::inline RDMACPP_ABI

// ---- wq.hpp ---------------------------------------------------------------------------------------------------------
// Work queues: receive queues that several QPs share by way of an indirection table, for receive-side scaling.

namespace rdma::inline RDMACPP_ABI {

/// What a work queue was granted.
struct wq_cap {
    std::uint32_t max_wr = 0;  ///< receives that may wait in it
    std::uint32_t max_sge = 0; ///< pieces of memory for each
};

namespace detail {
struct wq_node : node_of<wq_node, ibv_wq> {
    static constexpr char const* made_by = "ibv_create_wq";
    static constexpr char const* ended_by = "ibv_destroy_wq";
    static int end(ibv_wq* wq) noexcept { return ::ibv_destroy_wq(wq); }
    void recall() noexcept { need_again({object()->pd, object()->cq}); }

    wq_cap granted;
};
} // namespace detail

/// The state of a work queue (ibv_wq_state).
enum class wq_state {
    reset = IBV_WQS_RESET,     ///< Takes nothing yet.
    rdy = IBV_WQS_RDY,         ///< Takes receives.
    err = IBV_WQS_ERR,         ///< Flushes what it was given.
    unknown = IBV_WQS_UNKNOWN, ///< C could not say.
};

/// What a work queue is asked for (ibv_wq_init_attr). It is only read.
struct wq_init_attr {
    std::uint32_t max_wr = 16;      ///< receives that may wait in it; wq::cap tells what was granted
    std::uint32_t max_sge = 1;      ///< pieces of memory for each
    std::uint32_t create_flags = 0; ///< Of ibv_wq_flags.
    void* user_context = nullptr;   ///< Found again in `wq->wq_context`.
};

/// What an owned work queue and a view of one have in common.
template <class Handle>
class wq_operations : public receive_queue<Handle> {
public:
    /// Its number on the device; 0 when empty.
    std::uint32_t wq_num() const noexcept { return raw() ? raw()->wq_num : 0; }

    /// Changes its state (ibv_modify_wq): it is made in reset, and receives when it is rdy.
    void modify(wq_state to, std::error_code& ec) const noexcept {
        ibv_wq_attr attr{};
        attr.attr_mask = IBV_WQ_ATTR_STATE;
        attr.wq_state = static_cast<ibv_wq_state>(to);
        modify(attr, ec);
    }
    /// The same with all that C offers; the attributes are only read.
    void modify(ibv_wq_attr const& attr, std::error_code& ec) const noexcept {
        ibv_wq_attr copy = attr;
        ec = raw() ? detail::check_returned(::ibv_modify_wq(raw(), &copy)) : std::error_code(errc::empty_handle);
    }

#if RDMACPP_EXCEPTIONS
    /// The throwing forms. @throws rdma::error
    void modify(wq_state to) const {
        std::error_code ec;
        modify(to, ec);
        if (ec)
            detail::throw_error(ec, "ibv_modify_wq");
    }
    void modify(ibv_wq_attr const& attr) const {
        std::error_code ec;
        modify(attr, ec);
        if (ec)
            detail::throw_error(ec, "ibv_modify_wq");
    }
#endif

private:
    ibv_wq* raw() const noexcept { return static_cast<Handle const*>(this)->native_handle(); }
};

/// A borrowed work queue. It destroys nothing and cannot turn into an owner.
class wq_ref : public verbs_ref<wq_ref, ibv_wq>, public wq_operations<wq_ref> {
public:
    using verbs_ref::verbs_ref;
};

/// An owned work queue (ibv_create_wq). It keeps its PD and CQ alive, and an indirection table keeps it.
class [[nodiscard]] wq : public verbs_owner<detail::wq_node, wq_ref>, public wq_operations<wq> {
public:
    using verbs_owner::verbs_owner;
    /// Empty.
    wq() noexcept = default;

#if RDMACPP_EXCEPTIONS
    /// Makes a work queue for receives, in the state reset.
    /// @throws rdma::error errc::not_bound for an empty pd or cq; the errno of ibv_create_wq: EOPNOTSUPP where there
    /// are none
    wq(pd_ref pd, cq_ref cq, wq_init_attr const& attr) {
        std::error_code ec;
        *this = wq(pd, cq, attr, ec);
        if (ec)
            detail::throw_error(ec, "ibv_create_wq");
    }
#endif
    /// The twin of the creating constructor: empty on failure.
    wq(pd_ref pd, cq_ref cq, wq_init_attr const& attr, std::error_code& ec) noexcept {
        ibv_wq_init_attr c{};
        c.wq_context = attr.user_context;
        c.wq_type = IBV_WQT_RQ;
        c.max_wr = attr.max_wr;
        c.max_sge = attr.max_sge;
        c.pd = pd.native_handle();
        c.cq = cq.native_handle();
        c.create_flags = attr.create_flags;
        c.comp_mask = attr.create_flags ? std::uint32_t{IBV_WQ_INIT_ATTR_FLAGS} : 0U;
        if (auto* const node = fresh_node(pd && cq, ec))
            own(::ibv_create_wq(c.pd->context, &c), node, {detail::keeper(pd), detail::keeper(cq)}, ec);
        if (node_)
            node_->granted = {c.max_wr, c.max_sge};
    }

    /// What was granted, which may be more than was asked for; nothing of an adopted one.
    wq_cap cap() const noexcept { return node_ ? node_->granted : wq_cap(); }
};

static_assert(std::is_trivially_copyable_v<wq_ref>);
static_assert(detail::move_only<wq>);
static_assert(!detail::makes<wq, wq_ref> && !detail::makes<wq, ibv_wq*>);

} // namespace rdma::inline RDMACPP_ABI

template <>
struct std::hash<::rdma::wq_ref> : ::rdma::RDMACPP_ABI::detail::ref_hash<::rdma::wq_ref> {};

// ---- rwq_ind_table.hpp ----------------------------------------------------------------------------------------------
// Indirection tables: which work queue a packet goes to, by its hash.

namespace rdma::inline RDMACPP_ABI {

namespace detail {
struct rwq_ind_table_node : node_of<rwq_ind_table_node, ibv_rwq_ind_table> {
    static constexpr char const* made_by = "ibv_create_rwq_ind_table";
    static constexpr char const* ended_by = "ibv_destroy_rwq_ind_table";
    static int end(ibv_rwq_ind_table* table) noexcept { return ::ibv_destroy_rwq_ind_table(table); }

    rwq_ind_table_node() noexcept = default;
    rwq_ind_table_node(rwq_ind_table_node const&) = delete;
    rwq_ind_table_node& operator=(rwq_ind_table_node const&) = delete;
    ~rwq_ind_table_node() {
        delete[] more_needs;
        delete[] raw_queues;
    }

    ibv_wq** raw_queues = nullptr;
};
} // namespace detail

/// A borrowed indirection table. It destroys nothing and cannot turn into an owner.
class rwq_ind_table_ref : public verbs_ref<rwq_ind_table_ref, ibv_rwq_ind_table> {
public:
    using verbs_ref::verbs_ref;
};

/// An owned indirection table (ibv_create_rwq_ind_table): give it to a QP with qp_init_attr_ex. It keeps its work
/// queues alive, and the QP keeps it.
class [[nodiscard]] rwq_ind_table : public verbs_owner<detail::rwq_ind_table_node, rwq_ind_table_ref> {
public:
    using verbs_owner::verbs_owner;
    /// Empty.
    rwq_ind_table() noexcept = default;

#if RDMACPP_EXCEPTIONS
    /// Makes a table. @param queues a power of two of them; one may stand in several places
    /// @throws rdma::error std::errc::invalid_argument for another number; errc::not_bound if one is empty;
    /// the errno of ibv_create_rwq_ind_table
    rwq_ind_table(context_ref context, std::span<wq_ref const> queues) {
        std::error_code ec;
        *this = rwq_ind_table(context, queues, ec);
        if (ec)
            detail::throw_error(ec, "ibv_create_rwq_ind_table", {std::to_string(queues.size()), " work queues"});
    }
#endif
    /// The twin of the creating constructor: empty on failure.
    rwq_ind_table(context_ref context, std::span<wq_ref const> queues, std::error_code& ec) noexcept {
        std::size_t const n = queues.size();
        if (n == 0 || (n & (n - 1)) != 0) {
            ec = detail::system_error_code(EINVAL);
            return;
        }
        bool complete = static_cast<bool>(context);
        for (std::size_t i = 0; i != n; ++i)
            complete = complete && queues[i];
        auto* const node = fresh_node(complete, ec);
        if (!node)
            return;
        node->more_needs = new (std::nothrow) detail::pinnable*[n];
        node->raw_queues = new (std::nothrow) ibv_wq*[n];
        if (!node->more_needs || !node->raw_queues) {
            delete node;
            ec = detail::system_error_code(ENOMEM);
            return;
        }
        for (std::size_t i = 0; i != n; ++i) {
            node->more_needs[i] = detail::keeper(queues[i]);
            node->raw_queues[i] = queues[i].native_handle();
        }
        ibv_rwq_ind_table_init_attr attr{};
        while ((std::size_t{1} << attr.log_ind_tbl_size) != n)
            ++attr.log_ind_tbl_size;
        attr.ind_tbl = node->raw_queues;
        own(::ibv_create_rwq_ind_table(context.native_handle(), &attr), node, {detail::keeper(context)}, ec);
        if (!node_)
            return;
        for (std::size_t i = 0; i != n; ++i)
            detail::pin(node_->more_needs[i]);
        node_->more_count = n;
    }
};

static_assert(std::is_trivially_copyable_v<rwq_ind_table_ref>);
static_assert(detail::move_only<rwq_ind_table>);
static_assert(!detail::makes<rwq_ind_table, rwq_ind_table_ref>);

} // namespace rdma::inline RDMACPP_ABI

template <>
struct std::hash<::rdma::rwq_ind_table_ref> : ::rdma::RDMACPP_ABI::detail::ref_hash<::rdma::rwq_ind_table_ref> {};

// ---- xrcd.hpp -------------------------------------------------------------------------------------------------------
// XRC domains: what connects the shared receive queues and the receiving QPs of extended reliable connections.

namespace rdma::inline RDMACPP_ABI {

namespace detail {
struct xrcd_node : node_of<xrcd_node, ibv_xrcd> {
    static constexpr char const* made_by = "ibv_open_xrcd";
    static constexpr char const* ended_by = "ibv_close_xrcd";
    static int end(ibv_xrcd* xrcd) noexcept { return ::ibv_close_xrcd(xrcd); }
};
} // namespace detail

/// A borrowed XRC domain. It closes nothing and cannot turn into an owner; what is made with it keeps the xrcd alive.
class xrcd_ref : public verbs_ref<xrcd_ref, ibv_xrcd> {
public:
    using verbs_ref::verbs_ref;
};

/// An owned XRC domain of this process (ibv_open_xrcd).
class [[nodiscard]] xrcd : public verbs_owner<detail::xrcd_node, xrcd_ref> {
public:
    using verbs_owner::verbs_owner;
    /// Empty.
    xrcd() noexcept = default;

#if RDMACPP_EXCEPTIONS
    /// Opens a domain that no other process shares.
    /// @throws rdma::error errc::not_bound for an empty context; EOPNOTSUPP where the device has no XRC
    explicit xrcd(context_ref context) {
        std::error_code ec;
        *this = xrcd(context, ec);
        if (ec)
            detail::throw_error(ec, "ibv_open_xrcd", {context.device_name()});
    }
#endif
    /// The twin of the opening constructor: empty on failure.
    xrcd(context_ref context, std::error_code& ec) noexcept {
        ibv_xrcd_init_attr attr{};
        attr.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
        attr.fd = -1;
        attr.oflags = O_CREAT;
        if (auto* const node = fresh_node(static_cast<bool>(context), ec))
            own(::ibv_open_xrcd(context.native_handle(), &attr), node, {detail::keeper(context)}, ec);
    }
};

static_assert(std::is_trivially_copyable_v<xrcd_ref>);
static_assert(detail::move_only<xrcd>);
static_assert(!detail::makes<xrcd, xrcd_ref> && !detail::makes<xrcd, ibv_xrcd*>);

} // namespace rdma::inline RDMACPP_ABI

template <>
struct std::hash<::rdma::xrcd_ref> : ::rdma::RDMACPP_ABI::detail::ref_hash<::rdma::xrcd_ref> {};

// ---- srq.hpp --------------------------------------------------------------------------------------------------------
// Shared receive queues.

namespace rdma::inline RDMACPP_ABI {

/// What an SRQ is asked for, and what was granted. It is only read.
struct srq_init_attr {
    std::uint32_t max_wr = 16;    ///< receives that may wait in it
    std::uint32_t max_sge = 1;    ///< pieces of memory for each
    std::uint32_t srq_limit = 0;  ///< raises an event when fewer wait; 0: never
    void* user_context = nullptr; ///< Found again in `srq->srq_context`.
};

/// The type of a shared receive queue (ibv_srq_type).
enum class srq_type {
    basic = IBV_SRQT_BASIC,
    xrc = IBV_SRQT_XRC, ///< for QPs of type XRC_RECV; has a number that peers name, and a CQ
    tm = IBV_SRQT_TM,   ///< tag matching
};

/// What an SRQ of another type is asked for.
struct srq_init_attr_ex {
    srq_init_attr attr = {};                 ///< What any SRQ is asked for.
    ::rdma::srq_type type = srq_type::basic; ///< Its type.
    xrcd_ref xrcd = {};                      ///< Of an XRC one; none: librdmacm's for the device.
    cq_ref cq = {};         ///< Of an XRC one; none: librdmacm makes one, with a channel (cm_id::srq_cq).
    ibv_tm_cap tm_cap = {}; ///< For tag matching.
};

namespace detail {

inline ibv_srq_init_attr_ex to_c(srq_init_attr_ex const& attr) noexcept {
    ibv_srq_init_attr_ex c{};
    c.srq_context = attr.attr.user_context;
    c.attr = {attr.attr.max_wr, attr.attr.max_sge, attr.attr.srq_limit};
    c.comp_mask = IBV_SRQ_INIT_ATTR_TYPE;
    c.srq_type = static_cast<ibv_srq_type>(attr.type);
    c.xrcd = attr.xrcd.native_handle();
    c.cq = attr.cq.native_handle();
    c.tm_cap = attr.tm_cap;
    if (attr.xrcd)
        c.comp_mask |= IBV_SRQ_INIT_ATTR_XRCD;
    if (attr.cq)
        c.comp_mask |= IBV_SRQ_INIT_ATTR_CQ;
    if (attr.type == srq_type::tm)
        c.comp_mask |= IBV_SRQ_INIT_ATTR_TM;
    return c;
}

} // namespace detail

/// What an owned SRQ and a view of one have in common.
template <class Handle>
class srq_operations : public receive_queue<Handle> {
public:
    /// Posts operations on tags (ibv_post_srq_ops), of an SRQ of type tm. @param bad the first that was refused
    std::errc post_ops(ibv_ops_wr& first, ibv_ops_wr*& bad, std::nothrow_t) const noexcept {
        RDMACPP_ASSERT(raw());
        return static_cast<std::errc>(::ibv_post_srq_ops(raw(), &first, &bad));
    }

    /// Asks the device for its size and limit (ibv_query_srq).
    ibv_srq_attr query(std::error_code& ec) const noexcept {
        ibv_srq_attr attr{};
        ec = raw() ? detail::check_returned(::ibv_query_srq(raw(), &attr)) : std::error_code(errc::empty_handle);
        return attr;
    }
    /// Asks for one SRQ_LIMIT event when fewer receives than `limit` wait (ibv_modify_srq).
    void set_limit(std::uint32_t limit, std::error_code& ec) const noexcept {
        ibv_srq_attr attr{};
        attr.srq_limit = limit;
        modify(attr, IBV_SRQ_LIMIT, ec);
    }
    /// Changes its size (ibv_modify_srq), where the device can.
    void resize(std::uint32_t max_wr, std::error_code& ec) const noexcept {
        ibv_srq_attr attr{};
        attr.max_wr = max_wr;
        modify(attr, IBV_SRQ_MAX_WR, ec);
    }
    /// The number by which peers name an XRC one in their sends (ibv_get_srq_num).
    std::uint32_t srq_num(std::error_code& ec) const noexcept {
        std::uint32_t number = 0;
        ec = raw() ? detail::check_returned(::ibv_get_srq_num(raw(), &number)) : std::error_code(errc::empty_handle);
        return number;
    }

#if RDMACPP_EXCEPTIONS
    /// Posts operations on tags. @throws rdma::error the errno of ibv_post_srq_ops
    void post_ops(ibv_ops_wr& first, ibv_ops_wr*& bad) const {
        if (std::errc const e = post_ops(first, bad, std::nothrow); e != std::errc{}) [[unlikely]]
            detail::throw_refused(e, "ibv_post_srq_ops", bad ? bad->wr_id : 0);
    }
    /// The throwing form of query(std::error_code&). @throws rdma::error
    ibv_srq_attr query() const {
        std::error_code ec;
        ibv_srq_attr const attr = query(ec);
        if (ec)
            detail::throw_error(ec, "ibv_query_srq");
        return attr;
    }
    /// The throwing form of set_limit(std::uint32_t, std::error_code&). @throws rdma::error
    void set_limit(std::uint32_t limit) const {
        std::error_code ec;
        set_limit(limit, ec);
        if (ec)
            detail::throw_error(ec, "ibv_modify_srq", {"limit ", std::to_string(limit)});
    }
    /// The throwing form of resize(std::uint32_t, std::error_code&). @throws rdma::error
    void resize(std::uint32_t max_wr) const {
        std::error_code ec;
        resize(max_wr, ec);
        if (ec)
            detail::throw_error(ec, "ibv_modify_srq", {std::to_string(max_wr), " receives"});
    }
    /// The throwing form of srq_num(std::error_code&). @throws rdma::error
    std::uint32_t srq_num() const {
        std::error_code ec;
        std::uint32_t const number = srq_num(ec);
        if (ec)
            detail::throw_error(ec, "ibv_get_srq_num");
        return number;
    }
#endif

private:
    ibv_srq* raw() const noexcept { return static_cast<Handle const*>(this)->native_handle(); }

    void modify(ibv_srq_attr attr, int mask, std::error_code& ec) const noexcept {
        ec = raw() ? detail::check_returned(::ibv_modify_srq(raw(), &attr, mask)) : std::error_code(errc::empty_handle);
    }
};

/// A borrowed shared receive queue: of an srq, or of an id, which owns it. It cannot turn into an owner.
class srq_ref : public verbs_ref<srq_ref, ibv_srq>, public srq_operations<srq_ref> {
public:
    using verbs_ref::verbs_ref;
};

/// An owned shared receive queue (ibv_create_srq): several QPs take their receives from it. They keep it alive, and it
/// keeps its PD.
class [[nodiscard]] srq : public verbs_owner<detail::srq_node, srq_ref>, public srq_operations<srq> {
public:
    using verbs_owner::verbs_owner;
    /// Empty.
    srq() noexcept = default;

#if RDMACPP_EXCEPTIONS
    /// Makes an SRQ; cap() then tells what was granted.
    /// @throws rdma::error errc::not_bound for an empty pd; the errno of ibv_create_srq
    explicit srq(pd_ref pd, srq_init_attr const& attr = {}) {
        std::error_code ec;
        *this = srq(pd, attr, ec);
        if (ec)
            detail::throw_error(ec, "ibv_create_srq", {std::to_string(attr.max_wr), " receives"});
    }
    /// The same of another type: with an XRC domain and a CQ, or for tag matching (ibv_create_srq_ex).
    /// @throws rdma::error as above
    srq(pd_ref pd, srq_init_attr_ex const& attr) {
        std::error_code ec;
        *this = srq(pd, attr, ec);
        if (ec)
            detail::throw_error(ec, "ibv_create_srq_ex", {std::to_string(attr.attr.max_wr), " receives"});
    }
#endif
    /// The twins of the constructors: empty on failure.
    srq(pd_ref pd, std::error_code& ec) noexcept : srq(pd, srq_init_attr(), ec) {}
    srq(pd_ref pd, srq_init_attr const& attr, std::error_code& ec) noexcept {
        ibv_srq_init_attr c{attr.user_context, {attr.max_wr, attr.max_sge, attr.srq_limit}};
        if (auto* const node = fresh_node(static_cast<bool>(pd), ec))
            own(::ibv_create_srq(pd.native_handle(), &c), node, {detail::keeper(pd)}, ec);
        if (node_)
            node_->granted = c.attr;
    }
    srq(pd_ref pd, srq_init_attr_ex const& attr, std::error_code& ec) noexcept {
        ibv_srq_init_attr_ex c = detail::to_c(attr);
        c.pd = pd.native_handle();
        c.comp_mask |= IBV_SRQ_INIT_ATTR_PD;
        if (auto* const node = fresh_node(static_cast<bool>(pd), ec))
            own(::ibv_create_srq_ex(c.pd->context, &c), node,
                {detail::keeper(pd), detail::keeper(attr.cq), detail::keeper(attr.xrcd)}, ec);
        if (node_)
            node_->granted = c.attr;
    }

    /// What was granted, which may be more than was asked for; nothing of an adopted one, whose query() tells.
    srq_init_attr cap() const noexcept {
        return node_ ? srq_init_attr{node_->granted.max_wr, node_->granted.max_sge, node_->granted.srq_limit,
                                     raw_->srq_context}
                     : srq_init_attr{0, 0, 0, nullptr};
    }
};

static_assert(detail::move_only<srq>);
static_assert(!detail::makes<srq, srq_ref> && !detail::makes<srq, ibv_srq*>);
static_assert(std::is_trivially_copyable_v<srq_ref> && sizeof(srq_ref) == 2 * sizeof(void*));

} // namespace rdma::inline RDMACPP_ABI

template <>
struct std::hash<::rdma::srq_ref> : ::rdma::RDMACPP_ABI::detail::ref_hash<::rdma::srq_ref> {};

// ---- qp.hpp ---------------------------------------------------------------------------------------------------------
// Queue pairs: that of an id, and those that a program connects itself.

namespace rdma::inline RDMACPP_ABI {

/// What a QP can hold (ibv_qp_cap): asked for, or granted, which may be more.
struct qp_cap {
    std::uint32_t max_send_wr = 16;    ///< sends that may be outstanding
    std::uint32_t max_recv_wr = 16;    ///< receives that may be outstanding
    std::uint32_t max_send_sge = 1;    ///< pieces of memory for each send
    std::uint32_t max_recv_sge = 1;    ///< pieces of memory for each receive
    std::uint32_t max_inline_data = 0; ///< bytes
};

/// What cm_id::create_qp is asked for. It is only read.
struct qp_init_attr {
    cq_ref send_cq = {};          ///< None: librdmacm makes one, with a channel (cm_id::send_cq).
    cq_ref recv_cq = {};          ///< None: librdmacm makes one, with a channel (cm_id::recv_cq).
    srq_ref srq = {};             ///< Where its receives come from; none: that of the id, or its own queue.
    qp_cap cap = {};              ///< What it shall hold.
    bool signal_all = false;      ///< Every send completes visibly, as if signaled().
    void* user_context = nullptr; ///< Found again in `qp->qp_context`.
};

/// What a QP is asked for beyond that (ibv_qp_init_attr_ex). Each member that is set is used, and so is what
/// `comp_mask` names.
struct qp_init_attr_ex {
    qp_init_attr attr = {};             ///< What any QP is asked for.
    xrcd_ref xrcd = {};                 ///< Of an XRC_RECV one; none: librdmacm's for the device.
    std::uint32_t comp_mask = 0;        ///< Of ibv_qp_init_attr_mask, for what follows.
    std::uint32_t create_flags = 0;     ///< Of ibv_qp_create_flags.
    std::uint16_t max_tso_header = 0;   ///< bytes
    rwq_ind_table_ref rwq_ind_tbl = {}; ///< Kept alive by the QP.
    ibv_rx_hash_conf rx_hash_conf = {}; ///< How packets are spread over rwq_ind_tbl.
    std::uint32_t source_qpn = 0;       ///< With IBV_QP_CREATE_SOURCE_QPN.
    std::uint64_t send_ops_flags = 0;   ///< Of ibv_qp_create_send_ops_flags.
};

namespace detail {

inline ibv_qp_init_attr to_c(qp_init_attr const& attr, ibv_qp_type type) noexcept {
    ibv_qp_init_attr c{};
    c.qp_context = attr.user_context;
    c.send_cq = attr.send_cq.native_handle();
    c.recv_cq = attr.recv_cq.native_handle();
    c.srq = attr.srq.native_handle();
    c.cap = {attr.cap.max_send_wr, attr.cap.max_recv_wr, attr.cap.max_send_sge, attr.cap.max_recv_sge,
             attr.cap.max_inline_data};
    c.qp_type = type;
    c.sq_sig_all = attr.signal_all;
    return c;
}

inline ibv_qp_init_attr_ex to_c(qp_init_attr_ex const& attr, ibv_qp_type type) noexcept {
    ibv_qp_init_attr const basic = to_c(attr.attr, type);
    ibv_qp_init_attr_ex c{};
    c.qp_context = basic.qp_context;
    c.send_cq = basic.send_cq;
    c.recv_cq = basic.recv_cq;
    c.srq = basic.srq;
    c.cap = basic.cap;
    c.qp_type = type;
    c.sq_sig_all = basic.sq_sig_all;
    c.comp_mask = attr.comp_mask;
    c.xrcd = attr.xrcd.native_handle();
    if (attr.xrcd)
        c.comp_mask |= IBV_QP_INIT_ATTR_XRCD;
    c.create_flags = attr.create_flags;
    if (attr.create_flags)
        c.comp_mask |= IBV_QP_INIT_ATTR_CREATE_FLAGS;
    if (attr.max_tso_header)
        c.comp_mask |= IBV_QP_INIT_ATTR_MAX_TSO_HEADER;
    if (attr.rx_hash_conf.rx_hash_fields_mask || attr.rx_hash_conf.rx_hash_key_len)
        c.comp_mask |= IBV_QP_INIT_ATTR_RX_HASH;
    c.max_tso_header = attr.max_tso_header;
    c.rwq_ind_tbl = attr.rwq_ind_tbl.native_handle();
    if (attr.rwq_ind_tbl)
        c.comp_mask |= IBV_QP_INIT_ATTR_IND_TABLE;
    if (attr.send_ops_flags)
        c.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    c.rx_hash_conf = attr.rx_hash_conf;
    c.source_qpn = attr.source_qpn;
    c.send_ops_flags = attr.send_ops_flags;
    return c;
}

inline qp_cap from_c(ibv_qp_cap const& cap) noexcept {
    return {cap.max_send_wr, cap.max_recv_wr, cap.max_send_sge, cap.max_recv_sge, cap.max_inline_data};
}

} // namespace detail

/// What to modify a QP with, of cm_id::init_qp_attr.
struct qp_attr {
    ibv_qp_attr attr{}; ///< C's attributes.
    int mask = 0;       ///< Of ibv_qp_attr_mask: which of them count.
};

/// The wr_id of the requests that qp::drain posts to find the end of a queue; that of the receive is one more.
inline constexpr std::uint64_t drain_mark = 0x7264'6d61'6370'7000;

/// What qp::drain saw.
struct drained {
    bool sends = false;          ///< The send queue came back to its end.
    bool receives = false;       ///< The receive queue, too; or it has none.
    std::size_t completions = 0; ///< So many were handed on.

    explicit operator bool() const noexcept { return sends && receives; }
};

/// What an owned QP and a view of one have in common.
///
/// post_send is the data path, as post_recv is: its twins take a trailing std::nothrow_t and return the errno as C gave
/// it; an empty handle is a precondition there (RDMACPP_ASSERT). The memory of a request is the caller's to keep until
/// it has completed, or the QP is gone.
template <class Handle>
class qp_operations : public receive_queue<Handle> {
public:
    /// Its number on the device; 0 when empty.
    std::uint32_t qp_num() const noexcept { return raw() ? raw()->qp_num : 0; }

    /// What kind it is; rc when empty.
    ::rdma::qp_type qp_type() const noexcept {
        return raw() ? static_cast<::rdma::qp_type>(raw()->qp_type) : ::rdma::qp_type::rc;
    }

    /// Posts a chain of C requests (ibv_post_send). @param bad the first request that was refused, and not queued
    std::errc post_send(ibv_send_wr& first, ibv_send_wr*& bad, std::nothrow_t) const noexcept {
        RDMACPP_ASSERT(raw());
        return static_cast<std::errc>(::ibv_post_send(raw(), &first, &bad));
    }
    /// Posts a chain (ibv_post_send): all of them, or, if one is refused, those before it.
    /// @param refused the index of the first request that was not queued; their number if all were
    std::errc post_send(std::span<send_wr> requests, std::size_t& refused, std::nothrow_t) const noexcept {
        RDMACPP_ASSERT(raw());
        return detail::post_chain(requests, refused, [this](ibv_send_wr* first, ibv_send_wr** bad) noexcept {
            return ::ibv_post_send(raw(), first, bad);
        });
    }
    /// Posts one request (ibv_post_send).
    std::errc post_send(send_wr const& request, std::nothrow_t) const noexcept {
        ibv_send_wr* bad;
        return post_send(const_cast<ibv_send_wr&>(request.native_handle()), bad, std::nothrow); // only read
    }

#if RDMACPP_EXCEPTIONS
    /// Posts a chain of C requests. @throws rdma::error the errno of ibv_post_send; `bad` is the request that was
    /// refused
    void post_send(ibv_send_wr& first, ibv_send_wr*& bad) const {
        if (std::errc const e = post_send(first, bad, std::nothrow); e != std::errc{}) [[unlikely]]
            detail::throw_refused(e, "ibv_post_send", bad ? bad->wr_id : 0);
    }
    /// Posts one request. @throws rdma::error the errno of ibv_post_send
    void post_send(send_wr const& request) const {
        if (std::errc const e = post_send(request, std::nothrow); e != std::errc{}) [[unlikely]]
            detail::throw_refused(e, "ibv_post_send", request.native_handle().wr_id);
    }
    /// Posts a chain. @throws rdma::error the errno of ibv_post_send; the message says which request was refused: those
    /// before it are queued
    void post_send(std::span<send_wr> requests) const {
        std::size_t refused = 0;
        if (std::errc const e = post_send(requests, refused, std::nothrow); e != std::errc{}) [[unlikely]]
            detail::throw_refused_of(e, "ibv_post_send", requests, refused);
    }
    /// The throwing form of query(std::error_code&). @throws rdma::error
    ibv_qp_attr query(int mask) const {
        std::error_code ec;
        ibv_qp_attr const attr = query(mask, ec);
        if (ec)
            detail::throw_error(ec, "ibv_query_qp");
        return attr;
    }
    /// The throwing form of modify(std::error_code&). @throws rdma::error
    void modify(ibv_qp_attr const& attr, int mask) const {
        std::error_code ec;
        modify(attr, mask, ec);
        if (ec)
            detail::throw_error(ec, "ibv_modify_qp");
    }
    void modify(qp_attr const& to) const { modify(to.attr, to.mask); }
    /// The throwing form of modify_rate_limit(..., std::error_code&). @throws rdma::error
    void modify_rate_limit(ibv_qp_rate_limit_attr const& attr) const {
        std::error_code ec;
        modify_rate_limit(attr, ec);
        if (ec)
            detail::throw_error(ec, "ibv_modify_qp_rate_limit");
    }
    /// The throwing form of query_ece(std::error_code&). @throws rdma::error
    ibv_ece query_ece() const {
        std::error_code ec;
        ibv_ece const ece = query_ece(ec);
        if (ec)
            detail::throw_error(ec, "ibv_query_ece");
        return ece;
    }
    /// The throwing form of set_ece(..., std::error_code&). @throws rdma::error
    void set_ece(ibv_ece const& ece) const {
        std::error_code ec;
        set_ece(ece, ec);
        if (ec)
            detail::throw_error(ec, "ibv_set_ece");
    }
    /// The throwing form of drain(..., std::error_code&). @throws rdma::error
    template <class OnCompletion>
    drained drain(timeout limit, OnCompletion&& on_completion) const {
        std::error_code ec;
        drained const result = drain(limit, on_completion, ec);
        if (ec)
            detail::throw_error(ec, "ibv_modify_qp");
        return result;
    }
#endif

    /// Its other interface, if it was made with send_ops_flags (ibv_qp_to_qp_ex); else empty.
    qp_ex_ref ex() const noexcept;

    /// Takes the QP to its error state and collects what then comes back (ibv_modify_qp, ibv_poll_cq): every request
    /// that was posted, as wr_flush_err, and what had completed before. Afterwards their memory is the program's again.
    ///
    /// It ends early when the end of both queues was seen, by an empty request of its own behind all others that comes
    /// back as the last (on iWARP, where a send that is posted so late never does, when two looks in a row find
    /// nothing; a datagram QP's send queue shows no end). But nothing relies on that: devices differ in what they
    /// flush, and after `limit` it ends anyhow; such a request may then come back later, with the wr_id drain_mark. Who
    /// polls the CQs meanwhile takes completions away.
    /// @param on_completion called with every work_completion that is polled, also those of other QPs of the same CQs
    /// @return what was seen. Of a QP with an SRQ, receives that were not taken from it stay there.
    template <class OnCompletion>
    drained drain(timeout limit, OnCompletion&& on_completion, std::error_code& ec) const
        noexcept(noexcept(on_completion(std::declval<work_completion const&>())));

    /// Limits how fast it sends (ibv_modify_qp_rate_limit).
    void modify_rate_limit(ibv_qp_rate_limit_attr const& attr, std::error_code& ec) const noexcept {
        ibv_qp_rate_limit_attr copy = attr;
        ec = raw() ? detail::check_returned(::ibv_modify_qp_rate_limit(raw(), &copy))
                   : std::error_code(errc::empty_handle);
    }

    /// Whether the bytes of an operation arrive in order (ibv_query_qp_data_in_order, from rdma-core 36 on), so that
    /// their last one can be waited for by looking at memory.
    template <class Qp = ibv_qp>
        requires detail::has_query_qp_data_in_order<Qp>
    bool data_in_order(ibv_wr_opcode operation) const noexcept {
        return raw() && ibv_query_qp_data_in_order(static_cast<Qp*>(raw()), operation, 0) != 0;
    }

    /// What enhanced connection establishment it has agreed on (ibv_query_ece); librdmacm does this for the QP of an
    /// id.
    ibv_ece query_ece(std::error_code& ec) const noexcept {
        ibv_ece ece{};
        ec = raw() ? detail::check_returned(::ibv_query_ece(raw(), &ece)) : std::error_code(errc::empty_handle);
        return ece;
    }
    /// Tells it what the peer offers (ibv_set_ece).
    void set_ece(ibv_ece const& ece, std::error_code& ec) const noexcept {
        ibv_ece copy = ece;
        ec = raw() ? detail::check_returned(::ibv_set_ece(raw(), &copy)) : std::error_code(errc::empty_handle);
    }

    /// Asks the device for attributes (ibv_query_qp). @param mask of ibv_qp_attr_mask
    ibv_qp_attr query(int mask, std::error_code& ec) const noexcept {
        ibv_qp_attr attr{};
        ibv_qp_init_attr init{};
        ec = raw() ? detail::check_returned(::ibv_query_qp(raw(), &attr, mask, &init))
                   : std::error_code(errc::empty_handle);
        return attr;
    }

    /// The same, with what cm_id::init_qp_attr gave.
    void modify(qp_attr const& to, std::error_code& ec) const noexcept { modify(to.attr, to.mask, ec); }

    /// Changes attributes or state (ibv_modify_qp); librdmacm does what connecting needs by itself.
    void modify(ibv_qp_attr const& attr, int mask, std::error_code& ec) const noexcept {
        ibv_qp_attr copy = attr;
        ec = raw() ? detail::check_returned(::ibv_modify_qp(raw(), &copy, mask)) : std::error_code(errc::empty_handle);
    }

private:
    Handle const& as_handle() const noexcept { return *static_cast<Handle const*>(this); }
    ibv_qp* raw() const noexcept { return as_handle().native_handle(); }
};

/// A borrowed queue pair: of a qp, or that of an id, which owns it. It cannot turn into an owner.
class qp_ref : public verbs_ref<qp_ref, ibv_qp, detail::qp_node>, public qp_operations<qp_ref> {
public:
    using verbs_ref::verbs_ref;
};

/// An owned queue pair that no id knows of (ibv_create_qp): for programs that move it through its states themselves,
/// with cm_id::init_qp_attr, and give its number to connect and accept. It keeps its PD, CQs and SRQ alive.
///
/// cm_id::disconnect does not touch it: modify it to IBV_QPS_ERR to flush what is posted.
class [[nodiscard]] qp : public verbs_owner<detail::qp_node, qp_ref>, public qp_operations<qp> {
public:
    using verbs_owner::verbs_owner;
    /// Empty.
    qp() noexcept = default;

#if RDMACPP_EXCEPTIONS
    /// Makes a queue pair; cap() then tells what was granted.
    /// @param pd a pd, or cm_id::pd()
    /// @param attr its CQs must be given
    /// @throws rdma::error errc::not_bound for an empty pd; the errno of ibv_create_qp
    qp(pd_ref pd, ::rdma::qp_type type, qp_init_attr const& attr) {
        std::error_code ec;
        *this = qp(pd, type, attr, ec);
        if (ec)
            detail::throw_error(ec, "ibv_create_qp");
    }
    /// The same with all that devices offer (ibv_create_qp_ex). @throws rdma::error as above
    qp(pd_ref pd, ::rdma::qp_type type, qp_init_attr_ex const& attr) {
        std::error_code ec;
        *this = qp(pd, type, attr, ec);
        if (ec)
            detail::throw_error(ec, "ibv_create_qp_ex");
    }
    /// Opens a receiving QP of an XRC domain that another process made (ibv_open_qp).
    /// @throws rdma::error errc::not_bound for an empty context; the errno of ibv_open_qp
    qp(context_ref context, xrcd_ref xrcd, std::uint32_t qp_num, void* user_context = nullptr) {
        std::error_code ec;
        *this = qp(context, xrcd, qp_num, user_context, ec);
        if (ec)
            detail::throw_error(ec, "ibv_open_qp", {"number ", std::to_string(qp_num)});
    }
#endif
    /// The twins of the constructors: empty on failure.
    qp(pd_ref pd, ::rdma::qp_type type, qp_init_attr const& attr, std::error_code& ec) noexcept {
        ibv_qp_init_attr c = detail::to_c(attr, static_cast<ibv_qp_type>(type));
        if (auto* const node = fresh_node(static_cast<bool>(pd), ec))
            own(::ibv_create_qp(pd.native_handle(), &c), node,
                {detail::keeper(pd), detail::keeper(attr.send_cq), detail::keeper(attr.recv_cq),
                 detail::keeper(attr.srq)},
                ec);
        if (node_) {
            node_->granted = c.cap;
            node_->maybe_ex = false;
        }
    }
    qp(pd_ref pd, ::rdma::qp_type type, qp_init_attr_ex const& attr, std::error_code& ec) noexcept {
        ibv_qp_init_attr_ex c = detail::to_c(attr, static_cast<ibv_qp_type>(type));
        c.pd = pd.native_handle();
        c.comp_mask |= IBV_QP_INIT_ATTR_PD;
        if (auto* const node = fresh_node(static_cast<bool>(pd), ec))
            own(::ibv_create_qp_ex(c.pd->context, &c), node,
                {detail::keeper(pd), detail::keeper(attr.attr.send_cq), detail::keeper(attr.attr.recv_cq),
                 detail::keeper(attr.attr.srq), detail::keeper(attr.xrcd), detail::keeper(attr.rwq_ind_tbl)},
                ec);
        if (node_) {
            node_->granted = c.cap;
            node_->maybe_ex = attr.send_ops_flags != 0;
        }
    }
    qp(context_ref context, xrcd_ref xrcd, std::uint32_t qp_num, void* user_context, std::error_code& ec) noexcept {
        ibv_qp_open_attr attr{};
        attr.comp_mask =
            IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_CONTEXT | IBV_QP_OPEN_ATTR_TYPE;
        attr.qp_num = qp_num;
        attr.xrcd = xrcd.native_handle();
        attr.qp_context = user_context;
        attr.qp_type = IBV_QPT_XRC_RECV;
        if (auto* const node = fresh_node(context && xrcd, ec))
            own(::ibv_open_qp(context.native_handle(), &attr), node, {detail::keeper(context), detail::keeper(xrcd)},
                ec);
    }

    /// What was granted, which may be more than was asked for; nothing of an adopted or opened one, whose
    /// query(IBV_QP_CAP) tells.
    qp_cap cap() const noexcept { return node_ ? detail::from_c(node_->granted) : qp_cap{0, 0, 0, 0, 0}; }
};

template <class Handle>
qp_ex_ref qp_operations<Handle>::ex() const noexcept {
    qp_ref const self = as_handle();
    detail::qp_node* const node = detail::keeper(self);
    if (!self || (node && !node->maybe_ex))
        return {};
    return detail::refs::make<qp_ex_ref>(::ibv_qp_to_qp_ex(raw()), node);
}

static_assert(std::is_trivially_copyable_v<qp_ref>);
static_assert(detail::move_only<qp>);
static_assert(!detail::makes<qp, qp_ref> && !detail::makes<qp, ibv_qp*>);

} // namespace rdma::inline RDMACPP_ABI

template <>
struct std::hash<::rdma::qp_ref> : ::rdma::RDMACPP_ABI::detail::ref_hash<::rdma::qp_ref> {};

// ---- detail/draining.hpp --------------------------------------------------------------------------------------------
// How a QP is drained: to its error state, and then until the ends of its queues have come back.

namespace rdma::inline RDMACPP_ABI {

namespace detail {

/// The queues of a QP on their way to their ends.
class draining {
public:
    explicit draining(qp_ref qp) noexcept
        : qp_(qp), iwarp_(qp.native_handle()->context->device->transport_type == IBV_TRANSPORT_IWARP) {
        ibv_qp const& c = *qp.native_handle();
        std::error_code unknown;
        ibv_qp_cap const cap = qp.query(IBV_QP_CAP, unknown).cap;
        bool const sends = c.qp_type == IBV_QPT_RC || c.qp_type == IBV_QPT_UC || c.qp_type == IBV_QPT_XRC_SEND;
        send_marked_ = !sends || iwarp_; // a datagram would need an address
        seen.sends = c.qp_type == IBV_QPT_XRC_RECV;
        seen.receives = c.srq || c.qp_type == IBV_QPT_XRC_SEND || (!unknown && cap.max_recv_wr == 0);
        recv_marked_ = seen.receives;
        mark_receives(); // iWARP never flushes one that is posted later
    }

    void to_error(std::error_code& ec) const noexcept {
        ibv_qp_attr attr{};
        attr.qp_state = IBV_QPS_ERR;
        qp_.modify(attr, IBV_QP_STATE, ec);
    }

    /// A full queue takes the mark only after something came back.
    void mark() noexcept {
        bool const late = !recv_marked_;
        mark_receives();
        if (!send_marked_)
            send_marked_ = qp_.post_send(send_wr::send(nothing).id(drain_mark).signaled(), std::nothrow) == std::errc{};
        std::error_code again; // soft-RoCE looks at a late receive when it is told once more
        if (late && recv_marked_)
            to_error(again);
    }

    /// Takes what there is off both CQs.
    template <class OnCompletion>
    void collect(OnCompletion& on_completion, std::error_code& ec) {
        ibv_qp const& c = *qp_.native_handle();
        std::size_t const before = seen.completions;
        bool const polled =
            poll(c.send_cq, on_completion) && (c.recv_cq == c.send_cq || poll(c.recv_cq, on_completion));
        if (!polled)
            ec = errc::poll_failed;
        quiet_ = before == seen.completions ? quiet_ + 1 : 0;
        if (iwarp_ && quiet_ >= 2)
            seen.sends = seen.receives = true;
    }

    drained seen;

private:
    void mark_receives() noexcept {
        if (!recv_marked_) // no piece at all is refused on soft-iWARP
            recv_marked_ = qp_.post_recv(recv_wr(ibv_sge{}).id(drain_mark + 1), std::nothrow) == std::errc{};
    }

    template <class OnCompletion>
    bool poll(ibv_cq* cq, OnCompletion& on_completion) {
        work_completion batch[16];
        int n = 0;
        while (cq && (n = ::ibv_poll_cq(cq, 16, reinterpret_cast<ibv_wc*>(batch))) > 0)
            for (int i = 0; i != n; ++i)
                take(batch[i], on_completion);
        return n == 0;
    }
    template <class OnCompletion>
    void take(work_completion const& completion, OnCompletion& on_completion) {
        bool const ours = completion.qp_num() == qp_.qp_num();
        if (ours && completion.wr_id() == drain_mark) {
            seen.sends = true;
        } else if (ours && completion.wr_id() == drain_mark + 1) {
            seen.receives = true;
        } else {
            ++seen.completions;
            on_completion(completion);
        }
    }

    static constexpr std::span<ibv_sge const> nothing{};

    qp_ref const qp_;
    bool const iwarp_;
    bool send_marked_ = false;
    bool recv_marked_ = false;
    int quiet_ = 0; // looks in a row that found nothing
};

} // namespace detail

template <class Handle>
template <class OnCompletion>
drained qp_operations<Handle>::drain(timeout limit, OnCompletion&& on_completion, std::error_code& ec) const
    noexcept(noexcept(on_completion(std::declval<work_completion const&>()))) {
    ec = raw() ? std::error_code() : std::error_code(errc::empty_handle);
    if (ec)
        return {};
    detail::deadline const until = detail::deadline::after(limit);
    detail::draining queues(as_handle());
    queues.to_error(ec);
    timespec nap{0, 10'000}; // nanoseconds; then longer ones
    while (!ec) {
        queues.mark();
        queues.collect(on_completion, ec);
        if (queues.seen || until.passed())
            break;
        ::nanosleep(&nap, nullptr);
        nap.tv_nsec = nap.tv_nsec < 500'000 ? nap.tv_nsec * 2 : nap.tv_nsec;
    }
    return queues.seen;
}

} // namespace rdma::inline RDMACPP_ABI

// ---- rdma_verbs.hpp -------------------------------------------------------------------------------------------------
// The shorthands of <rdma/rdma_verbs.h>: registering memory and posting requests through an id.

namespace rdma::inline RDMACPP_ABI {

/// What a cm_id offers of <rdma/rdma_verbs.h>. Each function is the C one of the same name.
///
/// The posting ones are the data path: their twins take a trailing std::nothrow_t and return the errno; an id with a QP
/// is a precondition there (RDMACPP_ASSERT). `context` is found again as the completion's wr_id; `flags` are those of
/// ibv_send_flags. The memory must stay until the request has completed, except of sends with IBV_SEND_INLINE, which
/// need no region either: an empty mr then. A receive goes to the id's SRQ if it has one.
template <class Id>
class rdma_verbs {
public:
#if RDMACPP_EXCEPTIONS
    /// Registers memory for messages, on the id's PD (rdma_reg_msgs).
    /// @throws rdma::error errc::not_bound before a device is bound; the errno of ibv_reg_mr
    mr reg_msgs(std::span<std::byte> memory) const { return mr(pd(), memory, access::local_write); }
    /// Registers memory that the peer may read (rdma_reg_read). @throws rdma::error as reg_msgs
    mr reg_read(std::span<std::byte> memory) const {
        return mr(pd(), memory, access::local_write | access::remote_read);
    }
    /// Registers memory that the peer may write (rdma_reg_write). @throws rdma::error as reg_msgs
    mr reg_write(std::span<std::byte> memory) const {
        return mr(pd(), memory, access::local_write | access::remote_write);
    }

    /// Posts a receive into several pieces of memory (rdma_post_recvv). @throws rdma::error the errno of ibv_post_recv
    void post_recvv(void* context, std::span<ibv_sge const> pieces) const {
        posted(post_recvv(context, pieces, std::nothrow), "rdma_post_recvv");
    }
    /// Posts a send of several pieces of memory (rdma_post_sendv). @throws rdma::error the errno of ibv_post_send
    void post_sendv(void* context, std::span<ibv_sge const> pieces, int flags = 0) const {
        posted(post_sendv(context, pieces, flags, std::nothrow), "rdma_post_sendv");
    }
    /// Posts an RDMA read into several pieces of memory (rdma_post_readv).
    /// @throws rdma::error as post_sendv
    void post_readv(void* context, std::span<ibv_sge const> pieces, int flags, remote_memory from) const {
        posted(post_readv(context, pieces, flags, from, std::nothrow), "rdma_post_readv");
    }
    /// Posts an RDMA write of several pieces of memory (rdma_post_writev).
    /// @throws rdma::error as post_sendv
    void post_writev(void* context, std::span<ibv_sge const> pieces, int flags, remote_memory to) const {
        posted(post_writev(context, pieces, flags, to, std::nothrow), "rdma_post_writev");
    }

    /// Posts a receive (rdma_post_recv). @throws rdma::error the errno of ibv_post_recv
    void post_recv(void* context, std::span<std::byte> into, mr const& region) const {
        posted(post_recv(context, into, region, std::nothrow), "rdma_post_recv");
    }
    /// Posts a send (rdma_post_send). @throws rdma::error the errno of ibv_post_send
    void post_send(void* context, std::span<std::byte const> from, mr const& region, int flags = 0) const {
        posted(post_send(context, from, region, flags, std::nothrow), "rdma_post_send");
    }
    /// Posts an RDMA read (rdma_post_read). @throws rdma::error as post_send
    void post_read(void* context, std::span<std::byte> into, mr const& region, int flags, remote_memory from) const {
        posted(post_read(context, into, region, flags, from, std::nothrow), "rdma_post_read");
    }
    /// Posts an RDMA write (rdma_post_write). @throws rdma::error as post_send
    void post_write(void* context, std::span<std::byte const> from, mr const& region, int flags,
                    remote_memory to) const {
        posted(post_write(context, from, region, flags, to, std::nothrow), "rdma_post_write");
    }
    /// Posts a datagram, with RDMA_UDP_QKEY (rdma_post_ud_send). @throws rdma::error as post_send
    void post_ud_send(void* context, std::span<std::byte const> from, mr const& region, int flags, ah const& peer,
                      std::uint32_t qp_num) const {
        posted(post_ud_send(context, from, region, flags, peer, qp_num, std::nothrow), "rdma_post_ud_send");
    }
#endif

    mr reg_msgs(std::span<std::byte> memory, std::error_code& ec) const noexcept {
        return mr(pd(), memory, access::local_write, ec);
    }
    mr reg_read(std::span<std::byte> memory, std::error_code& ec) const noexcept {
        return mr(pd(), memory, access::local_write | access::remote_read, ec);
    }
    mr reg_write(std::span<std::byte> memory, std::error_code& ec) const noexcept {
        return mr(pd(), memory, access::local_write | access::remote_write, ec);
    }

    std::errc post_recvv(void* context, std::span<ibv_sge const> pieces, std::nothrow_t) const noexcept {
        return result(::rdma_post_recvv(raw(), context, to_c(pieces), static_cast<int>(pieces.size())));
    }
    std::errc post_sendv(void* context, std::span<ibv_sge const> pieces, int flags, std::nothrow_t) const noexcept {
        return result(::rdma_post_sendv(raw(), context, to_c(pieces), static_cast<int>(pieces.size()), flags));
    }
    std::errc post_readv(void* context, std::span<ibv_sge const> pieces, int flags, remote_memory from,
                         std::nothrow_t) const noexcept {
        return result(::rdma_post_readv(raw(), context, to_c(pieces), static_cast<int>(pieces.size()), flags,
                                        from.address, from.rkey));
    }
    std::errc post_writev(void* context, std::span<ibv_sge const> pieces, int flags, remote_memory to,
                          std::nothrow_t) const noexcept {
        return result(::rdma_post_writev(raw(), context, to_c(pieces), static_cast<int>(pieces.size()), flags,
                                         to.address, to.rkey));
    }
    std::errc post_recv(void* context, std::span<std::byte> into, mr const& region, std::nothrow_t) const noexcept {
        RDMACPP_ASSERT(region);
        return result(::rdma_post_recv(raw(), context, into.data(), into.size(), region.native_handle()));
    }
    std::errc post_send(void* context, std::span<std::byte const> from, mr const& region, int flags,
                        std::nothrow_t) const noexcept {
        return result(::rdma_post_send(raw(), context, to_c(from), from.size(), region.native_handle(), flags));
    }
    std::errc post_read(void* context, std::span<std::byte> into, mr const& region, int flags, remote_memory from,
                        std::nothrow_t) const noexcept {
        RDMACPP_ASSERT(region);
        return result(::rdma_post_read(raw(), context, into.data(), into.size(), region.native_handle(), flags,
                                       from.address, from.rkey));
    }
    std::errc post_write(void* context, std::span<std::byte const> from, mr const& region, int flags, remote_memory to,
                         std::nothrow_t) const noexcept {
        return result(::rdma_post_write(raw(), context, to_c(from), from.size(), region.native_handle(), flags,
                                        to.address, to.rkey));
    }
    std::errc post_ud_send(void* context, std::span<std::byte const> from, mr const& region, int flags, ah const& peer,
                           std::uint32_t qp_num, std::nothrow_t) const noexcept {
        return result(::rdma_post_ud_send(raw(), context, to_c(from), from.size(), region.native_handle(), flags,
                                          peer.native_handle(), qp_num));
    }

private:
    pd_ref pd() const noexcept { return static_cast<Id const*>(this)->pd(); }
    rdma_cm_id* raw() const noexcept {
        rdma_cm_id* const id = static_cast<Id const*>(this)->native_handle();
        RDMACPP_ASSERT(id && (id->qp || id->srq));
        return id;
    }

    // C takes what it only reads by pointers to non-const.
    static void* to_c(std::span<std::byte const> bytes) noexcept { return const_cast<std::byte*>(bytes.data()); }
    static ibv_sge* to_c(std::span<ibv_sge const> pieces) noexcept { return const_cast<ibv_sge*>(pieces.data()); }

    static std::errc result(int c) noexcept { return c == 0 ? std::errc{} : static_cast<std::errc>(errno); }

#if RDMACPP_EXCEPTIONS
    static void posted(std::errc result, char const* function) {
        if (result != std::errc{}) [[unlikely]]
            detail::throw_returned(result, function);
    }
#endif
};

} // namespace rdma::inline RDMACPP_ABI

// ---- cm_id.hpp ------------------------------------------------------------------------------------------------------
// Connection manager ids: the sockets of RDMA.

namespace rdma::inline RDMACPP_ABI {

/// An owned rdma_cm_id: listener, or one end of a connection.
///
/// It may be dropped at any time, on any thread, whatever events of it are held, by whom ever: the peer is told at
/// once, the QP goes at once, and rdma_destroy_id runs with the last ack. It keeps its event channel alive. Operations
/// start something whose outcome arrives as an event; none waits (but see connect). One thread at a time may use one
/// id.
///
/// Every function that calls C throws rdma::error with the errno of the C function, and has a `noexcept` twin with a
/// trailing std::error_code&. Used when empty, it fails with errc::empty_handle; before a device is bound, where
/// librdmacm would crash, with errc::not_bound. Neither calls C.
class [[nodiscard]] cm_id : public cm_id_base, public rdma_verbs<cm_id> {
public:
    /// Empty.
    cm_id() noexcept = default;
    cm_id(cm_id&& other) noexcept : cm_id_base(detail::take(other.raw_)), record_(detail::take(other.record_)) {}
    /// Drops the id held before, at once.
    cm_id& operator=(cm_id&& other) noexcept {
        cm_id(std::move(other)).swap(*this);
        return *this;
    }
    /// Drops the id (rdma_destroy_id, now or with the last ack). Never throws, never waits for an ack. On iWARP the
    /// kernel holds the destroy of an id in mid-connect until the peer answers or its timeout passes (siw: 10 s).
    ~cm_id() {
        if (record_)
            record_->channel->drop(*record_);
    }

#if RDMACPP_EXCEPTIONS
    /// Makes an id on a channel (rdma_create_id).
    /// @param channel where its events arrive; it is kept alive
    /// @param ps the port space: tcp for connections, udp for datagrams
    /// @param user_context kept in `id->context`
    /// @throws rdma::error errc::empty_handle for an empty channel
    cm_id(event_channel_ref channel, ::rdma::port_space ps, void* user_context = nullptr) {
        std::error_code ec;
        *this = cm_id(channel, ps, user_context, ec);
        if (ec)
            detail::throw_error(ec, "rdma_create_id");
    }
    /// Makes an id for QPs of a type that the port space alone does not give, such as the two of XRC (rdma_create_ep,
    /// then rdma_migrate_id onto the channel), bound to a local address.
    /// @param local where to bind; empty: any IPv4 address, on a port of the system's choice
    /// @throws rdma::error errc::empty_handle for an empty channel; the errno of rdma_create_ep
    cm_id(event_channel_ref channel, ::rdma::port_space ps, ::rdma::qp_type type, address const& local = {}) {
        std::error_code ec;
        if (char const* const function = create_ep(channel, ps, type, local, ec); ec)
            detail::throw_error(ec, function, {to_string(local)});
    }
    /// Takes over an id that C made, or that release() gave back, with its QP if librdmacm made that. Whether it is an
    /// undecided request is not known then: accept and reject are left to C, so use them only if it is.
    /// @throws rdma::error errc::null_handle, errc::already_owned, errc::wrong_channel; std::errc::not_enough_memory
    cm_id(adopt_t, event_channel_ref channel, rdma_cm_id* raw) {
        std::error_code ec;
        *this = cm_id(adopt, channel, raw, ec);
        if (ec)
            detail::throw_error(ec, "rdma_create_id", {"adopt"});
    }
#endif
    /// The twins of the constructors: empty on failure.
    cm_id(event_channel_ref channel, ::rdma::port_space ps, std::error_code& ec) noexcept
        : cm_id(channel, ps, nullptr, ec) {}
    cm_id(event_channel_ref channel, ::rdma::port_space ps, void* user_context, std::error_code& ec) noexcept;
    cm_id(event_channel_ref channel, ::rdma::port_space ps, ::rdma::qp_type type, address const& local,
          std::error_code& ec) noexcept;
    cm_id(adopt_t, event_channel_ref channel, rdma_cm_id* raw, std::error_code& ec) noexcept;

    operator cm_id_ref() const& noexcept { return cm_id_ref(raw_); }
    operator cm_id_ref() const&& = delete;
    void swap(cm_id& other) noexcept {
        detail::swap_values(raw_, other.raw_);
        detail::swap_values(record_, other.record_);
    }
    friend void swap(cm_id& a, cm_id& b) noexcept { a.swap(b); }

    /// Gives the C id back, with its QP; takes no lock and makes no C call. Events of it are still delivered and
    /// counted.
    [[nodiscard]] rdma_cm_id* release() noexcept {
        if (record_)
            record_->channel->release_id(*detail::take(record_));
        return detail::take(raw_);
    }

    // ---- What belongs to it: all borrowed, all empty before a device is bound --------------------------------------

    /// Its device, which belongs to librdmacm (`id->verbs`); empty for a wildcard listener.
    context_ref verbs() const noexcept {
        return raw_ ? detail::refs::make<context_ref>(raw_->verbs, static_cast<detail::pinnable*>(record_))
                    : context_ref();
    }

    /// Its protection domain: librdmacm's default one, or that of its QP.
    pd_ref pd() const noexcept;

    /// Its QP, of create_qp.
    qp_ref qp() const noexcept {
        return raw_ ? detail::refs::make<qp_ref>(raw_->qp,
                                                 static_cast<detail::qp_node*>(record_ ? record_->qp : nullptr))
                    : qp_ref();
    }

    /// Its shared receive queue, of create_srq.
    srq_ref srq() const noexcept {
        return record_ && record_->srq ? detail::refs::make<srq_ref>(raw_->srq, record_->srq) : srq_ref();
    }

    /// The channel its events arrive on; it changes with migrate.
    event_channel_ref channel() const noexcept { return raw_ ? event_channel_ref(raw_->channel) : event_channel_ref(); }

    /// The CQ that librdmacm made for its XRC SRQ, if create_srq_ex was given none.
    cq_ref srq_cq() const noexcept { return record_ ? view(record_->srq_cq) : cq_ref(); }
    comp_channel_ref srq_cq_channel() const noexcept {
        return record_ ? view_channel(record_->srq_cq) : comp_channel_ref();
    }

    /// The CQs that librdmacm made for its QP, if create_qp was given none, and their channels.
    cq_ref send_cq() const noexcept { return record_ ? view(record_->send_cq) : cq_ref(); }
    cq_ref recv_cq() const noexcept { return record_ ? view(record_->recv_cq) : cq_ref(); }
    comp_channel_ref send_cq_channel() const noexcept {
        return record_ ? view_channel(record_->send_cq) : comp_channel_ref();
    }
    comp_channel_ref recv_cq_channel() const noexcept {
        return record_ ? view_channel(record_->recv_cq) : comp_channel_ref();
    }

    // ---- What it does ----------------------------------------------------------------------------------------------

#if RDMACPP_EXCEPTIONS
    /// Binds it to a local address (rdma_bind_addr); port 0 lets the system choose. A specific address binds a device,
    /// too.
    /// @throws rdma::error errc::bad_address for the empty one; EADDRINUSE, EADDRNOTAVAIL, ENODEV ...
    void bind(address const& local) {
        std::error_code ec;
        bind(local, ec);
        if (ec)
            detail::throw_error(ec, "rdma_bind_addr", {to_string(local)});
    }

    /// Listens for connection requests (rdma_listen). @param backlog how many may queue; 0: as many as the system
    /// allows
    void listen(int backlog = 0) {
        std::error_code ec;
        listen(backlog, ec);
        if (ec)
            detail::throw_error(ec, "rdma_listen");
    }

    /// Resolves the peer's address to a local device (rdma_resolve_addr): leads to ADDR_RESOLVED or ADDR_ERROR.
    /// @throws rdma::error errc::bad_address, errc::family_mismatch; ENODEV if no RDMA device leads there ...
    void resolve_addr(address const& peer, timeout limit = std::chrono::milliseconds(2000)) {
        std::error_code ec;
        resolve_addr(peer, limit, ec);
        if (ec)
            detail::throw_error(ec, "rdma_resolve_addr", {to_string(peer)});
    }
    /// The same, from a given local address, whose port may be 0.
    void resolve_addr(address const& local, address const& peer, timeout limit = std::chrono::milliseconds(2000)) {
        std::error_code ec;
        resolve_addr(local, peer, limit, ec);
        if (ec)
            detail::throw_error(ec, "rdma_resolve_addr", {to_string(local), ", ", to_string(peer)});
    }

    /// Finds the route to the peer (rdma_resolve_route): leads to ROUTE_RESOLVED or ROUTE_ERROR. Needs ADDR_RESOLVED.
    void resolve_route(timeout limit = std::chrono::milliseconds(2000)) {
        std::error_code ec;
        resolve_route(limit, ec);
        if (ec)
            detail::throw_error(ec, "rdma_resolve_route");
    }

    /// Makes its QP (rdma_create_qp), on its default PD, or on one of the same device; what is used is kept alive.
    /// @return what was granted, which may be more than was asked for
    /// @throws rdma::error errc::qp_exists; std::errc::not_enough_memory; EINVAL ...
    qp_cap create_qp(qp_init_attr const& attr) { return create_qp(pd_ref(), attr); }
    qp_cap create_qp(pd_ref protection, qp_init_attr const& attr) {
        std::error_code ec;
        qp_cap const granted = create_qp(protection, attr, ec);
        if (ec)
            detail::throw_error(ec, "rdma_create_qp");
        return granted;
    }

    /// Makes its QP with all that devices offer (rdma_create_qp_ex); otherwise as create_qp.
    qp_cap create_qp_ex(qp_init_attr_ex const& attr) { return create_qp_ex(pd_ref(), attr); }
    qp_cap create_qp_ex(pd_ref protection, qp_init_attr_ex const& attr) {
        std::error_code ec;
        qp_cap const granted = create_qp_ex(protection, attr, ec);
        if (ec)
            detail::throw_error(ec, "rdma_create_qp_ex");
        return granted;
    }

    /// Makes its shared receive queue (rdma_create_srq), on its default PD, or on one of the same device, which is kept
    /// alive. A QP made afterwards uses it. It goes with the id, or with destroy_srq.
    /// @return what was granted
    /// @throws rdma::error errc::not_bound; std::errc::file_exists if it has one; the errno of ibv_create_srq
    srq_init_attr create_srq(srq_init_attr const& attr = {}) { return create_srq(pd_ref(), attr); }
    srq_init_attr create_srq(pd_ref protection, srq_init_attr const& attr) {
        std::error_code ec;
        srq_init_attr const granted = create_srq(protection, attr, ec);
        if (ec)
            detail::throw_error(ec, "rdma_create_srq");
        return granted;
    }
    /// The same, of any type (rdma_create_srq_ex): for XRC and tag matching.
    srq_init_attr create_srq_ex(srq_init_attr_ex const& attr) { return create_srq_ex(pd_ref(), attr); }
    srq_init_attr create_srq_ex(pd_ref protection, srq_init_attr_ex const& attr) {
        std::error_code ec;
        srq_init_attr const granted = create_srq_ex(protection, attr, ec);
        if (ec)
            detail::throw_error(ec, "rdma_create_srq_ex");
        return granted;
    }

    /// Asks the peer for a connection (rdma_connect): leads to ESTABLISHED, REJECTED, UNREACHABLE or CONNECT_ERROR, to
    /// a dead host only after 102 seconds, unless the id is dropped. Needs ROUTE_RESOLVED and, for all but self-managed
    /// QPs, a QP. Post receives first. On iWARP it may block inside the call, and the connecting side must send the
    /// first message.
    /// @throws rdma::error errc::private_data_too_long, errc::private_data_iwarp, errc::retry_count_out_of_range
    void connect(conn_param const& param = {}) {
        std::error_code ec;
        connect(param, ec);
        if (ec)
            detail::throw_error(ec, "rdma_connect", {describe(param)});
    }

    /// Accepts the request that brought the id (rdma_accept): leads to ESTABLISHED. Make the QP and post receives
    /// first. After a failure the kernel has rejected the peer already; the id is still to be dropped.
    /// @throws rdma::error errc::not_a_request on any other id; errc::private_data_too_long and as for connect
    void accept(conn_param const& param = {}) {
        std::error_code ec;
        accept(param, ec);
        if (ec)
            detail::throw_error(ec, "rdma_accept", {describe(param)});
    }

    /// Rejects the request that brought the id (rdma_reject). The id is still to be dropped; dropping it undecided
    /// rejects, too.
    /// @throws rdma::error errc::not_a_request on any other id (librdmacm would block for 102 s in a later destroy);
    /// errc::private_data_too_long, errc::private_data_iwarp
    void reject(std::span<std::byte const> private_data = {}) {
        std::error_code ec;
        reject(private_data, ec);
        if (ec)
            detail::throw_error(ec, "rdma_reject", {std::to_string(private_data.size()), " bytes"});
    }

    /// Rejects the request because its ECE options do not suit (rdma_reject_ece): the peer sees reason 35. Otherwise as
    /// reject.
    void reject_ece(std::span<std::byte const> private_data = {}) {
        std::error_code ec;
        reject_ece(private_data, ec);
        if (ec)
            detail::throw_error(ec, "rdma_reject_ece", {std::to_string(private_data.size()), " bytes"});
    }

    /// Completes a connection whose QP is the program's own, after CONNECT_RESPONSE (rdma_establish); no event follows
    /// here, the peer becomes ESTABLISHED. InfiniBand and RoCE alone.
    /// @throws rdma::error errc::not_bound; errc::has_qp: librdmacm does it itself then; EINVAL on iWARP
    void establish() {
        std::error_code ec;
        establish(ec);
        if (ec)
            detail::throw_error(ec, "rdma_establish");
    }

    /// What to modify a QP of the program's own with, to bring it into a state of this connection (rdma_init_qp_attr):
    /// IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS, in this order, after CONNECT_RESPONSE or CONNECT_REQUEST. To post
    /// receives before connecting, INIT may be asked for then, too, and once more later: only then does it allow the
    /// peer's reads and writes. On iWARP the device moves the QP by itself.
    /// @throws rdma::error errc::not_bound; EINVAL in the wrong state of the connection
    qp_attr init_qp_attr(ibv_qp_state state) const {
        std::error_code ec;
        qp_attr const attr = init_qp_attr(state, ec);
        if (ec)
            detail::throw_error(ec, "rdma_init_qp_attr", {"state ", std::to_string(static_cast<int>(state))});
        return attr;
    }

    /// Tells the kernel of an async event of its QP (rdma_notify): of IBV_EVENT_COMM_EST, when data arrived before
    /// ESTABLISHED. That it is connected already is no error.
    void notify(ibv_event_type event) {
        std::error_code ec;
        notify(event, ec);
        if (ec)
            detail::throw_error(ec, "rdma_notify", {::ibv_event_type_str(event)});
    }

    /// The ECE options to offer, before connect or accept (rdma_set_local_ece), of a connection whose QP is the
    /// program's own. @throws rdma::error errc::has_qp; EINVAL for vendor_id 0 or a comp_mask
    void set_local_ece(ibv_ece const& ece) {
        std::error_code ec;
        set_local_ece(ece, ec);
        if (ec)
            detail::throw_error(ec, "rdma_set_local_ece");
    }
    /// The peer's ECE options (rdma_get_remote_ece): after CONNECT_REQUEST or CONNECT_RESPONSE, of a connection whose
    /// QP is the program's own; vendor_id 0: none. @throws rdma::error errc::has_qp
    ibv_ece remote_ece() const {
        std::error_code ec;
        ibv_ece const ece = remote_ece(ec);
        if (ec)
            detail::throw_error(ec, "rdma_get_remote_ece");
        return ece;
    }

    /// Joins a multicast group (rdma_join_multicast): leads to MULTICAST_JOIN or MULTICAST_ERROR. Make the QP first:
    /// librdmacm attaches it when the event is got.
    /// @param group an IPv4 or IPv6 multicast address, or an IPv6 one that holds an MGID
    /// @param user_context what cm_event::join_context gives; the peer never sees it
    /// @return drop it to leave
    /// @throws rdma::error errc::not_bound, errc::bad_address, errc::already_joined; the errno of the call
    membership join_multicast(address const& group, void* user_context = nullptr) {
        std::error_code ec;
        membership joined = join_multicast(group, user_context, ec);
        if (ec)
            detail::throw_error(ec, "rdma_join_multicast", {to_string(group)});
        return joined;
    }
    /// The same, as a full member or as a sender alone (rdma_join_multicast_ex).
    membership join_multicast(address const& group, join_flag flag, void* user_context = nullptr) {
        std::error_code ec;
        membership joined = join_multicast(group, flag, user_context, ec);
        if (ec)
            detail::throw_error(ec, "rdma_join_multicast_ex", {to_string(group)});
        return joined;
    }

    /// Moves it, and the events queued for it, to another channel (rdma_migrate_id): for a channel for each worker, or
    /// each connection. Both channels may be in use by other threads.
    /// @throws rdma::error errc::empty_handle; std::errc::resource_deadlock_would_occur while events of it are held,
    /// saying how many (a CONNECT_REQUEST that brought it does not count); errc::listener_migrates
    void migrate(event_channel_ref to) {
        std::error_code ec;
        if (std::uint32_t const held = migrate_unless_held(to, ec); ec)
            detail::throw_error(ec, "rdma_migrate_id", {std::to_string(held), " events held"});
    }

    /// Ends the connection (rdma_disconnect): leads to DISCONNECTED here and there; the QP goes into its error state.
    void disconnect() {
        std::error_code ec;
        disconnect(ec);
        if (ec)
            detail::throw_error(ec, "rdma_disconnect");
    }

    /// Destroys the id now, and its QP (rdma_destroy_id); empty afterwards. On an error it keeps the id.
    /// @throws rdma::error std::errc::resource_deadlock_would_occur while events of it are held, saying how many;
    /// std::errc::device_or_resource_busy while something made from it lives; it never waits for either
    void destroy() {
        std::error_code ec;
        if (std::uint32_t const held = destroy_unless_held(ec); ec)
            detail::throw_error(ec, "rdma_destroy_id", {std::to_string(held), " events held"});
    }

    /// Type of service of its packets (RDMA_OPTION_ID_TOS); before connecting.
    void set_tos(std::uint8_t tos) {
        std::error_code ec;
        set_tos(tos, ec);
        if (ec)
            detail::throw_error(ec, "rdma_set_option", {"tos"});
    }
    /// Allows binding to a port in use (RDMA_OPTION_ID_REUSEADDR); before bind.
    void set_reuse_addr(bool on) {
        std::error_code ec;
        set_reuse_addr(on, ec);
        if (ec)
            detail::throw_error(ec, "rdma_set_option", {"reuse_addr"});
    }
    /// Keeps an IPv6 wildcard listener from IPv4 (RDMA_OPTION_ID_AFONLY); before bind.
    void set_af_only(bool on) {
        std::error_code ec;
        set_af_only(on, ec);
        if (ec)
            detail::throw_error(ec, "rdma_set_option", {"af_only"});
    }
    /// The QP's local ACK timeout (RDMA_OPTION_ID_ACK_TIMEOUT); before connect or accept.
    void set_ack_timeout(ack_timeout span) {
        std::error_code ec;
        set_ack_timeout(span, ec);
        if (ec)
            detail::throw_error(ec, "rdma_set_option", {"ack_timeout"});
    }
    /// The InfiniBand path to use, in place of resolve_route (RDMA_OPTION_IB_PATH): leads to ROUTE_RESOLVED, too.
    void set_ib_path(std::span<ibv_path_data const> paths) {
        std::error_code ec;
        set_ib_path(paths, ec);
        if (ec)
            detail::throw_error(ec, "rdma_set_option", {"ib_path"});
    }
    /// Any other option of rdma_set_option, by its level and name in C.
    void set_option(int level, int name, std::span<std::byte const> value) {
        std::error_code ec;
        set_option(level, name, value, ec);
        if (ec)
            detail::throw_error(ec, "rdma_set_option",
                                {"level ", std::to_string(level), ", option ", std::to_string(name)});
    }
#endif

    void bind(address const& local, std::error_code& ec) noexcept;
    void listen(int backlog, std::error_code& ec) noexcept;
    void listen(std::error_code& ec) noexcept { listen(0, ec); }
    void resolve_addr(address const& peer, timeout limit, std::error_code& ec) noexcept;
    void resolve_addr(address const& local, address const& peer, timeout limit, std::error_code& ec) noexcept;
    void resolve_addr(address const& peer, std::error_code& ec) noexcept {
        resolve_addr(peer, std::chrono::milliseconds(2000), ec);
    }
    void resolve_route(timeout limit, std::error_code& ec) noexcept;
    void resolve_route(std::error_code& ec) noexcept { resolve_route(std::chrono::milliseconds(2000), ec); }
    qp_cap create_qp(pd_ref protection, qp_init_attr const& attr, std::error_code& ec) noexcept;
    qp_cap create_qp(qp_init_attr const& attr, std::error_code& ec) noexcept { return create_qp({}, attr, ec); }
    qp_cap create_qp_ex(pd_ref protection, qp_init_attr_ex const& attr, std::error_code& ec) noexcept;
    qp_cap create_qp_ex(qp_init_attr_ex const& attr, std::error_code& ec) noexcept {
        return create_qp_ex({}, attr, ec);
    }
    srq_init_attr create_srq(pd_ref protection, srq_init_attr const& attr, std::error_code& ec) noexcept;
    srq_init_attr create_srq(srq_init_attr const& attr, std::error_code& ec) noexcept {
        return create_srq({}, attr, ec);
    }
    srq_init_attr create_srq_ex(pd_ref protection, srq_init_attr_ex const& attr, std::error_code& ec) noexcept;
    srq_init_attr create_srq_ex(srq_init_attr_ex const& attr, std::error_code& ec) noexcept {
        return create_srq_ex({}, attr, ec);
    }
    void connect(conn_param const& param, std::error_code& ec) noexcept;
    void connect(std::error_code& ec) noexcept { connect({}, ec); }
    void accept(conn_param const& param, std::error_code& ec) noexcept;
    void accept(std::error_code& ec) noexcept { accept({}, ec); }
    void reject(std::span<std::byte const> private_data, std::error_code& ec) noexcept;
    void reject(std::error_code& ec) noexcept { reject({}, ec); }
    void reject_ece(std::span<std::byte const> private_data, std::error_code& ec) noexcept;
    void reject_ece(std::error_code& ec) noexcept { reject_ece({}, ec); }
    void establish(std::error_code& ec) noexcept;
    qp_attr init_qp_attr(ibv_qp_state state, std::error_code& ec) const noexcept;
    void notify(ibv_event_type event, std::error_code& ec) noexcept;
    void set_local_ece(ibv_ece const& ece, std::error_code& ec) noexcept;
    ibv_ece remote_ece(std::error_code& ec) const noexcept;
    membership join_multicast(address const& group, join_flag flag, void* user_context, std::error_code& ec) noexcept {
        return join(group, static_cast<int>(flag), user_context, ec);
    }
    membership join_multicast(address const& group, join_flag flag, std::error_code& ec) noexcept {
        return join_multicast(group, flag, nullptr, ec);
    }
    membership join_multicast(address const& group, void* user_context, std::error_code& ec) noexcept {
        return join(group, detail::channel_state::plain_join, user_context, ec);
    }
    membership join_multicast(address const& group, std::error_code& ec) noexcept {
        return join(group, detail::channel_state::plain_join, nullptr, ec);
    }
    void migrate(event_channel_ref to, std::error_code& ec) noexcept { migrate_unless_held(to, ec); }
    void disconnect(std::error_code& ec) noexcept;
    void destroy(std::error_code& ec) noexcept { destroy_unless_held(ec); }
    void set_tos(std::uint8_t tos, std::error_code& ec) noexcept {
        set(RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &tos, sizeof tos, ec);
    }
    void set_reuse_addr(bool on, std::error_code& ec) noexcept {
        int const value = on;
        set(RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &value, sizeof value, ec);
    }
    void set_af_only(bool on, std::error_code& ec) noexcept {
        int const value = on;
        set(RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &value, sizeof value, ec);
    }
    void set_ack_timeout(ack_timeout span, std::error_code& ec) noexcept {
        std::uint8_t const exponent = span.exponent();
        set(RDMA_OPTION_ID, detail::option_id_ack_timeout, &exponent, sizeof exponent, ec);
    }
    void set_ib_path(std::span<ibv_path_data const> paths, std::error_code& ec) noexcept {
        set(RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, paths.data(), paths.size_bytes(), ec);
    }
    void set_option(int level, int name, std::span<std::byte const> value, std::error_code& ec) noexcept {
        set(level, name, value.data(), value.size(), ec);
    }

    /// Destroys its QP, if it has one, now or with the last event of it; and librdmacm's CQs with it. A failure is told
    /// to the diagnostic handler. The id's default PD is its PD again.
    void destroy_qp() noexcept {
        if (record_)
            detail::unpin(record_->channel->unhook_qp(*record_));
    }
    /// Destroys its SRQ, if it has one, now or when the last QP and event of it are gone.
    void destroy_srq() noexcept {
        if (record_)
            detail::unpin(record_->channel->unhook_srq(*record_));
    }

    /// True once a DISCONNECTED of it was got.
    bool disconnected() const noexcept { return record_ && record_->ended.load(detail::order::acquire); }

    // ---- With rdma-core 60 and newer; elsewhere these do not exist -------------------------------------------------

#if RDMACPP_EXCEPTIONS
    /// Looks up a host and a service (rdma_resolve_addrinfo): leads to ADDRINFO_RESOLVED, then query_addrinfo has the
    /// results, or to ADDRINFO_ERROR. Names are still looked up before it returns, unless hints.flags has RAI_SA.
    template <class Id = rdma_cm_id>
        requires detail::has_resolve_addrinfo<Id>
    void resolve_addrinfo(char const* node, char const* service, addrinfo_hints const& hints = {}) {
        std::error_code ec;
        resolve_addrinfo<Id>(node, service, hints, ec);
        if (ec)
            detail::throw_error(ec, "rdma_resolve_addrinfo", {node ? node : "", ", ", service ? service : ""});
    }
    /// The results, once (rdma_query_addrinfo). @throws rdma::error ENOENT if there are none
    template <class Id = rdma_cm_id>
        requires detail::has_resolve_addrinfo<Id> addrinfo query_addrinfo() {
            std::error_code ec;
            addrinfo found = query_addrinfo<Id>(ec);
            if (ec)
                detail::throw_error(ec, "rdma_query_addrinfo");
            return found;
        }
    /// Puts an event of type USER on its channel (rdma_write_cm_event); any thread may. The kernel must know it, too.
    /// @param status, arg what cm_event::status and cm_event::user_arg give
    template <class Id = rdma_cm_id>
        requires detail::has_write_cm_event<Id>
    void write_cm_event(int status, std::uint64_t arg) {
        std::error_code ec;
        write_cm_event<Id>(status, arg, ec);
        if (ec)
            detail::throw_error(ec, "rdma_write_cm_event");
    }
#endif
    template <class Id = rdma_cm_id>
        requires detail::has_resolve_addrinfo<Id>
    void resolve_addrinfo(char const* node, char const* service, addrinfo_hints const& hints,
                          std::error_code& ec) noexcept {
        if (!ready(ec))
            return;
        rdma_addrinfo const c = addrinfo::to_c(hints);
        errno = 0; // C may leave a resolver's code there, or -1, which is none
        if (rdma_resolve_addrinfo(static_cast<Id*>(raw_), node, service, &c) != 0)
            ec = errno < -1 ? std::error_code(errno, gai_category())
                            : detail::system_error_code(errno == -1 ? 0 : errno);
    }
    template <class Id = rdma_cm_id>
        requires detail::has_resolve_addrinfo<Id> addrinfo query_addrinfo(std::error_code& ec)
    noexcept {
        addrinfo found;
        if (ready(ec))
            ec = detail::check_errno(rdma_query_addrinfo(static_cast<Id*>(raw_), &found.raw_));
        return found;
    }
    template <class Id = rdma_cm_id>
        requires detail::has_write_cm_event<Id>
    void write_cm_event(int status, std::uint64_t arg, std::error_code& ec) noexcept {
        if (ready(ec))
            ec = detail::check_errno(rdma_write_cm_event(
                static_cast<Id*>(raw_), static_cast<rdma_cm_event_type>(cm_event_type::user), status, arg));
    }

private:
    friend class cm_event;

    cm_id(rdma_cm_id* raw, detail::id_record* record) noexcept : cm_id_base(raw), record_(record) {}

    static cq_ref view(detail::cq_node* node) noexcept {
        return node ? detail::refs::make<cq_ref>(node->object(), node) : cq_ref();
    }
    static comp_channel_ref view_channel(detail::cq_node* node) noexcept {
        return node ? detail::refs::make<comp_channel_ref>(node->channel->object(), node->channel) : comp_channel_ref();
    }

    /// Whether C may be called: the handle is not empty, and, where librdmacm would look at it, there is a device.
    bool ready(std::error_code& ec, bool needs_device = false) const noexcept {
        ec.clear();
        if (!raw_)
            ec = errc::empty_handle;
        else if (needs_device && !raw_->verbs)
            ec = errc::not_bound;
        return !ec;
    }

    bool decide(std::error_code& ec) noexcept;
    bool without_qp(std::error_code& ec) const noexcept;
    void reject_with(int (*function)(rdma_cm_id*, void const*, std::uint8_t), std::span<std::byte const> private_data,
                     std::error_code& ec) noexcept;
    std::uint32_t destroy_unless_held(std::error_code& ec) noexcept;
    std::uint32_t migrate_unless_held(event_channel_ref to, std::error_code& ec) noexcept;
    bool ready_for_qp(detail::id_qp_nodes const& nodes, std::error_code& ec) const noexcept;
    bool ready_for_srq(detail::id_srq_nodes const& nodes, std::error_code& ec) const noexcept;
    void destroy_leftovers() noexcept;
    membership join(address const& group, int flag, void* user_context, std::error_code& ec) noexcept;
    char const* create_ep(event_channel_ref channel, ::rdma::port_space ps, ::rdma::qp_type type, address const& local,
                          std::error_code& ec) noexcept;
    static ibv_cq* cq_of_srq(rdma_cm_id const& id) noexcept;

    /// C takes the address by a pointer to non-const, and only reads it.
    static sockaddr* to_c(address const& a) noexcept { return const_cast<sockaddr*>(a.native_handle()); }

    void set(int level, int name, void const* value, std::size_t size, std::error_code& ec) noexcept;

#if RDMACPP_EXCEPTIONS
    static std::string describe(conn_param const& p) {
        return detail::concat({std::to_string(p.private_data.size()), " bytes of private data, retry_count ",
                               std::to_string(p.retry_count), ", rnr_retry_count ", std::to_string(p.rnr_retry_count)});
    }
#endif

    detail::id_record* record_ = nullptr;
};

static_assert(detail::move_only<cm_id> && detail::nothrow_empty<cm_id>);
static_assert(!detail::makes<cm_id, cm_id_ref> && !detail::makes<cm_id, rdma_cm_id*>);
static_assert(sizeof(cm_id) <= 3 * sizeof(void*));

// ---- Implementation ------------------------------------------------------------------------------------------------

inline cm_id::cm_id(event_channel_ref channel, ::rdma::port_space ps, void* user_context,
                    std::error_code& ec) noexcept {
    if (!channel) {
        ec = errc::empty_handle;
        return;
    }
    detail::channel_state* const state = detail::channel_state::borrow(channel.native_handle(), ec);
    if (!state)
        return;
    record_ = state->create_id(static_cast<rdma_port_space>(ps), user_context, ec);
    raw_ = record_ ? record_->raw : nullptr;
    state->unref(); // the record keeps it
}

inline cm_id::cm_id(event_channel_ref channel, ::rdma::port_space ps, ::rdma::qp_type type, address const& local,
                    std::error_code& ec) noexcept {
    create_ep(channel, ps, type, local, ec);
}

/// @return the last C function that was called
inline char const* cm_id::create_ep(event_channel_ref channel, ::rdma::port_space ps, ::rdma::qp_type type,
                                    address const& local, std::error_code& ec) noexcept {
    if (!channel) {
        ec = errc::empty_handle;
        return "rdma_create_ep";
    }
    address const any = address::any_v4(0, ec);
    address const& from = local.family() != AF_UNSPEC ? local : any;
    rdma_addrinfo info{};
    info.ai_flags = RAI_PASSIVE; // then it binds, and waits for nothing
    info.ai_family = from.family();
    info.ai_qp_type = static_cast<int>(type);
    info.ai_port_space = static_cast<int>(ps);
    info.ai_src_len = from.length();
    info.ai_src_addr = to_c(from);
    rdma_cm_id* raw = nullptr;
    ec = detail::check_errno(::rdma_create_ep(&raw, &info, nullptr, nullptr));
    if (ec)
        return "rdma_create_ep";
    ec = detail::check_errno(::rdma_migrate_id(raw, channel.native_handle())); // from a channel of its own
    if (!ec)
        *this = cm_id(adopt, channel, raw, ec);
    if (ec)
        ::rdma_destroy_ep(raw);
    else
        record_->request.store(detail::request_state::none);
    return "rdma_migrate_id";
}

/// An XRC SRQ of C's that came without a CQ has got the id's: the QP, which receives through it, has none of its own.
inline ibv_cq* cm_id::cq_of_srq(rdma_cm_id const& id) noexcept {
    return id.qp_type == IBV_QPT_XRC_RECV ? id.recv_cq : nullptr;
}

inline cm_id::cm_id(adopt_t, event_channel_ref channel, rdma_cm_id* raw, std::error_code& ec) noexcept {
    if (!channel) {
        ec = errc::empty_handle;
        return;
    }
    bool const srq_has_cq = raw && raw->srq && raw->recv_cq && raw->recv_cq == cq_of_srq(*raw);
    detail::id_srq_nodes srq_nodes(srq_has_cq); // in case C made an SRQ and a QP
    detail::id_qp_nodes nodes(raw && raw->send_cq, raw && raw->recv_cq && !srq_has_cq);
    if (!nodes.complete || !srq_nodes.complete) {
        ec = detail::system_error_code(ENOMEM);
        return;
    }
    detail::channel_state* const state = detail::channel_state::borrow(channel.native_handle(), ec);
    if (!state)
        return;
    record_ = state->adopt_id(raw, ec);
    state->unref();
    if (!record_)
        return;
    raw_ = raw;
    record_->take_qp_back();
    if (raw->srq && !record_->srq)
        srq_nodes.adopt(*record_);
    if (raw->qp && !record_->qp)
        nodes.adopt(*record_);
}

inline pd_ref cm_id::pd() const noexcept {
    if (!raw_ || !raw_->pd)
        return {};
    bool const users = record_->qp && raw_->pd != record_->default_pd && record_->qp->needs[0];
    return detail::refs::make<pd_ref>(raw_->pd, users ? record_->qp->needs[0] : record_);
}

inline void cm_id::bind(address const& local, std::error_code& ec) noexcept {
    if (!ready(ec))
        return;
    if (local.family() == AF_UNSPEC)
        ec = errc::bad_address;
    else
        ec = detail::check_errno(::rdma_bind_addr(raw_, to_c(local)));
}

inline void cm_id::listen(int backlog, std::error_code& ec) noexcept {
    if (!ready(ec))
        return;
    ec = detail::check_errno(::rdma_listen(raw_, backlog));
    if (ec)
        return;
    record_->request.store(detail::request_state::none);
    record_->listening = true;
}

inline void cm_id::resolve_addr(address const& peer, timeout limit, std::error_code& ec) noexcept {
    resolve_addr(address(), peer, limit, ec);
}

inline void cm_id::resolve_addr(address const& local, address const& peer, timeout limit,
                                std::error_code& ec) noexcept {
    if (!ready(ec))
        return;
    sa_family_t const bound = local.family() != AF_UNSPEC ? local.family() : local_addr().family();
    if (peer.family() == AF_UNSPEC)
        ec = errc::bad_address;
    else if (bound != AF_UNSPEC && bound != peer.family())
        ec = errc::family_mismatch;
    else
        ec = detail::check_errno(
            ::rdma_resolve_addr(raw_, local.family() != AF_UNSPEC ? to_c(local) : nullptr, to_c(peer), limit.as_int()));
}

inline void cm_id::resolve_route(timeout limit, std::error_code& ec) noexcept {
    if (ready(ec, true))
        ec = detail::check_errno(::rdma_resolve_route(raw_, limit.as_int()));
}

inline void cm_id::connect(conn_param const& param, std::error_code& ec) noexcept {
    if (!ready(ec, true) || (ec = detail::check(param, raw_->verbs)))
        return;
    rdma_conn_param c = detail::to_c(param);
    record_->request.store(detail::request_state::none);
    record_->active.store(true, detail::order::relaxed);
    ec = detail::check_errno(::rdma_connect(raw_, &c));
}

/// A request is decided once; false, with `ec`, if it was decided before or never was one.
inline bool cm_id::decide(std::error_code& ec) noexcept {
    using state = detail::request_state;
    state const before = record_->request.exchange(state::decided);
    if (before == state::undecided || before == state::unknown)
        return true;
    record_->request.store(before);
    ec = errc::not_a_request;
    return false;
}

inline void cm_id::accept(conn_param const& param, std::error_code& ec) noexcept {
    if (!ready(ec, true) || (ec = detail::check(param, raw_->verbs)) || !decide(ec))
        return;
    rdma_conn_param c = detail::to_c(param);
    record_->active.store(true, detail::order::relaxed);
    ec = detail::check_errno(::rdma_accept(raw_, &c));
}

inline void cm_id::reject_with(int (*function)(rdma_cm_id*, void const*, std::uint8_t),
                               std::span<std::byte const> private_data, std::error_code& ec) noexcept {
    if (!ready(ec) || (ec = detail::check_private_data(private_data, raw_->verbs)) || !decide(ec))
        return;
    ec = detail::check_errno(function(raw_, private_data.data(), static_cast<std::uint8_t>(private_data.size())));
    if (ec) // nothing was sent: it is still to be decided
        record_->request.store(detail::request_state::undecided);
}

inline void cm_id::reject(std::span<std::byte const> private_data, std::error_code& ec) noexcept {
    reject_with(&::rdma_reject, private_data, ec);
}

inline void cm_id::reject_ece(std::span<std::byte const> private_data, std::error_code& ec) noexcept {
    reject_with(&detail::reject_ece<rdma_cm_id>, private_data, ec);
}

/// librdmacm does by itself, for a QP that it knows, what these calls are for.
inline bool cm_id::without_qp(std::error_code& ec) const noexcept {
    if (ready(ec, true) && raw_->qp)
        ec = errc::has_qp;
    return !ec;
}

inline void cm_id::establish(std::error_code& ec) noexcept {
    if (without_qp(ec))
        ec = detail::check_errno(detail::establish(raw_));
}

inline qp_attr cm_id::init_qp_attr(ibv_qp_state state, std::error_code& ec) const noexcept {
    qp_attr result;
    result.attr.qp_state = state;
    if (ready(ec, true))
        ec = detail::check_errno(detail::init_qp_attr(raw_, result.attr, result.mask));
    return result;
}

inline void cm_id::notify(ibv_event_type event, std::error_code& ec) noexcept {
    if (!ready(ec))
        return;
    ec = detail::check_errno(::rdma_notify(raw_, event));
    if (ec == std::errc::already_connected)
        ec.clear();
}

inline void cm_id::set_local_ece(ibv_ece const& ece, std::error_code& ec) noexcept {
    ibv_ece copy = ece; // C takes it by a pointer to non-const
    if (!ready(ec))
        return;
    if (raw_->qp)
        ec = errc::has_qp;
    else
        ec = detail::check_errno(detail::set_local_ece(raw_, copy));
}

inline ibv_ece cm_id::remote_ece(std::error_code& ec) const noexcept {
    ibv_ece ece{};
    if (!ready(ec))
        return ece;
    if (raw_->qp)
        ec = errc::has_qp;
    else
        ec = detail::check_errno(detail::get_remote_ece(raw_, ece));
    return ece;
}

inline membership cm_id::join(address const& group, int flag, void* user_context, std::error_code& ec) noexcept {
    if (!ready(ec, true))
        return {};
    if (group.family() == AF_UNSPEC) {
        ec = errc::bad_address;
        return {};
    }
    return membership(record_->channel->join(*record_, group, flag, user_context, ec));
}

inline std::uint32_t cm_id::migrate_unless_held(event_channel_ref to, std::error_code& ec) noexcept {
    std::uint32_t held = 0;
    if (!ready(ec))
        return held;
    if (!to || record_->listening) {
        ec = to ? errc::listener_migrates : errc::empty_handle;
        return held;
    }
    if (detail::channel_state* const state = detail::channel_state::borrow(to.native_handle(), ec)) {
        ec = detail::channel_state::migrate(*record_, *state, held);
        state->unref(); // the record keeps it
    }
    return held;
}

inline void cm_id::disconnect(std::error_code& ec) noexcept {
    if (ready(ec, true))
        ec = detail::check_errno(::rdma_disconnect(raw_));
}

inline std::uint32_t cm_id::destroy_unless_held(std::error_code& ec) noexcept {
    std::uint32_t held = 0;
    if (!ready(ec))
        return held;
    ec = record_->channel->destroy(*record_, held);
    if (!ec) {
        raw_ = nullptr;
        record_ = nullptr;
    }
    return held;
}

inline void cm_id::set(int level, int name, void const* value, std::size_t size, std::error_code& ec) noexcept {
    if (ready(ec)) // C takes the value by a pointer to non-const, and only reads it
        ec = detail::check_errno(::rdma_set_option(raw_, level, name, const_cast<void*>(value), size));
}

/// Whether a QP may be made, with nodes for it; if so, C may be called next.
inline bool cm_id::ready_for_qp(detail::id_qp_nodes const& nodes, std::error_code& ec) const noexcept {
    if (!ready(ec, true))
        return false;
    if (raw_->qp)
        ec = errc::qp_exists;
    else if (!nodes.complete)
        ec = detail::system_error_code(ENOMEM);
    errno = 0; // siw's provider can fail without saying why: not with a reason left over from another call
    return !ec;
}

/// After a QP without a receive queue could not be made, librdmacm leaves its send CQ behind.
inline void cm_id::destroy_leftovers() noexcept {
    if (ibv_cq* const cq = detail::take(raw_->send_cq))
        ::ibv_destroy_cq(cq);
    if (ibv_comp_channel* const channel = detail::take(raw_->send_cq_channel))
        ::ibv_destroy_comp_channel(channel);
}

inline qp_cap cm_id::create_qp(pd_ref protection, qp_init_attr const& attr, std::error_code& ec) noexcept {
    detail::id_qp_nodes nodes(!attr.send_cq, !attr.recv_cq && record_ && !record_->srq_cq);
    if (!ready_for_qp(nodes, ec))
        return {};
    ibv_qp_init_attr c = detail::to_c(attr, raw_->qp_type);
    ibv_pd* const before = raw_->pd;
    ec = detail::check_errno(::rdma_create_qp(raw_, protection.native_handle(), &c));
    if (ec) {
        destroy_leftovers();
        return {};
    }
    nodes.hook(*record_, before,
               {detail::keeper(protection), detail::keeper(attr.send_cq), detail::keeper(attr.recv_cq),
                detail::keeper(attr.srq), nullptr, nullptr, false});
    return detail::from_c(c.cap);
}

inline qp_cap cm_id::create_qp_ex(pd_ref protection, qp_init_attr_ex const& attr, std::error_code& ec) noexcept {
    qp_init_attr const& basic = attr.attr;
    detail::id_qp_nodes nodes(!basic.send_cq, !basic.recv_cq && record_ && !record_->srq_cq);
    if (!ready_for_qp(nodes, ec))
        return {};
    ibv_qp_init_attr_ex c = detail::to_c(attr, raw_->qp_type);
    c.pd = protection.native_handle(); // none: librdmacm puts the default one
    c.comp_mask |= protection ? static_cast<std::uint32_t>(IBV_QP_INIT_ATTR_PD) : 0;
    ibv_pd* const before = raw_->pd;
    ec = detail::check_errno(::rdma_create_qp_ex(raw_, &c));
    if (ec) {
        destroy_leftovers();
        return {};
    }
    nodes.hook(*record_, before,
               {detail::keeper(protection), detail::keeper(basic.send_cq), detail::keeper(basic.recv_cq),
                detail::keeper(basic.srq), detail::keeper(attr.xrcd), detail::keeper(attr.rwq_ind_tbl),
                attr.send_ops_flags != 0});
    return detail::from_c(c.cap);
}

/// Whether an SRQ may be made. A second one would make C forget the first.
inline bool cm_id::ready_for_srq(detail::id_srq_nodes const& nodes, std::error_code& ec) const noexcept {
    if (!ready(ec, true))
        return false;
    if (raw_->srq || !nodes.complete)
        ec = detail::system_error_code(raw_->srq ? EEXIST : ENOMEM);
    errno = 0;
    return !ec;
}

inline srq_init_attr cm_id::create_srq(pd_ref protection, srq_init_attr const& attr, std::error_code& ec) noexcept {
    detail::id_srq_nodes nodes(raw_ && raw_->qp_type == IBV_QPT_XRC_RECV); // then it is an XRC one, with a CQ
    if (!ready_for_srq(nodes, ec))
        return {};
    ibv_srq_init_attr c{attr.user_context, {attr.max_wr, attr.max_sge, attr.srq_limit}};
    ec = detail::check_errno(::rdma_create_srq(raw_, protection.native_handle(), &c));
    if (ec)
        return {};
    nodes.hook(*record_, {detail::keeper(protection), nullptr, nullptr, nullptr, nullptr});
    return {c.attr.max_wr, c.attr.max_sge, c.attr.srq_limit, attr.user_context};
}

inline srq_init_attr cm_id::create_srq_ex(pd_ref protection, srq_init_attr_ex const& attr,
                                          std::error_code& ec) noexcept {
    detail::id_srq_nodes nodes(attr.type == srq_type::xrc && !attr.cq);
    if (!ready_for_srq(nodes, ec))
        return {};
    ibv_srq_init_attr_ex c = detail::to_c(attr);
    c.pd = protection.native_handle();
    c.comp_mask |= protection ? static_cast<std::uint32_t>(IBV_SRQ_INIT_ATTR_PD) : 0;
    ec = detail::check_errno(::rdma_create_srq_ex(raw_, &c));
    if (ec)
        return {};
    nodes.hook(*record_,
               {detail::keeper(protection), nullptr, detail::keeper(attr.cq), nullptr, detail::keeper(attr.xrcd)});
    return {c.attr.max_wr, c.attr.max_sge, c.attr.srq_limit, attr.attr.user_context};
}

inline cm_id cm_event::take_id(std::error_code& ec) noexcept {
    ec.clear();
    if (!held_.child || !held_.child->status.replace(detail::id_status::in_event, detail::id_status::owned)) {
        ec = errc::no_id_to_take;
        return {};
    }
    return {held_.child->raw, held_.child};
}

#if RDMACPP_EXCEPTIONS
inline cm_id cm_event::take_id() {
    std::error_code ec;
    cm_id id = take_id(ec);
    if (ec)
        detail::throw_error(ec, "rdma_get_cm_event", {"take_id"});
    return id;
}
#endif

} // namespace rdma::inline RDMACPP_ABI

// ---- detail/await.hpp -----------------------------------------------------------------------------------------------
// Waiting for what one id is to be told, on a channel that it has for itself: so nobody else's event is ever eaten.

namespace rdma::inline RDMACPP_ABI::detail {

/// What limits a wait.
struct limits {
    deadline until;
    any_stop_token stop;

    /// Why to give up now, if there is a reason.
    std::error_code reached() const noexcept {
        if (stop.stop_requested())
            return system_error_code(ECANCELED);
        return until.passed() ? system_error_code(ETIMEDOUT) : std::error_code();
    }
    /// What is left, for C functions that take a timeout of their own.
    timeout left() const noexcept { return until.left(); }
};

/// The next event of a channel; empty, with the reason, if none comes within the limits.
struct event_access {
    static channel_state* state(event_channel const& channel) noexcept { return channel.channel(); }

    static cm_event get(event_channel const& channel, limits const& within, std::error_code& ec) noexcept {
        cm_event event;
        switch (cm_event::receive(*channel.channel(), event, within.until, within.stop, {}, ec)) {
        case woken::expired: ec = system_error_code(ETIMEDOUT); break;
        case woken::stopped: ec = system_error_code(ECANCELED); break;
        case woken::closed: ec = errc::empty_handle; break;
        case woken::ready:
        case woken::failed: break;
        }
        return event;
    }
};

/// Why an event other than the one that was waited for ends the wait; nothing if it does not.
inline std::error_code ends_wait(cm_event const& event) noexcept {
    switch (event.type()) {
    case cm_event_type::addr_error:
    case cm_event_type::route_error:
    case cm_event_type::connect_error:
    case cm_event_type::unreachable:
    case cm_event_type::rejected: {
        std::error_code const why = event.error();
        return why ? why : std::error_code(errc::unspecified);
    }
    case cm_event_type::device_removal: return system_error_code(ENODEV);
    case cm_event_type::disconnected: return system_error_code(ECONNRESET);
    default: return {};
    }
}

/// Waits for an event of this type; with `ec`, the event is the one that says why not, or empty.
inline cm_event await(event_channel const& channel, cm_event_type wanted, limits const& within,
                      std::error_code& ec) noexcept {
    for (;;) {
        cm_event event = event_access::get(channel, within, ec);
        if (ec || event.type() == wanted)
            return event;
        if ((ec = ends_wait(event)))
            return event;
    }
}

} // namespace rdma::inline RDMACPP_ABI::detail

// ---- detail/interrupter.hpp -----------------------------------------------------------------------------------------
// Ending a C call that blocks: with a signal to the thread that is in it.

namespace rdma::inline RDMACPP_ABI::detail {

/// While it lives, the thread that made it gets a signal at the deadline, or when stop is requested, and again every 10
/// ms: the first one may come before the call has begun. The program has a handler for it, without SA_RESTART.
class interrupter {
public:
    /// @param signal 0: nothing is done
    interrupter(int signal, deadline const& until, any_stop_token const& stop) noexcept
        : armed_(signal != 0 && create(signal)), on_stop_(stop, stop_action{&fire_now, this}) {
        if (armed_ && !until.is_never())
            fire_at(until.nanoseconds());
    }
    interrupter(interrupter const&) = delete;
    interrupter& operator=(interrupter const&) = delete;
    ~interrupter() = default;

    /// Whether the program has a handler for it: without one most signals end the process. Asked of the kernel, whose
    /// answer begins with the handler; 0 and 1 are SIG_DFL and SIG_IGN.
    static bool is_handled(int signal) noexcept {
#if defined(SYS_rt_sigaction) && !defined(__mips__)
        std::uintptr_t action[8] = {};
        constexpr std::size_t bytes_of_mask = 8;
        return ::syscall(SYS_rt_sigaction, signal, nullptr, action, bytes_of_mask) == 0 && action[0] > 1;
#else
        return signal > 0;
#endif
    }

private:
    /// Deleted last, when no stop callback can run any more.
    struct timer {
        timer_t id{};
        bool created = false;
        timer() noexcept = default;
        timer(timer const&) = delete;
        timer& operator=(timer const&) = delete;
        ~timer() {
            if (created)
                ::timer_delete(id);
        }
    };

    bool create(int signal) noexcept {
        sigevent event{};
        event.sigev_notify = SIGEV_THREAD_ID;
        event.sigev_signo = signal;
        auto const self = static_cast<pid_t>(::syscall(SYS_gettid));
#if defined(sigev_notify_thread_id)
        event.sigev_notify_thread_id = self;
#else
        event._sigev_un._tid = self; // older C libraries have no other name for it
#endif
        return timer_.created = ::timer_create(CLOCK_MONOTONIC, &event, &timer_.id) == 0;
    }

    /// @param at nanoseconds of the monotonic clock
    void fire_at(std::int64_t at) const noexcept {
        if (!armed_)
            return;
        constexpr std::int64_t billion = 1'000'000'000;
        itimerspec when{};
        when.it_value.tv_sec = static_cast<time_t>(at / billion);
        when.it_value.tv_nsec = static_cast<long>(at % billion);
        when.it_interval.tv_nsec = billion / 100;
        ::timer_settime(timer_.id, TIMER_ABSTIME, &when, nullptr);
    }

    static void fire_now(void* self) noexcept { static_cast<interrupter*>(self)->fire_at(1); }

    timer timer_;
    bool const armed_;
    stop_watch on_stop_;
};

} // namespace rdma::inline RDMACPP_ABI::detail

// ---- connect.hpp ----------------------------------------------------------------------------------------------------
// Connecting, as one call with one deadline.

namespace rdma::inline RDMACPP_ABI {

/// The steps of connecting and accepting, in their order.
enum class connect_step {
    create_id,     ///< opening a channel, making the id
    resolve_addr,  ///< rdma_resolve_addr, to ADDR_RESOLVED
    resolve_route, ///< rdma_resolve_route, to ROUTE_RESOLVED
    create_qp,     ///< rdma_create_qp, and the program's preparations
    connect,       ///< rdma_connect, to ESTABLISHED
    accept,        ///< rdma_accept, to ESTABLISHED
    migrate,       ///< rdma_migrate_id, to the program's channel
};

namespace detail {
inline char const* function_of(connect_step step) noexcept {
    switch (step) {
    case connect_step::create_id: return "rdma_create_id";
    case connect_step::resolve_addr: return "rdma_resolve_addr";
    case connect_step::resolve_route: return "rdma_resolve_route";
    case connect_step::create_qp: return "rdma_create_qp";
    case connect_step::connect: return "rdma_connect";
    case connect_step::accept: return "rdma_accept";
    case connect_step::migrate: break;
    }
    return "rdma_migrate_id";
}
} // namespace detail

/// The step's name: "resolve_addr".
inline std::string to_string(connect_step step) {
    return step == connect_step::migrate ? "migrate" : detail::function_of(step) + 5; // without "rdma_"
}

/// How far connecting or accepting came, and what the peer said: filled on success and on failure.
struct connect_report {
    connect_step step = connect_step::create_id; ///< The last one that was begun.
    private_data reply;       ///< What came with the peer's accept, or its rejection; see private_data for its size.
    rdma_conn_param param{};  ///< Of ESTABLISHED, for a connected id; its private_data is null.
    rdma_ud_param ud_param{}; ///< Of ESTABLISHED, for a datagram id: the peer's address, QP number and key.

    /// Notes what an event says.
    void note(cm_event const& event) noexcept {
        if (!event)
            return;
        reply = event.copy_private_data();
        if (rdma_conn_param const* const p = event.param()) {
            param = *p;
            param.private_data = nullptr;
        }
        if (rdma_ud_param const* const p = event.ud_param()) {
            ud_param = *p;
            ud_param.private_data = nullptr;
        }
    }
};

/// What connect and accept throw: an error that also names the step.
class RDMACPP_EXPORT connect_error : public error {
public:
    /// @param code what went wrong
    /// @param step where it failed, which gives the C function
    /// @param arguments of the C function, as text
    /// @param by_event whether an event brought the code, and not the call
    connect_error(std::error_code code, connect_step step, std::string const& arguments, bool by_event)
        : error(code, detail::function_of(step), arguments, !by_event), step_(step) {}

    /// Where it failed.
    connect_step step() const noexcept { return step_; }

private:
    connect_step step_;
};

/// How to connect.
struct connect_options {
    timeout limit = std::chrono::seconds(10); ///< For all steps together.
    any_stop_token stop = {};                 ///< A std::stop_token, where there is one: ends the call at once.
    address local = {};                       ///< The local address to use; none: the system chooses.
    ::rdma::port_space port_space = ::rdma::port_space::tcp; ///< Of the id.
    qp_init_attr qp = {};  ///< Of the QP; its CQs, if none are given, are the id's own.
    pd_ref pd = {};        ///< Of the QP; none: the id's default one.
    conn_param param = {}; ///< With the private data.
    /// On iWARP rdma_connect to a host that does not answer blocks inside the call, which only a signal ends: this one
    /// is sent to the calling thread then, by a timer. The program has a handler for it, which may be empty, installed
    /// without SA_RESTART; where there is none, connect fails with errc::signal_unhandled before it begins. 0: none is
    /// sent, and the call may take much longer than the limit there.
    int interrupt_signal = 0;
    connect_report* report = nullptr; ///< Filled, if given.
};

namespace detail {

/// One attempt. The id has a channel of its own meanwhile.
class connecting {
public:
    connecting(address const& peer, connect_options const& options) noexcept
        : peer_(peer), options_(options), within_{deadline::after(options.limit), options.stop} {}
    connecting(connecting const&) = delete;
    connecting& operator=(connecting const&) = delete;
    ~connecting() { // also when the program's preparations throw
        if (options_.report)
            *options_.report = report_;
    }

    connect_step step() const noexcept { return report_.step; }
    bool failed_by_event() const noexcept { return by_event_; }

    /// Up to the point where the QP is there.
    cm_id prepare(std::error_code& ec) noexcept {
        if (options_.interrupt_signal != 0 && !interrupter::is_handled(options_.interrupt_signal))
            ec = errc::signal_unhandled;
        else
            channel_ = event_channel(ec);
        cm_id id = ec ? cm_id() : cm_id(channel_, options_.port_space, ec);
        if (!ec)
            reach(connect_step::resolve_addr, ec);
        if (!ec)
            id.resolve_addr(options_.local, peer_, within_.left(), ec);
        if (!ec)
            await_event(cm_event_type::addr_resolved, ec);
        if (!ec)
            reach(connect_step::resolve_route, ec);
        if (!ec)
            id.resolve_route(within_.left(), ec);
        if (!ec)
            await_event(cm_event_type::route_resolved, ec);
        if (!ec)
            reach(connect_step::create_qp, ec);
        if (!ec)
            id.create_qp(options_.pd, options_.qp, ec);
        return ec ? cm_id() : std::move(id);
    }

    /// From there to ESTABLISHED, and to the channel where it shall live.
    void finish(cm_id& id, event_channel_ref to, std::error_code& ec) noexcept {
        if (!ec)
            reach(connect_step::connect, ec);
        if (!ec)
            connect(id, ec);
        if (!ec)
            await_event(cm_event_type::established, ec);
        if (!ec && to) {
            report_.step = connect_step::migrate;
            id.migrate(to, ec);
        }
        if (ec)
            id = cm_id(); // ends whatever the kernel is still at
    }

private:
    void reach(connect_step step, std::error_code& ec) noexcept {
        report_.step = step;
        ec = within_.reached();
    }

    void await_event(cm_event_type type, std::error_code& ec) noexcept {
        cm_event const event = await(channel_, type, within_, ec);
        report_.note(event);
        by_event_ = ec && event;
    }

    /// A signal that is not meant for it does not end it.
    void connect(cm_id& id, std::error_code& ec) noexcept {
        interrupter const in_time(options_.interrupt_signal, within_.until, within_.stop);
        do {
            id.connect(options_.param, ec);
            if (ec != std::errc::interrupted)
                return;
            ec = within_.reached();
        } while (!ec);
    }

    address const peer_;
    connect_options const& options_;
    limits const within_;
    event_channel channel_{no_init};
    connect_report report_;
    bool by_event_ = false;
};

struct prepare_nothing {
    void operator()(cm_id&) const noexcept {}
    void operator()(cm_id&, std::error_code&) const noexcept {}
};

} // namespace detail

/// Connects to an address: resolves it, finds the route, makes the QP, asks for the connection and waits until it is
/// ESTABLISHED, all within one deadline.
///
/// When it fails, is late or stopped, the id is destroyed, and so whatever the kernel was still at is over. While it
/// connects, the id has a channel of its own: no event of another is got here, and other threads may get events from
/// `channel` meanwhile. Afterwards it is moved there (rdma_migrate_id).
/// @param channel where the id shall live; empty: it stays on one of its own, whose events nobody gets, to be migrated
/// @param prepare called with the id when its QP is there and before the connection is asked for: post receives here
/// @return the connected id
/// @throws connect_error with the step: std::errc::timed_out, std::errc::operation_canceled (stopped),
/// condition::refused, what the event of the failure or the C function of the step gives; what `prepare` throws
template <class Prepare = detail::prepare_nothing>
    requires(!std::is_same_v<std::remove_cvref_t<Prepare>, std::error_code>)
[[nodiscard]] cm_id connect(event_channel_ref channel, address const& peer, connect_options const& options,
                            Prepare&& prepare, std::error_code& ec) noexcept {
    detail::connecting attempt(peer, options);
    cm_id id = attempt.prepare(ec);
    if (!ec)
        prepare(id, ec);
    attempt.finish(id, channel, ec);
    return id;
}
/// The same, with nothing to prepare.
[[nodiscard]] inline cm_id connect(event_channel_ref channel, address const& peer, connect_options const& options,
                                   std::error_code& ec) noexcept {
    detail::connecting attempt(peer, options);
    cm_id id = attempt.prepare(ec);
    attempt.finish(id, channel, ec);
    return id;
}

#if RDMACPP_EXCEPTIONS
/// The throwing forms.
template <class Prepare = detail::prepare_nothing>
    requires(!std::is_same_v<std::remove_cvref_t<Prepare>, std::error_code>)
[[nodiscard]] cm_id connect(event_channel_ref channel, address const& peer, connect_options const& options = {},
                            Prepare&& prepare = {}) {
    std::error_code ec;
    detail::connecting attempt(peer, options);
    cm_id id = attempt.prepare(ec);
    if (!ec)
        prepare(id);
    attempt.finish(id, channel, ec);
    if (ec)
        throw connect_error(ec, attempt.step(), to_string(peer), attempt.failed_by_event());
    return id;
}
#endif

} // namespace rdma::inline RDMACPP_ABI

// ---- acceptor.hpp ---------------------------------------------------------------------------------------------------
// Accepting connections, each with its outcome.

namespace rdma::inline RDMACPP_ABI {

/// How to accept a connection.
struct accept_options {
    timeout limit = std::chrono::seconds(10); ///< Until ESTABLISHED.
    any_stop_token stop = {};                 ///< A std::stop_token, where there is one: ends the wait at once.
    qp_init_attr qp = {};                     ///< Of the QP; its CQs, if none are given, are the id's own.
    pd_ref pd = {};                           ///< Of the QP; none: the id's default one.
    conn_param param = {};                    ///< With the private data.
    connect_report* report = nullptr;         ///< Filled, if given.
};

/// A connection that was accepted and is not ESTABLISHED yet. It has a channel of its own, so that many of them can be
/// in flight, on one thread or several: each gets its own outcome and nobody else's. Dropped, the connection is over.
class [[nodiscard]] accepting {
public:
    /// Empty.
    accepting() noexcept = default;

    explicit operator bool() const noexcept { return static_cast<bool>(id_); }

    /// The id, to be looked at; its QP may be used already.
    cm_id& id() noexcept { return id_; }

    /// Readable when there may be an outcome: for an event loop, which then calls try_get. -1 when empty.
    int fd() const noexcept { return channel_.fd(); }

#if RDMACPP_EXCEPTIONS
    /// Waits until the connection is ESTABLISHED, and moves it to the channel where it shall live. Empty afterwards.
    /// @param to empty: as for connect()
    /// @throws connect_error std::errc::timed_out (the time began with the accept), std::errc::operation_canceled, or
    /// why it failed; errc::empty_handle
    [[nodiscard]] cm_id get(event_channel_ref to) {
        std::error_code ec;
        cm_id id = get(to, ec);
        if (ec)
            throw connect_error(ec, report_.step, {}, by_event_);
        return id;
    }
    /// The same without waiting: an empty id means not yet, and this goes on.
    /// @throws connect_error as get
    [[nodiscard]] cm_id try_get(event_channel_ref to) {
        std::error_code ec;
        cm_id id = try_get(to, ec);
        if (ec)
            throw connect_error(ec, report_.step, {}, by_event_);
        return id;
    }
#endif
    /// The twin of get().
    [[nodiscard]] cm_id get(event_channel_ref to, std::error_code& ec) noexcept {
        ec = id_ ? std::error_code() : std::error_code(errc::empty_handle);
        if (!ec && connected_)
            note(detail::await(channel_, cm_event_type::established, within_, ec), ec);
        return finish(to, ec);
    }
    /// The twin of try_get(): an empty id without `ec` means not yet.
    [[nodiscard]] cm_id try_get(event_channel_ref to, std::error_code& ec) noexcept {
        ec = id_ ? std::error_code() : std::error_code(errc::empty_handle);
        if (!ec && connected_) {
            detail::limits const now{detail::deadline::after(std::chrono::seconds(0)), {}};
            cm_event const event = detail::await(channel_, cm_event_type::established, now, ec);
            note(event, ec);
            if (!event && ec == std::errc::timed_out && !(ec = within_.reached()))
                return {};
        }
        return finish(to, ec);
    }

    /// How far it came, and what the peer said.
    connect_report const& report() const noexcept { return report_; }

private:
    friend class request;

    accepting(accept_options const& options) noexcept : within_{detail::deadline::after(options.limit), options.stop} {}

    void note(cm_event const& event, std::error_code ec) noexcept {
        report_.note(event);
        by_event_ = ec && event;
    }

    cm_id finish(event_channel_ref to, std::error_code& ec) noexcept {
        cm_id id = std::move(id_);
        if (!ec && to) {
            report_.step = connect_step::migrate;
            id.migrate(to, ec);
        }
        channel_ = event_channel(no_init);
        return ec ? cm_id() : std::move(id);
    }

    event_channel channel_{no_init};
    cm_id id_;
    detail::limits within_{detail::deadline::never(), {}};
    connect_report report_;
    bool connected_ = true; // a datagram id is never told
    bool by_event_ = false; // what failed it
};

/// A request for a connection: a CONNECT_REQUEST and the new id that it brings. Dropped, the peer is rejected.
class [[nodiscard]] request {
public:
    /// No request.
    request() noexcept = default;

    explicit operator bool() const noexcept { return static_cast<bool>(event_); }

    /// The CONNECT_REQUEST: its private data, parameters and addresses. While it is held, a dropped acceptor keeps its
    /// port. To do everything by hand, move it out, or take its id.
    cm_event& event() & noexcept { return event_; }
    cm_event const& event() const& noexcept { return event_; }
    cm_event const& event() const&& = delete;

    /// The address of who asks.
    address peer_addr() const noexcept { return event_ ? event_.id().peer_addr() : address(); }
    /// The address that was asked.
    address local_addr() const noexcept { return event_ ? event_.id().local_addr() : address(); }

#if RDMACPP_EXCEPTIONS
    /// Makes the QP, accepts, and waits until the connection is ESTABLISHED. Empty afterwards; on failure the peer is
    /// rejected.
    /// @param channel where the id shall live; empty: as for connect()
    /// @param prepare called with the id when its QP is there and before it is accepted: post receives here
    /// @return the connected id
    /// @throws connect_error as connect(); what `prepare` throws
    template <class Prepare = detail::prepare_nothing>
        requires(!std::is_same_v<std::remove_cvref_t<Prepare>, std::error_code>)
    [[nodiscard]] cm_id accept(event_channel_ref channel, accept_options const& options = {}, Prepare&& prepare = {}) {
        accepting started = start_accept(options, static_cast<Prepare&&>(prepare));
        std::error_code ec;
        cm_id id = started.get(channel, ec);
        if (options.report)
            *options.report = started.report_;
        if (ec)
            throw connect_error(ec, started.report_.step, {}, started.by_event_);
        return id;
    }
    /// Makes the QP and accepts, and does not wait. Empty afterwards. @throws connect_error; what `prepare` throws
    template <class Prepare = detail::prepare_nothing>
        requires(!std::is_same_v<std::remove_cvref_t<Prepare>, std::error_code>)
    [[nodiscard]] accepting start_accept(accept_options const& options = {}, Prepare&& prepare = {}) {
        std::error_code ec;
        accepting started = begin(options, ec);
        reporter const report(started, options.report);
        if (!ec)
            prepare(started.id_);
        end(started, options, ec);
        if (ec)
            throw connect_error(ec, started.report_.step, {}, started.by_event_);
        return started;
    }
    /// Rejects it (rdma_reject), with private data. Empty afterwards. @throws rdma::error as cm_id::reject
    void reject(std::span<std::byte const> private_data = {}) {
        std::error_code ec;
        reject(private_data, ec);
        if (ec)
            detail::throw_error(ec, "rdma_reject", {std::to_string(private_data.size()), " bytes"});
    }
#endif
    /// The twins of accept().
    template <class Prepare = detail::prepare_nothing>
        requires(!std::is_same_v<std::remove_cvref_t<Prepare>, std::error_code>)
    [[nodiscard]] cm_id accept(event_channel_ref channel, accept_options const& options, Prepare&& prepare,
                               std::error_code& ec) noexcept {
        accepting started = start_accept(options, static_cast<Prepare&&>(prepare), ec);
        cm_id id = ec ? cm_id() : started.get(channel, ec);
        if (options.report)
            *options.report = started.report_;
        return id;
    }
    [[nodiscard]] cm_id accept(event_channel_ref channel, accept_options const& options, std::error_code& ec) noexcept {
        accepting started = start_accept(options, ec);
        cm_id id = ec ? cm_id() : started.get(channel, ec);
        if (options.report)
            *options.report = started.report_;
        return id;
    }
    /// The twins of start_accept().
    template <class Prepare = detail::prepare_nothing>
        requires(!std::is_same_v<std::remove_cvref_t<Prepare>, std::error_code>)
    [[nodiscard]] accepting start_accept(accept_options const& options, Prepare&& prepare,
                                         std::error_code& ec) noexcept {
        accepting started = begin(options, ec);
        reporter const report(started, options.report);
        if (!ec)
            prepare(started.id_, ec);
        end(started, options, ec);
        return started;
    }
    [[nodiscard]] accepting start_accept(accept_options const& options, std::error_code& ec) noexcept {
        accepting started = begin(options, ec);
        end(started, options, ec);
        if (options.report)
            *options.report = started.report_;
        return started;
    }
    /// The twin of reject().
    void reject(std::span<std::byte const> private_data, std::error_code& ec) noexcept {
        cm_id id = take(ec);
        if (!ec)
            id.reject(private_data, ec);
    }
    void reject(std::error_code& ec) noexcept { reject({}, ec); }

private:
    friend class acceptor;
    template <class, bool>
    friend class event_range;
    template <class, class, bool>
    friend class event_source;

    using channel_type = detail::channel_state;
    static constexpr char const* get_function = "rdma_get_cm_event";

    /// Only a listener's end is worth telling of beside its requests.
    bool settles(detail::woken& why, std::error_code& ec) noexcept {
        if (why != detail::woken::ready || event_.type() == cm_event_type::connect_request)
            return true;
        if (event_.type() == cm_event_type::device_removal) {
            ec = detail::system_error_code(ENODEV);
            why = detail::woken::failed;
        }
        event_.ack();
        return static_cast<bool>(ec);
    }

    static detail::woken receive(channel_type& channel, request& into, detail::deadline const& until,
                                 any_stop_token const& stop, wait_options options, std::error_code& ec) noexcept {
        for (;;) {
            detail::woken why = cm_event::receive(channel, into.event_, until, stop, options, ec);
            if (into.settles(why, ec))
                return why;
        }
    }
    static bool try_receive(channel_type& channel, request& into, wait_options options, std::error_code& ec) noexcept {
        for (;;) {
            if (!cm_event::try_receive(channel, into.event_, options, ec))
                return false;
            detail::woken why = ec ? detail::woken::failed : detail::woken::ready;
            if (into.settles(why, ec))
                return true;
        }
    }

    cm_id take(std::error_code& ec) noexcept {
        ec = errc::empty_handle;
        cm_id id = event_ ? event_.take_id(ec) : cm_id();
        event_.ack(); // the listener's port is free to go
        return id;
    }

    /// Fills the report of start_accept on every path, also when the program's preparations throw.
    class reporter {
    public:
        reporter(accepting const& started, connect_report* into) noexcept : started_(started), into_(into) {}
        reporter(reporter const&) = delete;
        reporter& operator=(reporter const&) = delete;
        ~reporter() {
            if (into_)
                *into_ = started_.report_;
        }

    private:
        accepting const& started_;
        connect_report* into_;
    };

    accepting begin(accept_options const& options, std::error_code& ec) noexcept {
        accepting started(options);
        started.id_ = take(ec);
        if (!ec)
            started.channel_ = event_channel(ec);
        if (!ec) {
            started.report_.step = connect_step::migrate;
            started.id_.migrate(started.channel_, ec);
        }
        if (!ec) {
            started.report_.step = connect_step::create_qp;
            started.id_.create_qp(options.pd, options.qp, ec);
        }
        return started;
    }
    static void end(accepting& started, accept_options const& options, std::error_code& ec) noexcept {
        if (!ec)
            started.report_.step = connect_step::accept;
        if (!ec)
            started.id_.accept(options.param, ec);
        started.connected_ = started.id_.qp_type() != qp_type::ud;
        if (ec)
            started.id_ = cm_id();
    }

    cm_event event_;
};

/// How to listen.
struct acceptor_options {
    ::rdma::port_space port_space = ::rdma::port_space::tcp; ///< Of the listener.
    int backlog = 0;         ///< How many requests may queue; 0: as many as the system allows.
    bool reuse_addr = false; ///< See cm_id::set_reuse_addr.
    bool af_only = false;    ///< See cm_id::set_af_only.
};

namespace detail {
/// Binds an id and listens. @return the last C function that was called
inline char const* listen(cm_id& id, address const& local, acceptor_options const& options,
                          std::error_code& ec) noexcept {
    if (options.reuse_addr)
        id.set_reuse_addr(true, ec);
    if (!ec && options.af_only)
        id.set_af_only(true, ec);
    if (ec)
        return "rdma_set_option";
    id.bind(local, ec);
    if (ec)
        return "rdma_bind_addr";
    id.listen(options.backlog, ec);
    return "rdma_listen";
}
} // namespace detail

/// A listener, and a range over its requests:
///
///     rdma::acceptor acceptor(rdma::address::any_v6(7471));
///     for (rdma::request request : acceptor)
///         serve(request.accept(channel));
///
/// It has a channel of its own. Its requests are got as events are: see event_source; any thread may. Each connection
/// that is accepted gets its ESTABLISHED or its failure, also with many in flight (request::start_accept).
class [[nodiscard]] acceptor : public event_source<acceptor, request> {
public:
    /// Empty.
    acceptor() noexcept = default;
    acceptor(acceptor&& other) noexcept : channel_(std::move(other.channel_)), listener_(std::move(other.listener_)) {}
    /// Stops listening where it did before.
    acceptor& operator=(acceptor&& other) noexcept {
        channel_ = std::move(other.channel_);
        listener_ = std::move(other.listener_);
        return *this;
    }

#if RDMACPP_EXCEPTIONS
    /// Listens on an address (rdma_bind_addr, rdma_listen); port 0 lets the system choose.
    /// @throws rdma::error as event_channel, cm_id::bind and cm_id::listen
    explicit acceptor(address const& local, acceptor_options const& options = {}) {
        std::error_code ec;
        char const* const function = open(local, options, ec);
        if (ec)
            detail::throw_error(ec, function, {to_string(local)});
    }
#endif
    /// The twins of the constructor: empty on failure.
    acceptor(address const& local, acceptor_options const& options, std::error_code& ec) noexcept {
        open(local, options, ec);
        if (ec)
            *this = acceptor();
    }
    acceptor(address const& local, std::error_code& ec) noexcept : acceptor(local, {}, ec) {}

    explicit operator bool() const noexcept { return static_cast<bool>(listener_); }

    /// The listening id.
    cm_id& id() noexcept { return listener_; }
    /// Where it listens, with the real port.
    address local_addr() const noexcept { return listener_.local_addr(); }
    /// Readable when there may be a request: for an event loop, with try_get() or pending(). -1 when empty.
    int fd() const noexcept { return channel_.fd(); }

    void swap(acceptor& other) noexcept {
        channel_.swap(other.channel_);
        listener_.swap(other.listener_);
    }
    friend void swap(acceptor& a, acceptor& b) noexcept { a.swap(b); }

private:
    friend class event_source<acceptor, request>;
    detail::channel_state* channel() const noexcept { return detail::event_access::state(channel_); }

    /// @return the last C function that was called
    char const* open(address const& local, acceptor_options const& options, std::error_code& ec) noexcept {
        channel_ = event_channel(ec);
        if (ec)
            return "rdma_create_event_channel";
        listener_ = cm_id(channel_, options.port_space, ec);
        if (ec)
            return "rdma_create_id";
        return detail::listen(listener_, local, options, ec);
    }

    event_channel channel_{no_init};
    cm_id listener_;
};

static_assert(detail::move_only<acceptor>);
static_assert(detail::move_only<request>);
static_assert(detail::move_only<accepting>);

} // namespace rdma::inline RDMACPP_ABI

// ---- async_event.hpp ------------------------------------------------------------------------------------------------
// Asynchronous device events, which ack themselves.

namespace rdma::inline RDMACPP_ABI {

/// What happened (ibv_event_type). The kernel may send types that are newer than this list.
enum class async_event_type {
    // of a QP
    qp_fatal = IBV_EVENT_QP_FATAL,                       ///< The QP has failed beyond repair.
    qp_req_err = IBV_EVENT_QP_REQ_ERR,                   ///< A request of the peer was invalid.
    qp_access_err = IBV_EVENT_QP_ACCESS_ERR,             ///< A peer touched memory that it may not.
    comm_est = IBV_EVENT_COMM_EST,                       ///< Data came before the connection was ready: rdma_notify.
    sq_drained = IBV_EVENT_SQ_DRAINED,                   ///< All that was sent before the SQD state is done.
    path_mig = IBV_EVENT_PATH_MIG,                       ///< The connection has moved to its alternate path.
    path_mig_err = IBV_EVENT_PATH_MIG_ERR,               ///< It could not move to its alternate path.
    qp_last_wqe_reached = IBV_EVENT_QP_LAST_WQE_REACHED, ///< A failed QP takes no more from its SRQ.
    // of a CQ, an SRQ, a WQ
    cq_err = IBV_EVENT_CQ_ERR,                       ///< The CQ has overrun, or failed.
    srq_err = IBV_EVENT_SRQ_ERR,                     ///< The SRQ has failed.
    srq_limit_reached = IBV_EVENT_SRQ_LIMIT_REACHED, ///< Fewer receives wait in the SRQ than its limit.
    wq_fatal = IBV_EVENT_WQ_FATAL,                   ///< The WQ has failed.
    // of a port
    port_active = IBV_EVENT_PORT_ACTIVE,             ///< The link is up.
    port_err = IBV_EVENT_PORT_ERR,                   ///< The link is down.
    lid_change = IBV_EVENT_LID_CHANGE,               ///< The port has another LID.
    pkey_change = IBV_EVENT_PKEY_CHANGE,             ///< The table of partition keys has changed.
    sm_change = IBV_EVENT_SM_CHANGE,                 ///< The subnet has another manager.
    client_reregister = IBV_EVENT_CLIENT_REREGISTER, ///< The subnet manager wants all subscriptions again.
    gid_change = IBV_EVENT_GID_CHANGE,               ///< The table of GIDs has changed: an address came or went.
    // of the device
    device_fatal = IBV_EVENT_DEVICE_FATAL, ///< The device has failed.
};

/// The name of a type, as libibverbs gives it.
inline std::string to_string(async_event_type type) { return ::ibv_event_type_str(static_cast<ibv_event_type>(type)); }

/// What an asynchronous event is about.
enum class async_event_kind {
    none,    ///< The event is empty.
    qp,      ///< A queue pair.
    cq,      ///< A completion queue.
    srq,     ///< A shared receive queue.
    wq,      ///< A work queue.
    port,    ///< A port of the device.
    device,  ///< The whole device.
    unknown, ///< Of a type that is newer than this header.
};

/// What events of a type are about; of types that this header does not know: unknown.
constexpr async_event_kind kind(async_event_type type) noexcept {
    using enum async_event_type;
    switch (type) {
    case qp_fatal:
    case qp_req_err:
    case qp_access_err:
    case comm_est:
    case sq_drained:
    case path_mig:
    case path_mig_err:
    case qp_last_wqe_reached: return async_event_kind::qp;
    case cq_err: return async_event_kind::cq;
    case srq_err:
    case srq_limit_reached: return async_event_kind::srq;
    case wq_fatal: return async_event_kind::wq;
    case port_active:
    case port_err:
    case lid_change:
    case pkey_change:
    case sm_change:
    case client_reregister:
    case gid_change: return async_event_kind::port;
    case device_fatal: return async_event_kind::device;
    }
    return async_event_kind::unknown;
}

/// An asynchronous event of a device: owned, move-only, acked exactly once (ibv_ack_async_event).
///
/// While it is held it keeps the QP, CQ, SRQ or WQ that it names alive, whose destroy would wait for the ack for ever.
/// An event about an object that is not rdmacpp's passes through like any other, and pins nothing.
class [[nodiscard]] async_event {
public:
    /// No event.
    async_event() noexcept = default;
    /// Takes over an event that C got: it must not ack it then.
    async_event(adopt_t, ibv_async_event const& raw) noexcept : raw_(raw), held_(true) {
        using found = detail::verbs_table::found;
        if (detail::verbs_table::get().find_and_pin(element(), node_) != found::pinned)
            node_ = nullptr;
    }
    async_event(async_event&& other) noexcept
        : raw_(other.raw_), node_(detail::take(other.node_)), born_in_(other.born_in_),
          held_(detail::take(other.held_)) {}
    /// Acks the event held before, at once.
    async_event& operator=(async_event&& other) noexcept {
        async_event(std::move(other)).swap(*this);
        return *this;
    }
    /// Acks the event, if it is still held. Never waits for anybody.
    ~async_event() { ack(); }

    /// Acks now, rather than at the end of the scope.
    void ack() noexcept {
        detail::verbs_node* const node = detail::take(node_);
        if (!detail::take(held_) || born_in_ != detail::process::current())
            return;
        ::ibv_ack_async_event(&raw_);
        detail::unpin(node);
    }

    /// Gives up the event: C must ack it (ibv_ack_async_event). What it names stays pinned until then is known, that
    /// is, for good.
    [[nodiscard]] ibv_async_event release() noexcept {
        node_ = nullptr;
        held_ = false;
        return raw_;
    }

    explicit operator bool() const noexcept { return held_; }

    /// What happened.
    async_event_type type() const noexcept { return static_cast<async_event_type>(raw_.event_type); }
    /// What it is about; none if this is no event.
    async_event_kind kind() const noexcept { return held_ ? ::rdma::kind(type()) : async_event_kind::none; }

    /// The object that it is about, valid as long as the event is held; empty if it is about something else.
    qp_ref qp() const noexcept { return kind() == async_event_kind::qp ? qp_ref(raw_.element.qp) : qp_ref(); }
    cq_ref cq() const noexcept { return kind() == async_event_kind::cq ? cq_ref(raw_.element.cq) : cq_ref(); }
    srq_ref srq() const noexcept { return kind() == async_event_kind::srq ? srq_ref(raw_.element.srq) : srq_ref(); }
    wq_ref wq() const noexcept { return kind() == async_event_kind::wq ? wq_ref(raw_.element.wq) : wq_ref(); }
    /// The port that it is about, from 1; 0 if it is about something else.
    std::uint8_t port_num() const noexcept {
        return kind() == async_event_kind::port ? static_cast<std::uint8_t>(raw_.element.port_num) : std::uint8_t{0};
    }

    /// The C event, still to be acked by this.
    ibv_async_event const& native_handle() const noexcept { return raw_; }
    void swap(async_event& other) noexcept {
        detail::swap_values(raw_, other.raw_);
        detail::swap_values(held_, other.held_);
        detail::swap_values(node_, other.node_);
        detail::swap_values(born_in_, other.born_in_);
    }
    friend void swap(async_event& a, async_event& b) noexcept { a.swap(b); }

private:
    template <class, bool>
    friend class event_range;
    template <class, class, bool>
    friend class event_source;

    using channel_type = detail::context_node;
    static constexpr char const* get_function = "ibv_get_async_event";

    static bool try_receive(channel_type& channel, async_event& event, wait_options options,
                            std::error_code& ec) noexcept {
        using found = detail::verbs_table::found;
        async_event got;
        while (
            detail::gave([&]() noexcept { return ::ibv_get_async_event(channel.object(), &got.raw_); }, options, ec)) {
            if (ec)
                return true;
            got.held_ = true;
            if (detail::verbs_table::get().find_and_pin(got.element(), got.node_) != found::dying) {
                event = std::move(got);
                return true;
            }
            got.node_ = nullptr; // its owner is gone, and its destroy waits for this: acked and swallowed
            got.ack();
        }
        return false;
    }

    static detail::woken receive(channel_type& channel, async_event& event, detail::deadline const& until,
                                 any_stop_token const& stop, wait_options options, std::error_code& ec) noexcept {
        ec.clear();
        detail::keep const while_it_waits(&channel);
        return detail::get_or_wait(channel.room, channel.object()->async_fd, until, stop, options, ec,
                                   [&]() noexcept { return try_receive(channel, event, options, ec); });
    }

    /// The C object whose destroy waits for the ack; null for events of ports and devices.
    void const* element() const noexcept {
        switch (::rdma::kind(type())) {
        case async_event_kind::qp: return raw_.element.qp;
        case async_event_kind::cq: return raw_.element.cq;
        case async_event_kind::srq: return raw_.element.srq;
        case async_event_kind::wq: return raw_.element.wq;
        default: return nullptr;
        }
    }

    ibv_async_event raw_{};
    detail::verbs_node* node_ = nullptr;
    unsigned born_in_ = detail::process::current();
    bool held_ = false;
};

static_assert(detail::move_only<async_event>);

/// The type, as libibverbs names it.
inline std::string to_string(async_event const& event) {
    return event ? to_string(event.type()) : std::string("no event");
}

} // namespace rdma::inline RDMACPP_ABI

// ---- async_channel.hpp ----------------------------------------------------------------------------------------------
// Where the asynchronous events of a device are got.

namespace rdma::inline RDMACPP_ABI {

/// The asynchronous events of a device: a view of the part of its context that gives them, got as those of an
/// event_channel are (see event_source). `for (async_event event : id.verbs().async_channel().pending())`
///
/// The descriptor becomes non-blocking, for C too. The context must stay open while it is used; waits on that of a
/// rdma::context end when it goes. Several threads may get; each event goes to one of them.
class async_channel : public event_source<async_channel, async_event, true> {
public:
    /// Empty.
    async_channel() noexcept = default;

    /// The context whose events these are.
    context_ref context() const noexcept { return node_ ? context_ref(node_->object()) : context_ref(); }
    explicit operator bool() const noexcept { return node_ != nullptr; }

    /// The descriptor, for an event loop: readable when there may be an event. -1 when empty.
    int fd() const noexcept { return node_ ? node_->object()->async_fd : -1; }

    friend bool operator==(async_channel a, async_channel b) noexcept { return a.node_ == b.node_; }

private:
    friend class context_ref;
    friend class ::rdma::context;
    friend class event_source<async_channel, async_event, true>;

    explicit async_channel(detail::context_node* node) noexcept : node_(node) {
        if (!node_)
            return;
        int const flags = ::fcntl(node_->object()->async_fd, F_GETFL);
        if (!(flags & O_NONBLOCK))
            ::fcntl(node_->object()->async_fd, F_SETFL, flags | O_NONBLOCK);
    }
    detail::context_node* channel() const noexcept { return node_; }

    /// The node of a context that is not ours: made on first use, and never destroyed, since nobody tells of its end.
    static detail::context_node* node_of(ibv_context* context) noexcept {
        detail::verbs_table& table = detail::verbs_table::get();
        if (detail::verbs_node* const known = table.find_a(context, detail::context_node::ended_by))
            return static_cast<detail::context_node*>(known);
        auto* const fresh = context ? new (std::nothrow) detail::context_node : nullptr;
        if (!fresh)
            return nullptr;
        fresh->raw = context;
        fresh->pins.store(1, detail::order::relaxed);
        fresh->surrendered.store(true, detail::order::relaxed); // it closes nothing
        detail::verbs_node* const there = table.insert_unless_there(fresh);
        if (there != fresh)
            delete fresh;
        return static_cast<detail::context_node*>(there);
    }

    detail::context_node* node_ = nullptr;
};

static_assert(std::is_trivially_copyable_v<async_channel> && sizeof(async_channel) == sizeof(void*));

inline async_channel context_ref::async_channel() const noexcept {
    return ::rdma::async_channel(::rdma::async_channel::node_of(raw_));
}
inline async_channel context::async_channel() const& noexcept { return ::rdma::async_channel(node_); }

} // namespace rdma::inline RDMACPP_ABI

// ---- counters.hpp ---------------------------------------------------------------------------------------------------
// Counters of a device, such as the packets and bytes of a flow.

namespace rdma::inline RDMACPP_ABI {

namespace detail {
struct counters_node : node_of<counters_node, ibv_counters> {
    static constexpr char const* made_by = "ibv_create_counters";
    static constexpr char const* ended_by = "ibv_destroy_counters";
    static int end(ibv_counters* counters) noexcept { return ::ibv_destroy_counters(counters); }
};
} // namespace detail

/// What owned counters and a view of them have in common.
template <class Handle>
class counters_operations {
public:
    /// Reads them (ibv_read_counters), in the order in which they were attached: flow::attach.
    /// @param flags of ibv_read_counters_flags
    void read(std::span<std::uint64_t> into, std::uint32_t flags, std::error_code& ec) const noexcept {
        ec = raw() ? detail::check_returned(
                         ::ibv_read_counters(raw(), into.data(), static_cast<std::uint32_t>(into.size()), flags))
                   : std::error_code(errc::empty_handle);
    }
#if RDMACPP_EXCEPTIONS
    /// The throwing form. @throws rdma::error
    void read(std::span<std::uint64_t> into, std::uint32_t flags = 0) const {
        std::error_code ec;
        read(into, flags, ec);
        if (ec)
            detail::throw_error(ec, "ibv_read_counters");
    }
#endif

private:
    ibv_counters* raw() const noexcept { return static_cast<Handle const*>(this)->native_handle(); }
};

/// Borrowed counters. They destroy nothing and cannot turn into an owner.
class counters_ref : public verbs_ref<counters_ref, ibv_counters>, public counters_operations<counters_ref> {
public:
    using verbs_ref::verbs_ref;
};

/// Owned counters (ibv_create_counters). A flow that counts with them keeps them alive.
class [[nodiscard]] counters : public verbs_owner<detail::counters_node, counters_ref>,
                               public counters_operations<counters> {
public:
    using verbs_owner::verbs_owner;
    /// Empty.
    counters() noexcept = default;

#if RDMACPP_EXCEPTIONS
    /// Makes counters that count nothing yet. @throws rdma::error errc::not_bound for an empty context; EOPNOTSUPP
    /// where the device has none
    explicit counters(context_ref context) {
        std::error_code ec;
        *this = counters(context, ec);
        if (ec)
            detail::throw_error(ec, "ibv_create_counters", {context.device_name()});
    }
#endif
    /// The twin of the creating constructor: empty on failure.
    counters(context_ref context, std::error_code& ec) noexcept {
        ibv_counters_init_attr attr{};
        if (auto* const node = fresh_node(static_cast<bool>(context), ec))
            own(::ibv_create_counters(context.native_handle(), &attr), node, {detail::keeper(context)}, ec);
    }
};

static_assert(std::is_trivially_copyable_v<counters_ref>);
static_assert(detail::move_only<counters>);
static_assert(!detail::makes<counters, counters_ref> && !detail::makes<counters, ibv_counters*>);

} // namespace rdma::inline RDMACPP_ABI

template <>
struct std::hash<::rdma::counters_ref> : ::rdma::RDMACPP_ABI::detail::ref_hash<::rdma::counters_ref> {};

// ---- cq_ex.hpp ------------------------------------------------------------------------------------------------------
// Extended completion queues: completions read field by field where they are, with more to tell than an ibv_wc.

namespace rdma::inline RDMACPP_ABI {

/// What an extended CQ is asked for (ibv_cq_init_attr_ex). It is only read.
struct cq_init_attr_ex {
    std::uint32_t cqe = 16;        ///< completions that it must hold
    comp_channel_ref channel = {}; ///< Where it reports when it was armed; none: it can only be polled.
    std::uint64_t wc_flags = IBV_WC_STANDARD_FLAGS; ///< Of ibv_create_cq_wc_flags: what can be read of a completion.
    std::uint32_t flags = 0;                        ///< Of ibv_create_cq_attr_flags.
    pd_ref parent_domain = {};                      ///< A parent_domain; none: any thread may use it.
    void* user_context = nullptr;                   ///< Found again in its events.
    std::uint32_t comp_vector = 0;                  ///< Which interrupt of the device to use.
};

/// What is known of a work request that succeeded, read where an extended CQ stands; only polling::success gives one.
/// What the CQ was not made with (cq_init_attr_ex::wc_flags) cannot be read.
class completed_ex {
public:
    wc_opcode opcode() const noexcept { return static_cast<wc_opcode>(::ibv_wc_read_opcode(cq_)); }
    /// How many bytes were received, or read. Meaningless for a send or a write.
    std::uint32_t byte_len() const noexcept { return ::ibv_wc_read_byte_len(cq_); }
    /// The flags of ibv_wc_flags: IBV_WC_WITH_IMM, IBV_WC_WITH_INV, IBV_WC_GRH...
    unsigned wc_flags() const noexcept { return ::ibv_wc_read_wc_flags(cq_); }
    /// The immediate data, in network byte order, if wc_flags tell that there is some.
    std::uint32_t imm_data() const noexcept { return ::ibv_wc_read_imm_data(cq_); }
    /// The key that the sender took back, if wc_flags tell so.
    std::uint32_t invalidated_rkey() const noexcept { return ::ibv_wc_read_invalidated_rkey(cq_); }
    /// The QP that sent it, and of the sender of a datagram on InfiniBand the LID, the service level and the path bits.
    std::uint32_t src_qp() const noexcept { return ::ibv_wc_read_src_qp(cq_); }
    std::uint32_t slid() const noexcept { return ::ibv_wc_read_slid(cq_); }
    std::uint8_t sl() const noexcept { return ::ibv_wc_read_sl(cq_); }
    std::uint8_t dlid_path_bits() const noexcept { return ::ibv_wc_read_dlid_path_bits(cq_); }
    /// When it completed, by the device's clock: device_queries::query_raw_clock.
    std::uint64_t completion_ts() const noexcept { return ::ibv_wc_read_completion_ts(cq_); }
    /// When it completed, in nanoseconds since 1970.
    std::uint64_t completion_wallclock_ns() const noexcept { return ::ibv_wc_read_completion_wallclock_ns(cq_); }
    /// The VLAN, the tag of the flow, and the tag that was matched: if the CQ was made with flags for them.
    std::uint16_t cvlan() const noexcept { return ::ibv_wc_read_cvlan(cq_); }
    std::uint32_t flow_tag() const noexcept { return ::ibv_wc_read_flow_tag(cq_); }
    ibv_wc_tm_info tm_info() const noexcept {
        ibv_wc_tm_info info{};
        ::ibv_wc_read_tm_info(cq_, &info);
        return info;
    }

private:
    friend class polling;
    explicit completed_ex(ibv_cq_ex* cq) noexcept : cq_(cq) {}
    ibv_cq_ex* cq_;
};

/// An extended CQ being polled: from ibv_start_poll, which this makes, to ibv_end_poll at the end of its scope, on
/// every path. It stands on one completion after the other: `for (auto& completion : cq.start_poll())
/// use(completion.wr_id());`
///
/// The driver may hold a lock meanwhile: one thread at a time, no wait in between, and no other poll of that CQ.
///
/// Soft-RoCE's driver of rdma-core 44, alone of all, has ended the poll when next() finds no more, and goes wrong when
/// it is then ended as C's manual asks for: there, break off at the last completion that is known to be there.
class [[nodiscard]] polling {
public:
    /// Begins. Precondition, asserted: the CQ is not empty.
    explicit polling(ibv_cq_ex* cq) noexcept : cq_(cq) {
        RDMACPP_ASSERT(cq);
        ibv_poll_cq_attr attr{};
        why_ = ::ibv_start_poll(cq_, &attr);
        started_ = why_ == 0;
    }
    polling(polling const&) = delete;
    polling& operator=(polling const&) = delete;
    ~polling() {
        if (started_)
            ::ibv_end_poll(cq_);
    }

    /// Whether it stands on a completion.
    explicit operator bool() const noexcept { return why_ == 0; }

    /// Steps to the next completion (ibv_next_poll), if there is one. Precondition, asserted: it stands on one.
    void next() noexcept {
        RDMACPP_ASSERT(*this);
        why_ = ::ibv_next_poll(cq_);
    }

    /// Why it stands on none: std::errc{} when there are no more, else the errno of C.
    std::errc error() const noexcept { return why_ == ENOENT ? std::errc{} : static_cast<std::errc>(why_); }

    /// @name The completion that it stands on.
    /// @{

    /// What the request was numbered.
    std::uint64_t wr_id() const noexcept { return standing()->wr_id; }
    /// Whether it succeeded, or why not.
    wc_status status() const noexcept { return static_cast<wc_status>(standing()->status); }
    /// The number of the QP that it was posted to, and the device's own code for a failure.
    std::uint32_t qp_num() const noexcept { return ::ibv_wc_read_qp_num(standing()); }
    std::uint32_t vendor_err() const noexcept { return ::ibv_wc_read_vendor_err(standing()); }
    /// The rest of it, valid until next(). Precondition, asserted: it succeeded.
    completed_ex success() const& noexcept {
        RDMACPP_ASSERT(status() == wc_status::success);
        return completed_ex(standing());
    }
    completed_ex success() const&& = delete;
    /// @}

    /// Steps over the completions; each is this object. An error ends it: error() tells.
    class iterator {
    public:
        using iterator_concept = std::input_iterator_tag;
        using value_type = polling;
        using difference_type = std::ptrdiff_t;

        polling& operator*() const noexcept { return *at_; }
        iterator& operator++() noexcept {
            at_->next();
            return *this;
        }
        void operator++(int) noexcept { at_->next(); }
        friend bool operator==(iterator const& self, std::default_sentinel_t) noexcept { return !*self.at_; }

    private:
        friend class polling;
        explicit iterator(polling& at) noexcept : at_(&at) {}
        polling* at_;
    };
    iterator begin() noexcept { return iterator(*this); }
    std::default_sentinel_t end() const noexcept { return {}; }

private:
    ibv_cq_ex* standing() const noexcept {
        RDMACPP_ASSERT(*this);
        return cq_;
    }

    ibv_cq_ex* cq_;
    int why_;      // 0, or why it stands on nothing
    bool started_; // there is something to end
};

/// An owned extended CQ (ibv_create_cq_ex). It is a cq, and serves wherever one does, but is polled through start_poll.
class [[nodiscard]] cq_ex : public cq {
public:
    /// Empty.
    cq_ex() noexcept = default;

#if RDMACPP_EXCEPTIONS
    /// Makes an extended CQ on a device.
    /// @throws rdma::error errc::not_bound for an empty context; EOPNOTSUPP where the device has none, or not with
    /// these flags
    cq_ex(context_ref context, cq_init_attr_ex const& attr) {
        std::error_code ec;
        *this = cq_ex(context, attr, ec);
        if (ec)
            detail::throw_error(ec, "ibv_create_cq_ex", {std::to_string(attr.cqe), " entries"});
    }
    /// Takes over an extended CQ that C made, or that release() gave back.
    /// @throws rdma::error errc::null_handle, errc::already_owned
    cq_ex(adopt_t, ibv_cq_ex* raw) : cq(adopt, raw ? ::ibv_cq_ex_to_cq(raw) : nullptr) {}
#endif
    /// The twin of the creating constructor: empty on failure.
    cq_ex(context_ref context, cq_init_attr_ex const& attr, std::error_code& ec) noexcept {
        ibv_cq_init_attr_ex c{};
        c.cqe = attr.cqe;
        c.cq_context = attr.user_context;
        c.channel = attr.channel.native_handle();
        c.comp_vector = attr.comp_vector;
        c.wc_flags = attr.wc_flags;
        c.flags = attr.flags;
        c.parent_domain = attr.parent_domain.native_handle();
        if (attr.flags)
            c.comp_mask |= IBV_CQ_INIT_ATTR_MASK_FLAGS;
        if (attr.parent_domain)
            c.comp_mask |= IBV_CQ_INIT_ATTR_MASK_PD;
        auto* const node = fresh_node(static_cast<bool>(context), ec);
        if (!node)
            return;
        ibv_cq_ex* const made = ::ibv_create_cq_ex(context.native_handle(), &c);
        own(made ? ::ibv_cq_ex_to_cq(made) : nullptr, node,
            {detail::keeper(attr.channel), detail::keeper(context), detail::keeper(attr.parent_domain)}, ec);
        if (node_)
            node_->channel = detail::keeper(attr.channel);
    }
    /// The twin of the adopting constructor: empty on failure.
    cq_ex(adopt_t, ibv_cq_ex* raw, std::error_code& ec) noexcept
        : cq(adopt, raw ? ::ibv_cq_ex_to_cq(raw) : nullptr, ec) {}

    /// The C object, still owned by this.
    ibv_cq_ex* native_handle_ex() const noexcept { return reinterpret_cast<ibv_cq_ex*>(raw_); } // as ibv_cq_ex_to_cq

    /// Begins to poll; see polling. Precondition, asserted: not empty.
    polling start_poll() const noexcept { return polling(native_handle_ex()); }
};

static_assert(detail::move_only<cq_ex>);

} // namespace rdma::inline RDMACPP_ABI

// ---- cq_set.hpp -----------------------------------------------------------------------------------------------------
// Several completion queues of one channel, waited for together.

namespace rdma::inline RDMACPP_ABI {

/// What cq_set::wait found: completions, all of one CQ.
struct polled {
    cq_ref cq = {};                              ///< Whose they are; empty when there are none.
    std::span<work_completion> completions = {}; ///< The part of the caller's memory that was filled.
};

/// How a cq_set waits. (A template, so that who does not wait does not pay for it in compile time.)
template <class Set>
class completion_set {
public:
    /// The twins of what follows. Nothing found and no `ec`: it took too long, or was stopped.
    polled wait(std::span<work_completion> into, std::error_code& ec) noexcept {
        return wait_until(into, detail::deadline::never(), {}, {}, ec);
    }
    polled wait_for(std::span<work_completion> into, timeout span, std::error_code& ec) noexcept {
        return wait_until(into, detail::deadline::after(span), {}, {}, ec);
    }
    polled wait(std::span<work_completion> into, any_stop_token const& stop, std::error_code& ec) noexcept {
        return wait_until(into, detail::deadline::never(), stop, {}, ec);
    }
    polled wait_for(std::span<work_completion> into, timeout span, any_stop_token const& stop,
                    std::error_code& ec) noexcept {
        return wait_until(into, detail::deadline::after(span), stop, {}, ec);
    }
#if RDMACPP_EXCEPTIONS
    /// Waits until any of the CQs has completions.
    /// @throws rdma::error errc::poll_failed; std::errc::invalid_argument if there is no CQ, or they are not all of one
    /// channel; the errno of ibv_req_notify_cq and ibv_get_cq_event
    polled wait(std::span<work_completion> into) {
        std::error_code ec;
        return checked(wait(into, ec), ec);
    }
    /// The same, at most this long. @throws rdma::error
    polled wait_for(std::span<work_completion> into, timeout span) {
        std::error_code ec;
        return checked(wait_for(into, span, ec), ec);
    }
    /// The same, until stop is requested. @throws rdma::error
    polled wait(std::span<work_completion> into, any_stop_token const& stop) {
        std::error_code ec;
        return checked(wait(into, stop, ec), ec);
    }
    polled wait_for(std::span<work_completion> into, timeout span, any_stop_token const& stop) {
        std::error_code ec;
        return checked(wait_for(into, span, stop, ec), ec);
    }
#endif

private:
    polled wait_until(std::span<work_completion> into, detail::deadline const& until, any_stop_token const& stop,
                      wait_options options, std::error_code& ec) noexcept {
        detail::completion_wait waiting{until, stop, options};
        waiting.first = set().next_ < set().cqs_.size() ? set().next_ : 0;
        std::size_t const n = waiting.run(set().cqs_.data(), set().cqs_.size(), into, ec);
        if (n == 0)
            return {};
        set().next_ = waiting.first + 1;
        return {set().cqs_[waiting.first], into.first(n)};
    }

#if RDMACPP_EXCEPTIONS
    static polled checked(polled found, std::error_code const& ec) {
        if (ec)
            detail::throw_error(ec, "ibv_get_cq_event");
        return found;
    }
#endif

    Set& set() noexcept { return *static_cast<Set*>(this); }
};

/// A view of several CQs that report to one channel, to wait until any of them has a completion: each is drained, armed
/// and drained again, and only then the channel is waited for, so that nothing that came in between is missed. It turns
/// from one CQ to the next, so that a busy one does not starve the others.
///
/// The CQs, their channel, and the array that names them must outlive it. One thread at a time may wait on a channel.
class cq_set : public completion_set<cq_set> {
public:
    /// @param cqs all of one completion channel
    explicit cq_set(std::span<cq_ref const> cqs) noexcept : cqs_(cqs) {}

private:
    friend class completion_set<cq_set>;

    std::span<cq_ref const> cqs_;
    std::size_t next_ = 0; // the first to be asked
};

} // namespace rdma::inline RDMACPP_ABI

// ---- devices.hpp ----------------------------------------------------------------------------------------------------
// The devices that librdmacm has opened.

namespace rdma::inline RDMACPP_ABI {

/// The RDMA devices of this machine, as librdmacm has opened them (rdma_get_devices): a range of context_ref.
///
///     for (rdma::context_ref device : rdma::devices::get()) { ... }
///
/// The contexts belong to librdmacm, and are the same that ids have (cm_id::verbs). The list keeps them open: while it
/// is held, the default PD of a device stays, too.
class [[nodiscard]] devices : public verbs_list<devices, context_ref, ibv_context> {
public:
    /// Empty.
    devices() noexcept = default;

#if RDMACPP_EXCEPTIONS
    /// Asks for the devices. @throws rdma::error the errno of rdma_get_devices: ENODEV if there is none
    static devices get() {
        std::error_code ec;
        devices all = get(ec);
        if (ec)
            detail::throw_error(ec, "rdma_get_devices");
        return all;
    }
#endif
    /// The twin of get(): empty on failure.
    static devices get(std::error_code& ec) noexcept {
        int count = 0;
        ibv_context** const all = ::rdma_get_devices(&count);
        ec = detail::check_pointer(all);
        return devices(all, count);
    }

private:
    friend class verbs_list<devices, context_ref, ibv_context>;
    using verbs_list::verbs_list;
    /// The contexts stay librdmacm's (rdma_free_devices).
    static void free(ibv_context** all) noexcept { ::rdma_free_devices(all); }
};

static_assert(detail::move_only<devices>);

} // namespace rdma::inline RDMACPP_ABI

// ---- disconnect.hpp -------------------------------------------------------------------------------------------------
// Disconnecting, as one call with a deadline.

namespace rdma::inline RDMACPP_ABI {

namespace detail {

/// What says that a connection is over: on InfiniBand and RoCE a DISCONNECTED once the peer has answered, or has not
/// for long; a TIMEWAIT_EXIT may follow, and nobody waits for it. On iWARP a DISCONNECTED once both have closed the
/// stream.
inline bool says_over(cm_event const& event) noexcept {
    switch (event.type()) {
    case cm_event_type::disconnected:
    case cm_event_type::timewait_exit:
    case cm_event_type::connect_error:
    case cm_event_type::unreachable:
    case cm_event_type::rejected:
    case cm_event_type::device_removal: return true;
    default: return false;
    }
}

/// On a channel that the id has for itself.
inline void disconnect_alone(event_channel const& channel, cm_id& id, limits const& within,
                             std::error_code& ec) noexcept {
    id.disconnect(ec);
    while (!ec && !id.disconnected())
        if (cm_event const event = event_access::get(channel, within, ec); !ec && says_over(event))
            return;
}

} // namespace detail

/// Ends a connection and waits until both sides know: until DISCONNECTED, or what takes its place. The queue pair is in
/// its error state then, and what was posted has been flushed.
///
/// Meanwhile the id has a channel of its own: no event of another is got here, and other threads may get events from
/// its channel; it is moved back afterwards, with what may still come for it, such as TIMEWAIT_EXIT. For an id that is
/// disconnected already, and for datagrams, which have no connection, there is nothing to do. Dropping an id also tells
/// the peer, and waits for nobody.
/// @throws rdma::error std::errc::timed_out: the connection is being ended all the same; std::errc::operation_canceled;
/// std::errc::resource_deadlock_would_occur while events of it are held; EINVAL if it was never connected
inline void disconnect(cm_id& id, timeout limit, any_stop_token const& stop, std::error_code& ec) noexcept {
    ec.clear();
    if (!id)
        ec = errc::empty_handle;
    if (ec || id.disconnected() || id.qp_type() == qp_type::ud)
        return;
    detail::limits const within{detail::deadline::after(limit), stop};
    detail::channel_state* const home = detail::channel_state::borrow(id.channel().native_handle(), ec);
    event_channel const own(ec);
    if (!ec)
        id.migrate(own, ec);
    if (!ec) {
        detail::disconnect_alone(own, id, within, ec);
        std::error_code back;
        id.migrate(event_channel_ref(home->raw), back);
        if (!ec)
            ec = back;
    }
    if (home)
        home->unref();
}
inline void disconnect(cm_id& id, timeout limit, std::error_code& ec) noexcept { disconnect(id, limit, {}, ec); }
inline void disconnect(cm_id& id, std::error_code& ec) noexcept { disconnect(id, std::chrono::seconds(10), {}, ec); }

#if RDMACPP_EXCEPTIONS
/// The throwing form.
inline void disconnect(cm_id& id, timeout limit = std::chrono::seconds(10), any_stop_token const& stop = {}) {
    std::error_code ec;
    disconnect(id, limit, stop, ec);
    if (ec)
        detail::throw_error(ec, "rdma_disconnect");
}
#endif

} // namespace rdma::inline RDMACPP_ABI

// ---- dm.hpp ---------------------------------------------------------------------------------------------------------
// Device memory: memory on the RDMA device itself.

namespace rdma::inline RDMACPP_ABI {

namespace detail {
struct dm_node : node_of<dm_node, ibv_dm> {
    using node_of::node_of;
    static constexpr char const* made_by = "ibv_alloc_dm";
    static constexpr char const* ended_by = "ibv_free_dm";
    static constexpr char const* unimported_by = "ibv_unimport_dm";
    static int end(ibv_dm* dm) noexcept { return ::ibv_free_dm(dm); }
    template <class Dm>
    static void unimport([[maybe_unused]] Dm* dm) noexcept {
        if constexpr (has_import_dm<Dm>)
            ibv_unimport_dm(dm);
    }
};
} // namespace detail

/// What owned device memory and a view of it have in common. Offsets and sizes are in bytes; some devices want
/// multiples of 4.
template <class Handle>
class dm_operations {
public:
    /// Copies into it (ibv_memcpy_to_dm).
    void copy_to(std::uint64_t offset, std::span<std::byte const> from, std::error_code& ec) const noexcept {
        ec = raw() ? detail::check_returned(::ibv_memcpy_to_dm(raw(), offset, from.data(), from.size()))
                   : std::error_code(errc::empty_handle);
    }
    /// Copies out of it (ibv_memcpy_from_dm).
    void copy_from(std::uint64_t offset, std::span<std::byte> into, std::error_code& ec) const noexcept {
        ec = raw() ? detail::check_returned(::ibv_memcpy_from_dm(into.data(), raw(), offset, into.size()))
                   : std::error_code(errc::empty_handle);
    }

#if RDMACPP_EXCEPTIONS
    /// The throwing forms. @throws rdma::error
    void copy_to(std::uint64_t offset, std::span<std::byte const> from) const {
        std::error_code ec;
        copy_to(offset, from, ec);
        if (ec)
            detail::throw_error(ec, "ibv_memcpy_to_dm", {std::to_string(from.size()), " bytes"});
    }
    void copy_from(std::uint64_t offset, std::span<std::byte> into) const {
        std::error_code ec;
        copy_from(offset, into, ec);
        if (ec)
            detail::throw_error(ec, "ibv_memcpy_from_dm", {std::to_string(into.size()), " bytes"});
    }
#endif

private:
    ibv_dm* raw() const noexcept { return static_cast<Handle const*>(this)->native_handle(); }
};

/// Borrowed device memory. It frees nothing and cannot turn into an owner.
class dm_ref : public verbs_ref<dm_ref, ibv_dm>, public dm_operations<dm_ref> {
public:
    using verbs_ref::verbs_ref;
};

/// Owned device memory (ibv_alloc_dm); a region of it keeps it: reg_dm_mr.
class [[nodiscard]] dm : public verbs_owner<detail::dm_node, dm_ref>, public dm_operations<dm> {
public:
    using verbs_owner::verbs_owner;
    /// Empty.
    dm() noexcept = default;

#if RDMACPP_EXCEPTIONS
    /// Allocates device memory. @param length in bytes @param log_align its alignment is 2 to the power of this
    /// @throws rdma::error errc::not_bound for an empty context; EOPNOTSUPP where the device has none
    dm(context_ref context, std::size_t length, std::uint32_t log_align = 0) {
        std::error_code ec;
        *this = dm(context, length, log_align, ec);
        if (ec)
            detail::throw_error(ec, "ibv_alloc_dm", {std::to_string(length), " bytes"});
    }
#endif
    /// The twin of the allocating constructor: empty on failure.
    dm(context_ref context, std::size_t length, std::uint32_t log_align, std::error_code& ec) noexcept {
        ibv_alloc_dm_attr attr{};
        attr.length = length;
        attr.log_align_req = log_align;
        if (auto* const node = fresh_node(static_cast<bool>(context), ec))
            own(::ibv_alloc_dm(context.native_handle(), &attr), node, {detail::keeper(context)}, ec);
    }
    /// The device memory of another process, by its handle on a context that was imported, too (ibv_import_dm, from
    /// rdma-core 35 on). Dropped, it is only forgotten (ibv_unimport_dm).
    template <class Dm = ibv_dm, class Context = ibv_context>
        requires detail::has_import_dm<Dm, Context>
    static dm import_dm(context_ref context, std::uint32_t handle, std::error_code& ec) noexcept {
        dm imported;
        if (auto* const node = fresh_node(static_cast<bool>(context), ec, detail::imported_t()))
            imported.own(ibv_import_dm(static_cast<Context*>(context.native_handle()), handle), node,
                         {detail::keeper(context)}, ec);
        return imported;
    }
#if RDMACPP_EXCEPTIONS
    /// The throwing form of import_dm. @throws rdma::error
    template <class Dm = ibv_dm, class Context = ibv_context>
        requires detail::has_import_dm<Dm, Context>
    static dm import_dm(context_ref context, std::uint32_t handle) {
        std::error_code ec;
        dm imported = import_dm<Dm, Context>(context, handle, ec);
        if (ec)
            detail::throw_error(ec, "ibv_import_dm");
        return imported;
    }
#endif
};

/// Registers a part of device memory (ibv_reg_dm_mr), which the region keeps alive. @param allowed with
/// access::zero_based: its addresses begin at 0
inline mr reg_dm_mr(pd_ref pd, dm_ref memory, std::uint64_t offset, std::size_t length, access allowed,
                    std::error_code& ec) noexcept {
    return mr::made_of(memory ? pd : pd_ref(), detail::keeper(memory), ec, [&](ibv_pd* p) noexcept {
        return ::ibv_reg_dm_mr(p, memory.native_handle(), offset, length, static_cast<unsigned>(allowed));
    });
}
#if RDMACPP_EXCEPTIONS
/// The throwing form of reg_dm_mr(..., std::error_code&). @throws rdma::error
inline mr reg_dm_mr(pd_ref pd, dm_ref memory, std::uint64_t offset, std::size_t length, access allowed) {
    std::error_code ec;
    mr made = reg_dm_mr(pd, memory, offset, length, allowed, ec);
    if (ec)
        detail::throw_error(ec, "ibv_reg_dm_mr", {std::to_string(length), " bytes"});
    return made;
}
#endif

static_assert(std::is_trivially_copyable_v<dm_ref>);
static_assert(detail::move_only<dm>);
static_assert(!detail::makes<dm, dm_ref> && !detail::makes<dm, ibv_dm*>);

} // namespace rdma::inline RDMACPP_ABI

template <>
struct std::hash<::rdma::dm_ref> : ::rdma::RDMACPP_ABI::detail::ref_hash<::rdma::dm_ref> {};

// ---- endpoint.hpp ---------------------------------------------------------------------------------------------------
// Synchronous use: an id whose calls return when they are done, or at their deadline.

namespace rdma::inline RDMACPP_ABI {

/// A communication endpoint, as rdma_create_ep makes them: every call that starts something waits for its outcome, by
/// default as long as it takes.
///
///     rdma::addrinfo const found("10.0.0.1", "7471");
///     rdma::endpoint client(found.front(), {.cap = {.max_inline_data = 16}});
///     client.connect();
///
/// It is an asynchronous id on a channel of its own, so that everything has a deadline, nothing waits for ever in a
/// destructor, and listeners and the endpoints of their requests may be dropped in any order. Ids that C made in its
/// own synchronous mode are adopted as sync_id. One thread at a time may use one endpoint.
///
/// A call that is late fails with std::errc::timed_out; after a connect or accept that failed, drop the endpoint.
class [[nodiscard]] endpoint {
public:
    /// Empty.
    endpoint() noexcept = default;
    endpoint(endpoint&& other) noexcept
        : channel_(std::move(other.channel_)), id_(std::move(other.id_)), event_(std::move(other.event_)),
          for_requests_(std::move(other.for_requests_)) {}
    /// Drops the endpoint held before.
    endpoint& operator=(endpoint&& other) noexcept {
        event_ = std::move(other.event_);
        id_ = std::move(other.id_);
        channel_ = std::move(other.channel_);
        for_requests_ = std::move(other.for_requests_);
        return *this;
    }

#if RDMACPP_EXCEPTIONS
    /// Makes an endpoint of what a lookup found: for a listener (addrinfo_hints::passive) binds it, otherwise resolves
    /// the peer's address and the route.
    /// @param limit for all of it
    /// @throws rdma::error as the functions of cm_id that it calls; std::errc::timed_out
    explicit endpoint(addrinfo_ref info, timeout limit = no_limit) {
        std::error_code ec;
        if (char const* const function = open(info, limit, ec); ec)
            detail::throw_error(ec, function, {describe(info)});
    }
    /// The same with a QP: for a listener, of each request that get_request brings; else made at once. What it uses is
    /// kept alive.
    endpoint(addrinfo_ref info, qp_init_attr const& qp, pd_ref pd = {}, timeout limit = no_limit) {
        std::error_code ec;
        if (char const* const function = open(info, qp, pd, limit, ec); ec)
            detail::throw_error(ec, function, {describe(info)});
    }
#endif
    /// The twins of the constructors: empty on failure.
    endpoint(addrinfo_ref info, timeout limit, std::error_code& ec) noexcept { open(info, limit, ec); }
    endpoint(addrinfo_ref info, std::error_code& ec) noexcept { open(info, no_limit, ec); }
    endpoint(addrinfo_ref info, qp_init_attr const& qp, pd_ref pd, timeout limit, std::error_code& ec) noexcept {
        open(info, qp, pd, limit, ec);
    }
    endpoint(addrinfo_ref info, qp_init_attr const& qp, pd_ref pd, std::error_code& ec) noexcept {
        open(info, qp, pd, no_limit, ec);
    }
    endpoint(addrinfo_ref info, qp_init_attr const& qp, std::error_code& ec) noexcept {
        open(info, qp, {}, no_limit, ec);
    }

    explicit operator bool() const noexcept { return static_cast<bool>(id_); }

    /// The id, for everything that does not wait: addresses, memory, posting, options, the QP.
    cm_id& id() noexcept { return id_; }
    cm_id const& id() const noexcept { return id_; }

    /// The last event, as C keeps it in `id->event`: of connect, accept and get_request, also if they failed; with its
    /// private data and parameters. Empty after those that brought none. While a listener's request keeps its event,
    /// the dropped listener keeps its port.
    cm_event const& event() const& noexcept { return event_; }
    cm_event const& event() const&& = delete;

    /// Gives up the synchronous mode: the id, which is still on a channel of its own (cm_id::migrate). Empty
    /// afterwards.
    [[nodiscard]] cm_id take_id() noexcept {
        event_.ack();
        return std::move(id_);
    }

#if RDMACPP_EXCEPTIONS
    /// Listens for requests (rdma_listen). @throws rdma::error as cm_id::listen
    void listen(int backlog = 0) { id_.listen(backlog); }

    /// Waits for a request (rdma_get_request): an endpoint to accept, reject or drop, with its QP if this was given
    /// one. A request that fails here is rejected. @throws rdma::error std::errc::timed_out; as cm_id::create_qp
    [[nodiscard]] endpoint get_request(timeout limit = no_limit) {
        std::error_code ec;
        endpoint child = get_request(limit, ec);
        if (ec)
            detail::throw_error(ec, "rdma_get_request");
        return child;
    }

    /// Connects, and waits until the connection is ESTABLISHED, or, without a QP of the id's own, for CONNECT_RESPONSE:
    /// then cm_id::init_qp_attr and establish follow (rdma_connect).
    /// @throws rdma::error std::errc::timed_out; condition::refused (its event has the private data of the rejection);
    /// as cm_id::connect
    void connect(conn_param const& param = {}, timeout limit = no_limit) {
        std::error_code ec;
        connect(param, limit, ec);
        if (ec)
            throw error(ec, "rdma_connect", to_string(id_.peer_addr()), !event_);
    }

    /// Accepts, and waits until the connection is ESTABLISHED; for datagrams there is nothing to wait for
    /// (rdma_accept).
    /// @throws rdma::error std::errc::timed_out; as cm_id::accept
    void accept(conn_param const& param = {}, timeout limit = no_limit) {
        std::error_code ec;
        accept(param, limit, ec);
        if (ec)
            throw error(ec, "rdma_accept", {}, !event_);
    }

    /// Rejects the request (rdma_reject); then drop it. @throws rdma::error as cm_id::reject
    void reject(std::span<std::byte const> private_data = {}) { id_.reject(private_data); }

    /// Disconnects, and waits until both sides know (rdma_disconnect). Nothing happens if that is so already.
    /// @throws rdma::error std::errc::timed_out; EINVAL if it was never connected
    void disconnect(timeout limit = no_limit) {
        std::error_code ec;
        disconnect(limit, ec);
        if (ec)
            detail::throw_error(ec, "rdma_disconnect");
    }

    /// Waits for a completion of the send queue (rdma_get_send_comp), on the CQ that librdmacm made.
    /// @throws rdma::error std::errc::timed_out; errc::empty_handle if the program gave the CQ: wait on that one
    work_completion get_send_comp(timeout limit = no_limit) {
        std::error_code ec;
        work_completion const done = get_send_comp(limit, ec);
        if (ec)
            detail::throw_error(ec, "rdma_get_send_comp");
        return done;
    }
    /// Waits for a completion of the receive queue (rdma_get_recv_comp). @throws rdma::error as get_send_comp
    work_completion get_recv_comp(timeout limit = no_limit) {
        std::error_code ec;
        work_completion const done = get_recv_comp(limit, ec);
        if (ec)
            detail::throw_error(ec, "rdma_get_recv_comp");
        return done;
    }
#endif
    void listen(int backlog, std::error_code& ec) noexcept { id_.listen(backlog, ec); }
    void listen(std::error_code& ec) noexcept { id_.listen(0, ec); }
    [[nodiscard]] endpoint get_request(timeout limit, std::error_code& ec) noexcept;
    [[nodiscard]] endpoint get_request(std::error_code& ec) noexcept { return get_request(no_limit, ec); }
    void connect(conn_param const& param, timeout limit, std::error_code& ec) noexcept {
        event_.ack();
        id_.connect(param, ec);
        bool const alone =
            !id_.qp() && id_.verbs().transport() != transport_type::iwarp && id_.qp_type() != qp_type::ud;
        if (!ec) // an id without a QP of its own is told of the answer, and establishes by itself
            event_ = detail::await(channel_, alone ? cm_event_type::connect_response : cm_event_type::established,
                                   within(limit), ec);
    }
    void connect(conn_param const& param, std::error_code& ec) noexcept { connect(param, no_limit, ec); }
    void connect(std::error_code& ec) noexcept { connect({}, no_limit, ec); }
    void accept(conn_param const& param, timeout limit, std::error_code& ec) noexcept {
        id_.accept(param, ec);
        event_.ack(); // the request: the listener may go
        if (!ec && id_.qp_type() != qp_type::ud)
            event_ = detail::await(channel_, cm_event_type::established, within(limit), ec);
    }
    void accept(conn_param const& param, std::error_code& ec) noexcept { accept(param, no_limit, ec); }
    void accept(std::error_code& ec) noexcept { accept({}, no_limit, ec); }
    void reject(std::span<std::byte const> private_data, std::error_code& ec) noexcept { id_.reject(private_data, ec); }
    void reject(std::error_code& ec) noexcept { id_.reject({}, ec); }
    void disconnect(timeout limit, std::error_code& ec) noexcept {
        ec = id_ ? std::error_code() : std::error_code(errc::empty_handle);
        event_.ack();
        if (!ec && !id_.disconnected() && id_.qp_type() != qp_type::ud)
            detail::disconnect_alone(channel_, id_, within(limit), ec);
    }
    void disconnect(std::error_code& ec) noexcept { disconnect(no_limit, ec); }
    work_completion get_send_comp(timeout limit, std::error_code& ec) noexcept {
        return get_comp(id_.send_cq(), limit, ec);
    }
    work_completion get_send_comp(std::error_code& ec) noexcept { return get_send_comp(no_limit, ec); }
    work_completion get_recv_comp(timeout limit, std::error_code& ec) noexcept {
        return get_comp(id_.recv_cq(), limit, ec);
    }
    work_completion get_recv_comp(std::error_code& ec) noexcept { return get_recv_comp(no_limit, ec); }

    void swap(endpoint& other) noexcept {
        endpoint was(std::move(other));
        other = std::move(*this);
        *this = std::move(was);
    }
    friend void swap(endpoint& a, endpoint& b) noexcept { a.swap(b); }

private:
    /// What a listener makes the QPs of its requests with.
    struct qp_of_requests {
        bool wanted = false;
        qp_init_attr attr = {};
        pd_ref pd = {};
        detail::keep uses[4];
    };

    static detail::limits within(timeout limit) noexcept { return {detail::deadline::after(limit), {}}; }

    /// @return the last C function that was called
    char const* open(addrinfo_ref info, timeout limit, std::error_code& ec) noexcept {
        char const* const function = begin(info, within(limit), ec);
        if (ec)
            *this = endpoint();
        return function;
    }
    char const* open(addrinfo_ref info, qp_init_attr const& qp, pd_ref pd, timeout limit, std::error_code& ec) noexcept;
    char const* begin(addrinfo_ref info, detail::limits const& within, std::error_code& ec) noexcept;

    static work_completion get_comp(cq_ref cq, timeout limit, std::error_code& ec) noexcept {
        work_completion done[] = {work_completion(ibv_wc{})};
        detail::completion_wait waiting{detail::deadline::after(limit)};
        if (waiting.run(&cq, 1, done, ec) == 0 && !ec)
            ec = detail::system_error_code(ETIMEDOUT);
        return done[0];
    }

#if RDMACPP_EXCEPTIONS
    static std::string describe(addrinfo_ref info) {
        return info ? to_string(info.flags() & RAI_PASSIVE ? info.src_addr() : info.dst_addr()) : "no address";
    }
#endif

    event_channel channel_{no_init};
    cm_id id_;
    cm_event event_;
    qp_of_requests for_requests_;
};

static_assert(detail::move_only<endpoint> && detail::nothrow_empty<endpoint>);

// ---- Implementation ------------------------------------------------------------------------------------------------

inline char const* endpoint::begin(addrinfo_ref info, detail::limits const& within, std::error_code& ec) noexcept {
    if (!info) {
        ec = errc::empty_handle;
        return "rdma_create_ep";
    }
    channel_ = event_channel(ec);
    if (ec)
        return "rdma_create_event_channel";
    bool const by_port_space = info.qp_type() == qp_type::rc || info.qp_type() == qp_type::ud;
    bool const any_v6 = info.src_addr().family() == AF_UNSPEC && info.dst_addr().family() == AF_INET6;
    address const local = any_v6 ? address::any_v6(0, ec) : info.src_addr();
    id_ = by_port_space ? cm_id(channel_, info.port_space(), ec)
                        : cm_id(channel_, info.port_space(), info.qp_type(), local, ec);
    if (ec)
        return "rdma_create_id";
    if (info.flags() & RAI_PASSIVE) {
        if (by_port_space)
            id_.bind(info.src_addr(), ec);
        return "rdma_bind_addr";
    }
    id_.resolve_addr(by_port_space ? info.src_addr() : address(), info.dst_addr(), within.left(), ec);
    if (!ec)
        event_ = detail::await(channel_, cm_event_type::addr_resolved, within, ec);
    if (ec)
        return "rdma_resolve_addr";
    id_.resolve_route(within.left(), ec);
    if (!ec)
        event_ = detail::await(channel_, cm_event_type::route_resolved, within, ec);
    event_.ack();
    return "rdma_resolve_route";
}

inline char const* endpoint::open(addrinfo_ref info, qp_init_attr const& qp, pd_ref pd, timeout limit,
                                  std::error_code& ec) noexcept {
    char const* const function = open(info, limit, ec);
    if (ec)
        return function;
    if (info.flags() & RAI_PASSIVE) {
        for_requests_ = {true,
                         qp,
                         pd,
                         {detail::keep(detail::keeper(pd)), detail::keep(detail::keeper(qp.send_cq)),
                          detail::keep(detail::keeper(qp.recv_cq)), detail::keep(detail::keeper(qp.srq))}};
        return function;
    }
    id_.create_qp(pd, qp, ec);
    if (ec)
        *this = endpoint();
    return "rdma_create_qp";
}

inline endpoint endpoint::get_request(timeout limit, std::error_code& ec) noexcept {
    endpoint child;
    if (!id_) {
        ec = errc::empty_handle;
        return child;
    }
    event_.ack();
    cm_event request = detail::await(channel_, cm_event_type::connect_request, within(limit), ec);
    if (!ec)
        child.id_ = request.take_id(ec);
    if (!ec)
        child.channel_ = event_channel(ec);
    if (!ec)
        child.id_.migrate(child.channel_, ec);
    if (!ec && for_requests_.wanted)
        child.id_.create_qp(for_requests_.pd, for_requests_.attr, ec);
    if (ec)
        return {};
    child.event_ = std::move(request);
    return child;
}

} // namespace rdma::inline RDMACPP_ABI

// ---- flow_action.hpp ------------------------------------------------------------------------------------------------
// What a flow does to its packets, beyond where it takes them: IPsec ESP.

namespace rdma::inline RDMACPP_ABI {

namespace detail {
struct flow_action_node : node_of<flow_action_node, ibv_flow_action> {
    static constexpr char const* made_by = "ibv_create_flow_action_esp";
    static constexpr char const* ended_by = "ibv_destroy_flow_action";
    static int end(ibv_flow_action* action) noexcept { return ::ibv_destroy_flow_action(action); }
};
} // namespace detail

/// A borrowed flow action. It destroys nothing and cannot turn into an owner.
class flow_action_ref : public verbs_ref<flow_action_ref, ibv_flow_action> {
public:
    using verbs_ref::verbs_ref;
};

/// An owned flow action (ibv_create_flow_action_esp). A flow that names it keeps it alive.
class [[nodiscard]] flow_action : public verbs_owner<detail::flow_action_node, flow_action_ref> {
public:
    using verbs_owner::verbs_owner;
    /// Empty.
    flow_action() noexcept = default;

#if RDMACPP_EXCEPTIONS
    /// Makes an ESP action; the attributes are only read. @throws rdma::error errc::not_bound for an empty context;
    /// EOPNOTSUPP where the device has none
    flow_action(context_ref context, ibv_flow_action_esp_attr const& esp) {
        std::error_code ec;
        *this = flow_action(context, esp, ec);
        if (ec)
            detail::throw_error(ec, "ibv_create_flow_action_esp", {context.device_name()});
    }
    /// Changes it (ibv_modify_flow_action_esp). @throws rdma::error
    void modify(ibv_flow_action_esp_attr const& esp) {
        std::error_code ec;
        modify(esp, ec);
        if (ec)
            detail::throw_error(ec, "ibv_modify_flow_action_esp");
    }
#endif
    /// The twin of the creating constructor: empty on failure.
    flow_action(context_ref context, ibv_flow_action_esp_attr const& esp, std::error_code& ec) noexcept {
        ibv_flow_action_esp_attr copy = esp;
        if (auto* const node = fresh_node(static_cast<bool>(context), ec))
            own(::ibv_create_flow_action_esp(context.native_handle(), &copy), node, {detail::keeper(context)}, ec);
    }
    /// The twin of modify.
    void modify(ibv_flow_action_esp_attr const& esp, std::error_code& ec) noexcept {
        ibv_flow_action_esp_attr copy = esp;
        ec = raw_ ? detail::check_returned(::ibv_modify_flow_action_esp(raw_, &copy))
                  : std::error_code(errc::empty_handle);
    }
};

static_assert(std::is_trivially_copyable_v<flow_action_ref>);
static_assert(detail::move_only<flow_action>);
static_assert(!detail::makes<flow_action, flow_action_ref>);

} // namespace rdma::inline RDMACPP_ABI

template <>
struct std::hash<::rdma::flow_action_ref> : ::rdma::RDMACPP_ABI::detail::ref_hash<::rdma::flow_action_ref> {};

// ---- flow.hpp -------------------------------------------------------------------------------------------------------
// Flows: which packets a QP gets, by their headers.

namespace rdma::inline RDMACPP_ABI {

namespace detail {

struct flow_node : node_of<flow_node, ibv_flow> {
    static constexpr char const* made_by = "ibv_create_flow";
    static constexpr char const* ended_by = "ibv_destroy_flow";
    static int end(ibv_flow* flow) noexcept { return ::ibv_destroy_flow(flow); }

    /// Keeps alive what the specifications behind `attr` name: actions and counters.
    void need_named(ibv_flow_attr const& attr) noexcept {
        auto const* at = reinterpret_cast<unsigned char const*>(&attr + 1);
        std::size_t place = 1; // after the QP
        for (unsigned i = 0; i != attr.num_of_specs && place != most_needs; ++i) {
            struct {
                ibv_flow_spec_type type;
                std::uint16_t size;
            } header;
            std::memcpy(&header, at, sizeof header);
            void const* const named = header.type == IBV_FLOW_SPEC_ACTION_HANDLE
                                          ? read<ibv_flow_spec_action_handle>(at).action
                                      : header.type == IBV_FLOW_SPEC_ACTION_COUNT
                                          ? static_cast<void const*>(read<ibv_flow_spec_counter_action>(at).counters)
                                          : nullptr;
            verbs_node* known = nullptr;
            if (named && verbs_table::get().find_and_pin(named, known) == verbs_table::found::pinned) {
                need_instead(place++, known);
                unpin(known);
            }
            at += header.size;
        }
    }

private:
    template <class Spec>
    static Spec read(unsigned char const* at) noexcept {
        Spec spec;
        std::memcpy(&spec, at, sizeof spec);
        return spec;
    }
};

} // namespace detail

/// A borrowed flow. It destroys nothing and cannot turn into an owner.
class flow_ref : public verbs_ref<flow_ref, ibv_flow> {
public:
    using verbs_ref::verbs_ref;
};

/// An owned flow (ibv_create_flow). It keeps its QP alive, and the counters and actions that it names.
class [[nodiscard]] flow : public verbs_owner<detail::flow_node, flow_ref> {
public:
    using verbs_owner::verbs_owner;
    /// Empty.
    flow() noexcept = default;

#if RDMACPP_EXCEPTIONS
    /// Takes packets to a QP. @param attr C's, with its specifications right behind it; only read
    /// @throws rdma::error errc::empty_handle for an empty QP; the errno of ibv_create_flow
    flow(qp_ref qp, ibv_flow_attr const& attr) {
        std::error_code ec;
        *this = flow(qp, attr, ec);
        if (ec)
            detail::throw_error(ec, "ibv_create_flow");
    }
    /// Counts its packets (ibv_attach_counters_point_flow): with counters that one of its specifications names.
    /// @throws rdma::error
    void attach(counters_ref counters, ibv_counter_attach_attr const& attr) {
        std::error_code ec;
        attach(counters, attr, ec);
        if (ec)
            detail::throw_error(ec, "ibv_attach_counters_point_flow");
    }
#endif
    /// The twin of the creating constructor: empty on failure.
    flow(qp_ref qp, ibv_flow_attr const& attr, std::error_code& ec) noexcept {
        if (!qp) {
            ec = errc::empty_handle;
            return;
        }
        if (auto* const node = fresh_node(true, ec)) // C takes what it only reads by a pointer to non-const
            own(::ibv_create_flow(qp.native_handle(), const_cast<ibv_flow_attr*>(&attr)), node, {detail::keeper(qp)},
                ec);
        if (node_)
            node_->need_named(attr);
    }
    /// The twin of attach. An empty flow: the counters of no flow in particular, as C allows.
    void attach(counters_ref counters, ibv_counter_attach_attr const& attr, std::error_code& ec) noexcept {
        ibv_counter_attach_attr copy = attr;
        ec = counters ? detail::check_returned(::ibv_attach_counters_point_flow(counters.native_handle(), &copy, raw_))
                      : std::error_code(errc::empty_handle);
    }
};

static_assert(std::is_trivially_copyable_v<flow_ref>);
static_assert(detail::move_only<flow>);
static_assert(!detail::makes<flow, flow_ref> && !detail::makes<flow, ibv_flow*>);

} // namespace rdma::inline RDMACPP_ABI

template <>
struct std::hash<::rdma::flow_ref> : ::rdma::RDMACPP_ABI::detail::ref_hash<::rdma::flow_ref> {};

// ---- fork.hpp -------------------------------------------------------------------------------------------------------
// Forking beside registered memory.

namespace rdma::inline RDMACPP_ABI {

/// Whether memory that is registered stays the parent's over a fork (ibv_fork_status, of rdma-core 35).
enum class fork_status {
    disabled = 0, ///< No: after a fork the parent's writes to such pages go elsewhere than the device's.
    enabled = 1,  ///< Yes, by fork_init(); the child cannot touch those pages.
    unneeded = 2, ///< Yes, by the kernel, which copies them for the child.
};

/// Asks for the state of things (ibv_is_fork_initialized, from rdma-core 35 on).
template <class... None>
fork_status is_fork_initialized() noexcept requires detail::has_is_fork_initialized<None...> {
    return static_cast<fork_status>(ibv_is_fork_initialized(None()...));
}

/// Makes forks safe on kernels that need it (ibv_fork_init); before anything is registered. Where it is not needed it
/// changes nothing. What the child may do is another question: all rdmacpp objects of its parent are only ever
/// forgotten there.
inline void fork_init(std::error_code& ec) noexcept { ec = detail::check_returned(::ibv_fork_init()); }

#if RDMACPP_EXCEPTIONS
/// The throwing form of fork_init(std::error_code&). @throws rdma::error EINVAL if memory was registered before
inline void fork_init() {
    std::error_code ec;
    fork_init(ec);
    if (ec)
        detail::throw_error(ec, "ibv_fork_init");
}
#endif

} // namespace rdma::inline RDMACPP_ABI

// ---- fwd.hpp --------------------------------------------------------------------------------------------------------
// Forward declarations of every public class. The only supported way to forward-declare them; compiles as C++11.

namespace rdma {
inline namespace RDMACPP_ABI {

class accepting;
class acceptor;
class ack_timeout;
class address;
class addrinfo;
class addrinfo_ref;
class ah;
class ah_ref;
class any_stop_token;
class async_channel;
class async_event;
class cm_event;
class cm_id;
class cm_id_ref;
class comp_channel;
class comp_channel_ref;
class completed;
class completed_ex;
class connect_error;
class context;
class context_ref;
class counters;
class counters_ref;
class cq;
class cq_event;
class cq_ex;
class cq_ref;
class cq_set;
class device_list;
class device_ref;
class devices;
class dispatcher;
class dm;
class dm_ref;
class endpoint;
class epoll_loop;
class error;
class event_channel;
class event_channel_ref;
class flow;
class flow_action;
class flow_action_ref;
class flow_ref;
class id_handler;
class mcast;
class membership;
class mr;
class mr_ref;
class mw;
class mw_ref;
class parent_domain;
class pd;
class pd_ref;
class polling;
class private_data;
class qp;
class qp_ex_ref;
class qp_ref;
class recv_wr;
class registered_buffer;
class request;
class rwq_ind_table;
class rwq_ind_table_ref;
class send_wr;
class srq;
class srq_ref;
class sync_id;
class td;
class td_ref;
class work_completion;
class wq;
class wq_ref;
class wr_batch;
class xrcd;
class xrcd_ref;
struct accept_options;
struct acceptor_options;
struct addrinfo_hints;
struct channel_stats;
struct conn_param;
struct connect_options;
struct connect_report;
struct cq_init_attr_ex;
struct diagnostic;
struct dispatch_stats;
struct drained;
struct polled;
struct qp_attr;
struct qp_cap;
struct qp_init_attr;
struct qp_init_attr_ex;
struct remote_memory;
struct srq_init_attr;
struct srq_init_attr_ex;
struct wait_options;
struct wq_cap;
struct wq_init_attr;

namespace async {
template <class Operation, bool Throws>
class awaitable;
template <class Channel>
class events;
template <class T>
class task;
class acceptor;
class any_loop;
class cm_id;
class cq;
class event_channel;
class limits;
class poll_loop;
class registration;
class request;
class tasks;
struct callback;
} // namespace async

} // namespace RDMACPP_ABI
} // namespace rdma

// ---- mcast.hpp ------------------------------------------------------------------------------------------------------
// Multicast groups that a program attaches a QP to by itself; librdmacm does it for those that an id joins.

namespace rdma::inline RDMACPP_ABI {

/// A QP's place in a multicast group (ibv_attach_mcast): move-only; dropped, the QP is detached (ibv_detach_mcast). It
/// keeps the QP alive, which could not be destroyed else.
class [[nodiscard]] mcast {
public:
    /// Of no group.
    mcast() noexcept = default;
    mcast(mcast&& other) noexcept
        : qp_(detail::take(other.qp_)), gid_(other.gid_), lid_(other.lid_), keep_(std::move(other.keep_)),
          born_in_(other.born_in_) {}
    /// Detaches the QP held before, at once.
    mcast& operator=(mcast&& other) noexcept {
        mcast(std::move(other)).swap(*this);
        return *this;
    }
    /// Detaches the QP. A failure is told to the diagnostic handler.
    ~mcast() {
        if (!qp_ || born_in_ != detail::process::current())
            return;
        std::error_code ec;
        ibv_qp* const qp = qp_;
        detach(ec);
        if (ec)
            detail::report({diagnostic_kind::destroy_failed, "ibv_detach_mcast", qp, ec});
    }

#if RDMACPP_EXCEPTIONS
    /// Attaches a datagram QP to a group. @param lid its LID in host byte order; 0 on RoCE
    /// @throws rdma::error errc::empty_handle; the errno of ibv_attach_mcast
    mcast(qp_ref qp, ibv_gid const& group, std::uint16_t lid) {
        std::error_code ec;
        *this = mcast(qp, group, lid, ec);
        if (ec)
            detail::throw_error(ec, "ibv_attach_mcast");
    }
    /// Detaches the QP now; on failure it stays attached. @throws rdma::error the errno of ibv_detach_mcast
    void detach() {
        std::error_code ec;
        detach(ec);
        if (ec)
            detail::throw_error(ec, "ibv_detach_mcast");
    }
#endif
    /// The twin of the attaching constructor: of no group on failure.
    mcast(qp_ref qp, ibv_gid const& group, std::uint16_t lid, std::error_code& ec) noexcept : gid_(group), lid_(lid) {
        ec = qp ? detail::check_returned(::ibv_attach_mcast(qp.native_handle(), &group, lid))
                : std::error_code(errc::empty_handle);
        if (ec)
            return;
        qp_ = qp.native_handle();
        keep_ = detail::keep(detail::keeper(qp));
    }
    /// The twin of detach().
    void detach(std::error_code& ec) noexcept {
        ec = qp_ ? detail::check_returned(::ibv_detach_mcast(qp_, &gid_, lid_)) : std::error_code();
        if (ec)
            return;
        qp_ = nullptr;
        keep_ = detail::keep();
    }

    explicit operator bool() const noexcept { return qp_ != nullptr; }
    void swap(mcast& other) noexcept {
        detail::swap_values(qp_, other.qp_);
        detail::swap_values(gid_, other.gid_);
        detail::swap_values(lid_, other.lid_);
        detail::swap_values(born_in_, other.born_in_);
        std::swap(keep_, other.keep_);
    }
    friend void swap(mcast& a, mcast& b) noexcept { a.swap(b); }

private:
    ibv_qp* qp_ = nullptr;
    ibv_gid gid_{};
    std::uint16_t lid_ = 0;
    detail::keep keep_;
    unsigned born_in_ = detail::process::current();
};

static_assert(detail::move_only<mcast>);

} // namespace rdma::inline RDMACPP_ABI

// ---- mw.hpp ---------------------------------------------------------------------------------------------------------
// Memory windows: remote access to a part of a region, given and taken back on the data path.

namespace rdma::inline RDMACPP_ABI {

namespace detail {
struct mw_node : node_of<mw_node, ibv_mw> {
    static constexpr char const* made_by = "ibv_alloc_mw";
    static constexpr char const* ended_by = "ibv_dealloc_mw";
    static int end(ibv_mw* mw) noexcept { return ::ibv_dealloc_mw(mw); }
    void recall() noexcept { need_again({object()->pd}); }

    /// Keeps the region that the window is about to be bound to; and the one before, since the device is still at it.
    void bind_to(mr_ref region) noexcept {
        if (!keeper(region) || needs[1] == keeper(region))
            return;
        need_instead(2, needs[1]);
        need_instead(1, keeper(region));
    }
};
} // namespace detail

/// How a window is bound (ibv_mw_type).
enum class mw_type {
    type_1 = IBV_MW_TYPE_1, ///< By a call of its own: mw::bind.
    type_2 = IBV_MW_TYPE_2, ///< By a work request, which gives its key: mw::bind_request, send_wr::local_inv.
};

/// A borrowed memory window. It frees nothing and cannot turn into an owner.
class mw_ref : public verbs_ref<mw_ref, ibv_mw> {
public:
    using verbs_ref::verbs_ref;

    /// The key that a peer uses; that of a type 1 window changes with each bind. Precondition, asserted: not empty.
    std::uint32_t rkey() const noexcept {
        RDMACPP_ASSERT(raw_);
        return raw_->rkey;
    }
};

/// An owned memory window (ibv_alloc_mw). It keeps its PD alive, and the region that it is bound to: dropped, it is
/// unbound and frees both.
class [[nodiscard]] mw : public verbs_owner<detail::mw_node, mw_ref> {
public:
    using verbs_owner::verbs_owner;
    /// Empty.
    mw() noexcept = default;

#if RDMACPP_EXCEPTIONS
    /// Allocates a window. @throws rdma::error errc::not_bound for an empty pd; EOPNOTSUPP where the device has none
    mw(pd_ref pd, mw_type type) {
        std::error_code ec;
        *this = mw(pd, type, ec);
        if (ec)
            detail::throw_error(ec, "ibv_alloc_mw");
    }
#endif
    /// The twin of the allocating constructor: empty on failure.
    mw(pd_ref pd, mw_type type, std::error_code& ec) noexcept {
        if (auto* const node = fresh_node(static_cast<bool>(pd), ec))
            own(::ibv_alloc_mw(pd.native_handle(), static_cast<ibv_mw_type>(type)), node, {detail::keeper(pd)}, ec);
    }

    /// The key that a peer uses. Precondition, asserted: not empty.
    std::uint32_t rkey() const noexcept {
        RDMACPP_ASSERT(raw_);
        return raw_->rkey;
    }

    /// Binds a type 1 window to a part of a region (ibv_bind_mw): a request on the QP's send queue, which completes
    /// there as bind_mw; no bytes: unbinds it. The region needs access::mw_bind.
    /// @return the errno of C, std::errc{} for success
    std::errc bind(qp_ref qp, mr_ref region, std::size_t offset, std::size_t length, access allowed,
                   std::uint64_t wr_id, unsigned send_flags, std::nothrow_t) noexcept {
        RDMACPP_ASSERT(raw_ && qp);
        ibv_mw_bind request{};
        request.wr_id = wr_id;
        request.send_flags = send_flags;
        request.bind_info = part(region, offset, length, allowed);
        node_->bind_to(region);
        return static_cast<std::errc>(::ibv_bind_mw(qp.native_handle(), raw_, &request));
    }

    /// The request that binds a type 2 window to a part of a region, to be posted on the QP that will use it.
    /// @param rkey its new key: of next_rkey(). The region needs access::mw_bind.
    send_wr bind_request(std::uint32_t rkey, mr_ref region, std::size_t offset, std::size_t length,
                         access allowed) noexcept {
        RDMACPP_ASSERT(raw_);
        node_->bind_to(region);
        return send_wr::bind_mw(raw_, rkey, part(region, offset, length, allowed));
    }

    /// The key after the present one (ibv_inc_rkey): only its lowest byte is the program's to choose.
    std::uint32_t next_rkey() const noexcept { return ::ibv_inc_rkey(rkey()); }

#if RDMACPP_EXCEPTIONS
    /// The throwing form of bind(..., std::nothrow_t). @throws rdma::error the errno of ibv_bind_mw
    void bind(qp_ref qp, mr_ref region, std::size_t offset, std::size_t length, access allowed, std::uint64_t wr_id = 0,
              unsigned send_flags = 0) {
        if (std::errc const e = bind(qp, region, offset, length, allowed, wr_id, send_flags, std::nothrow);
            e != std::errc{}) [[unlikely]]
            detail::throw_refused(e, "ibv_bind_mw", wr_id);
    }
#endif

private:
    static ibv_mw_bind_info part(mr_ref region, std::size_t offset, std::size_t length, access allowed) noexcept {
        return {region.native_handle(), region ? region.remote(offset).address : 0, length,
                static_cast<unsigned>(allowed)};
    }
};

static_assert(std::is_trivially_copyable_v<mw_ref>);
static_assert(detail::move_only<mw>);
static_assert(!detail::makes<mw, mw_ref> && !detail::makes<mw, ibv_mw*>);

} // namespace rdma::inline RDMACPP_ABI

template <>
struct std::hash<::rdma::mw_ref> : ::rdma::RDMACPP_ABI::detail::ref_hash<::rdma::mw_ref> {};

// ---- td.hpp ---------------------------------------------------------------------------------------------------------
// Thread domains: a promise that one thread at a time uses what is made with them, which then needs no locks.

namespace rdma::inline RDMACPP_ABI {

namespace detail {
struct td_node : node_of<td_node, ibv_td> {
    static constexpr char const* made_by = "ibv_alloc_td";
    static constexpr char const* ended_by = "ibv_dealloc_td";
    static int end(ibv_td* td) noexcept { return ::ibv_dealloc_td(td); }
};
} // namespace detail

/// A borrowed thread domain. It frees nothing and cannot turn into an owner.
class td_ref : public verbs_ref<td_ref, ibv_td> {
public:
    using verbs_ref::verbs_ref;
};

/// An owned thread domain (ibv_alloc_td): give it to a parent_domain, which keeps it alive.
///
/// What is made with it must be used by one thread at a time: the driver takes no locks there.
class [[nodiscard]] td : public verbs_owner<detail::td_node, td_ref> {
public:
    using verbs_owner::verbs_owner;
    /// Empty.
    td() noexcept = default;

#if RDMACPP_EXCEPTIONS
    /// Allocates a thread domain. @throws rdma::error errc::not_bound for an empty context; EOPNOTSUPP where the device
    /// has none
    explicit td(context_ref context) {
        std::error_code ec;
        *this = td(context, ec);
        if (ec)
            detail::throw_error(ec, "ibv_alloc_td", {context.device_name()});
    }
#endif
    /// The twin of the allocating constructor: empty on failure.
    td(context_ref context, std::error_code& ec) noexcept {
        ibv_td_init_attr attr{};
        if (auto* const node = fresh_node(static_cast<bool>(context), ec))
            own(::ibv_alloc_td(context.native_handle(), &attr), node, {detail::keeper(context)}, ec);
    }
};

static_assert(std::is_trivially_copyable_v<td_ref>);
static_assert(detail::move_only<td>);
static_assert(!detail::makes<td, td_ref> && !detail::makes<td, ibv_td*>);

} // namespace rdma::inline RDMACPP_ABI

template <>
struct std::hash<::rdma::td_ref> : ::rdma::RDMACPP_ABI::detail::ref_hash<::rdma::td_ref> {};

// ---- parent_domain.hpp ----------------------------------------------------------------------------------------------
// Parent domains: protection domains with a thread domain, or with an allocator of the program's.

namespace rdma::inline RDMACPP_ABI {

namespace detail {
struct parent_domain_node : node_of<parent_domain_node, ibv_pd> {
    static constexpr char const* made_by = "ibv_alloc_parent_domain";
    static constexpr char const* ended_by = "ibv_dealloc_pd";
    static int end(ibv_pd* pd) noexcept { return ::ibv_dealloc_pd(pd); }
};
} // namespace detail

/// An owned parent domain (ibv_alloc_parent_domain). It serves wherever a pd does, and keeps the pd and td that it was
/// made with alive.
class [[nodiscard]] parent_domain : public verbs_owner<detail::parent_domain_node, pd_ref> {
public:
    using verbs_owner::verbs_owner;
    /// Empty.
    parent_domain() noexcept = default;

#if RDMACPP_EXCEPTIONS
    /// Makes a parent domain. @param thread none: it is shared by all threads
    /// @throws rdma::error errc::not_bound for an empty pd; EOPNOTSUPP where the device has none
    explicit parent_domain(pd_ref pd, td_ref thread = {}) {
        std::error_code ec;
        *this = parent_domain(pd, thread, ec);
        if (ec)
            detail::throw_error(ec, "ibv_alloc_parent_domain");
    }
    /// The same with all that C offers, such as an allocator; its pd and td are not looked at, and it is only read.
    /// @throws rdma::error as above
    parent_domain(pd_ref pd, td_ref thread, ibv_parent_domain_init_attr const& more) {
        std::error_code ec;
        *this = parent_domain(pd, thread, more, ec);
        if (ec)
            detail::throw_error(ec, "ibv_alloc_parent_domain");
    }
#endif
    /// The twins of the constructors: empty on failure.
    parent_domain(pd_ref pd, td_ref thread, std::error_code& ec) noexcept
        : parent_domain(pd, thread, ibv_parent_domain_init_attr{}, ec) {}
    parent_domain(pd_ref pd, td_ref thread, ibv_parent_domain_init_attr const& more, std::error_code& ec) noexcept {
        ibv_parent_domain_init_attr attr = more;
        attr.pd = pd.native_handle();
        attr.td = thread.native_handle();
        if (auto* const node = fresh_node(static_cast<bool>(pd), ec))
            own(::ibv_alloc_parent_domain(attr.pd->context, &attr), node, {detail::keeper(pd), detail::keeper(thread)},
                ec);
    }
};

static_assert(detail::move_only<parent_domain>);

} // namespace rdma::inline RDMACPP_ABI

// ---- port.hpp -------------------------------------------------------------------------------------------------------
// The words in which ports and paths are described: states, packet sizes and rates.

namespace rdma::inline RDMACPP_ABI {

/// The state of a port (ibv_port_state): `port_state(context.query_port(1).state)`.
enum class port_state {
    nop = IBV_PORT_NOP,                   ///< No state.
    down = IBV_PORT_DOWN,                 ///< No link.
    init = IBV_PORT_INIT,                 ///< The link is there, the subnet manager has not been.
    armed = IBV_PORT_ARMED,               ///< Configured, and about to be active.
    active = IBV_PORT_ACTIVE,             ///< Ready for traffic.
    active_defer = IBV_PORT_ACTIVE_DEFER, ///< Active, with a link that is being repaired.
};

/// The name of a state, as libibverbs gives it.
inline std::string to_string(port_state state) { return ::ibv_port_state_str(static_cast<ibv_port_state>(state)); }

/// How long packets are at most (ibv_mtu).
enum class mtu {
    mtu_256 = IBV_MTU_256,
    mtu_512 = IBV_MTU_512,
    mtu_1024 = IBV_MTU_1024,
    mtu_2048 = IBV_MTU_2048,
    mtu_4096 = IBV_MTU_4096,
};

/// In bytes.
constexpr int bytes(mtu size) noexcept { return 128 << static_cast<int>(size); }

/// How fast a path is (ibv_rate).
enum class rate {
    max = IBV_RATE_MAX,
    rate_2_5_gbps = IBV_RATE_2_5_GBPS,
    rate_5_gbps = IBV_RATE_5_GBPS,
    rate_10_gbps = IBV_RATE_10_GBPS,
    rate_14_gbps = IBV_RATE_14_GBPS,
    rate_20_gbps = IBV_RATE_20_GBPS,
    rate_25_gbps = IBV_RATE_25_GBPS,
    rate_28_gbps = IBV_RATE_28_GBPS,
    rate_30_gbps = IBV_RATE_30_GBPS,
    rate_40_gbps = IBV_RATE_40_GBPS,
    rate_50_gbps = IBV_RATE_50_GBPS,
    rate_56_gbps = IBV_RATE_56_GBPS,
    rate_60_gbps = IBV_RATE_60_GBPS,
    rate_80_gbps = IBV_RATE_80_GBPS,
    rate_100_gbps = IBV_RATE_100_GBPS,
    rate_112_gbps = IBV_RATE_112_GBPS,
    rate_120_gbps = IBV_RATE_120_GBPS,
    rate_168_gbps = IBV_RATE_168_GBPS,
    rate_200_gbps = IBV_RATE_200_GBPS,
    rate_300_gbps = IBV_RATE_300_GBPS,
    rate_400_gbps = IBV_RATE_400_GBPS,
    rate_600_gbps = IBV_RATE_600_GBPS,
    rate_800_gbps = 23,  ///< `IBV_RATE_800_GBPS`, which rdma-core 33 lacks.
    rate_1200_gbps = 24, ///< `IBV_RATE_1200_GBPS`, likewise.
};

/// In megabits per second; 0 or less: unknown (ibv_rate_to_mbps).
inline int to_mbps(rate r) noexcept { return ::ibv_rate_to_mbps(static_cast<ibv_rate>(r)); }
/// The rate of so many megabits per second; max if there is none (mbps_to_ibv_rate).
inline rate from_mbps(int mbps) noexcept { return static_cast<rate>(::mbps_to_ibv_rate(mbps)); }
/// In multiples of 2.5 gigabits per second; -1: none (ibv_rate_to_mult).
inline int to_mult(rate r) noexcept { return ::ibv_rate_to_mult(static_cast<ibv_rate>(r)); }
/// The rate of that multiple; max if there is none (mult_to_ibv_rate).
inline rate from_mult(int mult) noexcept { return static_cast<rate>(::mult_to_ibv_rate(mult)); }

static_assert(bytes(mtu::mtu_256) == 256 && bytes(mtu::mtu_4096) == 4096);

} // namespace rdma::inline RDMACPP_ABI

// ---- registered_buffer.hpp ------------------------------------------------------------------------------------------
// Memory with its region, for the common case that a program needs both.

namespace rdma::inline RDMACPP_ABI {

/// Where the memory of a registered_buffer comes from.
enum class pages {
    normal, ///< Of the system's size.
    huge,   ///< Of 2 MiB, from the system's pool (/proc/sys/vm/nr_hugepages): ENOMEM when that is empty.
};

/// An owned piece of memory and its region: zeroed, aligned to whole pages that it shares with nobody, so that a fork
/// takes nothing else with it.
///
/// It must stay until every work request that names it has completed, and every memory window that is bound to it is
/// gone.
class [[nodiscard]] registered_buffer : public region<registered_buffer> {
public:
    /// Empty.
    registered_buffer() noexcept = default;
    registered_buffer(registered_buffer&& other) noexcept
        : data_(detail::take(other.data_)), size_(detail::take(other.size_)), mapped_(detail::take(other.mapped_)),
          mr_(std::move(other.mr_)) {}
    /// Frees what was held before, at once.
    registered_buffer& operator=(registered_buffer&& other) noexcept {
        registered_buffer(std::move(other)).swap(*this);
        return *this;
    }
    /// Deregisters and frees the memory.
    ~registered_buffer() {
        mr_ = mr();
        if (mapped_ != 0)
            ::munmap(data_, mapped_);
    }

#if RDMACPP_EXCEPTIONS
    /// Allocates and registers memory. @param size at least one byte @param allowed see mr
    /// @throws rdma::error errc::not_bound for an empty pd; std::errc::invalid_argument for no bytes; the errno of mmap
    /// or ibv_reg_mr, which says what is short when it is ENOMEM
    registered_buffer(pd_ref pd, std::size_t size, access allowed, pages kind = pages::normal) {
        std::error_code ec;
        char const* const function = make(pd, size, allowed, kind, ec);
        if (ec)
            detail::throw_error(ec, function, {std::to_string(size), " bytes"});
    }
#endif
    /// The twins of the constructor: empty on failure.
    registered_buffer(pd_ref pd, std::size_t size, access allowed, std::error_code& ec) noexcept {
        make(pd, size, allowed, pages::normal, ec);
    }
    registered_buffer(pd_ref pd, std::size_t size, access allowed, pages kind, std::error_code& ec) noexcept {
        make(pd, size, allowed, kind, ec);
    }

    /// The memory. (A template, so that who does not ask does not pay for it in compile time.)
    template <class Byte = std::byte>
    std::span<Byte> bytes() const noexcept {
        return {data_, size_};
    }
    std::byte* data() const noexcept { return data_; }
    /// Its size in bytes.
    std::size_t size() const noexcept { return size_; }

    /// Its region.
    mr_ref region() const& noexcept { return mr_; }
    mr_ref region() const&& = delete;
    ibv_mr* native_handle() const noexcept { return mr_.native_handle(); }
    explicit operator bool() const noexcept { return static_cast<bool>(mr_); }

    void swap(registered_buffer& other) noexcept {
        detail::swap_values(data_, other.data_);
        detail::swap_values(size_, other.size_);
        detail::swap_values(mapped_, other.mapped_);
        mr_.swap(other.mr_);
    }
    friend void swap(registered_buffer& a, registered_buffer& b) noexcept { a.swap(b); }

private:
    /// @return the function that failed, if `ec` is set
    char const* make(pd_ref pd, std::size_t size, access allowed, pages kind, std::error_code& ec) noexcept {
        ec.clear();
        if (!pd)
            ec = errc::not_bound;
        else if (size == 0)
            ec = detail::system_error_code(EINVAL);
        if (ec)
            return "ibv_reg_mr";
        constexpr std::size_t huge_page = std::size_t{1} << 21;
        constexpr int huge = MAP_HUGETLB | (21 << 26); // the size as a power of two: MAP_HUGE_2MB
        std::size_t const whole = kind == pages::huge ? (size + huge_page - 1) & ~(huge_page - 1) : size;
        void* const memory = ::mmap(nullptr, whole, PROT_READ | PROT_WRITE,
                                    MAP_PRIVATE | MAP_ANONYMOUS | (kind == pages::huge ? huge : 0), -1, 0);
        if (memory == MAP_FAILED) {
            ec = detail::system_error_code(errno);
            return "mmap";
        }
        data_ = static_cast<std::byte*>(memory);
        size_ = size;
        mapped_ = whole;
        mr_ = mr(pd, memory, size, allowed, ec);
        if (ec)
            *this = registered_buffer();
        return "ibv_reg_mr";
    }

    std::byte* data_ = nullptr;
    std::size_t size_ = 0;
    std::size_t mapped_ = 0;
    mr mr_;
};

static_assert(detail::move_only<registered_buffer>);

} // namespace rdma::inline RDMACPP_ABI

// ---- detail/sync_record.hpp -----------------------------------------------------------------------------------------
// What the library knows of one id of C's synchronous mode.

namespace rdma::inline RDMACPP_ABI::detail {

/// Pinned by its owner, by what was made from its device, and by each id that has parked a CONNECT_REQUEST of it: C's
/// destroy of a listener waits for these, which C acks with the other id's next call, or in its destroy.
struct sync_record : pinnable {
    sync_record() noexcept : pinnable(&last_unpin) {}

    void const* key() const noexcept { return raw; }

    static sync_record* adopt(rdma_cm_id* id, std::error_code& ec) noexcept;
    sync_record* get_request(std::error_code& ec) noexcept;
    void surrender() noexcept;
    void drop() noexcept;
    void let_listener_go() noexcept;

    rdma_cm_id* raw = nullptr;
    sync_record* next = nullptr;
    sync_record* listener = nullptr;        // pinned, while its event is parked here; under the table's mutex, like:
    rdma_cm_id const* charged_to = nullptr; // that listener, also if nobody has adopted it
    bool disconnected = false;
    verbs_node* qp = nullptr; // what it came with: pinned here, and by their held events
    verbs_node* srq = nullptr;
    verbs_node* send_cq = nullptr;
    verbs_node* recv_cq = nullptr;

private:
    bool allocate(rdma_cm_id const& id) noexcept;
    void open(rdma_cm_id* id) noexcept;
    static void last_unpin(pinnable& self) noexcept;
    static void destroy(rdma_cm_id* id) noexcept;
};

/// Every one of them, by its C id. One per process, never destroyed.
struct RDMACPP_EXPORT sync_table {
    detail::mutex mutex;
    address_map<sync_record> records;

    static sync_table& get() noexcept {
        alignas(sync_table) static unsigned char memory[sizeof(sync_table)];
        static sync_table* const table = new (memory) sync_table;
        return *table;
    }
};

/// The listener whose CONNECT_REQUEST an id has parked.
inline rdma_cm_id const* listener_of(rdma_cm_id const& id) noexcept {
    return id.event && type_of(*id.event) == cm_event_type::connect_request ? id.event->listen_id : nullptr;
}

inline sync_record* sync_record::adopt(rdma_cm_id* id, std::error_code& ec) noexcept {
    ec.clear();
    if (!id) {
        ec = errc::null_handle;
        return nullptr;
    }
    {
        channel_registry& registry = channel_registry::get();
        lock_guard const lock(registry.mutex);
        channel_state* const known = registry.channels.find(id->channel);
        if (known && !known->is_forgotten())
            ec = errc::wrong_channel; // an asynchronous one
    }
    auto* const record = ec ? nullptr : new (std::nothrow) sync_record;
    if (!record) {
        ec = ec ? ec : system_error_code(ENOMEM);
        return nullptr;
    }
    sync_table& table = sync_table::get();
    lock_guard const lock(table.mutex);
    if (table.records.find(id))
        ec = errc::already_owned;
    else if (!record->allocate(*id))
        ec = system_error_code(ENOMEM);
    if (ec) {
        delete record;
        return nullptr;
    }
    record->open(id);
    return record;
}

/// The nodes for what an id has, so that an async event of it can be held: before the id is known, since it may fail.
inline bool sync_record::allocate(rdma_cm_id const& id) noexcept {
    qp = id.qp ? new (std::nothrow) qp_node : nullptr;
    srq = id.srq ? new (std::nothrow) srq_node : nullptr;
    send_cq = id.send_cq ? new (std::nothrow) cq_node : nullptr;
    recv_cq = id.recv_cq ? new (std::nothrow) cq_node : nullptr;
    if ((qp || !id.qp) && (srq || !id.srq) && (send_cq || !id.send_cq) && (recv_cq || !id.recv_cq))
        return true;
    delete static_cast<qp_node*>(take(qp));
    delete static_cast<srq_node*>(take(srq));
    delete static_cast<cq_node*>(take(send_cq));
    delete static_cast<cq_node*>(take(recv_cq));
    return false;
}

/// Under the table's mutex.
inline void sync_record::open(rdma_cm_id* id) noexcept {
    sync_table& table = sync_table::get();
    raw = id;
    pins.store(1, order::relaxed);
    if (send_cq)
        send_cq->open(id->send_cq, {this});
    if (recv_cq)
        recv_cq->open(id->recv_cq, {this});
    if (srq)
        srq->open(id->srq, {recv_cq, this});
    if (qp)
        qp->open(id->qp, {send_cq, recv_cq, srq, this});
    charged_to = listener_of(*id);
    if (charged_to && (listener = table.records.find(charged_to)))
        pin(listener);
    table.records.for_each([this](sync_record* child) {
        if (child->charged_to == raw && !child->listener)
            pin(child->listener = this);
    });
    table.records.insert(this);
}

/// C parks the event of a request that fails, and forgets the new id in it.
inline sync_record* sync_record::get_request(std::error_code& ec) noexcept {
    auto* const child = new (std::nothrow) sync_record;
    if (!child) {
        ec = system_error_code(ENOMEM);
        return nullptr;
    }
    rdma_cm_id* id = nullptr;
    ec = check_errno(::rdma_get_request(raw, &id));
    if (ec && listener_of(*raw) == raw) {
        destroy(raw->event->id);
        ::rdma_ack_cm_event(take(raw->event)); // or it would name a dead id
    }
    if (!ec && !child->allocate(*id)) {
        ec = system_error_code(ENOMEM);
        destroy(id);
    }
    if (ec) {
        delete child;
        return nullptr;
    }
    lock_guard const lock(sync_table::get().mutex);
    child->open(id);
    return child;
}

/// A call of C's may have acked the parked event.
inline void sync_record::let_listener_go() noexcept {
    sync_record* free_one = nullptr;
    {
        lock_guard const lock(sync_table::get().mutex);
        if (charged_to && listener_of(*raw) != charged_to) {
            charged_to = nullptr;
            free_one = take(listener);
        }
    }
    unpin(free_one);
}

/// C's again. What its listener needs is C's affair, too.
inline void sync_record::surrender() noexcept {
    if (inherited())
        return;
    sync_record* free_one;
    {
        sync_table& table = sync_table::get();
        lock_guard const lock(table.mutex);
        table.records.erase(this);
        table.records.for_each([this](sync_record* child) {
            if (child->listener == this && unref_unless_last(pins))
                child->listener = nullptr;
        });
        free_one = take(listener);
        raw = nullptr;
    }
    for (verbs_node* const node : {take(qp), take(srq), take(send_cq), take(recv_cq)})
        if (node) {
            node->surrender();
            unpin(node);
        }
    unpin(free_one);
    unpin(this);
}

/// The owner lets go: of the QP at once, unless an event of it is held; then it must go quiet.
inline void sync_record::drop() noexcept {
    if (inherited())
        return;
    if (qp) {
        raw->qp = nullptr;
        if (qp->pins.load(order::relaxed) > 1) {
            ibv_qp_attr attr{};
            attr.qp_state = IBV_QPS_ERR;
            ::ibv_modify_qp(static_cast<ibv_qp*>(qp->raw), &attr, IBV_QP_STATE);
        }
    }
    if (srq)
        raw->srq = nullptr;
    if (send_cq)
        raw->send_cq = nullptr;
    if (recv_cq)
        raw->recv_cq = nullptr;
    for (verbs_node* const node : {take(qp), take(srq), take(send_cq), take(recv_cq)})
        unpin(node);
    unpin(this);
}

inline void sync_record::last_unpin(pinnable& self) noexcept {
    auto* const record = &static_cast<sync_record&>(self);
    if (record->raw) {
        {
            sync_table& table = sync_table::get();
            lock_guard const lock(table.mutex);
            table.records.erase(record);
        }
        destroy(record->raw);
    }
    unpin(record->listener);
    delete record;
}

/// As rdma_destroy_ep does, which also frees what only it can; but it tells of no failure, and leaves behind the CQ of
/// a QP that only sends.
inline void sync_record::destroy(rdma_cm_id* id) noexcept {
    auto const told = [](char const* function, void const* object, int result) {
        if (std::error_code const failure = check_returned(result))
            report({diagnostic_kind::destroy_failed, function, object, failure});
    };
    if (ibv_qp* const qp = take(id->qp))
        told("ibv_destroy_qp", qp, ::ibv_destroy_qp(qp));
    if (ibv_srq* const srq = take(id->srq))
        told("ibv_destroy_srq", srq, ::ibv_destroy_srq(srq));
    for (ibv_cq* const cq : {take(id->send_cq), take(id->recv_cq)})
        if (cq)
            told("ibv_destroy_cq", cq, ::ibv_destroy_cq(cq));
    for (ibv_comp_channel* const channel : {take(id->send_cq_channel), take(id->recv_cq_channel)})
        if (channel)
            told("ibv_destroy_comp_channel", channel, ::ibv_destroy_comp_channel(channel));
    errno = 0;
    ::rdma_destroy_ep(id);
    switch (int const reason = errno; reason) { // what a refused rdma_destroy_id leaves there
    case EBADF:
    case EINVAL:
    case ENOENT:
    case EACCES:
    case EFAULT:
        report({diagnostic_kind::destroy_failed, "rdma_destroy_ep", id, {reason, std::system_category()}});
        break;
    default: break;
    }
}

} // namespace rdma::inline RDMACPP_ABI::detail

// ---- sync_id.hpp ----------------------------------------------------------------------------------------------------
// Ids that C made in its synchronous mode, taken over.

namespace rdma::inline RDMACPP_ABI {

/// An id of C's synchronous mode (rdma_create_ep, rdma_get_request, rdma_create_id without a channel), owned from here
/// on: for C programs that are moved over one call at a time. New programs use endpoint, whose calls have deadlines.
///
/// Its calls are C's and block as C's do, with no end. C acks the event that it parks in `id->event` itself; here it
/// can only be looked at. A listener and the ids of its requests may be dropped in any order: while the parked event of
/// one is the listener's CONNECT_REQUEST, the listener lives on, with its port. One thread at a time may use one id.
class [[nodiscard]] sync_id : public cm_id_base, public rdma_verbs<sync_id> {
public:
    /// Empty.
    sync_id() noexcept = default;
    sync_id(sync_id&& other) noexcept : cm_id_base(detail::take(other.raw_)), record_(detail::take(other.record_)) {}
    /// Drops the id held before.
    sync_id& operator=(sync_id&& other) noexcept {
        sync_id(std::move(other)).swap(*this);
        return *this;
    }
    /// Destroys the id, its QP and SRQ and what librdmacm made for them (as rdma_destroy_ep, which hides every failure;
    /// here the diagnostic handler is told). What was made from its device keeps it alive.
    ~sync_id() {
        if (record_)
            record_->drop();
    }

#if RDMACPP_EXCEPTIONS
    /// Takes over an id that C made, or that release() gave back.
    /// @throws rdma::error errc::null_handle, errc::already_owned; errc::wrong_channel for one on an event_channel;
    /// std::errc::not_enough_memory
    sync_id(adopt_t, rdma_cm_id* raw) {
        std::error_code ec;
        *this = sync_id(adopt, raw, ec);
        if (ec)
            detail::throw_error(ec, "rdma_create_ep", {"adopt"});
    }
#endif
    /// The twin of the adopting constructor: empty on failure.
    sync_id(adopt_t, rdma_cm_id* raw, std::error_code& ec) noexcept : record_(detail::sync_record::adopt(raw, ec)) {
        raw_ = record_ ? raw : nullptr;
    }

    operator cm_id_ref() const& noexcept { return cm_id_ref(raw_); }
    operator cm_id_ref() const&& = delete;

    /// Gives the C id back; makes no C call. The listener whose event it has parked must outlive that, as in C.
    [[nodiscard]] rdma_cm_id* release() noexcept {
        if (record_)
            detail::take(record_)->surrender();
        return detail::take(raw_);
    }
    void swap(sync_id& other) noexcept {
        detail::swap_values(raw_, other.raw_);
        detail::swap_values(record_, other.record_);
    }
    friend void swap(sync_id& a, sync_id& b) noexcept { a.swap(b); }

    /// The event that C has parked (`id->event`): of the last blocking call, or of the request that brought the id.
    /// Null if there is none. It is C's, and valid until the next call.
    rdma_cm_event const* event() const noexcept { return raw_ ? raw_->event : nullptr; }

    /// Its device, protection domain, queue pair and SRQ, as C has them; empty where there is none.
    context_ref verbs() const noexcept {
        return raw_ ? detail::refs::make<context_ref>(raw_->verbs, static_cast<detail::pinnable*>(record_))
                    : context_ref();
    }
    pd_ref pd() const noexcept {
        return raw_ && raw_->pd ? detail::refs::make<pd_ref>(raw_->pd, static_cast<detail::pinnable*>(record_))
                                : pd_ref();
    }
    qp_ref qp() const noexcept { return raw_ ? qp_ref(raw_->qp) : qp_ref(); }
    srq_ref srq() const noexcept { return raw_ ? srq_ref(raw_->srq) : srq_ref(); }

#if RDMACPP_EXCEPTIONS
    /// Listens (rdma_listen). @throws rdma::error with the errno of the call
    void listen(int backlog = 0) {
        std::error_code ec;
        listen(backlog, ec);
        if (ec)
            detail::throw_error(ec, "rdma_listen");
    }
    /// Waits for a request (rdma_get_request), with a QP if C gave the listener the attributes of one. C loses the new
    /// id of a request that fails here; this destroys it, so the peer is rejected.
    /// @throws rdma::error with the errno of the call
    [[nodiscard]] sync_id get_request() {
        std::error_code ec;
        sync_id child = get_request(ec);
        if (ec)
            detail::throw_error(ec, "rdma_get_request");
        return child;
    }
    /// Accepts, and waits for ESTABLISHED (rdma_accept). @throws rdma::error with the errno of the call
    void accept(conn_param const& param = {}) {
        std::error_code ec;
        accept(param, ec);
        if (ec)
            detail::throw_error(ec, "rdma_accept");
    }
    /// Connects, and waits for ESTABLISHED (rdma_connect). @throws rdma::error with the errno of the call
    void connect(conn_param const& param = {}) {
        std::error_code ec;
        connect(param, ec);
        if (ec)
            detail::throw_error(ec, "rdma_connect", {to_string(peer_addr())});
    }
    /// Rejects the request that brought it (rdma_reject). @throws rdma::error with the errno of the call
    void reject(std::span<std::byte const> private_data = {}) {
        std::error_code ec;
        reject(private_data, ec);
        if (ec)
            detail::throw_error(ec, "rdma_reject", {std::to_string(private_data.size()), " bytes"});
    }
    /// Disconnects, and waits for the next event (rdma_disconnect). A second time C would wait for ever, so nothing
    /// happens then. @throws rdma::error with the errno of the call
    void disconnect() {
        std::error_code ec;
        disconnect(ec);
        if (ec)
            detail::throw_error(ec, "rdma_disconnect");
    }
#endif
    void listen(int backlog, std::error_code& ec) noexcept {
        if (ready(ec))
            ec = detail::check_errno(::rdma_listen(raw_, backlog));
    }
    void listen(std::error_code& ec) noexcept { listen(0, ec); }
    [[nodiscard]] sync_id get_request(std::error_code& ec) noexcept {
        sync_id child;
        if (ready(ec))
            child.record_ = record_->get_request(ec);
        child.raw_ = child.record_ ? child.record_->raw : nullptr;
        return child;
    }
    void accept(conn_param const& param, std::error_code& ec) noexcept {
        if (!ready(ec, true) || (ec = detail::check(param, raw_->verbs)))
            return;
        rdma_conn_param c = detail::to_c(param);
        ec = detail::check_errno(::rdma_accept(raw_, &c));
        record_->let_listener_go();
    }
    void accept(std::error_code& ec) noexcept { accept({}, ec); }
    void connect(conn_param const& param, std::error_code& ec) noexcept {
        if (!ready(ec, true) || (ec = detail::check(param, raw_->verbs)))
            return;
        rdma_conn_param c = detail::to_c(param);
        ec = detail::check_errno(::rdma_connect(raw_, &c));
    }
    void connect(std::error_code& ec) noexcept { connect({}, ec); }
    void reject(std::span<std::byte const> private_data, std::error_code& ec) noexcept {
        if (ready(ec) && !(ec = detail::check_private_data(private_data, raw_->verbs)))
            ec = detail::check_errno(
                ::rdma_reject(raw_, private_data.data(), static_cast<std::uint8_t>(private_data.size())));
    }
    void reject(std::error_code& ec) noexcept { reject({}, ec); }
    void disconnect(std::error_code& ec) noexcept {
        if (!ready(ec, true) || record_->disconnected)
            return;
        ec = detail::check_errno(::rdma_disconnect(raw_));
        record_->disconnected = !ec; // a failed one brings no event to wait for a second time
    }

private:
    bool ready(std::error_code& ec, bool needs_device = false) const noexcept {
        ec.clear();
        if (!raw_)
            ec = errc::empty_handle;
        else if (needs_device && !raw_->verbs)
            ec = errc::not_bound;
        return !ec;
    }

    detail::sync_record* record_ = nullptr;
};

static_assert(detail::move_only<sync_id>);
static_assert(!detail::makes<sync_id, rdma_cm_id*> && !detail::makes<sync_id, cm_id_ref>);

} // namespace rdma::inline RDMACPP_ABI

// ---- rdmacpp.hpp ----------------------------------------------------------------------------------------------------
// All of rdmacpp: a C++20 RAII library over rdma-core. One get, one ack, by construction.

/// @namespace rdma
/// All that is public. (An inline namespace within it carries the version.)

#endif
