// SPDX-License-Identifier: MIT
// Many ids on one channel, each with a handler: its events, what a handler may do in them, and what nobody owns.
#include "allocations.hpp"
#include "support.hpp"

#include <rdmacpp/dispatcher.hpp>

#include <algorithm>
#include <functional>
#include <map>
#include <optional>

#include <poll.h>

using namespace unit;

namespace {

/// Notes what it is told, and then does what the case wants.
struct session : rdma::id_handler {
    std::vector<type> got;
    std::function<void(rdma::cm_event&)> also;

    using rdma::id_handler::id_handler;
    void on_event(rdma::cm_event& event) override {
        got.push_back(event.type());
        CHECK((!id() || event.id().native_handle() == id().native_handle() || event.type() == type::connect_request));
        if (also)
            also(event);
    }
};

void push(rdma::cm_id const& id, int kind = RDMA_CM_EVENT_ADDR_CHANGE) { fake::push(id.native_handle(), {kind}); }

struct one_dispatcher : world {
    rdma::dispatcher by;
    rdma::cm_id bound() const { return make_bound(by.channel()); }
    std::size_t queued() const { return fake::queued(by.channel().native_handle()); }
    bool balanced() const { return fake::live().events == 0; }
};

std::vector<type> const one_change = {type::addr_change};

} // namespace

TEST_CASE_METHOD(one_dispatcher, "dispatcher: each of many is told of its own", "[dispatcher]") {
    std::vector<std::unique_ptr<session>> all;
    for (int i = 0; i != 300; ++i) // more than its table holds at first
        all.push_back(std::make_unique<session>(by, bound()));
    CHECK(by.size() == 300);
    for (std::size_t i = 0; i != all.size(); ++i)
        for (std::size_t n = 0; n != i % 3; ++n)
            push(all[i]->id());
    CHECK(by.dispatch() == 300);
    for (std::size_t i = 0; i != all.size(); ++i)
        CHECK(all[i]->got == std::vector<type>(i % 3, type::addr_change));
    CHECK(by.dispatch() == 0);
    CHECK(by.stats().handled == 300);
    CHECK(by.stats().unowned == 0);
    CHECK(balanced());
    for (std::size_t i = 0; i < all.size(); i += 2)
        all[i].reset();
    CHECK(by.size() == 150);
    push(all[1]->id());
    CHECK(by.dispatch() == 1);
    CHECK(all[1]->got.size() == 2);
}

TEST_CASE_METHOD(one_dispatcher, "dispatcher: several events, one edge, one call", "[dispatcher]") {
    session one(by, bound());
    pollfd p{by.fd(), POLLIN, 0};
    for (int i = 0; i != 5; ++i)
        push(one.id());
    CHECK(::poll(&p, 1, 0) == 1);
    CHECK(by.dispatch() == 5);
    CHECK(::poll(&p, 1, 0) == 0);
    CHECK(one.got.size() == 5);
}

TEST_CASE_METHOD(one_dispatcher, "dispatcher: what a handler begins in its event is handed out in the same call",
                 "[dispatcher]") {
    session one(by, bound());
    int more = 3;
    one.also = [&](rdma::cm_event&) {
        if (more-- > 0)
            push(one.id());
    };
    push(one.id());
    CHECK(by.dispatch() == 4);
}

TEST_CASE_METHOD(one_dispatcher, "dispatcher: a handler destroys itself, or another, in its event", "[dispatcher]") {
    for (bool acked : {false, true}) {
        auto doomed = std::make_unique<session>(by, bound());
        auto other = std::make_unique<session>(by, bound());
        session witness(by, bound());
        rdma_cm_id* const raw = doomed->id().native_handle();
        doomed->also = [&, acked](rdma::cm_event& event) {
            if (acked)
                event.ack();
            other.reset();
            doomed.reset(); // with it goes this very lambda
        };
        push(doomed->id());
        push(doomed->id());
        push(other->id());
        push(witness.id());
        auto const before = fake::count("rdma_destroy_id", raw);
        by.dispatch();
        CHECK_FALSE(doomed);
        CHECK_FALSE(other);
        CHECK(fake::count("rdma_destroy_id", raw) == before + 1);
        CHECK(witness.got == one_change);
        CHECK(balanced());
        CHECK(by.size() == 1);
    }
}

