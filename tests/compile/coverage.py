#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""All of librdmacm: whatever the installed <rdma/rdma_cma.h> and <rdma/rdma_verbs.h> declare is called over the unit ring,
and reached by a public header.

    coverage.py --calls FILE PROGRAM...

FILE is where the programs of the unit ring have put the names of the C functions that they called: the fake writes them
to the file that FAKE_CALLED names. Where there is none, or a program is newer, the programs are run here. It is used
once: the next run begins anew.

- A function counts as called when the fake's log has it, an inline one when it has what the inline one calls; as reached
  when the code of a header calls it (an inline one: when a header names it).
- An event type, port space, option, flag or other constant counts as reached when the code of a header names it, or
  when a constant of ours has its value.
- What is new in rdma-core 60 is looked at in the fake's stand-in for that header where the installed one is older.
- What is left out stands in EXCEPTIONS, with its reason.
"""

import argparse
import os
import pathlib
import re
import subprocess
import sys

import ring

C_HEADERS = ['rdma/rdma_cma.h', 'rdma/rdma_verbs.h']
STAND_IN = ring.ROOT / 'tests' / 'fake' / 'include_v60'

EXCEPTIONS = {
    'rdma_destroy_qp': 'hides the errors of its parts, and leaves the CQ of a QP that only sends: ours are destroyed one by one',
    'rdma_destroy_srq': 'likewise',
    'rdma_get_send_comp': 'waits without an end: endpoint::get_send_comp waits on the same CQ, with a deadline',
    'rdma_get_recv_comp': 'likewise',
    'rdma_seterrno': 'for the inline functions of its own header',
    'RDMA_CM_EVENT_INTERNAL': 'between the kernel and librdmacm, which never gives it to a program',
    'RDMA_CM_JOIN_MC_ATTR_RESERVED': 'marks the end of its enumeration',
    'RDMA_MC_JOIN_FLAG_RESERVED': 'marks the end of its enumeration',
    'RDMA_IB_IP_PS_MASK': 'parts of the service id of an AF_IB address, which programs make by hand',
    'RDMA_IB_IP_PORT_MASK': 'likewise',
    'RDMA_IB_IP_PS_TCP': 'likewise',
    'RDMA_IB_IP_PS_UDP': 'likewise',
    'RDMA_IB_PS_IB': 'likewise',
    'RAI_SA': 'a flag for addrinfo_hints::flags, where the header has it',
    'RAI_DNS': 'likewise',
}

# What the inline functions call; the fake sees nothing else of them. None: they only read the id.
INLINE = {
    'rdma_get_local_addr': None,
    'rdma_get_peer_addr': None,
    'rdma_reg_msgs': ['ibv_reg_mr'],
    'rdma_reg_read': ['ibv_reg_mr'],
    'rdma_reg_write': ['ibv_reg_mr'],
    'rdma_dereg_mr': ['ibv_dereg_mr'],
    'rdma_post_recvv': ['ibv_post_recv', 'ibv_post_srq_recv'],
    'rdma_post_sendv': ['ibv_post_send'],
    'rdma_post_readv': ['ibv_post_send'],
    'rdma_post_writev': ['ibv_post_send'],
    'rdma_post_recv': ['ibv_post_recv', 'ibv_post_srq_recv'],
    'rdma_post_send': ['ibv_post_send'],
    'rdma_post_read': ['ibv_post_send'],
    'rdma_post_write': ['ibv_post_send'],
    'rdma_post_ud_send': ['ibv_post_send'],
}

# Constants that the headers have as a value, not by C's name.
VALUES = {
    'RDMA_MAX_RESP_RES': 'rdma::device_maximum',
    'RDMA_MAX_INIT_DEPTH': 'rdma::device_maximum',
    'RDMA_CM_EVENT_ADDRINFO_RESOLVED': 'rdma::cm_event_type::addrinfo_resolved',
    'RDMA_CM_EVENT_ADDRINFO_ERROR': 'rdma::cm_event_type::addrinfo_error',
    'RDMA_CM_EVENT_USER': 'rdma::cm_event_type::user',
}


# ---- what C declares

def own_text(preprocessed):
    """The lines of a compiler's -E -dD output that are C_HEADERS' own."""
    lines, mine = [], False
    for line in preprocessed.splitlines():
        marker = re.match(r'#\s+\d+\s+"([^"]*)"', line)
        if marker:
            mine = marker.group(1).endswith(tuple(C_HEADERS))
        elif mine:
            lines.append(line)
    return '\n'.join(lines)


def declared(text):
    """({function: whether it is inline}, {constant}) of C text without comments."""
    constants = set(re.findall(r'^\s*#define\s+([A-Z]\w*)[ \t]+\S', text, re.M))
    code = re.sub(r'^\s*#.*$|extern\s+"C"\s*\{', '', text, flags=re.M)
    for body in re.findall(r'\benum\b\s*\w*\s*\{([^{}]*)\}', code):
        constants |= set(re.findall(r'(?:^|,)\s*([A-Z]\w*)', body))
    while re.search(r'\{[^{}]*\}', code):
        code = re.sub(r'\{[^{}]*\}', ';', code)
    functions = {}
    for declaration in code.split(';'):
        found = re.search(r'\b(rdma_\w+)\s*\(', declaration)
        if found and 'typedef' not in declaration:
            functions[found.group(1)] = bool(re.search(r'\binline\b', declaration))
    return functions, constants


def c_api(compiler, *first):
    """What the C headers declare, those below the folders `first` before the installed ones."""
    includes = [flag for folder in first for flag in ('-I', str(folder))]
    status, output = compiler.run(['-std=c++20', '-E', '-dD', *includes, *ring.c_includes()], ring.including(C_HEADERS))
    return declared(own_text(output)) if status == 0 else None


# ---- what we have

def read_headers():
    """(the code of the public headers, the same with comments)."""
    texts = [(ring.INCLUDE / name).read_text(encoding='utf-8') for name in ring.headers()]
    return '\n'.join(ring.strip_comments(text) for text in texts), '\n'.join(texts)


def called_over(calls, programs):
    """The functions that the unit ring called."""
    made = calls.stat().st_mtime if calls.exists() else 0
    if any(pathlib.Path(program).stat().st_mtime > made for program in programs):
        calls.unlink(missing_ok=True)
        for program in programs:
            print(f'# running {os.path.basename(program)}', flush=True)
            # Cases that fail are for the unit ring to tell; what was called until then counts.
            done = subprocess.run([program, '~[.]'], env={**os.environ, 'FAKE_CALLED': str(calls)}, check=False,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors='replace')
            if done.returncode != 0:
                print(''.join(f'#   {line}\n' for line in done.stdout.splitlines()[-20:]), end='')
    names = set(calls.read_text(encoding='utf-8').split()) if calls.exists() else set()
    calls.unlink(missing_ok=True)
    return names


def function_faults(name, inline, called, code, text):
    """What is missing of a function: [] when it is covered."""
    missing = []
    if inline and name not in INLINE:
        return ['inline, and not in the table of what inline functions call']
    if inline:
        missing += [f'{each} is not called over the unit ring' for each in INLINE[name] or [] if each not in called]
        if not re.search(rf'\b{name}\b', text):
            missing.append('no public header names it')
        return missing
    if name not in called:
        missing.append('it is not called over the unit ring')
    if not re.search(rf'\b{name}\b', code):
        missing.append('no public header calls it')
    return missing


def constant_fault(name, code):
    """'' when a header reaches the constant."""
    if name in VALUES or re.search(rf'\b{name}\b', code):
        return ''
    return 'no public header reaches it'


def wrong_values(compiler, constants, *first):
    """What the compiler says of our values that are not C's."""
    lines = [f'static_assert(static_cast<long>({VALUES[name]}) == static_cast<long>({name}));\n'
             for name in sorted(constants) if name in VALUES]
    includes = [flag for folder in first for flag in ('-I', str(folder))]
    source = ring.including(['rdmacpp/rdmacpp.hpp']) + ''.join(lines)
    status, output = compiler.run(['-std=c++20', '-fsyntax-only', '-I', str(ring.INCLUDE), *includes, *ring.c_includes()],
                                  source)
    return '' if status == 0 else '\n'.join(ring.error_lines(output)) or output


