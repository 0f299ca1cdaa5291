// SPDX-License-Identifier: MIT
// Memory: what can be registered, with which rights, and who keeps it: regions of every kind, windows, device memory,
// and buffers that own both the memory and its region.
#include "loopback.hpp"

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

using namespace unit;

namespace {

struct one_pd : featured {
    rdma::context device = open_device();
    rdma::pd pd{device};
    alignas(8) std::array<std::byte, 64> memory{};
};

/// A file of memory that stands for a dma-buf.
struct dmabuf {
    int fd = ::memfd_create("dmabuf", MFD_CLOEXEC);

    dmabuf() { REQUIRE(::ftruncate(fd, 8192) == 0); }
    dmabuf(dmabuf const&) = delete;
    dmabuf& operator=(dmabuf const&) = delete;
    ~dmabuf() { ::close(fd); }
};

rdma::wc_opcode opcode_of(rdma::work_completion const& completion) {
    REQUIRE(completion);
    return completion.success().opcode();
}

template <class Memory>
concept can_be_registered = requires(Memory& memory, rdma::pd_ref pd, std::error_code ec) {
    rdma::mr(pd, memory, rdma::access::none);
    rdma::mr(pd, memory, rdma::access::none, ec);
};
struct two_words {
    std::uint32_t a, b;
};
static_assert(can_be_registered<std::vector<std::byte>> && can_be_registered<std::vector<double>>);
static_assert(can_be_registered<std::array<two_words, 3>> && can_be_registered<std::string>);
static_assert(can_be_registered<int[4]> && can_be_registered<std::span<int>> && can_be_registered<std::span<int, 4>>);
static_assert(!can_be_registered<std::vector<int> const> && !can_be_registered<std::span<int const>>);
static_assert(!can_be_registered<std::array<std::byte, 4> const> && !can_be_registered<int>);

} // namespace

// ---- Registering ----------------------------------------------------------------------------------------------------

TEST_CASE_METHOD(one_pd, "memory: whatever lies in one piece is registered whole, in both forms", "[memory]") {
    auto const covers = [&](auto& range, void const* begin, std::size_t bytes) {
        std::error_code ec;
        rdma::mr const one(pd, range, rdma::access::local_write), two(pd, range, rdma::access::remote_read, ec);
        CHECK_FALSE(ec);
        for (rdma::mr const* each : {&one, &two}) {
            CHECK(each->addr() == begin);
            CHECK(each->length() == bytes);
            CHECK(each->native_handle()->pd == pd.native_handle());
        }
    };
    std::vector<std::uint32_t> vector(7);
    covers(vector, vector.data(), 28);
    std::array<two_words, 3> array{};
    covers(array, array.data(), 24);
    double c_array[2]{};
    covers(c_array, c_array, 16);
    std::string text = "text";
    covers(text, text.data(), 4);
    std::span const part = std::span(vector).subspan(2);
    covers(part, vector.data() + 2, 20);
    std::span<std::uint32_t, 3> fixed = std::span(vector).first<3>();
    covers(fixed, vector.data(), 12);
    std::span<std::byte> bytes = std::as_writable_bytes(std::span(vector));
    covers(bytes, vector.data(), 28);
    // Spans that exist for this one line, and plain memory.
    CHECK(rdma::mr(pd, std::span(vector).last(1), rdma::access::none).length() == 4);
    CHECK(rdma::mr(pd, static_cast<void*>(&array), sizeof array, rdma::access::none).length() == 24);
    std::error_code ec;
    CHECK(rdma::mr(pd, static_cast<void*>(&array), 5, rdma::access::none, ec).length() == 5);
    CHECK_FALSE(ec);
    std::vector<std::byte> nothing;
    CHECK(thrown([&] { (void)rdma::mr(pd, nothing, rdma::access::none); }, "0 bytes") == std::errc::invalid_argument);
}

