// SPDX-License-Identifier: MIT
//
// Multicast groups: joining, several of them, failing, leaving.
#include "support.hpp"

#include <atomic>
#include <thread>

using namespace selftest;

namespace {

bool fails_with(int result, int code) { return result == -1 && errno == code; }

rdma_cm_id* make_member(rdma_event_channel* on, bool with_qp = true)
{
    auto* const id = make_id(on, RDMA_PS_UDP);
    auto at = v4("10.77.1.1");
    REQUIRE(rdma_bind_addr(id, &at.raw) == 0);
    if (with_qp) give_qp(id, IBV_QPT_UD);
    return id;
}

rdma_cm_join_mc_attr_ex join_attr(any_address& group, std::uint32_t flags = RDMA_MC_JOIN_FLAG_FULLMEMBER)
{
    rdma_cm_join_mc_attr_ex attr{};
    attr.comp_mask = static_cast<std::uint32_t>(RDMA_CM_JOIN_MC_ATTR_ADDRESS) | RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS;
    attr.join_flags = flags;
    attr.addr = &group.raw;
    return attr;
}

} // namespace

TEST_CASE("who may join, and what")
{
    clean_world world;
    auto* const channel = rdma_create_event_channel();
    auto group = v4("239.1.1.1");
    auto* const unbound = make_id(channel, RDMA_PS_UDP);
    CHECK(fails_with(rdma_join_multicast(unbound, &group.raw, nullptr), EINVAL));
    auto* const connected = make_id(channel);
    auto at = v4("10.77.1.1");
    REQUIRE(rdma_bind_addr(connected, &at.raw) == 0);
    CHECK(fails_with(rdma_join_multicast(connected, &group.raw, nullptr), EINVAL));
    auto* const siw = make_id(channel, RDMA_PS_UDP);
    at = v4("10.77.2.1");
    REQUIRE(rdma_bind_addr(siw, &at.raw) == 0);
    CHECK(fails_with(rdma_join_multicast(siw, &group.raw, nullptr), ENOSYS));
    auto* const listening = make_member(channel, false);
    REQUIRE(rdma_listen(listening, 1) == 0);
    CHECK(fails_with(rdma_join_multicast(listening, &group.raw, nullptr), EINVAL));
    auto* const routed = make_client(channel, v4("10.77.1.2", 7), RDMA_PS_UDP);
    CHECK(fails_with(rdma_join_multicast(routed, &group.raw, nullptr), EINVAL));

    auto* const member = make_member(channel);
    auto any = v4("0.0.0.0"), six = v6("ff0e::1");
    sockaddr nothing{};
    CHECK(fails_with(rdma_join_multicast(member, &any.raw, nullptr), EINVAL));
    CHECK(fails_with(rdma_join_multicast(member, &six.raw, nullptr), 524)); // RoCE v2 and this kernel
    CHECK(fails_with(rdma_join_multicast(member, &nothing, nullptr), EINVAL));
    CHECK(fails_with(rdma_join_multicast(member, nullptr, nullptr), EINVAL));
    CHECK(is_empty(channel));
    CHECK(fake::live().groups == 0);
    for (auto* id : {unbound, connected, siw, listening, routed, member}) drop(id);
    rdma_destroy_event_channel(channel);
}

