#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Two versions of rdmacpp in one unit are refused with one #error, whichever comes first and whether they are the
separate headers or the single one; so are the separate headers and the single one of the same version, and two copies
of the separate ones. Two copies of the single header are one.

The other version is made by tools/amalgamate from a copy of the headers in which version.hpp has another number.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys

import ring

MESSAGE = 'two versions or copies in one translation unit'
UMBRELLA, FORWARD, ONE_PART = 'rdmacpp.hpp', 'fwd.hpp', 'cm_id.hpp'


def amalgamate(include, output):
    command = [sys.executable, ring.AMALGAMATE, '--include', include, '--output', output]
    subprocess.run(list(map(str, command)), check=True)


def copy_of(folder, target):
    """A copy that is as old as no other: g++ takes files of the same age and contents for one."""
    shutil.copytree(folder, target)
    for age, path in enumerate(sorted(target.rglob('*.hpp'))):
        os.utime(path, (age, age))
    return target


def another_version(directory):
    """(separate headers, single header) of a version with another number and another namespace."""
    include = copy_of(ring.INCLUDE, pathlib.Path(directory) / 'other')
    single = pathlib.Path(directory) / 'other_single'
    path = include / 'rdmacpp' / 'version.hpp'
    text = path.read_text(encoding='utf-8')
    minor = int(re.search(r'VERSION_MINOR (\d+)', text).group(1)) + 1
    changed = re.sub(r'VERSION_MINOR \d+', f'VERSION_MINOR {minor}', text)
    changed = re.sub(r'RDMACPP_ABI \w+', f'RDMACPP_ABI v0_{minor}', changed)
    path.write_text(changed, encoding='utf-8')
    amalgamate(include, single)
    return include, single


def unit(*paths):
    return ''.join(f'#include "{path}"\n' for path in paths)


def refusal(compiler, source, action):
    """'' or what is wrong with how the unit is refused."""
    status, output = compiler.run([*ring.flags('c++20', ring.ROOT / 'nowhere'), action, '-o', '/dev/null'], source)
    errors = ring.error_lines(output)
    if status == 0:
        return 'it compiles'
    if len(errors) != 1 or MESSAGE not in errors[0]:
        return f'{len(errors)} errors, expected one that says: {MESSAGE}\n{output}'
    return ''


def pairs(folders):
    """{name: the files} of what must be refused: each two files of the folders, in both orders."""
    result = {}
    for first in folders:
        for second in folders:
            for one, other in ((UMBRELLA, UMBRELLA), (FORWARD, UMBRELLA), (UMBRELLA, FORWARD), (ONE_PART, ONE_PART),
                               (UMBRELLA, ONE_PART)):
                files = [folders[first] / 'rdmacpp' / one, folders[second] / 'rdmacpp' / other]
                if first != second and all(path.is_file() for path in files):
                    result[f'{first}, {one}, then {second}, {other}'] = files
    return result


# What a refusal must be like, and what the checks must not take for one.
GUARD = '#pragma once\n#ifdef V\n#error "%s"\n%s\n%s int f();\n%s\n'
CONTROLS = {
    'good': (GUARD % (MESSAGE, '#else\n#define V 1', '', '#endif'), ''),
    'accepted': ('#pragma once\nint f();\n', 'it compiles'),
    'follows': (GUARD % (MESSAGE, '#else\n#define V 1\n#endif', 'class x {};', ''), '2 errors'),
    'other message': (GUARD % ('no', '#else\n#define V 1', '', '#endif'), '1 errors'),
}


def controls(tap, compiler):
    wrong = []
    for name, (text, expected) in CONTROLS.items():
        with ring.scratch() as directory:
            ring.write(directory, {'a.hpp': text, 'b.hpp': text + '\n'})
            found = refusal(compiler, unit(f'{directory}/a.hpp', f'{directory}/b.hpp'), '-fsyntax-only')
            if not found.startswith(expected) or bool(found) != bool(expected):
                wrong.append(f'{name}: {found}')
    tap.check(not wrong, 'control: what is not one clear error is found', '\n'.join(wrong))


def main():
    compilers = ring.need_compilers()
    tap = ring.Tap()
    tap.skips()
    controls(tap, compilers[0])
    with ring.scratch() as directory:
        include, single = another_version(directory)
        copy = copy_of(ring.INCLUDE, pathlib.Path(directory) / 'copy')
        current = pathlib.Path(directory) / 'single'
        amalgamate(ring.INCLUDE, current) # not the one that is checked in, which single.py looks at
        single_copy = copy_of(current, pathlib.Path(directory) / 'single_copy')

        refused = {**pairs({'this version': ring.INCLUDE, 'another': include}),
                   **pairs({'this version': ring.INCLUDE, 'another single header': single}),
                   **pairs({'this single header': current, 'another': include}),
                   **pairs({'this single header': current, 'another single header': single}),
                   **pairs({'this version': ring.INCLUDE, 'its single header': current}),
                   **pairs({'this version': ring.INCLUDE, 'a copy of it': copy})}
        # The error is the preprocessor's. That nothing follows from it, a compiler must say.
        work = [(compilers[0], name, '-E') for name in refused]
        work += [(compiler, f'{first}, {header}, then another, {header}', '-fsyntax-only')
                 for compiler, first, header in ((compilers[-1], 'this version', UMBRELLA),
                                                 (compilers[0], 'this version', ONE_PART),
                                                 (compilers[-1], 'this single header', UMBRELLA))]
        results = ring.in_parallel(lambda item: refusal(item[0], unit(*refused[item[1]]), item[2]), work)
        for (compiler, name, action), trouble in zip(work, results):
            tap.check(not trouble, f'refused: {name}: {compiler} {action}', trouble)

        here, there = current / 'rdmacpp', single_copy / 'rdmacpp'
        accepted = [[here / FORWARD, there / FORWARD, here / UMBRELLA, there / FORWARD, there / UMBRELLA]]
        work = [(compiler, paths) for compiler in (compilers[0], compilers[-1]) for paths in accepted]
        flags = [*ring.flags('c++20', ring.ROOT / 'nowhere'), '-fsyntax-only']
        results = ring.in_parallel(lambda item: item[0].run(flags, unit(*item[1])), work)
        for (compiler, paths), (status, output) in zip(work, results):
            names = ', '.join(f'{path.parent.parent.name}/{path.name}' for path in paths)
            tap.check(status == 0, f'one is enough: {names}: {compiler}', output)
    tap.done()


if __name__ == '__main__':
    main()
