// SPDX-License-Identifier: MIT
/// @file
/// All of rdmacpp: a C++20 RAII library over rdma-core. One get, one ack, by construction.
#pragma once

#include "config.hpp"
#if __cplusplus >= 202002L // below, config.hpp says what to do

// IWYU pragma: begin_exports
#include "acceptor.hpp"
#include "ack_timeout.hpp"
#include "address.hpp"
#include "addrinfo.hpp"
#include "adopt.hpp"
#include "ah.hpp"
#include "async_event.hpp"
#include "cm_event.hpp"
#include "cm_id.hpp"
#include "cm_id_ref.hpp"
#include "comp_channel.hpp"
#include "conn_param.hpp"
#include "connect.hpp"
#include "context.hpp"
#include "cq.hpp"
#include "cq_event.hpp"
#include "devices.hpp"
#include "diagnostics.hpp"
#include "disconnect.hpp"
#include "endpoint.hpp"
#include "error.hpp"
#include "event_channel.hpp"
#include "event_source.hpp"
#include "event_type.hpp"
#include "fwd.hpp"
#include "membership.hpp"
#include "mr.hpp"
#include "pd.hpp"
#include "private_data.hpp"
#include "qp.hpp"
#include "rdma_verbs.hpp"
#include "srq.hpp"
#include "stats.hpp"
#include "sync_id.hpp"
#include "timeout.hpp"
#include "verbs_owner.hpp"
#include "version.hpp"
#include "work_completion.hpp"
#include "work_request.hpp"
#include "xrcd.hpp"
// IWYU pragma: end_exports

#endif
