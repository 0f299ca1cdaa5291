// SPDX-License-Identifier: MIT
// Polling and arming a completion queue, in C and here: see codegen.py.
#include <rdmacpp/cq.hpp>
#include <rdmacpp/qp.hpp>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <new>

namespace {

struct c_session {
    ibv_cq* cq;
    void* own;
};
struct cpp_session {
    rdma::cq cq;
};

} // namespace

extern "C" {

int c_poll(ibv_cq* cq, ibv_wc* into, std::size_t most) noexcept {
    int n;
    do
        n = ibv_poll_cq(cq, static_cast<int>(most), into);
    while (n == 0);
    return n;
}
int cpp_poll(ibv_cq* raw, rdma::work_completion* into, std::size_t most) noexcept {
    rdma::cq_ref const cq = raw;
    int n;
    do
        n = cq.poll({into, most}, std::nothrow);
    while (n == 0);
    return n;
}

// Of a completion that failed, the request's number; else the number of bytes.
std::uint64_t c_drain(c_session* s, ibv_wc* into, std::size_t most) noexcept {
    std::uint64_t bytes = 0;
    for (;;) {
        int const n = ibv_poll_cq(s->cq, static_cast<int>(most), into);
        if (n <= 0)
            return bytes;
        for (int i = 0; i != n; ++i) {
            if (into[i].status != IBV_WC_SUCCESS)
                return into[i].wr_id;
            bytes += into[i].byte_len;
        }
    }
}
std::uint64_t cpp_drain(cpp_session* s, rdma::work_completion* into, std::size_t most) noexcept {
    std::uint64_t bytes = 0;
    for (;;) {
        int const n = s->cq.poll({into, most}, std::nothrow);
        if (n <= 0)
            return bytes;
        for (int i = 0; i != n; ++i) {
            if (!into[i])
                return into[i].wr_id();
            bytes += into[i].success().byte_len();
        }
    }
}

// Into an array of one's own, which nothing fills beforehand.
std::uint64_t c_array(ibv_cq* cq) noexcept {
    ibv_wc polled[16];
    std::uint64_t bytes = 0;
    for (int n; (n = ibv_poll_cq(cq, 16, polled)) > 0;) {
        for (int i = 0; i != n; ++i) {
            if (polled[i].status == IBV_WC_SUCCESS)
                bytes += polled[i].byte_len;
        }
    }
    return bytes;
}
std::uint64_t cpp_array(ibv_cq* raw) noexcept {
    rdma::cq_ref const cq = raw;
    rdma::work_completion polled[16];
    std::uint64_t bytes = 0;
    for (int n; (n = cq.poll(polled, std::nothrow)) > 0;) {
        for (int i = 0; i != n; ++i) {
            if (polled[i])
                bytes += polled[i].success().byte_len();
        }
    }
    return bytes;
}

int c_req_notify(ibv_cq* cq, int times) noexcept {
    for (int i = 0; i != times; ++i) {
        if (int const e = ibv_req_notify_cq(cq, 0); e != 0)
            return e;
    }
    return 0;
}
std::errc cpp_req_notify(ibv_cq* raw, int times) noexcept {
    rdma::cq_ref const cq = raw;
    for (int i = 0; i != times; ++i) {
        if (std::errc const e = cq.req_notify(false, std::nothrow); e != std::errc{})
            return e;
    }
    return {};
}

int c_req_notify_solicited(c_session* s, bool solicited_only) noexcept {
    int times = 0;
    while (ibv_req_notify_cq(s->cq, solicited_only) == 0)
        ++times;
    return times;
}
int cpp_req_notify_solicited(cpp_session* s, bool solicited_only) noexcept {
    int times = 0;
    while (s->cq.req_notify(solicited_only, std::nothrow) == std::errc{})
        ++times;
    return times;
}

// Polls, arms, and polls again what came in between.
int c_arm_and_poll(ibv_cq* cq, ibv_wc* into, int* reason) noexcept {
    for (bool armed = false;; armed = true) {
        if (int const n = ibv_poll_cq(cq, 1, into); n != 0 || armed)
            return n;
        if (int const e = ibv_req_notify_cq(cq, 0); e != 0) {
            *reason = e;
            return -1;
        }
    }
}
int cpp_arm_and_poll(ibv_cq* raw, rdma::work_completion* into, std::errc* reason) noexcept {
    rdma::cq_ref const cq = raw;
    for (bool armed = false;; armed = true) {
        if (int const n = cq.poll({into, 1}, std::nothrow); n != 0 || armed)
            return n;
        if (std::errc const e = cq.req_notify(false, std::nothrow); e != std::errc{}) {
            *reason = e;
            return -1;
        }
    }
}

// One turn of a ping-pong.
int c_turn(ibv_qp* qp, ibv_cq* cq, ibv_send_wr* send, ibv_recv_wr* recv, ibv_wc* into) noexcept {
    ibv_recv_wr* bad_recv;
    ibv_send_wr* bad_send;
    if (int const e = ibv_post_recv(qp, recv, &bad_recv); e != 0)
        return e;
    if (int const e = ibv_post_send(qp, send, &bad_send); e != 0)
        return e;
    int n;
    do
        n = ibv_poll_cq(cq, 1, into);
    while (n == 0);
    return n < 0 ? EIO : ibv_req_notify_cq(cq, 0);
}
std::errc cpp_turn(ibv_qp* raw, ibv_cq* raw_cq, ibv_send_wr* send, ibv_recv_wr* recv,
                   rdma::work_completion* into) noexcept {
    rdma::qp_ref const qp = raw;
    rdma::cq_ref const cq = raw_cq;
    ibv_recv_wr* bad_recv;
    ibv_send_wr* bad_send;
    if (std::errc const e = qp.post_recv(*recv, bad_recv, std::nothrow); e != std::errc{})
        return e;
    if (std::errc const e = qp.post_send(*send, bad_send, std::nothrow); e != std::errc{})
        return e;
    int n;
    do
        n = cq.poll({into, 1}, std::nothrow);
    while (n == 0);
    return n < 0 ? std::errc::io_error : cq.req_notify(false, std::nothrow);
}

// The forms that throw ------------------------------------------------------------------------------------------------

int c_poll_some(ibv_cq* cq, ibv_wc* into, std::size_t most) noexcept {
    int n;
    do
        n = ibv_poll_cq(cq, static_cast<int>(most), into);
    while (n == 0);
    return n;
}
int throws_poll_some(ibv_cq* raw, rdma::work_completion* into, std::size_t most) {
    rdma::cq_ref const cq = raw;
    std::span<rdma::work_completion> polled;
    do
        polled = cq.poll({into, most});
    while (polled.empty());
    return static_cast<int>(polled.size());
}

void c_arm(ibv_cq* cq, ibv_cq* other) noexcept {
    ibv_req_notify_cq(cq, 0);
    ibv_req_notify_cq(other, 1);
}
void throws_arm(ibv_cq* raw, ibv_cq* raw_other) {
    rdma::cq_ref const cq = raw;
    rdma::cq_ref const other = raw_other;
    cq.req_notify();
    other.req_notify(true);
}

} // extern "C"
