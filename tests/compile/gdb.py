#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What gdb prints for our handles, with tools/gdb/rdmacpp.py: of a program on the fake that is stopped, and of its core.

    gdb.py LIBRARY

LIBRARY is the fake's (tests/fake). The program is tests/compile/gdb/handles.cpp, made by g++ and by clang without
optimisation; gdb may not call functions in it. Of every type, what rubbish in memory gives must end, and raise nothing.
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import ring

HERE = pathlib.Path(__file__).resolve().parent / 'gdb'
PRINTERS = ring.ROOT / 'tools' / 'gdb' / 'rdmacpp.py'

ID = r'0x[0-9a-f]+'
SERVER, CLIENT = r'10\.77\.1\.1:7471', r'10\.77\.1\.1:40000'
ZEROS = r'( 00)+ \.\.\.'
OF = r'of rxe0'
WAITS = (rf'{ID} {SERVER} -> {CLIENT} '
         r'\(dropped until the ack of 1 x ESTABLISHED \+ 1 x CONNECT_REQUEST that brought it\)')
UNTAKEN = rf'{ID} {SERVER} -> \S+ \(not taken from its CONNECT_REQUEST\)'
SERVERS = (rf'fd \d+ = {{events_got = 5, events_acked = 2, events_held = 3, awaiting_ack\[0\] = {WAITS}, '
           rf'(id\[\d\] = {ID} {SERVER} -> - \(listening\)|id\[\d\] = {UNTAKEN}|, )+}}')
CLIENT_ID = (rf'{ID} {CLIENT} -> {SERVER} = {{state = connecting or connected, port_space = tcp, device = "rxe0" port 1, '
             rf'qp = rc qp \d+ {OF}, channel_fd = \d+, events_held = 1 x ESTABLISHED}}')
RECEIVED = '{status = success, wr_id = 7, qp_num = 3, opcode = recv, byte_len = 64, imm_data = 0x2a}'
SENT = '{status = success, wr_id = 7, qp_num = 3, opcode = send}'
FLUSHED = '{status = wr_flush_err, wr_id = 7, qp_num = 3, vendor_err = 0x51}'
CQ = rf'cq {ID} {OF} = {{cqe = 16, channel_fd = \d+'

IDLE = rf'{ID} - -> - = {{state = idle, port_space = tcp, channel_fd = \d+'
OURS = r'\(anonymous namespace\)::'

