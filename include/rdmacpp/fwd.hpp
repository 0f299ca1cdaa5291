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
class async_event;
class cm_event;
class cm_id;
class cm_id_ref;
class comp_channel;
class comp_channel_ref;
class connect_error;
class context_ref;
class cq;
class cq_event;
class cq_ref;
class devices;
class endpoint;
class error;
class event_channel;
class event_channel_ref;
class membership;
class mr;
class pd;
class pd_ref;
class private_data;
class qp;
class qp_ref;
class recv_wr;
class request;
class send_wr;
class srq_ref;
class sync_id;
class work_completion;
class xrcd;
class xrcd_ref;
struct accept_options;
struct acceptor_options;
struct addrinfo_hints;
struct channel_stats;
struct conn_param;
struct connect_options;
struct connect_report;
struct diagnostic;
struct qp_attr;
struct qp_init_attr;
struct qp_init_attr_ex;
struct srq_init_attr;
struct srq_init_attr_ex;
struct wait_options;

} // namespace RDMACPP_ABI
} // namespace rdma
