"""What proxies refuse, and whose fault it is.

A refused resource goes back to what was accepted (`xds/snapshot.py`) and becomes a problem of the objects it was made
from. A port's route configuration holds everybody's routes, so there the one host at fault is looked for: all that is
new in it is put back, and tried again by halves. One bad host then holds back nobody else, now or later. Where several
objects are left, or one with many parts, `push/culprit_search.py` finds the one at fault, down to its line. Secrets
in files are tried again by themselves (`push/unread_secrets.py`).
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
_HINT = "proxies keep the last version that worked; mend the object and save it"
_FILES_HINT = "mend the files, and let the proxy (user 1337) read them; they are tried again by themselves"


class _Refusal(msgspec.Struct, frozen=True):
    """The topic of a problem: a resource, or one host in a route configuration."""

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
        self._said: dict[_Refusal, str] = {}  # by a proxy, of each
        self._trials: dict[tuple[Group, str], list[tuple[str, ...]]] = {}  # hosts to try again, by route configuration
        self._inquiries = Inquiries(snapshots)
        self._rereading = Rereading(snapshots)

    def refused(self, resource: NackedResource) -> None:
        group = resource.group
        if not isinstance(group, Group):
            return
        if is_trial(resource):
            self._inquiries.refused(group, resource)
        elif resource.type_url == ROUTE:
            self._look_for_the_host(group, resource)
        else:
            built = self._push.resource(group, resource.type_url, resource.name)
            refusal = _Refusal(group, resource.type_url, resource.name)
            is_file = resource.type_url == SECRET and self._rereading.refused(group, resource.name, resource.version)
            self._report(refusal, resource, built.sources if built else (), _FILES_HINT if is_file else _HINT)
            lineup = self._push.suspects(group, built) if built else None
            self._inquiries.open(group, refusal, lineup, self._reporter(refusal, resource))

    def accepted(self, group: Group, type_url: str) -> None:
        """A proxy of the group has taken something: go on with what is still to be tried."""
        if type_url == ROUTE:
            for name in [name for of, name in self._trials if of == group]:
                self._try_next(group, name)
        elif type_url == SECRET:
            self._rereading.accepted(group)
        self._inquiries.accepted(group)
        self.forget_mended()

    def forget(self, group: Group) -> None:
        """It has no proxies any more; when some come, everything is tried anew."""
        for trial in [trial for trial in self._trials if trial[0] == group]:
            del self._trials[trial]
        self._inquiries.forget(group)
        self._rereading.forget(group)
        self.forget_mended()

    def forget_mended(self) -> None:
        """A refusal is no problem any more once something else has taken its place."""
        for refusal in [refusal for refusal in self._refusals if not self._stands(refusal)]:
            self._refusals.discard(refusal)
            self._said.pop(refusal, None)
            self._problems.put(refusal, ())
            self._inquiries.close(refusal.group, refusal)

    def said(self, group: Group) -> dict[str, str]:
        """By type, what a proxy of the group said last of something that it still does not have for it."""
        self.forget_mended()
        return {refusal.type_url: said for refusal, said in self._said.items() if refusal.group == group}

    def by_resource(self, group: Group) -> dict[tuple[str, str], tuple[Problem, ...]]:
        """By type and name, what proxies of the group do not take as it is."""
        self.forget_mended()
        found: dict[tuple[str, str], tuple[Problem, ...]] = {}
        for refusal in self._refusals:
            if refusal.group == group:
                key = (refusal.type_url, refusal.name)
                found[key] = (*found.get(key, ()), *self._problems.of(refusal))
        return found

    def standing(self) -> tuple[Problem, ...]:
        """Each once, in an order that stays."""
        self.forget_mended()
        return tuple(sorted({each for refusal in self._refusals for each in self._problems.of(refusal)}, key=str))

    def _look_for_the_host(self, group: Group, resource: NackedResource) -> None:
        accepted = self._snapshots.accepted(group, ROUTE, resource.name)
        suspects = self._push.suspend(group, resource.name, accepted.body if accepted else b"")
        if len(suspects) == 1:
            host, refused = next(iter(suspects.items()))
            # Where VirtualServices state the routes, the service only names the host.
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
            if guilty:  # else each alone is accepted, and it is all of them together
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
        said = f"{refusal.host or resource.name}: {places[0][1]}"
        self._said[refusal] = f"{said} ({named})" if named else said
        self._problems.put(
            refusal,
            [Problem(place, f"Envoy refuses {kind} {resource.name}: {why}", hint) for place, why in places],
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
    """What is wrong, in a proxy's words. Before it Envoy writes all of what it is wrong with, each time under another
    heading, and ends after 4096 characters, whether it has come to the point or not."""
    message = without_heading(message)
    beginning, _, cause = message.partition(_CONSTRAINT)
    if cause:
        return _DUMPED.sub("", beginning) + cause.rpartition("| caused by ")[2].removesuffix(")")
    return _DUMPED.sub("it is not valid, and too long for Envoy to say why", message)
