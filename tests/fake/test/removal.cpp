// SPDX-License-Identifier: MIT
//
// A device that is removed under its users.
#include "support.hpp"

using namespace selftest;

namespace {

/// What makes librdmacm look at the devices.
void look()
{
    int many = 0;
    auto** const list = rdma_get_devices(&many);
    REQUIRE(list != nullptr);
    rdma_free_devices(list);
}

bool fails_with(int result, int code) { return result == -1 && errno == code; }

} // namespace

TEST_CASE("removal is told to what is bound, and to accepted ids; not to wildcard listeners and requests")
{
    for (auto const& on : devices) {
        INFO(on.name);
        clean_world world;
        auto* const channel = rdma_create_event_channel();
        connection c{on};
        auto* const wildcard = make_listener(channel, v4("0.0.0.0", 99));
        auto* const idle = make_id(channel);
        auto* const asking = make_client(c.client_channel, v4(on.server, 7471));
        give_qp(asking);
        REQUIRE(rdma_connect(asking, nullptr) == 0);
        auto* const undecided = take_request(c.server_channel);
        auto* const unheard = make_client(c.client_channel, v4(on.server, 99));
        give_qp(unheard);
        REQUIRE(rdma_connect(unheard, nullptr) == 0);
        CHECK(fake::queued(channel) == 1); // a request at the wildcard listener

        std::string const name = std::string{on.name} + "0";
        CHECK(fake::remove_device(name));
        CHECK(!fake::remove_device(name));
        CHECK(!fake::remove_device("rxe7"));
        for (auto* told : {c.listener, c.server}) {
            event const next{c.server_channel};
            CHECK(next->event == RDMA_CM_EVENT_DEVICE_REMOVAL);
            CHECK(next->status == 0);
            CHECK(next->id == told);
        }
        for (auto* told : {c.client, asking, unheard}) {
            event const next{c.client_channel};
            CHECK(next->event == RDMA_CM_EVENT_DEVICE_REMOVAL);
            CHECK(next->id == told);
        }
        CHECK(is_empty(c.server_channel));
        CHECK(is_empty(c.client_channel));
        CHECK(fake::queued(channel) == 1);
        REQUIRE(fcntl(channel->fd, F_SETFL, O_NONBLOCK) == 0);
        rdma_cm_event* none = nullptr;
        CHECK(fails_with(rdma_get_cm_event(channel, &none), EAGAIN)); // the request has nowhere to go, and is swallowed
        CHECK(rdma_accept(undecided, nullptr) == -1);
        for (auto* id : {undecided, asking, unheard, idle, wildcard}) drop(id);
        rdma_destroy_event_channel(channel);
    }
}

TEST_CASE("the younger end of a connection may hear of the end of the older first")
{
    clean_world world;
    fake::set_removal_disconnects(true);
    connection c{devices[0]};
    fake::remove_device("rxe0");
    expect(c.client_channel, RDMA_CM_EVENT_DEVICE_REMOVAL);
    CHECK(is_empty(c.client_channel));
    expect(c.server_channel, RDMA_CM_EVENT_DEVICE_REMOVAL); // the listener
    expect(c.server_channel, RDMA_CM_EVENT_DISCONNECTED);
    expect(c.server_channel, RDMA_CM_EVENT_DEVICE_REMOVAL);
    CHECK(is_empty(c.server_channel));
}

TEST_CASE("calls on an id of a removed device give ENXIO; its destroy works, and so does what is made of verbs alone")
{
    clean_world world;
    connection c{devices[0]};
    fake::remove_device("rxe0");
    expect(c.client_channel, RDMA_CM_EVENT_DEVICE_REMOVAL);
    expect(c.server_channel, RDMA_CM_EVENT_DEVICE_REMOVAL);
    auto to = v4("10.77.1.1", 7471);
    auto* const other = rdma_create_event_channel();
    CHECK(fails_with(rdma_disconnect(c.client), ENXIO));
    CHECK(c.client->qp->state == IBV_QPS_ERR); // librdmacm has come so far
    CHECK(fails_with(rdma_accept(c.server, nullptr), ENXIO));
    CHECK(fails_with(rdma_reject(c.server, nullptr, 0), ENXIO));
    CHECK(fails_with(rdma_connect(c.client, nullptr), ENXIO));
    CHECK(fails_with(rdma_listen(c.listener, 1), ENXIO));
    CHECK(fails_with(rdma_migrate_id(c.client, other), ENXIO));
    CHECK(fails_with(rdma_resolve_addr(c.client, nullptr, &to.raw, 1), ENXIO));
    CHECK(fails_with(rdma_resolve_route(c.client, 1), ENXIO));
    CHECK(fails_with(rdma_notify(c.server, IBV_EVENT_COMM_EST), ENXIO));
    rdma_destroy_qp(c.client);
    auto attr = small_qp();
    CHECK(fails_with(rdma_create_qp(c.client, nullptr, &attr), ENXIO));
    rdma_destroy_event_channel(other);

    char buffer[8];
    auto* const mr = ibv_reg_mr(c.client->pd, buffer, sizeof buffer, 0);
    CHECK(mr != nullptr);
    CHECK(ibv_dereg_mr(mr) == 0);
}

