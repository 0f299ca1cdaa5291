// SPDX-License-Identifier: MIT
//
// The two devices, their contexts, what can be asked of them, and the names of enumerators.
#include "world.hpp"

#include <fake/v60.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace fake::model {

namespace {

// ---- tables of operations ---------------------------------------------------------------------------------------
int query_port(ibv_context* raw, std::uint8_t port, ibv_port_attr* attr, std::size_t size);
int query_device_ex(ibv_context* raw, ibv_query_device_ex_input const* input, ibv_device_attr_ex* attr, std::size_t size);
int query_rt_values(ibv_context* raw, ibv_values_ex* values);

/// What ibv_import_device is to be told: a file of its own, which a copy of the descriptor still names.
void set_descriptor(ibv_context& of, bool wanted)
{
    if (wanted && of.cmd_fd < 0) of.cmd_fd = ::memfd_create(of.device->dev_name, MFD_CLOEXEC);
    if (wanted || of.cmd_fd < 0) return;
    ::close(of.cmd_fd);
    of.cmd_fd = -1;
}

context* new_context(device& of)
{
    auto made = std::make_unique<context>();
    if (!made->async.bell.open()) return nullptr;
    ibv_context& raw = *made->raw();
    raw.device = &of.raw;
    raw.cmd_fd = -1;
    set_descriptor(raw, the().all_features && !of.iwarp);
    raw.async_fd = made->async.bell.fd();
    raw.num_comp_vectors = 2;
    raw.abi_compat = reinterpret_cast<void*>(std::numeric_limits<std::uintptr_t>::max());
    pthread_mutex_init(&raw.mutex, nullptr);
    made->sz = sizeof(verbs_context);
    made->query_port = query_port;
    made->query_device_ex = query_device_ex;
    made->query_rt_values = query_rt_values;
    fill_operations(*made, of.iwarp);
    made->of = &of;
    the().contexts.add(&raw, made.get());
    return made.release();
}

void set_up(device& made, char const* name, bool iwarp, std::uint32_t scope, char const* net4, char const* net6, char const* link)
{
    made.raw.node_type = iwarp ? IBV_NODE_RNIC : IBV_NODE_CA;
    made.raw.transport_type = iwarp ? IBV_TRANSPORT_IWARP : IBV_TRANSPORT_IB;
    std::snprintf(made.raw.name, sizeof made.raw.name, "%s", name);
    std::snprintf(made.raw.dev_name, sizeof made.raw.dev_name, "uverbs%d", iwarp ? 1 : 0);
    std::snprintf(made.raw.dev_path, sizeof made.raw.dev_path, "/sys/class/infiniband_verbs/uverbs%d", iwarp ? 1 : 0);
    std::snprintf(made.raw.ibdev_path, sizeof made.raw.ibdev_path, "/sys/class/infiniband/%s", name);
    made.iwarp = iwarp;
    made.scope = scope;
    made.hosts.push_back(address::parse(link, 0, scope));
    for (char const* last : {"1", "2"}) {
        made.hosts.push_back(address::parse((std::string{net4} + last).c_str()));
        made.hosts.push_back(address::parse((std::string{net6} + last).c_str()));
    }
    made.shared = new_context(made);
    made.shared->borrowed = true;
}

} // namespace

void world::prepare()
{
    if (ready) return;
    ready = true;
    set_up(devices[0], "rxe0", false, rxe_scope, "10.77.1.", "fd77:1::", "fe80::77:1");
    set_up(devices[1], "siw0", true, siw_scope, "10.77.2.", "fd77:2::", "fe80::77:2");
}

context& context_of(ibv_context* raw)
{
    auto* const whole = reinterpret_cast<std::byte*>(raw) - offsetof(verbs_context, context);
    return static_cast<context&>(*reinterpret_cast<verbs_context*>(whole));
}

device* find_device(ibv_device const* raw)
{
    for (device& each : the().devices)
        if (&each.raw == raw) return &each;
    return nullptr;
}

void destroy_context(context* old)
{
    the().contexts.forget(old->raw());
    set_descriptor(*old->raw(), false);
    pthread_mutex_destroy(&old->raw()->mutex);
    delete old;
}

