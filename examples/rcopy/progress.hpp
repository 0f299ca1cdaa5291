// SPDX-License-Identifier: MIT
// How far a transfer is: a bar on a terminal, or one line at its end.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

namespace rcopy {

/// "1.5 GiB"
std::string size_text(double bytes);
/// "00:05", "1:02:03"
std::string time_text(std::chrono::seconds span);

class progress {
public:
    using clock = std::chrono::steady_clock;

    /// @param terminal whether stderr is one: else nothing is shown until the end
    explicit progress(bool terminal) : terminal_(terminal) {}
    progress(progress const&) = delete;
    progress& operator=(progress const&) = delete;
    ~progress() { clear(); }

    /// The transfer begins. @param from how much is there already
    void begin(std::string name, std::uint64_t from, std::uint64_t size);
    /// So much is there now.
    void advance(std::uint64_t to);
    /// It is done.
    void finish();
    /// What is printed next begins where the bar was.
    void clear();

    /// The bar, for a terminal of so many columns: "NAME  45% [=====>     ] 460.0 MiB  120.0 MiB/s  ETA 00:05"
    std::string bar(clock::time_point now, std::size_t columns) const;
    /// "NAME: 1.0 GiB in 8.2 s, 125.0 MiB/s"
    std::string summary(clock::time_point now) const;

private:
    double rate(clock::time_point now) const; ///< Bytes for each second of this run.
    void show(clock::time_point now);

    bool terminal_;
    bool shown_ = false;
    std::string name_;
    std::uint64_t from_ = 0, done_ = 0, size_ = 0;
    clock::time_point began_, shown_at_;
};

} // namespace rcopy
