// SPDX-License-Identifier: MIT
// Many threads and one event channel: some make, connect and drop ids, another gets the events.
#include "guest/support.hpp"

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_map>
#include <vector>

namespace {

using namespace guest;

/// Where the thread that gets the events tells the threads that own the ids.
class switchboard {
public:
    /// What is told of one id.
    class line {
    public:
        void tell(cm_event_type type) {
            std::lock_guard const lock(mutex_);
            told_.push_back(type);
            changed_.notify_one();
        }
        /// The next event, or nothing if it takes too long.
        std::optional<cm_event_type> next() {
            std::unique_lock lock(mutex_);
            if (!changed_.wait_for(lock, patience, [this] { return read_ != told_.size(); }))
                return std::nullopt;
            return told_[read_++];
        }

    private:
        std::mutex mutex_;
        std::condition_variable changed_;
        std::vector<cm_event_type> told_;
        std::size_t read_ = 0;
    };

    void add(rdma::cm_id_ref id, line& told) {
        std::lock_guard const lock(mutex_);
        lines_[id] = &told;
    }
    /// Before the id is dropped: afterwards its address may be another's.
    void remove(rdma::cm_id_ref id) {
        std::lock_guard const lock(mutex_);
        lines_.erase(id);
    }
    void tell(cm_event const& event) {
        std::lock_guard const lock(mutex_);
        if (auto const found = lines_.find(event.id()); found != lines_.end())
            found->second->tell(event.type());
    }

private:
    std::mutex mutex_;
    std::unordered_map<rdma::cm_id_ref, line*> lines_;
};

/// How far a connection is taken before its id is dropped.
enum class fate { resolving, routed, connecting, established, disconnecting, fates };

/// @return false if something came that should not have come
bool one_connection(rdma::event_channel const& channel, switchboard& board, rdma::address const& server, fate until) {
    switchboard::line told; // outlives the id
    cm_id id(channel, rdma::port_space::tcp);
    struct registration {
        switchboard& board;
        rdma::cm_id_ref id;
        ~registration() { board.remove(id); }
    } const registered{board, id};
    board.add(id, told);

    id.resolve_addr(server, std::chrono::seconds(10));
    if (until == fate::resolving)
        return true;
    if (told.next() != cm_event_type::addr_resolved)
        return false;
    id.resolve_route(std::chrono::seconds(10));
    if (told.next() != cm_event_type::route_resolved)
        return false;
    id.create_qp({});
    if (until == fate::routed)
        return true;
    id.connect();
    if (until == fate::connecting)
        return true;
    if (told.next() != cm_event_type::established)
        return false;
    if (until == fate::established)
        return true;
    id.disconnect();
    return told.next() == cm_event_type::disconnected;
}

void four_and_one(device const& on) {
    constexpr int threads = 4, each = 125;
    server peer(on);
    rdma::event_channel channel;
    switchboard board;
    std::atomic<int> failures{0}, done{0};
    std::jthread getting([&](std::stop_token stop) {
        for (cm_event const& event : channel.events(stop))
            board.tell(event); // acked at the end of the turn, when its id may be gone
    });
    {
        std::vector<std::jthread> makers;
        for (int t = 0; t != threads; ++t)
            makers.emplace_back([&, t] {
                for (int i = 0; i != each; ++i) {
                    auto until = static_cast<fate>((i + t) % static_cast<int>(fate::fates));
                    if (on.iwarp && until == fate::connecting)
                        until = fate::established; // the kernel holds such a drop until the peer has answered
                    try {
                        if (!one_connection(channel, board, peer.address(), until))
                            ++failures;
                    } catch (rdma::error const& e) {
                        std::fprintf(stderr, "%s\n", e.what());
                        ++failures;
                    }
                    ++done;
                }
            });
    }
    getting.request_stop();
    getting.join();
    CHECK(done == threads * each);
    CHECK(failures == 0);
    check_balance(channel);
    peer.stop();
}
GUEST_CASE("500 ids of four threads, events got by a fifth", four_and_one, std::chrono::seconds(120))

} // namespace
