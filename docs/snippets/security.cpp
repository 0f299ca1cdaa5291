// SPDX-License-Identifier: MIT
// The snippets of docs/security.md.
#include "snippets.hpp"

namespace {

void drop_privileges() { fake::set_credentials_changed(false); }

void credentials() {
    //! [credentials]
    drop_privileges();           // first: setuid, setgid, capset ...
    rdma::event_channel channel; // then: the kernel compares every later call with whoever opened this
    //! [credentials]
}

void a_domain_for_each_client() {
    connected_pair const pair;
    rdma::cm_id const& id = pair.server;
    //! [domain]
    rdma::pd domain(id.verbs()); // one for each client: a key of one is worth nothing on the QP of another
    rdma::registered_buffer memory(domain, 4096, rdma::for_recv()); // no remote access: messages alone
    //! [domain]
}

void a_window() {
    connected_pair pair;
    rdma::cm_id const& id = pair.server;
    std::array<std::byte, 4096> table{};
    //! [window]
    rdma::mr region(id.pd(), table, rdma::access::local_write | rdma::access::mw_bind); // no peer can reach it

    rdma::mw window(id.pd(), rdma::mw_type::type_2);
    std::uint32_t const key = window.next_rkey(); // for these 64 bytes, on this QP, from now ...
    id.qp().post_send(window.bind_request(key, region, 128, 64, rdma::access::remote_read).signaled());

    id.qp().post_send(rdma::send_wr::local_inv(key).signaled()); // ... to now
    //! [window]
    for (rdma::wc_opcode const wanted : {rdma::wc_opcode::bind_mw, rdma::wc_opcode::local_inv}) {
        rdma::work_completion const done = id.send_cq().wait_one();
        SNIPPET_CHECK(done && done.success().opcode() == wanted);
    }
}

} // namespace

void security() {
    credentials();
    a_domain_for_each_client();
    a_window();
}
