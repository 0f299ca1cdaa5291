// SPDX-License-Identifier: MIT
#include "partial_file.hpp"

#include "errors.hpp"

#include <array>
#include <climits>
#include <stdexcept>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

namespace rcopy {
namespace {

constexpr std::size_t longest_name = NAME_MAX - sizeof "..rcopy.info";

/// Removes a file, if there is one.
void remove(int where, std::string const& name) {
    if (::unlinkat(where, name.c_str(), 0) != 0 && errno != ENOENT)
        throw_errno("removing " + name);
}

/// Opens a file, but follows no link. @return nothing if there is none, and none was to be made
descriptor open(int where, std::string const& name, int flags) {
    descriptor opened(::openat(where, name.c_str(), flags | O_NOFOLLOW | O_CLOEXEC, 0666));
    if (!opened && errno != ENOENT)
        throw_errno("opening " + name);
    return opened;
}

void write_all(int fd, std::span<std::byte const> bytes, std::string const& name) {
    while (!bytes.empty()) {
        ssize_t const n = ::write(fd, bytes.data(), bytes.size());
        if (n < 0 && errno != EINTR)
            throw_errno("writing " + name);
        bytes = bytes.subspan(n < 0 ? 0 : static_cast<std::size_t>(n));
    }
}

} // namespace

directory::directory(std::string const& path)
    : fd_(checked(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC), path)) {
    if (::flock(fd_.get(), LOCK_EX | LOCK_NB) == 0)
        return;
    if (errno == EWOULDBLOCK)
        throw std::runtime_error(path + ": another rcopy has it");
    throw_errno(path);
}

char const* what_is_wrong_with(std::string const& name) {
    if (name.empty() || name == "." || name == "..")
        return "it names no file";
    if (name.size() > longest_name)
        return "it is too long";
    for (char const each : name)
        if (each == '/' || static_cast<unsigned char>(each) < 0x20 || each == 0x7f)
            return "it has a slash or a control character in it";
    if (name.front() == '.' && name.find(".rcopy") != name.npos)
        return "it is one of rcopy's own";
    return nullptr;
}

partial_file::partial_file(directory const& where, std::string name, identity const& file, bool restart)
    : where_(where.fd()), name_(std::move(name)), file_(file) {
    struct stat there {};
    if (::fstatat(where_, name_.c_str(), &there, AT_SYMLINK_NOFOLLOW) == 0 && !S_ISREG(there.st_mode))
        throw refused(reason::not_wanted, "there is something of this name that is no file");
    if (!go_on(restart))
        begin();
}

/// @return false: there is nothing to go on with
bool partial_file::go_on(bool restart) {
    if (restart)
        remove(where_, part());
    data_ = open(where_, part(), O_RDWR | O_APPEND);
    if (!data_)
        return false;
    struct stat there {};
    checked(::fstat(data_.get(), &there), part());
    size_ = static_cast<std::uint64_t>(there.st_size);
    if (!S_ISREG(there.st_mode) || size_ > file_.size || read_note() != expected_note())
        throw refused(reason::changed, "the part that is there is of another file, or of another state of it");
    return true;
}

void partial_file::begin() {
    write_note();
    data_ = open(where_, part(), O_RDWR | O_APPEND | O_CREAT | O_EXCL);
    size_ = 0;
}

std::string partial_file::expected_note() const {
    return "rcopy 1\nsize " + std::to_string(file_.size) + "\nchanged " + std::to_string(file_.seconds) + " s " +
           std::to_string(file_.nanoseconds) + " ns\n";
}

std::string partial_file::read_note() const {
    descriptor const file = open(where_, note(), O_RDONLY | O_NONBLOCK);
    std::array<char, 200> text{};
    ssize_t const n = file ? checked(::read(file.get(), text.data(), text.size()), note()) : 0;
    return {text.data(), static_cast<std::size_t>(n)};
}

void partial_file::write_note() const {
    remove(where_, new_note());
    descriptor const file = open(where_, new_note(), O_WRONLY | O_CREAT | O_EXCL);
    std::string const text = expected_note();
    write_all(file.get(), std::as_bytes(std::span(text)), new_note());
    checked(::fsync(file.get()), new_note());
    checked(::renameat(where_, new_note().c_str(), where_, note().c_str()), note());
    checked(::fsync(where_), "the directory");
}

void partial_file::read(std::uint64_t offset, std::span<std::byte> into) const {
    while (!into.empty()) {
        ssize_t const n = ::pread(data_.get(), into.data(), into.size(), static_cast<off_t>(offset));
        if (n == 0)
            errno = ENODATA; // somebody has cut it
        if (n == 0 || (n < 0 && errno != EINTR))
            throw_errno("reading " + part());
        into = into.subspan(n < 0 ? 0 : static_cast<std::size_t>(n));
        offset += n < 0 ? 0 : static_cast<std::uint64_t>(n);
    }
}

void partial_file::append(std::span<std::byte const> bytes) {
    write_all(data_.get(), bytes, part());
    size_ += bytes.size();
}

void partial_file::publish() {
    timespec const times[] = {{0, UTIME_NOW}, {file_.seconds, static_cast<long>(file_.nanoseconds)}};
    checked(::futimens(data_.get(), times), part());
    checked(::fsync(data_.get()), part());
    checked(::renameat(where_, part().c_str(), where_, name_.c_str()), name_);
    checked(::fsync(where_), "the directory");
    remove(where_, note());
}

void partial_file::discard() {
    remove(where_, part());
    remove(where_, note());
}

} // namespace rcopy