TEST_CASE_METHOD(loopback, "memory: a region may be addressed from anywhere", "[memory]") {
    std::array<std::byte, 16> far{};
    rdma::mr const region = rdma::mr::reg_mr_iova(pd, far, 0x10000, every_access);
    CHECK(region.length() == 16);
    left.post_send(rdma::send_wr::write(ours.sge(0, 8), {0x10004, region.rkey()}).signaled());
    CHECK(only(sends));
    CHECK(far[4] == here[0]);
    left.post_send(rdma::send_wr::write(ours.sge(0, 8), {0x10009, region.rkey()}).signaled()); // one byte too far
    CHECK(only(sends).status() == rdma::wc_status::rem_access_err);
    std::error_code ec;
    CHECK_FALSE(rdma::mr::reg_mr_iova(pd, std::span<std::byte>(), 0, rdma::access::none, ec));
    CHECK(ec == std::errc::invalid_argument);
}

TEST_CASE_METHOD(loopback, "memory: on demand, all of it", "[memory]") {
    rdma::mr const all = rdma::mr::reg_implicit(pd, every_access);
    CHECK(all.length() == SIZE_MAX);
    ibv_sge const from{reinterpret_cast<std::uintptr_t>(here.data()), 8, all.lkey()};
    left.post_send(rdma::send_wr::write(from, theirs.remote()).signaled());
    CHECK(only(sends));
    CHECK(there[7] == here[7]);
    std::array pieces{from};
    rdma::advise_mr(pd, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, IBV_ADVISE_MR_FLAG_FLUSH, pieces);
    rdma::advise_mr(pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, std::span<ibv_sge const>(pieces));
    pieces[0].lkey = ours.lkey(); // which is pinned
    CHECK(thrown([&] { rdma::advise_mr(pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, pieces); }, "ibv_advise_mr") ==
          std::errc::invalid_argument);
    std::error_code ec;
    rdma::advise_mr(pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, pieces, ec);
    CHECK(ec == std::errc::invalid_argument);
    rdma::mr const some(pd, there, rdma::access::local_write | rdma::access::on_demand);
    pieces[0] = some.sge();
    rdma::advise_mr(pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, pieces, ec);
    CHECK_FALSE(ec);
}

TEST_CASE_METHOD(loopback, "memory: of another device, of none, and of the device itself", "[memory]") {
    dmabuf const file;
    std::uint64_t value = 41;
    REQUIRE(::pwrite(file.fd, &value, sizeof value, 4096) == sizeof value);
    rdma::mr const elsewhere = rdma::mr::reg_dmabuf_mr(pd, 4096, 4096, 0x20000, file.fd, every_access);
    CHECK(elsewhere.length() == 4096);
    left.post_send(rdma::send_wr::fetch_add(ours.sge(0, 8), {0x20000, elsewhere.rkey()}, 1).signaled());
    CHECK(only(sends));
    CHECK(number_at(here.data()) == 41);
    REQUIRE(::pread(file.fd, &value, sizeof value, 4096) == sizeof value);
    CHECK(value == 42);
    CHECK(thrown([&] { (void)rdma::mr::reg_dmabuf_mr(pd, 4096, 4097, 0, file.fd, rdma::access::none); }) ==
          std::errc::invalid_argument);

    rdma::mr const nothing = rdma::mr::alloc_null_mr(pd);
    there.fill(std::byte{7});
    left.post_send(rdma::send_wr::write(ibv_sge{99, 8, nothing.lkey()}, theirs.remote()).signaled());
    CHECK(only(sends));
    CHECK((there[7] == std::byte{} && there[8] == std::byte{7}));

    rdma::dm memory(device, 128, 3);
    memory.copy_to(64, std::span(here).first(8));
    std::array<std::byte, 8> back{};
    rdma::dm_ref(memory).copy_from(64, back);
    CHECK(back[0] == here[0]);
    CHECK(thrown([&] { memory.copy_to(124, back); }, "8 bytes") == std::errc::bad_address);
    CHECK(thrown([&] { memory.copy_from(124, back); }, "8 bytes") == std::errc::bad_address);
    rdma::mr part = rdma::reg_dm_mr(pd, memory, 64, 64, every_access | rdma::access::zero_based);
    CHECK(part.remote().address == 0);
    left.post_send(rdma::send_wr::write(part.sge(0, 8), theirs.remote()).signaled());
    CHECK(only(sends));
    CHECK(there[0] == here[0]);
    CHECK(thrown([&] { memory.destroy(); }) == std::errc::device_or_resource_busy);
    CHECK(thrown([&] { (void)rdma::reg_dm_mr(pd, memory, 64, 65, rdma::access::zero_based); }, "65 bytes") ==
          std::errc::invalid_argument);
    CHECK(thrown([&] { (void)rdma::dm(device, 0x20001); }, "131073 bytes") == std::errc::not_enough_memory);
    memory = rdma::dm(); // kept by its region
    CHECK(fake::count("ibv_free_dm") == 0);
    part = rdma::mr();
    CHECK(fake::count("ibv_free_dm") == 1);
}

