#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The single header, single_include/rdmacpp: it is what tools/amalgamate makes of include/rdmacpp, the same bytes
wherever and whenever that runs; it gives a compiler the same tokens as the umbrella, and compiles without a warning by
itself, in every standard, with every compiler; it leaks the same macros, and two units of it link.

Headers that the umbrella does not include are files of their own beside it.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys

import headers
import link
import macros
import ring

UMBRELLA, FORWARD = 'rdmacpp/rdmacpp.hpp', 'rdmacpp/fwd.hpp'
MARK = 'RDMACPP_SINGLE_HEADER'


def amalgamate(*arguments, cwd=ring.ROOT, environment=None):
    """(exit status, what it printed)"""
    done = subprocess.run([sys.executable, str(ring.AMALGAMATE), *map(str, arguments)], cwd=cwd, text=True,
                          env={**os.environ, **(environment or {})}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          check=False)
    return done.returncode, done.stdout


def made(directory, include=ring.INCLUDE, **options):
    """{file name: bytes} that the tool writes, or its complaint."""
    status, output = amalgamate('--include', include, '--output', directory, **options)
    if status != 0:
        return output
    return {path.name: path.read_bytes() for path in sorted((pathlib.Path(directory) / 'rdmacpp').iterdir())}


def is_current(tap):
    status, output = amalgamate('--check')
    tap.check(status == 0, 'single_include is current', output)
    with ring.scratch() as directory:
        copy = pathlib.Path(directory) / 'rdmacpp'
        shutil.copytree(ring.SINGLE / 'rdmacpp', copy)
        (copy / 'rdmacpp.hpp').write_text((copy / 'rdmacpp.hpp').read_text().replace('one ack', 'no ack', 1))
        status, output = amalgamate('--check', '--output', directory)
        tap.check(status != 0 and '\n+' in output and '\n-' in output,
                  'control: a file that was edited is found, with a diff', output)


def is_reproducible(tap):
    with ring.scratch() as first, ring.scratch() as second:
        one = made(first, environment={'LC_ALL': 'C', 'PYTHONHASHSEED': '1'})
        # The headers of a copy, which were made in another order and at another time.
        copy = pathlib.Path(second) / 'elsewhere'
        copy.mkdir()
        for name in reversed(ring.headers()):
            ring.write(copy, {name: (ring.INCLUDE / name).read_text(encoding='utf-8')})
        two = made(pathlib.Path(second) / 'new', copy, cwd=second,
                   environment={'LC_ALL': 'C.UTF-8', 'LANG': 'tr_TR.UTF-8', 'TZ': 'Asia/Tokyo', 'PYTHONHASHSEED': '2'})
    tap.check(one == two, 'another folder, locale and time give the same bytes', f'{str(one)[:200]}\n{str(two)[:200]}')


def is_readable(tap):
    """What a reader of the files finds, and what he does not."""
    licence = [line.strip() for line in (ring.ROOT / 'LICENSE').read_text(encoding='utf-8').splitlines()]
    version = subprocess.run([sys.executable, str(ring.ROOT / 'tools' / 'version.py')], capture_output=True, text=True,
                             check=True).stdout.strip()
    for path in sorted((ring.SINGLE / 'rdmacpp').iterdir()):
        text = path.read_text(encoding='utf-8')
        lines = text.split('\n')
        top = lines[:40]
        wrong = [f'no licence text: {line}' for line in licence if f'// {line}'.rstrip() not in top]
        wrong += [f'the version {version} is not on top'] if f'// rdmacpp {version}' not in top else []
        wrong += [f'{name} is not there once' for name in ('SPDX-', '#pragma once', 'Permission is hereby granted')
                  if text.count(name) != 1]
        wrong += ['@file is there'] if '@file' in text else []
        wrong += [f'{number}: {line}' for number, line in enumerate(lines, 1)
                  if len(line) > 120 or not line.isascii() or line != line.rstrip()]
        wrong += [f'an absolute path: {line}' for line in lines if str(ring.ROOT) in line]
        if path.name == 'rdmacpp.hpp':
            wrong += [f'no section for {name}' for name in ring.headers() if name != UMBRELLA
                      and text.count(f'\n// ---- {name.removeprefix("rdmacpp/")} -') != ring.in_umbrella(name)]
            wrong += [f'an include of ours: {line}' for line in lines if re.match(r'#\s*include\s*"', line)]
        tap.check(not wrong, f'{path.name}: licence, version, sections and lines', '\n'.join(wrong))


ADAPTER = '''// SPDX-License-Identifier: MIT
/// @file
/// For a test.
#pragma once

#include "cm_id.hpp"
#include "config.hpp"
#include "detail/mutex.hpp"
#if __cplusplus >= 202002L // below, config.hpp says what to do

#include <map>

namespace rdma::inline RDMACPP_ABI {
class for_a_test {
    detail::mutex mutex_;
};
} // namespace rdma::inline RDMACPP_ABI

#endif
'''


