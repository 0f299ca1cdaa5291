# SPDX-License-Identifier: MIT
"""What gdb prints for the objects of rdmacpp, and the command `info rdma`. Load it with

    source .../rdmacpp.py

It only reads memory, and calls nothing in the program: so it works on a core file, and on a process that is stuck.
What cannot be read (optimised out, not initialised yet, freed) is said to be so, and never ends the printing.
`print/r` prints the members as they are.
"""

import errno
import ipaddress
import itertools
import re

import gdb
import gdb.printing
import gdb.types

MOST = 200          # elements that are shown of anything that has a length
FARTHEST = 1 << 12  # steps along a chain, which is a circle where memory is rubbish
MOST_SEARCHED = 1 << 30  # bytes of memory
UNREADABLE = '<cannot be read>'


# ---- reading

def attempt(read, otherwise=None):
    """read(), or something else where that cannot be read."""
    try:
        return read()
    except Exception:  # of gdb, and of Python for what rubbish in memory makes of lengths and indices
        return otherwise


def present(pointer):
    """The pointer, or None if it is null."""
    return pointer if int(pointer) != 0 else None


def hexadecimal(number):
    return hex(int(number) & (1 << 64) - 1)


def name_of(enumerator, prefix=''):
    """The name of an enumerator without its scope and this prefix; None if it has none."""
    number = int(enumerator)
    for field in enumerator.type.strip_typedefs().fields():
        if field.enumval == number:
            name = field.name.split('::')[-1]
            return name[len(prefix):] if name.startswith(prefix) else name
    return None


def text_of(characters, limit=256):
    """A C string up to its end; bytes that are no text are shown as such."""
    return characters.string(encoding='ascii', errors='backslashreplace', length=limit).split('\0')[0]


def loaded(atomic):
    """The value of a detail::atomic."""
    return atomic['value_']


def counted(number, noun):
    return f'{number} {noun}{"" if number == 1 else "s"}'


def nodes(table):
    """The records of a detail::address_map."""
    left = min(int(table['size_']), FARTHEST)
    for index in range(buckets_of(table)):
        node = table['buckets_'][index]
        while left and int(node) != 0:
            left -= 1
            yield node
            node = node['next']
        if not left:
            return


def buckets_of(table):
    """How many buckets a detail::address_map has."""
    count = int(table['count_'])
    if count & (count - 1) or not 32 <= count <= 1 << 24:
        raise ValueError('no address map')
    return count


def in_map(table, key):
    """The record of a C object in a detail::address_map, or None."""
    number = int(key)
    node = table['buckets_'][((number >> 4) ^ (number >> 12)) & (buckets_of(table) - 1)]
    for _ in range(FARTHEST):
        if int(node) == 0 or int(node['raw']) == number:
            return present(node)
        node = node['next']
    return None


def the_one(namespace, name, variable):
    """The process-wide object of detail::NAME::get(), or None before it is first needed."""
    mangled = ''.join(f'{len(part)}{part}' for part in [*namespace.split('::'), 'detail', name])
    pointer = gdb.parse_and_eval(f"*(unsigned long*)&'_ZZN{mangled}3getEvE{len(variable)}{variable}'")
    kind = gdb.lookup_type(f'{namespace}::detail::{name}').pointer()
    return present(pointer.cast(kind))


def channel_registry(namespace):
    return the_one(namespace, 'channel_registry', 'registry')


def namespace_of(value):
    """'rdma::v0_1' of a value of the library's."""
    return '::'.join(str(gdb.types.get_basic_type(value.type)).split('::')[:2])


# ---- C's objects in words

AF_INET, AF_INET6 = 2, 10


def address_text(storage):
    """A sockaddr_storage as to_string(rdma::address) has it, but for the name of an interface."""
    family = int(storage['ss_family'])
    if family == 0:
        return '-'
    if family not in (AF_INET, AF_INET6):
        return f'family {family}'
    padding = storage['__ss_padding']
    raw = bytes(int(padding[i]) & 0xff for i in range(6 if family == AF_INET else 26))
    port = int.from_bytes(raw[:2], 'big')
    if family == AF_INET:
        return f'{ipaddress.IPv4Address(raw[2:6])}:{port}'
    scope = int.from_bytes(raw[22:26], byte_order())
    return f'[{ipaddress.IPv6Address(raw[6:22])}{f"%{scope}" if scope else ""}]:{port}'


def byte_order():
    return 'big' if 'big endian' in gdb.execute('show endian', to_string=True) else 'little'


def device_name(context):
    """The name of the device of an ibv_context*."""
    return text_of(context['device']['name'], 64)


def on_device(raw):
    """' of rxe0', for C objects that have a context."""
    name = attempt(lambda: device_name(raw['context']))
    return f' of {name}' if name else ''


def qp_text(qp):
    kind = name_of(qp['qp_type'], 'IBV_QPT_') or f'type {int(qp["qp_type"])}'
    return f'{kind.lower()} qp {int(qp["qp_num"])}{on_device(qp)}'


def at(noun):
    """For objects that have nothing to tell but where they are, and their device."""
    return lambda raw: f'{noun} {hexadecimal(raw)}{on_device(raw)}'


