// SPDX-License-Identifier: MIT
//
// What only a device with set_all_features can do; and that it can not without.
#include "bench.hpp"

#include <limits>

#include <sys/mman.h>
#include <unistd.h>

using namespace selftest;

namespace {

ibv_wq* make_wq(bench& on)
{
    ibv_wq_init_attr attr{};
    attr.max_wr = 4;
    attr.max_sge = 1;
    attr.pd = on.pd;
    attr.cq = on.cq;
    attr.wq_context = &on;
    return ibv_create_wq(on.context, &attr);
}

ibv_rwq_ind_table* make_table(bench& on, std::array<ibv_wq*, 2> queues)
{
    ibv_rwq_ind_table_init_attr attr{};
    attr.log_ind_tbl_size = 1;
    attr.ind_tbl = queues.data();
    return ibv_create_rwq_ind_table(on.context, &attr);
}

template <class Attr>
std::uint32_t ports(Attr const& attr) // headers before rdma-core 35 do not have it
{
    if constexpr (requires { attr.phys_port_cnt_ex; }) return attr.phys_port_cnt_ex;
    else return 1;
}

} // namespace

// ---- what is not there --------------------------------------------------------------------------------------------
TEST_CASE("soft-RoCE and iWARP have none of it, and every call is in the log")
{
    clean_world world;
    for (bool const all : {false, true}) { // siw0 has not, even then
        INFO(all);
        fake::set_all_features(all);
        auto* const context = all ? fake::siw_context() : fake::rxe_context();
        auto* const pd = ibv_alloc_pd(context);
        auto* const cq = ibv_create_cq(context, 4, nullptr, nullptr, 0);
        auto const unsupported = [](void const* made) { return made == nullptr && errno == EOPNOTSUPP; };
        ibv_alloc_dm_attr dm{};
        CHECK(unsupported(ibv_alloc_dm(context, &dm)));
        CHECK(unsupported(ibv_alloc_null_mr(pd)));
        CHECK(unsupported(ibv_reg_dmabuf_mr(pd, 0, 1, 0, -1, 0)));
        CHECK(ibv_advise_mr(pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, nullptr, 0) == EOPNOTSUPP);
        ibv_modify_cq_attr moderate{};
        CHECK(ibv_modify_cq(cq, &moderate) == EOPNOTSUPP);
        ibv_values_ex values{};
        CHECK(ibv_query_rt_values_ex(context, &values) == EOPNOTSUPP);
        ibv_wq_init_attr wq{};
        CHECK(unsupported(ibv_create_wq(context, &wq)));
        ibv_rwq_ind_table_init_attr table{};
        CHECK(unsupported(ibv_create_rwq_ind_table(context, &table)));
        ibv_td_init_attr td{};
        CHECK(unsupported(ibv_alloc_td(context, &td)));
        ibv_parent_domain_init_attr parent{};
        CHECK(unsupported(ibv_alloc_parent_domain(context, &parent)));
        ibv_counters_init_attr counters{};
        CHECK(unsupported(ibv_create_counters(context, &counters)));
        ibv_flow_action_esp_attr action{};
        CHECK(unsupported(ibv_create_flow_action_esp(context, &action)));
        ibv_qp_open_attr open{};
        CHECK(unsupported(ibv_open_qp(context, &open)));
        CHECK(unsupported(ibv_import_pd(context, 0)));
        CHECK(unsupported(ibv_import_dm(context, 0)));
        CHECK(unsupported(ibv_import_mr(pd, 0)));
        ibv_srq_init_attr_ex srq{};
        srq.srq_type = IBV_SRQT_TM;
        CHECK(unsupported(ibv_create_srq_ex(context, &srq)));
        char byte = 0;
        CHECK((ibv_reg_mr(pd, &byte, 1, unsigned{IBV_ACCESS_ON_DEMAND}) == nullptr && errno == EINVAL));
        ibv_device_attr_ex attr{};
        CHECK(ibv_query_device_ex(context, nullptr, &attr) == 0);
        CHECK((attr.max_dm_size == 0 && attr.odp_caps.general_caps == 0 && ports(attr) == 1));
        CHECK(ibv_destroy_cq(cq) == 0);
        CHECK(ibv_dealloc_pd(pd) == 0);
    }
    CHECK((ibv_import_device(-1) == nullptr && errno == EBADF));
    for (char const* name : {"ibv_alloc_dm", "ibv_alloc_null_mr", "ibv_advise_mr", "ibv_modify_cq", "ibv_query_rt_values_ex", "ibv_create_wq",
                             "ibv_create_rwq_ind_table", "ibv_alloc_td", "ibv_alloc_parent_domain", "ibv_create_counters",
                             "ibv_create_flow_action_esp", "ibv_open_qp", "ibv_create_srq_ex"})
        CHECK(fake::count(name) == 2);
}