// ---- Changing a region ----------------------------------------------------------------------------------------------

TEST_CASE_METHOD(one_pd, "memory: a region that is changed has other memory, other rights, another PD", "[memory]") {
    std::array<std::byte, 16> other{};
    rdma::mr mr(pd, memory, rdma::access::none);
    mr.rereg(IBV_REREG_MR_CHANGE_TRANSLATION, {}, other, rdma::access::none);
    CHECK((mr.addr() == other.data() && mr.length() == 16 && mr.native_handle()->pd == pd.native_handle()));
    std::error_code ec;
    mr.rereg(IBV_REREG_MR_CHANGE_ACCESS, {}, {}, rdma::access::local_write, ec);
    CHECK_FALSE(ec);
    ibv_pd* const old = pd.native_handle();
    rdma::pd fresh(device);
    mr.rereg(IBV_REREG_MR_CHANGE_PD, fresh, {}, rdma::access::none);
    CHECK(mr.native_handle()->pd == fresh.native_handle());
    pd.destroy(); // the old one is free to go
    CHECK(fake::count("ibv_dealloc_pd", old) == 1);
    CHECK(thrown([&] { fresh.destroy(); }) == std::errc::device_or_resource_busy);
    ibv_pd* const kept = fresh.native_handle();
    fresh = rdma::pd();
    CHECK(fake::count("ibv_dealloc_pd", kept) == 0);
    mr.destroy();
    CHECK(fake::count("ibv_dealloc_pd", kept) == 1);
}

TEST_CASE_METHOD(one_pd, "memory: a change that fails leaves the PD with its region", "[memory]") {
    rdma::mr mr(pd, memory, rdma::access::none);
    rdma::pd fresh(device);
    std::error_code ec;
    auto const change = [&](int what) { mr.rereg(what, fresh, memory, rdma::access::none); };
    CHECK(thrown([&] { change(0); }, "ibv_rereg_mr") == std::errc::invalid_argument);
    fake::fail("ibv_rereg_mr", 1, ENOMEM);
    CHECK(thrown([&] { change(IBV_REREG_MR_CHANGE_PD); }, "ibv_rereg_mr") == std::errc::not_enough_memory);
    for (int const failure : {IBV_REREG_MR_ERR_INPUT, IBV_REREG_MR_ERR_DONT_FORK_NEW, IBV_REREG_MR_ERR_DO_FORK_OLD,
                              IBV_REREG_MR_ERR_CMD, IBV_REREG_MR_ERR_CMD_AND_DO_FORK_NEW}) {
        fake::fail("ibv_rereg_mr", 1, failure); // what is returned; the reason is in errno
        mr.rereg(IBV_REREG_MR_CHANGE_PD, fresh, {}, rdma::access::none, ec);
        CHECK(ec == std::errc::io_error);
    }
    std::size_t const calls = calls_made();
    CHECK(thrown([&] { mr.rereg(IBV_REREG_MR_CHANGE_PD, {}, {}, rdma::access::none); }) == rdma::errc::not_bound);
    CHECK(calls_made() == calls);
    fresh.destroy();
    CHECK(thrown([&] { pd.destroy(); }) == std::errc::device_or_resource_busy);
}

