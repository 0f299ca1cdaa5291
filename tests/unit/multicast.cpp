// SPDX-License-Identifier: MIT
// Multicast groups: joined, left, and dropped in any order with the id, its QP and the events of the group.
#include "datagrams.hpp"
#include "threads.hpp"

#include <algorithm>
#include <atomic>
#include <numeric>
#include <optional>
#include <thread>

using namespace unit;

namespace {

rdma::address const group("239.1.1.1", 0), other_group("239.1.1.2", 0), third_group("239.1.1.3", 0);

/// An id that may join.
struct one_id : world {
    rdma::event_channel channel;
    rdma::cm_id id = make_datagram_id(channel);
    int mine = 0;

    rdma::cm_event joined() { return next(channel, type::multicast_join); }
};

/// An id in a group, and the event that says so.
struct one_member : one_id {
    rdma::membership member = id.join_multicast(group, &mine);
    rdma::cm_event join = joined();
};

std::size_t leaves() { return fake::count("rdma_leave_multicast"); }
std::size_t detaches() { return fake::count("ibv_detach_mcast"); }

/// Both forms refuse, and C is not called.
template <class Throwing, class Twin>
void refused(std::error_code wanted, std::string const& text, Throwing&& throwing, Twin&& twin) {
    std::size_t const calls = calls_made();
    CHECK(thrown(throwing, text) == wanted);
    std::error_code ec;
    twin(ec);
    CHECK(ec == wanted);
    CHECK(calls_made() == calls);
}

std::error_code const deadlock(EDEADLK, std::system_category());

} // namespace

// ---- Joining --------------------------------------------------------------------------------------------------------

TEST_CASE_METHOD(one_member, "multicast: the event names the group, and the pointer of the join", "[multicast]") {
    CHECK(member);
    CHECK(member.group() == group);
    CHECK(member.user_context() == &mine);
    CHECK(join.id() == id);
    CHECK(join.join_context() == &mine);
    CHECK(join.private_data().empty()); // C keeps the pointer where others have private data
    CHECK(join.native_handle()->param.ud.private_data != &mine);
    REQUIRE(join.ud_param());
    CHECK(join.ud_param()->qp_num == 0xffffff);
    CHECK(join.param() == nullptr);
    CHECK(join.error() == std::error_code());
    fake::push(id.native_handle(), {RDMA_CM_EVENT_ADDR_CHANGE});
    CHECK(next(channel, type::addr_change).join_context() == nullptr);
}

TEST_CASE("multicast: what one member sends all others get, until they leave; senders alone get nothing",
          "[multicast]") {
    world w;
    rdma::event_channel channel;
    rdma::cm_id from = make_datagram_id(channel), one = make_datagram_id(channel), two = make_datagram_id(channel),
                outside = make_datagram_id(channel);
    rdma::membership sends = from.join_multicast(group, rdma::join_flag::sendonly_fullmember);
    rdma::cm_event const join = next(channel, type::multicast_join);
    rdma::membership first = one.join_multicast(group, rdma::join_flag::fullmember), second = two.join_multicast(group);
    expect(channel, type::multicast_join);
    expect(channel, type::multicast_join);
    CHECK(fake::count("rdma_join_multicast") == 1);
    CHECK(fake::count("rdma_join_multicast_ex") == 2); // where there is something to say

    mailbox sender(from), a(one), b(two), none(outside);
    rdma::ah const all(from.pd(), join);
    auto const send = [&](char const* text) { sender.send(text, all, join.ud_param()->qp_num, join.ud_param()->qkey); };
    send("one");
    CHECK(a.received() == "one");
    CHECK(b.received() == "one");
    CHECK_FALSE(none.received());
    CHECK_FALSE(sender.received());
    first.leave();
    send("two");
    CHECK_FALSE(a.received());
    CHECK(b.received() == "two");
    second = {};
    send("three");
    CHECK_FALSE(b.received());
}

