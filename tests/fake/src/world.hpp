// SPDX-License-Identifier: MIT
//
// The world behind the two libraries: devices, the kernel's halves of ids, queues of events, and what is remembered of it all.
// Everything here is guarded by one mutex, which an `entry` holds for as long as a C function runs (and lets go while it waits).
#pragma once

#include <fake/fake.hpp>

// Function-like macros of <infiniband/verbs.h> that stand in front of the functions defined here.
#undef ibv_reg_mr
#undef ibv_reg_mr_iova
#undef ibv_query_port
#undef ibv_get_device_list

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include <sys/socket.h>

namespace fake::model {

// ---- Small tools ------------------------------------------------------------------------------------------------
/// The three ways in which the C libraries report an error, and what a clean-up leaves in errno when all went well.
inline int minus_one(int code) noexcept { errno = code; return -1; }
inline int returned(int code) noexcept { if (code != 0) errno = decoy; return code; }
inline std::nullptr_t null(int code) noexcept { errno = code; return nullptr; }
inline int cleaned() noexcept { errno = EUCLEAN; return 0; }

using bytes = std::vector<std::uint8_t>;

/// A descriptor that poll() finds readable exactly while something is queued.
class doorbell {
public:
    doorbell() = default;
    doorbell(doorbell const&) = delete;
    doorbell& operator=(doorbell const&) = delete;
    ~doorbell();

    bool open();              ///< false: errno says why
    void set(bool ringing) noexcept;
    int fd() const noexcept { return fd_; }

private:
    int fd_ = -1;
    bool ringing_ = false;
};

/// A queue with a descriptor.
template <class T>
struct mailbox {
    doorbell bell;
    std::deque<T> items;

    void push(T item) { items.push_back(std::move(item)); bell.set(true); }
    T pop()
    {
        T first = std::move(items.front());
        items.pop_front();
        bell.set(!items.empty());
        return first;
    }
    /// Takes out what `wanted` picks, in order.
    template <class Wanted>
    std::deque<T> remove(Wanted wanted)
    {
        std::deque<T> kept, removed;
        for (T& item : items) (wanted(item) ? removed : kept).push_back(std::move(item));
        items = std::move(kept);
        bell.set(!items.empty());
        return removed;
    }
};

/// The live objects of one kind, found by the address that the program knows them by. Asking never touches the object.
template <class T>
class registry {
public:
    T* find(void const* raw) const
    {
        auto const found = live_.find(raw);
        return found == live_.end() ? nullptr : found->second;
    }
    template <class Raw>
    T* add(Raw const* raw, T* object) { live_[raw] = object; return object; }
    void forget(void const* raw) { live_.erase(raw); }
    std::size_t size() const noexcept { return live_.size(); }
    auto begin() const noexcept { return live_.begin(); }
    auto end() const noexcept { return live_.end(); }
    void clear() noexcept { live_.clear(); }

private:
    std::unordered_map<void const*, T*> live_;
};

/// Memory of channels, ids, QPs and CQs: malloc's, or from a last-in first-out pool (set_reuse_addresses).
struct pooled {
    static void* operator new(std::size_t size);
    static void operator delete(void* memory, std::size_t size) noexcept;
};

// ---- Addresses and devices --------------------------------------------------------------------------------------
class address {
public:
    address() = default;
    explicit address(sockaddr const* from); ///< Copies as many bytes as its family has; any other family leaves it empty.
    static address parse(char const* host, std::uint16_t port = 0, std::uint32_t scope = 0);

