#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Runs examples/rping against the rping of rdma-core (package rdmacm-utils) on soft RDMA, and prints TAP.

    rping.py OUR_RPING [THEIR_RPING]

Outside the virtual machine of tools/softrdma it starts itself again inside. Each case runs under a watchdog: a program
that does not end is killed and reported as a hang. Ours is judged by exit code, stdout and stderr; theirs by what it
prints, since rping 44 can exit with an error after success, or hang once all is done.

siw can lose a client's first message: in the kernel, siw_accept sends its reply before it sees to it that what comes
next is received. A case that hangs before its first ping, on siw alone, is done again, and a comment says so.

The rping of rdma-core cannot be a client with -q on siw, where rdma_establish is EINVAL: skipped, when it says so.
"""

import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

PATIENCE = 30  # seconds that a program may take to end, in an emulated machine
DEVICES = {
    'rxe': ('10.77.1.1', 'fd77:1::1', 'fe80::77:1%d0'),
    'siw': ('10.77.2.1', 'fd77:2::1', 'fe80::77:2%d1'),
}
PINGS = 100


class Failed(Exception):
    pass


class Skipped(Failed):
    """Somebody else's program, or a device, cannot do what the case is about."""


class Hang(Failed):
    def __init__(self, program, text='hang'):
        super().__init__(f'{text}: {" ".join(program.arguments)}')
        self.before_first_ping = not program.stdout


def check(condition, text):
    if not condition:
        raise Failed(text)


class Program:
    """A program at work, its output in files: no pipe fills up, and what was printed so far can be looked at."""

    def __init__(self, *arguments):
        self.arguments = [str(a) for a in arguments]
        self.files = [tempfile.TemporaryFile() for _ in range(2)]
        self.process = subprocess.Popen(['stdbuf', '-oL', *self.arguments], stdin=subprocess.DEVNULL,
                                        stdout=self.files[0], stderr=self.files[1])

    def text(self, which):
        file = self.files[which].fileno()
        return os.pread(file, os.fstat(file).st_size, 0).decode(errors='replace')

    stdout = property(lambda self: self.text(0))
    stderr = property(lambda self: self.text(1))

    def until(self, condition):
        deadline = time.monotonic() + PATIENCE
        while not condition():
            if time.monotonic() > deadline:
                raise Hang(self)
            time.sleep(0.05)

    def ended(self):
        return self.process.poll() is not None

    def wait(self):
        self.until(self.ended)
        return self

    def kill(self, number):
        self.process.send_signal(number)

    def wait_for_output(self):
        self.until(lambda: os.fstat(self.files[0].fileno()).st_size != 0 or self.ended())
        check(not self.ended(), f'it ended early: {self}')

    def succeeded(self):
        """For ours: exit code 0, and nothing on stderr."""
        code = self.wait().process.returncode
        check(code == 0 and not self.stderr, f'expected success of {self}')

    def failed(self, *words):
        """For ours: exit code 1, one line on stderr, with one of the words in it."""
        code = self.wait().process.returncode
        lines = self.stderr.splitlines()
        check(code == 1 and len(lines) == 1 and lines[0].startswith('rping: '),
              f'expected one line and exit code 1 of {self}')
        check(not words or any(word in lines[0] for word in words), f'expected one of {words} of {self}')

    def printed(self, label, size):
        """Exactly the data of all pings, and that soon, whether or not the program then ends."""
        wanted = ''.join(f'{label}: {ping_text(n, size)}\n' for n in range(PINGS))
        self.until(lambda: os.fstat(self.files[0].fileno()).st_size >= len(wanted) or self.ended())
        check(self.stdout == wanted, f'expected {PINGS} lines of "{label}", {size} bytes, of {self}')

    def __str__(self):
        lines = self.stdout.splitlines()
        shown = lines if len(lines) < 6 else lines[:2] + [f'... {len(lines)} lines ...'] + lines[-2:]
        return (' '.join(self.arguments) + f'\nexit code {self.process.poll()}\nstderr:\n' +
                self.stderr + 'stdout:\n' + '\n'.join(line[:200] for line in shown))


def wait_until_listening(server, port):
    deadline = time.monotonic() + PATIENCE
    while True:
        found = subprocess.run(['rdma', 'resource', 'show', 'cm_id'], capture_output=True, text=True, check=False)
        if any('LISTEN' in line and f':{port} ' in line for line in found.stdout.splitlines()):
            time.sleep(0.2)  # the state is set before the device listens, and rping 44 hangs when it is refused
            return
        check(not server.ended(), f'the server ended early: {server}')
        check(time.monotonic() < deadline, f'the server does not listen: {server}')
        time.sleep(0.05)


