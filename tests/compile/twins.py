#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Every public function that throws has its noexcept twin with a trailing std::error_code&.

The convention of the headers: what throws stands between `#if RDMACPP_EXCEPTIONS` and its #else or #endif, and every
other function is noexcept, defaulted or deleted. The twin of f(A, B) is f(A, B, std::error_code&) noexcept in the same
scope, outside such a block; on the data path f(A, B, std::nothrow_t) noexcept. Constructors are functions like others.
What returns a std::string calls no C function and can only run out of memory: it needs no twin. Parameter names and default arguments do not count. Namespaces called detail and non-public members are left alone.

A comment `// no twin: REASON` in the lines of a declaration, or alone in the line above it, excuses that one.

    twins.py [--list] [HEADER...]
"""

import dataclasses
import pathlib
import re
import sys

import ring

TOKEN = re.compile(r'[A-Za-z_]\w*|\d[\w.\']*|<=>|->\*|\.\.\.|::|->|<<|==|!=|<=|>=|&&|\|\||""|\'\'|\S')
EXCUSE = re.compile(r'//\s*no twin:\s*\S')
NOT_NAMES = {'requires', 'noexcept', 'explicit', 'alignas', 'decltype', '__attribute__', 'sizeof', 'alignof',
             'static_assert', 'if', 'while', 'typeid', 'return'}
TYPE_WORDS = {'const', 'volatile', 'int', 'unsigned', 'signed', 'long', 'short', 'char', 'bool', 'float', 'double',
              'void', 'auto'}
CLOSING = {'(': ')', '{': '}', '[': ']'}


# Functions that are excused here, so that the headers need no comment about it.
EXCUSED = {
    'rdma::error::error': 'makes the exception itself, and is called where one is thrown',
    'rdma::connect_error::connect_error': 'likewise',
    **dict.fromkeys([
        'rdma::async::callback::operator ()', 'rdma::async::awaitable::begin', 'rdma::async::awaitable::await_ready',
        'rdma::async::awaitable::await_suspend', 'rdma::async::poll_loop::poll', 'rdma::async::task::start',
        'rdma::async::task::get', 'rdma::async::tasks::spawn', 'rdma::dispatcher::dispatch', 'rdma::epoll_loop::run',
        'rdma::epoll_loop::run_once'],
        "runs the program's coroutines and handlers, and throws what they throw"),
    **dict.fromkeys(['rdma::asio::loop::loop', 'rdma::asio::initiate', 'rdma::boost_asio::loop::loop',
                     'rdma::boost_asio::initiate'], 'throws what Asio does'),
}


@dataclasses.dataclass(frozen=True)
class Token:
    text: str
    line: int
    throwing: bool


@dataclasses.dataclass
class Function:
    scope: str
    name: str
    parameters: tuple
    quals: str
    noexcept: bool
    exempt: bool
    throwing: bool
    first: int
    last: int
    header: str = ''
    excused: bool = False

    def __str__(self):
        return f'{self.header}:{self.first}: {self.scope}::{self.name}({", ".join(self.parameters)})'


def directive_sense(line, keyword):
    """+1 if a #if asks for exceptions, -1 if for their absence, 0 if for something else."""
    if keyword == 'if' and re.search(r'!\s*RDMACPP_EXCEPTIONS\b', line):
        return -1
    return 1 if keyword in ('if', 'elif') and re.search(r'\bRDMACPP_EXCEPTIONS\b', line) else 0


def tokenize(text):
    tokens, stack = [], []
    lines = ring.strip_comments(text).split('\n')
    index = 0
    while index < len(lines):
        line, start = lines[index], index + 1
        match = re.match(r'\s*#\s*(\w+)', line)
        if match:
            while line.endswith('\\') and index + 1 < len(lines):
                index += 1
                line = line[:-1] + lines[index]
            word = match.group(1)
            if word in ('if', 'ifdef', 'ifndef'):
                stack.append(directive_sense(line, word))
            elif word in ('else', 'elif') and stack:
                stack[-1] = -stack[-1] if word == 'else' else directive_sense(line, word)
            elif word == 'endif' and stack:
                stack.pop()
        else:
            tokens += [Token(token, start, 1 in stack) for token in TOKEN.findall(line)]
        index += 1
    return tokens


