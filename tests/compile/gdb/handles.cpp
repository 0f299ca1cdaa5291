// SPDX-License-Identifier: MIT
// One of each handle, in the states in which gdb meets them: the program that tests/compile/gdb.py stops.
#include <rdmacpp/epoll.hpp>
#include <rdmacpp/rdmacpp.hpp>

#include <fake/fake.hpp>

#include <array>
#include <chrono>
#include <cstring>
#include <optional>
#include <stop_token>
#include <vector>

using namespace std::chrono_literals;

namespace {

// What memory may hold that nobody initialised: gdb.py takes it for each of the types.
alignas(64) unsigned char rubbish[8192];

/// Every word points into the same place, so that each chain is a circle.
void fill_rubbish() {
    for (std::size_t i = 0; i != sizeof rubbish; i += sizeof(void*)) {
        void const* const here = rubbish;
        std::memcpy(rubbish + i, &here, sizeof here);
    }
}

/// By numbers, since devices leave some that C has no names for.
ibv_wc wc(int status, int opcode, unsigned flags = 0) {
    ibv_wc result{};
    result.wr_id = 7;
    result.status = static_cast<ibv_wc_status>(status);
    result.opcode = static_cast<ibv_wc_opcode>(opcode);
    result.byte_len = 64;
    result.qp_num = 3;
    result.wc_flags = flags;
    result.imm_data = htonl(0x2a);
    result.vendor_err = 0x51;
    return result;
}

[[gnu::noinline]] void stop_here() { asm volatile(""); }

namespace async = rdma::async;

async::task<> wait_for(async::cm_id const& id) { (void)co_await id.next(); }
async::task<> wait_through(async::cm_id const& id) { co_await wait_for(id); }
async::task<> receive(async::cq const& cq, rdma::qp_ref qp, rdma::recv_wr const& request) {
    (void)co_await cq.post_recv(qp, request);
}
async::task<> take(async::acceptor const& acceptor) { (void)co_await acceptor.next(); }
async::task<> watch(async::events<rdma::async_channel> const& events) { (void)co_await events.next(); }

class handler final : public rdma::id_handler {
public:
    using id_handler::id_handler;

private:
    void on_event(rdma::cm_event&) override {}
};

} // namespace

