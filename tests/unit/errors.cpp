// SPDX-License-Identifier: MIT
// Errors: codes, conditions, messages and hints, and the diagnostic hook. (Which call gives which error is A14 in
// field_bugs_errors.cpp.)
#include "support.hpp"

#include <atomic>
#include <set>
#include <string>
#include <thread>
#include <type_traits>

#include <unistd.h>

using namespace unit;

static_assert(std::is_error_code_enum_v<rdma::errc> && std::is_error_code_enum_v<rdma::reject_reason>);
static_assert(std::is_error_condition_enum_v<rdma::condition> && !std::is_error_code_enum_v<rdma::condition>);
static_assert(std::is_base_of_v<std::system_error, rdma::error> && std::is_nothrow_copy_constructible_v<rdma::error>);

TEST_CASE("every errc has a message of its own, and the std::errc that it promises", "[errors]") {
    struct promise {
        rdma::errc code;
        std::errc equals;
    };
    using enum rdma::errc;
    std::array const promises{
        promise{empty_handle, std::errc::invalid_argument},
        promise{null_handle, std::errc::invalid_argument},
        promise{already_owned, std::errc::device_or_resource_busy},
        promise{wrong_channel, std::errc::invalid_argument},
        promise{port_out_of_range, std::errc::invalid_argument},
        promise{bad_address, std::errc::invalid_argument},
        promise{family_mismatch, std::errc::invalid_argument},
        promise{private_data_too_long, std::errc::message_size},
        promise{private_data_iwarp, std::errc::message_size},
        promise{retry_count_out_of_range, std::errc::invalid_argument},
        promise{not_bound, std::errc::no_such_device},
        promise{not_a_request, std::errc::operation_not_permitted},
        promise{no_id_to_take, std::errc::operation_not_permitted},
        promise{qp_exists, std::errc::file_exists},
        promise{poll_failed, std::errc::io_error},
        promise{signal_unhandled, std::errc::invalid_argument},
    };
    std::set<std::string> messages;
    for (promise const& each : promises) {
        std::error_code const code = each.code;
        CAPTURE(code.message());
        CHECK(code == each.equals);
        CHECK(code.category() == rdma::error_category());
        CHECK(messages.insert(code.message()).second);
        CHECK(code != std::error_code(code.value(), std::system_category())); // an errno of that number is another
    }
    std::error_code const vague = unspecified;
    CHECK(messages.insert(vague.message()).second);
    CHECK(vague != std::errc::operation_not_permitted);
    CHECK(std::string(rdma::error_category().name()) == "rdma");
    CHECK(std::error_code(static_cast<rdma::errc>(999)).message() == "unknown rdma error");
}

TEST_CASE("a rejection is refused, on every transport", "[errors]") {
    std::error_code const consumer = rdma::reject_reason::consumer_defined,
                          nobody = rdma::reject_reason::invalid_service_id, late = rdma::reject_reason::timeout;
    CHECK(consumer == rdma::condition::refused);
    CHECK(consumer == std::errc::connection_refused);
    CHECK(nobody == rdma::condition::refused);
    CHECK(std::error_code(ECONNREFUSED, std::system_category()) == rdma::condition::refused); // iWARP
    CHECK(std::error_code(ECONNRESET, std::system_category()) == rdma::condition::refused);
    CHECK(late == std::errc::timed_out);
    CHECK(late != rdma::condition::refused);
    CHECK(std::error_code(ETIMEDOUT, std::system_category()) != rdma::condition::refused);
    CHECK(std::error_code() != rdma::condition::refused);
    CHECK_THAT(nobody.message(), rdmacpp_test::contains("nobody listens"));
    CHECK_THAT(std::error_code(static_cast<rdma::reject_reason>(77)).message(), rdmacpp_test::contains("77"));
    CHECK(std::string(rdma::reject_category().name()) == "rdma reject");
    CHECK(rdma::make_error_condition(rdma::condition::refused).message() == "refused by the peer");
}

TEST_CASE("an error names the function, its arguments, the reason and a way out", "[errors]") {
    auto const text = [](int code, char const* function) {
        rdma::error const e(std::error_code(code, std::system_category()), function, "these");
        CHECK(e.function() == std::string(function));
        CHECK(e.code().value() == code);
        CHECK_THAT(std::string(e.what()), Catch::Matchers::StartsWith(function + std::string("(these): ") + e.code().message()));
        return std::string(e.what());
    };
    CHECK_THAT(text(ENODEV, "rdma_resolve_addr"),
               rdmacpp_test::contains("rdma link") && rdmacpp_test::contains("softrdma"));
    CHECK_THAT(text(ENOENT, "rdma_create_event_channel"), rdmacpp_test::contains("modprobe rdma_ucm"));
    CHECK_THAT(text(ENOENT, "rdma_create_id"), rdmacpp_test::contains("modprobe rdma_ucm"));
    CHECK_THAT(text(ENOENT, "rdma_bind_addr"), !rdmacpp_test::contains("modprobe"));
    CHECK_THAT(text(EACCES, "rdma_listen"), rdmacpp_test::contains("/dev/infiniband/rdma_cm"));
    CHECK_THAT(text(EPERM, "rdma_create_id"), rdmacpp_test::contains("changed its user"));
    CHECK_THAT(text(EADDRNOTAVAIL, "rdma_bind_addr"), rdmacpp_test::contains("no RDMA device has this address"));
    CHECK_THAT(text(EINVAL, "rdma_connect"), rdmacpp_test::contains("56 bytes"));
    CHECK_THAT(text(EINVAL, "ibv_create_cq"), !rdmacpp_test::contains("56 bytes"));
    CHECK(text(EIO, "rdma_listen") == "rdma_listen(these): " + std::error_code(EIO, std::system_category()).message());
    // Hints are for errnos: an errc of the same number is another matter.
    CHECK_THAT(std::string(rdma::error(static_cast<rdma::errc>(ENOENT), "rdma_create_id").what()),
               !rdmacpp_test::contains("modprobe"));
    rdma::error const original(rdma::errc::not_bound, "rdma_connect", "x");
    rdma::error const copy = original;
    CHECK(std::string(copy.what()) == original.what());
    try {
        throw original;
    } catch (std::system_error const& e) {
        CHECK(std::string(e.what()) == original.what());
    }
}

