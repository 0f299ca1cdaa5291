// SPDX-License-Identifier: MIT
// What the headers offer with the rdma-core whose major version is RDMA_CORE, and what they do not: there is no version
// macro, so detail/newer.hpp asks the C headers. Compiled, never run, with the headers of each release.
#include <rdmacpp/rdmacpp.hpp>

namespace {

constexpr int core = RDMA_CORE;

// What is asked, and its answer: each concept of detail/newer.hpp has its line here.
static_assert(rdma::detail::has_reg_dmabuf_mr<ibv_pd> == (core >= 34));
static_assert(rdma::detail::has_import_dm<ibv_dm> == (core >= 35));
static_assert(rdma::detail::has_is_fork_initialized<> == (core >= 35));
static_assert(rdma::detail::has_query_qp_data_in_order<ibv_qp> == (core >= 36));
static_assert(rdma::detail::has_wr_atomic_write<ibv_qp_ex> == (core >= 44));
static_assert(rdma::detail::has_wr_flush<ibv_qp_ex> == (core >= 50));
static_assert(rdma::detail::has_resolve_addrinfo<rdma_cm_id> == (core >= 60));
static_assert(rdma::detail::has_write_cm_event<rdma_cm_id> == (core >= 60));

#if RDMA_CORE >= 60
static_assert(rdma::detail::has_reg_mr_ex<ibv_pd, ibv_mr_init_attr>);
#else
struct ibv_mr_init_attr;
static_assert(!rdma::detail::has_reg_mr_ex<ibv_pd, ibv_mr_init_attr*>);
#endif

// What a program sees of it.
template <class Id>
concept resolves_addrinfo = requires(Id id, std::error_code ec) {
    id.resolve_addrinfo("host", "7471");
    id.resolve_addrinfo("host", "7471", {}, ec);
    id.query_addrinfo();
    id.query_addrinfo(ec);
};
template <class Id>
concept writes_events = requires(Id id, std::error_code ec) {
    id.write_cm_event(0, 1U);
    id.write_cm_event(0, 1U, ec);
};
template <class Event>
concept reads_events = requires(Event event) {
    event.user_arg();
};
template <class Batch>
concept writes_atomically = requires(Batch batch) {
    batch.atomic_write(rdma::remote_memory(), nullptr);
};
template <class Batch>
concept flushes = requires(Batch batch) {
    batch.flush(rdma::remote_memory(), 8, std::uint8_t{1}, std::uint8_t{0});
};
template <class Mr>
concept registers_dmabuf = requires(rdma::pd_ref pd, std::error_code ec) {
    Mr::reg_dmabuf_mr(pd, 0, 8, 0, 0, rdma::access::none);
    Mr::reg_dmabuf_mr(pd, 0, 8, 0, 0, rdma::access::none, ec);
};
template <class Dm>
concept imports_memory = requires(rdma::context_ref context, std::error_code ec) {
    Dm::import_dm(context, 1);
    Dm::import_dm(context, 1, ec);
};
template <class Qp>
concept tells_order = requires(Qp qp) {
    qp.data_in_order(IBV_WR_SEND);
};
template <class... None>
concept tells_forks = requires {
    rdma::is_fork_initialized(None()...);
};

static_assert(resolves_addrinfo<rdma::cm_id> == (core >= 60));
static_assert(writes_events<rdma::cm_id> == (core >= 60));
static_assert(reads_events<rdma::cm_event> == (core >= 60));
static_assert(writes_atomically<rdma::wr_batch> == (core >= 44));
static_assert(flushes<rdma::wr_batch> == (core >= 50));
static_assert(registers_dmabuf<rdma::mr> == (core >= 34));
static_assert(imports_memory<rdma::dm> == (core >= 35));
static_assert(tells_order<rdma::qp_ref> == (core >= 36));
static_assert(tells_forks<> == (core >= 35));

// The numbers of what newer headers have names for.
#if RDMA_CORE >= 35
static_assert(static_cast<int>(rdma::fork_status::disabled) == IBV_FORK_DISABLED);
static_assert(static_cast<int>(rdma::fork_status::enabled) == IBV_FORK_ENABLED);
static_assert(static_cast<int>(rdma::fork_status::unneeded) == IBV_FORK_UNNEEDED);
#endif
#if RDMA_CORE >= 50
static_assert(static_cast<unsigned>(rdma::access::flush_global) == IBV_ACCESS_FLUSH_GLOBAL);
static_assert(static_cast<unsigned>(rdma::access::flush_persistent) == IBV_ACCESS_FLUSH_PERSISTENT);
#endif
#if RDMA_CORE >= 60
static_assert(static_cast<int>(rdma::cm_event_type::addrinfo_resolved) == RDMA_CM_EVENT_ADDRINFO_RESOLVED);
static_assert(static_cast<int>(rdma::cm_event_type::addrinfo_error) == RDMA_CM_EVENT_ADDRINFO_ERROR);
static_assert(static_cast<int>(rdma::cm_event_type::user) == RDMA_CM_EVENT_USER);
#endif

} // namespace

// It is not only declared: the bodies compile, too.
void use(rdma::cm_id& id, rdma::cm_event const& event, rdma::wr_batch& batch) {
    rdma::remote_memory const there{};
#if RDMA_CORE >= 36
    (void)rdma::mr::reg_dmabuf_mr(id.pd(), 0, 8, 0, 0, rdma::access::none);
    (void)rdma::dm::import_dm(id.verbs(), 1);
    (void)rdma::is_fork_initialized();
    (void)id.qp().data_in_order(IBV_WR_SEND);
#endif
#if RDMA_CORE >= 44
    batch.atomic_write(there, &there);
#endif
#if RDMA_CORE >= 50
    batch.flush(there, 8, std::uint8_t{1}, std::uint8_t{0});
#endif
#if RDMA_CORE >= 60
    (void)rdma::mr::reg_mr_ex(id.pd(), ibv_mr_init_attr{});
    id.resolve_addrinfo("host", "7471");
    (void)id.query_addrinfo();
    id.write_cm_event(0, event.user_arg());
#endif
    (void)id, (void)event, (void)batch, (void)there;
}
