// SPDX-License-Identifier: MIT
// Messages as fast as they go, in C: chains of requests, two of them in flight. Its twin is rate_cpp.cpp.
#include "pair_c.hpp"

namespace {

/// One thread does both ends, as in latency_c.cpp. The requests are made once; when they are posted they get a number
/// each, and are linked.
class rate : public bench::benchmark {
public:
    explicit rate(bench::options const& wanted) : sends_(wanted.test == "send_rate") {
        ::open(pair_, wanted);
        outgoing_ = outgoing(pair_.client);
        incoming_ = incoming(pair_.server);
        for (unsigned i = 0; i != bench::chain_length; ++i) {
            requests_[i].sg_list = &outgoing_;
            requests_[i].num_sge = 1;
            requests_[i].opcode = sends_ ? IBV_WR_SEND : IBV_WR_RDMA_WRITE;
            requests_[i].wr.rdma.remote_addr = incoming_.addr;
            requests_[i].wr.rdma.rkey = pair_.server.mr->rkey;
            receives_[i].sg_list = &incoming_;
            receives_[i].num_sge = 1;
        }
        requests_[bench::chain_length - 1].send_flags = IBV_SEND_SIGNALED; // when it is done, all are
        if (sends_)
            for (unsigned i = 0; i != 2; ++i)
                post_receives();
    }
    ~rate() override { ::close(pair_); }

    void run(unsigned times, bench::phases&) override {
        unsigned chains = times / bench::chain_length;
        post_chain();
        while (--chains != 0) {
            post_chain();
            finish_chain();
        }
        finish_chain();
    }

private:
    void post_chain() {
        ibv_send_wr* next = nullptr;
        for (unsigned i = bench::chain_length; i-- != 0;) {
            requests_[i].wr_id = number_++;
            requests_[i].next = next;
            next = &requests_[i];
        }
        ibv_send_wr* bad;
        if (int const error = ::ibv_post_send(pair_.client.id->qp, requests_, &bad); error != 0) {
            errno = error;
            bench::fail("ibv_post_send");
        }
    }

    void post_receives() {
        ibv_recv_wr* next = nullptr;
        for (unsigned i = bench::chain_length; i-- != 0;) {
            receives_[i].wr_id = number_++;
            receives_[i].next = next;
            next = &receives_[i];
        }
        ibv_recv_wr* bad;
        if (int const error = ::ibv_post_recv(pair_.server.id->qp, receives_, &bad); error != 0) {
            errno = error;
            bench::fail("ibv_post_recv");
        }
    }

    void finish_chain() {
        if (sends_) {
            complete(pair_.server, bench::chain_length);
            post_receives();
        }
        complete(pair_.client, 1);
    }

    pair pair_{};
    bool sends_;
    std::uint64_t number_ = 0;
    ibv_sge outgoing_, incoming_;
    ibv_send_wr requests_[bench::chain_length]{};
    ibv_recv_wr receives_[bench::chain_length]{};
};

} // namespace

std::unique_ptr<bench::benchmark> bench::make_rate(options const& wanted) { return std::make_unique<rate>(wanted); }
