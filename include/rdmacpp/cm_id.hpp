// SPDX-License-Identifier: MIT
/// @file
/// Connection manager ids: the sockets of RDMA.
#pragma once

#include "config.hpp"
#if __cplusplus >= 202002L // below, config.hpp says what to do

#include "cm_id_ref.hpp"
#include "conn_param.hpp"
#include "context.hpp"
#include "detail/id_qp_nodes.hpp"
#include "event_channel.hpp"
#include "pd.hpp"
#include "qp.hpp"
#include "timeout.hpp"

#include <chrono>
#include <span>
#include <string>
#include <system_error>
#include <type_traits>
#include <utility>

namespace rdma::inline RDMACPP_ABI {

/// An owned rdma_cm_id: listener, or one end of a connection.
///
/// It may be dropped at any time, on any thread, whatever events of it are held, by whom ever: the peer is told at
/// once, the QP goes at once, and rdma_destroy_id runs with the last ack. It keeps its event channel alive. Operations
/// start something whose outcome arrives as an event; none waits (but see connect). One thread at a time may use one
/// id.
///
/// Every function that calls C throws rdma::error with the errno of the C function, and has a `noexcept` twin with a
/// trailing std::error_code&. Used when empty, it fails with errc::empty_handle; before a device is bound, where
/// librdmacm would crash, with errc::not_bound. Neither calls C.
class [[nodiscard]] cm_id : public cm_id_base {
public:
    /// Empty.
    cm_id() noexcept = default;
    cm_id(cm_id&& other) noexcept : cm_id_base(detail::take(other.raw_)), record_(detail::take(other.record_)) {}
    /// Drops the id held before, at once.
    cm_id& operator=(cm_id&& other) noexcept {
        cm_id(std::move(other)).swap(*this);
        return *this;
    }
    /// Drops the id (rdma_destroy_id, now or with the last ack). Never throws, never waits for an ack. On iWARP the
    /// kernel holds the destroy of an id in mid-connect until the peer answers or its timeout passes (siw: 10 s).
    ~cm_id() {
        if (record_)
            record_->channel->drop(*record_);
    }

#if RDMACPP_EXCEPTIONS
    /// Makes an id on a channel (rdma_create_id).
    /// @param channel where its events arrive; it is kept alive
    /// @param ps the port space: tcp for connections, udp for datagrams
    /// @param user_context kept in `id->context`
    /// @throws rdma::error errc::empty_handle for an empty channel
    cm_id(event_channel_ref channel, rdma::port_space ps, void* user_context = nullptr) {
        std::error_code ec;
        *this = cm_id(channel, ps, user_context, ec);
        if (ec)
            detail::throw_error(ec, "rdma_create_id");
    }
    /// Takes over an id that C made, or that release() gave back, with its QP if librdmacm made that. Whether it is an
    /// undecided request is not known then: accept and reject are left to C, so use them only if it is.
    /// @throws rdma::error errc::null_handle, errc::already_owned, errc::wrong_channel; std::errc::not_enough_memory
    cm_id(adopt_t, event_channel_ref channel, rdma_cm_id* raw) {
        std::error_code ec;
        *this = cm_id(adopt, channel, raw, ec);
        if (ec)
            detail::throw_error(ec, "rdma_create_id", {"adopt"});
    }
#endif
    /// The twins of the constructors: empty on failure.
    cm_id(event_channel_ref channel, rdma::port_space ps, std::error_code& ec) noexcept
        : cm_id(channel, ps, nullptr, ec) {}
    cm_id(event_channel_ref channel, rdma::port_space ps, void* user_context, std::error_code& ec) noexcept;
    cm_id(adopt_t, event_channel_ref channel, rdma_cm_id* raw, std::error_code& ec) noexcept;

    operator cm_id_ref() const& noexcept { return cm_id_ref(raw_); }
    operator cm_id_ref() const&& = delete;
    void swap(cm_id& other) noexcept {
        detail::swap_values(raw_, other.raw_);
        detail::swap_values(record_, other.record_);
    }
    friend void swap(cm_id& a, cm_id& b) noexcept { a.swap(b); }

    /// Gives the C id back, with its QP; takes no lock and makes no C call. Events of it are still delivered and
    /// counted.
    [[nodiscard]] rdma_cm_id* release() noexcept {
        if (record_)
            record_->channel->release_id(*detail::take(record_));
        return detail::take(raw_);
    }

