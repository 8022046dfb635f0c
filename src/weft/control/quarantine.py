"""Handles resources that proxies reject (NACK), and finds the object at fault.

A rejected resource is reverted to the last accepted version (`xds/snapshot.py`) and becomes a problem of the objects
that it was made from. A port's route configuration contains the routes of many hosts, so the host at fault is searched:
all new virtual hosts are reverted and tried again by halves. So one bad host does not block the changes of others. If
several objects are suspects, or one object with many parts, `push/culprit_search.py` finds the part at fault, down to
its line. Secrets in files are retried periodically (`push/unread_secrets.py`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

import msgspec

from weft.base.problem import Problem, Where
from weft.control.problems import Problems
from weft.control.push.culprit_search import Found, Guilty, Inquiries, is_trial, without_heading
from weft.control.push.push import Push
from weft.control.push.unread_secrets import Rereading
from weft.model.group import Group
from weft.model.names import ObjectKey
from weft.xds.snapshot import Snapshots
from weft.xds.stream import NackedResource
from weft.xds.types import ROUTE, SECRET

_DUMPED = re.compile(r"goo\.gle/debug\w+ .*", re.DOTALL)
_CONSTRAINT = "Proto constraint validation failed ("
_HINT = "proxies keep the last version that worked; correct the object and save it"
_FILES_HINT = "correct the files, and let the proxy (user 1337) read them; weft retries automatically"


class _Refusal(msgspec.Struct, frozen=True):
    """The topic under which a problem is listed: a rejected resource, or one host in a rejected route configuration."""

    group: Group
    type_url: str
    name: str
    host: str = ""


class Quarantine:
    def __init__(
        self, push: Push, snapshots: Snapshots, problems: Problems, where: Callable[[ObjectKey], Where]
    ) -> None:
        self._push, self._snapshots, self._problems, self._where = push, snapshots, problems, where
        self._refusals: set[_Refusal] = set()
        self._said: dict[_Refusal, str] = {}  # rejected resource → the proxy's error message
        # Route configuration → sets of hosts to try again.
        self._trials: dict[tuple[Group, str], list[tuple[str, ...]]] = {}
        self._inquiries = Inquiries(snapshots)
        self._rereading = Rereading(snapshots)

    def refused(self, resource: NackedResource) -> None:
        group = resource.group
        if not isinstance(group, Group):
            return
        if is_trial(resource):
            self._inquiries.refused(group, resource)
        elif resource.type_url == ROUTE:
            self._search_host(group, resource)
        else:
            built = self._push.resource(group, resource.type_url, resource.name)
            refusal = _Refusal(group, resource.type_url, resource.name)
            is_file = resource.type_url == SECRET and self._rereading.refused(group, resource.name, resource.version)
            self._report(refusal, resource, built.sources if built else (), _FILES_HINT if is_file else _HINT)
            lineup = self._push.suspects(group, built) if built else None
            self._inquiries.open(group, refusal, lineup, self._reporter(refusal, resource))

    def accepted(self, group: Group, type_url: str) -> None:
        """Called when a proxy of the group has accepted resources of the type `type_url`. Starts the next trial of the
        group's searches for the object at fault (those for a host in a route configuration only if the type is routes),
        stops retrying secrets that were accepted, and clears problems that are mended."""
        if type_url == ROUTE:
            for name in [name for of, name in self._trials if of == group]:
                self._try_next(group, name)
        elif type_url == SECRET:
            self._rereading.accepted(group)
        self._inquiries.accepted(group)
        self.forget_mended()

    def forget(self, group: Group) -> None:
        """Drop the problems and trials of a group without proxies. When proxies connect again, everything is tried
        anew."""
        for trial in [trial for trial in self._trials if trial[0] == group]:
            del self._trials[trial]
        self._inquiries.forget(group)
        self._rereading.forget(group)
        self.forget_mended()

    def forget_mended(self) -> None:
        """Clear the problems of rejected resources of which another version is served now."""
        for refusal in [refusal for refusal in self._refusals if not self._stands(refusal)]:
            self._refusals.discard(refusal)
            self._said.pop(refusal, None)
            self._problems.put(refusal, ())
            self._inquiries.close(refusal.group, refusal)

    def said(self, group: Group) -> dict[str, str]:
        """Return, for each type, the last error message of a proxy of the group about a resource that is still
        rejected."""
        self.forget_mended()
        return {refusal.type_url: error for refusal, error in self._said.items() if refusal.group == group}

    def by_resource(self, group: Group) -> dict[tuple[str, str], tuple[Problem, ...]]:
        """Return the problems of resources that proxies of the group reject, by type and name."""
        self.forget_mended()
        problems: dict[tuple[str, str], tuple[Problem, ...]] = {}
        for refusal in self._refusals:
            if refusal.group == group:
                key = (refusal.type_url, refusal.name)
                problems[key] = (*problems.get(key, ()), *self._problems.of(refusal))
        return problems

    def standing(self) -> tuple[Problem, ...]:
        """Return all current problems of rejected resources, each once, in a stable order."""
        self.forget_mended()
        return tuple(sorted({each for refusal in self._refusals for each in self._problems.of(refusal)}, key=str))

    def _search_host(self, group: Group, resource: NackedResource) -> None:
        accepted = self._snapshots.accepted(group, ROUTE, resource.name)
        suspects = self._push.suspend(group, resource.name, accepted.body if accepted else b"")
        if len(suspects) == 1:
            host, refused = next(iter(suspects.items()))
            # If VirtualServices define the routes, the Service is not at fault: it only provides the host.
            stated = tuple(key for key in refused.sources if key.kind == "VirtualService")
            refusal = _Refusal(group, ROUTE, resource.name, host)
            self._report(refusal, resource, stated or refused.sources)
            lineup = self._push.suspect_routes(group, host, refused)
            self._inquiries.open(group, refusal, lineup, self._reporter(refusal, resource))
        elif suspects:
            hosts = tuple(suspects)
            half = len(hosts) // 2
            self._trials.setdefault((group, resource.name), []).extend((hosts[half:], hosts[:half]))
        self._try_next(group, resource.name)

    def _try_next(self, group: Group, name: str) -> None:
        waiting = self._trials.get((group, name))
        if not waiting:
            return
        hosts = waiting.pop()
        if not waiting:
            del self._trials[(group, name)]
        self._push.resume(group, name, hosts)

    def _reporter(self, refusal: _Refusal, resource: NackedResource) -> Found:
        def report(guilty: Guilty) -> None:
            if guilty:  # else each suspect is accepted alone, and only all of them together are rejected
                lines = [(self._line(suspect.key, suspect.line), message) for suspect, message in guilty]
                self._tell(refusal, resource, lines)

        return report

    def _report(
        self, refusal: _Refusal, resource: NackedResource, sources: tuple[ObjectKey, ...], hint: str = _HINT
    ) -> None:
        self._tell(refusal, resource, [(self._where(key), resource.message) for key in sources], hint)

    def _tell(
        self, refusal: _Refusal, resource: NackedResource, guilty: Iterable[tuple[Where, str]], hint: str = _HINT
    ) -> None:
        kind = resource.type_url.rpartition(".")[2]
        places = list(dict.fromkeys((where, reason(message)) for where, message in guilty))
        places = places or [(Where(), reason(resource.message))]
        self._refusals.add(refusal)
        named = "; ".join(str(place) for place, _ in places if str(place))
        error = f"{refusal.host or resource.name}: {places[0][1]}"
        self._said[refusal] = f"{error} ({named})" if named else error
        self._problems.put(
            refusal,
            [Problem(place, f"Envoy rejects {kind} {resource.name}: {why}", hint) for place, why in places],
        )

    def _line(self, key: ObjectKey, line: int) -> Where:
        where = self._where(key)
        return msgspec.structs.replace(where, line=line) if where.file and line else where

    def _stands(self, refusal: _Refusal) -> bool:
        if refusal.host:
            return self._push.is_suspended(refusal.group, refusal.name, refusal.host)
        if refusal.type_url == SECRET and self._rereading.is_trying(refusal.group, refusal.name):
            return True
        return (refusal.type_url, refusal.name) in self._snapshots.rejected(refusal.group)


def reason(message: str) -> str:
    """Return the cause from a proxy's error message. Envoy writes the whole rejected resource before the cause, with
    varying headings, and truncates the text after 4096 characters, even if the cause is lost."""
    message = without_heading(message)
    beginning, _, cause = message.partition(_CONSTRAINT)
    if cause:
        return _DUMPED.sub("", beginning) + cause.rpartition("| caused by ")[2].removesuffix(")")
    return _DUMPED.sub(
        "the resource is not valid, and so large that Envoy's error message does not contain the cause", message
    )
