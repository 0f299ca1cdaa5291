// SPDX-License-Identifier: MIT
/// @file
/// Connection manager ids: the sockets of RDMA.
#pragma once

#include "config.hpp"
#if __cplusplus >= 202002L && !defined(RDMACPP_TWO_VERSIONS) // otherwise config.hpp says what to do

#include "ack_timeout.hpp"
#include "addrinfo.hpp"
#include "cm_id_ref.hpp"
#include "conn_param.hpp"
#include "context.hpp"
#include "detail/contract.hpp"
#include "detail/id_qp_nodes.hpp"
#include "detail/newer.hpp"
#include "event_channel.hpp"
#include "membership.hpp"
#include "pd.hpp"
#include "qp.hpp"
#include "rdma_verbs.hpp"
#include "srq.hpp"
#include "timeout.hpp"

#include <chrono>
#include <span>
#include <string>
#include <system_error>
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
class [[nodiscard]] cm_id : public cm_id_base, public rdma_verbs<cm_id> {
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
    cm_id(event_channel_ref channel, ::rdma::port_space ps, void* user_context = nullptr) {
        std::error_code ec;
        *this = cm_id(channel, ps, user_context, ec);
        if (ec)
            detail::throw_error(ec, "rdma_create_id");
    }
    /// Makes an id for QPs of a type that the port space alone does not give, such as the two of XRC (rdma_create_ep,
    /// then rdma_migrate_id onto the channel), bound to a local address.
    /// @param local where to bind; empty: any IPv4 address, on a port of the system's choice
    /// @throws rdma::error errc::empty_handle for an empty channel; the errno of rdma_create_ep
    cm_id(event_channel_ref channel, ::rdma::port_space ps, ::rdma::qp_type type, address const& local = {}) {
        std::error_code ec;
        if (char const* const function = create_ep(channel, ps, type, local, ec); ec)
            detail::throw_error(ec, function, {to_string(local)});
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
    cm_id(event_channel_ref channel, ::rdma::port_space ps, std::error_code& ec) noexcept
        : cm_id(channel, ps, nullptr, ec) {}
    cm_id(event_channel_ref channel, ::rdma::port_space ps, void* user_context, std::error_code& ec) noexcept;
    cm_id(event_channel_ref channel, ::rdma::port_space ps, ::rdma::qp_type type, address const& local,
          std::error_code& ec) noexcept;
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

    // ---- What belongs to it: all borrowed, all empty before a device is bound --------------------------------------

    /// Its device, which belongs to librdmacm (`id->verbs`); empty for a wildcard listener.
    context_ref verbs() const noexcept {
        return raw_ ? detail::refs::make<context_ref>(raw_->verbs, static_cast<detail::pinnable*>(record_))
                    : context_ref();
    }

    /// Its protection domain: librdmacm's default one, or that of its QP.
    pd_ref pd() const noexcept;

    /// Its QP, of create_qp.
    qp_ref qp() const noexcept {
        return raw_ ? detail::refs::make<qp_ref>(raw_->qp,
                                                 static_cast<detail::qp_node*>(record_ ? record_->qp : nullptr))
                    : qp_ref();
    }

    /// Its shared receive queue, of create_srq.
    srq_ref srq() const noexcept {
        return record_ && record_->srq ? detail::refs::make<srq_ref>(raw_->srq, record_->srq) : srq_ref();
    }

    /// The channel its events arrive on; it changes with migrate.
    event_channel_ref channel() const noexcept { return raw_ ? event_channel_ref(raw_->channel) : event_channel_ref(); }

    /// The CQ that librdmacm made for its XRC SRQ, if create_srq_ex was given none.
    cq_ref srq_cq() const noexcept { return record_ ? view(record_->srq_cq) : cq_ref(); }
    comp_channel_ref srq_cq_channel() const noexcept {
        return record_ ? view_channel(record_->srq_cq) : comp_channel_ref();
    }

    /// The CQs that librdmacm made for its QP, if create_qp was given none, and their channels.
    cq_ref send_cq() const noexcept { return record_ ? view(record_->send_cq) : cq_ref(); }
    cq_ref recv_cq() const noexcept { return record_ ? view(record_->recv_cq) : cq_ref(); }
    comp_channel_ref send_cq_channel() const noexcept {
        return record_ ? view_channel(record_->send_cq) : comp_channel_ref();
    }
    comp_channel_ref recv_cq_channel() const noexcept {
        return record_ ? view_channel(record_->recv_cq) : comp_channel_ref();
    }

    // ---- What it does ----------------------------------------------------------------------------------------------

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

    /// Makes its QP with all that devices offer (rdma_create_qp_ex); otherwise as create_qp.
    qp_cap create_qp_ex(qp_init_attr_ex const& attr) { return create_qp_ex(pd_ref(), attr); }
    qp_cap create_qp_ex(pd_ref protection, qp_init_attr_ex const& attr) {
        std::error_code ec;
        qp_cap const granted = create_qp_ex(protection, attr, ec);
        if (ec)
            detail::throw_error(ec, "rdma_create_qp_ex");
        return granted;
    }

    /// Makes its shared receive queue (rdma_create_srq), on its default PD, or on one of the same device, which is kept
    /// alive. A QP made afterwards uses it. It goes with the id, or with destroy_srq.
    /// @return what was granted
    /// @throws rdma::error errc::not_bound; std::errc::file_exists if it has one; the errno of ibv_create_srq
    srq_init_attr create_srq(srq_init_attr const& attr = {}) { return create_srq(pd_ref(), attr); }
    srq_init_attr create_srq(pd_ref protection, srq_init_attr const& attr) {
        std::error_code ec;
        srq_init_attr const granted = create_srq(protection, attr, ec);
        if (ec)
            detail::throw_error(ec, "rdma_create_srq");
        return granted;
    }
    /// The same, of any type (rdma_create_srq_ex): for XRC and tag matching.
    srq_init_attr create_srq_ex(srq_init_attr_ex const& attr) { return create_srq_ex(pd_ref(), attr); }
    srq_init_attr create_srq_ex(pd_ref protection, srq_init_attr_ex const& attr) {
        std::error_code ec;
        srq_init_attr const granted = create_srq_ex(protection, attr, ec);
        if (ec)
            detail::throw_error(ec, "rdma_create_srq_ex");
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
    /// errc::private_data_too_long, errc::private_data_iwarp
    void reject(std::span<std::byte const> private_data = {}) {
        std::error_code ec;
        reject(private_data, ec);
        if (ec)
            detail::throw_error(ec, "rdma_reject", {std::to_string(private_data.size()), " bytes"});
    }

    /// Rejects the request because its ECE options do not suit (rdma_reject_ece): the peer sees reason 35. Otherwise as
    /// reject.
    void reject_ece(std::span<std::byte const> private_data = {}) {
        std::error_code ec;
        reject_ece(private_data, ec);
        if (ec)
            detail::throw_error(ec, "rdma_reject_ece", {std::to_string(private_data.size()), " bytes"});
    }

    /// Completes a connection whose QP is the program's own, after CONNECT_RESPONSE (rdma_establish); no event follows
    /// here, the peer becomes ESTABLISHED. InfiniBand and RoCE alone.
    /// @throws rdma::error errc::not_bound; errc::has_qp: librdmacm does it itself then; EINVAL on iWARP
    void establish() {
        std::error_code ec;
        establish(ec);
        if (ec)
            detail::throw_error(ec, "rdma_establish");
    }

    /// What to modify a QP of the program's own with, to bring it into a state of this connection (rdma_init_qp_attr):
    /// IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS, in this order, after CONNECT_RESPONSE or CONNECT_REQUEST. To post
    /// receives before connecting, INIT may be asked for then, too, and once more later: only then does it allow the
    /// peer's reads and writes. On iWARP the device moves the QP by itself.
    /// @throws rdma::error errc::not_bound; EINVAL in the wrong state of the connection
    qp_attr init_qp_attr(ibv_qp_state state) const {
        std::error_code ec;
        qp_attr const attr = init_qp_attr(state, ec);
        if (ec)
            detail::throw_error(ec, "rdma_init_qp_attr", {"state ", std::to_string(static_cast<int>(state))});
        return attr;
    }

    /// Tells the kernel of an async event of its QP (rdma_notify): of IBV_EVENT_COMM_EST, when data arrived before
    /// ESTABLISHED. That it is connected already is no error.
    void notify(ibv_event_type event) {
        std::error_code ec;
        notify(event, ec);
        if (ec)
            detail::throw_error(ec, "rdma_notify", {::ibv_event_type_str(event)});
    }

    /// The ECE options to offer, before connect or accept (rdma_set_local_ece), of a connection whose QP is the
    /// program's own. @throws rdma::error errc::has_qp; EINVAL for vendor_id 0 or a comp_mask
    void set_local_ece(ibv_ece const& ece) {
        std::error_code ec;
        set_local_ece(ece, ec);
        if (ec)
            detail::throw_error(ec, "rdma_set_local_ece");
    }
    /// The peer's ECE options (rdma_get_remote_ece): after CONNECT_REQUEST or CONNECT_RESPONSE, of a connection whose
    /// QP is the program's own; vendor_id 0: none. @throws rdma::error errc::has_qp
    ibv_ece remote_ece() const {
        std::error_code ec;
        ibv_ece const ece = remote_ece(ec);
        if (ec)
            detail::throw_error(ec, "rdma_get_remote_ece");
        return ece;
    }

    /// Joins a multicast group (rdma_join_multicast): leads to MULTICAST_JOIN or MULTICAST_ERROR. Make the QP first:
    /// librdmacm attaches it when the event is got.
    /// @param group an IPv4 or IPv6 multicast address, or an IPv6 one that holds an MGID
    /// @param user_context what cm_event::join_context gives; the peer never sees it
    /// @return drop it to leave
    /// @throws rdma::error errc::not_bound, errc::bad_address, errc::already_joined; the errno of the call
    membership join_multicast(address const& group, void* user_context = nullptr) {
        std::error_code ec;
        membership joined = join_multicast(group, user_context, ec);
        if (ec)
            detail::throw_error(ec, "rdma_join_multicast", {to_string(group)});
        return joined;
    }
    /// The same, as a full member or as a sender alone (rdma_join_multicast_ex).
    membership join_multicast(address const& group, join_flag flag, void* user_context = nullptr) {
        std::error_code ec;
        membership joined = join_multicast(group, flag, user_context, ec);
        if (ec)
            detail::throw_error(ec, "rdma_join_multicast_ex", {to_string(group)});
        return joined;
    }

    /// Moves it, and the events queued for it, to another channel (rdma_migrate_id): for a channel for each worker, or
    /// each connection. Both channels may be in use by other threads.
    /// @throws rdma::error errc::empty_handle; std::errc::resource_deadlock_would_occur while events of it are held,
    /// saying how many (a CONNECT_REQUEST that brought it does not count); errc::listener_migrates
    void migrate(event_channel_ref to) {
        std::error_code ec;
        if (std::uint32_t const held = migrate_unless_held(to, ec); ec)
            detail::throw_error(ec, "rdma_migrate_id", {std::to_string(held), " events held"});
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
    /// std::errc::device_or_resource_busy while something made from it lives; it never waits for either
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
    /// The QP's local ACK timeout (RDMA_OPTION_ID_ACK_TIMEOUT); before connect or accept.
    void set_ack_timeout(ack_timeout span) {
        std::error_code ec;
        set_ack_timeout(span, ec);
        if (ec)
            detail::throw_error(ec, "rdma_set_option", {"ack_timeout"});
    }
    /// The InfiniBand path to use, in place of resolve_route (RDMA_OPTION_IB_PATH): leads to ROUTE_RESOLVED, too.
    void set_ib_path(std::span<ibv_path_data const> paths) {
        std::error_code ec;
        set_ib_path(paths, ec);
        if (ec)
            detail::throw_error(ec, "rdma_set_option", {"ib_path"});
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
    qp_cap create_qp_ex(pd_ref protection, qp_init_attr_ex const& attr, std::error_code& ec) noexcept;
    qp_cap create_qp_ex(qp_init_attr_ex const& attr, std::error_code& ec) noexcept {
        return create_qp_ex({}, attr, ec);
    }
    srq_init_attr create_srq(pd_ref protection, srq_init_attr const& attr, std::error_code& ec) noexcept;
    srq_init_attr create_srq(srq_init_attr const& attr, std::error_code& ec) noexcept {
        return create_srq({}, attr, ec);
    }
    srq_init_attr create_srq_ex(pd_ref protection, srq_init_attr_ex const& attr, std::error_code& ec) noexcept;
    srq_init_attr create_srq_ex(srq_init_attr_ex const& attr, std::error_code& ec) noexcept {
        return create_srq_ex({}, attr, ec);
    }
    void connect(conn_param const& param, std::error_code& ec) noexcept;
    void connect(std::error_code& ec) noexcept { connect({}, ec); }
    void accept(conn_param const& param, std::error_code& ec) noexcept;
    void accept(std::error_code& ec) noexcept { accept({}, ec); }
    void reject(std::span<std::byte const> private_data, std::error_code& ec) noexcept;
    void reject(std::error_code& ec) noexcept { reject({}, ec); }
    void reject_ece(std::span<std::byte const> private_data, std::error_code& ec) noexcept;
    void reject_ece(std::error_code& ec) noexcept { reject_ece({}, ec); }
    void establish(std::error_code& ec) noexcept;
    qp_attr init_qp_attr(ibv_qp_state state, std::error_code& ec) const noexcept;
    void notify(ibv_event_type event, std::error_code& ec) noexcept;
    void set_local_ece(ibv_ece const& ece, std::error_code& ec) noexcept;
    ibv_ece remote_ece(std::error_code& ec) const noexcept;
    membership join_multicast(address const& group, join_flag flag, void* user_context, std::error_code& ec) noexcept {
        return join(group, static_cast<int>(flag), user_context, ec);
    }
    membership join_multicast(address const& group, join_flag flag, std::error_code& ec) noexcept {
        return join_multicast(group, flag, nullptr, ec);
    }
    membership join_multicast(address const& group, void* user_context, std::error_code& ec) noexcept {
        return join(group, detail::channel_state::plain_join, user_context, ec);
    }
    membership join_multicast(address const& group, std::error_code& ec) noexcept {
        return join(group, detail::channel_state::plain_join, nullptr, ec);
    }
    void migrate(event_channel_ref to, std::error_code& ec) noexcept { migrate_unless_held(to, ec); }
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
    void set_ack_timeout(ack_timeout span, std::error_code& ec) noexcept {
        std::uint8_t const exponent = span.exponent();
        set(RDMA_OPTION_ID, detail::option_id_ack_timeout, &exponent, sizeof exponent, ec);
    }
    void set_ib_path(std::span<ibv_path_data const> paths, std::error_code& ec) noexcept {
        set(RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, paths.data(), paths.size_bytes(), ec);
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
    /// Destroys its SRQ, if it has one, now or when the last QP and event of it are gone.
    void destroy_srq() noexcept {
        if (record_)
            detail::unpin(record_->channel->unhook_srq(*record_));
    }

    /// True once a DISCONNECTED of it was got.
    bool disconnected() const noexcept { return record_ && record_->ended.load(detail::order::acquire); }

    // ---- With rdma-core 60 and newer; elsewhere these do not exist -------------------------------------------------

#if RDMACPP_EXCEPTIONS
    /// Looks up a host and a service (rdma_resolve_addrinfo): leads to ADDRINFO_RESOLVED, then query_addrinfo has the
    /// results, or to ADDRINFO_ERROR. Names are still looked up before it returns, unless hints.flags has RAI_SA.
    template <class Id = rdma_cm_id>
        requires detail::has_resolve_addrinfo<Id>
    void resolve_addrinfo(char const* node, char const* service, addrinfo_hints const& hints = {}) {
        std::error_code ec;
        resolve_addrinfo<Id>(node, service, hints, ec);
        if (ec)
            detail::throw_error(ec, "rdma_resolve_addrinfo", {node ? node : "", ", ", service ? service : ""});
    }
    /// The results, once (rdma_query_addrinfo). @throws rdma::error ENOENT if there are none
    template <class Id = rdma_cm_id>
        requires detail::has_resolve_addrinfo<Id> addrinfo query_addrinfo() {
            std::error_code ec;
            addrinfo found = query_addrinfo<Id>(ec);
            if (ec)
                detail::throw_error(ec, "rdma_query_addrinfo");
            return found;
        }
    /// Puts an event of type USER on its channel (rdma_write_cm_event); any thread may. The kernel must know it, too.
    /// @param status, arg what cm_event::status and cm_event::user_arg give
    template <class Id = rdma_cm_id>
        requires detail::has_write_cm_event<Id>
    void write_cm_event(int status, std::uint64_t arg) {
        std::error_code ec;
        write_cm_event<Id>(status, arg, ec);
        if (ec)
            detail::throw_error(ec, "rdma_write_cm_event");
    }
#endif
    template <class Id = rdma_cm_id>
        requires detail::has_resolve_addrinfo<Id>
    void resolve_addrinfo(char const* node, char const* service, addrinfo_hints const& hints,
                          std::error_code& ec) noexcept {
        if (!ready(ec))
            return;
        rdma_addrinfo const c = addrinfo::to_c(hints);
        errno = 0; // C may leave a resolver's code there, or -1, which is none
        if (rdma_resolve_addrinfo(static_cast<Id*>(raw_), node, service, &c) != 0)
            ec = errno < -1 ? std::error_code(errno, gai_category())
                            : detail::system_error_code(errno == -1 ? 0 : errno);
    }
    template <class Id = rdma_cm_id>
        requires detail::has_resolve_addrinfo<Id> addrinfo query_addrinfo(std::error_code& ec)
    noexcept {
        addrinfo found;
        if (ready(ec))
            ec = detail::check_errno(rdma_query_addrinfo(static_cast<Id*>(raw_), &found.raw_));
        return found;
    }
    template <class Id = rdma_cm_id>
        requires detail::has_write_cm_event<Id>
    void write_cm_event(int status, std::uint64_t arg, std::error_code& ec) noexcept {
        if (ready(ec))
            ec = detail::check_errno(rdma_write_cm_event(
                static_cast<Id*>(raw_), static_cast<rdma_cm_event_type>(cm_event_type::user), status, arg));
    }

private:
    friend class cm_event;

    cm_id(rdma_cm_id* raw, detail::id_record* record) noexcept : cm_id_base(raw), record_(record) {}

    static cq_ref view(detail::cq_node* node) noexcept {
        return node ? detail::refs::make<cq_ref>(node->object(), node) : cq_ref();
    }
    static comp_channel_ref view_channel(detail::cq_node* node) noexcept {
        return node ? detail::refs::make<comp_channel_ref>(node->channel->object(), node->channel) : comp_channel_ref();
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

    bool decide(std::error_code& ec) noexcept;
    bool without_qp(std::error_code& ec) const noexcept;
    void reject_with(int (*function)(rdma_cm_id*, void const*, std::uint8_t), std::span<std::byte const> private_data,
                     std::error_code& ec) noexcept;
    std::uint32_t destroy_unless_held(std::error_code& ec) noexcept;
    std::uint32_t migrate_unless_held(event_channel_ref to, std::error_code& ec) noexcept;
    bool ready_for_qp(detail::id_qp_nodes const& nodes, std::error_code& ec) const noexcept;
    bool ready_for_srq(detail::id_srq_nodes const& nodes, std::error_code& ec) const noexcept;
    void destroy_leftovers() noexcept;
    membership join(address const& group, int flag, void* user_context, std::error_code& ec) noexcept;
    char const* create_ep(event_channel_ref channel, ::rdma::port_space ps, ::rdma::qp_type type, address const& local,
                          std::error_code& ec) noexcept;
    static ibv_cq* cq_of_srq(rdma_cm_id const& id) noexcept;

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

static_assert(detail::move_only<cm_id> && detail::nothrow_empty<cm_id>);
static_assert(!detail::makes<cm_id, cm_id_ref> && !detail::makes<cm_id, rdma_cm_id*>);
static_assert(sizeof(cm_id) <= 3 * sizeof(void*));

// ---- Implementation ------------------------------------------------------------------------------------------------

inline cm_id::cm_id(event_channel_ref channel, ::rdma::port_space ps, void* user_context,
                    std::error_code& ec) noexcept {
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

inline cm_id::cm_id(event_channel_ref channel, ::rdma::port_space ps, ::rdma::qp_type type, address const& local,
                    std::error_code& ec) noexcept {
    create_ep(channel, ps, type, local, ec);
}

/// @return the last C function that was called
inline char const* cm_id::create_ep(event_channel_ref channel, ::rdma::port_space ps, ::rdma::qp_type type,
                                    address const& local, std::error_code& ec) noexcept {
    if (!channel) {
        ec = errc::empty_handle;
        return "rdma_create_ep";
    }
    address const any = address::any_v4(0, ec);
    address const& from = local.family() != AF_UNSPEC ? local : any;
    rdma_addrinfo info{};
    info.ai_flags = RAI_PASSIVE; // then it binds, and waits for nothing
    info.ai_family = from.family();
    info.ai_qp_type = static_cast<int>(type);
    info.ai_port_space = static_cast<int>(ps);
    info.ai_src_len = from.length();
    info.ai_src_addr = to_c(from);
    rdma_cm_id* raw = nullptr;
    ec = detail::check_errno(::rdma_create_ep(&raw, &info, nullptr, nullptr));
    if (ec)
        return "rdma_create_ep";
    ec = detail::check_errno(::rdma_migrate_id(raw, channel.native_handle())); // from a channel of its own
    if (!ec)
        *this = cm_id(adopt, channel, raw, ec);
    if (ec)
        ::rdma_destroy_ep(raw);
    else
        record_->request.store(detail::request_state::none);
    return "rdma_migrate_id";
}

/// An XRC SRQ of C's that came without a CQ has got the id's: the QP, which receives through it, has none of its own.
inline ibv_cq* cm_id::cq_of_srq(rdma_cm_id const& id) noexcept {
    return id.qp_type == IBV_QPT_XRC_RECV ? id.recv_cq : nullptr;
}

inline cm_id::cm_id(adopt_t, event_channel_ref channel, rdma_cm_id* raw, std::error_code& ec) noexcept {
    if (!channel) {
        ec = errc::empty_handle;
        return;
    }
    bool const srq_has_cq = raw && raw->srq && raw->recv_cq && raw->recv_cq == cq_of_srq(*raw);
    detail::id_srq_nodes srq_nodes(srq_has_cq); // in case C made an SRQ and a QP
    detail::id_qp_nodes nodes(raw && raw->send_cq, raw && raw->recv_cq && !srq_has_cq);
    if (!nodes.complete || !srq_nodes.complete) {
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
    if (raw->srq && !record_->srq)
        srq_nodes.adopt(*record_);
    if (raw->qp && !record_->qp)
        nodes.adopt(*record_);
}

inline pd_ref cm_id::pd() const noexcept {
    if (!raw_ || !raw_->pd)
        return {};
    bool const users = record_->qp && raw_->pd != record_->default_pd && record_->qp->needs[0];
    return detail::refs::make<pd_ref>(raw_->pd, users ? record_->qp->needs[0] : record_);
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
    if (ec)
        return;
    record_->request.store(detail::request_state::none);
    record_->listening = true;
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

inline void cm_id::connect(conn_param const& param, std::error_code& ec) noexcept {
    if (!ready(ec, true) || (ec = detail::check(param, raw_->verbs)))
        return;
    rdma_conn_param c = detail::to_c(param);
    record_->request.store(detail::request_state::none);
    record_->active.store(true, detail::order::relaxed);
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
    if (!ready(ec, true) || (ec = detail::check(param, raw_->verbs)) || !decide(ec))
        return;
    rdma_conn_param c = detail::to_c(param);
    record_->active.store(true, detail::order::relaxed);
    ec = detail::check_errno(::rdma_accept(raw_, &c));
}

inline void cm_id::reject_with(int (*function)(rdma_cm_id*, void const*, std::uint8_t),
                               std::span<std::byte const> private_data, std::error_code& ec) noexcept {
    if (!ready(ec) || (ec = detail::check_private_data(private_data, raw_->verbs)) || !decide(ec))
        return;
    ec = detail::check_errno(function(raw_, private_data.data(), static_cast<std::uint8_t>(private_data.size())));
    if (ec) // nothing was sent: it is still to be decided
        record_->request.store(detail::request_state::undecided);
}

inline void cm_id::reject(std::span<std::byte const> private_data, std::error_code& ec) noexcept {
    reject_with(&::rdma_reject, private_data, ec);
}

inline void cm_id::reject_ece(std::span<std::byte const> private_data, std::error_code& ec) noexcept {
    reject_with(&detail::reject_ece<rdma_cm_id>, private_data, ec);
}

/// librdmacm does by itself, for a QP that it knows, what these calls are for.
inline bool cm_id::without_qp(std::error_code& ec) const noexcept {
    if (ready(ec, true) && raw_->qp)
        ec = errc::has_qp;
    return !ec;
}

inline void cm_id::establish(std::error_code& ec) noexcept {
    if (without_qp(ec))
        ec = detail::check_errno(detail::establish(raw_));
}

inline qp_attr cm_id::init_qp_attr(ibv_qp_state state, std::error_code& ec) const noexcept {
    qp_attr result;
    result.attr.qp_state = state;
    if (ready(ec, true))
        ec = detail::check_errno(detail::init_qp_attr(raw_, result.attr, result.mask));
    return result;
}

inline void cm_id::notify(ibv_event_type event, std::error_code& ec) noexcept {
    if (!ready(ec))
        return;
    ec = detail::check_errno(::rdma_notify(raw_, event));
    if (ec == std::errc::already_connected)
        ec.clear();
}

inline void cm_id::set_local_ece(ibv_ece const& ece, std::error_code& ec) noexcept {
    ibv_ece copy = ece; // C takes it by a pointer to non-const
    if (!ready(ec))
        return;
    if (raw_->qp)
        ec = errc::has_qp;
    else
        ec = detail::check_errno(detail::set_local_ece(raw_, copy));
}

inline ibv_ece cm_id::remote_ece(std::error_code& ec) const noexcept {
    ibv_ece ece{};
    if (!ready(ec))
        return ece;
    if (raw_->qp)
        ec = errc::has_qp;
    else
        ec = detail::check_errno(detail::get_remote_ece(raw_, ece));
    return ece;
}

inline membership cm_id::join(address const& group, int flag, void* user_context, std::error_code& ec) noexcept {
    if (!ready(ec, true))
        return {};
    if (group.family() == AF_UNSPEC) {
        ec = errc::bad_address;
        return {};
    }
    return membership(record_->channel->join(*record_, group, flag, user_context, ec));
}

inline std::uint32_t cm_id::migrate_unless_held(event_channel_ref to, std::error_code& ec) noexcept {
    std::uint32_t held = 0;
    if (!ready(ec))
        return held;
    if (!to || record_->listening) {
        ec = to ? errc::listener_migrates : errc::empty_handle;
        return held;
    }
    if (detail::channel_state* const state = detail::channel_state::borrow(to.native_handle(), ec)) {
        ec = detail::channel_state::migrate(*record_, *state, held);
        state->unref(); // the record keeps it
    }
    return held;
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

/// Whether a QP may be made, with nodes for it; if so, C may be called next.
inline bool cm_id::ready_for_qp(detail::id_qp_nodes const& nodes, std::error_code& ec) const noexcept {
    if (!ready(ec, true))
        return false;
    if (raw_->qp)
        ec = errc::qp_exists;
    else if (!nodes.complete)
        ec = detail::system_error_code(ENOMEM);
    errno = 0; // siw's provider can fail without saying why: not with a reason left over from another call
    return !ec;
}

/// After a QP without a receive queue could not be made, librdmacm leaves its send CQ behind.
inline void cm_id::destroy_leftovers() noexcept {
    if (ibv_cq* const cq = detail::take(raw_->send_cq))
        ::ibv_destroy_cq(cq);
    if (ibv_comp_channel* const channel = detail::take(raw_->send_cq_channel))
        ::ibv_destroy_comp_channel(channel);
}

inline qp_cap cm_id::create_qp(pd_ref protection, qp_init_attr const& attr, std::error_code& ec) noexcept {
    detail::id_qp_nodes nodes(!attr.send_cq, !attr.recv_cq && record_ && !record_->srq_cq);
    if (!ready_for_qp(nodes, ec))
        return {};
    ibv_qp_init_attr c = detail::to_c(attr, raw_->qp_type);
    ibv_pd* const before = raw_->pd;
    ec = detail::check_errno(::rdma_create_qp(raw_, protection.native_handle(), &c));
    if (ec) {
        destroy_leftovers();
        return {};
    }
    nodes.hook(*record_, before,
               {detail::keeper(protection), detail::keeper(attr.send_cq), detail::keeper(attr.recv_cq),
                detail::keeper(attr.srq), nullptr, nullptr, false});
    return detail::from_c(c.cap);
}

inline qp_cap cm_id::create_qp_ex(pd_ref protection, qp_init_attr_ex const& attr, std::error_code& ec) noexcept {
    qp_init_attr const& basic = attr.attr;
    detail::id_qp_nodes nodes(!basic.send_cq, !basic.recv_cq && record_ && !record_->srq_cq);
    if (!ready_for_qp(nodes, ec))
        return {};
    ibv_qp_init_attr_ex c = detail::to_c(attr, raw_->qp_type);
    c.pd = protection.native_handle(); // none: librdmacm puts the default one
    c.comp_mask |= protection ? static_cast<std::uint32_t>(IBV_QP_INIT_ATTR_PD) : 0;
    ibv_pd* const before = raw_->pd;
    ec = detail::check_errno(::rdma_create_qp_ex(raw_, &c));
    if (ec) {
        destroy_leftovers();
        return {};
    }
    nodes.hook(*record_, before,
               {detail::keeper(protection), detail::keeper(basic.send_cq), detail::keeper(basic.recv_cq),
                detail::keeper(basic.srq), detail::keeper(attr.xrcd), detail::keeper(attr.rwq_ind_tbl),
                attr.send_ops_flags != 0});
    return detail::from_c(c.cap);
}

/// Whether an SRQ may be made. A second one would make C forget the first.
inline bool cm_id::ready_for_srq(detail::id_srq_nodes const& nodes, std::error_code& ec) const noexcept {
    if (!ready(ec, true))
        return false;
    if (raw_->srq || !nodes.complete)
        ec = detail::system_error_code(raw_->srq ? EEXIST : ENOMEM);
    errno = 0;
    return !ec;
}

inline srq_init_attr cm_id::create_srq(pd_ref protection, srq_init_attr const& attr, std::error_code& ec) noexcept {
    detail::id_srq_nodes nodes(raw_ && raw_->qp_type == IBV_QPT_XRC_RECV); // then it is an XRC one, with a CQ
    if (!ready_for_srq(nodes, ec))
        return {};
    ibv_srq_init_attr c{attr.user_context, {attr.max_wr, attr.max_sge, attr.srq_limit}};
    ec = detail::check_errno(::rdma_create_srq(raw_, protection.native_handle(), &c));
    if (ec)
        return {};
    nodes.hook(*record_, {detail::keeper(protection), nullptr, nullptr, nullptr, nullptr});
    return {c.attr.max_wr, c.attr.max_sge, c.attr.srq_limit, attr.user_context};
}

inline srq_init_attr cm_id::create_srq_ex(pd_ref protection, srq_init_attr_ex const& attr,
                                          std::error_code& ec) noexcept {
    detail::id_srq_nodes nodes(attr.type == srq_type::xrc && !attr.cq);
    if (!ready_for_srq(nodes, ec))
        return {};
    ibv_srq_init_attr_ex c = detail::to_c(attr);
    c.pd = protection.native_handle();
    c.comp_mask |= protection ? static_cast<std::uint32_t>(IBV_SRQ_INIT_ATTR_PD) : 0;
    ec = detail::check_errno(::rdma_create_srq_ex(raw_, &c));
    if (ec)
        return {};
    nodes.hook(*record_,
               {detail::keeper(protection), nullptr, detail::keeper(attr.cq), nullptr, detail::keeper(attr.xrcd)});
    return {c.attr.max_wr, c.attr.max_sge, c.attr.srq_limit, attr.attr.user_context};
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
