// SPDX-License-Identifier: MIT
/// @file
/// Two QPs of the program's own, connected to each other on a device that it opened: the data path without ids.
#pragma once

#include "support.hpp"

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

namespace unit {

/// A world whose rxe0 can do all that the C header knows.
struct featured : world {
    featured() { fake::set_all_features(true); }
};

inline rdma::context open_device(char const* name = "rxe0") {
    return rdma::context(rdma::device_list::get().find(name));
}

/// What is there, in order.
inline std::vector<rdma::work_completion> all_of(rdma::cq_ref cq) {
    std::vector<rdma::work_completion> all(64);
    all.resize(cq.poll(all).size());
    return all;
}

/// The only completion that is there.
inline rdma::work_completion only(rdma::cq_ref cq) {
    auto const all = all_of(cq);
    REQUIRE(all.size() == 1);
    return all[0];
}

/// The least that C makes a flow of, and an address handle.
inline ibv_flow_attr any_flow() {
    ibv_flow_attr attr{};
    attr.size = sizeof attr;
    attr.port = 1;
    return attr;
}
inline ibv_ah_attr any_peer() {
    ibv_ah_attr attr{};
    attr.port_num = 1;
    attr.is_global = 1;
    return attr;
}

inline constexpr rdma::access every_access = rdma::access::local_write | rdma::access::remote_write |
                                             rdma::access::remote_read | rdma::access::remote_atomic |
                                             rdma::access::mw_bind;

/// Every request that a connected QP may be written through ibv_wr_start.
inline constexpr std::uint64_t every_request =
    IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_SEND_WITH_INV | IBV_QP_EX_WITH_RDMA_WRITE |
    IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
    IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_BIND_MW |
    IBV_QP_EX_WITH_ATOMIC_WRITE;

/// Takes a connected QP up to RTS, towards another one of the same device.
inline void bring_up(rdma::qp_ref qp, std::uint32_t peer) {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    attr.qp_access_flags = static_cast<unsigned>(every_access & ~rdma::access::mw_bind);
    qp.modify(attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
    attr.qp_state = IBV_QPS_RTR;
    attr.ah_attr.port_num = 1;
    attr.path_mtu = IBV_MTU_1024;
    attr.dest_qp_num = peer;
    attr.max_dest_rd_atomic = 16;
    qp.modify(attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                        IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
    attr.qp_state = IBV_QPS_RTS;
    attr.max_rd_atomic = 16;
    qp.modify(attr, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                        IBV_QP_MAX_QP_RD_ATOMIC);
}

inline void bring_up_datagrams(rdma::qp_ref qp, std::uint32_t qkey) {
    ibv_qp_attr attr{};
    attr.port_num = 1;
    attr.qkey = qkey;
    for (ibv_qp_state const state : {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS}) {
        attr.qp_state = state;
        qp.modify(attr, IBV_QP_STATE | (state == IBV_QPS_INIT ? IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY : 0));
    }
}

/// The bytes of a number, as atomics change them.
inline std::uint64_t number_at(std::byte const* memory) {
    std::uint64_t number = 0;
    std::memcpy(&number, memory, sizeof number);
    return number;
}
inline void put_number(std::byte* memory, std::uint64_t number) { std::memcpy(memory, &number, sizeof number); }

/// `left` sends to `right`. What was sent completes on `sends`, what was received on `receives`.
struct loopback : featured {
    static constexpr rdma::qp_cap cap = {
        .max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 3, .max_recv_sge = 3, .max_inline_data = 32};

    rdma::context device = open_device();
    rdma::pd pd{device};
    rdma::comp_channel bell{device};
    rdma::cq sends{device, 64, bell}, receives{device, 64, bell};
    alignas(8) std::array<std::byte, 64> here{};
    alignas(8) std::array<std::byte, 64> there{};
    rdma::mr ours{pd, here, every_access}, theirs{pd, there, every_access};
    rdma::qp left = make_qp(), right = make_qp();

    loopback() {
        connect();
        for (std::size_t i = 0; i != here.size(); ++i)
            here[i] = static_cast<std::byte>(i + 1);
    }
    loopback(loopback const&) = delete;
    loopback& operator=(loopback const&) = delete;

    rdma::qp make_qp() const {
        return rdma::qp(pd, rdma::qp_type::rc,
                        rdma::qp_init_attr_ex{.attr = {.send_cq = sends, .recv_cq = receives, .cap = cap},
                                              .send_ops_flags = every_request});
    }
    void connect() const {
        bring_up(left, right.qp_num());
        bring_up(right, left.qp_num());
    }
};

} // namespace unit
