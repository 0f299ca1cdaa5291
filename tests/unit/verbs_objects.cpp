// SPDX-License-Identifier: MIT
// Every kind of verbs object: made, moved, given to C and taken back, destroyed by name or dropped in any order; what
// an empty handle refuses, what was granted, what a device answers, and the names of it all.
#include "allocations.hpp"
#include "loopback.hpp"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <random>
#include <unordered_set>

#include <sys/wait.h>
#include <unistd.h>

using namespace unit;

namespace {

/// What a flow action is made of.
struct esp {
    ibv_flow_action_esp what{};
    std::uint8_t key[16]{};
    ibv_flow_action_esp_attr attr{};

    esp() {
        attr.esp_attr = &what;
        attr.keymat_len = sizeof key;
        attr.keymat_ptr = key;
    }
    esp(esp const&) = delete;
    esp& operator=(esp const&) = delete;
};

/// A flow of all packets, whose specifications name an action and counters.
struct rule {
    ibv_flow_attr attr{};
    ibv_flow_spec_eth eth{};
    ibv_flow_spec_action_tag tag{};
    ibv_flow_spec_action_handle handle{};
    ibv_flow_spec_counter_action count{};

    rule(rdma::flow_action_ref action, rdma::counters_ref counters) {
        attr.size = sizeof *this;
        attr.num_of_specs = 4;
        attr.port = 1;
        eth.type = IBV_FLOW_SPEC_ETH;
        eth.size = sizeof eth;
        tag = {IBV_FLOW_SPEC_ACTION_TAG, sizeof tag, 3};
        handle = {IBV_FLOW_SPEC_ACTION_HANDLE, sizeof handle, action.native_handle()};
        count = {IBV_FLOW_SPEC_ACTION_COUNT, sizeof count, counters.native_handle()};
    }
};
static_assert(sizeof(rule) == sizeof(ibv_flow_attr) + sizeof(ibv_flow_spec_eth) + sizeof(ibv_flow_spec_action_tag) +
                                  sizeof(ibv_flow_spec_action_handle) + sizeof(ibv_flow_spec_counter_action));

std::error_code of(int code) { return {code, std::system_category()}; }

ibv_gid group_gid() {
    ibv_gid gid{};
    gid.raw[0] = 0xff;
    return gid;
}

/// What objects are made on and with, and how.
struct workshop {
    rdma::context device = open_device();
    rdma::pd pd{device};
    rdma::cq cq{device, 16};
    rdma::xrcd xrcd{device};
    esp action_attr;
    alignas(8) std::array<std::byte, 64> memory{};
    std::array<std::uint8_t, 40> hash_key{};

    rdma::context make_context() const { return rdma::context(device.device()); }
    rdma::td make_td() const { return rdma::td(device); }
    rdma::parent_domain make_parent() const { return rdma::parent_domain(pd); }
    rdma::mr make_mr() { return rdma::mr(pd, memory, every_access); }
    rdma::dm make_dm() const { return rdma::dm(device, 64); }
    rdma::mw make_mw() const { return rdma::mw(pd, rdma::mw_type::type_1); }
    rdma::ah make_ah() const { return rdma::ah(pd, any_peer()); }
    rdma::srq make_srq() const { return rdma::srq(pd); }
    rdma::srq make_xrc_srq(rdma::xrcd_ref domain) const {
        return rdma::srq(pd, rdma::srq_init_attr_ex{.type = rdma::srq_type::xrc, .xrcd = domain, .cq = cq});
    }
    rdma::wq make_wq() const { return rdma::wq(pd, cq, {}); }
    rdma::rwq_ind_table make_table(rdma::wq_ref queue) const {
        return rdma::rwq_ind_table(device, std::array{queue, queue});
    }
    rdma::counters make_counters() const { return rdma::counters(device); }
    rdma::flow_action make_action() const { return rdma::flow_action(device, action_attr.attr); }
    rdma::qp make_qp(rdma::qp_type type = rdma::qp_type::rc) const {
        return rdma::qp(pd, type, rdma::qp_init_attr{.send_cq = cq, .recv_cq = cq});
    }
    rdma::qp make_hashing_qp(rdma::rwq_ind_table_ref table) {
        rdma::qp_init_attr_ex attr{.attr = {.cap = {0, 0, 0, 0, 0}}, .rwq_ind_tbl = table};
        attr.comp_mask = IBV_QP_INIT_ATTR_RX_HASH;
        attr.rx_hash_conf = {IBV_RX_HASH_FUNC_TOEPLITZ, 40, hash_key.data(), IBV_RX_HASH_SRC_IPV4};
        return rdma::qp(pd, rdma::qp_type::raw_packet, attr);
    }
    rdma::qp make_xrc_qp(rdma::xrcd_ref domain) const {
        return rdma::qp(pd, rdma::qp_type::xrc_recv,
                        rdma::qp_init_attr_ex{.attr = {.cap = {0, 0, 0, 0, 0}}, .xrcd = domain});
    }
};

struct objects : featured, workshop {};

/// From birth to death: `make` makes one, and C's function `ends` destroys it.
template <class Make>
void live(char const* ends, Make make) {
    CAPTURE(ends);
    using owner = decltype(make());
    using raw_type = std::remove_pointer_t<decltype(owner().native_handle())>;
    std::size_t const before = fake::count(ends);
    owner one = make(), two = make();
    CHECK(one);
    CHECK(one.native_handle());
    raw_type* const kept = two.native_handle();
    one = std::move(two); // what it held before goes at once
    CHECK(fake::count(ends) == before + 1);
    CHECK(one.native_handle() == kept);
    CHECK_FALSE(two);
    CHECK(two.native_handle() == nullptr);
    owner& same = one;
    one = std::move(same);
    CHECK(one.native_handle() == kept);
    swap(one, two);
    two.swap(one);
    owner moved(std::move(one));
    CHECK(moved.native_handle() == kept);
    CHECK(fake::count(ends) == before + 1);

    std::error_code ec;
    CHECK(thrown([&] { (void)owner(rdma::adopt, kept); }, "adopt") == rdma::errc::already_owned);
    CHECK_FALSE(owner(rdma::adopt, kept, ec));
    CHECK(ec == rdma::errc::already_owned);
    CHECK(thrown([] { (void)owner(rdma::adopt, static_cast<raw_type*>(nullptr)); }) == rdma::errc::null_handle);
    CHECK_FALSE(owner(rdma::adopt, static_cast<raw_type*>(nullptr), ec));
    CHECK(ec == rdma::errc::null_handle);
    std::size_t const calls = calls_made();
    CHECK(moved.release() == kept);
    CHECK_FALSE(moved);
    moved = owner(rdma::adopt, kept, ec);
    CHECK_FALSE(ec);
    CHECK(moved.release() == kept);
    owner back(rdma::adopt, kept);
    CHECK(back.native_handle() == kept);
    CHECK(calls_made() == calls);

    back.destroy();
    CHECK(fake::count(ends) == before + 2);
    CHECK_FALSE(back);
    back.destroy(); // of an empty one nothing happens
    back.destroy(ec);
    CHECK_FALSE(ec);
    CHECK(back.release() == nullptr);
    CHECK(fake::count(ends) == before + 2);
    { owner const dropped = make(); }
    CHECK(fake::count(ends) == before + 3);
}

/// A view of it is a value: equal to others of the same object, and a key.
template <class Ref, class Owner>
void seen(Owner const& owner) {
    Ref const ref = owner, again = owner, raw(owner.native_handle()), empty;
    CHECK(ref);
    CHECK_FALSE(empty);
    CHECK(ref.native_handle() == owner.native_handle());
    CHECK((ref == again && ref == raw && !(ref == empty)));
    CHECK(std::unordered_set<Ref>{ref, again, raw, empty}.size() == 2);
}

/// destroy() by name is refused, in both forms, and C not called.
template <class Owner>
void is_busy(Owner& owner) {
    std::size_t const calls = calls_made();
    CHECK(thrown([&] { owner.destroy(); }) == std::errc::device_or_resource_busy);
    std::error_code ec;
    owner.destroy(ec);
    CHECK(ec == std::errc::device_or_resource_busy);
    CHECK(owner);
    CHECK(calls_made() == calls);
}

/// What `make` makes of a base keeps it, in either order of dropping the two; `ends` is C's, and destroys the base.
template <class MakeBase, class Make>
void keeps(char const* ends, MakeBase make_base, Make make) {
    CAPTURE(ends);
    for (bool const base_first : {true, false}) {
        CAPTURE(base_first);
        auto base = make_base();
        auto dependent = make(base);
        CHECK(static_cast<bool>(dependent));
        is_busy(base);
        void const* const raw = base.native_handle();
        std::size_t const before = fake::count(ends, raw);
        if (base_first) {
            base = decltype(base)();
            CHECK(fake::count(ends, raw) == before);
            dependent = decltype(dependent)();
        } else {
            dependent = decltype(dependent)();
            base.destroy();
        }
        CHECK(fake::count(ends, raw) == before + 1);
    }
}

} // namespace

// ---- What does not compile ------------------------------------------------------------------------------------------

