// SPDX-License-Identifier: MIT
/// @file
/// Errors. Every function that calls C has two forms, as in std::filesystem: one throws rdma::error, its `noexcept`
/// twin takes a trailing std::error_code&. Codes from errno are in std::system_category(); what rdmacpp refuses by
/// itself, before any C call, is an rdma::errc; what a peer answers is an rdma::reject_reason.
#pragma once

#include "config.hpp"
#if __cplusplus >= 202002L && !defined(RDMACPP_TWO_VERSIONS) // otherwise config.hpp says what to do

#include <cerrno>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>

#include <sys/resource.h>

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

#endif
