"""Recent traffic, as access logs have it: lines of the callers' proxies come in, and of gateways, by which callers come
who have none. Kinds of requests leave, each with how often it was seen: so a change can be judged by what is really
asked of a mesh.

Rule: it is bounded, and holds no secret: no query, no header but the host, and people are shown only the shape of a
path. Lines in a form of somebody's own are passed over.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import msgspec

from weft.api.request_test import RequestCase
from weft.base.problem import Where

MOST_KINDS = 2_000
_LONGEST = 1_024  # letters of a path, or of a host

# Istio's text form, which is weft's. What callers may write anything into stands between what is read: so the last that
# looks like it counts, after which everything is the proxy's own.
_LINE = re.compile(
    r'\[[^\]]+\] "(?P<method>[A-Z]+) (?P<path>\S+) HTTP/[\d.]+" (?P<status>\d+) .*'
    r' "(?P<authority>[^" ]+)" "[^" ]*" (?P<cluster>\S+) \S+ (?P<local>\S+) (?P<remote>\S+)'
    r' (?P<server_name>\S+) \S+(?: \w+="[^"]*")*'
)
_JSON = {
    "method": "method",
    "path": "path",
    "status": "response_code",
    "authority": "authority",
    "cluster": "upstream_cluster",
    "local": "downstream_local_address",
    "remote": "downstream_remote_address",
    "server_name": "requested_server_name",
}
# Numbers, digests, UUIDs, tokens: long words, and shorter ones in which letters and digits are mixed.
_NAMES_A_THING = re.compile(r"\d+|[0-9a-fA-F-]{8,}|.{25,}|(?=.*\d)(?=.*[^\W\d_]).{8,}")


class SeenRequest(msgspec.Struct, frozen=True):
    """A kind of request. `to` is one that was seen, to be judged; `shape` is what all of them have in common."""

    caller: str  # WORKLOAD.NAMESPACE; a gateway stands for who comes by it
    method: str
    to: str
    shape: str
    status: int
    count: int = 1

    def __str__(self) -> str:
        return f"{self.caller} {self.method} {self.shape} ({self.status})"

    @property
    def case(self) -> RequestCase:
        return RequestCase(Where(), self.caller, self.to, method=self.method)


class Recent:
    """Counts kinds of requests, each line in the same time."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str, str, int], int] = {}
        self._examples: dict[tuple[str, str, str, int], str] = {}
        self.left_out = 0  # requests, of kinds beyond those that there is room for

    def add(self, caller: str, addresses: Collection[str], lines: Iterable[str]) -> None:
        """`caller`: the workload whose proxy wrote the lines, at these addresses."""
        for line in lines:
            fields = _fields(line)
            if fields is not None and _is_own_call(fields, addresses):
                self._count(caller, fields)

    def add_gateway(self, gateway: str, inside: Collection[str], lines: Iterable[str]) -> None:
        """`inside`: addresses of the mesh's own pods, whose proxies tell themselves what they ask. Where the others are
        is not kept: a person's address is nobody's business, and each would be a kind of its own."""
        for line in lines:
            fields = _fields(line)
            if fields is not None and _address(fields["remote"]) not in inside:
                self._count(gateway, fields, encrypted=fields["server_name"] not in ("", "-"))

    def kinds(self) -> tuple[SeenRequest, ...]:
        """The most frequent first."""
        found = (
            SeenRequest(caller, method, self._examples[key], shape, status, count)
            for key, count in self._counts.items()
            for caller, method, shape, status in (key,)
        )
        return tuple(sorted(found, key=lambda each: (-each.count, str(each))))

    def _count(self, caller: str, fields: Mapping[str, str], *, encrypted: bool = False) -> None:
        host, port, path = _host(fields["authority"]), _port(fields["local"]), fields["path"].split("?")[0]
        if not host or not port or len(path) > _LONGEST or not path.startswith("/"):
            return
        scheme, usual = ("https", "443") if encrypted else ("http", "80")
        place = f"{scheme}://{host}" if port == usual else f"{scheme}://{host}:{port}"
        key = (caller, fields["method"], f"{place}{shape_of(path)}", int(fields["status"]))
        if key in self._counts:
            self._counts[key] += 1
        elif len(self._counts) < MOST_KINDS:
            self._counts[key], self._examples[key] = 1, f"{place}{path}"
        else:
            self.left_out += 1


def shape_of(path: str) -> str:
    """A path, or a URL, with `*` for what names one thing among many: `/orders/*/items`."""
    scheme, is_url, rest = path.rpartition("://")
    first, *parts = rest.split("/")  # nothing, or whose path it is
    shown = ("*" if _NAMES_A_THING.fullmatch(part) else part for part in parts)
    return f"{scheme}{is_url}" + "/".join((first, *shown))


def _fields(line: str) -> Mapping[str, str] | None:
    if line.startswith("{"):
        return _from_json(line)
    found = _LINE.fullmatch(line)
    return found.groupdict() if found is not None else None


def _from_json(line: str) -> Mapping[str, str] | None:
    try:
        said = msgspec.json.decode(line, type=dict[str, Any])
    except msgspec.DecodeError:
        return None
    fields = {name: str(said.get(theirs) or "") for name, theirs in _JSON.items()}
    return fields if fields["method"] not in ("", "-") and fields["status"].isdecimal() else None


def _is_own_call(fields: Mapping[str, str], addresses: Collection[str]) -> bool:
    """What the workload itself asks of others. What others ask of it, their own proxies tell."""
    if fields["cluster"].startswith("inbound|"):
        return False
    return _address(fields["remote"]) in addresses


def _address(place: str) -> str:
    return place.rpartition(":")[0].strip("[]")


def _host(authority: str) -> str:
    name = authority if authority.endswith("]") else authority.rpartition(":")[0] or authority
    return name if len(name) <= _LONGEST and re.fullmatch(r"[\w.-]+|\[[0-9a-fA-F:.]+\]", name) else ""


def _port(address: str) -> str:
    port = address.rpartition(":")[2]
    return port if port.isdecimal() else ""
