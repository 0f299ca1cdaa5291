// SPDX-License-Identifier: MIT
// Runs all snippets, each in a fresh world, and looks whether they left anything behind.
#include "snippets.hpp"

#include <unistd.h>

int main() {
    ::alarm(120); // what waits for ever is a failure
    struct {
        char const* name;
        void (*run)();
    } const all[] = {{"first_steps", first_steps},   {"overview", overview}, {"readme", readme},
                     {"lifetimes", lifetimes},       {"threads", threads},   {"errors", errors},
                     {"private_data", private_data}, {"timeouts", timeouts}, {"loops", loops},
                     {"coroutines", coroutines},     {"testing", testing},
#if SNIPPETS_ASIO
                     {"coroutines on Asio", with_asio},
#endif
                     {"operations", operations},     {"security", security}};
    for (auto const& [name, run] : all) {
        fake::reset();
        run();
        SNIPPET_CHECK(fake::leaks() == "");
        SNIPPET_CHECK(fake::misuse().empty());
        SNIPPET_CHECK(fake::would_hang().empty());
        std::printf("-- the snippets of %s do what they say\n", name);
    }
}
