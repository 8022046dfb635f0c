"""One type on one stream: what the client asked for, what it is owed, and the one response it has not answered.

`stream.py` owns these and decides when something goes out; this room decides what is owed.
Rule: what is owed is a set of names, never a queue. A slow client is owed the latest of each name, once.
"""

from __future__ import annotations

from collections.abc import Mapping
from weakref import WeakKeyDictionary, ref

import msgspec

from weft.xds.request import HELD, NAMES, StreamRefused, XdsRequest
from weft.xds.response import Dialect, Response
from weft.xds.table import Behind, Resource, ResourceTable
from weft.xds.types import WHOLE_SET, WILDCARD, is_held

# Proxies of one group ask for the same names, thousands of them: one set of strings serves them all. It is its own key,
# so neither may keep it alive: every name more makes another.
_names: WeakKeyDictionary[frozenset[str], ref[frozenset[str]]] = WeakKeyDictionary()


class Flight(msgspec.Struct, frozen=True):
    """A response that is out, and the names for whose sake it went."""

    response: Response
    upserts: tuple[str, ...]
    removals: tuple[str, ...]


class Subscription:
    def __init__(self, type_url: str) -> None:
        self.type_url = type_url
        self.wildcard = False
        self.names: frozenset[str] = frozenset()
        # Name → whether the client waits for an answer, having nothing of that name: "there is none" is one, too.
        self.owed: dict[str, bool] = {}
        self.answer_due = False  # a wildcard is answered even when there is nothing to say
        self.started = False
        self.had = False  # the client came with something of it, as it still is
        self.revision = 0  # everything up to here has been looked at, and is owed, out, or settled
        self.settled = 0  # everything up to here has been answered
        self.behind = 0  # the first change after that; meaningful while the client is not settled
        self.flight: Flight | None = None
        self.nonce = ""
        self.sent_at: float | None = None
        self.settled_at: float | None = None
        self.held_since: float | None = None
        self.answers_held_since: float | None = None
        self.error: str | None = None
        self.refused: dict[str, str] = {}  # name → the version this client will not have
        self.at_most: int | None = None  # upserts per response while looking for the one that is refused
        self.pinned: dict[str, Resource | None] = {}  # sent as they were when this was filled, whatever they are by now
        self._named = False  # naming nothing means everything only until something has been named
        self._versions: Mapping[str, str] = {}
        self._held: set[str] = set()  # of the names, those that calls wait for

    def _admitted(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Without those that too many calls wait for. An application that tries every address there is must neither
        cut its proxy off, as too many names do, nor keep busy who serves others as well."""
        if not any(is_held(self.type_url, name) for name in names):
            return names
        found = []
        for name in names:
            if is_held(self.type_url, name) and name not in self._held:
                if len(self._held) >= HELD:
                    continue
                self._held.add(name)
            found.append(name)
        return tuple(found)

    def watches(self, name: str) -> bool:
        return name in self.names or (self.wildcard and not is_held(self.type_url, name))

    def request(self, request: XdsRequest, dialect: Dialect, table: ResourceTable, *, first: bool) -> None:
        if first:
            self._versions = request.versions
        if dialect is Dialect.DELTA:
            unwanted = frozenset(request.unsubscribe)
            self._held -= unwanted
            added = self._admitted(request.names)
            if first and not added and self.type_url in WHOLE_SET:
                added = (WILDCARD,)
        else:
            self._named = self._named or bool(request.names)
            # Calls can be held by who speaks delta alone: no other Envoy asks on demand.
            named = tuple(name for name in request.names if not is_held(self.type_url, name))
            wanted = set(named) if self._named or self.type_url not in WHOLE_SET else {WILDCARD}
            had = self.names | {WILDCARD} if self.wildcard else self.names
            unwanted = had - wanted
            added = tuple(name for name in dict.fromkeys((*named, *wanted)) if name not in had)
        if not added and not unwanted:
            return
        had_names = self.names
        names = had_names.difference(unwanted).union(added) - {WILDCARD}
        if len(names) > NAMES:
            raise StreamRefused(f"{len(names)} names of {self.type_url} on one stream; {NAMES} are the most")
        self.names = _shared(names)
        for name in unwanted:
            self._unsubscribe(name)
        for name in added:
            self._subscribe(name, table, again=name in had_names)

    def start(self, table: ResourceTable) -> list[Resource]:
        """The group has its first state: compare all that is asked for with what the client says it has. Returns what
        it has taken before."""
        self.started = True
        taken: list[Resource] = []
        self.revision = table.revision
        versions, self._versions = self._versions, {}
        asked = {**table.live, **versions} if self.wildcard else {}
        for name in (*asked, *(name for name in self.names if name not in asked)):
            resource, held = table.live.get(name), versions.get(name)
            if held is None and not self.watches(name):
                continue
            if resource is not None and resource.version == held:
                taken.append(resource)
            else:
                self.owed[name] = held is None
        self.had = bool(taken)
        return taken

    def look(self, table: ResourceTable) -> None:
        """Owe what changed since the last look. While a response is out there is no need to look: the table remembers,
        once for all streams, and a client that never answers costs nothing until it is too far behind."""
        if self.revision < table.floor:
            raise Behind(f"{self.type_url}: changes before push {table.floor} are forgotten")
        if self.flight is None and self.revision != table.revision:
            self._see(table)

    def pin(self, table: ResourceTable, *, every: bool) -> None:
        """Look, though a response be out, and send what is owed as it is now until `pinned` is emptied. `every`: and
        whatever else is asked for by then."""
        self._see(table)
        out = self.flight.upserts if self.flight is not None else ()  # if it is refused, it is owed again
        self.pinned = {name: table.live.get(name) for name in (*self.owed, *out, *(table.live if every else ()))}

    def resource(self, name: str, table: ResourceTable) -> Resource | None:
        return self.pinned[name] if name in self.pinned else table.live.get(name)

    def _see(self, table: ResourceTable) -> None:
        for name in table.changed_since(self.revision):
            if self.watches(name):
                self.owed.setdefault(name, False)
        for name, version in tuple(self.refused.items()):
            resource = table.live.get(name)
            if name not in table.rejected and (resource is None or resource.version != version):
                del self.refused[name]
        self.revision = table.revision

    def withholds(self, resource: Resource, table: ResourceTable) -> bool:
        """Whether this client has refused what another of its group took. What nobody took the table hides; if it
        is live all the same, it was taken back and has come again, and is tried, and reported, again."""
        if self.refused.get(resource.name) != resource.version:
            return False
        accepted = table.accepted.get(resource.name)
        return accepted is not None and accepted.version == resource.version

    def sendable(self, table: ResourceTable, dialect: Dialect) -> tuple[list[str], list[str]]:
        """Split what is owed into upserts and removals, and forget what need not or cannot be said."""
        upserts: list[str] = []
        removals: list[str] = []
        for name, awaited in tuple(self.owed.items()):
            resource = self.resource(name, table)
            if resource is not None:
                if self.withholds(resource, table):
                    del self.owed[name]
                else:
                    upserts.append(name)
            elif (
                is_held(self.type_url, name)
                or (name in table.rejected and not awaited)
                or (dialect is Dialect.STATE_OF_THE_WORLD and self.type_url not in WHOLE_SET)
            ):
                del self.owed[name]
            else:
                removals.append(name)
        return upserts, removals

    def sent(self, flight: Flight, now: float) -> None:
        for name in (*flight.upserts, *flight.removals):
            del self.owed[name]
        if not self.owed:
            self.owed = {}  # an emptied dict keeps the room of thousands of names, on each of thousands of streams
        self.flight, self.nonce, self.sent_at = flight, flight.response.nonce, now
        self.answer_due = False
        self.held_since = self.answers_held_since = None

    def settle(self, now: float) -> None:
        if self.flight is None and not self.owed and not self.answer_due and self.settled != self.revision:
            self.settled = self.revision
            self.settled_at = now

    def mark(self, table: ResourceTable) -> None:
        """Remember which change the client has not answered, while the table still knows: a name that changes again
        is known by its last change only."""
        if self.behind > self.settled or self.is_settled(table):
            return
        news = table.changed_since(self.settled) if self.settled else ()
        self.behind = min((table.changed_at(name) for name in news if self.watches(name)), default=table.revision)

    def is_settled(self, table: ResourceTable) -> bool:
        return (
            self.started
            and self.flight is None
            and not self.owed
            and not self.answer_due
            and self.revision == table.revision
        )

    def next_nonce(self) -> str:
        """The push number, so that streams with the same news get the same bytes; counted on where one push takes
        several responses, for a nonce names one response."""
        push, _, count = self.nonce.partition(".")
        if push != str(self.revision):
            return str(self.revision)
        return f"{push}.{int(count or 0) + 1}"

    def _subscribe(self, name: str, table: ResourceTable, *, again: bool) -> None:
        if name == WILDCARD:
            if not self.wildcard:
                self.wildcard = self.answer_due = True
                if self.started:
                    self.owed.update((name, self.owed.get(name, False)) for name in table.live if self.watches(name))
            return
        # Asked for again, it is sent again; but what a client may still have is not taken from it by a quarantine.
        keep = again and name in table.rejected and name not in table.live
        if self.started and not keep:
            self.owed[name] = True

    def _unsubscribe(self, name: str) -> None:
        if name in self._versions:  # asked for again before the group has its first state, it must come again
            self._versions = {each: version for each, version in self._versions.items() if each != name}
        if name == WILDCARD:
            self.wildcard = self.answer_due = False
            self.owed = {name: awaited for name, awaited in self.owed.items() if name in self.names}
            return
        if not self.wildcard or is_held(self.type_url, name):
            self.owed.pop(name, None)
            self.refused.pop(name, None)
        elif self.started:
            self.owed[name] = True  # the client cannot tell whether the wildcard still covers it


def _shared(names: frozenset[str]) -> frozenset[str]:
    kept = _names.get(names)
    found = kept() if kept is not None else None
    if found is None:
        found = names
        _names[names] = ref(names)
    return found
