#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Runs the servers of examples/ and their clients on soft RDMA, and prints TAP.

    servers.py [--options | --long] FOLDER PROGRAM...

FOLDER has the programs; of the servers those that are named are tried: epoll_server, asio_server, workers, kv,
poll_target. With --options, only what they do with wrong options, anywhere. With --long, a thousand connections at a
time.

Outside the virtual machine of tools/softrdma it starts itself again inside. Each case runs under a watchdog. At its end
the kernel must have as many ids, queue pairs and so on as before it.

siw can lose a client's first message (see rping.py): then the case is done again, and a comment says so.
"""

import contextlib
import ctypes
import itertools
import os
import re
import signal
import struct
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
import rping  # noqa: E402
from rping import DEVICES, Failed, Program, attempt, check, run_all, run_in_guest  # noqa: E402

rping.PATIENCE = 120  # seconds: a thousand connections in an emulated machine
CONNECTIONS = 250  # a thousand take a minute more
MESSAGES = 4  # over each
PORTS = itertools.count(7501)


class Sleepless(Program):
    """One that the kernel (seccomp) kills when it calls one of these: poll, select, nanosleep, epoll_wait..."""

    CALLS = (7, 23, 35, 230, 232, 270, 271, 281, 441)  # on x86-64

    def __init__(self, *arguments):  # not the base's: that starts it
        self.arguments = [str(a) for a in arguments]
        self.files = [tempfile.TemporaryFile() for _ in range(2)]
        self.process = subprocess.Popen(self.arguments, stdin=subprocess.DEVNULL, stdout=self.files[0],
                                        stderr=self.files[1], preexec_fn=self.forbid)

    @classmethod
    def forbid(cls):
        code = [(0x20, 0, 0, 0)]  # the number of the call
        code += [(0x15, len(cls.CALLS) - i, 0, number) for i, number in enumerate(cls.CALLS)]  # this one: to the last
        code += [(0x06, 0, 0, 0x7FFF0000), (0x06, 0, 0, 0x80000000)]  # allow; kill the process
        filters = ctypes.create_string_buffer(b''.join(struct.pack('HBBI', *each) for each in code))
        program = struct.pack('HxxxxxxQ', len(code), ctypes.addressof(filters))
        prctl = ctypes.CDLL(None, use_errno=True).prctl
        if prctl(38, 1, 0, 0, 0) or prctl(22, 2, program):  # no new privileges; seccomp
            raise OSError(ctypes.get_errno(), 'prctl')
        os.nice(19)  # whatever the kernel does for the soft devices goes before a loop that never sleeps


class Case:
    """The programs of one case; whatever is left of them is killed at its end."""

    def __init__(self, device, folder):
        self.folder, self.port = folder, next(PORTS)
        self.address = DEVICES[device][0]
        self.programs = []
        self.before = resources()

    def start(self, program, *options):
        started = Program(os.path.join(self.folder, program), '-p', self.port, *options)
        self.programs.append(started)
        return started

    def without_sleep(self, program, *options):
        """Starts one that is killed when it waits for a descriptor, or for time to pass."""
        started = Sleepless(os.path.join(self.folder, program), '-p', self.port, *options)
        self.programs.append(started)
        return started

    def server(self, program, *options):
        """Starts one, and waits until it says that it listens."""
        server = self.start(program, *options)
        server.wait_for_output()
        return server

    def nothing_is_left(self):
        self.programs[0].until(lambda: resources() == self.before)

    def end(self):
        for program in self.programs:
            with contextlib.suppress(ProcessLookupError):
                program.process.kill()
            program.process.wait()


def resources():
    """How many ids, queue pairs... the kernel has, for each device."""
    return subprocess.run(['rdma', 'resource', 'show'], capture_output=True, text=True, check=True).stdout


def is_done(program, *lines):
    """It has succeeded, and printed these lines: regular expressions."""
    program.succeeded()
    printed(program, *lines)


def printed(program, *lines):
    text = program.stdout.splitlines()
    check(len(text) == len(lines) and all(re.fullmatch(line, got) for line, got in zip(lines, text)),
          f'expected the lines {lines} of {program}')


def has_failed(program, *words):
    """Exit code 1, and one line on stderr that has one of the words."""
    code = program.wait().process.returncode
    lines = program.stderr.splitlines()
    check(code == 1 and len(lines) == 1 and any(word in lines[0] for word in words),
          f'expected one of {words} and exit code 1 of {program}')


def stop(case, server, *lines):
    check(not server.ended(), f'it ended early: {server}')
    server.kill(signal.SIGTERM)
    server.wait()
    check(server.process.returncode == 0, f'expected exit code 0 of {server}')
    printed(server, 'listening on .*', *lines)
    case.nothing_is_left()


def thousand(case, program):
    """A thousand connections at once, and SIGTERM while they are all there."""
    server = case.server(program, '-a', case.address)
    client = case.start('load_client', '-n', CONNECTIONS, '-C', MESSAGES, '-w', case.address)
    client.until(lambda: 'echoed' in client.stdout or client.ended())
    check(not client.ended(), f'it ended early: {client}')
    descriptors = len(os.listdir(f'/proc/{server.process.pid}/fd'))
    check(descriptors < 30, f'{descriptors} descriptors for {CONNECTIONS} connections')
    stop(case, server, f'served {CONNECTIONS} clients, {MESSAGES * CONNECTIONS} messages')
    check(not server.stderr, f'it has complained: {server}')
    is_done(client, f'{CONNECTIONS} connected in .*', f'{MESSAGES * CONNECTIONS} messages echoed in .*',
            f'{CONNECTIONS} closed in .*')


def bad_clients(case, program):
    """Clients that do what they should not, while another is served."""
    server = case.server(program, '-a', case.address, '-n', 4, '-S', 64)
    good = case.start('load_client', '-n', 2, '-w', case.address)
    good.until(lambda: 'echoed' in good.stdout or good.ended())
    check(not good.ended(), f'it ended early: {good}')
    with_good_alone = resources()

    too_long = case.start('load_client', '-n', 1, '-C', 1, '-S', 65, case.address).wait()
    check(too_long.process.returncode == 1, f'expected exit code 1 of {too_long}')
    server.until(lambda: server.stderr or server.ended())  # of its message
    dies = case.start('load_client', '-n', 2, '-w', case.address)
    dies.until(lambda: 'echoed' in dies.stdout or dies.ended())
    check(not dies.ended(), f'it ended early: {dies}')
    has_failed(case.start('load_client', '-n', 1, case.address), 'rejected', 'reset by peer')
    dies.kill(signal.SIGKILL)
    dies.wait()

    def taken():
        again = case.start('load_client', '-n', 2, case.address).wait()
        case.programs.remove(again)
        return again.process.returncode == 0
    server.until(taken)  # as soon as the server knows that the dead one's places are free
    server.until(lambda: resources() == with_good_alone)
    stop(case, server, r'served \d+ clients, \d+ messages')
    is_done(good, '2 connected in .*', '20 messages echoed in .*', '2 closed in .*')


def kv(case):
    server = case.server('kv', '-n', 64, 'serve', case.address)
    has_failed(case.start('kv', 'get', case.address, 'key'), 'there is no key')
    for value in ('value', 'another'):
        is_done(case.start('kv', 'put', case.address, 'key', value))
        is_done(case.start('kv', 'get', case.address, 'key'), value)
    benches = [case.start('kv', 'bench', case.address, 500) for _ in range(3)]
    for bench in benches:
        is_done(bench, '450 gets and 50 puts in .*')
    stop(case, server, r'served 8 clients, 152 puts')
    check(not server.stderr, f'it has complained: {server}')


def workers(case):
    """Of three workers each has its share of the clients."""
    server = case.server('workers', '-a', case.address, '-w', 3)
    client = case.start('load_client', '-n', 24, '-w', case.address)
    client.until(lambda: 'echoed' in client.stdout or client.ended())
    check(not client.ended(), f'it ended early: {client}')
    stop(case, server, *[f'worker {i} served 8 clients, 80 messages' for i in range(3)])
    check(not server.stderr, f'it has complained: {server}')
    is_done(client, '24 connected in .*', '240 messages echoed in .*', '24 closed in .*')


def poll_target(case):
    target = case.without_sleep('poll_target', '-n', 16, 'serve', case.address)
    target.wait_for_output()
    client = case.without_sleep('poll_target', '-n', 16, 'check', case.address)
    is_done(client, '16 blocks written, read and compared')
    has_failed(case.start('poll_target', '-n', 17, 'check', case.address), 'block 16: Invalid argument')
    stop(case, target, r'served 2 clients, \d+ commands')
    check(not target.stderr, f'it has complained: {target}')


def sleepers_are_killed(case):
    """What poll_target is tried with finds who sleeps."""
    sleeper = case.without_sleep('epoll_server', '-a', case.address).wait()
    check(sleeper.process.returncode == -signal.SIGSYS, f'expected that it is killed: {sleeper}')


def wrong_options(path):
    for options in (['-x'], ['-p'], ['-p', '7x'], ['-p', '65536'], ['more', 'words', 'than', 'it', 'takes']):
        wrong = Program(path, *options).wait()
        check(wrong.process.returncode == 2 and len(wrong.stderr.splitlines()) == 1 and not wrong.stdout,
              f'expected one line and exit code 2 of {wrong}')
    asked = Program(path, '--help').wait()
    check(asked.process.returncode == 0 and '--help' in asked.stdout, f'expected help of {asked}')


ALONE = {'kv': kv, 'poll_target': poll_target, 'workers': workers}


def cases(programs):
    for device in DEVICES:
        for program in programs:
            if program in ALONE:
                yield f'{device}, {program}', device, ALONE[program]
            else:
                yield f'{device}, {program}, {CONNECTIONS} connections', device, thousand, program
                yield f'{device}, {program}, bad clients', device, bad_clients, program
    if 'poll_target' in programs and 'epoll_server' in programs:
        yield 'who sleeps is killed', 'rxe', sleepers_are_killed


def run_here(folder, programs):
    def try_case(_, device, function, *arguments):
        return attempt(Case(device, folder), function, arguments)

    def lost(name, failure):
        if name.startswith('siw') and 'timed out' in str(failure):
            return 'a message did not come: siw has lost it'
        return None

    return run_all(list(cases(programs)), try_case, lost)


def try_options(folder, programs):
    def try_case(_, program):
        try:
            wrong_options(os.path.join(folder, program))
        except Failed as failure:
            return failure
        return None

    return run_all([(program, program) for program in ('load_client', *programs)], try_case, lambda *_: None)


def main():
    global CONNECTIONS
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    how = [word for word in sys.argv[1:2] if word in ('--options', '--long')]
    folder, *programs = sys.argv[1 + len(how):]
    folder = os.path.abspath(folder)
    if how == ['--options']:
        return try_options(folder, programs)
    if how == ['--long']:
        CONNECTIONS = 1000
    if not os.environ.get('RDMACPP_GUEST'):
        return run_in_guest(__file__, [*how, folder, *programs])
    return run_here(folder, programs)


if __name__ == '__main__':
    sys.exit(main())
