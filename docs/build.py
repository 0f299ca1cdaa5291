#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Builds the documentation site with Doxygen, into OUTPUT/html: ninja docs.

    build.py [--xml] OUTPUT

--xml writes OUTPUT/xml too, for tests/compile/docs.py. With Debian's doxygen-awesome-css it looks as it should; without
it, as Doxygen does. What Doxygen warns of is an error.
"""

import argparse
import pathlib
import re
import shutil
import subprocess
import sys

sys.dont_write_bytecode = True
import prepare  # noqa: E402: it would leave __pycache__ in the source tree

DOCS = pathlib.Path(__file__).resolve().parent
ROOT = DOCS.parent
AWESOME = pathlib.Path('/usr/share/doxygen-awesome-css')

# The navigation: every page has its place.
PAGES = ['first_steps', 'lifetimes', 'threads', 'errors', 'private_data', 'timeouts', 'loops', 'coroutines', 'testing',
         'examples', 'from_c', 'transports', 'operations', 'debugging', 'security', 'support', 'matrix']
ELSEWHERE = {'examples': ROOT / 'examples/README.md'}
HEADERS = [ROOT / 'include/rdmacpp', ROOT / 'include/rdmacpp/async']

SCRIPTS = ['darkmode-toggle', 'fragment-copy-button', 'paragraph-link']
START = """<script type="text/javascript">
DoxygenAwesomeDarkModeToggle.init();
DoxygenAwesomeFragmentCopyButton.init();
DoxygenAwesomeParagraphLink.init();
</script>
"""


def source_of(page):
    return ELSEWHERE.get(page, DOCS / f'{page}.md')


def title_of(page):
    return re.match(r'# (.+)', source_of(page).read_text(encoding='utf-8')).group(1).strip()


def layout():
    """The navigation, as Doxygen reads it; everything else stays as it is by default."""
    tabs = ['<tab type="mainpage" visible="yes" title="Overview"/>']
    tabs += [f'<tab type="user" visible="yes" url="@ref {page}" title="{title_of(page)}"/>' for page in PAGES]
    tabs += ['<tab type="classes" visible="yes" title="Reference">',
             '<tab type="user" visible="yes" url="@ref rdma" title="Namespace rdma"/>',
             '<tab type="user" visible="yes" url="@ref rdma::async" title="Namespace rdma::async"/>',
             '<tab type="classlist" visible="yes" title="Classes"/>',
             '<tab type="classmembers" visible="yes" title="Members"/>',
             '<tab type="namespacemembers" visible="yes" title="Functions and enumerations"/>',
             '<tab type="filelist" visible="yes" title="Headers"/>',
             '<tab type="globals" visible="yes" title="Macros"/>',
             '</tab>']
    return '<doxygenlayout version="1.0"><navindex>' + '\n'.join(tabs) + '</navindex></doxygenlayout>\n'


def header(output):
    """Doxygen's own header, with the scripts of the theme."""
    made = [output / name for name in ('header.html', 'footer.html', 'style.css')]
    subprocess.run(['doxygen', '-w', 'html', *made], check=True, stdout=subprocess.DEVNULL)
    text = made[0].read_text(encoding='utf-8')
    scripts = ''.join(f'<script type="text/javascript" src="$relpath^doxygen-awesome-{name}.js"></script>\n'
                      for name in SCRIPTS)
    made[0].write_text(text.replace('</head>', scripts + START + '</head>'), encoding='utf-8')
    return made[0]


def write_input(folder):
    """What Doxygen reads: see prepare.py. Neither detail/ nor fwd.hpp, which only repeats names."""
    shutil.rmtree(folder, ignore_errors=True)
    classes = prepare.public_classes()
    headers = [path for folder in HEADERS for path in sorted(folder.glob('*.hpp')) if path.name != 'fwd.hpp']
    for path in [DOCS / 'overview.md', *map(source_of, PAGES), *headers]:
        copy = folder / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(prepare.prepared(path, path.read_text(encoding='utf-8'), classes), encoding='utf-8')
    return folder


