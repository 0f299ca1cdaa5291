#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The library as its users get it: installed by Meson and by CMake into clean folders (the same files, byte for byte,
none of which knows where it is), as a Debian package, through Conan's recipe and vcpkg's port (whose tools have
stand-ins in tests/consumer/stand_ins), as a subproject, and as a single file. From each the projects in tests/consumer
are built, with every warning an error, and run; they need no RDMA device.

    consumers.py [TEXT]         only the checks that have TEXT in their name, after the installations
"""

import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import types

import ring

NEEDED = {'cmake': 'cmake', 'meson': 'meson', 'ninja': 'ninja-build', 'pkg-config': 'pkg-config', 'g++': 'g++'}
NEEDED_FOR_DEB = {'dpkg-buildpackage': 'build-essential', 'dh': 'debhelper'}
OWN_OF_DEBIAN = re.compile(r'share/doc/')
LICENCE = 'share/licenses/rdmacpp/LICENSE'


class Failed(Exception):
    """A step went wrong; its text is what is shown."""


def run(*command, code=0, **env):
    """What the command prints; fails if it does not end with that exit code."""
    settings = {**os.environ, 'LC_ALL': 'C', 'CXX': 'g++', 'CXXFLAGS': ' '.join(['-O0', *ring.WARNINGS])}
    settings.pop('PKG_CONFIG_PATH', None)
    settings.update({name: str(value) for name, value in env.items()})
    command = [str(part) for part in command]
    done = subprocess.run(command, env=settings, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, errors='replace', check=False, timeout=500)
    if done.returncode != code:
        raise Failed(f'{" ".join(command)}\nends with {done.returncode}, not {code}:\n{done.stdout}')
    return done.stdout


def demand(condition, text):
    if not condition:
        raise Failed(text)


def files(folder):
    """{name: sha256} of all files below, and of folders left empty."""
    found = {path.relative_to(folder).as_posix(): path for path in pathlib.Path(folder).rglob('*')}
    return {name: hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else 'a folder'
            for name, path in found.items() if path.is_file() or not any(path.iterdir())}


def differences(left, right):
    """[what differs between two results of files()]"""
    return ([f'only in the first: {name}' for name in sorted(left.keys() - right.keys())]
            + [f'only in the second: {name}' for name in sorted(right.keys() - left.keys())]
            + [f'differs: {name}' for name in sorted(left.keys() & right.keys()) if left[name] != right[name]])


def same(left, right):
    found = differences(left, right)
    demand(not found, '\n'.join(found))


class Consumers:
    def __init__(self, work):
        self.work = pathlib.Path(work)
        self.version = run(sys.executable, ring.ROOT / 'tools' / 'version.py').strip()
        # All is made from the archive of a release: so a file that it lacks is missed, and nobody edits it meanwhile.
        self.root = self.work / f'rdmacpp-{self.version}'
        self.consumer = self.root / 'tests' / 'consumer'
        self.packaging = self.root / 'packaging'
        self.meson = self.work / 'by-meson'  # no blank: the words of $(pkg-config) are split at them
        self.cmake = self.work / 'installed by CMake'
        self.moved = self.work / 'elsewhere' / 'moved'
        self.draft = self.work / 'draft'

    def folder(self, name):
        path = self.work / name
        path.mkdir(parents=True)
        return path

    def run_program(self, program, *arguments):
        """Runs a consumer program, which checks itself."""
        output = run(program, *(arguments or [self.version]))
        demand(output.startswith(f'rdmacpp {self.version}'), output)

    # ---- what is installed ------------------------------------------------------------------------------------------

    def install_with_meson(self, prefix=None):
        options = [f'-D{name}=disabled' for name in ('tests', 'examples', 'benchmarks', 'docs')]
        build = self.work / f'build by meson{"" if prefix is None else " for usr"}'
        run('meson', 'setup', build, self.root, *options, f'--prefix={prefix or self.meson}')
        run('meson', 'install', '-C', build, '--no-rebuild', DESTDIR='' if prefix is None else self.work / 'staged')

    def install_with_cmake(self):
        build = self.work / 'build by cmake'
        run('cmake', '-S', self.root, '-B', build, f'-DCMAKE_INSTALL_PREFIX={self.cmake}')
        run('cmake', '--install', build)

    def write_draft(self):
        archive = self.draft / f'{self.root.name}.tar.gz'
        run(sys.executable, ring.ROOT / 'packaging' / 'release', '--draft', f'--archive=file://{archive}', self.draft)
        run('tar', '-xzf', archive, '-C', self.work)

    def list_is_whole(self):
        found, headers = set(files(self.meson)), {'include/' + header for header in ring.headers(self.root / 'include')}
        demand(headers <= found, f'not installed: {sorted(headers - found)}')
        wanted = {LICENCE, 'share/pkgconfig/rdmacpp.pc', 'share/rdmacpp/gdb/rdmacpp.py',
                  *(f'share/cmake/rdmacpp/rdmacpp-{name}.cmake' for name in ('config', 'config-version', 'target'))}
        others = found - headers
        demand(others == wanted, f'beside the headers: {sorted(others)}\nexpected: {sorted(wanted)}')

    def knows_no_place(self):
        wrong = [name for name in files(self.meson) if str(self.work).encode() in (self.meson / name).read_bytes()]
        demand(not wrong, f'names where it was built or installed: {wrong}')

    # ---- consumers of an installation -------------------------------------------------------------------------------

    def pkg_config(self, prefix, name, *how):
        program = self.folder(name) / 'consumer'
        run(self.consumer / 'pkg_config' / 'build', program, *how, PKG_CONFIG_PATH=prefix / 'share' / 'pkgconfig')
        self.run_program(program)
        return program

    def static(self, prefix):
        program = self.pkg_config(prefix, 'static', 'static')
        demand('INTERP' not in run('readelf', '-l', program), 'the program asks for a dynamic linker')
        demand(b'verbs_provider_mlx5' in program.read_bytes(), 'the drivers of libibverbs are not linked')

    def find_package(self, prefix, name):
        build = self.work / name
        self.configure(build, prefix)
        run('cmake', '--build', build)
        self.run_program(build / 'consumer')
        return build / 'consumer'

    def find_package_moved(self):
        """Configured alone: the program is built from the moved folder by pkg-config."""
        build = self.work / 'find_package, moved'
        self.configure(build, self.moved)
        flags = (build / 'build.ninja').read_text(encoding='utf-8')
        demand(f'-I{self.moved}/include' in flags, flags)

    def subdirectory(self, name, *options):
        build = self.work / name
        run('cmake', '-G', 'Ninja', '-S', self.consumer / 'cmake_add_subdirectory', '-B', build, *options,
            f'-DRDMACPP_SOURCES={self.root}', '-DCMAKE_INSTALL_PREFIX=' + str(self.work / (name + ' installed')))
        return build

    def add_subdirectory(self):
        name = 'add_subdirectory'
        build = self.subdirectory(name)
        run('cmake', '--build', build)
        self.run_program(build / 'consumer')
        run('cmake', '--install', build)
        installed = set(files(self.work / (name + ' installed')))
        demand(installed and not any('rdmacpp' in file for file in installed), f'installed with its user: {installed}')

    def fetch_content(self):
        """Configured alone: what it builds is what add_subdirectory builds."""
        flags = (self.subdirectory('FetchContent', '-DFETCH=ON') / 'build.ninja').read_text(encoding='utf-8')
        demand(f'-I{self.root}/include' in flags and 'librdmacm' in flags and 'libibverbs' in flags, flags)

    def configure(self, build, prefix, *options, code=0):
        return run('cmake', '-G', 'Ninja', '-S', self.consumer / 'cmake_find_package', '-B', self.work / build,
                   f'-DCMAKE_PREFIX_PATH={prefix}', *options, code=code)

    def without_pkg_config(self):
        self.configure('no pkg-config', self.meson, '-DCMAKE_DISABLE_FIND_PACKAGE_PkgConfig=ON')
        flags = (self.work / 'no pkg-config' / 'build.ninja').read_text(encoding='utf-8')
        demand('librdmacm.so' in flags and 'libibverbs.so' in flags, flags)

    def without_rdma_core(self):
        tools = [f'-DCMAKE_MAKE_PROGRAM={shutil.which("ninja")}', f'-DCMAKE_CXX_COMPILER={shutil.which("g++")}']
        nowhere = ['-DCMAKE_FIND_USE_CMAKE_SYSTEM_PATH=OFF', '-DCMAKE_FIND_USE_SYSTEM_ENVIRONMENT_PATH=OFF']
        text = self.configure('no rdma-core', self.meson, '-DCMAKE_DISABLE_FIND_PACKAGE_PkgConfig=ON', *tools, *nowhere,
                              code=1)
        text = ' '.join(text.split())
        for part in ('rdmacpp needs librdmacm and libibverbs', 'librdmacm-dev libibverbs-dev', 'CMAKE_PREFIX_PATH'):
            demand(part in text, f'the message has no "{part}":\n{text}')

    def wrong_version(self):
        text = self.configure('wrong version', self.meson, '-DWANTED=99.0', code=1)
        demand(f'version: {self.version}' in text, text)

    def versions(self):
        """Asks the version file, as find_package does, for many versions in one run."""
        template = (self.packaging / 'cmake' / 'rdmacpp-config-version.cmake.in').read_text(encoding='utf-8')
        cases = [  # ours, wanted, the upper end of a range, compatible
            ('0.1.2', '', None, 1), ('0.1.2', '0.1', None, 1), ('0.1.2', '0.1.2', None, 1), ('0.1.2', '0', None, 1),
            ('0.1.2', '0.1.3', None, 0), ('0.1.2', '0.0.9', None, 0), ('0.1.2', '0.2', None, 0),
            ('0.1.2', '1', None, 0), ('0.10.0', '0.1', None, 0), ('0.1.2', '0.1', '0.3', 1),
            ('0.2.0', '0.1', '0.2', 1), ('0.2.1', '0.1', '0.2', 0),
            ('0.2.0', '0.1', '<0.2', 0), ('0.1.9', '0.1', '<0.2', 1),
            ('1.2.3', '1', None, 1), ('1.2.3', '1.1', None, 1), ('1.2.3', '1.3', None, 0), ('1.2.3', '0.9', None, 0),
            ('2.0.0', '1.9', None, 0), ('10.0.0', '1', None, 0),
        ]
        script, want = self.folder('versions') / 'ask.cmake', []
        text = ['cmake_minimum_required(VERSION 3.19)']
        for number, (ours, wanted, top, good) in enumerate(cases):
            ring.write(script.parent, {f'{number}.cmake': template.replace('@VERSION@', ours)})
            text.append(f'set(PACKAGE_FIND_VERSION "{wanted}")\nset(PACKAGE_FIND_VERSION_RANGE "")')
            if top:
                text.append(f'set(PACKAGE_FIND_VERSION_RANGE "{wanted}...{top}")\n'
                            f'set(PACKAGE_FIND_VERSION_MIN "{wanted}")\n'
                            f'set(PACKAGE_FIND_VERSION_MAX "{top.strip("<")}")\n'
                            f'set(PACKAGE_FIND_VERSION_RANGE_MAX {"EXCLUDE" if top[0] == "<" else "INCLUDE"})')
            text.append(f'include("{script.parent}/{number}.cmake")\n'
                        'message("${PACKAGE_VERSION_COMPATIBLE} ${PACKAGE_VERSION_EXACT}")')
            want.append(f'{"TRUE" if good else "FALSE"} {"TRUE" if ours == wanted else "FALSE"}')
        script.write_text('\n'.join(text), encoding='utf-8')
        got = run('cmake', '-P', script).splitlines()
        wrong = [f'{case}: {answer}, not {wish}' for case, answer, wish in zip(cases, got, want) if answer != wish]
        demand(len(got) == len(cases) and not wrong, '\n'.join(wrong) or got)

    # ---- from the sources -------------------------------------------------------------------------------------------

    def wrap(self, name='subproject', damage=b''):
        """A Meson project with the wrap, and the release's archive where Meson keeps what it has downloaded."""
        project = self.folder(name) / 'project'
        shutil.copytree(self.consumer / 'meson_subproject', project)
        shutil.copytree(self.consumer / 'shared', project / 'shared')
        archive = f'rdmacpp-{self.version}.tar.gz'
        (project / 'subprojects' / 'packagecache').mkdir(parents=True)
        shutil.copy(self.draft / 'wrapdb' / 'rdmacpp.wrap', project / 'subprojects')
        (project / 'subprojects' / 'packagecache' / archive).write_bytes((self.draft / archive).read_bytes() + damage)
        setup = ['meson', 'setup', project / 'build', project, '-Doptimization=0', '-Ddebug=false',
                 '--force-fallback-for=rdmacpp']
        if damage:
            # Asked for by its name alone, which is the wrap's.
            text = (project / 'meson.build').read_text(encoding='utf-8')
            (project / 'meson.build').write_text(re.sub(r", fallback: \[.*?\]", '', text), encoding='utf-8')
            output = run(*setup, code=1)
            demand('Incorrect hash' in output, output)
            return
        run(*setup)
        run('ninja', '-C', project / 'build', 'consumer')
        self.run_program(project / 'build' / 'consumer')

    def single_file(self):
        program = self.folder('single file') / 'consumer'
        run(self.consumer / 'single_file' / 'build', program)
        self.run_program(program)

    # ---- packagers --------------------------------------------------------------------------------------------------

    def debian(self):
        """The package has what Meson installs into /usr; its licence is where Debian has it."""
        run(self.packaging / 'build-deb', self.work / 'deb')
        package, = (self.work / 'deb').glob('librdmacpp-dev_*_all.deb')
        run('dpkg-deb', '-x', package, self.work / 'unpacked')
        packaged = {name: content for name, content in files(self.work / 'unpacked' / 'usr').items()
                    if not OWN_OF_DEBIAN.match(name)}
        self.install_with_meson('/usr')
        installed = files(self.work / 'staged' / 'usr')
        installed.pop(LICENCE)
        same(packaged, installed)
        same(dict.fromkeys(packaged, ''), dict.fromkeys(files(self.meson).keys() - {LICENCE}, ''))
        about = run('dpkg-deb', '-f', package)
        for field in (f'Version: {self.version}-', 'Architecture: all',
                      'Depends: libibverbs-dev (>= 33), librdmacm-dev (>= 33)'):
            demand(field in about, f'no {field} in\n{about}')
        demand((self.work / 'unpacked/usr/share/doc/librdmacpp-dev/copyright').exists(), 'no copyright file')
        prefix = (self.work / 'unpacked/usr/share/pkgconfig/rdmacpp.pc').read_text(encoding='utf-8').splitlines()[0]
        demand(prefix == 'prefix=/usr', f'pkg-config cannot leave out -I/usr/include: {prefix}')

    def conan(self, recipe, work, *version):
        """Conan's recipe on the stand-in; in the checkout, which has no version yet, with its test_package."""
        create = self.consumer / 'stand_ins' / 'conan' / 'create.py'
        output = run(sys.executable, create, recipe, self.work / work, *version)
        demand(f'exported rdmacpp/{self.version}\n' in output, output)
        if not version:
            demand('rdma-core of the stand-in' in output, f'rdma-core was not taken from Conan\n{output}')
            demand(f'rdmacpp {self.version}: ' in output, output)
        wanted = ["requires {'rdma-core/[>=49.0]': {'transitive_headers': True, 'transitive_libs': True}}",
                  "{'rdma-core/*:build_librdmacm': True}",
                  "package_info ['rdma-core::librdmacm', 'rdma-core::libibverbs'] ['pthread']; any settings: True"]
        for part in wanted:
            demand(part in output, f'no {part} in\n{output}')
        packaged = files(self.work / work / 'p')
        installed = files(self.meson)
        installed['licenses/LICENSE'] = installed.pop(LICENCE)
        same(packaged, installed)

    def vcpkg(self, port, work, *options):
        """vcpkg's port on the stand-in: where it puts things differs by what vcpkg demands, and by nothing else."""
        run('cmake', f'-DPORT_DIR={port}', f'-DWORK={self.work / work}', *options,
            '-P', self.consumer / 'stand_ins' / 'vcpkg.cmake')
        packaged = files(self.work / work / 'packages')
        installed = files(self.meson)
        installed['share/rdmacpp/copyright'] = installed.pop(LICENCE)
        installed['share/rdmacpp/usage'] = hashlib.sha256((port / 'usage').read_bytes()).hexdigest()
        for name in [name for name in installed if name.startswith('share/cmake/rdmacpp/')]:
            installed[name.replace('share/cmake/', 'share/')] = installed.pop(name)
        same(packaged, installed)

    def vcpkg_consumer(self):
        """A program with what the port made, beside a static rdma-core as vcpkg has it: archives, and pkg-config files
        that ask for all of them."""
        prefix = self.work / 'vcpkg' / 'packages'
        (prefix / 'lib' / 'pkgconfig').mkdir(parents=True)
        for flag in run('pkg-config', '--static', '--libs-only-l', 'librdmacm', 'libibverbs').split():
            archive = pathlib.Path(run('g++', f'-print-file-name=lib{flag[2:]}.a').strip())
            target = prefix / 'lib' / archive.name
            if archive.is_absolute() and not target.exists():
                target.symlink_to(archive)
        for name in ('librdmacm', 'libibverbs'):
            flags = run('pkg-config', '--static', '--libs', name).strip()
            (prefix / 'lib' / 'pkgconfig' / f'{name}.pc').write_text(
                f'prefix=${{pcfiledir}}/../..\nName: {name}\nDescription: static\nVersion: 44\n'
                f'Libs: -L${{prefix}}/lib {flags}\n', encoding='utf-8')
        program = self.find_package(prefix, 'vcpkg consumer')
        needed = run('readelf', '-d', program)
        demand('librdmacm' not in needed and 'libibverbs' not in needed, needed)
        demand(b'verbs_provider_mlx5' in program.read_bytes(), 'the drivers of libibverbs are not linked')

    def release(self):
        """The hashes are the archive's, addresses are filled in everywhere, and what is no release is refused."""
        archive = (self.draft / f'rdmacpp-{self.version}.tar.gz').read_bytes()
        wrap = (self.draft / 'wrapdb' / 'rdmacpp.wrap').read_text(encoding='utf-8')
        demand(hashlib.sha256(archive).hexdigest() in wrap, wrap)
        filled = self.work / 'filled'
        run(sys.executable, self.packaging / 'release', '--draft', '--home=https://example.org/rdmacpp',
            '--mail=someone@example.org', f'--archive=file://{filled}/rdmacpp-{self.version}.tar.gz', filled)
        demand((filled / f'rdmacpp-{self.version}.tar.gz').read_bytes() == archive, 'not the same archive again')
        left = [path for path in filled.rglob('*')
                if path.is_file() and path.suffix != '.gz' and b'.invalid' in path.read_bytes()]
        demand(not left, f'placeholders are left in {left}')
        if 'UNRELEASED' in (self.packaging / 'debian' / 'changelog').read_text(encoding='utf-8'):
            text = run(sys.executable, self.packaging / 'release', '--home=a', '--archive=b', '--mail=c',
                       self.work / 'none', code=1)
            demand('UNRELEASED' in text, text)


