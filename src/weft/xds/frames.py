"""The messages between a node's agent and the control plane, which share one stream for all proxies of a machine.

Envoy's own discovery handles one proxy and one type at a time. This protocol handles whole groups: a change of several
types is one message, which the agent applies at once, and the body of a resource (Envoy's serialized message, never
parsed here) is sent once, however many groups use it. Rules:

- A version identifies content: equal type, name and version mean equal bytes. An entry without a body refers to a body
  that the agent has in one of its groups after all earlier messages, or, until an `Update` sets `resumed`, to a body
  that the agent listed in its `Hello`.
- At most one `Update` is unacknowledged at a time; `TakenFrame` acknowledges it. The agent applies the parts of an
  `Update` in this order: groups (in their order), placements, `gone`.
- If the agent's `Hello` sets `builds`, a large body may be sent as a patch of a body that the agent has under the same
  name, and a new group as the difference from another of the agent's groups.
- A stream begins with `Hello`, which lists what the agent has, so that only differences follow.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from itertools import islice
from typing import Any, TypeVar

import msgspec

from weft.xds.patch import Patch
from weft.xds.request import NAME_LENGTH

SERVICE = "weft.node.v1.NodeDiscovery"
METHOD = "Stream"

# A report longer than this is sent in several messages. The control plane accepts messages four times as long
# (`request.REQUEST_BYTES`), and ends the stream of an agent that sends a longer one, at every attempt.
PORTION_BYTES = 4 << 20
# The longest message that an agent accepts: one whole group, which is tens of megabytes in the largest meshes.
UPDATE_BYTES = 256 << 20


class Malformed(ValueError):
    """The bytes are not a message of this protocol."""


# Messages of the control plane


class Entry(msgspec.Struct, frozen=True, array_like=True):
    name: str
    version: str
    body: bytes | None = None  # None: the agent has the body, or builds it from `patch`
    patch: Patch | None = None  # applies to a body of the same name that the agent has


class GroupUpdate(msgspec.Struct, frozen=True, array_like=True):
    group: str
    revision: int  # push number: this and earlier updates contain all changes up to it
    upserts: dict[str, list[Entry]] = {}  # type → entries
    removals: dict[str, list[str]] = {}
    fresh: bool = False  # whether this is the whole group, or a change of what the agent has
    whole: tuple[str, ...] = ()  # types that are complete in this update
    kept: dict[str, list[str]] = {}  # quarantined names missing from complete types: the agent keeps what it has
    like: str = ""  # with `fresh`: this update is the difference from this group, which the agent has
    replied: int = 0  # number of the last `WantedFrame` for this group that this update replies to


class Update(msgspec.Struct, frozen=True, array_like=True):
    nonce: int
    groups: tuple[GroupUpdate, ...] = ()
    placements: dict[str, str] = {}  # pod → group
    gone: tuple[str, ...] = ()  # groups for which no more updates are sent
    resumed: bool = False  # the agent may drop bodies that it listed in Hello and that are in no group


# Messages of the agent


class Hello(msgspec.Struct, frozen=True, array_like=True, tag="hello"):
    node: str
    pods: tuple[str, ...] = ()
    groups: dict[str, dict[str, str]] = {}  # group → type → digest of the agent's names and versions
    bodies: dict[str, list[tuple[str, str]]] = {}  # type → names and versions
    builds: bool = False  # the agent accepts patches of bodies, and groups as differences
    wanted: dict[str, list[str]] = {}  # group → names of clusters and listeners that it calls
    whole: tuple[str, ...] = ()  # groups that have every service, or whose list of called clusters is too long


class PodsFrame(msgspec.Struct, frozen=True, array_like=True, tag="pods"):
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()


class TakenFrame(msgspec.Struct, frozen=True, array_like=True, tag="taken"):
    nonce: int


class Acceptance(msgspec.Struct, frozen=True, array_like=True):
    """A report that some proxy of the group has accepted resources of a type. `versions`: their versions by name;
    None if the proxy has accepted all resources of the type, as they were at `revision`."""

    group: str
    type_url: str
    versions: dict[str, str] | None = None
    revision: int = 0


class Refusal(msgspec.Struct, frozen=True, array_like=True):
    group: str
    type_url: str
    name: str
    version: str
    message: str
    proxy: str  # node id of the proxy


NOT_SENT = -1


class ProxyFrame(msgspec.Struct, frozen=True, array_like=True):
    """Sync state of one proxy, as its agent reports it. `number`: the id of the proxy's xDS stream at the agent.
    `settled`: for each type, the revision up to which the proxy has acknowledged every change; NOT_SENT if nothing of
    the type was sent to it. `behind`: for each stale type, the revision of the first change that the proxy has not
    acknowledged. `refused`: for each type, the error of the proxy's last NACK; `errors`: these errors without their
    types. `cluster`, `version`: CLUSTER_ID and ISTIO_VERSION in the proxy's node metadata."""

    number: int  # id of the proxy's xDS stream at the agent
    node_id: str
    group: str
    settled: dict[str, int] = {}
    errors: tuple[str, ...] = ()
    behind: dict[str, int] = {}  # type → revision of the first change that the proxy has not acknowledged
    refused: dict[str, str] = {}  # type → error message of the proxy's last NACK
    cluster: str = ""
    version: str = ""