# ---- controls

FIXTURE = '''
#define FIXTURE_H
extern "C" {
#define RDMA_NEW_MASK 0xFFULL
enum rdma_new_event {
    RDMA_NEW_ONE,
    RDMA_NEW_TWO = 1 << 4
};
struct rdma_thing { int (*call)(int); };
typedef int (*rdma_callback)(int);
int rdma_brand_new(struct rdma_cm_id *id, enum rdma_new_event how);
struct ibv_context **rdma_new_list(int *num);
static inline int
rdma_new_inline(int a)
{
    if (a) { return rdma_brand_new(0, RDMA_NEW_ONE); }
    return 0;
}
}
'''


def controls(tap):
    """What is known to be wrong must be found."""
    functions, constants = declared(FIXTURE)
    tap.check(functions == {'rdma_brand_new': False, 'rdma_new_list': False, 'rdma_new_inline': True}
              and constants == {'RDMA_NEW_MASK', 'RDMA_NEW_ONE', 'RDMA_NEW_TWO'},
              'control: every declaration is seen, and nothing else', f'{functions} {constants}')
    covered = [('rdma_x', False, {'rdma_x'}, '::rdma_x(id);', ''),
               ('rdma_reg_msgs', True, {'ibv_reg_mr'}, '', '/// rdma_reg_msgs')]
    missing = [('rdma_x', False, set(), '::rdma_x(id);', ''), ('rdma_x', False, {'rdma_x'}, '', '// rdma_x'),
               ('rdma_reg_msgs', True, set(), '', 'rdma_reg_msgs'), ('rdma_reg_msgs', True, {'ibv_reg_mr'}, '', ''),
               ('rdma_new_inline', True, {'rdma_new_inline'}, 'rdma_new_inline', 'rdma_new_inline')]
    tap.check(all(not function_faults(*each) for each in covered) and all(function_faults(*each) for each in missing)
              and constant_fault('RDMA_NEW_ONE', 'RDMA_NEW_ONE_MORE') and not constant_fault('RDMA_NEW_ONE', 'RDMA_NEW_ONE;'),
              'control: a function that nobody calls, and a name that no header has, are found')


