// SPDX-License-Identifier: MIT
// What rdma-core 60 has more: where the C headers are older, the members for it do not exist, and its events are known
// all the same. With newer headers they do; see v60, which is built against a stand-in for these.
#include "support.hpp"

using namespace unit;

namespace {

template <class Id>
concept resolves_addrinfo = requires(Id id, std::error_code ec) {
    id.resolve_addrinfo("host", "7471", {});
    id.resolve_addrinfo("host", "7471", {}, ec);
};
template <class Id>
concept queries_addrinfo = requires(Id id) {
    id.query_addrinfo();
};
template <class Id>
concept writes_events = requires(Id id, std::error_code ec) {
    id.write_cm_event(0, 1);
    id.write_cm_event(0, 1, ec);
};
template <class Event>
concept has_user_arg = requires(Event event) {
    event.user_arg();
};

#if defined(RAI_SA) // the one sign of it: there is no version macro
constexpr bool newer = true;
#else
constexpr bool newer = false;
#endif

static_assert(resolves_addrinfo<rdma::cm_id> == newer && queries_addrinfo<rdma::cm_id> == newer);
static_assert(writes_events<rdma::cm_id> == newer && has_user_arg<rdma::cm_event> == newer);

} // namespace

TEST_CASE("newer events are delivered, named and acked as all others", "[newer]") {
    world w;
    rdma::event_channel channel;
    rdma::cm_id id = make_id(channel);
    auto const got = [&](type pushed, int status) {
        fake::push(id.native_handle(), {static_cast<int>(pushed), status});
        return next(channel, pushed);
    };
    CHECK(to_string(got(type::addrinfo_resolved, 0).type()) == "ADDRINFO_RESOLVED");
    rdma::cm_event const failed = got(type::addrinfo_error, ENOENT); // a positive errno
    CHECK(to_string(failed.type()) == "ADDRINFO_ERROR");
    CHECK(failed.error() == std::errc::no_such_file_or_directory);
    rdma::cm_event const user = got(type::user, -7);
    CHECK(to_string(user.type()) == "USER");
    CHECK(user.status() == -7);
    CHECK_FALSE(user.error()); // whatever its writer put there
    CHECK(user.private_data().empty());
    CHECK((user.param() == nullptr && user.ud_param() == nullptr && user.join_context() == nullptr));
    rdma::cm_event const future = got(static_cast<type>(77), 0);
    CHECK(to_string(future.type()) == "event 77");
}
