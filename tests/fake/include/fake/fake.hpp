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
    std::size_t mws, groups, contexts, lists; ///< groups: joined, not left; contexts: opened, not closed; lists: of devices and addresses
    friend bool operator==(population const&, population const&) = default;
};
population live();          ///< Objects made and not destroyed (default_pds: librdmacm's own, one per device in use; events: got, not acked).
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

// ---- Driving it event by event --------------------------------------------------------------------------------
struct event_spec {
    int type; ///< of rdma_cm_event_type, or a number that the C header does not know
    int status = 0;
    void const* private_data = nullptr;
    std::uint8_t private_data_len = 0;
};
/// Queues an event for an id on its channel, charged as the real library would charge it.
void push(rdma_cm_id* id, event_spec const& spec);
/// Queues a CONNECT_REQUEST on a listener; the new id appears when it is got.
void push_request(rdma_cm_id* listener, void const* private_data = nullptr, std::uint8_t len = 0);
/// A completion event of this CQ on its channel / an async event of this object on its context.
void push_cq_event(ibv_cq* cq);
void push_async(ibv_qp* qp, ibv_event_type type);
void push_async(ibv_cq* cq, ibv_event_type type);
void push_async(ibv_srq* srq, ibv_event_type type);
void push_async(ibv_context* context, ibv_event_type type);
/// A completion put straight into a CQ (no notification unless armed).
void push_completion(ibv_cq* cq, ibv_wc const& wc);
/// The next ibv_req_notify_cq on this CQ puts the completion in and raises no event: the race of every arm-then-wait loop.
void complete_while_arming(ibv_cq* cq, ibv_wc const& wc);

/// The contexts of the two devices.
ibv_context* rxe_context();
ibv_context* siw_context();

} // namespace fake
