// SPDX-License-Identifier: MIT
#include "receiver.hpp"

#include <algorithm>
#include <exception>
#include <vector>

namespace rcopy {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t step = 64 * std::uint64_t{piece}; // after so many both ends compare

/// Does something at the end, however that comes.
template <class Action>
class at_end {
public:
    explicit at_end(Action action) : action_(std::move(action)) {}
    at_end(at_end const&) = delete;
    at_end& operator=(at_end const&) = delete;
    ~at_end() { action_(); }

private:
    Action action_;
};

} // namespace

receiver::receiver(async::event_channel const& channel, serve_options wanted)
    : channel_(channel), options_(std::move(wanted)), directory_(options_.directory),
      listener_(channel, options_.local) {}

async::task<> receiver::run(async::tasks& sessions) {
    for (std::error_code ec;;) {
        async::limits const limit(options_.within.stop);
        async::request request = co_await listener_.next(limit, ec);
        if (ec == std::errc::operation_canceled)
            co_return;
        if (ec)
            throw rdma::error(ec, "rdma_get_cm_event");
        if (clients_ == options_.clients)
            options_.tell(to_string(request.peer_addr()) + ": rejected, " + std::to_string(clients_) +
                          " clients are served"); // and so it is, with the request
        else
            sessions.spawn(session(request.take_id()));
    }
}

/// One client, from its request to its end. Whatever it does, nothing escapes from here.
async::task<> receiver::session(rdma::cm_id undecided) {
    ++clients_;
    at_end const leave([this] { --clients_; });
    std::string const who = to_string(undecided.peer_addr());
    std::string name = "a file";
    try {
        mailbox letters;
        rdma::accept_options how;
        how.stop = options_.within.stop;
        how.qp = mailbox::qp;
        auto const prepare = [&letters](rdma::cm_id const& id, std::error_code& ec) { letters.open(id, ec); };
        async::cm_id id = co_await async::accept(channel_, std::move(undecided), how, prepare);
        connection sender(channel_.loop(), std::move(id), std::move(letters), options_.within);

        std::optional<refusal> no; // what is caught cannot be told at once: a handler cannot wait
        try {
            co_await take_file(sender, name);
        } catch (refused const& e) {
            no = refusal{e.why, short_text(e.what())};
        } catch (std::system_error const& e) {
            no = refusal{reason::failed, short_text(e.what())};
        }
        options_.tell(who + ": " + name + ": " + (no ? no->text.string() : "complete"));
        if (no)
            co_await sender.send(*no);
        else
            co_await sender.send(done{});
        co_await sender.until_closed();
    } catch (std::exception const& e) {
        options_.tell(who + ": " + name + ": " + e.what());
    }
}

/// Up to the point where the file has its name.
async::task<> receiver::take_file(connection& sender, std::string& name) {
    offer const wanted = co_await sender.receive<offer>();
    std::string const given = wanted.name.string();
    name = printable(given);
    check(wanted);
    co_await reserve(given);
    at_end const free([this, &given] { names_.erase(given); });

    partial_file part(directory_, given, wanted.file, wanted.restart);
    checksum sum;
    co_await compare(sender, part, sum);
    co_await fill(sender, part, sum, wanted);
    auto const end = co_await sender.receive<finished>();
    if (end.checksum != sum.value()) {
        part.discard();
        throw refused(reason::damaged, "what arrived is not what was sent; begin again");
    }
    part.publish();
}

void receiver::check(offer const& wanted) const {
    if (wanted.hello != offer::greeting)
        throw refused(reason::nonsense, "the sender speaks another version of the protocol");
    if (char const* const wrong = what_is_wrong_with(wanted.name.string()))
        throw refused(reason::not_wanted, std::string("the name cannot be taken: ") + wrong);
    if (wanted.file.size > options_.largest || wanted.file.size > INT64_MAX)
        throw refused(reason::not_wanted,
                      "the file is too large: at most " + std::to_string(options_.largest) + " bytes are taken");
    if (wanted.file.nanoseconds > 999'999'999)
        throw refused(reason::nonsense, "the file's time is no time");
}

/// Waits a while until nobody else sends a file of this name: a sender that was killed and begins again may be sooner
/// than the news of its end.
async::task<> receiver::reserve(std::string const& name) {
    for (int turns = 250; !names_.insert(name).second; --turns) {
        if (options_.within.stop.stop_requested())
            throw stopped();
        if (turns == 0)
            throw refused(reason::not_wanted, "somebody else is sending a file of this name");
        co_await pause(channel_.loop(), 20ms);
    }
}

/// Tells the sender what is there, step by step, so that both know that it is the beginning of its file: what is there
/// is read again, since it may have suffered.
async::task<> receiver::compare(connection& sender, partial_file& part, checksum& sum) const {
    std::vector<std::byte> bytes(piece);
    for (std::uint64_t offset = 0; offset != part.size();) {
        std::uint64_t const end = std::min(offset + step, part.size());
        while (offset != end) {
            std::span const some = std::span(bytes).first(std::min<std::uint64_t>(piece, end - offset));
            part.read(offset, some);
            sum.add(some);
            offset += some.size();
            co_await pause(channel_.loop());
        }
        co_await sender.send(have{end, sum.value()});
        co_await sender.receive<same>();
    }
}

/// Appends what the sender writes into the ring, chunk by chunk.
async::task<> receiver::fill(connection& sender, partial_file& part, checksum& sum, offer const& wanted) const {
    std::size_t const slot_size = options_.slot_size;
    rdma::registered_buffer const memory(sender.id().pd(), options_.slots * slot_size,
                                         rdma::access::local_write | rdma::access::remote_write);
    rdma::remote_memory const to = memory.remote();
    co_await sender.send(ring{to.address, to.rkey, options_.slots, options_.slot_size, part.size()});
    for (std::uint32_t slot = 0; !part.is_whole(); slot = (slot + 1) % options_.slots) {
        auto const told = co_await sender.receive<chunk>();
        if (told.slot != slot || told.offset != part.size() || told.length == 0 || told.length > slot_size ||
            told.length > wanted.file.size - part.size())
            throw refused(reason::nonsense, "the sender has written where or what it should not");
        std::span<std::byte const> const bytes = memory.bytes().subspan(slot * slot_size, told.length);
        sum.add(bytes);
        part.append(bytes);
        co_await sender.send(credit{part.size()});
        co_await pause(channel_.loop()); // a sender that is fast would leave the others no turn
    }
}

} // namespace rcopy
