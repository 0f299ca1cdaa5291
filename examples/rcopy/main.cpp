// SPDX-License-Identifier: MIT
// rcopy: sends files over RDMA. The options, signals, and what becomes the exit code.
#include "receiver.hpp"
#include "sender.hpp"

#include <rdmacpp/epoll.hpp>

#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <string_view>
#include <vector>

#include <getopt.h>
#include <netdb.h>
#include <sys/signalfd.h>

namespace {

constexpr char const* usage = R"(rcopy serve [--bind ADDRESS] [--port PORT] [--limit BYTES] [--clients N]
            [--memory MIB] [--patience S] DIRECTORY
rcopy send [--restart] [--patience S] FILE HOST[:PORT]

The server puts the files that are sent to it into DIRECTORY, for as long as it runs. A file has its name there only
when it is whole and its checksum right; it takes the place of an older one. What is there until then (.NAME.rcopy and
.NAME.rcopy.info) is a beginning of it: if the transfer is interrupted, however that comes, the same command goes on
from there. If FILE has changed since, it does not, and says so; what is there stays.

  --bind ADDRESS   listen on this address (0.0.0.0, all of IPv4; :: for those of IPv6)
  --port PORT      listen on this port (7531)
  --limit BYTES    take no larger file; K, M, G, T after the number are powers of 1024
  --clients N      serve so many at a time (16)
  --memory MIB     of each client, for what arrives and is not written yet: 1 to 32 (16)
  --restart        begin anew, whatever is there
  --patience S     give a peer up that has said nothing for so many seconds (60)
  --help           print this

HOST is a name or an address of an RDMA device; an IPv6 address with a port stands in brackets.

Exit code: 0 done, 1 failed (the same again goes on), 2 wrong options, 3 the server refused the file, 4 FILE has changed
since a part of it was sent (--restart), 128 + n when signal n has stopped it. A server that a signal stops ends with 0.
)";

constexpr int default_port = 7531;

struct bad_option : std::runtime_error {
    using std::runtime_error::runtime_error;
};

std::uint64_t number(std::string_view option, std::string_view text, std::uint64_t most, std::uint64_t least = 1) {
    std::uint64_t value = 0;
    auto const [end, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (failed != std::errc{} || end != text.data() + text.size() || value < least || value > most)
        throw bad_option(std::string(option) + " takes a number from " + std::to_string(least) + " to " +
                         std::to_string(most) + ", not \"" + std::string(text) + '"');
    return value;
}

std::uint64_t size_number(std::string_view option, std::string_view text) {
    static constexpr std::string_view units = "KMGT";
    std::size_t const unit = text.empty() ? units.npos : units.find(text.back());
    if (unit == units.npos)
        return number(option, text, INT64_MAX, 0);
    std::size_t const shift = 10 * (unit + 1);
    return number(option, text.substr(0, text.size() - 1), INT64_MAX >> shift, 0) << shift;
}

/// The address of HOST, HOST:PORT, or [HOST]:PORT.
rdma::address look_up(std::string text) {
    std::string port = std::to_string(default_port);
    std::size_t const colon = text.rfind(':');
    if (!text.empty() && text.front() == '[') {
        std::size_t const bracket = text.find(']');
        if (bracket == text.npos || (bracket + 1 != text.size() && colon != bracket + 1))
            throw bad_option("the server is HOST[:PORT] or [HOST][:PORT], not \"" + text + '"');
        if (colon == bracket + 1)
            port = text.substr(colon + 1);
        text = text.substr(1, bracket - 1);
    } else if (colon != text.npos && text.find(':') == colon) {
        port = text.substr(colon + 1);
        text.erase(colon);
    }
    number("the port", port, 65535);
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    if (int const failed = ::getaddrinfo(text.c_str(), port.c_str(), &hints, &found); failed != 0)
        throw std::runtime_error(text + ": " + ::gai_strerror(failed));
    rdma::address const first(found->ai_addr);
    ::freeaddrinfo(found);
    return first;
}

struct command_line {
    enum class action { help, serve, send } wanted = action::help;
    rcopy::serve_options serve;
    rcopy::send_options send;

    command_line(int argc, char** argv) {
        static constexpr option long_options[] = {{"bind", required_argument, nullptr, 'b'},
                                                  {"port", required_argument, nullptr, 'p'},
                                                  {"limit", required_argument, nullptr, 'l'},
                                                  {"clients", required_argument, nullptr, 'n'},
                                                  {"memory", required_argument, nullptr, 'm'},
                                                  {"restart", no_argument, nullptr, 'r'},
                                                  {"patience", required_argument, nullptr, 't'},
                                                  {"help", no_argument, nullptr, 'h'},
                                                  {}};
        std::string host = "0.0.0.0";
        int port = default_port;
        rcopy::limits within;
        opterr = 0; // what is wrong is said here
        for (int found; (found = ::getopt_long(argc, argv, ":h", long_options, nullptr)) != -1;) {
            switch (found) {
            case 'b': host = optarg; break;
            case 'p': port = static_cast<int>(number("--port", optarg, 65535)); break;
            case 'l': serve.largest = size_number("--limit", optarg); break;
            case 'n': serve.clients = static_cast<std::uint32_t>(number("--clients", optarg, 1000)); break;
            case 'm': serve.slots = static_cast<std::uint32_t>(number("--memory", optarg, rcopy::max_slots)); break;
            case 'r': send.restart = true; break;
            case 't': within.patience = std::chrono::seconds(number("--patience", optarg, 86400)); break;
            case 'h': return;
            case ':': throw bad_option(std::string(argv[optind - 1]) + " needs a value");
            default: throw bad_option(std::string("unknown option ") + argv[optind - 1]);
            }
        }
        std::vector<std::string> const words(argv + optind, argv + argc);
        if (words.size() == 2 && words[0] == "serve") {
            wanted = action::serve;
            serve.directory = words[1];
            std::error_code ec;
            serve.local = rdma::address(host, port, ec);
            if (ec)
                throw bad_option("--bind " + host + ": " + ec.message());
        } else if (words.size() == 3 && words[0] == "send") {
            wanted = action::send;
            send.file = words[1];
            send.server = look_up(words[2]);
        } else {
            throw bad_option("wanted: serve DIRECTORY, or send FILE HOST[:PORT]");
        }
        serve.within = send.within = within;
    }
};

/// Makes a stop request of SIGINT and SIGTERM, on the loop's own thread: a descriptor is readable when one came.
class signal_watch {
public:
    explicit signal_watch(rdma::epoll_loop& loop) {
        sigset_t signals;
        ::sigemptyset(&signals);
        ::sigaddset(&signals, SIGINT);
        ::sigaddset(&signals, SIGTERM);
        ::sigprocmask(SIG_BLOCK, &signals, nullptr);
        fd_ = rcopy::descriptor(rcopy::checked(::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK), "signalfd"));
        std::error_code ec;
        watched_ = loop.readable(fd_.get(), {[](void* self) { static_cast<signal_watch*>(self)->read(); }, this}, ec);
        if (ec)
            throw std::system_error(ec, "watching for signals");
    }
    signal_watch(signal_watch const&) = delete;
    signal_watch& operator=(signal_watch const&) = delete;
    ~signal_watch() = default;

    std::stop_token token() const { return stop_.get_token(); }
    int received() const { return received_; }

private:
    void read() {
        signalfd_siginfo told{};
        if (::read(fd_.get(), &told, sizeof told) != sizeof told)
            return;
        received_ = static_cast<int>(told.ssi_signo);
        stop_.request_stop();
    }

    rcopy::descriptor fd_;
    std::stop_source stop_;
    int received_ = 0;
    rdma::async::registration watched_;
};

