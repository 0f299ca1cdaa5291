// SPDX-License-Identifier: MIT
//
// What rdma-core 60 has more. Built twice: with the installed header, and with the stand-in of include_v60 before it.
#include "support.hpp"

#include <fake/v60.hpp>

#include <netdb.h>

using namespace selftest;
namespace v60 = fake::v60;

#if defined(FAKE_RDMA_CMA_V60_H) && !defined(RAI_SA)
#error "the stand-in does not do its work"
#endif
#if defined(RAI_SA)
static_assert(RAI_SA == v60::rai_sa && RAI_DNS == v60::rai_dns);
static_assert(RDMA_CM_EVENT_TIMEWAIT_EXIT == 15 && RDMA_CM_EVENT_ADDRINFO_RESOLVED == 16 && RDMA_CM_EVENT_ADDRINFO_ERROR == 17);
static_assert(RDMA_CM_EVENT_USER == 18 && RDMA_CM_EVENT_INTERNAL == 19);
static_assert(sizeof(rdma_cm_event) == 80 && sizeof(rdma_cm_event{}.param.arg) == 8);
#endif

namespace {

bool fails_with(int result, int code) { return result == -1 && errno == code; }

using v60::number;

rdma_addrinfo numeric(int flags = 0)
{
    rdma_addrinfo hints{};
    hints.ai_flags = RAI_NUMERICHOST | flags;
    return hints;
}

} // namespace

TEST_CASE("a user event carries its status and argument, is charged to the id, and wakes its channel")
{
    clean_world world;
    auto* const channel = rdma_create_event_channel();
    auto* const id = make_id(channel);
    CHECK(rdma_write_cm_event(id, v60::type(v60::user), -7, 0x1122334455667788) == 0);
    CHECK(fake::queued(channel) == 1);
    CHECK(fails_with(rdma_write_cm_event(id, RDMA_CM_EVENT_ESTABLISHED, 0, 0), EINVAL));
    CHECK(fails_with(rdma_write_cm_event(id, v60::type(v60::internal), 0, 0), EINVAL));
    {
        event const got{channel};
        CHECK((number(*got.get()) == v60::user && got->id == id && got->status == -7));
        CHECK(v60::arg(*got.get()) == 0x1122334455667788);
#if defined(RAI_SA)
        CHECK(got->event == RDMA_CM_EVENT_USER);
        CHECK(got->param.arg == 0x1122334455667788);
#endif
        CHECK(fake::unacked(id) == 1);
        CHECK(std::string{rdma_event_str(v60::type(number(*got.get())))} == "UNKNOWN EVENT");
    }
    fake::event_spec pushed{v60::user};
    pushed.arg = 9;
    fake::push(id, pushed);
    {
        event const got{channel};
        CHECK(v60::arg(*got.get()) == 9);
    }
    CHECK(rdma_write_cm_event(id, v60::type(v60::user), 0, 0) == 0);
    drop(id); // and with it what was not got
    rdma_destroy_event_channel(channel);
}

TEST_CASE("names are resolved by an event, and what was found is taken once")
{
    clean_world world;
    auto* const channel = rdma_create_event_channel();
    auto* const id = make_id(channel);
    auto const hints = numeric(v60::rai_dns);
    rdma_addrinfo* found = nullptr;
    CHECK(fails_with(rdma_query_addrinfo(id, &found), ENOENT));
    REQUIRE(rdma_resolve_addrinfo(id, "10.77.1.1", "7471", &hints) == 0);
    CHECK(fails_with(rdma_resolve_addrinfo(id, "10.77.1.1", "7471", &hints), EBUSY));
    {
        event const got{channel};
        CHECK((number(*got.get()) == v60::addrinfo_resolved && got->status == 0 && got->id == id));
        fake::set_rdma_core(60);
        CHECK(std::string{rdma_event_str(v60::type(number(*got.get())))} == "RDMA_CM_EVENT_ADDRINFO_RESOLVED");
        CHECK(std::string{rdma_event_str(v60::type(v60::addrinfo_error))} == "RDMA_CM_EVENT_ADDRINFO_ERROR");
        fake::set_rdma_core(44);
        CHECK(std::string{rdma_event_str(v60::type(number(*got.get())))} == "UNKNOWN EVENT");
    }
    CHECK(fake::live().lists == 0); // the id's
    REQUIRE(rdma_query_addrinfo(id, &found) == 0);
    CHECK(fake::live().lists == 1);
    CHECK(fails_with(rdma_query_addrinfo(id, &found), ENOENT));
    REQUIRE(rdma_resolve_addr(id, nullptr, found->ai_dst_addr, 1) == 0);
    expect(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
    rdma_freeaddrinfo(found);

    REQUIRE(rdma_resolve_addrinfo(id, "10.77.1.2", nullptr, nullptr) == 0);
    drop(id); // frees what nobody asked for
    rdma_destroy_event_channel(channel);
}

TEST_CASE("a failing rdma_resolve_addrinfo leaves odd things in errno")
{
    clean_world world;
    auto* const channel = rdma_create_event_channel();
    auto* const id = make_id(channel);
    auto const service = numeric(v60::rai_sa), both = numeric(v60::rai_sa | v60::rai_dns), plain = numeric();
    rdma_addrinfo* found = nullptr;
    CHECK(fails_with(rdma_resolve_addrinfo(id, "no number", "1", &plain), EAI_NONAME));
    CHECK(fails_with(rdma_resolve_addrinfo(id, nullptr, nullptr, nullptr), -1)); // and not EINVAL
    CHECK(fails_with(rdma_resolve_addrinfo(id, nullptr, "1", &both), ENOTSUP));
    CHECK(fails_with(rdma_resolve_addrinfo(id, "node", "1", &service), ENOTSUP));
    CHECK(fails_with(rdma_resolve_addrinfo(id, nullptr, "1", &service), -1));
    CHECK(fails_with(rdma_resolve_addrinfo(nullptr, "10.77.1.1", "1", &plain), EINVAL));
    CHECK(fails_with(rdma_query_addrinfo(nullptr, &found), EINVAL));
    CHECK(fails_with(rdma_query_addrinfo(id, nullptr), EINVAL));
    CHECK(is_empty(channel));
    REQUIRE(rdma_resolve_addrinfo(id, "10.77.1.1", "1", &plain) == 0); // not busy
    fake::push(id, {v60::addrinfo_error, ENOENT});
    event{channel};
    {
        event const failed{channel};
        CHECK((number(*failed.get()) == v60::addrinfo_error && failed->status == ENOENT));
    }
    CHECK(fails_with(rdma_query_addrinfo(id, &found), ENOENT));
    drop(id);
    rdma_destroy_event_channel(channel);
}

TEST_CASE("a synchronous id waits for its names")
{
    clean_world world;
    rdma_cm_id* id = nullptr;
    REQUIRE(rdma_create_id(nullptr, &id, nullptr, RDMA_PS_TCP) == 0);
    auto const hints = numeric();
    REQUIRE(rdma_resolve_addrinfo(id, "10.77.1.1", "7471", &hints) == 0);
    CHECK(number(*id->event) == v60::addrinfo_resolved);
    rdma_addrinfo* found = nullptr;
    REQUIRE(rdma_query_addrinfo(id, &found) == 0);
    CHECK(found->ai_dst_addr->sa_family == AF_INET);
    rdma_freeaddrinfo(found);
    rdma_destroy_ep(id);
}
