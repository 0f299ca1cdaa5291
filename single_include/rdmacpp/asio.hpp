// SPDX-License-Identifier: MIT
//
// rdmacpp 0.1.0
//
// The awaitables on the standalone Asio (1.18 or newer): its loop, and any of its completion tokens.
//
// With clang, Asio 1.22 (Debian 12) finds no coroutines by itself: define ASIO_HAS_CO_AWAIT=1 and
// ASIO_HAS_STD_COROUTINE=1 for all units then. And Asio 1.22 and Boost 1.74 cannot be included in one unit, for names
// of their own.
//
// Made by tools/amalgamate from the headers in include/rdmacpp, where changes belong.
//
// MIT License
//
// Copyright (c) 2026 The rdmacpp authors
//
// Permission is hereby granted, free of charge, to any person obtaining a copy
// of this software and associated documentation files (the "Software"), to deal
// in the Software without restriction, including without limitation the rights
// to use, copy, modify, merge, publish, distribute, sublicense, and/or sell
// copies of the Software, and to permit persons to whom the Software is
// furnished to do so, subject to the following conditions:
//
// The above copyright notice and this permission notice shall be included in all
// copies or substantial portions of the Software.
//
// THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR
// IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY,
// FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE
// AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER
// LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM,
// OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE
// SOFTWARE.
#pragma once

#ifndef RDMACPP_SINGLE_ASIO_HPP // a copy at another place is no harm
#define RDMACPP_SINGLE_ASIO_HPP

#include "asio_adapter.hpp"
#include "async.hpp"
#include "rdmacpp.hpp"

#if __cplusplus >= 202002L && !defined(RDMACPP_TWO_VERSIONS) // otherwise rdmacpp.hpp says what to do

#include <asio/any_io_executor.hpp>
#include <asio/associated_allocator.hpp>
#include <asio/associated_executor.hpp>
#include <asio/async_result.hpp>
#include <asio/dispatch.hpp>
#include <asio/error.hpp>
#include <asio/error_code.hpp>
#include <asio/execution_context.hpp>
#include <asio/executor_work_guard.hpp>
#include <asio/posix/stream_descriptor.hpp>
#include <asio/post.hpp>
#include <asio/query.hpp>
#include <asio/steady_timer.hpp>
#include <asio/system_error.hpp>
#include <asio/version.hpp>
#include <cerrno>
#include <concepts>
#include <memory>
#include <system_error>
#include <type_traits>
#include <utility>

#if ASIO_VERSION >= 102201
#include <asio/associated_cancellation_slot.hpp>
#include <asio/recycling_allocator.hpp>
#endif

namespace rdma::inline RDMACPP_ABI::detail {

/// The names of this Asio.
struct asio_names {
    using executor = ::asio::any_io_executor;
    using execution_context = ::asio::execution_context;
    using descriptor = ::asio::posix::stream_descriptor;
    using timer = ::asio::steady_timer;
    using error_code = ::asio::error_code;
    using system_error = ::asio::system_error;
    static constexpr auto wait_read = descriptor::wait_read;

    /// Asio knows it by a category of its own.
    static error_code code(std::error_code ec) noexcept {
        bool const canceled = ec.category() == std::system_category() && ec.value() == ECANCELED;
        return canceled ? error_code(::asio::error::operation_aborted) : ec;
    }

    template <class Service>
    static Service& use_service(executor const& on) {
        return ::asio::use_service<Service>(::asio::query(on, ::asio::execution::context));
    }
    template <class F>
    static void post(auto const& on, F&& f) {
        ::asio::post(on, static_cast<F&&>(f));
    }
    template <class F>
    static void dispatch(auto const& on, F&& f) {
        ::asio::dispatch(on, static_cast<F&&>(f));
    }
    template <class Handler>
    static auto work_for(Handler const& handler, executor const& otherwise) {
        return ::asio::make_work_guard(::asio::get_associated_executor(handler, otherwise));
    }

#if ASIO_VERSION >= 102201
    template <class Handler>
    static auto allocator_of(Handler const& handler) noexcept {
        return ::asio::get_associated_allocator(handler, ::asio::recycling_allocator<void>());
    }
    template <class Handler>
    static void connect_slot(Handler const& handler, operation& op, asio_canceller*& place) {
        auto slot = ::asio::get_associated_cancellation_slot(handler);
        if (slot.is_connected())
            slot.template emplace<asio_canceller>(op, place);
    }
    template <class Handler>
    static void clear_slot(Handler const& handler) noexcept {
        ::asio::get_associated_cancellation_slot(handler).clear();
    }
#else
    template <class Handler>
    static auto allocator_of(Handler const& handler) noexcept {
        return ::asio::get_associated_allocator(handler);
    }
    template <class Handler>
    static void connect_slot(Handler const&, operation&, asio_canceller*&) noexcept {}
    template <class Handler>
    static void clear_slot(Handler const&) noexcept {}
#endif
};

} // namespace rdma::inline RDMACPP_ABI::detail

