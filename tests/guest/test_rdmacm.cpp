// SPDX-License-Identifier: MIT
// The scenarios of rdma-core's own Python test of librdmacm, test_rdmacm.py: the same ten messages of 1 KiB, written
// for this library. The names are those of the cases there. Not here: the one of rdma_resolve_addrinfo, which runs on
// the fake, and those that need a device of Mellanox. What a device cannot do is probed for, and skipped with the
// reason.
#include "guest/support.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <future>
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

constexpr int messages = 10;
constexpr std::size_t message_size = 1024;
using message = std::array<std::byte, message_size>;

/// Each message is another, and no two bytes beside each other are the same.
message text_of(std::string_view from, int round) {
    message text;
    for (std::size_t i = 0; i != text.size(); ++i)
        text[i] = static_cast<std::byte>(static_cast<std::size_t>(from[0]) + static_cast<std::size_t>(round) * 31 + i);
    return text;
}

/// The next completion, which must be a success of this kind.
rdma::work_completion complete(rdma::cq_ref queue, rdma::wc_opcode what) {
    rdma::work_completion wc;
    if (queue.wait_for({&wc, 1}, patience).empty())
        throw std::runtime_error("no completion came");
    if (!wc)
        throw std::runtime_error("a request failed: " + to_string(wc.status()));
    CHECK(wc.success().opcode() == what);
    return wc;
}

/// How a case differs from the plain way.
struct how {
    std::optional<rdma::ack_timeout> ack_timeout = {};
    bool external_qp = false; ///< The program makes the QP, and moves it through its states.
    std::optional<ibv_ece> clients_ece = {}, servers_ece = {};
};

/// One end of a connection with its memory, made before it connects: receives are posted by then. The peer may read and
/// write `shared`.
class end {
public:
    end(cm_id made, how const& h) : id(std::move(made)) {
        if (h.external_qp) {
            completions_ = rdma::comp_channel(id.verbs());
            queue_ = rdma::cq(id.verbs(), 32, completions_);
            own_ = rdma::qp(id.pd(), rdma::qp_type::rc, {.send_cq = queue_, .recv_cq = queue_});
            move_to(IBV_QPS_INIT);
        } else
            id.create_qp({});
        // On iWARP the sink of an RDMA read needs remote_write.
        constexpr auto all = rdma::access::local_write | rdma::access::remote_read | rdma::access::remote_write;
        in_ = rdma::mr(id.pd(), received, rdma::access::local_write);
        out_ = rdma::mr(id.pd(), local, all);
        shared_ = rdma::mr(id.pd(), shared, all);
        receive();
    }
    end(end const&) = delete;
    end& operator=(end const&) = delete;

    message received{}, local{}, shared{};
    cm_id id;
    rdma::remote_memory peer{}; ///< the peer's `shared`

    rdma::remote_memory remote() const { return shared_.remote(); }
    rdma::qp_ref qp() const { return own_ ? rdma::qp_ref(own_) : id.qp(); }

    /// Of a QP of the program's own.
    void move_to(ibv_qp_state state) { own_.modify(id.init_qp_attr(state)); }
    void end_external_qp() {
        ibv_qp_attr attr{};
        attr.qp_state = IBV_QPS_ERR;
        own_.modify(attr, IBV_QP_STATE);
    }

    void receive() { qp().post_recv(rdma::recv_wr(in_.sge()).id(1)); }
    void send(message const& text) {
        local = text;
        qp().post_send(rdma::send_wr::send(out_.sge()).id(2).signaled());
        CHECK(complete(sends(), rdma::wc_opcode::send).wr_id() == 2);
    }
    /// Waits for a message, and posts the next receive.
    message take() {
        rdma::work_completion const wc = complete(receives(), rdma::wc_opcode::recv);
        CHECK(wc.wr_id() == 1);
        CHECK(wc.success().byte_len() == message_size);
        message const text = received;
        receive();
        return text;
    }
    void read() {
        qp().post_send(rdma::send_wr::read(out_.sge(), peer).signaled());
        complete(sends(), rdma::wc_opcode::rdma_read);
    }
    void write(message const& text) {
        local = text;
        qp().post_send(rdma::send_wr::write(out_.sge(), peer).signaled());
        complete(sends(), rdma::wc_opcode::rdma_write);
    }

private:
    rdma::cq_ref sends() const { return queue_ ? rdma::cq_ref(queue_) : id.send_cq(); }
    rdma::cq_ref receives() const { return queue_ ? rdma::cq_ref(queue_) : id.recv_cq(); }

