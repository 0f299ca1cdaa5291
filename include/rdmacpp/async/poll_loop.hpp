// SPDX-License-Identifier: MIT
/// @file
/// A loop that never sleeps.
#pragma once

#include "../config.hpp"
#if __cplusplus >= 202002L && !defined(RDMACPP_TWO_VERSIONS) // otherwise config.hpp says what to do

#include "../detail/check.hpp"
#include "detail/list.hpp"
#include "event_loop.hpp"

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <new>
#include <system_error>

namespace rdma::inline RDMACPP_ABI::async {

/// A loop for programs that poll, such as storage targets: `poll()` runs what is ready, and returns. There is no
/// descriptor and no timer in it, and it never sleeps: completion queues are polled, channels are asked, deadlines are
/// compared with the clock.
///
///     while (!done) {
///         loop.poll();
///         ...; // whatever else the thread does
///     }
///
/// One thread.
class poll_loop {
public:
    poll_loop() noexcept = default;
    poll_loop(poll_loop const&) = delete;
    poll_loop& operator=(poll_loop const&) = delete;
    ~poll_loop() = default;

    /// One turn: everything that waits is looked at once. What a coroutine or a handler throws comes out of it, and the
    /// rest has its turn in the next one.
    void poll() {
        std::uint64_t const now = ++count_;
        turn here; // a place among them: whoever goes meanwhile takes himself out, and it stays
        for (turn* each = turns_.front(); each && each->since < now; each = turns_.after(here)) {
            turns_.put_after(here, each);
            if (each->call.call)
                each->call();
        }
    }

    /// Whether something waits.
    bool waits() const noexcept { return waiting_ != 0; }

    /// Calls back in each turn, until the registration is dropped: for what waits, and for the program's own.
    /// @param ec ENOMEM
    registration each_turn(callback call, std::error_code& ec) noexcept {
        auto* const made = new (std::nothrow) turn;
        if (!made) {
            ec = detail::system_error_code(ENOMEM);
            return {};
        }
        made->call = call;
        made->loop = this;
        made->since = count_;
        ++waiting_;
        turns_.push_back(*made);
        return {made, &drop, &rest};
    }

private:
    struct turn : detail::hook<turn> {
        callback call{};
        poll_loop* loop = nullptr;
        std::uint64_t since = 0; // the turn in which it came, which is not its own
        bool rests = false;
    };

    static void rest(void* object, bool on) noexcept {
        auto& self = *static_cast<turn*>(object);
        if (self.rests != on)
            self.loop->waiting_ += on ? std::size_t(-1) : 1;
        self.rests = on;
    }
    static void drop(void* object) noexcept {
        rest(object, true);
        delete static_cast<turn*>(object);
    }

    detail::list<turn, turn> turns_;
    std::size_t waiting_ = 0;
    std::uint64_t count_ = 0; // of turns
};

static_assert(polling_loop<poll_loop>);

} // namespace rdma::inline RDMACPP_ABI::async

#endif