// ---- removal ----------------------------------------------------------------------------------------------------
bool has_all_features(ibv_context* raw) { return the().all_features && !context_of(raw).of->iwarp; }
int barred(entry const& in, ibv_context* raw)
{
    if (int const code = in.fault()) return code;
    if (in.need(the().contexts, raw, "context") == nullptr) return EFAULT;
    if (!has_all_features(raw)) return EOPNOTSUPP;
    return cut_off(raw) ? EIO : 0;
}

bool cut_off(ibv_context* raw) { return the().disassociates && context_of(raw).of->removed; }

int lose(losable& object, ibv_context* raw)
{
    if (!object.lost) ++context_of(raw).lost;
    object.lost = true;
    return EIO;
}

void close_removed(device& which, entry const* in)
{
    if (!which.noticed || which.closed || which.references != 0) return;
    drop_defaults(which, in);
    context const& old = *which.shared;
    if (in != nullptr && old.children > old.lost)
        in->misuse(std::to_string(old.children - old.lost) + " object(s) still on the context of the removed device, which is closed now");
    the().contexts.forget(which.shared->raw()); // its memory stays until reset(): what is left on it points there
    which.closed = true;
}

void bring_back(device& removed)
{
    if (removed.closed) {
        destroy_context(removed.shared);
        removed.shared = new_context(removed);
        removed.shared->borrowed = true;
    }
    set_descriptor(*removed.shared->raw(), false);
    fill_xrc_operations(*removed.shared);
    removed.shared->lost = 0;
    removed.removed = removed.noticed = removed.closed = false;
}

namespace {

device* find_device(std::string_view name)
{
    for (device& each : the().devices)
        if (name == each.raw.name) return &each;
    return nullptr;
}

std::vector<cm*> by_age()
{
    std::vector<cm*> all;
    for (auto const& [raw, id] : the().ids) all.push_back(id);
    std::sort(all.begin(), all.end(), [](cm const* a, cm const* b) { return a->serial < b->serial; });
    return all;
}

/// What was under way comes to nothing.
void forget_consequences(device const& of)
{
    auto const lost = [&of](pending const& item) {
        return item.target->kernel->at == &of || (item.child != nullptr && item.child->at == &of);
    };
    auto& held = the().held;
    for (pending& item : held)
        if (lost(item) && item.child != nullptr) lose_device(*item.child);
    held.erase(std::remove_if(held.begin(), held.end(), lost), held.end());
}

void remove(device& which)
{
    which.removed = true;
    forget_consequences(which);
    for (cm* id : by_age())
        if (id->kernel->at == &which) lose_device(*id->kernel);
    for (auto const& [raw, each] : the().channels)
        for (pending& item : each->events.items)
            if (item.child != nullptr && item.child->at == &which) lose_device(*item.child);
    if (!the().disassociates) return;
    ibv_async_event fatal{};
    fatal.event_type = IBV_EVENT_DEVICE_FATAL;
    for (auto const& [raw, each] : the().contexts)
        if (each->of == &which) raise(*each, fatal, nullptr);
}

/// rdma_get_devices compares the kernel's list with its own.
void notice_removals(entry const& in)
{
    for (device& each : the().devices) {
        each.noticed = each.removed;
        close_removed(each, &in);
    }
}

std::size_t present()
{
    auto const& all = the().devices;
    return static_cast<std::size_t>(std::count_if(all.begin(), all.end(), [](device const& each) { return !each.removed; }));
}

/// The GUID of a device, in network order.
__be64 guid(device const& of)
{
    std::array<std::uint8_t, 8> const parts{0x02, 0x00, 0x00, 0xff, 0xfe, 0x00, 0x00, static_cast<std::uint8_t>(of.iwarp ? 2 : 1)};
    __be64 made = 0;
    std::memcpy(&made, parts.data(), sizeof made);
    return made;
}

ibv_port_attr port_limits(device const& of)
{
    ibv_port_attr attr{};
    attr.state = IBV_PORT_ACTIVE;
    attr.max_mtu = IBV_MTU_4096;
    attr.active_mtu = IBV_MTU_1024;
    attr.gid_tbl_len = of.iwarp ? 1 : 1024;
    attr.port_cap_flags = of.iwarp ? IBV_PORT_CM_SUP | IBV_PORT_DEVICE_MGMT_SUP : IBV_PORT_CM_SUP;
    attr.max_msg_sz = of.iwarp ? 0xffffffffU : 0x800000U;
    attr.pkey_tbl_len = 1;
    attr.active_width = 1;
    attr.active_speed = 1;
    attr.phys_state = 5;
    attr.link_layer = IBV_LINK_LAYER_ETHERNET;
    return attr;
}

} // namespace