// ---- Rights ---------------------------------------------------------------------------------------------------------

TEST_CASE("memory: rights by what they are for", "[memory]") {
    static_assert(rdma::for_send() == rdma::access::none);
    static_assert(rdma::for_recv() == rdma::access::local_write);
    static_assert(rdma::for_remote_read() == rdma::access::remote_read);
    static_assert(rdma::for_remote_write() == (rdma::access::remote_write | rdma::access::local_write));
    static_assert(rdma::for_remote_atomic() == (rdma::access::remote_atomic | rdma::access::local_write));
    static_assert(rdma::for_atomic_result() == rdma::access::local_write);
    using rdma::transport_type;
    static_assert(rdma::for_read_sink(transport_type::iwarp) ==
                  (rdma::access::remote_write | rdma::access::local_write));
    static_assert(rdma::for_read_sink(transport_type::ib) == rdma::access::local_write);
    static_assert(((rdma::for_remote_read() | rdma::for_recv()) & rdma::access::local_write) ==
                  rdma::access::local_write);
    static_assert((every_access & ~rdma::access::mw_bind & rdma::access::mw_bind) == rdma::access::none);
    static_assert(static_cast<unsigned>(rdma::access(1U << 20)) == IBV_ACCESS_RELAXED_ORDERING);
    rdma::access some = rdma::access::none;
    some |= rdma::access::remote_read;
    some &= ~rdma::access::remote_read;
    CHECK(some == rdma::access::none);
}

TEST_CASE("A24 on iWARP the sink of a read needs remote write, which for_read_sink() knows", "[field][memory]") {
    char const* const host = GENERATE(as<char const*>(), rxe_host, siw_host);
    CAPTURE(host);
    world w;
    connection c = connect_pair(host);
    alignas(8) std::array<std::byte, 8> far{}, near{};
    far[3] = std::byte{33};
    rdma::mr const source(c.server.pd(), far, rdma::for_remote_read());
    auto const read_into = [&](rdma::access allowed) {
        rdma::mr const sink(c.client.pd(), near, allowed);
        c.client.qp().post_send(rdma::send_wr::read(sink.sge(), source.remote()).signaled());
        return only(c.client.send_cq());
    };
    CHECK(read_into(rdma::for_read_sink(c.client.verbs().transport())));
    CHECK(near[3] == std::byte{33});
    bool const iwarp = c.client.verbs().transport() == rdma::transport_type::iwarp;
    CHECK(static_cast<bool>(read_into(rdma::for_recv())) == !iwarp); // what works on RoCE alone
}

TEST_CASE_METHOD(loopback, "memory: what a purpose needs is enough for it, and no more", "[memory]") {
    std::array<std::byte, 8> far{};
    auto const try_on = [&](rdma::access allowed, auto request) {
        rdma::mr const region(pd, far, allowed);
        left.post_send(request(region.remote()).signaled());
        bool const well = static_cast<bool>(only(sends));
        if (!well) { // a QP that failed starts again
            ibv_qp_attr reset{};
            for (rdma::qp* each : {&left, &right})
                each->modify(reset, IBV_QP_STATE);
            connect();
        }
        return well;
    };
    auto const write = [&](rdma::remote_memory to) { return rdma::send_wr::write(ours.sge(0, 8), to); };
    auto const read = [&](rdma::remote_memory from) { return rdma::send_wr::read(ours.sge(0, 8), from); };
    auto const add = [&](rdma::remote_memory at) { return rdma::send_wr::fetch_add(ours.sge(0, 8), at, 1); };
    CHECK(try_on(rdma::for_remote_write(), write));
    CHECK_FALSE(try_on(rdma::for_remote_write(), read));
    CHECK(try_on(rdma::for_remote_read(), read));
    CHECK_FALSE(try_on(rdma::for_remote_read(), write));
    CHECK(try_on(rdma::for_remote_atomic(), add));
    CHECK_FALSE(try_on(rdma::for_remote_atomic(), write));
    CHECK_FALSE(try_on(rdma::for_recv(), read));
}

