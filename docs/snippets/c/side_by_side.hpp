// SPDX-License-Identifier: MIT
#pragma once

#include <rdmacpp/rdmacpp.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <optional>

void serve(rdma::event_channel const& channel, int left);
rdma::cm_id connect(rdma::event_channel const& channel, rdma::address const& server);
rdma::work_completion wait(rdma::cq_ref cq);
std::optional<rdma::work_completion> wait_a_second(rdma::cq_ref cq);