def adapters(tap, compiler):
    """A header that is not in the umbrella becomes a file of its own; one that the tool cannot know is refused."""
    with ring.scratch() as directory:
        include, output = pathlib.Path(directory) / 'include', pathlib.Path(directory) / 'output'
        shutil.copytree(ring.INCLUDE, include)
        ring.write(include, {'rdmacpp/for_a_test.hpp': ADAPTER})
        before, files = made(pathlib.Path(directory) / 'before'), made(output, include)
        text = files['for_a_test.hpp'].decode() if 'for_a_test.hpp' in files else ''
        # At a second place too: whoever includes both copies gets one.
        shutil.copytree(output, pathlib.Path(directory) / 'copy')
        status, trouble = compiler.run(
            [*ring.flags('c++20', output), '-fsyntax-only'],
            f'#include <rdmacpp/for_a_test.hpp>\n#include "{directory}/copy/rdmacpp/for_a_test.hpp"\n'
            'int main() { [[maybe_unused]] rdma::for_a_test x; rdma::cm_id y; return y ? 1 : 0; }\n')
        tap.check(status == 0 and text.count('#include "') == 1 and '#include "rdmacpp.hpp"' in text
                  and '__has_include' not in text and before['rdmacpp.hpp'] == files['rdmacpp.hpp'],
                  'a header that the umbrella does not include is a file beside it', f'{trouble}\n{text}')
        mine = ring.write(pathlib.Path(directory) / 'mine', {'rdmacpp/rdmacpp.hpp': '// mine\n'})
        status, _ = amalgamate('--output', mine)
        tap.check(status != 0 and (mine / 'rdmacpp' / 'rdmacpp.hpp').read_text(encoding='utf-8') == '// mine\n',
                  'what the tool has not made, it does not overwrite')
        wrong = []
        for name, change in {'without the check for C++20': ('#if __cplusplus >= 202002L', '#if 1'),
                             'a header that is gone': ('"cm_id.hpp"', '"gone.hpp"'),
                             'an include under a condition': ('#include <map>', '#if 1\n#include "mr.hpp"\n#endif'),
                             'an include in the middle': ('class for', '#include "mr.hpp"\nclass for')}.items():
            ring.write(include, {'rdmacpp/for_a_test.hpp': ADAPTER.replace(*change)})
            if not isinstance(made(output, include), str):
                wrong.append(name)
        tap.check(not wrong, 'control: what the tool does not understand, it refuses', '\n'.join(wrong))


def our_tokens(compiler, include, extra=()):
    """The preprocessed lines that come from our own files, blanks aside."""
    status, output = compiler.run([*ring.flags('c++20', include, extra), '-E'], ring.including([UMBRELLA]))
    if status != 0:
        return output
    ours, kept = False, []
    for line in output.split('\n'):
        marker = re.match(r'# \d+ "([^"]*)"', line)
        if marker:
            ours = marker.group(1).startswith(str(include))
        elif ours and line.strip():
            kept.append(re.sub(r'\s+', '', line))
    return ''.join(kept)


def same_tokens(tap, compiler):
    for extra in (['-DNDEBUG'], ['-DNDEBUG', '-fno-exceptions']): # assert names the file and the line
        one, other = our_tokens(compiler, ring.INCLUDE, extra), our_tokens(compiler, ring.SINGLE, extra)
        at = next((at for at, pair in enumerate(zip(one, other)) if pair[0] != pair[1]), min(len(one), len(other)))
        tap.check(one == other and len(one) > 100000, f'the same tokens as the umbrella: {compiler} {" ".join(extra)}',
                  f'{len(one)} characters, {len(other)}; they part at\n'
                  f'{one[at - 100:at + 100]}\n{other[at - 100:at + 100]}')


def compiles(tap, compilers):
    work = [(compiler, UMBRELLA, standard, ()) for compiler in compilers for standard in ring.STANDARDS]
    work += [(compilers[0], UMBRELLA, 'c++20', ('-fno-exceptions', '-fno-rtti'))]
    work += [(compiler, FORWARD, standard, ()) for compiler in compilers for standard in ('c++11', 'c++17')]
    results = ring.in_parallel(lambda item: headers.compile_twice(*item[:3], ring.SINGLE, item[3]), work)
    for (compiler, header, standard, extra), (status, output) in zip(work, results):
        tap.check(status == 0, f'{header} alone: {compiler}, {standard} {" ".join(extra)}', output)
    for compiler in compilers:
        for standard in ('c++11', 'c++17'):
            trouble = headers.below_cpp20(compiler, UMBRELLA, standard, ring.SINGLE)
            tap.check(not trouble, f'one error that names -std=c++20: {compiler}, {standard}', trouble)


def leaks(tap, compilers):
    must, may = macros.allowed_names(macros.ALLOWED.read_text(encoding='utf-8'))
    for compiler in compilers:
        wrong = macros.compare(compiler, ring.SINGLE, UMBRELLA, 'c++20', must | {MARK}, may)
        tap.check(not wrong, f'no macro leaks but those of the umbrella and {MARK}: {compiler}', '\n'.join(wrong))


def links(tap, compilers):
    with ring.scratch() as directory:
        trouble = link.link_two(compilers[0], compilers[-1], [FORWARD, UMBRELLA], directory, ring.SINGLE)
    tap.check(not trouble, f'two units link: {compilers[0]} and {compilers[-1]}', trouble)


def main():
    found = ring.need_compilers()
    tap = ring.Tap()
    tap.skips()
    is_current(tap)
    is_reproducible(tap)
    is_readable(tap)
    adapters(tap, found[0])
    for compiler in (found[0], found[-1]):
        same_tokens(tap, compiler)
    compiles(tap, found)
    leaks(tap, found)
    links(tap, found)
    tap.done()


if __name__ == '__main__':
    main()
