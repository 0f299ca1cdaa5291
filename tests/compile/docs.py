#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The documentation: it builds without a warning, every public name is documented, and every link leads somewhere.

- Doxygen runs once, for the site and for XML; whatever it prints is an error.
- Every class, member and enumerator of the XML has a brief description.
- Every href, src and data of the site's pages, and every entry of its navigation, is a file and an anchor that is
  there; external links are only looked at. No page names anything of namespace detail, or the inline namespace.
- Every page of docs/ has its place in the navigation; every snippet in docs/snippets is shown somewhere.
- The links of all Markdown files are files, and headings, that are there.

Doxygen is Debian's package doxygen; with doxygen-awesome-css the site is the one that is published.
"""

import html.parser
import os
import pathlib
import re
import shutil
import subprocess
import sys
import urllib.parse
import xml.etree.ElementTree

import ring

DOCS = ring.ROOT / 'docs'
sys.dont_write_bytecode = True
sys.path.insert(0, str(DOCS))
import build  # noqa: E402: docs/build.py
import prepare  # noqa: E402: docs/prepare.py

SNIPPET = re.compile(r'^[@\\]snippet (\S+) (\w+)$', re.M)
LEAK = re.compile(r'\bdetail::\w+|::RDMACPP_ABI')
MARKER = re.compile(r'^ *//! \[(\w+)\]$', re.M)


# ---- what Doxygen says ------------------------------------------------------------------------------------------

def doxygen(output):
    """(exit code, everything printed) of the whole site."""
    done = subprocess.run([sys.executable, DOCS / 'build.py', '--xml', output], text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, check=False)
    return done.returncode, done.stdout


def complaints_about(header, doxyfile, scratch):
    """What Doxygen, set as for the site, prints about one header of this text."""
    (scratch / 'planted.hpp').write_text(prepare.transform(header)[0], encoding='utf-8')
    settings = doxyfile.read_text(encoding='utf-8') + f'''
INPUT = {scratch / 'planted.hpp'}
OUTPUT_DIRECTORY = {scratch}
USE_MDFILE_AS_MAINPAGE =
LAYOUT_FILE =
GENERATE_HTML = NO
GENERATE_XML = YES
'''
    done = subprocess.run(['doxygen', '-'], input=settings, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          check=False)
    return done.stdout


# ---- names ------------------------------------------------------------------------------------------------------

def has_text(element, *tags):
    return any(''.join(found.itertext()).strip() for tag in tags for found in element.findall(tag))


def undocumented(root):
    """The names in one of Doxygen's XML files that have no description."""
    for compound in root.iter('compounddef'):
        name = compound.findtext('compoundname')
        if name.endswith('.md'):
            continue
        if compound.get('kind') in ('class', 'struct', 'union', 'namespace', 'file') and \
                compound.get('prot') != 'private' and not has_text(compound, 'briefdescription', 'detaileddescription'):
            yield name
        for member in compound.iter('memberdef'):
            if member.get('prot') == 'private':
                continue
            full = f'{name}::{member.findtext("name")}'
            if not has_text(member, 'briefdescription', 'detaileddescription'):
                yield full
            for value in member.findall('enumvalue'):
                if not has_text(value, 'briefdescription', 'detaileddescription'):
                    yield f'{full}::{value.findtext("name")}'


def all_undocumented(folder):
    found, count = [], 0
    for path in sorted(folder.glob('*.xml')):
        if path.name != 'index.xml' and not path.name.startswith('dir_'):
            root = xml.etree.ElementTree.parse(path).getroot()
            if (root.find('compounddef') is not None and root.find('compounddef').get('kind') != 'page'):
                found += undocumented(root)
                count += len(list(root.iter('memberdef')))
    return found, count


# ---- links ------------------------------------------------------------------------------------------------------

class Page(html.parser.HTMLParser):
    """The anchors and the links of an HTML page."""

    def __init__(self, text):
        super().__init__()
        self.anchors, self.links = set(), []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        for key, value in attrs:
            if key in ('id', 'name'):
                self.anchors.add(value)
            elif key in ('href', 'src', 'data') and value:
                self.links.append(value)


def is_external(link):
    return bool(re.match(r'[a-zA-Z][\w+.-]*:', link))


def is_well_formed(link):
    parts = urllib.parse.urlsplit(link)
    if parts.scheme in ('javascript', 'mailto', 'data'):
        return True
    return parts.scheme in ('http', 'https') and '.' in parts.netloc and not re.search(r'\s', link)