ibv_device_attr limits(device const& of)
{
    ibv_device_attr attr{};
    std::snprintf(attr.fw_ver, sizeof attr.fw_ver, "fake");
    attr.node_guid = attr.sys_image_guid = guid(of);
    attr.max_mr_size = std::numeric_limits<std::uint64_t>::max();
    attr.page_size_cap = 0xfffff000U;
    attr.max_qp = 65536;
    attr.max_qp_wr = of.iwarp ? 32768 : 16384;
    attr.device_cap_flags = of.iwarp ? IBV_DEVICE_MEM_MGT_EXTENSIONS : IBV_DEVICE_RC_RNR_NAK_GEN | IBV_DEVICE_MEM_WINDOW | IBV_DEVICE_SRQ_RESIZE;
    if (the().knows_xrc && !of.iwarp) attr.device_cap_flags |= IBV_DEVICE_XRC;
    attr.max_sge = of.iwarp ? 6 : 32;
    attr.max_sge_rd = of.iwarp ? 1 : 32;
    attr.max_cq = 1 << 20;
    attr.max_cqe = of.iwarp ? 1 << 20 : 32767;
    attr.max_mr = 1 << 19;
    attr.max_pd = 1 << 15;
    attr.max_qp_rd_atom = 128;
    attr.max_res_rd_atom = 258048;
    attr.max_qp_init_rd_atom = 128;
    attr.atomic_cap = of.iwarp ? IBV_ATOMIC_NONE : IBV_ATOMIC_HCA;
    attr.max_mw = of.iwarp ? 0 : 1 << 19;
    attr.max_mcast_grp = of.iwarp ? 0 : 8192;
    attr.max_mcast_qp_attach = of.iwarp ? 0 : 56;
    attr.max_total_mcast_qp_attach = of.iwarp ? 0 : 458752;
    attr.max_ah = of.iwarp ? 0 : 32767;
    attr.max_srq = 32768;
    attr.max_srq_wr = 32768;
    attr.max_srq_sge = of.iwarp ? 6 : 27;
    attr.max_pkeys = of.iwarp ? 1 : 64;
    attr.phys_port_cnt = 1;
    return attr;
}

