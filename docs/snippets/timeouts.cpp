// SPDX-License-Identifier: MIT
// The snippets of docs/timeouts.md.
#include "snippets.hpp"

#include <csignal>

#include <poll.h>

namespace {

void one_event() {
    rdma::event_channel channel;
    rdma::cm_id id{channel, rdma::port_space::tcp};
    id.resolve_addr(an_address);
    //! [get]
    if (std::optional<rdma::cm_event> event = channel.get_for(500ms))
        std::puts(to_string(*event).c_str());
    else
        std::puts("nothing yet");
    //! [get]
}

void dead_host() {
    rdma::event_channel channel;
    fake::set_silent("10.77.1.99");
    rdma::address const nobody("10.77.1.99", 7471);
    //! [connect]
    std::error_code ec;
    rdma::cm_id id = rdma::connect(channel, nobody, {.limit = 200ms}, ec);
    if (ec == std::errc::timed_out)
        std::puts("no answer in time; the kernel's attempt is over, too");
    //! [connect]
    SNIPPET_CHECK(ec == std::errc::timed_out && !id);
}

void dead_host_on_iwarp() {
    rdma::event_channel channel;
    fake::set_silent("10.77.2.99");
    fake::set_patience(1h);
    rdma::address const nobody("10.77.2.99", 7471);
    //! [signal]
    struct sigaction wake {};
    wake.sa_handler = [](int) {}; // nothing to do: that it came ends the call. No SA_RESTART in sa_flags
    sigaction(SIGUSR1, &wake, nullptr);

    std::error_code ec;
    rdma::cm_id id = rdma::connect(channel, nobody, {.limit = 200ms, .interrupt_signal = SIGUSR1}, ec);
    //! [signal]
    SNIPPET_CHECK(ec == std::errc::timed_out && !id);
}

void stopping() {
    rdma::event_channel channel;
    //! [stop]
    std::jthread getting([&](std::stop_token stop) {
        for (rdma::cm_event event : channel.events(stop))
            std::puts(to_string(event).c_str());
    }); // its destructor asks it to stop: the range ends at once, also in the middle of a wait
    //! [stop]
}

void event_loop() {
    rdma::event_channel channel;
    rdma::cm_id id{channel, rdma::port_space::tcp};
    id.resolve_addr(an_address);
    int seen = 0;
    auto const handle = [&](rdma::cm_event const&) { ++seen; };
    //! [loop]
    pollfd watched{channel.fd(), POLLIN, 0};
    if (poll(&watched, 1, 1000) > 0)
        for (rdma::cm_event event : channel.pending()) // all that is there; never waits
            handle(event);
    //! [loop]
    SNIPPET_CHECK(seen == 1);
}

void completions_in_time() {
    connected_pair pair;
    rdma::cm_id const& id = pair.server;
    //! [cq]
    std::array<rdma::work_completion, 16> completions;
    if (id.recv_cq().wait_for(completions, 10ms).empty())
        std::puts("no message in 10 ms");
    //! [cq]
}

} // namespace

void timeouts() {
    one_event();
    dead_host();
    dead_host_on_iwarp();
    stopping();
    event_loop();
    completions_in_time();
}