    // ---- What belongs to it: all borrowed, all empty before a device is bound ------------------------------------

    /// Its device, which belongs to librdmacm (`id->verbs`); empty for a wildcard listener.
    context_ref verbs() const noexcept { return raw_ ? context_ref(raw_->verbs, record_) : context_ref(); }

    /// Its protection domain: librdmacm's default one, or that of its QP.
    pd_ref pd() const noexcept;

    /// Its QP, of create_qp.
    qp_ref qp() const noexcept { return raw_ ? qp_ref(raw_->qp) : qp_ref(); }

    /// The CQs that librdmacm made for its QP, if create_qp was given none, and their channels.
    cq_ref send_cq() const noexcept { return record_ ? view(record_->send_cq) : cq_ref(); }
    cq_ref recv_cq() const noexcept { return record_ ? view(record_->recv_cq) : cq_ref(); }
    comp_channel_ref send_cq_channel() const noexcept {
        return record_ ? view_channel(record_->send_cq) : comp_channel_ref();
    }
    comp_channel_ref recv_cq_channel() const noexcept {
        return record_ ? view_channel(record_->recv_cq) : comp_channel_ref();
    }

    // ---- What it does --------------------------------------------------------------------------------------------

#if RDMACPP_EXCEPTIONS
    /// Binds it to a local address (rdma_bind_addr); port 0 lets the system choose. A specific address binds a device,
    /// too.
    /// @throws rdma::error errc::bad_address for the empty one; EADDRINUSE, EADDRNOTAVAIL, ENODEV ...
    void bind(address const& local) {
        std::error_code ec;
        bind(local, ec);
        if (ec)
            detail::throw_error(ec, "rdma_bind_addr", {to_string(local)});
    }

    /// Listens for connection requests (rdma_listen). @param backlog how many may queue; 0: as many as the system
    /// allows
    void listen(int backlog = 0) {
        std::error_code ec;
        listen(backlog, ec);
        if (ec)
            detail::throw_error(ec, "rdma_listen");
    }

    /// Resolves the peer's address to a local device (rdma_resolve_addr): leads to ADDR_RESOLVED or ADDR_ERROR.
    /// @throws rdma::error errc::bad_address, errc::family_mismatch; ENODEV if no RDMA device leads there ...
    void resolve_addr(address const& peer, timeout limit = std::chrono::milliseconds(2000)) {
        std::error_code ec;
        resolve_addr(peer, limit, ec);
        if (ec)
            detail::throw_error(ec, "rdma_resolve_addr", {to_string(peer)});
    }
    /// The same, from a given local address, whose port may be 0.
    void resolve_addr(address const& local, address const& peer, timeout limit = std::chrono::milliseconds(2000)) {
        std::error_code ec;
        resolve_addr(local, peer, limit, ec);
        if (ec)
            detail::throw_error(ec, "rdma_resolve_addr", {to_string(local), ", ", to_string(peer)});
    }

    /// Finds the route to the peer (rdma_resolve_route): leads to ROUTE_RESOLVED or ROUTE_ERROR. Needs ADDR_RESOLVED.
    void resolve_route(timeout limit = std::chrono::milliseconds(2000)) {
        std::error_code ec;
        resolve_route(limit, ec);
        if (ec)
            detail::throw_error(ec, "rdma_resolve_route");
    }

    /// Makes its QP (rdma_create_qp), on its default PD, or on one of the same device; what is used is kept alive.
    /// @return what was granted, which may be more than was asked for
    /// @throws rdma::error errc::qp_exists; std::errc::not_enough_memory; EINVAL ...
    qp_cap create_qp(qp_init_attr const& attr) { return create_qp(pd_ref(), attr); }
    qp_cap create_qp(pd_ref protection, qp_init_attr const& attr) {
        std::error_code ec;
        qp_cap const granted = create_qp(protection, attr, ec);
        if (ec)
            detail::throw_error(ec, "rdma_create_qp");
        return granted;
    }

    /// Asks the peer for a connection (rdma_connect): leads to ESTABLISHED, REJECTED, UNREACHABLE or CONNECT_ERROR, to
    /// a dead host only after 102 seconds, unless the id is dropped. Needs ROUTE_RESOLVED and, for all but self-managed
    /// QPs, a QP. Post receives first. On iWARP it may block inside the call, and the connecting side must send the
    /// first message.
    /// @throws rdma::error errc::private_data_too_long, errc::private_data_iwarp, errc::retry_count_out_of_range
    void connect(conn_param const& param = {}) {
        std::error_code ec;
        connect(param, ec);
        if (ec)
            detail::throw_error(ec, "rdma_connect", {describe(param)});
    }

