// SPDX-License-Identifier: MIT
// Every wrapped call of librdmacm and libibverbs, made to fail: one list, and what must hold of each of them.
#include "error_table.hpp"
#include "loopback.hpp"

#include <array>
#include <cstdint>

using namespace unit;

namespace {

rdma::address const here(rxe_host, 0), peer(rxe_host, 7472), group("239.77.1.1", 0);

/// A device that can do everything, before anything is made on it.
struct able {
    able() { fake::set_all_features(true); }
};

rdma::cm_id make_datagram_id(rdma::event_channel const& channel) {
    rdma::cm_id id = make_id(channel, rdma::port_space::udp);
    id.bind(here);
    return id;
}

/// A listener of C's synchronous mode.
rdma::sync_id make_sync_listener() {
    rdma::addrinfo const found(rxe_host, "7473", {.passive = true, .numeric_host = true});
    ibv_qp_init_attr attr{};
    attr.cap = {16, 16, 1, 1, 0};
    rdma_cm_id* raw = nullptr;
    REQUIRE(::rdma_create_ep(&raw, found.native_handle(), nullptr, &attr) == 0);
    rdma::sync_id listener(rdma::adopt, raw);
    listener.listen();
    return listener;
}

/// What a flow action is made of.
struct esp {
    ibv_flow_action_esp what{};
    std::uint8_t key[16]{};
    ibv_flow_action_esp_attr attr{};

    esp() {
        attr.esp_attr = &what;
        attr.keymat_len = sizeof key;
        attr.keymat_ptr = key;
    }
};

/// Everything that the wrapped functions need, in a state in which each of them can be called.
struct everything : private able {
    rdma::event_channel channel, server_channel, other_channel, group_channel;
    rdma::cm_id bound = make_bound(channel);
    rdma::cm_id idle = make_id(channel);
    rdma::cm_id resolved = make_id(channel);
    rdma::cm_id client = make_client(channel, rxe_host, 7472);
    rdma::cm_id with_qp = make_bound(channel);
    rdma::cm_id datagrams = make_datagram_id(group_channel);
    rdma::cm_id listener = make_listener(server_channel);
    rdma::cm_event request = make_request(server_channel, listener);
    rdma::cm_id child = request.take_id();
    rdma::sync_id sync_listener = make_sync_listener();

    rdma::context context{rdma::device_list::get().find("rxe0")};
    rdma::pd pd{context};
    rdma::comp_channel comp_channel{context};
    rdma::cq cq{context, 4, comp_channel};
    rdma::cq_ex cq_ex{context, rdma::cq_init_attr_ex{}};
    std::array<std::byte, 64> memory{};
    rdma::mr mr{pd, memory, rdma::access::local_write | rdma::access::mw_bind};
    rdma::dm dm{context, 64};
    rdma::mw mw{pd, rdma::mw_type::type_1};
    rdma::td td{context};
    rdma::srq srq{pd};
    rdma::xrcd xrcd{context};
    rdma::wq wq{pd, cq, {}};
    rdma::counters counters{context};
    esp action_attr;
    rdma::flow_action action{context, action_attr.attr};
    rdma::qp rc{pd, rdma::qp_type::rc, {.attr = {.send_cq = cq, .recv_cq = cq}, .send_ops_flags = IBV_QP_EX_WITH_SEND}};
    rdma::qp ud{pd, rdma::qp_type::ud, rdma::qp_init_attr{.send_cq = cq, .recv_cq = cq}};
    rdma::flow flow{ud, any_flow()};
    std::array<rdma::work_completion, 2> completions;
    ibv_gid multicast_gid{};

    everything() {
        resolved.resolve_addr(peer);
        expect(channel, type::addr_resolved);
        with_qp.create_qp({});
        client.create_qp({});
        request.ack();
        multicast_gid.raw[0] = 0xff;
    }

