"""Filters that a route switches on for its own requests: faults that are injected, and preflights that are answered."""

from __future__ import annotations

import msgspec
from envoy.extensions.filters.http.cors.v3.cors_pb2 import CorsPolicy
from envoy.extensions.filters.http.fault.v3.fault_pb2 import HTTPFault
from envoy.type.v3.percent_pb2 import FractionalPercent

from weft.explain import matchers
from weft.explain.decision import DecisionStage, Kind, ObjectSource, Unsure, Verdict
from weft.explain.request import RequestHeaders
from weft.explain.walk import Walk

_OF = {FractionalPercent.HUNDRED: 100, FractionalPercent.TEN_THOUSAND: 10_000, FractionalPercent.MILLION: 1_000_000}


def inject(walk: Walk, fault: HTTPFault, sources: tuple[ObjectSource, ...]) -> Verdict | None:
    """A delay first, then perhaps an answer instead of the workload's."""
    if fault.HasField("delay"):
        seconds = fault.delay.fixed_delay.ToTimedelta().total_seconds()
        if not fault.delay.HasField("fixed_delay"):
            raise Unsure("a header decides about a delay")
        if _hits(walk, fault.delay.percentage):
            walk.delay += seconds
            walk.tell(
                DecisionStage.FILTER, f"a fault delays it by {seconds:g} s ({share(fault.delay.percentage)})", sources
            )
    if fault.HasField("abort"):
        abort = fault.abort
        if abort.HasField("header_abort"):
            raise Unsure("a header decides about an abort")
        if _hits(walk, abort.percentage):
            grpc = abort.WhichOneof("error_type") == "grpc_status"
            status = 200 if grpc else abort.http_status
            told = f"gRPC's status {abort.grpc_status}" if grpc else str(status)
            walk.tell(DecisionStage.FILTER, f"a fault answers {told} ({share(abort.percentage)})", sources)
            verdict = walk.end(
                Kind.ANSWERED, "a fault is injected", status=status, flags="FI", detail="fault_filter_abort"
            )
            # Who did not ask by gRPC gets 200 and nothing else.
            own = grpc and walk.grpc
            return msgspec.structs.replace(verdict, grpc_status=abort.grpc_status) if own else verdict
    return None


def preflight(
    walk: Walk, policy: CorsPolicy, headers: RequestHeaders, sources: tuple[ObjectSource, ...]
) -> Verdict | None:
    origin = headers.joined("origin")
    asked = headers.joined("access-control-request-method")
    if not origin or not asked or headers.value(":method") != "OPTIONS":
        return None
    allowed = allowed_origin(policy, origin)
    if not allowed and policy.forward_not_matching_preflights.value:
        walk.tell(DecisionStage.FILTER, f"a preflight of {origin}, which is not allowed, is passed on", sources)
        return None
    how = "allowing it" if allowed else "allowing nothing"
    walk.tell(DecisionStage.FILTER, f"a preflight of {origin} is answered, {how}", sources)
    return walk.end(Kind.ANSWERED, f"the CORS policy answers, {how}", status=200, detail="cors_response")


def allowed_origin(policy: CorsPolicy, origin: str) -> bool:
    """Whatever matches a star allows everybody."""
    return any(matchers.text(each, "*") or matchers.text(each, origin) for each in policy.allow_origin_string_match)


def _hits(walk: Walk, percentage: FractionalPercent) -> bool:
    share = percentage.numerator / _OF[percentage.denominator]
    return walk.choose(((share, True), (1.0 - share, False)))


def share(percentage: FractionalPercent) -> str:
    return f"{100 * percentage.numerator / _OF[percentage.denominator]:g} %"
