// SPDX-License-Identifier: MIT
// rcopy's two ends on one loop, against the fake librdmacm and libibverbs: whatever fails and whenever either is gone,
// no file stands under its name that is not whole and right, and the next run makes it so.
#include "rcopy/receiver.hpp"
#include "rcopy/sender.hpp"
#include "rcopy/source_file.hpp"

#include <rdmacpp/epoll.hpp>

#include <catch.hpp>
#include <fake/fake.hpp>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

using namespace std::chrono_literals;
using rdmacpp_test::contains;
namespace async = rdma::async;
namespace files = std::filesystem;

namespace {

constexpr char const* device_addresses[] = {"10.77.1.1", "10.77.2.1"};
constexpr std::size_t slot_size = 4096;

/// A directory of this case alone, with a file to send, and one to receive into. Nothing may be left over in the end.
struct world {
    files::path home;
    std::vector<char> content;

    explicit world(std::size_t size) {
        fake::reset();
        std::string name = (files::temp_directory_path() / "rcopy.XXXXXX").string();
        REQUIRE(::mkdtemp(name.data()));
        home = name;
        files::create_directory(home / "in");
        std::mt19937 random(static_cast<unsigned>(size));
        for (std::size_t i = 0; i != size; ++i)
            content.push_back(static_cast<char>(random()));
        write();
    }
    world(world const&) = delete;
    world& operator=(world const&) = delete;
    ~world() {
        CHECK(fake::leaks() == "");
        CHECK(fake::misuse() == std::vector<std::string>{});
        CHECK(fake::would_hang() == std::vector<std::string>{});
        files::remove_all(home);
        fake::reset();
    }

    std::string source() const { return home / "file"; }
    files::path arrived() const { return home / "in" / "file"; }
    files::path part() const { return home / "in" / ".file.rcopy"; }
    std::size_t part_size() const { return files::exists(part()) ? files::file_size(part()) : 0; }
    void write() const { std::ofstream(source(), std::ios::binary).write(content.data(), std::ssize(content)); }
    void forget() const {
        files::remove_all(home / "in");
        files::create_directory(home / "in");
    }

    bool is_right() const {
        std::ifstream in(arrived(), std::ios::binary);
        return std::vector<char>(std::istreambuf_iterator<char>(in), {}) == content;
    }
    /// What must be so at any moment: nothing half-written has the name, and nothing lies beside the directory.
    bool is_sound() const {
        return (!files::exists(arrived()) || is_right()) &&
               std::distance(files::directory_iterator(home), files::directory_iterator()) == 2;
    }
    /// It stands there, right, and alone.
    bool is_done() const {
        return files::exists(arrived()) && is_right() &&
               std::distance(files::directory_iterator(home / "in"), files::directory_iterator()) == 1;
    }
};

/// Both ends, or what is left of them.
struct ends {
    rdma::epoll_loop loop;
    std::stop_source stop;
    async::event_channel at_receiver{loop}, at_sender{loop};
    std::vector<std::string> told;
    std::unique_ptr<rcopy::receiver> receiver;
    std::unique_ptr<async::tasks> sessions = std::make_unique<async::tasks>();
    async::task<> serving;
    rcopy::progress shown{false};

    explicit ends(world const& here, char const* host) {
        rcopy::serve_options wanted;
        wanted.directory = here.home / "in";
        wanted.local = rdma::address(host, 7531);
        wanted.largest = std::uint64_t{1} << 20;
        wanted.clients = 3;
        wanted.slots = 4;
        wanted.slot_size = slot_size;
        wanted.within = {5s, stop.get_token()}; // a receiver that waits in vain is not waited for
        wanted.tell = [this](std::string const& line) { told.push_back(line); };
        receiver = std::make_unique<rcopy::receiver>(at_receiver, wanted);
        serving = receiver->run(*sessions);
        serving.start();
    }
    ends(ends const&) = delete;
    ends& operator=(ends const&) = delete;
    ~ends() { kill_receiver(); }