class Parser:
    """Walks namespace and class scopes; function bodies and initialisers are skipped."""

    def __init__(self, text):
        self.tokens, self.at, self.functions = tokenize(text), 0, []

    def text(self, offset=0):
        index = self.at + offset
        return self.tokens[index].text if index < len(self.tokens) else ''

    def skip_balanced(self):
        """Past the bracket at the current place and what it encloses."""
        close = [CLOSING[self.text()]]
        self.at += 1
        while close and self.at < len(self.tokens):
            token = self.text()
            if token in CLOSING:
                close.append(CLOSING[token])
            elif token == close[-1]:
                close.pop()
            self.at += 1

    def scope(self, name, kind='', public=True):
        """The declarations up to the closing brace of this scope."""
        access = public if kind != 'class' else False
        while self.at < len(self.tokens) and self.text() != '}':
            if kind and self.text() in ('public', 'protected', 'private') and self.text(1) == ':':
                access = public and self.text() == 'public'
                self.at += 2
                continue
            self.declaration(name, kind, access)
        self.at += 1

    def declaration(self, scope, kind, public):
        start = self.at
        self.prefix()
        if self.text() == 'extern' and self.text(1) == '""':
            self.at += 2
            if self.text() == '{':
                self.at += 1
                self.scope(scope, '', public)
                return
        head = self.at
        if self.text() == 'inline' and self.text(1) == 'namespace':
            self.at += 1
            inline = True
        else:
            inline = False
        if self.text() == 'namespace':
            self.at += 1
            name = []
            while self.at < len(self.tokens) and self.text() not in ('{', ';', '='):
                name.append(self.text())
                self.at += 1
            if self.text() != '{':
                self.to_semicolon()
                return
            self.at += 1
            hidden = 'detail' in name or not name
            # Inline namespaces, also those of `namespace a::inline b`, are no part of the name.
            name = re.sub(r'\binline \w+', '', ' '.join(name)).replace(' ', '').replace('::::', '::').strip(':')
            self.scope('::'.join(filter(None, [scope, '' if inline else name])), '', public and not hidden)
            return
        self.at = head
        friend = False
        while self.text() == 'friend':
            friend = True
            self.at += 1
        if self.text() in ('class', 'struct', 'union') and self.class_definition(scope, public, friend):
            return
        if self.text() in ('using', 'typedef', 'static_assert', 'enum', 'concept', 'template'):
            self.to_semicolon()
            return
        self.function_or_variable(start, scope, kind, public)

    def prefix(self):
        """Past template<...>, requires clauses and attributes."""
        while True:
            if self.text() == 'template' and self.text(1) == '<':
                self.at += 1
                self.angles()
            elif self.text() == '[' and self.text(1) == '[':
                self.skip_balanced()
            elif self.text() in ('alignas', '__attribute__') and self.text(1) == '(':
                self.at += 1
                self.skip_balanced()
            elif self.text() == 'requires':
                self.at += 1
                self.constraint()
            else:
                return

    def constraint(self):
        """Past a constraint: primaries joined by && and ||."""
        while True:
            while self.text() == '!':
                self.at += 1
            if self.text() == 'requires':
                self.at += 1
                if self.text() == '(':
                    self.skip_balanced()
                if self.text() == '{':
                    self.skip_balanced()
            elif self.text() == '(':
                self.skip_balanced()
            else:
                while self.text() == '::' or re.match(r'\w+$', self.text()):
                    name = self.text() != '::'
                    self.at += 1
                    if name and self.text() == '<':
                        self.angles()
                    if name and self.text() != '::':
                        break
            if self.text() not in ('&&', '||'):
                return
            self.at += 1

    def angles(self):
        depth = 0
        while self.at < len(self.tokens):
            token = self.text()
            if token in CLOSING:
                self.skip_balanced()
                continue
            depth += (token == '<') - (token == '>')
            self.at += 1
            if depth == 0:
                return

    def to_semicolon(self):
        while self.at < len(self.tokens) and self.text() != ';':
            if self.text() in CLOSING:
                self.skip_balanced()
            elif self.text() == '}':
                return
            else:
                self.at += 1
        self.at += 1

    def class_definition(self, scope, public, friend):
        """Walks into a class if a definition begins here; False if this is something else."""
        index = self.at + 1
        depth = 0
        name = ''
        while index < len(self.tokens):
            token = self.tokens[index].text
            if depth == 0 and token in ('{', ';', '(', '=', ':'):
                break
            depth += (token in '<[') - (token in '>]')
            if depth == 0 and not name and re.match(r'[A-Za-z_]', token) and not token.startswith('RDMACPP_') \
                    and token not in ('alignas', 'final'):
                name = token
            index += 1
        token = self.tokens[index].text if index < len(self.tokens) else ';'
        if token in '(=':
            return False
        kind = self.text()
        if token == ';' or friend:
            self.to_semicolon()
            return True
        self.at = index
        while self.text() != '{' and self.at < len(self.tokens):
            if self.text() == '<':
                self.angles()
            else:
                self.at += 1
        self.at += 1
        self.scope('::'.join(filter(None, [scope, name])), 'class' if kind == 'class' else 'struct', public)
        self.to_semicolon()
        return True

    def function_or_variable(self, start, scope, kind, public):
        """A function is recorded and its body skipped; anything else is skipped."""
        name, operator_at = '', 0
        while self.at < len(self.tokens):
            token = self.text()
            if token == 'operator':
                operator_at = self.at
                self.at += 1
                parts = []
                if self.text() == '(':
                    parts = ['()']
                    self.at += 2
                while self.text() != '(' and self.at < len(self.tokens):
                    parts.append(self.text())
                    self.at += 1
                name = 'operator ' + ' '.join(parts)
                break
            if token == '(':
                before = self.text(-1) if self.at > start else ''
                if before in NOT_NAMES or not re.match(r'[A-Za-z_]\w*$', before):
                    self.skip_balanced()
                    continue
                name = ('~' if self.text(-2) == '~' else '') + before
                break
            if token == '[':
                self.skip_balanced()
            elif token == '<':
                self.angles()
            elif token in ('=', '{', ';'):
                break
            elif token == '}':
                return
            else:
                self.at += 1
        # A definition outside of its class: the declaration inside is the one that counts.
        at_name = self.at - 2 if name.startswith('~') else self.at - 1
        if name.startswith('operator '):
            at_name = operator_at
        qualified = bool(name) and at_name > start and self.tokens[at_name - 1].text == '::'
        if not name:
            if self.text() == '{':
                self.skip_balanced()
            self.to_semicolon()
            return
        open_at = self.at
        self.skip_balanced()
        parameters = self.parameters(self.tokens[open_at + 1:self.at - 1])
        tail_at = self.at
        self.tail()
        # The tail ends before its `{`, `:` or `;`.
        tail = [token.text for token in self.tokens[tail_at:self.at]]
        last = self.tokens[min(self.at, len(self.tokens) - 1)].line
        if self.text() == ':':
            self.initialisers()
        if self.text() == '{':
            self.skip_balanced()
        elif self.text() == ';':
            self.at += 1
        if not public or qualified:
            return
        noexcept = name.startswith('~')
        for index, token in enumerate(tail):
            if token == 'noexcept':
                noexcept = tail[index + 1:index + 4] != ['(', 'false', ')']
        exempt = '=' in tail and tail[tail.index('=') + 1] in ('delete', 'default')
        head = [token.text for token in self.tokens[start:open_at]]
        text_maker = any(head[index:index + 3] == ['std', '::', 'string'] for index in range(len(head))) \
            and name.isidentifier()
        quals = ' '.join(token for token in tail[:3] if token in ('const', '&', '&&'))
        self.functions.append(Function(scope, name, parameters, quals, noexcept, exempt or 'consteval' in head or text_maker,
                                       self.tokens[open_at].throwing, self.tokens[start].line, last))

    def tail(self):
        """From behind the parameters to the body, the initialisers or the semicolon."""
        while self.at < len(self.tokens) and self.text() not in ('{', ';', ':', '}'):
            if self.text() == 'requires':
                self.at += 1
                self.constraint()
            elif self.text() in CLOSING:
                self.skip_balanced()
            elif self.text() == '<':
                self.angles()
            else:
                self.at += 1

    def initialisers(self):
        self.at += 1
        while self.at < len(self.tokens):
            while self.text() not in ('(', '{') and self.at < len(self.tokens):
                if self.text() == '<':
                    self.angles()
                else:
                    self.at += 1
            self.skip_balanced()
            if self.text() == '...':
                self.at += 1
            if self.text() != ',':
                return
            self.at += 1

    @staticmethod
    def parameters(tokens):
        """('std::span<std::byte const>', 'int'): types alone, as one string each."""
        result, current, depth, skipping = [], [], 0, False
        for token in [token.text for token in tokens] + [',']:
            if token == ',' and depth == 0:
                if current:
                    if len(current) > 1 and re.match(r'[A-Za-z_]\w*$', current[-1]) \
                            and current[-1] not in TYPE_WORDS and current[-2] not in ('::', 'struct', 'class', 'enum'):
                        current.pop()
                    result.append(''.join(f' {part}' if index and re.match(r'\w', part)
                                          and re.match(r'\w', current[index - 1]) else part
                                          for index, part in enumerate(current)))
                current, skipping = [], False
                continue
            if token == '=' and depth == 0:
                skipping = True
            depth += (token in '([{<') - (token in ')]}>')
            if not skipping:
                current.append(token)
        if result and result[-1] == 'std::source_location':
            result.pop()
        return tuple(result) if result != ['void'] else ()


