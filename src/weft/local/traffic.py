"""Computes the traffic between workloads: request rate, success rate and latency per caller and destination.

Input: scrapes of each proxy's `/stats` as JSON. They contain Envoy's cluster counters, and a counter of weft for
responses that a proxy sent without calling an upstream (an injected fault, a redirect, no route). Output: one
`EdgeStatus` for each calling workload and destination, summed over the workload's pods: the total of requests and
connections, and rates over the last few seconds. A restarted proxy counts from zero, so the totals also include the
last counts of ended pods and proxies.
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from weft.local.status import EdgeStatus

WINDOW = 5.0  # seconds that rates cover: long enough for a mean, short enough to show the effect of an edit

_FILTER = (
    r"^cluster\.outbound\|[^;]*\.(upstream_rq_completed|upstream_rq_(5xx|401|403|time)|upstream_cx_total)$"
    r"|^listener\..*\.downstream_(pre_cx_timeout|listener_filter_remote_close)$"
    r"|^weft\.answered_by_proxy\."
    r"|^http_inspector\.read_error$"
)
# Envoy itself filters its stats with this query: unfiltered, they have thousands of lines.
STATS_QUERY = {"filter": _FILTER, "format": "json", "histogram_buckets": "detailed", "usedonly": ""}
_CLUSTER = re.compile(r"cluster\.outbound\|(\d+)\|([^|]*)\|(.+?);?\.(upstream_\w+)")
_OWN_ANSWERS = re.compile(
    r"weft\.answered_by_proxy\.cluster\.(?:outbound\|(\d+)\|([^|]*)\|(.+?))?;?"
    r"\.virtual_host\.(.*)\.response_code\.(\d+)"
)
# Suffixes of counters that count the same calls again, by the origin of the caller, or that count retries: a retried
# call is counted when it ends.
_AGAIN = (".external", ".internal", ".retry")
_LISTENER = re.compile(r"listener\.(.+)[_:](\d+)\.downstream_(pre_cx_timeout|listener_filter_remote_close)")


ByListener = Mapping[tuple[str, int], int]  # by a listener's address and port


class TrafficEdge(msgspec.Struct, frozen=True, order=True):
    host: str
    port: int
    subset: str = ""
    by_proxy: bool = False  # responses without an upstream: counted apart, as these counters can restart alone

    @property
    def shown(self) -> TrafficEdge:
        return TrafficEdge(self.host, self.port, self.subset)


class Counts(msgspec.Struct):
    requests: int = 0
    errors: int = 0
    connections: int = 0
    times: Counter[float] = msgspec.field(default_factory=Counter)  # lower bound of the bucket in ms → requests
    denied: int = 0  # responses 401 and 403

    def add(self, other: Counts) -> None:
        self.requests += other.requests
        self.errors += other.errors
        self.connections += other.connections
        self.times.update(other.times)
        self.denied += other.denied

    def since(self, before: Counts) -> Counts:
        """Return the increase of the counts since `before`. If a count has decreased, or errors and denials have
        increased more than requests, the counters have restarted (with the proxy or the cluster), and the current
        counts are returned unchanged."""
        increase = Counts(
            self.requests - before.requests,
            self.errors - before.errors,
            self.connections - before.connections,
            self.times - before.times,
            self.denied - before.denied,
        )
        parts = (increase.requests, increase.errors, increase.connections, increase.denied)
        restarted = min(parts) < 0 or increase.errors + increase.denied > increase.requests
        return self if restarted else increase


class Scrape(msgspec.Struct, frozen=True):
    edges: Mapping[TrafficEdge, Counts]
    timeouts: ByListener  # connections on which the client sent nothing within the timeout
    cuts: ByListener = {}  # connections closed by the client before the first bytes were inspected
    unread: int = 0  # connections that exceeded the inspected bytes and could still be HTTP


def read_stats(body: bytes) -> Scrape:
    """Parse the answer of one proxy's `/stats`. Unknown entries are ignored."""
    edges: dict[TrafficEdge, Counts] = {}
    timeouts: dict[tuple[str, int], int] = {}
    cuts: dict[tuple[str, int], int] = {}
    unread = 0
    for entry in _entries(body):
        name = str(entry.get("name", ""))
        listener = _LISTENER.fullmatch(name)
        if listener is not None and entry.get("value"):
            # In the names of stats a colon is a separator, so Envoy replaces the colons of an IPv6 address by
            # underscores.
            address = listener[1].strip("[]").replace("_", ":")
            counted = timeouts if listener[3] == "pre_cx_timeout" else cuts
            counted[address, int(listener[2])] = int(entry["value"])
        if name == "http_inspector.read_error":
            unread = int(entry["value"])
        own = _OWN_ANSWERS.fullmatch(name)
        if own is not None and (edge := _answered_edge(own)) is not None:
            answered = edges.setdefault(edge, Counts())
            answered.requests += int(entry["value"])
            answered.errors += int(entry["value"]) if _is_error(own) else 0
        cluster = _CLUSTER.fullmatch(name)
        if cluster is None or cluster[3].endswith(_AGAIN):
            continue
        counts = edges.setdefault(TrafficEdge(cluster[3], int(cluster[1]), cluster[2]), Counts())
        match cluster[4]:
            case "upstream_rq_completed":
                counts.requests = int(entry["value"])
            case "upstream_rq_5xx":
                counts.errors = int(entry["value"])
            case "upstream_rq_401" | "upstream_rq_403":
                counts.denied += int(entry["value"])
            case "upstream_cx_total":
                counts.connections = int(entry["value"])
            case "upstream_rq_time":
                buckets = entry.get("totals") or ()
                counts.times = Counter({float(each["lower_bound"]): int(each["count"]) for each in buckets})
    return Scrape(edges, timeouts, cuts, unread)


