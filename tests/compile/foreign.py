#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A unit in which others use our names: a foreign namespace rdma at the top, which has a detail of its own and
functions that take whatever they are given, and a namespace app::rdma that is in sight everywhere. Before our headers,
and behind them.

    tests/compile/foreign/program.cpp, and a program of examples/ with those names around it
"""

import ring

HERE = ring.ROOT / 'tests' / 'compile' / 'foreign'
EXAMPLES = ['exchange.cpp']


def compile_foreign(compiler, path, include, extra):
    return compiler.run([*ring.flags('c++20', include), '-fsyntax-only', '-I', str(HERE), *extra, str(path)])


# Each is a fault of a header, and its cure.
CONTROLS = {
    'a name that is not qualified': ('rdma::cm_id x;', '::rdma::cm_id x;'),
    'the detail of everybody': ('::rdma::detail::ours x;', '::rdma::v1::detail::ours x;'),
    'a call of anybody': ('inline void f(::rdma::v1::cm_id& a, ::rdma::v1::cm_id& b) { a = move(b); }',
                          'inline void f(::rdma::v1::cm_id& a, ::rdma::v1::cm_id& b) { a = std::move(b); }'),
}
HEADER = '''#pragma once
#include <utility>
namespace rdma::inline v1 { struct cm_id {}; namespace detail { struct ours {}; } using std::move; }
'''


def controls(tap, compiler):
    wrong = []
    for name, lines in CONTROLS.items():
        for line, expected in zip(lines, (False, True)):
            with ring.scratch() as directory:
                include = ring.write(directory, {'ours.hpp': HEADER + line + '\n',
                                                 'unit.cpp': '#include "foreign.hpp"\nusing namespace app;\n'
                                                             '#include <ours.hpp>\n'})
                status, output = compile_foreign(compiler, include / 'unit.cpp', include, [])
                if (status == 0) != expected:
                    wrong.append(f'{name}: {line}: exit status {status}\n{output}')
    tap.check(not wrong, 'control: a name that is not qualified is found', '\n'.join(wrong))


def main():
    found = ring.need_compilers()
    tap = ring.Tap()
    tap.skips()
    controls(tap, found[-1])
    work = [(compiler, HERE / 'program.cpp', ring.INCLUDE, ['-DFOREIGN_FIRST']) for compiler in (found[0], found[-1])]
    work += [(found[0], HERE / 'program.cpp', ring.INCLUDE, [])]
    work += [(found[-1], HERE / 'program.cpp', ring.SINGLE, ['-DFOREIGN_FIRST'])]
    work += [(found[-1], ring.ROOT / 'examples' / name, ring.INCLUDE, ['-DFOREIGN_FIRST', '-include', 'foreign.hpp'])
             for name in EXAMPLES]
    results = ring.in_parallel(lambda item: compile_foreign(*item), work)
    for (compiler, path, include, extra), (status, output) in zip(work, results):
        tap.check(status == 0, f'{path.name}, {include.name}/ {" ".join(extra)}: {compiler}', output)
    tap.done()


if __name__ == '__main__':
    main()