    rdma::comp_channel completions_;
    rdma::cq queue_;
    rdma::qp own_;
    rdma::mr in_, out_, shared_;
};

/// A connection, made of the two ends, each of which tells the other where its memory is.
struct connection {
    explicit connection(device const& on, how const& h = {}) : listener(listen_on(server_channel, on.at(0))) {
        client.emplace(resolved(h), h);
        begin(h);
        cm_event request = expect(server_channel, cm_event_type::connect_request);
        answer(request, h);
        if (h.external_qp)
            establish(h);
        else
            learn(*client, expect(client_channel, cm_event_type::established));
        expect(server_channel, cm_event_type::established).ack();
    }

    /// The client ends it; both see that.
    void disconnect() {
        client->id.disconnect();
        expect(server_channel, cm_event_type::disconnected).ack();
        server->id.disconnect();
        expect(client_channel, cm_event_type::disconnected).ack();
    }

    rdma::event_channel client_channel, server_channel;
    cm_id listener;
    std::optional<end> client, server;

private:
    cm_id resolved(how const& h) {
        cm_id id(client_channel, rdma::port_space::tcp);
        id.resolve_addr(listener.local_addr(), std::chrono::seconds(10));
        expect(client_channel, cm_event_type::addr_resolved).ack();
        if (h.ack_timeout)
            id.set_ack_timeout(*h.ack_timeout);
        id.resolve_route(std::chrono::seconds(10));
        expect(client_channel, cm_event_type::route_resolved).ack();
        return id;
    }

    void begin(how const& h) {
        if (h.clients_ece)
            client->id.set_local_ece(*h.clients_ece);
        rdma::remote_memory const clients = client->remote();
        client->id.connect({.private_data = std::as_bytes(std::span(&clients, 1)), .qp_num = client->qp().qp_num()});
    }

    void answer(cm_event& request, how const& h) {
        cm_id child = request.take_id();
        if (h.ack_timeout)
            child.set_ack_timeout(*h.ack_timeout);
        if (h.clients_ece)
            CHECK(child.remote_ece().options == h.clients_ece->options);
        if (h.servers_ece)
            child.set_local_ece(*h.servers_ece);
        server.emplace(std::move(child), h);
        if (h.external_qp)
            for (ibv_qp_state const state : {IBV_QPS_RTR, IBV_QPS_RTS})
                server->move_to(state);
        learn(*server, request);
        rdma::remote_memory const servers = server->remote();
        server->id.accept({.private_data = std::as_bytes(std::span(&servers, 1)), .qp_num = server->qp().qp_num()});
    }

    /// What librdmacm does by itself if it knows the QP.
    void establish(how const& h) {
        learn(*client, expect(client_channel, cm_event_type::connect_response));
        for (ibv_qp_state const state : {IBV_QPS_RTR, IBV_QPS_RTS})
            client->move_to(state);
        if (h.servers_ece) {
            CHECK(client->id.remote_ece().vendor_id == h.servers_ece->vendor_id);
            CHECK(client->id.remote_ece().options == h.servers_ece->options);
        }
        client->id.establish();
    }

    static void learn(end& one, cm_event const& event) {
        one.peer = event.read_private_data<rdma::remote_memory>().value();
    }
};

