// SPDX-License-Identifier: MIT
// Files that arrive piece by piece, and get their names only when they are whole.
//
// A file NAME begins as .NAME.rcopy, beside .NAME.rcopy.info, which says of which state of which file it is. Pieces are
// only appended: what is there is always a beginning of the file, wherever the program was killed. In the end the data
// is brought to the disk (fsync), the file renamed, and the directory brought to the disk; then the note goes. Whenever
// the program is killed, the next one finds one of these, and each tells what to do:
//
//     neither of them, or the note alone    begin (the note is written anew; it is in place before there is data)
//     both                                  go on, if the note is of the same state; else refuse, or begin anew
//     the data alone                        not ours: refuse, or begin anew
#pragma once

#include "descriptor.hpp"
#include "protocol.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace rcopy {

/// A directory that files arrive in. One program at a time may have it.
class directory {
public:
    /// @throws std::system_error; std::runtime_error if another program has it
    explicit directory(std::string const& path);

    int fd() const noexcept { return fd_.get(); }

private:
    descriptor fd_;
};

/// Why a sender may not give this name to a file, or nothing: it names a file right in the directory that it goes to,
/// and none of ours.
char const* what_is_wrong_with(std::string const& name);

class partial_file {
public:
    /// Goes on with the part that is there, or begins.
    /// @param name one that nothing is wrong with
    /// @throws refused, std::system_error
    partial_file(directory const& where, std::string name, identity const& file, bool restart);

    /// How much of it is there.
    std::uint64_t size() const noexcept { return size_; }
    bool is_whole() const noexcept { return size_ == file_.size; }

    /// Reads what is there, from an offset on. @throws std::system_error
    void read(std::uint64_t offset, std::span<std::byte> into) const;
    /// @throws std::system_error
    void append(std::span<std::byte const> bytes);

    /// Gives it its name, in place of a file that has it. Precondition: it is whole, and right.
    void publish();
    /// Forgets what is there. @throws std::system_error
    void discard();

private:
    std::string part() const { return '.' + name_ + ".rcopy"; }
    std::string note() const { return part() + ".info"; }
    std::string new_note() const { return part() + ".new"; }

    bool go_on(bool restart);
    void begin();
    void write_note() const;
    std::string read_note() const;
    std::string expected_note() const;

    int where_;
    std::string name_;
    identity file_;
    descriptor data_;
    std::uint64_t size_ = 0;
};

} // namespace rcopy