int main() {
    fake::reset();
    fake::set_all_features(true);
    fill_rubbish();

    rdma::event_channel const servers, clients, empty_channel{rdma::no_init};
    rdma::event_channel_ref const servers_ref = servers;
    rdma::address const server_address("10.77.1.1", 7471), v6("fd77:1::1", 7471), link_local("fe80::77:1%71", 80), none;

    rdma::cm_id listener(servers, rdma::port_space::tcp), empty_id;
    listener.bind(server_address);
    listener.listen();

    rdma::cm_id client(clients, rdma::port_space::tcp);
    rdma::cm_id_ref const client_ref = client;
    client.resolve_addr(server_address);
    clients.get().ack();
    client.resolve_route();
    clients.get().ack();
    client.create_qp({});
    std::array<std::byte, 2> const greeting{std::byte{'h'}, std::byte{'i'}};
    client.connect({.private_data = greeting});

    rdma::cm_event request = servers.get();
    rdma::cm_id accepted = request.take_id();
    accepted.create_qp({});
    accepted.accept();
    rdma::cm_event const established = clients.get();
    rdma::cm_event const kept = servers.get(); // the server's ESTABLISHED: its id is dropped below
    accepted = rdma::cm_id();

    rdma::event_channel const others;
    rdma::cm_id const other(others, rdma::port_space::tcp);
    fake::push(other.native_handle(), {RDMA_CM_EVENT_REJECTED, 8, nullptr, 0, 0});
    rdma::cm_event const rejected = others.get();
    fake::push(other.native_handle(), {RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT, nullptr, 0, 0});
    rdma::cm_event const unreachable = others.get();
    fake::push(other.native_handle(), {77, -1, nullptr, 0, 0});
    rdma::cm_event const unknown = others.get();
    rdma::cm_event const acked;
    fake::push_request(listener.native_handle(), "abc", 3);
    rdma::cm_event const untaken = servers.get();

    rdma::context const device(rdma::device_list::get().find("rxe0"));
    rdma::device_list const found = rdma::device_list::get();
    rdma::pd const pd(device);
    rdma::pd_ref const pd_ref = pd, no_pd;
    std::array<std::byte, 4096> memory{};
    rdma::mr const mr(pd, memory, rdma::access::local_write | rdma::access::remote_read), no_mr;
    rdma::registered_buffer const buffer(pd, 128, rdma::access::none);
    rdma::comp_channel const bell(device);
    rdma::cq const cq(device, 16, bell), plain_cq(device, 1), no_cq;
    rdma::cq_ref const cq_ref = cq;
    rdma::qp const qp(pd, rdma::qp_type::rc, rdma::qp_init_attr{.send_cq = cq, .recv_cq = cq});
    rdma::srq const srq(pd);
    rdma::mw const mw(pd, rdma::mw_type::type_2);
    fake::push_cq_event(cq.native_handle());
    rdma::cq_event const cq_event = bell.get(), no_cq_event;
    fake::push_async(qp.native_handle(), IBV_EVENT_QP_ACCESS_ERR);
    rdma::async_event const of_qp = device.async_channel().get(), no_async_event;
    fake::push_async(device.native_handle(), IBV_EVENT_PORT_ERR, 1);
    rdma::async_event const of_port = device.async_channel().get();

    rdma::work_completion const received(wc(IBV_WC_SUCCESS, IBV_WC_RECV, IBV_WC_WITH_IMM)),
        sent(wc(IBV_WC_SUCCESS, IBV_WC_SEND)), flushed(wc(IBV_WC_WR_FLUSH_ERR, 0x7f)), unpolled(wc(99, IBV_WC_SEND));
    rdma::completed const success = received.success();
    std::vector<rdma::work_completion> const completions{sent, flushed};
    ibv_sge const pieces[] = {{0x1000, 16, 5}, {0x2000, 32, 5}};
    rdma::send_wr const write = rdma::send_wr::write(pieces[0], {0xabc0, 9}).id(8).signaled(),
                        send = rdma::send_wr::send(pieces).id(9).fenced();
    rdma::recv_wr const recv = rdma::recv_wr(pieces[1]).id(10);
    rdma::remote_memory const peer{0xabc0, 9};

    std::optional<rdma::error> failure;
    try {
        client.resolve_addr(rdma::address("192.0.2.1", 1));
    } catch (rdma::error const& e) {
        failure = e;
    }
    std::error_code const unbound = rdma::errc::not_bound, refused = rdma::reject_reason::consumer_defined,
                          no_device(ENODEV, std::system_category()), no_error;
    rdma::errc const code = rdma::errc::not_bound, no_code = static_cast<rdma::errc>(99);
    rdma::cm_event_type const type = rdma::cm_event_type::disconnected, newer = static_cast<rdma::cm_event_type>(77);
    rdma::access const rights = rdma::access::local_write | rdma::access::remote_read, no_rights = rdma::access::none;
    rdma::timeout const half_a_second = 500ms, endless = rdma::no_limit;
    rdma::private_data const data(greeting);

    rdma::cm_id datagrams(clients, rdma::port_space::udp);
    datagrams.bind(rdma::address("10.77.1.1", 0));
    rdma::membership const membership = datagrams.join_multicast(rdma::address("239.1.1.1", 0)), no_membership;
    rdma::acceptor const acceptor(rdma::address("10.77.1.1", 7472));
    rdma::endpoint const no_endpoint;
    rdma::cm_id& reference = client;

    rdma::epoll_loop loop;
    async::poll_loop polls;
    async::any_loop const any_loop(loop);
    async::event_channel const awaited(loop), no_awaited;
    async::cm_id const waited(awaited, rdma::port_space::tcp), kept_for(awaited, rdma::port_space::tcp), no_waited;
    async::acceptor const requests(awaited, rdma::address("10.77.1.1", 7473)), no_requests;
    async::request const no_request;
    async::cq const queue(loop, client.recv_cq()), no_queue;
    async::events<rdma::async_channel> const device_events(loop, device.async_channel()), no_events;
    async::task<> waits = wait_through(waited), takes = take(requests), receives = receive(queue, client.qp(), recv),
                  watches = watch(device_events), done = wait_for(no_waited), fresh = wait_for(waited), no_task;
    for (async::task<>* each : {&waits, &takes, &receives, &watches, &done})
        each->start();
    fake::push(kept_for->native_handle(), {RDMA_CM_EVENT_ADDR_CHANGE});
    loop.run_once(0s);
    async::tasks running;
    running.spawn(wait_for(waited));
    async::limits const unlimited, in_time(1h), stoppable(std::stop_source().get_token());
    async::callback const callback{[](void*) {}, nullptr};
    std::error_code refusal;
    async::registration const timer = loop.after(1h, callback, refusal), turn = polls.each_turn(callback, refusal),
                              no_registration;
    rdma::dispatcher dispatcher;
    handler const handled(dispatcher, rdma::cm_id(dispatcher.channel(), rdma::port_space::tcp));
    auto const next = waited.next();

    stop_here();
    static_cast<void>(std::tuple(&any_loop, &no_awaited, &no_requests, &no_request, &no_queue, &no_events, &fresh,
                                 &no_task, &unlimited, &in_time, &stoppable, &timer, &turn, &no_registration, &handled,
                                 &next));
    static_cast<void>(std::tuple(&empty_channel, &servers_ref, &v6, &link_local, &none, &empty_id, &client_ref, &kept,
                                 &established, &rejected, &unreachable, &unknown, &acked, &untaken, &found, &pd_ref,
                                 &no_pd, &mr, &no_mr, &buffer, &plain_cq, &no_cq, &cq_ref, &srq, &mw, &cq_event,
                                 &no_cq_event, &of_qp, &no_async_event, &of_port, &sent, &unpolled, &success,
                                 &completions, &unbound, &refused, &no_device, &no_error, &write, &send, &recv, &peer,
                                 &code, &no_code, &type, &newer, &rights, &no_rights, &half_a_second, &endless, &data,
                                 &membership, &no_membership, &acceptor, &no_endpoint, &reference));
}
