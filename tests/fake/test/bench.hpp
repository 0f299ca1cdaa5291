// SPDX-License-Identifier: MIT
//
// For the cases about what only a device with set_all_features can do: a context with it, and two QPs on it.
#pragma once

#include "support.hpp"

#include <array>

namespace selftest {

/// A context opened for the case, with a PD and a CQ.
struct bench {
    explicit bench(bool all = true)
    {
        fake::set_all_features(all);
        auto** const list = ibv_get_device_list(nullptr);
        context = ibv_open_device(list[0]);
        ibv_free_device_list(list);
        REQUIRE(context != nullptr);
        pd = ibv_alloc_pd(context);
        cq = ibv_create_cq(context, 16, this, nullptr, 0);
    }
    bench(bench const&) = delete;
    bench& operator=(bench const&) = delete;
    ~bench()
    {
        CHECK(ibv_destroy_cq(cq) == 0);
        CHECK(ibv_dealloc_pd(pd) == 0);
        CHECK(ibv_close_device(context) == 0);
    }

    ibv_qp_init_attr_ex qp_attr(ibv_qp_type type, std::uint64_t ops = 0) const
    {
        ibv_qp_init_attr_ex attr{};
        attr.send_cq = attr.recv_cq = cq;
        attr.cap = small_qp().cap;
        attr.qp_type = type;
        attr.comp_mask = IBV_QP_INIT_ATTR_PD | (ops != 0 ? unsigned{IBV_QP_INIT_ATTR_SEND_OPS_FLAGS} : 0U);
        attr.pd = pd;
        attr.send_ops_flags = ops;
        return attr;
    }

    ibv_context* context = nullptr;
    ibv_pd* pd = nullptr;
    ibv_cq* cq = nullptr;
};

inline void bring_up(ibv_qp* qp, ibv_qp* peer, unsigned access)
{
    ibv_qp_attr to{};
    to.port_num = 1;
    to.qp_access_flags = access;
    to.max_rd_atomic = to.max_dest_rd_atomic = 1;
    to.qkey = 5;
    to.qp_state = IBV_QPS_INIT;
    REQUIRE(ibv_modify_qp(qp, &to, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS | IBV_QP_QKEY) == 0);
    to.qp_state = IBV_QPS_RTR;
    to.dest_qp_num = peer != nullptr ? peer->qp_num : 0;
    REQUIRE(ibv_modify_qp(qp, &to, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0);
    to.qp_state = IBV_QPS_RTS;
    REQUIRE(ibv_modify_qp(qp, &to, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC) == 0);
}

inline constexpr std::uint64_t all_ops = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_SEND_WITH_INV | IBV_QP_EX_WITH_RDMA_WRITE
    | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD
    | IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_ATOMIC_WRITE;
inline constexpr unsigned all_access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND;

/// Two connected QPs whose requests are built by calls, and 64 bytes at either end.
struct pair_of_qps : bench {
    pair_of_qps()
    {
        auto attr = qp_attr(IBV_QPT_RC, all_ops);
        a = ibv_create_qp_ex(context, &attr);
        b = ibv_create_qp_ex(context, &attr);
        REQUIRE((a != nullptr && b != nullptr));
        bring_up(a, b, all_access);
        bring_up(b, a, all_access);
        builder = ibv_qp_to_qp_ex(a);
        here = ibv_reg_mr(pd, near.data(), sizeof near, all_access);
        there = ibv_reg_mr(pd, far.data(), sizeof far, all_access);
    }
    ~pair_of_qps()
    {
        CHECK(ibv_dereg_mr(here) == 0);
        CHECK(ibv_dereg_mr(there) == 0);
        CHECK(ibv_destroy_qp(a) == 0);
        CHECK(ibv_destroy_qp(b) == 0);
    }
    pair_of_qps(pair_of_qps const&) = delete;
    pair_of_qps& operator=(pair_of_qps const&) = delete;

    static std::uint64_t at(std::array<std::uint64_t, 8> const& memory) { return reinterpret_cast<std::uintptr_t>(memory.data()); }
    void start(std::uint64_t wr_id)
    {
        ibv_wr_start(builder);
        builder->wr_id = wr_id;
        builder->wr_flags = IBV_SEND_SIGNALED;
    }
    ibv_wc next()
    {
        ibv_wc wc{};
        REQUIRE(poll_one(cq, wc) == 1);
        return wc;
    }
    void receive(std::uint64_t wr_id, bool with_memory = true)
    {
        ibv_sge piece{at(far), sizeof far, there->lkey};
        ibv_recv_wr wr{wr_id, nullptr, &piece, with_memory ? 1 : 0}, *bad = nullptr;
        REQUIRE(ibv_post_recv(b, &wr, &bad) == 0);
    }

    ibv_qp* a = nullptr;
    ibv_qp* b = nullptr;
    ibv_qp_ex* builder = nullptr;
    std::array<std::uint64_t, 8> near{1, 2, 3, 4, 5, 6, 7, 8}, far{};
    ibv_mr* here = nullptr;
    ibv_mr* there = nullptr;
};

/// Whether exactly one misuse was noted since it was last asked, and how.
class misuse_watch {
public:
    bool operator()(char const* how)
    {
        auto const all = fake::misuse();
        bool const fresh = all.size() == seen_ + 1 && all.back().find(how) != std::string::npos;
        seen_ = all.size();
        return fresh;
    }

private:
    std::size_t seen_ = 0;
};

inline ibv_cq_ex* extended_cq(bench& on, std::uint64_t fields, int entries = 4)
{
    ibv_cq_init_attr_ex attr{};
    attr.cqe = static_cast<std::uint32_t>(entries);
    attr.wc_flags = fields;
    return ibv_create_cq_ex(on.context, &attr);
}

} // namespace selftest
