// SPDX-License-Identifier: MIT
#include "mixed.hpp"

#include <fake/fake.hpp>

#include <cstdio>

int main() {
    char const* const wrong = run_with_exceptions();
    if (wrong)
        std::printf("%s\n", wrong);
    std::string const leaks = fake::leaks();
    if (!leaks.empty())
        std::printf("leaks: %s\n", leaks.c_str());
    for (std::string const& line : fake::would_hang())
        std::printf("would hang: %s\n", line.c_str());
    for (std::string const& line : fake::misuse())
        std::printf("misuse: %s\n", line.c_str());
    return wrong || !leaks.empty() || !fake::would_hang().empty() || !fake::misuse().empty() ? 1 : 0;
}
