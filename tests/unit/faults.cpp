// SPDX-License-Identifier: MIT
// Each C function and each allocation fails once, everywhere in the life of a connection: the right error arrives,
// nothing leaks, nothing hangs, and no event stays without its ack.
#include "allocations.hpp"
#include "support.hpp"

#include <algorithm>
#include <new>
#include <optional>

using namespace unit;

namespace {

/// What the forms with an error code end a run with.
struct step_failed {
    std::error_code ec;
};

/// Runs each step of a scenario in one of the two forms of the library's functions. A step is a lambda that takes
/// `auto&... ec` and passes it on: it is called with nothing, or with an error code.
template <bool Throws>
struct form {
    template <class Step>
    static decltype(auto) run(Step&& step) {
        if constexpr (Throws) {
            return step();
        } else {
            std::error_code ec;
            if constexpr (std::is_void_v<decltype(step(ec))>) {
                step(ec);
                if (ec)
                    throw step_failed{ec};
            } else {
                auto result = step(ec);
                if (ec)
                    throw step_failed{ec};
                return result;
            }
        }
    }
};

/// The data path has another kind of twin, which returns C's code.
template <class Wr>
void post(rdma::qp_ref qp, Wr const& wr) {
    if constexpr (std::is_same_v<Wr, rdma::send_wr>)
        qp.post_send(wr);
    else
        qp.post_recv(wr);
}
template <class Wr>
void post(rdma::qp_ref qp, Wr const& wr, std::error_code& ec) {
    std::errc e{};
    if constexpr (std::is_same_v<Wr, rdma::send_wr>)
        e = qp.post_send(wr, std::nothrow);
    else
        e = qp.post_recv(wr, std::nothrow);
    if (e != std::errc{})
        ec = {static_cast<int>(e), std::system_category()};
}

/// How a scenario ends its objects.
enum class ending { dropped, dropped_with_events_held, destroyed };

/// The next event, which must be there.
template <class Step>
rdma::cm_event wait_for(rdma::event_channel const& channel, type wanted) {
    auto event = Step::run([&](auto&... ec) { return channel.try_get(ec...); });
    if (!event || event->type() != wanted)
        FAIL("got " << (event ? to_string(*event) : "nothing") << ", expected " << to_string(wanted));
    return std::move(*event);
}

/// The whole life of a connection, in both roles. Objects are declared in the order in which a C program could not.
template <bool Throws>
class connection_life {
    using step = form<Throws>;

public:
    explicit connection_life(char const* host) : at_(host, 7471) {}
    connection_life(connection_life const&) = delete;
    connection_life& operator=(connection_life const&) = delete;

    void run(ending how) {
        listen();
        resolve();
        prepare_client();
        connect();
        exchange();
        if (how == ending::dropped_with_events_held)
            return hold_events();
        disconnect();
        if (how == ending::destroyed)
            destroy();
    }

private:
    static rdma::cm_event wait(rdma::event_channel const& channel, type wanted) {
        return wait_for<step>(channel, wanted);
    }

    void listen() {
        server_channel_ = step::run([](auto&... ec) { return rdma::event_channel(ec...); });
        listener_ = step::run([&](auto&... ec) { return rdma::cm_id(server_channel_, rdma::port_space::tcp, ec...); });
        step::run([&](auto&... ec) { listener_.set_reuse_addr(true, ec...); });
        step::run([&](auto&... ec) { listener_.bind(at_, ec...); });
        step::run([&](auto&... ec) { listener_.listen(8, ec...); });
    }

    void resolve() {
        client_channel_ = step::run([](auto&... ec) { return rdma::event_channel(ec...); });
        client_ = step::run([&](auto&... ec) { return rdma::cm_id(client_channel_, rdma::port_space::tcp, ec...); });
        step::run([&](auto&... ec) { client_.resolve_addr(at_, 1s, ec...); });
        wait(client_channel_, type::addr_resolved).ack();
        step::run([&](auto&... ec) { client_.resolve_route(1s, ec...); });
        wait(client_channel_, type::route_resolved).ack();
    }