LETTERS = ''.join(chr(65 + i) for i in range(58)) * 1200


def ping_text(number, size):
    start = f'rdma-ping-{number}: '
    return start + LETTERS[number % 58:][:size - 1 - len(start)]


class Case:
    """The programs of one case, on a port of its own; whatever is left of them is killed at its end."""

    last_port = 7200

    def __init__(self, name, ours, theirs):
        Case.last_port += 1
        self.name, self.ours, self.theirs, self.port = name, ours, theirs, Case.last_port
        self.programs = []

    def start(self, program, role, address, *options):
        started = Program(program, role, '-a', address, '-p', self.port, *options)
        self.programs.append(started)
        return started

    def server(self, program, address, *options):
        """Starts a server, and waits until it listens."""
        started = self.start(program, '-s', address, *options)
        wait_until_listening(started, self.port)
        return started

    def client(self, program, address, *options):
        return self.start(program, '-c', address, *options)

    def end(self):
        for program in self.programs:
            with contextlib.suppress(ProcessLookupError):
                program.process.kill()
            program.process.wait()


# -- the cases: functions of a Case, an address and more

def our_client(case, address, size, ours=(), theirs=()):
    server = case.server(case.theirs, address, '-v', '-S', size, *theirs)
    client = case.client(case.ours, address, '-v', '-V', '-S', size, '-C', PINGS, *ours)
    client.succeeded()
    client.printed('ping data', size)
    server.printed('server ping data', size)


def our_server(case, address, size, ours=(), theirs=()):
    server = case.server(case.ours, address, '-v', '-S', size, *ours)
    client = case.client(case.theirs, address, '-v', '-V', '-S', size, '-C', PINGS, *theirs)
    if theirs and 'siw' in case.name:
        client.until(lambda: client.stdout or client.stderr or client.ended())
        if client.stderr.startswith('rdma_establish: Invalid argument'):
            raise Skipped('rping -q as a client calls rdma_establish, which siw does not have')
    client.printed('ping data', size)
    check('mismatch' not in client.stderr, f'its data came back changed: {client}')
    server.succeeded()
    server.printed('server ping data', size)


def our_persistent_server(case, address):
    server = case.server(case.ours, address, '-P', '-S', 4096)
    for _ in range(2):
        clients = [(size, case.client(case.theirs, address, '-v', '-V', '-S', size, '-C', PINGS))
                   for size in (23, 64, 4096)]
        clients.append((64, case.client(case.ours, address, '-v', '-V', '-C', PINGS)))
        for size, client in clients:
            client.printed('ping data', size)
    check(not server.ended(), f'it ended early: {server}')
    server.kill(signal.SIGINT)
    server.failed('stopped by a signal')


def their_persistent_server_dies(case, address):
    server = case.server(case.theirs, address, '-P')
    client = case.client(case.ours, address, '-v')
    client.wait_for_output()
    server.kill(signal.SIGKILL)
    client.failed('disconnected', 'failed')


def our_server_is_stopped(case, address):
    server = case.server(case.ours, address)
    client = case.client(case.ours, address, '-v')
    client.wait_for_output()
    server.kill(signal.SIGINT)
    server.failed('stopped by a signal')
    client.failed('disconnected', 'failed')


def their_client_dies(case, address):
    """It may die between two pings, which is no error: then once more."""
    for _ in range(5):
        server = case.server(case.ours, address, '-v')
        client = case.client(case.theirs, address, '-C', '0')
        server.wait_for_output()
        client.kill(signal.SIGKILL)
        if server.wait().process.returncode == 0:
            check(not server.stderr, f'expected no complaint of {server}')
            continue
        server.failed('disconnected', 'failed')
        return
    raise Failed('the server never noticed that a client died in the middle of a ping')


def our_client_is_stopped(case, address):
    server = case.server(case.theirs, address)
    client = case.client(case.ours, address, '-v')
    client.wait_for_output()
    client.kill(signal.SIGTERM)
    client.failed('stopped by a signal')
    server.until(lambda: 'DISCONNECT' in server.stderr or server.ended())


def closed_port(case, address):
    client = case.client(case.ours, address, '-C', 1)
    client.failed('nobody listens', 'refused')
    check(not client.stdout, f'expected no output of {client}')


def address_in_use(case, address):
    case.server(case.theirs, address)
    case.start(case.ours, '-s', address).failed('in use')


