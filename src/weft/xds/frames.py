"""What a node's agent and the control plane say to each other: one stream for all proxies of a machine.

Envoy's own discovery speaks of one proxy and one type at a time. This speaks of groups, whole: a change of several
types is one message, which the agent applies at once, and a body goes over the line once however many groups use it.
Bodies are Envoy's bytes, which nobody here reads. Rules of the line:

- A version names a content: equal type, name and version are equal bytes. An entry without a body means one that the
  agent has in one of its groups, after everything that was said before, or had when it said `Hello`, until `resumed`.
- One `Update` is out at a time; `TakenFrame` asks for the next. Within one: groups first, in their order, then
  placements, then what is gone.
- To an agent that builds, a large body may come as a patch of one that it has under the same name, and a group that is
  new to it as what differs from another of its groups.
- A stream begins with `Hello`, which says what the agent has, so that only what differs follows.
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

# A report longer than this goes in several messages: the control plane takes four times as much at once
# (`request.REQUEST_BYTES`), and who says more than that would be sent away, and say it again.
PORTION_BYTES = 4 << 20
# Longest message that an agent takes: the whole of one group, which the largest meshes make tens of megabytes.
UPDATE_BYTES = 256 << 20


class Malformed(ValueError):
    """Not a message of this protocol."""


# From the control plane


class Entry(msgspec.Struct, frozen=True, array_like=True):
    name: str
    version: str
    body: bytes | None = None  # None: the agent has it, or can make it
    patch: Patch | None = None  # of one with the same name that the agent has


class GroupUpdate(msgspec.Struct, frozen=True, array_like=True):
    group: str
    revision: int  # the control plane's push number: everything up to it is here or was before
    upserts: dict[str, list[Entry]] = {}  # by type
    removals: dict[str, list[str]] = {}
    fresh: bool = False  # this is the whole group; without it, what the agent has of it is built upon
    whole: tuple[str, ...] = ()  # types of which this is everything
    kept: dict[
        str, list[str]
    ] = {}  # names in quarantine: of something whole they are not said, and who has one keeps it
    like: str = ""  # something fresh is as this group, which the agent has, but for what is said
    heard: int = 0  # the last of the agent's numbered `WantedFrame` about this group that this answers


class Update(msgspec.Struct, frozen=True, array_like=True):
    nonce: int
    groups: tuple[GroupUpdate, ...] = ()
    placements: dict[str, str] = {}  # pod → group
    gone: tuple[str, ...] = ()  # groups of which nothing more will be said
    resumed: bool = False  # what was listed in Hello and is in no group may be forgotten


# From the agent


class Hello(msgspec.Struct, frozen=True, array_like=True, tag="hello"):
    node: str
    pods: tuple[str, ...] = ()
    groups: dict[str, dict[str, str]] = {}  # group → type → digest of what the agent has of it
    bodies: dict[str, list[tuple[str, str]]] = {}  # type → names and versions
    builds: bool = False  # takes a body as a patch of another, and a group as being like another
    wanted: dict[str, list[str]] = {}  # group → clusters that its proxies wait for by name, or have waited for
    whole: tuple[str, ...] = ()  # groups that were told of everything, or have called too much to say what


class PodsFrame(msgspec.Struct, frozen=True, array_like=True, tag="pods"):
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()


class TakenFrame(msgspec.Struct, frozen=True, array_like=True, tag="taken"):
    nonce: int


class Acceptance(msgspec.Struct, frozen=True, array_like=True):
    """Some proxy of the group has taken these versions, or all that there was of the type at a revision."""

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
    proxy: str  # its node id


NOT_SENT = -1


class ProxyFrame(msgspec.Struct, frozen=True, array_like=True):
    """How far a proxy is: by type the revision up to which it has answered everything, or NOT_SENT."""

    number: int  # of its stream at the agent
    node_id: str
    group: str
    settled: dict[str, int] = {}
    errors: tuple[str, ...] = ()
    behind: dict[str, int] = {}  # by type, the revision of the first change that it has not answered
    refused: dict[str, str] = {}  # by type, what it said last of what it will not have
    cluster: str = ""
    version: str = ""


class ReportFrame(msgspec.Struct, frozen=True, array_like=True, tag="report"):
    acceptances: tuple[Acceptance, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    proxies: tuple[ProxyFrame, ...] = ()
    left: tuple[int, ...] = ()  # numbers of proxies that are gone


class WantedFrame(msgspec.Struct, frozen=True, array_like=True, tag="wanted"):
    """Proxies of a group wait for clusters of these names, or have them. Each is said once on a stream; what Hello has
    is said. One with a number is answered by an update of the group that has whatever of it there is, even if that is
    nothing new."""

    group: str
    names: tuple[str, ...]
    number: int = 0


FromAgent = Hello | PodsFrame | TakenFrame | ReportFrame | WantedFrame
_Frame = TypeVar("_Frame")
_Told = TypeVar("_Told", int, str)
_TYPES, _ERRORS, _ERROR_LENGTH = 16, 8, 512  # of what is said about one proxy
_OVERHEAD = 10  # bytes around two texts, at most

_encoder = msgspec.msgpack.Encoder()
_update_decoder = msgspec.msgpack.Decoder(Update)
_agent_decoder: msgspec.msgpack.Decoder[FromAgent] = msgspec.msgpack.Decoder(FromAgent)


def encode(frame: Update | FromAgent) -> bytes:
    return _encoder.encode(frame)


def encode_report(report: ReportFrame, most: int = PORTION_BYTES) -> Iterator[bytes]:
    """In one message or, if that is too long, in several that say the same in the same order."""
    whole = _encoder.encode(report)
    if len(whole) <= most:
        yield whole
        return
    lists: tuple[list[Any], ...] = ([], [], [], [])  # as in Report
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
    """Of the names and versions of one type in one group."""
    state = blake2b(digest_size=8)
    for name, version in sorted(versions):
        state.update(f"{name}\0{version}\n".encode())
    return state.hexdigest()


def digests(tables: Mapping[str, Iterable[tuple[str, str]]]) -> dict[str, str]:
    return {type_url: digest(versions) for type_url, versions in tables.items()}


def bounded(proxy: ProxyFrame) -> ProxyFrame:
    """What is kept of it: whoever has taken over a node must not fill the memory that all share."""
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
    """Each with its place in Report; none is longer than a few names and messages, or `most`."""
    for each in report.acceptances:
        if each.versions is None:
            yield 0, each
            continue
        versions: dict[str, str] = {}
        size = 0
        for name, version in each.versions.items():
            if size > most // 2:
                yield 0, Acceptance(each.group, each.type_url, versions)
                versions, size = {}, 0
            versions[name] = version
            size += len(name.encode()) + len(version.encode()) + _OVERHEAD
        yield 0, Acceptance(each.group, each.type_url, versions)
    yield from ((1, refusal) for refusal in report.refusals)
    yield from ((2, proxy) for proxy in report.proxies)
    yield from ((3, number) for number in report.left)


def _decode(decoder: msgspec.msgpack.Decoder[_Frame], payload: bytes) -> _Frame:
    try:
        return decoder.decode(payload)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise Malformed(f"not a message between an agent and its control plane: {error}") from error


def _few(by_type: Mapping[str, _Told]) -> dict[str, _Told]:
    return dict(islice(((type_url[:NAME_LENGTH], told) for type_url, told in by_type.items()), _TYPES))