TEST_CASE_METHOD(one_pd, "memory: hints that a device may not know go the way that drops them", "[memory]") {
    rdma::mr const relaxed(pd, memory, rdma::access::local_write | rdma::access::relaxed_ordering);
    CHECK(relaxed);
    rdma::mr const raw(pd, memory, rdma::access(1U << 29)); // of the optional range, and not even named yet
    CHECK(raw);
    CHECK(thrown([&] { (void)rdma::mr(pd, memory, rdma::access::remote_write); }) == std::errc::invalid_argument);
}

// ---- Not enough memory ----------------------------------------------------------------------------------------------

TEST_CASE_METHOD(one_pd, "A23 out of memory: the limit is named wherever pages are pinned", "[field][memory]") {
    locked_memory_limit const limit(64 << 10);
    REQUIRE(limit.set);
    rdma::cq const cq(device, 4);
    auto const says = [&](char const* function, bool limited, auto&& f) {
        CAPTURE(function);
        fake::fail(function, 1, ENOMEM);
        std::string text;
        try {
            f();
        } catch (rdma::error const& e) {
            text = e.what();
            CHECK(e.code() == std::errc::not_enough_memory);
        }
        CHECK((text.find("RLIMIT_MEMLOCK, ulimit -l) is 65536 bytes") != std::string::npos) == limited);
    };
    says("ibv_reg_mr", true, [&] { (void)rdma::mr(pd, memory, rdma::access::none); });
    says("ibv_reg_mr", true, [&] { (void)rdma::registered_buffer(pd, 8, rdma::access::none); });
    says("ibv_reg_mr_iova", true, [&] { (void)rdma::mr::reg_mr_iova(pd, memory, 0, rdma::access::none); });
    says("ibv_create_cq", true, [&] { (void)rdma::cq(device, 4); });
    says("ibv_create_cq_ex", true, [&] { (void)rdma::cq_ex(device, {}); });
    says("ibv_create_qp", true,
         [&] { (void)rdma::qp(pd, rdma::qp_type::rc, rdma::qp_init_attr{.send_cq = cq, .recv_cq = cq}); });
    says("ibv_create_srq", true, [&] { (void)rdma::srq(pd); });
    says("ibv_alloc_td", false, [&] { (void)rdma::td(device); });
    says("ibv_open_xrcd", false, [&] { (void)rdma::xrcd(device); });
}

// ---- Buffers with their region --------------------------------------------------------------------------------------

TEST_CASE_METHOD(one_pd, "memory: a registered buffer has pages of its own, zeroed", "[memory]") {
    std::size_t const page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    rdma::registered_buffer one(pd, 100, every_access), two(pd, page + 1, rdma::access::none);
    for (rdma::registered_buffer const* each : {&one, &two}) {
        CHECK(reinterpret_cast<std::uintptr_t>(each->data()) % page == 0);
        CHECK(each->bytes().data() == each->data());
        CHECK((each->addr() == each->data() && each->length() == each->size()));
        bool zeroed = true;
        for (std::byte const b : each->bytes())
            zeroed = zeroed && b == std::byte{};
        CHECK(zeroed);
    }
    CHECK((one.size() == 100 && two.size() == page + 1));
    one.data()[99] = std::byte{9};
    CHECK(one.sge().length == 100);
    CHECK((one.sge(8, 4).lkey == one.lkey() && one.remote(8).rkey == one.rkey()));
    CHECK(one.region().native_handle() == one.native_handle());
    std::byte* const at = two.data();
    one = std::move(two); // what it held goes at once
    CHECK(fake::count("ibv_dereg_mr") == 1);
    CHECK((one.data() == at && two.data() == nullptr && two.size() == 0 && !two));
    rdma::registered_buffer& same = one;
    one = std::move(same);
    swap(one, two);
    two.swap(one);
    rdma::registered_buffer moved(std::move(one));
    CHECK((moved.data() == at && one.bytes().empty()));
    CHECK(one.native_handle() == nullptr);
}