    void prepare_client() {
        step::run([&](auto&... ec) { return client_.verbs().query_device(ec...); });
        pd_ = step::run([&](auto&... ec) { return rdma::pd(client_.verbs(), ec...); });
        completions_ = step::run([&](auto&... ec) { return rdma::comp_channel(client_.verbs(), ec...); });
        cq_ = step::run([&](auto&... ec) { return rdma::cq(client_.verbs(), 16, completions_, nullptr, 0, ec...); });
        step::run([&](auto&... ec) { return client_.create_qp(pd_, {.send_cq = cq_, .recv_cq = cq_}, ec...); });
        client_mr_ = step::run([&](auto&... ec) {
            return rdma::mr(pd_, client_memory_, rdma::access::local_write | rdma::access::remote_read, ec...);
        });
    }

    void connect() {
        step::run([&](auto&... ec) { client_.connect({}, ec...); });
        rdma::cm_event request = wait(server_channel_, type::connect_request);
        server_ = step::run([&](auto&... ec) { return request.take_id(ec...); });
        server_mr_ = step::run(
            [&](auto&... ec) { return rdma::mr(server_.pd(), server_memory_, rdma::access::local_write, ec...); });
        step::run([&](auto&... ec) { return server_.create_qp({}, ec...); }); // with CQs that librdmacm makes
        step::run([&](auto&... ec) { post(server_.qp(), rdma::recv_wr(server_mr_.sge()), ec...); });
        step::run([&](auto&... ec) { server_.accept({}, ec...); });
        request.ack();
        wait(client_channel_, type::established).ack();
        wait(server_channel_, type::established).ack();
    }

    void exchange() {
        // Armed before there is anything: then its event is got, too, and not only its completion polled.
        rdma::work_completion wc;
        auto const nothing = step::run([&](auto&... ec) { return server_.recv_cq().wait_for({&wc, 1}, 0s, ec...); });
        CHECK(nothing.empty());
        step::run([&](auto&... ec) { post(client_.qp(), rdma::send_wr::send(client_mr_.sge()).signaled(), ec...); });
        completion_ = step::run([&](auto&... ec) { return server_.recv_cq_channel().try_get(ec...); });
        CHECK(completion_);
        auto const received = step::run([&](auto&... ec) { return server_.recv_cq().wait_for({&wc, 1}, 1s, ec...); });
        CHECK(received.size() == 1);
        auto const sent = step::run([&](auto&... ec) { return cq_.wait_for({&wc, 1}, 1s, ec...); });
        CHECK(sent.size() == 1);
        fake::push_async(client_.qp().native_handle(), IBV_EVENT_COMM_EST);
        trouble_ = step::run([&](auto&... ec) { return async_event_of(client_.verbs(), ec...); });
        CHECK(trouble_);
    }

    /// Leaves events of everything in hand, so that destroys come with the acks.
    void hold_events() {
        step::run([&](auto&... ec) { client_.disconnect(ec...); });
        held_[0] = wait(client_channel_, type::disconnected);
        held_[1] = wait(server_channel_, type::disconnected);
        fake::push_request(listener_.native_handle());
        while (!held_[2]) {
            auto event = step::run([&](auto&... ec) { return server_channel_.try_get(ec...); });
            if (event->type() == type::connect_request)
                held_[2] = std::move(*event);
        }
        client_ = {};
        server_ = {};
        listener_ = {};
    }

    void disconnect() {
        completion_.reset();
        trouble_.ack();
        step::run([&](auto&... ec) { client_.disconnect(ec...); });
        wait(client_channel_, type::disconnected).ack();
        wait(server_channel_, type::disconnected).ack();
    }

    void destroy() {
        step::run([&](auto&... ec) { client_mr_.destroy(ec...); });
        step::run([&](auto&... ec) { server_mr_.destroy(ec...); });
        client_.destroy_qp();
        step::run([&](auto&... ec) { cq_.destroy(ec...); });
        step::run([&](auto&... ec) { completions_.destroy(ec...); });
        step::run([&](auto&... ec) { pd_.destroy(ec...); });
        step::run([&](auto&... ec) { client_.destroy(ec...); });
        step::run([&](auto&... ec) { server_.destroy(ec...); });
        step::run([&](auto&... ec) { listener_.destroy(ec...); });
        CHECK_FALSE(client_);
    }