# Of each C type: what it is in words, given a pointer to it.
OBJECTS = {
    'ibv_ah': at('ah'),
    'ibv_comp_channel': lambda channel: f'fd {int(channel["fd"])}{on_device(channel)}',
    'ibv_context': lambda context: f'"{device_name(context)}"',
    'ibv_counters': at('counters'),
    'ibv_cq': at('cq'),
    'ibv_device': lambda device: f'"{text_of(device["name"], 64)}"',
    'ibv_dm': at('dm'),
    'ibv_flow': at('flow'),
    'ibv_flow_action': at('flow action'),
    'ibv_mr': lambda mr: f'{counted(int(mr["length"]), "byte")} at {hexadecimal(mr["addr"])}{on_device(mr)}',
    'ibv_mw': lambda mw: f'type {int(mw["type"])} window {hexadecimal(mw)}{on_device(mw)}',
    'ibv_pd': at('pd'),
    'ibv_qp': qp_text,
    'ibv_qp_ex': lambda qp: qp_text(qp['qp_base'].address),
    'ibv_rwq_ind_table': lambda table: f'table {int(table["ind_tbl_num"])}{on_device(table)}',
    'ibv_srq': at('srq'),
    'ibv_td': at('td'),
    'ibv_wq': lambda wq: f'wq {int(wq["wq_num"])}{on_device(wq)}',
    'ibv_xrcd': at('xrcd'),
}


def keys(raw):
    yield 'lkey', hexadecimal(raw['lkey'])
    yield 'rkey', hexadecimal(raw['rkey'])


def cq_parts(cq):
    yield 'cqe', int(cq['cqe'])
    yield 'channel_fd', int(cq['channel']['fd']) if present(cq['channel']) is not None else 'none'


def context_parts(context):
    yield 'fd', int(context['cmd_fd'])
    yield 'async_fd', int(context['async_fd'])


# And what there is to know beyond.
DETAILS = {
    'ibv_context': context_parts,
    'ibv_cq': cq_parts,
    'ibv_mr': keys,
    'ibv_mw': lambda mw: [('rkey', hexadecimal(mw['rkey']))],
    'ibv_pd': lambda pd: [('handle', int(pd['handle']))],
}


def kind_of(raw):
    """The name of the C type that this points to."""
    return str(raw.type.strip_typedefs().target().unqualified().strip_typedefs()).split()[-1]


def object_text(raw):
    """A verbs object, by a pointer to its C type."""
    kind = kind_of(raw)
    return attempt(lambda: OBJECTS[kind](raw), f'{kind} {hexadecimal(raw)}')


def id_text(raw):
    """An rdma_cm_id*, as to_string(rdma::cm_id_ref) has it."""
    ends = raw['route']['addr']
    return f'{hexadecimal(raw)} {address_text(ends["src_storage"])} -> {address_text(ends["dst_storage"])}'


def event_name(number, enumeration):
    """The name of a cm event as in the manual pages, also where the C header is older than the event."""
    for field in enumeration.strip_typedefs().fields():
        if field.enumval == number:
            return field.name.split('::')[-1].replace('RDMA_CM_EVENT_', '')
    return {16: 'ADDRINFO_RESOLVED', 17: 'ADDRINFO_ERROR', 18: 'USER'}.get(number, f'event {number}')


def event_kind(raw):
    return event_name(int(raw['event']), raw['event'].type)


def status_text(kind, status):
    """A status, with what cm_event::error() makes of it."""
    if status == 0 or kind == 'USER':
        return str(status)
    if status == -1:
        return '-1 (made up by librdmacm)'
    if status > 0 and kind in ('REJECTED', 'UNREACHABLE'):
        reason = {8: 'nobody listens on that port', 28: 'by the application'}.get(status)
        return f'{status} (a reason of the transport{": " + reason if reason else ""})'
    return f'{status} ({errno.errorcode.get(abs(status), "no errno")})'


def bytes_text(read, length, shown=32):
    """So many bytes in hexadecimal, the first of them at least."""
    first = read(min(length, shown))
    return f'{counted(length, "byte")}{": " if length else ""}{first.hex(" ")}{" ..." if length > shown else ""}'


def private_data_text(raw):
    """The private data of an rdma_cm_event*, where librdmacm fills it in; None if there is none."""
    carrying = range(4, 11)  # CONNECT_REQUEST to DISCONNECTED
    if int(raw['event']) not in carrying:
        return None
    datagram = name_of(raw['id']['qp_type'], 'IBV_QPT_') == 'UD'
    param = raw['param']['ud' if datagram else 'conn']
    where = int(param['private_data'])
    length = int(param['private_data_len']) if where else 0
    return bytes_text(lambda n: gdb.selected_inferior().read_memory(where, n).tobytes() if n else b'', length)


# ---- what the library knows of an id

def state_of(record, field):
    """The name of an enumerator in a detail::atomic_state."""
    enumeration = record[field].type.strip_typedefs().template_argument(0)
    return name_of(loaded(record[field]['value_']).cast(enumeration))


def held_text(record):
    """The events that are held of an id: '1 x ESTABLISHED + 2 x ADDR_CHANGE'; empty if none is."""
    tallies = record['held_events']
    enumeration = record['raw']['event']['event'].type
    _, last = tallies.type.range()
    parts = [f'{int(tallies[i]["held"])} x {event_name(i, enumeration) if i != last else "newer events"}'
             for i in range(last + 1) if int(tallies[i]['held']) != 0]
    named = int(loaded(record['named']))
    return ' + '.join(parts + ([f'{named} x CONNECT_REQUEST that brought it'] if named else []))


def dropped_text(record):
    if record['leaked']:
        return 'dropped, and its destroy failed'
    return f'dropped until the ack of {held_text(record)}' if held_text(record) else 'dropped, kept by what was made from it'


def doing_text(record):
    """How far it has got, as far as that is known without asking the kernel."""
    if loaded(record['removed']):
        return 'its device was removed'
    if state_of(record, 'request') == 'undecided':
        return 'a request, neither accepted nor rejected'
    if record['listening']:
        return 'listening'
    if loaded(record['ended']):
        return 'disconnected'
    if loaded(record['active']):
        return 'connecting or connected'
    return 'bound to a device' if int(record['raw']['verbs']) != 0 else 'idle'


