#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What must not compile, does not, and for the reason we mean.

Each tests/compile_fail/*.cpp is compiled twice by every compiler: with -DEXPECT_OK, its positive control, it must
compile; without it must fail, and every line

    // expect-error: REGEX              (or expect-error(gcc): and expect-error(clang): for one family)

must match one of the error lines. The first include of a snippet is <rdmacpp/rdmacpp.hpp>, which is precompiled once
per compiler. The positive controls of those that include no more are compiled together, each in a namespace of its own;
where that fails, one by one.
"""

import pathlib
import re
import sys

import ring

SNIPPETS = ring.ROOT / 'tests' / 'compile_fail'
EXPECT = re.compile(r'^//\s*expect-error(?:\((gcc|clang)\))?:\s*(.+?)\s*$', re.MULTILINE)
UMBRELLA = '#include <rdmacpp/rdmacpp.hpp>'


def expectations(text, family):
    return [regex for only, regex in EXPECT.findall(text) if only in ('', family)]


def precompile(compiler, directory, include):
    """The flags that use the precompiled umbrella."""
    header = pathlib.Path(directory) / compiler.name / 'rdmacpp' / 'rdmacpp.hpp'
    header.parent.mkdir(parents=True)
    output_file = header.with_name('rdmacpp.hpp.gch' if compiler.family == 'gcc' else 'rdmacpp.pch')
    source = (include / 'rdmacpp' / 'rdmacpp.hpp')
    # -w: warnings are what headers.py is about.
    status, output = compiler.run([*ring.flags('c++20', include), '-w', '-x', 'c++-header', str(source), '-o',
                                   str(output_file)])
    if status != 0:
        sys.exit(f'{compiler} cannot compile the umbrella:\n{output}')
    if compiler.family == 'gcc':
        # g++ takes rdmacpp.hpp.gch, found first, in the place of the header.
        return ['-I', str(header.parent.parent)]
    return ['-include-pch', str(output_file)]


def includes(text):
    return re.findall(r'^[ \t]*#[ \t]*include.*', ring.strip_comments(text, True), re.MULTILINE)


def controls_compile(compiler, paths, flags):
    """The snippets of which the positive control is known to compile, after one run for all."""
    texts = {path: path.read_text(encoding='utf-8') for path in paths}
    joined = {path: text.replace(UMBRELLA, '', 1) for path, text in texts.items() if includes(text) == [UMBRELLA]}
    source = UMBRELLA + ''.join(f'\nnamespace snippet_{number} {{\n{text}\n}}' for number, text in
                                enumerate(joined.values())) + '\n'
    status, _ = compiler.run([*flags, '-fsyntax-only', '-DEXPECT_OK'], source)
    return set(joined) if status == 0 else set()


def judge(compiler, path, flags, known_good=()):
    """[what is wrong with this snippet]"""
    text = path.read_text(encoding='utf-8')
    wanted = expectations(text, compiler.family)
    if not wanted:
        return [f'no expect-error line for {compiler.family}']
    if 'EXPECT_OK' not in ring.strip_comments(text):
        return ['no positive control: EXPECT_OK is not used']
    if includes(text)[:1] != [UMBRELLA]:
        return [f'the first include is not {UMBRELLA}']
    wrong = []
    if path not in known_good:
        status, output = compiler.run([*flags, '-fsyntax-only', '-DEXPECT_OK', str(path)])
        wrong += [] if status == 0 else [f'the positive control does not compile:\n{output}']
    status, output = compiler.run([*flags, '-fsyntax-only', str(path)])
    if status == 0:
        return [*wrong, 'it compiles']
    errors = ring.error_lines(output)
    wrong += [f'no error matches {regex}:\n{output}' for regex in wanted
              if not any(re.search(regex, line.split('error: ', 1)[1]) for line in errors)]
    return wrong


HEAD = '#include <rdmacpp/rdmacpp.hpp>\n#ifdef EXPECT_OK\nvoid f() {}\n#else\n'
CONTROLS = {
    'good.cpp': ("// expect-error: deleted\n" + HEAD + 'void f() { gone(); }\n#endif\n', ''),
    'compiles.cpp': ("// expect-error: deleted\n" + HEAD + 'void f() {}\n#endif\n', 'it compiles'),
    'other_error.cpp': ("// expect-error: deleted\n" + HEAD + 'void f() { typo }\n#endif\n', 'no error matches'),
    'typo.cpp': ("// expect-error: deleted\n" + HEAD + '#endif\nvoid g() { gone(); }\n', 'the positive control'),
    'no_control.cpp': ("// expect-error: deleted\n" + UMBRELLA + '\nvoid f() { gone(); }\n', 'no positive control'),
    'no_regex.cpp': (HEAD + 'void f() { gone(); }\n#endif\n', 'no expect-error'),
}


def controls(tap, compiler):
    with ring.scratch() as directory:
        include = ring.write(directory, {'rdmacpp/rdmacpp.hpp': '#pragma once\nvoid gone() = delete;\n'})
        flags = [*precompile(compiler, include / 'pch', include), *ring.flags('c++20', include)]
        ring.write(directory, {name: text for name, (text, _) in CONTROLS.items()})
        wrong = []
        for name, (_, expected) in CONTROLS.items():
            found = judge(compiler, include / name, flags)
            if len(found) != bool(expected) or not all(line.startswith(expected) for line in found):
                wrong.append(f'{name}: {found}')
        good = [include / 'good.cpp', include / 'other_error.cpp']
        if controls_compile(compiler, good, flags) != set(good):
            wrong.append('positive controls that compile do not do so together')
        if controls_compile(compiler, [*good, include / 'typo.cpp'], flags):
            wrong.append('one that does not compile is not missed among others')
        tap.check(not wrong, f'control: the runner judges rightly with {compiler}', '\n'.join(wrong))


def main():
    found = [compiler for compiler in ring.need_compilers() if not ring.has_older(compiler)]
    snippets = [pathlib.Path(name) for name in sys.argv[1:]] or sorted(SNIPPETS.glob('*.cpp'))
    if not snippets:
        sys.exit(f'no snippets in {SNIPPETS}')
    tap = ring.Tap()
    tap.skips()
    for compiler in found:
        controls(tap, compiler)
    with ring.scratch() as directory:
        prepared = ring.in_parallel(lambda compiler: precompile(compiler, directory, ring.INCLUDE), found)
        flags = [[*pch, *ring.flags()] for pch in prepared]
        snippets = [path.resolve() for path in snippets]
        good = ring.in_parallel(lambda item: controls_compile(item[0], snippets, item[1]), zip(found, flags))
        work = [(compiler, each, path, known) for compiler, each, known in zip(found, flags, good) for path in snippets]
        results = ring.in_parallel(lambda item: judge(item[0], item[2], item[1], item[3]), work)
    for (compiler, _, path, _), wrong in zip(work, results):
        tap.check(not wrong, f'{path.stem}: {compiler}', '\n'.join(wrong))
    tap.done()


if __name__ == '__main__':
    main()
