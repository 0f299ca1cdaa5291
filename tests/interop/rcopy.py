#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Runs examples/rcopy on soft RDMA: files arrive whole and right, whoever is killed and whenever. Prints TAP.

    rcopy.py RCOPY            what is quick; RCOPY_SEED=N repeats a run
    rcopy.py --long RCOPY     a file of 1 GiB, on each device, and its rate

Outside the virtual machine of tools/softrdma it starts itself again inside. Each case runs under a watchdog.

siw can lose a client's first message (see rping.py), and the client then says that the peer has said nothing: the case
is done again, and a comment says so.
"""

import contextlib
import filecmp
import itertools
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
from rping import DEVICES, PATIENCE, Failed, Hang, Program, attempt, check, run_all, run_in_guest  # noqa: E402
from rping import wait_until_listening  # noqa: E402

MIB = 1 << 20
PORTS = itertools.count(7601)
SILENCE = 'the peer has said nothing'  # what siw's loss of a first message looks like
SEED = int(os.environ.get('RCOPY_SEED') or random.SystemRandom().randrange(1 << 32))


class LostByDevice(Failed):
    pass


class TooFast(Failed):
    """What was to be interrupted was done already: that says nothing about anybody."""


class Case:
    """A server, a file to send to it, and whatever programs are at it; all gone at the end."""

    def __init__(self, device, program, name):
        self.device, self.program = device, program
        self.address, self.port = DEVICES[device][0], next(PORTS)
        self.random = random.Random(f'{SEED} {name}')
        self.home = pathlib.Path(tempfile.mkdtemp(prefix='rcopy.'))
        self.inbox = self.home / 'in'
        self.inbox.mkdir()
        self.source = self.home / 'file'
        self.arrived = self.inbox / 'file'
        self.part = self.inbox / '.file.rcopy'
        self.programs = []

    def start(self, *arguments):
        started = Program(*arguments)
        self.programs.append(started)
        return started

    def serve(self, *options):
        """With little memory, so that what a client leaves behind, and is written yet, is not all of its file."""
        options = ['--bind', self.address, '--port', self.port, *(options or ('--memory', 2))]
        server = self.start(self.program, 'serve', *options, self.inbox)
        server.wait_for_output()
        return server

    def send(self, *options, file=None):
        return self.start(self.program, 'send', '--patience', 10, *options, file or self.source,
                          f'{self.address}:{self.port}')

    def write(self, size, name=None):
        file = self.home / (name or 'file')
        file.write_bytes(self.random.randbytes(size))
        return file

    def part_size(self):
        with contextlib.suppress(FileNotFoundError):
            return self.part.stat().st_size
        return 0

    def check_state(self):
        """What must be so at any moment: nothing half-written has the name, and what is there is a beginning."""
        if self.arrived.exists():
            check(filecmp.cmp(self.source, self.arrived, shallow=False), 'what has the final name is not the file')
        with contextlib.suppress(FileNotFoundError):
            part = self.part.read_bytes()
            check(self.source.read_bytes()[:len(part)] == part, 'the part is no beginning of the file')

    def check_done(self, *names):
        for name in names or ('file',):
            check(filecmp.cmp(self.home / name, self.inbox / name, shallow=False), f'{name} did not arrive')
        there = sorted(each.name for each in self.inbox.iterdir())
        check(there == sorted(names or ('file',)), f'these are left: {there}')

    def end(self):
        for program in self.programs:
            with contextlib.suppress(ProcessLookupError):
                program.process.kill()
            program.process.wait()
        shutil.rmtree(self.home)


def ended(program, code, *words):
    """It ends with this code, and one line on stderr with these words."""
    program.wait()
    if SILENCE in program.stderr:
        raise LostByDevice(str(program))
    lines = program.stderr.splitlines()
    check(program.process.returncode == code and len(lines) == 1 and all(word in lines[0] for word in words),
          f'expected exit code {code} and one line with {words} of {program}')


def interrupt(case, sender, victim, size, number=signal.SIGKILL):
    """Sends the victim a signal as soon as that much of the file is there."""
    deadline = time.monotonic() + PATIENCE
    while case.part_size() < size and not case.arrived.exists() and not sender.ended():
        if time.monotonic() > deadline:
            raise Hang(sender)
        time.sleep(0.002)
    victim.kill(number)
    victim.wait()


# -- the cases

def arrives(case):
    case.write(8 * MIB + 1)
    server = case.serve('--memory', 16)
    sender = case.send()
    ended(sender, 0, 'file: 8.0 MiB in ', '/s')
    print('# ' + sender.stderr.strip())
    case.check_done()
    check(case.arrived.stat().st_mtime_ns == case.source.stat().st_mtime_ns, 'its time is another')
    server.kill(signal.SIGTERM)
    ended(server, 0, 'file: complete')


def killed(case):
    """One transfer, interrupted again and again, at either end, and in the end done."""
    interruptions = 0
    size = 8 * MIB
    case.write(size)
    server = case.serve()
    at = 0
    for turn in range(3):
        at += case.random.randrange(1, size // 3)
        if turn == 2 or at > size:
            at = size  # all is there, and it may be given its name at any moment
        sender = case.send()
        victim = case.random.choice((sender, server))
        there = case.part_size()
        interrupt(case, sender, victim, at)
        print(f'# {"sender" if victim is sender else "receiver"} killed at {case.part_size()} bytes, from {there} on')
        case.check_state()
        check(case.arrived.exists() or case.part_size() >= there, 'what was there has become less')
        if victim is server:
            sender.wait()
            check(sender.process.returncode in (0, 1), f'expected exit code 1 of {sender}')
            case.port = next(PORTS)
            server = case.serve()
        if case.arrived.exists():
            break
        interruptions += 1
    if not interruptions:
        raise TooFast('it was too fast')
    there = case.part_size()
    sender = case.send()
    ended(sender, 0, 'file: ', f'{there / MIB:.1f} MiB were there' if there >= MIB else '')
    case.check_done()


def part_of(case, size):
    """The source, of which a part is there."""
    case.write(size)
    server = case.serve()
    sender = case.send()
    interrupt(case, sender, sender, size // 4)
    if case.arrived.exists():
        raise TooFast('it was too fast')
    return server


def changed(case):
    part_of(case, 8 * MIB)
    before = case.source.stat()
    case.write(8 * MIB)  # another file of this size

    def refused(*words):
        part = case.part.read_bytes()
        ended(case.send(), 4, 'refused', '--restart', *words)
        check(case.part.read_bytes() == part and not case.arrived.exists(), 'the part has changed')

    refused('another state')
    os.utime(case.source, ns=(before.st_atime_ns, before.st_mtime_ns))
    refused('not the beginning')
    with case.source.open('ab') as file:
        file.write(b'more')
    refused('another state')
    ended(case.send('--restart'), 0, 'file: 8.0 MiB', 'MiB/s')
    case.check_done()


def stopped(case):
    size = 12 * MIB
    server = part_of(case, size)
    sender = case.send()
    interrupt(case, sender, sender, size // 2, signal.SIGTERM)
    if case.arrived.exists():
        raise TooFast('it was too fast')
    ended(sender, 128 + signal.SIGTERM, 'stopped by a signal')
    case.check_state()
    sender = case.send()
    interrupt(case, sender, server, case.part_size() + 1, signal.SIGTERM)
    if case.arrived.exists():
        raise TooFast('it was too fast')
    check(server.process.returncode == 0, f'expected exit code 0 of {server}')
    ended(sender, 1, 'lost')
    case.check_state()
    case.port = next(PORTS)
    case.serve()
    ended(case.send(), 0, 'were there')
    case.check_done()


def refused_names_and_wrong_peers(case):
    """Whatever clients do, the server goes on, and serves others at the same time."""
    server = case.serve('--limit', '1M')
    for name, *words in (('.x.rcopy', "rcopy's own"), ('a\nb', 'a control character')):
        ended(case.send(file=case.write(10, name)), 3, *words)
    ended(case.send(file=case.write(MIB + 1)), 3, 'too large')
    names = ['file', 'one', 'two']
    senders = [case.send(file=case.write(MIB, name)) for name in names]
    rping = shutil.which('rping')
    if rping:
        client = case.start(rping, '-c', '-a', case.address, '-p', case.port, '-C', 1)
        client.wait()
    for sender in senders:
        ended(sender, 0)
    case.check_done(*names)
    check(not rping or 'no message' in server.stderr, f'expected a complaint of {server}')
    server.kill(signal.SIGINT)
    check(server.wait().process.returncode == 0, f'expected exit code 0 of {server}')
    case.port = next(PORTS)
    ended(case.send(), 1, 'nobody listens' if case.device == 'rxe' else 'refused')
    if rping:
        wrong = case.start(rping, '-s', '-a', case.address, '-p', case.port)
        wait_until_listening(wrong, case.port)
        sender = case.send('--patience', 1).wait()
        check(sender.process.returncode == 1 and len(sender.stderr.splitlines()) == 1, f'expected one line of {sender}')


def wrong_options(case):
    for options in ([], ['serve', '--limit', '1X', '.'], ['send', 'x', '[::1:7'], ['--what']):
        program = Program(case.program, *options)
        ended(program, 2, '--help tells more')
    ended(Program(case.program, 'send', case.home / 'none', case.address), 1, 'No such file')
    ended(Program(case.program, 'serve', case.home / 'none'), 1, 'No such file')
    program = Program(case.program, '--help').wait()
    check(program.process.returncode == 0 and '--restart' in program.stdout, f'expected help of {program}')


def huge(case):
    """1 GiB: most of it is a hole, which is sent like all else; what is not tells where it is."""
    size = 1024 * MIB
    subprocess.run(['mount', '-t', 'tmpfs', '-o', 'size=1100m', 'inbox', case.inbox], check=True)
    try:
        with case.source.open('wb') as file:
            file.truncate(size)
            for offset in [0, size - 4096, *(case.random.randrange(size - 4096) for _ in range(1000))]:
                file.seek(offset)
                file.write(case.random.randbytes(4096))
        case.serve('--memory', 16)
        sender = case.send()
        with contextlib.suppress(Hang):
            while not sender.ended():
                sender.wait()
        ended(sender, 0, 'file: 1.0 GiB in ')
        print('# ' + sender.stderr.strip())
        compared = subprocess.run(['cmp', case.source, case.arrived], capture_output=True, text=True, check=False)
        check(compared.returncode == 0, f'it did not arrive: {compared}')
    finally:
        subprocess.run(['umount', '-l', case.inbox], check=True)


def cases(long):
    for device in DEVICES:
        for function in (huge,) if long else (arrives, killed, stopped, refused_names_and_wrong_peers):
            yield f'{device}, {function.__name__.replace("_", " ")}', function, device
    if not long:
        yield 'rxe, changed', changed, 'rxe'  # which no device has a part in
        yield 'wrong options', wrong_options, 'rxe'


def main():
    arguments = sys.argv[1:]
    long = arguments[:1] == ['--long']
    if len(arguments) != 1 + long:
        sys.exit(__doc__)
    program = os.path.abspath(arguments[-1])
    if not os.environ.get('RDMACPP_GUEST'):
        return run_in_guest(__file__, [*arguments[:-1], program])
    print(f'# RCOPY_SEED={SEED}')

    def try_case(name, function, device):
        return attempt(Case(device, program, name), function, ())

    def lost(name, failure):
        if isinstance(failure, LostByDevice) and name.startswith('siw'):
            return f'{SILENCE}: siw has lost a message'
        if isinstance(failure, TooFast):
            return str(failure).splitlines()[0]
        return None

    return run_all(list(cases(long)), try_case, lost)


if __name__ == '__main__':
    sys.exit(main())
