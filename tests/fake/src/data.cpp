// SPDX-License-Identifier: MIT
//
// The data path: work requests posted, executed between the two QPs, completed.
#include "world.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace fake::model {

namespace {

constexpr std::size_t grh_size = sizeof(ibv_grh);

/// Opcodes of rdma-core 50, which the header may not know.
constexpr auto wr_flush = static_cast<ibv_wr_opcode>(14);
constexpr auto wc_flush = static_cast<ibv_wc_opcode>(8);
constexpr unsigned flush_global = 1U << 0, flush_persistent = 1U << 1;

enum class progress { done, waits, failed };

/// Where a message arrives: a QP's own receives or an SRQ, and where their completions go.
struct inbox {
    std::deque<receive>* receives = nullptr;
    srq* shared = nullptr;
    cq* queue = nullptr;
    pd* domain = nullptr;
};

/// A send whose turn has come, and the memory that it takes part in.
class execution {
public:
    execution(qp& by, send& what) : by_{by}, what_{what} {}
    progress run();

private:
    progress run_connected();
    progress run_datagram();
    progress deliver(qp& to);
    progress write(qp& to);
    progress read(qp& to);
    progress swap(qp& to);
    progress write_atomically(qp& to);
    progress make_visible(qp& to);
    progress window();

    bool gather();
    bool scatter_locally(std::uint8_t const* from, std::size_t length, unsigned access);
    progress fail(ibv_wc_status status);
    progress fail_both(ibv_wc_status status, qp& to);
    progress succeed(ibv_wc_opcode opcode, std::size_t length);
    void deliver_datagram(qp& to, bytes const& message);
    std::vector<bytes> datagrams() const;
    bool carries_imm() const { return what_.wr.opcode == IBV_WR_SEND_WITH_IMM || what_.wr.opcode == IBV_WR_RDMA_WRITE_WITH_IMM; }
    bool solicited() const { return (what_.wr.send_flags & IBV_SEND_SOLICITED) != 0; }

