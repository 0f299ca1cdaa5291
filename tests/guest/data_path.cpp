// SPDX-License-Identifier: MIT
// Work requests and completions over connections of librdmacm's, on either device: what a request does, how one is
// refused or fails, shared receive queues, memory windows, several CQs waited for together, and how a QP is drained.
// What a device cannot do is probed for, and skipped with the reason.
#include "guest/support.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace {

using namespace guest;

using ids = std::vector<std::uint64_t>;

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
        throw std::runtime_error("request " + std::to_string(got.wr_id()) + " failed: " + to_string(got.status()));
    CHECK(got.success().opcode() == what);
    return got;
}

/// Two ids of one device, their memory and a PD for both; connected by connect(), so that a case can make other things
/// on `domain` first.
struct link {
    explicit link(device const& on)
        : listener(listen_on(server_channel, on.at(0))), client(resolve(client_channel, listener.local_addr())),
          context(client.verbs()), domain(context), local(domain, 8192, rdma::for_read_sink(context.transport())),
          shared(domain, 8192, rdma::for_remote_read() | rdma::for_remote_write()) {
        write(local, 0, "client's own");
    }

    /// @param of_server the PD of the server's QP; none: `domain`
    void connect(rdma::qp_init_attr const& clients = {}, rdma::qp_init_attr const& servers = {},
                 rdma::pd_ref of_server = {}) {
        client.create_qp(domain, clients);
        client.connect();
        server = expect(server_channel, cm_event_type::connect_request).take_id();
        server.create_qp(of_server ? of_server : rdma::pd_ref(domain), servers);
        server.accept();
        expect(client_channel, cm_event_type::established).ack();
        expect(server_channel, cm_event_type::established).ack();
    }

    static void write(rdma::registered_buffer const& to, std::size_t at, std::string_view text) {
        std::memcpy(to.data() + at, text.data(), text.size());
    }
    static std::string_view read(rdma::registered_buffer const& from, std::size_t at, std::size_t length) {
        return {reinterpret_cast<char const*>(from.data()) + at, length};
    }

    rdma::event_channel server_channel, client_channel;
    cm_id listener, client, server;
    rdma::context_ref context;
    rdma::pd domain;
    rdma::registered_buffer local;  ///< the client's, also the sink of its reads
    rdma::registered_buffer shared; ///< the server's, which the client may read and write
};

// ---- What requests do -----------------------------------------------------------------------------------------------

/// One chain: writes in pieces and inline, a read of what they wrote, and messages, the first of which waits for the
/// read, since it sends what was read. Only the last completes visibly. The receives are a chain, too, and in pieces.
void chains(device const& on) {
    link ends(on);
    ends.connect({.cap = {.max_send_sge = 3, .max_inline_data = 32}}, {.cap = {.max_recv_sge = 2}});
    rdma::registered_buffer const &local = ends.local, &shared = ends.shared;
    std::array<ibv_sge, 4> const boxes{shared.sge(4096, 3), shared.sge(4200, 125), shared.sge(5000, 5),
                                       shared.sge(5100, 50)};
    std::array<rdma::recv_wr, 2> receives{rdma::recv_wr(std::span(boxes).first(2)).id(11),
                                          rdma::recv_wr(std::span(boxes).last(2)).id(12)};
    ends.server.qp().post_recv(std::span(receives));
    link::write(local, 100, "one");
    link::write(local, 200, "two");
    link::write(local, 300, "three");
    link::write(shared, 64, "the server's");
    std::array<ibv_sge, 3> const pieces{local.sge(100, 3), local.sge(200, 3), local.sge(300, 5)};
    std::array<char, 12> gone{"in the call"};
    ibv_sge const unregistered{reinterpret_cast<std::uintptr_t>(gone.data()), 11, 0};
    std::array<rdma::send_wr, 5> chain{
        rdma::send_wr::write(pieces, shared.remote(0)).id(1),
        rdma::send_wr::write(unregistered, shared.remote(32)).id(2).inlined(),
        rdma::send_wr::read(local.sge(1024, 128), shared.remote(0)).id(3),
        rdma::send_wr::send(local.sge(1024, 128)).id(4).fenced(),
        rdma::send_wr::send(unregistered).id(5).inlined().signaled(),
    };
    ends.client.qp().post_send(std::span(chain));
    gone = {}; // copied
    CHECK(done(ends.client.send_cq(), rdma::wc_opcode::send).wr_id() == 5);
    for (auto const& [id, length] : {std::pair(11U, 128U), std::pair(12U, 11U)}) {
        rdma::work_completion const got = done(ends.server.recv_cq(), rdma::wc_opcode::recv);
        CHECK(got.wr_id() == id);
        CHECK(got.success().byte_len() == length);
        CHECK_FALSE(got.success().imm_data());
    }
    CHECK(link::read(local, 1024, 11) == "onetwothree");
    CHECK(link::read(local, 1024 + 32, 11) == "in the call");
    CHECK(link::read(local, 1024 + 64, 12) == "the server's");
    CHECK(link::read(shared, 4096, 3) == "one");
    CHECK(link::read(shared, 4200, 8) == "twothree");
    CHECK(link::read(shared, 4200 + 61, 12) == "the server's");
    CHECK(link::read(shared, 5000, 5) == "in th");
    CHECK(link::read(shared, 5100, 6) == "e call");
}
GUEST_CASE("data: writes, a read and messages in one chain, in pieces", chains)

