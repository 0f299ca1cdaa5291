// SPDX-License-Identifier: MIT
// The fake is held to the truth: how connections begin and end, written once, played on the fake and on the real
// devices. Each scenario leaves a trace; the expected ones were taken from librdmacm 44 and a Linux 6.1 kernel.
//
// A line of a trace is the outcome of a call ("accept: ok"), or an event: whose channel, its type, the id whose destroy
// waits for its ack, the status (with the number that C gave), and the private data up to the first zero with the
// length that C gave. Lines of one channel are in the order of their events; between the channels, the script says
// which is read next.
#include "both/support.hpp"

#include <optional>
#include <utility>
#include <vector>

namespace {

using both::carrying;
using rdma::cm_event;
using rdma::cm_event_type;
using rdma::cm_id;

/// A server and a client, each with a channel of its own, and what was seen of them.
class stage {
public:
    explicit stage(both::device const& on) : device(on) {}

    both::device device;
    rdma::event_channel server_channel;
    rdma::event_channel client_channel;
    cm_id listener;
    cm_id client;
    cm_id child;
    int port = 0;
    std::vector<std::string> trace;

    void say(std::string line) { trace.push_back(std::move(line)); }

    /// Makes a call and notes how it went. @param f takes an error code
    template <class F>
    std::error_code call(std::string const& what, F&& f) {
        std::error_code ec;
        f(ec);
        say(what + ": " + both::class_of(ec));
        return ec;
    }

    /// The next event of a channel, still held.
    cm_event server_event() { return get(server_channel, "server "); }
    cm_event client_event() { return get(client_channel, "client "); }
    /// The same, acked at once.
    void see_server() { server_event().ack(); }
    void see_client() { client_event().ack(); }

    /// Notes whether a channel has nothing to tell now.
    void see_no_more(rdma::event_channel const& channel, std::string const& whose) {
        std::optional<cm_event> const event = channel.try_get();
        say(whose + " " + (event ? describe(*event) : "no event"));
    }

    void make_listener() {
        listener = cm_id(server_channel, rdma::port_space::tcp);
        listener_ref_ = listener;
    }
    void make_client() {
        client = cm_id(client_channel, rdma::port_space::tcp);
        client_ref_ = client;
    }

    void listen() {
        make_listener();
        listener.bind(device.at(0));
        listener.listen();
        port = listener.local_addr().port();
    }

    /// Makes the client, up to the point where it could connect.
    void prepare() {
        make_client();
        client.resolve_addr(device.at(port));
        expect(cm_event_type::addr_resolved);
        client.resolve_route();
        expect(cm_event_type::route_resolved);
        client.create_qp({});
    }

    std::error_code connect(std::string_view data = {}) {
        return call("connect", [&](auto& ec) { client.connect(carrying(data), ec); });
    }

    void accept(std::string_view data = {}) {
        child.create_qp({});
        call("accept", [&](auto& ec) { child.accept(carrying(data), ec); });
    }

    /// Takes the new id from the next event of the server.
    cm_event take_request() {
        cm_event event = server_event();
        child = event.take_id();
        child_ref_ = child;
        return event;
    }

    /// Two connected ids, without a word in the trace.
    void establish() {
        listen();
        prepare();
        connect();
        take_request().ack();
        accept();
        see_client();
        see_server();
        REQUIRE(trace.size() == 5);
        CHECK(trace[3].starts_with("client ESTABLISHED on client, ok"));
        CHECK(trace[4].starts_with("server ESTABLISHED on child, ok"));
        trace.clear();
    }

private:
    cm_event get(rdma::event_channel const& channel, std::string const& whose) {
        std::optional<cm_event> event = channel.get_for(both::patience);
        say(whose + (event ? describe(*event) : "waited in vain"));
        REQUIRE(event);
        return std::move(*event);
    }

    void expect(cm_event_type type) {
        std::optional<cm_event> const event = client_channel.get_for(both::patience);
        REQUIRE(event);
        INFO(to_string(*event));
        REQUIRE(event->type() == type);
    }

