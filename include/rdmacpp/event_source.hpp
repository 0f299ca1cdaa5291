// SPDX-License-Identifier: MIT
/// @file
/// Getting events, one by one or with a range-for: the same for every kind of event channel.
#pragma once

#include "config.hpp"
#if __cplusplus >= 202002L && !defined(RDMACPP_TWO_VERSIONS) // otherwise config.hpp says what to do

#include "any_stop_token.hpp"
#include "detail/wait_room.hpp"
#include "timeout.hpp"

#include <chrono>
#include <cstddef>
#include <iterator>
#include <optional>
#include <span>
#include <system_error>
#include <utility>

namespace rdma::inline RDMACPP_ABI {

/// The events of a channel as a lazy, single-pass range of `Event&&`, as std::generator would give it.
///
/// `begin()` and `++` never wait: `++` acks what was not moved away, `*` and the comparison with the sentinel wait for
/// the next event. So an event is always acked before the next get, also on `break` and when the body throws, and
/// `views::take(2)` gets two events, not three. The range keeps what it needs of the channel alive; it ends once the
/// channel object is gone, stop is requested, or (`pending()`) there is nothing more now.
/// @tparam Throws false for the twins with an error code: an error ends the range and is left in the code.
template <class Event, bool Throws>
class event_range {
    using state = typename Event::channel_type;

public:
    class iterator {
    public:
        using iterator_concept = std::input_iterator_tag;
        using value_type = Event;
        using difference_type = std::ptrdiff_t;

        iterator() noexcept = default;
        iterator(iterator&& other) noexcept
            : range_(other.range_), event_(std::move(other.event_)), slot_(other.slot_) {}
        iterator& operator=(iterator&& other) noexcept {
            range_ = other.range_;
            event_ = std::move(other.event_);
            slot_ = other.slot_;
            return *this;
        }

        /// The event; waits for it on the first call after `++`. Move it out to keep it: a second `*` never gets again.
        Event&& operator*() const noexcept(!Throws) {
            fill();
            return std::move(event_);
        }

        /// Acks the event, unless it was moved out. Never waits.
        iterator& operator++() noexcept {
            event_ = Event();
            if (slot_ == slot::filled)
                slot_ = slot::empty;
            return *this;
        }
        void operator++(int) noexcept { ++*this; }

        /// Waits for the next event; true when there will be none.
        friend bool operator==(iterator const& self, std::default_sentinel_t) noexcept(!Throws) {
            self.fill();
            return self.slot_ == slot::ended;
        }

    private:
        friend class event_range;
        enum class slot : unsigned char { empty, filled, ended };

        explicit iterator(event_range const& range) noexcept : range_(range) {}

        void fill() const noexcept(!Throws) {
            if (slot_ != slot::empty)
                return; // filled stays filled when the event is moved out
            std::error_code ec;
            bool const got = range_.next(event_, ec);
            slot_ = got ? slot::filled : slot::ended;
            if (!ec)
                return;
            if constexpr (Throws)
                detail::throw_error(ec, Event::get_function);
            else
                *range_.ec_ = ec;
        }

        event_range range_;
        mutable Event event_;
        mutable slot slot_ = slot::empty;
    };

    event_range() noexcept = default;
    event_range(event_range const& other) noexcept
        : state_(other.state_), stop_(other.stop_), ec_(other.ec_), drains_(other.drains_) {
        if (state_)
            state_->ref();
    }
    event_range& operator=(event_range const& other) noexcept {
        event_range copy(other);
        std::swap(state_, copy.state_);
        std::swap(stop_, copy.stop_);
        ec_ = copy.ec_;
        drains_ = copy.drains_;
        return *this;
    }
    ~event_range() {
        if (state_ && !state_->inherited())
            state_->unref();
    }

    iterator begin() noexcept { return iterator(*this); }
    std::default_sentinel_t end() noexcept { return {}; }

private:
    template <class, class, bool>
    friend class event_source;

    event_range(state* channel, any_stop_token stop, std::error_code* ec, bool drains) noexcept
        : state_(channel), stop_(std::move(stop)), ec_(ec), drains_(drains) {
        if (state_)
            state_->ref();
        if (ec_)
            ec_->clear();
    }

    bool next(Event& event, std::error_code& ec) const noexcept {
        if (!state_) {
            ec = errc::empty_handle;
            return false;
        }
        if (drains_)
            return !state_->room.closed() && Event::try_receive(*state_, event, {}, ec) && !ec;
        return Event::receive(*state_, event, detail::deadline::never(), stop_, {}, ec) == detail::woken::ready;
    }

    state* state_ = nullptr;
    any_stop_token stop_;
    std::error_code* ec_ = nullptr;
    bool drains_ = false;
};

/// What every event channel offers: one get in several forms, and ranges over it.
///
/// Each form waits for an event of this channel and hands it out as its owner: dropped, it is acked. All of them may be
/// used from several threads at once; each event goes to one of them. An empty optional means: none now (`try_get`),
/// none in time (`get_for`, `get_until`), stopped (`get` with a token). Signals do not end a wait, unless
/// `wait_options` say so.
///
/// Errors are those of the C function that gets the event; the forms with a trailing std::error_code& return an empty
/// event and set the code, the others throw rdma::error.
/// @tparam View whether Channel is a view, whose ranges may be taken of a temporary: what they need lives elsewhere.
template <class Channel, class Event, bool View = false>
class event_source {
public:
#if RDMACPP_EXCEPTIONS
    /// Waits for the next event, for ever. @throws rdma::error
    Event get(wait_options options = {}) const {
        std::error_code ec;
        Event event = get(options, ec);
        checked(ec);
        return event;
    }