    sa_family_t family() const noexcept { return storage_.ss_family; }
    bool empty() const noexcept { return family() == AF_UNSPEC; }
    socklen_t size() const noexcept;
    std::uint16_t port() const noexcept;
    void port(std::uint16_t host_order) noexcept;
    std::uint32_t scope() const noexcept;
    bool any() const noexcept;
    bool loopback() const noexcept;
    bool link_local() const noexcept;
    bool multicast() const noexcept;
    bool same_host(address const& other) const noexcept;
    ibv_gid gid() const noexcept;
    std::string text() const;
    sockaddr const* raw() const noexcept { return &view_; }
    void store(sockaddr_storage& to) const noexcept { to = storage_; }

private:
    union {
        sockaddr_storage storage_{};
        sockaddr view_;
        sockaddr_in v4_;
        sockaddr_in6 v6_;
    };
};

struct pd;
struct xrcd;
struct context;

struct device {
    ibv_device raw{};
    bool iwarp = false;
    std::uint32_t scope = 0;
    std::vector<address> hosts;
    context* shared = nullptr; ///< librdmacm's own context, for the life of the process
    unsigned references = 0;   ///< ids bound to it and lists of rdma_get_devices
    bool removed = false;      ///< the kernel has none such any more
    bool noticed = false;      ///< librdmacm knows that
    bool closed = false;       ///< and has closed its context
    pd* default_pd = nullptr;
    xrcd* default_xrcd = nullptr;