# Of each expression: all that gdb prints.
EXPECTED = {
    'servers': SERVERS,
    'servers_ref': SERVERS,
    'empty_channel': 'empty',
    'server_address': SERVER,
    'v6': r'\[fd77:1::1\]:7471',
    'link_local': r'\[fe80::77:1%71\]:80',
    'none': '-',
    'listener': rf'{ID} {SERVER} -> - = {{state = listening, port_space = tcp, device = "rxe0" port 1, channel_fd = \d+, '
                r'events_held = 2 x CONNECT_REQUEST}',
    'empty_id': 'empty',
    'client': CLIENT_ID,
    'client_ref': CLIENT_ID,
    'reference': rf'(@{ID}: )?{CLIENT_ID}',
    'other': rf'{ID} - -> - = {{state = idle, port_space = tcp, channel_fd = \d+, '
             r'events_held = 1 x UNREACHABLE \+ 1 x REJECTED \+ 1 x newer events}',
    'accepted': 'empty',
    'request': rf'CONNECT_REQUEST = {{status = 0, id = {ID} {SERVER} -> {CLIENT}, listener = {ID} {SERVER} -> -, '
               rf'new_id = taken, private_data = 56 bytes: 68 69{ZEROS}}}',
    'untaken': rf'CONNECT_REQUEST = {{status = 0, id = {ID} {SERVER} -> \S+, listener = {ID} {SERVER} -> -, '
               r'new_id = rejected and destroyed with the event, unless taken, private_data = 3 bytes: 61 62 63}',
    'established': rf'ESTABLISHED = {{status = 0, id = {ID} {CLIENT} -> {SERVER}, private_data = 196 bytes: 00{ZEROS}}}',
    'rejected': rf'REJECTED = {{status = 8 \(a reason of the transport: nobody listens on that port\), id = {ID} - -> -, '
                r'private_data = 0 bytes}',
    'unreachable': rf'UNREACHABLE = {{status = -110 \(ETIMEDOUT\), id = {ID} - -> -, private_data = 0 bytes}}',
    'unknown': rf'event 77 = {{status = -1 \(made up by librdmacm\), id = {ID} - -> -}}',
    'acked': 'no event',
    'device': r'"rxe0" = {fd = \d+, async_fd = \d+, needed_by = 4 more}',
    'found': r'2 devices = {\[0\] = "rxe0", \[1\] = "siw0"}',
    'pd': rf'pd {ID} {OF} = {{handle = \d+, needed_by = 5 more}}',
    'pd_ref': rf'pd {ID} {OF} = {{handle = \d+}}',
    'no_pd': 'empty',
    'mr': rf'4096 bytes at {ID} {OF} = {{lkey = {ID}, rkey = {ID}}}',
    'no_mr': 'empty',
    'buffer': rf'128 bytes at {ID} {OF} = {{lkey = {ID}, rkey = {ID}}}',
    'bell': rf'fd \d+ {OF} = {{needed_by = 1 more}}',
    'cq': CQ + ', needed_by = 3 more}',
    'cq_ref': CQ + '}',
    'plain_cq': rf'cq {ID} {OF} = {{cqe = 1, channel_fd = none}}',
    'no_cq': 'empty',
    'qp': rf'rc qp \d+ {OF} = {{needed_by = 1 more}}',
    'srq': rf'srq {ID} {OF}',
    'mw': rf'type 2 window {ID} {OF} = {{rkey = {ID}}}',
    'cq_event': rf'of cq {ID} {OF}',
    'no_cq_event': 'no event',
    'of_qp': rf'qp_access_err of rc qp \d+ {OF}',
    'of_port': 'port_err of port 1',
    'no_async_event': 'no event',
    'received': RECEIVED,
    'success': RECEIVED,
    'sent': SENT,
    'flushed': FLUSHED,
    'unpolled': r'{status = 99 \(none that there is: not polled yet\?\)}',
    'completions': f'std::vector of length 2, capacity 2 = {{{SENT}, {FLUSHED}}}',
    'write': r'{opcode = rdma_write signaled, wr_id = 8, piece\[0] = 16 bytes at 0x1000 lkey 0x5, peer = 0xabc0 rkey 0x9}',
    'send': r'{opcode = send fenced, wr_id = 9, piece\[0] = 16 bytes at 0x1000 lkey 0x5, '
            r'piece\[1] = 32 bytes at 0x2000 lkey 0x5}',
    'recv': r'{wr_id = 10, piece\[0] = 32 bytes at 0x2000 lkey 0x5}',
    'peer': '0xabc0 rkey 0x9',
    'failure': r'std::optional<rdma::\w+::error> (= {\[contained value\] = |containing )'
               r'"rdma_resolve_addr\(192\.0\.2\.1:1\): No such device; .*"}?',
    'unbound': 'errc::not_bound',
    'refused': 'reject_reason::consumer_defined',
    'no_device': r'19 \(as an errno: ENODEV\)',
    'no_error': r'0 \(no error\)',
    'code': 'not_bound',
    'no_code': r'errc\(99\)',
    'type': 'disconnected',
    'newer': r'cm_event_type\(77\)',
    'rights': r'local_write \| remote_read',
    'no_rights': 'none',
    'half_a_second': '500 ms',
    'endless': 'no limit',
    'data': '2 bytes: 68 69',
    'membership': rf'239\.1\.1\.1:0 = {{id = {ID} 10\.77\.1\.1:\d+ -> -, attached = false, events_held = 0}}',
    'no_membership': 'empty',
    'acceptor': rf'{ID} 10\.77\.1\.1:7472 -> - = {{state = listening, port_space = tcp, device = "rxe0" port 1, '
                r'channel_fd = \d+}',
    'no_endpoint': 'empty',
    'loop': r'fd \d+ = {keep_it_running = 4, timers = 1}',
    'polls': '1 asked for',
    'any_loop': rf'rdma::epoll_loop at {ID}',
    'awaited': r'fd \d+ = {ids = 3, handlers = 0, waiting = 3}',
    'no_awaited': 'empty',
    'waited': rf'{IDLE}, events_kept = 0, waiting\[0\] = {OURS}wait_for waits for the next event, '
              rf'waiting\[1\] = {OURS}wait_for waits for the next event}}',
    'kept_for': rf'{IDLE}, events_held = 1 x ADDR_CHANGE, events_kept = 1}}',
    'no_waited': 'empty',
    'requests': rf'{ID} 10\.77\.1\.1:7473 -> - = {{state = listening, port_space = tcp, device = "rxe0" port 1, '
                rf'channel_fd = \d+, events_kept = 0, waiting\[0\] = {OURS}take waits for the next request}}',
    'no_requests': 'empty',
    'no_request': 'decided, or empty',
    'queue': rf'cq {ID} {OF} = {{armed = true, in_flight = 1, not_asked_for = 0, '
             rf'waiting\[0\] = {OURS}receive waits for its receive}}',
    'no_queue': 'empty',
    'device_events': rf'of rdma::async_channel = {{waiting\[0\] = {OURS}watch waits for an event}}',
    'no_events': 'empty',
    'waits': rf'{OURS}wait_through, which waits',
    'done': 'done',
    'fresh': rf'{OURS}wait_for, not begun',
    'no_task': 'empty',
    'running': '1 not done',
    'unlimited': 'no limit',
    'in_time': r'until \d+\.\d+ s of the steady clock',
    'stoppable': 'until it is stopped',
    'callback': 'main::.* with 0x0',
    'timer': 'with rdma::epoll_loop',
    'turn': 'with rdma::async::poll_loop',
    'no_registration': 'empty',
    'dispatcher': r'fd \d+ = {handlers = 1, handled = 0, unowned = 0}',
    'handled': rf'{{<rdma::\w+::id_handler> = {IDLE}}}, <No data fields>}}',
    'next': 'nobody waits',
}