def state_text(record):
    status = state_of(record, 'status')
    if status == 'dropped':
        return dropped_text(record)
    if status == 'in_event':
        return 'not taken from its CONNECT_REQUEST'
    whose = {'foreign': "C's, ", 'lent': 'released to C, ', 'released': 'released to C, '}.get(status, '')
    return whose + doing_text(record)


def record_of(raw, namespace):
    """What the library knows of an rdma_cm_id*, or None."""
    registry = channel_registry(namespace)
    state = in_map(registry['channels'], raw['channel']) if registry is not None else None
    return in_map(state['ids'], raw) if state is not None else None


def id_parts(raw, record):
    """The children of an id."""
    bound = attempt(lambda: present(raw['verbs'])) is not None
    readers = {
        'state': lambda: state_text(record) if record is not None else None,
        'port_space': lambda: (name_of(raw['ps'], 'RDMA_PS_') or hexadecimal(raw['ps'])).lower(),
        'device': lambda: f'"{device_name(raw["verbs"])}" port {int(raw["port_num"])}' if bound else None,
        'qp': lambda: qp_text(raw['qp']) if int(raw['qp']) != 0 else None,
        'channel_fd': lambda: int(raw['channel']['fd']),
        'events_held': lambda: held_text(record) or None if record is not None else None,
        'user_context': lambda: hexadecimal(raw['context']) if int(raw['context']) != 0 else None,
    }
    for name, read in readers.items():
        value = attempt(read, UNREADABLE)
        if value is not None:
            yield name, value


def ids_of(state):
    """(whether it waits, its text) of each id of a channel, those that wait first."""
    found = []
    for record in itertools.islice(nodes(state['ids']), MOST):
        waits = attempt(lambda: state_of(record, 'status')) == 'dropped'
        found.append((waits, attempt(lambda: f'{id_text(record["raw"])} ({state_text(record)})', UNREADABLE)))
    return sorted(found, key=lambda each: not each[0])


def channel_parts(state):
    """The counters of a channel, as channel_stats has them, and its ids."""
    counts = state['counts']
    for name in ('events_got', 'events_acked', 'events_held'):
        yield name, int(counts[name])
    ids = ids_of(state)
    for number, (waits, text) in enumerate(ids):
        yield f'{"awaiting_ack" if waits else "id"}[{number}]', text


# ---- printers

class Printer:
    """What all have in common: nothing that goes wrong gets out."""

    def __init__(self, value):
        self.value = value

    def to_string(self):
        try:
            return self.summary()
        except Exception as fault:
            return '<optimized out>' if 'optimized out' in str(fault) else f'<cannot be read: {fault}>'

    def children(self):
        found = []
        try:
            found.extend(itertools.islice(self.parts(), MOST))
        except Exception as fault:
            if found or self.silent():
                found.append(('...', f'<cannot be read: {fault}>'))
        return iter(found)

    def silent(self):
        """Whether the summary says nothing, not even that it cannot be read."""
        return attempt(self.summary, '') is None

    def summary(self):
        """What stands for the object; None where the children say it all."""
        return None

    def parts(self):
        """(name, value) of what is worth knowing beyond."""
        return ()


class Handle(Printer):
    """Something that has a C object, or is empty."""

    empty = 'empty'

    def raw(self):
        return present(self.value['raw_'])

    def summary(self):
        raw = self.raw()
        return self.text(raw) if raw is not None else self.empty

    def parts(self):
        raw = self.raw()
        return self.details(raw) if raw is not None else ()

    def text(self, raw):
        raise NotImplementedError

    def details(self, raw):
        return ()


class Verbs(Handle):
    """An owner of a verbs object, or a view of one."""

    def text(self, raw):
        return object_text(raw)

    def details(self, raw):
        yield from DETAILS.get(kind_of(raw), lambda _: ())(raw)
        others = attempt(lambda: int(loaded(self.value['node_']['pins'])) - 1, 0)
        if others > 0:
            yield 'needed_by', f'{others} more'


class CmId(Handle):
    def text(self, raw):
        return id_text(raw)

    def details(self, raw):
        return id_parts(raw, attempt(self.record))

    def record(self):
        return present(self.value['record_'])


class CmIdRef(CmId):
    def record(self):
        return record_of(self.value['raw_'], namespace_of(self.value))


class SyncId(CmId):
    def record(self):
        return None

    def details(self, raw):
        yield from super().details(raw)
        if int(raw['event']) != 0:
            yield 'event', event_kind(raw['event'])


class Endpoint(CmId):
    """What has an id, and keeps an event beside it."""

    id_field = 'id_'

    def raw(self):
        return present(self.value[self.id_field]['raw_'])

    def record(self):
        return present(self.value[self.id_field]['record_'])

    def details(self, raw):
        yield from super().details(raw)
        if attempt(lambda: int(self.value['event_']['held_']['raw']), 0) != 0:
            yield 'event', self.value['event_']


class Acceptor(Endpoint):
    id_field = 'listener_'


class CmEvent(Handle):
    empty = 'no event'

    def held(self):
        return self.value['held_']

    def raw(self):
        return present(self.held()['raw'])

    def text(self, raw):
        return event_kind(raw)

    def details(self, raw):
        yield 'status', status_text(event_kind(raw), int(raw['status']))
        yield 'id', attempt(lambda: id_text(raw['id']), UNREADABLE)
        if int(raw['listen_id']) != 0:
            yield 'listener', attempt(lambda: id_text(raw['listen_id']), UNREADABLE)
        child = present(self.held()['child'])
        if child is not None:
            untaken = attempt(lambda: state_of(child, 'status')) == 'in_event'
            yield 'new_id', 'rejected and destroyed with the event, unless taken' if untaken else 'taken'
        private_data = attempt(lambda: private_data_text(raw), UNREADABLE)
        if private_data:
            yield 'private_data', private_data