// ---- devices ------------------------------------------------------------------------------------------------------
TEST_CASE("a device tells what it can, and its clock")
{
    clean_world world;
    bench const on;
    ibv_device_attr_ex attr{};
    REQUIRE(ibv_query_device_ex(on.context, nullptr, &attr) == 0);
    CHECK((attr.odp_caps.general_caps & IBV_ODP_SUPPORT_IMPLICIT) != 0);
    CHECK((attr.max_dm_size != 0 && attr.cq_mod_caps.max_cq_count != 0 && attr.tm_caps.max_num_tags == 127));
    CHECK((attr.device_cap_flags_ex & IBV_DEVICE_XRC) != 0);
    ibv_values_ex values{};
    CHECK(ibv_query_rt_values_ex(on.context, &values) == EINVAL);
    values.comp_mask = IBV_VALUES_MASK_RAW_CLOCK;
    REQUIRE(ibv_query_rt_values_ex(on.context, &values) == 0);
    auto const first = values.raw_clock.tv_nsec;
    REQUIRE(ibv_query_rt_values_ex(on.context, &values) == 0);
    CHECK((first > 0 && values.raw_clock.tv_nsec >= first));
    fake::fail("ibv_query_rt_values_ex", 1, EPERM);
    CHECK(ibv_query_rt_values_ex(on.context, &values) == EPERM);
    fake::set_fork_status(IBV_FORK_UNNEEDED);
    CHECK((ibv_fork_init() == 0 && ibv_is_fork_initialized() == IBV_FORK_UNNEEDED));
}

TEST_CASE("librdmacm's context can be imported, too, and only while all features are on")
{
    clean_world world;
    auto* const shared = fake::rxe_context();
    CHECK(shared->cmd_fd == -1);
    fake::set_all_features(true);
    auto* const imported = ibv_import_device(shared->cmd_fd);
    REQUIRE(imported != nullptr);
    CHECK((imported->device == shared->device && imported != shared));
    CHECK(ibv_close_device(imported) == 0);
    fake::reset();
    CHECK(shared->cmd_fd == -1);
}

TEST_CASE("each opened context has its own events; a list not freed is a leak")
{
    clean_world world;
    bench const one, two;
    CHECK(one.context != two.context);
    CHECK(one.context->async_fd != two.context->async_fd);
    fake::push_async(two.context, IBV_EVENT_PORT_ACTIVE, 2);
    REQUIRE(fcntl(one.context->async_fd, F_SETFL, O_NONBLOCK) == 0);
    ibv_async_event event{};
    CHECK((ibv_get_async_event(one.context, &event) == -1 && errno == EAGAIN));
    REQUIRE(ibv_get_async_event(two.context, &event) == 0);
    CHECK(event.element.port_num == 2);
    ibv_ack_async_event(&event);
    auto** const list = ibv_get_device_list(nullptr);
    CHECK(fake::leaks().find("1 list(s)") != std::string::npos);
    ibv_free_device_list(list);
}

TEST_CASE("what is imported is given back as such")
{
    clean_world world;
    bench on;
    int const copy = ::dup(on.context->cmd_fd);
    auto* const other = ibv_import_device(copy);
    ::close(copy);
    REQUIRE(other != nullptr);
    auto* const pd = ibv_import_pd(other, on.pd->handle);
    REQUIRE(pd != nullptr);
    char buffer[8];
    auto* const mr = ibv_reg_mr(on.pd, buffer, sizeof buffer, 0);
    auto* const imported = ibv_import_mr(pd, mr->handle);
    REQUIRE(imported != nullptr);
    CHECK((imported->lkey == mr->lkey && imported->length == 8 && imported->context == other && imported->pd == pd));
    ibv_alloc_dm_attr attr{64, 0, 0};
    auto* const dm = ibv_alloc_dm(on.context, &attr);
    auto* const same = ibv_import_dm(other, fake::handle_of(dm));
    REQUIRE(same != nullptr);
    std::uint32_t value = 77;
    CHECK(ibv_memcpy_to_dm(dm, 8, &value, sizeof value) == 0);
    value = 0;
    CHECK((ibv_memcpy_from_dm(&value, same, 8, sizeof value) == 0 && value == 77));
    CHECK((ibv_import_dm(other, 0xffff) == nullptr && errno == ENOENT));
    ibv_unimport_pd(pd);
    CHECK(mentions(fake::misuse(), "1 object(s) use the PD"));
    ibv_unimport_pd(on.pd);
    CHECK(mentions(fake::misuse(), "ibv_unimport_pd: the PD was not imported"));
    ibv_unimport_mr(imported);
    ibv_unimport_dm(same);
    ibv_unimport_pd(pd);
    CHECK(ibv_close_device(other) == 0);
    CHECK(ibv_dereg_mr(mr) == 0);
    CHECK(ibv_free_dm(dm) == 0);
    CHECK(fake::misuse().size() == 2);
    world.messy();
}

