// SPDX-License-Identifier: MIT
// A device goes away under live ids. Each case makes a device of its own for that, and leaves the others alone.
#include "guest/support.hpp"

#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <poll.h>
#include <sys/wait.h>

namespace {

using namespace guest;
using clock = std::chrono::steady_clock;

/// A command that runs beside the test; its output, and its exit code once it has ended.
class command {
public:
    explicit command(std::string const& line) : pipe_(::popen((line + " 2>&1").c_str(), "re")) {
        if (!pipe_)
            throw std::runtime_error("popen failed");
    }
    command(command const&) = delete;
    command& operator=(command const&) = delete;
    ~command() {
        if (pipe_)
            ::pclose(pipe_);
    }

    std::string const& output() const { return output_; }

    /// @return the exit code; nothing if it still runs after that time
    std::optional<int> wait_for(std::chrono::milliseconds limit) {
        auto const until = clock::now() + limit;
        while (pipe_) {
            auto const left = std::chrono::ceil<std::chrono::milliseconds>(until - clock::now()).count();
            pollfd watched{::fileno(pipe_), POLLIN, 0};
            if (left < 0 || ::poll(&watched, 1, static_cast<int>(left)) == 0)
                return std::nullopt;
            std::array<char, 512> part;
            if (ssize_t const n = ::read(watched.fd, part.data(), part.size()); n > 0)
                output_.append(part.data(), static_cast<std::size_t>(n));
            else
                status_ = ::pclose(std::exchange(pipe_, nullptr));
        }
        return WIFEXITED(status_) ? WEXITSTATUS(status_) : 128;
    }

private:
    std::FILE* pipe_;
    int status_ = 0;
    std::string output_;
};

/// A device of this type with an interface and an address of its own, gone at the end.
class spare_device {
public:
    explicit spare_device(std::string const& type)
        : on{type, "10.77.9.1", type == "siw"}, name("spare_" + type),
          link_("rdma link add " + name + " type " + type + " netdev spare0") {
        run("printf 'link add spare0 type dummy\nlink set spare0 up\naddr add 10.77.9.1/24 dev spare0\n' | ip -batch - "
            "&& exec " +
            link_);
    }
    spare_device(spare_device const&) = delete;
    spare_device& operator=(spare_device const&) = delete;
    ~spare_device() { run("exec ip link delete spare0"); } // if the device is still there, it goes with its interface

    /// Why it could not be made; empty if it was.
    std::string const& reason() const { return reason_; }

    /// Makes it once more, after its removal.
    void make_again() const {
        command c("exec " + link_);
        REQUIRE(c.wait_for(patience) == 0);
    }

    device const on;
    std::string const name;

private:
    void run(std::string const& line) {
        command c(line);
        if (c.wait_for(patience) != 0 && reason_.empty())
            reason_ = line + ": " + c.output();
    }

    std::string link_, reason_;
};

/// `rdma link delete` under whatever is alive: it returns once this process has let go of the device, which it does by
/// itself.
class removal {
public:
    explicit removal(spare_device const& spare) : command_("exec rdma link delete " + spare.name) {}
    removal(removal const&) = delete;
    removal& operator=(removal const&) = delete;
    ~removal() {
        std::optional<int> const code = command_.wait_for(patience);
        INFO(command_.output());
        CHECK(code == 0);
        if (!code) // so that the case fails, and does not hang
            let_go();
    }

private:
    static void let_go() {
        int n = 0;
        if (ibv_context** const devices = ::rdma_get_devices(&n))
            ::rdma_free_devices(devices);
    }

