// SPDX-License-Identifier: MIT
// Posting work requests, in C and here: see codegen.py.
#include <rdmacpp/qp.hpp>
#include <rdmacpp/srq.hpp>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>

using std::uint32_t;
using std::uint64_t;

namespace {

// One request with one piece of memory, as C programs keep it.
struct send_request {
    ibv_sge sge;
    ibv_send_wr wr;
};
struct recv_request {
    ibv_sge sge;
    ibv_recv_wr wr;
};

// What a program keeps for a connection.
struct c_session {
    ibv_qp* qp;
    void* own;
    ibv_srq* srq;
};
struct cpp_session {
    rdma::qp qp;
    rdma::srq_ref srq;
};

// Links requests and posts them. If one is refused, it tells which; a driver may return 0 all the same.
inline int post_chain(ibv_qp* qp, send_request* chain, std::size_t count, std::size_t* refused) noexcept {
    ibv_send_wr* first = nullptr;
    for (std::size_t i = count; i-- != 0;) {
        chain[i].wr.next = first;
        first = &chain[i].wr;
    }
    ibv_send_wr* bad = nullptr;
    *refused = count;
    if (first == nullptr)
        return 0;
    int e = ibv_post_send(qp, first, &bad);
    if (bad != nullptr) [[unlikely]] {
        auto const* const begin = reinterpret_cast<char const*>(&chain[0].wr);
        *refused = static_cast<std::size_t>(reinterpret_cast<char const*>(bad) - begin) / sizeof(send_request);
        e = e != 0 ? e : EINVAL;
    }
    return e;
}

} // namespace