def doxyfile(output, xml):
    awesome = (AWESOME / 'doxygen-awesome.css').exists()
    sheets = [AWESOME / f'doxygen-awesome{name}.css' for name in ('', '-sidebar-only', '-sidebar-only-darkmode-toggle')]
    extra = [AWESOME / f'doxygen-awesome-{name}.js' for name in SCRIPTS]
    (output / 'layout.xml').write_text(layout(), encoding='utf-8')
    version = subprocess.run([ROOT / 'tools/version.py'], capture_output=True, text=True, check=True).stdout.strip()
    values = {
        'VERSION': version,
        'ROOT': ROOT,
        'OUTPUT': output,
        'LAYOUT': output / 'layout.xml',
        'XML': 'YES' if xml else 'NO',
        'HEADER': header(output) if awesome else '',
        'STYLESHEETS': ' '.join(map(str, [*(sheets if awesome else []), DOCS / 'rdmacpp.css'])),
        'EXTRA_FILES': ' '.join(map(str, extra if awesome else [])),
        'INPUT': write_input(output / 'input'),
    }
    text = re.sub(r'@(\w+)@', lambda m: str(values[m.group(1)]), (DOCS / 'Doxyfile.in').read_text(encoding='utf-8'))
    path = output / 'Doxyfile'
    path.write_text(text, encoding='utf-8')
    return path


def tidy(page):
    """Moves code to the left margin, takes `event` and `id` for names, which to Doxygen are keywords, and lets names in
    tables break behind an underscore."""
    def fragment(match):
        text = re.sub(r'<span class="keyword(?:type)?">(event|id)</span>', r'\1', match.group(0))
        indents = re.findall(r'<div class="line">( *)(?=[^ <]|<(?!/div>))', text)
        return text.replace('<div class="line">' + ' ' * min(map(len, indents), default=0), '<div class="line">')

    def names(match):
        return re.sub(r'<code>.*?</code>', lambda code: re.sub(r'(?<=_|:)(?=\w)(?![^<>]*>)', '<wbr/>', code.group(0)),
                      match.group(0), flags=re.S)

    text = page.read_text(encoding='utf-8')
    tidied = re.sub(r'<div class="fragment">.*?</div><!-- fragment -->', fragment, text, flags=re.S)
    tidied = re.sub(r'<table class="markdownTable">.*?</table>', names, tidied, flags=re.S)
    if tidied != text:
        page.write_text(tidied, encoding='utf-8')


def straighten(html):
    """The navigation names what a header declares by the header's page, also where its text is on the namespace's."""
    def anchors(page):
        return set(re.findall(r'(?:id|name)="([\w-]+)"', (html / page).read_text(encoding='utf-8')))

    spaces = {page.name: anchors(page.name) for page in sorted(html.glob('namespacerdma*.html'))}
    known = {}
    for script in html.glob('*.js'):
        def entry(match):
            page, anchor = match.groups()
            if page not in known:
                known[page] = anchors(page)
            there = [] if anchor in known[page] else [name for name, own in spaces.items() if anchor in own]
            return f'"{there[0] if there else page}#{anchor}"'

        text = script.read_text(encoding='utf-8')
        mended = re.sub(r'"(\w+_8hpp\.html)#(\w+)"', entry, text)
        mended = re.sub(r'^"pages.html":.*\n', '', mended, flags=re.M)  # which has no tab
        if mended != text:
            script.write_text(mended, encoding='utf-8')


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--xml', action='store_true')
    parser.add_argument('output', type=pathlib.Path)
    options = parser.parse_args()
    output = options.output.resolve()
    output.mkdir(parents=True, exist_ok=True)
    code = subprocess.run(['doxygen', doxyfile(output, options.xml)], check=False).returncode
    for page in (output / 'html').glob('*.html'):
        tidy(page)
    if code == 0:
        straighten(output / 'html')
    if code == 0 and not options.xml: # the test takes every word for a warning
        print(output / 'html' / 'index.html')
    return code


if __name__ == '__main__':
    sys.exit(main())
