// SPDX-License-Identifier: MIT
// Datagrams: the client looks up the server's queue pair by its address, sends pings to it, and waits for a pong for
// each. The other end may be the udaddy of rdma-core, whose options it has; like there, the server must be told of how
// many paths and pings.
#include <rdmacpp/rdmacpp.hpp>

#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <list>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <arpa/inet.h>
#include <unistd.h>

constexpr char const* usage = R"(ud_ping [-b ADDRESS] [-c PATHS] [-C PINGS] [-S BYTES]
ud_ping -s SERVER [-b ADDRESS] [-c PATHS] [-C PINGS] [-S BYTES]

  -s SERVER   be the client of this server
  -b ADDRESS  the local address to use (the server's default: 0.0.0.0)
  -c PATHS    how many pairs of queue pairs (1)
  -C PINGS    over each path (10)
  -S BYTES    of each ping; no more than the network's MTU (100)
)";

constexpr int port = 7174;
constexpr auto patience = std::chrono::seconds(10); // for each ping

struct options {
    rdma::address server; ///< To ping, or none: then this is the server.
    rdma::address local;
    std::uint32_t paths = 1, pings = 10, size = 100;

    options(int argc, char** argv) {
        char const *host = nullptr, *from = nullptr;
        for (int found; (found = ::getopt(argc, argv, "s:b:c:C:S:")) != -1;) {
            switch (found) {
            case 's': host = optarg; break;
            case 'b': from = optarg; break;
            case 'c': paths = number(optarg); break;
            case 'C': pings = number(optarg); break;
            case 'S': size = number(optarg); break;
            default: throw std::invalid_argument(usage);
            }
        }
        if (host)
            server = rdma::address(host, port);
        if (from || !host)
            local = rdma::address(from ? from : "0.0.0.0", host ? 0 : port);
    }

private:
    static std::uint32_t number(char const* text) {
        std::uint32_t value = 0;
        auto const [end, failed] = std::from_chars(text, text + std::strlen(text), value);
        if (failed != std::errc{} || *end != '\0' || value == 0)
            throw std::invalid_argument(std::string("not a positive number: ") + text);
        return value;
    }
};

/// A queue pair here, and the peer's.
class path {
public:
    /// The client's end. What ESTABLISHED tells is how to reach the server's queue pair: it is not connected to ours.
    explicit path(options const& wanted) : wanted_(wanted) {
        rdma::connect_report found;
        id_ = rdma::connect(
            {}, wanted.server,
            {.local = wanted.local, .port_space = rdma::port_space::udp, .qp = capacity(), .report = &found},
            [this](rdma::cm_id& id) { make_room(id); });
        peer_ = rdma::ah(id_.pd(), found.ud_param.ah_attr);
        peer_qp_ = found.ud_param.qp_num;
        qkey_ = found.ud_param.qkey;
    }

    /// The server's end. It does not know its client before a datagram comes.
    path(rdma::request request, options const& wanted)
        : wanted_(wanted), id_(request.accept({}, {.qp = capacity()}, [this](rdma::cm_id& id) { make_room(id); })) {}

    path(path&&) = delete; // the device knows where its memory is

    void send_pings() {
        std::snprintf(reinterpret_cast<char*>(memory_.data()), wanted_.size, "ping");
        for (std::uint32_t i = 0; i != wanted_.pings; ++i)
            send(region_.sge(0, wanted_.size));
    }

    void receive_pongs() {
        for (std::uint32_t i = 0; i != wanted_.pings; ++i) {
            rdma::work_completion const pong = receive(i);
            if (pong.success().src_qp() != peer_qp_)
                throw std::runtime_error("a datagram of QP " + std::to_string(pong.success().src_qp()));
        }
        std::printf("%u pongs of %u bytes from QP %u\n", wanted_.pings, wanted_.size, peer_qp_);
    }

    void answer_pings() {
        for (std::uint32_t i = 0; i != wanted_.pings; ++i) {
            rdma::work_completion const ping = receive(i);
            auto const at = static_cast<std::size_t>(ping.wr_id());
            if (!peer_) {
                peer_ = rdma::ah(id_.pd(), ping, std::span(memory_).subspan(at, space()), id_.port_num());
                peer_qp_ = ntohl(ping.success().imm_data().value());
            }
            send(region_.sge(at + rdma::grh_size, wanted_.size));
        }
        std::printf("%u pings of %u bytes from QP %u\n", wanted_.pings, wanted_.size, peer_qp_);
    }

private:
    rdma::qp_init_attr capacity() const { return {.cap = {.max_recv_wr = wanted_.pings}}; }

    /// What a datagram takes here: before its data comes where it came from.
    std::size_t space() const { return rdma::grh_size + wanted_.size; }

    /// Before the peer knows of this queue pair: a datagram that finds no receive is lost.
    void make_room(rdma::cm_id& id) {
        region_ = id.reg_msgs(memory_);
        for (std::size_t i = 1; i <= wanted_.pings; ++i)
            id.qp().post_recv(rdma::recv_wr(region_.sge(i * space(), space())).id(i * space()));
    }

    /// Sends a datagram. The number of our queue pair goes with it.
    void send(ibv_sge const& data) {
        id_.qp().post_send(
            rdma::send_wr::send(data).imm(htonl(id_.qp().qp_num())).to(peer_, peer_qp_, qkey_).signaled());
        rdma::work_completion sent;
        id_.send_cq().wait({&sent, 1});
        check(sent);
    }

    /// Waits for a datagram. @param already how many have come
    rdma::work_completion receive(std::uint32_t already) {
        rdma::work_completion got;
        if (id_.recv_cq().wait_for({&got, 1}, patience).empty())
            throw std::runtime_error("after " + std::to_string(already) + " datagrams no more came");
        check(got);
        if (got.success().byte_len() != space())
            throw std::runtime_error("a datagram of " + std::to_string(got.success().byte_len() - rdma::grh_size) +
                                     " bytes");
        return got;
    }

    static void check(rdma::work_completion const& done) {
        if (!done)
            throw std::runtime_error(to_string(done.status()));
    }

    options const& wanted_;
    std::vector<std::byte> memory_ = std::vector<std::byte>(space() * (1 + wanted_.pings)); // the first is sent
    rdma::mr region_;
    rdma::ah peer_;
    std::uint32_t peer_qp_ = 0;
    std::uint32_t qkey_ = RDMA_UDP_QKEY;
    rdma::cm_id id_; // the last: its QP goes first, before the memory
};

int main(int argc, char** argv) try {
    options const wanted(argc, argv);
    std::list<path> paths;
    if (wanted.server.port() != 0) {
        while (paths.size() != wanted.paths)
            paths.emplace_back(wanted);
        for (path& each : paths)
            each.send_pings();
        for (path& each : paths)
            each.receive_pongs();
    } else {
        rdma::acceptor acceptor(wanted.local, {.port_space = rdma::port_space::udp});
        std::printf("listening on %s\n", to_string(acceptor.local_addr()).c_str());
        for (rdma::request request : acceptor) {
            paths.emplace_back(std::move(request), wanted);
            if (paths.size() == wanted.paths)
                break;
        }
        for (path& each : paths)
            each.answer_pings();
    }
} catch (std::exception const& e) {
    std::fprintf(stderr, "ud_ping: %s\n", e.what());
    return 1;
}
