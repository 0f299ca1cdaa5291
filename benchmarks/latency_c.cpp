// SPDX-License-Identifier: MIT
// Round trips, in C. Its twin is latency_cpp.cpp.
#include "pair_c.hpp"

namespace {

/// A message there and one back, each into a receive. Polling, one thread does both ends: on a software device the
/// message has arrived when its post returns, and two threads would only wait for each other. With events there are
/// two, since one would never wait.
class send_latency : public bench::benchmark {
public:
    explicit send_latency(bench::options const& wanted) {
        ::open(pair_, wanted);
        post_receive(pair_.server);
        if (wanted.event)
            server_ = std::make_unique<bench::other_end>([this](unsigned times) { answer(times); });
    }
    ~send_latency() override {
        server_.reset();
        ::close(pair_);
    }

    void run(unsigned times, bench::phases&) override {
        if (server_)
            server_->start(times);
        end& client = pair_.client;
        for (unsigned i = 0; i != times; ++i) {
            post_receive(client);
            post(client, IBV_WR_SEND, pair_.server);
            if (!server_)
                answer(1);
            complete(client, 2);
        }
        if (server_)
            server_->finish();
    }

private:
    void answer(unsigned times) {
        end& server = pair_.server;
        for (unsigned i = 0; i != times; ++i) {
            complete(server, 1 + sent_);
            post_receive(server);
            post(server, IBV_WR_SEND, pair_.client);
            sent_ = 1; // completes at some time before the next message
        }
    }

    pair pair_{};
    unsigned sent_ = 0;
    std::unique_ptr<bench::other_end> server_;
};

/// A write there and one back, which no completion tells of: the peer looks at the last byte.
class write_latency : public bench::benchmark {
public:
    explicit write_latency(bench::options const& wanted) { ::open(pair_, wanted); }
    ~write_latency() override { ::close(pair_); }

    void run(unsigned times, bench::phases&) override {
        for (unsigned i = 0; i != times; ++i) {
            ++round_;
            put(pair_.client, pair_.server);
            put(pair_.server, pair_.client);
            complete(pair_.client, 1);
            complete(pair_.server, 1);
        }
    }

private:
    void put(end& from, end const& to) {
        from.memory[from.size - 1] = round_;
        post(from, IBV_WR_RDMA_WRITE, to);
        while (bench::volatile_byte(to.memory + 2 * to.size - 1) != round_)
            bench::relax();
    }

    pair pair_{};
    unsigned char round_ = 0;
};

/// A read, or a write, until its own completion.
class own_completion : public bench::benchmark {
public:
    own_completion(bench::options const& wanted, ibv_wr_opcode opcode) : opcode_(opcode) { ::open(pair_, wanted); }
    ~own_completion() override { ::close(pair_); }

    void run(unsigned times, bench::phases&) override {
        end& client = pair_.client;
        for (unsigned i = 0; i != times; ++i) {
            if (!client.event) {
                post(client, opcode_, pair_.server);
                complete(client, 1);
                continue;
            }
            if (::ibv_req_notify_cq(client.cq, 0) != 0) // before it can complete, so that there is an event
                bench::fail("ibv_req_notify_cq");
            post(client, opcode_, pair_.server);
            get_event(client);
            ibv_wc done;
            if (poll_cq(client, &done, 1) != 1 || done.status != IBV_WC_SUCCESS)
                bench::fail("completion");
        }
    }

private:
    pair pair_{};
    ibv_wr_opcode opcode_;
};

} // namespace

std::unique_ptr<bench::benchmark> bench::make_latency(options const& wanted) {
    if (wanted.test == "send")
        return std::make_unique<send_latency>(wanted);
    if (wanted.test == "read")
        return std::make_unique<own_completion>(wanted, IBV_WR_RDMA_READ);
    if (wanted.event)
        return std::make_unique<own_completion>(wanted, IBV_WR_RDMA_WRITE);
    return std::make_unique<write_latency>(wanted);
}