namespace {

int query_port(ibv_context* raw, std::uint8_t port, ibv_port_attr* attr, std::size_t size)
{
    static constinit site here{"ibv_query_port", EIO};
    entry in{here, raw};
    if (int const code = in.fault()) return returned(code);
    context const* const of = in.need(the().contexts, raw, "context");
    if (of == nullptr) return returned(EBADF);
    if (port != 1) return returned(EINVAL);
    ibv_port_attr const all = port_limits(*of->of);
    std::memcpy(attr, &all, std::min(size, sizeof all));
    return 0;
}

/// What set_all_features adds; each field has a value of its own.
void add_features(ibv_device_attr_ex& to)
{
    constexpr std::uint32_t all_odp = IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV | IBV_ODP_SUPPORT_WRITE | IBV_ODP_SUPPORT_READ | IBV_ODP_SUPPORT_ATOMIC;
    constexpr std::uint32_t raw_packet = 1U << IBV_QPT_RAW_PACKET, datagram = 1U << IBV_QPT_UD;
    constexpr std::uint64_t atomic_write = std::uint64_t{1} << 40;
    to.odp_caps = {IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT, {all_odp | IBV_ODP_SUPPORT_SRQ_RECV, all_odp & ~unsigned{IBV_ODP_SUPPORT_ATOMIC}, IBV_ODP_SUPPORT_SEND}};
    to.xrc_odp_caps = all_odp;
    to.completion_timestamp_mask = std::numeric_limits<std::uint64_t>::max();
    to.hca_core_clock = 1'000'000; // kHz: a stamp is in nanoseconds
    to.device_cap_flags_ex |= IBV_DEVICE_RAW_SCATTER_FCS | IBV_DEVICE_PCI_WRITE_END_PADDING | atomic_write;
    to.tso_caps = {0x40000, raw_packet | datagram};
    to.rss_caps = {raw_packet, 64, 128, IBV_RX_HASH_SRC_IPV4 | IBV_RX_HASH_DST_IPV4 | IBV_RX_HASH_SRC_PORT_UDP | IBV_RX_HASH_DST_PORT_UDP,
                   IBV_RX_HASH_FUNC_TOEPLITZ};
    to.max_wq_type_rq = 4096;
    to.packet_pacing_caps = {1, 100'000'000, raw_packet | datagram};
    to.raw_packet_caps = IBV_RAW_PACKET_CAP_CVLAN_STRIPPING | IBV_RAW_PACKET_CAP_SCATTER_FCS | IBV_RAW_PACKET_CAP_IP_CSUM | IBV_RAW_PACKET_CAP_DELAY_DROP;
    to.tm_caps = {64, 127, IBV_TM_CAP_RC, 8192, 16};
    to.cq_mod_caps = {0x7fff, 0x0fff};
    to.max_dm_size = 0x20000;
    to.pci_atomic_caps = {IBV_PCI_ATOMIC_OPERATION_8_BYTE_SIZE_SUP, IBV_PCI_ATOMIC_OPERATION_4_BYTE_SIZE_SUP,
                          IBV_PCI_ATOMIC_OPERATION_4_BYTE_SIZE_SUP | IBV_PCI_ATOMIC_OPERATION_8_BYTE_SIZE_SUP};
}

int query_device_ex(ibv_context* raw, ibv_query_device_ex_input const*, ibv_device_attr_ex* attr, std::size_t size)
{
    static constinit site here{"ibv_query_device_ex", EIO};
    entry in{here, raw};
    if (int const code = in.fault()) return returned(code);
    context const* const of = in.need(the().contexts, raw, "context");
    if (of == nullptr) return returned(EBADF);
    ibv_device_attr_ex all{};
    all.orig_attr = limits(*of->of);
    all.device_cap_flags_ex = all.orig_attr.device_cap_flags;
    auto const count_ports = [](auto& known) {
        if constexpr (requires { known.phys_port_cnt_ex; }) known.phys_port_cnt_ex = 1;
    };
    count_ports(all);
    if (has_all_features(raw)) add_features(all);
    std::memcpy(attr, &all, std::min(size, sizeof all));
    return 0;
}

int query_rt_values(ibv_context* raw, ibv_values_ex* values)
{
    static constinit site here{"ibv_query_rt_values_ex", EIO};
    entry in{here, raw};
    if (int const code = barred(in, raw)) return returned(code);
    if ((values->comp_mask & IBV_VALUES_MASK_RAW_CLOCK) == 0) return returned(EINVAL);
    auto const now = std::chrono::steady_clock::now().time_since_epoch(); // ticks, all of them in tv_nsec
    values->raw_clock = {0, static_cast<long>(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count())};
    values->comp_mask = IBV_VALUES_MASK_RAW_CLOCK;
    return 0;
}

} // namespace

} // namespace fake::model

using namespace fake::model;

namespace fake {

void set_all_features(bool all)
{
    visit here;
    the().all_features = the().knows_xrc = all;
    for (auto const& [raw, each] : the().contexts) {
        fill_xrc_operations(*each);
        set_descriptor(*each->raw(), all && !each->of->iwarp);
    }
}

ibv_context* rxe_context() { visit here; return the().devices[0].shared->raw(); }
ibv_context* siw_context() { visit here; return the().devices[1].shared->raw(); }

bool remove_device(std::string_view name)
{
    visit here;
    device* const which = find_device(name);
    if (which == nullptr || which->removed) return false;
    remove(*which);
    return true;
}

bool device_gone(std::string_view name)
{
    visit here;
    device const* const which = find_device(name);
    return which != nullptr && which->closed;
}
} // namespace fake

// ---- device lists -----------------------------------------------------------------------------------------------
ibv_device** ibv_get_device_list(int* many)
{
    static constinit site here{"ibv_get_device_list", ENOMEM};
    entry in{here, many};
    if (many != nullptr) *many = 0;
    if (int const code = in.fault()) return null(code);
    if (!the().devices_present) return null(ENOSYS);
    auto** const list = static_cast<ibv_device**>(std::calloc(the().devices.size() + 1, sizeof(ibv_device*)));
    if (list == nullptr) return null(ENOMEM);
    std::size_t i = 0;
    for (device& each : the().devices)
        if (!each.removed) list[i++] = &each.raw;
    if (many != nullptr) *many = static_cast<int>(i);
    the().device_lists.insert(list);
    return list;
}