def broken_html(pages, exists):
    """'page: link' for each link of {name: Page} that leads nowhere."""
    for name, page in pages.items():
        for link in page.links:
            if is_external(link):
                good = is_well_formed(link)
            else:
                path, _, anchor = urllib.parse.unquote(link).partition('#')
                target = os.path.normpath(os.path.join(os.path.dirname(name), path)) if path else name
                good = exists(target) and (not anchor or target not in pages or anchor in pages[target].anchors)
            if not good:
                yield f'{name}: {link}'


def read_site(folder):
    pages = {path.relative_to(folder).as_posix(): Page(path.read_text(encoding='utf-8'))
             for path in folder.rglob('*.html') if 'search' not in path.parts}
    for script in folder.glob('*.js'):  # the navigation
        found = Page('')
        found.links = re.findall(r'"([\w./-]+\.html(?:#[\w-]+)?)"', script.read_text(encoding='utf-8'))
        pages[script.name] = found
    return pages


def slug(heading):
    """The anchor that repository hosts make of a heading."""
    plain = re.sub(r'[`*]|\[([^]]*)\]\([^)]*\)', r'\1', heading)
    return re.sub(r'[^\w\- ]', '', plain.strip().lower()).replace(' ', '-')


def markdown_links(text):
    text = re.sub(r'^ *```.*?^ *```$', '', text, flags=re.M | re.S)
    text = re.sub(r'`[^`\n]*`', '', text)
    return re.findall(r'\]\(([^()\s]+)\)', text)


def broken_markdown(files, exists):
    """'file: link' for each link of {path: text} that leads nowhere."""
    anchors = {path: {slug(line) for line in re.findall(r'^#+ +(.+)$', text, re.M)} for path, text in files.items()}
    for path, text in files.items():
        for link in markdown_links(text):
            if is_external(link):
                good = is_well_formed(link)
            else:
                target, _, anchor = link.partition('#')
                target = os.path.normpath(os.path.join(os.path.dirname(path), target)) if target else path
                good = exists(target) and (not anchor or anchor in anchors.get(target, {anchor}))
            if not good:
                yield f'{path}: {link}'


def markdown_files():
    found = {}
    for folder, below, names in os.walk(ring.ROOT):
        below[:] = [name for name in below if not name.startswith('.') and not re.match('build|subprojects', name)]
        for name in names:
            if name.endswith('.md'):
                path = pathlib.Path(folder, name)
                found[path.relative_to(ring.ROOT).as_posix()] = path.read_text(encoding='utf-8')
    return found


# ---- snippets ---------------------------------------------------------------------------------------------------

def unshown(sources, pages):
    """The snippets in {file: text} that no page shows; those of readme.cpp are README's."""
    shown = {found for text in pages for found in SNIPPET.findall(text)}
    for name, text in sources.items():
        if name != 'readme.cpp':
            for marker in dict.fromkeys(MARKER.findall(text)):
                if (name, marker) not in shown:
                    yield f'{name}: {marker}'


# ---- the checks -------------------------------------------------------------------------------------------------

