#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Including the umbrella takes at most 1.7 times as long as what nobody can do without: the C headers and
<system_error>, <span>, <chrono>, <string>.

Counted are the instructions that g++ -fsyntax-only executes (valgrind's cachegrind): time itself differs by several
percent from one run to the next, and this not at all.
"""

import concurrent.futures
import os
import re
import shutil
import subprocess
import sys

import ring

LIMIT = 1.7
C_HEADERS = ['rdma/rdma_cma.h', 'rdma/rdma_verbs.h', 'infiniband/verbs.h']
FLOOR = C_HEADERS + ['system_error', 'span', 'chrono', 'string']
VALGRIND = ['valgrind', '--tool=cachegrind', '--cache-sim=no', '--cachegrind-out-file=/dev/null', '--trace-children=yes']
COUNT = re.compile(r'I\s+refs:\s+([\d,]+)')


def instructions(compiler, source):
    """How many a compilation executes, the driver's included."""
    command = [*VALGRIND, compiler.path, '-std=c++20', '-I', str(ring.INCLUDE), *ring.c_includes(), '-fsyntax-only',
               '-x', 'c++', '-']
    environment = {name: value for name, value in os.environ.items() if name != 'MALLOC_PERTURB_'} # it fills memory
    run = subprocess.run(command, input=source, capture_output=True, text=True, env=environment)
    counts = COUNT.findall(run.stderr)
    if run.returncode != 0 or not counts:
        sys.exit(f'{compiler} fails on:\n{source}\n{run.stderr}')
    return sum(int(count.replace(',', '')) for count in counts)


def main():
    gcc = [compiler for compiler in ring.need_compilers() if compiler.family == 'gcc']
    if not gcc:
        ring.skip_all('g++ is not installed')
    if not shutil.which('valgrind'):
        ring.skip_all('valgrind is not installed')
    compiler = gcc[-1]
    tap = ring.Tap()
    sources = [FLOOR, ['rdmacpp/rdmacpp.hpp'], FLOOR + ['regex', 'ranges', 'functional', 'iostream']]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        floor, umbrella, heavy = pool.map(lambda names: instructions(compiler, ring.including(names)), sources)
    tap.check(heavy / floor > LIMIT, f'control: <regex>, <ranges>, <functional> and <iostream> are over the limit: '
              f'{heavy / floor:.2f}')
    ratio = umbrella / floor
    name = f'{ratio:.2f} times the C headers and four standard ones (limit {LIMIT}): {umbrella / 1e6:.0f}, ' \
           f'{floor / 1e6:.0f} million instructions, {compiler}'
    tap.check(ratio <= LIMIT, name)
    tap.done()


if __name__ == '__main__':
    main()
