// SPDX-License-Identifier: MIT
/// @file
/// What a flow does to its packets, beyond where it takes them: IPsec ESP.
#pragma once

#include "config.hpp"
#if __cplusplus >= 202002L && !defined(RDMACPP_TWO_VERSIONS) // otherwise config.hpp says what to do

#include "context.hpp"

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

#endif
