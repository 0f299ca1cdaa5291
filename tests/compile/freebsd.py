#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The headers compile against the part of librdmacm that FreeBSD 14's base has: with freebsd/rdma, a stand-in of our own
that declares this part alone, in place of the system's <rdma/rdma_cma.h> and <rdma/rdma_verbs.h>. Nothing is linked.
"""

import ring

FOLDER = ring.ROOT / 'tests' / 'compile' / 'freebsd'

# What the stand-in must not have, or it would say nothing: the C functions of which the headers have to do without.
ABSENT = ['rdma_establish', 'rdma_get_remote_ece', 'rdma_init_qp_attr', 'rdma_join_multicast_ex', 'rdma_query_addrinfo',
          'rdma_reject_ece', 'rdma_resolve_addrinfo', 'rdma_set_local_ece', 'rdma_write_cm_event']

# Their members are there all the same, and answer ENOSYS.
USE = '''
void use(rdma::cm_id& id, rdma::address const& group, std::error_code& ec) {
    id.establish(ec);
    (void)id.init_qp_attr(IBV_QPS_INIT, ec);
    id.reject_ece(ec);
    id.set_local_ece(id.remote_ece(ec), ec);
    id.set_ack_timeout(std::chrono::milliseconds(1), ec);
    (void)id.join_multicast(group, rdma::join_flag::sendonly_fullmember, ec);
}
template <class Id>
concept writes_events = requires(Id id) { id.write_cm_event(0, 1U); };
static_assert(!writes_events<rdma::cm_id>);
'''


def compiled(compiler, source, *more):
    return compiler.run([f'-std={ring.STANDARDS[0]}', *ring.WARNINGS, '-I', str(ring.INCLUDE), '-isystem', str(FOLDER),
                         *ring.c_includes(), '-fsyntax-only', *more], source)


def main():
    compilers = ring.need_compilers()
    tap = ring.Tap()
    tap.skips()
    everything = ring.including(['rdmacpp/rdmacpp.hpp'])

    there = [name for name in ABSENT
             if compiled(compilers[0], f'#include <rdma/rdma_verbs.h>\nauto* f = &::{name};\n')[0] == 0]
    known = compiled(compilers[0], '#include <rdma/rdma_verbs.h>\nauto* f = &::rdma_connect;\n')
    tap.check(not there, 'control: the stand-in declares the part alone', ', '.join(there))
    tap.check(known[0] == 0, 'control: and what is in it', known[1])

    work = [(compiler,) for compiler in compilers] + [(compilers[0], '-fno-exceptions', '-fno-rtti')]
    results = ring.in_parallel(lambda item: compiled(item[0], everything + USE, *item[1:]), work)
    for (compiler, *more), (status, output) in zip(work, results):
        tap.check(status == 0, ' '.join([f'all headers, {compiler}', *more]), output)
    status, output = compiled(compilers[0], (ring.ROOT / 'examples' / 'hello.cpp').read_text(encoding='utf-8'))
    tap.check(status == 0, 'examples/hello.cpp', output)
    tap.done()


if __name__ == '__main__':
    main()
