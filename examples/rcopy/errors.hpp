// SPDX-License-Identifier: MIT
// What ends a transfer early.
#pragma once

#include "protocol.hpp"

#include <stdexcept>
#include <string>
#include <utility>

namespace rcopy {

/// The connection is over, or the peer says nothing: the next run goes on where this one was.
struct lost : std::runtime_error {
    using std::runtime_error::runtime_error;
};

/// A signal came.
struct stopped : std::runtime_error {
    stopped() : std::runtime_error("stopped by a signal") {}
};

/// What the receiver says no to, thrown at both ends. The sender itself says so when the file has changed.
struct refused : std::runtime_error {
    refused(reason what, std::string const& text) : std::runtime_error(text), why(what) {}
    reason why;
};

/// Text of a peer, made fit for a terminal.
inline std::string printable(std::string text) {
    for (char& each : text)
        if (static_cast<unsigned char>(each) < 0x20 || each == 0x7f)
            each = '?';
    return text;
}

} // namespace rcopy