def have_archives():
    return all(os.path.isabs(run('g++', f'-print-file-name={name}.a').strip()) for name in ('librdmacm', 'libibverbs'))


def control(tap):
    text = differences({'a': '1', 'b': '1', 'c': '1'}, {'b': '2', 'c': '1', 'd': '1'})
    tap.check(text == ['only in the first: a', 'only in the second: d', 'differs: b'],
              'control: lists of files that differ are told apart', text)


def attempt(step):
    """'' or what went wrong."""
    try:
        step()
    except (Failed, subprocess.TimeoutExpired, OSError, ValueError) as failure:
        return str(failure) or repr(failure)
    return ''


def missing(tools):
    return [f'{tool} (Debian: {package})' for tool, package in tools.items() if shutil.which(tool) is None]


def plan(all_of, deb):
    """The checks, in stages: those of one run side by side."""
    step = types.SimpleNamespace
    draft = all_of.draft
    first = [
        step(name='packaging/release makes a draft', do=all_of.write_draft),
    ]
    second = [
        step(name='Meson installs', do=all_of.install_with_meson),
        step(name='CMake installs', do=all_of.install_with_cmake),
    ]
    third = [
        step(name='Meson and CMake install the same files', do=lambda: same(files(all_of.meson), files(all_of.cmake))),
        step(name='every header and nothing unknown is installed', do=all_of.list_is_whole),
        step(name='no installed file knows where it is', do=all_of.knows_no_place),
        step(name='the CMake package answers to the right versions', do=all_of.versions),
        step(name='another version is refused by find_package', do=all_of.wrong_version),
        step(name='find_package without rdma-core says what to do', do=all_of.without_rdma_core),
        step(name='find_package without pkg-config finds the libraries', do=all_of.without_pkg_config),
        step(name='packaging/release fills in what a release has', do=all_of.release),
    ]
    fourth = [
        step(name='g++ with pkg-config', do=lambda: all_of.pkg_config(all_of.meson, 'pkg-config')),
        step(name='CMake, find_package', do=lambda: all_of.find_package(all_of.cmake, 'find_package')),
        step(name='CMake, add_subdirectory', do=all_of.add_subdirectory),
        step(name='CMake, FetchContent', do=all_of.fetch_content),
        step(name='Meson, subproject with the wrap', do=all_of.wrap),
        step(name='Meson, subproject by its name, of which another archive is refused',
             do=lambda: all_of.wrap('damaged', b'x')),
        step(name='a single file beside the program', do=all_of.single_file),
        step(name='Conan: the recipe in the checkout', do=lambda: all_of.conan(all_of.packaging / 'conan', 'conan')),
        step(name='Conan: the recipe of a release',
             do=lambda: all_of.conan(draft / 'conan' / 'all', 'conan of release', all_of.version)),
        step(name='vcpkg: the port in the checkout',
             do=lambda: all_of.vcpkg(all_of.packaging / 'vcpkg' / 'ports' / 'rdmacpp', 'vcpkg')),
        step(name='vcpkg: the port of a release',
             do=lambda: all_of.vcpkg(draft / 'vcpkg/ports/rdmacpp', 'vcpkg of release', f'-DDOWNLOADS={draft}')),
    ]
    if have_archives():
        fourth.append(step(name='g++ with pkg-config, static', do=lambda: all_of.static(all_of.meson)))
    if deb:
        fourth.append(step(name='Debian: librdmacpp-dev', do=all_of.debian))
    fifth = [
        step(name='g++ with pkg-config, from a moved folder',
             do=lambda: all_of.pkg_config(all_of.moved, 'pkg-config, moved')),
        step(name='CMake, find_package, from a moved folder', do=all_of.find_package_moved),
    ]
    if have_archives():
        fifth.append(step(name='CMake, find_package, with what vcpkg has', do=all_of.vcpkg_consumer))
    return first, second, third, fourth, fifth


