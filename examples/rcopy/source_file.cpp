// SPDX-License-Identifier: MIT
#include "source_file.hpp"

#include "errors.hpp"

#include <stdexcept>

#include <fcntl.h>
#include <sys/stat.h>
#include <zlib.h>

namespace rcopy {

void checksum::add(std::span<std::byte const> bytes) {
    value_ = static_cast<std::uint32_t>(
        ::crc32_z(value_, reinterpret_cast<unsigned char const*>(bytes.data()), bytes.size()));
}

source_file::source_file(std::string path)
    : path_(std::move(path)), file_(checked(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK), path_)),
      state_(look()) {}

std::string source_file::name() const { return path_.substr(path_.find_last_of('/') + 1); }

identity source_file::look() const {
    struct stat now {};
    checked(::fstat(file_.get(), &now), path_);
    if (!S_ISREG(now.st_mode))
        throw std::runtime_error(path_ + ": not a regular file");
    return {static_cast<std::uint64_t>(now.st_size), now.st_mtim.tv_sec,
            static_cast<std::uint32_t>(now.st_mtim.tv_nsec)};
}

void source_file::check_unchanged() const {
    if (look() != state_)
        throw refused(reason::changed, path_ + " has changed while it was sent");
}

void source_file::read(std::uint64_t offset, std::span<std::byte> into) const {
    while (!into.empty()) {
        ssize_t const n = ::pread(file_.get(), into.data(), into.size(), static_cast<off_t>(offset));
        if (n == 0)
            throw refused(reason::changed, path_ + " has become shorter while it was sent");
        if (n < 0 && errno != EINTR)
            throw_errno("reading " + path_);
        into = into.subspan(n < 0 ? 0 : static_cast<std::size_t>(n));
        offset += n < 0 ? 0 : static_cast<std::uint64_t>(n);
    }
}

} // namespace rcopy