    /// Accepts the request that brought the id (rdma_accept): leads to ESTABLISHED. Make the QP and post receives
    /// first. After a failure the kernel has rejected the peer already; the id is still to be dropped.
    /// @throws rdma::error errc::not_a_request on any other id; errc::private_data_too_long and as for connect
    void accept(conn_param const& param = {}) {
        std::error_code ec;
        accept(param, ec);
        if (ec)
            detail::throw_error(ec, "rdma_accept", {describe(param)});
    }

    /// Rejects the request that brought the id (rdma_reject). The id is still to be dropped; dropping it undecided
    /// rejects, too.
    /// @throws rdma::error errc::not_a_request on any other id (librdmacm would block for 102 s in a later destroy);
    ///         errc::private_data_too_long, errc::private_data_iwarp
    void reject(std::span<std::byte const> private_data = {}) {
        std::error_code ec;
        reject(private_data, ec);
        if (ec)
            detail::throw_error(ec, "rdma_reject", {std::to_string(private_data.size()), " bytes"});
    }

    /// Ends the connection (rdma_disconnect): leads to DISCONNECTED here and there; the QP goes into its error state.
    void disconnect() {
        std::error_code ec;
        disconnect(ec);
        if (ec)
            detail::throw_error(ec, "rdma_disconnect");
    }

    /// Destroys the id now, and its QP (rdma_destroy_id); empty afterwards. On an error it keeps the id.
    /// @throws rdma::error std::errc::resource_deadlock_would_occur while events of it are held, saying how many;
    ///         std::errc::device_or_resource_busy while something made from it lives; it never waits for either
    void destroy() {
        std::error_code ec;
        if (std::uint32_t const held = destroy_unless_held(ec); ec)
            detail::throw_error(ec, "rdma_destroy_id", {std::to_string(held), " events held"});
    }

    /// Type of service of its packets (RDMA_OPTION_ID_TOS); before connecting.
    void set_tos(std::uint8_t tos) {
        std::error_code ec;
        set_tos(tos, ec);
        if (ec)
            detail::throw_error(ec, "rdma_set_option", {"tos"});
    }
    /// Allows binding to a port in use (RDMA_OPTION_ID_REUSEADDR); before bind.
    void set_reuse_addr(bool on) {
        std::error_code ec;
        set_reuse_addr(on, ec);
        if (ec)
            detail::throw_error(ec, "rdma_set_option", {"reuse_addr"});
    }
    /// Keeps an IPv6 wildcard listener from IPv4 (RDMA_OPTION_ID_AFONLY); before bind.
    void set_af_only(bool on) {
        std::error_code ec;
        set_af_only(on, ec);
        if (ec)
            detail::throw_error(ec, "rdma_set_option", {"af_only"});
    }
    /// The QP's local ACK timeout: 4.096 us * 2^exponent (RDMA_OPTION_ID_ACK_TIMEOUT); before connect or accept.
    void set_ack_timeout(std::uint8_t exponent) {
        std::error_code ec;
        set_ack_timeout(exponent, ec);
        if (ec)
            detail::throw_error(ec, "rdma_set_option", {"ack_timeout"});
    }
    /// Any other option of rdma_set_option, by its level and name in C.
    void set_option(int level, int name, std::span<std::byte const> value) {
        std::error_code ec;
        set_option(level, name, value, ec);
        if (ec)
            detail::throw_error(ec, "rdma_set_option",
                                {"level ", std::to_string(level), ", option ", std::to_string(name)});
    }
#endif

