/* SPDX-License-Identifier: MIT
 *
 * The part of <rdma/rdma_cma.h> that the librdmacm in FreeBSD 14's base has, too: a stand-in, to compile against and never to link,
 * written from the names, types and values of that interface. Its folder comes before the system's. What rdma-core has and it has not:
 *   - rdma_establish and rdma_init_qp_attr: QPs of the program's own are moved by ibv_modify_qp alone
 *   - rdma_join_multicast_ex, its structure and its flags
 *   - enhanced connection establishment: rdma_set_local_ece, rdma_get_remote_ece, rdma_reject_ece
 *   - the name RDMA_OPTION_ID_ACK_TIMEOUT, whose number the kernel knows
 *   - all that came with rdma-core 60
 * The verbs are those of the system: FreeBSD's own libibverbs, which is older, is not stood in for.
 */
#ifndef FREEBSD_STAND_IN_RDMA_CMA_H
#define FREEBSD_STAND_IN_RDMA_CMA_H

#include <netinet/in.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <infiniband/sa.h>
#include <infiniband/verbs.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- events ---- */

enum rdma_cm_event_type {
    RDMA_CM_EVENT_ADDR_RESOLVED = 0,
    RDMA_CM_EVENT_ADDR_ERROR = 1,
    RDMA_CM_EVENT_ROUTE_RESOLVED = 2,
    RDMA_CM_EVENT_ROUTE_ERROR = 3,
    RDMA_CM_EVENT_CONNECT_REQUEST = 4,
    RDMA_CM_EVENT_CONNECT_RESPONSE = 5,
    RDMA_CM_EVENT_CONNECT_ERROR = 6,
    RDMA_CM_EVENT_UNREACHABLE = 7,
    RDMA_CM_EVENT_REJECTED = 8,
    RDMA_CM_EVENT_ESTABLISHED = 9,
    RDMA_CM_EVENT_DISCONNECTED = 10,
    RDMA_CM_EVENT_DEVICE_REMOVAL = 11,
    RDMA_CM_EVENT_MULTICAST_JOIN = 12,
    RDMA_CM_EVENT_MULTICAST_ERROR = 13,
    RDMA_CM_EVENT_ADDR_CHANGE = 14,
    RDMA_CM_EVENT_TIMEWAIT_EXIT = 15
};

struct rdma_conn_param {
    const void* private_data;
    uint8_t private_data_len, responder_resources, initiator_depth, flow_control, retry_count, rnr_retry_count, srq;
    uint32_t qp_num;
};

struct rdma_ud_param {
    const void* private_data;
    uint8_t private_data_len;
    struct ibv_ah_attr ah_attr;
    uint32_t qp_num, qkey;
};

struct rdma_cm_event {
    struct rdma_cm_id *id, *listen_id;
    enum rdma_cm_event_type event;
    int status;
    union {
        struct rdma_conn_param conn;
        struct rdma_ud_param ud;
    } param;
};

struct rdma_event_channel {
    int fd;
};

struct rdma_event_channel* rdma_create_event_channel(void);
void rdma_destroy_event_channel(struct rdma_event_channel* channel);
int rdma_get_cm_event(struct rdma_event_channel* channel, struct rdma_cm_event** event);
int rdma_ack_cm_event(struct rdma_cm_event* event);
const char* rdma_event_str(enum rdma_cm_event_type event);

/* ---- addresses ---- */

#define RDMA_IB_IP_PS_MASK 0xFFFFFFFFFFFF0000ULL
#define RDMA_IB_IP_PORT_MASK 0x000000000000FFFFULL
#define RDMA_IB_IP_PS_TCP 0x0000000001060000ULL
#define RDMA_IB_IP_PS_UDP 0x0000000001110000ULL
#define RDMA_IB_PS_IB 0x00000000013F0000ULL
#define RDMA_UDP_QKEY 0x01234567

enum rdma_port_space { RDMA_PS_IPOIB = 0x2, RDMA_PS_TCP = 0x106, RDMA_PS_UDP = 0x111, RDMA_PS_IB = 0x13F };

struct rdma_ib_addr {
    union ibv_gid sgid, dgid;
    __be16 pkey;
};

struct rdma_addr {
    union {
        struct sockaddr src_addr;
        struct sockaddr_in src_sin;
        struct sockaddr_in6 src_sin6;
        struct sockaddr_storage src_storage;
    };
    union {
        struct sockaddr dst_addr;
        struct sockaddr_in dst_sin;
        struct sockaddr_in6 dst_sin6;
        struct sockaddr_storage dst_storage;
    };
    union {
        struct rdma_ib_addr ibaddr;
    } addr;
};

