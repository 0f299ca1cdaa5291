// SPDX-License-Identifier: MIT
// A shared object that uses rdmacpp, with everything hidden but one function.
#include "shared.hpp"

#include <rdmacpp/rdmacpp.hpp>

#include <cerrno>
#include <exception>
#include <optional>
#include <utility>

#define TEXT_OF(name) #name
#define TEXT(name) TEXT_OF(name)

namespace {

int calls = 0;
void count(rdma::diagnostic const&) noexcept { ++calls; }

struct things {
    rdma::event_channel channel;
    rdma::cm_id id{channel, rdma::port_space::tcp};
    rdma::pd pd;

    things() {
        id.bind(rdma::address{"10.77.1.1", 0});
        pd = rdma::pd(id.verbs());
    }
};
std::optional<things> kept;

char const* caught(void (*thrower)()) {
    try {
        thrower();
    } catch (rdma::connect_error const& e) {
        return e.step() == rdma::connect_step::connect ? "connect_error" : "a damaged connect_error";
    } catch (rdma::error const& e) {
        return e.function() ? "error" : "a damaged error";
    } catch (std::system_error const& e) {
        return e.code() ? "system_error" : "a damaged system_error";
    } catch (...) {
        return "another";
    }
    return "nothing";
}

char const* open() noexcept {
    try {
        kept.emplace();
        return nullptr;
    } catch (std::exception const&) {
        return "a channel, an id and a PD cannot be made";
    }
}

/// A connection that ends before it has begun: resolving an address brings an event.
char const* use_channel(void* raw) noexcept {
    try {
        rdma::event_channel channel(rdma::adopt, static_cast<rdma_event_channel*>(raw));
        rdma::cm_id id{channel, rdma::port_space::tcp};
        id.resolve_addr(rdma::address{"10.77.1.2", 7471}, std::chrono::seconds(1));
        rdma::cm_event event = channel.get();
        if (event.type() != rdma::cm_event_type::addr_resolved || event.id() != id)
            return "the event is not that of the id";
        id = {}; // while its event is held
        if (channel.stats().ids_awaiting_ack != 1)
            return "the id does not wait for its event";
        return nullptr;
    } catch (std::exception const&) {
        return "an exception";
    }
}

template <class Owner, class... Arguments>
bool is_owned(Arguments... arguments) noexcept {
    std::error_code ec;
    Owner owner(rdma::adopt, arguments..., ec);
    bool const refused = ec == rdma::errc::already_owned;
    if (owner)
        (void)std::move(owner).release();
    return refused;
}

} // namespace

extern "C" [[gnu::visibility("default")]] shared::interface const* shared_interface();

shared::interface const* shared_interface() {
    static shared::interface const all{
        .version = TEXT(RDMACPP_ABI),
        .categories = {&rdma::error_category(), &rdma::reject_category(),
                       &make_error_condition(rdma::condition::refused).category(), &rdma::gai_category()},
        .is_refused = [](std::error_code code) noexcept { return code == rdma::condition::refused; },
        .is_empty_handle = [](std::error_code code) noexcept { return code == rdma::errc::empty_handle; },
        .refused = []() noexcept { return make_error_code(rdma::reject_reason::consumer_defined); },
        .empty_handle =
            []() noexcept {
                std::error_code ec;
                rdma::cm_id{}.listen(0, ec);
                return ec;
            },
        .throw_error = [] { rdma::cm_id{}.listen(); },
        .throw_connect_error =
            [] {
                throw rdma::connect_error(std::make_error_code(std::errc::connection_refused),
                                          rdma::connect_step::connect, "", true);
            },
        .caught = caught,
        .install_hook = []() noexcept { rdma::set_diagnostic_handler(count); },
        .hook_calls = []() noexcept { return calls; },
        .open = open,
        .channel = []() noexcept -> void* { return kept->channel.native_handle(); },
        .id = []() noexcept -> void* { return kept->id.native_handle(); },
        .pd = []() noexcept -> void* { return kept->pd.native_handle(); },
        .close = []() noexcept { kept.reset(); },
        .channel_is_owned =
            [](void* raw) noexcept { return is_owned<rdma::event_channel>(static_cast<rdma_event_channel*>(raw)); },
        .id_is_owned =
            [](void* channel, void* raw) noexcept {
                return is_owned<rdma::cm_id>(rdma::event_channel_ref(static_cast<rdma_event_channel*>(channel)),
                                             static_cast<rdma_cm_id*>(raw));
            },
        .pd_is_owned = [](void* raw) noexcept { return is_owned<rdma::pd>(static_cast<ibv_pd*>(raw)); },
        .release_channel = []() noexcept -> void* {
            std::error_code ec;
            rdma::event_channel channel(ec);
            return std::move(channel).release();
        },
        .use_channel = use_channel,
    };
    return &all;
}
