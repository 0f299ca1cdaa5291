// SPDX-License-Identifier: MIT
// What the two units of the mixed program ask of each other.
#pragma once

#include <rdmacpp/rdmacpp.hpp>

#include <system_error>

/// In the unit without exceptions: makes an id and hands it over, bound to an address of the fake.
rdma::cm_id make_bound_id(rdma::event_channel const& channel, std::error_code& ec) noexcept;

/// In the unit without exceptions: listens, and drops the id.
void listen_and_drop(rdma::cm_id id, std::error_code& ec) noexcept;

/// In the unit with exceptions: the whole test. Returns what is wrong, or null.
char const* run_with_exceptions();
