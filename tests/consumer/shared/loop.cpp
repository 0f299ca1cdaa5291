// SPDX-License-Identifier: MIT
// In the place of second.cpp, what is not in the umbrella: an event loop, and a coroutine on it.
#include <rdmacpp/epoll.hpp>

#include <string>

std::string channel_from_elsewhere();

static rdma::async::task<> open_on(rdma::epoll_loop& loop, std::string& told) {
    std::error_code error;
    rdma::async::event_channel const channel(loop, error);
    told = error ? rdma::error(error, "rdma_create_event_channel").what() : channel ? "a channel" : "an empty channel";
    if (channel) {
        rdma::async::cm_id const id(channel, rdma::port_space::tcp);
        (void)co_await id.next(std::chrono::milliseconds(1), error);
        if (error != std::errc::timed_out)
            told = error.message();
    }
}

std::string channel_from_elsewhere() {
    rdma::epoll_loop loop;
    std::string told;
    rdma::async::tasks running;
    running.spawn(open_on(loop, told));
    loop.run();
    return running.size() == 0 ? told : "the loop ends too early";
}
