#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Print the version of the library, read from the one place where it stands: include/rdmacpp/version.hpp."""

import pathlib
import re
import sys

HEADER = pathlib.Path(__file__).resolve().parent.parent / 'include' / 'rdmacpp' / 'version.hpp'


def read_version(text):
    parts = []
    for part in ('MAJOR', 'MINOR', 'PATCH'):
        found = re.findall(rf'^[ \t]*#[ \t]*define[ \t]+RDMACPP_VERSION_{part}[ \t]+(\d+)\b', text, re.MULTILINE)
        if len(found) != 1:
            raise ValueError(f'{len(found)} definitions of RDMACPP_VERSION_{part}, expected one')
        parts.append(found[0])
    return '.'.join(parts)


if __name__ == '__main__':
    try:
        print(read_version(HEADER.read_text(encoding='ascii')))
    except (OSError, ValueError) as failure:
        sys.exit(f'{HEADER}: {failure}')