    qp& by_;
    send& what_;
    inbox into_{}; ///< of the peer, when connected
    bytes payload_;
};

// ---- receive queues ---------------------------------------------------------------------------------------------
pd* domain_of(qp const& of) { return the().pds.find(of.qp_base.pd); }

inbox inbox_of(qp& to)
{
    srq* const shared = the().srqs.find(to.qp_base.srq);
    return {shared != nullptr ? &shared->receives : &to.receives, shared, the().cqs.find(to.qp_base.recv_cq), domain_of(to)};
}

/// What the sender has named by its number; nothing if that is no XRC SRQ of the QP's domain.
inbox inbox_of(xrcd const& domain, std::uint32_t number)
{
    for (auto const& [raw, each] : the().srqs)
        if (each->handle == number && each->domain != nullptr && each->domain->domain == domain.domain)
            return {&each->receives, each, each->queue, the().pds.find(each->ibv_srq::pd)};
    return {};
}

void watch_limit(srq* shared)
{
    if (shared == nullptr || shared->receives.size() >= shared->attr.srq_limit) return;
    shared->attr.srq_limit = 0;
    ibv_async_event event{};
    event.element.srq = shared;
    event.event_type = IBV_EVENT_SRQ_LIMIT_REACHED;
    raise(context_of(shared->ibv_srq::context), event, static_cast<ibv_srq*>(shared));
}

receive next_receive(inbox const& in)
{
    receive taken = std::move(in.receives->front());
    in.receives->pop_front();
    watch_limit(in.shared);
    return taken;
}

std::size_t room(receive const& in)
{
    std::size_t total = 0;
    for (ibv_sge const& piece : in.buffers) total += piece.length;
    return total;
}

/// Fills scatter/gather elements; false if one of them lies outside of what was registered for it.
bool scatter(pd const* domain, std::vector<ibv_sge> const& pieces, std::uint8_t const* from, std::size_t length, unsigned access)
{
    for (ibv_sge const& piece : pieces) {
        std::size_t const part = std::min<std::size_t>(piece.length, length);
        if (part == 0) continue;
        mr const* const region = local_region(domain, piece, access);
        if (region == nullptr) return false;
        if (!region->nothing) std::memcpy(memory_of(*region, piece.addr), from, part);
        from += part;
        length -= part;
    }
    return true;
}

ibv_wc completion(qp const& of, std::uint64_t wr_id, ibv_wc_status status)
{
    ibv_wc wc{};
    wc.wr_id = wr_id;
    wc.status = status;
    wc.qp_num = of.qp_base.qp_num;
    wc.vendor_err = status == IBV_WC_SUCCESS ? 0 : 0xfa;
    return wc;
}

void complete_receive(inbox const& in, ibv_wc const& wc, bool solicited) { complete(in.queue, wc, solicited); }

// ---- execution --------------------------------------------------------------------------------------------------
bool execution::gather()
{
    if (what_.is_inline) {
        payload_ = what_.inlined;
        return true;
    }
    for (ibv_sge const& piece : what_.buffers) {
        if (piece.length == 0) continue;
        mr const* const region = local_region(domain_of(by_), piece, 0);
        if (region == nullptr) return false;
        auto const* const from = memory_of(*region, piece.addr);
        if (region->nothing) payload_.resize(payload_.size() + piece.length);
        else payload_.insert(payload_.end(), from, from + piece.length);
    }
    return true;
}

bool execution::scatter_locally(std::uint8_t const* from, std::size_t length, unsigned access)
{
    return scatter(domain_of(by_), what_.buffers, from, length, access);
}

progress execution::fail(ibv_wc_status status)
{
    complete(the().cqs.find(by_.qp_base.send_cq), completion(by_, what_.wr.wr_id, status), false);
    return progress::failed;
}

progress execution::fail_both(ibv_wc_status status, qp& to)
{
    if (&to != &by_) enter_error(to);
    return fail(status);
}

progress execution::succeed(ibv_wc_opcode opcode, std::size_t length)
{
    if (by_.init.sq_sig_all == 0 && (what_.wr.send_flags & IBV_SEND_SIGNALED) == 0) return progress::done;
    ibv_wc wc = completion(by_, what_.wr.wr_id, IBV_WC_SUCCESS);
    wc.opcode = opcode;
    wc.byte_len = static_cast<std::uint32_t>(length);
    complete(the().cqs.find(by_.qp_base.send_cq), wc, false);
    return progress::done;
}

progress execution::run()
{
    switch (by_.qp_base.qp_type) {
    case IBV_QPT_UD: return run_datagram();
    case IBV_QPT_RAW_PACKET: // nobody is on the wire
        if (!gather()) return fail(IBV_WC_LOC_PROT_ERR);
        return succeed(what_.wr.opcode == IBV_WR_TSO ? IBV_WC_TSO : IBV_WC_SEND, payload_.size());
    default: return run_connected();
    }
}

progress execution::run_connected()
{
    if (what_.wr.opcode == IBV_WR_BIND_MW || what_.wr.opcode == IBV_WR_LOCAL_INV) return window();
    auto const found = the().qp_numbers.find(by_.attr.dest_qp_num);
    qp* const to = found == the().qp_numbers.end() ? nullptr : found->second;
    ibv_qp_state const state = to == nullptr ? IBV_QPS_ERR : to->raw()->state;
    if (state == IBV_QPS_INIT || (state == IBV_QPS_RESET && to->home().of->iwarp)) return progress::waits;
    bool const connected = (state == IBV_QPS_RTR || state == IBV_QPS_RTS || state == IBV_QPS_SQD) && to->attr.dest_qp_num == by_.qp_base.qp_num;
    if (!connected) return fail(IBV_WC_RETRY_EXC_ERR);
    into_ = to->domain != nullptr ? inbox_of(*to->domain, what_.wr.qp_type.xrc.remote_srqn) : inbox_of(*to);
    if (into_.receives == nullptr) return fail_both(IBV_WC_REM_INV_REQ_ERR, *to);
    if (what_.wr.opcode == wr_flush) return make_visible(*to);
    switch (what_.wr.opcode) {
    case IBV_WR_ATOMIC_WRITE: return write_atomically(*to);
    case IBV_WR_SEND: case IBV_WR_SEND_WITH_IMM: case IBV_WR_SEND_WITH_INV: return deliver(*to);
    case IBV_WR_RDMA_WRITE: case IBV_WR_RDMA_WRITE_WITH_IMM: return write(*to);
    case IBV_WR_RDMA_READ: return read(*to);
    default: return swap(*to);
    }
}

/// SEND, with or without an immediate: it waits for a receive as long as it takes.
progress execution::deliver(qp& to)
{
    if (into_.receives->empty()) return progress::waits;
    if (!gather()) return fail(IBV_WC_LOC_PROT_ERR);
    receive const into = next_receive(into_);
    if (payload_.size() > room(into)) {
        complete_receive(into_, completion(to, into.wr_id, IBV_WC_LOC_LEN_ERR), false);
        return fail_both(IBV_WC_REM_INV_REQ_ERR, to);
    }
    if (!scatter(into_.domain, into.buffers, payload_.data(), payload_.size(), IBV_ACCESS_LOCAL_WRITE)) {
        complete_receive(into_, completion(to, into.wr_id, IBV_WC_LOC_PROT_ERR), false);
        return fail_both(IBV_WC_REM_OP_ERR, to);
    }
    ibv_wc wc = completion(to, into.wr_id, IBV_WC_SUCCESS);
    wc.opcode = IBV_WC_RECV;
    wc.byte_len = static_cast<std::uint32_t>(payload_.size());
    wc.src_qp = by_.qp_base.qp_num;
    if (carries_imm()) {
        wc.wc_flags = IBV_WC_WITH_IMM;
        wc.imm_data = what_.wr.imm_data;
    } else if (what_.wr.opcode == IBV_WR_SEND_WITH_INV) {
        wc.wc_flags = IBV_WC_WITH_INV;
        wc.invalidated_rkey = what_.wr.invalidate_rkey;
        the().window_keys.erase(what_.wr.invalidate_rkey);
    }
    complete_receive(into_, wc, solicited());
    return succeed(IBV_WC_SEND, payload_.size());
}

progress execution::write(qp& to)
{
    if (carries_imm() && into_.receives->empty()) return progress::waits;
    if (!gather()) return fail(IBV_WC_LOC_PROT_ERR);
    bool const allowed = (to.attr.qp_access_flags & IBV_ACCESS_REMOTE_WRITE) != 0;
    auto* const target = remote_memory(into_.domain, what_.wr.wr.rdma.rkey, what_.wr.wr.rdma.remote_addr, payload_.size(), IBV_ACCESS_REMOTE_WRITE);
    if (!payload_.empty()) {
        if (!allowed || target == nullptr) return fail_both(IBV_WC_REM_ACCESS_ERR, to);
        std::memcpy(target, payload_.data(), payload_.size());
    }
    if (carries_imm()) {
        ibv_wc wc = completion(to, next_receive(into_).wr_id, IBV_WC_SUCCESS);
        wc.opcode = IBV_WC_RECV_RDMA_WITH_IMM;
        wc.byte_len = static_cast<std::uint32_t>(payload_.size());
        wc.wc_flags = IBV_WC_WITH_IMM;
        wc.imm_data = what_.wr.imm_data;
        complete_receive(into_, wc, solicited());
    }
    return succeed(IBV_WC_RDMA_WRITE, payload_.size());
}

progress execution::read(qp& to)
{
    if (by_.attr.max_rd_atomic == 0) return progress::waits; // no reads were agreed on: it never gets its turn
    receive const sink{0, what_.buffers};
    std::size_t const length = room(sink);
    bool const allowed = (to.attr.qp_access_flags & IBV_ACCESS_REMOTE_READ) != 0 && to.attr.max_dest_rd_atomic != 0;
    auto const* const source = remote_memory(into_.domain, what_.wr.wr.rdma.rkey, what_.wr.wr.rdma.remote_addr, length, IBV_ACCESS_REMOTE_READ);
    if (length != 0 && (!allowed || source == nullptr)) return fail_both(IBV_WC_REM_ACCESS_ERR, to);
    unsigned const needed = IBV_ACCESS_LOCAL_WRITE | (by_.home().of->iwarp ? unsigned{IBV_ACCESS_REMOTE_WRITE} : 0U);
    if (length != 0 && !scatter_locally(source, length, needed)) return fail(IBV_WC_LOC_PROT_ERR);
    return succeed(IBV_WC_RDMA_READ, length);
}

progress execution::swap(qp& to)
{
    if (by_.attr.max_rd_atomic == 0) return progress::waits;
    auto const& how = what_.wr.wr.atomic;
    bool const allowed = (to.attr.qp_access_flags & IBV_ACCESS_REMOTE_ATOMIC) != 0;
    auto* const target = remote_memory(into_.domain, how.rkey, how.remote_addr, sizeof(std::uint64_t), IBV_ACCESS_REMOTE_ATOMIC);
    if (!allowed || target == nullptr) return fail_both(IBV_WC_REM_ACCESS_ERR, to);
    if (how.remote_addr % sizeof(std::uint64_t) != 0) return fail_both(IBV_WC_REM_INV_REQ_ERR, to);
    std::uint64_t old = 0;
    std::memcpy(&old, target, sizeof old);
    bool const compares = what_.wr.opcode == IBV_WR_ATOMIC_CMP_AND_SWP;
    std::uint64_t const fresh = compares ? (old == how.compare_add ? how.swap : old) : old + how.compare_add;
    std::memcpy(target, &fresh, sizeof fresh);
    if (!scatter_locally(reinterpret_cast<std::uint8_t const*>(&old), sizeof old, IBV_ACCESS_LOCAL_WRITE)) return fail(IBV_WC_LOC_PROT_ERR);
    return succeed(compares ? IBV_WC_COMP_SWAP : IBV_WC_FETCH_ADD, sizeof old);
}

progress execution::write_atomically(qp& to)
{
    if (!gather()) return fail(IBV_WC_LOC_PROT_ERR);
    if (payload_.size() != sizeof(std::uint64_t)) return fail(IBV_WC_LOC_LEN_ERR);
    auto const& how = what_.wr.wr.rdma;
    bool const allowed = (to.attr.qp_access_flags & IBV_ACCESS_REMOTE_WRITE) != 0;
    auto* const target = remote_memory(into_.domain, how.rkey, how.remote_addr, payload_.size(), IBV_ACCESS_REMOTE_WRITE);
    if (!allowed || target == nullptr) return fail_both(IBV_WC_REM_ACCESS_ERR, to);
    if (how.remote_addr % sizeof(std::uint64_t) != 0) return fail_both(IBV_WC_REM_INV_REQ_ERR, to);
    std::memcpy(target, payload_.data(), payload_.size());
    return succeed(IBV_WC_ATOMIC_WRITE, payload_.size());
}

/// All is there at once here: only the rights are looked at.
progress execution::make_visible(qp& to)
{
    unsigned const type = what_.wr.imm_data, level = what_.wr.qp_type.xrc.remote_srqn;
    unsigned const needed = ((type & flush_global) != 0 ? 1U << 8 : 0U) | ((type & flush_persistent) != 0 ? 1U << 9 : 0U);
    auto const& how = what_.wr.wr.rdma;
    std::uint64_t const length = level != 0 ? 0 : what_.length; // of a whole region only the key counts
    bool const allowed = needed != 0 && (to.attr.qp_access_flags & needed) == needed;
    bool const known = level != 0 ? has_remote_key(into_.domain, how.rkey, needed) : remote_memory(into_.domain, how.rkey, how.remote_addr, length, needed) != nullptr;
    return allowed && known ? succeed(wc_flush, 0) : fail_both(IBV_WC_REM_ACCESS_ERR, to);
}

progress execution::window()
{
    if (what_.wr.opcode == IBV_WR_LOCAL_INV) {
        the().window_keys.erase(what_.wr.invalidate_rkey);
        return succeed(IBV_WC_LOCAL_INV, 0);
    }
    mw* const which = the().mws.find(what_.wr.bind_mw.mw);
    if (which == nullptr || bind_window(*which, what_.wr.bind_mw.rkey, what_.wr.bind_mw.bind_info) != 0) return fail(IBV_WC_MW_BIND_ERR);
    return succeed(IBV_WC_BIND_MW, 0);
}

// ---- datagrams --------------------------------------------------------------------------------------------------
bool attached(qp const& of, ibv_gid const& gid)
{
    return std::any_of(of.groups.begin(), of.groups.end(), [&](attachment const& each) { return std::memcmp(each.gid.raw, gid.raw, 16) == 0; });
}

ibv_gid sender_gid(qp const& by, ibv_gid const& towards)
{
    device const& at = *context_of(by.qp_base.context).of;
    bool const v4 = towards.raw[0] == 0; // ::ffff:a.b.c.d
    for (address const& host : at.hosts)
        if ((host.family() == AF_INET) == v4 && !host.link_local()) return host.gid();
    return at.gids().front();
}

progress execution::run_datagram()
{
    if (!gather()) return fail(IBV_WC_LOC_PROT_ERR);
    ah const* const where = the().ahs.find(what_.wr.wr.ud.ah);
    if (where == nullptr) return fail(IBV_WC_LOC_QP_OP_ERR);
    if (!protects(domain_of(by_), where->ibv_ah::pd)) return fail(IBV_WC_LOC_PROT_ERR);
    ibv_gid const& towards = where->attr.grh.dgid;
    std::vector<qp*> targets;
    for (auto const& [raw, each] : the().qps) {
        bool const ud = each->qp_base.qp_type == IBV_QPT_UD && each->home().of == by_.home().of;
        bool const meant = what_.wr.wr.ud.remote_qpn == 0xffffff ? attached(*each, towards) : each->qp_base.qp_num == what_.wr.wr.ud.remote_qpn;
        if (ud && meant) targets.push_back(each);
    }
    for (bytes const& message : datagrams())
        for (qp* to : targets) deliver_datagram(*to, message);
    return succeed(what_.wr.opcode == IBV_WR_TSO ? IBV_WC_TSO : IBV_WC_SEND, payload_.size()); // lost or not, the sender never learns
}

/// One message, or what segmentation makes of it: the header before each piece.
std::vector<bytes> execution::datagrams() const
{
    if (what_.wr.opcode != IBV_WR_TSO) return {payload_};
    std::vector<bytes> all;
    for (std::size_t at = 0; at < payload_.size();) {
        std::size_t const part = std::min<std::size_t>(what_.wr.tso.mss, payload_.size() - at);
        auto const from = payload_.begin() + static_cast<std::ptrdiff_t>(at);
        all.push_back(what_.header);
        all.back().insert(all.back().end(), from, from + static_cast<std::ptrdiff_t>(part));
        at += part;
    }
    return all;
}

void execution::deliver_datagram(qp& to, bytes const& message)
{
    bool const up = to.qp_base.state == IBV_QPS_RTR || to.qp_base.state == IBV_QPS_RTS;
    inbox const box = inbox_of(to);
    if (!up || to.attr.qkey != what_.wr.wr.ud.remote_qkey || box.receives->empty()) return;
    receive const into = next_receive(box);
    ah const& where = *the().ahs.find(what_.wr.wr.ud.ah);
    ibv_grh grh{};
    grh.dgid = where.attr.grh.dgid;
    grh.sgid = sender_gid(by_, grh.dgid);
    grh.hop_limit = 64;
    bytes packet(grh_size + message.size());
    std::memcpy(packet.data(), &grh, grh_size);
    if (!message.empty()) std::memcpy(packet.data() + grh_size, message.data(), message.size());
    bool const fits = packet.size() <= room(into);
    bool const stored = fits && scatter(domain_of(to), into.buffers, packet.data(), packet.size(), IBV_ACCESS_LOCAL_WRITE);
    if (!stored) {
        complete_receive(box, completion(to, into.wr_id, fits ? IBV_WC_LOC_PROT_ERR : IBV_WC_LOC_LEN_ERR), false);
        return;
    }
    ibv_wc wc = completion(to, into.wr_id, IBV_WC_SUCCESS);
    wc.opcode = IBV_WC_RECV;
    wc.byte_len = static_cast<std::uint32_t>(packet.size());
    wc.src_qp = by_.qp_base.qp_num;
    wc.wc_flags = IBV_WC_GRH | (carries_imm() ? unsigned{IBV_WC_WITH_IMM} : 0U);
    wc.imm_data = carries_imm() ? what_.wr.imm_data : 0;
    complete_receive(box, wc, solicited());
}

/// Executes the sends of one QP until one must wait.
bool drain(qp& of)
{
    bool moved = false;
    while (!of.sends.empty() && of.raw()->state == IBV_QPS_RTS) {
        send turn = of.sends.front();
        progress const result = execution{of, turn}.run();
        if (result == progress::waits) break;
        moved = true;
        if (!of.sends.empty()) of.sends.pop_front();
        if (result == progress::failed) {
            enter_error(of);
            broken(of);
        }
    }
    if (of.sends.empty()) the().busy_senders.erase(&of);
    return moved;
}

} // namespace

