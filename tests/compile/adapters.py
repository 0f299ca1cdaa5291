#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The adapters to event loops, each as the first header of a small program: callbacks, futures and coroutines, with every
compiler and all warnings as errors. The umbrella includes none of them, nor <coroutine>.
"""

import os
import re
import sys

import ring

EPOLL = '''#include <rdmacpp/dispatcher.hpp>
#include <rdmacpp/epoll.hpp>
rdma::async::task<int> sizes(rdma::async::event_channel& channel, rdma::async::acceptor& acceptor, rdma::async::cq& cq) {
    rdma::async::request request = co_await acceptor.next();
    rdma::async::cm_id id = co_await rdma::async::accept(channel, request.take_id());
    rdma::work_completion const done = co_await cq.next(rdma::timeout(std::chrono::seconds(1)));
    rdma::cm_event const event = co_await id.next();
    co_await id.disconnect();
    co_return static_cast<int>(done.wr_id() + static_cast<std::uint64_t>(event.status()));
}
void run(rdma::async::tasks& running, rdma::async::task<void> what) {
    rdma::epoll_loop loop;
    rdma::async::poll_loop other;
    rdma::async::event_channel channel(loop), polled(other);
    running.spawn(std::move(what));
    loop.run();
    other.poll();
}
'''

UV = '''#include <rdmacpp/uv.hpp>
void watch(uv_loop_t& native) {
    rdma::uv_loop loop(native);
    rdma::async::event_channel channel(loop);
    uv_run(loop.native_handle(), UV_RUN_DEFAULT);
}
'''

# %(adapter)s: the namespace of ours; %(asio)s: of theirs.
ASIO = '''#include <rdmacpp/%(adapter)s.hpp>
#include <%(path)s/co_spawn.hpp>
#include <%(path)s/detached.hpp>
#include <%(path)s/io_context.hpp>
#include <%(path)s/strand.hpp>
#include <%(path)s/use_awaitable.hpp>
#include <%(path)s/use_future.hpp>
namespace net = rdma::%(adapter)s;
namespace async = rdma::async;
void callbacks(net::loop& loop, async::acceptor& acceptor, async::cm_id& id, std::error_code& twin) {
    net::initiate(loop, acceptor.next(), [](%(code)s, async::request) {});
    net::initiate(loop, id.disconnect(twin), [](%(code)s) {});
    net::initiate(loop, [&id] { return id.disconnect(); }, %(asio)s::detached);
}
std::future<async::cm_id> futures(net::loop& loop, async::event_channel& channel, rdma::address const& peer) {
    return net::initiate(loop, async::connect(channel, peer), %(asio)s::use_future);
}
#ifdef %(macro)sHAS_CO_AWAIT
%(asio)s::awaitable<void> coroutines(net::loop& loop, async::cm_id& id, async::cq& cq, rdma::send_wr const& request) {
    rdma::work_completion const done = co_await net::initiate(loop, cq.post_send(id, request), %(asio)s::use_awaitable);
    if (done)
        co_await net::initiate(loop, id.disconnect(), %(asio)s::use_awaitable);
}
void spawn(net::loop& loop, async::cm_id& id, async::cq& cq, rdma::send_wr const& request) {
    %(asio)s::co_spawn(loop.get_executor(), coroutines(loop, id, cq, request), %(asio)s::detached);
}
#else
#error "this Asio has no coroutines with this compiler"
#endif
void contexts(%(asio)s::io_context& context) {
    net::loop loop(context), strand{%(asio)s::make_strand(context)};
    rdma::async::any_loop const any(loop);
}
'''

NAMES = {
    'asio': {'adapter': 'asio', 'asio': '::asio', 'path': 'asio', 'code': '::asio::error_code', 'macro': 'ASIO_'},
    'boost_asio': {'adapter': 'boost_asio', 'asio': '::boost::asio', 'path': 'boost/asio',
                   'code': '::boost::system::error_code', 'macro': 'BOOST_ASIO_'},
}
FOREIGN = {'asio': ('asio/version.hpp', 'libasio-dev'), 'boost_asio': ('boost/asio/version.hpp', 'libboost-dev'),
           'uv': ('uv.h', 'libuv1-dev')}


def is_there(compiler, header):
    return compiler.run(['-std=c++20', '-fsyntax-only'], f'#if !__has_include(<{header}>)\n#error no\n#endif\n')[0] == 0


def compiles(compiler, name, source, extra=()):
    status, output = compiler.run([*ring.flags(extra=extra), '-fsyntax-only'], source)
    return status == 0, f'{name}: {compiler}', output


def has_coroutines(compiler, name):
    """Whether this Asio finds by itself that the compiler has them."""
    source = f'#include <{NAMES[name]["path"]}/detail/config.hpp>\n'
    _, output = compiler.run(['-std=c++20', '-dM', '-E'], source)
    return re.search(rf'#define {NAMES[name]["macro"]}HAS_CO_AWAIT\b', output) is not None


def asio(compiler, name):
    """Where its Asio sees no coroutines although the compiler has them, as Debian 12's does with clang, the user says so:
    the two macros that the header names."""
    source = ASIO % NAMES[name]
    if has_coroutines(compiler, name):
        return compiles(compiler, f'{name}.hpp', source)
    macro = NAMES[name]['macro']
    return compiles(compiler, f'{name}.hpp, told of coroutines', source,
                    [f'-D{macro}HAS_CO_AWAIT=1', f'-D{macro}HAS_STD_COROUTINE=1'])


def included(compiler, header):
    """The files that a header brings along."""
    status, output = compiler.run(['-std=c++20', '-I', str(ring.INCLUDE), *ring.c_includes(), '-E'],
                                  ring.including([header]))
    if status != 0:
        sys.exit(f'{compiler} cannot preprocess:\n{output}')
    return {os.path.normpath(path) for path in re.findall(r'^# \d+ "([^"<]+)"', output, re.MULTILINE)}


APART = r'/coroutine$|/asio/|/uv\.h$|/rdmacpp/async/|/rdmacpp/(asio|boost_asio|uv|async|epoll|dispatcher)\.hpp$'


def strangers(compiler, header):
    """Those that are not for the umbrella."""
    return sorted(path for path in included(compiler, header) if re.search(APART, path))


def umbrella(compiler):
    found = strangers(compiler, 'rdmacpp/rdmacpp.hpp')
    return not found, f'the umbrella includes no <coroutine> and no adapter: {compiler}', '\n'.join(found)


def umbrella_control(compiler):
    found = strangers(compiler, 'rdmacpp/epoll.hpp')
    wanted = ['/coroutine', '/rdmacpp/async/cq.hpp', '/rdmacpp/async.hpp', '/rdmacpp/dispatcher.hpp']
    return (all(any(path.endswith(name) for path in found) for name in wanted),
            f'control: what epoll.hpp includes of these is found: {compiler}', '\n'.join(found))


def both(compiler):
    """The standalone and Boost's in one unit, where they let themselves be: None where they do not."""
    theirs = '#include <asio/any_io_executor.hpp>\n#include <boost/asio/any_io_executor.hpp>\n'
    if compiler.run(['-std=c++20', '-fsyntax-only'], theirs)[0] != 0:
        return None, f'asio.hpp and boost_asio.hpp in one unit: {compiler}', 'these versions clash by themselves'
    return compiles(compiler, 'asio.hpp and boost_asio.hpp in one unit',
                    ring.including(['rdmacpp/asio.hpp', 'rdmacpp/boost_asio.hpp']))


