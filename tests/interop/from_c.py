#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Runs the servers of examples/from_c, from plain C to C++, with their client on soft RDMA, and prints TAP.

    from_c.py CLIENT SERVER...
    from_c.py --files

Outside the virtual machine of tools/softrdma it starts itself again inside. Every server must behave alike: echo over
connections that are open at once, leave nothing of them in the kernel while it goes on, reject who is one too many, and
end by itself with exit code 0 when its last connection is over. Each program runs under a watchdog.

siw can lose a client's first message (see rping.py). A case in which that message has no echo, on siw alone, is done
again, and a comment says so.

--files compares the files with what their README says of them, and needs no virtual machine.
"""

import itertools
import os
import pathlib
import re
import subprocess
import sys
import time

sys.dont_write_bytecode = True
from rping import DEVICES, PATIENCE, Failed, Program, check  # noqa: E402: it would leave __pycache__ in the source tree

ROOT = pathlib.Path(__file__).resolve().parents[2]
PORTS = itertools.count(7301)
AT_ONCE = 4  # connections


def resources(program):
    """How many cm_ids, QPs ... a program has in the kernel."""
    kinds = ''.join(f'resource show {kind}\n' for kind in ('cm_id', 'qp', 'mr', 'pd', 'cq'))
    shown = subprocess.run(['rdma', '-j', '-b', '-'], input=kinds, capture_output=True, text=True, check=True).stdout
    return len(re.findall(rf'"pid":{program.process.pid}\b', shown))


class LostByDevice(Failed):
    """siw has not delivered the first message of a connection."""


class Case:
    def __init__(self, client, server, device):
        self.client, self.device = client, device
        self.address, self.port = DEVICES[device][0], next(PORTS)
        self.programs = []
        self.server = self.start(server, AT_ONCE + 1)

    def start(self, program, connections):
        started = Program(program, self.address, self.port, connections)
        self.programs.append(started)
        return started

    def connect(self, connections):
        client = self.start(self.client, connections).wait()
        if self.device == 'siw' and client.stderr.startswith('client: no echo of "message 1,'):
            raise LostByDevice(str(client))
        client.succeeded()

    def run(self):
        self.server.wait_for_output()  # it says that it listens
        idle = resources(self.server)
        check(idle != 0, f'rdma shows no listener of {self.server}')
        self.connect(AT_ONCE)
        deadline = time.monotonic() + PATIENCE
        while (left := resources(self.server)) != idle:
            check(time.monotonic() < deadline, f'{left - idle} objects of its sessions are left of {self.server}')
            time.sleep(0.05)
        last = self.start(self.client, 2).wait()  # the first is the server's last
        check(last.process.returncode == 1 and 'REJECTED' in last.stderr, f'expected a rejection of {last}')
        self.server.succeeded()
        check(resources(self.server) == 0, f'kernel objects outlive {self.server}')

    def end(self):
        for program in self.programs:
            program.process.kill()
            program.process.wait()


def attempt(*arguments):
    """None, or what went wrong."""
    case = Case(*arguments)
    try:
        return case.run()
    except Failed as failure:
        for program in case.programs:
            if str(program) not in str(failure):
                failure.args = (f'{failure}\n{program}',)
        return failure
    finally:
        case.end()


def run_here(client, servers):
    print(f'1..{len(DEVICES) * len(servers)}', flush=True)
    failures = 0
    for number, (device, server) in enumerate(itertools.product(DEVICES, servers), 1):
        for repetitions_left in (2, 1, 0):
            failure = attempt(client, server, device)
            if not isinstance(failure, LostByDevice) or not repetitions_left:
                break
            print('# no first echo: siw has lost a message, once more')
        if failure:
            failures += 1
            print('\n'.join('# ' + line for line in str(failure).splitlines()))
        print(f'{"not ok" if failure else "ok"} {number} - {device}, {os.path.basename(server)}', flush=True)
    return failures != 0


def run_in_guest(programs):
    softrdma = ROOT / 'tools' / 'softrdma'
    if not softrdma.exists():
        print('1..0 # SKIP tools/softrdma is not there')
        return 0
    found = subprocess.run([softrdma, '--no-install', '--check'], capture_output=True, text=True, check=False)
    if found.returncode == 77:
        print('1..0 # SKIP ' + ' '.join(found.stdout.split()))
        return 0
    if found.returncode != 0:
        print('Bail out! tools/softrdma --check failed: ' + ' '.join((found.stdout + found.stderr).split()))
        return 1
    sys.stdout.flush()
    options = ['--no-install', '--cpus', '1', '--timeout', '500']  # one processor: see rping.py
    os.execv(softrdma, [str(softrdma), *options, '--', sys.executable, __file__, *programs])


def c_calls(text):
    """How many calls of the C libraries are in a program."""
    return len(re.findall(r'\b(?:rdma|ibv)_\w+\(', re.sub(r'//.*', '', text)))


def compare_files():
    folder = ROOT / 'examples' / 'from_c'
    files = sorted(folder.glob('step*'))
    calls = {file.name: c_calls(file.read_text()) for file in files}
    told = re.findall(r'^\| \[`(\w+\.\w+)`\]\(\1\) .*\| (\d+) \|$', (folder / 'README.md').read_text(), re.M)
    told = {name: int(number) for name, number in told}
    numbers = list(calls.values())
    checks = {
        'a call is counted, a comment and a name of C++ are not':
            c_calls('rdma_ack_cm_event(event); // rdma_destroy_id(id)\nrdma::cm_id id; id.ibv_x(rdma_y);') == 2,
        f'README has every step, with its calls of C: {calls}': told == calls and len(files) == 6,
        'each step has fewer than the one before, and the last none':
            all(a > b for a, b in zip(numbers, numbers[1:])) and numbers[-1] == 0,
        'each step says what changed and what is safe by it':
            all(words in file.read_text() for file in files[1:] for words in ('\n// Changed: ', '\n// Safe by it: ')),
    }
    print(f'1..{len(checks)}')
    for number, (name, fine) in enumerate(checks.items(), 1):
        print(f'{"ok" if fine else "not ok"} {number} - {name}')
    return not all(checks.values())


def main():
    if sys.argv[1:] == ['--files']:
        return compare_files()
    if len(sys.argv) < 3 or sys.argv[1].startswith('-'):
        sys.exit(__doc__)
    programs = [os.path.abspath(program) for program in sys.argv[1:]]
    if not os.environ.get('RDMACPP_GUEST'):
        return run_in_guest(programs)
    return run_here(programs[0], programs[1:])


if __name__ == '__main__':
    sys.exit(main())