/// Message and answer, ten times; the client begins, as iWARP wants it.
void ping_pong(end& client, end& server) {
    for (int i = 0; i != messages; ++i) {
        client.send(text_of("client", i));
        CHECK(server.take() == text_of("client", i));
        server.send(text_of("server", i));
        CHECK(client.take() == text_of("server", i));
    }
}

// ---- test_rdmacm_sync_traffic ------------------------------------------------------------------------------------

/// An endpoint with its memory, that posts and waits by the shorthands of rdma_verbs.h.
class sync_end {
public:
    explicit sync_end(rdma::endpoint made)
        : endpoint(std::move(made)), in_(endpoint.id().reg_msgs(received_)), out_(endpoint.id().reg_msgs(sent_)) {
        receive();
    }
    sync_end(sync_end const&) = delete;
    sync_end& operator=(sync_end const&) = delete;

    rdma::endpoint endpoint;

    void send(message const& text) {
        sent_ = text;
        endpoint.id().post_send(this, sent_, out_, IBV_SEND_SIGNALED);
        done(endpoint.get_send_comp(patience));
    }
    message take() {
        rdma::work_completion const wc = endpoint.get_recv_comp(patience);
        done(wc);
        if (wc.success().byte_len() != message_size)
            throw std::runtime_error("a message of another length");
        message const text = received_;
        receive();
        return text;
    }

private:
    void receive() { endpoint.id().post_recv(this, received_, in_); }
    void done(rdma::work_completion const& wc) const {
        if (!wc || reinterpret_cast<void const*>(wc.wr_id()) != this)
            throw std::runtime_error("a request failed: " + to_string(wc.status()));
    }

    message received_{}, sent_{};
    rdma::mr in_, out_;
};

/// Two threads, each of which only calls what waits. siw may not see a message that comes while it still accepts.
void sync_traffic(device const& on) {
    rdma::addrinfo const here(on.host.c_str(), nullptr, {.passive = true});
    rdma::endpoint listener(here.front(), rdma::qp_init_attr{});
    listener.listen();
    std::string const port = std::to_string(listener.id().local_addr().port());
    std::promise<void> accepted;
    std::future<std::vector<message>> serving = std::async(std::launch::async, [&] {
        sync_end server(listener.get_request(patience));
        listener = rdma::endpoint(); // in C, this would wait for the ack of the request
        server.endpoint.accept({}, patience);
        accepted.set_value();
        std::vector<message> got;
        for (int i = 0; i != messages; ++i) {
            got.push_back(server.take());
            server.send(text_of("server", i));
        }
        server.endpoint.disconnect(patience);
        return got;
    });

    rdma::addrinfo const there(on.host.c_str(), port.c_str());
    sync_end client(rdma::endpoint(there.front(), rdma::qp_init_attr{}, {}, patience));
    client.endpoint.connect({}, patience);
    CHECK(client.endpoint.event().type() == cm_event_type::established);
    if (accepted.get_future().wait_for(patience) != std::future_status::ready)
        serving.get(); // throws why
    for (int i = 0; i != messages; ++i) {
        client.send(text_of("client", i));
        CHECK(client.take() == text_of("server", i));
    }
    client.endpoint.disconnect(patience);
    std::vector<message> const got = serving.get();
    REQUIRE(got.size() == messages);
    for (int i = 0; i != messages; ++i)
        CHECK(got[static_cast<std::size_t>(i)] == text_of("client", i));
}
GUEST_CASE("test_rdmacm_sync_traffic", sync_traffic)

// ---- test_rdmacm_async_traffic -----------------------------------------------------------------------------------