TEST_CASE("an errno of zero and a negative one still make an error", "[errors]") {
    CHECK(rdma::detail::system_error_code(0) == rdma::errc::unspecified);
    CHECK(rdma::detail::system_error_code(-ENOMEM) == std::errc::not_enough_memory);
    CHECK_FALSE(rdma::detail::check_returned(0));
    CHECK(rdma::detail::check_returned(EBUSY) == std::errc::device_or_resource_busy);
}

TEST_CASE("changed credentials are explained, and a destroy is told once", "[errors]") {
    world w;
    w.messy();
    {
        rdma::event_channel channel;
        rdma::cm_id id = make_bound(channel);
        fake::set_credentials_changed(true);
        CHECK(thrown([&] { id.listen(); }, "open the channel afterwards") == std::errc::permission_denied);
        CHECK(thrown([&] { (void)channel.get(); }, "changed its user") == std::errc::permission_denied);
    }
    REQUIRE(w.told().size() == 1);
    CHECK(w.told()[0].function == std::string("rdma_destroy_id"));
    CHECK(w.told()[0].error == std::errc::permission_denied);
}

// ---- The hook -------------------------------------------------------------------------------------------------------

namespace {

std::atomic<int> calls_of_one{0}, calls_of_two{0};
void hook_one(rdma::diagnostic const&) noexcept { ++calls_of_one; }
void hook_two(rdma::diagnostic const&) noexcept { ++calls_of_two; }

/// What is written to stderr meanwhile.
template <class F>
std::string written(F&& f) {
    int ends[2];
    REQUIRE(::pipe(ends) == 0);
    int const kept = ::dup(STDERR_FILENO);
    std::fflush(stderr);
    ::dup2(ends[1], STDERR_FILENO);
    ::close(ends[1]);
    f();
    std::fflush(stderr);
    ::dup2(kept, STDERR_FILENO); // the pipe's last writer: a read ends
    ::close(kept);
    std::string text;
    char part[256];
    for (ssize_t n; (n = ::read(ends[0], part, sizeof part)) > 0;)
        text.append(part, static_cast<std::size_t>(n));
    ::close(ends[0]);
    return text;
}

} // namespace

TEST_CASE("the hook is exchanged, and null restores the default", "[errors][hook]") {
    world w;
    rdma::event_channel channel;
    rdma::cm_id listener = make_listener(channel);
    auto const before = rdma::set_diagnostic_handler(&hook_one);
    calls_of_one = calls_of_two = 0;
    make_request(channel, listener).ack();
    CHECK(calls_of_one == 1);
    CHECK(rdma::set_diagnostic_handler(&hook_two) == &hook_one);
    make_request(channel, listener).ack();
    CHECK(calls_of_one == 1);
    CHECK(calls_of_two == 1);
    CHECK(rdma::set_diagnostic_handler(nullptr) == &hook_two);
    CHECK(rdma::set_diagnostic_handler(before) == &rdma::print_failed_destroys);
}

TEST_CASE("the default hook prints failed destroys alone, one line each", "[errors][hook]") {
    world w;
    w.messy();
    auto const before = rdma::set_diagnostic_handler(nullptr);
    rdma::event_channel channel;
    rdma::cm_id listener = make_listener(channel);
    CHECK(written([&] { make_request(channel, listener).ack(); }) == "");
    rdma::pd pd{rdma::context_ref(fake::rxe_context())};
    std::string const text = written([&] {
        fake::fail("ibv_dealloc_pd", 1, EBUSY);
        pd = rdma::pd();
    });
    CHECK_THAT(text, Catch::Matchers::StartsWith("rdmacpp: ibv_dealloc_pd(0x"));
    CHECK_THAT(text, rdmacpp_test::contains(std::to_string(EBUSY)));
    CHECK(std::count(text.begin(), text.end(), '\n') == 1);
    rdma::set_diagnostic_handler(before);
}

namespace {

/// The hook may use the library: no lock is held while it runs.
rdma::event_channel* channel_of_hook = nullptr;
void hook_that_calls(rdma::diagnostic const&) noexcept {
    std::error_code ec;
    (void)channel_of_hook->stats();
    rdma::cm_id id(*channel_of_hook, rdma::port_space::tcp, ec);
    (void)channel_of_hook->try_get(ec);
    ++calls_of_one;
}

} // namespace

TEST_CASE("the hook runs with no lock held", "[errors][hook]") {
    world w;
    w.messy();
    rdma::event_channel channel;
    rdma::cm_id listener = make_listener(channel);
    rdma::cm_event held = make_request(channel, listener);
    channel_of_hook = &channel;
    auto const before = rdma::set_diagnostic_handler(&hook_that_calls);
    calls_of_one = 0;
    make_request(channel, listener).ack(); // one that nobody takes
    CHECK(calls_of_one == 1);
    fake::push_request(listener.native_handle());
    listener = rdma::cm_id();
    CHECK_FALSE(channel.try_get()); // one that is swallowed
    CHECK(calls_of_one == 2);
    fake::fail("rdma_destroy_id", 1, EIO); // and a destroy that fails
    held.ack();
    CHECK(calls_of_one >= 3);
    rdma::set_diagnostic_handler(before);
}
