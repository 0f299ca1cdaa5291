// SPDX-License-Identifier: MIT
// Connecting and accepting, step by step, each step begun by the event of the one before.
#pragma once

#include "../../config.hpp"
#if __cplusplus >= 202002L && !defined(RDMACPP_TWO_VERSIONS) // otherwise config.hpp says what to do

#include "../../acceptor.hpp"
#include "../../connect.hpp"
#include "../cm_id.hpp"
#include "id_operations.hpp"

#include <system_error>
#include <utility>

namespace rdma::inline RDMACPP_ABI::detail {

/// What owns the id that it brings up: dropped unfinished, the id goes with it.
class bringing_up : public id_operation {
public:
    bringing_up(channel_source* home, limits const& within, connect_report* report) noexcept
        : id_operation(nullptr, within), home_(home), into_(report) {}
    bringing_up(bringing_up&&) noexcept = default;
    bringing_up& operator=(bringing_up&&) = delete;
    ~bringing_up() override { drop(); }

    /// The id, when all went well.
    async::cm_id take() noexcept {
        static_cast<hook<in_id>*>(this)->unlink();
        return async_access::wrap<async::cm_id>(detail::take(id_));
    }
    connect_step step() const noexcept { return report_.step; }
    bool by_event() const noexcept { return by_event_; }

protected:
    /// The id is this operation's from here on.
    bool own(cm_id id) noexcept {
        if (!result_)
            id_ = awaited_id::make(*home_, std::move(id), result_);
        return !result_ && attach();
    }
    bool is_open() noexcept {
        if (!home_ || home_->closed())
            return !fail(errc::empty_handle);
        source_ = home_.get();
        return true;
    }

    /// Takes events until the wanted one. @return whether that came; a result says that it never will
    bool came(cm_event_type wanted) noexcept {
        for (cm_event event; id_->pop(event);) {
            std::error_code const why = event.type() == wanted ? std::error_code() : ends_wait(event);
            if (event.type() != wanted && !why)
                continue;
            report_.note(event);
            by_event_ = static_cast<bool>(why);
            result_ = why;
            return !why;
        }
        if (id_->lost)
            result_ = id_->lost;
        return false;
    }
    /// It goes on, or is over.
    bool over(bool done) noexcept {
        if (result_)
            drop();
        if (done || result_)
            tell();
        return done || result_;
    }
    void abandon() noexcept override {
        tell();
        drop();
    }

    void drop() noexcept {
        static_cast<hook<in_id>*>(this)->unlink();
        delete detail::take(id_);
    }

    connect_report report_;

private:
    void tell() noexcept {
        if (into_)
            *into_ = report_;
    }

    keep_source<channel_source> home_;
    connect_report* into_;
    bool by_event_ = false;
};

template <class Prepare>
class async_connecting final : public bringing_up {
public:
    /// @param last create_qp, or connect
    async_connecting(channel_source* home, address const& peer, connect_options const& options, Prepare prepare,
                     connect_step last) noexcept
        : bringing_up(home, {deadline::after(options.limit), options.stop}, options.report), peer_(peer),
          options_(options), prepare_(std::move(prepare)), last_(last) {}

private:
    bool begin() override {
        if (!is_open())
            return over(true);
        if (options_.interrupt_signal != 0 && !interrupter::is_handled(options_.interrupt_signal))
            return over(fail(errc::signal_unhandled));
        event_channel_ref const channel(static_cast<channel_source*>(source_)->channel().native_handle());
        cm_id id(channel, options_.port_space, result_);
        if (!own(std::move(id)))
            return over(true);
        if (reach(connect_step::resolve_addr))
            id_->id().resolve_addr(options_.local, peer_, within_.left(), result_);
        return over(false);
    }
    bool insists() const noexcept override { return true; } // so that the report says which step was reached

    bool advance() override {
        if (!id_)
            return over(true);
        if (report_.step == connect_step::resolve_addr && came(cm_event_type::addr_resolved) &&
            reach(connect_step::resolve_route))
            id_->id().resolve_route(within_.left(), result_);
        if (!result_ && report_.step == connect_step::resolve_route && came(cm_event_type::route_resolved)) {
            if (reach(connect_step::create_qp))
                make_qp();
            if (!result_ && last_ == connect_step::create_qp)
                return over(true);
            if (!result_ && reach(connect_step::connect))
                connect();
        }
        return over(!result_ && report_.step == connect_step::connect && came(cm_event_type::established));
    }

    /// Goes on to a step. @return false if it is too late for that
    bool reach(connect_step step) noexcept {
        report_.step = step;
        result_ = within_.reached();
        return !result_;
    }

    void make_qp() noexcept {
        id_->id().create_qp(options_.pd, options_.qp, result_);
        if (!result_)
            prepare_(id_->id(), result_);
    }

    /// On iWARP the call may block. A signal that is not meant for it does not end it.
    void connect() noexcept {
        interrupter const in_time(options_.interrupt_signal, within_.until, within_.stop);
        do {
            id_->id().connect(options_.param, result_);
            if (result_ != std::errc::interrupted)
                return;
            result_ = within_.reached();
        } while (!result_);
    }

    address peer_;
    connect_options options_;
    Prepare prepare_;
    connect_step last_;
};

template <class Prepare>
class async_accepting final : public bringing_up {
public:
    async_accepting(channel_source* home, cm_id undecided, accept_options const& options, Prepare prepare) noexcept
        : bringing_up(home, {deadline::after(options.limit), options.stop}, options.report),
          undecided_(std::move(undecided)), options_(options), prepare_(std::move(prepare)) {}

private:
    bool begin() override {
        report_.step = connect_step::migrate;
        if (!is_open() || !own(std::move(undecided_)))
            return over(true);
        cm_id& id = id_->id();
        report_.step = connect_step::create_qp;
        id.create_qp(options_.pd, options_.qp, result_);
        if (!result_)
            prepare_(id, result_);
        if (!result_) {
            report_.step = connect_step::accept;
            id.accept(options_.param, result_);
        }
        return over(!result_ && id.qp_type() == qp_type::ud); // a datagram id is never told
    }
    bool advance() override { return over(!id_ || came(cm_event_type::established)); }

    cm_id undecided_;
    accept_options options_;
    Prepare prepare_;
};

} // namespace rdma::inline RDMACPP_ABI::detail

#endif
