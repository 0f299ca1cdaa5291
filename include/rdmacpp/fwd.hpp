// SPDX-License-Identifier: MIT
/// @file
/// Forward declarations of every public class. The only supported way to forward-declare them; compiles as C++11.
#pragma once

#include "version.hpp"

namespace rdma {
inline namespace RDMACPP_ABI {

class address;
class async_event;
class cm_event;
class cm_id;
class cm_id_ref;
class comp_channel;
class comp_channel_ref;
class context_ref;
class cq;
class cq_event;
class cq_ref;
class error;
class event_channel;
class event_channel_ref;
class mr;
class pd;
class pd_ref;
class private_data;
class qp_ref;
class recv_wr;
class send_wr;
class work_completion;
struct channel_stats;
struct conn_param;
struct diagnostic;
struct qp_init_attr;

} // namespace RDMACPP_ABI
} // namespace rdma
