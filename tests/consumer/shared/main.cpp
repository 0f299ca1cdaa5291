// SPDX-License-Identifier: MIT
// What every consumer project builds: main VERSION fails unless the headers are of that version, both C libraries are
// there to call, and rdma::error tells what it should on a machine without RDMA. The second file makes sure that two
// units of one program may include the library.
#include <rdmacpp/rdmacpp.hpp>

#include <cstdio>
#include <string>
#include <string_view>

std::string channel_from_elsewhere();

int main(int argc, char** argv) try {
    std::string const version = std::to_string(RDMACPP_VERSION_MAJOR) + "." + std::to_string(RDMACPP_VERSION_MINOR) +
                                "." + std::to_string(RDMACPP_VERSION_PATCH);
    std::printf("rdmacpp %s\n", version.c_str());
    if (argc != 2 || version != argv[1]) {
        std::printf("expected version %s\n", argc > 1 ? argv[1] : "as the argument");
        return 1;
    }

    std::error_code none;
    rdma::device_list const devices = rdma::device_list::get(none);
    std::printf("%zu devices (%s)\n", devices.size(), none.message().c_str());
    for (rdma::device_ref const device : devices)
        std::printf("  %s\n", std::string(device.name()).c_str());

    std::string here = "a channel";
    try {
        rdma::event_channel const channel;
        if (!channel || channel.fd() < 0)
            here = "an empty channel";
    } catch (rdma::error const& e) {
        here = e.what();
        bool const no_rdma = e.code() == std::errc::no_such_device ||
                             e.code() == std::errc::no_such_file_or_directory ||
                             e.code() == std::errc::permission_denied;
        // The function of C, and what to do about it.
        if (!no_rdma || here.find("rdma_create_event_channel") != 0 || here.size() < 80) {
            std::printf("unexpected: %s (%s)\n", here.c_str(), e.code().message().c_str());
            return 1;
        }
    }
    std::printf("%s\n", here.c_str());
    if (std::string const there = channel_from_elsewhere(); there != here) {
        std::printf("the other unit has: %s\n", there.c_str());
        return 1;
    }
} catch (std::exception const& e) {
    std::printf("unexpected: %s\n", e.what());
    return 1;
}
