// SPDX-License-Identifier: MIT
/// @file
/// The version of rdmacpp: this is the only place where it stands, the build reads it from here.
#pragma once

#ifdef RDMACPP_VERSION
#error "rdmacpp: two versions or copies in one translation unit; use one, or keep them in separate shared objects"
#define RDMACPP_TWO_VERSIONS // the other headers then declare nothing: one error, and none that follows from it
#else

/// The parts of the version; all three are plain numbers.
#define RDMACPP_VERSION_MAJOR 0
/// See RDMACPP_VERSION_MAJOR.
#define RDMACPP_VERSION_MINOR 1
/// See RDMACPP_VERSION_MAJOR.
#define RDMACPP_VERSION_PATCH 0

/// The version as one number: major * 10000 + minor * 100 + patch.
#define RDMACPP_VERSION (RDMACPP_VERSION_MAJOR * 10000 + RDMACPP_VERSION_MINOR * 100 + RDMACPP_VERSION_PATCH)

/// The inline namespace. While the version is 0.y it changes with y, since layouts may; from 1.0 on with the major
/// alone.
#define RDMACPP_ABI v0_1

#endif