// ---- memory -------------------------------------------------------------------------------------------------------
TEST_CASE("device memory is copied by offset, registered from 0, and busy while it is")
{
    clean_world world;
    pair_of_qps on;
    ibv_alloc_dm_attr attr{128, 3, 0};
    auto* const dm = ibv_alloc_dm(on.context, &attr);
    REQUIRE(dm != nullptr);
    std::uint64_t const sent = 0x1234567890;
    CHECK(ibv_memcpy_to_dm(dm, 64, &sent, sizeof sent) == 0);
    CHECK(ibv_memcpy_to_dm(dm, 124, &sent, sizeof sent) == EFAULT);
    CHECK((ibv_reg_dm_mr(on.pd, dm, 0, 128, all_access) == nullptr && errno == EINVAL)); // not zero based
    CHECK((ibv_reg_dm_mr(on.pd, dm, 64, 65, all_access | IBV_ACCESS_ZERO_BASED) == nullptr && errno == EINVAL));
    auto* const mr = ibv_reg_dm_mr(on.pd, dm, 64, 64, all_access | IBV_ACCESS_ZERO_BASED);
    REQUIRE((mr != nullptr && mr->addr == nullptr));
    on.start(3);
    ibv_wr_rdma_write(on.builder, on.there->rkey, pair_of_qps::at(on.far));
    ibv_wr_set_sge(on.builder, mr->lkey, 0, sizeof sent);
    REQUIRE(ibv_wr_complete(on.builder) == 0);
    CHECK((on.next().opcode == IBV_WC_RDMA_WRITE && on.far[0] == sent));
    CHECK(ibv_free_dm(dm) == EBUSY);
    CHECK(ibv_dereg_mr(mr) == 0);
    CHECK(ibv_free_dm(dm) == 0);
    ibv_alloc_dm_attr const too_long{0x20001, 0, 0};
    auto wish = too_long;
    CHECK((ibv_alloc_dm(on.context, &wish) == nullptr && errno == ENOMEM));
    CHECK(fake::misuse().size() == 1);
    world.messy();
}

TEST_CASE("the null region reads zeros and swallows; an implicit one is everywhere; a dmabuf is a file of memory")
{
    clean_world world;
    pair_of_qps on;
    auto* const nothing = ibv_alloc_null_mr(on.pd);
    REQUIRE(nothing != nullptr);
    on.far.fill(7);
    on.start(1);
    ibv_wr_rdma_write(on.builder, on.there->rkey, pair_of_qps::at(on.far));
    ibv_sge const pieces[] = {{99, 8, nothing->lkey}, {pair_of_qps::at(on.near), 8, on.here->lkey}};
    ibv_wr_set_sge_list(on.builder, 2, pieces);
    ibv_wr_rdma_read(on.builder, on.there->rkey, pair_of_qps::at(on.far));
    ibv_wr_set_sge(on.builder, nothing->lkey, 5, 16);
    REQUIRE(ibv_wr_complete(on.builder) == 0);
    CHECK((on.next().status == IBV_WC_SUCCESS && on.far[0] == 0 && on.far[1] == 1 && on.far[2] == 7));
    CHECK((on.next().opcode == IBV_WC_RDMA_READ));
    CHECK(ibv_dereg_mr(nothing) == 0);

    constexpr auto everything = std::numeric_limits<std::size_t>::max();
    CHECK((ibv_reg_mr(on.pd, nullptr, everything, unsigned{IBV_ACCESS_LOCAL_WRITE}) == nullptr && errno == EINVAL));
    auto* const implicit = ibv_reg_mr(on.pd, nullptr, everything, unsigned{IBV_ACCESS_LOCAL_WRITE} | IBV_ACCESS_ON_DEMAND);
    REQUIRE(implicit != nullptr);
    on.start(2);
    ibv_wr_rdma_write(on.builder, on.there->rkey, pair_of_qps::at(on.far));
    ibv_wr_set_sge(on.builder, implicit->lkey, pair_of_qps::at(on.near) + 16, 8);
    REQUIRE(ibv_wr_complete(on.builder) == 0);
    CHECK((on.next().status == IBV_WC_SUCCESS && on.far[0] == 3));
    ibv_sge piece{pair_of_qps::at(on.near), 8, implicit->lkey};
    CHECK(ibv_advise_mr(on.pd, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, IBV_ADVISE_MR_FLAG_FLUSH, &piece, 1) == 0);
    piece.lkey = on.here->lkey; // not on demand
    CHECK(ibv_advise_mr(on.pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &piece, 1) == EINVAL);
    piece.lkey = 1;
    CHECK(ibv_advise_mr(on.pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &piece, 1) == ENOENT);
    CHECK(ibv_dereg_mr(implicit) == 0);

    int const file = ::memfd_create("dmabuf", MFD_CLOEXEC);
    REQUIRE(::ftruncate(file, 8192) == 0);
    std::uint64_t value = 41;
    REQUIRE(::pwrite(file, &value, sizeof value, 4096) == sizeof value);
    CHECK((ibv_reg_dmabuf_mr(on.pd, 4096, 4097, 0, file, 0) == nullptr && errno == EINVAL));
    CHECK((ibv_reg_dmabuf_mr(on.pd, 4096, 8, 1, file, 0) == nullptr && errno == EINVAL));
    auto* const buffer = ibv_reg_dmabuf_mr(on.pd, 4096, 4096, 0x10000, file, all_access);
    REQUIRE((buffer != nullptr && buffer->length == 4096));
    on.start(4);
    ibv_wr_atomic_fetch_add(on.builder, buffer->rkey, 0x10000, 1);
    ibv_wr_set_sge(on.builder, on.here->lkey, pair_of_qps::at(on.near), 8);
    REQUIRE(ibv_wr_complete(on.builder) == 0);
    CHECK((on.next().opcode == IBV_WC_FETCH_ADD && on.near[0] == 41));
    REQUIRE(::pread(file, &value, sizeof value, 4096) == sizeof value);
    CHECK(value == 42);
    CHECK(ibv_dereg_mr(buffer) == 0);
    ::close(file);
}

