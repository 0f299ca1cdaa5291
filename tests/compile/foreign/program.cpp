// SPDX-License-Identifier: MIT
// A unit with somebody else's namespace rdma, and app::rdma in sight from everywhere.
#ifdef FOREIGN_FIRST
#include "foreign.hpp"
using namespace app;
#endif

#include <rdmacpp/rdmacpp.hpp>

#ifndef FOREIGN_FIRST
#include "foreign.hpp"
using namespace app;
#endif

#include <cstddef>
#include <functional>
#include <memory>
#include <system_error>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

namespace app {

// In here rdma is the program's own.
static_assert(std::is_same_v<rdma::cm_id, ::app::rdma::cm_id> && !std::is_same_v<rdma::cm_id, ::rdma::cm_id>);
static_assert(std::is_error_code_enum_v<::rdma::errc> && !std::is_error_code_enum_v<rdma::errc>);

struct session : ::rdma::Connection {
    ::rdma::cm_id id;
    rdma::cm_id own;
};

/// Something of a namespace whose functions take everything, for our templates.
struct token {
    bool stop_possible() const noexcept { return true; }
    bool stop_requested() const noexcept { return false; }
    template <class Action>
    struct callback_type {
        callback_type(token const&, Action) {}
    };
};

void use(::rdma::event_channel& channel, std::unordered_map<::rdma::cm_id_ref, session>& sessions) {
    for (::rdma::cm_event event : channel.events(token{})) {
        if (event.type() == ::rdma::cm_event_type::connect_request) {
            ::rdma::cm_id id = event.take_id();
            ::rdma::cm_id_ref const key = id;
            sessions.try_emplace(key, session{{}, std::move(id), {}});
        }
        if (event.error() == ::rdma::condition::refused)
            sessions.erase(event.id());
    }
    ::rdma::cm_id id{channel, ::rdma::port_space::tcp};
    id.bind(::rdma::address{"10.0.0.1", 7471});
    ::rdma::pd pd(id.verbs());
    ::rdma::registered_buffer buffer(pd, 4096, ::rdma::access::local_write);
    ::rdma::qp_init_attr attr;
    ::rdma::qp qp(pd, ::rdma::qp_type::rc, attr);
    ::rdma::send_wr chain[] = {::rdma::send_wr::send(buffer.sge()), ::rdma::send_wr::send(buffer.sge())};
    chain[1].signaled();
    qp.post_send(chain);
    std::vector<::rdma::work_completion> found(4);
    std::hash<::rdma::pd_ref> const hash;
    (void)hash(pd);
    using std::swap;
    ::rdma::cm_id other = std::move(id);
    std::unique_ptr<::rdma::Connection> const foreign(new ::rdma::Connection);
    (void)foreign->fd;
}

} // namespace app