TEST_CASE_METHOD(one_id, "multicast: what cannot join", "[multicast]") {
    refused(
        rdma::errc::bad_address, "rdma_join_multicast", [&] { (void)id.join_multicast(rdma::address()); },
        [&](std::error_code& ec) { CHECK_FALSE(id.join_multicast(rdma::address(), ec)); });
    rdma::cm_id unbound = make_id(channel, rdma::port_space::udp), empty;
    refused(
        rdma::errc::not_bound, "239.1.1.1", [&] { (void)unbound.join_multicast(group); },
        [&](std::error_code& ec) { CHECK_FALSE(unbound.join_multicast(group, &mine, ec)); });
    refused(
        rdma::errc::empty_handle, "", [&] { (void)empty.join_multicast(group); },
        [&](std::error_code& ec) {
            CHECK_FALSE(empty.join_multicast(group, rdma::join_flag::sendonly_fullmember, ec));
        });
    rdma::cm_id connected = make_bound(channel), iwarp = make_id(channel, rdma::port_space::udp);
    iwarp.bind(rdma::address(siw_host, 0));
    CHECK(thrown([&] { (void)connected.join_multicast(group); }) == std::errc::invalid_argument);
    CHECK(thrown([&] { (void)iwarp.join_multicast(group); }) == std::errc::function_not_supported);
    fake::fail("rdma_join_multicast_ex", 1, EMFILE);
    CHECK(thrown([&] { (void)id.join_multicast(group, rdma::join_flag::sendonly_fullmember); }, "239.1.1.1") ==
          std::errc::too_many_files_open);
    CHECK(fake::live().groups == 0);
    rdma::membership const member = id.join_multicast(group); // nothing is left of those
    CHECK(member);
}

TEST_CASE_METHOD(one_id, "multicast: a group is joined once at a time", "[multicast]") {
    CHECK(std::error_code(rdma::errc::already_joined) == std::errc::already_connected);
    auto const refused_again = [&] {
        refused(
            rdma::errc::already_joined, "239.1.1.1", [&] { (void)id.join_multicast(group); },
            [&](std::error_code& ec) {
                CHECK_FALSE(id.join_multicast(rdma::address("239.1.1.1", 0), rdma::join_flag::sendonly_fullmember, ec));
            });
    };
    rdma::membership member = id.join_multicast(group);
    refused_again();
    rdma::cm_event join = joined();
    refused_again();
    member = {};
    refused_again(); // it leaves with the ack
    join.ack();
    member = id.join_multicast(group);
    CHECK(joined().join_context() == nullptr);
    member.leave();
    member = id.join_multicast(group, &mine);
    CHECK(joined().join_context() == &mine);
    rdma::cm_id second = make_datagram_id(channel); // each id for itself
    rdma::membership const also = second.join_multicast(group);
    CHECK(also);
}

TEST_CASE_METHOD(one_id, "multicast: MULTICAST_ERROR leaves the membership to be dropped", "[multicast]") {
    bool const kernel_fails = GENERATE(true, false);
    if (kernel_fails)
        fake::fail_join(-ENETUNREACH); // else librdmacm fails to attach the QP, for the address is of no group
    rdma::membership member = id.join_multicast(rdma::address("10.9.9.9", 0), &mine);
    rdma::cm_event failure = next(channel, type::multicast_error);
    CHECK(failure.error() == (kernel_fails ? std::error_code(ENETUNREACH, std::system_category())
                                           : std::error_code(rdma::errc::unspecified)));
    CHECK(failure.join_context() == &mine);
    CHECK(failure.ud_param() == nullptr);
    CHECK(fake::live().groups == 1);
    SECTION("before the event") {
        member = {};
        CHECK(leaves() == 0);
        failure.ack();
    }
    SECTION("after the event") {
        failure.ack();
        member = {};
    }
    SECTION("by name") {
        failure.ack();
        member.leave();
    }
    SECTION("with its id") {
        id = {};
        failure.ack();
    }
    CHECK(leaves() == 1);
    CHECK(detaches() == 0); // it never was attached
}

