#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What every header has and has not, without a compiler: the SPDX line, #pragma once, no tabs, ASCII only, no heavy
standard header, the C headers through detail/c_api.hpp alone, nothing switched on by __has_include of a third party.

    lint.py [--configured DIRECTORY FILE...]...

compares a directory with the list that the build was configured with: a file added since is in no program yet.
"""

import re
import sys

import ring

HEAVY = {'iostream', 'regex', 'functional', 'ranges'}
C_API = 'rdmacpp/detail/c_api.hpp'
SPDX = '// SPDX-License-Identifier: MIT'
COLUMNS = 120


def faults(header, text):
    """['line: what is wrong'] of one header."""
    found = []
    lines = text.split('\n')
    if lines[0] != SPDX:
        found.append(f'1: the first line is not {SPDX}')
    directives = [line for line in ring.strip_comments(text).splitlines() if line.strip()]
    if not directives or directives[0].strip() != '#pragma once':
        found.append('1: #pragma once is not the first thing after the comment')
    if not text.endswith('\n') or text.endswith('\n\n'):
        found.append(f'{len(lines)}: the file does not end with one newline')
    for number, line in enumerate(lines, 1):
        if '\t' in line:
            found.append(f'{number}: a tab')
        if '\r' in line:
            found.append(f'{number}: a carriage return')
        if not line.isascii():
            found.append(f'{number}: not ASCII: ' + ascii(line))
        if line.endswith(' '):
            found.append(f'{number}: a blank at the end of the line')
        if len(line) > COLUMNS:
            found.append(f'{number}: {len(line)} columns, limit {COLUMNS}')
    for number, name, angle in ring.includes_of(text):
        if name in HEAVY:
            found.append(f'{number}: includes <{name}>')
        if re.match(r'(rdma|infiniband)/', name) and header != C_API:
            found.append(f'{number}: includes <{name}>, which only {C_API} does')
        if angle and name.startswith('rdmacpp/'):
            found.append(f'{number}: <{name}>: our own headers are included with quotes, relative to the file')
    for number, line in enumerate(ring.strip_comments(text, keep_strings=True).splitlines(), 1):
        for name in re.findall(r'__has_include\s*\(\s*["<]([^">]+)[">]', line):
            if '/' in name and not re.match(r'(rdma|infiniband|sys|linux)/', name):
                found.append(f'{number}: __has_include of {name}: adapters are separate files, never switched on so')
        if re.search(r'\busing\s+namespace\b', line):
            found.append(f'{number}: using namespace')
    return found


GOOD = f'{SPDX}\n/// @file\n#pragma once\n#include <span>\n#include "fwd.hpp"\n'
CONTROLS = [
    ('', GOOD, 0),
    ('first line', GOOD.replace(SPDX, '// MIT'), 1),
    ('pragma', GOOD.replace('#pragma once\n', ''), 1),
    ('tab', GOOD + '\tint x;\n', 1),
    ('ASCII', GOOD + '// \u2026\n', 1),
    ('blank', GOOD + 'int x; \n', 1),
    ('columns', GOOD + '// ' + 'x' * 120 + '\n', 1),
    ('newline', GOOD + '\n', 1),
    ('heavy', GOOD + '#  include  <functional> // why\n', 1),
    ('heavy, in a comment', GOOD + '/* #include <functional>\n#include <regex> */\n', 0),
    ('C header', GOOD + '#include <infiniband/verbs.h>\n', 1),
    ('own header', GOOD + '#include <rdmacpp/fwd.hpp>\n', 1),
    ('has_include', GOOD + '#if __has_include(<boost/asio.hpp>)\n#endif\n', 1),
    ('using', GOOD + 'using namespace std;\n', 1),
]


def stale(arguments):
    """{directory: files there that the build does not know, or knows and that are gone}"""
    lists, current = {}, None
    for argument in arguments:
        if argument == '--configured':
            current = None
        elif current is None:
            current = lists.setdefault(argument, [])
        else:
            current.append(argument)
    result = {}
    for directory, configured in lists.items():
        base = ring.ROOT / directory
        pattern = '*.hpp' if directory == 'include' else '*.cpp'
        there = {path.relative_to(base).as_posix() for path in base.rglob(pattern)}
        result[directory] = sorted(there ^ set(configured))
    return result


def main():
    tap = ring.Tap()
    wrong = [f'{name}: {faults("rdmacpp/x.hpp", text)}' for name, text, count in CONTROLS
             if len(faults('rdmacpp/x.hpp', text)) != count]
    if len(faults(C_API, GOOD + '#include <infiniband/verbs.h>\n')) != 0:
        wrong.append('c_api.hpp may include C headers')
    tap.check(not wrong, 'control: each kind of fault is found', '\n'.join(wrong))
    for header in ring.headers():
        found = faults(header, (ring.INCLUDE / header).read_text(encoding='utf-8'))
        tap.check(not found, header, '\n'.join(f'{header}:{line}' for line in found))
    for directory, difference in stale(sys.argv[1:]).items():
        tap.check(not difference, f'the build knows every file of {directory}',
                  f'run "meson setup --reconfigure": {", ".join(difference)}')
    tap.done()


if __name__ == '__main__':
    main()