    /// The newest first: its address may have been that of one that is gone.
    std::string name(rdma::cm_id_ref id) const {
        if (id == child_ref_)
            return "child";
        if (id == client_ref_)
            return "client";
        return id == listener_ref_ ? "listener" : "another id";
    }

    std::string describe(cm_event const& event) const {
        rdma::cm_id_ref const charged = event.listen_id() ? event.listen_id() : event.id();
        std::error_code const ec = event.error();
        std::string text = to_string(event.type()) + " on " + name(charged) + ", " +
                           (ec == rdma::condition::refused ? "refused" : both::class_of(ec));
        if (event.status() != 0)
            text += " (" + std::to_string(event.status()) + ')';
        if (auto const data = event.private_data(); !data.empty()) {
            std::string_view const all(reinterpret_cast<char const*>(data.data()), data.size());
            text += ", '" + std::string(all.substr(0, all.find('\0'))) + "' of " + std::to_string(all.size());
        }
        return text;
    }

    rdma::cm_id_ref listener_ref_, client_ref_, child_ref_;
};

/// Plays a scenario on a device and compares its trace; whatever happened, nothing may be left.
void play(char const* name, void (*scenario)(stage&), std::vector<std::string> const& expected) {
    both::device const device = both::find_device(name);
    if (!device)
        RDMACPP_SKIP("there is no device " + std::string(name));
    both::watchdog const watch;
#if RDMACPP_ON_FAKE
    fake::reset();
#endif
    {
        stage s(device);
        scenario(s);
        std::string seen, wanted;
        for (std::string const& line : s.trace)
            seen += "\n    " + line;
        for (std::string const& line : expected)
            wanted += "\n    " + line;
        CHECK(seen == wanted);

        for (cm_id* const id : {&s.client, &s.child, &s.listener})
            *id = cm_id();
        for (rdma::event_channel const* const channel : {&s.server_channel, &s.client_channel}) {
            for (cm_event const& late : channel->pending())
                CHECK(late.type() == cm_event_type::device_removal); // which is to say: there must be none
            rdma::channel_stats const stats = channel->stats();
            CHECK(stats.events_got == stats.events_acked);
            CHECK(stats.events_held == 0);
            CHECK(stats.ids_live == 0);
            CHECK(stats.ids_awaiting_ack == 0);
        }
    }
#if RDMACPP_ON_FAKE
    CHECK(fake::leaks() == "");
    CHECK(fake::would_hang() == std::vector<std::string>{});
    CHECK(fake::misuse() == std::vector<std::string>{});
    fake::reset();
#endif
}

// ---- Answers to a request --------------------------------------------------------------------------------------

void accepted(stage& s) {
    s.listen();
    s.make_client();
    s.call("resolve_addr", [&](auto& ec) { s.client.resolve_addr(s.device.at(s.port), ec); });
    s.see_client();
    s.call("resolve_route", [&](auto& ec) { s.client.resolve_route(ec); });
    s.see_client();
    s.client.create_qp({});
    s.connect("hello");
    s.take_request().ack();
    s.accept("welcome");
    s.see_client();
    s.see_server();
}
TEST_CASE("scenario accept, rxe", "[rxe]") {
    play("rxe", accepted,
         {
             "resolve_addr: ok",
             "client ADDR_RESOLVED on client, ok",
             "resolve_route: ok",
             "client ROUTE_RESOLVED on client, ok",
             "connect: ok",
             "server CONNECT_REQUEST on listener, ok, 'hello' of 56",
             "accept: ok",
             "client ESTABLISHED on client, ok, 'welcome' of 196",
             "server ESTABLISHED on child, ok",
         });
}
TEST_CASE("scenario accept, siw", "[siw]") {
    play("siw", accepted,
         {
             "resolve_addr: ok",
             "client ADDR_RESOLVED on client, ok",
             "resolve_route: ok",
             "client ROUTE_RESOLVED on client, ok",
             "connect: ok",
             "server CONNECT_REQUEST on listener, ok, 'hello' of 5",
             "accept: ok",
             "client ESTABLISHED on client, ok, 'welcome' of 7",
             "server ESTABLISHED on child, ok",
         });
}

void accepted_in_silence(stage& s) {
    s.listen();
    s.prepare();
    s.connect();
    s.take_request().ack();
    s.accept();
    s.see_client();
    s.see_server();
}
TEST_CASE("scenario accept without data, rxe", "[rxe]") {
    play("rxe", accepted_in_silence,
         {
             "connect: ok",
             "server CONNECT_REQUEST on listener, ok, '' of 56",
             "accept: ok",
             "client ESTABLISHED on client, ok, '' of 196",
             "server ESTABLISHED on child, ok",
         });
}
TEST_CASE("scenario accept without data, siw", "[siw]") {
    play("siw", accepted_in_silence,
         {
             "connect: ok",
             "server CONNECT_REQUEST on listener, ok",
             "accept: ok",
             "client ESTABLISHED on client, ok",
             "server ESTABLISHED on child, ok",
         });
}

void accepted_without_qp(stage& s) {
    s.listen();
    s.prepare();
    s.connect();
    s.take_request().ack();
    if (!s.call("accept", [&](auto& ec) { s.child.accept(ec); })) {
        s.see_client();
        s.see_server();
    }
    s.child = cm_id();
    s.see_client();
}
TEST_CASE("scenario accept without a QP, rxe", "[rxe]") {
    play("rxe", accepted_without_qp,
         {
             "connect: ok",
             "server CONNECT_REQUEST on listener, ok, '' of 56",
             "accept: ok",
             "client ESTABLISHED on client, ok, '' of 196",
             "server ESTABLISHED on child, ok",
             "client DISCONNECTED on client, ok",
         });
}
TEST_CASE("scenario accept without a QP, siw", "[siw]") {
    play("siw", accepted_without_qp,
         {
             "connect: ok",
             "server CONNECT_REQUEST on listener, ok",
             "accept: EINVAL",
             "client REJECTED on client, refused (-104)",
         });
}

void rejected_with_data(stage& s) {
    s.listen();
    s.prepare();
    s.connect("hello");
    s.take_request().ack();
    s.call("reject", [&](auto& ec) { s.child.reject(both::bytes("no room"), ec); });
    s.see_client();
}
TEST_CASE("scenario reject with data, rxe", "[rxe]") {
    play("rxe", rejected_with_data,
         {
             "connect: ok",
             "server CONNECT_REQUEST on listener, ok, 'hello' of 56",
             "reject: ok",
             "client REJECTED on client, refused (28), 'no room' of 148",
         });
}
TEST_CASE("scenario reject with data, siw", "[siw]") {
    play("siw", rejected_with_data,
         {
             "connect: ok",
             "server CONNECT_REQUEST on listener, ok, 'hello' of 5",
             "reject: ok",
             "client REJECTED on client, refused (-104), 'no room' of 7",
         });
}

void rejected(stage& s) {
    s.listen();
    s.prepare();
    s.connect();
    s.take_request().ack();
    s.call("reject", [&](auto& ec) { s.child.reject(ec); });
    s.see_client();
}
TEST_CASE("scenario reject, rxe", "[rxe]") {
    play("rxe", rejected,
         {
             "connect: ok",
             "server CONNECT_REQUEST on listener, ok, '' of 56",
             "reject: ok",
             "client REJECTED on client, refused (28), '' of 148",
         });
}
TEST_CASE("scenario reject, siw", "[siw]") {
    play("siw", rejected,
         {
             "connect: ok",
             "server CONNECT_REQUEST on listener, ok",
             "reject: ok",
             "client REJECTED on client, refused (-104)",
         });
}

void request_untouched(stage& s) {
    s.listen();
    s.prepare();
    s.connect();
    s.see_server(); // the event is dropped, and with it the new id
    s.see_client();
}
TEST_CASE("scenario request untouched, rxe", "[rxe]") {
    play("rxe", request_untouched,
         {
             "connect: ok",
             "server CONNECT_REQUEST on listener, ok, '' of 56",
             "client REJECTED on client, refused (28), '' of 148",
         });
}
TEST_CASE("scenario request untouched, siw", "[siw]") {
    play("siw", request_untouched,
         {
             "connect: ok",
             "server CONNECT_REQUEST on listener, ok",
             "client REJECTED on client, refused (-104)",
         });
}

void request_taken_and_dropped(stage& s) {
    s.listen();
    s.prepare();
    s.connect();
    s.take_request().ack();
    s.child = cm_id();
    s.see_client();
}
TEST_CASE("scenario request taken and dropped, rxe", "[rxe]") {
    play("rxe", request_taken_and_dropped,
         {
             "connect: ok",
             "server CONNECT_REQUEST on listener, ok, '' of 56",
             "client REJECTED on client, refused (28), '' of 148",
         });
}
TEST_CASE("scenario request taken and dropped, siw", "[siw]") {
    play("siw", request_taken_and_dropped,
         {
             "connect: ok",
             "server CONNECT_REQUEST on listener, ok",
             "client REJECTED on client, refused (-104)",
         });
}

void child_dropped_before_its_event(stage& s) {
    s.listen();
    s.prepare();
    s.connect();
    cm_event const request = s.take_request();
    s.child = cm_id(); // pinned by the event, so that it is rejected now and destroyed later
    s.see_client();
}
TEST_CASE("scenario child dropped before its event, rxe", "[rxe]") {
    play("rxe", child_dropped_before_its_event,
         {
             "connect: ok",
             "server CONNECT_REQUEST on listener, ok, '' of 56",
             "client REJECTED on client, refused (28), '' of 148",
         });
}
TEST_CASE("scenario child dropped before its event, siw", "[siw]") {
    play("siw", child_dropped_before_its_event,
         {
             "connect: ok",
             "server CONNECT_REQUEST on listener, ok",
             "client REJECTED on client, refused (-104)",
         });
}

// ---- Nobody there ----------------------------------------------------------------------------------------------

void nobody_listens(stage& s) {
    s.listen();
    s.listener = cm_id(); // the port is closed again
    s.prepare();
    if (!s.connect())
        s.see_client();
}
TEST_CASE("scenario nobody listens, rxe", "[rxe]") {
    play("rxe", nobody_listens,
         {
             "connect: ok",
             "client REJECTED on client, refused (8), '' of 148",
         });
}
TEST_CASE("scenario nobody listens, siw", "[siw]") {
    play("siw", nobody_listens,
         {
             "connect: ECONNREFUSED",
         });
}

void unknown_host(stage& s) {
    both::neighbours_asked const asking(s.device);
    std::string const host = s.device.host.substr(0, s.device.host.rfind('.')) + ".99";
    s.make_client();
    s.call("resolve_addr",
           [&](auto& ec) { s.client.resolve_addr(rdma::address(host, 7471), std::chrono::milliseconds(500), ec); });
    s.see_client();
    s.say("device: " + std::string(s.client.verbs() ? "one" : "none"));
}
TEST_CASE("scenario unknown host, rxe", "[rxe]") {
    play("rxe", unknown_host,
         {
             "resolve_addr: ok",
             "client ADDR_ERROR on client, ETIMEDOUT (-110)",
             "device: none",
         });
}
TEST_CASE("scenario unknown host, siw", "[siw]") {
    play("siw", unknown_host,
         {
             "resolve_addr: ok",
             "client ADDR_ERROR on client, ETIMEDOUT (-110)",
             "device: none",
         });
}

void foreign_address(stage& s) {
    s.make_client();
    s.call("bind", [&](auto& ec) { s.client.bind(rdma::address("10.78.0.1", 0), ec); });
    std::error_code ec;
    s.client.resolve_addr(rdma::address("10.78.0.1", 7471), ec);
    // The first where a default route leads to another interface, the second where there is no route at all.
    bool const no_way = ec == std::errc::no_such_device || ec == std::errc::network_unreachable;
    s.say("resolve_addr: " + (no_way ? "no way there" : both::class_of(ec)));
}
TEST_CASE("scenario address of no device, rxe", "[rxe]") {
    play("rxe", foreign_address,
         {
             "bind: EADDRNOTAVAIL",
             "resolve_addr: no way there",
         });
}
TEST_CASE("scenario address of no device, siw", "[siw]") {
    play("siw", foreign_address,
         {
             "bind: EADDRNOTAVAIL",
             "resolve_addr: no way there",
         });
}

void loopback(stage& s) {
    s.make_client();
    if (!s.call("resolve_addr", [&](auto& ec) { s.client.resolve_addr(rdma::address("127.0.0.1", 7471), ec); })) {
        s.see_client();
        s.say("device: " + std::string(s.client.verbs() ? "one" : "none"));
        if (!s.call("resolve_route", [&](auto& ec) { s.client.resolve_route(ec); }))
            s.see_client();
    }
    s.make_listener();
    s.call("bind", [&](auto& ec) { s.listener.bind(rdma::address("127.0.0.1", 0), ec); });
}
TEST_CASE("scenario loopback, rxe", "[rxe]") {
    play("rxe", loopback,
         {
             "resolve_addr: ok",
             "client ADDR_RESOLVED on client, ok",
             "device: one",
             "resolve_route: ENODEV",
             "bind: ok",
         });
}
TEST_CASE("scenario loopback, siw", "[siw]") {
    play("siw", loopback,
         {
             "resolve_addr: ok",
             "client ADDR_RESOLVED on client, ok",
             "device: one",
             "resolve_route: ENODEV",
             "bind: ok",
         });
}

// ---- Ends ------------------------------------------------------------------------------------------------------

void client_disconnects(stage& s) {
    s.establish();
    s.call("client disconnect", [&](auto& ec) { s.client.disconnect(ec); });
    s.see_server();
    s.call("server disconnect", [&](auto& ec) { s.child.disconnect(ec); });
    s.see_client();
    if (!s.device.iwarp) {
        s.see_client();
        s.see_server();
    }
}
TEST_CASE("scenario client disconnects first, rxe", "[rxe]") {
    play("rxe", client_disconnects,
         {
             "client disconnect: ok",
             "server DISCONNECTED on child, ok",
             "server disconnect: ok",
             "client DISCONNECTED on client, ok",
             "client TIMEWAIT_EXIT on client, ok",
             "server TIMEWAIT_EXIT on child, ok",
         });
}
TEST_CASE("scenario client disconnects first, siw", "[siw]") {
    play("siw", client_disconnects,
         {
             "client disconnect: ok",
             "server DISCONNECTED on child, ok",
             "server disconnect: ok",
             "client DISCONNECTED on client, ok",
         });
}

void server_disconnects(stage& s) {
    s.establish();
    s.call("server disconnect", [&](auto& ec) { s.child.disconnect(ec); });
    s.see_client();
    s.call("client disconnect", [&](auto& ec) { s.client.disconnect(ec); });
    s.see_server();
    if (!s.device.iwarp) {
        s.see_server();
        s.see_client();
    }
}
TEST_CASE("scenario server disconnects first, rxe", "[rxe]") {
    play("rxe", server_disconnects,
         {
             "server disconnect: ok",
             "client DISCONNECTED on client, ok",
             "client disconnect: ok",
             "server DISCONNECTED on child, ok",
             "server TIMEWAIT_EXIT on child, ok",
             "client TIMEWAIT_EXIT on client, ok",
         });
}
TEST_CASE("scenario server disconnects first, siw", "[siw]") {
    play("siw", server_disconnects,
         {
             "server disconnect: ok",
             "client DISCONNECTED on client, ok",
             "client disconnect: ok",
             "server DISCONNECTED on child, ok",
         });
}

void client_drops(stage& s) {
    s.establish();
    s.client = cm_id();
    s.see_server();
    s.child = cm_id();
    s.see_no_more(s.server_channel, "server");
    s.see_no_more(s.client_channel, "client");
}
TEST_CASE("scenario client drops first, rxe", "[rxe]") {
    play("rxe", client_drops,
         {
             "server DISCONNECTED on child, ok",
             "server no event",
             "client no event",
         });
}
TEST_CASE("scenario client drops first, siw", "[siw]") {
    play("siw", client_drops,
         {
             "server DISCONNECTED on child, ok",
             "server no event",
             "client no event",
         });
}

void server_drops(stage& s) {
    s.establish();
    s.child = cm_id();
    s.see_client();
    s.client = cm_id();
    s.see_no_more(s.server_channel, "server");
    s.see_no_more(s.client_channel, "client");
}
TEST_CASE("scenario server drops first, rxe", "[rxe]") {
    play("rxe", server_drops,
         {
             "client DISCONNECTED on client, ok",
             "server no event",
             "client no event",
         });
}
TEST_CASE("scenario server drops first, siw", "[siw]") {
    play("siw", server_drops,
         {
             "client DISCONNECTED on client, ok",
             "server no event",
             "client no event",
         });
}

/// What was queued for an id goes with it.
void both_drop(stage& s) {
    s.establish();
    s.client = cm_id();
    s.child = cm_id();
    s.see_no_more(s.server_channel, "server");
    s.see_no_more(s.client_channel, "client");
}
TEST_CASE("scenario both drop, rxe", "[rxe]") {
    play("rxe", both_drop,
         {
             "server no event",
             "client no event",
         });
}
TEST_CASE("scenario both drop, siw", "[siw]") {
    play("siw", both_drop,
         {
             "server no event",
             "client no event",
         });
}

/// The peer learns of it at once; only rdma_destroy_id waits for the ack.
void dropped_with_an_event_held(stage& s) {
    s.listen();
    s.prepare();
    s.connect();
    s.take_request().ack();
    s.accept();
    cm_event held = s.client_event();
    s.see_server();
    s.client = cm_id();
    s.see_server();
    s.say("held: " + std::string(held ? "still" : "no more"));
    s.say("awaiting their last ack: " + std::to_string(s.client_channel.stats().ids_awaiting_ack));
    held.ack();
    s.say("awaiting their last ack: " + std::to_string(s.client_channel.stats().ids_awaiting_ack));
}
TEST_CASE("scenario dropped with an event held, rxe", "[rxe]") {
    play("rxe", dropped_with_an_event_held,
         {
             "connect: ok",
             "server CONNECT_REQUEST on listener, ok, '' of 56",
             "accept: ok",
             "client ESTABLISHED on client, ok, '' of 196",
             "server ESTABLISHED on child, ok",
             "server DISCONNECTED on child, ok",
             "held: still",
             "awaiting their last ack: 1",
             "awaiting their last ack: 0",
         });
}
TEST_CASE("scenario dropped with an event held, siw", "[siw]") {
    play("siw", dropped_with_an_event_held,
         {
             "connect: ok",
             "server CONNECT_REQUEST on listener, ok",
             "accept: ok",
             "client ESTABLISHED on client, ok",
             "server ESTABLISHED on child, ok",
             "server DISCONNECTED on child, ok",
             "held: still",
             "awaiting their last ack: 1",
             "awaiting their last ack: 0",
         });
}

// ---- The listener ----------------------------------------------------------------------------------------------

void listener_dropped_with_a_request_queued(stage& s) {
    s.listen();
    s.prepare();
    s.connect();
    s.say("request queued: " + std::string(both::is_readable(s.server_channel, both::patience) ? "yes" : "no"));
    s.listener = cm_id();
    s.see_client();
    s.see_no_more(s.server_channel, "server");
}
TEST_CASE("scenario listener dropped with a request queued, rxe", "[rxe]") {
    play("rxe", listener_dropped_with_a_request_queued,
         {
             "connect: ok",
             "request queued: yes",
             "client REJECTED on client, refused (28), '' of 148",
             "server no event",
         });
}
TEST_CASE("scenario listener dropped with a request queued, siw", "[siw]") {
    play("siw", listener_dropped_with_a_request_queued,
         {
             "connect: ok",
             "request queued: yes",
             "client REJECTED on client, refused (-104)",
             "server no event",
         });
}

void listener_dropped_with_a_request_held(stage& s) {
    s.listen();
    s.prepare();
    s.connect();
    cm_event request = s.take_request();
    s.listener = cm_id();
    cm_id another(s.server_channel, rdma::port_space::tcp);
    s.call("bind while it is held", [&](auto& ec) { another.bind(s.device.at(s.port), ec); });
    s.accept();
    s.see_client();
    s.see_server();
    request.ack();
    s.call("bind after the ack", [&](auto& ec) { another.bind(s.device.at(s.port), ec); });
}
TEST_CASE("scenario listener dropped with a request held, rxe", "[rxe]") {
    play("rxe", listener_dropped_with_a_request_held,
         {
             "connect: ok",
             "server CONNECT_REQUEST on listener, ok, '' of 56",
             "bind while it is held: EADDRINUSE",
             "accept: ok",
             "client ESTABLISHED on client, ok, '' of 196",
             "server ESTABLISHED on child, ok",
             "bind after the ack: ok",
         });
}
TEST_CASE("scenario listener dropped with a request held, siw", "[siw]") {
    play("siw", listener_dropped_with_a_request_held,
         {
             "connect: ok",
             "server CONNECT_REQUEST on listener, ok",
             "bind while it is held: EADDRINUSE",
             "accept: ok",
             "client ESTABLISHED on client, ok",
             "server ESTABLISHED on child, ok",
             "bind after the ack: ok",
         });
}

void port_0(stage& s) {
    s.make_listener();
    s.call("bind", [&](auto& ec) { s.listener.bind(s.device.at(0), ec); });
    s.say("port after bind: " + std::string(s.listener.local_addr().port() != 0 ? "a real one" : "0"));
    s.call("listen", [&](auto& ec) { s.listener.listen(ec); });
    s.say("port after listen: " + std::string(s.listener.local_addr().port() != 0 ? "a real one" : "0"));
    s.say("device: " + std::string(s.listener.verbs().device_name()));

    cm_id everywhere(s.server_channel, rdma::port_space::tcp);
    s.call("bind to every address", [&](auto& ec) { everywhere.bind(rdma::address::any_v6(0), ec); });
    s.say("port after bind: " + std::string(everywhere.local_addr().port() != 0 ? "a real one" : "0"));
    s.call("listen", [&](auto& ec) { everywhere.listen(ec); });
    s.say("port after listen: " + std::string(everywhere.local_addr().port() != 0 ? "a real one" : "0"));
    s.say("device: " + std::string(everywhere.verbs() ? "one" : "none"));
}
TEST_CASE("scenario port 0, rxe", "[rxe]") {
    play("rxe", port_0,
         {
             "bind: ok",
             "port after bind: a real one",
             "listen: ok",
             "port after listen: a real one",
             "device: rxe0",
             "bind to every address: ok",
             "port after bind: a real one",
             "listen: ok",
             "port after listen: a real one",
             "device: none",
         });
}
TEST_CASE("scenario port 0, siw", "[siw]") {
    play("siw", port_0,
         {
             "bind: ok",
             "port after bind: a real one",
             "listen: ok",
             "port after listen: a real one",
             "device: siw0",
             "bind to every address: ok",
             "port after bind: a real one",
             "listen: ok",
             "port after listen: a real one",
             "device: none",
         });
}

void port_taken(stage& s) {
    s.listen();
    cm_id another(s.server_channel, rdma::port_space::tcp);
    s.call("bind to the same address", [&](auto& ec) { another.bind(s.device.at(s.port), ec); });
    cm_id everywhere(s.server_channel, rdma::port_space::tcp);
    s.call("bind to every address", [&](auto& ec) { everywhere.bind(rdma::address::any_v4(s.port), ec); });
    cm_id sharing(s.server_channel, rdma::port_space::tcp);
    sharing.set_reuse_addr(true);
    s.call("bind with reuse_addr", [&](auto& ec) { sharing.bind(s.device.at(s.port), ec); });
    s.listener = cm_id();
    s.call("bind once it is free", [&](auto& ec) { another.bind(s.device.at(s.port), ec); });
}
TEST_CASE("scenario port taken, rxe", "[rxe]") {
    play("rxe", port_taken,
         {
             "bind to the same address: EADDRINUSE",
             "bind to every address: EADDRNOTAVAIL",
             "bind with reuse_addr: EADDRINUSE",
             "bind once it is free: ok",
         });
}
TEST_CASE("scenario port taken, siw", "[siw]") {
    play("siw", port_taken,
         {
             "bind to the same address: EADDRINUSE",
             "bind to every address: EADDRNOTAVAIL",
             "bind with reuse_addr: EADDRINUSE",
             "bind once it is free: ok",
         });
}

} // namespace
