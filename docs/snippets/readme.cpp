// SPDX-License-Identifier: MIT
// The code blocks of README that are no whole program, each inside what it needs. tests/compile/readme.py looks whether
// README prints them as they are here.
#include "snippets.hpp"

namespace {

using session = rdma::cm_id;

void the_rule() {
    connected_pair pair;
    rdma::event_channel const& channel = pair.channel;
    std::unordered_map<rdma::cm_id_ref, session> sessions;
    rdma::cm_id_ref const key = pair.server;
    sessions.try_emplace(key, std::move(pair.server));
    std::stop_source source;
    std::stop_token const stop = source.get_token();
    std::jthread const watching([&] {
        while (fake::count("ibv_destroy_qp") == 0)
            std::this_thread::yield();
        source.request_stop();
    });
    pair.client.disconnect();
    //! [rule]
    for (rdma::cm_event event : channel.events(stop)) {            // waits; acks at the end of each turn, on break, on throw
        if (event.type() == rdma::cm_event_type::disconnected)
            sessions.erase(event.id());                            // in C, this line hangs for ever
    }
    //! [rule]
    SNIPPET_CHECK(sessions.empty());
}

void one_call_one_deadline() {
    rdma::event_channel const channel;
    rdma::address const server = an_address;
    std::stop_token const stop;
    std::array<std::byte, 8> const hello{};
    buffer memory{};
    std::optional<rdma::mr> region;
    auto const post_receives = [&](rdma::cm_id& fresh) {
        region.emplace(fresh.pd(), memory, rdma::for_recv());
        fresh.qp().post_recv(rdma::recv_wr(region->sge()));
    };
    struct served {};
    auto const serve = [](rdma::cm_id const& id) {
        SNIPPET_CHECK(id.qp().qp_num() != 0);
        throw served();
    };
    fake::clear_calls();
    auto serving = std::async(std::launch::async, [&] {
        try {
            //! [acceptor]
            rdma::acceptor acceptor(rdma::address::any_v6(7471));
            for (rdma::request request : acceptor)
                serve(request.accept(channel, {.limit = 2s}));
            //! [acceptor]
        } catch (served) {
        }
    });
    while (fake::count("rdma_listen") == 0)
        std::this_thread::yield();
    //! [connect]
    rdma::cm_id id = rdma::connect(channel, server, {.limit = 500ms, .stop = stop, .param = {.private_data = hello}},
                                   [&](rdma::cm_id& fresh) { post_receives(fresh); });
    //! [connect]
    SNIPPET_CHECK(id.qp().qp_num() != 0);
    serving.get();
}

void the_verbs() {
    connected_pair pair;
    rdma::cm_id const& id = pair.client;
    rdma::registered_buffer const target(pair.server.pd(), 4096, rdma::for_remote_write());
    rdma::remote_memory const peer = target.region().remote();
    std::array<rdma::work_completion, 8> completions;
    fake::push_async(id.verbs().native_handle(), IBV_EVENT_PORT_ACTIVE);
    //! [verbs]
    rdma::registered_buffer memory(id.pd(), 4160, rdma::for_recv() | rdma::for_remote_write());
    rdma::send_wr chain[] = {rdma::send_wr::write(memory.sge(0, 4096), peer), rdma::send_wr::send(memory.sge(4096, 64))};
    chain[1].id(7).signaled();
    id.qp().post_send(chain);

    for (rdma::work_completion const& done : id.send_cq().wait(completions))
        if (!done)                                     // only a success has an opcode, a length, an immediate
            std::fprintf(stderr, "%s\n", to_string(done.status()).c_str());

    for (rdma::async_event event : id.verbs().async_channel().pending())    // acked at the end of each turn
        if (event.kind() == rdma::async_event_kind::port)
            std::printf("port %d: %s\n", event.port_num(), to_string(event).c_str());
    //! [verbs]
    SNIPPET_CHECK(completions[0] && completions[0].wr_id() == 7);
}

} // namespace

void readme() {
    the_rule();
    one_call_one_deadline();
    the_verbs();
}
