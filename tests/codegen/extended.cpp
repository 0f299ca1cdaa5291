// SPDX-License-Identifier: MIT
// Extended completion queues and queue pairs, in C and here: see codegen.py.
#include <rdmacpp/cq_ex.hpp>
#include <rdmacpp/qp_ex.hpp>

#include <cerrno>
#include <cstdint>
#include <new>

using std::uint32_t;
using std::uint64_t;

extern "C" {

// Start, next, end: the bytes of what succeeded.
uint64_t c_poll_ex(ibv_cq_ex* cq) noexcept {
    uint64_t bytes = 0;
    ibv_poll_cq_attr attr{};
    int why = ibv_start_poll(cq, &attr);
    bool const started = why == 0;
    for (; why == 0; why = ibv_next_poll(cq)) {
        if (cq->status == IBV_WC_SUCCESS)
            bytes += ibv_wc_read_byte_len(cq);
    }
    if (started)
        ibv_end_poll(cq);
    return bytes;
}
uint64_t cpp_poll_ex(ibv_cq_ex* cq) noexcept {
    uint64_t bytes = 0;
    rdma::polling polling(cq);
    for (auto& completion : polling) {
        if (completion.status() == rdma::wc_status::success)
            bytes += completion.success().byte_len();
    }
    return bytes;
}

// The same without a range.
uint64_t c_poll_ex_do(ibv_cq_ex* cq) noexcept {
    uint64_t bytes = 0;
    ibv_poll_cq_attr attr{};
    if (ibv_start_poll(cq, &attr) != 0)
        return bytes;
    do {
        if (cq->status == IBV_WC_SUCCESS)
            bytes += ibv_wc_read_byte_len(cq);
    } while (ibv_next_poll(cq) == 0);
    ibv_end_poll(cq);
    return bytes;
}
uint64_t cpp_poll_ex_do(ibv_cq_ex* cq) noexcept {
    uint64_t bytes = 0;
    rdma::polling polling(cq);
    if (!polling)
        return bytes;
    do {
        if (polling.status() == rdma::wc_status::success)
            bytes += polling.success().byte_len();
        polling.next();
    } while (polling);
    return bytes;
}

// The first that failed ends it, on a path of its own.
uint64_t c_poll_ex_stop(ibv_cq_ex* cq, uint64_t* failed) noexcept {
    uint64_t bytes = 0;
    ibv_poll_cq_attr attr{};
    if (ibv_start_poll(cq, &attr) != 0)
        return bytes;
    do {
        if (cq->status != IBV_WC_SUCCESS) {
            *failed = cq->wr_id;
            break;
        }
        bytes += ibv_wc_read_byte_len(cq);
    } while (ibv_next_poll(cq) == 0);
    ibv_end_poll(cq);
    return bytes;
}
uint64_t cpp_poll_ex_stop(ibv_cq_ex* cq, uint64_t* failed) noexcept {
    uint64_t bytes = 0;
    rdma::polling polling(cq);
    if (!polling)
        return bytes;
    do {
        if (polling.status() != rdma::wc_status::success) {
            *failed = polling.wr_id();
            break;
        }
        bytes += polling.success().byte_len();
        polling.next();
    } while (polling);
    return bytes;
}

// Requests written into the queue
// ---------------------------------------------------------------------------------------

int c_wr_write(ibv_qp_ex* qp, ibv_sge const* from, uint64_t address, uint32_t rkey) noexcept {
    ibv_wr_start(qp);
    qp->wr_id = 7;
    qp->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_rdma_write(qp, rkey, address);
    ibv_wr_set_sge(qp, from->lkey, from->addr, from->length);
    return ibv_wr_complete(qp);
}
std::errc cpp_wr_write(ibv_qp_ex* qp, ibv_sge const* from, uint64_t address, uint32_t rkey) noexcept {
    rdma::wr_batch batch(qp);
    batch.request(7, IBV_SEND_SIGNALED).write({address, rkey}).sge(*from);
    return batch.complete(std::nothrow);
}

int c_wr_sends(ibv_qp_ex* qp, ibv_sge const* from, uint64_t count) noexcept {
    ibv_wr_start(qp);
    for (uint64_t i = 0; i != count; ++i) {
        qp->wr_id = i;
        qp->wr_flags = 0;
        ibv_wr_send(qp);
        ibv_wr_set_sge(qp, from[i].lkey, from[i].addr, from[i].length);
    }
    return ibv_wr_complete(qp);
}
std::errc cpp_wr_sends(ibv_qp_ex* qp, ibv_sge const* from, uint64_t count) noexcept {
    rdma::wr_batch batch(qp);
    for (uint64_t i = 0; i != count; ++i)
        batch.request(i).send().sge(from[i]);
    return batch.complete(std::nothrow);
}

// Ended half way.
int c_wr_abort(ibv_qp_ex* qp, ibv_sge const* from, uint64_t count) noexcept {
    ibv_wr_start(qp);
    for (uint64_t i = 0; i != count; ++i) {
        if (from[i].length == 0) {
            ibv_wr_abort(qp);
            return EINVAL;
        }
        qp->wr_id = i;
        qp->wr_flags = IBV_SEND_SIGNALED;
        ibv_wr_send(qp);
        ibv_wr_set_sge(qp, from[i].lkey, from[i].addr, from[i].length);
    }
    return ibv_wr_complete(qp);
}
std::errc cpp_wr_abort(ibv_qp_ex* qp, ibv_sge const* from, uint64_t count) noexcept {
    rdma::wr_batch batch(qp);
    for (uint64_t i = 0; i != count; ++i) {
        if (from[i].length == 0)
            return std::errc::invalid_argument;
        batch.request(i, IBV_SEND_SIGNALED).send().sge(from[i]);
    }
    return batch.complete(std::nothrow);
}

// The forms that throw ------------------------------------------------------------------------------------------------

void c_wr_one(ibv_qp_ex* qp, ibv_sge const* from, uint32_t imm) noexcept {
    ibv_wr_start(qp);
    qp->wr_id = 7;
    qp->wr_flags = 0;
    ibv_wr_send_imm(qp, imm);
    ibv_wr_set_sge(qp, from->lkey, from->addr, from->length);
    ibv_wr_complete(qp);
}
void throws_wr_one(ibv_qp_ex* qp, ibv_sge const* from, uint32_t imm) {
    rdma::wr_batch batch(qp);
    batch.request(7).send_imm(imm).sge(*from);
    batch.complete();
}

} // extern "C"
