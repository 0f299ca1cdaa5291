#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Runs the programs of examples/ against those of rdma-core (package rdmacm-utils) on soft RDMA, and prints TAP.

    tools.py UD_PING EXCHANGE MULTICAST BLOCKING_CLIENT BLOCKING_SERVER

    ud_ping                          udaddy
    exchange                         ucmatose
    multicast                        mckey
    blocking_client, blocking_server rdma_server, rdma_client

Outside the virtual machine of tools/softrdma it starts itself again inside. Each case runs under a watchdog: a program
that does not end is killed and reported as a hang. Ours is judged by exit code, stdout and stderr; theirs by exit code and
by what it prints.

What siw cannot do:
- datagrams: skipped when our program is told so.
- It can lose a client's first message (see rping.py): then the case is done again, and a comment says so.
- On iWARP the connecting side has to send first; with ucmatose and exchange the accepting side does. siw breaks the
  connection when that message is faster than the client: then the case is done again, too, and skipped when it did not
  help.
"""

import contextlib
import itertools
import os
import re
import shutil
import sys

sys.dont_write_bytecode = True
from rping import (DEVICES, Failed, Program, Skipped, attempt, check, run_all, run_in_guest,  # noqa: E402
                   wait_until_listening)

OURS = ('ud_ping', 'exchange', 'multicast', 'blocking_client', 'blocking_server')
THEIRS = ('udaddy', 'ucmatose', 'mckey', 'rdma_client', 'rdma_server')
PORTS = itertools.count(7401)
UD_PORT = 7174  # that of udaddy, always
GROUPS = (f'239.1.2.{n}' for n in itertools.count(1))


class TooEarly(Skipped):
    def __init__(self):
        super().__init__('siw has refused a message that the accepting side sent first')


class LostByDevice(Failed):
    """siw has not delivered the first message of a connection."""


class Case:
    """The programs of one case; whatever is left of them is killed at its end."""

    def __init__(self, device, ours):
        self.device, self.ours = device, ours
        self.address = DEVICES[device][0]
        self.programs = []

    def start(self, program, *options):
        started = Program(self.ours.get(program, program), *options)
        self.programs.append(started)
        return started

    def our_server(self, program, *options):
        server = self.start(program, *options)
        server.wait_for_output()  # it says that it listens
        return server

    def their_server(self, port, program, *options):
        server = self.start(program, *options)
        wait_until_listening(server, port)
        return server

    def end(self):
        for program in self.programs:
            with contextlib.suppress(ProcessLookupError):
                program.process.kill()
            program.process.wait()


def theirs_succeeded(program, *words):
    code = program.wait().process.returncode
    check(code == 0 and not program.stderr, f'expected success of {program}')
    for word in words:
        check(word in program.stdout.splitlines(), f'expected the line "{word}" of {program}')


def ours_succeeded(program, *lines):
    """Each line is a regular expression; between them they are all that it prints."""
    program.succeeded()
    printed = program.stdout.splitlines()
    check(len(printed) == len(lines) and all(re.fullmatch(line, text) for line, text in zip(lines, printed)),
          f'expected the lines {lines} of {program}')


def needs_datagrams(case, program, *options):
    """Skips the case when the device has no QP for datagrams, which siw has not."""
    if case.device != 'siw':
        return
    probe = case.start(program, *options).wait()
    if re.search(r': rdma_create_qp\(.*: Operation not supported$', probe.stderr.strip()):
        raise Skipped('no datagrams: ' + probe.stderr.strip())


# -- the cases: functions of a Case and more

def ud_ping_is_client(case, paths, pings, size, address):
    needs_datagrams(case, 'ud_ping', '-s', address)
    counts = '-c', paths, '-C', pings, '-S', size
    server = case.their_server(UD_PORT, 'udaddy', '-b', address, *counts)
    client = case.start('ud_ping', '-s', address, *counts)
    ours_succeeded(client, *[rf'{pings} pongs of {size} bytes from QP \d+'] * paths)
    theirs_succeeded(server, 'data transfers complete', 'return status 0')


def ud_ping_is_server(case, paths, pings, size, address):
    needs_datagrams(case, 'ud_ping', '-s', address)
    counts = '-c', paths, '-C', pings, '-S', size
    server = case.our_server('ud_ping', '-b', address, *counts)
    client = case.start('udaddy', '-s', address, *counts)
    theirs_succeeded(client, 'data transfers complete', 'return status 0')
    ours_succeeded(server, 'listening on .*', *[rf'{pings} pings of {size} bytes from QP \d+'] * paths)


def exchange_is_client(case, connections, messages, size, *migrate):
    port = next(PORTS)
    counts = '-p', port, '-c', connections, '-C', messages, '-S', size, *migrate
    server = case.their_server(port, 'ucmatose', '-b', case.address, *counts)
    client = case.start('exchange', '-s', case.address, *counts).wait()
    if case.device == 'siw' and re.match(r'exchange: rdma_connect\(.*\): Invalid argument', client.stderr):
        raise TooEarly
    ours_succeeded(client, f'{connections} connections, {messages} messages of {size} bytes each way over each')
    theirs_succeeded(server, 'data transfers complete', 'disconnected', 'return status 0',
                     *['migrating to new event channel'] * len(migrate))


def exchange_is_server(case, connections, messages, size, *migrate):
    port = next(PORTS)
    counts = '-p', port, '-c', connections, '-C', messages, '-S', size, *migrate
    server = case.our_server('exchange', '-b', case.address, *counts)
    client = case.start('ucmatose', '-s', case.address, *counts).wait()
    if case.device == 'siw' and 'CONNECT_ERROR, error: -22' in client.stdout:
        raise TooEarly
    theirs_succeeded(client, 'data transfers complete', 'return status 0',
                     *['migrating to new event channel'] * len(migrate))
    ours_succeeded(server, 'listening on .*',
                   f'{connections} connections, {messages} messages of {size} bytes each way over each')


def multicast_sends(case, messages, size, *how):
    group = next(GROUPS)
    options = '-m', group, '-b', case.address, '-C', messages, '-S', size
    needs_datagrams(case, 'multicast', *how, *options)
    receiver = case.start('mckey', *options)
    receiver.until(lambda: 'joined dgid' in receiver.stdout or receiver.ended())
    ours_succeeded(case.start('multicast', *how, *options), f'joined {group}', f'{messages} messages sent')
    theirs_succeeded(receiver, 'data transfers complete', 'return status 0')


def multicast_receives(case, messages, size):
    group = next(GROUPS)
    options = '-m', group, '-b', case.address, '-C', messages, '-S', size
    needs_datagrams(case, 'multicast', '-s', *options)
    receiver = case.start('multicast', *options)
    receiver.wait_for_output()
    sender = case.start('mckey', '-s', *options)
    ours_succeeded(receiver, f'joined {group}', *[rf'{size} bytes from QP \d+'] * messages,
                   f'{messages} messages received')
    theirs_succeeded(sender, 'data transfers complete', 'return status 0')


def nothing_came(case, program):
    """Waits for the end of ours, which gives up after a while when siw has lost the first message."""
    if 'timed out' in program.wait().stderr and case.device == 'siw':
        raise LostByDevice(str(program))


def blocking_client(case):
    port = next(PORTS)
    server = case.their_server(port, 'rdma_server', '-s', case.address, '-p', port)
    client = case.start('blocking_client', case.address, port)
    nothing_came(case, client)
    ours_succeeded(client, f'client: 16 bytes from {case.address}:{port}: ""')  # rdma_server sends zeros
    theirs_succeeded(server, 'rdma_server: end 0')


def blocking_server(case):
    port = next(PORTS)
    server = case.our_server('blocking_server', case.address, port)
    client = case.start('rdma_client', '-s', case.address, '-p', port)
    nothing_came(case, server)
    theirs_succeeded(client, 'rdma_client: end 0')
    ours_succeeded(server, 'server: listening on .*', rf'server: 16 bytes from {case.address}:\d+: ""')


def blocking_client_and_server(case):
    port = next(PORTS)
    server = case.our_server('blocking_server', case.address, port)
    client = case.start('blocking_client', case.address, port)
    nothing_came(case, client)
    ours_succeeded(client, f'client: 16 bytes from {case.address}:{port}: "hello, client"')
    ours_succeeded(server, 'server: listening on .*', rf'server: 16 bytes from {case.address}:\d+: "hello, server"')


def cases():
    for device, (v4, v6, _) in DEVICES.items():
        yield f'{device}, ud_ping, server udaddy', device, ud_ping_is_client, 3, 20, 1000, v4
        yield f'{device}, udaddy, server ud_ping', device, ud_ping_is_server, 3, 20, 1000, v4
        if device == 'rxe':
            yield f'{device}, ud_ping, server udaddy, IPv6', device, ud_ping_is_client, 1, 10, 100, v6
        connections = 3 if device == 'siw' else 5  # each of them can be too early there
        for how in [], ['-m']:
            name = ', migrating' if how else ''
            counts = connections, 20, 4096, *how
            yield f'{device}, exchange, server ucmatose{name}', device, exchange_is_client, *counts
            yield f'{device}, ucmatose, server exchange{name}', device, exchange_is_server, *counts
        yield f'{device}, multicast -s, mckey', device, multicast_sends, 10, 1000, '-s'
        yield f'{device}, mckey -s, multicast', device, multicast_receives, 10, 1000
        if device == 'rxe':
            yield f'{device}, multicast -o, mckey', device, multicast_sends, 10, 1000, '-o'
        yield f'{device}, blocking_client, server rdma_server', device, blocking_client
        yield f'{device}, rdma_client, server blocking_server', device, blocking_server
        yield f'{device}, blocking_client, server blocking_server', device, blocking_client_and_server


def run_here(programs):
    def try_case(_, device, function, *arguments):
        return attempt(Case(device, programs), function, arguments)

    def lost(_, failure):
        if isinstance(failure, TooEarly):
            return str(failure).splitlines()[0]
        if isinstance(failure, LostByDevice):
            return 'siw has lost the first message'
        return None

    return run_all(list(cases()), try_case, lost)


def main():
    if len(sys.argv) != 1 + len(OURS):
        sys.exit(__doc__)
    programs = [os.path.abspath(program) for program in sys.argv[1:]]
    missing = [program for program in THEIRS if not shutil.which(program)]
    if missing:
        print(f'1..0 # SKIP no {", ".join(missing)}: in the package rdmacm-utils')
        return 0
    if not os.environ.get('RDMACPP_GUEST'):
        return run_in_guest(__file__, programs)
    return run_here(dict(zip(OURS, programs)))


if __name__ == '__main__':
    sys.exit(main())
