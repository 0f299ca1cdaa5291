// SPDX-License-Identifier: MIT
/// @file
/// Ids that C made in its synchronous mode, taken over.
#pragma once

#include "config.hpp"
#if __cplusplus >= 202002L && !defined(RDMACPP_TWO_VERSIONS) // otherwise config.hpp says what to do

#include "adopt.hpp"
#include "cm_id_ref.hpp"
#include "conn_param.hpp"
#include "context.hpp"
#include "detail/contract.hpp"
#include "detail/sync_record.hpp"
#include "pd.hpp"
#include "qp.hpp"
#include "rdma_verbs.hpp"

#include <span>
#include <string>
#include <system_error>
#include <utility>

namespace rdma::inline RDMACPP_ABI {

/// An id of C's synchronous mode (rdma_create_ep, rdma_get_request, rdma_create_id without a channel), owned from here
/// on: for C programs that are moved over one call at a time. New programs use endpoint, whose calls have deadlines.
///
/// Its calls are C's and block as C's do, with no end. C acks the event that it parks in `id->event` itself; here it
/// can only be looked at. A listener and the ids of its requests may be dropped in any order: while the parked event of
/// one is the listener's CONNECT_REQUEST, the listener lives on, with its port. One thread at a time may use one id.
class [[nodiscard]] sync_id : public cm_id_base, public rdma_verbs<sync_id> {
public:
    /// Empty.
    sync_id() noexcept = default;
    sync_id(sync_id&& other) noexcept : cm_id_base(detail::take(other.raw_)), record_(detail::take(other.record_)) {}
    /// Drops the id held before.
    sync_id& operator=(sync_id&& other) noexcept {
        sync_id(std::move(other)).swap(*this);
        return *this;
    }
    /// Destroys the id, its QP and SRQ and what librdmacm made for them (as rdma_destroy_ep, which hides every failure;
    /// here the diagnostic handler is told). What was made from its device keeps it alive.
    ~sync_id() {
        if (record_)
            record_->drop();
    }

#if RDMACPP_EXCEPTIONS
    /// Takes over an id that C made, or that release() gave back.
    /// @throws rdma::error errc::null_handle, errc::already_owned; errc::wrong_channel for one on an event_channel;
    /// std::errc::not_enough_memory
    sync_id(adopt_t, rdma_cm_id* raw) {
        std::error_code ec;
        *this = sync_id(adopt, raw, ec);
        if (ec)
            detail::throw_error(ec, "rdma_create_ep", {"adopt"});
    }
#endif
    /// The twin of the adopting constructor: empty on failure.
    sync_id(adopt_t, rdma_cm_id* raw, std::error_code& ec) noexcept : record_(detail::sync_record::adopt(raw, ec)) {
        raw_ = record_ ? raw : nullptr;
    }

    operator cm_id_ref() const& noexcept { return cm_id_ref(raw_); }
    operator cm_id_ref() const&& = delete;

    /// Gives the C id back; makes no C call. The listener whose event it has parked must outlive that, as in C.
    [[nodiscard]] rdma_cm_id* release() noexcept {
        if (record_)
            detail::take(record_)->surrender();
        return detail::take(raw_);
    }
    void swap(sync_id& other) noexcept {
        detail::swap_values(raw_, other.raw_);
        detail::swap_values(record_, other.record_);
    }
    friend void swap(sync_id& a, sync_id& b) noexcept { a.swap(b); }

    /// The event that C has parked (`id->event`): of the last blocking call, or of the request that brought the id.
    /// Null if there is none. It is C's, and valid until the next call.
    rdma_cm_event const* event() const noexcept { return raw_ ? raw_->event : nullptr; }