class Request(CmEvent):
    empty = 'decided, or empty'

    def held(self):
        return self.value['event_']['held_']


class Channel(Handle):
    def raw(self):
        return present(self.value['state_'])

    def text(self, state):
        return f'fd {int(state["raw"]["fd"])}'

    def details(self, state):
        return channel_parts(state)


class ChannelRef(Handle):
    def text(self, raw):
        return f'fd {int(raw["fd"])}'

    def details(self, raw):
        registry = channel_registry(namespace_of(self.value))
        state = in_map(registry['channels'], raw) if registry is not None else None
        return channel_parts(state) if state is not None else ()


class AsyncChannel(Handle):
    def raw(self):
        node = present(self.value['node_'])
        return node['raw'].cast(gdb.lookup_type('ibv_context').pointer()) if node is not None else None

    def text(self, raw):
        return f'of {object_text(raw)}'

    def details(self, raw):
        yield 'fd', int(raw['async_fd'])


class Membership(Handle):
    def raw(self):
        return present(self.value['join_'])

    def text(self, raw):
        return address_text(raw['group']['storage_'])

    def details(self, raw):
        yield 'id', id_text(raw['id']['raw']) if int(raw['id']) != 0 else 'left already'
        yield 'attached', raw['attached']
        yield 'events_held', int(raw['events'])


class Mcast(Handle):
    def raw(self):
        return present(self.value['qp_'])

    def text(self, raw):
        return str(ipaddress.IPv6Address(bytes(int(self.value['gid_']['raw'][i]) for i in range(16))))

    def details(self, raw):
        yield 'lid', int(self.value['lid_'])
        yield 'qp', qp_text(raw)


class Buffer(Handle):
    def raw(self):
        return present(self.value['mr_']['raw_'])

    def text(self, raw):
        return object_text(raw)

    def details(self, raw):
        return keys(raw)


class List(Printer):
    """device_list and devices."""

    def summary(self):
        return counted(int(self.value['count_']), 'device')

    def parts(self):
        for index in range(min(int(self.value['count_']), MOST)):
            yield f'[{index}]', object_text(self.value['all_'][index])


class Address(Printer):
    def summary(self):
        return address_text(self.value['storage_'])


class AddrInfo(Handle):
    def text(self, raw):
        return f'{self.end(raw, "src")} -> {self.end(raw, "dst")}'

    @staticmethod
    def end(raw, which):
        if int(raw[f'ai_{which}_len']) == 0:
            return '-'
        storage = gdb.lookup_type('sockaddr_storage').pointer()
        return address_text(raw[f'ai_{which}_addr'].cast(storage).dereference())


class CqEvent(Handle):
    empty = 'no event'

    def raw(self):
        return present(self.value['cq_'])

    def text(self, raw):
        return f'of {object_text(raw)}'


class AsyncEvent(Printer):
    ABOUT = {'QP': 'qp', 'COMM': 'qp', 'SQ': 'qp', 'PATH': 'qp', 'CQ': 'cq', 'SRQ': 'srq', 'WQ': 'wq', 'DEVICE': None}

    def summary(self):
        if not self.value['held_']:
            return 'no event'
        raw = self.value['raw_']
        name = name_of(raw['event_type'], 'IBV_EVENT_')
        if name is None:
            return f'event {int(raw["event_type"])}'
        about = self.ABOUT.get(name.split('_')[0], 'port')
        if about == 'port':
            return f'{name.lower()} of port {int(raw["element"]["port_num"])}'
        return f'{name.lower()} of {object_text(raw["element"][about])}' if about else name.lower()


class Completion(Printer):
    """Of a completion, what means something: after a failure that is little."""

    WITH_IMM, WITH_INV, GRH = 2, 8, 1  # of ibv_wc_flags

    def wc(self):
        return self.value['wc_']

    def parts(self):
        wc = self.wc()
        status = name_of(wc['status'], 'IBV_WC_')
        if status is None:
            yield 'status', f'{int(wc["status"])} (none that there is: not polled yet?)'
            return
        yield 'status', status.lower()
        yield 'wr_id', int(wc['wr_id'])
        yield 'qp_num', int(wc['qp_num'])
        if status == 'SUCCESS':
            yield from self.of_success(wc)
        else:
            yield 'vendor_err', hexadecimal(wc['vendor_err'])

    def of_success(self, wc):
        opcode = name_of(wc['opcode'], 'IBV_WC_') or str(int(wc['opcode']))
        flags = int(wc['wc_flags'])
        yield 'opcode', opcode.lower()
        if opcode.startswith('RECV') or opcode in ('RDMA_READ', 'TM_RECV'):
            yield 'byte_len', int(wc['byte_len'])
        if flags & self.WITH_IMM:
            yield 'imm_data', hexadecimal(int.from_bytes(int(wc['imm_data']).to_bytes(4, byte_order()), 'big'))
        if flags & self.WITH_INV:
            yield 'invalidated_rkey', hexadecimal(wc['invalidated_rkey'])
        if flags & self.GRH:
            yield 'src_qp', int(wc['src_qp'])


class Completed(Completion):
    def wc(self):
        return self.value['wc_'].dereference()


def sge_text(sge):
    return f'{counted(int(sge["length"]), "byte")} at {hexadecimal(sge["addr"])} lkey {hexadecimal(sge["lkey"])}'


class RecvRequest(Printer):
    def parts(self):
        wr = self.value['wr_']
        yield 'wr_id', int(wr['wr_id'])
        for index in range(min(int(wr['num_sge']), MOST)):
            yield f'piece[{index}]', attempt(lambda: sge_text(wr['sg_list'][index]), UNREADABLE)