    rdma::address const at_;
    rdma::cm_event held_[3];
    std::optional<rdma::cq_event> completion_;
    rdma::async_event trouble_;
    std::array<std::byte, 32> client_memory_{}, server_memory_{};
    rdma::mr client_mr_, server_mr_;
    rdma::pd pd_;
    rdma::cq cq_;
    rdma::comp_channel completions_;
    rdma::cm_id client_, server_, listener_;
    rdma::event_channel client_channel_{rdma::no_init}, server_channel_{rdma::no_init};
};

/// Everything else that can be made: groups and datagrams, shared queues, XRC, QPs of the program's own, ids that move.
template <bool Throws>
class other_life {
    using step = form<Throws>;

public:
    explicit other_life(char const* host) : at_(host, 7471) { fake::set_xrc(true); }
    other_life(other_life const&) = delete;
    other_life& operator=(other_life const&) = delete;

    void run(ending how) {
        look_around();
        join_groups();
        send_datagram();
        move();
        share_queue();
        make_xrc();
        ask_by_hand();
        answer_by_hand();
        if (how == ending::dropped_with_events_held)
            return;
        join_[0].ack();
        join_[1].ack();
        trouble_.ack();
        if (how == ending::destroyed)
            destroy();
    }

private:
    static rdma::cm_event wait(rdma::event_channel const& channel, type wanted) {
        return wait_for<step>(channel, wanted);
    }

    rdma::cm_id make(rdma::port_space ps) {
        return step::run([&](auto&... ec) { return rdma::cm_id(channel_, ps, ec...); });
    }
    void bind(rdma::cm_id& id) {
        step::run([&](auto&... ec) { id.bind(rdma::address(at_.host(), 0), ec...); });
    }

    void look_around() {
        devices_ = step::run([](auto&... ec) { return rdma::devices::get(ec...); });
        rdma::addrinfo_hints const hints{.numeric_host = true};
        std::string const host = at_.host();
        found_ = step::run([&](auto&... ec) { return rdma::addrinfo(host.c_str(), "7471", hints, ec...); });
        channel_ = step::run([](auto&... ec) { return rdma::event_channel(ec...); });
        elsewhere_ = step::run([](auto&... ec) { return rdma::event_channel(ec...); });
    }

    void join_groups() {
        datagrams_ = make(rdma::port_space::udp);
        step::run([&](auto&... ec) { datagrams_.set_tos(8, ec...); });
        bind(datagrams_);
        step::run([&](auto&... ec) { return datagrams_.create_qp_ex({}, ec...); });
        int const ours = 0;
        for (std::size_t i = 0; i != 2; ++i) {
            rdma::address const group(i == 0 ? "239.1.1.1" : "239.1.1.2", 0);
            auto const flag = i == 0 ? rdma::join_flag::fullmember : rdma::join_flag::sendonly_fullmember;
            member_[i] = step::run(
                [&](auto&... ec) { return datagrams_.join_multicast(group, flag, const_cast<int*>(&ours), ec...); });
            join_[i] = wait(channel_, type::multicast_join);
        }
    }

    void send_datagram() { // to itself, among others
        peer_ = step::run([&](auto&... ec) { return rdma::ah(datagrams_.pd(), join_[0], ec...); });
        region_ = step::run([&](auto&... ec) { return datagrams_.reg_msgs(memory_, ec...); });
        step::run([&](auto&... ec) { post(datagrams_.qp(), rdma::recv_wr(region_.sge()), ec...); });
        step::run([&](auto&... ec) {
            post(datagrams_.qp(), rdma::send_wr::send(region_.sge(0, 1)).to(peer_, 0xffffff), ec...);
        });
        rdma::work_completion wc;
        auto const got = step::run([&](auto&... ec) { return datagrams_.recv_cq().wait_for({&wc, 1}, 1s, ec...); });
        REQUIRE(got.size() == 1);
        back_ = step::run([&](auto&... ec) { return rdma::ah(datagrams_.pd(), wc, memory_, 1, ec...); });
    }

    void move() {
        moved_ = make(rdma::port_space::tcp);
        fake::push(moved_.native_handle(), {RDMA_CM_EVENT_ADDR_CHANGE});
        step::run([&](auto&... ec) { moved_.migrate(elsewhere_, ec...); });
        change_ = wait(elsewhere_, type::addr_change);
    }

