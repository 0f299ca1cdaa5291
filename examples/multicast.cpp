// SPDX-License-Identifier: MIT
// Joins a multicast group, and sends datagrams to it or receives them from it. The others of the group may be mckey of
// rdma-core, whose options it has. The group's address must be routed to an RDMA device.
#include <rdmacpp/rdmacpp.hpp>

#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <arpa/inet.h>
#include <unistd.h>

constexpr char const* usage = R"(multicast -m GROUP [-s] [-o] [-b ADDRESS] [-C MESSAGES] [-S BYTES]

  -m GROUP     the group's address, such as 239.1.1.1
  -s           send; otherwise receive
  -o           send, and be no member that receives
  -b ADDRESS   the local address to use
  -C MESSAGES  how many to send, or to receive (10)
  -S BYTES     of each message; no more than the network's MTU (100)
)";

struct options {
    rdma::address group;
    rdma::address local;
    std::uint32_t messages = 10, size = 100;
    bool send = false;
    rdma::join_flag join = rdma::join_flag::fullmember;

    options(int argc, char** argv) {
        for (int found; (found = ::getopt(argc, argv, "m:sob:C:S:")) != -1;) {
            switch (found) {
            case 'm': group = rdma::address(optarg, 0); break;
            case 'o': join = rdma::join_flag::sendonly_fullmember; [[fallthrough]];
            case 's': send = true; break;
            case 'b': local = rdma::address(optarg, 0); break;
            case 'C': messages = number(optarg); break;
            case 'S': size = number(optarg); break;
            default: throw std::invalid_argument(usage);
            }
        }
        if (group == rdma::address())
            throw std::invalid_argument(usage);
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

rdma::cm_event expect(rdma::event_channel const& channel, rdma::cm_event_type wanted) {
    std::optional<rdma::cm_event> event = channel.get_for(std::chrono::seconds(10));
    if (!event)
        throw std::runtime_error("no " + to_string(wanted));
    if (event->type() != wanted)
        throw std::runtime_error(to_string(*event));
    return std::move(*event);
}

rdma::work_completion complete(rdma::cq_ref cq) {
    rdma::work_completion done;
    cq.wait({&done, 1});
    if (!done)
        throw std::runtime_error(to_string(done.status()));
    return done;
}

int main(int argc, char** argv) try {
    options const wanted(argc, argv);
    rdma::event_channel channel;
    rdma::cm_id id{channel, rdma::port_space::udp};
    id.resolve_addr(wanted.local, wanted.group);
    expect(channel, rdma::cm_event_type::addr_resolved).ack();

    std::size_t const space = rdma::grh_size + wanted.size; // before a datagram's data comes where it came from
    std::vector<std::byte> memory(space * wanted.messages);
    rdma::mr const region = id.reg_msgs(memory);
    id.create_qp({.cap = {.max_recv_wr = wanted.messages}});
    for (std::size_t i = 0; i != wanted.messages && !wanted.send; ++i)
        id.qp().post_recv(rdma::recv_wr(region.sge(i * space, space)));

    rdma::membership const member = id.join_multicast(wanted.group, wanted.join);
    rdma::cm_event const joined = expect(channel, rdma::cm_event_type::multicast_join); // how to reach the group
    rdma::ah const everybody(id.pd(), joined);
    std::printf("joined %s\n", member.group().host().c_str());

    for (std::uint32_t i = 0; i != wanted.messages; ++i) {
        if (wanted.send) {
            id.qp().post_send(rdma::send_wr::send(region.sge(0, wanted.size))
                                  .imm(htonl(id.qp().qp_num()))
                                  .to(everybody, joined.ud_param()->qp_num, joined.ud_param()->qkey)
                                  .signaled());
            complete(id.send_cq());
        } else {
            rdma::work_completion const got = complete(id.recv_cq());
            std::printf("%zu bytes from QP %u\n", got.success().byte_len() - rdma::grh_size, got.success().src_qp());
        }
    }
    std::printf("%u messages %s\n", wanted.messages, wanted.send ? "sent" : "received");
} catch (std::exception const& e) {
    std::fprintf(stderr, "multicast: %s\n", e.what());
    return 1;
}
