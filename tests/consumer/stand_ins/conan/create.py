#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Plays `conan create RECIPE`, in WORK: exports the recipe, so that nothing of its first folder is in reach, gets the
sources, packages, and runs test_package against the package; with a VERSION (as `conan create --version`) it stops
before test_package. WORK/p is then the package.

    create.py RECIPE WORK [VERSION]
"""

import importlib.util
import os
import pathlib
import re
import shutil
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from conan import ConanFile  # noqa: E402  pylint: disable=wrong-import-position


class SystemRdmaCore(ConanFile):
    """rdma-core as Conan's index names it: its components, as targets of the machine's libraries."""
    name = 'rdma-core'

    def write_config(self, folder):
        text = '# found by rdmacpp-target.cmake as Conan\'s rdma-core\n'
        for component, requires in (('libibverbs', ''), ('librdmacm', 'rdma-core::libibverbs')):
            text += (f'if(NOT TARGET rdma-core::{component})\n'
                     f'  add_library(rdma-core::{component} INTERFACE IMPORTED)\n'
                     f'  set_target_properties(rdma-core::{component} PROPERTIES INTERFACE_LINK_LIBRARIES '
                     f'"{component[3:]};{requires}")\nendif()\n')
        text += 'message(STATUS "rdma-core of the stand-in for Conan")\n'
        (folder / 'rdma-core-config.cmake').write_text(text)


def load(folder):
    """An instance of the one recipe in folder/conanfile.py."""
    spec = importlib.util.spec_from_file_location(f'recipe_{folder.name}', folder / 'conanfile.py')
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found = [value for value in vars(module).values()
             if isinstance(value, type) and issubclass(value, ConanFile) and value is not ConanFile]
    if len(found) != 1:
        sys.exit(f'{len(found)} recipes in {folder}')
    return found[0](folder)


def conan_data(folder):
    """conandata.yml as packaging/release writes it, or None."""
    path = folder / 'conandata.yml'
    if not path.exists():
        return None
    match = re.fullmatch(r'sources:\n  "(.+)":\n    url: "(.+)"\n    sha256: "(.+)"\n', path.read_text())
    return {'sources': {match[1]: {'url': match[2], 'sha256': match[3]}}}


def folders(recipe, source, build):
    recipe.source_folder = str((source / recipe.folders.source).resolve())
    recipe.build_folder = str(build / recipe.folders.build)
    recipe.generators_folder = str(build / recipe.folders.generators)
    for folder in (recipe.source_folder, recipe.build_folder, recipe.generators_folder):
        os.makedirs(folder, exist_ok=True)


def package(recipe_folder, work, version):
    recipe = load(recipe_folder)
    recipe.version, recipe.conan_data = version, conan_data(recipe_folder)
    recipe.set_version()
    recipe.export_sources_folder = str(work / 'es')
    recipe.export_sources()
    (work / 'e').mkdir()
    for name in ('conanfile.py', 'conandata.yml'):
        if (recipe_folder / name).exists():
            shutil.copy2(recipe_folder / name, work / 'e' / name)
    print(f'exported {recipe.name}/{recipe.version}', flush=True)

    number, recipe = recipe.version, load(work / 'e')
    recipe.version, recipe.conan_data = number, conan_data(work / 'e')
    recipe.requirements()
    recipe.validate()
    recipe.package_id()
    recipe.layout()
    if (work / 'es').exists():
        shutil.copytree(work / 'es', work / 's')
    folders(recipe, work / 's', work / 'b')
    recipe.package_folder = str(work / 'p')
    recipe.source()
    recipe.generate()
    recipe.build()
    recipe.package()
    recipe.package_info()
    return recipe


def test_package(recipe_folder, work, made):
    test = load(recipe_folder / 'test_package')
    test.tested_reference_str = f'{made.name}/{made.version}'
    test.requirements()
    if list(test.required) != [test.tested_reference_str]:
        sys.exit(f'test_package requires {test.required}')
    test.dependencies = [made, SystemRdmaCore(work)]
    test.layout()
    folders(test, recipe_folder / 'test_package', work / 'test')
    test.generate()
    test.build()
    test.test()


def main():
    recipe_folder, work = (pathlib.Path(argument).resolve() for argument in sys.argv[1:3])
    work.mkdir(parents=True)
    made = package(recipe_folder, work, sys.argv[3] if len(sys.argv) > 3 else None)
    print(f'requires {made.required} {made.default_options}')
    print(f'package_info {made.cpp_info.requires} {made.cpp_info.system_libs}; any settings: {made.info.cleared}',
          flush=True)
    if len(sys.argv) <= 3:
        test_package(recipe_folder, work, made)


if __name__ == '__main__':
    main()