class Traffic:
    def __init__(self, window: float = WINDOW) -> None:
        self._window = window
        self._samples: dict[str, deque[tuple[float, Mapping[TrafficEdge, Counts]]]] = {}  # by pod
        self._sources: dict[str, str] = {}
        self._gone: dict[tuple[str, TrafficEdge], Counts] = {}  # last counts of ended pods and proxies

    def record(self, pod: str, source: str, edges: Mapping[TrafficEdge, Counts], now: float) -> None:
        """Add one scrape of the proxy of `pod`, which belongs to the workload `source`. `edges`: the counts for each
        destination. `now`: the time of the scrape, in seconds."""
        samples = self._samples.setdefault(pod, deque())
        self._sources[pod] = source
        if samples:
            for edge, before in samples[-1][1].items():
                if before.requests > edges.get(edge, Counts()).requests:
                    self._gone.setdefault((source, edge), Counts()).add(before)
        samples.append((now, edges))
        # One sample from before the window is kept, to compare the newest sample with.
        while len(samples) > 2 and samples[1][0] <= now - self._window:
            samples.popleft()

    def forget(self, pod: str) -> None:
        samples = self._samples.pop(pod, None)
        source = self._sources.pop(pod, "")
        for edge, counts in samples[-1][1].items() if samples else ():
            self._gone.setdefault((source, edge), Counts()).add(counts)

    def edges(self) -> tuple[EdgeStatus, ...]:
        """Return the traffic of each caller and destination, the busiest first."""
        totals: dict[tuple[str, TrafficEdge], Counts] = {}
        recent: dict[tuple[str, TrafficEdge], Counts] = {}
        seconds: dict[tuple[str, TrafficEdge], float] = {}
        for (source, edge), counts in self._gone.items():
            totals.setdefault((source, edge.shown), Counts()).add(counts)
        for pod, samples in self._samples.items():
            (first_time, first), (last_time, last) = samples[0], samples[-1]
            for edge, counts in last.items():
                key = (self._sources[pod], edge.shown)
                totals.setdefault(key, Counts()).add(counts)
                if last_time > first_time:
                    recent.setdefault(key, Counts()).add(counts.since(first.get(edge, Counts())))
                    seconds[key] = max(seconds.get(key, 0.0), last_time - first_time)
        shown = (_edge_status(key, totals[key], recent.get(key), seconds.get(key, 0.0)) for key in totals)
        return tuple(sorted(shown, key=lambda e: (-e.requests_per_second, e.source, e.destination, e.port, e.subset)))


def percentile(times: Counter[float], share: float) -> float | None:
    """Return the latency in milliseconds within which `share` (0.0–1.0) of the requests ended; None without requests.
    `times`: the number of requests for each latency."""
    total = sum(times.values())
    if not total:
        return None
    bounds = sorted(times)
    passed = 0.0
    for bound in bounds:
        count = times[bound]
        if passed + count >= share * total:
            # Envoy's histograms contain whole milliseconds with two significant digits, which gives the width of a
            # bucket.
            width = max(1.0, 10.0 ** (len(str(int(bound))) - 2))
            return bound + width * (share * total - passed) / count
        passed += count
    return bounds[-1]


def _answered_edge(answer: re.Match[str]) -> TrafficEdge | None:
    """Return the destination of a call that the caller's proxy answered itself, from the name of the counter that
    counted the call (`answer` is the matched name). The destination is the selected cluster, or, if no cluster
    was selected, the host of the route. None if the name contains neither."""
    if answer[3]:
        return TrafficEdge(answer[3], int(answer[1]), answer[2], by_proxy=True)
    host, _, port = answer[4].rpartition(":")
    return TrafficEdge(host, int(port), by_proxy=True) if host and port.isdecimal() else None


def _is_error(answer: re.Match[str]) -> bool:
    # With a cluster it is an injected fault; an injected fault with status 200 has the error in its gRPC status.
    return int(answer[5]) >= 500 or (bool(answer[3]) and int(answer[5]) == 200)


def _edge_status(key: tuple[str, TrafficEdge], total: Counts, recent: Counts | None, seconds: float) -> EdgeStatus:
    source, edge = key
    now = recent or Counts()
    return EdgeStatus(
        source=source,
        destination=edge.host,
        port=edge.port,
        subset=edge.subset,
        requests_per_second=now.requests / seconds if seconds else 0.0,
        success=1.0 - _share(now.errors, now.requests) if now.requests else None,
        denied=_share(now.denied, now.requests) if now.requests else None,
        p50_ms=percentile(now.times, 0.5),
        p99_ms=percentile(now.times, 0.99),
        requests=total.requests,
        connections=0 if total.requests else total.connections,
    )


def _share(part: int, whole: int) -> float:
    return min(part / whole, 1.0)  # Envoy may count a response between two counters of one scrape


def _entries(body: bytes) -> Iterable[dict[str, Any]]:
    try:
        stats = msgspec.json.decode(body)["stats"]
    except (msgspec.DecodeError, KeyError, TypeError):
        return
    for entry in stats:
        histograms = entry.get("histograms")
        if isinstance(histograms, dict):
            yield from histograms.get("details", ())
        elif histograms is None:
            yield entry
