// SPDX-License-Identifier: MIT
// The code blocks of README that are no whole program, each inside what it needs. tests/compile/readme.py looks whether
// README prints them as they are here.
#include "snippets.hpp"

#include <rdmacpp/epoll.hpp>

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

//! [coroutines]
namespace async = rdma::async; // #include <rdmacpp/epoll.hpp>

async::task<> echo(async::event_channel& channel, rdma::cm_id undecided) {
    async::cm_id id(channel, std::move(undecided));
    id->create_qp({});
    rdma::registered_buffer memory(id->pd(), 64, rdma::for_recv() | rdma::for_send());
    async::cq received(channel.loop(), id->recv_cq()), sent(channel.loop(), id->send_cq());
    id->qp().post_recv(rdma::recv_wr(memory.sge()));           // before accepting: the client may send at once
    co_await id.accept({}, 2s);
    rdma::work_completion message = co_await received.next(5s);
    if (message)
        co_await sent.post_send(id, rdma::send_wr::send(memory.sge(0, message.success().byte_len())), 5s);
    co_await id.disconnect(2s);
}

async::task<> serve(async::event_channel& channel, async::tasks& clients) {
    async::acceptor acceptor(channel, rdma::address::any_v6(7471));
    while (async::request request = co_await acceptor.next())
        clients.spawn(echo(channel, request.take_id()));       // dropped at any time: its id goes, and nothing dangles
}
//! [coroutines]

void on_one_thread() {
    rdma::epoll_loop loop;
    async::event_channel channel(loop);
    async::tasks clients;
    async::task<> server = serve(channel, clients);
    server.start();
    async::task<> visit = [](async::event_channel& on, async::task<>& serving) -> async::task<> {
        async::cm_id const id = co_await async::resolve(on, an_address);
        rdma::registered_buffer const out(id->pd(), 64, rdma::for_send()), in(id->pd(), 64, rdma::for_recv());
        async::cq const received(on.loop(), id->recv_cq()), sent(on.loop(), id->send_cq());
        id->qp().post_recv(rdma::recv_wr(in.sge()));
        co_await id.connect();
        co_await sent.post_send(id, rdma::send_wr::send(out.sge()));
        rdma::work_completion const answer = co_await received.next(5s);
        SNIPPET_CHECK(answer && answer.success().byte_len() == 64);
        while (!id.is_over())
            (void)co_await id.next();
        serving = {};
    }(channel, server);
    visit.start();
    loop.run();
    visit.get();
    SNIPPET_CHECK(clients.size() == 0);
}

} // namespace

void readme() {
    the_rule();
    one_call_one_deadline();
    the_verbs();
    on_one_thread();
}
