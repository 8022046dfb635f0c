"""Evaluates the HTTP filters that a route enables for its requests: fault injection, and responses to CORS
preflights."""

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
    """Applies the fault's delay, then its abort. Returns the verdict of an abort; None if the request continues.
    `sources`: the objects that configure the fault."""
    if fault.HasField("delay"):
        seconds = fault.delay.fixed_delay.ToTimedelta().total_seconds()
        if not fault.delay.HasField("fixed_delay"):
            raise Unsure("a request header decides the delay")
        if _hits(walk, fault.delay.percentage):
            walk.delay += seconds
            walk.tell(
                DecisionStage.FILTER,
                f"a fault delays the request by {seconds:g} s ({share(fault.delay.percentage)})",
                sources,
            )
    if fault.HasField("abort"):
        abort = fault.abort
        if abort.HasField("header_abort"):
            raise Unsure("a request header decides the abort")
        if _hits(walk, abort.percentage):
            grpc = abort.WhichOneof("error_type") == "grpc_status"
            status = 200 if grpc else abort.http_status
            response = f"gRPC status {abort.grpc_status}" if grpc else str(status)
            walk.tell(DecisionStage.FILTER, f"a fault responds with {response} ({share(abort.percentage)})", sources)
            verdict = walk.end(
                Kind.ANSWERED, "a fault is injected", status=status, flags="FI", detail="fault_filter_abort"
            )
            # A caller that does not use gRPC gets only the HTTP status 200.
            own = grpc and walk.grpc
            return msgspec.structs.replace(verdict, grpc_status=abort.grpc_status) if own else verdict
    return None


def preflight(
    walk: Walk, policy: CorsPolicy, headers: RequestHeaders, sources: tuple[ObjectSource, ...]
) -> Verdict | None:
    origin = headers.joined("origin")
    requested_method = headers.joined("access-control-request-method")
    if not origin or not requested_method or headers.value(":method") != "OPTIONS":
        return None
    allowed = allowed_origin(policy, origin)
    if not allowed and policy.forward_not_matching_preflights.value:
        what = f"a CORS preflight from {origin}, which the CORS policy does not allow, is forwarded"
        walk.tell(DecisionStage.FILTER, what, sources)
        return None
    how = "allowing the origin" if allowed else "allowing nothing"
    walk.tell(DecisionStage.FILTER, f"the CORS policy responds to a preflight from {origin}, {how}", sources)
    return walk.end(Kind.ANSWERED, f"the CORS policy responds, {how}", status=200, detail="cors_response")


def allowed_origin(policy: CorsPolicy, origin: str) -> bool:
    """Whether the CORS policy allows the origin. An entry that matches `*` allows every origin."""
    return any(matchers.text(each, "*") or matchers.text(each, origin) for each in policy.allow_origin_string_match)


def _hits(walk: Walk, percentage: FractionalPercent) -> bool:
    share = percentage.numerator / _OF[percentage.denominator]
    return walk.choose(((share, True), (1.0 - share, False)))


def share(percentage: FractionalPercent) -> str:
    return f"{100 * percentage.numerator / _OF[percentage.denominator]:g} %"
