// SPDX-License-Identifier: MIT
// What every test includes, compiled once: Catch2 2 is a slow header.
#include "../catch.hpp"

#include <rdmacpp/rdmacpp.hpp>
