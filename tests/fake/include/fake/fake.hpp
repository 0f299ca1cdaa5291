// SPDX-License-Identifier: MIT
//
// fake: a librdmacm and libibverbs to link instead of the real ones. This header steers and inspects it;
// the functions under test are declared by <rdma/rdma_cma.h> and <infiniband/verbs.h> as always.
#pragma once

#include <fake/c_headers.hpp>

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace fake {

// ---- The world ------------------------------------------------------------------------------------------------
// Two devices, with the addresses that tools/softrdma gives the real ones, so that one test serves both:
//   rxe0  RoCE   10.77.1.1, 10.77.1.2, fd77:1::1, fd77:1::2, fe80::77:1 (scope id rxe_scope)
//   siw0  iWARP  10.77.2.1, 10.77.2.2, fd77:2::1, fd77:2::2, fe80::77:2 (scope id siw_scope)
inline constexpr std::uint32_t rxe_scope = 71;
inline constexpr std::uint32_t siw_scope = 72;

// On RoCE, as in the kernel, the passive side is ESTABLISHED only once the active side has got its answer from rdma_get_cm_event.

/// Forgets everything: live objects are freed, faults disarmed, logs emptied, switches put back to their defaults.
void reset();

/// No RDMA device at all: every librdmacm entry point fails with ENODEV, as on a machine without hardware.
void set_devices_present(bool present);

/// Ids come and go at the same address at once (a last-in first-out pool) instead of through malloc and ASan's quarantine.
void set_reuse_addresses(bool reuse);

/// The next ADDR_RESOLVED leaves id->verbs null, as some devices do before rdma-core 56.
void set_resolve_without_device(bool without);

/// After the process "changed its credentials", every rdma_cm command fails with EACCES.
void set_credentials_changed(bool changed);

/// Whether rdma-core's own consequences of a call (ADDR_RESOLVED after rdma_resolve_addr …) are queued at once (the default)
/// or kept back until step() lets the oldest through. Returns false when there was none.
void set_manual(bool manual);
bool step();

/// A host of either subnet that is there and says nothing: addresses and routes to it are resolved, and its answer to rdma_connect never
/// comes. On rxe the call succeeds, and no event follows, until the test pushes UNREACHABLE; with set_manual(true) the next step() is
/// the end of that wait (UNREACHABLE, -ETIMEDOUT, 102 s later in reality). On siw rdma_connect itself blocks until a signal comes
/// (EINTR; the id may connect again), or for set_patience (ETIMEDOUT); other threads go on meanwhile.
void set_silent(std::string_view host);

/// rdma_connect to a silent host on siw does not block, but returns EINTR at once, as if the signal had come.
void set_silent_interrupted(bool interrupted);

/// rxe0 knows enhanced connection establishment: ibv_query_ece and ibv_set_ece of its QPs work (else, and on siw0, EOPNOTSUPP). What
/// rdma_set_local_ece is given travels with connect and accept on RoCE in any case, as the kernel does not care who understands it.
void set_ece(bool known);
inline constexpr std::uint32_t ece_vendor = 0x00fa4e; ///< of rxe0's QPs; another vendor's options are refused by ibv_set_ece
inline constexpr std::uint32_t ece_options = 0x7;     ///< all that they support: what a new QP has, and what ibv_set_ece masks with

/// rxe0 knows extended reliable connections, which soft-RoCE does not: ibv_open_xrcd, XRC SRQs, QPs of the types XRC_SEND and XRC_RECV.
void set_xrc(bool known);

/// rxe0 can do all that <infiniband/verbs.h> knows, as no one device can: on-demand paging, device memory, null and dmabuf regions,
/// every field of an extended CQ, moderation, tag matching, work queues with indirection tables and RAW_PACKET QPs, flows, their
/// actions and counters, thread and parent domains, rate limits, imported objects, segmentation, atomic writes, flushes, and XRC, as
/// by set_xrc. Without it, and on siw0, all this is EOPNOTSUPP, as with soft-RoCE.
void set_all_features(bool all);

/// The release of rdma-core that librdmacm behaves as, where that makes a difference (44, unless told otherwise):
///   52: rdma_accept of a synchronous UD id acks the CONNECT_REQUEST that rdma_get_request has parked in id->event; before it stays,
///       and the listener cannot be destroyed until the child is;
///   56: an ADDR_RESOLVED that would leave id->verbs null becomes ADDR_ERROR, -1;
///   60: rdma_event_str knows ADDRINFO_RESOLVED and ADDRINFO_ERROR (and USER to the last not). The functions of rdma-core 60 work at
///       any release; <fake/v60.hpp> declares them.
void set_rdma_core(unsigned release);

/// A running ibacm: rdma_getaddrinfo gives a destination on rxe0 two results, the first by GID (AF_IB, with a route and 36 bytes to
/// connect with; only to look at, since ids know no AF_IB here), the second as without it, with a route and the source address.
void set_ibacm(bool running);

/// As `rdma link delete rxe0` (or siw0) with live users. Every id that the kernel has bound to the device and that the program made or
/// accepted gets DEVICE_REMOVAL; a wildcard listener and a request not accepted yet do not. The kernel's halves of all ids on the
/// device end with that: what is called on such an id fails with ENXIO, but for its destroy, and a request that nobody has got is
/// swallowed. New ids do not find the device (ENODEV), lists do not name it. Verbs objects go on working, and are destroyed as always.
/// False: no such device, or removed already. reset() brings it back.
bool remove_device(std::string_view name);

/// The kernel gets round to the two ends of a connection one after the other, so that the younger may first get DISCONNECTED from the
/// end of the older, and then DEVICE_REMOVAL. Off by default.
void set_removal_disconnects(bool disconnects);

/// Whether librdmacm has closed the context of a removed device. For this the program must have called rdma_get_devices after the
/// removal, while another device was left (else it fails, and nothing is noticed), and no id and no list may refer to it any more.
bool device_gone(std::string_view name);

/// A removed device cuts its users off, as a driver may that knows how (rxe and siw do not): ibv_destroy_..., ibv_dealloc_... and
/// ibv_dereg_mr, and the modifying calls, fail with EIO, free nothing, and never will; each context hears IBV_EVENT_DEVICE_FATAL.
/// Objects whose destroy has failed so are counted by lost(), and no longer by live() and leaks(). Set it before remove_device.
void set_disassociated_destroys_fail(bool fail);
std::size_t lost();

/// What ibv_import_dm takes for this memory: its member `handle`, which headers before rdma-core 35 do not have.
std::uint32_t handle_of(ibv_dm const* memory);

/// What ibv_is_fork_initialized says: IBV_FORK_DISABLED until ibv_fork_init, unless told otherwise.
void set_fork_status(int status);

/// Whether a connection's end is followed by TIMEWAIT_EXIT on RoCE (the default; iWARP has none).
void set_timewait(bool timewait);

/// How long a call waits for another thread's ack, and a synchronous id for its event, before that is called a hang (5 s).
void set_patience(std::chrono::milliseconds patience);

// ---- What happened --------------------------------------------------------------------------------------------
struct call {
    std::string function;
    void const* object; ///< the first pointer argument
};

std::vector<call> calls();
std::size_t count(std::string_view function);
std::size_t count(std::string_view function, void const* object);
void clear_calls();

/// One line for each call that would have waited for ever in C. Such a call returns as if it had failed (EDEADLK) and frees nothing.
/// With more than one thread in the fake, a call first waits up to five seconds for another thread's ack.
std::vector<std::string> would_hang();

struct population {
    std::size_t channels, ids, events, qps, cqs, comp_channels, pds, mrs, srqs, ahs, default_pds;
    std::size_t mws, groups, contexts, lists, xrcds, default_xrcds; ///< groups: joined, not left; contexts: opened, not closed; lists: of devices and addresses
    std::size_t tds, dms, dmahs, wqs, tables, flows, flow_actions, counters; ///< parent domains are among the PDs; tables: of WQs
    friend bool operator==(population const&, population const&) = default;
};
population live();          ///< Objects made and not destroyed (default_pds: librdmacm's own, one per device in use, like default_xrcds; events: got, not acked).
std::string leaks();        ///< Empty when nothing is left; else one line naming what is.
std::uint32_t unacked(rdma_cm_id const* id); ///< Events charged to the id, handed out and not acked.
std::uint32_t unacked(ibv_cq const* cq);     ///< Completion events delivered and not acked.
std::size_t queued(rdma_event_channel const* channel); ///< Events waiting to be got.
std::vector<std::string> misuse(); ///< Calls on dead objects, double acks, EBUSY returned: one line each. Empty for a correct program.

/// True while the calling thread is inside the fake: a test's operator new uses it to leave the fake's own allocations out.
bool inside() noexcept;

// ---- Faults ---------------------------------------------------------------------------------------------------
/// The nth call (1 = the next) of this function fails with `code` in the place its convention names, and a different, wrong
/// code (`decoy`) in the other place (errno for functions that return the code, and so on). Faults add up.
void fail(std::string_view function, unsigned nth, int code);

/// The nth call from now of any function that can fail, fails, with a code of its own.
void fail_any(unsigned nth);

/// Takes back every fault that has not struck yet.
void disarm();

struct failure {
    std::string function; ///< empty: the armed fault has not been reached
    int code;
};
failure failed(); ///< The last fault that struck.
inline constexpr int decoy = ENOTTY;

// ---- Lingering ------------------------------------------------------------------------------------------------
/// The next call of this function calls the hook when its work is done, just before it returns to the program: on the thread that
/// made the call, with the fake free for other threads and for the hook itself, and with inside() false. So a test can let a call
/// linger: a destroy whose memory is handed out again before it returns, for example. What the call returns and its errno are
/// kept. Each hook serves one call, whether that succeeds or fails; hooks for one function are used in the order they were set,
/// and one that is wanted at every call sets itself again. A hook must not throw.
void on_return(std::string_view function, std::function<void()> hook);

/// The same, for the next call of the function with this first pointer argument.
void on_return(std::string_view function, void const* object, std::function<void()> hook);

/// Forgets the hooks that were not called.
void clear_on_return();

// ---- Driving it event by event --------------------------------------------------------------------------------
struct event_spec {
    int type; ///< of rdma_cm_event_type, or a number that the C header does not know
    int status = 0;
    void const* private_data = nullptr;
    std::uint8_t private_data_len = 0;
    std::uint64_t arg = 0; ///< of a user event (rdma-core 60)
};
/// Queues an event for an id on its channel, charged as the real library would charge it.
void push(rdma_cm_id* id, event_spec const& spec);
/// The same for a MULTICAST_JOIN or MULTICAST_ERROR of one of its groups, which is charged as well; without a group it is the newest.
void push(rdma_cm_id* id, sockaddr const* group, event_spec const& spec);
/// The next join that a call begins, of whatever id, ends in MULTICAST_ERROR with this status.
void fail_join(int status);
/// Queues a CONNECT_REQUEST on a listener; the new id appears when it is got.
void push_request(rdma_cm_id* listener, void const* private_data = nullptr, std::uint8_t len = 0);
/// A completion event of this CQ on its channel / an async event of this object on its context.
void push_cq_event(ibv_cq* cq);
void push_async(ibv_qp* qp, ibv_event_type type);
void push_async(ibv_cq* cq, ibv_event_type type);
void push_async(ibv_srq* srq, ibv_event_type type);
void push_async(ibv_wq* wq, ibv_event_type type);
void push_async(ibv_context* context, ibv_event_type type, int port = 1);
/// A completion put straight into a CQ (no notification unless armed).
void push_completion(ibv_cq* cq, ibv_wc const& wc);
/// The same, with what only an extended CQ can tell.
struct completion_extras {
    std::uint16_t cvlan = 0;
    std::uint32_t flow_tag = 0;
    std::uint64_t tag = 0;  ///< of ibv_wc_tm_info, like
    std::uint32_t priv = 0; ///< this
};
void push_completion(ibv_cq* cq, ibv_wc const& wc, completion_extras const& extras);
/// The next ibv_req_notify_cq on this CQ puts the completion in and raises no event: the race of every arm-then-wait loop.
void complete_while_arming(ibv_cq* cq, ibv_wc const& wc);

/// What ibv_modify_cq has set, and what ibv_read_counters is to tell of a counter (nothing counts by itself).
ibv_moderate_cq moderation(ibv_cq const* cq);
void set_counter(ibv_counters* counters, std::uint32_t index, std::uint64_t value);

/// The contexts of the two devices.
ibv_context* rxe_context();
ibv_context* siw_context();

} // namespace fake
