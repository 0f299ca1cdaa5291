#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The code blocks of README that are a file must be that file: `<!-- path -->` stands on the line before the block.

    readme.py [README]
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
BLOCK = re.compile(r'^<!-- (\S+) -->\n```\w*\n(.*?)^```$', re.M | re.S)


def differences(text, read):
    """One line for each block that is not its file, and for a README without such blocks."""
    blocks = BLOCK.findall(text)
    if not blocks:
        return ['no block names its file']
    return [f'the block of {path} is not that file' for path, code in blocks if read(path) != code]


def main():
    readme = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / 'README.md').read_text()
    control = '<!-- a.cpp -->\n```cpp\nint main() {}\n```\n'
    checks = [
        ('a block that differs is found', differences(control, lambda path: 'int main() { }\n') != []),
        ('a block that is the file passes', differences(control, lambda path: 'int main() {}\n') == []),
    ]
    wrong = differences(readme, lambda path: (ROOT / path).read_text())
    checks.append(('README prints its programs as they are', not wrong))
    print(f'1..{len(checks)}')
    for number, (name, fine) in enumerate(checks, 1):
        print(f'{"ok" if fine else "not ok"} {number} - {name}')
    print(''.join(f'# {line}\n' for line in wrong), end='')
    return 0 if all(fine for _, fine in checks) else 1


if __name__ == '__main__':
    sys.exit(main())
