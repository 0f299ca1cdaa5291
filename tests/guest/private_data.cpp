// SPDX-License-Identifier: MIT
// Private data of every size that matters, by every operation that carries it: what arrives is what was sent, or the
// call says why not. Never other bytes, never a hang.
#include "guest/support.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdio>
#include <span>
#include <string>
#include <system_error>
#include <vector>

namespace {

using namespace guest;
using bytes = std::span<std::byte const>;

/// Bytes that are never zero, as padding is, and that differ at the same place from those of another size.
std::vector<std::byte> content(std::size_t size) {
    std::vector<std::byte> all(size);
    for (std::size_t i = 0; i != size; ++i)
        all[i] = static_cast<std::byte>(1 + (i * 7 + size) % 253);
    return all;
}

/// Where a server and a client try one operation after the other; each returns what became of the bytes: "of N" if they
/// came as the beginning of N, else why not.
class trial {
public:
    explicit trial(device const& on) : listener_(listen_on(server_channel_, on.at(0))) {}

    std::string connect(bytes sent) {
        cm_id client = prepare(client_channel_, listener_.local_addr());
        std::error_code ec;
        client.connect({.private_data = sent}, ec);
        // Of a refused call the server hears nothing: the first that it sees of the id is what comes next.
        std::vector<std::byte> const marker = content(3);
        if (ec)
            client.connect({.private_data = marker});
        cm_event request = expect(server_channel_, cm_event_type::connect_request);
        std::string outcome = ec ? refused(ec, arrived(request, marker).starts_with("of ")) : arrived(request, sent);
        request.ack();
        expect(client_channel_, cm_event_type::rejected).ack();
        return outcome;
    }

    std::string accept(bytes sent) {
        cm_id client = prepare(client_channel_, listener_.local_addr());
        cm_id child = request_of(client);
        child.create_qp({});
        std::error_code ec;
        child.accept({.private_data = sent}, ec);
        if (ec)
            return refused(ec, rejected_in_silence(child));
        std::string outcome = arrived(expect_from(client_channel_, cm_event_type::established), sent);
        expect(server_channel_, cm_event_type::established).ack();
        client = cm_id();
        expect(server_channel_, cm_event_type::disconnected).ack();
        return outcome;
    }

    std::string reject(bytes sent) {
        cm_id client = prepare(client_channel_, listener_.local_addr());
        cm_id child = request_of(client);
        std::error_code ec;
        child.reject(sent, ec);
        if (ec)
            return refused(ec, rejected_in_silence(child));
        return arrived(expect_from(client_channel_, cm_event_type::rejected), sent);
    }

private:
    /// Keeps the event while it is looked at.
    cm_event const& expect_from(rdma::event_channel const& channel, cm_event_type type) {
        return last_ = expect(channel, type);
    }

    cm_id request_of(cm_id& client) {
        client.connect();
        return expect(server_channel_, cm_event_type::connect_request).take_id();
    }

    /// After an answer that was refused the client is told no, without a byte of that answer.
    bool rejected_in_silence(cm_id& child) {
        child = cm_id();
        bytes const got = expect_from(client_channel_, cm_event_type::rejected).private_data();
        return std::ranges::all_of(got, [](std::byte b) { return b == std::byte{0}; });
    }

    std::string arrived(cm_event const& event, bytes sent) const {
        bytes const got = event.private_data();
        std::string const size = std::to_string(got.size());
        if (got.size() < sent.size())
            return "cut to " + size;
        if (!std::ranges::equal(got.first(sent.size()), sent))
            return "other bytes, of " + size;
        if (!std::ranges::all_of(got.subspan(sent.size()), [](std::byte b) { return b == std::byte{0}; }))
            return "more bytes, of " + size;
        return "of " + size;
    }

    static std::string refused(std::error_code ec, bool and_nothing_sent) {
        std::string reason = both::class_of(ec);
        if (ec == rdma::errc::private_data_too_long)
            reason = "too long";
        if (ec == rdma::errc::private_data_iwarp)
            reason = "iWARP";
        return and_nothing_sent ? reason : reason + ", and sent";
    }

