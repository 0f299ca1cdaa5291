#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What Doxygen reads of a public header or of a page, on the same lines. docs/build.py has it written for all of them.

    prepare.py HEADER...        prints what is put in

Of a header:

- The inline namespace is left out: it is no part of a name that a reader types.
- What is private is left out, namespace detail, and what is protected: nobody is meant to derive from these classes.
  So are definitions outside of their class, whose text is with the declaration.
- What the headers do not say again and again is put in. A declaration without a comment of its own gets, in this order:
  a sentence for what is the same in every class (`operator bool`, `swap`, moves, iterators); for what takes a trailing
  std::error_code& or std::nothrow_t, that it is the twin; for an enumerator, the constant of C that it is; the comment
  above it, when no empty line stands between: that is how the headers speak of several declarations at once; the C
  function that it calls, or the field that it reads.

What is still without a comment is reported by Doxygen, and tests/compile/docs.py fails.

Of a page, which is Markdown that also reads well where the sources are:
- Its name is that of its file. A link to another page or to a header goes there; one to any other file of the sources,
  which the site does not have, is left as its text.
- Code that is the name of a class links to it.
"""

import bisect
import os
import pathlib
import re
import sys

TOKEN = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|' r"(?<![0-9a-zA-Z_])'(?:\\.|[^'\\\n])+'", re.S)

STANDARD = [
    (r'\bexplicit operator bool\(\)', 'Whether it holds anything.'),
    (r'\bvoid swap\(|\bfriend void swap\(', 'Exchanges the two; no C call.'),
    (r'operator=\((\w+)(<[^>]*>)? const&', 'Becomes a copy.'),
    (r'operator=\((\w+)(<[^>]*>)?&&',
     'Drops what this holds and takes over what the other does, which is empty afterwards.'),
    (r'operator==\(iterator const& \w+, std::default_sentinel_t\)', 'Whether it is at the end.'),
    (r'operator==\(', 'Whether both are the same.'),
    (r'\boperator\+\+\(', 'The next one.'),
    (r'\boperator\*\(', 'The one it stands at.'),
    (r'\boperator\[\]\(', 'The one at that place; it must be below size().'),
    (r'\b(begin)\(\)', 'The first.'),
    (r'\b(end)\(\)', 'Behind the last.'),
    (r'\bsize\(\) const', 'How many there are.'),
    (r'\bempty\(\) const', 'Whether there is none.'),
    (r'\bclass iterator\b', 'Goes over them, once.'),
    (r'\boperator cm_id_ref\(\) const&', 'A view of this id, for comparing and as a key.'),
    (r'\boperator event_channel_ref\(\) const&', 'A view of this channel, as functions take it.'),
]


def blank(text):
    """The text with comments and strings blanked, in the same places."""
    return TOKEN.sub(lambda m: re.sub(r'[^\n]', ' ', m.group(0)) if m.group(0)[0] == '/' else
                     m.group(0)[0] + re.sub(r'[^\n]', '.', m.group(0)[1:-1]) + m.group(0)[-1], text)


# No reader misses what is deleted, friend classes, and the types that the standard asks of an iterator.
HIDDEN = re.compile(r'= delete$|^using (iterator_(category|concept)|value_type|difference_type|pointer|reference) = ')
OWN = re.compile(r"[Ff]or the library's own headers")
HIDDEN_PART = 'private:'

# What the signatures name of namespace detail, and what a reader sees instead.
DETAILS = [
    (r' = detail::\w+(?=[,>])', ''),
    (r'(?<=[<, ])detail::(?:writable_memory|stop_token_like) (?=\w+[,>])', 'class '),
    (r'\brequires detail::\w+<[^<>]*>', ''),
    (r', detail::\w+_node>', '>'),
    (r'<detail::\w+_node, ', '<'),
    (r', class Keeper = detail::pinnable>', '>'),
    (r'<class Node, class Ref>(?=\nclass verbs_owner)', '<class Ref>'),
    (r'\bdetail::stop_action\b', 'stop_action'),
    (r'(?<= local) = \{\};', '{};'),  # a word that Doxygen takes for one of another language before a =
]


class Scope:
    def __init__(self, kind, name='', public=True):
        self.kind, self.name, self.public = kind, name, public
        self.hidden_from = self.begun = None


def opened(statement, outer):
    """The scope that a brace opens behind this text."""
    found = re.match(r'(?:template\s*<.*?>\s*(?:requires .*?)?)?(class|struct|enum(?: class)?|union|namespace)\b'
                     r'\s*(?:RDMACPP_EXPORT\s+|\[\[\w+\]\]\s*)*([\w:]*)', statement, re.S)
    if found and not (found.group(1) in ('class', 'struct') and statement.rstrip().endswith(')')):
        kind = found.group(1).split()[0]
        public = outer.public and not (kind == 'namespace' and found.group(2).startswith('detail'))
        return Scope(kind, found.group(2), public and kind != 'class')
    return Scope('body')


def declarations(code):
    """(start, end, statement, the innermost scope) of everything that a namespace, class or enum declares."""
    stack, start, depth, at = [Scope('namespace')], None, 0, 0
    while at < len(code):
        char, scope = code[at], stack[-1]
        declares = scope.kind != 'body' and depth == 0
        if declares and start is None:
            if code.startswith('#', at) and code[code.rfind('\n', 0, at) + 1:at].strip() == '':
                end = re.compile(r'(?:\\\n|[^\n])*').match(code, at).end()
                at = end
                continue
            label = re.compile(r'(public|protected|private):').match(code, at)
            if label:
                yield from hidden_part(scope, at)
                outer = stack[-2].public if len(stack) > 1 else True
                scope.public = outer and label.group(1) == 'public'
                scope.hidden_from = None if label.group(1) == 'public' else label.end()
                at = label.end()
                continue
            if not char.isspace() and char not in '};,':
                start = at
        if char in '([':
            depth += 1
        elif char in ')]':
            depth -= 1
        elif char == '{' and depth == 0:
            statement = code[start:at] if start is not None else ''
            inner = opened(statement, scope) if declares else Scope('body')
            if inner.kind == 'body' and declares:
                inner.begun, inner.statement = start, statement
            elif declares:
                yield start, at, statement, scope
                start = None
                if inner.kind == 'namespace' and inner.name == 'detail':
                    inner.hidden_from = at - len(statement)
            stack.append(inner)
        elif char == '}' and depth == 0 and len(stack) > 1:
            if scope.kind == 'enum' and start is not None:
                yield start, at, code[start:at], scope
                start = None
            yield from hidden_part(scope, at)
            if scope.kind != 'body':
                start = None
            stack.pop()
            if scope.kind == 'body' and scope.begun is not None:
                rest = re.compile(r'\s*[;,)]').match(code, at + 1)
                member_list = re.search(r'\)\s*(?:noexcept)?\s*:\s', scope.statement) or \
                    (rest and rest.group(0)[-1] == ',')
                # A brace that gives a value, or a member's value, does not end the declaration.
                if not (rest or (member_list and re.match(r'\s*[,{]', code[at + 1:at + 80]))):
                    yield scope.begun, at, code[scope.begun:at], stack[-1]
                    start = None
        elif char == '<' and declares and start is not None and re.search(r'\btemplate\s*$', code[start:at]):
            at = closing_angle(code, at)
            continue
        elif char == ';' and declares:
            if start is not None:
                yield start, at, code[start:at], scope
            start = None
        elif char == ',' and depth == 0 and scope.kind == 'enum':
            if start is not None:
                yield start, at, code[start:at], scope
            start = None
        at += 1


def hidden_part(scope, end):
    if scope.hidden_from is not None:
        yield scope.hidden_from, end + (scope.kind == 'namespace'), HIDDEN_PART, scope


def closing_angle(code, at):
    level = 0
    while at < len(code):
        level += {'<': 1, '>': -1}.get(code[at], 0)
        at += 1
        if level == 0:
            return at
    return at


def own_class(scope):
    return scope.name.split('::')[-1] if scope.kind in ('class', 'struct') else ''


def sentence(statement, scope, above):
    """What is put in before a declaration without a comment; None where nothing fits."""
    flat = ' '.join(statement.split())
    head = flat.split('{')[0]
    if scope.kind == 'enum':
        constant = re.search(r'=\s*(IBV_\w+|RDMA_\w+)', flat)
        return f"`{constant.group(1)}`." if constant else None
    name = own_class(scope)
    if name and re.match(rf'(constexpr )?{name}\({name} const& ?\w*\)', head):
        return 'A copy.'
    if name and re.match(rf'(constexpr )?{name}\({name}&& ?\w*\)', head):
        return 'Takes over what the other holds, which is empty afterwards.'
    if name and re.match(rf'(constexpr |explicit )?{name}\(\)', head):
        return 'Empty.'
    if head.startswith('~'):
        return 'Drops what it holds. Never throws.'
    for pattern, text in STANDARD:
        if re.search(pattern, head):
            return text
    if name and re.match(rf'explicit {name}\((rdma|ibv)_\w+( const)?\* raw\)', head):
        return 'A view of what C has: it owns nothing, and C must keep it alive.'
    twin = re.search(r'(~?\w+)\((?:[^()]|\([^()]*\))*(std::error_code& ec|std::nothrow_t)( = \w+)?\)', head)
    if twin:
        called = twin.group(1)
        if twin.group(2).startswith('std::nothrow'):
            return f'The twin of {called}() that throws nothing: returns what C gave.'
        if called == name:
            return 'The twin of the constructor above: on failure it is empty and `ec` says why.'
        return f'The twin of {called}(): on failure `ec` says why, and nothing is thrown.'
    if above:
        return above
    called = re.findall(r'::((?:ibv|rdma)_\w+)\b', flat)
    if len(set(called)) == 1:
        return f'`{called[0]}`.'
    field = re.search(r'\{ return (?:static_cast<[\w:]+>\()?\w+(?:\(\))?(?:->|\.)(\w+)\)?;$', flat)
    if field:
        return f"C's `{field.group(1)}`."
    return None


def block(lines, number):
    """The comment that ends on the line before `number` (0-based), as text; '' if there is none."""
    first = number
    while first > 0 and re.match(r'\s*///(?!<)', lines[first - 1]):
        first -= 1
    return [re.sub(r'^\s*/// ?', '', line) for line in lines[first:number]]


def edited(text, insertions, removals):
    """The text with {offset: what is put in}, and without [(from, to)], of which only the newlines stay."""
    pieces, at = [], 0
    for begin, end in sorted(removals + [(offset, offset) for offset in insertions]):
        if begin < at:  # in what was removed
            continue
        pieces += [text[at:begin], insertions[begin] if end == begin else '\n' * text.count('\n', begin, end)]
        at = end
    return ''.join(pieces) + text[at:]


def transform(text):
    lines, code = text.split('\n'), blank(text)
    starts, offset = [], 0
    for line in lines:
        starts.append(offset)
        offset += len(line) + 1

    insertions, removals, shown, above, last_end = {}, [], [], None, -1
    for begin, end, statement, scope in declarations(code):
        number = bisect.bisect_right(starts, begin) - 1
        until = bisect.bisect_right(starts, end) - 1
        before = number - 1
        while before >= 0 and re.match(r'\s*#\s*(if|else|endif|elif)', lines[before]):
            before -= 1
        comment = block(lines, before + 1)
        flat = ' '.join(statement.split())
        if statement == HIDDEN_PART:
            removals.append((begin, end))
            continue
        if not scope.public or flat.startswith('using enum'):
            above = None
            continue
        if re.match(r'(inline )?namespace|static_assert|using \w+::\w+$|extern|template <>$', statement.strip()):
            above = None
            continue
        member = scope.kind == 'namespace' and re.match(r'[^={}]*[\w>]::(~?\w+|operator\W{1,2})\(', flat) and \
            not re.match(r'(template <.*> )?(class|struct)\b', flat)
        if HIDDEN.search(flat) or OWN.search(' '.join(comment)) or member:  # a definition of what a class has declared
            first = starts[before + 1 - len(comment)] if comment else begin
            removals.append((first, end + 1))
            last_end = until
            continue
        grouped = [line for line in comment if re.match(r'@(name|[{}])', line)]
        trailing = any('///<' in lines[at] for at in range(number, until + 1)) or \
            (until + 1 < len(lines) and re.match(r'\s*///<', lines[until + 1]))
        if trailing:
            last_end = until
            continue
        if comment and not (grouped and len(grouped) == len(comment)):
            above = ' '.join(line for line in comment if not re.match(r'@(name|[{}]|tparam|file)', line))
            last_end = until
            if re.match(r'(template <.*> ?(requires .*)?)?(class|struct|enum|union)\b', flat):
                above, last_end = None, -1 # of the class, not of its first member
            continue
        joined = last_end >= 0 and all(line.strip() and not re.match(r'\s*///|\s*(public|private|protected):', line)
                                       for line in lines[last_end + 1:number])
        above = above if joined else None
        put = sentence(statement, scope, above)
        last_end = until
        if put:
            insertions[begin] = f'/** {put} */ '
            shown.append((number + 1, put, ' '.join(statement.split('{')[0].split())))
    text = edited(text, insertions, removals)
    text = re.sub(r'^namespace rdma::inline RDMACPP_ABI', 'namespace rdma', text, flags=re.M)
    for pattern, seen in DETAILS:
        text = re.sub(pattern, seen, text)
    # What is said to the standard library: Doxygen would make pages of it.
    said = r'^template <[^\n]*>\n(?:struct std::\w+<.*?\};|inline constexpr bool std::ranges::\w+<.*?;)'
    text = re.sub(said, lambda m: '\n' * m.group(0).count('\n'), text, flags=re.M | re.S)
    text = re.sub(r'^inline constexpr bool std::ranges::\w+<.*;', '', text, flags=re.M)
    return text, shown


def page_name(path):
    return path.parent.name if path.stem == 'README' else path.stem


def link(page, text, target):
    """A Markdown link, for the site."""
    if re.match(r'\w+:|#', target):
        return f'[{text}]({target})'
    path = pathlib.PurePath(os.path.normpath(page.parent / target.split('#')[0]))
    if path.suffix == '.svg':
        return f'[{text}]({path.name})'
    if path.suffix == '.md' and (path.parent.name == 'docs' or path.parts[-2:] == ('examples', 'README.md')):
        return f'[{text}](@ref {"index" if path.stem == "overview" else page_name(path)})'
    if path.parent.name == 'rdmacpp' and path.suffix == '.hpp':
        return f'[{text}](@ref {path.name})'
    return text


def transform_page(page, text, classes):
    out, fenced = [], False
    for number, line in enumerate(text.split('\n')):
        if re.match(r'\s*```', line):
            fenced = not fenced
        elif not fenced:
            if number == 0 and page.stem != 'overview':
                line = f'{line} {{#{page_name(page)}}}'
            line = re.sub(r'\[([^][]*(?:\[[^][]*\])?[^][]*)\]\(([^()\s]+)\)', lambda m: link(page, m[1], m[2]), line)
            if not line.startswith('#'):
                # Doxygen takes a % in front of a word away.
                line = re.sub(r'`[^`]*`', lambda m: re.sub(r'%(?=\w)', '%%', m[0]), line)
                line = re.sub(r'(?<![\w\[`])`(?:rdma::)?(\w+)`(?![`\]])',
                              lambda m: f'<tt>@ref rdma::{m[1]} "{m[0][1:-1]}"</tt>' if m[1] in classes else m[0], line)
        out.append(line)
    return '\n'.join(out)


def public_classes():
    header = pathlib.Path(__file__).resolve().parent.parent / 'include/rdmacpp/fwd.hpp'
    return set(re.findall(r'^(?:class|struct) (\w+);', header.read_text(encoding='utf-8'), re.M))


def prepared(path, text, classes):
    """What Doxygen reads of a file."""
    if path.suffix == '.md':
        return transform_page(path, text, classes)
    return transform(text)[0]


def main():
    for path in sys.argv[1:]:
        _, shown = transform(pathlib.Path(path).read_text(encoding='utf-8'))
        for number, put, statement in shown:
            print(f'{path.split("include/")[-1]}:{number}: {put}\n    {statement}')


if __name__ == '__main__':
    main()