def control(compiler):
    right = ASIO % NAMES['asio']
    wrong = right.replace(', async::request)', ', async::cm_id)')
    status, output = compiler.run([*ring.flags(), '-fsyntax-only'], wrong)
    return (wrong != right and status != 0, f'control: a handler for another result does not compile: {compiler}', output)


def main():
    found = ring.need_compilers()
    tap = ring.Tap()
    lacking = {name for name, (header, _) in FOREIGN.items() if not is_there(found[0], header)}
    for name in sorted(lacking):
        tap.skip(f'{name}.hpp', f'{FOREIGN[name][1]} is not installed')

    work = []
    for compiler in found:
        work.append((umbrella, compiler))
        if 'uv' in lacking:
            work.append((compiles, compiler, 'epoll.hpp, dispatcher.hpp', EPOLL))
        else:
            work.append((compiles, compiler, 'uv.hpp, and epoll.hpp and dispatcher.hpp after it', UV + EPOLL))
        # With newer ones of a family the one stands for the other, whose names alone are different.
        names = ['asio'] if ring.has_older(compiler) else NAMES
        work += [(asio, compiler, name) for name in names if name not in lacking]
    work.append((umbrella_control, found[0]))
    if not lacking & {'asio', 'boost_asio'}:
        work.append((both, found[0]))
    if 'asio' not in lacking:
        work.append((control, found[0]))
    for good, name, detail in ring.in_parallel(lambda item: item[0](*item[1:]), work):
        if good is None:
            tap.skip(name, detail)
        else:
            tap.check(good, name, detail)
    tap.skips()
    tap.done()


if __name__ == '__main__':
    main()