TEST_CASE("ibv_rereg_mr: the old region, or none")
{
    clean_world world;
    bench on;
    char one[8], two[16];
    auto* const mr = ibv_reg_mr(on.pd, one, sizeof one, 0);
    CHECK((ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, two, sizeof two, 0) == 0 && mr->addr == two && mr->length == 16));
    CHECK((ibv_rereg_mr(mr, 0, nullptr, nullptr, 0, 0) == IBV_REREG_MR_ERR_INPUT && errno == EINVAL));
    CHECK((ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, IBV_ACCESS_REMOTE_WRITE) == IBV_REREG_MR_ERR_CMD && errno == EINVAL));
    fake::fail("ibv_rereg_mr", 1, ENOMEM);
    CHECK((ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, 0) == IBV_REREG_MR_ERR_CMD && errno == ENOMEM));
    fake::fail("ibv_rereg_mr", 1, IBV_REREG_MR_ERR_DO_FORK_OLD);
    CHECK((ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, 0) == IBV_REREG_MR_ERR_DO_FORK_OLD && errno == EIO));
    CHECK(ibv_dereg_mr(mr) == 0);
}

// ---- work queues --------------------------------------------------------------------------------------------------
TEST_CASE("work queues, their table, and a QP that receives by it: each is busy while the next is there")
{
    clean_world world;
    bench on;
    std::array<ibv_wq*, 2> const queues{make_wq(on), make_wq(on)};
    REQUIRE((queues[0] != nullptr && queues[0]->wq_context == &on && queues[0]->state == IBV_WQS_RESET));
    auto* const table = make_table(on, queues);
    REQUIRE(table != nullptr);
    std::array<std::uint8_t, 40> key{};
    auto attr = on.qp_attr(IBV_QPT_RAW_PACKET);
    attr.send_cq = attr.recv_cq = nullptr;
    attr.cap = {};
    attr.comp_mask |= IBV_QP_INIT_ATTR_IND_TABLE;
    attr.rwq_ind_tbl = table;
    CHECK((ibv_create_qp_ex(on.context, &attr) == nullptr && errno == EINVAL)); // and the hash?
    attr.comp_mask |= IBV_QP_INIT_ATTR_RX_HASH;
    attr.rx_hash_conf = {IBV_RX_HASH_FUNC_TOEPLITZ, 40, key.data(), IBV_RX_HASH_SRC_IPV4};
    auto* const qp = ibv_create_qp_ex(on.context, &attr);
    REQUIRE(qp != nullptr);
    CHECK((fake::live().wqs == 2 && fake::live().tables == 1 && fake::leaks().find("2 WQ(s), 1 indirection table(s)") != std::string::npos));
    CHECK(ibv_destroy_rwq_ind_table(table) == EBUSY);
    CHECK(ibv_destroy_wq(queues[0]) == EBUSY);
    CHECK(ibv_destroy_qp(qp) == 0);
    CHECK(ibv_destroy_rwq_ind_table(table) == 0);
    CHECK(ibv_destroy_cq(on.cq) == EBUSY);
    CHECK(ibv_destroy_wq(queues[0]) == 0);
    CHECK(ibv_destroy_wq(queues[1]) == 0);
    CHECK(fake::misuse().size() == 3);
    world.messy();
}

