"""Summarize recent traffic from access logs. Input: log lines of the callers' proxies, and of gateways for external
clients. Output: kinds of requests with a count each, so that `weft diff` can judge a change by real traffic.

Rule: the summary is bounded and contains no secret: no query, no header but the host, and users see only the shape
of a path. Lines in a custom format are skipped.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import msgspec

from weft.api.request_test import RequestCase
from weft.base.problem import Where

MOST_KINDS = 2_000
_LONGEST = 1_024  # characters of a path, or of a host; longer ones are skipped

# Istio's text format, which is weft's too. Clients control some of the fields in a line. The greedy `.*` before the
# last fields makes the last possible match count: everything after it is written by the proxy.
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
# Path segments that stand for one thing among many: numbers, digests, UUIDs and tokens. Matched are long words, and
# shorter words in which letters and digits are mixed.
_NAMES_A_THING = re.compile(r"\d+|[0-9a-fA-F-]{8,}|.{25,}|(?=.*\d)(?=.*[^\W\d_]).{8,}")


class SeenRequest(msgspec.Struct, frozen=True):
    """A kind of request in access logs, and how often it occurs (`count`). Requests are of one kind if they have the
    same caller, method, status and shape of URL. `caller`: WORKLOAD.NAMESPACE; the gateway for external clients. `to`:
    the URL of one request of this kind, which is evaluated as an example. `shape`: what the URLs of all requests of
    this kind have in common."""

    caller: str  # WORKLOAD.NAMESPACE; a gateway for external clients
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
    """Counts the requests of each kind in access logs, in constant time per line."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str, str, int], int] = {}
        self._examples: dict[tuple[str, str, str, int], str] = {}
        self.left_out = 0  # requests of kinds beyond MOST_KINDS

    def add(self, caller: str, addresses: Collection[str], lines: Iterable[str]) -> None:
        """Count the requests in the access log of a workload's proxy. `caller`: the workload. `addresses`: the
        addresses of its pod, from which its own calls come."""
        for line in lines:
            fields = _fields(line)
            if fields is not None and _is_own_call(fields, addresses):
                self._count(caller, fields)

    def add_gateway(self, gateway: str, inside: Collection[str], lines: Iterable[str]) -> None:
        """Count the requests of external clients in the access log of a gateway. `inside`: addresses of the mesh's
        own pods, whose requests are left out, because the pods' proxies log them. Addresses of external clients
        are not kept: they are private, and each would make a separate kind."""
        for line in lines:
            fields = _fields(line)
            if fields is not None and _address(fields["remote"]) not in inside:
                self._count(gateway, fields, encrypted=fields["server_name"] not in ("", "-"))

    def kinds(self) -> tuple[SeenRequest, ...]:
        """The kinds of requests, the most frequent first."""
        seen = (
            SeenRequest(caller, method, self._examples[key], shape, status, count)
            for key, count in self._counts.items()
            for caller, method, shape, status in (key,)
        )
        return tuple(sorted(seen, key=lambda each: (-each.count, str(each))))

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
    """A path, or a URL, with `*` in place of segments that look like an ID (numbers, hex digits, long words):
    `/orders/*/items`."""
    scheme, is_url, rest = path.rpartition("://")
    first, *parts = rest.split("/")  # `first` is "", or the host of a URL
    shown = ("*" if _NAMES_A_THING.fullmatch(part) else part for part in parts)
    return f"{scheme}{is_url}" + "/".join((first, *shown))


def _fields(line: str) -> Mapping[str, str] | None:
    if line.startswith("{"):
        return _from_json(line)
    match = _LINE.fullmatch(line)
    return match.groupdict() if match is not None else None


def _from_json(line: str) -> Mapping[str, str] | None:
    try:
        entry = msgspec.json.decode(line, type=dict[str, Any])
    except msgspec.DecodeError:
        return None
    fields = {name: str(entry.get(theirs) or "") for name, theirs in _JSON.items()}
    return fields if fields["method"] not in ("", "-") and fields["status"].isdecimal() else None


def _is_own_call(fields: Mapping[str, str], addresses: Collection[str]) -> bool:
    """Whether the workload itself made the request of a log line with these `fields`: it is not inbound, and comes from
    one of the workload's `addresses`. Inbound requests are not counted, because the logs of their callers' proxies
    contain them."""
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