def functions_of(header, text):
    parser = Parser(text)
    while parser.at < len(parser.tokens):
        parser.scope('')
    lines = text.split('\n')
    for function in parser.functions:
        function.header = header
        own = lines[function.first - 1:function.last]
        above = [line for line in lines[max(0, function.first - 2):function.first - 1] if line.lstrip().startswith('//')]
        function.excused = f'{function.scope}::{function.name}' in EXCUSED or \
            any(EXCUSE.search(line) for line in above + own)
    return parser.functions


TWIN_ENDS = (
    ('std::error_code&',),
    ('std::nothrow_t',),
    ('std::nothrow_t const&',),
    ('std::size_t&', 'std::nothrow_t'),  # the index of a chain's refused request, which the other form's message names
)


def faults(functions):
    """[what is wrong] in a set of functions, those of all headers together."""
    twins = {(f.scope, f.name, f.parameters) for f in functions if f.noexcept and not f.throwing and not f.exempt}
    wrong = []
    for function in functions:
        if function.exempt or function.excused:
            continue
        if function.throwing and not function.noexcept:
            if not any((function.scope, function.name, (*function.parameters, *end)) in twins for end in TWIN_ENDS):
                wrong.append(f'{function} has no noexcept twin with a trailing std::error_code&')
        elif not function.throwing and not function.noexcept:
            wrong.append(f'{function} is neither noexcept nor inside #if RDMACPP_EXCEPTIONS')
    return wrong