    async::task<> sending(world const& here, bool restart = false) {
        rcopy::send_options wanted;
        wanted.file = here.source();
        wanted.server = receiver->local_addr();
        wanted.restart = restart;
        return rcopy::send_file(at_sender, wanted, shown);
    }
    /// As SIGKILL would.
    void kill_receiver() {
        serving = {};
        sessions = std::make_unique<async::tasks>();
        receiver.reset();
    }
    void run(async::task<>& work) {
        while (!work.done())
            loop.run_once();
        work.get();
    }
    /// A whole transfer.
    void send(world const& here, bool restart = false) {
        async::task<> work = sending(here, restart);
        work.start();
        run(work);
    }
    /// Until the receiver knows how each session ended.
    void settle() {
        while (sessions->size() != 0)
            loop.run_once();
    }
    /// Until the receiver has stopped.
    void finish() {
        settle();
        stop.request_stop();
        while (!serving.done())
            loop.run_once();
    }
};

void send(world const& here, char const* host, bool restart = false) {
    ends both(here, host);
    both.send(here, restart);
    both.finish();
}

/// What this throws says.
template <class Act>
std::string complaint(Act act) {
    try {
        act();
    } catch (std::exception const& e) {
        return e.what();
    }
    return "none";
}

/// A client that follows no protocol: it says what it is told to, and then waits for the end.
async::task<> talk(ends& both, std::vector<rcopy::message> said, std::string& answer) {
    rcopy::mailbox letters;
    rdma::connect_options how;
    how.qp = rcopy::mailbox::qp;
    auto const prepare = [&letters](rdma::cm_id const& id, std::error_code& ec) { letters.open(id, ec); };
    async::cm_id id = co_await async::connect(both.at_sender, both.receiver->local_addr(), how, prepare);
    rcopy::connection server(both.loop, std::move(id), std::move(letters), {10s});
    for (rcopy::message const& each : said)
        co_await server.send(each);
    try {
        for (;;)
            (void)co_await server.receive();
    } catch (std::exception const& e) {
        answer = e.what();
    }
}

/// What the receiver answers to this, and whether it goes on serving others.
std::string answer_to(char const* host, std::vector<rcopy::message> const& said) {
    world const here(3 * slot_size);
    std::string answer;
    ends both(here, host);
    async::task<> work = talk(both, said, answer);
    work.start();
    both.run(work);
    both.settle();
    CHECK(here.is_sound());
    CHECK_NOTHROW(both.send(here, true));
    both.finish();
    CHECK(here.is_right());
    return answer;
}

rcopy::offer offered(std::string const& name, std::uint64_t size = 3 * slot_size) {
    rcopy::offer wanted;
    wanted.file.size = size;
    wanted.name = rcopy::short_text(name);
    return wanted;
}

/// A server that follows no protocol: it answers an offer with this. Its address is any's.
async::task<> listen(ends& both, async::acceptor& listener, std::vector<rcopy::message> said) {
    async::request request = co_await listener.next();
    rcopy::mailbox letters;
    rdma::accept_options how;
    how.qp = rcopy::mailbox::qp;
    auto const prepare = [&letters](rdma::cm_id const& id, std::error_code& ec) { letters.open(id, ec); };
    async::cm_id id = co_await async::accept(both.at_receiver, request.take_id(), how, prepare);
    rcopy::connection client(both.loop, std::move(id), std::move(letters), {10s});
    (void)co_await client.receive();
    for (rcopy::message const& each : said)
        co_await client.send(each);
    co_await client.until_closed();
}

/// What a sender says of a server that answers so.
std::string complaint_about(std::vector<rcopy::message> const& said) {
    world const here(3 * slot_size);
    ends both(here, device_addresses[0]);
    async::acceptor listener(both.at_receiver, rdma::address(device_addresses[0], 7532));
    async::task<> serving = listen(both, listener, said);
    serving.start();
    rcopy::send_options wanted;
    wanted.file = here.source();
    wanted.server = listener.local_addr();
    async::task<> work = rcopy::send_file(both.at_sender, wanted, both.shown);
    work.start();
    std::string const said_of_it = complaint([&] { both.run(work); });
    both.run(serving);
    both.finish();
    return said_of_it;
}

} // namespace

