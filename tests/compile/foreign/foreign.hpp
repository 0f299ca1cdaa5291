// SPDX-License-Identifier: MIT
// Somebody else's names, as a unit may have them around ours: a namespace rdma at the top, with a detail of its own,
// and one inside of the program's namespace.
#pragma once

#include <cstddef>

namespace rdma {

class Connection {
public:
    int fd = -1;
};
class Buffer;

namespace detail {
struct theirs {};
#ifdef FOREIGN_FIRST // later, it is our own detail that is opened again, and names in it are ours
template <class T>
struct ref_hash;
class mutex {};
struct pin {};
struct process {};
enum class order { first };
template <class T>
void take(T&&) = delete;
#endif
} // namespace detail

// Found for the arguments of an unqualified call, as our types are in an inline namespace of this one: each takes
// everything better than the standard library's.
template <class T>
void move(T&&) = delete;
template <class T>
void forward(T&&) = delete;
template <class T, class U>
void exchange(T&&, U&&) = delete;
template <class T>
void swap(T&, T&) = delete;
template <class T>
void addressof(T&) = delete;
template <class T>
void as_const(T&) = delete;
template <class T>
void begin(T&&) = delete;
template <class T>
void end(T&&) = delete;
template <class T>
void data(T&&) = delete;
template <class T>
void size(T&&) = delete;
template <class T>
void get(T&&) = delete;
template <class T, class U>
void min(T&&, U&&) = delete;
template <class T, class U>
void max(T&&, U&&) = delete;
template <class... T>
void launder(T&&...) = delete;
template <class... T>
void construct_at(T&&...) = delete;
template <class... T>
void destroy_at(T&&...) = delete;
template <class... T>
void copy(T&&...) = delete;
template <class... T>
void find(T&&...) = delete;
template <class... T>
void poll(T&&...) = delete;
template <class... T>
void close(T&&...) = delete;
template <class... T>
void read(T&&...) = delete;
template <class... T>
void write(T&&...) = delete;

} // namespace rdma

namespace app {

namespace rdma {
class event_channel;
class cm_id {
public:
    int number = 7;
};
enum class errc { none };
namespace detail {
struct pin {};
} // namespace detail
} // namespace rdma

} // namespace app
