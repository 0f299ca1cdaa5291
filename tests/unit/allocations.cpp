// SPDX-License-Identifier: MIT
// The global operator new of the test program: malloc, with a count and a fault.
#include "allocations.hpp"

#include <fake/fake.hpp>

#include <cstdlib>
#include <new>

namespace {

struct ledger {
    bool watching = false;
    std::size_t made = 0;
    std::size_t fail_at = 0;
    bool struck = false;
};

thread_local constinit ledger mine;

} // namespace

namespace unit {

allocation_watch::allocation_watch(std::size_t fail_at) noexcept { mine = {true, 0, fail_at, false}; }
allocation_watch::~allocation_watch() { mine.watching = false; }
std::size_t allocation_watch::made() const noexcept { return mine.made; }
bool allocation_watch::struck() const noexcept { return mine.struck; }
bool allocation_struck() noexcept { return mine.struck; }

} // namespace unit

#if RDMACPP_TEST_ALLOCATIONS

namespace {

void* allocate(std::size_t size, std::size_t alignment) noexcept {
    if (mine.watching && !fake::inside() && ++mine.made == mine.fail_at) {
        mine.struck = true;
        return nullptr;
    }
    if (alignment <= alignof(std::max_align_t))
        return std::malloc(size != 0 ? size : 1);
    return std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
}

void* allocate_or_throw(std::size_t size, std::size_t alignment) {
    if (void* const memory = allocate(size, alignment))
        return memory;
    throw std::bad_alloc();
}

std::size_t value(std::align_val_t alignment) noexcept { return static_cast<std::size_t>(alignment); }

} // namespace

void* operator new(std::size_t size) { return allocate_or_throw(size, 0); }
void* operator new[](std::size_t size) { return allocate_or_throw(size, 0); }
void* operator new(std::size_t size, std::align_val_t a) { return allocate_or_throw(size, value(a)); }
void* operator new[](std::size_t size, std::align_val_t a) { return allocate_or_throw(size, value(a)); }
void* operator new(std::size_t size, std::nothrow_t const&) noexcept { return allocate(size, 0); }
void* operator new[](std::size_t size, std::nothrow_t const&) noexcept { return allocate(size, 0); }
void* operator new(std::size_t size, std::align_val_t a, std::nothrow_t const&) noexcept {
    return allocate(size, value(a));
}
void* operator new[](std::size_t size, std::align_val_t a, std::nothrow_t const&) noexcept {
    return allocate(size, value(a));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::nothrow_t const&) noexcept { std::free(memory); }
void operator delete[](void* memory, std::nothrow_t const&) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t, std::nothrow_t const&) noexcept { std::free(memory); }
void operator delete[](void* memory, std::align_val_t, std::nothrow_t const&) noexcept { std::free(memory); }

#endif
