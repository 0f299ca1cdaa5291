// SPDX-License-Identifier: MIT
/// @file
/// What the tests in the guest share: a server, a client, and what the kernel says is left.
#pragma once

#include "both/support.hpp"

#include <array>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <exception>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

namespace guest {

using both::carrying;
using both::device;
using both::patience;
using rdma::cm_event;
using rdma::cm_event_type;
using rdma::cm_id;

/// What this process has in the kernel of one kind, as `rdma resource show` tells; `rdma` runs once for all of them.
struct resources {
    std::string text;

    static resources now() {
        // Without a shell, since starting a program takes an emulated machine a tenth of a second.
        std::string_view const questions = "resource show cm_id\nresource show qp\nresource show mr\nresource show pd\n"
                                           "resource show cq\n";
        int const input = ::memfd_create("questions", MFD_CLOEXEC);
        int ends[2] = {-1, -1};
        if (input < 0 || ::write(input, questions.data(), questions.size()) < 0 || ::lseek(input, 0, SEEK_SET) != 0 ||
            ::pipe2(ends, O_CLOEXEC) != 0)
            throw std::runtime_error("no memory file, or no pipe");
        posix_spawn_file_actions_t actions;
        ::posix_spawn_file_actions_init(&actions);
        ::posix_spawn_file_actions_adddup2(&actions, input, STDIN_FILENO);
        ::posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
        ::posix_spawn_file_actions_adddup2(&actions, ends[1], STDERR_FILENO);
        std::array<std::string, 4> words{"rdma", "-j", "-b", "-"};
        std::array<char*, 5> argv{words[0].data(), words[1].data(), words[2].data(), words[3].data(), nullptr};
        ::pid_t child = -1;
        int const failed = ::posix_spawnp(&child, "rdma", &actions, nullptr, argv.data(), environ);
        ::posix_spawn_file_actions_destroy(&actions);
        ::close(input);
        ::close(ends[1]);
        resources r;
        std::array<char, 4096> part;
        for (::ssize_t n = 0; failed == 0 && (n = ::read(ends[0], part.data(), part.size())) != 0;)
            if (n > 0)
                r.text.append(part.data(), static_cast<std::size_t>(n));
        ::close(ends[0]);
        if (failed != 0 || ::waitpid(child, nullptr, 0) != child)
            throw std::runtime_error("rdma was not started");
        return r;
    }

    /// How many of them belong to a process.
    std::size_t count(::pid_t pid = ::getpid()) const {
        std::string const key = "\"pid\":" + std::to_string(pid);
        std::size_t n = 0;
        for (auto at = text.find(key); at != std::string::npos; at = text.find(key, at + key.size()))
            if (at + key.size() == text.size() || text[at + key.size()] < '0' || text[at + key.size()] > '9')
                ++n;
        return n;
    }
};

/// Around a case: a watchdog, and at its end nothing of this process may be left in the kernel.
class clean_kernel {
public:
    explicit clean_kernel(std::chrono::seconds limit) : watch_(limit) {}
    clean_kernel(clean_kernel const&) = delete;
    clean_kernel& operator=(clean_kernel const&) = delete;
    ~clean_kernel() {
        if (std::uncaught_exceptions() > exceptions_)
            return;
        resources const left = resources::now();
        INFO(left.text);
        CHECK(left.count() == 0);
    }

private:
    int exceptions_ = std::uncaught_exceptions();
    both::watchdog watch_;
};

inline void check_balance(rdma::event_channel const& channel) {
    rdma::channel_stats const stats = channel.stats();
    CHECK(stats.events_got == stats.events_acked);
    CHECK(stats.events_held == 0);
    CHECK(stats.ids_live == 0);
    CHECK(stats.ids_awaiting_ack == 0);
}

/// Waits for the next event, which must be of this type.
inline cm_event expect(rdma::event_channel const& channel, cm_event_type type) {
    std::optional<cm_event> event = channel.get_for(patience);
    if (!event)
        throw std::runtime_error("no event came instead of " + to_string(type));
    if (event->type() != type)
        throw std::runtime_error(to_string(*event) + " came instead of " + to_string(type));
    return std::move(*event);
}

inline cm_id listen_on(rdma::event_channel const& channel, rdma::address const& local, int backlog = 0) {
    cm_id listener(channel, rdma::port_space::tcp);
    listener.bind(local);
    listener.listen(backlog);
    return listener;
}

/// An id with its route known, without a QP.
inline cm_id resolve(rdma::event_channel const& channel, rdma::address const& server) {
    cm_id id(channel, rdma::port_space::tcp);
    id.resolve_addr(server, std::chrono::seconds(10));
    expect(channel, cm_event_type::addr_resolved).ack();
    id.resolve_route(std::chrono::seconds(10));
    expect(channel, cm_event_type::route_resolved).ack();
    return id;
}

/// An id with a QP, that can connect.
inline cm_id prepare(rdma::event_channel const& channel, rdma::address const& server) {
    cm_id id = resolve(channel, server);
    id.create_qp({});
    return id;
}

/// A connection made the long way round, on one thread; each end has its own channel.
struct pair {
    explicit pair(device const& on) : pair(on.at(0)) {}
    explicit pair(rdma::address const& local) : listener(listen_on(server_channel, local)) { connect(); }

