#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Adds up what tests said, and prints the failed ones and the totals.

    test-totals.py NAME=FILE... [--failed TEXT]... [--skipped TEXT]...

FILE is Meson's testlog.json or a TAP log. Each case of a TAP test counts, any other test counts once; a test that ended
badly without a failed case counts as one failure. --failed and --skipped add one each. The last line is
`N passed, N failed, N skipped`; the exit code is 1 if anything failed or nothing passed.
"""

import collections
import json
import pathlib
import re
import sys

LINE = re.compile(r'^(ok|not ok)\b\s*\d*\s*(?:-\s*)?(.*?)(?:\s+#\s*(SKIP|TODO)\b\s*(.*))?$', re.IGNORECASE)
EMPTY = re.compile(r'^1\.\.0\b(?:\s*#\s*(?:SKIP\b)?\s*(.*))?', re.IGNORECASE)
PLAN = re.compile(r'^1\.\.\d+')
GOOD = {'OK', 'SKIP', 'EXPECTEDFAIL'}


class Totals:
    def __init__(self):
        self.passed, self.failures, self.skips = 0, [], []

    def skip(self, test, case, reason):
        self.skips.append((test, case, reason or 'no reason given'))

    def tap(self, test, text):
        """Counts the cases; returns how many failed, and None where this is no TAP."""
        failures, seen, comments, last = [], False, [], None
        comes_after = None  # some write the comments on a failure above its line, some below: one way in each log
        for line in text.splitlines():
            if match := LINE.match(line):
                seen = True
                verdict, case, directive, reason = match.groups()
                directive = (directive or '').upper()
                last = None
                if directive == 'SKIP':
                    self.skip(test, case, reason)
                elif verdict.lower() == 'ok' or directive == 'TODO':
                    self.passed += 1
                else:
                    if comes_after is None:
                        comes_after = not comments
                    last = [] if comes_after else comments
                    failures.append((test, case, last))
                comments = []
            elif match := EMPTY.match(line):
                seen = True
                self.skip(test, '', match.group(1))
            elif PLAN.match(line):
                seen = True
            elif line.startswith(('#', 'Bail out!')):
                (last if comes_after and last is not None else comments).append(line)
        self.failures += failures
        return len(failures) if seen else None

    def meson(self, name, file):
        for line in file.read_text(encoding='utf-8', errors='replace').splitlines():
            test = json.loads(line)
            title, result = f'{name}, {test["name"]}', test['result']
            failed = self.tap(title, test.get('stdout') or '')
            if failed is None and result in GOOD:
                if result == 'SKIP':
                    self.skip(title, '', (test.get('stdout') or '').strip())
                else:
                    self.passed += 1
            elif result not in GOOD and (not failed or result == 'TIMEOUT'):
                tail = ((test.get('stdout') or '') + (test.get('stderr') or '')).splitlines()[-30:]
                self.failures.append((title, f'{result}, exit code {test.get("returncode")}', tail))


def main():
    totals, arguments = Totals(), sys.argv[1:]
    while arguments:
        argument = arguments.pop(0)
        if argument == '--failed':
            totals.failures.append((arguments.pop(0), '', []))
        elif argument == '--skipped':
            test, _, reason = arguments.pop(0).partition(': ')
            totals.skip(test, '', reason)
        else:
            name, _, path = argument.partition('=')
            file = pathlib.Path(path)
            if not file.exists():
                totals.failures.append((name, 'no log: it does not build, or its tests did not run', []))
            elif file.suffix == '.json':
                totals.meson(name, file)
            elif totals.tap(name, file.read_text(encoding='utf-8', errors='replace')) is None:
                totals.failures.append((name, 'it printed no results', []))

    reasons = collections.Counter((test, reason) for test, _, reason in totals.skips)
    for (test, reason), count in reasons.items():
        print(f'skipped  {test}{f" ({count} cases)" if count > 1 else ""}: {reason}')
    for test, case, comments in totals.failures:
        print(f'FAILED   {test}{": " + case if case else ""}')
        for line in comments[-30:]:
            print(f'         {line}')
    print(f'{totals.passed} passed, {len(totals.failures)} failed, {len(totals.skips)} skipped')
    return 1 if totals.failures or not totals.passed else 0


if __name__ == '__main__':
    sys.exit(main())