TEST_CASE_METHOD(one_pd, "memory: a registered buffer that cannot be, and its memory is gone again", "[memory]") {
    std::error_code ec;
    std::size_t const calls = calls_made();
    CHECK(thrown([&] { (void)rdma::registered_buffer(pd, 0, rdma::access::none); }) == std::errc::invalid_argument);
    CHECK_FALSE(rdma::registered_buffer(pd, 0, rdma::access::none, ec));
    CHECK(ec == std::errc::invalid_argument);
    CHECK(thrown([&] { (void)rdma::registered_buffer({}, 8, rdma::access::none); }) == rdma::errc::not_bound);
    std::size_t const too_much = SIZE_MAX / 2;
    CHECK(thrown([&] { (void)rdma::registered_buffer(pd, too_much, rdma::access::none); }, "mmap") ==
          std::errc::not_enough_memory);
    CHECK(calls_made() == calls);
    CHECK(thrown([&] { (void)rdma::registered_buffer(pd, 8, rdma::access::remote_write); }, "ibv_reg_mr") ==
          std::errc::invalid_argument);
    CHECK_FALSE(rdma::registered_buffer(pd, 8, rdma::access::remote_write, ec));
    CHECK(ec == std::errc::invalid_argument);
}

TEST_CASE_METHOD(one_pd, "memory: a dropped buffer gives its pages back", "[memory]") {
    std::size_t const page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    void* where = nullptr;
    unsigned char resident = 0;
    {
        rdma::registered_buffer const buffer(pd, page, rdma::access::none);
        where = buffer.data();
        CHECK(::mincore(where, page, &resident) == 0);
    }
    CHECK((::mincore(where, page, &resident) == -1 && errno == ENOMEM)); // nothing is there
}

/// The guest ring has huge pages, and so the half of this that may not run here.
TEST_CASE_METHOD(one_pd, "memory: a registered buffer of huge pages, or who says that there are none", "[memory]") {
    std::error_code ec;
    rdma::registered_buffer huge(pd, 100, every_access, rdma::pages::huge, ec);
    if (ec) {
        CHECK(ec == std::errc::not_enough_memory);
        CHECK(thrown([&] { (void)rdma::registered_buffer(pd, 8, rdma::access::none, rdma::pages::huge); }, "mmap") ==
              std::errc::not_enough_memory);
        CHECK(fake::live().mrs == 0);
        return;
    }
    CHECK((huge.size() == 100 && huge.length() == 100));
    CHECK(reinterpret_cast<std::uintptr_t>(huge.data()) % (2 << 20) == 0);
    huge.data()[99] = std::byte{1};
    void* const where = huge.data();
    huge = rdma::registered_buffer();
    unsigned char resident = 0;
    CHECK((::mincore(where, 4096, &resident) == -1 && errno == ENOMEM)); // 100 is no multiple of a huge page
}

// ---- Windows --------------------------------------------------------------------------------------------------------

TEST_CASE_METHOD(loopback, "memory: a window of type 1 gives a part of a region, and takes it back", "[memory]") {
    rdma::mw window(pd, rdma::mw_type::type_1);
    std::uint32_t const first = window.rkey();
    window.bind(right, theirs, 8, 8, rdma::access::remote_write, 5, IBV_SEND_SIGNALED);
    auto const bound = only(sends);
    CHECK((bound.wr_id() == 5 && bound.success().opcode() == rdma::wc_opcode::bind_mw));
    CHECK(window.rkey() != first);
    CHECK(rdma::mw_ref(window).rkey() == window.rkey());
    rdma::remote_memory const inside{theirs.remote(8).address, window.rkey()};
    left.post_send(rdma::send_wr::write(ours.sge(0, 8), inside).signaled());
    CHECK(only(sends));
    CHECK(there[8] == here[0]);
    std::size_t const calls = calls_made();
    CHECK(thrown([&] { theirs.destroy(); }) == std::errc::device_or_resource_busy); // C would say EBUSY
    CHECK(calls_made() == calls);
    window.bind(right, {}, 0, 0, rdma::access::none); // unbound: the key is dead
    left.post_send(rdma::send_wr::write(ours.sge(0, 8), {inside.address, window.rkey()}).signaled());
    CHECK(only(sends).status() == rdma::wc_status::rem_access_err);
    window.destroy();
    theirs.destroy();
}

