# SPDX-License-Identifier: MIT
"""Finds what a header declares, without a compiler: enough of C++ for headers in this project's style."""

import re

TOKEN = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|' r"(?<![0-9a-zA-Z_])'(?:\\.|[^'\\\n])+'", re.S)
DIRECTIVE = re.compile(r'#(?:\\\n|[^\n])*')
LABEL = re.compile(r'(public|protected|private):')
HEAD = re.compile(r'(?:template\s*<.*?>\s*(?:requires .*?)?)?(class|struct|enum(?: class)?|union|namespace)\b'
                  r'\s*(?:RDMACPP_EXPORT\s+|\[\[\w+\]\]\s*)*((?:rdma::inline )?[\w:]*)', re.S)
MEMBER_LIST = re.compile(r'\)\s*(?:noexcept)?\s*:\s')

HIDDEN = 'private:'  # the text of the declaration that stands for a part that nobody is to see


def blank(text):
    """The text with comments and strings blanked, in the same places."""
    def same_length(match):
        token = match.group(0)
        if token[0] == '/':
            return re.sub(r'[^\n]', ' ', token)
        return token[0] + re.sub(r'[^\n]', '.', token[1:-1]) + token[-1]
    return TOKEN.sub(same_length, text)


class Scope:
    """What stands between braces: a namespace, a class, an enumeration; or a body, of a function or a value."""

    def __init__(self, kind, name='', public=True):
        self.kind, self.name, self.public = kind, name, public
        self.hidden_from = None  # where a part begins that nobody is to see
        self.begun = None        # of a body: where its declaration begins

    def is_detail(self):
        return self.name.split('::')[-1] == 'detail'

    def class_name(self):
        return self.name.split('::')[-1] if self.kind in ('class', 'struct') else ''


class Scanner:
    """Yields (start, end, text, scope) for each declaration: end is where its `;`, `,` or first brace is, of a function
    with a body its last brace."""

    def __init__(self, code):
        self.code, self.at, self.depth, self.start = code, 0, 0, None
        self.scopes = [Scope('namespace')]

    def run(self):
        while self.at < len(self.code):
            if self.declares() and self.start is None:
                skipped = yield from self.between()
                if skipped:
                    continue
            yield from self.character(self.code[self.at])
            self.at += 1

    def declares(self):
        return self.scopes[-1].kind != 'body' and self.depth == 0

    def between(self):
        """Between two declarations: whether a directive or an access specifier was skipped."""
        line_begins = self.code[self.code.rfind('\n', 0, self.at) + 1:self.at].strip() == ''
        directive = DIRECTIVE.match(self.code, self.at) if line_begins else None
        if directive:
            self.at = directive.end()
            return True
        label = LABEL.match(self.code, self.at)
        if label:
            yield from self.enter(label)
            return True
        if not self.code[self.at].isspace() and self.code[self.at] not in '};,':
            self.start = self.at
        return False

    def enter(self, label):
        scope = self.scopes[-1]
        yield from self.end_hidden(scope, self.at)
        scope.public = self.scopes[-2].public and label.group(1) == 'public'
        scope.hidden_from = None if label.group(1) == 'public' else label.end()
        self.at = label.end()

    def character(self, char):
        if char in '([':
            self.depth += 1
        elif char in ')]':
            self.depth -= 1
        elif char == '<' and self.declares() and re.search(r'\btemplate\s*$', self.text()):
            self.at = self.closing_angle()
        elif char == ';' and self.declares() or char == ',' and self.depth == 0 and self.scopes[-1].kind == 'enum':
            yield from self.declared()
        elif char == '{' and self.depth == 0:
            yield from self.open()
        elif char == '}' and self.depth == 0 and len(self.scopes) > 1:
            yield from self.close()

    def text(self):
        return '' if self.start is None else self.code[self.start:self.at]

    def declared(self):
        if self.start is not None:
            yield self.start, self.at, self.text(), self.scopes[-1]
        self.start = None

    def closing_angle(self):
        level = 0
        for at in range(self.at, len(self.code)):
            level += {'<': 1, '>': -1}.get(self.code[at], 0)
            if level == 0:
                return at
        return len(self.code)

    def open(self):
        inner = self.opened() if self.declares() else Scope('body')
        if self.declares() and inner.kind == 'body':
            inner.begun, inner.head = self.start, self.text()
        elif self.declares():
            if inner.kind == 'namespace' and inner.is_detail():
                inner.hidden_from = self.start
            yield from self.declared()
        self.scopes.append(inner)

    def opened(self):
        """The scope that a brace opens behind this text."""
        found, outer = HEAD.match(self.text()), self.scopes[-1]
        if not found or (found.group(1) in ('class', 'struct') and self.text().rstrip().endswith(')')):
            return Scope('body')
        kind, name = found.group(1).split()[0], found.group(2)
        scope = Scope(kind, name)
        scope.public = outer.public and not (kind == 'namespace' and scope.is_detail()) and kind != 'class'
        return scope

    def close(self):
        scope = self.scopes[-1]
        if scope.kind == 'enum':
            yield from self.declared()
        yield from self.end_hidden(scope, self.at)
        self.scopes.pop()
        if scope.kind != 'body':
            self.start = None
        elif scope.begun is not None and not self.goes_on(scope):
            yield from self.declared()

    def goes_on(self, body):
        """Whether a brace that gives a value, or a member's value, does not end the declaration."""
        rest = self.code[self.at + 1:].lstrip()[:1]
        return rest in (';', ',', ')') or (MEMBER_LIST.search(body.head) is not None and rest == '{')

    @staticmethod
    def end_hidden(scope, end):
        if scope.hidden_from is not None:
            yield scope.hidden_from, end + (scope.kind == 'namespace'), HIDDEN, scope


def declarations(code):
    """(start, end, text, the innermost scope) of everything that a namespace, class or enumeration declares, in code
    that is blank()."""
    return Scanner(code).run()