void async_traffic(device const& on) {
    constexpr rdma::ack_timeout ack_timeout = std::chrono::seconds(8); // 4.096 us * 2^21
    static_assert(ack_timeout.exponent() == 21);
    connection both_ends(on, {.ack_timeout = ack_timeout});
    ping_pong(*both_ends.client, *both_ends.server);
    if (!on.iwarp) // there is no such attribute
        for (end const* const one : {&*both_ends.client, &*both_ends.server}) {
            INFO(to_string(rdma::cm_id_ref(one->id)));
            CHECK(one->qp().query(IBV_QP_TIMEOUT).timeout == ack_timeout.exponent());
        }
    both_ends.disconnect();
}
GUEST_CASE("test_rdmacm_async_traffic", async_traffic)

/// So that the case above tells something: this is not what a QP has anyway.
void ack_timeout_unset(device const& on) {
    connection both_ends(on);
    CHECK(both_ends.client->qp().query(IBV_QP_TIMEOUT).timeout != 21);
    CHECK(both_ends.server->qp().query(IBV_QP_TIMEOUT).timeout != 21);
}
TEST_CASE("test_rdmacm_async_traffic, no ACK timeout set, rxe", "[rxe]") { on_device("rxe", ack_timeout_unset); }

// ---- test_rdmacm_async_reject_traffic ----------------------------------------------------------------------------

void async_reject(device const& on) {
    std::string_view const reason = "connection rejected";
    rdma::event_channel server_channel, client_channel;
    cm_id listener = listen_on(server_channel, on.at(0));
    cm_id client = prepare(client_channel, listener.local_addr());
    client.connect();
    cm_id child = expect(server_channel, cm_event_type::connect_request).take_id();
    child.reject(both::bytes(reason));
    cm_event const event = expect(client_channel, cm_event_type::rejected);
    CHECK(event.error() == rdma::condition::refused);
    auto const got = event.private_data();
    REQUIRE(got.size() >= reason.size());
    CHECK(std::string_view(reinterpret_cast<char const*>(got.data()), reason.size()) == reason);
}
GUEST_CASE("test_rdmacm_async_reject_traffic", async_reject)

// ---- test_rdmacm_async_read, test_rdmacm_async_write -------------------------------------------------------------

/// Either end reads what the other offers.
void async_read(device const& on) {
    connection both_ends(on);
    auto const read_from = [](std::string_view name, end& reader, end& offering) {
        for (int i = 0; i != messages; ++i) {
            offering.shared = text_of(name, i);
            reader.read();
            CHECK(reader.local == text_of(name, i));
        }
    };
    read_from("server", *both_ends.client, *both_ends.server);
    read_from("client", *both_ends.server, *both_ends.client);
    both_ends.disconnect();
}
GUEST_CASE("test_rdmacm_async_read", async_read)

/// Either end writes into the other's memory. A message after each write tells that the bytes are there: on iWARP the
/// completion of the write does not.
void async_write(device const& on) {
    connection both_ends(on);
    auto const write_to = [](std::string_view name, end& writer, end& written) {
        for (int i = 0; i != messages; ++i) {
            writer.write(text_of(name, i));
            writer.send(message{});
            written.take();
            CHECK(written.shared == text_of(name, i));
        }
    };
    write_to("client", *both_ends.client, *both_ends.server);
    write_to("server", *both_ends.server, *both_ends.client);
    both_ends.disconnect();
}
GUEST_CASE("test_rdmacm_async_write", async_write)

// ---- test_rdmacm_async_traffic_external_qp -----------------------------------------------------------------------

/// What a QP of the program's own needs. Empty if there is all; else what is missing.
std::string why_no_external_qp(device const& on) {
    rdma::event_channel server_channel, client_channel;
    cm_id listener = listen_on(server_channel, on.at(0));
    cm_id id = resolve(client_channel, listener.local_addr());
    std::error_code ec;
    id.init_qp_attr(IBV_QPS_INIT, ec);
    if (ec)
        return "rdma_init_qp_attr: " + ec.message();
    id.connect(ec);
    return ec ? "rdma_connect without a QP of the id: " + ec.message() : "";
}