# Some lines of `info rdma`.
LINES = [
    r'event channel fd \d+: 5 events got, 2 acked, 3 held',
    rf'  id {WAITS}',
    rf'  id {ID} {CLIENT} -> {SERVER} \(connecting or connected\)',
    rf'cq {ID} {OF} \(4 pins\)',
    rf'rc qp \d+ {OF} \(2 pins\)',
    rf'mr 4096 bytes at {ID} {OF} \(1 pin\)',
    r'context "rxe0" \(5 pins\)',
    r'waited for in a loop: event channel fd \d+',
    rf'  {OURS}wait_for waits for the next event of id {ID} - -> -',
    rf'  {OURS}take waits for the next request of id {ID} 10\.77\.1\.1:7473 -> -',
    rf'waited for in a loop: cq {ID} {OF} \(armed: true, in flight: 1, not asked for: 0\)',
    rf'  {OURS}receive waits for its receive',
    r'waited for in a loop: rdma::async_channel',
    rf'  {OURS}watch waits for an event',
]


def fits(pattern, text):
    """Whether a text is what a pattern says; its braces are no repetitions."""
    return re.fullmatch(re.sub(r'(?<!\\)([{}])', r'\\\1', pattern), text) is not None


def namespace():
    """The one in which the types are, with its version."""
    return 'rdma::' + re.search(r'#define RDMACPP_ABI (\w+)', (ring.PROJECT / 'version.hpp').read_text()).group(1)


def ask(folder, questions, program, *more):
    """One run of gdb: its answers, or None and what it said."""
    path = folder / 'questions.json'
    path.write_text(json.dumps(questions), encoding='utf-8')
    settings = ['debuginfod enabled off', 'may-call-functions off', 'disable-randomization off', 'width 0',
                'print thread-events off', 'confirm off', 'print elements 200', 'print repeats 200']
    command = ['gdb', '-nx', '-batch', *[word for each in settings for word in ('-ex', f'set {each}')],
               '-x', PRINTERS, '-x', HERE / 'inside.py', program, *more]
    environment = {**os.environ, 'RDMACPP_GDB_ASK': str(path), 'LC_ALL': 'C', 'PYTHONDONTWRITEBYTECODE': '1'}
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          errors='replace', env=environment, check=False, timeout=300)
    answers = json.loads(path.read_text(encoding='utf-8'))
    return (answers, done.stdout) if 'printed' in answers else (None, done.stdout)


def why_not():
    """Why gdb cannot be used here, or ''."""
    if shutil.which('gdb') is None:
        return 'gdb is not installed'
    done = subprocess.run(['gdb', '-nx', '-batch', '-ex', 'python print("has python")', '-ex', 'set disable-randomization off',
                           '-ex', 'run', '/bin/true'], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, check=False, timeout=120)
    if 'has python' not in done.stdout:
        return 'this gdb has no Python'
    if 'exited normally' not in done.stdout:
        return 'gdb cannot run a program here: ' + ' '.join(done.stdout.split())[-200:]
    return ''


def build(compiler, library, program):
    flags = ring.flags(extra=['-isystem', str(ring.ROOT / 'tests' / 'fake' / 'include')])
    return compiler.run([*flags, '-g', '-O0', str(HERE / 'handles.cpp'), '-o', str(program), library, '-pthread'])


