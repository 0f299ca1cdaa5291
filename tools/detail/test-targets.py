#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Prints what ninja must build for the tests of some suites: meson has a target for all tests alone.

    test-targets.py BUILD SUITE...
"""

import json
import os
import subprocess
import sys


def introspect(build, what):
    command = ['meson', 'introspect', what, build]
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)


def main():
    build, *suites = sys.argv[1:]
    wanted = set()
    for test in introspect(build, '--tests'):
        if {suite.rpartition(':')[2] for suite in test['suite']} & set(suites):
            wanted.update(test['depends'])
    for target in introspect(build, '--targets'):
        if target['id'] in wanted:
            print(*(os.path.relpath(name, os.path.abspath(build)) for name in target['filename']), sep='\n')


if __name__ == '__main__':
    main()
