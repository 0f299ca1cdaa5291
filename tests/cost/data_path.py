#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What the data path costs beside C: instructions for one operation, counted by valgrind.

usage: data_path.py <program in C's style> <program with the library>

Each program does each operation FEW times and then MANY times; the slope between them is what one costs. The fake below
is the same for both, and its cost is left in. On the data path the library costs no more than C: not on the average,
and in one operation no more than compilers place differently around the calls (that each call by itself is the same is
for tests/codegen). Nothing is allocated. Prints TAP.
"""
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

FEW, MANY = 100, 400
DATA_PATH = {
    'op_write': 'write: post_send, poll',
    'op_send': 'send: post_recv, post_send, poll, poll',
    'op_chain': 'a chain of four writes, poll',
    'op_ex_poll': 'write: post_send, start_poll, next_poll, end_poll',
    'op_ex_post': 'write: wr_start, rdma_write, set_sge, wr_complete, poll',
}
EVENTS = {'op_event': 'write: req_notify, post_send, get_cq_event, ack_cq_events, poll'}
OPERATIONS = {**DATA_PATH, **EVENTS}
MOST = {**dict.fromkeys(DATA_PATH, 8), **dict.fromkeys(EVENTS, 400)}
MOST_ON_AVERAGE = 0.5  # of the data path: what a slope can be off


def measure(program):
    """{operation: instructions of one}, and what the program printed"""
    with tempfile.TemporaryDirectory() as folder:
        run = subprocess.run(
            ['valgrind', '--tool=callgrind', f'--callgrind-out-file={folder}/out', '--dump-before=op_*',
             program, str(FEW), str(MANY)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
        if run.returncode != 0:
            raise RuntimeError(f'{program}: exit code {run.returncode}\n{run.stdout}{run.stderr}')
        parts, inside = {}, None
        for number in range(1, 2 * len(OPERATIONS) + 2):
            text = (pathlib.Path(folder) / f'out.{number}').read_text()
            if inside:
                parts.setdefault(inside, []).append(int(re.search(r'^(?:totals|summary): (\d+)', text, re.M)[1]))
            inside = re.search(r'^desc: Trigger: --dump-before=(op_\w+)', text, re.M)[1]
    if list(parts) != list(OPERATIONS) or any(len(part) != 2 for part in parts.values()):
        raise RuntimeError(f'{program}: valgrind has seen {parts}')
    return {name: (part[1] - part[0]) / (MANY - FEW) for name, part in parts.items()}, run.stdout


def check(c, ours, printed):
    """(whether it is fine, what it is, what was seen) for each thing to check"""
    more = {name: ours[name] - c[name] for name in OPERATIONS}
    for name, what in OPERATIONS.items():
        yield (more[name] <= MOST[name], what,
               f'instructions: C {c[name]:.1f}, rdmacpp {ours[name]:.1f}, that is {more[name]:+.1f}; at most +{MOST[name]}')
    average = sum(more[name] for name in DATA_PATH) / len(DATA_PATH)
    yield average <= MOST_ON_AVERAGE, 'the data path, on the average', f'{average:+.1f}; at most +{MOST_ON_AVERAGE}'
    yield printed.strip() == 'allocations 0', 'no allocation', printed.strip()


def main():
    print(f'1..{len(OPERATIONS) + 2}')
    if not shutil.which('valgrind'):
        for number in range(1, len(OPERATIONS) + 3):
            print(f'ok {number} # SKIP valgrind is not installed')
        return 0
    try:
        (c, _), (ours, printed) = (measure(program) for program in sys.argv[1:3])
    except RuntimeError as e:
        print('Bail out! ' + str(e).partition('\n')[0])
        print('\n'.join('# ' + line for line in str(e).splitlines()))
        return 1
    failed = 0
    for number, (fine, what, seen) in enumerate(check(c, ours, printed), 1):
        failed += not fine
        print(f'# {seen}\n{"ok" if fine else "not ok"} {number} - {what}')
    return 0 if not failed else 1


if __name__ == '__main__':
    sys.exit(main())
