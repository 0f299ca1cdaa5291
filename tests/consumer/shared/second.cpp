// SPDX-License-Identifier: MIT
#include <rdmacpp/rdmacpp.hpp>

#include <string>

std::string channel_from_elsewhere();

std::string channel_from_elsewhere() {
    std::error_code error;
    rdma::event_channel const channel(error);
    if (!error)
        return channel ? "a channel" : "an empty channel";
    return rdma::error(error, "rdma_create_event_channel").what();
}