TEST_CASE("what rdma_join_multicast_ex asks for")
{
    clean_world world;
    auto* const channel = rdma_create_event_channel();
    auto* const id = make_member(channel);
    auto group = v4("239.1.1.1");
    auto const with = [&](std::uint32_t mask, std::uint32_t flags) {
        auto attr = join_attr(group, flags);
        attr.comp_mask = mask;
        return rdma_join_multicast_ex(id, &attr, nullptr) == 0 ? 0 : errno;
    };
    CHECK(with(RDMA_CM_JOIN_MC_ATTR_ADDRESS, 0) == EINVAL);
    CHECK(with(RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS, 0) == EINVAL);
    CHECK(with(3, RDMA_MC_JOIN_FLAG_RESERVED) == EINVAL);
    CHECK(with(7, 0) == ENOTSUP);
    auto attr = join_attr(group);
    attr.addr = nullptr;
    CHECK(fails_with(rdma_join_multicast_ex(id, &attr, nullptr), EINVAL));
    CHECK(with(3, RDMA_MC_JOIN_FLAG_FULLMEMBER) == 0);
    expect(channel, RDMA_CM_EVENT_MULTICAST_JOIN);
    CHECK(rdma_leave_multicast(id, &group.raw) == 0);
    drop(id);
    rdma_destroy_event_channel(channel);
}

TEST_CASE("a join's event: charged to the id and to its group, and it says what to send to")
{
    clean_world world;
    auto* const channel = rdma_create_event_channel();
    auto* const id = make_member(channel);
    auto group = v4("239.1.1.1", 5);
    int mark = 0;
    REQUIRE(rdma_join_multicast(id, &group.raw, &mark) == 0);
    event joined{channel};
    REQUIRE(joined->event == RDMA_CM_EVENT_MULTICAST_JOIN);
    CHECK((joined->id == id && joined->status == 0 && joined->listen_id == nullptr));
    auto const& ud = joined->param.ud;
    CHECK((ud.private_data == &mark && ud.private_data_len == 0)); // the context of the join, and no data
    CHECK((ud.qp_num == 0xffffff && ud.qkey == RDMA_UDP_QKEY));
    CHECK((ud.ah_attr.is_global == 1 && ud.ah_attr.port_num == 1 && ud.ah_attr.dlid == 0 && ud.ah_attr.grh.hop_limit == 64));
    ibv_gid own{};
    REQUIRE(ibv_query_gid(id->verbs, 1, ud.ah_attr.grh.sgid_index, &own) == 0);
    CHECK(own.raw[15] == 1);
    CHECK((ud.ah_attr.grh.dgid.raw[10] == 0xff && ud.ah_attr.grh.dgid.raw[12] == 239));
    CHECK(fake::unacked(id) == 1);
    CHECK(fails_with(rdma_leave_multicast(id, &group.raw), EDEADLK));
    CHECK(fails_with(rdma_destroy_id(id), EDEADLK)); // and the group was not left with it
    CHECK(fake::would_hang().size() == 2);
    joined.ack();
    CHECK(fake::unacked(id) == 0);
    world.messy();
}

TEST_CASE("an ack of another thread lets rdma_leave_multicast go on")
{
    clean_world world;
    auto* const channel = rdma_create_event_channel();
    auto* const id = make_member(channel);
    auto group = v4("239.1.1.1");
    REQUIRE(rdma_join_multicast(id, &group.raw, nullptr) == 0);
    rdma_cm_event* held = nullptr;
    REQUIRE(rdma_get_cm_event(channel, &held) == 0);
    std::thread acker{[&] {
        while (fake::count("rdma_leave_multicast") == 0) std::this_thread::yield();
        rdma_ack_cm_event(held);
    }};
    fake::set_patience(std::chrono::minutes{5});
    std::thread{[] { rdma_event_str(RDMA_CM_EVENT_ESTABLISHED); }}.join(); // now there are many threads in the fake
    CHECK(rdma_leave_multicast(id, &group.raw) == 0);
    acker.join();
    drop(id);
    rdma_destroy_event_channel(channel);
}