struct rdma_route {
    struct rdma_addr addr;
    struct ibv_sa_path_rec* path_rec;
    int num_paths;
};

#define RAI_PASSIVE 0x1
#define RAI_NUMERICHOST 0x2
#define RAI_NOROUTE 0x4
#define RAI_FAMILY 0x8

struct rdma_addrinfo {
    int ai_flags, ai_family, ai_qp_type, ai_port_space;
    socklen_t ai_src_len, ai_dst_len;
    struct sockaddr *ai_src_addr, *ai_dst_addr;
    char *ai_src_canonname, *ai_dst_canonname;
    size_t ai_route_len;
    void* ai_route;
    size_t ai_connect_len;
    void* ai_connect;
    struct rdma_addrinfo* ai_next;
};

int rdma_getaddrinfo(const char* node, const char* service, const struct rdma_addrinfo* hints, struct rdma_addrinfo** res);
void rdma_freeaddrinfo(struct rdma_addrinfo* res);

/* ---- ids ---- */

enum { RDMA_MAX_RESP_RES = 0xFF, RDMA_MAX_INIT_DEPTH = 0xFF };
enum { RDMA_OPTION_ID = 0, RDMA_OPTION_IB = 1 };
enum { RDMA_OPTION_ID_TOS = 0, RDMA_OPTION_ID_REUSEADDR = 1, RDMA_OPTION_ID_AFONLY = 2, RDMA_OPTION_IB_PATH = 1 };

struct rdma_cm_id {
    struct ibv_context* verbs;
    struct rdma_event_channel* channel;
    void* context;
    struct ibv_qp* qp;
    struct rdma_route route;
    enum rdma_port_space ps;
    uint8_t port_num;
    struct rdma_cm_event* event;
    struct ibv_comp_channel* send_cq_channel;
    struct ibv_cq* send_cq;
    struct ibv_comp_channel* recv_cq_channel;
    struct ibv_cq* recv_cq;
    struct ibv_srq* srq;
    struct ibv_pd* pd;
    enum ibv_qp_type qp_type;
};

int rdma_create_id(struct rdma_event_channel* channel, struct rdma_cm_id** id, void* context, enum rdma_port_space ps);
int rdma_destroy_id(struct rdma_cm_id* id);
int rdma_migrate_id(struct rdma_cm_id* id, struct rdma_event_channel* channel);
int rdma_set_option(struct rdma_cm_id* id, int level, int optname, void* optval, size_t optlen);
int rdma_create_ep(struct rdma_cm_id** id, struct rdma_addrinfo* res, struct ibv_pd* pd, struct ibv_qp_init_attr* qp_init_attr);
void rdma_destroy_ep(struct rdma_cm_id* id);

int rdma_bind_addr(struct rdma_cm_id* id, struct sockaddr* addr);
int rdma_resolve_addr(struct rdma_cm_id* id, struct sockaddr* src_addr, struct sockaddr* dst_addr, int timeout_ms);
int rdma_resolve_route(struct rdma_cm_id* id, int timeout_ms);
__be16 rdma_get_src_port(struct rdma_cm_id* id);
__be16 rdma_get_dst_port(struct rdma_cm_id* id);
static inline struct sockaddr* rdma_get_local_addr(struct rdma_cm_id* id) { return &id->route.addr.src_addr; }
static inline struct sockaddr* rdma_get_peer_addr(struct rdma_cm_id* id) { return &id->route.addr.dst_addr; }

int rdma_create_qp(struct rdma_cm_id* id, struct ibv_pd* pd, struct ibv_qp_init_attr* qp_init_attr);
int rdma_create_qp_ex(struct rdma_cm_id* id, struct ibv_qp_init_attr_ex* qp_init_attr);
void rdma_destroy_qp(struct rdma_cm_id* id);

int rdma_connect(struct rdma_cm_id* id, struct rdma_conn_param* conn_param);
int rdma_listen(struct rdma_cm_id* id, int backlog);
int rdma_get_request(struct rdma_cm_id* listen, struct rdma_cm_id** id);
int rdma_accept(struct rdma_cm_id* id, struct rdma_conn_param* conn_param);
int rdma_reject(struct rdma_cm_id* id, const void* private_data, uint8_t private_data_len);
int rdma_notify(struct rdma_cm_id* id, enum ibv_event_type event);
int rdma_disconnect(struct rdma_cm_id* id);
int rdma_join_multicast(struct rdma_cm_id* id, struct sockaddr* addr, void* context);
int rdma_leave_multicast(struct rdma_cm_id* id, struct sockaddr* addr);

struct ibv_context** rdma_get_devices(int* num_devices);
void rdma_free_devices(struct ibv_context** list);

#ifdef __cplusplus
}
#endif

#endif
