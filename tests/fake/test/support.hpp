// SPDX-License-Identifier: MIT
//
// What the selftest's cases share: a clean world, addresses, and a connection made the long way round.
#pragma once

#include "../../catch.hpp"

#include <fake/fake.hpp>

#include <array>
#include <cerrno>
#include <cstring>
#include <string>

#include <arpa/inet.h>
#include <fcntl.h>

namespace selftest {

/// Before and after each case: nothing is left, and nothing was misused that the case did not ask about.
struct clean_world {
    clean_world() { fake::reset(); }
    clean_world(clean_world const&) = delete;
    clean_world& operator=(clean_world const&) = delete;
    ~clean_world()
    {
        if (!messy_) {
            CHECK(fake::leaks() == "");
            CHECK(fake::misuse() == std::vector<std::string>{});
            CHECK(fake::would_hang() == std::vector<std::string>{});
        }
        fake::reset();
    }
    void messy() { messy_ = true; }

private:
    bool messy_ = false;
};

union any_address {
    sockaddr raw;
    sockaddr_in v4;
    sockaddr_in6 v6;
};

inline any_address v4(char const* host, std::uint16_t port = 0)
{
    any_address made{};
    made.v4.sin_family = AF_INET;
    made.v4.sin_port = htons(port);
    ::inet_pton(AF_INET, host, &made.v4.sin_addr);
    return made;
}

inline any_address v6(char const* host, std::uint16_t port = 0, std::uint32_t scope = 0)
{
    any_address made{};
    made.v6.sin6_family = AF_INET6;
    made.v6.sin6_port = htons(port);
    made.v6.sin6_scope_id = scope;
    ::inet_pton(AF_INET6, host, &made.v6.sin6_addr);
    return made;
}

/// The next event of a channel, acked with the object unless it was before.
class event {
public:
    explicit event(rdma_event_channel* from) { REQUIRE(::rdma_get_cm_event(from, &raw_) == 0); }
    event(event const&) = delete;
    event& operator=(event const&) = delete;
    ~event() { ack(); }
    void ack()
    {
        if (raw_ != nullptr) ::rdma_ack_cm_event(raw_);
        raw_ = nullptr;
    }
    rdma_cm_event* operator->() const { return raw_; }
    rdma_cm_event* get() const { return raw_; }

private:
    rdma_cm_event* raw_ = nullptr;
};

inline void expect(rdma_event_channel* from, rdma_cm_event_type type, int status = 0)
{
    event const next{from};
    CHECK(std::string{::rdma_event_str(next->event)} == ::rdma_event_str(type));
    CHECK(next->status == status);
}

inline bool is_empty(rdma_event_channel* channel) { return fake::queued(channel) == 0; }

inline ibv_qp_init_attr small_qp(ibv_qp_type type = IBV_QPT_RC)
{
    ibv_qp_init_attr attr{};
    attr.cap.max_send_wr = attr.cap.max_recv_wr = 8;
    attr.cap.max_send_sge = attr.cap.max_recv_sge = 2;
    attr.cap.max_inline_data = 64;
    attr.qp_type = type;
    return attr;
}

inline rdma_cm_id* make_id(rdma_event_channel* on, rdma_port_space ps = RDMA_PS_TCP, void* context = nullptr)
{
    rdma_cm_id* id = nullptr;
    REQUIRE(::rdma_create_id(on, &id, context, ps) == 0);
    return id;
}

inline rdma_cm_id* make_listener(rdma_event_channel* on, any_address at, rdma_port_space ps = RDMA_PS_TCP, int backlog = 8)
{
    rdma_cm_id* const id = make_id(on, ps);
    REQUIRE(::rdma_bind_addr(id, &at.raw) == 0);
    REQUIRE(::rdma_listen(id, backlog) == 0);
    return id;
}

/// An id with its route known, ready to connect.
inline rdma_cm_id* make_client(rdma_event_channel* on, any_address to, rdma_port_space ps = RDMA_PS_TCP)
{
    rdma_cm_id* const id = make_id(on, ps);
    REQUIRE(::rdma_resolve_addr(id, nullptr, &to.raw, 1000) == 0);
    expect(on, RDMA_CM_EVENT_ADDR_RESOLVED);
    REQUIRE(::rdma_resolve_route(id, 1000) == 0);
    expect(on, RDMA_CM_EVENT_ROUTE_RESOLVED);
    return id;
}

inline void give_qp(rdma_cm_id* id, ibv_qp_type type = IBV_QPT_RC)
{
    auto attr = small_qp(type);
    REQUIRE(::rdma_create_qp(id, nullptr, &attr) == 0);
}

inline void drop(rdma_cm_id* id)
{
    if (id->qp != nullptr) ::rdma_destroy_qp(id);
    CHECK(::rdma_destroy_id(id) == 0);
}

inline rdma_conn_param usual_param()
{
    rdma_conn_param param{};
    param.responder_resources = param.initiator_depth = 1;
    param.retry_count = param.rnr_retry_count = 7;
    return param;
}

/// The server side of a request: its id, with a QP.
inline rdma_cm_id* take_request(rdma_event_channel* from)
{
    event const asked{from};
    REQUIRE(asked->event == RDMA_CM_EVENT_CONNECT_REQUEST);
    give_qp(asked->id, asked->id->qp_type);
    return asked->id;
}

struct device_case {
    char const* name;
    char const* server;
    bool iwarp;
};
inline constexpr device_case devices[] = {{"rxe", "10.77.1.1", false}, {"siw", "10.77.2.1", true}};

/// Two connected ids on one device, each with a channel of its own.
struct connection {
    explicit connection(device_case const& on) : device{on}
    {
        listener = make_listener(server_channel, v4(on.server, 7471));
        client = make_client(client_channel, v4(on.server, 7471));
        give_qp(client);
        auto param = usual_param();
        REQUIRE(::rdma_connect(client, &param) == 0);
        server = take_request(server_channel);
        REQUIRE(::rdma_accept(server, &param) == 0);
        expect(client_channel, RDMA_CM_EVENT_ESTABLISHED);
        expect(server_channel, RDMA_CM_EVENT_ESTABLISHED);
    }
    connection(connection const&) = delete;
    connection& operator=(connection const&) = delete;
    ~connection()
    {
        if (client != nullptr) drop(client);
        if (server != nullptr) drop(server);
        CHECK(::rdma_destroy_id(listener) == 0);
        ::rdma_destroy_event_channel(client_channel);
        ::rdma_destroy_event_channel(server_channel);
    }

    device_case device;
    rdma_event_channel* server_channel = ::rdma_create_event_channel();
    rdma_event_channel* client_channel = ::rdma_create_event_channel();
    rdma_cm_id* listener = nullptr;
    rdma_cm_id* client = nullptr;
    rdma_cm_id* server = nullptr;
};

inline int poll_one(ibv_cq* cq, ibv_wc& wc) { return ::ibv_poll_cq(cq, 1, &wc); }

inline bool mentions(std::vector<std::string> const& lines, std::string const& part)
{
    for (auto const& line : lines)
        if (line.find(part) != std::string::npos) return true;
    return false;
}

} // namespace selftest
