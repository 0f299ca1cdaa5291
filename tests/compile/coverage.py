#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""All of librdmacm and libibverbs: whatever the installed <rdma/rdma_cma.h>, <rdma/rdma_verbs.h> and
<infiniband/verbs.h> declare is called over the unit ring, and reached by a public header; and what can fail is made to.

    coverage.py --calls FILE PROGRAM...

FILE is where the programs of the unit ring have put the names of the C functions that they called: the fake writes them
to the file that FAKE_CALLED names. Where there is none, or a program is newer, the programs are run here. It is used
once: the next run begins anew.

- A function counts as called when the fake's log has it, one of INLINE when it has what that calls; as reached
  when the code of a header calls it (one of INLINE: when a header names it).
- A function that can fail must stand in the unit ring's tables of errors (ERROR_TABLES), where each entry is made to
  fail.
- An event type, port space, option, flag, opcode, status or other constant counts as reached when the code of a header
  names it, when a constant of ours has its value, or when it is passed through as part of something of C's that a
  header names (CARRIED).
- What newer versions of rdma-core have is looked at in the fake's stand-ins for their headers where the installed ones
  are older.
- What is left out stands in EXCEPTIONS, with its reason.
"""

import argparse
import collections
import os
import pathlib
import re
import subprocess
import sys

import ring

C_HEADERS = ['rdma/rdma_cma.h', 'rdma/rdma_verbs.h', 'infiniband/verbs.h']

# Folders with stand-ins for newer headers, each with a name that says whether the installed one is as new.
STAND_INS = {
    'include_v44': 'IBV_WR_ATOMIC_WRITE',
    'include_v50': 'IBV_WR_FLUSH',
    'include_v60': 'RAI_SA',
    'include_v61': 'ibv_reg_mr_ex',
}

ERROR_TABLES = ['verbs_errors.cpp', 'v60/verbs.cpp']  # of tests/unit

EXCEPTIONS = {
    'rdma_destroy_qp': 'hides the errors of its parts, and leaves the CQ of a QP that only sends: ours are destroyed one by one',
    'rdma_destroy_srq': 'likewise',
    'rdma_get_send_comp': 'waits without an end: endpoint::get_send_comp waits on the same CQ, with a deadline',
    'rdma_get_recv_comp': 'likewise',
    'rdma_seterrno': 'for the inline functions of its own header',
    'RDMA_CM_EVENT_INTERNAL': 'between the kernel and librdmacm, which never gives it to a program',
    'RDMA_IB_IP_PS_MASK': 'parts of the service id of an AF_IB address, which programs make by hand',
    'RDMA_IB_IP_PORT_MASK': 'likewise',
    'RDMA_IB_IP_PS_TCP': 'likewise',
    'RDMA_IB_IP_PS_UDP': 'likewise',
    'RDMA_IB_PS_IB': 'likewise',
    'RAI_SA': 'a flag for addrinfo_hints::flags, where the header has it',
    'RAI_DNS': 'likewise',
    'ibv_flow_label_to_udp_sport': 'arithmetic on a flow label, which belongs to no object',
    'IB_ROCE_UDP_ENCAP_VALID_PORT_MIN': 'for ibv_flow_label_to_udp_sport',
    'IB_ROCE_UDP_ENCAP_VALID_PORT_MAX': 'likewise',
    'IB_GRH_FLOWLABEL_MASK': 'likewise',
    'ibv_init_ah_from_wc': 'the first half of ibv_create_ah_from_wc, which is wrapped',
    'ibv_is_qpt_supported': 'looks for a bit in a mask of query_device_ex',
    'ibv_reg_mr_iova': 'a macro chooses between it and ibv_reg_mr_iova2, which knows more flags and is called',
    'ibv_resolve_eth_l2_from_gid': 'for providers: librdmacm and ibv_create_ah do what it is for',
    'ibv_rereg_mr_err_code': 'how ibv_rereg_mr fails; mr::rereg tells the errno, which says why',
    'IBV_REREG_MR_FLAGS_SUPPORTED': 'all that ibv_rereg_mr_flags has, for libibverbs itself',
    'IBV_CREATE_CQ_SUP_WC_FLAGS': 'all that ibv_create_cq_wc_flags has, for libibverbs itself',
    'IBV_WC_IP_CSUM_OK_SHIFT': 'where IBV_WC_IP_CSUM_OK stands, for libibverbs itself',
    'IBV_SYSFS_NAME_MAX': 'the size of arrays in ibv_device',
    'IBV_SYSFS_PATH_MAX': 'likewise',
    'IBV_WR_ATOMIC_WRITE': 'send_wr::atomic_write has its value, which the unit ring compares',
    'IBV_WR_DRIVER1': 'for a provider of its own, through send_wr::native_handle',
    'IBV_WR_FLUSH': 'qp_ex_ref writes flushes; ibv_send_wr has no place for their arguments',
    'ibv_dm_mask': 'whether a provider has filled ibv_dm::handle in',
    'ibv_wr_opcode_str': 'names what a program has chosen itself',
    'ibv_alloc_dmah': 'a hint that programs make by themselves, and give to mr::reg_mr_ex',
    'ibv_dealloc_dmah': 'likewise',
    'ibv_dmah_init_attr_mask': 'likewise',
    'ibv_tph_mem_type': 'likewise',
}

# Of rdma-core 56 to 65, whose headers are newer than those that the rest is tested with.
NOT_YET = {
    **dict.fromkeys((
        'ibv_query_qp_data_in_order_flags', 'ibv_query_qp_data_in_order_caps', 'ibv_alloc_buf', 'ibv_free_buf',
        'ibv_reg_buf_mr', 'ibv_export_buf_dmabuf_fd', 'ibv_dm_export_dmabuf_fd', 'ibv_query_port_speed',
        'ibv_create_comp_cntr', 'ibv_destroy_comp_cntr', 'ibv_inc_comp_cntr', 'ibv_inc_err_comp_cntr',
        'ibv_read_comp_cntr', 'ibv_read_err_comp_cntr', 'ibv_set_comp_cntr', 'ibv_set_err_comp_cntr',
        'ibv_qp_attach_comp_cntr', 'ibv_query_comp_cntr_caps', 'ibv_comp_cntr_type', 'ibv_qp_attach_comp_cntr_op',
        'IBV_DEVICE_CC_DMA_BOUNCE'), 'newer than rdma-core 44, and not wrapped yet'),
    'IBV_EVENT_DEVICE_SPEED_CHANGE': 'newer than rdma-core 44: such events pass through with an unknown kind',
}

# Functions whose failure is in no table, though by their type they could fail.
UNFAILING = {
    'ibv_cq_ex_to_cq': 'the same object under another type',
    'ibv_qp_to_qp_ex': 'likewise; null is an answer',
    'ibv_get_device_index': 'tells what libibverbs knows; -1 is an answer',
    'ibv_query_qp_data_in_order': 'tells yes or no',
    'ibv_rate_to_mult': 'looks into a table; -1 is an answer',
    'ibv_rate_to_mbps': 'likewise',
    'rdma_get_local_addr': 'reads the id',
    'rdma_get_peer_addr': 'likewise',
    'rdma_ack_cm_event': 'fails for a null pointer alone',
    'rdma_reg_msgs': 'reports as ibv_reg_mr, where it is in the table',
    'rdma_reg_read': 'likewise',
    'rdma_reg_write': 'likewise',
    'rdma_dereg_mr': 'is ibv_dereg_mr',
    'ibv_reg_mr_iova2': 'is ibv_reg_mr_iova for the fake, which looks at what a program means',
}

# Constants that go in and out with a type or parameter of C's, which a public header names: by enumeration, or one by
# one. The headers add nothing to them, and take nothing away.
CARRIED = {
    'ibv_atomic_cap': 'ibv_device_attr',
    'ibv_counter_description': 'ibv_counter_attach_attr',
    'ibv_create_cq_attr_flags': 'ibv_create_cq_attr_flags',
    'ibv_create_cq_wc_flags': 'ibv_create_cq_wc_flags',
    'ibv_device_cap_flags': 'ibv_device_attr',
    'ibv_flow_action_esp_mask': 'ibv_flow_action_esp_attr',
    'ibv_flow_attr_type': 'ibv_flow_attr',
    'ibv_flow_flags': 'ibv_flow_attr',
    'ibv_flow_spec_type': 'ibv_flow_attr',
    'ibv_gid_type': 'ibv_gid_entry',
    'ibv_mig_state': 'ibv_qp_attr',
    'ibv_mr_init_attr_mask': 'ibv_mr_init_attr',
    'ibv_odp_general_caps': 'ibv_device_attr_ex',
    'ibv_odp_transport_cap_bits': 'ibv_device_attr_ex',
    'ibv_ops_flags': 'ibv_ops_wr',
    'ibv_ops_wr_opcode': 'ibv_ops_wr',
    'ibv_parent_domain_init_attr_mask': 'ibv_parent_domain_init_attr',
    'ibv_pci_atomic_op_size': 'ibv_device_attr_ex',
    'ibv_placement_type': 'ibv_placement_type',
    'ibv_port_cap_flags': 'ibv_port_attr',
    'ibv_port_cap_flags2': 'ibv_port_attr',
    'ibv_qp_attr_mask': 'ibv_qp_attr_mask',
    'ibv_qp_create_flags': 'ibv_qp_create_flags',
    'ibv_qp_create_send_ops_flags': 'ibv_qp_create_send_ops_flags',
    'ibv_qp_state': 'ibv_qp_state',
    'ibv_raw_packet_caps': 'ibv_device_attr_ex',
    'ibv_read_counters_flags': 'ibv_read_counters_flags',
    'ibv_rereg_mr_flags': 'ibv_rereg_mr_flags',
    'ibv_rx_hash_fields': 'ibv_rx_hash_conf',
    'ibv_rx_hash_function_flags': 'ibv_rx_hash_conf',
    'ibv_selectivity_level': 'ibv_selectivity_level',
    'ibv_tm_cap_flags': 'ibv_device_attr_ex',
    'ibv_wc_flags': 'ibv_wc_flags',
    'ibv_wq_attr_mask': 'ibv_wq_attr',
    'ibv_wq_flags': 'ibv_wq_flags',
    'ETHERNET_LL_SIZE': 'ibv_flow_attr',
    'IBV_ALLOCATOR_USE_DEFAULT': 'ibv_parent_domain_init_attr',
    'IBV_DEVICE_PCI_WRITE_END_PADDING': 'ibv_device_attr_ex',
    'IBV_DEVICE_RAW_SCATTER_FCS': 'ibv_device_attr_ex',
    'IBV_LINK_LAYER_ETHERNET': 'ibv_port_attr',
    'IBV_LINK_LAYER_INFINIBAND': 'ibv_port_attr',
    'IBV_LINK_LAYER_UNSPECIFIED': 'ibv_port_attr',
}

# What these functions call; the fake sees nothing else of them. None: nothing, they only look. Other inline functions
# are in the fake's log by their own names.
INLINE = {
    'ibv_cq_ex_to_cq': None,
    'ibv_inc_rkey': None,
    'ibv_reg_mr_iova2': ['ibv_reg_mr', 'ibv_reg_mr_iova'],
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
    'RDMA_CM_JOIN_MC_ATTR_ADDRESS': 'rdma::detail::join_mc_attr_address',
    'RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS': 'rdma::detail::join_mc_attr_join_flags',
    'RDMA_MC_JOIN_FLAG_FULLMEMBER': 'rdma::join_flag::fullmember',
    'RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER': 'rdma::join_flag::sendonly_fullmember',
    'RDMA_OPTION_ID_ACK_TIMEOUT': 'rdma::detail::option_id_ack_timeout',
    'IBV_FORK_DISABLED': 'rdma::fork_status::disabled',
    'IBV_FORK_ENABLED': 'rdma::fork_status::enabled',
    'IBV_FORK_UNNEEDED': 'rdma::fork_status::unneeded',
    'IBV_ACCESS_FLUSH_GLOBAL': 'rdma::access::flush_global',
    'IBV_ACCESS_FLUSH_PERSISTENT': 'rdma::access::flush_persistent',
    'IBV_RATE_800_GBPS': 'rdma::rate::rate_800_gbps',
    'IBV_RATE_1200_GBPS': 'rdma::rate::rate_1200_gbps',
    'IBV_WC_ATOMIC_WRITE': 'rdma::wc_opcode::atomic_write',
    'IBV_WC_DRIVER2': 'rdma::wc_opcode::driver2',
    'IBV_WC_DRIVER3': 'rdma::wc_opcode::driver3',
    'IBV_WC_FLUSH': 'rdma::wc_opcode::flush',
}

Function = collections.namedtuple('Function', 'inline fails')  # fails: by its type it can
Api = collections.namedtuple('Api', 'functions constants')     # {name: Function}, {name: its enumeration, or ''}


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


def can_fail(returned):
    """Whether a function of this type tells of failures: by an int, or a null pointer."""
    words = re.sub(r'\b(?:static|inline|extern|const|struct)\b|__attribute_const', ' ', returned)
    words = words.replace('*', ' * ').split()
    return bool(words) and not {'char', 'unsigned'} & set(words) and words[-1] in ('int', 'ssize_t', '*')


def declared(text):
    """The Api of C text without comments."""
    constants = dict.fromkeys(re.findall(r'^\s*#define\s+([A-Z]\w*)[ \t]+\S', text, re.M), '')
    code = re.sub(r'^\s*#.*$|extern\s+"C"\s*\{', '', text, flags=re.M)
    for name, body in re.findall(r'\benum\b\s*(\w*)\s*\{([^{}]*)\}', code):
        constants.update(dict.fromkeys(re.findall(r'(?:^|,)\s*([A-Z]\w*)', body), name))
    while re.search(r'\{[^{}]*\}', code):
        code = re.sub(r'\{[^{}]*\}', ';', code)
    functions = {}
    for declaration in code.split(';'):
        found = re.search(r'\b((?:rdma|ibv|mbps_to|mult_to)_\w+)\s*\(', declaration)
        if found and 'typedef' not in declaration:
            inline = bool(re.search(r'\binline\b', declaration))
            functions[found.group(1)] = Function(inline, can_fail(declaration[:found.start()]))
    return Api(functions, constants)


def c_api(compiler, *first):
    """What the C headers declare, those below the folders `first` before the installed ones."""
    includes = [flag for folder in first for flag in ('-I', str(folder))]
    status, output = compiler.run(['-std=c++20', '-E', '-dD', *includes, *ring.c_includes()], ring.including(C_HEADERS))
    return declared(own_text(output)) if status == 0 else None


def names(api):
    return set(api.functions) | set(api.constants) | set(api.constants.values())


def newer_api(compiler, installed):
    """(what the stand-ins have more than the installed headers, their folders)"""
    fake = ring.ROOT / 'tests' / 'fake'
    folders = [fake / folder for folder, name in STAND_INS.items() if name not in names(installed)]
    if not folders:
        return Api({}, {}), []
    full = c_api(compiler, *folders)
    return Api(*({name: of for name, of in both.items() if name not in old}
                 for both, old in zip(full, installed))), folders


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


def tabled():
    """The functions in the tables of errors."""
    texts = [(ring.ROOT / 'tests' / 'unit' / name).read_text(encoding='utf-8') for name in ERROR_TABLES]
    return entries('\n'.join(texts))


def entries(text):
    return set(re.findall(r'\{"((?:rdma|ibv)_\w+)",', ring.strip_comments(text, True)))


def function_faults(name, function, called, code, text, failing):
    """What is missing of a function: [] when it is covered."""
    missing = []
    if name in INLINE:
        missing += [f'{each} is not called over the unit ring' for each in INLINE[name] or [] if each not in called]
        if not re.search(rf'\b{name}\b', text):
            missing.append('no public header names it')
    elif function.inline and name.startswith('rdma_'):
        missing.append('inline, and not in the table of what inline functions call')
    else:
        if name not in called:
            missing.append('it is not called over the unit ring')
        if not re.search(rf'\b{name}\b', code):
            missing.append('no public header calls it')
    if function.fails and name not in failing and name not in UNFAILING:
        missing.append(f'it can fail, and is in none of {", ".join(ERROR_TABLES)}')
    return missing


def constant_fault(name, enumeration, code, text):
    """'' when a header reaches the constant."""
    if name in VALUES or re.search(rf'\b{name}\b', code):
        return ''
    carrier = CARRIED.get(name) or CARRIED.get(enumeration)
    if carrier and re.search(rf'\b{carrier}\b', text):
        return ''
    return 'no public header reaches it'


def exception(name, enumeration=''):
    """Why it may be left out, or ''."""
    if name.endswith('_RESERVED'):
        return 'marks the end of its enumeration'
    reasons = EXCEPTIONS | NOT_YET
    return reasons.get(name) or reasons.get(enumeration, '')


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
const char *ibv_new_str(enum rdma_new_event how);
enum rdma_new_event ibv_new_question(void) __attribute_const;
void ibv_new_end(struct ibv_qp *qp);
static inline unsigned int ibv_new_flags(struct ibv_cq_ex *cq) { return 1; }
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
    failing, plain = Function(False, True), Function(False, False)
    tap.check(functions == {'rdma_brand_new': failing, 'rdma_new_list': failing, 'ibv_new_str': plain,
                            'ibv_new_question': plain, 'ibv_new_end': plain, 'ibv_new_flags': Function(True, False),
                            'rdma_new_inline': Function(True, True)}
              and constants == {'RDMA_NEW_MASK': '', 'RDMA_NEW_ONE': 'rdma_new_event',
                                'RDMA_NEW_TWO': 'rdma_new_event'},
              'control: every declaration is seen, and nothing else', f'{functions} {constants}')
    table = {'rdma_x', 'ibv_x'}
    covered = [('rdma_x', failing, {'rdma_x'}, '::rdma_x(id);', '', table),
               ('rdma_y', plain, {'rdma_y'}, '::rdma_y(id);', '', table),
               ('ibv_x', Function(True, True), {'ibv_x'}, 'ibv_x();', '', table),
               ('rdma_reg_msgs', Function(True, True), {'ibv_reg_mr'}, '', '/// rdma_reg_msgs', table)]
    missing = [('rdma_x', failing, set(), '::rdma_x(id);', '', table),
               ('rdma_x', failing, {'rdma_x'}, '', '// rdma_x', table),
               ('rdma_x', failing, {'rdma_x'}, '::rdma_x(id);', '', set()),
               ('ibv_x', Function(True, True), {'ibv_poll_cq'}, 'ibv_x();', '', table),
               ('rdma_reg_msgs', failing, set(), '', 'rdma_reg_msgs', table),
               ('rdma_reg_msgs', failing, {'ibv_reg_mr'}, '', '', table),
               ('rdma_new_inline', Function(True, False), {'rdma_new_inline'}, 'rdma_new_inline', 'rdma_new_inline',
                table)]
    tap.check(all(not function_faults(*each) for each in covered) and all(function_faults(*each) for each in missing),
              'control: a function that nobody calls, or lets fail, is found')
    tap.check(constant_fault('RDMA_NEW_ONE', 'rdma_new_event', 'RDMA_NEW_ONE_MORE', 'rdma_new_event')
              and not constant_fault('RDMA_NEW_ONE', '', 'RDMA_NEW_ONE;', '')
              and not constant_fault('IBV_MIG_ARMED', 'ibv_mig_state', '', 'an ibv_qp_attr')
              and constant_fault('IBV_MIG_ARMED', 'ibv_mig_state', '', 'an ibv_qp_attr_mask'),
              'control: a name that no header has, nor what carries it, is found')
    tap.check(entries('{"rdma_x", f, g}, // {"rdma_y", f, g}\n {"ibv_z",\n f("ibv_w", 1)') == {'rdma_x', 'ibv_z'},
              'control: the entries of a table are seen, and nothing else')


# ---- the check

def check(tap, api, called, code, text, suffix=''):
    failing = tabled()
    for name in sorted(api.functions):
        if exception(name):
            tap.skip(f'{name}{suffix}', exception(name))
            continue
        faults = function_faults(name, api.functions[name], called, code, text, failing)
        tap.check(not faults, f'{name}{suffix}', '\n'.join(faults))
    for name, enumeration in sorted(api.constants.items()):
        if exception(name, enumeration):
            tap.skip(f'{name}{suffix}', exception(name, enumeration))
            continue
        fault = constant_fault(name, enumeration, code, text)
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
    if installed is None or not installed.functions:
        sys.exit('the C headers are not installed, or cannot be read')
    newer, folders = newer_api(compiler, installed)
    known = names(installed) | names(newer)
    tap.check(all(name in known for name in STAND_INS.values()),
              'what newer versions of rdma-core have more is looked at, too')
    code, text = read_headers()
    called = called_over(arguments.calls, arguments.programs)
    tap.check('rdma_get_cm_event' in called, 'the unit ring has told what it calls', f'{len(called)} functions')

    check(tap, installed, called, code, text)
    check(tap, newer, called, code, text, ', of a newer rdma-core')
    trouble = wrong_values(compiler, known, *folders)
    tap.check(not trouble, 'values of ours are those of C', trouble)
    if 'ibv_query_qp_data_in_order' in known:  # rdma-core 44: older ones lack some of the names
        listed = set(EXCEPTIONS) | set(UNFAILING) | set(CARRIED) | set(INLINE) | set(VALUES)
        tap.check(not listed - known, 'every exception is of a name that exists', '\n'.join(sorted(listed - known)))
    tap.done()


if __name__ == '__main__':
    main()