TEST_CASE_METHOD(one_id, "multicast: a group that C joined keeps C's pointer, and is C's to leave", "[multicast]") {
    rdma::address to = group;
    auto* const raw = const_cast<sockaddr*>(to.native_handle());
    REQUIRE(::rdma_join_multicast(id.native_handle(), raw, &mine) == 0);
    rdma::cm_event join = joined();
    CHECK(join.join_context() == &mine);
    join.ack();
    CHECK(::rdma_leave_multicast(id.native_handle(), raw) == 0);
}

// ---- Leaving --------------------------------------------------------------------------------------------------------

TEST_CASE_METHOD(one_member, "multicast: leave() is refused while events of the group are held, with their number",
                 "[multicast]") {
    auto const refused_to_leave = [&](char const* text) {
        refused(
            deadlock, text, [&] { member.leave(); }, [&](std::error_code& ec) { member.leave(ec); });
        CHECK(member);
    };
    refused_to_leave("rdma_leave_multicast");
    refused_to_leave("1 events held");
    fake::push(id.native_handle(), {RDMA_CM_EVENT_ADDR_CHANGE});
    rdma::cm_event const unrelated = next(channel, type::addr_change);
    join.ack();
    member.leave(); // that one is not of the group
    CHECK(leaves() == 1);
    CHECK_FALSE(member);
    CHECK(member.group() == rdma::address());
    CHECK(member.user_context() == nullptr);
    refused(
        rdma::errc::empty_handle, "", [&] { member.leave(); }, [&](std::error_code& ec) { member.leave(ec); });
}

TEST_CASE_METHOD(one_id, "multicast: leave() takes what nobody has read with it", "[multicast]") {
    rdma::membership member = id.join_multicast(group);
    member.leave();
    CHECK(is_idle(channel));
    member = id.join_multicast(group);
    member = {};
    CHECK(is_idle(channel));
    CHECK(leaves() == 2);
}

TEST_CASE_METHOD(one_member, "multicast: a leave that fails is told, once, and the group forgotten", "[multicast]") {
    messy();
    fake::fail("rdma_leave_multicast", 1, EACCES);
    auto const once = [this] {
        CHECK(told(rdma::diagnostic_kind::destroy_failed) == 1);
        for (rdma::diagnostic const& d : told()) {
            CHECK(std::string(d.function) == "rdma_leave_multicast");
            CHECK(d.error == std::errc::permission_denied);
        }
    };
    SECTION("to who asked by name") {
        join.ack();
        CHECK(thrown([&] { member.leave(); }, "rdma_leave_multicast") == std::errc::permission_denied);
        CHECK(told().empty());
    }
    SECTION("to the hook, when it is dropped") {
        join.ack();
        member = {};
        once();
    }
    SECTION("to the hook, with the last ack") {
        member = {};
        CHECK(told().empty());
        join.ack();
        once();
    }
    SECTION("to the hook, with its id") {
        join.ack();
        id = {};
        once();
    }
    CHECK(leaves() == 1);
    id = {};
    member = {};
    CHECK(leaves() == 1); // never again
    channel = rdma::event_channel(rdma::no_init);
    CHECK(fake::leaks() == "");
}

TEST_CASE_METHOD(one_member, "multicast: a membership that is dropped detaches at once, and leaves with the last ack",
                 "[multicast]") {
    member = {};
    CHECK(detaches() == 1);
    CHECK(leaves() == 0);
    CHECK(fake::live().groups == 1);
    CHECK(join.join_context() == &mine); // still
    id.destroy_qp();                     // no EBUSY
    join.ack();
    CHECK(leaves() == 1);
    CHECK(detaches() == 1);
    CHECK(fake::live().groups == 0);
}

