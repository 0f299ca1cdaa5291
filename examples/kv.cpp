// SPDX-License-Identifier: MIT
// A key-value service whose GETs cost the server nothing: its table lies in registered memory, and clients look things
// up by RDMA READ. Only a PUT is a message, which the server answers.
//
// A client may read an entry while the server writes it. It sees that by the checksum, and reads again.
#include "command_line.hpp"
#include "stop_signals.hpp"

#include <rdmacpp/epoll.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <endian.h>

namespace async = rdma::async;
using namespace std::chrono_literals;

constexpr char const* usage = R"(kv [-p PORT] [-n ENTRIES] serve ADDRESS
kv [-p PORT] get SERVER KEY
kv [-p PORT] put SERVER KEY VALUE
kv [-p PORT] bench SERVER COUNT

  serve       keep a table, until SIGINT or SIGTERM
  get         print the value of a key
  put         set it; key and value have 1000 bytes together at most
  bench       do so many gets, and a put in place of every tenth, and check what comes
  -p PORT     the port (7472)
  -n ENTRIES  how many keys the table has room for (4096)
  --help      print this

The exit code is 0 on success, 1 when something failed or there is no such key, 2 for wrong options.
)";

/// One key and its value: in the table, and on the wire of a PUT. Numbers are in network order.
class entry {
public:
    static constexpr std::size_t room = 1000; // for key and value

    entry() = default;
    entry(std::string_view key, std::string_view value, std::uint64_t version)
        : version_(htobe64(version)), key_size_(htobe32(static_cast<std::uint32_t>(key.size()))),
          value_size_(htobe32(static_cast<std::uint32_t>(value.size()))) {
        if (key.empty() || key.size() + value.size() > room)
            throw std::invalid_argument("key and value have 1 to " + std::to_string(room) + " bytes together");
        std::memcpy(text_, key.data(), key.size());
        std::memcpy(text_ + key.size(), value.data(), value.size());
        checksum_ = sum();
    }

    /// Nothing was ever written here.
    bool is_empty() const noexcept { return version_ == 0 && checksum_ == 0; }
    /// It is as it was written, and not a mixture of two.
    bool is_whole() const noexcept {
        std::size_t const key = be32toh(key_size_), value = be32toh(value_size_);
        return key != 0 && key <= room && value <= room - key && checksum_ == sum();
    }
    std::uint64_t version() const noexcept { return be64toh(version_); }
    std::string_view key() const noexcept { return {text_, be32toh(key_size_)}; }
    std::string_view value() const noexcept { return {text_ + be32toh(key_size_), be32toh(value_size_)}; }

private:
    std::uint64_t sum() const noexcept { // FNV-1a
        std::uint64_t sum = 14695981039346656037U;
        auto const* const bytes = reinterpret_cast<unsigned char const*>(this);
        std::size_t const end = offsetof(entry, text_) + be32toh(key_size_) + be32toh(value_size_);
        for (std::size_t i = sizeof checksum_; i != end; ++i)
            sum = (sum ^ bytes[i]) * 1099511628211U;
        return htobe64(sum);
    }

    std::uint64_t checksum_ = 0; // of all that follows
    std::uint64_t version_ = 0;  // how often the value was set
    std::uint32_t key_size_ = 0, value_size_ = 0;
    char text_[room] = {};
};
static_assert(sizeof(entry) == 1024);

/// Where a key is looked for first, and then in the entries that follow, until one is empty: the same at both ends.
std::uint64_t place_of(std::string_view key, std::uint64_t entries) {
    std::uint64_t hash = 14695981039346656037U;
    for (char const c : key)
        hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211U;
    return (hash ^ hash >> 32) % entries;
}

/// What the server tells when it accepts: where its table is. In network order.
struct table_address {
    std::uint64_t address, entries;
    std::uint32_t rkey, entry_size = htobe32(sizeof(entry));
};

constexpr auto patience = 10s;
constexpr std::size_t answer_size = sizeof(std::uint64_t), message_size = sizeof(entry) + answer_size;