    rdma::event_channel server_channel_, client_channel_;
    cm_id listener_;
    cm_event last_;
};

std::string line(std::size_t size, std::string const& connect, std::string const& accept, std::string const& reject) {
    std::array<char, 80> text;
    std::snprintf(text.data(), text.size(), "\n%5zu  %-9s %-9s %s", size, connect.c_str(), accept.c_str(),
                  reject.c_str());
    return text.data();
}

/// Fills the table, prints it, and compares it with what is expected.
void check_table(device const& on, std::string const& expected) {
    std::string seen = "\nbytes  connect   accept    reject";
    trial t(on);
    for (std::size_t const size : {0u, 1u, 56u, 57u, 148u, 149u, 196u, 197u, 251u, 252u, 255u, 256u}) {
        std::vector<std::byte> const sent = content(size);
        seen += line(size, t.connect(sent), t.accept(sent), t.reject(sent));
    }
    std::fprintf(stderr, "Private data on %s:%s\n", on.name.c_str(), seen.c_str());
    CHECK(seen == expected);
}

/// RoCE pads each to the size of its message's field; more than it holds is refused by the kernel.
void table_of_rxe(device const& on) {
    check_table(on, "\nbytes  connect   accept    reject"
                    "\n    0  of 56     of 196    of 148"
                    "\n    1  of 56     of 196    of 148"
                    "\n   56  of 56     of 196    of 148"
                    "\n   57  EINVAL    of 196    of 148"
                    "\n  148  EINVAL    of 196    of 148"
                    "\n  149  EINVAL    of 196    EINVAL"
                    "\n  196  EINVAL    of 196    EINVAL"
                    "\n  197  EINVAL    EINVAL    EINVAL"
                    "\n  251  EINVAL    EINVAL    EINVAL"
                    "\n  252  EINVAL    EINVAL    EINVAL"
                    "\n  255  EINVAL    EINVAL    EINVAL"
                    "\n  256  too long  too long  too long");
}
TEST_CASE("private data of every size, rxe", "[rxe]") { on_device("rxe", table_of_rxe); }

/// iWARP carries the exact length; from 252 bytes on siw would tear the handshake, so that we refuse.
void table_of_siw(device const& on) {
    check_table(on, "\nbytes  connect   accept    reject"
                    "\n    0  of 0      of 0      of 0"
                    "\n    1  of 1      of 1      of 1"
                    "\n   56  of 56     of 56     of 56"
                    "\n   57  of 57     of 57     of 57"
                    "\n  148  of 148    of 148    of 148"
                    "\n  149  of 149    of 149    of 149"
                    "\n  196  of 196    of 196    of 196"
                    "\n  197  of 197    of 197    of 197"
                    "\n  251  of 251    of 251    of 251"
                    "\n  252  iWARP     iWARP     iWARP"
                    "\n  255  iWARP     iWARP     iWARP"
                    "\n  256  too long  too long  too long");
}
TEST_CASE("private data of every size, siw", "[siw]") { on_device("siw", table_of_siw); }

/// The kernel says EINVAL and no more; the message says which limits there are.
void refusal_explained(device const& on) {
    rdma::event_channel server_channel, client_channel;
    cm_id listener = listen_on(server_channel, on.at(0));
    cm_id client = prepare(client_channel, listener.local_addr());
    std::vector<std::byte> const much = content(197);
    CHECK_THROWS_WITH(client.connect({.private_data = much}), rdmacpp_test::contains("at most 56 bytes for connect"));
    client.connect();
    cm_id child = expect(server_channel, cm_event_type::connect_request).take_id();
    CHECK_THROWS_WITH(child.reject(much), rdmacpp_test::contains("148 for reject"));
    child.create_qp({});
    CHECK_THROWS_WITH(child.accept({.private_data = much}), rdmacpp_test::contains("196 for accept"));
    expect(client_channel, cm_event_type::rejected).ack();
}
TEST_CASE("private data refused by the kernel is explained, rxe", "[rxe]") { on_device("rxe", refusal_explained); }

} // namespace
