// SPDX-License-Identifier: MIT
//
// Enhanced connection establishment: options of the two ends' QPs, negotiated by connect and accept.
#include "support.hpp"

using namespace selftest;

namespace {

struct two_ends {
    explicit two_ends(device_case const& on = devices[0])
        : listener{make_listener(server_channel, v4(on.server, 7471))}, client{make_client(client_channel, v4(on.server, 7471))}
    {
    }
    two_ends(two_ends const&) = delete;
    two_ends& operator=(two_ends const&) = delete;
    ~two_ends()
    {
        for (auto* id : {client, server, listener})
            if (id != nullptr) drop(id);
        rdma_destroy_event_channel(server_channel);
        rdma_destroy_event_channel(client_channel);
    }
    void ask()
    {
        auto param = usual_param();
        param.qp_num = 17;
        REQUIRE(rdma_connect(client, &param) == 0);
        event const asked{server_channel};
        REQUIRE(asked->event == RDMA_CM_EVENT_CONNECT_REQUEST);
        server = asked->id;
    }
    void answer()
    {
        auto param = usual_param();
        param.qp_num = 18;
        REQUIRE(rdma_accept(server, &param) == 0);
    }

    rdma_event_channel* server_channel = rdma_create_event_channel();
    rdma_event_channel* client_channel = rdma_create_event_channel();
    rdma_cm_id* listener;
    rdma_cm_id* client;
    rdma_cm_id* server = nullptr;
};

} // namespace

TEST_CASE("ECE of a QP: rxe0 has it when told so, siw0 never")
{
    for (auto const& on : devices)
        for (bool const known : {false, true}) {
            INFO(on.name << ' ' << known);
            clean_world world;
            fake::set_ece(known);
            auto* const channel = rdma_create_event_channel();
            auto* const id = make_client(channel, v4(on.server, 7));
            give_qp(id);
            ibv_ece ece{1, 2, 3};
            if (!known || on.iwarp) {
                CHECK((ibv_query_ece(id->qp, &ece) == EOPNOTSUPP && errno == fake::decoy));
                CHECK(ibv_set_ece(id->qp, &ece) == EOPNOTSUPP);
            } else {
                CHECK(ibv_query_ece(id->qp, &ece) == 0);
                CHECK((ece.vendor_id == fake::ece_vendor && ece.options == fake::ece_options && ece.comp_mask == 0));
                ece.options = 0xf2;
                CHECK(ibv_set_ece(id->qp, &ece) == 0);
                CHECK(ece.options == 0x2); // what was accepted
                CHECK((ibv_query_ece(id->qp, &ece) == 0 && ece.options == 0x2));
                ibv_ece const wrong_mask{fake::ece_vendor, 0, 1}, other_vendor{7, 0, 0}, no_vendor{0, 0, 0};
                for (auto [bad, code] : {std::pair{wrong_mask, EINVAL}, {other_vendor, EINVAL}, {no_vendor, EOPNOTSUPP}})
                    CHECK(ibv_set_ece(id->qp, &bad) == code);
            }
            drop(id);
            rdma_destroy_event_channel(channel);
        }
}

TEST_CASE("ECE without QPs: the local options of each end are the remote ones of the other")
{
    clean_world world; // nobody needs to understand it
    two_ends ends;
    ibv_ece ece{1234, 0xab, 0}, got{9, 9, 9};
    CHECK((rdma_get_remote_ece(ends.client, &got) == 0 && got.vendor_id == 0 && got.options == 0 && got.comp_mask == 0));
    REQUIRE(rdma_set_local_ece(ends.client, &ece) == 0);
    ends.ask();
    CHECK((rdma_get_remote_ece(ends.server, &got) == 0 && got.vendor_id == 1234 && got.options == 0xab));
    ece = {777, 0x3, 0};
    REQUIRE(rdma_set_local_ece(ends.server, &ece) == 0);
    ends.answer();
    CHECK((rdma_get_remote_ece(ends.client, &got) == 0 && got.vendor_id == 0)); // not before the response is got
    expect(ends.client_channel, RDMA_CM_EVENT_CONNECT_RESPONSE);
    CHECK(rdma_get_remote_ece(ends.client, &got) == 0);
    CHECK((got.vendor_id == 1234 && got.options == 0x3)); // the vendor that asked comes back
    CHECK(rdma_establish(ends.client) == 0);
    expect(ends.server_channel, RDMA_CM_EVENT_ESTABLISHED);
}

