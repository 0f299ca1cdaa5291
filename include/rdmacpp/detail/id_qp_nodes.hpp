// SPDX-License-Identifier: MIT
// The QP of an id, and the CQs and channels that librdmacm makes for it: in a gets' reach only while they are hooked to
// the id.
#pragma once

#include "../config.hpp"
#if __cplusplus >= 202002L // below, config.hpp says what to do

#include "channel_state.hpp"
#include "id_record.hpp"
#include "verbs_node.hpp"

#include <new>
#include <utility>

namespace rdma::inline RDMACPP_ABI::detail {

struct qp_node : verbs_node {
    qp_node() noexcept
        : verbs_node(
              &verbs_node::last<qp_node>, [](void* p) noexcept { return ::ibv_destroy_qp(static_cast<ibv_qp*>(p)); },
              "ibv_destroy_qp") {}
};

/// The nodes for them, made before the C call, since nothing may fail after it; what is not used goes again.
struct id_qp_nodes {
    id_qp_nodes(bool own_send_cq, bool own_recv_cq) noexcept {
        complete = qp != nullptr;
        for (cq_with_channel* const own : {own_send_cq ? &send : nullptr, own_recv_cq ? &recv : nullptr})
            if (own) {
                own->channel = new (std::nothrow) comp_channel_node;
                own->cq = new (std::nothrow) cq_node;
                complete = complete && own->channel && own->cq;
            }
    }
    id_qp_nodes(id_qp_nodes const&) = delete;
    id_qp_nodes& operator=(id_qp_nodes const&) = delete;
    ~id_qp_nodes() {
        delete qp;
        for (cq_with_channel const& unused : {send, recv}) {
            delete unused.cq;
            delete unused.channel;
        }
    }

    /// Gives the QP that C has just made for an id its pins: on the PD and CQs of the program, and on what is the id's
    /// own.
    void hook(id_record& id, ibv_pd* default_pd, pinnable* pd, cq_node* send_cq, cq_node* recv_cq) noexcept {
        rdma_cm_id const& c = *id.raw;
        id.default_pd = default_pd;
        id.send_cq = open(send, c.send_cq, c.send_cq_channel, id);
        id.recv_cq = open(recv, c.recv_cq, c.recv_cq_channel, id);
        id.qp = take(qp);
        id.qp->open(c.qp, pd, send_cq ? send_cq : id.send_cq, recv_cq ? recv_cq : id.recv_cq, &id);
        unpin(id.send_cq); // kept by the QP, its events, and what the program makes with it
        unpin(id.recv_cq);
    }

    /// The same for a QP that C made: what it uses is kept, as far as it is ours.
    void adopt(id_record& id) noexcept {
        ibv_qp const& c = *id.raw->qp;
        verbs_node* known[3] = {};
        void const* const used[3] = {c.pd, id.raw->send_cq ? nullptr : c.send_cq,
                                     id.raw->recv_cq ? nullptr : c.recv_cq};
        for (int i = 0; i != 3; ++i)
            if (verbs_table::get().find_and_pin(used[i], known[i]) != verbs_table::found::pinned)
                known[i] = nullptr;
        hook(id, id.raw->pd, known[0], static_cast<cq_node*>(known[1]), static_cast<cq_node*>(known[2]));
        for (verbs_node* const node : known)
            unpin(node);
    }

    bool complete = false;

private:
    struct cq_with_channel {
        comp_channel_node* channel = nullptr;
        cq_node* cq = nullptr;
    };

    static cq_node* open(cq_with_channel& own, ibv_cq* cq, ibv_comp_channel* channel, id_record& id) noexcept {
        if (!own.cq || !cq)
            return nullptr;
        int flags;
        set_nonblocking(channel->fd, flags);
        own.channel->open(channel, &id);
        own.cq->channel = own.channel;
        own.cq->open(cq, own.channel);
        unpin(take(own.channel));
        return take(own.cq);
    }

    qp_node* qp = new (std::nothrow) qp_node;
    cq_with_channel send, recv;
};

} // namespace rdma::inline RDMACPP_ABI::detail

#endif