    void share_queue() {
        shared_ = make(rdma::port_space::tcp);
        bind(shared_);
        pd_ = step::run([&](auto&... ec) { return rdma::pd(shared_.verbs(), ec...); });
        step::run([&](auto&... ec) { return shared_.create_srq(pd_, {}, ec...); });
        step::run([&](auto&... ec) { return shared_.srq().query(ec...); });
        step::run([&](auto&... ec) { shared_.srq().set_limit(1, ec...); });
        cq_ = step::run([&](auto&... ec) { return rdma::cq(shared_.verbs(), 8, ec...); });
        qp_ = step::run([&](auto&... ec) {
            return rdma::qp(pd_, rdma::qp_type::rc, {.send_cq = cq_, .recv_cq = cq_, .srq = shared_.srq()}, ec...);
        });
        fake::push_async(shared_.srq().native_handle(), IBV_EVENT_SRQ_LIMIT_REACHED);
        trouble_ = step::run([&](auto&... ec) { return async_event_of(shared_.verbs(), ec...); });
    }

    void make_xrc() {
        rdma::address const any(at_.host(), 0);
        half_ = step::run([&](auto&... ec) {
            return rdma::cm_id(channel_, rdma::port_space::ib, rdma::qp_type::xrc_recv, any, ec...);
        });
        domain_ = step::run([&](auto&... ec) { return rdma::xrcd(half_.verbs(), ec...); });
        rdma::srq_init_attr_ex const wanted{.type = rdma::srq_type::xrc, .xrcd = domain_};
        step::run([&](auto&... ec) { return half_.create_srq_ex(wanted, ec...); });
        step::run([&](auto&... ec) { return half_.srq().srq_num(ec...); });
        rdma::qp_init_attr_ex const receives{.attr = {.cap = {.max_send_wr = 0, .max_recv_wr = 0}}, .xrcd = domain_};
        step::run([&](auto&... ec) { return half_.create_qp_ex(receives, ec...); });
    }

    void bring_up(rdma::cm_id const& id, rdma::qp const& qp) {
        for (ibv_qp_state const state : {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS}) {
            rdma::qp_attr const attr = step::run([&](auto&... ec) { return id.init_qp_attr(state, ec...); });
            step::run([&](auto&... ec) { qp.modify(attr, ec...); });
        }
    }

    void ask_by_hand() {
        listener_ = make(rdma::port_space::tcp);
        step::run([&](auto&... ec) { listener_.bind(at_, ec...); });
        step::run([&](auto&... ec) { listener_.listen(8, ec...); });
        client_ = make(rdma::port_space::tcp);
        step::run([&](auto&... ec) { client_.resolve_addr(at_, 1s, ec...); });
        wait(channel_, type::addr_resolved).ack();
        step::run([&](auto&... ec) { client_.resolve_route(1s, ec...); });
        wait(channel_, type::route_resolved).ack();
        step::run([&](auto&... ec) { client_.set_ack_timeout(1ms, ec...); });
        step::run([&](auto&... ec) { client_.set_local_ece({1, 2, 0}, ec...); });
        step::run([&](auto&... ec) { client_.connect({.qp_num = qp_.qp_num()}, ec...); });
    }

    void answer_by_hand() {
        rdma::cm_event request = wait(channel_, type::connect_request);
        server_ = step::run([&](auto&... ec) { return request.take_id(ec...); });
        step::run([&](auto&... ec) { return server_.remote_ece(ec...); });
        server_qp_ = step::run([&](auto&... ec) {
            return rdma::qp(server_.pd(), rdma::qp_type::rc, {.send_cq = cq_, .recv_cq = cq_}, ec...);
        });
        bring_up(server_, server_qp_);
        step::run([&](auto&... ec) { server_.accept({.qp_num = server_qp_.qp_num()}, ec...); });
        wait(channel_, type::connect_response).ack();
        bring_up(client_, qp_);
        step::run([&](auto&... ec) { client_.establish(ec...); });
        wait(channel_, type::established).ack();
        step::run([&](auto&... ec) { server_.notify(IBV_EVENT_COMM_EST, ec...); });
        fake::push_request(listener_.native_handle());
        rdma::cm_event second = wait(channel_, type::connect_request);
        rdma::cm_id refused = step::run([&](auto&... ec) { return second.take_id(ec...); });
        step::run([&](auto&... ec) { refused.reject_ece({}, ec...); });
    }

