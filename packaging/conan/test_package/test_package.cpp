// SPDX-License-Identifier: MIT
// Needs no RDMA device: says which there are, and calls into both C libraries.
#include <rdmacpp/rdmacpp.hpp>

#include <cstdio>

int main() {
    std::error_code error;
    rdma::device_list const devices = rdma::device_list::get(error);
    std::printf("rdmacpp %d.%d.%d: %zu devices\n", RDMACPP_VERSION_MAJOR, RDMACPP_VERSION_MINOR, RDMACPP_VERSION_PATCH,
                devices.size());
    rdma::event_channel const channel(error);
    std::printf("event channel: %s\n", channel ? "open" : error.message().c_str());
}
