// SPDX-License-Identifier: MIT
// Loads two shared objects and says, line by line, whether they get on: ok NAME, or not ok NAME.
//
//     main one|apart|another local|global LIBRARY LIBRARY
//
// `one` asks for one hook, one set of categories and one type of exception in the process; `apart`, for two of one
// version that the loader keeps apart, for what does not depend on that; `another` that two versions work beside each
// other.
#include "shared.hpp"

#include <fake/fake.hpp>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <string>

#include <dlfcn.h>

namespace {

bool all_well = true;

void check(bool good, char const* name, char const* detail = nullptr) {
    bool const explain = detail && !good;
    std::printf("%s %s%s%s\n", good ? "ok" : "not ok", name, explain ? ": " : "", explain ? detail : "");
    all_well = all_well && good;
}

shared::interface const& load(char const* path, int mode) {
    void* const library = ::dlopen(path, RTLD_NOW | mode);
    if (!library) {
        std::printf("not ok %s\n", ::dlerror());
        std::exit(1);
    }
    auto const get = reinterpret_cast<shared::interface const* (*)()>(::dlsym(library, "shared_interface"));
    return *get();
}

bool is(char const* text, char const* expected) { return std::strcmp(text, expected) == 0; }

void understand_each_other(shared::interface const& a, shared::interface const& b) {
    check(is(a.version, b.version), "the libraries have one version", b.version);
    check(is(b.caught(a.throw_error), "error"), "rdma::error of one is caught as such in the other",
          b.caught(a.throw_error));
    check(is(b.caught(a.throw_connect_error), "connect_error"), "and so is rdma::connect_error",
          b.caught(a.throw_connect_error));
    check(b.is_refused(a.refused()) && b.is_refused({ECONNREFUSED, std::system_category()}),
          "an error code of one is the condition of the other");
    try {
        a.throw_error();
    } catch (std::system_error const& e) {
        check(a.is_empty_handle(e.code()), "the program catches it as std::system_error");
    }
}

void one_of_everything(shared::interface const& a, shared::interface const& b) {
    understand_each_other(a, b);
    bool same = true;
    for (std::size_t index = 0; index != std::size(a.categories); ++index)
        same = same && a.categories[index] == b.categories[index];
    check(same, "the categories are the same objects");
    check(b.is_empty_handle(a.empty_handle()), "an error code of one is an rdma::errc of the other");

    a.install_hook();
    int const before = a.hook_calls();
    char const* const wrong = b.open();
    check(!wrong, "the other makes a channel, an id and a PD", wrong);
    if (wrong)
        return;
    // As the other's, they are in its tables: if these are not one for all, somebody could take them twice.
    check(a.channel_is_owned(b.channel()) && a.id_is_owned(b.channel(), b.id()) && a.pd_is_owned(b.pd()),
          "what the other owns, one does not adopt");
    fake::fail("ibv_dealloc_pd", 1, EIO);
    b.close();
    check(a.hook_calls() == before + 1, "the hook that one has installed is told of the other's failure");
}

void beside_each_other(shared::interface const& a, shared::interface const& b) {
    check(!is(a.version, b.version), "the libraries have different versions", a.version);
    check(is(a.caught(a.throw_error), "error") && is(a.caught(a.throw_connect_error), "connect_error"),
          "each catches its own errors", a.caught(a.throw_error));
    check(is(b.caught(a.throw_error), "system_error"), "those of the other are std::system_error",
          b.caught(a.throw_error));
    check(a.is_empty_handle(a.empty_handle()) && !b.is_empty_handle(a.empty_handle()),
          "each knows its own error codes alone");
    check(b.is_refused(a.refused()) && a.is_refused(a.refused()), "the portable condition holds for both");
    char const* const wrong = a.open();
    check(!wrong, "a channel, an id and a PD", wrong);
    int const before = b.hook_calls();
    b.install_hook();
    fake::fail("ibv_dealloc_pd", 1, EIO);
    a.install_hook();
    int const own = a.hook_calls();
    a.close();
    check(a.hook_calls() == own + 1 && b.hook_calls() == before, "each has a hook of its own");
}

} // namespace

int main(int argc, char* argv[]) {
    if (argc != 5)
        return 2;
    int const mode = is(argv[2], "local") ? RTLD_LOCAL : RTLD_GLOBAL;
    shared::interface const& first = load(argv[3], mode);
    shared::interface const& second = load(argv[4], mode);
    check(&first != &second, "two libraries");
    auto* const checks = is(argv[1], "one")     ? one_of_everything
                         : is(argv[1], "apart") ? understand_each_other
                                                : beside_each_other;
    checks(first, second);
    checks(second, first);

    void* channel = first.release_channel();
    char const* wrong = second.use_channel(channel);
    check(!wrong, "a channel of the first crosses as a C pointer to the second", wrong);
    channel = second.release_channel();
    wrong = first.use_channel(channel);
    check(!wrong, "and one of the second to the first", wrong);

    std::string troubles;
    for (std::string const& line : fake::would_hang())
        troubles += line + "; ";
    for (std::string const& line : fake::misuse())
        troubles += line + "; ";
    check(troubles.empty(), "nothing would hang, nothing is misused", troubles.c_str());
    fake::population const live = fake::live();
    check(live.channels == 0 && live.ids == 0 && live.events == 0 && live.pds == (is(argv[1], "apart") ? 0 : 2),
          "nothing is left but the PDs whose ends failed", fake::leaks().c_str());
    return all_well ? 0 : 1;
}