    /// Declared in the order that is wrong in C.
    cm_id client;
    cm_id child;
    rdma::event_channel client_channel;
    rdma::event_channel server_channel;
    cm_id listener;

    void connect() {
        client = prepare(client_channel, listener.local_addr());
        client.connect();
        child = expect(server_channel, cm_event_type::connect_request).take_id();
        child.create_qp({});
        child.accept();
        expect(client_channel, cm_event_type::established).ack();
        expect(server_channel, cm_event_type::established).ack();
    }
    void drop_ids() {
        for (cm_id* const id : {&client, &child, &listener})
            *id = cm_id();
    }
};

/// Accepts on a thread of its own, and erases each connection inside the handler of its own DISCONNECTED event.
class server {
public:
    struct counters {
        std::atomic<int> requests{0}, accepted{0}, established{0}, disconnected{0}, untouched{0}, failed{0};
    };

    /// @param drop_every each so many-th request is dropped untouched; 0: none
    explicit server(device const& on, int drop_every = 0, int backlog = 0)
        : listener_(listen_on(channel_, on.at(0), backlog)), address_(listener_.local_addr()), drop_every_(drop_every),
          thread_([this](std::stop_token stop) { serve(stop); }) {}
    server(server const&) = delete;
    server& operator=(server const&) = delete;
    ~server() { stop(); }

    rdma::address const& address() const { return address_; }
    counters const& count() const { return counters_; }

    /// Ends the thread, drops all ids and checks that the books balance.
    void stop() {
        if (!thread_.joinable())
            return;
        thread_.request_stop();
        thread_.join();
        sessions_.clear();
        listener_ = cm_id();
        check_balance(channel_);
    }

private:
    void serve(std::stop_token const& stop) {
        for (cm_event event : channel_.events(stop)) {
            switch (event.type()) {
            case cm_event_type::connect_request: {
                int const number = ++counters_.requests;
                if (drop_every_ != 0 && number % drop_every_ == 0) {
                    ++counters_.untouched;
                    break;
                }
                cm_id id = event.take_id();
                std::error_code ec;
                id.create_qp({}, ec);
                if (!ec)
                    id.accept(ec);
                if (ec) { // the client may be gone again
                    ++counters_.failed;
                    break;
                }
                ++counters_.accepted;
                rdma::cm_id_ref const key = id;
                sessions_.emplace(key, std::move(id));
                break;
            }
            case cm_event_type::established: ++counters_.established; break;
            case cm_event_type::disconnected:
                ++counters_.disconnected;
                sessions_.erase(event.id());
                break;
            default: break;
            }
        }
    }

    rdma::event_channel channel_;
    cm_id listener_;
    rdma::address address_;
    int drop_every_;
    counters counters_;
    std::unordered_map<rdma::cm_id_ref, cm_id> sessions_;
    std::jthread thread_; // the last member: it uses the others
};

/// Runs a case on a device, under a watchdog. Few cases need a longer limit: 30 s are plenty, and a guest has no real
/// time.
inline void on_device(char const* name, void (*run)(device const&),
                      std::chrono::seconds limit = std::chrono::seconds(30)) {
    device const found = both::find_device(name);
    if (!found)
        RDMACPP_SKIP("there is no device " + std::string(name));
    std::signal(SIGPIPE, SIG_IGN); // siw raises it in ibv_post_send when the peer has just gone
    clean_kernel const around(limit);
    run(found);
}

/// A case that is written once, for both devices: `GUEST_CASE("A5 private data", function)` makes two test cases.
#define GUEST_CASE(name, ...)                                                    \
    TEST_CASE(name ", rxe", "[rxe]") { ::guest::on_device("rxe", __VA_ARGS__); } \
    TEST_CASE(name ", siw", "[siw]") { ::guest::on_device("siw", __VA_ARGS__); }

} // namespace guest