namespace {

/// An owner is moved, never copied; it is not made of what is only borrowed, nor of C's object without a word; and a
/// temporary one gives no view, which would dangle.
template <class Owner, class Ref>
constexpr bool owns =
    std::is_nothrow_move_constructible_v<Owner>&& std::is_nothrow_move_assignable_v<Owner> &&
    !std::is_copy_constructible_v<Owner> && !std::is_copy_assignable_v<Owner> && !std::is_constructible_v<Owner, Ref> &&
    !std::is_constructible_v<Owner, typename Owner::raw_type*> && std::is_convertible_v<Owner&, Ref> &&
    std::is_convertible_v<Owner const&, Ref> && !std::is_convertible_v<Owner, Ref> &&
    !std::is_convertible_v<Owner const, Ref> && !std::is_assignable_v<Owner&, Ref> &&
    std::is_trivially_destructible_v<Ref> && std::is_constructible_v<Owner, rdma::adopt_t, typename Owner::raw_type*>;
static_assert(owns<rdma::context, rdma::context_ref> && owns<rdma::pd, rdma::pd_ref> && owns<rdma::td, rdma::td_ref>);
static_assert(owns<rdma::mr, rdma::mr_ref> && owns<rdma::dm, rdma::dm_ref> && owns<rdma::mw, rdma::mw_ref>);
static_assert(owns<rdma::comp_channel, rdma::comp_channel_ref> && owns<rdma::cq, rdma::cq_ref>);
static_assert(owns<rdma::qp, rdma::qp_ref> && owns<rdma::srq, rdma::srq_ref> && owns<rdma::xrcd, rdma::xrcd_ref>);
static_assert(owns<rdma::ah, rdma::ah_ref> && owns<rdma::wq, rdma::wq_ref>);
static_assert(owns<rdma::rwq_ind_table, rdma::rwq_ind_table_ref> && owns<rdma::counters, rdma::counters_ref>);
static_assert(owns<rdma::flow, rdma::flow_ref> && owns<rdma::flow_action, rdma::flow_action_ref>);
static_assert(!std::is_copy_constructible_v<rdma::cq_ex> && !std::is_convertible_v<rdma::cq_ex, rdma::cq_ref> &&
              !std::is_constructible_v<rdma::cq_ex, ibv_cq_ex*> && !std::is_constructible_v<rdma::cq_ex, rdma::cq_ref>);
// One is made on a pd, and of none of C's by accident.
static_assert(!std::is_copy_constructible_v<rdma::parent_domain> &&
              !std::is_convertible_v<ibv_pd*, rdma::parent_domain>);
static_assert(!std::is_convertible_v<rdma::pd_ref, rdma::parent_domain> &&
              !std::is_convertible_v<rdma::parent_domain, rdma::pd_ref>);
template <class T>
constexpr bool moves = std::is_nothrow_move_constructible_v<T>&& std::is_nothrow_move_assignable_v<T> &&
                       !std::is_copy_constructible_v<T> && !std::is_copy_assignable_v<T>;
static_assert(moves<rdma::device_list> && moves<rdma::mcast> && moves<rdma::registered_buffer>);
template <class T>
constexpr bool stays = !std::is_move_constructible_v<T> && !std::is_move_assignable_v<T>;
static_assert(stays<rdma::wr_batch> && stays<rdma::polling>);

} // namespace

// ---- Life and death -------------------------------------------------------------------------------------------------

TEST_CASE_METHOD(objects, "objects: each kind is made, moved, given to C, taken back, and destroyed once",
                 "[objects]") {
    live("ibv_close_device", [&] { return make_context(); });
    live("ibv_dealloc_pd", [&] { return rdma::pd(device); });
    live("ibv_dealloc_pd", [&] { return make_parent(); });
    live("ibv_dealloc_td", [&] { return make_td(); });
    live("ibv_dereg_mr", [&] { return make_mr(); });
    live("ibv_free_dm", [&] { return make_dm(); });
    live("ibv_dealloc_mw", [&] { return make_mw(); });
    live("ibv_destroy_ah", [&] { return make_ah(); });
    live("ibv_destroy_comp_channel", [&] { return rdma::comp_channel(device); });
    live("ibv_destroy_cq", [&] { return rdma::cq(device, 4); });
    live("ibv_destroy_srq", [&] { return make_srq(); });
    live("ibv_destroy_srq", [&] { return make_xrc_srq(xrcd); });
    live("ibv_close_xrcd", [&] { return rdma::xrcd(device); });
    live("ibv_destroy_qp", [&] { return make_qp(); });
    live("ibv_destroy_qp", [&] { return make_xrc_qp(xrcd); });
    live("ibv_destroy_wq", [&] { return make_wq(); });
    live("ibv_destroy_counters", [&] { return make_counters(); });
    live("ibv_destroy_flow_action", [&] { return make_action(); });
    rdma::wq const queue = make_wq();
    live("ibv_destroy_rwq_ind_table", [&] { return make_table(queue); });
    rdma::qp const datagrams = make_qp(rdma::qp_type::ud);
    live("ibv_destroy_flow", [&] { return rdma::flow(datagrams, any_flow()); });
    rdma::qp const first = make_xrc_qp(xrcd);
    live("ibv_destroy_qp", [&] { return rdma::qp(device, xrcd, first.qp_num(), &memory); });
}

TEST_CASE_METHOD(objects, "objects: views of each kind", "[objects]") {
    seen<rdma::context_ref>(device);
    seen<rdma::pd_ref>(pd);
    seen<rdma::pd_ref>(make_parent());
    seen<rdma::td_ref>(make_td());
    seen<rdma::mr_ref>(make_mr());
    seen<rdma::dm_ref>(make_dm());
    seen<rdma::mw_ref>(make_mw());
    seen<rdma::ah_ref>(make_ah());
    seen<rdma::comp_channel_ref>(rdma::comp_channel(device));
    seen<rdma::cq_ref>(cq);
    seen<rdma::cq_ref>(rdma::cq_ex(device, rdma::cq_init_attr_ex{}));
    seen<rdma::srq_ref>(make_srq());
    seen<rdma::xrcd_ref>(xrcd);
    seen<rdma::qp_ref>(make_qp());
    rdma::wq const queue = make_wq();
    seen<rdma::wq_ref>(queue);
    seen<rdma::rwq_ind_table_ref>(make_table(queue));
    seen<rdma::counters_ref>(make_counters());
    seen<rdma::flow_action_ref>(make_action());
    rdma::qp const datagrams = make_qp(rdma::qp_type::ud);
    seen<rdma::flow_ref>(rdma::flow(datagrams, any_flow()));
    rdma::device_ref const there = device.device(), other;
    CHECK((there == device.device() && !(there == other)));
    CHECK(std::unordered_set<rdma::device_ref>{there, device.device(), other}.size() == 2);
}

TEST_CASE_METHOD(objects, "objects: an extended CQ is a CQ, from birth to death", "[objects]") {
    rdma::cq_ex one(device, rdma::cq_init_attr_ex{.cqe = 4, .user_context = &memory}), two(device, {});
    ibv_cq_ex* const kept = one.native_handle_ex();
    CHECK(::ibv_cq_ex_to_cq(kept) == one.native_handle());
    CHECK(one.native_handle()->cq_context == &memory);
    two = std::move(one);
    CHECK(fake::count("ibv_destroy_cq") == 1);
    CHECK(two.native_handle_ex() == kept);
    CHECK_FALSE(one);
    std::error_code ec;
    CHECK(thrown([&] { (void)rdma::cq_ex(rdma::adopt, kept); }) == rdma::errc::already_owned);
    CHECK_FALSE(rdma::cq_ex(rdma::adopt, kept, ec));
    CHECK(thrown([] { (void)rdma::cq_ex(rdma::adopt, static_cast<ibv_cq_ex*>(nullptr)); }) == rdma::errc::null_handle);
    CHECK(two.release() == ::ibv_cq_ex_to_cq(kept));
    rdma::cq_ex back(rdma::adopt, kept, ec);
    CHECK_FALSE(ec);
    rdma::qp qp(pd, rdma::qp_type::rc, rdma::qp_init_attr{.send_cq = back, .recv_cq = back});
    is_busy(back);
    qp.destroy();
    rdma::cq plain = std::move(back); // and can be handled as one
    CHECK(fake::count("ibv_destroy_cq") == 1);
    plain.destroy();
    CHECK(fake::count("ibv_destroy_cq") == 2);
}