TEST_CASE("the QP is attached as the event is read: not before, and not for sending alone")
{
    clean_world world;
    auto* const channel = rdma_create_event_channel();
    auto group = v4("239.1.1.1");

    auto* const late = make_member(channel, false); // joined and read before there is a QP: it is not attached
    REQUIRE(rdma_join_multicast(late, &group.raw, nullptr) == 0);
    expect(channel, RDMA_CM_EVENT_MULTICAST_JOIN);
    give_qp(late, IBV_QPT_UD);
    CHECK(ibv_destroy_qp(late->qp) == 0);
    late->qp = nullptr;
    CHECK(rdma_leave_multicast(late, &group.raw) == 0);

    auto* const sender = make_member(channel);
    auto attr = join_attr(group, RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER);
    REQUIRE(rdma_join_multicast_ex(sender, &attr, nullptr) == 0);
    expect(channel, RDMA_CM_EVENT_MULTICAST_JOIN);
    CHECK(ibv_destroy_qp(sender->qp) == 0);
    sender->qp = nullptr;
    CHECK(rdma_leave_multicast(sender, &group.raw) == 0);

    auto* const member = make_member(channel);
    REQUIRE(rdma_join_multicast(member, &group.raw, nullptr) == 0);
    CHECK(fake::queued(channel) == 1);
    CHECK(rdma_leave_multicast(member, &group.raw) == 0); // calls it off: the event does not come
    CHECK(is_empty(channel));
    CHECK(ibv_destroy_qp(member->qp) == 0);
    member->qp = nullptr;
    for (auto* id : {late, sender, member}) {
        if (id->send_cq != nullptr) {
            CHECK(ibv_destroy_cq(id->send_cq) == 0);
            CHECK(ibv_destroy_cq(id->recv_cq) == 0);
            CHECK(ibv_destroy_comp_channel(id->send_cq_channel) == 0);
            CHECK(ibv_destroy_comp_channel(id->recv_cq_channel) == 0);
        }
        CHECK(rdma_destroy_id(id) == 0);
    }
    rdma_destroy_event_channel(channel);
}

TEST_CASE("a QP that is attached is EBUSY until it is detached, by leaving or by hand")
{
    clean_world world;
    auto* const channel = rdma_create_event_channel();
    auto* const id = make_member(channel);
    auto group = v4("239.1.1.1");
    REQUIRE(rdma_join_multicast(id, &group.raw, nullptr) == 0);
    ibv_gid gid{};
    std::uint16_t lid = 0;
    {
        event const joined{channel};
        gid = joined->param.ud.ah_attr.grh.dgid;
        lid = joined->param.ud.ah_attr.dlid;
        CHECK(ibv_destroy_qp(id->qp) == EBUSY);
        CHECK(ibv_detach_mcast(id->qp, &gid, lid) == 0); // while the event is held
        CHECK(ibv_detach_mcast(id->qp, &gid, lid) == EINVAL);
        rdma_destroy_qp(id);
    }
    CHECK(rdma_leave_multicast(id, &group.raw) == 0);
    drop(id);
    rdma_destroy_event_channel(channel);
    CHECK(fake::misuse().size() == 1);
    CHECK(fake::leaks() == "");
    world.messy();
}

TEST_CASE("several groups on an id: each is left by the bytes of its address, the newest first")
{
    clean_world world;
    auto* const channel = rdma_create_event_channel();
    auto* const id = make_member(channel);
    auto first = v4("239.1.1.1"), second = v4("239.1.1.2"), port = v4("239.1.1.1", 9);
    int a = 0, b = 0, c = 0;
    REQUIRE(rdma_join_multicast(id, &first.raw, &a) == 0);
    REQUIRE(rdma_join_multicast(id, &second.raw, &b) == 0);
    REQUIRE(rdma_join_multicast(id, &first.raw, &c) == 0); // twice: nothing against it
    CHECK(fake::live().groups == 3);
    event of_a{channel}, of_b{channel}, of_c{channel};
    CHECK((of_a->param.ud.private_data == &a && of_b->param.ud.private_data == &b && of_c->param.ud.private_data == &c));
    CHECK(fails_with(rdma_leave_multicast(id, &port.raw), EADDRNOTAVAIL)); // another port is another address
    of_c.ack();
    CHECK(rdma_leave_multicast(id, &first.raw) == 0); // that of c
    CHECK(fake::live().groups == 2);
    of_b.ack();
    CHECK(rdma_leave_multicast(id, &second.raw) == 0);
    CHECK(fails_with(rdma_leave_multicast(id, &first.raw), EDEADLK)); // that of a, whose event is held
    of_a.ack();
    CHECK(rdma_leave_multicast(id, &first.raw) == 0); // the QP was detached before, which nobody minds
    CHECK(fails_with(rdma_leave_multicast(id, &first.raw), EADDRNOTAVAIL));
    drop(id);
    rdma_destroy_event_channel(channel);
    CHECK(fake::misuse().empty());
    world.messy();
}

