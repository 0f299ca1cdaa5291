#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Every test case of the sources is in exactly one of the programs, and nothing else is.

    cases.py PROGRAM... -- SOURCE...

So a ring that is split into several programs, or built in another configuration, runs what the whole one does. A case
that stands under a condition of the preprocessor may be missing.
"""

import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / 'compile'))
import ring  # noqa: E402
import tap_catch  # noqa: E402

CASE = re.compile(r'\s*TEST_CASE(?:_METHOD)?\s*\(')
NAME = re.compile(r'\s*TEST_CASE(?:_METHOD\s*\(\s*[\w:]+\s*,|\s*\()\s*((?:"(?:\\.|[^"\\])*"\s*)+)[,)]')


def cases_of(text):
    """({names of the cases}, {those under a condition}, [lines with a case whose name was not understood])"""
    certain, conditional, unknown, depth = set(), set(), [], 0
    lines = ring.strip_comments(text, keep_strings=True).split('\n')
    for number, line in enumerate(lines):
        directive = re.match(r'\s*#\s*(if|endif)', line)
        if directive:
            depth += 1 if directive.group(1) == 'if' else -1
        elif CASE.match(line):
            name = NAME.match('\n'.join(lines[number:number + 4]))
            if not name:
                unknown.append(line)
                continue
            parts = re.findall(r'"((?:\\.|[^"\\])*)"', name.group(1))
            (conditional if depth else certain).add(re.sub(r'\\(.)', r'\1', ''.join(parts)))
    return certain, conditional, unknown


def compare(texts, lists):
    """[what is wrong]"""
    certain, conditional, wrong = set(), set(), []
    for text in texts:
        here, may, unknown = cases_of(text)
        wrong += [f'not understood: {line}' for line in unknown]
        certain, conditional = certain | here, conditional | may
    listed = [name for names in lists for name in names]
    wrong += [f'not in the programs: {name}' for name in sorted(certain - set(listed))]
    wrong += [f'not in the sources: {name}' for name in sorted(set(listed) - certain - conditional)]
    wrong += [f'more than once: {name}' for name in sorted(set(listed)) if listed.count(name) > 1]
    return wrong


SOURCE = '''TEST_CASE("a", "[tag]") {}
// TEST_CASE("no") {}
TEST_CASE_METHOD(some::fixture,
                 "b \\"quoted\\", "
                 "whole") {}
#if X
TEST_CASE("c") {}
#endif
'''
WHOLE = 'b "quoted", whole'
CONTROLS = [
    ([['a'], [WHOLE]], 0),
    ([['a', WHOLE, 'c']], 0),
    ([['a']], 1),
    ([['a', WHOLE], ['a']], 1),
    ([['a', WHOLE, 'd']], 1),
]


def main():
    arguments = sys.argv[1:]
    if '--' not in arguments:
        sys.exit(__doc__)
    at = arguments.index('--')
    programs, sources = arguments[:at], arguments[at + 1:]
    tap = ring.Tap()
    tap.check(all(len(compare([SOURCE], lists)) == count for lists, count in CONTROLS)
              and len(compare([SOURCE + 'TEST_CASE(name) {}\n'], [['a', WHOLE]])) == 1,
              'control: what is missing, unknown or twice is found')
    lists = [tap_catch.listed([program], ['*,[.]']) for program in programs]
    wrong = compare([pathlib.Path(source).read_text(encoding='utf-8') for source in sources], lists)
    tap.check(not wrong, f'{sum(map(len, lists))} cases, each of them in one of {len(programs)} programs',
              '\n'.join(wrong))
    tap.done()


if __name__ == '__main__':
    main()
