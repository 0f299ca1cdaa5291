// SPDX-License-Identifier: MIT
//
// Verbs objects: order of destruction, owed acks, QPs of ids, devices.
#include "support.hpp"

using namespace selftest;

TEST_CASE("EBUSY: what is used is not destroyed, and can be later")
{
    clean_world world;
    auto* const context = fake::rxe_context();
    auto* const pd = ibv_alloc_pd(context);
    auto* const bell = ibv_create_comp_channel(context);
    auto* const cq = ibv_create_cq(context, 4, nullptr, bell, 0);
    auto attr = small_qp();
    attr.send_cq = attr.recv_cq = cq;
    auto* const qp = ibv_create_qp(pd, &attr);
    char buffer[16];
    auto* const mr = ibv_reg_mr(pd, buffer, sizeof buffer, 0);
    errno = 0;
    CHECK((ibv_dealloc_pd(pd) == EBUSY && errno == fake::decoy));
    CHECK(ibv_destroy_cq(cq) == EBUSY);
    CHECK(ibv_destroy_comp_channel(bell) == EBUSY);
    CHECK(fake::misuse().size() == 3);
    CHECK(ibv_destroy_qp(qp) == 0);
    CHECK(errno == EUCLEAN); // success in cleaning up spoils errno
    CHECK(ibv_dealloc_pd(pd) == EBUSY);
    CHECK(ibv_dereg_mr(mr) == 0);
    CHECK(ibv_destroy_cq(cq) == 0);
    CHECK(ibv_destroy_comp_channel(bell) == 0);
    CHECK(ibv_dealloc_pd(pd) == 0);
    CHECK(fake::leaks() == "");
    world.messy();
}

TEST_CASE("a CQ waits until acked equals delivered: one too many hangs like one too few")
{
    clean_world world;
    auto* const context = fake::rxe_context();
    auto* const bell = ibv_create_comp_channel(context);
    auto* const cq = ibv_create_cq(context, 4, bell, bell, 0);
    fake::push_cq_event(cq);
    fake::push_cq_event(cq);
    ibv_cq* which = nullptr;
    void* user = nullptr;
    REQUIRE(ibv_get_cq_event(bell, &which, &user) == 0);
    CHECK((which == cq && user == bell));
    CHECK(ibv_destroy_cq(cq) == EDEADLK);
    ibv_ack_cq_events(cq, 2);
    CHECK(ibv_destroy_cq(cq) == EDEADLK);
    REQUIRE(ibv_get_cq_event(bell, &which, &user) == 0);
    CHECK(ibv_destroy_cq(cq) == 0);
    CHECK(ibv_destroy_comp_channel(bell) == 0);
    CHECK(fake::would_hang().size() == 2);
    CHECK(mentions(fake::misuse(), "more CQ events acked"));
    world.messy();
}

TEST_CASE("events of a CQ that were not got go with it")
{
    clean_world world;
    auto* const bell = ibv_create_comp_channel(fake::rxe_context());
    auto* const cq = ibv_create_cq(fake::rxe_context(), 4, nullptr, bell, 0);
    fake::push_cq_event(cq);
    CHECK(ibv_destroy_cq(cq) == 0);
    REQUIRE(fcntl(bell->fd, F_SETFL, O_NONBLOCK) == 0);
    ibv_cq* which = nullptr;
    void* user = nullptr;
    CHECK((ibv_get_cq_event(bell, &which, &user) == -1 && errno == EAGAIN));
    CHECK(ibv_destroy_comp_channel(bell) == 0);
}

TEST_CASE("async events hold their QP; the device's own hold nothing")
{
    clean_world world;
    auto* const channel = rdma_create_event_channel();
    auto* const id = make_client(channel, v4("10.77.1.1", 7));
    give_qp(id);
    fake::push_async(id->qp, IBV_EVENT_QP_FATAL);
    fake::push_async(id->verbs, IBV_EVENT_PORT_ERR);
    ibv_async_event event{}, port{};
    REQUIRE(ibv_get_async_event(id->verbs, &event) == 0);
    REQUIRE(ibv_get_async_event(id->verbs, &port) == 0);
    CHECK((event.element.qp == id->qp && port.element.port_num == 1));
    rdma_destroy_qp(id);
    CHECK(id->qp != nullptr); // it would have hung
    CHECK(mentions(fake::would_hang(), "rdma_destroy_qp"));
    ibv_ack_async_event(&event);
    rdma_destroy_qp(id);
    CHECK(id->qp == nullptr);
    drop(id);
    ibv_ack_async_event(&port);
    rdma_destroy_event_channel(channel);
    CHECK(fake::leaks() == "");
    world.messy();
}

