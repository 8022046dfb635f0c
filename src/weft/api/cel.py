"""Validates CEL expressions of access log filters. Input: an expression. Output: its syntax error, and the attributes
in it that do not exist.

Envoy rejects a whole listener for one expression that it cannot compile, so no such expression may be sent to a proxy.
The grammar is that of https://github.com/google/cel-spec, without the comprehensions, messages and functions that Envoy
1.40 lacks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import NoReturn

import msgspec

from weft.api.regex import regex_flaw
from weft.api.syntax import words
from weft.base.suggest import did_you_mean

MOST_DEPTH = 40
MOST_LENGTH = 8_192

_QUOTES = "\"'`"
_OCTET = r"""[abfnrtv\\?"'`]|[xX][0-9a-fA-F]{2}|[0-3][0-7]{2}"""
_BYTE = rf"""\\(?:{_OCTET})"""
_POINT = r"(?![dD][89a-fA-F])[0-9a-fA-F]{4}"  # half of a surrogate pair is not a character
_ESCAPE = rf"""\\(?:{_OCTET}|u{_POINT}|U0000{_POINT}|U00(?:0[1-9a-fA-F]|10)[0-9a-fA-F]{{4}})"""
_RAW = r"""(?:[rR](?:"[^"\r\n]*"|'[^'\r\n]*'))"""
# The regular expression is compiled at its first use and not at import: that takes milliseconds, and most meshes have
# no CEL.
_SYNTAX = rf"""
    (?P<space>[ \t\r\n\f]+|//[^\n]*)
  | (?P<text>{_RAW}|"(?:[^\\"\r\n]|{_ESCAPE})*"|'(?:[^\\'\r\n]|{_ESCAPE})*')
  | (?P<bytes>[bB](?:{_RAW}|"(?:[^\\"\r\n]|{_BYTE})*"|'(?:[^\\'\r\n]|{_BYTE})*'))
  | (?P<number>(?:[0-9]*\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+)|(?:0x[0-9a-fA-F]+|[0-9]+)[uU]?)
  | (?P<name>[A-Za-z_][A-Za-z0-9_]*)
  | (?P<sign>&&|\|\||==|!=|<=|>=|[-+*/%<>!?:.,()\[\]{{}}])
    """
_RESERVED = frozenset(
    words("as break const continue else for function if import let loop package namespace return var void while")
)
_LITERALS = frozenset({"true", "false", "null"})
_COMPREHENSIONS = frozenset(words("all exists exists_one map filter"))
_OF_TIME = words("""
    getDate getDayOfMonth getDayOfWeek getDayOfYear getFullYear getHours getMilliseconds getMinutes getMonth getSeconds
    """)
# Numbers of arguments that each function accepts, and below each method (without its receiver).
_FUNCTIONS: Mapping[str, tuple[int, ...]] = dict.fromkeys(
    words("size int uint double bytes bool type dyn timestamp duration"), (1,)
) | dict.fromkeys(words("matches startsWith endsWith contains"), (2,))
_METHODS: Mapping[str, tuple[int, ...]] = {
    "size": (0,),
    **dict.fromkeys(words("matches startsWith endsWith contains"), (1,)),
    **dict.fromkeys(_OF_TIME, (0, 1)),
}
_RELATIONS = frozenset(("==", "!=", "<", "<=", ">", ">=", "in"))

_TLS = """mtls requested_server_name tls_version subject_local_certificate subject_peer_certificate
    dns_san_local_certificate dns_san_peer_certificate uri_san_local_certificate uri_san_peer_certificate
    sha256_peer_certificate_digest transport_failure_reason"""
ATTRIBUTES: Mapping[str, Collection[str]] = {
    "request": words("""path url_path host scheme method headers referer useragent time id protocol query duration size
        total_size"""),
    "response": words("""code code_details flags grpc_status headers trailers size total_size backend_latency"""),
    "connection": words(f"id termination_details {_TLS}"),
    "upstream": words(f"address port local_address request_attempt_count cx_pool_ready_duration locality {_TLS}"),
    "source": ("address", "port"),
    "destination": ("address", "port"),
    "xds": words("""node cluster_name cluster_metadata listener_direction listener_metadata route_name route_metadata
        virtual_host_name virtual_host_metadata upstream_host_metadata upstream_host_locality_metadata
        filter_chain_name"""),
    "metadata": (),
    "filter_state": (),
    "upstream_filter_state": (),
}
_TYPES = frozenset(words("int uint double bool string bytes list map null_type type"))


def flaw(expression: str) -> str:
    """Return why Envoy would reject the expression; "" if Envoy would accept it."""
    return _read(expression).flaw


def strangers(expression: str) -> tuple[tuple[str, str], ...]:
    """Return the attributes in the expression that do not exist, with hints: conditions on them are never true."""
    hints: dict[str, str] = {}
    for root, field in _read(expression).attributes:
        if root not in ATTRIBUTES:
            if root not in _TYPES:
                hints[root] = did_you_mean(root, ATTRIBUTES)
        elif field and ATTRIBUTES[root] and field not in ATTRIBUTES[root]:
            guess = did_you_mean(field, ATTRIBUTES[root])
            hints[f"{root}.{field}"] = guess
    return tuple(hints.items())


class _Token(msgspec.Struct, frozen=True):
    sort: str
    text: str
    at: int


class _Refused(Exception):
    pass


class _Read(msgspec.Struct, frozen=True):
    flaw: str
    attributes: tuple[tuple[str, str], ...] = ()  # each a root attribute and its field; "" for no field


def _read(expression: str) -> _Read:
    if len(expression) > MOST_LENGTH:
        return _Read(f"it is longer than {MOST_LENGTH} characters")
    reader = _Reader()
    try:
        reader.tokens = [*_tokens(expression), _Token("end", "the end", len(expression))]
        reader.expression()
        if reader.next.sort != "end":
            reader.refuse()
    except _Refused as refused:
        return _Read(str(refused))
    return _Read("", tuple(reader.attributes))


def _tokens(expression: str) -> Iterator[_Token]:
    at, token = 0, re.compile(_SYNTAX, re.VERBOSE)
    while at < len(expression):
        match = token.match(expression, at)
        if match is None:
            what = "a string that is not terminated, or has an unknown escape sequence"
            raise _Refused(f"at column {at + 1}: {what if expression[at] in _QUOTES else repr(expression[at])}")
        sort = match.lastgroup or ""
        if sort != "space":
            yield _Token(sort, match[0], at)
        at = match.end()


class _Reader:
    """A recursive descent parser, one method per rule of the grammar. It collects the attributes in an expression."""

    def __init__(self) -> None:
        self.tokens: list[_Token] = []
        self.attributes: list[tuple[str, str]] = []
        self._place = 0
        self._depth = 0

    @property
    def next(self) -> _Token:
        return self.tokens[self._place]

    def refuse(self, what: str = "") -> NoReturn:
        raise _Refused(f"at column {self.next.at + 1}: {what or f'`{self.next.text[:40]}` is not expected here'}")

    def expression(self) -> None:
        self._depth += 1
        if self._depth > MOST_DEPTH:
            self.refuse(f"nested deeper than {MOST_DEPTH} levels")
        self._either()
        if self._take("?"):
            self._either()
            self._expect(":")
            self.expression()
        self._depth -= 1

    def _either(self) -> None:
        self._chain(self._both, ("||",))

    def _both(self) -> None:
        self._chain(self._relation, ("&&",))

    def _relation(self) -> None:
        self._chain(self._sum, _RELATIONS)

    def _sum(self) -> None:
        self._chain(self._product, ("+", "-"))

    def _product(self) -> None:
        self._chain(self._unary, ("*", "/", "%"))

    def _chain(self, part: Callable[[], None], signs: Collection[str]) -> None:
        part()
        while self.next.text in signs and self.next.sort in ("sign", "name"):
            self._place += 1
            part()

    def _unary(self) -> None:
        for sign in ("!", "-"):
            if self._take(sign):
                while self._take(sign):
                    pass
                break
        self._member()

    def _member(self) -> None:
        named = self._primary()
        while True:
            if self._take("."):
                if self.next.sort != "name" or self.next.text == "in" or self.next.text in _LITERALS:
                    self.refuse()
                name = self._step().text
                if self._take("("):
                    self._call(name, _METHODS)
                elif named:
                    self.attributes[-1] = (self.attributes[-1][0], name)
            elif self._take("["):
                if named and self.next.sort == "text":
                    self.attributes[-1] = (self.attributes[-1][0], self.next.text[1:-1])
                self.expression()
                self._expect("]")
            else:
                return
            named = False

    def _primary(self) -> bool:
        """Parse a primary expression. Return whether it is the name of an attribute, so that a field may follow."""
        if self._take("("):
            self.expression()
            self._expect(")")
        elif self._take("["):
            self._list("]", self.expression)
        elif self._take("{"):
            self._list("}", self._entry)
        elif self.next.sort in ("text", "bytes"):
            self._step()
        elif self.next.sort == "number":
            self._number(self._step().text)
        else:
            self._take(".")
            return self._name()
        return False

    def _name(self) -> bool:
        if self.next.sort != "name" or self.next.text == "in":
            self.refuse()
        if self.next.text in _RESERVED:
            self.refuse(f"`{self.next.text}` is a reserved word")
        name = self._step().text
        if self._take("("):
            self._call(name, _FUNCTIONS)
            return False
        if name in _LITERALS:
            return False
        self.attributes.append((name, ""))
        return True

    def _number(self, text: str) -> None:
        if any(sign in text for sign in ".eE") and not text.startswith("0x"):
            return
        value = int(text.rstrip("uU"), 16 if text.startswith("0x") else 10)
        if value >= (1 << 64 if text[-1] in "uU" else 1 << 63):
            raise _Refused(f"the number {text[:40]} is too large")

    def _call(self, name: str, known: Mapping[str, tuple[int, ...]]) -> None:
        if name == "has" and known is _FUNCTIONS:
            self._has()
            return
        if name in _COMPREHENSIONS and known is _METHODS:
            self.refuse(f"Envoy does not support `{name}`, nor other macros over lists and maps")
        count = self._list(")", self.expression)
        if name not in known:
            hint = did_you_mean(name, known)
            raise _Refused(f"Envoy has no function `{name}` here{f' ({hint})' if hint else ''}")
        if count not in known[name]:
            raise _Refused(f"`{name}` takes {known[name][-1]} argument{'s' * (known[name][-1] != 1)}, not {count}")
        before, last = self.tokens[self._place - 3 : self._place - 1]
        literal = last.sort == "text" and before.text in ("(", ",")
        if name == "matches" and literal and (wrong := _pattern_flaw(last.text)):
            raise _Refused(f"{last.text[:80]} is not a regular expression: {wrong}")

    def _has(self) -> None:
        """Parse the argument of `has(a.b)`, which must be a field."""
        self.expression()
        self._expect(")")
        name, dot = self.tokens[self._place - 2], self.tokens[self._place - 3]
        if name.sort != "name" or dot.text != ".":
            raise _Refused("`has` needs a field, such as has(request.headers.cookie)")

    def _entry(self) -> None:
        self.expression()
        self._expect(":")
        self.expression()

    def _list(self, end: str, part: Callable[[], None]) -> int:
        count = 0
        while not self._take(end):
            if count:
                self._expect(",")
                if end != ")" and self._take(end):
                    break
            part()
            count += 1
        return count

    def _step(self) -> _Token:
        self._place += 1
        return self.tokens[self._place - 1]

    def _take(self, sign: str) -> bool:
        if self.next.sort != "sign" or self.next.text != sign:
            return False
        self._place += 1
        return True

    def _expect(self, sign: str) -> None:
        if not self._take(sign):
            self.refuse(f"`{sign}` is missing before `{self.next.text[:40]}`")


def _pattern_flaw(literal: str) -> str:
    if literal[0] in "rR":
        return regex_flaw(literal[2:-1])
    return regex_flaw(literal[1:-1].replace("\\\\", "\\"))