    rdma::qp_init_attr queues() const { return {.send_cq = cq, .recv_cq = cq}; }
    rdma::qp_init_attr_ex queues_ex() const { return {.attr = queues(), .send_ops_flags = IBV_QP_EX_WITH_SEND}; }
    rdma::srq_init_attr_ex xrc() const { return {.type = rdma::srq_type::xrc, .xrcd = xrcd, .cq = cq}; }
    rdma::send_wr send() const { return rdma::send_wr::send(mr.sge()); }
    rdma::recv_wr recv() const { return rdma::recv_wr(mr.sge()); }
    rdma::work_completion received() const { return rdma::work_completion(ibv_wc{}); }
};

using ec_ref = std::error_code&;

std::vector<wrapped<everything>> const of_rdmacm{
    {"rdma_create_event_channel", [](everything&) { (void)rdma::event_channel(); },
     [](everything&, ec_ref ec) { CHECK_FALSE(rdma::event_channel(ec)); }},
    {"rdma_get_cm_event", [](everything& e) { (void)e.channel.get(); },
     [](everything& e, ec_ref ec) { CHECK_FALSE(e.channel.get(ec)); }},
    {"rdma_create_id", [](everything& e) { (void)make_id(e.channel); },
     [](everything& e, ec_ref ec) { CHECK_FALSE(rdma::cm_id(e.channel, rdma::port_space::tcp, ec)); }},
    {"rdma_create_ep",
     [](everything& e) { (void)rdma::cm_id(e.channel, rdma::port_space::ib, rdma::qp_type::xrc_send, here); },
     [](everything& e, ec_ref ec) {
         CHECK_FALSE(rdma::cm_id(e.channel, rdma::port_space::ib, rdma::qp_type::xrc_send, here, ec));
     }},
    {"rdma_get_request", [](everything& e) { (void)e.sync_listener.get_request(); },
     [](everything& e, ec_ref ec) { CHECK_FALSE(e.sync_listener.get_request(ec)); }},
    {"rdma_getaddrinfo", [](everything&) { (void)rdma::addrinfo(rxe_host, "7471"); },
     [](everything&, ec_ref ec) { CHECK_FALSE(rdma::addrinfo(rxe_host, "7471", ec)); }},
    {"rdma_get_devices", [](everything&) { (void)rdma::devices::get(); },
     [](everything&, ec_ref ec) { CHECK(rdma::devices::get(ec).empty()); }},
    {"rdma_bind_addr", [](everything& e) { e.idle.bind(here); },
     [](everything& e, ec_ref ec) { e.idle.bind(here, ec); }},
    {"rdma_listen", [](everything& e) { e.bound.listen(); }, [](everything& e, ec_ref ec) { e.bound.listen(ec); }},
    {"rdma_resolve_addr", [](everything& e) { e.idle.resolve_addr(peer); },
     [](everything& e, ec_ref ec) { e.idle.resolve_addr(peer, ec); }},
    {"rdma_resolve_addr", [](everything& e) { e.idle.resolve_addr(here, peer); },
     [](everything& e, ec_ref ec) { e.idle.resolve_addr(here, peer, 1s, ec); }},
    {"rdma_resolve_route", [](everything& e) { e.resolved.resolve_route(); },
     [](everything& e, ec_ref ec) { e.resolved.resolve_route(ec); }},
    {"rdma_create_qp", [](everything& e) { e.bound.create_qp({}); },
     [](everything& e, ec_ref ec) { e.bound.create_qp({}, ec); }},
    {"rdma_create_qp", [](everything& e) { e.bound.create_qp(e.pd, {}); },
     [](everything& e, ec_ref ec) { e.bound.create_qp(e.pd, {}, ec); }},
    {"rdma_create_qp_ex", [](everything& e) { e.bound.create_qp_ex(rdma::qp_init_attr_ex()); },
     [](everything& e, ec_ref ec) { e.bound.create_qp_ex(rdma::qp_init_attr_ex(), ec); }},
    {"rdma_create_srq", [](everything& e) { e.bound.create_srq(); },
     [](everything& e, ec_ref ec) { e.bound.create_srq(rdma::srq_init_attr(), ec); }},
    {"rdma_create_srq_ex", [](everything& e) { e.bound.create_srq_ex(rdma::srq_init_attr_ex()); },
     [](everything& e, ec_ref ec) { e.bound.create_srq_ex(rdma::srq_init_attr_ex(), ec); }},
    {"rdma_connect", [](everything& e) { e.client.connect(); }, [](everything& e, ec_ref ec) { e.client.connect(ec); }},
    {"rdma_reject", [](everything& e) { e.child.reject(); }, [](everything& e, ec_ref ec) { e.child.reject(ec); }},
    {"rdma_reject_ece", [](everything& e) { e.child.reject_ece(); },
     [](everything& e, ec_ref ec) { e.child.reject_ece(ec); }},
    {"rdma_establish", [](everything& e) { e.resolved.establish(); },
     [](everything& e, ec_ref ec) { e.resolved.establish(ec); }},
    {"rdma_init_qp_attr", [](everything& e) { (void)e.bound.init_qp_attr(IBV_QPS_INIT); },
     [](everything& e, ec_ref ec) { (void)e.bound.init_qp_attr(IBV_QPS_INIT, ec); }},
    {"rdma_notify", [](everything& e) { e.bound.notify(IBV_EVENT_COMM_EST); },
     [](everything& e, ec_ref ec) { e.bound.notify(IBV_EVENT_COMM_EST, ec); }},
    {"rdma_set_local_ece",
     [](everything& e) {
         e.idle.set_local_ece({1, 1, 0});
     },
     [](everything& e, ec_ref ec) {
         e.idle.set_local_ece({1, 1, 0}, ec);
     }},
    {"rdma_get_remote_ece", [](everything& e) { (void)e.idle.remote_ece(); },
     [](everything& e, ec_ref ec) { (void)e.idle.remote_ece(ec); }},
    {"rdma_join_multicast", [](everything& e) { (void)e.datagrams.join_multicast(group); },
     [](everything& e, ec_ref ec) { CHECK_FALSE(e.datagrams.join_multicast(group, ec)); }},
    {"rdma_join_multicast_ex",
     [](everything& e) { (void)e.datagrams.join_multicast(group, rdma::join_flag::sendonly_fullmember); },
     [](everything& e, ec_ref ec) {
         CHECK_FALSE(e.datagrams.join_multicast(group, rdma::join_flag::sendonly_fullmember, ec));
     }},
    {"rdma_migrate_id", [](everything& e) { e.idle.migrate(e.other_channel); },
     [](everything& e, ec_ref ec) { e.idle.migrate(e.other_channel, ec); }},
    {"rdma_disconnect", [](everything& e) { e.with_qp.disconnect(); },
     [](everything& e, ec_ref ec) { e.with_qp.disconnect(ec); }},
    {"rdma_set_option", [](everything& e) { e.idle.set_tos(8); },
     [](everything& e, ec_ref ec) { e.idle.set_tos(8, ec); }},
    {"rdma_set_option", [](everything& e) { e.idle.set_reuse_addr(true); },
     [](everything& e, ec_ref ec) { e.idle.set_reuse_addr(true, ec); }},
    {"rdma_set_option", [](everything& e) { e.idle.set_af_only(true); },
     [](everything& e, ec_ref ec) { e.idle.set_af_only(true, ec); }},
    {"rdma_set_option", [](everything& e) { e.idle.set_ack_timeout(67ms); },
     [](everything& e, ec_ref ec) { e.idle.set_ack_timeout(67ms, ec); }},
    {"rdma_set_option", [](everything& e) { e.idle.set_option(1, 2, {}); },
     [](everything& e, ec_ref ec) { e.idle.set_option(1, 2, {}, ec); }},
    {"rdma_destroy_id", [](everything& e) { e.idle.destroy(); }, [](everything& e, ec_ref ec) { e.idle.destroy(ec); }},
    // Of <rdma/rdma_verbs.h>.
    {"ibv_reg_mr", [](everything& e) { (void)e.bound.reg_msgs(e.memory); },
     [](everything& e, ec_ref ec) { CHECK_FALSE(e.bound.reg_msgs(e.memory, ec)); }},
    {"ibv_reg_mr", [](everything& e) { (void)e.bound.reg_read(e.memory); },
     [](everything& e, ec_ref ec) { CHECK_FALSE(e.bound.reg_read(e.memory, ec)); }},
    {"ibv_reg_mr", [](everything& e) { (void)e.bound.reg_write(e.memory); },
     [](everything& e, ec_ref ec) { CHECK_FALSE(e.bound.reg_write(e.memory, ec)); }},
    {"rdma_post_recvv", [](everything& e) { e.with_qp.post_recvv(nullptr, {}); },
     [](everything& e, ec_ref ec) { ec = of(e.with_qp.post_recvv(nullptr, {}, std::nothrow)); }, told::as_given,
     "ibv_post_recv"},
    {"rdma_post_sendv", [](everything& e) { e.with_qp.post_sendv(nullptr, {}); },
     [](everything& e, ec_ref ec) { ec = of(e.with_qp.post_sendv(nullptr, {}, 0, std::nothrow)); }, told::as_given,
     "ibv_post_send"},
    {"rdma_post_readv", [](everything& e) { e.with_qp.post_readv(nullptr, {}, 0, e.mr.remote()); },
     [](everything& e, ec_ref ec) { ec = of(e.with_qp.post_readv(nullptr, {}, 0, e.mr.remote(), std::nothrow)); },
     told::as_given, "ibv_post_send"},
    {"rdma_post_writev", [](everything& e) { e.with_qp.post_writev(nullptr, {}, 0, e.mr.remote()); },
     [](everything& e, ec_ref ec) { ec = of(e.with_qp.post_writev(nullptr, {}, 0, e.mr.remote(), std::nothrow)); },
     told::as_given, "ibv_post_send"},
    {"rdma_post_recv", [](everything& e) { e.with_qp.post_recv(nullptr, e.memory, e.mr); },
     [](everything& e, ec_ref ec) { ec = of(e.with_qp.post_recv(nullptr, e.memory, e.mr, std::nothrow)); },
     told::as_given, "ibv_post_recv"},
    {"rdma_post_send", [](everything& e) { e.with_qp.post_send(nullptr, e.memory, e.mr); },
     [](everything& e, ec_ref ec) { ec = of(e.with_qp.post_send(nullptr, e.memory, e.mr, 0, std::nothrow)); },
     told::as_given, "ibv_post_send"},
    {"rdma_post_read", [](everything& e) { e.with_qp.post_read(nullptr, e.memory, e.mr, 0, e.mr.remote()); },
     [](everything& e, ec_ref ec) {
         ec = of(e.with_qp.post_read(nullptr, e.memory, e.mr, 0, e.mr.remote(), std::nothrow));
     },
     told::as_given, "ibv_post_send"},
    {"rdma_post_write", [](everything& e) { e.with_qp.post_write(nullptr, e.memory, e.mr, 0, e.mr.remote()); },
     [](everything& e, ec_ref ec) {
         ec = of(e.with_qp.post_write(nullptr, e.memory, e.mr, 0, e.mr.remote(), std::nothrow));
     },
     told::as_given, "ibv_post_send"},
    {"rdma_post_ud_send", [](everything& e) { e.with_qp.post_ud_send(nullptr, e.memory, e.mr, 0, rdma::ah(), 1); },
     [](everything& e, ec_ref ec) {
         ec = of(e.with_qp.post_ud_send(nullptr, e.memory, e.mr, 0, rdma::ah(), 1, std::nothrow));
     },
     told::as_given, "ibv_post_send"},
};

std::vector<wrapped<everything>> const of_verbs{
    // Devices, and what is asked of them.
    {"ibv_get_device_list", [](everything&) { (void)rdma::device_list::get(); },
     [](everything&, ec_ref ec) { CHECK_FALSE(rdma::device_list::get(ec).native_handle()); }},
    {"ibv_open_device", [](everything& e) { (void)rdma::context(e.context.device()); },
     [](everything& e, ec_ref ec) { CHECK_FALSE(rdma::context(e.context.device(), ec)); }},
    {"ibv_import_device", [](everything&) { (void)rdma::context::import_device(-1); },
     [](everything&, ec_ref ec) { CHECK_FALSE(rdma::context::import_device(-1, ec)); }},
    {"ibv_close_device", [](everything& e) { ends(rdma::context(e.context.device())); },
     [](everything& e, ec_ref ec) { ends(rdma::context(e.context.device()), ec); }},
    {"ibv_query_device", [](everything& e) { (void)e.bound.verbs().query_device(); },
     [](everything& e, ec_ref ec) { (void)e.bound.verbs().query_device(ec); }},
    {"ibv_query_device_ex", [](everything& e) { (void)e.context.query_device_ex(); },
     [](everything& e, ec_ref ec) { (void)e.context.query_device_ex(ec); }},
    {"ibv_query_port", [](everything& e) { (void)e.context.query_port(1); },
     [](everything& e, ec_ref ec) { (void)e.context.query_port(1, ec); }},
    {"ibv_query_gid", [](everything& e) { (void)e.context.query_gid(1, 0); },
     [](everything& e, ec_ref ec) { (void)e.context.query_gid(1, 0, ec); }},
    {"ibv_query_gid_ex", [](everything& e) { (void)e.context.query_gid_ex(1, 0); },
     [](everything& e, ec_ref ec) { (void)e.context.query_gid_ex(1, 0, ec); }},
    {"ibv_query_gid_table", [](everything& e) { (void)e.context.query_gid_table({}); },
     [](everything& e, ec_ref ec) { (void)e.context.query_gid_table({}, ec); }},
    {"ibv_query_pkey", [](everything& e) { (void)e.context.query_pkey(1, 0); },
     [](everything& e, ec_ref ec) { (void)e.context.query_pkey(1, 0, ec); }},
    {"ibv_get_pkey_index", [](everything& e) { (void)e.context.get_pkey_index(1, 0xffff); },
     [](everything& e, ec_ref ec) { (void)e.context.get_pkey_index(1, 0xffff, ec); }},
    {"ibv_query_rt_values_ex", [](everything& e) { (void)e.context.query_raw_clock(); },
     [](everything& e, ec_ref ec) { (void)e.context.query_raw_clock(ec); }},
    {"ibv_get_async_event", [](everything& e) { (void)async_event_of(e.bound.verbs()); },
     [](everything& e, ec_ref ec) { CHECK_FALSE(async_event_of(e.bound.verbs(), ec)); }},
    {"ibv_fork_init", [](everything&) { rdma::fork_init(); }, [](everything&, ec_ref ec) { rdma::fork_init(ec); }},
    // Domains.
    {"ibv_alloc_pd", [](everything& e) { (void)rdma::pd(e.context); },
     [](everything& e, ec_ref ec) { CHECK_FALSE(rdma::pd(e.context, ec)); }},
    {"ibv_import_pd", [](everything& e) { (void)rdma::pd::import_pd(e.context, 1); },
     [](everything& e, ec_ref ec) { CHECK_FALSE(rdma::pd::import_pd(e.context, 1, ec)); }},
    {"ibv_dealloc_pd", [](everything& e) { ends(rdma::pd(e.context)); },
     [](everything& e, ec_ref ec) { ends(rdma::pd(e.context), ec); }},
    {"ibv_alloc_td", [](everything& e) { (void)rdma::td(e.context); },
     [](everything& e, ec_ref ec) { CHECK_FALSE(rdma::td(e.context, ec)); }},
    {"ibv_dealloc_td", [](everything& e) { ends(rdma::td(e.context)); },
     [](everything& e, ec_ref ec) { ends(rdma::td(e.context), ec); }},
    {"ibv_alloc_parent_domain", [](everything& e) { (void)rdma::parent_domain(e.pd, e.td); },
     [](everything& e, ec_ref ec) { CHECK_FALSE(rdma::parent_domain(e.pd, e.td, ec)); }},
    {"ibv_dealloc_pd", [](everything& e) { ends(rdma::parent_domain(e.pd)); },
     [](everything& e, ec_ref ec) { ends(rdma::parent_domain(e.pd, {}, ec), ec); }},
    {"ibv_open_xrcd", [](everything& e) { (void)rdma::xrcd(e.context); },
     [](everything& e, ec_ref ec) { CHECK_FALSE(rdma::xrcd(e.context, ec)); }},
    {"ibv_close_xrcd", [](everything& e) { ends(rdma::xrcd(e.context)); },
     [](everything& e, ec_ref ec) { ends(rdma::xrcd(e.context), ec); }},
    // Memory.
    {"ibv_reg_mr", [](everything& e) { (void)rdma::mr(e.pd, e.memory, rdma::access::none); },
     [](everything& e, ec_ref ec) { CHECK_FALSE(rdma::mr(e.pd, e.memory, rdma::access::none, ec)); }},
    {"ibv_reg_mr", [](everything& e) { (void)rdma::mr(e.pd, e.memory, rdma::access::relaxed_ordering); },
     [](everything& e, ec_ref ec) { CHECK_FALSE(rdma::mr(e.pd, e.memory, rdma::access::relaxed_ordering, ec)); }},
    {"ibv_reg_mr", [](everything& e) { (void)rdma::mr::reg_implicit(e.pd, rdma::access::none); },
     [](everything& e, ec_ref ec) { CHECK_FALSE(rdma::mr::reg_implicit(e.pd, rdma::access::none, ec)); }},
    {"ibv_reg_mr", [](everything& e) { (void)rdma::registered_buffer(e.pd, 8, rdma::access::none); },
     [](everything& e, ec_ref ec) { CHECK_FALSE(rdma::registered_buffer(e.pd, 8, rdma::access::none, ec)); }},
    {"ibv_reg_mr_iova", [](everything& e) { (void)rdma::mr::reg_mr_iova(e.pd, e.memory, 0, rdma::access::none); },
     [](everything& e, ec_ref ec) { CHECK_FALSE(rdma::mr::reg_mr_iova(e.pd, e.memory, 0, rdma::access::none, ec)); }},
    {"ibv_reg_dmabuf_mr", [](everything& e) { (void)rdma::mr::reg_dmabuf_mr(e.pd, 0, 8, 0, -1, rdma::access::none); },
     [](everything& e, ec_ref ec) { CHECK_FALSE(rdma::mr::reg_dmabuf_mr(e.pd, 0, 8, 0, -1, rdma::access::none, ec)); }},
    {"ibv_alloc_null_mr", [](everything& e) { (void)rdma::mr::alloc_null_mr(e.pd); },
     [](everything& e, ec_ref ec) { CHECK_FALSE(rdma::mr::alloc_null_mr(e.pd, ec)); }},
    {"ibv_import_mr", [](everything& e) { (void)rdma::mr::import_mr(e.pd, 1); },
     [](everything& e, ec_ref ec) { CHECK_FALSE(rdma::mr::import_mr(e.pd, 1, ec)); }},
    {"ibv_rereg_mr", [](everything& e) { e.mr.rereg(IBV_REREG_MR_CHANGE_ACCESS, {}, {}, rdma::access::none); },
     [](everything& e, ec_ref ec) { e.mr.rereg(IBV_REREG_MR_CHANGE_ACCESS, {}, {}, rdma::access::none, ec); }},
    {"ibv_advise_mr", [](everything& e) { rdma::advise_mr(e.pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, {}); },
     [](everything& e, ec_ref ec) { rdma::advise_mr(e.pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, {}, ec); }},
    {"ibv_dereg_mr", [](everything& e) { ends(rdma::mr(e.pd, e.memory, rdma::access::none)); },
     [](everything& e, ec_ref ec) { ends(rdma::mr(e.pd, e.memory, rdma::access::none), ec); }},
    {"ibv_alloc_dm", [](everything& e) { (void)rdma::dm(e.context, 8); },
     [](everything& e, ec_ref ec) { CHECK_FALSE(rdma::dm(e.context, 8, 0, ec)); }},
    {"ibv_import_dm", [](everything& e) { (void)rdma::dm::import_dm(e.context, 1); },
     [](everything& e, ec_ref ec) { CHECK_FALSE(rdma::dm::import_dm(e.context, 1, ec)); }},
    {"ibv_memcpy_to_dm", [](everything& e) { e.dm.copy_to(0, e.memory); },
     [](everything& e, ec_ref ec) { e.dm.copy_to(0, e.memory, ec); }},
    {"ibv_memcpy_from_dm", [](everything& e) { e.dm.copy_from(0, e.memory); },
     [](everything& e, ec_ref ec) { e.dm.copy_from(0, e.memory, ec); }},
    {"ibv_reg_dm_mr", [](everything& e) { (void)rdma::reg_dm_mr(e.pd, e.dm, 0, 8, rdma::access::zero_based); },
     [](everything& e, ec_ref ec) { CHECK_FALSE(rdma::reg_dm_mr(e.pd, e.dm, 0, 8, rdma::access::zero_based, ec)); }},
    {"ibv_free_dm", [](everything& e) { ends(rdma::dm(e.context, 8)); },
     [](everything& e, ec_ref ec) { ends(rdma::dm(e.context, 8), ec); }},
    {"ibv_alloc_mw", [](everything& e) { (void)rdma::mw(e.pd, rdma::mw_type::type_2); },
     [](everything& e, ec_ref ec) { CHECK_FALSE(rdma::mw(e.pd, rdma::mw_type::type_2, ec)); }},
    {"ibv_bind_mw", [](everything& e) { e.mw.bind(e.rc, e.mr, 0, 8, rdma::access::remote_read); },
     [](everything& e, ec_ref ec) {
         ec = of(e.mw.bind(e.rc, e.mr, 0, 8, rdma::access::remote_read, 0, 0, std::nothrow));
     },
     told::as_given},
    {"ibv_dealloc_mw", [](everything& e) { ends(rdma::mw(e.pd, rdma::mw_type::type_1)); },
     [](everything& e, ec_ref ec) { ends(rdma::mw(e.pd, rdma::mw_type::type_1), ec); }},
    // Completions.
    {"ibv_create_comp_channel", [](everything& e) { (void)rdma::comp_channel(e.context); },
     [](everything& e, ec_ref ec) { CHECK_FALSE(rdma::comp_channel(e.context, ec)); }},
    {"ibv_get_cq_event", [](everything& e) { (void)e.comp_channel.get(); },
     [](everything& e, ec_ref ec) { CHECK_FALSE(e.comp_channel.get(ec)); }},
    {"ibv_destroy_comp_channel", [](everything& e) { ends(rdma::comp_channel(e.context)); },
     [](everything& e, ec_ref ec) { ends(rdma::comp_channel(e.context), ec); }},
    {"ibv_create_cq", [](everything& e) { (void)rdma::cq(e.context, 4); },
     [](everything& e, ec_ref ec) { CHECK_FALSE(rdma::cq(e.context, 4, ec)); }},
    {"ibv_create_cq_ex", [](everything& e) { (void)rdma::cq_ex(e.context, rdma::cq_init_attr_ex()); },
     [](everything& e, ec_ref ec) { CHECK_FALSE(rdma::cq_ex(e.context, rdma::cq_init_attr_ex(), ec)); }},
    {"ibv_resize_cq", [](everything& e) { e.cq.resize(8); }, [](everything& e, ec_ref ec) { e.cq.resize(8, ec); }},
    {"ibv_modify_cq", [](everything& e) { e.cq.moderate(1, 1); },
     [](everything& e, ec_ref ec) { e.cq.moderate(1, 1, ec); }},
    {"ibv_req_notify_cq", [](everything& e) { e.cq.req_notify(); },
     [](everything& e, ec_ref ec) { ec = of(e.cq.req_notify(false, std::nothrow)); }, told::as_given},
    {"ibv_poll_cq", [](everything& e) { (void)e.cq.poll(e.completions); },
     [](everything& e, ec_ref ec) {
         if (e.cq.poll(e.completions, std::nothrow) < 0)
             ec = rdma::errc::poll_failed;
     },
     told::no_code},
    {"ibv_start_poll", nullptr,
     [](everything& e, ec_ref ec) {
         auto const polling = e.cq_ex.start_poll();
         CHECK_FALSE(static_cast<bool>(polling));
         ec = of(polling.error());
     },
     told::as_given},
    {"ibv_next_poll", nullptr,
     [](everything& e, ec_ref ec) {
         fake::push_completion(ibv_cq_ex_to_cq(e.cq_ex.native_handle_ex()), {});
         auto polling = e.cq_ex.start_poll();
         CHECK(static_cast<bool>(polling));
         polling.next();
         CHECK_FALSE(static_cast<bool>(polling));
         ec = of(polling.error());
     },
     told::as_given},
    {"ibv_destroy_cq", [](everything& e) { ends(rdma::cq(e.context, 4)); },
     [](everything& e, ec_ref ec) { ends(rdma::cq(e.context, 4), ec); }},
    // Queue pairs.
    {"ibv_create_qp", [](everything& e) { (void)rdma::qp(e.pd, rdma::qp_type::rc, e.queues()); },
     [](everything& e, ec_ref ec) { CHECK_FALSE(rdma::qp(e.pd, rdma::qp_type::rc, e.queues(), ec)); }},
    {"ibv_create_qp_ex", [](everything& e) { (void)rdma::qp(e.pd, rdma::qp_type::rc, e.queues_ex()); },
     [](everything& e, ec_ref ec) { CHECK_FALSE(rdma::qp(e.pd, rdma::qp_type::rc, e.queues_ex(), ec)); }},
    {"ibv_open_qp", [](everything& e) { (void)rdma::qp(e.context, e.xrcd, 17); },
     [](everything& e, ec_ref ec) { CHECK_FALSE(rdma::qp(e.context, e.xrcd, 17, nullptr, ec)); }},
    {"ibv_query_qp", [](everything& e) { (void)e.with_qp.qp().query(IBV_QP_STATE); },
     [](everything& e, ec_ref ec) { (void)e.with_qp.qp().query(IBV_QP_STATE, ec); }},
    {"ibv_modify_qp", [](everything& e) { e.with_qp.qp().modify({}, IBV_QP_STATE); },
     [](everything& e, ec_ref ec) { e.with_qp.qp().modify({}, IBV_QP_STATE, ec); }},
    {"ibv_modify_qp", [](everything& e) { (void)e.rc.drain(1ms, [](rdma::work_completion const&) {}); },
     [](everything& e, ec_ref ec) {
         (void)e.rc.drain(
             1ms, [](rdma::work_completion const&) {}, ec);
     }},
    {"ibv_modify_qp_rate_limit", [](everything& e) { e.rc.modify_rate_limit({}); },
     [](everything& e, ec_ref ec) { e.rc.modify_rate_limit({}, ec); }},
    {"ibv_query_ece", [](everything& e) { (void)e.rc.query_ece(); },
     [](everything& e, ec_ref ec) { (void)e.rc.query_ece(ec); }},
    {"ibv_set_ece", [](everything& e) { e.rc.set_ece({}); }, [](everything& e, ec_ref ec) { e.rc.set_ece({}, ec); }},
    {"ibv_post_send", [](everything& e) { e.rc.post_send(e.send()); },
     [](everything& e, ec_ref ec) { ec = of(e.rc.post_send(e.send(), std::nothrow)); }, told::as_given},
    {"ibv_post_send",
     [](everything& e) {
         std::array chain{e.send(), e.send()};
         e.rc.post_send(chain);
     },
     [](everything& e, ec_ref ec) {
         std::array chain{e.send(), e.send()};
         std::size_t refused = 7;
         ec = of(e.rc.post_send(chain, refused, std::nothrow));
         CHECK(refused == 0);
     },
     told::as_given},
    {"ibv_post_recv", [](everything& e) { e.rc.post_recv(e.recv()); },
     [](everything& e, ec_ref ec) { ec = of(e.rc.post_recv(e.recv(), std::nothrow)); }, told::as_given},
    {"ibv_post_recv",
     [](everything& e) {
         std::array chain{e.recv(), e.recv()};
         e.rc.post_recv(chain);
     },
     [](everything& e, ec_ref ec) {
         std::array chain{e.recv(), e.recv()};
         std::size_t refused = 7;
         ec = of(e.rc.post_recv(chain, refused, std::nothrow));
         CHECK(refused == 0);
     },
     told::as_given},
    {"ibv_wr_complete",
     [](everything& e) {
         rdma::wr_batch batch = e.rc.ex().start();
         batch.request(1).send().sge(e.mr.sge());
         batch.complete();
     },
     [](everything& e, ec_ref ec) {
         ec = of(e.rc.ex().post([&](rdma::wr_batch& batch) { batch.request(1).send().sge(e.mr.sge()); }, std::nothrow));
     },
     told::as_given},
    {"ibv_attach_mcast", [](everything& e) { (void)rdma::mcast(e.ud, e.multicast_gid, 0); },
     [](everything& e, ec_ref ec) { CHECK_FALSE(rdma::mcast(e.ud, e.multicast_gid, 0, ec)); }},
    {"ibv_detach_mcast",
     [](everything& e) {
         rdma::mcast place(e.ud, e.multicast_gid, 0);
         place.detach();
     },
     [](everything& e, ec_ref ec) {
         rdma::mcast place(e.ud, e.multicast_gid, 0);
         place.detach(ec);
         CHECK(place);
     }},
    {"ibv_destroy_qp", [](everything& e) { ends(rdma::qp(e.pd, rdma::qp_type::rc, e.queues())); },
     [](everything& e, ec_ref ec) { ends(rdma::qp(e.pd, rdma::qp_type::rc, e.queues()), ec); }},
    {"ibv_create_ah", [](everything& e) { (void)rdma::ah(e.pd, any_peer()); },
     [](everything& e, ec_ref ec) { CHECK_FALSE(rdma::ah(e.pd, any_peer(), ec)); }},
    {"ibv_create_ah_from_wc", [](everything& e) { (void)rdma::ah(e.pd, e.received(), e.memory, 1); },
     [](everything& e, ec_ref ec) { CHECK_FALSE(rdma::ah(e.pd, e.received(), e.memory, 1, ec)); }},
    {"ibv_destroy_ah", [](everything& e) { ends(rdma::ah(e.pd, any_peer())); },
     [](everything& e, ec_ref ec) { ends(rdma::ah(e.pd, any_peer()), ec); }},
    // Shared receive queues.
    {"ibv_create_srq", [](everything& e) { (void)rdma::srq(e.pd); },
     [](everything& e, ec_ref ec) { CHECK_FALSE(rdma::srq(e.pd, ec)); }},
    {"ibv_create_srq_ex", [](everything& e) { (void)rdma::srq(e.pd, e.xrc()); },
     [](everything& e, ec_ref ec) { CHECK_FALSE(rdma::srq(e.pd, e.xrc(), ec)); }},
    {"ibv_query_srq", [](everything& e) { (void)e.srq.query(); },
     [](everything& e, ec_ref ec) { (void)e.srq.query(ec); }},
    {"ibv_modify_srq", [](everything& e) { e.srq.set_limit(1); },
     [](everything& e, ec_ref ec) { e.srq.set_limit(1, ec); }},
    {"ibv_modify_srq", [](everything& e) { e.srq.resize(8); }, [](everything& e, ec_ref ec) { e.srq.resize(8, ec); }},
    {"ibv_get_srq_num", [](everything& e) { (void)e.srq.srq_num(); },
     [](everything& e, ec_ref ec) { (void)e.srq.srq_num(ec); }},
    {"ibv_post_srq_recv", [](everything& e) { e.srq.post_recv(e.recv()); },
     [](everything& e, ec_ref ec) { ec = of(e.srq.post_recv(e.recv(), std::nothrow)); }, told::as_given},
    {"ibv_post_srq_recv",
     [](everything& e) {
         std::array chain{e.recv(), e.recv()};
         e.srq.post_recv(chain);
     },
     [](everything& e, ec_ref ec) {
         std::array chain{e.recv(), e.recv()};
         std::size_t refused = 7;
         ec = of(e.srq.post_recv(chain, refused, std::nothrow));
         CHECK(refused == 0);
     },
     told::as_given},
    {"ibv_post_srq_ops",
     [](everything& e) {
         ibv_ops_wr request{}, *bad = nullptr;
         e.srq.post_ops(request, bad);
     },
     [](everything& e, ec_ref ec) {
         ibv_ops_wr request{}, *bad = nullptr;
         ec = of(e.srq.post_ops(request, bad, std::nothrow));
     },
     told::as_given},
    {"ibv_destroy_srq", [](everything& e) { ends(rdma::srq(e.pd)); },
     [](everything& e, ec_ref ec) { ends(rdma::srq(e.pd), ec); }},
    // Work queues, flows.
    {"ibv_create_wq", [](everything& e) { (void)rdma::wq(e.pd, e.cq, {}); },
     [](everything& e, ec_ref ec) { CHECK_FALSE(rdma::wq(e.pd, e.cq, {}, ec)); }},
    {"ibv_modify_wq", [](everything& e) { e.wq.modify(rdma::wq_state::rdy); },
     [](everything& e, ec_ref ec) { e.wq.modify(rdma::wq_state::rdy, ec); }},
    {"ibv_modify_wq", [](everything& e) { e.wq.modify(ibv_wq_attr{}); },
     [](everything& e, ec_ref ec) { e.wq.modify(ibv_wq_attr{}, ec); }},
    {"ibv_post_wq_recv", [](everything& e) { e.wq.post_recv(e.recv()); },
     [](everything& e, ec_ref ec) { ec = of(e.wq.post_recv(e.recv(), std::nothrow)); }, told::as_given},
    {"ibv_destroy_wq", [](everything& e) { ends(rdma::wq(e.pd, e.cq, {})); },
     [](everything& e, ec_ref ec) { ends(rdma::wq(e.pd, e.cq, {}), ec); }},
    {"ibv_create_rwq_ind_table",
     [](everything& e) { (void)rdma::rwq_ind_table(e.context, std::array<rdma::wq_ref, 1>{e.wq}); },
     [](everything& e, ec_ref ec) {
         CHECK_FALSE(rdma::rwq_ind_table(e.context, std::array<rdma::wq_ref, 1>{e.wq}, ec));
     }},
    {"ibv_destroy_rwq_ind_table",
     [](everything& e) { ends(rdma::rwq_ind_table(e.context, std::array<rdma::wq_ref, 1>{e.wq})); },
     [](everything& e, ec_ref ec) { ends(rdma::rwq_ind_table(e.context, std::array<rdma::wq_ref, 1>{e.wq}), ec); }},
    {"ibv_create_counters", [](everything& e) { (void)rdma::counters(e.context); },
     [](everything& e, ec_ref ec) { CHECK_FALSE(rdma::counters(e.context, ec)); }},
    {"ibv_read_counters", [](everything& e) { e.counters.read({}); },
     [](everything& e, ec_ref ec) { e.counters.read({}, 0, ec); }},
    {"ibv_destroy_counters", [](everything& e) { ends(rdma::counters(e.context)); },
     [](everything& e, ec_ref ec) { ends(rdma::counters(e.context), ec); }},
    {"ibv_create_flow", [](everything& e) { (void)rdma::flow(e.ud, any_flow()); },
     [](everything& e, ec_ref ec) { CHECK_FALSE(rdma::flow(e.ud, any_flow(), ec)); }},
    {"ibv_attach_counters_point_flow", [](everything& e) { e.flow.attach(e.counters, {}); },
     [](everything& e, ec_ref ec) { e.flow.attach(e.counters, {}, ec); }},
    {"ibv_destroy_flow", [](everything& e) { ends(rdma::flow(e.ud, any_flow())); },
     [](everything& e, ec_ref ec) { ends(rdma::flow(e.ud, any_flow()), ec); }},
    {"ibv_create_flow_action_esp", [](everything& e) { (void)rdma::flow_action(e.context, e.action_attr.attr); },
     [](everything& e, ec_ref ec) { CHECK_FALSE(rdma::flow_action(e.context, e.action_attr.attr, ec)); }},
    {"ibv_modify_flow_action_esp", [](everything& e) { e.action.modify(e.action_attr.attr); },
     [](everything& e, ec_ref ec) { e.action.modify(e.action_attr.attr, ec); }},
    {"ibv_destroy_flow_action", [](everything& e) { ends(rdma::flow_action(e.context, e.action_attr.attr)); },
     [](everything& e, ec_ref ec) { ends(rdma::flow_action(e.context, e.action_attr.attr), ec); }},
};

/// Those that are over when they fail: the kernel has rejected the request, and librdmacm has forgotten the group.
std::vector<wrapped<everything>> const that_end{
    {"rdma_accept",
     [](everything& e) {
         e.child = make_request(e.server_channel, e.listener).take_id();
         e.child.accept();
     },
     [](everything& e, ec_ref ec) {
         e.child = make_request(e.server_channel, e.listener).take_id();
         e.child.accept(ec);
     }},
    {"rdma_leave_multicast",
     [](everything& e) {
         rdma::membership member = e.datagrams.join_multicast(group);
         member.leave();
     },
     [](everything& e, ec_ref ec) {
         rdma::membership member = e.datagrams.join_multicast(group);
         member.leave(ec);
     }},
};

} // namespace