    command command_;
};

/// The kernel tells its clients of a removal in the reverse order in which they came: where rdma_cm came first,
/// ib_uverbs waits for this process before rdma_cm could tell it why. Without modules the order is right.
bool is_told_of_removals() {
    std::ifstream modules("/proc/modules"); // the newest first
    for (std::string line; std::getline(modules, line);) {
        if (line.starts_with("rdma_cm "))
            return true;
        if (line.starts_with("ib_uverbs "))
            return false;
    }
    return true;
}

std::atomic<int> failed_destroys{0};

/// Runs a case on a device that is only there for it, and in which nothing may fail to be destroyed.
void on_spare_device(std::string const& type, void (*run)(spare_device const&)) {
    if (!both::find_device(type))
        RDMACPP_SKIP("there is no device " + type);
    bool const own_guest = std::getenv("RDMACPP_GUEST") != nullptr; // which loads the modules in the right order
    bool const is_told = is_told_of_removals();
    REQUIRE((is_told || !own_guest));
    if (!is_told)
        RDMACPP_SKIP("rdma_cm was loaded before ib_uverbs: the kernel cannot tell of a removal");
    clean_kernel const around(std::chrono::seconds(60));
    spare_device const spare(type);
    INFO(spare.reason());
    REQUIRE((spare.reason().empty() || !own_guest));
    if (!spare.reason().empty())
        RDMACPP_SKIP("a device cannot be added here: " + spare.reason());
    failed_destroys = 0;
    auto const before = rdma::set_diagnostic_handler([](rdma::diagnostic const& d) noexcept {
        if (d.kind == rdma::diagnostic_kind::destroy_failed) {
            ++failed_destroys;
            std::fprintf(stderr, "%s: error %d\n", d.function, d.error.value());
        }
    });
    run(spare);
    rdma::set_diagnostic_handler(before);
    CHECK(failed_destroys == 0);
}

#define SPARE_DEVICE_CASE(name, ...)                                          \
    TEST_CASE(name ", rxe", "[rxe]") { on_spare_device("rxe", __VA_ARGS__); } \
    TEST_CASE(name ", siw", "[siw]") { on_spare_device("siw", __VA_ARGS__); }

/// A client, its server and the listener: each is told, and each is dropped by the handler of its own event.
void everybody_is_told(spare_device const& spare) {
    pair ends(spare.on);
    std::array<std::byte, 64> memory{};
    rdma::mr region(ends.client.pd(), memory, rdma::access::local_write);
    ends.client.qp().post_recv(rdma::recv_wr(region.sge()));
    {
        removal const removing(spare);
        for (auto const& [channel, expected] : {std::pair(&ends.client_channel, 1), std::pair(&ends.server_channel, 2)})
            for (int told = 0; told != expected;) {
                std::optional<cm_event> event = channel->get_for(patience);
                REQUIRE(event);
                INFO(to_string(*event));
                if (event->type() == cm_event_type::disconnected) // the other end went first
                    continue;
                REQUIRE(event->type() == cm_event_type::device_removal);
                CHECK(event->error() == std::error_code());
                for (cm_id* const id : {&ends.client, &ends.child, &ends.listener})
                    if (rdma::cm_id_ref(*id) == event->id()) {
                        ++told;
                        std::error_code ec;
                        id->disconnect(ec);
                        CHECK((!ec || ec == std::errc::no_such_device_or_address || ec == std::errc::invalid_argument));
                        *id = cm_id();
                    }
            }
        for (cm_id const* const id : {&ends.client, &ends.child, &ends.listener})
            CHECK_FALSE(*id);
        region = rdma::mr(); // it kept the client's C id, and with that the device
    }
    // The channels are as good as before.
    check_balance(ends.client_channel);
    check_balance(ends.server_channel);
}
SPARE_DEVICE_CASE("device removed under a client, its server and the listener", everybody_is_told)

/// The events outlive the ids, and only the last ack lets go of the device.
void events_are_kept(spare_device const& spare) {
    pair ends(spare.on);
    std::vector<cm_event> kept;
    {
        removal const removing(spare);
        kept.push_back(expect(ends.client_channel, cm_event_type::device_removal));
        for (bool child = false, listener = false; !child || !listener;) {
            std::optional<cm_event> event = ends.server_channel.get_for(patience);
            REQUIRE(event);
            bool const removed = event->type() == cm_event_type::device_removal;
            child |= removed && event->id() == ends.child;
            listener |= removed && event->id() == ends.listener;
            kept.push_back(std::move(*event));
        }
        ends.drop_ids();
        kept.clear();
    }
    check_balance(ends.client_channel);
    check_balance(ends.server_channel);
}
SPARE_DEVICE_CASE("device removed, its events kept longer than the ids", events_are_kept)

/// A wildcard listener has no device and is not told, nor is an id that is not accepted yet: it is to be dropped. The
/// listener goes on, on the devices that are left.
void some_are_not_told(spare_device const& spare) {
    rdma::event_channel server_channel, client_channel;
    cm_id listener = listen_on(server_channel, rdma::address::any_v4(0));
    int const port = listener.local_addr().port();
    cm_id client = prepare(client_channel, spare.on.at(port));
    client.connect();
    cm_event request = expect(server_channel, cm_event_type::connect_request);
    cm_id child = request.take_id();
    {
        removal const removing(spare);
        expect(client_channel, cm_event_type::device_removal).ack();
        CHECK_FALSE(server_channel.try_get());
        client = cm_id();
        std::error_code ec; // the kernel may not have come to it yet, so that it may even be accepted
        child.create_qp({}, ec);
        if (!ec)
            child.accept(ec);
        child = cm_id();
        request.ack();
    }
    cm_id another = prepare(client_channel, both::find_device(spare.on.name).at(port));
    another.connect();
    expect(server_channel, cm_event_type::connect_request).ack();
    expect(client_channel, cm_event_type::rejected).ack();
}
SPARE_DEVICE_CASE("device removed under a wildcard listener and a request", some_are_not_told)

/// A member of a group, whose address handle and region outlive it.
void member_is_told(spare_device const& spare) {
    rdma::event_channel channel;
    cm_id id(channel, rdma::port_space::udp);
    id.bind(spare.on.at(0));
    id.create_qp({});
    std::array<std::byte, 64> memory{};
    rdma::mr region = id.reg_msgs(memory);
    rdma::membership joined = id.join_multicast(rdma::address("230.77.9.1", 0));
    rdma::ah group(id.pd(), expect(channel, cm_event_type::multicast_join));
    {
        removal const removing(spare);
        cm_event const event = expect(channel, cm_event_type::device_removal);
        id = cm_id();
        joined = rdma::membership();
        group = rdma::ah();
        region = rdma::mr();
    }
    check_balance(channel);
}
TEST_CASE("device removed under a member of a group, rxe", "[rxe]") { on_spare_device("rxe", member_is_told); }

/// One of the same name comes, and goes again. Of the first nobody reads the events; it goes all the same.
void removed_twice(spare_device const& spare) {
    {
        pair ends(spare.on);
        {
            removal const removing(spare);
            REQUIRE(both::is_readable(ends.client_channel, patience)); // by then it is under way
            ends.drop_ids();
        }
        for (rdma::event_channel const* const channel : {&ends.client_channel, &ends.server_channel}) {
            CHECK_FALSE(channel->try_get());
            check_balance(*channel);
        }
    }
    spare.make_again();
    pair ends(spare.on);
    removal const removing(spare);
    expect(ends.client_channel, cm_event_type::device_removal).ack();
    ends.drop_ids();
}
SPARE_DEVICE_CASE("device removed twice", removed_twice)

} // namespace
