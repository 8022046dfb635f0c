"""A request out of what a person types: a URL, and what belongs to it."""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import urlsplit

from weft.base.problem import Problem, Where
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


class BadUrl(Exception):
    def __init__(self, url: str, what: str) -> None:
        super().__init__(f"`{url}`: {what}")
        hint = (
            "for example: http://payments.shop:8080/charge, https://…, grpc://…/package.Service/Method, tcp://db:5432"
        )
        self.problem = Problem(Where(), f"`{url}`: {what}", hint)


def request_of(
    url: str,
    *,
    caller: str = "",
    method: str = "GET",
    headers: Iterable[tuple[str, str]] = (),
    tokens: Iterable[Token] = (),
    now: int = 0,
) -> Request:
    """Without a scheme it is HTTP. Raises BadUrl."""
    split = urlsplit(url if "://" in url else f"http://{url}")
    scheme = split.scheme.lower()
    if scheme not in _PORTS:
        raise BadUrl(url, f"`{scheme}` is not a scheme that can be explained")
    try:
        host, port = split.hostname or "", split.port or _PORTS[scheme]
    except ValueError as error:
        raise BadUrl(url, str(error).lower()) from error
    if not host:
        raise BadUrl(url, "it names no host")
    if not port:
        raise BadUrl(url, "it names no port")
    sent = [*headers]
    if scheme == "grpc":
        method = "POST"
        sent.append(("content-type", "application/grpc"))
    carried = tuple(tokens)
    given = {name.lower() for name, _ in sent}
    if carried and "authorization" not in given:
        sent.append(("authorization", f"Bearer {carried[0].text}"))
    is_http = _SPEAKS[scheme] in (Speaks.HTTP, Speaks.HTTP2)
    # Clients leave the port out of Host where it is the scheme's own.
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
        address=host if ":" in host or host.replace(".", "").isdigit() else "",
        speaks=_SPEAKS[scheme],
        server_name=host if _SPEAKS[scheme] is Speaks.TLS else "",
        offers=_OFFERS.get(scheme, ()),
        tokens=carried,
        now=now,
    )