    /// Gets an event if there is one; never waits. @throws rdma::error
    std::optional<Event> try_get() const {
        std::error_code ec;
        auto event = try_get(ec);
        checked(ec);
        return event;
    }

    /// Waits for the next event, at most this long (rounded up to milliseconds). @throws rdma::error
    std::optional<Event> get_for(timeout span, wait_options options = {}) const {
        std::error_code ec;
        auto event = get_for(span, options, ec);
        checked(ec);
        return event;
    }

    /// Waits for the next event, until this point in time of any clock. @throws rdma::error
    template <class Clock, class Duration>
    std::optional<Event> get_until(std::chrono::time_point<Clock, Duration> at, wait_options options = {}) const {
        return get_for(detail::until(at), options);
    }

    /// All events from now on: a range that waits, and ends with the channel object. @see event_range
    event_range<Event, true> events() const& noexcept { return {state(), {}, nullptr, false}; }
    event_range<Event, true> events() const&& requires(!View) = delete;

    /// The events that are there now: a range that never waits. @see event_range
    event_range<Event, true> pending() const& noexcept { return {state(), {}, nullptr, true}; }
    event_range<Event, true> pending() const&& requires(!View) = delete;

    /// The channel itself is the range events().
    auto begin() const& noexcept { return events().begin(); }
    auto begin() const&& requires(!View) = delete;
    std::default_sentinel_t end() const noexcept { return {}; }

    /// Waits for the next event until stop is requested. @throws rdma::error
    std::optional<Event> get(any_stop_token const& stop, wait_options options = {}) const {
        std::error_code ec;
        auto event = get(stop, options, ec);
        checked(ec);
        return event;
    }

    /// All events until stop is requested. @see event_range
    event_range<Event, true> events(any_stop_token stop) const& noexcept {
        return {state(), std::move(stop), nullptr, false};
    }
    event_range<Event, true> events(any_stop_token stop) const&& requires(!View) = delete;
#endif

    /// The twin of get().
    Event get(std::error_code& ec) const noexcept { return get(wait_options{}, ec); }
    Event get(wait_options options, std::error_code& ec) const noexcept {
        Event event;
        if (receive(event, detail::deadline::never(), {}, options, ec) == detail::woken::closed)
            ec = errc::empty_handle;
        return event;
    }

    /// The twin of try_get(): empty with no `ec` means nothing, empty with `ec` means broken.
    std::optional<Event> try_get(std::error_code& ec) const noexcept {
        ec.clear();
        Event event;
        if (!state())
            ec = errc::empty_handle;
        else if (Event::try_receive(*state(), event, {}, ec) && !ec)
            return event;
        return std::nullopt;
    }

    /// The twin of get_for().
    std::optional<Event> get_for(timeout span, std::error_code& ec) const noexcept { return get_for(span, {}, ec); }
    std::optional<Event> get_for(timeout span, wait_options options, std::error_code& ec) const noexcept {
        return maybe(detail::deadline::after(span), {}, options, ec);
    }

    /// The twin of get_until().
    template <class Clock, class Duration>
    std::optional<Event> get_until(std::chrono::time_point<Clock, Duration> at, std::error_code& ec) const noexcept {
        return get_for(detail::until(at), {}, ec);
    }
    template <class Clock, class Duration>
    std::optional<Event> get_until(std::chrono::time_point<Clock, Duration> at, wait_options options,
                                   std::error_code& ec) const noexcept {
        return get_for(detail::until(at), options, ec);
    }

    /// The twins of events() and pending(): an error ends the range and is left in `ec`, which must outlive it.
    event_range<Event, false> events(std::error_code& ec) const& noexcept { return {state(), {}, &ec, false}; }
    event_range<Event, false> events(std::error_code& ec) const&& requires(!View) = delete;
    event_range<Event, false> pending(std::error_code& ec) const& noexcept { return {state(), {}, &ec, true}; }
    event_range<Event, false> pending(std::error_code& ec) const&& requires(!View) = delete;

    /// The twin of get(stop_token).
    std::optional<Event> get(any_stop_token const& stop, std::error_code& ec) const noexcept {
        return get(stop, {}, ec);
    }
    std::optional<Event> get(any_stop_token const& stop, wait_options options, std::error_code& ec) const noexcept {
        return maybe(detail::deadline::never(), stop, options, ec);
    }

    /// The twin of events(stop_token).
    event_range<Event, false> events(any_stop_token stop, std::error_code& ec) const& noexcept {
        return {state(), std::move(stop), &ec, false};
    }
    event_range<Event, false> events(any_stop_token stop, std::error_code& ec) const&& requires(!View) = delete;

private:
    auto* state() const noexcept { return static_cast<Channel const*>(this)->channel(); }

    detail::woken receive(Event& event, detail::deadline const& until, any_stop_token const& stop, wait_options options,
                          std::error_code& ec) const noexcept {
        if (state())
            return Event::receive(*state(), event, until, stop, options, ec);
        ec = errc::empty_handle;
        return detail::woken::failed;
    }

    std::optional<Event> maybe(detail::deadline const& until, any_stop_token const& stop, wait_options options,
                               std::error_code& ec) const noexcept {
        Event event;
        if (receive(event, until, stop, options, ec) == detail::woken::ready)
            return event;
        return std::nullopt;
    }

#if RDMACPP_EXCEPTIONS
    static void checked(std::error_code ec) {
        if (ec)
            detail::throw_error(ec, Event::get_function);
    }
#endif
};

} // namespace rdma::inline RDMACPP_ABI

template <class Event, bool Throws>
inline constexpr bool std::ranges::enable_view<::rdma::event_range<Event, Throws>> = true;

#endif