void pump()
{
    static bool pumping = false; // guarded by the world's mutex: an error on the way calls back here
    if (pumping) return;
    pumping = true;
    for (bool moved = true; moved;) {
        moved = false;
        std::vector<qp*> const busy(the().busy_senders.begin(), the().busy_senders.end());
        for (qp* each : busy)
            if (the().busy_senders.count(each) != 0) moved = drain(*each) || moved;
    }
    pumping = false;
}

// ---- posting ----------------------------------------------------------------------------------------------------
namespace {

bool known_opcode(qp const& on, ibv_send_wr const& wr)
{
    bool const all = has_all_features(on.qp_base.context);
    bool const sends = wr.opcode == IBV_WR_SEND || wr.opcode == IBV_WR_SEND_WITH_IMM, segmented = all && wr.opcode == IBV_WR_TSO;
    if (on.qp_base.qp_type == IBV_QPT_UD) return sends || segmented;
    if (on.qp_base.qp_type == IBV_QPT_RAW_PACKET) return wr.opcode == IBV_WR_SEND || segmented;
    bool const iwarp = context_of(on.qp_base.context).of->iwarp;
    if (wr.opcode == wr_flush || wr.opcode == IBV_WR_ATOMIC_WRITE) return all;
    switch (wr.opcode) {
    case IBV_WR_SEND: case IBV_WR_RDMA_WRITE: case IBV_WR_RDMA_READ: case IBV_WR_SEND_WITH_INV: case IBV_WR_LOCAL_INV: return true;
    case IBV_WR_SEND_WITH_IMM: case IBV_WR_RDMA_WRITE_WITH_IMM: case IBV_WR_BIND_MW:
    case IBV_WR_ATOMIC_CMP_AND_SWP: case IBV_WR_ATOMIC_FETCH_AND_ADD: return !iwarp;
    default: return false;
    }
}

/// `before`: how many of the same scope come first.
int check(qp const& on, ibv_send_wr const& wr, std::size_t before = 0)
{
    ibv_qp_state const state = on.qp_base.state;
    bool const iwarp = context_of(on.qp_base.context).of->iwarp;
    if (on.domain != nullptr) return EINVAL; // XRC_RECV has no send queue
    if (state == IBV_QPS_RESET || state == IBV_QPS_INIT || state == IBV_QPS_RTR) return iwarp ? ENOTCONN : EINVAL;
    if (!known_opcode(on, wr)) return EINVAL;
    if (wr.num_sge < 0 || static_cast<std::uint32_t>(wr.num_sge) > std::max(on.attr.cap.max_send_sge, 1U)) return EINVAL;
    if (wr.opcode == IBV_WR_TSO && wr.tso.mss == 0) return EINVAL;
    if (on.sends.size() + before >= on.attr.cap.max_send_wr) return ENOMEM;
    return 0;
}

send copy_request(ibv_send_wr const& wr)
{
    send made;
    made.wr = wr;
    made.wr.next = nullptr;
    made.wr.sg_list = nullptr;
    if (wr.num_sge > 0) made.buffers.assign(wr.sg_list, wr.sg_list + wr.num_sge);
    made.is_inline = (wr.send_flags & IBV_SEND_INLINE) != 0;
    if (made.is_inline)
        for (ibv_sge const& piece : made.buffers) {
            auto const* from = reinterpret_cast<std::uint8_t const*>(static_cast<std::uintptr_t>(piece.addr));
            made.inlined.insert(made.inlined.end(), from, from + piece.length);
        }
    if (wr.opcode == IBV_WR_TSO) {
        auto const* const header = static_cast<std::uint8_t const*>(wr.tso.hdr);
        made.header.assign(header, header + wr.tso.hdr_sz);
    }
    return made;
}

bool is_too_long(qp const& on, send const& what)
{
    return what.is_inline && what.wr.opcode != IBV_WR_ATOMIC_WRITE && what.inlined.size() > on.attr.cap.max_inline_data;
}

int enqueue(qp& on, send what)
{
    if (is_too_long(on, what)) return EINVAL;
    if (on.raw()->state == IBV_QPS_ERR) {
        complete(the().cqs.find(on.raw()->send_cq), completion(on, what.wr.wr_id, IBV_WC_WR_FLUSH_ERR), false);
        return 0;
    }
    on.sends.push_back(std::move(what));
    the().busy_senders.insert(&on);
    return 0;
}

} // namespace