TEST_CASE_METHOD(one_id, "multicast: move, swap and assignment leave what was held before, once", "[multicast]") {
    rdma::membership one = id.join_multicast(group), two = id.join_multicast(other_group, &mine);
    expect(channel, type::multicast_join);
    expect(channel, type::multicast_join);
    swap(one, two);
    CHECK(one.group() == other_group);
    CHECK(two.group() == group);
    one = std::move(two);
    CHECK(leaves() == 1);
    CHECK(one.group() == group);
    CHECK_FALSE(two); // NOLINT(bugprone-use-after-move): that is the point
    rdma::membership three = std::move(one);
    CHECK(leaves() == 1);
    three = {};
    CHECK(leaves() == 2);
}

// ---- The id and its QP ----------------------------------------------------------------------------------------------

TEST_CASE_METHOD(one_member, "T2 the id of a member is dropped while its MULTICAST_JOIN is held", "[multicast]") {
    rdma_cm_id* const raw = id.native_handle();
    id = {};
    CHECK(detaches() == 1);
    CHECK(fake::count("ibv_destroy_qp") == 1); // at once, and with no EBUSY
    CHECK(fake::live().qps == 0);
    CHECK(leaves() == 0);
    CHECK(channel.stats().ids_awaiting_ack == 1);
    CHECK(join.join_context() == &mine);
    join.ack();
    CHECK(leaves() == 1);
    CHECK(fake::count("rdma_destroy_id", raw) == 1);
    CHECK(member); // and has nothing to do any more
    std::size_t const calls = calls_made();
    SECTION("dropped") { member = {}; }
    SECTION("left") { member.leave(); }
    CHECK_FALSE(member);
    CHECK(calls_made() == calls);
}

TEST_CASE_METHOD(one_member, "multicast: the QP of a member is destroyed: detached first, and still a member",
                 "[multicast]") {
    if (GENERATE(true, false))
        join.ack();
    id.destroy_qp();
    CHECK(detaches() == 1);
    CHECK(fake::live().qps == 0);
    CHECK(leaves() == 0);
    CHECK(member);
    id.create_qp({}); // nobody attaches that one
    join.ack();
    member.leave();
    CHECK(detaches() == 1);
    CHECK(leaves() == 1);
}

TEST_CASE("multicast: a QP that is made after the join was read is not attached, and goes without a detach",
          "[multicast]") {
    world w;
    rdma::event_channel channel;
    rdma::cm_id id = make_id(channel, rdma::port_space::udp);
    id.bind(rdma::address(rxe_host, 0));
    rdma::membership member = id.join_multicast(group);
    expect(channel, type::multicast_join);
    id.create_qp({});
    member = {};
    id.destroy_qp();
    CHECK(detaches() == 0);
    CHECK(leaves() == 1);
}

TEST_CASE_METHOD(one_id, "multicast: the QP goes before the join is read", "[multicast]") {
    rdma::membership member = id.join_multicast(group);
    id.destroy_qp();
    rdma::cm_event join = joined();
    CHECK(detaches() == 0);
    id.create_qp({});
    id.destroy_qp();
    CHECK(detaches() == 0);
}

TEST_CASE_METHOD(one_id, "multicast: an id that only sends is never attached", "[multicast]") {
    rdma::membership member = id.join_multicast(group, rdma::join_flag::sendonly_fullmember, &mine);
    rdma::cm_event join = joined();
    CHECK(join.join_context() == &mine);
    if (GENERATE(true, false))
        join.ack();
    if (GENERATE(true, false))
        member = {};
    id = {};
    join.ack();
    CHECK(detaches() == 0);
    CHECK(leaves() == 1);
}