    bool has(address const& host) const;    ///< one of its own addresses
    bool reaches(address const& host) const; ///< an address of its subnet
    std::vector<ibv_gid> gids() const;
};

struct async_item {
    ibv_async_event event;
    void const* object; ///< the CQ, QP or SRQ that it is charged to; null for the device's own
};

struct context : verbs_context {
    device* of = nullptr;
    bool borrowed = false; ///< librdmacm's: nobody else may close it
    std::size_t children = 0, lost = 0;
    mailbox<async_item> async;
    ibv_context* raw() noexcept { return &this->verbs_context::context; }
};

// ---- Verbs objects ----------------------------------------------------------------------------------------------
/// What a removed device can leave behind: its destroy has failed for good, and nobody is to blame.
struct losable {
    bool lost = false;
};

struct td : ibv_td, losable {
    td() : ibv_td{} {}
    std::size_t users = 0;
};

struct pd : ibv_pd, losable {
    pd() : ibv_pd{} {}
    std::size_t users = 0;
    bool library = false;  ///< librdmacm's default PD of its device
    pd* inner = nullptr;   ///< of a parent domain, or of an imported PD: the one that protects
    td* thread = nullptr;  ///< of a parent domain
    bool imported = false; ///< gives its handle back with ibv_unimport_pd
    pd const& protection() const noexcept { return inner != nullptr ? inner->protection() : *this; }
};

struct xrcd : ibv_xrcd, losable {
    xrcd() : ibv_xrcd{} {}
    std::size_t users = 0;
    std::uint64_t domain = 0; ///< those opened for one file share it
    bool library = false;     ///< librdmacm's own for its device
};

struct dm : ibv_dm, losable {
    dm() : ibv_dm{} {}
    std::shared_ptr<bytes> memory; ///< shared with those imported
    std::uint32_t handle = 0;      ///< for which the header's structure may have no place
    std::size_t users = 0;
    bool imported = false;
};

/// A DMA handle of rdma-core 61, which the header may not know: it begins with its context.
struct dmah_base {
    ibv_context* context = nullptr;
};

struct dmah : dmah_base, losable {
    std::size_t users = 0;
};

struct mr : ibv_mr, losable {
    mr() : ibv_mr{} {}
    unsigned access = 0;
    std::uint64_t iova = 0;
    std::uintptr_t memory = 0; ///< what iova stands for
    std::size_t windows = 0;
    bool nothing = false;      ///< ibv_alloc_null_mr: reads zeros, swallows what is written
    bool imported = false;
    dm* on = nullptr;
    dmah* hints = nullptr;
    void* mapped = nullptr;    ///< of a dmabuf
    std::size_t mapped_size = 0;
};

struct mw : ibv_mw, losable {
    mw() : ibv_mw{} {}
    mr* region = nullptr;
    std::uint64_t address = 0, length = 0;
    unsigned access = 0;
};

struct ah : ibv_ah, losable {
    ah() : ibv_ah{} {}
    ibv_ah_attr attr{};
};

struct cq;

struct comp_channel : ibv_comp_channel, losable {
    comp_channel() : ibv_comp_channel{} {}
    mailbox<cq*> events;
};

/// A completion, and what only an extended CQ tells about it.
struct stamped : ibv_wc {
    std::uint64_t stamp = 0, wallclock = 0;
    completion_extras extras{};
};

struct cq : ibv_cq_ex, losable, pooled {
    cq() : ibv_cq_ex{} {}
    ibv_cq* raw() noexcept { return ibv_cq_ex_to_cq(this); }
    comp_channel* bell = nullptr;
    std::deque<stamped> completions;
    std::deque<ibv_wc> while_arming;
    enum class arming { none, solicited, any } armed = arming::none;
    bool overrun = false;
    std::size_t users = 0;
    std::uint32_t comp_reported = 0, comp_acked = 0, async_reported = 0, async_acked = 0;
    bool is_extended = false, ignores_overrun = false;
    std::uint64_t readable = 0; ///< of ibv_create_cq_wc_flags
    ibv_moderate_cq moderate{};
    pd* parent = nullptr;
    enum class polling { idle, at_one, at_end } poll = polling::idle; ///< between ibv_start_poll and ibv_end_poll
    stamped current{};
};

struct receive {
    std::uint64_t wr_id = 0;
    std::vector<ibv_sge> buffers;
};

struct srq : ibv_srq, losable {
    srq() : ibv_srq{} {}
    std::deque<receive> receives;
    ibv_srq_attr attr{};
    std::size_t users = 0;
    std::uint32_t async_reported = 0, async_acked = 0;
    xrcd* domain = nullptr; ///< of an XRC SRQ
    cq* queue = nullptr;    ///< of an XRC SRQ, and of one that matches tags
    ibv_tm_cap matching{};  ///< the latter's
    std::unordered_map<std::uint32_t, std::uint64_t> tags; ///< handle to wr_id of the receive
    std::uint32_t next_tag = 1;
};

struct wq : ibv_wq, losable {
    wq() : ibv_wq{} {}
    std::deque<receive> receives;
    std::uint32_t max_wr = 0, max_sge = 0, flags = 0;
    std::size_t users = 0;
    std::uint32_t async_reported = 0, async_acked = 0;
};

struct table : ibv_rwq_ind_table, losable {
    table() : ibv_rwq_ind_table{} {}
    std::vector<wq*> queues;
    std::size_t users = 0;
};

struct counters : ibv_counters, losable {
    counters() : ibv_counters{} {}
    std::unordered_map<std::uint32_t, ibv_counter_description> points;
    std::unordered_map<std::uint32_t, std::uint64_t> values; ///< set_counter
    std::size_t users = 0;
};

struct flow_action : ibv_flow_action, losable {
    flow_action() : ibv_flow_action{} {}
    std::size_t users = 0;
};

struct qp;

struct flow : ibv_flow, losable {
    flow() : ibv_flow{} {}
    qp* to = nullptr;
    std::vector<flow_action*> actions;
    std::vector<counters*> counting;
};

struct send {
    ibv_send_wr wr{};
    std::vector<ibv_sge> buffers;
    bytes inlined;
    bytes header; ///< of IBV_WR_TSO
    std::uint64_t length = 0; ///< of a flush
    bool is_inline = false;
};

struct attachment {
    ibv_gid gid;
    std::uint16_t lid;
};

struct qp : ibv_qp_ex, losable, pooled {
    qp() : ibv_qp_ex{} {}
    ibv_qp* raw() noexcept { return &qp_base; }
    context& home() noexcept;
    ibv_qp_init_attr init{};
    ibv_qp_attr attr{};
    std::deque<send> sends;
    std::deque<receive> receives;
    std::vector<attachment> groups;
    xrcd* domain = nullptr; ///< of type XRC_RECV
    table* spread = nullptr; ///< receives by an indirection table
    std::size_t flows = 0;
    std::uint32_t ece_options = fake::ece_options;
    std::uint64_t send_ops = 0; ///< of ibv_qp_create_send_ops_flags
    bool open_scope = false;    ///< ibv_wr_start … ibv_wr_complete
    std::vector<send> building;
    std::uint32_t async_reported = 0, async_acked = 0;
};

// ---- Connection management --------------------------------------------------------------------------------------
struct cm;
struct channel;
struct group;

enum class phase {
    idle, bound, resolving, addr_resolved, routing, route_resolved, listening,
    request_sent,      ///< active: no answer yet
    response_received, ///< active: accepted by the peer, ready-to-use not sent
    request_received,  ///< passive: undecided
    accepted,          ///< passive: waits for ready-to-use
    established, disconnected, closed
};

/// The kernel's half of an id.
struct endpoint {
    channel* file = nullptr; ///< null: the channel was closed under it, or the kernel has destroyed it
    cm* user = nullptr;      ///< whom events go to; null for a request until it is accepted
    cm* owner = nullptr;     ///< the id in user space, once there is one
    phase state = phase::idle;
    rdma_port_space ps = RDMA_PS_TCP;
    ibv_qp_type qp_type = IBV_QPT_RC;
    device* at = nullptr;
    address local, remote;
    bool reuse = false, afonly = false;
    int ack_timeout = -1;
    unsigned backlog = 0;
    endpoint* peer = nullptr;
    bool handled = false;   ///< has a CM handle: connected, or was asked to
    bool gone = false;      ///< its device was removed
    bool phantom = false;   ///< its peer is push_request's: it agrees with everything
    std::uint32_t local_qpn = 0, remote_qpn = 0;
    ibv_ece ece{}; ///< what the next message carries
    std::uint8_t responder_resources = 0, initiator_depth = 0;
    std::uint8_t retry_count = 7, rnr_retry_count = 7;
};

/// An event in the kernel's queue.
struct pending {
    cm* target = nullptr;
    bool anonymous = false; ///< its user is not known to the kernel yet (uid 0)
    int type = RDMA_CM_EVENT_ADDR_RESOLVED; // of rdma_cm_event_type, or newer
    int status = 0;
    rdma_conn_param conn{};
    rdma_ud_param ud{};
    ibv_ece ece{};
    std::uint64_t arg = 0;
    bytes data;
    std::unique_ptr<endpoint> child{}; ///< CONNECT_REQUEST: the new id's kernel half
    group* mc = nullptr;
};

struct channel : rdma_event_channel, pooled {
    channel() : rdma_event_channel{} {}
    mailbox<pending> events;
};

/// A multicast membership: what librdmacm keeps of it.
struct group {
    cm* id = nullptr; ///< null: the id was destroyed without leaving (a leak)
    address at;
    void* context = nullptr;
    unsigned flags = 0;
    std::uint64_t serial = 0;
    ibv_gid mgid{};
    std::uint16_t mlid = 0;
    std::uint32_t reported = 0, completed = 0;
};

/// An id: librdmacm's half.
struct cm : rdma_cm_id, pooled {
    cm() : rdma_cm_id{} {}
    std::uint64_t serial = 0;
    std::unique_ptr<endpoint> kernel;
    bool sync = false;
    bool torn_down = false; ///< the kernel's half is destroyed; acks are still owed
    bool connect_error = false;
    bool inside_connect = false; ///< rdma_connect blocks, on another thread
    device* bound = nullptr;
    std::uint32_t reported = 0, completed = 0;
    std::uint8_t responder_resources = 0, initiator_depth = 0;
    ibv_ece local_ece{}, remote_ece{};
    std::vector<group*> groups;
    std::unique_ptr<ibv_qp_init_attr> ep_attr;
    bytes ep_connect;             ///< what rdma_create_ep was given to put before the private data of a connect
    bool resolving_names = false; ///< rdma_resolve_addrinfo
    rdma_addrinfo* names = nullptr;
};

/// An event in the program's hands.
struct event : rdma_cm_event {
    std::uint8_t private_data[256];
    cm* charged;
    std::uint64_t charged_serial;
    group* mc;
    std::uint64_t mc_serial;
};

// ---- The world --------------------------------------------------------------------------------------------------
struct site;

struct armed_fault {
    std::string function; ///< empty: any
    unsigned countdown;
    int code;
};

/// What a test wants done when a call has done its work.
struct return_hook {
    std::string function;
    void const* object; ///< null: whatever the call is about
    std::function<void()> run;
};

struct world {
    std::mutex mutex;
    std::condition_variable acked;