TEST_CASE_METHOD(objects, "objects: what is made of another keeps it, in either order", "[objects]") {
    auto const contexts = [&] { return make_context(); };
    keeps("ibv_close_device", contexts, [](rdma::context& on) { return rdma::pd(on); });
    keeps("ibv_close_device", contexts, [](rdma::context& on) { return rdma::td(on); });
    keeps("ibv_close_device", contexts, [](rdma::context& on) { return rdma::dm(on, 8); });
    keeps("ibv_close_device", contexts, [](rdma::context& on) { return rdma::cq(on, 4); });
    keeps("ibv_close_device", contexts, [](rdma::context& on) { return rdma::cq_ex(on, rdma::cq_init_attr_ex()); });
    keeps("ibv_close_device", contexts, [](rdma::context& on) { return rdma::comp_channel(on); });
    keeps("ibv_close_device", contexts, [](rdma::context& on) { return rdma::xrcd(on); });
    keeps("ibv_close_device", contexts, [](rdma::context& on) { return rdma::counters(on); });
    keeps("ibv_close_device", contexts, [&](rdma::context& on) { return rdma::flow_action(on, action_attr.attr); });

    auto const pds = [&] { return rdma::pd(device); };
    keeps("ibv_dealloc_pd", pds, [&](rdma::pd& on) { return rdma::mr(on, memory, rdma::access::none); });
    keeps("ibv_dealloc_pd", pds, [](rdma::pd& on) { return rdma::mr::alloc_null_mr(on); });
    keeps("ibv_dealloc_pd", pds, [](rdma::pd& on) { return rdma::registered_buffer(on, 8, rdma::access::none); });
    keeps("ibv_dealloc_pd", pds, [](rdma::pd& on) { return rdma::mw(on, rdma::mw_type::type_2); });
    keeps("ibv_dealloc_pd", pds, [](rdma::pd& on) { return rdma::ah(on, any_peer()); });
    keeps("ibv_dealloc_pd", pds, [](rdma::pd& on) { return rdma::srq(on); });
    keeps("ibv_dealloc_pd", pds, [](rdma::pd& on) { return rdma::parent_domain(on); });
    keeps("ibv_dealloc_pd", pds, [&](rdma::pd& on) { return rdma::wq(on, cq, {}); });
    keeps("ibv_dealloc_pd", pds, [&](rdma::pd& on) {
        return rdma::qp(on, rdma::qp_type::rc, rdma::qp_init_attr{.send_cq = cq, .recv_cq = cq});
    });

    keeps(
        "ibv_dealloc_td", [&] { return make_td(); }, [&](rdma::td& of) { return rdma::parent_domain(pd, of); });
    auto const parents = [&] { return make_parent(); };
    keeps("ibv_dealloc_pd", parents, [&](rdma::parent_domain& on) { return rdma::mr(on, memory, every_access); });
    keeps("ibv_dealloc_pd", parents,
          [&](rdma::parent_domain& on) { return rdma::cq_ex(device, rdma::cq_init_attr_ex{.parent_domain = on}); });

    keeps(
        "ibv_destroy_comp_channel", [&] { return rdma::comp_channel(device); },
        [&](rdma::comp_channel& to) { return rdma::cq(device, 4, to); });
    keeps(
        "ibv_destroy_comp_channel", [&] { return rdma::comp_channel(device); },
        [&](rdma::comp_channel& to) { return rdma::cq_ex(device, rdma::cq_init_attr_ex{.channel = to}); });
    auto const cqs = [&] { return rdma::cq(device, 4); };
    keeps("ibv_destroy_cq", cqs, [&](rdma::cq& to) {
        return rdma::qp(pd, rdma::qp_type::rc, rdma::qp_init_attr{.send_cq = to, .recv_cq = cq});
    });
    keeps("ibv_destroy_cq", cqs, [&](rdma::cq& to) {
        return rdma::qp(pd, rdma::qp_type::rc, rdma::qp_init_attr_ex{.attr = {.send_cq = cq, .recv_cq = to}});
    });
    keeps("ibv_destroy_cq", cqs, [&](rdma::cq& to) { return rdma::wq(pd, to, {}); });
    keeps("ibv_destroy_cq", cqs, [&](rdma::cq& to) {
        return rdma::srq(pd, rdma::srq_init_attr_ex{.type = rdma::srq_type::xrc, .xrcd = xrcd, .cq = to});
    });

    keeps(
        "ibv_free_dm", [&] { return make_dm(); },
        [&](rdma::dm& of) { return rdma::reg_dm_mr(pd, of, 8, 8, rdma::access::zero_based); });
    auto const domains = [&] { return rdma::xrcd(device); };
    keeps("ibv_close_xrcd", domains, [&](rdma::xrcd& in) { return make_xrc_srq(in); });
    keeps("ibv_close_xrcd", domains, [&](rdma::xrcd& in) { return make_xrc_qp(in); });
    rdma::qp const first = make_xrc_qp(xrcd);
    {
        std::size_t const before = fake::count("ibv_close_xrcd");
        rdma::qp again(device, xrcd, first.qp_num());
        xrcd = rdma::xrcd();
        CHECK(fake::count("ibv_close_xrcd") == before);
        CHECK(again.qp_num() == first.qp_num());
    }

    auto const srqs = [&] { return make_srq(); };
    keeps("ibv_destroy_srq", srqs, [&](rdma::srq& of) {
        return rdma::qp(pd, rdma::qp_type::rc, rdma::qp_init_attr{.send_cq = cq, .recv_cq = cq, .srq = of});
    });
    keeps("ibv_destroy_srq", srqs, [&](rdma::srq& of) {
        return rdma::qp(pd, rdma::qp_type::rc,
                        rdma::qp_init_attr_ex{.attr = {.send_cq = cq, .recv_cq = cq, .srq = of}});
    });
    keeps(
        "ibv_destroy_wq", [&] { return make_wq(); }, [&](rdma::wq& of) { return make_table(of); });
    rdma::wq const queue = make_wq();
    keeps(
        "ibv_destroy_rwq_ind_table", [&] { return make_table(queue); },
        [&](rdma::rwq_ind_table& of) { return make_hashing_qp(of); });
    auto const datagram_qps = [&] { return make_qp(rdma::qp_type::ud); };
    keeps("ibv_destroy_qp", datagram_qps, [](rdma::qp& to) { return rdma::flow(to, any_flow()); });
    keeps("ibv_destroy_qp", datagram_qps, [](rdma::qp& to) { return rdma::mcast(to, group_gid(), 0); });
    rdma::qp const datagrams = datagram_qps();
    rdma::counters const some = make_counters();
    rdma::flow_action const act = make_action();
    keeps(
        "ibv_destroy_counters", [&] { return make_counters(); },
        [&](rdma::counters& by) { return rdma::flow(datagrams, rule(act, by).attr); });
    keeps(
        "ibv_destroy_flow_action", [&] { return make_action(); },
        [&](rdma::flow_action& by) { return rdma::flow(datagrams, rule(by, some).attr); });
}

namespace {

/// One of each kind, each of which needs several others, with events of some of them held.
struct one_of_each {
    workshop shop;
    rdma::context device = open_device();
    rdma::pd pd{device};
    rdma::td td{device};
    rdma::parent_domain parent{pd, td};
    rdma::comp_channel bell{device};
    rdma::cq cq{device, 16, bell};
    rdma::cq_ex cq_ex{device, rdma::cq_init_attr_ex{.channel = bell, .parent_domain = parent}};
    rdma::dm dm{device, 64};
    rdma::mr mr{parent, shop.memory, every_access};
    rdma::mr on_dm = rdma::reg_dm_mr(pd, dm, 0, 64, rdma::access::zero_based);
    rdma::registered_buffer buffer{pd, 100, every_access};
    rdma::mw mw{pd, rdma::mw_type::type_1};
    rdma::xrcd xrcd{device};
    rdma::srq srq{pd};
    rdma::srq xrc_srq{pd, rdma::srq_init_attr_ex{.type = rdma::srq_type::xrc, .xrcd = xrcd, .cq = cq}};
    rdma::qp qp{parent, rdma::qp_type::rc,
                rdma::qp_init_attr_ex{.attr = {.send_cq = cq, .recv_cq = cq_ex, .srq = srq}}};
    rdma::qp datagrams{pd, rdma::qp_type::ud, rdma::qp_init_attr{.send_cq = cq, .recv_cq = cq}};
    rdma::wq wq{pd, cq, {}};
    rdma::rwq_ind_table table{device, std::array<rdma::wq_ref, 1>{wq}};
    rdma::counters counters{device};
    rdma::flow_action action{device, shop.action_attr.attr};
    rdma::flow flow{datagrams, rule(action, counters).attr};
    rdma::mcast member{datagrams, group_gid(), 0};
    rdma::ah ah{pd, any_peer()};
    rdma::device_list list = rdma::device_list::get();
    rdma::cq_event completion_event;
    rdma::async_event of_wq, of_qp, of_port;
    std::vector<std::function<void()>> drops;

    one_of_each() {
        mw.bind(qp, buffer.region(), 0, 8, rdma::access::remote_read);
        fake::push_cq_event(cq.native_handle());
        completion_event = bell.get();
        fake::push_async(wq.native_handle(), IBV_EVENT_WQ_FATAL);
        of_wq = *device.async_channel().try_get();
        fake::push_async(qp.native_handle(), IBV_EVENT_QP_FATAL);
        of_qp = *device.async_channel().try_get();
        fake::push_async(device.native_handle(), IBV_EVENT_PORT_ERR);
        of_port = *device.async_channel().try_get();
        auto const add = [this](auto&... each) {
            (drops.push_back([&each] { each = std::remove_reference_t<decltype(each)>(); }), ...);
        };
        add(device, pd, td, parent, bell, cq, cq_ex, dm, mr, on_dm, mw, xrcd, srq, xrc_srq, qp, datagrams, wq, table,
            counters, action, flow, member, ah, list, completion_event, of_wq, of_qp, of_port);
    }
    one_of_each(one_of_each const&) = delete;
    one_of_each& operator=(one_of_each const&) = delete;

    void drop(std::vector<std::size_t> const& order) {
        for (std::size_t const each : order)
            drops[each]();
    }
};

} // namespace