/// The providers here have no ECE options of their own, but the connection manager carries any.
void external_qp(device const& on) {
    if (std::string const reason = why_no_external_qp(on); !reason.empty()) {
        REQUIRE(on.iwarp); // RoCE has it
        RDMACPP_SKIP(reason);
    }
    connection both_ends(on, {
                                 .external_qp = true,
                                 .clients_ece = ibv_ece{.vendor_id = 0x15b3, .options = 0x1234567, .comp_mask = 0},
                                 .servers_ece = ibv_ece{.vendor_id = 0x15b3, .options = 0x1234560, .comp_mask = 0},
                             });
    ping_pong(*both_ends.client, *both_ends.server);
    both_ends.disconnect();
    both_ends.client->end_external_qp();
    both_ends.server->end_external_qp();
}
GUEST_CASE("test_rdmacm_async_traffic_external_qp", external_qp)

/// A server that cannot work with the options of the client.
void ece_rejected(device const& on) {
    if (std::string const reason = why_no_external_qp(on); !reason.empty()) {
        REQUIRE(on.iwarp); // RoCE has it
        RDMACPP_SKIP(reason);
    }
    rdma::event_channel server_channel, client_channel;
    cm_id listener = listen_on(server_channel, on.at(0));
    cm_id client = prepare(client_channel, listener.local_addr());
    client.connect();
    cm_id child = expect(server_channel, cm_event_type::connect_request).take_id();
    CHECK(child.remote_ece().vendor_id == 0); // none
    child.reject_ece(both::bytes("no"));
    cm_event const event = expect(client_channel, cm_event_type::rejected);
    CHECK(event.error() == rdma::reject_reason::vendor_option_not_supported);
    CHECK(event.read_private_data<std::array<char, 2>>() == std::array<char, 2>{'n', 'o'});
}
GUEST_CASE("test_rdmacm_async_traffic_external_qp, its options rejected", ece_rejected)

// ---- test_rdmacm_async_udp_traffic -------------------------------------------------------------------------------

/// Empty if the device has datagrams; else what fails without.
std::string why_no_datagrams(device const& on) {
    rdma::event_channel channel;
    cm_id id(channel, rdma::port_space::udp);
    std::error_code ec;
    id.bind(on.at(0), ec);
    if (ec)
        return "binding a datagram id: " + ec.message();
    id.create_qp({}, ec);
    return ec ? "making a datagram QP: " + ec.message() : "";
}

/// An id for datagrams with its memory; what it receives lies behind the 40 bytes of the sender's address.
class post_office {
public:
    explicit post_office(cm_id made) : id(std::move(made)) {
        id.create_qp({});
        in_ = id.reg_msgs(std::as_writable_bytes(std::span(boxes_)));
        out_ = id.reg_msgs(text_);
        for (std::size_t i = 0; i != boxes_.size(); ++i)
            receive(i);
    }
    post_office(post_office const&) = delete;
    post_office& operator=(post_office const&) = delete;

    cm_id id;

    void send(message const& text, rdma::ah const& to, std::uint32_t qp_num, std::uint32_t qkey) {
        text_ = text;
        id.qp().post_send(rdma::send_wr::send(out_.sge()).to(to, qp_num, qkey).id(2).signaled());
        CHECK(complete(id.send_cq(), rdma::wc_opcode::send).wr_id() == 2);
    }

    /// The next datagram that another QP sent: a member of a group also gets its own.
    message take() {
        do {
            last_ = complete(id.recv_cq(), rdma::wc_opcode::recv);
            CHECK(last_.success().byte_len() == sizeof(box));
            taken_ = boxes_.at(last_.wr_id());
            receive(last_.wr_id());
        } while (sender() == id.qp().qp_num());
        return taken_.text;
    }
    std::uint32_t sender() const { return last_.success().src_qp(); }
    /// How to answer the sender of the last.
    rdma::ah sender_address() const { return rdma::ah(id.pd(), last_, taken_.grh, id.port_num()); }

    /// Waits for a datagram, its own or not, without looking at it.
    void skip() { complete(id.recv_cq(), rdma::wc_opcode::recv); }