    // switches
    bool devices_present = true, reuse_addresses = false, resolve_without_device = false, credentials_changed = false;
    bool manual = false, timewait = true, disassociates = false, silence_is_interrupted = false, knows_ece = false, knows_xrc = false, asks_ibacm = false, removal_disconnects = false;
    bool all_features = false;
    unsigned release = 44;
    std::chrono::milliseconds patience{5000};
    std::thread::id first_thread{};
    bool many_threads = false;

    // what happened
    std::vector<site*> sites;
    std::vector<std::pair<site const*, void const*>> log;
    std::size_t log_start = 0;
    std::vector<std::string> misuse, would_hang;
    std::vector<armed_fault> faults;
    failure last_fault{{}, 0};
    std::deque<return_hook> hooks;

    // devices
    std::vector<address> silent_hosts;
    std::array<device, 2> devices{};
    bool ready = false;
    registry<context> contexts;
    std::vector<context*> closed_contexts; ///< with objects still on them, whose pointers lead there
    std::unordered_set<void const*> device_lists;
    std::unordered_set<rdma_addrinfo const*> addrinfos;

    // objects
    registry<channel> channels;
    registry<cm> ids;
    registry<group> groups;
    std::unordered_set<rdma_cm_event const*> events;
    registry<comp_channel> comp_channels;
    registry<cq> cqs;
    registry<qp> qps;
    registry<srq> srqs;
    registry<pd> pds;
    registry<xrcd> xrcds;
    registry<mr> mrs;
    registry<mw> mws;
    registry<ah> ahs;
    registry<td> tds;
    registry<dm> dms;
    registry<dmah> dmahs;
    registry<wq> wqs;
    registry<table> tables;
    registry<flow> flows;
    registry<flow_action> flow_actions;
    registry<counters> counter_sets;
    std::unordered_map<std::uint32_t, mr*> local_keys, remote_keys;
    std::unordered_map<std::uint32_t, mw*> window_keys;
    std::unordered_map<std::uint32_t, qp*> qp_numbers;
    std::unordered_set<qp*> busy_senders; ///< QPs with sends not executed

