#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Joins test files to few units, each in a namespace of its own: what they use of the headers is then compiled once for
several of them, not once for each. Prints what to compile in place of the files.

    merge.py FOLDER NAME FILE...

A unit, FOLDER/NAME_1.cpp and so on, includes the files as they are, so that an error names the file and the line, and
before, at global scope, what they include. A file that cannot stand in a namespace, since it has one with a name, or
includes something under a condition or behind a macro of its own, is compiled by itself.
"""

import pathlib
import re
import sys

LINES = 2000  # of a unit: more would not save much, and need too much memory


def includes(path, lines):
    """The includes of a file, as a unit elsewhere writes them; None where it must be by itself."""
    found, depth, defines = [], 0, False
    for line in lines:
        directive = re.match(r'\s*#\s*(if|endif|define|include)(.*)', line)
        if directive and directive.group(1) == 'include':
            if depth or defines:
                return None
            name = re.match(r'\s*"(.*)"', directive.group(2))
            if name and (path.parent / name.group(1)).exists():
                line = f'#include "{(path.parent / name.group(1)).as_posix()}"'
            found.append(line.split('//')[0].strip())
        elif directive and directive.group(1) == 'define':
            defines = True
        elif directive:
            depth += 1 if directive.group(1) == 'if' else -1
        elif re.match(r'(inline )?namespace [\w:]+ *\{|extern "C"', line):
            return None
    return found


def unit(files):
    """The text of a unit: {path: (its includes, the macros it leaves behind)}"""
    text = ['// Made by tests/merge.py', *dict.fromkeys(line for headers, _ in files.values() for line in headers)]
    for path, (_, macros) in files.items():
        text += [f'namespace merged_{path.stem} {{', f'#include "{path.as_posix()}"', '}',
                 *(f'#undef {name}' for name in macros)]
    return '\n'.join(text) + '\n'


def main():
    folder, name, *files = sys.argv[1:]
    alone, parts, sizes = [], {}, {}
    for file in files:
        path = pathlib.Path(file).resolve()
        lines = path.read_text(encoding='utf-8').splitlines()
        headers = includes(path, lines)
        if headers is None or path.stem in {other.stem for other in parts}:
            alone.append(file)
            continue
        macros = {match.group(1) for line in lines if (match := re.match(r'\s*#\s*define\s+(\w+)', line))}
        parts[path], sizes[path] = (headers, sorted(macros)), len(lines)

    # The longest first, each to the unit that is the shortest so far: all take about as long.
    units = [[] for _ in range(max(1, round(sum(sizes.values()) / LINES)))]
    for path in sorted(parts, key=lambda path: (-sizes[path], path)):
        min(units, key=lambda members: sum(sizes[member] for member in members)).append(path)
    pathlib.Path(folder).mkdir(parents=True, exist_ok=True)
    print(*alone, sep='\n')
    for number, members in enumerate(units, 1):
        target = pathlib.Path(folder) / f'{name}_{number}.cpp'
        text = unit({path: parts[path] for path in sorted(members)})
        if not target.exists() or target.read_text(encoding='utf-8') != text:
            target.write_text(text, encoding='utf-8')
        print(target)


if __name__ == '__main__':
    main()
