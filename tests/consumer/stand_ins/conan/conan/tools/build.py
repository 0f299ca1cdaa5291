# SPDX-License-Identifier: MIT
from conan.errors import ConanInvalidConfiguration


def check_min_cppstd(conanfile, wanted):
    if int(str(conanfile.settings.get_safe('compiler.cppstd')).replace('gnu', '')) < int(wanted):
        raise ConanInvalidConfiguration(f'needs C++{wanted}')


def can_run(conanfile):
    del conanfile
    return True