/// Lets a signal end a call that blocks, which it would do on iWARP: it does nothing else.
int interrupting_signal() {
    struct sigaction handler {};
    handler.sa_handler = [](int) {};
    rcopy::checked(::sigaction(SIGUSR1, &handler, nullptr), "sigaction");
    return SIGUSR1;
}

int serve(rcopy::serve_options wanted) {
    rdma::epoll_loop loop;
    signal_watch const signals(loop);
    wanted.within.stop = signals.token();
    wanted.tell = [](std::string const& line) { std::fprintf(stderr, "rcopy: %s\n", line.c_str()); };
    rdma::async::event_channel const channel(loop);
    rcopy::receiver receiver(channel, wanted);
    std::printf("listening on %s\n", to_string(receiver.local_addr()).c_str());
    std::fflush(stdout);
    rdma::async::tasks sessions;
    rdma::async::task<> work = receiver.run(sessions);
    work.start();
    while (!work.done() || sessions.size() != 0)
        loop.run_once();
    work.get();
    return 0;
}

int send(rcopy::send_options wanted) {
    rdma::epoll_loop loop;
    signal_watch const signals(loop);
    wanted.within.stop = signals.token();
    wanted.interrupt_signal = interrupting_signal();
    rdma::async::event_channel const channel(loop);
    rcopy::progress shown(::isatty(STDERR_FILENO) != 0);
    rdma::async::task<> work = rcopy::send_file(channel, std::move(wanted), shown);
    work.start();
    while (!work.done())
        loop.run_once();
    try {
        work.get();
        shown.finish();
        return 0;
    } catch (rcopy::refused const& e) {
        shown.clear();
        bool const changed = e.why == rcopy::reason::changed;
        std::fprintf(stderr, "rcopy: refused: %s%s\n", e.what(), changed ? " (--restart begins anew)" : "");
        return changed ? 4 : 3;
    } catch (rcopy::lost const& e) {
        shown.clear();
        std::fprintf(stderr, "rcopy: %s; the same command goes on from here\n", e.what());
        return 1;
    } catch (std::exception const&) {
        shown.clear();
        if (signals.received() == 0)
            throw;
        std::fputs("rcopy: stopped by a signal; the same command goes on from here\n", stderr);
        return 128 + signals.received();
    }
}

} // namespace

int main(int argc, char** argv) try {
    command_line const line(argc, argv);
    std::signal(SIGPIPE, SIG_IGN); // soft-iWARP raises it in ibv_post_send, when the peer has just gone
    switch (line.wanted) {
    case command_line::action::serve: return serve(line.serve);
    case command_line::action::send: return send(line.send);
    case command_line::action::help: break;
    }
    std::fputs(usage, stdout);
    return 0;
} catch (bad_option const& e) {
    std::fprintf(stderr, "rcopy: %s (rcopy --help tells more)\n", e.what());
    return 2;
} catch (std::exception const& e) {
    std::fprintf(stderr, "rcopy: %s\n", e.what());
    return 1;
}