# Every line with a number is a fault, and nothing else is.
FIXTURE = r'''
namespace rdma::inline v0 { inline namespace more {
namespace detail { inline void hidden() {} }
template <class T, class = std::enable_if_t<(sizeof(T) > 1)>>
  requires std::is_integral_v<T> && requires(T t) { t + 1; }
class RDMACPP_EXPORT thing final : public base<T> {
public:
    thing() = default;
    explicit thing(std::error_code& ec) noexcept;
    thing(thing&& o) noexcept : p_(std::exchange(o.p_, nullptr)), q_{o.q_} {}
    thing(thing const&) = delete;
    ~thing() { if (p_) { destroy(); } }
    thing(int a, std::string_view b, std::error_code& ec) noexcept : a_{a}, b_(b), c_{[] { return 1; }()} {}
    void bind(address const& a, int backlog, std::error_code& ec) noexcept;
    std::optional<int> get_for(std::chrono::duration<R, P> d, std::error_code& ec) noexcept { return f<1>(d); }
    [[nodiscard]] auto pick(std::span<int const> s, std::error_code& ec) const noexcept -> std::vector<int>;
    void post(wr& w, std::nothrow_t) noexcept;
    void twin_throws(std::error_code& ec);              // 1
    int plain();                                        // 2
    bool operator()(int x) const;                       // 3
    explicit operator bool() const noexcept { return p_ != nullptr; }
    friend bool operator==(thing a, thing b) noexcept { return a.p_ == b.p_; }
    friend bool operator<(thing a, thing b) { return a.p_ < b.p_; }  // 4
    std::string text() const;
    std::vector<int> numbers() const; // no twin: allocates
    explicit thing(std::string const& s);               // 15
    static constexpr std::size_t size = sizeof(int);
    static constexpr int list[] = {1, 2, (3)};
    void not_a_twin(int) noexcept;
#if RDMACPP_EXCEPTIONS
    thing(int a, std::string_view b = "(x, y)") : thing{a, b, detail::thrower{"f"}} {}
    thing(long);                                        // 5
    void bind(address const& where, int backlog = (1 + 2));
    std::optional<int> get_for(std::chrono::duration<R, P> d) { return {}; }
    [[nodiscard]] auto pick(std::span<int const> s) const -> std::vector<int> { if (a) { return {}; } else return {}; }
    void post(wr& w);
    void lonely();                                      // 6
    void not_a_twin(int, long);                         // 7
    void twin_throws();                                 // 8
    void fine() noexcept;
    // no twin: the iterator of a throwing range
    int operator*() const;
#if defined(__cpp_lib_jthread)
    event get(std::stop_token stop);                    // 9
#endif
#else
    void get_without() noexcept;
#endif
    void after();                                       // 10
private:
    void secret();
public:
    struct inner { void deep(); };                      // 11
};
#if !RDMACPP_EXCEPTIONS
void in_else();                                         // 12
#endif
enum class e : int { a = (1), b };
template <class T> inline constexpr bool v = requires(T t) { t.f(); };
inline void free_one(int);                              // 13
inline std::vector<int> thing::defined_outside(int) { return {}; }
inline bool thing::operator()(int) const { return false; }
inline thing::thing(long) : p_(1) {}
inline thing::~thing() {}
#if RDMACPP_EXCEPTIONS
inline std::vector<int> thing::throws_outside(int) { return {}; }
#endif
inline void free_two(int, std::error_code&) noexcept;
#if RDMACPP_EXCEPTIONS && 1
inline void free_two(int x);
#endif
}}
class other { void hidden(); };
template <> struct std::hash<rdma::thing> { std::size_t operator()(rdma::thing) const; }; // 14
'''


