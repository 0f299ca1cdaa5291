// SPDX-License-Identifier: MIT
// The cases of asio_cases.hpp on the standalone Asio.

#include "support.hpp"

#include <rdmacpp/asio.hpp>

#include <asio/bind_cancellation_slot.hpp>
#include <asio/cancellation_signal.hpp>
#include <asio/co_spawn.hpp>
#include <asio/detached.hpp>
#include <asio/executor_work_guard.hpp>
#include <asio/io_context.hpp>
#include <asio/strand.hpp>
#include <asio/use_awaitable.hpp>
#include <asio/use_future.hpp>

#define RDMACPP_TEST_NET "asio: "
#define RDMACPP_TEST_SLOTS 1
#define RDMACPP_TEST_ALL 1

namespace adapter = rdma::asio;

namespace {

using error_code = asio::error_code;
std::error_code standard(error_code ec) {
    return ec == asio::error::operation_aborted ? std::error_code(ECANCELED, std::system_category()) : ec;
}
using asio_error = std::system_error;

} // namespace

#include "asio_cases.hpp"

TEST_CASE("asio: only a code that Asio has a category of its own for is another one") {
    using names = rdma::detail::asio_names;
    CHECK(names::code({ECANCELED, std::system_category()}) == asio::error::operation_aborted);
    for (std::error_code const ec :
         {std::error_code(ETIMEDOUT, std::system_category()), std::error_code(ECANCELED, std::generic_category()),
          std::error_code(rdma::errc::empty_handle), std::error_code()})
        CHECK(names::code(ec) == ec);
}