class SendRequest(RecvRequest):
    FLAGS = {1: 'fenced', 2: 'signaled', 4: 'solicited', 8: 'inlined', 16: 'ip_csum'}  # of ibv_send_flags

    def parts(self):
        wr = self.value['wr_']
        opcode = name_of(wr['opcode'], 'IBV_WR_') or f'opcode {int(wr["opcode"])}'
        flags = int(wr['send_flags'])
        yield 'opcode', ' '.join([opcode.lower(), *(word for bit, word in self.FLAGS.items() if flags & bit)])
        yield from super().parts()
        kind = 'rdma' if opcode.startswith('RDMA_') else 'atomic' if opcode.startswith('ATOMIC_') else None
        if kind is not None:
            yield 'peer', remote_text(wr['wr'][kind]['remote_addr'], wr['wr'][kind]['rkey'])


def remote_text(address, rkey):
    return f'{hexadecimal(address)} rkey {hexadecimal(rkey)}'


class RemoteMemory(Printer):
    def summary(self):
        return remote_text(self.value['address'], self.value['rkey'])


class Error(Printer):
    """rdma::error: the whole message, which names the C function."""

    def summary(self):
        words = gdb.lookup_type('char').pointer().pointer()
        function = int(self.value['function_'].address)
        # Behind it stands a std::runtime_error, of which debug information may know nothing: a table, then the text.
        text = gdb.Value(function + 2 * words.sizeof).cast(words).dereference()
        return f'"{text_of(text, -1)}"'


class Timeout(Printer):
    LIMIT = 1000 * 3600 * 24 * 365 * 100

    def summary(self):
        milliseconds = int(self.value['milliseconds_'])
        return 'no limit' if milliseconds >= self.LIMIT else f'{milliseconds} ms'


class AckTimeout(Printer):
    def summary(self):
        exponent = int(self.value['exponent_']) & 31
        return f'{4.096e-6 * (1 << exponent):.3g} s' if exponent else 'for ever'


class PrivateData(Printer):
    def summary(self):
        held = self.value['bytes_']
        return bytes_text(lambda n: bytes(int(held[i]) & 0xff for i in range(n)), int(self.value['size_']))


class Enumerator(Printer):
    def summary(self):
        return name_of(self.value) or f'{str(self.value.type.unqualified()).split("::")[-1]}({int(self.value)})'


class Flags(Printer):
    """rdma::access: any of its bits."""

    def summary(self):
        left, words = int(self.value), []
        for field in self.value.type.strip_typedefs().fields():
            if field.enumval and left & field.enumval == field.enumval:
                words.append(field.name.split('::')[-1])
                left &= ~field.enumval
        return ' | '.join(words + ([hexadecimal(left)] if left else [])) or 'none'


class ErrorCode(Printer):
    """A std::error_code, or std::error_condition, of one of our categories, or of those of the standard library."""

    OURS = {'rdma_error_category': 'errc', 'reject_category': 'reject_reason', 'condition_category': 'condition'}

    def summary(self):
        value = int(self.value['_M_value'])
        enumeration = self.enumeration()
        if enumeration is not None:
            return f'{str(enumeration).split("::")[-1]}::{name_of(gdb.Value(value).cast(enumeration)) or value}'
        return f'{value} (as an errno: {errno.errorcode.get(abs(value), "none")})' if value else '0 (no error)'

    def functions(self):
        """Where the table of virtual functions of its category is."""
        words = gdb.lookup_type('unsigned long').pointer()
        return int(gdb.Value(int(self.value['_M_cat'])).cast(words).dereference())

    def enumeration(self):
        """What its numbers are, if the category is ours; categories are told apart by their virtual functions alone."""
        symbol = gdb.execute(f'info symbol {self.functions()}', to_string=True)
        for category, enumeration in self.OURS.items():
            if symbol.startswith('vtable for rdma::') and f'::detail::{category} ' in symbol:
                return gdb.lookup_type(symbol.split(' ')[2].split('::detail::')[0] + f'::{enumeration}')
        return None

    def known(self):
        of_library = 'libstdc++' in (gdb.solib_name(int(self.value['_M_cat'])) or '')
        return of_library or self.enumeration() is not None


# ---- rdma::async: what waits without a thread

def listed(members):
    """Pointers to the members of a detail::list."""
    kind = gdb.types.get_basic_type(members.type)
    item, hook = kind.template_argument(0).pointer(), gdb.lookup_type(
        f'{namespace_of(members)}::detail::hook<{kind.template_argument(1)}>').pointer()
    ends = int(members['ends_'].address)
    place = members['ends_']['next_']
    for _ in range(FARTHEST):
        if int(place) in (0, ends):
            return
        yield place.cast(hook).cast(item)
        place = place['next_']


def symbol_at(address):
    """The function or the object that an address is in, or None."""
    text = gdb.execute(f'info symbol {int(address)}', to_string=True)
    return None if text.startswith('No symbol') else text.split(' in section ')[0].split(' + ')[0]


def name_in(symbol):
    """A function's name, without its arguments."""
    return without_version(re.match(r'(?:[^({]|\{[^}]*\}|\(anonymous namespace\))*', symbol).group(0))


def without_version(name):
    """A name of ours as the program writes it."""
    return re.sub(r'\brdma::v\w+::', 'rdma::', name)


def word_at(address):
    return int(gdb.Value(int(address)).cast(gdb.lookup_type('unsigned long').pointer()).dereference())


def coroutine_text(frame):
    """The function of a coroutine, by the address of its frame, which begins with where it goes on; None when done."""
    goes_on = word_at(frame)
    return (name_in(symbol_at(goes_on) or hexadecimal(goes_on))) if goes_on else None