TEST_CASE("a work queue goes through its states, flushes, and waits for its events")
{
    clean_world world;
    bench on;
    auto* const wq = make_wq(on);
    ibv_wq_attr to{};
    to.attr_mask = IBV_WQ_ATTR_STATE;
    to.wq_state = IBV_WQS_ERR;
    CHECK(ibv_modify_wq(wq, &to) == EINVAL);
    to.wq_state = IBV_WQS_RDY;
    CHECK((ibv_modify_wq(wq, &to) == 0 && wq->state == IBV_WQS_RDY));
    ibv_recv_wr receives[5]{}, *bad = nullptr;
    for (std::size_t i = 0; i < 5; ++i) receives[i] = {i, i < 4 ? &receives[i + 1] : nullptr, nullptr, 0};
    CHECK((ibv_post_wq_recv(wq, receives, &bad) == ENOMEM && bad == &receives[4]));
    fake::fail("ibv_post_wq_recv", 1, EPERM);
    CHECK((ibv_post_wq_recv(wq, receives, &bad) == EPERM && bad == receives));
    to.attr_mask |= IBV_WQ_ATTR_CURR_STATE;
    to.curr_wq_state = IBV_WQS_RESET;
    to.wq_state = IBV_WQS_ERR;
    CHECK(ibv_modify_wq(wq, &to) == EINVAL);
    to.curr_wq_state = IBV_WQS_RDY;
    CHECK(ibv_modify_wq(wq, &to) == 0);
    ibv_wc wc[5]{};
    REQUIRE(ibv_poll_cq(on.cq, 5, wc) == 4);
    CHECK((wc[3].status == IBV_WC_WR_FLUSH_ERR && wc[3].wr_id == 3));

    fake::push_async(wq, IBV_EVENT_WQ_FATAL);
    fake::push_async(wq, IBV_EVENT_WQ_FATAL);
    ibv_async_event event{};
    REQUIRE(ibv_get_async_event(on.context, &event) == 0);
    CHECK(event.element.wq == wq);
    CHECK(ibv_destroy_wq(wq) == EDEADLK);
    ibv_ack_async_event(&event);
    CHECK(wq->events_completed == 1);
    CHECK(ibv_destroy_wq(wq) == 0);
    REQUIRE(fcntl(on.context->async_fd, F_SETFL, O_NONBLOCK) == 0);
    CHECK((ibv_get_async_event(on.context, &event) == -1 && errno == EAGAIN)); // the other went with it
    CHECK(fake::would_hang().size() == 1);
    world.messy();
}

// ---- flows --------------------------------------------------------------------------------------------------------
TEST_CASE("a flow holds its QP, its actions and its counters")
{
    clean_world world;
    bench on;
    auto attr = on.qp_attr(IBV_QPT_RAW_PACKET);
    auto* const qp = ibv_create_qp_ex(on.context, &attr);
    REQUIRE(qp != nullptr);
    ibv_flow_action_esp esp{};
    std::uint8_t key[16]{};
    ibv_flow_action_esp_attr action_attr{};
    action_attr.esp_attr = &esp;
    CHECK((ibv_create_flow_action_esp(on.context, &action_attr) == nullptr && errno == EINVAL));
    action_attr.keymat_len = sizeof key;
    action_attr.keymat_ptr = key;
    auto* const action = ibv_create_flow_action_esp(on.context, &action_attr);
    REQUIRE(action != nullptr);
    action_attr.keymat_len = 0;
    CHECK(ibv_modify_flow_action_esp(action, &action_attr) == 0);
    ibv_counters_init_attr none{};
    auto* const counters = ibv_create_counters(on.context, &none);
    ibv_counter_attach_attr point{IBV_COUNTER_BYTES, 1, 0};
    CHECK(ibv_attach_counters_point_flow(counters, &point, nullptr) == 0);

    struct {
        ibv_flow_attr attr;
        ibv_flow_spec_eth eth;
        ibv_flow_spec_action_tag tag;
        ibv_flow_spec_action_handle handle;
        ibv_flow_spec_counter_action count;
    } rule{};
    static_assert(sizeof rule == sizeof rule.attr + sizeof rule.eth + sizeof rule.tag + sizeof rule.handle + sizeof rule.count);
    rule.attr.size = sizeof rule;
    rule.attr.num_of_specs = 4;
    rule.attr.port = 1;
    rule.eth.type = IBV_FLOW_SPEC_ETH;
    rule.eth.size = sizeof rule.eth;
    rule.tag = {IBV_FLOW_SPEC_ACTION_TAG, sizeof rule.tag, 3};
    rule.handle = {IBV_FLOW_SPEC_ACTION_HANDLE, sizeof rule.handle, action};
    rule.count = {IBV_FLOW_SPEC_ACTION_COUNT, sizeof rule.count, counters};
    rule.attr.size -= 1;
    CHECK((ibv_create_flow(qp, &rule.attr) == nullptr && errno == EINVAL));
    rule.attr.size += 1;
    auto* const flow = ibv_create_flow(qp, &rule.attr);
    REQUIRE(flow != nullptr);
    CHECK(ibv_destroy_qp(qp) == EBUSY);
    CHECK(ibv_destroy_flow_action(action) == EBUSY);
    CHECK(ibv_destroy_counters(counters) == EBUSY);
    CHECK(ibv_attach_counters_point_flow(counters, &point, nullptr) == EINVAL);
    fake::set_counter(counters, 1, 77);
    std::uint64_t values[2]{1, 1};
    CHECK((ibv_read_counters(counters, values, 2, IBV_READ_COUNTERS_ATTR_PREFER_CACHED) == 0 && values[0] == 0 && values[1] == 77));
    CHECK(ibv_read_counters(counters, values, 0, 0) == EINVAL);
    CHECK((fake::live().flows == 1 && fake::live().flow_actions == 1 && fake::live().counters == 1));
    CHECK(ibv_destroy_flow(flow) == 0);
    CHECK(ibv_destroy_flow_action(action) == 0);
    CHECK(ibv_destroy_counters(counters) == 0);
    CHECK(ibv_destroy_qp(qp) == 0);
    CHECK(fake::misuse().size() == 3);
    world.messy();
}

