// SPDX-License-Identifier: MIT
// The snippets of docs/errors.md.
#include "snippets.hpp"

namespace {

void two_forms() {
    rdma::event_channel channel;
    rdma::cm_id id{channel, rdma::port_space::tcp};
    rdma::address const server = an_address;
    //! [forms]
    try {
        id.resolve_route(); // too early: no device is known yet
    } catch (rdma::error const& e) {
        std::puts(e.what()); // rdma_resolve_route(...): the id is not bound to a device yet: ...
    }

    std::error_code ec;
    id.resolve_route(2s, ec); // the same, without a throw
    if (ec == rdma::errc::not_bound)
        id.resolve_addr(server, ec);
    //! [forms]
    SNIPPET_CHECK(!ec);
}

void of_an_event() {
    rdma::event_channel channel;
    rdma::cm_id id{channel, rdma::port_space::tcp};
    id.resolve_addr(an_address);
    expect(channel, rdma::cm_event_type::addr_resolved);
    id.resolve_route();
    expect(channel, rdma::cm_event_type::route_resolved);
    id.create_qp({});
    id.connect();
    bool asked = false;
    auto const try_the_next_server = [&] { asked = true; };
    //! [event]
    rdma::cm_event event = channel.get();
    if (std::error_code const why = event.error()) {
        std::printf("%s: %s\n", to_string(event.type()).c_str(), why.message().c_str());
        if (why == rdma::condition::refused) // on every transport
            try_the_next_server();
    }
    //! [event]
    SNIPPET_CHECK(asked);
}

void of_one_call() {
    rdma::event_channel channel;
    //! [step]
    try {
        rdma::cm_id id = rdma::connect(channel, rdma::address("10.77.1.1", 1), {.limit = 2s});
    } catch (rdma::connect_error const& e) {
        std::printf("%s failed: %s\n", to_string(e.step()).c_str(), e.code().message().c_str());
    }
    //! [step]
}

void of_a_completion() {
    connected_pair pair;
    rdma::cm_id const& id = pair.client;
    std::array<std::byte, 65> large{}; // one byte more than the peer's receive has
    rdma::mr const region(id.pd(), large, rdma::for_send());
    id.qp().post_send(rdma::send_wr::send(region.sge()).id(1));
    //! [completion]
    std::array<rdma::work_completion, 16> completions;
    for (rdma::work_completion const& done : id.send_cq().wait(completions)) {
        if (done)
            std::printf("%llu is done\n", static_cast<unsigned long long>(done.wr_id()));
        else if (done.status() != rdma::wc_status::wr_flush_err) // the first failure; what is flushed follows from it
            std::printf("%llu: %s\n", static_cast<unsigned long long>(done.wr_id()), to_string(done.status()).c_str());
    }
    //! [completion]
    SNIPPET_CHECK(!completions[0]);
}

void on_the_data_path() {
    connected_pair pair;
    rdma::cm_id const& id = pair.client;
    std::array<std::byte, 64> bytes{};
    rdma::mr const region(id.pd(), bytes, rdma::for_send());
    //! [path]
    if (std::errc const e = id.qp().post_send(rdma::send_wr::send(region.sge()), std::nothrow); e != std::errc{})
        std::puts(std::make_error_code(e).message().c_str()); // ENOMEM: the send queue is full
    //! [path]
}

//! [hook]
void told(rdma::diagnostic const& d) noexcept {
    std::fprintf(stderr, "%s(%p): %s\n", d.function, d.object, d.error.message().c_str());
}
//! [hook]

void the_hook() {
    //! [install]
    rdma::diagnostic_handler const before = rdma::set_diagnostic_handler(&told);
    //! [install]
    SNIPPET_CHECK(before == &rdma::print_failed_destroys);
    rdma::set_diagnostic_handler(before);
}

} // namespace

void errors() {
    two_forms();
    of_an_event();
    of_one_call();
    of_a_completion();
    on_the_data_path();
    the_hook();
}