TEST_CASE_METHOD(one_id, "multicast: an id in several groups leaves them all", "[multicast]") {
    std::vector<rdma::membership> members;
    std::vector<rdma::cm_event> joins;
    for (rdma::address const& each : {group, other_group, third_group}) {
        members.push_back(id.join_multicast(each, &members));
        joins.push_back(joined());
    }
    CHECK(fake::live().groups == 3);
    members[1] = {};
    CHECK(detaches() == 1);
    joins[1].ack();
    CHECK(leaves() == 1);
    joins[2].ack();
    SECTION("the id is dropped") {
        id = {};
        CHECK(detaches() == 3);
        CHECK(leaves() == 2); // the one whose event is held is left with it
        joins[0].ack();
    }
    SECTION("the id is destroyed by name") {
        CHECK(thrown([&] { id.destroy(); }, "1 events held") == std::errc::resource_deadlock_would_occur);
        CHECK(leaves() == 1);
        joins[0].ack();
        id.destroy();
    }
    SECTION("each is left") {
        joins[0].ack();
        members[0].leave();
        members[2].leave();
    }
    CHECK(leaves() == 3);
    CHECK(fake::live().groups == 0);
}

TEST_CASE("multicast: membership, id, channel, QP and events are dropped in every order", "[multicast]") {
    std::array<int, 6> order{};
    std::iota(order.begin(), order.end(), 0);
    do {
        CAPTURE(order);
        one_member m;
        fake::push(m.id.native_handle(), {RDMA_CM_EVENT_ADDR_CHANGE});
        rdma::cm_event change = next(m.channel, type::addr_change);
        for (int const each : order)
            switch (each) {
            case 0: m.member = {}; break;
            case 1: m.id = {}; break;
            case 2: m.channel = rdma::event_channel(rdma::no_init); break;
            case 3: m.join = {}; break;
            case 4: change = {}; break;
            case 5: m.id.destroy_qp(); break;
            }
        bool const right = leaves() == 1 && detaches() == 1 && fake::count("ibv_destroy_qp") == 1 &&
                           fake::count("rdma_destroy_id") == 1 && fake::leaks().empty();
        CHECK(right);
    } while (std::next_permutation(order.begin(), order.end()));
}

TEST_CASE("multicast: two memberships, their id and their events are dropped in every order", "[multicast]") {
    std::array<int, 5> order{};
    std::iota(order.begin(), order.end(), 0);
    do {
        CAPTURE(order);
        one_member m;
        rdma::membership other = m.id.join_multicast(other_group);
        rdma::cm_event other_join = m.joined();
        for (int const each : order)
            switch (each) {
            case 0: m.member = {}; break;
            case 1: m.id = {}; break;
            case 2: m.join = {}; break;
            case 3: other = {}; break;
            case 4: other_join = {}; break;
            }
        CHECK((leaves() == 2 && detaches() == 2 && fake::live().ids == 0));
    } while (std::next_permutation(order.begin(), order.end()));
}

TEST_CASE_METHOD(one_member, "multicast: an id that is destroyed by name leaves its groups", "[multicast]") {
    join.ack();
    id.destroy();
    CHECK(leaves() == 1);
    CHECK(fake::live().groups == 0);
    member.leave(); // nothing to do
    CHECK(leaves() == 1);
}

// ---- Given to C, and migrated ---------------------------------------------------------------------------------------

TEST_CASE_METHOD(one_member, "multicast: the groups of a released id are C's with it", "[multicast]") {
    rdma::address const to = group;
    join.ack();
    rdma_cm_id* const raw = id.release();
    std::size_t const calls = calls_made();
    SECTION("the membership is dropped: the group is C's to leave") {
        member = {};
        CHECK(calls_made() == calls);
        CHECK(::rdma_leave_multicast(raw, const_cast<sockaddr*>(to.native_handle())) == 0);
        id = rdma::cm_id(rdma::adopt, channel, raw);
    }
    SECTION("C destroys all, and the membership is dropped afterwards") {
        CHECK(::rdma_leave_multicast(raw, const_cast<sockaddr*>(to.native_handle())) == 0);
        ::rdma_destroy_qp(raw);
        CHECK(::rdma_destroy_id(raw) == 0);
        std::size_t const later = calls_made();
        member = {};
        CHECK(calls_made() == later);
    }
    SECTION("the id comes back, and its membership is as before") {
        id = rdma::cm_id(rdma::adopt, channel, raw);
        member.leave();
        CHECK(leaves() == 1);
    }
    SECTION("the id comes back without its membership: it leaves the group as it goes") {
        member = {};
        id = rdma::cm_id(rdma::adopt, channel, raw);
        id = {};
        CHECK(leaves() == 1);
    }
}