def main():
    lacking = missing(NEEDED)
    required = bool(os.environ.get('CI'))
    if lacking and not required:
        ring.skip_all('not installed: ' + ', '.join(lacking))
    tap = ring.Tap()
    control(tap)
    if lacking:
        tap.not_ok('what the consumers need is installed', ', '.join(lacking))
        tap.done()
    no_deb = missing(NEEDED_FOR_DEB)
    if no_deb and required:
        tap.not_ok('what builds a Debian package is installed', ', '.join(no_deb))
    elif no_deb:
        tap.skip('Debian: librdmacpp-dev', 'not installed: ' + ', '.join(no_deb))
    if not have_archives() and required:
        tap.not_ok('static', 'this rdma-core has no librdmacm.a and libibverbs.a')
    elif not have_archives():
        tap.skip('static', 'this rdma-core has no librdmacm.a and libibverbs.a')

    with ring.scratch() as directory:
        all_of = Consumers(directory)
        for number, stage in enumerate(plan(all_of, deb=not no_deb), 1):
            if number > 2 and len(sys.argv) > 1:
                stage = [step for step in stage if sys.argv[1] in step.name]
            troubles = ring.in_parallel(lambda step: attempt(step.do), stage)
            for step, trouble in zip(stage, troubles):
                tap.check(not trouble, step.name, trouble)
            if number < 3 and any(troubles):
                break
            if number == 4:
                # The first place is gone afterwards: nothing can be found there any more.
                all_of.moved.parent.mkdir()
                all_of.meson.rename(all_of.moved)
    tap.done()


if __name__ == '__main__':
    main()
