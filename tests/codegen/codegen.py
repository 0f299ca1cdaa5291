#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The data path costs nothing: the machine code of callers of the library, beside that of callers of C.

    codegen.py [--include DIRECTORY] [NAME...]

Every .cpp beside this script is compiled by every compiler at -O2 -DNDEBUG and holds functions of extern "C" in pairs:

    c_NAME        calls C; c_NAME_or_... is C's other way to write the same, where there are two
    cpp_NAME      the same with the twin that returns std::errc: the same instructions, registers and offsets
    throws_NAME   the same with the throwing form, where c_NAME does not look at errors

C's function is noexcept, and so is cpp_NAME, and each is a caller with the body inlined: a bare noexcept twin of one
call loses the tail call, since what comes out of C's function pointer could throw.

Instructions are compared as text, from the label of the function to its .size, cold part included. Only what has no
meaning is made alike: labels are numbered in the order in which they are named, labels that no instruction names are
left out, constants are written out where they are used, the function's own name is dropped; comments and directives go.
Behind the code, clang has what runs when C's function throws in a noexcept function, std::terminate: once for each such
function that was inlined, or once for all. Several of them in a row count as one.

Of a throwing form the hot part is compared: what is in .text and not behind the last return or tail call. It may have
two instructions more than C for each call through one of C's function pointers, and only such that compare and jump:
counted as the difference of the two multisets of mnemonics.

