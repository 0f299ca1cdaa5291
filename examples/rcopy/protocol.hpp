// SPDX-License-Identifier: MIT
// What the two ends of rcopy say to each other. Numbers are big endian; a message is its kind, one byte, and its
// fields.
//
//     sender                             receiver
//     offer: name, size, time       -->  is there a part of it already?
//                                   <--  have: so many bytes, with this checksum      } for each step
//     same: so has the file here    -->                                               } of that part
//                                   <--  ring: the memory to write to, and from which byte of the file on
//     RDMA WRITE into a slot, and
//     chunk: what is in the slot    -->  appends it to the part
//                                   <--  credit: all up to here is written: its slot is free again
//     finished: checksum of it all  -->  compares, and gives the file its name
//                                   <--  done
//
// or, at any time, a refusal from the receiver. The sender speaks first, as iWARP wants, and announces what it has
// written with a message, since iWARP has no RDMA WRITE with immediate data: on every device a message that was sent
// after a write is received after it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>

namespace rcopy {

inline constexpr std::size_t max_message = 512;                 // bytes
inline constexpr std::uint32_t max_slots = 32;                  // of a ring
inline constexpr std::uint32_t max_slot_size = 4 * 1024 * 1024; // bytes
inline constexpr std::size_t max_text = 300;                    // bytes of a name, or of a reason

/// A name, or a reason. It owns nothing: g++ 11 and 12 cannot keep a std::string in what is made within a co_await.
class short_text {
public:
    short_text() = default;
    /// What is too long is cut off.
    explicit short_text(std::string_view from) : size_(static_cast<std::uint16_t>(from.copy(text_.data(), max_text))) {}
    std::string string() const { return {text_.data(), size_}; }
    std::span<char const> chars() const { return std::span(text_).first(size_); }

private:
    std::array<char, max_text> text_{};
    std::uint16_t size_ = 0;
};

/// What tells one state of a file from another, without reading it.
struct identity {
    std::uint64_t size = 0;
    std::int64_t seconds = 0; ///< When it was last changed.
    std::uint32_t nanoseconds = 0;
    friend bool operator==(identity const&, identity const&) = default;
};

struct offer {
    static constexpr std::uint64_t greeting = 0x72636f7079000001; // "rcopy", version 1
    std::uint64_t hello = greeting;
    identity file;
    bool restart = false; ///< Forget the part that is there.
    short_text name;

    template <class Wire>
    void fields(Wire& wire) {
        wire(hello, file.size, file.seconds, file.nanoseconds, restart, name);
    }
};

struct have {
    std::uint64_t bytes = 0; ///< From the file's beginning.
    std::uint32_t checksum = 0;

    template <class Wire>
    void fields(Wire& wire) {
        wire(bytes, checksum);
    }
};

struct same {
    template <class Wire>
    void fields(Wire&) {}
};

struct ring {
    std::uint64_t address = 0;
    std::uint32_t rkey = 0;
    std::uint32_t slots = 0;
    std::uint32_t slot_size = 0;
    std::uint64_t from = 0; ///< Where in the file the first chunk begins.

    template <class Wire>
    void fields(Wire& wire) {
        wire(address, rkey, slots, slot_size, from);
    }
};

struct chunk {
    std::uint64_t offset = 0; ///< In the file.
    std::uint32_t length = 0;
    std::uint32_t slot = 0;

    template <class Wire>
    void fields(Wire& wire) {
        wire(offset, length, slot);
    }
};

struct credit {
    std::uint64_t written = 0; ///< Bytes from the file's beginning.

    template <class Wire>
    void fields(Wire& wire) {
        wire(written);
    }
};

struct finished {
    std::uint32_t checksum = 0;

    template <class Wire>
    void fields(Wire& wire) {
        wire(checksum);
    }
};

struct done {
    template <class Wire>
    void fields(Wire&) {}
};

enum class reason : std::uint8_t {
    not_wanted, ///< Its name, its size, or the receiver has no place for it.
    changed,    ///< The part that is there is of another state of the file.
    damaged,    ///< What arrived is not what was sent.
    failed,     ///< The receiver could not write it.
    nonsense,   ///< The sender does not follow the protocol.
};

struct refusal {
    reason why = reason::failed;
    short_text text;

    template <class Wire>
    void fields(Wire& wire) {
        wire(why, text);
    }
};

using message = std::variant<offer, have, same, ring, chunk, credit, finished, done, refusal>;
static_assert(std::is_trivially_copyable_v<message>); // see short_text

/// A message as it goes over the wire.
class letter {
public:
    explicit letter(message said) {
        put(static_cast<std::uint8_t>(said.index()));
        std::visit([this](auto& each) { each.fields(*this); }, said);
    }
    std::span<std::byte const> bytes() const { return std::span(bytes_).first(size_); }

    template <class... Fields>
    void operator()(Fields const&... fields) {
        (put(fields), ...);
    }

private:
    template <class Field>
    void put(Field field) {
        static_assert(std::is_integral_v<Field> || std::is_enum_v<Field>);
        auto const value = static_cast<std::uint64_t>(field);
        for (std::size_t i = sizeof field; i-- != 0;)
            bytes_.at(size_++) = static_cast<std::byte>(value >> (8 * i));
    }
    void put(short_text const& text) {
        put(static_cast<std::uint16_t>(text.chars().size()));
        for (char const each : text.chars())
            put(each);
    }

    std::array<std::byte, max_message> bytes_{};
    std::size_t size_ = 0;
};

/// Reads a letter. Whatever the bytes are, it reads no further than they go.
class letter_reader {
public:
    /// @return nothing if this is no message
    static std::optional<message> read(std::span<std::byte const> bytes) {
        letter_reader reader(bytes);
        std::uint8_t kind = 0;
        reader.get(kind);
        std::optional<message> said = reader.read(kind, std::make_index_sequence<std::variant_size_v<message>>());
        if (!reader.good_ || !reader.left_.empty())
            return std::nullopt;
        return said;
    }

    template <class... Fields>
    void operator()(Fields&... fields) {
        (get(fields), ...);
    }

private:
    explicit letter_reader(std::span<std::byte const> bytes) : left_(bytes) {}

    template <std::size_t... Kinds>
    std::optional<message> read(std::size_t kind, std::index_sequence<Kinds...>) {
        std::optional<message> said;
        ((kind == Kinds ? std::get<Kinds>(said.emplace(std::in_place_index<Kinds>)).fields(*this) : void()), ...);
        return said;
    }

    template <class Field>
    void get(Field& field) {
        std::uint64_t value = 0;
        for (std::byte const each : take(sizeof field))
            value = value << 8 | std::to_integer<std::uint64_t>(each);
        field = static_cast<Field>(value);
    }
    void get(bool& field) {
        std::uint8_t value = 0;
        get(value);
        good_ = good_ && value <= 1;
        field = value == 1;
    }
    void get(short_text& text) {
        std::uint16_t size = 0;
        get(size);
        good_ = good_ && size <= max_text;
        std::span<std::byte const> const from = take(size);
        text = short_text({reinterpret_cast<char const*>(from.data()), from.size()});
    }
    std::span<std::byte const> take(std::size_t size) {
        good_ = good_ && size <= left_.size();
        std::span<std::byte const> const taken = left_.first(good_ ? size : 0);
        left_ = left_.subspan(taken.size());
        return taken;
    }

    std::span<std::byte const> left_;
    bool good_ = true;
};

} // namespace rcopy
