"""One client's xDS stream, without its socket. The caller passes each request to `receive`, calls `turn` to get the
responses that may be sent, and passes the current time to both.

Delta and state-of-the-world streams share this code: both owe the client the same names, and differ only in how a
subscription is parsed and a response is filled. Rules: one unacknowledged response per type, while further changes wait
as names; no resource is removed while another one uses it (`types.PUSH_ORDER`); a rejected response is bisected until
the one resource at fault is found. While Envoy holds calls for on-demand CDS, the state at that time is sent completely
before anything newer (`_Round`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable

import msgspec

from weft.xds.request import StreamRefused, XdsRequest
from weft.xds.response import Dialect, Response, Responses
from weft.xds.snapshot import Snapshots
from weft.xds.subscription import Flight, Subscription
from weft.xds.table import Behind, Resource, ResourceTable
from weft.xds.types import CLUSTER, ENDPOINT, LISTENER, PUSH_ORDER, ROUTE, WHOLE_SET, PushPart, PushStep, is_held

# Clusters that a client is slow to warm must not delay listeners and routes forever. Envoy acknowledges within
# milliseconds; if it takes seconds, a cluster waits for something that will not arrive soon.
HOLD_SECONDS = 2.0

# Envoy has about a dozen types; the rest is room for future ones.
TYPES = 32

_ORDERED = frozenset(step.type_url for step in PUSH_ORDER)
_PINNED = (CLUSTER, ROUTE, LISTENER)  # types that a round fixes; endpoints and secrets are never delayed


class NackedResource(msgspec.Struct, frozen=True):
    """A version of a resource that a client has rejected. `group`, `node_id`: those of the client. `message`: the
    client's error message."""

    group: Hashable
    type_url: str
    name: str
    version: str
    message: str
    node_id: str


class Acked(msgspec.Struct, frozen=True):
    type_url: str
    nonce: str


class Nacked(msgspec.Struct, frozen=True):
    type_url: str
    nonce: str
    message: str
    resource: NackedResource | None  # None while the resource at fault is not identified yet


class _Round(msgspec.Struct, frozen=True):
    """The state of the group at one moment. A client must have this state before its held calls continue; changes after
    that moment wait for the next round. The reason for rounds: new calls may arrive all the time, and if held calls
    also waited for later changes, none would ever continue. `names`: the clusters whose held calls continue after this
    round. `since`: when the round began. `endpoints`: the revision of the endpoints at that time. `routes`: the routes
    that existed at that time and that the client has not requested."""

    names: frozenset[str]  # the clusters whose held calls continue after this round
    since: float
    endpoints: int  # revision of the endpoints when the round began
    routes: frozenset[str]  # routes that existed when the round began and that the client has not requested