    std::deque<int> join_failures; ///< of the joins to come
    std::vector<endpoint*> bound; ///< those that hold a port
    std::deque<pending> held;     ///< set_manual: consequences not let through yet
    std::unordered_map<std::size_t, std::vector<void*>> pool;
    std::uint64_t next_serial = 1, next_domain = 1;
    std::uint32_t next_handle = 1, next_key = 1, next_qpn = 17;
    std::uint16_t next_port = 40000;
    ibv_fork_status fork = IBV_FORK_DISABLED;

    void prepare(); ///< makes the two devices, once
};
world& the();

// ---- Entering ---------------------------------------------------------------------------------------------------
/// One C function: its name, how often it was called, and the code that fail_any gives it (0: it cannot fail).
struct site {
    char const* name;
    int any_code;
    std::size_t calls = 0;
    bool known = false;
};

/// While the fake runs on this thread (see fake::inside).
class presence {
public:
    presence() noexcept;
    ~presence();
    static void pause() noexcept; ///< for as long as the program's own code runs
    static void resume() noexcept;
    presence(presence const&) = delete;
    presence& operator=(presence const&) = delete;
};

/// A control function of fake.hpp at work.
class visit {
public:
    visit() : lock_{the().mutex} { the().prepare(); }

private:
    presence here_;
    std::unique_lock<std::mutex> lock_;
};

/// A C function at work: logged, possibly struck by a fault, and alone in the world.
class entry {
public:
    entry(site& where, void const* object);
    entry(entry const&) = delete;
    entry& operator=(entry const&) = delete;
    ~entry(); ///< calls the hook that on_return has set

    int fault() const noexcept { return fault_; }
    char const* name() const noexcept { return where_.name; }

    void misuse(std::string const& what) const;
    void would_crash(std::string const& why) const;

    /// The object behind a pointer; null (and noted as misuse) when there is none, or no longer.
    template <class T>
    T* need(registry<T> const& among, void const* raw, char const* kind) const
    {
        if (T* const object = among.find(raw)) return object;
        if (raw == nullptr) would_crash(std::string{"null "} + kind);
        else misuse(std::string{"a dead or unknown "} + kind);
        return nullptr;
    }

