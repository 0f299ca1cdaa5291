// SPDX-License-Identifier: MIT
//
// rdmacpp 0.1.0
//
// The awaitables on Boost.Asio (Boost 1.74 or newer): its loop, and any of its completion tokens.
//
// With clang, Boost 1.74 (Debian 12) finds no coroutines by itself: define BOOST_ASIO_HAS_CO_AWAIT=1 and
// BOOST_ASIO_HAS_STD_COROUTINE=1 for all units then. And Asio 1.22 and Boost 1.74 cannot be included in one unit, for
// names of their own.
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

#ifndef RDMACPP_SINGLE_BOOST_ASIO_HPP // a copy at another place is no harm
#define RDMACPP_SINGLE_BOOST_ASIO_HPP

#include "asio_adapter.hpp"
#include "async.hpp"
#include "rdmacpp.hpp"

#if __cplusplus >= 202002L && !defined(RDMACPP_TWO_VERSIONS) // otherwise rdmacpp.hpp says what to do

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/associated_allocator.hpp>
#include <boost/asio/associated_executor.hpp>
#include <boost/asio/async_result.hpp>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/execution_context.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/query.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/version.hpp>
#include <boost/system/error_code.hpp>
#include <boost/system/system_error.hpp>
#include <concepts>
#include <memory>
#include <string>
#include <system_error>
#include <type_traits>
#include <utility>

#if BOOST_ASIO_VERSION >= 102201
#include <boost/asio/associated_cancellation_slot.hpp>
#include <boost/asio/recycling_allocator.hpp>
#endif

namespace rdma::inline RDMACPP_ABI::detail {

/// A category of the standard, as Boost's.
struct RDMACPP_EXPORT boost_category final : ::boost::system::error_category {
    explicit boost_category(std::error_category const& standard) noexcept : of(standard) {}

    char const* name() const noexcept override { return of.name(); }
    std::string message(int value) const override { return of.message(value); }
    using ::boost::system::error_category::message;
    ::boost::system::error_condition default_error_condition(int value) const noexcept override {
        std::error_condition const condition = of.default_error_condition(value);
        if (condition.category() == std::generic_category())
            return {condition.value(), ::boost::system::generic_category()};
        return {value, *this};
    }

    std::error_category const& of;
};

/// Categories are compared by address, so each must be one object in the process.
struct RDMACPP_EXPORT boost_categories {
    static boost_category const& rdma() noexcept {
        static boost_category const category(categories::rdma());
        return category;
    }
    static boost_category const& reject() noexcept {
        static boost_category const category(categories::reject());
        return category;
    }
};

inline ::boost::system::error_code to_boost(std::error_code ec) noexcept {
    if (ec.category() == std::system_category())
        return {ec.value(), ::boost::system::system_category()};
    for (boost_category const* const each : {&boost_categories::rdma(), &boost_categories::reject()})
        if (ec.category() == each->of)
            return {ec.value(), *each};
    std::error_condition const condition = ec.default_error_condition(); // of the program's own categories
    if (condition.category() == std::generic_category())
        return {condition.value(), ::boost::system::generic_category()};
    return {static_cast<int>(errc::unspecified), boost_categories::rdma()};
}

inline std::error_code to_std(::boost::system::error_code const& ec) noexcept {
    for (boost_category const* const each : {&boost_categories::rdma(), &boost_categories::reject()})
        if (ec.category() == *each)
            return {ec.value(), each->of};
    if (ec.category() == ::boost::system::system_category())
        return {ec.value(), std::system_category()};
    if (ec.category() == ::boost::system::generic_category())
        return {ec.value(), std::generic_category()};
    return ec;
}

/// The names of Boost's Asio.
struct boost_asio_names {
    using executor = ::boost::asio::any_io_executor;
    using execution_context = ::boost::asio::execution_context;
    using descriptor = ::boost::asio::posix::stream_descriptor;
    using timer = ::boost::asio::steady_timer;
    using error_code = ::boost::system::error_code;
    using system_error = ::boost::system::system_error;
    static constexpr auto wait_read = descriptor::wait_read;

    static error_code code(std::error_code ec) noexcept { return to_boost(ec); }