void atomics(device const& on) {
    link ends(on);
    ends.connect();
    rdma::mr const counter(ends.domain, ends.shared.bytes().first(8), rdma::for_remote_atomic());
    rdma::mr const before(ends.domain, ends.local.bytes().first(8), rdma::for_atomic_result());
    auto const value = [](rdma::registered_buffer const& of) {
        std::uint64_t number = 0;
        std::memcpy(&number, of.data(), sizeof number);
        return number;
    };
    std::uint64_t const first = 40;
    std::memcpy(ends.shared.data(), &first, sizeof first);
    rdma::qp_ref const qp = ends.client.qp();
    std::errc const refused =
        qp.post_send(rdma::send_wr::fetch_add(before.sge(), counter.remote(), 2).signaled(), std::nothrow);
    if (on.iwarp && refused != std::errc{})
        RDMACPP_SKIP("ibv_post_send refuses an atomic operation, which iWARP has not");
    REQUIRE(refused == std::errc{});
    done(ends.client.send_cq(), rdma::wc_opcode::fetch_add);
    CHECK(value(ends.local) == 40);
    CHECK(value(ends.shared) == 42);
    qp.post_send(rdma::send_wr::comp_swap(before.sge(), counter.remote(), 41, 1).signaled());
    done(ends.client.send_cq(), rdma::wc_opcode::comp_swap);
    CHECK(value(ends.local) == 42);
    CHECK(value(ends.shared) == 42); // it was not 41
    qp.post_send(rdma::send_wr::comp_swap(before.sge(), counter.remote(), 42, 1).signaled());
    done(ends.client.send_cq(), rdma::wc_opcode::comp_swap);
    CHECK(value(ends.shared) == 1);
}
GUEST_CASE("data: atomic operations", atomics)

// ---- Requests that are refused, or fail -----------------------------------------------------------------------------

/// The second of three is too long to be inlined, or has too many pieces: the first is queued, the third is not.
void refused_in_the_middle(device const& on) {
    link ends(on);
    ends.connect({.cap = {.max_inline_data = 32}});
    rdma::qp_ref const qp = ends.client.qp();
    link::write(ends.local, 0, "abc");
    auto const write = [&](std::uint64_t id, std::size_t length) {
        return rdma::send_wr::write(ends.local.sge(0, length), ends.shared.remote(16 * id)).id(id).signaled();
    };
    std::array<rdma::send_wr, 3> chain{write(1, 3), write(2, 4096).inlined(), write(3, 3)};
    std::size_t refused = 99;
    // siw's driver returns success here, and only marks the request.
    CHECK(qp.post_send(std::span(chain), refused, std::nothrow) != std::errc{});
    CHECK(refused == 1);
    CHECK(done(ends.client.send_cq(), rdma::wc_opcode::rdma_write).wr_id() == 1);

    auto const message_of = [&](auto post) {
        try {
            post();
        } catch (rdma::error const& error) {
            CHECK(error.code() == std::errc::invalid_argument);
            return std::string(error.what());
        }
        return std::string();
    };
    std::string message = message_of([&] { qp.post_send(std::span(chain)); });
    CHECK(message.find("request 2, number 1 of the chain") != std::string::npos);
    CHECK(done(ends.client.send_cq(), rdma::wc_opcode::rdma_write).wr_id() == 1);

    std::array<ibv_sge, 64> many{};
    many.fill(ends.local.sge(512, 8));
    std::array<rdma::recv_wr, 3> receives{rdma::recv_wr(many[0]).id(11), rdma::recv_wr(many).id(12),
                                          rdma::recv_wr(many[0]).id(13)};
    message = message_of([&] { qp.post_recv(std::span(receives)); });
    CHECK(message.find("request 12, number 1 of the chain") != std::string::npos);

    // The queue is as good as before.
    qp.post_send(rdma::send_wr::read(ends.local.sge(1024, 64), ends.shared.remote()).id(4).signaled());
    CHECK(done(ends.client.send_cq(), rdma::wc_opcode::rdma_read).wr_id() == 4);
    CHECK(link::read(ends.local, 1024 + 16, 3) == "abc");
    CHECK(link::read(ends.local, 1024 + 48, 3) == std::string_view("\0\0\0", 3));
}
GUEST_CASE("data: a chain with a request in the middle that is refused", refused_in_the_middle)