TEST_CASE("objects: one of each kind, dropped in many orders", "[objects]") {
    std::mt19937 random(20261130); // the same orders each time
    std::vector<std::size_t> order;
    for (int round = 0; round != 200; ++round) {
        featured w;
        {
            one_of_each all;
            order.resize(all.drops.size());
            for (std::size_t i = 0; i != order.size(); ++i)
                order[i] = round == 0 ? i : round == 1 ? order.size() - 1 - i : order[i];
            if (round > 1)
                std::shuffle(order.begin(), order.end(), random);
            all.drop(order);
            all.buffer = rdma::registered_buffer(); // a window may have been bound to it
            if (fake::live().mws + fake::live().flows + fake::live().tables + fake::live().tds != 0) {
                CAPTURE(round, order);
                CHECK(fake::leaks() == "");
            }
        }
        if (!fake::misuse().empty() || !fake::leaks().empty()) {
            CAPTURE(round, order);
            CHECK(fake::misuse() == std::vector<std::string>{});
            CHECK(fake::leaks() == "");
        }
    }
}

namespace {

/// One of each kind is made and dropped; what was thrown.
std::error_code make_and_drop(unsigned failing = 0) {
    fake::reset();
    fake::set_all_features(true);
    fake::fail_any(failing);
    diagnostics::get().clear();
    try {
        one_of_each const all;
    } catch (rdma::error const& e) {
        return e.code();
    } catch (std::bad_alloc const&) {
        return std::make_error_code(std::errc::not_enough_memory);
    }
    return {};
}

} // namespace

TEST_CASE("objects: each C function of their lives fails once", "[objects]") {
    world w;
    w.messy();
    for (unsigned nth = 1;; ++nth) {
        std::error_code const ec = make_and_drop(nth);
        fake::failure const fault = fake::failed();
        fake::disarm();
        INFO("fault " << nth << " in " << fault.function);
        if (diagnostics::get().count(rdma::diagnostic_kind::destroy_failed) == 0) {
            CHECK(fake::leaks() == "");
            CHECK(fake::misuse() == std::vector<std::string>{});
            CHECK(ec == (fault.function.empty() ? std::error_code() : of(fault.code)));
        }
        CHECK(fake::would_hang() == std::vector<std::string>{});
        if (fault.function.empty()) {
            CHECK(nth > 60);
            break;
        }
    }
}

TEST_CASE("objects: each allocation of their lives fails once", "[objects]") {
    RDMACPP_NEED_ALLOCATIONS();
    world w;
    for (std::size_t nth = 1;; ++nth) {
        std::error_code ec;
        {
            allocation_watch const failing(nth);
            ec = make_and_drop();
        }
        INFO("allocation " << nth);
        CHECK(fake::leaks() == "");
        CHECK(fake::misuse() == std::vector<std::string>{});
        if (!allocation_struck()) {
            CHECK_FALSE(ec);
            CHECK(nth > 30);
            break;
        }
        CHECK(ec == std::errc::not_enough_memory);
    }
}

TEST_CASE("objects: what C gives back can be dropped in any order again", "[objects]") {
    // Adopted in any order: what C remembers of an object's making is kept again.
    std::array<int, 5> order{0, 1, 2, 3, 4};
    do {
        featured w;
        workshop shop;
        rdma::pd pd(shop.device);
        rdma::cq cq(shop.device, 4);
        rdma::srq srq(pd);
        rdma::wq wq(pd, cq, {});
        rdma::qp qp(pd, rdma::qp_type::rc, rdma::qp_init_attr{.send_cq = cq, .recv_cq = cq, .srq = srq});
        auto* const raw_pd = pd.release();
        auto* const raw_cq = cq.release();
        auto* const raw_srq = srq.release();
        auto* const raw_wq = wq.release();
        auto* const raw_qp = qp.release();
        pd = rdma::pd(rdma::adopt, raw_pd);
        cq = rdma::cq(rdma::adopt, raw_cq);
        srq = rdma::srq(rdma::adopt, raw_srq);
        wq = rdma::wq(rdma::adopt, raw_wq);
        qp = rdma::qp(rdma::adopt, raw_qp);
        for (int const each : order)
            switch (each) {
            case 0: pd = {}; break;
            case 1: cq = {}; break;
            case 2: srq = {}; break;
            case 3: wq = {}; break;
            case 4: qp = {}; break;
            }
        CHECK(fake::live().pds == 1); // the workshop's
    } while (std::next_permutation(order.begin(), order.end()));
}

TEST_CASE_METHOD(objects, "objects: a released table keeps its queues no longer", "[objects]") {
    rdma::wq queue = make_wq(), other = make_wq();
    rdma::rwq_ind_table table = make_table(queue), failing = make_table(other);
    CHECK(::ibv_destroy_rwq_ind_table(table.release()) == 0);
    queue = rdma::wq();
    CHECK(fake::live().wqs == 1);
    SECTION("nor does one that comes back, once it is gone") {
        rdma::rwq_ind_table back(rdma::adopt, failing.release());
        back.destroy();
        other.destroy();
    }
    SECTION("nor does one whose destroy failed") {
        messy();
        fake::fail("ibv_destroy_rwq_ind_table", 1, EIO);
        failing = rdma::rwq_ind_table();
        other = rdma::wq();
        CHECK(fake::count("ibv_destroy_wq") == 2); // in vain, and no later
    }
}

TEST_CASE("objects: in a forked child nothing is destroyed", "[objects]") {
    featured w;
    auto all = std::make_unique<one_of_each>();
    bool const by_release = GENERATE(false, true);
    auto const before = fake::live();
    std::size_t const calls = calls_made();
    pid_t const child = ::fork();
    if (child == 0) {
        ::alarm(20); // it needs no time at all
        if (by_release) {
            (void)all->qp.release();
            (void)all->mr.release();
            (void)all->device.release();
            (void)all->list.release();
        }
        auto* const list = all->list.release(); // C's memory, which is freed
        if (list)
            ::ibv_free_device_list(list);
        std::size_t const freed = list ? 1 : 0;
        all.reset();
        ::_exit(calls_made() == calls + freed ? 0 : 1);
    }
    int status = -1;
    REQUIRE(::waitpid(child, &status, 0) == child);
    CHECK(status == 0);
    CHECK(fake::live() == before);
    CHECK(all->buffer.bytes()[0] == std::byte{}); // still there
}

TEST_CASE_METHOD(objects, "objects: a destroy that fails is told once, and leaves nothing that asks for more",
                 "[objects]") {
    messy();
    char const* const ends = GENERATE(values<char const*>(
        {"ibv_close_device", "ibv_dealloc_td", "ibv_free_dm", "ibv_dealloc_mw", "ibv_destroy_ah", "ibv_close_xrcd",
         "ibv_destroy_srq", "ibv_destroy_wq", "ibv_destroy_rwq_ind_table", "ibv_destroy_counters",
         "ibv_destroy_flow_action", "ibv_destroy_flow", "ibv_detach_mcast"}));
    CAPTURE(ends);
    {
        one_of_each all;
        fake::fail(ends, 1, EIO);
        std::vector<std::size_t> order(all.drops.size());
        for (std::size_t i = 0; i != order.size(); ++i)
            order[i] = order.size() - 1 - i;
        all.drop(order);
    }
    CHECK(fake::failed().function == ends);
    std::size_t of_it = 0;
    for (rdma::diagnostic const& each : told())
        if (each.function == std::string(ends) && each.kind == rdma::diagnostic_kind::destroy_failed &&
            each.error == std::errc::io_error)
            ++of_it;
    CHECK(of_it == 1);
    CHECK(fake::would_hang().empty());
}

TEST_CASE_METHOD(objects, "objects: destroyed by name in vain, an object stays as it was", "[objects]") {
    auto const in_vain = [](char const* ends, auto object) {
        CAPTURE(ends);
        auto* const raw = object.native_handle();
        fake::fail(ends, 1, EIO);
        CHECK(thrown([&] { object.destroy(); }, ends) == std::errc::io_error);
        CHECK(object.native_handle() == raw);
        object.destroy();
        CHECK_FALSE(object);
    };
    in_vain("ibv_close_device", make_context());
    in_vain("ibv_dealloc_td", make_td());
    in_vain("ibv_free_dm", make_dm());
    in_vain("ibv_dealloc_mw", make_mw());
    in_vain("ibv_destroy_wq", make_wq());
    in_vain("ibv_destroy_counters", make_counters());
    in_vain("ibv_destroy_flow_action", make_action());
    rdma::qp const datagrams = make_qp(rdma::qp_type::ud);
    in_vain("ibv_destroy_flow", rdma::flow(datagrams, any_flow()));
    rdma::wq const queue = make_wq();
    in_vain("ibv_destroy_rwq_ind_table", make_table(queue));
    CHECK(told().empty());
}

// ---- Empty handles --------------------------------------------------------------------------------------------------

