// SPDX-License-Identifier: MIT
// The snippets of docs/private_data.md.
#include "snippets.hpp"

namespace {

//! [protocol]
struct greeting {
    std::uint32_t magic = 0x52444d41;
    std::uint16_t version = 1;
    std::uint16_t length = 0; // of what follows: the transport may not tell
};
//! [protocol]

void both_ways() {
    rdma::event_channel channel;
    rdma::acceptor acceptor(an_address);
    auto serving = std::async(std::launch::async, [&] {
        rdma::request request = acceptor.get();
        //! [read]
        rdma::cm_event const& event = request.event();
        if (std::optional<greeting> const hello = event.read_private_data<greeting>(); !hello || hello->version != 1)
            request.reject(); // too short, or not for us
        //! [read]
        //! [copy]
        rdma::private_data const kept = event.copy_private_data(); // outlives the event
        //! [copy]
        SNIPPET_CHECK(kept.size() == rdma::private_data_limit::connect); // as on InfiniBand and RoCE: padded
        return request.accept(channel);
    });
    //! [send]
    greeting const hello{.length = 0};
    auto const bytes = std::as_bytes(std::span(&hello, 1));
    rdma::cm_id id = rdma::connect(channel, an_address, {.param = {.private_data = bytes}});
    //! [send]
    rdma::cm_id const server = serving.get();
}

void too_long() {
    rdma::event_channel channel;
    //! [long]
    std::array<std::byte, 256> const bytes{};
    std::error_code ec;
    rdma::cm_id id = rdma::connect(channel, an_address, {.param = {.private_data = bytes}}, ec);
    if (ec == rdma::errc::private_data_too_long)
        std::puts("at most 255 bytes, on any transport");
    //! [long]
    SNIPPET_CHECK(ec == rdma::errc::private_data_too_long);
}

} // namespace

void private_data() {
    both_ways();
    too_long();
}
