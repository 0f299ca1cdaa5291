// SPDX-License-Identifier: MIT
// Compiled as usual: an id comes from the unit without exceptions, throws here, and goes back.
#include "mixed.hpp"

#include <fake/fake.hpp>

#include <cerrno>
#include <cstring>
#include <utility>

#if !RDMACPP_EXCEPTIONS
#error "this unit must be compiled with exceptions"
#endif

template <class Id>
concept can_throw = requires(Id& id) { id.listen(); };
static_assert(can_throw<rdma::cm_id>);

char const* run_with_exceptions() {
    rdma::event_channel channel;
    std::error_code ec;
    rdma::cm_id id = make_bound_id(channel, ec);
    if (ec || !id)
        return "no id came from the other unit";

    fake::fail("rdma_listen", 1, EADDRINUSE);
    bool caught = false;
    try {
        id.listen();
    } catch (rdma::error const& e) {
        caught = e.code() == std::errc::address_in_use && std::strstr(e.what(), "rdma_listen") != nullptr;
    }
    if (!caught)
        return "rdma::error was not thrown here and caught here";

    caught = false;
    try {
        rdma::cm_id{}.listen();
    } catch (std::system_error const&) {
        caught = true;
    }
    if (!caught)
        return "rdma::error was not caught as std::system_error";

    fake::fail("rdma_listen", 1, ENOSPC);
    listen_and_drop(std::move(id), ec);
    if (ec != std::errc::no_space_on_device)
        return "the other unit did not report its error";

    id = make_bound_id(channel, ec);
    id.listen();
    listen_and_drop(make_bound_id(channel, ec), ec);
    return nullptr;
}
