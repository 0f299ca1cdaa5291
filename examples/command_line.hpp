// SPDX-License-Identifier: MIT
// What the command lines of the examples have in common: options of one letter, --help, and the exit codes 0, 1 when
// something failed, 2 for wrong options.
#pragma once

#include <charconv>
#include <csignal>
#include <cstdio>
#include <exception>
#include <limits>
#include <stdexcept>
#include <string>
#include <string_view>

#include <getopt.h>

namespace command_line {

struct wrong : std::runtime_error {
    using std::runtime_error::runtime_error;
};

/// An option's value, as a number.
template <class Number>
Number number(std::string_view text, Number low = 1, Number high = std::numeric_limits<Number>::max()) {
    Number value{};
    auto const [end, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (failed != std::errc{} || end != text.data() + text.size() || value < low || value > high)
        throw wrong("\"" + std::string(text) + "\" is no number from " + std::to_string(low) + " to " +
                    std::to_string(high));
    return value;
}

/// Runs a program: `options.set(letter, value)` for each option, and then `program(options)`.
/// @param usage its first word is the program's name
/// @param letters as getopt has them; the words after the options are set as '+'
template <class Options, class Program>
int run(int argc, char** argv, std::string_view usage, std::string letters, Program program) {
    std::string const name(usage.substr(0, usage.find(' ')));
    try {
        Options options;
        letters.insert(0, "+:");
        static constexpr option long_options[] = {{"help", no_argument, nullptr, 'h'}, {}};
        ::opterr = 0; // what is wrong is said here
        for (int found; (found = ::getopt_long(argc, argv, letters.c_str(), long_options, nullptr)) != -1;) {
            if (found == 'h') {
                std::fwrite(usage.data(), 1, usage.size(), stdout);
                return 0;
            }
            if (found == ':')
                throw wrong(std::string("-") + static_cast<char>(::optopt) + " needs a value");
            if (found == '?')
                throw wrong(std::string("unknown option ") + argv[::optind - 1]);
            options.set(static_cast<char>(found), ::optarg ? ::optarg : "");
        }
        for (; ::optind != argc; ++::optind)
            options.set('+', argv[::optind]);
        options.check();
        std::signal(SIGPIPE, SIG_IGN);            // soft-iWARP raises it in ibv_post_send when the peer has just gone
        std::setvbuf(stdout, nullptr, _IOLBF, 0); // whoever waits for a line gets it at once, also through a pipe
        program(options);
        return 0;
    } catch (wrong const& e) {
        std::fprintf(stderr, "%s: %s (%s --help tells more)\n", name.c_str(), e.what(), name.c_str());
        return 2;
    } catch (std::exception const& e) {
        std::fprintf(stderr, "%s: %s\n", name.c_str(), e.what());
        return 1;
    }
}

} // namespace command_line
