// SPDX-License-Identifier: MIT
//
// The world, how a C function enters it, and its clearing up.
#include "world.hpp"

#include <algorithm>
#include <cstdlib>
#include <new>

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

namespace fake::model {

world& the()
{
    static world* const only = new world; // never destroyed: objects of static storage may call C to the very end
    return *only;
}

// ---- doorbell ---------------------------------------------------------------------------------------------------
doorbell::~doorbell()
{
    if (fd_ >= 0) ::close(fd_);
}

bool doorbell::open()
{
    fd_ = ::eventfd(0, EFD_CLOEXEC);
    return fd_ >= 0;
}

void doorbell::set(bool ringing) noexcept
{
    if (ringing == ringing_ || fd_ < 0) return;
    int const kept = errno;
    std::uint64_t one = 1;
    auto const moved = ringing ? ::write(fd_, &one, sizeof one) : ::read(fd_, &one, sizeof one);
    if (moved == sizeof one) ringing_ = ringing;
    errno = kept;
}

// ---- pooled memory ----------------------------------------------------------------------------------------------
void* pooled::operator new(std::size_t size)
{
    world& w = the();
    if (auto& spare = w.pool[size]; w.reuse_addresses && !spare.empty()) {
        void* const last = spare.back();
        spare.pop_back();
        return last;
    }
    if (void* const fresh = std::malloc(size)) return fresh;
    throw std::bad_alloc{};
}

void pooled::operator delete(void* memory, std::size_t size) noexcept
{
    world& w = the();
    if (w.reuse_addresses) w.pool[size].push_back(memory);
    else std::free(memory);
}

// ---- entering ---------------------------------------------------------------------------------------------------
namespace {

thread_local int depth = 0;
constexpr std::size_t log_limit = 100'000;

void log(site const& where, void const* object)
{
    world& w = the();
    if (w.log.size() < log_limit) {
        w.log.emplace_back(&where, object);
        return;
    }
    w.log[w.log_start] = {&where, object};
    w.log_start = (w.log_start + 1) % log_limit;
}

/// Which functions a whole program has called, however many worlds it went through: each name goes to the file that FAKE_CALLED names,
/// once for each process, with the first call, since a test may end its process without a word.
void tell_called(site const& where)
{
    char const* const file = std::getenv("FAKE_CALLED");
    if (file == nullptr) return;
    int const kept = errno, fd = ::open(file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    std::string const line = std::string{where.name} + '\n';
    if (fd < 0 || ::write(fd, line.data(), line.size()) < 0) the().misuse.push_back("FAKE_CALLED cannot be written to");
    if (fd >= 0) ::close(fd);
    errno = kept;
}

void count(site& where)
{
    ++where.calls;
    if (where.known) return;
    where.known = true;
    the().sites.push_back(&where);
    tell_called(where);
}

void count_thread()
{
    world& w = the();
    if (w.many_threads) return;
    auto const self = std::this_thread::get_id();
    if (w.first_thread == std::thread::id{}) w.first_thread = self;
    else w.many_threads = w.first_thread != self;
}

/// The code of the fault that strikes this call, or 0.
int strike(site const& where)
{
    world& w = the();
    int struck = 0;
    for (auto fault = w.faults.begin(); fault != w.faults.end();) {
        bool const concerns = fault->function.empty() ? where.any_code != 0 : fault->function == where.name;
        if (!concerns || --fault->countdown != 0) {
            ++fault;
            continue;
        }
        struck = fault->function.empty() ? where.any_code : fault->code;
        w.last_fault = {where.name, struck};
        fault = w.faults.erase(fault);
    }
    return struck;
}

} // namespace

presence::presence() noexcept { ++depth; }
presence::~presence() { --depth; }
void presence::pause() noexcept { --depth; }
void presence::resume() noexcept { ++depth; }

entry::entry(site& where, void const* object) : lock_{the().mutex}, where_{where}, object_{object}
{
    the().prepare();
    count_thread();
    count(where);
    log(where, object);
    if (!the().faults.empty()) fault_ = strike(where);
}

namespace {

std::function<void()> take_hook(site const& where, void const* object)
{
    auto& hooks = the().hooks;
    for (auto hook = hooks.begin(); hook != hooks.end(); ++hook) {
        if (hook->function != where.name || (hook->object != nullptr && hook->object != object)) continue;
        auto run = std::move(hook->run);
        hooks.erase(hook);
        return run;
    }
    return {};
}

} // namespace

entry::~entry()
{
    if (the().hooks.empty()) return;
    auto const run = take_hook(where_, object_);
    if (!run) return;
    int const kept = errno;
    lock_.unlock();
    presence::pause();
    run();
    presence::resume();
    errno = kept;
}

void entry::misuse(std::string const& what) const { the().misuse.push_back(std::string{name()} + ": " + what); }
void entry::would_crash(std::string const& why) const { misuse("would crash: " + why); }

cm* entry::command(rdma_cm_id* raw) const
{
    cm* const id = ending(raw);
    return id != nullptr && id->kernel->gone ? null(ENXIO) : id;
}

cm* entry::ending(rdma_cm_id* raw) const
{
    cm* const id = need(the().ids, raw, "id");
    if (id == nullptr) return null(EBADF);
    if (the().credentials_changed) return null(EACCES);
    if (id->kernel->file == nullptr && !id->torn_down) {
        misuse("the id's channel was destroyed");
        return null(EBADF);
    }
    return id;
}

int entry::await(int fd, std::function<bool()> const& alive, std::function<bool()> const& filled, int timeout_ms)
{
    while (!filled()) {
        if ((::fcntl(fd, F_GETFL) & O_NONBLOCK) != 0) return EAGAIN;
        lock_.unlock();
        pollfd wait{fd, POLLIN, 0};
        int const woken = ::poll(&wait, 1, timeout_ms);
        int const code = errno;
        lock_.lock();
        if (woken < 0) return code;
        if (!alive() || (wait.revents & POLLNVAL) != 0) return EBADF;
        if (woken == 0) return ETIMEDOUT;
    }
    return 0;
}

int entry::sleep()
{
    auto const limit = static_cast<int>(the().patience.count());
    lock_.unlock();
    int const woken = ::poll(nullptr, 0, limit);
    lock_.lock();
    return woken < 0 ? EINTR : ETIMEDOUT;
}

// ---- clearing up ------------------------------------------------------------------------------------------------
namespace {

template <class T>
std::vector<T*> all(registry<T> const& of)
{
    std::vector<T*> objects;
    for (auto const& [raw, object] : of) objects.push_back(object);
    return objects;
}

void free_verbs_objects(world& w)
{
    for (auto const* old : all(w.flows)) delete old;
    for (auto const* old : all(w.flow_actions)) delete old;
    for (auto const* old : all(w.counter_sets)) delete old;
    for (qp* old : all(w.qps)) free_qp(old);
    for (auto const* old : all(w.tables)) delete old;
    for (auto const* old : all(w.wqs)) delete old;
    for (auto const* old : all(w.srqs)) delete old;
    for (auto const* old : all(w.ahs)) delete old;
    for (auto const* old : all(w.mws)) delete old;
    for (mr* old : all(w.mrs)) free_mr(old);
    for (auto const* old : all(w.dms)) delete old;
    for (auto const* old : all(w.dmahs)) delete old;
    for (cq* old : all(w.cqs)) free_cq(old);
    for (auto const* old : all(w.comp_channels)) delete old;
    for (auto const* old : all(w.pds)) delete old;
    for (auto const* old : all(w.tds)) delete old;
    for (auto const* old : all(w.xrcds)) delete old;
    w.xrcds.clear();
    w.flows.clear(), w.flow_actions.clear(), w.counter_sets.clear(), w.tables.clear(), w.wqs.clear(), w.dms.clear(), w.dmahs.clear(), w.tds.clear();
    w.srqs.clear(), w.ahs.clear(), w.mws.clear(), w.mrs.clear(), w.comp_channels.clear(), w.pds.clear();
    w.local_keys.clear(), w.remote_keys.clear(), w.window_keys.clear(), w.qp_numbers.clear(), w.busy_senders.clear();
    for (device& each : w.devices) {
        each.references = 0;
        each.default_pd = nullptr;
        each.default_xrcd = nullptr;
    }
}

void free_connections(world& w)
{
    w.held.clear();
    w.bound.clear();
    for (cm* old : all(w.ids)) {
        std::free(old->route.path_rec);
        free_names(old->names);
        delete old;
    }
    w.ids.clear();
    for (auto const* raw : w.events) std::free(const_cast<rdma_cm_event*>(raw));
    w.events.clear();
    // Their addresses are not given out again: a program that could not destroy a channel still knows it by its own.
    static std::vector<void*>& left_behind = *new std::vector<void*>;
    for (channel* old : all(w.channels)) {
        old->~channel();
        left_behind.push_back(old);
    }
    w.channels.clear();
    for (auto const* old : all(w.groups)) delete old;
    w.groups.clear();
}

void free_devices(world& w)
{
    for (context* old : all(w.contexts)) {
        old->async.remove([](async_item const&) { return true; });
        old->children = 0;
        if (!old->borrowed) destroy_context(old);
    }
    for (context* old : w.closed_contexts) destroy_context(old);
    w.closed_contexts.clear();
    for (device& each : w.devices) bring_back(each);
    for (void const* list : w.device_lists) std::free(const_cast<void*>(list));
    w.device_lists.clear();
    auto const infos = w.addrinfos;
    for (auto const* info : infos) free_names(const_cast<rdma_addrinfo*>(info));
    w.addrinfos.clear();
}

void free_pool(world& w)
{
    for (auto& [size, spare] : w.pool)
        for (void* memory : spare) std::free(memory);
    w.pool.clear();
}

void forget(world& w)
{
    w.devices_present = true;
    w.reuse_addresses = w.resolve_without_device = w.credentials_changed = w.manual = false;
    w.timewait = true;
    w.disassociates = w.silence_is_interrupted = w.knows_ece = w.knows_xrc = w.asks_ibacm = w.removal_disconnects = w.all_features = false;
    w.release = 44;
    w.silent_hosts.clear();
    w.join_failures.clear();
    w.patience = std::chrono::seconds{5};
    w.first_thread = {};
    w.many_threads = false;
    for (site* each : w.sites) each->calls = 0;
    w.log.clear(), w.misuse.clear(), w.would_hang.clear(), w.faults.clear();
    w.log_start = 0;
    w.last_fault = {{}, 0};
    w.hooks.clear();
    w.fork = IBV_FORK_DISABLED;
}

} // namespace

} // namespace fake::model

// ---- fake.hpp ---------------------------------------------------------------------------------------------------
namespace fake {

using namespace model;

void reset()
{
    visit here;
    world& w = the();
    free_verbs_objects(w);
    free_connections(w);
    free_pool(w);
    forget(w);
    free_devices(w);
}

bool inside() noexcept { return depth > 0; }

void set_devices_present(bool present) { visit here; the().devices_present = present; }
void set_reuse_addresses(bool reuse) { visit here; the().reuse_addresses = reuse; }
void set_resolve_without_device(bool without) { visit here; the().resolve_without_device = without; }
void set_credentials_changed(bool changed) { visit here; the().credentials_changed = changed; }
void set_manual(bool manual) { visit here; the().manual = manual; }
void set_removal_disconnects(bool disconnects) { visit here; the().removal_disconnects = disconnects; }
void set_disassociated_destroys_fail(bool fail) { visit here; the().disassociates = fail; }
void set_silent(std::string_view host) { visit here; the().silent_hosts.push_back(address::parse(std::string{host}.c_str())); }
void set_silent_interrupted(bool interrupted) { visit here; the().silence_is_interrupted = interrupted; }
void set_rdma_core(unsigned release) { visit here; the().release = release; }
void set_ibacm(bool running) { visit here; the().asks_ibacm = running; }
void set_ece(bool known) { visit here; the().knows_ece = known; }
void set_fork_status(int status) { visit here; the().fork = static_cast<ibv_fork_status>(status); }
void set_timewait(bool timewait) { visit here; the().timewait = timewait; }
void set_patience(std::chrono::milliseconds patience) { visit here; the().patience = patience; }

bool step()
{
    visit here;
    auto& held = the().held;
    if (held.empty()) return false;
    pending oldest = std::move(held.front());
    held.pop_front();
    deliver(std::move(oldest));
    return true;
}

std::vector<call> calls()
{
    visit here;
    world const& w = the();
    std::vector<call> all;
    all.reserve(w.log.size());
    for (std::size_t i = 0; i < w.log.size(); ++i) {
        auto const& [where, object] = w.log[(w.log_start + i) % w.log.size()];
        all.push_back({where->name, object});
    }
    return all;
}

std::size_t count(std::string_view function)
{
    visit here;
    for (site const* each : the().sites)
        if (each->name == function) return each->calls;
    return 0;
}

std::size_t count(std::string_view function, void const* object)
{
    visit here;
    std::size_t found = 0;
    for (auto const& [where, what] : the().log)
        if (what == object && where->name == function) ++found;
    return found;
}

void clear_calls()
{
    visit here;
    world& w = the();
    w.log.clear();
    w.log_start = 0;
    for (site* each : w.sites) each->calls = 0;
}

std::vector<std::string> would_hang() { visit here; return the().would_hang; }
std::vector<std::string> misuse() { visit here; return the().misuse; }

namespace {

template <class T>
std::size_t kept(registry<T> const& of)
{
    auto const is_kept = [](auto const& item) { return !item.second->lost; };
    return static_cast<std::size_t>(std::count_if(of.begin(), of.end(), is_kept));
}

template <class... T>
std::size_t lost_among(registry<T> const&... of) { return (... + (of.size() - kept(of))); }

} // namespace

std::size_t lost()
{
    visit here;
    world const& w = the();
    return lost_among(w.qps, w.cqs, w.comp_channels, w.pds, w.mrs, w.srqs, w.ahs, w.mws, w.xrcds)
        + lost_among(w.tds, w.dms, w.dmahs, w.wqs, w.tables, w.flows, w.flow_actions, w.counter_sets);
}

population live()
{
    visit here;
    world const& w = the();
    population all{};
    all.channels = w.channels.size();
    all.ids = w.ids.size();
    all.events = w.events.size();
    all.qps = kept(w.qps);
    all.cqs = kept(w.cqs);
    all.comp_channels = kept(w.comp_channels);
    all.mrs = kept(w.mrs);
    all.srqs = kept(w.srqs);
    all.ahs = kept(w.ahs);
    all.mws = kept(w.mws);
    all.tds = kept(w.tds);
    all.dms = kept(w.dms);
    all.dmahs = kept(w.dmahs);
    all.wqs = kept(w.wqs);
    all.tables = kept(w.tables);
    all.flows = kept(w.flows);
    all.flow_actions = kept(w.flow_actions);
    all.counters = kept(w.counter_sets);
    all.groups = w.groups.size();
    for (auto const& [raw, each] : w.pds)
        if (!each->lost) ++(each->library ? all.default_pds : all.pds);
    for (auto const& [raw, each] : w.contexts)
        if (!each->borrowed) ++all.contexts;
    for (auto const& [raw, each] : w.xrcds)
        if (!each->lost) ++(each->library ? all.default_xrcds : all.xrcds);
    all.lists = w.device_lists.size() + w.addrinfos.size();
    return all;
}

std::string leaks()
{
    population const now = live();
    presence here;
    std::string line;
    auto const name = [&line](std::size_t many, char const* what) {
        if (many == 0) return;
        line += line.empty() ? "" : ", ";
        line += std::to_string(many) + " " + what;
    };
    name(now.channels, "event channel(s)");
    name(now.ids, "id(s)");
    name(now.events, "event(s) not acked");
    name(now.qps, "QP(s)");
    name(now.cqs, "CQ(s)");
    name(now.comp_channels, "completion channel(s)");
    name(now.pds, "PD(s)");
    name(now.default_pds, "default PD(s)");
    name(now.xrcds, "XRC domain(s)");
    name(now.default_xrcds, "default XRC domain(s)");
    name(now.mrs, "MR(s)");
    name(now.mws, "MW(s)");
    name(now.srqs, "SRQ(s)");
    name(now.ahs, "AH(s)");
    name(now.tds, "thread domain(s)");
    name(now.dms, "device memory or memories");
    name(now.dmahs, "DMA handle(s)");
    name(now.wqs, "WQ(s)");
    name(now.tables, "indirection table(s)");
    name(now.flows, "flow(s)");
    name(now.flow_actions, "flow action(s)");
    name(now.counters, "set(s) of counters");
    name(now.groups, "multicast group(s) not left");
    name(now.contexts, "opened context(s)");
    name(now.lists, "list(s) of devices or addresses");
    return line;
}

std::uint32_t unacked(rdma_cm_id const* id)
{
    visit here;
    cm const* const found = the().ids.find(id);
    return found != nullptr && found->reported > found->completed ? found->reported - found->completed : 0;
}

std::uint32_t unacked(ibv_cq const* raw)
{
    visit here;
    cq const* const found = the().cqs.find(raw);
    return found != nullptr ? found->comp_reported - found->comp_acked : 0;
}

std::size_t queued(rdma_event_channel const* raw)
{
    visit here;
    channel const* const found = the().channels.find(raw);
    return found != nullptr ? found->events.items.size() : 0;
}

void fail(std::string_view function, unsigned nth, int code)
{
    visit here;
    the().last_fault = {{}, 0};
    if (nth != 0) the().faults.push_back({std::string{function}, nth, code});
}

void fail_any(unsigned nth)
{
    visit here;
    the().last_fault = {{}, 0};
    if (nth != 0) the().faults.push_back({{}, nth, 0});
}

void on_return(std::string_view function, void const* object, std::function<void()> hook)
{
    visit here;
    the().hooks.push_back({std::string{function}, object, std::move(hook)});
}

void on_return(std::string_view function, std::function<void()> hook) { on_return(function, nullptr, std::move(hook)); }

void clear_on_return() { visit here; the().hooks.clear(); }

void disarm() { visit here; the().faults.clear(); }
failure failed() { visit here; return the().last_fault; }

} // namespace fake