// ---- domains ------------------------------------------------------------------------------------------------------
TEST_CASE("a parent domain protects as its PD does, and keeps it and its thread domain busy")
{
    clean_world world;
    bench on;
    ibv_td_init_attr none{};
    auto* const td = ibv_alloc_td(on.context, &none);
    REQUIRE(td != nullptr);
    ibv_parent_domain_init_attr attr{};
    CHECK((ibv_alloc_parent_domain(on.context, &attr) == nullptr && errno == EINVAL));
    attr.pd = on.pd;
    attr.td = td;
    auto* const parent = ibv_alloc_parent_domain(on.context, &attr);
    REQUIRE(parent != nullptr);
    ibv_cq_init_attr_ex wish{};
    wish.cqe = 4;
    wish.comp_mask = IBV_CQ_INIT_ATTR_MASK_PD;
    wish.parent_domain = on.pd; // which is none
    CHECK((ibv_create_cq_ex(on.context, &wish) == nullptr && errno == EINVAL));
    wish.parent_domain = parent;
    auto* const cq = ibv_create_cq_ex(on.context, &wish);
    REQUIRE(cq != nullptr);
    CHECK(ibv_dealloc_pd(parent) == EBUSY);
    CHECK(ibv_dealloc_pd(on.pd) == EBUSY);
    CHECK(ibv_dealloc_td(td) == EBUSY);
    CHECK(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)) == 0);

    auto qp_attr = on.qp_attr(IBV_QPT_RC, IBV_QP_EX_WITH_RDMA_WRITE);
    qp_attr.pd = parent;
    auto* const a = ibv_create_qp_ex(on.context, &qp_attr);
    auto* const b = ibv_create_qp_ex(on.context, &qp_attr);
    bring_up(a, b, all_access);
    bring_up(b, a, all_access);
    std::uint64_t from = 5, to = 0;
    auto* const here = ibv_reg_mr(on.pd, &from, sizeof from, 0);
    auto* const there = ibv_reg_mr(parent, &to, sizeof to, all_access);
    auto* const builder = ibv_qp_to_qp_ex(a);
    ibv_wr_start(builder);
    ibv_wr_rdma_write(builder, there->rkey, reinterpret_cast<std::uintptr_t>(&to));
    ibv_wr_set_sge(builder, here->lkey, reinterpret_cast<std::uintptr_t>(&from), 8);
    CHECK(ibv_wr_complete(builder) == 0);
    CHECK(to == 5);
    CHECK(ibv_destroy_qp(a) == 0);
    CHECK(ibv_destroy_qp(b) == 0);
    CHECK(ibv_dereg_mr(here) == 0);
    CHECK(ibv_dereg_mr(there) == 0);
    CHECK(ibv_dealloc_pd(parent) == 0);
    CHECK(ibv_dealloc_td(td) == 0);
    CHECK(fake::misuse().size() == 3);
    world.messy();
}

