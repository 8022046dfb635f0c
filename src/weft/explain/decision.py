"""The parts of an explanation: a step for every decision, with the objects that caused it, and the verdict. Where the
result is random (weights, faults, endpoints) there are several outcomes, each with its odds."""

from __future__ import annotations

import re
from enum import StrEnum
from functools import lru_cache

import msgspec
from envoy.config.core.v3.base_pb2 import Metadata
from google.protobuf.struct_pb2 import Struct

_WRITTEN = ("kind", "namespace", "name", "file", "version")
_REFUSED = re.compile(
    r"refused (\w+) ([^/]+)/(.+)"
)  # a policy that was rejected and has no earlier version denies everything
_RULE = re.compile(r"ns\[(?P<namespace>[^\]]*)\]-policy\[(?P<name>[^\]]*)\](?:-rule\[(?P<rule>\d+)\])?")


class Unsure(Exception):
    """Envoy's decision cannot be predicted from what is known. The message becomes the reason of the verdict."""


class ObjectSource(msgspec.Struct, frozen=True):
    """An object that caused a decision; with file and line, or its version, where they are known."""

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
    proxy: str = ""  # the workload whose proxy decides
    about: str = ""  # the catch-all resource that matched, or a token's issuer; no resource names its owner


class Kind(StrEnum):
    DELIVERED = "delivered"  # to the workload; its response is not known
    PASSED_ON = "passed on"  # to an address that the mesh does not know
    ANSWERED = "answered"  # by a proxy: redirect, direct response, fault, preflight, no such route
    DENIED = "denied"  # by a policy, or for a token
    FAILED = "failed"  # no endpoint could be reached; a proxy reports it
    CLOSED = "closed"  # the connection ends without a response
    UNKNOWN = "unknown"


STOPPED = (Kind.DENIED, Kind.CLOSED, Kind.FAILED)  # by the object that made the last decision


class Verdict(msgspec.Struct, frozen=True):
    kind: Kind
    why: str
    status: int = 0  # HTTP status; 0: the workload's own, or none
    grpc_status: int = 0  # if a proxy responds to a gRPC call itself
    flags: str = ""  # as in the caller's access log, where they are certain
    detail: str = ""  # `response_code_details` of the proxy that decides
    route: str = ""
    cluster: str = ""
    endpoint: str = ""
    endpoints: tuple[tuple[str, float], ...] = ()  # all endpoints that the cluster may choose, each with its share
    workload: str = ""
    location: str = ""  # of a redirect
    delay: float = 0.0  # seconds that a fault adds
    method: str = ""
    host: str = ""
    path: str = ""
    headers: tuple[tuple[str, str], ...] = ()  # of the request as it arrives
    sources: tuple[ObjectSource, ...] = ()  # the objects that stopped it, if it does not arrive
    provided: str = ""  # an assumption that could not be verified


class Outcome(msgspec.Struct, frozen=True):
    odds: float
    steps: tuple[Step, ...]
    verdict: Verdict


class Explanation(msgspec.Struct, frozen=True):
    """The outcomes, the likeliest first. Their odds add up to 1."""

    outcomes: tuple[Outcome, ...]

    @property
    def verdict(self) -> Verdict:
        return self.outcomes[0].verdict

    @property
    def certain(self) -> bool:
        return len(self.outcomes) == 1 and self.verdict.kind is not Kind.UNKNOWN


def sources_of(metadata: Metadata) -> tuple[ObjectSource, ...]:
    """The source objects that translation wrote into a resource's metadata."""
    if "weft" not in metadata.filter_metadata:
        return ()
    return _sources(metadata.filter_metadata["weft"].SerializeToString(deterministic=True))


def policy_source(rule: str) -> tuple[ObjectSource, ...]:
    """The policy that a rule's name in Envoy stands for."""
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
