#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What get and ack cost beside C: instructions for one event, counted by valgrind.

usage: get_ack.py <program in C's style> <program with the library>

Each program is run for two numbers of events; the slope between them is what one event costs, without what a program
costs by itself. The library may cost LIMIT instructions more than C. Prints TAP.
"""
import re
import shutil
import subprocess
import sys

LIMIT = 400
FEW, MANY = 1000, 6000


def instructions(program, events):
    run = subprocess.run(
        ['valgrind', '--tool=callgrind', '--callgrind-out-file=/dev/null', program, str(events)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    found = re.search(r'Collected : (\d+)', run.stderr)
    if run.returncode != 0 or run.stdout.strip() != str(events) or not found:
        raise RuntimeError(f'{program} {events}: exit code {run.returncode}\n{run.stdout}{run.stderr}')
    return int(found.group(1))


def per_event(program):
    return (instructions(program, MANY) - instructions(program, FEW)) / (MANY - FEW)


def main():
    print('1..1')
    if not shutil.which('valgrind'):
        print('ok 1 - get and ack beside C # SKIP valgrind is not installed')
        return 0
    try:
        c, ours = (per_event(program) for program in sys.argv[1:3])
    except RuntimeError as e:
        print('not ok 1 - get and ack beside C')
        print('\n'.join('# ' + line for line in str(e).splitlines()))
        return 1
    print(f'# instructions for one event: C {c:.1f}, rdmacpp {ours:.1f}, that is {ours - c:+.1f}; at most +{LIMIT}')
    fine = ours - c <= LIMIT
    print(f'{"ok" if fine else "not ok"} 1 - get and ack cost at most {LIMIT} instructions more than in C')
    return 0 if fine else 1


if __name__ == '__main__':
    sys.exit(main())