TEST_CASE_METHOD(objects, "objects: an empty handle is refused before C is called", "[objects]") {
    auto const refused = [](std::error_code wanted, int line, auto&& throwing, auto&& twin) {
        CAPTURE(line);
        std::size_t const calls = calls_made();
        CHECK(thrown(throwing) == wanted);
        std::error_code ec;
        twin(ec);
        CHECK(ec == wanted);
        CHECK(calls_made() == calls);
    };
    using ec_ref = std::error_code&;
    std::error_code const unbound = rdma::errc::not_bound, empty = rdma::errc::empty_handle;
    rdma::context_ref const nowhere;
    rdma::pd_ref const unprotected;
    auto const makes = [&](int line, auto throwing, auto twin) { refused(unbound, line, throwing, twin); };
    makes(
        __LINE__, [] { (void)rdma::context(rdma::device_ref()); },
        [](ec_ref ec) { CHECK_FALSE(rdma::context(rdma::device_ref(), ec)); });
    makes(
        __LINE__, [&] { (void)rdma::pd(nowhere); }, [&](ec_ref ec) { CHECK_FALSE(rdma::pd(nowhere, ec)); });
    makes(
        __LINE__, [&] { (void)rdma::pd::import_pd(nowhere, 1); },
        [&](ec_ref ec) { CHECK_FALSE(rdma::pd::import_pd(nowhere, 1, ec)); });
    makes(
        __LINE__, [&] { (void)rdma::td(nowhere); }, [&](ec_ref ec) { CHECK_FALSE(rdma::td(nowhere, ec)); });
    makes(
        __LINE__, [&] { (void)rdma::parent_domain(unprotected); },
        [&](ec_ref ec) { CHECK_FALSE(rdma::parent_domain(unprotected, {}, ec)); });
    makes(
        __LINE__, [&] { (void)rdma::parent_domain(unprotected, {}, {}); },
        [&](ec_ref ec) { CHECK_FALSE(rdma::parent_domain(unprotected, {}, {}, ec)); });
    makes(
        __LINE__, [&] { (void)rdma::mr(unprotected, memory, rdma::access::none); },
        [&](ec_ref ec) { CHECK_FALSE(rdma::mr(unprotected, memory, rdma::access::none, ec)); });
    makes(
        __LINE__, [&] { (void)rdma::mr::reg_mr_iova(unprotected, memory, 0, rdma::access::none); },
        [&](ec_ref ec) { CHECK_FALSE(rdma::mr::reg_mr_iova(unprotected, memory, 0, rdma::access::none, ec)); });
    makes(
        __LINE__, [&] { (void)rdma::mr::reg_implicit(unprotected, rdma::access::none); },
        [&](ec_ref ec) { CHECK_FALSE(rdma::mr::reg_implicit(unprotected, rdma::access::none, ec)); });
    makes(
        __LINE__, [&] { (void)rdma::mr::reg_dmabuf_mr(unprotected, 0, 8, 0, 0, rdma::access::none); },
        [&](ec_ref ec) { CHECK_FALSE(rdma::mr::reg_dmabuf_mr(unprotected, 0, 8, 0, 0, rdma::access::none, ec)); });
    makes(
        __LINE__, [&] { (void)rdma::mr::alloc_null_mr(unprotected); },
        [&](ec_ref ec) { CHECK_FALSE(rdma::mr::alloc_null_mr(unprotected, ec)); });
    makes(
        __LINE__, [&] { (void)rdma::mr::import_mr(unprotected, 1); },
        [&](ec_ref ec) { CHECK_FALSE(rdma::mr::import_mr(unprotected, 1, ec)); });
    makes(
        __LINE__, [&] { (void)rdma::registered_buffer(unprotected, 8, rdma::access::none); },
        [&](ec_ref ec) { CHECK_FALSE(rdma::registered_buffer(unprotected, 8, rdma::access::none, ec)); });
    makes(
        __LINE__, [&] { rdma::advise_mr(unprotected, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, {}); },
        [&](ec_ref ec) { rdma::advise_mr(unprotected, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, {}, ec); });
    makes(
        __LINE__, [&] { (void)rdma::dm(nowhere, 8); }, [&](ec_ref ec) { CHECK_FALSE(rdma::dm(nowhere, 8, 0, ec)); });
    makes(
        __LINE__, [&] { (void)rdma::dm::import_dm(nowhere, 1); },
        [&](ec_ref ec) { CHECK_FALSE(rdma::dm::import_dm(nowhere, 1, ec)); });
    makes(
        __LINE__, [&] { (void)rdma::mw(unprotected, rdma::mw_type::type_1); },
        [&](ec_ref ec) { CHECK_FALSE(rdma::mw(unprotected, rdma::mw_type::type_1, ec)); });
    makes(
        __LINE__, [&] { (void)rdma::ah(unprotected, any_peer()); },
        [&](ec_ref ec) { CHECK_FALSE(rdma::ah(unprotected, any_peer(), ec)); });
    makes(
        __LINE__, [&] { (void)rdma::comp_channel(nowhere); },
        [&](ec_ref ec) { CHECK_FALSE(rdma::comp_channel(nowhere, ec)); });
    makes(
        __LINE__, [&] { (void)rdma::cq(nowhere, 1); }, [&](ec_ref ec) { CHECK_FALSE(rdma::cq(nowhere, 1, ec)); });
    makes(
        __LINE__, [&] { (void)rdma::cq_ex(nowhere, {}); },
        [&](ec_ref ec) { CHECK_FALSE(rdma::cq_ex(nowhere, {}, ec)); });
    makes(
        __LINE__, [&] { (void)rdma::xrcd(nowhere); }, [&](ec_ref ec) { CHECK_FALSE(rdma::xrcd(nowhere, ec)); });
    makes(
        __LINE__, [&] { (void)rdma::srq(unprotected); }, [&](ec_ref ec) { CHECK_FALSE(rdma::srq(unprotected, ec)); });
    makes(
        __LINE__, [&] { (void)rdma::srq(unprotected, rdma::srq_init_attr_ex()); },
        [&](ec_ref ec) { CHECK_FALSE(rdma::srq(unprotected, rdma::srq_init_attr_ex(), ec)); });
    makes(
        __LINE__, [&] { (void)rdma::qp(unprotected, rdma::qp_type::rc, rdma::qp_init_attr()); },
        [&](ec_ref ec) { CHECK_FALSE(rdma::qp(unprotected, rdma::qp_type::rc, rdma::qp_init_attr(), ec)); });
    makes(
        __LINE__, [&] { (void)rdma::qp(unprotected, rdma::qp_type::rc, rdma::qp_init_attr_ex()); },
        [&](ec_ref ec) { CHECK_FALSE(rdma::qp(unprotected, rdma::qp_type::rc, rdma::qp_init_attr_ex(), ec)); });
    makes(
        __LINE__, [&] { (void)rdma::qp(nowhere, xrcd, 1); },
        [&](ec_ref ec) { CHECK_FALSE(rdma::qp(nowhere, xrcd, 1, nullptr, ec)); });
    makes(
        __LINE__, [&] { (void)rdma::wq(unprotected, cq, {}); },
        [&](ec_ref ec) { CHECK_FALSE(rdma::wq(unprotected, cq, {}, ec)); });
    makes(
        __LINE__, [&] { (void)rdma::counters(nowhere); }, [&](ec_ref ec) { CHECK_FALSE(rdma::counters(nowhere, ec)); });
    makes(
        __LINE__, [&] { (void)rdma::flow_action(nowhere, action_attr.attr); },
        [&](ec_ref ec) { CHECK_FALSE(rdma::flow_action(nowhere, action_attr.attr, ec)); });
    rdma::wq queue = make_wq();
    std::array<rdma::wq_ref, 1> const queues{queue};
    makes(
        __LINE__, [&] { (void)rdma::rwq_ind_table(nowhere, queues); },
        [&](ec_ref ec) { CHECK_FALSE(rdma::rwq_ind_table(nowhere, queues, ec)); });

    auto const asks = [&](int line, auto throwing, auto twin) { refused(empty, line, throwing, twin); };
    rdma::context none;
    asks(
        __LINE__, [&] { (void)none.query_device(); }, [&](ec_ref ec) { (void)none.query_device(ec); });
    asks(
        __LINE__, [&] { (void)none.query_device_ex(); }, [&](ec_ref ec) { (void)none.query_device_ex(ec); });
    asks(
        __LINE__, [&] { (void)none.query_port(1); }, [&](ec_ref ec) { (void)none.query_port(1, ec); });
    asks(
        __LINE__, [&] { (void)nowhere.query_gid(1, 0); }, [&](ec_ref ec) { (void)nowhere.query_gid(1, 0, ec); });
    asks(
        __LINE__, [&] { (void)nowhere.query_gid_ex(1, 0); }, [&](ec_ref ec) { (void)nowhere.query_gid_ex(1, 0, ec); });
    asks(
        __LINE__, [&] { (void)none.query_gid_table({}); }, [&](ec_ref ec) { (void)none.query_gid_table({}, ec); });
    asks(
        __LINE__, [&] { (void)none.query_pkey(1, 0); }, [&](ec_ref ec) { (void)none.query_pkey(1, 0, ec); });
    asks(
        __LINE__, [&] { (void)none.get_pkey_index(1, 0); }, [&](ec_ref ec) { (void)none.get_pkey_index(1, 0, ec); });
    asks(
        __LINE__, [&] { (void)none.query_raw_clock(); }, [&](ec_ref ec) { (void)none.query_raw_clock(ec); });
    rdma::mr no_mr;
    asks(
        __LINE__, [&] { no_mr.rereg(IBV_REREG_MR_CHANGE_PD, pd, {}, rdma::access::none); },
        [&](ec_ref ec) { no_mr.rereg(IBV_REREG_MR_CHANGE_PD, pd, {}, rdma::access::none, ec); });
    rdma::dm no_dm;
    asks(
        __LINE__, [&] { no_dm.copy_to(0, memory); }, [&](ec_ref ec) { no_dm.copy_to(0, memory, ec); });
    asks(
        __LINE__, [&] { no_dm.copy_from(0, memory); }, [&](ec_ref ec) { no_dm.copy_from(0, memory, ec); });
    rdma::qp no_qp;
    asks(
        __LINE__, [&] { (void)no_qp.query(0); }, [&](ec_ref ec) { (void)no_qp.query(0, ec); });
    asks(
        __LINE__, [&] { no_qp.modify({}, 0); }, [&](ec_ref ec) { no_qp.modify({}, 0, ec); });
    asks(
        __LINE__, [&] { no_qp.modify_rate_limit({}); }, [&](ec_ref ec) { no_qp.modify_rate_limit({}, ec); });
    asks(
        __LINE__, [&] { (void)no_qp.query_ece(); }, [&](ec_ref ec) { (void)no_qp.query_ece(ec); });
    asks(
        __LINE__, [&] { no_qp.set_ece({}); }, [&](ec_ref ec) { no_qp.set_ece({}, ec); });
    asks(
        __LINE__, [&] { (void)no_qp.drain(1ms, [](auto const&) {}); },
        [&](ec_ref ec) {
            (void)no_qp.drain(
                1ms, [](auto const&) {}, ec);
        });
    asks(
        __LINE__, [&] { (void)rdma::flow(no_qp, any_flow()); },
        [&](ec_ref ec) { CHECK_FALSE(rdma::flow(no_qp, any_flow(), ec)); });
    asks(
        __LINE__, [&] { (void)rdma::mcast(no_qp, group_gid(), 0); },
        [&](ec_ref ec) { CHECK_FALSE(rdma::mcast(no_qp, group_gid(), 0, ec)); });
    rdma::cq no_cq;
    asks(
        __LINE__, [&] { no_cq.resize(4); }, [&](ec_ref ec) { no_cq.resize(4, ec); });
    asks(
        __LINE__, [&] { no_cq.moderate(1, 1); }, [&](ec_ref ec) { no_cq.moderate(1, 1, ec); });
    rdma::srq no_srq;
    asks(
        __LINE__, [&] { (void)no_srq.query(); }, [&](ec_ref ec) { (void)no_srq.query(ec); });
    asks(
        __LINE__, [&] { no_srq.set_limit(1); }, [&](ec_ref ec) { no_srq.set_limit(1, ec); });
    asks(
        __LINE__, [&] { no_srq.resize(1); }, [&](ec_ref ec) { no_srq.resize(1, ec); });
    asks(
        __LINE__, [&] { (void)no_srq.srq_num(); }, [&](ec_ref ec) { (void)no_srq.srq_num(ec); });
    rdma::wq no_wq;
    asks(
        __LINE__, [&] { no_wq.modify(rdma::wq_state::rdy); },
        [&](ec_ref ec) { no_wq.modify(rdma::wq_state::rdy, ec); });
    asks(
        __LINE__, [&] { no_wq.modify(ibv_wq_attr()); }, [&](ec_ref ec) { no_wq.modify(ibv_wq_attr(), ec); });
    rdma::counters no_counters;
    asks(
        __LINE__, [&] { no_counters.read({}); }, [&](ec_ref ec) { no_counters.read({}, 0, ec); });
    rdma::flow no_flow;
    asks(
        __LINE__, [&] { no_flow.attach(no_counters, {}); }, [&](ec_ref ec) { no_flow.attach(no_counters, {}, ec); });
    rdma::flow_action no_action;
    asks(
        __LINE__, [&] { no_action.modify(action_attr.attr); },
        [&](ec_ref ec) { no_action.modify(action_attr.attr, ec); });
    // What something else is made of, or with.
    makes(
        __LINE__, [&] { (void)rdma::wq(pd, no_cq, {}); }, [&](ec_ref ec) { CHECK_FALSE(rdma::wq(pd, no_cq, {}, ec)); });
    std::array<rdma::wq_ref, 2> const hole{queue, no_wq};
    makes(
        __LINE__, [&] { (void)rdma::rwq_ind_table(device, hole); },
        [&](ec_ref ec) { CHECK_FALSE(rdma::rwq_ind_table(device, hole, ec)); });
    makes(
        __LINE__, [&] { (void)rdma::reg_dm_mr(pd, no_dm, 0, 8, rdma::access::zero_based); },
        [&](ec_ref ec) { CHECK_FALSE(rdma::reg_dm_mr(pd, no_dm, 0, 8, rdma::access::zero_based, ec)); });
    makes(
        __LINE__, [&] { (void)rdma::qp(device, rdma::xrcd_ref(), 1); },
        [&](ec_ref ec) { CHECK_FALSE(rdma::qp(device, rdma::xrcd_ref(), 1, nullptr, ec)); });

    CHECK((no_qp.qp_num() == 0 && no_wq.wq_num() == 0 && no_cq.cqe() == 0 && no_qp.cap().max_send_wr == 0));
    CHECK((no_mr.addr() == nullptr && no_mr.length() == 0 && no_srq.cap().max_wr == 0 && no_wq.cap().max_wr == 0));
    CHECK_FALSE(no_qp.data_in_order(IBV_WR_SEND));
    CHECK((none.device_name().empty() && none.transport() == rdma::transport_type::unknown && !none.device()));
    rdma::device_ref const nothing;
    CHECK((nothing.name().empty() && nothing.index() == -1 && nothing.guid() == 0));
    CHECK((nothing.node_type() == rdma::node_type::unknown && nothing.transport() == rdma::transport_type::unknown));
    rdma::mcast no_member;
    no_member.detach();
    CHECK_FALSE(no_member);
    CHECK(fake::count("ibv_detach_mcast") == 0);
}

