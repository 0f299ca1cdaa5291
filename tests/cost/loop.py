#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What an awaited message costs beside a state machine in C, both on an epoll loop: instructions, calls, allocations.

usage: loop.py <program in C's style> <program with the library>

An echo, there and back, in one thread. Valgrind counts the instructions of the program, without those in the fake below.
The library makes the calls that the C makes, and no more, since it is they that cost: they go into the kernel, and into
the device's library. It allocates nothing. What coroutines and their bookkeeping cost beside C is bounded. Prints TAP.
"""
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

TIMES = 100
STYLES = {'next': 'completions awaited as they come', 'post': 'each send awaited where it is posted'}
MOST = {'next': 1650, 'post': 1900}  # instructions more than in C, for a message there and back
A_RUN = 2  # calls of epoll_ctl that are no message's: what waits for nobody is not watched


def is_entrance(function):
    """Into the fake: of its functions in C, and those that stand in ibv_context::ops."""
    return re.fullmatch(r'(ibv|rdma)_\w+|fake::[^{}]*::op_\w+\([^{}]*\)', function)


def instructions(profile):
    """All that were counted, but for those in the fake: the calls into it, with all that they did."""
    names, inside, callee, called = {}, 0, '', False
    for line in profile.splitlines():
        kind, _, rest = line.partition('=')
        if kind in ('fn', 'cfn'):
            number, _, name = rest.partition(' ')
            callee = names.setdefault(number, name)
        elif kind == 'calls':
            called = True
        elif called:
            inside += int(line.split()[-1]) if is_entrance(callee) else 0
            called = False
    return int(re.search(r'^summary: (\d+)', profile, re.M)[1]) - inside


def measure(program, style):
    """instructions of one, {call: how often}"""
    with tempfile.TemporaryDirectory() as folder:
        profile = pathlib.Path(folder) / 'profile'
        run = subprocess.run(
            ['valgrind', '--tool=callgrind', f'--callgrind-out-file={profile}', '--toggle-collect=measured',
             program, style, str(TIMES)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
        if run.returncode != 0:
            raise RuntimeError(f'{program}: exit code {run.returncode}\n{run.stdout}{run.stderr}')
        calls = {call: int(number) for call, number in (word.split('=') for word in run.stdout.split())}
        return instructions(profile.read_text()) / TIMES, calls


def check(c, ours, c_calls, our_calls, style):
    """(whether it is fine, what it is, what was seen) for each thing to check"""
    what = STYLES[style]
    yield (ours - c <= MOST[style], f'instructions: {what}',
           f'C {c:.0f}, rdmacpp {ours:.0f}, that is {ours - c:+.0f}; at most +{MOST[style]}')
    allocations = our_calls.pop('allocations')
    more = {call: number - c_calls[call] for call, number in our_calls.items()}
    fine = all(number <= (A_RUN if call == 'epoll_ctl' else 0) for call, number in more.items())
    yield fine, f'calls: {what}', ', '.join(f'{call} {number:+}' for call, number in more.items())
    yield allocations == 0, f'no allocation: {what}', f'{allocations}, for {TIMES}'


def main():
    number_of_checks = 3 * len(STYLES)
    print(f'1..{number_of_checks}')
    if not shutil.which('valgrind'):
        for number in range(1, number_of_checks + 1):
            print(f'ok {number} # SKIP valgrind is not installed')
        return 0
    number = failed = 0
    for style in STYLES:
        try:
            (c, c_calls), (ours, our_calls) = (measure(program, style) for program in sys.argv[1:3])
        except RuntimeError as e:
            print('Bail out! ' + str(e).partition('\n')[0])
            print('\n'.join('# ' + line for line in str(e).splitlines()))
            return 1
        for fine, what, seen in check(c, ours, c_calls, our_calls, style):
            number += 1
            failed += not fine
            print(f'# {seen}\n{"ok" if fine else "not ok"} {number} - {what}')
    return 0 if not failed else 1


if __name__ == '__main__':
    sys.exit(main())