void ibv_free_device_list(ibv_device** list)
{
    static constinit site here{"ibv_free_device_list", 0};
    entry in{here, list};
    cleaned();
    if (list == nullptr) return in.would_crash("null list");
    if (the().device_lists.erase(list) == 0) return in.misuse("a list that is not, or no longer, ours");
    std::free(list);
}

ibv_context** rdma_get_devices(int* many)
{
    static constinit site here{"rdma_get_devices", ENOMEM};
    entry in{here, many};
    if (many != nullptr) *many = 0;
    if (int const code = in.fault()) return null(code);
    if (!the().devices_present || present() == 0) return null(ENODEV); // a removal of the last device is not even noticed
    notice_removals(in);
    auto** const list = static_cast<ibv_context**>(std::calloc(the().devices.size() + 1, sizeof(ibv_context*)));
    if (list == nullptr) return null(ENOMEM);
    std::size_t i = 0;
    for (device& each : the().devices) {
        if (each.removed) continue;
        list[i++] = each.shared->raw();
        ++each.references;
    }
    if (many != nullptr) *many = static_cast<int>(i);
    the().device_lists.insert(list);
    return list;
}

void rdma_free_devices(ibv_context** list)
{
    static constinit site here{"rdma_free_devices", 0};
    entry in{here, list};
    cleaned();
    if (list == nullptr) return in.would_crash("null list");
    if (the().device_lists.erase(list) == 0) return in.misuse("a list that is not, or no longer, ours");
    for (device& each : the().devices) // the default PD stays, as in librdmacm: only an id's end frees it
        for (ibv_context** item = list; *item != nullptr; ++item)
            if (*item == each.shared->raw() && each.references > 0) {
                --each.references;
                close_removed(each, &in);
            }
    std::free(list);
}

char const* ibv_get_device_name(ibv_device* raw)
{
    static constinit site here{"ibv_get_device_name", 0};
    entry in{here, raw};
    return raw->name;
}

int ibv_get_device_index(ibv_device* raw)
{
    static constinit site here{"ibv_get_device_index", 0};
    entry in{here, raw};
    device const* const of = find_device(raw);
    return of == nullptr ? -1 : of->iwarp ? 1 : 0;
}

__be64 ibv_get_device_guid(ibv_device* raw)
{
    static constinit site here{"ibv_get_device_guid", 0};
    entry in{here, raw};
    device const* const of = find_device(raw);
    return of == nullptr ? 0 : guid(*of);
}

// ---- contexts ---------------------------------------------------------------------------------------------------
ibv_context* ibv_open_device(ibv_device* raw)
{
    static constinit site here{"ibv_open_device", ENOMEM};
    entry in{here, raw};
    if (int const code = in.fault()) return null(code);
    device* const of = find_device(raw);
    if (of == nullptr) {
        in.would_crash("no such device");
        return null(ENODEV);
    }
    if (of->removed) return null(ENODEV);
    context* const made = new_context(*of);
    return made == nullptr ? nullptr : made->raw();
}

int ibv_close_device(ibv_context* raw)
{
    static constinit site here{"ibv_close_device", EIO};
    entry in{here, raw};
    if (int const code = in.fault()) return minus_one(code);
    context* const old = in.need(the().contexts, raw, "context");
    if (old == nullptr) return minus_one(EBADF);
    if (old->borrowed) {
        in.misuse("the context belongs to librdmacm");
        return cleaned();
    }
    if (old->children > old->lost) in.misuse(std::to_string(old->children - old->lost) + " object(s) still on the context");
    if (old->children == 0) {
        destroy_context(old);
    } else {
        the().contexts.forget(raw);
        the().closed_contexts.push_back(old);
    }
    return cleaned();
}