def controls(tap, doxyfile):
    """What is known to be wrong is found."""
    header = '''/// @file
/// A header.
#pragma once
/// @namespace rdma
/// A namespace.
namespace rdma {
/// A class.
class thing {
public:
    explicit operator bool() const noexcept;
%s    int number() const;
%s    unsigned long length = std::string::npos;
private:
    int hidden;
};
}
'''
    with ring.scratch() as name:
        scratch = pathlib.Path(name)
        said = complaints_about(header % ('', ''), doxyfile, scratch)
        tap.check('number' in said and 'length' in said, 'members without a comment are found', said)
        said = complaints_about(header % ('    /// Its number.\n', '\n    /// How long.\n'), doxyfile, scratch)
        tap.check(not said, 'a header with comments passes, and what every class has needs none', said)
        # As the headers have it; what is in detail needs no comment.
        nested = header % ('    /// Its number.\n', '\n    /// How long.\n') + """
/// Another.
namespace rdma::inline RDMACPP_ABI::async {
class task { public: auto next() const noexcept { return 1; } };
}
namespace rdma::inline RDMACPP_ABI::detail {
class hidden { public: int secret() const; };
}
"""
        said = complaints_about(nested, doxyfile, scratch)
        tap.check(re.findall(r'(?:Compound|Member) ([\w:]+)', said) == ['rdma::async::task', 'next'],
                  'a class and a member of rdma::async without a comment are found, and nothing of detail', said)
    parse = xml.etree.ElementTree.fromstring
    members = '''<d><compounddef kind="class" prot="public"><compoundname>c</compoundname>
<briefdescription>It.</briefdescription>
<memberdef prot="public"><name>f</name><briefdescription/></memberdef>
<memberdef prot="private"><name>g</name></memberdef>
<memberdef prot="public"><name>e</name><briefdescription>E.</briefdescription>
<enumvalue><name>v</name></enumvalue></memberdef>
</compounddef></d>'''
    tap.check(list(undocumented(parse(members))) == ['c::f', 'c::e::v'],
              'a member and an enumerator without text are found')
    pages = {'a.html': Page('<a id="x" href="b.html#y"></a><a href="a.html#x"></a><img src="no.svg">'
                            '<a href="b.html#z"></a><a href="http//x"></a><a href="https://nowhere"></a>'),
             'b.html': Page('<p id="y">')}
    tap.check(list(broken_html(pages, pages.__contains__)) ==
              ['a.html: no.svg', 'a.html: b.html#z', 'a.html: http//x', 'a.html: https://nowhere'],
              'links of a page that lead nowhere are found')
    files = {'a.md': '# One two\n[x](#one-two) [y](b/c.md#d) [z](b/c.md#e) [w](no.md) `[v](v)`\n', 'b/c.md': '## D\n'}
    tap.check(list(broken_markdown(files, files.__contains__)) == ['a.md: b/c.md#e', 'a.md: no.md'],
              'links of Markdown that lead nowhere are found')
    tap.check(list(unshown({'a.cpp': ' //! [x]\n//! [y]\n'}, ['@snippet a.cpp x'])) == ['a.cpp: y'],
              'a snippet that no page shows is found')


def main():
    tap = ring.Tap()
    if not shutil.which('doxygen'):
        if not os.environ.get('CI'):
            ring.skip_all('doxygen is not installed')
        tap.not_ok('doxygen is installed')
        tap.done()
    with ring.scratch() as name:
        output = pathlib.Path(name)
        code, printed = doxygen(output)
        controls(tap, output / 'Doxyfile')
        built = code == 0 and not printed
        if not tap.check(built, 'the site builds without a warning', printed or f'exit code {code}'):
            tap.done()
        missing, count = all_undocumented(output / 'xml')
        tap.check(not missing and count > 500, f'every public name has a description: {count} members',
                  '\n'.join(missing) or 'too few were found')
        declared = sorted(set(prepare.public_classes().values()))
        pages = ' '.join(path.name for path in (output / 'html').glob('*.html')).replace('__', '_')
        lost = [name for name in declared if f'{name.replace("::", "_1_1")}.html' not in pages]
        tap.check(not lost and 'rdma::async::cm_id' in declared, 'every class of fwd.hpp has a page', '\n'.join(lost))
        site = read_site(output / 'html')
        wrong = list(broken_html(site, lambda target: (output / 'html' / target).exists()))
        tap.check(not wrong and len(site) > 100, f'every link of the site leads somewhere: {len(site)} pages',
                  '\n'.join(wrong) or 'too few pages')
        leaks = [f'{path.name}: {found}' for path in (output / 'html').glob('*.html')
                 for found in sorted(set(LEAK.findall(path.read_text(encoding='utf-8'))))]
        tap.check(not leaks, 'no page names anything of namespace detail, or the inline namespace', '\n'.join(leaks))
    lost = [path.name for path in DOCS.glob('*.md') if path.stem not in build.PAGES and path.stem != 'overview']
    tap.check(not lost, 'every page is in the navigation', '\n'.join(lost))
    sources = [path for path in (DOCS / 'snippets').rglob('*') if path.suffix in ('.c', '.cpp')]
    texts = {path.relative_to(DOCS / 'snippets').as_posix(): path.read_text(encoding='utf-8') for path in sources}
    hidden = list(unshown(texts, [path.read_text(encoding='utf-8') for path in DOCS.glob('*.md')]))
    tap.check(not hidden, 'every snippet is shown', '\n'.join(hidden))
    files = markdown_files()
    wrong = list(broken_markdown(files, lambda target: (ring.ROOT / target).exists()))
    tap.check(not wrong, f'every link of Markdown leads somewhere: {len(files)} files', '\n'.join(wrong))
    tap.done()


if __name__ == '__main__':
    main()
