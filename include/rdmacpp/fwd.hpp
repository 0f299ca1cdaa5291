// SPDX-License-Identifier: MIT
/// @file
/// Forward declarations of every public class. The only supported way to forward-declare them; compiles as C++11.
#pragma once

#include "version.hpp"

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
