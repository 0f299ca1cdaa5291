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

import declarations

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


# No reader misses what is deleted, friend classes, and the types that the standard asks of an iterator and of a
# coroutine; nor what gives something of namespace detail, to other headers.
DROPPED = re.compile(r'= delete$|^using (iterator_(category|concept)|value_type|difference_type|pointer|reference) = |'
                     r'^using promise_type = |^detail::')
OWN = re.compile(r"[Ff]or the library's own headers")

# What the signatures name of namespace detail, and what a reader sees instead.
DETAILS = [
    (r' = detail::\w+(?=[,>])', ''),
    (r'(?<=[<, ])detail::(?:writable_memory|stop_token_like|makes_awaitable) (?=\w+[,>])', 'class '),
    (r'\brequires detail::\w+<[^<>]*>', ''),
    (r', detail::\w+_node>', '>'),
    (r'<detail::\w+_node, ', '<'),
    (r', class Keeper = detail::pinnable>', '>'),
    (r'<class Node, class Ref>(?=\nclass verbs_owner)', '<class Ref>'),
    (r'\bdetail::stop_action\b', 'stop_action'),
    (r'(?<![\w>])::rdma::', 'rdma::'),
    (r'(?<= local) = \{\};', '{};'),  # a word that Doxygen takes for one of another language before a =
]


CLASS = re.compile(r'(template <.*> ?(requires .*)?)?(class|struct|enum|union)\b')
TWIN = re.compile(r'(~?\w+)\((?:[^()]|\([^()]*\))*(std::error_code& ec|std::nothrow_t)( = \w+)?\)')
FIELD = re.compile(r'\{ return (?:static_cast<[\w:]+>\()?\w+(?:\(\))?(?:->|\.)(\w+)\)?;$')


# ---- what is put in ------------------------------------------------------------------------------------------------

def of_a_class(head, name):
    """For what most classes have; None for anything else."""
    own = [(rf'(constexpr )?{name}\({name} const& ?\w*\)', 'A copy.'),
           (rf'(constexpr )?{name}\({name}&& ?\w*\)', 'Takes over what the other holds, which is empty afterwards.'),
           (rf'(constexpr |explicit )?{name}\(\)', 'Empty.'),
           (rf'explicit {name}\((rdma|ibv)_\w+( const)?\* raw\)',
            'A view of what C has: it owns nothing, and C must keep it alive.'),
           (r'~', 'Drops what it holds. Never throws.')]
    for pattern, text in own if name else []:
        if re.match(pattern, head):
            return text
    return next((text for pattern, text in STANDARD if re.search(pattern, head)), None)


def of_a_twin(head, name):
    found = TWIN.search(head)
    if not found:
        return None
    called = found.group(1)
    if found.group(2).startswith('std::nothrow'):
        return f'The twin of {called}() that throws nothing: returns what C gave.'
    if called == name:
        return 'The twin of the constructor above: on failure it is empty and `ec` says why.'
    return f'The twin of {called}(): on failure `ec` says why, and nothing is thrown.'


def of_c(flat):
    """For what only calls one C function, or reads one field."""
    called = set(re.findall(r'::((?:ibv|rdma)_\w+)\b', flat))
    if len(called) == 1:
        return f'`{called.pop()}`.'
    field = FIELD.search(flat)
    return f"C's `{field.group(1)}`." if field else None


def sentence(flat, scope, above):
    """What is put in before a declaration without a comment; None where nothing fits."""
    if scope.kind == 'enum':
        constant = re.search(r'=\s*(IBV_\w+|RDMA_\w+)', flat)
        return f'`{constant.group(1)}`.' if constant else None
    head, name = flat.split('{')[0], scope.class_name()
    return of_a_class(head, name) or of_a_twin(head, name) or above or of_c(flat)


# ---- headers -------------------------------------------------------------------------------------------------------