    /// The id of an rdma_cm command that the kernel will take; null with errno set otherwise.
    cm* command(rdma_cm_id* raw) const;

    /// The same for a command that the kernel takes for an id of a removed device, too.
    cm* ending(rdma_cm_id* raw) const;

    /// Whether `ready` holds, or comes to hold because another thread acks. If not, the call would have waited for ever.
    template <class Ready>
    bool settles(Ready ready, std::string const& what)
    {
        if (ready()) return true;
        world& w = the();
        if (w.many_threads && w.acked.wait_until(lock_, std::chrono::system_clock::now() + w.patience, ready)) return true;
        w.would_hang.push_back(std::string{name()} + ": " + what);
        return false;
    }

    /// Waits for a signal: EINTR, or ETIMEDOUT when the world's patience is over.
    int sleep();

    /// Waits until something is in a mailbox, as read(2) on its descriptor would. 0, EAGAIN, EINTR, EBADF or ETIMEDOUT.
    int await(int fd, std::function<bool()> const& alive, std::function<bool()> const& filled, int timeout_ms = -1);

private:
    presence here_;
    std::unique_lock<std::mutex> lock_;
    site& where_;
    void const* object_;
    int fault_ = 0;
};

// ---- Parts of the model that other parts use --------------------------------------------------------------------
// devices.cpp
context& context_of(ibv_context* raw);
device* find_device(ibv_device const* raw);
ibv_device_attr limits(device const& of);
void destroy_context(context* old);
void bring_back(device& removed);
void fill_operations(context& of, bool iwarp); ///< data.cpp: the functions that headers call through the context

bool has_all_features(ibv_context* raw); ///< of set_all_features
int barred(entry const& in, ibv_context* raw); ///< the code of the fault, or why a call of set_all_features cannot be; 0: it can
bool cut_off(ibv_context* raw);         ///< its device was removed, and has cut off its users
int lose(losable& object, ibv_context* raw); ///< EIO
void close_removed(device& which, entry const* in); ///< if it may be

// memory.cpp
pd* make_pd(context& on, bool library);
int drop_pd(pd* old);
void bind_device(cm& id, device& to);
void release_device(device& from, entry const* in);
void drop_defaults(device& of, entry const* in);
mr* add_mr(pd& domain, void* at, std::size_t length, std::uint64_t iova, unsigned access);
bool allowed(unsigned access, bool all_features);
mr* register_memory(pd& domain, void* at, std::size_t length, std::uint64_t iova, unsigned access, int& code);
void free_mr(mr* old);
std::uint8_t* memory_of(mr const& region, std::uint64_t at);
bool protects(pd const* domain, ibv_pd const* of); ///< both are one, or parent domains of one
mr* local_region(pd const* domain, ibv_sge const& piece, unsigned access);
std::uint8_t* remote_memory(pd const* domain, std::uint32_t rkey, std::uint64_t at, std::uint64_t length, unsigned access);
bool has_remote_key(pd const* domain, std::uint32_t rkey, unsigned access);
void fill_window_operations(context& of);
int bind_window(mw& window, std::uint32_t rkey, ibv_mw_bind_info const& info);

// cq.cpp
comp_channel* make_comp_channel(context& on);
int drop_comp_channel(entry const& in, comp_channel* old);
cq* make_cq(context& on, int entries, void* user_context, comp_channel* bell);
int drop_cq(entry& in, cq* old);
void fill_cq_operations(context& of);
void complete(cq* into, ibv_wc const& wc, bool solicited, completion_extras const& extras = {});
void free_cq(cq* old);

// qp.cpp
qp* make_qp(context& on, pd* domain, xrcd* extended, ibv_qp_init_attr& attr, int& code, table* spread = nullptr);
qp* make_extended_qp(entry const& in, context& on, ibv_qp_init_attr_ex& attr, int& code);
qp& real(qp& handle); ///< the QP that handles of ibv_open_qp share
int drop_qp(entry& in, qp* old);
void free_qp(qp* old);
int modify(qp& of, ibv_qp_attr const& attr, int mask);
void enter_error(qp& of);
int query_ece(qp const& of, ibv_ece& ece);
int set_ece(qp& of, ibv_ece& ece);
srq* make_srq(pd& domain, ibv_srq_init_attr& attr, int& code);
srq* make_tag_srq(pd& domain, cq& queue, ibv_tm_cap const& matching, ibv_srq_init_attr& attr, int& code);
srq* make_xrc_srq(pd& domain, xrcd& extended, cq& queue, ibv_srq_init_attr& attr, int& code);
int drop_srq(entry& in, srq* old);
int attach(qp& to, ibv_gid const& gid, std::uint16_t lid);
int detach(qp& from, ibv_gid const& gid, std::uint16_t lid);

// xrc.cpp
xrcd* default_xrcd(device& of); ///< null with errno set
int drop_xrcd(xrcd* old);
void fill_xrc_operations(context& of);

// dm.cpp
void fill_region_operations(context& of);
mr* add_dmabuf_mr(entry const& in, pd& domain, std::uint64_t offset, std::size_t length, std::uint64_t iova, int fd, unsigned access, int& code);

// newer.cpp
void fill_newer_operations(qp& of);

// domain.cpp
void fill_domain_operations(context& of);

// wq.cpp
void fill_wq_operations(context& of);

// flow.cpp
void fill_flow_operations(context& of);

// data.cpp
void pump(); ///< executes every send that can be
int post(qp& on, ibv_send_wr* first, ibv_send_wr** bad);
void fill_extended_operations(qp& of);
void post_atomic_write(entry const& in, ibv_qp_ex* raw, std::uint32_t rkey, std::uint64_t at, void const* value);
void post_flush(entry const& in, ibv_qp_ex* raw, std::uint32_t rkey, std::uint64_t at, std::size_t length, std::uint8_t type, std::uint8_t level);

// async.cpp
void raise(context& on, ibv_async_event const& what, void const* object);

// address.cpp
device* device_of(address const& host);
bool is_silent(address const& host);
int claim_port(endpoint& by);
int bind_address(cm& id, sockaddr const* to);                             ///< 0, or -1 with errno set
int resolve_address(cm& id, sockaddr const* from, sockaddr const* to);    ///< 0, or -1 with errno set
void query_addresses(cm& id);
void release_port(endpoint& by);

// names.cpp
void free_names(rdma_addrinfo* list);
bool names_resolved(cm& id, int& status);
void names_failed(cm& id);

// channel.cpp
channel* make_channel(int& code);
void drop_channel(channel* old);
void deliver(pending item);
void consequence(pending item);
int take(entry& in, channel& from, rdma_cm_event** out, int timeout_ms = -1);
void acknowledge(entry const& in, rdma_cm_event* old);
int finish(entry& in, cm& id); ///< a synchronous id waits for its event

// cm.cpp
cm* make_id(channel& on, void* user_context, rdma_port_space ps, ibv_qp_type type, std::unique_ptr<endpoint> kernel);
void purge(cm& id);
void kernel_destroy(cm& id);
void free_id(entry const* in, cm* old);
int create_qp(entry& in, cm& id, ibv_qp_init_attr_ex& attr);

// connection.cpp
void tell(endpoint& whom, rdma_cm_event_type type, int status = 0, bytes data = {});
void lose_device(endpoint& whose);       ///< the kernel's half ends with its device
void hang_up(endpoint& whose);           ///< what the peer sees when this half is destroyed
void part(endpoint& whose);              ///< both ends of a connection are told of its end
void reject(endpoint& whose, int reason, bytes data);
int ready_to_use(endpoint& active);      ///< RTU: the passive side becomes established
int init_attr(endpoint const& of, ibv_qp_attr& attr, int& mask);
void qp_to_error(cm& id);
std::unique_ptr<endpoint> make_request(endpoint const& listener, device& at);
endpoint* endpoint_of(qp const& of);
void broken(qp& by);                     ///< a fault in the data stream: iWARP ends the connection

// multicast.cpp
group* find_group(cm const& id, address const& at);
bool joined(cm& id, pending& item);
void forget_groups(cm& id);

} // namespace fake::model