TEST_CASE("A14 every call's error is read where its convention puts it", "[field][errors]") {
    world w;
    w.messy();
    {
        everything all;
        int code = ELNRNG; // each call gets an errno of its own; in the other place the fake leaves a decoy
        for (auto const* const list : {&of_rdmacm, &of_verbs, &that_end})
            for (wrapped<everything> const& each : *list) {
                CAPTURE(each.function, ++code);
                check_failure(each, all, code);
            }
    }
    CHECK(fake::misuse() == std::vector<std::string>{});
    CHECK(fake::leaks() == "");
}

TEST_CASE("A14 a negative errno, as some providers give it, is put right, but on the data path", "[field][errors]") {
    world w;
    everything all;
    for (auto const* const list : {&of_rdmacm, &of_verbs})
        for (wrapped<everything> const& each : *list) {
            CAPTURE(each.function);
            if (std::string_view(each.function) == "rdma_getaddrinfo" || // a resolver's code
                std::string_view(each.function) == "ibv_rereg_mr" || // what is wrong with the region; see memory.cpp
                std::string_view(each.function) == "ibv_query_gid_table")
                continue;
            check_failure(each, all, -EREMOTEIO);
        }
}

TEST_CASE("A14 soft-iWARP's posts may return -1, and the reason in errno", "[field][errors]") {
    world w;
    everything all;
    std::error_code const reason(fake::decoy, std::system_category());
    std::size_t posts = 0;
    for (auto const* const list : {&of_rdmacm, &of_verbs})
        for (wrapped<everything> const& each : *list) {
            std::string_view const function = each.failing();
            if (!each.throwing || function.find("_post_") == function.npos)
                continue;
            CAPTURE(each.function);
            fake::fail(function, 1, -1);
            try {
                each.throwing(all);
                FAIL_CHECK("nothing was thrown");
            } catch (rdma::error const& e) {
                // rdma_post_send and its like put what was returned into errno: the reason is lost.
                CHECK(e.code() == (each.inside ? std::error_code(rdma::errc::unspecified) : reason));
            }
            ++posts;
        }
    CHECK(posts > 15);
}

TEST_CASE("A14 after a failure all is as it was, and works the next time", "[field][errors]") {
    world w;
    everything all;
    for (auto const* const list : {&of_rdmacm, &of_verbs})
        for (wrapped<everything> const& each : *list) {
            CAPTURE(each.function);
            auto const before = fake::live();
            std::error_code ec;
            fake::fail(each.failing(), 1, EREMOTEIO);
            each.twin(all, ec);
            CHECK(ec == each.wanted(EREMOTEIO));
            CHECK(fake::live() == before);
            fake::disarm();
        }
    all.mw.destroy();
    all.mr.destroy();
    all.wq.destroy();
    all.flow.destroy();
    all.rc.destroy();
    all.ud.destroy();
    all.cq.destroy();
    all.cq_ex.destroy();
    all.comp_channel.destroy();
    all.srq.destroy();
    all.pd.destroy();
    all.idle.destroy();
}