/// A read of what may not be read: it fails, and what was posted behind it is flushed.
void failed_in_the_middle(device const& on) {
    link ends(on);
    ends.connect();
    rdma::remote_memory const beyond{ends.shared.remote().address + 1024 * 1024, ends.shared.rkey()};
    std::array<rdma::send_wr, 3> chain{
        rdma::send_wr::read(ends.local.sge(0, 8), ends.shared.remote()).id(1).signaled(),
        rdma::send_wr::read(ends.local.sge(0, 8), beyond).id(2), // failures are told anyway
        rdma::send_wr::read(ends.local.sge(0, 8), ends.shared.remote()).id(3).signaled(),
    };
    ends.client.qp().post_send(std::span(chain));
    CHECK(done(ends.client.send_cq(), rdma::wc_opcode::rdma_read).wr_id() == 1);
    rdma::work_completion const failed = next(ends.client.send_cq()), behind = next(ends.client.send_cq());
    CHECK(failed.wr_id() == 2);
    // siw only knows that the connection is over.
    CHECK(failed.status() == (on.iwarp ? rdma::wc_status::wr_flush_err : rdma::wc_status::rem_access_err));
    CHECK(behind.wr_id() == 3);
    CHECK(behind.status() == rdma::wc_status::wr_flush_err);
    CHECK(behind.qp_num() == ends.client.qp().qp_num());
}
GUEST_CASE("data: a read of what may not be read", failed_in_the_middle)

// ---- Shared receive queues ------------------------------------------------------------------------------------------

/// Two connections take their receives from one SRQ; its limit is an event of the device, once.
void srq_limit(device const& on) {
    link ends(on), others(on);
    rdma::srq queue(ends.domain, rdma::srq_init_attr{.max_wr = 8});
    rdma::comp_channel const channel(ends.context);
    rdma::cq const receives(ends.context, 16, channel);
    rdma::qp_init_attr const servers{.recv_cq = receives, .srq = queue};
    ends.connect({}, servers);
    others.connect({}, servers, ends.domain);

    std::vector<rdma::recv_wr> boxes;
    for (std::uint64_t i = 0; i != 4; ++i)
        boxes.push_back(rdma::recv_wr(ends.shared.sge(64 * i, 64)).id(i));
    queue.post_recv(std::span(boxes));
    queue.set_limit(3);
    rdma::async_channel const events = ends.context.async_channel();
    auto const next_event = [&] { // of an SRQ; those of ports and QPs are others' business
        for (;;) {
            std::optional<rdma::async_event> event = events.get_for(patience);
            if (!event || event->kind() == rdma::async_event_kind::srq)
                return event;
        }
    };
    auto const message = [&](link& from) {
        from.client.qp().post_send(rdma::send_wr::send(from.local.sge(0, 12)).signaled());
        done(from.client.send_cq(), rdma::wc_opcode::send);
        return done(receives, rdma::wc_opcode::recv);
    };
    rdma::work_completion const first = message(ends);
    CHECK(first.wr_id() == 0);
    CHECK(first.qp_num() == ends.server.qp().qp_num());
    rdma::work_completion const second = message(others);
    CHECK(second.wr_id() == 1);
    CHECK(second.qp_num() == others.server.qp().qp_num());
    std::optional<rdma::async_event> event = next_event();
    REQUIRE(event);
    CHECK(event->type() == rdma::async_event_type::srq_limit_reached);
    CHECK(event->srq() == queue);
    message(ends);
    for (rdma::async_event const& other : events.pending()) // disarmed
        CHECK(other.kind() != rdma::async_event_kind::srq);

    // Armed again, and held while the queue is dropped: the event keeps it.
    queue.set_limit(1);
    message(others);
    event = next_event();
    REQUIRE(event);
    ends.server = {};
    others.server = {};
    queue = {};
    std::error_code ec;
    event->srq().set_limit(1, ec);
    CHECK_FALSE(ec); // still there
}
GUEST_CASE("data: an SRQ of two connections, and its limit", srq_limit)

// ---- Memory windows, and keys taken back ----------------------------------------------------------------------------

