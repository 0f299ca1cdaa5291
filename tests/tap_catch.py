#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Runs a Catch2 test binary (version 2 or 3) and prints TAP: one line per test case.

    tap_catch.py [--case-timeout SECONDS] [--allow-empty] BINARY [--wrapper COMMAND...] [-- CATCH ARGUMENTS]

- Every case that Catch lists for the selection is in the plan. One that never finished (the binary crashed, hung or left)
  counts as failed, and so do all that it did not come to.
- A case that calls RDMACPP_SKIP (tests/catch.hpp) is `ok ... # SKIP reason`.
- Failures are comment lines above the case's own line. What the binary prints itself goes to stderr.
- A case that takes longer than --case-timeout (300 s) is aborted, and the run with it.
- Nothing listed is a failure, except with --allow-empty.
- Options of Catch that take a value are written with `=`; words are the selection, without any it is "~[.]".
"""

import os
import pathlib
import re
import signal
import subprocess
import sys
import threading
import time
import xml.etree.ElementTree as ElementTree


def escape(name):
    """A name that TAP does not take for a directive."""
    return re.sub(r'\s+', ' ', name).replace('#', 'No.')


class Run:
    def __init__(self, command, names):
        self.command, self.names = command, names
        self.done, self.failed = {}, 0
        self.path, self.current, self.last_news = [], None, time.monotonic()
        self.out = sys.stdout

    def comment(self, text):
        for line in text.splitlines():
            print(f'#   {line}', file=self.out)

    # -- what the XML reporter tells

    def where(self, element):
        return f'{element.get("filename", "?")}:{element.get("line", "?")}'

    def begin(self, element):
        self.last_news = time.monotonic()
        if element.tag == 'TestCase':
            self.current = (element.get('name') or '').strip()
            self.path = []
        elif element.tag == 'Section':
            self.path.append((element.get('name') or '').strip())

    def end(self, element):
        self.last_news = time.monotonic()
        tag, text = element.tag, (element.text or '').strip()
        if tag == 'Expression' and element.get('success') != 'true':
            self.failure(element, f'{element.get("type")}( {element.findtext("Original", "").strip()} )',
                         'with: ' + element.findtext('Expanded', '').strip())
            for kind in ('Exception', 'FatalErrorCondition'):
                for inner in element.iter(kind):
                    self.comment(f'{kind}: {(inner.text or "").strip()}')
        elif tag in ('Failure', 'FatalErrorCondition') or tag == 'Exception' and 'Expression' not in self.open_tags():
            if tag != 'FatalErrorCondition' or 'Expression' not in self.open_tags():
                self.failure(element, f'{tag}: {text}')
        elif tag == 'Warning' and not text.startswith('SKIPPED: '):
            self.comment(f'warning: {text}')
        elif tag == 'Section' and self.path:
            self.path.pop()
        elif tag == 'TestCase':
            self.finish(element)

    def open_tags(self):
        return [element.tag for element in self.stack]

    def failure(self, element, *lines):
        place = ' / '.join([self.current or '?', *self.path])
        self.comment(f'{self.where(element)}: FAILED: {place}')
        for line in lines:
            self.comment('    ' + line.replace('\n', '\n    '))

    def finish(self, element):
        overall = element.find('OverallResult')
        success = overall is not None and overall.get('success') == 'true'
        reason = None
        for warning in element.iter('Warning'):
            text = (warning.text or '').strip()
            if text.startswith('SKIPPED: '):
                reason = text[len('SKIPPED: '):]
        for skip in element.iter('Skip'):
            reason = (skip.text or '').strip() or 'skipped'
        if overall is not None and not success:
            for info in element.iter('Info'):
                self.comment('info: ' + (info.text or '').strip())
        self.result(self.current, success, reason)
        self.current = None

    # -- TAP

    def result(self, name, success, reason=None):
        if name in self.done:
            if success:
                return
            name = f'{name} (again)'
        self.done[name] = success
        number = len(self.done)
        if not success:
            self.failed += 1
        directive = f' # SKIP {escape(reason)}' if success and reason else ''
        print(f'{"ok" if success else "not ok"} {number} - {escape(name)}{directive}', file=self.out, flush=True)

    # -- the process

    def watch(self, process, limit):
        """Ends the binary when a case takes too long: first so that it can print a stack, then for good."""
        while process.poll() is None:
            if time.monotonic() - self.last_news > limit:
                self.comment(f'no news for {limit} seconds: ended')
                process.send_signal(signal.SIGABRT)
                try:
                    process.wait(10)
                except subprocess.TimeoutExpired:
                    process.kill()
                return
            time.sleep(0.2)

    def go(self, limit):
        read_end, write_end = os.pipe()
        process = subprocess.Popen([*self.command, '--reporter=xml', f'--out=/dev/fd/{write_end}'],
                                   pass_fds=[write_end], stdin=subprocess.DEVNULL, stdout=sys.stderr)
        os.close(write_end)
        self.last_news = time.monotonic()
        watcher = threading.Thread(target=self.watch, args=(process, limit), daemon=True)
        watcher.start()
        parser = ElementTree.XMLPullParser(['start', 'end'])
        self.stack = []
        with os.fdopen(read_end, 'rb', buffering=0) as pipe:
            try:
                while data := pipe.read(65536):
                    parser.feed(data)
                    for event, element in parser.read_events():
                        if event == 'start':
                            self.begin(element)
                            self.stack.append(element)
                        else:
                            self.stack.pop()
                            self.end(element)
            except ElementTree.ParseError as error:
                self.comment(f'the report breaks off: {error}')
                while pipe.read(65536):
                    pass
        status = process.wait()
        watcher.join()
        return status


def listed(command, selection):
    """The names of the cases that the selection takes, asked of the binary itself."""
    identity = subprocess.run([*command, '--libidentify'], capture_output=True, text=True, check=False)
    version = re.search(r'version:\s*(\d+)\.', identity.stdout)
    if not version:
        sys.exit(f'{command[-1]} is not a Catch2 binary:\n{identity.stdout}{identity.stderr}')
    listing = ['--list-test-names-only'] if version.group(1) == '2' else ['--list-tests', '--verbosity=quiet']
    output = subprocess.run([*command, *listing, *selection], stdout=subprocess.PIPE, text=True, check=False).stdout
    names = [line.strip() for line in output.splitlines() if line.strip()]
    return [name[1:-1] if name.startswith('"#') and name.endswith('"') else name for name in names]


def main():
    arguments = sys.argv[1:]
    limit, empty_is_fine, catch_arguments = 300.0, False, []
    if '--' in arguments:
        at = arguments.index('--')
        arguments, catch_arguments = arguments[:at], arguments[at + 1:]
    while arguments and arguments[0].startswith('--'):
        option = arguments.pop(0)
        if option == '--case-timeout' and arguments:
            limit = float(arguments.pop(0))
        elif option == '--allow-empty':
            empty_is_fine = True
        else:
            sys.exit(f'unknown option {option}')
    if not arguments:
        sys.exit(__doc__)
    binary = str(pathlib.Path(arguments.pop(0)).resolve())
    wrapper = []
    if arguments and arguments[0] == '--wrapper':
        wrapper, arguments = arguments[1:], []
    catch_arguments = arguments + catch_arguments
    if all(argument.startswith('-') for argument in catch_arguments):
        catch_arguments.append('~[.]')
    options = [argument for argument in catch_arguments if argument.startswith('-')]
    selection = [argument for argument in catch_arguments if not argument.startswith('-')]

    names = listed([binary], selection)
    if not names:
        if empty_is_fine:
            print('1..0 # SKIP no test case matches ' + escape(' '.join(selection)))
            sys.exit(0)
        print('1..1\nnot ok 1 - no test case matches ' + escape(' '.join(selection)))
        sys.exit(1)
    print(f'1..{len(names)}', flush=True)
    run = Run([*wrapper, binary, *options, *selection], names)
    status = run.go(limit)

    unfinished = [name for name in names if name not in run.done]
    how = f'signal {-status}' if status < 0 else f'exit status {status}'
    if run.current in unfinished:
        run.comment(f'the binary ended in the middle of this case ({how})')
        run.result(run.current, False)
        unfinished.remove(run.current)
    for name in unfinished:
        run.comment(f'the binary ended before this case ({how})')
        run.result(name, False)
    skipped_or_passed = len(run.done) - run.failed
    print(f'# {skipped_or_passed} passed, {run.failed} failed')
    if status != 0 and run.failed == 0:
        # A sanitizer's report at exit, say: leaks.
        print(f'# every case passed, but the binary ended with {how}')
        sys.exit(1)
    sys.exit(1 if run.failed else 0)


if __name__ == '__main__':
    main()
