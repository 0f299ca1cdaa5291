// SPDX-License-Identifier: MIT
/// @file
/// The awaitables on libuv (1.42 or newer).
#pragma once

#include "config.hpp"
#if __cplusplus >= 202002L && !defined(RDMACPP_TWO_VERSIONS) // otherwise config.hpp says what to do

#include "async.hpp"

#include <cerrno>
#include <cstdint>
#include <new>
#include <system_error>

#include <uv.h>

namespace rdma::inline RDMACPP_ABI {

/// An event loop on a uv_loop_t. Nothing of ours is active when nothing waits, so that uv_run ends:
///
///     uv_loop_t* const native = uv_default_loop();
///     rdma::uv_loop loop(*native);
///     rdma::async::event_channel channel(loop);
///     rdma::async::tasks running;
///     running.spawn(serve(channel));
///     uv_run(native, UV_RUN_DEFAULT);
///
/// Its thread, which all that is made with it belongs to, is the one that runs the uv_loop_t. What is dropped is closed
/// by the loop's next turn, as libuv wants it: run it once more (UV_RUN_DEFAULT) between the last object and
/// uv_loop_close.
///
/// Exceptions cannot pass through libuv, which is C: what a handler or a coroutine throws out of a callback ends the
/// program (std::terminate). Catch it there.
class uv_loop {
public:
    /// On this loop, which must outlive what is made with it.
    explicit uv_loop(::uv_loop_t& native) noexcept : native_(&native) {}
    uv_loop(uv_loop const&) = delete;
    uv_loop& operator=(uv_loop const&) = delete;
    ~uv_loop() = default;

    /// The loop of libuv.
    ::uv_loop_t* native_handle() const noexcept { return native_; }

    /// Calls back each time a descriptor is readable, or broken (uv_poll_start), until the registration is dropped.
    /// libuv makes the descriptor non-blocking, and takes it once at a time (EEXIST).
    async::registration readable(int fd, async::callback call, std::error_code& ec) noexcept {
        watch* const made = make(call, ec);
        if (!made)
            return {};
        if (int const failed = ::uv_poll_init(native_, &made->handle.poll, fd)) {
            ec = detail::system_error_code(-failed);
            delete made;
            return {};
        }
        return begin(made, watch::poll(&made->handle.poll), ec);
    }

    /// Calls back once, after so long.
    async::registration after(timeout span, async::callback call, std::error_code& ec) noexcept {
        watch* const made = make(call, ec);
        if (!made)
            return {};
        if (span.milliseconds() == 0) { // a timer would be served before the descriptors, however often it is made anew
            ::uv_idle_init(native_, &made->handle.idle);
            return begin(made, ::uv_idle_start(&made->handle.idle, &watch::idle), ec);
        }
        // libuv counts from when this turn began, in whole milliseconds.
        ::uv_update_time(native_);
        ::uv_timer_init(native_, &made->handle.timer);
        return begin(made,
                     ::uv_timer_start(&made->handle.timer, &watch::timer,
                                      static_cast<std::uint64_t>(span.milliseconds()) + 1, 0),
                     ec);
    }

private:
    /// What was asked for; its memory goes when libuv has closed the handle.
    struct watch {
        async::callback call;
        union {
            ::uv_handle_t any;
            ::uv_poll_t poll;
            ::uv_timer_t timer;
            ::uv_idle_t idle;
        } handle{};
        bool dropped = false;

        template <class Handle>
        static watch& of(Handle* handle) noexcept {
            return *static_cast<watch*>(handle->data);
        }
        static int poll(::uv_poll_t* handle) noexcept { return ::uv_poll_start(handle, UV_READABLE, &watch::ready); }
        static void ready(::uv_poll_t* handle, int status, int) noexcept {
            watch& self = of(handle);
            self.call();
            if (status < 0 && !self.dropped) // libuv has stopped it
                poll(handle);
        }
        static void timer(::uv_timer_t* handle) noexcept { of(handle).call(); }
        static void idle(::uv_idle_t* handle) noexcept {
            ::uv_idle_stop(handle);
            of(handle).call();
        }
        static void drop(void* object) noexcept {
            watch& self = *static_cast<watch*>(object);
            self.dropped = true;
            ::uv_close(&self.handle.any, [](::uv_handle_t* closed) noexcept { delete &of(closed); });
        }
        /// Not active for libuv, which ends then.
        static void rest(void* object, bool on) noexcept {
            watch& self = *static_cast<watch*>(object);
            if (on)
                ::uv_unref(&self.handle.any);
            else
                ::uv_ref(&self.handle.any);
        }
    };

    static watch* make(async::callback call, std::error_code& ec) noexcept {
        ec.clear();
        auto* const made = new (std::nothrow) watch{.call = call};
        if (made)
            made->handle.any.data = made;
        else
            ec = detail::system_error_code(ENOMEM);
        return made;
    }

    static async::registration begin(watch* made, int failed, std::error_code& ec) noexcept {
        async::registration asked(made, &watch::drop, &watch::rest);
        if (failed == 0)
            return asked;
        ec = detail::system_error_code(-failed);
        return {};
    }

    ::uv_loop_t* native_;
};

static_assert(async::event_loop<uv_loop>);

} // namespace rdma::inline RDMACPP_ABI

#endif