TEST_CASE("the pace of a QP that sends packets, which nobody gets")
{
    clean_world world;
    bench on;
    auto attr = on.qp_attr(IBV_QPT_RAW_PACKET, IBV_QP_EX_WITH_SEND);
    auto* const qp = ibv_create_qp_ex(on.context, &attr);
    ibv_qp_rate_limit_attr limit{1000, 0, 0, 0};
    CHECK(ibv_modify_qp_rate_limit(qp, &limit) == EINVAL); // not yet
    bring_up(qp, nullptr, 0);
    CHECK(ibv_modify_qp_rate_limit(qp, &limit) == 0);
    ibv_qp_attr now{};
    ibv_qp_init_attr init{};
    CHECK((ibv_query_qp(qp, &now, IBV_QP_RATE_LIMIT, &init) == 0 && now.rate_limit == 1000));
    auto* const builder = ibv_qp_to_qp_ex(qp);
    char packet[14]{};
    ibv_wr_start(builder);
    builder->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_send(builder);
    ibv_wr_set_inline_data(builder, packet, sizeof packet);
    CHECK(ibv_wr_complete(builder) == 0);
    ibv_wc wc{};
    CHECK((poll_one(on.cq, wc) == 1 && wc.opcode == IBV_WC_SEND));
    CHECK(ibv_destroy_qp(qp) == 0);
}