/// The client writes through a window of the server's as long as it is open.
void memory_window(device const& on, rdma::mw_type type) {
    link ends(on);
    ends.connect();
    std::error_code ec;
    rdma::mw window(ends.domain, type, ec);
    if (on.iwarp && (ec == std::errc::operation_not_supported || ec == std::errc::function_not_supported))
        RDMACPP_SKIP("ibv_alloc_mw: " + ec.message());
    REQUIRE_FALSE(ec);
    rdma::mr region(ends.domain, ends.shared.bytes(), rdma::access::local_write | rdma::access::mw_bind);
    rdma::qp_ref const server = ends.server.qp(), client = ends.client.qp();
    std::uint32_t key = window.next_rkey();
    if (type == rdma::mw_type::type_1)
        window.bind(server, region, 1024, 512, rdma::access::remote_write, 1, IBV_SEND_SIGNALED);
    else
        server.post_send(window.bind_request(key, region, 1024, 512, rdma::access::remote_write).id(1).signaled());
    CHECK(done(ends.server.send_cq(), rdma::wc_opcode::bind_mw).wr_id() == 1);
    if (type == rdma::mw_type::type_1)
        key = window.rkey();
    region = {}; // the window keeps it
    rdma::remote_memory const inside{ends.shared.remote(1024).address, key};
    client.post_send(rdma::send_wr::write(ends.local.sge(0, 12), inside).signaled());
    done(ends.client.send_cq(), rdma::wc_opcode::rdma_write);
    CHECK(link::read(ends.shared, 1024, 12) == "client's own");

    // Closed: by the server, or, of type 2, by the client with its last message.
    if (type == rdma::mw_type::type_1) {
        // No bytes; rxe's driver looks into the region all the same.
        window.bind(server, ends.shared.region(), 0, 0, rdma::access::none, 2, IBV_SEND_SIGNALED);
        CHECK(done(ends.server.send_cq(), rdma::wc_opcode::bind_mw).wr_id() == 2);
    } else {
        server.post_recv(rdma::recv_wr(ends.local.sge(4096, 64)).id(3));
        client.post_send(rdma::send_wr::send_inv(ends.local.sge(0, 12), key).signaled());
        done(ends.client.send_cq(), rdma::wc_opcode::send);
        rdma::work_completion const got = done(ends.server.recv_cq(), rdma::wc_opcode::recv);
        // rxe sets the kernel's number of the flag, which is another: then there seems to be no key.
        CHECK(got.success().invalidated_rkey().value_or(key) == key);
    }
    client.post_send(rdma::send_wr::write(ends.local.sge(0, 12), inside).signaled());
    CHECK(next(ends.client.send_cq()).status() == rdma::wc_status::rem_access_err);
}
void memory_windows(device const& on) {
    for (rdma::mw_type const type : {rdma::mw_type::type_1, rdma::mw_type::type_2})
        memory_window(on, type);
}
GUEST_CASE("data: memory windows", memory_windows)

/// A message that takes the key of a region back: siw can, rxe only that of a window.
void key_taken_back(device const& on) {
    link ends(on);
    ends.connect();
    ends.server.qp().post_recv(rdma::recv_wr(ends.shared.sge(0, 64)).id(1));
    rdma::mr const offered(ends.domain, ends.shared.bytes(), rdma::for_remote_read());
    ends.client.qp().post_send(rdma::send_wr::send_inv(ends.local.sge(0, 12), offered.rkey()).signaled());
    done(ends.client.send_cq(), rdma::wc_opcode::send);
    rdma::work_completion const got = next(ends.server.recv_cq());
    CHECK(got.wr_id() == 1);
    if (!on.iwarp) {
        CHECK(got.status() == rdma::wc_status::rem_inv_req_err);
        return;
    }
    REQUIRE(got);
    CHECK(got.success().byte_len() == 12);
    CHECK(link::read(ends.shared, 0, 12) == "client's own");
    ends.client.qp().post_send(rdma::send_wr::read(ends.local.sge(0, 12), offered.remote()).signaled());
    CHECK_FALSE(next(ends.client.send_cq()));
}
GUEST_CASE("data: a message that takes a region's key back", key_taken_back)

// ---- Several CQs on one channel -------------------------------------------------------------------------------------