    template <class... Owners>
    static void destroy_each(Owners&... owners) {
        (step::run([&](auto&... ec) { owners.destroy(ec...); }), ...);
    }

    void destroy() {
        devices_ = {}; // or librdmacm keeps its default PD
        change_.ack();
        step::run([&](auto&... ec) { member_[0].leave(ec...); });
        destroy_each(peer_, back_, region_, qp_, server_qp_);
        shared_.destroy_srq();
        half_.destroy_qp();
        half_.destroy_srq();
        destroy_each(domain_, cq_, pd_, datagrams_, moved_, shared_, half_, client_, server_, listener_);
        CHECK_FALSE(datagrams_);
    }

    rdma::address const at_;
    rdma::cm_event join_[2], change_;
    rdma::async_event trouble_;
    std::array<std::byte, rdma::grh_size + 16> memory_{};
    rdma::membership member_[2];
    rdma::ah peer_, back_;
    rdma::mr region_;
    rdma::pd pd_;
    rdma::cq cq_;
    rdma::xrcd domain_;
    rdma::qp qp_, server_qp_;
    rdma::cm_id datagrams_, moved_, shared_, half_, client_, server_, listener_;
    rdma::event_channel channel_{rdma::no_init}, elsewhere_{rdma::no_init};
    rdma::addrinfo found_;
    rdma::devices devices_;
};

/// How a run ended.
struct outcome {
    std::error_code ec;          ///< None: it went through.
    std::string function;        ///< Of the exception.
    bool without_memory = false; ///< std::bad_alloc.
    bool struck = false;         ///< Whether the allocation that was to fail was reached.
};

template <template <bool> class Life, bool Throws>
outcome play(char const* host, ending how, std::size_t failing_allocation = 0) {
    outcome end;
    auto const live = [&] {
        Life<Throws> life(host);
        life.run(how);
    };
    std::optional<allocation_watch> watch;
    if (failing_allocation != 0)
        watch.emplace(failing_allocation);
    try {
        live();
    } catch (rdma::error const& e) {
        end.ec = e.code();
        watch.reset();
        end.function = e.function();
    } catch (step_failed const& e) {
        end.ec = e.ec;
    } catch (std::bad_alloc const&) {
        end.without_memory = true;
    }
    end.struck = failing_allocation != 0 && allocation_struck();
    return end;
}

std::string lines(std::vector<std::string> const& all) {
    std::string text;
    for (std::string const& line : all)
        text += line + '\n';
    return text;
}

bool destroys(std::string const& function) {
    static char const* const all[] = {"rdma_destroy_id",  "ibv_destroy_qp",           "ibv_destroy_cq",
                                      "ibv_destroy_srq",  "ibv_destroy_comp_channel", "ibv_dealloc_pd",
                                      "ibv_dereg_mr",     "ibv_destroy_ah",           "ibv_close_xrcd",
                                      "ibv_detach_mcast", "rdma_leave_multicast"};
    return std::find(std::begin(all), std::end(all), function) != std::end(all);
}

/// What is left when this destroy has failed: its object, and what the object itself keeps in use.
fake::population left_by(std::string const& destroy) {
    fake::population most{};
    if (destroy == "rdma_destroy_id")
        most.ids = most.default_pds = 1;
    if (destroy == "ibv_destroy_qp" || destroy == "ibv_detach_mcast")
        most.qps = most.pds = most.default_pds = most.srqs = most.xrcds = 1, most.cqs = most.comp_channels = 2;
    if (destroy == "ibv_destroy_srq")
        most.srqs = most.pds = most.cqs = most.comp_channels = most.xrcds = 1;
    if (destroy == "ibv_destroy_ah")
        most.ahs = most.pds = most.default_pds = 1;
    if (destroy == "ibv_close_xrcd")
        most.xrcds = 1;
    if (destroy == "ibv_destroy_cq")
        most.cqs = most.comp_channels = 1;
    if (destroy == "ibv_destroy_comp_channel")
        most.comp_channels = 1;
    if (destroy == "ibv_dealloc_pd")
        most.pds = 1;
    if (destroy == "ibv_dereg_mr")
        most.mrs = most.pds = most.default_pds = 1;
    return most;
}

bool within(fake::population const& is, fake::population const& most) {
    return is.channels <= most.channels && is.ids <= most.ids && is.events <= most.events && is.qps <= most.qps &&
           is.cqs <= most.cqs && is.comp_channels <= most.comp_channels && is.pds <= most.pds && is.mrs <= most.mrs &&
           is.srqs <= most.srqs && is.ahs <= most.ahs && is.mws <= most.mws && is.groups <= most.groups &&
           is.contexts <= most.contexts && is.lists <= most.lists && is.xrcds <= most.xrcds;
}

void check_nothing_left() {
    CHECK(fake::leaks() == "");
    CHECK(lines(fake::misuse()) == "");
}

/// The hook is told of it first, and then of nothing but what it left in use.
void check_failed_destroy(fake::failure const& fault) {
    auto const told = diagnostics::get().all();
    auto const is_failure = [](rdma::diagnostic const& d) { return d.kind == rdma::diagnostic_kind::destroy_failed; };
    auto const first = std::find_if(told.begin(), told.end(), is_failure);
    REQUIRE(first != told.end());
    bool const detaching = fault.function == "ibv_detach_mcast"; // its failure shows when the QP cannot go
    CHECK(first->function == (detaching ? "ibv_destroy_qp" : fault.function));
    CHECK(first->error == std::error_code(detaching ? EBUSY : fault.code, std::system_category()));
    for (auto other = first + 1; other != told.end(); ++other) // only what is still in use by the first
        if (is_failure(*other))
            CHECK(other->error == std::errc::device_or_resource_busy);
    CHECK(within(fake::live(), left_by(fault.function)));
}

/// Calls that nobody asked for: what tells the other side of an end (the destroy that follows tells it as well), what
/// finds out whether a device was removed, and what detaches a QP that is detached once more when its group is left.
bool is_courtesy(std::string const& function) {
    return function == "rdma_disconnect" || function == "rdma_reject" || function == "ibv_modify_qp" ||
           function == "rdma_set_option" || function == "rdma_get_devices" || function == "ibv_detach_mcast";
}

void check(outcome const& end, fake::failure const& fault, bool throws) {
    CHECK(lines(fake::would_hang()) == "");
    CHECK(fake::live().events == 0);
    bool const told = diagnostics::get().count(rdma::diagnostic_kind::destroy_failed) != 0;
    if (destroys(fault.function) && told) { // in a destructor, which has nobody else to tell
        CHECK((!end.ec || end.ec == std::errc::device_or_resource_busy)); // of a destroy() after it
        return check_failed_destroy(fault);
    }
    CHECK_FALSE(told);
    check_nothing_left(); // also after destroy() has failed: the destructor tries again
    if (!end.ec) {
        CHECK(is_courtesy(fault.function));
        return;
    }
    if (fault.function == "ibv_poll_cq") // which gives no reason
        CHECK(end.ec == rdma::errc::poll_failed);
    else
        CHECK(end.ec == std::error_code(fault.code, std::system_category()));
    if (throws)
        CHECK(end.function == fault.function);
}

template <template <bool> class Life, bool Throws>
void fail_each_call(char const* host, ending how) {
    for (unsigned nth = 1;; ++nth) {
        fake::reset();
        diagnostics::get().clear();
        fake::fail_any(nth);
        outcome const end = play<Life, Throws>(host, how);
        fake::failure const fault = fake::failed();
        fake::disarm();
        INFO("fault " << nth << " in " << fault.function);
        if (fault.function.empty()) {
            CHECK_FALSE(end.ec);
            check_nothing_left();
            CHECK(nth > 40); // the scenario was really played
            return;
        }
        check(end, fault, Throws);
    }
}

template <template <bool> class Life, bool Throws>
void fail_each_allocation(char const* host, ending how) {
    for (std::size_t nth = 1;; ++nth) {
        fake::reset();
        diagnostics::get().clear();
        outcome const end = play<Life, Throws>(host, how, nth);
        INFO("allocation " << nth << ", ending " << static_cast<int>(how)); // not before: checks would allocate
        check_nothing_left();
        CHECK(lines(fake::would_hang()) == "");
        CHECK(diagnostics::get().count(rdma::diagnostic_kind::destroy_failed) == 0);
        if (end.ec)
            CHECK(end.ec == std::errc::not_enough_memory);
        if (!Throws)
            CHECK_FALSE(end.without_memory); // these forms allocate with nothrow new alone
        if (!end.struck) {
            CHECK_FALSE(end.ec);
            CHECK(nth > 10);
            return;
        }
    }
}

} // namespace