TEST_CASE("rdma_create_qp makes CQs and channels, and rdma_destroy_qp takes them back")
{
    clean_world world;
    auto* const channel = rdma_create_event_channel();
    auto* const id = make_client(channel, v4("10.77.1.1", 7));
    give_qp(id);
    CHECK(fake::live().cqs == 2);
    CHECK(fake::live().comp_channels == 2);
    CHECK(id->send_cq->cq_context == id);
    CHECK(id->send_cq->cqe == 8);
    auto attr = small_qp();
    CHECK((rdma_create_qp(id, nullptr, &attr) == -1 && errno == EINVAL)); // it has one
    rdma_destroy_qp(id);
    CHECK(fake::live().cqs == 0);
    CHECK(fake::live().comp_channels == 0);
    CHECK(id->recv_cq == nullptr);
    drop(id);
    rdma_destroy_event_channel(channel);
}

TEST_CASE("a send-only QP leaves its CQ and its channel behind")
{
    clean_world world;
    auto* const channel = rdma_create_event_channel();
    auto* const id = make_client(channel, v4("10.77.1.1", 7));
    auto attr = small_qp();
    attr.cap.max_recv_wr = 0;
    REQUIRE(rdma_create_qp(id, nullptr, &attr) == 0);
    rdma_destroy_qp(id);
    CHECK(fake::live().cqs == 1);
    CHECK(id->send_cq != nullptr);
    CHECK(ibv_destroy_cq(id->send_cq) == 0);
    CHECK(ibv_destroy_comp_channel(id->send_cq_channel) == 0);
    drop(id);
    rdma_destroy_event_channel(channel);
}

TEST_CASE("a QP's PD stays in id->pd; a PD of another context is refused")
{
    clean_world world;
    auto* const channel = rdma_create_event_channel();
    auto* const id = make_client(channel, v4("10.77.1.1", 7));
    auto* const own = ibv_alloc_pd(id->verbs);
    auto attr = small_qp();
    REQUIRE(rdma_create_qp(id, own, &attr) == 0);
    CHECK(id->pd == own);
    rdma_destroy_qp(id);
    CHECK(id->pd == own);
    CHECK(ibv_dealloc_pd(own) == 0); // and dangles from here on

    int many = 0;
    auto** const list = ibv_get_device_list(&many);
    REQUIRE(many == 2);
    auto* const opened = ibv_open_device(list[0]);
    ibv_free_device_list(list);
    auto* const foreign = ibv_alloc_pd(opened);
    attr = small_qp();
    CHECK((rdma_create_qp(id, foreign, &attr) == -1 && errno == EINVAL));
    CHECK(ibv_dealloc_pd(foreign) == 0);
    CHECK(ibv_close_device(opened) == 0);
    drop(id);
    rdma_destroy_event_channel(channel);
}

TEST_CASE("an id destroyed with its QP leaks it")
{
    clean_world world;
    auto* const channel = rdma_create_event_channel();
    auto* const id = make_client(channel, v4("10.77.1.1", 7));
    give_qp(id);
    CHECK(rdma_destroy_id(id) == 0);
    CHECK(fake::live().qps == 1);
    CHECK(fake::live().cqs == 2);
    CHECK(fake::leaks().find("1 QP(s), 2 CQ(s)") != std::string::npos);
    world.messy();
}

TEST_CASE("librdmacm's context is not to be closed; children of a closed one are noticed")
{
    clean_world world;
    CHECK(ibv_close_device(fake::rxe_context()) == 0);
    CHECK(mentions(fake::misuse(), "ibv_close_device: the context belongs to librdmacm"));
    auto** const list = ibv_get_device_list(nullptr);
    auto* const opened = ibv_open_device(list[1]);
    auto* const pd = ibv_alloc_pd(opened);
    CHECK(fake::live().contexts == 1);
    ibv_close_device(opened);
    CHECK(mentions(fake::misuse(), "1 object(s) still on the context"));
    CHECK(pd != nullptr);
    world.messy();
}

