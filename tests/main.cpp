// SPDX-License-Identifier: MIT
// The main program of every Catch2 test binary, in a unit of its own because it takes long to compile.

#if __has_include(<catch2/catch_session.hpp>)
#include <catch2/catch_session.hpp>

int main(int argc, char* argv[]) { return Catch::Session().run(argc, argv); }
#else
#include <new> // see catch.hpp
#define CATCH_CONFIG_MAIN
#include <catch2/catch.hpp>
#endif
