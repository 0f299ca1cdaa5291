// SPDX-License-Identifier: MIT
/// @file
/// A table of wrapped calls, and what is checked of each: that its failure is read where its convention puts it.
/// coverage.py sees to it that no wrapped call is missing.
#pragma once

#include "support.hpp"

#include <string>
#include <system_error>

namespace unit {

/// How a failure is told.
enum class told {
    code,     ///< By its errno.
    as_given, ///< By its errno as C gave it, even if that is negative: the twins of the data path.
    no_code,  ///< C gives no reason.
};

/// One call in both its forms; what they need is in Objects.
template <class Objects>
struct wrapped {
    char const* function;
    void (*throwing)(Objects&); // null: there is none
    void (*twin)(Objects&, std::error_code&);
    told how = told::code;
    char const* inside = nullptr; // the function that fails inside an inline one

    char const* failing() const { return inside ? inside : function; }
    std::error_code wanted(int code) const {
        return how == told::no_code ? rdma::errc::poll_failed : std::error_code(code, std::system_category());
    }
};

inline std::error_code of(std::errc e) { return {static_cast<int>(e), std::system_category()}; }

/// An object that is destroyed by name, in vain: it stays.
template <class T>
void ends(T object) {
    object.destroy();
}
template <class T>
void ends(T object, std::error_code& ec) {
    object.destroy(ec);
    CHECK(static_cast<bool>(object));
}

/// Both forms tell this failure; `code` may be negative, as some providers have it.
template <class Objects>
void check_failure(wrapped<Objects> const& each, Objects& all, int code) {
    std::error_code const wanted = each.wanted(code < 0 ? -code : code);
    if (each.throwing) {
        fake::fail(each.failing(), 1, code);
        try {
            each.throwing(all);
            FAIL_CHECK("nothing was thrown");
        } catch (rdma::error const& e) {
            CHECK(e.code() == wanted);
            CHECK(std::string(e.function()) == each.function);
            CHECK_THAT(std::string(e.what()), Catch::Matchers::StartsWith(each.function));
            CHECK_THAT(std::string(e.what()), rdmacpp_test::contains(wanted.message()));
        }
        CHECK(fake::failed().function == each.failing());
    }
    std::error_code ec;
    fake::fail(each.failing(), 1, code);
    each.twin(all, ec);
    CHECK(ec == (each.how == told::as_given ? each.wanted(code) : wanted));
    CHECK(fake::failed().function == each.failing());
    CHECK(fake::failed().code == code);
    fake::disarm();
}

} // namespace unit
