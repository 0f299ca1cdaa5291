// SPDX-License-Identifier: MIT
// Verbs on a context that the program opened itself: what is asked of a device, what is made on it, and on soft-RoCE
// data between QPs that no id knows of. What a device cannot do is probed for, and skipped with the reason.
#include "guest/support.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <arpa/inet.h>

namespace {

using namespace guest;

constexpr std::uint8_t port = 1; // the only one of either device

/// The device opened once more, beside librdmacm's own context. Its list is gone by then.
rdma::context open(device const& on) {
    rdma::event_channel const channel;
    std::string const name(listen_on(channel, on.at(0)).verbs().device_name());
    rdma::device_list const all = rdma::device_list::get();
    return rdma::context(all.find(name));
}

bool unsupported(std::error_code ec) {
    return ec == std::errc::operation_not_supported || ec == std::errc::function_not_supported;
}

/// The next completion, which must be there in time.
rdma::work_completion next(rdma::cq_ref queue) {
    std::optional<rdma::work_completion> const got = queue.wait_one(patience);
    if (!got)
        throw std::runtime_error("no completion came");
    return *got;
}

/// The same, and a success of this kind.
rdma::work_completion done(rdma::cq_ref queue, rdma::wc_opcode what) {
    rdma::work_completion const got = next(queue);
    if (!got)
        throw std::runtime_error("a request failed: " + to_string(got.status()));
    CHECK(got.success().opcode() == what);
    return got;
}

/// Which of a device's addresses is the IPv4 address of the device, as RoCE writes it: ::ffff:a.b.c.d.
int index_of_address(rdma::context_ref context, device const& on) {
    std::array<ibv_gid_entry, 64> table{};
    ibv_gid wanted{};
    wanted.raw[10] = wanted.raw[11] = 0xFF;
    REQUIRE(::inet_pton(AF_INET, on.host.c_str(), &wanted.raw[12]) == 1);
    for (ibv_gid_entry const& entry : context.query_gid_table(table))
        if (entry.gid_type == IBV_GID_TYPE_ROCE_V2 && std::memcmp(entry.gid.raw, wanted.raw, sizeof wanted.raw) == 0)
            return static_cast<int>(entry.gid_index);
    return -1;
}

// ---- The device -----------------------------------------------------------------------------------------------------

void device_asked(device const& on) {
    rdma::context const opened = open(on);
    rdma::device_list const all = rdma::device_list::get();
    rdma::device_ref const listed = all.find(opened.device_name());
    REQUIRE(listed);
    CHECK(listed.index() >= 0);
    CHECK(listed.node_type() == (on.iwarp ? rdma::node_type::rnic : rdma::node_type::ca));
    CHECK(opened.transport() == (on.iwarp ? rdma::transport_type::iwarp : rdma::transport_type::ib));
    CHECK_FALSE(all.find("no such device"));

    ibv_device_attr const attr = opened.query_device();
    CHECK(attr.phys_port_cnt == port);
    CHECK(attr.max_qp > 0);
    CHECK(attr.node_guid == listed.guid());
    ibv_device_attr_ex const more = opened.query_device_ex();
    CHECK(more.orig_attr.max_cqe == attr.max_cqe);

    CHECK(opened.query_port(port).state == IBV_PORT_ACTIVE);
    std::error_code ec;
    (void)opened.query_port(9, ec);
    CHECK(ec == std::errc::invalid_argument);

    std::array<ibv_gid_entry, 64> table{};
    auto const gids = opened.query_gid_table(table);
    REQUIRE(!gids.empty());
    ibv_gid_entry const& first = gids.front();
    CHECK(opened.query_gid(port, static_cast<int>(first.gid_index)).global.interface_id ==
          first.gid.global.interface_id);
    CHECK(opened.query_gid_ex(port, first.gid_index).ndev_ifindex == first.ndev_ifindex);
    (void)opened.query_gid_ex(port, 100000, ec);
    CHECK(ec);
    if (!on.iwarp) {
        CHECK(index_of_address(opened, on) >= 0);
        CHECK(opened.query_pkey(port, 0) == 0xFFFF);
        CHECK(opened.get_pkey_index(port, 0xFFFF) == 0);
    }
    (void)opened.get_pkey_index(port, 0x1234, ec);
    CHECK(ec);
    (void)opened.query_raw_clock(ec);
    CHECK((!ec || unsupported(ec)));

    // Port and address changes of the guest's start went to others: nothing is told to who opens it later.
    CHECK_FALSE(opened.async_channel().try_get());
}
GUEST_CASE("verbs: a device is listed, opened and asked", device_asked)

// ---- What is made on it ---------------------------------------------------------------------------------------------

void objects_of_an_own_context(device const& on) {
    rdma::context opened = open(on);
    rdma::pd domain(opened);
    rdma::comp_channel channel(opened);
    rdma::cq queue(opened, 5, channel);
    CHECK(queue.cqe() >= 5);
    rdma::srq shared(domain, rdma::srq_init_attr{.max_wr = 10, .max_sge = 2});
    CHECK(shared.cap().max_wr >= 10);
    CHECK(shared.cap().max_sge >= 2);
    std::error_code ec;
    rdma::qp_cap const asked{
        .max_send_wr = 5, .max_recv_wr = 6, .max_send_sge = 2, .max_recv_sge = 3, .max_inline_data = 17};
    rdma::qp own(domain, rdma::qp_type::rc, rdma::qp_init_attr{.send_cq = queue, .recv_cq = queue, .cap = asked});
    rdma::qp const of_shared(domain, rdma::qp_type::rc,
                             rdma::qp_init_attr{.send_cq = queue, .recv_cq = queue, .srq = shared});
    CHECK(own.cap().max_send_wr >= asked.max_send_wr);
    CHECK(own.cap().max_recv_wr >= asked.max_recv_wr);
    CHECK(own.cap().max_send_sge >= asked.max_send_sge);
    CHECK(own.cap().max_recv_sge >= asked.max_recv_sge);
    CHECK(own.cap().max_inline_data >= asked.max_inline_data);
    CHECK(own.query(IBV_QP_CAP).cap.max_send_wr >= own.cap().max_send_wr);
    CHECK(own.query(IBV_QP_STATE).qp_state == IBV_QPS_RESET);
    CHECK_FALSE(rdma::qp_ref(own).ex()); // made without send_ops_flags

    // Sizes changed, and what a device may lack.
    queue.moderate(4, 100, ec);
    CHECK((!ec || unsupported(ec)));
    queue.resize(40, ec);
    CHECK((!ec || (on.iwarp && unsupported(ec))));
    CHECK(queue.cqe() >= (ec ? 5 : 40));
    shared.resize(40, ec);
    CHECK((!ec || (on.iwarp && unsupported(ec))));
    shared.set_limit(3);
    ibv_srq_attr const changed = shared.query(ec);
    CHECK((!ec || (on.iwarp && unsupported(ec))));
    if (!ec) {
        CHECK(changed.max_wr >= (on.iwarp ? 10U : 40U));
        CHECK(changed.srq_limit == 3);
    }

    own.destroy(ec);
    CHECK_FALSE(ec);
    queue.destroy(ec);
    CHECK(ec == std::errc::device_or_resource_busy); // of_shared uses it
    CHECK(queue);

    // Dropped from the ground up, the rest is still of use.
    opened = {};
    domain = {};
    channel = {};
    queue = {};
    CHECK(of_shared.query(IBV_QP_STATE).qp_state == IBV_QPS_RESET);
    shared.set_limit(1);
}
GUEST_CASE("verbs: pd, CQ, SRQ and QPs on a context of one's own", objects_of_an_own_context)

/// So many huge pages in the system's pool, which root may fill; then as many as before.
class huge_pages {
public:
    explicit huge_pages(int wanted) {
        std::ifstream(pool) >> before_;
        fill(wanted);
    }
    huge_pages(huge_pages const&) = delete;
    huge_pages& operator=(huge_pages const&) = delete;
    ~huge_pages() { fill(before_); }

private:
    static constexpr char const* pool = "/proc/sys/vm/nr_hugepages";
    static void fill(int pages) { std::ofstream(pool) << pages; }
    int before_ = 0;
};

/// Whatever lies in one piece of memory, and regions of other kinds.
void regions(device const& on) {
    rdma::context const opened = open(on);
    rdma::pd const domain(opened);
    std::vector<std::uint32_t> words(1000);
    rdma::mr region(domain, words, rdma::for_remote_write());
    CHECK(region.addr() == words.data());
    CHECK(region.length() == 4000);
    CHECK(region.remote(8).rkey == region.rkey());

    std::error_code ec;
    rdma::mr const nothing(domain, std::span<std::byte>(), rdma::access::none, ec);
    CHECK(ec);
    CHECK_FALSE(nothing);
    rdma::mr const wrong(domain, words, rdma::access::remote_write, ec); // without local_write
    CHECK(ec == std::errc::invalid_argument);

    rdma::registered_buffer buffer(domain, 5000, rdma::for_recv());
    CHECK(std::ranges::all_of(buffer.bytes(), [](std::byte b) { return b == std::byte{0}; }));
    CHECK(reinterpret_cast<std::uintptr_t>(buffer.data()) % 4096 == 0);
    CHECK(buffer.sge().length == 5000);
    huge_pages const two(2);
    rdma::registered_buffer const huge(domain, 5000, rdma::for_recv(), rdma::pages::huge);
    CHECK(reinterpret_cast<std::uintptr_t>(huge.data()) % (2 << 20) == 0);
    CHECK(huge.length() == 5000);

    std::span<std::byte> const half = buffer.bytes().first(2048);
    rdma::mr const elsewhere = rdma::mr::reg_mr_iova(domain, half, 0x10000, rdma::for_remote_read(), ec);
    CHECK(static_cast<bool>(elsewhere) == !ec);
    CHECK((on.iwarp || elsewhere)); // siw takes it, but not for what it says

    region.rereg(IBV_REREG_MR_CHANGE_ACCESS, domain, {}, rdma::for_recv(), ec);
    INFO(ec.message());
    CHECK((!ec || unsupported(ec)));
}
GUEST_CASE("verbs: memory is registered", regions)

/// What a soft device may lack is refused with the reason, and leaves nothing. Where it is there, it works.
void what_may_be_missing(device const& on) {
    rdma::context const opened = open(on);
    rdma::pd const domain(opened);
    auto const probe = [](char const* what, auto make) {
        std::error_code ec;
        auto made = make(ec);
        INFO(what << ": " << ec.message());
        CHECK(static_cast<bool>(made) == !ec);
        CHECK((!ec || unsupported(ec)));
        return made;
    };
    (void)probe("thread domain", [&](std::error_code& ec) { return rdma::td(opened, ec); });
    (void)probe("counters", [&](std::error_code& ec) { return rdma::counters(opened, ec); });
    (void)probe("null region", [&](std::error_code& ec) { return rdma::mr::alloc_null_mr(domain, ec); });
    (void)probe("XRC domain", [&](std::error_code& ec) { return rdma::xrcd(opened, ec); });
    rdma::dm const memory = probe("device memory", [&](std::error_code& ec) { return rdma::dm(opened, 64, 0, ec); });
    if (memory) {
        std::array<std::byte, 64> const out{std::byte{1}};
        std::array<std::byte, 64> in{};
        memory.copy_to(0, out);
        memory.copy_from(0, in);
        CHECK(in == out);
        CHECK(rdma::reg_dm_mr(domain, memory, 0, 64, rdma::access::zero_based).length() == 64);
    }
    std::error_code ec;
    CHECK_FALSE(rdma::mr::reg_dmabuf_mr(domain, 0, 4096, 0, -1, rdma::for_recv(), ec)); // no such descriptor
    CHECK((unsupported(ec) || ec == std::errc::bad_file_descriptor));
    CHECK_FALSE(rdma::ah(domain, ibv_ah_attr{}, ec)); // siw has none, and rxe none without an address
    CHECK(ec);
}
GUEST_CASE("verbs: what a device may lack", what_may_be_missing)

/// Memory that is fetched when it is used, explicitly registered or all there is.
void on_demand_paging(device const& on) {
    rdma::context const opened = open(on);
    ibv_odp_caps const caps = opened.query_device_ex().odp_caps;
    rdma::pd const domain(opened);
    std::vector<std::byte> memory(1024 * 1024);
    std::error_code ec;
    rdma::mr const region(domain, memory, rdma::for_recv() | rdma::access::on_demand, ec);
    if (!(caps.general_caps & IBV_ODP_SUPPORT)) {
        CHECK(ec); // it does not pretend
        CHECK_FALSE(rdma::mr::reg_implicit(domain, rdma::for_recv(), ec));
        CHECK(ec);
        RDMACPP_SKIP("ibv_query_device_ex says that the device has no on-demand paging");
    }
    REQUIRE_FALSE(ec);
    std::array<ibv_sge, 1> const pieces{region.sge()};
    rdma::advise_mr(domain, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, IBV_ADVISE_MR_FLAG_FLUSH, std::span(pieces), ec);
    CHECK((!ec || unsupported(ec)));
    rdma::mr const all = rdma::mr::reg_implicit(domain, rdma::for_recv(), ec);
    CHECK((caps.general_caps & IBV_ODP_SUPPORT_IMPLICIT ? !ec : static_cast<bool>(ec)));
}
GUEST_CASE("verbs: on-demand paging", on_demand_paging)

// ---- QPs that no id knows of ----------------------------------------------------------------------------------------

constexpr std::uint32_t key = 0x11111111; // of datagrams

/// The address handle's attributes for one of the device's own addresses.
ibv_ah_attr to_itself(rdma::context_ref context, device const& on) {
    ibv_ah_attr attr{};
    int const index = index_of_address(context, on);
    REQUIRE(index >= 0);
    attr.grh.dgid = context.query_gid(port, index);
    attr.grh.sgid_index = static_cast<std::uint8_t>(index);
    attr.grh.hop_limit = 1;
    attr.is_global = 1;
    attr.port_num = port;
    return attr;
}

/// Moves a QP from RESET to RTS, connected with that number on the same device; siw has no way to do this without CM.
void connect_by_hand(rdma::qp_ref qp, std::uint32_t peer, ibv_ah_attr const& there) {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = port;
    attr.qp_access_flags = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
    qp.modify(attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
    attr.qp_state = IBV_QPS_RTR;
    attr.path_mtu = IBV_MTU_1024;
    attr.dest_qp_num = peer;
    attr.max_dest_rd_atomic = 4;
    attr.min_rnr_timer = 1;
    attr.ah_attr = there;
    qp.modify(attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                        IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
    attr.qp_state = IBV_QPS_RTS;
    attr.timeout = 14;
    attr.retry_cnt = 7;
    attr.rnr_retry = 7;
    attr.max_rd_atomic = 4;
    qp.modify(attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                        IBV_QP_MAX_QP_RD_ATOMIC);
}

/// Two QPs of one context, connected with each other; everything completes on one CQ.
struct loopback {
    template <class Attr>
    loopback(device const& on, rdma::context_ref context, Attr const& attr)
        : domain(context), a(domain, rdma::qp_type::rc, attr), b(domain, rdma::qp_type::rc, attr),
          memory(domain, 4096, rdma::for_recv() | rdma::for_remote_write() | rdma::for_remote_read()) {
        ibv_ah_attr const here = to_itself(context, on);
        connect_by_hand(a, b.qp_num(), here);
        connect_by_hand(b, a.qp_num(), here);
    }
    rdma::pd domain;
    rdma::qp a, b;
    rdma::registered_buffer memory;
};

constexpr char const* text = "as long as it is";

/// Reads `count` completions where they are. @param one_by_one each poll ends with the first
template <class Look>
void read_completions(rdma::cq_ex const& queue, rdma::comp_channel const& channel, bool one_by_one, std::size_t count,
                      Look look) {
    for (bool armed = false; count != 0;) {
        std::size_t const before = count;
        for (rdma::polling& completion : queue.start_poll()) {
            look(std::as_const(completion));
            if (--count == 0 || one_by_one)
                break;
        }
        if (count != before)
            continue;
        if (armed && !channel.get_for(patience))
            throw std::runtime_error("no completion came");
        if (!armed)
            queue.req_notify();
        armed = !armed;
    }
}

/// Whether a poll may be asked for more than there is. In rxe of rdma-core 44 the step past the last ends the poll, and
/// the end that must follow skips a completion, so that the CQ is of no use any more.
bool may_step_past_the_last(device const& on, rdma::context_ref opened) {
    rdma::comp_channel const channel(opened);
    rdma::cq_ex const queue(opened, {.channel = channel});
    loopback const both_ends(on, opened, rdma::qp_init_attr{.send_cq = queue, .recv_cq = queue});
    both_ends.a.post_send(
        rdma::send_wr::write(both_ends.memory.sge(0, 8), both_ends.memory.remote(64)).id(5).signaled());
    auto const until = std::chrono::steady_clock::now() + patience;
    while (std::chrono::steady_clock::now() < until) {
        rdma::polling completion = queue.start_poll();
        CHECK(completion.error() == std::errc{});
        if (!completion)
            continue;
        CHECK(completion.wr_id() == 5);
        completion.next();
        CHECK_FALSE(completion);
        CHECK(completion.error() == std::errc{});
        break;
    }
    return !queue.start_poll();
}

/// Completions read where they are, those that succeeded and those that failed.
void extended_cq(device const& on) {
    rdma::context const opened = open(on);
    rdma::comp_channel const channel(opened);
    std::error_code ec;
    rdma::cq_ex const queue(opened, {.cqe = 32, .channel = channel}, ec);
    if (on.iwarp && unsupported(ec))
        RDMACPP_SKIP("ibv_create_cq_ex: " + ec.message());
    REQUIRE_FALSE(ec);
    CHECK_FALSE(queue.start_poll());
    bool const one_by_one = !may_step_past_the_last(on, opened);

    loopback const both_ends(on, opened, rdma::qp_init_attr{.send_cq = queue, .recv_cq = queue});
    rdma::registered_buffer const& memory = both_ends.memory;
    std::memcpy(memory.data(), text, 16);
    for (std::uint64_t i = 0; i != 4; ++i)
        both_ends.b.post_recv(rdma::recv_wr(memory.sge(1024 + 16 * i, 16)).id(100 + i));
    for (std::uint64_t i = 0; i != 4; ++i)
        both_ends.a.post_send(rdma::send_wr::send(memory.sge(0, 16)).id(i).imm(htonl(7)).signaled());
    std::vector<std::uint64_t> sent, received;
    read_completions(queue, channel, one_by_one, 8, [&](rdma::polling const& completion) {
        REQUIRE(completion.status() == rdma::wc_status::success);
        rdma::completed_ex const success = completion.success();
        bool const of_receive = success.opcode() == rdma::wc_opcode::recv;
        (of_receive ? received : sent).push_back(completion.wr_id());
        CHECK(completion.qp_num() == (of_receive ? both_ends.b : both_ends.a).qp_num());
        if (!of_receive)
            return;
        CHECK(success.byte_len() == 16);
        CHECK(success.wc_flags() & IBV_WC_WITH_IMM);
        CHECK(success.imm_data() == htonl(7));
    });
    CHECK(sent == std::vector<std::uint64_t>{0, 1, 2, 3});
    CHECK(received == std::vector<std::uint64_t>{100, 101, 102, 103});
    CHECK(std::memcmp(memory.data() + 1024 + 48, text, 16) == 0);

    // Read beyond the region: what failed, and what comes behind it.
    rdma::remote_memory const beyond{memory.remote().address + 1024 * 1024, memory.rkey()};
    both_ends.a.post_send(rdma::send_wr::read(memory.sge(0, 16), beyond).id(21).signaled());
    both_ends.a.post_send(rdma::send_wr::read(memory.sge(0, 16), memory.remote()).id(22).signaled());
    std::vector<std::pair<std::uint64_t, rdma::wc_status>> failed;
    read_completions(queue, channel, one_by_one, 2, [&](rdma::polling const& completion) {
        failed.emplace_back(completion.wr_id(), completion.status());
    });
    REQUIRE(failed.size() == 2);
    CHECK(failed[0] == std::pair(std::uint64_t{21}, rdma::wc_status::rem_access_err));
    CHECK(failed[1] == std::pair(std::uint64_t{22}, rdma::wc_status::wr_flush_err));
}
GUEST_CASE("verbs: an extended CQ", extended_cq)

/// Requests written straight into the send queue.
void batches(device const& on) {
    rdma::context const opened = open(on);
    rdma::comp_channel const channel(opened);
    rdma::cq const queue(opened, 32, channel);
    rdma::qp_init_attr_ex const attr{
        .attr = {.send_cq = queue, .recv_cq = queue, .cap = {.max_send_sge = 2, .max_inline_data = 32}},
        .send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_READ |
                          IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | IBV_QP_EX_WITH_SEND_WITH_IMM,
    };
    {
        rdma::pd const domain(opened);
        std::error_code ec;
        rdma::qp const probe(domain, rdma::qp_type::rc, attr, ec);
        if (on.iwarp && unsupported(ec))
            RDMACPP_SKIP("ibv_create_qp_ex with send_ops_flags: " + ec.message());
        REQUIRE_FALSE(ec);
    }
    loopback both_ends(on, opened, attr);
    rdma::qp_ex_ref const ex = rdma::qp_ref(both_ends.a).ex();
    REQUIRE(ex);
    rdma::registered_buffer const& memory = both_ends.memory;
    rdma::mr const counter(both_ends.domain, memory.bytes().subspan(2048, 8), rdma::for_remote_atomic());
    std::memcpy(memory.data(), text, 16);
    {
        rdma::wr_batch dropped = ex.start();
        dropped.request(1, IBV_SEND_SIGNALED).write(memory.remote(512)).sge(memory.sge(0, 16));
    }
    rdma::wr_batch aborted = ex.start();
    aborted.request(2, IBV_SEND_SIGNALED).write(memory.remote(512)).sge(memory.sge(0, 16));
    aborted.abort();

    std::array<ibv_sge, 2> const pieces{memory.sge(0, 4), memory.sge(8, 4)};
    std::array<std::byte, 16> gone{};
    std::memcpy(gone.data(), text, 16);
    rdma::wr_batch batch = ex.start();
    batch.request(3).write(memory.remote(1024)).sge(pieces);
    batch.request(4, IBV_SEND_INLINE).write(memory.remote(1040)).inline_data(std::as_bytes(std::span(gone)));
    gone = {}; // copied
    batch.request(5, IBV_SEND_SIGNALED).fetch_add(counter.remote(), 5).sge(memory.sge(2056, 8));
    batch.request(6, IBV_SEND_SIGNALED).read(memory.remote(1024)).sge(memory.sge(1536, 32));
    batch.complete();
    CHECK(done(queue, rdma::wc_opcode::fetch_add).wr_id() == 5); // neither 1 nor 2
    CHECK(done(queue, rdma::wc_opcode::rdma_read).wr_id() == 6);
    CHECK(std::memcmp(memory.data() + 1536, "as las i", 8) == 0);
    CHECK(std::memcmp(memory.data() + 1552, text, 16) == 0);
    CHECK(memory.data()[512] == std::byte{0}); // nothing of what was dropped
    CHECK(memory.data()[2048] == std::byte{5});

    both_ends.b.post_recv(rdma::recv_wr(memory.sge(3072, 64)).id(7));
    ex.post([&](rdma::wr_batch& one) { one.request(8).send_imm(htonl(9)).sge(memory.sge(0, 16)); });
    rdma::work_completion const got = done(queue, rdma::wc_opcode::recv);
    CHECK(got.wr_id() == 7);
    CHECK(got.success().imm_data() == htonl(9));
}
GUEST_CASE("verbs: requests by ibv_wr_start and its like", batches)

/// Datagrams between two QPs, and their answer to the address that came with them; then by a group.
void datagrams(device const& on) {
    rdma::context const opened = open(on);
    rdma::pd const domain(opened);
    rdma::comp_channel const channel(opened);
    rdma::cq const sends(opened, 8, channel), receives(opened, 8, channel);
    rdma::qp_init_attr const attr{.send_cq = sends, .recv_cq = receives};
    std::error_code ec;
    rdma::qp a(domain, rdma::qp_type::ud, attr, ec);
    if (ec && on.iwarp)
        RDMACPP_SKIP("a datagram QP: " + ec.message());
    REQUIRE_FALSE(ec);
    rdma::qp b(domain, rdma::qp_type::ud, attr);
    for (rdma::qp* const qp : {&a, &b}) {
        ibv_qp_attr to{};
        to.qp_state = IBV_QPS_INIT;
        to.port_num = port;
        to.qkey = key;
        qp->modify(to, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY);
        to.qp_state = IBV_QPS_RTR;
        qp->modify(to, IBV_QP_STATE);
        to.qp_state = IBV_QPS_RTS;
        qp->modify(to, IBV_QP_STATE | IBV_QP_SQ_PSN);
    }
    rdma::registered_buffer const memory(domain, 4096, rdma::for_recv());
    std::memcpy(memory.data(), text, 16);
    auto const box = [&](std::size_t n) { return memory.bytes().subspan(512 + 128 * n, 128); };
    auto const receive = [&](rdma::qp const& qp, std::size_t n) {
        qp.post_recv(rdma::recv_wr(memory.sge(512 + 128 * n, 128)).id(n));
    };
    auto const letter = [&](rdma::ah_ref to, std::uint32_t number) {
        return rdma::send_wr::send(memory.sge(0, 16)).to(to, number, key).signaled();
    };
    ibv_ah_attr const here = to_itself(opened, on);
    rdma::ah const to_itself(domain, here);
    receive(b, 0);
    a.post_send(letter(to_itself, b.qp_num()));
    done(sends, rdma::wc_opcode::send);
    rdma::work_completion const question = done(receives, rdma::wc_opcode::recv);
    CHECK(question.success().has_grh());
    CHECK(question.success().src_qp() == a.qp_num());
    CHECK(question.success().byte_len() == rdma::grh_size + 16);
    CHECK(std::memcmp(box(0).data() + rdma::grh_size, text, 16) == 0);

    rdma::ah const back(domain, question, box(0), port);
    receive(a, 1);
    b.post_send(letter(back, question.success().src_qp()));
    rdma::work_completion const answer = done(receives, rdma::wc_opcode::recv);
    CHECK(answer.success().src_qp() == b.qp_num());

    // A group: 239.1.2.3, as RoCE writes it.
    ibv_gid group{};
    group.raw[0] = 0xFF;
    group.raw[1] = 0x0E;
    group.raw[10] = group.raw[11] = 0xFF;
    REQUIRE(::inet_pton(AF_INET, "239.1.2.3", &group.raw[12]) == 1);
    rdma::mcast membership(b, group, 0);
    b = {}; // not destroyed as long as it is attached
    CHECK(membership);
    membership.detach();
    CHECK_FALSE(membership);
}
GUEST_CASE("verbs: datagrams", datagrams)

} // namespace