// ---- the server

class server {
public:
    server(rdma::epoll_loop& loop, rdma::address const& local, std::size_t entries, stop_signals& signals)
        : loop_(loop), signals_(signals), channel_(loop), acceptor_(channel_, local), table_(entries) {
        std::printf("listening on %s\n", to_string(acceptor_.local_addr()).c_str());
    }

    async::task<> run() {
        std::error_code ended;
        while (!ended) {
            async::request request = co_await acceptor_.next(signals_.token(), ended);
            if (request)
                sessions_.spawn(serve(request.take_id()));
        }
        acceptor_ = {};
        signals_.stop();
        if (ended != std::errc::operation_canceled)
            throw std::system_error(ended, "no more clients can come");
    }

    void print() const { std::printf("served %zu clients, %zu puts\n", clients_, puts_); }

    /// What clients read.
    std::span<entry> table() noexcept { return table_; }

private:
    /// What each device needs that clients come by.
    struct device {
        async::cq cq;
        rdma::mr table;
    };

    async::task<> serve(rdma::cm_id undecided) {
        std::string const peer = to_string(undecided.peer_addr());
        try {
            device const& on = device_of(undecided);
            rdma::registered_buffer const memory(undecided.pd(), window * message_size, rdma::for_recv());
            async::cm_id const id(channel_, std::move(undecided));
            id->create_qp({.send_cq = on.cq, .recv_cq = on.cq, .cap = {.max_send_wr = window, .max_recv_wr = window}});
            // Each begins with a receive, and the client may send as soon as it is accepted.
            std::array<async::task<>, window> putting;
            for (std::size_t i = 0; i != window; ++i)
                (putting[i] = puts(id, on.cq, memory, i * message_size)).start();

            rdma::remote_memory const where = on.table.remote();
            table_address const told{htobe64(where.address), htobe64(table_.size()), htobe32(where.rkey)};
            co_await id.accept({.private_data = std::as_bytes(std::span(&told, 1))}, patience);
            ++clients_;

            std::error_code stopped;
            (void)co_await id.next(signals_.token(), stopped); // a connection's next event is its end
            if (stopped)
                co_await id.disconnect(patience);
        } catch (std::exception const& e) {
            std::fprintf(stderr, "kv: %s: %s\n", peer.c_str(), e.what());
        }
    }

    /// Answers PUTs that come into this part of the memory. While it answers one, the next may come into another part.
    async::task<> puts(async::cm_id const& id, async::cq const& cq, rdma::registered_buffer const& memory,
                       std::size_t at) {
        auto const& wanted = *reinterpret_cast<entry const*>(memory.data() + at);
        ibv_sge const message = memory.sge(at, sizeof(entry)), answer = memory.sge(at + sizeof(entry), answer_size);
        rdma::work_completion done;
        std::error_code ec;
        for (;;) {
            done = co_await cq.post_recv(id, rdma::recv_wr(message), ec);
            if (ec || !done || done.success().byte_len() != sizeof(entry) || !wanted.is_whole())
                break;
            std::uint64_t const version = htobe64(put(wanted.key(), wanted.value()));
            std::memcpy(memory.data() + at + sizeof(entry), &version, sizeof version);
            done = co_await cq.post_send(id, rdma::send_wr::send(answer), ec);
            if (ec || !done)
                break;
        }
        if (!ec && done.status() != rdma::wc_status::wr_flush_err)
            std::fprintf(stderr, "kv: %s: %s\n", to_string(id->peer_addr()).c_str(),
                         done ? "that was no PUT" : to_string(done.status()).c_str());
        id->disconnect(ec); // which ends the wait in serve()
    }

    /// @return the new version; 0: there is no room
    std::uint64_t put(std::string_view key, std::string_view value) {
        std::uint64_t const first = place_of(key, table_.size());
        for (std::uint64_t i = 0; i != table_.size(); ++i) {
            entry& here = table_[(first + i) % table_.size()];
            if (!here.is_empty() && here.key() != key)
                continue;
            ++puts_;
            here = entry(key, value, here.version() + 1); // clients may be reading it
            return here.version();
        }
        return 0;
    }

