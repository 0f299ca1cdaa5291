# SPDX-License-Identifier: MIT
"""The part of gdb.py that runs inside gdb: it answers the questions of the file that RDMACPP_GDB_ASK names, in the same file."""

import json
import os
import random

import __main__ as rdmacpp  # what gdb sources runs there, as this does
import gdb


def printed(expression):
    """What `print` says, without its number; an error in words."""
    try:
        return gdb.execute(f'print {expression}', to_string=True).split(' = ', 1)[1].rstrip('\n')
    except gdb.error as fault:
        return f'error: {fault}'


def whole(value):
    """All that the printer of a value has to say; raises what it raises."""
    printer = gdb.default_visualizer(value)
    printer.to_string()
    list(printer.children())
    try:
        value.format_string(max_elements=4)
    except gdb.MemoryError:
        pass  # gdb's own, where nothing of the value can be read


class Nowhere:
    """A value that the optimiser has removed, or that cannot be read for another reason."""

    def __init__(self, message):
        self.message, self.address, self.type = message, None, None

    def __getitem__(self, _field):
        raise gdb.error(self.message)


def samples(kind):
    """Values of a type that no program has made."""
    size = kind.sizeof
    for pattern in (b'\0', b'\xff', b'\x5a'):
        yield gdb.Value(pattern * size, kind)
    for seed in range(4):
        yield gdb.Value(random.Random(seed).randbytes(size), kind)
    circle = gdb.parse_and_eval("&'(anonymous namespace)::rubbish'")
    for address in (circle, gdb.Value(0), gdb.Value(0x1000), gdb.Value((1 << 64) - 4096)):
        yield address.cast(kind.pointer()).dereference()


def found(name):
    """A type, or None."""
    try:
        return gdb.lookup_type(name)
    except gdb.error:
        return None


def troubles(namespace):
    """(how many types and values were tried, what went wrong with rubbish in memory)."""
    types = values = 0
    wrong = []
    for name, printer in rdmacpp.PRINTERS.items():
        for message in ('value has been optimized out', 'Cannot access memory at address 0x0'):
            try:
                printer(Nowhere(message)).to_string()
                list(printer(Nowhere(message)).children())
            except Exception as fault:
                wrong.append(f'{name}, {message}: {fault!r}')
        kind = found(f'{namespace}::{name}') or found(f'{namespace}::{name}<void>')
        if kind is None:
            continue
        types += 1
        for number, value in enumerate(samples(kind)):
            values += 1
            try:
                whole(value)
            except Exception as fault:
                wrong.append(f'{name}, sample {number}: {fault!r}')
    return types, values, wrong


def main():
    path = os.environ['RDMACPP_GDB_ASK']
    with open(path, encoding='utf-8') as file:
        asked = json.load(file)
    if 'core' not in asked:
        gdb.execute('break stop_here')
        gdb.execute('run', to_string=True)
    gdb.execute('up', to_string=True)
    answer = {'printed': {each: printed(each) for each in asked['print']}}
    answer['info'] = gdb.execute('info rdma', to_string=True)
    if 'save_core' in asked:
        gdb.execute(f'generate-core-file {asked["save_core"]}', to_string=True)
    if asked.get('rubbish'):
        answer['rubbish'] = troubles(asked['rubbish'])
        answer['optimized_out'] = rdmacpp.CmId(Nowhere('value has been optimized out')).to_string()
        answer['call'] = printed("'(anonymous namespace)::stop_here'()")
        answer['plain'] = printed('/r listener')
        gdb.execute('disable pretty-printer global rdmacpp', to_string=True)
        answer['without'] = printed('listener')
    with open(path, 'w', encoding='utf-8') as file:
        json.dump(answer, file)


main()
