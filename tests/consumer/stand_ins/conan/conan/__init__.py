# SPDX-License-Identifier: MIT
"""What packaging/conan uses of Conan 2, and no more, so that the recipe's logic runs where there is no Conan. Written
from Conan's documentation; create.py plays `conan create`."""

import os
import subprocess
import types


class _Settings(types.SimpleNamespace):
    def get_safe(self, name):
        return getattr(self, name.replace('.', '_'), None)


class _Component:
    """cpp_info: what a package tells its consumers."""

    def __init__(self):
        self.includedirs, self.libdirs, self.bindirs, self.builddirs = ['include'], ['lib'], ['bin'], []
        self.requires, self.system_libs, self.properties = [], [], {}

    def set_property(self, name, value):
        self.properties[name] = value


class _Info:
    def __init__(self):
        self.cleared = False

    def clear(self):
        self.cleared = True


class ConanFile:
    version = None
    conan_data = None
    default_options = {}
    settings = ()

    def __init__(self, recipe_folder):
        self.recipe_folder = str(recipe_folder)
        self.settings = _Settings(os='Linux', arch='x86_64', build_type='Release', compiler='gcc', compiler_cppstd='20')
        self.cpp_info, self.info = _Component(), _Info()
        self.cpp = types.SimpleNamespace(build=types.SimpleNamespace(bindirs=['bin']))
        self.folders = types.SimpleNamespace(source='', build='', generators='')
        self.required = {}
        self.dependencies = []  # the packages that this one, or the test, is built with

    def requires(self, reference, **traits):
        self.required[reference] = traits

    def run(self, command, env=None, cwd=None):
        del env
        print(f'+ {command}', flush=True)
        subprocess.run(command, shell=True, check=True, cwd=cwd or self.build_folder,
                       stdout=None, env={**os.environ, 'LC_ALL': 'C'})