# Of each operation of the library: what is waited for.
OPERATIONS = {
    'next_event': 'the next event', 'next_request': 'the next request', 'resolve_addr': 'ADDR_RESOLVED',
    'resolve_route': 'ROUTE_RESOLVED', 'connect_id': 'ESTABLISHED (connect)', 'accept_id': 'ESTABLISHED (accept)',
    'disconnect_id': 'the end of the connection', 'async_connecting': 'connect', 'async_accepting': 'accept',
    'next_completion': 'any completion', 'next_completions': 'any completions', 'posted_send': 'its send',
    'posted_recv': 'its receive', 'next_of': 'an event',
}


def operation_text(op):
    """What a detail::operation, by a pointer, is, and who waits for it."""
    table = symbol_at(word_at(op)) or ''
    name = table.split('detail::')[1].split('<')[0] if table.startswith('vtable for rdma::') else ''
    what = OPERATIONS.get(name, 'something')
    done = op['done_']
    who = name_in(symbol_at(done['call']) or hexadecimal(done['call']))
    if '::await_suspend' in who:  # not a handler of Asio's, or another adapter
        who = attempt(lambda: coroutine_text(done['object']), UNREADABLE)
    return f'{who} waits for {what}'


def waits_of_id(owner):
    """The operations that wait for an id (a detail::awaited_id*), or for what was posted to its queue pair."""
    return [op for field in ('users', 'posted') for op in itertools.islice(listed(owner[field]), MOST) if op['waits_']]


def waits_of_queue(source):
    """The operations that wait for a queue (a detail::cq_source*)."""
    table = source['posted']
    posted = [table['places_'][index]['op'] for index in range(min(int(table['size_']), FARTHEST))]
    operation = gdb.lookup_type(f'{namespace_of(table)}::detail::operation').pointer()
    ops = [*itertools.islice(listed(source['waiters_']), MOST), *(op.cast(operation) for op in posted if int(op) != 0)]
    return [op for op in ops[:MOST] if op['waits_']]


def numbered(name, texts):
    return [(f'{name}[{number}]', text) for number, text in enumerate(texts)]


def waiting_parts(ops):
    return numbered('waiting', [attempt(lambda: operation_text(op), UNREADABLE) for op in ops])


class AwaitedId(CmId):
    """async::cm_id."""

    def owner(self):
        return present(self.value['state_'])

    def raw(self):
        owner = self.owner()
        return present(owner['id_']['raw_']) if owner is not None else None

    def record(self):
        return present(self.owner()['id_']['record_'])

    def details(self, raw):
        yield from super().details(raw)
        owner = self.owner()
        yield 'events_kept', int(owner['events_']['size_'])
        yield from waiting_parts(waits_of_id(owner))


class AwaitedAcceptor(AwaitedId):
    def owner(self):
        return present(self.value['listener_']['state_'])


class AwaitedChannel(Handle):
    """async::event_channel."""

    def raw(self):
        return present(self.value['state_'])

    def text(self, source):
        return f'fd {int(source["channel_"]["state_"]["raw"]["fd"])}'

    def details(self, source):
        yield 'ids', int(source['awaited_count_'])
        yield 'handlers', int(source['handlers_']['size_']) - int(source['awaited_count_'])
        yield 'waiting', int(source['waiting_'])


def queue_parts(source):
    yield 'armed', source['armed_']
    yield 'in_flight', int(source['posted']['used_'])
    yield 'not_asked_for', int(source['backlog_']['end_']) - int(source['backlog_']['begin_'])


class AwaitedQueue(Handle):
    """async::cq."""

    def raw(self):
        return present(self.value['state_'])

    def text(self, source):
        return object_text(source['queue_']['raw_'])

    def details(self, source):
        yield from queue_parts(source)
        yield from waiting_parts(waits_of_queue(source))


def channel_of(source):
    """The type of a detail::events_source's channel, by a pointer."""
    return without_version(str(source.type.target().template_argument(0)))


class AwaitedEvents(Handle):
    """async::events, of any channel."""

    def raw(self):
        return present(self.value['state_'])

    def text(self, source):
        return f'of {channel_of(source)}'

    def details(self, source):
        yield from waiting_parts(listed(source['waiters_']))


class Limits(Printer):
    """async::limits: the end is a time of the steady clock."""

    NEVER = (1 << 63) - 1

    def summary(self):
        within = self.value['within_']
        at = int(within['until']['at_'])
        parts = [] if at == self.NEVER else [f'until {at / 1e9:.3f} s of the steady clock']
        if int(within['stop']['operations_']) != 0:
            parts.append('until it is stopped')
        return ', or '.join(parts) or 'no limit'


class Task(Handle):
    """task<T>: how far it has come."""

    def raw(self):
        handle = self.value['frame_']
        return present(handle[handle.type.fields()[0]])

    def text(self, frame):
        where = coroutine_text(frame)
        if where is None:
            return 'done'
        promise = gdb.lookup_type(f'{namespace_of(self.value)}::detail::task_promise').pointer()
        begun = gdb.Value(int(frame) + 2 * promise.sizeof).cast(promise)['begun']
        return f'{where}, {"which waits" if begun else "not begun"}'


class Tasks(Printer):
    def summary(self):
        return f'{int(self.value["size_"])} not done'


class Registration(Handle):
    def raw(self):
        return present(self.value['object_'])

    def text(self, raw):
        owner = re.match(r'(?:\w+::)*?\w*loop\b', name_in(symbol_at(self.value['drop_']) or ''))
        return f'with {owner.group(0) if owner else "a loop"}'


class AnyLoop(Handle):
    def raw(self):
        return present(self.value['loop_'])

    def text(self, raw):
        table = symbol_at(self.value['operations_']) or ''
        return f'{without_version(table.partition("<")[2][:-1]) or "a loop"} at {hexadecimal(raw)}'


