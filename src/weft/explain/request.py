"""The request to explain, and its headers, which proxies change on the way."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Any

import msgspec

from weft.explain.decision import Unsure

_ALIASES = {"host": ":authority"}


class Speaks(StrEnum):
    """The protocol that the caller's application sends."""

    HTTP = "http/1.1"
    HTTP2 = "h2c"
    TLS = "tls"  # the application's own TLS
    BYTES = "bytes"


class Token(msgspec.Struct, frozen=True):
    """A JWT in the request. `text`: the token as the request contains it. `signed`: true for a real JWT, whose
    signature is verified if the keys are known; false for a token that is only claims (`--jwt '{...}'`). `verified`:
    whether the signature of a token that is only claims is assumed to be valid. `malformed`: Envoy's error message,
    if the text is not a valid JWT."""

    text: str
    claims: Mapping[str, Any] = msgspec.field(default_factory=dict)
    verified: bool = True
    malformed: str = ""
    signed: bool = False


class Request(msgspec.Struct, frozen=True):
    """A request, or a TCP connection, to explain. `caller`: the name of the calling workload. `address`: the
    destination address of the connection; "" for the address to which `host` resolves. `server_name` and `offers`: SNI
    and ALPN of the application's own TLS. `source`: the address of a client outside the mesh that calls a gateway.
    `now`: the time, in seconds since 1970, at which tokens are checked; 0 if expiry is not checked. `speaks`: the
    protocol that the application sends."""

    host: str
    port: int = 80
    method: str = "GET"
    path: str = "/"
    headers: tuple[tuple[str, str], ...] = ()
    caller: str = ""
    address: str = ""
    speaks: Speaks = Speaks.HTTP
    server_name: str = ""
    offers: tuple[str, ...] = ()
    tokens: tuple[Token, ...] = ()
    source: str = ""
    now: int = 0

    @property
    def is_http(self) -> bool:
        return self.speaks in (Speaks.HTTP, Speaks.HTTP2)


class RequestHeaders:
    """The headers of a request, as in Envoy: names in lower case, several values per name, Host as `:authority`."""

    def __init__(self, pairs: Iterable[tuple[str, str]] = ()) -> None:
        self._pairs = [(_ALIASES.get(name.lower(), name.lower()), value) for name, value in pairs]
        self._made_up: set[str] = set()  # names of headers whose value cannot be predicted

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(self._pairs)

    def copy(self) -> RequestHeaders:
        result = RequestHeaders()
        result._pairs, result._made_up = list(self._pairs), set(self._made_up)
        return result

    def has(self, name: str) -> bool:
        name = _ALIASES.get(name.lower(), name.lower())
        return any(each == name for each, _ in self._pairs)

    def values(self, name: str) -> list[str]:
        name = _ALIASES.get(name.lower(), name.lower())
        if name in self._made_up:
            raise Unsure(f"a proxy generates the value of the header {name}")
        return [value for each, value in self._pairs if each == name]

    def joined(self, name: str) -> str | None:
        """All values of the header, joined with commas; None if it is missing."""
        values = self.values(name)
        return ",".join(values) if values else None

    def value(self, name: str) -> str:
        return self.joined(name) or ""

    def set(self, name: str, value: str) -> None:
        self.remove(name)
        self.add(name, value)

    def add(self, name: str, value: str) -> None:
        self._pairs.append((_ALIASES.get(name.lower(), name.lower()), value))

    def make_up(self, name: str) -> None:
        if not self.has(name):
            self._pairs.append((name, ""))
            self._made_up.add(name)

    def remove(self, name: str) -> None:
        name = _ALIASES.get(name.lower(), name.lower())
        self._pairs = [(each, value) for each, value in self._pairs if each != name]
        self._made_up.discard(name)


def headers_of(request: Request) -> RequestHeaders:
    pseudo = ((":method", request.method), (":scheme", "http"), (":authority", request.host), (":path", request.path))
    given = [(name, value) for name, value in request.headers if not name.startswith(":")]
    result = RequestHeaders((*pseudo, *(pair for pair in given if pair[0].lower() != "host")))
    for name, value in given:
        if name.lower() == "host":
            result.set(":authority", value)
    return result
