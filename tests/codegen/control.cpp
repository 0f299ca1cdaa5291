// SPDX-License-Identifier: MIT
// Pairs that codegen.py must see to differ, but for those called ..._same: were they all fine, it would compare
// nothing. All of it is C with something added, so that it tells nothing about the library.
#include <infiniband/verbs.h>

#include <system_error>

namespace {

[[noreturn, gnu::cold, gnu::noinline]] void failed() { throw std::system_error(1, std::system_category()); }

} // namespace

extern "C" {

int c_same(ibv_cq* cq, ibv_wc* into) noexcept {
    int const n = ibv_poll_cq(cq, 1, into);
    return n != 0 ? n : ibv_req_notify_cq(cq, 0);
}
int cpp_same(ibv_cq* cq, ibv_wc* into) noexcept {
    int const n = ibv_poll_cq(cq, 1, into);
    return n != 0 ? n : ibv_req_notify_cq(cq, 0);
}

// What the form of the library that throws is to be.
void c_thrown_same(ibv_cq* cq) noexcept {
    ibv_req_notify_cq(cq, 0);
    ibv_req_notify_cq(cq, 1);
}
void throws_thrown_same(ibv_cq* cq) {
    if (ibv_req_notify_cq(cq, 0) != 0) [[unlikely]]
        failed();
    if (ibv_req_notify_cq(cq, 1) != 0) [[unlikely]]
        failed();
}

// A bare twin that is noexcept, of a function that is not: the tail call is lost.
int c_bare(ibv_cq* cq) { return ibv_req_notify_cq(cq, 0); }
int cpp_bare(ibv_cq* cq) noexcept { return ibv_req_notify_cq(cq, 0); }

// An error code where C has a number: its category is asked for on the path.
void c_error_code(ibv_cq* cq, int* result) noexcept {
    do
        *result = ibv_req_notify_cq(cq, 0);
    while (*result == 0);
}
void cpp_error_code(ibv_cq* cq, std::error_code* result) noexcept {
    do
        *result = {ibv_req_notify_cq(cq, 0), std::system_category()};
    while (!*result);
}

// The sign of an errno made alike on the path.
int c_sign(ibv_cq* cq, int times) noexcept {
    for (int i = 0; i != times; ++i) {
        if (int const e = ibv_req_notify_cq(cq, 0); e != 0)
            return e;
    }
    return 0;
}
int cpp_sign(ibv_cq* cq, int times) noexcept {
    for (int i = 0; i != times; ++i) {
        if (int const e = ibv_req_notify_cq(cq, 0); e != 0)
            return e < 0 ? -e : e;
    }
    return 0;
}

// The other argument, and the other function: one number in the code.
int c_argument(ibv_cq* cq) noexcept {
    int times = 0;
    while (ibv_req_notify_cq(cq, 2) == 0)
        ++times;
    return times;
}
int cpp_argument(ibv_cq* cq) noexcept {
    int times = 0;
    while (ibv_req_notify_cq(cq, 3) == 0)
        ++times;
    return times;
}

int c_function(ibv_qp* qp, ibv_recv_wr* first, ibv_recv_wr** bad) noexcept {
    int times = 0;
    while (ibv_post_recv(qp, first, bad) == 0)
        ++times;
    return times;
}
int cpp_function(ibv_qp* qp, ibv_send_wr* first, ibv_send_wr** bad) noexcept {
    int times = 0;
    while (ibv_post_send(qp, first, bad) == 0)
        ++times;
    return times;
}

// A throwing form that counts what it posted, and one that looks at the request before.
void c_counts(ibv_qp* qp, ibv_send_wr* first, ibv_send_wr** bad, int*) noexcept {
    ibv_post_send(qp, first, bad);
    ibv_post_send(qp, first->next, bad);
}
void throws_counts(ibv_qp* qp, ibv_send_wr* first, ibv_send_wr** bad, int* posted) {
    ibv_post_send(qp, first, bad);
    ++*posted;
    ibv_post_send(qp, first->next, bad);
    ++*posted;
}

void c_looks(ibv_qp* qp, ibv_send_wr* first, ibv_send_wr** bad) noexcept { ibv_post_send(qp, first, bad); }
void throws_looks(ibv_qp* qp, ibv_send_wr* first, ibv_send_wr** bad) {
    if (ibv_post_send(qp, first, bad) != 0) [[unlikely]]
        throw std::system_error(first->send_flags == IBV_SEND_INLINE ? 1 : 2, std::system_category());
    if (first->next != nullptr && first->send_flags == IBV_SEND_SIGNALED)
        ibv_post_send(qp, first->next, bad);
}

} // extern "C"