class ReportFrame(msgspec.Struct, frozen=True, array_like=True, tag="report"):
    acceptances: tuple[Acceptance, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    proxies: tuple[ProxyFrame, ...] = ()
    left: tuple[int, ...] = ()  # numbers of proxies that have disconnected


class WantedFrame(msgspec.Struct, frozen=True, array_like=True, tag="wanted"):
    """Reports the names of resources that proxies of a group wait for or already have: clusters, and listeners
    `0.0.0.0_PORT`. A name is sent at most once on a stream, and the names in Hello count as sent. A frame whose
    `number` is not 0 gets a reply: an update of the group with all of the named resources that exist, even if the
    update changes nothing."""

    group: str
    names: tuple[str, ...]
    number: int = 0


FromAgent = Hello | PodsFrame | TakenFrame | ReportFrame | WantedFrame
_Frame = TypeVar("_Frame")
_Told = TypeVar("_Told", int, str)
_TYPES, _ERRORS, _ERROR_LENGTH = 16, 8, 512  # limits of the status of one proxy
_OVERHEAD = 10  # the most bytes that encoding adds to two strings

_encoder = msgspec.msgpack.Encoder()
_update_decoder = msgspec.msgpack.Decoder(Update)
_agent_decoder: msgspec.msgpack.Decoder[FromAgent] = msgspec.msgpack.Decoder(FromAgent)


def encode(frame: Update | FromAgent) -> bytes:
    return _encoder.encode(frame)


def encode_report(report: ReportFrame, most: int = PORTION_BYTES) -> Iterator[bytes]:
    """Encode a report as one message or, if that is longer than `most` bytes, as several with the same content in the
    same order."""
    whole = _encoder.encode(report)
    if len(whole) <= most:
        yield whole
        return
    lists: tuple[list[Any], ...] = ([], [], [], [])  # in the order of ReportFrame's fields
    size = 0
    for place, piece in _pieces(report, most):
        length = len(_encoder.encode(piece))
        if size and size + length > most:
            yield _encoder.encode(ReportFrame(*map(tuple, lists)))
            lists, size = ([], [], [], []), 0
        lists[place].append(piece)
        size += length
    yield _encoder.encode(ReportFrame(*map(tuple, lists)))


def decode_update(payload: bytes) -> Update:
    return _decode(_update_decoder, payload)


def decode_from_agent(payload: bytes) -> FromAgent:
    return _decode(_agent_decoder, payload)


def digest(versions: Iterable[tuple[str, str]]) -> str:
    """Return a digest of the names and versions of all resources of one type in one group."""
    state = blake2b(digest_size=8)
    for name, version in sorted(versions):
        state.update(f"{name}\0{version}\n".encode())
    return state.hexdigest()


def digests(tables: Mapping[str, Iterable[tuple[str, str]]]) -> dict[str, str]:
    return {type_url: digest(versions) for type_url, versions in tables.items()}


def bounded(proxy: ProxyFrame) -> ProxyFrame:
    """Return the proxy's sync state, truncated to the limits of this module (number of types, length of texts): a
    compromised node must not fill the control plane's memory."""
    return ProxyFrame(
        proxy.number,
        proxy.node_id[:NAME_LENGTH],
        proxy.group[:NAME_LENGTH],
        _few(proxy.settled),
        tuple(error[:_ERROR_LENGTH] for error in proxy.errors[:_ERRORS]),
        _few(proxy.behind),
        {type_url: error[:_ERROR_LENGTH] for type_url, error in _few(proxy.refused).items()},
        proxy.cluster[:_ERROR_LENGTH],
        proxy.version[:_ERROR_LENGTH],
    )


def _pieces(report: ReportFrame, most: int) -> Iterator[tuple[int, Any]]:
    """Yield the parts of a report, each with the index of its field in ReportFrame. An Acceptance of more than about
    `most // 2` bytes is split. Other parts have only a few names and messages."""
    for acceptance in report.acceptances:
        if acceptance.versions is None:
            yield 0, acceptance
            continue
        versions: dict[str, str] = {}
        size = 0
        for name, version in acceptance.versions.items():
            if size > most // 2:
                yield 0, Acceptance(acceptance.group, acceptance.type_url, versions)
                versions, size = {}, 0
            versions[name] = version
            size += len(name.encode()) + len(version.encode()) + _OVERHEAD
        yield 0, Acceptance(acceptance.group, acceptance.type_url, versions)
    yield from ((1, refusal) for refusal in report.refusals)
    yield from ((2, proxy) for proxy in report.proxies)
    yield from ((3, number) for number in report.left)


def _decode(decoder: msgspec.msgpack.Decoder[_Frame], payload: bytes) -> _Frame:
    try:
        return decoder.decode(payload)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise Malformed(f"not a message between an agent and its control plane: {error}") from error


def _few(by_type: Mapping[str, _Told]) -> dict[str, _Told]:
    return dict(islice(((type_url[:NAME_LENGTH], value) for type_url, value in by_type.items()), _TYPES))
