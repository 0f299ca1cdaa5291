// SPDX-License-Identifier: MIT
/// @file
/// Looking up names: rdma_getaddrinfo and what it finds.
#pragma once

#include "config.hpp"
#if __cplusplus >= 202002L && !defined(RDMACPP_TWO_VERSIONS) // otherwise config.hpp says what to do

#include "address.hpp"
#include "adopt.hpp"
#include "detail/c_api.hpp"
#include "detail/check.hpp"
#include "detail/contract.hpp"
#include "detail/pin.hpp"
#include "event_type.hpp"

#include <cstddef>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>

#include <netdb.h>

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

#endif