    void bind(address const& local, std::error_code& ec) noexcept;
    void listen(int backlog, std::error_code& ec) noexcept;
    void listen(std::error_code& ec) noexcept { listen(0, ec); }
    void resolve_addr(address const& peer, timeout limit, std::error_code& ec) noexcept;
    void resolve_addr(address const& local, address const& peer, timeout limit, std::error_code& ec) noexcept;
    void resolve_addr(address const& peer, std::error_code& ec) noexcept {
        resolve_addr(peer, std::chrono::milliseconds(2000), ec);
    }
    void resolve_route(timeout limit, std::error_code& ec) noexcept;
    void resolve_route(std::error_code& ec) noexcept { resolve_route(std::chrono::milliseconds(2000), ec); }
    qp_cap create_qp(pd_ref protection, qp_init_attr const& attr, std::error_code& ec) noexcept;
    qp_cap create_qp(qp_init_attr const& attr, std::error_code& ec) noexcept { return create_qp({}, attr, ec); }
    void connect(conn_param const& param, std::error_code& ec) noexcept;
    void connect(std::error_code& ec) noexcept { connect({}, ec); }
    void accept(conn_param const& param, std::error_code& ec) noexcept;
    void accept(std::error_code& ec) noexcept { accept({}, ec); }
    void reject(std::span<std::byte const> private_data, std::error_code& ec) noexcept;
    void reject(std::error_code& ec) noexcept { reject({}, ec); }
    void disconnect(std::error_code& ec) noexcept;
    void destroy(std::error_code& ec) noexcept { destroy_unless_held(ec); }
    void set_tos(std::uint8_t tos, std::error_code& ec) noexcept {
        set(RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &tos, sizeof tos, ec);
    }
    void set_reuse_addr(bool on, std::error_code& ec) noexcept {
        int const value = on;
        set(RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &value, sizeof value, ec);
    }
    void set_af_only(bool on, std::error_code& ec) noexcept {
        int const value = on;
        set(RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &value, sizeof value, ec);
    }
    void set_ack_timeout(std::uint8_t exponent, std::error_code& ec) noexcept {
        set(RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &exponent, sizeof exponent, ec);
    }
    void set_option(int level, int name, std::span<std::byte const> value, std::error_code& ec) noexcept {
        set(level, name, value.data(), value.size(), ec);
    }

    /// Destroys its QP, if it has one, now or with the last event of it; and librdmacm's CQs with it. A failure is told
    /// to the diagnostic handler. The id's default PD is its PD again.
    void destroy_qp() noexcept {
        if (record_)
            detail::unpin(record_->channel->unhook_qp(*record_));
    }

private:
    friend class cm_event;

    cm_id(rdma_cm_id* raw, detail::id_record* record) noexcept : cm_id_base(raw), record_(record) {}

    static cq_ref view(detail::cq_node* node) noexcept {
        return node ? cq_ref(static_cast<ibv_cq*>(node->raw), node) : cq_ref();
    }
    static comp_channel_ref view_channel(detail::cq_node* node) noexcept {
        return node ? comp_channel_ref(static_cast<ibv_comp_channel*>(node->channel->raw), node->channel)
                    : comp_channel_ref();
    }

    /// Whether C may be called: the handle is not empty, and, where librdmacm would look at it, there is a device.
    bool ready(std::error_code& ec, bool needs_device = false) const noexcept {
        ec.clear();
        if (!raw_)
            ec = errc::empty_handle;
        else if (needs_device && !raw_->verbs)
            ec = errc::not_bound;
        return !ec;
    }

    bool fits(std::span<std::byte const> bytes, std::error_code& ec) const noexcept;
    bool valid(conn_param const& param, std::error_code& ec) const noexcept;
    bool decide(std::error_code& ec) noexcept;
    std::uint32_t destroy_unless_held(std::error_code& ec) noexcept;

    static rdma_conn_param to_c(conn_param const& param) noexcept;

    /// C takes the address by a pointer to non-const, and only reads it.
    static sockaddr* to_c(address const& a) noexcept { return const_cast<sockaddr*>(a.native_handle()); }

    void set(int level, int name, void const* value, std::size_t size, std::error_code& ec) noexcept;

#if RDMACPP_EXCEPTIONS
    static std::string describe(conn_param const& p) {
        return detail::concat({std::to_string(p.private_data.size()), " bytes of private data, retry_count ",
                               std::to_string(p.retry_count), ", rnr_retry_count ", std::to_string(p.rnr_retry_count)});
    }
#endif

