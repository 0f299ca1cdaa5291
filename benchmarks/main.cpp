// SPDX-License-Identifier: MIT
// Runs one benchmark as often as it is told to. The driver has two of these programs, one in C and one with the
// library, and gives them their turns: each line of stdin says how often, and is answered with what that took.
#include "bench.hpp"

#include <atomic>
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

  TEST        send, read, write: round trips; send_rate, write_rate: messages; connect: connections;
              loop_send, loop_post, loop_connect: in one event loop, loop_post waiting for each send where it is posted
  -s SIZE     bytes of a message (64)
  -e          wait for completions by event, rather than poll
  -b          with -e, in C alone: by a blocking get
  -p CPU      stay on this processor
  -a SERVER   the address to listen on (10.77.1.1)
  -c CLIENT   the address to connect from (10.77.1.2)

Then for each line "BATCHES TIMES" of stdin a line: the nanoseconds of each batch of so many times,
"phase=nanoseconds" for those that have phases, and "allocations=NUMBER", of all batches together.
)";

// What is allocated, by the C libraries below as well: glibc lets a program have functions of its own in place of
// these.
static std::atomic<unsigned long long> allocations{0};

#ifdef __GLIBC__
extern "C" {
void* __libc_malloc(std::size_t);
void* __libc_calloc(std::size_t, std::size_t);
void* __libc_realloc(void*, std::size_t);

void* malloc(std::size_t size) noexcept {
    allocations.fetch_add(1, std::memory_order_relaxed);
    return __libc_malloc(size);
}
void* calloc(std::size_t count, std::size_t size) noexcept {
    allocations.fetch_add(1, std::memory_order_relaxed);
    return __libc_calloc(count, size);
}
void* realloc(void* memory, std::size_t size) noexcept {
    allocations.fetch_add(1, std::memory_order_relaxed);
    return __libc_realloc(memory, size);
}
}
#endif

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
    if (wanted.test == "loop_send" || wanted.test == "loop_post" || wanted.test == "loop_connect")
        return bench::make_loop(wanted);
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
        spans.reserve(batches);
        bench::phases phases;
        unsigned long long const before = allocations;
        for (unsigned batch = 0; batch != batches; ++batch) {
            auto const begin = bench::clock::now();
            benchmark->run(times, phases);
            auto const end = bench::clock::now();
            spans.push_back(std::chrono::nanoseconds(end - begin).count());
        }
        unsigned long long const made = allocations - before;
        for (long long const span : spans)
            std::printf("%lld ", span);
        for (auto const& [phase, span] : phases.spans())
            std::printf("%s=%lld ", phase, span);
        std::printf("allocations=%llu", made);
        std::putchar('\n');
        std::fflush(stdout);
    }
} catch (std::exception const& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
}
