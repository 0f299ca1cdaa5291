# SPDX-License-Identifier: MIT
import fnmatch
import hashlib
import os
import pathlib
import shutil
import tarfile
import urllib.parse

from conan.errors import ConanException


def copy(conanfile, pattern, src, dst):
    """The files below src whose path from there matches; `*` matches slashes too, as in Conan."""
    del conanfile
    copied = []
    for path in sorted(pathlib.Path(src).rglob('*')):
        name = path.relative_to(src).as_posix()
        if path.is_file() and fnmatch.fnmatchcase(name, pattern):
            target = pathlib.Path(dst) / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, target)
            copied.append(str(target))
    return copied


def get(conanfile, url, sha256, strip_root=False):
    """Only file: addresses: nothing is downloaded here."""
    address = urllib.parse.urlparse(url)
    if address.scheme != 'file' or not strip_root:
        raise ConanException(f'the stand-in gets file: archives with strip_root alone, not {url}')
    if hashlib.sha256(pathlib.Path(address.path).read_bytes()).hexdigest() != sha256:
        raise ConanException(f'{url} has another sha256')
    with tarfile.open(address.path) as tar:
        for member in tar.getmembers():
            member.name = member.name.partition('/')[2]
            if member.isfile():
                tar.extract(member, conanfile.source_folder)


def load(conanfile, path):
    del conanfile
    return pathlib.Path(path).read_text(encoding='utf-8')


def rename(conanfile, src, dst):
    del conanfile
    os.rename(src, dst)


def rmdir(conanfile, path):
    del conanfile
    shutil.rmtree(path, ignore_errors=True)
