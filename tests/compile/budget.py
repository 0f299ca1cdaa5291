#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Including the umbrella takes at most 1.7 times as long as what nobody can do without: the C headers and
<system_error>, <span>, <chrono>, <string>. It is at most 1.5 times as much text, and the single header costs no more.
What it was at the last release stands in budget.txt.

Counted are the instructions that g++ -fsyntax-only executes (valgrind's cachegrind): time itself differs by several
percent from one run to the next, and this not at all. The text is what g++ -E -P gives.
"""

import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import sys

import ring

LIMIT, SIZE_LIMIT = 1.7, 1.5
SINGLE_LIMIT = 1.03 # the text of the single header beside the umbrella, whose tokens it has (single.py)
RELEASES = pathlib.Path(__file__).resolve().parent / 'budget.txt'
C_HEADERS = ['rdma/rdma_cma.h', 'rdma/rdma_verbs.h', 'infiniband/verbs.h']
FLOOR = C_HEADERS + ['system_error', 'span', 'chrono', 'string']
UMBRELLA = ['rdmacpp/rdmacpp.hpp']
VALGRIND = ['valgrind', '--tool=cachegrind', '--cache-sim=no', '--cachegrind-out-file=/dev/null',
            '--trace-children=yes']
COUNT = re.compile(r'I\s+refs:\s+([\d,]+)')


def compiling(compiler, include, *action):
    return [compiler.path, '-std=c++20', '-I', str(include), *ring.c_includes(), *action, '-x', 'c++', '-']


def instructions(compiler, names, include=ring.INCLUDE):
    """How many a compilation executes, the driver's included."""
    source = ring.including(names)
    environment = {name: value for name, value in os.environ.items() if name != 'MALLOC_PERTURB_'} # it fills memory
    run = subprocess.run([*VALGRIND, *compiling(compiler, include, '-fsyntax-only')], input=source, capture_output=True,
                         text=True, env=environment, check=False)
    counts = COUNT.findall(run.stderr)
    if run.returncode != 0 or not counts:
        sys.exit(f'{compiler} fails on:\n{source}\n{run.stderr}')
    return sum(int(count.replace(',', '')) for count in counts)


def size(compiler, names, include=ring.INCLUDE):
    """(bytes, lines) of the preprocessed text."""
    run = subprocess.run(compiling(compiler, include, '-E', '-P'), input=ring.including(names), capture_output=True,
                         text=True, check=False)
    if run.returncode != 0:
        sys.exit(f'{compiler} fails:\n{run.stderr}')
    return len(run.stdout.encode()), run.stdout.count('\n')


def last_release(text):
    """(its version, what including cost then): of the last line that is no comment."""
    lines = [line.split() for line in text.splitlines() if line.strip() and not line.startswith('#')]
    version, *numbers = lines[-1]
    if not re.fullmatch(r'\d+\.\d+\.\d+', version) or len(numbers) != 4:
        sys.exit(f'{RELEASES.name}: not understood: {" ".join(lines[-1])}')
    return version, [float(number) for number in numbers]


def over(value, floor, limit):
    return value / floor > limit


def main():
    gcc = [compiler for compiler in ring.need_compilers() if compiler.family == 'gcc']
    if not gcc:
        ring.skip_all('g++ is not installed')
    if not shutil.which('valgrind'):
        ring.skip_all('valgrind is not installed')
    compiler = gcc[-1]
    tap = ring.Tap()
    version, (time_then, size_then, kilobytes_then, lines_then) = last_release(RELEASES.read_text(encoding='utf-8'))

    sources = [(FLOOR, ring.INCLUDE), (UMBRELLA, ring.INCLUDE), (['cstddef'], ring.INCLUDE)]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        floor, umbrella, least = pool.map(lambda source: instructions(compiler, *source), sources)
    floor_size, umbrella_size, least_size = (size(compiler, *source) for source in sources)
    single_size = size(compiler, UMBRELLA, ring.SINGLE)

    tap.check(over(floor, least, LIMIT) and over(floor_size[0], least_size[0], SIZE_LIMIT),
              'control: the C headers and four standard ones are over the limit of <cstddef>')
    tap.check(not over(umbrella, floor, LIMIT),
              f'{umbrella / floor:.2f} times the C headers and four standard ones (limit {LIMIT}; {version}: '
              f'{time_then:.2f}): {umbrella / 1e6:.0f}, {floor / 1e6:.0f} million instructions, {compiler}')
    tap.check(not over(umbrella_size[0], floor_size[0], SIZE_LIMIT),
              f'{umbrella_size[0] / floor_size[0]:.2f} times their text (limit {SIZE_LIMIT}; {version}: '
              f'{size_then:.2f}): {umbrella_size[0] / 1e3:.0f} kB ({kilobytes_then:.0f}), {umbrella_size[1]} lines ({lines_then:.0f})')
    tap.check(not over(single_size[0], umbrella_size[0], SINGLE_LIMIT),
              f'the single header: {single_size[0] / umbrella_size[0]:.3f} times the text of the umbrella (limit {SINGLE_LIMIT})')
    now = subprocess.run([sys.executable, str(ring.ROOT / 'tools' / 'version.py')], capture_output=True, text=True,
                         check=True).stdout.strip()
    print(f'# for {RELEASES.name}: {now:<10} {umbrella / floor:<13.2f} {umbrella_size[0] / floor_size[0]:<6.2f} '
          f'{umbrella_size[0] / 1e3:<5.0f} {umbrella_size[1]}')
    tap.done()


if __name__ == '__main__':
    main()
