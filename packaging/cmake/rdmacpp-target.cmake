# SPDX-License-Identifier: MIT
# The target rdmacpp::rdmacpp, of the headers in rdmacpp_INCLUDE_DIR. Included by the installed rdmacpp-config.cmake,
# and by CMakeLists.txt where the sources are a part of another build.
#
# librdmacm and libibverbs are both public: the calls to both are in the objects of whoever includes the headers.
# rdma-core itself installs no CMake package, so that they are looked for, in this order:
#   1. targets: those of Conan's rdma-core (rdma-core::librdmacm, rdma-core::libibverbs)
#   2. pkg-config, which also knows vcpkg's, by CMAKE_PREFIX_PATH
#   3. find_path and find_library
# Archives are linked where there is nothing else (vcpkg, unless told otherwise), or with rdmacpp_USE_STATIC_LIBS set
# before. They cannot load drivers when the program runs: those that rdmacpp_STATIC_PROVIDERS names, all unless it is
# set, are linked too, and the first rdma::device_list::get() or ibv_get_device_list of the program makes them known.

if(NOT TARGET rdmacpp::rdmacpp)
  set(rdmacpp_missing "")
  set(rdmacpp_includes "${rdmacpp_INCLUDE_DIR}")
  set(rdmacpp_libraries "")
  set(rdmacpp_definitions "")

  find_package(Threads QUIET)
  if(NOT Threads_FOUND)
    set(rdmacpp_missing "rdmacpp needs threads, which CMake finds for C and C++ alone: project(... LANGUAGES CXX)")
  endif()

  if(NOT TARGET rdma-core::librdmacm OR NOT TARGET rdma-core::libibverbs)
    find_package(rdma-core CONFIG QUIET)
  endif()
  find_package(PkgConfig QUIET)
  if(TARGET rdma-core::librdmacm AND TARGET rdma-core::libibverbs)
    set(rdmacpp_libraries rdma-core::librdmacm rdma-core::libibverbs)
  elseif(PkgConfig_FOUND)
    pkg_check_modules(rdmacpp_RDMA_CORE QUIET IMPORTED_TARGET GLOBAL librdmacm libibverbs)
    if(rdmacpp_RDMA_CORE_FOUND
        AND (rdmacpp_USE_STATIC_LIBS OR rdmacpp_RDMA_CORE_LINK_LIBRARIES MATCHES "libibverbs\\.a"))
      list(APPEND rdmacpp_includes ${rdmacpp_RDMA_CORE_STATIC_INCLUDE_DIRS})
      list(REMOVE_DUPLICATES rdmacpp_RDMA_CORE_STATIC_LIBRARIES)
      # The C library's own stay as the rest of the program links them.
      list(FILTER rdmacpp_RDMA_CORE_STATIC_LIBRARIES EXCLUDE REGEX "^(pthread|dl|rt|m|c)$")
      foreach(rdmacpp_name IN LISTS rdmacpp_RDMA_CORE_STATIC_LIBRARIES)
        find_library(rdmacpp_${rdmacpp_name}_ARCHIVE "lib${rdmacpp_name}.a"
          HINTS ${rdmacpp_RDMA_CORE_STATIC_LIBRARY_DIRS})
        mark_as_advanced(rdmacpp_${rdmacpp_name}_ARCHIVE)
        if(rdmacpp_${rdmacpp_name}_ARCHIVE)
          list(APPEND rdmacpp_libraries "${rdmacpp_${rdmacpp_name}_ARCHIVE}")
        elseif(rdmacpp_name MATCHES "^(rdmacm|ibverbs)$")
          set(rdmacpp_missing "rdmacpp_USE_STATIC_LIBS is set, and there is no lib${rdmacpp_name}.a of rdma-core")
        else()
          list(APPEND rdmacpp_libraries "-l${rdmacpp_name}")
        endif()
      endforeach()
      # libibverbs and its drivers need each other.
      set(rdmacpp_libraries -Wl,--start-group ${rdmacpp_libraries} -Wl,--end-group)
      if(NOT DEFINED rdmacpp_STATIC_PROVIDERS)
        set(rdmacpp_STATIC_PROVIDERS all)
      endif()
      set(rdmacpp_definitions "RDMA_STATIC_PROVIDERS=${rdmacpp_STATIC_PROVIDERS}")
    elseif(rdmacpp_RDMA_CORE_FOUND)
      set(rdmacpp_libraries PkgConfig::rdmacpp_RDMA_CORE)
    endif()
  endif()
  if(NOT rdmacpp_libraries)
    find_path(rdmacpp_RDMA_CORE_INCLUDE_DIR rdma/rdma_cma.h)
    find_library(rdmacpp_RDMACM_LIBRARY rdmacm)
    find_library(rdmacpp_IBVERBS_LIBRARY ibverbs)
    mark_as_advanced(rdmacpp_RDMA_CORE_INCLUDE_DIR rdmacpp_RDMACM_LIBRARY rdmacpp_IBVERBS_LIBRARY)
    if(rdmacpp_RDMA_CORE_INCLUDE_DIR AND rdmacpp_RDMACM_LIBRARY AND rdmacpp_IBVERBS_LIBRARY)
      list(APPEND rdmacpp_includes "${rdmacpp_RDMA_CORE_INCLUDE_DIR}")
      set(rdmacpp_libraries "${rdmacpp_RDMACM_LIBRARY}" "${rdmacpp_IBVERBS_LIBRARY}")
    elseif(NOT rdmacpp_missing)
      set(rdmacpp_missing "rdmacpp needs librdmacm and libibverbs of rdma-core, and found neither CMake targets of \
them, nor librdmacm.pc and libibverbs.pc, nor the files. Install their development packages (Debian: librdmacm-dev \
libibverbs-dev; Fedora: rdma-core-devel; Conan and vcpkg: rdma-core), or add their prefix to CMAKE_PREFIX_PATH")
    endif()
  endif()

  if(rdmacpp_missing)
    set(rdmacpp_FOUND FALSE)
    set(rdmacpp_NOT_FOUND_MESSAGE "${rdmacpp_missing}")
  else()
    # Imported also where the sources are a part of another build: whatever that build exports may then link it.
    add_library(rdmacpp::rdmacpp INTERFACE IMPORTED ${rdmacpp_SCOPE})
    set_target_properties(rdmacpp::rdmacpp PROPERTIES
      INTERFACE_INCLUDE_DIRECTORIES "${rdmacpp_includes}"
      INTERFACE_COMPILE_FEATURES cxx_std_20
      INTERFACE_COMPILE_DEFINITIONS "${rdmacpp_definitions}"
      INTERFACE_LINK_LIBRARIES "${rdmacpp_libraries};Threads::Threads")
  endif()

  foreach(rdmacpp_name IN ITEMS missing includes libraries definitions)
    unset(rdmacpp_${rdmacpp_name})
  endforeach()
  unset(rdmacpp_name)
endif()