TEST_CASE("ECE does not travel over iWARP")
{
    clean_world world;
    two_ends ends{devices[1]};
    ibv_ece ece{1234, 0xab, 0};
    REQUIRE(rdma_set_local_ece(ends.client, &ece) == 0);
    give_qp(ends.client);
    ends.ask();
    CHECK((rdma_get_remote_ece(ends.server, &ece) == 0 && ece.vendor_id == 0 && ece.options == 0));
}

TEST_CASE("what rdma_set_local_ece and rdma_get_remote_ece refuse")
{
    clean_world world;
    auto* const channel = rdma_create_event_channel();
    auto* const id = make_client(channel, v4("10.77.1.1", 7));
    ibv_ece good{1, 2, 0}, no_vendor{0, 2, 0}, mask{1, 2, 1};
    auto const refused = [](int result) { return result == -1 && errno == EINVAL; };
    CHECK(rdma_set_local_ece(id, &good) == 0);
    CHECK(refused(rdma_set_local_ece(nullptr, &good)));
    CHECK(refused(rdma_set_local_ece(id, nullptr)));
    CHECK(refused(rdma_set_local_ece(id, &no_vendor)));
    CHECK(refused(rdma_set_local_ece(id, &mask)));
    CHECK(refused(rdma_get_remote_ece(nullptr, &good)));
    CHECK(refused(rdma_get_remote_ece(id, nullptr)));
    give_qp(id);
    CHECK(refused(rdma_set_local_ece(id, &good)));
    CHECK(refused(rdma_get_remote_ece(id, &good)));
    drop(id);
    rdma_destroy_event_channel(channel);
}

TEST_CASE("with QPs on the ids librdmacm does the handshake")
{
    clean_world world;
    fake::set_ece(true);
    two_ends ends;
    give_qp(ends.client);
    ibv_ece ece{fake::ece_vendor, 0x6, 0};
    REQUIRE(ibv_set_ece(ends.client->qp, &ece) == 0); // too late: the id has read the QP's options when it made it
    ends.ask();
    give_qp(ends.server);
    CHECK((ibv_query_ece(ends.server->qp, &ece) == 0 && ece.options == fake::ece_options));
    REQUIRE(rdma_accept(ends.server, nullptr) == 0);
    expect(ends.client_channel, RDMA_CM_EVENT_ESTABLISHED);
    CHECK((ibv_query_ece(ends.client->qp, &ece) == 0 && ece.options == fake::ece_options)); // as the peer answered
    expect(ends.server_channel, RDMA_CM_EVENT_ESTABLISHED);
    rdma_destroy_qp(ends.client);
    CHECK((rdma_get_remote_ece(ends.client, &ece) == 0 && ece.vendor_id == fake::ece_vendor));
}

TEST_CASE("an asker whose QP is its own says what it wants; the QP of the asked one follows")
{
    clean_world world;
    fake::set_ece(true);
    for (bool const same_vendor : {true, false}) {
        INFO(same_vendor);
        two_ends ends;
        ibv_ece ece{same_vendor ? fake::ece_vendor : 99, 0xf1, 0};
        REQUIRE(rdma_set_local_ece(ends.client, &ece) == 0);
        ends.ask();
        give_qp(ends.server);
        ibv_ece of_qp{};
        REQUIRE(ibv_query_ece(ends.server->qp, &of_qp) == 0);
        CHECK(of_qp.options == (same_vendor ? 0x1 : 0)); // what both know; another vendor's mean nothing
        REQUIRE(rdma_accept(ends.server, nullptr) == 0);
        expect(ends.client_channel, RDMA_CM_EVENT_CONNECT_RESPONSE);
        REQUIRE(rdma_get_remote_ece(ends.client, &ece) == 0);
        CHECK((ece.vendor_id == (same_vendor ? fake::ece_vendor : 99) && ece.options == of_qp.options));
    }
}

TEST_CASE("rdma_reject_ece gives reason 35")
{
    clean_world world;
    two_ends ends;
    ends.ask();
    CHECK(rdma_reject_ece(ends.server, "no", 2) == 0);
    event const answer{ends.client_channel};
    CHECK(answer->event == RDMA_CM_EVENT_REJECTED);
    CHECK(answer->status == 35);
    CHECK(std::memcmp(answer->param.conn.private_data, "no", 2) == 0);
}
