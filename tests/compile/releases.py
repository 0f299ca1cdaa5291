#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The headers compile with the rdma-core of each of Debian's releases, and find out what it has.

The C headers come from tools/detail/release-headers, which tools/test calls before. For each release and compiler
releases/features.cpp is compiled, which includes everything and says what is there from which version on; the files of
the unit ring that are for newer versions (v60) compile with the newest headers as they are, without the fake's
stand-ins, and some of its others with the oldest.
"""

import os
import re

import ring

FEATURES = ring.ROOT / 'tests' / 'compile' / 'releases' / 'features.cpp'
FOLDER = ring.ROOT / 'build' / 'releases'
SCRIPT = 'tools/detail/release-headers'

# What has to be there, by the major version: the oldest supported, and one from before and after each change.
WANTED = [33, 44, 56, 60]

# Of the unit ring, on the oldest headers: what they declare most of.
OLDEST = ['drop_order.cpp', 'newer.cpp']


def releases():
    """[(name, version, folder of its headers)], oldest first"""
    found = []
    try:
        lines = (FOLDER / 'versions').read_text(encoding='utf-8').splitlines()
    except OSError:
        lines = []
    for line in lines:
        release, version, _ = line.split()
        include = FOLDER / version / 'usr' / 'include'
        if (include / 'rdma' / 'rdma_cma.h').is_file():
            found.append((release, version, include))
    return sorted(found, key=lambda item: major(item[1]))


def major(version):
    return int(version.split('.')[0])


def flags(include, standard='c++20', extra=()):
    return [f'-std={standard}', *ring.WARNINGS, '-I', str(ring.INCLUDE), '-isystem', str(include), '-fsyntax-only',
            *extra]


def features(compiler, include, version, standard):
    return compiler.run([*flags(include, standard), f'-DRDMA_CORE={major(version)}', str(FEATURES)])


def unit_file(compiler, include, name):
    tests = ring.ROOT / 'tests'
    return compiler.run([*flags(include), '-I', str(tests), '-I', str(tests / 'fake' / 'include'),
                         '-DRDMACPP_ON_FAKE=1', str(tests / 'unit' / name)])


def unknown():
    """The concepts of detail/newer.hpp that releases/features.cpp does not look at."""
    asked = re.findall(r'^concept (\w+)', (ring.PROJECT / 'detail' / 'newer.hpp').read_text(encoding='utf-8'), re.M)
    return [name for name in asked if f'detail::{name}<' not in FEATURES.read_text(encoding='utf-8')]


def missing(found):
    """The versions of WANTED that are not there; the last one stands for all that are newer."""
    there = {min(major(version), WANTED[-1]) for _, version, _ in found}
    return [wanted for wanted in WANTED if wanted not in there]


def main():
    compilers = ring.need_compilers()
    tap = ring.Tap()
    found = releases()
    if missing(found):
        name = 'the headers of every release are there'
        reason = f'rdma-core {", ".join(map(str, missing(found)))} is not in build/releases: {SCRIPT} fetches it'
        if os.environ.get('CI'):
            tap.not_ok(name, reason)
        else:
            tap.skip(name, reason)
    tap.skips()
    tap.check(not unknown(), f'{FEATURES.name} looks at all that detail/newer.hpp asks', ', '.join(unknown()))
    if not found:
        tap.done()

    (_, oldest, old_include), (_, newest, new_include) = found[0], found[-1]
    work = {}
    for release, version, include in found:
        runs = [(compiler, 'c++20') for compiler in compilers]
        if version == newest: # what differs between the standards is ours, not C's
            runs.append((compilers[-1], ring.STANDARDS[-1]))
        for compiler, standard in runs:
            work[f'rdma-core {version} ({release}), {compiler}, {standard}'] = (
                features, compiler, include, version, standard)
    for path in sorted((ring.ROOT / 'tests' / 'unit' / 'v60').glob('*.cpp')):
        if major(newest) >= 60:
            name = f'v60/{path.name}'
            work[f'{name} with rdma-core {newest}'] = (unit_file, compilers[0], new_include, name)
    for name in OLDEST:
        work[f'{name} with rdma-core {oldest}'] = (unit_file, compilers[0], old_include, name)
    controls = [] if oldest == newest else [(features, compilers[0], old_include, newest, 'c++20'),
                                            (features, compilers[0], new_include, oldest, 'c++20')]

    results = ring.in_parallel(lambda item: item[0](*item[1:]), controls + list(work.values()))
    tap.check(all(status != 0 for status, _ in results[:len(controls)]),
              'control: headers of another version are noticed')
    for name, (status, output) in zip(work, results[len(controls):]):
        tap.check(status == 0, name, output)
    tap.done()


if __name__ == '__main__':
    main()
