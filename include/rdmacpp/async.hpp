// SPDX-License-Identifier: MIT
/// @file
/// Awaitables: connecting, accepting, completions and events for coroutines and callbacks, on any event loop. No thread
/// is started, and nothing here waits.

/// @namespace rdma::async
/// What is awaited, and what a loop must be able to do for it. Nothing here blocks: a call begins something, and the
/// loop's turns go on with it. All of it belongs to the thread of the loop that it was made with, which outlives it.
#pragma once

#include "config.hpp"
#if __cplusplus >= 202002L && !defined(RDMACPP_TWO_VERSIONS) // otherwise config.hpp says what to do

// IWYU pragma: begin_exports
#include "async/acceptor.hpp"
#include "async/cm_id.hpp"
#include "async/connect.hpp"
#include "async/cq.hpp"
#include "async/event_channel.hpp"
#include "async/event_loop.hpp"
#include "async/events.hpp"
#include "async/operation.hpp"
#include "async/poll_loop.hpp"
#include "async/task.hpp"
#include "rdmacpp.hpp"
// IWYU pragma: end_exports

#endif
