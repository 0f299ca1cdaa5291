// SPDX-License-Identifier: MIT
// rping on rdmacpp: the options, and what becomes the exit code.
#include "rping.hpp"

#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <limits>
#include <string>
#include <string_view>
#include <thread>

#include <getopt.h>

namespace {

constexpr char const* usage = R"(rping -s [-vVdq] [-P] [-S SIZE] [-a ADDRESS] [-p PORT]
rping -c [-vVdq] [-C COUNT] [-S SIZE] -a ADDRESS [-p PORT]

  -s          be the server
  -c          be the client
  -a ADDRESS  the server's address: IPv4, IPv6, or link-local as in fe80::1%eth0 (the server's default: 0.0.0.0)
  -p PORT     the server's port (7174)
  -S SIZE     bytes of a ping, 23 to 65535 (64); the server's is the most that a client may use
  -C COUNT    end after so many pings (0: never)
  -v          print the data
  -V          compare what comes back with what was sent
  -P          serve many clients, until a signal comes
  -q          make the queue pair and move it through its states here, not in librdmacm
  -d          print the events on stderr
  --help      print this

The exit code is 0 when all pings are done or the client has left, 1 when something failed, 2 for wrong options.
)";

struct bad_option : std::runtime_error {
    using std::runtime_error::runtime_error;
};

template <class Number>
Number number(char option, std::string_view text, Number low, Number high) {
    Number value{};
    auto const [end, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (failed != std::errc{} || end != text.data() + text.size() || value < low || value > high)
        throw bad_option(std::string{'-', option} + " takes a number from " + std::to_string(low) + " to " +
                         std::to_string(high) + ", not \"" + std::string(text) + '"');
    return value;
}

struct command_line {
    enum class role { none, server, client, help } wanted = role::none;
    rping::options options;

    command_line(int argc, char** argv) {
        static constexpr option long_options[] = {{"help", no_argument, nullptr, 'h'}, {}};
        std::string host;
        int port = 7174;
        opterr = 0; // what is wrong is said here
        for (int found; (found = ::getopt_long(argc, argv, ":sca:p:S:C:vVPqdh", long_options, nullptr)) != -1;) {
            switch (found) {
            case 's': choose(role::server); break;
            case 'c': choose(role::client); break;
            case 'a': host = optarg; break;
            case 'p': port = number('p', optarg, 1, 65535); break;
            case 'S': options.size = number('S', optarg, rping::min_size, rping::max_size); break;
            case 'C': options.count = number('C', optarg, 0U, std::numeric_limits<std::uint32_t>::max()); break;
            case 'v': options.verbose = true; break;
            case 'V': options.validate = true; break;
            case 'P': options.persistent = true; break;
            case 'q': options.self_managed = true; break;
            case 'd': options.debug = true; break;
            case 'h': wanted = role::help; return;
            case ':': throw bad_option(std::string("-") + static_cast<char>(optopt) + " needs a value");
            default: throw bad_option(std::string("unknown option ") + argv[optind - 1]);
            }
        }
        if (optind != argc)
            throw bad_option(std::string("unexpected argument ") + argv[optind]);
        if (wanted == role::none)
            throw bad_option("one of -s (server) and -c (client) is needed");
        if (wanted == role::client && host.empty())
            throw bad_option("-c needs the server's address, -a");
        std::error_code ec;
        options.address = rdma::address(host.empty() ? "0.0.0.0" : host, port, ec);
        if (ec)
            throw bad_option("-a " + host + ": " + ec.message());
    }

private:
    void choose(role chosen) {
        if (wanted != role::none && wanted != chosen)
            throw bad_option("-s and -c exclude each other");
        wanted = chosen;
    }
};

/// Makes a stop request of SIGINT and SIGTERM: a thread waits for them, since a handler may call next to nothing.
class signal_watch {
public:
    signal_watch() {
        ::sigemptyset(&signals_);
        ::sigaddset(&signals_, SIGINT);
        ::sigaddset(&signals_, SIGTERM);
        ::pthread_sigmask(SIG_BLOCK, &signals_, nullptr); // here and in every thread made from now on
        thread_ = std::jthread([this] {
            int received = 0;
            ::sigwait(&signals_, &received);
            stop_.request_stop();
        });
    }
    ~signal_watch() { ::pthread_kill(thread_.native_handle(), SIGTERM); } // ends the wait, and so the thread

    std::stop_token token() const { return stop_.get_token(); }

private:
    sigset_t signals_{};
    std::stop_source stop_;
    std::jthread thread_;
};

} // namespace

int main(int argc, char** argv) try {
    command_line const line(argc, argv);
    if (line.wanted == command_line::role::help) {
        std::fputs(usage, stdout);
        return 0;
    }
    signal_watch const watch;
    if (line.wanted == command_line::role::server)
        rping::server(line.options).run(watch.token());
    else
        rping::run_client(line.options, watch.token());
    return 0;
} catch (bad_option const& e) {
    std::fprintf(stderr, "rping: %s (rping --help tells more)\n", e.what());
    return 2;
} catch (std::exception const& e) {
    std::fprintf(stderr, "rping: %s\n", e.what());
    return 1;
}