class Callback(Printer):
    def summary(self):
        call = self.value['call']
        return f'{name_in(symbol_at(call) or hexadecimal(call))} with {hexadecimal(self.value["object"])}'


class Awaitable(Printer):
    def summary(self):
        op = self.value['operation_']
        return operation_text(op.address) if op['waits_'] else 'nobody waits'


class PollLoop(Printer):
    def summary(self):
        return f'{sum(1 for _ in listed(self.value["turns_"]))} asked for'


class EpollLoop(Printer):
    def summary(self):
        return f'fd {int(self.value["epoll_"])}'

    def parts(self):
        yield 'keep_it_running', int(self.value['asked_'])
        yield 'timers', sum(1 for _ in listed(self.value['timers_']))


class Dispatcher(Handle):
    def raw(self):
        return present(self.value['channel_']['state_'])

    def text(self, state):
        return f'fd {int(state["raw"]["fd"])}'

    def details(self, state):
        yield 'handlers', int(self.value['handlers_']['size_'])
        for name in ('handled', 'unowned'):
            yield name, int(self.value['stats_'][name])


class IdHandler(Endpoint):
    """The part of a handler that is the library's."""

    def details(self, raw):
        return id_parts(raw, attempt(self.record))


VERBS = ['ah', 'comp_channel', 'context', 'counters', 'cq', 'dm', 'flow', 'flow_action', 'mr', 'mw', 'pd', 'qp',
         'rwq_ind_table', 'srq', 'td', 'wq', 'xrcd']

PRINTERS = {
    **{name: Verbs for name in VERBS},
    **{f'{name}_ref': Verbs for name in VERBS},
    'accepting': Endpoint, 'acceptor': Acceptor, 'ack_timeout': AckTimeout, 'address': Address, 'addrinfo': AddrInfo,
    'addrinfo_ref': AddrInfo, 'async_channel': AsyncChannel, 'async_event': AsyncEvent, 'cm_event': CmEvent,
    'cm_id': CmId, 'cm_id_ref': CmIdRef, 'completed': Completed, 'connect_error': Error, 'cq_event': CqEvent,
    'cq_ex': Verbs, 'device_list': List, 'device_ref': Verbs, 'devices': List, 'dispatcher': Dispatcher,
    'endpoint': Endpoint, 'epoll_loop': EpollLoop, 'error': Error, 'event_channel': Channel,
    'event_channel_ref': ChannelRef, 'id_handler': IdHandler, 'mcast': Mcast, 'membership': Membership,
    'parent_domain': Verbs, 'private_data': PrivateData, 'qp_ex_ref': Verbs, 'recv_wr': RecvRequest,
    'registered_buffer': Buffer, 'remote_memory': RemoteMemory, 'request': Request, 'send_wr': SendRequest,
    'sync_id': SyncId, 'timeout': Timeout, 'work_completion': Completion,
    'async::acceptor': AwaitedAcceptor, 'async::any_loop': AnyLoop, 'async::awaitable': Awaitable,
    'async::callback': Callback, 'async::cm_id': AwaitedId, 'async::cq': AwaitedQueue, 'async::event_channel': AwaitedChannel,
    'async::events': AwaitedEvents, 'async::limits': Limits, 'async::poll_loop': PollLoop,
    'async::registration': Registration, 'async::request': Request, 'async::task': Task, 'async::tasks': Tasks,
}


class Collection(gdb.printing.PrettyPrinter):
    """Chooses by the name of the type, whatever version is in it."""

    def __init__(self):
        names = [*sorted(PRINTERS), 'enumerator']
        super().__init__('rdmacpp', [gdb.printing.SubPrettyPrinter(name) for name in names])
        self.by_name = {each.name: each for each in self.subprinters}

    def __call__(self, value):
        kind = gdb.types.get_basic_type(value.type)
        parts = (kind.name or '').split('<')[0].split('::')
        if len(parts) < 3 or parts[0] != 'rdma' or not parts[1].startswith('v'):
            return None
        name = '::'.join(parts[2:])
        if kind.code == gdb.TYPE_CODE_ENUM and len(parts) == 3:
            name = 'enumerator'
        if name not in self.by_name or not self.by_name[name].enabled:
            return None
        if value.type.strip_typedefs().code in (gdb.TYPE_CODE_REF, gdb.TYPE_CODE_RVALUE_REF):
            value = value.referenced_value()
        if name == 'enumerator':
            return (Flags if parts[2] == 'access' else Enumerator)(value)
        return PRINTERS[name](value)


def error_code_printer(value):
    """libstdc++ has a printer for these, too, which cannot name our categories: it is for the program's file, and so is this."""
    kind = gdb.types.get_basic_type(value.type)
    if (kind.name or '') not in ('std::error_code', 'std::error_condition'):
        return None
    if value.type.strip_typedefs().code in (gdb.TYPE_CODE_REF, gdb.TYPE_CODE_RVALUE_REF):
        value = value.referenced_value()
    printer = ErrorCode(value)
    return printer if attempt(printer.known) else None


error_code_printer.name, error_code_printer.enabled = 'rdmacpp-error-code', True


def claim(objfile):
    """The printers of an object file go before ours, and those of the program before those of its libraries."""
    if objfile is not None and objfile.filename == objfile.progspace.filename:
        others = [each for each in objfile.pretty_printers if getattr(each, 'name', '') != error_code_printer.name]
        objfile.pretty_printers = [error_code_printer, *others]


# ---- info rdma

