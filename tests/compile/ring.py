# SPDX-License-Identifier: MIT
"""What the scripts of the compile ring share: the compilers, the flags, a pool of compiler runs, TAP output.

Every script of the ring prints TAP, begins with a positive control (something known to be wrong must be reported,
or the script itself fails) and needs the Python standard library only.

RDMACPP_TEST_CXX="g++-13 clang++-18" replaces the list of compilers, RDMACPP_TEST_JOBS the number of compiler runs
at a time.
"""

import concurrent.futures
import functools
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
INCLUDE = ROOT / 'include'
PROJECT = INCLUDE / 'rdmacpp'
SINGLE = ROOT / 'single_include' # the same in one file
AMALGAMATE = ROOT / 'tools' / 'amalgamate'

# Headers that an application includes by itself: coroutines cost every includer, and event loops need something beyond
# rdma-core. What is in rdmacpp/async belongs to rdmacpp/async.hpp.
APART = {'rdmacpp/async.hpp', 'rdmacpp/dispatcher.hpp', 'rdmacpp/epoll.hpp'}
ADAPTERS = {'rdmacpp/asio.hpp', 'rdmacpp/boost_asio.hpp', 'rdmacpp/uv.hpp'}

# The full set, and every warning is an error. Our headers come with -I, never with -isystem: users see what we see.
WARNINGS = ['-Wall', '-Wextra', '-Wpedantic', '-Wconversion', '-Wsign-conversion', '-Wshadow', '-Wold-style-cast',
            '-Werror']

# The newest standard is called c++2b so that g++ 11 and clang 14 know it too.
STANDARDS = ['c++20', 'c++2b']

# Oldest supported first; a name that turns out to be an earlier one again (g++ -> g++-12) runs once.
CANDIDATES = os.environ.get('RDMACPP_TEST_CXX', 'g++-11 g++ clang++-14 clang++').split()
OLDEST = {'gcc': 11, 'clang': 14}


class Compiler:
    def __init__(self, name, path, family, major):
        self.name, self.path, self.family, self.major = name, path, family, major

    def __str__(self):
        return f'{self.name} ({self.family} {self.major})'

    def run(self, args, source=None, cwd=None):
        """One compiler run; `source` is given on stdin as C++. Returns (exit status, everything it printed)."""
        command = [self.path, *args] + (['-x', 'c++', '-'] if source is not None else [])
        done = subprocess.run(command, input=source, cwd=cwd, env={**os.environ, 'LC_ALL': 'C'}, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, errors='replace', check=False)
        return done.returncode, done.stdout


def _probe(name):
    path = shutil.which(name)
    if path is None:
        return f'{name} is not installed'
    done = subprocess.run([path, '-E', '-dM', '-x', 'c++', '/dev/null'], capture_output=True, text=True, check=False)
    macros = dict(re.findall(r'^#define (__clang_major__|__GNUC__) (\d+)$', done.stdout, re.MULTILINE))
    if not macros:
        return f'{name} is neither g++ nor clang'
    family = 'clang' if '__clang_major__' in macros else 'gcc'
    major = int(macros['__clang_major__' if family == 'clang' else '__GNUC__'])
    if major < OLDEST[family]:
        return f'{name} is {family} {major}, older than the oldest supported ({OLDEST[family]})'
    return Compiler(name, path, family, major)


@functools.lru_cache(maxsize=None)
def survey():
    """[(name, Compiler or the reason why there is none)], in the order of CANDIDATES."""
    result, seen = [], {}
    for name in CANDIDATES:
        found = _probe(name)
        if isinstance(found, Compiler):
            real = os.path.realpath(found.path)
            if real in seen:
                found = f'{name} is {seen[real]}'
            else:
                seen[real] = name
        result.append((name, found))
    return result


def compilers():
    return [found for _, found in survey() if isinstance(found, Compiler)]


def need_compilers():
    """All compilers; where there is none the whole test is skipped."""
    found = compilers()
    if not found:
        skip_all('; '.join(reason for _, reason in survey()))
    return found


def has_older(compiler):
    """Whether an older one of its family is there: it takes less, and says it in older words."""
    return any(other.family == compiler.family and other.major < compiler.major for other in compilers())


def pick(name):
    """The compiler of that name; where it is missing the whole test is skipped, with the reason."""
    for candidate, found in survey():
        if candidate == name:
            if isinstance(found, Compiler):
                return found
            skip_all(found)
    skip_all(f'{name} is not among the compilers to test')


def _pkg_config(what):
    try:
        done = subprocess.run(['pkg-config', what, 'librdmacm', 'libibverbs'], capture_output=True, text=True,
                              check=False)
    except OSError:
        return None
    return shlex.split(done.stdout) if done.returncode == 0 else None