TEST_CASE("a join that fails: an event with the join's context, and a group that must be left")
{
    clean_world world;
    auto* const channel = rdma_create_event_channel();
    auto* const id = make_member(channel);
    auto first = v4("239.1.1.1"), second = v4("239.1.1.2");
    int a = 0, b = 0;
    fake::fail_join(-ENETUNREACH);
    REQUIRE(rdma_join_multicast(id, &first.raw, &a) == 0);
    REQUIRE(rdma_join_multicast(id, &second.raw, &b) == 0);
    {
        event const failed{channel};
        CHECK((failed->event == RDMA_CM_EVENT_MULTICAST_ERROR && failed->status == -ENETUNREACH));
        CHECK((failed->param.ud.private_data == &a && failed->id == id));
        CHECK(fails_with(rdma_leave_multicast(id, &first.raw), EDEADLK)); // the group is charged as well
    }
    {
        event const joined{channel};
        CHECK((joined->event == RDMA_CM_EVENT_MULTICAST_JOIN && joined->param.ud.private_data == &b));
    }
    CHECK(fake::live().groups == 2);
    CHECK(rdma_leave_multicast(id, &first.raw) == 0);
    CHECK(rdma_leave_multicast(id, &second.raw) == 0);
    drop(id);
    rdma_destroy_event_channel(channel);
    CHECK(fake::leaks() == "");
    world.messy();
}

TEST_CASE("an address that is no group: without a QP nobody notices")
{
    for (bool const with_qp : {false, true}) {
        INFO(with_qp);
        clean_world world;
        auto* const channel = rdma_create_event_channel();
        auto* const id = make_member(channel, with_qp);
        auto host = v4("10.77.1.9");
        REQUIRE(rdma_join_multicast(id, &host.raw, nullptr) == 0);
        expect(channel, with_qp ? RDMA_CM_EVENT_MULTICAST_ERROR : RDMA_CM_EVENT_MULTICAST_JOIN, with_qp ? -1 : 0);
        CHECK(rdma_leave_multicast(id, &host.raw) == 0);
        drop(id);
        rdma_destroy_event_channel(channel);
    }
}

TEST_CASE("events of a certain group, when the test wants them")
{
    clean_world world;
    auto* const channel = rdma_create_event_channel();
    auto* const id = make_member(channel);
    auto first = v4("239.1.1.1"), second = v4("239.1.1.2");
    int a = 0, b = 0;
    REQUIRE(rdma_join_multicast(id, &first.raw, &a) == 0);
    REQUIRE(rdma_join_multicast(id, &second.raw, &b) == 0);
    expect(channel, RDMA_CM_EVENT_MULTICAST_JOIN);
    expect(channel, RDMA_CM_EVENT_MULTICAST_JOIN);
    fake::push(id, &first.raw, {RDMA_CM_EVENT_MULTICAST_ERROR, -ENETRESET});
    {
        event const lost{channel};
        CHECK((lost->param.ud.private_data == &a && lost->status == -ENETRESET));
        CHECK(rdma_leave_multicast(id, &second.raw) == 0); // is owed nothing
    }
    CHECK(rdma_leave_multicast(id, &first.raw) == 0);
    drop(id);
    rdma_destroy_event_channel(channel);
}

