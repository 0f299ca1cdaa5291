#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The headers, and some files of the unit ring, compile with libc++ in place of libstdc++: with the first clang that has
one. What a newer libc++ does is told by tools/matrix, which also runs the unit ring with it.
"""

import os

import ring

# Of the unit ring: what of the library meets the standard library most. libc++ 14 has no jthread, which others use.
FILES = ['address.cpp', 'drop_order.cpp']

TESTS = ring.ROOT / 'tests'


def compiled(compiler, standard, source=None, *more):
    return compiler.run([*ring.flags(standard), '-stdlib=libc++', '-fsyntax-only', *more], source)


def main():
    clangs = [compiler for compiler in ring.compilers() if compiler.family == 'clang']
    able = [compiler for compiler in clangs
            if compiled(compiler, 'c++20', '#include <version>\nstatic_assert(_LIBCPP_VERSION > 0);\n')[0] == 0]
    tap = ring.Tap()
    if not able:
        reason = 'no clang here has libc++ (Debian 12: libc++-14-dev, libc++abi-14-dev)'
        if not os.environ.get('CI'):
            ring.skip_all(reason)
        tap.not_ok('a clang with libc++', reason)
        tap.done()
    clang = able[0]

    missing = '#include <string>\n#if defined(__GLIBCXX__)\n#error "libstdc++"\n#endif\n'
    tap.check(compiled(clang, 'c++20', missing)[0] == 0, 'control: it is not libstdc++')

    everything = ring.including(['rdmacpp/rdmacpp.hpp'])
    work = {f'all headers, {clang}, {standard}': (standard, everything) for standard in ring.STANDARDS}
    work[f'all headers, {clang}, c++20 -fno-exceptions -fno-rtti'] = (
        'c++20', everything, '-fno-exceptions', '-fno-rtti')
    for name in FILES:
        work[f'{name}, {clang}, c++20'] = (
            'c++20', None, '-I', str(TESTS), '-I', str(TESTS / 'fake' / 'include'), '-DRDMACPP_ON_FAKE=1',
            str(TESTS / 'unit' / name))
    results = ring.in_parallel(lambda item: compiled(clang, *item), list(work.values()))
    for name, (status, output) in zip(work, results):
        tap.check(status == 0, name, output)
    tap.done()


if __name__ == '__main__':
    main()