TEST_CASE("registering: rights, lengths, windows")
{
    clean_world world;
    auto* const pd = ibv_alloc_pd(fake::rxe_context());
    char buffer[16];
    CHECK((ibv_reg_mr(pd, buffer, sizeof buffer, unsigned{IBV_ACCESS_REMOTE_WRITE}) == nullptr && errno == EINVAL));
    CHECK((ibv_reg_mr(pd, buffer, 0, 0) == nullptr && errno == EINVAL));
    unsigned const access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND | IBV_ACCESS_RELAXED_ORDERING;
    auto* const mr = ibv_reg_mr(pd, buffer, sizeof buffer, access);
    REQUIRE(mr != nullptr);
    CHECK(fake::count("ibv_reg_mr") == 3); // whichever function the header chose
    auto* const mw = ibv_alloc_mw(pd, IBV_MW_TYPE_1);
    REQUIRE(mw != nullptr);
    CHECK(ibv_dealloc_mw(mw) == 0);
    CHECK(ibv_dereg_mr(mr) == 0);
    CHECK(ibv_dealloc_pd(pd) == 0);
    CHECK((ibv_alloc_mw(nullptr == pd ? pd : ibv_alloc_pd(fake::siw_context()), IBV_MW_TYPE_1) == nullptr && errno == EOPNOTSUPP));
    world.messy();
}

TEST_CASE("devices and what they say of themselves")
{
    clean_world world;
    int many = 0;
    auto** const list = ibv_get_device_list(&many);
    REQUIRE(many == 2);
    CHECK(std::string{ibv_get_device_name(list[0])} == "rxe0");
    CHECK(std::string{ibv_get_device_name(list[1])} == "siw0");
    CHECK(list[1]->transport_type == IBV_TRANSPORT_IWARP);
    CHECK(ibv_get_device_guid(list[0]) != ibv_get_device_guid(list[1]));
    ibv_free_device_list(list);

    auto* const context = fake::rxe_context();
    ibv_device_attr attr{};
    CHECK((ibv_query_device(context, &attr) == 0 && attr.max_sge == 32));
    ibv_device_attr_ex extended{};
    CHECK((ibv_query_device_ex(context, nullptr, &extended) == 0 && extended.orig_attr.max_sge == 32));
    ibv_port_attr port{};
    CHECK((ibv_query_port(context, 1, &port) == 0 && port.state == IBV_PORT_ACTIVE && port.link_layer == IBV_LINK_LAYER_ETHERNET));
    CHECK(ibv_query_port(context, 2, &port) == EINVAL);
    ibv_gid gid{};
    CHECK((ibv_query_gid(context, 1, 1, &gid) == 0 && gid.raw[10] == 0xff && gid.raw[12] == 10));
    ibv_gid_entry entries[8];
    CHECK(ibv_query_gid_table(context, entries, 8, 0) == 5);
    CHECK(ibv_query_gid_table(fake::siw_context(), entries, 8, 0) == 1);
    CHECK(ibv_query_gid_ex(context, 1, 99, entries, 0) == ENODATA);
    __be16 pkey = 0;
    CHECK((ibv_query_pkey(context, 1, 0, &pkey) == 0 && ibv_get_pkey_index(context, 1, pkey) == 0));
    CHECK(ibv_fork_init() == 0);
    CHECK(ibv_is_fork_initialized() == IBV_FORK_ENABLED);
    CHECK(std::string{ibv_wc_status_str(IBV_WC_WR_FLUSH_ERR)} == "Work Request Flushed Error");
}

TEST_CASE("enhanced connection establishment is not to be had")
{
    clean_world world;
    auto* const channel = rdma_create_event_channel();
    auto* const id = make_client(channel, v4("10.77.1.1", 7));
    ibv_ece ece{};
    CHECK((rdma_set_local_ece(id, &ece) == -1 && errno == EINVAL)); // no vendor
    ece.vendor_id = 1;
    CHECK(rdma_set_local_ece(id, &ece) == 0);
    CHECK(rdma_get_remote_ece(id, &ece) == 0);
    give_qp(id);
    CHECK(ibv_query_ece(id->qp, &ece) == EOPNOTSUPP);
    CHECK(ibv_set_ece(id->qp, &ece) == EOPNOTSUPP);
    CHECK((rdma_get_remote_ece(id, &ece) == -1 && errno == EINVAL));
    drop(id);
    rdma_destroy_event_channel(channel);
}