int post(qp& on, ibv_send_wr* first, ibv_send_wr** bad)
{
    int code = 0;
    for (ibv_send_wr* wr = first; wr != nullptr; wr = wr->next) {
        code = check(on, *wr);
        if (code == 0) code = enqueue(on, copy_request(*wr));
        if (code == 0) continue;
        if (bad != nullptr) *bad = wr;
        break;
    }
    pump();
    return code;
}

namespace {

int op_post_send(ibv_qp* raw, ibv_send_wr* first, ibv_send_wr** bad)
{
    static constinit site here{"ibv_post_send", EIO};
    entry in{here, raw};
    qp* const on = in.fault() != 0 ? nullptr : in.need(the().qps, raw, "QP");
    if (on != nullptr && on->open_scope) in.misuse("between ibv_wr_start and ibv_wr_complete, which holds the QP's lock");
    if (on != nullptr) return returned(post(*on, first, bad));
    if (bad != nullptr) *bad = first;
    return returned(in.fault() != 0 ? in.fault() : EFAULT);
}

receive copy_receive(ibv_recv_wr const& wr)
{
    receive made{wr.wr_id, {}};
    if (wr.num_sge > 0) made.buffers.assign(wr.sg_list, wr.sg_list + wr.num_sge);
    return made;
}

bool too_many(int pieces, std::uint32_t most) { return pieces < 0 || static_cast<std::uint32_t>(pieces) > std::max(most, 1U); }

int post_receive(qp& on, ibv_recv_wr const& wr)
{
    if (on.raw()->state == IBV_QPS_RESET && !on.home().of->iwarp) return EINVAL;
    bool const queues = on.domain == nullptr && on.raw()->qp_type != IBV_QPT_XRC_SEND && on.raw()->srq == nullptr;
    if (!queues || too_many(wr.num_sge, on.attr.cap.max_recv_sge)) return EINVAL;
    if (on.receives.size() >= on.attr.cap.max_recv_wr) return ENOMEM;
    if (on.raw()->state == IBV_QPS_ERR) complete_receive(inbox_of(on), completion(on, wr.wr_id, IBV_WC_WR_FLUSH_ERR), false);
    else on.receives.push_back(copy_receive(wr));
    return 0;
}

int post_shared(srq& on, ibv_recv_wr const& wr)
{
    if (too_many(wr.num_sge, on.attr.max_sge)) return EINVAL;
    if (on.receives.size() >= on.attr.max_wr) return ENOMEM;
    on.receives.push_back(copy_receive(wr));
    return 0;
}

template <class Post>
int post_each(ibv_recv_wr* first, ibv_recv_wr** bad, Post one)
{
    int code = 0;
    for (ibv_recv_wr* wr = first; wr != nullptr && code == 0; wr = wr->next) {
        code = one(*wr);
        if (code != 0 && bad != nullptr) *bad = wr;
    }
    pump();
    return code;
}

int op_post_recv(ibv_qp* raw, ibv_recv_wr* first, ibv_recv_wr** bad)
{
    static constinit site here{"ibv_post_recv", EIO};
    entry in{here, raw};
    qp* const on = in.fault() != 0 ? nullptr : in.need(the().qps, raw, "QP");
    if (on != nullptr) return returned(post_each(first, bad, [on](ibv_recv_wr const& wr) { return post_receive(*on, wr); }));
    if (bad != nullptr) *bad = first;
    return returned(in.fault() != 0 ? in.fault() : EFAULT);
}

int op_post_srq_recv(ibv_srq* raw, ibv_recv_wr* first, ibv_recv_wr** bad)
{
    static constinit site here{"ibv_post_srq_recv", EIO};
    entry in{here, raw};
    srq* const on = in.fault() != 0 ? nullptr : in.need(the().srqs, raw, "SRQ");
    if (on != nullptr) return returned(post_each(first, bad, [on](ibv_recv_wr const& wr) { return post_shared(*on, wr); }));
    if (bad != nullptr) *bad = first;
    return returned(in.fault() != 0 ? in.fault() : EFAULT);
}

// ---- ibv_wr_start and the rest: requests built by calls ---------------------------------------------------------
/// The QP whose scope is open; null, and noted, when none is.
qp* scope(entry const& in, ibv_qp_ex* raw)
{
    qp* const of = in.need(the().qps, &raw->qp_base, "QP");
    if (of != nullptr && !of->open_scope) in.misuse("no ibv_wr_start before");
    return of != nullptr && of->open_scope ? of : nullptr;
}

/// What goes nowhere.
send& scrap()
{
    static send only; // guarded by the world's mutex
    return only = {};
}

send& begin(entry const& in, ibv_qp_ex* raw, ibv_wr_opcode opcode, std::uint64_t flag)
{
    qp* const of = scope(in, raw);
    if (of == nullptr) return scrap();
    if ((of->send_ops & flag) == 0) {
        in.would_crash("the QP was not made with the flag for this in send_ops_flags");
        return scrap();
    }
    send made;
    made.wr.wr_id = raw->wr_id;
    made.wr.send_flags = raw->wr_flags & ~unsigned{IBV_SEND_INLINE};
    made.wr.opcode = opcode;
    of->building.push_back(std::move(made));
    return of->building.back();
}

ibv_send_wr& begin_rdma(entry const& in, ibv_qp_ex* raw, ibv_wr_opcode opcode, std::uint64_t flag, std::uint32_t rkey, std::uint64_t at)
{
    ibv_send_wr& wr = begin(in, raw, opcode, flag).wr;
    wr.wr.rdma.rkey = rkey;
    wr.wr.rdma.remote_addr = at;
    return wr;
}

ibv_send_wr& begin_atomic(entry const& in, ibv_qp_ex* raw, ibv_wr_opcode opcode, std::uint64_t flag, std::uint32_t rkey, std::uint64_t at)
{
    ibv_send_wr& wr = begin(in, raw, opcode, flag).wr;
    wr.wr.atomic.rkey = rkey;
    wr.wr.atomic.remote_addr = at;
    return wr;
}

/// The request that a setter is about.
send& last(entry const& in, ibv_qp_ex* raw)
{
    qp* const of = scope(in, raw);
    if (of == nullptr) return scrap();
    if (!of->building.empty()) return of->building.back();
    in.misuse("no request before");
    return scrap();
}

void put_inline(send& to, void const* data, std::size_t length)
{
    auto const* const from = static_cast<std::uint8_t const*>(data);
    to.is_inline = true;
    to.wr.send_flags |= IBV_SEND_INLINE;
    if (length != 0) to.inlined.insert(to.inlined.end(), from, from + length);
}

void op_wr_start(ibv_qp_ex* raw)
{
    static constinit site here{"ibv_wr_start", 0};
    entry in{here, raw};
    qp* const of = in.need(the().qps, &raw->qp_base, "QP");
    if (of == nullptr) return;
    if (of->open_scope) in.misuse("the last ibv_wr_start has neither ibv_wr_complete nor ibv_wr_abort");
    of->building.clear();
    of->open_scope = true;
}

/// All or none.
int post_scope(qp& on, std::vector<send> requests)
{
    for (std::size_t i = 0; i < requests.size(); ++i) {
        requests[i].wr.num_sge = static_cast<int>(requests[i].buffers.size());
        if (int const code = check(on, requests[i].wr, i)) return code;
        if (is_too_long(on, requests[i])) return EINVAL;
    }
    for (send& each : requests) enqueue(on, std::move(each));
    pump();
    return 0;
}

int op_wr_complete(ibv_qp_ex* raw)
{
    static constinit site here{"ibv_wr_complete", EIO};
    entry in{here, raw};
    qp* const of = scope(in, raw);
    if (of == nullptr) return returned(EINVAL);
    of->open_scope = false;
    auto requests = std::exchange(of->building, {});
    if (int const code = in.fault()) return returned(code);
    return returned(post_scope(*of, std::move(requests)));
}

void op_wr_abort(ibv_qp_ex* raw)
{
    static constinit site here{"ibv_wr_abort", 0};
    entry in{here, raw};
    qp* const of = scope(in, raw);
    if (of == nullptr) return;
    of->open_scope = false;
    of->building.clear();
}

void fill_messages(qp& of)
{
    of.wr_send = [](ibv_qp_ex* raw) {
        static constinit site here{"ibv_wr_send", 0};
        entry in{here, raw};
        begin(in, raw, IBV_WR_SEND, IBV_QP_EX_WITH_SEND);
    };
    of.wr_send_imm = [](ibv_qp_ex* raw, __be32 imm) {
        static constinit site here{"ibv_wr_send_imm", 0};
        entry in{here, raw};
        begin(in, raw, IBV_WR_SEND_WITH_IMM, IBV_QP_EX_WITH_SEND_WITH_IMM).wr.imm_data = imm;
    };
    of.wr_send_inv = [](ibv_qp_ex* raw, std::uint32_t rkey) {
        static constinit site here{"ibv_wr_send_inv", 0};
        entry in{here, raw};
        begin(in, raw, IBV_WR_SEND_WITH_INV, IBV_QP_EX_WITH_SEND_WITH_INV).wr.invalidate_rkey = rkey;
    };
    of.wr_send_tso = [](ibv_qp_ex* raw, void* header, std::uint16_t size, std::uint16_t mss) {
        static constinit site here{"ibv_wr_send_tso", 0};
        entry in{here, raw};
        send& made = begin(in, raw, IBV_WR_TSO, IBV_QP_EX_WITH_TSO);
        auto const* const from = static_cast<std::uint8_t const*>(header);
        made.header.assign(from, from + size);
        made.wr.tso.mss = mss;
    };
    of.wr_local_inv = [](ibv_qp_ex* raw, std::uint32_t rkey) {
        static constinit site here{"ibv_wr_local_inv", 0};
        entry in{here, raw};
        begin(in, raw, IBV_WR_LOCAL_INV, IBV_QP_EX_WITH_LOCAL_INV).wr.invalidate_rkey = rkey;
    };
    of.wr_bind_mw = [](ibv_qp_ex* raw, ibv_mw* window, std::uint32_t rkey, ibv_mw_bind_info const* info) {
        static constinit site here{"ibv_wr_bind_mw", 0};
        entry in{here, raw};
        ibv_send_wr& wr = begin(in, raw, IBV_WR_BIND_MW, IBV_QP_EX_WITH_BIND_MW).wr;
        wr.bind_mw.mw = window;
        wr.bind_mw.rkey = rkey;
        wr.bind_mw.bind_info = *info;
    };
}

void fill_remote(qp& of)
{
    of.wr_rdma_read = [](ibv_qp_ex* raw, std::uint32_t rkey, std::uint64_t at) {
        static constinit site here{"ibv_wr_rdma_read", 0};
        entry in{here, raw};
        begin_rdma(in, raw, IBV_WR_RDMA_READ, IBV_QP_EX_WITH_RDMA_READ, rkey, at);
    };
    of.wr_rdma_write = [](ibv_qp_ex* raw, std::uint32_t rkey, std::uint64_t at) {
        static constinit site here{"ibv_wr_rdma_write", 0};
        entry in{here, raw};
        begin_rdma(in, raw, IBV_WR_RDMA_WRITE, IBV_QP_EX_WITH_RDMA_WRITE, rkey, at);
    };
    of.wr_rdma_write_imm = [](ibv_qp_ex* raw, std::uint32_t rkey, std::uint64_t at, __be32 imm) {
        static constinit site here{"ibv_wr_rdma_write_imm", 0};
        entry in{here, raw};
        begin_rdma(in, raw, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM, rkey, at).imm_data = imm;
    };
    of.wr_atomic_cmp_swp = [](ibv_qp_ex* raw, std::uint32_t rkey, std::uint64_t at, std::uint64_t compare, std::uint64_t swap) {
        static constinit site here{"ibv_wr_atomic_cmp_swp", 0};
        entry in{here, raw};
        auto& how = begin_atomic(in, raw, IBV_WR_ATOMIC_CMP_AND_SWP, IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP, rkey, at).wr.atomic;
        how.compare_add = compare;
        how.swap = swap;
    };
    of.wr_atomic_fetch_add = [](ibv_qp_ex* raw, std::uint32_t rkey, std::uint64_t at, std::uint64_t add) {
        static constinit site here{"ibv_wr_atomic_fetch_add", 0};
        entry in{here, raw};
        begin_atomic(in, raw, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD, rkey, at).wr.atomic.compare_add = add;
    };
}

void fill_setters(qp& of)
{
    of.wr_set_ud_addr = [](ibv_qp_ex* raw, ibv_ah* where, std::uint32_t qpn, std::uint32_t qkey) {
        static constinit site here{"ibv_wr_set_ud_addr", 0};
        entry in{here, raw};
        auto& ud = last(in, raw).wr.wr.ud;
        ud.ah = where;
        ud.remote_qpn = qpn;
        ud.remote_qkey = qkey;
    };
    of.wr_set_xrc_srqn = [](ibv_qp_ex* raw, std::uint32_t number) {
        static constinit site here{"ibv_wr_set_xrc_srqn", 0};
        entry in{here, raw};
        last(in, raw).wr.qp_type.xrc.remote_srqn = number;
    };
    of.wr_set_inline_data = [](ibv_qp_ex* raw, void* data, std::size_t length) {
        static constinit site here{"ibv_wr_set_inline_data", 0};
        entry in{here, raw};
        put_inline(last(in, raw), data, length);
    };
    of.wr_set_inline_data_list = [](ibv_qp_ex* raw, std::size_t many, ibv_data_buf const* list) {
        static constinit site here{"ibv_wr_set_inline_data_list", 0};
        entry in{here, raw};
        send& to = last(in, raw);
        for (std::size_t i = 0; i < many; ++i) put_inline(to, list[i].addr, list[i].length);
    };
    of.wr_set_sge = [](ibv_qp_ex* raw, std::uint32_t lkey, std::uint64_t at, std::uint32_t length) {
        static constinit site here{"ibv_wr_set_sge", 0};
        entry in{here, raw};
        last(in, raw).buffers.push_back({at, length, lkey});
    };
    of.wr_set_sge_list = [](ibv_qp_ex* raw, std::size_t many, ibv_sge const* list) {
        static constinit site here{"ibv_wr_set_sge_list", 0};
        entry in{here, raw};
        last(in, raw).buffers.assign(list, list + many);
    };
}

} // namespace