    template <class Service>
    static Service& use_service(executor const& on) {
        return ::boost::asio::use_service<Service>(::boost::asio::query(on, ::boost::asio::execution::context));
    }
    template <class F>
    static void post(auto const& on, F&& f) {
        ::boost::asio::post(on, static_cast<F&&>(f));
    }
    template <class F>
    static void dispatch(auto const& on, F&& f) {
        ::boost::asio::dispatch(on, static_cast<F&&>(f));
    }
    template <class Handler>
    static auto work_for(Handler const& handler, executor const& otherwise) {
        return ::boost::asio::make_work_guard(::boost::asio::get_associated_executor(handler, otherwise));
    }

#if BOOST_ASIO_VERSION >= 102201
    template <class Handler>
    static auto allocator_of(Handler const& handler) noexcept {
        return ::boost::asio::get_associated_allocator(handler, ::boost::asio::recycling_allocator<void>());
    }
    template <class Handler>
    static void connect_slot(Handler const& handler, operation& op, asio_canceller*& place) {
        auto slot = ::boost::asio::get_associated_cancellation_slot(handler);
        if (slot.is_connected())
            slot.template emplace<asio_canceller>(op, place);
    }
    template <class Handler>
    static void clear_slot(Handler const& handler) noexcept {
        ::boost::asio::get_associated_cancellation_slot(handler).clear();
    }
#else
    template <class Handler>
    static auto allocator_of(Handler const& handler) noexcept {
        return ::boost::asio::get_associated_allocator(handler);
    }
    template <class Handler>
    static void connect_slot(Handler const&, operation&, asio_canceller*&) noexcept {}
    template <class Handler>
    static void clear_slot(Handler const&) noexcept {}
#endif
};

} // namespace rdma::inline RDMACPP_ABI::detail

/// What goes with Boost.Asio.
namespace rdma::inline RDMACPP_ABI::boost_asio {

/// The code as Boost's: those of the system and the generic ones are Boost's own, those of rdma::errc and
/// rdma::reject_reason have a category with the same name, messages and default conditions. One of any other category
/// is its generic condition, if it has one, or errc::unspecified.
inline ::boost::system::error_code to_boost(std::error_code ec) noexcept { return detail::to_boost(ec); }
/// And back, to be compared with rdma::errc, rdma::condition and the like:
/// `to_std(ec) == rdma::condition::refused`.
inline std::error_code to_std(::boost::system::error_code const& ec) noexcept { return detail::to_std(ec); }

/// An event loop on an Asio executor. Nothing of ours is outstanding when nothing waits, so that io_context::run ends:
///
///     namespace asio = boost::asio;
///     asio::io_context context;
///     rdma::boost_asio::loop loop(context);
///     rdma::async::event_channel channel(loop);
///     asio::co_spawn(context, [&]() -> asio::awaitable<void> {
///         rdma::async::cm_id id = co_await rdma::boost_asio::initiate(
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
    explicit loop(::boost::asio::any_io_executor executor)
        : hub_(std::make_shared<detail::asio_hub<detail::boost_asio_names>>(std::move(executor))) {}
    /// On the executor of a context. @throws std::bad_alloc
    template <std::derived_from<::boost::asio::execution_context> Context>
    explicit loop(Context& context) : loop(::boost::asio::any_io_executor(context.get_executor())) {}
    loop(loop const&) = delete;
    loop& operator=(loop const&) = delete;
    ~loop() { hub_->close(); }

    /// Where it calls back.
    ::boost::asio::any_io_executor get_executor() const noexcept { return hub_->get_executor(); }

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
    detail::asio_initiation<detail::boost_asio_names> initiation() const noexcept { return {hub_}; }

private:
    std::shared_ptr<detail::asio_hub<detail::boost_asio_names>> hub_;
};

static_assert(async::event_loop<loop>);

/// Starts what is to be awaited with a completion token of Asio: a function, `use_future`, `use_awaitable`,
/// `deferred`...
///
///     rdma::boost_asio::initiate(loop, acceptor.next(), [&](auto ec, rdma::async::request request) { ... });
///
/// Called on the loop's thread, or while nothing runs it. The handler is called through its associated executor, the
/// loop's if it has none, and never within this call; what waits is in memory of its associated allocator. What its
/// cancellation slot gets (terminal, partial or total), on the loop's thread, ends the wait with
/// asio::error::operation_aborted, where Boost has slots (1.79). What the handler throws comes out of the context's
/// run.
/// @param on the loop that the channel or the queue was made with
/// @param what any awaitable that has not begun. The `std::error_code&` of a twin is not used: the handler gets the
/// code
/// @param token for `void(boost::system::error_code, T)`, or `void(boost::system::error_code)` where nothing is given.
/// With a code, T is empty. The codes are as to_boost makes them. Which step of a connect failed stands in
/// connect_options::report.
template <class Operation, bool Throws, class CompletionToken>
auto initiate(loop& on, async::awaitable<Operation, Throws>&& what, CompletionToken&& token) {
    return ::boost::asio::async_initiate<
        CompletionToken, detail::asio_signature_of<detail::boost_asio_names, async::awaitable<Operation, Throws>>>(
        on.initiation(), token, std::move(what));
}

/// The same, on any thread: what is to be awaited is made on the loop's.
///
///     auto connected = rdma::boost_asio::initiate(loop, [&] { return rdma::async::connect(channel, peer); },
///                                           asio::use_future);
///
/// @param make called on the loop's thread; it returns an awaitable
template <detail::makes_awaitable Make, class CompletionToken>
auto initiate(loop& on, Make make, CompletionToken&& token) {
    return ::boost::asio::async_initiate<
        CompletionToken, detail::asio_signature_of<detail::boost_asio_names, std::invoke_result_t<Make&>>>(
        on.initiation(), token, std::move(make));
}

} // namespace rdma::inline RDMACPP_ABI::boost_asio

#endif
#endif