def check_answers(tap, answers, where):
    wrong = [f'{expression}\n  is  {answers["printed"][expression]}\n  not {pattern}'
             for expression, pattern in EXPECTED.items() if not fits(pattern, answers['printed'][expression])]
    tap.check(not wrong, f'{len(EXPECTED)} objects are printed, {where}', '\n'.join(wrong))
    lines = answers['info'].splitlines()
    missing = [each for each in LINES if not any(fits(each, line) for line in lines)]
    tap.check(not missing and 'cannot be read' not in answers['info'], f'info rdma, {where}',
              '\n'.join([*missing, 'in', *lines]))


def check_rubbish(tap, answers, where):
    types, values, wrong = answers['rubbish']
    tap.check(types >= 30 and values >= 10 * types and not wrong,
              f'rubbish in memory ends no printing, {where}', '\n'.join([f'{types} types, {values} values', *wrong]))
    tap.check(answers['optimized_out'] == '<optimized out>', f'what was optimised out is said to be so, {where}',
              answers['optimized_out'])
    tap.check('may-call-functions is off' in answers['call'], f'control: gdb calls nothing, {where}', answers['call'])
    tap.check('raw_ = 0x' in answers['plain'], f'print/r prints the members, {where}', answers['plain'])
    tap.check('raw_ = 0x' in answers['without'] and not fits(EXPECTED['listener'], answers['without']),
              f'control: without the printers it looks otherwise, {where}', answers['without'])


def classes_of(forward):
    """The classes that fwd.hpp declares; those of a namespace in rdma with its name."""
    found, space = [], ''
    for opened, name in re.findall(r'^(?:namespace (\w+) \{|\} // namespace \w+|class (\w+);)$', forward, re.M):
        if name:
            found.append(space + name)
        else:
            space = f'{opened}::' if opened and opened != 'rdma' else ''
    return found


def unprinted(forward, printers):
    """The public classes without a printer, but for those that live for the length of a few calls."""
    plain = {'any_stop_token', 'completed_ex', 'cq_set', 'polling', 'wr_batch'}
    named = set(re.findall(r"'([\w:]+)'", printers))
    return [each for each in classes_of(forward)
            if each not in named | plain and each.removesuffix('_ref') not in named]


def covered(tap):
    forward = 'namespace rdma {\nclass a;\nnamespace async {\nclass a;\nclass b;\n} // namespace async\nclass c;\n}'
    tap.check(unprinted(forward, "'a': A, 'async::b': B") == ['async::a', 'c'],
              'control: a class without a printer is found, also of rdma::async')
    forward = (ring.PROJECT / 'fwd.hpp').read_text(encoding='utf-8')
    missing = unprinted(forward, PRINTERS.read_text(encoding='utf-8'))
    tap.check('async::cm_id' in classes_of(forward) and not missing, 'every class has a printer', ' '.join(missing))


def with_compiler(tap, compiler, library, folder):
    program = folder / 'handles'
    status, output = build(compiler, library, program)
    if not tap.check(status == 0, f'the program is built, {compiler}', output):
        return
    questions = {'print': list(EXPECTED), 'rubbish': namespace()}
    if compiler.family == 'gcc':
        questions['save_core'] = str(folder / 'core')
    answers, said = ask(folder, questions, program)
    if not tap.check(answers is not None, f'gdb stops it and answers, {compiler}', said):
        return
    check_answers(tap, answers, str(compiler))
    check_rubbish(tap, answers, str(compiler))
    tap.check('Python Exception' not in said and 'RTTI' not in said, f'gdb complains of nothing, {compiler}', said)
    if 'save_core' in questions:
        again, said = ask(folder, {'print': list(EXPECTED), 'core': True}, program, folder / 'core')
        tap.check(again is not None and again['printed'] == answers['printed'] and again['info'] == answers['info'],
                  f'its core gives the same, {compiler}', said)


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    reason = why_not()
    if reason:
        ring.skip_all(reason)
    tap = ring.Tap()
    tap.check(fits('a = {b}', 'a = {b}') and not fits('a = {b}', 'a = {b, c}') and not fits('0x[0-9a-f]+', '0xg'),
              'control: what is printed otherwise is found')
    covered(tap)
    # One of each family: the oldest that is there.
    for family in ('gcc', 'clang'):
        found = [each for each in ring.compilers() if each.family == family]
        if not found:
            tap.skip(f'with {family}', 'it is not installed')
            continue
        with ring.scratch() as folder:
            with_compiler(tap, found[0], sys.argv[1], pathlib.Path(folder))
    tap.done()


if __name__ == '__main__':
    main()