TEST_CASE("files of every size arrive, on every device") {
    for (char const* host : device_addresses)
        for (std::size_t const size : {std::size_t{0}, std::size_t{1}, slot_size - 1, slot_size, slot_size + 1,
                                       4 * slot_size, 5 * slot_size, std::size_t{1} << 20}) {
            CAPTURE(host, size);
            world const here(size);
            CHECK_NOTHROW(send(here, host));
            CHECK(here.is_done());
        }
}

TEST_CASE("whichever message is lost, at either end, the next run makes the file whole") {
    for (char const* host : device_addresses) {
        unsigned n = 0;
        for (bool struck = true; struck;) {
            CAPTURE(host, ++n);
            world const here(6 * slot_size - 1);
            {
                ends both(here, host);
                fake::fail("ibv_post_send", n, EIO);
                std::string const said = complaint([&] { both.send(here); });
                both.settle();
                struck = !fake::failed().function.empty();
                fake::disarm();
                CHECK((struck || said == "none"));
                CHECK(here.is_sound());
                CHECK_NOTHROW(both.send(here));
                both.finish();
            }
            CHECK(here.is_done());
        }
        CHECK(n > 15); // an offer, a ring, six chunks and credits, and how it ended
    }
}

TEST_CASE("either end may be killed at any moment") {
    for (char const* host : device_addresses)
        for (bool const sender_dies : {true, false}) {
            std::size_t went_on = 0;
            unsigned n = 0;
            for (bool struck = true; struck; ++n) {
                CAPTURE(host, sender_dies, n);
                world const here(6 * slot_size - 1);
                {
                    ends both(here, host);
                    async::task<> work = both.sending(here);
                    work.start();
                    for (unsigned turn = 0; turn != n && !work.done(); ++turn)
                        both.loop.run_once();
                    struck = !work.done();
                    if (sender_dies) {
                        work = {};
                        both.settle();
                    } else {
                        both.kill_receiver();
                        std::string const said = complaint([&] { both.run(work); });
                        CHECK((said != "none" || here.is_right())); // the last word may be on its way
                    }
                }
                CHECK(here.is_sound());
                went_on += here.part_size() != 0;
                CHECK_NOTHROW(send(here, host));
                CHECK(here.is_done());
            }
            CHECK(went_on >= 5);
        }
}

TEST_CASE("a file that has changed is not mixed with what it was") {
    world here(6 * slot_size);
    auto const interrupt = [&here] {
        ends both(here, device_addresses[0]);
        async::task<> work = both.sending(here);
        work.start();
        while (here.part_size() < 2 * slot_size)
            both.loop.run_once();
    };
    auto const refused = [&here](char const* why) {
        std::size_t const before = here.part_size();
        CHECK_THAT(complaint([&] { send(here, device_addresses[0]); }), contains(why));
        CHECK(here.part_size() == before);
        CHECK(!files::exists(here.arrived()));
    };
    interrupt();
    auto const time = files::last_write_time(here.source());
    here.content[0] ^= 1;
    here.write();
    files::last_write_time(here.source(), time + 1s);
    refused("another state");
    files::last_write_time(here.source(), time);
    refused("not the beginning");
    CHECK_NOTHROW(send(here, device_addresses[0], true));
    CHECK(here.is_done());

    // What is there and is not ours.
    here.forget();
    std::ofstream(here.part()) << "whose?";
    refused("another state");
    std::ofstream(here.part().string() + ".info") << "rcopy 1\nsize";
    refused("another state");
    here.forget();
    files::create_directory(here.arrived());
    CHECK_THAT(complaint([&] { send(here, device_addresses[0]); }), contains("no file"));
    here.forget();

    // While it is sent: cut, and written to.
    auto const change_meanwhile = [&here](auto change) {
        ends both(here, device_addresses[0]);
        async::task<> work = both.sending(here, true);
        work.start();
        while (here.part_size() < slot_size)
            both.loop.run_once();
        change();
        std::string const said = complaint([&] { both.run(work); });
        both.finish();
        CHECK(!files::exists(here.arrived()));
        return said;
    };
    CHECK_THAT(change_meanwhile([&here] { files::resize_file(here.source(), 6 * slot_size - 1); }),
               contains("shorter while it was sent"));
    here.write();
    CHECK_THAT(
        change_meanwhile([&here] { files::last_write_time(here.source(), files::file_time_type::clock::now() + 1h); }),
        contains("changed while it was sent"));
}

