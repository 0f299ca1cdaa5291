// SPDX-License-Identifier: MIT
// The QP and SRQ of an id, and the CQs and channels that librdmacm makes for them: in a get's reach only while they are
// hooked to the id.
#pragma once

#include "../config.hpp"
#if __cplusplus >= 202002L && !defined(RDMACPP_TWO_VERSIONS) // otherwise config.hpp says what to do

#include "channel_state.hpp"
#include "id_record.hpp"
#include "verbs_node.hpp"

#include <new>
#include <utility>

namespace rdma::inline RDMACPP_ABI::detail {

/// What the program gave for a QP or SRQ, to be kept alive by it.
struct qp_uses {
    pinnable* pd = nullptr;
    cq_node* send_cq = nullptr;
    cq_node* recv_cq = nullptr;
    pinnable* srq = nullptr;
    pinnable* xrcd = nullptr;
    pinnable* rwq_ind_tbl = nullptr;
    bool maybe_ex = true; // see qp_node
};

/// The node of a CQ that librdmacm makes, and of its channel.
struct own_cq_nodes {
    own_cq_nodes() noexcept = default;
    own_cq_nodes(own_cq_nodes const&) = delete;
    own_cq_nodes& operator=(own_cq_nodes const&) = delete;
    ~own_cq_nodes() {
        delete cq;
        delete channel;
    }

    bool allocate() noexcept {
        channel = new (std::nothrow) comp_channel_node;
        cq = new (std::nothrow) cq_node;
        return channel && cq;
    }

    /// Null if librdmacm made none after all. The caller gets the first pin.
    cq_node* open(ibv_cq* c, ibv_comp_channel* c_channel, id_record& id) noexcept {
        if (!cq || !c)
            return nullptr;
        channel->open(c_channel, {&id});
        cq->channel = channel;
        cq->open(c, {channel});
        unpin(take(channel));
        return take(cq);
    }

    comp_channel_node* channel = nullptr;
    cq_node* cq = nullptr;
};

/// The nodes for a QP, made before the C call, since nothing may fail after it; what is not used goes again.
struct id_qp_nodes {
    id_qp_nodes(bool own_send_cq, bool own_recv_cq) noexcept
        : complete(qp && (!own_send_cq || send.allocate()) && (!own_recv_cq || recv.allocate())) {}
    id_qp_nodes(id_qp_nodes const&) = delete;
    id_qp_nodes& operator=(id_qp_nodes const&) = delete;
    ~id_qp_nodes() { delete qp; }

    /// Gives the QP that C has just made for an id its pins: on what the program gave, and on what is the id's own.
    void hook(id_record& id, ibv_pd* default_pd, qp_uses const& given) noexcept {
        rdma_cm_id const& c = *id.raw;
        id.default_pd = default_pd;
        id.send_cq = send.open(c.send_cq, c.send_cq_channel, id);
        id.recv_cq = recv.open(c.recv_cq, c.recv_cq_channel, id);
        qp->maybe_ex = given.maybe_ex;
        id.qp = take(qp);
        pinnable* const recv_cq = given.recv_cq ? given.recv_cq : id.recv_cq ? id.recv_cq : id.srq_cq;
        id.qp->open(c.qp, {given.pd, given.send_cq ? given.send_cq : id.send_cq, recv_cq,
                           given.srq ? given.srq : id.srq, given.xrcd, given.rwq_ind_tbl, &id});
        unpin(id.send_cq); // kept by the QP, its events, and what the program makes with it
        unpin(id.recv_cq);
    }

    /// The same for a QP that C made: what it uses is kept, as far as it is ours.
    void adopt(id_record& id) noexcept {
        ibv_qp const& c = *id.raw->qp;
        verbs_node* known[4] = {};
        void const* const used[4] = {c.pd, id.raw->send_cq ? nullptr : c.send_cq, id.raw->recv_cq ? nullptr : c.recv_cq,
                                     id.raw->srq ? nullptr : c.srq};
        for (int i = 0; i != 4; ++i)
            if (verbs_table::get().find_and_pin(used[i], known[i]) != verbs_table::found::pinned)
                known[i] = nullptr;
        hook(id, id.raw->pd,
             {known[0], static_cast<cq_node*>(known[1]), static_cast<cq_node*>(known[2]), known[3], nullptr});
        for (verbs_node* const node : known)
            unpin(node);
    }

    qp_node* qp = new (std::nothrow) qp_node;
    own_cq_nodes send, recv;
    bool complete;
};

/// The same for an SRQ. librdmacm makes a CQ for an XRC one that is given none.
struct id_srq_nodes {
    explicit id_srq_nodes(bool own_cq) noexcept : complete(srq && (!own_cq || cq.allocate())) {}
    id_srq_nodes(id_srq_nodes const&) = delete;
    id_srq_nodes& operator=(id_srq_nodes const&) = delete;
    ~id_srq_nodes() { delete srq; }

    void hook(id_record& id, qp_uses const& given) noexcept {
        rdma_cm_id const& c = *id.raw;
        id.srq_cq = cq.open(c.recv_cq, c.recv_cq_channel, id);
        id.srq = take(srq);
        id.srq->open(c.srq, {given.pd, given.recv_cq ? given.recv_cq : id.srq_cq, given.xrcd, &id});
        unpin(id.srq_cq);
    }

    /// The same for an SRQ that C made.
    void adopt(id_record& id) noexcept {
        verbs_node* pd = nullptr;
        if (verbs_table::get().find_and_pin(id.raw->srq->pd, pd) != verbs_table::found::pinned)
            pd = nullptr;
        hook(id, {pd, nullptr, nullptr, nullptr, nullptr});
        unpin(pd);
    }

    srq_node* srq = new (std::nothrow) srq_node;
    own_cq_nodes cq;
    bool complete;
};

} // namespace rdma::inline RDMACPP_ABI::detail

#endif