extern "C" {

// Chains that C would post as well
// -------------------------------------------------------------------------------------

int c_send_chain(ibv_qp* qp, ibv_send_wr* first, ibv_send_wr** bad, int times) noexcept {
    for (int i = 0; i != times; ++i) {
        if (int const e = ibv_post_send(qp, first, bad); e != 0)
            return e;
    }
    return 0;
}
std::errc cpp_send_chain(ibv_qp* raw, ibv_send_wr* first, ibv_send_wr** bad, int times) noexcept {
    rdma::qp_ref const qp = raw;
    for (int i = 0; i != times; ++i) {
        if (std::errc const e = qp.post_send(*first, *bad, std::nothrow); e != std::errc{})
            return e;
    }
    return {};
}

int c_recv_chain(ibv_qp* qp, ibv_recv_wr* first, ibv_recv_wr** bad, int times) noexcept {
    for (int i = 0; i != times; ++i) {
        if (int const e = ibv_post_recv(qp, first, bad); e != 0)
            return e;
    }
    return 0;
}
std::errc cpp_recv_chain(ibv_qp* raw, ibv_recv_wr* first, ibv_recv_wr** bad, int times) noexcept {
    rdma::qp_ref const qp = raw;
    for (int i = 0; i != times; ++i) {
        if (std::errc const e = qp.post_recv(*first, *bad, std::nothrow); e != std::errc{})
            return e;
    }
    return {};
}

int c_srq_chain(ibv_srq* srq, ibv_recv_wr* first, ibv_recv_wr** bad, int times) noexcept {
    for (int i = 0; i != times; ++i) {
        if (int const e = ibv_post_srq_recv(srq, first, bad); e != 0)
            return e;
    }
    return 0;
}
std::errc cpp_srq_chain(ibv_srq* raw, ibv_recv_wr* first, ibv_recv_wr** bad, int times) noexcept {
    rdma::srq_ref const srq = raw;
    for (int i = 0; i != times; ++i) {
        if (std::errc const e = srq.post_recv(*first, *bad, std::nothrow); e != std::errc{})
            return e;
    }
    return {};
}

// The queue pair is an object of ours: the C one is at hand in it, without a load more.
int c_owned(c_session* s, ibv_recv_wr* recvs, ibv_recv_wr* shared, ibv_send_wr* sends) noexcept {
    ibv_recv_wr* bad_recv;
    ibv_send_wr* bad_send;
    if (int const e = ibv_post_recv(s->qp, recvs, &bad_recv); e != 0)
        return e;
    if (int const e = ibv_post_srq_recv(s->srq, shared, &bad_recv); e != 0)
        return e;
    return ibv_post_send(s->qp, sends, &bad_send);
}
std::errc cpp_owned(cpp_session* s, ibv_recv_wr* recvs, ibv_recv_wr* shared, ibv_send_wr* sends) noexcept {
    ibv_recv_wr* bad_recv;
    ibv_send_wr* bad_send;
    if (std::errc const e = s->qp.post_recv(*recvs, bad_recv, std::nothrow); e != std::errc{})
        return e;
    if (std::errc const e = s->srq.post_recv(*shared, bad_recv, std::nothrow); e != std::errc{})
        return e;
    return s->qp.post_send(*sends, bad_send, std::nothrow);
}

// One request, built on the stack: C fills the fields in the same order
// ------------------------------------------------

int c_send(ibv_qp* qp, ibv_sge const* from, uint64_t times) noexcept {
    for (uint64_t i = 0; i != times; ++i) {
        send_request request;
        request.sge = *from;
        request.wr = {};
        request.wr.sg_list = &request.sge;
        request.wr.opcode = IBV_WR_SEND;
        request.wr.num_sge = 1;
        request.wr.wr_id = i;
        request.wr.send_flags = IBV_SEND_SIGNALED;
        ibv_send_wr* bad;
        if (int const e = ibv_post_send(qp, &request.wr, &bad); e != 0)
            return e;
    }
    return 0;
}
std::errc cpp_send(ibv_qp* raw, ibv_sge const* from, uint64_t times) noexcept {
    rdma::qp_ref const qp = raw;
    for (uint64_t i = 0; i != times; ++i) {
        std::errc const e = qp.post_send(rdma::send_wr::send(*from).id(i).signaled(), std::nothrow);
        if (e != std::errc{})
            return e;
    }
    return {};
}

int c_send_imm(ibv_qp* qp, ibv_sge const* from, uint64_t times, uint32_t imm) noexcept {
    for (uint64_t i = 0; i != times; ++i) {
        send_request request;
        request.sge = *from;
        request.wr = {};
        request.wr.sg_list = &request.sge;
        request.wr.num_sge = 1;
        request.wr.wr_id = i;
        request.wr.opcode = IBV_WR_SEND_WITH_IMM;
        request.wr.imm_data = imm;
        request.wr.send_flags = IBV_SEND_INLINE;
        ibv_send_wr* bad;
        if (int const e = ibv_post_send(qp, &request.wr, &bad); e != 0)
            return e;
    }
    return 0;
}
std::errc cpp_send_imm(ibv_qp* raw, ibv_sge const* from, uint64_t times, uint32_t imm) noexcept {
    rdma::qp_ref const qp = raw;
    for (uint64_t i = 0; i != times; ++i) {
        std::errc const e = qp.post_send(rdma::send_wr::send(*from).id(i).imm(imm).inlined(), std::nothrow);
        if (e != std::errc{})
            return e;
    }
    return {};
}

// C zeroes a request in one of two ways, and clang's code depends on it, most of all where a field is set to 0
// afterwards as IBV_WR_RDMA_WRITE is: ours is the same as one of them.
int c_write(ibv_qp* qp, ibv_sge const* from, uint64_t address, uint32_t rkey, uint64_t id) noexcept {
    send_request request;
    request.sge = *from;
    request.wr = {};
    request.wr.sg_list = &request.sge;
    request.wr.opcode = IBV_WR_RDMA_WRITE;
    request.wr.num_sge = 1;
    request.wr.wr.rdma.remote_addr = address;
    request.wr.wr.rdma.rkey = rkey;
    request.wr.wr_id = id;
    request.wr.send_flags = IBV_SEND_SIGNALED;
    ibv_send_wr* bad;
    return ibv_post_send(qp, &request.wr, &bad);
}
int c_write_or_memset(ibv_qp* qp, ibv_sge const* from, uint64_t address, uint32_t rkey, uint64_t id) noexcept {
    send_request request;
    request.sge = *from;
    std::memset(&request.wr, 0, sizeof request.wr);
    request.wr.sg_list = &request.sge;
    request.wr.opcode = IBV_WR_RDMA_WRITE;
    request.wr.num_sge = 1;
    request.wr.wr.rdma.remote_addr = address;
    request.wr.wr.rdma.rkey = rkey;
    request.wr.wr_id = id;
    request.wr.send_flags = IBV_SEND_SIGNALED;
    ibv_send_wr* bad;
    return ibv_post_send(qp, &request.wr, &bad);
}
std::errc cpp_write(ibv_qp* raw, ibv_sge const* from, uint64_t address, uint32_t rkey, uint64_t id) noexcept {
    rdma::qp_ref const qp = raw;
    return qp.post_send(rdma::send_wr::write(*from, {address, rkey}).id(id).signaled(), std::nothrow);
}

int c_read(ibv_qp* qp, ibv_sge const* into, uint64_t address, uint32_t rkey, uint64_t id) noexcept {
    send_request request;
    request.sge = *into;
    request.wr = {};
    request.wr.sg_list = &request.sge;
    request.wr.opcode = IBV_WR_RDMA_READ;
    request.wr.num_sge = 1;
    request.wr.wr.rdma.remote_addr = address;
    request.wr.wr.rdma.rkey = rkey;
    request.wr.wr_id = id;
    request.wr.send_flags = IBV_SEND_SIGNALED;
    ibv_send_wr* bad;
    return ibv_post_send(qp, &request.wr, &bad);
}
std::errc cpp_read(ibv_qp* raw, ibv_sge const* into, uint64_t address, uint32_t rkey, uint64_t id) noexcept {
    rdma::qp_ref const qp = raw;
    return qp.post_send(rdma::send_wr::read(*into, {address, rkey}).id(id).signaled(), std::nothrow);
}

// A datagram.
int c_datagram(ibv_qp* qp, ibv_sge const* from, ibv_ah* peer, uint32_t qp_num, uint64_t id) noexcept {
    send_request request;
    request.sge = *from;
    request.wr = {};
    request.wr.sg_list = &request.sge;
    request.wr.opcode = IBV_WR_SEND;
    request.wr.num_sge = 1;
    request.wr.wr.ud = {peer, qp_num, RDMA_UDP_QKEY};
    request.wr.wr_id = id;
    ibv_send_wr* bad;
    return ibv_post_send(qp, &request.wr, &bad);
}
std::errc cpp_datagram(ibv_qp* raw, ibv_sge const* from, ibv_ah* peer, uint32_t qp_num, uint64_t id) noexcept {
    rdma::qp_ref const qp = raw;
    return qp.post_send(rdma::send_wr::send(*from).to(peer, qp_num).id(id), std::nothrow);
}

// Two requests on the stack, as one chain.
int c_chain(ibv_qp* qp, ibv_sge const* pieces, uint64_t address, uint32_t rkey, std::size_t* refused) noexcept {
    send_request chain[2];
    chain[0].sge = pieces[0];
    chain[0].wr = {};
    chain[0].wr.sg_list = &chain[0].sge;
    chain[0].wr.opcode = IBV_WR_RDMA_READ;
    chain[0].wr.num_sge = 1;
    chain[0].wr.wr.rdma.remote_addr = address;
    chain[0].wr.wr.rdma.rkey = rkey;
    chain[1].sge = pieces[1];
    chain[1].wr = {};
    chain[1].wr.sg_list = &chain[1].sge;
    chain[1].wr.opcode = IBV_WR_SEND;
    chain[1].wr.num_sge = 1;
    chain[1].wr.send_flags = IBV_SEND_SIGNALED;
    return post_chain(qp, chain, 2, refused);
}
int c_chain_or_memset(ibv_qp* qp, ibv_sge const* pieces, uint64_t address, uint32_t rkey,
                      std::size_t* refused) noexcept {
    send_request chain[2];
    chain[0].sge = pieces[0];
    std::memset(&chain[0].wr, 0, sizeof chain[0].wr);
    chain[0].wr.sg_list = &chain[0].sge;
    chain[0].wr.opcode = IBV_WR_RDMA_READ;
    chain[0].wr.num_sge = 1;
    chain[0].wr.wr.rdma.remote_addr = address;
    chain[0].wr.wr.rdma.rkey = rkey;
    chain[1].sge = pieces[1];
    std::memset(&chain[1].wr, 0, sizeof chain[1].wr);
    chain[1].wr.sg_list = &chain[1].sge;
    chain[1].wr.opcode = IBV_WR_SEND;
    chain[1].wr.num_sge = 1;
    chain[1].wr.send_flags = IBV_SEND_SIGNALED;
    return post_chain(qp, chain, 2, refused);
}
std::errc cpp_chain(ibv_qp* raw, ibv_sge const* pieces, uint64_t address, uint32_t rkey,
                    std::size_t* refused) noexcept {
    rdma::qp_ref const qp = raw;
    rdma::send_wr chain[] = {rdma::send_wr::read(pieces[0], {address, rkey}), rdma::send_wr::send(pieces[1])};
    chain[1].signaled();
    return qp.post_send(chain, *refused, std::nothrow);
}

int c_recv(ibv_qp* qp, ibv_sge const* into, uint64_t times) noexcept {
    for (uint64_t i = 0; i != times; ++i) {
        recv_request request;
        request.sge = *into;
        request.wr = {};
        request.wr.sg_list = &request.sge;
        request.wr.num_sge = 1;
        request.wr.wr_id = i;
        ibv_recv_wr* bad;
        if (int const e = ibv_post_recv(qp, &request.wr, &bad); e != 0)
            return e;
    }
    return 0;
}
std::errc cpp_recv(ibv_qp* raw, ibv_sge const* into, uint64_t times) noexcept {
    rdma::qp_ref const qp = raw;
    for (uint64_t i = 0; i != times; ++i) {
        if (std::errc const e = qp.post_recv(rdma::recv_wr(*into).id(i), std::nothrow); e != std::errc{})
            return e;
    }
    return {};
}

int c_srq_recv(ibv_srq* srq, ibv_sge const* into, uint64_t times) noexcept {
    for (uint64_t i = 0; i != times; ++i) {
        recv_request request;
        request.sge = *into;
        request.wr = {};
        request.wr.sg_list = &request.sge;
        request.wr.num_sge = 1;
        request.wr.wr_id = i;
        ibv_recv_wr* bad;
        if (int const e = ibv_post_srq_recv(srq, &request.wr, &bad); e != 0)
            return e;
    }
    return 0;
}
std::errc cpp_srq_recv(ibv_srq* raw, ibv_sge const* into, uint64_t times) noexcept {
    rdma::srq_ref const srq = raw;
    for (uint64_t i = 0; i != times; ++i) {
        if (std::errc const e = srq.post_recv(rdma::recv_wr(*into).id(i), std::nothrow); e != std::errc{})
            return e;
    }
    return {};
}

// The forms that throw
// ----------------------------------------------------------------------------------------------------

void c_send_chains(ibv_qp* qp, ibv_send_wr* first, ibv_send_wr** bad) noexcept {
    ibv_post_send(qp, first, bad);
    ibv_post_send(qp, first->next, bad);
}
void throws_send_chains(ibv_qp* raw, ibv_send_wr* first, ibv_send_wr** bad) {
    rdma::qp_ref const qp = raw;
    qp.post_send(*first, *bad);
    qp.post_send(*first->next, *bad);
}

void c_recv_chains(ibv_qp* qp, ibv_srq* srq, ibv_recv_wr* first, ibv_recv_wr** bad) noexcept {
    ibv_post_recv(qp, first, bad);
    ibv_post_srq_recv(srq, first->next, bad);
}
void throws_recv_chains(ibv_qp* raw, ibv_srq* raw_srq, ibv_recv_wr* first, ibv_recv_wr** bad) {
    rdma::qp_ref const qp = raw;
    rdma::srq_ref const srq = raw_srq;
    qp.post_recv(*first, *bad);
    srq.post_recv(*first->next, *bad);
}

void c_one_send(ibv_qp* qp, ibv_sge const* from, uint64_t id) noexcept {
    send_request request;
    request.sge = *from;
    request.wr = {};
    request.wr.sg_list = &request.sge;
    request.wr.opcode = IBV_WR_SEND;
    request.wr.num_sge = 1;
    request.wr.wr_id = id;
    ibv_send_wr* bad;
    ibv_post_send(qp, &request.wr, &bad);
}
void throws_one_send(ibv_qp* raw, ibv_sge const* from, uint64_t id) {
    rdma::qp_ref const qp = raw;
    qp.post_send(rdma::send_wr::send(*from).id(id));
}

void c_one_recv(ibv_qp* qp, ibv_sge const* into, uint64_t id) noexcept {
    recv_request request;
    request.sge = *into;
    request.wr = {};
    request.wr.sg_list = &request.sge;
    request.wr.num_sge = 1;
    request.wr.wr_id = id;
    ibv_recv_wr* bad;
    ibv_post_recv(qp, &request.wr, &bad);
}
void throws_one_recv(ibv_qp* raw, ibv_sge const* into, uint64_t id) {
    rdma::qp_ref const qp = raw;
    qp.post_recv(rdma::recv_wr(*into).id(id));
}

} // extern "C"