# ---- the check

def check(tap, functions, constants, called, code, text, suffix=''):
    for name in sorted(functions):
        if name in EXCEPTIONS:
            tap.skip(f'{name}{suffix}', EXCEPTIONS[name])
            continue
        faults = function_faults(name, functions[name], called, code, text)
        tap.check(not faults, f'{name}{suffix}', '\n'.join(faults))
    for name in sorted(constants):
        if name in EXCEPTIONS:
            tap.skip(f'{name}{suffix}', EXCEPTIONS[name])
            continue
        fault = constant_fault(name, code)
        tap.check(not fault, f'{name}{suffix}', fault)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--calls', type=pathlib.Path, required=True)
    parser.add_argument('programs', nargs='+')
    arguments = parser.parse_args()
    compiler = ring.need_compilers()[0]
    tap = ring.Tap()
    controls(tap)
    installed = c_api(compiler)
    if installed is None or not installed[0]:
        sys.exit('the C headers are not installed, or cannot be read')
    functions, constants = installed
    newer = ({}, set())
    if 'RAI_SA' not in constants:
        all_functions, all_constants = c_api(compiler, STAND_IN)
        newer = {name: inline for name, inline in all_functions.items() if name not in functions}, all_constants - constants
        tap.check('rdma_write_cm_event' in newer[0], 'what rdma-core 60 has more is looked at, too')
    code, text = read_headers()
    called = called_over(arguments.calls, arguments.programs)
    tap.check('rdma_get_cm_event' in called, 'the unit ring has told what it calls', f'{len(called)} functions')

    check(tap, functions, constants, called, code, text)
    check(tap, *newer, called, code, text, ', of rdma-core 60')
    where = [STAND_IN] if newer[0] else []
    trouble = wrong_values(compiler, constants | newer[1], *where)
    tap.check(not trouble, 'values of ours are those of C', trouble)
    unknown = (set(EXCEPTIONS) | set(INLINE) | set(VALUES)) - set(functions) - constants - set(newer[0]) - newer[1]
    tap.check(not unknown, 'every exception is of a name that exists', '\n'.join(sorted(unknown)))
    tap.done()


if __name__ == '__main__':
    main()
