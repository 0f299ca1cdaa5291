#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Two translation units that each include every header link into one program, also when two compilers made them;
the umbrella includes every public header."""

import itertools
import pathlib
import subprocess

import ring

UMBRELLA = 'rdmacpp/rdmacpp.hpp'


def object_file(compiler, names, body, target, include=ring.INCLUDE):
    return compiler.run([*ring.flags('c++20', include), '-O0', '-c', '-o', str(target)], ring.including(names) + body)


def compile_unit(compiler, names, place, directory, include=ring.INCLUDE):
    """(object file, '' or why it does not compile) of the first or the second unit of a program. The second takes the
    umbrella last and the others in reverse, so that no order is the only one that works."""
    target = pathlib.Path(directory) / f'{compiler.name}.{place}.o'
    order, body = {'first': (names, 'int two(); int main() { return two(); }\n'),
                   'second': (names[::-1], 'int two(); int two() { return 0; }\n')}[place]
    status, output = object_file(compiler, order, body, target, include)
    return target, '' if status == 0 else f'{compiler}: does not compile\n{output}'


def link(compiler, objects, program):
    """'' or what went wrong when it was linked and run."""
    status, output = compiler.run([*map(str, objects), '-pthread', *ring.c_libraries(), '-o', str(program)])
    if status != 0:
        return f'does not link\n{output}'
    status = subprocess.run([str(program)], check=False, timeout=60).returncode
    return '' if status == 0 else f'the program ends with {status}'


def link_two(first, second, names, directory, include=ring.INCLUDE):
    """'' or what went wrong when two units of all headers were compiled, linked and run."""
    made = [compile_unit(first, names, 'first', directory, include),
            compile_unit(second, names, 'second', directory, include)]
    trouble = next((trouble for _, trouble in made if trouble), '')
    return trouble or link(first, [target for target, _ in made], pathlib.Path(directory) / 'program')


def missing_from_umbrella(names, umbrella_text):
    listed = {name if angle else f'rdmacpp/{name}' for _, name, angle in ring.includes_of(umbrella_text)}
    public = {name for name in names if ring.in_umbrella(name) and not ring.is_detail(name)} - {UMBRELLA}
    return sorted(public - listed)


def controls(tap, compiler):
    with ring.scratch() as directory:
        include = ring.write(directory, {'rdmacpp/good.hpp': '#pragma once\ninline int good() { return 0; }\n',
                                         'rdmacpp/bad.hpp': '#pragma once\nint bad() { return 0; }\n'})
        good = link_two(compiler, compiler, ['rdmacpp/good.hpp'], directory, include)
        bad = link_two(compiler, compiler, ['rdmacpp/bad.hpp'], directory, include)
        tap.check(not good and 'does not link' in bad and 'multiple definition' in bad,
                  'control: a function that is not inline fails to link', f'good: {good}\nbad: {bad}')
    text = '#include <rdmacpp/a.hpp>\n// #include <rdmacpp/b.hpp>\n#include "c.hpp"\n'
    missing = missing_from_umbrella(['rdmacpp/a.hpp', 'rdmacpp/b.hpp', 'rdmacpp/c.hpp', 'rdmacpp/detail/d.hpp',
                                     UMBRELLA], text)
    tap.check(missing == ['rdmacpp/b.hpp'], 'control: a header missing from the umbrella is found', missing)


def main():
    found = ring.need_compilers()
    tap = ring.Tap()
    tap.skips()
    controls(tap, found[0])
    names = [name for name in ring.headers() if not ring.needs_others(name)]

    pairs = [(compiler, compiler) for compiler in found] + list(itertools.combinations(found, 2))

    with ring.scratch() as directory:
        units = [(compiler, place) for compiler in found for place in ('first', 'second')]
        made = dict(zip(units, ring.in_parallel(lambda unit: compile_unit(unit[0], names, unit[1], directory), units)))
        for first, second in pairs:
            (one, trouble), (two, other) = made[first, 'first'], made[second, 'second']
            trouble = trouble or other or link(first, [one, two], pathlib.Path(directory) / 'program')
            tap.check(not trouble, f'two units link: {first} and {second}', trouble)

    missing = missing_from_umbrella(names, (ring.INCLUDE / UMBRELLA).read_text(encoding='utf-8'))
    tap.check(not missing, 'the umbrella includes every public header', 'not included: ' + ', '.join(missing))
    tap.done()


if __name__ == '__main__':
    main()
