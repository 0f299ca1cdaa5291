// SPDX-License-Identifier: MIT
// What the library knows of one rdma_cm_id.
#pragma once

#include "../config.hpp"
#if __cplusplus >= 202002L && !defined(RDMACPP_TWO_VERSIONS) // otherwise config.hpp says what to do

#include "../event_type.hpp"
#include "atomic.hpp"
#include "c_api.hpp"
#include "join_record.hpp"
#include "pin.hpp"
#include "verbs_node.hpp"

#include <cstddef>
#include <cstdint>
#include <utility>

namespace rdma::inline RDMACPP_ABI::detail {

struct channel_state;

/// Whose an id is.
enum class id_status : std::uint8_t {
    foreign,  ///< C's: it is only counted while an event of it is held.
    in_event, ///< A new id that its CONNECT_REQUEST event owns.
    lent,     ///< As in_event, and the event is released to C: whoever adopts the one or the other has it.
    owned,    ///< A cm_id's.
    released, ///< A cm_id's once, C's now, until it is adopted back.
    dropped,  ///< Its cm_id is gone: it dies with the last pin, and what still arrives for it is swallowed.
};

/// What accept and reject may do: a reject on an active id would block its destroy for 102 seconds.
enum class request_state : std::uint8_t {
    none,      ///< Not from a CONNECT_REQUEST.
    undecided, ///< From a CONNECT_REQUEST, neither accepted nor rejected.
    decided,   ///< Accepted or rejected.
    unknown,   ///< Adopted from C: it may be a request.
};

/// A state that is looked at without a lock, too. Of bytes: std::atomic of an enumeration costs every includer more.
template <class State>
class atomic_state {
public:
    explicit atomic_state(State initial) noexcept : value_(static_cast<unsigned char>(initial)) {}

    State load() const noexcept { return static_cast<State>(value_.load(order::acquire)); }
    void store(State next) noexcept { value_.store(static_cast<unsigned char>(next), order::release); }
    State exchange(State next) noexcept {
        return static_cast<State>(value_.exchange(static_cast<unsigned char>(next), order::acq_rel));
    }
    /// Goes from one state to another; false if it was not in the first.
    bool replace(State from, State to) noexcept {
        auto expected = static_cast<unsigned char>(from);
        return value_.compare_exchange(expected, static_cast<unsigned char>(to), order::acq_rel);
    }

private:
    detail::atomic<unsigned char> value_;
};

/// The held events of one type, and how many of them are released to C.
struct event_tally {
    std::uint32_t held = 0;                    // under the channel's mutex
    detail::atomic<std::uint32_t> released{0}; // release() takes no lock
};

/// Pinned by its owner, by each event that names it, and by each verbs object that depends on it.
struct id_record : pinnable {
    static constexpr std::size_t known_types = RDMA_CM_EVENT_TIMEWAIT_EXIT + 1;
    static constexpr std::size_t tallies = known_types + 1; // the last is for every newer type

    explicit id_record(channel_state& home) noexcept;

    void const* key() const noexcept { return raw; }

    event_tally& tally(cm_event_type type) noexcept {
        auto const index = static_cast<std::size_t>(type);
        return held_events[index < known_types ? index : known_types];
    }

    bool has(id_status s) const noexcept { return status.load() == s; }

    /// The QP and SRQ go to C with the id, and what librdmacm made for them. No lock and no C call.
    void surrender_qp() noexcept {
        for (verbs_node* const own :
             {qp, static_cast<verbs_node*>(send_cq), static_cast<verbs_node*>(recv_cq), channel_of(send_cq),
              channel_of(recv_cq), srq, static_cast<verbs_node*>(srq_cq), channel_of(srq_cq)})
            if (own) {
                pin(own); // dropped when it comes back, or its address is found used again
                own->surrender();
            }
    }

    /// The id came back from C: with its SRQ and QP, unless C destroyed them.
    void take_qp_back() noexcept {
        if (srq && take_back(srq, raw->srq == srq->raw, {srq_cq, channel_of(srq_cq)}))
            srq->need_again({raw->srq->pd}, this);
        if (!srq)
            srq_cq = nullptr;
        if (qp && take_back(qp, raw->qp == qp->raw, {send_cq, recv_cq, channel_of(send_cq), channel_of(recv_cq)}))
            qp->need_again({raw->qp->pd, raw->qp->send_cq, raw->qp->recv_cq, raw->qp->srq}, this);
        if (!qp)
            send_cq = recv_cq = nullptr;
        for (cq_node* const cq : {send_cq, recv_cq, srq_cq})
            if (cq)
                cq->channel->need_again({}, this);
    }

    rdma_cm_id* raw = nullptr;
    id_record* next = nullptr;  // in the channel's table, or among its spares
    channel_state* channel;     // kept alive while this has pins; another one after migrate
    verbs_node* qp = nullptr;   // of create_qp; pinned
    cq_node* send_cq = nullptr; // the CQs that librdmacm made for it: pinned by the QP; their channels pin the id
    cq_node* recv_cq = nullptr;
    verbs_node* srq = nullptr;    // of create_srq; pinned
    cq_node* srq_cq = nullptr;    // the CQ that librdmacm made for it, if it is an XRC one: pinned by it
    join_record* joins = nullptr; // its multicast groups; under the channel's mutex
    ibv_pd* default_pd = nullptr; // what id->pd was before create_qp put the user's there
    atomic_state<id_status> status{id_status::foreign};
    atomic_state<request_state> request{request_state::none};
    detail::atomic<bool> active{false};     // connect or accept went through: there may be somebody to tell
    detail::atomic<bool> ended{false};      // a DISCONNECTED was got
    detail::atomic<bool> removed{false};    // a DEVICE_REMOVAL was got
    detail::atomic<bool> multicasts{false}; // it joined a group once
    bool listening = false;                 // the owner's to look at
    detail::atomic<std::uint32_t> named{0}; // held CONNECT_REQUESTs that brought it: under the mutex of their channel
    bool listed = false;                    // in the channel's table; under its mutex, like all that follows
    bool leaked = false;                    // its destroy failed
    std::uint32_t events = 0;               // held events that its destroy waits for
    event_tally held_events[tallies];

private:
    static verbs_node* channel_of(cq_node const* cq) noexcept { return cq ? cq->channel : nullptr; }

    /// Takes back what C had, and what goes with it; false, and it is forgotten, if C destroyed it meanwhile.
    static bool take_back(verbs_node*& main, bool there, std::initializer_list<verbs_node*> parts) noexcept {
        for (verbs_node* const part : parts)
            if (part && part->take_back(there))
                unpin(part);
        if (main->take_back(there))
            unpin(main);
        if (!there)
            unpin(take(main)); // surrendered: nothing is destroyed
        return there;
    }
};

} // namespace rdma::inline RDMACPP_ABI::detail

#endif