TEST_CASE("links are not followed out of the directory") {
    world const here(slot_size);
    std::ofstream(here.home / "precious") << "precious";
    files::create_symlink("../precious", here.part());
    CHECK_THAT(complaint([&] { send(here, device_addresses[0]); }), contains("opening"));
    CHECK_NOTHROW(send(here, device_addresses[0], true));
    CHECK(here.is_done());
    CHECK(files::file_size(here.home / "precious") == 8);
}

TEST_CASE("several clients are served at a time, also with files of one name") {
    for (char const* host : device_addresses) {
        CAPTURE(host);
        world const here(8 * slot_size);
        ends both(here, host);
        std::vector<async::task<>> work;
        for (int i = 0; i != 3; ++i)
            work.push_back(both.sending(here));
        for (async::task<>& each : work)
            each.start();
        while (both.sessions->size() != 3)
            both.loop.run_once();
        CHECK_THAT(complaint([&] { both.send(here); }), contains("rejected") || contains("reset")); // iWARP says so
        for (async::task<>& each : work)
            CHECK_NOTHROW(both.run(each));
        both.finish();
        CHECK(here.is_done());
    }
}

TEST_CASE("one program has the directory") {
    world const here(1);
    ends const both(here, device_addresses[0]);
    CHECK_THAT(complaint([&] { ends(here, device_addresses[1]); }), contains("another rcopy"));
}

TEST_CASE("what a client may not say") {
    for (char const* host : device_addresses) {
        CAPTURE(host);
        for (std::string const name :
             {"", ".", "..", "../x", "a/b", "/etc/x", "a\nb", "\x7f", ".x.rcopy", ".x.rcopy.info"})
            CHECK_THAT(answer_to(host, {offered(name)}), contains("the name cannot be taken"));
        CHECK_THAT(answer_to(host, {offered(std::string("a\0b", 3))}), contains("the name cannot be taken"));
        CHECK_THAT(answer_to(host, {offered(std::string(250, 'x'))}), contains("too long"));
        for (std::uint64_t const size : {(std::uint64_t{1} << 20) + 1, UINT64_MAX})
            CHECK_THAT(answer_to(host, {offered("x", size)}), contains("too large"));
        rcopy::offer wanted = offered("file");
        wanted.hello ^= 1;
        CHECK_THAT(answer_to(host, {wanted}), contains("another version"));
        wanted = offered("file");
        wanted.file.nanoseconds = 1'000'000'000;
        CHECK_THAT(answer_to(host, {wanted}), contains("no time"));

        CHECK_THAT(answer_to(host, {rcopy::done{}}), contains("out of turn"));
        CHECK_THAT(answer_to(host, {offered("file"), rcopy::finished{}}), contains("out of turn"));
        for (rcopy::chunk const bad :
             {rcopy::chunk{1, slot_size, 0}, rcopy::chunk{0, slot_size, 1}, rcopy::chunk{0, 0, 0},
              rcopy::chunk{0, slot_size + 1, 0}, rcopy::chunk{0, UINT32_MAX, 0}, rcopy::chunk{UINT64_MAX, 1, 0},
              rcopy::chunk{0, 1, UINT32_MAX}})
            CHECK_THAT(answer_to(host, {offered("file"), bad}), contains("should not"));
        CHECK_THAT(answer_to(host, {offered("file", 10), rcopy::chunk{0, 11, 0}}), contains("should not"));
        CHECK_THAT(answer_to(host, {offered("file", 1), rcopy::chunk{0, 1, 0}, rcopy::finished{1}}),
                   contains("not what was sent"));
    }
}