What must differ is in control.cpp.
"""

import argparse
import collections
import difflib
import pathlib
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / 'compile'))
import ring

FLAGS = ['-O2', '-DNDEBUG', '-g0', '-fno-asynchronous-unwind-tables', '-S', '-o', '-']
# Else g++ makes one function of two that it finds to be the same, and there would be nothing to compare.
GCC_FLAGS = ['-fno-ipa-icf']

EXTRA_FOR_EACH_CALL = 2
LABEL = re.compile(r'\.L[\w.$]+')
CONTENTS = re.compile(r'\.(byte|[248]byte|short|value|long|quad|zero|string|asciz|ascii)\b')
RETURN = re.compile(r'retq?\b|jmpq? (?!\.L)')
COMPARE_OR_JUMP = re.compile(r'test|cmp|j(?!mp)')
TERMINATE = re.compile(r'callq? __clang_call_terminate')
INDIRECT_CALL = re.compile(r'callq? \*')

Instruction = collections.namedtuple('Instruction', 'text cold')


class Assembly:
    """What a compiler wrote with -S."""

    def __init__(self, text):
        self.lines = []  # (section, line), comments and blanks left out
        self.data = {}   # what stands at a label outside of the code
        section, previous, label = '.text', '.text', None
        for line in text.splitlines():
            line = re.sub(r'\s+', ' ', re.sub(r'(^|\s+)#.*', '', line)).strip()
            if not line:
                continue
            match = re.match(r'(\.section|\.pushsection) ([\w.$]+)|(\.text|\.data|\.bss)$', line)
            if match:
                section, previous, label = match[2] or match[3], section, None
                continue
            if line in ('.previous', '.popsection'):
                section, previous, label = previous, section, None
                continue
            self.lines.append((section, line))
            if section.startswith('.text'):
                continue
            if line.endswith(':'):
                label = line[:-1]
                self.data[label] = []
            elif label and CONTENTS.match(line):
                self.data[label].append(line)

    def names(self):
        """The functions that begin with one of our prefixes, in their order."""
        return [line[:-1] for section, line in self.lines
                if section.startswith('.text') and re.match(r'(c|cpp|throws)_\w+:$', line)]

    def function(self, name):
        """[Instruction] of a function."""
        own = []
        inside = False
        for section, line in self.lines:
            if line == name + ':':
                inside = True
            elif inside and re.match(r'\.size ' + name + r'\b(?!\.)', line):
                break
            elif inside and section.startswith('.text'):
                own.append((section, line))
        code = [line for _, line in own if not line.endswith(':') and not re.match(r'\.[a-z]', line)]
        named = {label for line in code for label in LABEL.findall(line)}
        numbers = {}

        def number(match):
            return numbers.setdefault(match[0], f'.L{len(numbers)}')

        result = []
        for section, line in own:
            cold = bool(re.match(r'\.text\.(unlikely|cold)', section))
            if line.endswith(':'):
                if line[:-1] in named:
                    result.append(Instruction(LABEL.sub(number, line), cold))
            elif not re.match(r'\.[a-z]', line):
                line = re.sub(r'\b' + name + r'\b', 'self', line)
                result.append(Instruction(LABEL.sub(number, LABEL.sub(self._constant, line)), cold))
                if TERMINATE.match(line) and result[-2:] == result[-4:-2]:
                    del result[-2:]
        return result

    def _constant(self, match, depth=0):
        contents = self.data.get(match[0])
        if not contents or depth == 2:
            return match[0]
        written = (LABEL.sub(lambda inner: self._constant(inner, depth + 1), line) for line in contents)
        return '{' + '; '.join(written) + '}'


def texts(function):
    return [instruction.text for instruction in function]


def instructions(function):
    return [line for line in texts(function) if not line.endswith(':')]


def hot(function):
    """The part that runs when nothing fails."""
    lines = texts([instruction for instruction in function if not instruction.cold])
    last = max((index for index, line in enumerate(lines) if RETURN.match(line)), default=len(lines) - 1)
    return [line for line in lines[:last + 1] if not line.endswith(':')]


def diff(c, ours):
    return '\n'.join(difflib.unified_diff(texts(c), texts(ours), 'C', 'rdmacpp', lineterm=''))


def extra(c, ours):
    """(how many instructions more the hot part has, '' or what is wrong with that)"""
    of_c, of_ours = hot(c), hot(ours)
    calls = sum(bool(INDIRECT_CALL.match(line)) for line in of_c)
    count_c, count_ours = (collections.Counter(line.split()[0] for line in lines) for lines in (of_c, of_ours))
    more = len(of_ours) - len(of_c)
    if more > EXTRA_FOR_EACH_CALL * calls:
        return more, f'{more} hot instructions more than C, in {calls} calls'
    others = [mnemonic for mnemonic in (count_ours - count_c) + (count_c - count_ours)
              if not COMPARE_OR_JUMP.match(mnemonic)]
    return more, f'not only compares and jumps differ: {", ".join(sorted(others))}' if others else ''


Judged = collections.namedtuple('Judged', 'name fine summary detail')


def judge(assembly, name):
    """What is to be said of cpp_X or throws_X."""
    side, _, case = name.partition('_')
    candidates = [other for other in assembly.names() if other == f'c_{case}' or other.startswith(f'c_{case}_or_')]
    ours = assembly.function(name)
    if not candidates or not ours:
        return Judged(name, False, 'nothing to compare with', f'there is no c_{case}, or one of them is empty')
    details = []
    for candidate in candidates:
        c = assembly.function(candidate)
        if side == 'throws':
            more, wrong = extra(c, ours)
            if not wrong:
                return Judged(name, True, f'{more} hot instructions more than the {len(hot(c))} of C', '')
            details.append(f'{wrong}\n{diff(c, ours)}')
        else:
            if texts(c) == texts(ours):
                return Judged(name, True, f'{len(instructions(c))} instructions, those of C', '')
            details.append(f'{len(instructions(ours))} instructions, C has {len(instructions(c))}\n{diff(c, ours)}')
    return Judged(name, False, 'as C', '\n'.join(details))


def judge_all(assembly):
    return [judge(assembly, name) for name in assembly.names() if not name.startswith('c_')]


# What the comparison must see, and what it must not: (what, C, ours, whether they are the same).
TEXT = '''
 .section .rodata.cst16,"aM",@progbits,16
.LC0:
 .long 1
 .text
 .globl c_x
c_x:
.LFB1:
 subq $8, %rsp
 jmp .L2
.L3:
 addl $1, %ebx
.L2:
 movaps .LC0(%rip), %xmm0 # what is in it
 call *208(%rax)
 testl %eax, %eax
 je .L3
 ret
.Ltmp0:
 movq %rax, %rdi
 callq __clang_call_terminate
 .size c_x, .-c_x
'''
TEXT_CONTROLS = [
    ('nothing', '', '', True),
    ('the numbers of labels', '.L3', '.L77', True),
    ('a label that nothing names', '.LFB1:', '.LFB9:\n.Ltmp1:', True),
    ('the label of a constant', '.LC0', '.LCPI4_2', True),
    ('a comment', '# what is in it', '', True),
    ('a second std::terminate', ' .size', '.Ltmp1:\n movq %rax, %rdi\n callq __clang_call_terminate\n .size', True),
    ('no std::terminate', ' callq __clang_call_terminate\n', '', False),
    ('a register', '%xmm0', '%xmm1', False),
    ('an offset', '208', '216', False),
    ('a constant', '.long 1', '.long 2', False),
    ('where a jump goes', 'jmp .L2', 'jmp .L3', False),
    ('an instruction more', ' ret', ' nop\n ret', False),
    ('the order', ' testl %eax, %eax\n je .L3\n', ' je .L3\n testl %eax, %eax\n', False),
]


def control_texts():
    wrong = []
    for what, old, new, same in TEXT_CONTROLS:
        c = Assembly(TEXT).function('c_x')
        ours = Assembly(TEXT.replace(old, new).replace('c_x', 'cpp_x') if old else
                        TEXT.replace('c_x', 'cpp_x')).function('cpp_x')
        if not c or (texts(c) == texts(ours)) != same:
            wrong.append(f'{what}: {"different" if same else "the same"}')
    return '\n'.join(wrong)


def control_pairs(judged):
    """'' or which pairs of control.cpp were judged wrongly: those called ..._same are fine, no other is."""
    wrong = [f'{pair.name} is {"fine" if pair.fine else "not fine: " + pair.detail}' for pair in judged
             if pair.fine != pair.name.endswith('_same')]
    return '\n'.join(wrong) if judged else 'there are none'


def compile_one(compiler, source, include):
    arguments = ring.flags('c++20', include, FLAGS + (GCC_FLAGS if compiler.family == 'gcc' else []))
    return compiler.run([*arguments, str(source)])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--include', type=pathlib.Path, default=ring.INCLUDE, help='where rdmacpp/ is')
    parser.add_argument('names', nargs='*', help='the pairs to look at; none: all')
    arguments = parser.parse_args()

    compilers = ring.need_compilers()
    for compiler in compilers:
        target = compiler.run(['-dumpmachine'])[1].strip()
        if not target.startswith('x86_64'):
            ring.skip_all(f'{compiler} makes code for {target}: only that for x86-64 is understood')
    tap = ring.Tap()
    trouble = control_texts()
    tap.check(not trouble, 'control: a difference of the code is seen, and only that', trouble)

    work = [(compiler, source) for compiler in compilers for source in sorted(HERE.glob('*.cpp'))]
    results = ring.in_parallel(lambda item: compile_one(*item, arguments.include), work)
    for (compiler, source), (status, output) in zip(work, results):
        if status != 0:
            tap.not_ok(f'{compiler.name}: {source.name} compiles', output)
            continue
        judged = judge_all(Assembly(output))
        if source.name == 'control.cpp':
            trouble = control_pairs(judged)
            tap.check(not trouble, f'{compiler.name}: control: {len(judged)} pairs that differ, or do not', trouble)
            continue
        tap.check(judged, f'{compiler.name}: {source.name} has pairs')
        for name, fine, summary, detail in judged:
            if not arguments.names or name.partition('_')[2] in arguments.names:
                tap.check(f'{compiler.name}: {name}: {summary}', fine, detail)
    tap.skips()
    tap.done()


if __name__ == '__main__':
    main()
