"""The subscription of one client to one resource type: the names it has subscribed to, the names it is owed, and its
unacknowledged response.

`stream.py` owns subscriptions and decides when something is sent; this module decides what is owed. Rule: what is owed
is a set of names, never a queue. A slow client is owed the latest version of each name, once.
"""

from __future__ import annotations

from collections.abc import Mapping
from weakref import WeakKeyDictionary, ref

import msgspec

from weft.xds.request import HELD, NAMES, StreamRefused, XdsRequest
from weft.xds.response import Dialect, Response
from weft.xds.table import Behind, Resource, ResourceTable
from weft.xds.types import WHOLE_SET, WILDCARD, is_held

# Proxies of one group subscribe to the same thousands of names and share one frozenset of them. The frozenset is its
# own key, so this dict must not keep it alive: every added name makes a new frozenset.
_names: WeakKeyDictionary[frozenset[str], ref[frozenset[str]]] = WeakKeyDictionary()


class Flight(msgspec.Struct, frozen=True):
    """A response that the client has not acknowledged yet. `upserts`: the names of the resources in it. `removals`: the
    names of the resources that it removes."""

    response: Response
    upserts: tuple[str, ...]
    removals: tuple[str, ...]


class Subscription:
    def __init__(self, type_url: str) -> None:
        self.type_url = type_url
        self.wildcard = False
        self.names: frozenset[str] = frozenset()
        # Name → whether the client has no resource of that name and waits for a response, even for "does not exist".
        self.owed: dict[str, bool] = {}
        self.answer_due = False  # a response is due even if it is empty, to a new wildcard subscription
        self.started = False
        self.had = False  # the client has resources from an earlier stream that are still current
        self.revision = 0  # all changes up to this revision are owed, sent or acknowledged
        self.settled = 0  # all changes up to this revision are acknowledged
        self.behind = 0  # the first change after `settled`; meaningful only if not everything is acknowledged
        self.flight: Flight | None = None
        self.nonce = ""
        self.sent_at: float | None = None
        self.settled_at: float | None = None
        self.held_since: float | None = None
        self.answers_held_since: float | None = None
        self.error: str | None = None
        self.refused: dict[str, str] = {}  # name → the version that this client rejected
        self.at_most: int | None = None  # upserts per response while searching for the rejected resource
        self.pinned: dict[str, Resource | None] = {}  # versions to send, even if the table has newer ones
        self._named = False  # whether the client has sent a name; until then an empty list means wildcard
        self._versions: Mapping[str, str] = {}
        self._held: set[str] = set()  # the names that held calls wait for

    def _admitted(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Return `names` without names of held calls beyond the limit HELD. Too many other names end the stream.
        Names of held calls do not, because an application that tries every address must neither end the stream of
        its proxy nor load a server that other proxies use as well."""
        if not any(is_held(self.type_url, name) for name in names):
            return names
        admitted = []
        for name in names:
            if is_held(self.type_url, name) and name not in self._held:
                if len(self._held) >= HELD:
                    continue
                self._held.add(name)
            admitted.append(name)
        return tuple(admitted)

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
            # Only delta clients hold calls: Envoy's on-demand discovery needs delta.
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
            raise StreamRefused(f"{len(names)} names of {self.type_url} on one stream; the limit is {NAMES}")
        self.names = _shared(names)
        for name in unwanted:
            self._unsubscribe(name)
        for name in added:
            self._subscribe(name, table, again=name in had_names)

    def start(self, table: ResourceTable) -> list[Resource]:
        """Handle the first state of the group: owe all subscribed names whose version differs from the client's.
        Returns the resources that the client has already."""
        self.started = True
        current: list[Resource] = []
        self.revision = table.revision
        versions, self._versions = self._versions, {}
        candidates = {**table.live, **versions} if self.wildcard else {}
        for name in (*candidates, *(name for name in self.names if name not in candidates)):
            resource, version = table.live.get(name), versions.get(name)
            if version is None and not self.watches(name):
                continue
            if resource is not None and resource.version == version:
                current.append(resource)
            else:
                self.owed[name] = version is None
        self.had = bool(current)
        return current

    def look(self, table: ResourceTable) -> None:
        """Owe what changed since the last call. While a response is unacknowledged this does nothing: the table records
        changes once for all streams, so a client that never acknowledges costs nothing. Raises Behind if the changes
        that the client needs are no longer recorded."""
        if self.revision < table.floor:
            raise Behind(f"{self.type_url}: changes before push {table.floor} are no longer recorded")
        if self.flight is None and self.revision != table.revision:
            self._see(table)

    def pin(self, table: ResourceTable, *, every: bool) -> None:
        """Owe what changed since the last call, even if a response is unacknowledged, and store the owed resources in
        `pinned`. These versions are sent, whatever changes in the table later, until `pinned` is emptied. `every`: also
        store all other current resources of the table, which are not owed."""
        self._see(table)
        out = self.flight.upserts if self.flight is not None else ()  # owed again if the response is rejected
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
        """Whether `resource` must not be sent to this client. True if the client rejected exactly this version but
        another proxy of its group accepted it, so that it stays the current version. A rejected version that no proxy
        accepted is quarantined by the table. It becomes the current version again only if the resource was removed and
        added again, which lifts the quarantine: then this is False, the version is sent once more, and a NACK is
        reported once more."""
        if self.refused.get(resource.name) != resource.version:
            return False
        accepted = table.accepted.get(resource.name)
        return accepted is not None and accepted.version == resource.version

    def sendable(self, table: ResourceTable, dialect: Dialect) -> tuple[list[str], list[str]]:
        """Return (upserts, removals): the owed names whose resources exist, and those whose resources do not exist.
        Some names are in neither list, and are no longer owed. If the resource exists, the name is dropped if this
        client must not get the resource (`withholds`). If it does not exist, the name is dropped if it is a cluster of
        held calls, if it is quarantined and the client does not wait for it, or if a response of this type in the
        state-of-the-world dialect cannot remove a resource."""
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
            self.owed = {}  # a new dict, because an emptied one keeps its memory, on each of thousands of streams
        self.flight, self.nonce, self.sent_at = flight, flight.response.nonce, now
        self.answer_due = False
        self.held_since = self.answers_held_since = None

    def settle(self, now: float) -> None:
        if self.flight is None and not self.owed and not self.answer_due and self.settled != self.revision:
            self.settled = self.revision
            self.settled_at = now

    def mark(self, table: ResourceTable) -> None:
        """Record, in `behind`, the push of the first change that the client has not acknowledged. This must happen
        before the same name changes again, because the table keeps only the last change of each name."""
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
        """Return the nonce of the next response: the push number, so that streams with the same changes get the same
        bytes. If one push needs several responses, a counter is appended, because a nonce identifies one response."""
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
        # A name that is subscribed again is sent again, unless its only version is quarantined: then "does not exist"
        # would remove what the client may still have.
        keep = again and name in table.rejected and name not in table.live
        if self.started and not keep:
            self.owed[name] = True

    def _unsubscribe(self, name: str) -> None:
        if name in self._versions:  # if it is subscribed again before the group's first state, it is sent again
            self._versions = {each: version for each, version in self._versions.items() if each != name}
        if name == WILDCARD:
            self.wildcard = self.answer_due = False
            self.owed = {name: awaited for name, awaited in self.owed.items() if name in self.names}
            return
        if not self.wildcard or is_held(self.type_url, name):
            self.owed.pop(name, None)
            self.refused.pop(name, None)
        elif self.started:
            self.owed[name] = True  # the response shows whether the wildcard still covers the name


def _shared(names: frozenset[str]) -> frozenset[str]:
    reference = _names.get(names)
    shared = reference() if reference is not None else None
    if shared is None:
        shared = names
        _names[names] = ref(names)
    return shared
