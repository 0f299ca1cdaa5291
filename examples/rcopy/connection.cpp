// SPDX-License-Identifier: MIT
#include "connection.hpp"

#include <cstring>
#include <utility>

namespace rcopy {

using namespace std::chrono_literals;

void mailbox::open(rdma::cm_id const& id, std::error_code& ec) noexcept {
    memory_ = rdma::registered_buffer(id.pd(), 2 * places * max_message, rdma::access::local_write, ec);
    for (std::uint64_t place = 0; !ec && place != places; ++place)
        ec = std::make_error_code(id.qp().post_recv(rdma::recv_wr(in(place)).id(place), std::nothrow));
}

ibv_sge mailbox::in(std::uint64_t place) const { return memory_.sge(place * max_message, max_message); }
ibv_sge mailbox::out(std::uint64_t place, std::size_t size) const {
    return memory_.sge((places + place) * max_message, size);
}

std::optional<message> mailbox::take(async::cm_id const& id, std::uint64_t place, std::size_t size) {
    std::span<std::byte const> const arrived = memory_.bytes().subspan(place * max_message, size);
    std::optional<message> said = letter_reader::read(arrived);
    id->qp().post_recv(rdma::recv_wr(in(place)).id(place));
    return said;
}

void mailbox::post(async::cm_id const& id, std::uint64_t place, letter const& text, rdma::send_wr const* write) {
    std::span<std::byte const> const bytes = text.bytes();
    std::memcpy(memory_.bytes().subspan((places + place) * max_message).data(), bytes.data(), bytes.size());
    rdma::send_wr const notice = rdma::send_wr::send(out(place, bytes.size())).signaled();
    if (!write) {
        id->qp().post_send(notice);
        return;
    }
    rdma::send_wr both[] = {*write, notice};
    id->qp().post_send(both);
}

connection::connection(async::any_loop loop, async::cm_id id, mailbox letters, limits within)
    : letters_(std::move(letters)), within_(std::move(within)), id_(std::move(id)), arrived_(loop, id_->recv_cq()),
      left_(loop, id_->send_cq()), ending_(end_with_peer(id_)) {
    ending_.start();
}

async::task<> connection::end_with_peer(async::cm_id const& id) {
    std::error_code ec;
    while (!ec && !id.is_over())
        (void)co_await id.next(ec);
    if (!ec)
        id->disconnect(ec); // what was posted completes now, in error
}

void connection::check(std::error_code ec) const {
    if (ec == std::errc::operation_canceled)
        throw stopped();
    if (ec == std::errc::timed_out)
        throw lost("the peer has said nothing for " + std::to_string(within_.patience.count()) + " s");
    if (ec)
        throw std::system_error(ec, "waiting for the peer");
}

async::task<message> connection::receive() {
    std::error_code ec;
    async::limits const limit(within_.patience, within_.stop);
    rdma::work_completion const came = co_await arrived_.next(limit, ec);
    check(ec);
    if (!came)
        throw lost("the connection is lost");
    std::optional<message> said = letters_.take(id_, came.wr_id(), came.success().byte_len());
    if (!said)
        throw refused(reason::nonsense, "the peer sent something that is no message");
    if (refusal const* const no = std::get_if<refusal>(&*said))
        throw refused(no->why, printable(no->text.string()));
    co_return *said;
}

async::task<std::uint64_t> connection::send(message said) { return post(letter(std::move(said)), std::nullopt); }

async::task<std::uint64_t> connection::write(ibv_sge from, rdma::remote_memory to, message said) {
    return post(letter(std::move(said)), rdma::send_wr::write(from, to));
}

async::task<std::uint64_t> connection::post(letter text, std::optional<rdma::send_wr> write) {
    if (posted_ >= mailbox::places)
        co_await until_sent(posted_ - mailbox::places);
    letters_.post(id_, posted_ % mailbox::places, text, write ? &*write : nullptr);
    co_return posted_++;
}

async::task<> connection::until_sent(std::uint64_t number) {
    async::limits const limit(within_.patience, within_.stop);
    while (sent_ <= number) {
        std::error_code ec;
        rdma::work_completion const left = co_await left_.next(limit, ec);
        check(ec);
        if (!left)
            throw lost("the connection is lost: " + to_string(left.status()));
        ++sent_;
    }
}

async::task<> connection::close() {
    std::error_code ec;
    co_await id_.disconnect(5s, ec);
}

async::task<> connection::until_closed() {
    std::error_code ec;
    rdma::work_completion came = {};
    async::limits const limit(5s, within_.stop);
    do
        came = co_await arrived_.next(limit, ec);
    while (!ec && came);
}

} // namespace rcopy