def control():
    """'' or how the script judges the fixture wrongly."""
    expected = {number: match.group(1) for number, line in enumerate(FIXTURE.split('\n'), 1)
                for match in [re.search(r'// (\d+)$', line)] if match}
    found = {int(fault.split(':')[1]): fault for fault in faults(functions_of('fixture', FIXTURE))}
    missing = [f'fault {mark} (line {line}) is not found' for line, mark in expected.items() if line not in found]
    return '\n'.join(missing + [f'false alarm: {text}' for line, text in found.items() if line not in expected])


def main():
    arguments = sys.argv[1:]
    show = '--list' in arguments
    names = [argument for argument in arguments if argument != '--list']
    paths = {name: pathlib.Path(name) for name in names} or \
        {name: ring.INCLUDE / name for name in ring.headers() if not ring.is_detail(name)}
    tap = ring.Tap()
    trouble = control()
    tap.check(not trouble, 'control: what has no twin is found', trouble)
    functions = []
    for name, path in paths.items():
        functions += functions_of(name, path.read_text(encoding='utf-8'))
    if show:
        for function in functions:
            print(f'# {"throws  " if function.throwing else "noexcept" if function.noexcept else "other   "} {function}')
    wrong = faults(functions)
    for name in paths:
        mine = [fault for fault in wrong if fault.startswith(f'{name}:')]
        tap.check(not mine, name, '\n'.join(mine))
    throwing = sum(function.throwing for function in functions)
    tap.check(throwing > 0 or names, f'{len(functions)} public functions seen, {throwing} of them throw')
    tap.done()


if __name__ == '__main__':
    main()
