// SPDX-License-Identifier: MIT
#include "progress.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <utility>

#include <sys/ioctl.h>
#include <unistd.h>

namespace rcopy {
namespace {

constexpr auto interval = std::chrono::milliseconds(100); // between two pictures

std::size_t terminal_columns() {
    winsize size{};
    return ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col != 0 ? size.ws_col : 80;
}

std::string fixed(double value) {
    std::array<char, 32> text{};
    std::snprintf(text.data(), text.size(), "%.1f", value);
    return text.data();
}

double seconds_of(progress::clock::duration span) { return std::chrono::duration<double>(span).count(); }

} // namespace

std::string size_text(double bytes) {
    constexpr std::array units = {" B", " KiB", " MiB", " GiB", " TiB"};
    std::size_t unit = 0;
    for (; bytes >= 1024 && unit + 1 != units.size(); ++unit)
        bytes /= 1024;
    return (unit == 0 ? std::to_string(std::llround(bytes)) : fixed(bytes)) + units[unit];
}

std::string time_text(std::chrono::seconds span) {
    auto const two = [](auto number) { return (number < 10 ? "0" : "") + std::to_string(number); };
    auto const hours = span.count() / 3600;
    return (hours ? std::to_string(hours) + ':' : "") + two(span.count() / 60 % 60) + ':' + two(span.count() % 60);
}

void progress::begin(std::string name, std::uint64_t from, std::uint64_t size) {
    name_ = std::move(name);
    from_ = done_ = from;
    size_ = size;
    began_ = shown_at_ = clock::now();
}

void progress::advance(std::uint64_t to) {
    done_ = to;
    clock::time_point const now = clock::now();
    if (terminal_ && (!shown_ || now - shown_at_ >= interval))
        show(now);
}

void progress::finish() {
    clock::time_point const now = clock::now();
    if (terminal_)
        show(now);
    std::fprintf(stderr, "%s%s\n", std::exchange(shown_, false) ? "\n" : "", summary(now).c_str());
}

void progress::show(clock::time_point now) {
    std::fprintf(stderr, "\r%s\033[K", bar(now, terminal_columns()).c_str());
    shown_ = true;
    shown_at_ = now;
}

void progress::clear() {
    if (std::exchange(shown_, false))
        std::fputs("\r\033[K", stderr);
}

double progress::rate(clock::time_point now) const {
    double const seconds = seconds_of(now - began_);
    return seconds > 0 ? static_cast<double>(done_ - from_) / seconds : 0;
}

std::string progress::bar(clock::time_point now, std::size_t columns) const {
    double const part = size_ ? static_cast<double>(done_) / static_cast<double>(size_) : 1;
    double const speed = rate(now);
    bool const known = speed > 0 && now - began_ >= interval;
    double const left = known ? static_cast<double>(size_ - done_) / speed : 0;
    std::string const percent = std::to_string(static_cast<int>(100 * part));
    std::string const before = "  " + std::string(3 - percent.size(), ' ') + percent + "% [";
    std::string const after =
        "] " + size_text(static_cast<double>(done_)) + "  " + size_text(speed) + "/s  ETA " +
        (known ? time_text(std::chrono::seconds(std::llround(std::ceil(std::min(left, 359999.0))))) : "--:--");
    std::size_t const taken = before.size() + after.size() + 1; // the last column stays free
    std::size_t const free = columns > taken ? columns - taken : 0;
    std::string const name = name_.substr(0, std::max<std::size_t>(free / 2, 8));
    std::size_t const width = std::clamp<std::size_t>(free > name.size() ? free - name.size() : 0, 4, 60);
    auto const full = static_cast<std::size_t>(part * static_cast<double>(width));
    std::string drawn(full, '=');
    if (full != width)
        drawn += '>';
    drawn.resize(width, ' ');
    return name + before + drawn + after;
}

std::string progress::summary(clock::time_point now) const {
    std::string text = name_ + ": " + size_text(static_cast<double>(done_ - from_)) + " in " +
                       fixed(seconds_of(now - began_)) + " s, " + size_text(rate(now)) + "/s";
    if (from_ != 0)
        text += "; " + size_text(static_cast<double>(from_)) + " were there";
    return text;
}

} // namespace rcopy
