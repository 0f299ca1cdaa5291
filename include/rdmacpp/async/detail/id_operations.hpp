// SPDX-License-Identifier: MIT
// What is awaited of one id, a step at a time.
#pragma once

#include "../../config.hpp"
#if __cplusplus >= 202002L && !defined(RDMACPP_TWO_VERSIONS) // otherwise config.hpp says what to do

#include "../../connect.hpp"
#include "channel_source.hpp"

#include <cerrno>
#include <string>
#include <system_error>
#include <utility>

namespace rdma::inline RDMACPP_ABI::async {
class request;
}

namespace rdma::inline RDMACPP_ABI::detail {

/// The next event of an id.
class next_event final : public id_operation {
public:
    using id_operation::id_operation;

    cm_event take() noexcept { return std::move(event_); }
    char const* function() const noexcept { return "rdma_get_cm_event"; }

private:
    bool begin() override { return !attach() || advance(); }
    bool advance() override {
        if (id_->pop(event_))
            return true;
        return id_->lost && fail(id_->lost);
    }

    cm_event event_;
};

/// The next request of a listener; of its other events only its end is worth telling.
class next_request final : public id_operation {
public:
    using id_operation::id_operation;

    async::request take() noexcept;
    char const* function() const noexcept { return "rdma_get_cm_event"; }

private:
    bool begin() override { return !attach() || advance(); }
    bool advance() override {
        while (id_->pop(event_)) {
            if (event_.type() == cm_event_type::connect_request)
                return true;
            bool const removed = event_.type() == cm_event_type::device_removal;
            event_.ack();
            if (removed)
                return fail(system_error_code(ENODEV));
        }
        return id_->lost && fail(id_->lost);
    }

    cm_event event_;
};

/// One step of connecting or accepting: a call, and the event that says it worked, or why not.
class id_step : public id_operation {
public:
    id_step(awaited_id* id, connect_step step, cm_event_type wanted, limits const& within) noexcept
        : id_operation(id, within), step_(step), wanted_(wanted) {}

    void take() noexcept {}
    connect_step step() const noexcept { return step_; }
    bool by_event() const noexcept { return by_event_; }

protected:
    /// @return whether there is an event to wait for
    virtual bool call(cm_id& id, std::error_code& ec) noexcept = 0;

    bool begin() override {
        if (!attach() || (result_ = within_.reached()))
            return true;
        bool const follows = call(id_->id(), result_);
        return result_ || !follows || advance();
    }
    bool advance() override {
        for (cm_event event; id_->pop(event);) {
            if (event.type() == wanted_)
                return true;
            if (std::error_code const why = ends_wait(event)) {
                by_event_ = true;
                return fail(why);
            }
        }
        return id_->lost && fail(id_->lost);
    }

private:
    connect_step step_;
    cm_event_type wanted_;
    bool by_event_ = false;
};

class resolve_addr final : public id_step {
public:
    resolve_addr(awaited_id* id, address const& local, address const& peer, limits const& within) noexcept
        : id_step(id, connect_step::resolve_addr, cm_event_type::addr_resolved, within), local_(local), peer_(peer) {}

private:
    bool call(cm_id& id, std::error_code& ec) noexcept override {
        id.resolve_addr(local_, peer_, within_.left(), ec);
        return true;
    }

    address local_, peer_;
};

class resolve_route final : public id_step {
public:
    resolve_route(awaited_id* id, limits const& within) noexcept
        : id_step(id, connect_step::resolve_route, cm_event_type::route_resolved, within) {}

private:
    bool call(cm_id& id, std::error_code& ec) noexcept override {
        id.resolve_route(within_.left(), ec);
        return true;
    }
};

class connect_id final : public id_step {
public:
    connect_id(awaited_id* id, conn_param const& param, limits const& within) noexcept
        : id_step(id, connect_step::connect, cm_event_type::established, within), param_(param) {}

private:
    bool call(cm_id& id, std::error_code& ec) noexcept override {
        id.connect(param_, ec);
        return true;
    }

    conn_param param_;
};

class accept_id final : public id_step {
public:
    accept_id(awaited_id* id, conn_param const& param, limits const& within) noexcept
        : id_step(id, connect_step::accept, cm_event_type::established, within), param_(param) {}

private:
    bool call(cm_id& id, std::error_code& ec) noexcept override {
        id.accept(param_, ec);
        return id.qp_type() != qp_type::ud; // a datagram id is never told
    }

    conn_param param_;
};

/// Ends a connection.
class disconnect_id final : public id_operation {
public:
    using id_operation::id_operation;

    void take() noexcept {}
    char const* function() const noexcept { return "rdma_disconnect"; }

private:
    bool begin() override {
        if (!attach() || is_over() || id_->id().qp_type() == qp_type::ud)
            return true;
        id_->id().disconnect(result_);
        return result_ || advance();
    }
    bool insists() const noexcept override { return true; }
    bool advance() override {
        if (!others_wait())
            for (cm_event dropped; id_->pop(dropped);)
                ;
        return is_over();
    }
    bool is_over() const noexcept { return id_->over || id_->id().disconnected(); }
    bool others_wait() const noexcept { return id_->users.front() != this || id_->users.back() != this; }
};

} // namespace rdma::inline RDMACPP_ABI::detail

#endif