/// The descriptor may have been duplicated on its way.
ibv_context* ibv_import_device(int fd)
{
    static constinit site here{"ibv_import_device", ENOMEM};
    entry in{here, nullptr};
    if (int const code = in.fault()) return null(code);
    if (!the().all_features) return null(EOPNOTSUPP);
    struct stat wanted{}, each_one{};
    if (::fstat(fd, &wanted) != 0) return null(EBADF);
    for (auto const& [raw, each] : the().contexts) {
        if (::fstat(each->raw()->cmd_fd, &each_one) != 0 || wanted.st_ino != each_one.st_ino || wanted.st_dev != each_one.st_dev) continue;
        context* const made = new_context(*each->of);
        return made == nullptr ? nullptr : made->raw();
    }
    return null(EINVAL);
}

int ibv_query_device(ibv_context* raw, ibv_device_attr* attr)
{
    static constinit site here{"ibv_query_device", EIO};
    entry in{here, raw};
    if (int const code = in.fault()) return returned(code);
    context const* const of = in.need(the().contexts, raw, "context");
    if (of == nullptr) return returned(EBADF);
    *attr = limits(*of->of);
    return 0;
}

/// What programs reach that have no extended context; the layout is the old, shorter one.
int ibv_query_port(ibv_context* raw, std::uint8_t port, _compat_ibv_port_attr* attr)
{
    return query_port(raw, port, reinterpret_cast<ibv_port_attr*>(attr), offsetof(ibv_port_attr, port_cap_flags2));
}

int ibv_query_gid(ibv_context* raw, std::uint8_t port, int index, ibv_gid* gid)
{
    static constinit site here{"ibv_query_gid", EIO};
    entry in{here, raw};
    if (int const code = in.fault()) return minus_one(code);
    context const* const of = in.need(the().contexts, raw, "context");
    if (of == nullptr) return minus_one(EBADF);
    auto const table = of->of->gids();
    if (port != 1 || index < 0 || index >= (of->of->iwarp ? 1 : 1024)) return minus_one(EINVAL);
    auto const at = static_cast<std::size_t>(index);
    *gid = at < table.size() ? table[at] : ibv_gid{};
    return 0;
}

namespace {

ibv_gid_entry gid_entry(device const& of, std::size_t index)
{
    ibv_gid_entry made{};
    made.gid = of.gids()[index];
    made.gid_index = static_cast<std::uint32_t>(index);
    made.port_num = 1;
    made.gid_type = of.iwarp ? IBV_GID_TYPE_IB : IBV_GID_TYPE_ROCE_V2;
    made.ndev_ifindex = of.scope;
    return made;
}

} // namespace

int _ibv_query_gid_ex(ibv_context* raw, std::uint32_t port, std::uint32_t index, ibv_gid_entry* out, std::uint32_t flags, std::size_t size)
{
    static constinit site here{"ibv_query_gid_ex", EIO};
    entry in{here, raw};
    if (int const code = in.fault()) return returned(code);
    context const* const of = in.need(the().contexts, raw, "context");
    if (of == nullptr) return returned(EBADF);
    if (flags != 0 || port != 1) return returned(EINVAL);
    if (index >= of->of->gids().size()) return returned(ENODATA);
    ibv_gid_entry const found = gid_entry(*of->of, index);
    std::memcpy(out, &found, std::min(size, sizeof found));
    return 0;
}

ssize_t _ibv_query_gid_table(ibv_context* raw, ibv_gid_entry* out, std::size_t room, std::uint32_t flags, std::size_t size)
{
    static constinit site here{"ibv_query_gid_table", EIO};
    entry in{here, raw};
    if (int const code = in.fault()) return -returned(code);
    context const* const of = in.need(the().contexts, raw, "context");
    if (of == nullptr) return -returned(EBADF);
    if (flags != 0) return -returned(EOPNOTSUPP);
    std::size_t const many = of->of->gids().size();
    if (many > room) return -returned(EINVAL);
    auto* place = reinterpret_cast<std::byte*>(out);
    for (std::size_t i = 0; i < many; ++i, place += size) {
        ibv_gid_entry const found = gid_entry(*of->of, i);
        std::memcpy(place, &found, std::min(size, sizeof found));
    }
    return static_cast<ssize_t>(many);
}

int ibv_query_pkey(ibv_context* raw, std::uint8_t port, int index, __be16* pkey)
{
    static constinit site here{"ibv_query_pkey", EIO};
    entry in{here, raw};
    if (int const code = in.fault()) return minus_one(code);
    if (in.need(the().contexts, raw, "context") == nullptr) return minus_one(EBADF);
    if (port != 1 || index != 0) return minus_one(EINVAL);
    *pkey = 0xffff;
    return 0;
}

