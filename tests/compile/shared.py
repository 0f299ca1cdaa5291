#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Shared objects in one process, each built with -fvisibility=hidden and -fvisibility-inlines-hidden.

    shared.py LIBRARY

LIBRARY is the fake's (tests/fake), which is in the program. Two of the same version have one set of error categories,
one hook and one table of what is owned, and catch each other's rdma::error; one is made from the separate headers and
one from the single header, by g++ and by clang. Two of different versions work beside each other, and hand over C
pointers. Both linked to the program and loaded by it, with RTLD_GLOBAL and RTLD_LOCAL.

With RTLD_LOCAL the loader keeps apart what is not a unique symbol, which g++ makes and clang does not: two of one
version of which clang made one are then as two versions, but for the type of what they throw.
"""

import pathlib
import re
import subprocess
import sys

import ring
import versions

HERE = pathlib.Path(__file__).resolve().parent / 'shared'
FAKE = ring.ROOT / 'tests' / 'fake' / 'include'
THROWN = ['error', 'connect_error']
HIDDEN = ['-fvisibility=hidden', '-fvisibility-inlines-hidden']


def build_library(compiler, include, target, extra=HIDDEN):
    status, output = compiler.run([*ring.flags('c++20', include), '-O0', '-fPIC', '-shared', *extra, '-o', str(target),
                                   str(HERE / 'library.cpp')])
    if status != 0:
        sys.exit(f'{compiler} cannot build the library:\n{output}')
    return target


def without_exports(target):
    """The headers, but nothing of them has default visibility."""
    versions.copy_of(ring.INCLUDE, target)
    config = target / 'rdmacpp' / 'config.hpp'
    text = config.read_text(encoding='utf-8')
    changed = text.replace('visibility("default")', 'visibility("hidden")')
    if changed == text:
        sys.exit('RDMACPP_EXPORT is not defined as it was')
    config.write_text(changed, encoding='utf-8')
    return target


def exported(library):
    command = ['nm', '-DC', '--defined-only', str(library)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def build_programs(compiler, fake, directory, linked):
    """{way of loading: program}: one that loads the libraries itself, and for each of these pairs one linked to it."""
    objects = pathlib.Path(directory) / 'main.o'
    status, output = compiler.run([*ring.flags('c++20', FAKE), '-O0', '-c', '-o', str(objects), str(HERE / 'main.cpp')])
    if status != 0:
        sys.exit(f'{compiler} cannot build the program:\n{output}')
    common = [str(objects), '-rdynamic', '-Wl,--whole-archive', str(fake), '-Wl,--no-whole-archive', '-pthread', '-ldl']
    programs = {}
    for name, libraries in {'': [], **linked}.items():
        programs[name] = pathlib.Path(directory) / f'main{len(programs)}'
        status, output = compiler.run([*common, '-Wl,--no-as-needed', *map(str, libraries), '-o', str(programs[name])])
        if status != 0:
            sys.exit(f'the program does not link:\n{output}')
    return programs


def run(program, expectation, mode, libraries):
    """(whether all is well, what it printed)"""
    done = subprocess.run([str(program), expectation, mode, *map(str, libraries)], text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, check=False, timeout=120)
    lines = done.stdout.splitlines()
    good = done.returncode == 0 and len(lines) > 5 and all(line.startswith('ok ') for line in lines)
    return good, f'{done.stdout}exit status {done.returncode}'


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    fake = pathlib.Path(sys.argv[1]).resolve()
    found = ring.need_compilers()
    gcc = [compiler for compiler in found if compiler.family == 'gcc'][-1:]
    clang = [compiler for compiler in found if compiler.family == 'clang'][:1]
    tap = ring.Tap()
    tap.skips()
    with ring.scratch() as directory:
        path = pathlib.Path(directory)
        current = path / 'current'
        versions.amalgamate(ring.INCLUDE, current)
        _, another = versions.another_version(directory)
        work = {}
        for compiler in gcc + clang:
            work[f'{compiler.family}, headers'] = (compiler, ring.INCLUDE, path / f'lib{compiler.family}_headers.so')
            work[f'{compiler.family}, single'] = (compiler, current, path / f'lib{compiler.family}_single.so')
        first = (gcc + clang)[0]
        work['another version'] = (first, another, path / 'libanother.so')
        work['nothing exported'] = (first, without_exports(path / 'hidden'), path / 'libhidden.so')
        names, built = list(work), ring.in_parallel(lambda item: build_library(*item), work.values())
        library = dict(zip(names, built))

        pairs = [(f'{compiler.family}, headers', f'{compiler.family}, single') for compiler in gcc + clang]
        pairs += [(f'{a.family}, headers', f'{b.family}, single') for a in gcc for b in clang]
        pairs += [(f'{first.family}, single', 'another version')]
        pairs = {f'{one} and {other}': [library[one], library[other]] for one, other in pairs}
        programs = build_programs(first, fake, directory, pairs)
        for name, libraries in pairs.items():
            for how, program, mode in (('linked', programs[name], 'global'), ('loaded', programs[''], 'global'),
                                       ('loaded', programs[''], 'local')):
                expectation = 'another' if 'another' in name else \
                    'apart' if 'clang' in name and mode == 'local' else 'one'
                good, output = run(program, expectation, mode, libraries)
                tap.check(good, f'{name}, {how} {mode}: {expectation}', output)
        # Where types are compared by address, as libc++ does, catching them takes more than their names.
        for name in names[:-1]:
            symbols = exported(library[name])
            missing = [thrown for thrown in THROWN
                       if not re.search(rf'typeinfo for rdma::\w+::{thrown}$', symbols, re.M)]
            tap.check(not missing, f'{name}: the types of what is thrown are exported', ', '.join(missing))
        good, output = run(programs[''], 'one', 'global', [library['nothing exported'], library[names[1]]])
        tap.check(not good, 'control: where nothing is exported, the two are not one', output)
    tap.done()


if __name__ == '__main__':
    main()