// ---- shared and matching ------------------------------------------------------------------------------------------
TEST_CASE("a QP of an XRC domain is opened once more, and lives until the last handle")
{
    clean_world world;
    bench on;
    ibv_xrcd_init_attr domain_attr{};
    domain_attr.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
    domain_attr.fd = -1;
    domain_attr.oflags = O_CREAT;
    auto* const domain = ibv_open_xrcd(on.context, &domain_attr);
    auto attr = on.qp_attr(IBV_QPT_XRC_RECV);
    attr.cap = {};
    attr.send_cq = attr.recv_cq = nullptr;
    attr.comp_mask = IBV_QP_INIT_ATTR_XRCD;
    attr.xrcd = domain;
    auto* const first = ibv_create_qp_ex(on.context, &attr);
    REQUIRE(first != nullptr);
    ibv_qp_open_attr open{};
    open.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE | IBV_QP_OPEN_ATTR_CONTEXT;
    open.qp_num = first->qp_num;
    open.xrcd = domain;
    open.qp_context = &on;
    open.qp_type = IBV_QPT_XRC_RECV;
    auto* const second = ibv_open_qp(on.context, &open);
    REQUIRE(second != nullptr);
    CHECK((second != first && second->qp_num == first->qp_num && second->qp_context == &on));
    ibv_qp_attr to{};
    ibv_qp_init_attr init{};
    to.qp_state = IBV_QPS_INIT;
    to.port_num = 1;
    REQUIRE(ibv_modify_qp(second, &to, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0);
    CHECK((ibv_query_qp(first, &to, IBV_QP_STATE, &init) == 0 && to.qp_state == IBV_QPS_INIT));
    CHECK(ibv_destroy_qp(first) == 0);
    to = {};
    CHECK((ibv_query_qp(second, &to, IBV_QP_STATE, &init) == 0 && to.qp_state == IBV_QPS_INIT));
    CHECK(ibv_destroy_qp(second) == 0);
    CHECK((ibv_open_qp(on.context, &open) == nullptr && errno == EINVAL));
    CHECK(ibv_close_xrcd(domain) == 0);
}

TEST_CASE("an SRQ that matches tags takes them, and gives them up")
{
    clean_world world;
    bench on;
    ibv_srq_init_attr_ex attr{};
    attr.attr = {4, 1, 0};
    attr.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_TM;
    attr.srq_type = IBV_SRQT_TM;
    attr.pd = on.pd;
    attr.cq = on.cq;
    attr.tm_cap = {2, 8};
    auto* const srq = ibv_create_srq_ex(on.context, &attr);
    REQUIRE(srq != nullptr);
    ibv_ops_wr ops[3]{}, *bad = nullptr;
    for (std::size_t i = 0; i < 3; ++i) {
        ops[i].wr_id = i;
        ops[i].next = i < 2 ? &ops[i + 1] : nullptr;
        ops[i].flags = IBV_OPS_SIGNALED;
    }
    CHECK((ibv_post_srq_ops(srq, ops, &bad) == ENOMEM && bad == &ops[2]));
    CHECK((ops[0].tm.handle != 0 && ops[0].tm.handle != ops[1].tm.handle));
    ops[0].opcode = IBV_WR_TAG_DEL;
    ops[1].opcode = IBV_WR_TAG_SYNC;
    ops[1].next = nullptr;
    CHECK(ibv_post_srq_ops(srq, ops, &bad) == 0);
    ibv_wc wc[5]{};
    REQUIRE(ibv_poll_cq(on.cq, 5, wc) == 4);
    CHECK((wc[0].opcode == IBV_WC_TM_ADD && wc[2].opcode == IBV_WC_TM_DEL && wc[3].opcode == IBV_WC_TM_SYNC));
    CHECK((ibv_post_srq_ops(srq, ops, &bad) == EINVAL && bad == ops)); // gone
    std::uint32_t number = 0;
    CHECK((ibv_get_srq_num(srq, &number) == 0 && number != 0));
    CHECK(ibv_destroy_cq(on.cq) == EBUSY);
    CHECK(ibv_destroy_srq(srq) == 0);
    CHECK(fake::misuse().size() == 1);
    world.messy();
}

// ---- faults -------------------------------------------------------------------------------------------------------
TEST_CASE("each of them fails on demand, as its convention says")
{
    clean_world world;
    bench on;
    ibv_td_init_attr none{};
    auto* const td = ibv_alloc_td(on.context, &none);
    auto* const wq = make_wq(on);
    ibv_alloc_dm_attr dm_attr{8, 0, 0};
    auto* const dm = ibv_alloc_dm(on.context, &dm_attr);
    ibv_counters_init_attr counters_attr{};
    auto* const counters = ibv_create_counters(on.context, &counters_attr);
    auto const returns = [](char const* name, auto call) {
        INFO(name);
        fake::fail(name, 1, EPERM);
        errno = 0;
        CHECK((call() == EPERM && errno == fake::decoy));
        CHECK(fake::failed().function == name);
    };
    auto const gives_null = [](char const* name, auto call) {
        INFO(name);
        fake::fail(name, 1, EPERM);
        errno = 0;
        CHECK((call() == nullptr && errno == EPERM));
        CHECK(fake::failed().function == name);
    };
    std::uint64_t value = 0;
    returns("ibv_dealloc_td", [&] { return ibv_dealloc_td(td); });
    returns("ibv_destroy_wq", [&] { return ibv_destroy_wq(wq); });
    returns("ibv_free_dm", [&] { return ibv_free_dm(dm); });
    returns("ibv_memcpy_to_dm", [&] { return ibv_memcpy_to_dm(dm, 0, &value, 8); });
    returns("ibv_memcpy_from_dm", [&] { return ibv_memcpy_from_dm(&value, dm, 0, 8); });
    returns("ibv_destroy_counters", [&] { return ibv_destroy_counters(counters); });
    returns("ibv_read_counters", [&] { return ibv_read_counters(counters, &value, 1, 0); });
    gives_null("ibv_alloc_td", [&] { return ibv_alloc_td(on.context, &none); });
    gives_null("ibv_create_wq", [&] { return make_wq(on); });
    gives_null("ibv_alloc_dm", [&] { return ibv_alloc_dm(on.context, &dm_attr); });
    gives_null("ibv_alloc_null_mr", [&] { return ibv_alloc_null_mr(on.pd); });
    gives_null("ibv_create_counters", [&] { return ibv_create_counters(on.context, &counters_attr); });
    gives_null("ibv_create_rwq_ind_table", [&] { return make_table(on, {wq, wq}); });
    gives_null("ibv_reg_dm_mr", [&] { return ibv_reg_dm_mr(on.pd, dm, 0, 8, IBV_ACCESS_ZERO_BASED); });
    CHECK(ibv_dealloc_td(td) == 0);
    CHECK(ibv_destroy_wq(wq) == 0);
    CHECK(ibv_free_dm(dm) == 0);
    CHECK(ibv_destroy_counters(counters) == 0);
}

TEST_CASE("reset() frees all of it, whatever is left and in use")
{
    clean_world world;
    fake::set_all_features(true);
    auto** const list = ibv_get_device_list(nullptr);
    auto* const context = ibv_open_device(list[0]);
    ibv_free_device_list(list);
    auto* const pd = ibv_alloc_pd(context);
    auto* const cq = ibv_create_cq(context, 4, nullptr, nullptr, 0);
    ibv_td_init_attr none{};
    ibv_parent_domain_init_attr parent_attr{};
    parent_attr.pd = pd;
    parent_attr.td = ibv_alloc_td(context, &none);
    REQUIRE(ibv_alloc_parent_domain(context, &parent_attr) != nullptr);
    ibv_wq_init_attr wq_attr{};
    wq_attr.max_wr = 1;
    wq_attr.pd = pd;
    wq_attr.cq = cq;
    ibv_wq* wq = ibv_create_wq(context, &wq_attr);
    ibv_rwq_ind_table_init_attr table_attr{};
    table_attr.ind_tbl = &wq;
    REQUIRE(ibv_create_rwq_ind_table(context, &table_attr) != nullptr);
    ibv_alloc_dm_attr dm_attr{8, 0, 0};
    auto* const dm = ibv_alloc_dm(context, &dm_attr);
    REQUIRE(ibv_reg_dm_mr(pd, dm, 0, 8, IBV_ACCESS_ZERO_BASED) != nullptr);
    CHECK(fake::leaks().find("1 thread domain(s), 1 device memory or memories, 1 WQ(s), 1 indirection table(s)") != std::string::npos);
    world.messy();
    fake::reset();
    CHECK(fake::leaks() == "");
    CHECK((ibv_alloc_null_mr(ibv_alloc_pd(fake::rxe_context())) == nullptr && errno == EOPNOTSUPP));
}
