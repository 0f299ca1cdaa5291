#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Measures C and the library side by side, and writes what it saw as JSON.

Two programs run at once, and are given their turns: C, ours, ours, C, then ours, C, C, ours, and so on, a fortieth of a
second each. So both see the same machine, whatever else it does meanwhile. A turn is some batches of about a
millisecond, of which the median counts: those that the host interrupted do not. The programs are started afresh many
times, since where a program, and what the kernel made for it, happens to lie in memory makes a difference, too: one start
gives one ratio.
"""
import argparse
import json
import pathlib
import platform
import re
import statistics
import subprocess
import sys

DEVICES = {'rxe': ('10.77.1.1', '10.77.1.2'), 'siw': ('10.77.2.1', '10.77.2.2')}
BATCH, BATCHES = 1.2e6, 20  # nanoseconds of a batch, batches of a turn
CONNECTIONS = 12  # at once: siw has room for some 36 QPs with CQs of their own, and both ends are here

# name: arguments, and the sides beside C and ours: C as it is used without deadlines, in a blocking get
CASES = {
    'send, 64 bytes, polling': (['send'], []),
    'send, 4096 bytes, polling': (['-s', '4096', 'send'], []),
    'read, 64 bytes, polling': (['read'], []),
    'write, 64 bytes, polling': (['write'], []),
    'write, 4096 bytes, polling': (['-s', '4096', 'write'], []),
    'send, 64 bytes, events': (['-e', 'send'], ['c_blocking']),
    'read, 64 bytes, events': (['-e', 'read'], []),
    'write, 64 bytes, events': (['-e', 'write'], []),
    'sends': (['send_rate'], []),
    'writes': (['write_rate'], []),
    'connections': (['connect'], []),
    'send, 64 bytes, epoll loop': (['loop_send'], []),
    'send, 64 bytes, epoll loop, each awaited': (['loop_post'], []),
    'connections, epoll loop': (['loop_connect'], []),
}
CONNECTING = {'connections', 'connections, epoll loop'}


class Program:
    """One side of a benchmark, connected and waiting for its turn."""

    def __init__(self, command):
        self.command = command
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        self.compiler = self.answer().partition('ready, ')[2].strip()

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f'{" ".join(self.command)}: exit code {self.process.wait()}')
        return line

    def turn(self, batches, times):
        """Nanoseconds of one: the median of the batches; and of the phases, if it has some. And allocations of one."""
        self.process.stdin.write(f'{batches} {times}\n')
        words = self.answer().split()
        phases = {name: int(span) / times for name, span in (word.split('=') for word in words if '=' in word)}
        allocations = phases.pop('allocations') / batches
        return statistics.median(int(word) for word in words if '=' not in word) / times, phases, allocations

    def end(self):
        self.process.stdin.close()
        if self.process.wait() != 0:
            raise RuntimeError(f'{" ".join(self.command)}: exit code {self.process.returncode}')


def size_of_a_turn(case, program):
    """How many batches, of how many."""
    if case in CONNECTING:
        return 1, CONNECTIONS
    span, *_ = program.turn(BATCHES, 16)
    return BATCHES, max(1, round(BATCH / span / 16)) * 16


def measure(case, programs, addresses, starts, rounds):
    """{side: [nanoseconds of one, for each start]}, and the same for each phase; and the allocations of one"""
    arguments, more_sides = CASES[case]
    sides = ['c', 'cpp'] + more_sides
    spans = {side: [] for side in sides}
    phases = {side: {} for side in sides}
    allocations = {}
    size = None
    for start in range(starts):
        first = start % len(sides)
        order = sides[first:] + sides[:first]
        running, turns = {}, {side: [] for side in sides}
        for side in order:
            blocking = ['-b'] if side == 'c_blocking' else []
            running[side] = Program([programs[side.partition('_')[0]], '-a', addresses[0], '-c', addresses[1]]
                                    + blocking + arguments)
        size = size or size_of_a_turn(case, running['c'])
        for side in order:
            running[side].turn(*size)  # what is made once
        for number in range(rounds):
            there = order if number % 2 == 0 else order[::-1]
            for side in there + there[::-1]:
                turns[side].append(running[side].turn(*size))
        for side in sides:
            spans[side].append(round(statistics.median(span for span, *_ in turns[side]), 1))
            for name in turns[side][0][1]:
                phases[side].setdefault(name, []).append(
                    round(statistics.median(span_phases[name] for _, span_phases, _ in turns[side]), 1))
            allocations[side] = round(statistics.median(made for *_, made in turns[side]), 2)
        compiler = running['cpp'].compiler
        for program in running.values():
            program.end()
    return {'case': case, 'batches': size[0], 'times': size[1], 'rounds': rounds, 'spans': spans,
            'phases': phases, 'allocations': allocations}, compiler


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition('\n')[0])
    parser.add_argument('--starts', type=int, default=12, help='how often the programs of a case are started')
    parser.add_argument('--rounds', type=int, default=4, help='of four turns, for each start')
    parser.add_argument('--only', default='', metavar='PATTERN', help='the cases whose name matches, "rxe: send" ...')
    parser.add_argument('--device', action='append', nargs=3, metavar=('NAME', 'SERVER', 'CLIENT'),
                        help='a device and two of its addresses, in place of rxe and siw')
    parser.add_argument('--note', action='append', default=[], metavar='NAME=VALUE', help='goes into the result')
    parser.add_argument('c', help='the program in C')
    parser.add_argument('cpp', help='the program with the library')
    parser.add_argument('result', type=pathlib.Path, help='the file to write')
    given = parser.parse_args()

    devices = {name: (server, client) for name, server, client in given.device or []} or DEVICES
    results, compiler = [], ''
    for device, addresses in devices.items():
        for case in CASES:
            if not re.search(given.only, f'{device}: {case}'):
                continue
            result, compiler = measure(case, {'c': given.c, 'cpp': given.cpp}, addresses, given.starts,
                                       2 * given.rounds if case in CONNECTING else given.rounds)
            results.append({'device': device, **result})
            print(f'{device}: {case}', file=sys.stderr, flush=True)
    about = {'kernel': platform.release(), 'compiler': compiler, **dict(note.split('=', 1) for note in given.note)}
    given.result.write_text(json.dumps({'about': about, 'results': results}, indent=None, separators=(',', ':')) + '\n')
    return 0


if __name__ == '__main__':
    sys.exit(main())