int ibv_get_pkey_index(ibv_context* raw, std::uint8_t port, __be16 pkey)
{
    static constinit site here{"ibv_get_pkey_index", EIO};
    entry in{here, raw};
    if (int const code = in.fault()) return minus_one(code);
    if (in.need(the().contexts, raw, "context") == nullptr) return minus_one(EBADF);
    return port == 1 && pkey == 0xffff ? 0 : minus_one(EINVAL);
}

int ibv_fork_init()
{
    static constinit site here{"ibv_fork_init", EIO};
    entry in{here, nullptr};
    if (int const code = in.fault()) return returned(code);
    if (the().fork != IBV_FORK_DISABLED) return 0; // or the kernel copies on fork
    if (the().mrs.size() != 0) return returned(EINVAL); // too late: memory is registered
    the().fork = IBV_FORK_ENABLED;
    return 0;
}

ibv_fork_status ibv_is_fork_initialized()
{
    static constinit site here{"ibv_is_fork_initialized", 0};
    entry in{here, nullptr};
    return the().fork;
}

int ibv_resolve_eth_l2_from_gid(ibv_context* raw, ibv_ah_attr*, std::uint8_t mac[ETHERNET_LL_SIZE], std::uint16_t* vid)
{
    static constinit site here{"ibv_resolve_eth_l2_from_gid", EIO};
    entry in{here, raw};
    if (int const code = in.fault()) return minus_one(code);
    std::memset(mac, 0, ETHERNET_LL_SIZE);
    if (vid != nullptr) *vid = 0xffff;
    return 0;
}

// ---- rates ------------------------------------------------------------------------------------------------------
namespace {

struct rate { ibv_rate code; int multiple, mbps; };
constexpr rate rates[] = {
    {IBV_RATE_2_5_GBPS, 1, 2500}, {IBV_RATE_5_GBPS, 2, 5000}, {IBV_RATE_10_GBPS, 4, 10000}, {IBV_RATE_20_GBPS, 8, 20000},
    {IBV_RATE_30_GBPS, 12, 30000}, {IBV_RATE_40_GBPS, 16, 40000}, {IBV_RATE_60_GBPS, 24, 60000}, {IBV_RATE_80_GBPS, 32, 80000},
    {IBV_RATE_120_GBPS, 48, 120000}, {IBV_RATE_14_GBPS, -1, 14062}, {IBV_RATE_56_GBPS, -1, 56250}, {IBV_RATE_112_GBPS, -1, 112500},
    {IBV_RATE_168_GBPS, -1, 168750}, {IBV_RATE_25_GBPS, -1, 25781}, {IBV_RATE_100_GBPS, -1, 103125}, {IBV_RATE_200_GBPS, -1, 206250},
    {IBV_RATE_300_GBPS, -1, 309375}, {IBV_RATE_28_GBPS, -1, 28125}, {IBV_RATE_50_GBPS, -1, 53125}, {IBV_RATE_400_GBPS, -1, 425000},
    {IBV_RATE_600_GBPS, -1, 637500}, {IBV_RATE_800_GBPS, -1, 850000}, {IBV_RATE_1200_GBPS, -1, 1275000},
};

} // namespace

int ibv_rate_to_mult(ibv_rate wanted)
{
    static constinit site here{"ibv_rate_to_mult", 0};
    entry in{here, nullptr};
    for (rate const& each : rates)
        if (each.code == wanted) return each.multiple;
    return -1;
}

ibv_rate mult_to_ibv_rate(int multiple)
{
    static constinit site here{"mult_to_ibv_rate", 0};
    entry in{here, nullptr};
    for (rate const& each : rates)
        if (each.multiple == multiple && multiple > 0) return each.code;
    return IBV_RATE_MAX;
}

int ibv_rate_to_mbps(ibv_rate wanted)
{
    static constinit site here{"ibv_rate_to_mbps", 0};
    entry in{here, nullptr};
    for (rate const& each : rates)
        if (each.code == wanted) return each.mbps;
    return -1;
}