def too_long(case, address):
    server = case.server(case.ours, address, '-S', 64)
    client = case.client(case.theirs, address, '-S', 65, '-C', 1)
    server.failed('more than 64')
    client.until(lambda: 'DISCONNECT' in client.stderr or client.ended())


def wrong_options(case, _):
    for options in (['-c'], ['-s', '-c'], ['-s', '-S', '22'], ['-s', '-S', '65536'], ['-s', '-x'], ['-c', '-a', 'x'],
                    ['-s', '-p'], ['-s', '-p', '7x'], ['-c', '-a', '::1', '-C', '-1'], ['-s', 'more'], []):
        program = Program(case.ours, *options).wait()
        check(program.process.returncode == 2 and len(program.stderr.splitlines()) == 1 and not program.stdout,
              f'expected one line and exit code 2 of {program}')
    program = Program(case.ours, '--help').wait()
    check(program.process.returncode == 0 and '--help' in program.stdout, f'expected help of {program}')


def cases():
    for device, (v4, v6, link_local) in DEVICES.items():
        for name, function in (('our client', our_client), ('our server', our_server)):
            for size in (23, 64, 4096, 65000):
                yield f'{device}, {name}, {size} bytes', function, v4, size
            yield f'{device}, {name}, IPv6', function, v6, 64
            yield f'{device}, {name}, link-local', function, link_local, 64
            for ours, theirs in (['-q'], []), (['-q'], ['-q']), ([], ['-q']):
                told = 'both' if ours == theirs else 'ours' if ours else 'theirs'
                yield f'{device}, {name}, self-managed QP: {told}', function, v4, 64, ours, theirs
        for function in (our_persistent_server, their_persistent_server_dies, our_server_is_stopped, their_client_dies,
                         our_client_is_stopped, closed_port, address_in_use, too_long):
            yield f'{device}, {function.__name__.replace("_", " ")}', function, v4
    yield 'wrong options', wrong_options, None


def attempt(case, function, arguments):
    """None, or what went wrong."""
    try:
        function(case, *arguments)
        return None
    except Failed as failure:
        for program in case.programs:
            if str(program) not in str(failure):
                failure.args = (f'{failure}\n{program}',)
        return failure
    finally:
        case.end()


def run_all(todo, try_case, lost):
    """Prints TAP.

    todo: for each case its name and the arguments of try_case, which returns None, or what went wrong. lost(name, failure)
    says whether the device is to blame for that, and how: then it is done again, twice at most.
    """
    print(f'1..{len(todo)}', flush=True)
    failures = 0
    for number, (name, *arguments) in enumerate(todo, 1):
        began = time.monotonic()
        for repetitions_left in (2, 1, 0):
            failure = try_case(name, *arguments)
            reason = failure and lost(name, failure)
            if not reason or not repetitions_left:
                break
            print(f'# {reason}, once more')
        skip = ''
        if isinstance(failure, Skipped):
            skip = ' # SKIP ' + str(failure).splitlines()[0]
        elif failure:
            failures += 1
            print('\n'.join('# ' + line for line in str(failure).splitlines()))
        print(f'{"not ok" if failure and not skip else "ok"} {number} - {name}{skip}')
        print(f'# {time.monotonic() - began:.1f} s', flush=True)
    return failures != 0


def run_here(ours, theirs):
    def try_case(name, function, *arguments):
        return attempt(Case(name, ours, theirs), function, arguments)

    def lost(name, failure):
        if isinstance(failure, Hang) and failure.before_first_ping and name.startswith('siw'):
            return 'no first ping: siw has lost a message'
        return None

    return run_all(list(cases()), try_case, lost)


def run_in_guest(script, arguments):
    softrdma = pathlib.Path(__file__).resolve().parents[2] / 'tools' / 'softrdma'
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
    me = [sys.executable, os.path.abspath(script)]
    # One processor: programs that wait for each other need no more, and each emulated one costs, also when idle.
    os.execv(softrdma, [str(softrdma), '--no-install', '--cpus', '1', '--timeout', '900', '--', *me, *arguments])


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    ours = os.path.abspath(sys.argv[1])
    theirs = shutil.which(sys.argv[2] if len(sys.argv) == 3 else 'rping')
    if not theirs:
        print('1..0 # SKIP no rping: it is in the package rdmacm-utils')
        return 0
    if not os.environ.get('RDMACPP_GUEST'):
        return run_in_guest(__file__, [ours, theirs])
    return run_here(ours, theirs)


if __name__ == '__main__':
    sys.exit(main())