class XdsStream:
    def __init__(
        self,
        snapshots: Snapshots,
        group: Hashable,
        dialect: Dialect,
        *,
        node_id: str = "",
        responses: Responses | None = None,
        wake: Callable[[], None] = lambda: None,
    ) -> None:
        self.dialect = dialect
        self.node_id = node_id
        self.subscriptions: dict[str, Subscription] = {}
        self.wake = wake
        self._snapshots = snapshots
        self._responses = responses or Responses()
        self._warming: set[str] = set()  # clusters that were sent and whose existing endpoints are not acknowledged
        self._round: _Round | None = None
        self._in_vain: dict[
            str, str
        ] = {}  # name → version of routes that held calls waited for and that no listener requested
        self._group = snapshots.attach(group, self)
        self._ended = ""

    def receive(self, request: XdsRequest, now: float) -> Acked | Nacked | None:
        """Process a request. The next `turn` returns the responses to it. Returns Acked or Nacked if the request
        acknowledges or rejects the unacknowledged response of its type, else None."""
        subscription = self.subscriptions.get(request.type_url)
        first = subscription is None
        if subscription is None:
            if len(self.subscriptions) >= TYPES:
                raise StreamRefused(f"more than {TYPES} types on one stream")
            subscription = self.subscriptions[request.type_url] = Subscription(request.type_url)
        outcome = None
        if request.nonce and not first:
            if subscription.flight is not None and subscription.flight.response.nonce == request.nonce:
                outcome = self._answered(subscription, subscription.flight, request.error, now)
            elif self.dialect is Dialect.STATE_OF_THE_WORLD and request.nonce != subscription.nonce:
                return None  # the request is older than the latest response, which the client will ACK or NACK later
        subscription.request(request, self.dialect, self._table(request.type_url), first=first)
        return outcome

    def turn(self, now: float) -> list[Response]:
        """Return every response that may be sent now. Raises Behind when the stream must be restarted."""
        if self._ended or self._group.dropped:
            raise Behind(self._ended or "the group of this stream was dropped")
        if not self._group.ready:
            return []
        for type_url, subscription in self.subscriptions.items():
            if not subscription.started:
                current = subscription.start(self._table(type_url))
                if current:
                    self._snapshots.accept(self._group.identifier, type_url, current)
                if type_url == ENDPOINT:
                    self._answer_warming(self._warming)
        self._look(now)
        others = [
            PushStep(type_url, PushPart.BOTH, (), "") for type_url in self.subscriptions if type_url not in _ORDERED
        ]
        sent = [response for step in (*PUSH_ORDER, *others) if (response := self._take(step, now)) is not None]
        for type_url, subscription in self.subscriptions.items():
            subscription.settle(now)
            subscription.mark(self._table(type_url))
        return sent

    def restart(self, why: str) -> None:
        """Make the next `turn` raise Behind with the reason `why`, so that the client reconnects."""
        self._ended = why
        self.wake()

    @property
    def wake_at(self) -> float | None:
        """The time at which `turn` must be called even without a new event; None if `turn` need not be called."""
        both = ((each.held_since, each.answers_held_since) for each in self.subscriptions.values())
        waiting_since = [since for each in both for since in each if since is not None]
        if self._round is not None:
            waiting_since.append(self._round.since)
        return min(waiting_since) + HOLD_SECONDS if waiting_since else None

    def settled(self, type_url: str) -> int | None:
        subscription = self.subscriptions.get(type_url)
        return None if subscription is None or not subscription.started else subscription.settled

    def synced(self, types: frozenset[str] = frozenset({CLUSTER, LISTENER})) -> bool:
        """Whether the client has acknowledged everything and has subscribed to at least these types."""
        return (
            types <= self.subscriptions.keys()
            and self._group.ready
            and all(self.is_settled(type_url) for type_url in self.subscriptions)
        )

    def is_settled(self, type_url: str) -> bool:
        return self._group.ready and self.subscriptions[type_url].is_settled(self._table(type_url))

    def close(self) -> None:
        self._snapshots.detach(self._group, self)

    def _look(self, now: float) -> None:
        """Find changes to send, and begin or end a round (`_Round`). For a slow client, a round ends after HOLD_SECONDS
        and a new round begins with the current state, so that changes are not delayed for long."""
        if self._round is not None:
            over = now >= self._round.since + HOLD_SECONDS
            if over or self._round.names.isdisjoint(self._answerable()):
                self._end_round()
        for type_url, subscription in self.subscriptions.items():
            if self._round is None or type_url not in _PINNED:
                subscription.look(self._table(type_url))
        if self._round is None and (names := self._answerable()):
            self._begin_round(names, now)
        if self._round is None and (clusters := self.subscriptions.get(CLUSTER)) is not None:
            clusters.answers_held_since = None

    def _answerable(self) -> frozenset[str]:
        """Return the clusters whose sending releases held calls: held calls wait for them, they exist, and they are
        still owed to the client."""
        clusters, live = self.subscriptions.get(CLUSTER), self._table(CLUSTER).live
        if clusters is None or not clusters.owed or not clusters.names:
            return frozenset()
        # The loop goes over the smaller set: usually few names are owed, or few are subscribed by name.
        few, many = sorted((clusters.owed.keys(), clusters.names), key=len)
        return frozenset(name for name in few if name in many and is_held(CLUSTER, name) and name in live)

    def _begin_round(self, names: frozenset[str], now: float) -> None:
        for type_url in _PINNED:
            subscription = self.subscriptions.get(type_url)
            if subscription is not None and subscription.started:
                table = self._table(type_url)
                # All routes are pinned: new listeners request their routes in the middle of the round.
                subscription.pin(table, every=type_url == ROUTE)
        routes = self.subscriptions.get(ROUTE)
        requested = routes.names if routes is not None else frozenset()
        unrequested = frozenset(name for name in self._table(ROUTE).live if name not in requested)
        self._round = _Round(names, now, self._table(ENDPOINT).revision, unrequested)

    def _end_round(self) -> None:
        self._round = None
        for subscription in self.subscriptions.values():
            subscription.pinned = {}

    def _take(self, step: PushStep, now: float) -> Response | None:
        subscription = self.subscriptions.get(step.type_url)
        if subscription is None or subscription.flight is not None:
            return None
        if not (subscription.owed or subscription.answer_due):  # nothing to send, as for most types in most turns
            subscription.held_since = subscription.answers_held_since = None
            return None
        table = self._table(step.type_url)
        upserts, removals = subscription.sendable(table, self.dialect)
        if step.part is PushPart.UPSERTS:
            # The removal of a name that the client requested and waits for is sent together with the upserts.
            removals = [name for name in removals if subscription.owed[name]]
        elif step.part is PushPart.REMOVALS:
            upserts = []
        if step.part is PushPart.ANSWERS:
            due = self._round
            if due is None or self._answers_wait(step, subscription, due, now):
                return None
            answers = tuple(name for name in upserts if name in due.names)
            response = self._send(subscription, table, answers, (), now) if answers else None
            self._end_round()
            return response
        upserts = [name for name in upserts if not is_held(step.type_url, name)]
        if subscription.at_most is not None:
            upserts = upserts[: subscription.at_most]
        if not (upserts or removals or (subscription.answer_due and step.part is not PushPart.REMOVALS)):
            if step.part is not PushPart.REMOVALS:  # the upserts of the type belong to another step
                subscription.held_since = None
            return None
        if self._held(step, subscription, now):
            return None
        return self._send(subscription, table, tuple(upserts), tuple(removals), now)

    def _held(self, step: PushStep, subscription: Subscription, now: float) -> bool:
        """Whether a step of PUSH_ORDER must wait until resources of other types were sent or acknowledged. Only
        proxies that subscribe to all clusters need this order; other clients request a resource when they can use
        it."""
        clusters = self.subscriptions.get(CLUSTER)
        if clusters is None or not clusters.wildcard:
            return False
        if step.part is PushPart.REMOVALS:
            return any(
                other.flight or any(not is_held(url, name) for name in other.owed)
                for url in step.after
                if (other := self.subscriptions.get(url))
            )
        unsent = ROUTE in step.after and self._routes_unsent()
        if CLUSTER not in step.after or not (unsent or self._clusters_awaited(clusters)):
            subscription.held_since = None
            return False
        if subscription.held_since is None:
            subscription.held_since = now
        return now < subscription.held_since + HOLD_SECONDS

    def _answers_wait(self, step: PushStep, subscription: Subscription, due: _Round, now: float) -> bool:
        """Whether the held calls of the round `due` (see `_Round`) must keep waiting. `step`: the step of PUSH_ORDER
        that sends their clusters; `subscription`: that of the clusters. The calls wait without a time limit until the
        client has acknowledged the listeners, routes and endpoints that it is owed: a call that continued before its
        listeners exist would bypass them and leave the pod unprotected (without mTLS). They wait at most HOLD_SECONDS
        for clusters that are not warm, because without a warm cluster a call only gets an error response, and for
        routes that no listener has requested yet, because some are never requested."""
        if any(self._is_behind(url, due) for url in step.after) or any(
            not is_held(step.type_url, name) for name in subscription.owed
        ):
            subscription.answers_held_since = None
            return True
        unrequested = self._unasked(due)
        if not self._warming & self._table(ENDPOINT).live.keys() and unrequested.items() <= self._in_vain.items():
            return False
        if subscription.answers_held_since is None:
            subscription.answers_held_since = now
        waits = now < subscription.answers_held_since + HOLD_SECONDS
        if not waits:  # later calls must not wait for these routes again
            self._in_vain = unrequested
        return waits

    def _is_behind(self, type_url: str, due: _Round) -> bool:
        other = self.subscriptions.get(type_url)
        if other is None or (type_url == ENDPOINT and other.settled >= due.endpoints):
            return False
        return bool(other.flight or other.owed)

    def _unasked(self, due: _Round) -> dict[str, str]:
        """Return the routes of the round `due` that no listener has requested yet, as name → version. A new listener
        requests its routes, and Envoy uses the listener once it has them."""
        routes, live = self.subscriptions.get(ROUTE), self._table(ROUTE).live
        requested = routes.names if routes is not None else frozenset()
        return {name: live[name].version for name in due.routes - requested if name in live}

    def _routes_unsent(self) -> bool:
        """Whether changes of the client's routes are unsent. Routes that are sent but not acknowledged do not count:
        the client processes them before any later response."""
        routes, table = self.subscriptions.get(ROUTE), self._table(ROUTE)
        if routes is None or not routes.started:
            return False
        unseen = table.changed_since(routes.revision) if routes.flight is not None and self._round is None else ()
        news = (*routes.owed, *filter(routes.watches, unseen))
        return any(routes.resource(name, table) is not None for name in news)

    def _clusters_awaited(self, clusters: Subscription) -> bool:
        return clusters.flight is not None or any(name in self._table(ENDPOINT).live for name in self._warming)

    def _send(
        self,
        subscription: Subscription,
        table: ResourceTable,
        upserts: tuple[str, ...],
        removals: tuple[str, ...],
        now: float,
    ) -> Response:
        resources: list[Resource]
        removed: tuple[str, ...]
        if self.dialect is Dialect.STATE_OF_THE_WORLD and subscription.type_url in WHOLE_SET:
            resources, removed = self._everything(subscription, table, {*upserts, *removals}), ()
        else:
            current = (subscription.resource(name, table) for name in upserts)
            resources, removed = [each for each in current if each is not None], removals
        nonce = subscription.next_nonce()
        # The key contains ids of resources instead of bodies: a cached response keeps its resources alive, so an id
        # stays unique.
        response = self._responses.get(
            (self._group, self.dialect, subscription.type_url, nonce, tuple(map(id, resources)), removed),
            lambda: Response(self.dialect, subscription.type_url, nonce, resources, removed),
        )
        subscription.sent(Flight(response, upserts, removals), now)
        if subscription.type_url == CLUSTER:
            self._warm(upserts, removals)
        return response

    def _everything(self, subscription: Subscription, table: ResourceTable, news: set[str]) -> list[Resource]:
        """Return all resources that a state-of-the-world response to `subscription` must contain: the client deletes
        every resource that is missing from it. `news`: the owed names that are part of this response. A resource whose
        change or removal is still owed, but not part of this response, is included in its previous version."""
        later = subscription.owed.keys() - news
        wildcard = subscription.wildcard
        names = filter(subscription.watches, table.live) if wildcard else sorted(subscription.names & table.live.keys())
        resources = [
            resource
            for name in names
            if (resource := table.accepted.get(name) if name in later else table.live[name]) is not None
            and not subscription.withholds(resource, table)
        ]
        removed_later = (table.removed.get(name) for name in later if name not in table.live)
        return resources + [resource for resource in removed_later if resource is not None]

    def _warm(self, sent: tuple[str, ...], removed: tuple[str, ...]) -> None:
        """Record which of the `sent` clusters are warming, and that the `removed` ones are not: Envoy uses a new or
        changed cluster only once it has endpoints."""
        live = self._table(ENDPOINT).live
        self._warming.difference_update(removed)
        self._warming.update(name for name in sent if name in live)
        self._answer_warming(sent)

    def _answer_warming(self, clusters: Iterable[str]) -> None:
        """Owe again the endpoints of clusters that the client is warming, even if the client already has these
        endpoints, or knows that they do not exist. The client does not request them again, and would acknowledge no
        cluster until it stops waiting, in Envoy after 15 s."""
        endpoints = self.subscriptions.get(ENDPOINT)
        if endpoints is not None and endpoints.started:
            live = self._table(ENDPOINT).live
            again = (name for name in clusters if name in endpoints.names or (endpoints.wildcard and name in live))
            endpoints.owed.update(dict.fromkeys(again, True))

    def _answered(
        self, subscription: Subscription, flight: Flight, error: str | None, now: float
    ) -> Acked | Nacked | None:
        subscription.flight = None
        if subscription.type_url == ENDPOINT:
            self._warming.difference_update(flight.upserts, flight.removals)
        response = flight.response
        if error is not None:
            culprit = self._refused(subscription, flight, error)
            return Nacked(subscription.type_url, response.nonce, error, culprit)
        if not response.accepted:
            response.accepted = True
            self._snapshots.accept(self._group.identifier, subscription.type_url, response.resources)
        if subscription.at_most is None:
            if not subscription.refused:
                subscription.error = None
        else:
            subscription.at_most *= 2
            if subscription.at_most >= len(subscription.owed):
                subscription.at_most = None
        subscription.settle(now)
        return Acked(subscription.type_url, response.nonce)

    def _refused(self, subscription: Subscription, flight: Flight, error: str) -> NackedResource | None:
        """Handle a NACK with the message `error`. If the rejected response (`flight`) had several resources, owe them
        again in smaller responses and return None. If it had one, that resource is at fault: quarantine its version,
        unless another proxy has accepted it, and return the resource. It is no longer owed, and nothing waits for
        it."""
        subscription.error = error
        if subscription.type_url == CLUSTER:
            self._warming.difference_update(flight.upserts)
        if len(flight.upserts) != 1:
            again = (*filter(subscription.watches, flight.upserts), *(flight.removals if flight.upserts else ()))
            subscription.owed = {**dict.fromkeys(again, False), **subscription.owed}
            subscription.at_most = max(1, len(flight.upserts) // 2) if flight.upserts else subscription.at_most
            return None
        subscription.owed.update((name, False) for name in flight.removals)
        (name,) = flight.upserts
        version = next(each.version for each in flight.response.resources if each.name == name)
        subscription.refused[name] = version
        if not subscription.owed:
            subscription.at_most = None
        self._snapshots.reject(self._group.identifier, subscription.type_url, name, version, error)
        return NackedResource(self._group.identifier, subscription.type_url, name, version, error, self.node_id)

    def _table(self, type_url: str) -> ResourceTable:
        return self._group.table(type_url)
