// SPDX-License-Identifier: MIT
// The cases of asio_cases.hpp on Boost's Asio, and what is special there: its error codes.

#include "support.hpp"

#include <rdmacpp/boost_asio.hpp>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/use_future.hpp>
#if BOOST_ASIO_VERSION >= 102201
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#endif

#define RDMACPP_TEST_NET "boost asio: "
#define RDMACPP_TEST_SLOTS (BOOST_ASIO_VERSION >= 102201)
#define RDMACPP_TEST_ALL 0

namespace adapter = rdma::boost_asio;
namespace asio = boost::asio;

namespace {

using error_code = boost::system::error_code;
std::error_code standard(error_code const& ec) { return adapter::to_std(ec); }
using asio_error = boost::system::system_error;

} // namespace

#include "asio_cases.hpp"

TEST_CASE("boost asio: each kind of code is Boost's, and back") {
    namespace generic = boost::system::errc;
    error_code const canceled = adapter::to_boost({ECANCELED, std::system_category()});
    CHECK(canceled == asio::error::operation_aborted);
    CHECK(canceled.category() == boost::system::system_category());
    CHECK(adapter::to_boost({EBUSY, std::generic_category()}).category() == boost::system::generic_category());
    CHECK_FALSE(adapter::to_boost({}));

    error_code const empty = adapter::to_boost(rdma::errc::empty_handle);
    CHECK(std::string(empty.category().name()) == "rdma");
    CHECK(empty.message() == std::error_code(rdma::errc::empty_handle).message());
    CHECK(empty == generic::make_error_condition(generic::invalid_argument));
    CHECK(empty == adapter::to_boost(rdma::errc::empty_handle));
    CHECK(empty != adapter::to_boost(rdma::errc::null_handle));
    error_code const unspecified = adapter::to_boost(rdma::errc::unspecified); // has no generic condition
    CHECK(unspecified.default_error_condition().category() == unspecified.category());

    error_code const rejected = adapter::to_boost(rdma::reject_reason::consumer_defined);
    CHECK(std::string(rejected.category().name()) == "rdma reject");
    CHECK(rejected == generic::make_error_condition(generic::connection_refused));
    CHECK(adapter::to_std(rejected) == rdma::condition::refused);
    for (std::error_code const ec :
         {std::error_code(rdma::errc::qp_exists), std::error_code(rdma::reject_reason::timeout),
          std::error_code(EPIPE, std::system_category()), std::error_code(EDOM, std::generic_category())})
        CHECK(adapter::to_std(adapter::to_boost(ec)) == ec);

    struct : std::error_category { // of a program: known by its conditions alone
        char const* name() const noexcept override { return "own"; }
        std::string message(int) const override { return "own"; }
        std::error_condition default_error_condition(int value) const noexcept override {
            return value == 1 ? std::make_error_condition(std::errc::bad_message) : std::error_condition(value, *this);
        }
    } const own;
    CHECK(adapter::to_boost({1, own}) == generic::make_error_condition(generic::bad_message));
    CHECK(adapter::to_std(adapter::to_boost({2, own})) == rdma::errc::unspecified);
}