TEST_CASE("a leave that fails in the kernel has forgotten the group; an event of it that is acked then would crash")
{
    clean_world world;
    auto* const channel = rdma_create_event_channel();
    auto* const id = make_member(channel);
    auto group = v4("239.1.1.1");
    REQUIRE(rdma_join_multicast(id, &group.raw, nullptr) == 0);
    expect(channel, RDMA_CM_EVENT_MULTICAST_JOIN);
    fake::fail("rdma_leave_multicast", 1, EIO);
    CHECK(fails_with(rdma_leave_multicast(id, &group.raw), EIO));
    CHECK(fake::live().groups == 0);
    CHECK(fails_with(rdma_leave_multicast(id, &group.raw), EADDRNOTAVAIL));
    CHECK(fake::misuse().empty());
    REQUIRE(rdma_join_multicast(id, &group.raw, nullptr) == 0);
    {
        event const held{channel};
        fake::fail("rdma_leave_multicast", 1, EIO);
        CHECK(fails_with(rdma_leave_multicast(id, &group.raw), EIO)); // does not wait
    }
    CHECK(mentions(fake::misuse(), "would crash: the event's multicast group is gone"));
    rdma_destroy_qp(id); // it was detached
    CHECK(fake::live().qps == 0);
    CHECK(rdma_destroy_id(id) == 0);
    rdma_destroy_event_channel(channel);
    CHECK(fake::leaks() == "");
    world.messy();
}

TEST_CASE("when the device is removed, leaving gives ENXIO, and is needed all the same")
{
    clean_world world;
    auto* const channel = rdma_create_event_channel();
    auto* const id = make_member(channel);
    auto group = v4("239.1.1.1");
    REQUIRE(rdma_join_multicast(id, &group.raw, nullptr) == 0);
    expect(channel, RDMA_CM_EVENT_MULTICAST_JOIN);
    fake::remove_device("rxe0");
    expect(channel, RDMA_CM_EVENT_DEVICE_REMOVAL);
    CHECK(fails_with(rdma_join_multicast(id, &group.raw, nullptr), ENXIO));
    CHECK(fails_with(rdma_leave_multicast(id, &group.raw), ENXIO));
    CHECK(fake::live().groups == 0);
    drop(id);
    rdma_destroy_event_channel(channel);
}

TEST_CASE("a synchronous id waits for its join")
{
    clean_world world;
    rdma_cm_id* id = nullptr;
    REQUIRE(rdma_create_id(nullptr, &id, nullptr, RDMA_PS_UDP) == 0);
    auto at = v4("10.77.1.1");
    REQUIRE(rdma_bind_addr(id, &at.raw) == 0);
    auto group = v4("239.1.1.1"), other = v4("239.1.1.2");
    REQUIRE(rdma_join_multicast(id, &group.raw, nullptr) == 0);
    CHECK(id->event->event == RDMA_CM_EVENT_MULTICAST_JOIN);
    CHECK(fails_with(rdma_leave_multicast(id, &group.raw), EDEADLK)); // its event is parked
    fake::fail_join(-ENETUNREACH);
    CHECK(fails_with(rdma_join_multicast(id, &other.raw, nullptr), ENETUNREACH));
    CHECK(id->event->event == RDMA_CM_EVENT_MULTICAST_ERROR);
    CHECK(fake::live().groups == 2); // the failed one, too
    CHECK(rdma_leave_multicast(id, &group.raw) == 0);
    REQUIRE(rdma_join_multicast(id, &group.raw, nullptr) == 0);
    CHECK(rdma_leave_multicast(id, &other.raw) == 0);
    auto* const channel = rdma_create_event_channel();
    REQUIRE(rdma_migrate_id(id, channel) == 0); // acks what is parked
    CHECK(rdma_leave_multicast(id, &group.raw) == 0);
    drop(id);
    rdma_destroy_event_channel(channel);
    CHECK(fake::leaks() == "");
    world.messy();
}
