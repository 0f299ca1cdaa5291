// SPDX-License-Identifier: MIT
// Runs one benchmark as often as it is told to. The driver has two of these programs, one in C and one with the
// library, and gives them their turns: each line of stdin says how often, and is answered with what that took.
#include "bench.hpp"

#include <cstring>
#include <stdexcept>
#include <string_view>

#include <sched.h>
#include <unistd.h>

#if defined(__clang__)
#define COMPILER __VERSION__
#else
#define COMPILER "g++ " __VERSION__
#endif

constexpr char const* usage = R"([-s SIZE] [-e] [-b] [-p CPU] [-a SERVER] [-c CLIENT] TEST

  TEST        send, read, write: round trips; send_rate, write_rate: messages; connect: connections
  -s SIZE     bytes of a message (64)
  -e          wait for completions by event, rather than poll
  -b          with -e, in C alone: by a blocking get
  -p CPU      stay on this processor
  -a SERVER   the address to listen on (10.77.1.1)
  -c CLIENT   the address to connect from (10.77.1.2)

Then for each line "BATCHES TIMES" of stdin a line: the nanoseconds of each batch of so many times, and
"phase=nanoseconds" for those that have phases.
)";

static bench::options parse(int argc, char** argv) {
    bench::options wanted;
    for (int found; (found = ::getopt(argc, argv, "s:ebp:a:c:")) != -1;) {
        switch (found) {
        case 's': wanted.size = static_cast<std::uint32_t>(std::stoul(optarg)); break;
        case 'e': wanted.event = true; break;
        case 'b': wanted.blocking = true; break;
        case 'p': {
            cpu_set_t cpus;
            CPU_ZERO(&cpus);
            CPU_SET(std::stoul(optarg), &cpus);
            if (::sched_setaffinity(0, sizeof cpus, &cpus) != 0)
                bench::fail("sched_setaffinity");
            break;
        }
        case 'a': wanted.server = optarg; break;
        case 'c': wanted.client = optarg; break;
        default: throw std::invalid_argument(std::string(argv[0]) + ' ' + usage);
        }
    }
    if (optind + 1 != argc)
        throw std::invalid_argument(std::string(argv[0]) + ' ' + usage);
    wanted.test = argv[optind];
    return wanted;
}

static std::unique_ptr<bench::benchmark> make(bench::options const& wanted) {
    if (wanted.test == "connect")
        return bench::make_connections(wanted);
    if (wanted.test == "send_rate" || wanted.test == "write_rate")
        return bench::make_rate(wanted);
    if (wanted.test == "send" || wanted.test == "read" || wanted.test == "write")
        return bench::make_latency(wanted);
    throw std::invalid_argument("no such test: " + wanted.test);
}

int main(int argc, char** argv) try {
    bench::options const wanted = parse(argc, argv);
    auto const benchmark = make(wanted);
    std::puts("ready, " COMPILER);
    std::fflush(stdout);
    for (unsigned batches, times; std::scanf("%u %u", &batches, &times) == 2;) {
        std::vector<long long> spans;
        bench::phases phases;
        for (unsigned batch = 0; batch != batches; ++batch) {
            auto const begin = bench::clock::now();
            benchmark->run(times, phases);
            auto const end = bench::clock::now();
            spans.push_back(std::chrono::nanoseconds(end - begin).count());
        }
        for (long long const span : spans)
            std::printf("%lld ", span);
        for (auto const& [phase, span] : phases.spans())
            std::printf("%s=%lld ", phase, span);
        std::putchar('\n');
        std::fflush(stdout);
    }
} catch (std::exception const& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
}