/// What goes with the standalone Asio.
namespace rdma::inline RDMACPP_ABI::asio {

/// An event loop on an Asio executor. Nothing of ours is outstanding when nothing waits, so that io_context::run ends:
///
///     asio::io_context context;
///     rdma::asio::loop loop(context);
///     rdma::async::event_channel channel(loop);
///     asio::co_spawn(context, [&]() -> asio::awaitable<void> {
///         rdma::async::cm_id id = co_await rdma::asio::initiate(
///             loop, rdma::async::connect(channel, peer, {.limit = 5s}), asio::use_awaitable);
///         ...;
///     }, asio::detached);
///     context.run();
///
/// Its thread, which all that is made with it belongs to, is the one that runs the context; where several do, make it
/// on a strand of them. It may end before its context or after it: what waits by initiate ends with the first of them,
/// its handler destroyed and not called, as Asio does it.
class loop {
public:
    /// On an executor. @throws std::bad_alloc
    explicit loop(::asio::any_io_executor executor)
        : hub_(std::make_shared<detail::asio_hub<detail::asio_names>>(std::move(executor))) {}
    /// On the executor of a context. @throws std::bad_alloc
    template <std::derived_from<::asio::execution_context> Context>
    explicit loop(Context& context) : loop(::asio::any_io_executor(context.get_executor())) {}
    loop(loop const&) = delete;
    loop& operator=(loop const&) = delete;
    ~loop() { hub_->close(); }

    /// Where it calls back.
    ::asio::any_io_executor get_executor() const noexcept { return hub_->get_executor(); }

    /// Calls back each time a descriptor is readable, until the registration is dropped. Asio makes the descriptor
    /// non-blocking, and takes it once at a time.
    async::registration readable(int fd, async::callback call, std::error_code& ec) noexcept {
        return hub_->readable(fd, call, ec);
    }
    /// Calls back once, after so long.
    async::registration after(timeout span, async::callback call, std::error_code& ec) noexcept {
        return hub_->after(span, call, ec);
    }

    /// For initiate.
    detail::asio_initiation<detail::asio_names> initiation() const noexcept { return {hub_}; }

private:
    std::shared_ptr<detail::asio_hub<detail::asio_names>> hub_;
};

static_assert(async::event_loop<loop>);

/// Starts what is to be awaited with a completion token of Asio: a function, `use_future`, `use_awaitable`,
/// `deferred`...
///
///     rdma::asio::initiate(loop, acceptor.next(), [&](std::error_code ec, rdma::async::request request) { ... });
///
/// Called on the loop's thread, or while nothing runs it. The handler is called through its associated executor, the
/// loop's if it has none, and never within this call; what waits is in memory of its associated allocator. What its
/// cancellation slot gets (terminal, partial or total), on the loop's thread, ends the wait with
/// asio::error::operation_aborted, where Asio has slots (1.22). What the handler throws comes out of the context's run.
/// @param on the loop that the channel or the queue was made with
/// @param what any awaitable that has not begun. The `std::error_code&` of a twin is not used: the handler gets the
/// code
/// @param token for `void(asio::error_code, T)`, or `void(asio::error_code)` where nothing is given. With a code, T is
/// empty. The codes are those of the awaitables, but for asio::error::operation_aborted, which stands for
/// std::errc::operation_canceled and has a category of Asio's own: in Asio 1.22 it equals nothing but itself. Which
/// step of a connect failed stands in connect_options::report.
template <class Operation, bool Throws, class CompletionToken>
auto initiate(loop& on, async::awaitable<Operation, Throws>&& what, CompletionToken&& token) {
    return ::asio::async_initiate<CompletionToken,
                                  detail::asio_signature_of<detail::asio_names, async::awaitable<Operation, Throws>>>(
        on.initiation(), token, std::move(what));
}

/// The same, on any thread: what is to be awaited is made on the loop's.
///
///     auto connected = rdma::asio::initiate(loop, [&] { return rdma::async::connect(channel, peer); },
///                                           asio::use_future);
///
/// @param make called on the loop's thread; it returns an awaitable
template <detail::makes_awaitable Make, class CompletionToken>
auto initiate(loop& on, Make make, CompletionToken&& token) {
    return ::asio::async_initiate<CompletionToken,
                                  detail::asio_signature_of<detail::asio_names, std::invoke_result_t<Make&>>>(
        on.initiation(), token, std::move(make));
}

} // namespace rdma::inline RDMACPP_ABI::asio

#endif
#endif
