// SPDX-License-Identifier: MIT
// Round trips, with the library. Its twin is latency_c.cpp.
#include "pair_cpp.hpp"

namespace {

/// A message there and one back, each into a receive. Polling, one thread does both ends: on a software device the
/// message has arrived when its post returns, and two threads would only wait for each other. With events there are
/// two, since one would never wait.
class send_latency : public bench::benchmark {
public:
    explicit send_latency(bench::options const& wanted) : pair_(wanted) {
        pair_.server.post_receive();
        if (wanted.event)
            server_ = std::make_unique<bench::other_end>([this](unsigned times) { answer(times); });
    }

    void run(unsigned times, bench::phases&) override {
        if (server_)
            server_->start(times);
        end& client = pair_.client;
        for (unsigned i = 0; i != times; ++i) {
            client.post_receive();
            client.id.qp().post_send(rdma::send_wr::send(client.outgoing()).signaled());
            if (!server_)
                answer(1);
            client.complete(2);
        }
        if (server_)
            server_->finish();
    }

private:
    void answer(unsigned times) {
        end& server = pair_.server;
        for (unsigned i = 0; i != times; ++i) {
            server.complete(1 + sent_);
            server.post_receive();
            server.id.qp().post_send(rdma::send_wr::send(server.outgoing()).signaled());
            sent_ = 1; // completes at some time before the next message
        }
    }

    pair pair_;
    unsigned sent_ = 0;
    std::unique_ptr<bench::other_end> server_;
};

/// A write there and one back, which no completion tells of: the peer looks at the last byte.
class write_latency : public bench::benchmark {
public:
    explicit write_latency(bench::options const& wanted) : pair_(wanted) {}

    void run(unsigned times, bench::phases&) override {
        for (unsigned i = 0; i != times; ++i) {
            ++round_;
            put(pair_.client, pair_.server);
            put(pair_.server, pair_.client);
            pair_.client.complete(1);
            pair_.server.complete(1);
        }
    }

private:
    void put(end& from, end const& to) {
        from.memory[from.size - 1] = std::byte{round_};
        from.id.qp().post_send(rdma::send_wr::write(from.outgoing(), to.target()).signaled());
        while (bench::volatile_byte(to.bytes() + 2 * to.size - 1) != round_)
            bench::relax();
    }

    pair pair_;
    unsigned char round_ = 0;
};

/// A read, or a write, until its own completion.
class own_completion : public bench::benchmark {
public:
    explicit own_completion(bench::options const& wanted) : pair_(wanted), reads_(wanted.test == "read") {}

    void run(unsigned times, bench::phases&) override {
        end& client = pair_.client;
        for (unsigned i = 0; i != times; ++i) {
            if (!client.event) {
                post();
                client.complete(1);
                continue;
            }
            client.cq.req_notify(); // before it can complete, so that there is an event
            post();
            client.channel.get().ack();
            rdma::work_completion done;
            if (client.cq.poll({&done, 1}).empty() || !done)
                throw std::runtime_error(to_string(done.status()));
        }
    }

private:
    void post() {
        end const& client = pair_.client;
        rdma::remote_memory const target = pair_.server.target();
        client.id.qp().post_send(
            (reads_ ? rdma::send_wr::read(client.outgoing(), target) : rdma::send_wr::write(client.outgoing(), target))
                .signaled());
    }

    pair pair_;
    bool reads_;
};

} // namespace

std::unique_ptr<bench::benchmark> bench::make_latency(options const& wanted) {
    if (wanted.test == "send")
        return std::make_unique<send_latency>(wanted);
    if (wanted.test == "read" || wanted.event)
        return std::make_unique<own_completion>(wanted);
    return std::make_unique<write_latency>(wanted);
}