    detail::id_record* record_ = nullptr;
};

static_assert(!std::is_copy_constructible_v<cm_id> && !std::is_copy_assignable_v<cm_id>);
static_assert(std::is_nothrow_default_constructible_v<cm_id> && std::is_nothrow_move_constructible_v<cm_id> &&
              std::is_nothrow_move_assignable_v<cm_id>);
static_assert(!std::is_constructible_v<cm_id, cm_id_ref> && !std::is_constructible_v<cm_id, rdma_cm_id*>);
static_assert(sizeof(cm_id) <= 3 * sizeof(void*));

// ---- Implementation ------------------------------------------------------------------------------------------------

inline cm_id::cm_id(event_channel_ref channel, rdma::port_space ps, void* user_context, std::error_code& ec) noexcept {
    if (!channel) {
        ec = errc::empty_handle;
        return;
    }
    detail::channel_state* const state = detail::channel_state::borrow(channel.native_handle(), ec);
    if (!state)
        return;
    record_ = state->create_id(static_cast<rdma_port_space>(ps), user_context, ec);
    raw_ = record_ ? record_->raw : nullptr;
    state->unref(); // the record keeps it
}

inline cm_id::cm_id(adopt_t, event_channel_ref channel, rdma_cm_id* raw, std::error_code& ec) noexcept {
    if (!channel) {
        ec = errc::empty_handle;
        return;
    }
    detail::id_qp_nodes nodes(raw && raw->send_cq, raw && raw->recv_cq); // in case C made a QP
    if (!nodes.complete) {
        ec = detail::system_error_code(ENOMEM);
        return;
    }
    detail::channel_state* const state = detail::channel_state::borrow(channel.native_handle(), ec);
    if (!state)
        return;
    record_ = state->adopt_id(raw, ec);
    state->unref();
    if (!record_)
        return;
    raw_ = raw;
    record_->take_qp_back();
    if (raw->qp && !record_->qp)
        nodes.adopt(*record_);
}

inline pd_ref cm_id::pd() const noexcept {
    if (!raw_ || !raw_->pd)
        return {};
    bool const users = record_->qp && raw_->pd != record_->default_pd;
    return {raw_->pd, users ? record_->qp->needs[0] : record_};
}

inline void cm_id::bind(address const& local, std::error_code& ec) noexcept {
    if (!ready(ec))
        return;
    if (local.family() == AF_UNSPEC)
        ec = errc::bad_address;
    else
        ec = detail::check_errno(::rdma_bind_addr(raw_, to_c(local)));
}

inline void cm_id::listen(int backlog, std::error_code& ec) noexcept {
    if (!ready(ec))
        return;
    ec = detail::check_errno(::rdma_listen(raw_, backlog));
    if (!ec)
        record_->request.store(detail::request_state::none);
}

inline void cm_id::resolve_addr(address const& peer, timeout limit, std::error_code& ec) noexcept {
    resolve_addr(address(), peer, limit, ec);
}

inline void cm_id::resolve_addr(address const& local, address const& peer, timeout limit,
                                std::error_code& ec) noexcept {
    if (!ready(ec))
        return;
    sa_family_t const bound = local.family() != AF_UNSPEC ? local.family() : local_addr().family();
    if (peer.family() == AF_UNSPEC)
        ec = errc::bad_address;
    else if (bound != AF_UNSPEC && bound != peer.family())
        ec = errc::family_mismatch;
    else
        ec = detail::check_errno(
            ::rdma_resolve_addr(raw_, local.family() != AF_UNSPEC ? to_c(local) : nullptr, to_c(peer), limit.as_int()));
}

inline void cm_id::resolve_route(timeout limit, std::error_code& ec) noexcept {
    if (ready(ec, true))
        ec = detail::check_errno(::rdma_resolve_route(raw_, limit.as_int()));
}

inline bool cm_id::fits(std::span<std::byte const> bytes, std::error_code& ec) const noexcept {
    if (bytes.size() > private_data_limit::any)
        ec = errc::private_data_too_long;
    else if (bytes.size() > private_data_limit::iwarp && verbs().transport() == transport_type::iwarp)
        ec = errc::private_data_iwarp;
    return !ec;
}

inline bool cm_id::valid(conn_param const& param, std::error_code& ec) const noexcept {
    if (param.retry_count > 7 || param.rnr_retry_count > 7) // three bits each: 8 would be sent as 0
        ec = errc::retry_count_out_of_range;
    return !ec && fits(param.private_data, ec);
}

inline rdma_conn_param cm_id::to_c(conn_param const& param) noexcept {
    rdma_conn_param c{};
    c.private_data = param.private_data.data();
    c.private_data_len = static_cast<std::uint8_t>(param.private_data.size());
    c.responder_resources = param.responder_resources;
    c.initiator_depth = param.initiator_depth;
    c.flow_control = param.flow_control;
    c.retry_count = param.retry_count;
    c.rnr_retry_count = param.rnr_retry_count;
    c.srq = param.srq;
    c.qp_num = param.qp_num;
    return c;
}

inline void cm_id::connect(conn_param const& param, std::error_code& ec) noexcept {
    if (!ready(ec, true) || !valid(param, ec))
        return;
    rdma_conn_param c = to_c(param);
    record_->request.store(detail::request_state::none);
    record_->active.store(true, std::memory_order_relaxed);
    ec = detail::check_errno(::rdma_connect(raw_, &c));
}

/// A request is decided once; false, with `ec`, if it was decided before or never was one.
inline bool cm_id::decide(std::error_code& ec) noexcept {
    using state = detail::request_state;
    state const before = record_->request.exchange(state::decided);
    if (before == state::undecided || before == state::unknown)
        return true;
    record_->request.store(before);
    ec = errc::not_a_request;
    return false;
}

inline void cm_id::accept(conn_param const& param, std::error_code& ec) noexcept {
    if (!ready(ec, true) || !valid(param, ec) || !decide(ec))
        return;
    rdma_conn_param c = to_c(param);
    record_->active.store(true, std::memory_order_relaxed);
    ec = detail::check_errno(::rdma_accept(raw_, &c));
}

inline void cm_id::reject(std::span<std::byte const> private_data, std::error_code& ec) noexcept {
    if (!ready(ec) || !fits(private_data, ec) || !decide(ec))
        return;
    ec = detail::check_errno(::rdma_reject(raw_, private_data.data(), static_cast<std::uint8_t>(private_data.size())));
    if (ec) // nothing was sent: it is still to be decided
        record_->request.store(detail::request_state::undecided);
}

inline void cm_id::disconnect(std::error_code& ec) noexcept {
    if (ready(ec, true))
        ec = detail::check_errno(::rdma_disconnect(raw_));
}

inline std::uint32_t cm_id::destroy_unless_held(std::error_code& ec) noexcept {
    std::uint32_t held = 0;
    if (!ready(ec))
        return held;
    ec = record_->channel->destroy(*record_, held);
    if (!ec) {
        raw_ = nullptr;
        record_ = nullptr;
    }
    return held;
}

inline void cm_id::set(int level, int name, void const* value, std::size_t size, std::error_code& ec) noexcept {
    if (ready(ec)) // C takes the value by a pointer to non-const, and only reads it
        ec = detail::check_errno(::rdma_set_option(raw_, level, name, const_cast<void*>(value), size));
}

inline qp_cap cm_id::create_qp(pd_ref protection, qp_init_attr const& attr, std::error_code& ec) noexcept {
    if (!ready(ec, true))
        return {};
    if (raw_->qp) {
        ec = errc::qp_exists;
        return {};
    }
    detail::id_qp_nodes nodes(!attr.send_cq, !attr.recv_cq);
    if (!nodes.complete) {
        ec = detail::system_error_code(ENOMEM);
        return {};
    }
    ibv_qp_init_attr c{};
    c.qp_context = attr.user_context;
    c.send_cq = attr.send_cq.native_handle();
    c.recv_cq = attr.recv_cq.native_handle();
    c.cap = {attr.cap.max_send_wr, attr.cap.max_recv_wr, attr.cap.max_send_sge, attr.cap.max_recv_sge,
             attr.cap.max_inline_data};
    c.qp_type = raw_->qp_type;
    c.sq_sig_all = attr.signal_all;
    ibv_pd* const before = raw_->pd;
    errno = 0; // siw's provider can fail without saying why: not with a reason left over from another call
    if ((ec = detail::check_errno(::rdma_create_qp(raw_, protection.native_handle(), &c))))
        return {};
    nodes.hook(*record_, before, protection.keeper_, attr.send_cq.node_, attr.recv_cq.node_);
    return {c.cap.max_send_wr, c.cap.max_recv_wr, c.cap.max_send_sge, c.cap.max_recv_sge, c.cap.max_inline_data};
}

inline cm_id cm_event::take_id(std::error_code& ec) noexcept {
    ec.clear();
    if (!held_.child || !held_.child->status.replace(detail::id_status::in_event, detail::id_status::owned)) {
        ec = errc::no_id_to_take;
        return {};
    }
    return {held_.child->raw, held_.child};
}

#if RDMACPP_EXCEPTIONS
inline cm_id cm_event::take_id() {
    std::error_code ec;
    cm_id id = take_id(ec);
    if (ec)
        detail::throw_error(ec, "rdma_get_cm_event", {"take_id"});
    return id;
}
#endif

} // namespace rdma::inline RDMACPP_ABI

#endif