TEST_CASE_METHOD(loopback, "memory: a window of type 2 is bound by a request, and taken back by another", "[memory]") {
    rdma::mw window(pd, rdma::mw_type::type_2);
    std::uint32_t const key = window.next_rkey();
    CHECK(key == ::ibv_inc_rkey(window.rkey()));
    right.post_send(window.bind_request(key, theirs, 0, 16, rdma::access::remote_read).signaled());
    CHECK(opcode_of(only(sends)) == rdma::wc_opcode::bind_mw);
    CHECK(window.rkey() == key);
    there[3] = std::byte{77};
    left.post_send(rdma::send_wr::read(ours.sge(0, 8), {theirs.remote().address, key}).signaled());
    CHECK(only(sends));
    CHECK(here[3] == std::byte{77});
    CHECK(thrown([&] { theirs.destroy(); }) == std::errc::device_or_resource_busy);
    right.post_send(rdma::send_wr::local_inv(key).signaled());
    CHECK(opcode_of(only(sends)) == rdma::wc_opcode::local_inv);
    left.post_send(rdma::send_wr::read(ours.sge(0, 8), {theirs.remote().address, key}).signaled());
    CHECK(only(sends).status() == rdma::wc_status::rem_access_err);
}

TEST_CASE("memory: a bound window, its region, PD and QP are dropped in every order", "[memory]") {
    std::array<int, 4> order{0, 1, 2, 3};
    rdma::mw_type const kind = GENERATE(rdma::mw_type::type_1, rdma::mw_type::type_2);
    do {
        CAPTURE(order);
        loopback w;
        rdma::mw window(w.pd, kind);
        if (kind == rdma::mw_type::type_1)
            window.bind(w.right, w.theirs, 0, 8, rdma::access::remote_read);
        else
            w.right.post_send(window.bind_request(window.next_rkey(), w.theirs, 0, 8, rdma::access::remote_read));
        std::size_t const before = fake::count("ibv_dereg_mr");
        for (int const each : order)
            switch (each) {
            case 0:
                w.theirs = {};
                CHECK((fake::count("ibv_dereg_mr") == before) == static_cast<bool>(window));
                break;
            case 1: w.pd = {}; break;
            case 2: w.right = {}; break;
            case 3: window = {}; break;
            }
        CHECK(fake::count("ibv_dereg_mr") == before + 1);
    } while (std::next_permutation(order.begin(), order.end()));
}

TEST_CASE_METHOD(loopback, "memory: a window moves from region to region, and keeps the one it has left until then",
                 "[memory]") {
    rdma::mw window(pd, rdma::mw_type::type_1);
    std::array<std::byte, 8> memory{};
    rdma::mr first(pd, memory, every_access), second(pd, memory, every_access), third(pd, memory, every_access);
    window.bind(left, first, 0, 8, rdma::access::remote_read);
    window.bind(left, second, 0, 8, rdma::access::remote_read);
    window.bind(left, second, 0, 4, rdma::access::remote_read); // the same one again
    second = rdma::mr();
    CHECK(fake::count("ibv_dereg_mr") == 0);
    window.bind(left, third, 0, 8, rdma::access::remote_read);
    first = rdma::mr();
    third = rdma::mr();
    window = rdma::mw();
    CHECK(fake::count("ibv_dereg_mr") == 3);
    rdma::mr const without(pd, memory, rdma::access::none);
    rdma::mw refused(pd, rdma::mw_type::type_1);
    CHECK(thrown([&] { refused.bind(left, without, 0, 8, rdma::access::remote_read, 44); }, "request 44") ==
          std::errc::invalid_argument);
    CHECK(refused.bind(left, without, 0, 8, rdma::access::remote_read, 44, 0, std::nothrow) ==
          std::errc::invalid_argument);
}
