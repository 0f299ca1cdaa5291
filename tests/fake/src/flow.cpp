// SPDX-License-Identifier: MIT
//
// Flows, their actions, and counters. Nothing flows: they are made, used by one another, and destroyed.
#include "world.hpp"

#include <cstring>

namespace fake::model {

namespace {

// ---- flows ------------------------------------------------------------------------------------------------------
bool known_spec(std::uint32_t type)
{
    switch (type & ~std::uint32_t{IBV_FLOW_SPEC_INNER}) {
    case IBV_FLOW_SPEC_ETH: case IBV_FLOW_SPEC_IPV4: case IBV_FLOW_SPEC_IPV6: case IBV_FLOW_SPEC_IPV4_EXT: case IBV_FLOW_SPEC_ESP:
    case IBV_FLOW_SPEC_TCP: case IBV_FLOW_SPEC_UDP: case IBV_FLOW_SPEC_VXLAN_TUNNEL: case IBV_FLOW_SPEC_GRE: case IBV_FLOW_SPEC_MPLS:
    case IBV_FLOW_SPEC_ACTION_TAG: case IBV_FLOW_SPEC_ACTION_DROP: return true;
    default: return false;
    }
}

template <class Spec>
bool read(Spec& into, std::uint8_t const* at, std::uint16_t size)
{
    if (size != sizeof into) return false;
    std::memcpy(&into, at, sizeof into);
    return true;
}

/// One specification behind the attributes: its size, and what it names is noted in the flow; 0: it is none.
std::uint16_t take_spec(entry const& in, flow& to, std::uint8_t const* at)
{
    std::uint32_t type = 0;
    std::uint16_t size = 0;
    std::memcpy(&type, at, sizeof type);
    std::memcpy(&size, at + sizeof type, sizeof size);
    if (type == IBV_FLOW_SPEC_ACTION_HANDLE) {
        ibv_flow_spec_action_handle spec{};
        flow_action* const named = read(spec, at, size) ? in.need(the().flow_actions, spec.action, "flow action") : nullptr;
        if (named == nullptr) return 0;
        to.actions.push_back(named);
    } else if (type == IBV_FLOW_SPEC_ACTION_COUNT) {
        ibv_flow_spec_counter_action spec{};
        counters* const named = read(spec, at, size) ? in.need(the().counter_sets, spec.counters, "set of counters") : nullptr;
        if (named == nullptr) return 0;
        to.counting.push_back(named);
    } else if (!known_spec(type) || size < sizeof type + sizeof size) {
        return 0;
    }
    return size;
}

bool take_specs(entry const& in, flow& to, ibv_flow_attr const& attr)
{
    auto const* const start = reinterpret_cast<std::uint8_t const*>(&attr);
    std::size_t offset = sizeof attr;
    for (unsigned i = 0; i < attr.num_of_specs; ++i) {
        if (offset + sizeof(std::uint32_t) + sizeof(std::uint16_t) > attr.size) return false;
        std::uint16_t const size = take_spec(in, to, start + offset);
        offset += size;
        if (size == 0 || offset > attr.size) return false;
    }
    return true;
}

ibv_flow* op_create_flow(ibv_qp* raw, ibv_flow_attr* attr)
{
    static constinit site here{"ibv_create_flow", ENOMEM};
    entry in{here, raw};
    if (int const code = in.fault()) return null(code);
    qp* const to = in.need(the().qps, raw, "QP");
    if (to == nullptr) return null(EFAULT);
    if (!has_all_features(raw->context)) return null(EOPNOTSUPP);
    if (raw->qp_type != IBV_QPT_RAW_PACKET && raw->qp_type != IBV_QPT_UD) return null(EINVAL);
    if (attr->comp_mask != 0 || attr->port != 1 || attr->type > IBV_FLOW_ATTR_SNIFFER) return null(EINVAL);
    if ((attr->flags & ~(unsigned{IBV_FLOW_ATTR_FLAGS_DONT_TRAP} | IBV_FLOW_ATTR_FLAGS_EGRESS)) != 0) return null(EINVAL);
    auto made = std::make_unique<flow>();
    if (!take_specs(in, *made, *attr)) return null(EINVAL);
    made->ibv_flow::context = raw->context;
    made->handle = the().next_handle++;
    made->to = to;
    for (flow_action* each : made->actions) ++each->users;
    for (counters* each : made->counting) ++each->users;
    ++to->flows;
    ++context_of(raw->context).children;
    ibv_flow const* const key = made.get();
    return the().flows.add(key, made.release());
}

int op_destroy_flow(ibv_flow* raw)
{
    static constinit site here{"ibv_destroy_flow", EIO};
    entry in{here, raw};
    if (int const code = in.fault()) return returned(code);
    flow* const old = in.need(the().flows, raw, "flow");
    if (old == nullptr) return returned(EFAULT);
    if (cut_off(raw->context)) return returned(lose(*old, raw->context));
    for (flow_action* each : old->actions) --each->users;
    for (counters* each : old->counting) --each->users;
    --old->to->flows;
    --context_of(raw->context).children;
    the().flows.forget(raw);
    delete old;
    return cleaned();
}

// ---- actions ----------------------------------------------------------------------------------------------------
int check(ibv_flow_action_esp_attr const& attr)
{
    if ((attr.comp_mask & ~std::uint32_t{IBV_FLOW_ACTION_ESP_MASK_ESN}) != 0) return EOPNOTSUPP;
    if (attr.esp_attr == nullptr) return EINVAL;
    bool const lacks_key = attr.keymat_len != 0 && attr.keymat_ptr == nullptr;
    bool const lacks_replay = attr.replay_len != 0 && attr.replay_ptr == nullptr;
    return lacks_key || lacks_replay ? EINVAL : 0;
}

ibv_flow_action* op_create_action(ibv_context* raw, ibv_flow_action_esp_attr* attr)
{
    static constinit site here{"ibv_create_flow_action_esp", ENOMEM};
    entry in{here, raw};
    if (int const code = barred(in, raw)) return null(code);
    if (attr->keymat_len == 0) return null(EINVAL); // it is to encrypt, or decrypt
    if (int const code = check(*attr)) return null(code);
    flow_action* const made = new flow_action;
    made->ibv_flow_action::context = raw;
    ++context_of(raw).children;
    return the().flow_actions.add(static_cast<ibv_flow_action*>(made), made);
}

int op_modify_action(ibv_flow_action* raw, ibv_flow_action_esp_attr* attr)
{
    static constinit site here{"ibv_modify_flow_action_esp", EIO};
    entry in{here, raw};
    if (int const code = in.fault()) return returned(code);
    if (in.need(the().flow_actions, raw, "flow action") == nullptr) return returned(EFAULT);
    return returned(cut_off(raw->context) ? EIO : check(*attr));
}

int op_destroy_action(ibv_flow_action* raw)
{
    static constinit site here{"ibv_destroy_flow_action", EIO};
    entry in{here, raw};
    if (int const code = in.fault()) return returned(code);
    flow_action* const old = in.need(the().flow_actions, raw, "flow action");
    if (old == nullptr) return returned(EFAULT);
    if (cut_off(raw->context)) return returned(lose(*old, raw->context));
    if (old->users != 0) {
        in.misuse("EBUSY: " + std::to_string(old->users) + " flow(s) use the action");
        return returned(EBUSY);
    }
    --context_of(raw->context).children;
    the().flow_actions.forget(raw);
    delete old;
    return cleaned();
}

// ---- counters ---------------------------------------------------------------------------------------------------
ibv_counters* op_create_counters(ibv_context* raw, ibv_counters_init_attr* attr)
{
    static constinit site here{"ibv_create_counters", ENOMEM};
    entry in{here, raw};
    if (int const code = barred(in, raw)) return null(code);
    if (attr->comp_mask != 0) return null(EINVAL);
    counters* const made = new counters;
    made->ibv_counters::context = raw;
    ++context_of(raw).children;
    return the().counter_sets.add(static_cast<ibv_counters*>(made), made);
}

int op_destroy_counters(ibv_counters* raw)
{
    static constinit site here{"ibv_destroy_counters", EIO};
    entry in{here, raw};
    if (int const code = in.fault()) return returned(code);
    counters* const old = in.need(the().counter_sets, raw, "set of counters");
    if (old == nullptr) return returned(EFAULT);
    if (cut_off(raw->context)) return returned(lose(*old, raw->context));
    if (old->users != 0) {
        in.misuse("EBUSY: " + std::to_string(old->users) + " flow(s) use the counters");
        return returned(EBUSY);
    }
    --context_of(raw->context).children;
    the().counter_sets.forget(raw);
    delete old;
    return cleaned();
}

/// The flow may be null: the points then belong to whichever flow names the counters.
int op_attach_counters(ibv_counters* raw, ibv_counter_attach_attr* attr, ibv_flow* to)
{
    static constinit site here{"ibv_attach_counters_point_flow", EIO};
    entry in{here, raw};
    if (int const code = in.fault()) return returned(code);
    counters* const of = in.need(the().counter_sets, raw, "set of counters");
    if (of == nullptr || (to != nullptr && in.need(the().flows, to, "flow") == nullptr)) return returned(EFAULT);
    if (cut_off(raw->context)) return returned(EIO);
    if (attr->comp_mask != 0 || attr->counter_desc > IBV_COUNTER_BYTES) return returned(ENOTSUP);
    if (to == nullptr && of->users != 0) return returned(EINVAL); // bound already
    of->points[attr->index] = attr->counter_desc;
    return 0;
}

int op_read_counters(ibv_counters* raw, std::uint64_t* values, std::uint32_t many, std::uint32_t flags)
{
    static constinit site here{"ibv_read_counters", EIO};
    entry in{here, raw};
    if (int const code = in.fault()) return returned(code);
    counters const* const of = in.need(the().counter_sets, raw, "set of counters");
    if (of == nullptr) return returned(EFAULT);
    if (cut_off(raw->context)) return returned(EIO);
    if (many == 0 || (flags & ~std::uint32_t{IBV_READ_COUNTERS_ATTR_PREFER_CACHED}) != 0) return returned(EINVAL);
    for (std::uint32_t i = 0; i < many; ++i) {
        auto const value = of->values.find(i);
        values[i] = of->points.count(i) != 0 && value != of->values.end() ? value->second : 0;
    }
    return 0;
}

} // namespace

void fill_flow_operations(context& of)
{
    of.ibv_create_flow = op_create_flow;
    of.ibv_destroy_flow = op_destroy_flow;
    of.create_flow_action_esp = op_create_action;
    of.modify_flow_action_esp = op_modify_action;
    of.destroy_flow_action = op_destroy_action;
    of.create_counters = op_create_counters;
    of.destroy_counters = op_destroy_counters;
    of.attach_counters_point_flow = op_attach_counters;
    of.read_counters = op_read_counters;
}

} // namespace fake::model

using namespace fake::model;

namespace fake {

void set_counter(ibv_counters* raw, std::uint32_t index, std::uint64_t value)
{
    visit here;
    if (model::counters* const of = the().counter_sets.find(raw)) of->values[index] = value;
}

} // namespace fake
