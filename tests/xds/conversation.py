"""A model of an xDS client: what it subscribed to, what it has, and what it acknowledges or rejects. It uses delta or
state-of-the-world requests in real bytes, without a network, and with a clock that the test moves."""

from __future__ import annotations

import msgspec
import pytest
from envoy.service.discovery.v3 import discovery_pb2

from weft.xds.request import parse
from weft.xds.response import Dialect, Response
from weft.xds.snapshot import Snapshots
from weft.xds.stream import Acked, Nacked, XdsStream
from weft.xds.types import CLUSTER, ENDPOINT, LISTENER, ROUTE, WHOLE_SET, WILDCARD

DELTA, SOTW = Dialect.DELTA, Dialect.STATE_OF_THE_WORLD
SHORT = {CLUSTER: "CDS", ENDPOINT: "EDS", LISTENER: "LDS", ROUTE: "RDS"}


both = pytest.mark.parametrize("dialect", [DELTA, SOTW])


class Blob(msgspec.Struct, frozen=True):
    name: str
    version: str
    body: bytes


def blob(name: str, version: str = "1") -> Blob:
    return Blob(name, version, f"{name}@{version}".encode())


def blobs(*names: str, version: str = "1") -> dict[str, Blob]:
    return {name: blob(name, version) for name in names}


def small_shop() -> Snapshots:
    snapshots = Snapshots()
    snapshots.replace("shop", {CLUSTER: blobs("a"), ENDPOINT: blobs("a"), LISTENER: blobs("l"), ROUTE: blobs("r")})
    return snapshots


class Client:
    def __init__(self, snapshots: Snapshots, dialect: Dialect = DELTA, group: str = "shop", **options: object) -> None:
        self.dialect = dialect
        self.now = 100.0
        self.have: dict[str, dict[str, str]] = {}  # type → name → version
        self.asked: dict[str, set[str]] = {}
        self.bad: set[tuple[str, str]] = set()  # (name, version) that this client rejects
        self.seen: list[str] = []  # "CDS +a +b -c" per response, in order
        self.outcomes: list[Acked | Nacked] = []
        self.group = group
        self.snapshots = snapshots
        self.options = options
        self.connect()

    def connect(self) -> None:
        self.stream = XdsStream(self.snapshots, self.group, self.dialect, node_id="node-1", **self.options)
        self.nonces: dict[str, str] = {}

    def reconnect(self) -> None:
        """Reconnect as a real client does: subscribe again to the same names and, in delta, send the versions that it
        has."""
        self.stream.close()
        self.connect()
        for type_url, names in self.asked.items():
            if self.dialect is DELTA:
                legacy = names == {WILDCARD} and type_url in WHOLE_SET
                self.send(type_url, subscribe=() if legacy else sorted(names), versions=self.have.get(type_url, {}))
            else:
                self.send(type_url, names=sorted(names - {WILDCARD}) if names == {WILDCARD} else sorted(names))

    def ask(self, type_url: str, *names: str) -> None:
        """Subscribe to more names; none means everything."""
        self.asked.setdefault(type_url, set()).update(names or (WILDCARD,))
        if self.dialect is DELTA:
            self.send(type_url, subscribe=names)
        else:
            every = self.asked[type_url]
            self.send(type_url, names=() if every == {WILDCARD} else sorted(every), nonce=self.nonces.get(type_url, ""))

    def forget(self, type_url: str, *names: str) -> None:
        self.asked[type_url].difference_update(names)
        if WILDCARD not in self.asked[type_url]:
            for name in names:
                self.have.get(type_url, {}).pop(name, None)
        if self.dialect is DELTA:
            self.send(type_url, unsubscribe=names)
        else:
            self.send(type_url, names=sorted(self.asked[type_url]), nonce=self.nonces.get(type_url, ""))

    def send(self, type_url, *, names=(), subscribe=(), unsubscribe=(), versions=None, nonce="", error=None):
        if self.dialect is DELTA:
            message = discovery_pb2.DeltaDiscoveryRequest(
                type_url=type_url,
                resource_names_subscribe=subscribe,
                resource_names_unsubscribe=unsubscribe,
                initial_resource_versions=versions or {},
                response_nonce=nonce,
            )
        else:
            message = discovery_pb2.DiscoveryRequest(type_url=type_url, resource_names=names, response_nonce=nonce)
        if error is not None:
            message.error_detail.message = error
        request, _ = parse(self.dialect, message.SerializeToString())
        outcome = self.stream.receive(request, self.now)
        if outcome is not None:
            self.outcomes.append(outcome)
        return outcome

    def turn(self) -> list[Response]:
        responses = self.stream.turn(self.now)
        self.seen += [told(response) for response in responses]
        return responses

    def ack(self, response: Response) -> None:
        self._take(response)
        self._answer(response)

    def nack(self, response: Response, message: str = "no") -> None:
        self._answer(response, message)

    def answer(self, response: Response) -> None:
        if any((name, version) in self.bad for name, version in contents(self.dialect, response).items()):
            self.nack(response)
        else:
            self.ack(response)

    def settle(self) -> list[str]:
        """Take turns and acknowledge until there are no more responses. Returns the responses as in `seen`."""
        before = len(self.seen)
        for _ in range(1000):
            responses = self.turn()
            for response in responses:
                self.answer(response)
            if not responses:
                return self.seen[before:]
        raise AssertionError(f"the stream does not come to rest: {self.seen[-6:]}")

    def _answer(self, response: Response, error: str | None = None) -> None:
        self.nonces[response.type_url] = response.nonce
        names = self.asked.get(response.type_url, set())
        names = () if names == {WILDCARD} else sorted(names)
        self.send(response.type_url, names=names, nonce=response.nonce, error=error)

    def _take(self, response: Response) -> None:
        have = self.have.setdefault(response.type_url, {})
        asked = self.asked[response.type_url]
        content = {n: v for n, v in contents(self.dialect, response).items() if n in asked or WILDCARD in asked}
        if self.dialect is SOTW and response.type_url in WHOLE_SET:
            have.clear()
        have.update(content)
        for name in removed(self.dialect, response):
            have.pop(name, None)


def envoy(snapshots: Snapshots, dialect=DELTA, **options: object) -> Client:
    """Return a client that subscribes as Envoy does: to every cluster and listener, and to endpoints and routes by
    name. It has acknowledged everything."""
    client = Client(snapshots, dialect, **options)
    client.ask(CLUSTER)
    client.settle()
    if client.have[CLUSTER]:
        client.ask(ENDPOINT, *client.have[CLUSTER])
    client.settle()
    client.ask(LISTENER)
    client.ask(ROUTE, "r")
    client.settle()
    client.seen.clear()
    return client


def contents(dialect: Dialect, response: Response) -> dict[str, str]:
    """Return name → version, decoded from the bytes of the response and not from the object."""
    if dialect is DELTA:
        message = discovery_pb2.DeltaDiscoveryResponse.FromString(response.payload)
        bodies = [entry.resource.value for entry in message.resources]
    else:
        message = discovery_pb2.DiscoveryResponse.FromString(response.payload)
        bodies = [entry.value for entry in message.resources]
    return dict(body.decode().rsplit("@", 1) for body in bodies)


def removed(dialect: Dialect, response: Response) -> list[str]:
    if dialect is SOTW:
        return []
    return list(discovery_pb2.DeltaDiscoveryResponse.FromString(response.payload).removed_resources)


def told(response: Response) -> str:
    kind = SHORT.get(response.type_url, response.type_url)
    up = [f"+{resource.name}" for resource in response.resources]
    return " ".join([kind, *sorted(up), *sorted(f"-{name}" for name in response.removed)])