def node_text(node):
    """A verbs object that the library knows: named by the function that destroys it."""
    noun = text_of(node['destroy_name']).split('_', 2)[-1]
    noun = 'context' if noun == 'device' else noun
    raw = attempt(lambda: node['raw'].cast(gdb.lookup_type(f'ibv_{noun}').pointer()), node['raw'])
    fate = counted(int(loaded(node['pins'])), 'pin')
    if node['leaked']:
        fate = 'its destroy failed'
    elif loaded(node['surrendered']):
        fate = 'released to C'
    text = object_text(raw)
    return f'{text if noun in text.split() else f"{noun} {text}"} ({fate})'


def namespaces():
    """['rdma::v0_1'], as far as there is debug information."""
    listed = gdb.execute('info types detail::channel_registry', to_string=True)
    return sorted({'::'.join(word.split('::')[:2]) for word in listed.split() if word.startswith('rdma::v')})


def print_channels(namespace):
    registry = channel_registry(namespace)
    states = list(itertools.islice(nodes(registry['channels']), MOST)) if registry is not None else []
    if not states:
        print('No event channels.')
    for state in states:
        counts = state['counts']
        got, acked, held = (int(counts[f'events_{what}']) for what in ('got', 'acked', 'held'))
        print(f'event channel fd {int(state["raw"]["fd"])}: {counted(got, "event")} got, {acked} acked, {held} held')
        for _, text in ids_of(state):
            print(f'  id {text}')


def print_objects(namespace):
    table = the_one(namespace, 'verbs_table', 'table')
    for node in itertools.islice(nodes(table['nodes']) if table is not None else (), MOST):
        print(attempt(lambda: node_text(node), UNREADABLE))


def writable_memory():
    """(from, to) of what the program may have written, but for what is mapped from files."""
    sections = gdb.execute('maint info sections', to_string=True)
    found = re.findall(r'(0x[0-9a-f]+)->(0x[0-9a-f]+) at 0x[0-9a-f]+: load\w* (?!.*READONLY).*HAS_CONTENTS', sections)
    if not found: # no core
        mapped = gdb.execute('info proc mappings', to_string=True)
        found = re.findall(r'^ +(0x\w+) +(0x\w+) +\w+ +\w+ +rw\S* *(?:\[heap\])? *$', mapped, re.M)
    return [(int(begin, 16), int(end, 16)) for begin, end in found]


SOURCES = {'channel_source': [''], 'cq_source': [''],
           'events_source': ['async_channel', 'comp_channel', 'comp_channel_ref', 'event_channel', 'event_channel_ref']}


def sources(namespace):
    """Pointers to what loops watch for coroutines and callbacks. They are in no table, so the heap is searched for
    their virtual functions."""
    space = ''.join(f'{len(part)}{part}' for part in namespace.split('::'))
    for name, of in SOURCES.items():
        for channel in of:
            argument = f'INS0_{len(channel)}{channel}EE' if channel else ''
            table = attempt(lambda: int(gdb.parse_and_eval(
                f"(unsigned long)&'_ZTVN{space}6detail{len(name)}{name}{argument}E'")))
            if table is None:
                continue
            kind = gdb.lookup_type(f'{namespace}::detail::{name}' + (f'<{namespace}::{channel}>' if channel else ''))
            for address in places_of(table + 16):
                source = gdb.Value(address).cast(kind.pointer())
                if attempt(lambda: 0 < int(source['refs_']) < 1 << 20, False):
                    yield name, source


def places_of(word):
    """Where in memory this word stands."""
    pattern = word.to_bytes(8, byte_order())
    memory, left = gdb.selected_inferior(), MOST_SEARCHED
    for begin, end in writable_memory():
        while begin < end and left > 0:
            found = attempt(lambda: memory.search_memory(begin, min(end - begin, left), pattern))
            if found is None:
                break
            if found % 8 == 0:
                yield found
            begin = found + 8
        left -= end - begin


def source_text(name, source):
    if name == 'cq_source':
        parts = ', '.join(f'{noun.replace("_", " ")}: {value}' for noun, value in queue_parts(source))
        return f'{object_text(source["queue_"]["raw_"])} ({parts})'
    if name == 'channel_source':
        return f'event channel fd {int(source["channel_"]["state_"]["raw"]["fd"])}'
    return channel_of(source)


def waits_of(name, source):
    if name == 'cq_source':
        return waits_of_queue(source)
    if name == 'events_source':
        return list(listed(source['waiters_']))
    return [op for owner in itertools.islice(listed(source['awaited_']), MOST) for op in waits_of_id(owner)
            if int(op['source_']) == int(source.cast(op['source_'].type))]


def print_waits(namespace):
    for name, source in sources(namespace):
        print(f'waited for in a loop: {attempt(lambda: source_text(name, source), UNREADABLE)}')
        for op in attempt(lambda: waits_of(name, source), []):
            about = attempt(lambda: f' of id {id_text(op["id_"]["id_"]["raw_"])}', '')
            print(f'  {attempt(lambda: operation_text(op), UNREADABLE)}{about}')


class InfoRdma(gdb.Command):
    """Event channels with their ids and what each waits for, the verbs objects that are alive, and what coroutines and
callbacks wait for in event loops.

Usage: info rdma

Reads the library's own tables, searches the heap for what loops watch, and calls nothing: it works on a core file and
on a process that is stuck."""

    def __init__(self):
        super().__init__('info rdma', gdb.COMMAND_STATUS)

    def invoke(self, _argument, _from_tty):
        found = namespaces()
        if not found:
            print('No debug information of rdmacpp.')
        for namespace in found:
            for part in (print_channels, print_objects, print_waits):
                try:
                    part(namespace)
                except Exception as fault:
                    print(f'<cannot be read: {fault}>')


gdb.printing.register_pretty_printer(None, Collection(), replace=True)
gdb.events.new_objfile.connect(lambda event: claim(event.new_objfile))
for each in gdb.objfiles():
    claim(each)
InfoRdma()
