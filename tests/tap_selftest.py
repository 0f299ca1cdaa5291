#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The TAP runner itself: cases that fail, crash, hang, leave or skip (tests/tap_cases.cpp) are told as what they are.

    tap_selftest.py BINARY
"""

import pathlib
import re
import subprocess
import sys

RUNNER = pathlib.Path(__file__).resolve().parent / 'tap_catch.py'


def run(binary, *arguments):
    done = subprocess.run([sys.executable, str(RUNNER), '--case-timeout', '3', *arguments[:1], binary, *arguments[1:]]
                          if arguments and arguments[0].startswith('--') else
                          [sys.executable, str(RUNNER), '--case-timeout', '3', binary, *arguments],
                          capture_output=True, text=True, check=False, timeout=120)
    lines = [line for line in done.stdout.splitlines() if re.match(r'ok|not ok|1\.\.', line)]
    return done.returncode, lines, done.stdout, done.stderr


def main():
    binary = sys.argv[1]
    checks = []

    status, lines, out, err = run(binary, '[mixed]')
    checks.append(('each kind of result', status == 1 and lines == [
        '1..6', 'ok 1 - passes', 'not ok 2 - fails No. with a directive', 'ok 3 - skips # SKIP no device here',
        'not ok 4 - fails, then skips', 'not ok 5 - throws', 'ok 6 - comes after'], out))
    checks.append(('failures are readable', all(part in out for part in (
        'FAILED: fails # with a directive / inside', 'CHECK( 1 + 1 == 3 )', 'with: 2 == 3', 'info: the info',
        'thrown', 'tap_cases.cpp:')), out))
    checks.append(('the output of the binary is kept apart', '</MatchingName>' in err and 'SKIPPED: skips: no device here'
                   in err, err))

    for kind in ('segv', 'exit', 'kill', 'hang'):
        status, lines, out, err = run(binary, f'[.{kind}]')
        wanted = ['1..3', 'ok 1 - 1 before', f'not ok 2 - 2 {kind}', 'not ok 3 - 3 after']
        checks.append((f'unfinished: {kind}', status == 1 and lines == wanted, out))

    status, lines, out, err = run(binary, 'passes')
    checks.append(('one case, passed', status == 0 and lines == ['1..1', 'ok 1 - passes'], out))
    status, lines, out, err = run(binary)
    checks.append(('hidden cases stay hidden', lines[:1] == ['1..6'], out))
    status, lines, out, err = run(binary, '[.long]')
    checks.append(('hidden cases run when named', status == 0 and lines == ['1..1', 'ok 1 - long one'], out))
    status, lines, out, err = run(binary, '[nothing]')
    checks.append(('no case is a failure', status == 1 and lines[1:] == ['not ok 1 - no test case matches [nothing]'], out))
    status, lines, out, err = run(binary, '--allow-empty', '[nothing]')
    checks.append(('no case may be allowed', status == 0 and lines[0].startswith('1..0 # SKIP'), out))

    print(f'1..{len(checks)}')
    for number, (name, good, detail) in enumerate(checks, 1):
        print(f'{"ok" if good else "not ok"} {number} - {name}')
        if not good:
            print('\n'.join(f'#   {line}' for line in detail.splitlines()))
    sys.exit(0 if all(good for _, good, _ in checks) else 1)


if __name__ == '__main__':
    main()