namespace {

/// Each ending, in both forms.
template <template <bool> class Life>
void fail_each_call_of(char const* host) {
    for (ending how : {ending::dropped, ending::dropped_with_events_held, ending::destroyed}) {
        INFO(host << ", ending " << static_cast<int>(how));
        fail_each_call<Life, true>(host, how);
        fail_each_call<Life, false>(host, how);
    }
}

template <template <bool> class Life>
void fail_each_allocation_of(char const* host) {
    for (ending how : {ending::dropped, ending::dropped_with_events_held, ending::destroyed}) {
        fail_each_allocation<Life, true>(host, how);
        fail_each_allocation<Life, false>(host, how);
    }
}

} // namespace

TEST_CASE("faults: each call of C in a connection fails once") {
    world w;
    w.messy();
    for (char const* host : {rxe_host, siw_host})
        fail_each_call_of<connection_life>(host);
}

TEST_CASE("faults: each call of C for groups, shared queues, XRC, own QPs and migration fails once") {
    world w;
    w.messy();
    fail_each_call_of<other_life>(rxe_host);
}

TEST_CASE("faults: each allocation of a connection fails once") {
    RDMACPP_NEED_ALLOCATIONS();
    world w;
    fail_each_allocation_of<connection_life>(rxe_host);
}

