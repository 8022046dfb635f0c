"""The parts of an explanation: a step for every decision, with the objects that caused the decision, and the
verdict. Where the result is random (weights, faults, endpoints) there are several outcomes, each with its odds."""

from __future__ import annotations

import re
from enum import StrEnum
from functools import lru_cache

import msgspec
from envoy.config.core.v3.base_pb2 import Metadata
from google.protobuf.struct_pb2 import Struct

_WRITTEN = ("kind", "namespace", "name", "file", "version")
# Name of the RBAC rule that denies everything in place of a policy that was rejected and never valid.
_REFUSED = re.compile(r"refused (\w+) ([^/]+)/(.+)")
_RULE = re.compile(r"ns\[(?P<namespace>[^\]]*)\]-policy\[(?P<name>[^\]]*)\](?:-rule\[(?P<rule>\d+)\])?")


class Unsure(Exception):
    """Raised where Envoy's decision cannot be predicted from the known facts. The message becomes the reason in the
    verdict."""


class ObjectSource(msgspec.Struct, frozen=True):
    """An object that caused a decision, with its file and line, or its version (the resourceVersion on a cluster),
    where they are known. `part`: the part of the object that decided, such as `rule[0]`."""

    kind: str
    namespace: str = ""
    name: str = ""
    file: str = ""
    line: int = 0
    part: str = ""
    version: str = ""

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
    # The catch-all resource that matched, or a token's issuer: no resource names the object behind these.
    about: str = ""


class Kind(StrEnum):
    DELIVERED = "delivered"  # to the workload; its response is not predicted
    PASSED_ON = "passed on"  # to an address that no workload of the mesh has
    ANSWERED = "answered"  # by a proxy: redirect, direct response, fault, preflight, no such route
    DENIED = "denied"  # by a policy, or because of a token
    FAILED = "failed"  # no endpoint can be reached; a proxy responds with an error
    CLOSED = "closed"  # the connection ends without a response
    UNKNOWN = "unknown"


STOPPED = (Kind.DENIED, Kind.CLOSED, Kind.FAILED)  # kinds for which the verdict names the objects of the last decision


class Verdict(msgspec.Struct, frozen=True):
    kind: Kind
    why: str
    status: int = 0  # HTTP status; 0: the workload decides it, or there is no HTTP response
    grpc_status: int = 0  # set if a proxy responds to a gRPC call itself
    flags: str = ""  # response flags in the access log of the caller's proxy, where they are certain
    detail: str = ""  # `response_code_details` in the access log of the proxy that decides
    route: str = ""
    cluster: str = ""
    endpoint: str = ""
    endpoints: tuple[tuple[str, float], ...] = ()  # all endpoints that the cluster may choose, each with its share
    workload: str = ""
    location: str = ""  # the URL of a redirect
    delay: float = 0.0  # seconds that a fault adds
    method: str = ""
    host: str = ""
    path: str = ""
    headers: tuple[tuple[str, str], ...] = ()  # headers of the request as the workload gets it
    sources: tuple[ObjectSource, ...] = ()  # the objects that stopped the request, if it does not reach a workload
    provided: str = ""  # an assumption that the verdict depends on and that could not be verified


class Outcome(msgspec.Struct, frozen=True):
    odds: float
    steps: tuple[Step, ...]
    verdict: Verdict


class Explanation(msgspec.Struct, frozen=True):
    """The possible outcomes of a request, the likeliest first. Their odds add up to 1."""

    outcomes: tuple[Outcome, ...]

    @property
    def verdict(self) -> Verdict:
        return self.outcomes[0].verdict

    @property
    def certain(self) -> bool:
        return len(self.outcomes) == 1 and self.verdict.kind is not Kind.UNKNOWN


def sources_of(metadata: Metadata) -> tuple[ObjectSource, ...]:
    """The source objects that translation has written into a resource's metadata."""
    if "weft" not in metadata.filter_metadata:
        return ()
    return _sources(metadata.filter_metadata["weft"].SerializeToString(deterministic=True))


def policy_source(rule: str) -> tuple[ObjectSource, ...]:
    """The policy from which an RBAC rule was translated. `rule`: the rule's name in Envoy's config, which contains
    the policy's name. () if the name is not that of a policy."""
    if refused := _REFUSED.match(rule):
        return (ObjectSource(refused[1], refused[2], refused[3]),)
    match = _RULE.match(rule)
    if match is None:
        return ()
    part = f"rule[{match['rule']}]" if match["rule"] else ""
    return (ObjectSource("AuthorizationPolicy", match["namespace"], match["name"], part=part),)


@lru_cache(maxsize=65536)
def _sources(written: bytes) -> tuple[ObjectSource, ...]:
    listed = Struct.FromString(written).fields["sources"].list_value.values
    sources = []
    for entry in listed:
        fields = entry.struct_value.fields
        text = {name: fields[name].string_value for name in _WRITTEN if name in fields}
        sources.append(ObjectSource(**text, line=int(fields["line"].number_value) if "line" in fields else 0))
    return tuple(sources)