TEST_CASE("new ids do not find a removed device, lists do not name it, and the other goes on")
{
    clean_world world;
    auto* const channel = rdma_create_event_channel();
    auto* const id = make_id(channel);
    int many = 0;
    auto** const names = ibv_get_device_list(&many);
    CHECK(many == 2);
    fake::remove_device("rxe0");
    auto at = v4("10.77.1.1", 7471);
    CHECK(fails_with(rdma_bind_addr(id, &at.raw), ENODEV));
    CHECK(fails_with(rdma_resolve_addr(id, nullptr, &at.raw, 1), ENODEV));
    CHECK((ibv_open_device(names[0]) == nullptr && errno == ENODEV));
    ibv_free_device_list(names);
    auto** const left = ibv_get_device_list(&many);
    CHECK(many == 1);
    CHECK(std::string{ibv_get_device_name(left[0])} == "siw0");
    ibv_free_device_list(left);
    auto** const contexts = rdma_get_devices(&many);
    CHECK((many == 1 && contexts[0] == fake::siw_context() && contexts[1] == nullptr));
    rdma_free_devices(contexts);
    at = v4("10.77.2.1", 7471);
    CHECK(rdma_bind_addr(id, &at.raw) == 0);
    drop(id);
    rdma_destroy_event_channel(channel);

    fake::reset(); // brings it back
    auto* const again = rdma_create_event_channel();
    auto* const listener = make_listener(again, v4("10.77.1.1", 7471));
    drop(listener);
    rdma_destroy_event_channel(again);
}

TEST_CASE("the context of a removed device is closed when librdmacm has noticed and the last id is gone")
{
    for (bool const noticed_first : {false, true}) {
        INFO(noticed_first);
        clean_world world;
        auto* const channel = rdma_create_event_channel();
        auto* const first = make_client(channel, v4("10.77.1.1", 7));
        auto* const second = make_client(channel, v4("10.77.1.1", 7));
        give_qp(first);
        fake::remove_device("rxe0");
        expect(channel, RDMA_CM_EVENT_DEVICE_REMOVAL);
        expect(channel, RDMA_CM_EVENT_DEVICE_REMOVAL);
        if (noticed_first) look();
        drop(first);
        if (noticed_first) CHECK(!fake::device_gone("rxe0"));
        drop(second);
        CHECK(fake::device_gone("rxe0") == noticed_first);
        CHECK(!fake::device_gone("siw0"));
        CHECK(fake::count("rdma_get_devices") == (noticed_first ? 1 : 0));
        look();
        CHECK(fake::device_gone("rxe0"));
        rdma_destroy_event_channel(channel);
    }
}

TEST_CASE("a list of devices that is still held keeps the removed one's context")
{
    clean_world world;
    int many = 0;
    auto** const list = rdma_get_devices(&many);
    CHECK(many == 2);
    fake::remove_device("rxe0");
    look();
    CHECK(!fake::device_gone("rxe0"));
    rdma_free_devices(list);
    CHECK(fake::device_gone("rxe0"));
}

TEST_CASE("the removal of the last device is never noticed: rdma_get_devices fails first")
{
    clean_world world;
    fake::remove_device("siw0");
    fake::remove_device("rxe0");
    int many = 7;
    CHECK((rdma_get_devices(&many) == nullptr && errno == ENODEV && many == 0));
    CHECK(!fake::device_gone("rxe0"));
}

TEST_CASE("objects left on the context that is closed with the last id are misuse")
{
    clean_world world;
    auto* const channel = rdma_create_event_channel();
    auto* const id = make_client(channel, v4("10.77.1.1", 7));
    auto* const pd = ibv_alloc_pd(id->verbs);
    fake::remove_device("rxe0");
    expect(channel, RDMA_CM_EVENT_DEVICE_REMOVAL);
    look();
    drop(id);
    CHECK(fake::device_gone("rxe0"));
    CHECK(mentions(fake::misuse(), "1 object(s) still on the context"));
    CHECK(ibv_dealloc_pd(pd) == 0);
    rdma_destroy_event_channel(channel);
    world.messy();
}

TEST_CASE("events kept back and ids in mid-connect do not survive the removal")
{
    clean_world world;
    auto* const channel = rdma_create_event_channel();
    auto* const listener = make_listener(channel, v4("0.0.0.0", 7471));
    auto* const client = make_client(channel, v4("10.77.1.1", 7471));
    give_qp(client);
    fake::set_manual(true);
    REQUIRE(rdma_connect(client, nullptr) == 0);
    fake::remove_device("rxe0");
    CHECK(!fake::step());
    expect(channel, RDMA_CM_EVENT_DEVICE_REMOVAL);
    CHECK(is_empty(channel));
    drop(client);
    drop(listener);
    rdma_destroy_event_channel(channel);
}

