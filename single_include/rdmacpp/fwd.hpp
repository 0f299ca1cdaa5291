// SPDX-License-Identifier: MIT
//
// rdmacpp 0.1.0
//
// Forward declarations of every public class. The only supported way to forward-declare them; compiles as C++11.
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

#if defined(RDMACPP_VERSION) && (!defined(RDMACPP_SINGLE_HEADER) || RDMACPP_VERSION != 100)
#error "rdmacpp: two versions or copies in one translation unit; use one, or keep them in separate shared objects"
#define RDMACPP_TWO_VERSIONS
#else

// ---- version.hpp ----------------------------------------------------------------------------------------------------
// The version of rdmacpp: this is the only place where it stands, the build reads it from here.

/// @def RDMACPP_SINGLE_HEADER Defined where rdmacpp came as one file.
#ifndef RDMACPP_SINGLE_HEADER // otherwise all this was here before
#define RDMACPP_SINGLE_HEADER 1

/// The parts of the version; all three are plain numbers.
#define RDMACPP_VERSION_MAJOR 0
/// See RDMACPP_VERSION_MAJOR.
#define RDMACPP_VERSION_MINOR 1
/// See RDMACPP_VERSION_MAJOR.
#define RDMACPP_VERSION_PATCH 0

/// The version as one number: major * 10000 + minor * 100 + patch.
#define RDMACPP_VERSION (RDMACPP_VERSION_MAJOR * 10000 + RDMACPP_VERSION_MINOR * 100 + RDMACPP_VERSION_PATCH)

/// The inline namespace. While the version is 0.y it changes with y, since layouts may; from 1.0 on with the major
/// alone.
#define RDMACPP_ABI v0_1

#endif

// ---- fwd.hpp --------------------------------------------------------------------------------------------------------
// Forward declarations of every public class. The only supported way to forward-declare them; compiles as C++11.

namespace rdma {
inline namespace RDMACPP_ABI {

class accepting;
class acceptor;
class ack_timeout;
class address;
class addrinfo;
class addrinfo_ref;
class ah;
class ah_ref;
class any_stop_token;
class async_channel;
class async_event;
class cm_event;
class cm_id;
class cm_id_ref;
class comp_channel;
class comp_channel_ref;
class completed;
class completed_ex;
class connect_error;
class context;
class context_ref;
class counters;
class counters_ref;
class cq;
class cq_event;
class cq_ex;
class cq_ref;
class cq_set;
class device_list;
class device_ref;
class devices;
class dispatcher;
class dm;
class dm_ref;
class endpoint;
class epoll_loop;
class error;
class event_channel;
class event_channel_ref;
class flow;
class flow_action;
class flow_action_ref;
class flow_ref;
class id_handler;
class mcast;
class membership;
class mr;
class mr_ref;
class mw;
class mw_ref;
class parent_domain;
class pd;
class pd_ref;
class polling;
class private_data;
class qp;
class qp_ex_ref;
class qp_ref;
class recv_wr;
class registered_buffer;
class request;
class rwq_ind_table;
class rwq_ind_table_ref;
class send_wr;
class srq;
class srq_ref;
class sync_id;
class td;
class td_ref;
class work_completion;
class wq;
class wq_ref;
class wr_batch;
class xrcd;
class xrcd_ref;
struct accept_options;
struct acceptor_options;
struct addrinfo_hints;
struct channel_stats;
struct conn_param;
struct connect_options;
struct connect_report;
struct cq_init_attr_ex;
struct diagnostic;
struct dispatch_stats;
struct drained;
struct polled;
struct qp_attr;
struct qp_cap;
struct qp_init_attr;
struct qp_init_attr_ex;
struct remote_memory;
struct srq_init_attr;
struct srq_init_attr_ex;
struct wait_options;
struct wq_cap;
struct wq_init_attr;

namespace async {
template <class Operation, bool Throws>
class awaitable;
template <class Channel>
class events;
template <class T>
class task;
class acceptor;
class any_loop;
class cm_id;
class cq;
class event_channel;
class limits;
class poll_loop;
class registration;
class request;
class tasks;
struct callback;
} // namespace async

} // namespace RDMACPP_ABI
} // namespace rdma

#endif
