// SPDX-License-Identifier: MIT
#include "sender.hpp"

#include "source_file.hpp"

#include <algorithm>
#include <stdexcept>
#include <vector>

namespace rcopy {
namespace {

/// Fills a server's ring. The memory here has the same form: slot for slot.
class filler {
public:
    filler(async::any_loop loop, connection& server, source_file const& file, checksum& sum, ring const& there)
        : loop_(loop), server_(server), file_(file), sum_(sum), there_(there), slots_(there.slots), offset_(there.from),
          written_(there.from),
          memory_(server.id().pd(), std::size_t{there.slots} * there.slot_size, rdma::access::none) {}

    /// Sends all that is left of the file, and waits until all of it is written. @throws as connection
    async::task<> run(progress& shown) {
        while (offset_ != file_.size()) {
            co_await room();
            co_await fill();
            shown.advance(written_);
            co_await pause(loop_); // or nobody would see a signal: a fast server has always room
        }
        while (written_ != file_.size()) {
            take(co_await server_.receive<credit>());
            shown.advance(written_);
        }
    }

private:
    struct slot {
        std::uint64_t end = 0;    // in the file, of what is in it
        std::uint64_t number = 0; // of the message that told so
    };

    /// Waits until the next slot is free, both there, where it is written to the disk, and here, where the device may
    /// still need it.
    async::task<> room() {
        if (next_ < slots_.size())
            co_return; // it has never been used
        slot const& oldest = slots_[next_ % slots_.size()];
        while (written_ < oldest.end)
            take(co_await server_.receive<credit>());
        co_await server_.until_sent(oldest.number);
    }

    async::task<> fill() {
        auto const at = static_cast<std::uint32_t>(next_++ % slots_.size());
        auto const length =
            static_cast<std::uint32_t>(std::min<std::uint64_t>(there_.slot_size, file_.size() - offset_));
        std::size_t const place = std::size_t{at} * there_.slot_size;
        std::span<std::byte> const bytes = memory_.bytes().subspan(place, length);
        file_.read(offset_, bytes);
        sum_.add(bytes);
        slots_[at].number = co_await server_.write(memory_.sge(place, length), {there_.address + place, there_.rkey},
                                                   chunk{.offset = offset_, .length = length, .slot = at});
        offset_ += length;
        slots_[at].end = offset_;
    }

    void take(credit const& given) {
        if (given.written <= written_ || given.written > offset_)
            throw refused(reason::nonsense, "the server says that it has written what it did not get");
        written_ = given.written;
    }

    async::any_loop loop_;
    connection& server_;
    source_file const& file_;
    checksum& sum_;
    ring there_;
    std::vector<slot> slots_;
    std::uint64_t next_ = 0; // chunks, so far
    std::uint64_t offset_;   // of the next chunk, in the file
    std::uint64_t written_;  // by the server, of the file
    rdma::registered_buffer memory_;
};

/// Compares the part that the server has with the beginning of the file, step by step, until it tells where to go on.
async::task<ring> compare(async::any_loop loop, connection& server, source_file const& file, checksum& sum) {
    std::vector<std::byte> bytes(piece);
    for (std::uint64_t compared = 0;;) {
        message const said = co_await server.receive();
        if (have const* const part = std::get_if<have>(&said)) {
            if (part->bytes <= compared || part->bytes > file.size())
                throw refused(reason::nonsense, "the server has a part that the file does not have");
            while (compared != part->bytes) {
                std::span const some = std::span(bytes).first(std::min<std::uint64_t>(piece, part->bytes - compared));
                file.read(compared, some);
                sum.add(some);
                compared += some.size();
                co_await pause(loop);
            }
            if (sum.value() != part->checksum)
                throw refused(reason::changed, "the part that is there is not the beginning of this file");
            co_await server.send(same{});
            continue;
        }
        ring const there = connection::expect<ring>(said);
        if (there.from != compared || there.slots == 0 || there.slots > max_slots || there.slot_size == 0 ||
            there.slot_size > max_slot_size)
            throw refused(reason::nonsense, "the server gives memory that cannot be");
        co_return there;
    }
}

/// Speaks with the server, from the first message to the last.
async::task<> converse(async::any_loop loop, connection& server, source_file const& file, bool restart,
                       progress& shown) {
    offer const wanted{.file = file.state(), .restart = restart, .name = short_text(file.name())};
    co_await server.send(wanted);
    checksum sum;
    ring const there = co_await compare(loop, server, file, sum);
    shown.begin(printable(file.name()), there.from, file.size());
    filler filling(loop, server, file, sum, there);
    co_await filling.run(shown);
    file.check_unchanged();
    co_await server.send(finished{sum.value()});
    co_await server.receive<done>();
}

} // namespace

async::task<> send_file(async::event_channel const& channel, send_options wanted, progress& shown) {
    source_file const file(wanted.file);
    mailbox letters;
    rdma::connect_options how;
    how.stop = wanted.within.stop;
    how.qp = mailbox::qp;
    how.interrupt_signal = wanted.interrupt_signal;
    auto const prepare = [&letters](rdma::cm_id const& id, std::error_code& ec) { letters.open(id, ec); };
    async::cm_id id = co_await async::connect(channel, wanted.server, how, prepare);
    connection server(channel.loop(), std::move(id), std::move(letters), wanted.within);
    co_await converse(channel.loop(), server, file, wanted.restart, shown);
    co_await server.close();
}

} // namespace rcopy