TEST_CASE("a removed device that cuts its users off: destroys fail with EIO, and nobody is to blame")
{
    clean_world world;
    fake::set_disassociated_destroys_fail(true);
    auto* const channel = rdma_create_event_channel();
    auto* const id = make_client(channel, v4("10.77.1.1", 7));
    auto* const context = id->verbs;
    auto* const pd = ibv_alloc_pd(context);
    auto* const bell = ibv_create_comp_channel(context);
    auto* const cq = ibv_create_cq(context, 4, nullptr, bell, 0);
    ibv_srq_init_attr shared{};
    shared.attr.max_wr = shared.attr.max_sge = 1;
    auto* const srq = ibv_create_srq(pd, &shared);
    auto* const mw = ibv_alloc_mw(pd, IBV_MW_TYPE_1);
    ibv_ah_attr towards{};
    towards.port_num = towards.is_global = 1;
    auto* const ah = ibv_create_ah(pd, &towards);
    char buffer[8];
    auto* const mr = ibv_reg_mr(pd, buffer, sizeof buffer, 0);
    auto attr = small_qp();
    attr.send_cq = attr.recv_cq = cq;
    auto* const qp = ibv_create_qp(pd, &attr);
    give_qp(id);
    auto* const own_cq = id->send_cq;
    fake::push_async(qp, IBV_EVENT_QP_FATAL);
    ibv_async_event told{};
    REQUIRE(ibv_get_async_event(context, &told) == 0);

    fake::remove_device("rxe0");
    expect(channel, RDMA_CM_EVENT_DEVICE_REMOVAL);
    ibv_async_event fatal{};
    REQUIRE(ibv_get_async_event(context, &fatal) == 0);
    CHECK(fatal.event_type == IBV_EVENT_DEVICE_FATAL);
    ibv_ack_async_event(&fatal);

    ibv_qp_attr wanted{};
    wanted.qp_state = IBV_QPS_ERR;
    CHECK(ibv_modify_qp(qp, &wanted, IBV_QP_STATE) == EIO);
    errno = 0;
    CHECK((ibv_destroy_qp(qp) == EIO && errno == fake::decoy)); // and does not wait for the ack
    CHECK(fake::lost() == 1);
    CHECK(ibv_destroy_qp(qp) == EIO);
    CHECK(fake::lost() == 1);
    CHECK(ibv_destroy_srq(srq) == EIO);
    CHECK(ibv_dealloc_mw(mw) == EIO);
    CHECK(ibv_destroy_ah(ah) == EIO);
    CHECK(ibv_dereg_mr(mr) == EIO);
    CHECK(ibv_destroy_cq(cq) == EIO);
    CHECK(ibv_destroy_comp_channel(bell) == EBUSY); // closed by user space, which has not seen its CQ go
    CHECK(ibv_dealloc_pd(pd) == EIO);
    CHECK(fake::lost() == 8);
    CHECK(fake::live().qps == 1); // that of the id
    rdma_destroy_qp(id);
    CHECK(fake::live().qps == 0);
    CHECK(id->qp == nullptr);
    CHECK(fake::count("ibv_destroy_cq", own_cq) == 0);
    look();
    drop(id);
    CHECK(fake::device_gone("rxe0"));
    rdma_destroy_event_channel(channel);
    CHECK(fake::leaks() == "");
}

TEST_CASE("a context of the program's own is closed with what its removed device left on it")
{
    clean_world world;
    fake::set_disassociated_destroys_fail(true);
    auto** const list = ibv_get_device_list(nullptr);
    auto* const own = ibv_open_device(list[0]);
    ibv_free_device_list(list);
    auto* const pd = ibv_alloc_pd(own);
    fake::remove_device("rxe0");
    CHECK(ibv_dealloc_pd(pd) == EIO);
    CHECK(ibv_close_device(own) == 0);
    CHECK(fake::leaks() == "");
}

TEST_CASE("an object is lost once, and hides no other")
{
    clean_world world;
    fake::set_disassociated_destroys_fail(true);
    auto** const list = ibv_get_device_list(nullptr);
    auto* const own = ibv_open_device(list[0]);
    ibv_free_device_list(list);
    auto* const pd = ibv_alloc_pd(own);
    ibv_alloc_pd(own);
    fake::remove_device("rxe0");
    CHECK(ibv_dealloc_pd(pd) == EIO);
    CHECK(ibv_dealloc_pd(pd) == EIO);
    CHECK(fake::lost() == 1);
    CHECK(ibv_close_device(own) == 0);
    CHECK(mentions(fake::misuse(), "1 object(s) still on the context"));
    CHECK(fake::leaks() == "1 PD(s)");
    world.messy();
}

TEST_CASE("the port of a listener goes with its device")
{
    clean_world world;
    auto* const channel = rdma_create_event_channel();
    auto* const old = make_listener(channel, v4("10.77.1.1", 7471));
    fake::remove_device("rxe0");
    expect(channel, RDMA_CM_EVENT_DEVICE_REMOVAL);
    auto* const fresh = make_listener(channel, v4("0.0.0.0", 7471));
    drop(old);
    drop(fresh);
    rdma_destroy_event_channel(channel);
}
