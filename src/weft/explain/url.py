"""Builds a Request from a URL and the options of a command."""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import urlsplit

from weft.base.problem import Problem, Where
from weft.explain.listener import is_address
from weft.explain.request import Request, Speaks, Token

_PORTS = {"http": 80, "https": 443, "tcp": 0, "tls": 443, "grpc": 80}
_SPEAKS = {
    "http": Speaks.HTTP,
    "https": Speaks.TLS,
    "tcp": Speaks.BYTES,
    "tls": Speaks.TLS,
    "grpc": Speaks.HTTP2,
}
_OFFERS = {"https": ("h2", "http/1.1")}
_METHOD = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # a token as defined in RFC 9110


class BadUrl(Exception):
    def __init__(self, url: str, what: str) -> None:
        super().__init__(f"`{url}`: {what}")
        hint = (
            "for example: http://payments.shop:8080/charge, https://…, grpc://…/package.Service/Method, tcp://db:5432"
        )
        self.problem = Problem(Where(), f"`{url}`: {what}", hint)


class BadMethod(Exception):
    def __init__(self, method: str) -> None:
        what = f"`{method}` is not an HTTP method"
        super().__init__(what)
        self.problem = Problem(Where(), what, "a method is one word, for example: -X POST")


class BadSource(Exception):
    def __init__(self, source: str, what: str = "is not an IP address") -> None:
        what = f"`{source}` {what}"
        super().__init__(what)
        hint = "the address of a client outside the mesh: weft explain GATEWAY --source-address 198.51.100.7"
        self.problem = Problem(Where(), what, hint)


def request_of(
    url: str,
    *,
    caller: str = "",
    method: str = "GET",
    headers: Iterable[tuple[str, str]] = (),
    tokens: Iterable[Token] = (),
    source: str = "",
    now: int = 0,
) -> Request:
    """Builds the request to explain from a URL and the options of a command. The default scheme is http. The first of
    `tokens` becomes the Authorization header, if `headers` have none. The other parameters are fields of `Request`.
    Raises BadUrl, BadMethod, BadSource."""
    if source and not is_address(source):
        raise BadSource(source)
    try:
        split = urlsplit(url if "://" in url else f"http://{url}")
        host, given_port = split.hostname or "", split.port
    except ValueError as error:
        raise BadUrl(url, str(error).lower()) from error
    scheme = split.scheme.lower()
    if scheme == "udp":
        raise BadUrl(url, "UDP bypasses the proxies: it is sent as without a mesh, and no route or policy applies")
    if scheme not in _PORTS:
        raise BadUrl(url, f"the scheme `{scheme}` is not supported")
    if not host:
        raise BadUrl(url, "the URL names no host")
    address = host if ":" in host or host.replace(".", "").isdigit() else ""
    if address and not is_address(address):
        raise BadUrl(url, f"{address} is neither a name nor an address")
    if given_port == 0:
        raise BadUrl(url, "port 0 cannot be called")
    port = given_port or _PORTS[scheme]
    if not port:
        raise BadUrl(url, "the URL names no port")
    if not _METHOD.fullmatch(method):
        raise BadMethod(method)
    sent = [*headers]
    if scheme == "grpc":
        method = "POST"
        sent.append(("content-type", "application/grpc"))
    carried = tuple(tokens)
    given = {name.lower() for name, _ in sent}
    if carried and "authorization" not in given:
        sent.append(("authorization", f"Bearer {carried[0].text}"))
    is_http = _SPEAKS[scheme] in (Speaks.HTTP, Speaks.HTTP2)
    # Clients leave the scheme's default port out of the header Host.
    shown = f"[{host}]" if ":" in host else host
    if is_http and port != _PORTS[scheme] and "host" not in given:
        sent.append(("host", f"{shown}:{port}"))
    return Request(
        host,
        port,
        method.upper(),
        (split.path or "/") + (f"?{split.query}" if split.query else ""),
        tuple(sent),
        caller=caller,
        address=address,
        speaks=_SPEAKS[scheme],
        server_name=host if _SPEAKS[scheme] is Speaks.TLS else "",
        offers=_OFFERS.get(scheme, ()),
        tokens=carried,
        source=source,
        now=now,
    )
