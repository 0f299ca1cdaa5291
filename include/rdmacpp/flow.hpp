// SPDX-License-Identifier: MIT
/// @file
/// Flows: which packets a QP gets, by their headers.
#pragma once

#include "config.hpp"
#if __cplusplus >= 202002L && !defined(RDMACPP_TWO_VERSIONS) // otherwise config.hpp says what to do

#include "counters.hpp"
#include "flow_action.hpp"
#include "qp.hpp"

#include <cstddef>
#include <cstdint>
#include <cstring>

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

#endif
