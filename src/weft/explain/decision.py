"""What an explanation is made of: a step for every decision with the objects that made it, and how it ends. Where
chance decides (weights, faults, endpoints) there are several outcomes, each with its odds."""

from __future__ import annotations

import re
from enum import StrEnum
from functools import lru_cache

import msgspec
from envoy.config.core.v3.base_pb2 import Metadata
from google.protobuf.struct_pb2 import Struct

_WRITTEN = ("kind", "namespace", "name", "file", "version")
_REFUSED = re.compile(r"refused (\w+) ([^/]+)/(.+)")  # what was never good keeps everybody out
_RULE = re.compile(r"ns\[(?P<namespace>[^\]]*)\]-policy\[(?P<name>[^\]]*)\](?:-rule\[(?P<rule>\d+)\])?")


class Unsure(Exception):
    """Envoy would decide something here that cannot be told from what is known. Its words become the verdict's."""


class ObjectSource(msgspec.Struct, frozen=True):
    """An object that a decision comes from; file and line, or its version, where they are known."""

    kind: str
    namespace: str = ""
    name: str = ""
    file: str = ""
    line: int = 0
    part: str = ""  # of the object: `rule[0]`
    version: str = ""  # on a cluster: its resourceVersion

    def __str__(self) -> str:
        name = f"{self.kind} {self.namespace}/{self.name}" if self.namespace else f"{self.kind} {self.name}"
        name = f"{name} {self.part}" if self.part else name
        if self.file:
            return f"{name} ({self.file}:{self.line})"
        return f"{name} (version {self.version})" if self.version else name


class DecisionStage(StrEnum):
    NAME = "name"
    LISTENER = "listener"
    ROUTE = "route"
    FILTER = "filter"
    CLUSTER = "cluster"
    ENDPOINT = "endpoint"
    TLS = "tls"
    INBOUND = "inbound"
    TOKEN = "token"  # noqa: S105 (no secret)
    POLICY = "policy"
    WORKLOAD = "workload"


class Step(msgspec.Struct, frozen=True):
    stage: DecisionStage
    what: str
    sources: tuple[ObjectSource, ...] = ()
    proxy: str = ""  # whose proxy decides
    about: str = (
        ""  # the resource that is for everything unknown, or a token's issuer: who is behind it, no resource says
    )


class Kind(StrEnum):
    DELIVERED = "delivered"  # to the workload, whose answer nobody knows
    PASSED_ON = "passed on"  # to an address that the mesh does not know
    ANSWERED = "answered"  # by a proxy: redirect, direct response, fault, preflight, no such route
    DENIED = "denied"  # by a policy, or for a token
    FAILED = "failed"  # nobody could be reached; a proxy says so
    CLOSED = "closed"  # the connection ends without an answer
    UNKNOWN = "unknown"


STOPPED = (Kind.DENIED, Kind.CLOSED, Kind.FAILED)  # by whoever made the last decision


class Verdict(msgspec.Struct, frozen=True):
    kind: Kind
    why: str
    status: int = 0  # of HTTP; 0: the workload's own, or none
    grpc_status: int = 0  # where a proxy answers a gRPC call itself
    flags: str = ""  # as the caller's access log has them, where they are sure
    detail: str = ""  # `response_code_details` of whoever decides
    route: str = ""
    cluster: str = ""
    endpoint: str = ""
    endpoints: tuple[tuple[str, float], ...] = ()  # all that the cluster may choose, each with its share
    workload: str = ""
    location: str = ""  # of a redirect
    delay: float = 0.0  # seconds that a fault adds
    method: str = ""
    host: str = ""
    path: str = ""
    headers: tuple[tuple[str, str], ...] = ()  # of the request as it arrives
    sources: tuple[ObjectSource, ...] = ()  # whose decision it is, where it does not arrive
    provided: str = ""  # what was taken for granted on the way, as nobody here could find it out


class Outcome(msgspec.Struct, frozen=True):
    odds: float
    steps: tuple[Step, ...]
    verdict: Verdict


class Explanation(msgspec.Struct, frozen=True):
    """The outcomes, the likeliest first. Odds of all of them add up to 1."""

    outcomes: tuple[Outcome, ...]

    @property
    def verdict(self) -> Verdict:
        return self.outcomes[0].verdict

    @property
    def certain(self) -> bool:
        return len(self.outcomes) == 1 and self.verdict.kind is not Kind.UNKNOWN


def sources_of(metadata: Metadata) -> tuple[ObjectSource, ...]:
    """What translation wrote into a resource's metadata."""
    if "weft" not in metadata.filter_metadata:
        return ()
    return _sources(metadata.filter_metadata["weft"].SerializeToString(deterministic=True))


def policy_source(rule: str) -> tuple[ObjectSource, ...]:
    """The policy behind the name that a rule has in Envoy."""
    if refused := _REFUSED.match(rule):
        return (ObjectSource(refused[1], refused[2], refused[3]),)
    found = _RULE.match(rule)
    if found is None:
        return ()
    part = f"rule[{found['rule']}]" if found["rule"] else ""
    return (ObjectSource("AuthorizationPolicy", found["namespace"], found["name"], part=part),)


@lru_cache(maxsize=65536)
def _sources(written: bytes) -> tuple[ObjectSource, ...]:
    listed = Struct.FromString(written).fields["sources"].list_value.values
    found = []
    for entry in listed:
        fields = entry.struct_value.fields
        text = {name: fields[name].string_value for name in _WRITTEN if name in fields}
        found.append(ObjectSource(**text, line=int(fields["line"].number_value) if "line" in fields else 0))
    return tuple(found)