// ---- Devices --------------------------------------------------------------------------------------------------------

TEST_CASE("devices: a list is a range, moved, given to C, and freed once", "[objects]") {
    world w;
    rdma::device_list list = rdma::device_list::get();
    CHECK(list.size() == 2);
    CHECK_FALSE(list.empty());
    std::vector<std::string> names;
    for (rdma::device_ref const device : list)
        names.emplace_back(device.name());
    CHECK(names == std::vector<std::string>{"rxe0", "siw0"});
    CHECK(std::distance(list.begin(), list.end()) == 2);
    CHECK(list.find("siw0") == list[1]);
    CHECK_FALSE(list.find("rxe"));
    CHECK(list.native_handle()[2] == nullptr);
    rdma::device_list other = std::move(list);
    CHECK((list.empty() && !list && list.begin() == list.end()));
    list = std::move(other);
    swap(list, other);
    CHECK((other.size() == 2 && list.empty()));
    other = rdma::device_list::get();
    CHECK(fake::count("ibv_free_device_list") == 1);
    ibv_device** const raw = other.release();
    CHECK((other.empty() && other.release() == nullptr));
    ::ibv_free_device_list(raw);
    fake::set_devices_present(false);
    CHECK(thrown([] { (void)rdma::device_list::get(); }, "ibv_get_device_list") == std::errc::function_not_supported);
}

TEST_CASE("devices: what one is, opened or not", "[objects]") {
    featured w;
    rdma::device_list const list = rdma::device_list::get();
    rdma::device_ref const rxe = list.find("rxe0"), siw = list.find("siw0");
    CHECK((rxe.node_type() == rdma::node_type::ca && siw.node_type() == rdma::node_type::rnic));
    CHECK((rxe.transport() == rdma::transport_type::ib && siw.transport() == rdma::transport_type::iwarp));
    CHECK(rxe.index() == ::ibv_get_device_index(rxe.native_handle()));
    CHECK(rxe.guid() == ::ibv_get_device_guid(rxe.native_handle()));
    CHECK((rxe.guid() != siw.guid() && rxe.index() != siw.index()));
    rdma::context const opened(rxe);
    CHECK(opened.device() == rxe);
    CHECK(opened.device_name() == "rxe0");
    CHECK(rdma::context_ref(opened).transport() == rdma::transport_type::ib);
    CHECK(opened.native_handle() != fake::rxe_context());
}

TEST_CASE_METHOD(objects, "devices: the answers are values", "[objects]") {
    ibv_device_attr const attr = device.query_device();
    CHECK((attr.max_qp == 65536 && attr.phys_port_cnt == 1));
    ibv_device_attr_ex const more = device.query_device_ex();
    CHECK((more.orig_attr.max_qp == 65536 && more.max_dm_size == 0x20000 && more.tm_caps.max_num_tags == 127));
    CHECK((more.odp_caps.general_caps & IBV_ODP_SUPPORT_IMPLICIT) != 0);
    CHECK((more.completion_timestamp_mask != 0 && more.packet_pacing_caps.qp_rate_limit_max == 100'000'000));
    ibv_port_attr const port = device.query_port(1);
    CHECK(rdma::port_state(port.state) == rdma::port_state::active);
    CHECK(rdma::mtu(port.active_mtu) == rdma::mtu::mtu_1024);
    CHECK(port.link_layer == IBV_LINK_LAYER_ETHERNET);
    CHECK(thrown([&] { (void)device.query_port(2); }, "rxe0") == std::errc::invalid_argument);

    std::array<ibv_gid_entry, 16> into{};
    auto const gids = device.query_gid_table(into);
    REQUIRE(gids.size() >= 2);
    CHECK(gids.data() == into.data());
    for (ibv_gid_entry const& each : gids) {
        ibv_gid const gid = device.query_gid(1, static_cast<int>(each.gid_index));
        CHECK(std::memcmp(&gid, &each.gid, sizeof gid) == 0);
        ibv_gid_entry const entry = device.query_gid_ex(1, each.gid_index);
        CHECK(std::memcmp(&entry.gid, &each.gid, sizeof gid) == 0);
        CHECK((entry.gid_type == each.gid_type && entry.port_num == 1));
    }
    CHECK(thrown([&] { (void)device.query_gid_table(std::span(into).first(1)); }) == std::errc::invalid_argument);
    std::error_code ec;
    CHECK(device.query_gid_table(std::span(into).first(0), ec).empty());
    CHECK(ec == std::errc::invalid_argument);
    (void)device.query_gid_ex(1, 999, ec);
    CHECK(ec.value() == ENODATA); // not in use
    CHECK(device.query_pkey(1, 0) == 0xffff);
    CHECK(device.get_pkey_index(1, 0xffff) == 0);
    CHECK(device.get_pkey_index(1, 7, ec) == -1);
    CHECK(ec == std::errc::invalid_argument);
    std::uint64_t const now = device.query_raw_clock();
    CHECK((now > 0 && device.query_raw_clock() >= now));
}