    /// Who sent what has come and was not taken.
    std::vector<std::uint32_t> senders() const {
        std::vector<std::uint32_t> all;
        for (rdma::work_completion wc; !id.recv_cq().poll({&wc, 1}).empty();)
            all.push_back(wc.success().src_qp());
        return all;
    }

private:
    struct box {
        std::array<std::byte, rdma::grh_size> grh;
        message text;
    };

    void receive(std::size_t i) { id.qp().post_recv(rdma::recv_wr(in_.sge(i * sizeof(box), sizeof(box))).id(i)); }

    std::array<box, 4> boxes_{};
    box taken_{};
    message text_{};
    rdma::work_completion last_;
    rdma::mr in_, out_;
};

/// The client learns the server's address from its ESTABLISHED, the server the client's from each datagram.
void udp_traffic(device const& on) {
    if (std::string const reason = why_no_datagrams(on); !reason.empty()) {
        REQUIRE(on.iwarp); // RoCE has it
        RDMACPP_SKIP(reason);
    }
    rdma::event_channel server_channel, client_channel;
    cm_id listener(server_channel, rdma::port_space::udp);
    listener.bind(on.at(0));
    listener.listen();

    cm_id resolving(client_channel, rdma::port_space::udp);
    resolving.resolve_addr(listener.local_addr(), std::chrono::seconds(10));
    expect(client_channel, cm_event_type::addr_resolved).ack();
    resolving.resolve_route(std::chrono::seconds(10));
    expect(client_channel, cm_event_type::route_resolved).ack();
    post_office client(std::move(resolving));
    client.id.connect();

    cm_event request = expect(server_channel, cm_event_type::connect_request);
    CHECK_FALSE(request.param());
    post_office server(request.take_id());
    request.ack();
    server.id.accept();

    cm_event const established = expect(client_channel, cm_event_type::established);
    REQUIRE(established.ud_param());
    rdma_ud_param const& param = *established.ud_param();
    CHECK(param.qp_num == server.id.qp().qp_num());
    CHECK(param.qkey == RDMA_UDP_QKEY);
    rdma::ah const to_server(client.id.pd(), established);
    for (int i = 0; i != messages; ++i) {
        client.send(text_of("client", i), to_server, param.qp_num, param.qkey);
        CHECK(server.take() == text_of("client", i));
        CHECK(server.sender() == client.id.qp().qp_num());
        server.send(text_of("server", i), server.sender_address(), server.sender(), RDMA_UDP_QKEY);
        CHECK(client.take() == text_of("server", i));
        CHECK(client.sender() == server.id.qp().qp_num());
    }
}
GUEST_CASE("test_rdmacm_async_udp_traffic", udp_traffic)

// ---- test_rdmacm_async_multicast_traffic and its two others ------------------------------------------------------

constexpr std::uint32_t everybody = 0xFFFFFF; // the QP number of a group

/// A member of a group, with what it needs to send to it.
struct member {
    member(device const& on, rdma::address const& to, rdma::join_flag flag) : member(on) {
        joined = office.id.join_multicast(to, flag, this);
        learn(to);
    }
    member(device const& on, rdma::address const& to) : member(on) {
        joined = office.id.join_multicast(to, this);
        learn(to);
    }

    void send(message const& text) { office.send(text, group, everybody, qkey); }

    rdma::event_channel channel;
    post_office office;
    rdma::membership joined;
    rdma::ah group;
    std::uint32_t qkey = 0;

private:
    explicit member(device const& on) : office(bound(channel, on)) {}

    static cm_id bound(rdma::event_channel const& channel, device const& on) {
        cm_id id(channel, rdma::port_space::udp);
        id.bind(on.at(0));
        return id;
    }

