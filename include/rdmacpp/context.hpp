// SPDX-License-Identifier: MIT
/// @file
/// Opened devices. That of an id belongs to librdmacm and is only ever borrowed; a program can also open one itself.
#pragma once

#include "config.hpp"
#if __cplusplus >= 202002L && !defined(RDMACPP_TWO_VERSIONS) // otherwise config.hpp says what to do

#include "detail/check.hpp"
#include "device.hpp"

#include <cstdint>
#include <span>
#include <string_view>
#include <system_error>

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

#endif