@functools.lru_cache(maxsize=None)
def c_includes():
    """The flags that find the C headers, which are system headers."""
    flags = []
    for flag in _pkg_config('--cflags') or []:
        flags += ['-isystem', flag[2:]] if flag.startswith('-I') else [flag]
    return flags


@functools.lru_cache(maxsize=None)
def c_libraries():
    return _pkg_config('--libs') or ['-lrdmacm', '-libverbs']


def flags(standard='c++20', include=INCLUDE, extra=()):
    return [f'-std={standard}', *WARNINGS, '-I', str(include), *c_includes(), *extra]


def headers(include=INCLUDE):
    """Every header, as it is written in an #include: rdmacpp/cm_id.hpp, rdmacpp/detail/c_api.hpp, ..."""
    found = sorted(path.relative_to(include).as_posix() for path in (include / 'rdmacpp').rglob('*.hpp'))
    if not found:
        sys.exit(f'no headers in {include / "rdmacpp"}')
    return found


def is_detail(header):
    return '/detail/' in header


def in_umbrella(header):
    return header not in APART | ADAPTERS and not header.startswith('rdmacpp/async/')


def needs_others(header):
    """Whether it includes what is neither rdma-core's nor the compiler's."""
    return header in ADAPTERS or 'asio' in header


def including(names):
    return ''.join(f'#include <{name}>\n' for name in names)


def jobs():
    return int(os.environ.get('RDMACPP_TEST_JOBS') or len(os.sched_getaffinity(0)))


def in_parallel(function, items):
    """function(item) for every item, as many at a time as there are processors, results in the order of items."""
    with concurrent.futures.ThreadPoolExecutor(max_workers=max(1, jobs())) as pool:
        return list(pool.map(function, items))


def error_lines(output):
    """The lines of a compiler's output that are errors (an #error, a deleted function...), notes left out."""
    return [line for line in output.splitlines() if re.search(r'\b(fatal )?error: ', line)]


def write(directory, files):
    """Writes {name: text} below a directory, and returns it."""
    for name, text in files.items():
        path = pathlib.Path(directory) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding='utf-8')
    return pathlib.Path(directory)


def scratch():
    return tempfile.TemporaryDirectory(prefix='rdmacpp-compile-')


def strip_comments(text, keep_strings=False):
    """C++ text without comments and, unless told otherwise, with empty string literals; lines keep their numbers."""
    pattern = re.compile(r'//(?:\\\n|[^\n])*|/\*.*?\*/|R"([^()\\ ]{0,16})\(.*?\)\1"|"(?:\\.|[^"\\\n])*"'
                         r"|(?<![0-9a-zA-Z_])'(?:\\.|[^'\\\n])+'", re.DOTALL)

    def blank(match):
        token = match.group(0)
        if token.startswith('/'):
            return ' ' + '\n' * token.count('\n')
        if keep_strings:
            return token
        return ("''" if token.startswith("'") else '""') + '\n' * token.count('\n')

    return pattern.sub(blank, text)


def includes_of(text):
    """[(line number, 'rdma/rdma_cma.h', True for <...>)] of a header's text."""
    found = []
    for number, line in enumerate(strip_comments(text, keep_strings=True).splitlines(), 1):
        match = re.match(r'\s*#\s*include\s*(?:<([^>]+)>|"([^"]+)")', line)
        if match:
            found.append((number, match.group(1) or match.group(2), bool(match.group(1))))
    return found


class Tap:
    """TAP on stdout: one line per check, what went wrong as comment lines below it, the plan at the end."""

    def __init__(self):
        self.count = self.failed = self.skipped = 0

    def _line(self, word, name, directive=''):
        self.count += 1
        print(f'{word} {self.count} - {name}'.replace('#', 'No.') + directive, flush=True)

    def ok(self, name):
        self._line('ok', name)

    def not_ok(self, name, detail=''):
        self._line('not ok', name)
        self.failed += 1
        lines = str(detail).splitlines()
        for line in lines[:60]:
            print(f'#   {line}')
        if len(lines) > 60:
            print(f'#   ... and {len(lines) - 60} lines more')
        sys.stdout.flush()

    def skip(self, name, reason):
        self._line('ok', name, f' # SKIP {reason}')
        self.skipped += 1

    def check(self, condition, name, detail=''):
        if condition:
            self.ok(name)
        else:
            self.not_ok(name, detail)
        return bool(condition)

    def skips(self):
        """One skipped line for each compiler that is not there."""
        for name, found in survey():
            if not isinstance(found, Compiler):
                self.skip(f'with {name}', found)

    def done(self):
        print(f'1..{self.count}')
        print(f'# {self.count - self.failed - self.skipped} passed, {self.failed} failed, {self.skipped} skipped')
        if self.count == 0:
            sys.exit('nothing was checked')
        sys.exit(1 if self.failed else 0)


def skip_all(reason):
    print(f'1..0 # SKIP {reason}')
    sys.exit(0)