TEST_CASE_METHOD(one_member, "multicast: a member migrates with its groups, and never while an event of them is held",
                 "[multicast][migrate]") {
    rdma::event_channel to;
    CHECK(thrown([&] { id.migrate(to); }, "1 events held") == std::errc::resource_deadlock_would_occur);
    join.ack();
    rdma::membership other = id.join_multicast(other_group, &member); // its event moves along
    id.migrate(to);
    channel = rdma::event_channel(rdma::no_init);
    CHECK(fake::live().channels == 1);
    join = next(to, type::multicast_join);
    CHECK(join.join_context() == &member);
    SECTION("left by name") {
        CHECK(thrown([&] { other.leave(); }) == std::errc::resource_deadlock_would_occur);
        member.leave();
        join.ack();
        other.leave();
    }
    SECTION("dropped") {
        other = {};
        CHECK(leaves() == 0);
        join.ack();
        CHECK(leaves() == 1);
        member = {};
    }
    SECTION("dropped with the id") {
        id = {};
        CHECK(leaves() == 1);
        CHECK(to.stats().ids_awaiting_ack == 1);
        join.ack();
    }
    CHECK(leaves() == 2);
}

// ---- Threads --------------------------------------------------------------------------------------------------------

TEST_CASE("multicast: a membership, its id and its event are dropped on three threads", "[multicast][threads]") {
    world w;
    fake::set_reuse_addresses(true);
    rdma::event_channel channel;
    rdma::cm_id id;
    rdma::membership member;
    rdma::cm_event join;
    at_once(
        500,
        [&] {
            id = make_datagram_id(channel);
            member = id.join_multicast(group);
            join = next(channel, type::multicast_join);
        },
        [] {}, [&] { member = {}; }, [&] { id = {}; }, [&] { join.ack(); });
    CHECK(leaves() == 500);
    CHECK(fake::count("rdma_destroy_id") == 500);
    CHECK(fake::count("ibv_destroy_qp") == 500);
}

TEST_CASE("T4 a group is left while another thread gets and acks its event: done, or refused", "[multicast][threads]") {
    world w;
    rdma::event_channel channel;
    rdma::cm_id id = make_datagram_id(channel);
    rdma::membership member;
    std::atomic<int> other{0};
    at_once(
        500, [&] { member = id.join_multicast(group); }, [&] { member = {}; },
        [&] {
            std::error_code ec;
            member.leave(ec);
            other += ec && ec != std::errc::resource_deadlock_would_occur;
        },
        [&] {
            for (rdma::cm_event event : channel.pending())
                event.ack();
        });
    CHECK(other == 0);
    CHECK(leaves() == 500);
}

TEST_CASE("multicast: a membership is dropped while its id migrates, and its new channel is got from",
          "[multicast][migrate][threads]") {
    world w;
    rdma::event_channel from, to;
    rdma::cm_id id;
    rdma::membership member;
    at_once(
        400,
        [&] {
            id = make_datagram_id(from);
            member = id.join_multicast(group);
        },
        [&] { id = {}; }, [&] { member = {}; },
        [&] {
            std::error_code ec;
            id.migrate(to, ec);
        },
        [&] {
            for (rdma::cm_event event : to.pending())
                event.ack();
        });
    CHECK(leaves() == 400);
}