class Header:
    """A header's text, and what is to become of it."""

    def __init__(self, text):
        self.text, self.lines = text, text.split('\n')
        self.starts = [0]
        for line in self.lines:
            self.starts.append(self.starts[-1] + len(line) + 1)
        self.insertions, self.removals, self.shown = {}, [], []
        self.above, self.last_line = None, -1  # the comment of the declaration before, and where that one ends

    def line_of(self, offset):
        return bisect.bisect_right(self.starts, offset) - 1

    def comment_above(self, number):
        """(where the comment above this line begins, the lines of its text), across preprocessor lines."""
        end = number
        while end > 0 and re.match(r'\s*#\s*(if|else|endif|elif)', self.lines[end - 1]):
            end -= 1
        first = end
        while first > 0 and re.match(r'\s*///(?!<)', self.lines[first - 1]):
            first -= 1
        return self.starts[first], [re.sub(r'^\s*/// ?', '', line) for line in self.lines[first:end]]

    def has_trailing_comment(self, first, last):
        return any('///<' in line for line in self.lines[first:last + 1]) or \
            bool(re.match(r'\s*///<', self.lines[last + 1] if last + 1 < len(self.lines) else ''))

    def follows_at_once(self, number):
        """Whether no empty line, comment or access specifier stands between the declaration before and this line."""
        return self.last_line >= 0 and all(
            line.strip() and not re.match(r'\s*///|\s*(public|private|protected):', line)
            for line in self.lines[self.last_line + 1:number])

    def visit(self, begin, end, declared, scope):
        flat = ' '.join(declared.split())
        if declared == declarations.HIDDEN:
            self.removals.append((begin, end))
        elif not scope.public or re.match(r'(inline )?namespace\b|static_assert|using (enum|\w+::\w+$)|extern', flat):
            self.above = None
        else:
            self.visit_public(begin, end, flat, scope)

    def visit_public(self, begin, end, flat, scope):
        first, last = self.line_of(begin), self.line_of(end)
        comment_begins, comment = self.comment_above(first)
        grouping = [line for line in comment if re.match(r'@(name|[{}])', line)]
        if DROPPED.search(flat) or OWN.search(' '.join(comment)) or is_definition(flat, scope):
            self.removals.append((comment_begins if comment else begin, end + 1))
        elif self.has_trailing_comment(first, last):
            pass
        elif len(comment) > len(grouping):
            self.above = ' '.join(line for line in comment if not re.match(r'@(name|[{}]|tparam|file)', line))
            if CLASS.match(flat):  # the class is spoken of, not its first member
                self.above, last = None, -1
        else:
            self.speak(begin, first, flat, scope)
        self.last_line = last

    def speak(self, begin, first, flat, scope):
        self.above = self.above if self.follows_at_once(first) else None
        put = sentence(flat, scope, self.above)
        if put:
            self.insertions[begin] = f'/** {put} */ '
            self.shown.append((first + 1, put, flat.split('{')[0]))

    def edited(self):
        """The text with what is put in, and without what is removed, of which only the newlines stay."""
        pieces, at = [], 0
        for begin, end in sorted(self.removals + [(offset, offset) for offset in self.insertions]):
            if begin < at:  # in what was removed
                continue
            put = self.insertions[begin] if end == begin else '\n' * self.text.count('\n', begin, end)
            pieces += [self.text[at:begin], put]
            at = end
        return ''.join(pieces) + self.text[at:]


def is_definition(flat, scope):
    """Whether this defines, outside of a class, what the class has declared."""
    return scope.kind == 'namespace' and not CLASS.match(flat) and \
        re.match(r'[^={}]*[\w>]::(~?\w+|operator\W{1,2})\(', flat)


def transform(text):
    """(what Doxygen reads of a header, [(line, what was put in, the declaration)])"""
    header = Header(text)
    for declared in declarations.declarations(declarations.blank(text)):
        header.visit(*declared)
    text = re.sub(r'^namespace rdma::inline RDMACPP_ABI', 'namespace rdma', header.edited(), flags=re.M)
    for pattern, seen in DETAILS:
        text = re.sub(pattern, seen, text)
    # What is said to the standard library: Doxygen would make pages of it.
    said = r'^template <[^\n]*>\n(?:struct std::\w+<.*?\};|inline constexpr bool std::ranges::\w+<.*?;)'
    text = re.sub(said, lambda m: '\n' * m.group(0).count('\n'), text, flags=re.M | re.S)
    text = re.sub(r'^inline constexpr bool std::ranges::\w+<.*;', '', text, flags=re.M)
    return text, header.shown


# ---- pages ---------------------------------------------------------------------------------------------------------

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
    if path.suffix == '.hpp' and 'include' in path.parts[:-1]:
        return f'[{text}](@ref {"/".join(path.parts[path.parts.index("include") + 1:])})'
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
                line = re.sub(r'(?<![\w\[`])`(?:rdma::)?((?:\w+::)?\w+)`(?![`\]])',
                              lambda m: f'<tt>@ref {classes[m[1]]} "{m[0][1:-1]}"</tt>' if m[1] in classes else m[0],
                              line)
        out.append(line)
    return '\n'.join(out)


def public_classes():
    """{what a page may call it: its name} of each public class. One of rdma::async is also meant by its own name,
    unless there is one of namespace rdma."""
    header = pathlib.Path(__file__).resolve().parent.parent / 'include/rdmacpp/fwd.hpp'
    found, space = {}, ''
    for opened, name in re.findall(r'^(?:namespace (\w+) \{|\} // namespace \w+|(?:class|struct) (\w+);)$',
                                   header.read_text(encoding='utf-8'), re.M):
        if name:
            found[space + name] = f'rdma::{space}{name}'
        else:
            space = f'{opened}::' if opened and opened != 'rdma' else ''
    return {**{each.split('::')[-1]: name for each, name in found.items()}, **found}


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