TEST_CASE("what a server may not say") {
    CHECK_THAT(complaint_about({rcopy::done{}}), contains("out of turn"));
    CHECK_THAT(complaint_about({rcopy::refusal{rcopy::reason::failed, rcopy::short_text("\033[2Jboo")}}),
               contains("?[2Jboo"));
    for (rcopy::have const bad : {rcopy::have{0, 0}, rcopy::have{3 * slot_size + 1, 0}, rcopy::have{UINT64_MAX, 0}})
        CHECK_THAT(complaint_about({bad}), contains("does not have"));
    CHECK_THAT(complaint_about({rcopy::have{1, 0}}), contains("not the beginning"));
    for (rcopy::ring const bad : {rcopy::ring{0, 0, 0, 1, 0}, rcopy::ring{0, 0, 33, 1, 0}, rcopy::ring{0, 0, 1, 0, 0},
                                  rcopy::ring{0, 0, 1, UINT32_MAX, 0}, rcopy::ring{0, 0, 1, 1, 1}})
        CHECK_THAT(complaint_about({bad}), contains("cannot be"));
    CHECK_THAT(complaint_about({rcopy::ring{0, 0, 1, 1, 0}}), contains("lost")); // it gives memory that is not there
}

TEST_CASE("whatever bytes arrive, they are a message or they are not") {
    rcopy::offer wanted = offered("a name");
    wanted.restart = true;
    for (rcopy::message const& said :
         std::vector<rcopy::message>{wanted, rcopy::have{1, 2}, rcopy::same{}, rcopy::ring{1, 2, 3, 4, 5},
                                     rcopy::chunk{1, 2, 3}, rcopy::credit{1}, rcopy::finished{1}, rcopy::done{},
                                     rcopy::refusal{rcopy::reason::changed, rcopy::short_text("why")}}) {
        rcopy::letter const letter(said);
        CAPTURE(said.index());
        std::vector<std::byte> bytes(letter.bytes().begin(), letter.bytes().end());
        auto const read = rcopy::letter_reader::read(bytes);
        REQUIRE(read.has_value());
        CHECK(read->index() == said.index());
        rcopy::letter const again(*read);
        CHECK(std::equal(bytes.begin(), bytes.end(), again.bytes().begin(), again.bytes().end()));
        for (std::size_t size = 0; size != bytes.size(); ++size) {
            std::vector<std::byte> const cut(bytes.begin(),
                                             bytes.begin() + static_cast<std::ptrdiff_t>(size)); // ASan sees its end
            CHECK(!rcopy::letter_reader::read(cut));
        }
        bytes.push_back({});
        CHECK(!rcopy::letter_reader::read(bytes));
    }
    CHECK(!rcopy::letter_reader::read(std::vector{std::byte{9}}));
    CHECK(!rcopy::letter_reader::read(std::vector{std::byte{255}}));
}

TEST_CASE("progress is told in one line") {
    CHECK(rcopy::size_text(0) == "0 B");
    CHECK(rcopy::size_text(1023) == "1023 B");
    CHECK(rcopy::size_text(1536) == "1.5 KiB");
    CHECK(rcopy::size_text(1024.0 * 1024 * 1024) == "1.0 GiB");
    CHECK(rcopy::size_text(std::numeric_limits<double>::max()).ends_with(" TiB"));
    CHECK(rcopy::time_text(5s) == "00:05");
    CHECK(rcopy::time_text(3723s) == "1:02:03");

    rcopy::progress shown(false);
    shown.begin("file", 1 << 20, 5 << 20);
    auto const began = rcopy::progress::clock::now();
    CHECK_THAT(shown.bar(began, 80), contains("file   20% [====") && contains("] 1.0 MiB ") && contains("ETA --:--"));
    shown.advance(3 << 20);
    std::string const bar = shown.bar(began + 10s, 80);
    CAPTURE(bar);
    CHECK_THAT(bar, contains("file   60% [") && contains("] 3.0 MiB ") && contains(" KiB/s  ETA 00:1"));
    for (std::size_t columns = 50; columns != 200; ++columns)
        CHECK(shown.bar(began + 10s, columns).size() < columns);
    CHECK_THAT(shown.summary(began + 10s), contains("file: 2.0 MiB in 10.0 s, 20") && contains("1.0 MiB were there"));
}
