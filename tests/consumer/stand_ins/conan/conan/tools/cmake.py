# SPDX-License-Identifier: MIT
import os
import pathlib


def cmake_layout(conanfile, src_folder='.'):
    conanfile.folders.source = src_folder
    conanfile.folders.build = 'build/Release'
    conanfile.folders.generators = 'build/Release/generators'
    conanfile.cpp.build.bindirs = ['.']


class CMakeToolchain:
    """A toolchain file; the builddirs of what is required are where find_package looks first."""

    def __init__(self, conanfile):
        self.conanfile = conanfile
        self.user_presets_path = 'CMakeUserPresets.json'

    def generate(self):
        folder = pathlib.Path(self.conanfile.generators_folder)
        paths = [folder, *(pathlib.Path(package.package_folder) / directory for package in self.conanfile.dependencies
                           for directory in package.cpp_info.builddirs)]
        listed = ' '.join(f'"{path}"' for path in paths)
        (folder / 'conan_toolchain.cmake').write_text(
            f'set(CMAKE_FIND_PACKAGE_PREFER_CONFIG ON)\nlist(PREPEND CMAKE_PREFIX_PATH {listed})\n')


class CMakeDeps:
    """A config file for each package that is not found by its own."""

    def __init__(self, conanfile):
        self.conanfile = conanfile

    def generate(self):
        for package in self.conanfile.dependencies:
            if package.cpp_info.properties.get('cmake_find_mode') != 'none':
                package.write_config(pathlib.Path(self.conanfile.generators_folder))


class CMake:
    def __init__(self, conanfile):
        self.conanfile = conanfile

    def _cmake(self, *arguments):
        self.conanfile.run(' '.join(['cmake', *(f'"{argument}"' for argument in arguments)]))

    def configure(self):
        toolchain = os.path.join(self.conanfile.generators_folder, 'conan_toolchain.cmake')
        prefix = getattr(self.conanfile, 'package_folder', self.conanfile.build_folder)
        self._cmake('-S', self.conanfile.source_folder, '-B', self.conanfile.build_folder, '-DCMAKE_BUILD_TYPE=Release',
                    f'-DCMAKE_TOOLCHAIN_FILE={toolchain}', f'-DCMAKE_INSTALL_PREFIX={prefix}')

    def build(self):
        self._cmake('--build', self.conanfile.build_folder)

    def install(self):
        self._cmake('--install', self.conanfile.build_folder, '--prefix', self.conanfile.package_folder)
