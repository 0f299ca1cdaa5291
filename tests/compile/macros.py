#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The umbrella defines no macro but those of macros.txt, and redefines or undefines none of anybody else's.

The comparison is what the real preprocessor has defined at the end (-dM -E), with the umbrella and without it but
with every other header that ours include.
"""

import pathlib
import re
import sys

import ring

ALLOWED = pathlib.Path(__file__).resolve().parent / 'macros.txt'


def allowed_names(text):
    """({names that must be defined}, {names that may be}); the latter have a question mark behind them."""
    must, may = set(), set()
    for line in text.splitlines():
        name = line.split('#')[0].strip()
        if name.endswith('?'):
            may.add(name[:-1].strip())
        elif name:
            must.add(name)
    return must, may


def defined(compiler, source, include, standard):
    status, output = compiler.run([f'-std={standard}', '-I', str(include), *ring.c_includes(), '-dM', '-E'], source)
    if status != 0:
        sys.exit(f'{compiler} cannot preprocess:\n{output}')
    return dict(re.findall(r'^#define ([A-Za-z_]\w*)(.*)$', output, re.MULTILINE))


# Included only where the standard library is one whose names we do not declare ourselves.
DECLARED_ALONE = {'stop_token'}


def reached(path, seen):
    """The foreign headers that this header of ours and those it includes ask for."""
    foreign = set()
    if path in seen or not path.is_file():
        return foreign
    seen.add(path)
    for _, name, angle in ring.includes_of(path.read_text(encoding='utf-8')):
        if angle and name not in DECLARED_ALONE:
            foreign.add(name)
        elif angle:
            pass
        else:
            foreign |= reached((path.parent / name).resolve(), seen)
    return foreign


def baseline(umbrella):
    """A unit with every foreign header that ours include, each only if it exists."""
    return ''.join(f'#if __has_include(<{name}>)\n#include <{name}>\n#endif\n'
                   for name in sorted(reached(umbrella.resolve(), set())))


def compare(compiler, include, umbrella, standard, must, may):
    """[what is wrong]"""
    before = defined(compiler, baseline(include / umbrella), include, standard)
    after = defined(compiler, ring.including([umbrella]), include, standard)
    new = set(after) - set(before)
    wrong = [f'{name} leaks:{after[name]}' for name in sorted(new - must - may)]
    wrong += [f'{name} is redefined: {before[name]} ->{after[name]}'
              for name in sorted(set(after) & set(before)) if before[name] != after[name]]
    wrong += [f'{name} is undefined by us' for name in sorted(set(before) - set(after))]
    wrong += [f'{name} of the list is not defined: take it off the list' for name in sorted(must - set(after))]
    return wrong


def controls(tap, compiler):
    def run(text, must=()):
        with ring.scratch() as directory:
            include = ring.write(directory, {'rdmacpp/rdmacpp.hpp': '#pragma once\n#include <climits>\n' + text})
            return compare(compiler, include, 'rdmacpp/rdmacpp.hpp', 'c++20', set(must), set())

    results = {
        'clean': (run('#define RDMACPP_A 1\n#define TEMPORARY\n#undef TEMPORARY\n', ['RDMACPP_A']), ''),
        'leak': (run('#define LEAK 1\n'), 'LEAK leaks'),
        'redefined': (run('#undef INT_MAX\n#define INT_MAX 5\n'), 'INT_MAX is redefined'),
        'undefined': (run('#undef __cplusplus_x\n#undef __CHAR_BIT__\n'), '__CHAR_BIT__ is undefined'),
        'stale': (run('', ['RDMACPP_GONE']), 'RDMACPP_GONE of the list'),
    }
    wrong = [f'{name}: {found}' for name, (found, expected) in results.items()
             if len(found) != bool(expected) or not all(line.startswith(expected) for line in found)]
    tap.check(not wrong, 'control: leaks, redefinitions and stale entries are found', '\n'.join(wrong))


def main():
    found = ring.need_compilers()
    tap = ring.Tap()
    tap.skips()
    controls(tap, found[0])
    must, may = allowed_names(ALLOWED.read_text(encoding='utf-8'))
    tap.check(all(name.startswith('RDMACPP_') for name in must | may), 'every macro of the list begins with RDMACPP_')
    texts = ''.join((ring.INCLUDE / name).read_text(encoding='utf-8') for name in ring.headers())
    version = (ring.PROJECT / 'version.hpp').read_text(encoding='utf-8')
    bare = [name for name in sorted(must | may) if not re.search(rf'[@\\]def {name}\b', texts)
            and not re.search(rf'# *define {name}\b', version)]
    tap.check(not bare, 'every macro of the list is documented: @def, or in version.hpp', ', '.join(bare))
    for compiler in found:
        for standard in ring.STANDARDS:
            wrong = compare(compiler, ring.INCLUDE, 'rdmacpp/rdmacpp.hpp', standard, must, may)
            tap.check(not wrong, f'no macro leaks: {compiler}, {standard}', '\n'.join(wrong))
    for header in sorted(ring.APART):
        wrong = compare(found[0], ring.INCLUDE, header, 'c++20', must, may)
        tap.check(not wrong, f'no macro leaks: {header}', '\n'.join(wrong))
    tap.done()


if __name__ == '__main__':
    main()
