"""Checks whether the observed result is one of the explained outcomes, and describes the difference if not."""

import re

_EARLY = ("query_missing_content_type",)  # rejected before a route is matched, although the log may name one


def disagreement(told):
    """The difference as text; "" if one of the outcomes is the observed result."""
    found = [_difference(outcome, told) for outcome in told.explanation.outcomes]
    return "" if "" in found else "; or ".join(found)


def is_routed(told):
    """Whether the caller's proxy parsed the request as HTTP. Otherwise it forwards bytes or rejects them, and logs
    no case."""
    outcome = told.explanation.outcomes[0]
    if outcome.verdict.detail == "http1.codec_error" and outcome.steps[-1].proxy == told.asked.caller:
        return False
    return any(step.stage == "route" and step.proxy == told.asked.caller for step in outcome.steps)


def _difference(outcome, told):
    verdict, answer, asked = outcome.verdict, told.answer, told.asked
    proxied = asked.caller != "legacy" and told.request.is_http
    said = []

    def same(what, expected, actual):
        if expected != actual:
            said.append(f"{what}: {expected!r} was said, {actual!r} it was")

    if verdict.kind == "unknown":
        return f"unknown: {verdict.why}"
    if verdict.kind in ("delivered", "passed on"):
        same("reached", True, answer.app is not None)
        if answer.app and told.request.is_http:
            same("head", _head(verdict), _app_head(answer.app))
            seen = _app_headers(answer.app)
            # The deadline is shorter by the time that earlier attempts have taken.
            left_out = {"grpc-timeout"} if _attempts(seen) > 1 else frozenset()
            same("headers", _compared(verdict.headers, left_out), _compared(seen, left_out))
    else:
        same("reached", False, answer.app is not None)
        same("status", (verdict.status, verdict.grpc_status), (answer.status, answer.grpc_status))
        same("location", verdict.location, answer.location)
    if answer.status > 0 and proxied and is_routed(told) and not answer.logged:
        said.append("nothing was logged")
    if proxied and answer.logged:
        if verdict.detail not in _EARLY:
            same("route", verdict.route, _dash(answer.logged["route"]))
        same("delayed", verdict.delay > 0, "DI" in _dash(answer.logged["flags"]))
        if verdict.cluster and "NC" not in verdict.flags:  # Envoy does not log the name of a missing cluster
            same("cluster", verdict.cluster, _dash(answer.logged["cluster"]))
        if verdict.endpoint and verdict.kind in ("delivered", "denied"):
            same("endpoint", verdict.endpoint, answer.logged["host"])
        if verdict.kind in ("answered", "failed") and outcome.steps[-1].proxy == asked.caller:
            if verdict.flags:
                # Whether the retry budget is exhausted depends on other requests that fail at the same moment.
                same("flags", verdict.flags, _dash(answer.logged["flags"]).replace("UO,UF", "URX,UF"))
            if verdict.detail and verdict.kind == "answered":
                same("detail", verdict.detail, answer.logged["details"])
    if verdict.kind == "denied":
        same("detail", verdict.detail, (answer.server_logged or {}).get("details"))
    return "; ".join(said)


def _dash(text):
    return "" if text in (None, "-") else text


def _head(verdict):
    return verdict.method, verdict.host if verdict.method == "CONNECT" else verdict.path, verdict.host


def _app_head(lines):
    method, path, _ = lines[0].split(" ", 2)
    hosts = [line.partition(":")[2].strip() for line in lines[1:] if line.lower().startswith("host:")]
    return method, path, hosts[0]


def _app_headers(lines):
    return [(line.partition(":")[0].strip(), line.partition(":")[2].strip()) for line in lines[1:] if line]


def _attempts(headers):
    return max((int(value) for name, value in headers if name.lower() == "x-envoy-attempt-count"), default=1)


_OWN = re.compile(
    r"x-envoy-(?!original-path).*|x-request-id|x-payload|x-forwarded-proto|x-forwarded-client-cert|content-length|host|transfer-encoding|connection"
)


def _compared(headers, left_out=frozenset()):
    found = ((name.lower(), value) for name, value in headers)
    return sorted((name, value) for name, value in found if not _OWN.fullmatch(name) and name not in left_out)
