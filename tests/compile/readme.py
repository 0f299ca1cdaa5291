#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What README prints is what is compiled and run.

    readme.py [README]

- A code block with `<!-- path -->` on the line before it must be that file.
- Every other block of C++ must be one of the snippets of docs/snippets/readme.cpp, which the test "code of the
  documentation" compiles and runs; and each of these must be printed.
- The rows of docs/matrix.md that say how the unit ring went are README's, too.
"""

import pathlib
import re
import sys
import textwrap

ROOT = pathlib.Path(__file__).resolve().parents[2]
SNIPPETS = ROOT / 'docs/snippets/readme.cpp'
BLOCK = re.compile(r'^(?:<!-- (\S+) -->\n)?```(\w*)\n(.*?)^```$', re.M | re.S)
SNIPPET = re.compile(r'^[ ]*//! \[(\w+)\]\n(.*?)^[ ]*//! \[\1\]$', re.M | re.S)


def snippets(text):
    return {name: textwrap.dedent(code) for name, code in SNIPPET.findall(text)}


def differences(text, read, known):
    """One line for each block that is neither its file nor a snippet, for each snippet that is not printed, and for a
    README without blocks of either kind."""
    blocks = BLOCK.findall(text)
    wrong = [f'the block of {path} is not that file' for path, _, code in blocks if path and read(path) != code]
    pieces = [code for path, language, code in blocks if not path and language == 'cpp']
    wrong += [f'no snippet is the block that begins with: {code.splitlines()[0]}' for code in pieces
              if code not in known.values()]
    wrong += [f'the snippet {name} is not printed' for name, code in known.items() if code not in pieces]
    if not any(path for path, _, _ in blocks):
        wrong.append('no block names its file')
    if not pieces:
        wrong.append('no block is a snippet')
    return wrong


def missing_rows(text, table):
    """The rows of the table that README should have, and has not."""
    return [row for row in table.splitlines() if re.search(r'\d+ passed', row) and row not in text.splitlines()]


def controls():
    """(name, whether it is as it should be) for texts that are known to be right or wrong."""
    text = '<!-- a.cpp -->\n```cpp\nint main() {}\n```\n\n```cpp\nif (a)\n    b();\n```\n'
    source = 'void f() {\n    //! [one]\n    if (a)\n        b();\n    //! [one]\n}\n'
    known = snippets(source)
    right, other = (lambda path: 'int main() {}\n'), (lambda path: 'int main() { }\n')
    yield 'blocks that are their file and a snippet pass', differences(text, right, known) == []
    yield 'a block that is not its file is found', len(differences(text, other, known)) == 1
    others = snippets(source.replace('b()', 'c()'))
    yield 'a block that is no snippet is found', len(differences(text, right, others)) == 2
    yield 'a row that is not there is found', missing_rows('| a | 1 passed |', '| a | 1 passed |\n| a | 2 passed |\n| a | no |') \
        == ['| a | 2 passed |']
    yield 'a README without blocks is found', len(differences('', right, {})) == 2


def main():
    readme = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / 'README.md').read_text(encoding='utf-8')
    checks = list(controls())
    wrong = differences(readme, lambda path: (ROOT / path).read_text(encoding='utf-8'),
                        snippets(SNIPPETS.read_text(encoding='utf-8')))
    checks.append(('README prints its programs and pieces as they are', not wrong))
    missing = missing_rows(readme, (ROOT / 'docs/matrix.md').read_text(encoding='utf-8'))
    wrong += [f'not there: {row}' for row in missing]
    checks.append(('README has what the unit ring was run with', not missing))
    print(f'1..{len(checks)}')
    for number, (name, fine) in enumerate(checks, 1):
        print(f'{"ok" if fine else "not ok"} {number} - {name}')
    print(''.join(f'# {line}\n' for line in wrong), end='')
    return 0 if all(fine for _, fine in checks) else 1


if __name__ == '__main__':
    sys.exit(main())
