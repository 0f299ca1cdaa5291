#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Every header compiles alone, twice, with one compiler (the argument) and all warnings as errors, and the umbrella in
every standard.

Also: all headers together without exceptions and RTTI; <rdmacpp/fwd.hpp>, and what it includes, as C++11; every other
header below C++20 gives one error and that one names -std=c++20.
"""

import sys

import ring


CPP11 = ['rdmacpp/fwd.hpp', 'rdmacpp/version.hpp']


def compile_twice(compiler, header, standard, include=ring.INCLUDE, extra=()):
    return compiler.run([*ring.flags(standard, include, extra), '-fsyntax-only'], ring.including([header, header]))


def below_cpp20(compiler, header, standard, include=ring.INCLUDE):
    """'' or what is wrong with the message that a too old standard gives."""
    status, output = compiler.run([f'-std={standard}', '-I', str(include), *ring.c_includes(), '-fsyntax-only'],
                                  ring.including([header]))
    errors = ring.error_lines(output)
    if status == 0:
        return 'it compiles'
    if len(errors) != 1 or '-std=c++20' not in errors[0]:
        return f'{len(errors)} errors, expected one that names -std=c++20\n{output}'
    return ''


# The oldest compiler of each family takes the headers one by one, each family in another standard.
STANDARD = {'gcc': ring.STANDARDS[0], 'clang': ring.STANDARDS[-1]}
GUARD = '#pragma once\n#if __cplusplus < 202002L\n#error "needs C++20: -std=c++20"\n#else\n%s\n#endif\n'
CONTROLS = {
    'rdmacpp/good.hpp': GUARD % '#include <string>\ninline std::string good() { return {}; }',
    'rdmacpp/no_include.hpp': GUARD % 'inline std::string missing() { return {}; }',
    'rdmacpp/no_guard.hpp': 'inline int once() { return 1; }\n',
    'rdmacpp/conversion.hpp': GUARD % 'inline int narrow(long v) { return v; }',
    'rdmacpp/sign.hpp': GUARD % 'inline unsigned sign(int v) { return v; }',
    'rdmacpp/shadow.hpp': GUARD % 'inline int shadow(int v) { { int v = 1; return v; } }',
    'rdmacpp/cast.hpp': GUARD % 'inline int cast(double v) { return (int)v; }',
    'rdmacpp/pedantic.hpp': GUARD % 'inline int pedantic() { return ({ 1; }); }',
    'rdmacpp/unguarded.hpp': '#pragma once\ntemplate <class T> concept any = true;\n',
    'rdmacpp/goes_on.hpp': '#pragma once\n#if __cplusplus < 202002L\n#error "needs C++20: -std=c++20"\n#endif\n'
                           'template <class T> concept any = true;\n',
    'rdmacpp/throws.hpp': GUARD % 'inline void throws() { throw 1; }',
}


def controls(tap, compiler):
    with ring.scratch() as directory:
        include = ring.write(directory, CONTROLS)
        wrong = []
        for header in CONTROLS:
            name = header.split('/')[1]
            status, output = compile_twice(compiler, header, 'c++20', include)
            if (status == 0) != (name in ('good.hpp', 'unguarded.hpp', 'goes_on.hpp', 'throws.hpp')):
                wrong.append(f'{name}: exit status {status}\n{output}')
        for name in ('good.hpp', 'unguarded.hpp', 'goes_on.hpp'):
            trouble = below_cpp20(compiler, f'rdmacpp/{name}', 'c++17', include)
            if bool(trouble) != (name != 'good.hpp'):
                wrong.append(f'{name} as C++17: {trouble or "accepted"}')
        if compile_twice(compiler, 'rdmacpp/throws.hpp', 'c++20', include, ['-fno-exceptions'])[0] == 0:
            wrong.append('throws.hpp compiles with -fno-exceptions')
        tap.check(not wrong, 'control: faulty headers are found', '\n'.join(wrong))


def main():
    compiler = ring.pick(sys.argv[1])
    tap = ring.Tap()
    controls(tap, compiler)
    names = ring.headers()

    # The oldest of each family; the public parts of async.hpp with g++ alone, and adapters.py has what needs more than
    # rdma-core.
    oldest = [] if ring.has_older(compiler) else names
    alone = [name for name in oldest if not ring.needs_others(name)
             and not (name.startswith('rdmacpp/async/') and (compiler.family == 'clang' or ring.is_detail(name)))]
    work = [(header, STANDARD[compiler.family]) for header in alone]
    together = [('rdmacpp/rdmacpp.hpp', standard) for standard in ring.STANDARDS]
    work += [item for item in together if item not in work]
    results = ring.in_parallel(lambda item: compile_twice(compiler, *item), work)
    for (header, standard), (status, output) in zip(work, results):
        tap.check(status == 0, f'{header} alone, {standard}', output)

    for standard in ring.STANDARDS:
        status, output = compiler.run([*ring.flags(standard), '-fno-exceptions', '-fno-rtti', '-fsyntax-only'],
                                      ring.including(name for name in names if not ring.needs_others(name)))
        tap.check(status == 0, f'all headers, {standard} -fno-exceptions -fno-rtti', output)

    for header in CPP11:
        for standard in ('c++11', 'c++14', 'c++17'):
            status, output = compile_twice(compiler, header, standard)
            tap.check(status == 0, f'{header} alone, {standard}', output)

    others = [(header, standard) for header in oldest if header not in CPP11 for standard in ('c++11', 'c++17')]
    for (header, standard), trouble in zip(others, ring.in_parallel(lambda item: below_cpp20(compiler, *item), others)):
        tap.check(not trouble, f'{header} as {standard} is one error that names -std=c++20', trouble)
    tap.done()


if __name__ == '__main__':
    main()