TEST_CASE("faults: each allocation for groups, shared queues, XRC, own QPs and migration fails once") {
    RDMACPP_NEED_ALLOCATIONS();
    world w;
    fail_each_allocation_of<other_life>(rxe_host);
}

// ---- What a failed destroy leaves -----------------------------------------------------------------------------------

TEST_CASE("faults: an id whose destroy failed is told of once, and late events for it are swallowed") {
    world w;
    w.messy();
    rdma_cm_id* raw = nullptr;
    {
        rdma::event_channel channel;
        rdma::cm_id id = make_id(channel);
        rdma::cm_id other = make_id(channel);
        raw = id.native_handle();
        fake::fail("rdma_destroy_id", 1, EACCES);
        id = {};
        REQUIRE(w.told().size() == 1);
        CHECK(w.told()[0].kind == rdma::diagnostic_kind::destroy_failed);
        CHECK(w.told()[0].object == raw);
        CHECK(w.told()[0].error == std::errc::permission_denied);
        CHECK(std::string(w.told()[0].function) == "rdma_destroy_id");
        CHECK(channel.stats().ids_live == 1);
        CHECK(channel.stats().ids_awaiting_ack == 0); // it waits for nothing: it is lost
        fake::push(raw, {RDMA_CM_EVENT_ADDR_CHANGE});
        fake::push(other.native_handle(), {RDMA_CM_EVENT_ADDR_CHANGE});
        CHECK(next(channel, type::addr_change).id() == other);
        CHECK(channel.stats().events_swallowed == 1);
        CHECK(fake::unacked(raw) == 0);
    }
    CHECK(fake::count("rdma_destroy_id", raw) == 1); // never again
    CHECK(fake::live().ids == 1);
    CHECK(fake::live().channels == 0);
}

TEST_CASE("faults: a destroy by name that fails keeps the id, which goes on as before") {
    world w;
    rdma::event_channel channel;
    rdma::cm_id id = make_id(channel);
    rdma_cm_id* const raw = id.native_handle();
    fake::fail("rdma_destroy_id", 1, EACCES);
    CHECK(thrown([&] { id.destroy(); }, "rdma_destroy_id") == std::errc::permission_denied);
    CHECK(id.native_handle() == raw);
    CHECK(w.told().empty()); // the caller knows
    fake::push(raw, {RDMA_CM_EVENT_ADDR_CHANGE});
    expect(channel, type::addr_change);
    CHECK(channel.stats().ids_live == 1);
    id.destroy();
    CHECK(fake::count("rdma_destroy_id", raw) == 2);
}

