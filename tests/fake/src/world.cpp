// SPDX-License-Identifier: MIT
//
// The world, how a C function enters it, and its clearing up.
#include "world.hpp"

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

void count(site& where)
{
    ++where.calls;
    if (where.known) return;
    where.known = true;
    the().sites.push_back(&where);
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

entry::entry(site& where, void const* object) : lock_{the().mutex}, where_{where}
{
    the().prepare();
    count_thread();
    count(where);
    log(where, object);
    if (!the().faults.empty()) fault_ = strike(where);
}

void entry::misuse(std::string const& what) const { the().misuse.push_back(std::string{name()} + ": " + what); }
void entry::would_crash(std::string const& why) const { misuse("would crash: " + why); }

cm* entry::command(rdma_cm_id* raw) const
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
        if (timeout_ms < 0 && (::fcntl(fd, F_GETFL) & O_NONBLOCK) != 0) return EAGAIN;
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
    for (qp* old : all(w.qps)) free_qp(old);
    for (auto const* old : all(w.srqs)) delete old;
    for (auto const* old : all(w.ahs)) delete old;
    for (auto const* old : all(w.mws)) delete old;
    for (auto const* old : all(w.mrs)) delete old;
    for (cq* old : all(w.cqs)) free_cq(old);
    for (auto const* old : all(w.comp_channels)) delete old;
    for (auto const* old : all(w.pds)) delete old;
    w.srqs.clear(), w.ahs.clear(), w.mws.clear(), w.mrs.clear(), w.comp_channels.clear(), w.pds.clear();
    w.local_keys.clear(), w.remote_keys.clear(), w.window_keys.clear(), w.qp_numbers.clear(), w.busy_senders.clear();
    for (device& each : w.devices) {
        each.references = 0;
        each.default_pd = nullptr;
    }
}

void free_connections(world& w)
{
    w.held.clear();
    w.bound.clear();
    for (cm* old : all(w.ids)) {
        std::free(old->route.path_rec);
        delete old;
    }
    w.ids.clear();
    for (auto const* raw : w.events) std::free(const_cast<rdma_cm_event*>(raw));
    w.events.clear();
    for (auto const* old : all(w.channels)) delete old;
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
    for (void const* list : w.device_lists) std::free(const_cast<void*>(list));
    w.device_lists.clear();
    auto const infos = w.addrinfos;
    for (auto const* info : infos) std::free(const_cast<rdma_addrinfo*>(info));
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
    w.patience = std::chrono::seconds{5};
    w.first_thread = {};
    w.many_threads = false;
    for (site* each : w.sites) each->calls = 0;
    w.log.clear(), w.misuse.clear(), w.would_hang.clear(), w.faults.clear();
    w.log_start = 0;
    w.last_fault = {{}, 0};
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
    free_devices(w);
    free_pool(w);
    forget(w);
}

bool inside() noexcept { return depth > 0; }

void set_devices_present(bool present) { visit here; the().devices_present = present; }
void set_reuse_addresses(bool reuse) { visit here; the().reuse_addresses = reuse; }
void set_resolve_without_device(bool without) { visit here; the().resolve_without_device = without; }
void set_credentials_changed(bool changed) { visit here; the().credentials_changed = changed; }
void set_manual(bool manual) { visit here; the().manual = manual; }
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

population live()
{
    visit here;
    world const& w = the();
    population all{};
    all.channels = w.channels.size();
    all.ids = w.ids.size();
    all.events = w.events.size();
    all.qps = w.qps.size();
    all.cqs = w.cqs.size();
    all.comp_channels = w.comp_channels.size();
    all.mrs = w.mrs.size();
    all.srqs = w.srqs.size();
    all.ahs = w.ahs.size();
    all.mws = w.mws.size();
    all.groups = w.groups.size();
    for (auto const& [raw, each] : w.pds) ++(each->library ? all.default_pds : all.pds);
    for (auto const& [raw, each] : w.contexts)
        if (!each->borrowed) ++all.contexts;
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
    name(now.mrs, "MR(s)");
    name(now.mws, "MW(s)");
    name(now.srqs, "SRQ(s)");
    name(now.ahs, "AH(s)");
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

void disarm() { visit here; the().faults.clear(); }
failure failed() { visit here; return the().last_fault; }

} // namespace fake