    void learn(rdma::address const& to) {
        CHECK(joined.group() == to);
        cm_event const event = expect(channel, cm_event_type::multicast_join);
        CHECK(event.error() == std::error_code());
        CHECK(event.join_context() == this);
        rdma_ud_param const* const param = event.ud_param();
        if (!param)
            throw std::runtime_error("a MULTICAST_JOIN without an address");
        CHECK(param->qp_num == everybody);
        qkey = param->qkey;
        group = rdma::ah(office.id.pd(), event);
    }
};

rdma::address group_of(device const& on) { return {on.iwarp ? "230.77.2.1" : "230.77.1.1", 0}; }

/// Each gets what the other sends.
void ping_pong(member& client, member& server) {
    for (int i = 0; i != messages; ++i) {
        client.send(text_of("client", i));
        CHECK(server.office.take() == text_of("client", i));
        CHECK(server.office.sender() == client.office.id.qp().qp_num());
        server.send(text_of("server", i));
        CHECK(client.office.take() == text_of("server", i));
    }
}

void multicast(device const& on) {
    if (std::string const reason = why_no_datagrams(on); !reason.empty()) {
        REQUIRE(on.iwarp); // RoCE has it
        RDMACPP_SKIP(reason);
    }
    member client(on, group_of(on)), server(on, group_of(on));
    ping_pong(client, server);
}
GUEST_CASE("test_rdmacm_async_multicast_traffic", multicast)

void multicast_ex(device const& on) {
    if (std::string const reason = why_no_datagrams(on); !reason.empty()) {
        REQUIRE(on.iwarp); // RoCE has it
        RDMACPP_SKIP(reason);
    }
    constexpr auto full = rdma::join_flag::fullmember;
    member client(on, group_of(on), full), server(on, group_of(on), full);
    ping_pong(client, server);
}
GUEST_CASE("test_rdmacm_async_ex_multicast_traffic", multicast_ex)

/// One who only sends hears nothing, not even of itself, while a member hears both.
void multicast_send_only(device const& on) {
    if (std::string const reason = why_no_datagrams(on); !reason.empty()) {
        REQUIRE(on.iwarp); // RoCE has it
        RDMACPP_SKIP(reason);
    }
    member sender(on, group_of(on), rdma::join_flag::sendonly_fullmember), hearer(on, group_of(on));
    for (int i = 0; i != messages; ++i) {
        sender.send(text_of("sender", i));
        CHECK(hearer.office.take() == text_of("sender", i));
    }
    for (int i = 0; i != 2; ++i) {
        hearer.send(text_of("hearer", i));
        hearer.office.skip(); // its own: with the second, the device has delivered the first to all
    }
    CHECK(sender.office.senders().empty());
}
GUEST_CASE("test_rdmacm_async_ex_multicast_traffic, only sending", multicast_send_only)

/// After it left, nothing comes any more. A third member tells when the device has delivered.
void multicast_left(device const& on) {
    if (std::string const reason = why_no_datagrams(on); !reason.empty()) {
        REQUIRE(on.iwarp); // RoCE has it
        RDMACPP_SKIP(reason);
    }
    constexpr auto full = rdma::join_flag::fullmember;
    member client(on, group_of(on), full), server(on, group_of(on), full);
    ping_pong(client, server);
    member third(on, group_of(on), full);
    server.joined.leave();
    CHECK_FALSE(server.joined);
    for (int i = 0; i != 2; ++i) {
        client.send(text_of("later", i));
        CHECK(third.office.take() == text_of("later", i)); // with the second, the first is delivered to all
    }
    auto const heard = server.office.senders();
    CHECK(std::ranges::count(heard, client.office.id.qp().qp_num()) == 0);

    // It may come back.
    server.joined = server.office.id.join_multicast(group_of(on), full);
    expect(server.channel, cm_event_type::multicast_join).ack();
    client.send(text_of("again", 0));
    CHECK(server.office.take() == text_of("again", 0));
}
GUEST_CASE("test_rdmacm_async_ex_leave_multicast_traffic", multicast_left)

} // namespace