/// Messages over two CQs of one channel: each wait tells whose completions it found, and nothing is lost on the way.
void two_cqs(device const& on) {
    constexpr std::uint64_t total = 40;
    link ends(on);
    rdma::comp_channel const channel(ends.context);
    rdma::cq const sends(ends.context, 64, channel), receives(ends.context, 64, channel);
    ends.connect({.send_cq = sends}, {.recv_cq = receives, .cap = {.max_recv_wr = total}});
    for (std::uint64_t i = 0; i != total; ++i)
        ends.server.qp().post_recv(rdma::recv_wr(ends.shared.sge(64 * i, 64)).id(i));
    std::array<rdma::cq_ref, 2> const both{sends, receives};
    rdma::cq_set set{both};
    std::array<rdma::work_completion, 2> some;
    CHECK(set.wait_for(some, std::chrono::milliseconds(1)).completions.empty());
    ids sent, received, expected;
    std::uint64_t posted = 0;
    auto const send = [&] {
        ends.client.qp().post_send(rdma::send_wr::send(ends.local.sge(0, 12)).id(posted).signaled());
        expected.push_back(posted++);
    };
    while (posted != 8)
        send();
    while (sent.size() + received.size() != 2 * total) {
        auto const [which, completions] = set.wait_for(some, patience);
        REQUIRE(!completions.empty());
        for (rdma::work_completion const& wc : completions) {
            REQUIRE(wc);
            CHECK((wc.success().opcode() == rdma::wc_opcode::send) == (which == both[0]));
            (which == both[0] ? sent : received).push_back(wc.wr_id());
            if (which == both[0] && posted != total)
                send();
        }
    }
    CHECK(sent == expected);
    CHECK(received == expected);
}
GUEST_CASE("data: two CQs of one channel", two_cqs)

// ---- A16: draining --------------------------------------------------------------------------------------------------

/// Everything that was posted comes back, whoever ended the connection first, and nothing of the library's own.
void drained(device const& on) {
    for (bool const over : {false, true}) {
        link ends(on);
        rdma::comp_channel const channel(ends.context);
        rdma::cq const queue(ends.context, 64, channel);
        ends.connect({}, {.send_cq = queue, .recv_cq = queue});
        rdma::qp_ref const qp = ends.server.qp();
        for (std::uint64_t const id : ids{1001, 1002})
            qp.post_recv(rdma::recv_wr(ends.shared.sge(0, 32)).id(id));
        ids expected{1001, 1002};
        if (over) {
            ends.client.disconnect();
            expect(ends.server_channel, cm_event_type::disconnected).ack();
        } else if (!on.iwarp) { // the peer has no receive for them; siw takes them for sent when TCP does
            qp.post_send(rdma::send_wr::send(ends.shared.sge(0, 32)).id(2001).signaled());
            qp.post_send(rdma::send_wr::send(ends.shared.sge(0, 32)).id(2002));
            expected.insert(expected.end(), {2001, 2002});
        }
        ids flushed;
        auto const limit = std::chrono::milliseconds(500);
        rdma::drained const result = qp.drain(limit, [&](rdma::work_completion const& wc) {
            CHECK_FALSE(wc);
            CHECK(wc.qp_num() == qp.qp_num());
            flushed.push_back(wc.wr_id());
        });
        std::sort(flushed.begin(), flushed.end());
        CHECK(flushed == expected);
        CHECK(result.completions == expected.size());
        CHECK(result);

        // Neither another move to the error state, nor the QP's end, brings anything more.
        ibv_qp_attr attr{};
        attr.qp_state = IBV_QPS_ERR;
        qp.modify(attr, IBV_QP_STATE);
        std::array<rdma::work_completion, 4> more;
        CHECK(queue.wait_for(more, std::chrono::milliseconds(10)).empty());
        ends.server.destroy_qp();
        CHECK(queue.poll(more).empty());
    }
}
GUEST_CASE("A16 a QP is drained", drained)

// ---- A24: what a read needs on iWARP --------------------------------------------------------------------------------

void read_sink(device const& on) {
    link ends(on);
    ends.connect();
    link::write(ends.shared, 0, "to be read");
    auto const read_into = [&](std::span<std::byte> memory, rdma::access allowed) {
        rdma::mr const sink(ends.domain, memory, allowed);
        ends.client.qp().post_send(rdma::send_wr::read(sink.sge(0, 10), ends.shared.remote()).signaled());
        return next(ends.client.send_cq());
    };
    CHECK(read_into(ends.local.bytes().subspan(1024, 64), rdma::for_read_sink(ends.context.transport())));
    CHECK(link::read(ends.local, 1024, 10) == "to be read");
    // Without remote write, iWARP devices fail, but for siw, which does not look.
    bool const read = static_cast<bool>(read_into(ends.local.bytes().subspan(2048, 64), rdma::for_recv()));
    CHECK((read || on.iwarp));
    if (read)
        CHECK(link::read(ends.local, 2048, 10) == "to be read");
}
GUEST_CASE("A24 the sink of a read", read_sink)

} // namespace