TEST_CASE("dispatcher: a handler destroys the dispatcher, also from a dispatch within another", "[dispatcher]") {
    for (int depth : {1, 2, 3}) {
        world w;
        INFO("depth " << depth);
        auto by = std::make_unique<rdma::dispatcher>();
        session one(*by, make_bound(by->channel())), two(*by, make_bound(by->channel()));
        int now = 0;
        one.also = [&](rdma::cm_event&) {
            if (++now == depth)
                by.reset();
            else
                by->dispatch();
        };
        for (int i = 0; i != 4; ++i)
            push(one.id());
        push(two.id());
        by->dispatch();
        CHECK_FALSE(by);
        CHECK(now == depth);
        CHECK(two.got.empty());
        CHECK(fake::live().events == 0);
        CHECK(one.id()); // the ids stay, and their channel with them
        rdma::cm_id const back = two.take_id();
        CHECK(back);
    }
}

TEST_CASE_METHOD(one_dispatcher, "dispatcher: a dispatch within another goes on where that one is", "[dispatcher]") {
    session one(by, bound());
    std::size_t inner = 0;
    one.also = [&](rdma::cm_event&) { inner += by.dispatch(); };
    for (int i = 0; i != 4; ++i)
        push(one.id());
    CHECK(by.dispatch() == 1);
    CHECK(inner == 1 + 1 + 1);
    CHECK(one.got.size() == 4);
    CHECK(by.stats().handled == 4);
}

TEST_CASE_METHOD(one_dispatcher, "dispatcher: what a handler throws comes out, and the rest is there still",
                 "[dispatcher]") {
    session bad(by, bound()), good(by, bound());
    bad.also = [](rdma::cm_event&) { throw 7; };
    for (rdma::id_handler* each : {static_cast<rdma::id_handler*>(&good), static_cast<rdma::id_handler*>(&bad),
                                   static_cast<rdma::id_handler*>(&good)})
        push(each->id());
    CHECK_THROWS_AS(by.dispatch(), int);
    CHECK(balanced());
    CHECK(queued() == 1);
    CHECK(by.dispatch() == 1);
    CHECK(good.got.size() == 2);
    std::error_code ec;
    push(bad.id());
    CHECK_THROWS_AS(by.dispatch(ec), int); // it is the program's, not this library's
}

TEST_CASE_METHOD(one_dispatcher, "dispatcher: events of ids without a handler are acked, and counted", "[dispatcher]") {
    rdma::cm_id const nobody = bound();
    session one(by, bound());
    push(nobody);
    push(one.id());
    push(nobody);
    CHECK(by.dispatch() == 3);
    CHECK(by.stats().unowned == 2);
    CHECK(by.stats().handled == 1);
    CHECK(balanced());
}

TEST_CASE_METHOD(one_dispatcher, "dispatcher: a request that is not taken is rejected, one that is taken is nobody's",
                 "[dispatcher]") {
    rdma::cm_id listening = bound();
    listening.listen();
    rdma::address const where = listening.local_addr();
    session listener(by, std::move(listening));
    std::vector<std::unique_ptr<session>> taken;
    listener.also = [&](rdma::cm_event& event) {
        if (event.type() != type::connect_request || !taken.empty())
            return;
        taken.push_back(std::make_unique<session>(by, event.take_id()));
        taken[0]->id().create_qp({});
        taken[0]->id().accept();
    };
    rdma::event_channel clients;
    rdma::cm_id first = make_client(clients, rxe_host, where.port()),
                second = make_client(clients, rxe_host, where.port());
    for (rdma::cm_id* each : {&first, &second}) {
        each->create_qp({});
        each->connect();
    }
    CHECK(by.dispatch() == 2);
    CHECK(by.size() == 2);
    expect(clients, type::established);
    expect(clients, type::rejected); // the second one
    by.dispatch();
    CHECK(taken[0]->got == std::vector<type>{type::established}); // the child's events are its own
    CHECK(listener.got.size() == 2);
}

TEST_CASE_METHOD(one_dispatcher, "dispatcher: an id at an old address is never the old handler's", "[dispatcher]") {
    fake::set_reuse_addresses(true);
    auto old = std::make_unique<session>(by, bound());
    rdma_cm_id* const raw = old->id().native_handle();
    push(old->id());
    rdma::cm_id mine = old->take_id();
    CHECK(by.size() == 0);
    mine = {};
    rdma::cm_id fresh = bound();
    REQUIRE(fresh.native_handle() == raw);
    push(fresh);
    CHECK(by.dispatch() == 1);
    CHECK(old->got.empty());
    CHECK(by.stats().unowned == 1);
    session heir(by, std::move(fresh));
    push(heir.id());
    by.dispatch();
    CHECK(heir.got == one_change);
    old.reset();
    push(heir.id());
    by.dispatch();
    CHECK(heir.got.size() == 2);
}