TEST_CASE("devices: what a device cannot do, it says", "[objects]") {
    world w;
    rdma::context const device = open_device(GENERATE(as<char const*>(), "rxe0", "siw0"));
    rdma::pd const pd(device);
    rdma::cq const cq(device, 4);
    esp const action;
    auto const unsupported = [](auto&& f) { CHECK(thrown(f) == std::error_code(EOPNOTSUPP, std::system_category())); };
    unsupported([&] { (void)rdma::td(device); });
    unsupported([&] { (void)rdma::parent_domain(pd); });
    unsupported([&] { (void)rdma::dm(device, 8); });
    unsupported([&] { (void)rdma::mr::alloc_null_mr(pd); });
    unsupported([&] { (void)rdma::mr::reg_dmabuf_mr(pd, 0, 8, 0, 0, rdma::access::none); });
    unsupported([&] { rdma::advise_mr(pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, {}); });
    unsupported([&] { (void)rdma::wq(pd, cq, {}); });
    unsupported([&] { (void)rdma::counters(device); });
    unsupported([&] { (void)rdma::flow_action(device, action.attr); });
    unsupported([&] { (void)rdma::xrcd(device); });
    unsupported([&] { (void)device.query_raw_clock(); });
    unsupported([&] { cq.moderate(1, 1); });
    unsupported([&] { (void)rdma::pd::import_pd(device, 1); });
    unsupported([&] { (void)rdma::dm::import_dm(device, 1); });
    unsupported([&] { (void)rdma::mr::import_mr(pd, 1); });
}

TEST_CASE_METHOD(objects, "objects: imported from another process, and forgotten rather than destroyed", "[objects]") {
    rdma::context other = rdma::context::import_device(device.native_handle()->cmd_fd);
    CHECK(other.device_name() == "rxe0");
    CHECK(other.native_handle() != device.native_handle());
    rdma::mr const mr = make_mr();
    rdma::dm const dm = make_dm();
    std::uint32_t const pd_handle = pd.native_handle()->handle, mr_handle = mr.native_handle()->handle,
                        dm_handle = fake::handle_of(dm.native_handle());
    live("ibv_unimport_pd", [&] { return rdma::pd::import_pd(other, pd_handle); });
    live("ibv_unimport_dm", [&] { return rdma::dm::import_dm(other, dm_handle); });
    auto const pds = [&] { return rdma::pd::import_pd(other, pd_handle); };
    keeps("ibv_unimport_pd", pds, [&](rdma::pd& on) { return rdma::mr::import_mr(on, mr_handle); });
    keeps(
        "ibv_close_device", [&] { return rdma::context::import_device(device.native_handle()->cmd_fd); },
        [&](rdma::context& on) { return rdma::dm::import_dm(on, dm_handle); });
    {
        rdma::pd const same = pds();
        live("ibv_unimport_mr", [&] { return rdma::mr::import_mr(same, mr_handle); });
        rdma::mr const region = rdma::mr::import_mr(same, mr_handle);
        CHECK((region.lkey() == mr.lkey() && region.length() == mr.length()));
        CHECK(thrown([&] { (void)rdma::mr::import_mr(same, 0xffff); }, "ibv_import_mr") ==
              std::errc::no_such_file_or_directory);
    }
    rdma::dm const memory_too = rdma::dm::import_dm(other, dm_handle);
    dm.copy_to(8, std::as_bytes(std::span("kept")));
    std::array<char, 4> text{};
    memory_too.copy_from(8, std::as_writable_bytes(std::span(text)));
    CHECK(std::string(text.data(), 4) == "kept");
    CHECK(thrown([] { (void)rdma::context::import_device(-1); }, "ibv_import_device") ==
          std::errc::bad_file_descriptor);
    CHECK(fake::count("ibv_dereg_mr") == 0);
    CHECK(fake::count("ibv_free_dm") == 0);
}

// ---- What was asked for, and what was granted -----------------------------------------------------------------------

TEST_CASE_METHOD(objects, "objects: attributes are passed on whole, and never written to", "[objects]") {
    rdma::qp_init_attr const attr{.send_cq = cq, .recv_cq = cq, .cap = {3, 5, 2, 1, 20}, .user_context = &memory};
    rdma::qp const qp(pd, rdma::qp_type::rc, attr);
    CHECK(attr.cap.max_inline_data == 20);
    CHECK((qp.cap().max_send_wr >= 3 && qp.cap().max_recv_wr >= 5 && qp.cap().max_send_sge >= 2));
    CHECK(qp.cap().max_inline_data >= 20);
    CHECK(qp.native_handle()->qp_context == &memory);
    ibv_qp_attr const real = qp.query(IBV_QP_CAP);
    CHECK((real.cap.max_send_wr == qp.cap().max_send_wr && real.cap.max_inline_data == qp.cap().max_inline_data));

    rdma::qp_init_attr_ex const more{.attr = attr, .send_ops_flags = IBV_QP_EX_WITH_SEND};
    rdma::qp const writes(pd, rdma::qp_type::rc, more);
    CHECK(writes.cap().max_send_wr >= 3);
    CHECK(writes.ex());
    CHECK_FALSE(qp.ex());

    rdma::srq const srq(pd, rdma::srq_init_attr{.max_wr = 7, .max_sge = 2, .srq_limit = 3, .user_context = &cq});
    CHECK((srq.cap().max_wr >= 7 && srq.cap().max_sge >= 2 && srq.cap().user_context == &cq));
    CHECK(srq.query().max_wr == srq.cap().max_wr);
    rdma::srq const matching(pd, rdma::srq_init_attr_ex{.attr = {.max_wr = 4},
                                                        .type = rdma::srq_type::tm,
                                                        .cq = cq,
                                                        .tm_cap = {.max_num_tags = 2, .max_ops = 4}});
    CHECK((matching.cap().max_wr >= 4 && matching.srq_num() != 0));

    rdma::wq wq(
        pd, cq,
        rdma::wq_init_attr{.max_wr = 5, .max_sge = 2, .create_flags = IBV_WQ_FLAGS_DELAY_DROP, .user_context = &pd});
    CHECK((wq.cap().max_wr >= 5 && wq.cap().max_sge >= 2));
    CHECK((wq.native_handle()->wq_context == &pd && wq.wq_num() == wq.native_handle()->wq_num));
    wq = rdma::wq(rdma::adopt, wq.release());
    CHECK(wq.cap().max_wr >= 5); // it was ours all the time

    rdma::qp const back(rdma::adopt, ::ibv_create_qp(pd.native_handle(), [&] {
                            static ibv_qp_init_attr c{};
                            c = {};
                            c.send_cq = c.recv_cq = cq.native_handle();
                            c.cap = {4, 4, 1, 1, 0};
                            c.qp_type = IBV_QPT_RC;
                            return &c;
                        }()));
    CHECK((back.cap().max_send_wr == 0 && back.query(IBV_QP_CAP).cap.max_send_wr >= 4)); // C's: only it knows

    rdma::xrcd const domain(device);
    rdma::qp const first = make_xrc_qp(domain);
    rdma::qp const again(device, domain, first.qp_num(), &memory);
    CHECK((again.native_handle()->qp_context == &memory && again.cap().max_recv_wr == 0));
    CHECK(again.qp_type() == rdma::qp_type::xrc_recv);
}

TEST_CASE_METHOD(objects, "objects: every flag of an extended QP gets to C", "[objects]") {
    rdma::qp_init_attr_ex attr{.attr = {.send_cq = cq, .recv_cq = cq},
                               .create_flags = IBV_QP_CREATE_SCATTER_FCS,
                               .max_tso_header = 40,
                               .send_ops_flags = IBV_QP_EX_WITH_TSO};
    rdma::qp const raw(pd, rdma::qp_type::raw_packet, attr);
    CHECK(fake::count("ibv_create_qp_ex") == 1);
    ibv_qp_init_attr_ex const c = rdma::detail::to_c(attr, IBV_QPT_RAW_PACKET);
    CHECK((c.comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS) != 0);
    CHECK((c.comp_mask & IBV_QP_INIT_ATTR_MAX_TSO_HEADER) != 0);
    CHECK((c.create_flags == IBV_QP_CREATE_SCATTER_FCS && c.max_tso_header == 40));
    attr.rx_hash_conf = {IBV_RX_HASH_FUNC_TOEPLITZ, 40, hash_key.data(), IBV_RX_HASH_SRC_IPV4};
    CHECK((rdma::detail::to_c(attr, IBV_QPT_RAW_PACKET).comp_mask & IBV_QP_INIT_ATTR_RX_HASH) != 0);
}

