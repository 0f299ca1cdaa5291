// SPDX-License-Identifier: MIT
// The snippet of docs/coroutines.md for Asio; built where that is.
#include "snippets.hpp"

#include <rdmacpp/asio.hpp>

#include <asio/co_spawn.hpp>
#include <asio/detached.hpp>
#include <asio/io_context.hpp>
#include <asio/use_awaitable.hpp>

namespace {
namespace asio_page {

namespace async = rdma::async;

void both_ways() {
    async::cm_id server;
    bool done = false;
    //! [asio]
    asio::io_context context;
    rdma::asio::loop loop(context); // #include <rdmacpp/asio.hpp>
    async::event_channel channel(loop);
    async::acceptor const acceptor(channel, an_address);

    // Handlers: they get the error code first, and then what the awaitable gives.
    rdma::asio::initiate(loop, acceptor.next(), [&](std::error_code ec, async::request request) {
        if (!ec)
            rdma::asio::initiate(loop, async::accept(channel, request.take_id()),
                                 [&](std::error_code, async::cm_id id) { server = std::move(id); });
    });

    // Asio's own coroutines.
    auto const visit = [&]() -> asio::awaitable<void> {
        async::cm_id const id = co_await rdma::asio::initiate(loop, async::connect(channel, an_address, {.limit = 5s}),
                                                              asio::use_awaitable);
        co_await rdma::asio::initiate(loop, id.disconnect(), asio::use_awaitable);
        done = true;
    };
    asio::co_spawn(context, visit, asio::detached);
    context.run();
    //! [asio]
    SNIPPET_CHECK(done && server);
    server = {};
}

} // namespace asio_page
} // namespace

void with_asio() { asio_page::both_ways(); }
