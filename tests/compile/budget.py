#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Including the umbrella takes at most 1.7 times as long as what nobody can do without: the C headers and
<system_error>, <span>, <chrono>, <string>.

User CPU time of g++ -fsyntax-only, the median of runs that alternate between the two.
"""

import os
import statistics
import subprocess
import sys

import ring

LIMIT = 1.7
RUNS = 9
C_HEADERS = ['rdma/rdma_cma.h', 'infiniband/verbs.h']
FLOOR = C_HEADERS + ['system_error', 'span', 'chrono', 'string']


def user_time(compiler, source):
    """The user CPU seconds of one run, those of its children included."""
    command = [compiler.path, '-std=c++20', '-I', str(ring.INCLUDE), *ring.c_includes(), '-fsyntax-only', '-x', 'c++', '-']
    process = subprocess.Popen(command, stdin=subprocess.PIPE)
    process.stdin.write(source.encode())
    process.stdin.close()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        sys.exit(f'{compiler} fails on:\n{source}')
    return usage.ru_utime


def medians(compiler, sources):
    times = [[] for _ in sources]
    for _ in range(RUNS):
        for source, column in zip(sources, times):
            column.append(user_time(compiler, source))
    return [statistics.median(column) for column in times]


def main():
    gcc = [compiler for compiler in ring.need_compilers() if compiler.family == 'gcc']
    if not gcc:
        ring.skip_all('g++ is not installed')
    compiler = gcc[-1]
    tap = ring.Tap()
    floor, umbrella, heavy = medians(compiler, [ring.including(FLOOR), ring.including(['rdmacpp/rdmacpp.hpp']),
                                                ring.including(FLOOR + ['regex', 'ranges', 'functional', 'iostream'])])
    tap.check(heavy / floor > LIMIT, f'control: <regex>, <ranges>, <functional> and <iostream> are over the limit: '
              f'{heavy / floor:.2f}')
    ratio = umbrella / floor
    name = f'{ratio:.2f} times the C headers and four standard ones (limit {LIMIT}): {umbrella * 1000:.0f} ms, ' \
           f'{floor * 1000:.0f} ms, {compiler}'
    tap.check(ratio <= LIMIT, name)
    tap.done()


if __name__ == '__main__':
    main()
