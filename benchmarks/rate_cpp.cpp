// SPDX-License-Identifier: MIT
// Messages as fast as they go, with the library: chains of requests, two of them in flight. Its twin is rate_c.cpp.
#include "pair_cpp.hpp"

namespace {

/// One thread does both ends, as in latency_cpp.cpp. The requests are made once; when they are posted they get a number
/// each, and are linked.
class rate : public bench::benchmark {
public:
    explicit rate(bench::options const& wanted)
        : pair_(wanted), sends_(wanted.test == "send_rate"),
          requests_(bench::chain_length, sends_ ? rdma::send_wr::send(pair_.client.outgoing())
                                                : rdma::send_wr::write(pair_.client.outgoing(), pair_.server.target())),
          receives_(bench::chain_length, rdma::recv_wr(pair_.server.incoming())) {
        requests_.back().signaled(); // when it is done, all are
        if (sends_)
            for (unsigned i = 0; i != 2; ++i)
                post_receives();
    }

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
        for (rdma::send_wr& request : requests_)
            request.id(number_++);
        pair_.client.id.qp().post_send(requests_);
    }

    void post_receives() {
        for (rdma::recv_wr& receive : receives_)
            receive.id(number_++);
        pair_.server.id.qp().post_recv(receives_);
    }

    void finish_chain() {
        if (sends_) {
            pair_.server.complete(bench::chain_length);
            post_receives();
        }
        pair_.client.complete(1);
    }

    pair pair_;
    bool sends_;
    std::uint64_t number_ = 0;
    std::vector<rdma::send_wr> requests_;
    std::vector<rdma::recv_wr> receives_;
};

} // namespace

std::unique_ptr<bench::benchmark> bench::make_rate(options const& wanted) { return std::make_unique<rate>(wanted); }
