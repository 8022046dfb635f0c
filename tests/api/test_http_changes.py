from datetime import timedelta

import pytest

from api.reading import istio, told, value
from weft.model.virtual_service import (
    Abort,
    CorsPolicy,
    Delay,
    Fault,
    HeaderChanges,
    Headers,
    MatchKind,
    Retries,
    StringMatch,
)


def route(text):
    return istio("VirtualService", f"hosts: [a]\nhttp: [{{{text}, route: [{{destination: {{host: a}}}}]}}]")


def http(text):
    return value(route(text)).http[0]


def test_reads_headers():
    assert http(
        "headers: {request: {set: {host: b, x: '%REQ(y)%'}, remove: [z]}, response: {add: {x: '100%%'}}}"
    ).headers == (
        Headers(
            HeaderChanges(set=(("host", "b"), ("x", "%REQ(y)%")), remove=("z",)), HeaderChanges(add=(("x", "100%%"),))
        )
    )


def test_reads_retries():
    assert http(
        "retries: {attempts: 4, perTryTimeout: 800ms, retryOn: 'gateway-error, 503', retryRemoteLocalities: true, "
        "retryIgnorePreviousHosts: false, backoff: 25ms}"
    ).retries == Retries(4, timedelta(milliseconds=800), "gateway-error,503", True, False, timedelta(milliseconds=25))
    assert http("retries: {attempts: 0}").retries == Retries(0)


def test_reads_faults():
    assert http(
        "fault: {delay: {fixedDelay: 3s, percentage: {value: 12.5}}, abort: {grpcStatus: UNAVAILABLE}}"
    ).fault == (Fault(Delay(timedelta(seconds=3), 12.5), Abort(grpc_status="UNAVAILABLE")))
    assert http("fault: {abort: {httpStatus: 503, percent: 5}}").fault == Fault(None, Abort(503, "", 5.0))


def test_reads_cors():
    assert http(
        "corsPolicy: {allowOrigins: [{exact: 'https://a'}], allowMethods: [GET], allowHeaders: [x], "
        "exposeHeaders: [y], "
        "maxAge: 24h, allowCredentials: true, unmatchedPreflights: IGNORE}"
    ).cors == CorsPolicy(
        (StringMatch(MatchKind.EXACT, "https://a"),), ("GET",), ("x",), ("y",), timedelta(days=1), True, "IGNORE"
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "retries: {attempts: 0, retryOn: 5xx}",
            "6 `attempts` is 0, so there are no retries (set `attempts`, or keep only `attempts: 0`)",
        ),
        (
            "retries: {attempts: 1, retryOn: gateway-eror}",
            "6 `gateway-eror` is not a retry condition (did you mean `gateway-error`?)",
        ),
        ("retries: {attempts: -1}", "6 `attempts` must be between 0 and 10000, not -1"),
        (
            "retries: {attempts: 1, perTryTimeout: 0s}",
            "6 `perTryTimeout` must be at least 1ms, not 0s (leave the field out for no limit)",
        ),
        ("fault: {}", "6 `fault` must have `delay` or `abort`"),
        ("fault: {abort: {percentage: {value: 1}}}", "6 `abort` needs a status (set `httpStatus` or `grpcStatus`)"),
        (
            "fault: {abort: {httpStatus: 700, percentage: {value: 1}}}",
            "6 `httpStatus` must be between 200 and 599, not 700",
        ),
        (
            "fault: {abort: {grpcStatus: NOTFOUND, percentage: {value: 1}}}",
            "6 `grpcStatus` cannot be `NOTFOUND` (did you mean `NOT_FOUND`?)",
        ),
        (
            "fault: {delay: {fixedDelay: 1s}}",
            "6 warning: a fault without `percentage` applies to no request (add `percentage: {value: 100}`)",
        ),
        ("headers: {request: {set: {'x y': a}}}", "6 `x y` is not a header that can be changed"),
        (
            "headers: {request: {set: {x: 'a%b'}}}",
            "6 `a%b` is not a header value (write a percent sign as %%, or a command as %NAME%)",
        ),
        (
            'headers: {request: {add: {x: "a\\nb"}}}',
            "6 the value of `x` contains a line break or a control character",
        ),
        (f"headers: {{response: {{set: {{x: {'é' * 8_193}}}}}}}", "6 the value of `x` is longer than 16384 bytes"),
        (
            f"headers: {{request: {{set: {{{', '.join(f'x-{number}: a' for number in range(501))}}}}}}}",
            "6 501 headers are set or added, and at most 500 are allowed",
        ),
        ("headers: {response: {set: {host: a}}}", "6 `host` can only be set on requests"),
        ("headers: {request: {remove: [host]}}", "6 `host` can only be set on requests"),
        ("corsPolicy: {allowMethods: [GETT]}", "6 `GETT` is not an HTTP method (did you mean `GET`?)"),
        ("corsPolicy: {maxAge: 1500ms}", "6 `maxAge` must be in whole seconds"),
    ],
)
def test_reports_what_is_wrong(text, problem):
    assert told(route(text)) == [problem]
