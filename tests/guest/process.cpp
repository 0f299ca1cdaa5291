// SPDX-License-Identifier: MIT
// Forks, execs and changed users: what a process does to its RDMA objects without touching them.
#include "guest/support.hpp"

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <iostream>
#include <memory>
#include <set>
#include <stop_token>
#include <string>
#include <vector>

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

using namespace guest;

int wait_for(::pid_t child) {
    int status = 0;
    while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + status;
}

/// One message from the client to the child, to see whether the connection still works.
void send_one(pair const& connection, rdma::mr const& from, rdma::mr const& into, std::uint64_t number) {
    connection.child.qp().post_recv(rdma::recv_wr(into.sge()).id(number));
    connection.client.qp().post_send(rdma::send_wr::send(from.sge()).id(number).signaled());
    for (rdma::cq_ref const cq : {connection.child.recv_cq(), connection.client.send_cq()}) {
        rdma::work_completion wc;
        REQUIRE(cq.wait_for({&wc, 1}, patience).size() == 1);
        INFO(to_string(wc.status()));
        CHECK(wc);
        CHECK(wc.wr_id() == number);
    }
}

/// What a forked child destroys, on its own or by leaving through exit(): nothing of the parent's.
void forked(device const& on) {
    // The child leaves with exit(), so that destructors of static objects run there too.
    struct everything {
        everything() = default;
        std::unique_ptr<pair> connection;
        rdma::pd domain;
        rdma::comp_channel channel;
        rdma::cq queue;
        cm_event event;
        rdma::mr from, into;
        std::array<std::byte, 32> memory{};
    };
    static everything all;
    all.connection = std::make_unique<pair>(on);
    all.domain = rdma::pd(all.connection->client.verbs());
    all.channel = rdma::comp_channel(all.connection->client.verbs());
    all.queue = rdma::cq(all.connection->client.verbs(), 4, all.channel);
    all.from = rdma::mr(all.connection->client.pd(), all.memory, rdma::access::none);
    all.into = rdma::mr(all.connection->child.pd(), all.memory, rdma::access::local_write);
    send_one(*all.connection, all.from, all.into, 1);

    for (bool const by_hand : {false, true}) {
        ::pid_t const child = ::fork();
        if (child == 0) {
            if (by_hand) {
                all = everything();
                ::_exit(0);
            }
            // Catch has the streams write into its own objects, some of them gone at exit.
            for (std::ostream* const stream : {&std::cout, &std::cerr, &std::clog})
                stream->rdbuf(nullptr);
            std::exit(0);
        }
        REQUIRE(child > 0);
        CHECK(wait_for(child) == 0);
        send_one(*all.connection, all.from, all.into, by_hand ? 3 : 2);
    }

    all.connection->child.disconnect();
    all.event = expect(all.connection->client_channel, cm_event_type::disconnected);
    ::pid_t const child = ::fork();
    if (child == 0) {
        all = everything(); // with an event held, which it must not ack
        ::_exit(0);
    }
    CHECK(wait_for(child) == 0);
    CHECK(all.connection->client_channel.stats().events_held == 1);
    all = everything();
}
GUEST_CASE("a forked child leaves its parent's objects alone", forked)

// ---- Changed users ---------------------------------------------------------------------------------------------

std::vector<std::string> failed_destroys; // filled by the hook, in one thread

void note_failed_destroy(rdma::diagnostic const& d) noexcept {
    if (d.kind == rdma::diagnostic_kind::destroy_failed)
        failed_destroys.push_back(std::string(d.function) + " " + std::to_string(d.error.value()));
}

/// Runs in a child, since a changed user is for good there; its exit code is the number of the first thing that is
/// wrong.
int drop_as_another_user(device const& on) {
    rdma::set_diagnostic_handler(&note_failed_destroy);
    {
        rdma::event_channel channel;
        cm_id listener = listen_on(channel, on.at(0));
        cm_id client = prepare(channel, listener.local_addr());
        rdma::pd const domain(client.verbs());
        std::array<std::byte, 64> memory{};
        rdma::mr const region(domain, memory, rdma::access::none);
        if (::seteuid(65534) != 0)
            return 1;
        std::error_code ec;
        cm_id refused(channel, rdma::port_space::tcp, ec);
        if (ec != std::errc::permission_denied)
            return 2;
        try {
            client.connect();
            return 3;
        } catch (rdma::error const& e) {
            // The message must say why a program that worked as root no longer does.
            if (e.code() != std::errc::permission_denied || !std::strstr(e.what(), "changed its user"))
                return 4;
        }
    }
    // Verbs commands still work; each id was told of once, and the PD's were not in the way.
    std::size_t ids = 0;
    for (std::string const& line : failed_destroys) {
        ids += line == "rdma_destroy_id " + std::to_string(EACCES);
        std::fprintf(stderr, "told: %s\n", line.c_str());
    }
    return ids == 2 && failed_destroys.size() == 2 ? 0 : 5;
}

void another_user(device const& on) {
    REQUIRE(::geteuid() == 0);
    ::pid_t const child = ::fork();
    if (child == 0) {
        int code = 100;
        try {
            code = drop_as_another_user(on);
        } catch (std::exception const& e) {
            std::fprintf(stderr, "%s\n", e.what());
        }
        ::_exit(code);
    }
    CHECK(wait_for(child) == 0);
    CHECK(resources::now().count(child) == 0); // the kernel cleans up after it
}
GUEST_CASE("everything dropped after seteuid", another_user)

// ---- Descriptors -----------------------------------------------------------------------------------------------

std::set<int> open_descriptors() {
    std::set<int> all;
    for (auto const& entry : std::filesystem::directory_iterator("/proc/self/fd"))
        all.insert(std::stoi(entry.path().filename().string()));
    std::set<int> real;
    for (int const fd : all) // without the one that listed them
        if (::fcntl(fd, F_GETFD) >= 0)
            real.insert(fd);
    return real;
}

void close_on_exec(device const& on) {
    std::set<int> const before = open_descriptors();
    pair connection(on);
    rdma::comp_channel const channel(connection.client.verbs());
    rdma::cq const queue(connection.client.verbs(), 4, channel);
    rdma::work_completion wc;
    CHECK(queue.wait_for({&wc, 1}, std::chrono::milliseconds(1)).empty()); // makes the eventfd of a wait
    CHECK_FALSE(connection.client_channel.get_for(std::chrono::milliseconds(1)));
    bool got = true;
    std::jthread stopped([&](std::stop_token stop) { got = connection.server_channel.get(stop).has_value(); });
    stopped.request_stop();
    stopped.join();
    CHECK_FALSE(got);

    std::set<int> const ours = {connection.client_channel.fd(),
                                connection.server_channel.fd(),
                                channel.fd(),
                                connection.client.send_cq_channel().fd(),
                                connection.client.recv_cq_channel().fd(),
                                connection.client.verbs().native_handle()->async_fd};
    std::size_t found = 0;
    for (int const fd : open_descriptors()) {
        if (before.contains(fd) && !ours.contains(fd)) // librdmacm may have opened the device long before
            continue;
        found += ours.contains(fd);
        std::error_code ec;
        INFO("fd " << fd << ": " << std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(fd), ec));
        CHECK((::fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
    }
    CHECK(found == ours.size());
}
GUEST_CASE("every descriptor is close-on-exec", close_on_exec)

} // namespace