    /// Its device, protection domain, queue pair and SRQ, as C has them; empty where there is none.
    context_ref verbs() const noexcept {
        return raw_ ? detail::refs::make<context_ref>(raw_->verbs, static_cast<detail::pinnable*>(record_))
                    : context_ref();
    }
    pd_ref pd() const noexcept {
        return raw_ && raw_->pd ? detail::refs::make<pd_ref>(raw_->pd, static_cast<detail::pinnable*>(record_))
                                : pd_ref();
    }
    qp_ref qp() const noexcept { return raw_ ? qp_ref(raw_->qp) : qp_ref(); }
    srq_ref srq() const noexcept { return raw_ ? srq_ref(raw_->srq) : srq_ref(); }

#if RDMACPP_EXCEPTIONS
    /// Listens (rdma_listen). @throws rdma::error with the errno of the call
    void listen(int backlog = 0) {
        std::error_code ec;
        listen(backlog, ec);
        if (ec)
            detail::throw_error(ec, "rdma_listen");
    }
    /// Waits for a request (rdma_get_request), with a QP if C gave the listener the attributes of one. C loses the new
    /// id of a request that fails here; this destroys it, so the peer is rejected.
    /// @throws rdma::error with the errno of the call
    [[nodiscard]] sync_id get_request() {
        std::error_code ec;
        sync_id child = get_request(ec);
        if (ec)
            detail::throw_error(ec, "rdma_get_request");
        return child;
    }
    /// Accepts, and waits for ESTABLISHED (rdma_accept). @throws rdma::error with the errno of the call
    void accept(conn_param const& param = {}) {
        std::error_code ec;
        accept(param, ec);
        if (ec)
            detail::throw_error(ec, "rdma_accept");
    }
    /// Connects, and waits for ESTABLISHED (rdma_connect). @throws rdma::error with the errno of the call
    void connect(conn_param const& param = {}) {
        std::error_code ec;
        connect(param, ec);
        if (ec)
            detail::throw_error(ec, "rdma_connect", {to_string(peer_addr())});
    }
    /// Rejects the request that brought it (rdma_reject). @throws rdma::error with the errno of the call
    void reject(std::span<std::byte const> private_data = {}) {
        std::error_code ec;
        reject(private_data, ec);
        if (ec)
            detail::throw_error(ec, "rdma_reject", {std::to_string(private_data.size()), " bytes"});
    }
    /// Disconnects, and waits for the next event (rdma_disconnect). A second time C would wait for ever, so nothing
    /// happens then. @throws rdma::error with the errno of the call
    void disconnect() {
        std::error_code ec;
        disconnect(ec);
        if (ec)
            detail::throw_error(ec, "rdma_disconnect");
    }
#endif
    void listen(int backlog, std::error_code& ec) noexcept {
        if (ready(ec))
            ec = detail::check_errno(::rdma_listen(raw_, backlog));
    }
    void listen(std::error_code& ec) noexcept { listen(0, ec); }
    [[nodiscard]] sync_id get_request(std::error_code& ec) noexcept {
        sync_id child;
        if (ready(ec))
            child.record_ = record_->get_request(ec);
        child.raw_ = child.record_ ? child.record_->raw : nullptr;
        return child;
    }
    void accept(conn_param const& param, std::error_code& ec) noexcept {
        if (!ready(ec, true) || (ec = detail::check(param, raw_->verbs)))
            return;
        rdma_conn_param c = detail::to_c(param);
        ec = detail::check_errno(::rdma_accept(raw_, &c));
        record_->let_listener_go();
    }
    void accept(std::error_code& ec) noexcept { accept({}, ec); }
    void connect(conn_param const& param, std::error_code& ec) noexcept {
        if (!ready(ec, true) || (ec = detail::check(param, raw_->verbs)))
            return;
        rdma_conn_param c = detail::to_c(param);
        ec = detail::check_errno(::rdma_connect(raw_, &c));
    }
    void connect(std::error_code& ec) noexcept { connect({}, ec); }
    void reject(std::span<std::byte const> private_data, std::error_code& ec) noexcept {
        if (ready(ec) && !(ec = detail::check_private_data(private_data, raw_->verbs)))
            ec = detail::check_errno(
                ::rdma_reject(raw_, private_data.data(), static_cast<std::uint8_t>(private_data.size())));
    }
    void reject(std::error_code& ec) noexcept { reject({}, ec); }
    void disconnect(std::error_code& ec) noexcept {
        if (!ready(ec, true) || record_->disconnected)
            return;
        ec = detail::check_errno(::rdma_disconnect(raw_));
        record_->disconnected = !ec; // a failed one brings no event to wait for a second time
    }

private:
    bool ready(std::error_code& ec, bool needs_device = false) const noexcept {
        ec.clear();
        if (!raw_)
            ec = errc::empty_handle;
        else if (needs_device && !raw_->verbs)
            ec = errc::not_bound;
        return !ec;
    }

    detail::sync_record* record_ = nullptr;
};

static_assert(detail::move_only<sync_id>);
static_assert(!detail::makes<sync_id, rdma_cm_id*> && !detail::makes<sync_id, cm_id_ref>);

} // namespace rdma::inline RDMACPP_ABI

#endif
