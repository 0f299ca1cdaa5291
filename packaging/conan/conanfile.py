# SPDX-License-Identifier: MIT
"""Conan 2. In a checkout: `conan create packaging/conan`. packaging/release makes the form for an index, whose
conandata.yml names the archive of a release."""

import os
import re

from conan import ConanFile
from conan.errors import ConanInvalidConfiguration
from conan.tools.build import check_min_cppstd
from conan.tools.cmake import CMake, CMakeToolchain, cmake_layout
from conan.tools.files import copy, get, load, rename, rmdir

required_conan_version = ">=2.0"


class RdmacppConan(ConanFile):
    name = "rdmacpp"
    description = "C++20 for librdmacm and libibverbs: every event acknowledged, every object destroyed in order"
    license = "MIT"
    homepage = "https://rdmacpp.invalid"
    url = "https://rdmacpp.invalid"
    topics = ("rdma", "rdma-core", "librdmacm", "libibverbs", "infiniband", "roce", "iwarp", "header-only")
    package_type = "header-library"
    settings = "os", "arch", "compiler", "build_type"
    # Older recipes of rdma-core leave librdmacm out.
    default_options = {"rdma-core/*:build_librdmacm": True}
    no_copy_source = True

    @property
    def _checkout(self):
        return os.path.join(self.recipe_folder, "..", "..")

    def set_version(self):
        # The only place of the version is version.hpp. A recipe in an index is told its version.
        if not self.version:
            header = load(self, os.path.join(self._checkout, "include", "rdmacpp", "version.hpp"))
            self.version = ".".join(re.findall(r"^#define RDMACPP_VERSION_[A-Z]+ +(\d+)$", header, re.MULTILINE))

    def export_sources(self):
        if not self.conan_data:
            for pattern in ("CMakeLists.txt", "LICENSE", "include/*.hpp", "packaging/cmake/*", "packaging/pkgconfig/*",
                            "tools/gdb/*.py"):
                copy(self, pattern, self._checkout, self.export_sources_folder)

    def source(self):
        if self.conan_data:
            get(self, **self.conan_data["sources"][self.version], strip_root=True)

    def layout(self):
        cmake_layout(self, src_folder="src" if self.conan_data else ".")

    def requirements(self):
        # What includes rdmacpp calls both C libraries from its own objects.
        self.requires("rdma-core/[>=49.0]", transitive_headers=True, transitive_libs=True)

    def package_id(self):
        self.info.clear()

    def validate(self):
        if self.settings.os not in ("Linux", "FreeBSD"):
            raise ConanInvalidConfiguration("rdmacpp needs rdma-core, which is not for " + str(self.settings.os))
        if self.settings.get_safe("compiler.cppstd"):
            check_min_cppstd(self, 20)

    def generate(self):
        CMakeToolchain(self).generate()

    def build(self):
        CMake(self).configure()

    def package(self):
        CMake(self).install()
        licence = os.path.join(self.package_folder, "share", "licenses")
        os.makedirs(os.path.join(self.package_folder, "licenses"))
        rename(self, os.path.join(licence, "rdmacpp", "LICENSE"),
               os.path.join(self.package_folder, "licenses", "LICENSE"))
        rmdir(self, licence)

    def package_info(self):
        self.cpp_info.bindirs = []
        self.cpp_info.libdirs = []
        self.cpp_info.requires = ["rdma-core::librdmacm", "rdma-core::libibverbs"]
        self.cpp_info.system_libs = ["pthread"]
        self.cpp_info.set_property("pkg_config_name", "rdmacpp")
        # The CMake package is our own, the one that is installed everywhere: it takes rdma-core's targets from Conan.
        self.cpp_info.set_property("cmake_find_mode", "none")
        self.cpp_info.builddirs = [os.path.join("share", "cmake", "rdmacpp")]