    device const& device_of(rdma::cm_id const& id) {
        auto found = devices_.find(id.verbs());
        if (found == devices_.end()) {
            device made{async::cq(loop_, id.verbs(), max_completions),
                        rdma::mr(id.pd(), table_, rdma::for_remote_read())};
            found = devices_.emplace(id.verbs(), std::move(made)).first;
        }
        return found->second;
    }

    static constexpr std::size_t window = 2;       // PUTs of one client that may be under way
    static constexpr int max_completions = 16'385; // of all clients; no less: see completions() in echo.hpp

    rdma::epoll_loop& loop_;
    stop_signals& signals_;
    async::event_channel channel_;
    async::acceptor acceptor_;
    std::vector<entry> table_;
    std::unordered_map<rdma::context_ref, device> devices_;
    std::size_t clients_ = 0, puts_ = 0;
    async::tasks sessions_;
};

// ---- the client

class client {
public:
    explicit client(rdma::epoll_loop& loop) : loop_(loop), channel_(loop) {}

    async::task<> connect(rdma::address const& server) {
        rdma::connect_report report;
        id_ = co_await async::connect(channel_, server, {.limit = patience, .report = &report});
        table_address told;
        if (report.reply.size() < sizeof told)
            throw std::runtime_error("this is no kv server");
        std::memcpy(&told, report.reply.data(), sizeof told);
        table_ = {be64toh(told.address), be32toh(told.rkey)};
        entries_ = be64toh(told.entries);
        if (be32toh(told.entry_size) != sizeof(entry) || entries_ == 0)
            throw std::runtime_error("the server's table is of another kind");

        sends_ = async::cq(loop_, id_->send_cq());
        receives_ = async::cq(loop_, id_->recv_cq());
        memory_ = rdma::registered_buffer(id_->pd(), message_size,
                                          rdma::for_recv() | rdma::for_read_sink(id_->verbs().device().transport()));
    }
    async::task<> disconnect() { co_await id_.disconnect(patience); }

    /// Looks a key up, and the server does not notice.
    async::task<std::optional<entry>> get(std::string_view key) {
        std::uint64_t const first = place_of(key, entries_);
        for (std::uint64_t i = 0; i != entries_; ++i) {
            entry const found = co_await read((first + i) % entries_);
            if (found.is_empty())
                break;
            if (found.key() == key)
                co_return found;
        }
        co_return std::nullopt;
    }

    /// @return the new version
    async::task<std::uint64_t> put(std::string_view key, std::string_view value) {
        entry const wanted(key, value, 1);
        std::memcpy(memory_.data(), &wanted, sizeof wanted);
        id_->qp().post_recv(rdma::recv_wr(memory_.sge(sizeof(entry), answer_size))); // before it is asked
        check(co_await sends_.post_send(id_, rdma::send_wr::send(memory_.sge(0, sizeof(entry))), patience));
        check(co_await receives_.next(patience));
        std::uint64_t version = 0;
        std::memcpy(&version, memory_.data() + sizeof(entry), sizeof version);
        if (version == 0)
            throw std::runtime_error("the server's table is full");
        co_return be64toh(version);
    }

    std::size_t torn() const { return torn_; }
    rdma::epoll_loop& loop() const { return loop_; }

private:
    async::task<entry> read(std::uint64_t which) {
        for (int attempt = 0; attempt != 1000; ++attempt) {
            rdma::remote_memory const from{table_.address + which * sizeof(entry), table_.rkey};
            check(co_await sends_.post_send(id_, rdma::send_wr::read(memory_.sge(0, sizeof(entry)), from), patience));
            entry found;
            std::memcpy(&found, memory_.data(), sizeof found);
            if (found.is_empty() || found.is_whole())
                co_return found;
            ++torn_; // the server was writing it
        }
        throw std::runtime_error("an entry of the table is damaged");
    }