TEST_CASE_METHOD(one_dispatcher, "dispatcher: an id that is moved out of its place leaves nothing behind",
                 "[dispatcher]") {
    rdma::cm_id away;
    {
        session one(by, bound());
        away = std::move(one.id());
        push(away);
        by.dispatch();
        CHECK(one.got == one_change);
    }
    CHECK(by.size() == 0);
    push(away);
    by.dispatch();
    CHECK(by.stats().unowned == 1);
}

TEST_CASE_METHOD(one_dispatcher, "dispatcher: an id of another channel is moved, with what it has not heard yet",
                 "[dispatcher]") {
    rdma::event_channel elsewhere;
    rdma::cm_id id = make_bound(elsewhere);
    push(id);
    session one(by, std::move(id));
    CHECK(fake::count("rdma_migrate_id") == 1);
    CHECK(one.id().channel() == rdma::event_channel_ref(by.channel()));
    CHECK(by.dispatch() == 1);
    CHECK(one.got == one_change);
    fake::fail("rdma_migrate_id", 1, EPERM);
    std::error_code ec;
    session none(by, make_bound(elsewhere), ec);
    CHECK(ec == std::errc::operation_not_permitted);
    CHECK_FALSE(none.id());
    CHECK(by.size() == 1);
    CHECK(fake::live().ids == 1);
    CHECK(thrown([&] { session const nothing(by, rdma::cm_id()); }) == rdma::errc::empty_handle);
}

TEST_CASE_METHOD(one_dispatcher, "dispatcher: interrupted, nothing there, and broken", "[dispatcher]") {
    session one(by, bound());
    for (int i = 0; i != 4; ++i)
        push(one.id());
    fake::fail("rdma_get_cm_event", 4, EINTR); // three events, a signal, one event
    CHECK(by.dispatch() == 4);
    CHECK(one.got.size() == 4);
    CHECK(by.dispatch() == 0);
    fake::fail("rdma_get_cm_event", 1, EAGAIN);
    push(one.id());
    CHECK(by.dispatch() <= 1);
    by.dispatch();
    CHECK(one.got.size() == 5);
    for (int i = 0; i != 3; ++i)
        push(one.id());
    fake::fail("rdma_get_cm_event", 3, EBADF);
    std::error_code ec;
    CHECK(by.dispatch(ec) == 2);
    CHECK(ec == std::errc::bad_file_descriptor);
    CHECK(thrown(
              [&] {
                  fake::fail("rdma_get_cm_event", 1, EBADF);
                  by.dispatch();
              },
              "rdma_get_cm_event") == std::errc::bad_file_descriptor);
    CHECK(by.dispatch() == 1);
    CHECK(balanced());
}

TEST_CASE("dispatcher: without a channel", "[dispatcher]") {
    world w;
    fake::fail("rdma_create_event_channel", 1, EMFILE);
    std::error_code ec;
    rdma::dispatcher broken(ec);
    CHECK(ec == std::errc::too_many_files_open);
    CHECK(broken.fd() == -1);
    CHECK(broken.dispatch(ec) == 0);
    CHECK(ec == rdma::errc::empty_handle);
    fake::fail("rdma_create_event_channel", 1, EMFILE);
    CHECK(thrown([] { rdma::dispatcher const none; }) == std::errc::too_many_files_open);
}

TEST_CASE_METHOD(one_dispatcher, "dispatcher: nothing is allocated for an event", "[dispatcher]") {
    RDMACPP_NEED_ALLOCATIONS();
    struct silent : rdma::id_handler {
        using rdma::id_handler::id_handler;
        void on_event(rdma::cm_event&) override {}
    } one(by, bound());
    for (int i = 0; i != 10; ++i)
        push(one.id());
    by.dispatch();
    for (int i = 0; i != 10; ++i)
        push(one.id());
    std::size_t made = 0, count = 0;
    {
        allocation_watch const watch;
        count = by.dispatch();
        made = watch.made();
    }
    CHECK(count == 10);
    CHECK(made <= 10); // an event of C has a record of its own
}
