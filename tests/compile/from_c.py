#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""docs/from_c.md has a row for every function of librdmacm and libibverbs, and what the rows name is there.

    from_c.py [PAGE]

A row is `C functions | ours | note`. Each function stands in one row. What is ours must be a name that a program can use
(a compiler is asked), and some public header must have it beside the function's name; a row that names nothing of ours is
for functions that coverage.py excepts, too.
"""

import pathlib
import re
import sys

import coverage
import ring

PAGE = ring.ROOT / 'docs' / 'from_c.md'
SPAN = re.compile(r'`([^`]+)`')
FUNCTION = re.compile(r'(rdma|ibv|mbps_to|mult_to)_\w+')


def rows(text):
    """[([C functions], [ours])] of the tables whose first column is C."""
    found, inside = [], False
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split('|')[1:-1]]
        if len(cells) != 3:
            inside = False
        elif cells[0] == 'C':
            inside = True
        elif inside and not set(cells[0]) <= set('- '):
            found.append((SPAN.findall(cells[0]), SPAN.findall(cells[1])))
    return found


def row_faults(table, functions, excepted):
    """What is wrong with the rows, whatever the names mean."""
    named = [name for names, _ in table for name in names]
    faults = [f'{name} has no row' for name in sorted(functions - set(named))]
    faults += [f'{name} is no function' for name in sorted(set(named) - functions)]
    faults += [f'{name} has more than one row' for name in sorted({name for name in named if named.count(name) > 1})]
    faults += [f'{name} is nothing here, and coverage.py does not say why'
               for names, ours in table if not ours for name in names if name not in excepted]
    return faults


def unknown(compiler, names):
    """{name: what the compiler says} of the names of ours that a program cannot use; what else it says under ''."""
    lines = []
    for number, name in enumerate(sorted(names)):
        owner, _, member = name.rpartition('::')
        use = f'struct use_{number} : rdma::{owner} {{ using rdma::{owner}::{member}; }};' if owner else f'using rdma::{name};'
        lines.append(f'#line 1 "{name}"\nnamespace in_{number} {{ {use} }}\n')
    source = ring.including(['rdmacpp/rdmacpp.hpp']) + ''.join(lines)
    status, output = compiler.run(['-std=c++20', '-fsyntax-only', '-I', str(ring.INCLUDE), *ring.c_includes()], source)
    found = {}
    for line in ring.error_lines(output) or ([output] if status != 0 else []):
        name = next((name for name in names if line.startswith(f'{name}:1:')), '')
        found.setdefault(name, line)
    return found


def strangers(table, texts, excepted=()):
    """Rows whose two sides no header has together."""
    headers = [set(re.findall(r'\w+', text)) for text in texts]
    faults = []
    for functions, ours in table:
        for function in set(functions) - set(excepted):
            last = [name.rpartition('::')[2] for name in ours]
            wanted = {*last, *(f'{name}_node' for name in last)}
            if ours and not any(function in words and wanted & words for words in headers):
                faults.append(f'no header has {function} and any of {", ".join(ours)}')
    return faults


CONTROL = '''
| C | here | |
| --- | --- | --- |
| `rdma_a`, `rdma_b` | `x`, `y::z` | the note of `w` |
| `rdma_c` | – | not here |

| other | table |
| --- | --- |
| `rdma_d` | `x` |
'''


def controls(tap):
    table = rows(CONTROL)
    tap.check(table == [(['rdma_a', 'rdma_b'], ['x', 'y::z']), (['rdma_c'], [])], 'control: the rows are read', table)
    good = row_faults(table, {'rdma_a', 'rdma_b', 'rdma_c'}, {'rdma_c'})
    bad = [row_faults(table, {'rdma_a', 'rdma_b', 'rdma_c', 'rdma_d'}, {'rdma_c'}), row_faults(table, {'rdma_a', 'rdma_b'}, {'rdma_c'}),
           row_faults(table, {'rdma_a', 'rdma_b', 'rdma_c'}, set()), row_faults(table * 2, {'rdma_a', 'rdma_b', 'rdma_c'}, {'rdma_c'})]
    tap.check(not good and all(bad), 'control: a missing, an invented, a doubled and an empty row are found')
    tap.check(strangers(table, ['rdma_a x', 'rdma_b z']) == [] and strangers(table, ['rdma_a x', 'rdma_b', 'z']) != [],
              'control: a row that joins strangers is found')


def main():
    page = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else PAGE
    compiler = ring.need_compilers()[0]
    tap = ring.Tap()
    installed = coverage.c_api(compiler)
    if installed is None or not installed.functions:
        sys.exit('the C headers are not installed, or cannot be read')
    newer, _ = coverage.newer_api(compiler, installed)
    functions = set(installed.functions) | set(newer.functions)
    controls(tap)

    table = rows(page.read_text(encoding='utf-8'))
    faults = row_faults(table, functions, coverage.EXCEPTIONS)
    tap.check(len(table) > 150 and not faults, f'each of {len(functions)} functions has its row', '\n'.join(faults))
    ours = {name for _, names in table for name in names}
    invented = {'cm_id::no_such', 'no_such', 'cm_id::record_'}
    faults = unknown(compiler, ours | invented)
    tap.check(invented <= set(faults), 'control: a name that is not there, or private, is found', faults)
    wrong = [line for name, line in faults.items() if name not in invented]
    tap.check(not wrong, f'{len(ours)} names of ours are there', '\n'.join(wrong))
    texts = [(ring.INCLUDE / name).read_text(encoding='utf-8') for name in ring.headers()]
    faults = strangers(table, texts, coverage.EXCEPTIONS)
    tap.check(not faults, 'what stands in a row belongs together', '\n'.join(faults))
    tap.done()


if __name__ == '__main__':
    main()