    static void check(rdma::work_completion const& done) {
        if (!done)
            throw std::runtime_error(to_string(done.status()));
    }

    rdma::epoll_loop& loop_;
    async::event_channel channel_;
    rdma::registered_buffer memory_;
    async::cm_id id_;
    async::cq sends_, receives_;
    rdma::remote_memory table_{};
    std::uint64_t entries_ = 0;
    std::size_t torn_ = 0;
};

// ---- the program

struct options {
    int port = 7472;
    std::uint32_t entries = 4096;
    std::vector<std::string> words; // what to do, with whom, and with what
    rdma::address address;
    std::uint64_t count = 0;

    void set(char letter, char const* value) {
        switch (letter) {
        case 'p': port = command_line::number(value, 1, 65535); break;
        case 'n': entries = command_line::number(value, 1U, 1U << 20); break;
        default: words.emplace_back(value);
        }
    }
    void check() {
        using command_line::wrong;
        std::string const what = words.empty() ? "" : words[0];
        std::size_t const expected = what == "serve" ? 2 : what == "get" || what == "bench" ? 3 : what == "put" ? 4 : 0;
        if (expected == 0)
            throw wrong("one of serve, get, put and bench is needed");
        if (words.size() != expected)
            throw wrong(what + " takes " + std::to_string(expected - 1) + " words");
        std::error_code ec;
        address = rdma::address(words[1], port, ec);
        if (ec)
            throw wrong(words[1] + ": " + ec.message());
        if (what == "bench")
            count = command_line::number<std::uint64_t>(words[2]);
    }
};

/// Each value is one letter, many times: a mixture of two would show.
async::task<> bench(client& store, std::uint64_t count) {
    constexpr std::uint64_t keys = 16;
    std::uint64_t puts = 0, random = static_cast<std::uint64_t>(::getpid());
    auto const began = std::chrono::steady_clock::now();
    for (std::uint64_t i = 0; i != count; ++i) {
        random = random * 6364136223846793005U + 1442695040888963407U;
        std::string const key = "bench-" + std::to_string(random >> 40 & (keys - 1));
        if (i % 10 == 0) {
            ++puts;
            co_await store.put(key, std::string(500 + (random >> 50) % 400, static_cast<char>('a' + i / 10 % 26)));
        } else if (auto const found = co_await store.get(key)) {
            std::string_view const value = found->value();
            if (value.find_first_not_of(value.front()) != value.npos)
                throw std::runtime_error("the value of " + key + " is a mixture of two");
        }
    }
    std::chrono::duration<double> const took = std::chrono::steady_clock::now() - began;
    std::printf("%llu gets and %llu puts in %.2f s; %zu times an entry was being written, and read again\n",
                static_cast<unsigned long long>(count - puts), static_cast<unsigned long long>(puts), took.count(),
                store.torn());
}

async::task<> be_client(client& store, options const& wanted) {
    co_await store.connect(wanted.address);
    if (wanted.words[0] == "put")
        co_await store.put(wanted.words[2], wanted.words[3]);
    else if (wanted.words[0] == "bench")
        co_await bench(store, wanted.count);
    else if (std::optional<entry> const found = co_await store.get(wanted.words[2]))
        std::printf("%.*s\n", static_cast<int>(found->value().size()), found->value().data());
    else
        throw std::runtime_error("there is no " + wanted.words[2]);
    co_await store.disconnect();
}

int main(int argc, char** argv) {
    return command_line::run<options>(argc, argv, usage, "p:n:", [](options const& wanted) {
        rdma::epoll_loop loop;
        if (wanted.words[0] == "serve") {
            stop_signals signals(loop);
            server server(loop, wanted.address, wanted.entries, signals);
            async::task<> running = server.run();
            running.start();
            loop.run();
            running.get();
            server.print();
        } else {
            client store(loop);
            async::task<> running = be_client(store, wanted);
            running.start();
            loop.run();
            running.get();
        }
    });
}