ibv_rate mbps_to_ibv_rate(int mbps)
{
    static constinit site here{"mbps_to_ibv_rate", 0};
    entry in{here, nullptr};
    for (rate const& each : rates)
        if (each.mbps == mbps) return each.code;
    return IBV_RATE_MAX;
}

// ---- names ------------------------------------------------------------------------------------------------------
namespace {

template <std::size_t N>
char const* pick(char const* const (&names)[N], int index, char const* other)
{
    return index >= 0 && static_cast<std::size_t>(index) < N ? names[index] : other;
}

} // namespace

char const* ibv_wc_status_str(ibv_wc_status status)
{
    static constinit site here{"ibv_wc_status_str", 0};
    entry in{here, nullptr};
    static constexpr char const* names[] = {
        "success", "local length error", "local QP operation error", "local EE context operation error", "local protection error",
        "Work Request Flushed Error", "memory management operation error", "bad response error", "local access error",
        "remote invalid request error", "remote access error", "remote operation error", "transport retry counter exceeded",
        "RNR retry counter exceeded", "local RDD violation error", "remote invalid RD request", "aborted error",
        "invalid EE context number", "invalid EE context state", "fatal error", "response timeout error", "general error", "TM error",
        "TM software rendezvous"};
    return pick(names, status, "unknown");
}

char const* ibv_event_type_str(ibv_event_type type)
{
    static constinit site here{"ibv_event_type_str", 0};
    entry in{here, nullptr};
    static constexpr char const* names[] = {
        "CQ error", "local work queue catastrophic error", "invalid request local work queue error",
        "local access violation work queue error", "communication established", "send queue drained", "path migrated",
        "path migration request error", "local catastrophic error", "port active", "port error", "LID change", "P_Key change",
        "SM change", "SRQ catastrophic error", "SRQ limit reached", "last WQE reached", "client reregistration", "GID table change",
        "WQ fatal"};
    return pick(names, type, "unknown");
}

char const* ibv_node_type_str(ibv_node_type type)
{
    static constinit site here{"ibv_node_type_str", 0};
    entry in{here, nullptr};
    static constexpr char const* names[] = {"unknown", "InfiniBand channel adapter", "InfiniBand switch", "InfiniBand router",
                                            "iWARP NIC", "usNIC", "usNIC UDP", "unspecified"};
    return pick(names, type, "unknown");
}

char const* ibv_port_state_str(ibv_port_state state)
{
    static constinit site here{"ibv_port_state_str", 0};
    entry in{here, nullptr};
    static constexpr char const* names[] = {"no state change (NOP)", "down", "init", "armed", "active", "active defer"};
    return pick(names, state, "invalid state");
}

char const* rdma_event_str(rdma_cm_event_type type)
{
    static constinit site here{"rdma_event_str", 0};
    entry in{here, nullptr};
    static constexpr char const* names[] = {
        "RDMA_CM_EVENT_ADDR_RESOLVED", "RDMA_CM_EVENT_ADDR_ERROR", "RDMA_CM_EVENT_ROUTE_RESOLVED", "RDMA_CM_EVENT_ROUTE_ERROR",
        "RDMA_CM_EVENT_CONNECT_REQUEST", "RDMA_CM_EVENT_CONNECT_RESPONSE", "RDMA_CM_EVENT_CONNECT_ERROR", "RDMA_CM_EVENT_UNREACHABLE",
        "RDMA_CM_EVENT_REJECTED", "RDMA_CM_EVENT_ESTABLISHED", "RDMA_CM_EVENT_DISCONNECTED", "RDMA_CM_EVENT_DEVICE_REMOVAL",
        "RDMA_CM_EVENT_MULTICAST_JOIN", "RDMA_CM_EVENT_MULTICAST_ERROR", "RDMA_CM_EVENT_ADDR_CHANGE", "RDMA_CM_EVENT_TIMEWAIT_EXIT"};
    int number = 0;
    std::memcpy(&number, &type, sizeof type);
    if (the().release >= 60 && number == fake::v60::addrinfo_resolved) return "RDMA_CM_EVENT_ADDRINFO_RESOLVED";
    if (the().release >= 60 && number == fake::v60::addrinfo_error) return "RDMA_CM_EVENT_ADDRINFO_ERROR";
    return pick(names, number, "UNKNOWN EVENT");
}