void fill_extended_operations(qp& of)
{
    of.wr_start = op_wr_start;
    of.wr_complete = op_wr_complete;
    of.wr_abort = op_wr_abort;
    fill_messages(of);
    fill_remote(of);
    fill_setters(of);
    fill_newer_operations(of);
}

/// What the header of rdma-core 50 calls through the QP, and older ones have no place for.
void post_atomic_write(entry const& in, ibv_qp_ex* raw, std::uint32_t rkey, std::uint64_t at, void const* value)
{
    send& made = begin(in, raw, IBV_WR_ATOMIC_WRITE, IBV_QP_EX_WITH_ATOMIC_WRITE);
    made.wr.wr.rdma.rkey = rkey;
    made.wr.wr.rdma.remote_addr = at;
    put_inline(made, value, sizeof(std::uint64_t));
}

void post_flush(entry const& in, ibv_qp_ex* raw, std::uint32_t rkey, std::uint64_t at, std::size_t length, std::uint8_t type, std::uint8_t level)
{
    send& made = begin(in, raw, wr_flush, std::uint64_t{1} << 11);
    made.wr.wr.rdma.rkey = rkey;
    made.wr.wr.rdma.remote_addr = at;
    made.wr.imm_data = type;
    made.wr.qp_type.xrc.remote_srqn = level;
    made.length = length;
}

void fill_qp_operations(context& of);

void fill_operations(context& of, bool iwarp)
{
    ibv_context_ops& ops = of.raw()->ops;
    ops.post_send = op_post_send;
    ops.post_recv = op_post_recv;
    ops.post_srq_recv = op_post_srq_recv;
    fill_cq_operations(of);
    fill_qp_operations(of);
    fill_xrc_operations(of);
    fill_region_operations(of);
    fill_domain_operations(of);
    fill_wq_operations(of);
    fill_flow_operations(of);
    if (!iwarp) fill_window_operations(of);
}

} // namespace fake::model