TEST_CASE("faults: a CQ and a QP whose destroys failed: their late events are swallowed") {
    world w;
    w.messy();
    rdma::event_channel channel;
    rdma::cm_id id = make_bound(channel);
    rdma::comp_channel completions(id.verbs());
    rdma::cq cq(id.verbs(), 16, completions);
    id.create_qp({});
    ibv_cq* const raw_cq = cq.native_handle();
    ibv_qp* const raw_qp = id.qp().native_handle();
    rdma::context_ref const device = id.verbs();
    fake::fail("ibv_destroy_cq", 1, EIO);
    cq = {};
    fake::push_cq_event(raw_cq);
    CHECK_FALSE(completions.try_get());
    CHECK(fake::unacked(raw_cq) == 0);
    fake::fail("ibv_destroy_qp", 1, EIO);
    id.destroy_qp();
    fake::push_async(raw_qp, IBV_EVENT_QP_FATAL);
    fake::push_async(raw_cq, IBV_EVENT_CQ_ERR);
    CHECK_FALSE(async_event_of(device));
    CHECK(raw_qp->events_completed == 1);
    CHECK(raw_cq->async_events_completed == 1);
    std::size_t failures_of_their_own = 0;
    for (rdma::diagnostic const& d : w.told())
        failures_of_their_own += d.error == std::errc::io_error;
    CHECK(failures_of_their_own == 2);
}

TEST_CASE("faults: the id of a request that nobody takes cannot be destroyed") {
    world w;
    w.messy();
    rdma::event_channel channel;
    rdma::cm_id listener = make_listener(channel);
    rdma::cm_event first = make_request(channel, listener);
    fake::fail("rdma_destroy_id", 1, EIO);
    SECTION("because its event is dropped") { first.ack(); }
    SECTION("because its listener is gone") {
        rdma_cm_id* const raw = listener.native_handle();
        listener = {};
        fake::push_request(raw);
        CHECK_FALSE(channel.try_get());
        CHECK(w.told(rdma::diagnostic_kind::request_rejected) == 1);
    }
    CHECK(w.told(rdma::diagnostic_kind::destroy_failed) == 1);
    CHECK(fake::failed().function == "rdma_destroy_id");
    first.ack();
    CHECK(fake::live().events == 0);
}

// ---- Signals, and a channel that is broken --------------------------------------------------------------------------

TEST_CASE("faults: an interrupted get is tried again, unless the caller wants to know") {
    world w;
    rdma::event_channel channel;
    rdma::cm_id id = make_id(channel);
    fake::push(id.native_handle(), {RDMA_CM_EVENT_ADDR_CHANGE});
    fake::fail("rdma_get_cm_event", 1, EINTR);
    CHECK(channel.get().type() == type::addr_change);
    CHECK(fake::count("rdma_get_cm_event") == 2);
    fake::push(id.native_handle(), {RDMA_CM_EVENT_ADDR_CHANGE});
    fake::fail("rdma_get_cm_event", 1, EINTR);
    std::error_code ec;
    CHECK_FALSE(channel.get({.interruptible = true}, ec));
    CHECK(ec == std::errc::interrupted);
    CHECK(channel.stats().events_got == 1);
    expect(channel, type::addr_change);
}

TEST_CASE("faults: after the credentials changed, nothing hangs, and each failed destroy is told of once") {
    world w;
    w.messy();
    {
        connection c = connect_pair();
        fake::push(c.client.native_handle(), {RDMA_CM_EVENT_ADDR_CHANGE});
        rdma::cm_event held = next(c.client_channel, type::addr_change);
        fake::set_credentials_changed(true);
        CHECK(thrown([&] { c.client.disconnect(); }, "open the channel afterwards") == std::errc::permission_denied);
        CHECK(thrown([&] { (void)c.client_channel.try_get(); }) == std::errc::permission_denied);
        c.client = {};
        CHECK(w.told(rdma::diagnostic_kind::destroy_failed) == 0); // it waits for the ack
    }
    CHECK(w.told(rdma::diagnostic_kind::destroy_failed) == 3);
    CHECK(fake::live().qps == 0); // verbs objects have no such rule
    CHECK(fake::live().events == 0);
    CHECK(fake::live().channels == 0);
}