TEST_CASE_METHOD(objects, "objects: a work queue through its states, a table of a power of two", "[objects]") {
    rdma::wq queue = make_wq();
    CHECK(rdma::wq_state(queue.native_handle()->state) == rdma::wq_state::reset);
    queue.modify(rdma::wq_state::rdy);
    CHECK(rdma::wq_state(queue.native_handle()->state) == rdma::wq_state::rdy);
    rdma::mr const mr = make_mr();
    for (std::uint64_t i = 0; i != 2; ++i)
        queue.post_recv(rdma::recv_wr(mr.sge(0, 8)).id(i));
    ibv_wq_attr attr{};
    attr.attr_mask = IBV_WQ_ATTR_STATE | IBV_WQ_ATTR_CURR_STATE;
    attr.curr_wq_state = IBV_WQS_RDY;
    attr.wq_state = IBV_WQS_ERR;
    rdma::wq_ref(queue).modify(attr);
    auto const flushed = all_of(cq);
    REQUIRE(flushed.size() == 2);
    CHECK((flushed[1].status() == rdma::wc_status::wr_flush_err && flushed[1].wr_id() == 1));

    std::array<rdma::wq_ref, 4> const queues{queue, queue, queue, queue};
    for (std::size_t const n : {0U, 3U}) {
        CHECK(thrown([&] { (void)rdma::rwq_ind_table(device, std::span(queues).first(n)); }) ==
              std::errc::invalid_argument);
        std::error_code ec;
        CHECK_FALSE(rdma::rwq_ind_table(device, std::span(queues).first(n), ec));
        CHECK(ec == std::errc::invalid_argument);
    }
    CHECK(fake::count("ibv_create_rwq_ind_table") == 0);
    for (std::size_t const n : {1U, 2U, 4U})
        CHECK(rdma::rwq_ind_table(device, std::span(queues).first(n)));
}

TEST_CASE_METHOD(objects, "objects: counters count what their flow is told to", "[objects]") {
    rdma::counters counters = make_counters();
    rdma::flow_action action = make_action();
    rdma::qp const datagrams = make_qp(rdma::qp_type::ud);
    rdma::flow unborn;
    unborn.attach(counters, {IBV_COUNTER_BYTES, 1, 0}); // before there is a flow
    rule const attr(action, counters);
    rdma::flow const flow(datagrams, attr.attr);
    std::error_code ec;
    unborn.attach(counters, {IBV_COUNTER_PACKETS, 0, 0}, ec);
    CHECK(ec == std::errc::invalid_argument); // not any more
    fake::set_counter(counters.native_handle(), 1, 77);
    std::array<std::uint64_t, 2> values{1, 1};
    counters.read(values);
    CHECK(values == std::array<std::uint64_t, 2>{0, 77});
    rdma::counters_ref(counters).read(values, IBV_READ_COUNTERS_ATTR_PREFER_CACHED);
    ibv_flow_action_esp_attr changed = action_attr.attr;
    changed.keymat_len = 0;
    action.modify(changed);
    CHECK(changed.esp_attr == &action_attr.what);
    CHECK(thrown([&] { (void)rdma::flow_action(device, changed); }, "ibv_create_flow_action_esp") ==
          std::errc::invalid_argument);
}

TEST_CASE_METHOD(objects, "objects: a place in a multicast group is given up once", "[objects]") {
    rdma::qp const datagrams = make_qp(rdma::qp_type::ud);
    rdma::mcast one(datagrams, group_gid(), 0);
    ibv_gid second = group_gid();
    second.raw[15] = 2;
    rdma::mcast two(datagrams, second, 0);
    CHECK((one && two));
    one = std::move(two);
    CHECK(fake::count("ibv_detach_mcast") == 1);
    CHECK((one && !two));
    rdma::mcast& same = one;
    one = std::move(same);
    swap(one, two);
    CHECK((two && !one));
    two.swap(one);
    rdma::mcast moved(std::move(one));
    CHECK(moved);
    fake::fail("ibv_detach_mcast", 1, EIO);
    CHECK(thrown([&] { moved.detach(); }, "ibv_detach_mcast") == std::errc::io_error);
    CHECK(moved); // still there
    moved.detach();
    CHECK_FALSE(moved);
    moved.detach();
    CHECK(fake::count("ibv_detach_mcast") == 3);
    rdma::qp const connected = make_qp();
    CHECK(thrown([&] { (void)rdma::mcast(connected, group_gid(), 0); }, "ibv_attach_mcast") ==
          std::errc::invalid_argument);
}

TEST_CASE_METHOD(objects, "objects: the pace, the order and the peer's options of a QP", "[objects]") {
    rdma::qp const raw = make_qp(rdma::qp_type::raw_packet);
    ibv_qp_rate_limit_attr const limit{1000, 0, 0, 0};
    CHECK(thrown([&] { raw.modify_rate_limit(limit); }, "ibv_modify_qp_rate_limit") == std::errc::invalid_argument);
    ibv_qp_attr attr{};
    attr.port_num = 1;
    attr.qp_state = IBV_QPS_INIT;
    raw.modify(attr, IBV_QP_STATE | IBV_QP_PORT);
    for (ibv_qp_state const state : {IBV_QPS_RTR, IBV_QPS_RTS}) {
        attr.qp_state = state;
        raw.modify(attr, IBV_QP_STATE);
    }
    raw.modify_rate_limit(limit);
    CHECK(raw.query(IBV_QP_RATE_LIMIT).rate_limit == 1000);
    fake::set_ece(true);
    rdma::qp const qp = make_qp();
    ibv_ece ece = qp.query_ece();
    CHECK((ece.vendor_id == fake::ece_vendor && ece.options == fake::ece_options));
    ece.options = 1;
    ibv_ece const wish = ece;
    qp.set_ece(wish);
    CHECK(qp.query_ece().options == 1);
    CHECK(qp.data_in_order(IBV_WR_RDMA_WRITE) ==
          (::ibv_query_qp_data_in_order(qp.native_handle(), IBV_WR_RDMA_WRITE, 0) != 0));
}

// ---- Names and numbers ----------------------------------------------------------------------------------------------

TEST_CASE("objects: names and numbers are C's", "[objects]") {
    using std::string;
    for (int i = 0; i != 10; ++i) {
        CHECK(string(to_string(rdma::node_type(i))) == ::ibv_node_type_str(ibv_node_type(i)));
        CHECK(string(to_string(rdma::port_state(i))) == ::ibv_port_state_str(ibv_port_state(i)));
    }
    for (int i = 0; i != 25; ++i) {
        CAPTURE(i);
        CHECK(to_string(rdma::wc_status(i)) == ::ibv_wc_status_str(ibv_wc_status(i)));
        CHECK(string(to_string(rdma::async_event_type(i))) == ::ibv_event_type_str(ibv_event_type(i)));
        CHECK(rdma::to_mbps(rdma::rate(i)) == ::ibv_rate_to_mbps(ibv_rate(i)));
        CHECK(rdma::to_mult(rdma::rate(i)) == ::ibv_rate_to_mult(ibv_rate(i)));
    }
    CHECK(to_string(rdma::wc_status::tm_err) == ::ibv_wc_status_str(IBV_WC_TM_ERR));
    CHECK(to_string(rdma::wc_status::tm_rndv_incomplete) == ::ibv_wc_status_str(IBV_WC_TM_RNDV_INCOMPLETE));
    CHECK((rdma::from_mbps(10000) == rdma::rate::rate_10_gbps && rdma::from_mbps(7) == rdma::rate::max));
    CHECK((rdma::from_mult(16) == rdma::rate::rate_40_gbps && rdma::from_mult(7) == rdma::rate::max));
    CHECK((rdma::to_mbps(rdma::rate::rate_2_5_gbps) == 2500 && rdma::to_mult(rdma::rate::rate_2_5_gbps) == 1));
    CHECK((bytes(rdma::mtu::mtu_512) == 512 && bytes(rdma::mtu::mtu_2048) == 2048));
    CHECK(rdma::send_wr::atomic_write({}, {}).native_handle().opcode == IBV_WR_ATOMIC_WRITE);
}

TEST_CASE("fork: asked for, and told", "[objects]") {
    world w;
    CHECK(rdma::is_fork_initialized() == rdma::fork_status::disabled);
    rdma::fork_init();
    CHECK(rdma::is_fork_initialized() == rdma::fork_status::enabled);
    fake::set_fork_status(IBV_FORK_UNNEEDED);
    std::error_code ec = rdma::errc::unspecified;
    rdma::fork_init(ec);
    CHECK_FALSE(ec);
    CHECK(rdma::is_fork_initialized() == rdma::fork_status::unneeded);
    fake::fail("ibv_fork_init", 1, EINVAL); // memory was registered before
    CHECK(thrown([] { rdma::fork_init(); }, "ibv_fork_init") == std::errc::invalid_argument);
}
